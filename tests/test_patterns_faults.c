// test_patterns_faults.c - faults of publish/subscribe and streams that a hostile reading once found, a case for each. It is named after
// what the manual promises instead, and fails if the fault returns. One pool over the in-memory network under a virtual clock; the test
// plays its peers.
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#include "../frisbee.h"
#include "check.h"
#include "memory.h"

#define MS UINT64_C(1000) // of the clock

enum { PING, PONG, STREAM, REQUEST = 10, HELLO = 0xFF02 }; // operations
enum { SUBSCRIBE = 0xFF10, SUBSCRIBED, UNSUBSCRIBE, UNSUBSCRIBED, PUBLISH, MESSAGE, DROPPED, PUBLISHED };
#define NEW FRISBEE_SLOW_DROP_NEW
#define OLD FRISBEE_SLOW_DROP_OLD
#define LATEST FRISBEE_SLOW_LATEST
#define BLOCK FRISBEE_SLOW_BLOCK
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
static const uint8_t big[60000] = {0};

static struct { // what callbacks told
    int requests, messages, writable, broker_writable, unsubscribed;
    int opened, data, ended, closed; // of streams; connections
    char first[8];                   // bytes of messages on streams
    frisbee_stream stream;           // the last that was opened,
    frisbee_result reason;           // and of the last that ended
    size_t unsent, unread;           // of a hijack
    unsigned flags;                  // of the PUBLISH in it
} seen;
static bool pause_streams; // in on_open

static void on_request(frisbee_pool *p, const frisbee_packet *packet, void *user) {
    (void)p, (void)packet, (void)user;
    seen.requests++;
}

static void on_message(frisbee_pool *p, const frisbee_message *message, void *user) {
    (void)p, (void)message, (void)user;
    seen.messages++;
}

static void on_writable(frisbee_pool *p, frisbee_conn conn, void *user) {
    (void)p, (void)conn, (void)user;
    seen.writable++;
}

static void on_broker_writable(frisbee_pool *p, void *user) {
    (void)p, (void)user;
    seen.broker_writable++;
}

static void on_unsubscribe(frisbee_pool *p, const frisbee_sub_info *info, void *user) {
    (void)p, (void)info, (void)user;
    seen.unsubscribed++;
}

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

static void on_hijacked(frisbee_pool *p, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    const uint8_t *unread = (const uint8_t *)hijacked->unread.data;
    (void)p, (void)conn, (void)user;
    seen.unsent = hijacked->unsent.length;
    seen.unread = hijacked->unread.length;
    if (seen.unread > FRISBEE_WIRE_HEADER_MAX) seen.flags = unread[FRISBEE_WIRE_HEADER_MAX]; // the first byte of the first payload
    if (hijacked->io.close) hijacked->io.close(hijacked->io.context);
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

static void subscribe_local(const char *topic, frisbee_on_message handler, frisbee_slow slow, uint32_t limit) {
    frisbee_sub_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.on_message = handler;
    desc.slow = slow;
    desc.limit = limit;
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
        else if (way == HIJACK) CHECK_EQ(frisbee_hijack(pool, slow.conn, FRISBEE_HIJACK_FENCED, 0, on_hijacked, NULL), FRISBEE_OK);
        else CHECK_EQ(frisbee_close(pool, slow.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
        turns(10);
        CHECK_EQ(hear(&publisher, PUBLISHED), 1);
        CHECK_EQ(seen.broker_writable, 1);
        end();
    }
}

static void promise_9_what_blocks_loses_nothing_where_one_message_matches_several(void) {
    static const char *const topics[] = {"a", "*", ">"};
    frisbee_stats stats;
    peer slow;
    unsigned i;
    begin();
    small_queues();
    start(true);
    slow = slow_peer();
    for (i = 0; i < 3; i++) subscribe(&slow, i + 1, topics[i], 0, BLOCK, 0, NULL);
    turns(3);
    CHECK_EQ(publish_local("a", big, BIG), FRISBEE_OK); // one is queued, one may wait, the third is over the limit
    CHECK_EQ(publish_local("a", big, BIG), FRISBEE_AGAIN);
    reads_again(&slow);
    turns(3);
    CHECK_EQ(hear(&slow, MESSAGE), 3);
    CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
    CHECK(stats.lost == 0 && stats.delivered == 3);
    end();
}

static void section_9_what_waits_for_the_latest_is_bounded_as_for_others(void) {
    enum { TOPICS = 100, LONG = 60000, MEMORY = 4 << 20 };
    const size_t sizes[2] = {1, LONG}; // short ones first, then long ones in their places
    frisbee_sub_info info;
    int local, i, k;
    for (local = 0; local < 2; local++) { // against queue_limit, and against the memory that is kept for others
        frisbee_sub at = {0};
        size_t waiting = 0;
        peer slow;
        begin();
        pool_desc.max_memory = MEMORY;
        conn_desc.queue_limit = 100000;
        conn_desc.high_water = 1000;
        conn_desc.max_packet = 90000;
        rules.max_pending = MEMORY;
        start(true);
        slow = slow_peer();
        for (i = 0; i < TOPICS; i++) {
            char topic[16];
            snprintf(topic, sizeof topic, "t%d", i);
            if (!local) subscribe(&slow, (unsigned)i + 1, topic, 0, LATEST, 1 << 20, NULL);
        }
        if (local) subscribe_local(">", on_message, LATEST, MEMORY);
        turns(3);
        for (k = 0; k < 2; k++)
            for (i = 0; i < TOPICS; i++) {
                char topic[16];
                snprintf(topic, sizeof topic, "t%d", i);
                CHECK_EQ(publish_local(topic, big, sizes[k]), FRISBEE_OK);
            }
        CHECK(frisbeei_check(pool));
        while (frisbee_sub_next(pool, &at, &info) == FRISBEE_OK) waiting += info.waiting_bytes;
        CHECK(waiting > LONG);
        if (!local) CHECK(waiting <= conn_desc.queue_limit);
        CHECK(memory_held() <= MEMORY / 4 * 3 + LONG + 4096); // the message that was too much may still be there
        end();
    }
}

static void section_9_the_latest_is_one_whatever_allocation_fails(void) {
    frisbee_sub_info info;
    size_t nth;
    for (nth = 1; nth <= 4; nth++) {
        frisbee_sub at = {0};
        peer slow, publisher;
        unsigned i;
        begin();
        conn_desc.high_water = 1;
        start(true);
        slow = attach(FRISBEE_ACCEPTOR);
        publisher = attach(FRISBEE_ACCEPTOR);
        subscribe(&slow, 1, "a", 0, LATEST, 0, NULL);
        turns(2);
        (void)hear(&slow, SUBSCRIBED);
        slow.near->out.capacity = 1;
        for (i = 0; i < 4; i++) {
            publish(&publisher, 0, "a", 0, "x", 1);
            if (i == 3) heap.fail_at = heap.requests + nth;
            turns(1);
        }
        CHECK_EQ(frisbee_sub_next(pool, &at, &info), FRISBEE_OK);
        CHECK_EQ(info.waiting, 1);
        CHECK_EQ(info.delivered + info.dropped + info.waiting, 4);
        end();
    }
}

static frisbee_conn victim;
static int asked, what_hook_does;
enum { CLOSES, FINISHES, HIJACKS, UPGRADES, DEEDS };

static frisbee_result take_all(frisbee_pool *p, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used,
                               size_t *need) {
    (void)p, (void)conn, (void)state, (void)data, (void)need;
    *used = length;
    return FRISBEE_OK;
}
static const frisbee_protocol swallow = {NULL, take_all, NULL, NULL, NULL};

static bool may_publish(frisbee_pool *p, const frisbee_message *message, void *user) {
    frisbee_result result = FRISBEE_OK;
    (void)message, (void)user;
    if (++asked != 2) return true;
    if (what_hook_does == CLOSES) result = frisbee_close(p, victim, FRISBEE_CLOSE_FLUSH);
    else if (what_hook_does == FINISHES) result = frisbee_finish(p, victim);
    else if (what_hook_does == HIJACKS) result = frisbee_hijack(p, victim, FRISBEE_HIJACK_NOW, 0, on_hijacked, NULL);
    else result = frisbee_upgrade(p, victim, FRISBEE_HIJACK_FENCED, &swallow);
    CHECK_EQ(result, FRISBEE_OK);
    return true;
}

static void promise_9_a_hook_that_lets_a_subscriber_go_takes_nothing_accepted_before(void) {
    for (what_hook_does = 0; what_hook_does < DEEDS; what_hook_does++) {
        peer subscriber, publisher;
        begin();
        rules.may_publish = may_publish;
        start(true);
        asked = 0;
        subscriber = attach(FRISBEE_ACCEPTOR);
        publisher = attach(FRISBEE_ACCEPTOR);
        victim = subscriber.conn;
        subscribe(&subscriber, 1, "a", 0, NEW, 0, NULL);
        turns(2);
        publish(&publisher, 0, "a", 0, "1", 1); // unconfirmed, together: they may be passed on as one
        publish(&publisher, 0, "a", 0, "2", 1);
        turns(3);
        CHECK_EQ(asked, 2);
        if (what_hook_does == HIJACKS) CHECK(hear(&subscriber, MESSAGE) + (seen.unsent > 0) == 1);
        else CHECK_EQ(hear(&subscriber, MESSAGE), 1);
        end();
    }
}

static void promise_9_a_new_member_of_a_group_frees_publishers_that_wait(void) {
    enum { MESSAGES = 5 };
    peer slow, fresh, publisher;
    unsigned i;
    begin();
    small_queues();
    start(true);
    slow = slow_peer();
    fresh = attach(FRISBEE_ACCEPTOR);
    publisher = attach(FRISBEE_ACCEPTOR);
    subscribe(&slow, 1, "y", 0, BLOCK, 1, "g");
    turns(2);
    for (i = 0; i < MESSAGES; i++) publish(&publisher, i + 1, "y", 0, big, BIG);
    turns(3);
    CHECK_EQ(hear(&publisher, PUBLISHED), 2);
    subscribe(&fresh, 1, "y", 0, BLOCK, 1, "g");
    turns(10);
    CHECK_EQ(hear(&publisher, PUBLISHED), MESSAGES - 2);
    CHECK_EQ(hear(&fresh, MESSAGE), MESSAGES - 2);
    end();
}

static void promise_9_a_group_gives_each_message_to_a_member_that_can_take_it(void) {
    enum { MEMBERS = 41, MESSAGES = 100 };
    peer members[MEMBERS];
    frisbee_stats stats;
    int i;
    begin();
    start(true);
    for (i = 0; i < MEMBERS; i++) {
        members[i] = attach(FRISBEE_ACCEPTOR);
        subscribe(&members[i], 1, "y", 0, NEW, 0, "g");
    }
    turns(2);
    for (i = 0; i < MEMBERS; i++)
        if (i != MEMBERS / 2) CHECK_EQ(frisbee_finish(pool, members[i].conn), FRISBEE_OK); // nothing can be sent to it any more
    for (i = 0; i < MESSAGES; i++) CHECK_EQ(publish_local("y", "x", 1), FRISBEE_OK);
    turns(2);
    CHECK_EQ(hear(&members[MEMBERS / 2], MESSAGE), MESSAGES);
    CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
    CHECK(stats.delivered == MESSAGES && stats.lost == 0);
    end();
}

static void section_3_on_writable_follows_messages_of_any_size(void) {
    static const size_t sizes[] = {4000, 10000, BIG}; // copied; shared; shared, and written from where it is
    int i;
    size_t sent;
    for (i = 0; i < 3; i++) {
        peer slow;
        begin();
        conn_desc.high_water = 50000;
        start(true);
        slow = slow_peer();
        subscribe(&slow, 1, "a", 0, NEW, 0, NULL);
        turns(2);
        for (sent = 0; sent <= 50000; sent += sizes[i]) CHECK_EQ(publish_local("a", big, sizes[i]), FRISBEE_OK);
        CHECK(frisbee_queued(pool, slow.conn) > 50000 && seen.writable == 0);
        reads_again(&slow);
        turns(2);
        CHECK_EQ(seen.writable, 1);
        (void)hear(&slow, MESSAGE);
        end();
    }
}

static void section_5_subscriptions_of_a_new_session_keep_to_the_queue_limit(void) {
    enum { SUBS = 500, LIMIT = 4096 };
    frisbee_sub_desc desc;
    peer p;
    int i;
    begin();
    conn_desc.queue_limit = LIMIT;
    start(false);
    p = attach(FRISBEE_CONNECTOR);
    p.near->out.capacity = 1;
    memset(&desc, 0, sizeof desc);
    desc.on_message = on_message;
    for (i = 0; i < SUBS; i++) {
        char topic[FRISBEE_TOPIC_MAX + 1];
        snprintf(topic, sizeof topic, "a%0200d", i);
        CHECK_EQ(frisbee_subscribe(pool, p.conn, topic, &desc, NULL), FRISBEE_OK);
    }
    turns(3);
    CHECK(frisbee_queued(pool, p.conn) > LIMIT / 2 && frisbee_queued(pool, p.conn) <= LIMIT);
    reads_again(&p);
    turns(SUBS);
    CHECK_EQ(hear(&p, SUBSCRIBE), SUBS);
    end();
}

static void section_9_retained_values_count_what_they_take(void) {
    enum { MAX_RETAINED = 256 << 10, TOPICS = 1000 };
    frisbee_publish_desc retain;
    size_t before;
    int i;
    begin();
    rules.max_retained = MAX_RETAINED;
    start(true);
    memset(&retain, 0, sizeof retain);
    retain.retain = true;
    before = memory_held();
    for (i = 0; i < TOPICS; i++) {
        char topic[64];
        snprintf(topic, sizeof topic, "%d" SIXTEEN_TOKENS, i);
        (void)frisbee_publish(pool, FRISBEE_LOCAL, topic, "x", 1, &retain); // most find no room
    }
    CHECK(memory_held() - before > MAX_RETAINED / 3); // it is used,
    CHECK(memory_held() - before < MAX_RETAINED / 2 * 3); // and holds
    end();
}

static void a_shutdown_hears_publishers_that_wait_to_the_end(void) {
    enum { MESSAGES = 5 };
    peer slow, publisher;
    unsigned i;
    begin();
    small_queues();
    start(true);
    slow = slow_peer();
    publisher = attach(FRISBEE_ACCEPTOR);
    subscribe(&slow, 1, "y", 0, BLOCK, 1, NULL);
    turns(2);
    for (i = 0; i < MESSAGES; i++) publish(&publisher, i + 1, "y", 0, big, BIG);
    turns(3);
    CHECK_EQ(frisbee_shutdown(pool, 5000), FRISBEE_OK);
    turns(3);
    reads_again(&slow);
    turns(20);
    CHECK_EQ(hear(&publisher, PUBLISHED), MESSAGES);
    CHECK_EQ(hear(&slow, MESSAGE), MESSAGES);
    end();
}

static void promise_7_a_publish_that_waits_is_handed_over_as_it_came(void) {
    enum { FLAGS = 0x83 };
    peer slow, publisher;
    int i;
    begin();
    small_queues();
    start(true);
    slow = slow_peer();
    publisher = attach(FRISBEE_ACCEPTOR);
    subscribe(&slow, 1, "y", 0, BLOCK, 1, NULL);
    turns(2);
    for (i = 0; i < 2; i++) publish(&publisher, 0, "y", 0, big, BIG);
    turns(2);
    publish(&publisher, 0, "y", FLAGS, "hello", 5);
    turns(3);
    CHECK_EQ(frisbee_hijack(pool, publisher.conn, FRISBEE_HIJACK_NOW, 0, on_hijacked, NULL), FRISBEE_OK);
    turns(3);
    CHECK_EQ(seen.unread, FRISBEE_WIRE_HEADER_MAX + 2 + 1 + 5);
    CHECK_EQ(seen.flags, FLAGS);
    end();
}

// >>budgets, and the work that one connection may make

static void section_6_budgets_hold_for_local_subscriptions_and_kept_messages(void) {
    enum { BUDGET = 5, MESSAGES = 50 };
    peer p;
    int i;
    begin();
    pool_desc.budget_packets = BUDGET;
    conn_desc.streams = &streams;
    start(true);
    subscribe_local(">", on_message, OLD, 0);
    for (i = 0; i < MESSAGES; i++) CHECK_EQ(publish_local("a", "x", 1), FRISBEE_OK);
    CHECK_EQ(turn(), FRISBEE_AGAIN);
    CHECK_EQ(seen.messages, BUDGET);
    turns(2 * MESSAGES / BUDGET);
    CHECK_EQ(seen.messages, MESSAGES);
    p = attach(FRISBEE_ACCEPTOR);
    pause_streams = true;
    for (i = 0; i < MESSAGES; i++) put(&p, STREAM, 5, "s", 1);
    turns(2 * MESSAGES / BUDGET);
    CHECK(seen.opened == 1 && seen.data == 0);
    CHECK_EQ(packets_in(&p), MESSAGES);
    CHECK_EQ(frisbee_stream_pause(pool, seen.stream, false), FRISBEE_OK);
    CHECK_EQ(turn(), FRISBEE_AGAIN);
    CHECK_EQ(seen.data, BUDGET);
    turns(2 * MESSAGES / BUDGET);
    CHECK_EQ(seen.data, MESSAGES);
    end();
}

static void on_message_again(frisbee_pool *p, const frisbee_message *message, void *user) {
    (void)user;
    seen.messages++;
    CHECK_EQ(frisbee_publish(p, FRISBEE_LOCAL, message->topic, message->data, message->length, NULL), FRISBEE_OK);
}

static void section_6_local_subscriptions_share_a_budget_with_connections(void) {
    enum { BUDGET = 4, REQUESTS = 10 };
    peer p;
    int i;
    begin();
    pool_desc.budget_packets = BUDGET;
    start(true);
    p = attach(FRISBEE_ACCEPTOR);
    turns(2);
    for (i = 0; i < BUDGET; i++) { // these go round for ever, and could take all of each turn
        const char topic[2] = {(char)('a' + i), 0};
        subscribe_local(topic, on_message_again, OLD, 0);
        CHECK_EQ(publish_local(topic, "x", 1), FRISBEE_OK);
    }
    for (i = 0; i < REQUESTS; i++) put(&p, REQUEST, 1, "r", 1);
    turns(4 * REQUESTS);
    CHECK_EQ(seen.requests, REQUESTS);
    CHECK(seen.messages >= 4 * REQUESTS); // nor do they starve
    end();
}

// `greedy` has sent so many packets that make much work, and all could be read in one turn. They are taken in several, and `modest` is
// served meanwhile.
static void shares_turns(peer *greedy, peer *modest, uint64_t packets) {
    const uint64_t before = packets_in(greedy);
    const int requests = seen.requests;
    int turns_taken = 2;
    put(modest, REQUEST, 1, NULL, 0);
    CHECK_EQ(turn(), FRISBEE_AGAIN);
    CHECK(packets_in(greedy) > before && packets_in(greedy) < before + packets);
    (void)turn();
    CHECK_EQ(seen.requests, requests + 1);
    while (packets_in(greedy) < before + packets && turns_taken++ < 100) (void)turn();
    CHECK_EQ(packets_in(greedy), before + packets);
    CHECK(turns_taken > 2);
    turns(2);
}

static void promise_6_subscriptions_that_want_retained_values_share_turns(void) {
    enum { TOPICS = 500, PAIRS = 150 };
    static const char *const patterns[] = {"*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.z", ">"}; // looks at all and finds none; finds all
    peer greedy, modest;
    int i, k;
    begin();
    start(true);
    greedy = attach(FRISBEE_ACCEPTOR);
    modest = attach(FRISBEE_ACCEPTOR);
    for (i = 0; i < TOPICS; i++) {
        char topic[64];
        snprintf(topic, sizeof topic, "%d" SIXTEEN_TOKENS, i);
        publish(&greedy, 0, topic, RETAIN, "x", 1);
    }
    turns(2);
    for (k = 0; k < 2; k++) {
        for (i = 0; i < PAIRS; i++) {
            subscribe(&greedy, 1, patterns[k], RETAIN, OLD, 0, NULL);
            put(&greedy, UNSUBSCRIBE, 1, NULL, 0);
        }
        shares_turns(&greedy, &modest, 2 * PAIRS);
        CHECK_EQ(hear(&greedy, UNSUBSCRIBED), PAIRS);
    }
    end();
}

static void promise_6_messages_to_many_subscriptions_share_turns(void) {
    enum { SUBS = 1000, MESSAGES = 4000 };
    peer greedy, modest;
    unsigned i;
    begin();
    start(true);
    greedy = slow_peer();
    modest = attach(FRISBEE_ACCEPTOR);
    for (i = 0; i < SUBS; i++) subscribe(&greedy, i + 1, ">", 0, OLD, 1000, NULL);
    turns(2);
    for (i = 0; i < MESSAGES; i++) publish(&greedy, 0, i & 1 ? "a" : "b", 0, NULL, 0);
    shares_turns(&greedy, &modest, MESSAGES);
    end();
}

static void promise_6_messages_on_one_topic_share_turns(void) {
    enum { SUBS = 1000, MESSAGES = 4000 };
    peer greedy, modest;
    unsigned i;
    begin();
    start(true);
    greedy = slow_peer();
    modest = attach(FRISBEE_ACCEPTOR);
    for (i = 0; i < SUBS; i++) subscribe(&greedy, i + 1, ">", 0, OLD, 1000, NULL);
    turns(2);
    for (i = 0; i < MESSAGES; i++) publish(&greedy, 0, "a", 0, NULL, 0); // they may be passed on as one
    shares_turns(&greedy, &modest, MESSAGES);
    end();
}

static void promise_6_subscriptions_in_many_groups_share_turns(void) {
    enum { GROUPS = 5000, PACKETS = 120 };
    peer greedy, modest;
    char group[16];
    unsigned i;
    begin();
    rules.max_conn_subs = 65535;
    start(true);
    greedy = attach(FRISBEE_ACCEPTOR);
    modest = attach(FRISBEE_ACCEPTOR);
    for (i = 0; i < GROUPS; i++) {
        snprintf(group, sizeof group, "g%u", i);
        subscribe(&greedy, i, "t", 0, NEW, 0, group);
    }
    while (packets_in(&greedy) < GROUPS && seen.closed == 0 && net.now_us < 1000 * MS) (void)turn();
    CHECK_EQ(packets_in(&greedy), GROUPS);
    for (i = 0; i < PACKETS; i++) { // each looks for its group among all
        snprintf(group, sizeof group, "h%u", i);
        subscribe(&greedy, GROUPS + i, "t", 0, NEW, 0, group);
    }
    shares_turns(&greedy, &modest, PACKETS);
    for (i = 0; i < PACKETS; i++) put(&greedy, UNSUBSCRIBE, i, NULL, 0); // the oldest
    shares_turns(&greedy, &modest, PACKETS);
    CHECK_EQ(hear(&greedy, UNSUBSCRIBED), PACKETS);
    end();
}

// What waits for a connection is linked both ways, so that taking a subscription out of many costs no walk.
static int count_waiting(const peer *p) {
    const frisbeei_waiting *waiting = &frisbeei_find(pool, p->conn.id)->patterns->waiting;
    const frisbeei_sub *sub, *before = NULL;
    int count = 0;
    for (sub = waiting->first; sub; before = sub, sub = sub->next, count++)
        if (!CHECK(sub->before == before)) return -1;
    CHECK(waiting->last == before);
    return count;
}

static void promise_6_one_of_many_subscriptions_that_wait_is_found_without_a_walk(void) {
    enum { SUBS = 2000 };
    static const unsigned gone[] = {1, SUBS, SUBS / 2, SUBS / 2 + 1, 2};
    peer slow;
    unsigned i;
    begin();
    rules.max_conn_subs = SUBS;
    start(true);
    slow = slow_peer();
    for (i = 0; i < SUBS; i++) subscribe(&slow, i + 1, ">", 0, NEW, 0, NULL);
    turns(3);
    CHECK_EQ(publish_local("a", big, 200), FRISBEE_OK); // this is more than its queue takes, and of the next one
    CHECK_EQ(publish_local("a", big, 200), FRISBEE_OK); // each subscription waits for its own
    CHECK_EQ(count_waiting(&slow), SUBS);
    for (i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        put(&slow, UNSUBSCRIBE, gone[i], NULL, 0);
        turns(1);
        CHECK_EQ(count_waiting(&slow), SUBS - 1 - (int)i);
    }
    CHECK_EQ(frisbee_close(pool, slow.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    turns(1);
    CHECK(seen.closed == 1 && seen.unsubscribed == SUBS);
    end();
}

// >>streams

static void promise_10_streams_that_are_over_make_room_for_others(void) {
    enum { STREAMS = 20, MOST = 4 };
    static const uint8_t window[4] = {0, 1, 0, 0};
    int stock, i;
    for (stock = 0; stock < 2; stock++) {
        peer p;
        begin();
        conn_desc.streams = &streams;
        conn_desc.max_streams = MOST;
        start(false);
        p = attach(FRISBEE_ACCEPTOR);
        put(&p, stock ? REQUEST : HELLO, 0, window, sizeof window);
        for (i = 0; i < STREAMS; i++) { // never more than one is open, and all come in one turn
            put(&p, STREAM, (unsigned)i + 1, "hello", 5);
            put(&p, STREAM, (unsigned)i + 1, NULL, 0);
        }
        turns(2);
        CHECK(seen.opened == STREAMS && seen.data == STREAMS && seen.ended == STREAMS);
        CHECK_EQ(seen.reason, FRISBEE_CLOSED);
        CHECK_EQ(hear(&p, STREAM), stock ? 0 : STREAMS); // the answers to its closes
        end();
    }
}

// Turns in which the test answers PINGs, as a stock peer does.
static void answer_pings(peer *p, int count) {
    frisbee_packet packet;
    while (count-- > 0) {
        (void)turn();
        while (mem_take_packet(p->far, FRISBEE_WIRE_V1, &packet))
            if (packet.from.operation == PING) put(p, PONG, 0, NULL, 0);
    }
}

static void promise_10_ids_of_closed_streams_become_free_when_a_close_crosses(void) {
    frisbee_stream five;
    peer p;
    begin();
    conn_desc.streams = &streams;
    start(false);
    p = attach(FRISBEE_ACCEPTOR);
    put(&p, STREAM, 5, "a", 1);
    turns(1);
    five = seen.stream;
    put(&p, STREAM, 7, "a", 1);
    turns(1);
    CHECK(seen.opened == 2 && seen.data == 2);
    CHECK_EQ(frisbee_stream_close(pool, five), FRISBEE_OK);
    turns(1);
    CHECK_EQ(frisbee_stream_close(pool, seen.stream), FRISBEE_OK); // while the other one is about to be confirmed
    turns(1);
    put(&p, STREAM, 5, NULL, 0); // the peer's own, on its way already
    answer_pings(&p, 1000);
    put(&p, STREAM, 7, "b", 1);
    turns(1);
    CHECK(seen.opened == 3 && seen.data == 3);
    end();
}

static void promise_10_streams_whose_serials_meet_are_not_taken_for_each_other(void) {
    frisbee_stream old;
    uint32_t serial;
    peer p;
    begin();
    conn_desc.streams = &streams;
    start(false);
    pause_streams = true;
    p = attach(FRISBEE_ACCEPTOR);
    turns(1);
    serial = pool->serial;
    put(&p, STREAM, 5, "a", 1);
    put(&p, STREAM, 5, NULL, 0); // a stock peer's id is free again, so that the stream is known by its serial
    turns(1);
    old = seen.stream;
    pool->serial = serial; // 16,777,216 streams and calls later
    put(&p, STREAM, 7, "b", 1);
    put(&p, STREAM, 7, NULL, 0);
    turns(1);
    CHECK(seen.opened == 2 && seen.data == 0);
    CHECK(seen.ended == 1 && seen.reason == FRISBEE_EXHAUSTED);
    CHECK_EQ(frisbee_stream_pause(pool, old, false), FRISBEE_OK);
    turns(1);
    CHECK(seen.data == 1 && seen.first[0] == 'a');
    CHECK(seen.ended == 2 && seen.reason == FRISBEE_CLOSED);
    end();
}

static void promise_10_a_stream_that_the_peer_has_closed_ends_no_later_one(void) {
    enum { IDS = 32768 };
    frisbee_stream old, later;
    frisbee_packet packet;
    unsigned number;
    peer p;
    int i, messages = 0, closes = 0;
    begin();
    conn_desc.streams = &plain_streams;
    start(false);
    p = attach(FRISBEE_ACCEPTOR);
    put(&p, PING, 0, NULL, 0);
    turns(1);
    CHECK_EQ(frisbee_stream_open(pool, p.conn, &streams, NULL, &old), FRISBEE_OK);
    number = frisbee_stream_number(pool, old);
    CHECK_EQ(frisbee_stream_send(pool, old, "a", 1), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_pause(pool, old, true), FRISBEE_OK);
    turns(1);
    put(&p, STREAM, number, "kept", 4);
    put(&p, STREAM, number, NULL, 0);
    turns(1);
    CHECK_EQ(hear(&p, STREAM), 2); // our message, and the close that a stock peer wants for what we opened
    later.id = 0;
    for (i = 0; i < IDS; i++) { // ids go around; a stream that was not sent on leaves no trace
        if (!CHECK(frisbee_stream_open(pool, p.conn, NULL, NULL, &later) == FRISBEE_OK)) break;
        if (frisbee_stream_number(pool, later) == number) break;
        CHECK_EQ(frisbee_stream_close(pool, later), FRISBEE_OK);
        if (i % 1000 == 999) turns(1);
    }
    CHECK_EQ(frisbee_stream_number(pool, later), number);
    CHECK_EQ(frisbee_stream_send(pool, later, "new", 3), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_pause(pool, old, false), FRISBEE_OK);
    turns(2);
    CHECK(seen.data == 1 && seen.ended == 1 && seen.reason == FRISBEE_CLOSED);
    while (mem_take_packet(p.far, FRISBEE_WIRE_V1, &packet))
        if (packet.from.operation == STREAM && packet.from.id == number) {
            messages += packet.length == 3;
            closes += packet.length == 0;
        }
    CHECK(messages == 1 && closes == 0);
    end();
}

static void section_5_a_stream_that_is_refused_waits_for_room_in_a_fixed_block(void) {
    enum { MEMORY = 1 << 18, MOST = 2, MORE = 6 };
    static const uint8_t window[4] = {0, 1, 0, 0};
    void *memory = malloc(MEMORY);
    peer p;
    int i;
    if (!memory) exit(2);
    begin();
    memset(&pool_desc.allocator, 0, sizeof pool_desc.allocator);
    pool_desc.memory = memory;
    pool_desc.memory_size = MEMORY;
    pool_desc.max_conns = 4;
    pool_desc.max_calls = 16;
    pool_desc.max_packet = 4096;
    pool_desc.queue_limit = 8192;
    conn_desc.streams = &streams;
    conn_desc.max_streams = MOST;
    start(false);
    p = attach(FRISBEE_ACCEPTOR);
    put(&p, HELLO, 0, window, sizeof window);
    for (i = 1; i <= MOST; i++) put(&p, STREAM, (unsigned)i, "a", 1);
    turns(2);
    (void)hear(&p, HELLO);
    p.near->out.capacity = 1;
    for (i = 20; i >= 0; i -= 20) // until not even a header finds room
        while (frisbee_send(pool, p.conn, REQUEST, 1, big, (size_t)i) == FRISBEE_OK) continue;
    for (i = 1; i <= MORE; i++) put(&p, STREAM, (unsigned)(MOST + i), "a", 1);
    put(&p, STREAM, 1, "b", 1);
    turns(3);
    CHECK(seen.closed == 0 && seen.opened == MOST);
    reads_again(&p);
    turns(3);
    CHECK(seen.closed == 0 && seen.opened == MOST && seen.data == MOST + 1);
    CHECK_EQ(hear(&p, STREAM), MORE); // refused
    end();
    free(memory);
}

int main(int argc, char **argv) {
    RUN(promise_9_publishers_that_wait_go_on_when_a_full_subscription_needs_no_room);
    RUN(promise_9_what_blocks_loses_nothing_where_one_message_matches_several);
    RUN(section_9_what_waits_for_the_latest_is_bounded_as_for_others);
    RUN(section_9_the_latest_is_one_whatever_allocation_fails);
    RUN(promise_9_a_hook_that_lets_a_subscriber_go_takes_nothing_accepted_before);
    RUN(promise_9_a_new_member_of_a_group_frees_publishers_that_wait);
    RUN(promise_9_a_group_gives_each_message_to_a_member_that_can_take_it);
    RUN(section_3_on_writable_follows_messages_of_any_size);
    RUN(section_5_subscriptions_of_a_new_session_keep_to_the_queue_limit);
    RUN(section_9_retained_values_count_what_they_take);
    RUN(a_shutdown_hears_publishers_that_wait_to_the_end);
    RUN(promise_7_a_publish_that_waits_is_handed_over_as_it_came);
    RUN(section_6_budgets_hold_for_local_subscriptions_and_kept_messages);
    RUN(section_6_local_subscriptions_share_a_budget_with_connections);
    RUN(promise_6_subscriptions_that_want_retained_values_share_turns);
    RUN(promise_6_messages_to_many_subscriptions_share_turns);
    RUN(promise_6_messages_on_one_topic_share_turns);
    RUN(promise_6_subscriptions_in_many_groups_share_turns);
    RUN(promise_6_one_of_many_subscriptions_that_wait_is_found_without_a_walk);
    RUN(promise_10_streams_that_are_over_make_room_for_others);
    RUN(promise_10_ids_of_closed_streams_become_free_when_a_close_crosses);
    RUN(promise_10_streams_whose_serials_meet_are_not_taken_for_each_other);
    RUN(promise_10_a_stream_that_the_peer_has_closed_ends_no_later_one);
    RUN(section_5_a_stream_that_is_refused_waits_for_room_in_a_fixed_block);
    return check_report("patterns_faults");
}
