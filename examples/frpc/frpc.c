// frpc - writes C for frisbee.h from proto3 files: NAME.proto becomes NAME.frpc.h, with structs, codecs and typed services.
//
//     cc -std=c99 -I. examples/frpc/frpc.c -o frpc
//     ./frpc -I protos -o generated echo.proto
//
// README.md in this directory shows what comes out and how it is used.
#define PROTO_IMPLEMENTATION
#include "proto.h"
#include <errno.h>
#include <sys/stat.h>

#define FRPC_VERSION "1.0"

enum { FIRST_OPERATION = 10, LAST_OPERATION = 65279, LINE_MAX_LENGTH = 150 };

// ---- text that grows

typedef struct text {
    char *data;
    size_t length, room;
} text;

static void out_of_memory(void) {
    fprintf(stderr, "frpc: out of memory\n");
    exit(1);
}

static void text_add(text *to, const char *data, size_t length) {
    if (to->length + length + 1 > to->room) {
        to->room = (to->length + length + 1) * 2;
        to->data = (char *)realloc(to->data, to->room);
        if (!to->data) out_of_memory();
    }
    memcpy(to->data + to->length, data, length);
    to->length += length;
    to->data[to->length] = '\0';
}

static void text_put(text *to, const char *string) { text_add(to, string, strlen(string)); }

// What the generator writes most: pieces one behind the other, up to a NULL.
static void put(text *to, ...) {
    va_list pieces;
    const char *piece;
    va_start(pieces, to);
    while ((piece = va_arg(pieces, const char *)) != NULL) text_put(to, piece);
    va_end(pieces);
}

#define PUT(to, ...) put(to, __VA_ARGS__, (const char *)NULL)

static const char *number_text(char room[24], long long number) {
    snprintf(room, 24, "%lld", number);
    return room;
}

// ---- what was asked for

typedef struct settings {
    const char *include[64];
    uint32_t include_count;
    const char *output, *prefix, *header; // prefix NULL: the package
    uint32_t operation;
    bool stock, plugin;
} settings;

typedef struct generator {
    const settings *set;
    proto_tree *tree;
    const proto_file *file;
    text out;
    const proto_file **given; // the files of the command line: the prefix is theirs
    uint32_t given_count;
} generator;

// ---- C names

static bool is_reserved_in_c(const char *name) {
    static const char *const words[] = {
        // C
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto", "if",
        "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union",
        "unsigned", "void", "volatile", "while", "bool", "true", "false", "nullptr", "constexpr", "alignas", "alignof", "static_assert",
        "thread_local", "typeof", "typeof_unqual", "asm", "fortran", "complex", "imaginary", "noreturn",
        // C++
        "and", "and_eq", "bitand", "bitor", "catch", "char8_t", "char16_t", "char32_t", "class", "co_await", "co_return", "co_yield", "compl",
        "concept", "consteval", "constinit", "const_cast", "decltype", "delete", "dynamic_cast", "explicit", "export", "friend", "mutable",
        "namespace", "new", "noexcept", "not", "not_eq", "operator", "or", "or_eq", "private", "protected", "public", "reinterpret_cast",
        "requires", "static_cast", "template", "this", "throw", "try", "typeid", "typename", "using", "virtual", "wchar_t", "xor", "xor_eq",
        // macros that are often there, and types of this header
        "NULL", "EOF", "errno", "stdin", "stdout", "stderr", "assert", "INFINITY", "NAN", "linux", "unix", "i386", "offsetof", "int8_t", "int16_t",
        "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t", "main", "DOMAIN", "OVERFLOW", "UNDERFLOW", "HUGE_VAL",
        "RAND_MAX", "SIG_DFL", "SIG_ERR", "SIG_IGN", "TRUE", "FALSE", "major", "minor", "makedev", "errno_t", "I"};
    size_t i;
    for (i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i], name) == 0) return true;
    return false;
}

static const char *escaped(proto_tree *tree, const char *name) { return is_reserved_in_c(name) ? protoi_join(tree, name, "", "_") : name; }

static const char *underscored(proto_tree *tree, const char *name) {
    char *copy = protoi_copy(tree, name, strlen(name)), *at;
    for (at = copy; *at; at++)
        if (*at == '.') *at = '_';
    return copy;
}

static bool is_given(const generator *g, const proto_file *file) {
    uint32_t i;
    for (i = 0; i < g->given_count; i++)
        if (g->given[i] == file) return true;
    return false;
}

// The C name of what has a full name in a file: package.Outer.Inner is package_Outer_Inner.
static const char *c_name(const generator *g, const proto_file *file, const char *full_name) {
    const size_t package = strlen(file->package);
    const char *local = full_name + (package ? package + 1 : 0);
    const char *head = g->set->prefix && is_given(g, file) ? g->set->prefix : file->package;
    return escaped(g->tree, underscored(g->tree, protoi_join(g->tree, head, ".", local)));
}

static const char *message_name(const generator *g, const proto_message *message) { return c_name(g, message->file, message->full_name); }
static const char *enum_name(const generator *g, const proto_enum *enumeration) { return c_name(g, enumeration->file, enumeration->full_name); }
static const char *service_name(const generator *g, const proto_service *service) { return c_name(g, g->file, service->full_name); }
static const char *member_name(const generator *g, const char *name) { return escaped(g->tree, name); }

// ---- checks of what proto_load does not know: two things with one C name, what stock peers do not take

typedef struct taken {
    const char *name;
    proto_place place;
} taken;

typedef struct names {
    taken *list;
    uint32_t count, room;
} names;

static void names_add(names *list, const char *name, proto_place place) {
    if (list->count == list->room) {
        list->room = list->room ? list->room * 2 : 64;
        list->list = (taken *)realloc(list->list, list->room * sizeof *list->list);
        if (!list->list) out_of_memory();
    }
    list->list[list->count].name = name;
    list->list[list->count++].place = place;
}

static void names_add_all(const generator *g, names *list, const char *name, const char *const *suffixes, size_t count, proto_place place) {
    size_t i;
    for (i = 0; i < count; i++) names_add(list, protoi_join(g->tree, name, "", suffixes[i]), place);
}

static int names_compare(const void *a, const void *b) {
    const taken *x = (const taken *)a, *y = (const taken *)b;
    const int order = strcmp(x->name, y->name);
    return order ? order : protoi_place_compare(&x->place, &y->place);
}

static void names_check(proto_tree *tree, names *list) {
    const proto_place *told = NULL; // a type brings many names, of which the first is enough
    uint32_t i;
    if (list->count) qsort(list->list, list->count, sizeof *list->list, names_compare);
    for (i = 1; i < list->count; i++) {
        const taken *own = &list->list[i];
        if (strcmp(own->name, own[-1].name) != 0 || (told && protoi_place_compare(told, &own->place) == 0)) continue;
        told = &own->place;
        proto_error(tree, own->place, "this would have the C name %s, as what is at line %lu", own->name, (unsigned long)own[-1].place.line);
    }
    free(list->list);
    memset(list, 0, sizeof *list);
}

static void check_members(const generator *g, const proto_message *message) {
    const proto_field *field;
    const proto_oneof *oneof;
    names members;
    memset(&members, 0, sizeof members);
    for (field = message->fields; field; field = field->next) {
        if (field->oneof) continue; // in a union of their own
        names_add(&members, member_name(g, field->name), field->place);
        if (field->repeated || field->is_map) names_add(&members, protoi_join(g->tree, field->name, "", "_count"), field->place);
        if (field->optional && field->kind != PROTO_MESSAGE) names_add(&members, protoi_join(g->tree, "has_", "", field->name), field->place);
    }
    for (oneof = message->oneofs; oneof; oneof = oneof->next) {
        names_add(&members, member_name(g, oneof->name), oneof->place);
        names_add(&members, protoi_join(g->tree, oneof->name, "", "_case"), oneof->place);
    }
    names_check(g->tree, &members);
}

static void collect_enum(const generator *g, const proto_enum *enumeration, names *all) {
    static const char *const suffixes[] = {"", "_enum", "_name"};
    const char *name = enum_name(g, enumeration);
    const proto_value *value;
    names_add_all(g, all, name, suffixes, sizeof suffixes / sizeof suffixes[0], enumeration->place);
    for (value = enumeration->values; value; value = value->next) names_add(all, protoi_join(g->tree, name, "_", value->name), value->place);
}

static void collect_message(const generator *g, const proto_message *message, names *all) {
    static const char *const suffixes[] = {"", "_type", "_encode", "_decode", "_copy", "_equal", "_print"};
    const char *name = message_name(g, message);
    const proto_message *nested;
    const proto_enum *enumeration;
    const proto_field *field;
    names_add_all(g, all, name, suffixes, sizeof suffixes / sizeof suffixes[0], message->place);
    for (field = message->fields; field; field = field->next) {
        if (field->is_map) names_add(all, protoi_join(g->tree, name, "_", protoi_join(g->tree, field->name, "", "_entry")), field->place);
        if (field->oneof) names_add(all, protoi_join(g->tree, name, "_", protoi_join(g->tree, field->oneof->name, "_", field->name)), field->place);
    }
    for (enumeration = message->enums; enumeration; enumeration = enumeration->next) collect_enum(g, enumeration, all);
    for (nested = message->messages; nested; nested = nested->next) collect_message(g, nested, all);
    check_members(g, message);
}

static void collect_service(const generator *g, const proto_service *service, names *all) {
    static const char *const suffixes[] = {"_functions", "_service", "_methods", "_serve"};
    static const char *const of_method[] = {"", "_done", "_reply", "_wait", "_send", "_receive"};
    const char *name = service_name(g, service);
    const proto_method *method;
    names_add_all(g, all, name, suffixes, sizeof suffixes / sizeof suffixes[0], service->place);
    for (method = service->methods; method; method = method->next)
        names_add_all(g, all, protoi_join(g->tree, name, "_", method->name), of_method, sizeof of_method / sizeof of_method[0], method->place);
}

static bool holds_itself(const proto_message *message, const proto_message *wanted, uint32_t depth) {
    const proto_field *field;
    for (field = message->fields; field && depth < PROTOI_DEPTH; field = field->next)
        if (field->message && !field->repeated && !field->is_map && (field->message == wanted || holds_itself(field->message, wanted, depth + 1)))
            return true;
    return false;
}

static void check_stock_message(const generator *g, const proto_message *message) {
    const proto_field *field;
    const proto_oneof *oneof;
    const proto_message *nested;
    for (oneof = message->oneofs; oneof; oneof = oneof->next)
        proto_error(g->tree, oneof->place, "stock peers have no oneof: \"%s\" would not be understood", oneof->name);
    for (field = message->fields; field; field = field->next) {
        if (field->optional) proto_error(g->tree, field->place, "stock peers have no optional fields: \"%s\" would not be understood", field->name);
        if (field->repeated && (field->kind == PROTO_ENUM || field->kind == PROTO_BYTES))
            proto_error(g->tree, field->place, "the stock compiler's code for repeated %s does not compile (\"%s\")", proto_kind_name(field->kind),
                        field->name);
    }
    if (holds_itself(message, message, 0))
        proto_error(g->tree, message->place, "message \"%s\" holds itself: stock programs make it without end", message->name);
    for (nested = message->messages; nested; nested = nested->next) check_stock_message(g, nested);
}

static void check_file(const generator *g) {
    const proto_message *message;
    const proto_enum *enumeration;
    const proto_service *service;
    const proto_method *method;
    uint32_t operation = g->set->operation;
    names all;
    memset(&all, 0, sizeof all);
    for (enumeration = g->file->enums; enumeration; enumeration = enumeration->next) collect_enum(g, enumeration, &all);
    for (message = g->file->messages; message; message = message->next) collect_message(g, message, &all);
    for (service = g->file->services; service; service = service->next) {
        collect_service(g, service, &all);
        for (method = service->methods; method; method = method->next)
            if (operation++ == LAST_OPERATION + 1)
                proto_error(g->tree, method->place, "there are more methods than operations: the last one is %d", (int)LAST_OPERATION);
    }
    names_check(g->tree, &all);
    for (message = g->set->stock ? g->file->messages : NULL; message; message = message->next) check_stock_message(g, message);
}

// ---- comments

// A line of a comment, so that no compiler takes it for more: no backslash at its end, no trigraph.
static void put_comment_line(text *out, const char *line, size_t length) {
    size_t i;
    while (length && (line[length - 1] == '\\' || line[length - 1] == ' ' || line[length - 1] == '\t')) length--;
    for (i = 0; i < length; i++) {
        if (line[i] == '/' && i >= 2 && line[i - 1] == '?' && line[i - 2] == '?') text_add(out, " ", 1);
        text_add(out, (unsigned char)line[i] < 32 ? " " : &line[i], 1);
    }
}

static void put_comment(text *out, const char *indent, const char *comment) {
    while (comment && *comment) {
        const size_t length = strcspn(comment, "\n");
        PUT(out, indent, "//");
        if (length) text_add(out, " ", 1);
        put_comment_line(out, comment, length);
        text_put(out, "\n");
        comment += length + (comment[length] == '\n');
    }
}

// What stands above a declaration.
static void put_above(text *out, const char *indent, const proto_comment *comment, bool deprecated) {
    put_comment(out, indent, comment->leading);
    if (comment->trailing && strchr(comment->trailing, '\n')) put_comment(out, indent, comment->trailing);
    if (deprecated) put_comment(out, indent, "Deprecated.");
}

// What stands behind it, and the end of the line.
static void put_behind(text *out, const proto_comment *comment) {
    if (comment->trailing && !strchr(comment->trailing, '\n')) {
        text_put(out, " // ");
        put_comment_line(out, comment->trailing, strlen(comment->trailing));
    }
    text_put(out, "\n");
}

// ---- fields

static const char *scalar_type(proto_kind kind) {
    static const char *const types[] = {"double",   "float",    "int32_t",  "int64_t", "uint32_t", "uint64_t", "int32_t",       "int64_t",
                                        "uint32_t", "uint64_t", "int32_t",  "int64_t", "bool",     "frisbee_string", "frisbee_bytes"};
    return types[kind];
}

static const char *kind_name(proto_kind kind) {
    static const char *const names_of[] = {"F64", "F32", "I32", "I64", "U32",    "U64",   "I32", "I64", "U32",
                                           "U64", "I32", "I64", "BOOL", "STRING", "BYTES", "ANY", "U32"};
    return names_of[kind];
}

static const char *value_type(const generator *g, const proto_field *field) { // without the pointer that messages have
    if (field->kind == PROTO_MESSAGE) return message_name(g, field->message);
    return field->kind == PROTO_ENUM ? enum_name(g, field->enumeration) : scalar_type(field->kind);
}

static const char *entry_name(const generator *g, const proto_message *message, const proto_field *field) {
    return protoi_join(g->tree, message_name(g, message), "_", protoi_join(g->tree, field->name, "", "_entry"));
}

// TYPE NAME; a member that is called as its type needs the word struct, for C++.
static void put_single(generator *g, const char *indent, const proto_field *field, const char *name) {
    const char *type = value_type(g, field);
    PUT(&g->out, indent, field->kind == PROTO_MESSAGE ? "const " : "", field->kind == PROTO_MESSAGE && strcmp(type, name) == 0 ? "struct " : "", type,
        field->kind == PROTO_MESSAGE ? " *" : " ", name, ";");
}

static void put_member(generator *g, const proto_message *message, const proto_field *field) {
    const char *name = member_name(g, field->name);
    put_above(&g->out, "    ", &field->comment, field->deprecated);
    if (field->is_map) PUT(&g->out, "    const ", entry_name(g, message, field), " *", name, "; uint32_t ", field->name, "_count;");
    else if (field->repeated) PUT(&g->out, "    const ", value_type(g, field), " *", name, "; uint32_t ", field->name, "_count;");
    else if (field->optional && field->kind != PROTO_MESSAGE) PUT(&g->out, "    bool has_", field->name, "; ", value_type(g, field), " ", name, ";");
    else put_single(g, "    ", field, name);
    put_behind(&g->out, &field->comment);
}

static bool is_first_of_oneof(const proto_message *message, const proto_field *field) {
    const proto_field *other = message->fields;
    while (other->oneof != field->oneof) other = other->next;
    return other == field;
}

static void put_oneof(generator *g, const proto_message *message, const proto_oneof *oneof) {
    const char *name = message_name(g, message);
    const proto_field *field;
    put_above(&g->out, "    ", &oneof->comment, false);
    PUT(&g->out, "    uint32_t ", oneof->name, "_case; // ", name, "_", oneof->name, "_..., or 0");
    text_put(&g->out, "\n    union {\n");
    for (field = message->fields; field; field = field->next) {
        if (field->oneof != oneof) continue;
        put_above(&g->out, "        ", &field->comment, field->deprecated);
        put_single(g, "        ", field, member_name(g, field->name));
        put_behind(&g->out, &field->comment);
    }
    PUT(&g->out, "    } ", member_name(g, oneof->name), ";\n");
}

static void put_choices(generator *g, const proto_message *message) {
    const char *name = message_name(g, message);
    const proto_oneof *oneof;
    const proto_field *field;
    char number[24];
    for (oneof = message->oneofs; oneof; oneof = oneof->next) {
        const char *between = "";
        text_put(&g->out, "enum {\n");
        for (field = message->fields; field; field = field->next) {
            if (field->oneof != oneof) continue;
            PUT(&g->out, between, "    ", name, "_", oneof->name, "_", field->name, " = ", number_text(number, field->number));
            between = ",\n";
        }
        text_put(&g->out, "\n};\n");
    }
}

static void put_struct(generator *g, const proto_message *message) {
    const char *name = message_name(g, message);
    const proto_message *nested;
    const proto_field *field;
    for (nested = message->messages; nested; nested = nested->next) put_struct(g, nested);
    for (field = message->fields; field; field = field->next) {
        if (!field->is_map) continue;
        PUT(&g->out, "typedef struct ", entry_name(g, message, field), " { ", scalar_type(field->key), " key; ");
        put_single(g, "", field, "value");
        PUT(&g->out, " } ", entry_name(g, message, field), ";\n");
    }
    put_choices(g, message);
    put_above(&g->out, "", &message->comment, message->deprecated);
    PUT(&g->out, "struct ", name, " {");
    put_behind(&g->out, &message->comment);
    for (field = message->fields; field; field = field->next) {
        if (!field->oneof) put_member(g, message, field);
        else if (is_first_of_oneof(message, field)) put_oneof(g, message, field->oneof);
    }
    if (!message->fields) text_put(&g->out, "    char unused_; // it has no fields\n");
    text_put(&g->out, "};\n\n");
}

static void put_forward(generator *g, const proto_message *message) {
    const proto_message *nested;
    PUT(&g->out, "typedef struct ", message_name(g, message), " ", message_name(g, message), ";\n");
    for (nested = message->messages; nested; nested = nested->next) put_forward(g, nested);
}

static void put_codec(generator *g, const proto_message *message) {
    const char *name = message_name(g, message);
    const proto_message *nested;
    PUT(&g->out, "extern const frisbee_type ", name, "_type;\n");
    PUT(&g->out, "static inline frisbee_result ", name, "_encode(const ", name, " *message, void *data, size_t room, size_t *length) {\n",
        "    return frisbee_message_encode(&", name, "_type, message, data, room, length);\n}\n");
    PUT(&g->out, "static inline frisbee_result ", name, "_decode(", name, " *message, frisbee_arena *arena, const void *data, size_t length,\n",
        "    const char **error) {\n    return frisbee_message_decode(&", name, "_type, message, arena, data, length, error);\n}\n");
    PUT(&g->out, "static inline frisbee_result ", name, "_copy(", name, " *copy, const ", name, " *message, frisbee_arena *arena) {\n",
        "    return frisbee_message_copy(&", name, "_type, copy, message, arena);\n}\n");
    PUT(&g->out, "static inline bool ", name, "_equal(const ", name, " *a, const ", name, " *b) {\n", "    return frisbee_message_equal(&", name,
        "_type, a, b);\n}\n");
    PUT(&g->out, "static inline size_t ", name, "_print(const ", name, " *message, char *text, size_t room) {\n", "    return frisbee_message_print(&",
        name, "_type, message, text, room);\n}\n\n");
    for (nested = message->messages; nested; nested = nested->next) put_codec(g, nested);
}

// ---- enums

static void put_enum(generator *g, const proto_enum *enumeration) {
    const char *name = enum_name(g, enumeration);
    const proto_value *value;
    char number[24];
    put_above(&g->out, "", &enumeration->comment, enumeration->deprecated);
    PUT(&g->out, "typedef int32_t ", name, ";");
    put_behind(&g->out, &enumeration->comment);
    text_put(&g->out, "enum {\n");
    for (value = enumeration->values; value; value = value->next) {
        put_above(&g->out, "    ", &value->comment, value->deprecated);
        PUT(&g->out, "    ", name, "_", value->name, " = ", value->number == INT32_MIN ? "-2147483647 - 1" : number_text(number, value->number),
            value->next ? "," : "");
        put_behind(&g->out, &value->comment);
    }
    PUT(&g->out, "};\nextern const frisbee_enum ", name, "_enum;\nstatic inline const char *", name, "_name(", name,
        " value) { // NULL: it has no such value\n    uint32_t i;\n    for (i = 0; i < ", name, "_enum.count; i++)\n        if (", name,
        "_enum.values[i].number == value) return ", name, "_enum.values[i].name;\n    return NULL;\n}\n\n");
}

static void put_enums(generator *g, const proto_enum *enums, const proto_message *messages) {
    for (; enums; enums = enums->next) put_enum(g, enums);
    for (; messages; messages = messages->next) put_enums(g, messages->enums, messages->messages);
}

static void put_enum_table(generator *g, const proto_enum *enumeration) {
    const char *name = enum_name(g, enumeration);
    const proto_value *value;
    bool dense = true;
    uint32_t count = 0;
    char number[24];
    PUT(&g->out, "static const frisbee_enum_value ", name, "_values[] = {\n");
    for (value = enumeration->values; value; value = value->next) {
        dense = dense && value->number == (int32_t)count++;
        PUT(&g->out, "    {\"", value->name, "\", ", name, "_", value->name, "}", value->next ? ",\n" : "};\n");
    }
    for (count = 0, value = enumeration->values; value; value = value->next) count++;
    PUT(&g->out, "const frisbee_enum ", name, "_enum = {\"", enumeration->full_name, "\", ", name, "_values, ", number_text(number, count), ", ",
        dense ? "true" : "false", "};\n\n");
}

static void put_enum_tables(generator *g, const proto_enum *enums, const proto_message *messages) {
    for (; enums; enums = enums->next) put_enum_table(g, enums);
    for (; messages; messages = messages->next) put_enum_tables(g, messages->enums, messages->messages);
}

// ---- tables of messages

static void put_row(generator *g, const char *name, const proto_field *field, const char *shape, const char *member, const char *count, const char *entry) {
    char number[24];
    PUT(&g->out, "    {\"", field->name, "\", ", number_text(number, field->number), ", FRISBEE_KIND_", kind_name(field->kind), ", FRISBEE_SHAPE_", shape,
        ", (uint32_t)offsetof(", name, ", ", member, "), ");
    if (count) PUT(&g->out, "(uint32_t)offsetof(", name, ", ", count, "), ");
    else text_put(&g->out, "0, ");
    if (entry) PUT(&g->out, "&", entry, "_type, ");
    else if (field->kind == PROTO_MESSAGE) PUT(&g->out, "&", message_name(g, field->message), "_type, ");
    else text_put(&g->out, "NULL, ");
    if (field->kind == PROTO_ENUM && !entry) PUT(&g->out, "&", enum_name(g, field->enumeration), "_enum},\n");
    else text_put(&g->out, "NULL},\n");
}

static void put_oneof_rows(generator *g, const proto_message *message, const proto_oneof *oneof) {
    const char *name = message_name(g, message);
    const char *count = protoi_join(g->tree, oneof->name, "", "_case");
    const proto_field *field;
    for (field = message->fields; field; field = field->next)
        if (field->oneof == oneof)
            put_row(g, name, field, "CHOICE", protoi_join(g->tree, member_name(g, oneof->name), ".", member_name(g, field->name)), count, NULL);
}

static void put_field_row(generator *g, const proto_message *message, const proto_field *field) {
    const char *name = message_name(g, message), *member = member_name(g, field->name);
    if (field->is_map) put_row(g, name, field, "MAP", member, protoi_join(g->tree, field->name, "", "_count"), entry_name(g, message, field));
    else if (field->repeated) put_row(g, name, field, "MANY", member, protoi_join(g->tree, field->name, "", "_count"), NULL);
    else if (field->optional && field->kind != PROTO_MESSAGE) put_row(g, name, field, "OPTIONAL", member, protoi_join(g->tree, "has_", "", field->name), NULL);
    else put_row(g, name, field, "ONE", member, NULL, NULL);
}

// The wire's order: 0 single values, optional ones and oneofs; 1 repeated ones; 2 messages and maps.
static int wire_group(const proto_field *field) {
    if (field->is_map) return 2;
    if (field->repeated) return 1;
    return field->kind == PROTO_MESSAGE && !field->oneof ? 2 : 0;
}

static void put_entry_table(generator *g, const proto_message *message, const proto_field *field) {
    const char *name = entry_name(g, message, field);
    proto_field key;
    memset(&key, 0, sizeof key);
    key.name = "key";
    key.number = 1;
    key.kind = field->key;
    PUT(&g->out, "static const frisbee_field ", name, "_fields[] = {\n");
    put_row(g, name, &key, "ONE", "key", NULL, NULL);
    key = *field;
    key.name = "value";
    key.number = 2;
    put_row(g, name, &key, "ONE", "value", NULL, NULL);
    PUT(&g->out, "};\nstatic const frisbee_type ", name, "_type = {\"", name, "\", ", name, "_fields, 2, (uint32_t)sizeof(", name, ")};\n\n");
}

static void put_message_table(generator *g, const proto_message *message) {
    const char *name = message_name(g, message);
    const proto_message *nested;
    const proto_field *field;
    uint32_t count = 0;
    char number[24];
    int group;
    for (field = message->fields; field; field = field->next, count++)
        if (field->is_map) put_entry_table(g, message, field);
    if (count) {
        PUT(&g->out, "static const frisbee_field ", name, "_fields[] = {\n");
        for (group = 0; group < 3; group++)
            for (field = message->fields; field; field = field->next) {
                if (wire_group(field) != group) continue;
                if (!field->oneof) put_field_row(g, message, field);
                else if (is_first_of_oneof(message, field)) put_oneof_rows(g, message, field->oneof);
            }
        text_put(&g->out, "};\n");
    }
    PUT(&g->out, "const frisbee_type ", name, "_type = {\"", message->full_name, "\", ", count ? name : "NULL", count ? "_fields" : "", ", ",
        number_text(number, count), ", (uint32_t)sizeof(", name, ")};\n\n");
    for (nested = message->messages; nested; nested = nested->next) put_message_table(g, nested);
}

// ---- services

static const char *service_typed(const generator *g, const proto_service *service, const proto_method *method) {
    return protoi_join(g->tree, service_name(g, service), "_", method->name);
}

static void put_functions(generator *g, const proto_service *service) {
    const char *name = service_name(g, service);
    const proto_method *method;
    put_above(&g->out, "", &service->comment, service->deprecated);
    PUT(&g->out, "typedef struct ", name, "_functions {");
    put_behind(&g->out, &service->comment);
    for (method = service->methods; method; method = method->next) {
        put_above(&g->out, "    ", &method->comment, method->deprecated);
        if (method->client_streams) put_comment(&g->out, "    ", "request NULL: the client has sent its last message.");
        PUT(&g->out, "    void (*", member_name(g, method->name), ")(frisbee_pool *pool, const frisbee_rpc *rpc, const ",
            message_name(g, method->request), " *request, void *user);");
        put_behind(&g->out, &method->comment);
    }
    if (!service->methods) text_put(&g->out, "    char unused_; // it has no methods\n");
    PUT(&g->out, "} ", name, "_functions;\n");
}

static void put_call(generator *g, const proto_service *service, const proto_method *method, const char *at) {
    const char *name = service_typed(g, service, method), *methods = protoi_join(g->tree, service_name(g, service), "", "_methods");
    const char *request = message_name(g, method->request), *response = message_name(g, method->response);
    text *out = &g->out;
    PUT(out, "typedef void (*", name, "_done)(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome,\n    const ", response,
        " *response, void *user);\n");
    PUT(out, "static inline frisbee_result ", name, "(frisbee_pool *pool, frisbee_conn conn, ");
    if (!method->client_streams) PUT(out, "const ", request, " *request, ");
    PUT(out, "const frisbee_rpc_desc *desc,\n    ", name, "_done done, void *user, frisbee_rpc *rpc) {\n    return frisbee_rpc_call(pool, conn, &", methods,
        "[", at, "], ", method->client_streams ? "NULL" : "request", ", desc, (void (*)(void))done, user, rpc);\n}\n");
    if (!method->client_streams && !method->server_streams)
        PUT(out, "static inline frisbee_result ", name, "_wait(frisbee_pool *pool, frisbee_conn conn, const ", request, " *request, int32_t timeout_ms,\n    ",
            response, " *response, frisbee_rpc_outcome *outcome) {\n    return frisbee_rpc_call_wait(pool, conn, &", methods, "[", at,
            "], request, timeout_ms, response, outcome);\n}\n");
    if (method->client_streams)
        PUT(out, "static inline frisbee_result ", name, "_send(frisbee_pool *pool, const frisbee_rpc *rpc, const ", request,
            " *request) {\n    return frisbee_rpc_send(pool, rpc, request);\n}\n");
    if (method->client_streams || method->server_streams)
        PUT(out, "static inline frisbee_result ", name, "_receive(frisbee_pool *pool, const frisbee_rpc *rpc, int32_t timeout_ms, ", response,
            " *response,\n    frisbee_rpc_outcome *outcome) {\n    return frisbee_rpc_receive(pool, rpc, timeout_ms, response, outcome);\n}\n");
    PUT(out, "static inline frisbee_result ", name, "_reply(frisbee_pool *pool, const frisbee_rpc *rpc, const ", response,
        " *response) {\n    return frisbee_rpc_reply(pool, rpc, response);\n}\n");
}

static uint32_t method_count(const proto_service *service) {
    const proto_method *method;
    uint32_t count = 0;
    for (method = service->methods; method; method = method->next) count++;
    return count;
}

static void put_service(generator *g, const proto_service *service) {
    const char *name = service_name(g, service);
    const proto_method *method;
    char number[24];
    uint32_t at = 0;
    put_functions(g, service);
    PUT(&g->out, "extern const frisbee_service ", name, "_service;\n");
    if (service->methods) PUT(&g->out, "extern const frisbee_method ", name, "_methods[", number_text(number, method_count(service)), "];\n");
    PUT(&g->out, "static inline frisbee_result ", name, "_serve(frisbee_pool *pool, const ", name,
        "_functions *functions, const frisbee_rpc_events *events,\n    void *user) {\n    return frisbee_serve(pool, &", name,
        "_service, functions, events, user);\n}\n\n");
    for (method = service->methods; method; method = method->next) {
        put_comment(&g->out, "", method->comment.leading);
        put_call(g, service, method, number_text(number, at++));
        text_put(&g->out, "\n");
    }
}

static void put_service_table(generator *g, const proto_service *service, uint32_t *operation) {
    const char *name = service_name(g, service);
    const proto_method *method;
    char number[24];
    for (method = service->methods; method; method = method->next) {
        const char *typed = service_typed(g, service, method), *function = member_name(g, method->name);
        PUT(&g->out, "static void ", typed, "_serve_one(frisbee_pool *pool, const frisbee_rpc *rpc, const void *request, const void *functions, void *user) {\n",
            "    const ", name, "_functions *own = (const ", name, "_functions *)functions;\n    if (own->", function, ") own->", function,
            "(pool, rpc, (const ", message_name(g, method->request), " *)request, user);\n",
            "    else (void)frisbee_rpc_fail(pool, rpc, \"not implemented\");\n}\n");
        PUT(&g->out, "static void ", typed, "_deliver_one(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const void *response,\n",
            "    void (*done)(void), void *user) {\n    ((", typed, "_done)done)(pool, rpc, outcome, (const ", message_name(g, method->response),
            " *)response, user);\n}\n");
    }
    if (service->methods) PUT(&g->out, "const frisbee_method ", name, "_methods[", number_text(number, method_count(service)), "] = {\n");
    for (method = service->methods; method; method = method->next) {
        const char *typed = service_typed(g, service, method);
        PUT(&g->out, "    {\"", method->name, "\", &", message_name(g, method->request), "_type, &", message_name(g, method->response), "_type, ",
            number_text(number, (*operation)++), ", ", method->client_streams ? "true" : "false", ", ", method->server_streams ? "true" : "false", ", ",
            typed, "_serve_one, ", typed, "_deliver_one}", method->next ? ",\n" : "};\n");
    }
    PUT(&g->out, "const frisbee_service ", name, "_service = {\"", service->full_name, "\", ", service->methods ? name : "NULL",
        service->methods ? "_methods" : "", ", ", number_text(number, method_count(service)), "};\n\n");
}

// ---- a file

static const char *header_path(proto_tree *tree, const char *path) { // a/b.proto: a/b.frpc.h
    const size_t length = strlen(path);
    const bool has = length > 6 && strcmp(path + length - 6, ".proto") == 0;
    return protoi_join(tree, protoi_copy(tree, path, has ? length - 6 : length), "", ".frpc.h");
}

static const char *guard_of(proto_tree *tree, const char *path) {
    char *guard = protoi_copy(tree, path, strlen(path)), *at;
    for (at = guard; *at; at++) {
        if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 32);
        else if (!protoi_is_letter(*at) && !protoi_is_digit(*at)) *at = '_';
    }
    return protoi_join(tree, "FRPC", "_", guard);
}

static bool fields_use(const proto_message *message, const proto_file *file) {
    const proto_field *field;
    const proto_message *nested;
    for (field = message->fields; field; field = field->next)
        if ((field->message && field->message->file == file) || (field->enumeration && field->enumeration->file == file)) return true;
    for (nested = message->messages; nested; nested = nested->next)
        if (fields_use(nested, file)) return true;
    return false;
}

static bool file_uses(const proto_file *file, const proto_file *other) {
    const proto_message *message;
    const proto_service *service;
    const proto_method *method;
    for (message = file->messages; message; message = message->next)
        if (fields_use(message, other)) return true;
    for (service = file->services; service; service = service->next)
        for (method = service->methods; method; method = method->next)
            if (method->request->file == other || method->response->file == other) return true;
    return false;
}

static void put_head(generator *g, const char *path, const char *guard) {
    const proto_service *service;
    const proto_method *method;
    const proto_file *other;
    uint32_t operation = g->set->operation;
    char number[24];
    PUT(&g->out, "// ", path, " - written by frpc from ", g->file->path, ": do not edit it, run frpc again.\n//\n// In one source file: #define FRPC_IMPLEMENTATION before it is included.\n");
    for (service = g->file->services; service; service = service->next)
        for (method = service->methods; method; method = method->next) {
            if (operation == g->set->operation) text_put(&g->out, "//\n// Operations. Another order of methods changes them, and so the wire:\n");
            PUT(&g->out, "//     ", number_text(number, operation++), " ", service->full_name, ".", method->name, method->client_streams ? ", client streams" : "",
                method->server_streams ? ", server streams" : "", "\n");
        }
    PUT(&g->out, "#ifndef ", guard, "\n#define ", guard, "\n#include \"", g->set->header, "\"\n");
    for (other = proto_files(g->tree); other; other = other->next)
        if (other != g->file && file_uses(g->file, other)) PUT(&g->out, "#include \"", header_path(g->tree, other->path), "\"\n");
    text_put(&g->out, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    if (g->file->comment.leading) {
        put_comment(&g->out, "", g->file->comment.leading);
        text_put(&g->out, "\n");
    }
}

static void put_file(generator *g) {
    const char *path = header_path(g->tree, g->file->path), *guard = guard_of(g->tree, path);
    const proto_message *message;
    const proto_service *service;
    uint32_t operation = g->set->operation;
    g->out.length = 0;
    put_head(g, path, guard);
    for (message = g->file->messages; message; message = message->next) put_forward(g, message);
    if (g->file->messages) text_put(&g->out, "\n");
    put_enums(g, g->file->enums, g->file->messages);
    for (message = g->file->messages; message; message = message->next) put_struct(g, message);
    for (message = g->file->messages; message; message = message->next) put_codec(g, message);
    for (service = g->file->services; service; service = service->next) put_service(g, service);
    PUT(&g->out, "#ifdef __cplusplus\n}\n#endif\n#endif // ", guard, "\n\n#if defined(FRPC_IMPLEMENTATION) && !defined(", guard, "_IMPLEMENTED)\n#define ", guard,
        "_IMPLEMENTED\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    put_enum_tables(g, g->file->enums, g->file->messages);
    for (message = g->file->messages; message; message = message->next) put_message_table(g, message);
    for (service = g->file->services; service; service = service->next) put_service_table(g, service, &operation);
    text_put(&g->out, "#ifdef __cplusplus\n}\n#endif\n#endif // FRPC_IMPLEMENTATION\n");
}

// ---- writing files

// Makes the directories of a path, but not its last part.
static bool make_directories(const char *path) {
    char *copy = (char *)malloc(strlen(path) + 1), *at;
    bool good = true;
    if (!copy) out_of_memory();
    strcpy(copy, path);
    for (at = copy + 1; *at && good; at++) {
        if (*at != '/') continue;
        *at = '\0';
        good = mkdir(copy, 0777) == 0 || errno == EEXIST;
        *at = '/';
    }
    free(copy);
    return good;
}

static bool write_file(const char *path, const text *content) {
    FILE *file = make_directories(path) ? fopen(path, "wb") : NULL;
    bool good = file && fwrite(content->data, 1, content->length, file) == content->length;
    if (file && fclose(file) != 0) good = false;
    if (!good) fprintf(stderr, "frpc: %s: %s\n", path, strerror(errno));
    return good;
}

// Loads and checks all files, then calls `take` for each one's header. 0 good, 1 errors in files, 2 could not be written.
static int compile(const settings *set, const char *const *paths, uint32_t count, bool (*take)(const settings *, const char *, const text *)) {
    proto_options options;
    generator g;
    uint32_t i;
    int status = 0;
    memset(&g, 0, sizeof g);
    options.include = set->include;
    options.include_count = set->include_count;
    g.set = set;
    g.tree = proto_begin(&options);
    if (!g.tree) out_of_memory();
    g.given = (const proto_file **)proto_alloc(g.tree, (count + 1) * sizeof *g.given);
    for (i = 0; i < count; i++) {
        const proto_file *file = proto_load(g.tree, paths[i]);
        if (file && !is_given(&g, file)) g.given[g.given_count++] = file;
    }
    for (i = 0; i < g.given_count; i++) {
        g.file = g.given[i];
        check_file(&g);
    }
    if (proto_error_count(g.tree)) {
        fputs(proto_errors(g.tree), stderr);
        status = 1;
    }
    for (i = 0; i < g.given_count && status == 0; i++) {
        g.file = g.given[i];
        put_file(&g);
        if (!take(set, header_path(g.tree, g.file->path), &g.out)) status = 2;
    }
    free(g.out.data);
    proto_end(g.tree);
    return status;
}

static bool take_to_disk(const settings *set, const char *path, const text *content) {
    text where;
    bool good;
    memset(&where, 0, sizeof where);
    PUT(&where, set->output, "/", path);
    good = write_file(where.data, content);
    free(where.data);
    return good;
}

// ---- as a plugin of protoc: of its request the names of the files and the parameter are used; the files are read here

static text plugin_answer;

static void put_varint(text *to, uint64_t value) {
    for (; value > 127; value >>= 7) {
        const char byte = (char)(value | 128);
        text_add(to, &byte, 1);
    }
    {
        const char byte = (char)value;
        text_add(to, &byte, 1);
    }
}

static void put_bytes(text *to, uint32_t field, const char *data, size_t length) {
    put_varint(to, (uint64_t)field << 3 | 2);
    put_varint(to, length);
    text_add(to, data, length);
}

static bool take_to_answer(const settings *set, const char *path, const text *content) { // a CodeGeneratorResponse.File
    text file;
    (void)set;
    memset(&file, 0, sizeof file);
    put_bytes(&file, 1, path, strlen(path));
    put_bytes(&file, 15, content->data, content->length);
    put_bytes(&plugin_answer, 15, file.data, file.length);
    free(file.data);
    return true;
}

static bool get_varint(const unsigned char **at, const unsigned char *end, uint64_t *value) {
    int shift;
    *value = 0;
    for (shift = 0; shift < 64 && *at < end; shift += 7) {
        *value |= (uint64_t)(**at & 127) << shift;
        if (*(*at)++ < 128) return true;
    }
    return false;
}

static bool parameter(settings *set, char *option);

// Fields 1 (a file to generate) and 2 (the parameter) of a CodeGeneratorRequest.
static bool plugin_request(settings *set, const unsigned char *at, const unsigned char *end, const char **paths, uint32_t *count) {
    while (at < end) {
        uint64_t tag, length;
        char *string;
        if (!get_varint(&at, end, &tag)) return false;
        if ((tag & 7) == 0) {
            if (!get_varint(&at, end, &length)) return false;
            continue;
        }
        if ((tag & 7) != 2 || !get_varint(&at, end, &length) || length > (uint64_t)(end - at)) return false;
        string = (char *)calloc(1, (size_t)length + 1);
        if (!string) out_of_memory();
        memcpy(string, at, (size_t)length);
        at += length;
        if (tag >> 3 == 1 && *count < 256) paths[(*count)++] = string;
        else if (tag >> 3 == 2) {
            char *option = strtok(string, ",");
            for (; option; option = strtok(NULL, ","))
                if (!parameter(set, option)) return false;
        } else free(string);
    }
    return true;
}

static int plugin(settings *set) {
    static const char *paths[256];
    text input;
    char block[4096];
    size_t got;
    uint32_t count = 0;
    int status;
    memset(&input, 0, sizeof input);
    text_put(&input, "");
    while ((got = fread(block, 1, sizeof block, stdin)) > 0) text_add(&input, block, got);
    if (!plugin_request(set, (const unsigned char *)input.data, (const unsigned char *)input.data + input.length, paths, &count)) {
        fprintf(stderr, "frpc: a request of protoc was expected, with parameters such as I=DIRECTORY,stock\n");
        return 2;
    }
    status = compile(set, paths, count, take_to_answer);
    if (status == 0 && fwrite(plugin_answer.data, 1, plugin_answer.length, stdout) != plugin_answer.length) status = 2;
    free(input.data);
    free(plugin_answer.data);
    return status;
}

// ---- options

static void usage(FILE *to) {
    fprintf(to, "usage: frpc [options] FILE.proto...\n"
                "    -I DIR           where files and imports are looked for (several; without: the current directory)\n"
                "    -o DIR           where FILE.frpc.h goes (the current directory)\n"
                "    --stock          for stock frpc-go peers too: what they cannot read is an error\n"
                "    --prefix P       C names begin with P_ in place of the package\n"
                "    --operation N    the first method's operation (10)\n"
                "    --include PATH   how frisbee.h is included (frisbee.h)\n"
                "    --version, --help\n"
                "Called protoc-gen-frpc it is a plugin of protoc: --frpc_opt=I=DIR,stock,prefix=P,operation=N,include=PATH\n");
}

static bool add_include(settings *set, const char *directory) {
    if (set->include_count == sizeof set->include / sizeof set->include[0]) return false;
    set->include[set->include_count++] = directory;
    return true;
}

static bool set_operation(settings *set, const char *number) {
    char *end;
    const unsigned long value = strtoul(number, &end, 10);
    if (!*number || *end || value < FIRST_OPERATION || value > LAST_OPERATION) return false;
    set->operation = (uint32_t)value;
    return true;
}

static bool set_prefix(settings *set, const char *prefix) {
    const char *at;
    for (at = prefix; *at; at++)
        if (!protoi_is_letter(*at) && (at == prefix || !protoi_is_digit(*at))) return false;
    set->prefix = prefix;
    return true;
}

// NAME or NAME=VALUE, as protoc passes them
static bool parameter(settings *set, char *option) {
    char *value = strchr(option, '=');
    if (value) *value++ = '\0';
    if (!value) return strcmp(option, "stock") == 0 ? (set->stock = true) : false;
    if (strcmp(option, "I") == 0) return add_include(set, value);
    if (strcmp(option, "prefix") == 0) return set_prefix(set, value);
    if (strcmp(option, "operation") == 0) return set_operation(set, value);
    if (strcmp(option, "include") != 0) return false;
    set->header = value;
    return true;
}

// An option with its value; *i moves on if the value is the next argument. False: it is none, or its value makes no sense.
static bool argument(settings *set, int argc, char **argv, int *i) {
    const char *name = argv[*i], *value;
    if (strcmp(name, "--stock") == 0) return set->stock = true;
    if (strncmp(name, "-I", 2) == 0 && name[2]) return add_include(set, name + 2);
    if (strncmp(name, "-o", 2) == 0 && name[2]) {
        set->output = name + 2;
        return true;
    }
    if (*i + 1 >= argc) return false;
    value = argv[++*i];
    if (strcmp(name, "-I") == 0) return add_include(set, value);
    if (strcmp(name, "--prefix") == 0) return set_prefix(set, value);
    if (strcmp(name, "--operation") == 0) return set_operation(set, value);
    if (strcmp(name, "-o") == 0) set->output = value;
    else if (strcmp(name, "--include") == 0) set->header = value;
    else return false;
    return true;
}

int main(int argc, char **argv) {
    const char *own = argc > 0 ? strrchr(argv[0], '/') : NULL, **paths;
    settings set;
    uint32_t count = 0;
    int i, status;
    memset(&set, 0, sizeof set);
    set.output = ".";
    set.header = "frisbee.h";
    set.operation = FIRST_OPERATION;
    own = own ? own + 1 : argc > 0 ? argv[0] : "";
    if (strncmp(own, "protoc-gen-", 11) == 0) return plugin(&set);
    paths = (const char **)calloc((size_t)argc + 1, sizeof *paths);
    if (!paths) out_of_memory();
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--version") == 0) {
            if (argv[i][2] == 'h') usage(stdout);
            else printf("frpc %s\n", FRPC_VERSION);
            free(paths);
            return 0;
        }
        if (argv[i][0] != '-') paths[count++] = argv[i];
        else if (!argument(&set, argc, argv, &i)) {
            fprintf(stderr, "frpc: %s is no option, or has no value that makes sense\n", argv[i]);
            free(paths);
            return 2;
        }
    }
    if (count == 0) usage(stderr);
    status = count ? compile(&set, paths, count, take_to_disk) : 2;
    free(paths);
    return status;
}
