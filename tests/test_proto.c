// The proto3 parser of frpc (examples/frpc): good files give the right tree, bad ones the right errors, and no bytes do harm.
#define _XOPEN_SOURCE 700 // mkdtemp
#define PROTO_IMPLEMENTATION
#include "../examples/frpc/proto.h"

#include "check.h"

#define HEAD "syntax = \"proto3\";\n"
#define NEST "{ message B { message B { message B { message B { message B "
#define BYTES(text) text, sizeof(text) - 1

// ---- bad files: each with all its errors, `line:column: message`, in order

typedef struct bad_file {
    const char *text;
    size_t length;
    const char *errors;
} bad_file;

static const bad_file bad_files[] = {
    {BYTES(""),
     "1:1: a file begins with syntax = \"proto3\"; (without, it is proto2, which is not supported)"},
    {BYTES("message A {}"),
     "1:1: a file begins with syntax = \"proto3\"; (without, it is proto2, which is not supported)"},
    {BYTES("syntax = \"proto2\";"),
     "1:1: syntax \"proto2\" is not supported, only \"proto3\""},
    {BYTES("syntax = \"proto4\";\n"),
     "1:1: syntax \"proto4\" is not supported, only \"proto3\""},
    {BYTES("syntax = 'proto3'"),
     "1:18: expected ';', found the end of the file"},
    {BYTES("syntax proto3;"),
     "1:8: expected '=', found 'proto3'"},
    {BYTES("syntax = proto3;"),
     "1:10: expected \"proto3\", found 'proto3'"},
    {BYTES("edition = \"2023\";"),
     "1:1: editions are not supported, only syntax = \"proto3\""},
    {BYTES("package a;\nsyntax = \"proto3\";"),
     "1:1: a file begins with syntax = \"proto3\"; (without, it is proto2, which is not supported)"},
    {BYTES(HEAD "syntax = \"proto3\";"),
     "2:1: syntax stands once, at the head of the file"},
    {BYTES(HEAD "package a;\npackage b;"),
     "3:1: a file has one package"},
    {BYTES(HEAD "package ;"),
     "2:9: expected the name of a package, found ';'"},
    {BYTES(HEAD "package a.;"),
     "2:11: expected a name, found ';'"},
    {BYTES(HEAD "package a b;"),
     "2:11: expected ';', found 'b'"},
    {BYTES(HEAD "package \"a\";"),
     "2:9: expected the name of a package, found '\"a\"'"},
    {BYTES(HEAD "package 1a;"),
     "2:9: 1a is no number"},
    {BYTES(HEAD "message A \001 {}"),
     "2:11: expected '{', found the byte 0x01"},
    {BYTES(HEAD "message A {\n  string s\377 = 1;\n}"),
     "3:11: this is not UTF-8"},
    {BYTES(HEAD "message A {} \000"),
     "2:14: there is a zero byte"},
    {BYTES(HEAD "/* no end\n\n"),
     "2:1: a comment has no end"},
    {BYTES(HEAD "\n\n   /* a\n b */ /* c"),
     "5:7: a comment has no end"},
    {BYTES(HEAD "// fine\n/ message A {}"),
     "3:1: expected message, enum, service, import, package, option or extend, found '/'"},
    {BYTES(HEAD "message A { string s = 1; } @"),
     "2:29: expected message, enum, service, import, package, option or extend, found '@'"},
    {BYTES(HEAD "message \303\244 {}"),
     "2:9: expected the name of a message, found '\303\244'"},
    {BYTES(HEAD "option x = \"abc;\n"),
     "2:12: a string has no end on its line"},
    {BYTES(HEAD "option x = \"a\\q\";"),
     "2:12: an escape that strings do not have"},
    {BYTES(HEAD "option x = \"\\x\";"),
     "2:12: an escape that strings do not have"},
    {BYTES(HEAD "option x = \"\\u12\";"),
     "2:12: an escape that strings do not have"},
    {BYTES(HEAD "option x = \"\\400\";"),
     "2:12: an escape that strings do not have"},
    {BYTES(HEAD "import \"a\\0b.proto\";"),
     "2:8: a string with a zero byte"},
    {BYTES(HEAD "option x = 0x;"),
     "2:12: 0x is no number"},
    {BYTES(HEAD "option x = 09;"),
     "2:12: 09 is no number"},
    {BYTES(HEAD "option x = 12abc;"),
     "2:12: 12abc is no number"},
    {BYTES(HEAD "option x = 99999999999999999999;"),
     "2:12: 99999999999999999999 is too large"},
    {BYTES(HEAD "option x = 1.2.3;"),
     "2:12: 1.2.3 is no number"},
    {BYTES(HEAD "option x = 1e;"),
     "2:12: 1e is no number"},
    {BYTES(HEAD "option x = 0xfffffffffffffffff;"),
     "2:12: 0xfffffffffffffffff is too large"},
    {BYTES(HEAD "option x = 1.5ff;"),
     "2:12: 1.5ff is no number"},
    {BYTES(HEAD "import \"nowhere.proto\";"),
     "2:8: \"nowhere.proto\" was not found"},
    {BYTES(HEAD "import nowhere;"),
     "2:8: expected the path of a file in quotes, found 'nowhere'"},
    {BYTES(HEAD "import \"google/protobuf/any.proto\";\nimport \"google/protobuf/any.proto\";"),
     "3:8: \"google/protobuf/any.proto\" is imported twice"},
    {BYTES(HEAD "import \"self.proto\";"),
     "2:8: \"self.proto\" imports itself, over others or directly"},
    {BYTES(HEAD "import public;"),
     "2:14: expected the path of a file in quotes, found ';'"},
    {BYTES(HEAD "import \"google/protobuf/any.proto\"\nmessage A {}"),
     "3:1: expected ';', found 'message'"},
    {BYTES(HEAD "import strange \"google/protobuf/any.proto\";"),
     "2:8: expected the path of a file in quotes, found 'strange'"},
    {BYTES(HEAD "message {}"),
     "2:9: expected the name of a message, found '{'"},
    {BYTES(HEAD "message A"),
     "2:10: expected '{', found the end of the file"},
    {BYTES(HEAD "message A {"),
     "2:12: expected '}', found the end of the file"},
    {BYTES(HEAD "message A { string s = 1; "),
     "2:27: expected '}', found the end of the file"},
    {BYTES(HEAD "message A {}}"),
     "2:13: expected message, enum, service, import, package, option or extend, found '}'"},
    {BYTES(HEAD "message 1A {}"),
     "2:9: 1A is no number"},
    {BYTES(HEAD "message A { int32 a = 1 }"),
     "2:25: expected ';', found '}'"},
    {BYTES(HEAD "message A { int32 a; }"),
     "2:20: expected '=', found ';'"},
    {BYTES(HEAD "message A { int32 = 1; }"),
     "2:19: expected the name of a field, found '='"},
    {BYTES(HEAD "message A { a = 1; }"),
     "2:15: expected the name of a field, found '='"},
    {BYTES(HEAD "message A { int32 a = ; }"),
     "2:23: expected the number of a field, found ';'"},
    {BYTES(HEAD "message A { int32 a = b; }"),
     "2:23: expected the number of a field, found 'b'"},
    {BYTES(HEAD "message A { int32 a = 1.5; }"),
     "2:23: expected the number of a field, found '1.5'"},
    {BYTES(HEAD "message A { int32 a = -1; }"),
     "2:23: -1 is out of range: it is from 1 to 536870911"},
    {BYTES(HEAD "message A { int32 a = 0; }"),
     "2:23: 0 is out of range: it is from 1 to 536870911"},
    {BYTES(HEAD "message A { int32 a = 536870912; }"),
     "2:23: 536870912 is out of range: it is from 1 to 536870911"},
    {BYTES(HEAD "message A { int32 a = 19000; }"),
     "2:19: field numbers from 19000 to 19999 are kept for Protocol Buffers themselves"},
    {BYTES(HEAD "message A { int32 a = 19999; }"),
     "2:19: field numbers from 19000 to 19999 are kept for Protocol Buffers themselves"},
    {BYTES(HEAD "message A { int32 a = 99999999999; }"),
     "2:23: 99999999999 is out of range: it is from 1 to 536870911"},
    {BYTES(HEAD "message A {\n  int32 a = 1;\n  int32 b = 1;\n}"),
     "4:9: field \"b\" has the number of field \"a\", 1"},
    {BYTES(HEAD "message A {\n  int32 a = 1;\n  int64 a = 2;\n}"),
     "4:9: \"A.a\" is already defined, at 3:9"},
    {BYTES(HEAD "message A {}\nmessage A {}"),
     "3:9: \"A\" is already defined, at 2:9"},
    {BYTES(HEAD "message A {}\nenum A { Z = 0; }"),
     "3:6: \"A\" is already defined, at 2:9"},
    {BYTES(HEAD "message A { message B {} message B {} }"),
     "2:34: \"A.B\" is already defined, at 2:21"},
    {BYTES(HEAD "message A { int32 B = 1; message B {} }"),
     "2:34: \"A.B\" is already defined, at 2:19"},
    {BYTES(HEAD "package a.b;\nmessage A {}\nservice A {}"),
     "4:9: \"a.b.A\" is already defined, at 3:9"},
    {BYTES(HEAD "message A { int32 foo_bar = 1; int32 fooBar = 2; }"),
     "2:38: field \"fooBar\" has the JSON name of field \"foo_bar\", \"fooBar\""},
    {BYTES(HEAD "message A { int32 a = 1 [json_name = \"x\"]; int32 x = 2; }"),
     "2:50: field \"x\" has the JSON name of field \"a\", \"x\""},
    {BYTES(HEAD "message A { Unknown a = 1; }"),
     "2:13: \"Unknown\" is not defined"},
    {BYTES(HEAD "message A { .a.B c = 1; }"),
     "2:13: \".a.B\" is not defined"},
    {BYTES(HEAD "message A { message B {} }\nmessage C { B b = 1; }"),
     "3:13: \"B\" is not defined"},
    {BYTES(HEAD "package a;\nmessage A { b.B c = 1; }"),
     "3:13: \"b.B\" is not defined"},
    {BYTES(HEAD "package a.b;\nmessage b { }\nmessage C { b.D d = 1; }"),
     "4:13: \"b.D\" is not defined"},
    {BYTES(HEAD "message A { int32 x = 1; x y = 2; }"),
     "2:26: \"x\" is not a type"},
    {BYTES(HEAD "message A { google.protobuf.Any a = 1; }"),
     "2:13: \"google.protobuf.Any\" is not defined"},
    {BYTES(HEAD "service S {}\nmessage A { S s = 1; }"),
     "3:13: \"S\" is not a type"},
    {BYTES(HEAD "message A { required int32 a = 1; }"),
     "2:13: proto3 has no required fields"},
    {BYTES(HEAD "message A { optional group G = 1 { int32 a = 1; } int32 b = 1;}"),
     "2:13: proto3 has no groups: use a message"},
    {BYTES(HEAD "message A { group G = 1 {} }"),
     "2:13: proto3 has no groups: use a message"},
    {BYTES(HEAD "message A { int32 a = 1 [default = 5]; }"),
     "2:26: proto3 has no default values"},
    {BYTES(HEAD "message A { extensions 100 to 200; }"),
     "2:13: proto3 has no extension ranges: use Any"},
    {BYTES(HEAD "message A { repeated optional int32 a = 1; }"),
     "2:37: expected '=', found 'a'"},
    {BYTES(HEAD "extend Foo { int32 a = 1; }"),
     "2:8: proto3 extends nothing but options (google.protobuf.FieldOptions and so on), not Foo"},
    {BYTES(HEAD "message A {}\nextend A { int32 a = 1; }"),
     "3:8: proto3 extends nothing but options (google.protobuf.FieldOptions and so on), not A"},
    {BYTES(HEAD "extend google.protobuf.FieldOptions { int32 a = 1;"),
     "2:37: a value in braces has no end"},
    {BYTES(HEAD "extend google.protobuf.FieldOptions;"),
     "2:36: expected '{', found ';'"},
    {BYTES(HEAD "message A { extend A { } }"),
     "2:20: proto3 extends nothing but options (google.protobuf.FieldOptions and so on), not A"},
    {BYTES(HEAD "message A { int32 a = 1 [deprecated]; }"),
     "2:36: expected '=', found ']'"},
    {BYTES(HEAD "message A { int32 a = 1 [deprecated = 5]; }"),
     "2:26: deprecated is true or false"},
    {BYTES(HEAD "message A { int32 a = 1 [deprecated = true; }"),
     "2:43: expected ']', found ';'"},
    {BYTES(HEAD "message A { int32 a = 1 [(x = 1]; }"),
     "2:29: expected ')', found '='"},
    {BYTES(HEAD "message A { option = 1; }"),
     "2:20: expected the name of an option, found '='"},
    {BYTES(HEAD "message A { option x; }"),
     "2:21: expected '=', found ';'"},
    {BYTES(HEAD "option (a) = { b: 1;"),
     "2:14: a value in braces has no end"},
    {BYTES(HEAD "option (a).b. = 1;"),
     "2:15: expected the name of an option, found '='"},
    {BYTES(HEAD "option x = -;"),
     "2:13: expected a number, found ';'"},
    {BYTES(HEAD "option x = -abc;"),
     "2:13: expected a number, found 'abc'"},
    {BYTES(HEAD "option x = ;"),
     "2:12: expected a value, found ';'"},
    {BYTES(HEAD "message A { map<float, int32> m = 1; }"),
     "2:17: a map's keys are integers, bool or string, not float"},
    {BYTES(HEAD "message A { map<A, int32> m = 1; }"),
     "2:17: a map's keys are integers, bool or string, not A"},
    {BYTES(HEAD "message A { map<bytes, int32> m = 1; }"),
     "2:17: a map's keys are integers, bool or string, not bytes"},
    {BYTES(HEAD "message A { map<string> m = 1; }"),
     "2:23: expected ',', found '>'"},
    {BYTES(HEAD "message A { map<string, int32 m = 1; }"),
     "2:31: expected '>', found 'm'"},
    {BYTES(HEAD "message A { repeated map<string, int32> m = 1; }"),
     "2:13: a map has no label"},
    {BYTES(HEAD "message A { map<string, Nothing> m = 1; }"),
     "2:25: \"Nothing\" is not defined"},
    {BYTES(HEAD "message A { map<string, map<string, int32>> m = 1; }"),
     "2:28: expected '>', found '<'"},
    {BYTES(HEAD "message A { oneof o { map<string, int32> m = 1; } }"),
     "2:23: a oneof has no maps"},
    {BYTES(HEAD "message A { map m = 1; }"),
     "2:13: \"map\" is not defined"},
    {BYTES(HEAD "message A { oneof o {} }"),
     "2:19: oneof \"o\" has no fields"},
    {BYTES(HEAD "message A { oneof {int32 a = 1;} }"),
     "2:19: expected the name of a oneof, found '{'"},
    {BYTES(HEAD "message A { oneof o { repeated int32 a = 1; } }"),
     "2:23: a field of a oneof has no label"},
    {BYTES(HEAD "message A { oneof o { optional int32 a = 1; } }"),
     "2:23: a field of a oneof has no label"},
    {BYTES(HEAD "message A { oneof o { int32 a = 1; } int32 a = 2; }"),
     "2:44: \"A.a\" is already defined, at 2:29"},
    {BYTES(HEAD "message A { oneof o { int32 a = 1; } int32 b = 1; }"),
     "2:44: field \"b\" has the number of field \"a\", 1"},
    {BYTES(HEAD "message A { oneof o { int32 a = 1; } oneof o { int32 b = 2; } }"),
     "2:44: \"A.o\" is already defined, at 2:19"},
    {BYTES(HEAD "message A { oneof o { int32 a = 1; oneof p { int32 b = 2; } } }"),
     "2:44: expected '=', found '{'"},
    {BYTES(HEAD "message A { oneof o { int32 o = 1; } }"),
     "2:29: \"A.o\" is already defined, at 2:19"},
    {BYTES(HEAD "message A { reserved 1; int32 a = 1; }"),
     "2:31: field \"a\" has the reserved number 1"},
    {BYTES(HEAD "message A { reserved 2 to 5; int32 a = 4; }"),
     "2:36: field \"a\" has the reserved number 4"},
    {BYTES(HEAD "message A { reserved 100 to max; int32 a = 5000; }"),
     "2:40: field \"a\" has the reserved number 5000"},
    {BYTES(HEAD "message A { reserved \"a\"; int32 a = 1; }"),
     "2:33: field \"a\" has a reserved name"},
    {BYTES(HEAD "message A { reserved 5 to 2; }"),
     "2:22: a reserved range ends before it begins"},
    {BYTES(HEAD "message A { reserved 1, 3, 3; }"),
     "2:28: a reserved range overlaps the one at line 2"},
    {BYTES(HEAD "message A { reserved 1 to 5, 4; }"),
     "2:30: a reserved range overlaps the one at line 2"},
    {BYTES(HEAD "message A { reserved \"a\", \"a\"; }"),
     "2:27: \"a\" is reserved already, at line 2"},
    {BYTES(HEAD "message A { reserved a; }"),
     "2:22: expected a number or a name in quotes, found 'a'"},
    {BYTES(HEAD "message A { reserved 0; }"),
     "2:22: 0 is out of range: it is from 1 to 536870911"},
    {BYTES(HEAD "message A { reserved ; }"),
     "2:22: expected a number or a name in quotes, found ';'"},
    {BYTES(HEAD "message A { reserved 1 to ; }"),
     "2:27: expected a number or max, found ';'"},
    {BYTES(HEAD "message A { reserved 1 int32 a = 2; }"),
     "2:24: expected ';', found 'int32'"},
    {BYTES(HEAD "enum E {}"),
     "2:6: enum \"E\" has no values"},
    {BYTES(HEAD "enum { A = 0; }"),
     "2:6: expected the name of an enum, found '{'"},
    {BYTES(HEAD "enum E { A = 1; }"),
     "2:10: the first value of an enum is 0 in proto3, \"A\" is 1"},
    {BYTES(HEAD "enum E { A = 0; A = 1; }"),
     "2:17: \"A\" is already defined, at 2:10"},
    {BYTES(HEAD "enum E { A = 0; B = 0; }"),
     "2:17: \"B\" has the number of \"A\", 0; option allow_alias = true would allow it"},
    {BYTES(HEAD "enum E { option allow_alias = true; A = 0; }"),
     "2:17: allow_alias is set, but no two values have the same number"},
    {BYTES(HEAD "enum E { option allow_alias = 1; A = 0; B = 0; }"),
     "2:17: allow_alias is true or false\n2:41: \"B\" has the number of \"A\", 0; option allow_alias = true would allow it"},
    {BYTES(HEAD "enum E { A = 0; B = 2147483648; }"),
     "2:21: 2147483648 is out of range: it is from -2147483648 to 2147483647"},
    {BYTES(HEAD "enum E { A = 0; B = -2147483649; }"),
     "2:21: -2147483649 is out of range: it is from -2147483648 to 2147483647"},
    {BYTES(HEAD "enum E { A = 0; B; }"),
     "2:18: expected '=', found ';'"},
    {BYTES(HEAD "enum E { A = 0 B = 1; }"),
     "2:16: expected ';', found 'B'"},
    {BYTES(HEAD "enum E { A = 0; B = 1.5; }"),
     "2:21: expected the number of a value, found '1.5'"},
    {BYTES(HEAD "enum E { A = 0; }\nenum F { A = 0; }"),
     "3:10: \"A\" is already defined, at 2:10"},
    {BYTES(HEAD "enum E { reserved 1; A = 0; B = 1; }"),
     "2:29: value \"B\" has the reserved number 1"},
    {BYTES(HEAD "enum E { reserved -5 to -1; A = 0; B = -3; }"),
     "2:36: value \"B\" has the reserved number -3"},
    {BYTES(HEAD "enum E { reserved \"B\"; A = 0; B = 1; }"),
     "2:31: value \"B\" has a reserved name"},
    {BYTES(HEAD "enum E { A = 0; message M {} }"),
     "2:25: expected '=', found 'M'"},
    {BYTES(HEAD "enum E { A = 0;"),
     "2:16: expected '}', found the end of the file"},
    {BYTES(HEAD "enum E { A = 0 [deprecated = maybe]; }"),
     "2:17: deprecated is true or false"},
    {BYTES(HEAD "service {}"),
     "2:9: expected the name of a service, found '{'"},
    {BYTES(HEAD "service S { rpc }"),
     "2:17: expected the name of a method, found '}'"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(A) returns (B); }"),
     "3:31: \"B\" is not defined"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(A) return (A); }"),
     "3:22: expected returns, found 'return'"},
    {BYTES(HEAD "message A {}\nservice S { rpc M A returns (A); }"),
     "3:19: expected '(', found 'A'"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(A) returns (A) }"),
     "3:34: expected ';' or '{', found '}'"},
    {BYTES(HEAD "message A {}\nservice S { rpc M() returns (A); }"),
     "3:19: expected stream or the name of a message, found ')'"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(stream) returns (A); }"),
     "3:25: expected the name of a message, found ')'"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(A) returns (A); rpc M(A) returns (A); }"),
     "3:39: \"S.M\" is already defined, at 3:17"},
    {BYTES(HEAD "enum E { Z = 0; }\nmessage A {}\nservice S { rpc M(E) returns (A); }"),
     "4:19: \"E\" is an enum; methods take and return messages"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(A) returns (int32); }"),
     "3:31: \"int32\" is not defined"},
    {BYTES(HEAD "message A {}\nservice S { message B {} rpc M(A) returns (A); }"),
     "3:13: expected rpc, an option, or '}', found 'message'"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(A) returns (A) { option x = ; } }"),
     "3:47: expected a value, found ';'"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(A) returns (A) { int32 } }"),
     "3:36: expected an option or '}', found 'int32'"},
    {BYTES(HEAD "service S { rpc M(.A) returns (A); }\nservice S {}"),
     "2:19: \".A\" is not defined\n2:32: \"A\" is not defined\n3:9: \"S\" is already defined, at 2:9"},
    {BYTES(HEAD "message A {}\nservice S { rpc M(A, A) returns (A); }"),
     "3:20: expected ')', found ','"},
    {BYTES(HEAD "message A {\n  int32 a = 0;\n  Nothing b = 2;\n  string c = 2;\n}\nenum E { X = 1; }\nservice S { rpc M(A) returns (Gone); }"),
     "3:13: 0 is out of range: it is from 1 to 536870911\n4:3: \"Nothing\" is not defined\n5:10: field \"c\" has the number of field \"b\", 2\n7:10: the first value of an enum is 0 in proto3, \"X\" is 1\n8:31: \"Gone\" is not defined"},
    {BYTES(HEAD "message A {\n  int32 a 1;\n  int32 b = 2;\n  string b = 3;\n}\nmessge B {}\nmessage C { int32 x = 1 }\nmessage D { Missing m = 1; }"),
     "3:11: expected '=', found '1'\n5:10: \"A.b\" is already defined, at 4:9\n7:1: expected message, enum, service, import, package, option or extend, found 'messge'\n8:25: expected ';', found '}'\n9:13: \"Missing\" is not defined"},
    {BYTES(HEAD "foo bar;\nbaz { a { b } }\nmessage A { Q q = 1; }"),
     "2:1: expected message, enum, service, import, package, option or extend, found 'foo'\n3:1: expected message, enum, service, import, package, option or extend, found 'baz'\n4:13: \"Q\" is not defined"},
    {BYTES(HEAD "message A {\n  reserved \"x\", 1 to 3;\n  int32 x = 2;\n  oneof o { repeated int32 y = 19500; }\n}"),
     "4:9: field \"x\" has a reserved name\n4:9: field \"x\" has the reserved number 2\n5:13: a field of a oneof has no label\n5:28: field numbers from 19000 to 19999 are kept for Protocol Buffers themselves"},
    {BYTES(HEAD "message A " NEST NEST NEST NEST NEST NEST NEST NEST "}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}"),
     "2:393: messages are nested deeper than 32"},
    {BYTES(HEAD "enum E {\n  A = 0;\n  B = 0;\n  C = 0;\n}"),
     "4:3: \"B\" has the number of \"A\", 0; option allow_alias = true would allow it\n5:3: \"C\" has the number of \"B\", 0; option allow_alias = true would allow it"},
    {BYTES(HEAD "message A {\n  int32 a = 1;;\n  ; string a = 1;\n}"),
     "4:12: \"A.a\" is already defined, at 3:9"},
    {BYTES(HEAD "import \"missing1.proto\";\nimport \"missing2.proto\";\nmessage A { other.B b = 1; int32 c = 0; }"),
     "2:8: \"missing1.proto\" was not found\n3:8: \"missing2.proto\" was not found\n4:38: 0 is out of range: it is from 1 to 536870911"},
};

// The errors of a tree without the name of the file, and without the last line's end.
static char *errors_of(proto_tree *tree) {
    static const char path[] = "self.proto:";
    const char *from = proto_errors(tree);
    char *text = (char *)proto_alloc(tree, strlen(from) + 1), *to = text;
    while (*from) {
        if (strncmp(from, path, sizeof path - 1) == 0) from += sizeof path - 1;
        while (*from && *from != '\n') {
            if (strncmp(from, path, sizeof path - 1) == 0) from += sizeof path - 1; // "already defined, at"
            *to++ = *from++;
        }
        if (*from == '\n' && *++from) *to++ = '\n';
    }
    *to = '\0';
    return text;
}

static void every_mistake_has_its_place_and_its_message(void) {
    size_t i;
    CHECK(sizeof bad_files / sizeof bad_files[0] >= 100);
    for (i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
        proto_tree *tree = proto_begin(NULL);
        const proto_file *file = proto_load_text(tree, "self.proto", bad_files[i].text, bad_files[i].length);
        const char *errors = errors_of(tree);
        CHECK(!file);
        CHECK(proto_error_count(tree) > 0);
        if (!CHECK(strcmp(errors, bad_files[i].errors) == 0))
            fprintf(stderr, "%s\n--- expected\n%s\n--- got\n%s\n", bad_files[i].text, bad_files[i].errors, errors);
        proto_end(tree);
    }
}

// ---- a good file with every feature: what the tree says of it

static const char good_text[] =
    "\xEF\xBB\xBF// What the file is about.\n"
    "\n"
    "/* A licence,\n"
    " * in two lines.\n"
    " */\n"
    "syntax = \"pro\" 'to3';\n"
    "package a.b; import \"google/protobuf/timestamp.proto\"; import public \"google/protobuf/wrappers.proto\";\n"
    "import \"google/protobuf/descriptor.proto\";\n"
    "option java_package = \"x\" \"y\"; option (custom).part.(other) = { a: 1 b < c: \"}\" > d: [1, 2] };\n"
    "extend google.protobuf.FieldOptions { string note = 50000; }\n"
    "\n"
    "// stands apart\n"
    "\n"
    "// Above.\n"
    "// Twice.\n"
    "message Outer { // behind\n"
    "  message Inner { .a.b.Outer.Inner self = 1; b.Outer other = 2; Kind kind = 0x3; }\n"
    "  enum Kind { option allow_alias = true; ZERO = 0; ONE = 1 [deprecated = true]; UNO = 1; LOW = -2147483648; reserved 5, 7 to max; reserved \"OLD\"; }\n"
    "  double f1 = 1; float f2 = 2; int32 f3 = 3; int64 f4 = 4; uint32 f5 = 5; uint64 f6 = 6; sint32 f7 = 7; sint64 f8 = 8;\n"
    "  fixed32 f9 = 9; fixed64 f10 = 10; sfixed32 f11 = 11; sfixed64 f12 = 12; bool f13 = 13; string f14 = 14; bytes f15 = 15;\n"
    "  repeated Inner inners = 16 [packed = false, (note) = \"n\", deprecated = true];\n"
    "  optional Kind maybe = 17; map<sint64, google.protobuf.Timestamp> times = 18;\n"
    "  oneof choice { option (x) = 1; string text = 19; Inner inner = 027; } // the choice\n"
    "  reserved 100 to 199, 300; reserved \"gone\", 'lost';\n"
    "  google.protobuf.StringValue message = 21; string stream = 22; bool optional = 536870911;;\n"
    "  option deprecated = true;\n"
    "}\n"
    "service Talk { option deprecated = true;\n"
    "  rpc One(Outer) returns (Outer.Inner); // single\n"
    "  rpc Down(Outer) returns (stream Outer) {}\n"
    "  rpc Up(stream .a.b.Outer) returns (Outer) { option deprecated = true; option (http) = { get: \"/v1/{name=x/*}\" }; };\n"
    "  rpc Both(stream Outer) returns (stream Outer);\n"
    "}\n";

static const proto_field *field_of(const proto_message *message, const char *name) {
    const proto_field *field = message->fields;
    while (field && strcmp(field->name, name) != 0) field = field->next;
    CHECK(field != NULL);
    return field ? field : message->fields;
}

static void a_good_file_is_a_tree(void) {
    static const char *const scalars[] = {"double",  "float",   "int32",    "int64",    "uint32", "uint64", "sint32", "sint64",
                                          "fixed32", "fixed64", "sfixed32", "sfixed64", "bool",   "string", "bytes"};
    proto_tree *tree = proto_begin(NULL);
    const proto_file *file = proto_load_text(tree, "good.proto", good_text, sizeof good_text - 1);
    const proto_message *outer, *inner;
    const proto_field *field;
    const proto_method *method;
    const proto_value *value;
    int i;
    if (!CHECK(file != NULL)) {
        fprintf(stderr, "%s", proto_errors(tree));
        proto_end(tree);
        return;
    }
    CHECK(strcmp(proto_errors(tree), "") == 0);
    CHECK(strcmp(file->package, "a.b") == 0);
    CHECK(strcmp(file->comment.leading, "A licence,\nin two lines.") == 0);
    outer = file->messages;
    inner = outer->messages;
    CHECK(!outer->next && !file->enums && outer->deprecated);
    CHECK(strcmp(outer->full_name, "a.b.Outer") == 0 && strcmp(outer->comment.leading, "Above.\nTwice.") == 0);
    CHECK(strcmp(outer->comment.trailing, "behind") == 0);
    CHECK_EQ(outer->place.line, 16);
    CHECK_EQ(outer->place.column, 9);
    CHECK(inner->parent == outer && strcmp(inner->full_name, "a.b.Outer.Inner") == 0);
    CHECK(field_of(inner, "self")->message == inner && field_of(inner, "other")->message == outer);
    CHECK(field_of(inner, "kind")->kind == PROTO_ENUM && field_of(inner, "kind")->enumeration == outer->enums);
    CHECK_EQ(field_of(inner, "kind")->number, 3);
    for (field = outer->fields, i = 0; i < 15; i++, field = field->next) {
        CHECK_EQ(field->number, i + 1);
        CHECK(strcmp(proto_kind_name(field->kind), scalars[i]) == 0);
    }
    field = field_of(outer, "inners");
    CHECK(field->repeated && field->deprecated && field->message == inner && !field->optional && !field->is_map);
    CHECK(field_of(outer, "maybe")->optional && field_of(outer, "maybe")->kind == PROTO_ENUM);
    field = field_of(outer, "times");
    CHECK(field->is_map && field->key == PROTO_SINT64 && field->kind == PROTO_MESSAGE);
    CHECK(strcmp(field->message->full_name, "google.protobuf.Timestamp") == 0 && field->message->file != file);
    CHECK(strcmp(outer->oneofs->name, "choice") == 0 && !outer->oneofs->next);
    CHECK(field_of(outer, "text")->oneof == outer->oneofs && field_of(outer, "inner")->oneof == outer->oneofs);
    CHECK_EQ(field_of(outer, "inner")->number, 23);
    CHECK_EQ(field_of(outer, "optional")->number, 536870911);
    CHECK(field_of(outer, "message")->message != NULL && field_of(outer, "stream")->kind == PROTO_STRING);
    value = outer->enums->values;
    CHECK(strcmp(value->name, "ZERO") == 0 && value->next->deprecated && value->next->next->number == 1);
    CHECK_EQ(value->next->next->next->number, INT32_MIN);
    CHECK(file->services->deprecated && strcmp(file->services->full_name, "a.b.Talk") == 0);
    method = file->services->methods;
    CHECK(method->request == outer && method->response == inner && !method->client_streams && !method->server_streams);
    CHECK(strcmp(method->comment.trailing, "single") == 0);
    method = method->next;
    CHECK(!method->client_streams && method->server_streams);
    method = method->next;
    CHECK(method->client_streams && !method->server_streams && method->deprecated);
    method = method->next;
    CHECK(method->client_streams && method->server_streams && !method->next);
    proto_end(tree);
}

// ---- files that import each other, on disk

static char directory[256];

static void write_text(const char *name, const char *text) {
    char path[512];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "wb");
    if (!CHECK(file != NULL)) return;
    CHECK(fwrite(text, 1, strlen(text), file) == strlen(text));
    CHECK(fclose(file) == 0);
}

static char *load_errors(proto_tree **tree, const char *name, const proto_file **file) {
    const char *include[1];
    proto_options options;
    include[0] = directory;
    options.include = include;
    options.include_count = 1;
    *tree = proto_begin(&options);
    *file = proto_load(*tree, name);
    return errors_of(*tree);
}

static void imports_are_found_seen_and_checked(void) {
    const proto_file *file;
    proto_tree *tree;
    char *errors;
    snprintf(directory, sizeof directory, "%s/frisbee_proto_XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!CHECK(mkdtemp(directory) != NULL)) return;
    write_text("base.proto", HEAD "package base; message B {} enum E { ZERO = 0; }");
    write_text("public.proto", HEAD "import public \"base.proto\";");
    write_text("private.proto", HEAD "import \"base.proto\";");
    write_text("old.proto", "syntax = \"proto2\"; package old; message O { required int32 a = 1; }");
    write_text("a.proto", HEAD "import \"b.proto\"; message A {}");
    write_text("b.proto", HEAD "import \"a.proto\"; message B {}");
    write_text("broken.proto", HEAD "message X { int32 a = 0; }");

    write_text("self.proto", HEAD "import \"public.proto\"; message A { base.B b = 1; base.E e = 2; }");
    errors = load_errors(&tree, "self.proto", &file);
    CHECK(file && strcmp(errors, "") == 0 && file->messages->fields->message && file->messages->fields->next->enumeration);
    proto_end(tree);

    write_text("self.proto", HEAD "import \"private.proto\"; message A { base.B b = 1; }");
    errors = load_errors(&tree, "self.proto", &file);
    CHECK(!file && strcmp(errors, "2:37: \"base.B\" is defined in \"base.proto\", which is not imported here") == 0);
    proto_end(tree);

    write_text("self.proto", HEAD "import \"old.proto\"; message A { int32 b = 1; }"); // options may need it: it is not read
    errors = load_errors(&tree, "self.proto", &file);
    CHECK(file && strcmp(errors, "") == 0);
    proto_end(tree);
    write_text("self.proto", HEAD "import \"old.proto\"; message A { old.O b = 1; }");
    errors = load_errors(&tree, "self.proto", &file);
    CHECK(!file && strcmp(errors, "2:33: \"old.O\" is not defined (\"old.proto\" is proto2, and was not read)") == 0);
    proto_end(tree);

    errors = load_errors(&tree, "a.proto", &file);
    CHECK(!file && strcmp(errors, "b.proto:2:8: \"a.proto\" imports itself, over others or directly") == 0);
    proto_end(tree);

    write_text("self.proto", HEAD "import \"broken.proto\"; message A { X x = 1; Y y = 2; int32 z = 0; }"); // unknown names would be noise
    errors = load_errors(&tree, "self.proto", &file);
    CHECK(!file && strcmp(errors, "2:64: 0 is out of range: it is from 1 to 536870911\n"
                                  "broken.proto:2:23: 0 is out of range: it is from 1 to 536870911") == 0);
    proto_end(tree);

    errors = load_errors(&tree, "nowhere.proto", &file);
    CHECK(!file && strcmp(errors, "\"nowhere.proto\" was not found, or could not be read") == 0);
    proto_end(tree);
    {
        static const char *const names[] = {"base.proto", "public.proto", "private.proto", "old.proto", "a.proto", "b.proto", "broken.proto", "self.proto"};
        char path[512];
        size_t i;
        for (i = 0; i < sizeof names / sizeof names[0]; i++) {
            snprintf(path, sizeof path, "%s/%s", directory, names[i]);
            CHECK(remove(path) == 0);
        }
        CHECK(remove(directory) == 0);
    }
}

// ---- what is large, or makes no sense at all

static void large_and_deep_files_are_read_or_refused(void) {
    enum { FIELDS = 100000, DEEP = 100000 };
    const size_t room = (size_t)FIELDS * 40 + 100;
    char *text = (char *)malloc(room), *at = text;
    proto_tree *tree;
    const proto_file *file;
    int i;
    if (!CHECK(text != NULL)) return;
    at += sprintf(at, HEAD "message A {\n");
    for (i = 1; i <= FIELDS; i++) at += sprintf(at, "  string field%d = %d;\n", i, i < 19000 ? i : i + 1000);
    at += sprintf(at, "}\n");
    tree = proto_begin(NULL);
    file = proto_load_text(tree, "large.proto", text, (size_t)(at - text));
    CHECK(file != NULL);
    for (i = 0; file && file->messages->fields; file->messages->fields = file->messages->fields->next) i++;
    CHECK_EQ(i, FIELDS);
    proto_end(tree);

    at = text + sprintf(text, HEAD "option (a) = ");
    for (i = 0; i < DEEP; i++) *at++ = '{';
    for (i = 0; i < DEEP; i++) *at++ = '}';
    *at++ = ';';
    tree = proto_begin(NULL);
    CHECK(proto_load_text(tree, "deep.proto", text, (size_t)(at - text)) != NULL);
    proto_end(tree);

    at = text + sprintf(text, HEAD);
    for (i = 0; i < DEEP; i++) at += sprintf(at, "message M {");
    tree = proto_begin(NULL);
    CHECK(!proto_load_text(tree, "deep.proto", text, (size_t)(at - text)));
    proto_end(tree);
    free(text);
}

static uint64_t state = 7;

static uint32_t draw(uint32_t below) { // splitmix64
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) % below);
}

// Bytes changed, taken out, doubled; words of the language put in. It is read or it is refused with an error that has a place.
static void changed_files_do_no_harm(void) {
    static const char *const words[] = {"message ", "}", "{", ";", "enum E {", "oneof o {", "map<", ">", "reserved ", "\"", "/*", "//", "rpc ", "stream ",
                                        "option ", "= 1", "repeated ", "0x", "99999999999", "import ", "\\", ".", "extend ", "\n", "\xC3", "group G "};
    enum { ROUNDS = 4000, MOST = 8192 };
    static char text[MOST + 64];
    int round, good = 0;
    for (round = 0; round < ROUNDS; round++) {
        size_t length = sizeof good_text - 1;
        uint32_t changes = 1 + draw(4);
        proto_tree *tree = proto_begin(NULL);
        const proto_file *file;
        memcpy(text, good_text, length);
        while (changes-- > 0) {
            const size_t at = draw((uint32_t)length), part = draw(40);
            const char *word = words[draw((uint32_t)(sizeof words / sizeof words[0]))];
            const uint32_t what = draw(4);
            if (what == 0) text[at] = (char)draw(256);
            else if (what == 1 && at + part < length) {
                memmove(text + at, text + at + part, length - at - part);
                length -= part;
            } else if (length + strlen(word) < MOST) {
                memmove(text + at + strlen(word), text + at, length - at);
                memcpy(text + at, word, strlen(word));
                length += strlen(word);
            }
        }
        file = proto_load_text(tree, "self.proto", text, length);
        CHECK((file != NULL) == (proto_error_count(tree) == 0));
        CHECK(file || strchr(proto_errors(tree), ':') != NULL);
        good += file != NULL;
        proto_end(tree);
    }
    CHECK(good > ROUNDS / 100 && good < ROUNDS);
}

int main(int argc, char **argv) {
    RUN(every_mistake_has_its_place_and_its_message);
    RUN(a_good_file_is_a_tree);
    RUN(imports_are_found_seen_and_checked);
    RUN(large_and_deep_files_are_read_or_refused);
    RUN(changed_files_do_no_harm);
    return check_report("proto");
}
