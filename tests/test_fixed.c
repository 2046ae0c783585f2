// test_fixed.c - pools that live in one block of memory: FRISBEE_POOL_BYTES suffices for what it promises, whatever is in flight and however
// often connections come and go; no allocator is called; a block too small is refused; nothing outside the block is touched.
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

enum { NOTE = 10, LATER, CALL, SWITCH, UNITS = 64, GUARD = 64 };

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
    pool = NULL;
    return frisbee_pool_create(&desc, &pool);
}

static void drop_pool(void) {
    guards_hold();
    frisbee_pool_destroy(pool);
    guards_hold();
    CHECK_EQ(allocator_calls, 0);
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
    return frisbee_attach(pool, &io, &desc, NULL, 0, &u->conn);
}

// Takes what the peer of a unit has got.
static void drain(unit *u) {
    frisbee_packet packet;
    while (mem_take_packet(u->peer, u->wire, &packet))
        if (packet.from.operation == CALL) asked[u - units][packet.from.id] = 1;
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

static void full_load(bool small) {
    uint32_t i, k, noted;
    for (i = 0; i < now.conns; i++) load_calls(&units[i]);
    for (i = 0; i < now.conns; i++) load_deferred(&units[i]);
    for (i = 0; i < now.conns; i++) load_queue(&units[i], small);
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
        CHECK_EQ(frisbee_queued(pool, u->conn) > 10, false);
        for (k = 0; k < u->deferred; k++) {
            frisbee_result result = frisbee_reply(pool, &u->origins[k], payload, now.max_packet);
            if (result == FRISBEE_AGAIN) turns(1), drain(u), result = frisbee_reply(pool, &u->origins[k], payload, now.max_packet);
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

static void every_shape_carries_its_full_load(void) {
    size_t s;
    for (s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const shape *a = &shapes[s];
        uint32_t i;
        int round;
        CHECK_EQ(make_pool(a, FRISBEE_POOL_BYTES(a->conns, a->calls, a->max_packet, a->queue)), FRISBEE_OK);
        if (!pool) continue;
        for (i = 0; i < a->conns; i++) units[i].origins = (frisbee_origin *)calloc(a->calls + 2u, sizeof(frisbee_origin));
        for (round = 0; round < 4; round++) { // the second time on connections that have been through it
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
        drop_pool();
    }
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

static void a_thousand_lives_in_one_block(void) {
    size_t s;
    for (s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const shape *a = &shapes[s];
        frisbee_stats stats;
        uint32_t i;
        int round, borrowed = 0, answers[8] = {0};
        CHECK_EQ(make_pool(a, FRISBEE_POOL_BYTES(a->conns, a->calls, a->max_packet, a->queue)), FRISBEE_OK);
        if (!pool) continue;
        net.random = s;
        released = 0;
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
                what = mem_below(&net, 8);
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
                default: turns(1); break;
                }
                answers[-result & 7]++;
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
            if (round % 50 == 0) guards_hold();
            CHECK_EQ(attach(u), FRISBEE_OK); // there is always room for the next
        }
        CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
        CHECK(stats.memory <= block_size && stats.conns == a->conns);
        for (i = 0; i < a->conns; i++) CHECK_EQ(frisbee_close(pool, units[i].conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
        turns(3);
        CHECK_EQ(released, borrowed);
        for (i = 0; i < a->conns; i++) CHECK_EQ(attach(&units[i]), FRISBEE_OK);
        turns(2);
        for (i = 0; i < a->conns; i++) drain(&units[i]);
        full_load(false); // as on the first day
        for (i = 0; i < a->conns; i++) free(units[i].origins);
        drop_pool();
    }
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
    RUN(a_thousand_lives_in_one_block);
    RUN(small_blocks_are_refused_or_suffice);
    RUN(descriptions_that_contradict_themselves);
    RUN(handlers_and_references_have_room);
    return check_report("fixed");
}
