#!/bin/sh
# tests/echo_pair.sh DIRECTORY - runs DIRECTORY/echo_client against DIRECTORY/echo_server, over TCP and over a Unix socket; one process each,
# as a user would start them. The server must end by itself, gracefully, when it gets a SIGTERM.

directory=${1:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/frisbee.XXXXXX") || exit 1
server=
trap 'test -z "$server" || kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT
passed=0 failed=0

pair() {
    : >"$work/server" # here, not in the background: the last server's address must not be read again
    "$directory/echo_server" "$1" >>"$work/server" 2>&1 &
    server=$!
    waited=0 address=
    while test -z "$address" && test "$waited" -lt 10; do
        address=$(sed -n 's/^listening on //p' "$work/server")
        test -n "$address" || { sleep 1; waited=$((waited + 1)); }
    done
    "$directory/echo_client" "$address" || return 1
    kill -TERM "$server"
    wait "$server" || return 1
    server=
    cat "$work/server"
    grep -q '^1 connections, ' "$work/server" && test ! -e "$work/socket" # the socket's file goes with the listener
}

for listen in 127.0.0.1:0 "unix:$work/socket"; do
    if pair "$listen"; then
        passed=$((passed + 1))
    else
        echo "over $listen: failed"
        cat "$work/server"
        failed=$((failed + 1))
        test -z "$server" || kill -9 "$server" 2>/dev/null
        server=
    fi
done
echo "echo_pair: $passed passed, $failed failed"
test "$failed" -eq 0
