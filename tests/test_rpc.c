// Typed calls (section 14 of the manual) over two pools in memory and, for what blocks, over a socket: answers, errors, ends, limits, lost connections.
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"

#include "check.h"
#include "memory.h"

// ---- the service

#define NUMBERS(F, T) F(T, many, i64, values) F(T, one, string, label)
FRISBEE_MESSAGE(numbers, NUMBERS)
#define NUMBER(F, T) F(T, one, i64, value)
FRISBEE_MESSAGE(number, NUMBER)

#define CALC(M, S)                                                                                                                            \
    M(S, unary, 10, add, numbers, number)                                                                                                     \
    M(S, server_stream, 11, list, numbers, number)                                                                                            \
    M(S, client_stream, 12, sum, number, number)                                                                                              \
    M(S, bidi, 13, echo, number, number)                                                                                                      \
    M(S, unary, 14, missing, number, number)                                                                                                  \
    M(S, bidi, 15, missing_stream, number, number)
FRISBEE_SERVICE(calc, CALC)

// The same operations, but the reply is of another type: what comes cannot be decoded.
#define WRONG(M, S) M(S, unary, 10, add, numbers, numbers) M(S, server_stream, 11, list, numbers, numbers) M(S, unary, 99, nobody, number, number) M(S, unary, 11, list_once, numbers, number) M(S, bidi, 10, add_streaming, number, number)
FRISBEE_SERVICE(wrong, WRONG)

#define OTHER(M, S) M(S, unary, 20, twice, number, number)
FRISBEE_SERVICE(other, OTHER)

// ---- what the server does, by the label of the request

static frisbee_rpc kept_rpc; // deferred, or a stream to go on with
static int opens, closes, writables, client_ends;
static frisbee_result last_close;
static int64_t to_send, sent; // of a long list
static bool failing; // memory may

static void good(frisbee_result result) { CHECK(result == FRISBEE_OK || failing); }

static void serve_add(frisbee_pool *pool, const frisbee_rpc *rpc, const numbers *request, void *user) {
    number answer = {0};
    uint32_t i;
    CHECK(user == &opens);
    for (i = 0; i < request->values_count; i++) answer.value += request->values[i];
    if (frisbee_string_is(request->label, "fail")) CHECK_EQ(frisbee_rpc_fail(pool, rpc, "it failed"), FRISBEE_OK);
    else if (frisbee_string_is(request->label, "EOF")) CHECK_EQ(frisbee_rpc_fail(pool, rpc, "EOF"), FRISBEE_INVALID); // would mean the end
    else if (frisbee_string_is(request->label, "defer")) {
        CHECK_EQ(frisbee_rpc_defer(pool, rpc, &kept_rpc), FRISBEE_OK);
        CHECK_EQ(frisbee_rpc_defer(pool, rpc, &kept_rpc), FRISBEE_INVALID);
    } else if (frisbee_string_is(request->label, "silent")) return;
    else if (frisbee_string_is(request->label, "twice")) {
        CHECK_EQ(calc_add_reply(pool, rpc, &answer), FRISBEE_OK);
        CHECK_EQ(calc_add_reply(pool, rpc, &answer), FRISBEE_INVALID);
        CHECK_EQ(frisbee_rpc_fail(pool, rpc, "late"), FRISBEE_INVALID);
    } else if (frisbee_string_is(request->label, "destroy")) frisbee_pool_destroy(pool);
    else if (frisbee_string_is(request->label, "close")) CHECK_EQ(frisbee_close(pool, rpc->origin.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    else good(calc_add_reply(pool, rpc, &answer));
}

static void list_on(frisbee_pool *pool, const frisbee_rpc *rpc) {
    while (sent < to_send) {
        const number next = {sent};
        const frisbee_result result = calc_list_reply(pool, rpc, &next);
        if (result != FRISBEE_OK) {
            CHECK_EQ(result, FRISBEE_AGAIN);
            return;
        }
        sent++;
    }
    CHECK_EQ(frisbee_rpc_finish(pool, rpc), FRISBEE_OK);
    CHECK_EQ(frisbee_rpc_finish(pool, rpc), FRISBEE_CLOSED);
}

static void serve_list(frisbee_pool *pool, const frisbee_rpc *rpc, const numbers *request, void *user) {
    uint32_t i;
    (void)user;
    kept_rpc = *rpc;
    if (frisbee_string_is(request->label, "long")) {
        to_send = request->values[0];
        sent = 0;
        list_on(pool, rpc);
        return;
    }
    for (i = 0; i < request->values_count; i++) {
        const number next = {request->values[i]};
        good(calc_list_reply(pool, rpc, &next));
    }
    if (frisbee_string_is(request->label, "fail")) {
        CHECK_EQ(frisbee_rpc_fail(pool, rpc, "no more"), FRISBEE_OK);
        CHECK_EQ(frisbee_rpc_fail(pool, rpc, "no more"), FRISBEE_CLOSED);
    } else if (!frisbee_string_is(request->label, "open")) good(frisbee_rpc_finish(pool, rpc));
}

static void serve_sum(frisbee_pool *pool, const frisbee_rpc *rpc, const number *request, void *user) {
    number *own = (number *)frisbee_rpc_state(pool, rpc);
    (void)user;
    CHECK(own != NULL);
    if (!own) return;
    if (request) own->value += request->value;
    else {
        client_ends++;
        good(calc_sum_reply(pool, rpc, own));
        CHECK(failing || calc_sum_reply(pool, rpc, own) == FRISBEE_CLOSED);
    }
}

static void serve_echo(frisbee_pool *pool, const frisbee_rpc *rpc, const number *request, void *user) {
    (void)user;
    kept_rpc = *rpc;
    if (!request) {
        client_ends++;
        CHECK_EQ(frisbee_rpc_finish(pool, rpc), FRISBEE_OK);
    } else if (request->value == -1) CHECK_EQ(frisbee_rpc_fail(pool, rpc, "negative"), FRISBEE_OK);
    else CHECK_EQ(calc_echo_reply(pool, rpc, request), FRISBEE_OK);
}

static void on_open(frisbee_pool *pool, const frisbee_rpc *rpc, void *user) {
    CHECK(user == &opens);
    opens++;
    if (strcmp(rpc->method->name, "sum") == 0) CHECK_EQ(frisbee_rpc_set_state(pool, rpc, calloc(1, sizeof(number))), FRISBEE_OK);
}

static void on_writable(frisbee_pool *pool, const frisbee_rpc *rpc, void *user) {
    (void)user;
    writables++;
    if (strcmp(rpc->method->name, "list") == 0) list_on(pool, rpc);
}

static void on_close(frisbee_pool *pool, const frisbee_rpc *rpc, frisbee_result reason, void *user) {
    (void)user;
    closes++;
    last_close = reason;
    free(frisbee_rpc_state(pool, rpc));
}

static const calc_functions functions = {serve_add, serve_list, serve_sum, serve_echo, NULL, NULL};
static const frisbee_rpc_events served_events = {on_open, on_writable, on_close};

static void serve_twice(frisbee_pool *pool, const frisbee_rpc *rpc, const number *request, void *user) {
    const number answer = {request->value * 2};
    (void)user;
    CHECK_EQ(other_twice_reply(pool, rpc, &answer), FRISBEE_OK);
}

// ---- what the client hears

typedef struct heard {
    int messages, ends, nothing; // nothing: an end without a message
    int64_t total, last;
    frisbee_result result;
    bool sent;
    char error[256];
} heard;

static heard ear;

static void on_number(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const number *response, void *user) {
    heard *own = (heard *)user;
    (void)pool;
    CHECK(rpc->method != NULL && (outcome || response));
    if (response) {
        own->messages++;
        own->total += response->value;
        own->last = response->value;
    }
    if (!outcome) return;
    own->ends++;
    own->nothing += response == NULL;
    own->result = outcome->result;
    own->sent = outcome->sent;
    snprintf(own->error, sizeof own->error, "%.*s", (int)outcome->error.length, outcome->error.data ? outcome->error.data : "");
}

static void on_numbers(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const numbers *response, void *user) {
    CHECK(!response);
    on_number(pool, rpc, outcome, NULL, user);
}

// ---- two pools with a connection between them

typedef struct world {
    mem_net net;
    mem_heap heap;
    frisbee_pool *server, *client;
    frisbee_conn to_server, to_client;
    mem_end *ends[2];
} world;

static world w;
static int client_open;

static void client_opened(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)pool, (void)conn, (void)user;
    client_open++;
}

static frisbee_result turn_one(frisbee_pool **pool) {
    frisbee_result result = *pool ? frisbee_poll(*pool, 0) : FRISBEE_OK;
    if (result == FRISBEE_DESTROYED) *pool = NULL;
    if (*pool) CHECK(frisbeei_check(*pool));
    return result;
}

static void turns(int count) {
    while (count-- > 0) {
        turn_one(&w.client);
        turn_one(&w.server);
        mem_advance(&w.net, 1000);
    }
}

// Begins a world; false: no memory, and nothing is left (only where memory fails).
static bool begin_with(const frisbee_conn_desc *given, const frisbee_conn_desc *server_given, bool failing) {
    static frisbee_events events;
    frisbee_pool_desc desc;
    frisbee_conn_desc conn;
    frisbee_transport io;
    frisbee_result result;
    events.on_open = client_opened;
    memset(&w.net, 0, sizeof w.net);
    w.net.now_us = 1;
    w.net.random = 11;
    w.server = w.client = NULL;
    memset(&ear, 0, sizeof ear);
    memset(&kept_rpc, 0, sizeof kept_rpc);
    opens = closes = writables = client_ends = client_open = 0;
    memset(&desc, 0, sizeof desc);
    desc.now_us = mem_now;
    desc.now_context = &w.net;
    desc.allocator = mem_allocator(&w.heap);
    mem_pair(&w.net, &w.ends[0], &w.ends[1]);
    result = frisbee_pool_create(&desc, &w.server);
    if (result == FRISBEE_OK) result = frisbee_pool_create(&desc, &w.client);
    if (result == FRISBEE_OK) result = calc_serve(w.server, &functions, &served_events, &opens);
    if (result == FRISBEE_OK) {
        memset(&conn, 0, sizeof conn);
        if (server_given) conn = *server_given;
        conn.role = FRISBEE_ACCEPTOR;
        io = mem_transport(w.ends[1]);
        w.ends[1]->pool = w.server;
        result = frisbee_attach(w.server, &io, &conn, NULL, 0, &w.to_client);
        if (result == FRISBEE_OK) w.ends[1]->conn = w.to_client;
    }
    if (result == FRISBEE_OK) {
        memset(&conn, 0, sizeof conn);
        if (given) conn = *given;
        conn.role = FRISBEE_CONNECTOR;
        conn.events = &events;
        conn.streams = frisbee_rpc_streams();
        io = mem_transport(w.ends[0]);
        w.ends[0]->pool = w.client;
        result = frisbee_attach(w.client, &io, &conn, NULL, 0, &w.to_server);
        if (result == FRISBEE_OK) w.ends[0]->conn = w.to_server;
    }
    if (result != FRISBEE_OK) {
        CHECK(failing && result == FRISBEE_NO_MEMORY);
        return false;
    }
    turns(4);
    if (!failing) CHECK_EQ(client_open, 1);
    return true;
}

static void begin(void) {
    memset(&w.heap, 0, sizeof w.heap);
    CHECK(begin_with(NULL, NULL, false));
}

static void finish(void) {
    frisbee_pool_destroy(w.client);
    frisbee_pool_destroy(w.server);
    w.client = w.server = NULL;
    mem_net_free(&w.net);
    CHECK_EQ(opens, closes);
    CHECK_EQ(w.heap.blocks, 0);
}

static numbers numbers_of(const char *label, const int64_t *values, uint32_t count) {
    numbers n;
    n.values = values;
    n.values_count = count;
    n.label = frisbee_string_of(label);
    return n;
}

static const int64_t three[] = {1, 2, 39};

static void ask(const char *label) {
    const numbers request = numbers_of(label, three, 3);
    memset(&ear, 0, sizeof ear);
    CHECK_EQ(calc_add(w.client, w.to_server, &request, NULL, on_number, &ear, NULL), FRISBEE_OK);
}

// ---- calls that do not stream

static void a_call_has_its_answer(void) {
    begin();
    ask("");
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_OK && ear.total == 42 && ear.sent);
    ask("twice");
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_OK);
    finish();
}

static void errors_come_with_their_text(void) {
    begin();
    ask("fail");
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_FAILED && strcmp(ear.error, "it failed") == 0 && ear.nothing == 1);
    ask("silent");
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_FAILED && strstr(ear.error, "no answer") != NULL);
    ask("EOF");
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_FAILED);
    finish();
}

static void an_answer_may_come_later(void) {
    const number answer = {5};
    begin();
    ask("defer");
    turns(4);
    CHECK_EQ(ear.ends, 0);
    CHECK_EQ(calc_add_reply(w.server, &kept_rpc, &answer), FRISBEE_OK);
    CHECK_EQ(calc_add_reply(w.server, &kept_rpc, &answer), FRISBEE_INVALID); // once
    turns(4);
    CHECK(ear.ends == 1 && ear.total == 5);
    ask("defer");
    turns(4);
    CHECK_EQ(frisbee_rpc_fail(w.server, &kept_rpc, "later, too"), FRISBEE_OK);
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_FAILED && strcmp(ear.error, "later, too") == 0);
    ask("defer");
    turns(4);
    CHECK_EQ(frisbee_close(w.server, w.to_client, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(8);
    CHECK_EQ(calc_add_reply(w.server, &kept_rpc, &answer), FRISBEE_CLOSED);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_UNKNOWN && ear.sent);
    finish();
}

static void what_is_not_there_is_said_at_once(void) {
    const number one = {1};
    begin();
    CHECK_EQ(calc_missing(w.client, w.to_server, &one, NULL, on_number, &ear, NULL), FRISBEE_OK);
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_FAILED && strcmp(ear.error, "not implemented") == 0);
    CHECK_EQ(wrong_nobody(w.client, w.to_server, &one, NULL, on_number, &ear, NULL), FRISBEE_OK);
    turns(4);
    CHECK(ear.ends == 2 && ear.result == FRISBEE_FAILED && strcmp(ear.error, "unknown operation 99") == 0);
    CHECK_EQ(calc_missing_stream(w.client, w.to_server, NULL, on_number, &ear, NULL), FRISBEE_OK);
    {
        frisbee_rpc rpc;
        CHECK_EQ(calc_missing_stream(w.client, w.to_server, NULL, on_number, &ear, &rpc), FRISBEE_OK);
        CHECK_EQ(calc_missing_stream_send(w.client, &rpc, &one), FRISBEE_OK);
    }
    turns(6);
    CHECK(ear.ends == 3 && strcmp(ear.error, "not implemented") == 0); // the other one sent nothing yet
    {
        const numbers request = numbers_of("", three, 3);
        frisbee_rpc rpc;
        CHECK_EQ(wrong_list_once(w.client, w.to_server, &request, NULL, on_number, &ear, NULL), FRISBEE_OK); // a method that streams
        turns(4);
        CHECK(ear.ends == 4 && strcmp(ear.error, "this method streams") == 0);
        CHECK_EQ(wrong_add_streaming(w.client, w.to_server, NULL, on_number, &ear, &rpc), FRISBEE_OK); // and one that does not
        turns(6);
        CHECK(ear.ends == 5 && strcmp(ear.error, "this method does not stream") == 0);
    }
    finish();
}

static void raw_replied(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    frisbee_decoder decoder;
    frisbee_string text;
    (void)pool, (void)call;
    *(int *)user += 1;
    CHECK_EQ(outcome->result, FRISBEE_OK);
    frisbee_decoder_begin(&decoder, outcome->data, outcome->length);
    CHECK(frisbee_get_error(&decoder, &text));
    snprintf(ear.error, sizeof ear.error, "%.*s", (int)text.length, text.data);
}

static void requests_that_cannot_be_decoded_are_answered(void) {
    static const uint8_t bad[] = {8, 0, 5, 10, 1}, error[] = {6, 5, 10, 1, 'x'};
    frisbee_call_desc desc;
    int replies = 0;
    begin();
    memset(&desc, 0, sizeof desc);
    desc.on_reply = raw_replied;
    desc.user = &replies;
    CHECK_EQ(frisbee_call(w.client, w.to_server, 10, bad, sizeof bad, &desc, NULL), FRISBEE_OK);
    turns(4);
    CHECK(replies == 1 && strcmp(ear.error, "label: a length is larger than what follows") == 0);
    CHECK_EQ(frisbee_call(w.client, w.to_server, 10, NULL, 0, &desc, NULL), FRISBEE_OK);
    turns(4);
    CHECK(replies == 2 && strstr(ear.error, "the data end too early") != NULL);
    desc.timeout_ms = 50;
    desc.on_reply = NULL;
    CHECK_EQ(frisbee_call(w.client, w.to_server, 10, error, sizeof error, &desc, NULL), FRISBEE_OK); // an Error is never answered
    CHECK_EQ(frisbee_call(w.client, w.to_server, 999, error, sizeof error, &desc, NULL), FRISBEE_OK);
    turns(4);
    {
        frisbee_stats stats;
        CHECK_EQ(frisbee_conn_stats(w.client, w.to_server, &stats), FRISBEE_OK);
        CHECK_EQ(stats.calls, 2);
    }
    finish();
}

static void replies_that_cannot_be_decoded_are_an_outcome(void) {
    const numbers request = numbers_of("", three, 3);
    begin();
    CHECK_EQ(wrong_add(w.client, w.to_server, &request, NULL, on_numbers, &ear, NULL), FRISBEE_OK);
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_MALFORMED && strstr(ear.error, "expected") != NULL && strchr(ear.error, ':') != NULL);
    CHECK_EQ(wrong_list(w.client, w.to_server, &request, NULL, on_numbers, &ear, NULL), FRISBEE_OK);
    turns(6);
    CHECK(ear.ends == 2 && ear.result == FRISBEE_MALFORMED);
    finish();
}

static void deadlines_cancelling_and_the_end_come_once(void) {
    const numbers request = numbers_of("defer", three, 3);
    frisbee_rpc_desc desc;
    frisbee_rpc rpc;
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = 20;
    begin();
    CHECK_EQ(calc_add(w.client, w.to_server, &request, &desc, on_number, &ear, &rpc), FRISBEE_OK);
    turns(40);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_TIMED_OUT);
    CHECK_EQ(frisbee_rpc_cancel(w.client, &rpc), FRISBEE_CLOSED);
    CHECK_EQ(calc_add(w.client, w.to_server, &request, NULL, on_number, &ear, &rpc), FRISBEE_OK);
    turns(2);
    CHECK_EQ(frisbee_rpc_cancel(w.client, &rpc), FRISBEE_OK);
    turns(2);
    CHECK(ear.ends == 2 && ear.result == FRISBEE_CANCELLED);
    CHECK_EQ(calc_add(w.client, w.to_server, &request, NULL, NULL, NULL, NULL), FRISBEE_OK); // nobody listens
    CHECK_EQ(calc_add(w.client, w.to_server, &request, NULL, on_number, &ear, &rpc), FRISBEE_OK);
    turns(2);
    frisbee_pool_destroy(w.client);
    w.client = NULL;
    CHECK(ear.ends == 3 && ear.result == FRISBEE_CANCELLED);
    finish();
}

static void functions_may_close_or_destroy(void) {
    begin();
    ask("close");
    turns(8);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_UNKNOWN);
    finish();
    begin();
    ask("destroy");
    turns(8);
    CHECK(!w.server);
    CHECK_EQ(ear.ends, 1);
    CHECK_EQ(ear.result, FRISBEE_UNKNOWN);
    finish();
}

static void contradictions_are_refused(void) {
    static const calc_functions none = {NULL, NULL, NULL, NULL, NULL, NULL};
    static const frisbee_method low[] = {{"m", &number_type, &number_type, 9, false, false, NULL, NULL}};
    static const frisbee_method same[] = {{"m", &number_type, &number_type, 50, false, false, NULL, NULL}, {"n", &number_type, &number_type, 50, false, false, NULL, NULL}};
    const frisbee_service bad[] = {{"s", low, 1}, {"s", same, 2}};
    const numbers request = numbers_of("", NULL, 3);
    frisbee_rpc rpc;
    frisbee_rpc_outcome outcome;
    number response;
    begin();
    CHECK_EQ(calc_serve(w.server, &none, NULL, NULL), FRISBEE_INVALID); // its operations have handlers
    CHECK_EQ(frisbee_serve(w.server, &bad[0], &none, NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_serve(w.server, &bad[1], &none, NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_serve(w.server, NULL, &none, NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(calc_add(w.client, w.to_server, &request, NULL, on_number, &ear, NULL), FRISBEE_INVALID); // a count without elements
    CHECK_EQ(calc_add(w.client, w.to_server, NULL, NULL, on_number, &ear, NULL), FRISBEE_INVALID);
    memset(&rpc, 0, sizeof rpc);
    CHECK_EQ(frisbee_rpc_cancel(w.client, &rpc), FRISBEE_INVALID);
    CHECK_EQ(frisbee_rpc_reply(w.client, &rpc, NULL), FRISBEE_INVALID);
    CHECK_EQ(calc_add_wait(w.client, w.to_server, &request, 10, &response, &outcome), FRISBEE_INVALID);
    CHECK(outcome.result == FRISBEE_INVALID && !outcome.sent);
    CHECK_EQ(ear.ends, 0);
    finish();
}

static void messages_larger_than_packets_are_refused(void) {
    frisbee_conn_desc desc;
    static int64_t values[2000];
    numbers request = numbers_of("", values, 2000);
    uint32_t i;
    memset(&desc, 0, sizeof desc);
    desc.max_packet = 4096;
    for (i = 0; i < 2000; i++) values[i] = INT64_MAX;
    memset(&w.heap, 0, sizeof w.heap);
    CHECK(begin_with(&desc, NULL, false));
    CHECK_EQ(calc_add(w.client, w.to_server, &request, NULL, on_number, &ear, NULL), FRISBEE_TOO_LARGE);
    CHECK_EQ(calc_list(w.client, w.to_server, &request, NULL, on_number, &ear, NULL), FRISBEE_TOO_LARGE);
    request.values_count = 200;
    values[0] = -199 * (INT64_MAX / 200);
    for (i = 1; i < 200; i++) values[i] = INT64_MAX / 200;
    CHECK_EQ(calc_add(w.client, w.to_server, &request, NULL, on_number, &ear, NULL), FRISBEE_OK);
    turns(4);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_OK && ear.total == 0);
    finish();
}

static void two_services_share_a_pool_and_both_sides_may_serve(void) {
    static const other_functions others = {serve_twice};
    const number four = {4};
    frisbee_conn_desc plain;
    memset(&plain, 0, sizeof plain);
    begin();
    CHECK_EQ(other_serve(w.server, &others, NULL, NULL), FRISBEE_OK);
    CHECK_EQ(other_serve(w.client, &others, NULL, NULL), FRISBEE_OK);
    CHECK_EQ(other_twice(w.client, w.to_server, &four, NULL, on_number, &ear, NULL), FRISBEE_OK);
    CHECK_EQ(other_twice(w.server, w.to_client, &four, NULL, on_number, &ear, NULL), FRISBEE_OK); // the accepting side calls
    ask("");
    turns(4);
    CHECK(ear.ends == 3 && ear.total == 42 + 8 + 8);
    finish();
}

// ---- streams

static frisbee_rpc list_of(const char *label, const int64_t *values, uint32_t count, const frisbee_rpc_desc *desc) {
    const numbers request = numbers_of(label, values, count);
    frisbee_rpc rpc;
    memset(&ear, 0, sizeof ear);
    CHECK_EQ(calc_list(w.client, w.to_server, &request, desc, on_number, &ear, &rpc), FRISBEE_OK);
    return rpc;
}

static void a_server_streams_until_its_end(void) {
    begin();
    (void)list_of("", three, 3, NULL);
    turns(6);
    CHECK(ear.messages == 3 && ear.total == 42 && ear.ends == 1 && ear.result == FRISBEE_OK && ear.nothing == 1);
    CHECK(opens == 1 && closes == 1 && last_close == FRISBEE_OK);
    (void)list_of("", NULL, 0, NULL);
    turns(6);
    CHECK(ear.messages == 0 && ear.ends == 1 && ear.result == FRISBEE_OK);
    (void)list_of("fail", three, 2, NULL);
    turns(6);
    CHECK(ear.messages == 2 && ear.ends == 1 && ear.result == FRISBEE_FAILED && strcmp(ear.error, "no more") == 0);
    CHECK(opens == 3 && closes == 3);
    finish();
}

static void a_long_stream_waits_for_its_reader(void) {
    static const int64_t many[] = {20000};
    frisbee_conn_desc desc;
    frisbee_rpc rpc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.stream_window = 2000;
    memset(&w.heap, 0, sizeof w.heap);
    CHECK(begin_with(&desc, &desc, false));
    rpc = list_of("long", many, 1, NULL);
    turns(2);
    CHECK_EQ(frisbee_rpc_pause(w.client, &rpc, true), FRISBEE_OK);
    turns(50);
    CHECK(sent < 8000 && ear.ends == 0); // bounded by the window and the queue
    i = ear.messages;
    turns(10);
    CHECK_EQ(ear.messages, i);
    CHECK_EQ(frisbee_rpc_pause(w.client, &rpc, false), FRISBEE_OK);
    for (i = 0; i < 4000 && !ear.ends; i++) turns(1);
    CHECK(ear.messages == 20000 && ear.ends == 1 && ear.result == FRISBEE_OK && ear.last == 19999 && writables > 5);
    finish();
}

static void a_client_streams_and_gets_one_answer(void) {
    frisbee_rpc rpc;
    int i;
    begin();
    CHECK_EQ(calc_sum(w.client, w.to_server, NULL, on_number, &ear, &rpc), FRISBEE_OK);
    for (i = 1; i <= 100; i++) {
        const number next = {i};
        CHECK_EQ(calc_sum_send(w.client, &rpc, &next), FRISBEE_OK);
    }
    CHECK_EQ(frisbee_rpc_finish(w.client, &rpc), FRISBEE_OK);
    CHECK_EQ(calc_sum_send(w.client, &rpc, &(number){1}), FRISBEE_CLOSED);
    turns(8);
    CHECK(ear.ends == 1 && ear.messages == 1 && ear.total == 5050 && ear.result == FRISBEE_OK && client_ends == 1);
    CHECK(opens == 1 && closes == 1 && last_close == FRISBEE_OK);
    CHECK_EQ(frisbee_rpc_finish(w.client, &rpc), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_rpc_cancel(w.client, &rpc), FRISBEE_CLOSED);
    finish();
}

static void both_stream_at_once(void) {
    frisbee_rpc rpcs[20];
    heard ears[20];
    int i, j;
    begin();
    memset(ears, 0, sizeof ears);
    for (i = 0; i < 20; i++) CHECK_EQ(calc_echo(w.client, w.to_server, NULL, on_number, &ears[i], &rpcs[i]), FRISBEE_OK);
    for (j = 0; j < 50; j++) {
        for (i = 0; i < 20; i++) {
            const number next = {i * 100 + j};
            CHECK_EQ(calc_echo_send(w.client, &rpcs[i], &next), FRISBEE_OK);
        }
        turns(1);
    }
    for (i = 0; i < 20; i++) {
        const number bad = {-1};
        if (i % 2) CHECK_EQ(calc_echo_send(w.client, &rpcs[i], &bad), FRISBEE_OK);
        else CHECK_EQ(frisbee_rpc_finish(w.client, &rpcs[i]), FRISBEE_OK);
    }
    turns(8);
    for (i = 0; i < 20; i++) {
        CHECK(ears[i].messages == 50 && ears[i].last == i * 100 + 49 && ears[i].ends == 1);
        CHECK_EQ(ears[i].result, i % 2 ? FRISBEE_FAILED : FRISBEE_OK);
        CHECK(!(i % 2) || strcmp(ears[i].error, "negative") == 0);
    }
    CHECK(opens == 20 && closes == 20 && client_ends == 10);
    finish();
}

static void a_stream_that_is_given_up_ends_on_both_sides(void) {
    frisbee_rpc_desc desc;
    frisbee_rpc rpc;
    const number one = {1};
    begin();
    rpc = list_of("open", three, 3, NULL);
    turns(6);
    CHECK_EQ(ear.messages, 3);
    CHECK_EQ(frisbee_rpc_cancel(w.client, &rpc), FRISBEE_OK);
    CHECK_EQ(frisbee_rpc_cancel(w.client, &rpc), FRISBEE_CLOSED);
    CHECK_EQ(ear.ends, 0); // not inside the function
    turns(6);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_CANCELLED && closes == 1 && last_close == FRISBEE_CLOSED);
    CHECK_EQ(calc_list_reply(w.server, &kept_rpc, &one), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_rpc_fail(w.server, &kept_rpc, "late"), FRISBEE_CLOSED);
    CHECK(frisbee_rpc_state(w.server, &kept_rpc) == NULL);
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = 30;
    (void)list_of("open", three, 3, &desc);
    turns(20);
    CHECK_EQ(ear.ends, 0);
    turns(20);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_TIMED_OUT && closes == 2);
    (void)list_of("", three, 3, &desc); // one that ends in time
    turns(60);
    CHECK(ear.ends == 1 && ear.result == FRISBEE_OK);
    finish();
}

static void streams_end_with_their_connection(void) {
    begin();
    (void)list_of("open", three, 3, NULL);
    turns(6);
    CHECK_EQ(frisbee_close(w.server, w.to_client, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(8);
    CHECK(ear.ends == 1 && ear.messages == 3 && ear.result != FRISBEE_OK && closes == 1 && last_close == FRISBEE_UNKNOWN);
    finish();
    begin();
    (void)list_of("open", three, 3, NULL);
    turns(6);
    frisbee_pool_destroy(w.client);
    w.client = NULL;
    CHECK(ear.ends == 1 && ear.result == FRISBEE_DESTROYED);
    finish();
}

static void bad_streams_are_refused(void) {
    static const frisbee_stream_events quiet_events;
    static const uint8_t nonsense[] = {5, 10, 1, 'x'}, op_list[] = {9, 11}, op_echo[] = {9, 13}, op_unknown[] = {9, 77}, gone[] = {6, 5, 10, 1, 'x'};
    frisbee_stream stream;
    begin();
    CHECK_EQ(frisbee_stream_open(w.client, w.to_server, &quiet_events, NULL, &stream), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(w.client, stream, nonsense, sizeof nonsense), FRISBEE_OK);
    turns(4);
    CHECK_EQ(frisbee_stream_send(w.client, stream, nonsense, 1), FRISBEE_CLOSED); // the server closed it
    CHECK_EQ(frisbee_stream_open(w.client, w.to_server, &quiet_events, NULL, &stream), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(w.client, stream, op_unknown, sizeof op_unknown), FRISBEE_OK);
    turns(4);
    CHECK_EQ(frisbee_stream_send(w.client, stream, nonsense, 1), FRISBEE_CLOSED);
    CHECK_EQ(opens, 0);
    CHECK_EQ(frisbee_stream_open(w.client, w.to_server, &quiet_events, NULL, &stream), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(w.client, stream, op_list, sizeof op_list), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(w.client, stream, nonsense, sizeof nonsense), FRISBEE_OK); // no request
    turns(4);
    CHECK(opens == 1 && closes == 1);
    CHECK_EQ(frisbee_stream_open(w.client, w.to_server, &quiet_events, NULL, &stream), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(w.client, stream, op_echo, sizeof op_echo), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(w.client, stream, gone, sizeof gone), FRISBEE_OK); // an error of the client's: it gives up
    turns(4);
    CHECK(opens == 2 && closes == 2 && client_ends == 0);
    CHECK_EQ(frisbee_stream_open(w.client, w.to_server, &quiet_events, NULL, &stream), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(w.client, stream, op_echo, sizeof op_echo), FRISBEE_OK);
    turns(4);
    CHECK_EQ(frisbee_stream_close(w.client, stream), FRISBEE_OK);
    turns(4);
    CHECK(opens == 3 && closes == 3 && last_close == FRISBEE_CLOSED);
    finish();
}

// ---- comparing

static frisbee_result compared;
static int comparisons;

static void on_compared(frisbee_pool *pool, frisbee_conn conn, frisbee_result result, void *user) {
    (void)pool, (void)conn, (void)user;
    compared = result;
    comparisons++;
}

#define NUMBER2(F, T) F(T, one, i64, value)
FRISBEE_MESSAGE(number2, NUMBER2)
#define NUMBER3(F, T) F(T, one, u64, value)
FRISBEE_MESSAGE(number3, NUMBER3)
#define NUMBER4(F, T) F(T, one, i64, amount)
FRISBEE_MESSAGE(number4, NUMBER4)
#define SAME(M, S) M(S, unary, 20, twice, number2, number)
FRISBEE_SERVICE(same, SAME)
#define KIND(M, S) M(S, unary, 20, twice, number3, number)
FRISBEE_SERVICE(kind, KIND)
#define NAME(M, S) M(S, unary, 20, twice, number4, number)
FRISBEE_SERVICE(name, NAME)
#define PLACE(M, S) M(S, unary, 21, twice, number, number)
FRISBEE_SERVICE(place, PLACE)
#define STREAM(M, S) M(S, bidi, 20, twice, number, number)
FRISBEE_SERVICE(stream, STREAM)

static void fingerprints_tell_what_the_wire_depends_on(void) {
    const uint64_t mine = frisbee_service_fingerprint(&other_service);
    CHECK(mine != 0);
    CHECK(frisbee_service_fingerprint(&same_service) != mine); // another type in one place: two types where there was one
    CHECK(frisbee_service_fingerprint(&kind_service) != mine);
    CHECK(frisbee_service_fingerprint(&kind_service) != frisbee_service_fingerprint(&same_service));
    CHECK(frisbee_service_fingerprint(&name_service) != frisbee_service_fingerprint(&same_service));
    CHECK(frisbee_service_fingerprint(&place_service) != mine);
    CHECK(frisbee_service_fingerprint(&stream_service) != mine);
    CHECK(frisbee_service_fingerprint(&calc_service) == frisbee_service_fingerprint(&calc_service));
}

static void peers_compare_their_services(void) {
    frisbee_service renamed = wrong_service;
    renamed.name = "calc";
    begin();
    CHECK_EQ(frisbee_service_compare(w.client, w.to_server, &calc_service, 0, on_compared, NULL), FRISBEE_OK);
    turns(4);
    CHECK_EQ(compared, FRISBEE_OK);
    CHECK_EQ(frisbee_service_compare(w.client, w.to_server, &renamed, 0, on_compared, NULL), FRISBEE_OK);
    turns(4);
    CHECK_EQ(compared, FRISBEE_FAILED);
    CHECK_EQ(frisbee_service_compare(w.client, w.to_server, &other_service, 0, on_compared, NULL), FRISBEE_OK);
    turns(4);
    CHECK_EQ(compared, FRISBEE_UNHANDLED);
    CHECK_EQ(frisbee_service_compare(w.server, w.to_client, &calc_service, 20, on_compared, NULL), FRISBEE_OK); // the other way around
    turns(4);
    CHECK(compared == FRISBEE_UNHANDLED && comparisons == 4);
    finish();
}

// ---- memory that fails: everything ends once, nothing leaks

// False: the world could not even begin.
static bool scenario(void) {
    const numbers request = numbers_of("", three, 3);
    const number one = {1};
    heard ears[3];
    frisbee_rpc rpc;
    int started = 0, i;
    const bool begun = begin_with(NULL, NULL, true);
    memset(ears, 0, sizeof ears);
    comparisons = 0;
    if (begun) {
        started += calc_add(w.client, w.to_server, &request, NULL, on_number, &ears[0], NULL) == FRISBEE_OK;
        started += calc_list(w.client, w.to_server, &request, NULL, on_number, &ears[1], NULL) == FRISBEE_OK;
        if (calc_sum(w.client, w.to_server, NULL, on_number, &ears[2], &rpc) == FRISBEE_OK) {
            started++;
            (void)calc_sum_send(w.client, &rpc, &one);
            (void)frisbee_rpc_finish(w.client, &rpc);
        }
        started += frisbee_service_compare(w.client, w.to_server, &calc_service, 0, on_compared, NULL) == FRISBEE_OK;
        turns(10);
    }
    finish();
    for (i = 0; i < 3; i++) {
        CHECK(ears[i].ends <= 1);
        started -= ears[i].ends;
    }
    CHECK_EQ(started, comparisons);
    return begun;
}

static void memory_may_fail_anywhere(void) {
    uint32_t n, worlds = 0;
    int on;
    failing = true;
    for (on = 0; on < 2; on++)
        for (n = 1;; n++) {
            memset(&w.heap, 0, sizeof w.heap);
            w.heap.fail_at = n;
            w.heap.fail_on = on != 0;
            worlds += scenario();
            if (!w.heap.failures) break;
        }
    failing = false;
    CHECK(worlds > 20 && n > 20);
}

static void everything_fits_into_a_block_or_is_refused(void) {
    enum { EXTRA = 40000 };
    static uint8_t memory[2][FRISBEE_POOL_BYTES(2, 16, 1024, 8192) + EXTRA];
    const numbers request = numbers_of("", three, 3);
    frisbee_pool_desc desc;
    frisbee_conn_desc conn;
    frisbee_transport io;
    size_t extra;
    int most = 0;
    failing = true;
    for (extra = 0; extra <= EXTRA; extra += 500) {
        int ends = 0;
        memset(&w, 0, sizeof w);
        memset(&ear, 0, sizeof ear);
        opens = closes = 0;
        w.net.now_us = 1;
        mem_pair(&w.net, &w.ends[0], &w.ends[1]);
        memset(&desc, 0, sizeof desc);
        memset(&conn, 0, sizeof conn);
        desc.now_us = mem_now;
        desc.now_context = &w.net;
        desc.memory_size = sizeof memory[0] - EXTRA + extra;
        desc.max_conns = 2, desc.max_calls = 16, desc.max_packet = 1024, desc.queue_limit = 8192;
        desc.memory = memory[0];
        CHECK_EQ(frisbee_pool_create(&desc, &w.server), FRISBEE_OK);
        desc.memory = memory[1];
        CHECK_EQ(frisbee_pool_create(&desc, &w.client), FRISBEE_OK);
        (void)calc_serve(w.server, &functions, &served_events, &opens);
        conn.role = FRISBEE_ACCEPTOR;
        io = mem_transport(w.ends[1]);
        w.ends[1]->pool = w.server;
        CHECK_EQ(frisbee_attach(w.server, &io, &conn, NULL, 0, &w.to_client), FRISBEE_OK);
        w.ends[1]->conn = w.to_client;
        conn.role = FRISBEE_CONNECTOR;
        conn.streams = frisbee_rpc_streams();
        io = mem_transport(w.ends[0]);
        w.ends[0]->pool = w.client;
        CHECK_EQ(frisbee_attach(w.client, &io, &conn, NULL, 0, &w.to_server), FRISBEE_OK);
        w.ends[0]->conn = w.to_server;
        turns(4);
        ends += calc_add(w.client, w.to_server, &request, NULL, on_number, &ear, NULL) == FRISBEE_OK;
        ends += calc_list(w.client, w.to_server, &request, NULL, on_number, &ear, NULL) == FRISBEE_OK;
        turns(10);
        if (ear.total > most) most = (int)ear.total;
        frisbee_pool_destroy(w.client);
        frisbee_pool_destroy(w.server);
        mem_net_free(&w.net);
        CHECK(ear.ends == ends && opens == closes);
    }
    failing = false;
    CHECK_EQ(most, 42 + 42);
}

// ---- what blocks, over a socket: one pool is both sides

static void blocking_calls_and_receiving(void) {
    const numbers request = numbers_of("", three, 3), refused = numbers_of("fail", three, 2), open = numbers_of("open", three, 1), silent = numbers_of("defer", three, 1);
    frisbee_conn_desc desc;
    frisbee_listener listener;
    frisbee_rpc_outcome outcome;
    frisbee_pool *pool;
    frisbee_conn conn;
    frisbee_rpc rpc;
    number response;
    char address[64];
    int i;
    memset(&desc, 0, sizeof desc);
    opens = closes = client_ends = 0;
    desc.streams = frisbee_rpc_streams();
    CHECK_EQ(frisbee_pool_create(NULL, &pool), FRISBEE_OK);
    CHECK_EQ(calc_serve(pool, &functions, &served_events, &opens), FRISBEE_OK);
    CHECK_EQ(frisbee_listen(pool, "127.0.0.1:0", NULL, &listener), FRISBEE_OK);
    CHECK_EQ(frisbee_listener_address(pool, listener, address, sizeof address), FRISBEE_OK);
    CHECK_EQ(frisbee_connect(pool, address, &desc, &conn), FRISBEE_OK);
    CHECK_EQ(calc_add_wait(pool, conn, &request, 2000, &response, &outcome), FRISBEE_OK);
    CHECK(response.value == 42 && outcome.result == FRISBEE_OK && outcome.sent);
    CHECK_EQ(calc_add_wait(pool, conn, &refused, 2000, &response, &outcome), FRISBEE_FAILED);
    CHECK(frisbee_string_is(outcome.error, "it failed") && response.value == 0);
    CHECK_EQ(calc_add_wait(pool, conn, &silent, 30, &response, NULL), FRISBEE_TIMED_OUT);

    CHECK_EQ(calc_list(pool, conn, &request, NULL, NULL, NULL, &rpc), FRISBEE_OK);
    CHECK_EQ(frisbee_rpc_pause(pool, &rpc, true), FRISBEE_INVALID);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_OK);
        CHECK_EQ(response.value, three[i]);
    }
    CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_CLOSED);
    CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_CLOSED);

    CHECK_EQ(calc_list(pool, conn, &refused, NULL, NULL, NULL, &rpc), FRISBEE_OK);
    for (i = 0; i < 2; i++) CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_OK);
    CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_FAILED);
    CHECK(frisbee_string_is(outcome.error, "no more"));

    CHECK_EQ(calc_list(pool, conn, &open, NULL, NULL, NULL, &rpc), FRISBEE_OK);
    CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_OK);
    CHECK_EQ(calc_list_receive(pool, &rpc, 20, &response, &outcome), FRISBEE_TIMED_OUT); // the call goes on
    CHECK_EQ(calc_list_reply(pool, &kept_rpc, &(number){77}), FRISBEE_OK);
    CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_OK);
    CHECK_EQ(response.value, 77);
    CHECK_EQ(frisbee_rpc_cancel(pool, &rpc), FRISBEE_OK);
    CHECK_EQ(calc_list_receive(pool, &rpc, 20, &response, &outcome), FRISBEE_CLOSED);

    CHECK_EQ(calc_echo(pool, conn, NULL, NULL, NULL, &rpc), FRISBEE_OK); // both stream, in a loop
    for (i = 0; i < 10; i++) {
        CHECK_EQ(calc_echo_send(pool, &rpc, &(number){i}), FRISBEE_OK);
        CHECK_EQ(calc_echo_receive(pool, &rpc, 2000, &response, NULL), FRISBEE_OK);
        CHECK_EQ(response.value, i);
    }
    CHECK_EQ(frisbee_rpc_finish(pool, &rpc), FRISBEE_OK);
    CHECK_EQ(calc_echo_receive(pool, &rpc, 2000, &response, NULL), FRISBEE_CLOSED);

    CHECK_EQ(calc_list(pool, conn, &open, NULL, NULL, NULL, &rpc), FRISBEE_OK); // and lost before anybody receives
    CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_OK);
    CHECK_EQ(frisbee_close(pool, conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    for (i = 0; i < 10; i++) (void)frisbee_poll(pool, 1);
    CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_UNKNOWN);
    CHECK_EQ(calc_list_receive(pool, &rpc, 2000, &response, &outcome), FRISBEE_CLOSED);
    frisbee_pool_destroy(pool); // its side of the connection still owed an answer
    CHECK_EQ(opens, 5);
    CHECK_EQ(closes, 5);
}

int main(int argc, char **argv) {
    RUN(a_call_has_its_answer);
    RUN(errors_come_with_their_text);
    RUN(an_answer_may_come_later);
    RUN(what_is_not_there_is_said_at_once);
    RUN(requests_that_cannot_be_decoded_are_answered);
    RUN(replies_that_cannot_be_decoded_are_an_outcome);
    RUN(deadlines_cancelling_and_the_end_come_once);
    RUN(functions_may_close_or_destroy);
    RUN(contradictions_are_refused);
    RUN(messages_larger_than_packets_are_refused);
    RUN(two_services_share_a_pool_and_both_sides_may_serve);
    RUN(a_server_streams_until_its_end);
    RUN(a_long_stream_waits_for_its_reader);
    RUN(a_client_streams_and_gets_one_answer);
    RUN(both_stream_at_once);
    RUN(a_stream_that_is_given_up_ends_on_both_sides);
    RUN(streams_end_with_their_connection);
    RUN(bad_streams_are_refused);
    RUN(fingerprints_tell_what_the_wire_depends_on);
    RUN(peers_compare_their_services);
    RUN(memory_may_fail_anywhere);
    RUN(everything_fits_into_a_block_or_is_refused);
    RUN(blocking_calls_and_receiving);
    return check_report("rpc");
}
