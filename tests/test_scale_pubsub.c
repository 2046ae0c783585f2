// test_scale_pubsub.c - ten million messages of 100 bytes past subscribers that never read, one for each policy: the broker's memory stays
// within its bound, every other subscriber gets every message in order, and what was dropped adds up exactly. Published over a connection, and by
// the broker's own program. `test_scale_pubsub 1000000 [CASE]...` runs with as many messages. One thread turns all pools. And 100,000 subscriptions,
// among which a message finds its few subscribers at the same cost.
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE // as the implementation would, before the first header
#endif
#include <string.h>
static unsigned long compared; // comparisons by the library: a measure of its work that is the same on every machine
#undef memcmp
#define memcmp(a, b, length) (compared++, (memcmp)(a, b, length))

#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "net.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define MESSAGES 200000
#else
#define MESSAGES 10000000
#endif

enum {
    PAYLOAD = 100,
    BATCH = 256,  // messages published in a round
    SAMPLES = 200, // of everything that is counted, in a case
    READERS = 3,  // well-behaved subscribers
    POLICIES = 5, // idlers, which do not read: one for each policy
    TOPICS = 4096,
    TOPIC_LENGTH = 10,
    HIGH_WATER = 65536,
    LIMIT = 262144,  // of each subscription
    READ_BUFFER = 131072,
    WRITE_MS = 2000, // of connections that are not to stop a publisher for ever
    STALL_MS = 30000, // without any progress: failed
    SUBSCRIBE = 0xFF10,
    SUBSCRIBED = 0xFF11,
    MESSAGE = 0xFF15,
    DROPPED = 0xFF16,
    SUB_ID = 7
};

static uint64_t messages = MESSAGES;
static char topics[TOPICS][TOPIC_LENGTH + 1];

// >>books: an allocator for each pool, so that a pool's memory and its peak are known exactly

struct books { size_t bytes, peak; };

static void book(struct books *books, size_t more, size_t less) {
    books->bytes = books->bytes + more - less;
    if (books->bytes > books->peak) books->peak = books->bytes;
}

static void *book_allocate(void *context, size_t size) {
    void *block = malloc(size);
    if (block) book((struct books *)context, size, 0);
    return block;
}

static void *book_resize(void *context, void *block, size_t old_size, size_t size) {
    void *moved = realloc(block, size);
    if (moved) book((struct books *)context, size, old_size);
    return moved;
}

static void book_release(void *context, void *block, size_t size) {
    if (block) book((struct books *)context, 0, size);
    free(block);
}

// >>messages: number k has k at its head, its complement at its end, and goes to topic k % topic_count

static void put64(uint8_t *out, uint64_t value) {
    int i;
    for (i = 7; i >= 0; i--, value >>= 8) out[i] = (uint8_t)value;
}

static uint64_t get64(const uint8_t *in) {
    uint64_t value = 0;
    int i;
    for (i = 0; i < 8; i++) value = value << 8 | in[i];
    return value;
}

// The number of a message; UINT64_MAX: it is none of ours, or was damaged.
static uint64_t number_of(unsigned topic_count, const void *topic, const uint8_t *data, size_t length) {
    uint64_t number;
    if (length != PAYLOAD) return UINT64_MAX;
    number = get64(data);
    if (get64(data + PAYLOAD - 8) != ~number || memcmp(topic, topics[number % topic_count], TOPIC_LENGTH) != 0) return UINT64_MAX;
    return number;
}

// >>the scene: a broker, its readers and idlers, and who publishes

struct reader { // a subscriber over a connection that reads all the time, and must get everything
    const struct scene *scene;
    frisbee_sub at_broker;
    uint64_t next, wrong;
    bool taken;
};

struct idler { // a raw socket that subscribes and does not read, until it is told to
    frisbee_slow slow;
    int fd;
    bool reading, taken, gone;
    frisbee_sub at_broker;
    int ended;                  // on_unsubscribe,
    frisbee_sub_info last;      // what it told,
    uint64_t published_at_end;  // and how many messages there had been
    uint64_t received, dropped, told, gaps, wrong, next; // told: drops before the last message
    uint64_t latest[TOPICS];    // next number that may come, by topic
    uint8_t in[65536];
    size_t in_size;
};

struct scene {
    struct books broker_books, reader_books, writer_books;
    frisbee_pool *broker, *readers, *writer; // the writer is the broker if it publishes itself
    frisbee_conn to;                         // the writer's connection, or FRISBEE_LOCAL
    struct record at_broker, at_impatient, at_readers, at_writer;
    struct reader reader[READERS];
    struct idler idler[POLICIES];
    frisbee_sub *joining; // where the handle of the next subscription goes
    int policies;         // idlers; without the last of them nobody blocks, and the publisher waits for the readers by itself
    unsigned topic_count;
    uint64_t sent, goal;  // messages that publish took, and how many it shall take
    bool refused;         // in this round
    int still;            // rounds in which the broker passed nothing on
    uint64_t published, next_sample;
    int samples, writable;
    size_t bound;
};

static struct scene scene;

static void on_subscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    struct scene *s = (struct scene *)user;
    (void)pool;
    if (CHECK(s->joining != NULL)) *s->joining = info->sub;
    CHECK_EQ(info->limit, LIMIT);
}

static void on_unsubscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    struct scene *s = (struct scene *)user;
    frisbee_stats stats;
    int i;
    for (i = 0; i < s->policies; i++) {
        if (s->idler[i].at_broker.id != info->sub.id) continue;
        s->idler[i].ended++;
        s->idler[i].last = *info;
        if (frisbee_pool_stats(pool, &stats) == FRISBEE_OK) s->idler[i].published_at_end = stats.published;
    }
}

static void on_room(frisbee_pool *pool, void *user) {
    (void)pool;
    ((struct scene *)user)->writable++;
}

static void on_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    struct reader *r = (struct reader *)user;
    const uint64_t number = number_of(r->scene->topic_count, message->topic, (const uint8_t *)message->data, message->length);
    (void)pool;
    r->wrong += number != r->next || message->dropped || message->retained;
    r->next++;
}

static void on_result(frisbee_pool *pool, frisbee_sub sub, frisbee_result result, void *user) {
    (void)pool, (void)sub;
    CHECK_EQ(result, FRISBEE_OK);
    ((struct reader *)user)->taken = true;
}

static void take_packet(const struct scene *s, struct idler *d, unsigned operation, unsigned id, const uint8_t *payload, size_t length) {
    if (operation == SUBSCRIBED && id == SUB_ID && length >= 1 && payload[0] == 0) {
        d->taken = true;
    } else if (operation == DROPPED && id == SUB_ID && length >= 8) {
        const uint64_t total = get64(payload);
        d->wrong += total <= d->dropped;
        d->dropped = total;
    } else if (operation == MESSAGE && id == SUB_ID && length >= 2 + TOPIC_LENGTH && payload[0] == 0 && payload[1] == TOPIC_LENGTH) {
        const uint8_t *data = payload + 2 + TOPIC_LENGTH;
        const uint64_t number = number_of(s->topic_count, payload + 2, data, length - 2 - TOPIC_LENGTH);
        uint64_t *next = d->slow == FRISBEE_SLOW_LATEST && number != UINT64_MAX ? &d->latest[number % s->topic_count] : &d->next;
        d->received++;
        if (number == UINT64_MAX || number < *next || (d->slow != FRISBEE_SLOW_LATEST && number - *next != d->dropped - d->told)) {
            d->wrong++;
            return;
        }
        d->told = d->dropped; // what was missed is told where it is missing
        d->gaps += number - *next;
        *next = number + 1;
    } else d->wrong++;
}

// Reads some of what has come.
static void idler_reads(const struct scene *s, struct idler *d) {
    size_t at = 0;
    const ssize_t n = recv(d->fd, d->in + d->in_size, sizeof d->in - d->in_size, 0);
    if (n <= 0) {
        d->gone |= n == 0 || (errno != EAGAIN && errno != EINTR);
        return;
    }
    d->in_size += (size_t)n;
    while (d->in_size - at >= 10) {
        const uint8_t *h = d->in + at;
        const size_t length = (size_t)h[6] << 24 | (size_t)h[7] << 16 | (size_t)h[8] << 8 | h[9];
        if (!CHECK(h[0] == 0x00 && h[1] == 0x0F && length < 1000)) {
            d->gone = true;
            return;
        }
        if (d->in_size - at - 10 < length) break;
        take_packet(s, d, (unsigned)(h[4] << 8 | h[5]), (unsigned)(h[2] << 8 | h[3]), h + 10, length);
        at += 10 + length;
    }
    d->in_size -= at;
    memmove(d->in, d->in + at, d->in_size);
}

static size_t put_subscribe(uint8_t *out, frisbee_slow slow, const char *topic) {
    uint8_t payload[2 + 4 + 1 + FRISBEE_TOPIC_MAX + 1];
    size_t n = 0, length = strlen(topic);
    payload[n++] = 0;
    payload[n++] = (uint8_t)slow;
    n += put16(payload + n, (unsigned)LIMIT >> 16);
    n += put16(payload + n, (unsigned)LIMIT & 0xFFFF);
    payload[n++] = (uint8_t)length;
    memcpy(payload + n, topic, length);
    n += length;
    payload[n++] = 0;
    return put_packet(out, 1, SUBSCRIBE, SUB_ID, payload, n);
}

// >>accounts

// What the manual allows the broker above what it holds when everybody has subscribed and nothing was published: for each subscriber a queue
// up to high_water, taken in chunks of FRISBEE_CHUNK, then its limit, and one message that may always wait (and one on its way from the one to
// the other); the buffer that input is read into, and as much kept of a publisher that is not read.
static size_t bound_above(size_t idle) {
    const size_t message = PAYLOAD + TOPIC_LENGTH + 64; // what one that waits counts
    const size_t subscriber = HIGH_WATER + FRISBEE_CHUNK + LIMIT + 2 * message;
    return idle + (READERS + POLICIES) * subscriber + 2 * READ_BUFFER;
}

static void account(const frisbee_sub_info *info, uint64_t published) {
    CHECK_EQ(info->delivered + info->dropped + info->waiting, published);
    CHECK(info->waiting <= 1 || info->waiting_bytes <= LIMIT);
    CHECK_EQ(info->waiting_bytes, (size_t)info->waiting * (PAYLOAD + TOPIC_LENGTH + 64));
    if (info->slow == FRISBEE_SLOW_BLOCK) CHECK_EQ(info->dropped, 0);
}

static void sample(struct scene *s) {
    frisbee_sub_info info;
    frisbee_stats stats;
    uint64_t lost = 0;
    int i;
    s->samples++;
    CHECK_EQ(frisbee_pool_stats(s->broker, &stats), FRISBEE_OK);
    CHECK_EQ(stats.memory, s->broker_books.bytes);
    CHECK(s->broker_books.peak <= s->bound);
    CHECK(frisbeei_check(s->broker));
    for (i = 0; i < READERS; i++) {
        CHECK_EQ(frisbee_sub_describe(s->broker, s->reader[i].at_broker, &info), FRISBEE_OK);
        account(&info, stats.published);
        CHECK(info.dropped == 0 && s->reader[i].wrong == 0);
    }
    for (i = 0; i < s->policies; i++) {
        const struct idler *d = &s->idler[i];
        if (d->ended) lost += d->last.dropped;
        else if (CHECK_EQ(frisbee_sub_describe(s->broker, d->at_broker, &info), FRISBEE_OK)) {
            account(&info, stats.published);
            CHECK(d->slow != FRISBEE_SLOW_LATEST || info.waiting <= s->topic_count);
            lost += info.dropped;
        }
    }
    CHECK_EQ(stats.lost, lost);
}

// >>rounds

static uint64_t published_by(const struct scene *s) {
    frisbee_stats stats;
    return frisbee_pool_stats(s->broker, &stats) == FRISBEE_OK ? stats.published : 0;
}

static frisbee_result publish_next(struct scene *s, const frisbee_publish_desc *desc) {
    uint8_t payload[PAYLOAD];
    frisbee_result result;
    memset(payload, 0x55, sizeof payload);
    put64(payload, s->sent);
    put64(payload + PAYLOAD - 8, ~s->sent);
    result = frisbee_publish(s->writer, s->to, topics[s->sent % s->topic_count], payload, sizeof payload, desc);
    s->sent += result == FRISBEE_OK;
    return result;
}

static bool everybody_has(const struct scene *s, uint64_t count) {
    int i;
    for (i = 0; i < READERS; i++)
        if (s->reader[i].next < count) return false;
    return s->published >= count;
}

static void round_of(struct scene *s) {
    const bool may_publish = s->policies == POLICIES || everybody_has(s, s->sent);
    uint64_t published;
    int i;
    s->refused = false;
    for (i = 0; i < BATCH && s->sent < s->goal && !s->refused && may_publish; i++) {
        const frisbee_result result = publish_next(s, NULL);
        s->refused = result != FRISBEE_OK;
        if (s->refused) CHECK_EQ(result, FRISBEE_AGAIN);
    }
    if (s->writer != s->broker) CHECK_EQ(frisbee_poll(s->writer, 0), FRISBEE_OK);
    CHECK_EQ(frisbee_poll(s->broker, s->refused ? 1 : 0), FRISBEE_OK);
    CHECK_EQ(frisbee_poll(s->readers, 0), FRISBEE_OK);
    for (i = 0; i < s->policies; i++)
        if (s->idler[i].reading && !s->idler[i].gone) idler_reads(s, &s->idler[i]);
    published = published_by(s);
    s->still = published == s->published ? s->still + 1 : 0;
    s->published = published;
    if (published < s->next_sample) return;
    s->next_sample += messages / SAMPLES;
    sample(s);
}

static uint64_t progress(const struct scene *s) {
    uint64_t sum = s->sent + s->published;
    int i;
    for (i = 0; i < READERS; i++) sum += s->reader[i].next;
    for (i = 0; i < s->policies; i++) sum += s->idler[i].received;
    return sum;
}

// Rounds until the condition holds; that it does is a check. Gives up when nothing has moved for STALL_MS.
#define ROUNDS_UNTIL(s, condition)                                                                \
    do {                                                                                          \
        uint64_t end_ = now_ms() + STALL_MS, seen_ = progress(s);                                 \
        while (!(condition) && now_ms() < end_) {                                                 \
            round_of(s);                                                                          \
            if (progress(s) == seen_) continue;                                                   \
            seen_ = progress(s);                                                                  \
            end_ = now_ms() + STALL_MS;                                                           \
        }                                                                                         \
        CHECK(condition);                                                                         \
    } while (0)

// >>setting up and clearing away

static frisbee_pool *booked_pool(struct books *books, const struct frisbee_broker *broker) {
    frisbee_pool_desc desc;
    frisbee_pool *pool = NULL;
    memset(&desc, 0, sizeof desc);
    desc.allocator.allocate = book_allocate;
    desc.allocator.resize = book_resize;
    desc.allocator.release = book_release;
    desc.allocator.context = books;
    desc.read_buffer = READ_BUFFER;
    desc.broker = broker;
    CHECK_EQ(frisbee_pool_create(&desc, &pool), FRISBEE_OK);
    if (!pool) exit(1);
    return pool;
}

static void listen_for(struct scene *s, struct record *seen, int32_t write_ms, char address[64]) {
    frisbee_conn_desc desc = quiet(seen);
    frisbee_listener listener;
    desc.write_ms = write_ms;
    desc.high_water = HIGH_WATER;
    desc.queue_limit = 2 * LIMIT;
    desc.max_packet = 1024;
    CHECK_EQ(frisbee_listen(s->broker, "127.0.0.1:0", &desc, &listener), FRISBEE_OK);
    CHECK_EQ(frisbee_listener_address(s->broker, listener, address, 64), FRISBEE_OK);
}

static void set_scene(struct scene *s, bool by_connection, unsigned topic_count, bool blocking) {
    struct frisbee_broker broker;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_sub_desc sub;
    char patient[64], impatient[64];
    int i;
    memset(s, 0, sizeof *s);
    memset(&broker, 0, sizeof broker);
    memset(&sub, 0, sizeof sub);
    s->topic_count = topic_count;
    s->policies = blocking ? POLICIES : POLICIES - 1;
    s->next_sample = UINT64_MAX;
    broker.user = s;
    broker.on_subscribe = on_subscribe;
    broker.on_unsubscribe = on_unsubscribe;
    broker.on_writable = on_room;
    broker.allow_block = blocking;
    broker.max_pending = LIMIT;
    s->broker = booked_pool(&s->broker_books, &broker);
    s->readers = booked_pool(&s->reader_books, NULL);
    s->writer = by_connection ? booked_pool(&s->writer_books, NULL) : s->broker;
    listen_for(s, &s->at_broker, FRISBEE_NEVER, patient);
    listen_for(s, &s->at_impatient, WRITE_MS, impatient);
    for (i = 0; i < READERS; i++) {
        frisbee_conn conn;
        s->reader[i].scene = s;
        desc.user = &s->at_readers;
        sub.on_message = on_message;
        sub.on_result = on_result;
        sub.user = &s->reader[i];
        sub.slow = blocking ? FRISBEE_SLOW_BLOCK : FRISBEE_SLOW_DROP_NEW;
        sub.limit = LIMIT;
        s->joining = &s->reader[i].at_broker;
        CHECK_EQ(frisbee_connect(s->readers, patient, &desc, &conn), FRISBEE_OK);
        CHECK_EQ(frisbee_subscribe(s->readers, conn, i ? "scale.>" : "scale.*", &sub, NULL), FRISBEE_OK);
        ROUNDS_UNTIL(s, s->reader[i].taken);
    }
    for (i = 0; i < s->policies; i++) {
        struct idler *d = &s->idler[i];
        uint8_t out[300];
        d->slow = (frisbee_slow)i;
        d->fd = raw_connect(by_connection && d->slow == FRISBEE_SLOW_BLOCK ? impatient : patient);
        s->joining = &d->at_broker;
        d->reading = true;
        {
            const size_t n = put_subscribe(out, d->slow, "scale.>");
            CHECK_EQ(send(d->fd, out, n, MSG_NOSIGNAL), n);
        }
        ROUNDS_UNTIL(s, d->taken);
        d->reading = false;
    }
    if (by_connection) {
        desc.user = &s->at_writer;
        desc.queue_limit = 2 * LIMIT;
        desc.max_packet = 1024;
        CHECK_EQ(frisbee_connect(s->writer, patient, &desc, &s->to), FRISBEE_OK);
        ROUNDS_UNTIL(s, s->at_writer.opened == 1 && s->at_broker.opened == READERS + POLICIES); // the impatient one is not among them
    } else s->to = FRISBEE_LOCAL;
    s->bound = bound_above(s->broker_books.bytes);
    s->broker_books.peak = s->broker_books.bytes;
    s->next_sample = 0;
    s->goal = messages;
}

static void clear_scene(struct scene *s) {
    int i;
    for (i = 0; i < s->policies; i++) close(s->idler[i].fd);
    frisbee_pool_destroy(s->readers);
    if (s->writer != s->broker) frisbee_pool_destroy(s->writer);
    frisbee_pool_destroy(s->broker);
    CHECK_EQ(s->broker_books.bytes + s->reader_books.bytes + s->writer_books.bytes, 0);
}

// The publisher publishes until the idler that blocks stops it: then it stands still, with nothing lost.
static void publish_until_blocked(struct scene *s) {
    struct idler *d = &s->idler[FRISBEE_SLOW_BLOCK];
    frisbee_sub_info info;
    uint64_t sent;
    ROUNDS_UNTIL(s, (s->refused && s->still >= 50) || d->ended || s->published == messages);
    sent = s->sent;
    s->writable = 0;
    CHECK(!d->ended && sent < messages);
    sample(s);
    CHECK_EQ(frisbee_sub_describe(s->broker, d->at_broker, &info), FRISBEE_OK);
    CHECK(info.waiting_bytes > LIMIT - (PAYLOAD + TOPIC_LENGTH + 64)); // another would not have found room
    CHECK(s->published <= sent);
    CHECK(s->writer != s->broker || s->published == sent);
}

// The idlers read what there is. `marks` messages follow, so that each is told what it has missed; then its books are closed.
static void read_at_last(struct scene *s, uint64_t marks) {
    int i;
    for (i = 0; i < s->policies; i++) s->idler[i].reading = !s->idler[i].ended;
    for (i = 0; i < s->policies; i++) {
        struct idler *d = &s->idler[i];
        frisbee_sub_info info;
        if (d->ended) continue;
        memset(&info, 0, sizeof info);
        ROUNDS_UNTIL(s, frisbee_sub_describe(s->broker, d->at_broker, &info) == FRISBEE_OK && !info.waiting && d->received == info.delivered);
        if (d->slow == FRISBEE_SLOW_DROP_NEW) CHECK(d->gaps == 0 && d->next == d->received); // the first ones, without a gap
        if (d->slow == FRISBEE_SLOW_DROP_OLD) CHECK_EQ(d->next, s->sent);                     // up to the last one
        if (d->slow == FRISBEE_SLOW_LATEST && s->topic_count < LIMIT / (PAYLOAD + TOPIC_LENGTH + 64)) { // the last one of each topic
            unsigned topic;
            for (topic = 0; topic < s->topic_count; topic++) CHECK(d->latest[topic] + s->topic_count > s->sent);
        }
    }
    s->goal += marks;
    ROUNDS_UNTIL(s, everybody_has(s, s->goal));
    for (i = 0; i < s->policies; i++) {
        struct idler *d = &s->idler[i];
        frisbee_sub_info info;
        if (d->ended) continue;
        ROUNDS_UNTIL(s, d->received + d->dropped >= s->goal);
        CHECK_EQ(d->received + d->dropped, s->goal);
        CHECK_EQ(frisbee_sub_describe(s->broker, d->at_broker, &info), FRISBEE_OK);
        CHECK(info.delivered == d->received && info.dropped == d->dropped && info.waiting == 0);
        CHECK(d->wrong == 0 && !d->gone);
        if (d->slow != FRISBEE_SLOW_LATEST) CHECK_EQ(d->gaps, d->dropped);
        if (d->slow != FRISBEE_SLOW_BLOCK) CHECK(d->dropped > 0);
    }
    sample(s);
}

static void check_closed_one(const struct scene *s) { // the idler that asked to be closed rather than miss anything
    const struct idler *d = &s->idler[FRISBEE_SLOW_CLOSE];
    CHECK_EQ(d->ended, 1);
    CHECK(d->last.delivered > 0 && d->last.waiting_bytes <= LIMIT);
    CHECK(d->last.delivered + d->last.dropped + d->last.waiting <= d->published_at_end);
    CHECK_EQ(s->at_broker.info.reason, FRISBEE_EXHAUSTED);
    CHECK(s->at_broker.closed == 1 && s->at_broker.finals == 1);
}

static struct { int count; frisbee_result result; frisbee_published published; } confirmed;

static void on_confirmed(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call, (void)user;
    confirmed.count++;
    confirmed.result = outcome->result;
    if (outcome->result == FRISBEE_OK) memcpy(&confirmed.published, outcome->data, sizeof confirmed.published);
}

// The publisher learns from its last message how many were lost.
static void publish_confirmed(struct scene *s) {
    frisbee_publish_desc desc;
    frisbee_stats stats;
    memset(&desc, 0, sizeof desc);
    memset(&confirmed, 0, sizeof confirmed);
    desc.on_reply = on_confirmed;
    s->goal++;
    CHECK_EQ(publish_next(s, &desc), FRISBEE_OK);
    ROUNDS_UNTIL(s, confirmed.count == 1);
    CHECK_EQ(confirmed.result, FRISBEE_OK);
    CHECK_EQ(confirmed.published.subscriptions, READERS + 3);
    CHECK_EQ(frisbee_pool_stats(s->broker, &stats), FRISBEE_OK);
    CHECK_EQ(confirmed.published.lost, stats.lost);
    CHECK_EQ(frisbee_conn_stats(s->writer, s->to, &stats), FRISBEE_OK);
    CHECK_EQ(stats.lost, confirmed.published.lost);
}

// >>cases

// The subscriber that blocks never reads, and stops the publisher until its connection is closed, by write_ms. The topics fit into what may
// wait for one subscription.
static void promise_9_ten_million_over_a_connection(void) {
    struct scene *s = &scene;
    struct idler *d = &s->idler[FRISBEE_SLOW_BLOCK];
    uint64_t stopped_at;
    begin();
    set_scene(s, true, 1000, true);
    publish_until_blocked(s);
    stopped_at = s->published;
    ROUNDS_UNTIL(s, d->ended);
    CHECK_EQ(d->published_at_end, stopped_at);
    CHECK(d->last.dropped == 0 && d->last.delivered + d->last.waiting == stopped_at);
    ROUNDS_UNTIL(s, s->at_impatient.finals == 1);
    CHECK_EQ(s->at_impatient.info.reason, FRISBEE_TIMED_OUT);
    ROUNDS_UNTIL(s, everybody_has(s, messages));
    CHECK(s->at_writer.writable > 0 && s->samples >= SAMPLES);
    check_closed_one(s);

    publish_confirmed(s);
    read_at_last(s, 2);
    CHECK(s->at_writer.closed == 0 && s->at_readers.closed == 0);
    clear_scene(s);
    end();
}

// The subscriber that blocks begins to read when it has stopped the publisher, and then gets every message. There are more topics than what
// may wait for one subscription has room for.
static void promise_9_ten_million_by_the_brokers_program(void) {
    struct scene *s = &scene;
    struct idler *d = &s->idler[FRISBEE_SLOW_BLOCK];
    begin();
    set_scene(s, false, TOPICS, true);
    publish_until_blocked(s);
    d->reading = true;
    ROUNDS_UNTIL(s, everybody_has(s, messages));
    CHECK(s->writable > 0 && s->samples >= SAMPLES && !d->ended);
    check_closed_one(s);
    read_at_last(s, 2);
    CHECK(d->received == s->goal && d->gaps == 0 && d->dropped == 0);
    CHECK_EQ(s->at_readers.closed, 0);
    clear_scene(s);
    end();
}

// Nobody may block: the publisher sees to it by itself that the readers keep up. All is on one topic, and may be passed on many at a time.
static void promise_9_ten_million_on_one_topic(void) {
    struct scene *s = &scene;
    begin();
    set_scene(s, true, 1, false);
    ROUNDS_UNTIL(s, everybody_has(s, messages));
    CHECK(s->samples >= SAMPLES);
    check_closed_one(s);
    publish_confirmed(s);
    read_at_last(s, 2);
    CHECK(s->at_writer.closed == 0 && s->at_readers.closed == 0);
    clear_scene(s);
    end();
}

enum { FEW = 100, COLLIDING = 65536, MANY = 100000 };

static frisbee_sub many[MANY];
static long heard[2]; // by the few, by the others

static void count_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    (void)pool, (void)message;
    ++*(long *)user;
}

// Subscription number i: one of the few, then names that are the same to many a hash function, then names with wildcards and deep ones.
static const char *many_topic(int i) {
    static char topic[100];
    int bit;
    if (i < FEW) snprintf(topic, sizeof topic, "few.%d", i);
    else if (i < FEW + COLLIDING) {
        strcpy(topic, "few.");
        for (bit = 0; bit < 16; bit++) strcat(topic, (i - FEW) >> bit & 1 ? "Aa" : "BB");
    } else if (i % 2) snprintf(topic, sizeof topic, "few.%d.*.x.%d.>", i % FEW, i);
    else snprintf(topic, sizeof topic, "*.x%d", i);
    return topic;
}

static void subscribe_many(frisbee_pool *pool, int from, int until) {
    frisbee_sub_desc desc;
    int i, taken = 0;
    memset(&desc, 0, sizeof desc);
    desc.on_message = count_message;
    desc.user = &heard[from >= FEW];
    for (i = from; i < until; i++) taken += frisbee_subscribe(pool, FRISBEE_LOCAL, many_topic(i), &desc, &many[i]) == FRISBEE_OK;
    CHECK_EQ(taken, until - from);
}

// Comparisons that 1,000 publishes to the few take, each of which has one subscriber.
static unsigned long comparisons(frisbee_pool *pool) {
    const unsigned long before = compared;
    uint32_t count = 0;
    int i;
    heard[0] = heard[1] = 0;
    for (i = 0; i < 1000; i++) {
        char topic[20];
        snprintf(topic, sizeof topic, "few.%d", i % FEW);
        CHECK_EQ(frisbee_publish(pool, FRISBEE_LOCAL, topic, "x", 1, NULL), FRISBEE_OK);
        if (i % 50 == 0) CHECK(frisbee_topic_count(pool, topic, &count) == FRISBEE_OK && count == 1);
        if (i % 50 == 49) CHECK_EQ(frisbee_poll(pool, 0), FRISBEE_OK);
    }
    CHECK(heard[0] == 1000 && heard[1] == 0);
    return compared - before;
}

static uint32_t longest_chain(const frisbee_pool *pool) {
    const frisbeei_broker_state *broker = pool->broker;
    uint32_t i, longest = 0;
    for (i = 0; i < broker->bucket_count; i++) {
        const frisbeei_node *node = broker->buckets[i];
        uint32_t length = 0;
        for (; node; node = node->bucket) length++;
        if (length > longest) longest = length;
    }
    return longest;
}

static void promise_9_a_hundred_thousand_subscriptions(void) {
    const frisbee_broker broker = {0};
    struct books books = {0, 0};
    frisbee_pool *pool;
    unsigned long few, among_many;
    size_t before, each;
    int i, ended = 0;
    begin();
    pool = booked_pool(&books, &broker);
    subscribe_many(pool, 0, FEW);
    few = comparisons(pool);
    before = books.bytes;
    subscribe_many(pool, FEW, MANY);
    each = (books.bytes - before) / (MANY - FEW);
    CHECK(each < 600); // bytes
    CHECK(frisbeei_check(pool));
    among_many = comparisons(pool);
    CHECK(few > 0 && among_many <= 2 * few);
    CHECK(pool->broker->node_count > COLLIDING && pool->broker->node_count <= pool->broker->bucket_count);
    CHECK(longest_chain(pool) < 20); // as chance has it, whatever the names
    for (i = 0; i < MANY; i++) ended += frisbee_unsubscribe(pool, many[((long)i * 7919 + 5) % MANY]) == FRISBEE_OK; // in another order
    CHECK_EQ(ended, MANY);
    CHECK_EQ(frisbee_poll(pool, 0), FRISBEE_OK);
    CHECK(frisbeei_check(pool) && pool->broker->node_count == 0);
    frisbee_pool_destroy(pool);
    CHECK_EQ(books.bytes, 0);
    end();
}

int main(int argc, char **argv) {
    unsigned i;
    watchdog(800);
    for (i = 0; i < TOPICS; i++) snprintf(topics[i], sizeof topics[i], "scale.%04u", i);
    if (argc > 1 && atol(argv[1]) > 0) {
        messages = (uint64_t)atol(argv[1]);
        argc--;
        argv++;
    }
    RUN(promise_9_a_hundred_thousand_subscriptions);
    RUN(promise_9_ten_million_over_a_connection);
    RUN(promise_9_ten_million_by_the_brokers_program);
    RUN(promise_9_ten_million_on_one_topic);
    return check_report("scale_pubsub");
}
