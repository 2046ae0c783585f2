#!/bin/sh
# Interop: frisbee.h against stock Go peers, frisbee-go v0.10.2 (wire v0) and v0.11.0 (wire v1), each as client of one C server on
# one port and as server of a C client. In each of the four: 5,000 calls in flight from C and 2,000 requests from Go, 10,000 packets
# each way from 0 bytes to 5 MiB, 20 s of silence, and three ways from packets to raw bytes (frisbee_peer.c describes them).
# All four run at once.
#
# peer.go is built twice: go.mod pins frisbee-go v0.11.0, v010.mod v0.10.2. Needs Go and, the first time, its module proxy; without Go
# the test is skipped, which in CI (CI=true) is a failure. CC and CFLAGS choose the C compiler and its options.
# Prints one line per check; the last is `interop: N passed, N failed`.
set -u
cd "$(dirname "$0")" || exit 1
build=../../build/interop
run=$build/run.$$ # logs and addresses of this run; stays if something failed
expected=52 # checks that the peers print; one that is not reached counts as failed
passed=0
failed=0
pids=
trap 'for pid in $pids; do kill "$pid" 2>/dev/null; done' EXIT
trap 'exit 1' INT TERM

finish() {
    echo "interop: $passed passed, $failed failed"
    [ "$failed" -eq 0 ] || exit 1
    rm -rf "$run"
    exit 0
}

check() { # status, what: one more check
    if [ "$1" -eq 0 ]; then
        echo "ok   $2"
        passed=$((passed + 1))
    else
        echo "FAIL $2 (exit status $1)"
        failed=$((failed + 1))
    fi
}

start() { # log, command...: runs it in the background; its process is $!
    log=$run/$1.log
    shift
    "$@" >"$log" 2>&1 &
    pids="$pids $!"
}

left=0
await() { # process: its exit status, at the latest when the $left seconds that all of them share are over
    while kill -0 "$1" 2>/dev/null && [ "$left" -gt 0 ]; do
        sleep 1
        left=$((left - 1))
    done
    if kill -0 "$1" 2>/dev/null; then kill -9 "$1"; fi
    wait "$1"
    status=$?
    kept=
    for pid in $pids; do [ "$pid" = "$1" ] || kept="$kept $pid"; done
    pids=$kept
    return $status
}

if ! command -v go >/dev/null 2>&1; then
    echo "interop: go was not found: the stock Go peers cannot be built (see https://go.dev/dl)"
    echo "interop: 0 passed, 0 failed, 1 skipped"
    if [ "${CI:-}" = true ]; then exit 1; fi
    exit 0
fi

mkdir -p "$run" || exit 1

left=400
compile() { # name, command...
    name=$1
    shift
    start "$name" "$@"
    await $!
    status=$?
    [ $status -eq 0 ] || cat "$run/$name.log"
    check $status "builds: $name"
}
compile frisbee_peer "${CC:-cc}" -std=c99 ${CFLAGS:--O2 -g -Wall -Wextra} -o "$build/frisbee_peer" frisbee_peer.c -pthread
compile peer_v0 env CGO_ENABLED=0 go build -buildvcs=false -modfile=v010.mod -o "$build/peer_v0" peer.go
compile peer_v1 env CGO_ENABLED=0 go build -buildvcs=false -modfile=go.mod -o "$build/peer_v1" peer.go
[ "$failed" -eq 0 ] || finish

start c_server "$build/frisbee_peer" server "$run/c.address"
c_server=$!
start go_server_v0 "$build/peer_v0" server "$run/v0.address"
go_server_v0=$!
start go_server_v1 "$build/peer_v1" server "$run/v1.address"
go_server_v1=$!
tries=20
until [ -f "$run/c.address" ] && [ -f "$run/v0.address" ] && [ -f "$run/v1.address" ] || [ $tries -eq 0 ]; do
    sleep 1
    tries=$((tries - 1))
done
start go_client_v0 "$build/peer_v0" client "$run/c.address"
go_client_v0=$!
start go_client_v1 "$build/peer_v1" client "$run/c.address"
go_client_v1=$!
start c_client_v0 "$build/frisbee_peer" client "$run/v0.address" v0 v0.10.2
c_client_v0=$!
start c_client_v1 "$build/frisbee_peer" client "$run/v1.address" v1 v0.11.0
c_client_v1=$!

left=120
seen=0
for name in c_server go_client_v0 go_client_v1 c_client_v0 go_server_v0 c_client_v1 go_server_v1; do
    eval "await \$$name"
    status=$?
    cat "$run/$name.log"
    good=$(grep -c '^ok ' "$run/$name.log")
    bad=$(grep -c '^FAIL ' "$run/$name.log")
    passed=$((passed + good))
    failed=$((failed + bad))
    seen=$((seen + good + bad))
    check $status "$name ends well"
done
if [ $seen -lt $expected ]; then
    echo "FAIL $((expected - seen)) checks were not reached"
    failed=$((failed + expected - seen))
fi
finish
