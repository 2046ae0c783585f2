// foreign_loop.c - a pool inside a loop that belongs to somebody else, here plain poll() with a descriptor and a timer of its own.
//
//     cc -I.. foreign_loop.c -o foreign_loop
//     ./foreign_loop                      exits 0 if every event arrived
//
// Shows: frisbee_wait_fd (readable when the pool has something to do), frisbee_next_timeout (when it wants to be called in any case), and
// what to do in builds without such a descriptor. The same three lines put a pool into libuv, GLib, Qt or a GUI's loop.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OP_SHOUT = 10, OP_NOBODY = 11, KEYS = 20, KEY_MS = 10, LOST_MS = 300, LIMIT_MS = 10000 };

static unsigned shouted, timed_out, wrong;

static int32_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int32_t)((now.tv_sec & 0xFFFFF) * 1000 + now.tv_nsec / 1000000);
}

static void on_shout(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const char *key = (const char *)packet->data;
    char loud = packet->length == 1 && *key >= 'a' && *key <= 'z' ? (char)(*key - 'a' + 'A') : '?';
    (void)user;
    if (frisbee_reply(pool, &packet->from, &loud, 1)) wrong++;
}

static void on_reply(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call, (void)user;
    if (outcome->result || outcome->length != 1 || *(const char *)outcome->data != (char)('A' + shouted)) wrong++;
    shouted++;
}

static void on_lost(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call, (void)user;
    if (outcome->result != FRISBEE_TIMED_OUT) wrong++;
    timed_out++;
}

static bool start(frisbee_pool *pool, frisbee_conn *conn) {
    frisbee_listener listener;
    frisbee_call_desc lost = {0};
    char address[128];
    lost.timeout_ms = LOST_MS;
    lost.on_reply = on_lost;
    return frisbee_on(pool, OP_SHOUT, on_shout, NULL) == FRISBEE_OK && frisbee_listen(pool, "127.0.0.1:0", NULL, &listener) == FRISBEE_OK &&
           frisbee_listener_address(pool, listener, address, sizeof address) == FRISBEE_OK &&
           frisbee_connect(pool, address, NULL, conn) == FRISBEE_OK &&
           frisbee_call(pool, *conn, OP_NOBODY, NULL, 0, &lost, NULL) == FRISBEE_OK; // nobody answers: only a timeout ends it
}

int main(void) {
    frisbee_pool *pool;
    frisbee_conn conn;
    frisbee_result result = FRISBEE_OK;
    int keyboard[2], typed = 0; // a descriptor of the loop's own; a pipe here, so that the example runs by itself
    int32_t begin = now_ms(), next_key = begin + KEY_MS;

    if (pipe(keyboard) || fcntl(keyboard[0], F_SETFL, O_NONBLOCK)) return 1;
    if (frisbee_pool_create(NULL, &pool)) return 1;
    if (!start(pool, &conn)) return 1;

    while ((shouted < KEYS || !timed_out) && !wrong && now_ms() - begin < LIMIT_MS) {
        struct pollfd ready[2] = {{0, POLLIN, 0}, {0, POLLIN, 0}};
        frisbee_socket wait_fd = frisbee_wait_fd(pool);
        int32_t timeout = frisbee_next_timeout(pool); // ask last, and again in every turn
        char key;

        // Without a descriptor (the poll and none pollers) the pool is looked at every few milliseconds.
        if (wait_fd == FRISBEE_NO_SOCKET && (timeout < 0 || timeout > 2)) timeout = 2;
        if (typed < KEYS) { // a timer of the loop's own
            int32_t left = next_key - now_ms();
            if (left < 0) left = 0;
            if (timeout < 0 || timeout > left) timeout = left;
        }
        ready[0].fd = wait_fd == FRISBEE_NO_SOCKET ? -1 : (int)wait_fd; // poll() skips -1
        ready[1].fd = keyboard[0];
        if (poll(ready, 2, (int)timeout) < 0) return 1;

        if (typed < KEYS && now_ms() - next_key >= 0) { // the timer: somebody presses a key
            key = (char)('a' + typed++);
            next_key += KEY_MS;
            if (write(keyboard[1], &key, 1) != 1) return 1;
        }
        while (read(keyboard[0], &key, 1) == 1) { // the keyboard: each key becomes a call
            frisbee_call_desc desc = {0};
            desc.on_reply = on_reply;
            if (frisbee_call(pool, conn, OP_SHOUT, &key, 1, &desc, NULL)) wrong++;
        }
        result = frisbee_poll(pool, 0); // the pool: never blocks
        if (result && result != FRISBEE_AGAIN) return 1;
    }

    printf("%d keys typed, %u shouted back, %u call timed out as it should, %u wrong\n", typed, shouted, timed_out, wrong);
    frisbee_pool_destroy(pool);
    close(keyboard[0]);
    close(keyboard[1]);
    return shouted == KEYS && timed_out == 1 && !wrong ? 0 : 1;
}
