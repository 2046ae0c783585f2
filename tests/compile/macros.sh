# macros.sh OUT SOURCE COMPILER FLAGS... - prints each macro that frisbee.h defines and leaves behind without the prefix FRISBEE, and each macro
# of others that it takes away. Silent if there is none.
out=$1 source=$2
shift 2
"$@" -dD -E "$source" >"$out.i" || exit 1
awk '
    /^# [0-9]+ "/ { ours = $3 ~ /frisbee\.h"$/; next } # a line marker says whose the next lines are
    /^#define / {
        name = $2
        sub(/\(.*/, "", name)
        if (ours) mine[name] = 1; else { delete mine[name]; others[name] = 1 }
        next
    }
    /^#undef / {
        # glibc takes _DEFAULT_SOURCE over from whoever defines it, as frisbee.h does before its own includes
        if (ours && $2 in others && $2 != "_DEFAULT_SOURCE") print "taken away: " $2
        delete mine[$2]
    }
    END {
        if (!("FRISBEE_VERSION" in mine)) print "no FRISBEE_VERSION among the macros"
        for (name in mine) if (name !~ /^FRISBEE/) print "left behind: " name
    }' "$out.i" >"$out.found"
cat "$out.found"
test ! -s "$out.found"
