#!/bin/sh
# tests/frpc_pair.sh DIRECTORY - runs DIRECTORY/frpc_echo_client against DIRECTORY/frpc_echo_server, one process each, as a user would start them.
# The server must end by itself, with status 0, when it gets a SIGTERM.

directory=${1:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/frisbee.XXXXXX") || exit 1
server=
trap 'test -z "$server" || kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT

"$directory/frpc_echo_server" 127.0.0.1:0 >"$work/server" 2>&1 &
server=$!
waited=0 address=
while test -z "$address" && test "$waited" -lt 100; do
    address=$(sed -n 's/^listening on //p' "$work/server")
    test -n "$address" || { sleep 0.1 2>/dev/null || sleep 1; waited=$((waited + 1)); }
done
passed=0 failed=0
if "$directory/frpc_echo_client" "$address"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
kill -TERM "$server"
if wait "$server"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
server=
test "$failed" -eq 0 || cat "$work/server"
echo "frpc_pair: $passed passed, $failed failed"
test "$failed" -eq 0
