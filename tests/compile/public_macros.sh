# public_macros.sh OUT COMPILER FLAGS... - what including frisbee.h adds to the macros of the three standard headers that it may include: its own,
# FRISBEE_, and FRISBEEI_ of those that FRISBEE_MESSAGE and FRISBEE_SERVICE expand to.
out=$1
shift
printf '#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n' >"$out.base.c"
"$@" -dM -E "$out.base.c" | sort >"$out.base" || exit 1
"$@" -dM -E tests/compile/declarations.c | sort >"$out.with" || exit 1
comm -13 "$out.base" "$out.with" >"$out.added"
grep -q '^#define FRISBEE_VERSION ' "$out.added" || { echo "no FRISBEE_VERSION among the macros"; exit 1; }
comm -23 "$out.base" "$out.with" | sed 's/^/taken away: /' >"$out.found"
grep -v '^#define FRISBEEI\{0,1\}_' "$out.added" | sed 's/^/added: /' >>"$out.found"
cat "$out.found"
test ! -s "$out.found"
