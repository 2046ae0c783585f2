// test_pubsub.c - promise 9 of the manual: each message reaches each matching subscription once, in order, or is counted as dropped, by the policy
// that was asked for. A broker over the in-memory network under a virtual clock. Each of its connections (a `peer`) has another end: played by
// the test, byte by byte, or of a second pool, the client. What happens is noted as lines of text, and compared. Nothing depends on real time.
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#include "../frisbee.h"
#include "check.h"
#include "memory.h"
#include <stdarg.h>

#define MS UINT64_C(1000) // of the clock

enum { SUBSCRIBE = 0xFF10, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED, PUBLISH, MESSAGE, DROPPED, PUBLISHED };
enum {
    NEW = FRISBEE_SLOW_DROP_NEW, OLD = FRISBEE_SLOW_DROP_OLD, LATEST = FRISBEE_SLOW_LATEST, CLOSE = FRISBEE_SLOW_CLOSE, BLOCK = FRISBEE_SLOW_BLOCK
};
enum { TAKEN = 0, REFUSED, MALFORMED, LIMITS, NO_BROKER, IN_USE }; // status on the wire
enum { RETAIN = 1, BEFORE = 2 };                            // flags of a PUBLISH, SUBSCRIBE or MESSAGE; of a MESSAGE alone
enum { NUMBER = 10 };                                       // an operation of the application: its payload is a number
enum { COST = 64 };                                         // of a message that waits, besides its payload and topic

// >>the world

typedef struct peer peer;
struct peer { // a connection of the broker
    peer *next;
    frisbee_conn conn, client; // at the broker, and at the client; an id of 0: the test plays the other end
    mem_end *near, *far;
    frisbee_wire wire;
    bool deaf;  // the played end does not read,
    bool quiet; // or keeps the numbers of messages instead of text
    int opened, closed, client_opened, client_closed, pings, hijacked;
    frisbee_close_info info, client_info;
    mem_bytes in, log, numbers; // read and not yet a packet; what came, as text; `heard` of each message
    uint64_t dropped[8];        // as last told, by id of the subscription
    uint32_t got, next_number;
};

typedef struct heard { uint32_t id, number; uint64_t dropped; } heard; // a message, and how many its subscription had lost before it

typedef struct sub sub;
struct sub { // a subscription by frisbee_subscribe
    sub *next;
    frisbee_pool *pool;
    frisbee_conn conn; // by which it comes
    frisbee_sub handle;
    const char *name;
    bool quiet;
    uint32_t got, results, next_number;
    uint64_t dropped;
    frisbee_result result;
    void (*then)(sub *s, const frisbee_message *message);
    void (*answered)(sub *s, frisbee_result result);
};

typedef enum hook { MAY_SUBSCRIBE, MAY_PUBLISH, ON_SUBSCRIBE, ON_UNSUBSCRIBE, ON_WRITABLE } hook;

static mem_net net;
static mem_heap heap;
static frisbee_pool *broker, *client;
static frisbee_pool_desc pool_desc;
static frisbee_broker rules;
static frisbee_conn_desc conn_desc; // of the broker's connections; the client's have the defaults
static peer *peers;
static sub *subs;
static mem_bytes story;  // what the callbacks of subscriptions and confirmed publishes said
static mem_bytes hooked; // what hooks were called with, where `hooks_told`
static bool hooks_told, starving; // starving: allocations fail, NO_MEMORY is an answer
static int made, unmade, writable, numbers_handled;
static bool (*on_hook)(hook which, const frisbee_sub_info *info, frisbee_conn conn, const char *topic); // answers for may_...
static void (*on_end_of)(peer *p); // in the broker's on_close
static void (*on_number)(peer *p, uint32_t number);

static void say(mem_bytes *log, const char *format, ...) {
    char line[1400];
    va_list list;
    int length;
    va_start(list, format);
    length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (CHECK(length >= 0 && (size_t)length < sizeof line)) mem_append(log, line, (size_t)length);
}

// What a log says must be exactly this; it is empty afterwards.
#define SAYS(log, text) says(&(log), text, __LINE__)
static void says(mem_bytes *log, const char *text, int line) {
    mem_append(log, "", 1);
    if (!check_that(!strcmp((const char *)log->data, text), "the log says what was expected", __FILE__, line))
        fprintf(stderr, "  got:\n%s  expected:\n%s", (const char *)log->data, text);
    log->length = 0;
}

// The same, where the order of lines is nobody's business.
#define SAYS_ALL(log, text) says_all(&(log), text, __LINE__)
static void says_all(mem_bytes *log, const char *text, int line) {
    size_t length;
    bool all = log->length == strlen(text);
    const char *at = text;
    mem_append(log, "", 1);
    for (; all && *at; at += length) {
        char *found = (char *)log->data;
        length = strcspn(at, "\n") + 1;
        while (*found && strncmp(found, at, length)) found += strcspn(found, "\n") + 1;
        if (*found) *found = '\r'; // it counts once
        else all = false;
    }
    if (!check_that(all, "the log says what was expected, in any order", __FILE__, line))
        fprintf(stderr, "  got:\n%s  expected:\n%s", (const char *)log->data, text);
    log->length = 0;
}

static uint32_t load(const void *data, int size) {
    const uint8_t *at = (const uint8_t *)data;
    uint32_t value = 0;
    while (size--) value = value << 8 | *at++;
    return value;
}

static void store(uint8_t *at, uint64_t value, int size) {
    while (size--) at[size] = (uint8_t)value, value >>= 8;
}

static const char *name_of(frisbee_result result) { return frisbee_result_string(result) + 8; } // without FRISBEE_

// Long data is told by its length.
static void say_message(mem_bytes *log, const char *topic, int topic_length, const void *data, size_t length) {
    if (length > 40) say(log, "%.*s=<%lu>", topic_length, topic, (unsigned long)length);
    else say(log, "%.*s=%.*s", topic_length, topic, (int)length, length ? (const char *)data : "");
}

// >>played ends

static void frame(mem_bytes *into, frisbee_wire wire, unsigned operation, unsigned id, const void *data, size_t length) {
    frisbee_packet packet;
    uint8_t header[FRISBEE_WIRE_HEADER_MAX];
    memset(&packet, 0, sizeof packet);
    packet.from.operation = (uint16_t)operation;
    packet.from.id = (uint16_t)id;
    packet.length = (uint32_t)length;
    mem_append(into, header, frisbee_encode(wire, &packet, header));
    mem_append(into, data, length);
}

static void frame_subscribe(mem_bytes *into, frisbee_wire wire, unsigned id, const char *topic, unsigned flags, unsigned slow, uint32_t limit,
                            const char *group) {
    uint8_t data[600];
    size_t length = strlen(topic), group_length = group ? strlen(group) : 0;
    data[0] = (uint8_t)flags, data[1] = (uint8_t)slow, data[6] = (uint8_t)length, data[7 + length] = (uint8_t)group_length;
    store(data + 2, limit, 4);
    memcpy(data + 7, topic, length);
    if (group_length) memcpy(data + 8 + length, group, group_length);
    frame(into, wire, SUBSCRIBE, id, data, 8 + length + group_length);
}

static void frame_publish(mem_bytes *into, frisbee_wire wire, unsigned id, const char *topic, unsigned flags, const void *data, size_t size) {
    mem_bytes payload;
    uint8_t head[2];
    memset(&payload, 0, sizeof payload);
    head[0] = (uint8_t)flags, head[1] = (uint8_t)strlen(topic);
    mem_append(&payload, head, 2);
    mem_append(&payload, topic, strlen(topic));
    mem_append(&payload, data, size);
    frame(into, wire, PUBLISH, id, payload.data, payload.length);
    mem_free(&payload);
}

static void raw(peer *p, unsigned operation, unsigned id, const void *data, size_t length) {
    mem_bytes bytes;
    memset(&bytes, 0, sizeof bytes);
    frame(&bytes, p->wire, operation, id, data, length);
    mem_put(p->far, bytes.data, bytes.length);
    mem_free(&bytes);
}

static void raw_subscribe(peer *p, unsigned id, const char *topic, unsigned flags, unsigned slow, uint32_t limit, const char *group) {
    mem_bytes bytes;
    memset(&bytes, 0, sizeof bytes);
    frame_subscribe(&bytes, p->wire, id, topic, flags, slow, limit, group);
    mem_put(p->far, bytes.data, bytes.length);
    mem_free(&bytes);
}

static void raw_publish(peer *p, unsigned id, const char *topic, unsigned flags, const void *data, size_t length) {
    mem_bytes bytes;
    memset(&bytes, 0, sizeof bytes);
    frame_publish(&bytes, p->wire, id, topic, flags, data, length);
    mem_put(p->far, bytes.data, bytes.length);
    mem_free(&bytes);
}

static void hear_packet(peer *p, const frisbee_packet *packet) {
    const uint8_t *data = (const uint8_t *)packet->data;
    const unsigned id = packet->from.id, operation = packet->from.operation;
    const size_t length = packet->length;
    heard h;
    switch (operation) {
    case 0: p->pings++, CHECK_EQ(length, 0); return;
    case 1: CHECK_EQ(length, 0); return;
    case SUBSCRIBED:
        if (!CHECK_EQ(length, 1)) return;
        if (!data[0]) p->dropped[id & 7] = 0;
        if (!p->quiet) say(&p->log, "subscribed %u %u\n", id, data[0]);
        return;
    case UNSUBSCRIBED: CHECK_EQ(length, 0); if (!p->quiet) say(&p->log, "unsubscribed %u\n", id); return;
    case PUBLISHED:
        if (!CHECK_EQ(length, 13)) return;
        say(&p->log, "published %u %u %lu %lu\n", id, data[0], (unsigned long)load(data + 1, 4), (unsigned long)load(data + 9, 4));
        return;
    case DROPPED:
        if (!CHECK_EQ(length, 8)) return;
        CHECK_EQ(load(data, 4), 0);
        CHECK(id > 7 || load(data + 4, 4) > p->dropped[id]); // it says something new
        p->dropped[id & 7] = load(data + 4, 4);
        if (!p->quiet) say(&p->log, "dropped %u %lu\n", id, (unsigned long)load(data + 4, 4));
        return;
    case MESSAGE:
        if (!CHECK(length >= 2 && length >= 2u + data[1])) return;
        p->got++;
        if (p->quiet) {
            h.id = id;
            h.number = length >= 6u + data[1] ? load(data + 2 + data[1], 4) : 0;
            h.dropped = p->dropped[id & 7];
            mem_append(&p->numbers, &h, sizeof h);
            return;
        }
        say(&p->log, "%u ", id);
        say_message(&p->log, (const char *)data + 2, data[1], data + 2 + data[1], length - 2 - data[1]);
        say(&p->log, "%s%s\n", data[0] & RETAIN ? " retain" : "", data[0] & BEFORE ? " before" : "");
        return;
    default: say(&p->log, "packet %u %u\n", operation, id);
    }
}

// Takes up to so many bytes, and what packets they complete.
static void hear(peer *p, size_t most) {
    size_t used = 0, at = 0;
    frisbee_packet packet;
    frisbee_result result;
    mem_take(p->far, &p->in, most);
    while ((result = frisbee_decode(p->wire, p->in.data + at, p->in.length - at, 0xFFFFFFFFu, &packet, &used)) == FRISBEE_OK) {
        at += used;
        hear_packet(p, &packet);
    }
    CHECK_EQ(result, FRISBEE_AGAIN);
    mem_drop(&p->in, at);
}

// >>callbacks

static void note_hook(const char *name, const frisbee_sub_info *info) {
    if (!hooks_told) return;
    say(&hooked, "%s %s", name, info->topic);
    if (info->group) say(&hooked, " %s", info->group);
    if (info->slow) say(&hooked, " slow %d", (int)info->slow);
    say(&hooked, "\n");
}

static bool may_subscribe(frisbee_pool *pool, const frisbee_sub_info *wanted, void *user) {
    CHECK(pool == broker && user == (void *)&rules && wanted->conn.id);
    CHECK(!wanted->delivered && !wanted->dropped && !wanted->waiting && !wanted->waiting_bytes);
    note_hook("may_subscribe", wanted);
    return !on_hook || on_hook(MAY_SUBSCRIBE, wanted, wanted->conn, wanted->topic);
}

static bool may_publish(frisbee_pool *pool, const frisbee_message *message, void *user) {
    CHECK(pool == broker && user == (void *)&rules && message->conn.id && !message->sub.id && !message->dropped);
    if (hooks_told) {
        say(&hooked, "may_publish ");
        say_message(&hooked, message->topic, (int)strlen(message->topic), message->data, message->length);
        say(&hooked, message->retained ? " retain\n" : "\n");
    }
    return !on_hook || on_hook(MAY_PUBLISH, NULL, message->conn, message->topic);
}

static void on_subscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    CHECK(pool == broker && user == (void *)&rules && info->conn.id && info->sub.id);
    made++;
    note_hook("on_subscribe", info);
    if (on_hook) (void)on_hook(ON_SUBSCRIBE, info, info->conn, info->topic);
}

static void on_unsubscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    CHECK(pool == broker && user == (void *)&rules && info->conn.id && info->sub.id);
    unmade++;
    note_hook("on_unsubscribe", info);
    if (on_hook) (void)on_hook(ON_UNSUBSCRIBE, info, info->conn, info->topic);
}

static void on_writable(frisbee_pool *pool, void *user) {
    CHECK(pool == broker && user == (void *)&rules);
    writable++;
    if (on_hook) (void)on_hook(ON_WRITABLE, NULL, FRISBEE_LOCAL, "");
}

static void opened(frisbee_pool *pool, frisbee_conn conn, void *user) {
    peer *p = (peer *)user;
    (void)pool, (void)conn;
    p->opened++;
}

static void closed(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    peer *p = (peer *)user;
    CHECK(pool == broker && conn.id == p->conn.id);
    p->closed++;
    p->info = *info;
    if (on_end_of) on_end_of(p);
}

static void client_opened(frisbee_pool *pool, frisbee_conn conn, void *user) {
    peer *p = (peer *)user;
    (void)pool, (void)conn;
    p->client_opened++;
}

static void client_closed(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    peer *p = (peer *)user;
    CHECK(pool == client && conn.id == p->client.id);
    p->client_closed++;
    p->client_info = *info;
}

static void number_came(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    peer *p = (peer *)packet->conn_user;
    (void)pool, (void)user;
    numbers_handled++;
    if (on_number && packet->length >= 4) on_number(p, load(packet->data, 4));
}

static const frisbee_events events = {opened, NULL, NULL, NULL, closed};
static const frisbee_events client_events = {client_opened, NULL, NULL, NULL, client_closed};
static const frisbee_route routes[] = {{NUMBER, number_came, NULL}};

static void got(frisbee_pool *pool, const frisbee_message *message, void *user) {
    sub *s = (sub *)user;
    CHECK(pool == s->pool && message->sub.id == s->handle.id && !message->topic[strlen(message->topic)]);
    CHECK_EQ(message->conn.id, s->conn.id);
    s->got++;
    s->dropped += message->dropped;
    if (!s->quiet) {
        say(&story, "%s ", s->name);
        say_message(&story, message->topic, (int)strlen(message->topic), message->data, message->length);
        say(&story, "%s", message->retained ? " before" : "");
        if (message->dropped) say(&story, " dropped %lu", (unsigned long)message->dropped);
        say(&story, "\n");
    }
    if (s->then) s->then(s, message);
}

static void answered(frisbee_pool *pool, frisbee_sub handle, frisbee_result result, void *user) {
    sub *s = (sub *)user;
    CHECK(pool == s->pool && handle.id == s->handle.id && s->conn.id != FRISBEE_LOCAL.id);
    s->results++;
    s->result = result;
    if (!s->quiet) say(&story, "%s %s\n", s->name, name_of(result));
    if (s->answered) s->answered(s, result);
}

static void confirmed(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    frisbee_published published;
    memset(&published, 0, sizeof published);
    (void)pool, (void)call;
    if (outcome->result == FRISBEE_OK || outcome->data) {
        if (CHECK_EQ(outcome->length, sizeof published)) memcpy(&published, outcome->data, sizeof published);
    }
    say(&story, "%s %s %lu %lu\n", user ? (const char *)user : "confirmed", name_of(outcome->result), (unsigned long)published.subscriptions,
        (unsigned long)published.lost);
}

static frisbee_result no_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used, size_t *need) {
    (void)pool, (void)conn, (void)state, (void)data, (void)need;
    *used = length;
    return FRISBEE_OK;
}
static const frisbee_protocol silent = {NULL, no_input, NULL, NULL, NULL};

// >>making and ending

static void begin(uint64_t seed) {
    memset(&net, 0, sizeof net), memset(&heap, 0, sizeof heap), memset(&pool_desc, 0, sizeof pool_desc);
    memset(&rules, 0, sizeof rules), memset(&conn_desc, 0, sizeof conn_desc);
    net.random = seed * UINT64_C(0x2545F4914F6CDD1D) + 1;
    net.now_us = 1000000;
    pool_desc.allocator = mem_allocator(&heap);
    pool_desc.now_us = mem_now;
    pool_desc.now_context = &net;
    rules.user = &rules;
    rules.may_subscribe = may_subscribe, rules.may_publish = may_publish;
    rules.on_subscribe = on_subscribe, rules.on_unsubscribe = on_unsubscribe, rules.on_writable = on_writable;
    rules.allow_block = true;
    conn_desc.events = &events;
    conn_desc.routes = routes;
    conn_desc.route_count = 1;
    conn_desc.heartbeat_ms = conn_desc.write_ms = FRISBEE_NEVER;
    on_hook = NULL, on_end_of = NULL, on_number = NULL;
    made = unmade = writable = numbers_handled = 0;
    hooks_told = starving = false;
}

static bool start(void) { // the broker; begin() has filled its description, and the case has changed it
    frisbee_result result;
    pool_desc.broker = &rules;
    result = frisbee_pool_create(&pool_desc, &broker);
    CHECK(result == FRISBEE_OK || (starving && result == FRISBEE_NO_MEMORY));
    pool_desc.broker = NULL;
    return result == FRISBEE_OK;
}

static peer *peer_new(frisbee_role role, frisbee_wire wire) {
    peer *p = (peer *)calloc(1, sizeof *p);
    frisbee_conn_desc desc = conn_desc;
    frisbee_transport io;
    frisbee_result result;
    if (!p) exit(2);
    mem_pair(&net, &p->near, &p->far);
    p->wire = wire;
    p->next = peers;
    peers = p;
    io = mem_transport(p->near);
    desc.user = p;
    desc.role = role;
    desc.wire = role == FRISBEE_CONNECTOR ? wire : FRISBEE_WIRE_AUTO;
    result = frisbee_attach(broker, &io, &desc, NULL, 0, &p->conn);
    CHECK(result == FRISBEE_OK || (starving && result == FRISBEE_NO_MEMORY));
    if (result) p->closed = 1;
    p->near->pool = broker, p->near->conn = p->conn;
    return p;
}

static peer *peer_raw(void) { return peer_new(FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1); }

// Its other end is a connection of the client, a pool that is no broker unless a case makes it one.
static peer *peer_client(void) {
    peer *p = peer_raw();
    frisbee_conn_desc desc;
    frisbee_transport io = mem_transport(p->far);
    frisbee_result result = FRISBEE_OK;
    memset(&desc, 0, sizeof desc);
    desc.user = p;
    desc.role = FRISBEE_CONNECTOR;
    desc.events = &client_events;
    desc.heartbeat_ms = conn_desc.heartbeat_ms;
    if (!client) result = frisbee_pool_create(&pool_desc, &client);
    if (!result) result = frisbee_attach(client, &io, &desc, NULL, 0, &p->client);
    CHECK(result == FRISBEE_OK || (starving && result == FRISBEE_NO_MEMORY));
    if (result) p->deaf = true;
    else p->far->pool = client, p->far->conn = p->client;
    return p;
}

// A connection of the client whose other end the test plays.
static peer *client_raw(frisbee_role role, frisbee_wire wire) {
    peer *p = (peer *)calloc(1, sizeof *p);
    frisbee_conn_desc desc;
    frisbee_transport io;
    if (!p) exit(2);
    mem_pair(&net, &p->near, &p->far);
    p->wire = wire;
    p->next = peers;
    peers = p;
    memset(&desc, 0, sizeof desc);
    desc.user = p;
    desc.role = role;
    desc.wire = wire;
    desc.events = &client_events;
    desc.heartbeat_ms = FRISBEE_NEVER;
    if (!client) CHECK_EQ(frisbee_pool_create(&pool_desc, &client), FRISBEE_OK);
    io = mem_transport(p->near);
    CHECK_EQ(frisbee_attach(client, &io, &desc, NULL, 0, &p->client), FRISBEE_OK);
    p->near->pool = client, p->near->conn = p->client;
    return p;
}

static bool played(const peer *p) { return !p->client.id || !p->conn.id; }

static void turn(void) {
    peer *p;
    if (broker && frisbee_poll(broker, 0) == FRISBEE_DESTROYED) broker = NULL;
    if (client && frisbee_poll(client, 0) == FRISBEE_DESTROYED) client = NULL;
    if (broker) CHECK(frisbeei_check(broker));
    if (client) CHECK(frisbeei_check(client));
    for (p = peers; p; p = p->next)
        if (!p->deaf && played(p)) hear(p, SIZE_MAX);
    mem_advance(&net, MS);
}

static void turns(int count) {
    while (count--) turn();
}

// Turns of a millisecond until `condition`, which must hold within so many.
#define UNTIL(ms, condition)                                  \
    do {                                                      \
        int until_turns = (int)(ms);                          \
        while (!(condition) && until_turns-- > 0) turn();     \
        CHECK(condition);                                     \
    } while (0)

// The end of every case: everything has ended exactly once, and nothing is left.
static void end(void) {
    frisbee_pool_destroy(client);
    client = NULL;
    frisbee_pool_destroy(broker);
    broker = NULL;
    CHECK_EQ(made, unmade);
    CHECK_EQ(heap.blocks, 0);
    CHECK_EQ(heap.bytes, 0);
    while (peers) {
        peer *p = peers;
        peers = p->next;
        if (p->conn.id) CHECK_EQ(p->closed, 1);
        if (p->client.id) CHECK_EQ(p->client_closed, 1);
        mem_free(&p->in), mem_free(&p->log), mem_free(&p->numbers);
        free(p);
    }
    while (subs) {
        sub *s = subs;
        subs = s->next;
        free(s);
    }
    mem_free(&story), mem_free(&hooked);
    mem_net_free(&net);
}

// >>what the program does

static sub *sub_new(const char *name) {
    sub *s = (sub *)calloc(1, sizeof *s);
    if (!s) exit(2);
    s->name = name;
    s->next = subs;
    subs = s;
    return s;
}

static frisbee_result sub_try(sub *s, frisbee_pool *pool, frisbee_conn conn, const char *topic, const frisbee_sub_desc *like) {
    frisbee_sub_desc desc;
    memset(&desc, 0, sizeof desc);
    if (like) desc = *like;
    desc.on_message = got;
    desc.on_result = answered;
    desc.user = s;
    s->pool = pool;
    s->conn = conn;
    return frisbee_subscribe(pool, conn, topic, &desc, &s->handle);
}

static sub *subscribe(frisbee_pool *pool, frisbee_conn conn, const char *topic, const frisbee_sub_desc *like, const char *name) {
    sub *s = sub_new(name);
    frisbee_result result = sub_try(s, pool, conn, topic, like);
    CHECK(result == FRISBEE_OK || (starving && result == FRISBEE_NO_MEMORY));
    return s;
}

static frisbee_sub_desc like(frisbee_slow slow, uint32_t limit, const char *group, bool retained) {
    frisbee_sub_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.slow = slow, desc.limit = limit, desc.group = group, desc.retained = retained;
    return desc;
}

static frisbee_result publish_as(const char *topic, const char *text, bool retain) { // by the broker's own program
    frisbee_publish_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.retain = retain;
    return frisbee_publish(broker, FRISBEE_LOCAL, topic, text, strlen(text), &desc);
}

static void publish(const char *topic, const char *text) { CHECK_EQ(publish_as(topic, text, false), FRISBEE_OK); }
static void retain(const char *topic, const char *text) { CHECK_EQ(publish_as(topic, text, true), FRISBEE_OK); }

static frisbee_result publish_confirmed(frisbee_pool *pool, frisbee_conn conn, const char *topic, const char *text, bool retained, const char *name) {
    frisbee_publish_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.retain = retained;
    desc.on_reply = confirmed;
    desc.user = (void *)(intptr_t)name;
    return frisbee_publish(pool, conn, topic, text, strlen(text), &desc);
}

// A payload of `length` bytes (4 or more) that begins with a number, the rest following from it.
static frisbee_result publish_number(const char *topic, uint32_t number, size_t length) {
    static uint8_t data[1 << 20];
    CHECK(length >= 4 && length <= sizeof data);
    memset(data, (int)(number * 37 + 11), length);
    store(data, number, 4);
    return frisbee_publish(broker, FRISBEE_LOCAL, topic, data, length, NULL);
}

static void raw_number(peer *p, unsigned id, const char *topic, uint32_t number, size_t length) {
    static uint8_t data[4096];
    CHECK(length >= 4 && length <= sizeof data);
    memset(data, (int)(number * 37 + 11), length);
    store(data, number, 4);
    raw_publish(p, id, topic, 0, data, length);
}

static frisbee_sub_info info_of(frisbee_sub handle) {
    frisbee_sub_info info;
    memset(&info, 0, sizeof info);
    CHECK_EQ(frisbee_sub_describe(broker, handle, &info), FRISBEE_OK);
    return info;
}

static frisbee_sub find(const char *topic, frisbee_conn conn) { // a subscription at the broker, by what it asked for
    frisbee_sub at;
    frisbee_sub_info info;
    int most = 200000;
    at.id = 0;
    while (most-- && frisbee_sub_next(broker, &at, &info) == FRISBEE_OK)
        if (!strcmp(info.topic, topic) && info.conn.id == conn.id) return at;
    check_that(0, "the subscription exists", __FILE__, __LINE__);
    at.id = 0;
    return at;
}

static uint32_t count_of(const char *topic) {
    uint32_t count = 12345;
    CHECK_EQ(frisbee_topic_count(broker, topic, &count), FRISBEE_OK);
    return count;
}

static frisbee_stats pool_stats(frisbee_pool *pool) {
    frisbee_stats stats;
    memset(&stats, 0, sizeof stats);
    CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
    return stats;
}

static frisbee_stats conn_stats(frisbee_pool *pool, frisbee_conn conn) {
    frisbee_stats stats;
    memset(&stats, 0, sizeof stats);
    CHECK_EQ(frisbee_conn_stats(pool, conn, &stats), FRISBEE_OK);
    return stats;
}

// >>topics

typedef struct text_case { const char *text; bool topic, pattern; } text_case; // what it may be

#define TEN(x) x x x x x x x x x x
static const text_case texts[] = {
    {"a", true, true}, {"a.b", true, true}, {"prices.gold.eur", true, true}, {"A-z_0/9:$", true, true}, {"\xC3\xA4.\xE2\x82\xAC", true, true},
    {"\xFF\x80", true, true}, {"!.~", true, true}, {"a.1.2.3.4.5.6.7.8.9.10.11.12.13.14.15", true, true}, // 16 tokens
    {"a.1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16", false, false},                                          // 17
    {"*", false, true}, {">", false, true}, {"*.*", false, true}, {"a.*", false, true}, {"*.a", false, true}, {"a.*.c", false, true},
    {"a.>", false, true}, {"*.>", false, true}, {"a.*.*.>", false, true}, {"*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.>", false, true}, // 16 with wildcards
    {"*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.>", false, false},
    {"", false, false}, {".", false, false}, {"a.", false, false}, {".a", false, false}, {"a..b", false, false}, {"..", false, false},
    {"a*", false, false}, {"*a", false, false}, {"a.b*.c", false, false}, {"**", false, false}, {"a>", false, false}, {">a", false, false},
    {">>", false, false}, {"a.>.b", false, false}, {">.a", false, false}, {">.>", false, false}, {"*>", false, false}, {"a.>.", false, false},
    {"a b", false, false}, {" ", false, false}, {"a. .b", false, false}, {"a\tb", false, false}, {"a\n", false, false}, {"\x01", false, false},
    {"a\x1F" "b", false, false}, {"\x7F", false, false}, {"a.b\x7F", false, false}, {"\r.a", false, false},
    {TEN(TEN("a")) TEN(TEN("b")) TEN("ccccc") "ddddd", true, true},   // 255 bytes
    {TEN(TEN("a")) TEN(TEN("b")) TEN("ccccc") "dddd.e", false, false}, // 256
    {TEN(TEN("a")) TEN(TEN("b")) TEN("ccccc") "ddd.>", false, true},
    {TEN(TEN("a")) TEN(TEN("b")) TEN("ccccc") "ddddd.>", false, false},
};

static void promise_9_topics_and_patterns_are_checked_on_every_way(void) {
    peer *p, *c;
    size_t i;
    begin(1);
    CHECK_EQ(start(), true);
    p = peer_raw();
    c = peer_client();
    turns(4);
    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        const text_case *t = &texts[i];
        const frisbee_result as_pattern = t->pattern ? FRISBEE_OK : FRISBEE_INVALID, as_topic = t->topic ? FRISBEE_OK : FRISBEE_INVALID;
        uint32_t count = 0;
        sub *s = sub_new("s");
        const int before = check_failures;
        char expected[80];
        s->quiet = true;
        CHECK_EQ(sub_try(s, broker, FRISBEE_LOCAL, t->text, NULL), as_pattern);
        CHECK_EQ(frisbee_publish(broker, FRISBEE_LOCAL, t->text, "x", 1, NULL), as_topic);
        CHECK_EQ(frisbee_topic_count(broker, t->text, &count), as_topic);
        turn();
        CHECK_EQ(s->got, t->topic);
        if (t->pattern) CHECK_EQ(frisbee_unsubscribe(broker, s->handle), FRISBEE_OK);
        CHECK_EQ(sub_try(s, client, c->client, t->text, NULL), as_pattern);
        CHECK_EQ(frisbee_publish(client, c->client, t->text, "x", 1, NULL), as_topic);
        turns(4);
        CHECK_EQ(s->got, t->topic ? 2 : 0);
        CHECK_EQ(s->results, t->pattern);
        if (t->pattern) CHECK_EQ(frisbee_unsubscribe(client, s->handle), FRISBEE_OK);
        turns(4);
        if (strlen(t->text) < 256) { // what the wire can say
            raw_subscribe(p, 3, t->text, 0, NEW, 0, NULL);
            raw(p, UNSUBSCRIBE, 3, NULL, 0);
            raw_publish(p, 4, t->text, 0, "x", 1);
            turns(2);
            (void)snprintf(expected, sizeof expected, "subscribed 3 %d\nunsubscribed 3\npublished 4 %d 0 0\n", t->pattern ? TAKEN : MALFORMED,
                           t->topic ? TAKEN : MALFORMED);
            SAYS(p->log, expected);
        }
        if (check_failures != before) fprintf(stderr, "    with \"%s\"\n", t->text);
    }
    // A 0 inside, as only the wire can have it.
    raw(p, SUBSCRIBE, 3, "\0\0\0\0\0\0\3a\0b\0", 11);
    raw(p, PUBLISH, 4, "\0\3a\0bx", 6);
    raw(p, SUBSCRIBE, 5, "\0\0\0\0\0\0\1a\3g\0g", 12);
    turns(2);
    SAYS(p->log, "subscribed 3 2\npublished 4 2 0 0\nsubscribed 5 2\n");
    CHECK_EQ(pool_stats(broker).subs, 0);
    end();
}

static void promise_9_groups_are_checked_as_tokens(void) {
    static const struct { const char *text; bool ok; } groups[] = {
        {"g", true}, {"workers-1", true}, {"\xC3\xA4", true}, {TEN("abcdef") "1234", true}, {TEN("abcdef") "12345", false},
        {"a.b", false}, {"*", false}, {"g*", false}, {">", false}, {"a b", false}, {"\x01", false}, {"\x7F", false}, {".", false},
    };
    frisbee_sub_desc desc;
    char expected[60];
    peer *p, *c;
    sub *s;
    size_t i;
    begin(2);
    CHECK_EQ(start(), true);
    p = peer_raw();
    c = peer_client();
    for (i = 0; i < sizeof groups / sizeof *groups; i++) {
        desc = like(FRISBEE_SLOW_DROP_NEW, 0, groups[i].text, false);
        s = sub_new("s");
        s->quiet = true;
        CHECK_EQ(sub_try(s, broker, FRISBEE_LOCAL, "a", &desc), groups[i].ok ? FRISBEE_OK : FRISBEE_INVALID);
        if (groups[i].ok) {
            CHECK(info_of(s->handle).group && !strcmp(info_of(s->handle).group, groups[i].text));
            CHECK_EQ(frisbee_unsubscribe(broker, s->handle), FRISBEE_OK);
        }
        CHECK_EQ(sub_try(s, client, c->client, "a", &desc), groups[i].ok ? FRISBEE_OK : FRISBEE_INVALID);
        if (groups[i].ok) CHECK_EQ(frisbee_unsubscribe(client, s->handle), FRISBEE_OK);
        raw_subscribe(p, (unsigned)i, "a", 0, NEW, 0, groups[i].text);
        raw(p, UNSUBSCRIBE, (unsigned)i, NULL, 0);
        turns(3);
        (void)snprintf(expected, sizeof expected, "subscribed %u %d\nunsubscribed %u\n", (unsigned)i, groups[i].ok ? TAKEN : MALFORMED, (unsigned)i);
        SAYS(p->log, expected);
    }
    desc = like(FRISBEE_SLOW_DROP_NEW, 0, "", false); // NULL means none; nothing is no name
    s = sub_new("s");
    CHECK_EQ(sub_try(s, broker, FRISBEE_LOCAL, "a", &desc), FRISBEE_INVALID);
    end();
}

static void section_9_arguments_that_make_no_sense_are_invalid(void) {
    frisbee_sub_desc desc = like(FRISBEE_SLOW_CLOSE, 0, NULL, false);
    frisbee_publish_desc confirm;
    frisbee_sub_info info;
    frisbee_sub none, handle;
    frisbee_conn nobody;
    uint32_t count;
    peer *c;
    sub *s;
    begin(3);
    CHECK_EQ(start(), true);
    c = peer_client();
    turns(4);
    s = sub_new("s");
    CHECK_EQ(sub_try(s, broker, FRISBEE_LOCAL, "a", &desc), FRISBEE_INVALID); // there is no connection to close
    desc.slow = (frisbee_slow)5;
    CHECK_EQ(sub_try(s, broker, FRISBEE_LOCAL, "a", &desc), FRISBEE_INVALID);
    CHECK_EQ(sub_try(s, client, c->client, "a", &desc), FRISBEE_INVALID);
    desc = like(FRISBEE_SLOW_DROP_NEW, 0, NULL, false);
    CHECK_EQ(frisbee_subscribe(broker, FRISBEE_LOCAL, "a", &desc, NULL), FRISBEE_INVALID); // no on_message
    CHECK_EQ(frisbee_subscribe(broker, FRISBEE_LOCAL, "a", NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_subscribe(client, c->client, "a", &desc, NULL), FRISBEE_INVALID);
    CHECK_EQ(sub_try(s, client, FRISBEE_LOCAL, "a", NULL), FRISBEE_INVALID); // no broker
    CHECK_EQ(frisbee_publish(client, FRISBEE_LOCAL, "a", "x", 1, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_topic_count(client, "a", &count), FRISBEE_INVALID);
    memset(&confirm, 0, sizeof confirm);
    confirm.on_reply = confirmed;
    CHECK_EQ(frisbee_publish(broker, FRISBEE_LOCAL, "a", "x", 1, &confirm), FRISBEE_INVALID);
    confirm.on_reply = NULL;
    confirm.timeout_ms = -2;
    CHECK_EQ(frisbee_publish(client, c->client, "a", "x", 1, &confirm), FRISBEE_INVALID);
    CHECK_EQ(frisbee_publish(client, c->client, "a", NULL, 1, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_publish(client, c->client, NULL, "x", 1, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_publish(NULL, c->client, "a", "x", 1, NULL), FRISBEE_INVALID);
    CHECK_EQ(sub_try(s, NULL, FRISBEE_LOCAL, "a", NULL), FRISBEE_INVALID);
    CHECK_EQ(sub_try(s, broker, FRISBEE_LOCAL, NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_topic_count(broker, NULL, &count), FRISBEE_INVALID);
    CHECK_EQ(frisbee_topic_count(NULL, "a", &count), FRISBEE_INVALID);
    nobody.id = 0; // no connection is not this program
    CHECK_EQ(sub_try(s, broker, nobody, "a", NULL), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_publish(broker, nobody, "a", "x", 1, NULL), FRISBEE_CLOSED);
    none.id = 0;
    CHECK_EQ(frisbee_unsubscribe(NULL, none), FRISBEE_INVALID);
    CHECK_EQ(frisbee_sub_describe(NULL, none, &info), FRISBEE_INVALID);
    CHECK_EQ(frisbee_sub_next(NULL, &none, &info), FRISBEE_INVALID);
    CHECK_EQ(frisbee_unsubscribe(broker, none), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_sub_describe(broker, none, &info), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_sub_next(broker, &none, &info), FRISBEE_CLOSED); // there are none
    handle.id = UINT64_C(0x7FFFFFFF00000001);
    CHECK_EQ(frisbee_unsubscribe(broker, handle), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_sub_describe(broker, handle, &info), FRISBEE_CLOSED);
    s = subscribe(client, c->client, "a", NULL, "s");
    CHECK_EQ(frisbee_sub_describe(client, s->handle, &info), FRISBEE_INVALID); // its broker knows it, not this pool
    turns(4);
    SAYS(story, "s OK\n");
    CHECK_EQ(frisbee_unsubscribe(client, s->handle), FRISBEE_OK);
    CHECK_EQ(frisbee_unsubscribe(client, s->handle), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_sub_describe(client, s->handle, &info), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_upgrade(client, c->client, FRISBEE_HIJACK_NOW, &silent), FRISBEE_OK);
    turns(2);
    CHECK_EQ(sub_try(s, client, c->client, "a", NULL), FRISBEE_INVALID); // packets no more
    CHECK_EQ(frisbee_publish(client, c->client, "a", "x", 1, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_close(client, c->client, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(4);
    CHECK_EQ(sub_try(s, client, c->client, "a", NULL), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_publish(client, c->client, "a", "x", 1, NULL), FRISBEE_CLOSED);
    end();
}

static void section_9_max_packet_holds_for_messages(void) {
    static char data[1100];
    frisbee_sub_desc desc = like(FRISBEE_SLOW_BLOCK, 0, NULL, false);
    peer *c, *p;
    sub *s, *local;
    begin(4);
    conn_desc.max_packet = 1000;
    pool_desc.max_packet = 1000;
    CHECK_EQ(start(), true);
    c = peer_client();
    p = peer_raw();
    s = subscribe(client, c->client, "a.b", &desc, "s");
    turns(4);
    CHECK_EQ(frisbee_publish(client, c->client, "a.b", data, 996, NULL), FRISBEE_TOO_LARGE); // 2 and the topic go with it
    local = subscribe(broker, FRISBEE_LOCAL, "a.*", NULL, "local");
    CHECK_EQ(frisbee_publish(broker, FRISBEE_LOCAL, "a.b", data, 996, NULL), FRISBEE_OK); // who has no connection can take it; who has, is told
    turns(4);
    CHECK_EQ(local->got, 1);
    CHECK_EQ(s->got, 0);
    CHECK_EQ(info_of(find("a.b", c->conn)).dropped, 1); // also if it blocks: what can never go need not be waited for
    CHECK_EQ(frisbee_publish(client, c->client, "a.b", data, 995, NULL), FRISBEE_OK);
    CHECK_EQ(frisbee_publish(broker, FRISBEE_LOCAL, "a.b", data, 995, NULL), FRISBEE_OK);
    turns(4);
    CHECK_EQ(s->got, 2);
    CHECK_EQ(s->dropped, 1);
    raw_publish(p, 1, "a.b", 0, data, 996);
    turns(4);
    CHECK_EQ(p->closed, 1);
    CHECK_EQ(p->info.reason, FRISBEE_TOO_LARGE);
    CHECK_EQ(s->got, 2);
    end();
}

// >>the wire

static uint8_t some_id[2]; // that the library chose

// Frames are written as on wire v1, in hexadecimal, blanks where they help, '|' between frames, XY for some_id. On v0 they lack their first two
// bytes.
static void hex(mem_bytes *into, frisbee_wire wire, const char *text) {
    int digits = 0, at = 0;
    uint8_t byte = 0;
    for (; *text; text++) {
        if (*text == '|') at = 0;
        if (*text == 'X') mem_append(into, some_id, 2);
        if (*text == ' ' || *text == '|' || *text == 'X' || *text == 'Y') continue;
        byte = (uint8_t)(byte << 4 | (*text <= '9' ? *text - '0' : *text - 'A' + 10));
        if (++digits % 2) continue;
        if (wire == FRISBEE_WIRE_V1 || at >= 2) mem_append(into, &byte, 1);
        at++;
    }
    CHECK_EQ(digits % 2, 0);
}

static void put_hex(peer *p, const char *text) {
    mem_bytes bytes;
    memset(&bytes, 0, sizeof bytes);
    hex(&bytes, p->wire, text);
    mem_put(p->far, bytes.data, bytes.length);
    mem_free(&bytes);
}

#define GETS(p, text) gets_hex(p, text, __LINE__)
static void gets_hex(peer *p, const char *text, int line) { // exactly these bytes have come to a deaf end
    mem_bytes expected, came;
    size_t i;
    memset(&expected, 0, sizeof expected), memset(&came, 0, sizeof came);
    hex(&expected, p->wire, text);
    mem_take(p->far, &came, SIZE_MAX);
    if (!check_that(mem_same(&expected, &came), text, __FILE__, line)) {
        fprintf(stderr, "    got ");
        for (i = 0; i < came.length; i++) fprintf(stderr, "%02X", came.data[i]);
        fprintf(stderr, "\n");
    }
    mem_free(&expected), mem_free(&came);
}

static void promise_9_the_broker_speaks_the_wire_byte_for_byte(void) {
    int k;
    for (k = 0; k < 2; k++) {
        peer *p;
        begin(5);
        CHECK_EQ(start(), true);
        p = peer_new(FRISBEE_ACCEPTOR, k ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
        p->deaf = true;
        put_hex(p, "000F 0007 FF10 0000000E 00 01 00001000 05 612E2A2E63 01 67"); // a.*.c, DROP_OLD, 4096 bytes, group g
        turns(2);
        GETS(p, "000F 0007 FF11 00000001 00");
        CHECK_EQ(info_of(find("a.*.c", p->conn)).limit, 4096);
        CHECK_EQ(info_of(find("a.*.c", p->conn)).slow, OLD);
        put_hex(p, "000F 0009 FF14 0000000B 01 05 612E622E63 78797A7A"); // a.b.c, retained, to be answered
        turns(2);
        GETS(p, "000F 0007 FF15 0000000B 01 05 612E622E63 78797A7A | 000F 0009 FF17 0000000D 00 00000001 0000000000000000");
        put_hex(p, "000F FFFF FF10 0000000B 01 00 00000000 03 612E3E 00"); // a.>, with retained values
        turns(2);
        GETS(p, "000F FFFF FF11 00000001 00 | 000F FFFF FF15 0000000B 03 05 612E622E63 78797A7A"); // retained, and from before
        put_hex(p, "000F 0007 FF12 00000000");
        turns(2);
        GETS(p, "000F 0007 FF13 00000000");
        put_hex(p, "000F 0000 FF14 00000007 00 05 612E622E63"); // no answer asked for, no data
        turns(2);
        GETS(p, "000F FFFF FF15 00000007 00 05 612E622E63");
        put_hex(p, "000F 0005 FF14 00000006 00 04 612E2E62 | 000F 0006 FF10 0000000B 00 00 00000000 03 612E2E 00"); // malformed
        turns(2);
        GETS(p, "000F 0005 FF17 0000000D 02 00000000 0000000000000000 | 000F 0006 FF11 00000001 02");
        put_hex(p, "000F 0006 FF10 00000009 00 05 00000000 01 7A 00 | 000F FFFF FF10 00000009 00 00 00000000 01 7A 00"); // no such policy; id in use
        turns(2);
        GETS(p, "000F 0006 FF11 00000001 02 | 000F FFFF FF11 00000001 05");
        put_hex(p, "000F 0000 FF10 0000000C 00 00 00000000 01 7A 00 AABBCC | 000F FFFF FF12 00000003 AABBCC"); // later bytes
        turns(2);
        GETS(p, "000F 0000 FF11 00000001 00 | 000F FFFF FF13 00000000");
        put_hex(p, "000F 0001 FF10 0000000A FE 00 00000000 02 7A7A 00 | 000F 0000 FF14 00000005 FE 02 7A7A 79 |" // unknown flags
                   "000F 0000 FF14 00000005 FF 02 7A7A 79 | 000F 0001 FF12 00000000");
        turns(2);
        GETS(p, "000F 0001 FF11 00000001 00 | 000F 0001 FF15 00000005 00 02 7A7A 79 |"
                "000F 0001 FF15 00000005 01 02 7A7A 79 | 000F 0001 FF13 00000000");
        put_hex(p, "000F 0000 0000 00000000 | 000F 0000 FF14 00000004 00 01 7A 79"); // a PING is answered as ever; z
        turns(2);
        GETS(p, "000F 0000 0001 00000000 | 000F 0000 FF15 00000004 00 01 7A 79");
        CHECK_EQ(p->closed, 0);
        end();
    }
}

static void promise_9_a_subscriber_is_told_what_it_missed_byte_for_byte(void) {
    peer *p;
    int k;
    begin(6);
    conn_desc.high_water = 50; // one message is in the queue, one waits, and there is no room for another
    CHECK_EQ(start(), true);
    p = peer_raw();
    p->deaf = true;
    p->near->out.capacity = 21;
    put_hex(p, "000F 0007 FF10 00000009 00 00 00000001 01 7A 00");
    turns(2);
    GETS(p, "000F 0007 FF11 00000001 00");
    for (k = 0; k < 4; k++) publish("z", "1234567890123456789012345678901234567890"); // 53 bytes with its header
    publish("z", "ABCD"); // dropped as well: one may wait, and one does
    for (k = 0; k < 2; k++) {
        p->near->out.capacity = SIZE_MAX;
        turns(3);
        if (k) break;
        GETS(p, "000F 0007 FF15 0000002B 00 01 7A 31323334353637383930 31323334353637383930 31323334353637383930 31323334353637383930 |"
                "000F 0007 FF15 0000002B 00 01 7A 31323334353637383930 31323334353637383930 31323334353637383930 31323334353637383930");
        publish("z", "A");
    }
    GETS(p, "000F 0007 FF16 00000008 0000000000000003 | 000F 0007 FF15 00000004 00 01 7A 41"); // where they are missing: behind those that waited
    end();
}

static void promise_9_a_subscriber_speaks_the_wire_byte_for_byte(void) {
    int k;
    for (k = 0; k < 2; k++) {
        frisbee_sub_desc desc = like(FRISBEE_SLOW_DROP_OLD, 4096, "g", true);
        peer *p;
        sub *s;
        frisbee_publish_desc keep;
        const uint8_t *at;
        size_t length;
        begin(7);
        p = client_raw(FRISBEE_CONNECTOR, k ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
        p->deaf = true;
        turns(2);
        GETS(p, "000F 0000 0000 00000000"); // a connector's PING
        s = subscribe(client, p->client, "a.*.c", &desc, "s");
        turns(2);
        at = mem_peek(p->far, &length);
        if (CHECK(length > 4)) memcpy(some_id, at + (k ? 2 : 0), 2); // which id it takes is its own business
        GETS(p, "000F XY FF10 0000000E 01 01 00001000 05 612E2A2E63 01 67");
        put_hex(p, "000F XY FF11 00000003 00 AABB | 000F XY FF16 0000000A 0000000000000005 AABB |" // taken; 5 are lost
                   "000F XY FF15 00000008 03 05 612E622E63 78 | 000F XY FF15 00000007 01 05 612E622E63 |" // one from before, another
                   "000F XY FF16 00000008 0000000000000008 | 000F XY FF15 00000008 00 05 612E622E63 79"); // 3 more
        some_id[1] ^= 0x55;
        put_hex(p, "000F XY FF15 00000008 00 05 612E622E63 7A"); // nobody's
        some_id[1] ^= 0x55;
        turns(2);
        SAYS(story, "s OK\ns a.b.c=x before dropped 5\ns a.b.c=\ns a.b.c=y dropped 3\n");
        CHECK_EQ(frisbee_unsubscribe(client, s->handle), FRISBEE_OK);
        turns(2);
        GETS(p, "000F XY FF12 00000000");
        put_hex(p, "000F XY FF15 00000008 00 05 612E622E63 7A | 000F XY FF13 00000002 AABB"); // what was under way meets nobody
        turns(2);
        SAYS(story, "");
        CHECK_EQ(frisbee_publish(client, p->client, "a.b", "xy", 2, NULL), FRISBEE_OK);
        memset(&keep, 0, sizeof keep);
        keep.retain = true;
        CHECK_EQ(frisbee_publish(client, p->client, "a.b", NULL, 0, &keep), FRISBEE_OK);
        turns(2);
        GETS(p, "000F 0000 FF14 00000007 00 03 612E62 7879 | 000F 0000 FF14 00000005 01 03 612E62");
        CHECK_EQ(publish_confirmed(client, p->client, "a.b", "z", true, "c"), FRISBEE_OK);
        turns(2);
        GETS(p, "000F 0001 FF14 00000006 01 03 612E62 7A"); // ids of calls count from 1
        put_hex(p, "000F 0001 FF17 0000000F 00 00000007 0000000000000009 AABB");
        turns(2);
        SAYS(story, "c OK 7 9\n");
        CHECK_EQ(conn_stats(client, p->client).lost, 9);
        end();
    }
}

static void promise_9_status_on_the_wire_becomes_a_result(void) {
    static const char *const said[] = {"s OK\nc OK 0 0\n", "s REFUSED\nc REFUSED 0 0\n", "s INVALID\nc INVALID 0 0\n",
                                       "s EXHAUSTED\nc EXHAUSTED 0 0\n", "s UNSUPPORTED\nc UNSUPPORTED 0 0\n"};
    unsigned status;
    for (status = 0; status < 5; status++) {
        uint8_t data[13];
        frisbee_packet packet;
        mem_bytes in;
        size_t used;
        peer *p;
        sub *s;
        memset(&in, 0, sizeof in), memset(data, 0, sizeof data);
        begin(8);
        p = client_raw(FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
        p->deaf = true;
        turns(2);
        GETS(p, "000F 0000 0000 00000000");
        s = subscribe(client, p->client, "a", NULL, "s");
        turns(2);
        mem_take(p->far, &in, SIZE_MAX);
        CHECK_EQ(frisbee_decode(FRISBEE_WIRE_V1, in.data, in.length, 0, &packet, &used), FRISBEE_OK);
        data[0] = (uint8_t)status;
        raw(p, SUBSCRIBED, packet.from.id, data, 1);
        CHECK_EQ(publish_confirmed(client, p->client, "a", "z", false, "c"), FRISBEE_OK);
        turns(2);
        raw(p, PUBLISHED, 1, data, 13);
        turns(2);
        SAYS(story, said[status]);
        CHECK_EQ(frisbee_unsubscribe(client, s->handle), status ? FRISBEE_CLOSED : FRISBEE_OK); // what was refused has ended
        mem_free(&in);
        end();
    }
}

static void promise_9_short_payloads_close_the_connection_and_no_other(void) {
    static const struct { unsigned operation; const char *payload; size_t length, needs; } wires[] = {
        {SUBSCRIBE, "\0\1\0\0\x10\0\3a.b\2gh", 13, 13}, {SUBSCRIBE, "\0\1\0\0\x10\0\3a.b\0", 11, 11}, {SUBSCRIBED, "\1", 1, 1},
        {UNSUBSCRIBE, "", 0, 0}, {UNSUBSCRIBED, "", 0, 0}, {PUBLISH, "\0\3a.bxyz", 8, 5}, {MESSAGE, "\0\3a.bxyz", 8, 5},
        {DROPPED, "\0\0\0\0\0\0\0\1", 8, 8}, {PUBLISHED, "\0\0\0\0\1\0\0\0\0\0\0\0\0", 13, 13},
    };
    size_t i, length;
    int kind;
    for (kind = 0; kind < 2; kind++) { // at a broker, and at a pool that is none
        for (i = 0; i < sizeof wires / sizeof *wires; i++) {
            for (length = 0; length <= wires[i].length; length++) {
                peer *p, *other;
                const int before = check_failures;
                begin(9);
                CHECK_EQ(start(), true);
                p = kind ? client_raw(FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1) : peer_raw();
                other = peer_client();
                raw(p, wires[i].operation, 1, wires[i].payload, length);
                turns(6);
                CHECK_EQ(kind ? p->client_closed : p->closed, length < wires[i].needs);
                if (length < wires[i].needs) CHECK_EQ(kind ? p->client_info.reason : p->info.reason, FRISBEE_MALFORMED);
                CHECK_EQ(other->closed + other->client_closed, 0);
                CHECK_EQ(other->client_opened, 1);
                end();
                if (check_failures != before) fprintf(stderr, "    %u bytes of operation %X\n", (unsigned)length, wires[i].operation);
            }
        }
    }
}

static void promise_9_a_connection_that_ends_within_any_byte_does_nothing_by_half(void) {
    mem_bytes bytes;
    size_t cut, ends[5], count = 0;
    memset(&bytes, 0, sizeof bytes);
    frame_subscribe(&bytes, FRISBEE_WIRE_V1, 1, "a.>", RETAIN, OLD, 100, "g"), ends[count++] = bytes.length;
    frame_publish(&bytes, FRISBEE_WIRE_V1, 2, "a.b", RETAIN, "value", 5), ends[count++] = bytes.length;
    frame_publish(&bytes, FRISBEE_WIRE_V1, 0, "a.c", 0, "next", 4), ends[count++] = bytes.length;
    frame(&bytes, FRISBEE_WIRE_V1, UNSUBSCRIBE, 1, NULL, 0), ends[count++] = bytes.length;
    for (cut = 0; cut <= bytes.length; cut++) {
        peer *p;
        sub *s;
        begin(cut + 10);
        CHECK_EQ(start(), true);
        p = peer_raw();
        s = subscribe(broker, FRISBEE_LOCAL, ">", NULL, "s");
        mem_put(p->far, bytes.data, cut);
        turns(2);
        CHECK_EQ(made, cut >= ends[0]);
        CHECK_EQ(s->got, (cut >= ends[1]) + (cut >= ends[2]));
        CHECK_EQ(unmade, cut >= ends[3]);
        mem_reset(p->far, FRISBEE_SYSTEM);
        turns(2);
        CHECK_EQ(unmade, made);
        CHECK_EQ(count_of("a.b"), 1);
        end();
    }
    mem_free(&bytes);
}

// What a log says of each id, by itself: how subscriptions interleave is nobody's business.
static uint64_t hash_by_id(const mem_bytes *log) {
    uint64_t hashes[64], all = 1;
    const char *line;
    size_t i;
    for (i = 0; i < 64; i++) hashes[i] = i;
    for (i = 0; i < log->length; i += strcspn(line, "\n") + 1) {
        size_t id;
        line = (const char *)log->data + i;
        id = (size_t)atoi(line + strcspn(line, "0123456789")) % 32 + (strncmp(line, "published", 9) ? 0 : 32);
        hashes[id] = mem_hash(hashes[id], line, strcspn(line, "\n"));
    }
    for (i = 0; i < 64; i++) all = mem_hash(all, &hashes[i], sizeof hashes[i]);
    return all;
}

// The same bytes in any pieces give the same events and the same answers.
static uint64_t chopped(const mem_bytes *bytes, uint64_t seed, size_t piece, uint64_t *out) {
    uint64_t hash;
    peer *p;
    sub *some;
    begin(seed);
    net.ragged = seed != 0;
    net.fickle = seed ? 40 : 0;
    CHECK_EQ(start(), true);
    hooks_told = true;
    p = peer_raw();
    (void)subscribe(broker, FRISBEE_LOCAL, ">", NULL, "all");
    some = subscribe(broker, FRISBEE_LOCAL, "a.*", NULL, "some");
    some->quiet = true;
    p->near->piece = piece;
    mem_put(p->far, bytes->data, bytes->length);
    UNTIL(200000, !mem_size(&p->far->out) && !frisbee_queued(broker, p->conn) && !mem_size(&p->near->out));
    turns(5);
    CHECK_EQ(p->closed, 0);
    mem_append(&p->log, "", 1);
    p->log.length--;
    *out = hash_by_id(&p->log);
    hash = mem_hash(mem_hash(some->got, story.data, story.length), hooked.data, hooked.length);
    CHECK(story.length && hooked.length && p->log.length);
    end();
    return hash;
}

static void promise_9_whole_is_chopped(void) {
    static const char *const topics[] = {"a", "a.b", "a.c", "b.b", "a.b.c", "a..", "*.b"};
    static const char *const patterns[] = {"a", "a.*", "*.b", ">", "a.>", "b", "a.>.b"};
    uint64_t seed, events_whole, out_whole, events_chopped, out_chopped;
    for (seed = 1; seed <= 6; seed++) {
        mem_bytes bytes;
        mem_net dice;
        int k;
        memset(&bytes, 0, sizeof bytes), memset(&dice, 0, sizeof dice);
        dice.random = seed * 7919;
        for (k = 0; k < 300; k++) {
            const unsigned id = 1 + mem_below(&dice, 12);
            switch (mem_below(&dice, 6)) {
            case 0:
            case 1:
                frame_subscribe(&bytes, FRISBEE_WIRE_V1, id, patterns[mem_below(&dice, 7)], mem_below(&dice, 2), mem_below(&dice, 6), 0,
                                mem_below(&dice, 3) ? NULL : "g");
                break;
            case 2: frame(&bytes, FRISBEE_WIRE_V1, UNSUBSCRIBE, id, NULL, 0); break;
            default: frame_publish(&bytes, FRISBEE_WIRE_V1, mem_below(&dice, 2) * id, topics[mem_below(&dice, 7)], mem_below(&dice, 4) == 0, "data",
                                   mem_below(&dice, 5));
            }
        }
        events_whole = chopped(&bytes, 0, 0, &out_whole);
        for (k = 1; k <= 5; k++) {
            events_chopped = chopped(&bytes, seed * 10 + (uint64_t)k, k < 3 ? (size_t)k : 0, &out_chopped);
            CHECK(events_chopped == events_whole);
            CHECK(out_chopped == out_whole);
        }
        mem_free(&bytes);
    }
}

// >>matching

enum { ORACLE_SUBS = 120 };

typedef struct model { // what the oracle knows of a subscription
    bool live;
    char topic[40], group[4];
    frisbee_sub handle;
    sub *local;
    peer *at; // else, under this id
    unsigned id;
    uint32_t got, expected;
} model;

static bool matches(const char *pattern, const char *topic) { // both are well formed
    size_t a = strcspn(pattern, "."), b = strcspn(topic, ".");
    if (*pattern == '>') return true;
    if (!(a == 1 && *pattern == '*') && (a != b || memcmp(pattern, topic, a))) return false;
    if (!pattern[a] || !topic[b]) return !pattern[a] && !topic[b];
    return matches(pattern + a + 1, topic + b + 1);
}

static void random_topic(char *into, bool pattern) {
    static const char *const tokens[] = {"a", "b", "ab", "\xC3\xA4", "c"};
    uint32_t count = 1 + mem_below(&net, 4), k;
    *into = 0;
    for (k = 0; k < count; k++) {
        const char *token = tokens[mem_below(&net, 5)];
        if (pattern && mem_below(&net, 4) == 0) token = "*";
        if (pattern && k + 1 == count && mem_below(&net, 5) == 0) token = ">";
        if (k) strcat(into, ".");
        strcat(into, token);
    }
}

static void promise_9_matching_agrees_with_an_oracle(void) {
    static model models[ORACLE_SUBS];
    static const char *const groups[] = {"g", "h", "\xC3\xA9"};
    uint64_t seed;
    for (seed = 1; seed <= 4; seed++) {
        peer *raws[3], *c;
        int round, k, i, n;
        begin(seed * 31);
        CHECK_EQ(start(), true);
        memset(models, 0, sizeof models);
        for (k = 0; k < 3; k++) raws[k] = peer_new(FRISBEE_ACCEPTOR, k ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0), raws[k]->quiet = true;
        c = peer_client();
        turns(3);
        for (round = 0; round < 1500; round++) {
            char topic[40];
            model *m = &models[mem_below(&net, ORACLE_SUBS)];
            uint32_t expected = 0, groups_hit[3] = {0, 0, 0}, groups_got[3] = {0, 0, 0};
            if (mem_below(&net, 3)) { // change a subscription
                const uint32_t where = mem_below(&net, 5);
                if (m->live) {
                    if (m->local) CHECK_EQ(frisbee_unsubscribe(m->local->pool, m->handle), FRISBEE_OK);
                    else if (mem_below(&net, 2)) raw(m->at, UNSUBSCRIBE, m->id, NULL, 0);
                    else CHECK_EQ(frisbee_unsubscribe(broker, m->handle), FRISBEE_OK);
                    m->live = false;
                    turns(m->local && m->local->pool == broker ? 0 : 3);
                    continue;
                }
                memset(m, 0, sizeof *m);
                random_topic(m->topic, true);
                if (mem_below(&net, 4) == 0) strcpy(m->group, groups[mem_below(&net, 3)]);
                m->live = true;
                if (where < 2) {
                    frisbee_sub_desc desc = like(FRISBEE_SLOW_DROP_NEW, 0, *m->group ? m->group : NULL, false);
                    m->local = subscribe(where ? client : broker, where ? c->client : FRISBEE_LOCAL, m->topic, &desc, "s");
                    m->local->quiet = true;
                    m->handle = m->local->handle;
                    turns(where ? 3 : 0);
                } else {
                    frisbee_sub at;
                    frisbee_sub_info info;
                    m->at = raws[where - 2];
                    m->id = 100 + (unsigned)(m - models); // never one in use
                    raw_subscribe(m->at, m->id, m->topic, 0, NEW, 0, *m->group ? m->group : NULL);
                    turns(2);
                    for (at.id = 0; frisbee_sub_next(broker, &at, &info) == FRISBEE_OK;) { // the one that no other model has
                        for (i = 0; i < ORACLE_SUBS && !(models[i].live && models[i].at && models[i].handle.id == at.id); i++) {}
                        if (i == ORACLE_SUBS && info.conn.id == m->at->conn.id) m->handle = at;
                    }
                    CHECK(m->handle.id != 0);
                    CHECK(!strcmp(info_of(m->handle).topic, m->topic));
                }
                continue;
            }
            random_topic(topic, false);
            for (i = 0; i < ORACLE_SUBS; i++) {
                if (!models[i].live || !matches(models[i].topic, topic)) continue;
                for (k = 0; k < 3 && strcmp(models[i].group, groups[k]); k++) {}
                if (k < 3) groups_hit[k] = 1;
                else expected++, models[i].expected++;
            }
            expected += groups_hit[0] + groups_hit[1] + groups_hit[2];
            CHECK_EQ(count_of(topic), expected);
            for (k = 0; k < 3; k++) raws[k]->numbers.length = 0;
            if (mem_below(&net, 2)) CHECK_EQ(publish_number(topic, (uint32_t)round, 8), FRISBEE_OK);
            else { // PUBLISHED must say as many
                char line[60];
                const unsigned id = mem_below(&net, 2) * 9;
                raw_number(raws[0], id, topic, (uint32_t)round, 8);
                turns(2);
                (void)snprintf(line, sizeof line, "published 9 0 %lu 0\n", (unsigned long)expected);
                SAYS(raws[0]->log, id ? line : "");
            }
            turns(3);
            for (k = 0; k < 3; k++) {
                for (n = 0; n < (int)(raws[k]->numbers.length / sizeof(heard)); n++) {
                    heard h;
                    memcpy(&h, raws[k]->numbers.data + (size_t)n * sizeof h, sizeof h);
                    CHECK_EQ(h.number, round);
                    if (CHECK(h.id >= 100 && h.id < 100 + ORACLE_SUBS && models[h.id - 100].live)) models[h.id - 100].got++;
                }
            }
            for (i = 0; i < ORACLE_SUBS; i++) {
                model *each = &models[i];
                uint32_t have;
                if (!each->live) continue;
                have = each->local ? each->local->got : each->got;
                if (!*each->group) CHECK_EQ(have, each->expected);
                else if (have != each->expected) {
                    for (k = 0; k < 2 && strcmp(each->group, groups[k]); k++) {}
                    groups_got[k]++;
                    CHECK(matches(each->topic, topic));
                    CHECK_EQ(have, each->expected + 1);
                    each->expected = have;
                }
            }
            for (k = 0; k < 3; k++) CHECK_EQ(groups_got[k], groups_hit[k]);
            if (round % 50 == 0) { // the broker lists exactly these
                frisbee_sub at;
                frisbee_sub_info info;
                uint32_t listed = 0, live = 0;
                for (at.id = 0; frisbee_sub_next(broker, &at, &info) == FRISBEE_OK && listed < 1000; listed++) CHECK(info.sub.id == at.id);
                for (i = 0; i < ORACLE_SUBS; i++) live += models[i].live;
                CHECK_EQ(listed, live);
                CHECK_EQ(pool_stats(broker).subs, live);
            }
        }
        CHECK_EQ(pool_stats(broker).lost, 0);
        end();
    }
}

static void promise_9_each_matching_subscription_gets_it_once_under_its_own_handle(void) {
    peer *c, *p;
    begin(20);
    CHECK_EQ(start(), true);
    c = peer_client();
    p = peer_raw();
    (void)subscribe(broker, FRISBEE_LOCAL, "a.b", NULL, "L1");
    (void)subscribe(broker, FRISBEE_LOCAL, "a.b", NULL, "L2");
    (void)subscribe(client, c->client, "a.b", NULL, "C1"); // before the connection is open: asked for when it opens
    (void)subscribe(client, c->client, "a.*", NULL, "C2");
    (void)subscribe(client, c->client, ">", NULL, "C3");
    (void)subscribe(client, c->client, "a.c", NULL, "C4");
    raw_subscribe(p, 1, "a.*", 0, NEW, 0, NULL);
    raw_subscribe(p, 2, "*.b", 0, NEW, 0, NULL);
    turns(4);
    SAYS_ALL(story, "C1 OK\nC2 OK\nC3 OK\nC4 OK\n");
    SAYS(p->log, "subscribed 1 0\nsubscribed 2 0\n");
    CHECK_EQ(count_of("a.b"), 7);
    CHECK_EQ(publish_confirmed(client, c->client, "a.b", "x", false, "c"), FRISBEE_OK);
    turns(4);
    SAYS_ALL(story, "L1 a.b=x\nL2 a.b=x\nC1 a.b=x\nC2 a.b=x\nC3 a.b=x\nc OK 7 0\n");
    SAYS_ALL(p->log, "1 a.b=x\n2 a.b=x\n");
    end();
}

static void promise_9_groups_take_turns_over_different_patterns(void) {
    static const char *const patterns[] = {"g.x", "g.*", ">", "*.x", "g.>"};
    frisbee_sub_desc desc = like(FRISBEE_SLOW_DROP_NEW, 0, "workers", false), other = like(FRISBEE_SLOW_DROP_NEW, 0, "others", false);
    sub *s[5], *lone, *apart;
    peer *c;
    int k, n;
    begin(21);
    CHECK_EQ(start(), true);
    c = peer_client();
    for (k = 0; k < 5; k++) {
        s[k] = subscribe(k & 1 ? client : broker, k & 1 ? c->client : FRISBEE_LOCAL, patterns[k], &desc, "s");
        s[k]->quiet = true;
    }
    lone = subscribe(broker, FRISBEE_LOCAL, "g.x", &other, "lone");
    apart = subscribe(broker, FRISBEE_LOCAL, "g.x", NULL, "apart");
    lone->quiet = apart->quiet = true;
    turns(4);
    CHECK_EQ(count_of("g.x"), 3); // two groups and one by itself
    CHECK_EQ(count_of("q"), 1);
    for (n = 1; n <= 50; n++) {
        uint32_t sum = 0;
        publish("g.x", "1");
        turns(3);
        for (k = 0; k < 5; k++) sum += s[k]->got, CHECK(s[k]->got <= (uint32_t)(n + 4) / 5); // in turn
        CHECK_EQ(sum, n);
    }
    for (k = 0; k < 5; k++) CHECK_EQ(s[k]->got, 10);
    CHECK_EQ(lone->got, 50);
    CHECK_EQ(apart->got, 50);
    for (n = 0; n < 10; n++) publish("q", "1"); // one member alone matches
    turns(3);
    CHECK_EQ(s[2]->got, 20);
    CHECK_EQ(frisbee_unsubscribe(broker, s[2]->handle), FRISBEE_OK);
    CHECK_EQ(frisbee_unsubscribe(client, s[1]->handle), FRISBEE_OK);
    turns(3);
    for (n = 0; n < 30; n++) publish("g.x", "1");
    turns(3);
    CHECK_EQ(s[0]->got + s[3]->got + s[4]->got, 60);
    for (k = 0; k < 5; k++) CHECK_EQ(s[k]->got, k == 2 || k == 1 ? (k == 2 ? 20 : 10) : 20);
    end();
}

static void promise_9_groups_prefer_members_that_are_not_full(void) {
    int slow;
    for (slow = NEW; slow <= BLOCK; slow++) {
        frisbee_sub stuck;
        peer *deaf, *well;
        uint32_t n;
        begin(22);
        conn_desc.high_water = 100;
        CHECK_EQ(start(), true);
        deaf = peer_raw(), well = peer_raw();
        deaf->near->out.capacity = 200;
        well->quiet = deaf->quiet = true;
        raw_subscribe(deaf, 1, "g.*", 0, (unsigned)slow, 500, "g");
        raw_subscribe(well, 1, ">", 0, (unsigned)slow, 500, "g");
        turns(2);
        deaf->deaf = true;
        for (n = 0; n < 100; n++) {
            char topic[16];
            (void)snprintf(topic, sizeof topic, "g.%02lu", (unsigned long)n); // each its own, so that the latest fill up, too
            CHECK_EQ(publish_number(topic, n, 40), FRISBEE_OK); // also of those that block: somebody is not full
            turn();
        }
        turns(4);
        stuck = find("g.*", deaf->conn);
        CHECK_EQ(info_of(stuck).dropped, 0);
        CHECK_EQ(info_of(stuck).waiting, 4); // 500 / (40 + 4 + 64)
        CHECK_EQ(info_of(stuck).waiting + info_of(stuck).delivered + well->got, 100);
        CHECK(well->got > 80);
        CHECK_EQ(pool_stats(broker).lost, 0);
        CHECK_EQ(deaf->closed + well->closed, 0);
        deaf->deaf = false;
        turns(10);
        CHECK_EQ(deaf->got + well->got, 100);
        end();
    }
}

static void promise_9_groups_of_many_lose_nothing_uncounted(void) {
    enum { MEMBERS = 40 };
    uint64_t seed;
    for (seed = 1; seed <= 4; seed++) {
        peer *members[MEMBERS];
        frisbee_sub at;
        frisbee_sub_info info;
        uint32_t n, came = 0, k, total = 0, dropped = 0;
        begin(seed * 23);
        conn_desc.high_water = 100;
        CHECK_EQ(start(), true);
        for (k = 0; k < MEMBERS; k++) {
            members[k] = peer_raw();
            members[k]->quiet = true;
            raw_subscribe(members[k], 1, k % 2 ? "g.*" : ">", 0, k % 3, 200, "g");
        }
        turns(2);
        for (k = 0; k < MEMBERS; k++)
            if (mem_below(&net, 40) > seed * 8) members[k]->deaf = true, members[k]->near->out.capacity = 60;
        for (n = 0; n < 1500; n++) {
            CHECK_EQ(publish_number("g.x", n, 40), FRISBEE_OK);
            CHECK_EQ(count_of("g.x"), 1);
            if (n % 4 == 0) turn();
        }
        turns(3);
        for (at.id = 0; frisbee_sub_next(broker, &at, &info) == FRISBEE_OK;) {
            total += (uint32_t)(info.delivered + info.dropped) + info.waiting;
            dropped += (uint32_t)info.dropped;
        }
        CHECK_EQ(total, 1500); // one member each
        CHECK_EQ(dropped, pool_stats(broker).lost);
        for (k = 0; k < MEMBERS; k++) members[k]->deaf = false, members[k]->near->out.capacity = SIZE_MAX;
        turns(10);
        for (k = 0; k < MEMBERS; k++) came += members[k]->got;
        CHECK_EQ(came + dropped, 1500);
        end();
    }
}

// >>retained values

static void promise_9_retained_values_come_first_and_only_when_asked_for(void) {
    frisbee_sub_desc with = like(FRISBEE_SLOW_DROP_NEW, 0, NULL, true);
    peer *p, *c;
    sub *s;
    begin(30);
    CHECK_EQ(start(), true);
    p = peer_raw(), c = peer_client();
    turns(4);
    retain("a.b", "one");
    publish("a.c", "not kept");
    raw_subscribe(p, 1, "a.*", 0, NEW, 0, NULL);
    raw_subscribe(p, 2, "a.*", RETAIN, NEW, 0, NULL);
    turns(2);
    SAYS(p->log, "subscribed 1 0\nsubscribed 2 0\n2 a.b=one retain before\n");
    retain("a.b", "two"); // replaces it
    turns(2);
    SAYS(p->log, "1 a.b=two retain\n2 a.b=two retain\n");
    publish("a.b", "passing"); // does not
    turns(2);
    SAYS(p->log, "1 a.b=passing\n2 a.b=passing\n");
    s = subscribe(broker, FRISBEE_LOCAL, "a.b", &with, "s");
    publish("a.b", "next");
    turns(2);
    SAYS(story, "s a.b=two before\ns a.b=next\n");
    CHECK_EQ(info_of(s->handle).delivered, 2);
    (void)subscribe(client, c->client, "a.>", &with, "c");
    turns(4);
    SAYS(story, "c OK\nc a.b=two before\n");
    p->log.length = 0;
    retain("a.b", ""); // cleared, and passed on like any other
    turns(4);
    SAYS(p->log, "1 a.b= retain\n2 a.b= retain\n");
    story.length = 0;
    (void)subscribe(broker, FRISBEE_LOCAL, "a.>", &with, "e");
    raw_publish(p, 0, "a.x", RETAIN, "by a peer", 9);
    turns(4);
    CHECK_EQ(frisbee_unsubscribe(broker, s->handle), FRISBEE_OK);
    p->log.length = 0;
    raw_subscribe(p, 3, ">", RETAIN, NEW, 0, NULL);
    turns(2);
    SAYS(p->log, "subscribed 3 0\n3 a.x=by a peer retain before\n");
    end();
}

static void promise_9_wildcards_find_every_retained_value_once(void) {
    uint64_t seed;
    for (seed = 1; seed <= 6; seed++) {
        static char values[400][40];
        char topic[40];
        int count = 0, k, i, round;
        peer *p;
        begin(seed * 17);
        rules.max_conn_subs = 4096;
        CHECK_EQ(start(), true);
        p = peer_raw();
        p->quiet = true;
        for (k = 0; k < 300; k++) {
            random_topic(topic, false);
            for (i = 0; i < count && strcmp(values[i], topic); i++) {}
            if (mem_below(&net, 4) == 0) { // clear it, whether it is there or not
                retain(topic, "");
                if (i < count) memmove(values[i], values[--count], sizeof *values);
            } else {
                CHECK_EQ(publish_as(topic, "1234", true), FRISBEE_OK);
                if (i == count) strcpy(values[count++], topic);
            }
        }
        for (round = 0; round < 60; round++) {
            uint32_t expected = 0;
            random_topic(topic, true);
            for (i = 0; i < count; i++) expected += matches(topic, values[i]);
            p->got = 0;
            raw_subscribe(p, (unsigned)round, topic, RETAIN, NEW, 0, NULL);
            turns(2);
            CHECK_EQ(p->got, expected);
            CHECK_EQ(info_of(find(topic, p->conn)).delivered, expected);
            raw(p, UNSUBSCRIBE, (unsigned)round, NULL, 0);
            turns(2);
        }
        CHECK(count > 20);
        end();
    }
}

static void promise_9_retained_values_are_bounded(void) {
    peer *c, *p;
    int k;
    begin(31);
    rules.max_retained = 3 * (512 + 3 + 10); // three values of ten bytes
    CHECK_EQ(start(), true);
    c = peer_client(), p = peer_raw();
    raw_subscribe(p, 1, ">", 0, NEW, 0, NULL);
    turns(4);
    for (k = 0; k < 4; k++) {
        char topic[4] = "t.0";
        topic[2] = (char)('0' + k);
        CHECK_EQ(publish_confirmed(client, c->client, topic, "0123456789", true, topic[2] < '3' ? "c" : "full"), FRISBEE_OK);
        turns(4);
    }
    mem_append(&story, "", 1);
    CHECK(!strncmp((const char *)story.data, "c OK 1 0\nc OK 1 0\nc OK 1 0\nfull EXHAUSTED", 40)); // passed on, but not kept
    story.length = 0;
    SAYS(p->log, "subscribed 1 0\n1 t.0=0123456789 retain\n1 t.1=0123456789 retain\n1 t.2=0123456789 retain\n1 t.3=0123456789 retain\n");
    CHECK_EQ(publish_as("t.4", "0123456789", true), FRISBEE_OK); // a function that passed it on has not failed
    turns(2);
    SAYS(p->log, "1 t.4=0123456789 retain\n");
    retain("t.1", "abcdefghij"); // in the room of the value that it replaces
    retain("t.0", "");
    retain("t.5", "x"); // in the room that became free
    turns(2);
    p->log.length = 0;
    raw_subscribe(p, 2, "t.*", RETAIN, NEW, 0, NULL);
    turns(2);
    SAYS_ALL(p->log, "subscribed 2 0\n2 t.1=abcdefghij retain before\n2 t.2=0123456789 retain before\n2 t.5=x retain before\n");
    // A value that can be kept no more is not the last one any more, either.
    retain("t.2", "0123456789012345678901234567890123456789");
    turns(2);
    p->log.length = 0;
    raw_subscribe(p, 3, "t.2", RETAIN, NEW, 0, NULL);
    turns(2);
    SAYS(p->log, "subscribed 3 0\n");
    end();
}

static void promise_9_retained_values_for_a_slow_one_follow_its_policy(void) {
    static const frisbee_slow slows[] = {FRISBEE_SLOW_DROP_NEW, FRISBEE_SLOW_DROP_OLD, FRISBEE_SLOW_LATEST};
    size_t which;
    for (which = 0; which < 3; which++) {
        frisbee_sub_info info;
        char topic[16];
        peer *p;
        int k;
        begin(32);
        conn_desc.high_water = 300;
        CHECK_EQ(start(), true);
        for (k = 0; k < 100; k++) (void)snprintf(topic, sizeof topic, "t.%02d", k), retain(topic, "0123456789");
        p = peer_raw();
        p->near->out.capacity = 50;
        p->deaf = p->quiet = true;
        raw_subscribe(p, 1, "t.*", RETAIN, (unsigned)slows[which], 10 * (COST + 4 + 10), NULL);
        turns(3);
        info = info_of(find("t.*", p->conn));
        CHECK_EQ(info.delivered + info.dropped + info.waiting, 100);
        CHECK(info.dropped > 60 && info.waiting <= 10);
        p->deaf = false;
        turns(50);
        publish("t.x", "after them");
        turns(3);
        CHECK_EQ(p->got + p->dropped[1], 101);
        CHECK_EQ(p->dropped[1], info_of(find("t.*", p->conn)).dropped);
        end();
    }
}

// >>overload

// A message that waits, in the model; `dropped`: how many were dropped before it, but for those that had waited.
typedef struct held { uint32_t number, dropped; size_t cost; int topic; } held;

typedef struct ledger { // one subscription against its model
    frisbee_sub handle;
    frisbee_slow slow;
    uint32_t limit, published, delivered, dropped, aged, waiting; // aged: of dropped, those that had waited
    size_t bytes;
    held line[600];
    mem_bytes expected; // of `heard`
} ledger;

enum { LEDGERS = 5 };

static void ledger_pop(ledger *l, bool delivers, uint32_t id) {
    heard h;
    l->bytes -= l->line[0].cost;
    if (delivers) {
        h.id = id, h.number = l->line[0].number, h.dropped = l->line[0].dropped + l->aged;
        mem_append(&l->expected, &h, sizeof h);
        l->delivered++;
    } else {
        l->dropped++, l->aged++;
    }
    memmove(l->line, l->line + 1, --l->waiting * sizeof *l->line);
}

// One message of a connection may always wait; else there must be room in the subscription, but for its first, and in the connection.
static bool ledger_room(const ledger *l, held m, size_t all, size_t queue_limit) {
    if (!all) return true;
    return (!l->waiting || l->bytes + m.cost <= l->limit) && all + m.cost <= queue_limit;
}

// What the manual says about a message that cannot go straight into the queue. False: the publisher has to wait.
static bool ledger_keep(ledger *l, held m, size_t *all, size_t queue_limit) {
    uint32_t k;
    if (l->slow == FRISBEE_SLOW_LATEST) {
        for (k = 0; k < l->waiting; k++) {
            if (l->line[k].topic != m.topic) continue;
            m.dropped = l->line[k].dropped;
            l->line[k] = m; // of the same size in these tests
            l->dropped++, l->aged++;
            return true;
        }
    }
    if (l->slow == FRISBEE_SLOW_BLOCK && !ledger_room(l, m, *all, queue_limit)) return false;
    while (l->slow != FRISBEE_SLOW_DROP_NEW && l->waiting && !ledger_room(l, m, *all, queue_limit)) {
        *all -= l->line[0].cost;
        ledger_pop(l, false, 0);
    }
    if (!ledger_room(l, m, *all, queue_limit)) {
        l->dropped++;
        return true;
    }
    if (!CHECK(l->waiting < sizeof l->line / sizeof *l->line)) return true;
    m.dropped = l->dropped - l->aged;
    l->line[l->waiting++] = m;
    l->bytes += m.cost;
    *all += m.cost;
    return true;
}

// A connection with a subscription of each policy (but CLOSE, which ends it), read at random. After each step each of them agrees with its
// model: how many messages were delivered, dropped and wait, in how many bytes; in the end, which ones came, and what was told before each.
static void promise_9_every_message_is_delivered_waits_or_is_counted(void) {
    static ledger ledgers[LEDGERS];
    static const frisbee_slow slows[LEDGERS] = {FRISBEE_SLOW_DROP_NEW, FRISBEE_SLOW_DROP_OLD, FRISBEE_SLOW_LATEST, FRISBEE_SLOW_BLOCK,
                                                FRISBEE_SLOW_DROP_OLD};
    uint64_t seed;
    for (seed = 1; seed <= 24; seed++) {
        size_t memory, peak = 0;
        const int failed = check_failures + 10;
        uint32_t number = 0, k, i, sum_dropped = 0, sum_delivered = 0, sum_published = 0, blocked = 0;
        int round;
        frisbee_stats stats;
        peer *p;
        begin(seed * 101);
        conn_desc.high_water = 200 + mem_below(&net, 1500);
        conn_desc.low_water = conn_desc.high_water / 4;
        conn_desc.max_packet = 1024;
        conn_desc.queue_limit = 2048 + mem_below(&net, 6000);
        CHECK_EQ(start(), true);
        p = peer_new(FRISBEE_ACCEPTOR, seed & 1 ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_V1);
        p->deaf = p->quiet = true;
        p->near->out.capacity = 100 + mem_below(&net, 900);
        memset(ledgers, 0, sizeof ledgers);
        for (k = 0; k < LEDGERS; k++) {
            char pattern[16];
            ledger *l = &ledgers[k];
            (void)snprintf(pattern, sizeof pattern, "%lu.>", (unsigned long)k);
            l->slow = slows[k];
            l->limit = mem_below(&net, 4) ? 100 + mem_below(&net, 3000) : 1 + mem_below(&net, 50); // also less than a message
            raw_subscribe(p, k, pattern, 0, (unsigned)l->slow, l->limit, NULL);
            turns(2);
            hear(p, SIZE_MAX);
            l->handle = find(pattern, p->conn);
        }
        memory = pool_stats(broker).memory;
        for (round = 0; round < 1500; round++) {
            const uint32_t dice = mem_below(&net, 12);
            if (dice == 0) turn();
            else if (dice == 1) hear(p, 1 + mem_below(&net, 1200));
            else {
                const uint32_t at = mem_below(&net, LEDGERS);
                const size_t length = at == 2 ? 40 : 4 + mem_below(&net, mem_below(&net, 8) ? 100 : 700);
                ledger *l = &ledgers[at];
                const frisbee_sub_info before = info_of(l->handle);
                const size_t queued = frisbee_queued(broker, p->conn);
                frisbee_sub_info after;
                char topic[16];
                frisbee_result result;
                held m;
                size_t all = 0;
                m.topic = (int)mem_below(&net, 12);
                (void)snprintf(topic, sizeof topic, "%lu.%02d", (unsigned long)at, m.topic);
                m.number = number;
                m.cost = COST + strlen(topic) + length;
                for (k = 0; k < LEDGERS; k++) all += ledgers[k].bytes;
                result = publish_number(topic, number, length);
                after = info_of(l->handle);
                if (queued > conn_desc.high_water || before.waiting) CHECK_EQ(after.delivered, before.delivered);
                if (queued <= conn_desc.high_water && !all) CHECK_EQ(after.delivered, before.delivered + 1); // nobody waits: straight into the queue
                if (after.delivered > before.delivered) {
                    CHECK_EQ(result, FRISBEE_OK);
                    CHECK_EQ(l->waiting, 0);
                    m.dropped = l->dropped - l->aged;
                    l->line[l->waiting++] = m;
                    l->bytes += m.cost;
                    ledger_pop(l, true, at);
                } else if (!ledger_keep(l, m, &all, conn_desc.queue_limit)) {
                    CHECK_EQ(result, FRISBEE_AGAIN);
                    blocked++;
                    continue;
                }
                CHECK_EQ(result, FRISBEE_OK);
                l->published++;
                number++;
            }
            for (k = 0; k < LEDGERS; k++) { // a turn hands over what waits, in order, and drops nothing
                ledger *l = &ledgers[k];
                const frisbee_sub_info info = info_of(l->handle);
                while (l->delivered < info.delivered && CHECK(l->waiting > 0)) ledger_pop(l, true, k);
                CHECK_EQ(info.dropped, l->dropped);
                CHECK_EQ(info.waiting, l->waiting);
                CHECK_EQ(info.waiting_bytes, l->bytes);
                CHECK_EQ(info.delivered + info.dropped + info.waiting, l->published);
                CHECK(info.waiting_bytes <= l->limit || info.waiting == 1);
            }
            if (pool_stats(broker).memory > peak) peak = pool_stats(broker).memory;
            if (check_failures > failed) break;
        }
        CHECK(peak <= memory + 40000 + 6 * (conn_desc.queue_limit + conn_desc.high_water)); // overheads of small messages; published was more
        p->deaf = false;
        turns(100);
        for (k = 0; k < LEDGERS; k++) { // all is read: one more, and each subscription has been told everything
            ledger *l = &ledgers[k];
            char topic[16];
            heard h;
            (void)snprintf(topic, sizeof topic, "%lu.00", (unsigned long)k);
            while (l->waiting) ledger_pop(l, true, k);
            CHECK_EQ(publish_number(topic, number, 40), FRISBEE_OK);
            h.id = k, h.number = number++, h.dropped = l->dropped;
            mem_append(&l->expected, &h, sizeof h);
            l->published++, l->delivered++;
        }
        turns(4);
        for (k = 0; k < LEDGERS; k++) {
            ledger *l = &ledgers[k];
            const frisbee_sub_info info = info_of(l->handle);
            mem_bytes came;
            memset(&came, 0, sizeof came);
            for (i = 0; i < p->numbers.length / sizeof(heard); i++) {
                heard h;
                memcpy(&h, p->numbers.data + i * sizeof h, sizeof h);
                if (h.id == k) mem_append(&came, &h, sizeof h);
            }
            CHECK(mem_same(&came, &l->expected));
            CHECK_EQ(came.length / sizeof(heard) + p->dropped[k], l->published); // what came, and what was told to be lost
            CHECK_EQ(info.delivered, l->delivered);
            CHECK_EQ(info.dropped, l->dropped);
            sum_dropped += l->dropped, sum_delivered += l->delivered, sum_published += l->published;
            mem_free(&came), mem_free(&l->expected);
        }
        stats = pool_stats(broker);
        CHECK_EQ(stats.published, sum_published);
        CHECK_EQ(stats.delivered, sum_delivered);
        CHECK_EQ(stats.lost, sum_dropped);
        CHECK_EQ(conn_stats(broker, p->conn).delivered, sum_delivered);
        CHECK(sum_dropped > 100 && blocked > 0);
        end();
        if (check_failures > failed) break;
    }
}

static bool numbers_are(const peer *p, const uint32_t *numbers, size_t count) {
    size_t i;
    if (p->numbers.length != count * sizeof(heard)) return false;
    for (i = 0; i < count; i++) {
        heard h;
        memcpy(&h, p->numbers.data + i * sizeof h, sizeof h);
        if (h.number != numbers[i]) return false;
    }
    return true;
}

// Ten thousand messages to somebody who does not read, on eight topics in turn: which ones are there when it reads again?
static void promise_9_which_messages_survive(void) {
    enum { COUNT = 10000, WAIT = 20 };
    static uint32_t expected[COUNT];
    static const frisbee_slow slows[] = {FRISBEE_SLOW_DROP_NEW, FRISBEE_SLOW_DROP_OLD, FRISBEE_SLOW_LATEST};
    size_t which;
    for (which = 0; which < 3; which++) {
        peer *p, *well;
        frisbee_sub_info info;
        char topic[4] = "t.0";
        uint32_t n, count = 0, early;
        size_t memory = 0;
        begin(40);
        conn_desc.high_water = 1000;
        CHECK_EQ(start(), true);
        p = peer_raw(), well = peer_raw();
        p->quiet = well->quiet = true;
        raw_subscribe(p, 1, "t.*", 0, (unsigned)slows[which], WAIT * (COST + 3 + 20), NULL);
        raw_subscribe(well, 1, ">", 0, (unsigned)slows[which], 0, NULL);
        turns(2);
        p->deaf = true;
        p->near->out.capacity = 300;
        for (n = 0; n < COUNT; n++) {
            topic[2] = (char)('0' + n % 8);
            CHECK_EQ(publish_number(topic, n, 20), FRISBEE_OK);
            if (n % 10 == 9) turn();
            if (n < 400 && heap.bytes > memory) memory = heap.bytes;
            if (!CHECK(heap.bytes <= memory + 2000)) break; // one that never reads costs what it may, and no more
        }
        info = info_of(find("t.*", p->conn));
        early = (uint32_t)info.delivered;
        CHECK(early > 15 && early < 60);
        CHECK_EQ(info.waiting, which == 2 ? 8 : WAIT);
        CHECK_EQ(info.delivered + info.waiting + info.dropped, COUNT);
        for (n = 0; n < early; n++) expected[count++] = n;
        if (which == 0) for (n = early; n < early + WAIT; n++) expected[count++] = n; // the first that found room
        if (which == 1) for (n = COUNT - WAIT; n < COUNT; n++) expected[count++] = n; // the last
        if (which == 2) for (n = early; n < early + 8; n++) expected[count++] = COUNT - 8 + n % 8; // of each topic the last, in the first's place
        p->deaf = false;
        turns(20);
        CHECK(numbers_are(p, expected, count));
        CHECK_EQ(publish_number("t.0", COUNT, 20), FRISBEE_OK);
        turns(2);
        CHECK_EQ(p->got + p->dropped[1], COUNT + 1);
        CHECK_EQ(p->dropped[1], info.dropped);
        CHECK_EQ(well->got, COUNT + 1); // the others do not notice
        CHECK_EQ(well->dropped[1], 0);
        for (n = 0; n <= COUNT; n++) {
            heard h;
            memcpy(&h, well->numbers.data + n * sizeof h, sizeof h);
            if (!CHECK_EQ(h.number, n)) break;
        }
        end();
    }
}

static void promise_9_latest_keeps_the_place_and_the_last_value(void) {
    peer *both[2];
    int k;
    begin(41);
    conn_desc.high_water = 1;
    CHECK_EQ(start(), true);
    for (k = 0; k < 2; k++) both[k] = peer_raw(), raw_subscribe(both[k], 1, k ? "b" : ">", 0, LATEST, k ? 2 * (COST + 2) : 0, NULL);
    turns(2);
    for (k = 0; k < 2; k++) both[k]->log.length = 0, both[k]->deaf = true, both[k]->near->out.capacity = 1;
    publish("b", "fills the queue");
    for (k = 0; k < 3; k++) {
        publish("a", "a1"), publish("b", k ? "b is longer than before" : "b1");
        publish("c", "c1"), publish("a", k == 2 ? "a3" : "a2");
    }
    publish("d", "d");
    publish("b", "");
    for (k = 0; k < 2; k++) both[k]->deaf = false, both[k]->near->out.capacity = SIZE_MAX;
    turns(20);
    SAYS(both[0]->log, "1 b=fills the queue\ndropped 1 10\n1 a=a3\n1 b=\n1 c=c1\n1 d=d\n");
    SAYS(both[1]->log, "1 b=fills the queue\ndropped 1 3\n1 b=\n");
    end();
}

static void section_9_limits_count_bytes_and_one_message_may_always_wait(void) {
    static const frisbee_slow slows[] = {FRISBEE_SLOW_DROP_NEW, FRISBEE_SLOW_DROP_OLD, FRISBEE_SLOW_LATEST, FRISBEE_SLOW_BLOCK};
    size_t which;
    for (which = 0; which < 4; which++) {
        const bool blocks = slows[which] == FRISBEE_SLOW_BLOCK;
        frisbee_sub small, exact, plain;
        peer *p;
        begin(42);
        conn_desc.high_water = 1;
        rules.max_pending = 5000;
        CHECK_EQ(start(), true);
        p = peer_raw();
        raw_subscribe(p, 1, "s.*", 0, (unsigned)slows[which], 1, NULL);
        raw_subscribe(p, 2, "e.*", 0, (unsigned)slows[which], 2 * (COST + 3 + 100), NULL);
        raw_subscribe(p, 3, "p.*", 0, (unsigned)slows[which], 0, NULL);
        turns(2);
        p->deaf = true;
        p->near->out.capacity = 1;
        small = find("s.*", p->conn), exact = find("e.*", p->conn), plain = find("p.*", p->conn);
        CHECK_EQ(info_of(small).limit, 1);
        CHECK_EQ(info_of(plain).limit, 5000); // the default is lowered to max_pending
        CHECK_EQ(publish_number("p.x", 0, 50), FRISBEE_OK);
        CHECK_EQ(info_of(plain).delivered, 1);
        CHECK_EQ(publish_number("s.x", 1, 3000), FRISBEE_OK); // larger than its limit by far: it waits alone
        CHECK_EQ(info_of(small).waiting, 1);
        CHECK_EQ(info_of(small).waiting_bytes, COST + 3 + 3000);
        CHECK_EQ(publish_number("s.y", 2, 4), blocks ? FRISBEE_AGAIN : FRISBEE_OK);
        CHECK_EQ(info_of(small).waiting, 1);
        CHECK_EQ(info_of(small).dropped, !blocks);
        CHECK_EQ(info_of(small).waiting_bytes, COST + 3 + (blocks || which == 0 ? 3000 : 4));
        CHECK_EQ(publish_number("e.1", 3, 100), FRISBEE_OK);
        CHECK_EQ(publish_number("e.2", 4, 100), FRISBEE_OK); // exactly full
        CHECK_EQ(info_of(exact).waiting, 2);
        CHECK_EQ(info_of(exact).dropped, 0);
        CHECK_EQ(publish_number("e.3", 5, 4), blocks ? FRISBEE_AGAIN : FRISBEE_OK);
        CHECK_EQ(info_of(exact).waiting, 2);
        CHECK_EQ(info_of(exact).dropped, !blocks);
        end();
    }
}

static void section_9_all_subscriptions_of_a_connection_share_queue_limit(void) {
    enum { SUBS = 6 };
    uint32_t n;
    unsigned k;
    frisbee_sub handles[SUBS];
    peer *p;
    begin(43);
    conn_desc.high_water = 1;
    conn_desc.max_packet = 1000;
    conn_desc.queue_limit = 4000;
    CHECK_EQ(start(), true);
    p = peer_raw();
    for (k = 0; k < SUBS; k++) {
        char topic[2] = "a";
        topic[0] = (char)('a' + k);
        raw_subscribe(p, k, topic, 0, k & 1 ? OLD : NEW, 0, NULL); // each could have a mebibyte
        turns(2);
        handles[k] = find(topic, p->conn);
    }
    p->deaf = true;
    p->near->out.capacity = 1;
    CHECK_EQ(publish_number("f", 0, 500), FRISBEE_OK);
    for (n = 0; n < 100; n++) CHECK_EQ(publish_number("a", n, 35), FRISBEE_OK); // 100 bytes each
    CHECK_EQ(info_of(handles[0]).waiting, 40);
    CHECK_EQ(info_of(handles[0]).dropped, 60);
    for (k = 1; k < SUBS; k++) {
        char topic[2] = "a";
        topic[0] = (char)('a' + k);
        for (n = 0; n < 100; n++) CHECK_EQ(publish_number(topic, n, 35), FRISBEE_OK);
        CHECK_EQ(info_of(handles[k]).waiting, 0); // one may always wait: of the connection
        CHECK_EQ(info_of(handles[k]).dropped, 100);
    }
    p->deaf = false;
    p->near->out.capacity = SIZE_MAX;
    turns(20);
    for (k = 0; k < SUBS; k++) CHECK_EQ(info_of(handles[k]).waiting, 0);
    end();
}

static uint32_t matched; // messages that the subscriptions of this case should have had

static bool books_close(hook which, const frisbee_sub_info *info, frisbee_conn conn, const char *topic) {
    (void)conn;
    if (which == ON_UNSUBSCRIBE) // what waited at the end is told, too
        CHECK_EQ(info->delivered + info->dropped + info->waiting, *topic == 'a' ? matched : 0);
    return true;
}

static void promise_9_close_ends_the_slow_one_alone(void) {
    peer *p, *well;
    uint32_t n;
    begin(44);
    conn_desc.high_water = 300;
    CHECK_EQ(start(), true);
    on_hook = books_close;
    p = peer_raw(), well = peer_raw();
    p->quiet = well->quiet = true;
    p->near->out.capacity = 100;
    raw_subscribe(p, 1, "a.*", 0, CLOSE, 500, NULL);
    raw_subscribe(p, 2, "b", 0, NEW, 0, NULL);
    raw_subscribe(well, 1, "a.*", 0, CLOSE, 500, NULL);
    turns(2);
    p->deaf = true;
    for (n = 0; n < 200; n++) {
        CHECK_EQ(publish_number("a.x", n, 50), FRISBEE_OK);
        matched = n + 1;
        if (n % 2) turn();
    }
    CHECK_EQ(p->closed, 1);
    CHECK_EQ(p->info.reason, FRISBEE_EXHAUSTED);
    CHECK_EQ(unmade, 2);
    CHECK_EQ(count_of("a.x"), 1);
    CHECK_EQ(count_of("b"), 0);
    turns(4);
    CHECK_EQ(well->got, 200);
    CHECK_EQ(well->closed, 0);
    CHECK_EQ(p->near->closes, 1);
    end();
}

// A full subscription that blocks holds up a publishing connection, which goes on where it was: nothing is lost, doubled or out of order.
static void promise_9_block_stops_the_publishing_connection(void) {
    enum { COUNT = 300 };
    peer *slow, *well, *source, *bystander;
    mem_bytes bytes;
    uint32_t n, handled;
    int k;
    memset(&bytes, 0, sizeof bytes);
    begin(45);
    conn_desc.high_water = 300;
    conn_desc.queue_limit = 1 << 20;
    conn_desc.max_packet = 4096;
    CHECK_EQ(start(), true);
    slow = peer_raw(), well = peer_raw(), source = peer_raw(), bystander = peer_raw();
    slow->quiet = well->quiet = true;
    slow->near->out.capacity = 100;
    raw_subscribe(slow, 1, "a.*", 0, BLOCK, 1000, NULL);
    raw_subscribe(well, 1, ">", 0, BLOCK, 1000, NULL);
    turns(2);
    slow->deaf = true;
    for (n = 0; n < COUNT; n++) {
        uint8_t number[40];
        memset(number, 0, sizeof number);
        store(number, n, 4);
        frame_publish(&bytes, FRISBEE_WIRE_V1, n % 3 ? 0 : 1 + n, "a.x", 0, number, sizeof number);
        frame(&bytes, FRISBEE_WIRE_V1, NUMBER, 0, number, 4);
    }
    mem_put(source->far, bytes.data, bytes.length);
    turns(100);
    handled = (uint32_t)numbers_handled;
    CHECK(handled > 5 && handled < 60); // it stands at a message
    CHECK_EQ(well->got, handled);
    CHECK_EQ(info_of(find("a.*", slow->conn)).dropped, 0);
    raw_publish(bystander, 7, "b", 0, "passes", 6); // to nobody who is full
    raw(bystander, NUMBER, 0, "\0\0\0\0", 4);
    turns(3);
    CHECK_EQ(well->got, handled + 1);
    SAYS(bystander->log, "published 7 0 1 0\n");
    well->numbers.length = well->got = 0;
    for (k = 0; k < 5000 && well->got < COUNT - handled; k++) {
        hear(slow, 60); // a message now and then
        turn();
        CHECK(info_of(find("a.*", slow->conn)).waiting_bytes <= 1000);
    }
    slow->deaf = false;
    turns(10);
    CHECK_EQ(slow->got, COUNT);
    CHECK_EQ(well->got, COUNT - handled);
    for (n = 0; n < COUNT; n++) {
        heard h;
        memcpy(&h, slow->numbers.data + n * sizeof h, sizeof h);
        if (!CHECK_EQ(h.number, n)) break;
    }
    CHECK_EQ(numbers_handled, COUNT + 1);
    CHECK_EQ(pool_stats(broker).lost, 0);
    for (n = 0; n < COUNT; n += 3) { // each was answered, in order
        char line[60];
        (void)snprintf(line, sizeof line, "published %lu 0 2 0\n", (unsigned long)n + 1);
        if (!CHECK(source->log.length >= strlen(line) && !memcmp(source->log.data, line, strlen(line)))) break;
        mem_drop(&source->log, strlen(line));
    }
    CHECK_EQ(source->log.length, 0);
    mem_free(&bytes);
    end();
}

static void number_in_order(peer *p, uint32_t number) { CHECK_EQ(number, p->next_number), p->next_number++; }

static void promise_9_block_keeps_the_order_of_a_publishers_packets(void) {
    uint64_t seed;
    for (seed = 1; seed <= 8; seed++) { // its packets come in any pieces
        peer *slow, *source;
        uint32_t n;
        int k;
        begin(seed + 450);
        net.ragged = true;
        conn_desc.high_water = 200;
        CHECK_EQ(start(), true);
        on_number = number_in_order;
        slow = peer_raw(), source = peer_raw();
        slow->quiet = source->quiet = true;
        slow->near->out.capacity = 100;
        raw_subscribe(slow, 1, "a.*", 0, BLOCK, 300, NULL);
        UNTIL(100, made == 1);
        slow->deaf = true;
        for (n = 0; n < 400; n++) {
            uint8_t number[4];
            store(number, n / 2, 4);
            if (n % 2) raw(source, NUMBER, 0, number, 4);
            else raw_number(source, 0, "a.x", n / 2, 4 + mem_below(&net, 200));
        }
        for (k = 0; k < 20000 && slow->got < 200; k++) {
            turn();
            if (mem_below(&net, 3) == 0) hear(slow, 1 + mem_below(&net, 300));
            CHECK(source->next_number <= slow->got + 10); // a number is handled behind the message before it, which is in the queue or waits
            CHECK(slow->got <= source->next_number + 1); // and stands where a message does
        }
        slow->deaf = false;
        UNTIL(2000, numbers_handled == 200);
        CHECK_EQ(slow->got, 200);
        for (n = 0; n < slow->got; n++) {
            heard h;
            memcpy(&h, slow->numbers.data + n * sizeof h, sizeof h);
            if (!CHECK_EQ(h.number, n)) break;
        }
        end();
    }
}

static void promise_9_a_blocked_publisher_is_not_taken_for_dead(void) {
    peer *slow, *c, *mute;
    int k;
    begin(46);
    conn_desc.heartbeat_ms = 500;
    conn_desc.high_water = 200;
    CHECK_EQ(start(), true);
    slow = peer_raw(), c = peer_client(), mute = peer_raw();
    slow->quiet = true;
    raw_subscribe(slow, 1, "a", 0, BLOCK, 200, NULL);
    turns(4);
    slow->deaf = true;
    slow->near->out.capacity = 10;
    for (k = 0; k < 50; k++) CHECK_EQ(publish_confirmed(client, c->client, "a", "0123456789012345678901234567890123456789", false, "c"), FRISBEE_OK);
    for (k = 0; k < 20; k++) raw_number(mute, 0, "a", 0, 40); // and then not even a PING
    for (k = 0; k < 200; k++) { // twenty seconds; what is needed to keep the slow one alive itself
        raw(slow, 0, 0, NULL, 0);
        if (k % 20 == 0) hear(slow, 15);
        turns(100);
    }
    CHECK_EQ(c->closed + c->client_closed + slow->closed + mute->closed, 0);
    CHECK(mute->pings > 20); // heartbeats go on
    slow->deaf = false;
    slow->near->out.capacity = SIZE_MAX;
    turns(1000);
    CHECK_EQ(slow->got, 70);
    CHECK_EQ(mute->closed, 0); // from here on it is judged again
    CHECK_EQ(pool_stats(broker).lost, 0);
    end();
}

static bool publish_when_writable(hook which, const frisbee_sub_info *info, frisbee_conn conn, const char *topic) {
    (void)info, (void)conn, (void)topic;
    if (which == ON_WRITABLE) CHECK_EQ(publish_number("a", 777, 40), FRISBEE_OK); // there is room for one at least
    return true;
}

static void promise_9_block_answers_the_program_again_and_then_writable(void) {
    peer *slow, *well;
    frisbee_sub handle;
    uint32_t n, said = 0;
    begin(47);
    conn_desc.high_water = 100;
    CHECK_EQ(start(), true);
    slow = peer_raw(), well = peer_raw();
    slow->quiet = well->quiet = true;
    slow->near->out.capacity = 60;
    raw_subscribe(slow, 1, "a", 0, BLOCK, 500, NULL);
    raw_subscribe(well, 1, "a", 0, NEW, 0, NULL);
    turns(2);
    handle = find("a", slow->conn);
    slow->deaf = true;
    for (n = 0; n < 100 && publish_number("a", n, 40) == FRISBEE_OK; n++) turn();
    CHECK(n > 4 && n < 12);
    CHECK_EQ(publish_number("a", n, 40), FRISBEE_AGAIN);
    CHECK_EQ(publish_number("b", n, 40), FRISBEE_OK); // which concerns it not
    turns(50);
    CHECK_EQ(well->got, n); // AGAIN: nobody got it
    CHECK_EQ(writable, 0);
    CHECK_EQ(info_of(handle).dropped, 0);
    on_hook = publish_when_writable;
    slow->deaf = false;
    UNTIL(100, writable == 1);
    turns(20);
    CHECK_EQ(writable, 1); // once for once
    CHECK_EQ(slow->got, n + 1);
    CHECK_EQ(well->got, n + 1);
    on_hook = NULL;
    slow->deaf = true;
    for (n = 0; n < 100 && publish_number("a", n, 40) == FRISBEE_OK; n++) said++;
    CHECK(said < 20);
    mem_reset(slow->far, FRISBEE_SYSTEM); // who ends blocks nobody
    UNTIL(100, writable == 2);
    CHECK_EQ(publish_number("a", n, 40), FRISBEE_OK);
    turns(3);
    end();
}

static void promise_9_a_blocking_subscription_that_ends_blocks_nobody(void) {
    int way;
    for (way = 0; way < 4; way++) {
        peer *slow, *source;
        uint32_t n;
        begin(55);
        conn_desc.high_water = 100;
        CHECK_EQ(start(), true);
        slow = peer_raw(), source = peer_raw();
        slow->quiet = true;
        raw_subscribe(slow, 1, "a", 0, BLOCK, 200, NULL);
        turns(2);
        slow->deaf = true;
        slow->near->out.capacity = 10;
        for (n = 0; n < 20; n++) raw_number(source, 1 + n, "a", n, 40);
        turns(50);
        CHECK_EQ(publish_number("a", n, 40), FRISBEE_AGAIN);
        turns(50);
        CHECK_EQ(writable, 0);
        CHECK(conn_stats(broker, source->conn).published < 10);
        if (way == 0) raw(slow, UNSUBSCRIBE, 1, NULL, 0);
        else if (way == 1) CHECK_EQ(frisbee_unsubscribe(broker, find("a", slow->conn)), FRISBEE_OK);
        else if (way == 2) mem_reset(slow->far, FRISBEE_SYSTEM);
        else CHECK_EQ(frisbee_close(broker, slow->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
        turns(4);
        CHECK_EQ(writable, 1);
        CHECK_EQ(conn_stats(broker, source->conn).published, 20);
        CHECK_EQ(publish_number("a", n, 40), FRISBEE_OK);
        CHECK_EQ(pool_stats(broker).lost, 0); // what waits for a subscription that ends is dropped uncounted
        end();
    }
}

static void promise_9_a_local_subscription_that_blocks(void) {
    frisbee_sub_desc desc = like(FRISBEE_SLOW_BLOCK, 500, NULL, false);
    peer *source;
    sub *s;
    uint32_t n;
    begin(48);
    rules.allow_block = false; // concerns peers
    CHECK_EQ(start(), true);
    source = peer_raw();
    s = subscribe(broker, FRISBEE_LOCAL, "a", &desc, "s");
    s->quiet = true;
    turn();
    for (n = 0; n < 100 && publish_number("a", n, 35) == FRISBEE_OK; n++) {}
    CHECK_EQ(n, 5);
    CHECK_EQ(s->got, 0); // never inside another function
    UNTIL(5, writable == 1);
    CHECK_EQ(s->got, 5);
    for (n = 0; n < 100; n++) raw_number(source, 1 + n, "a", n, 35);
    UNTIL(200, s->got == 105);
    turns(2);
    CHECK_EQ(info_of(s->handle).dropped, 0);
    CHECK_EQ(info_of(s->handle).delivered, 105);
    end();
}

static void promise_9_blocked_publishers_are_served_fairly(void) {
    enum { SOURCES = 5, EACH = 120 };
    peer *slow, *sources[SOURCES];
    uint32_t n, got[SOURCES], i;
    int k, rounds;
    begin(49);
    conn_desc.high_water = 150;
    CHECK_EQ(start(), true);
    slow = peer_raw();
    slow->quiet = true;
    slow->near->out.capacity = 100;
    raw_subscribe(slow, 1, "a", 0, BLOCK, 400, NULL);
    turns(2);
    slow->deaf = true;
    for (k = 0; k < SOURCES; k++) {
        sources[k] = peer_raw();
        for (n = 0; n < EACH; n++) raw_number(sources[k], 0, "a", (uint32_t)k * 1000 + n, 35);
    }
    for (rounds = 0; rounds < 20000 && slow->got < SOURCES * EACH / 2; rounds++) {
        turn();
        hear(slow, 50);
    }
    memset(got, 0, sizeof got);
    for (i = 0; i < slow->numbers.length / sizeof(heard); i++) {
        heard h;
        memcpy(&h, slow->numbers.data + i * sizeof h, sizeof h);
        if (!CHECK(h.number / 1000 < SOURCES)) break;
        CHECK_EQ(h.number % 1000, got[h.number / 1000]); // of each in order
        got[h.number / 1000]++;
    }
    for (k = 0; k < SOURCES; k++) CHECK(got[k] >= EACH / 4); // half of all has come: nobody has less than half of its share
    slow->deaf = false;
    UNTIL(5000, slow->got == SOURCES * EACH);
    end();
}

static void promise_9_a_blocked_publisher_may_end(void) {
    int which, way;
    for (which = 0; which < 3; which++) { // the first, the middle or the last of those that wait
        for (way = 0; way < 3; way++) {
            peer *slow, *sources[3];
            uint32_t n;
            int k;
            begin(54);
            conn_desc.high_water = 100;
            CHECK_EQ(start(), true);
            slow = peer_raw();
            slow->quiet = true;
            raw_subscribe(slow, 1, "a", 0, BLOCK, 200, NULL);
            turns(2);
            slow->deaf = true;
            slow->near->out.capacity = 50;
            for (k = 0; k < 3; k++) {
                sources[k] = peer_raw();
                for (n = 0; n < 20; n++) raw_number(sources[k], 0, "a", (uint32_t)k * 100 + n, 40);
                turns(10);
            }
            if (way == 0) mem_reset(sources[which]->far, FRISBEE_SYSTEM);
            else CHECK_EQ(frisbee_close(broker, sources[which]->conn, way == 1 ? FRISBEE_CLOSE_NOW : FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
            if (way == 2) sources[which]->far->out.ended = true;
            turns(10);
            if (way == 1) CHECK_EQ(sources[which]->closed, 1); // the others at the latest when it is read again
            slow->deaf = false;
            slow->near->out.capacity = SIZE_MAX;
            turns(100);
            for (k = 0; k < 3; k++) {
                uint32_t count = 0, i;
                for (i = 0; i < slow->got; i++) {
                    heard h;
                    memcpy(&h, slow->numbers.data + i * sizeof h, sizeof h);
                    if (h.number / 100 == (uint32_t)k) CHECK_EQ(h.number % 100, count), count++;
                }
                if (k != which) CHECK_EQ(count, 20);
                else CHECK(count <= 20);
                CHECK_EQ(sources[k]->closed, k == which);
            }
            CHECK_EQ(pool_stats(broker).lost, 0);
            end();
        }
    }
}

// Many messages of a peer in one piece, while others subscribe and unsubscribe: the same rules.
static void promise_9_floods_follow_the_same_rules(void) {
    static const frisbee_slow slows[] = {FRISBEE_SLOW_DROP_NEW, FRISBEE_SLOW_DROP_OLD, FRISBEE_SLOW_LATEST};
    uint64_t seed;
    for (seed = 1; seed <= 8; seed++) {
        frisbee_sub handles[3];
        frisbee_sub_desc group = like(FRISBEE_SLOW_DROP_NEW, 8 << 20, "g", false), large = like(FRISBEE_SLOW_DROP_NEW, 8 << 20, NULL, false);
        peer *deaf[3], *well, *source, *members[2];
        sub *all, *grouped;
        uint32_t n = 0, k, i, burst, expected, passing = 0;
        begin(seed * 57);
        net.ragged = seed % 2 == 0;
        CHECK_EQ(start(), true);
        source = peer_raw();
        conn_desc.high_water = 3000;
        for (k = 0; k < 3; k++) {
            deaf[k] = peer_raw();
            deaf[k]->quiet = true;
            raw_subscribe(deaf[k], 1, k ? "f.*" : "f.x", 0, (unsigned)slows[k], 5000, NULL);
        }
        well = peer_raw();
        well->quiet = source->quiet = true;
        raw_subscribe(well, 1, ">", 0, NEW, 8 << 20, NULL);
        raw_subscribe(source, 1, "f.x", 0, NEW, 8 << 20, NULL); // the publisher itself
        for (k = 0; k < 2; k++) members[k] = peer_raw(), members[k]->quiet = true, raw_subscribe(members[k], 1, "f.*", 0, NEW, 8 << 20, "g");
        all = subscribe(broker, FRISBEE_LOCAL, "f.>", &large, "all");
        grouped = subscribe(broker, FRISBEE_LOCAL, "f.x", &group, "grouped");
        all->quiet = grouped->quiet = true;
        UNTIL(200, made == 7);
        for (k = 0; k < 3; k++) deaf[k]->deaf = true, deaf[k]->near->out.capacity = 500, handles[k] = find(k ? "f.*" : "f.x", deaf[k]->conn);
        for (burst = 0; burst < 40; burst++) {
            const uint32_t size = mem_below(&net, 150);
            expected = 0;
            for (i = 0; i < size; i++) raw_number(source, 0, "f.x", n++, 4 + mem_below(&net, 200));
            raw_subscribe(source, 2, "f.x", 0, NEW, 8 << 20, NULL); // gets what is behind it,
            for (i = mem_below(&net, 30); i > 0; i--) raw_number(source, 0, "f.x", n++, 10), expected++;
            raw(source, UNSUBSCRIBE, 2, NULL, 0); // and no more
            raw_number(source, 0, "f.x", n++, 10);
            UNTIL(5000, pool_stats(broker).published == n);
            turns(2);
            passing += expected;
            for (k = 0; k < 3; k++) CHECK_EQ(info_of(handles[k]).delivered + info_of(handles[k]).dropped + info_of(handles[k]).waiting, n);
            CHECK_EQ(pool_stats(broker).lost, info_of(handles[0]).dropped + info_of(handles[1]).dropped + info_of(handles[2]).dropped);
            CHECK_EQ(conn_stats(broker, source->conn).lost, pool_stats(broker).lost);
            CHECK_EQ(conn_stats(broker, source->conn).published, n);
        }
        UNTIL(2000, well->got == n && all->got == n && source->got == n + passing);
        CHECK_EQ(grouped->got + members[0]->got + members[1]->got, n);
        CHECK(grouped->got >= n / 3 - 1 && members[0]->got >= n / 3 - 1 && members[1]->got >= n / 3 - 1); // in turn
        for (i = 0; i < n; i++) {
            heard h;
            memcpy(&h, well->numbers.data + i * sizeof h, sizeof h);
            if (!CHECK_EQ(h.number, i)) break;
        }
        CHECK(pool_stats(broker).lost > n); // two of three lost nearly all
        end();
    }
}

static void promise_9_block_must_be_allowed(void) {
    frisbee_sub_desc desc = like(FRISBEE_SLOW_BLOCK, 0, NULL, false);
    peer *p, *c;
    begin(50);
    rules.allow_block = false;
    CHECK_EQ(start(), true);
    p = peer_raw(), c = peer_client();
    raw_subscribe(p, 1, "a", 0, BLOCK, 0, NULL);
    raw_subscribe(p, 2, "a", 0, CLOSE, 0, NULL);
    (void)subscribe(client, c->client, "a", &desc, "c");
    turns(4);
    SAYS(p->log, "subscribed 1 1\nsubscribed 2 0\n");
    SAYS(story, "c REFUSED\n");
    CHECK_EQ(made, 1);
    end();
}

// >>counts of drops

static void promise_9_drops_are_told_to_everyone_who_should_know(void) {
    peer *deaf, *a, *c;
    frisbee_sub_info info;
    uint32_t n;
    char line[80];
    begin(51);
    conn_desc.high_water = 100;
    CHECK_EQ(start(), true);
    deaf = peer_raw(), a = peer_raw(), c = peer_client();
    deaf->quiet = true;
    deaf->near->out.capacity = 50;
    raw_subscribe(deaf, 1, "t.>", 0, NEW, 400, NULL);
    turns(4);
    deaf->deaf = true;
    for (n = 0; n < 30; n++) {
        raw_number(a, 0, "t.a", n, 40);
        turns(2);
        if (n % 3 == 0) CHECK_EQ(frisbee_publish(client, c->client, "t.c", "0123456789012345678901234567890123456789", 40, NULL), FRISBEE_OK);
        if (n % 10 == 0) CHECK_EQ(publish_number("t.l", n, 40), FRISBEE_OK);
        turns(2);
        info = info_of(find("t.>", deaf->conn));
        CHECK_EQ(pool_stats(broker).lost, info.dropped);
        CHECK_EQ(pool_stats(broker).published, n + 1 + n / 3 + 1 + n / 10 + 1);
        CHECK_EQ(info.delivered + info.dropped + info.waiting, n + 1 + n / 3 + 1 + n / 10 + 1);
    }
    CHECK_EQ(conn_stats(broker, a->conn).published, 30);
    CHECK_EQ(conn_stats(broker, c->conn).published, 10);
    CHECK_EQ(conn_stats(broker, a->conn).lost + conn_stats(broker, c->conn).lost + 2, info.dropped); // two of the program's own: n = 10 and 20
    CHECK_EQ(conn_stats(client, c->client).lost, 0); // not confirmed, not known
    CHECK_EQ(publish_confirmed(client, c->client, "t.c", "0123456789012345678901234567890123456789", false, "c"), FRISBEE_OK);
    turns(4);
    (void)snprintf(line, sizeof line, "c OK 1 %lu\n", (unsigned long)conn_stats(broker, c->conn).lost);
    SAYS(story, line);
    CHECK_EQ(conn_stats(client, c->client).lost, conn_stats(broker, c->conn).lost);
    CHECK(conn_stats(client, c->client).lost > 5);
    info = info_of(find("t.>", deaf->conn));
    deaf->deaf = false;
    turns(10);
    CHECK_EQ(publish_number("t.l", 1, 4), FRISBEE_OK);
    turns(2);
    CHECK_EQ(deaf->dropped[1], info.dropped);
    CHECK_EQ(deaf->got + deaf->dropped[1], pool_stats(broker).published);
    CHECK_EQ(conn_stats(broker, deaf->conn).delivered, deaf->got);
    end();
}

static void promise_9_a_drop_is_counted_for_whom_the_message_came_from(void) {
    peer *deaf, *a, *b;
    uint32_t n;
    begin(52);
    conn_desc.high_water = 1;
    CHECK_EQ(start(), true);
    deaf = peer_raw(), a = peer_raw(), b = peer_raw();
    deaf->quiet = true;
    raw_subscribe(deaf, 1, "t", 0, OLD, 10 * (COST + 1 + 40), NULL);
    turns(2);
    deaf->deaf = true;
    deaf->near->out.capacity = 1;
    CHECK_EQ(publish_number("t", 0, 40), FRISBEE_OK);
    for (n = 0; n < 10; n++) raw_number(a, 0, "t", n, 40);
    turns(2);
    CHECK_EQ(pool_stats(broker).lost, 0);
    for (n = 0; n < 7; n++) raw_number(b, 1, "t", n, 40); // each pushes one of the others out
    turns(20);
    CHECK_EQ(conn_stats(broker, a->conn).lost, 7);
    CHECK_EQ(conn_stats(broker, b->conn).lost, 0);
    CHECK_EQ(frisbee_close(broker, a->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(2);
    for (n = 0; n < 5; n++) raw_number(b, 1, "t", n, 40); // three of one who has gone, and two of its own
    turns(20);
    CHECK_EQ(pool_stats(broker).lost, 12);
    CHECK_EQ(conn_stats(broker, b->conn).lost, 2);
    end();
}

static void promise_9_a_client_that_does_not_poll_is_told_what_it_missed(void) {
    peer *c;
    sub *s;
    frisbee_pool *asleep;
    frisbee_sub_desc desc = like(FRISBEE_SLOW_DROP_OLD, 2000, NULL, false);
    uint32_t n;
    begin(53);
    conn_desc.high_water = 500;
    CHECK_EQ(start(), true);
    c = peer_client();
    s = subscribe(client, c->client, "t", &desc, "s");
    turns(4);
    s->quiet = true;
    c->near->out.capacity = 300;
    for (n = 0; n < 500; n++) {
        CHECK_EQ(publish_number("t", n, 30), FRISBEE_OK);
        asleep = client, client = n % 50 == 49 ? client : NULL; // polls now and then
        turn();
        client = asleep;
        CHECK(s->dropped <= info_of(find("t", c->conn)).dropped);
    }
    turns(200);
    CHECK_EQ(publish_number("t", n, 30), FRISBEE_OK);
    turns(3);
    CHECK_EQ(s->got + s->dropped, 501);
    CHECK_EQ(s->dropped, info_of(find("t", c->conn)).dropped);
    CHECK(s->dropped > 200);
    end();
}

// >>hooks

static frisbee_conn denied; // this connection may do nothing with "secret"

static bool deny(hook which, const frisbee_sub_info *info, frisbee_conn conn, const char *topic) {
    (void)info;
    if (which > MAY_PUBLISH) return true;
    return !(conn.id == denied.id && !strncmp(topic, "secret", 6));
}

static void section_9_hooks_allow_and_deny(void) {
    peer *p, *q, *c;
    begin(60);
    CHECK_EQ(start(), true);
    hooks_told = true;
    on_hook = deny;
    p = peer_raw(), q = peer_raw(), c = peer_client();
    denied = p->conn;
    raw_subscribe(p, 1, "secret.*", 0, NEW, 0, NULL);
    raw_subscribe(p, 2, "open.*", RETAIN, OLD, 0, "g");
    turns(2);
    SAYS(p->log, "subscribed 1 1\nsubscribed 2 0\n");
    SAYS(hooked, "may_subscribe secret.*\nmay_subscribe open.* g slow 1\non_subscribe open.* g slow 1\n");
    raw_publish(p, 3, "secret.a", RETAIN, "x", 1);
    raw_publish(p, 0, "secret.b", 0, "x", 1);
    raw_publish(p, 4, "open.a", 0, "x", 1);
    turns(2);
    SAYS(p->log, "published 3 1 0 0\n2 open.a=x\npublished 4 0 1 0\n");
    SAYS(hooked, "may_publish secret.a=x retain\nmay_publish secret.b=x\nmay_publish open.a=x\n");
    raw_subscribe(q, 1, "secret.*", RETAIN, NEW, 0, NULL); // nothing was kept of what was denied
    raw_publish(q, 2, "secret.c", 0, "y", 1);
    turns(2);
    SAYS(q->log, "subscribed 1 0\n1 secret.c=y\npublished 2 0 1 0\n");
    SAYS(hooked, "may_subscribe secret.*\non_subscribe secret.*\nmay_publish secret.c=y\n");
    denied = c->conn;
    (void)subscribe(client, c->client, "secret.>", NULL, "s");
    CHECK_EQ(publish_confirmed(client, c->client, "secret.d", "x", false, "c"), FRISBEE_OK);
    turns(4);
    SAYS(story, "s REFUSED\nc REFUSED 0 0\n");
    SAYS(q->log, "");
    SAYS(hooked, "may_subscribe secret.>\nmay_publish secret.d=x\n");
    denied.id = 0;
    (void)subscribe(broker, FRISBEE_LOCAL, "secret.>", NULL, "l"); // the program itself is not asked about
    publish("secret.e", "z");
    raw_subscribe(p, 5, "bad..topic", 0, NEW, 0, NULL); // nor are the hooks about what is malformed
    raw_publish(p, 6, "bad..topic", 0, NULL, 0);
    turns(2);
    SAYS(hooked, "");
    SAYS(p->log, "subscribed 5 2\npublished 6 2 0 0\n");
    CHECK_EQ(pool_stats(broker).published, 3);
    end();
}

static void section_9_a_publisher_that_had_to_wait_is_asked_about_again(void) {
    peer *slow, *source;
    uint32_t n, waited;
    char line[80];
    begin(68);
    conn_desc.high_water = 100;
    CHECK_EQ(start(), true);
    on_hook = deny;
    denied.id = 0;
    slow = peer_raw(), source = peer_raw();
    slow->quiet = true;
    raw_subscribe(slow, 1, "secret", 0, BLOCK, 200, NULL);
    turns(2);
    slow->deaf = true;
    slow->near->out.capacity = 10;
    for (n = 0; n < 20; n++) raw_number(source, 1 + n, "secret", n, 40);
    turns(20);
    waited = (uint32_t)conn_stats(broker, source->conn).published;
    CHECK(waited > 2 && waited < 10);
    source->log.length = 0;
    denied = source->conn; // meanwhile it lost the right to
    slow->deaf = false;
    slow->near->out.capacity = SIZE_MAX;
    turns(20);
    for (n = waited; n < 20; n++) {
        (void)snprintf(line, sizeof line, "published %lu 1 0 0\n", (unsigned long)n + 1);
        if (!CHECK(source->log.length >= strlen(line) && !memcmp(source->log.data, line, strlen(line)))) break;
        mem_drop(&source->log, strlen(line));
    }
    CHECK_EQ(slow->got, waited);
    end();
}

static sub *newcomer; // made in the hook
static frisbee_sub early;
static int asked;

static bool change_between(hook which, const frisbee_sub_info *info, frisbee_conn conn, const char *topic) {
    (void)info, (void)conn, (void)topic;
    if (which == MAY_PUBLISH && ++asked == 6) CHECK_EQ(frisbee_unsubscribe(broker, early), FRISBEE_OK);
    if (which == MAY_PUBLISH && asked == 8) CHECK_EQ(sub_try(newcomer, broker, FRISBEE_LOCAL, "a", NULL), FRISBEE_OK);
    return true;
}

static void section_9_a_hook_that_subscribes_and_unsubscribes_does_so_between_two_messages(void) {
    peer *p, *source;
    int k;
    begin(69);
    CHECK_EQ(start(), true);
    on_hook = change_between;
    asked = 0;
    newcomer = sub_new("newcomer");
    p = peer_raw(), source = peer_raw();
    raw_subscribe(p, 1, "a", 0, NEW, 0, NULL);
    turns(2);
    early = find("a", p->conn);
    for (k = 0; k < 10; k++) raw_publish(source, 0, "a", 0, &"0123456789"[k], 1); // all in one piece
    turns(3);
    SAYS(p->log, "subscribed 1 0\n1 a=0\n1 a=1\n1 a=2\n1 a=3\n1 a=4\nsubscribed 1 1\n");
    SAYS(story, "newcomer a=7\nnewcomer a=8\nnewcomer a=9\n");
    end();
}

static void section_9_limits_of_subscriptions(void) {
    frisbee_sub_desc desc = like(FRISBEE_SLOW_DROP_NEW, 0, NULL, false);
    peer *p, *q, *c;
    sub *s, *t;
    begin(61);
    rules.max_conn_subs = 2;
    rules.max_subs = 4;
    CHECK_EQ(start(), true);
    p = peer_raw(), q = peer_raw(), c = peer_client();
    raw_subscribe(p, 1, "a", 0, NEW, 0, NULL);
    raw_subscribe(p, 2, "a", 0, NEW, 0, NULL);
    raw_subscribe(p, 3, "a", 0, NEW, 0, NULL);
    turns(2);
    SAYS(p->log, "subscribed 1 0\nsubscribed 2 0\nsubscribed 3 3\n");
    raw(p, UNSUBSCRIBE, 1, NULL, 0);
    raw_subscribe(p, 3, "a", 0, NEW, 0, NULL);
    s = subscribe(broker, FRISBEE_LOCAL, "a", NULL, "s"); // only max_subs concerns the program
    turns(2);
    SAYS(p->log, "unsubscribed 1\nsubscribed 3 0\n");
    raw_subscribe(q, 1, "a", 0, NEW, 0, NULL);
    turns(2);
    t = sub_new("t");
    CHECK_EQ(sub_try(t, broker, FRISBEE_LOCAL, "a", &desc), FRISBEE_EXHAUSTED);
    raw_subscribe(q, 2, "a", 0, NEW, 0, NULL);
    (void)subscribe(client, c->client, "a", NULL, "c");
    turns(4);
    SAYS(q->log, "subscribed 1 0\nsubscribed 2 3\n");
    SAYS(story, "c EXHAUSTED\n");
    CHECK_EQ(pool_stats(broker).subs, 4);
    CHECK_EQ(frisbee_unsubscribe(broker, s->handle), FRISBEE_OK);
    CHECK_EQ(sub_try(t, broker, FRISBEE_LOCAL, "a", &desc), FRISBEE_OK);
    end();
}

static void hijacked(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *taken, void *user) {
    peer *p = (peer *)user;
    (void)pool, (void)conn;
    CHECK_EQ(unmade, 2); // the subscriptions have ended before
    p->hijacked++;
    if (taken->io.close) taken->io.close(taken->io.context);
}

static void ended_before(peer *p) {
    (void)p;
    CHECK_EQ(unmade, 2); // on_close is last
}

static void section_9_on_unsubscribe_comes_once_whatever_ends_it(void) {
    enum {
        UNSUBSCRIBES, BROKER_UNSUBSCRIBES, PEER_CLOSES, PEER_RESETS, BROKER_CLOSES, BROKER_FLUSHES, HIJACK, UPGRADE, BAD_BYTES, SLOW, DESTROY, WAYS
    };
    int way;
    for (way = 0; way < WAYS; way++) {
        const int before = check_failures;
        peer *p;
        uint32_t n;
        begin(62);
        conn_desc.high_water = 100;
        CHECK_EQ(start(), true);
        on_end_of = ended_before;
        p = peer_raw();
        raw_subscribe(p, 1, "a", 0, way == SLOW ? CLOSE : NEW, 100, "g");
        raw_subscribe(p, 2, "a.*", 0, NEW, 0, NULL);
        (void)subscribe(broker, FRISBEE_LOCAL, "a", NULL, "s"); // whose end concerns no hook
        turns(2);
        CHECK_EQ(made, 2);
        p->log.length = 0;
        switch (way) {
        case UNSUBSCRIBES: raw(p, UNSUBSCRIBE, 1, NULL, 0), raw(p, UNSUBSCRIBE, 2, NULL, 0); break;
        case BROKER_UNSUBSCRIBES:
            CHECK_EQ(frisbee_unsubscribe(broker, find("a", p->conn)), FRISBEE_OK);
            CHECK_EQ(frisbee_unsubscribe(broker, find("a.*", p->conn)), FRISBEE_OK);
            break;
        case PEER_CLOSES: p->far->out.ended = true; break;
        case PEER_RESETS: mem_reset(p->far, FRISBEE_SYSTEM); break;
        case BROKER_CLOSES: CHECK_EQ(frisbee_close(broker, p->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK); break;
        case BROKER_FLUSHES: CHECK_EQ(frisbee_close(broker, p->conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK), p->far->out.ended = true; break;
        case HIJACK: CHECK_EQ(frisbee_hijack(broker, p->conn, FRISBEE_HIJACK_NOW, 0, hijacked, p), FRISBEE_OK); break;
        case UPGRADE: CHECK_EQ(frisbee_upgrade(broker, p->conn, FRISBEE_HIJACK_NOW, &silent), FRISBEE_OK); break;
        case BAD_BYTES: mem_put(p->far, "not a packet", 12); break;
        case SLOW:
            p->deaf = true;
            p->near->out.capacity = 10;
            for (n = 0; n < 20; n++) CHECK_EQ(publish_number("a", n, 100), FRISBEE_OK);
            break;
        default: frisbee_pool_destroy(broker), broker = NULL;
        }
        turns(3);
        CHECK_EQ(made, 2);
        CHECK_EQ(unmade, 2);
        if (way == UNSUBSCRIBES) SAYS(p->log, "unsubscribed 1\nunsubscribed 2\n");
        if (way == BROKER_UNSUBSCRIBES) SAYS(p->log, "subscribed 1 1\nsubscribed 2 1\n");
        if (way == HIJACK) CHECK_EQ(p->hijacked, 1);
        if (way > BROKER_UNSUBSCRIBES && way != UPGRADE) CHECK_EQ(p->closed, 1);
        if (broker) {
            CHECK_EQ(count_of("a") + count_of("a.b"), 1);
            publish("a", "x");
            turns(2);
            CHECK_EQ(pool_stats(broker).subs, 1);
        }
        if (check_failures != before) fprintf(stderr, "    way %d\n", way);
        end();
    }
}

static void promise_9_what_the_broker_ends_its_peer_is_told(void) {
    peer *c;
    sub *s, *t;
    begin(63);
    CHECK_EQ(start(), true);
    c = peer_client();
    s = subscribe(client, c->client, "a", NULL, "s");
    t = subscribe(client, c->client, "b", NULL, "t");
    turns(4);
    SAYS_ALL(story, "s OK\nt OK\n");
    CHECK_EQ(frisbee_unsubscribe(broker, find("a", c->conn)), FRISBEE_OK);
    turns(4);
    SAYS(story, "s REFUSED\n");
    CHECK_EQ(frisbee_unsubscribe(client, s->handle), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_unsubscribe(broker, find("b", c->conn)), FRISBEE_OK); // both at the same time
    CHECK_EQ(frisbee_unsubscribe(client, t->handle), FRISBEE_OK);
    turns(4);
    SAYS(story, "");
    s = subscribe(client, c->client, "a", NULL, "u");
    t = subscribe(client, c->client, "b", NULL, "v");
    turns(4);
    SAYS_ALL(story, "u OK\nv OK\n");
    publish("a", "1"), publish("b", "2");
    turns(4);
    SAYS(story, "u a=1\nv b=2\n");
    CHECK_EQ(c->closed + c->client_closed, 0);
    end();
}

static void section_9_subscriptions_are_listed_while_they_end(void) {
    uint32_t total, seen, ended;
    uint64_t seed;
    for (seed = 1; seed <= 8; seed++) {
        peer *p, *q;
        frisbee_sub at, last;
        frisbee_sub_info info;
        frisbee_result result;
        unsigned k;
        begin(seed * 64);
        CHECK_EQ(start(), true);
        p = peer_raw(), q = peer_raw();
        for (k = 0; k < 100; k++) raw_subscribe(mem_below(&net, 2) ? p : q, k, k % 3 ? "a" : "b", 0, NEW, 0, k % 5 ? NULL : "g");
        turns(2);
        for (at.id = 0, total = 0; total < 1000 && frisbee_sub_next(broker, &at, NULL) == FRISBEE_OK;) total++;
        CHECK_EQ(total, 100);
        seen = ended = 0;
        at.id = 0;
        while ((result = frisbee_sub_next(broker, &at, &info)) == FRISBEE_OK && seen < 1000) {
            CHECK(info.sub.id == at.id && (!strcmp(info.topic, "a") || !strcmp(info.topic, "b")));
            seen++;
            if (mem_below(&net, 2)) { // the one in hand
                CHECK_EQ(frisbee_unsubscribe(broker, at), FRISBEE_OK);
                CHECK_EQ(frisbee_unsubscribe(broker, at), FRISBEE_CLOSED);
                ended++;
            }
            if (mem_below(&net, 4) == 0) { // another one, perhaps the next
                last = at;
                if (frisbee_sub_next(broker, &last, NULL) == FRISBEE_OK) CHECK_EQ(frisbee_unsubscribe(broker, last), FRISBEE_OK), ended++;
            }
        }
        CHECK_EQ(result, FRISBEE_CLOSED);
        CHECK(seen >= 60 && ended > 30);
        CHECK_EQ(pool_stats(broker).subs, 100 - ended);
        for (at.id = 0, total = 0; total < 1000 && frisbee_sub_next(broker, &at, NULL) == FRISBEE_OK;) total++;
        CHECK_EQ(total, 100 - ended);
        turns(3);
        CHECK_EQ(unmade, ended);
        end();
    }
}

static void section_9_a_broker_without_hooks(void) {
    peer *p;
    uint32_t n;
    begin(65);
    memset(&rules, 0, sizeof rules);
    rules.allow_block = true;
    conn_desc.high_water = 100;
    CHECK_EQ(start(), true);
    p = peer_new(FRISBEE_CONNECTOR, FRISBEE_WIRE_V0); // which is the side that connected, for once
    raw_subscribe(p, 1, "a", RETAIN, BLOCK, 100, "g");
    raw_publish(p, 2, "a", 0, "x", 1);
    turns(3);
    SAYS(p->log, "subscribed 1 0\n1 a=x\npublished 2 0 1 0\n");
    p->deaf = true;
    p->near->out.capacity = 10;
    for (n = 0; n < 100 && publish_number("a", n, 50) == FRISBEE_OK; n++) {}
    CHECK(n < 10);
    turns(3);
    CHECK_EQ(frisbee_unsubscribe(broker, find("a", p->conn)), FRISBEE_OK);
    turns(3);
    CHECK_EQ(publish_number("a", n, 50), FRISBEE_OK);
    end();
}

static void promise_9_who_can_be_sent_nothing_is_counted(void) {
    peer *p;
    frisbee_sub handle;
    uint32_t n;
    begin(66);
    CHECK_EQ(start(), true);
    p = peer_raw();
    p->quiet = true;
    raw_subscribe(p, 1, "a", 0, BLOCK, 0, NULL);
    turns(2);
    handle = find("a", p->conn);
    publish("a", "1234");
    CHECK_EQ(frisbee_finish(broker, p->conn), FRISBEE_OK); // the last byte to it goes behind the message
    for (n = 2; n <= 5; n++) {
        publish("a", "1234");
        turn();
        CHECK_EQ(info_of(handle).delivered + info_of(handle).dropped + info_of(handle).waiting, n);
    }
    CHECK_EQ(p->got, 1);
    CHECK_EQ(info_of(handle).dropped, 4);
    CHECK_EQ(pool_stats(broker).lost, 4);
    end();
}

static void section_9_a_full_queue_answers_again_and_nothing_was_done(void) {
    static char data[3000];
    peer *p;
    sub *s, *t;
    int k;
    begin(67);
    pool_desc.max_packet = 3500;
    pool_desc.queue_limit = 8000;
    p = client_raw(FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
    turns(2);
    s = subscribe(client, p->client, "a", NULL, "s");
    turns(2);
    p->deaf = true;
    p->near->out.capacity = 100;
    for (k = 0; k < 10 && frisbee_publish(client, p->client, "a", data, sizeof data, NULL) == FRISBEE_OK; k++) {}
    CHECK_EQ(k, 2);
    for (; k < 500 && frisbee_publish(client, p->client, "a", "x", 1, NULL) == FRISBEE_OK; k++) {}
    CHECK(k > 50 && k < 500);
    CHECK_EQ(frisbee_publish(client, p->client, "a", "x", 1, NULL), FRISBEE_AGAIN);
    CHECK_EQ(publish_confirmed(client, p->client, "a", "x", false, "c"), FRISBEE_AGAIN);
    t = sub_new("t");
    CHECK_EQ(sub_try(t, client, p->client, "a", NULL), FRISBEE_AGAIN);
    CHECK_EQ(t->handle.id, 0);
    CHECK_EQ(frisbee_unsubscribe(client, s->handle), FRISBEE_OK); // which always works
    p->deaf = false;
    p->near->out.capacity = SIZE_MAX;
    turns(5);
    SAYS(story, "");
    CHECK_EQ(sub_try(t, client, p->client, "a", NULL), FRISBEE_OK);
    end();
}

// >>sessions

static void promise_9_many_sessions_and_stale_handles(void) {
    uint64_t seed;
    for (seed = 1; seed <= 5; seed++) {
        frisbee_sub stale[64];
        uint32_t stale_count = 0, k, n = 0;
        int round;
        begin(seed * 71);
        net.ragged = true;
        conn_desc.high_water = 400;
        CHECK_EQ(start(), true);
        for (round = 0; round < 60; round++) {
            peer *c = peer_client();
            sub *s[3];
            frisbee_sub_desc desc = like((frisbee_slow)(round % 3), 1000, NULL, round % 2);
            const uint32_t first = n;
            if (round % 5 == 0) desc = like(FRISBEE_SLOW_DROP_NEW, 0, "g", false);
            for (k = 0; k < 3; k++) s[k] = subscribe(client, c->client, k ? "t.*" : "t.>", &desc, "s"), s[k]->quiet = true;
            UNTIL(500, s[0]->results + s[1]->results + s[2]->results == 3);
            for (k = 0; k < 20; k++) {
                CHECK_EQ(publish_number("t.x", n++, 30), FRISBEE_OK);
                if (mem_below(&net, 2)) turn();
            }
            if (mem_below(&net, 3) == 0) { // lost in the middle
                mem_reset(mem_below(&net, 2) ? c->near : c->far, FRISBEE_SYSTEM);
            } else {
                turns(100);
                CHECK_EQ(publish_number("t.x", n++, 30), FRISBEE_OK); // before which each is told what it missed
                turns(20);
                if (!desc.group) for (k = 0; k < 3; k++) CHECK_EQ(s[k]->got + s[k]->dropped, n - first);
                else CHECK_EQ(s[0]->got + s[1]->got + s[2]->got, n - first);
                if (mem_below(&net, 2)) CHECK_EQ(frisbee_close(client, c->client, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
                else CHECK_EQ(frisbee_close(broker, c->conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
            }
            UNTIL(4000, c->closed && c->client_closed);
            for (k = 0; k < 3; k++) CHECK_EQ(frisbee_unsubscribe(client, s[k]->handle), FRISBEE_CLOSED);
            stale[stale_count++ % 64] = s[0]->handle;
            for (k = 0; k < 64 && k < stale_count; k++) // and never names a newer one
                CHECK_EQ(frisbee_unsubscribe(client, stale[k]), FRISBEE_CLOSED);
            CHECK_EQ(pool_stats(broker).subs, 0);
            CHECK_EQ(count_of("t.x"), 0);
            CHECK_EQ(made, unmade);
        }
        end();
    }
}

static void promise_9_a_pool_is_broker_and_subscriber_at_once(void) {
    peer *c, *back;
    sub *s, *t;
    begin(72);
    CHECK_EQ(start(), true);
    pool_desc.broker = &rules; // and so is the other one: each subscribes at the other, over the same connection
    rules.may_subscribe = NULL, rules.may_publish = NULL, rules.on_subscribe = rules.on_unsubscribe = NULL, rules.on_writable = NULL;
    c = peer_client();
    pool_desc.broker = NULL;
    back = c;
    s = subscribe(client, c->client, "x.*", NULL, "s");
    t = subscribe(broker, back->conn, "x.*", NULL, "t");
    turns(5);
    CHECK_EQ(s->results, 1);
    CHECK_EQ(t->results, 1);
    story.length = 0;
    CHECK_EQ(frisbee_publish(client, FRISBEE_LOCAL, "x.c", "at the client", 13, NULL), FRISBEE_OK);
    CHECK_EQ(frisbee_publish(broker, FRISBEE_LOCAL, "x.b", "at the broker", 13, NULL), FRISBEE_OK);
    turns(5);
    CHECK_EQ(s->got, 1);
    CHECK_EQ(t->got, 1);
    CHECK_EQ(publish_confirmed(broker, back->conn, "y", "1", false, "c"), FRISBEE_OK);
    turns(4);
    SAYS_ALL(story, "s x.b=at the broker\nt x.c=at the client\nc OK 0 0\n");
    end();
}

// >>confirmed publish

static void promise_9_a_confirmed_publish_tells_what_became_of_it(void) {
    peer *c, *p;
    begin(80);
    CHECK_EQ(start(), true);
    on_hook = deny;
    c = peer_client(), p = peer_raw();
    denied = c->conn;
    raw_subscribe(p, 1, "a.>", 0, NEW, 0, NULL);
    raw_subscribe(p, 2, "a.>", 0, NEW, 0, "g");
    raw_subscribe(p, 3, "a.*", 0, NEW, 0, "g");
    CHECK_EQ(publish_confirmed(client, c->client, "a.early", "", false, "early"), FRISBEE_OK); // before the connection is open
    turns(4);
    SAYS(story, "early OK 2 0\n");
    CHECK_EQ(publish_confirmed(client, c->client, "nobody", "", false, "nobody"), FRISBEE_OK);
    CHECK_EQ(publish_confirmed(client, c->client, "secret", "", false, "secret"), FRISBEE_OK);
    CHECK_EQ(publish_confirmed(client, c->client, "a..b", "", false, "bad"), FRISBEE_INVALID); // nothing follows
    turns(4);
    SAYS(story, "nobody OK 0 0\nsecret REFUSED 0 0\n");
    CHECK_EQ(publish_confirmed(broker, p->conn, "a", "", false, "raw"), FRISBEE_OK); // to a peer that never answers
    turns(4000);
    SAYS(story, "");
    turns(1100);
    SAYS(story, "raw TIMED_OUT 0 0\n");
    CHECK_EQ(publish_confirmed(client, c->client, "a.b", "", false, "lost"), FRISBEE_OK);
    mem_reset(c->far, FRISBEE_SYSTEM);
    turns(3);
    SAYS(story, "lost NOT_SENT 0 0\n");
    end();
}

static void promise_9_who_is_no_broker_says_so(void) {
    peer *c, *p;
    sub *s;
    begin(81);
    CHECK_EQ(start(), true);
    c = peer_client();
    turns(4);
    s = subscribe(broker, c->conn, "a", NULL, "s"); // the broker asks the client
    CHECK_EQ(publish_confirmed(broker, c->conn, "a", "x", false, "c"), FRISBEE_OK);
    CHECK_EQ(frisbee_publish(broker, c->conn, "a", "x", 1, NULL), FRISBEE_OK);
    turns(4);
    SAYS(story, "s UNSUPPORTED\nc UNSUPPORTED 0 0\n");
    CHECK_EQ(frisbee_unsubscribe(broker, s->handle), FRISBEE_CLOSED);
    p = client_raw(FRISBEE_ACCEPTOR, FRISBEE_WIRE_V1);
    raw_subscribe(p, 7, "a", 0, NEW, 0, NULL);
    raw_publish(p, 8, "a", 0, "x", 1);
    raw_publish(p, 0, "a", 0, "x", 1);
    turns(3);
    SAYS(p->log, "subscribed 7 4\npublished 8 4 0 0\n");
    CHECK_EQ(p->client_closed, 0);
    CHECK_EQ(count_of("a"), 0);
    end();
}

// >>callbacks

static void publish_again(sub *s, const frisbee_message *message) {
    (void)message;
    if (s->got < 100) CHECK_EQ(frisbee_publish(s->pool, FRISBEE_LOCAL, "loop", "x", 1, NULL), FRISBEE_OK);
}

static void section_4_a_subscriber_that_publishes_to_itself_does_not_loop_in_a_turn(void) {
    sub *s;
    uint32_t before, most = 0;
    int k;
    begin(90);
    CHECK_EQ(start(), true);
    s = subscribe(broker, FRISBEE_LOCAL, "loop", NULL, "s");
    s->quiet = true;
    s->then = publish_again;
    publish("loop", "x");
    for (k = 0; k < 200; k++) {
        before = s->got;
        turn();
        if (s->got - before > most) most = s->got - before;
    }
    CHECK_EQ(s->got, 100);
    CHECK(most <= 2); // what it publishes waits for the next time
    end();
}

// Every callback of this part x every action in it: whatever it does, all ends well.
typedef enum action {
    PUBLISH_LOCAL, PUBLISH_OVER, SUBSCRIBE_LOCAL, SUBSCRIBE_OVER, END_ALL, CLOSE_ALL_NOW, CLOSE_ALL_FLUSHED, HIJACK_ALL, DESTROY_IT, ACTIONS
} action;
enum { IN_LOCAL_MESSAGE = ON_WRITABLE + 1, IN_CLIENT_MESSAGE, IN_RESULT, IN_CONFIRMED, PLACES };

static struct { int place, at, count; action what; sub *made; } deed; // in the `at`th callback at this place, do it

static void give_up(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *taken, void *user) {
    (void)pool, (void)conn, (void)user;
    if (taken->io.close) taken->io.close(taken->io.context);
}

static void act(int place, frisbee_pool *pool) {
    frisbee_sub_desc desc = like(FRISBEE_SLOW_DROP_NEW, 0, NULL, true);
    peer *p;
    sub *s;
    if (place != deed.place || deed.count++ != deed.at) return;
    CHECK(frisbee_poll(pool, 0) != FRISBEE_OK); // BUSY, or the pool is being destroyed
    switch (deed.what) {
    case PUBLISH_LOCAL: (void)frisbee_publish(broker, FRISBEE_LOCAL, "a.b", "by a callback", 13, NULL); break;
    case PUBLISH_OVER:
        for (p = peers; p; p = p->next)
            if (client && p->client.id)
                (void)frisbee_publish(client, p->client, "a.b", "over", 4, NULL),
                    (void)publish_confirmed(client, p->client, "a.c", "over", true, "over");
        break;
    case SUBSCRIBE_LOCAL: (void)sub_try(deed.made, broker, FRISBEE_LOCAL, "a.>", &desc); break;
    case SUBSCRIBE_OVER:
        for (p = peers; p; p = p->next)
            if (client && p->client.id) (void)sub_try(deed.made, client, p->client, "a.>", &desc);
        break;
    case END_ALL: {
        frisbee_sub at;
        at.id = 0;
        for (s = subs; s; s = s->next)
            if (s->handle.id && (s->pool == broker || client)) (void)frisbee_unsubscribe(s->pool, s->handle);
        while (frisbee_sub_next(broker, &at, NULL) == FRISBEE_OK) (void)frisbee_unsubscribe(broker, at);
        break;
    }
    case CLOSE_ALL_NOW:
    case CLOSE_ALL_FLUSHED:
        for (p = peers; p; p = p->next) {
            (void)frisbee_close(broker, p->conn, deed.what == CLOSE_ALL_NOW ? FRISBEE_CLOSE_NOW : FRISBEE_CLOSE_FLUSH);
            if (client && p->client.id) (void)frisbee_close(client, p->client, deed.what == CLOSE_ALL_NOW ? FRISBEE_CLOSE_NOW : FRISBEE_CLOSE_FLUSH);
        }
        break;
    case HIJACK_ALL:
        for (p = peers; p; p = p->next) (void)frisbee_hijack(broker, p->conn, FRISBEE_HIJACK_NOW, 0, give_up, NULL);
        break;
    default: frisbee_pool_destroy(pool);
    }
}

static bool act_in_hook(hook which, const frisbee_sub_info *info, frisbee_conn conn, const char *topic) {
    const size_t length = info ? strlen(info->topic) : 0;
    (void)conn, (void)topic;
    act((int)which, broker);
    if (info) CHECK_EQ(strlen(info->topic), length); // until it returns
    return true;
}

static void act_in_message(sub *s, const frisbee_message *message) {
    uint64_t before = mem_hash(mem_hash(1, message->data, message->length), message->topic, strlen(message->topic));
    act(s->pool == broker ? IN_LOCAL_MESSAGE : IN_CLIENT_MESSAGE, s->pool);
    CHECK(mem_hash(mem_hash(1, message->data, message->length), message->topic, strlen(message->topic)) == before);
}

static void act_in_result(sub *s, frisbee_result result) {
    (void)result;
    act(IN_RESULT, s->pool);
}

static void act_in_confirmed(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)call, (void)outcome, (void)user;
    act(IN_CONFIRMED, pool);
}

static void section_4_any_function_from_any_callback(void) {
    int place, what, at, done = 0;
    for (place = 0; place < PLACES; place++) {
        for (what = 0; what < ACTIONS; what++) {
            for (at = 0; at < 3; at++) {
                const int before = check_failures;
                frisbee_publish_desc confirm;
                frisbee_sub_desc block = like(FRISBEE_SLOW_BLOCK, 300, NULL, false);
                peer *p, *c;
                sub *s[4];
                int k, n;
                begin((uint64_t)(place * 100 + what * 10 + at));
                memset(&deed, 0, sizeof deed);
                memset(&confirm, 0, sizeof confirm);
                confirm.on_reply = act_in_confirmed;
                conn_desc.high_water = 300;
                CHECK_EQ(start(), true);
                deed.place = place, deed.what = (action)what, deed.at = at;
                deed.made = sub_new("made");
                on_hook = act_in_hook;
                p = peer_raw(), c = peer_client();
                (void)publish_as("a.r", "kept", true);
                for (k = 0; k < 4; k++) {
                    s[k] = sub_new("s");
                    s[k]->then = act_in_message, s[k]->answered = act_in_result;
                    (void)sub_try(s[k], k & 1 ? client : broker, k & 1 ? c->client : FRISBEE_LOCAL, k < 3 ? "a.*" : ">", k == 2 ? &block : NULL);
                }
                for (k = 0; k < 3; k++) raw_subscribe(p, (unsigned)k, "a.*", RETAIN, (unsigned)k, 300, k ? NULL : "g");
                for (k = 0; k < 12 && broker; k++) {
                    raw_number(p, (unsigned)k, "a.x", (uint32_t)k, 50);
                    if (client) (void)frisbee_publish(client, c->client, "a.y", "some data", 9, &confirm);
                    for (n = 0; n < 20 && k < 4 && broker && publish_number("a.z", (uint32_t)k, 100) == FRISBEE_OK; n++) {} // until it blocks
                    if (k == 6) raw(p, UNSUBSCRIBE, 1, NULL, 0);
                    if (k == 7 && broker && s[0]->handle.id) (void)frisbee_unsubscribe(broker, s[0]->handle);
                    if (k == 8 && client && s[1]->handle.id) (void)frisbee_unsubscribe(client, s[1]->handle);
                    if (k == 10) mem_reset(p->far, FRISBEE_SYSTEM);
                    turns(2);
                }
                turns(20);
                if (deed.count > at) done++;
                p->far->out.ended = true;
                end();
                if (check_failures != before) fprintf(stderr, "    place %d, action %d, the %d.\n", place, what, at);
            }
        }
    }
    CHECK(done > PLACES * ACTIONS * 2); // nearly all of them happened
}

// >>large messages

static void promise_9_large_messages_are_shared(void) {
    enum { MANY = 200 };
    static const size_t sizes[] = {64 << 10, 200 << 10, 1 << 20};
    static uint8_t data[1 << 20];
    size_t which, k;
    for (which = 0; which < 3; which++) {
        const size_t size = sizes[which] - 64;
        peer *many[MANY];
        size_t before, idle;
        begin(100 + which);
        CHECK_EQ(start(), true);
        mem_fill(&net, data, size);
        for (k = 0; k < MANY; k++) {
            many[k] = peer_new(FRISBEE_ACCEPTOR, k & 1 ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_V1);
            raw_subscribe(many[k], (unsigned)k, k % 3 ? "large.*" : ">", 0, (unsigned)k % 5, 0, NULL);
        }
        turns(3);
        for (k = 0; k < MANY; k++) many[k]->deaf = true, many[k]->quiet = true, many[k]->near->out.capacity = k % 4 ? 100 : 30000;
        before = pool_stats(broker).memory;
        CHECK_EQ(frisbee_publish(broker, FRISBEE_LOCAL, "large.one", data, size, NULL), FRISBEE_OK);
        CHECK(pool_stats(broker).memory < before + size + size / 4 + MANY * 1024);
        turns(3);
        CHECK(pool_stats(broker).memory < before + size + size / 4 + MANY * 1024);
        CHECK(heap.peak < before + 2 * size + MANY * 1024 + (512 << 10));
        CHECK_EQ(frisbee_publish(broker, FRISBEE_LOCAL, "large.two", data, size, NULL), FRISBEE_OK);
        turns(2);
        CHECK(pool_stats(broker).memory < before + 2 * (size + size / 4) + MANY * 2048);
        for (k = 0; k < MANY; k++) { // some read; some go
            if (k % 7 == 0) mem_reset(many[k]->far, FRISBEE_SYSTEM);
            else many[k]->near->out.capacity = SIZE_MAX, many[k]->deaf = false;
        }
        turns(20);
        for (k = 0; k < MANY; k++) {
            if (k % 7 == 0) CHECK_EQ(many[k]->closed, 1);
            else CHECK_EQ(many[k]->got + many[k]->dropped[k & 7], 2);
        }
        idle = pool_stats(broker).memory;
        CHECK(idle < before + MANY * 512); // released when all have it
        end();
    }
}

static void promise_9_large_messages_follow_the_policy(void) {
    static const frisbee_slow slows[] = {FRISBEE_SLOW_DROP_NEW, FRISBEE_SLOW_DROP_OLD};
    size_t which;
    for (which = 0; which < 2; which++) {
        peer *p;
        frisbee_sub handle;
        uint32_t n, lost = 0, last = 0;
        begin(104);
        conn_desc.high_water = 60000;
        conn_desc.max_packet = 50000;
        conn_desc.queue_limit = 90000; // also less than what high_water and a message come to
        CHECK_EQ(start(), true);
        p = peer_raw();
        p->quiet = true;
        raw_subscribe(p, 1, "t", 0, (unsigned)slows[which], 80000, NULL);
        turns(2);
        handle = find("t", p->conn);
        p->near->out.capacity = 20000;
        for (n = 1; n <= 200; n++) {
            CHECK_EQ(publish_number("t", n, 10000 + mem_below(&net, 39000)), FRISBEE_OK);
            p->deaf = n % 4 != 0;
            turn();
            CHECK_EQ(info_of(handle).delivered + info_of(handle).dropped + info_of(handle).waiting, n);
            CHECK(frisbee_queued(broker, p->conn) <= 90000);
        }
        p->deaf = false;
        turns(200);
        CHECK_EQ(publish_number("t", n, 20000), FRISBEE_OK);
        turns(5);
        CHECK_EQ(p->got + p->dropped[1], 201);
        CHECK(p->dropped[1] > 20 && p->got > 20);
        for (n = 0; n < p->got; n++) { // what is told before a message is at least the gap before it, and never goes back
            heard h;
            memcpy(&h, p->numbers.data + n * sizeof h, sizeof h);
            CHECK(h.number > last && h.dropped >= lost && h.dropped >= h.number - 1 - n);
            lost = (uint32_t)h.dropped, last = h.number;
        }
        end();
    }
}

static void promise_9_large_messages_arrive_whole(void) {
    static uint8_t data[300000];
    uint64_t seed;
    for (seed = 1; seed <= 6; seed++) {
        peer *p[3];
        size_t k;
        int n;
        uint64_t sums[8];
        begin(seed * 103);
        net.ragged = seed & 1;
        conn_desc.high_water = 100000;
        CHECK_EQ(start(), true);
        for (k = 0; k < 3; k++) {
            p[k] = peer_new(FRISBEE_ACCEPTOR, k ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0);
            p[k]->deaf = true;
            p[k]->near->out.capacity = 5000 + 20000 * k;
            raw_subscribe(p[k], 7, "t", 0, NEW, 8 << 20, NULL);
        }
        UNTIL(2000, made == 3);
        for (n = 0; n < 8; n++) {
            const size_t size = 1000 + mem_below(&net, sizeof data - 1000);
            mem_fill(&net, data, size);
            sums[n] = mem_hash(1, data, size);
            CHECK_EQ(frisbee_publish(broker, FRISBEE_LOCAL, "t", data, size, NULL), FRISBEE_OK);
            memset(data, 0, sizeof data); // it was copied
            if (n & 1) turn();
        }
        for (k = 0; k < 3; k++) {
            int rounds = 20000, count = 0;
            frisbee_packet packet;
            size_t used, at = 0;
            while (rounds-- && p[k]->in.length < 13u * 300000u) {
                const size_t length = p[k]->in.length;
                mem_take(p[k]->far, &p[k]->in, SIZE_MAX);
                if (p[k]->in.length == length && !frisbee_queued(broker, p[k]->conn) && !mem_size(&p[k]->near->out)) break;
                turn();
            }
            while (frisbee_decode(p[k]->wire, p[k]->in.data + at, p[k]->in.length - at, 0, &packet, &used) == FRISBEE_OK) {
                at += used;
                if (packet.from.operation != MESSAGE) continue;
                CHECK_EQ(packet.from.id, 7);
                if (CHECK(count < 8)) CHECK(mem_hash(1, (const uint8_t *)packet.data + 3, packet.length - 3) == sums[count]);
                count++;
            }
            CHECK_EQ(count, 8);
        }
        end();
    }
}

// >>memory

static bool fine(frisbee_result result) {
    return result == FRISBEE_OK || result == FRISBEE_AGAIN || ((result == FRISBEE_NO_MEMORY || result == FRISBEE_CLOSED) && starving);
}

// What each subscription in `handles` got, lost and waits for is all that was published since; a group has its messages together.
static void accounts_hold(const frisbee_sub *handles, int count, uint64_t since) {
    uint64_t group = 0, expected = pool_stats(broker).published - since;
    bool whole = true;
    int k;
    for (k = 0; k < count; k++) {
        frisbee_sub_info info;
        if (frisbee_sub_describe(broker, handles[k], &info)) {
            whole = whole && k < count - 2;
            continue;
        }
        if (k < count - 2) CHECK_EQ(info.delivered + info.dropped + info.waiting, expected);
        else group += info.delivered + info.dropped + info.waiting;
    }
    if (whole) CHECK_EQ(group, expected);
}

// A life with all that this part has, in which the nth allocation fails: at once, or only when all subscriptions are there. False: none failed.
static bool live(size_t fail_at, bool late, bool go_on) {
    enum { LARGE = 20000 };
    static uint8_t large[LARGE];
    static const char *const topics[6] = {"n.*", ">", "*.x", "n.>", "n.x", "n.x"};
    frisbee_sub_desc group = like(FRISBEE_SLOW_DROP_NEW, 0, "g", false), with = like(FRISBEE_SLOW_DROP_OLD, 500, NULL, true);
    frisbee_sub handles[6];
    peer *deaf, *slow, *source, *c, *p;
    sub *local, *s;
    uint64_t since = 0;
    size_t failures;
    int k;
    begin(7);
    starving = true;
    if (!late) heap.fail_at = fail_at, heap.fail_on = go_on;
    conn_desc.high_water = 400;
    conn_desc.max_packet = 32768;
    memset(handles, 0, sizeof handles);
    if (start()) {
        deaf = peer_raw(), slow = peer_raw(), source = peer_raw(), c = peer_client();
        deaf->quiet = slow->quiet = source->quiet = true;
        raw_subscribe(deaf, 1, topics[0], 0, NEW, 600, NULL);
        raw_subscribe(slow, 1, topics[1], 0, OLD, 0, NULL);
        raw_subscribe(slow, 2, topics[2], 0, LATEST, 900, NULL);
        raw_subscribe(deaf, 2, topics[4], 0, OLD, 600, "g");
        local = sub_new("l"), s = sub_new("c");
        local->quiet = s->quiet = true;
        CHECK(fine(sub_try(local, broker, FRISBEE_LOCAL, topics[5], &group)));
        if (c->client.id) CHECK(fine(sub_try(s, client, c->client, topics[3], NULL)));
        (void)publish_as("r.x", "kept", true);
        turns(6);
        if (late) {
            handles[0] = find(topics[0], deaf->conn), handles[1] = find(topics[1], slow->conn), handles[2] = find(topics[2], slow->conn);
            handles[3] = find(topics[3], c->conn), handles[4] = find(topics[4], deaf->conn), handles[5] = local->handle;
            since = pool_stats(broker).published;
            heap.fail_at = heap.requests + fail_at, heap.fail_on = go_on;
        }
        deaf->deaf = slow->deaf = true;
        deaf->near->out.capacity = slow->near->out.capacity = 200;
        for (k = 0; k < 24; k++) {
            CHECK(fine(publish_number("n.x", (uint32_t)k, 30)));
            if (late) accounts_hold(handles, 6, since);
            raw_number(source, 1, "n.x", (uint32_t)k, 30);
            raw_number(source, 0, "n.x", (uint32_t)k, 30), raw_number(source, 0, "n.x", (uint32_t)k, 30);
            if (c->client.id && k < 20) CHECK(fine(publish_confirmed(client, c->client, "n.x", "over the connection", false, "c")));
            if (k == 4 || k == 16) CHECK(fine(frisbee_publish(broker, FRISBEE_LOCAL, "n.x", large, LARGE, NULL))); // shared
            if (k == 8 && c->client.id) CHECK(fine(frisbee_publish(client, c->client, "n.x", large, LARGE, NULL)));
            if (k == 10) CHECK(fine(publish_as("n.x", "retained", true)));
            if (k == 12) { // more of all
                raw_subscribe(source, 5, "r.>", RETAIN, CLOSE, 0, NULL);
                CHECK(fine(sub_try(sub_new("m"), broker, FRISBEE_LOCAL, "r.*", &with)));
                if (c->client.id) CHECK(fine(sub_try(sub_new("n"), client, c->client, "r.x", &with)));
                p = peer_raw();
                p->quiet = true;
                raw_subscribe(p, 3, "r.x", RETAIN, BLOCK, 0, "h");
            }
            if (k == 14) raw(source, UNSUBSCRIBE, 5, NULL, 0);
            if (k == 15) hear(slow, 500);
            if (k == 18) slow->deaf = false, slow->near->out.capacity = SIZE_MAX;
            turn();
            if (late) accounts_hold(handles, 6, since);
        }
        turns(20);
        failures = heap.failures;
        heap.fail_at = 0, heap.fail_on = false;
        if (late) { // there is memory again: the counts reach who reads
            turns(100);
            CHECK_EQ(publish_number("n.x", 99, 30), FRISBEE_OK);
            turns(10);
            accounts_hold(handles, 6, since);
            if (!slow->closed) {
                uint32_t count[3] = {0, 0, 0}, i;
                for (i = 0; i < slow->numbers.length / sizeof(heard); i++) {
                    heard h;
                    memcpy(&h, slow->numbers.data + i * sizeof h, sizeof h);
                    if (CHECK(h.id < 3)) count[h.id]++;
                }
                for (i = 1; i < 3; i++) CHECK_EQ(count[i] + slow->dropped[i], pool_stats(broker).published - since);
            }
            if (!source->closed) { // each was passed on, perhaps only to be counted as dropped, or refused in words
                uint32_t passed = 0, told = 0;
                const char *at;
                mem_append(&source->log, "", 1);
                for (at = (const char *)source->log.data; (at = strstr(at, "published 1 ")) != NULL; at++) passed += at[12] == '0', told++;
                CHECK(conn_stats(broker, source->conn).published <= passed + 48); // but for those that found no memory even for the counter
                CHECK(conn_stats(broker, source->conn).published + failures >= passed + 48);
                CHECK_EQ(told, 24);
            }
            if (!c->closed && !c->client_closed) CHECK_EQ(s->got + s->dropped, pool_stats(broker).published - since);
        }
        if (c->client.id && s->handle.id) (void)frisbee_unsubscribe(client, s->handle);
        turns(2);
    } else {
        failures = heap.failures;
    }
    heap.fail_at = 0, heap.fail_on = false;
    end();
    return failures > 0;
}

static void promise_9_the_nth_allocation_fails(void) {
    size_t n;
    int mode;
    for (mode = 0; mode < 3; mode++) { // from the start; when all is there; then, and all that follow
        const int before = check_failures;
        for (n = 1; n < 20000 && live(n, mode > 0, mode == 2) && check_failures < before + 20; n++) {}
        CHECK(n > 60 && n < 20000);
        if (check_failures != before) fprintf(stderr, "    mode %d, up to %lu\n", mode, (unsigned long)n);
    }
}

static void promise_9_max_memory_bounds_the_broker(void) {
    static uint8_t data[5000];
    peer *p;
    frisbee_sub handle;
    uint32_t n, refused = 0, taken = 0;
    begin(110);
    pool_desc.max_memory = 200000;
    pool_desc.read_buffer = 16384;
    conn_desc.high_water = 1000;
    conn_desc.max_packet = 8192;
    starving = true;
    CHECK_EQ(start(), true);
    p = peer_raw();
    p->quiet = true;
    raw_subscribe(p, 1, ">", 0, NEW, 8 << 20, NULL);
    turns(2);
    handle = find(">", p->conn);
    p->deaf = true;
    p->near->out.capacity = 100;
    for (n = 0; n < 400; n++) {
        char topic[16];
        frisbee_result result;
        frisbee_publish_desc keep;
        memset(&keep, 0, sizeof keep);
        keep.retain = n & 1;
        (void)snprintf(topic, sizeof topic, "t.%lu", (unsigned long)n);
        result = frisbee_publish(broker, FRISBEE_LOCAL, topic, data, sizeof data, &keep);
        CHECK(result == FRISBEE_OK || result == FRISBEE_NO_MEMORY);
        if (result) refused++;
        else taken++;
        CHECK(heap.bytes <= 200000);
        CHECK_EQ(info_of(handle).delivered + info_of(handle).dropped + info_of(handle).waiting, taken);
        if (n % 10 == 0) turn();
    }
    CHECK(taken > 5 && info_of(handle).dropped + refused > 300);
    p->deaf = false;
    p->near->out.capacity = SIZE_MAX;
    turns(50);
    CHECK_EQ(publish_number("n", 1, 4), FRISBEE_OK);
    turns(3);
    CHECK_EQ(p->got + p->dropped[1], taken + 1);
    end();
}

static void calls_end(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call;
    if (outcome->result == FRISBEE_OK) ++*(int *)user;
}

// With `memory`, FRISBEE_POOL_BYTES belongs to connections and calls; subscriptions, what waits and what is retained live beyond it.
static void promise_9_in_a_fixed_block_subscriptions_take_only_what_is_beyond(void) {
    enum { CONNS = 4, CALLS = 8, PACKET = 256, QUEUE = 2048 };
    static const size_t extra[] = {0, 64, 1024, 4096, 16384, 65536};
    static union { uint8_t bytes[FRISBEE_POOL_BYTES(CONNS, CALLS, PACKET, QUEUE) + 65536]; long double align; void *pointer; } block;
    size_t which, most = 0;
    for (which = 0; which < sizeof extra / sizeof *extra; which++) {
        peer *p[CONNS];
        uint32_t n, local = 0, kept = 0;
        int k, replied = 0;
        frisbee_result result = FRISBEE_OK;
        begin(111);
        memset(&pool_desc.allocator, 0, sizeof pool_desc.allocator);
        pool_desc.memory = block.bytes;
        pool_desc.memory_size = FRISBEE_POOL_BYTES(CONNS, CALLS, PACKET, QUEUE) + extra[which];
        pool_desc.max_conns = CONNS, pool_desc.max_calls = CALLS, pool_desc.max_packet = PACKET, pool_desc.queue_limit = QUEUE;
        conn_desc.high_water = QUEUE / 2;
        conn_desc.max_deferred = CALLS;
        pool_desc.broker = &rules;
        result = frisbee_pool_create(&pool_desc, &broker);
        pool_desc.broker = NULL;
        if (extra[which] < 1024 && (result == FRISBEE_NO_MEMORY || result == FRISBEE_INVALID)) { // nothing beyond: it may say so at once
            broker = NULL;
            end();
            continue;
        }
        if (!CHECK_EQ(result, FRISBEE_OK)) {
            broker = NULL;
            end();
            continue;
        }
        for (n = 0; n < 5000; n++) { // use up all that is beyond
            char topic[16];
            sub *s = sub_new("s");
            s->quiet = true;
            (void)snprintf(topic, sizeof topic, "t.%lu", (unsigned long)n);
            result = n % 2 ? sub_try(s, broker, FRISBEE_LOCAL, topic, NULL) : publish_as(topic, "0123456789", true);
            if (result) CHECK_EQ(result, FRISBEE_NO_MEMORY);
            else if (n % 2) local++;
            else kept++;
            if (n % 500 == 0) turn();
        }
        if (extra[which] >= 4096) CHECK(local > 0);
        CHECK(local >= most); // the more there is, the more live there
        most = local;
        for (k = 0; k < CONNS; k++) { // what the block is promised for is untouched
            uint32_t i;
            p[k] = peer_new(FRISBEE_CONNECTOR, FRISBEE_WIRE_V1);
            turn();
            for (i = 0; i < CALLS; i++) {
                frisbee_call_desc desc;
                memset(&desc, 0, sizeof desc);
                desc.on_reply = calls_end;
                desc.user = &replied;
                CHECK_EQ(frisbee_call(broker, p[k]->conn, NUMBER, "0123456789", 10, &desc, NULL), FRISBEE_OK);
            }
        }
        turns(2);
        for (k = 0; k < CONNS; k++) {
            for (n = 1; n <= CALLS; n++) raw(p[k], NUMBER, n, "reply", 5);
            p[k]->log.length = 0;
        }
        turns(4);
        CHECK_EQ(replied, CONNS * CALLS);
        for (k = 0; k < CONNS; k++) raw_subscribe(p[k], 1, "t.*", 0, NEW, 0, NULL), raw_publish(p[k], 2, "t.1", 0, "x", 1);
        turns(4); // limits, and nobody is harmed
        for (k = 0; k < CONNS; k++) CHECK_EQ(p[k]->closed, 0);
        for (k = 0; k < 100 && replied < 2 * CONNS * CALLS; k++) { // also later
            frisbee_call_desc desc;
            memset(&desc, 0, sizeof desc);
            desc.on_reply = calls_end;
            desc.user = &replied;
            CHECK_EQ(frisbee_call(broker, p[k % CONNS]->conn, NUMBER, "0123456789", 10, &desc, NULL), FRISBEE_OK);
            turns(2);
            raw(p[k % CONNS], NUMBER, (unsigned)(CALLS + 1 + k / CONNS), "reply", 5);
            turns(2);
        }
        CHECK_EQ(replied, 2 * CONNS * CALLS);
        end();
    }
    CHECK(most > 20);
}

// >>hostile input

static void promise_9_a_hundred_thousand_subscriptions(void) {
    enum { EACH = 50000 };
    mem_bytes bytes;
    peer *p[2];
    char topic[40];
    unsigned k, n;
    size_t all;
    memset(&bytes, 0, sizeof bytes);
    begin(120);
    rules.max_conn_subs = 65535;
    CHECK_EQ(start(), true);
    for (k = 0; k < 2; k++) {
        p[k] = peer_raw();
        p[k]->quiet = true;
        bytes.length = 0;
        for (n = 0; n < EACH; n++) {
            (void)snprintf(topic, sizeof topic, n % 10 ? "s%u.%u.x" : "s%u.%u.*", n % 100, k * EACH + n);
            frame_subscribe(&bytes, FRISBEE_WIRE_V1, n, topic, 0, NEW, 0, NULL);
        }
        mem_put(p[k]->far, bytes.data, bytes.length);
    }
    UNTIL(2000, made == 2 * EACH);
    CHECK_EQ(pool_stats(broker).subs, 2 * EACH);
    all = pool_stats(broker).memory;
    for (n = 0; n < 2 * EACH; n += 37) {
        (void)snprintf(topic, sizeof topic, "s%u.%u.x", n % EACH % 100, n);
        CHECK_EQ(count_of(topic), 1);
        topic[0] = 'q';
        CHECK_EQ(count_of(topic), 0);
    }
    for (n = 0; n < 2 * EACH; n += 1000) {
        (void)snprintf(topic, sizeof topic, "s%u.%u.x", n % EACH % 100, n);
        CHECK_EQ(publish_number(topic, n, 4), FRISBEE_OK);
    }
    turns(5);
    CHECK_EQ(p[0]->got, EACH / 1000);
    CHECK_EQ(p[1]->got, EACH / 1000);
    bytes.length = 0;
    for (n = 0; n < EACH; n += 2) frame(&bytes, FRISBEE_WIRE_V1, UNSUBSCRIBE, n, NULL, 0);
    mem_put(p[0]->far, bytes.data, bytes.length);
    UNTIL(2000, unmade == EACH / 2);
    mem_reset(p[1]->far, FRISBEE_SYSTEM);
    UNTIL(100, p[1]->closed == 1);
    CHECK_EQ(unmade, EACH / 2 + EACH);
    CHECK_EQ(pool_stats(broker).subs, EACH / 2);
    CHECK_EQ(count_of("s1.1.x"), 1);
    CHECK_EQ(count_of("s2.2.x"), 0);
    mem_reset(p[0]->far, FRISBEE_SYSTEM);
    UNTIL(100, p[0]->closed == 1);
    CHECK_EQ(pool_stats(broker).subs, 0);
    CHECK(pool_stats(broker).memory < all / 3); // given back, but for tables
    mem_free(&bytes);
    end();
}

static void promise_9_every_wire_id_of_a_connection(void) {
    frisbee_sub_desc desc = like(FRISBEE_SLOW_DROP_NEW, 0, NULL, false);
    frisbee_sub handle, last;
    mem_bytes bytes;
    peer *p, *c;
    sub *s;
    unsigned n, count = 0;
    frisbee_result result = FRISBEE_OK;
    memset(&bytes, 0, sizeof bytes);
    begin(121);
    rules.max_conn_subs = 100000;
    CHECK_EQ(start(), true);
    p = peer_raw();
    p->quiet = true;
    for (n = 0; n < 65536; n++) frame_subscribe(&bytes, FRISBEE_WIRE_V1, n, "same", 0, NEW, 0, NULL);
    mem_put(p->far, bytes.data, bytes.length);
    UNTIL(3000, made == 65536);
    p->quiet = false;
    raw_subscribe(p, 4711, "more", 0, NEW, 0, NULL); // in use
    turns(2);
    SAYS(p->log, "subscribed 4711 5\n");
    p->quiet = true;
    CHECK_EQ(count_of("same"), 65536);
    CHECK_EQ(publish_number("same", 1, 4), FRISBEE_OK);
    UNTIL(2000, p->got == 65536);
    mem_reset(p->far, FRISBEE_SYSTEM);
    turns(2);
    c = peer_client(); // and by the functions
    s = sub_new("s");
    s->quiet = true;
    desc.on_message = got, desc.user = s;
    last.id = 0;
    while (count < 70000 && (result = frisbee_subscribe(client, c->client, "same", &desc, &handle)) == FRISBEE_OK) {
        last = handle;
        if (++count % 1000 == 0) turn();
    }
    CHECK_EQ(result, FRISBEE_EXHAUSTED);
    CHECK(count == 65535 || count == 65536);
    turns(10);
    CHECK_EQ(count_of("same"), count);
    CHECK_EQ(frisbee_unsubscribe(client, last), FRISBEE_OK);
    turns(4);
    CHECK_EQ(sub_try(s, client, c->client, "again", NULL), FRISBEE_OK); // its id is free again
    turns(4);
    CHECK_EQ(s->result, FRISBEE_OK);
    CHECK_EQ(s->results, 1);
    mem_free(&bytes);
    end();
}

static void promise_9_ids_in_use_and_unknown_ids(void) {
    peer *p, *q;
    begin(122);
    CHECK_EQ(start(), true);
    p = peer_raw(), q = peer_raw();
    raw(p, UNSUBSCRIBE, 9, NULL, 0);
    raw_subscribe(p, 9, "a", 0, NEW, 0, NULL);
    raw_subscribe(p, 9, "b", 0, NEW, 0, NULL);
    raw_subscribe(q, 9, "b", 0, NEW, 0, NULL); // each connection has its own
    raw(q, UNSUBSCRIBE, 10, NULL, 0);
    turns(2);
    SAYS(p->log, "unsubscribed 9\nsubscribed 9 0\nsubscribed 9 5\n");
    SAYS(q->log, "subscribed 9 0\nunsubscribed 10\n");
    publish("a", "1"), publish("b", "2");
    turns(2);
    SAYS(p->log, "9 a=1\n"); // the one that was there goes on
    SAYS(q->log, "9 b=2\n");
    raw(p, UNSUBSCRIBE, 9, NULL, 0), raw(p, UNSUBSCRIBE, 9, NULL, 0);
    raw_subscribe(p, 9, "b", 0, NEW, 0, NULL);
    publish("a", "3");
    turns(2);
    publish("b", "4");
    turns(2);
    SAYS(p->log, "9 a=3\nunsubscribed 9\nunsubscribed 9\nsubscribed 9 0\n9 b=4\n");
    raw(p, SUBSCRIBED, 9, "\1", 1), raw(p, MESSAGE, 9, "\0\1ax", 4), raw(p, DROPPED, 9, "\0\0\0\0\0\0\0\1", 8); // what only a broker says
    raw(p, PUBLISHED, 9, "\0\0\0\0\1\0\0\0\0\0\0\0\0", 13), raw(p, UNSUBSCRIBED, 9, NULL, 0);
    turns(2);
    publish("b", "5");
    turns(2);
    SAYS(p->log, "9 b=5\n");
    CHECK_EQ(p->closed, 0);
    end();
}

static bool deny_some(hook which, const frisbee_sub_info *info, frisbee_conn conn, const char *topic) {
    (void)info, (void)conn, (void)topic;
    return which > MAY_PUBLISH || mem_below(&net, 12) != 0;
}

static void random_operation(peer *p) {
    static const unsigned operations[] = {SUBSCRIBE, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED, PUBLISH, MESSAGE, DROPPED, PUBLISHED, 0, NUMBER, 0xFF18};
    uint8_t data[300];
    char topic[40];
    const unsigned id = mem_below(&net, 20) ? mem_below(&net, 8) : mem_below(&net, 65536);
    size_t length = mem_below(&net, 120);
    uint32_t times;
    mem_bytes bytes;
    memset(&bytes, 0, sizeof bytes);
    random_topic(topic, mem_below(&net, 2));
    switch (mem_below(&net, 24)) {
    case 0: // a payload of any bytes
        mem_fill(&net, data, length);
        frame(&bytes, p->wire, operations[mem_below(&net, 11)], id, data, length);
        break;
    case 1: // a good one with a byte that is not
        frame_subscribe(&bytes, p->wire, id, topic, mem_below(&net, 2), mem_below(&net, 5), mem_below(&net, 900), mem_below(&net, 2) ? "g" : NULL);
        bytes.data[(p->wire == FRISBEE_WIRE_V0 ? 8 : 10) + mem_below(&net, 9)] ^= (uint8_t)(1 << mem_below(&net, 8));
        break;
    case 2:
        frame_publish(&bytes, p->wire, id, topic, mem_below(&net, 2), data, 0);
        bytes.data[(p->wire == FRISBEE_WIRE_V0 ? 8 : 10) + mem_below(&net, 3)] ^= (uint8_t)(1 << mem_below(&net, 8));
        break;
    case 3:
    case 4: frame(&bytes, p->wire, UNSUBSCRIBE, id, NULL, 0); break;
    case 5:
    case 6:
    case 7:
        frame_subscribe(&bytes, p->wire, id, topic, mem_below(&net, 2), mem_below(&net, 5), mem_below(&net, 900), mem_below(&net, 2) ? "g" : NULL);
        break;
    default:
        memset(data, 'x', sizeof data);
        frame_publish(&bytes, p->wire, mem_below(&net, 2) * id, topic, mem_below(&net, 5) == 0, data, mem_below(&net, 200));
    }
    for (times = mem_below(&net, 4) ? 1 : 1 + mem_below(&net, 6); times > 0; times--) mem_put(p->far, bytes.data, bytes.length);
    mem_free(&bytes);
}

static void promise_9_a_broker_survives_anything(void) {
    uint64_t seed;
    for (seed = 1; seed <= 60; seed++) {
        const int before = check_failures;
        peer *p[4], *c;
        sub *s[6];
        int round, k;
        frisbee_stats stats;
        begin(seed * 1237);
        net.ragged = seed % 3 == 0;
        net.fickle = seed % 4 == 0 ? 30 : 0;
        conn_desc.high_water = 200 + mem_below(&net, 600);
        conn_desc.max_packet = 2048;
        conn_desc.queue_limit = 4096;
        rules.max_retained = 6000;
        rules.max_subs = 40;
        rules.allow_block = seed % 2;
        CHECK_EQ(start(), true);
        on_hook = deny_some;
        c = peer_client();
        for (k = 0; k < 4; k++) p[k] = peer_new(FRISBEE_ACCEPTOR, k & 1 ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_V1), p[k]->quiet = true;
        for (k = 0; k < 6; k++) s[k] = sub_new("s"), s[k]->quiet = true;
        for (round = 0; round < 600 && check_failures < before + 5; round++) {
            char topic[40];
            frisbee_sub at;
            frisbee_sub_info info;
            uint32_t listed = 0;
            k = (int)mem_below(&net, 4);
            if (p[k]->closed) { // another one comes
                p[k] = peer_new(FRISBEE_ACCEPTOR, mem_below(&net, 2) ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_V1);
                p[k]->quiet = true;
                p[k]->near->out.capacity = mem_below(&net, 2) ? SIZE_MAX : 1 + mem_below(&net, 1000);
            }
            if (c->closed && c->client_closed) c = peer_client();
            random_operation(p[k]);
            switch (mem_below(&net, 16)) {
            case 0: p[k]->deaf = !p[k]->deaf; break;
            case 1: if (mem_below(&net, 8) == 0) mem_reset(p[k]->far, FRISBEE_SYSTEM); break;
            case 2: if (mem_below(&net, 8) == 0) p[k]->far->out.ended = true; break;
            case 3: if (mem_below(&net, 8) == 0) mem_reset(c->far, FRISBEE_SYSTEM); break;
            case 4: if (p[k]->deaf) hear(p[k], mem_below(&net, 500)); break;
            case 5:
            case 6: {
                const frisbee_slow slow = (frisbee_slow)mem_below(&net, 5);
                frisbee_sub_desc desc = like(slow, mem_below(&net, 900), mem_below(&net, 2) ? "g" : NULL, mem_below(&net, 2));
                const bool over = mem_below(&net, 2);
                sub *which = s[mem_below(&net, 6)];
                if (which->handle.id) (void)frisbee_unsubscribe(which->pool, which->handle);
                random_topic(topic, true);
                (void)sub_try(which, over ? client : broker, over ? c->client : FRISBEE_LOCAL, topic, &desc);
                break;
            }
            case 7:
            case 8:
            case 9: {
                frisbee_result result;
                random_topic(topic, false);
                result = publish_as(topic, "some data of the program's own", mem_below(&net, 4) == 0);
                CHECK(result == FRISBEE_OK || result == FRISBEE_AGAIN);
                break;
            }
            case 10: random_topic(topic, false), (void)publish_confirmed(client, c->client, topic, "confirmed", mem_below(&net, 4) == 0, "c"); break;
            case 11: random_topic(topic, false), (void)frisbee_publish(client, c->client, topic, "not confirmed", 13, NULL); break;
            default: turn();
            }
            for (at.id = 0; frisbee_sub_next(broker, &at, &info) == FRISBEE_OK && listed < 1000; listed++) {
                CHECK(info.waiting_bytes <= info.limit || info.waiting == 1);
                CHECK(info.waiting ? info.waiting_bytes >= info.waiting * (COST + 1u) : !info.waiting_bytes);
            }
            stats = pool_stats(broker);
            CHECK_EQ(listed, stats.subs);
            CHECK(listed <= 40);
            story.length = 0;
        }
        turns(20);
        CHECK(pool_stats(broker).memory < 360000 + (size_t)pool_stats(broker).conns * (20000 + FRISBEE_CHUNK));
        if (check_failures != before) fprintf(stderr, "    seed %lu, round %d\n", (unsigned long)seed, round);
        end();
        if (check_failures != before) break;
    }
}

int main(int argc, char **argv) {
    RUN(promise_9_topics_and_patterns_are_checked_on_every_way);
    RUN(promise_9_groups_are_checked_as_tokens);
    RUN(section_9_arguments_that_make_no_sense_are_invalid);
    RUN(section_9_max_packet_holds_for_messages);
    RUN(promise_9_the_broker_speaks_the_wire_byte_for_byte);
    RUN(promise_9_a_subscriber_is_told_what_it_missed_byte_for_byte);
    RUN(promise_9_a_subscriber_speaks_the_wire_byte_for_byte);
    RUN(promise_9_status_on_the_wire_becomes_a_result);
    RUN(promise_9_short_payloads_close_the_connection_and_no_other);
    RUN(promise_9_a_connection_that_ends_within_any_byte_does_nothing_by_half);
    RUN(promise_9_whole_is_chopped);
    RUN(promise_9_matching_agrees_with_an_oracle);
    RUN(promise_9_each_matching_subscription_gets_it_once_under_its_own_handle);
    RUN(promise_9_groups_take_turns_over_different_patterns);
    RUN(promise_9_groups_prefer_members_that_are_not_full);
    RUN(promise_9_groups_of_many_lose_nothing_uncounted);
    RUN(promise_9_retained_values_come_first_and_only_when_asked_for);
    RUN(promise_9_wildcards_find_every_retained_value_once);
    RUN(promise_9_retained_values_are_bounded);
    RUN(promise_9_retained_values_for_a_slow_one_follow_its_policy);
    RUN(promise_9_every_message_is_delivered_waits_or_is_counted);
    RUN(promise_9_which_messages_survive);
    RUN(promise_9_latest_keeps_the_place_and_the_last_value);
    RUN(section_9_limits_count_bytes_and_one_message_may_always_wait);
    RUN(section_9_all_subscriptions_of_a_connection_share_queue_limit);
    RUN(promise_9_close_ends_the_slow_one_alone);
    RUN(promise_9_block_stops_the_publishing_connection);
    RUN(promise_9_block_keeps_the_order_of_a_publishers_packets);
    RUN(promise_9_a_blocked_publisher_is_not_taken_for_dead);
    RUN(promise_9_block_answers_the_program_again_and_then_writable);
    RUN(promise_9_a_blocking_subscription_that_ends_blocks_nobody);
    RUN(promise_9_a_local_subscription_that_blocks);
    RUN(promise_9_blocked_publishers_are_served_fairly);
    RUN(promise_9_a_blocked_publisher_may_end);
    RUN(promise_9_floods_follow_the_same_rules);
    RUN(promise_9_block_must_be_allowed);
    RUN(promise_9_drops_are_told_to_everyone_who_should_know);
    RUN(promise_9_a_drop_is_counted_for_whom_the_message_came_from);
    RUN(promise_9_a_client_that_does_not_poll_is_told_what_it_missed);
    RUN(section_9_hooks_allow_and_deny);
    RUN(section_9_a_publisher_that_had_to_wait_is_asked_about_again);
    RUN(section_9_a_hook_that_subscribes_and_unsubscribes_does_so_between_two_messages);
    RUN(section_9_limits_of_subscriptions);
    RUN(section_9_on_unsubscribe_comes_once_whatever_ends_it);
    RUN(promise_9_what_the_broker_ends_its_peer_is_told);
    RUN(section_9_subscriptions_are_listed_while_they_end);
    RUN(section_9_a_broker_without_hooks);
    RUN(promise_9_who_can_be_sent_nothing_is_counted);
    RUN(section_9_a_full_queue_answers_again_and_nothing_was_done);
    RUN(promise_9_many_sessions_and_stale_handles);
    RUN(promise_9_a_pool_is_broker_and_subscriber_at_once);
    RUN(promise_9_a_confirmed_publish_tells_what_became_of_it);
    RUN(promise_9_who_is_no_broker_says_so);
    RUN(section_4_a_subscriber_that_publishes_to_itself_does_not_loop_in_a_turn);
    RUN(section_4_any_function_from_any_callback);
    RUN(promise_9_large_messages_are_shared);
    RUN(promise_9_large_messages_follow_the_policy);
    RUN(promise_9_large_messages_arrive_whole);
    RUN(promise_9_the_nth_allocation_fails);
    RUN(promise_9_max_memory_bounds_the_broker);
    RUN(promise_9_in_a_fixed_block_subscriptions_take_only_what_is_beyond);
    RUN(promise_9_a_hundred_thousand_subscriptions);
    RUN(promise_9_every_wire_id_of_a_connection);
    RUN(promise_9_ids_in_use_and_unknown_ids);
    RUN(promise_9_a_broker_survives_anything);
    return check_report("pubsub");
}
