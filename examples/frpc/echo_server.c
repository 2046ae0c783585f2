// echo_server.c - the Echo service of echo.proto, until Ctrl-C.
//
//     ./frpc -o gen echo.proto && cc -Igen -I../.. echo_server.c -o echo_server
//     ./echo_server [address]            default 127.0.0.1:7780; port 0 takes any free port
//
// Shows: a table of functions, answers now and later, errors with a text, streams in both directions with backpressure.
// Its counterpart is echo_client.c.

#define FRISBEE_IMPLEMENTATION
#define FRPC_IMPLEMENTATION
#include "echo.frpc.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t stopping; // a signal ends the wait of frisbee_poll

static void on_signal(int number) { stopping = number; }

// A line of the server's own: a copy, with the memory that it needs.
typedef struct kept_line {
    struct kept_line *next;
    frisbee_rpc rpc;
    echo_Line line;
    frisbee_arena arena;
    unsigned char block[4096];
} kept_line;

static kept_line *keep_line(const frisbee_rpc *rpc, const echo_Line *line) { // NULL: no memory, or a line too long for the block
    kept_line *kept = (kept_line *)calloc(1, sizeof *kept);
    if (!kept) return NULL;
    kept->rpc = *rpc;
    frisbee_arena_begin(&kept->arena, kept->block, sizeof kept->block);
    if (echo_Line_copy(&kept->line, line, &kept->arena) == FRISBEE_OK) return kept;
    free(kept);
    return NULL;
}

// ---- Say: what does not stream is answered in its function ...

static void say(frisbee_pool *pool, const frisbee_rpc *rpc, const echo_Line *request, void *user) {
    echo_Line response = *request;
    char shouted[1024];
    uint32_t i;
    (void)user;
    if (request->text.length == 0) {
        (void)frisbee_rpc_fail(pool, rpc, "there is nothing to say");
        return;
    }
    if (request->tone == echo_Tone_LOUD && request->text.length <= sizeof shouted) {
        for (i = 0; i < request->text.length; i++) shouted[i] = (char)toupper((unsigned char)request->text.data[i]);
        response.text.data = shouted;
    }
    if (echo_Echo_Say_reply(pool, rpc, &response) != FRISBEE_OK) fprintf(stderr, "a response was not sent\n");
}

// ---- Ponder: ... or later, from anywhere. Here: when the server's loop comes around

static kept_line *thoughts;

static void ponder(frisbee_pool *pool, const frisbee_rpc *rpc, const echo_Line *request, void *user) {
    kept_line *thought = keep_line(rpc, request); // the request goes when this returns
    (void)user;
    if (!thought || frisbee_rpc_defer(pool, rpc, &thought->rpc) != FRISBEE_OK) {
        free(thought);
        (void)frisbee_rpc_fail(pool, rpc, "too much to think of");
        return;
    }
    thought->next = thoughts;
    thoughts = thought;
}

static void answer_thoughts(frisbee_pool *pool) { // pool NULL: they are forgotten
    while (thoughts) {
        kept_line *thought = thoughts;
        thoughts = thought->next;
        if (pool) (void)echo_Echo_Ponder_reply(pool, &thought->rpc, &thought->line); // CLOSED if the client has gone meanwhile
        free(thought);
    }
}

// ---- Again: a server streams as fast as the client takes it

typedef struct repetition {
    uint32_t left;
    size_t length;
    char text[256];
} repetition;

static void again_go_on(frisbee_pool *pool, const frisbee_rpc *rpc) {
    repetition *own = (repetition *)frisbee_rpc_state(pool, rpc);
    echo_Line line;
    if (!own) return;
    memset(&line, 0, sizeof line);
    line.text.data = own->text;
    line.text.length = (uint32_t)own->length;
    while (own->left > 0) {
        const frisbee_result result = echo_Echo_Again_reply(pool, rpc, &line);
        if (result != FRISBEE_OK) return; // AGAIN: on_writable goes on; else on_close comes
        own->left--;
    }
    (void)frisbee_rpc_finish(pool, rpc);
}

static void again(frisbee_pool *pool, const frisbee_rpc *rpc, const echo_Repeat *request, void *user) {
    const frisbee_string text = request->line ? request->line->text : frisbee_string_of("");
    repetition *own = (repetition *)calloc(1, sizeof *own);
    (void)user;
    if (!own || text.length > sizeof own->text || frisbee_rpc_set_state(pool, rpc, own) != FRISBEE_OK) {
        free(own);
        (void)frisbee_rpc_fail(pool, rpc, "the line is too long");
        return;
    }
    own->left = request->times;
    own->length = text.length;
    if (text.length) memcpy(own->text, text.data, text.length);
    again_go_on(pool, rpc);
}

// ---- Count: the client streams; its end is a request of NULL

static void count(frisbee_pool *pool, const frisbee_rpc *rpc, const echo_Line *request, void *user) {
    echo_Sum *sum = (echo_Sum *)frisbee_rpc_state(pool, rpc);
    const echo_Sum none = {0, 0};
    (void)user;
    if (!request) {
        (void)echo_Echo_Count_reply(pool, rpc, sum ? sum : &none);
        return;
    }
    if (!sum) {
        sum = (echo_Sum *)calloc(1, sizeof *sum);
        if (frisbee_rpc_set_state(pool, rpc, sum) != FRISBEE_OK || !sum) {
            free(sum);
            (void)frisbee_rpc_fail(pool, rpc, "no memory");
            return;
        }
    }
    sum->lines++;
    sum->bytes += request->text.length;
}

// ---- Chat: both stream. While there is no room for an answer, no more is read of this call

static void chat(frisbee_pool *pool, const frisbee_rpc *rpc, const echo_Line *request, void *user) {
    frisbee_result result = FRISBEE_OK;
    kept_line *kept = NULL;
    (void)user;
    if (request) result = echo_Echo_Chat_reply(pool, rpc, request);
    else (void)frisbee_rpc_finish(pool, rpc);
    if (result == FRISBEE_OK) return;
    if (result == FRISBEE_AGAIN) kept = keep_line(rpc, request);
    if (!kept) (void)frisbee_rpc_fail(pool, rpc, "the line was lost");
    else if (frisbee_rpc_set_state(pool, rpc, kept) != FRISBEE_OK || frisbee_rpc_pause(pool, rpc, true) != FRISBEE_OK) free(kept);
}

static void chat_go_on(frisbee_pool *pool, const frisbee_rpc *rpc) {
    kept_line *kept = (kept_line *)frisbee_rpc_state(pool, rpc);
    if (!kept || echo_Echo_Chat_reply(pool, rpc, &kept->line) != FRISBEE_OK) return; // on_writable or on_close comes again
    free(kept);
    (void)frisbee_rpc_set_state(pool, rpc, NULL);
    (void)frisbee_rpc_pause(pool, rpc, false);
}

static void on_writable(frisbee_pool *pool, const frisbee_rpc *rpc, void *user) {
    (void)user;
    if (strcmp(rpc->method->name, "Again") == 0) again_go_on(pool, rpc);
    if (strcmp(rpc->method->name, "Chat") == 0) chat_go_on(pool, rpc);
}

static void on_close(frisbee_pool *pool, const frisbee_rpc *rpc, frisbee_result reason, void *user) {
    (void)user;
    (void)reason;
    free(frisbee_rpc_state(pool, rpc));
}

static int failed(const char *what, frisbee_result result) {
    fprintf(stderr, "echo_server: %s: %s\n", what, frisbee_result_string(result));
    return 1;
}

int main(int argc, char **argv) {
    static const echo_Echo_functions functions = {say, ponder, again, count, chat};
    static const frisbee_rpc_events events = {NULL, on_writable, on_close};
    char bound[128];
    frisbee_pool *pool;
    frisbee_listener listener;
    frisbee_result result;

    if ((result = frisbee_pool_create(NULL, &pool)) != FRISBEE_OK) return failed("pool", result);
    if ((result = echo_Echo_serve(pool, &functions, &events, NULL)) != FRISBEE_OK) return failed("serve", result); // before listening
    if ((result = frisbee_listen(pool, argc > 1 ? argv[1] : "127.0.0.1:7780", NULL, &listener)) != FRISBEE_OK) return failed("listen", result);
    if ((result = frisbee_listener_address(pool, listener, bound, sizeof bound)) != FRISBEE_OK) return failed("address", result);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    printf("listening on %s\n", bound);
    fflush(stdout);

    do {
        result = frisbee_poll(pool, thoughts ? 20 : 1000);
        answer_thoughts(pool);
    } while (!stopping && (result == FRISBEE_OK || result == FRISBEE_AGAIN));

    frisbee_pool_destroy(pool);
    answer_thoughts(NULL);
    return 0;
}
