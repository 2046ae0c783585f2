#!/bin/sh
# tests/compile/run.sh [WORD] - the compile matrix: gcc and clang, C and C++, every option of frisbee.h, silent under strict warnings; units linked
# across languages; misuse that must be an #error; the code of the manual and the README; every symbol and macro that the header leaves behind.
# What is missing on this machine is skipped, and fails where CI=true. With WORD only what has it in its name. Says how many bytes of code each
# option saves. Ends with the line `compile: N passed, N failed`.

cd "$(dirname "$0")/../.." || exit 1
here=tests/compile out=build/compile workers=2 word=${1:-}
rm -rf "$out"
mkdir -p "$out"
list=$out/list
: >"$list"

strict='-Wall -Wextra -pedantic -Wshadow -Wconversion -Wsign-conversion -Wundef -Werror -I.'
epoll=-DFRISBEE_POLLER=FRISBEE_POLLER_EPOLL
poll=-DFRISBEE_POLLER=FRISBEE_POLLER_POLL
none=-DFRISBEE_POLLER=FRISBEE_POLLER_NONE
no_pubsub=-DFRISBEE_NO_PUBSUB
no_streams=-DFRISBEE_NO_STREAMS
no_rpc=-DFRISBEE_NO_RPC

# ---- the list of checks: a number, a name and a command each, by tabs. They are run at the end, some at a time.

count=0
add() { # NAME COMMAND; the word OUT in the command is a file of its own
    case $1 in *"$word"*) ;; *) return ;; esac
    count=$((count + 1))
    printf '%s\t%s\t%s\n' "$count" "$1" "$(printf '%s' "$2" | sed "s|OUT|$out/$count|g")" >>"$list"
}

# An #error whose message begins with "frisbee.h:" and contains WORD.
add_error() { # NAME WORD COMMAND
    add "$1 is an #error" "! $3 2>OUT.log && { grep 'error.*frisbee\\.h:.*$2' OUT.log >OUT.found || { cat OUT.log; false; }; }"
}

missing() { # WHAT
    if test "${CI:-}" = true; then add "$1 is missing" false; else echo "skipped: $1 is missing"; fi
}

dialects='' # one a line: language, then compiler and flags
for compiler in gcc clang; do
    if command -v "$compiler" >/dev/null; then
        for std in c99 c11 gnu99; do dialects="$dialects
c $compiler -std=$std -Wstrict-prototypes"; done
    else
        missing "$compiler"
    fi
done
for compiler in g++ clang++; do
    if command -v "$compiler" >/dev/null; then
        for std in c++11 c++20; do dialects="$dialects
c++ $compiler -x c++ -std=$std"; done
    else
        missing "$compiler"
    fi
done

pollers="$poll $none"
case $(uname -s) in
Linux) pollers="$epoll $pollers" ;;
*) echo 'skipped: epoll is missing' ;;
esac

# ---- every option in every dialect, alone and in combination

while read -r language dialect; do
    test -n "$language" || continue
    cc="$dialect $strict"
    add "$dialect: declarations" "$cc -O0 -c $here/declarations.c -o OUT.o"
    add "$dialect: declarations after <stdio.h>" "$cc -O0 -include stdio.h -c $here/declarations.c -o OUT.o"
    for poller in $pollers; do
        for threads in '' -DFRISBEE_NO_THREADS; do
            for checks in '' -DFRISBEE_CHECK; do
                add "$dialect $poller $threads $checks" "$cc -O0 $poller $threads $checks -c $here/frisbee.c -o OUT.o"
            done
        done
        add "$dialect $poller -O2" "$cc -O2 $poller -c $here/frisbee.c -o OUT.o"
        for left_out in "$no_pubsub" "$no_streams" "$no_pubsub $no_streams"; do
            add "$dialect $poller $left_out" "$cc -O0 $poller -DFRISBEE_CHECK $left_out -c $here/frisbee.c -o OUT.o"
        done
        left_out="$no_pubsub $no_streams -DFRISBEE_NO_THREADS"
        add "$dialect $poller $left_out" "$cc -O0 $poller $left_out -c $here/frisbee.c -o OUT.o"
    done
    for level in 0 1 3; do # 2 is the default
        add "$dialect log level $level" "$cc -O0 -DFRISBEE_LOG_LEVEL=$level -c $here/frisbee.c -o OUT.o"
    done
    add "$dialect static -O2" "$cc -O2 -DFRISBEE_STATIC -c $here/use.c -o OUT.o"
    case $dialect in
    *=c99* | *=c++11*) # static functions are inlined most, and so are warned about most
        add "$dialect static -O3" "$cc -O3 -DFRISBEE_STATIC -c $here/use.c -o OUT.o"
        add "$dialect static -Os" "$cc -Os -DFRISBEE_STATIC -c $here/use.c -o OUT.o"
        ;;
    esac
    add "$dialect sizes" "$cc -O2 -DFRISBEE_EVENTS=1 -DFRISBEE_CHUNK=4096 -c $here/frisbee.c -o OUT.o"
    add "$dialect FRISBEE_CHECK -O2" "$cc -O2 -DFRISBEE_CHECK -c $here/frisbee.c -o OUT.o"

    # Two units linked, and what comes out works.
    for poller in $pollers; do
        sockets=1
        if test "$poller" = "$none"; then sockets=2; fi
        add "$dialect $poller: two units run" \
            "$cc -O1 $poller -DEXPECT_SOCKETS=$sockets $here/frisbee.c $here/use.c -pthread -o OUT && OUT"
        add "$dialect $poller static: one unit runs" \
            "$cc -O1 $poller -DFRISBEE_STATIC -DFRISBEE_NO_THREADS -DEXPECT_SOCKETS=$sockets $here/use.c -o OUT && OUT"
    done
    for left_out in "$no_pubsub" "$no_streams" "$no_pubsub $no_streams"; do # use.c is told, too: the functions must say so
        add "$dialect $left_out: two units run" "$cc -O1 $left_out $here/frisbee.c $here/use.c -pthread -o OUT && OUT"
        add "$dialect $none $left_out static: one unit runs" "$cc -O0 $none $left_out -DFRISBEE_STATIC $here/use.c -o OUT && OUT"
    done

    add "$dialect $no_rpc: two units run" "$cc -O1 $no_rpc $here/frisbee.c $here/use.c -pthread -o OUT && OUT"
    add "$dialect $none $no_rpc $no_pubsub $no_streams: declarations and implementation" "$cc -O0 $none $no_rpc $no_pubsub $no_streams -c $here/frisbee.c -o OUT.o"

    # Misuse. System headers that come too early matter only in strict C: gnu99 and C++ show everything anyway.
    add_error "$dialect: static after declarations" FRISBEE_STATIC "$cc -c $here/static_late.c -o OUT.o"
    add_error "$dialect: static without implementation" FRISBEE_STATIC "$cc -c $here/static_alone.c -o OUT.o"
    add_error "$dialect: static dropped" FRISBEE_STATIC "$cc -c $here/static_dropped.c -o OUT.o"
    case "$language $dialect" in
    'c++ '* | *-std=gnu*)
        add "$dialect: implementation after <stdio.h>" "$cc -c $here/late.c -o OUT.o"
        add "$dialect: implementation after declarations" "$cc -c $here/late_declarations.c -o OUT.o"
        ;;
    *)
        add_error "$dialect: implementation after <stdio.h>" FRISBEE_IMPLEMENTATION "$cc -c $here/late.c -o OUT.o"
        add_error "$dialect: implementation after declarations" FRISBEE_IMPLEMENTATION "$cc -c $here/late_declarations.c -o OUT.o"
        add "$dialect: implementation after <stdio.h>, with the cure" "$cc -D_DEFAULT_SOURCE -c $here/late.c -o OUT.o"
        ;;
    esac

    # Macros: none is left behind without the prefix, none of others' is taken away, and the public part brings three standard headers only.
    for poller in $pollers; do
        add "$dialect $poller: macros" "sh $here/macros.sh OUT $here/frisbee.c $cc $poller"
    done
    add "$dialect all options: macros" "sh $here/macros.sh OUT $here/frisbee.c $cc -DFRISBEE_CHECK -DFRISBEE_NO_THREADS -DFRISBEE_LOG_LEVEL=3"
    add "$dialect without patterns: macros" "sh $here/macros.sh OUT $here/frisbee.c $cc $no_pubsub $no_streams"
    add "$dialect static: macros" "sh $here/macros.sh OUT $here/use.c $cc -DFRISBEE_STATIC"
    add "$dialect: macros of the public part" "sh $here/public_macros.sh OUT $cc"
done <<END
$dialects
END

# ---- C and C++ together, 32 bits, examples, documents, symbols: with each compiler that is there

for pair in 'gcc g++' 'clang clang++'; do
    c=${pair% *} cxx=${pair#* }
    command -v "$c" >/dev/null && command -v "$cxx" >/dev/null || continue
    in_c="$c -std=c99 $strict -c" in_cxx="$cxx -std=c++11 $strict -x c++ -c" link='OUT.c.o OUT.cc.o -pthread -o OUT && OUT'
    add "$c implements, $cxx uses" "$in_c $here/frisbee.c -o OUT.c.o && $in_cxx $here/use.c -o OUT.cc.o && $cxx $link"
    add "$cxx implements, $c uses" "$in_c $here/use.c -o OUT.c.o && $in_cxx $here/frisbee.c -o OUT.cc.o && $c $link" # not even libstdc++
done

for compiler in gcc clang; do
    command -v "$compiler" >/dev/null || continue
    cc="$compiler -std=c99 -Wstrict-prototypes $strict"
    if echo 'int main(void) { return 0; }' | "$compiler" -m32 -x c - -o "$out/m32" 2>/dev/null && "$out/m32"; then
        for poller in $pollers; do
            add "$compiler -m32 $poller" "$cc -m32 -O2 $poller $here/frisbee.c $here/use.c -pthread -o OUT && OUT"
        done
        for left_out in "$no_pubsub" "$no_streams"; do
            add "$compiler -m32 $left_out" "$cc -m32 -O1 $left_out $here/frisbee.c $here/use.c -pthread -o OUT && OUT"
        done
        add "$compiler -m32 firmware" "$cc -m32 -O1 examples/firmware.c -o OUT && OUT"
    else
        missing "$compiler -m32"
    fi
    for example in examples/*.c; do
        add "$compiler: $example" "$cc -O1 -c $example -o OUT.o"
    done
    for check in exports shared state imports firmware static; do
        for left_out in '' "$no_pubsub $no_streams"; do
            add "$compiler: symbols: $check $left_out" "sh $here/symbols.sh $check OUT $compiler $left_out"
        done
    done
    for left_out in "$no_pubsub" "$no_streams"; do
        add "$compiler: symbols: exports $left_out" "sh $here/symbols.sh exports OUT $compiler $left_out"
    done
    add "$compiler: symbols: size" "sh $here/symbols.sh size OUT $compiler"
    for document in manual readme; do
        if test "$document" = readme && test ! -e README.md; then
            missing README.md
        else
            add "$compiler: code of the $document" "sh $here/documents.sh $document OUT $compiler"
        fi
    done
done

# ---- run them

work() { # WORKER
    awk -F '\t' -v worker="$1" -v workers="$workers" 'NR % workers == worker' "$list" >"$out/list.$1"
    while IFS='	' read -r number name command; do
        if sh -c "$command" >"$out/$number.output" 2>&1 </dev/null; then
            echo ok
        else
            echo "FAILED $name"
            echo "    $command"
            head -n 20 "$out/$number.output" | sed 's/^/    /'
        fi
        rm -f "$out/$number" "$out/$number".o
    done <"$out/list.$1" >"$out/result.$1"
}

worker=0
while test "$worker" -lt "$workers"; do
    work "$worker" &
    worker=$((worker + 1))
done
wait

cat "$out"/*.note 2>/dev/null
grep -hv '^ok$' "$out"/result.*
failed=$(cat "$out"/result.* | grep -c '^FAILED ')
passed=$(cat "$out"/result.* | grep -c '^ok$')
test $((passed + failed)) -eq "$count" || failed=$((failed + 1)) # a worker did not come to the end
echo "compile: $passed passed, $failed failed"
test "$failed" -eq 0 && test "$count" -gt 0
