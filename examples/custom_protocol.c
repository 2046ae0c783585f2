// custom_protocol.c - a key-value store that speaks lines of text instead of packets; talk to it with nc or telnet.
//
//     cc -I.. custom_protocol.c -o custom_protocol
//     ./custom_protocol [address]        serves until Ctrl-C, default 127.0.0.1:7778; then: nc 127.0.0.1 7778
//     ./custom_protocol --self-test      server and client in one process; exits 0 if the conversation went as it should
//
//     set KEY VALUE -> ok        get KEY -> VALUE or ?        delete KEY -> ok or ?        quit -> bye, and it closes
//
// Shows: frisbee_protocol (start, input, end, stop, a state per connection), frisbee_write, the same on the connecting side. Framing is
// the protocol's; buffering, limits, deadlines and closing stay the library's.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 512, ENTRIES = 1024 };

typedef struct entry {
    char *key, *value;
} entry;

static entry store[ENTRIES]; // a list is enough for an example

static char *copy_text(const char *text, size_t length) {
    char *copy = (char *)malloc(length + 1);
    if (copy) memcpy(copy, text, length), copy[length] = '\0';
    return copy;
}

static entry *find_entry(const char *key, size_t length) {
    for (int i = 0; i < ENTRIES; i++)
        if (store[i].key && strlen(store[i].key) == length && memcmp(store[i].key, key, length) == 0) return &store[i];
    return NULL;
}

static void delete_entry(entry *e) {
    free(e->key);
    free(e->value);
    e->key = e->value = NULL;
}

static bool set_entry(const char *key, size_t key_length, const char *value, size_t value_length) {
    entry *e = find_entry(key, key_length), fresh;
    for (int i = 0; !e && i < ENTRIES; i++)
        if (!store[i].key) e = &store[i];
    fresh.key = copy_text(key, key_length);
    fresh.value = copy_text(value, value_length);
    if (!e || !fresh.key || !fresh.value) {
        delete_entry(&fresh);
        return false;
    }
    delete_entry(e);
    *e = fresh;
    return true;
}

// ---- the protocol of the server

typedef struct session {
    unsigned commands;
} session;

static frisbee_result write_line(frisbee_pool *pool, frisbee_conn conn, const char *text) {
    frisbee_span spans[2];
    spans[0].data = text;
    spans[0].length = strlen(text);
    spans[1].data = "\n";
    spans[1].length = 1;
    return frisbee_write(pool, conn, spans, 2, NULL, NULL); // without a release the bytes are copied
}

// The next word of a line, and what is left of the line behind it.
static const char *next_word(const char **line, size_t *left, size_t *length) {
    const char *word = *line, *space = (const char *)memchr(word, ' ', *left);
    *length = space ? (size_t)(space - word) : *left;
    *line += *length + (space ? 1 : 0);
    *left -= *length + (space ? 1 : 0);
    return word;
}

static bool is_word(const char *word, size_t length, const char *text) {
    return length == strlen(text) && memcmp(word, text, length) == 0;
}

static frisbee_result run_command(frisbee_pool *pool, frisbee_conn conn, const char *line, size_t left) {
    size_t command_length, key_length;
    const char *command = next_word(&line, &left, &command_length), *key = next_word(&line, &left, &key_length);
    entry *e = find_entry(key, key_length);
    if (is_word(command, command_length, "get")) return write_line(pool, conn, e ? e->value : "?");
    if (is_word(command, command_length, "set") && key_length)
        return write_line(pool, conn, set_entry(key, key_length, line, left) ? "ok" : "no room");
    if (is_word(command, command_length, "delete")) {
        if (e) delete_entry(e);
        return write_line(pool, conn, e ? "ok" : "?");
    }
    if (is_word(command, command_length, "quit")) {
        frisbee_result result = write_line(pool, conn, "bye");
        return result ? result : frisbee_close(pool, conn, FRISBEE_CLOSE_FLUSH); // "bye" still leaves
    }
    return write_line(pool, conn, "what?");
}

static frisbee_result server_start(frisbee_pool *pool, frisbee_conn conn, void *user, void **state) {
    (void)user;
    *state = calloc(1, sizeof(session));
    return *state ? write_line(pool, conn, "hello") : FRISBEE_NO_MEMORY;
}

// One line at a time: as long as some bytes are taken and others remain, input is called again. What is no whole line yet is kept by
// the library, up to max_packet bytes.
static frisbee_result server_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used,
                                   size_t *need) {
    const char *line = (const char *)data, *end = (const char *)memchr(data, '\n', length);
    size_t line_length;
    *used = *need = 0;
    if (!end) return FRISBEE_AGAIN;
    *used = (size_t)(end - line) + 1;
    line_length = (size_t)(end - line);
    if (line_length && line[line_length - 1] == '\r') line_length--; // telnet
    ((session *)state)->commands++;
    return run_command(pool, conn, line, line_length); // an error closes this connection, with that reason
}

static void server_stop(frisbee_pool *pool, frisbee_conn conn, void *state) {
    (void)pool, (void)conn;
    printf("a connection ended after %u commands\n", ((session *)state)->commands);
    free(state);
}

static const frisbee_protocol server_protocol = {server_start, server_input, NULL, server_stop, NULL};

static frisbee_result serve(frisbee_pool *pool, const char *address, char *bound, size_t room) {
    frisbee_listener listener;
    frisbee_conn_desc desc = {0};
    frisbee_result result;
    desc.protocol = &server_protocol;
    desc.max_packet = LINE_MAX_BYTES; // of the bytes kept for input
    desc.idle_ms = 10 * 60 * 1000;
    result = frisbee_listen(pool, address, &desc, &listener);
    return result ? result : frisbee_listener_address(pool, listener, bound, room);
}

// ---- self-test: a client whose protocol is to collect what comes

static const char script[] = "set colour dark green\r\nget colour\nget shape\nset colour red\nget colour\ndelete colour\nget colour\n"
                             "\nnonsense\nquit\n";
static const char expected[] = "hello\nok\ndark green\n?\nok\nred\nok\n?\nwhat?\nwhat?\nbye\n";

typedef struct transcript {
    char text[1024];
    size_t length;
    bool open, closed;
    frisbee_result reason;
} transcript;

static frisbee_result client_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used,
                                   size_t *need) {
    transcript *t = (transcript *)state;
    (void)pool, (void)conn;
    *used = *need = 0;
    if (length > sizeof t->text - t->length) return FRISBEE_TOO_LARGE;
    memcpy(t->text + t->length, data, length);
    t->length += length;
    *used = length;
    return FRISBEE_OK;
}

static void client_on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)pool, (void)conn;
    ((transcript *)user)->open = true;
}

static void client_on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    transcript *t = (transcript *)user;
    (void)pool, (void)conn;
    t->closed = true;
    t->reason = info->reason;
}

static bool converse(frisbee_pool *pool, const char *address, const char *text, size_t length, size_t step, transcript *t) {
    static const frisbee_events events = {client_on_open, NULL, NULL, NULL, client_on_close};
    static frisbee_protocol protocol = {NULL, client_input, NULL, NULL, NULL}; // outlives the connections, as it must
    frisbee_conn_desc desc = {0};
    frisbee_conn conn;
    memset(t, 0, sizeof *t);
    protocol.user = t; // without start the state is the protocol's user
    desc.protocol = &protocol;
    desc.events = &events;
    desc.user = t;
    if (frisbee_connect(pool, address, &desc, &conn)) return false;
    for (int turns = 0; turns < 5000 && !t->closed; turns++) {
        if (t->open && length) { // `step` bytes a turn: a server must stand any chopping
            frisbee_span span;
            frisbee_result result;
            span.data = text;
            span.length = length < step ? length : step;
            result = frisbee_write(pool, conn, &span, 1, NULL, NULL);
            if (result && result != FRISBEE_CLOSED) return false;
            text += span.length;
            length = result ? 0 : length - span.length; // the server closed: only its last words are waited for
        }
        if (frisbee_poll(pool, length && t->open ? 0 : 10)) return false;
    }
    return t->closed;
}

static bool check(const char *what, bool holds) {
    printf("%-60s %s\n", what, holds ? "ok" : "FAILED");
    return holds;
}

static int self_test(frisbee_pool *pool) {
    static char endless[LINE_MAX_BYTES * 4];
    static transcript t;
    char address[128];
    bool good = true;
    memset(endless, 'x', sizeof endless);
    if (serve(pool, "127.0.0.1:0", address, sizeof address)) return 1;
    good &= check("a conversation sent at once", converse(pool, address, script, strlen(script), sizeof script, &t) &&
                  t.reason == FRISBEE_CLOSED && t.length == strlen(expected) && memcmp(t.text, expected, t.length) == 0);
    good &= check("the same sent byte by byte", converse(pool, address, script, strlen(script), 1, &t) &&
                  t.reason == FRISBEE_CLOSED && t.length == strlen(expected) && memcmp(t.text, expected, t.length) == 0);
    good &= check("a line without end costs its sender the connection",
                  converse(pool, address, endless, sizeof endless, 100, &t) && t.length == strlen("hello\n"));
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    frisbee_pool *pool;
    char address[128];
    int status = 0;
    if (frisbee_pool_create(NULL, &pool)) return 1;
    if (argc > 1 && strcmp(argv[1], "--self-test") == 0) {
        status = self_test(pool);
    } else {
        frisbee_result result = serve(pool, argc > 1 ? argv[1] : "127.0.0.1:7778", address, sizeof address);
        if (result == FRISBEE_OK) {
            printf("listening on %s; try: set colour green\n", address);
            fflush(stdout);
            result = frisbee_run(pool);
        }
        if (result) fprintf(stderr, "custom_protocol: %s\n", frisbee_result_string(result)), status = 1;
    }
    frisbee_pool_destroy(pool);
    for (int i = 0; i < ENTRIES; i++) delete_entry(&store[i]);
    return status;
}
