// test_loop_patterns.c - sections 9 and 10 of the manual (publish and subscribe, streams) over real sockets, TCP and Unix, in several pools and
// in one. Built once for each poller. Every message says who sent it and its number, and is verified byte by byte. Randomness has a seed.
struct msghdr;
static long cut_send(int fd, const struct msghdr *message, int flags);
static long cut_receive(int fd, void *into, unsigned long room, int flags);
static long cut_receive_spans(int fd, struct msghdr *message, int flags);
static int close_as_told(int fd);
#define FRISBEE_SYS_SENDMSG cut_send
#define FRISBEE_SYS_RECV cut_receive
#define FRISBEE_SYS_RECVMSG cut_receive_spans
#define FRISBEE_SYS_CLOSE close_as_told

#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "net.h"

#define TCP "127.0.0.1:0"

static uint32_t chance = 1; // state of the random numbers

static uint32_t below(uint32_t limit) { // xorshift
    chance ^= chance << 13;
    chance ^= chance >> 17;
    chance ^= chance << 5;
    return limit ? chance % limit : 0;
}

// >>seams: the library's reads and writes cut short, its closes made resets

static size_t cut_to; // bytes that one system call moves at most, and one in eight moves none; 0: no limit
static bool reset_on_close;

static int cut_nothing(void) {
    if (!cut_to || below(8)) return 0;
    errno = below(2) ? EINTR : EAGAIN;
    return 1;
}

// The first bytes of what the message is about.
static struct iovec cut_span(const struct msghdr *message) {
    struct iovec span;
    size_t i = 0;
    while (i + 1 < (size_t)message->msg_iovlen && message->msg_iov[i].iov_len == 0) i++;
    span = message->msg_iov[i];
    if (span.iov_len > cut_to) span.iov_len = cut_to;
    return span;
}

static long cut_send(int fd, const struct msghdr *message, int flags) {
    struct iovec span;
    if (!cut_to) return sendmsg(fd, message, flags);
    if (cut_nothing()) return -1;
    span = cut_span(message);
    return send(fd, span.iov_base, span.iov_len, flags);
}

static long cut_receive(int fd, void *into, unsigned long room, int flags) {
    return cut_nothing() ? -1 : recv(fd, into, cut_to && room > cut_to ? cut_to : room, flags);
}

static long cut_receive_spans(int fd, struct msghdr *message, int flags) {
    struct iovec span;
    if (!cut_to) return recvmsg(fd, message, flags);
    if (cut_nothing()) return -1;
    span = cut_span(message);
    return recv(fd, span.iov_base, span.iov_len, flags);
}

static int close_as_told(int fd) {
    struct linger linger;
    linger.l_onoff = 1;
    linger.l_linger = 0;
    if (reset_on_close) setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger); // RST, whatever is under way is lost
    return close(fd);
}

// >>helpers

struct client {
    frisbee_pool *pool;
    frisbee_conn conn;
    struct record seen;
};

static void dial(struct client *c, frisbee_pool *pool, const char *address, const frisbee_conn_desc *given) {
    frisbee_conn_desc desc = given ? *given : quiet(NULL);
    memset(c, 0, sizeof *c);
    if (!desc.user) desc.user = &c->seen;
    c->pool = pool ? pool : new_pool(NULL);
    CHECK_EQ(frisbee_connect(c->pool, address, &desc, &c->conn), FRISBEE_OK);
}

static const char *unix_address(void) { // of a socket file that is not there
    static char address[100];
    const char *where = getenv("TMPDIR");
    snprintf(address, sizeof address, "unix:%.40s/frisbee_patterns_%ld", where && *where ? where : "/tmp", (long)getpid());
    unlink(address + 5);
    return address;
}

static frisbee_stats stats_of(frisbee_pool *pool) {
    frisbee_stats stats;
    CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
    return stats;
}

static uint64_t read64(const uint8_t *in) {
    uint64_t value = 0;
    int i;
    for (i = 0; i < 8; i++) value = value << 8 | in[i];
    return value;
}

static void write64(uint8_t *out, uint64_t value) {
    int i;
    for (i = 7; i >= 0; i--, value >>= 8) out[i] = (uint8_t)value;
}

// >>publishers and subscribers. A message is on one of its publisher's lines: u8 line, u64 number on it, u64 number in all, then filler.

enum { LINES = 8, HEAD = 17, MESSAGE_MAX = 30000 }; // from some kilobytes on subscribers share one copy

struct voice { // a publisher
    frisbee_pool *pool;
    frisbee_conn conn;
    uint64_t next[LINES], all;
};

static void make_message(uint8_t *out, unsigned line, uint64_t number, uint64_t all, size_t length) {
    out[0] = (uint8_t)line;
    write64(out + 1, number);
    write64(out + 9, all);
    fill(out + HEAD, length - HEAD, (uint32_t)(number * 31 + line));
}

static frisbee_result say(struct voice *v, const char *topic, unsigned line, size_t length, const frisbee_publish_desc *desc) {
    uint8_t data[MESSAGE_MAX];
    frisbee_result result;
    make_message(data, line, v->next[line], v->all, length);
    result = frisbee_publish(v->pool, v->conn, topic, data, length, desc);
    if (result == FRISBEE_OK) {
        v->next[line]++;
        v->all++;
    }
    return result;
}

static bool matches(const char *pattern, const char *topic) {
    for (;; pattern++, topic++) {
        if (*pattern == '>') return *topic != 0;
        if (*pattern == '*') {
            for (pattern++; *topic && *topic != '.';) topic++;
        } else while (*pattern && *pattern != '.')
            if (*pattern++ != *topic++) return false;
        if (*pattern != *topic) return false;
        if (!*pattern) return true;
    }
}

struct feed { // a subscription, and what came
    frisbee_sub sub;
    frisbee_conn conn;
    const char *pattern;
    bool taken;       // by the broker, in this session
    bool one_voice;   // everything comes from one publisher, in its order
    unsigned fresh;   // lines whose next message may be any later one,
    unsigned loose;   // and those on which every one may
    long received, results, refusals, kept, strange, disorder;
    uint64_t gaps, dropped, next[LINES], all;
    frisbee_result result; // the last one
};

static void feed_message(frisbee_pool *pool, const frisbee_message *m, void *user) {
    struct feed *f = (struct feed *)user;
    const uint8_t *data = (const uint8_t *)m->data;
    uint8_t expected[MESSAGE_MAX];
    uint64_t number, all;
    unsigned line;
    (void)pool;
    f->strange += !f->taken || m->sub.id != f->sub.id || m->conn.id != f->conn.id || !matches(f->pattern, m->topic);
    if (m->length < HEAD || m->length > MESSAGE_MAX || data[0] >= LINES) {
        f->strange++;
        return;
    }
    line = data[0];
    number = read64(data + 1);
    all = read64(data + 9);
    make_message(expected, line, number, all, m->length);
    f->strange += memcmp(expected, data, m->length) != 0;
    if (m->retained) {
        f->kept++;
        return;
    }
    f->received++;
    f->dropped += m->dropped;
    f->disorder += number < f->next[line] || (f->one_voice && all - f->all != m->dropped); // what was missed is told where it is missing
    if (!((f->fresh | f->loose) >> line & 1)) f->gaps += number - f->next[line];
    f->fresh &= ~(1u << line);
    f->next[line] = number + 1;
    f->all = all + 1;
}

static void feed_result(frisbee_pool *pool, frisbee_sub sub, frisbee_result result, void *user) {
    struct feed *f = (struct feed *)user;
    (void)pool;
    CHECK(sub.id == f->sub.id && !f->taken);
    f->results++;
    f->refusals += result != FRISBEE_OK;
    f->taken = result == FRISBEE_OK;
    f->result = result;
}

static frisbee_sub_desc sub_desc(struct feed *f, frisbee_slow slow, uint32_t limit) {
    frisbee_sub_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.on_message = feed_message;
    desc.on_result = feed_result;
    desc.user = f;
    desc.slow = slow;
    desc.limit = limit;
    return desc;
}

static void hear_with(struct feed *f, frisbee_pool *pool, frisbee_conn conn, const char *topic, const frisbee_sub_desc *desc) {
    memset(f, 0, sizeof *f);
    f->conn = conn;
    f->pattern = topic;
    f->taken = conn.id == FRISBEE_LOCAL.id; // at its own broker there is nobody to wait for
    CHECK_EQ(frisbee_subscribe(pool, conn, topic, desc, &f->sub), FRISBEE_OK);
}

static frisbee_slow usual_slow = FRISBEE_SLOW_BLOCK; // so that nothing may be lost

static void hear(struct feed *f, frisbee_pool *pool, frisbee_conn conn, const char *topic, const char *group) {
    frisbee_sub_desc desc = sub_desc(f, usual_slow, 0);
    desc.group = group;
    hear_with(f, pool, conn, topic, &desc);
}

static int feed_is_clean(const struct feed *f) { return CHECK_EQ(f->strange, 0) & CHECK_EQ(f->disorder, 0) & CHECK_EQ(f->refusals, 0); }

struct ends { int count; frisbee_sub_info last; char *trace; }; // the broker's on_unsubscribe

static void end_seen(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    struct ends *ends = (struct ends *)user;
    (void)pool;
    if (!ends) return;
    ends->count++;
    ends->last = *info;
    if (ends->trace) strcat(ends->trace, "u");
}

static int room_seen; // the broker's on_writable

static void see_room(frisbee_pool *pool, void *user) {
    (void)pool, (void)user;
    room_seen++;
}

static struct frisbee_broker usual_broker(struct ends *ends) {
    struct frisbee_broker broker;
    memset(&broker, 0, sizeof broker);
    broker.user = ends;
    broker.on_unsubscribe = end_seen;
    broker.on_writable = see_room;
    broker.allow_block = true;
    room_seen = 0;
    return broker;
}

static void serve_broker(struct server *s, const char *address, const frisbee_conn_desc *given, const struct frisbee_broker *broker) {
    const struct frisbee_broker usual = usual_broker(NULL);
    frisbee_pool_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.broker = broker ? broker : &usual;
    serve_at(s, address, given, &desc);
}

struct answer { // to a confirmed publish
    int count;
    frisbee_result result;
    bool sent;
    frisbee_published published;
};

static void record_answer(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    struct answer *a = (struct answer *)user;
    (void)pool, (void)call;
    a->count++;
    a->result = outcome->result;
    a->sent = outcome->sent;
    if (outcome->result == FRISBEE_OK) memcpy(&a->published, outcome->data, sizeof a->published);
}

static frisbee_publish_desc confirm(struct answer *answer) {
    frisbee_publish_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(answer, 0, sizeof *answer);
    desc.on_reply = record_answer;
    desc.user = answer;
    return desc;
}

// >>section 9: who hears what

// Three publishers (two over connections, one in the broker's program) and subscribers of every kind; pools: 1 or 3.
static void fan(const char *address, int pools, int each, uint32_t most) {
    static const char *const groups[] = {"fan.>", "fan.*.*", ">"};
    struct server s;
    struct client in[2], out[3];
    struct voice voices[3];
    struct feed all, all_again, third, one, none, local, group[3];
    frisbee_pool *others, *speakers;
    uint32_t count = 0;
    long grouped, twos = 0, total = 3L * each;
    int i, sent = 0;
    begin();
    serve_broker(&s, address, NULL, NULL);
    others = pools == 1 ? s.pool : new_pool(NULL);
    speakers = pools == 1 ? s.pool : new_pool(NULL);
    for (i = 0; i < 3; i++) dial(&out[i], others, s.address, NULL);
    for (i = 0; i < 2; i++) dial(&in[i], speakers, s.address, NULL);
    hear(&all, others, out[0].conn, ">", NULL); // before the connection is open
    hear(&all_again, others, out[0].conn, "fan.*.*", NULL);
    hear(&none, others, out[0].conn, "fan.*", NULL);
    hear(&local, s.pool, FRISBEE_LOCAL, "fan.>", NULL);
    WAIT_FOR(s.seen.opened == 5);
    hear(&third, others, out[1].conn, "fan.*.2", NULL);
    hear(&one, others, out[1].conn, "fan.1.>", NULL);
    for (i = 0; i < 3; i++) hear(&group[i], i == 2 ? s.pool : others, i == 2 ? FRISBEE_LOCAL : out[1 + i].conn, groups[i], "crew");
    WAIT_FOR(stats_of(s.pool).subs == 9 && group[1].taken && one.taken && all.taken);
    CHECK_EQ(frisbee_topic_count(s.pool, "fan.1.2", &count), FRISBEE_OK);
    CHECK_EQ(count, 6); // all but `none`; the group is one
    memset(voices, 0, sizeof voices);
    for (i = 0; i < 3; i++) {
        voices[i].pool = i < 2 ? speakers : s.pool;
        voices[i].conn = i < 2 ? in[i].conn : FRISBEE_LOCAL;
    }
    while (sent < each) {
        const int until = sent + 25 < each ? sent + 25 : each;
        for (; sent < until; sent++)
            for (i = 0; i < 3; i++) {
                const int token = sent / 4 % 3; // some in a row on one topic
                char topic[32];
                twos += token == 2;
                snprintf(topic, sizeof topic, "fan.%d.%d", i, token);
                CHECK_EQ(say(&voices[i], topic, (unsigned)i, HEAD + below(below(50) ? most : most * 60), NULL), FRISBEE_OK);
            }
        turn(0);
    }
    if (cut_to) turns(4000); // without sleeping: small pieces take many
    WAIT_FOR(all.received == total && all_again.received == total && local.received == total && one.received == each &&
             third.received == twos && group[0].received + group[1].received + group[2].received == total);
    turns(5);
    CHECK(all.received == total && all_again.received == total && none.received == 0);
    CHECK(feed_is_clean(&all) && feed_is_clean(&all_again) && feed_is_clean(&third) && feed_is_clean(&one) && feed_is_clean(&local));
    CHECK(all.gaps == 0 && all_again.gaps == 0 && one.gaps == 0 && local.gaps == 0);
    for (i = 0, grouped = 0; i < 3; i++) {
        CHECK(feed_is_clean(&group[i]) && group[i].received > total / 10);
        grouped += group[i].received;
    }
    CHECK_EQ(grouped, total);
    CHECK(stats_of(s.pool).published == (uint64_t)total && stats_of(s.pool).lost == 0);
    CHECK_EQ(frisbee_unsubscribe(others, all.sub), FRISBEE_OK);
    CHECK_EQ(frisbee_unsubscribe(others, all.sub), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_unsubscribe(s.pool, local.sub), FRISBEE_OK);
    CHECK_EQ(say(&voices[2], "fan.0.0", 2, HEAD, NULL), FRISBEE_OK);
    WAIT_FOR(all_again.received == total + 1 && stats_of(s.pool).subs == 7);
    CHECK(all.received == total && local.received == total);
    frisbee_close(others, out[1].conn, FRISBEE_CLOSE_FLUSH); // its subscriptions end with it
    WAIT_FOR(stats_of(s.pool).subs == 4);
    end();
}

static void section_9_order_groups_and_wildcards(void) {
    fan(TCP, 3, 1500, 300);
    fan(TCP, 1, 1500, 300);
    fan(unix_address(), 3, 1500, 300);
    fan(unix_address(), 1, 600, 400);
    usual_slow = FRISBEE_SLOW_DROP_NEW; // where nobody blocks messages may be passed on several at a time; nothing is dropped: all keep up
    fan(TCP, 3, 1500, 300);
    fan(unix_address(), 1, 600, 400);
    usual_slow = FRISBEE_SLOW_BLOCK;
}

// The next packet is this one; its payload is then in `in`.
static int came(int fd, int wire, uint8_t *in, size_t room, unsigned operation, unsigned id, size_t length) {
    struct raw_packet packet;
    return raw_packet(fd, wire, &packet, in, room) && packet.operation == operation && packet.id == id && packet.length == length;
}

// Without this library: bytes written by hand, and the answers byte by byte, in both wires.
static void exchange_bytes(int fd, int wire, unsigned operation, unsigned id, const char *payload, size_t length, unsigned answered,
                           const char *answer, size_t answer_length) {
    uint8_t out[400], in[400];
    const size_t n = put_packet(out, wire, operation, id, payload, length);
    CHECK_EQ(raw_send(fd, out, n), n);
    if (answered) CHECK(came(fd, wire, in, sizeof in, answered, id, answer_length) && (!answer || memcmp(in, answer, answer_length) == 0));
}

#define BYTES(text) text, sizeof text - 1

static void section_11_publish_and_subscribe_by_hand(void) {
    static const struct { unsigned operation; const char *payload; size_t length; } wrong[] = {{0xFF10, BYTES("\0\0\0\0\0\0\3a.")},
        {0xFF10, BYTES("\0\0\0\0\0\0\1a\2g")}, {0xFF10, BYTES("\0")}, {0xFF14, BYTES("")}, {0xFF14, BYTES("\0\5abc")}};
    struct server s, plain;
    uint8_t in[100], out[200];
    struct raw_packet packet;
    size_t i, n;
    int wire, fd, other;
    for (wire = 0; wire <= 1; wire++) {
        begin();
        serve_broker(&s, TCP, NULL, NULL);
        serve(&plain, NULL);
        fd = raw_connect(s.address);
        other = raw_connect(s.address);
        exchange_bytes(fd, wire, 0xFF10, 9, BYTES("\0\0\0\0\0\0\3z.*\0"), 0xFF11, BYTES("\0"));
        n = put_packet(out, wire, 0xFF14, 0, BYTES("\0\3z.y1")); // what comes in one piece is done in order
        n += put_packet(out + n, wire, 0xFF14, 0, BYTES("\0\3z.y2"));
        n += put_packet(out + n, wire, 0xFF14, 0, BYTES("\0\3z.x3"));
        n += put_packet(out + n, wire, 0xFF12, 9, NULL, 0);
        n += put_packet(out + n, wire, 0xFF14, 0, BYTES("\0\3z.x4"));
        CHECK_EQ(raw_send(fd, out, n), n);
        for (i = 1; i <= 3; i++)
            CHECK(came(fd, wire, in, sizeof in, 0xFF15, 9, 6) && in[5] == '0' + i);
        CHECK(came(fd, wire, in, sizeof in, 0xFF13, 9, 0));
        exchange_bytes(fd, wire, 0xFF10, 7, BYTES("\0\0\0\0\0\0\3a.*\0"), 0xFF11, BYTES("\0"));
        exchange_bytes(fd, wire, 0xFF10, 7, BYTES("\0\0\0\0\0\0\3a.*\0"), 0xFF11, BYTES("\5")); // in use
        exchange_bytes(fd, wire, 0xFF10, 8, BYTES("\0\0\0\0\0\0\4a..b\0"), 0xFF11, BYTES("\2"));
        exchange_bytes(fd, wire, 0xFF10, 8, BYTES("\0\0\0\0\0\0\3>.a\0"), 0xFF11, BYTES("\2"));
        exchange_bytes(fd, wire, 0xFF10, 8, BYTES("\0\0\0\0\0\0\1>\3g g"), 0xFF11, BYTES("\2"));
        exchange_bytes(other, wire, 0xFF10, 0, BYTES("\1\4\0\1\0\0\3a.b\4crew and more bytes"), 0xFF11, BYTES("\0")); // its own ids
        exchange_bytes(other, wire, 0xFF14, 5, BYTES("\1\3a.bhello"), 0, NULL, 0);
        CHECK(came(fd, wire, in, sizeof in, 0xFF15, 7, 10) && memcmp(in, "\1\3a.bhello", 10) == 0);
        for (i = 0; i < 2; i++) { // its own copy and the answer, in whichever order
            CHECK(raw_packet(other, wire, &packet, in, sizeof in));
            if (packet.operation == 0xFF15) CHECK(packet.id == 0 && packet.length == 10 && memcmp(in, "\1\3a.bhello", 10) == 0);
            else CHECK(packet.operation == 0xFF17 && packet.id == 5 && packet.length == 13 && in[0] == 0 && in[4] == 2 && in[12] == 0);
        }
        exchange_bytes(fd, wire, 0xFF14, 6, BYTES("\0\3a.*hello"), 0xFF17, BYTES("\2\0\0\0\0\0\0\0\0\0\0\0\0"));
        exchange_bytes(fd, wire, 0xFF12, 7, NULL, 0, 0xFF13, NULL, 0);
        exchange_bytes(fd, wire, 0xFF10, 7, BYTES("\1\1\0\0\0\0\1>\0"), 0xFF11, BYTES("\0")); // the id is free, the last value there
        CHECK(came(fd, wire, in, sizeof in, 0xFF15, 7, 10) && (in[0] & 2) && memcmp(in + 1, "\3a.bhello", 9) == 0);
        close(fd);
        fd = raw_connect(plain.address);
        exchange_bytes(fd, wire, 0xFF10, 3, BYTES("\0\0\0\0\0\0\1>\0"), 0xFF11, BYTES("\4"));
        exchange_bytes(fd, wire, 0xFF14, 4, BYTES("\0\1a"), 0xFF17, BYTES("\4\0\0\0\0\0\0\0\0\0\0\0\0"));
        close(fd);
        close(other);
        WAIT_FOR(s.seen.finals == 2 && stats_of(s.pool).subs == 0);
        for (i = 0; i < sizeof wrong / sizeof *wrong; i++) { // too short: nobody else is disturbed
            fd = raw_connect(s.address);
            exchange_bytes(fd, wire, wrong[i].operation, 1, wrong[i].payload, wrong[i].length, 0, NULL, 0);
            WAIT_FOR(s.seen.finals == 3 + (int)i);
            CHECK_EQ(s.seen.info.reason, FRISBEE_MALFORMED);
            close(fd);
        }
        end();
    }
}

static bool may_say(frisbee_pool *pool, const frisbee_message *message, void *user) {
    (void)pool, (void)user;
    CHECK(message->conn.id != 0 && message->conn.id != FRISBEE_LOCAL.id && message->length > 0 && message->data);
    return strncmp(message->topic, "secret.", 7) != 0;
}

static bool may_hear(frisbee_pool *pool, const frisbee_sub_info *wanted, void *user) {
    (void)pool, (void)user;
    CHECK(wanted->conn.id != 0 && wanted->conn.id != FRISBEE_LOCAL.id);
    return strncmp(wanted->topic, "secret.", 7) != 0;
}

static void section_9_confirmed_publish(void) {
    enum { FLIGHT = 1000 };
    static struct answer answers[FLIGHT];
    static const char *const malformed[] = {"", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "a\tb", "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q"};
    struct frisbee_broker broker = usual_broker(NULL);
    struct server s, plain;
    struct client c, lost;
    struct voice voice;
    struct feed feed, refused, local;
    frisbee_publish_desc desc;
    size_t i;
    begin();
    broker.may_publish = may_say;
    broker.may_subscribe = may_hear;
    broker.max_retained = 1000;
    serve_broker(&s, TCP, NULL, &broker);
    serve(&plain, NULL);
    dial(&c, NULL, s.address, NULL);
    dial(&lost, c.pool, plain.address, NULL);
    memset(&voice, 0, sizeof voice);
    voice.pool = c.pool;
    voice.conn = c.conn;
    hear(&feed, c.pool, c.conn, "news.>", NULL);
    hear(&refused, c.pool, c.conn, "secret.>", NULL);
    hear(&local, s.pool, FRISBEE_LOCAL, "*.*", NULL);
    WAIT_FOR(feed.results == 1 && refused.results == 1);
    CHECK(feed.result == FRISBEE_OK && refused.result == FRISBEE_REFUSED);
    CHECK_EQ(frisbee_unsubscribe(c.pool, refused.sub), FRISBEE_CLOSED);
    for (i = 0; i < FLIGHT; i++) {
        desc = confirm(&answers[i]);
        CHECK_EQ(say(&voice, "news.all", 0, HEAD + i % 50, &desc), FRISBEE_OK);
    }
    WAIT_FOR(answers[FLIGHT - 1].count == 1);
    for (i = 0; i < FLIGHT; i++) {
        CHECK(answers[i].count == 1 && answers[i].result == FRISBEE_OK && answers[i].published.lost == 0);
        CHECK_EQ(answers[i].published.subscriptions, 2);
    }
    WAIT_FOR(feed.received == FLIGHT && local.received == FLIGHT);
    CHECK(feed_is_clean(&feed) && feed.gaps == 0 && local.gaps == 0);

    desc = confirm(&answers[0]);
    CHECK_EQ(frisbee_publish(c.pool, c.conn, "secret.plan", "x", 1, &desc), FRISBEE_OK);
    desc = confirm(&answers[1]);
    desc.retain = true;
    CHECK_EQ(say(&voice, "news.last", 1, HEAD, &desc), FRISBEE_OK);
    desc = confirm(&answers[2]); // there is room for one value
    desc.retain = true;
    CHECK_EQ(say(&voice, "news.more", 1, HEAD, &desc), FRISBEE_OK);
    desc = confirm(&answers[3]);
    CHECK_EQ(frisbee_publish(lost.pool, lost.conn, "news.all", "x", 1, &desc), FRISBEE_OK);
    WAIT_FOR(answers[0].count && answers[1].count && answers[2].count && answers[3].count);
    CHECK_EQ(answers[0].result, FRISBEE_REFUSED);
    CHECK_EQ(answers[1].result, FRISBEE_OK);
    CHECK_EQ(answers[2].result, FRISBEE_EXHAUSTED);
    CHECK_EQ(answers[3].result, FRISBEE_UNSUPPORTED);
    WAIT_FOR(feed.received == FLIGHT + 2); // passed on, though not retained
    for (i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        desc = confirm(&answers[i]);
        CHECK_EQ(frisbee_publish(c.pool, c.conn, malformed[i], "x", 1, &desc), FRISBEE_INVALID);
        CHECK_EQ(frisbee_publish(s.pool, FRISBEE_LOCAL, malformed[i], "x", 1, NULL), FRISBEE_INVALID);
    }
    turns(5);
    for (i = 0; i < sizeof malformed / sizeof *malformed; i++) CHECK_EQ(answers[i].count, 0);
    CHECK_EQ(frisbee_publish(s.pool, FRISBEE_LOCAL, "a.b", "x", 1, &desc), FRISBEE_INVALID); // nobody to confirm it
    CHECK_EQ(frisbee_publish(c.pool, FRISBEE_LOCAL, "a.b", "x", 1, NULL), FRISBEE_INVALID);   // no broker here
    CHECK(local.received == FLIGHT + 2 && s.seen.closed == 0 && c.seen.closed == 0);
    end();
}

// The connection is reset with confirmed publishes in flight: each is answered once, and the answer is true.
static void section_9_confirmed_publish_through_a_reset(void) {
    enum { FLIGHT = 300 };
    static struct answer answers[FLIGHT];
    int round, unknown = 0, fine = 0;
    for (round = 0; round < 30; round++) {
        struct server s;
        struct client c;
        struct voice voice;
        struct feed local;
        frisbee_publish_desc desc;
        int i, when, sent = 0;
        begin();
        chance = 1000u + (uint32_t)round;
        when = (int)below(FLIGHT);
        serve_broker(&s, TCP, NULL, NULL);
        dial(&c, NULL, s.address, NULL);
        hear(&local, s.pool, FRISBEE_LOCAL, ">", NULL);
        memset(&voice, 0, sizeof voice);
        voice.pool = c.pool;
        voice.conn = c.conn;
        WAIT_FOR(c.seen.opened == 1 && s.seen.opened == 1);
        for (i = 0; i < FLIGHT; i++) {
            desc = confirm(&answers[i]);
            if (c.seen.closed) continue;
            CHECK_EQ(say(&voice, "in.flight", 0, HEAD + below(500), &desc), FRISBEE_OK);
            sent++;
            if (i == when) {
                reset_on_close = true;
                frisbee_close(s.pool, s.seen.conn, FRISBEE_CLOSE_NOW);
            }
            if (below(4) == 0) frisbee_poll(c.pool, 0);
            if (below(4) == 0) frisbee_poll(s.pool, 0);
        }
        WAIT_FOR(c.seen.finals == 1 && s.seen.finals == 1);
        reset_on_close = false;
        for (i = 0; i < sent; i++) {
            CHECK_EQ(answers[i].count, 1);
            if (answers[i].result == FRISBEE_OK) CHECK(i < local.received);
            else if (answers[i].result == FRISBEE_NOT_SENT) CHECK(i >= local.received && !answers[i].sent);
            else CHECK(answers[i].result == FRISBEE_UNKNOWN && answers[i].sent);
            fine += answers[i].result == FRISBEE_OK;
            unknown += answers[i].result == FRISBEE_UNKNOWN;
        }
        CHECK(feed_is_clean(&local) && local.gaps == 0); // the first ones, without a gap
        end();
    }
    CHECK(fine > 0 && unknown > 0);
}

// >>section 9: reconnects

struct line { // a connection that comes back, and its subscriptions
    struct record seen;
    struct feed *feeds;
    int count;
};

static void line_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    struct line *l = (struct line *)user;
    int i;
    record_close(pool, conn, info, &l->seen);
    for (i = 0; i < l->count; i++) {
        l->feeds[i].taken = false;
        l->feeds[i].fresh = ~0u; // what is published meanwhile is missed
    }
}

static const frisbee_events line_events = {record_open, record_packet, record_writable, NULL, line_close};

static int all_taken(const struct feed *feeds, int count) {
    int i;
    for (i = 0; i < count; i++)
        if (!feeds[i].taken) return 0;
    return 1;
}

static void close_subscribers(frisbee_pool *pool, frisbee_close_how how, int all) {
    frisbee_sub at;
    frisbee_sub_info info;
    memset(&at, 0, sizeof at);
    while (frisbee_sub_next(pool, &at, &info) == FRISBEE_OK) {
        if (info.conn.id == FRISBEE_LOCAL.id) continue;
        frisbee_close(pool, info.conn, how);
        if (!all) return;
    }
}

static void replayed(const char *address, int rounds) {
    enum { SUBS = 6, EXTRA = 40 };
    static const char *const topics[SUBS] = {"day.*", "day.mon", ">", "*.tue", "day.>", "kept.*"};
    struct server s;
    struct client speaker;
    struct line lines[2];
    struct feed feeds[2][SUBS], extra;
    struct voice voices[2];
    frisbee_conn conns[2];
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_pool *pool;
    char at[128];
    int i, k, round, resets = 0;
    begin();
    serve_broker(&s, address, NULL, NULL);
    snprintf(at, sizeof at, "%s", s.address);
    pool = new_pool(NULL);
    desc.events = &line_events;
    desc.retry_min_ms = 1;
    desc.retry_max_ms = 4;
    memset(lines, 0, sizeof lines);
    memset(voices, 0, sizeof voices);
    for (i = 0; i < 2; i++) {
        lines[i].feeds = feeds[i];
        lines[i].count = SUBS;
        desc.user = &lines[i];
        CHECK_EQ(frisbee_connect(pool, at, &desc, &conns[i]), FRISBEE_OK);
        for (k = 0; k < SUBS; k++) {
            frisbee_sub_desc sub = sub_desc(&feeds[i][k], FRISBEE_SLOW_BLOCK, 0);
            sub.retained = k == 5;
            hear_with(&feeds[i][k], pool, conns[i], topics[k], &sub);
            feeds[i][k].loose = k == 2 ? 2 : ~0u; // `>` hears everything, but what its publisher on line 1 loses
        }
    }
    desc = quiet(NULL);
    desc.retry_min_ms = 1;
    desc.retry_max_ms = 4;
    dial(&speaker, pool, at, &desc);
    voices[0].conn = FRISBEE_LOCAL; // on line 0; its messages can only be missed between two sessions
    voices[1].pool = pool;          // on line 1
    voices[1].conn = speaker.conn;
    for (round = 0; round < rounds; round++) {
        static const char *const said[] = {"day.mon", "day.tue", "kept.tue", "day.wed"};
        frisbee_publish_desc keep;
        const long kept[2] = {feeds[0][5].kept, feeds[1][5].kept};
        const int how = (int)below(5), was[2] = {lines[0].seen.closed, lines[1].seen.closed};
        memset(&keep, 0, sizeof keep);
        keep.retain = true;
        voices[0].pool = s.pool;
        WAIT_FOR(all_taken(feeds[0], SUBS) && all_taken(feeds[1], SUBS) && stats_of(s.pool).subs == 2 * SUBS);
        for (i = 0; i < 2; i++)
            for (k = 0; k < SUBS; k++) CHECK_EQ(feeds[i][k].results, lines[i].seen.opened); // one in each session
        CHECK_EQ(say(&voices[0], "kept.thing", 0, HEAD, &keep), FRISBEE_OK);
        for (i = 0; i < 40; i++) {
            const frisbee_result result = say(&voices[1], said[below(4)], 1, HEAD + below(900), NULL);
            CHECK(result == FRISBEE_OK || result == FRISBEE_NOT_SENT);
            CHECK_EQ(say(&voices[0], said[below(4)], 0, HEAD + below(below(20) ? 900 : 25000), NULL), FRISBEE_OK);
            if (below(3) == 0) turn(0);
        }
        if (below(2)) turns((int)below(8)); // some rounds end with messages under way
        else WAIT_FOR(feeds[0][2].next[0] == voices[0].next[0] && feeds[1][2].next[0] == voices[0].next[0]);
        reset_on_close = below(2) != 0;
        resets += reset_on_close;
        if (how < 2) close_subscribers(s.pool, FRISBEE_CLOSE_NOW, how);
        else if (how == 2) close_subscribers(s.pool, FRISBEE_CLOSE_FLUSH, 1);
        else {
            drop_pool(s.pool);
            if (how == 4) turn_for((int)below(6)); // some attempts are refused
            serve_broker(&s, at, NULL, NULL);
        }
        WAIT_FOR(lines[0].seen.closed > was[0] || lines[1].seen.closed > was[1]);
        if (how > 0) WAIT_FOR(lines[0].seen.closed > was[0] && lines[1].seen.closed > was[1]);
        reset_on_close = false;
        if (round % 3 == 0) { // made and ended between, or around, sessions
            frisbee_sub_desc sub = sub_desc(&extra, FRISBEE_SLOW_DROP_NEW, 0);
            sub.on_result = NULL;
            hear_with(&extra, pool, conns[0], "extra.>", &sub);
            turns((int)below(4));
            CHECK_EQ(frisbee_unsubscribe(pool, extra.sub), FRISBEE_OK);
        }
        if (how <= 2) { // the broker lived, with its retained values
            WAIT_FOR(feeds[0][5].kept > kept[0] || feeds[1][5].kept > kept[1]);
        }
        for (i = 0; i < 2; i++)
            for (k = 0; k < SUBS; k++) CHECK(feed_is_clean(&feeds[i][k]) && feeds[i][k].gaps == 0);
    }
    WAIT_FOR(all_taken(feeds[0], SUBS) && all_taken(feeds[1], SUBS) && stats_of(s.pool).subs == 2 * SUBS);
    CHECK(resets > rounds / 4 && lines[0].seen.finals == 0 && lines[1].seen.finals == 0);
    for (i = 0; i < 2; i++) {
        CHECK(feeds[i][1].received < feeds[i][0].received && feeds[i][0].received < feeds[i][2].received && feeds[i][1].received > 0);
        for (k = 0; k < SUBS; k++) CHECK_EQ(frisbee_unsubscribe(pool, feeds[i][k].sub), FRISBEE_OK);
    }
    WAIT_FOR(stats_of(s.pool).subs == 0);
    end();
}

static void section_9_subscriptions_are_replayed(void) {
    chance = 77;
    replayed(TCP, 60);
    chance = 78;
    replayed(unix_address(), 60);
}

// A broker in another process, which is killed: in each session a subscriber hears everything that is said after it was taken.
static void killed_broker(const char *address, unsigned life, int ready) {
    struct server s;
    struct voice voice;
    const struct frisbee_broker broker = usual_broker(NULL);
    const uint64_t until = now_ms() + WAIT_MS;
    memset(live, 0, sizeof live);
    serve_broker(&s, address, NULL, &broker);
    memset(&voice, 0, sizeof voice);
    voice.pool = s.pool;
    voice.conn = FRISBEE_LOCAL;
    if (write(ready, "r", 1) != 1) _exit(1);
    while (now_ms() < until) {
        uint32_t count = 0;
        if (frisbee_topic_count(s.pool, "tick", &count) == FRISBEE_OK && count == 2) (void)say(&voice, "tick", life, HEAD + 100, NULL);
        frisbee_poll(s.pool, 0);
    }
    _exit(0);
}

static void section_9_a_broker_that_is_killed(void) {
    struct line line;
    struct feed feeds[2];
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_pool *pool = NULL;
    frisbee_conn conn;
    char address[100];
    unsigned life;
    memset(&line, 0, sizeof line);
    line.feeds = feeds;
    line.count = 2;
    desc.user = &line;
    desc.events = &line_events;
    desc.retry_min_ms = 1;
    desc.retry_max_ms = 20;
    begin();
    snprintf(address, sizeof address, "%s", unix_address());
    for (life = 0; life < LINES; life++) {
        int ready[2], status, i;
        char byte;
        pid_t child;
        CHECK(pipe(ready) == 0);
        fflush(NULL);
        child = fork();
        if (child == 0) {
            alarm(2 * WAIT_MS / 1000);
            killed_broker(address, life, ready[1]);
        }
        CHECK(child > 0 && read(ready[0], &byte, 1) == 1);
        close(ready[0]);
        close(ready[1]);
        if (life == 0) {
            pool = new_pool(NULL);
            CHECK_EQ(frisbee_connect(pool, address, &desc, &conn), FRISBEE_OK);
            for (i = 0; i < 2; i++) hear(&feeds[i], pool, conn, i ? ">" : "tick", NULL);
        }
        WAIT_FOR(feeds[0].next[life] > 100 && feeds[1].next[life] > 100);
        for (i = 0; i < 2; i++) CHECK(feed_is_clean(&feeds[i]) && feeds[i].results == (long)life + 1);
        kill(child, SIGKILL);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        WAIT_FOR(!feeds[0].taken);
        CHECK(!line.seen.finals && line.seen.opened == (int)life + 1);
        for (i = 0; i < 2; i++) { // each life began with its first tick
            CHECK_EQ(feeds[i].gaps, 0);
            feeds[i].fresh = 0;
        }
    }
    CHECK_EQ(feeds[0].results, LINES);
    end();
    unlink(address + 5);
}

// >>section 9: slow subscribers

enum { OVERLOAD_PIECE = 1000, OVERLOAD_MOST = 20000, OVERLOAD_ENOUGH = 500, OVERLOAD_LIMIT = 65536 };

// A subscriber that does not read, and then does. Messages go to eight topics, each with a line of its own.
static void overload(frisbee_slow slow, const char *address, int local) {
    struct server s;
    struct client dull, keen, speaker;
    struct feed lazy, others[3];
    struct voice voice;
    struct ends ends;
    struct answer answer;
    struct record steady_seen;
    const struct frisbee_broker broker = usual_broker(&ends);
    frisbee_conn_desc serving = quiet(NULL), speaking = quiet(NULL), steady;
    frisbee_sub_desc sub = sub_desc(&lazy, slow, OVERLOAD_LIMIT);
    frisbee_sub_info info;
    frisbee_sub at;
    frisbee_publish_desc desc;
    frisbee_listener listener;
    char steady_address[64];
    uint64_t before = 0, more, missed;
    int i, still = 0;
    bool refused = false;
    begin();
    memset(&ends, 0, sizeof ends);
    memset(&info, 0, sizeof info);
    memset(&voice, 0, sizeof voice);
    memset(&steady_seen, 0, sizeof steady_seen);
    serving.user = NULL;
    serving.high_water = 32768;
    serve_broker(&s, address, &serving, &broker);
    steady = serving; // where the publisher comes in there are heartbeats, which go on while it has to wait
    steady.user = &steady_seen;
    steady.heartbeat_ms = speaking.heartbeat_ms = 20;
    steady.heartbeat_timeout_ms = speaking.heartbeat_timeout_ms = 400;
    CHECK_EQ(frisbee_listen(s.pool, TCP, &steady, &listener), FRISBEE_OK);
    CHECK_EQ(frisbee_listener_address(s.pool, listener, steady_address, sizeof steady_address), FRISBEE_OK);
    dial(&dull, NULL, s.address, NULL);
    dial(&keen, NULL, s.address, NULL);
    speaking.queue_limit = 65536;
    speaking.max_packet = 4096;
    dial(&speaker, NULL, steady_address, &speaking);
    hear_with(&lazy, dull.pool, dull.conn, "load.>", &sub);
    lazy.one_voice = slow != FRISBEE_SLOW_LATEST;
    WAIT_FOR(lazy.taken);
    memset(&at, 0, sizeof at);
    CHECK_EQ(frisbee_sub_next(s.pool, &at, &info), FRISBEE_OK);
    CHECK(info.slow == slow && info.limit == OVERLOAD_LIMIT && strcmp(info.topic, "load.>") == 0 && !info.group);
    hear(&others[0], keen.pool, keen.conn, "load.*", NULL);
    hear(&others[1], keen.pool, keen.conn, ">", NULL);
    hear(&others[2], s.pool, FRISBEE_LOCAL, "load.>", NULL);
    WAIT_FOR(others[0].taken && others[1].taken && speaker.seen.opened == 1 && steady_seen.opened == 1);
    for (i = 0; i < 3; i++) others[i].one_voice = true;
    voice.pool = local ? s.pool : speaker.pool;
    voice.conn = local ? FRISBEE_LOCAL : speaker.conn;
    CHECK_EQ(frisbee_pause(dull.pool, dull.conn, true), FRISBEE_OK);

    while (voice.all < OVERLOAD_MOST && info.dropped < OVERLOAD_ENOUGH && !ends.count && still < 30) {
        char topic[] = "load.0";
        refused = false;
        for (i = 0; i < 48 && !refused; i++) {
            topic[5] = (char)('0' + voice.all % LINES);
            refused = say(&voice, topic, (unsigned)(voice.all % LINES), OVERLOAD_PIECE, NULL) != FRISBEE_OK;
        }
        turn(refused ? 1 : 0);
        still = refused && stats_of(s.pool).published == before ? still + 1 : 0;
        before = stats_of(s.pool).published;
        if (ends.count) break;
        CHECK_EQ(frisbee_sub_describe(s.pool, at, &info), FRISBEE_OK);
        CHECK_EQ(info.delivered + info.dropped + info.waiting, before);
        CHECK(info.waiting_bytes <= OVERLOAD_LIMIT && (slow != FRISBEE_SLOW_LATEST || info.waiting <= LINES)); // one of each topic
    }
    CHECK_EQ(ends.count, slow == FRISBEE_SLOW_CLOSE);
    CHECK_EQ(info.dropped >= OVERLOAD_ENOUGH, slow <= FRISBEE_SLOW_LATEST);
    CHECK_EQ(still >= 30, slow == FRISBEE_SLOW_BLOCK);
    CHECK_EQ(lazy.received, 0);
    if (slow == FRISBEE_SLOW_BLOCK) {
        struct reply reply;
        CHECK(info.waiting_bytes + OVERLOAD_PIECE + 64 + 6 > OVERLOAD_LIMIT && info.dropped == 0);
        CHECK_EQ(call(keen.pool, keen.conn, ECHO, "alive?", 6, 0, &reply, NULL), FRISBEE_OK);
        room_seen = 0;
        turn_for(600); // more than the heartbeats' time-out
        CHECK(stats_of(s.pool).published == before && speaker.seen.closed == 0 && steady_seen.closed == 0);
        CHECK(reply.count == 1 && reply.result == FRISBEE_OK); // only publishers wait
        CHECK(room_seen == 0);
    }
    CHECK_EQ(frisbee_pause(dull.pool, dull.conn, false), FRISBEE_OK);
    for (more = voice.all + 500; voice.all < more && slow == FRISBEE_SLOW_BLOCK;) { // what it reads makes room for others
        char topic[] = "load.0";
        const uint64_t stuck = now_ms() + WAIT_MS;
        topic[5] = (char)('0' + voice.all % LINES);
        while (say(&voice, topic, (unsigned)(voice.all % LINES), OVERLOAD_PIECE, NULL) == FRISBEE_AGAIN && now_ms() < stuck) turn(1);
        if (!CHECK(now_ms() < stuck)) break;
    }
    if (slow == FRISBEE_SLOW_BLOCK) CHECK(local ? room_seen > 0 : speaker.seen.writable > 0);
    WAIT_FOR(stats_of(s.pool).published == voice.all);
    if (slow != FRISBEE_SLOW_CLOSE) {
        WAIT_FOR(frisbee_sub_describe(s.pool, at, &info) == FRISBEE_OK && !info.waiting);
    }
    WAIT_FOR(others[0].all == voice.all && others[1].all == voice.all && others[2].all == voice.all);

    desc = confirm(&answer); // one more: with it comes how many were missed
    CHECK_EQ(say(&voice, "load.7", 7, HEAD, local ? NULL : &desc), FRISBEE_OK);
    for (i = 0; i < 3; i++) {
        WAIT_FOR(others[i].received == (long)voice.all);
        CHECK(feed_is_clean(&others[i]) && others[i].gaps == 0 && others[i].dropped == 0);
    }
    if (slow == FRISBEE_SLOW_CLOSE) {
        CHECK(ends.count == 1 && ends.last.slow == FRISBEE_SLOW_CLOSE && ends.last.delivered > 0);
        CHECK(s.seen.closed == 1 && s.seen.info.reason == FRISBEE_EXHAUSTED);
        WAIT_FOR(dull.seen.finals == 1);
        CHECK(feed_is_clean(&lazy) && lazy.gaps == 0 && (uint64_t)lazy.received <= ends.last.delivered);
        info = ends.last;
    } else {
        WAIT_FOR(lazy.next[7] == voice.next[7]);
        CHECK_EQ((uint64_t)lazy.received + lazy.dropped, voice.all);
        for (i = 0, missed = lazy.gaps; i < LINES; i++) missed += voice.next[i] - lazy.next[i];
        CHECK(feed_is_clean(&lazy) && missed == lazy.dropped && ends.count == 0);
        CHECK_EQ(frisbee_sub_describe(s.pool, at, &info), FRISBEE_OK);
        CHECK(info.delivered == (uint64_t)lazy.received && info.dropped == lazy.dropped && info.waiting == 0);
        CHECK(s.seen.closed == 0 && dull.seen.closed == 0);
    }
    if (slow == FRISBEE_SLOW_DROP_OLD || slow == FRISBEE_SLOW_LATEST) // the newest are there
        for (i = 0; i < LINES; i++) CHECK_EQ(lazy.next[i], voice.next[i]);
    CHECK_EQ(stats_of(s.pool).lost, info.dropped);
    if (!local) {
        frisbee_stats stats;
        WAIT_FOR(answer.count == 1);
        CHECK_EQ(answer.result, FRISBEE_OK);
        CHECK_EQ(answer.published.lost, info.dropped);
        CHECK_EQ(answer.published.subscriptions, slow == FRISBEE_SLOW_CLOSE ? 3 : 4);
        CHECK_EQ(frisbee_conn_stats(speaker.pool, speaker.conn, &stats), FRISBEE_OK);
        CHECK_EQ(stats.lost, info.dropped);
    }
    CHECK(speaker.seen.closed == 0);
    end();
}

static void overload_each_way(frisbee_slow slow) {
    int local;
    for (local = 0; local < 2; local++) {
        overload(slow, TCP, local);
        overload(slow, unix_address(), local);
    }
}

static void section_9_slow_drop_new(void) { overload_each_way(FRISBEE_SLOW_DROP_NEW); }
static void section_9_slow_drop_old(void) { overload_each_way(FRISBEE_SLOW_DROP_OLD); }
static void section_9_slow_latest(void) { overload_each_way(FRISBEE_SLOW_LATEST); }
static void section_9_slow_close(void) { overload_each_way(FRISBEE_SLOW_CLOSE); }
static void section_9_slow_block(void) { overload_each_way(FRISBEE_SLOW_BLOCK); }

// A session's drops are told in that session, and those of the one before are not taken for them. In the last one the broker shuts down, which
// takes until what waits has been read.
static void section_9_each_session_counts_its_own_drops(void) {
    enum { SESSIONS = 4 };
    struct server s;
    struct line line;
    struct feed feed;
    struct voice voice;
    frisbee_conn_desc desc = quiet(NULL);
    const frisbee_sub_desc sub = sub_desc(&feed, FRISBEE_SLOW_DROP_OLD, 8192);
    frisbee_pool *pool;
    frisbee_conn conn;
    frisbee_sub at;
    frisbee_sub_info info;
    uint64_t last_drops = 0;
    int session;
    begin();
    memset(&line, 0, sizeof line);
    memset(&voice, 0, sizeof voice);
    line.feeds = &feed;
    line.count = 1;
    desc.high_water = 8192;
    desc.user = NULL;
    serve_broker(&s, unix_address(), &desc, NULL);
    voice.pool = s.pool;
    voice.conn = FRISBEE_LOCAL;
    pool = new_pool(NULL);
    desc.user = &line;
    desc.events = &line_events;
    desc.retry_min_ms = 1;
    CHECK_EQ(frisbee_connect(pool, s.address, &desc, &conn), FRISBEE_OK);
    hear_with(&feed, pool, conn, ">", &sub);
    for (session = 0; session < SESSIONS; session++) {
        const bool last = session == SESSIONS - 1;
        uint64_t first = voice.all, drops;
        int i;
        WAIT_FOR(feed.taken && stats_of(s.pool).subs == 1);
        feed.received = 0;
        feed.dropped = 0;
        CHECK_EQ(frisbee_pause(pool, conn, true), FRISBEE_OK);
        memset(&at, 0, sizeof at);
        memset(&info, 0, sizeof info);
        CHECK_EQ(frisbee_sub_next(s.pool, &at, &info), FRISBEE_OK);
        for (i = 0; info.dropped < (uint64_t)(800 - 200 * session) && i < 20000; i++) { // fewer each time
            CHECK_EQ(say(&voice, "a.b", 0, 1000, NULL), FRISBEE_OK);
            if (i % 16 == 0) turn(0);
            CHECK_EQ(frisbee_sub_describe(s.pool, at, &info), FRISBEE_OK);
        }
        CHECK(info.waiting > 0);
        if (last) {
            CHECK_EQ(frisbee_shutdown(s.pool, WAIT_MS), FRISBEE_OK);
            turn_for(20);
            CHECK_EQ(line.seen.closed, session);
        }
        CHECK_EQ(frisbee_pause(pool, conn, false), FRISBEE_OK);
        WAIT_FOR(feed.next[0] == voice.next[0]);
        drops = feed.dropped;
        CHECK_EQ((uint64_t)feed.received + drops, voice.all - first);
        CHECK(feed_is_clean(&feed) && drops >= (uint64_t)(800 - 200 * session) && (session == 0 || drops < last_drops));
        last_drops = drops;
        if (!last) close_subscribers(s.pool, FRISBEE_CLOSE_NOW, 1);
        WAIT_FOR(line.seen.closed > session);
    }
    WAIT_FOR(frisbee_poll(s.pool, 0) == FRISBEE_CLOSED);
    end();
}

// >>streams. Message k of a stream has a length and bytes that follow from the stream's id, k and the direction: each end verifies what comes.

struct side;

struct pipe { // one end of a stream
    struct side *side;
    frisbee_stream stream;
    unsigned number;
    bool opener, paused, choked, shut; // shut: by frisbee_stream_close
    uint32_t sent, got;
    int closed;
    frisbee_result reason;
};

enum { PIPES = 256 };

struct side { // one end of a connection; `seen` is first, so a side is a record
    struct record seen;
    frisbee_pool *pool;
    struct pipe pipes[PIPES];
    int count, closed;
    uint32_t most;  // bytes of a message, at most
    unsigned moody; // one of so many messages pauses its stream; 0: none
    long wrong, again, pauses;
    char trace[64]; // r a call's end, s a stream's, u a subscription's, h hijacked, c closed
};

static void trace(struct side *side, char what) {
    const size_t n = strlen(side->trace);
    if (n + 1 < sizeof side->trace) side->trace[n] = what;
}

static size_t pipe_length(const struct side *side, unsigned number, uint32_t k, bool from_opener) {
    return 1 + (number * 31u + k * 57u + (from_opener ? 13u : 0u)) % side->most;
}

static uint32_t pipe_seed(unsigned number, uint32_t k, bool from_opener) { return number << 17 ^ k << 1 ^ (from_opener ? 1u : 0u); }

static void pipe_open(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    struct side *side = (struct side *)user;
    struct pipe *p = &side->pipes[side->count];
    if (!CHECK(side->count < PIPES)) return;
    side->count++;
    p->side = side;
    p->stream = stream;
    p->number = frisbee_stream_number(pool, stream);
    CHECK(frisbee_stream_conn(pool, stream).id == conn.id);
    CHECK_EQ(frisbee_stream_bind(pool, stream, NULL, p), FRISBEE_OK);
    CHECK(frisbee_stream_user(pool, stream) == p);
}

static void pipe_resume(struct pipe *p) {
    frisbee_result result;
    if (!p->paused || p->shut || p->closed) return;
    p->paused = false;
    result = frisbee_stream_pause(p->side->pool, p->stream, false);
    CHECK(result == FRISBEE_OK || result == FRISBEE_CLOSED); // the latter: its on_close is due
}

static void pipe_data(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    struct pipe *p = (struct pipe *)user;
    struct side *side = p->side;
    static uint8_t expected[65536];
    const size_t wanted = pipe_length(side, p->number, p->got, !p->opener);
    fill(expected, wanted, pipe_seed(p->number, p->got, !p->opener));
    side->wrong += stream.id != p->stream.id || p->closed || p->shut || p->paused || length != wanted || memcmp(expected, data, wanted) != 0;
    p->got++;
    if (!side->moody) return;
    if (below(4) == 0) pipe_resume(&side->pipes[below((uint32_t)side->count)]); // also with more for it behind this message
    if (below(side->moody)) return;
    side->pauses++;
    p->paused = true;
    CHECK_EQ(frisbee_stream_pause(pool, stream, true), FRISBEE_OK);
}

static void pipe_writable(frisbee_pool *pool, frisbee_stream stream, void *user) {
    (void)pool, (void)stream;
    ((struct pipe *)user)->choked = false;
}

static void pipe_close(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    struct pipe *p = (struct pipe *)user;
    (void)pool;
    p->side->wrong += stream.id != p->stream.id;
    p->closed++;
    p->reason = reason;
    p->side->closed++;
    trace(p->side, 's');
}

static const frisbee_stream_events pipe_events = {pipe_open, pipe_data, pipe_writable, pipe_close};

static struct pipe *pipe_to(struct side *side, frisbee_conn conn) { // opens a stream
    struct pipe *p = &side->pipes[side->count++];
    p->side = side;
    p->opener = true;
    CHECK_EQ(frisbee_stream_open(side->pool, conn, NULL, p, &p->stream), FRISBEE_OK);
    p->number = frisbee_stream_number(side->pool, p->stream);
    return p;
}

// Sends up to message `until`, as far as it goes.
static void pipe_pump(struct pipe *p, uint32_t until) {
    static uint8_t data[65536];
    while (p->sent < until && !p->choked && !p->shut && !p->closed) {
        const size_t length = pipe_length(p->side, p->number, p->sent, p->opener);
        frisbee_result result;
        fill(data, length, pipe_seed(p->number, p->sent, p->opener));
        result = frisbee_stream_send(p->side->pool, p->stream, data, length);
        if (result == FRISBEE_AGAIN) {
            p->choked = true;
            p->side->again++;
        } else if (result == FRISBEE_OK) p->sent++;
        else { // the peer has closed it, which is told when what was kept has been handed out
            CHECK(result == FRISBEE_CLOSED && p->paused);
            break;
        }
    }
}

static void pipe_shut(struct pipe *p) {
    if (p->shut || p->closed) return;
    p->shut = true;
    CHECK_EQ(frisbee_stream_close(p->side->pool, p->stream), FRISBEE_OK);
}

static void side_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    record_close(pool, conn, info, user);
    trace((struct side *)user, 'c');
}

static const frisbee_events side_events = {record_open, record_packet, record_writable, NULL, side_close};

static frisbee_conn_desc side_desc(struct side *side, uint32_t most, unsigned moody, uint32_t window) {
    frisbee_conn_desc desc = quiet(&side->seen);
    memset(side, 0, sizeof *side);
    side->most = most;
    side->moody = moody;
    desc.events = &side_events;
    desc.streams = &pipe_events;
    desc.stream_window = window;
    return desc;
}

// Two ends of a connection with streams: sides[0] connected, sides[1] accepted.
static void join(struct side sides[2], const char *address, int pools, uint32_t most, unsigned moody, uint32_t window,
                 const struct frisbee_broker *broker) {
    frisbee_conn_desc desc = side_desc(&sides[1], most, moody, window);
    struct server s;
    serve_broker(&s, address, &desc, broker);
    sides[1].pool = s.pool;
    desc = side_desc(&sides[0], most, moody, window);
    sides[0].pool = pools == 1 ? s.pool : new_pool(NULL);
    CHECK_EQ(frisbee_connect(sides[0].pool, s.address, &desc, NULL), FRISBEE_OK);
    WAIT_FOR(sides[0].seen.opened == 1 && sides[1].seen.opened == 1);
}

// `count` streams, half of them opened by each side, with `messages` each way, paused and resumed at random; either side closes.
static void many_streams(const char *address, int pools, int count, uint32_t messages, uint32_t most, uint32_t window) {
    static struct side sides[2];
    const uint64_t deadline = now_ms() + 2 * WAIT_MS;
    int i, k, idle = 0;
    begin();
    join(sides, address, pools, most, 6, window, NULL);
    for (i = 0; i < count; i++) {
        const struct pipe *p = pipe_to(&sides[i & 1], sides[i & 1].seen.conn);
        CHECK(i & 1 ? p->number >= 32768 : p->number >= 1 && p->number < 32768);
        CHECK(p->number != (p > sides[i & 1].pipes ? p[-1].number : 0));
    }
    while ((sides[0].closed < count || sides[1].closed < count) && now_ms() < deadline) {
        for (k = 0; k < 2; k++)
            for (i = 0; i < sides[k].count; i++) {
                struct pipe *p = &sides[k].pipes[i];
                pipe_pump(p, messages);
                if (below(4) == 0) pipe_resume(p);
                if (p->sent == messages && p->got == messages && p->opener == (p->number & 1)) pipe_shut(p);
            }
        turn(idle++ % 8 ? 0 : 1);
    }
    for (k = 0; k < 2; k++) {
        CHECK_EQ(sides[k].count, count);
        CHECK_EQ(sides[k].closed, count);
        CHECK_EQ(sides[k].wrong, 0);
        CHECK(sides[k].pauses > 0);
        for (i = 0; i < sides[k].count; i++) {
            const struct pipe *p = &sides[k].pipes[i];
            CHECK(p->closed == 1 && p->got == messages && p->sent == messages);
            CHECK_EQ(p->reason, p->opener == (p->number & 1) ? FRISBEE_OK : FRISBEE_CLOSED);
        }
        WAIT_FOR(stats_of(sides[k].pool).streams == 0);
        CHECK(sides[k].seen.closed == 0);
    }
    end();
}

static void section_10_two_hundred_streams_both_ways(void) {
    chance = 10;
    many_streams(TCP, 2, 200, 40, 1500, 0);
    many_streams(TCP, 2, 200, 40, 1500, 4096); // so that credit runs out
    many_streams(TCP, 1, 200, 20, 1500, 4096);
    many_streams(unix_address(), 2, 200, 40, 1500, 2048);
}

// A transfer whose receiver pauses takes no more than its window, and stops neither calls nor other streams.
static void section_10_a_paused_transfer_stops_nothing_else(void) {
    enum { PIECE = 16384, PIECES = 512, WINDOW = 131072, BOUND = WINDOW + PIECE + 16384 };
    static struct side sides[2];
    struct pipe *bulk, *chat, *there = NULL, *answering = NULL;
    struct reply reply;
    frisbee_stats stats;
    size_t before, kept;
    int i, calls = 0;
    begin();
    join(sides, TCP, 2, PIECE, 0, WINDOW, NULL);
    bulk = pipe_to(&sides[0], sides[0].seen.conn);
    chat = pipe_to(&sides[0], sides[0].seen.conn);
    pipe_pump(bulk, 1);
    pipe_pump(chat, 1);
    WAIT_FOR(sides[1].count == 2 && sides[1].pipes[0].got == 1 && sides[1].pipes[1].got == 1);
    there = &sides[1].pipes[0];
    answering = &sides[1].pipes[1];
    CHECK(there->number == bulk->number && answering->number == chat->number);
    there->paused = true;
    CHECK_EQ(frisbee_stream_pause(sides[1].pool, there->stream, true), FRISBEE_OK);
    before = stats_of(sides[1].pool).memory;
    for (i = 0; i < 200; i++) {
        pipe_pump(bulk, PIECES);
        turn(0);
    }
    CHECK(bulk->choked && bulk->sent > 1 && there->got == 1);
    kept = stats_of(sides[1].pool).memory - before;
    CHECK(kept > WINDOW / 2 && kept <= BOUND + BOUND / 2); // in a buffer that grows by halves
    CHECK_EQ(frisbee_conn_stats(sides[1].pool, sides[1].seen.conn, &stats), FRISBEE_OK);
    CHECK(stats.memory >= kept); // and is told as the connection's
    for (i = 0; i < 100; i++) {
        const uint32_t said = chat->sent, answered = answering->sent;
        CHECK_EQ(call(sides[i & 1].pool, sides[i & 1].seen.conn, ECHO, "still there?", 12, 0, &reply, NULL), FRISBEE_OK);
        pipe_pump(chat, said + 1);
        pipe_pump(answering, answered + 1);
        WAIT_FOR(reply.count == 1 && answering->got == said + 1 && chat->got == answered + 1);
        calls += reply.result == FRISBEE_OK;
    }
    CHECK(calls == 100 && there->got == 1 && bulk->choked);
    pipe_resume(there);
    for (i = 0; there->got < PIECES && i < 100000; i++) { // and beside a transfer that flows
        const uint32_t got = there->got;
        pipe_pump(bulk, PIECES);
        if (i % 8 == 0) {
            CHECK_EQ(call(sides[0].pool, sides[0].seen.conn, ECHO, "and now?", 8, 0, &reply, NULL), FRISBEE_OK);
            WAIT_FOR(reply.count == 1);
            CHECK_EQ(reply.result, FRISBEE_OK);
        } else turn(got == there->got);
    }
    CHECK(there->got == PIECES && sides[0].wrong == 0 && sides[1].wrong == 0);
    pipe_shut(bulk);
    CHECK(frisbee_stream_send(sides[0].pool, bulk->stream, "x", 1) == FRISBEE_CLOSED);
    WAIT_FOR(bulk->closed && there->closed);
    CHECK(there->reason == FRISBEE_CLOSED && bulk->reason == FRISBEE_OK && !chat->closed);
    end();
}

// What is borrowed is given back once: after it was sent, or when the stream or the connection ends before.
static void section_10_borrowed_messages(void) {
    static struct side sides[2];
    static uint8_t data[65536];
    frisbee_span spans[3];
    struct pipe *p, *there;
    int releases = 0, taken = 0, i;
    begin();
    join(sides, unix_address(), 2, 60000, 0, 65536, NULL);
    p = pipe_to(&sides[0], sides[0].seen.conn);
    pipe_pump(p, 1);
    WAIT_FOR(sides[1].count == 1 && sides[1].pipes[0].got == 1);
    there = &sides[1].pipes[0];
    for (i = 0; i < 20; i++) {
        const size_t length = pipe_length(&sides[0], p->number, p->sent, true);
        const uint64_t deadline = now_ms() + WAIT_MS;
        frisbee_result result;
        fill(data, length, pipe_seed(p->number, p->sent, true));
        spans[0].data = data, spans[0].length = length / 3;
        spans[1].data = data, spans[1].length = 0;
        spans[2].data = data + length / 3, spans[2].length = length - length / 3;
        do {
            result = frisbee_stream_send_spans(sides[0].pool, p->stream, spans, 3, count_release, &releases);
            turn(result == FRISBEE_AGAIN);
        } while (result == FRISBEE_AGAIN && now_ms() < deadline);
        CHECK_EQ(result, FRISBEE_OK);
        taken++;
        p->sent++;
        WAIT_FOR(releases == taken && there->got == p->sent);
    }
    CHECK_EQ(frisbee_stream_pause(sides[1].pool, there->stream, true), FRISBEE_OK);
    for (i = 0; i < 100; i++) {
        spans[0].data = data, spans[0].length = 30000;
        taken += frisbee_stream_send_spans(sides[0].pool, p->stream, spans, 1, count_release, &releases) == FRISBEE_OK;
    }
    CHECK(taken > 20 && taken < 120);
    CHECK_EQ(frisbee_stream_send_spans(sides[0].pool, p->stream, spans, 0, count_release, &releases), FRISBEE_INVALID);
    reset_on_close = true;
    frisbee_close(sides[0].pool, sides[0].seen.conn, FRISBEE_CLOSE_NOW);
    WAIT_FOR(sides[0].seen.finals == 1 && sides[1].seen.finals == 1);
    reset_on_close = false;
    CHECK_EQ(frisbee_stream_send_spans(sides[0].pool, p->stream, spans, 1, count_release, &releases), FRISBEE_CLOSED);
    CHECK(releases == taken && p->closed == 1 && there->closed == 1 && sides[0].wrong == 0 && sides[1].wrong == 0);
    end();
}

// The connection is reset with streams in every state: opened and silent, sending, paused, closed here, closed there.
static void section_10_reset_in_the_middle(void) {
    enum { STREAMS = 60 };
    static struct side sides[2];
    int round, over[3] = {0, 0, 0}; // streams closed here, by the peer, by the end of the connection
    for (round = 0; round < 40; round++) {
        const int end_by = round & 1, flush = round % 7 == 0, tcp = round % 4 < 2; // who closes, and how
        int turns_left, i, k;
        begin();
        chance = 500u + (uint32_t)round;
        join(sides, tcp ? TCP : unix_address(), 1 + (round & 1), 900, 4, round % 3 ? 2048 : 0, NULL);
        for (i = 0; i < STREAMS; i++) (void)pipe_to(&sides[i & 1], sides[i & 1].seen.conn);
        for (turns_left = (int)below(40); turns_left > 0; turns_left--) {
            for (k = 0; k < 2; k++)
                for (i = 0; i < sides[k].count; i++) {
                    struct pipe *p = &sides[k].pipes[i];
                    if (i >= 5) pipe_pump(p, p->sent + below(4));
                    if (below(8) == 0) pipe_resume(p);
                    if (below(200) == 0) pipe_shut(p);
                }
            turn(0);
        }
        reset_on_close = round % 5 != 0;
        CHECK_EQ(frisbee_close(sides[end_by].pool, sides[end_by].seen.conn, flush ? FRISBEE_CLOSE_FLUSH : FRISBEE_CLOSE_NOW), FRISBEE_OK);
        k = !end_by; // for its paused streams what was sent before a proper end is kept until they go on
        for (i = 0, sides[k].moody = 0; i < sides[k].count && !(tcp && reset_on_close); i++) pipe_resume(&sides[k].pipes[i]);
        WAIT_FOR(sides[0].seen.finals == 1 && sides[1].seen.finals == 1);
        reset_on_close = false;
        turns(3);
        for (k = 0; k < 2; k++) {
            const frisbee_result ended = sides[k].seen.info.reason, cut = ended == FRISBEE_OK || ended == FRISBEE_CLOSED ? FRISBEE_UNKNOWN : ended;
            CHECK_EQ(sides[k].wrong, 0);
            CHECK_EQ(sides[k].closed, sides[k].count);
            CHECK(sides[k].count >= STREAMS / 2 && sides[k].seen.opened == 1);
            CHECK(strcmp(sides[k].trace + strspn(sides[k].trace, "s"), "c") == 0); // the connection's end is the last
            for (i = 0; i < sides[k].count; i++) {
                const struct pipe *p = &sides[k].pipes[i];
                CHECK_EQ(p->closed, 1);
                CHECK_EQ(p->reason == FRISBEE_OK, p->shut);
                CHECK(p->shut || p->reason == FRISBEE_CLOSED || p->reason == cut);
                over[p->shut ? 0 : p->reason == FRISBEE_CLOSED ? 1 : 2]++;
                CHECK_EQ(frisbee_stream_send(sides[k].pool, p->stream, "x", 1), FRISBEE_CLOSED);
                CHECK_EQ(frisbee_stream_close(sides[k].pool, p->stream), FRISBEE_CLOSED);
                CHECK_EQ(frisbee_stream_pause(sides[k].pool, p->stream, true), FRISBEE_CLOSED);
                CHECK(!frisbee_stream_user(sides[k].pool, p->stream) && !frisbee_stream_number(sides[k].pool, p->stream));
            }
            CHECK_EQ(stats_of(sides[k].pool).streams, 0);
        }
        end();
    }
    CHECK(over[0] > 20 && over[1] > 20 && over[2] > 20 * STREAMS);
}

// A connector that has no streams, and a stock peer: bytes by hand.
static void section_11_streams_by_hand(void) {
    static struct side sides[2];
    struct server s;
    frisbee_conn_desc desc = side_desc(&sides[1], 100, 0, 65536);
    uint8_t out[200], in[200];
    struct raw_packet packet;
    struct pipe *p;
    size_t n;
    int fd;
    begin(); // a frisbee.h peer: HELLO, credit, and a close that is answered
    serve(&s, &desc);
    sides[1].pool = s.pool;
    fd = raw_connect(s.address);
    n = put_packet(out, 1, 0xFF02, 0, "\0\0\0\144later", 9);
    n += put_packet(out + n, 1, 0, 0, NULL, 0);
    CHECK_EQ(raw_send(fd, out, n), n);
    CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.operation == 0xFF02 && packet.length == 4 && memcmp(in, "\0\1\0\0", 4) == 0);
    CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.operation == 1);
    WAIT_FOR(sides[1].seen.opened == 1);
    p = pipe_to(&sides[1], sides[1].seen.conn);
    pipe_pump(p, 50);
    CHECK(p->choked && p->number == 32768);
    for (n = 0; n < p->sent; n++) {
        CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.operation == STREAM_OPERATION && packet.id == 32768);
        CHECK_EQ(packet.length, pipe_length(&sides[1], p->number, (uint32_t)n, true));
    }
    n = put_packet(out, 1, 0xFF03, 32768, "\0\0\1\0", 4);
    CHECK_EQ(raw_send(fd, out, n), n);
    WAIT_FOR(!p->choked);
    n = put_packet(out, 1, STREAM_OPERATION, 32768, NULL, 0);
    CHECK_EQ(raw_send(fd, out, n), n);
    CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.operation == STREAM_OPERATION && packet.id == 32768 && packet.length == 0);
    WAIT_FOR(p->closed == 1);
    CHECK_EQ(p->reason, FRISBEE_CLOSED);
    close(fd);
    WAIT_FOR(sides[1].seen.finals == 1);
    end();

    begin(); // a stock peer: no HELLO, its own ids, a close that is not answered
    desc = side_desc(&sides[1], 100, 0, 65536);
    serve(&s, &desc);
    sides[1].pool = s.pool;
    fd = raw_connect(s.address);
    {
        uint8_t data[100];
        const size_t length = pipe_length(&sides[1], 5, 0, true);
        fill(data, length, pipe_seed(5, 0, true));
        n = put_packet(out, 0, STREAM_OPERATION, 5, data, length);
        CHECK_EQ(raw_send(fd, out, n), n);
    }
    WAIT_FOR(sides[1].count == 1 && sides[1].pipes[0].got == 1);
    p = &sides[1].pipes[0];
    pipe_pump(p, 1);
    CHECK(raw_packet(fd, 0, &packet, in, sizeof in) && packet.operation == STREAM_OPERATION && packet.id == 5);
    n = put_packet(out, 0, STREAM_OPERATION, 5, NULL, 0);
    n += put_packet(out + n, 0, 0, 0, NULL, 0);
    CHECK_EQ(raw_send(fd, out, n), n);
    while (CHECK(raw_packet(fd, 0, &packet, in, sizeof in)) && packet.operation == 0) {} // its own PINGs
    CHECK_EQ(packet.operation, 1); // nothing else before the PONG
    WAIT_FOR(p->closed == 1);
    CHECK(p->reason == FRISBEE_CLOSED && sides[1].wrong == 0);
    close(fd);
    WAIT_FOR(sides[1].seen.finals == 1);
    end();
}

// A connector sends before it knows its peer: 16 KiB and one message. Then the peer says hello, or takes no streams, or is a stock one.
static void section_10_credit_before_the_peer_is_known(void) {
    enum { WINDOW = 40000, MOST = 2000, EARLY = 16384 };
    static const char *const hellos[] = {"\0\0\x9C\x40", "\0\0\0\0", NULL};
    static struct side sides[2]; // the second one is not used: the peer is a raw socket
    static uint8_t in[MEBIBYTE];
    int round;
    for (round = 0; round < 3; round++) {
        struct pipe *p, *later;
        frisbee_conn_desc desc;
        uint8_t out[64];
        char address[64];
        size_t n = 0, bytes = 0;
        uint32_t k;
        int listener, fd;
        begin();
        listener = raw_listen(1, address);
        desc = side_desc(&sides[0], MOST, 0, 1000);
        sides[0].pool = new_pool(NULL);
        CHECK_EQ(frisbee_connect(sides[0].pool, address, &desc, NULL), FRISBEE_OK);
        fd = raw_accept(listener);
        close(listener);
        WAIT_FOR(sides[0].seen.opened == 1);
        CHECK(came(fd, 1, in, sizeof in, 0xFF02, 0, 4) && memcmp(in, "\0\0\3\xE8", 4) == 0);
        CHECK(came(fd, 1, in, sizeof in, 0, 0, 0));
        p = pipe_to(&sides[0], sides[0].seen.conn);
        pipe_pump(p, 500);
        CHECK(p->choked && p->number == 1);
        for (k = 0; k < p->sent; k++) bytes += pipe_length(&sides[0], 1, k, true);
        CHECK(bytes >= EARLY && bytes < EARLY + MOST);
        if (hellos[round]) n = put_packet(out, 1, 0xFF02, 0, hellos[round], 4);
        n += put_packet(out + n, 1, 1, 0, NULL, 0);
        CHECK_EQ(raw_send(fd, out, n), n);
        WAIT_FOR(!p->choked || p->closed);
        pipe_pump(p, 500);
        for (k = 0, bytes = 0; k < p->sent; k++) bytes += pipe_length(&sides[0], 1, k, true);
        if (round == 0) CHECK(p->choked && bytes >= WINDOW && bytes < WINDOW + MOST);
        if (round == 1) CHECK(p->closed == 1 && p->reason == FRISBEE_REFUSED && bytes < EARLY + MOST);
        if (round == 2) CHECK(!p->choked && p->sent == 500);
        for (k = 0; k < p->sent; k++) CHECK(came(fd, 1, in, sizeof in, STREAM_OPERATION, 1, pipe_length(&sides[0], 1, k, true)));
        if (round == 1) {
            later = &sides[0].pipes[sides[0].count++];
            later->side = &sides[0];
            CHECK_EQ(frisbee_stream_open(sides[0].pool, sides[0].seen.conn, NULL, later, &later->stream), FRISBEE_REFUSED);
        }
        CHECK(sides[0].wrong == 0 && sides[0].seen.closed == 0);
        close(fd);
        WAIT_FOR(sides[0].seen.finals == 1 && p->closed == 1);
        end();
    }
}

// >>sections 8 to 10: hijack and upgrade of a connection with subscriptions, calls and streams

struct hands { struct side *side; int fd, count; frisbee_result result; };

static void take_over(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    struct hands *hands = (struct hands *)user;
    (void)pool, (void)conn;
    hands->count++;
    hands->result = hijacked->result;
    hands->fd = (int)hijacked->socket;
    trace(hands->side, 'h');
}

static void trace_reply(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)id;
    CHECK_EQ(outcome->result, FRISBEE_UNKNOWN);
    trace((struct side *)user, 'r');
}

// A connection with calls in flight, streams and subscriptions, some of it paused.
static void laden(struct side sides[2], struct feed feeds[3], struct ends *ends, const char *address, int streams) {
    const struct frisbee_broker broker = usual_broker(ends);
    frisbee_call_desc desc;
    frisbee_sub_desc sub;
    int i, k;
    memset(ends, 0, sizeof *ends);
    join(sides, address, 2, 500, 3, 2048, &broker);
    ends->trace = sides[1].trace;
    for (i = 0; i < 3; i++) {
        sub = sub_desc(&feeds[i], FRISBEE_SLOW_DROP_OLD, 0);
        hear_with(&feeds[i], sides[0].pool, sides[0].seen.conn, i ? ">" : "some.*", &sub);
    }
    memset(&desc, 0, sizeof desc);
    desc.on_reply = trace_reply;
    desc.timeout_ms = FRISBEE_NEVER;
    for (i = 0; i < streams; i++) (void)pipe_to(&sides[i & 1], sides[i & 1].seen.conn);
    for (k = 0; k < 2; k++) {
        desc.user = &sides[k];
        CHECK_EQ(frisbee_call(sides[k].pool, sides[k].seen.conn, SWALLOW, "x", 1, &desc, NULL), FRISBEE_OK);
        for (i = 0; i < sides[k].count; i++) pipe_pump(&sides[k].pipes[i], 10);
    }
    WAIT_FOR(all_taken(feeds, 3) && sides[0].count == streams && sides[1].count == streams);
}

static void check_let_go(struct side sides[2], struct feed feeds[3], const struct ends *ends, int streams) {
    int i, k;
    CHECK(ends->count == 3 && stats_of(sides[1].pool).subs == 0);
    for (k = 0; k < 2; k++) {
        const frisbee_stats stats = stats_of(sides[k].pool);
        CHECK(sides[k].closed == streams && sides[k].wrong == 0 && stats.streams == 0 && stats.calls == 0);
        for (i = 0; i < streams; i++) CHECK_EQ(sides[k].pipes[i].closed, 1);
    }
    for (i = 0; i < 3; i++) CHECK(feed_is_clean(&feeds[i]));
}

static void section_8_hijack_with_streams_and_subscriptions(void) {
    static struct side sides[2];
    int round;
    for (round = 0; round < 12; round++) {
        struct feed feeds[3];
        struct ends ends;
        struct hands hands[2];
        struct voice voice;
        const int first = round & 1;
        char byte[3] = "";
        int k;
        begin();
        chance = 40u + (uint32_t)round;
        laden(sides, feeds, &ends, round & 2 ? TCP : unix_address(), 4);
        memset(&voice, 0, sizeof voice);
        voice.pool = sides[1].pool;
        voice.conn = FRISBEE_LOCAL;
        for (k = 0; k < 5; k++) CHECK_EQ(say(&voice, "some.thing", 0, HEAD, NULL), FRISBEE_OK);
        for (k = 0; k < 2; k++) {
            const int who = k ^ first;
            hands[who].side = &sides[who];
            hands[who].fd = -1;
            hands[who].count = 0;
            CHECK_EQ(frisbee_hijack(sides[who].pool, sides[who].seen.conn, FRISBEE_HIJACK_FENCED, 0, take_over, &hands[who]), FRISBEE_OK);
            CHECK(frisbee_stream_open(sides[who].pool, sides[who].seen.conn, NULL, NULL, &sides[who].pipes[9].stream) != FRISBEE_OK);
            turns(round / 2);
            CHECK_EQ(say(&voice, "some.more", 0, HEAD, NULL), FRISBEE_OK); // to whom it may concern
        }
        WAIT_FOR(sides[0].seen.finals == 1 && sides[1].seen.finals == 1);
        CHECK_EQ(feeds[0].received, feeds[2].received);
        CHECK(feeds[0].received >= 5); // packets before the fence are still delivered
        check_let_go(sides, feeds, &ends, 4);
        CHECK(strcmp(sides[0].trace, "rsssshc") == 0); // section 3
        CHECK(strcmp(sides[1].trace, "rssssuuuhc") == 0);
        for (k = 0; k < 2; k++) {
            CHECK(hands[k].count == 1 && hands[k].result == FRISBEE_OK && hands[k].fd >= 0);
            CHECK(sides[k].seen.info.reason == FRISBEE_HIJACKED);
        }
        CHECK(send(hands[0].fd, "raw", 3, MSG_NOSIGNAL) == 3 && raw_receive(hands[1].fd, byte, 3) == 3 && memcmp(byte, "raw", 3) == 0);
        CHECK_EQ(frisbee_unsubscribe(sides[0].pool, feeds[0].sub), FRISBEE_CLOSED);
        close(hands[0].fd);
        close(hands[1].fd);
        end();
    }
}

struct raw_bytes { int started, stopped; size_t got; };

static const char bytes_text[] = "bytes and nothing else"; // 22 of them

static frisbee_result bytes_start(frisbee_pool *pool, frisbee_conn conn, void *user, void **state) {
    const frisbee_span span = {bytes_text, 22};
    ((struct raw_bytes *)user)->started++;
    *state = user;
    return frisbee_write(pool, conn, &span, 1, NULL, NULL);
}

static frisbee_result bytes_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used,
                                  size_t *need) {
    struct raw_bytes *bytes = (struct raw_bytes *)state;
    (void)pool, (void)conn, (void)need;
    CHECK(bytes->got + length <= 22 && memcmp(data, bytes_text + bytes->got, length) == 0);
    bytes->got += length;
    *used = length;
    return FRISBEE_OK;
}

static void bytes_stop(frisbee_pool *pool, frisbee_conn conn, void *state) {
    (void)pool, (void)conn;
    ((struct raw_bytes *)state)->stopped++;
}

static void section_8_upgrade_with_streams_and_subscriptions(void) {
    static struct side sides[2];
    int round;
    for (round = 0; round < 8; round++) {
        struct feed feeds[3], local;
        struct ends ends;
        struct raw_bytes bytes[2];
        frisbee_protocol protocols[2];
        struct voice voice;
        long before;
        int k;
        begin();
        chance = 60u + (uint32_t)round;
        laden(sides, feeds, &ends, round & 2 ? TCP : unix_address(), 4);
        memset(bytes, 0, sizeof bytes);
        memset(protocols, 0, sizeof protocols);
        for (k = 0; k < 2; k++) {
            const int who = k ^ (round & 1);
            protocols[who].start = bytes_start;
            protocols[who].input = bytes_input;
            protocols[who].stop = bytes_stop;
            protocols[who].user = &bytes[who];
            CHECK_EQ(frisbee_upgrade(sides[who].pool, sides[who].seen.conn, FRISBEE_HIJACK_FENCED, &protocols[who]), FRISBEE_OK);
            turns(round / 2);
        }
        WAIT_FOR(bytes[0].got == 22 && bytes[1].got == 22);
        check_let_go(sides, feeds, &ends, 4);
        for (k = 0; k < 3; k++) CHECK_EQ(frisbee_unsubscribe(sides[0].pool, feeds[k].sub), FRISBEE_CLOSED); // they ended with the packets
        before = feeds[0].received + feeds[1].received + feeds[2].received;
        hear(&local, sides[1].pool, FRISBEE_LOCAL, ">", NULL);
        CHECK(strcmp(sides[0].trace, "rssss") == 0 && strcmp(sides[1].trace, "rssssuuu") == 0);
        CHECK_EQ(frisbee_publish(sides[0].pool, sides[0].seen.conn, "a.b", "x", 1, NULL), FRISBEE_INVALID); // it speaks no packets now
        CHECK_EQ(frisbee_stream_open(sides[0].pool, sides[0].seen.conn, NULL, NULL, &sides[0].pipes[9].stream), FRISBEE_INVALID);
        memset(&voice, 0, sizeof voice);
        voice.pool = sides[1].pool;
        voice.conn = FRISBEE_LOCAL;
        CHECK_EQ(say(&voice, "some.more", 0, HEAD, NULL), FRISBEE_OK); // goes to those who still speak packets
        WAIT_FOR(local.received == 1);
        if (round & 1) { // back to packets: all of it can be had anew
            struct feed feed;
            const struct pipe *p;
            for (k = 0; k < 2; k++) CHECK_EQ(frisbee_upgrade(sides[k].pool, sides[k].seen.conn, FRISBEE_HIJACK_NOW, NULL), FRISBEE_OK);
            turns(2);
            sides[0].moody = sides[1].moody = 0;
            hear(&feed, sides[0].pool, sides[0].seen.conn, "some.*", NULL);
            p = pipe_to(&sides[0], sides[0].seen.conn);
            pipe_pump(&sides[0].pipes[4], 3);
            WAIT_FOR(feed.taken && sides[1].count == 5 && sides[1].pipes[4].number == p->number);
            CHECK_EQ(say(&voice, "some.new", 0, HEAD, NULL), FRISBEE_OK);
            WAIT_FOR(feed.received == 1 && local.received == 2);
            CHECK(feeds[0].received + feeds[1].received + feeds[2].received == before && !sides[0].wrong && !sides[1].wrong);
        }
        frisbee_close(sides[0].pool, sides[0].seen.conn, FRISBEE_CLOSE_FLUSH);
        WAIT_FOR(sides[0].seen.finals == 1 && sides[1].seen.finals == 1);
        CHECK(bytes[0].stopped == 1 && bytes[1].stopped == 1 && bytes[0].started == 1 && bytes[1].started == 1);
        CHECK(bytes[0].got == 22 && bytes[1].got == 22);
        end();
    }
}

// >>shutdown

static void section_9_shutdown(void) {
    static struct answer answers[20];
    struct server s;
    struct client out[2], in;
    struct feed feeds[2], local;
    struct voice voice;
    struct ends ends;
    const struct frisbee_broker broker = usual_broker(&ends);
    frisbee_publish_desc desc;
    uint64_t until;
    int i, round;
    for (round = 0; round < 2; round++) { // the broker ends; a publisher does
        begin();
        memset(&ends, 0, sizeof ends);
        memset(&voice, 0, sizeof voice);
        serve_broker(&s, TCP, NULL, &broker);
        for (i = 0; i < 2; i++) {
            dial(&out[i], i ? out[0].pool : NULL, s.address, NULL);
            hear(&feeds[i], out[i].pool, out[i].conn, ">", NULL);
        }
        dial(&in, NULL, s.address, NULL);
        hear(&local, s.pool, FRISBEE_LOCAL, ">", NULL);
        WAIT_FOR(all_taken(feeds, 2) && s.seen.opened == 3);
        voice.pool = round ? in.pool : s.pool;
        voice.conn = round ? in.conn : FRISBEE_LOCAL;
        for (i = 0; i < 100; i++) {
            if (round && i >= 80) desc = confirm(&answers[i - 80]);
            CHECK_EQ(say(&voice, "last.words", 0, HEAD + 500, round && i >= 80 ? &desc : NULL), FRISBEE_OK);
        }
        CHECK_EQ(frisbee_shutdown(voice.pool, 3000), FRISBEE_OK);
        for (until = now_ms() + WAIT_MS; now_ms() < until && frisbee_poll(voice.pool, 0) != FRISBEE_CLOSED;) turn(1);
        CHECK(now_ms() < until);
        WAIT_FOR(feeds[0].received == 100 && feeds[1].received == 100); // what was published is delivered
        CHECK(feed_is_clean(&feeds[0]) && feed_is_clean(&feeds[1]) && feeds[0].gaps == 0 && feeds[1].gaps == 0);
        if (round) {
            for (i = 0; i < 20; i++)
                CHECK(answers[i].count == 1 && answers[i].result == FRISBEE_OK && answers[i].published.subscriptions == 3);
            CHECK(in.seen.finals == 1 && in.seen.info.reason == FRISBEE_OK && ends.count == 0);
        } else {
            WAIT_FOR(out[0].seen.finals == 1 && out[1].seen.finals == 1 && in.seen.finals == 1);
            CHECK(s.seen.finals == 3 && s.seen.info.reason == FRISBEE_OK);
            CHECK(ends.count >= 2 && ends.count <= 3); // peers' two; its own lives as long as the pool
        }
        end();
    }
}

static void section_10_shutdown(void) {
    static struct side sides[2];
    int by, i, k;
    for (by = 0; by < 2; by++) {
        uint64_t until = now_ms() + WAIT_MS;
        begin();
        chance = 90;
        join(sides, TCP, 2, 500, 0, 0, NULL);
        for (i = 0; i < 10; i++) pipe_pump(pipe_to(&sides[i & 1], sides[i & 1].seen.conn), 5);
        WAIT_FOR(sides[0].count == 10 && sides[1].count == 10);
        CHECK_EQ(frisbee_shutdown(sides[by].pool, 200), FRISBEE_OK);
        while (now_ms() < until && frisbee_poll(sides[by].pool, 0) != FRISBEE_CLOSED) turn(1);
        CHECK(now_ms() < until);
        WAIT_FOR(sides[0].seen.finals == 1 && sides[1].seen.finals == 1);
        for (k = 0; k < 2; k++) {
            CHECK(sides[k].closed == 10 && sides[k].wrong == 0);
            for (i = 0; i < 10; i++) CHECK_EQ(sides[k].pipes[i].closed, 1);
        }
        end();
    }
    for (by = 0; by < 2; by++) { // open streams come to their end first; new ones are not opened
        frisbee_stream refused;
        begin();
        join(sides, TCP, 2, 500, 0, 0, NULL);
        for (i = 0; i < 10; i++) pipe_pump(pipe_to(&sides[i & 1], sides[i & 1].seen.conn), 5);
        WAIT_FOR(sides[0].count == 10 && sides[1].count == 10);
        CHECK_EQ(frisbee_shutdown(sides[by].pool, 2 * WAIT_MS), FRISBEE_OK);
        CHECK_EQ(frisbee_stream_open(sides[by].pool, sides[by].seen.conn, NULL, NULL, &refused), FRISBEE_CLOSED);
        for (k = 0; k < 2; k++)
            for (i = 0; i < 10; i++) pipe_pump(&sides[k].pipes[i], 10);
        turn_for(20);
        CHECK(sides[0].seen.closed == 0 && sides[1].seen.closed == 0);
        for (k = 0; k < 2; k++)
            for (i = 0; i < 10; i++) {
                CHECK(sides[k].pipes[i].sent == 10 && sides[k].pipes[i].got == 10);
                if (sides[k].pipes[i].opener) pipe_shut(&sides[k].pipes[i]);
            }
        WAIT_FOR(sides[0].seen.finals == 1 && sides[1].seen.finals == 1);
        for (k = 0; k < 2; k++)
            for (i = 0; i < 10; i++)
                CHECK_EQ(sides[k].pipes[i].reason, sides[k].pipes[i].opener ? FRISBEE_OK : FRISBEE_CLOSED);
        CHECK(sides[0].closed == 10 && sides[1].closed == 10 && frisbee_poll(sides[by].pool, 0) == FRISBEE_CLOSED);
        end();
    }
}

// >>hard conditions

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    (void)number;
    signals++;
}

static void sections_9_and_10_with_a_signal_every_millisecond(void) {
    struct sigaction action, before;
    const pid_t parent = getpid();
    pid_t child;
    int round;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_signal;
    sigaction(SIGUSR1, &action, &before);
    signals = 0;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        int i;
        for (i = 0; i < 60000 && getppid() == parent; i++) {
            kill(parent, SIGUSR1);
            sleep_ms(1);
        }
        _exit(0);
    }
    CHECK(child > 0);
    chance = 3;
    for (round = 0; round < 2 || (signals < 200 && round < 50); round++) {
        fan(round & 1 ? unix_address() : TCP, 3, 900, 300);
        many_streams(round & 1 ? TCP : unix_address(), 2, 50, 60, 1500, 4096);
    }
    CHECK(signals >= 200);
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    sigaction(SIGUSR1, &before, NULL);
}

// Reads and writes of a few bytes, with EINTR and EAGAIN among them.
static void sections_9_and_10_in_small_pieces(void) {
    static const struct { size_t most; int each, streams; uint32_t messages, length; } runs[] = {
        {1, 3, 6, 5, 20}, {2, 6, 8, 6, 40}, {3, 6, 8, 6, 60}, {7, 15, 12, 8, 100}, {61, 60, 30, 10, 200}, {1000, 300, 60, 20, 450}};
    size_t i;
    for (i = 0; i < sizeof runs / sizeof *runs; i++) {
        chance = 200u + (uint32_t)i;
        cut_to = runs[i].most;
        fan(i & 1 ? TCP : unix_address(), 3, runs[i].each, runs[i].length);
        many_streams(i & 1 ? unix_address() : TCP, 2, runs[i].streams, runs[i].messages, runs[i].length, 256);
        cut_to = 0;
    }
}

// A mass of everything over one connection: subscriptions, publishes, calls and streams side by side, none loses its place.
static void sections_7_9_and_10_beside_each_other(void) {
    enum { ROUNDS = 300 };
    static struct side sides[2];
    static struct answer answers[ROUNDS];
    static struct reply replies[2][ROUNDS];
    struct feed feed, local;
    struct voice voices[2];
    int i, k, streams = 0;
    begin();
    chance = 321;
    join(sides, TCP, 2, 2000, 5, 8192, NULL);
    hear(&feed, sides[0].pool, sides[0].seen.conn, ">", NULL);
    hear(&local, sides[1].pool, FRISBEE_LOCAL, ">", NULL);
    WAIT_FOR(feed.taken);
    memset(voices, 0, sizeof voices);
    voices[0].pool = sides[0].pool;
    voices[0].conn = sides[0].seen.conn;
    voices[1].pool = sides[1].pool;
    voices[1].conn = FRISBEE_LOCAL;
    for (i = 0; i < ROUNDS; i++) {
        const frisbee_publish_desc desc = confirm(&answers[i]);
        CHECK_EQ(say(&voices[0], "a.b.c", 0, HEAD + below(1000), &desc), FRISBEE_OK);
        CHECK_EQ(say(&voices[1], "a.b", 1, HEAD + below(1000), NULL), FRISBEE_OK);
        for (k = 0; k < 2; k++) {
            CHECK_EQ(call(sides[k].pool, sides[k].seen.conn, ECHO, "0123456789", below(10), 0, &replies[k][i], NULL), FRISBEE_OK);
            if (streams < 80 && below(3) == 0) {
                (void)pipe_to(&sides[k], sides[k].seen.conn);
                streams++;
            }
        }
        for (k = 0; k < 2; k++) {
            int n;
            for (n = 0; n < sides[k].count; n++) {
                pipe_pump(&sides[k].pipes[n], sides[k].pipes[n].sent + below(3));
                if (below(5) == 0) pipe_resume(&sides[k].pipes[n]);
            }
        }
        if (below(3)) turn(0);
    }
    WAIT_FOR(feed.received == 2 * ROUNDS && local.received == 2 * ROUNDS);
    WAIT_FOR(answers[ROUNDS - 1].count && replies[0][ROUNDS - 1].count && replies[1][ROUNDS - 1].count);
    CHECK(feed_is_clean(&feed) && feed_is_clean(&local) && feed.gaps == 0 && local.gaps == 0);
    for (i = 0; i < ROUNDS; i++) {
        CHECK(answers[i].count == 1 && answers[i].result == FRISBEE_OK && answers[i].published.subscriptions == 2);
        for (k = 0; k < 2; k++) CHECK(replies[k][i].count == 1 && replies[k][i].result == FRISBEE_OK);
    }
    for (k = 0; k < 2; k++) {
        int n;
        sides[k].moody = 0;
        for (n = 0; n < sides[k].count; n++) pipe_resume(&sides[k].pipes[n]);
    }
    turns(200);
    for (k = 0; k < 2; k++) {
        CHECK(sides[k].wrong == 0 && sides[k].pauses > 0 && sides[k].closed == 0 && sides[k].seen.closed == 0);
        for (i = 0; i < sides[k].count; i++) {
            const struct pipe *p = &sides[k].pipes[i];
            int n;
            for (n = 0; n < sides[!k].count; n++)
                if (sides[!k].pipes[n].number == p->number) CHECK_EQ(sides[!k].pipes[n].got, p->sent);
        }
    }
    end();
}

int main(int argc, char **argv) {
    watchdog(280);
    RUN(section_9_order_groups_and_wildcards);
    RUN(section_11_publish_and_subscribe_by_hand);
    RUN(section_9_confirmed_publish);
    RUN(section_9_confirmed_publish_through_a_reset);
    RUN(section_9_subscriptions_are_replayed);
    RUN(section_9_a_broker_that_is_killed);
    RUN(section_9_slow_drop_new);
    RUN(section_9_slow_drop_old);
    RUN(section_9_slow_latest);
    RUN(section_9_slow_close);
    RUN(section_9_slow_block);
    RUN(section_9_each_session_counts_its_own_drops);
    RUN(section_9_shutdown);
    RUN(section_10_two_hundred_streams_both_ways);
    RUN(section_10_a_paused_transfer_stops_nothing_else);
    RUN(section_10_borrowed_messages);
    RUN(section_10_reset_in_the_middle);
    RUN(section_10_shutdown);
    RUN(section_11_streams_by_hand);
    RUN(section_10_credit_before_the_peer_is_known);
    RUN(section_8_hijack_with_streams_and_subscriptions);
    RUN(section_8_upgrade_with_streams_and_subscriptions);
    RUN(sections_9_and_10_with_a_signal_every_millisecond);
    RUN(sections_9_and_10_in_small_pieces);
    RUN(sections_7_9_and_10_beside_each_other);
    return check_report("loop_patterns");
}
