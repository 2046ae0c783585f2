// telemetry.c - readings of sensors at a high rate, fanned out to one subscriber that keeps up and to five that do not: one for each
// overload policy. Prints what each of them got and missed, and checks that it adds up to the last message.
//
//     cc -I.. telemetry.c -o telemetry && ./telemetry          about two seconds; exits 0 if everything adds up
//
// Shows: a broker that publishes itself (FRISBEE_LOCAL); the five policies of frisbee_sub_desc.slow; message.dropped, which tells a subscriber
// in band what it has missed; frisbee_sub_info, which tells the broker; a publisher that has to wait, and frisbee_broker.on_writable.
// All pools are on one thread here, so that the sums can be compared, and socket pairs with small buffers stand in for slow networks: over TCP
// the system's own buffers take some MB before a policy acts. Usually each subscriber is a process that calls frisbee_connect.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
    SENSORS = 8,
    READINGS = 60000, // in all, PER_TICK of them in each tick of TICK_MS
    PER_TICK = 200,
    TICK_MS = 4,
    READING_BYTES = 512,
    SLOW_PER_TICK = 4,        // what a slow subscriber handles in a tick: a fiftieth
    SLOW_LIMIT = 1024 * 1024, // bytes that may wait for it in the broker,
    SLOW_BUFFER = 4 * 1024,   // and in each buffer between the two
    DRAIN_TURNS = 20000       // a bound for each wait, so that this program always ends
};

typedef struct subscriber {
    const char *name, *topic;
    frisbee_slow slow;
    bool keeps_up;
    // as the subscriber sees it
    frisbee_pool *pool;
    frisbee_conn conn;
    uint64_t received, told;     // told: the sum of message.dropped
    uint64_t in_time, behind;    // received while more was published; the sum of how many newer ones were there already
    uint32_t next[SENSORS];      // the readings of a sensor come in order, whatever is dropped between them
    bool disordered, closed;
    // as the broker sees it
    frisbee_sub_info info;
    uint64_t published; // that it should have got
    bool ended;
} subscriber;

static subscriber subscribers[] = {
    // Keeps up: gets every reading, whatever happens to the others. They cost it nothing.
    {.name = "keeps up", .topic = "sensor.*", .slow = FRISBEE_SLOW_DROP_NEW, .keeps_up = true},

    // DROP_NEW keeps what came first: the reader sees whole stretches without a gap, and then a jump over all that came while the queue was
    // full. What it reads is old. For records where a run of neighbours is worth more than the latest (a waveform, a log).
    {.name = "DROP_NEW", .topic = "sensor.*", .slow = FRISBEE_SLOW_DROP_NEW},

    // DROP_OLD keeps what came last: the reader sees the recent past, with gaps wherever it was slow. For events of which the latest matter.
    {.name = "DROP_OLD", .topic = "sensor.*", .slow = FRISBEE_SLOW_DROP_OLD},

    // LATEST keeps the last reading of each sensor: the reader sees every sensor at its present value, and no history. The queue cannot be
    // longer than there are topics. For gauges, prices, positions: whatever the next value makes worthless.
    {.name = "LATEST", .topic = "sensor.*", .slow = FRISBEE_SLOW_LATEST},

    // CLOSE puts up with nothing: the reader's connection ends (with retry_min_ms it would come back, and its subscription with it). For readers
    // that must not go on with a gap, and would rather begin again.
    {.name = "CLOSE", .topic = "sensor.*", .slow = FRISBEE_SLOW_CLOSE},

    // BLOCK loses nothing: it is the publisher who waits, and with it everybody else who listens to the same. So it has a topic of its own here,
    // and the broker must allow it (allow_block). For what must not be lost and may be late: jobs, bookings, an audit.
    {.name = "BLOCK", .topic = "audit.*", .slow = FRISBEE_SLOW_BLOCK},
};
enum { SUBSCRIBERS = sizeof subscribers / sizeof subscribers[0] };

static void must(frisbee_result result, const char *what) {
    if (result == FRISBEE_OK) return;
    fprintf(stderr, "telemetry: %s: %s\n", what, frisbee_result_string(result));
    exit(1);
}

// ---- the broker and publisher

static struct {
    frisbee_pool *pool;
    int joined;         // subscribers[0..joined-1] are subscribed
    unsigned exhausted; // connections that were closed by a policy
    uint32_t readings, audits, waits;
    bool blocked;
} broker;

static void on_subscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    (void)pool, (void)user;
    subscribers[broker.joined++].info = *info; // they come one after another
}

static void on_unsubscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    (void)pool, (void)user;
    for (subscriber *s = subscribers; s < subscribers + SUBSCRIBERS; s++) {
        if (s->info.sub.id != info->sub.id || s->ended) continue;
        s->info = *info; // its last counts. (The strings in it are valid only here.)
        s->published = broker.readings;
        s->ended = true;
    }
}

static void on_broker_writable(frisbee_pool *pool, void *user) {
    (void)pool, (void)user;
    broker.blocked = false;
}

static void on_broker_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    (void)pool, (void)conn, (void)user;
    if (info->reason == FRISBEE_EXHAUSTED) broker.exhausted++;
}

static const frisbee_events broker_events = {.on_close = on_broker_close};

static void start_broker(void) {
    frisbee_broker hooks = {.on_subscribe = on_subscribe, .on_unsubscribe = on_unsubscribe, .on_writable = on_broker_writable, .allow_block = true};
    frisbee_pool_desc desc = {.broker = &hooks};
    must(frisbee_pool_create(&desc, &broker.pool), "broker");
}

static frisbee_result publish(const char *kind, uint32_t number) {
    char topic[32];
    uint8_t reading[READING_BYTES] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8), (uint8_t)number};
    snprintf(topic, sizeof topic, "%s.%u", kind, (unsigned)(number % SENSORS));
    return frisbee_publish(broker.pool, FRISBEE_LOCAL, topic, reading, sizeof reading, NULL);
}

// One reading and one audit. The first never waits: no subscriber to it may block.
static void publish_both(void) {
    must(publish("sensor", broker.readings), "publish");
    broker.readings++;
    if (broker.blocked) return;
    frisbee_result result = publish("audit", broker.audits);
    if (result == FRISBEE_AGAIN) broker.blocked = true, broker.waits++; // nobody got it: the same comes again after on_writable
    else must(result, "publish"), broker.audits++;
}

// ---- a subscriber

static void on_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    subscriber *s = (subscriber *)user;
    const uint8_t *b = (const uint8_t *)message->data;
    uint32_t number = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    (void)pool;
    if (number < s->next[number % SENSORS]) s->disordered = true;
    s->next[number % SENSORS] = number + 1;
    s->received++;
    s->told += message->dropped; // since the last message that came
    if (broker.readings >= READINGS) return;
    s->in_time++;
    s->behind += (s->slow == FRISBEE_SLOW_BLOCK ? broker.audits : broker.readings) - 1 - number;
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    (void)pool, (void)conn, (void)info;
    ((subscriber *)user)->closed = true;
}

static const frisbee_events subscriber_events = {.on_close = on_close};

static void start_subscriber(subscriber *s) {
    // What makes one slow: the budget of its polls. Small buffers only shorten the way on which messages are neither here nor there.
    frisbee_pool_desc pool_desc = {.budget_packets = s->keeps_up ? 0 : SLOW_PER_TICK, .read_buffer = s->keeps_up ? 0 : SLOW_BUFFER};
    frisbee_conn_desc here = {.events = &subscriber_events, .role = FRISBEE_CONNECTOR, .user = s};
    frisbee_conn_desc there = {.events = &broker_events, .role = FRISBEE_ACCEPTOR, .high_water = s->keeps_up ? 0 : SLOW_BUFFER};
    frisbee_sub_desc sub = {.on_message = on_message, .user = s, .slow = s->slow, .limit = s->keeps_up ? 0 : SLOW_LIMIT};
    int ends[2], small = SLOW_BUFFER;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) must(FRISBEE_SYSTEM, "socketpair");
    if (!s->keeps_up) setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    must(frisbee_adopt(broker.pool, ends[0], &there, NULL, 0, NULL), "adopt");
    must(frisbee_pool_create(&pool_desc, &s->pool), "pool");
    must(frisbee_adopt(s->pool, ends[1], &here, NULL, 0, &s->conn), "adopt");
    must(frisbee_subscribe(s->pool, s->conn, s->topic, &sub, NULL), "subscribe");
}

static void poll_once(frisbee_pool *pool, int32_t timeout_ms) {
    frisbee_result result = frisbee_poll(pool, timeout_ms);
    if (result != FRISBEE_AGAIN) must(result, "poll"); // AGAIN: the budget is spent, work is left
}

// ---- the run

// True when nothing is left on its way to a subscriber.
static bool is_settled(subscriber *s) {
    if (s->ended) return s->closed;
    if (frisbee_sub_describe(broker.pool, s->info.sub, &s->info)) return false;
    return s->info.waiting == 0 && s->info.delivered == s->received;
}

static void drain(void) {
    bool settled = false;
    for (int turn = 0; turn < DRAIN_TURNS && !settled; turn++) {
        poll_once(broker.pool, turn % 20 ? 0 : 1); // a short sleep now and then, for what is on its way
        settled = true;
        for (int i = 0; i < SUBSCRIBERS; i++) poll_once(subscribers[i].pool, 0), settled = is_settled(&subscribers[i]) && settled;
    }
}

static bool adds_up(const subscriber *s) {
    const bool lossless = s->keeps_up || s->slow == FRISBEE_SLOW_BLOCK;
    if (s->disordered || s->info.delivered + s->info.dropped + s->info.waiting != s->published) return false;
    if (s->slow == FRISBEE_SLOW_CLOSE) return s->ended && s->received <= s->info.delivered; // what was under way is lost with the connection
    return !s->ended && s->received == s->info.delivered && s->told == s->info.dropped && (s->info.dropped == 0) == lossless;
}

int main(void) {
    struct timespec pause = {0, TICK_MS * 1000000L};
    frisbee_stats stats;
    uint64_t dropped = 0;
    bool good = true;

    start_broker();
    for (int i = 0; i < SUBSCRIBERS; i++) {
        start_subscriber(&subscribers[i]);
        for (int turn = 0; turn < DRAIN_TURNS && broker.joined <= i; turn++) poll_once(broker.pool, 1), poll_once(subscribers[i].pool, 0);
        if (broker.joined <= i) must(FRISBEE_TIMED_OUT, "subscribe");
    }

    while (broker.readings < READINGS) {
        for (int i = 0; i < PER_TICK; i++) publish_both();
        poll_once(broker.pool, 0);
        for (int i = 0; i < SUBSCRIBERS; i++) poll_once(subscribers[i].pool, 0);
        nanosleep(&pause, NULL);
    }

    drain();        // now the slow ones may take their time,
    publish_both(); // and the next message tells them what they have missed since the last
    drain();

    printf("%u readings of %d bytes, and %u audits: the publisher of those had to wait %u times\n\n", (unsigned)broker.readings, READING_BYTES,
           (unsigned)broker.audits, (unsigned)broker.waits);
    printf("            published  received  dropped: as it was told  as the broker counts  waiting  behind, on average\n");
    for (int i = 0; i < SUBSCRIBERS; i++) {
        subscriber *s = &subscribers[i];
        if (!s->ended) s->published = s->slow == FRISBEE_SLOW_BLOCK ? broker.audits : broker.readings;
        bool right = adds_up(s);
        printf("%-10s %10llu %9llu %24llu %21llu %8u %19llu   %s%s\n", s->name, (unsigned long long)s->published, (unsigned long long)s->received,
               (unsigned long long)s->told, (unsigned long long)s->info.dropped, (unsigned)s->info.waiting,
               (unsigned long long)(s->in_time ? s->behind / s->in_time : 0), right ? "adds up" : "DOES NOT ADD UP", s->ended ? " (closed)" : "");
        good = good && right;
        dropped += s->info.dropped;
    }

    // The publisher's own view is the sum of all of them.
    must(frisbee_pool_stats(broker.pool, &stats), "statistics");
    printf("\nthe publisher lost %llu messages to slow subscribers in all\n", (unsigned long long)stats.lost);
    good = good && stats.lost == dropped && stats.published == (uint64_t)broker.readings + broker.audits;
    good = good && broker.exhausted == 1 && broker.waits > 0;
    for (int i = 0; i < SUBSCRIBERS; i++) frisbee_pool_destroy(subscribers[i].pool);
    frisbee_pool_destroy(broker.pool);
    printf("%s\n", good ? "all of it adds up" : "telemetry: FAILED");
    return good ? 0 : 1;
}
