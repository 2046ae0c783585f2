#!/bin/sh
# tests/frpc/run.sh - the compiler of examples/frpc: what it writes compiles silently as C and C++, in one and in two source files, and its messages
# come back as they were; its options; its errors and exit statuses; as a plugin of protoc. What is missing on this machine is skipped, and
# fails where CI=true. The last line is `frpc: N passed, N failed`.
cd "$(dirname "$0")/../.." || exit 1
here=tests/frpc out=build/frpc_test
passed=0 failed=0
rm -rf "$out"
mkdir -p "$out/gen"
strict='-Wall -Wextra -pedantic -Wshadow -Wconversion -Wsign-conversion -Wundef -Werror -I. -DOPERATION=10'

check() { # what, command...
    what=$1
    shift
    if "$@" >"$out/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $what"
        head -n 30 "$out/log"
    fi
}

missing() {
    if test "${CI:-}" = true; then check "$1 is there" false; else echo "skipped: $1 is missing"; fi
}

check 'frpc is built' "${CC:-cc}" -std=c99 -O1 -g -Wall -Wextra -pedantic -Werror -o "$out/frpc" examples/frpc/frpc.c
frpc=$out/frpc
files='features.proto deep/shared.proto plain.proto google/protobuf/timestamp.proto'
check 'files with every feature are accepted' "$frpc" -I "$here/protos" -o "$out/gen" $files

# ---- what comes out, in each language, in two source files

for compiler in 'gcc -std=c99' 'gcc -std=c11' 'clang -std=c99' 'g++ -std=c++11 -x c++' 'g++ -std=c++20 -x c++' 'clang++ -std=c++11 -x c++'; do
    if ! command -v "${compiler%% *}" >/dev/null; then
        missing "${compiler%% *}"
        continue
    fi
    check "$compiler: declarations" $compiler $strict -I"$out/gen" -c "$here/use.c" -o "$out/use.o"
    check "$compiler: implementations" $compiler $strict -I"$out/gen" -c "$here/main.c" -o "$out/main.o"
    # clang says nothing of a language for objects
    check "$compiler: both linked" "${compiler%% *}" "$out/use.o" "$out/main.o" -o "$out/program" -pthread
    check "$compiler: the program runs" "$out/program"
done

types() { sed -n 's/^extern const frisbee_type \([A-Za-z0-9_]*\);$/\&\1, /p' "$@" | tr -d '\n'; }
check 'random messages: built' "${CC:-cc}" -std=c99 -O1 -g -I. -I"$out/gen" -DHEADER='"features.frpc.h"' -DTYPES="$(types "$out/gen/features.frpc.h")" \
    "$here/random.c" -o "$out/random" -pthread
check 'random messages come back' "$out/random" 500
if echo 'int main(void) { return 0; }' | "${CC:-cc}" -fsanitize=address,undefined -x c - -o "$out/works" 2>/dev/null; then
    check 'random messages, sanitized: built' "${CC:-cc}" -std=c99 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -I. -I"$out/gen" \
        -DHEADER='"features.frpc.h"' -DTYPES="$(types "$out/gen/features.frpc.h")" "$here/random.c" -o "$out/random_asan" -pthread
    check 'random messages come back, sanitized' "$out/random_asan" 300 2
else
    missing 'the address sanitizer'
fi

# ---- the same input gives the same output; options

check 'again' "$frpc" -I"$here/protos" -o"$out/again" $files
check 'the output is the same' diff -r "$out/gen" "$out/again"
check '--operation, --prefix and --include' "$frpc" -I "$here/protos" -o "$out/options" --operation 500 --prefix my --include path/f.h plain.proto features.proto
check 'operations begin there' grep -q '"delete", .*, 504, false, false' "$out/options/features.frpc.h"
check 'they are listed' grep -q '^//     503 test.features.v1.Work.Both, client streams, server streams$' "$out/options/features.frpc.h"
check 'names have the prefix' grep -q '^struct my_Point {$' "$out/options/plain.frpc.h"
check 'but not those of imported files' grep -q 'const test_shared_Shared \*shared;' "$out/options/features.frpc.h"
check 'the header is included from there' grep -q '^#include "path/f.h"$' "$out/options/plain.frpc.h"
check 'an empty prefix' "$frpc" -I "$here/protos" -o "$out/empty" --prefix '' features.proto
check 'leaves the names alone' grep -q '^struct Everything {$' "$out/empty/features.frpc.h"
check 'comments are carried over' grep -q '^// A colour. \*/ is no end here.$' "$out/gen/features.frpc.h"
check '--version' sh -c "'$frpc' --version | grep -q '^frpc [0-9]'"
check '--help' sh -c "'$frpc' --help | grep -q -- --stock"

# ---- errors: all in one run, with their places; statuses

expect() { # what, status, expected output, arguments...
    what=$1 status=$2
    printf '%s' "$3" >"$out/expected"
    shift 3
    (cd "$out/bad" && ../frpc "$@") >"$out/got" 2>&1
    got=$?
    if test "$got" -eq "$status" && { test ! -s "$out/expected" || cmp -s "$out/expected" "$out/got"; }; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $what: status $got"
        diff "$out/expected" "$out/got"
    fi
}

mkdir -p "$out/bad"
head='syntax = "proto3";'
printf '%s\nmessage A {\n  oneof o { int32 x = 1; }\n  optional int32 y = 2;\n  repeated bytes z = 3;\n  repeated E e = 4;\n  A a = 5;\n}\nenum E { Z = 0; }\n' "$head" >"$out/bad/stock.proto"
expect 'what stock peers cannot read' 1 'stock.proto:2:9: message "A" holds itself: stock programs make it without end
stock.proto:3:9: stock peers have no oneof: "o" would not be understood
stock.proto:4:18: stock peers have no optional fields: "y" would not be understood
stock.proto:5:18: the stock compiler'"'"'s code for repeated bytes does not compile ("z")
stock.proto:6:14: the stock compiler'"'"'s code for repeated enum does not compile ("e")
' --stock stock.proto
expect 'is fine without them' 0 '' -o ../bad_out stock.proto
printf '%s\npackage a;\nmessage B_C {}\nmessage B { message C {} }\nmessage M { repeated int32 x = 1; int32 x_count = 2; optional int32 y = 3; int32 has_y = 4; oneof o { int32 p = 5; } int32 o_case = 6; int32 int = 7; int32 int_ = 8 [json_name = "other"]; }\nservice S { rpc serve(M) returns (M); }\nmessage T {}\nmessage T_type {}\n' "$head" >"$out/bad/names.proto"
expect 'two things with one name' 1 'names.proto:4:21: this would have the C name a_B_C, as what is at line 3
names.proto:5:41: this would have the C name x_count, as what is at line 5
names.proto:5:82: this would have the C name has_y, as what is at line 5
names.proto:5:124: this would have the C name o_case, as what is at line 5
names.proto:5:157: this would have the C name int_, as what is at line 5
names.proto:6:17: this would have the C name a_S_serve, as what is at line 6
names.proto:8:9: this would have the C name a_T_type, as what is at line 7
' names.proto
printf '%s\nmessage A { int32 a = 0; }\n' "$head" >"$out/bad/one.proto"
printf '%s\nmessage B { Gone b = 1; }\n' "$head" >"$out/bad/two.proto"
expect 'errors of several files' 1 'one.proto:2:23: 0 is out of range: it is from 1 to 536870911
two.proto:2:13: "Gone" is not defined
' one.proto two.proto
check 'nothing is written then' test ! -e "$out/bad/one.frpc.h"
printf '%s\nmessage A {}\nservice S { rpc M(A) returns (A); rpc N(A) returns (A); }\n' "$head" >"$out/bad/last.proto"
expect 'the last operation' 1 'last.proto:3:39: there are more methods than operations: the last one is 65279
' --operation 65279 last.proto
expect 'a file that is not there' 1 '"nowhere.proto" was not found, or could not be read
' nowhere.proto
expect 'an operation that is none' 2 'frpc: 9 is no option, or has no value that makes sense
' --operation 9 last.proto
expect 'an option that is none' 2 '' --strange x last.proto
expect 'no file at all' 2 ''
: >"$out/bad/in_the_way"
expect 'a directory that cannot be' 2 '' -o in_the_way/x last.proto

# ---- as a plugin of protoc

cp "$frpc" "$out/protoc-gen-frpc"
mkdir -p "$out/plugin"
# a CodeGeneratorRequest: field 1 "plain.proto", field 2 the parameter
{ printf '\n\013plain.proto\022\025I=tests/frpc/protos,x'; } >"$out/request"
check 'a parameter that is none' sh -c "! '$out/protoc-gen-frpc' <'$out/request' >/dev/null"
{ printf '\n\013plain.proto\022\023I=tests/frpc/protos'; } >"$out/request"
check 'a request is answered' sh -c "'$out/protoc-gen-frpc' <'$out/request' >'$out/answer'"
check 'with the file' grep -q -a 'struct Point {' "$out/answer"
check 'a cut request is refused' sh -c "printf '\\n\\040plain' | { ! '$out/protoc-gen-frpc' >/dev/null; }"
if command -v protoc >/dev/null; then
    check 'protoc runs it' protoc --plugin=protoc-gen-frpc="$out/protoc-gen-frpc" --frpc_opt=I="$here/protos" --frpc_out="$out/plugin" -I "$here/protos" plain.proto
    check 'and has the same file' cmp "$out/plugin/plain.frpc.h" "$out/gen/plain.frpc.h"
fi

echo "frpc: $passed passed, $failed failed"
test "$failed" -eq 0
