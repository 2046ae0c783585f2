// test_patterns_faults.c - faults of publish/subscribe and streams that a hostile reading once found, a case for each. It is named after what
// the manual promises instead, and fails if the fault returns. One pool over the in-memory network under a virtual clock; the test plays its peers.
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#include "../frisbee.h"
#include "check.h"
#include "memory.h"

#define MS UINT64_C(1000) // of the clock

enum { STREAM = 2, REQUEST = 10, HELLO = 0xFF02, SUBSCRIBE = 0xFF10, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED, PUBLISH, MESSAGE, DROPPED, PUBLISHED };
enum {
    NEW = FRISBEE_SLOW_DROP_NEW, OLD = FRISBEE_SLOW_DROP_OLD, LATEST = FRISBEE_SLOW_LATEST, BLOCK = FRISBEE_SLOW_BLOCK
};
enum { RETAIN = 1 }; // flag of a PUBLISH, and of a SUBSCRIBE that wants such
enum { BIG = 40000 };

#define SIXTEEN_TOKENS ".a.a.a.a.a.a.a.a.a.a.a.a.a.a.a" // behind the first

// >>the world

typedef struct peer { // a connection of the pool
    mem_end *near, *far; // far: the test's end
    frisbee_conn conn;
} peer;

static mem_net net;
static mem_heap heap;
static frisbee_pool *pool;
static frisbee_pool_desc pool_desc; // these three are for what is made next
static frisbee_broker rules;
static frisbee_conn_desc conn_desc;
static const uint8_t big[60000];

static struct { // what callbacks told
    int requests, messages, writable, broker_writable, unsubscribed;
    int opened, data, ended, closed; // of streams; connections
    char first[8];                   // bytes of messages on streams
    frisbee_stream stream;           // the last that was opened,
    frisbee_result reason;           // and of the last that ended
} seen;
static bool pause_streams; // in on_open

static void on_request(frisbee_pool *p, const frisbee_packet *packet, void *user) { (void)p, (void)packet, (void)user, seen.requests++; }
static void on_message(frisbee_pool *p, const frisbee_message *message, void *user) { (void)p, (void)message, (void)user, seen.messages++; }
static void on_writable(frisbee_pool *p, frisbee_conn conn, void *user) { (void)p, (void)conn, (void)user, seen.writable++; }
static void on_broker_writable(frisbee_pool *p, void *user) { (void)p, (void)user, seen.broker_writable++; }
static void on_unsubscribe(frisbee_pool *p, const frisbee_sub_info *info, void *user) { (void)p, (void)info, (void)user, seen.unsubscribed++; }

static void on_close(frisbee_pool *p, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    (void)p, (void)conn, (void)info, (void)user;
    seen.closed++;
}

static void on_stream(frisbee_pool *p, frisbee_conn conn, frisbee_stream stream, void *user) {
    (void)conn, (void)user;
    seen.opened++;
    seen.stream = stream;
    if (pause_streams) CHECK_EQ(frisbee_stream_pause(p, stream, true), FRISBEE_OK);
}

static void on_data(frisbee_pool *p, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    (void)p, (void)stream, (void)user, (void)length;
    if (seen.data < (int)sizeof seen.first - 1) seen.first[seen.data] = *(const char *)data;
    seen.data++;
}

static void on_stream_close(frisbee_pool *p, frisbee_stream stream, frisbee_result reason, void *user) {
    (void)p, (void)stream, (void)user;
    seen.ended++;
    seen.reason = reason;
}

static const frisbee_events events = {NULL, NULL, on_writable, NULL, on_close};
static const frisbee_stream_events streams = {on_stream, on_data, NULL, on_stream_close};
static const frisbee_stream_events plain_streams = {NULL, NULL, NULL, NULL}; // takes none of the peer's

static void begin(void) {
    memset(&net, 0, sizeof net);
    memset(&heap, 0, sizeof heap);
    memset(&seen, 0, sizeof seen);
    memset(&rules, 0, sizeof rules);
    memset(&pool_desc, 0, sizeof pool_desc);
    memset(&conn_desc, 0, sizeof conn_desc);
    pause_streams = false;
    pool_desc.now_us = mem_now;
    pool_desc.now_context = &net;
    pool_desc.allocator = mem_allocator(&heap);
    rules.allow_block = true;
    rules.on_writable = on_broker_writable;
    rules.on_unsubscribe = on_unsubscribe;
    conn_desc.wire = FRISBEE_WIRE_V1;
    conn_desc.events = &events;
    conn_desc.heartbeat_ms = conn_desc.write_ms = FRISBEE_NEVER; // peers may be silent and slow
}

static void start(bool broker) {
    pool_desc.broker = broker ? &rules : NULL;
    if (frisbee_pool_create(&pool_desc, &pool) != FRISBEE_OK) exit(2);
    CHECK_EQ(frisbee_on(pool, REQUEST, on_request, NULL), FRISBEE_OK);
}

static void end(void) {
    CHECK(frisbeei_check(pool));
    frisbee_pool_destroy(pool);
    CHECK(heap.blocks == 0 && heap.bytes == 0);
    mem_net_free(&net);
}

static frisbee_result turn(void) {
    frisbee_result result;
    mem_advance(&net, MS);
    result = frisbee_poll(pool, 0);
    CHECK(frisbeei_check(pool));
    return result;
}

static void turns(int count) {
    while (count-- > 0) (void)turn();
}

static peer attach(frisbee_role role) {
    frisbee_transport io;
    peer p;
    memset(&p, 0, sizeof p);
    conn_desc.role = role;
    mem_pair(&net, &p.near, &p.far);
    io = mem_transport(p.near);
    CHECK_EQ(frisbee_attach(pool, &io, &conn_desc, NULL, 0, &p.conn), FRISBEE_OK);
    return p;
}

// A small queue: what a subscriber does not read fills it with one big message, and another one waits.
static void small_queues(void) {
    conn_desc.queue_limit = 65536;
    conn_desc.high_water = 16384;
    conn_desc.max_packet = 50000;
}

static peer slow_peer(void) { // it reads nothing
    peer p = attach(FRISBEE_ACCEPTOR);
    p.near->out.capacity = 1;
    return p;
}

static void reads_again(peer *p) { p->near->out.capacity = SIZE_MAX; }

static void put(peer *p, unsigned operation, unsigned id, const void *data, size_t length) {
    mem_put_packet(p->far, FRISBEE_WIRE_V1, operation, id, data, length);
}

static void subscribe(peer *p, unsigned id, const char *topic, unsigned flags, unsigned slow, uint32_t limit, const char *group) {
    uint8_t data[8 + FRISBEE_TOPIC_MAX + FRISBEE_GROUP_MAX];
    const size_t length = strlen(topic), group_length = group ? strlen(group) : 0;
    data[0] = (uint8_t)flags, data[1] = (uint8_t)slow, data[6] = (uint8_t)length, data[7 + length] = (uint8_t)group_length;
    frisbeei_put32(data + 2, limit);
    memcpy(data + 7, topic, length);
    if (group) memcpy(data + 8 + length, group, group_length);
    put(p, SUBSCRIBE, id, data, 8 + length + group_length);
}

static void publish(peer *p, unsigned id, const char *topic, unsigned flags, const void *data, size_t length) {
    uint8_t payload[2 + FRISBEE_TOPIC_MAX + BIG];
    const size_t topic_length = strlen(topic);
    payload[0] = (uint8_t)flags, payload[1] = (uint8_t)topic_length;
    memcpy(payload + 2, topic, topic_length);
    if (length) memcpy(payload + 2 + topic_length, data, length);
    put(p, PUBLISH, id, payload, 2 + topic_length + length);
}

static frisbee_result publish_local(const char *topic, const void *data, size_t length) {
    return frisbee_publish(pool, FRISBEE_LOCAL, topic, data, length, NULL);
}

static void subscribe_local(const char *topic, frisbee_on_message handler, frisbee_slow slow) {
    frisbee_sub_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.on_message = handler;
    desc.slow = slow;
    CHECK_EQ(frisbee_subscribe(pool, FRISBEE_LOCAL, topic, &desc, NULL), FRISBEE_OK);
}

// Takes all that came to a played end; answers how many packets of an operation were among it.
static int hear(peer *p, unsigned operation) {
    frisbee_packet packet;
    int count = 0;
    while (mem_take_packet(p->far, FRISBEE_WIRE_V1, &packet)) count += packet.from.operation == operation;
    return count;
}

static uint64_t packets_in(const peer *p) {
    frisbee_stats stats;
    CHECK_EQ(frisbee_conn_stats(pool, p->conn, &stats), FRISBEE_OK);
    return stats.packets_in;
}

static size_t memory_held(void) {
    frisbee_stats stats;
    CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
    return stats.memory;
}

// >>delivery

static void promise_9_publishers_that_wait_go_on_when_a_full_subscription_needs_no_room(void) {
    enum { ANOTHER_ENDS, FINISH, HIJACK, CLOSE, WAYS }; // of the slow connection
    int way;
    for (way = 0; way < WAYS; way++) {
        peer slow, publisher;
        int i;
        begin();
        small_queues();
        start(true);
        slow = slow_peer();
        publisher = attach(FRISBEE_ACCEPTOR);
        subscribe(&slow, 1, "x", 0, NEW, 0, NULL);
        subscribe(&slow, 2, "y", 0, BLOCK, 0, NULL);
        turns(3);
        for (i = 0; i < 3; i++) CHECK_EQ(publish_local("x", big, BIG), FRISBEE_OK); // fills what y could have
        CHECK_EQ(publish_local("y", big, BIG), FRISBEE_AGAIN);
        publish(&publisher, 7, "y", 0, big, BIG);
        turns(3);
        CHECK(hear(&publisher, PUBLISHED) == 0 && seen.broker_writable == 0);
        if (way == ANOTHER_ENDS) put(&slow, UNSUBSCRIBE, 1, NULL, 0);
        else if (way == FINISH) CHECK_EQ(frisbee_finish(pool, slow.conn), FRISBEE_OK);
        else if (way == HIJACK) CHECK_EQ(frisbee_hijack(pool, slow.conn, FRISBEE_HIJACK_FENCED, FRISBEE_NEVER, NULL, NULL), FRISBEE_INVALID);
        else CHECK_EQ(frisbee_close(pool, slow.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
        turns(10);
        CHECK_EQ(hear(&publisher, PUBLISHED), 1);
        CHECK_EQ(seen.broker_writable, 1);
        end();
    }
}
