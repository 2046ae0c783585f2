#!/bin/sh
# bench/codec/codec.sh - builds codec.c and codec.go with the messages of codec.proto, and runs them. Needs protobuf-c with its compiler (Debian:
# libprotobuf-c-dev, protobuf-c-compiler) and, for the second part, Go and its module proxy.
set -e
cd "$(dirname "$0")/../.."
build=build/bench_codec
mkdir -p "$build/go"
cc -std=c99 -O1 -o "$build/frpc" examples/frpc/frpc.c
"$build/frpc" -I bench/codec -o "$build" codec.proto
protoc-c --proto_path=bench/codec --c_out="$build" codec.proto
cc -O2 -I. -I"$build" -o "$build/codec" bench/codec/codec.c "$build/codec.pb-c.c" -lprotobuf-c -pthread
"$build/codec"
command -v go >/dev/null || exit 0
cp bench/codec/codec.go "$build/go/main.go"
sed 's|^module .*|module frisbee.h/bench/codec|' tests/interop/frpc/go.mod >"$build/go/go.mod"
cp tests/interop/frpc/go.sum "$build/go/go.sum"
(cd tests/interop/frpc && go run ./gen ../../../bench/codec/codec.proto "../../../$build/go/messages.go")
(cd "$build/go" && CGO_ENABLED=0 go build -buildvcs=false -mod=mod -o ../codec_go .)
"$build/codec_go"
