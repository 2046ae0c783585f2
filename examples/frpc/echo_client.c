// echo_client.c - calls each method of the Echo service of echo.proto, blocking and asynchronously.
//
//     ./echo_client [address]            default 127.0.0.1:7780
//
// Shows: blocking calls, calls with a callback, errors, a deadline, cancelling, the three kinds of streams. Ends with 0 if all was as expected.

#define FRISBEE_IMPLEMENTATION
#define FRPC_IMPLEMENTATION
#include "echo.frpc.h"

#include <stdio.h>

static int wrong; // what was not as it should be

static void expect(bool good, const char *what) {
    if (good) return;
    printf("WRONG: %s\n", what);
    wrong++;
}

static echo_Line line_of(const char *text) {
    echo_Line line;
    memset(&line, 0, sizeof line);
    line.text = frisbee_string_of(text);
    return line;
}

// ---- what does not stream: blocking ...

static void call_blocking(frisbee_pool *pool, frisbee_conn conn) {
    static const frisbee_string tags[] = {{"short", 5}, {"greeting", 8}};
    static const echo_Line_counts_entry counts[] = {{{"l", 1}, 2}, {{"h", 1}, 1}};
    echo_Line request = line_of("hello"), response;
    frisbee_rpc_outcome outcome;
    char text[256];
    request.tone = echo_Tone_LOUD;
    request.tags = tags;
    request.tags_count = 2;
    request.counts = counts;
    request.counts_count = 2;
    if (echo_Echo_Say_wait(pool, conn, &request, 1000, &response, &outcome) == FRISBEE_OK) {
        (void)echo_Line_print(&response, text, sizeof text);
        printf("Say:    %s\n", text);
        expect(frisbee_string_is(response.text, "HELLO") && response.tags_count == 2 && response.counts_count == 2, "what Say said");
    } else expect(false, frisbee_result_string(outcome.result));

    request = line_of("");
    expect(echo_Echo_Say_wait(pool, conn, &request, 1000, &response, &outcome) == FRISBEE_FAILED, "an empty line is an error");
    printf("Say:    error: %.*s\n", (int)outcome.error.length, outcome.error.data);
}

// ---- ... and with a callback, which comes exactly once

static void on_pondered(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const echo_Line *response, void *user) {
    (void)pool;
    (void)rpc;
    ++*(int *)user;
    if (response) printf("Ponder: %.*s\n", (int)response->text.length, response->text.data);
    else printf("Ponder: %s\n", frisbee_result_string(outcome->result));
}

static void call_back(frisbee_pool *pool, frisbee_conn conn) {
    echo_Line request = line_of("what is a frisbee?");
    frisbee_rpc_desc desc;
    frisbee_rpc rpc;
    int ends = 0;
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = 2000;
    expect(echo_Echo_Ponder(pool, conn, &request, &desc, on_pondered, &ends, NULL) == FRISBEE_OK, "Ponder");
    expect(echo_Echo_Ponder(pool, conn, &request, &desc, on_pondered, &ends, &rpc) == FRISBEE_OK, "Ponder again");
    expect(frisbee_rpc_cancel(pool, &rpc) == FRISBEE_OK, "cancel"); // its callback says CANCELLED
    while (ends < 2) (void)frisbee_poll(pool, 1000);
}

// ---- a server that streams: one message after the other, in a loop ...

static void stream_down(frisbee_pool *pool, frisbee_conn conn) {
    echo_Line line = line_of("again"), response;
    echo_Repeat request = {&line, 1000};
    frisbee_rpc_outcome outcome;
    frisbee_rpc rpc;
    uint32_t count = 0;
    expect(echo_Echo_Again(pool, conn, &request, NULL, NULL, NULL, &rpc) == FRISBEE_OK, "Again");
    while (echo_Echo_Again_receive(pool, &rpc, 1000, &response, &outcome) == FRISBEE_OK) count += frisbee_string_is(response.text, "again");
    printf("Again:  %lu lines, then %s\n", (unsigned long)count, frisbee_result_string(outcome.result)); // CLOSED: that was the last
    expect(outcome.result == FRISBEE_CLOSED && count == 1000, "1000 lines");
}

// ---- ... a client that streams, and both

static void on_counted(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const echo_Sum *response, void *user) {
    (void)pool;
    (void)rpc;
    *(bool *)user = true;
    expect(outcome->result == FRISBEE_OK && response && response->lines == 3, "the count");
    if (response) printf("Count:  %lu lines with %llu bytes\n", (unsigned long)response->lines, (unsigned long long)response->bytes);
}

static void stream_up(frisbee_pool *pool, frisbee_conn conn) {
    static const char *const texts[] = {"one", "two", "three"};
    frisbee_rpc rpc;
    bool ended = false;
    int i;
    expect(echo_Echo_Count(pool, conn, NULL, on_counted, &ended, &rpc) == FRISBEE_OK, "Count");
    for (i = 0; i < 3; i++) {
        const echo_Line line = line_of(texts[i]);
        expect(echo_Echo_Count_send(pool, &rpc, &line) == FRISBEE_OK, "send"); // AGAIN would mean: wait for desc.on_writable
    }
    expect(frisbee_rpc_finish(pool, &rpc) == FRISBEE_OK, "finish");
    while (!ended) (void)frisbee_poll(pool, 1000);
}

typedef struct talk {
    uint32_t heard;
    bool ended;
} talk;

static void on_chat(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const echo_Line *response, void *user) {
    talk *own = (talk *)user;
    own->heard += response != NULL;
    if (response) printf("Chat:   %.*s\n", (int)response->text.length, response->text.data);
    if (outcome) { // the end
        own->ended = true;
        expect(outcome->result == FRISBEE_OK, "the end of the chat");
    } else if (own->heard == 1) { // answers and questions cross as they like
        const echo_Line more = line_of("and you?");
        expect(echo_Echo_Chat_send(pool, rpc, &more) == FRISBEE_OK, "send");
    } else expect(frisbee_rpc_finish(pool, rpc) == FRISBEE_OK, "finish");
}

static void stream_both(frisbee_pool *pool, frisbee_conn conn) {
    const echo_Line line = line_of("how are you?");
    talk own = {0, false};
    frisbee_rpc rpc;
    expect(echo_Echo_Chat(pool, conn, NULL, on_chat, &own, &rpc) == FRISBEE_OK, "Chat");
    expect(echo_Echo_Chat_send(pool, &rpc, &line) == FRISBEE_OK, "send");
    while (!own.ended) (void)frisbee_poll(pool, 1000);
    expect(own.heard == 2, "two answers");
}

static void on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)pool;
    (void)conn;
    *(int *)user = 1;
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    (void)pool;
    (void)conn;
    *(int *)user = -1;
    if (info->reason != FRISBEE_OK && info->reason != FRISBEE_DESTROYED) fprintf(stderr, "echo_client: %s\n", frisbee_result_string(info->reason));
}

int main(int argc, char **argv) {
    static frisbee_events events;
    frisbee_pool *pool;
    frisbee_conn_desc desc;
    frisbee_conn conn;
    int state = 0;
    events.on_open = on_open;
    events.on_close = on_close;
    memset(&desc, 0, sizeof desc);
    desc.events = &events;
    desc.user = &state;
    desc.streams = frisbee_rpc_streams(); // for methods that stream
    if (frisbee_pool_create(NULL, &pool) != FRISBEE_OK || frisbee_connect(pool, argc > 1 ? argv[1] : "127.0.0.1:7780", &desc, &conn) != FRISBEE_OK) return 1;
    while (state == 0) (void)frisbee_poll(pool, 1000); // a stream needs an open connection
    if (state > 0) {
        call_blocking(pool, conn);
        call_back(pool, conn);
        stream_down(pool, conn);
        stream_up(pool, conn);
        stream_both(pool, conn);
    }
    if (state > 0) printf(wrong ? "%d were WRONG\n" : "all as expected\n", wrong);
    else wrong++;
    frisbee_pool_destroy(pool);
    return wrong != 0;
}
