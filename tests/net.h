// net.h - what the tests over real sockets share: pools with a strict allocator, deadlines, raw peers that speak hand-written bytes,
// records of what was called back, and counts of descriptors, turns and CPU time. Included behind frisbee.h and its implementation.
#ifndef NET_H
#define NET_H

#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__GNUC__)
#define MAYBE_UNUSED __attribute__((unused)) // no suite uses every helper
#else
#define MAYBE_UNUSED
#endif

enum {
    WAIT_MS = 10000,      // what should happen has happened by then, or the check fails
    STREAM_OPERATION = 2, // on the wire; ours below are the routes of `usual_routes`
    ECHO = 10,
    SWALLOW = 11, // a route that never answers
    LATER = 12,   // a route that defers; answer_later() answers
    NOBODY = 13,  // no route
    MEBIBYTE = 1 << 20
};

static MAYBE_UNUSED uint64_t clock_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

static MAYBE_UNUSED uint64_t now_ms(void) { return clock_ms(CLOCK_MONOTONIC); }

static MAYBE_UNUSED void sleep_ms(int ms) {
    struct timespec t;
    t.tv_sec = ms / 1000;
    t.tv_nsec = (long)(ms % 1000) * 1000000;
    nanosleep(&t, NULL);
}

// A test that hangs in spite of its deadlines is killed, which fails the suite.
static MAYBE_UNUSED void watchdog(unsigned seconds) { alarm(seconds); }

static MAYBE_UNUSED int count_descriptors(void) {
    int fd, count = 0;
    for (fd = 0; fd < 4096; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

// >>bytes

static MAYBE_UNUSED void fill(void *data, size_t length, uint32_t seed) {
    uint8_t *bytes = (uint8_t *)data;
    size_t i;
    for (i = 0; i < length; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

static MAYBE_UNUSED uint64_t hash_more(uint64_t hash, const void *data, size_t length) { // FNV-1a
    const uint8_t *bytes = (const uint8_t *)data;
    size_t i;
    for (i = 0; i < length; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static MAYBE_UNUSED uint64_t hash_of(const void *data, size_t length) { return hash_more(14695981039346656037u, data, length); }

static MAYBE_UNUSED size_t put16(uint8_t *out, unsigned value) {
    out[0] = (uint8_t)(value >> 8);
    out[1] = (uint8_t)value;
    return 2;
}

// Writes a packet by hand, not with frisbee_encode: wire is 0 or 1. `claimed` is what the header says, `length` what follows it.
static MAYBE_UNUSED size_t put_claim(uint8_t *out, int wire, unsigned operation, unsigned id, uint32_t claimed, const void *payload,
                                     size_t length) {
    size_t n = wire ? put16(out, 0x000F) : 0;
    n += put16(out + n, id);
    n += put16(out + n, operation);
    n += put16(out + n, claimed >> 16);
    n += put16(out + n, claimed & 0xFFFF);
    if (length) memcpy(out + n, payload, length);
    return n + length;
}

static MAYBE_UNUSED size_t put_packet(uint8_t *out, int wire, unsigned operation, unsigned id, const void *payload, size_t length) {
    return put_claim(out, wire, operation, id, (uint32_t)length, payload, length);
}

// >>allocator: verifies the sizes that are passed back, always moves on resize, and poisons what is freed

static struct { long blocks; long long bytes; } held;

typedef union { size_t size; long double align; void *pointer; } held_header;

static MAYBE_UNUSED void *held_allocate(void *context, size_t size) {
    held_header *h = (held_header *)malloc(sizeof *h + size);
    (void)context;
    if (!h) return NULL;
    h->size = size;
    held.blocks++;
    held.bytes += (long long)size;
    memset(h + 1, 0xA5, size);
    return h + 1;
}

static MAYBE_UNUSED void held_release(void *context, void *block, size_t size) {
    held_header *h = (held_header *)block - 1;
    (void)context;
    if (!block) return;
    CHECK_EQ(size, h->size);
    held.blocks--;
    held.bytes -= (long long)h->size;
    memset(block, 0xDD, h->size);
    free(h);
}

static MAYBE_UNUSED void *held_resize(void *context, void *block, size_t old_size, size_t size) {
    void *moved = held_allocate(context, size);
    if (moved && block) {
        memcpy(moved, block, old_size < size ? old_size : size);
        held_release(context, block, old_size);
    }
    return moved;
}

// >>pools: a case calls begin(), makes pools with new_pool, and ends with end(), which destroys them and balances the books

enum { LIVE_MAX = 4 };
static frisbee_pool *live[LIVE_MAX];
static int begun_descriptors;

static MAYBE_UNUSED void begin(void) {
    memset(live, 0, sizeof live);
    memset(&held, 0, sizeof held);
    begun_descriptors = count_descriptors();
}

static MAYBE_UNUSED frisbee_pool *new_pool(const frisbee_pool_desc *given) {
    frisbee_pool_desc desc;
    frisbee_pool *pool = NULL;
    int i;
    memset(&desc, 0, sizeof desc);
    if (given) desc = *given;
    desc.allocator.allocate = held_allocate;
    desc.allocator.resize = held_resize;
    desc.allocator.release = held_release;
    CHECK_EQ(frisbee_pool_create(&desc, &pool), FRISBEE_OK);
    if (!pool) {
        fprintf(stderr, "no pool, nothing to test\n");
        exit(1);
    }
    for (i = 0; i < LIVE_MAX && live[i]; i++) {}
    if (CHECK(i < LIVE_MAX)) live[i] = pool;
    return pool;
}

static MAYBE_UNUSED void drop_pool(frisbee_pool *pool) {
    int i;
    for (i = 0; i < LIVE_MAX; i++)
        if (live[i] == pool) live[i] = NULL;
    frisbee_pool_destroy(pool);
}

static MAYBE_UNUSED void end(void) {
    uint64_t deadline = now_ms() + WAIT_MS;
    int i;
    for (i = 0; i < LIVE_MAX; i++)
        if (live[i]) drop_pool(live[i]);
    while ((count_descriptors() != begun_descriptors || held.blocks) && now_ms() < deadline) sleep_ms(5); // a look-up's thread may end late
    CHECK_EQ(count_descriptors(), begun_descriptors);
    CHECK_EQ(held.blocks, 0);
    CHECK_EQ(held.bytes, 0);
}

// One turn of every pool; the last one may wait.
static MAYBE_UNUSED void turn(int32_t wait_ms) {
    int i, last = -1;
    for (i = 0; i < LIVE_MAX; i++)
        if (live[i]) last = i;
    for (i = 0; i <= last; i++) {
        frisbee_pool *pool = live[i];
        if (!pool) continue;
        if (frisbee_poll(pool, i == last ? wait_ms : 0) == FRISBEE_DESTROYED) {
            live[i] = NULL;
            continue;
        }
        CHECK(frisbeei_check(pool));
    }
    if (last < 0 && wait_ms > 0) sleep_ms(1);
}

// Turns the pools until the condition holds; that it does in the end is a check.
#define WAIT_FOR(condition)                                                                       \
    do {                                                                                          \
        uint64_t wait_end_ = now_ms() + WAIT_MS;                                                  \
        int wait_turns_ = 0;                                                                      \
        while (!(condition) && now_ms() < wait_end_) turn(wait_turns_++ < 50 ? 0 : 1);            \
        CHECK(condition);                                                                         \
    } while (0)

static MAYBE_UNUSED void turns(int count) {
    while (count-- > 0) turn(0);
}

static MAYBE_UNUSED void turn_for(int ms) {
    uint64_t deadline = now_ms() + (uint64_t)ms;
    while (now_ms() < deadline) turn(1);
}

// How many turns the loop takes while nothing should happen: a loop that spins takes thousands, or all of the CPU inside one.
static MAYBE_UNUSED int idle_turns(frisbee_pool *pool, int ms) {
    uint64_t start = now_ms(), cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    int count = 0;
    while (now_ms() - start < (uint64_t)ms && count < 100000) {
        frisbee_poll(pool, ms - (int32_t)(now_ms() - start));
        count++;
    }
    if (clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu > (uint64_t)ms / 2) count = 100000;
    return count;
}

#define CHECK_IDLE(pool) CHECK(idle_turns(pool, 200) <= 10)

// >>records: what was called back. A pointer to one is the connections' user pointer.

struct record {
    frisbee_conn conn; // the last one that was heard of
    int opened, closed, finals, ended, writable, packets;
    frisbee_close_info info; // of the last on_close
    uint64_t bytes, hash;    // payloads of all packets that no route took, in order
};

static MAYBE_UNUSED void record_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    struct record *r = (struct record *)user;
    (void)pool;
    r->conn = conn;
    r->opened++;
}

static MAYBE_UNUSED void record_packet(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    struct record *r = (struct record *)user;
    (void)pool;
    r->packets++;
    r->bytes += packet->length;
    r->hash = hash_more(hash_more(r->hash, &packet->from.id, sizeof packet->from.id), packet->data, packet->length);
}

static MAYBE_UNUSED void record_writable(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)pool;
    (void)conn;
    ((struct record *)user)->writable++;
}

static MAYBE_UNUSED void record_end(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)pool;
    (void)conn;
    ((struct record *)user)->ended++;
}

static MAYBE_UNUSED void record_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    struct record *r = (struct record *)user;
    (void)pool;
    r->conn = conn;
    r->closed++;
    r->finals += info->retry_ms == FRISBEE_NEVER;
    r->info = *info;
}

static MAYBE_UNUSED const frisbee_events record_events = {record_open, record_packet, record_writable, NULL, record_close};
static MAYBE_UNUSED const frisbee_events record_events_and_end = {record_open, record_packet, record_writable, record_end, record_close};

struct reply { // what became of one call
    int count;
    frisbee_result result;
    bool sent;
    uint32_t length;
    uint64_t hash;
};

static MAYBE_UNUSED void record_reply(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    struct reply *r = (struct reply *)user;
    (void)pool;
    (void)call;
    r->count++;
    r->result = outcome->result;
    r->sent = outcome->sent;
    r->length = outcome->result == FRISBEE_OK ? outcome->length : 0;
    r->hash = outcome->result == FRISBEE_OK ? hash_of(outcome->data, outcome->length) : 0;
}

static MAYBE_UNUSED frisbee_result call(frisbee_pool *pool, frisbee_conn conn, uint16_t operation, const void *data, size_t length,
                                        int32_t timeout_ms, struct reply *reply, frisbee_call_id *id) {
    frisbee_call_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(reply, 0, sizeof *reply);
    desc.timeout_ms = timeout_ms;
    desc.on_reply = record_reply;
    desc.user = reply;
    return frisbee_call(pool, conn, operation, data, length, &desc, id);
}

static MAYBE_UNUSED void count_release(void *user) { ++*(int *)user; }

// >>the usual server: routes, and a description without heartbeats that records

enum { LATER_MAX = 65536 };
static frisbee_origin *later_origins;
static int later_count;

static MAYBE_UNUSED void route_echo(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    frisbee_reply(pool, &packet->from, packet->data, packet->length);
}

static MAYBE_UNUSED void route_swallow(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)pool;
    (void)packet;
    (void)user;
}

static MAYBE_UNUSED void route_later(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    if (!later_origins) later_origins = (frisbee_origin *)malloc(LATER_MAX * sizeof *later_origins);
    if (later_origins && later_count < LATER_MAX && frisbee_defer(pool, packet, &later_origins[later_count]) == FRISBEE_OK) later_count++;
}

// Answers the deferred requests, the newest first.
static MAYBE_UNUSED frisbee_result answer_later(frisbee_pool *pool, const void *data, size_t length) {
    frisbee_result result = FRISBEE_OK;
    while (later_count > 0 && !result) result = frisbee_reply(pool, &later_origins[--later_count], data, length);
    later_count = 0;
    free(later_origins);
    later_origins = NULL;
    return result;
}

static MAYBE_UNUSED const frisbee_route usual_routes[] = {{ECHO, route_echo, NULL}, {SWALLOW, route_swallow, NULL}, {LATER, route_later, NULL}};

static MAYBE_UNUSED frisbee_conn_desc quiet(struct record *record) {
    frisbee_conn_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.user = record;
    desc.events = &record_events;
    desc.routes = usual_routes;
    desc.route_count = sizeof usual_routes / sizeof *usual_routes;
    desc.heartbeat_ms = FRISBEE_NEVER;
    return desc;
}

struct server {
    frisbee_pool *pool;
    frisbee_listener listener;
    char address[128];
    struct record seen; // of all its connections
};

static MAYBE_UNUSED void serve_at(struct server *s, const char *address, const frisbee_conn_desc *given, const frisbee_pool_desc *pool_desc) {
    frisbee_conn_desc desc = quiet(&s->seen);
    memset(s, 0, sizeof *s);
    if (given) desc = *given;
    if (!desc.user) desc.user = &s->seen;
    s->pool = new_pool(pool_desc);
    CHECK_EQ(frisbee_listen(s->pool, address, &desc, &s->listener), FRISBEE_OK);
    CHECK_EQ(frisbee_listener_address(s->pool, s->listener, s->address, sizeof s->address), FRISBEE_OK);
}

static MAYBE_UNUSED void serve(struct server *s, const frisbee_conn_desc *given) { serve_at(s, "127.0.0.1:0", given, NULL); }

// >>raw peers: plain non-blocking sockets of the test itself; whoever waits on one turns the pools meanwhile

static MAYBE_UNUSED void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// "127.0.0.1:7", "[::1]:7" or "unix:/path" to a socket address. 0: not understood.
static MAYBE_UNUSED socklen_t parse_address(const char *text, struct sockaddr_storage *into) {
    memset(into, 0, sizeof *into);
    if (strncmp(text, "unix:", 5) == 0) {
        struct sockaddr_un *u = (struct sockaddr_un *)into;
        u->sun_family = AF_UNIX;
        if (strlen(text + 5) >= sizeof u->sun_path) return 0;
        memcpy(u->sun_path, text + 5, strlen(text + 5) + 1);
        return (socklen_t)sizeof *u;
    } else {
        const char *colon = strrchr(text, ':');
        struct addrinfo hints, *found = NULL;
        char host[64];
        size_t n = colon ? (size_t)(colon - text) : 0;
        socklen_t length;
        if (!colon || n >= sizeof host) return 0;
        if (n >= 2 && text[0] == '[') text++, n -= 2;
        memcpy(host, text, n);
        host[n] = 0;
        memset(&hints, 0, sizeof hints);
        hints.ai_flags = AI_NUMERICHOST;
        hints.ai_socktype = SOCK_STREAM;
        if (getaddrinfo(host, colon + 1, &hints, &found) || !found) return 0;
        memcpy(into, found->ai_addr, found->ai_addrlen);
        length = found->ai_addrlen;
        freeaddrinfo(found);
        return length;
    }
}

static MAYBE_UNUSED int raw_connect(const char *address) {
    struct sockaddr_storage to;
    socklen_t length = parse_address(address, &to);
    int fd = length ? socket(to.ss_family, SOCK_STREAM, 0) : -1, one = 1;
    int connected = fd >= 0 && connect(fd, (struct sockaddr *)&to, length) == 0;
    if (!CHECK(connected)) {
        if (fd >= 0) close(fd);
        return -1;
    }
    if (to.ss_family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    set_nonblocking(fd);
    return fd;
}

// Bound to a free port of 127.0.0.1; backlog below 0: not listening, so that connecting is refused.
static MAYBE_UNUSED int raw_listen(int backlog, char address[64]) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, length) == 0 && getsockname(fd, (struct sockaddr *)&at, &length) == 0);
    if (backlog >= 0) CHECK(listen(fd, backlog) == 0);
    snprintf(address, 64, "127.0.0.1:%d", ntohs(at.sin_port));
    set_nonblocking(fd);
    return fd;
}

static MAYBE_UNUSED int raw_accept(int listener) {
    uint64_t deadline = now_ms() + WAIT_MS;
    int fd;
    while ((fd = accept(listener, NULL, NULL)) < 0 && now_ms() < deadline) turn(1);
    if (CHECK(fd >= 0)) set_nonblocking(fd);
    return fd;
}

// Two ends of one TCP connection (a[0] connected to a[1]).
static MAYBE_UNUSED void raw_pair(int a[2]) {
    char address[64];
    int listener = raw_listen(1, address);
    a[0] = raw_connect(address);
    a[1] = raw_accept(listener);
    close(listener);
}

static MAYBE_UNUSED size_t raw_send(int fd, const void *data, size_t length) {
    uint64_t deadline = now_ms() + WAIT_MS;
    size_t sent = 0;
    while (sent < length && now_ms() < deadline) {
        ssize_t n = send(fd, (const char *)data + sent, length - sent, MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR) break;
        else turn(1);
    }
    return sent;
}

// Reads `length` bytes; fewer: the stream ended, or the deadline passed.
static MAYBE_UNUSED size_t raw_receive(int fd, void *into, size_t length) {
    uint64_t deadline = now_ms() + WAIT_MS;
    size_t got = 0;
    int idle = 0;
    while (got < length && now_ms() < deadline) {
        ssize_t n = recv(fd, (char *)into + got, length - got, 0);
        if (n > 0) got += (size_t)n, idle = 0;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR)) break;
        else turn(idle++ < 50 ? 0 : 1);
    }
    return got;
}

// What lies ready, without waiting and without turning a pool.
static MAYBE_UNUSED size_t raw_ready(int fd, void *into, size_t room) {
    ssize_t n = recv(fd, into, room, 0);
    return n > 0 ? (size_t)n : 0;
}

enum raw_end { RAW_OPEN, RAW_DATA, RAW_FIN, RAW_RESET };

// Waits for the end of what the peer sends.
static MAYBE_UNUSED enum raw_end raw_ended(int fd) {
    uint64_t deadline = now_ms() + WAIT_MS;
    while (now_ms() < deadline) {
        char byte;
        ssize_t n = recv(fd, &byte, 1, 0);
        if (n > 0) return RAW_DATA;
        if (n == 0) return RAW_FIN;
        if (errno != EAGAIN && errno != EINTR) return RAW_RESET;
        turn(1);
    }
    return RAW_OPEN;
}

static MAYBE_UNUSED void raw_reset(int fd) { // closes with RST
    struct linger l;
    l.l_onoff = 1;
    l.l_linger = 0;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    close(fd);
}

struct raw_packet { unsigned operation, id; uint32_t length; };

// Reads the next packet, PINGs and PONGs included, and as much of its payload as there is room for.
static MAYBE_UNUSED int raw_packet(int fd, int wire, struct raw_packet *packet, void *payload, size_t room) {
    uint8_t head[10], *h = head + (wire ? 2 : 0);
    size_t size = wire ? 10 : 8, got;
    memset(packet, 0, sizeof *packet);
    got = raw_receive(fd, head, size);
    if (got != size) return 0;
    if (wire && (head[0] != 0x00 || head[1] != 0x0F)) return 0;
    packet->id = (unsigned)(h[0] << 8 | h[1]);
    packet->operation = (unsigned)(h[2] << 8 | h[3]);
    packet->length = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | (uint32_t)h[7];
    if (packet->length > room) return 0;
    return !packet->length || raw_receive(fd, payload, packet->length) == packet->length;
}

// Sends a request and checks that its echo comes back, byte by byte; heartbeats in between are skipped.
static MAYBE_UNUSED int raw_echo(int fd, int wire, unsigned id, const void *data, size_t length) {
    uint8_t out[512], in[512];
    struct raw_packet reply;
    size_t n = put_packet(out, wire, ECHO, id, data, length);
    if (raw_send(fd, out, n) != n) return 0;
    do {
        if (!raw_packet(fd, wire, &reply, in, sizeof in)) return 0;
    } while (reply.operation <= 1);
    return reply.operation == ECHO && reply.id == id && reply.length == length && memcmp(in, data, length) == 0;
}

#endif
