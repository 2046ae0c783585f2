#!/bin/sh
# tests/run.sh [-v] [-t SECONDS] COMMAND [[-t SECONDS] COMMAND]... - runs each command (a program and its arguments in one word) with a time
# limit, shows the output of those that failed (-v: of all) and adds up their lines `suite: N passed, N failed`. A command without such a line
# counts as one, passed if it exits 0; programs called test_* must have one. A crash, a time-out, a program that is not there or a failing exit
# without a failed case count as one failed. Ends with the line `N passed, N failed`, and exits 0 if something passed and nothing failed.

limit=120 verbose=
passed=0 failed=0
log=$(mktemp "${TMPDIR:-/tmp}/frisbee.XXXXXX") || exit 1
child=
trap 'rm -f "$log"' EXIT
trap 'test -z "$child" || kill "$child" 2>/dev/null; exit 130' INT TERM

# Runs "$@" with the limit, in a subshell of its own; 124 or 137 (killed) say that it was exceeded.
if timeout -k 5 5 true 2>/dev/null; then
    limited() { exec timeout -k 5 "$limit" "$@"; }
else
    limited() {
        "$@" &
        program=$!
        (
            seconds=0
            while test "$seconds" -lt "$limit"; do # short naps: none is left over when the watchdog is dismissed
                sleep 1
                seconds=$((seconds + 1))
            done
            kill -9 "$program" 2>/dev/null
        ) >/dev/null 2>&1 &
        watchdog=$!
        trap 'kill -9 "$program"; kill "$watchdog"; exit 130' TERM
        wait "$program"
        status=$?
        kill "$watchdog" 2>/dev/null
        wait "$watchdog" 2>/dev/null
        exit "$status"
    }
fi

while test $# -gt 0; do
    case $1 in
    -v) verbose=1; shift; continue ;;
    -t) limit=$2; shift 2; continue ;;
    esac
    command=$1
    shift

    began=$(date +%s)
    (limited $command) </dev/null >"$log" 2>&1 & # words are split on purpose
    child=$!
    wait "$child"
    status=$?
    child=
    took=$(($(date +%s) - began))

    sums=$(sed -n 's|^[A-Za-z0-9_./ +-]*: \([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed$|\1 \2|p' "$log" |
        awk '{ p += $1; f += $2; lines++ } END { print p + 0, f + 0, lines + 0 }')
    p=${sums%% *} lines=${sums##* }
    f=${sums#* } f=${f%% *}
    why=
    case $status in
    0)
        if test "$lines" -eq 0; then
            case ${command##*/} in
            test_*) why='it says not what it checked' f=1 ;;
            *) p=1 ;;
            esac
        elif test "$p" -eq 0 && test "$f" -eq 0 && ! grep -q '^skip' "$log"; then
            why='it checked nothing' f=1
        fi
        ;;
    124 | 137) why="it took more than $limit s, or was killed" f=$((f + 1)) ;;
    126 | 127) why='it could not be built, or is not there' f=$((f + 1)) ;;
    *) if test "$f" -eq 0; then why="it ended with status $status" f=1; fi ;;
    esac
    passed=$((passed + p)) failed=$((failed + f))

    if test "$f" -eq 0; then
        printf 'ok      %-44s %4d s %5d passed\n' "$command" "$took" "$p"
        if test -n "$verbose"; then cat "$log"; else grep '^skip' "$log"; fi
    else
        printf 'FAILED  %-44s %4d s %5d passed, %d failed%s\n' "$command" "$took" "$p" "$f" "${why:+: $why}"
        if test -n "$verbose"; then cat "$log"; else tail -n 200 "$log" | sed 's/^/    /'; fi
    fi
done

echo "$passed passed, $failed failed"
test "$failed" -eq 0 && test "$passed" -gt 0
