// test_streams.c - promise 10 and section 10 of the manual: streams, over an in-memory network under a virtual clock. A case builds a `world`
// of connections, either between two pools or with a peer that the test plays packet by packet. The test keeps a `flow` for each stream that
// a side has, and each flow checks itself: what came is what the partner sent, whole and in order; on_close comes once, last, with a reason
// that fits. Nothing here depends on real time: a case that hangs has run out of turns and fails.
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#include "../frisbee.h"
#include "check.h"
#include "memory.h"

#define MS UINT64_C(1000) // of the clock

#if defined(__SANITIZE_ADDRESS__) // slower, but sees more in each round
#define ROUNDS(plain) ((plain) / 6)
#else
#define ROUNDS(plain) (plain)
#endif

enum { PING = 0, PONG = 1, STREAM = 2, ECHO = 10, SINK = 11, FENCE = 0xFF00, HELLO = 0xFF02, CREDIT = 0xFF03 };
enum { EARLY = 16384, WINDOW = 262144, ACCEPTORS = 32768, SIDES = 16, NOISE = 80000 };

// >>the world

typedef struct side side;
typedef struct world world;
typedef enum happening { OPENED, GOT, WRITABLE, CLOSED } happening; // to a stream

// A stream as one side has it.
typedef struct flow {
    side *s;
    struct flow *next, *partner; // partner: the same stream at the other side, once it opened there; NULL: the peer is played
    frisbee_stream handle;
    unsigned number;                      // its id on the wire
    bool opener, paused, closing, waits;  // closing: closed here; waits: AGAIN was answered, on_writable is due
    int writable, closed;
    frisbee_result reason;
    uint64_t in, in_bytes, in_hash, out_bytes, out_hash;
    mem_bytes out; // out_hash after each message sent
    mem_bytes log; // where the side logs
    int choice;    // the case's own
} flow;

struct side {
    world *w;
    side *other; // the peer; not `attached` if the test plays it
    frisbee_pool *pool; // NULL once it was destroyed
    frisbee_conn conn;
    mem_end *end;
    frisbee_wire wire;
    frisbee_role role;
    bool attached, shut, logs; // shut: closed by this side, no handler may run
    int opened, closed, ended, hijacks, starts, stops, asked, answered, replied, sunk;
    frisbee_close_info info;
    frisbee_result hijacked;
    flow *flows; // newest first
    uint32_t live, accepted, most_live;
    uint8_t used[65536]; // ids of live streams
    void (*hook)(flow *f, happening what);
    void (*on_open)(side *s);
    void (*on_sink)(side *s, unsigned id); // a request that wants no answer
};

struct world {
    mem_net net;
    mem_heap heap;
    frisbee_pool_desc pool_desc;
    frisbee_conn_desc desc; // of the next connection
    frisbee_pool *pool[2];
    frisbee_result polled[2];
    bool one_pool, lossy, starving; // lossy: a connection was cut short; starving: allocations fail
    int count, lent, given_back;
    side sides[SIDES];
};

static world the_world;
static uint8_t noise[NOISE];

static flow *flow_make(side *s, bool opener) {
    flow *f = (flow *)calloc(1, sizeof *f);
    if (!f) exit(2);
    f->s = s;
    f->opener = opener;
    f->next = s->flows;
    s->flows = f;
    return f;
}

static void flow_begins(flow *f) { // it has its handle
    side *s = f->s;
    f->number = frisbee_stream_number(s->pool, f->handle);
    CHECK(!s->used[f->number] || !s->other->attached); // (what a stock peer closed needs no id any more, even while it is paused here)
    s->used[f->number]++;
    if (++s->live > s->most_live) s->most_live = s->live;
}

static frisbee_result flow_try(side *s, const frisbee_stream_events *events, flow **made) {
    flow *f = flow_make(s, true);
    frisbee_result result = s->pool ? frisbee_stream_open(s->pool, s->conn, events, f, &f->handle) : FRISBEE_CLOSED;
    if (made) *made = result ? NULL : f;
    if (result) {
        s->flows = f->next;
        free(f);
        return result;
    }
    flow_begins(f);
    CHECK(s->role == FRISBEE_CONNECTOR ? f->number >= 1 && f->number < ACCEPTORS : f->number >= ACCEPTORS);
    CHECK(!s->other->used[f->number]); // free here and there
    CHECK(frisbee_stream_user(s->pool, f->handle) == f && frisbee_stream_conn(s->pool, f->handle).id == s->conn.id);
    return FRISBEE_OK;
}

static flow *flow_open(side *s) {
    flow *f;
    CHECK_EQ(flow_try(s, NULL, &f), FRISBEE_OK);
    if (!f) exit(2); // nothing that follows makes sense
    return f;
}

static uint64_t message_hash(uint64_t hash, const void *data, size_t length) {
    uint32_t size = (uint32_t)length;
    return mem_hash(mem_hash(hash, &size, sizeof size), data, length);
}

static void give_back(void *user) {
    the_world.given_back++;
    memset(user, 0xDD, 1); // whoever still reads it sends something else
    free(user);
}

// Sends a message of so many bytes of noise, now and then borrowed in two spans.
static frisbee_result flow_send(flow *f, size_t length) {
    side *s = f->s;
    world *w = s->w;
    const uint8_t *data = noise + mem_below(&w->net, (uint32_t)(NOISE - length));
    frisbee_result result;
    if (!s->pool) return FRISBEE_CLOSED;
    if (length > 1 && mem_below(&w->net, 8) == 0) {
        frisbee_span spans[2];
        uint8_t *copy = (uint8_t *)malloc(length);
        if (!copy) exit(2);
        memcpy(copy, data, length);
        spans[0].data = copy, spans[0].length = mem_below(&w->net, (uint32_t)length);
        spans[1].data = copy + spans[0].length, spans[1].length = length - spans[0].length;
        result = frisbee_stream_send_spans(s->pool, f->handle, spans, 2, give_back, copy);
        if (result) free(copy);
        else w->lent++;
    } else
        result = frisbee_stream_send(s->pool, f->handle, data, length);
    if (result == FRISBEE_OK) {
        f->out_hash = message_hash(f->out_hash, data, length);
        f->out_bytes += length;
        mem_append(&f->out, &f->out_hash, sizeof f->out_hash);
    }
    if (result == FRISBEE_AGAIN) f->waits = true;
    return result;
}

static uint64_t flow_sent(const flow *f) { return f->out.length / sizeof(uint64_t); } // messages

static bool flow_whole(const flow *f) { return f->partner && f->in == flow_sent(f->partner); } // got all that the partner sent so far

static frisbee_result flow_close(flow *f) {
    frisbee_result result = f->s->pool ? frisbee_stream_close(f->s->pool, f->handle) : FRISBEE_CLOSED;
    if (result == FRISBEE_OK) f->closing = true;
    return result;
}

static frisbee_result flow_pause(flow *f, bool paused) {
    frisbee_result result = f->s->pool ? frisbee_stream_pause(f->s->pool, f->handle, paused) : FRISBEE_CLOSED;
    if (result == FRISBEE_OK) f->paused = paused;
    return result;
}

static frisbee_stats side_stats(side *s) {
    frisbee_stats stats;
    memset(&stats, 0, sizeof stats);
    CHECK_EQ(frisbee_conn_stats(s->pool, s->conn, &stats), FRISBEE_OK);
    return stats;
}

// >>callbacks of streams

static void log_flow(flow *f, const char *what, unsigned long number, uint64_t hash) {
    char line[64];
    if (!f->s->logs) return;
    mem_append(&f->log, line, (size_t)snprintf(line, sizeof line, "%u %s %lu %08lx\n", f->number, what, number, (unsigned long)(hash & 0xFFFFFFFF)));
}

static void stream_opened(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    side *s = (side *)user;
    flow *f = flow_make(s, false), *from;
    CHECK(pool == s->pool && conn.id == s->conn.id && s->opened && !s->closed && !s->hijacks && !s->shut);
    f->handle = stream;
    flow_begins(f);
    for (from = s->other->flows; from && (!from->opener || from->number != f->number || from->partner); from = from->next) {}
    if (s->other->attached && CHECK(from != NULL)) { // the id names one that was opened there
        f->partner = from;
        from->partner = f;
    }
    s->accepted++;
    CHECK(frisbee_stream_conn(pool, stream).id == conn.id);
    CHECK_EQ(frisbee_stream_bind(pool, stream, NULL, f), FRISBEE_OK);
    CHECK(frisbee_stream_user(pool, stream) == f);
    log_flow(f, "open", 0, 0);
    if (s->hook) s->hook(f, OPENED);
}

static void stream_got(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    flow *f = (flow *)user;
    side *s = f->s;
    CHECK(pool == s->pool && stream.id == f->handle.id);
    CHECK(length > 0 && !f->closed && !f->closing && !f->paused && !s->closed && !s->hijacks && !s->shut);
    f->in++;
    f->in_bytes += length;
    f->in_hash = message_hash(f->in_hash, data, length);
    if (f->partner && CHECK(f->in <= flow_sent(f->partner))) {
        uint64_t expected;
        memcpy(&expected, f->partner->out.data + (f->in - 1) * sizeof expected, sizeof expected);
        CHECK(f->in_hash == expected);
    }
    log_flow(f, "got", length, f->in_hash);
    if (s->hook) s->hook(f, GOT);
}

static void stream_writable(frisbee_pool *pool, frisbee_stream stream, void *user) {
    flow *f = (flow *)user;
    side *s = f->s;
    CHECK(pool == s->pool && stream.id == f->handle.id);
    CHECK(f->waits && !f->closed && !f->closing && !s->closed && !s->hijacks);
    f->waits = false;
    f->writable++;
    if (s->hook) s->hook(f, WRITABLE);
}

static void stream_closed(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    flow *f = (flow *)user;
    side *s = f->s;
    CHECK(pool == s->pool && stream.id == f->handle.id && !s->closed && !s->hijacks);
    CHECK_EQ(++f->closed, 1);
    f->reason = reason;
    s->used[f->number]--;
    s->live--;
    if (f->closing) CHECK(reason == FRISBEE_OK);
    // Closed by the peer: behind all its messages.
    if (reason == FRISBEE_CLOSED && f->partner && f->partner->closing && !s->w->lossy) CHECK_EQ(f->in, flow_sent(f->partner));
    log_flow(f, "close", (unsigned long)-reason, 0);
    if (s->hook) s->hook(f, CLOSED);
}

static const frisbee_stream_events stream_events = {stream_opened, stream_got, stream_writable, stream_closed};
static const frisbee_stream_events stream_events_too = {NULL, stream_got, stream_writable, stream_closed}; // to bind and open with

// >>callbacks of connections

static void conn_opened(frisbee_pool *pool, frisbee_conn conn, void *user) {
    side *s = (side *)user;
    CHECK(pool == s->pool && conn.id == s->conn.id && !s->flows);
    s->opened++;
    if (s->on_open) s->on_open(s);
}

static void conn_closed(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    side *s = (side *)user;
    CHECK(pool == s->pool && conn.id == s->conn.id);
    CHECK_EQ(s->live, 0); // each stream before its connection
    CHECK_EQ(++s->closed, 1);
    s->info = *info;
}

static void conn_ended(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)pool, (void)conn;
    ((side *)user)->ended++;
}

static void echo(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    side *s = (side *)packet->conn_user;
    (void)user;
    CHECK(!s->shut && !s->closed);
    if (packet->from.operation != SINK) (void)frisbee_reply(pool, &packet->from, packet->data, packet->length);
    else if (s->sunk++, s->on_sink) s->on_sink(s, packet->from.id);
}

static void call_ended(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    side *s = (side *)user;
    (void)pool, (void)id;
    CHECK(!s->closed);
    s->answered++;
    if (outcome->result == FRISBEE_OK) s->replied += outcome->length == 4;
}

static frisbee_result ask(side *s) { // a call
    frisbee_call_desc desc;
    frisbee_result result;
    if (!s->pool) return FRISBEE_CLOSED;
    memset(&desc, 0, sizeof desc);
    desc.on_reply = call_ended;
    desc.user = s;
    result = frisbee_call(s->pool, s->conn, ECHO, "echo", 4, &desc, NULL);
    if (result == FRISBEE_OK) s->asked++;
    return result;
}

static void let_go(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    side *s = (side *)user;
    CHECK(pool == s->pool && conn.id == s->conn.id && !s->closed);
    CHECK_EQ(s->live, 0);
    CHECK_EQ(++s->hijacks, 1);
    s->hijacked = hijacked->result;
    if (!hijacked->result && hijacked->io.close) hijacked->io.close(hijacked->io.context);
}

static frisbee_result eater_start(frisbee_pool *pool, frisbee_conn conn, void *user, void **state) {
    side *s = (side *)frisbee_user(pool, conn);
    (void)user;
    CHECK_EQ(s->live, 0);
    s->starts++;
    *state = s;
    return FRISBEE_OK;
}

static frisbee_result eater_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used, size_t *need) {
    (void)pool, (void)conn, (void)state, (void)data, (void)need;
    *used = length;
    return FRISBEE_OK;
}

static void eater_stop(frisbee_pool *pool, frisbee_conn conn, void *state) {
    (void)pool, (void)conn;
    ((side *)state)->stops++;
}

static const frisbee_protocol eater = {eater_start, eater_input, NULL, eater_stop, NULL}; // takes all bytes, says nothing
static const frisbee_route routes[] = {{ECHO, echo, NULL}, {SINK, echo, NULL}};
static const frisbee_events conn_events = {conn_opened, NULL, NULL, NULL, conn_closed};
static const frisbee_events conn_events_with_end = {conn_opened, NULL, NULL, conn_ended, conn_closed};

// >>making and running a world

static world *world_begin(uint64_t seed) {
    world *w = &the_world;
    memset(w, 0, sizeof *w);
    w->net.random = seed * UINT64_C(0x2545F4914F6CDD1D) + 1;
    w->net.now_us = 1000000;
    w->pool_desc.allocator = mem_allocator(&w->heap);
    w->pool_desc.now_us = mem_now;
    w->pool_desc.now_context = &w->net;
    w->pool_desc.read_buffer = 65536;
    w->desc.events = &conn_events;
    w->desc.streams = &stream_events;
    w->desc.routes = routes;
    w->desc.route_count = sizeof routes / sizeof *routes;
    w->desc.heartbeat_ms = FRISBEE_NEVER;
    if (!noise[0]) { // once, without use of the world's dice, so that a seed is the same whatever ran before
        mem_net dice;
        memset(&dice, 0, sizeof dice);
        mem_fill(&dice, noise, sizeof noise);
        noise[0] = 1;
    }
    return w;
}

static void link_make(world *w, side **a, side **b) { // two sides that nobody has yet
    CHECK(w->count + 2 <= SIDES);
    *a = &w->sides[w->count++], *b = &w->sides[w->count++];
    (*a)->w = (*b)->w = w;
    (*a)->other = *b, (*b)->other = *a;
    mem_pair(&w->net, &(*a)->end, &(*b)->end);
}

static frisbee_result side_attach(side *s, int pool, frisbee_role role) {
    world *w = s->w;
    frisbee_transport io = mem_transport(s->end);
    frisbee_conn_desc desc = w->desc;
    frisbee_result result;
    if (w->one_pool) pool = 0;
    if (!w->pool[pool]) (void)frisbee_pool_create(&w->pool_desc, &w->pool[pool]);
    if (!w->pool[pool]) return FRISBEE_NO_MEMORY;
    s->role = desc.role = role;
    s->wire = desc.wire;
    desc.user = s;
    s->pool = w->pool[pool];
    result = frisbee_attach(s->pool, &io, &desc, NULL, 0, &s->conn);
    s->attached = result == FRISBEE_OK;
    if (s->attached) s->end->pool = s->pool, s->end->conn = s->conn;
    return result;
}

static void turn_by(world *w, uint64_t us) {
    int i, k;
    for (i = 0; i < 2; i++) {
        frisbee_pool *pool = w->pool[i];
        if (!pool) continue;
        w->polled[i] = frisbee_poll(pool, 0);
        if (w->polled[i] != FRISBEE_DESTROYED) {
            CHECK(frisbeei_check(pool));
            continue;
        }
        w->pool[i] = NULL;
        for (k = 0; k < w->count; k++)
            if (w->sides[k].pool == pool) w->sides[k].pool = NULL;
    }
    mem_advance(&w->net, us);
}

static void turns(world *w, int count) {
    while (count--) turn_by(w, MS);
}

// Turns of a millisecond until `condition`, which must hold within so many.
#define UNTIL(w, ms, condition)                                   \
    do {                                                          \
        int until_turns = (int)(ms);                              \
        while (!(condition) && until_turns-- > 0) turn_by(w, MS); \
        CHECK(condition);                                         \
    } while (0)

// Two sides of the world, connected: *a connects, *b accepts.
static void pair_open(world *w, side **a, side **b) {
    link_make(w, a, b);
    CHECK_EQ(side_attach(*a, 0, FRISBEE_CONNECTOR), FRISBEE_OK);
    CHECK_EQ(side_attach(*b, 1, FRISBEE_ACCEPTOR), FRISBEE_OK);
    UNTIL(w, 100, (*a)->opened && (*b)->opened);
    turns(w, 3); // both know what the other is
}

static flow *flow_newest(side *s) { return s->flows; }

static void side_close(side *s, frisbee_close_how how) {
    s->w->lossy = true;
    if (frisbee_close(s->pool, s->conn, how) == FRISBEE_OK) s->shut = true;
}

// The end of every case: whatever happened, everything has ended exactly once and nothing is left.
static void world_end(world *w) {
    int i;
    w->lossy = true;
    for (i = 0; i < 2; i++) {
        if (w->pool[i]) CHECK(frisbeei_check(w->pool[i]));
        frisbee_pool_destroy(w->pool[i]);
        w->pool[i] = NULL;
    }
    for (i = 0; i < w->count; i++) {
        side *s = &w->sides[i];
        if (s->attached) {
            CHECK_EQ(s->closed, 1);
            CHECK_EQ(s->end->closes, 1);
            CHECK_EQ(s->starts, s->stops);
            CHECK_EQ(s->asked, s->answered);
        }
        CHECK_EQ(s->live, 0);
        while (s->flows) {
            flow *f = s->flows;
            s->flows = f->next;
            CHECK_EQ(f->closed, 1);
            mem_free(&f->out), mem_free(&f->log);
            free(f);
        }
    }
    CHECK_EQ(w->lent, w->given_back);
    CHECK_EQ(w->heap.blocks, 0);
    CHECK_EQ(w->heap.bytes, 0);
    mem_net_free(&w->net);
}

// >>a peer that the test plays

static void put(side *s, unsigned operation, unsigned id, const void *data, size_t length) {
    mem_put_packet(s->end->peer, s->wire, operation, id, data, length);
}

static void put_u32(side *s, unsigned operation, unsigned id, uint32_t value) {
    uint8_t bytes[4];
    bytes[0] = (uint8_t)(value >> 24), bytes[1] = (uint8_t)(value >> 16), bytes[2] = (uint8_t)(value >> 8), bytes[3] = (uint8_t)value;
    put(s, operation, id, bytes, 4);
}

static uint32_t get_u32(const frisbee_packet *packet) {
    const uint8_t *at = (const uint8_t *)packet->data;
    return packet->length < 4 ? 0 : (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool next(side *s, frisbee_packet *packet) { return mem_take_packet(s->end->peer, s->wire, packet); }

// The next packet that the peer got is this one.
static void got_at(int line, side *s, unsigned operation, unsigned id, const void *data, size_t length) {
    frisbee_packet packet;
    bool came = next(s, &packet);
    if (!check_that(came, "a packet came", __FILE__, line)) return;
    check_equal(packet.from.operation, operation, "the packet's operation", __FILE__, line);
    check_equal(packet.from.id, id, "the packet's id", __FILE__, line);
    check_equal(packet.length, (long long)length, "the packet's length", __FILE__, line);
    if (packet.length == length && length) check_that(!memcmp(packet.data, data, length), "the packet's payload", __FILE__, line);
}
#define GOT_PACKET(s, operation, id, data, length) got_at(__LINE__, s, operation, id, data, length)

static void got_u32_at(int line, side *s, unsigned operation, unsigned id, uint32_t value) {
    uint8_t bytes[4];
    bytes[0] = (uint8_t)(value >> 24), bytes[1] = (uint8_t)(value >> 16), bytes[2] = (uint8_t)(value >> 8), bytes[3] = (uint8_t)value;
    got_at(line, s, operation, id, bytes, 4);
}
#define GOT_U32(s, operation, id, value) got_u32_at(__LINE__, s, operation, id, value)

static size_t waiting(side *s) { // bytes that the peer has not taken
    size_t length;
    (void)mem_peek(s->end->peer, &length);
    return length;
}
#define GOT_NOTHING(s) CHECK_EQ(waiting(s), 0)

// What the peer got is exactly these bytes, as hexadecimal digits with spaces between.
static void got_bytes_at(int line, side *s, const char *hex) {
    mem_bytes bytes, expected;
    memset(&bytes, 0, sizeof bytes);
    memset(&expected, 0, sizeof expected);
    for (; *hex; hex++) {
        static const char digits[] = "0123456789ABCDEF";
        uint8_t byte;
        if (*hex == ' ') continue;
        byte = (uint8_t)((strchr(digits, hex[0]) - digits) << 4 | (strchr(digits, hex[1]) - digits));
        mem_append(&expected, &byte, 1);
        hex++;
    }
    mem_take(s->end->peer, &bytes, SIZE_MAX);
    if (!check_that(mem_same(&bytes, &expected), "the bytes that came", __FILE__, line)) {
        size_t i;
        fprintf(stderr, "    got");
        for (i = 0; i < bytes.length && i < 100; i++) fprintf(stderr, " %02X", (unsigned)bytes.data[i]);
        fprintf(stderr, "\n");
    }
    mem_free(&bytes), mem_free(&expected);
}
#define GOT_BYTES(s, hex) got_bytes_at(__LINE__, s, hex)

static side *play(world *w, frisbee_role role, frisbee_wire wire) {
    side *s, *peer;
    link_make(w, &s, &peer);
    w->desc.wire = wire;
    CHECK_EQ(side_attach(s, 0, role), FRISBEE_OK);
    turns(w, 1);
    return s;
}

// The first packets of a peer that is frisbee.h with such a window; both now know each other.
static void greet(side *s, uint32_t window) {
    uint32_t own = s->w->desc.stream_window ? s->w->desc.stream_window : WINDOW;
    if (s->role == FRISBEE_CONNECTOR) {
        GOT_U32(s, HELLO, 0, own);
        GOT_PACKET(s, PING, 0, "", 0);
        put_u32(s, HELLO, 0, window);
        put(s, PONG, 0, "", 0);
        turns(s->w, 2);
    } else {
        put_u32(s, HELLO, 0, window);
        put(s, PING, 0, "", 0);
        turns(s->w, 2);
        GOT_U32(s, HELLO, 0, own);
        GOT_PACKET(s, PONG, 0, "", 0);
    }
    GOT_NOTHING(s);
    CHECK_EQ(s->opened, 1);
}

// And those of a stock peer.
static void greet_stock(side *s) {
    if (s->role == FRISBEE_CONNECTOR) {
        GOT_U32(s, HELLO, 0, s->w->desc.stream_window ? s->w->desc.stream_window : WINDOW);
        GOT_PACKET(s, PING, 0, "", 0);
        put(s, PONG, 0, "", 0);
        turns(s->w, 2);
    } else {
        put(s, PING, 0, "", 0);
        turns(s->w, 2);
        GOT_PACKET(s, PONG, 0, "", 0);
    }
    GOT_NOTHING(s);
    CHECK_EQ(s->opened, 1);
}

// A played peer of each kind, in each role, on each wire: FOR_PEERS(w, s, stock) { ... }
typedef struct kind { frisbee_role role; frisbee_wire wire; bool stock; } kind;
static const kind kinds[] = {
    {FRISBEE_CONNECTOR, FRISBEE_WIRE_V0, false}, {FRISBEE_ACCEPTOR, FRISBEE_WIRE_V0, false}, {FRISBEE_CONNECTOR, FRISBEE_WIRE_V1, false},
    {FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1, false},  {FRISBEE_CONNECTOR, FRISBEE_WIRE_V0, true}, {FRISBEE_ACCEPTOR, FRISBEE_WIRE_V0, true},
    {FRISBEE_CONNECTOR, FRISBEE_WIRE_V1, true},  {FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds, FRIENDS = 4 }; // the first are frisbee.h peers

static side *play_kind(world *w, const kind *k, uint32_t window) {
    side *s = play(w, k->role, k->wire);
    if (k->stock) greet_stock(s);
    else greet(s, window);
    return s;
}

static unsigned own_id(const side *s) { return s->role == FRISBEE_CONNECTOR ? 1 : ACCEPTORS; }   // the first that it gives out
static unsigned peer_id(const side *s) { return s->role == FRISBEE_CONNECTOR ? ACCEPTORS : 1; }

static void finish_at_once(side *s) { CHECK_EQ(frisbee_finish(s->pool, s->conn), FRISBEE_OK); }

static void pause_at_open(flow *f, happening what) {
    if (what == OPENED) CHECK_EQ(flow_pause(f, true), FRISBEE_OK);
}

// >>whole, in order

// 500 streams opened by each side, 100 messages each way on each, all mixed.
static void many_streams(uint64_t seed, frisbee_wire wire, uint32_t window, bool one_pool) {
    world *w = world_begin(seed);
    side *ends[2];
    uint64_t expected = 0;
    int i, n, left = 1;
    w->one_pool = one_pool;
    w->desc.wire = wire;
    w->desc.max_streams = 1000;
    w->desc.stream_window = window;
    pair_open(w, &ends[0], &ends[1]);
    for (i = 0; i < 2; i++)
        for (n = 0; n < 500; n++) (void)flow_open(ends[i]);
    CHECK_EQ(side_stats(ends[0]).streams, 500);
    for (n = 0; n < 4000 && left; n++) {
        left = 0;
        for (i = 0; i < 2; i++) {
            flow *f;
            for (f = ends[i]->flows; f; f = f->next) {
                if (f->closed || f->closing) continue;
                left++;
                while (!f->waits && flow_sent(f) < 100 && mem_below(&w->net, 3)) {
                    size_t length = 1 + (mem_below(&w->net, 50) ? mem_below(&w->net, 200) : mem_below(&w->net, 3000));
                    frisbee_result result = flow_send(f, length);
                    if (result == FRISBEE_OK) expected += length;
                    else if (!CHECK_EQ(result, FRISBEE_AGAIN)) break;
                }
                if (f->opener && flow_sent(f) == 100 && f->in == 100) CHECK_EQ(flow_close(f), FRISBEE_OK);
            }
        }
        turns(w, 1);
        if (n == 10) CHECK(side_stats(ends[0]).streams > 900 && ends[0]->most_live <= 1000);
    }
    turns(w, 5);
    CHECK_EQ(left, 0);
    for (i = 0; i < 2; i++) {
        flow *f;
        uint64_t came = 0;
        CHECK_EQ(ends[i]->accepted, 500);
        CHECK_EQ(side_stats(ends[i]).streams, 0);
        for (f = ends[i]->flows; f; f = f->next) {
            CHECK(f->closed == 1 && f->in == 100 && flow_sent(f) == 100 && f->reason == (f->opener ? FRISBEE_OK : FRISBEE_CLOSED));
            came += f->in_bytes;
        }
        expected -= came;
    }
    CHECK_EQ(expected, 0);
    CHECK(!ends[0]->closed && !ends[1]->closed);
    world_end(w);
}

static void promise_10_a_thousand_streams_arrive_whole_and_in_order(void) {
    many_streams(1, FRISBEE_WIRE_V1, 0, false);
    many_streams(2, FRISBEE_WIRE_V0, 1000, false); // most wait for credit most of the time
    many_streams(3, FRISBEE_WIRE_V1, 5000, true);
}

// Either side opens, sends, is answered and closes; in every role, by opener and by acceptor.
static void promise_10_open_send_close_both_ways(void) {
    int opener, closer, wire;
    for (wire = 0; wire < 2; wire++)
        for (opener = 0; opener < 2; opener++)
            for (closer = 0; closer < 2; closer++) {
                world *w = world_begin(10);
                side *ends[2];
                flow *f, *g;
                frisbee_stats stats;
                w->desc.wire = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
                pair_open(w, &ends[0], &ends[1]);
                f = flow_open(ends[opener]);
                turns(w, 5);
                CHECK_EQ(ends[!opener]->accepted, 0); // nothing is sent until its first message
                CHECK_EQ(flow_send(f, 1), FRISBEE_OK);
                CHECK_EQ(flow_send(f, 70000), FRISBEE_OK);
                turns(w, 3);
                CHECK_EQ(ends[!opener]->accepted, 1);
                g = flow_newest(ends[!opener]);
                CHECK(g && g->partner == f && g->in == 2 && g->in_bytes == 70001);
                CHECK_EQ(flow_send(g, 5), FRISBEE_OK);
                CHECK_EQ(flow_send(g, 6), FRISBEE_OK);
                turns(w, 3);
                CHECK(f->in == 2 && f->in_bytes == 11);
                CHECK_EQ(side_stats(ends[0]).streams, 1);
                CHECK_EQ(side_stats(ends[1]).streams, 1);
                CHECK_EQ(frisbee_pool_stats(w->pool[0], &stats), FRISBEE_OK);
                CHECK_EQ(stats.streams, 1);
                CHECK_EQ(flow_send(closer ? f : g, 3), FRISBEE_OK);
                CHECK_EQ(flow_close(closer ? f : g), FRISBEE_OK); // behind what was sent
                CHECK_EQ((closer ? f : g)->closed, 0);            // no callback from inside
                turns(w, 3);
                CHECK(f->closed == 1 && g->closed == 1);
                CHECK_EQ((closer ? f : g)->reason, FRISBEE_OK);
                CHECK_EQ((closer ? g : f)->reason, FRISBEE_CLOSED);
                CHECK_EQ((closer ? g : f)->in, 3);
                CHECK_EQ(side_stats(ends[0]).streams, 0);
                CHECK_EQ(frisbee_pool_stats(w->pool[0], &stats), FRISBEE_OK);
                CHECK_EQ(stats.streams, 0);
                turns(w, 3);
                CHECK(!ends[0]->closed && !ends[1]->closed && ends[0]->accepted + ends[1]->accepted == 1);
                world_end(w);
            }
}

// Both close in the same moment: both are OK, and the id is free again.
static void promise_10_both_close_at_once(void) {
    world *w = world_begin(11);
    side *a, *b;
    int n;
    w->desc.max_streams = 2;
    pair_open(w, &a, &b);
    for (n = 0; n < 20; n++) {
        flow *f = flow_open(n & 1 ? a : b), *g;
        CHECK_EQ(flow_send(f, 10), FRISBEE_OK);
        turns(w, 2);
        g = flow_newest(n & 1 ? b : a);
        CHECK_EQ(flow_send(f, 10), FRISBEE_OK);
        CHECK_EQ(flow_send(g, 10), FRISBEE_OK);
        CHECK_EQ(flow_close(f), FRISBEE_OK);
        CHECK_EQ(flow_close(g), FRISBEE_OK);
        turns(w, 4);
        CHECK(f->closed == 1 && g->closed == 1 && f->reason == FRISBEE_OK && g->reason == FRISBEE_OK);
        CHECK(f->in == 0 && g->in == 1); // what came behind the own close is dropped
    }
    CHECK_EQ(a->accepted + b->accepted, 20);
    world_end(w);
}

// >>reasons

enum { // how a connection ends
    BY_CLOSE_NOW, BY_CLOSE_FLUSH, BY_PEERS_CLOSE, BY_RESET, BY_SILENCE, BY_DESTROY, BY_HIJACK, BY_FENCE, BY_UPGRADE, BY_NONSENSE, ENDINGS
};

// A connection ends with three streams open on each side, one of them never used: each gets its one on_close, with the reason.
static void promise_10_the_end_of_the_connection_is_that_of_its_streams(void) {
    static const frisbee_result reasons[ENDINGS] = {
        FRISBEE_UNKNOWN, FRISBEE_UNKNOWN, FRISBEE_UNKNOWN, FRISBEE_SYSTEM, FRISBEE_TIMED_OUT, // a connection that was closed: perhaps in the middle
        FRISBEE_DESTROYED, FRISBEE_HIJACKED, FRISBEE_HIJACKED, FRISBEE_HIJACKED, FRISBEE_MALFORMED,
    };
    int how, role;
    for (how = 0; how < ENDINGS; how++)
        for (role = 0; role < 2; role++) {
            world *w = world_begin(20);
            side *ends[2], *s, *peer;
            flow *f;
            int n;
            if (how == BY_SILENCE) w->desc.heartbeat_ms = 500, w->desc.heartbeat_timeout_ms = 5000;
            pair_open(w, &ends[0], &ends[1]);
            s = ends[role], peer = ends[!role];
            for (n = 0; n < 2; n++) {
                CHECK_EQ(flow_send(flow_open(ends[n]), 100), FRISBEE_OK);
                (void)flow_open(ends[n]);
            }
            turns(w, 2);
            w->lossy = true;
            switch (how) {
            case BY_CLOSE_NOW: side_close(s, FRISBEE_CLOSE_NOW); break;
            case BY_CLOSE_FLUSH: side_close(s, FRISBEE_CLOSE_FLUSH); break;
            case BY_PEERS_CLOSE: side_close(peer, FRISBEE_CLOSE_NOW); break;
            case BY_RESET: mem_reset(s->end, FRISBEE_SYSTEM); break;
            case BY_SILENCE: w->pool[!role] = NULL; break; // is not polled for a while
            case BY_DESTROY:
                frisbee_pool_destroy(s->pool);
                w->pool[role] = NULL;
                break;
            case BY_HIJACK: CHECK_EQ(frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_NOW, 0, let_go, s), FRISBEE_OK); break;
            case BY_FENCE:
                CHECK_EQ(frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_FENCED, 0, let_go, s), FRISBEE_OK);
                CHECK_EQ(frisbee_hijack(peer->pool, peer->conn, FRISBEE_HIJACK_FENCED, 0, let_go, peer), FRISBEE_OK);
                break;
            case BY_UPGRADE: CHECK_EQ(frisbee_upgrade(s->pool, s->conn, FRISBEE_HIJACK_NOW, &eater), FRISBEE_OK); break;
            default: mem_put(s->end->peer, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12); break;
            }
            UNTIL(w, 6000, s->live == 0);
            w->pool[!role] = peer->pool;
            for (f = s->flows, n = 0; f; f = f->next, n++) {
                CHECK_EQ(f->closed, 1);
                if (!CHECK_EQ(f->reason, reasons[how])) fprintf(stderr, "    ending %d, side %d\n", how, role);
            }
            CHECK_EQ(n, 3);
            if (how == BY_UPGRADE) CHECK(!s->closed && s->starts == 1);
            else {
                UNTIL(w, 3000, s->closed == 1);
                CHECK_EQ(s->info.reason == FRISBEE_OK, how == BY_CLOSE_NOW || how == BY_CLOSE_FLUSH);
            }
            if (how == BY_FENCE) turns(w, 5);
            if (how == BY_FENCE) CHECK(s->hijacked == FRISBEE_OK && peer->hijacked == FRISBEE_OK && s->hijacks == 1 && peer->hijacks == 1);
            for (f = s->flows; w->pool[role] && f; f = f->next) CHECK_EQ(frisbee_stream_send(s->pool, f->handle, "x", 1), FRISBEE_CLOSED);
            world_end(w);
        }
}

// A peer that takes no streams: what was opened on trust ends REFUSED, sent or not.
static void promise_10_refused(void) {
    int early;
    for (early = 0; early < 2; early++) {
        world *w = world_begin(21);
        side *a, *b;
        flow *f = NULL, *g = NULL;
        frisbee_result result;
        link_make(w, &a, &b);
        CHECK_EQ(side_attach(a, 0, FRISBEE_CONNECTOR), FRISBEE_OK);
        w->desc.streams = NULL;
        CHECK_EQ(side_attach(b, 1, FRISBEE_ACCEPTOR), FRISBEE_OK);
        if (!early) turns(w, 5);
        else {
            UNTIL(w, 5, a->opened);
            f = flow_open(a), g = flow_open(a);
            CHECK_EQ(flow_send(f, 100), FRISBEE_OK);
            UNTIL(w, 10, f->closed && g->closed);
            CHECK_EQ(f->reason, FRISBEE_REFUSED);
            CHECK_EQ(g->reason, FRISBEE_REFUSED);
        }
        result = flow_try(a, NULL, &f); // now that it is known
        CHECK(result == FRISBEE_REFUSED || result == FRISBEE_OK);
        if (result == FRISBEE_OK) {
            turns(w, 3);
            CHECK(f->closed == 1 && f->reason == FRISBEE_REFUSED);
        }
        CHECK_EQ(frisbee_stream_open(b->pool, b->conn, NULL, NULL, &(frisbee_stream){0}), FRISBEE_INVALID);
        CHECK_EQ(ask(a), FRISBEE_OK); // nothing else suffers
        turns(w, 4);
        CHECK(a->replied == 1 && !a->closed && !b->closed && b->accepted == 0);
        world_end(w);
    }
}

// Events without on_open: the peer's streams are refused at once, the own ones work.
static void promise_10_who_has_no_on_open_takes_no_streams_of_the_peer(void) {
    world *w = world_begin(22);
    side *a, *b;
    flow *f;
    link_make(w, &a, &b);
    CHECK_EQ(side_attach(a, 0, FRISBEE_CONNECTOR), FRISBEE_OK);
    w->desc.streams = &stream_events_too;
    CHECK_EQ(side_attach(b, 1, FRISBEE_ACCEPTOR), FRISBEE_OK);
    turns(w, 5);
    f = flow_open(a);
    CHECK_EQ(flow_send(f, 5), FRISBEE_OK);
    turns(w, 5);
    CHECK(f->closed == 1 && (f->reason == FRISBEE_CLOSED || f->reason == FRISBEE_REFUSED));
    CHECK_EQ(side_stats(b).streams, 0);
    f = flow_open(b);
    CHECK_EQ(flow_send(f, 5), FRISBEE_OK);
    turns(w, 5);
    CHECK_EQ(a->accepted, 1);
    CHECK_EQ(flow_send(flow_newest(a), 6), FRISBEE_OK);
    turns(w, 5);
    CHECK_EQ(f->in, 1);
    world_end(w);
}

// >>handles, user pointers, events

static int elsewhere_got, elsewhere_closed;
static frisbee_result elsewhere_reason;
static void got_elsewhere(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    (void)pool, (void)stream;
    CHECK(user == &elsewhere_got && length == 3 && !memcmp(data, "abc", 3));
    elsewhere_got++;
}
static void closed_elsewhere(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    (void)pool, (void)stream;
    CHECK(user == &elsewhere_got);
    elsewhere_closed++;
    elsewhere_reason = reason;
}
static const frisbee_stream_events elsewhere = {NULL, got_elsewhere, NULL, closed_elsewhere};
static const frisbee_stream_events deaf = {NULL, NULL, NULL, NULL};

static void section_10_user_pointers_and_own_events(void) {
    world *w = world_begin(30);
    side *a, *b;
    frisbee_stream stream, silent;
    flow *f, *g;
    pair_open(w, &a, &b);
    elsewhere_got = elsewhere_closed = 0;
    CHECK_EQ(frisbee_stream_open(a->pool, a->conn, &elsewhere, &elsewhere_got, &stream), FRISBEE_OK);
    CHECK(frisbee_stream_user(a->pool, stream) == &elsewhere_got && frisbee_stream_number(a->pool, stream) == 1);
    CHECK_EQ(frisbee_stream_send(a->pool, stream, "abc", 3), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_open(a->pool, a->conn, &deaf, NULL, &silent), FRISBEE_OK);
    CHECK(frisbee_stream_user(a->pool, silent) == NULL && frisbee_stream_number(a->pool, silent) == 2);
    b->other = &w->sides[SIDES - 1]; // (these are no flows of side a)
    CHECK_EQ(frisbee_stream_send(a->pool, silent, "abc", 3), FRISBEE_OK);
    turns(w, 3);
    CHECK_EQ(b->accepted, 2);
    g = flow_newest(b), f = g->next;
    CHECK(f->number == 1 && g->number == 2);
    CHECK_EQ(frisbee_stream_send(b->pool, f->handle, "abc", 3), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(b->pool, g->handle, "abc", 3), FRISBEE_OK); // nobody listens there
    turns(w, 3);
    CHECK_EQ(elsewhere_got, 1);
    // Bound to others while it runs, and back; NULL keeps the events.
    CHECK_EQ(frisbee_stream_bind(a->pool, silent, &elsewhere, &elsewhere_got), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(b->pool, g->handle, "abc", 3), FRISBEE_OK);
    turns(w, 3);
    CHECK_EQ(elsewhere_got, 2);
    CHECK_EQ(frisbee_stream_bind(a->pool, silent, &deaf, &elsewhere_closed), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_bind(a->pool, stream, NULL, &elsewhere_closed), FRISBEE_OK);
    CHECK(frisbee_stream_user(a->pool, stream) == &elsewhere_closed);
    CHECK_EQ(frisbee_stream_bind(a->pool, stream, NULL, &elsewhere_got), FRISBEE_OK);
    CHECK_EQ(flow_close(f), FRISBEE_OK);
    CHECK_EQ(flow_close(g), FRISBEE_OK);
    turns(w, 3);
    CHECK(elsewhere_closed == 1 && elsewhere_reason == FRISBEE_CLOSED && elsewhere_got == 2);
    CHECK_EQ(frisbee_stream_bind(a->pool, silent, NULL, w), FRISBEE_CLOSED);
    CHECK_EQ(side_stats(a).streams, 0);
    world_end(w);
}

static void handle_is_stale(frisbee_pool *pool, frisbee_stream stream) {
    frisbee_span span = {"x", 1};
    CHECK_EQ(frisbee_stream_send(pool, stream, "x", 1), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_stream_send_spans(pool, stream, &span, 1, NULL, NULL), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_stream_close(pool, stream), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_stream_pause(pool, stream, true), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_stream_bind(pool, stream, NULL, NULL), FRISBEE_CLOSED);
    CHECK(frisbee_stream_user(pool, stream) == NULL);
    CHECK_EQ(frisbee_stream_conn(pool, stream).id, 0);
    CHECK_EQ(frisbee_stream_number(pool, stream), 0);
}

static void section_10_a_stale_handle_is_closed_everywhere(void) {
    world *w = world_begin(31);
    side *a, *b, *c, *d;
    flow *f;
    frisbee_stream old[50], none;
    int n, k;
    w->one_pool = true;
    pair_open(w, &a, &b);
    for (n = 0; n < 50; n++) { // places are used again, handles are not
        f = flow_open(n & 1 ? a : b);
        old[n] = f->handle;
        CHECK_EQ(flow_send(f, 4), FRISBEE_OK);
        turns(w, 2);
        for (k = 0; k < n; k++) handle_is_stale(a->pool, old[k]);
        CHECK_EQ(flow_close(n & 2 ? f : f->partner), FRISBEE_OK);
        turns(w, 3);
        CHECK(f->closed && f->partner->closed && f->in == 0 && f->partner->in == 1);
        handle_is_stale(a->pool, f->partner->handle);
    }
    pair_open(w, &c, &d);
    f = flow_open(c);
    side_close(c, FRISBEE_CLOSE_NOW);
    turns(w, 3);
    handle_is_stale(c->pool, f->handle);
    none.id = 0;
    handle_is_stale(a->pool, none);
    none.id = ~UINT64_C(0);
    handle_is_stale(a->pool, none);
    CHECK_EQ(frisbee_stream_open(c->pool, c->conn, NULL, NULL, &none), FRISBEE_CLOSED);
    world_end(w);
}

static void section_10_results_of_the_functions(void) {
    world *w = world_begin(32);
    side *a, *b;
    flow *f;
    frisbee_span spans[2] = {{"a", 1}, {NULL, 0}};
    uint64_t before;
    w->desc.max_packet = 1000;
    link_make(w, &a, &b);
    CHECK_EQ(side_attach(a, 0, FRISBEE_CONNECTOR), FRISBEE_OK);
    CHECK_EQ(flow_try(a, NULL, NULL), FRISBEE_NOT_SENT); // not open yet
    CHECK_EQ(side_attach(b, 1, FRISBEE_ACCEPTOR), FRISBEE_OK);
    turns(w, 5);
    f = flow_open(a);
    before = side_stats(a).packets_out;
    CHECK_EQ(frisbee_stream_send(a->pool, f->handle, "", 0), FRISBEE_INVALID);
    CHECK_EQ(frisbee_stream_send(a->pool, f->handle, NULL, 0), FRISBEE_INVALID);
    CHECK_EQ(frisbee_stream_send_spans(a->pool, f->handle, spans, 0, NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_stream_send_spans(a->pool, f->handle, spans + 1, 1, NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_stream_send(a->pool, f->handle, noise, 1001), FRISBEE_TOO_LARGE);
    turns(w, 2);
    CHECK(!f->closed && b->accepted == 0 && side_stats(a).packets_out == before);
    CHECK_EQ(flow_send(f, 1000), FRISBEE_OK);
    turns(w, 2);
    CHECK(b->accepted == 1 && flow_newest(b)->in_bytes == 1000);
    CHECK_EQ(flow_close(f), FRISBEE_OK);
    CHECK_EQ(flow_send(f, 1), FRISBEE_CLOSED); // at once, not only after on_close
    turns(w, 3);
    CHECK_EQ(frisbee_finish(a->pool, a->conn), FRISBEE_OK);
    CHECK_EQ(flow_try(a, NULL, NULL), FRISBEE_CLOSED);
    world_end(w);
}

// A longer message than max_packet costs the connection.
static void section_10_max_packet_of_the_peer(void) {
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(33);
        side *s;
        w->desc.max_packet = 1000;
        s = play_kind(w, &kinds[i], 1000);
        put(s, STREAM, peer_id(s), noise, 1000);
        turns(w, 2);
        CHECK_EQ(s->accepted, 1);
        put(s, STREAM, peer_id(s), noise, 1001);
        turns(w, 2);
        CHECK(s->closed == 1 && s->info.reason == FRISBEE_TOO_LARGE && flow_newest(s)->reason == FRISBEE_TOO_LARGE && flow_newest(s)->in == 1);
        world_end(w);
    }
}

// >>the wire, byte for byte

static void section_11_hello_of_a_connector(void) {
    int wire;
    for (wire = 0; wire < 2; wire++) {
        world *w = world_begin(40);
        side *s;
        flow *f, *g;
        w->desc.stream_window = 0x1234;
        s = play(w, FRISBEE_CONNECTOR, wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
        GOT_BYTES(s, wire ? "000F 0000 FF02 00000004 00001234  000F 0000 0000 00000000" : "0000 FF02 00000004 00001234  0000 0000 00000000");
        put_u32(s, HELLO, 0, 1000);
        put(s, PONG, 0, "", 0);
        turns(w, 2);
        GOT_BYTES(s, "");
        f = flow_open(s);
        turns(w, 2);
        GOT_BYTES(s, ""); // nothing until its first message
        CHECK_EQ(frisbee_stream_send(s->pool, f->handle, "hello", 5), FRISBEE_OK);
        g = flow_open(s);
        CHECK_EQ(frisbee_stream_send(s->pool, g->handle, "2", 1), FRISBEE_OK);
        turns(w, 2);
        GOT_BYTES(s, wire ? "000F 0001 0002 00000005 68656C6C6F  000F 0002 0002 00000001 32"
                          : "0001 0002 00000005 68656C6C6F  0002 0002 00000001 32");
        put(s, STREAM, 1, "answer", 6);
        put(s, STREAM, 0x8000, "mine", 4);
        turns(w, 2);
        CHECK(f->in == 1 && f->in_bytes == 6 && s->accepted == 1);
        GOT_BYTES(s, "");
        CHECK_EQ(flow_close(f), FRISBEE_OK);
        turns(w, 2);
        GOT_BYTES(s, wire ? "000F 0001 0002 00000000" : "0001 0002 00000000");
        CHECK(f->closed == 1 && f->reason == FRISBEE_OK);
        put(s, STREAM, 1, "", 0); // the answer, which is not answered
        put(s, STREAM, 0x8000, "", 0); // this one is
        turns(w, 2);
        GOT_BYTES(s, wire ? "000F 8000 0002 00000000" : "8000 0002 00000000");
        CHECK(flow_newest(s)->number == 0x8000 && flow_newest(s)->closed == 1 && flow_newest(s)->reason == FRISBEE_CLOSED);
        put(s, STREAM, 2, "", 0); // a peer closes what this side opened
        turns(w, 2);
        GOT_BYTES(s, wire ? "000F 0002 0002 00000000" : "0002 0002 00000000");
        CHECK(g->closed == 1 && g->reason == FRISBEE_CLOSED);
        CHECK(!s->closed);
        world_end(w);
    }
}

static void section_11_hello_of_an_acceptor(void) {
    int wire, sniffs;
    for (wire = 0; wire < 2; wire++)
        for (sniffs = 0; sniffs < 2; sniffs++) {
            world *w = world_begin(41);
            side *s;
            flow *f;
            w->desc.stream_window = 0x1234;
            s = play(w, FRISBEE_ACCEPTOR, sniffs ? FRISBEE_WIRE_AUTO : wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
            s->wire = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
            GOT_BYTES(s, ""); // it never speaks first
            put_u32(s, HELLO, 0, 1000);
            put(s, PING, 0, "", 0);
            turns(w, 2);
            GOT_BYTES(s, wire ? "000F 0000 FF02 00000004 00001234  000F 0000 0001 00000000" : "0000 FF02 00000004 00001234  0000 0001 00000000");
            f = flow_open(s);
            CHECK_EQ(frisbee_stream_send(s->pool, f->handle, "up", 2), FRISBEE_OK);
            turns(w, 2);
            GOT_BYTES(s, wire ? "000F 8000 0002 00000002 7570" : "8000 0002 00000002 7570");
            CHECK_EQ(flow_close(f), FRISBEE_OK);
            turns(w, 2);
            GOT_BYTES(s, wire ? "000F 8000 0002 00000000" : "8000 0002 00000000");
            put(s, STREAM, 0x8000, "", 0);
            turns(w, 2);
            GOT_BYTES(s, "");
            world_end(w);
        }
}

static void section_11_hello_of_who_has_no_streams(void) {
    int wire;
    for (wire = 0; wire < 2; wire++) {
        world *w = world_begin(42);
        side *s;
        w->desc.streams = NULL;
        s = play(w, FRISBEE_CONNECTOR, wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
        GOT_BYTES(s, wire ? "000F 0000 0000 00000000" : "0000 0000 00000000"); // its PING alone
        put_u32(s, HELLO, 0, 1000); // not asked for: ignored
        put(s, PONG, 0, "", 0);
        turns(w, 2);
        GOT_BYTES(s, "");
        CHECK_EQ(frisbee_stream_open(s->pool, s->conn, &stream_events, NULL, &(frisbee_stream){0}), FRISBEE_INVALID);
        CHECK(!s->closed);
        s = play(w, FRISBEE_ACCEPTOR, wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
        put_u32(s, HELLO, 0, 1000);
        put(s, PING, 0, "", 0);
        turns(w, 2);
        GOT_BYTES(s, wire ? "000F 0000 FF02 00000004 00000000  000F 0000 0001 00000000" : "0000 FF02 00000004 00000000  0000 0001 00000000");
        CHECK_EQ(frisbee_stream_open(s->pool, s->conn, &stream_events, NULL, &(frisbee_stream){0}), FRISBEE_INVALID);
        CHECK(!s->closed);
        world_end(w);
    }
}

// Without `streams` packets of streams are dropped and counted, whoever sends them; requests go on.
static void section_10_packets_of_streams_are_dropped_where_there_are_none(void) {
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(43);
        side *s;
        frisbee_packet packet;
        int n;
        w->desc.streams = NULL;
        s = play(w, kinds[i].role, kinds[i].wire);
        if (!kinds[i].stock && kinds[i].role == FRISBEE_ACCEPTOR) put_u32(s, HELLO, 0, 1000);
        put(s, kinds[i].role == FRISBEE_CONNECTOR ? PONG : PING, 0, "", 0);
        turns(w, 2);
        CHECK_EQ(side_stats(s).dropped, 0);
        for (n = 0; n < 10; n++) put(s, STREAM, (unsigned)n % 3, "message", n % 4 ? 7 : 0);
        put(s, ECHO, 77, "?", 1);
        turns(w, 2);
        CHECK_EQ(side_stats(s).dropped, 10);
        CHECK_EQ(side_stats(s).streams, 0);
        while (next(s, &packet) && packet.from.operation != ECHO) CHECK(packet.from.operation != STREAM);
        CHECK(packet.from.operation == ECHO && packet.from.id == 77);
        GOT_NOTHING(s);
        CHECK(!s->closed);
        world_end(w);
    }
}

// Towards a stock peer: no CREDIT, no limit of credit, closes are not answered, ids are what the peer likes.
static void section_11_a_stock_peer(void) {
    int i;
    for (i = FRIENDS; i < KINDS; i++) {
        world *w = world_begin(44);
        side *s;
        flow *f, *g;
        int n;
        w->desc.stream_window = 1000;
        s = play_kind(w, &kinds[i], 0);
        f = flow_open(s);
        CHECK_EQ(f->number, own_id(s));
        for (n = 0; n < 100; n++) CHECK_EQ(frisbee_stream_send(s->pool, f->handle, noise + n, 2000), FRISBEE_OK);
        turns(w, 2);
        for (n = 0; n < 100; n++) GOT_PACKET(s, STREAM, f->number, noise + n, 2000);
        for (n = 0; n < 10; n++) put(s, STREAM, 0, noise, 700), put(s, STREAM, own_id(s) + 1, noise, 300), put(s, STREAM, 40000, noise, 1);
        put(s, STREAM, f->number, noise, 500);
        turns(w, 2);
        GOT_NOTHING(s); // no credit is given
        CHECK(s->accepted == 3 && f->in == 1);
        g = flow_open(s); // its second id is in use by the peer: passed over
        CHECK_EQ(g->number, own_id(s) + 2);
        put(s, STREAM, 0, "", 0), put(s, STREAM, own_id(s) + 1, "", 0), put(s, STREAM, 40000, "", 0);
        turns(w, 2);
        GOT_NOTHING(s); // nor an answer to the close of what it opened
        put(s, STREAM, f->number, "", 0);
        turns(w, 2);
        GOT_PACKET(s, STREAM, f->number, "", 0); // what was under way may have opened a phantom there: this ends it
        GOT_NOTHING(s);
        CHECK(f->closed == 1 && f->reason == FRISBEE_CLOSED && s->live == 1);
        put(s, STREAM, 0, "again", 5); // the peer's own, and so its to use again
        turns(w, 2);
        CHECK(s->accepted == 4 && flow_newest(s)->number == 0 && flow_newest(s)->in == 1);
        CHECK_EQ(flow_close(flow_newest(s)), FRISBEE_OK);
        turns(w, 1);
        GOT_PACKET(s, STREAM, 0, "", 0);
        world_end(w);
    }
}

// A STREAM, or any other packet, that comes before HELLO or PONG, and a HELLO behind the first packet of a connector that is none.
static void section_11_who_the_peer_is_is_told_by_its_first_words(void) {
    int wire;
    for (wire = 0; wire < 2; wire++) {
        world *w = world_begin(45);
        frisbee_packet packet;
        side *s;
        flow *f;
        int n;
        w->desc.wire = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
        s = play(w, FRISBEE_CONNECTOR, w->desc.wire); // a PING of the peer's says nothing yet
        f = flow_open(s);
        put(s, PING, 0, "", 0);
        put(s, STREAM, ACCEPTORS, "first", 5);
        turns(w, 2);
        CHECK_EQ(s->accepted, 1);
        CHECK_EQ(frisbee_stream_send(s->pool, f->handle, noise, EARLY), FRISBEE_OK);
        CHECK_EQ(flow_send(f, 1), FRISBEE_AGAIN);
        put_u32(s, HELLO, 0, 1000);
        put(s, PONG, 0, "", 0);
        put_u32(s, CREDIT, f->number, EARLY - 1000);
        turns(w, 2);
        CHECK_EQ(flow_send(f, 1), FRISBEE_AGAIN);
        put_u32(s, CREDIT, f->number, 1);
        turns(w, 2);
        CHECK(f->writable == 1 && flow_send(f, 1) == FRISBEE_OK && flow_send(f, 1) == FRISBEE_AGAIN);

        s = play(w, FRISBEE_ACCEPTOR, w->desc.wire); // its first packet is a request: stock, whatever follows
        put(s, SINK, 1, "", 0);
        put_u32(s, HELLO, 0, 1000);
        put(s, PING, 0, "", 0);
        turns(w, 2);
        GOT_PACKET(s, PONG, 0, "", 0);
        GOT_NOTHING(s);
        f = flow_open(s);
        CHECK_EQ(flow_send(f, 60000), FRISBEE_OK);
        CHECK_EQ(flow_send(f, 60000), FRISBEE_OK);
        put(s, STREAM, 1, noise, 1), put(s, STREAM, 1, "", 0);
        turns(w, 2);
        for (n = 0; n < 2; n++) CHECK(next(s, &packet) && packet.from.operation == STREAM && packet.length == 60000);
        CHECK_EQ(s->accepted, 1);
        GOT_NOTHING(s); // the close of its own stream is not answered
        CHECK(!s->closed);
        world_end(w);
    }
}

// The HELLO of a connector is its first packet whatever was queued or answered before: calls made before the open, a PING of the peer's.
static void section_11_hello_comes_first(void) {
    int how;
    for (how = 0; how < 4; how++) {
        world *w = world_begin(46);
        side *s, *peer;
        frisbee_packet packet;
        int n;
        link_make(w, &s, &peer);
        if (how == 0) s->end->slow_open = 5;
        w->desc.wire = how == 0 ? FRISBEE_WIRE_AUTO : FRISBEE_WIRE_WAIT;
        CHECK_EQ(side_attach(s, 0, FRISBEE_CONNECTOR), FRISBEE_OK);
        CHECK_EQ(ask(s), FRISBEE_OK);
        turns(w, 2);
        GOT_NOTHING(s);
        CHECK_EQ(s->opened, 0);
        s->wire = how == 3 ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_V1;
        if (how > 1) put(s, PING, 0, "", 0); // else it says v1 after a second
        UNTIL(w, 1500, s->opened);
        turns(w, 2);
        GOT_U32(s, HELLO, 0, WINDOW);
        for (n = 0; next(s, &packet); n++) CHECK(packet.from.operation == PING || packet.from.operation == PONG || packet.from.operation == ECHO);
        CHECK_EQ(n, how > 1 ? 3 : 2);
        world_end(w);
    }
}

// Who has half-closed says nothing more, no HELLO either; and the connection ends with the peer's end.
static void section_11_no_hello_behind_the_last_byte(void) {
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(48);
        side *s, *peer;
        frisbee_packet packet;
        link_make(w, &s, &peer);
        w->desc.wire = kinds[i].wire;
        s->on_open = finish_at_once;
        CHECK_EQ(side_attach(s, 0, kinds[i].role), FRISBEE_OK);
        if (!kinds[i].stock) put_u32(s, HELLO, 0, 1000);
        put(s, kinds[i].role == FRISBEE_CONNECTOR ? PONG : PING, 0, "", 0);
        turns(w, 3);
        while (next(s, &packet)) CHECK(kinds[i].role == FRISBEE_CONNECTOR && (packet.from.operation == HELLO || packet.from.operation == PING));
        CHECK(s->opened == 1 && s->end->finished && !s->closed);
        put(s, STREAM, peer_id(s), noise, 10); // the peer may still speak, if not open streams
        peer->end->out.ended = true;
        UNTIL(w, 50, s->closed);
        GOT_NOTHING(s);
        world_end(w);
    }
}

// An acceptor that opens and sends before it knows its peer: what comes before the HELLO is credit that the connector owes.
static void section_10_credit_for_what_came_before_the_hello(void) {
    int wire;
    for (wire = 0; wire < 2; wire++) {
        world *w = world_begin(49);
        side *s;
        w->desc.stream_window = 1000;
        s = play(w, FRISBEE_CONNECTOR, wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
        mem_take(s->end->peer, NULL, SIZE_MAX);
        put(s, STREAM, ACCEPTORS, noise, 700), put(s, STREAM, ACCEPTORS, noise, 700), put(s, STREAM, ACCEPTORS + 1, noise, 100);
        turns(w, 2);
        CHECK_EQ(s->accepted, 2);
        GOT_NOTHING(s); // a stock peer would not want it
        put_u32(s, HELLO, 0, 1000);
        put(s, PONG, 0, "", 0);
        turns(w, 2);
        GOT_U32(s, CREDIT, ACCEPTORS, 1400);
        GOT_NOTHING(s);
        world_end(w);
    }
}

// A stock peer that closes a stream and begins another with the same id, while the first is paused here: two streams, one after the other.
static void section_10_a_stock_peer_uses_an_id_again(void) {
    int i;
    for (i = FRIENDS; i < KINDS; i++) {
        world *w = world_begin(47);
        side *s = play_kind(w, &kinds[i], 0);
        flow *f, *g;
        s->hook = pause_at_open;
        put(s, STREAM, 5, "one", 3), put(s, STREAM, 5, "two", 3), put(s, STREAM, 5, "", 0);
        put(s, STREAM, 5, "three", 5);
        turns(w, 3);
        g = flow_newest(s), f = g->next;
        if (!CHECK_EQ(s->accepted, 2)) {
            world_end(w);
            continue;
        }
        CHECK(g->in == 0 && f->in == 0 && !f->closed && !g->closed);
        CHECK_EQ(flow_pause(g, false), FRISBEE_OK);
        turns(w, 2);
        CHECK(g->in == 1 && g->in_bytes == 5 && f->in == 0);
        CHECK_EQ(flow_pause(f, false), FRISBEE_OK);
        turns(w, 2);
        CHECK(f->in == 2 && f->in_bytes == 6 && f->closed == 1 && f->reason == FRISBEE_CLOSED && !g->closed);
        put(s, STREAM, 5, "four", 4), put(s, STREAM, 5, "", 0);
        turns(w, 2);
        CHECK(g->in == 2 && g->closed == 1 && g->reason == FRISBEE_CLOSED && s->accepted == 2);
        world_end(w);
    }
}

// >>flow control

// With a window of 1000 messages go as long as credit is above 0, so one overdraws it; CREDIT lets go on, and on_writable says when.
static void section_10_credit_of_a_sender(void) {
    int i;
    for (i = 0; i < FRIENDS; i++) {
        world *w = world_begin(50);
        side *s;
        flow *f, *g;
        frisbee_packet packet;
        uint64_t sent = 0;
        w->desc.stream_window = 77; // this side's own is another matter
        s = play_kind(w, &kinds[i], 1000);
        f = flow_open(s), g = flow_open(s);
        while (flow_send(f, 300) == FRISBEE_OK) {
            if (!CHECK(flow_sent(f) < 10)) break;
        }
        CHECK_EQ(flow_sent(f), 4); // -200
        CHECK_EQ(flow_send(f, 1), FRISBEE_AGAIN);
        CHECK_EQ(flow_send(g, 5000), FRISBEE_OK); // each stream has its own: -4000
        CHECK_EQ(flow_send(g, 1), FRISBEE_AGAIN);
        turns(w, 3);
        CHECK(f->writable == 0 && g->writable == 0);
        put_u32(s, CREDIT, f->number, 100);
        put_u32(s, CREDIT, f->number, 100); // 0
        put_u32(s, CREDIT, g->number, 3999); // -1
        turns(w, 3);
        CHECK(f->writable == 0 && g->writable == 0);
        CHECK_EQ(flow_send(f, 1), FRISBEE_AGAIN);
        put_u32(s, CREDIT, f->number, 1);
        turns(w, 2);
        CHECK(f->writable == 1 && g->writable == 0);
        CHECK_EQ(flow_send(f, 1000), FRISBEE_OK);
        CHECK_EQ(flow_send(f, 1), FRISBEE_AGAIN); // -999
        put_u32(s, CREDIT, f->number, 999 + 10);
        put_u32(s, CREDIT, g->number, 500);
        turns(w, 2);
        CHECK(f->writable == 2 && g->writable == 1);
        turns(w, 3);
        CHECK(f->writable == 2 && g->writable == 1); // told once
        for (; flow_send(f, 1) == FRISBEE_OK; sent++) {
            if (!CHECK(sent < 20)) break;
        }
        CHECK_EQ(sent, 10);
        put_u32(s, CREDIT, f->number, 5);
        CHECK_EQ(flow_close(f), FRISBEE_OK); // which ends the wait without on_writable
        turns(w, 2);
        CHECK(f->writable == 2 && f->closed == 1);
        put_u32(s, CREDIT, f->number, 5); // late: nothing
        turns(w, 2);
        sent = 0;
        while (next(s, &packet)) {
            CHECK_EQ(packet.from.operation, STREAM);
            if (packet.from.id == f->number) sent += packet.length;
        }
        CHECK_EQ(sent, f->out_bytes);
        CHECK(!s->closed && s->live == 1);
        world_end(w);
    }
}

// A receiver gives credit back in halves of its window, for what on_data has returned from.
static void section_10_credit_of_a_receiver(void) {
    int i;
    for (i = 0; i < FRIENDS; i++) {
        world *w = world_begin(51);
        side *s;
        frisbee_packet packet;
        uint64_t sent = 0, given = 0;
        int packets = 0, n;
        unsigned id;
        w->desc.stream_window = 1000;
        s = play_kind(w, &kinds[i], 1000);
        id = peer_id(s);
        put(s, STREAM, id, noise, 499);
        turns(w, 2);
        GOT_NOTHING(s);
        put(s, STREAM, id, noise, 2);
        turns(w, 2);
        GOT_U32(s, CREDIT, id, 501);
        put(s, STREAM, id, noise, 1500); // more than the window, as a message may be
        turns(w, 2);
        GOT_U32(s, CREDIT, id, 1500);
        for (n = 0; n < 300; n++) { // at any time the peer has more than half of its window, but for what is under way
            size_t length = 1 + mem_below(&w->net, 200);
            put(s, STREAM, id, noise, length);
            sent += length;
            turns(w, 2);
            while (next(s, &packet)) {
                CHECK(packet.from.operation == CREDIT && packet.from.id == id && packet.length == 4);
                given += get_u32(&packet);
                packets++;
            }
            CHECK(given <= sent && sent - given <= 500);
        }
        CHECK(packets > 0 && (uint64_t)packets <= sent / 500);
        CHECK_EQ(flow_pause(flow_newest(s), true), FRISBEE_OK); // what is kept has not been handed out
        put(s, STREAM, id, noise, 1000);
        turns(w, 3);
        GOT_NOTHING(s);
        CHECK_EQ(flow_pause(flow_newest(s), false), FRISBEE_OK);
        turns(w, 2);
        GOT_U32(s, CREDIT, id, (uint32_t)(sent - given + 1000));
        world_end(w);
    }
}

// Before the peer is known a connector trusts it with 16 KiB, and with one message more; an acceptor knows its peer from the first packet.
static void section_10_early_credit(void) {
    int stock, much;
    for (stock = 0; stock < 2; stock++)
        for (much = 0; much < 2; much++) {
            world *w = world_begin(52);
            side *s = play(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
            flow *f = flow_open(s);
            const uint32_t window = much ? 1000000 : 1000;
            while (flow_sent(f) < 100 && flow_send(f, 1000) == FRISBEE_OK) {}
            CHECK_EQ(flow_sent(f), 17); // 16384 - 17000 = -616
            turns(w, 3);
            CHECK_EQ(f->writable, 0);
            if (!stock) put_u32(s, HELLO, 0, window);
            put(s, PONG, 0, "", 0);
            turns(w, 3);
            CHECK_EQ(f->writable, stock || much);
            if (!stock && !much) { // its credit is 1000 - 17000
                put_u32(s, CREDIT, f->number, 16000);
                turns(w, 2);
                CHECK_EQ(f->writable, 0);
                put_u32(s, CREDIT, f->number, 1);
                turns(w, 2);
                CHECK_EQ(f->writable, 1);
            }
            while (flow_sent(f) < 3000 && flow_send(f, 1000) == FRISBEE_OK) {}
            CHECK_EQ(flow_sent(f), stock ? 3000 : much ? 1000 : 18);
            world_end(w);
        }
}

// A reader that pauses: its sender stops at the window, everything else of the connection goes on, and nothing is lost.
static void promise_10_a_slow_stream_stops_no_other(void) {
    int way, one;
    for (way = 0; way < 2; way++)
        for (one = 0; one < 2; one++) {
            world *w = world_begin(53);
            side *ends[2];
            flow *slow, *fast, *g;
            uint64_t most;
            int n;
            w->one_pool = one;
            w->desc.stream_window = 20000;
            pair_open(w, &ends[0], &ends[1]);
            ends[!way]->hook = pause_at_open;
            slow = flow_open(ends[way]);
            CHECK_EQ(flow_send(slow, 500), FRISBEE_OK);
            turns(w, 3);
            g = flow_newest(ends[!way]);
            ends[!way]->hook = NULL;
            fast = flow_open(ends[way]);
            for (n = 0; n < 300; n++) {
                while (!slow->waits && flow_send(slow, 500) == FRISBEE_OK) {}
                while (!fast->waits && flow_send(fast, 700) == FRISBEE_OK) {}
                CHECK_EQ(ask(ends[way]), FRISBEE_OK);
                CHECK_EQ(ask(ends[!way]), FRISBEE_OK);
                turns(w, 1);
            }
            turns(w, 5);
            CHECK(ends[0]->replied == 300 && ends[1]->replied == 300);
            CHECK(flow_whole(fast->partner) && fast->out_bytes > 1000000);
            CHECK(g->in == 0 && slow->waits);
            CHECK_EQ(slow->out_bytes, 20000); // exactly its credit: 500 divides it
            most = w->heap.peak;
            CHECK_EQ(flow_pause(g, false), FRISBEE_OK);
            CHECK_EQ(g->in, 0); // not from inside
            for (n = 0; n < 300; n++) {
                while (!slow->waits && flow_send(slow, 500) == FRISBEE_OK) {}
                turns(w, 1);
            }
            turns(w, 5);
            CHECK(flow_whole(g) && g->in_bytes > 1000000);
            CHECK(w->heap.peak < most + 200000);
            CHECK_EQ(flow_close(slow), FRISBEE_OK);
            turns(w, 3);
            CHECK(g->closed == 1 && g->reason == FRISBEE_CLOSED);
            world_end(w);
        }
}

// Early messages may be more than the window of the peer: kept all the same.
static void section_10_early_messages_have_room_in_a_small_window(void) {
    world *w = world_begin(54);
    side *a, *b;
    flow *f, *g;
    w->desc.stream_window = 100;
    w->desc.max_packet = 9000;
    link_make(w, &a, &b);
    CHECK_EQ(side_attach(a, 0, FRISBEE_CONNECTOR), FRISBEE_OK);
    CHECK_EQ(side_attach(b, 1, FRISBEE_ACCEPTOR), FRISBEE_OK);
    b->hook = pause_at_open;
    UNTIL(w, 5, a->opened);
    f = flow_open(a);
    CHECK_EQ(flow_send(f, EARLY - 1), FRISBEE_TOO_LARGE);
    while (flow_sent(f) < 100 && flow_send(f, 5461) == FRISBEE_OK) {} // three are 16383
    CHECK_EQ(flow_sent(f), 4);
    turns(w, 10);
    g = flow_newest(b);
    CHECK(b->accepted == 1 && !g->closed && f->waits);
    CHECK_EQ(flow_pause(g, false), FRISBEE_OK);
    turns(w, 5);
    CHECK(flow_whole(g) && f->writable == 1);
    CHECK_EQ(flow_send(f, 100), FRISBEE_OK);
    turns(w, 5);
    CHECK(flow_whole(g));
    world_end(w);
}

// Who floods a paused stream, with no credit (or knowing none): that stream alone ends, EXHAUSTED; what was kept is freed.
static void promise_10_a_flooded_stream_ends_alone(void) {
    enum { SIZE = 500, WIDE = 20000, BOUND = WIDE + EARLY };
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(55);
        side *s;
        flow *victim, *other;
        frisbee_packet packet;
        size_t idle, kept = 0;
        int n, closes = 0, echoes = 0;
        w->desc.stream_window = WIDE;
        s = play_kind(w, &kinds[i], 1000000);
        put(s, STREAM, peer_id(s) + 1, noise, 9);
        turns(w, 1);
        other = flow_newest(s);
        s->hook = pause_at_open;
        put(s, STREAM, peer_id(s), noise, SIZE);
        turns(w, 2);
        victim = flow_newest(s);
        CHECK(victim != other && victim->paused);
        idle = w->heap.bytes;
        for (n = 1; n < 1000; n++) {
            put(s, STREAM, peer_id(s), noise, SIZE);
            put(s, STREAM, peer_id(s) + 1, noise, 10);
            put(s, ECHO, (unsigned)n, "", 0);
            turns(w, 1);
            if (!victim->closed) {
                kept = (size_t)(n + 1) * SIZE;
                CHECK(kept <= BOUND + SIZE);
                CHECK(w->heap.bytes - idle <= 2 * (BOUND + SIZE) + 4096); // with room to grow
            } else
                CHECK(kept + SIZE > BOUND); // and not before
            while (next(s, &packet)) {
                echoes += packet.from.operation == ECHO;
                if (packet.from.operation == STREAM) {
                    CHECK(packet.from.id == peer_id(s) && packet.length == 0);
                    closes++;
                }
            }
        }
        CHECK(victim->closed == 1 && victim->reason == FRISBEE_EXHAUSTED && victim->in == 0);
        CHECK_EQ(closes, 1); // the peer is told, once
        CHECK(!other->closed && other->in == 1000);
        CHECK_EQ(s->accepted, 2);
        CHECK(echoes == 999 && !s->closed);
        CHECK(w->heap.bytes < idle + 4096);
        world_end(w);
    }
}

// >>pausing

static flow *pause_first, *pause_second;
static int pause_step;
static void pauses_by_itself(flow *f, happening what) {
    if (what != GOT) return;
    if (f == pause_first && f->in % 3 == 0) { // paused from inside on_data, and on again by the other
        CHECK_EQ(flow_pause(f, true), FRISBEE_OK);
        pause_step++;
    }
    if (f == pause_second && pause_first->paused) CHECK_EQ(flow_pause(pause_first, false), FRISBEE_OK);
    if (f == pause_second && f->in == 7) { // twice, and back at once
        CHECK_EQ(flow_pause(f, true), FRISBEE_OK);
        CHECK_EQ(flow_pause(f, true), FRISBEE_OK);
        CHECK_EQ(flow_pause(f, false), FRISBEE_OK);
        CHECK_EQ(flow_pause(f, false), FRISBEE_OK);
    }
}

static void section_10_pause_and_resume_from_callbacks(void) {
    int i, n;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(60);
        side *s = play_kind(w, &kinds[i], 1000);
        unsigned id = peer_id(s);
        s->hook = pauses_by_itself;
        pause_first = pause_second = NULL;
        pause_step = 0;
        put(s, STREAM, id, noise, 1);
        turns(w, 1);
        pause_first = flow_newest(s);
        put(s, STREAM, id + 1, noise, 1);
        turns(w, 1);
        pause_second = flow_newest(s);
        for (n = 0; n < 30; n++) put(s, STREAM, id, noise + n, 100); // all in one read: stops behind the second
        turns(w, 3);
        CHECK(pause_first->in == 3 && pause_first->paused);
        for (n = 0; n < 10; n++) { // each message of the other lets three more through
            put(s, STREAM, id + 1, noise, 1);
            turns(w, 2);
            CHECK_EQ(pause_first->in, n < 9 ? 6 + 3 * n : 31);
        }
        CHECK(pause_step == 10 && pause_second->in == 11);
        world_end(w);
    }
}

// A paused connection hands out nothing, what its streams have kept included.
static void section_10_pause_of_the_connection(void) {
    int i, n;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(63);
        side *s = play_kind(w, &kinds[i], 1000);
        flow *f;
        s->hook = pause_at_open;
        for (n = 0; n < 5; n++) put(s, STREAM, peer_id(s), noise + n, 100);
        turns(w, 2);
        f = flow_newest(s);
        CHECK_EQ(frisbee_pause(s->pool, s->conn, true), FRISBEE_OK);
        CHECK_EQ(flow_pause(f, false), FRISBEE_OK);
        put(s, STREAM, peer_id(s), noise + 5, 100), put(s, STREAM, peer_id(s), "", 0);
        turns(w, 5);
        CHECK(f->in == 0 && !f->closed);
        CHECK_EQ(frisbee_pause(s->pool, s->conn, false), FRISBEE_OK);
        turns(w, 3);
        CHECK(f->in == 6 && f->closed == 1 && f->reason == FRISBEE_CLOSED);
        world_end(w);
    }
}

// Room that the connection lent (frisbee_reserve) is good for a message of a stream, too.
static void section_10_a_message_in_reserved_room(void) {
    world *w = world_begin(64);
    side *s = play(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
    flow *f;
    void *data;
    greet(s, 100000);
    f = flow_open(s);
    CHECK_EQ(frisbee_reserve(s->pool, s->conn, 3000, &data), FRISBEE_OK);
    memcpy(data, noise, 2000);
    CHECK_EQ(frisbee_stream_send(s->pool, f->handle, data, 2000), FRISBEE_OK);
    CHECK_EQ(frisbee_reserve(s->pool, s->conn, 3000, &data), FRISBEE_OK); // not used
    CHECK_EQ(frisbee_stream_send(s->pool, f->handle, noise + 1, 2000), FRISBEE_OK);
    turns(w, 2);
    GOT_PACKET(s, STREAM, 1, noise, 2000);
    GOT_PACKET(s, STREAM, 1, noise + 1, 2000);
    GOT_NOTHING(s);
    world_end(w);
}

// Kept messages and the end of the stream: the peer's close comes behind them, the own one drops them.
static void promise_10_kept_messages_come_before_the_peers_close(void) {
    int i, how, n;
    for (i = 0; i < KINDS; i++)
        for (how = 0; how < 4; how++) {
            world *w = world_begin(61);
            side *s;
            flow *f;
            size_t idle;
            s = play_kind(w, &kinds[i], 1000);
            idle = w->heap.bytes;
            s->hook = pause_at_open;
            for (n = 0; n < 20; n++) put(s, STREAM, peer_id(s), noise + n, 300);
            if (how) put(s, STREAM, peer_id(s), "", 0);
            turns(w, 3);
            f = flow_newest(s);
            CHECK(s->accepted == 1 && f->in == 0 && !f->closed);
            CHECK(w->heap.bytes >= idle + 6000);
            switch (how) {
            case 0: // closed here with kept messages
                CHECK_EQ(flow_close(f), FRISBEE_OK);
                turns(w, 2);
                CHECK(f->closed == 1 && f->reason == FRISBEE_OK && f->in == 0);
                GOT_PACKET(s, STREAM, f->number, "", 0);
                break;
            case 1: // closed by the peer, then resumed
                CHECK_EQ(flow_pause(f, false), FRISBEE_OK);
                CHECK(f->in == 0 && !f->closed);
                turns(w, 2);
                CHECK(f->in == 20 && f->closed == 1 && f->reason == FRISBEE_CLOSED);
                break;
            case 2: // closed by both: nothing more is delivered
                CHECK_EQ(flow_close(f), FRISBEE_OK);
                turns(w, 2);
                CHECK(f->closed == 1 && f->in == 0);
                break;
            default: // by the peer, and then the connection breaks
                mem_reset(s->end, FRISBEE_SYSTEM);
                turns(w, 2);
                CHECK(f->closed == 1 && f->in == 0 && s->closed == 1);
                break;
            }
            turns(w, 3);
            if (how != 3) { // one close in all goes to a frisbee.h peer, and to a stock one only if it did not close itself
                frisbee_packet packet;
                int closes = how == 0;
                while (next(s, &packet)) closes += packet.from.operation == STREAM && packet.length == 0;
                CHECK_EQ(closes, how == 0 || !kinds[i].stock);
            }
            CHECK(w->heap.bytes < idle + 2000);
            world_end(w);
        }
}

// The peer closes its streams and then the connection, in good order: what is kept for a paused stream is still delivered.
static void promise_10_kept_messages_survive_the_orderly_end_of_the_connection(void) {
    int i, with_end, n;
    for (i = 0; i < KINDS; i++)
        for (with_end = 0; with_end < 2; with_end++) {
            world *w = world_begin(62);
            side *s;
            flow *f;
            if (with_end) w->desc.events = &conn_events_with_end;
            s = play_kind(w, &kinds[i], 1000);
            s->hook = pause_at_open;
            for (n = 0; n < 20; n++) put(s, STREAM, peer_id(s), noise + n, 300);
            put(s, STREAM, peer_id(s), "", 0);
            s->end->peer->out.ended = true;
            turns(w, 100);
            f = flow_newest(s);
            CHECK(s->accepted == 1 && f->in == 0 && !f->closed && !s->closed);
            CHECK_EQ(flow_pause(f, false), FRISBEE_OK);
            turns(w, 3);
            CHECK(f->in == 20 && f->closed == 1 && f->reason == FRISBEE_CLOSED);
            if (with_end) {
                CHECK(s->ended == 1 && !s->closed);
                CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
            }
            UNTIL(w, 100, s->closed == 1);
            CHECK_EQ(s->info.reason, with_end ? FRISBEE_OK : FRISBEE_CLOSED);
            world_end(w);
        }
}

// >>limits of the queue

static void section_10_queue_limit_and_on_writable(void) {
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(65);
        side *s;
        flow *flows[3];
        int n, round;
        w->desc.max_packet = 10000;
        w->desc.queue_limit = 30000;
        w->desc.high_water = 10000;
        s = play_kind(w, &kinds[i], 1 << 30);
        for (n = 0; n < 3; n++) flows[n] = flow_open(s);
        for (round = 1; round < 4; round++) {
            s->end->out.capacity = 2000;
            turns(w, 1);
            for (n = 0; n < 3; n++) {
                while (flow_sent(flows[n]) < 10000 && flow_send(flows[n], 700) == FRISBEE_OK) {}
                CHECK(flows[n]->waits && frisbee_queued(s->pool, s->conn) <= 30000);
            }
            turns(w, 5);
            CHECK(flows[0]->waits && flows[1]->waits && flows[2]->waits);
            s->end->out.capacity = SIZE_MAX;
            turns(w, 5);
            for (n = 0; n < 3; n++) CHECK(!flows[n]->waits && flows[n]->writable == round); // each of them
            mem_take(s->end->peer, NULL, SIZE_MAX);
        }
        // One that is closed while it waits is told nothing more, and the others are; afterwards the peer confirms.
        s->end->out.capacity = 2000;
        turns(w, 1);
        for (n = 0; n < 3; n++)
            while (flow_send(flows[n], 700) == FRISBEE_OK) {}
        CHECK_EQ(flow_close(flows[1]), FRISBEE_OK);
        turns(w, 2);
        CHECK_EQ(flows[1]->closed, 1);
        s->end->out.capacity = SIZE_MAX;
        turns(w, 5);
        CHECK(!flows[0]->waits && !flows[2]->waits && flows[1]->writable == 3);
        put(s, STREAM, flows[1]->number, "", 0), put(s, PONG, 0, "", 0);
        turns(w, 2);
        CHECK(flow_send(flows[0], 700) == FRISBEE_OK && flow_send(flows[2], 700) == FRISBEE_OK);
        world_end(w);
    }
}

// >>ids

// Both sides open and close without end, some streams live long: no two that live, and none whose close is not confirmed, share an id. (The
// check is in flow_try: the id is in use on neither side.)
static void promise_10_ids_never_collide(void) {
    enum { TOTAL = 90000 }; // each side goes through its ids more than once
    world *w = world_begin(70);
    side *ends[2];
    flow *open[2][64];
    uint64_t opened[2] = {0, 0};
    int i, n;
    memset(open, 0, sizeof open);
    w->net.fickle = 40;
    pair_open(w, &ends[0], &ends[1]);
    ends[0]->end->out.delay_us = 2 * MS; // late data and late answers all the time
    ends[1]->end->out.delay_us = 1 * MS;
    for (n = 0; n < 20000 && opened[0] + opened[1] < ROUNDS(TOTAL * 2); n++) {
        for (i = 0; i < 2; i++) {
            int k;
            for (k = 0; k < 64; k++) {
                flow *f = open[i][k];
                if (!f) {
                    if (flow_try(ends[i], NULL, &open[i][k])) continue; // at max_streams, with those of the peer
                    opened[i]++;
                    CHECK_EQ(flow_send(open[i][k], 1 + mem_below(&w->net, 9)), FRISBEE_OK);
                } else if (f->closed)
                    open[i][k] = NULL;
                else if (k < 3 ? mem_below(&w->net, 300) == 0 : f->partner && mem_below(&w->net, 3)) // some live long
                    (void)flow_close(mem_below(&w->net, 4) && f->partner && !f->partner->closed ? f->partner : f);
                else
                    CHECK(flow_send(f, 3) == FRISBEE_OK || f->closing);
                if (f && f->partner && !f->partner->closed) (void)flow_send(f->partner, 2);
            }
        }
        turn_by(w, MS);
    }
    CHECK(opened[0] + opened[1] >= ROUNDS(TOTAL * 2));
    CHECK(opened[0] > 1000 && opened[1] > 1000);
    turns(w, 20);
    CHECK(ends[0]->accepted <= opened[1] && ends[1]->accepted <= opened[0]); // no stream out of late data
    CHECK(!ends[0]->closed && !ends[1]->closed);
    world_end(w);
}

// Data under way when this side closed opens no stream: a frisbee.h peer confirms by a close.
static void section_10_late_data_opens_no_stream(void) {
    int i, own, n;
    for (i = 0; i < FRIENDS; i++)
        for (own = 0; own < 2; own++) {
            world *w = world_begin(71);
            side *s = play_kind(w, &kinds[i], 1000);
            unsigned id = own ? own_id(s) : peer_id(s);
            flow *f;
            if (own) CHECK_EQ(flow_send(flow_open(s), 10), FRISBEE_OK);
            put(s, STREAM, id, noise, 10);
            turns(w, 2);
            f = flow_newest(s);
            CHECK(f->number == id && f->in == 1);
            CHECK_EQ(flow_close(f), FRISBEE_OK);
            turns(w, 2);
            CHECK_EQ(f->closed, 1);
            for (n = 0; n < 50; n++) {
                put(s, STREAM, id, noise, 100);
                if (n % 10 == 0) put(s, PONG, 0, "", 0); // says nothing about it
                turns(w, 1);
            }
            put_u32(s, CREDIT, id, 100);
            turns(w, 2);
            CHECK(s->accepted == !own && s->live == 0 && f->in == 1);
            if (own) CHECK(flow_open(s)->number != id); // not yet free
            mem_take(s->end->peer, NULL, SIZE_MAX);
            put(s, STREAM, id, "", 0); // confirmed
            put(s, STREAM, peer_id(s), noise, 7); // a new one
            turns(w, 2);
            GOT_NOTHING(s);
            f = flow_newest(s);
            CHECK(f->number == peer_id(s) && f->in == 1 && f->in_bytes == 7 && !f->opener && !f->closed);
            world_end(w);
        }
}

// A stock peer's confirmation is the PONG to a second PING, a quarter of a second behind the one that left behind the close: those of its
// messages that were being written when the close came may follow the first PONG. PONGs to earlier PINGs say nothing.
static void section_10_late_data_of_a_stock_peer(void) {
    int i, own, n, pong;
    for (i = FRIENDS; i < KINDS; i++)
        for (own = 0; own < 2; own++) {
            world *w = world_begin(72);
            side *s;
            flow *f;
            unsigned id;
            w->desc.heartbeat_ms = own ? 500 : FRISBEE_NEVER;
            w->desc.heartbeat_timeout_ms = 100000;
            s = play_kind(w, &kinds[i], 0);
            id = own ? own_id(s) : peer_id(s) + 7;
            if (own) CHECK_EQ(flow_send(flow_open(s), 10), FRISBEE_OK);
            put(s, STREAM, id, noise, 10);
            turns(w, 2);
            f = flow_newest(s);
            CHECK(f->number == id && f->in == 1);
            mem_take(s->end->peer, NULL, SIZE_MAX);
            if (own) { // a PING is on its way
                UNTIL(w, 2000, waiting(s));
                GOT_PACKET(s, PING, 0, "", 0);
            }
            CHECK_EQ(flow_close(f), FRISBEE_OK);
            turns(w, 1);
            GOT_PACKET(s, STREAM, id, "", 0);
            for (pong = own ? 0 : 1; pong < 3; pong++) { // to that, to the one behind the close, to the second
                uint64_t since = w->net.now_us;
                for (n = 0; pong && n < 2000 && !waiting(s); n++) {
                    if (n % 50 == 0) put(s, STREAM, id, noise, 10);
                    if (n % 50 == 0 && own) CHECK(flow_open(s)->number != id);
                    turns(w, 1);
                }
                if (pong) GOT_PACKET(s, PING, 0, "", 0);
                if (pong == 2) CHECK(w->net.now_us - since >= 249 * MS);
                put(s, STREAM, id, noise, 10); // still late
                put(s, PONG, 0, "", 0);
                turns(w, 1);
                CHECK_EQ(s->accepted, !own);
            }
            if (!own) { // behind that it is a new stream
                put(s, STREAM, id, noise, 5);
                turns(w, 2);
                f = flow_newest(s);
                CHECK(s->accepted == 2 && f->number == id && f->in == 1 && f->in_bytes == 5);
            }
            CHECK(!s->closed);
            world_end(w);
        }
}

static void stock_answers(side *s, int ms) { // PINGs, for a while
    frisbee_packet packet;
    while (ms--) {
        while (next(s, &packet))
            if (packet.from.operation == PING) put(s, PONG, 0, "", 0);
        turns(s->w, 1);
    }
}

// All ids in use: EXHAUSTED, until one is confirmed closed.
static void section_10_ids_run_out(void) {
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(73);
        side *s;
        flow *f, *g;
        frisbee_result result = FRISBEE_OK;
        int n, total = kinds[i].role == FRISBEE_CONNECTOR ? ACCEPTORS - 1 : ACCEPTORS;
        w->desc.max_streams = 100000;
        w->desc.heartbeat_ms = 500;
        w->desc.heartbeat_timeout_ms = FRISBEE_NEVER;
        s = play_kind(w, &kinds[i], 1000);
        for (n = 0; n < total && result == FRISBEE_OK; n++) {
            result = flow_try(s, NULL, &f);
            if (result == FRISBEE_OK) result = flow_send(f, 1);
        }
        CHECK(n == total && result == FRISBEE_OK);
        CHECK_EQ(flow_try(s, NULL, NULL), FRISBEE_EXHAUSTED);
        turns(w, 2);
        mem_take(s->end->peer, NULL, SIZE_MAX);
        put(s, STREAM, peer_id(s), noise, 5); // the peer's are others
        turns(w, 1);
        CHECK_EQ(s->accepted, 1);
        f = flow_newest(s)->next;
        CHECK_EQ(flow_close(f), FRISBEE_OK);
        turns(w, 2);
        CHECK(f->closed == 1 && f->opener);
        CHECK_EQ(flow_try(s, NULL, NULL), FRISBEE_EXHAUSTED); // not confirmed
        if (!kinds[i].stock) put(s, STREAM, f->number, "", 0);
        else stock_answers(s, 1000);
        turns(w, 2);
        g = flow_open(s);
        CHECK_EQ(g->number, f->number);
        CHECK_EQ(flow_try(s, NULL, NULL), FRISBEE_EXHAUSTED);
        CHECK_EQ(s->live, (uint32_t)total + 1);
        world_end(w);
    }
}

// >>limits on their number

static void promise_3_max_streams(void) {
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(75);
        side *s;
        flow *f, *g;
        unsigned id;
        int n;
        w->desc.max_streams = 4;
        s = play_kind(w, &kinds[i], 100000);
        id = peer_id(s);
        f = flow_open(s), g = flow_open(s);
        CHECK(flow_send(f, 5) == FRISBEE_OK && flow_send(g, 5) == FRISBEE_OK);
        put(s, STREAM, id, noise, 1), put(s, STREAM, id + 1, noise, 1);
        turns(w, 2);
        CHECK(s->accepted == 2 && side_stats(s).streams == 4);
        CHECK_EQ(flow_try(s, NULL, NULL), FRISBEE_EXHAUSTED);
        mem_take(s->end->peer, NULL, SIZE_MAX);
        for (n = 0; n < 10; n++) put(s, STREAM, id + 2, noise, 100); // one too many: closed at once, and once
        put(s, STREAM, id, noise, 1);
        turns(w, 2);
        GOT_PACKET(s, STREAM, id + 2, "", 0);
        if (kinds[i].stock && waiting(s)) GOT_PACKET(s, PING, 0, "", 0); // its PONG will confirm
        GOT_NOTHING(s);
        CHECK(s->accepted == 2 && s->live == 4);
        CHECK_EQ(flow_newest(s)->next->in, 2); // the others go on
        if (!kinds[i].stock) put(s, STREAM, id + 2, "", 0);
        put(s, STREAM, id + 1, "", 0); // one ends, and there is room
        turns(w, 2);
        put(s, STREAM, id + 3, noise, 1);
        turns(w, 2);
        CHECK(s->accepted == 3 && s->live == 4);
        mem_take(s->end->peer, NULL, SIZE_MAX);
        CHECK_EQ(flow_close(f), FRISBEE_OK);
        turns(w, 2);
        (void)flow_open(s);
        CHECK_EQ(flow_try(s, NULL, NULL), FRISBEE_EXHAUSTED);
        CHECK(s->most_live == 4 && !s->closed);
        world_end(w);
    }
}

// Two frisbee.h peers with different limits: what is refused ends at its opener.
static void promise_3_max_streams_of_either_side(void) {
    int way;
    for (way = 0; way < 2; way++) {
        world *w = world_begin(76);
        side *ends[2], *many, *few;
        flow *f;
        int n, refused = 0;
        w->desc.max_streams = 50;
        link_make(w, &ends[0], &ends[1]);
        w->desc.max_streams = way ? 50 : 5;
        CHECK_EQ(side_attach(ends[0], 0, FRISBEE_CONNECTOR), FRISBEE_OK);
        w->desc.max_streams = way ? 5 : 50;
        CHECK_EQ(side_attach(ends[1], 1, FRISBEE_ACCEPTOR), FRISBEE_OK);
        turns(w, 5);
        many = ends[!way], few = ends[way];
        for (n = 0; n < 30; n++) CHECK_EQ(flow_send(flow_open(many), 10), FRISBEE_OK);
        turns(w, 10);
        CHECK(few->accepted == 5 && few->live == 5 && many->live == 5);
        for (f = many->flows; f; f = f->next) {
            if (!f->closed) continue;
            CHECK(f->reason == FRISBEE_CLOSED || f->reason == FRISBEE_REFUSED);
            refused++;
        }
        CHECK_EQ(refused, 25);
        CHECK_EQ(flow_try(few, NULL, NULL), FRISBEE_EXHAUSTED);
        CHECK(!ends[0]->closed && !ends[1]->closed);
        world_end(w);
    }
}

// A peer that opens streams without end, closes what is not open, gives credit to nobody, and reads nothing: bounded queue and memory.
static void promise_3_floods_are_answered_within_bounds(void) {
    enum { ROUND = 4000 };
    int i, way;
    for (i = 0; i < KINDS; i++)
        for (way = 0; way < 5; way++) {
            world *w = world_begin(77);
            side *s, *good;
            size_t queued = 0, early = 0;
            unsigned n, round;
            w->desc.max_streams = 10;
            w->desc.max_packet = 10000;
            w->desc.queue_limit = 30000;
            w->desc.high_water = 10000;
            w->desc.stream_window = 1000;
            good = play_kind(w, &kinds[i == 0], 1000);
            s = play_kind(w, &kinds[i], 1000);
            s->end->out.capacity = 100;
            for (round = 0; round < 30; round++) {
                for (n = 0; n < ROUND; n++) {
                    const unsigned id = way == 0 ? (round * ROUND + n) & 65535 : mem_below(&w->net, 65536);
                    if (way == 0 || (way == 1 && n % 2)) put(s, STREAM, id, noise, 1);
                    else if (way <= 2) put(s, STREAM, id, "", 0);
                    else if (way == 3) put_u32(s, CREDIT, id, n);
                    else put_u32(s, HELLO, id, n), put(s, n & 1 ? PING : PONG, id, "", 0);
                }
                turns(w, 4);
                if (s->closed) break;
                if (frisbee_queued(s->pool, s->conn) > queued) queued = frisbee_queued(s->pool, s->conn);
                put(good, STREAM, peer_id(good), noise, 10);
                turns(w, 1);
                CHECK_EQ(flow_newest(good)->in, round + 1);
                if (round == 2) early = w->heap.bytes;
            }
            CHECK(s->most_live <= 10 && good->live == 1);
            CHECK(queued <= 2 * 30000);
            CHECK(s->closed || round == 30);
            CHECK(w->heap.peak < 400000);
            if (!s->closed) CHECK(w->heap.bytes < early + 150000);
            CHECK(!good->closed);
            world_end(w);
        }
}

// Many streams paused at once: each keeps its bound and no more, and the sum of all is what max_memory says or less.
static void promise_3_max_memory_of_paused_streams(void) {
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(78);
        side *s, *good;
        unsigned n, round;
        w->pool_desc.max_memory = 400000;
        w->desc.max_packet = 10000;
        good = play_kind(w, &kinds[i == 0], 1000);
        s = play_kind(w, &kinds[i], 1000);
        s->hook = pause_at_open;
        for (round = 0; round < 30; round++) {
            for (n = 0; n < 100; n++) put(s, STREAM, peer_id(s) + n, noise, 1000); // 3 MB
            put(good, STREAM, peer_id(good), noise, 10);
            turns(w, 2);
            CHECK(w->heap.bytes <= 400000);
        }
        turns(w, 5);
        CHECK(w->heap.peak <= 400000);
        CHECK(!good->closed && good->live == 1); // the connection beside it lives
        world_end(w);
    }
}

// >>hostile packets

static void promise_6_credit_without_measure(void) {
    int i;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(80);
        side *s;
        flow *f;
        int n;
        w->desc.queue_limit = 100000;
        w->desc.max_packet = 50000;
        s = play_kind(w, &kinds[i], 0xFFFFFFFFu);
        f = flow_open(s);
        for (n = 0; n < 3000; n++) put_u32(s, CREDIT, f->number, 0xFFFFFFFFu);
        turns(w, 3);
        for (n = 0; n < 20 && !s->closed; n++) { // however much that is now: it is more than enough
            CHECK_EQ(flow_send(f, 40000), FRISBEE_OK);
            turns(w, 1);
            mem_take(s->end->peer, NULL, SIZE_MAX);
            put_u32(s, CREDIT, f->number, 0x80000000u);
        }
        CHECK(!s->closed || s->info.reason == FRISBEE_MALFORMED);
        world_end(w);
    }
}

// HELLO and CREDIT that are short close the connection; longer ones are read as far as they are known.
static void promise_6_short_and_long_payloads(void) {
    int i, length;
    for (i = 0; i < FRIENDS; i++)
        for (length = 0; length < 8; length++) {
            world *w = world_begin(81);
            side *s = play(w, kinds[i].role, kinds[i].wire);
            flow *f;
            const bool is_short = length < 4;
            put(s, HELLO, 0, "\0\0\0\x64....", (size_t)length);
            put(s, kinds[i].role == FRISBEE_CONNECTOR ? PONG : PING, 0, "", 0);
            turns(w, 3);
            CHECK_EQ(s->closed, is_short);
            if (is_short) CHECK_EQ(s->info.reason, FRISBEE_MALFORMED);
            else {
                f = flow_open(s);
                CHECK_EQ(flow_send(f, 100), FRISBEE_OK);
                CHECK_EQ(flow_send(f, 1), FRISBEE_AGAIN); // it was 100
                put_u32(s, HELLO, 0, 1000000); // said once: later ones are ignored
                turns(w, 3);
                CHECK(!s->closed && f->writable == 0 && flow_send(f, 1) == FRISBEE_AGAIN);
            }
            world_end(w);
            w = world_begin(81);
            s = play_kind(w, &kinds[i], 100);
            f = flow_open(s);
            CHECK_EQ(flow_send(f, 100), FRISBEE_OK);
            CHECK_EQ(flow_send(f, 1), FRISBEE_AGAIN);
            put(s, CREDIT, f->number, "\0\0\0\x64....", (size_t)length);
            turns(w, 3);
            CHECK_EQ(s->closed, is_short);
            if (is_short) CHECK(s->info.reason == FRISBEE_MALFORMED && f->reason == FRISBEE_MALFORMED);
            else CHECK(f->writable == 1 && flow_send(f, 100) == FRISBEE_OK && flow_send(f, 1) == FRISBEE_AGAIN);
            world_end(w);
        }
}

// What means nothing changes nothing: credit and closes of streams that never were, a HELLO that nobody asked for.
static void promise_6_packets_that_mean_nothing(void) {
    int i, n;
    for (i = 0; i < KINDS; i++) {
        world *w = world_begin(82);
        side *s = play_kind(w, &kinds[i], 1000);
        flow *f = flow_open(s);
        frisbee_packet packet;
        int answers = 0;
        CHECK_EQ(flow_send(f, 10), FRISBEE_OK);
        for (n = 0; n < 1000; n++) {
            unsigned id = mem_below(&w->net, 65536);
            if (id == f->number) continue;
            put(s, STREAM, id, "", 0);
            put_u32(s, CREDIT, id, n & 1 ? 0 : 0xFFFFFFFFu);
            put_u32(s, HELLO, id, (uint32_t)n);
        }
        put(s, STREAM, f->number, noise, 10);
        put(s, ECHO, 9, "", 0);
        turns(w, 3);
        CHECK(!s->closed && s->accepted == 0 && s->live == 1 && f->in == 1);
        while (next(s, &packet)) answers += packet.from.operation == ECHO;
        CHECK_EQ(answers, 1);
        world_end(w);
    }
}

// Anything at all, from a peer that knows the operations; the connection beside it is served after every turn.
static void promise_6_random_packets(void) {
    uint64_t seed;
    uint32_t streams = 0;
    int died = 0;
    for (seed = 1; seed <= ROUNDS(600); seed++) {
        static const unsigned operations[] = {PING,   PONG,  STREAM, STREAM, STREAM, STREAM, HELLO, CREDIT,
                                              CREDIT, FENCE, ECHO,   SINK,   3,      0xFF01, 0xFFFF}; // the last ones in every third life
        world *w = world_begin(seed);
        const kind *k = &kinds[seed % KINDS];
        const int before = check_failures;
        side *s, *good;
        unsigned n;
        w->desc.max_streams = 20;
        w->desc.stream_window = 500;
        w->desc.max_packet = 3000;
        w->desc.queue_limit = 20000;
        w->desc.high_water = 8000;
        good = play_kind(w, &kinds[0], 1000);
        s = mem_below(&w->net, 4) ? play_kind(w, k, mem_below(&w->net, 3000)) : play(w, k->role, k->wire);
        for (n = 0; n < 60; n++) {
            unsigned packets = mem_below(&w->net, 20), m;
            flow *f;
            for (m = 0; m < packets; m++) {
                const unsigned operation = operations[mem_below(&w->net, sizeof operations / sizeof *operations - (seed % 3 ? 6 : 0))];
                const unsigned id = (mem_below(&w->net, 2) ? own_id(s) : peer_id(s)) + mem_below(&w->net, mem_below(&w->net, 3) ? 5 : 300);
                const size_t length = operation == HELLO || operation == CREDIT ? (mem_below(&w->net, 50) ? 4 : mem_below(&w->net, 9))
                                                                              : mem_below(&w->net, 3) * mem_below(&w->net, 400);
                put(s, operation, id, noise + mem_below(&w->net, 1000), length);
            }
            if (s->opened && !s->closed) {
                if (mem_below(&w->net, 3) == 0 && flow_try(s, NULL, &f) == FRISBEE_OK) (void)flow_send(f, 30);
                for (f = s->flows; f; f = f->next) {
                    const uint32_t what = mem_below(&w->net, 12);
                    if (f->closed || f->closing) continue;
                    if (what < 4) (void)flow_send(f, 1 + mem_below(&w->net, 300));
                    else if (what == 4) (void)flow_close(f);
                    else if (what < 8) (void)flow_pause(f, what & 1);
                }
            }
            put(good, STREAM, peer_id(good), noise, 10);
            turns(w, 1);
            if (!CHECK_EQ(flow_newest(good)->in, n + 1)) break;
            if (mem_below(&w->net, 4) == 0) mem_take(s->end->peer, NULL, SIZE_MAX);
            CHECK(w->heap.bytes < 20 * (500 + EARLY + 3000) + 200000);
        }
        streams += s->accepted;
        died += s->closed;
        CHECK(s->most_live <= 20);
        world_end(w);
        if (check_failures > before) fprintf(stderr, "    seed %d\n", (int)seed);
        if (check_failures > 50) break;
    }
    CHECK(streams > 1000 && died > 20);
}

// >>shutdown

static void section_10_shutdown_waits_for_streams(void) {
    int role, how;
    for (role = 0; role < 2; role++)
        for (how = 0; how < 3; how++) { // the stream is closed by the peer, closed here, left open
            world *w = world_begin(85);
            side *ends[2], *s;
            flow *f, *g;
            pair_open(w, &ends[0], &ends[1]);
            s = ends[role];
            f = flow_open(s);
            CHECK_EQ(flow_send(f, 10), FRISBEE_OK);
            turns(w, 3);
            g = f->partner;
            CHECK_EQ(frisbee_shutdown(s->pool, 1000), FRISBEE_OK);
            turns(w, 100);
            CHECK(!s->closed && !f->closed && w->polled[role] == FRISBEE_OK);
            CHECK(flow_try(s, NULL, NULL) == FRISBEE_CLOSED);
            CHECK_EQ(flow_send(f, 10), FRISBEE_OK); // it goes on until it ends
            CHECK_EQ(flow_send(g, 20), FRISBEE_OK);
            turns(w, 3);
            CHECK(f->in == 1 && g->in == 2);
            if (how < 2) {
                CHECK_EQ(flow_close(how ? f : g), FRISBEE_OK);
                UNTIL(w, 100, s->closed && ends[!role]->closed);
                CHECK_EQ(f->reason, how ? FRISBEE_OK : FRISBEE_CLOSED);
                CHECK_EQ(g->reason, how ? FRISBEE_CLOSED : FRISBEE_OK);
            } else {
                w->lossy = true;
                UNTIL(w, 1000, s->closed);
                CHECK(f->closed == 1);
            }
            UNTIL(w, 5, w->polled[role] == FRISBEE_CLOSED);
            world_end(w);
        }
}

// >>whole is chopped: the same bytes in any pieces give each stream the same events

// What happens follows from the order of packets, never from pieces and turns. Of the ids that the peer uses the first six are of streams that
// pause, once, and go on when a SINK says so; the others close themselves, are closed by the peer, and come again.
static void reacts(flow *f, happening what) {
    const unsigned nth = f->number & 15;
    const bool pauses = nth < 6;
    if (what == OPENED && nth < 3) CHECK_EQ(flow_pause(f, true), FRISBEE_OK);
    if (what != GOT) return;
    if (f->in == 3 && pauses && nth >= 3) CHECK_EQ(flow_pause(f, true), FRISBEE_OK);
    if (f->in == 6 && nth % 4 == 1 && !pauses) CHECK_EQ(flow_close(f), FRISBEE_OK);
    if (f->in == 2 && nth % 2) (void)flow_send(f, 20); // the peer may have closed it
}

static void sink_resumes(side *s, unsigned id) {
    flow *f;
    for (f = s->flows; f; f = f->next)
        if (f->number == id && !f->closed) (void)flow_pause(f, false);
}

static void put_script(side *s, uint64_t seed, int how, bool stock) { // one input for all ways
    mem_net dice;
    unsigned n, first = (peer_id(s) + 15) & ~15u;
    memset(&dice, 0, sizeof dice);
    dice.random = seed;
    for (n = 0; n < 300; n++) {
        const unsigned id = first + mem_below(&dice, 12);
        const uint32_t what = mem_below(&dice, 20);
        if (what < 15) put(s, STREAM, id, noise + mem_below(&dice, 1000), 1 + mem_below(&dice, mem_below(&dice, 9) ? 60 : 2000));
        else if (what == 15) put(s, STREAM, first + 6 + mem_below(&dice, 6), "", 0);
        else if (what == 16) put_u32(s, CREDIT, id, mem_below(&dice, 1000));
        else if (what == 17 && !how) put(s, SINK, id, noise, mem_below(&dice, 100));
        else if (what == 18 || stock) put(s, PING, 0, "", 0);
        else put(s, PONG, 0, "", 0);
    }
    for (n = 0; n < 6; n++) put(s, STREAM, first + n, "", 0);
    if (how == 1) put_u32(s, CREDIT, 1, 1), put(s, CREDIT, 1, "", 0); // malformed
    if (how == 2) put(s, STREAM, first, noise, 5001);                  // too large
}

static void append_logs(mem_bytes *log, const flow *f) { // in the order in which they were opened
    if (!f) return;
    append_logs(log, f->next);
    mem_append(log, f->log.data, f->log.length);
}

static void promise_10_whole_is_chopped(void) {
    uint64_t seed;
    size_t most = 0;
    for (seed = 1; seed <= ROUNDS(120); seed++) {
        mem_bytes whole, log;
        int way, sunk = 0;
        memset(&whole, 0, sizeof whole);
        memset(&log, 0, sizeof log);
        for (way = 0; way < 7; way++) { // whole, byte by byte, sevens, and ragged
            world *w = world_begin(1);
            const kind *k = &kinds[seed % KINDS];
            side *s;
            w->desc.max_packet = 5000;
            s = play_kind(w, k, 10000000);
            s->hook = reacts;
            s->on_sink = sink_resumes;
            s->logs = true;
            if (way == 1) s->end->piece = 1;
            if (way == 2) s->end->piece = 7;
            if (way > 2) w->net.ragged = true, w->net.fickle = 60, w->net.random = seed * 100 + (unsigned)way;
            put_script(s, seed, (int)(seed % 3), k->stock);
            turns(w, 4);
            UNTIL(w, 60000, s->closed || !mem_size(&s->end->peer->out));
            turns(w, 5);
            CHECK_EQ(s->closed, seed % 3 != 0);
            log.length = 0;
            append_logs(&log, s->flows);
            if (!way) {
                mem_append(&whole, log.data, log.length);
                sunk = s->sunk;
                if (log.length > most) most = log.length;
            }
            CHECK_EQ(s->sunk, sunk);
            if (!CHECK(mem_same(&whole, &log))) {
                fprintf(stderr, "    seed %d way %d:\n%.*s    whole:\n%.*s", (int)seed, way, (int)log.length, (const char *)log.data,
                        (int)whole.length, (const char *)whole.data);
            }
            world_end(w);
        }
        mem_free(&whole), mem_free(&log);
    }
    CHECK(most > 3000);
}

// >>a seeded storm: connections that come and go between two pools, everything at random

static flow *some_flow(side *s) { // one that is open, at random
    flow *f;
    uint32_t left = s->live ? mem_below(&s->w->net, s->live) : 0;
    for (f = s->flows; f; f = f->next)
        if (!f->closed && !f->closing && !left--) return f;
    return NULL;
}

// Of all that a paused or slow reader holds up, its window (or the early credit) and one message are the most.
static void storm_is_bounded(world *w, const uint32_t *windows, uint32_t longest) {
    int i;
    for (i = 0; i < w->count; i++) {
        const flow *f;
        for (f = w->sides[i].flows; f; f = f->next) {
            const uint32_t window = windows[i] > EARLY ? windows[i] : EARLY;
            if (f->closed || f->closing || !f->partner || f->partner->closing || f->partner->closed) continue;
            if (!CHECK(f->partner->out_bytes - f->in_bytes < window + longest)) fprintf(stderr, "    stream %u of side %d\n", f->number, i);
        }
    }
}

static void storm_acts(side *s, uint32_t longest) {
    world *w = s->w;
    flow *f = some_flow(s);
    frisbee_result result = FRISBEE_OK;
    switch (mem_below(&w->net, 16)) {
    case 0:
    case 1: result = flow_try(s, mem_below(&w->net, 2) ? NULL : &stream_events_too, NULL); break;
    case 2: result = flow_try(s, NULL, &f); // and uses it at once
    // fall through
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        while (result == FRISBEE_OK && f && mem_below(&w->net, 4))
            result = flow_send(f, 1 + mem_below(&w->net, mem_below(&w->net, 5) ? 60 : longest));
        break;
    case 9: if (f && mem_below(&w->net, 2)) result = flow_close(f); break;
    case 10: if (f) result = flow_pause(f, true); break;
    case 11:
    case 12: if (f) result = flow_pause(f, false); break;
    case 13: result = ask(s); break;
    case 14: (void)frisbee_flush(s->pool); break;
    default: break;
    }
    CHECK(result == FRISBEE_OK || result == FRISBEE_AGAIN || result == FRISBEE_CLOSED || result == FRISBEE_EXHAUSTED || result == FRISBEE_NOT_SENT ||
          result == FRISBEE_HIJACKED);
    if (result == FRISBEE_NOT_SENT) CHECK(!s->opened);
}

static void storm_breaks(side *s) { // one connection
    switch (mem_below(&s->w->net, 6)) {
    case 0: s->w->lossy = true, mem_reset(s->end, FRISBEE_SYSTEM); break;
    case 1: side_close(s, FRISBEE_CLOSE_NOW); break;
    case 2: side_close(s, FRISBEE_CLOSE_FLUSH); break;
    case 3:
        s->w->lossy = true;
        (void)frisbee_finish(s->pool, s->conn);
        break;
    case 4: (void)frisbee_pause(s->pool, s->conn, true); break; // reading goes on when all settles
    default:
        s->w->lossy = true;
        (void)frisbee_hijack(s->pool, s->conn, mem_below(&s->w->net, 2) ? FRISBEE_HIJACK_NOW : FRISBEE_HIJACK_FENCED, 50, let_go, s);
        break;
    }
}

// What is still under way: NULL if nothing. `closing`: streams that are open count, too.
static const char *storm_unsettled(const world *w, bool closing) {
    int i;
    for (i = 0; i < w->count; i++) {
        const flow *f;
        if (w->sides[i].closed) continue;
        for (f = w->sides[i].flows; f; f = f->next) {
            if (f->closed) continue;
            if (closing) return "a stream is open";
            if (f->waits && !f->closing) return "a sender waits";
            if (!f->closing && f->partner && !f->partner->closed && !f->partner->closing && !flow_whole(f)) return "a message has not come";
        }
        if (w->sides[i].asked != w->sides[i].answered) return "a call waits";
    }
    return NULL;
}

static bool storm_settles(world *w, bool closing) {
    int n;
    for (n = 0; n < 4000 && storm_unsettled(w, closing); n++) turns(w, 1);
    if (CHECK(!storm_unsettled(w, closing))) return true;
    fprintf(stderr, "    %s\n", storm_unsettled(w, closing));
    return false;
}

static uint64_t storm_messages;
static void storm(uint64_t seed) {
    static const uint32_t wide[] = {1, 100, 1000, 6000, 40000, WINDOW}, lengths[] = {50, 600, 1900};
    static const uint64_t delays[] = {0, 0, 1 * MS, 7 * MS};
    static const size_t capacities[] = {SIZE_MAX, SIZE_MAX, 700, 5000};
    static const frisbee_wire wires[] = {FRISBEE_WIRE_V0, FRISBEE_WIRE_V1, FRISBEE_WIRE_AUTO};
    world *w = world_begin(seed);
    const uint32_t links = 1 + mem_below(&w->net, 3), longest = lengths[mem_below(&w->net, 3)];
    const bool breaks = mem_below(&w->net, 3) == 0;
    uint32_t windows[SIDES], i;
    int n, k;
    bool settled;
    w->one_pool = mem_below(&w->net, 4) == 0;
    w->net.ragged = mem_below(&w->net, 2);
    w->net.fickle = mem_below(&w->net, 2) ? 50 : 0;
    w->desc.max_packet = 2000;
    w->desc.queue_limit = 2010 + mem_below(&w->net, 20000);
    w->desc.high_water = w->desc.queue_limit / 2;
    w->desc.call_ms = FRISBEE_NEVER;
    w->desc.packet_ms = 500; // an unanswered fence
    w->desc.heartbeat_ms = mem_below(&w->net, 2) ? FRISBEE_NEVER : 20; // PINGs in between
    for (i = 0; i < links; i++) {
        side *ends[2];
        const frisbee_wire wire = wires[mem_below(&w->net, 3)];
        link_make(w, &ends[0], &ends[1]);
        for (n = 0; n < 2; n++) {
            ends[n]->end->out.delay_us = delays[mem_below(&w->net, 4)];
            ends[n]->end->out.capacity = capacities[mem_below(&w->net, 4)];
            ends[n]->end->wake_only = mem_below(&w->net, 2);
            w->desc.stream_window = windows[2 * i + (uint32_t)n] = wide[mem_below(&w->net, 6)];
            w->desc.max_streams = 2 + mem_below(&w->net, 40);
            w->desc.wire = n && mem_below(&w->net, 2) ? FRISBEE_WIRE_AUTO : wire;
            CHECK_EQ(side_attach(ends[n], n, n ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR), FRISBEE_OK);
        }
    }
    for (n = 0; n < 60; n++) {
        uint32_t acts = mem_below(&w->net, 12);
        while (acts--) {
            side *s = &w->sides[mem_below(&w->net, 2 * links)];
            if (!s->closed) storm_acts(s, longest);
        }
        if (breaks && mem_below(&w->net, 40) == 0) {
            side *s = &w->sides[mem_below(&w->net, 2 * links)];
            if (s->opened && !s->closed) storm_breaks(s);
        }
        turn_by(w, mem_below(&w->net, 3) * MS / 2);
        storm_is_bounded(w, windows, longest);
    }
    // It calms down: everybody reads. All that was sent on streams that are still open has to arrive, and each sender that waits to be told.
    for (k = 0; k < w->count; k++) {
        flow *f;
        side *s = &w->sides[k];
        w->sides[k].end->out.capacity = SIZE_MAX;
        if (!s->closed) (void)frisbee_pause(s->pool, s->conn, false);
        for (f = s->flows; f; f = f->next)
            if (!f->closed) (void)flow_pause(f, false);
    }
    settled = storm_settles(w, false);
    for (k = 0; k < w->count; k++) {
        flow *f;
        if (w->sides[k].closed) continue;
        for (f = w->sides[k].flows; f; f = f->next)
            if (!f->closed && !f->closing && (f->opener || mem_below(&w->net, 2))) (void)flow_close(f);
    }
    if (settled) storm_settles(w, true);
    for (k = 0; k < w->count; k++) {
        side *s = &w->sides[k];
        const flow *f;
        if (!w->lossy) CHECK(!s->closed && s->live == 0);
        for (f = s->flows; f; f = f->next) storm_messages += f->in;
    }
    world_end(w);
}

static void promise_10_storms(void) {
    uint64_t seed;
    storm_messages = 0;
    for (seed = 1; seed <= ROUNDS(12000); seed++) {
        int before = check_failures;
        storm(seed);
        if (check_failures == before) continue;
        fprintf(stderr, "    storm %d\n", (int)seed);
        if (check_failures > 50) break;
    }
    CHECK(storm_messages > 20 * ROUNDS(12000));
}

// >>any function from any callback: each kind of callback of a stream does each pair of actions

#define PLACES(X)                                                                                                                      \
    X(on_open) X(first_data_of_opener) X(first_data_of_acceptor) X(kept_data) X(on_writable) X(closed_here) X(closed_by_peer)             \
    X(closed_by_the_end)
#define ACTS(X)                                                                                                                        \
    X(nothing) X(close_it) X(close_another) X(close_all) X(open) X(send) X(send_much) X(send_another) X(pause_it) X(pause_and_resume)    \
    X(pause_another) X(resume_all) X(bind) X(ask_something) X(flush) X(poll) X(close_now) X(close_flush) X(finish) X(pause_conn)           \
    X(hijack_now) X(hijack_fenced) X(hijack_stock) X(upgrade_now) X(upgrade_fenced) X(shut_down) X(destroy)
#define AS_PLACE(name) AT_##name,
#define AS_ACT(name) DO_##name,
#define AS_TEXT(name) #name,
enum place { PLACES(AS_PLACE) PLACE_COUNT };
enum act { ACTS(AS_ACT) ACT_COUNT };
static const char *const place_names[] = {PLACES(AS_TEXT) ""};
static const char *const act_names[] = {ACTS(AS_TEXT) ""};

static struct { enum place place; enum act acts[2]; int side, acted; } table;

static void act(flow *f, enum act what) {
    side *s = f->s;
    flow *another, *g;
    int n;
    for (another = s->flows; another && (another == f || another->closed || another->closing); another = another->next) {}
    switch (what) {
    case DO_close_it: (void)flow_close(f); break;
    case DO_close_another: if (another) (void)flow_close(another); break;
    case DO_close_all:
        for (g = s->flows; g; g = g->next) (void)flow_close(g);
        break;
    case DO_open: if (flow_try(s, NULL, &g) == FRISBEE_OK) (void)flow_send(g, 30); break;
    case DO_send: (void)flow_send(f, 10); break;
    case DO_send_much: // a part of it borrowed
        for (n = 0; n < 100 && flow_send(f, 100) == FRISBEE_OK; n++) {}
        break;
    case DO_send_another: if (another) (void)flow_send(another, 100); break;
    case DO_pause_it: (void)flow_pause(f, true); break;
    case DO_pause_and_resume: (void)flow_pause(f, true), (void)flow_pause(f, false); break;
    case DO_pause_another: if (another) (void)flow_pause(another, true); break;
    case DO_resume_all:
        for (g = s->flows; g; g = g->next) (void)flow_pause(g, false);
        break;
    case DO_bind: (void)frisbee_stream_bind(s->pool, f->handle, &stream_events_too, f); break;
    case DO_ask_something: (void)ask(s); break;
    case DO_flush: (void)frisbee_flush(s->pool); break;
    case DO_poll: CHECK_EQ(frisbee_poll(s->pool, 0), FRISBEE_BUSY); break;
    case DO_close_now: side_close(s, FRISBEE_CLOSE_NOW); break;
    case DO_close_flush: side_close(s, FRISBEE_CLOSE_FLUSH); break;
    case DO_finish: (void)frisbee_finish(s->pool, s->conn); break;
    case DO_pause_conn: (void)frisbee_pause(s->pool, s->conn, true); break;
    case DO_hijack_now: (void)frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_NOW, 20, let_go, s); break;
    case DO_hijack_fenced: (void)frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_FENCED, 20, let_go, s); break;
    case DO_hijack_stock: (void)frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_STOCK, 20, let_go, s); break;
    case DO_upgrade_now: (void)frisbee_upgrade(s->pool, s->conn, FRISBEE_HIJACK_NOW, &eater); break;
    case DO_upgrade_fenced: (void)frisbee_upgrade(s->pool, s->conn, FRISBEE_HIJACK_FENCED, &eater); break;
    case DO_shut_down: (void)frisbee_shutdown(s->pool, 20); break;
    case DO_destroy: frisbee_pool_destroy(s->pool); break;
    default: break;
    }
}

static void acts_in_callbacks(flow *f, happening what) {
    side *s = f->s;
    enum place here;
    if (what == OPENED) here = AT_on_open;
    else if (what == GOT && f->choice) here = AT_kept_data;
    else if (what == GOT) here = f->opener ? AT_first_data_of_opener : AT_first_data_of_acceptor;
    else if (what == WRITABLE) here = AT_on_writable;
    else if (f->closing) here = AT_closed_here;
    else here = f->partner && f->partner->closing ? AT_closed_by_peer : AT_closed_by_the_end;
    if (!table.acted && s == &the_world.sides[table.side] && here == table.place) {
        table.acted = 1;
        act(f, table.acts[0]);
        act(f, table.acts[1]);
    } else if (what == GOT && !f->opener && f->in == 1) // the course of things: answers the first message
        (void)flow_send(f, 50);
}

static void table_case(void) {
    world *w = world_begin(90);
    side *ends[2], *mine, *theirs;
    flow *a, *b = NULL, *f;
    int n;
    w->lossy = true;
    w->desc.stream_window = 500;
    w->desc.max_packet = 1000;
    w->desc.queue_limit = 10000;
    w->desc.high_water = 5000;
    w->desc.packet_ms = 50;
    pair_open(w, &ends[0], &ends[1]);
    ends[0]->hook = ends[1]->hook = acts_in_callbacks;
    // `mine` opens where its side is to have the callbacks of an opener.
    mine = ends[table.place == AT_on_open || table.place == AT_first_data_of_acceptor || table.place == AT_kept_data ? !table.side : table.side];
    theirs = mine->other;
    a = flow_open(mine);
    b = flow_open(mine);
    (void)flow_send(a, 40), (void)flow_send(b, 40);
    (void)ask(mine), (void)ask(theirs);
    turns(w, 3);
    for (f = theirs->flows; f; f = f->next) (void)flow_pause(f, true), f->choice = 1; // then data is kept
    for (n = 0; n < 100 && flow_send(a, 90) == FRISBEE_OK; n++) {} // till credit ends
    turns(w, 3);
    for (f = theirs->flows; f; f = f->next) (void)flow_pause(f, false);
    turns(w, 3);
    if (table.place == AT_closed_by_peer) {
        for (f = theirs->flows; f; f = f->next) (void)flow_close(f);
    } else
        (void)flow_close(a);
    turns(w, 3);
    if (ends[0]->pool && !ends[0]->closed) side_close(ends[0], FRISBEE_CLOSE_NOW);
    turns(w, 60);
    CHECK_EQ(table.acted, 1);
    world_end(w);
}

static void promise_5_any_function_from_any_callback_of_a_stream(void) {
    int place, first, second, which;
    for (place = 0; place < PLACE_COUNT; place++)
        for (which = 0; which < 2; which++)
            for (first = 0; first < ACT_COUNT; first++)
                for (second = 0; second < ACT_COUNT; second++) {
                    int before = check_failures;
                    memset(&table, 0, sizeof table);
                    table.place = (enum place)place;
                    table.acts[0] = (enum act)first;
                    table.acts[1] = (enum act)second;
                    table.side = which;
                    table_case();
                    if (check_failures == before) continue;
                    fprintf(stderr, "    in %s of side %d: %s, then %s\n", place_names[place], which, act_names[first], act_names[second]);
                    if (check_failures > 100) return;
                }
}

// >>memory that runs out

// A life with streams both ways. Answers whether all of it went well.
static bool live(world *w, size_t fail_at) {
    side *ends[2], *good;
    flow *f;
    bool well = true;
    int i, n;
    w->desc.stream_window = 2000;
    w->desc.max_packet = 5000;
    w->desc.queue_limit = 20000;
    w->desc.high_water = 10000;
    w->lossy = true;
    link_make(w, &ends[0], &ends[1]);
    w->heap.fail_at = fail_at;
    if (side_attach(ends[0], 0, FRISBEE_CONNECTOR) || side_attach(ends[1], 1, FRISBEE_ACCEPTOR)) return false;
    ends[0]->end->out.capacity = ends[1]->end->out.capacity = 3000;
    turns(w, 6);
    ends[1]->hook = pause_at_open;
    for (n = 0; n < 30; n++)
        for (i = 0; i < 2; i++) {
            if (n % 3 == 0) {
                frisbee_result result = flow_try(ends[i], NULL, NULL);
                well &= result == FRISBEE_OK;
                CHECK(result == FRISBEE_OK || result == FRISBEE_NO_MEMORY || result == FRISBEE_CLOSED || result == FRISBEE_NOT_SENT);
            }
            for (f = ends[i]->flows; f; f = f->next) {
                frisbee_result result;
                if (f->closed || f->closing || f->waits) continue;
                result = flow_send(f, n % 7 ? 100 : 1500);
                CHECK(result == FRISBEE_OK || result == FRISBEE_AGAIN || result == FRISBEE_NO_MEMORY || result == FRISBEE_CLOSED);
                well &= result != FRISBEE_NO_MEMORY;
                if (n % 11 == 10 && f->in > 2) (void)flow_close(f);
                else if (n % 5 == 4) (void)flow_pause(f, !f->paused);
            }
            turns(w, 1);
        }
    ends[1]->hook = NULL;
    for (i = 0; i < 2; i++)
        for (f = ends[i]->flows; f; f = f->next)
            if (!f->closed) (void)flow_pause(f, false);
    turns(w, 30);
    for (i = 0; i < 2; i++)
        for (f = ends[i]->flows; f; f = f->next)
            well &= f->closed ? f->reason == FRISBEE_OK || f->reason == FRISBEE_CLOSED : !f->partner || flow_whole(f);
    well &= !ends[0]->closed && !ends[1]->closed;
    if (!w->heap.fail_on && w->pool[0]) { // one failure, whatever it hit, leaves the pool in working order
        w->heap.fail_at = 0;
        good = play(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        greet(good, 1000);
        put(good, STREAM, 1, noise, 4000);
        turns(w, 2);
        CHECK(good->accepted == 1 && flow_newest(good)->in_bytes == 4000);
        CHECK_EQ(frisbee_stream_send(good->pool, flow_open(good)->handle, "good", 4), FRISBEE_OK);
        turns(w, 2);
        GOT_U32(good, CREDIT, 1, 4000);
        GOT_PACKET(good, STREAM, ACCEPTORS, "good", 4);
    }
    return well;
}

static void promise_3_the_nth_allocation_fails_with_streams(void) {
    int on;
    for (on = 0; on < 2; on++) {
        size_t n, failures = 1;
        bool well = false;
        for (n = 1; n < 5000 && failures; n++) {
            world *w = world_begin(95);
            w->heap.fail_on = on;
            well = live(w, n);
            w->heap.fail_at = 0;
            failures = w->heap.failures;
            world_end(w);
        }
        CHECK(!failures && well && n > 30);
    }
}

// In a fixed block streams live in what it has beyond FRISBEE_POOL_BYTES: with nothing beyond they answer NO_MEMORY, and all else works.
static void promise_3_streams_in_a_fixed_block(void) {
    static const size_t beyond[] = {0, 1000, 20000, 200000};
    enum { GUARD = 64 };
    int i, b;
    for (b = 0; b < 4; b++)
        for (i = 0; i < KINDS; i++) {
            world *w = world_begin(96);
            const size_t size = FRISBEE_POOL_BYTES(2, 8, 1000, 4000) + beyond[b];
            uint8_t *block = (uint8_t *)malloc(size + 2 * GUARD);
            side *s, *other;
            flow *f;
            frisbee_result result;
            frisbee_packet packet;
            int n, opened = 0, echoes = 0, broken = 0;
            if (!block) exit(2);
            memset(block, 0xC3, size + 2 * GUARD);
            memset(&w->pool_desc.allocator, 0, sizeof w->pool_desc.allocator);
            w->pool_desc.memory = block + GUARD;
            w->pool_desc.memory_size = size;
            w->pool_desc.max_conns = 2;
            w->pool_desc.max_calls = 8;
            w->pool_desc.max_packet = 1000;
            w->pool_desc.queue_limit = 4000;
            w->pool_desc.read_buffer = 0;
            w->desc.stream_window = 3000;
            w->desc.max_packet = 1000;
            s = play(w, kinds[i].role, kinds[i].wire);
            other = play(w, kinds[i].role, kinds[i].wire);
            for (n = 0; n < 2; n++) { // who found no memory for streams does not say HELLO, or says that it takes none
                side *one = n ? other : s;
                if (!kinds[i].stock) put_u32(one, HELLO, 0, 100000);
                put(one, kinds[i].role == FRISBEE_CONNECTOR ? PONG : PING, 0, "", 0);
                turns(w, 2);
                mem_take(one->end->peer, NULL, SIZE_MAX);
            }
            while (opened < 100 && (result = flow_try(s, NULL, &f)) == FRISBEE_OK) opened++;
            CHECK(opened == 100 || result == FRISBEE_NO_MEMORY);
            CHECK(b == 3 ? opened == 100 : b == 2 ? opened >= 4 : true);
            for (f = s->flows; f; f = f->next) CHECK_EQ(flow_close(f), FRISBEE_OK);
            turns(w, 3);
            for (f = s->flows; f; f = f->next) CHECK_EQ(f->closed, 1);
            s->hook = pause_at_open;
            for (n = 0; n < 400; n++) { // kept input uses up what there is; streams may end, the connections live and are served
                put(s, STREAM, peer_id(s) + (unsigned)n % 20, noise, 500);
                if (n % 10 == 9) put(s, ECHO, 1, noise, 1000), put(other, ECHO, 2, noise, 1000);
                if (n % 10 == 9) turns(w, 1);
                if (n == 200 && (f = some_flow(s)) != NULL) (void)flow_pause(f, false);
                while (next(s, &packet)) echoes += packet.from.operation == ECHO;
                while (next(other, &packet)) echoes += packet.from.operation == ECHO;
            }
            turns(w, 3);
            while (next(s, &packet)) echoes += packet.from.operation == ECHO;
            while (next(other, &packet)) echoes += packet.from.operation == ECHO;
            CHECK_EQ(echoes, 80);
            CHECK(!s->closed && !other->closed);
            if (b >= 2) CHECK(s->accepted > 0);
            for (f = s->flows; f; f = f->next) {
                if (f->closed && !f->opener) CHECK(f->reason == FRISBEE_NO_MEMORY || f->reason == FRISBEE_EXHAUSTED);
                else if (!f->closed) CHECK_EQ(flow_close(f), FRISBEE_OK);
            }
            for (n = 0; n < 8; n++) CHECK_EQ(ask(s), FRISBEE_OK); // all that FRISBEE_POOL_BYTES speaks of is still there
            turns(w, 2);
            world_end(w);
            for (n = 0; n < GUARD; n++) broken += block[n] != 0xC3 || block[GUARD + size + (size_t)n] != 0xC3;
            CHECK_EQ(broken, 0);
            free(block);
        }
}

int main(int argc, char **argv) {
    RUN(promise_10_a_thousand_streams_arrive_whole_and_in_order);
    RUN(promise_10_open_send_close_both_ways);
    RUN(promise_10_both_close_at_once);
    RUN(promise_10_the_end_of_the_connection_is_that_of_its_streams);
    RUN(promise_10_refused);
    RUN(promise_10_who_has_no_on_open_takes_no_streams_of_the_peer);
    RUN(section_10_user_pointers_and_own_events);
    RUN(section_10_a_stale_handle_is_closed_everywhere);
    RUN(section_10_results_of_the_functions);
    RUN(section_10_max_packet_of_the_peer);
    RUN(section_11_hello_of_a_connector);
    RUN(section_11_hello_of_an_acceptor);
    RUN(section_11_hello_of_who_has_no_streams);
    RUN(section_10_packets_of_streams_are_dropped_where_there_are_none);
    RUN(section_11_a_stock_peer);
    RUN(section_11_who_the_peer_is_is_told_by_its_first_words);
    RUN(section_11_hello_comes_first);
    RUN(section_11_no_hello_behind_the_last_byte);
    RUN(section_10_credit_for_what_came_before_the_hello);
    RUN(section_10_a_stock_peer_uses_an_id_again);
    RUN(section_10_credit_of_a_sender);
    RUN(section_10_credit_of_a_receiver);
    RUN(section_10_early_credit);
    RUN(promise_10_a_slow_stream_stops_no_other);
    RUN(section_10_early_messages_have_room_in_a_small_window);
    RUN(promise_10_a_flooded_stream_ends_alone);
    RUN(section_10_pause_and_resume_from_callbacks);
    RUN(section_10_pause_of_the_connection);
    RUN(section_10_a_message_in_reserved_room);
    RUN(promise_10_kept_messages_come_before_the_peers_close);
    RUN(promise_10_kept_messages_survive_the_orderly_end_of_the_connection);
    RUN(section_10_queue_limit_and_on_writable);
    RUN(promise_10_ids_never_collide);
    RUN(section_10_late_data_opens_no_stream);
    RUN(section_10_late_data_of_a_stock_peer);
    RUN(section_10_ids_run_out);
    RUN(promise_3_max_streams);
    RUN(promise_3_max_streams_of_either_side);
    RUN(promise_3_floods_are_answered_within_bounds);
    RUN(promise_3_max_memory_of_paused_streams);
    RUN(promise_6_credit_without_measure);
    RUN(promise_6_short_and_long_payloads);
    RUN(promise_6_packets_that_mean_nothing);
    RUN(promise_6_random_packets);
    RUN(section_10_shutdown_waits_for_streams);
    RUN(promise_10_whole_is_chopped);
    RUN(promise_10_storms);
    RUN(promise_5_any_function_from_any_callback_of_a_stream);
    RUN(promise_3_the_nth_allocation_fails_with_streams);
    RUN(promise_3_streams_in_a_fixed_block);
    return check_report("streams");
}
