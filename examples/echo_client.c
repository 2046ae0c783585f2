// echo_client.c - calls echo_server.c: once and waiting for the reply, then 100,000 times with 5,000 calls in flight.
//
//     cc -I.. echo_client.c -o echo_client
//     ./echo_client [address]            default 127.0.0.1:7777
//
// Shows: a blocking call, calls in the background with their outcomes, one connection for all of them. Exits 0 if every reply was right.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { OP_ECHO = 10, CALLS = 100000, IN_FLIGHT = 5000 };

typedef struct client {
    frisbee_conn conn;
    unsigned started, right, wrong;
} client;

// One call in flight. As soon as it has ended, the slot starts the next one.
typedef struct slot {
    client *owner;
    char text[32]; // what was sent: sending copies, so this is only kept to compare
    size_t length;
} slot;

static slot slots[IN_FLIGHT];

static void on_reply(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user);

static frisbee_result start_call(frisbee_pool *pool, slot *s) {
    frisbee_call_desc desc = {0};
    desc.on_reply = on_reply;
    desc.user = s;
    desc.timeout_ms = 10000;
    s->length = (size_t)snprintf(s->text, sizeof s->text, "call %u", s->owner->started);
    frisbee_result result = frisbee_call(pool, s->owner->conn, OP_ECHO, s->text, s->length, &desc, NULL);
    if (result == FRISBEE_OK) s->owner->started++;
    return result;
}

static void on_reply(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    slot *s = (slot *)user;
    client *c = s->owner;
    frisbee_result result = outcome->result;
    (void)call;
    if (result == FRISBEE_OK && outcome->length == s->length && memcmp(outcome->data, s->text, s->length) == 0) {
        c->right++;
    } else {
        if (!c->wrong++) fprintf(stderr, "\"%s\" ended with %s\n", s->text, frisbee_result_string(result));
        if (result == FRISBEE_OK) result = FRISBEE_MALFORMED;
    }
    if (result == FRISBEE_OK && c->started < CALLS) result = start_call(pool, s);
    if (result != FRISBEE_OK || c->right + c->wrong == CALLS) frisbee_stop(pool);
}

static int failed(const char *what, frisbee_result result) {
    fprintf(stderr, "echo_client: %s: %s\n", what, frisbee_result_string(result));
    return 1;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:7777";
    frisbee_pool *pool;
    frisbee_outcome outcome = {0};
    frisbee_result result;
    client c = {{0}, 0, 0, 0};
    double begin;

    if ((result = frisbee_pool_create(NULL, &pool)) != FRISBEE_OK) return failed("pool", result);
    if ((result = frisbee_connect(pool, address, NULL, &c.conn)) != FRISBEE_OK) return failed(address, result);

    // Blocking: nothing else to do meanwhile. The call is queued until the connection stands.
    if ((result = frisbee_call_wait(pool, c.conn, OP_ECHO, "hello", 5, 2000, &outcome)) != FRISBEE_OK)
        return failed(address, outcome.reason ? outcome.reason : result); // REFUSED says more than NOT_SENT
    printf("one call: sent \"hello\", got \"%.*s\"\n", (int)outcome.length, (const char *)outcome.data);

    // In the background: all replies come to on_reply, which keeps 5,000 calls under way until 100,000 have ended.
    begin = seconds();
    for (int i = 0; i < IN_FLIGHT; i++) {
        slots[i].owner = &c;
        if ((result = start_call(pool, &slots[i])) != FRISBEE_OK) return failed("call", result);
    }
    if ((result = frisbee_run(pool)) != FRISBEE_OK) return failed("run", result);
    printf("%u calls, %d in flight at a time: %u right, %u wrong, %.2f s\n", c.started, IN_FLIGHT, c.right, c.wrong, seconds() - begin);
    frisbee_pool_destroy(pool);
    return c.right == CALLS ? 0 : 1;
}
