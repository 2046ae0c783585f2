#!/bin/sh
# Interop: frisbee.h against stock Go peers, frisbee-go v0.10.2 (wire v0) and v0.11.0 (wire v1), each as client of one C server on
# one port and as server of a C client. Three parts, one after the other; in each all four run at once:
#     calls    5,000 calls in flight from C and 2,000 requests from Go, 10,000 packets each way from 0 bytes to 5 MiB, 20 s of silence,
#              and three ways from packets to raw bytes (frisbee_peer.c describes them, peer.go is the other side)
#     streams  1,000 streams of 100 messages opened by C, by Go and by both at once, each message from 1 byte to 64 KiB and echoed; early
#              closes, ids used again, paused streams beside busy ones, floods of a paused stream, lost connections (frisbee_streams.c,
#              streams.go)
#     pubsub   a Go program of ordinary handlers, written from the manual alone, subscribes and publishes at a C broker: wildcards, groups,
#              retained values, each policy for slow subscribers; and a C client subscribes at a Go server that is no broker
#              (frisbee_pubsub.c, pubsub.go)
#
# The Go program is built twice: go.mod pins frisbee-go v0.11.0, v010.mod v0.10.2. Needs Go and, the first time, its module proxy; without
# Go the test is skipped, which in CI (CI=true) is a failure. CC and CFLAGS choose the C compiler and its options.
# run.sh PART... runs these parts alone. Prints one line per check; the last is `interop: N passed, N failed`.
set -u
cd "$(dirname "$0")" || exit 1
build=../../build/interop
run=$build/run.$$ # logs and addresses of this run; stays if something failed
expected=0 # checks that the peers print; one that is not reached counts as failed
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
for name in frisbee_peer frisbee_streams frisbee_pubsub; do
    compile $name "${CC:-cc}" -std=c99 ${CFLAGS:--O2 -g -Wall -Wextra} -o "$build/$name" $name.c -pthread
done
compile peer_v0 env CGO_ENABLED=0 go build -buildvcs=false -modfile=v010.mod -o "$build/peer_v0" .
compile peer_v1 env CGO_ENABLED=0 go build -buildvcs=false -modfile=go.mod -o "$build/peer_v1" .
[ "$failed" -eq 0 ] || finish

seen=0
part() { # name, checks, C program, its role as server, roles of the Go program as server and client
    name=$1
    expected=$((expected + $2))
    c=$build/$3
    start "$name.c_server" "$c" "$4" "$run/$name.c"
    c_server=$!
    start "$name.go_server_v0" "$build/peer_v0" "$5" "$run/$name.v0"
    go_server_v0=$!
    start "$name.go_server_v1" "$build/peer_v1" "$5" "$run/$name.v1"
    go_server_v1=$!
    tries=20
    until [ -f "$run/$name.c" ] && [ -f "$run/$name.v0" ] && [ -f "$run/$name.v1" ] || [ $tries -eq 0 ]; do
        sleep 1
        tries=$((tries - 1))
    done
    start "$name.go_client_v0" "$build/peer_v0" "$6" "$run/$name.c"
    go_client_v0=$!
    start "$name.go_client_v1" "$build/peer_v1" "$6" "$run/$name.c"
    go_client_v1=$!
    start "$name.c_client_v0" "$c" client "$run/$name.v0" v0 v0.10.2
    c_client_v0=$!
    start "$name.c_client_v1" "$c" client "$run/$name.v1" v1 v0.11.0
    c_client_v1=$!
    left=120
    for process in c_server go_client_v0 go_client_v1 c_client_v0 go_server_v0 c_client_v1 go_server_v1; do
        eval "await \$$process"
        status=$?
        log=$run/$name.$process.log
        cat "$log"
        good=$(grep -c '^ok ' "$log")
        bad=$(grep -c '^FAIL ' "$log")
        passed=$((passed + good))
        failed=$((failed + bad))
        seen=$((seen + good + bad))
        check $status "$name: $process ends well"
    done
}

for part in ${*:-calls streams pubsub}; do
    case $part in
    calls) part calls 52 frisbee_peer server server client ;;
    streams) part streams 72 frisbee_streams server streamserver streamclient ;;
    pubsub) part pubsub 35 frisbee_pubsub broker nobroker subscriber ;;
    *) check 1 "there is no part $part" ;;
    esac
done
if [ $seen -lt $expected ]; then
    echo "FAIL $((expected - seen)) checks were not reached"
    failed=$((failed + expected - seen))
fi
finish
