// demo.c - what frisbee.h is for, in two processes: request and reply, pipelined calls, a call that times out, a reply that comes later, and a
// connection that is hijacked and carries raw bytes from then on. Says what it did; exits 0 only if all of it was right.
//
//     make demo                           or: cc -I.. demo.c -o demo && ./demo
//
// Takes less than a second; never longer than ten.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    OP_ADD = 10, // two u32 -> their sum
    OP_IGNORE,   // never answered
    OP_WAIT,     // answered with the payload of the next OP_TELL
    OP_TELL,     // -> u32: how many waited
    OP_RAW,      // -> "raw", and then the connection is hijacked on both sides
};
enum { CALLS = 50000, IN_FLIGHT = 1000, WAITING = 3, TIMEOUT_MS = 200, RAW_BYTES = 4 * 1024 * 1024, PATIENCE_MS = 5000, LIMIT_S = 10 };
static const uint32_t client_seed = 0x1234567, server_seed = 0x89ABCDE;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint32_t get_u32(const void *data) {
    const uint8_t *b = (const uint8_t *)data;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void put_u32(uint8_t *b, uint32_t value) {
    for (int i = 0; i < 4; i++) b[i] = (uint8_t)(value >> (24 - 8 * i));
}

// ---- after the hijack, on both sides: a socket without Frisbee

typedef struct raw {
    int socket;
    uint8_t *unread; // a copy of what was read behind the last packet
    size_t unread_length;
    frisbee_result result;
    bool done;
} raw;

static void on_hijacked(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    raw *r = (raw *)user;
    (void)conn;
    r->done = true;
    r->result = hijacked->result;
    if (hijacked->result == FRISBEE_OK) {
        r->socket = (int)hijacked->socket; // non-blocking, and ours from now on
        r->unread_length = hijacked->unread.length;
        if (r->unread_length && !(r->unread = (uint8_t *)malloc(r->unread_length))) r->result = FRISBEE_NO_MEMORY;
        else if (r->unread_length) memcpy(r->unread, hijacked->unread.data, r->unread_length);
    }
    frisbee_stop(pool);
}

static uint8_t raw_byte(uint32_t seed, size_t index) {
    uint32_t mixed = (seed + (uint32_t)index) * 2654435761u;
    return (uint8_t)(mixed >> 24);
}

// Sends RAW_BYTES made from our seed and receives as many made from theirs, both at once. True if all came, in order, and then the end.
static bool exchange_raw(raw *r, uint32_t ours, uint32_t theirs) {
    static uint8_t out[65536], in[65536];
    size_t sent = 0, received = 0, wrong = 0;
    bool ended = false;
    for (; received < r->unread_length; received++) wrong += r->unread[received] != raw_byte(theirs, received);
    while (!ended || sent < RAW_BYTES) {
        struct pollfd ready = {0, 0, 0};
        ready.fd = r->socket;
        ready.events = (short)((ended ? 0 : POLLIN) | (sent < RAW_BYTES ? POLLOUT : 0));
        if (poll(&ready, 1, PATIENCE_MS) <= 0) break;
        if (sent < RAW_BYTES && (ready.revents & POLLOUT)) {
            size_t count = RAW_BYTES - sent < sizeof out ? RAW_BYTES - sent : sizeof out;
            ssize_t n;
            for (size_t i = 0; i < count; i++) out[i] = raw_byte(ours, sent + i);
            n = send(r->socket, out, count, MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN && errno != EINTR) break;
            if (n > 0) sent += (size_t)n;
            if (sent == RAW_BYTES) shutdown(r->socket, SHUT_WR);
        }
        if (ready.revents & (POLLIN | POLLHUP | POLLERR)) {
            ssize_t n = recv(r->socket, in, sizeof in, 0);
            if (n < 0 && errno != EAGAIN && errno != EINTR) break;
            for (ssize_t i = 0; i < n; i++, received++) wrong += in[i] != raw_byte(theirs, received);
            if (n == 0) ended = true;
        }
    }
    free(r->unread);
    close(r->socket);
    return ended && sent == RAW_BYTES && received == RAW_BYTES && !wrong;
}

// ---- the server's process

static struct {
    frisbee_origin waiting[WAITING];
    uint32_t waiting_count;
    raw link;
    unsigned wrong;
} server;

static void answer(frisbee_pool *pool, const frisbee_origin *to, const void *data, size_t length) {
    if (frisbee_reply(pool, to, data, length)) server.wrong++;
}

static void on_add(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    uint8_t sum[4];
    (void)user;
    if (packet->length != 8) {
        server.wrong++;
        return;
    }
    put_u32(sum, get_u32(packet->data) + get_u32((const uint8_t *)packet->data + 4));
    answer(pool, &packet->from, sum, sizeof sum);
}

static void on_ignore(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)pool, (void)packet, (void)user; // a handler need not answer
}

static void on_wait(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    if (server.waiting_count == WAITING || frisbee_defer(pool, packet, &server.waiting[server.waiting_count])) server.wrong++;
    else server.waiting_count++;
}

static void on_tell(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    uint8_t count[4];
    (void)user;
    for (uint32_t i = 0; i < server.waiting_count; i++) answer(pool, &server.waiting[i], packet->data, packet->length);
    put_u32(count, server.waiting_count);
    server.waiting_count = 0;
    answer(pool, &packet->from, count, sizeof count);
}

static void on_raw(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    answer(pool, &packet->from, "raw", 3); // still a packet: the fence comes behind it
    if (frisbee_hijack(pool, packet->from.conn, FRISBEE_HIJACK_FENCED, PATIENCE_MS, on_hijacked, &server.link)) {
        server.wrong++;
        frisbee_stop(pool);
    }
}

// `report` is a pipe on which the address goes to the client.
static int run_server(int report) {
    static const frisbee_route routes[] = {
        {OP_ADD, on_add, NULL}, {OP_IGNORE, on_ignore, NULL}, {OP_WAIT, on_wait, NULL}, {OP_TELL, on_tell, NULL}, {OP_RAW, on_raw, NULL}};
    frisbee_pool *pool;
    frisbee_conn_desc desc = {0};
    frisbee_listener listener;
    char address[64] = "";
    bool good;
    desc.routes = routes;
    desc.route_count = sizeof routes / sizeof routes[0];
    if (frisbee_pool_create(NULL, &pool)) return 1;
    if (frisbee_listen(pool, "127.0.0.1:0", &desc, &listener)) return 1;
    if (frisbee_listener_address(pool, listener, address, sizeof address)) return 1;
    if (write(report, address, sizeof address) != (ssize_t)sizeof address) return 1;
    good = frisbee_run(pool) == FRISBEE_OK && server.link.done && server.link.result == FRISBEE_OK && !server.wrong; // until on_hijacked
    frisbee_pool_destroy(pool); // the hijacked socket is no longer its business
    return good && exchange_raw(&server.link, server_seed, client_seed) ? 0 : 1;
}

// ---- the client's process

static unsigned failures;

static void report_part(const char *part, bool good, const char *what) {
    printf("%-22s %s  %s\n", part, good ? "ok    " : "FAILED", what);
    fflush(stdout);
    if (!good) failures++;
}

static void ask_once(frisbee_pool *pool, frisbee_conn conn) {
    uint8_t numbers[8];
    char text[160];
    frisbee_outcome outcome;
    frisbee_result result;
    uint32_t sum = 0;
    put_u32(numbers, 40);
    put_u32(numbers + 4, 2);
    result = frisbee_call_wait(pool, conn, OP_ADD, numbers, sizeof numbers, PATIENCE_MS, &outcome);
    if (result == FRISBEE_OK && outcome.length == 4) sum = get_u32(outcome.data);
    snprintf(text, sizeof text, "asked for 40 + 2, was told %u (%s)", (unsigned)sum, frisbee_result_string(result));
    report_part("request and reply", sum == 42, text);
}

static struct {
    frisbee_conn conn;
    uint32_t started, right, wrong;
} pipeline;

static void on_sum(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user);

// `user` of a call is its number.
static bool start_sum(frisbee_pool *pool) {
    uint8_t numbers[8];
    frisbee_call_desc desc = {0};
    desc.on_reply = on_sum;
    desc.user = (void *)(uintptr_t)pipeline.started;
    put_u32(numbers, pipeline.started);
    put_u32(numbers + 4, 1000000);
    if (frisbee_call(pool, pipeline.conn, OP_ADD, numbers, sizeof numbers, &desc, NULL)) return false;
    pipeline.started++;
    return true;
}

static void on_sum(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    bool good = outcome->result == FRISBEE_OK && outcome->length == 4 && get_u32(outcome->data) == (uint32_t)(uintptr_t)user + 1000000;
    (void)call;
    if (good) pipeline.right++;
    else pipeline.wrong++;
    if (pipeline.started < CALLS && !start_sum(pool)) pipeline.wrong++;
    if (pipeline.wrong || pipeline.right == CALLS) frisbee_stop(pool);
}

static void ask_many(frisbee_pool *pool, frisbee_conn conn) {
    char text[160];
    double begin = seconds(), took;
    pipeline.conn = conn;
    while (pipeline.started < IN_FLIGHT && !pipeline.wrong)
        if (!start_sum(pool)) pipeline.wrong++;
    if (!pipeline.wrong && frisbee_run(pool)) pipeline.wrong++;
    took = seconds() - begin;
    snprintf(text, sizeof text, "%u calls on one connection, %d in flight: %u right, %u wrong, %.0f ms, %.0f calls a second",
             (unsigned)pipeline.started, IN_FLIGHT, (unsigned)pipeline.right, (unsigned)pipeline.wrong, took * 1e3, pipeline.right / took);
    report_part("pipelined calls", pipeline.right == CALLS && !pipeline.wrong, text);
}

static void ask_in_vain(frisbee_pool *pool, frisbee_conn conn) {
    char text[160];
    double begin = seconds(), took;
    frisbee_outcome outcome;
    frisbee_result result = frisbee_call_wait(pool, conn, OP_IGNORE, NULL, 0, TIMEOUT_MS, &outcome);
    took = seconds() - begin;
    snprintf(text, sizeof text, "nobody answered for %d ms: %s after %.0f ms, the connection lives on", TIMEOUT_MS,
             frisbee_result_string(result), took * 1e3);
    report_part("a timed-out call", result == FRISBEE_TIMED_OUT && took * 1e3 >= TIMEOUT_MS, text);
}

static unsigned told; // waiting calls that were answered with the right words

static void on_told(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call, (void)user;
    if (outcome->result == FRISBEE_OK && outcome->length == 4 && memcmp(outcome->data, "news", 4) == 0) told++;
}

static void ask_and_wait(frisbee_pool *pool, frisbee_conn conn) {
    char text[160];
    frisbee_outcome outcome = {0};
    frisbee_call_desc desc = {0};
    frisbee_result result = FRISBEE_OK;
    bool early;
    desc.on_reply = on_told;
    for (int i = 0; i < WAITING && !result; i++) result = frisbee_call(pool, conn, OP_WAIT, NULL, 0, &desc, NULL);
    frisbee_poll(pool, 50);
    early = told != 0;
    // A connection keeps the order of its packets: the deferred replies have come when this one has.
    if (!result) result = frisbee_call_wait(pool, conn, OP_TELL, "news", 4, PATIENCE_MS, &outcome);
    snprintf(text, sizeof text, "%d calls waited until a later call brought news, then %u were told (%s)", WAITING, told,
             frisbee_result_string(result));
    report_part("deferred replies", !result && !early && told == WAITING && outcome.length == 4 && get_u32(outcome.data) == WAITING, text);
}

static void go_raw(frisbee_pool *pool, frisbee_conn conn) {
    static raw link;
    char text[160];
    double begin = seconds();
    frisbee_outcome outcome;
    bool good = frisbee_call_wait(pool, conn, OP_RAW, NULL, 0, PATIENCE_MS, &outcome) == FRISBEE_OK &&
                frisbee_hijack(pool, conn, FRISBEE_HIJACK_FENCED, PATIENCE_MS, on_hijacked, &link) == FRISBEE_OK &&
                frisbee_run(pool) == FRISBEE_OK && link.done && link.result == FRISBEE_OK;
    size_t unread = good ? link.unread_length : 0;
    good = good && exchange_raw(&link, client_seed, server_seed);
    snprintf(text, sizeof text, "the socket changed hands with %zu bytes read ahead, then %d raw bytes went each way, %s, %.0f ms", unread,
             RAW_BYTES, good ? "each checked" : "or did not", (seconds() - begin) * 1e3);
    report_part("hijack", good, text);
}

static int run_client(const char *address) {
    frisbee_pool *pool;
    frisbee_conn conn;
    if (frisbee_pool_create(NULL, &pool)) return 1;
    if (frisbee_connect(pool, address, NULL, &conn)) return 1;
    ask_once(pool, conn);
    ask_many(pool, conn);
    ask_in_vain(pool, conn);
    ask_and_wait(pool, conn);
    go_raw(pool, conn);
    frisbee_pool_destroy(pool);
    return failures != 0;
}

int main(void) {
    char address[64] = "", text[160];
    int report[2], client_status, status = 0;
    pid_t child;
    bool good;
    if (pipe(report)) return 1;
    if ((child = fork()) < 0) return 1;
    alarm(LIMIT_S); // in both processes: whatever happens, this ends
    if (child == 0) {
        close(report[0]);
        _exit(run_server(report[1]));
    }
    close(report[1]);
    good = read(report[0], address, sizeof address) == (ssize_t)sizeof address;
    printf("frisbee.h %d.%d.%d: process %ld serves %s, process %ld calls it\n", FRISBEE_VERSION / 10000, FRISBEE_VERSION / 100 % 100,
           FRISBEE_VERSION % 100, (long)child, address, (long)getpid());
    fflush(stdout);
    client_status = good ? run_client(address) : 1;
    if (client_status) kill(child, SIGTERM); // it may be waiting for a hijack that does not come
    good = waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    snprintf(text, sizeof text, "found everything right on its side, too, and has ended");
    report_part("the server's process", good, good ? text : "did not end as it should");
    return client_status || failures ? 1 : 0;
}
