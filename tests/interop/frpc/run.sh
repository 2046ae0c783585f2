#!/bin/sh
# Typed calls against stock Go: frisbee-go v0.10.2, which frpc-go is built on, and messages that polyglot's generator writes from the same frpc.proto
# that frpc compiles for C. (frpc-go itself is not fetched: peer.go does around those messages what its generated code does.) A Go client
# calls a C server, a C client a Go server. Needs Go and, the first time, its module proxy; without Go the test is skipped, which in CI
# (CI=true) is a failure. Prints one line per check; the last is `interop_frpc: N passed, N failed`.
set -u
cd "$(dirname "$0")" || exit 1
root=../../..
build=$root/build/interop_frpc
passed=0 failed=0 pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null; done' EXIT
trap 'exit 1' INT TERM

if ! command -v go >/dev/null 2>&1; then
    echo "interop_frpc: go was not found: the stock Go peer cannot be built (see https://go.dev/dl)"
    echo "interop_frpc: 0 passed, 0 failed, 1 skipped"
    if [ "${CI:-}" = true ]; then exit 1; fi
    exit 0
fi

finish() {
    echo "interop_frpc: $passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}

step() { # what, command...: one more check
    what=$1
    shift
    if "$@" >"$build/log" 2>&1; then
        echo "ok   $what"
        passed=$((passed + 1))
    else
        echo "FAIL $what"
        cat "$build/log"
        failed=$((failed + 1))
    fi
}

# The Go program is built in a directory of its own, as its messages are written there.
build_go() {
    cp go.mod go.sum peer.go "$build/go/" && go run ./gen frpc.proto "$build/go/messages.go" || return 1
    cd "$build/go" && CGO_ENABLED=0 go build -buildvcs=false -mod=mod -o ../peer .
}

session() { # what, checks, server command, client command
    rm -f "$build/address"
    $3 server "$build/address" >"$build/server.log" 2>&1 &
    pids=$!
    tries=100
    until [ -f "$build/address" ] || [ $tries -eq 0 ]; do
        sleep 0.1 2>/dev/null || sleep 1
        tries=$((tries - 1))
    done
    $4 client "$build/address" >"$build/client.log" 2>&1
    status=$?
    cat "$build/client.log"
    good=$(grep -c '^ok ' "$build/client.log")
    passed=$((passed + good))
    failed=$((failed + $2 - good))
    if kill "$pids" 2>/dev/null && [ "$status" -eq 0 ]; then # the server was still there
        passed=$((passed + 1))
        echo "ok   $1 ends well"
    else
        failed=$((failed + 1))
        echo "FAIL $1 ended with $status"
        cat "$build/server.log"
    fi
    wait "$pids" 2>/dev/null
    pids=
}

rm -rf "$build"
mkdir -p "$build/go" || exit 1
step "frpc is built" "${CC:-cc}" -std=c99 ${CFLAGS:--O1 -g} -o "$build/frpc" "$root/examples/frpc/frpc.c"
step "frpc compiles frpc.proto for stock peers" "$build/frpc" --stock -o "$build" frpc.proto
step "the C peer is built" "${CC:-cc}" -std=c99 ${CFLAGS:--O1 -g -Wall -Wextra -Werror} -I"$root" -I"$build" -o "$build/frpc_peer" frpc_peer.c -pthread
step "polyglot's generator compiles frpc.proto, and the Go peer is built" eval "(build_go)"
[ "$failed" -eq 0 ] || finish
session "a Go client with a C server" 20 "$build/frpc_peer" "$build/peer"
session "a C client with a Go server" 19 "$build/peer" "$build/frpc_peer"
finish
