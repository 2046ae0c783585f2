// test_memory.c - the promises of the manual (section 12), kept over an in-memory network under a virtual clock. Cases are named after the
// promise or section that they test. A case builds a `world`: pools, a pair of connections (side 0 connects, side 1 accepts) or connections
// whose other end the test plays byte by byte. Nothing here depends on real time: a case that hangs has run out of turns and fails.
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#include "../frisbee.h"
#include "check.h"
#include "memory.h"

#define MS UINT64_C(1000) // of the clock
#define SIDES 48
#define TICKETS 70000

// >>the world

// Operations that both sides route: answered at once, noted, answered when the test says so, never answered, given to the case's hook,
// answered with as many bytes as the request's first four say. Operations from PLAIN on have no route: on_packet notes them.
enum { ECHO = 10, NOTE, LATER, MUTE, SWITCH, BULK, PLAIN = 20 };

typedef struct side side;
typedef struct world world;
typedef struct parked { frisbee_origin origin; size_t length; uint8_t data[64]; } parked; // a deferred request

struct side {
    world *w;
    frisbee_pool *pool;
    frisbee_conn conn;
    mem_end *end;
    bool attached, recurring; // recurring: protocols come and go, so the order of callbacks is not a line
    int opened, writable, ended, hijacks, closed, wraps, starts, stops, unwrapped;
    frisbee_close_info info;
    char trace[400]; // callbacks in order, one letter each, repetitions left out
    uint64_t noted, note_hash, sent, sent_hash;
    mem_bytes prefixes; // sent_hash after each packet
    mem_bytes log;      // noted packets as text, where `logs`
    bool logs;
    mem_bytes parked;
    int deferred_again; // frisbee_defer answered AGAIN
    int reply_again;    // a reply answered AGAIN
    void (*on_request)(side *s, const frisbee_packet *packet);
    void (*on_open)(side *s);
    void (*on_end)(side *s);
    void (*on_closing)(side *s);
    frisbee_hijacked taken;
    mem_bytes raw_in, raw_out, unsent, lines;
    int choice; // the case's own
    uint64_t noted_us, stopped_us;
};

struct world {
    mem_net net;
    mem_heap heap;
    frisbee_pool_desc pool_desc;
    frisbee_conn_desc desc; // of the next connection
    frisbee_wire wires[2];
    frisbee_pool *pool[2];
    bool one_pool;
    frisbee_result polled[2];
    side sides[SIDES];
    int count;
    int pings, pongs, nothings; // that raw ends have seen
    bool forged; // the peer answers calls with anything
    bool starving; // allocations fail: NO_MEMORY is an answer
};

typedef struct ticket { // a call
    side *owner;
    int done, seen, released;
    bool borrowed, sent, matches;
    frisbee_call_id id;
    frisbee_result result;
    uint64_t expect;
    uint8_t *copy;
    uint64_t done_us;
} ticket;

static world the_world;
static ticket tickets[TICKETS];
static uint32_t ticket_count;
static int lent, given_back; // borrowed payloads of packets

static bool fine(frisbee_result result) {
    return result == FRISBEE_OK || (result == FRISBEE_NO_MEMORY && the_world.starving);
}

static void trace(side *s, char letter) {
    size_t length = strlen(s->trace);
    if (length + 1 < sizeof s->trace && (!length || s->trace[length - 1] != letter)) s->trace[length] = letter;
}

// Section 3: w wrap, o open, then packets p, replies r and writable W mixed, e end, h hijacked, c close.
static bool in_order(const char *letters) {
    static const char ranks[] = "wos.ehtc";
    long now = -1;
    for (; *letters; letters++) {
        const char *at = strchr(ranks, *letters);
        long rank = at ? (long)(at - ranks) : 3;
        if (*letters == 'r' || *letters == 'W') { // also before the open (struck calls) and behind the end
            if (now > 4) return false;
            continue;
        }
        if (rank < now || (rank == now && rank != 3)) return false;
        now = rank;
    }
    return true;
}

static uint64_t packet_hash(uint64_t hash, unsigned operation, unsigned id, const void *data, size_t length) {
    uint8_t head[8];
    head[0] = (uint8_t)(operation >> 8), head[1] = (uint8_t)operation, head[2] = (uint8_t)(id >> 8), head[3] = (uint8_t)id;
    head[4] = (uint8_t)(length >> 24), head[5] = (uint8_t)(length >> 16), head[6] = (uint8_t)(length >> 8), head[7] = (uint8_t)length;
    return mem_hash(mem_hash(hash, head, 8), data, length);
}

static void note(side *s, const frisbee_packet *packet) {
    trace(s, 'p');
    CHECK(packet->conn_user == s && packet->from.conn.id == s->conn.id && !s->closed && !s->hijacks);
    s->noted++;
    s->noted_us = s->w->net.now_us;
    s->note_hash = packet_hash(s->note_hash, packet->from.operation, packet->from.id, packet->data, packet->length);
    if (s->logs) {
        char line[80];
        int length = snprintf(line, sizeof line, "packet %u %u %lu %08lx\n", (unsigned)packet->from.operation, (unsigned)packet->from.id,
                              (unsigned long)packet->length, (unsigned long)(mem_hash(1, packet->data, packet->length) & 0xFFFFFFFF));
        mem_append(&s->log, line, (size_t)length);
    }
}

static void handle(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    side *s = (side *)packet->conn_user;
    frisbee_result result = FRISBEE_OK;
    CHECK(pool == s->pool && user == (void *)&the_world);
    note(s, packet);
    if (s->on_request) s->on_request(s, packet);
    switch (packet->from.operation) {
    case ECHO: result = frisbee_reply(pool, &packet->from, packet->data, packet->length); break;
    case LATER: {
        parked later;
        memset(&later, 0, sizeof later);
        result = frisbee_defer(pool, packet, &later.origin);
        if (result == FRISBEE_AGAIN) s->deferred_again++;
        if (result) break;
        later.length = packet->length < sizeof later.data ? packet->length : sizeof later.data;
        if (later.length) memcpy(later.data, packet->data, later.length);
        mem_append(&s->parked, &later, sizeof later);
        break;
    }
    case BULK: {
        static uint8_t bulk[70000];
        const uint8_t *data = (const uint8_t *)packet->data;
        size_t length = packet->length < 4 ? 0 : (size_t)data[1] << 16 | (size_t)data[2] << 8 | data[3];
        if (length > sizeof bulk) length = sizeof bulk;
        result = frisbee_reply(pool, &packet->from, bulk, length);
        break;
    }
    default: break;
    }
    if (result == FRISBEE_AGAIN) s->reply_again++;
    CHECK(fine(result) || result == FRISBEE_AGAIN || result == FRISBEE_CLOSED || result == FRISBEE_HIJACKED);
}

static const frisbee_route routes[] = {
    {ECHO, handle, &the_world}, {NOTE, handle, &the_world}, {LATER, handle, &the_world},
    {MUTE, handle, &the_world}, {SWITCH, handle, &the_world}, {BULK, handle, &the_world},
};

static void opened(frisbee_pool *pool, frisbee_conn conn, void *user) {
    side *s = (side *)user;
    trace(s, 'o');
    s->opened++;
    CHECK(pool == s->pool && conn.id == s->conn.id && s->opened == 1);
    if (s->on_open) s->on_open(s);
}

static void packet_came(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    side *s = (side *)user;
    CHECK(pool == s->pool && packet->from.operation > BULK);
    note(s, packet);
    if (s->on_request) s->on_request(s, packet);
}

static void writable(frisbee_pool *pool, frisbee_conn conn, void *user) {
    side *s = (side *)user;
    trace(s, 'W');
    s->writable++;
    CHECK(pool == s->pool && conn.id == s->conn.id && !s->closed);
}

static void ended(frisbee_pool *pool, frisbee_conn conn, void *user) {
    side *s = (side *)user;
    trace(s, 'e');
    s->ended++;
    CHECK(pool == s->pool && conn.id == s->conn.id && s->ended == 1);
    if (s->on_end) s->on_end(s);
}

static void closed(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    side *s = (side *)user;
    frisbee_stats stats;
    trace(s, 'c');
    s->closed++;
    s->info = *info;
    CHECK(conn.id == s->conn.id && s->closed == 1 && info->retry_ms == FRISBEE_NEVER && info->opened == (s->opened > 0));
    if (info->reason != FRISBEE_DESTROYED) { // the getters still work
        CHECK(frisbee_user(pool, conn) == s);
        CHECK_EQ(frisbee_conn_stats(pool, conn, &stats), FRISBEE_OK);
    }
    if (s->on_closing) s->on_closing(s);
}

static const frisbee_events events = {opened, packet_came, writable, ended, closed};
static const frisbee_events events_without_end = {opened, packet_came, writable, NULL, closed};

static world *world_begin(uint64_t seed) {
    world *w = &the_world;
    memset(w, 0, sizeof *w);
    w->net.random = seed * UINT64_C(0x2545F4914F6CDD1D) + 1;
    w->net.now_us = 1000000;
    w->pool_desc.allocator = mem_allocator(&w->heap);
    w->pool_desc.now_us = mem_now;
    w->pool_desc.now_context = &w->net;
    w->desc.events = &events;
    w->desc.routes = routes;
    w->desc.route_count = sizeof routes / sizeof *routes;
    w->desc.heartbeat_ms = FRISBEE_NEVER;
    ticket_count = 0;
    lent = given_back = 0;
    return w;
}

static frisbee_pool *world_pool(world *w, int i) {
    if (w->one_pool) i = 0;
    if (!w->pool[i]) (void)frisbee_pool_create(&w->pool_desc, &w->pool[i]);
    return w->pool[i];
}

static side *side_make(world *w) {
    side *s = &w->sides[w->count++];
    CHECK(w->count <= SIDES);
    s->w = w;
    return s;
}

static frisbee_result side_attach(side *s, int pool, frisbee_role role, const void *prefill, size_t length) {
    frisbee_transport io = mem_transport(s->end);
    frisbee_conn_desc desc = s->w->desc;
    frisbee_result result;
    desc.role = role;
    desc.user = s;
    s->pool = world_pool(s->w, pool);
    if (!s->pool) return FRISBEE_NO_MEMORY;
    result = frisbee_attach(s->pool, &io, &desc, prefill, length, &s->conn);
    s->attached = result == FRISBEE_OK;
    if (s->attached) s->end->pool = s->pool, s->end->conn = s->conn;
    return result;
}

// A connection of pool 0 whose other end, side->end->peer, the test plays.
static side *side_raw(world *w, frisbee_role role, frisbee_wire wire) {
    side *s = side_make(w);
    mem_end *peer;
    mem_pair(&w->net, &s->end, &peer);
    w->desc.wire = wire;
    CHECK_EQ(side_attach(s, 0, role, NULL, 0), FRISBEE_OK);
    return s;
}

static void raw_pump(side *s) { // what the new owner of a hijacked transport does
    frisbee_transport *io = &s->taken.io;
    uint8_t buffer[512];
    frisbee_span span;
    size_t done;
    if (!s->hijacks || s->taken.result || !io->context) return;
    while (s->raw_out.length) {
        span.data = s->raw_out.data;
        span.length = s->raw_out.length;
        if (io->write(io->context, &span, 1, &done)) break;
        mem_drop(&s->raw_out, done);
    }
    while (io->read(io->context, buffer, sizeof buffer, &done) == FRISBEE_OK) mem_append(&s->raw_in, buffer, done);
}

static void turn_by(world *w, uint64_t us) {
    int i;
    for (i = 0; i < 2; i++) {
        if (!w->pool[i]) continue;
        w->polled[i] = frisbee_poll(w->pool[i], 0);
        if (w->polled[i] == FRISBEE_DESTROYED) w->pool[i] = NULL;
        else CHECK(frisbeei_check(w->pool[i]));
    }
    for (i = 0; i < w->count; i++) raw_pump(&w->sides[i]);
    mem_advance(&w->net, us);
}

static void turns(world *w, int count) {
    while (count--) turn_by(w, 1 * MS);
}

// Turns of a millisecond until `condition`, which must hold within so many.
#define UNTIL(w, ms, condition)                                    \
    do {                                                           \
        int until_turns = (int)(ms);                               \
        while (!(condition) && until_turns-- > 0) turn_by(w, MS);  \
        CHECK(condition);                                          \
    } while (0)

static void world_pair(world *w) { // before world_open, so that a case can shape the ends
    side *a = side_make(w), *b = side_make(w);
    mem_pair(&w->net, &a->end, &b->end);
}

static void world_open(world *w) {
    if (!w->count) world_pair(w);
    w->desc.wire = w->wires[0];
    CHECK_EQ(side_attach(&w->sides[0], 0, FRISBEE_CONNECTOR, NULL, 0), FRISBEE_OK);
    w->desc.wire = w->wires[1];
    CHECK_EQ(side_attach(&w->sides[1], 1, FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
    UNTIL(w, 5000, w->sides[0].opened && w->sides[1].opened);
}

static void side_free(side *s) {
    mem_free(&s->prefixes), mem_free(&s->log), mem_free(&s->parked), mem_free(&s->raw_in), mem_free(&s->raw_out), mem_free(&s->unsent);
    mem_free(&s->lines);
}

// The end of every case: whatever happened, everything has ended exactly once and nothing is left.
static void world_end(world *w) {
    uint32_t k;
    int i;
    for (i = 0; i < 2; i++) {
        frisbee_pool_destroy(w->pool[i]);
        w->pool[i] = NULL;
    }
    for (i = 0; i < w->count; i++) {
        side *s = &w->sides[i];
        if (s->hijacks && !s->taken.result && s->taken.io.context) s->taken.io.close(s->taken.io.context);
        if (s->attached) {
            CHECK_EQ(s->closed, 1);
            CHECK_EQ(s->end->closes, 1);
            CHECK_EQ(s->starts, s->stops);
            CHECK_EQ(s->wraps, s->unwrapped);
            CHECK_EQ(s->end->reads_after_end, 0);
            if (!CHECK(s->recurring || in_order(s->trace))) fprintf(stderr, "    %s\n", s->trace);
        }
        side_free(s);
    }
    for (k = 0; k < ticket_count; k++) {
        ticket *t = &tickets[k];
        CHECK_EQ(t->done, 1);
        CHECK_EQ(t->released, t->borrowed);
        CHECK(t->result != FRISBEE_OK || ((t->matches || w->forged) && t->sent));
        CHECK(t->result != FRISBEE_NOT_SENT || !t->sent);
        CHECK(t->result != FRISBEE_UNKNOWN || t->sent);
        free(t->copy);
    }
    CHECK_EQ(lent, given_back);
    CHECK_EQ(w->heap.blocks, 0);
    CHECK_EQ(w->heap.bytes, 0);
    mem_net_free(&w->net);
}

static void call_done(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    ticket *t = (ticket *)user;
    side *s = t->owner;
    (void)pool;
    trace(s, 'r');
    CHECK(!s->hijacks && !s->closed);
    t->done++;
    t->result = outcome->result;
    t->sent = outcome->sent;
    t->matches = outcome->result == FRISBEE_OK && mem_hash(1, outcome->data, outcome->length) == t->expect;
    t->done_us = s->w->net.now_us;
    CHECK(t->done == 1 && id.id == t->id.id);
    CHECK(outcome->result == FRISBEE_OK || outcome->result == FRISBEE_TIMED_OUT || outcome->result == FRISBEE_CANCELLED ||
          outcome->result == FRISBEE_NOT_SENT || outcome->result == FRISBEE_UNKNOWN);
}

static void call_released(void *user) {
    ticket *t = (ticket *)user;
    t->released++;
    if (t->copy) memset(t->copy, 0xDD, 1); // whoever still reads it sends something else
}

// A call whose reply should be its own payload.
static frisbee_result call_try(side *s, unsigned operation, const void *data, size_t length, int32_t timeout_ms, bool borrowed, ticket **made) {
    ticket *t = &tickets[ticket_count];
    frisbee_call_desc desc;
    frisbee_result result;
    if (!CHECK(ticket_count < TICKETS)) exit(2);
    memset(t, 0, sizeof *t);
    memset(&desc, 0, sizeof desc);
    t->owner = s;
    t->borrowed = borrowed;
    t->expect = mem_hash(1, data, length);
    desc.timeout_ms = timeout_ms;
    desc.on_reply = call_done;
    desc.user = t;
    if (borrowed) {
        t->copy = (uint8_t *)malloc(length ? length : 1);
        if (!t->copy) exit(2);
        if (length) memcpy(t->copy, data, length);
        desc.release = call_released;
        data = t->copy;
    }
    result = frisbee_call(s->pool, s->conn, (uint16_t)operation, data, length, &desc, &t->id);
    CHECK(!t->done && !t->released); // no callback from inside
    if (result) free(t->copy);
    else ticket_count++;
    if (made) *made = result ? NULL : t;
    return result;
}

static ticket *call(side *s, unsigned operation, const void *data, size_t length, int32_t timeout_ms) {
    ticket *t;
    CHECK_EQ(call_try(s, operation, data, length, timeout_ms, false, &t), FRISBEE_OK);
    return t;
}

// Borrowed payloads of packets: their release frees them, and is counted.
typedef struct loan { uint8_t *data; } loan;
static void give_back(void *user) {
    loan *l = (loan *)user;
    given_back++;
    free(l->data);
    free(l);
}

static loan *lend(const void *data, size_t length) {
    loan *l = (loan *)malloc(sizeof *l);
    if (!l || !(l->data = (uint8_t *)malloc(length + 1))) exit(2);
    if (length) memcpy(l->data, data, length);
    lent++;
    return l;
}

static void take_back(loan *l) { // of a function that did not answer OK
    lent--;
    free(l->data);
    free(l);
}

// Sends a packet in one of the three ways: copied, borrowed in pieces, encoded into reserved room.
static frisbee_result send_some_way(side *s, unsigned operation, unsigned id, const uint8_t *data, size_t length) {
    uint16_t op = (uint16_t)operation, number = (uint16_t)id;
    frisbee_result result;
    switch (mem_below(&s->w->net, 3)) {
    case 0: result = frisbee_send(s->pool, s->conn, op, number, data, length); break;
    case 1: {
        frisbee_span spans[3];
        loan *l = lend(data, length);
        size_t third = length / 3;
        spans[0].data = l->data, spans[0].length = third;
        spans[1].data = l->data + third, spans[1].length = third;
        spans[2].data = l->data + 2 * third, spans[2].length = length - 2 * third;
        result = frisbee_send_spans(s->pool, s->conn, op, number, spans, 3, give_back, l);
        memset(spans, 0xDD, sizeof spans);
        if (result) take_back(l);
        break;
    }
    default: {
        void *room = NULL;
        result = frisbee_reserve(s->pool, s->conn, length + 5, &room);
        if (result) break;
        if (length) memcpy(room, data, length);
        result = frisbee_send(s->pool, s->conn, op, number, room, length);
        break;
    }
    }
    if (result == FRISBEE_OK) {
        s->sent++;
        s->sent_hash = packet_hash(s->sent_hash, operation, id, data, length);
        mem_append(&s->prefixes, &s->sent_hash, sizeof s->sent_hash);
    }
    return result;
}

static uint64_t prefix_hash(const side *s, uint64_t count) { // of the first `count` packets that s sent
    uint64_t hash = 0;
    if (count) memcpy(&hash, s->prefixes.data + (size_t)(count - 1) * sizeof hash, sizeof hash);
    return hash;
}

// Chooses by the seed how the network behaves. Answers the longest payload that is sensible over it.
static size_t world_shape(world *w) {
    static const uint32_t fickle[] = {0, 0, 20, 128};
    static const size_t pieces[] = {0, 0, 1, 7, 1000}, capacities[] = {SIZE_MAX, SIZE_MAX, 1, 100, 5000}, buffers[] = {0, 256, 4096};
    static const uint64_t delays[] = {0, 0, 500, 20000};
    static const frisbee_wire pairs[][2] = {{FRISBEE_WIRE_AUTO, FRISBEE_WIRE_AUTO}, {FRISBEE_WIRE_V0, FRISBEE_WIRE_AUTO},
        {FRISBEE_WIRE_V1, FRISBEE_WIRE_AUTO}, {FRISBEE_WIRE_V0, FRISBEE_WIRE_V0}, {FRISBEE_WIRE_AUTO, FRISBEE_WIRE_V1}};
    size_t longest = 20000;
    uint32_t pair = mem_below(&w->net, 5), i;
    w->one_pool = mem_below(&w->net, 2);
    w->net.ragged = mem_below(&w->net, 2);
    w->net.fickle = fickle[mem_below(&w->net, 4)];
    w->pool_desc.read_buffer = buffers[mem_below(&w->net, 3)];
    world_pair(w);
    for (i = 0; i < 2; i++) {
        mem_end *end = w->sides[i].end;
        uint64_t delay = delays[mem_below(&w->net, 4)];
        end->wake_only = mem_below(&w->net, 2);
        end->piece = pieces[mem_below(&w->net, 5)];
        end->out.capacity = capacities[mem_below(&w->net, 5)];
        end->out.delay_us = end->out.capacity > 1 ? delay : 0; // a byte each 20 ms would take too many turns
        if (end->piece == 1 || end->out.capacity == 1) longest = 40;
        if (longest > 40 && (end->piece == 7 || end->out.capacity == 100)) longest = 400;
        w->wires[i] = pairs[pair][i];
    }
    return longest;
}

// >>playing a stock peer

// The next packet that the peer of `s` got, heartbeats and struck calls apart.
static bool raw_next(side *s, frisbee_wire wire, frisbee_packet *packet) {
    while (mem_take_packet(s->end->peer, wire, packet)) {
        if (packet->from.operation == 0) s->w->pings++;
        else if (packet->from.operation == 1) s->w->pongs++;
        else if (packet->from.operation == 0xFF01) s->w->nothings++;
        else return true;
        if (packet->from.operation < 2) CHECK_EQ(packet->length, 0); // stock peers lose their place over a payload
    }
    return false;
}

static void raw_drain(side *s, frisbee_wire wire) {
    frisbee_packet packet;
    while (raw_next(s, wire, &packet)) CHECK(packet.from.operation >= 2);
}

// >>promise 1

static void promise_1_packets_arrive_whole_in_order_at_most_once(void) {
    static uint8_t data[20000];
    uint64_t seed;
    for (seed = 1; seed <= 160; seed++) {
        world *w = world_begin(seed);
        size_t longest = world_shape(w);
        int left[2] = {60, 60}, n, i, again[2] = {0, 0};
        bool breaks = seed % 4 == 0;
        w->desc.queue_limit = 60000;
        w->desc.max_packet = 30000;
        w->desc.high_water = 3000;
        world_open(w);
        mem_fill(&w->net, data, sizeof data);
        for (n = 0; n < 30000; n++) {
            if (!left[0] && !left[1] && w->sides[0].noted == 60 && w->sides[1].noted == 60) break;
            for (i = 0; i < 2; i++)
                while (left[i] && mem_below(&w->net, 3)) {
                    size_t length = mem_below(&w->net, 4) ? mem_below(&w->net, (uint32_t)longest) : mem_below(&w->net, 4);
                    unsigned operation = mem_below(&w->net, 2) ? NOTE : PLAIN + mem_below(&w->net, 5);
                    frisbee_result result = send_some_way(&w->sides[i], operation, mem_below(&w->net, 65536), data + mem_below(&w->net, 100), length / 2);
                    if (result == FRISBEE_OK) left[i]--;
                    else {
                        CHECK_EQ(result, FRISBEE_AGAIN);
                        again[i] = w->sides[i].writable + 1;
                        break;
                    }
                }
            if (breaks && n == 40) break;
            turns(w, 1);
        }
        if (breaks) { // what has come when the connection breaks is a beginning of what was sent
            mem_reset(w->sides[0].end, FRISBEE_SYSTEM);
            UNTIL(w, 10, w->sides[0].closed && w->sides[1].closed);
            CHECK_EQ(w->sides[0].info.reason, FRISBEE_SYSTEM);
        }
        for (i = 0; i < 2; i++) {
            side *s = &w->sides[i], *peer = &w->sides[1 - i];
            if (!breaks) CHECK_EQ(s->noted, 60);
            if (!breaks && again[i]) CHECK(s->writable >= again[i]); // AGAIN was followed by on_writable
            if (CHECK(s->noted <= peer->sent)) CHECK(s->note_hash == prefix_hash(peer, s->noted));
        }
        world_end(w);
    }
}

// One stream of everything that an acceptor can meet, delivered whole, byte by byte and in random pieces: the same events each time.
static void log_call(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    side *s = (side *)user;
    char line[60];
    (void)pool, (void)id;
    mem_append(&s->log, line, (size_t)snprintf(line, sizeof line, "reply %d %lu\n", outcome->result == FRISBEE_OK, (unsigned long)outcome->length));
}

static void open_with_call(side *s) {
    frisbee_call_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.on_reply = log_call;
    desc.user = s;
    CHECK_EQ(frisbee_call(s->pool, s->conn, MUTE, "?", 1, &desc, NULL), FRISBEE_OK);
}

static void put_stream(mem_end *end, frisbee_wire wire, int ending) {
    static const uint8_t zeros[3000];
    mem_put_packet(end, wire, 0, 0, "", 0);
    mem_put_packet(end, wire, NOTE, 7, "seven", 5);
    mem_put_packet(end, wire, 1, 0, "a pong that carries something", 29);
    mem_put_packet(end, wire, 0, 0, "and a ping", 10);
    mem_put_packet(end, wire, 0xFF01, 9, "a struck call", 13);
    mem_put_packet(end, wire, ECHO, 0, "zero", 4);
    mem_put_packet(end, wire, PLAIN + 3, 65535, zeros, sizeof zeros);
    mem_put_packet(end, wire, MUTE, 57344, "reply", 5); // the id of the acceptor's first call
    mem_put_packet(end, wire, MUTE, 57344, "again", 5); // nobody waits any more: a request
    mem_put_packet(end, wire, NOTE, 1, "", 0);
    mem_put_packet(end, wire, ECHO, 2, "two", 3);
    switch (ending) {
    case 1: mem_put(end, "\x00\x0F\x00\x01\x00\x0A\x00\x50\x00\x01", wire == FRISBEE_WIRE_V1 ? 10 : 0); break; // one byte above 5 MiB
    case 2: mem_put(end, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 10); break; // no magic, or 4 GiB
    case 3: mem_put(end, "\x00\x0F\x00\x01\x00", 5); break; // and the end in the middle of a header
    default: break;
    }
    if (ending == 3) end->out.ended = true;
}

static void compare_logs(const mem_bytes *whole, const mem_bytes *chopped, uint64_t seed, int way) {
    if (CHECK(mem_same(whole, chopped))) return;
    fprintf(stderr, "    seed %d way %d:\n%.*s    whole:\n%.*s", (int)seed, way, (int)chopped->length, (const char *)chopped->data, (int)whole->length,
            (const char *)whole->data);
}

static void promise_1_whole_is_chopped(void) {
    static const frisbee_wire wires[] = {FRISBEE_WIRE_V0, FRISBEE_WIRE_V1};
    int wire, ending, way;
    for (wire = 0; wire < 2; wire++)
        for (ending = 0; ending < 4; ending++) {
            mem_bytes whole;
            memset(&whole, 0, sizeof whole);
            for (way = 0; way < 12; way++) { // 0 whole, 1 byte by byte, then 5 with a few pieces, 5 ragged
                world *w = world_begin((uint64_t)way);
                side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_AUTO);
                char line[40];
                s->logs = true;
                s->on_open = open_with_call;
                s->end->piece = way == 1 ? 1 : way > 1 && way < 7 ? (size_t)way * 3 : 0;
                s->end->wake_only = false;
                w->net.ragged = way >= 7;
                put_stream(s->end->peer, wires[wire], ending);
                turns(w, way ? 4000 : 60); // a turn may read but once
                mem_append(&s->log, line, (size_t)snprintf(line, sizeof line, "closed %d %d end %d\n", s->closed, (int)s->info.reason, s->ended));
                if (!way) mem_append(&whole, s->log.data, s->log.length);
                CHECK(s->noted == 6 || ending != 0);
                compare_logs(&whole, &s->log, (uint64_t)(10 * wire + ending), way);
                if (ending == 1 && wire) CHECK_EQ(s->info.reason, FRISBEE_TOO_LARGE);
                if (ending == 2) CHECK_EQ(s->info.reason, wire ? FRISBEE_MALFORMED : FRISBEE_TOO_LARGE);
                world_end(w);
            }
            mem_free(&whole);
        }
}

// The same with streams that follow from a seed: packets of every kind, forged replies, now and then noise.
static void put_random(mem_net *net, mem_end *end, frisbee_wire wire, int packets) {
    static uint8_t data[5000];
    while (packets--) {
        size_t length = mem_below(net, 8) ? mem_below(net, 60) : mem_below(net, 5000);
        unsigned id = mem_below(net, 4) ? mem_below(net, 3) : 57343 + mem_below(net, 3);
        mem_fill(net, data, length);
        switch (mem_below(net, 9)) {
        case 0: mem_put_packet(end, wire, mem_below(net, 3), id, data, mem_below(net, 2) ? length : 0); break; // PING, PONG, STREAM
        case 1: mem_put_packet(end, wire, mem_below(net, 65536), id, data, length); break;
        case 2: mem_put_packet(end, wire, MUTE, id, data, length); break;
        case 3: mem_put_packet(end, wire, 0xFF01, id, data, length); break;
        case 4:
            if (mem_below(net, 12) == 0) mem_put(end, data, length);
            break;
        default: mem_put_packet(end, wire, mem_below(net, 2) ? NOTE : ECHO, id, data, length); break;
        }
    }
}

static void promise_1_random_streams_whole_are_chopped(void) {
    uint64_t seed;
    int ends = 0;
    for (seed = 1; seed <= 200; seed++) {
        mem_bytes whole;
        int way;
        memset(&whole, 0, sizeof whole);
        for (way = 0; way < 5; way++) { // whole, byte by byte, sevens, ragged twice
            world *w = world_begin(seed);
            side *s;
            char line[40];
            int n;
            if (way == 4) w->pool_desc.read_buffer = 100;
            w->desc.max_packet = seed & 1 ? 3000 : 0;
            if (seed & 2) s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_AUTO);
            else s = side_raw(w, FRISBEE_CONNECTOR, seed & 4 ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
            s->logs = true;
            s->on_open = open_with_call;
            put_random(&w->net, s->end->peer, seed & 4 ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0, 30);
            if (seed % 3 == 0) s->end->peer->out.ended = true;
            w->net.ragged = way >= 3;
            s->end->piece = way == 1 ? 1 : way == 2 ? 7 : 0;
            for (n = 0; n < 60000 && !s->closed && mem_size(&s->end->peer->out); n++) turn_by(w, 1); // no time passes: nothing is due
            for (n = 0; n < 5; n++) turn_by(w, 1);
            mem_append(&s->log, line, (size_t)snprintf(line, sizeof line, "closed %d %d end %d\n", s->closed, (int)s->info.reason, s->ended));
            if (!way) mem_append(&whole, s->log.data, s->log.length);
            compare_logs(&whole, &s->log, seed, way);
            ends += s->closed;
            world_end(w);
        }
        mem_free(&whole);
    }
    CHECK(ends > 100 && ends < 950);
}

// >>promise 2: calls

static void mark_seen(side *s, const frisbee_packet *packet) {
    uint32_t number;
    if (packet->from.operation != ECHO && packet->from.operation != LATER && packet->from.operation != MUTE) return;
    if (!CHECK(packet->length >= sizeof number)) return;
    memcpy(&number, packet->data, sizeof number);
    if (!CHECK(number < ticket_count)) return;
    CHECK(tickets[number].owner != s);
    CHECK_EQ(++tickets[number].seen, 1);
}

static void answer_parked(side *s) { // one deferred request, any of them
    size_t count = s->parked.length / sizeof(parked), which;
    parked later;
    frisbee_result result;
    if (!count) return;
    which = mem_below(&s->w->net, (uint32_t)count);
    memcpy(&later, s->parked.data + which * sizeof later, sizeof later);
    if (mem_below(&s->w->net, 2)) result = frisbee_reply(s->pool, &later.origin, later.data, later.length);
    else { // borrowed, in two pieces
        loan *l = lend(later.data, later.length);
        frisbee_span spans[2];
        spans[0].data = l->data, spans[0].length = later.length / 2;
        spans[1].data = l->data + later.length / 2, spans[1].length = later.length - later.length / 2;
        result = frisbee_reply_spans(s->pool, &later.origin, spans, 2, give_back, l);
        if (result) take_back(l);
    }
    if (result == FRISBEE_AGAIN) return;
    CHECK(fine(result) || result == FRISBEE_CLOSED || result == FRISBEE_HIJACKED);
    if (result == FRISBEE_OK) CHECK(frisbee_reply(s->pool, &later.origin, later.data, later.length) != FRISBEE_OK);
    mem_drop(&s->parked, s->parked.length - count * sizeof later);
    memmove(s->parked.data + which * sizeof later, s->parked.data + (count - 1) * sizeof later, sizeof later);
    s->parked.length -= sizeof later;
}

static void hijacked(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *what, void *user) {
    side *s = (side *)user;
    trace(s, 'h');
    s->hijacks++;
    s->taken = *what;
    CHECK(pool == s->pool && conn.id == s->conn.id && s->hijacks == 1 && !s->closed);
    if (what->result) {
        CHECK(!what->io.context && !what->unread.length && !what->unsent.length);
        return;
    }
    CHECK(what->socket == FRISBEE_NO_SOCKET && what->io.read && what->io.close);
    if (what->unread.length) mem_append(&s->raw_in, what->unread.data, what->unread.length);
    if (what->unsent.length) mem_append(&s->unsent, what->unsent.data, what->unsent.length);
    s->end->pool = NULL;
}

static void make_random_call(side *s, size_t longest) {
    static const int32_t timeouts[] = {0, 1, 5, 50, FRISBEE_NEVER};
    uint8_t data[400];
    uint32_t number = ticket_count;
    size_t length = sizeof number + mem_below(&s->w->net, 28);
    unsigned operation = ECHO + 2 * mem_below(&s->w->net, 2);
    frisbee_result result;
    if (mem_below(&s->w->net, 6) == 0) operation = MUTE;
    else if (operation == ECHO && longest > 40) length = sizeof number + mem_below(&s->w->net, 390);
    mem_fill(&s->w->net, data, sizeof data);
    memcpy(data, &number, sizeof number);
    result = call_try(s, operation, data, length, timeouts[mem_below(&s->w->net, 5)], mem_below(&s->w->net, 2), NULL);
    CHECK(result == FRISBEE_OK || result == FRISBEE_AGAIN || result == FRISBEE_CLOSED || result == FRISBEE_EXHAUSTED || result == FRISBEE_HIJACKED);
}

// Both sides call each other with the same operations over every kind of network, give calls up, answer late or never, and in the middle of it
// the connection ends in one of twelve ways. world_end checks each call's outcome; here it is held against what the peer saw.
static void promise_2_every_call_ends_in_exactly_one_on_reply(void) {
    uint64_t seed;
    int ok = 0, other = 0;
    for (seed = 1; seed <= 420; seed++) {
        world *w = world_begin(seed);
        size_t longest = world_shape(w);
        int n, i, how = (int)(seed % 12), when = 60 + (int)mem_below(&w->net, 100);
        uint32_t k;
        w->desc.call_ms = 80;
        w->desc.max_calls = 40;
        w->desc.queue_limit = 4096;
        w->desc.max_packet = 2000;
        w->desc.high_water = 1500;
        w->desc.max_deferred = 20;
        w->desc.heartbeat_ms = mem_below(&w->net, 2) ? 10 : FRISBEE_NEVER;
        world_open(w);
        for (i = 0; i < 2; i++) w->sides[i].on_request = mark_seen;
        for (n = 0; n < 260; n++) {
            side *first = &w->sides[mem_below(&w->net, 2)];
            for (i = 0; i < 2; i++) {
                side *s = &w->sides[i];
                if (!w->pool[w->one_pool ? 0 : i]) continue;
                if (mem_below(&w->net, 4) == 0) make_random_call(s, longest);
                if (mem_below(&w->net, 3) == 0) answer_parked(s);
                if (mem_below(&w->net, 8) == 0 && ticket_count) {
                    ticket *t = &tickets[mem_below(&w->net, ticket_count)];
                    frisbee_result result = t->owner == s ? frisbee_cancel(s->pool, t->id) : FRISBEE_CLOSED;
                    CHECK(t->done ? result == FRISBEE_CLOSED : result == FRISBEE_OK || result == FRISBEE_CLOSED);
                }
            }
            if (n == when)
                switch (how) {
                case 1: mem_reset(first->end, FRISBEE_SYSTEM); break;
                case 2: CHECK_EQ(frisbee_close(first->pool, first->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK); break;
                case 3: CHECK_EQ(frisbee_close(first->pool, first->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK); break;
                case 4: CHECK_EQ(frisbee_finish(first->pool, first->conn), FRISBEE_OK); break;
                case 5: CHECK_EQ(frisbee_hijack(first->pool, first->conn, FRISBEE_HIJACK_NOW, 50, hijacked, first), FRISBEE_OK); break;
                case 6: CHECK_EQ(frisbee_hijack(first->pool, first->conn, FRISBEE_HIJACK_FENCED, 50, hijacked, first), FRISBEE_OK); break;
                case 7: CHECK_EQ(frisbee_hijack(first->pool, first->conn, FRISBEE_HIJACK_STOCK, 50, hijacked, first), FRISBEE_OK); break;
                case 8: CHECK_EQ(frisbee_shutdown(first->pool, 30), FRISBEE_OK); break;
                case 9: first->end->out.capacity = 0; break; // stuck from now on
                case 10: frisbee_pool_destroy(first->pool), w->pool[w->one_pool || first == w->sides ? 0 : 1] = NULL; break;
                case 11: CHECK_EQ(frisbee_pause(first->pool, first->conn, true), FRISBEE_OK); break;
                default: break;
                }
            turns(w, 1);
        }
        world_end(w);
        for (k = 0; k < ticket_count; k++) {
            CHECK(tickets[k].sent || !tickets[k].seen);              // "the peer has not seen it and never will"
            CHECK(tickets[k].result != FRISBEE_OK || tickets[k].seen); // nobody answers what nobody asked
            tickets[k].result == FRISBEE_OK ? ok++ : other++;
        }
    }
    CHECK(ok > 3000 && other > 3000); // both kinds happened
}

// What became of each of three calls when so many bytes of their frames could leave before something ended them.
static void promise_2_not_sent_and_unknown_are_exact(void) {
    enum { RESET, CLOSE, CANCEL, TIME_OUT, WAYS };
    static const size_t sizes[] = {20, 20000}; // small ones are copied together, large ones are written from where they are
    static uint8_t data[20000];
    int how, borrowed, i;
    size_t capacity, z, w1;
    for (w1 = 0; w1 < 2; w1++)
        for (how = RESET; how < WAYS; how++)
            for (z = 0; z < 2; z++)
                for (borrowed = 0; borrowed < 2; borrowed++)
                    for (capacity = 0; capacity <= 3 * (sizes[z] + 10) + 1; capacity += z ? 3333 : 1) {
                        frisbee_wire wire = w1 ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
                        world *w = world_begin(capacity);
                        side *s = side_raw(w, FRISBEE_CONNECTOR, wire);
                        size_t frame = sizes[z] + (w1 ? 10 : 8);
                        frisbee_packet packet;
                        ticket *t[3];
                        bool arrived[3] = {false, false, false};
                        turns(w, 2);
                        raw_drain(s, wire);
                        s->end->out.capacity = capacity;
                        for (i = 0; i < 3; i++) {
                            data[0] = (uint8_t)i;
                            CHECK_EQ(call_try(s, ECHO, data, sizes[z], how == TIME_OUT ? 5 : FRISBEE_NEVER, borrowed, &t[i]), FRISBEE_OK);
                        }
                        turns(w, 3);
                        CHECK_EQ(mem_size(&s->end->out), capacity < 3 * frame ? capacity : 3 * frame);
                        if (how == RESET) mem_reset(s->end, FRISBEE_SYSTEM);
                        else if (how == CLOSE) CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
                        else if (how == CANCEL)
                            for (i = 0; i < 3; i++) CHECK_EQ(frisbee_cancel(s->pool, t[i]->id), FRISBEE_OK);
                        turns(w, 8);
                        if (how == CANCEL || how == TIME_OUT) { // what is left goes on; a struck call never does, one that began ends whole
                            s->end->out.capacity = SIZE_MAX;
                            CHECK_EQ(frisbee_send(s->pool, s->conn, PLAIN, 1, "x", 1), FRISBEE_OK);
                            turns(w, 3);
                            while (raw_next(s, wire, &packet) && packet.from.operation == ECHO) {
                                CHECK(packet.length == sizes[z] && ((const uint8_t *)packet.data)[0] < 3);
                                arrived[((const uint8_t *)packet.data)[0]] = true;
                            }
                            CHECK_EQ(packet.from.operation, PLAIN);
                        }
                        for (i = 0; i < 3; i++) {
                            bool left = capacity > frame * (size_t)i;
                            CHECK_EQ(t[i]->done, 1);
                            if (how == RESET || how == CLOSE) {
                                CHECK_EQ(t[i]->sent, left);
                                CHECK_EQ(t[i]->result, left ? FRISBEE_UNKNOWN : FRISBEE_NOT_SENT);
                            } else { // bytes that the transport refused must come again: those frames may count as sent
                                CHECK(t[i]->sent || !left);
                                CHECK_EQ(t[i]->sent, arrived[i]);
                                CHECK_EQ(t[i]->result, how == CANCEL ? FRISBEE_CANCELLED : FRISBEE_TIMED_OUT);
                            }
                        }
                        CHECK_EQ(s->end->changed, 0);
                        world_end(w);
                    }
}

// Calls that were queued while the transport was blocked were never offered to it: given up, they are struck, and safe to repeat.
static void promise_2_calls_given_up_in_the_queue_are_struck(void) {
    int timed, blocked, borrowed, i;
    for (timed = 0; timed < 2; timed++)
        for (blocked = 0; blocked < 2; blocked++)
            for (borrowed = 0; borrowed < 2; borrowed++) {
                world *w = world_begin(1);
                side *s = side_make(w);
                frisbee_packet packet;
                ticket *t[4];
                mem_end *peer;
                mem_pair(&w->net, &s->end, &peer);
                s->end->wake_only = true;
                w->desc.wire = FRISBEE_WIRE_V1;
                CHECK_EQ(side_attach(s, 0, FRISBEE_CONNECTOR, NULL, 0), FRISBEE_OK);
                turns(w, 2);
                if (blocked) {
                    s->end->out.capacity = 12;
                    CHECK_EQ(frisbee_send(s->pool, s->conn, PLAIN, 1, "in the way", 10), FRISBEE_OK);
                    turns(w, 2);
                }
                for (i = 0; i < 4; i++) CHECK_EQ(call_try(s, ECHO, "struck", 6, timed && i < 3 ? 5 : FRISBEE_NEVER, borrowed, &t[i]), FRISBEE_OK);
                if (!timed)
                    for (i = 0; i < 3; i++) CHECK_EQ(frisbee_cancel(s->pool, t[i]->id), FRISBEE_OK);
                if (timed && !blocked) w->net.now_us += 20 * MS; // over before the turn that would have written them, which may well write them
                turns(w, timed ? 8 : 2);
                for (i = 0; i < 3; i++) {
                    CHECK_EQ(t[i]->result, timed ? FRISBEE_TIMED_OUT : FRISBEE_CANCELLED);
                    if (blocked) CHECK_EQ(t[i]->sent, false);
                }
                s->end->out.capacity = SIZE_MAX;
                mem_wake(s->end);
                turns(w, 3);
                if (blocked) CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.from.operation == PLAIN && packet.length == 10);
                for (i = 0; i < 4; i++) // and the fourth arrives, behind those that count as sent
                    if (i == 3 || t[i]->sent) CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.from.operation == ECHO && packet.length == 6);
                CHECK(!raw_next(s, FRISBEE_WIRE_V1, &packet) && s->end->changed == 0);
                world_end(w);
            }
}

static void promise_2_late_replies_meet_nobody(void) {
    world *w = world_begin(1);
    side *s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V0);
    frisbee_packet packet;
    frisbee_stats stats;
    ticket *lost = call(s, MUTE, "lost", 4, 10), *cancelled;
    int lost_id, cancelled_id, id;
    uint32_t n, i, wrong = 0;
    UNTIL(w, 20, lost->done);
    CHECK_EQ(lost->result, FRISBEE_TIMED_OUT);
    CHECK(raw_next(s, FRISBEE_WIRE_V0, &packet));
    lost_id = packet.from.id;
    CHECK_EQ(lost_id, 1);
    cancelled = call(s, MUTE, "cancelled", 9, 1000);
    turns(w, 1);
    CHECK_EQ(frisbee_cancel(s->pool, cancelled->id), FRISBEE_OK);
    turns(w, 2);
    CHECK_EQ(cancelled->result, FRISBEE_CANCELLED);
    CHECK_EQ(frisbee_cancel(s->pool, cancelled->id), FRISBEE_CLOSED);
    CHECK(raw_next(s, FRISBEE_WIRE_V0, &packet));
    cancelled_id = packet.from.id;
    CHECK_EQ(cancelled_id, 2);
    id = 2;
    for (n = 0; n < 65536; n += 64) { // 65,536 more calls, and none takes an id whose reply can still come
        for (i = 0; i < 64; i++) call(s, MUTE, &n, sizeof n, FRISBEE_NEVER);
        turns(w, 1);
        for (i = 0; i < 64; i++) {
            CHECK(raw_next(s, FRISBEE_WIRE_V0, &packet));
            wrong += packet.from.id == lost_id || packet.from.id == cancelled_id || packet.from.id < 1 || packet.from.id > 57343;
            wrong += packet.from.id <= id && packet.from.id > id - 50000; // oldest first: up, until they begin again
            id = packet.from.id;
            mem_put_packet(s->end->peer, FRISBEE_WIRE_V0, MUTE, packet.from.id, packet.data, packet.length);
        }
        turns(w, 1);
    }
    CHECK_EQ(wrong, 0);
    for (n = 2; n < ticket_count; n++) wrong += tickets[n].result != FRISBEE_OK || tickets[n].done != 1;
    CHECK_EQ(wrong, 0);
    CHECK_EQ(frisbee_conn_stats(s->pool, s->conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.lost_ids, 2);
    CHECK_EQ(stats.late_replies, 0);
    for (i = 0; i < 3; i++) call(s, MUTE, "?", 1, FRISBEE_NEVER); // and now the old replies, with calls in flight
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V0, MUTE, (unsigned)lost_id, "lost", 4);
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V0, MUTE, (unsigned)cancelled_id, "cancelled", 9);
    turns(w, 2);
    for (i = 1; i <= 3; i++) CHECK_EQ(tickets[ticket_count - i].done, 0);
    CHECK_EQ(frisbee_conn_stats(s->pool, s->conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.late_replies, 2);
    CHECK_EQ(stats.lost_ids, 0);
    CHECK_EQ(stats.calls, 3);
    CHECK_EQ(s->noted, 0); // not taken for requests
    raw_drain(s, FRISBEE_WIRE_V0);
    id = 0;
    for (n = 0; n < 65536 && id != lost_id; n++) { // the id is free again, in its turn
        call(s, MUTE, "!", 1, FRISBEE_NEVER);
        ticket_count--; // the same ticket serves for all
        turns(w, 1);
        if (!CHECK(raw_next(s, FRISBEE_WIRE_V0, &packet))) break;
        id = packet.from.id;
        mem_put_packet(s->end->peer, FRISBEE_WIRE_V0, MUTE, (unsigned)id, "!", 1);
        turns(w, 1);
        CHECK_EQ(tickets[ticket_count].done, 1);
    }
    CHECK_EQ(id, lost_id);
    world_end(w);
}

static void promise_2_no_id_is_used_twice_and_then_exhausted(void) {
    static const struct { frisbee_role role; uint32_t first, last; } ranges[] = {{FRISBEE_CONNECTOR, 1, 57343}, {FRISBEE_ACCEPTOR, 57344, 65535}};
    int r, lossy;
    for (r = 0; r < 2; r++)
        for (lossy = 0; lossy < 2; lossy++) {
            static uint8_t used[65536];
            world *w = world_begin(2);
            uint32_t count = ranges[r].last - ranges[r].first + 1, n, twice = 0;
            frisbee_packet packet;
            frisbee_stats stats;
            side *s;
            w->desc.max_calls = 65536;
            w->desc.lost_ms = lossy ? 1000 : 0;
            s = side_raw(w, ranges[r].role, FRISBEE_WIRE_V1);
            memset(used, 0, sizeof used);
            for (n = 0; n < count; n++) {
                call(s, MUTE, &n, sizeof n, 50);
                if (n % 4096 == 0) turn_by(w, 1);
            }
            CHECK_EQ(call_try(s, MUTE, "", 0, 50, false, NULL), FRISBEE_EXHAUSTED);
            turn_by(w, 1);
            while (raw_next(s, FRISBEE_WIRE_V1, &packet)) {
                twice += used[packet.from.id]++ != 0 || packet.from.id < ranges[r].first || packet.from.id > ranges[r].last;
                n--;
            }
            CHECK_EQ(n, 0);
            CHECK_EQ(twice, 0);
            turns(w, 60);
            for (n = 0; n < count; n++) twice += tickets[n].result != FRISBEE_TIMED_OUT || !tickets[n].sent;
            CHECK_EQ(twice, 0);
            CHECK_EQ(frisbee_conn_stats(s->pool, s->conn, &stats), FRISBEE_OK);
            CHECK_EQ(stats.calls, 0);
            CHECK_EQ(stats.lost_ids, count);
            CHECK_EQ(call_try(s, MUTE, "", 0, 50, false, NULL), FRISBEE_EXHAUSTED); // every one's reply can still come
            mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, MUTE, 60000, "late", 4);
            mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, MUTE, 777, "late", 4);
            turns(w, 2);
            call(s, MUTE, "", 0, FRISBEE_NEVER);
            CHECK_EQ(call_try(s, MUTE, "", 0, 50, false, NULL), FRISBEE_EXHAUSTED);
            turns(w, 1);
            CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.from.id == (r ? 60000 : 777));
            turns(w, 1100);
            CHECK_EQ(call_try(s, MUTE, "", 0, 50, false, NULL), lossy ? FRISBEE_OK : FRISBEE_EXHAUSTED);
            world_end(w);
        }
}

// Section 6: not before its time, not in the turn that started it, and not much later.
static void hour_in_handler(side *s, const frisbee_packet *packet) {
    if (packet->from.operation != SWITCH) return;
    call(s, MUTE, "", 0, 1);
    s->w->net.now_us += 3600000 * MS;
}

static void section_6_calls_time_out_when_they_should(void) {
    int32_t timeout;
    for (timeout = 1; timeout <= 20; timeout++) {
        world *w = world_begin((uint64_t)timeout);
        side *s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
        ticket *t;
        uint64_t start;
        int32_t next;
        s->end->wake_only = true; // for later attaches; this one is polled, and next_timeout is at most 1
        turns(w, 3);
        w->net.now_us += 321; // between two milliseconds
        t = call(s, MUTE, "", 0, timeout);
        start = w->net.now_us;
        while (!t->done && w->net.now_us - start < 100 * MS) {
            turn_by(w, 100);
            next = frisbee_next_timeout(s->pool);
            CHECK(next == 0 || next == 1);
        }
        CHECK(t->result == FRISBEE_TIMED_OUT && t->sent);
        CHECK(t->done_us - start >= (uint64_t)timeout * MS && t->done_us - start <= (uint64_t)timeout * MS + 1100);
        world_end(w);
    }
    {
        world *w = world_begin(1);
        side *s;
        int32_t next;
        ticket *t;
        world_pair(w);
        s = w->sides; // woken, not polled: the pool sleeps until something is due
        s->end->wake_only = true;
        w->desc.wire = FRISBEE_WIRE_V1;
        CHECK_EQ(side_attach(s, 0, FRISBEE_CONNECTOR, NULL, 0), FRISBEE_OK);
        turns(w, 5);
        CHECK_EQ(frisbee_next_timeout(s->pool), FRISBEE_NEVER);
        t = call(s, MUTE, "", 0, 1000);
        CHECK_EQ(frisbee_next_timeout(s->pool), 0);
        turn_by(w, 0);
        next = frisbee_next_timeout(s->pool);
        CHECK(next >= 999 && next <= 1001);
        turn_by(w, (uint64_t)next * MS);
        CHECK_EQ(t->done, 0);
        turn_by(w, 0); // a wait of so long always ends in something: timeouts are rounded up
        CHECK_EQ(t->result, FRISBEE_TIMED_OUT);
        world_end(w);
    }
    {
        world *w = world_begin(1);
        side *s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
        turns(w, 2);
        s->on_request = hour_in_handler;
        mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, SWITCH, 1, "", 0);
        turn_by(w, 0);
        CHECK_EQ(tickets[0].done, 0);
        mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, MUTE, 1, "", 0); // the deadline has passed, but input is read before it is judged
        turn_by(w, 0);
        CHECK_EQ(tickets[0].result, FRISBEE_OK);
        world_end(w);
    }
}

static void section_7_both_sides_call_each_other_with_the_same_operation(void) {
    int one, i, n;
    for (one = 0; one < 2; one++) {
        world *w = world_begin(3);
        w->one_pool = one;
        world_open(w);
        for (n = 0; n < 3000; n++)
            for (i = 0; i < 2; i++) {
                uint32_t number = (uint32_t)(2 * n + i);
                call(&w->sides[i], ECHO, &number, sizeof number, FRISBEE_NEVER);
            }
        turns(w, 20);
        for (n = 0; n < 6000; n++) CHECK(tickets[n].done && tickets[n].matches);
        CHECK(w->sides[0].noted == 3000 && w->sides[1].noted == 3000);
        world_end(w);
    }
}

// A stock peer counts its ids through all of u16; ours are in flight meanwhile, for another operation.
static void section_7_ids_of_stock_peers_are_any(void) {
    int role, wire;
    for (role = 0; role < 2; role++)
        for (wire = 0; wire < 2; wire++) {
            frisbee_wire v = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
            world *w = world_begin(4);
            side *s = side_raw(w, role ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR, v);
            frisbee_packet packet;
            uint32_t id, k, wrong = 0;
            for (id = 0; id < 40; id++) call(s, MUTE, "", 0, FRISBEE_NEVER);
            turns(w, 1);
            while (raw_next(s, v, &packet)) wrong += packet.from.operation != MUTE;
            for (id = 0; id < 65536; id += 256) {
                for (k = id; k < id + 256; k++) mem_put_packet(s->end->peer, v, ECHO, k, &k, sizeof k);
                turns(w, 2);
                for (k = id; k < id + 256; k++)
                    wrong += !raw_next(s, v, &packet) || packet.from.operation != ECHO || packet.from.id != k || memcmp(packet.data, &k, sizeof k);
            }
            CHECK_EQ(wrong, 0);
            CHECK_EQ(s->noted, 65536);
            for (k = 0; k < 40; k++) wrong += tickets[k].done != 0;
            CHECK_EQ(wrong, 0);
            world_end(w);
        }
}

// >>replies

static frisbee_origin kept_origin;
static void reply_rules(side *s, const frisbee_packet *packet) {
    if (packet->from.operation != SWITCH) return;
    switch (s->choice) {
    case 0: // in the handler, once
        CHECK_EQ(frisbee_reply(s->pool, &packet->from, "a", 1), FRISBEE_OK);
        CHECK_EQ(frisbee_reply(s->pool, &packet->from, "b", 1), FRISBEE_INVALID);
        CHECK_EQ(frisbee_defer(s->pool, packet, &kept_origin), FRISBEE_INVALID);
        break;
    case 1: // deferred, and answered in the handler all the same
        CHECK_EQ(frisbee_defer(s->pool, packet, &kept_origin), FRISBEE_OK);
        CHECK_EQ(frisbee_reply(s->pool, &kept_origin, "c", 1), FRISBEE_OK);
        CHECK_EQ(frisbee_reply(s->pool, &kept_origin, "d", 1), FRISBEE_INVALID);
        break;
    case 2: CHECK_EQ(frisbee_defer(s->pool, packet, &kept_origin), FRISBEE_OK); break;
    default: kept_origin = packet->from; break; // neither: the request goes without an answer
    }
}

static void section_7_a_request_is_answered_once_now_or_later(void) {
    world *w = world_begin(5);
    side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1), *t = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    frisbee_packet packet;
    frisbee_stats stats;
    frisbee_origin stranger;
    s->on_request = t->on_request = reply_rules;
    for (s->choice = 0; s->choice < 4; s->choice++) {
        mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, SWITCH, (unsigned)s->choice, "", 0);
        turns(w, 2);
    }
    CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.from.id == 0 && !memcmp(packet.data, "a", 1));
    CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.from.id == 1 && !memcmp(packet.data, "c", 1));
    CHECK(!raw_next(s, FRISBEE_WIRE_V1, &packet));
    CHECK_EQ(frisbee_reply(s->pool, &kept_origin, "e", 1), FRISBEE_INVALID); // without a promise there is no later
    s->choice = 2;
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, SWITCH, 9, "", 0);
    turns(w, 2);
    CHECK_EQ(frisbee_conn_stats(s->pool, s->conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.deferred, 2); // ids 2 and 9
    stranger = kept_origin;
    stranger.id = 10;
    CHECK_EQ(frisbee_reply(s->pool, &stranger, "f", 1), FRISBEE_INVALID);
    CHECK_EQ(frisbee_reply(s->pool, &kept_origin, "g", 1), FRISBEE_OK);
    CHECK_EQ(frisbee_reply(s->pool, &kept_origin, "h", 1), FRISBEE_INVALID);
    kept_origin.id = 2;
    turns(w, 1);
    CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.from.id == 9 && packet.from.operation == SWITCH && !memcmp(packet.data, "g", 1));
    CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(w, 2);
    CHECK_EQ(frisbee_reply(s->pool, &kept_origin, "i", 1), FRISBEE_CLOSED); // that session is over
    CHECK_EQ(frisbee_pool_stats(s->pool, &stats), FRISBEE_OK);
    CHECK_EQ(stats.deferred, 0);
    t->choice = 2; // the next connection, perhaps in the same place, is not reached by the old origin
    mem_put_packet(t->end->peer, FRISBEE_WIRE_V1, SWITCH, 2, "", 0);
    stranger = kept_origin;
    turns(w, 2);
    CHECK_EQ(frisbee_reply(t->pool, &stranger, "j", 1), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_reply(t->pool, &kept_origin, "k", 1), FRISBEE_OK);
    world_end(w);
}

// >>promise 3: limits

static void promise_3_max_packet(void) {
    static uint8_t data[2000];
    int wire, sender;
    for (wire = 0; wire < 2; wire++)
        for (sender = 0; sender < 2; sender++) {
            frisbee_wire v = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
            world *w = world_begin(6);
            side *s, *other;
            frisbee_span span;
            void *room;
            w->desc.max_packet = 1000;
            s = side_raw(w, sender ? FRISBEE_CONNECTOR : FRISBEE_ACCEPTOR, v);
            other = side_raw(w, FRISBEE_ACCEPTOR, v);
            turns(w, 2);
            raw_drain(s, v);
            span.data = data;
            span.length = 1001;
            CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, 1001), FRISBEE_TOO_LARGE);
            CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, (size_t)1 << 31), FRISBEE_TOO_LARGE);
            CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, SIZE_MAX), FRISBEE_TOO_LARGE);
            CHECK_EQ(frisbee_send_spans(s->pool, s->conn, NOTE, 1, &span, 1, give_back, NULL), FRISBEE_TOO_LARGE);
            CHECK_EQ(call_try(s, NOTE, data, 1001, 0, false, NULL), FRISBEE_TOO_LARGE);
            CHECK_EQ(call_try(s, NOTE, data, 1001, 0, true, NULL), FRISBEE_TOO_LARGE);
            CHECK_EQ(frisbee_reserve(s->pool, s->conn, 1001, &room), FRISBEE_TOO_LARGE);
            CHECK_EQ(frisbee_send(s->pool, s->conn, 9, 1, data, 1), FRISBEE_INVALID);
            CHECK_EQ(frisbee_send(s->pool, s->conn, 65280, 1, data, 1), FRISBEE_INVALID);
            CHECK_EQ(frisbee_queued(s->pool, s->conn), 0);
            turns(w, 2);
            CHECK_EQ(mem_size(&s->end->out), 0); // nothing was done
            CHECK_EQ(frisbee_send(s->pool, s->conn, 65279, 1, data, 1000), FRISBEE_OK);
            mem_put_packet(s->end->peer, v, NOTE, 1, data, 1000);
            turns(w, 2);
            CHECK(s->noted == 1 && !s->closed && mem_size(&s->end->out) == 1000 + (wire ? 10 : 8));
            mem_put_packet(s->end->peer, v, NOTE, 1, data, 1001);
            mem_put_packet(other->end->peer, v, NOTE, 1, data, 1000);
            turns(w, 2);
            CHECK(s->closed && s->info.reason == FRISBEE_TOO_LARGE && s->noted == 1); // told by the header
            CHECK(!other->closed && other->noted == 1);
            world_end(w);
        }
}

static void promise_3_queue_limit_and_on_writable(void) {
    static uint8_t data[500];
    int way;
    for (way = 0; way < 4; way++) { // send, spans, call, borrowed call
        world *w = world_begin((uint64_t)way);
        side *s;
        frisbee_span span;
        frisbee_result result = FRISBEE_OK;
        frisbee_stats stats;
        size_t before = 0;
        int n, accepted = 0;
        w->desc.queue_limit = 10000;
        w->desc.max_packet = 600;
        w->desc.high_water = 6000;
        w->desc.low_water = 2000;
        s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
        turns(w, 2);
        raw_drain(s, FRISBEE_WIRE_V1);
        s->end->out.capacity = 0;
        span.data = data;
        span.length = sizeof data;
        for (n = 0; n < 100; n++) {
            before = frisbee_queued(s->pool, s->conn);
            if (way == 0) result = frisbee_send(s->pool, s->conn, NOTE, 1, data, sizeof data);
            else if (way == 1) {
                loan *l = lend("", 0);
                result = frisbee_send_spans(s->pool, s->conn, NOTE, 1, &span, 1, give_back, l);
                if (result) take_back(l);
            } else result = call_try(s, NOTE, data, sizeof data, FRISBEE_NEVER, way > 2, NULL);
            if (result) break;
            accepted++;
            if (n % 4 == 0) turns(w, 1);
        }
        CHECK_EQ(result, FRISBEE_AGAIN);
        CHECK_EQ(accepted, 10000 / 510); // exactly what fits
        CHECK_EQ(frisbee_queued(s->pool, s->conn), before);
        CHECK_EQ(before, (size_t)accepted * 510);
        CHECK_EQ(frisbee_conn_stats(s->pool, s->conn, &stats), FRISBEE_OK);
        CHECK_EQ(stats.queued, before);
        CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, 10000 - before - 10), FRISBEE_OK); // a smaller one still goes
        turns(w, 5);
        CHECK_EQ(s->writable, 0);
        s->end->out.capacity = 7000;
        turns(w, 5);
        CHECK_EQ(s->writable, 0); // not yet at the low water
        s->end->out.capacity = 8100;
        turns(w, 5);
        CHECK_EQ(s->writable, 1);
        CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, sizeof data), FRISBEE_OK);
        s->end->out.capacity = SIZE_MAX;
        turns(w, 5);
        CHECK_EQ(s->writable, 1); // once
        CHECK_EQ(frisbee_queued(s->pool, s->conn), 0);
        world_end(w);
    }
}

static void promise_3_high_water_only_signals(void) {
    static uint8_t data[500];
    world *w = world_begin(7);
    side *s;
    int n;
    w->desc.high_water = 3000;
    w->desc.low_water = 1000;
    s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
    turns(w, 2);
    raw_drain(s, FRISBEE_WIRE_V1);
    s->end->out.capacity = 0;
    for (n = 0; n < 3; n++) CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, sizeof data), FRISBEE_OK);
    s->end->out.capacity = SIZE_MAX;
    turns(w, 3);
    CHECK_EQ(s->writable, 0); // it was never above
    s->end->out.capacity = 0;
    raw_drain(s, FRISBEE_WIRE_V1);
    for (n = 0; n < 20; n++) CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, sizeof data), FRISBEE_OK);
    turns(w, 3);
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, NOTE, 1, "still read", 10); // sends do not pause reading
    turns(w, 3);
    CHECK_EQ(s->noted, 1);
    s->end->out.capacity = SIZE_MAX;
    turns(w, 3);
    CHECK_EQ(s->writable, 1);
    world_end(w);
}

// A peer that asks and does not read its answers is no longer served; the others are, and when it reads it gets them all, in order.
static void replies_above_high_water(frisbee_role role, bool woken) {
    world *w = world_begin(8);
    side *greedy, *honest;
    mem_end *peer;
    frisbee_packet packet;
    uint8_t request[4] = {0, 0, 3, 0xE8}; // 1000
    size_t most = 0;
    int n, got = 0;
    w->desc.high_water = 10000;
    w->desc.queue_limit = 20000;
    w->desc.max_packet = 4000;
    honest = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    greedy = side_make(w);
    mem_pair(&w->net, &greedy->end, &peer);
    greedy->end->wake_only = woken;
    CHECK_EQ(side_attach(greedy, 0, role, NULL, 0), FRISBEE_OK); // (a connector stops at queue_limit - high_water: here that is the same)
    turns(w, 1);
    raw_drain(greedy, FRISBEE_WIRE_V1);
    greedy->end->out.capacity = 100;
    for (n = 0; n < 1000; n++) mem_put_packet(greedy->end->peer, FRISBEE_WIRE_V1, BULK, (unsigned)n, request, sizeof request);
    for (n = 0; n < 200; n++) {
        size_t queued;
        mem_put_packet(honest->end->peer, FRISBEE_WIRE_V1, ECHO, (unsigned)n, "hi", 2);
        turns(w, 1);
        CHECK(raw_next(honest, FRISBEE_WIRE_V1, &packet) && packet.from.id == n);
        queued = frisbee_queued(greedy->pool, greedy->conn);
        if (queued > most) most = queued;
    }
    CHECK(most > 9000 && most <= 11010 + 1010);
    CHECK(greedy->noted <= 13 && !greedy->closed && !greedy->reply_again);
    for (n = 0; n < 100000 && got < 1000; n++) {
        while (raw_next(greedy, FRISBEE_WIRE_V1, &packet)) CHECK(packet.from.id == got && packet.length == 1000), got++;
        greedy->end->out.capacity = 3000;
        turns(w, 1);
        most = frisbee_queued(greedy->pool, greedy->conn);
        CHECK(most <= 11010 + 1010);
    }
    CHECK_EQ(got, 1000);
    CHECK_EQ(greedy->reply_again, 0);
    world_end(w);
}

static void promise_3_replies_above_high_water_pause_reading(void) {
    int k;
    for (k = 0; k < 4; k++) replies_above_high_water(k & 1 ? FRISBEE_CONNECTOR : FRISBEE_ACCEPTOR, k & 2);
}

// "AGAIN can come only if a single handler queues more than queue_limit - high_water": replies just so large, to a peer that reads slowly.
static void promise_3_replies_of_any_allowed_size_have_room(void) {
    int role;
    for (role = 0; role < 2; role++) {
        world *w = world_begin(9);
        side *s;
        frisbee_packet packet;
        uint8_t request[4] = {0, 0, 0x46, 0x46}; // 17,990 bytes, and 10 of header
        int n, got = 0;
        w->desc.high_water = 2000;
        w->desc.queue_limit = 20000;
        w->desc.max_packet = 18000;
        s = side_raw(w, role ? FRISBEE_CONNECTOR : FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        turns(w, 2);
        raw_drain(s, FRISBEE_WIRE_V1);
        s->end->out.capacity = 20000;
        for (n = 0; n < 30; n++) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, BULK, (unsigned)n, request, sizeof request);
        for (n = 0; n < 2000 && got < 30; n++) {
            if (n % 7 == 0)
                while (raw_next(s, FRISBEE_WIRE_V1, &packet)) CHECK(packet.from.id == got && packet.length == 17990), got++;
            CHECK(frisbee_queued(s->pool, s->conn) <= 3 * 20000);
            turns(w, 1);
        }
        CHECK_EQ(got, 30);
        CHECK_EQ(s->reply_again, 0);
        world_end(w);
    }
}

static void promise_3_replies_have_room_behind_a_full_queue(void) {
    static uint8_t data[1000];
    world *w = world_begin(8);
    side *s;
    int n;
    w->desc.high_water = 2000;
    w->desc.queue_limit = 10000;
    w->desc.max_packet = 2000;
    s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 1);
    s->end->out.capacity = 0;
    while (frisbee_send(s->pool, s->conn, NOTE, 1, data, sizeof data) == FRISBEE_OK) {}
    for (n = 0; n < 4; n++) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, ECHO, 1, data, 400);
    turns(w, 2);
    CHECK_EQ(s->noted, 4);
    CHECK_EQ(s->reply_again, 0); // "AGAIN can come only if a single handler queues more than queue_limit - high_water"
    world_end(w);
}

// Bytes of packets and calls never pause reading: two sides with full queues and a narrow network must not wait for each other.
static void promise_3_two_busy_peers_do_not_stop_each_other(void) {
    static uint8_t data[1000];
    int seed;
    for (seed = 1; seed <= 40; seed++) {
        world *w = world_begin((uint64_t)seed);
        int n, i;
        uint32_t k;
        world_pair(w);
        w->desc.high_water = 2000;
        w->desc.queue_limit = 20000;
        w->desc.max_packet = 2000;
        w->sides[0].end->out.capacity = w->sides[1].end->out.capacity = 200 + (size_t)seed * 50;
        w->sides[0].end->wake_only = seed & 1;
        w->sides[1].end->wake_only = seed & 2;
        world_open(w);
        for (n = 0; n < 200; n++) {
            for (i = 0; i < 2; i++) {
                side *s = &w->sides[i];
                while (frisbee_send(s->pool, s->conn, NOTE, 1, data, 300 + mem_below(&w->net, 600)) == FRISBEE_OK) s->sent++;
                if (n % 4 == 0) (void)call_try(s, ECHO, data, 9, FRISBEE_NEVER, false, NULL); // its reply is the last to come
            }
            turns(w, 1);
        }
        UNTIL(w, 5000, !frisbee_queued(w->sides[0].pool, w->sides[0].conn) && !frisbee_queued(w->sides[1].pool, w->sides[1].conn));
        turns(w, 50);
        for (k = 0; k < ticket_count; k++) CHECK(tickets[k].result == FRISBEE_OK && tickets[k].done);
        CHECK(w->sides[0].sent > 100 && w->sides[1].sent > 100);
        CHECK(w->sides[0].noted >= w->sides[1].sent && w->sides[1].noted >= w->sides[0].sent);
        world_end(w);
    }
}

// Both sides flood each other with calls, whose replies queue up behind the calls of the other, over a narrow network. Were both to stop reading
// because of the replies that they owe, both would stand still until write_ms.
static void promise_2_mutual_floods_of_calls_end(void) {
    static uint8_t data[1000];
    int seed, tight;
    for (tight = 0; tight < 2; tight++)
        for (seed = 1; seed <= 20; seed++) {
            world *w = world_begin((uint64_t)seed);
            int n, i;
            uint32_t k;
            world_pair(w);
            w->desc.high_water = 2000;
            w->desc.queue_limit = tight ? 20000 : 400000;
            w->desc.max_packet = 2000;
            if (tight) w->desc.write_ms = 1000; // with little room it may stall all the same, but not for longer than this
            w->sides[0].end->out.capacity = w->sides[1].end->out.capacity = 200 + (size_t)seed * 50;
            world_open(w);
            for (n = 0; n < 100; n++) {
                for (i = 0; i < 2; i++) {
                    int most = tight ? 1000 : 5;
                    while (most-- && call_try(&w->sides[i], ECHO, data, 300 + mem_below(&w->net, 600), tight ? 3000 : FRISBEE_NEVER, false, NULL) == FRISBEE_OK) {}
                }
                turns(w, 1);
            }
            turns(w, 5000);
            for (k = 0; k < ticket_count; k++) CHECK(tickets[k].done == 1 && (tight || tickets[k].result == FRISBEE_OK));
            CHECK(ticket_count > (tight ? 40 : 900));
            world_end(w);
        }
}

static void promise_3_max_deferred_max_calls_max_conns(void) {
    world *w = world_begin(9);
    side *s, *t, *u;
    parked later;
    frisbee_transport io;
    frisbee_conn_desc desc;
    mem_end *peer;
    int n;
    w->desc.max_deferred = 5;
    w->desc.max_calls = 7;
    w->pool_desc.max_conns = 2;
    s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    for (n = 0; n < 9; n++) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, LATER, (unsigned)n, "", 0);
    turns(w, 2);
    CHECK_EQ(s->parked.length / sizeof later, 5);
    CHECK_EQ(s->deferred_again, 4);
    memcpy(&later, s->parked.data, sizeof later);
    CHECK_EQ(frisbee_reply(s->pool, &later.origin, "", 0), FRISBEE_OK);
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, LATER, 10, "", 0);
    turns(w, 2);
    CHECK_EQ(s->deferred_again, 4); // there was room for one again
    for (n = 0; n < 7; n++) call(s, MUTE, "", 0, FRISBEE_NEVER);
    CHECK_EQ(call_try(s, MUTE, "", 0, FRISBEE_NEVER, true, NULL), FRISBEE_EXHAUSTED);
    turns(w, 1);
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, MUTE, 57346, "", 0);
    turns(w, 1);
    call(s, MUTE, "", 0, FRISBEE_NEVER);
    t = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    u = side_make(w);
    mem_pair(&w->net, &u->end, &peer);
    io = mem_transport(u->end);
    desc = w->desc;
    desc.role = FRISBEE_ACCEPTOR;
    desc.user = u;
    CHECK_EQ(frisbee_attach(t->pool, &io, &desc, NULL, 0, &u->conn), FRISBEE_EXHAUSTED);
    turns(w, 1);
    CHECK(u->end->closes == 0 && !u->closed); // it stays the caller's
    CHECK_EQ(frisbee_close(t->pool, t->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(w, 2);
    CHECK_EQ(side_attach(u, 0, FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
    turns(w, 1);
    world_end(w);
}

// Peers that claim 5 MiB each and trickle: the pool stays within its budget, and an honest connection beside them is served.
static void promise_3_claims_of_length_are_not_trusted(void) {
    world *w = world_begin(10);
    side *honest, *liars[40];
    frisbee_packet packet;
    frisbee_stats stats;
    uint8_t claim[10] = {0, 15, 0, 1, 0, NOTE, 0, 0x50, 0, 0}, *five = (uint8_t *)calloc(1, FRISBEE_PACKET_MAX);
    int n, k, closed_ones = 0;
    w->pool_desc.max_memory = 8u << 20;
    honest = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    for (n = 0; n < 40; n++) {
        liars[n] = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        mem_put(liars[n]->end->peer, claim, sizeof claim);
    }
    for (n = 0; n < 300; n++) {
        for (k = 0; k < 40; k++) mem_put(liars[k]->end->peer, "0123456789", 10);
        mem_put_packet(honest->end->peer, FRISBEE_WIRE_V1, ECHO, (unsigned)n, five, 2000);
        turns(w, 1);
        if (!CHECK(raw_next(honest, FRISBEE_WIRE_V1, &packet) && packet.length == 2000)) break;
        CHECK_EQ(frisbee_pool_stats(honest->pool, &stats), FRISBEE_OK);
        CHECK(stats.memory <= 8u << 20);
    }
    for (k = 0; k < 40; k++) closed_ones += liars[k]->closed;
    CHECK_EQ(closed_ones, 0); // 3,010 bytes from each are no reason
    CHECK(w->heap.peak <= 8u << 20);
    for (k = 0; k < 40; k++) mem_put(liars[k]->end->peer, five, 1000000); // 40 MB will not fit
    turns(w, 400);
    for (k = 0; k < 40; k++)
        if (liars[k]->closed) closed_ones++, CHECK_EQ(liars[k]->info.reason, FRISBEE_NO_MEMORY);
    CHECK(closed_ones > 30 && !honest->closed);
    CHECK(w->heap.peak <= 8u << 20);
    raw_drain(honest, FRISBEE_WIRE_V1);
    mem_put_packet(honest->end->peer, FRISBEE_WIRE_V1, ECHO, 1, five, 2000);
    turns(w, 2);
    CHECK(raw_next(honest, FRISBEE_WIRE_V1, &packet));
    free(five);
    world_end(w);
}

static void promise_3_max_memory_answers_senders(void) {
    static uint8_t data[10000];
    world *w = world_begin(11);
    side *s[8];
    int n, k, no_memory = 0;
    w->pool_desc.max_memory = 1u << 20;
    w->pool_desc.read_buffer = 16384;
    for (k = 0; k < 8; k++) {
        s[k] = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        s[k]->end->out.capacity = 0;
    }
    for (n = 0; n < 50; n++)
        for (k = 0; k < 8; k++) {
            frisbee_result result;
            if (n & 1) result = call_try(s[k], NOTE, data, sizeof data, 0, false, NULL);
            else result = frisbee_send(s[k]->pool, s[k]->conn, NOTE, 1, data, sizeof data);
            CHECK(result == FRISBEE_OK || result == FRISBEE_NO_MEMORY);
            no_memory += result == FRISBEE_NO_MEMORY;
            if (n % 10 == 0) turns(w, 1);
        }
    CHECK(no_memory > 250); // eight queues of 8 MiB would each have had room
    CHECK(w->heap.peak <= 1u << 20);
    for (k = 0; k < 8; k++) CHECK(!s[k]->closed), s[k]->end->out.capacity = SIZE_MAX;
    turns(w, 5);
    for (k = 0; k < 8; k++) CHECK_EQ(frisbee_queued(s[k]->pool, s[k]->conn), 0);
    CHECK_EQ(frisbee_send(s[0]->pool, s[0]->conn, NOTE, 1, data, sizeof data), FRISBEE_OK);
    world_end(w);
}

static void section_5_an_idle_connection_holds_no_buffers(void) {
    static uint8_t data[50000];
    world *w = world_begin(12);
    side *all[40];
    frisbee_stats before, now;
    int k;
    all[0] = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 3);
    CHECK_EQ(frisbee_pool_stats(all[0]->pool, &before), FRISBEE_OK);
    for (k = 1; k < 40; k++) all[k] = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 3);
    CHECK_EQ(frisbee_pool_stats(all[0]->pool, &now), FRISBEE_OK);
    CHECK(now.memory - before.memory <= 39 * (256 + sizeof(frisbee_transport)) + 16384); // and room for more connections
    for (k = 0; k < 40; k++) {
        CHECK_EQ(frisbee_conn_stats(all[k]->pool, all[k]->conn, &now), FRISBEE_OK);
        CHECK(now.memory <= 256 + sizeof(frisbee_transport));
        all[k]->end->out.capacity = 1000;
        mem_put_packet(all[k]->end->peer, FRISBEE_WIRE_V1, ECHO, 1, data, sizeof data);
        mem_put(all[k]->end->peer, "\x00\x0F\x00", 3);
    }
    turns(w, 3);
    for (k = 0; k < 40; k++) {
        CHECK_EQ(frisbee_conn_stats(all[k]->pool, all[k]->conn, &now), FRISBEE_OK);
        CHECK(now.memory >= 49000); // the rest of its reply
        all[k]->end->out.capacity = SIZE_MAX;
        mem_put(all[k]->end->peer, "\x01\x00\x0B\x00\x00\x00\x00", 7);
    }
    turns(w, 5);
    for (k = 0; k < 40; k++) {
        CHECK_EQ(frisbee_conn_stats(all[k]->pool, all[k]->conn, &now), FRISBEE_OK);
        CHECK(now.memory <= 256 + sizeof(frisbee_transport) && all[k]->noted == 2);
    }
    world_end(w);
}

// >>section 6: deadlines on the virtual clock

static void closes_between(world *w, side *s, uint32_t from_ms, uint32_t to_ms, frisbee_result reason) {
    uint64_t start = w->net.now_us, elapsed;
    while (!s->closed && w->net.now_us - start <= (to_ms + 20) * MS) turns(w, 1);
    elapsed = (w->net.now_us - start) / MS;
    CHECK_EQ(s->closed, 1);
    CHECK_EQ(s->info.reason, reason);
    if (!CHECK(elapsed >= from_ms && elapsed <= to_ms + 1)) fprintf(stderr, "    after %u ms\n", (unsigned)elapsed);
}

static void section_6_packet_ms_bounds_a_packet_from_first_to_last_byte(void) {
    static const struct { frisbee_wire wire; size_t first; uint32_t length, from, to; bool trickle; } cases[] = {
        {FRISBEE_WIRE_V1, 1, 6400, 100, 103, false},   // one byte of a header: no length is known yet
        {FRISBEE_WIRE_AUTO, 1, 6400, 100, 103, false}, // not even the wire
        {FRISBEE_WIRE_V1, 10, 6400, 200, 203, false}, {FRISBEE_WIRE_V1, 50, 6400, 200, 203, true},
        {FRISBEE_WIRE_AUTO, 10, 6400, 200, 203, true}, {FRISBEE_WIRE_V1, 10, 64, 101, 103, false},
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        world *w = world_begin(i);
        side *s;
        static uint8_t data[7000] = {0, 15, 0, 1, 0, NOTE};
        data[8] = (uint8_t)(cases[i].length >> 8), data[9] = (uint8_t)cases[i].length;
        w->desc.packet_ms = 100;
        s = side_raw(w, FRISBEE_ACCEPTOR, cases[i].wire);
        turns(w, 500); // no deadline on the first byte
        CHECK(!s->closed);
        if (i == 5) { // a whole one before: counted anew
            mem_put(s->end->peer, data, 50);
            mem_put(s->end->peer, data + 50, 24);
            turns(w, 50);
        }
        mem_put(s->end->peer, data, cases[i].first);
        if (cases[i].trickle) {
            int n;
            for (n = 0; n < 190; n++) mem_put(s->end->peer, "x", 1), turns(w, 1);
            CHECK(!s->closed);
            closes_between(w, s, cases[i].from - 190, cases[i].to - 190, FRISBEE_TIMED_OUT);
        } else closes_between(w, s, cases[i].from, cases[i].to, FRISBEE_TIMED_OUT);
        CHECK_EQ(s->noted, i == 5);
        world_end(w);
    }
}

static void section_6_open_ms_bounds_the_handshake(void) {
    int role;
    for (role = 0; role < 2; role++) {
        world *w = world_begin(1);
        side *s = side_make(w), *quick = side_make(w);
        ticket *t;
        mem_end *peer;
        w->desc.open_ms = 300;
        w->desc.wire = FRISBEE_WIRE_V1;
        mem_pair(&w->net, &s->end, &peer);
        mem_pair(&w->net, &quick->end, &peer);
        s->end->slow_open = -1;
        quick->end->slow_open = 20;
        CHECK_EQ(side_attach(s, 0, role ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR, NULL, 0), FRISBEE_OK);
        CHECK_EQ(side_attach(quick, 0, role ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR, NULL, 0), FRISBEE_OK);
        t = call(s, MUTE, "", 0, FRISBEE_NEVER); // queued before the open
        call(quick, ECHO, "", 0, FRISBEE_NEVER);
        closes_between(w, s, 300, 303, FRISBEE_TIMED_OUT);
        CHECK(!s->opened && t->result == FRISBEE_NOT_SENT && s->end->reads == 0 && s->end->writes == 0);
        CHECK(quick->opened && !quick->closed && quick->end->opens == 21);
        world_end(w);
    }
    { // a handshake that fails gives its result
        world *w = world_begin(1);
        side *s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
        s->end->broken = FRISBEE_UNHANDLED;
        turns(w, 2);
        CHECK(s->closed && s->info.reason == FRISBEE_UNHANDLED && !s->opened);
        world_end(w);
    }
}

static void section_6_write_ms_wants_progress(void) {
    static uint8_t data[1000];
    world *w = world_begin(2);
    side *s, *slow;
    int n;
    w->desc.write_ms = 200;
    s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    slow = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 400); // nothing waits: no deadline
    s->end->out.capacity = 300;
    slow->end->out.capacity = 300;
    CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, sizeof data), FRISBEE_OK);
    closes_between(w, s, 200, 203, FRISBEE_TIMED_OUT);
    CHECK_EQ(frisbee_send(slow->pool, slow->conn, NOTE, 1, data, sizeof data), FRISBEE_OK);
    for (n = 0; n < 10; n++) {
        mem_take(slow->end->peer, NULL, 30);
        turns(w, 150);
        CHECK(!slow->closed);
    }
    slow->end->out.capacity = SIZE_MAX;
    turns(w, 500);
    CHECK(!slow->closed && !frisbee_queued(slow->pool, slow->conn));
    world_end(w);
}

static void section_6_idle_ms_counts_packets(void) {
    world *w = world_begin(3);
    side *s;
    int n;
    w->desc.idle_ms = 400;
    w->desc.heartbeat_ms = 50;
    s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    for (n = 0; n < 6; n++) { // a packet in either direction
        if (n & 1) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, NOTE, 1, "", 0);
        else CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "", 0), FRISBEE_OK);
        turns(w, 300);
        CHECK(!s->closed);
    }
    for (n = 0; n < 10 && !s->closed; n++) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, 0, 0, "", 0), turns(w, 20); // PINGs do not
    CHECK_EQ(s->closed, 1);
    CHECK_EQ(s->info.reason, FRISBEE_TIMED_OUT);
    world_end(w);
}

static void section_6_heartbeat(void) {
    int role, wire;
    for (role = 0; role < 2; role++)
        for (wire = 0; wire < 2; wire++) {
            frisbee_wire v = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
            world *w = world_begin(4);
            side *s, *defaults, *off;
            frisbee_stats stats;
            int n, i;
            w->desc.heartbeat_ms = 100;
            w->desc.heartbeat_timeout_ms = 400;
            s = side_raw(w, role ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR, v);
            turns(w, 2);
            raw_drain(s, v);
            CHECK_EQ(w->pings, !role); // one at open, by who connected
            if (w->pings) mem_put_packet(s->end->peer, v, 1, 0, "", 0);
            w->pings = 0;
            for (n = i = 0; n < 50; n++) { // a busy connection: a PING now and then, for the round trip, which is answered
                mem_put_packet(s->end->peer, v, NOTE, 1, "", 0);
                turns(w, 50);
                raw_drain(s, v);
                for (; i < w->pings; i++) mem_put_packet(s->end->peer, v, 1, 0, "", 0);
            }
            CHECK(w->pings <= 4);
            turns(w, 2);
            w->pings = 0;
            for (n = 0; n < 110 && !w->pings; n++) turns(w, 1), raw_drain(s, v);
            CHECK_EQ(w->pings, 1); // into silence
            turns(w, 7);
            mem_put_packet(s->end->peer, v, 1, 0, "", 0); // seven milliseconds later
            turns(w, 2);
            CHECK_EQ(frisbee_conn_stats(s->pool, s->conn, &stats), FRISBEE_OK);
            CHECK(stats.rtt_us >= 7000 && stats.rtt_us <= 9000);
            for (n = 0; n < 40; n++) { // any byte is a sign of life: a packet that trickles
                if (!n) mem_put(s->end->peer, &"\x00\x0F\x00\x01\x00\x0B\x00\x00\x40\x00"[wire ? 0 : 2], wire ? 10 : 8);
                else mem_put(s->end->peer, "x", 1);
                turns(w, 90);
                CHECK(!s->closed);
            }
            w->pings = 0;
            for (i = 0; i < 3; i++) { // and now none
                turns(w, 100);
                raw_drain(s, v);
                CHECK(!s->closed);
            }
            CHECK(w->pings >= 1);
            closes_between(w, s, 1, 130, FRISBEE_TIMED_OUT); // timeout + interval from the last byte: 300 + 90 of it are over
            w->desc.heartbeat_ms = w->desc.heartbeat_timeout_ms = 0;
            defaults = side_raw(w, role ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR, v);
            w->desc.heartbeat_ms = FRISBEE_NEVER;
            off = side_raw(w, role ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR, v);
            closes_between(w, defaults, 5000, 5502, FRISBEE_TIMED_OUT);
            turns(w, 20000);
            CHECK(!off->closed);
            w->pings = w->pongs = 0;
            raw_drain(off, v);
            mem_put_packet(off->end->peer, v, 0, 0, "", 0); // answered although our own are off
            mem_put_packet(off->end->peer, v, 0, 0, "with a payload", 14);
            turns(w, 2);
            raw_drain(off, v);
            CHECK(w->pings == !role && w->pongs >= 1 && w->pongs <= 2);
            world_end(w);
        }
}

static void section_6_who_is_not_judged_by_silence(void) {
    world *w = world_begin(5);
    side *paused, *stuck, *jumped;
    int n;
    size_t most = 0;
    w->desc.heartbeat_ms = 100;
    w->desc.heartbeat_timeout_ms = 400;
    w->desc.write_ms = FRISBEE_NEVER;
    paused = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    stuck = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 1);
    CHECK_EQ(frisbee_pause(paused->pool, paused->conn, true), FRISBEE_OK);
    stuck->end->out.capacity = 0; // its peer reads nothing, but pings
    for (n = 0; n < 5000; n++) {
        if (n % 50 == 0) mem_put_packet(stuck->end->peer, FRISBEE_WIRE_V1, 0, 0, "", 0);
        turns(w, 1);
        if (frisbee_queued(stuck->pool, stuck->conn) > most) most = frisbee_queued(stuck->pool, stuck->conn);
    }
    CHECK(!paused->closed && !stuck->closed);
    CHECK(most >= 10 && most <= 20); // one PONG, and perhaps one PING
    CHECK_EQ(frisbee_pause(paused->pool, paused->conn, false), FRISBEE_OK);
    turns(w, 50);
    CHECK(!paused->closed); // silence counts from now
    closes_between(w, paused, 250, 452, FRISBEE_TIMED_OUT);
    turns(w, 2);
    jumped = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 2);
    mem_put_packet(jumped->end->peer, FRISBEE_WIRE_V1, NOTE, 1, "", 0);
    w->net.now_us += 3600000 * MS; // the process slept; what came meanwhile is read before the peer is judged
    turns(w, 2);
    CHECK(!jumped->closed && jumped->noted == 1);
    world_end(w);
}

static void section_6_max_step_ms(void) {
    world *w = world_begin(6);
    side *s, *t;
    ticket *c;
    w->pool_desc.max_step_ms = 50;
    w->desc.heartbeat_ms = 100;
    w->desc.heartbeat_timeout_ms = 400;
    s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 20);
    c = call(s, MUTE, "", 0, 300);
    turns(w, 1);
    w->net.now_us += 3600000 * MS; // a breakpoint
    turns(w, 100);
    CHECK(!s->closed && !c->done);
    UNTIL(w, 320, c->done);
    closes_between(w, s, 1, 400, FRISBEE_TIMED_OUT);
    t = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 5);
    w->net.now_us -= 1000 * MS; // a step backward counts as none
    turns(w, 300);
    CHECK(!t->closed);
    closes_between(w, t, 90, 205, FRISBEE_TIMED_OUT);
    world_end(w);
}

// The clock near 2^31 and 2^32 milliseconds and near both ends of its microseconds: deadlines neither fire at once nor never.
static void section_6_clocks_near_their_ends(void) {
    static const uint64_t starts[] = {0, 1, (UINT64_C(1) << 31) * 1000 - 500000, (UINT64_C(1) << 32) * 1000 - 500000,
        (UINT64_C(1) << 32) - 500000, (UINT64_C(1) << 63) - 500000, UINT64_MAX - 3600000000u, UINT64_MAX - 2000000, UINT64_MAX - 500000};
    size_t i;
    for (i = 0; i < sizeof starts / sizeof *starts; i++) {
        world *w = world_begin(i);
        side *s;
        ticket *t, *later, *never;
        w->net.now_us = starts[i];
        w->desc.heartbeat_ms = 100;
        w->desc.heartbeat_timeout_ms = 1200;
        s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
        turns(w, 2);
        t = call(s, MUTE, "", 0, 300);
        later = call(s, MUTE, "", 0, 900);
        never = call(s, MUTE, "", 0, INT32_MAX);
        mem_put(s->end->peer, "\x00\x0F\x00\x01\x00\x0B\x00\x00\x40\x00", 10); // a packet deadline of 30 s
        turns(w, 295);
        CHECK(!t->done && !later->done);
        turns(w, 10);
        CHECK(t->done && t->result == FRISBEE_TIMED_OUT && !later->done);
        turns(w, 580);
        CHECK(!later->done && !s->closed); // the ends of uint64 lie in here for the last: a step backward, counted as none
        turns(w, 30);
        CHECK(later->done && !never->done && !s->closed);
        closes_between(w, s, 250, 430, FRISBEE_TIMED_OUT);
        CHECK_EQ(never->result, FRISBEE_UNKNOWN);
        world_end(w);
    }
}

// Nobody is judged for pings, but a million of them get no more than one PONG into the queue.
static void promise_6_a_flood_of_pings_gets_one_pong(void) {
    static uint8_t flood[100000];
    int wire, n;
    size_t i;
    for (wire = 0; wire < 2; wire++) {
        world *w = world_begin(7);
        side *s = side_raw(w, FRISBEE_ACCEPTOR, wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
        size_t frame = wire ? 10 : 8, most = 0, room = sizeof flood / frame * frame;
        memset(flood, 0, sizeof flood);
        for (i = 1; wire && i < sizeof flood; i += 10) flood[i] = 15;
        turns(w, 1);
        s->end->out.capacity = 3;
        for (n = 0; n < 100; n++) {
            mem_put(s->end->peer, flood, room);
            turns(w, 1);
            if (frisbee_queued(s->pool, s->conn) > most) most = frisbee_queued(s->pool, s->conn);
        }
        UNTIL(w, 1000, !mem_size(&s->end->peer->out));
        CHECK(most > 0 && most <= 2 * frame - 3); // one that has begun to leave, and one behind it
        CHECK(!s->closed);
        s->end->out.capacity = SIZE_MAX;
        turns(w, 5);
        w->pongs = 0;
        raw_drain(s, wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
        CHECK(w->pongs >= 1 && w->pongs <= 2);
        world_end(w);
    }
}

// Hostile and random input: it costs its sender the connection; the one beside it is served after every piece.
static void promise_6_hostile_input_costs_its_sender_alone(void) {
    static uint8_t data[4000];
    uint64_t seed;
    int ended_ones = 0;
    for (seed = 1; seed <= 250; seed++) {
        static const frisbee_wire wires[] = {FRISBEE_WIRE_AUTO, FRISBEE_WIRE_V0, FRISBEE_WIRE_V1};
        world *w = world_begin(seed);
        side *bad, *good;
        frisbee_packet packet;
        frisbee_wire wire = seed & 1 ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
        int n;
        w->forged = true;
        w->desc.max_packet = 100000;
        w->desc.packet_ms = 50;
        w->desc.max_calls = 30;
        bad = side_raw(w, seed & 2 ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR, seed & 2 ? wires[seed % 3] : wire);
        good = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        for (n = 0; n < 120; n++) {
            size_t length = mem_below(&w->net, 300);
            uint32_t what = mem_below(&w->net, 8);
            mem_fill(&w->net, data, length + 16);
            if (what == 0 && seed % 5) mem_put(bad->end->peer, data, length); // noise
            else if (what == 1) mem_put_packet(bad->end->peer, wire, mem_below(&w->net, 65536), mem_below(&w->net, 65536), data, length);
            else if (what == 2) mem_put_packet(bad->end->peer, wire, mem_below(&w->net, 24), mem_below(&w->net, 40), data, length);
            else if (what == 3) mem_put_packet(bad->end->peer, wire, MUTE, 1 + mem_below(&w->net, 40), data, length); // forged replies
            else if (what == 4 && n > 60) mem_put_packet(bad->end->peer, wire, 0xFF00 + mem_below(&w->net, 3), 0, data, length & 1 ? length : 0);
            else if (what == 5 && !bad->closed) (void)call_try(bad, MUTE, data, length, 20, length & 1, NULL);
            else if (what == 6 && seed % 3) mem_put(bad->end->peer, data, mem_below(&w->net, 9));
            mem_put_packet(good->end->peer, FRISBEE_WIRE_V1, ECHO, (unsigned)n, data, length);
            turns(w, 1);
            if (!CHECK(raw_next(good, FRISBEE_WIRE_V1, &packet) && packet.from.id == n && packet.length == length)) break;
            if (mem_below(&w->net, 30) == 0) mem_take(bad->end->peer, NULL, SIZE_MAX);
        }
        CHECK(!good->closed);
        ended_ones += bad->closed;
        turns(w, 200);
        world_end(w);
    }
    CHECK(ended_ones > 50);
}

static void promise_6_greetings_of_other_protocols_are_refused(void) {
    static const char *const greetings[] = {"\x16\x03\x01\x02\x1f\x01\x01\xfc\x03\x03", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\n\r\n"};
    size_t i, piece;
    for (i = 0; i < 3; i++)
        for (piece = 0; piece < 9; piece++) {
            world *w = world_begin(8);
            side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_AUTO);
            s->end->piece = piece;
            mem_put(s->end->peer, greetings[i], strlen(greetings[i]));
            turns(w, 20);
            CHECK_EQ(s->closed, 1);
            CHECK(s->info.reason == FRISBEE_MALFORMED || s->info.reason == FRISBEE_TOO_LARGE);
            CHECK_EQ(s->noted, 0);
            CHECK_EQ(mem_size(&s->end->out), 0); // and not a byte in answer
            world_end(w);
        }
}

// >>promise 7: hijack

static const char blob_a[] = "raw bytes of the connector, with a zero \0 and a \x00\x0F inside ...", blob_b[] = "and those of the acceptor, no less raw";

static frisbee_hijack_how hijack_way;
static void answer_and_hijack(side *s, const frisbee_packet *packet) { // SWITCH: two packets more, then let go
    int n;
    if (packet->from.operation != SWITCH) return;
    for (n = 0; n < 2; n++) CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, (uint16_t)n, "12345", 5), FRISBEE_OK);
    if (s->choice) return; // the case does it later
    CHECK_EQ(frisbee_hijack(s->pool, s->conn, hijack_way, 500, hijacked, s), FRISBEE_OK);
    CHECK_EQ(frisbee_hijack(s->pool, s->conn, hijack_way, 500, hijacked, s), FRISBEE_BUSY);
    CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "", 0), FRISBEE_HIJACKED);
    CHECK_EQ(call_try(s, NOTE, "", 0, 0, false, NULL), FRISBEE_HIJACKED);
}

// Two frisbee.h peers. Every split of either direction around the last packet, narrow pipes, late answers: every packet is delivered, every raw
// byte arrives, nothing else does.
static void promise_7_fenced_loses_no_byte(void) {
    static const size_t capacities[] = {SIZE_MAX, 1, 16};
    int wire, direction, woken, late;
    size_t c, cut;
    for (wire = 0; wire < 2; wire++)
        for (c = 0; c < 3; c++)
            for (direction = 0; direction < 2; direction++)
                for (cut = 1; cut <= 135; cut += c ? 7 : 1) {
                    world *w = world_begin(cut);
                    side *a, *b;
                    ticket *t;
                    int n;
                    woken = (int)cut & 1;
                    late = (int)(cut / 2) & 1;
                    hijack_way = FRISBEE_HIJACK_FENCED;
                    w->pool_desc.read_buffer = 4096;
                    w->wires[0] = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
                    w->desc.heartbeat_ms = 5; // no PING may stand among the raw bytes
                    world_pair(w);
                    a = &w->sides[0], b = &w->sides[1];
                    a->end->wake_only = b->end->wake_only = woken;
                    world_open(w);
                    turns(w, 3);
                    CHECK(!mem_size(&a->end->out) && !mem_size(&b->end->out));
                    w->sides[direction].end->out.cut = w->sides[direction].end->out.position + cut;
                    a->end->out.capacity = b->end->out.capacity = capacities[c];
                    mem_append(&a->raw_out, blob_a, sizeof blob_a);
                    mem_append(&b->raw_out, blob_b, sizeof blob_b);
                    b->on_request = answer_and_hijack;
                    b->choice = late;
                    for (n = 0; n < 2; n++) CHECK_EQ(frisbee_send(a->pool, a->conn, NOTE, (uint16_t)n, "abcde", 5), FRISBEE_OK);
                    t = call(a, MUTE, "???", 3, FRISBEE_NEVER);
                    CHECK_EQ(frisbee_send(a->pool, a->conn, SWITCH, 1, "", 0), FRISBEE_OK);
                    CHECK_EQ(frisbee_hijack(a->pool, a->conn, FRISBEE_HIJACK_FENCED, 2000, hijacked, a), FRISBEE_OK);
                    turns(w, 1);
                    CHECK(!a->hijacks); // not before the other's fence
                    if (late) {
                        UNTIL(w, 300, b->noted == 4);
                        turns(w, 20);
                        CHECK(!a->hijacks && !b->hijacks);
                        CHECK_EQ(frisbee_hijack(b->pool, b->conn, FRISBEE_HIJACK_FENCED, 500, hijacked, b), FRISBEE_OK);
                    }
                    UNTIL(w, 2000, a->hijacks && b->hijacks && a->raw_in.length >= sizeof blob_b && b->raw_in.length >= sizeof blob_a);
                    turns(w, 20);
                    CHECK(a->closed && b->closed && a->info.reason == FRISBEE_HIJACKED && b->info.reason == FRISBEE_HIJACKED);
                    CHECK(a->noted == 2 && b->noted == 4 && t->done && t->result != FRISBEE_OK);
                    CHECK(a->raw_in.length == sizeof blob_b && !memcmp(a->raw_in.data, blob_b, sizeof blob_b));
                    CHECK(b->raw_in.length == sizeof blob_a && !memcmp(b->raw_in.data, blob_a, sizeof blob_a));
                    CHECK(!a->unsent.length && !b->unsent.length);
                    CHECK(a->end->closes == 0 && b->end->closes == 0); // they are ours
                    CHECK_EQ(a->end->changed + b->end->changed, 0);
                    world_end(w);
                }
}

// A peer that calls Raw(): whatever stands around its last packet, in whatever pieces.
static void promise_7_stock_loses_no_byte(void) {
    static const struct { const char *bytes; size_t length; } tails[] = { // what the raw bytes begin with; none of these is a whole PING
        {"plain raw bytes", 15}, {"\x00\x0F\x00\x00\x00\x00\x00\x00\x00\x01~", 11}, {"\x00\x00\x00\x00\x00\x00\x00\x01~", 9},
        {"\x00\x0F\x00\x00\x00\x0BXYZ", 9}, {"\x00\x0Fraw", 5},
    };
    int wire, role, pings, n;
    size_t cut, tail, i;
    for (wire = 0; wire < 2; wire++)
        for (role = 0; role < 2; role++)
            for (tail = 0; tail < 5; tail++)
                for (pings = !wire && tail == 1 ? 4 : 0; pings < 4; pings++) // (on v0 that tail begins with an empty PING of id 15)
                    for (cut = 0; cut < 90; cut += tail > 2 ? 2 : 1) {
                        frisbee_wire v = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
                        world *w = world_begin(cut);
                        frisbee_packet packet;
                        side *s;
                        w->pool_desc.read_buffer = 4096;
                        w->desc.heartbeat_ms = 20;
                        hijack_way = FRISBEE_HIJACK_STOCK;
                        s = side_raw(w, role ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR, v);
                        s->end->wake_only = false;
                        s->on_request = answer_and_hijack;
                        turns(w, 2);
                        raw_drain(s, v);
                        w->pings = 0;
                        s->end->peer->out.cut = cut;
                        mem_append(&s->raw_out, blob_a, sizeof blob_a);
                        mem_put_packet(s->end->peer, v, NOTE, 5, "first", 5);
                        mem_put_packet(s->end->peer, v, SWITCH, 5, "now", 3);
                        for (n = 0; n < pings; n++) mem_put_packet(s->end->peer, v, n & 1, 0, "", 0);
                        turns(w, 60);
                        CHECK(!s->hijacks && !s->closed); // whoever writes raw before the Go peer has switched corrupts it
                        for (i = 0; i < 2; i++) CHECK(raw_next(s, v, &packet) && packet.from.operation == NOTE && packet.length == 5);
                        CHECK_EQ(mem_size(&s->end->out), 0); // all queued has left, and no PING, no PONG follows our last packet
                        CHECK_EQ(w->pings + w->pongs, 0);
                        mem_put(s->end->peer, tails[tail].bytes, tails[tail].length);
                        UNTIL(w, 10, s->hijacks);
                        mem_put(s->end->peer, blob_b, sizeof blob_b);
                        turns(w, 2);
                        CHECK(s->taken.result == FRISBEE_OK && s->closed && s->info.reason == FRISBEE_HIJACKED && s->noted == 2);
                        CHECK_EQ(s->raw_in.length, tails[tail].length + sizeof blob_b);
                        if (s->raw_in.length == tails[tail].length + sizeof blob_b) {
                            CHECK(!memcmp(s->raw_in.data, tails[tail].bytes, tails[tail].length));
                            CHECK(!memcmp(s->raw_in.data + tails[tail].length, blob_b, sizeof blob_b));
                        }
                        CHECK_EQ(mem_size(&s->end->out), sizeof blob_a);
                        world_end(w);
                    }
}

// NOW: at every amount of output that has left, and every split of the input, what was delivered and what is handed over are the whole.
static void promise_7_now_hands_over_what_is_unsent_and_unread(void) {
    static const char heads[2][11] = {"\x00\x0F\x00\x00\x00\x0B\x00\x00\x00\x05", "\x00\x0F\x00\x01\x00\x0B\x00\x00\x00\x05"};
    static const char rest[] = "\x00\x0F\x00\x00\x00\x00\x00\x00\x00\x00 even a PING belongs to the new owner";
    size_t capacity, cut, i;
    int borrowed;
    for (borrowed = 0; borrowed < 2; borrowed++)
        for (capacity = 0; capacity <= 80; capacity++)
            for (cut = 0; cut <= 60; cut += capacity % 15 ? 13 : 1) {
                world *w = world_begin(cut);
                side *s;
                mem_bytes out, expected;
                frisbee_span span;
                ticket *t;
                memset(&out, 0, sizeof out);
                memset(&expected, 0, sizeof expected);
                w->pool_desc.read_buffer = 4096;
                hijack_way = FRISBEE_HIJACK_NOW;
                s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
                s->on_request = answer_and_hijack;
                turns(w, 1);
                s->end->out.capacity = capacity;
                for (i = 0; i < 2; i++) {
                    loan *l = lend("queue", 5);
                    span.data = l->data, span.length = 5;
                    if (borrowed) CHECK_EQ(frisbee_send_spans(s->pool, s->conn, NOTE, (uint16_t)i, &span, 1, give_back, l), FRISBEE_OK);
                    else CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, (uint16_t)i, "queue", 5), FRISBEE_OK), take_back(l);
                    mem_append(&expected, heads[i], 10);
                    mem_append(&expected, "queue", 5);
                }
                for (i = 0; i < 2; i++) {
                    mem_append(&expected, heads[i], 10);
                    mem_append(&expected, "12345", 5);
                }
                turns(w, 1);
                t = call(s, MUTE, "told", 4, FRISBEE_NEVER);
                s->end->peer->out.cut = cut;
                mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, NOTE, 5, "first", 5);
                mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, SWITCH, 5, "", 0);
                mem_put(s->end->peer, rest, sizeof rest);
                UNTIL(w, 5, s->hijacks);
                turns(w, 2);
                CHECK(s->taken.result == FRISBEE_OK && s->closed && s->info.reason == FRISBEE_HIJACKED && s->noted == 2);
                CHECK(s->raw_in.length == sizeof rest && !memcmp(s->raw_in.data, rest, sizeof rest));
                mem_take(s->end->peer, &out, SIZE_MAX);
                mem_append(&out, s->unsent.data, s->unsent.length);
                if (CHECK(t->done && out.length == 74)) { // the call stands behind the first two; if "not sent", as one that nobody heeds
                    CHECK_EQ(out.data[30 + 5], t->sent ? MUTE : 1);
                    CHECK_EQ(out.data[30 + 4], t->sent ? 0 : 0xFF);
                    CHECK(t->sent || capacity <= 30); // never seen, if "not sent"
                    memmove(out.data + 30, out.data + 44, 30);
                    out.length = 60;
                }
                CHECK(mem_same(&out, &expected));
                mem_free(&out);
                mem_free(&expected);
                world_end(w);
            }
}

static void promise_7_hijack_outside_a_handler(void) {
    int how, n;
    for (how = FRISBEE_HIJACK_STOCK; how <= FRISBEE_HIJACK_NOW; how++)
        for (n = 0; n < 10; n++) { // bytes of a packet that has begun belong to the raw bytes
            world *w = world_begin((uint64_t)n);
            side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
            mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, NOTE, 5, "first", 5);
            mem_put(s->end->peer, "\x00\x0F\x01\x02\x03\x04\x05\x06\x07", (size_t)n);
            turns(w, 2);
            CHECK_EQ(s->noted, 1);
            CHECK_EQ(frisbee_hijack(s->pool, s->conn, (frisbee_hijack_how)how, 0, hijacked, s), FRISBEE_OK);
            turns(w, 2);
            mem_put(s->end->peer, "zzz-zzz-zzz", 11);
            turns(w, 3);
            CHECK(s->hijacks && s->taken.result == FRISBEE_OK);
            CHECK(s->raw_in.length == (size_t)n + 11 && !memcmp(s->raw_in.data, "\x00\x0F\x01\x02\x03\x04\x05\x06\x07", (size_t)n) &&
                  !memcmp(s->raw_in.data + n, "zzz-zzz-zzz", 11));
            world_end(w);
        }
}

static void promise_7_a_hijack_that_fails_tells_so_once(void) {
    static const frisbee_hijack_how hows[] = {FRISBEE_HIJACK_FENCED, FRISBEE_HIJACK_STOCK};
    int h, why;
    for (h = 0; h < 2; h++)
        for (why = 0; why < 7; why++) {
            world *w = world_begin((uint64_t)why);
            side *s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
            ticket *t;
            CHECK_EQ(frisbee_hijack(s->pool, s->conn, hows[h], 0, hijacked, s), FRISBEE_NOT_SENT); // not open yet
            turns(w, 2);
            t = call(s, MUTE, "", 0, FRISBEE_NEVER);
            if (why == 6) s->end->out.capacity = 5; // the queue never gets out
            turns(w, 1);
            if (why == 6) CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "", 0), FRISBEE_OK);
            CHECK_EQ(frisbee_hijack(s->pool, s->conn, hows[h], 100, hijacked, s), FRISBEE_OK);
            turns(w, 2);
            CHECK(!s->hijacks);
            switch (why) {
            case 0: break;
            case 1: mem_reset(s->end, FRISBEE_UNHANDLED); break;
            case 2: s->end->peer->out.ended = true; break;
            case 3: CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK); break;
            case 4: CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK); break;
            case 5: frisbee_pool_destroy(s->pool), w->pool[0] = NULL; break;
            default: break;
            }
            turns(w, why && why < 6 ? 50 : 95);
            if (!why || why == 6) CHECK(!s->hijacks);
            turns(w, why == 4 ? 2100 : 20);
            CHECK(s->hijacks == 1 && s->closed == 1 && t->done == 1);
            if (!why || why == 6) CHECK(s->taken.result == FRISBEE_TIMED_OUT && s->info.reason == FRISBEE_TIMED_OUT);
            else CHECK(s->taken.result != FRISBEE_OK);
            if (why == 1) CHECK_EQ(s->info.reason, FRISBEE_UNHANDLED);
            CHECK_EQ(s->end->closes, 1);
            world_end(w);
        }
    { // a fence that nobody answers
        world *w = world_begin(9);
        side *s;
        w->desc.packet_ms = 100;
        s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, 0xFF00, 0, "", 0);
        closes_between(w, s, 100, 103, FRISBEE_TIMED_OUT);
        world_end(w);
    }
}

// The inverse: packets go on in another pool, at every split of a stream; unsent bytes are written first by hand.
static void promise_7_attach_with_prefill_goes_on(void) {
    size_t split, room;
    for (split = 0; split <= 120; split++)
        for (room = 0; room <= 30; room += 15) {
            world *w = world_begin(split);
            side *s, *next;
            frisbee_packet packet;
            frisbee_transport io;
            frisbee_span span;
            frisbee_conn_desc desc;
            int n, got = 0;
            size_t done = 0;
            hijack_way = FRISBEE_HIJACK_NOW;
            w->pool_desc.read_buffer = 4096;
            s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
            s->on_request = answer_and_hijack;
            turns(w, 1);
            s->end->out.capacity = room;
            s->end->peer->out.cut = split;
            mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, ECHO, 5, "first", 5);
            mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, SWITCH, 5, "", 0);
            for (n = 0; n < 6; n++) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, ECHO, 100 + (unsigned)n, "payload", (size_t)n);
            for (n = 0; n < 10 && !s->hijacks; n++) { // turn_by would read on as the new owner
                frisbee_poll(s->pool, 0);
                mem_advance(&w->net, MS);
            }
            if (!CHECK(s->hijacks && s->taken.result == FRISBEE_OK)) exit(1);
            io = s->taken.io;
            s->taken.io.context = NULL; // handed on
            s->end->out.capacity = SIZE_MAX;
            span.data = s->unsent.data, span.length = s->unsent.length;
            if (span.length) CHECK_EQ(io.write(io.context, &span, 1, &done), FRISBEE_OK);
            CHECK_EQ(done, span.length);
            next = side_make(w);
            next->end = s->end;
            next->pool = world_pool(w, 1);
            desc = w->desc;
            desc.role = FRISBEE_ACCEPTOR;
            desc.user = next;
            CHECK_EQ(frisbee_attach(next->pool, &io, &desc, s->raw_in.data, s->raw_in.length, &next->conn), FRISBEE_OK);
            if (s->raw_in.length) memset(s->raw_in.data, 0xDD, s->raw_in.length); // it was copied
            turns(w, 5);
            CHECK_EQ(s->noted + next->noted, 8);
            while (raw_next(s, FRISBEE_WIRE_V1, &packet)) got++;
            CHECK_EQ(got, 9); // seven echoes, and the two of the SWITCH
            frisbee_pool_destroy(w->pool[1]);
            w->pool[1] = NULL;
            CHECK(next->closed == 1 && s->end->closes == 1);
            world_end(w);
        }
}

// >>upgrade: a protocol of lines, and back to packets

typedef struct lines { side *s; } lines;

static frisbee_result lines_write(side *s, const char *text) {
    frisbee_span span;
    span.data = text;
    span.length = strlen(text);
    return frisbee_write(s->pool, s->conn, &span, 1, NULL, NULL);
}

static frisbee_result lines_start(frisbee_pool *pool, frisbee_conn conn, void *user, void **state) {
    side *s = (side *)frisbee_user(pool, conn);
    lines *l = (lines *)calloc(1, sizeof *l);
    CHECK(user == (void *)tickets && s && s->pool == pool);
    if (!l) exit(2);
    if (!s) return FRISBEE_INVALID;
    l->s = s;
    *state = l;
    s->starts++;
    trace(s, 's');
    CHECK(fine(lines_write(s, "hi\n")));
    CHECK_EQ(frisbee_send(pool, conn, NOTE, 1, "", 0), FRISBEE_INVALID); // no packets now
    return FRISBEE_OK;
}

// One line a call: the rest is offered again at once. "back" is answered by "ok", and both mean: packets from the next byte on.
static frisbee_result lines_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used, size_t *need) {
    side *s = ((lines *)state)->s;
    const char *text = (const char *)data, *end = (const char *)memchr(data, '\n', length);
    trace(s, 'i');
    CHECK(length > 0 && s->conn.id == conn.id && s->starts == s->stops + 1);
    *need = 0;
    *used = end ? (size_t)(end - text) + 1 : 0;
    if (!end) return FRISBEE_AGAIN;
    mem_append(&s->lines, data, *used);
    if (*used == 4 && !memcmp(text, "bad\n", 4)) return FRISBEE_UNHANDLED;
    if (*used == 5 && !memcmp(text, "back\n", 5)) {
        CHECK(fine(lines_write(s, "ok\n")));
        CHECK(fine(frisbee_upgrade(pool, conn, FRISBEE_HIJACK_NOW, NULL)));
    }
    if (*used == 3 && !memcmp(text, "ok\n", 3)) {
        CHECK(fine(frisbee_upgrade(pool, conn, FRISBEE_HIJACK_NOW, NULL)));
        s->choice++;
    }
    return FRISBEE_OK;
}

static void lines_stop(frisbee_pool *pool, frisbee_conn conn, void *state) {
    side *s = ((lines *)state)->s;
    (void)pool;
    CHECK(s->conn.id == conn.id);
    s->stops++;
    s->stopped_us = s->w->net.now_us;
    trace(s, 't');
    free(state);
}

static const frisbee_protocol lines_protocol = {lines_start, lines_input, NULL, lines_stop, tickets};

static void switch_to_lines(side *s, const frisbee_packet *packet) {
    if (packet->from.operation != SWITCH) return;
    CHECK_EQ(frisbee_upgrade(s->pool, s->conn, FRISBEE_HIJACK_FENCED, &lines_protocol), FRISBEE_OK);
    CHECK_EQ(frisbee_upgrade(s->pool, s->conn, FRISBEE_HIJACK_FENCED, &lines_protocol), FRISBEE_BUSY);
}

static void section_8_upgrade_to_a_protocol_and_back(void) {
    uint64_t seed;
    for (seed = 1; seed <= 60; seed++) {
        world *w = world_begin(seed);
        side *a, *b;
        int round, n;
        (void)world_shape(w);
        w->desc.heartbeat_ms = seed & 1 ? 20 : FRISBEE_NEVER;
        world_open(w);
        a = &w->sides[0], b = &w->sides[1];
        a->recurring = b->recurring = true;
        b->on_request = switch_to_lines;
        for (round = 1; round <= 3; round++) {
            uint64_t before = a->noted, before_b = b->noted;
            ticket *t = call(a, MUTE, "", 0, FRISBEE_NEVER), *after;
            for (n = 0; n < 3; n++) CHECK_EQ(frisbee_send(a->pool, a->conn, NOTE, 1, "abc", 3), FRISBEE_OK);
            CHECK_EQ(frisbee_send(a->pool, a->conn, SWITCH, 1, "", 0), FRISBEE_OK);
            CHECK_EQ(frisbee_upgrade(a->pool, a->conn, FRISBEE_HIJACK_FENCED, &lines_protocol), FRISBEE_OK);
            UNTIL(w, 9000, a->starts == round && b->starts == round);
            CHECK(t->done && t->result != FRISBEE_OK); // it ended before the protocol started
            CHECK_EQ(lines_write(a, "one\ntwo\nthr"), FRISBEE_OK);
            CHECK_EQ(lines_write(b, "ein\n"), FRISBEE_OK);
            turns(w, 5);
            CHECK_EQ(lines_write(a, "ee\nback\n"), FRISBEE_OK);
            UNTIL(w, 9000, a->choice == round);
            turns(w, 1);
            CHECK(b->stops == round && a->stops == round);
            after = call(a, ECHO, "packets again", 13, FRISBEE_NEVER);
            for (n = 0; n < 2; n++) {
                CHECK_EQ(frisbee_send(a->pool, a->conn, PLAIN, 1, "x", 1), FRISBEE_OK);
                CHECK_EQ(frisbee_send(b->pool, b->conn, PLAIN, 1, "y", 1), FRISBEE_OK);
            }
            UNTIL(w, 9000, after->done && a->noted == before + 2 && b->noted == before_b + 8);
            CHECK(after->matches);
        }
        CHECK(b->lines.length == 66 && !memcmp(b->lines.data, "hi\none\ntwo\nthree\nback\nhi\none\n", 29));
        CHECK(a->lines.length == 30 && !memcmp(a->lines.data, "hi\nein\nok\nhi\n", 13));
        CHECK(!a->closed && !b->closed);
        world_end(w);
    }
}

// Bytes behind the last packet go to the protocol in the same turn, and packets behind the last line to the handlers, at every split.
static void section_8_bytes_that_are_left_go_to_the_next_protocol(void) {
    static const frisbee_hijack_how hows[] = {FRISBEE_HIJACK_STOCK, FRISBEE_HIJACK_NOW};
    size_t cut;
    int h;
    for (h = 0; h < 2; h++)
        for (cut = 0; cut <= 75; cut++) {
            world *w = world_begin(cut);
            side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
            frisbee_packet packet;
            size_t length;
            const uint8_t *data;
            s->recurring = true;
            turns(w, 1);
            s->end->peer->out.cut = cut;
            mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, ECHO, 1, "before", 6);
            UNTIL(w, 4, s->noted == 1);
            CHECK_EQ(frisbee_upgrade(s->pool, s->conn, hows[h], &lines_protocol), FRISBEE_OK);
            if (h == 0) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, 0, 0, "", 0); // a Go peer's ticker
            mem_put(s->end->peer, "one\nback\n", 9);
            mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, ECHO, 2, "after", 5);
            turns(w, 4);
            CHECK(s->noted == 2 && s->starts == 1 && s->stops == 1);
            CHECK(cut > 16 || s->stopped_us == s->noted_us); // not split: in the same turn
            CHECK(s->lines.length == 9 && !memcmp(s->lines.data, "one\nback\n", 9));
            CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.from.id == 1);
            data = mem_peek(s->end->peer, &length);
            CHECK(length >= 6 && !memcmp(data, "hi\nok\n", 6));
            mem_take(s->end->peer, NULL, 6);
            CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.from.id == 2 && !memcmp(packet.data, "after", 5));
            world_end(w);
        }
}

// A protocol from the start, with length-prefixed messages: `need` is honoured, results end the connection, what is kept is bounded.
static size_t counted_asked;
static frisbee_result counted_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used, size_t *need) {
    side *s = (side *)state; // without start, state is `user`
    const uint8_t *bytes = (const uint8_t *)data;
    (void)pool, (void)conn;
    trace(s, 'i');
    CHECK(length >= counted_asked);
    *used = 0;
    counted_asked = *need = (size_t)bytes[0] + 1;
    if (length < *need) return FRISBEE_AGAIN;
    mem_append(&s->lines, bytes + 1, bytes[0]);
    *used = *need;
    counted_asked = *need = 0;
    return FRISBEE_OK;
}

static void counted_end(frisbee_pool *pool, frisbee_conn conn, void *state) {
    side *s = (side *)state;
    (void)pool, (void)conn;
    trace(s, 'e');
    s->ended++;
    CHECK_EQ(lines_write(s, "bye"), FRISBEE_OK);
    CHECK_EQ(frisbee_close(pool, conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
}

static frisbee_result start_refuses(frisbee_pool *pool, frisbee_conn conn, void *user, void **state) {
    (void)pool, (void)conn, (void)user, (void)state;
    return FRISBEE_UNHANDLED;
}

static void section_3_a_protocol_from_the_start(void) {
    uint64_t seed;
    for (seed = 1; seed <= 40; seed++) {
        world *w = world_begin(seed);
        side *s = side_make(w);
        frisbee_protocol protocol;
        mem_end *peer;
        mem_bytes sent;
        uint8_t message[256];
        int n;
        memset(&protocol, 0, sizeof protocol);
        memset(&sent, 0, sizeof sent);
        protocol.input = counted_input;
        protocol.end = counted_end;
        protocol.user = s;
        w->desc.protocol = &protocol;
        w->desc.events = &events_without_end;
        w->net.ragged = seed & 1;
        mem_pair(&w->net, &s->end, &peer);
        s->end->piece = seed % 3 ? (size_t)(seed % 7) : 0;
        counted_asked = 0;
        CHECK_EQ(side_attach(s, 0, seed & 1 ? FRISBEE_CONNECTOR : FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
        turns(w, 1);
        CHECK(s->opened && !mem_size(&s->end->out)); // nothing is sent but what the protocol writes
        CHECK_EQ(frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_FENCED, 0, hijacked, s), FRISBEE_INVALID);
        CHECK_EQ(call_try(s, ECHO, "", 0, 0, false, NULL), FRISBEE_INVALID);
        for (n = 0; n < 30; n++) {
            mem_fill(&w->net, message, sizeof message);
            mem_put(peer, message, 1 + (size_t)message[0]);
            mem_append(&sent, message + 1, message[0]);
            turns(w, (int)mem_below(&w->net, 3));
        }
        UNTIL(w, 9000, s->lines.length == sent.length);
        CHECK(mem_same(&s->lines, &sent));
        mem_put(peer, "\x05half", 5);
        turns(w, 10);
        peer->out.ended = true;
        UNTIL(w, 2100, s->closed);
        CHECK(s->ended == 1 && mem_size(&s->end->out) == 3);
        mem_free(&sent);
        world_end(w);
    }
    {
        int way;
        for (way = 0; way < 3; way++) {
            world *w = world_begin(1);
            frisbee_protocol protocol = lines_protocol;
            side *s;
            static uint8_t endless[3000];
            memset(endless, 'x', sizeof endless);
            if (way == 0) protocol.start = start_refuses;
            w->desc.protocol = &protocol;
            w->desc.max_packet = 2000;
            s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_AUTO);
            turns(w, 2);
            CHECK_EQ(s->opened, 1);
            if (way == 1) mem_put(s->end->peer, "good\nbad\nworse\n", 15);
            if (way == 2) mem_put(s->end->peer, endless, 1999), turns(w, 2), CHECK(!s->closed), mem_put(s->end->peer, endless, 2);
            turns(w, 3);
            CHECK(s->closed && s->info.reason == (way == 2 ? FRISBEE_TOO_LARGE : FRISBEE_UNHANDLED));
            CHECK_EQ(s->stops, way != 0); // stop only after a start that was OK
            if (way == 1) CHECK_EQ(s->lines.length, 9);
            world_end(w);
        }
    }
}

// >>wraps: a transport on top of the transport, which scrambles, holds bytes back and has a handshake of its own

typedef struct scramble {
    frisbee_transport below;
    side *s;
    uint8_t key, in_key, out_key;
    uint8_t held[16]; // scrambled and not yet taken by the transport below
    size_t held_length;
    int greeting; // bits: 4 the one below is open and ours is held, 1 ours is written, 2 theirs was read
} scramble;

static frisbee_result scramble_flush(scramble *x) {
    while (x->held_length) {
        frisbee_span span;
        size_t done = 0;
        frisbee_result result;
        span.data = x->held;
        span.length = x->held_length;
        result = x->below.write(x->below.context, &span, 1, &done);
        if (result) return result;
        memmove(x->held, x->held + done, x->held_length -= done);
    }
    return x->below.write(x->below.context, NULL, 0, &(size_t){0});
}

static frisbee_result scramble_open(void *context) {
    scramble *x = (scramble *)context;
    uint8_t byte;
    size_t done = 0;
    frisbee_result result;
    if (!(x->greeting & 1)) {
        if (!(x->greeting & 4)) {
            if (x->below.open && (result = x->below.open(x->below.context)) != FRISBEE_OK) return result;
            x->greeting |= 4;
            x->held[x->held_length++] = x->key;
        }
        if ((result = scramble_flush(x)) != FRISBEE_OK) return result;
        x->greeting |= 1;
    }
    result = x->below.read(x->below.context, &byte, 1, &done);
    if (result) return result;
    x->greeting |= 2;
    return byte == x->key ? FRISBEE_OK : FRISBEE_MALFORMED;
}

static frisbee_result scramble_read(void *context, void *into, size_t room, size_t *done) {
    scramble *x = (scramble *)context;
    frisbee_result result = x->below.read(x->below.context, into, room, done);
    size_t i;
    CHECK(x->greeting & 2);
    for (i = 0; result == FRISBEE_OK && i < *done; i++) ((uint8_t *)into)[i] ^= x->in_key++;
    return result;
}

static frisbee_result scramble_write(void *context, const frisbee_span *spans, size_t count, size_t *done) {
    scramble *x = (scramble *)context;
    frisbee_result result;
    size_t i, k;
    *done = 0;
    if (!count) return scramble_flush(x);
    if (x->held_length == sizeof x->held && (result = scramble_flush(x)) != FRISBEE_OK && result != FRISBEE_AGAIN) return result;
    if (x->held_length == sizeof x->held) return FRISBEE_AGAIN;
    for (i = 0; i < count; i++)
        for (k = 0; k < spans[i].length && x->held_length < sizeof x->held; k++, ++*done)
            x->held[x->held_length++] = ((const uint8_t *)spans[i].data)[k] ^ x->out_key++;
    return FRISBEE_OK; // they lie here until somebody flushes
}

static frisbee_result scramble_finish(void *context) {
    scramble *x = (scramble *)context;
    frisbee_result result = scramble_flush(x);
    return result ? result : x->below.finish ? x->below.finish(x->below.context) : FRISBEE_OK;
}

static void scramble_close(void *context) {
    scramble *x = (scramble *)context;
    x->s->unwrapped++;
    x->below.close(x->below.context);
    free(x);
}

static frisbee_result wrap_fails;
static frisbee_result wrap_twice(frisbee_pool *pool, frisbee_conn conn, frisbee_transport *io, void *user) {
    side *s = (side *)user;
    int n;
    trace(s, 'w');
    CHECK(pool == s->pool && conn.id == s->conn.id && !s->opened && !s->wraps);
    for (n = 0; n < 2; n++) {
        scramble *x = (scramble *)calloc(1, sizeof *x);
        if (!x) exit(2);
        x->below = *io;
        x->s = s;
        x->key = x->in_key = x->out_key = (uint8_t)(0x21 + 100 * n);
        io->context = x;
        io->open = scramble_open;
        io->read = scramble_read;
        io->write = scramble_write;
        io->finish = scramble_finish;
        io->close = scramble_close;
        s->wraps++;
        if (wrap_fails) return wrap_fails; // with one layer: *io as it is now is closed
    }
    return FRISBEE_OK;
}

static void section_3_wraps_stack(void) {
    uint64_t seed;
    for (seed = 1; seed <= 60; seed++) {
        world *w = world_begin(seed);
        uint8_t data[600];
        size_t longest;
        int n, i;
        uint32_t k;
        wrap_fails = FRISBEE_OK;
        longest = world_shape(w);
        w->desc.wrap = wrap_twice;
        w->desc.heartbeat_ms = seed & 1 ? 20 : FRISBEE_NEVER;
        world_open(w);
        mem_fill(&w->net, data, sizeof data);
        for (n = 0; n < 10; n++)
            for (i = 0; i < 2; i++) call(&w->sides[i], ECHO, data + mem_below(&w->net, 60), mem_below(&w->net, longest > 40 ? 500 : 40), FRISBEE_NEVER);
        for (n = 0; n < 60000 && (!tickets[18].done || !tickets[19].done); n++) turns(w, 1);
        for (k = 0; k < ticket_count; k++) CHECK(tickets[k].matches);
        if (seed % 3 == 0) { // the last reply still gets through the layers when the other closes
            ticket *t = call(&w->sides[0], ECHO, "last", 4, FRISBEE_NEVER);
            UNTIL(w, 5000, w->sides[1].noted == 11);
            CHECK_EQ(frisbee_close(w->sides[1].pool, w->sides[1].conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
            UNTIL(w, 5000, t->done);
            CHECK_EQ(t->result, FRISBEE_OK);
        }
        world_end(w);
    }
    {
        world *w = world_begin(1);
        side *s;
        wrap_fails = FRISBEE_REFUSED;
        w->desc.wrap = wrap_twice;
        s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
        call(s, ECHO, "", 0, FRISBEE_NEVER);
        turns(w, 2);
        CHECK(s->closed && s->info.reason == FRISBEE_REFUSED && !s->opened && s->wraps == 1);
        CHECK_EQ(tickets[0].result, FRISBEE_NOT_SENT);
        world_end(w);
    }
    { // the handshakes disagree
        world *w = world_begin(1);
        side *s;
        wrap_fails = FRISBEE_OK;
        w->desc.wrap = wrap_twice;
        s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_AUTO);
        mem_put(s->end->peer, "no", 2);
        turns(w, 4);
        CHECK(s->closed && s->info.reason == FRISBEE_MALFORMED && !s->opened);
        world_end(w);
    }
    { // a hijack hands over the whole stack
        world *w = world_begin(1);
        side *a, *b;
        int n;
        w->desc.wrap = wrap_twice;
        world_open(w);
        a = &w->sides[0], b = &w->sides[1];
        hijack_way = FRISBEE_HIJACK_FENCED;
        b->on_request = answer_and_hijack;
        CHECK_EQ(frisbee_send(a->pool, a->conn, SWITCH, 1, "", 0), FRISBEE_OK);
        CHECK_EQ(frisbee_hijack(a->pool, a->conn, FRISBEE_HIJACK_FENCED, 0, hijacked, a), FRISBEE_OK);
        UNTIL(w, 50, a->hijacks && b->hijacks);
        mem_append(&a->raw_out, blob_a, sizeof blob_a);
        for (n = 0; n < 50; n++) { // the new owner flushes as the pool did
            turns(w, 1);
            (void)a->taken.io.write(a->taken.io.context, NULL, 0, &(size_t){0});
        }
        CHECK(a->noted == 2 && b->raw_in.length == sizeof blob_a && !memcmp(b->raw_in.data, blob_a, sizeof blob_a));
        world_end(w);
    }
}

// >>sending, in its smaller rules

static void reserved_room_is_sent_from_where_it_is(void) {
    static const size_t rooms[] = {0, 1, 100, 5000, 70000, 200000};
    size_t i, used;
    int way;
    for (i = 0; i < 6; i++)
        for (used = 0; used < 3; used++)
            for (way = 0; way < 4; way++) { // send, call, reply, write; used: all of it, half, nothing
                world *w = world_begin(i);
                side *s;
                frisbee_packet packet;
                frisbee_span span;
                parked later;
                void *room = NULL;
                size_t length = used == 0 ? rooms[i] : used == 1 ? rooms[i] / 2 : 0, got;
                w->desc.protocol = way == 3 ? &lines_protocol : NULL;
                s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
                turns(w, 2);
                if (way == 3) mem_take(s->end->peer, NULL, SIZE_MAX);
                if (way == 2) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, LATER, 7, "", 0), turns(w, 2);
                if (way < 3) CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "before", 6), FRISBEE_OK);
                CHECK_EQ(frisbee_reserve(s->pool, s->conn, rooms[i], &room), FRISBEE_OK);
                if (rooms[i]) memset(room, 0x5A, rooms[i]);
                span.data = room, span.length = length;
                switch (way) {
                case 0: CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 7, room, length), FRISBEE_OK); break;
                case 1: CHECK_EQ(frisbee_call(s->pool, s->conn, NOTE, room, length, NULL, NULL), FRISBEE_OK); break;
                case 2:
                    memcpy(&later, s->parked.data, sizeof later);
                    CHECK_EQ(frisbee_reply(s->pool, &later.origin, room, length), FRISBEE_OK);
                    break;
                default: CHECK_EQ(frisbee_write(s->pool, s->conn, &span, 1, NULL, NULL), FRISBEE_OK); break;
                }
                if (way < 3) CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 2, "behind", 6), FRISBEE_OK);
                turns(w, 3);
                if (way == 3) {
                    (void)mem_peek(s->end->peer, &got);
                    CHECK_EQ(got, length);
                } else {
                    CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.length == 6 && !memcmp(packet.data, "before", 6));
                    CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.length == length && packet.from.operation == (way == 2 ? LATER : NOTE));
                    for (got = 0; got < length && ((const uint8_t *)packet.data)[got] == 0x5A; got++) {}
                    CHECK_EQ(got, length);
                    CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.length == 6 && !memcmp(packet.data, "behind", 6));
                }
                world_end(w);
            }
    { // a loan that is not used, and one that something else ends
        world *w = world_begin(1);
        side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        frisbee_packet packet;
        void *room;
        turns(w, 1);
        CHECK_EQ(frisbee_reserve(s->pool, s->conn, 1000, &room), FRISBEE_OK);
        turns(w, 2);
        CHECK(mem_size(&s->end->out) == 0 && frisbee_queued(s->pool, s->conn) == 0);
        CHECK_EQ(frisbee_reserve(s->pool, s->conn, 1000, &room), FRISBEE_OK);
        CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "other", 5), FRISBEE_OK);
        turns(w, 2);
        CHECK(raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.length == 5 && !memcmp(packet.data, "other", 5));
        CHECK(!raw_next(s, FRISBEE_WIRE_V1, &packet));
        world_end(w);
    }
}

static void flush_writes_without_callbacks(void) {
    world *w = world_begin(1);
    side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    frisbee_span span;
    loan *l;
    turns(w, 1);
    l = lend("lent", 4);
    span.data = l->data, span.length = 4;
    CHECK_EQ(frisbee_send_spans(s->pool, s->conn, NOTE, 1, &span, 1, give_back, l), FRISBEE_OK);
    CHECK_EQ(mem_size(&s->end->out), 0);
    CHECK_EQ(frisbee_next_timeout(s->pool), 0);
    CHECK_EQ(frisbee_flush(s->pool), FRISBEE_OK);
    CHECK_EQ(mem_size(&s->end->out), 14);
    CHECK_EQ(given_back, 0); // releases follow in the next poll
    turns(w, 1);
    CHECK_EQ(given_back, 1);
    mem_reset(s->end, FRISBEE_SYSTEM);
    CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "", 0), FRISBEE_OK);
    CHECK_EQ(frisbee_flush(s->pool), FRISBEE_OK);
    CHECK_EQ(s->closed, 0);
    turns(w, 1);
    CHECK_EQ(s->closed, 1);
    world_end(w);
}

static void pause_in_handler(side *s, const frisbee_packet *packet) {
    if (packet->from.operation == SWITCH) CHECK_EQ(frisbee_pause(s->pool, s->conn, true), FRISBEE_OK);
}

static void pause_stops_behind_the_packet_and_loses_nothing(void) {
    int woken, n;
    for (woken = 0; woken < 2; woken++) {
        world *w = world_begin(1);
        side *s = side_make(w);
        mem_end *peer;
        mem_pair(&w->net, &s->end, &peer);
        s->end->wake_only = woken;
        w->desc.wire = FRISBEE_WIRE_V1;
        CHECK_EQ(side_attach(s, 0, FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
        s->on_request = pause_in_handler;
        for (n = 0; n < 30; n++) mem_put_packet(peer, FRISBEE_WIRE_V1, n % 10 == 9 ? SWITCH : NOTE, (unsigned)n, "0123456789", 10);
        mem_put(peer, "\x00\x0F\x00\x01\x00\x0B", 6); // a beginning behind them
        for (n = 1; n <= 3; n++) {
            turns(w, 5);
            CHECK_EQ(s->noted, 10 * n);
            CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "", 0), FRISBEE_OK); // writing goes on
            turns(w, 2);
            CHECK_EQ(mem_size(&s->end->out), 10 * n);
            CHECK_EQ(frisbee_pause(s->pool, s->conn, false), FRISBEE_OK);
            CHECK_EQ(s->noted, 10 * n); // not from inside
        }
        turns(w, 2);
        mem_put(peer, "\x00\x00\x00\x00", 4);
        turns(w, 2);
        CHECK_EQ(s->noted, 31);
        world_end(w);
    }
}

static void statistics_are_exact(void) {
    world *w = world_begin(1);
    side *s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
    frisbee_stats stats, pool;
    side *dead;
    turns(w, 2);
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, NOTE, 1, "12345", 5);
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, ECHO, 1, "123", 3);
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, 5, 1, "reserved", 8); // nobody takes it
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, 0, 0, "", 0);
    turns(w, 2);
    s->end->out.capacity = 0;
    CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "queued", 6), FRISBEE_OK);
    call(s, MUTE, "", 0, FRISBEE_NEVER);
    mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, LATER, 1, "", 0);
    turns(w, 2);
    CHECK_EQ(frisbee_conn_stats(s->pool, s->conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.bytes_in, 15 + 13 + 18 + 10 + 10);
    CHECK_EQ(stats.bytes_out, 10 + 13 + 10); // PING at open, the reply, PONG
    CHECK_EQ(stats.packets_in, 3);
    CHECK_EQ(stats.packets_out, 3); // the reply and what is queued
    CHECK_EQ(stats.dropped, 1);
    CHECK_EQ(stats.queued, 16 + 10);
    CHECK(stats.calls == 1 && stats.deferred == 1 && stats.sessions == 1 && stats.late_replies == 0 && stats.lost_ids == 0);
    CHECK_EQ(frisbee_pool_stats(s->pool, &pool), FRISBEE_OK);
    CHECK(pool.bytes_in == stats.bytes_in && pool.bytes_out == stats.bytes_out && pool.packets_in == 3 && pool.conns == 1 && pool.queued == 26);
    CHECK_EQ(pool.memory, w->heap.bytes);
    dead = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    mem_put_packet(dead->end->peer, FRISBEE_WIRE_V1, ECHO, 1, "123", 3);
    turns(w, 2);
    CHECK_EQ(frisbee_close(dead->pool, dead->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(w, 2);
    CHECK_EQ(frisbee_pool_stats(s->pool, &pool), FRISBEE_OK); // dead connections included
    CHECK(pool.bytes_in == stats.bytes_in + 13 && pool.bytes_out == stats.bytes_out + 13);
    CHECK(pool.packets_in == 4 && pool.sessions == 2 && pool.conns == 1);
    world_end(w);
}

static void pool_wide(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)pool, (void)packet;
    ++*(int *)user;
}

static void routes_and_the_table_of_the_pool(void) {
    world *w = world_begin(1);
    side *routed = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1), *plain;
    frisbee_stats stats;
    mem_end *peer;
    static unsigned operations[1000];
    static uint8_t seen[65536];
    int count = 0, k;
    w->desc.routes = NULL;
    w->desc.route_count = 0;
    w->desc.events = NULL;
    plain = side_make(w);
    mem_pair(&w->net, &plain->end, &peer);
    CHECK_EQ(side_attach(plain, 0, FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
    plain->attached = false; // without events nobody counts its closing
    CHECK_EQ(frisbee_on(plain->pool, 9, pool_wide, &count), FRISBEE_INVALID);
    CHECK_EQ(frisbee_on(plain->pool, 65280, pool_wide, &count), FRISBEE_INVALID);
    for (k = 0; k < 1000; k++) { // any operations, so that they meet in the table
        do operations[k] = PLAIN + mem_below(&w->net, 65000);
        while (seen[operations[k]]++);
        CHECK_EQ(frisbee_on(plain->pool, (uint16_t)operations[k], pool_wide, &count), FRISBEE_OK);
    }
    for (k = 0; k < 1000; k += 2) CHECK_EQ(frisbee_on(plain->pool, (uint16_t)operations[k], NULL, NULL), FRISBEE_OK);
    for (k = 0; k < 1000; k++) {
        mem_put_packet(plain->end->peer, FRISBEE_WIRE_V1, operations[k], 1, "", 0);
        mem_put_packet(routed->end->peer, FRISBEE_WIRE_V1, operations[k], 1, "", 0);
    }
    turns(w, 5);
    CHECK_EQ(count, 500);
    CHECK_EQ(routed->noted, 1000); // by on_packet: the pool's table is not for who has routes
    CHECK_EQ(frisbee_conn_stats(plain->pool, plain->conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.dropped, 500);
    CHECK_EQ(frisbee_close(plain->pool, plain->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(w, 2);
    CHECK_EQ(plain->end->closes, 1);
    world_end(w);
}

static void arguments_that_make_no_sense_are_invalid(void) {
    world *w = world_begin(1);
    side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    frisbee_pool *pool = s->pool, *made = (frisbee_pool *)(void *)w;
    frisbee_pool_desc pool_desc = w->pool_desc;
    frisbee_conn_desc desc = w->desc;
    frisbee_call_desc call_how;
    frisbee_transport io = mem_transport(s->end);
    frisbee_conn conn;
    void *room;
    turns(w, 1);
    memset(&call_how, 0, sizeof call_how);
    call_how.timeout_ms = -2;
    CHECK_EQ(frisbee_send(pool, s->conn, NOTE, 1, NULL, 5), FRISBEE_INVALID);
    CHECK_EQ(frisbee_send_spans(pool, s->conn, NOTE, 1, NULL, 5, NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_call(pool, s->conn, NOTE, NULL, 5, NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_call(pool, s->conn, NOTE, "", 0, &call_how, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_reserve(pool, s->conn, 5, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_write(pool, s->conn, NULL, 0, NULL, NULL), FRISBEE_INVALID); // it speaks packets
    CHECK_EQ(frisbee_wake(pool, s->conn, 8), FRISBEE_INVALID);
    CHECK_EQ(frisbee_close(pool, s->conn, (frisbee_close_how)7), FRISBEE_INVALID);
    CHECK_EQ(frisbee_hijack(pool, s->conn, (frisbee_hijack_how)7, 0, hijacked, s), FRISBEE_INVALID);
    CHECK_EQ(frisbee_attach(pool, &io, &desc, NULL, 0, &conn), FRISBEE_INVALID); // no role
    desc.role = FRISBEE_ACCEPTOR;
    CHECK_EQ(frisbee_attach(pool, NULL, &desc, NULL, 0, &conn), FRISBEE_INVALID);
    CHECK_EQ(frisbee_attach(pool, &io, &desc, NULL, 3, &conn), FRISBEE_INVALID);
    io.close = NULL;
    CHECK_EQ(frisbee_attach(pool, &io, &desc, NULL, 0, &conn), FRISBEE_INVALID);
    io.close = mem_close;
    desc.call_ms = -5;
    CHECK_EQ(frisbee_attach(pool, &io, &desc, NULL, 0, &conn), FRISBEE_INVALID);
    pool_desc.allocator.resize = NULL; // all three or none
    CHECK_EQ(frisbee_pool_create(&pool_desc, &made), FRISBEE_INVALID);
    pool_desc = w->pool_desc;
    pool_desc.now_us = NULL;
    CHECK_EQ(frisbee_pool_create(&pool_desc, &made), FRISBEE_INVALID); // without an operating system there is no clock but yours
    CHECK_EQ(frisbee_reserve(pool, s->conn, 0, &room), FRISBEE_OK);
    turns(w, 2);
    CHECK(!s->closed && mem_size(&s->end->out) == 0 && s->end->closes == 0);
    world_end(w);
}

// >>feed and prefill

static void feed_and_prefill_are_handled_like_bytes_that_were_read(void) {
    uint64_t seed;
    for (seed = 1; seed <= 60; seed++) {
        world *w = world_begin(seed);
        side *s = side_make(w), *model = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_AUTO);
        mem_end *peer;
        const uint8_t *stream;
        size_t length, offset = 0, prefill;
        int n, again = 0;
        mem_pair(&w->net, &s->end, &peer);
        put_stream(peer, seed & 1 ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0, 0);
        put_stream(model->end->peer, seed & 1 ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0, 0);
        s->logs = model->logs = true;
        s->on_open = model->on_open = open_with_call;
        s->end->no_read = true;
        w->desc.wire = FRISBEE_WIRE_AUTO;
        stream = mem_peek(s->end, &length); // what its transport would read
        prefill = mem_below(&w->net, (uint32_t)length);
        CHECK_EQ(side_attach(s, 0, FRISBEE_ACCEPTOR, stream, prefill), FRISBEE_OK);
        for (n = 0, offset = prefill; n < 5000 && offset < length; n++) {
            size_t piece = 1 + mem_below(&w->net, seed % 3 ? 30 : 4000), taken = 77;
            uint64_t before = s->noted;
            frisbee_result result;
            if (piece > length - offset) piece = length - offset;
            result = frisbee_feed(s->pool, s->conn, stream + offset, piece, &taken);
            CHECK(result == FRISBEE_OK ? taken == piece : result == FRISBEE_AGAIN && taken < piece);
            CHECK_EQ(s->noted, before); // handled in the next poll
            again += result == FRISBEE_AGAIN;
            if (result == FRISBEE_OK || result == FRISBEE_AGAIN) offset += taken;
            if (mem_below(&w->net, 2)) turns(w, 1);
        }
        turns(w, 3);
        CHECK(mem_same(&s->log, &model->log) && s->noted == 6 && again <= n);
        CHECK_EQ(s->end->reads, 0);
        world_end(w);
    }
    { // as much as it takes without a poll is bounded
        world *w = world_begin(1);
        side *s = side_make(w);
        static uint8_t flood[100000];
        mem_end *peer;
        frisbee_result result = FRISBEE_OK;
        size_t taken, total = 0;
        int n;
        mem_pair(&w->net, &s->end, &peer);
        s->end->no_read = true;
        w->desc.wire = FRISBEE_WIRE_V0;
        w->desc.max_packet = 10000;
        CHECK_EQ(side_attach(s, 0, FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
        turns(w, 1);
        for (n = 0; n < 1000 && !result; n++) {
            result = frisbee_feed(s->pool, s->conn, flood, sizeof flood, &taken);
            total += result == FRISBEE_OK || result == FRISBEE_AGAIN ? taken : 0;
        }
        CHECK_EQ(result, FRISBEE_AGAIN);
        CHECK(total < 20000000);
        turns(w, 200);
        CHECK_EQ(frisbee_feed(s->pool, s->conn, flood, 8, &taken), FRISBEE_OK); // room comes as poll handles them
        CHECK(taken == 8 && !s->closed);
        world_end(w);
    }
}

// >>section 3: closing, half-closing, the order of callbacks

static void half_close(side *s) {
    s->end->peer->out.ended = true;
    mem_wake(s->end);
}

static void section_3_half_close_in_each_state(void) {
    enum { WIRE_UNTOLD, IDLE, IN_HEADER, IN_PAYLOAD, REPLY_QUEUED, DEFERRED, CALL_IN_FLIGHT, PAUSED, FLUSHING, FINISHED, STATES };
    int state, listens, woken, n;
    for (state = 0; state < STATES; state++)
        for (listens = 0; listens < 2; listens++)
            for (woken = 0; woken < 2; woken++) {
                world *w = world_begin((uint64_t)state);
                mem_bytes got;
                mem_end *peer;
                parked later;
                ticket *t = NULL;
                side *s = side_make(w);
                memset(&got, 0, sizeof got);
                w->desc.wire = state == WIRE_UNTOLD ? FRISBEE_WIRE_AUTO : FRISBEE_WIRE_V1;
                w->desc.events = listens ? &events : &events_without_end;
                mem_pair(&w->net, &s->end, &peer);
                s->end->wake_only = woken;
                CHECK_EQ(side_attach(s, 0, FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
                turns(w, 2);
                switch (state) {
                case WIRE_UNTOLD: mem_put(peer, "\x00", 1); break;
                case IN_HEADER: mem_put(peer, "\x00\x0F\x00", 3); break;
                case IN_PAYLOAD: mem_put(peer, "\x00\x0F\x00\x01\x00\x0B\x00\x00\x00\x05" "123", 13); break;
                case REPLY_QUEUED:
                    s->end->out.capacity = 4;
                    mem_put_packet(peer, FRISBEE_WIRE_V1, ECHO, 1, "a reply of 20 bytes.", 20);
                    break;
                case DEFERRED: mem_put_packet(peer, FRISBEE_WIRE_V1, LATER, 1, "later", 5); break;
                case CALL_IN_FLIGHT: t = call(s, MUTE, "", 0, FRISBEE_NEVER); break;
                case PAUSED: CHECK_EQ(frisbee_pause(s->pool, s->conn, true), FRISBEE_OK); break;
                case FLUSHING:
                    s->end->out.capacity = 4;
                    CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "flushed", 7), FRISBEE_OK);
                    CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
                    break;
                case FINISHED: CHECK_EQ(frisbee_finish(s->pool, s->conn), FRISBEE_OK); break;
                default: break;
                }
                turns(w, 2);
                if (state == PAUSED) mem_put_packet(peer, FRISBEE_WIRE_V1, NOTE, 1, "read after the pause", 20);
                half_close(s);
                turns(w, 20);
                if (state == PAUSED) {
                    CHECK(!s->noted && !s->ended && !s->closed);
                    CHECK_EQ(frisbee_pause(s->pool, s->conn, false), FRISBEE_OK);
                    turns(w, 3);
                    CHECK_EQ(s->noted, 1);
                }
                if (state == DEFERRED) { // a reply that is owed
                    CHECK(!s->closed && s->parked.length == sizeof later);
                    memcpy(&later, s->parked.data, sizeof later);
                    CHECK_EQ(frisbee_reply(s->pool, &later.origin, later.data, later.length), FRISBEE_OK);
                    turns(w, 3);
                }
                for (n = 0; n < 40; n++) { // a peer that reads slowly gets all of it
                    mem_take(peer, &got, 1);
                    turns(w, 1);
                }
                if (state == REPLY_QUEUED) CHECK(got.length == 30 && !memcmp(got.data + 10, "a reply of 20 bytes.", 20));
                if (state == DEFERRED) CHECK(got.length == 15 && !memcmp(got.data + 10, "later", 5));
                if (state == FLUSHING) CHECK(got.length == 17 && !memcmp(got.data + 10, "flushed", 7));
                if (t) CHECK(t->done && t->result == FRISBEE_UNKNOWN);
                if (listens && state != WIRE_UNTOLD && state < FLUSHING && state != IN_HEADER && state != IN_PAYLOAD) {
                    CHECK(s->ended == 1 && !s->closed);
                    turns(w, 500);
                    CHECK(!woken || frisbee_next_timeout(s->pool) != 0); // an ended input is no work
                    CHECK(!s->closed);
                    s->end->out.capacity = SIZE_MAX;
                    CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "still", 5), FRISBEE_OK);
                    mem_wake(s->end);
                    turns(w, 2);
                    mem_take(peer, &got, SIZE_MAX);
                    CHECK(got.length >= 15 && !memcmp(got.data + got.length - 5, "still", 5));
                    CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
                    turns(w, 3);
                    CHECK(s->closed && s->info.reason == FRISBEE_OK);
                } else {
                    if (listens && (state == IN_HEADER || state == IN_PAYLOAD) && !s->closed) {
                        CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
                        turns(w, 3);
                    }
                    CHECK_EQ(s->closed, 1);
                    CHECK(state != WIRE_UNTOLD || (!s->opened && !s->ended));
                    if (state == FLUSHING) CHECK_EQ(s->info.reason, FRISBEE_OK);
                    else if (!listens && (state == IDLE || state > IN_PAYLOAD)) CHECK_EQ(s->info.reason, FRISBEE_CLOSED);
                    CHECK(s->info.reason == FRISBEE_OK || s->info.reason == FRISBEE_CLOSED || s->info.reason == FRISBEE_MALFORMED);
                }
                CHECK(s->end->peer->broken == FRISBEE_OK); // an orderly end, not a reset
                mem_free(&got);
                world_end(w);
            }
}

static void section_3_finish_sends_nothing_more_and_still_reads(void) {
    int blocked;
    for (blocked = 0; blocked < 2; blocked++) {
        world *w = world_begin(1);
        frisbee_packet packet;
        ticket *t;
        side *s;
        if (blocked) w->desc.events = &events_without_end;
        s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        turns(w, 1);
        t = call(s, MUTE, "", 0, FRISBEE_NEVER);
        CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "before", 6), FRISBEE_OK);
        if (blocked) s->end->out.capacity = 3, s->end->slow_finish = 5;
        CHECK_EQ(frisbee_finish(s->pool, s->conn), FRISBEE_OK);
        CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "after", 5), FRISBEE_CLOSED);
        CHECK_EQ(call_try(s, NOTE, "", 0, 0, false, NULL), FRISBEE_CLOSED);
        turns(w, 5);
        CHECK_EQ(s->end->out.ended, !blocked);
        s->end->out.capacity = SIZE_MAX;
        turns(w, 20);
        CHECK(s->end->out.ended && raw_next(s, FRISBEE_WIRE_V1, &packet) && raw_next(s, FRISBEE_WIRE_V1, &packet) && packet.length == 6);
        mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, MUTE, 57344, "", 0); // the reply still comes
        mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, NOTE, 9, "and packets", 11);
        turns(w, 200);
        CHECK(t->result == FRISBEE_OK && s->noted == 1 && !s->closed);
        half_close(s);
        turns(w, 5);
        CHECK(s->closed == 1 && s->ended == !blocked); // with both ends nothing is left, whoever listens
        CHECK_EQ(s->info.reason, FRISBEE_CLOSED);
        world_end(w);
    }
}

static void section_3_close_flushes_and_lingers(void) {
    static uint8_t data[3000];
    int how, no_finish;
    for (no_finish = 0; no_finish < 2; no_finish++)
        for (how = 0; how < 4; how++) { // the peer ends in time; never; reads never; NOW overtakes
            world *w = world_begin((uint64_t)how);
            side *s = side_make(w);
            mem_end *peer;
            ticket *t;
            int n;
            w->desc.wire = FRISBEE_WIRE_V1;
            w->desc.write_ms = 5000;
            mem_pair(&w->net, &s->end, &peer);
            s->end->no_finish = no_finish;
            s->end->slow_finish = 2;
            CHECK_EQ(side_attach(s, 0, FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
            turns(w, 1);
            s->end->out.capacity = 1000;
            t = call(s, MUTE, "", 0, FRISBEE_NEVER);
            for (n = 0; n < 3; n++) CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, data, sizeof data), FRISBEE_OK);
            CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
            CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
            CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "", 0), FRISBEE_CLOSED);
            CHECK_EQ(call_try(s, NOTE, "", 0, 0, false, NULL), FRISBEE_CLOSED);
            if (!no_finish) mem_put_packet(peer, FRISBEE_WIRE_V1, NOTE, 1, "nobody is called any more", 25);
            turns(w, 3);
            if (how == 3) {
                CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
                turns(w, 2);
                CHECK(s->closed && s->end->closes == 1);
            } else if (how == 2) {
                turns(w, 1500);
                CHECK(!s->closed);
                turns(w, 6000);
                CHECK(s->closed); // at the latest when nothing has moved for write_ms
            } else {
                size_t got = 0;
                for (n = 0; n < 100 && got < 10 + 3 * 3010; n++) {
                    size_t length;
                    (void)mem_peek(peer, &length);
                    got += length;
                    mem_take(peer, NULL, length);
                    if (!no_finish) mem_put(peer, "more and more", 13); // who closes with input unread resets
                    turns(w, 1);
                }
                CHECK_EQ(got, 10 + 3 * 3010);
                CHECK_EQ(peer->broken, FRISBEE_OK);
                if (!no_finish) {
                    turns(w, 10);
                    CHECK(s->end->finished && !s->closed);
                }
                if (how == 0) half_close(s);
                else turns(w, no_finish ? 0 : 1900);
                if (how == 1 && !no_finish) CHECK(!s->closed);
                turns(w, how ? 2100 : 3);
                CHECK_EQ(s->closed, 1);
            }
            CHECK(s->noted == 0 && t->done && t->result != FRISBEE_OK);
            if (how != 2) CHECK_EQ(s->info.reason, FRISBEE_OK);
            world_end(w);
        }
}

static void section_3_a_stale_handle_is_closed_everywhere(void) {
    world *w = world_begin(1);
    side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1), *reused;
    frisbee_conn stale[2];
    frisbee_pool *pool = s->pool;
    frisbee_stats stats;
    frisbee_call_id no_call;
    char text[64];
    size_t taken;
    void *room;
    int i;
    turns(w, 2);
    stale[0] = s->conn;
    stale[1].id = 0;
    no_call.id = 0;
    CHECK_EQ(frisbee_close(pool, s->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(w, 2);
    reused = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    turns(w, 2);
    CHECK(reused->conn.id != stale[0].id);
    for (i = 0; i < 2; i++) {
        CHECK_EQ(frisbee_close(pool, stale[i], FRISBEE_CLOSE_NOW), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_finish(pool, stale[i]), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_pause(pool, stale[i], true), FRISBEE_CLOSED);
        CHECK(frisbee_user(pool, stale[i]) == NULL);
        CHECK_EQ(frisbee_set_user(pool, stale[i], NULL), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_conn_address(pool, stale[i], true, text, sizeof text), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_feed(pool, stale[i], "x", 1, &taken), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_wake(pool, stale[i], FRISBEE_READ), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_reserve(pool, stale[i], 1, &room), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_send(pool, stale[i], NOTE, 1, "", 0), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_send_spans(pool, stale[i], NOTE, 1, NULL, 0, give_back, NULL), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_write(pool, stale[i], NULL, 0, give_back, NULL), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_queued(pool, stale[i]), 0);
        s->conn = stale[i];
        CHECK_EQ(call_try(s, ECHO, "", 0, 0, true, NULL), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_hijack(pool, stale[i], FRISBEE_HIJACK_NOW, 0, hijacked, s), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_upgrade(pool, stale[i], FRISBEE_HIJACK_NOW, &lines_protocol), FRISBEE_CLOSED);
        CHECK_EQ(frisbee_conn_stats(pool, stale[i], &stats), FRISBEE_CLOSED);
    }
    CHECK_EQ(frisbee_cancel(pool, no_call), FRISBEE_CLOSED);
    CHECK(frisbee_user(pool, reused->conn) == reused && !reused->closed);
    CHECK_EQ(frisbee_conn_address(pool, reused->conn, true, text, sizeof text), FRISBEE_UNSUPPORTED);
    turns(w, 2);
    world_end(w);
}

static frisbee_result wrap_plain(frisbee_pool *pool, frisbee_conn conn, frisbee_transport *io, void *user) {
    (void)pool, (void)conn, (void)io;
    trace((side *)user, 'w');
    return FRISBEE_OK;
}

static void section_3_order_of_callbacks(void) {
    int how;
    for (how = 0; how < 4; how++) { // reset, end of the peer, close, destroy
        static const char *const expected[] = {"woprhc", "woperhc", "woprhc", "woprhc"};
        world *w = world_begin((uint64_t)how);
        side *s;
        w->desc.wrap = wrap_plain;
        s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_AUTO);
        mem_put(s->end->peer, "\x00\x0F", 2);
        turns(w, 5);
        CHECK(!strcmp(s->trace, "w")); // not announced before its first bytes have told the wire
        call(s, MUTE, "", 0, FRISBEE_NEVER);
        mem_put(s->end->peer, "\x00\x01\x00\x0B\x00\x00\x00\x00", 8);
        turns(w, 2);
        CHECK(!strcmp(s->trace, "wop"));
        call(s, MUTE, "", 0, FRISBEE_NEVER);
        if (how != 1) CHECK_EQ(frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_FENCED, 0, hijacked, s), FRISBEE_OK);
        if (how == 0) mem_reset(s->end, FRISBEE_SYSTEM);
        else if (how == 1) half_close(s), turns(w, 2), frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_STOCK, 50, hijacked, s), turns(w, 60);
        else if (how == 2) CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
        else frisbee_pool_destroy(s->pool), w->pool[0] = NULL;
        turns(w, 3);
        if (how == 1 && !s->closed) CHECK_EQ(frisbee_close(s->pool, s->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK), turns(w, 2);
        if (how == 1) CHECK(!strcmp(s->trace, "woperhc") || !strcmp(s->trace, "woperc"));
        else CHECK(!strcmp(s->trace, expected[how]));
        if (how == 3) CHECK_EQ(s->info.reason, FRISBEE_DESTROYED);
        world_end(w);
    }
    {
        world *w = world_begin(1);
        side *s;
        w->desc.protocol = &lines_protocol;
        w->desc.wrap = wrap_plain;
        s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
        mem_put(s->end->peer, "line\n", 5);
        turns(w, 3);
        CHECK_EQ(frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_NOW, 0, hijacked, s), FRISBEE_OK);
        turns(w, 3);
        CHECK(!strcmp(s->trace, "wosihtc"));
        world_end(w);
    }
}

static void section_3_sends_before_the_open_are_queued(void) {
    world *w = world_begin(1);
    side *a, *b;
    ticket *t;
    world_pair(w);
    a = &w->sides[0], b = &w->sides[1];
    a->end->slow_open = 10;
    CHECK_EQ(side_attach(a, 0, FRISBEE_CONNECTOR, NULL, 0), FRISBEE_OK);
    CHECK_EQ(side_attach(b, 1, FRISBEE_ACCEPTOR, NULL, 0), FRISBEE_OK);
    CHECK_EQ(frisbee_send(a->pool, a->conn, NOTE, 1, "early", 5), FRISBEE_OK);
    t = call(a, ECHO, "early too", 9, FRISBEE_NEVER);
    CHECK_EQ(frisbee_send(b->pool, b->conn, NOTE, 1, "wire unknown", 12), FRISBEE_OK); // leaves when the wire is told
    turns(w, 5);
    CHECK(!a->opened && !b->opened && !mem_size(&a->end->out) && !mem_size(&b->end->out));
    turns(w, 20);
    CHECK(a->opened && b->opened && a->noted == 1 && b->noted == 2 && t->matches);
    world_end(w);
}

// Section 9: who waits for the peer's first bytes, and what the others say first.
static void section_11_the_wire_is_told_forced_or_awaited(void) {
    static const frisbee_wire peers[] = {FRISBEE_WIRE_V0, FRISBEE_WIRE_V1};
    int k;
    size_t piece;
    for (k = 0; k < 2; k++)
        for (piece = 0; piece < 12; piece++) {
            world *w = world_begin(piece);
            side *waits = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_WAIT), *tells = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_AUTO);
            side *both[2];
            frisbee_packet packet;
            int i;
            both[0] = waits, both[1] = tells;
            for (i = 0; i < 2; i++) {
                both[i]->end->piece = piece;
                CHECK_EQ(frisbee_send(both[i]->pool, both[i]->conn, NOTE, 15, "queued", 6), FRISBEE_OK);
            }
            turns(w, 400);
            for (i = 0; i < 2; i++) {
                CHECK(mem_size(&both[i]->end->out) == 0);
                mem_put_packet(both[i]->end->peer, peers[k], NOTE, 3, "first", 5);
            }
            turns(w, 40);
            for (i = 0; i < 2; i++) {
                CHECK(both[i]->opened && both[i]->noted == 1);
                CHECK(raw_next(both[i], peers[k], &packet) && packet.from.id == 15 && packet.length == 6);
            }
            world_end(w);
        }
    { // nobody speaks for a second: v1, and a PING so that two silent ends do not wait for each other
        world *w = world_begin(1);
        side *s = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_WAIT), *v0, *plain;
        frisbee_packet packet;
        turns(w, 990);
        CHECK_EQ(mem_size(&s->end->out), 0);
        turns(w, 20);
        CHECK_EQ(s->opened, 1);
        CHECK(mem_take_packet(s->end->peer, FRISBEE_WIRE_V1, &packet) && packet.from.operation == 0 && packet.length == 0);
        v0 = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_V0);
        plain = side_raw(w, FRISBEE_CONNECTOR, FRISBEE_WIRE_AUTO);
        turns(w, 2);
        CHECK(mem_size(&v0->end->out) == 8 && mem_take_packet(v0->end->peer, FRISBEE_WIRE_V0, &packet) && packet.from.operation == 0);
        CHECK(mem_size(&plain->end->out) == 10 && mem_take_packet(plain->end->peer, FRISBEE_WIRE_V1, &packet) && packet.from.operation == 0);
        world_end(w);
    }
}

// What is queued before the wire is told is queued as it will be sent: every byte, every place of a call, when it turns out to be v0.
static void section_11_the_queue_follows_the_wire(void) {
    static const frisbee_wire peers[] = {FRISBEE_WIRE_V0, FRISBEE_WIRE_V1};
    size_t capacity, k;
    int role, i;
    for (k = 0; k < 2; k++)
        for (role = 0; role < 2; role++)
            for (capacity = 0; capacity <= 150; capacity++) {
                world *w = world_begin(capacity);
                side *s = side_raw(w, role ? FRISBEE_CONNECTOR : FRISBEE_ACCEPTOR, role ? FRISBEE_WIRE_WAIT : FRISBEE_WIRE_AUTO);
                size_t at = 0; // a connector's PING goes behind what waited
                ticket *t[6];
                for (i = 0; i < 6; i++) // copied and borrowed; by turns of another length
                    CHECK_EQ(call_try(s, ECHO, "0123456789", (size_t)(3 * i % 7), FRISBEE_NEVER, i % 3 == 1, &t[i]), FRISBEE_OK);
                CHECK_EQ(frisbee_cancel(s->pool, t[2]->id), FRISBEE_OK);
                turns(w, 3);
                CHECK(t[2]->result == FRISBEE_CANCELLED && !t[2]->sent);
                mem_put_packet(s->end->peer, peers[k], NOTE, 1, "", 0);
                s->end->out.capacity = capacity;
                turns(w, 3);
                mem_reset(s->end, FRISBEE_SYSTEM);
                turns(w, 3);
                for (i = 0; i < 6; i++) {
                    if (i != 2) CHECK_EQ(t[i]->sent, capacity > at);
                    if (i != 2) CHECK_EQ(t[i]->result, capacity > at ? FRISBEE_UNKNOWN : FRISBEE_NOT_SENT);
                    at += (k ? 10u : 8u) + (size_t)(3 * i % 7);
                }
                world_end(w);
            }
}

// >>the pool: budgets, waiting, shutdown, tasks, destroy

static void slow_handler(side *s, const frisbee_packet *packet) {
    (void)packet;
    s->w->net.now_us += 1 * MS;
}

static void section_6_budgets(void) {
    int timed;
    for (timed = 0; timed < 2; timed++) {
        world *w = world_begin(1);
        side *flood, *other;
        frisbee_result result = FRISBEE_OK;
        int n, calls = 0;
        if (timed) w->pool_desc.budget_us = 3000;
        else w->pool_desc.budget_packets = 10;
        flood = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        other = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        turns(w, 2);
        if (timed) flood->on_request = slow_handler;
        for (n = 0; n < 200; n++) mem_put_packet(flood->end->peer, FRISBEE_WIRE_V1, NOTE, 1, "", 0);
        for (n = 0; n < 3; n++) mem_put_packet(other->end->peer, FRISBEE_WIRE_V1, NOTE, 1, "", 0);
        for (n = 0; n < 200 && flood->noted < 200; n++) {
            uint64_t before = flood->noted + other->noted;
            result = frisbee_poll(flood->pool, 0);
            CHECK(frisbeei_check(flood->pool));
            CHECK(flood->noted + other->noted - before <= (timed ? 7u : 10u));
            if (flood->noted < 200) {
                CHECK_EQ(result, FRISBEE_AGAIN);
                CHECK_EQ(frisbee_next_timeout(flood->pool), 0);
            }
            calls++;
            if (calls == 4) CHECK_EQ(other->noted, 3); // a flood starves nobody
        }
        CHECK(flood->noted == 200 && calls >= 19);
        turns(w, 1);
        CHECK_EQ(w->polled[0], FRISBEE_OK);
        world_end(w);
    }
}

static void stop_it(side *s, const frisbee_packet *packet) {
    frisbee_outcome out;
    if (packet->from.operation != SWITCH) return;
    CHECK_EQ(frisbee_poll(s->pool, 0), FRISBEE_BUSY);
    CHECK_EQ(frisbee_run(s->pool), FRISBEE_BUSY);
    CHECK_EQ(frisbee_call_wait(s->pool, s->conn, ECHO, "", 0, 0, &out), FRISBEE_BUSY);
    frisbee_stop(s->pool);
}

static void section_4_functions_that_wait(void) {
    world *w = world_begin(1);
    side *a, *b;
    frisbee_outcome out;
    ticket *t;
    w->one_pool = true;
    world_open(w);
    a = &w->sides[0], b = &w->sides[1];
    w->net.tick_us = 50; // from here each look at the clock takes its time
    b->on_request = stop_it;
    CHECK_EQ(frisbee_call_wait(a->pool, a->conn, ECHO, "hello", 5, 1000, &out), FRISBEE_OK);
    CHECK(out.result == FRISBEE_OK && out.sent && out.length == 5 && !memcmp(out.data, "hello", 5));
    CHECK_EQ(frisbee_call_wait(a->pool, a->conn, MUTE, "hello", 5, 20, &out), FRISBEE_TIMED_OUT);
    CHECK(out.result == FRISBEE_TIMED_OUT && out.sent);
    CHECK_EQ(frisbee_call_wait(a->pool, a->conn, SWITCH, "", 0, 1000, &out), FRISBEE_CANCELLED); // the handler stops it
    CHECK_EQ(frisbee_call_wait(a->pool, a->conn, ECHO, "again", 5, 1000, &out), FRISBEE_OK); // and only that one
    CHECK_EQ(frisbee_call_wait(a->pool, a->conn, 5, "", 0, 1000, &out), FRISBEE_INVALID);
    t = call(a, SWITCH, "", 0, FRISBEE_NEVER);
    CHECK_EQ(frisbee_run(a->pool), FRISBEE_OK);
    CHECK(!t->done);
    frisbee_stop(a->pool);
    CHECK_EQ(frisbee_run(a->pool), FRISBEE_OK); // "or the next one at once"
    CHECK_EQ(frisbee_shutdown(a->pool, 50), FRISBEE_OK);
    CHECK_EQ(frisbee_run(a->pool), FRISBEE_OK);
    CHECK(a->closed && b->closed && t->done);
    CHECK_EQ(frisbee_poll(a->pool, 0), FRISBEE_CLOSED);
    world_end(w);
}

static void without_sockets_the_rest_is_unsupported(void) {
    world *w = world_begin(1);
    frisbee_pool *pool = world_pool(w, 0);
    frisbee_conn conn;
    frisbee_listener listener;
    frisbee_conn_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.role = FRISBEE_CONNECTOR;
    CHECK_EQ(frisbee_listen(pool, "127.0.0.1:0", NULL, &listener), FRISBEE_UNSUPPORTED);
    CHECK_EQ(frisbee_connect(pool, "127.0.0.1:1", NULL, &conn), FRISBEE_UNSUPPORTED);
    CHECK_EQ(frisbee_adopt(pool, 0, &desc, NULL, 0, &conn), FRISBEE_UNSUPPORTED);
    CHECK(frisbee_wait_fd(pool) == FRISBEE_NO_SOCKET);
    CHECK_EQ(frisbee_next_timeout(pool), FRISBEE_NEVER);
    world_end(w);
}

static void shutdown_waits_for_what_is_owed(void) {
    int how;
    for (how = 0; how < 5; how++) { // nothing to wait for, a call, a deferred reply, a queue, and one that never ends
        world *w = world_begin((uint64_t)how);
        side *s = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1), *late = side_make(w);
        frisbee_transport io;
        frisbee_conn_desc desc = w->desc;
        frisbee_conn conn;
        mem_end *peer;
        parked later;
        ticket *t = NULL;
        turns(w, 2);
        if (how == 1 || how == 4) t = call(s, MUTE, "", 0, FRISBEE_NEVER);
        if (how == 2) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, LATER, 1, "x", 1);
        if (how == 3) s->end->out.capacity = 4, CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "queued", 6), FRISBEE_OK);
        turns(w, 2);
        CHECK_EQ(frisbee_shutdown(s->pool, 3000), FRISBEE_OK);
        CHECK_EQ(call_try(s, ECHO, "", 0, 0, false, NULL), FRISBEE_CLOSED);
        mem_pair(&w->net, &late->end, &peer);
        io = mem_transport(late->end);
        desc.role = FRISBEE_ACCEPTOR;
        CHECK_EQ(frisbee_attach(s->pool, &io, &desc, NULL, 0, &conn), FRISBEE_CLOSED);
        turns(w, 100);
        CHECK(!s->closed || how == 0);
        if (how == 1) mem_put_packet(s->end->peer, FRISBEE_WIRE_V1, MUTE, 57344, "", 0);
        if (how == 2) {
            memcpy(&later, s->parked.data, sizeof later);
            CHECK_EQ(frisbee_reply(s->pool, &later.origin, "x", 1), FRISBEE_OK);
        }
        if (how == 3) s->end->out.capacity = SIZE_MAX;
        turns(w, 5);
        half_close(s); // a peer that sees the end ends too
        turns(w, 5);
        if (how != 4 || s->closed) CHECK(s->closed && w->polled[0] == FRISBEE_CLOSED);
        if (how == 1) CHECK_EQ(t->result, FRISBEE_OK);
        if (how == 2) CHECK_EQ(mem_size(&s->end->out), 11);
        if (how == 3) CHECK_EQ(mem_size(&s->end->out), 16);
        turns(w, 3000);
        CHECK(s->closed && w->polled[0] == FRISBEE_CLOSED);
        if (how < 4) CHECK(s->info.reason == FRISBEE_OK || s->info.reason == FRISBEE_CLOSED);
        else CHECK(t->done && t->result != FRISBEE_OK);
        late->attached = false;
        world_end(w);
    }
}

typedef struct job { frisbee_task task; int ran, nulls, number; } job;
static int jobs_ran;
static frisbee_remote *jobs_remote;
static job chained;
static void run_job(frisbee_task *task, frisbee_pool *pool) {
    job *j = (job *)(void *)task;
    j->ran++;
    j->nulls += pool == NULL;
    CHECK_EQ(j->number, jobs_ran++); // in posting order
    if (pool && j->number == 9) {
        chained.number = 10;
        CHECK_EQ(frisbee_remote_post(jobs_remote, &chained.task), FRISBEE_OK); // from a task
        CHECK_EQ(frisbee_poll(pool, 0), FRISBEE_BUSY);
    }
}

static void tasks_run_once_in_order(void) {
    world *w = world_begin(1);
    frisbee_pool *pool = world_pool(w, 0);
    job jobs[20];
    int n;
    memset(jobs, 0, sizeof jobs);
    memset(&chained, 0, sizeof chained);
    chained.task.run = run_job;
    jobs_ran = 0;
    jobs_remote = frisbee_remote_retain(pool);
    if (!CHECK(jobs_remote != NULL)) return;
    for (n = 0; n < 20; n++) jobs[n].task.run = run_job, jobs[n].number = n < 10 ? n : n + 1;
    for (n = 0; n < 10; n++) CHECK_EQ(frisbee_remote_post(jobs_remote, &jobs[n].task), FRISBEE_OK);
    CHECK_EQ(jobs_ran, 0);
    CHECK_EQ(frisbee_next_timeout(pool), 0);
    turns(w, 2);
    CHECK_EQ(jobs_ran, 11);
    CHECK_EQ(frisbee_next_timeout(pool), FRISBEE_NEVER);
    for (n = 10; n < 20; n++) CHECK_EQ(frisbee_remote_post(jobs_remote, &jobs[n].task), FRISBEE_OK);
    frisbee_pool_destroy(pool); // what is left runs with no pool
    w->pool[0] = NULL;
    CHECK_EQ(jobs_ran, 21);
    for (n = 0; n < 20; n++) CHECK(jobs[n].ran == 1 && jobs[n].nulls == (n >= 10));
    jobs[0].number = 21;
    CHECK_EQ(frisbee_remote_post(jobs_remote, &jobs[0].task), FRISBEE_CLOSED);
    frisbee_remote_stop(jobs_remote); // nobody to stop
    frisbee_remote_release(jobs_remote);
    CHECK_EQ(jobs_ran, 21);
    world_end(w);
}

static void closing_asks_everything(side *s) { // in on_close DESTROYED: the pool answers, and does nothing
    frisbee_transport io = mem_transport(s->end);
    frisbee_conn_desc desc = s->w->desc;
    frisbee_conn conn;
    frisbee_outcome out;
    desc.role = FRISBEE_ACCEPTOR;
    if (s->info.reason != FRISBEE_DESTROYED) return;
    CHECK_EQ(frisbee_send(s->pool, s->conn, NOTE, 1, "", 0), FRISBEE_CLOSED);
    CHECK_EQ(call_try(s, ECHO, "", 0, 0, true, NULL), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_attach(s->pool, &io, &desc, NULL, 0, &conn), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_poll(s->pool, 0), FRISBEE_BUSY);
    CHECK_EQ(frisbee_run(s->pool), FRISBEE_BUSY);
    CHECK_EQ(frisbee_call_wait(s->pool, s->conn, ECHO, "", 0, 0, &out), FRISBEE_BUSY);
    frisbee_pool_destroy(s->pool); // it is being done
}

static void destroy_in_handler(side *s, const frisbee_packet *packet) {
    if (packet->from.operation == SWITCH) frisbee_pool_destroy(s->pool);
}

// Everything in flight at once: calls copied and borrowed, queued and sent, a hijack, a deferred reply, partial input, a handshake, a protocol, a
// paused connection, one that flushes, one that nobody opened, tasks. Each ends exactly once (world_end), from outside and from a handler.
static void destroy_with_everything_in_flight(void) {
    int from_handler, turns_before;
    for (from_handler = 0; from_handler < 2; from_handler++)
        for (turns_before = 0; turns_before < 4; turns_before++) {
            static uint8_t data[20000];
            world *w = world_begin((uint64_t)turns_before);
            side *s[9];
            job jobs[2];
            frisbee_remote *remote;
            frisbee_span span;
            mem_end *peer;
            int n, k;
            for (k = 0; k < 8; k++) {
                w->desc.protocol = k == 7 ? &lines_protocol : NULL;
                s[k] = side_raw(w, k & 1 ? FRISBEE_CONNECTOR : FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
                s[k]->on_closing = closing_asks_everything;
            }
            w->desc.protocol = NULL;
            s[8] = side_make(w);
            mem_pair(&w->net, &s[8]->end, &peer);
            s[8]->end->slow_open = -1;
            CHECK_EQ(side_attach(s[8], 0, FRISBEE_CONNECTOR, NULL, 0), FRISBEE_OK);
            turns(w, 2);
            remote = frisbee_remote_retain(s[0]->pool);
            s[0]->end->out.capacity = 15;
            for (k = 0; k < 9; k++)
                for (n = 0; n < 4 && k != 7; n++) {
                    CHECK_EQ(call_try(s[k], MUTE, data, n & 2 ? sizeof data : 9, FRISBEE_NEVER, n & 1, NULL), FRISBEE_OK);
                    if (k != 3) mem_put_packet(s[k]->end->peer, FRISBEE_WIRE_V1, LATER, (unsigned)n, "", 0); // (raw bytes to the hijack below)
                }
            for (n = 0; n < 3; n++) {
                loan *l = lend("", 0);
                span.data = data, span.length = 5000;
                CHECK_EQ(frisbee_send_spans(s[n]->pool, s[n]->conn, NOTE, 1, &span, 1, give_back, l), FRISBEE_OK);
            }
            mem_put(s[1]->end->peer, "\x00\x0F\x00\x01\x00\x0B\x00\x40\x00\x05" "123", 13);
            CHECK_EQ(frisbee_hijack(s[2]->pool, s[2]->conn, FRISBEE_HIJACK_FENCED, 0, hijacked, s[2]), FRISBEE_OK);
            CHECK_EQ(frisbee_hijack(s[3]->pool, s[3]->conn, FRISBEE_HIJACK_STOCK, 0, hijacked, s[3]), FRISBEE_OK);
            CHECK_EQ(frisbee_upgrade(s[4]->pool, s[4]->conn, FRISBEE_HIJACK_FENCED, &lines_protocol), FRISBEE_OK);
            CHECK_EQ(frisbee_pause(s[5]->pool, s[5]->conn, true), FRISBEE_OK);
            CHECK_EQ(frisbee_close(s[6]->pool, s[6]->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
            turns(w, turns_before);
            memset(jobs, 0, sizeof jobs);
            jobs_ran = 0;
            for (n = 0; n < 2; n++) {
                jobs[n].number = n;
                jobs[n].task.run = run_job;
                if (!from_handler) CHECK_EQ(frisbee_remote_post(remote, &jobs[n].task), FRISBEE_OK);
            }
            if (from_handler) {
                mem_end *last = s[0]->end->peer;
                s[0]->on_request = destroy_in_handler;
                mem_put_packet(last, FRISBEE_WIRE_V1, SWITCH, 1, "", 0);
                mem_put_packet(last, FRISBEE_WIRE_V1, NOTE, 1, "", 0);
                turns(w, 2);
                CHECK(w->pool[0] == NULL && w->polled[0] == FRISBEE_DESTROYED);
            } else {
                frisbee_pool_destroy(w->pool[0]);
                w->pool[0] = NULL;
                CHECK(jobs_ran == 2 && jobs[0].nulls == 1 && jobs[1].nulls == 1);
            }
            for (k = 0; k < 9; k++) CHECK(s[k]->closed == 1 && (s[k]->info.reason == FRISBEE_DESTROYED || k == 6));
            CHECK(s[2]->hijacks == 1 && s[3]->hijacks == 1 && s[2]->taken.result != FRISBEE_OK && s[3]->taken.result != FRISBEE_OK);
            for (n = 0; n < (int)ticket_count; n++) { // those that were handed over or closed may have ended before
                const side *owner = tickets[n].owner;
                CHECK(tickets[n].result == FRISBEE_CANCELLED || owner == s[2] || owner == s[3] || owner == s[4] || owner == s[6]);
            }
            CHECK_EQ(frisbee_remote_post(remote, &jobs[0].task), FRISBEE_CLOSED);
            frisbee_remote_release(remote);
            world_end(w);
        }
}

// >>memory that runs out: the nth allocation fails, for every n, once or from there on

static void starving_switch(side *s, const frisbee_packet *packet) {
    if (packet->from.operation != SWITCH) return;
    if (packet->from.id == 1) (void)frisbee_upgrade(s->pool, s->conn, FRISBEE_HIJACK_FENCED, &lines_protocol);
    else (void)frisbee_hijack(s->pool, s->conn, FRISBEE_HIJACK_FENCED, 300, hijacked, s);
}

// A life of two connections with a bit of everything. Answers whether all of it went well.
static bool live(world *w, size_t fail_at, bool late) {
    static uint8_t data[20000];
    frisbee_remote *remote = NULL;
    side *a, *b, *bystander;
    job one;
    bool well = true;
    uint32_t k;
    int i, n;
    memset(&one, 0, sizeof one);
    jobs_ran = 0;
    one.task.run = run_job;
    w->pool_desc.read_buffer = 1024;
    w->desc.queue_limit = 60000;
    w->desc.max_packet = 30000;
    w->desc.high_water = 20000;
    w->desc.call_ms = 50;
    w->desc.wrap = wrap_plain;
    world_pair(w);
    a = &w->sides[0], b = &w->sides[1];
    a->recurring = b->recurring = true;
    if (!late) w->heap.fail_at = fail_at;
    if (side_attach(a, 0, FRISBEE_CONNECTOR, NULL, 0) || side_attach(b, 1, FRISBEE_ACCEPTOR, "", 0)) return false;
    b->on_request = starving_switch;
    if (late) {
        UNTIL(w, 10, a->opened && b->opened);
        w->heap.fail_at = w->heap.requests + fail_at;
    }
    a->end->out.capacity = 7000;
    a->end->piece = 3000;
    well &= frisbee_on(a->pool, 30, handle, w) == FRISBEE_OK;
    remote = frisbee_remote_retain(a->pool);
    well &= remote != NULL;
    if (remote) CHECK_EQ(frisbee_remote_post(remote, &one.task), FRISBEE_OK);
    for (n = 0; n < 40; n++)
        for (i = 0; i < 2; i++) {
            side *s = &w->sides[i];
            well &= call_try(s, n % 5 ? ECHO : LATER, data, n % 13 ? (size_t)n : n % 5 ? sizeof data : 8, FRISBEE_NEVER, n & 1, NULL) == FRISBEE_OK;
            well &= send_some_way(s, PLAIN, (unsigned)n, data, n % 11 ? (size_t)n : 5000) == FRISBEE_OK;
            if (n % 4 == 0) turns(w, 1);
            answer_parked(s);
        }
    for (n = 0; n < 60; n++) answer_parked(a), answer_parked(b), turns(w, 1);
    for (k = 0; k < ticket_count; k++) well &= tickets[k].done && tickets[k].matches;
    well &= a->noted == 80 && b->noted == 80;
    well &= frisbee_send(a->pool, a->conn, SWITCH, 1, "", 0) == FRISBEE_OK;
    well &= frisbee_upgrade(a->pool, a->conn, FRISBEE_HIJACK_FENCED, &lines_protocol) == FRISBEE_OK;
    turns(w, 20);
    well &= lines_write(a, "some\nlines\nback\n") == FRISBEE_OK;
    turns(w, 20);
    well &= a->stops == 1 && b->stops == 1;
    well &= call_try(a, ECHO, data, 100, FRISBEE_NEVER, false, NULL) == FRISBEE_OK;
    turns(w, 20);
    well &= frisbee_send(a->pool, a->conn, SWITCH, 2, "", 0) == FRISBEE_OK;
    well &= frisbee_hijack(a->pool, a->conn, FRISBEE_HIJACK_FENCED, 300, hijacked, a) == FRISBEE_OK;
    mem_append(&a->raw_out, blob_a, sizeof blob_a);
    turns(w, 30);
    well &= a->hijacks && b->hijacks && b->raw_in.length == sizeof blob_a;
    if (!w->heap.fail_on) { // one failure, whatever it hit, leaves the pool in working order
        frisbee_packet packet;
        w->heap.fail_at = 0;
        w->desc.wrap = NULL;
        bystander = side_raw(w, FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
        mem_put_packet(bystander->end->peer, FRISBEE_WIRE_V1, ECHO, 1, data, 9000);
        turns(w, 3);
        CHECK(raw_next(bystander, FRISBEE_WIRE_V1, &packet) && packet.length == 9000);
    }
    CHECK(!remote || one.ran == 1);
    if (remote) frisbee_remote_release(remote);
    return well;
}

static void promise_3_the_nth_allocation_fails(void) {
    int on, late;
    for (on = 0; on < 2; on++)
        for (late = 0; late < 2; late++) {
            size_t n, failures = 1;
            bool well = false;
            for (n = 1; n < 3000 && failures; n++) {
                world *w = world_begin(77); // the same life each time
                w->starving = true;
                w->heap.fail_on = on;
                well = live(w, n, late);
                w->heap.fail_at = 0;
                failures = w->heap.failures;
                CHECK(!well || !failures || n > 1); // (a failed nicety may be made up for)
                world_end(w);
            }
            CHECK(!failures && well && n > 20);
        }
}

int main(int argc, char **argv) {
    RUN(promise_1_packets_arrive_whole_in_order_at_most_once);
    RUN(promise_1_whole_is_chopped);
    RUN(promise_1_random_streams_whole_are_chopped);
    RUN(promise_2_every_call_ends_in_exactly_one_on_reply);
    RUN(promise_2_not_sent_and_unknown_are_exact);
    RUN(promise_2_calls_given_up_in_the_queue_are_struck);
    RUN(promise_2_late_replies_meet_nobody);
    RUN(promise_2_no_id_is_used_twice_and_then_exhausted);
    RUN(section_6_calls_time_out_when_they_should);
    RUN(section_7_both_sides_call_each_other_with_the_same_operation);
    RUN(section_7_ids_of_stock_peers_are_any);
    RUN(section_7_a_request_is_answered_once_now_or_later);
    RUN(promise_3_max_packet);
    RUN(promise_3_queue_limit_and_on_writable);
    RUN(promise_3_high_water_only_signals);
    RUN(promise_3_replies_above_high_water_pause_reading);
    RUN(promise_3_replies_of_any_allowed_size_have_room);
    RUN(promise_3_replies_have_room_behind_a_full_queue);
    RUN(promise_3_two_busy_peers_do_not_stop_each_other);
    RUN(promise_2_mutual_floods_of_calls_end);
    RUN(promise_3_max_deferred_max_calls_max_conns);
    RUN(promise_3_claims_of_length_are_not_trusted);
    RUN(promise_3_max_memory_answers_senders);
    RUN(promise_3_the_nth_allocation_fails);
    RUN(section_5_an_idle_connection_holds_no_buffers);
    RUN(section_6_packet_ms_bounds_a_packet_from_first_to_last_byte);
    RUN(section_6_open_ms_bounds_the_handshake);
    RUN(section_6_write_ms_wants_progress);
    RUN(section_6_idle_ms_counts_packets);
    RUN(section_6_heartbeat);
    RUN(section_6_who_is_not_judged_by_silence);
    RUN(section_6_max_step_ms);
    RUN(section_6_clocks_near_their_ends);
    RUN(section_6_budgets);
    RUN(promise_6_a_flood_of_pings_gets_one_pong);
    RUN(promise_6_hostile_input_costs_its_sender_alone);
    RUN(promise_6_greetings_of_other_protocols_are_refused);
    RUN(promise_7_fenced_loses_no_byte);
    RUN(promise_7_stock_loses_no_byte);
    RUN(promise_7_now_hands_over_what_is_unsent_and_unread);
    RUN(promise_7_hijack_outside_a_handler);
    RUN(promise_7_a_hijack_that_fails_tells_so_once);
    RUN(promise_7_attach_with_prefill_goes_on);
    RUN(section_8_upgrade_to_a_protocol_and_back);
    RUN(section_8_bytes_that_are_left_go_to_the_next_protocol);
    RUN(section_3_a_protocol_from_the_start);
    RUN(section_3_wraps_stack);
    RUN(reserved_room_is_sent_from_where_it_is);
    RUN(flush_writes_without_callbacks);
    RUN(pause_stops_behind_the_packet_and_loses_nothing);
    RUN(statistics_are_exact);
    RUN(arguments_that_make_no_sense_are_invalid);
    RUN(routes_and_the_table_of_the_pool);
    RUN(feed_and_prefill_are_handled_like_bytes_that_were_read);
    RUN(section_3_half_close_in_each_state);
    RUN(section_3_finish_sends_nothing_more_and_still_reads);
    RUN(section_3_close_flushes_and_lingers);
    RUN(section_3_a_stale_handle_is_closed_everywhere);
    RUN(section_3_order_of_callbacks);
    RUN(section_3_sends_before_the_open_are_queued);
    RUN(section_11_the_wire_is_told_forced_or_awaited);
    RUN(section_11_the_queue_follows_the_wire);
    RUN(section_4_functions_that_wait);
    RUN(without_sockets_the_rest_is_unsupported);
    RUN(shutdown_waits_for_what_is_owed);
    RUN(tasks_run_once_in_order);
    RUN(destroy_with_everything_in_flight);
    return check_report("memory");
}
