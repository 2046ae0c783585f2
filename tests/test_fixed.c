// test_fixed.c - pools that live in one block of memory: FRISBEE_POOL_BYTES suffices for what it promises, whatever is in flight and however
// often connections come and go; subscriptions and streams live in what the block has beyond that, and take nothing from the promise when it is
// used up; no allocator is called; a block too small is refused; nothing outside the block is touched.
#include <stddef.h>
static void *no_malloc(size_t size);
static void *no_realloc(void *block, size_t size);
static void no_free(void *block);
#define FRISBEE_MALLOC(size) no_malloc(size)
#define FRISBEE_REALLOC(block, size) no_realloc(block, size)
#define FRISBEE_FREE(block) no_free(block)
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#include "../frisbee.h"
#include "check.h"
#include "memory.h"

static int allocator_calls;
static void *no_malloc(size_t size) {
    (void)size;
    allocator_calls++;
    return NULL;
}
static void *no_realloc(void *block, size_t size) {
    (void)block, (void)size;
    allocator_calls++;
    return NULL;
}
static void no_free(void *block) {
    (void)block;
    allocator_calls++;
}

// What the macro says must be known at compile time.
static union { uint8_t bytes[FRISBEE_POOL_BYTES(2, 4, 64, 128)]; long double align; void *pointer; } static_block;

enum {
    NOTE = 10, LATER, CALL, SWITCH, UNITS = 64, GUARD = 64,
    STREAM = 2, HELLO = 0xFF02, // section 11 of the manual
    SUBSCRIBE = 0xFF10, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED, PUBLISH, MESSAGE, DROPPED, PUBLISHED,
    WINDOW = 1000, SUBS = 4096, STREAMS = 4096,
    BROKER_BYTES = 1500 // beyond FRISBEE_POOL_BYTES: a broker fits ("about 1 KB")
};

typedef struct shape { uint32_t conns, calls, max_packet; size_t queue; } shape;
static const shape shapes[] = {
    {1, 1, 1, 11}, {1, 4, 64, 256}, {2, 4, 64, 128}, {4, 16, 256, 1024}, {8, 64, 1024, 8192}, {16, 8, 100, 110},
    {64, 4, 32, 64}, {3, 5, 777, 1999}, {2, 1000, 4096, 65536}, {1, 8192, 16, 64}, {2, 100, 65536, 70000}, {5, 3, 1, 500},
};

typedef struct unit {
    mem_end *end, *peer;
    frisbee_conn conn;
    uint32_t replied, ended, deferred, refused, noted; // calls with their reply and without; requests
    frisbee_origin *origins;
    int closed, hijacks, starts, stops;
    frisbee_wire wire;
    frisbee_role role;
    frisbee_transport taken;
    size_t unsent;
} unit;

static mem_net net;
static unit units[UNITS];
static uint8_t asked[UNITS][65536]; // ids of calls that the peer of a unit has got
static uint8_t *block;
static size_t block_size;
static frisbee_pool *pool;
static shape now;
static uint8_t payload[70000];
static int released;

// What lives beyond FRISBEE_POOL_BYTES, if `patterns` is set: connections have streams, and where there is room for it the pool is a broker.
typedef struct own_sub { frisbee_sub sub; uint64_t heard, missed, matched; } own_sub;
static bool patterns, is_broker;
static own_sub subs[SUBS];
static frisbee_stream streams[STREAMS];
static uint32_t sub_count, stream_count; // of this program; of either side
static uint32_t streams_opened, streams_closed;
static struct { uint32_t taken, refused, messages, heard, exhausted; } seen; // in all cases, so that none is idle

static void guards_hold(void) {
    size_t i;
    int broken = 0;
    for (i = 0; i < GUARD; i++) broken += block[i] != 0xC3 || block[GUARD + block_size + i] != 0xC3;
    CHECK_EQ(broken, 0);
}

static void turns(int count) {
    while (count--) {
        (void)frisbee_poll(pool, 0);
        CHECK(frisbeei_check(pool));
        mem_advance(&net, 1000);
    }
}

static void handle(frisbee_pool *p, const frisbee_packet *packet, void *user) {
    unit *u = (unit *)packet->conn_user;
    (void)user;
    u->noted++;
    if (packet->from.operation == LATER) {
        frisbee_result result = frisbee_defer(p, packet, &u->origins[u->deferred]);
        if (result == FRISBEE_OK) u->deferred++;
        else {
            CHECK_EQ(result, FRISBEE_AGAIN);
            u->refused++;
        }
    }
}

static void closed(frisbee_pool *p, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    unit *u = (unit *)user;
    (void)p;
    u->closed++;
    CHECK(conn.id == u->conn.id && info->reason != FRISBEE_NO_MEMORY);
}

static void replied(frisbee_pool *p, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    unit *u = (unit *)user;
    (void)p, (void)call;
    if (outcome->result == FRISBEE_OK) u->replied++;
    else u->ended++;
}

static void release(void *user) {
    (void)user;
    released++;
}

static void heard(frisbee_pool *p, const frisbee_message *message, void *user) {
    own_sub *s = (own_sub *)user;
    (void)p;
    CHECK(message->sub.id == s->sub.id && message->conn.id == FRISBEE_LOCAL.id);
    s->heard++;
    seen.heard++;
    s->missed += message->dropped;
}

static void add_stream(frisbee_stream stream) {
    streams_opened++;
    if (CHECK(stream_count < STREAMS)) streams[stream_count++] = stream;
}

static void stream_opened(frisbee_pool *p, frisbee_conn conn, frisbee_stream stream, void *user) {
    (void)user;
    CHECK_EQ(frisbee_stream_conn(p, stream).id, conn.id);
    add_stream(stream);
}

static void stream_data(frisbee_pool *p, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    (void)stream, (void)user;
    if (length & 1) (void)frisbee_stream_send(p, stream, data, length); // a bit of work for its own direction
}

static void stream_closed(frisbee_pool *p, frisbee_stream stream, frisbee_result reason, void *user) {
    uint32_t i;
    (void)p, (void)user;
    streams_closed++;
    seen.exhausted += reason == FRISBEE_EXHAUSTED || reason == FRISBEE_NO_MEMORY; // what was sent to it could not be kept
    for (i = 0; i < stream_count && streams[i].id != stream.id; i++) {}
    if (CHECK(i < stream_count)) streams[i] = streams[--stream_count]; // once
}

static const frisbee_stream_events stream_events = {stream_opened, stream_data, NULL, stream_closed};
static frisbee_broker broker; // zero
static const frisbee_events events = {NULL, NULL, NULL, NULL, closed};
static const frisbee_route routes[] = {{NOTE, handle, NULL}, {LATER, handle, NULL}, {CALL, handle, NULL}};

static frisbee_result make_pool(const shape *s, size_t size) {
    frisbee_pool_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.max_conns = s->conns;
    desc.max_calls = s->calls;
    desc.max_packet = s->max_packet;
    desc.queue_limit = s->queue;
    desc.now_us = mem_now;
    desc.now_context = &net;
    is_broker = patterns && size >= FRISBEE_POOL_BYTES(s->conns, s->calls, s->max_packet, s->queue) + BROKER_BYTES;
    if (is_broker) desc.broker = &broker;
    now = *s;
    block_size = size;
    block = (uint8_t *)malloc(size + 2 * GUARD);
    if (!block) exit(2);
    memset(block, 0xC3, size + 2 * GUARD);
    desc.memory = block + GUARD;
    desc.memory_size = size;
    memset(units, 0, sizeof units);
    memset(asked, 0, sizeof asked);
    memset(&net, 0, sizeof net);
    net.now_us = 1;
    allocator_calls = 0;
    sub_count = stream_count = streams_opened = streams_closed = 0;
    pool = NULL;
    return frisbee_pool_create(&desc, &pool);
}

static void drop_pool(void) {
    guards_hold();
    frisbee_pool_destroy(pool);
    guards_hold();
    CHECK_EQ(allocator_calls, 0);
    CHECK_EQ(streams_closed, streams_opened);
    free(block);
    mem_net_free(&net);
}

static frisbee_result attach(unit *u) {
    frisbee_conn_desc desc;
    frisbee_transport io;
    frisbee_origin *origins = u->origins;
    memset(&desc, 0, sizeof desc);
    memset(u, 0, sizeof *u);
    memset(asked[u - units], 0, sizeof *asked);
    u->origins = origins;
    u->wire = mem_below(&net, 2) ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
    desc.role = mem_below(&net, 2) ? FRISBEE_CONNECTOR : FRISBEE_ACCEPTOR;
    if (now.calls > 8192) desc.role = FRISBEE_CONNECTOR; // it has the ids
    if (patterns) desc.streams = &stream_events;
    desc.stream_window = WINDOW;
    u->role = desc.role;
    desc.wire = u->wire;
    desc.events = &events;
    desc.routes = routes;
    desc.route_count = sizeof routes / sizeof *routes;
    desc.user = u;
    desc.max_calls = desc.max_deferred = now.calls;
    desc.call_ms = desc.packet_ms = desc.write_ms = FRISBEE_NEVER;
    desc.heartbeat_ms = mem_below(&net, 2) ? 5 : FRISBEE_NEVER;
    desc.heartbeat_timeout_ms = FRISBEE_NEVER;
    mem_pair(&net, &u->end, &u->peer);
    io = mem_transport(u->end);
    if (patterns && now.max_packet >= 4) mem_put_packet(u->peer, u->wire, HELLO, 0, "\0\0\x10\0", 4); // the first packet, or the answer to it
    return frisbee_attach(pool, &io, &desc, NULL, 0, &u->conn);
}

// Takes what the peer of a unit has got.
static void drain(unit *u) {
    frisbee_packet packet;
    while (mem_take_packet(u->peer, u->wire, &packet)) {
        const uint8_t *data = (const uint8_t *)packet.data;
        switch (packet.from.operation) {
        case CALL: asked[u - units][packet.from.id] = 1; break;
        case SUBSCRIBED:
            if (!CHECK(packet.length == 1 && (data[0] == 0 || data[0] == 3 || data[0] == (is_broker ? 5 : 4)))) break; // taken, limits, in use
            if (data[0]) seen.refused += data[0] == 3;
            else seen.taken++;
            break;
        case MESSAGE: seen.messages++; break;
        default: break;
        }
    }
}

static size_t header(const unit *u) { return u->wire == FRISBEE_WIRE_V1 ? 10 : 8; }

static void call_desc(unit *u, frisbee_call_desc *desc) {
    memset(desc, 0, sizeof *desc);
    desc->timeout_ms = FRISBEE_NEVER;
    desc->on_reply = replied;
    desc->user = u;
}

// As many calls as may be in flight, and not one more.
static void load_calls(unit *u) {
    frisbee_call_desc desc;
    frisbee_result result = FRISBEE_OK;
    uint32_t made = 0, tries;
    call_desc(u, &desc);
    for (tries = 0; tries < 100000; tries++) {
        result = frisbee_call(pool, u->conn, CALL, payload, mem_below(&net, now.max_packet + 1) % 50, &desc, NULL);
        if (result == FRISBEE_OK) made++;
        else if (result == FRISBEE_AGAIN) turns(1), drain(u);
        else break;
    }
    CHECK_EQ(result, FRISBEE_EXHAUSTED);
    CHECK_EQ(made, now.calls);
    turns(2);
    drain(u);
}

// As many deferred replies.
static void load_deferred(unit *u) {
    uint32_t k;
    for (k = 0; k <= now.calls; k++) {
        mem_put_packet(u->peer, u->wire, LATER, k, payload, now.max_packet && k & 1);
        if (k % 16 == 15) turns(1), drain(u);
    }
    turns(3);
    CHECK_EQ(u->deferred, now.calls);
    CHECK_EQ(u->refused, 1);
    drain(u);
}

// A full queue: packets of the largest size, then ever smaller ones; or empty ones only. All that the limit names fits.
static void load_queue(unit *u, bool small) {
    size_t length = small ? 0 : now.max_packet, queued;
    frisbee_result result = FRISBEE_OK;
    uint32_t tries;
    u->end->out.capacity = 0;
    turns(1);
    for (tries = 0; tries < 200000; tries++) {
        result = frisbee_send(pool, u->conn, NOTE, (uint16_t)tries, payload, length);
        if (result != FRISBEE_OK && length == 0) break;
        if (result != FRISBEE_OK) {
            CHECK_EQ(result, FRISBEE_AGAIN);
            length /= 2;
        }
    }
    CHECK_EQ(result, FRISBEE_AGAIN);
    queued = frisbee_queued(pool, u->conn);
    CHECK(queued + header(u) > now.queue && queued <= now.queue + 32); // (a PING may stand in it)
    turns(2);
}

// A packet of the largest size, all but its last byte.
static void load_partial(unit *u) {
    mem_end *peer = u->peer;
    size_t before = peer->out.bytes.length;
    mem_put_packet(peer, u->wire, NOTE, 1, payload, now.max_packet);
    if (now.max_packet && peer->out.bytes.length > before) { // (taken back from the pipe)
        mem_mark mark;
        uint8_t *last = peer->out.marks.data + peer->out.marks.length - sizeof mark;
        memcpy(&mark, last, sizeof mark);
        if (--mark.length) memcpy(last, &mark, sizeof mark);
        else peer->out.marks.length -= sizeof mark;
        peer->out.bytes.length--;
    }
    turns(2);
}

static void peers_take_part(void);
static void use_up_what_is_beyond(void);

static void full_load(bool small) {
    uint32_t i, k, noted, tries, most = patterns ? 5000 : 1; // messages that wait come into a queue first, as many as there are
    for (i = 0; i < now.conns; i++) load_calls(&units[i]);
    for (i = 0; i < now.conns; i++) load_deferred(&units[i]);
    if (patterns) peers_take_part();
    for (i = 0; i < now.conns; i++) load_queue(&units[i], small);
    if (patterns) use_up_what_is_beyond();
    for (i = 0; i < now.conns; i++) load_partial(&units[i]);
    guards_hold();
    { // one more connection there is not
        frisbee_conn_desc desc;
        frisbee_transport io = mem_transport(units[0].end);
        frisbee_conn conn;
        memset(&desc, 0, sizeof desc);
        desc.role = FRISBEE_ACCEPTOR;
        CHECK_EQ(frisbee_attach(pool, &io, &desc, NULL, 0, &conn), FRISBEE_EXHAUSTED);
    }
    for (i = 0; i < now.conns; i++) { // and all of it comes to its end
        unit *u = &units[i];
        noted = u->noted;
        if (now.max_packet) mem_put(u->peer, payload, 1);
        turns(2);
        CHECK_EQ(u->noted, noted + (now.max_packet != 0));
        u->end->out.capacity = SIZE_MAX;
        turns(2);
        drain(u);
        for (tries = 1; tries < most && frisbee_queued(pool, u->conn) > 10; tries++) turns(1), drain(u);
        CHECK_EQ(frisbee_queued(pool, u->conn) > 10, false);
        for (k = 0; k < u->deferred; k++) {
            frisbee_result result = frisbee_reply(pool, &u->origins[k], payload, now.max_packet);
            for (tries = 0; tries < most && result == FRISBEE_AGAIN; tries++) {
                turns(1), drain(u);
                result = frisbee_reply(pool, &u->origins[k], payload, now.max_packet);
            }
            CHECK_EQ(result, FRISBEE_OK);
        }
        u->deferred = u->refused = 0;
        turns(2);
        drain(u);
        CHECK_EQ(u->closed, 0);
    }
    guards_hold();
}

static void answer_calls(unit *u) {
    uint32_t k;
    for (k = 0; k < 65536; k++)
        if (asked[u - units][k]) mem_put_packet(u->peer, u->wire, CALL, k, "", 0);
    memset(asked[u - units], 0, sizeof *asked);
    for (k = 0; k < 5000 && mem_size(&u->peer->out); k++) turns(1);
    turns(2);
}

// >>subscriptions and streams: of this program, and of the peers, who send what section 11 of the manual says

static void put_subscribe(unit *u, unsigned id, const char *topic) { // the broker's default limit, DROP_OLD
    uint8_t packet[300] = {0, 1};
    size_t length = strlen(topic);
    if (length + 8 > now.max_packet) return;
    packet[6] = (uint8_t)length;
    memcpy(packet + 7, topic, length);
    mem_put_packet(u->peer, u->wire, SUBSCRIBE, id, packet, length + 8);
}

static void put_publish(unit *u, const char *topic, size_t length) {
    uint8_t packet[600] = {0};
    size_t head = 2 + strlen(topic);
    if (head + length > now.max_packet || head + length > sizeof packet) return;
    packet[1] = (uint8_t)(head - 2);
    memcpy(packet + 2, topic, head - 2);
    mem_put_packet(u->peer, u->wire, PUBLISH, 0, packet, head + length);
}

static frisbee_result subscribe_own(const char *topic) {
    own_sub *s = &subs[sub_count];
    frisbee_sub_desc desc;
    frisbee_result result;
    if (!CHECK(sub_count < SUBS)) return FRISBEE_EXHAUSTED;
    memset(&desc, 0, sizeof desc);
    memset(s, 0, sizeof *s);
    desc.on_message = heard;
    desc.user = s;
    result = frisbee_subscribe(pool, FRISBEE_LOCAL, topic, &desc, &s->sub);
    sub_count += result == FRISBEE_OK;
    return result;
}

// All of this program's subscriptions match "n.x", and none a "kept" value.
static frisbee_result publish_own(const char *topic, size_t length, bool retain) {
    frisbee_publish_desc desc;
    frisbee_result result;
    uint32_t i;
    memset(&desc, 0, sizeof desc);
    desc.retain = retain;
    result = frisbee_publish(pool, FRISBEE_LOCAL, topic, payload, length, &desc);
    for (i = 0; i < sub_count && result == FRISBEE_OK && !retain; i++) subs[i].matched++;
    return result;
}

static frisbee_result open_stream(unit *u) {
    frisbee_stream stream;
    frisbee_result result = frisbee_stream_open(pool, u->conn, NULL, NULL, &stream);
    if (result == FRISBEE_OK) {
        add_stream(stream);
        (void)frisbee_stream_send(pool, stream, payload, 1);
    }
    return result;
}

// For each of this program's subscriptions: what matched was delivered, or dropped, or waits.
static void own_books_balance(void) {
    uint32_t i;
    for (i = 0; i < sub_count; i++) {
        frisbee_sub_info info;
        if (!CHECK_EQ(frisbee_sub_describe(pool, subs[i].sub, &info), FRISBEE_OK)) return;
        CHECK_EQ(info.delivered, subs[i].heard);
        CHECK_EQ(info.delivered + info.dropped + info.waiting, subs[i].matched);
        CHECK(subs[i].missed <= info.dropped);
    }
}

// The peers subscribe, publish (only to each other, so that the own books stay simple), open streams and write to those that are open.
static void peers_take_part(void) {
    unsigned number, id;
    uint32_t i;
    for (i = 0; i < now.conns; i++)
        for (number = 0; number < 30; number++) {
            id = (number & 1) == (units[i].role == FRISBEE_CONNECTOR) ? 32768u : 1; // theirs, or this side's
            mem_put_packet(units[i].peer, units[i].wire, STREAM, id + number / 2, payload, 1 + mem_below(&net, now.max_packet));
            put_subscribe(&units[i], 1000 + number, number & 2 ? "n.*" : "p.>");
            put_publish(&units[i], "p.y", number);
            if (number % 10 == 9) turns(1), drain(&units[i]);
        }
    turns(now.queue < 1000 ? 40 : 3); // into the smallest queue the answers come one by one
    for (i = 0; i < now.conns; i++) {
        drain(&units[i]);
        CHECK_EQ(units[i].closed, 0);
    }
}

// The queues are full, so what is published waits; streams are opened, values are retained: all of it until each kind was refused.
static void use_up_what_is_beyond(void) {
    enum { SUBSCRIPTION, OPENED, RETAINED, PASSED_ON, KINDS };
    int refused[KINDS] = {0}, tries, kind;
    char topic[32];
    unsigned number = 0;
    uint32_t i;
    for (tries = 0; tries < 20000 && (tries < 1000 || !refused[SUBSCRIPTION] || !refused[OPENED] || !refused[RETAINED]); tries++) {
        frisbee_result result;
        switch (kind = (int)mem_below(&net, KINDS)) {
        case SUBSCRIPTION: result = sub_count < SUBS / 2 ? subscribe_own(tries & 1 ? "n.*" : "n.>") : FRISBEE_EXHAUSTED; break;
        case OPENED: result = stream_count < STREAMS / 2 ? open_stream(&units[mem_below(&net, now.conns)]) : FRISBEE_EXHAUSTED; break;
        case RETAINED:
            snprintf(topic, sizeof topic, "kept.%u", number++);
            result = publish_own(topic, 1 + number % 100, true);
            if (number > 500) result = FRISBEE_EXHAUSTED; // a value that is passed on but not kept is no refusal
            break;
        default: result = publish_own("n.x", mem_below(&net, 200), false); break; // dropped for some or all is none, either
        }
        CHECK(result == FRISBEE_OK || result == FRISBEE_NO_MEMORY || result == FRISBEE_EXHAUSTED || result == FRISBEE_TOO_LARGE ||
              (result == FRISBEE_INVALID && !is_broker && kind != OPENED));
        refused[kind] += result != FRISBEE_OK;
        if (tries % 200 == 199) turns(1);
    }
    CHECK(refused[SUBSCRIPTION] && refused[OPENED] && refused[RETAINED]);
    for (i = 0; i < stream_count; i += 2) (void)frisbee_stream_pause(pool, streams[i], i % 4 == 0);
    own_books_balance();
}

static void end_what_is_beyond(void) {
    uint32_t i, before = stream_count;
    char topic[32];
    own_books_balance();
    for (i = 0; i < 1000; i++) { // forgotten
        snprintf(topic, sizeof topic, "kept.%u", (unsigned)i);
        CHECK_EQ(publish_own(topic, 0, true), is_broker ? FRISBEE_OK : FRISBEE_INVALID);
    }
    while (sub_count) CHECK_EQ(frisbee_unsubscribe(pool, subs[--sub_count].sub), FRISBEE_OK);
    for (i = 0; i < before; i++) CHECK_EQ(frisbee_stream_close(pool, streams[i]), FRISBEE_OK);
    turns(3);
    CHECK_EQ(stream_count, 0);
}

// How many subscriptions of this program's fit, besides what is there.
static uint32_t room_for_subs(void) {
    uint32_t first = sub_count, count;
    while (sub_count < SUBS && subscribe_own("n.some.topic.of.middling.length") == FRISBEE_OK) {}
    count = sub_count - first;
    while (sub_count > first) CHECK_EQ(frisbee_unsubscribe(pool, subs[--sub_count].sub), FRISBEE_OK);
    turns(1);
    return count;
}

// >>cases

// Two lives of each connection, with two full loads each: the second on connections that have been through it.
static void carry_full_loads(const shape *a) {
    uint32_t i;
    int round;
    for (i = 0; i < a->conns; i++) units[i].origins = (frisbee_origin *)calloc(a->calls + 2u, sizeof(frisbee_origin));
    for (round = 0; round < 4; round++) {
        for (i = 0; i < a->conns && round % 2 == 0; i++) CHECK_EQ(attach(&units[i]), FRISBEE_OK);
        turns(2);
        for (i = 0; i < a->conns; i++) drain(&units[i]);
        full_load(round & 1);
        for (i = 0; i < a->conns; i++) {
            if (!(round & 1)) answer_calls(&units[i]);
            else CHECK_EQ(frisbee_close(pool, units[i].conn, i & 1 ? FRISBEE_CLOSE_FLUSH : FRISBEE_CLOSE_NOW), FRISBEE_OK);
            CHECK(round & 1 || units[i].replied == a->calls);
            units[i].replied = 0;
        }
        turns(2);
        for (i = 0; i < a->conns; i++) units[i].peer->out.ended = true;
        if (!(round & 1)) for (i = 0; i < a->conns; i++) units[i].peer->out.ended = false;
        turns(3);
        for (i = 0; i < a->conns; i++) CHECK_EQ(units[i].closed, round & 1);
    }
    for (i = 0; i < a->conns; i++) free(units[i].origins);
}

static void every_shape_carries_its_full_load(void) {
    size_t s;
    for (s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const shape *a = &shapes[s];
        CHECK_EQ(make_pool(a, FRISBEE_POOL_BYTES(a->conns, a->calls, a->max_packet, a->queue)), FRISBEE_OK);
        if (!pool) continue;
        carry_full_loads(a);
        drop_pool();
    }
}

// The same with streams and in a broker, with exactly so much memory and with ever more: subscriptions, messages, retained values and streams
// take what is beyond, and nothing else.
static void subscriptions_and_streams_live_beyond(void) {
    static const size_t beyond[] = {0, 500, 5000, 200000};
    size_t s, b;
    uint32_t room;
    patterns = true;
    for (b = 0; b < sizeof beyond / sizeof *beyond; b++)
        for (s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            const shape *a = &shapes[s];
            const int failures = check_failures;
            int life;
            CHECK_EQ(make_pool(a, FRISBEE_POOL_BYTES(a->conns, a->calls, a->max_packet, a->queue) + beyond[b]), FRISBEE_OK);
            if (!pool) continue;
            room = room_for_subs();
            CHECK(is_broker == (beyond[b] > 500) && room >= beyond[b] / 2000);
            for (life = 0; life < 2; life++) {
                carry_full_loads(a);
                end_what_is_beyond();
                CHECK(room_for_subs() >= room - room / 8); // tables that grew may lie in the way, but nothing is lost
            }
            drop_pool();
            if (check_failures != failures) fprintf(stderr, "    in shape %u with %u bytes beyond\n", (unsigned)s, (unsigned)beyond[b]);
        }
    CHECK(seen.taken > 100 && seen.refused > 100 && seen.messages > 100 && seen.heard > 100 && seen.exhausted > 10);
    patterns = false;
}

// What few connections do: borrow, hijack, upgrade, pause with much input, wrap.
static void hijacked(frisbee_pool *p, frisbee_conn conn, const frisbee_hijacked *what, void *user) {
    unit *u = (unit *)user;
    (void)p, (void)conn;
    u->hijacks++;
    CHECK(what->result != FRISBEE_NO_MEMORY);
    u->unsent = what->unsent.length;
    if (what->result == FRISBEE_OK) u->taken = what->io;
}

static frisbee_result proto_start(frisbee_pool *p, frisbee_conn conn, void *user, void **state) {
    (void)user;
    *state = frisbee_user(p, conn);
    ((unit *)*state)->starts++;
    return FRISBEE_OK;
}
static frisbee_result proto_input(frisbee_pool *p, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used, size_t *need) {
    (void)p, (void)conn, (void)state, (void)data;
    *used = length / 2; // the rest is kept
    *need = length - *used + 1;
    return FRISBEE_OK;
}
static void proto_stop(frisbee_pool *p, frisbee_conn conn, void *state) {
    (void)p, (void)conn;
    ((unit *)state)->stops++;
}
static const frisbee_protocol proto = {proto_start, proto_input, NULL, proto_stop, NULL};

// A bit of what lives beyond: whatever the answer, the rest goes on.
static frisbee_result live_beyond(unit *u, uint32_t what) {
    frisbee_stream stream;
    frisbee_result result = FRISBEE_OK;
    char topic[16];
    stream.id = 0;
    if (stream_count) stream = streams[mem_below(&net, stream_count)];
    snprintf(topic, sizeof topic, "kept.%u", (unsigned)mem_below(&net, 20));
    switch (what) {
    case 8: result = stream_count < STREAMS / 2 ? open_stream(u) : FRISBEE_OK; break;
    case 9: if (stream.id) result = frisbee_stream_send(pool, stream, payload, 1 + mem_below(&net, now.max_packet)); break;
    case 10: if (stream.id) result = frisbee_stream_pause(pool, stream, mem_below(&net, 2)); break;
    case 11: if (stream.id) result = frisbee_stream_close(pool, stream); break;
    case 12:
        if (sub_count && mem_below(&net, 3) == 0) result = frisbee_unsubscribe(pool, subs[--sub_count].sub);
        else result = sub_count < SUBS / 2 ? subscribe_own("n.>") : FRISBEE_OK;
        break;
    case 13: result = publish_own(topic, mem_below(&net, 3) * 20, true); break;
    case 14: result = publish_own("n.x", mem_below(&net, 100), false); break;
    default: {
        unsigned id = 1 + mem_below(&net, 4) + 32767 * mem_below(&net, 2);
        mem_put_packet(u->peer, u->wire, STREAM, id, payload, mem_below(&net, now.max_packet + 1)); // opens, writes or closes
        put_subscribe(u, id, id & 1 ? "n.*" : "kept.>");
        put_publish(u, "p.y", mem_below(&net, 50));
        break;
    }
    }
    if (result == FRISBEE_INVALID && !is_broker && what >= 12) return FRISBEE_OK;
    return result == FRISBEE_CLOSED ? FRISBEE_OK : result; // a stream that is being closed already
}

static void a_thousand_lives_in(size_t beyond) {
    size_t s;
    for (s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const shape *a = &shapes[s];
        frisbee_stats stats;
        uint32_t i, fit;
        int round, borrowed = 0;
        CHECK_EQ(make_pool(a, FRISBEE_POOL_BYTES(a->conns, a->calls, a->max_packet, a->queue) + beyond), FRISBEE_OK);
        if (!pool) continue;
        net.random = s;
        released = 0;
        fit = room_for_subs();
        for (i = 0; i < a->conns; i++) {
            units[i].origins = (frisbee_origin *)calloc(a->calls + 2u, sizeof(frisbee_origin));
            CHECK_EQ(attach(&units[i]), FRISBEE_OK);
        }
        for (round = 0; round < 1000; round++) {
            unit *u = &units[mem_below(&net, a->conns)];
            frisbee_call_desc desc;
            frisbee_span span;
            frisbee_result result;
            uint32_t what, k;
            call_desc(u, &desc);
            turns(2);
            u->end->out.capacity = mem_below(&net, 3) ? SIZE_MAX : mem_below(&net, 40);
            span.data = payload;
            span.length = mem_below(&net, a->max_packet + 1);
            for (k = 0; k < 6; k++) { // a bit of everything, up to whatever answer
                what = mem_below(&net, patterns ? 16 : 8);
                result = FRISBEE_OK;
                switch (what) {
                case 0: result = frisbee_send(pool, u->conn, NOTE, 1, payload, span.length); break;
                case 1:
                    result = frisbee_send_spans(pool, u->conn, NOTE, 1, &span, 1, release, NULL);
                    borrowed += result == FRISBEE_OK;
                    break;
                case 2: result = frisbee_call(pool, u->conn, CALL, payload, span.length, &desc, NULL); break;
                case 3: mem_put_packet(u->peer, u->wire, LATER, round & 0xFFFF, payload, span.length); break;
                case 4: // more than is handed out while it is paused
                    result = frisbee_pause(pool, u->conn, true);
                    for (i = 0; i < 5; i++) mem_put_packet(u->peer, u->wire, NOTE, i, payload, a->max_packet);
                    turns(3);
                    (void)frisbee_pause(pool, u->conn, false);
                    break;
                case 5: {
                    void *room;
                    result = frisbee_reserve(pool, u->conn, span.length, &room);
                    if (result == FRISBEE_OK) result = frisbee_send(pool, u->conn, NOTE, 2, room, span.length);
                    break;
                }
                case 6: mem_put_packet(u->peer, u->wire, 0, 0, "", 0); break;
                case 7: turns(1); break;
                default:
                    result = live_beyond(u, what);
                    if (result == FRISBEE_NO_MEMORY) result = FRISBEE_AGAIN; // here, and nowhere else
                    break;
                }
                CHECK(result == FRISBEE_OK || result == FRISBEE_AGAIN || result == FRISBEE_EXHAUSTED || result == FRISBEE_TOO_LARGE);
                if (u->deferred > now.calls / 2) {
                    for (i = 0; i < u->deferred; i++) (void)frisbee_reply(pool, &u->origins[i], payload, 0);
                    u->deferred = 0;
                }
            }
            switch (mem_below(&net, 6)) { // and an end
                case 0: CHECK_EQ(frisbee_close(pool, u->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK); break;
                case 1: CHECK_EQ(frisbee_close(pool, u->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK); break;
                case 2: mem_reset(u->end, FRISBEE_SYSTEM); break;
                case 3: CHECK_EQ(frisbee_hijack(pool, u->conn, FRISBEE_HIJACK_NOW, 0, hijacked, u), FRISBEE_OK); break;
                case 4: CHECK_EQ(frisbee_upgrade(pool, u->conn, FRISBEE_HIJACK_NOW, &proto), FRISBEE_OK); break;
                default:
                    result = frisbee_hijack(pool, u->conn, FRISBEE_HIJACK_FENCED, 20, hijacked, u);
                    if (result != FRISBEE_OK) { // no place for a fence behind borrowed bytes
                        CHECK_EQ(result, FRISBEE_AGAIN);
                        CHECK_EQ(frisbee_close(pool, u->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
                    }
                    break;
            }
            turns(2);
            if (u->starts) mem_put(u->peer, payload, a->max_packet), turns(2);
            u->end->out.capacity = SIZE_MAX;
            u->peer->out.ended = true;
            turns(4);
            if (!u->closed) turns(25);
            CHECK_EQ(u->closed, 1);
            CHECK_EQ(u->starts, u->stops);
            if (u->taken.close) u->taken.close(u->taken.context);
            CHECK_EQ(u->end->closes, 1);
            if (round % 50 == 0) guards_hold(), own_books_balance();
            CHECK_EQ(attach(u), FRISBEE_OK); // there is always room for the next
        }
        CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
        CHECK(stats.memory <= block_size && stats.conns == a->conns);
        CHECK(stats.streams == stream_count && stats.subs >= sub_count);
        for (i = 0; i < a->conns; i++) CHECK_EQ(frisbee_close(pool, units[i].conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
        turns(3);
        CHECK_EQ(released, borrowed);
        end_what_is_beyond();
        CHECK(room_for_subs() >= fit - fit / 4); // nothing is lost
        for (i = 0; i < a->conns; i++) CHECK_EQ(attach(&units[i]), FRISBEE_OK);
        turns(2);
        for (i = 0; i < a->conns; i++) drain(&units[i]);
        full_load(false); // as on the first day
        for (i = 0; i < a->conns; i++) free(units[i].origins);
        drop_pool();
    }
}

static void a_thousand_lives_in_one_block(void) { a_thousand_lives_in(0); }

static void a_thousand_lives_with_subscriptions_and_streams(void) {
    patterns = true;
    a_thousand_lives_in(0);
    a_thousand_lives_in(20000);
    patterns = false;
}

// Subscriptions at a peer's broker that are more than the queue has room for, made before the connection opens: some are asked for at once, the
// others when there is room again.
static void results_counted(frisbee_pool *p, frisbee_sub sub, frisbee_result result, void *user) {
    (void)p, (void)sub;
    if (CHECK_EQ(result, FRISBEE_OK)) ++*(uint32_t *)user;
}

static void subscriptions_at_a_peer_pass_a_small_queue(void) {
    static const shape small = {1, 4, 64, 256};
    enum { SUBSCRIPTIONS = 40 };
    unit *u = &units[0];
    frisbee_sub_desc desc;
    frisbee_packet packet;
    uint32_t taken = 0, i, sends = 0, asked_for = 0, notes = 0;
    patterns = true;
    CHECK_EQ(make_pool(&small, FRISBEE_POOL_BYTES(1, 4, 64, 256) + 30000), FRISBEE_OK);
    CHECK_EQ(attach(u), FRISBEE_OK);
    memset(&desc, 0, sizeof desc);
    desc.on_message = heard;
    desc.on_result = results_counted;
    desc.user = &taken;
    while (sends < 1000 && frisbee_send(pool, u->conn, NOTE, 1, payload, 20) == FRISBEE_OK) sends++;
    CHECK(sends > 4 && sends < 20);
    for (i = 0; i < SUBSCRIPTIONS; i++) CHECK_EQ(frisbee_subscribe(pool, u->conn, "some.topic", &desc, NULL), FRISBEE_OK);
    for (i = 0; i < 1000 && taken < SUBSCRIPTIONS; i++) {
        turns(1);
        while (mem_take_packet(u->peer, u->wire, &packet)) {
            notes += packet.from.operation == NOTE;
            if (packet.from.operation != SUBSCRIBE) continue;
            asked_for++;
            mem_put_packet(u->peer, u->wire, SUBSCRIBED, packet.from.id, "\0", 1);
        }
    }
    CHECK_EQ(u->closed, 0);
    CHECK_EQ(notes, sends);
    CHECK_EQ(asked_for, SUBSCRIPTIONS);
    CHECK_EQ(taken, SUBSCRIPTIONS);
    drop_pool();
    patterns = false;
}

// A peer that sends many packets at once which the library itself answers: the answers are more than its queue has room for, and wait.
static void answers_of_the_library_pass_a_small_queue(void) {
    static const shape small = {1, 4, 64, 256};
    enum { ROUNDS = 40 };
    unit *u = &units[0];
    frisbee_packet packet;
    uint32_t i, answered = 0, replies = 0;
    uint8_t publish[] = {0, 3, 'p', '.', 'y'};
    patterns = true;
    CHECK_EQ(make_pool(&small, FRISBEE_POOL_BYTES(1, 4, 64, 256) + 100000), FRISBEE_OK);
    CHECK_EQ(attach(u), FRISBEE_OK);
    turns(2);
    u->end->out.capacity = 0;
    while (answered < 1000 && frisbee_send(pool, u->conn, NOTE, 1, payload, 1) == FRISBEE_OK) answered++; // it is full
    CHECK(answered > 10 && answered < 40);
    answered = 0;
    for (i = 0; i < ROUNDS; i++) {
        put_subscribe(u, 1 + i, "n.>");
        mem_put_packet(u->peer, u->wire, PUBLISH, 1 + i, publish, sizeof publish);
        mem_put_packet(u->peer, u->wire, UNSUBSCRIBE, 1 + i, "", 0);
        mem_put_packet(u->peer, u->wire, CALL, 1 + i, "", 0); // (a request: its handler does not answer)
    }
    turns(10);
    u->end->out.capacity = SIZE_MAX;
    for (i = 0; i < 1000 && replies < 3 * ROUNDS; i++) {
        turns(1);
        while (mem_take_packet(u->peer, u->wire, &packet)) {
            const uint32_t operation = packet.from.operation;
            if (operation != SUBSCRIBED && operation != UNSUBSCRIBED && operation != PUBLISHED) continue;
            CHECK_EQ(packet.from.id, 1 + replies / 3); // in order
            CHECK_EQ(operation, replies % 3 == 0 ? SUBSCRIBED : replies % 3 == 1 ? PUBLISHED : UNSUBSCRIBED);
            replies++;
        }
    }
    CHECK_EQ(u->closed, 0);
    CHECK_EQ(replies, 3 * ROUNDS);
    CHECK_EQ(u->noted, ROUNDS);
    drop_pool();
    patterns = false;
}

// A block that is too small is refused, or it does what a full one does.
static void small_blocks_are_refused_or_suffice(void) {
    size_t s;
    int refused = 0;
    for (s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const shape *a = &shapes[s];
        size_t whole = FRISBEE_POOL_BYTES(a->conns, a->calls, a->max_packet, a->queue), step = whole / 40, size;
        uint32_t i;
        for (size = 0; size <= whole; size += size == whole || whole - size > step ? (size < 256 ? 64 : step) : whole - size) {
            frisbee_result result = make_pool(a, size);
            if (result != FRISBEE_OK) {
                CHECK_EQ(result, FRISBEE_INVALID);
                CHECK(pool == NULL);
                refused++;
            } else {
                for (i = 0; i < a->conns; i++) {
                    units[i].origins = (frisbee_origin *)calloc(a->calls + 2u, sizeof(frisbee_origin));
                    CHECK_EQ(attach(&units[i]), FRISBEE_OK);
                }
                turns(2);
                for (i = 0; i < a->conns; i++) drain(&units[i]);
                full_load(size & 1);
                for (i = 0; i < a->conns; i++) free(units[i].origins);
            }
            drop_pool();
        }
    }
    CHECK(refused > 24); // at least the smallest of each shape
}

static void descriptions_that_contradict_themselves(void) {
    static const shape missing[] = {{0, 4, 64, 256}, {1, 0, 64, 256}, {1, 4, 0, 256}, {1, 4, 64, 0}};
    frisbee_pool_desc desc;
    frisbee_pool *made = NULL;
    size_t i;
    for (i = 0; i < 4; i++) {
        CHECK_EQ(make_pool(&missing[i], 1000000), FRISBEE_INVALID); // all four must be given
        CHECK(pool == NULL);
        drop_pool();
    }
    memset(&desc, 0, sizeof desc);
    desc.memory = static_block.bytes;
    desc.memory_size = sizeof static_block.bytes;
    desc.max_conns = 2;
    desc.max_calls = 4;
    desc.max_packet = 64;
    desc.queue_limit = 128;
    CHECK_EQ(frisbee_pool_create(&desc, &made), FRISBEE_INVALID); // without an operating system it needs a clock
    desc.now_us = mem_now;
    desc.now_context = &net;
    CHECK_EQ(frisbee_pool_create(&desc, &made), FRISBEE_OK);
    frisbee_pool_destroy(made);
    desc.allocator.allocate = mem_allocate; // both, and half of one
    CHECK_EQ(frisbee_pool_create(&desc, &made), FRISBEE_INVALID);
    CHECK_EQ(allocator_calls, 0);
}

// frisbee_on's table and remote references are in the block too: as many as fit, then NO_MEMORY, and nothing is harmed.
static void ran_task(frisbee_task *task, frisbee_pool *p) {
    (void)task;
    released += p ? 1 : 100;
}

static void handlers_and_references_have_room(void) {
    static const shape small = {2, 4, 64, 256};
    frisbee_remote *remotes[64];
    frisbee_task tasks[64];
    uint32_t operation, count = 0, i;
    frisbee_result result = FRISBEE_OK;
    CHECK_EQ(make_pool(&small, FRISBEE_POOL_BYTES(2, 4, 64, 256)), FRISBEE_OK);
    for (operation = 10; operation < 2000 && !result; operation++) {
        result = frisbee_on(pool, (uint16_t)operation, handle, NULL);
        count += result == FRISBEE_OK;
    }
    CHECK(result == FRISBEE_NO_MEMORY && count >= 8);
    for (operation = 10; operation < 10 + count; operation++) CHECK_EQ(frisbee_on(pool, (uint16_t)operation, NULL, NULL), FRISBEE_OK);
    for (operation = 1000; operation < 1000 + count; operation++) CHECK_EQ(frisbee_on(pool, (uint16_t)operation, handle, NULL), FRISBEE_OK);
    released = 0;
    for (i = 0; i < 64; i++) {
        remotes[i] = frisbee_remote_retain(pool);
        if (!CHECK(remotes[i] != NULL)) break;
        tasks[i].run = ran_task;
        CHECK_EQ(frisbee_remote_post(remotes[i], &tasks[i]), FRISBEE_OK);
    }
    units[0].origins = units[1].origins = (frisbee_origin *)calloc(small.calls + 2u, sizeof(frisbee_origin));
    for (i = 0; i < 2; i++) CHECK_EQ(attach(&units[i]), FRISBEE_OK);
    turns(2);
    for (i = 0; i < 2; i++) drain(&units[i]);
    CHECK_EQ(released, 64);
    load_calls(&units[0]);
    load_queue(&units[1], false);
    CHECK_EQ(frisbee_remote_post(remotes[0], &tasks[0]), FRISBEE_OK);
    guards_hold();
    frisbee_pool_destroy(pool);
    CHECK_EQ(released, 164);
    for (i = 0; i < 64; i++) { // the block outlives the references
        CHECK_EQ(frisbee_remote_post(remotes[i], &tasks[i]), FRISBEE_CLOSED);
        frisbee_remote_release(remotes[i]);
    }
    free(units[0].origins);
    pool = NULL;
    drop_pool();
}

int main(int argc, char **argv) {
    RUN(every_shape_carries_its_full_load);
    RUN(subscriptions_and_streams_live_beyond);
    RUN(a_thousand_lives_in_one_block);
    RUN(a_thousand_lives_with_subscriptions_and_streams);
    RUN(subscriptions_at_a_peer_pass_a_small_queue);
    RUN(answers_of_the_library_pass_a_small_queue);
    RUN(small_blocks_are_refused_or_suffice);
    RUN(descriptions_that_contradict_themselves);
    RUN(handlers_and_references_have_room);
    return check_report("fixed");
}
