// proto.h - reads proto3 files: the front half of frpc. #define PROTO_IMPLEMENTATION in one translation unit.
//
// proto_load reads a file and all that it imports, checks them, and leaves a tree in which every type is found. All memory is the tree's, and is
// freed with it. Errors are collected as text, `file:line:column: message`, sorted as they are in the files; there is no limit at the first.
#ifndef PROTO_H
#define PROTO_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum proto_kind {
    PROTO_DOUBLE,
    PROTO_FLOAT,
    PROTO_INT32,
    PROTO_INT64,
    PROTO_UINT32,
    PROTO_UINT64,
    PROTO_SINT32,
    PROTO_SINT64,
    PROTO_FIXED32,
    PROTO_FIXED64,
    PROTO_SFIXED32,
    PROTO_SFIXED64,
    PROTO_BOOL,
    PROTO_STRING,
    PROTO_BYTES,
    PROTO_MESSAGE,
    PROTO_ENUM
} proto_kind;

typedef struct proto_file proto_file;
typedef struct proto_message proto_message;
typedef struct proto_enum proto_enum;

// Where something stands: lines and columns from 1, columns in bytes.
typedef struct proto_place { const proto_file *file; uint32_t line, column; } proto_place;

// A comment without its marks, lines separated by \n, none at the end. NULL: there is none.
typedef struct proto_comment {
    const char *leading;  // directly above
    const char *trailing; // behind it on the same line
} proto_comment;

typedef struct proto_oneof {
    const char *name;
    proto_place place;
    proto_comment comment;
    struct proto_oneof *next;
} proto_oneof;

typedef struct proto_field {
    const char *name;
    uint32_t number;
    proto_place place; // of its name
    proto_comment comment;
    proto_kind kind; // of a map: of the values
    const proto_message *message;
    const proto_enum *enumeration;
    bool repeated, optional, is_map, deprecated;
    proto_kind key;           // of a map
    const proto_oneof *oneof; // that it is a member of; NULL: none. Members stand where they were declared
    struct proto_field *next;
} proto_field;

struct proto_message {
    const char *name, *full_name; // full: package.Outer.Inner, without a dot in front
    const proto_file *file;
    proto_place place;
    proto_comment comment;
    const proto_message *parent; // that it is nested in; NULL: none
    proto_field *fields;         // in order of declaration; oneof members too
    proto_oneof *oneofs;
    proto_message *messages;
    proto_enum *enums;
    bool deprecated;
    void *user; // for whom walks the tree
    proto_message *next;
};

typedef struct proto_value {
    const char *name;
    int32_t number;
    proto_place place;
    proto_comment comment;
    bool deprecated;
    struct proto_value *next;
} proto_value;

struct proto_enum {
    const char *name, *full_name;
    const proto_file *file;
    proto_place place;
    proto_comment comment;
    const proto_message *parent;
    proto_value *values; // in order of declaration, aliases too
    bool deprecated;
    void *user;
    proto_enum *next;
};

typedef struct proto_method {
    const char *name;
    proto_place place;
    proto_comment comment;
    const proto_message *request, *response;
    proto_place request_place, response_place;
    bool client_streams, server_streams, deprecated;
    struct proto_method *next;
} proto_method;

typedef struct proto_service {
    const char *name, *full_name;
    proto_place place;
    proto_comment comment;
    proto_method *methods;
    bool deprecated;
    struct proto_service *next;
} proto_service;

typedef struct proto_import {
    proto_file *file; // NULL: could not be read (an error says so), or google/protobuf/descriptor.proto, which only options need
    const char *path;
    bool is_public;
    proto_place place;
    struct proto_import *next;
} proto_import;

struct proto_file {
    const char *path;    // as it was imported or given, relative to its include directory: "google/protobuf/any.proto"
    const char *on_disk; // what was opened; NULL: a well-known file that is built in
    const char *package; // "": none
    proto_comment comment; // above the syntax line: a licence, what the file is about
    proto_import *imports;
    proto_message *messages; // of the top level
    proto_enum *enums;
    proto_service *services;
    void *user;
    proto_file *next; // all files of a tree, in the order in which they were finished: imports before who imports them
};

typedef struct proto_tree proto_tree;

// Where files are looked for, in this order; without any: the current directory. Copied.
typedef struct proto_options {
    const char *const *include;
    uint32_t include_count;
} proto_options;

proto_tree *proto_begin(const proto_options *options); // NULL: no memory
void proto_end(proto_tree *tree);                       // frees it all; NULL is fine

// Loads a file, by its path on disk or below an include directory. NULL: it has errors. Can be called for several files, with one tree.
const proto_file *proto_load(proto_tree *tree, const char *path);

// The same for text that is in memory, known as `path` (fuzzing and tests use it; imports are looked for as usual).
const proto_file *proto_load_text(proto_tree *tree, const char *path, const char *text, size_t length);

// Adds an error, for who checks more than proto_load does. printf's format.
#if defined(__GNUC__) || defined(__clang__)
__attribute__((format(printf, 3, 4)))
#endif
void proto_error(proto_tree *tree, proto_place place, const char *format, ...);

uint32_t proto_error_count(const proto_tree *tree);
const char *proto_errors(proto_tree *tree); // all, a line each, sorted by file, line and column; "" without any

void *proto_alloc(proto_tree *tree, size_t size);                             // zeroed, lives as long as the tree; exits the process with 1 when there is no memory
const char *proto_kind_name(proto_kind kind);                                 // as in a .proto: "sint32"
const proto_file *proto_files(const proto_tree *tree);                        // the first of the list

#ifdef PROTO_IMPLEMENTATION
#ifndef PROTO_IMPLEMENTED
#define PROTO_IMPLEMENTED
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROTOI_DEPTH = 32,              // messages in messages, files in files
    PROTOI_NUMBER_MAX = 536870911,  // 2^29 - 1
    PROTOI_OWN_FIRST = 19000,       // numbers that Protocol Buffers keep for themselves
    PROTOI_OWN_LAST = 19999,
    PROTOI_BLOCK = 65536
};

// ---- memory: blocks that are freed together

typedef struct protoi_block {
    struct protoi_block *next;
    size_t used, room;
} protoi_block;

typedef enum protoi_symbol_kind { PROTOI_MESSAGE, PROTOI_ENUM, PROTOI_OTHER } protoi_symbol_kind;

// A full name that something has: a message, an enum, or another thing that it is not free for.
typedef struct protoi_symbol {
    struct protoi_symbol *next; // in the hash
    const char *name;
    size_t length;
    protoi_symbol_kind kind;
    void *what;
    proto_place place;
} protoi_symbol;

typedef struct protoi_error {
    struct protoi_error *next;
    proto_place place;
    const char *text;
} protoi_error;

// What is known of a file besides the public part.
typedef struct protoi_file {
    proto_file file; // first
    struct protoi_file *met; // the one that was met before it
    uint32_t order;  // of files, by when they were met
    bool loading, failed, foreign; // foreign: proto2, which was not read; only options can need it
    bool misses;                   // something that it imports could not be read: names may be unknown for that
    const char *unread;            // a proto2 file that it imports; NULL: none
} protoi_file;

struct proto_tree {
    protoi_block *blocks;
    const char **include;
    uint32_t include_count, file_count, error_count, depth;
    proto_file *first, *last;
    protoi_file *met; // all, also those that are loading or failed
    protoi_symbol **symbols;
    size_t symbol_count, symbol_room;
    protoi_error *errors;
};

void *proto_alloc(proto_tree *tree, size_t size) {
    protoi_block *block = tree->blocks;
    const size_t rounded = (size + 15u) & ~(size_t)15u;
    void *taken;
    if (!block || block->room - block->used < rounded) {
        const size_t room = rounded > PROTOI_BLOCK ? rounded : PROTOI_BLOCK;
        block = (protoi_block *)calloc(1, sizeof *block + room);
        if (!block) {
            fprintf(stderr, "out of memory\n");
            exit(1);
        }
        block->room = room;
        block->next = tree->blocks;
        tree->blocks = block;
    }
    taken = (char *)(block + 1) + block->used;
    block->used += rounded;
    return taken;
}

static char *protoi_copy(proto_tree *tree, const char *text, size_t length) {
    char *copy = (char *)proto_alloc(tree, length + 1);
    if (length) memcpy(copy, text, length);
    return copy;
}

static char *protoi_join(proto_tree *tree, const char *a, const char *between, const char *b) {
    const size_t la = strlen(a), lm = la ? strlen(between) : 0, lb = strlen(b);
    char *joined = (char *)proto_alloc(tree, la + lm + lb + 1);
    memcpy(joined, a, la);
    memcpy(joined + la, between, lm);
    memcpy(joined + la + lm, b, lb);
    return joined;
}

// ---- errors

void proto_error(proto_tree *tree, proto_place place, const char *format, ...) {
    protoi_error *error = (protoi_error *)proto_alloc(tree, sizeof *error);
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error->place = place;
    error->text = protoi_copy(tree, text, strlen(text));
    error->next = tree->errors;
    tree->errors = error;
    tree->error_count++;
}

uint32_t proto_error_count(const proto_tree *tree) { return tree->error_count; }

static uint32_t protoi_order(const proto_file *file) { return file ? ((const protoi_file *)(const void *)file)->order : 0; }

static int protoi_error_compare(const void *a, const void *b) {
    const protoi_error *x = *(protoi_error *const *)a, *y = *(protoi_error *const *)b;
    const uint32_t xf = protoi_order(x->place.file), yf = protoi_order(y->place.file);
    if (xf != yf) return xf < yf ? -1 : 1;
    if (x->place.line != y->place.line) return x->place.line < y->place.line ? -1 : 1;
    if (x->place.column != y->place.column) return x->place.column < y->place.column ? -1 : 1;
    return strcmp(x->text, y->text);
}

const char *proto_errors(proto_tree *tree) {
    protoi_error **sorted = (protoi_error **)proto_alloc(tree, (tree->error_count + 1) * sizeof *sorted), *error;
    size_t length = 0, count = 0, i;
    char *text, *at;
    for (error = tree->errors; error; error = error->next) {
        sorted[count++] = error;
        length += strlen(error->text) + (error->place.file ? strlen(error->place.file->path) : 0) + 32;
    }
    qsort(sorted, count, sizeof *sorted, protoi_error_compare);
    at = text = (char *)proto_alloc(tree, length + 1);
    for (i = 0; i < count; i++) {
        const proto_place *place = &sorted[i]->place;
        if (i && protoi_error_compare(&sorted[i], &sorted[i - 1]) == 0) continue; // told twice
        if (place->file) at += sprintf(at, "%s:%lu:%lu: ", place->file->path, (unsigned long)place->line, (unsigned long)place->column);
        at += sprintf(at, "%s\n", sorted[i]->text);
    }
    return text;
}

// ---- names

static size_t protoi_hash(const char *name, size_t length) {
    size_t hash = 2166136261u, i;
    for (i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    return hash ^ hash >> 15;
}

static protoi_symbol *protoi_find(const proto_tree *tree, const char *name, size_t length) {
    protoi_symbol *symbol = tree->symbol_room ? tree->symbols[protoi_hash(name, length) & (tree->symbol_room - 1)] : NULL;
    while (symbol && (symbol->length != length || memcmp(symbol->name, name, length) != 0)) symbol = symbol->next;
    return symbol;
}

static void protoi_symbols_grow(proto_tree *tree) {
    const size_t room = tree->symbol_room ? tree->symbol_room * 2 : 1024;
    protoi_symbol **grown = (protoi_symbol **)proto_alloc(tree, room * sizeof *grown);
    size_t i;
    for (i = 0; i < tree->symbol_room; i++)
        while (tree->symbols[i]) {
            protoi_symbol *symbol = tree->symbols[i], **at = &grown[protoi_hash(symbol->name, symbol->length) & (room - 1)];
            tree->symbols[i] = symbol->next;
            symbol->next = *at;
            *at = symbol;
        }
    tree->symbols = grown;
    tree->symbol_room = room;
}

// Gives a name to something. False: it is taken, which has been told.
static bool protoi_declare(proto_tree *tree, const char *full_name, protoi_symbol_kind kind, void *what, proto_place place) {
    const size_t length = strlen(full_name);
    protoi_symbol *symbol = protoi_find(tree, full_name, length), **at;
    if (symbol) {
        proto_error(tree, place, "\"%s\" is already defined, at %s:%lu:%lu", full_name, symbol->place.file->path, (unsigned long)symbol->place.line,
                    (unsigned long)symbol->place.column);
        return false;
    }
    if (tree->symbol_count >= tree->symbol_room) protoi_symbols_grow(tree);
    symbol = (protoi_symbol *)proto_alloc(tree, sizeof *symbol);
    symbol->name = full_name;
    symbol->length = length;
    symbol->kind = kind;
    symbol->what = what;
    symbol->place = place;
    at = &tree->symbols[protoi_hash(full_name, length) & (tree->symbol_room - 1)];
    symbol->next = *at;
    *at = symbol;
    tree->symbol_count++;
    return true;
}

// ---- tokens

typedef enum protoi_kind { PROTOI_END, PROTOI_NAME, PROTOI_INTEGER, PROTOI_FLOAT, PROTOI_STRING, PROTOI_SYMBOL } protoi_kind;

typedef struct protoi_token {
    protoi_kind kind;
    const char *text; // in the file; of a string with its quotes
    size_t length;
    proto_place place;
    uint64_t value;      // of an integer
    const char *leading; // comment above it
} protoi_token;

typedef struct protoi_parser {
    proto_tree *tree;
    protoi_file *file;
    const char *at, *begin, *end, *line_start;
    uint32_t line;
    protoi_token token;   // the next one
    const char *trailing; // comment behind the one before it, on its line
    uint32_t ended;       // line where the one before it ended
    bool broken;          // a token was an error: told already
} protoi_parser;

static proto_place protoi_here(const protoi_parser *parser, const char *at) {
    proto_place place;
    place.file = &parser->file->file;
    place.line = parser->line;
    place.column = (uint32_t)(at - parser->line_start) + 1;
    return place;
}

static bool protoi_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool protoi_is_digit(char c) { return c >= '0' && c <= '9'; }

static int protoi_digit(char c) { // of any base up to 16; -1: none
    if (protoi_is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static char protoi_peek(const protoi_parser *parser, size_t ahead) {
    return (size_t)(parser->end - parser->at) > ahead ? parser->at[ahead] : '\0';
}

// A line of a comment, without its marks and the spaces around it, is added to what there is of it.
static char *protoi_comment_line(char *to, const char *from, const char *end, bool stars) {
    if (stars) {
        const char *star = from;
        while (star < end && (*star == ' ' || *star == '\t')) star++;
        if (star < end && *star == '*') from = star + 1;
        else from = star;
    }
    if (from < end && *from == ' ') from++;
    while (end > from && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
    memcpy(to, from, (size_t)(end - from));
    return to + (end - from);
}

static const char *protoi_comment_text(proto_tree *tree, const char *from, const char *end, bool block, const char *before) {
    const size_t had = before ? strlen(before) : 0;
    char *text = (char *)proto_alloc(tree, had + (size_t)(end - from) + 2), *to = text + had;
    bool first = true;
    if (had) {
        memcpy(text, before, had);
        *to++ = '\n';
    }
    while (from <= end) {
        const char *line = (const char *)memchr(from, '\n', (size_t)(end - from));
        if (!line) line = end;
        if (!first) *to++ = '\n';
        to = protoi_comment_line(to, from, line, block && !first);
        first = false;
        from = line + 1;
    }
    while (to > text && to[-1] == '\n') *--to = '\0'; // the last line of a block comment is often empty
    while (*text == '\n') text++;
    *to = '\0';
    return *text ? text : NULL;
}

// Skips spaces and comments. *leading: what stands directly above the next token; parser->trailing: behind the one before, on its line.
static void protoi_space(protoi_parser *parser, const char **leading) {
    uint32_t comment_end = 0;
    *leading = NULL;
    parser->trailing = NULL;
    while (parser->at < parser->end) {
        const char *start = parser->at, *stop;
        const uint32_t start_line = parser->line;
        const bool block = protoi_peek(parser, 1) == '*';
        if (*start == '\n') {
            parser->line++;
            parser->line_start = ++parser->at;
            continue;
        }
        if (*start == ' ' || *start == '\t' || *start == '\r' || *start == '\v' || *start == '\f') {
            parser->at++;
            continue;
        }
        if (*start != '/' || (!block && protoi_peek(parser, 1) != '/')) break;
        parser->at += 2;
        while (parser->at < parser->end && (block ? !(*parser->at == '*' && protoi_peek(parser, 1) == '/') : *parser->at != '\n')) {
            if (*parser->at++ != '\n') continue;
            parser->line++;
            parser->line_start = parser->at;
        }
        stop = parser->at;
        if (block && parser->at == parser->end) {
            proto_place place = protoi_here(parser, start);
            place.line = start_line;
            if (start_line != parser->line) {
                const char *line = start;
                while (line > parser->begin && line[-1] != '\n') line--;
                place.column = (uint32_t)(start - line) + 1;
            }
            proto_error(parser->tree, place, "a comment has no end");
            parser->broken = true;
        } else if (block) parser->at += 2;
        if (start_line == parser->ended && !comment_end) {
            parser->trailing = protoi_comment_text(parser->tree, start + 2, stop, block, parser->trailing);
            continue;
        }
        if (comment_end && start_line > comment_end + 1) *leading = NULL; // it stands apart
        *leading = protoi_comment_text(parser->tree, start + 2, stop, block, *leading);
        comment_end = parser->line;
    }
    if (comment_end && parser->line > comment_end + 1) *leading = NULL;
}

static void protoi_string(protoi_parser *parser, char quote) {
    const proto_place place = protoi_here(parser, parser->at);
    parser->at++;
    while (parser->at < parser->end && *parser->at != quote && *parser->at != '\n') parser->at += *parser->at == '\\' && protoi_peek(parser, 1) != '\n' ? 2 : 1;
    if (parser->at < parser->end && *parser->at == quote) parser->at++;
    else {
        if (parser->at > parser->end) parser->at = parser->end;
        proto_error(parser->tree, place, "a string has no end on its line");
        parser->broken = true;
    }
}

static void protoi_integer(protoi_parser *parser, protoi_token *token, int base, const char *digits) {
    bool over = false;
    for (; digits < parser->at; digits++) {
        const int digit = protoi_digit(*digits);
        if (digit < 0 || digit >= base) {
            proto_error(parser->tree, token->place, "%.*s is no number", (int)(parser->at - token->text), token->text);
            parser->broken = true;
            return;
        }
        over = over || token->value > (UINT64_MAX - (uint64_t)digit) / (uint64_t)base;
        token->value = token->value * (uint64_t)base + (uint64_t)digit;
    }
    if (!over) return;
    proto_error(parser->tree, token->place, "%.*s is too large", (int)(parser->at - token->text), token->text);
    parser->broken = true;
}

// Numbers are whatever begins with a digit: what does not make sense is told as a whole.
static void protoi_number(protoi_parser *parser, protoi_token *token) {
    const bool hex = *parser->at == '0' && (protoi_peek(parser, 1) | 32) == 'x';
    token->kind = PROTOI_INTEGER;
    while (parser->at < parser->end) {
        const char c = *parser->at;
        if (c == '.' || (!hex && (c == '+' || c == '-') && (parser->at[-1] | 32) == 'e')) token->kind = PROTOI_FLOAT;
        else if (!protoi_is_letter(c) && !protoi_is_digit(c)) break;
        if (!hex && (c | 32) == 'e') token->kind = PROTOI_FLOAT;
        parser->at++;
    }
    if (token->kind == PROTOI_INTEGER && hex && parser->at - token->text > 2) protoi_integer(parser, token, 16, token->text + 2);
    else if (token->kind == PROTOI_INTEGER) protoi_integer(parser, token, *token->text == '0' ? 8 : 10, token->text);
    else {
        char number[64], *stop = number;
        const size_t length = (size_t)(parser->at - token->text);
        if (length < sizeof number) {
            memcpy(number, token->text, length);
            number[length] = '\0';
            (void)strtod(number, &stop);
            if ((*stop | 32) == 'f') stop++;
        }
        if (length < sizeof number && !*stop) return;
        proto_error(parser->tree, token->place, "%.*s is no number", (int)(length > 100 ? 100 : length), token->text);
        parser->broken = true;
    }
}

static void protoi_next(protoi_parser *parser) {
    protoi_token *token = &parser->token;
    char c;
    parser->ended = parser->line;
    protoi_space(parser, &token->leading);
    token->text = parser->at;
    token->place = protoi_here(parser, parser->at);
    token->value = 0;
    token->length = 0;
    token->kind = PROTOI_END;
    if (parser->at == parser->end) return;
    c = *parser->at;
    if (protoi_is_letter(c)) {
        token->kind = PROTOI_NAME;
        while (parser->at < parser->end && (protoi_is_letter(*parser->at) || protoi_is_digit(*parser->at))) parser->at++;
    } else if (protoi_is_digit(c) || (c == '.' && protoi_is_digit(protoi_peek(parser, 1)))) protoi_number(parser, token);
    else if (c == '"' || c == '\'') {
        token->kind = PROTOI_STRING;
        protoi_string(parser, c);
    } else {
        token->kind = PROTOI_SYMBOL;
        parser->at++;
        while (((unsigned char)c & 0xC0) == 0xC0 && parser->at < parser->end && ((unsigned char)*parser->at & 0xC0) == 0x80) parser->at++; // UTF-8
    }
    token->length = (size_t)(parser->at - token->text);
}

static bool protoi_is(const protoi_parser *parser, const char *text) {
    const protoi_token *token = &parser->token;
    const size_t length = strlen(text);
    return (token->kind == PROTOI_NAME || token->kind == PROTOI_SYMBOL) && token->length == length && memcmp(token->text, text, length) == 0;
}

static bool protoi_take(protoi_parser *parser, const char *text) {
    if (!protoi_is(parser, text)) return false;
    protoi_next(parser);
    return true;
}

static bool protoi_expected(protoi_parser *parser, const char *what) { // always false, for whom it fails
    const protoi_token *token = &parser->token;
    if (parser->broken) parser->broken = false; // the token itself was told
    else if (token->kind == PROTOI_END) proto_error(parser->tree, token->place, "expected %s, found the end of the file", what);
    else if ((unsigned char)*token->text < 32 || *token->text == 127)
        proto_error(parser->tree, token->place, "expected %s, found the byte 0x%02x", what, (unsigned)(unsigned char)*token->text);
    else proto_error(parser->tree, token->place, "expected %s, found '%.*s'", what, (int)(token->length > 60 ? 60 : token->length), token->text);
    return false;
}

static bool protoi_need(protoi_parser *parser, const char *text) {
    char what[16];
    if (protoi_take(parser, text)) return true;
    snprintf(what, sizeof what, "'%s'", text);
    return protoi_expected(parser, what);
}

static const char *protoi_name(protoi_parser *parser, const char *what) {
    const char *name;
    if (parser->token.kind != PROTOI_NAME) {
        (void)protoi_expected(parser, what);
        return NULL;
    }
    name = protoi_copy(parser->tree, parser->token.text, parser->token.length);
    protoi_next(parser);
    return name;
}

// a.b.c, with a dot in front if `dot` allows it
static const char *protoi_dotted(protoi_parser *parser, const char *what, bool dot) {
    const char *text = "", *part;
    bool first = true;
    if (dot && protoi_is(parser, ".")) {
        text = ".";
        protoi_next(parser);
    }
    do {
        part = protoi_name(parser, first ? what : "a name");
        if (!part) return NULL;
        text = first ? protoi_join(parser->tree, text, "", part) : protoi_join(parser->tree, text, ".", part);
        if (strlen(text) > 4096) {
            proto_error(parser->tree, parser->token.place, "a name is too long");
            return NULL;
        }
        first = false;
    } while (protoi_take(parser, "."));
    return text;
}

static char *protoi_utf8(char *to, uint32_t c) {
    if (c < 0x80) *to++ = (char)c;
    else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

// An escape behind its backslash. NULL: there is no such.
static const char *protoi_escape(const char *at, const char *end, char **to) {
    static const char from[] = "abfnrtv\\'\"?", into[] = "\a\b\f\n\r\t\v\\'\"?";
    const char *simple = at < end ? strchr(from, *at) : NULL;
    uint32_t value = 0;
    int most, base = 16, count = 0;
    if (simple && *simple) {
        *(*to)++ = into[simple - from];
        return at + 1;
    }
    if (at == end) return NULL;
    most = *at == 'x' || *at == 'X' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 3;
    if (most == 3) base = 8;
    else at++;
    for (; count < most && at < end && protoi_digit(*at) >= 0 && protoi_digit(*at) < base; count++) value = value * (uint32_t)base + (uint32_t)protoi_digit(*at++);
    if (count == 0 || (most > 3 && count < most) || (most <= 3 ? value > 255 : value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))) return NULL;
    if (most > 3) *to = protoi_utf8(*to, value);
    else *(*to)++ = (char)value;
    return at;
}

// One string, or several that stand one behind the other. NULL: there is none, or it is malformed, which was told.
static const char *protoi_text(protoi_parser *parser, const char *what) {
    const char *text = NULL;
    if (parser->token.kind != PROTOI_STRING) {
        (void)protoi_expected(parser, what);
        return NULL;
    }
    while (parser->token.kind == PROTOI_STRING) {
        const protoi_token *token = &parser->token;
        const char *at = token->text + 1, *end = token->text + token->length - 1;
        char *part = (char *)proto_alloc(parser->tree, token->length + 8), *to = part;
        if (parser->broken) {
            parser->broken = false;
            return NULL;
        }
        while (at && at < end) {
            if (*at != '\\') *to++ = *at++;
            else at = protoi_escape(at + 1, end, &to);
        }
        if (!at || strlen(part) != (size_t)(to - part)) {
            proto_error(parser->tree, token->place, at ? "a string with a zero byte" : "an escape that strings do not have");
            return NULL;
        }
        text = text ? protoi_join(parser->tree, text, "", part) : part;
        protoi_next(parser);
    }
    return text;
}

// Skips the rest of a statement: to its ';', or behind its block, but not past the '}' of the block around it.
static void protoi_skip(protoi_parser *parser) {
    uint32_t depth = 0;
    parser->broken = false;
    while (parser->token.kind != PROTOI_END) {
        const bool opens = protoi_is(parser, "{"), closes = protoi_is(parser, "}");
        if (closes && depth == 0) return;
        if (opens) depth++;
        if (closes) depth--;
        parser->broken = false;
        if (depth == 0 && (closes || protoi_is(parser, ";"))) {
            protoi_next(parser);
            (void)protoi_take(parser, ";");
            return;
        }
        protoi_next(parser);
    }
}

// ---- options: the few that matter are looked at, the values of all others are skipped

typedef struct protoi_options {
    bool deprecated, allow_alias, has_default, has_json_name;
    proto_place place; // of default, or allow_alias
    const char *json_name;
} protoi_options;

// { ... } or [ ... ] with whatever text format has inside
static bool protoi_skip_aggregate(protoi_parser *parser) {
    uint32_t depth = 0;
    const proto_place place = parser->token.place;
    do {
        if (parser->token.kind == PROTOI_END) {
            proto_error(parser->tree, place, "a value in braces has no end");
            return false;
        }
        if (parser->broken) return protoi_expected(parser, "a value");
        if (protoi_is(parser, "{") || protoi_is(parser, "[")) depth++;
        else if (protoi_is(parser, "}") || protoi_is(parser, "]")) depth--;
        protoi_next(parser);
    } while (depth);
    return true;
}

static bool protoi_option_value(protoi_parser *parser, bool *truth, const char **string) {
    *string = NULL;
    *truth = protoi_is(parser, "true");
    if (protoi_is(parser, "{") || protoi_is(parser, "[")) return protoi_skip_aggregate(parser);
    if (parser->token.kind == PROTOI_STRING) {
        *string = protoi_text(parser, "a string");
        return *string != NULL;
    }
    if (protoi_take(parser, "-") || protoi_take(parser, "+")) {
        if (parser->token.kind != PROTOI_INTEGER && parser->token.kind != PROTOI_FLOAT && !protoi_is(parser, "inf") && !protoi_is(parser, "nan"))
            return protoi_expected(parser, "a number");
    } else if (parser->token.kind != PROTOI_INTEGER && parser->token.kind != PROTOI_FLOAT && parser->token.kind != PROTOI_NAME)
        return protoi_expected(parser, "a value");
    if (parser->broken) return protoi_expected(parser, "a value");
    protoi_next(parser);
    return true;
}

// NAME = VALUE, where NAME may have parts in parentheses
static bool protoi_option(protoi_parser *parser, protoi_options *options) {
    const proto_place place = parser->token.place;
    const char *name = NULL, *string;
    uint32_t parts = 0;
    bool truth, is_bool;
    do {
        if (protoi_take(parser, "(")) {
            if (!protoi_dotted(parser, "the name of an option", true) || !protoi_need(parser, ")")) return false;
        } else {
            const char *part = protoi_name(parser, "the name of an option");
            if (!part) return false;
            if (parts == 0) name = part;
        }
        parts++;
    } while (protoi_take(parser, "."));
    if (parts > 1) name = NULL;
    if (!protoi_need(parser, "=")) return false;
    is_bool = protoi_is(parser, "true") || protoi_is(parser, "false");
    if (!protoi_option_value(parser, &truth, &string)) return false;
    if (!name || !options) return true;
    if ((strcmp(name, "deprecated") == 0 || strcmp(name, "allow_alias") == 0) && !is_bool) {
        proto_error(parser->tree, place, "%s is true or false", name);
        return true;
    }
    if (strcmp(name, "deprecated") == 0) options->deprecated = truth;
    if (strcmp(name, "allow_alias") == 0) options->allow_alias = truth;
    if (strcmp(name, "default") == 0) options->has_default = true;
    if (strcmp(name, "json_name") == 0 && string) options->json_name = string;
    if (strcmp(name, "default") == 0 || strcmp(name, "allow_alias") == 0) options->place = place;
    return true;
}

// option NAME = VALUE;
static bool protoi_option_statement(protoi_parser *parser, protoi_options *options) {
    protoi_next(parser);
    return protoi_option(parser, options) && protoi_need(parser, ";");
}

// [NAME = VALUE, ...] behind a field or an enum's value, if there is one
static bool protoi_option_list(protoi_parser *parser, protoi_options *options) {
    memset(options, 0, sizeof *options);
    if (!protoi_take(parser, "[")) return true;
    do
        if (!protoi_option(parser, options)) return false;
    while (protoi_take(parser, ","));
    return protoi_need(parser, "]");
}

// ---- reserved numbers and names

typedef struct protoi_range {
    int64_t first, last;
    proto_place place;
    struct protoi_range *next;
} protoi_range;

typedef struct protoi_word {
    const char *text;
    proto_place place;
    struct protoi_word *next;
} protoi_word;

// What a message or an enum was told, for the checks at its end.
typedef struct protoi_scope {
    protoi_range *ranges;
    protoi_word *words;
    uint32_t range_count;
    protoi_options options;
} protoi_scope;

static bool protoi_signed(protoi_parser *parser, const char *what, int64_t least, int64_t most, int64_t *value) {
    const bool negative = protoi_is(parser, "-");
    const proto_place place = parser->token.place;
    if (negative) protoi_next(parser);
    if (parser->token.kind != PROTOI_INTEGER || parser->broken) return protoi_expected(parser, what);
    if (parser->token.value > INT32_MAX + (uint64_t)1) *value = INT64_MAX;
    else *value = negative ? -(int64_t)parser->token.value : (int64_t)parser->token.value;
    if (*value < least || *value > most) {
        proto_error(parser->tree, place, "%s%.*s is out of range: it is from %ld to %ld", negative ? "-" : "", (int)parser->token.length,
                    parser->token.text, (long)least, (long)most);
        *value = INT64_MAX; // out of range is as good as none
    }
    protoi_next(parser);
    return true;
}

static bool protoi_reserved(protoi_parser *parser, protoi_scope *scope, bool is_enum) {
    const int64_t least = is_enum ? INT32_MIN : 1, most = is_enum ? INT32_MAX : PROTOI_NUMBER_MAX;
    protoi_next(parser);
    do {
        const proto_place place = parser->token.place;
        if (parser->token.kind == PROTOI_STRING) {
            protoi_word *word = (protoi_word *)proto_alloc(parser->tree, sizeof *word);
            word->text = protoi_text(parser, "a name");
            if (!word->text) return false;
            word->place = place;
            word->next = scope->words;
            scope->words = word;
        } else {
            protoi_range *range = (protoi_range *)proto_alloc(parser->tree, sizeof *range);
            if (!protoi_signed(parser, "a number or a name in quotes", least, most, &range->first)) return false;
            range->last = range->first;
            if (protoi_take(parser, "to")) {
                if (protoi_take(parser, "max")) range->last = most;
                else if (!protoi_signed(parser, "a number or max", least, most, &range->last)) return false;
            }
            if (range->first == INT64_MAX || range->last == INT64_MAX) continue;
            range->place = place;
            if (range->last < range->first) {
                proto_error(parser->tree, place, "a reserved range ends before it begins");
                continue;
            }
            range->next = scope->ranges;
            scope->ranges = range;
            scope->range_count++;
        }
    } while (protoi_take(parser, ","));
    return protoi_need(parser, ";");
}

static int protoi_range_compare(const void *a, const void *b) {
    const protoi_range *x = *(protoi_range *const *)a, *y = *(protoi_range *const *)b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->place.line != y->place.line ? (x->place.line < y->place.line ? -1 : 1) : x->place.column < y->place.column ? -1 : 1;
}

static protoi_range **protoi_ranges_sorted(proto_tree *tree, const protoi_scope *scope) {
    protoi_range **sorted = (protoi_range **)proto_alloc(tree, (scope->range_count + 1) * sizeof *sorted), *range;
    uint32_t count = 0, i;
    for (range = scope->ranges; range; range = range->next) sorted[count++] = range;
    qsort(sorted, count, sizeof *sorted, protoi_range_compare);
    for (i = 1; i < count; i++)
        if (sorted[i]->first <= sorted[i - 1]->last)
            proto_error(tree, sorted[i]->place, "a reserved range overlaps the one at line %lu", (unsigned long)sorted[i - 1]->place.line);
    return sorted;
}

static const protoi_range *protoi_range_of(protoi_range *const *sorted, uint32_t count, int64_t number) {
    uint32_t low = 0, high = count;
    while (low < high) { // the first that begins behind the number
        const uint32_t middle = low + (high - low) / 2;
        if (sorted[middle]->first <= number) low = middle + 1;
        else high = middle;
    }
    return low && sorted[low - 1]->last >= number ? sorted[low - 1] : NULL;
}

// Numbers and names that a check sorts to find equal ones.
typedef struct protoi_item {
    const char *name;
    const void *what;
    int64_t number;
    proto_place place;
} protoi_item;

static int protoi_place_compare(const proto_place *x, const proto_place *y) {
    if (x->line != y->line) return x->line < y->line ? -1 : 1;
    return x->column == y->column ? 0 : x->column < y->column ? -1 : 1;
}

static int protoi_by_number(const void *a, const void *b) {
    const protoi_item *x = (const protoi_item *)a, *y = (const protoi_item *)b;
    return x->number != y->number ? (x->number < y->number ? -1 : 1) : protoi_place_compare(&x->place, &y->place);
}

static int protoi_by_name(const void *a, const void *b) {
    const protoi_item *x = (const protoi_item *)a, *y = (const protoi_item *)b;
    const int order = strcmp(x->name, y->name);
    return order ? order : protoi_place_compare(&x->place, &y->place);
}

// Reserved names that are declared twice, or in use. `items` are sorted by name.
static void protoi_check_words(proto_tree *tree, const protoi_scope *scope, const protoi_item *items, uint32_t count, const char *what) {
    const protoi_word *word, *other;
    for (word = scope->words; word; word = word->next) {
        protoi_item key;
        const protoi_item *found;
        uint32_t low = 0, high = count;
        for (other = word->next; other; other = other->next)
            if (strcmp(other->text, word->text) == 0) break;
        if (other) proto_error(tree, word->place, "\"%s\" is reserved already, at line %lu", word->text, (unsigned long)other->place.line);
        key.name = word->text;
        while (low < high) {
            const uint32_t middle = low + (high - low) / 2;
            if (strcmp(items[middle].name, key.name) < 0) low = middle + 1;
            else high = middle;
        }
        found = low < count && strcmp(items[low].name, key.name) == 0 ? &items[low] : NULL;
        if (found) proto_error(tree, found->place, "%s \"%s\" has a reserved name", what, word->text);
    }
}

// ---- fields

static const char *const protoi_kinds[] = {"double",  "float",   "int32",    "int64",    "uint32", "uint64", "sint32",  "sint64", "fixed32",
                                           "fixed64", "sfixed32", "sfixed64", "bool",     "string", "bytes",  "message", "enum"};

const char *proto_kind_name(proto_kind kind) { return protoi_kinds[kind]; }

static bool protoi_scalar(const char *name, proto_kind *kind) {
    int i;
    for (i = 0; i <= (int)PROTO_BYTES; i++)
        if (strcmp(name, protoi_kinds[i]) == 0) {
            *kind = (proto_kind)i;
            return true;
        }
    return false;
}

// While a file is read, a field's type by name; found in protoi_link.
typedef struct protoi_field {
    proto_field field; // first
    const char *type;  // NULL: a scalar
    proto_place type_place;
    const char *json_name;
} protoi_field;

typedef struct protoi_method {
    proto_method method; // first
    const char *request, *response;
} protoi_method;

// ... = NUMBER [OPTIONS];
static bool protoi_field_rest(protoi_parser *parser, protoi_field *field) {
    protoi_options options;
    int64_t number;
    field->field.place = parser->token.place;
    field->field.name = protoi_name(parser, "the name of a field");
    if (!field->field.name || !protoi_need(parser, "=")) return false;
    if (!protoi_signed(parser, "the number of a field", 1, PROTOI_NUMBER_MAX, &number)) return false;
    field->field.number = number == INT64_MAX ? 0 : (uint32_t)number;
    if (number >= PROTOI_OWN_FIRST && number <= PROTOI_OWN_LAST) {
        proto_error(parser->tree, field->field.place, "field numbers from 19000 to 19999 are kept for Protocol Buffers themselves");
        field->field.number = 0;
    }
    if (!protoi_option_list(parser, &options)) return false;
    if (options.has_default) proto_error(parser->tree, options.place, "proto3 has no default values");
    field->field.deprecated = options.deprecated;
    field->json_name = options.json_name;
    if (!protoi_need(parser, ";")) return false;
    field->field.comment.trailing = parser->trailing;
    return true;
}

static bool protoi_field_type(protoi_parser *parser, protoi_field *field) {
    const char *type;
    field->type_place = parser->token.place;
    type = protoi_dotted(parser, "the type of a field", true);
    if (!type) return false;
    if (!protoi_scalar(type, &field->field.kind)) field->type = type;
    return true;
}

static bool protoi_map_type(protoi_parser *parser, protoi_field *field) {
    proto_place place;
    const char *key;
    field->field.is_map = true;
    protoi_next(parser);
    place = parser->token.place;
    key = protoi_dotted(parser, "the type of a map's keys", true);
    if (!key) return false;
    if (!protoi_scalar(key, &field->field.key) || field->field.key == PROTO_DOUBLE || field->field.key == PROTO_FLOAT || field->field.key == PROTO_BYTES)
        proto_error(parser->tree, place, "a map's keys are integers, bool or string, not %s", key);
    return protoi_need(parser, ",") && protoi_field_type(parser, field) && protoi_need(parser, ">");
}

static void protoi_group(protoi_parser *parser, proto_place place) {
    proto_error(parser->tree, place, "proto3 has no groups: use a message");
    protoi_skip(parser);
}

// A field, with what is in front of it. NULL: an error, the statement was skipped.
static protoi_field *protoi_field_statement(protoi_parser *parser, const proto_oneof *oneof) {
    protoi_field *field = (protoi_field *)proto_alloc(parser->tree, sizeof *field);
    const proto_place place = parser->token.place;
    bool good;
    field->field.comment.leading = parser->token.leading;
    field->field.oneof = oneof;
    if (protoi_is(parser, "optional") || protoi_is(parser, "repeated") || protoi_is(parser, "required")) {
        if (oneof) proto_error(parser->tree, place, "a field of a oneof has no label");
        else if (protoi_is(parser, "required")) proto_error(parser->tree, place, "proto3 has no required fields");
        field->field.repeated = !oneof && protoi_is(parser, "repeated");
        field->field.optional = !oneof && protoi_is(parser, "optional");
        protoi_next(parser);
    }
    if (protoi_is(parser, "group")) {
        const char *after = parser->at;
        while (after < parser->end && (*after == ' ' || *after == '\t')) after++;
        if (after < parser->end && *after >= 'A' && *after <= 'Z') {
            protoi_group(parser, place);
            return NULL;
        }
    }
    if (protoi_is(parser, "map")) {
        const proto_place map_place = parser->token.place;
        protoi_next(parser);
        if (!protoi_is(parser, "<")) { // a type of that name
            field->type_place = map_place;
            field->type = "map";
            good = true;
            while (good && protoi_take(parser, ".")) {
                const char *part = protoi_name(parser, "a name");
                good = part != NULL;
                if (good) field->type = protoi_join(parser->tree, field->type, ".", part);
            }
        } else {
            if (oneof) proto_error(parser->tree, map_place, "a oneof has no maps");
            else if (field->field.repeated || field->field.optional) proto_error(parser->tree, place, "a map has no label");
            field->field.repeated = field->field.optional = false;
            good = protoi_map_type(parser, field);
        }
    } else good = protoi_field_type(parser, field);
    if (good && protoi_field_rest(parser, field)) return field;
    protoi_skip(parser);
    return NULL;
}

// ---- enums

static bool protoi_value_statement(protoi_parser *parser, proto_value *value) {
    protoi_options options;
    int64_t number;
    value->comment.leading = parser->token.leading;
    value->place = parser->token.place;
    value->name = protoi_name(parser, "the name of a value");
    if (!value->name || !protoi_need(parser, "=") || !protoi_signed(parser, "the number of a value", INT32_MIN, INT32_MAX, &number)) return false;
    value->number = number == INT64_MAX ? 0 : (int32_t)number;
    if (!protoi_option_list(parser, &options) || !protoi_need(parser, ";")) return false;
    if (number == INT64_MAX) value->name = NULL; // told; it is left out
    value->deprecated = options.deprecated;
    value->comment.trailing = parser->trailing;
    return true;
}

static void protoi_check_enum(proto_tree *tree, proto_enum *enumeration, const protoi_scope *scope, bool tried) {
    protoi_range **ranges = protoi_ranges_sorted(tree, scope);
    const proto_value *value;
    protoi_item *items;
    uint32_t count = 0, i;
    bool alias = false;
    for (value = enumeration->values; value; value = value->next) count++;
    if (count == 0 && !tried) proto_error(tree, enumeration->place, "enum \"%s\" has no values", enumeration->name);
    else if (count && enumeration->values->number != 0)
        proto_error(tree, enumeration->values->place, "the first value of an enum is 0 in proto3, \"%s\" is %ld", enumeration->values->name,
                    (long)enumeration->values->number);
    items = (protoi_item *)proto_alloc(tree, (count + 1) * sizeof *items);
    for (value = enumeration->values, i = 0; value; value = value->next, i++) {
        const protoi_range *range = protoi_range_of(ranges, scope->range_count, value->number);
        items[i].name = value->name;
        items[i].number = value->number;
        items[i].place = value->place;
        if (range) proto_error(tree, value->place, "value \"%s\" has the reserved number %ld", value->name, (long)value->number);
    }
    qsort(items, count, sizeof *items, protoi_by_number);
    for (i = 1; i < count; i++) {
        if (items[i].number != items[i - 1].number) continue;
        alias = true;
        if (!scope->options.allow_alias)
            proto_error(tree, items[i].place, "\"%s\" has the number of \"%s\", %ld; option allow_alias = true would allow it", items[i].name,
                        items[i - 1].name, (long)items[i].number);
    }
    if (scope->options.allow_alias && !alias && count)
        proto_error(tree, scope->options.place, "allow_alias is set, but no two values have the same number");
    qsort(items, count, sizeof *items, protoi_by_name);
    protoi_check_words(tree, scope, items, count, "value");
}

// Names of values are in the scope around the enum, as in C++.
static void protoi_enum(protoi_parser *parser, const char *scope_name, const proto_message *parent, proto_enum ***last) {
    proto_tree *tree = parser->tree;
    proto_enum *enumeration = (proto_enum *)proto_alloc(tree, sizeof *enumeration);
    proto_value **value_last = &enumeration->values;
    protoi_scope scope;
    bool tried = false;
    memset(&scope, 0, sizeof scope);
    enumeration->comment.leading = parser->token.leading;
    protoi_next(parser);
    enumeration->place = parser->token.place;
    enumeration->file = &parser->file->file;
    enumeration->parent = parent;
    enumeration->name = protoi_name(parser, "the name of an enum");
    if (!enumeration->name || !protoi_need(parser, "{")) {
        protoi_skip(parser);
        return;
    }
    enumeration->comment.trailing = parser->trailing;
    enumeration->full_name = protoi_join(tree, scope_name, ".", enumeration->name);
    if (protoi_declare(tree, enumeration->full_name, PROTOI_ENUM, enumeration, enumeration->place)) {
        **last = enumeration;
        *last = &enumeration->next;
    }
    while (!protoi_is(parser, "}") && parser->token.kind != PROTOI_END) {
        bool good = true;
        if (protoi_take(parser, ";")) continue;
        if (protoi_is(parser, "option")) good = protoi_option_statement(parser, &scope.options);
        else if (protoi_is(parser, "reserved") && protoi_peek(parser, 0) != '=' && protoi_peek(parser, 1) != '=') good = protoi_reserved(parser, &scope, true);
        else {
            proto_value *value = (proto_value *)proto_alloc(tree, sizeof *value);
            tried = true;
            good = protoi_value_statement(parser, value);
            if (good && value->name && protoi_declare(tree, protoi_join(tree, scope_name, ".", value->name), PROTOI_OTHER, value, value->place)) {
                *value_last = value;
                value_last = &value->next;
            }
        }
        if (!good) protoi_skip(parser);
    }
    enumeration->deprecated = scope.options.deprecated;
    if (protoi_need(parser, "}")) protoi_check_enum(tree, enumeration, &scope, tried);
}

// ---- messages

static void protoi_extend(protoi_parser *parser) {
    static const char *const extendable[] = {"FileOptions",      "MessageOptions", "FieldOptions",  "OneofOptions",         "EnumOptions",
                                             "EnumValueOptions", "ServiceOptions", "MethodOptions", "ExtensionRangeOptions"};
    static const char package[] = "google.protobuf.";
    proto_place place;
    const char *name;
    bool good = false;
    size_t i;
    protoi_next(parser);
    place = parser->token.place;
    name = protoi_dotted(parser, "what is extended", true);
    if (!name || !protoi_is(parser, "{")) {
        if (name) (void)protoi_need(parser, "{");
        protoi_skip(parser);
        return;
    }
    if (*name == '.') name++;
    for (i = 0; i < sizeof extendable / sizeof extendable[0]; i++)
        good = good || (strncmp(name, package, sizeof package - 1) == 0 && strcmp(name + sizeof package - 1, extendable[i]) == 0);
    if (!good) proto_error(parser->tree, place, "proto3 extends nothing but options (google.protobuf.FieldOptions and so on), not %s", name);
    if (protoi_skip_aggregate(parser)) (void)protoi_take(parser, ";");
}

static void protoi_oneof(protoi_parser *parser, proto_message *message, proto_field ***field_last, proto_oneof ***oneof_last) {
    proto_tree *tree = parser->tree;
    proto_oneof *oneof = (proto_oneof *)proto_alloc(tree, sizeof *oneof);
    bool any = false;
    oneof->comment.leading = parser->token.leading;
    protoi_next(parser);
    oneof->place = parser->token.place;
    oneof->name = protoi_name(parser, "the name of a oneof");
    if (!oneof->name || !protoi_need(parser, "{")) {
        protoi_skip(parser);
        return;
    }
    oneof->comment.trailing = parser->trailing;
    if (protoi_declare(tree, protoi_join(tree, message->full_name, ".", oneof->name), PROTOI_OTHER, oneof, oneof->place)) {
        **oneof_last = oneof;
        *oneof_last = &oneof->next;
    }
    while (!protoi_is(parser, "}") && parser->token.kind != PROTOI_END) {
        protoi_field *field;
        if (protoi_take(parser, ";")) continue;
        if (protoi_is(parser, "option")) {
            if (!protoi_option_statement(parser, NULL)) protoi_skip(parser);
            continue;
        }
        field = protoi_field_statement(parser, oneof);
        any = true;
        if (!field || !protoi_declare(tree, protoi_join(tree, message->full_name, ".", field->field.name), PROTOI_OTHER, field, field->field.place)) continue;
        **field_last = &field->field;
        *field_last = &field->field.next;
    }
    if (!any) proto_error(tree, oneof->place, "oneof \"%s\" has no fields", oneof->name);
    (void)protoi_need(parser, "}");
}

static const char *protoi_json_name(proto_tree *tree, const char *name) {
    char *json = protoi_copy(tree, name, strlen(name)), *to = json;
    bool upper = false;
    for (; *name; name++) {
        if (*name == '_') upper = true;
        else {
            *to++ = (char)(upper && *name >= 'a' && *name <= 'z' ? *name - 32 : *name);
            upper = false;
        }
    }
    *to = '\0';
    return json;
}

static void protoi_check_message(proto_tree *tree, const proto_message *message, const protoi_scope *scope) {
    protoi_range **ranges = protoi_ranges_sorted(tree, scope);
    const proto_field *field;
    protoi_item *items;
    uint32_t count = 0, i;
    for (field = message->fields; field; field = field->next) count++;
    items = (protoi_item *)proto_alloc(tree, (count + 1) * sizeof *items);
    for (field = message->fields, i = 0; field; field = field->next, i++) {
        items[i].name = field->name;
        items[i].what = field;
        items[i].number = field->number;
        items[i].place = field->place;
        if (field->number && protoi_range_of(ranges, scope->range_count, field->number))
            proto_error(tree, field->place, "field \"%s\" has the reserved number %lu", field->name, (unsigned long)field->number);
    }
    qsort(items, count, sizeof *items, protoi_by_number);
    for (i = 1; i < count; i++)
        if (items[i].number && items[i].number == items[i - 1].number)
            proto_error(tree, items[i].place, "field \"%s\" has the number of field \"%s\", %ld", items[i].name, items[i - 1].name, (long)items[i].number);
    qsort(items, count, sizeof *items, protoi_by_name);
    protoi_check_words(tree, scope, items, count, "field");
    for (i = 0; i < count; i++) {
        const protoi_field *own = (const protoi_field *)items[i].what;
        items[i].name = own->json_name ? own->json_name : protoi_json_name(tree, items[i].name);
    }
    qsort(items, count, sizeof *items, protoi_by_name);
    for (i = 1; i < count; i++)
        if (strcmp(items[i].name, items[i - 1].name) == 0)
            proto_error(tree, items[i].place, "field \"%s\" has the JSON name of field \"%s\", \"%s\"", ((const proto_field *)items[i].what)->name,
                        ((const proto_field *)items[i - 1].what)->name, items[i].name);
}

static void protoi_message(protoi_parser *parser, const char *scope_name, proto_message *parent, uint32_t depth, proto_message ***last) {
    proto_tree *tree = parser->tree;
    proto_message *message = (proto_message *)proto_alloc(tree, sizeof *message), **message_last = &message->messages;
    proto_enum **enum_last = &message->enums;
    proto_field **field_last = &message->fields;
    proto_oneof **oneof_last = &message->oneofs;
    protoi_scope scope;
    memset(&scope, 0, sizeof scope);
    message->comment.leading = parser->token.leading;
    protoi_next(parser);
    message->place = parser->token.place;
    message->file = &parser->file->file;
    message->parent = parent;
    message->name = protoi_name(parser, "the name of a message");
    if (depth >= PROTOI_DEPTH) {
        proto_error(tree, message->place, "messages are nested deeper than %d", (int)PROTOI_DEPTH);
        message->name = NULL;
    }
    if (!message->name || !protoi_need(parser, "{")) {
        protoi_skip(parser);
        return;
    }
    message->comment.trailing = parser->trailing;
    message->full_name = protoi_join(tree, scope_name, ".", message->name);
    if (protoi_declare(tree, message->full_name, PROTOI_MESSAGE, message, message->place)) {
        **last = message;
        *last = &message->next;
    }
    while (!protoi_is(parser, "}") && parser->token.kind != PROTOI_END) {
        const proto_place place = parser->token.place;
        bool good = true;
        if (protoi_take(parser, ";")) continue;
        if (protoi_is(parser, "message")) protoi_message(parser, message->full_name, message, depth + 1, &message_last);
        else if (protoi_is(parser, "enum")) protoi_enum(parser, message->full_name, message, &enum_last);
        else if (protoi_is(parser, "oneof")) protoi_oneof(parser, message, &field_last, &oneof_last);
        else if (protoi_is(parser, "extend")) protoi_extend(parser);
        else if (protoi_is(parser, "option")) good = protoi_option_statement(parser, &scope.options);
        else if (protoi_is(parser, "reserved")) good = protoi_reserved(parser, &scope, false);
        else if (protoi_is(parser, "extensions")) {
            proto_error(tree, place, "proto3 has no extension ranges: use Any");
            good = false;
        } else if (parser->token.kind == PROTOI_NAME || protoi_is(parser, ".")) {
            protoi_field *field = protoi_field_statement(parser, NULL);
            if (field && protoi_declare(tree, protoi_join(tree, message->full_name, ".", field->field.name), PROTOI_OTHER, field, field->field.place)) {
                *field_last = &field->field;
                field_last = &field->field.next;
            }
        } else good = protoi_expected(parser, "a field, a type, or '}'");
        if (good) continue;
        if (parser->token.kind == PROTOI_SYMBOL && !protoi_is(parser, "}") && !protoi_is(parser, ";") && !protoi_is(parser, "{")) protoi_next(parser);
        protoi_skip(parser);
    }
    message->deprecated = scope.options.deprecated;
    if (protoi_need(parser, "}")) protoi_check_message(tree, message, &scope);
}

// ---- services

static bool protoi_rpc_type(protoi_parser *parser, bool *streams, const char **type, proto_place *place) {
    if (!protoi_need(parser, "(")) return false;
    *place = parser->token.place;
    *streams = protoi_take(parser, "stream");
    if (*streams) *place = parser->token.place;
    *type = protoi_dotted(parser, *streams ? "the name of a message" : "stream or the name of a message", true);
    return *type && protoi_need(parser, ")");
}

static bool protoi_rpc(protoi_parser *parser, protoi_method *method) {
    protoi_options options;
    memset(&options, 0, sizeof options);
    method->method.comment.leading = parser->token.leading;
    protoi_next(parser);
    method->method.place = parser->token.place;
    method->method.name = protoi_name(parser, "the name of a method");
    if (!method->method.name) return false;
    if (!protoi_rpc_type(parser, &method->method.client_streams, &method->request, &method->method.request_place)) return false;
    if (!protoi_take(parser, "returns")) return protoi_expected(parser, "returns");
    if (!protoi_rpc_type(parser, &method->method.server_streams, &method->response, &method->method.response_place)) return false;
    if (protoi_take(parser, ";")) {
        method->method.comment.trailing = parser->trailing;
        return true;
    }
    if (!protoi_take(parser, "{")) return protoi_expected(parser, "';' or '{'");
    method->method.comment.trailing = parser->trailing;
    while (!protoi_is(parser, "}")) {
        if (protoi_take(parser, ";")) continue;
        if (parser->token.kind == PROTOI_END) return protoi_expected(parser, "'}'");
        if (!protoi_is(parser, "option")) (void)protoi_expected(parser, "an option or '}'");
        else if (protoi_option_statement(parser, &options)) continue;
        protoi_skip(parser);
    }
    method->method.deprecated = options.deprecated;
    protoi_next(parser);
    return true;
}

static void protoi_service(protoi_parser *parser, proto_service ***last) {
    proto_tree *tree = parser->tree;
    proto_service *service = (proto_service *)proto_alloc(tree, sizeof *service);
    proto_method **method_last = &service->methods;
    protoi_options options;
    memset(&options, 0, sizeof options);
    service->comment.leading = parser->token.leading;
    protoi_next(parser);
    service->place = parser->token.place;
    service->name = protoi_name(parser, "the name of a service");
    if (!service->name || !protoi_need(parser, "{")) {
        protoi_skip(parser);
        return;
    }
    service->comment.trailing = parser->trailing;
    service->full_name = protoi_join(tree, parser->file->file.package, ".", service->name);
    if (protoi_declare(tree, service->full_name, PROTOI_OTHER, service, service->place)) {
        **last = service;
        *last = &service->next;
    }
    while (!protoi_is(parser, "}") && parser->token.kind != PROTOI_END) {
        protoi_method *method;
        bool good;
        if (protoi_take(parser, ";")) continue;
        if (protoi_is(parser, "option")) good = protoi_option_statement(parser, &options);
        else if (protoi_is(parser, "rpc")) {
            method = (protoi_method *)proto_alloc(tree, sizeof *method);
            good = protoi_rpc(parser, method);
            if (good && protoi_declare(tree, protoi_join(tree, service->full_name, ".", method->method.name), PROTOI_OTHER, method, method->method.place)) {
                *method_last = &method->method;
                method_last = &method->method.next;
            }
        } else good = protoi_expected(parser, "rpc, an option, or '}'");
        if (!good) protoi_skip(parser);
    }
    service->deprecated = options.deprecated;
    (void)protoi_need(parser, "}");
}

// ---- files

static protoi_file *protoi_load_below(proto_tree *tree, const char *path, const proto_place *from);

static bool protoi_import(protoi_parser *parser) {
    proto_tree *tree = parser->tree;
    protoi_file *file = parser->file, *found;
    proto_import *import = (proto_import *)proto_alloc(tree, sizeof *import), **last = &file->file.imports;
    protoi_next(parser);
    import->is_public = protoi_is(parser, "public");
    if (import->is_public || protoi_is(parser, "weak")) protoi_next(parser);
    import->place = parser->token.place;
    import->path = protoi_text(parser, "the path of a file in quotes");
    if (!import->path || !protoi_need(parser, ";")) {
        file->misses = true;
        return false;
    }
    for (; *last; last = &(*last)->next)
        if (strcmp((*last)->path, import->path) == 0) {
            proto_error(tree, import->place, "\"%s\" is imported twice", import->path);
            return true;
        }
    *last = import;
    found = protoi_load_below(tree, import->path, &import->place);
    if (!found) {
        file->misses = strcmp(import->path, "google/protobuf/descriptor.proto") != 0;
        return true;
    }
    if (found->failed || found->misses || found->loading) file->misses = true;
    if (found->foreign) file->unread = found->file.path;
    if (!found->failed && !found->loading && !found->foreign) import->file = &found->file;
    return true;
}

static void protoi_package(protoi_parser *parser, bool *has_package) {
    const proto_place place = parser->token.place;
    const char *package;
    protoi_next(parser);
    package = protoi_dotted(parser, "the name of a package", false);
    if (!package || !protoi_need(parser, ";")) {
        protoi_skip(parser);
        return;
    }
    if (*has_package) proto_error(parser->tree, place, "a file has one package");
    else parser->file->file.package = package;
    *has_package = true;
}

// syntax = "proto3"; false: the file is something else, and is not read on
static bool protoi_syntax(protoi_parser *parser, bool imported) {
    const proto_place place = parser->token.place;
    const char *syntax;
    if (protoi_is(parser, "edition")) {
        proto_error(parser->tree, place, "editions are not supported, only syntax = \"proto3\"");
        return false;
    }
    if (!protoi_is(parser, "syntax")) {
        if (imported) parser->file->foreign = true; // proto2 is the default
        else proto_error(parser->tree, place, "a file begins with syntax = \"proto3\"; (without, it is proto2, which is not supported)");
        return false;
    }
    protoi_next(parser);
    if (!protoi_need(parser, "=")) return false;
    syntax = protoi_text(parser, "\"proto3\"");
    if (!syntax) return false;
    if (strcmp(syntax, "proto3") != 0) {
        if (imported && strcmp(syntax, "proto2") == 0) parser->file->foreign = true;
        else proto_error(parser->tree, place, "syntax \"%s\" is not supported, only \"proto3\"", syntax);
        return false;
    }
    if (!protoi_need(parser, ";")) protoi_skip(parser);
    return true;
}

static void protoi_statements(protoi_parser *parser) {
    proto_file *file = &parser->file->file;
    proto_message **message_last = &file->messages;
    proto_enum **enum_last = &file->enums;
    proto_service **service_last = &file->services;
    bool has_package = false;
    while (parser->token.kind != PROTOI_END) {
        const proto_place place = parser->token.place;
        bool good = true;
        if (protoi_take(parser, ";")) continue;
        if (protoi_is(parser, "message")) protoi_message(parser, file->package, NULL, 0, &message_last);
        else if (protoi_is(parser, "enum")) protoi_enum(parser, file->package, NULL, &enum_last);
        else if (protoi_is(parser, "service")) protoi_service(parser, &service_last);
        else if (protoi_is(parser, "extend")) protoi_extend(parser);
        else if (protoi_is(parser, "import")) good = protoi_import(parser);
        else if (protoi_is(parser, "package")) protoi_package(parser, &has_package);
        else if (protoi_is(parser, "option")) good = protoi_option_statement(parser, NULL);
        else if (protoi_is(parser, "syntax")) {
            proto_error(parser->tree, place, "syntax stands once, at the head of the file");
            good = false;
        } else {
            good = protoi_expected(parser, "message, enum, service, import, package, option or extend");
            if (protoi_is(parser, "}")) protoi_next(parser); // of a block that was closed too early
        }
        if (!good) protoi_skip(parser);
    }
}

// The first byte that is no text: a zero, or no UTF-8. NULL: none.
static const char *protoi_no_text(const char *at, const char *end) {
    while (at < end) {
        const unsigned char c = (unsigned char)*at;
        const int more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : -1;
        int i;
        if (c == 0 || more < 0 || end - at <= more) return at;
        for (i = 1; i <= more; i++)
            if (((unsigned char)at[i] & 0xC0) != 0x80) return at;
        at += more + 1;
    }
    return NULL;
}

static void protoi_link(proto_tree *tree, protoi_file *file);

static void protoi_parse(proto_tree *tree, protoi_file *file, const char *text, size_t length, bool imported) {
    const uint32_t errors = tree->error_count;
    protoi_parser parser;
    const char *bad;
    memset(&parser, 0, sizeof parser);
    parser.tree = tree;
    parser.file = file;
    parser.at = parser.begin = parser.line_start = text;
    parser.end = text + length;
    parser.line = 1;
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) parser.at = parser.begin = parser.line_start = text + 3; // a byte order mark
    file->loading = true;
    bad = protoi_no_text(parser.at, parser.end);
    if (bad) {
        const char *at;
        for (at = parser.at; at < bad; at++)
            if (*at == '\n') {
                parser.line++;
                parser.line_start = at + 1;
            }
        proto_error(tree, protoi_here(&parser, bad), *bad ? "this is not UTF-8" : "there is a zero byte");
    } else {
        const char *comment;
        protoi_next(&parser);
        comment = parser.token.leading;
        if (protoi_syntax(&parser, imported)) {
            file->file.comment.leading = comment;
            protoi_statements(&parser);
            protoi_link(tree, file);
        }
    }
    file->failed = tree->error_count != errors;
    file->loading = false;
    if (file->failed || file->foreign) return;
    if (tree->last) tree->last->next = &file->file;
    else tree->first = &file->file;
    tree->last = &file->file;
}

// Well-known files, for whom no include directory has them: their names and numbers are public facts.
typedef struct protoi_known {
    const char *path, *text;
} protoi_known;

#define PROTOI_HEAD "syntax = \"proto3\"; package google.protobuf; "
static const protoi_known protoi_known_files[] = {
    {"google/protobuf/any.proto", PROTOI_HEAD "message Any { string type_url = 1; bytes value = 2; }"},
    {"google/protobuf/duration.proto", PROTOI_HEAD "message Duration { int64 seconds = 1; int32 nanos = 2; }"},
    {"google/protobuf/empty.proto", PROTOI_HEAD "message Empty {}"},
    {"google/protobuf/field_mask.proto", PROTOI_HEAD "message FieldMask { repeated string paths = 1; }"},
    {"google/protobuf/struct.proto",
     PROTOI_HEAD "message Struct { map<string, Value> fields = 1; } message Value { oneof kind { NullValue null_value = 1; double number_value = 2; "
                 "string string_value = 3; bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6; } } "
                 "enum NullValue { NULL_VALUE = 0; } message ListValue { repeated Value values = 1; }"},
    {"google/protobuf/timestamp.proto", PROTOI_HEAD "message Timestamp { int64 seconds = 1; int32 nanos = 2; }"},
    {"google/protobuf/wrappers.proto",
     PROTOI_HEAD "message DoubleValue { double value = 1; } message FloatValue { float value = 1; } message Int64Value { int64 value = 1; } "
                 "message UInt64Value { uint64 value = 1; } message Int32Value { int32 value = 1; } message UInt32Value { uint32 value = 1; } "
                 "message BoolValue { bool value = 1; } message StringValue { string value = 1; } message BytesValue { bytes value = 1; }"}};

static char *protoi_read(proto_tree *tree, const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t room = 0, got;
    *length = 0;
    if (!file) return NULL;
    do { // without asking for its size: a directory or a pipe has none
        if (*length == room) {
            char *grown = (char *)proto_alloc(tree, room ? room * 2 : PROTOI_BLOCK);
            if (room) memcpy(grown, text, room);
            text = grown;
            room = room ? room * 2 : PROTOI_BLOCK;
        }
        got = fread(text + *length, 1, room - *length, file);
        *length += got;
    } while (got);
    if (ferror(file)) text = NULL;
    fclose(file);
    return text;
}

static protoi_file *protoi_file_new(proto_tree *tree, const char *path) {
    protoi_file *file = (protoi_file *)proto_alloc(tree, sizeof *file);
    file->file.path = protoi_copy(tree, path, strlen(path));
    file->file.package = "";
    file->order = ++tree->file_count;
    file->met = tree->met;
    tree->met = file;
    return file;
}

static protoi_file *protoi_met(const proto_tree *tree, const char *path) {
    protoi_file *file = tree->met;
    while (file && strcmp(file->file.path, path) != 0) file = file->met;
    return file;
}

// Finds a file below the include directories, or among those that are built in. NULL: told, but for descriptor.proto, which is not needed.
static protoi_file *protoi_load_below(proto_tree *tree, const char *path, const proto_place *from) {
    protoi_file *file = protoi_met(tree, path);
    const char *on_disk = NULL, *text = NULL;
    size_t length = 0, i;
    if (file && file->loading) proto_error(tree, *from, "\"%s\" imports itself, over others or directly", path);
    if (file) return file;
    for (i = 0; i < tree->include_count && !text; i++) {
        on_disk = strcmp(tree->include[i], ".") == 0 ? path : protoi_join(tree, tree->include[i], "/", path);
        text = protoi_read(tree, on_disk, &length);
    }
    for (i = 0; i < sizeof protoi_known_files / sizeof protoi_known_files[0] && !text; i++) {
        on_disk = NULL;
        if (strcmp(protoi_known_files[i].path, path) == 0) text = protoi_known_files[i].text;
        if (text) length = strlen(text);
    }
    if (!text && strcmp(path, "google/protobuf/descriptor.proto") != 0) {
        proto_place nowhere;
        memset(&nowhere, 0, sizeof nowhere);
        proto_error(tree, from ? *from : nowhere, "\"%s\" was not found%s", path, from ? "" : ", or could not be read");
    } else if (text && tree->depth >= PROTOI_DEPTH) {
        proto_error(tree, *from, "files import each other deeper than %d", (int)PROTOI_DEPTH);
        text = NULL;
    }
    if (!text) return NULL;
    file = protoi_file_new(tree, path);
    file->file.on_disk = on_disk;
    tree->depth++;
    protoi_parse(tree, file, text, length, from != NULL);
    tree->depth--;
    return file;
}

// ---- finding types

static bool protoi_public_has(const proto_file *file, const proto_file *wanted, uint32_t depth) {
    const proto_import *import;
    if (file == wanted) return true;
    for (import = file->imports; import && depth < PROTOI_DEPTH; import = import->next)
        if (import->is_public && import->file && protoi_public_has(import->file, wanted, depth + 1)) return true;
    return false;
}

// May the file use what `wanted` defines: is it the file itself, imported, or imported publicly by what is imported?
static bool protoi_sees(const proto_file *file, const proto_file *wanted) {
    const proto_import *import;
    if (file == wanted) return true;
    for (import = file->imports; import; import = import->next)
        if (import->file && protoi_public_has(import->file, wanted, 0)) return true;
    return false;
}

static bool protoi_is_package(const proto_tree *tree, const proto_file *file, const char *name, size_t length) {
    const protoi_file *other;
    for (other = tree->met; other; other = other->met) {
        const char *package = other->file.package;
        if (strncmp(package, name, length) == 0 && (package[length] == '\0' || package[length] == '.') && protoi_sees(file, &other->file)) return true;
    }
    return false;
}

// A name in a scope ("a.b.Outer"), by the rules of Protocol Buffers: its first part is looked for from the innermost scope outward.
static const protoi_symbol *protoi_resolve(const proto_tree *tree, const proto_file *file, const char *scope, const char *name, const protoi_symbol **hidden) {
    char full[8300];
    const size_t first = strcspn(name, "."), whole = strlen(name);
    size_t length = strlen(scope);
    *hidden = NULL;
    if (*name == '.') {
        const protoi_symbol *symbol = protoi_find(tree, name + 1, whole - 1);
        if (symbol && symbol->kind != PROTOI_OTHER && protoi_sees(file, symbol->place.file)) return symbol;
        *hidden = symbol;
        return NULL;
    }
    if (length + whole + 2 > sizeof full) return NULL;
    for (;;) {
        const size_t at = length ? length + 1 : 0;
        const protoi_symbol *symbol, *outer;
        memcpy(full, scope, length);
        if (length) full[length] = '.';
        memcpy(full + at, name, whole + 1);
        symbol = protoi_find(tree, full, at + whole);
        if (symbol && symbol->kind != PROTOI_OTHER && protoi_sees(file, symbol->place.file)) return symbol;
        if (symbol && (symbol->kind != PROTOI_OTHER || !*hidden)) *hidden = symbol; // not imported, or no type
        outer = first < whole ? protoi_find(tree, full, at + first) : NULL; // a.b: where there is an a, there b has to be
        if (outer && outer->kind != PROTOI_OTHER && protoi_sees(file, outer->place.file)) return NULL;
        if (first < whole && !outer && protoi_is_package(tree, file, full, at + first) && length) return NULL;
        if (length == 0) return NULL;
        while (length > 0 && scope[--length] != '.') {}
    }
}

static const protoi_symbol *protoi_type(proto_tree *tree, protoi_file *file, const char *scope, const char *name, proto_place place) {
    const protoi_symbol *hidden, *symbol = protoi_resolve(tree, &file->file, scope, name, &hidden);
    if (symbol || file->misses) return symbol; // after an import that failed, it would be noise
    if (hidden && hidden->kind != PROTOI_OTHER)
        proto_error(tree, place, "\"%s\" is defined in \"%s\", which is not imported here", name, hidden->place.file->path);
    else if (hidden) proto_error(tree, place, "\"%s\" is not a type", name);
    else if (file->unread) proto_error(tree, place, "\"%s\" is not defined (\"%s\" is proto2, and was not read)", name, file->unread);
    else proto_error(tree, place, "\"%s\" is not defined", name);
    return NULL;
}

static void protoi_link_message(proto_tree *tree, protoi_file *file, proto_message *message) {
    proto_field *field;
    proto_message *nested;
    for (field = message->fields; field; field = field->next) {
        const protoi_field *own = (const protoi_field *)(const void *)field;
        const protoi_symbol *symbol = own->type ? protoi_type(tree, file, message->full_name, own->type, own->type_place) : NULL;
        if (!symbol) continue;
        field->kind = symbol->kind == PROTOI_ENUM ? PROTO_ENUM : PROTO_MESSAGE;
        if (symbol->kind == PROTOI_ENUM) field->enumeration = (const proto_enum *)symbol->what;
        else field->message = (const proto_message *)symbol->what;
    }
    for (nested = message->messages; nested; nested = nested->next) protoi_link_message(tree, file, nested);
}

static const proto_message *protoi_link_rpc(proto_tree *tree, protoi_file *file, const char *scope, const char *name, proto_place place) {
    const protoi_symbol *symbol = protoi_type(tree, file, scope, name, place);
    if (!symbol || symbol->kind == PROTOI_MESSAGE) return symbol ? (const proto_message *)symbol->what : NULL;
    proto_error(tree, place, "\"%s\" is an enum; methods take and return messages", name);
    return NULL;
}

static void protoi_link(proto_tree *tree, protoi_file *file) {
    proto_message *message;
    proto_service *service;
    proto_method *method;
    for (message = file->file.messages; message; message = message->next) protoi_link_message(tree, file, message);
    for (service = file->file.services; service; service = service->next)
        for (method = service->methods; method; method = method->next) {
            const protoi_method *own = (const protoi_method *)(const void *)method;
            method->request = protoi_link_rpc(tree, file, service->full_name, own->request, method->request_place);
            method->response = protoi_link_rpc(tree, file, service->full_name, own->response, method->response_place);
        }
}

// ---- what the caller sees

proto_tree *proto_begin(const proto_options *options) {
    proto_tree *tree = (proto_tree *)calloc(1, sizeof *tree);
    uint32_t i;
    if (!tree) return NULL;
    tree->include_count = options && options->include_count ? options->include_count : 1;
    tree->include = (const char **)proto_alloc(tree, tree->include_count * sizeof *tree->include);
    for (i = 0; i < tree->include_count; i++) {
        const char *directory = options && options->include_count ? options->include[i] : ".";
        size_t length = strlen(directory);
        while (length > 1 && directory[length - 1] == '/') length--;
        tree->include[i] = length ? protoi_copy(tree, directory, length) : ".";
    }
    return tree;
}

void proto_end(proto_tree *tree) {
    if (!tree) return;
    while (tree->blocks) {
        protoi_block *block = tree->blocks;
        tree->blocks = block->next;
        free(block);
    }
    free(tree);
}

const proto_file *proto_load(proto_tree *tree, const char *path) {
    const protoi_file *file;
    uint32_t i;
    while (path[0] == '.' && path[1] == '/') path += 2;
    for (i = 0; i < tree->include_count; i++) { // the part below an include directory
        const size_t length = strlen(tree->include[i]);
        if (strncmp(path, tree->include[i], length) == 0 && path[length] == '/') {
            path += length + 1;
            break;
        }
    }
    file = protoi_load_below(tree, path, NULL);
    return file && !file->failed && !file->foreign && !file->misses ? &file->file : NULL;
}

const proto_file *proto_load_text(proto_tree *tree, const char *path, const char *text, size_t length) {
    protoi_file *file = protoi_met(tree, path);
    if (file) return NULL;
    file = protoi_file_new(tree, path);
    tree->depth++;
    protoi_parse(tree, file, protoi_copy(tree, text, length), length, false);
    tree->depth--;
    return file->failed || file->misses ? NULL : &file->file;
}

const proto_file *proto_files(const proto_tree *tree) { return tree->first; }

#endif // PROTO_IMPLEMENTED
#endif // PROTO_IMPLEMENTATION
#endif // PROTO_H
