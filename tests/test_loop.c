// test_loop.c - the promises of the manual (section 12), kept over real sockets. Built once for each poller. Cases are named after the promise
// that they test. A case runs pools of its own, ends with end(), and leaves no descriptor and no byte of memory behind.
static long waits, writes; // system calls of the library
static void lookup_stalls(void);
#define FRISBEE_SYS_EPOLL_WAIT(poller, events, room, timeout) (waits++, epoll_wait(poller, events, room, timeout))
#define FRISBEE_SYS_POLL(fds, count, timeout) (waits++, poll(fds, count, timeout))
#define FRISBEE_SYS_SENDMSG(fd, message, flags) (writes++, sendmsg(fd, message, flags))
#define FRISBEE_SYS_GETADDRINFO(host, port, hints, found) (lookup_stalls(), getaddrinfo(host, port, hints, found))

#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "net.h"
#include <poll.h>

static volatile int stalling; // a look-up's thread waits while this is set

static void lookup_stalls(void) {
    int i;
    for (i = 0; stalling && i < WAIT_MS; i++) sleep_ms(1);
}

// >>helpers

struct client {
    frisbee_pool *pool;
    frisbee_conn conn;
    struct record seen;
};

// Connects in `pool`, or in one of its own.
static void dial(struct client *c, frisbee_pool *pool, const char *address, const frisbee_conn_desc *given) {
    frisbee_conn_desc desc = given ? *given : quiet(NULL);
    memset(c, 0, sizeof *c);
    if (!desc.user) desc.user = &c->seen;
    c->pool = pool ? pool : new_pool(NULL);
    CHECK_EQ(frisbee_connect(c->pool, address, &desc, &c->conn), FRISBEE_OK);
}

// A server and a client in two pools; s->seen.conn and c->conn are the two ends.
static void meet(struct server *s, const frisbee_conn_desc *serving, struct client *c, const frisbee_conn_desc *calling) {
    serve(s, serving);
    dial(c, NULL, s->address, calling);
    WAIT_FOR(s->seen.opened == 1 && c->seen.opened == 1);
}

// Adopts one end of a TCP pair; the other is the test's. Small: of a local pair with small buffers, which has no window and no delayed
// acknowledgements to wait for.
static int adopt(struct client *c, const frisbee_conn_desc *given, frisbee_role role, int small) {
    frisbee_conn_desc desc = given ? *given : quiet(NULL);
    int fds[2], i, size = 4096;
    memset(c, 0, sizeof *c);
    if (!desc.user) desc.user = &c->seen;
    desc.role = role;
    c->pool = new_pool(NULL);
    if (small) CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    else raw_pair(fds);
    for (i = 0; small && i < 2; i++) {
        set_nonblocking(fds[i]);
        CHECK(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
    }
    CHECK_EQ(frisbee_adopt(c->pool, fds[1], &desc, NULL, 0, &c->conn), FRISBEE_OK);
    return fds[0];
}

// What a record holds after such a packet.
static void expect(struct record *r, unsigned id, const void *data, size_t length) {
    uint16_t wire_id = (uint16_t)id;
    r->packets++;
    r->bytes += length;
    r->hash = hash_more(hash_more(r->hash, &wire_id, sizeof wire_id), data, length);
}

static int same(const struct record *a, const struct record *b) {
    return a->packets == b->packets && a->bytes == b->bytes && a->hash == b->hash;
}

// One echo over a connection, by a call.
static int echoes(frisbee_pool *pool, frisbee_conn conn, const void *data, size_t length) {
    struct reply reply;
    if (!CHECK_EQ(call(pool, conn, ECHO, data, length, 0, &reply, NULL), FRISBEE_OK)) return 0;
    WAIT_FOR(reply.count == 1);
    return reply.count == 1 && reply.result == FRISBEE_OK && reply.length == length && reply.hash == hash_of(data, length);
}

// How often the loop woke up while nothing should happen.
static long wakes(frisbee_pool *pool, int ms) {
    long before = waits;
    int count = idle_turns(pool, ms);
    return waits - before > count ? waits - before : count;
}

static const char *scratch_path(const char *name) {
    static char path[100];
    const char *where = getenv("TMPDIR");
    snprintf(path, sizeof path, "%.40s/frisbee_%s_%ld", where && *where ? where : "/tmp", name, (long)getpid());
    return path;
}

static int has_v6(void) {
    struct sockaddr_storage at;
    socklen_t length = parse_address("[::1]:0", &at);
    int fd = length ? socket(AF_INET6, SOCK_STREAM, 0) : -1, works = fd >= 0 && bind(fd, (struct sockaddr *)&at, length) == 0;
    if (fd >= 0) close(fd);
    if (!works) printf("    no IPv6 here, skipped\n");
    return works;
}

static size_t conns_of(frisbee_pool *pool) {
    frisbee_stats stats;
    CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
    return stats.conns;
}

// >>promise 1: packets arrive whole, in order, at most once

// 500 packets each way at once, then a call each way.
static void exchange(frisbee_pool *left, frisbee_conn left_conn, struct record *left_seen, frisbee_pool *right, frisbee_conn right_conn,
                     struct record *right_seen) {
    static uint8_t data[3000];
    struct record expected;
    unsigned i;
    memset(&expected, 0, sizeof expected);
    fill(data, sizeof data, 7);
    left_seen->packets = right_seen->packets = 0;
    left_seen->bytes = left_seen->hash = right_seen->bytes = right_seen->hash = 0;
    for (i = 0; i < 500; i++) {
        size_t length = i * 37u % sizeof data;
        expect(&expected, i, data, length);
        CHECK_EQ(frisbee_send(left, left_conn, NOBODY, (uint16_t)i, data, length), FRISBEE_OK);
        CHECK_EQ(frisbee_send(right, right_conn, NOBODY, (uint16_t)i, data, length), FRISBEE_OK);
    }
    WAIT_FOR(left_seen->packets >= 500 && right_seen->packets >= 500);
    CHECK(same(left_seen, &expected) && same(right_seen, &expected));
    CHECK(echoes(left, left_conn, data, 100) && echoes(right, right_conn, data, 0));
}

static void exchange_at(const char *listen_at, const char *connect_to) {
    struct server s;
    struct client c;
    char address[160], text[160], own[160];
    begin();
    serve_at(&s, listen_at, NULL, NULL);
    snprintf(address, sizeof address, "%s", s.address);
    if (connect_to) snprintf(address, sizeof address, "%s%s", connect_to, strrchr(s.address, ':'));
    dial(&c, NULL, address, NULL);
    WAIT_FOR(c.seen.opened == 1 && s.seen.opened == 1);
    exchange(c.pool, c.conn, &c.seen, s.pool, s.seen.conn, &s.seen);
    if (strncmp(listen_at, "unix:", 5) != 0) {
        CHECK(atoi(strrchr(s.address, ':') + 1) > 0); // port 0 became a real one
        CHECK_EQ(frisbee_conn_address(c.pool, c.conn, true, text, sizeof text), FRISBEE_OK);
        CHECK(strcmp(strrchr(text, ':'), strrchr(s.address, ':')) == 0);
        CHECK_EQ(frisbee_conn_address(c.pool, c.conn, false, own, sizeof own), FRISBEE_OK);
        CHECK_EQ(frisbee_conn_address(s.pool, s.seen.conn, true, text, sizeof text), FRISBEE_OK);
        CHECK(strcmp(strrchr(text, ':'), strrchr(own, ':')) == 0);
        CHECK_EQ(frisbee_conn_address(c.pool, c.conn, true, text, 5), FRISBEE_TOO_LARGE);
    }
    end();
}

static void promise_1_packets_over_v4(void) { exchange_at("127.0.0.1:0", NULL); }

static void promise_1_packets_over_v6(void) {
    if (CHECK(1) && has_v6()) exchange_at("[::1]:0", NULL);
}

static void promise_1_packets_over_any_address(void) {
    exchange_at(":0", "127.0.0.1");
    exchange_at("*:0", "127.0.0.1");
    if (has_v6()) exchange_at(":0", "[::1]");
}

static void promise_1_packets_over_a_name(void) { exchange_at("127.0.0.1:0", "localhost"); } // which may be ::1 first: refused there, then v4

static void promise_1_packets_over_unix_sockets(void) {
    struct server s, second;
    frisbee_conn_desc desc = quiet(NULL);
    struct stat status;
    char address[128], *path = address + 5;
    int fd;
    snprintf(address, sizeof address, "unix:%s", scratch_path("sock"));
    unlink(path);
    exchange_at(address, NULL);
    CHECK(stat(path, &status) != 0); // removed with its listener

    begin(); // a dead socket file is replaced, a live one and one that is no socket are not
    {
        struct sockaddr_storage at;
        socklen_t length = parse_address(address, &at);
        int dead = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(bind(dead, (struct sockaddr *)&at, length) == 0);
        close(dead);
    }
    serve_at(&s, address, NULL, NULL);
    second.pool = new_pool(NULL);
    CHECK_EQ(frisbee_listen(second.pool, address, &desc, NULL), FRISBEE_SYSTEM);
    CHECK_EQ(frisbee_system_error(second.pool), EADDRINUSE);
    fd = raw_connect(address);
    CHECK(raw_echo(fd, 1, 1, "abc", 3));
    close(fd);
    end();
    begin();
    second.pool = new_pool(NULL);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && write(fd, "precious", 8) == 8);
    close(fd);
    CHECK_EQ(frisbee_listen(second.pool, address, &desc, NULL), FRISBEE_SYSTEM);
    CHECK(stat(path, &status) == 0 && status.st_size == 8);
    unlink(path);
    end();
}

static void promise_1_five_mebibytes_both_ways(void) {
    static uint8_t data[FRISBEE_PACKET_MAX + 1];
    struct server s;
    struct client c;
    struct record expected;
    int i, last = 0;
    begin();
    fill(data, sizeof data, 3);
    memset(&expected, 0, sizeof expected);
    meet(&s, NULL, &c, NULL);
    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 0, data, sizeof data), FRISBEE_TOO_LARGE);
    for (i = 0; i < 3; i++) { // each waits in the queue until the one before has left it
        data[0] = (uint8_t)i;
        expect(&expected, (unsigned)i, data, FRISBEE_PACKET_MAX);
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, (uint16_t)i, data, FRISBEE_PACKET_MAX), FRISBEE_OK);
        CHECK_EQ(frisbee_send(s.pool, s.seen.conn, NOBODY, (uint16_t)i, data, FRISBEE_PACKET_MAX), FRISBEE_OK);
        WAIT_FOR(c.seen.packets > last && s.seen.packets > last);
        last++;
    }
    CHECK(same(&c.seen, &expected) && same(&s.seen, &expected));
    CHECK(echoes(c.pool, c.conn, data, FRISBEE_PACKET_MAX));
    end();
}

// Megabytes through buffers of 4 KiB, in packets of every kind of size: each write of the library is cut somewhere.
static void promise_1_partial_writes(void) {
    static uint8_t data[200000], in[200000];
    struct client c;
    struct raw_packet packet;
    size_t total = 0;
    unsigned sent = 0, got = 0;
    uint64_t sent_hash = 0, got_hash = 0, deadline = now_ms() + 3 * WAIT_MS;
    int fd;
    begin();
    fill(data, sizeof data, 9);
    fd = adopt(&c, NULL, FRISBEE_CONNECTOR, 1);
    WAIT_FOR(c.seen.opened == 1);
    CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.operation == 0); // the connector's PING
    while ((total < 3 * MEBIBYTE || got < sent) && now_ms() < deadline) {
        while (total < 3 * MEBIBYTE && sent - got < 20) {
            size_t length = sent % 7 == 0 ? sent * 977u % sizeof data : sent * 31u % 5000;
            if (frisbee_send(c.pool, c.conn, NOBODY, (uint16_t)sent, data, length) != FRISBEE_OK) break;
            sent_hash = hash_more(sent_hash, data, length);
            total += length;
            sent++;
        }
        if (!CHECK(raw_packet(fd, 1, &packet, in, sizeof in))) break;
        CHECK_EQ(packet.id, got & 0xFFFF);
        got_hash = hash_more(got_hash, in, packet.length);
        got++;
    }
    CHECK_EQ(got, sent);
    CHECK(got_hash == sent_hash && total >= 3 * MEBIBYTE);
    close(fd);
    end();
}

// A stream of packets in both wires, cut in two at every byte: what is handed out and answered does not depend on the cut.
static void promise_1_chopped_at_every_byte(void) {
    struct server s;
    int wire;
    for (wire = 0; wire <= 1; wire++) {
        uint8_t out[256], in[64];
        struct record expected;
        struct raw_packet answer;
        size_t n = 0, cut;
        memset(&expected, 0, sizeof expected);
        n += put_packet(out + n, wire, ECHO, 15, "world!", 6); // id 15: in v0 it begins like v1
        n += put_packet(out + n, wire, NOBODY, 7, "hello", 5);
        n += put_packet(out + n, wire, 0, 0, "ping", 4); // a payload on a PING is skipped
        n += put_packet(out + n, wire, 1, 0, "pong", 4);
        n += put_packet(out + n, wire, 0xFF55, 3, "later", 5); // an operation of the library's future
        n += put_packet(out + n, wire, NOBODY, 65535, "", 0);
        n += put_packet(out + n, wire, ECHO, 0, "", 0);
        expect(&expected, 7, "hello", 5);
        expect(&expected, 65535, "", 0);
        begin();
        serve(&s, NULL);
        for (cut = 0; cut < n; cut++) {
            int fd = raw_connect(s.address);
            memset(&s.seen, 0, sizeof s.seen);
            CHECK_EQ(raw_send(fd, out, cut), cut);
            turns(cut % 3 == 0 ? 1 : 3); // also before it was accepted
            CHECK_EQ(raw_send(fd, out + cut, n - cut), n - cut);
            CHECK(raw_packet(fd, wire, &answer, in, sizeof in));
            CHECK(answer.operation == ECHO && answer.id == 15 && answer.length == 6 && memcmp(in, "world!", 6) == 0);
            CHECK(raw_packet(fd, wire, &answer, in, sizeof in) && answer.operation == 1 && answer.length == 0);
            CHECK(raw_packet(fd, wire, &answer, in, sizeof in) && answer.operation == ECHO && answer.id == 0 && answer.length == 0);
            CHECK(same(&s.seen, &expected) && s.seen.opened == 1);
            close(fd);
            WAIT_FOR(s.seen.closed == 1);
            CHECK_EQ(s.seen.info.reason, FRISBEE_CLOSED);
        }
        end();
    }
}

static void promise_1_one_write_per_turn(void) {
    struct server s;
    struct client c;
    int i;
    begin();
    meet(&s, NULL, &c, NULL);
    turns(5);
    writes = 0;
    for (i = 0; i < 100; i++) CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, (uint16_t)i, "0123456789", 10), FRISBEE_OK);
    CHECK_EQ(writes, 0);
    CHECK_EQ(frisbee_queued(c.pool, c.conn), 100u * 20u);
    WAIT_FOR(s.seen.packets == 100);
    CHECK_EQ(writes, 1);
    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 0, NULL, 0), FRISBEE_OK);
    CHECK_EQ(frisbee_flush(c.pool), FRISBEE_OK); // leaves without a poll
    CHECK_EQ(frisbee_queued(c.pool, c.conn), 0);
    CHECK_EQ(writes, 2);
    end();
}

static void promise_1_reserved_room(void) {
    static const size_t sizes[] = {1, 100, 5000, 65536, 300000};
    static uint8_t data[300000];
    struct server s;
    struct client c;
    struct record expected;
    struct reply reply;
    frisbee_call_desc desc;
    void *room = NULL;
    size_t i;
    begin();
    fill(data, sizeof data, 21);
    meet(&s, NULL, &c, NULL);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t length = sizes[i];
        memset(&reply, 0, sizeof reply);
        memset(&desc, 0, sizeof desc);
        desc.on_reply = record_reply;
        desc.user = &reply;
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 1, data, 3), FRISBEE_OK); // something lies before it
        CHECK_EQ(frisbee_reserve(c.pool, c.conn, length, &room), FRISBEE_OK);
        memcpy(room, data, length);
        CHECK_EQ(frisbee_call(c.pool, c.conn, ECHO, room, length, &desc, NULL), FRISBEE_OK);
        CHECK_EQ(frisbee_reserve(c.pool, c.conn, length, &room), FRISBEE_OK); // less is used than was reserved
        memcpy(room, data, length / 2);
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 2, room, length / 2), FRISBEE_OK);
        CHECK_EQ(frisbee_reserve(c.pool, c.conn, length, &room), FRISBEE_OK); // and this loan is given up
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 3, data, 7), FRISBEE_OK);
        s.seen.packets = 0;
        s.seen.hash = 0;
        memset(&expected, 0, sizeof expected);
        expect(&expected, 1, data, 3);
        expect(&expected, 2, data, length / 2);
        expect(&expected, 3, data, 7);
        WAIT_FOR(reply.count == 1 && s.seen.packets == 3);
        CHECK(reply.length == length && reply.hash == hash_of(data, length));
        CHECK(s.seen.hash == expected.hash);
        turns(3);
        CHECK_EQ(frisbee_queued(c.pool, c.conn), 0);
    }
    end();
}

// Borrowed payloads: released exactly once, whether they left, were dropped at close, or the call was struck from the queue.
static void promise_1_borrowed_spans(void) {
    static uint8_t data[MEBIBYTE];
    struct client c;
    static uint8_t in[MEBIBYTE];
    struct raw_packet packet;
    frisbee_call_desc desc;
    frisbee_call_id id;
    frisbee_span spans[3];
    int fd, i, released = 0;
    begin();
    fill(data, sizeof data, 4);
    fd = adopt(&c, NULL, FRISBEE_CONNECTOR, 1);
    WAIT_FOR(c.seen.opened == 1);
    CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.operation == 0);
    for (i = 0; i < 4; i++) {
        spans[0].data = data, spans[0].length = 1000;
        spans[1].data = NULL, spans[1].length = 0;
        spans[2].data = data + 1000, spans[2].length = 200000;
        CHECK_EQ(frisbee_send_spans(c.pool, c.conn, NOBODY, (uint16_t)i, spans, 3, count_release, &released), FRISBEE_OK);
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 9, "x", 1), FRISBEE_OK);
        memset(spans, 0, sizeof spans); // the array itself was copied
    }
    CHECK_EQ(released, 0); // never inside the call
    for (i = 0; i < 4; i++) {
        CHECK(raw_packet(fd, 1, &packet, in, sizeof in));
        CHECK(packet.id == (unsigned)i && packet.length == 201000 && memcmp(in, data, 201000) == 0);
        CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.id == 9 && in[0] == 'x');
    }
    WAIT_FOR(released == 4);
    CHECK_EQ(frisbee_send_spans(c.pool, c.conn, 5, 0, spans, 0, count_release, &released), FRISBEE_INVALID); // refused: owns nothing
    for (i = 0; i < 3; i++) { // too much to leave
        spans[0].data = data, spans[0].length = sizeof data;
        CHECK_EQ(frisbee_send_spans(c.pool, c.conn, NOBODY, 0, spans, 1, count_release, &released), FRISBEE_OK);
    }
    memset(&desc, 0, sizeof desc);
    desc.release = count_release;
    desc.user = &released;
    CHECK_EQ(frisbee_call(c.pool, c.conn, ECHO, data, 5000, &desc, &id), FRISBEE_OK);
    CHECK_EQ(frisbee_cancel(c.pool, id), FRISBEE_OK);
    CHECK_EQ(frisbee_cancel(c.pool, id), FRISBEE_CLOSED);
    turns(20);
    CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1);
    CHECK_EQ(released, 8);
    close(fd);
    end();
    CHECK_EQ(released, 8);
}

// Half-close: what was sent before it arrives, on_end comes once, and answers still travel the other way.
static void promise_1_finish_and_on_end(void) {
    struct server s;
    struct client c;
    frisbee_conn_desc with_end = quiet(NULL), other = quiet(NULL);
    struct reply reply;
    int i;
    with_end.events = &record_events_and_end;
    for (i = 0; i < 2; i++) {
        begin();
        meet(&s, i ? &with_end : &other, &c, NULL);
        CHECK_EQ(call(c.pool, c.conn, LATER, "q", 1, 0, &reply, NULL), FRISBEE_OK);
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 1, "last", 4), FRISBEE_OK);
        CHECK_EQ(frisbee_finish(c.pool, c.conn), FRISBEE_OK);
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 2, "x", 1), FRISBEE_CLOSED);
        WAIT_FOR(s.seen.packets == 1 && later_count == 1 && (!i || s.seen.ended == 1));
        turn_for(30);
        CHECK_EQ(s.seen.closed + c.seen.closed, 0); // a reply is owed
        CHECK_EQ(answer_later(s.pool, "answer", 6), FRISBEE_OK);
        WAIT_FOR(reply.count == 1);
        CHECK(reply.result == FRISBEE_OK && reply.hash == hash_of("answer", 6));
        if (i) { // who has on_end closes by himself
            turn_for(30);
            CHECK_EQ(s.seen.closed, 0);
            CHECK_EQ(s.seen.ended, 1);
            CHECK_EQ(frisbee_close(s.pool, s.seen.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
        }
        WAIT_FOR(s.seen.finals == 1 && c.seen.finals == 1);
        CHECK_EQ(s.seen.info.reason, i ? FRISBEE_OK : FRISBEE_CLOSED);
        CHECK_EQ(c.seen.info.reason, FRISBEE_CLOSED);
        end();
    }
}

// In one batch of events A's handler closes B, and a new connection takes B's descriptor number: B's stale event must not reach it.
static struct {
    frisbee_pool *pool;
    struct client a, b, fresh;
    frisbee_conn_desc desc;
    int spare, wanted, reused; // the fresh connection's socket, B's number, and whether it was had
    int holes[8], hole_count;
} stale;

static void stale_adopt(void) {
    int fd = fcntl(stale.spare, F_DUPFD, 0); // the lowest free number
    if (stale.fresh.conn.id) {
        close(fd);
        return;
    }
    stale.reused += fd == stale.wanted;
    stale.desc.user = &stale.fresh.seen;
    CHECK_EQ(frisbee_adopt(stale.pool, fd, &stale.desc, NULL, 0, &stale.fresh.conn), FRISBEE_OK);
}

static void stale_packet(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    record_packet(pool, packet, user);
    if (user != &stale.a.seen) return;
    frisbee_close(pool, stale.b.conn, FRISBEE_CLOSE_NOW);
    if (packet->length == 2) stale_adopt(); // else in B's on_close
}

static void stale_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    record_close(pool, conn, info, user);
    if (user == &stale.b.seen) stale_adopt();
}

static void promise_1_a_stale_event_meets_nobody(void) {
    static const frisbee_events events = {record_open, stale_packet, NULL, NULL, stale_close};
    uint8_t out[32];
    int round, reused = 0, hole, i;
    for (round = 0; round < 8; round++) { // whose event comes first, when the new one comes, and what B's event is
        int pair_a[2], pair_b[2], pair_c[2], b_first = round & 1, now = round >> 1 & 1, reset = round >> 2;
        size_t n = put_packet(out, 1, NOBODY, 1, "ab", now ? 2 : 1);
        memset(&stale, 0, sizeof stale);
        begin();
        stale.pool = new_pool(NULL);
        stale.desc = quiet(NULL);
        stale.desc.events = &events;
        stale.desc.role = FRISBEE_ACCEPTOR;
        stale.desc.wire = FRISBEE_WIRE_V1;
        raw_pair(pair_b);
        raw_pair(pair_a);
        raw_pair(pair_c);
        stale.wanted = pair_b[1];
        stale.spare = pair_c[1];
        while ((hole = dup(pair_c[0])) < stale.wanted && CHECK(stale.hole_count < 8)) // B's number is to be the lowest that gets free
            stale.holes[stale.hole_count++] = hole;
        close(hole);
        for (i = 0; i < 2; i++) {
            struct client *who = (i == 0) == b_first ? &stale.b : &stale.a;
            stale.desc.user = &who->seen;
            CHECK_EQ(frisbee_adopt(stale.pool, who == &stale.b ? pair_b[1] : pair_a[1], &stale.desc, NULL, 0, &who->conn), FRISBEE_OK);
        }
        WAIT_FOR(stale.a.seen.opened && stale.b.seen.opened);
        CHECK_EQ(send(pair_a[0], out, n, 0), n);
        if (reset) raw_reset(pair_b[0]);
        else CHECK_EQ(send(pair_b[0], out, n, 0), n);
        WAIT_FOR(stale.a.seen.packets == 1 && stale.b.seen.finals == 1 && stale.fresh.seen.opened == 1);
        reused += stale.reused;
        CHECK_EQ(stale.fresh.seen.packets + stale.fresh.seen.closed, 0);
        CHECK(raw_echo(pair_c[0], 1, 5, "still here", 10));
        CHECK_EQ(stale.fresh.seen.packets + stale.fresh.seen.closed, 0);
        close(pair_a[0]);
        if (!reset) close(pair_b[0]);
        close(pair_c[0]);
        close(stale.spare);
        while (stale.hole_count > 0) close(stale.holes[--stale.hole_count]);
        end();
    }
    CHECK(reused > 0); // or the case has tested nothing
}

static volatile sig_atomic_t signals;
static void count_signal(int number) {
    (void)number;
    signals++;
}

// A signal every millisecond, whose handler restarts nothing, through connecting, calls and megabytes.
static void promise_1_signals_through_a_busy_exchange(void) {
    static uint8_t data[MEBIBYTE];
    struct sigaction action, before;
    struct server s;
    struct client c;
    struct record expected;
    uint64_t until;
    unsigned round = 0;
    pid_t parent = getpid(), child;
    begin();
    fill(data, sizeof data, 8);
    memset(&action, 0, sizeof action);
    memset(&expected, 0, sizeof expected);
    action.sa_handler = count_signal;
    sigaction(SIGUSR1, &action, &before);
    signals = 0;
    child = fork();
    if (child == 0) {
        int i;
        for (i = 0; i < 30000 && getppid() == parent; i++) {
            kill(parent, SIGUSR1);
            sleep_ms(1);
        }
        _exit(0);
    }
    CHECK(child > 0);
    serve(&s, NULL);
    dial(&c, NULL, s.address, NULL);
    WAIT_FOR(c.seen.opened == 1 && s.seen.opened == 1);
    for (until = now_ms() + 500; now_ms() < until || signals < 100; round++) {
        struct client other;
        struct reply reply;
        frisbee_conn kept = s.seen.conn;
        int closed = s.seen.closed;
        expect(&expected, round, data, sizeof data);
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, (uint16_t)round, data, sizeof data), FRISBEE_OK);
        CHECK_EQ(frisbee_send(s.pool, s.seen.conn, NOBODY, (uint16_t)round, data, sizeof data), FRISBEE_OK);
        CHECK_EQ(call(c.pool, c.conn, ECHO, data, 1000, 0, &reply, NULL), FRISBEE_OK);
        WAIT_FOR(s.seen.packets == (int)round + 1 && c.seen.packets == (int)round + 1 && reply.count == 1);
        CHECK_EQ(reply.result, FRISBEE_OK);
        dial(&other, c.pool, s.address, NULL);
        CHECK(echoes(c.pool, other.conn, data, 10));
        CHECK_EQ(frisbee_close(c.pool, other.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
        WAIT_FOR(other.seen.finals == 1 && s.seen.closed == closed + 1);
        s.seen.conn = kept;
        if (now_ms() > until + WAIT_MS) break;
    }
    CHECK(same(&c.seen, &expected) && same(&s.seen, &expected));
    CHECK(signals >= 100);
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    sigaction(SIGUSR1, &before, NULL);
    end();
}

// >>promise 2: every call ends in exactly one on_reply, and a late reply meets nobody

static void promise_2_fifty_thousand_calls_in_flight(void) {
    enum { CALLS = 50000 };
    struct reply *replies = (struct reply *)calloc(CALLS, sizeof *replies), extra;
    frisbee_conn_desc serving = quiet(NULL), calling = quiet(NULL);
    struct server s;
    struct client c;
    frisbee_stats stats;
    int i, done = 0;
    begin();
    serving.max_deferred = calling.max_calls = 57343;
    meet(&s, &serving, &c, &calling);
    for (i = 0; i < CALLS; i++)
        if (!CHECK_EQ(call(c.pool, c.conn, LATER, &i, sizeof i, FRISBEE_NEVER, &replies[i], NULL), FRISBEE_OK)) break;
    WAIT_FOR(later_count == CALLS);
    CHECK_EQ(frisbee_conn_stats(c.pool, c.conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.calls, CALLS);
    CHECK_EQ(frisbee_conn_stats(s.pool, s.seen.conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.deferred, CALLS);
    for (i = CALLS; i < 57343; i++) CHECK_EQ(call(c.pool, c.conn, SWALLOW, NULL, 0, FRISBEE_NEVER, &extra, NULL), FRISBEE_OK);
    CHECK_EQ(call(c.pool, c.conn, SWALLOW, NULL, 0, 0, &extra, NULL), FRISBEE_EXHAUSTED); // every id is in use
    CHECK_EQ(answer_later(s.pool, "done", 4), FRISBEE_OK);
    WAIT_FOR(replies[0].count == 1); // the newest were answered first
    for (i = 0; i < CALLS; i++) done += replies[i].count == 1 && replies[i].result == FRISBEE_OK && replies[i].length == 4;
    CHECK_EQ(done, CALLS);
    CHECK(echoes(c.pool, c.conn, "ids again", 9));
    end();
    for (i = done = 0; i < CALLS; i++) done += replies[i].count;
    CHECK_EQ(done, CALLS);
    free(replies);
}

static void promise_2_limit_of_calls(void) {
    struct server s;
    struct client c;
    struct reply replies[11];
    frisbee_conn_desc desc = quiet(NULL);
    int i;
    begin();
    desc.max_calls = 10;
    meet(&s, NULL, &c, &desc);
    for (i = 0; i < 10; i++) CHECK_EQ(call(c.pool, c.conn, LATER, NULL, 0, 0, &replies[i], NULL), FRISBEE_OK);
    CHECK_EQ(call(c.pool, c.conn, LATER, NULL, 0, 0, &replies[10], NULL), FRISBEE_EXHAUSTED);
    WAIT_FOR(later_count == 10);
    CHECK_EQ(answer_later(s.pool, NULL, 0), FRISBEE_OK);
    WAIT_FOR(replies[0].count == 1);
    CHECK_EQ(call(c.pool, c.conn, ECHO, NULL, 0, 0, &replies[10], NULL), FRISBEE_OK);
    WAIT_FOR(replies[10].count == 1);
    end();
    CHECK_EQ(replies[10].result, FRISBEE_OK);
}

static void promise_2_timeout_cancel_and_late_replies(void) {
    struct server s;
    struct client c;
    struct reply timed, cancelled, next;
    frisbee_call_id id;
    frisbee_stats stats;
    begin();
    meet(&s, NULL, &c, NULL);
    CHECK_EQ(call(c.pool, c.conn, LATER, "1", 1, 30, &timed, NULL), FRISBEE_OK);
    CHECK_EQ(call(c.pool, c.conn, LATER, "2", 1, FRISBEE_NEVER, &cancelled, &id), FRISBEE_OK);
    WAIT_FOR(later_count == 2);
    CHECK_EQ(frisbee_cancel(c.pool, id), FRISBEE_OK);
    CHECK_EQ(cancelled.count, 0); // not inside cancel
    WAIT_FOR(cancelled.count == 1 && timed.count == 1);
    CHECK(cancelled.result == FRISBEE_CANCELLED && cancelled.sent);
    CHECK(timed.result == FRISBEE_TIMED_OUT && timed.sent);
    CHECK_EQ(frisbee_cancel(c.pool, id), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_conn_stats(c.pool, c.conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.lost_ids, 2);
    CHECK_EQ(call(c.pool, c.conn, LATER, "3", 1, 0, &next, NULL), FRISBEE_OK);
    WAIT_FOR(later_count == 3);
    later_count = 2; // the two late replies go first
    {
        frisbee_origin third = later_origins[2];
        CHECK_EQ(answer_later(s.pool, "late", 4), FRISBEE_OK);
        turn_for(30);
        CHECK_EQ(next.count, 0);
        CHECK_EQ(frisbee_reply(s.pool, &third, "right", 5), FRISBEE_OK);
        CHECK_EQ(frisbee_reply(s.pool, &third, "twice", 5), FRISBEE_INVALID);
    }
    WAIT_FOR(next.count == 1);
    CHECK(next.result == FRISBEE_OK && next.hash == hash_of("right", 5));
    CHECK_EQ(frisbee_conn_stats(c.pool, c.conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.lost_ids, 0);
    CHECK_EQ(stats.late_replies, 2);
    CHECK_EQ(timed.count + cancelled.count, 2);
    end();
}

static void promise_2_struck_from_the_queue(void) { // a call that ends while it waits was never sent, and the peer never sees it
    static uint8_t data[MEBIBYTE];
    struct client c;
    struct raw_packet packet;
    struct reply timed, cancelled;
    frisbee_call_desc desc;
    frisbee_call_id id, lent;
    int fd, requests = 0, released = 0;
    begin();
    memset(&desc, 0, sizeof desc);
    desc.release = count_release;
    desc.user = &released;
    fd = adopt(&c, NULL, FRISBEE_CONNECTOR, 1);
    WAIT_FOR(c.seen.opened == 1);
    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 1, data, sizeof data), FRISBEE_OK); // blocks the queue
    CHECK_EQ(call(c.pool, c.conn, ECHO, "1", 1, 30, &timed, NULL), FRISBEE_OK);
    CHECK_EQ(call(c.pool, c.conn, ECHO, "2", 1, 0, &cancelled, &id), FRISBEE_OK);
    CHECK_EQ(frisbee_call(c.pool, c.conn, ECHO, "borrowed", 8, &desc, &lent), FRISBEE_OK);
    turns(5);
    CHECK_EQ(frisbee_cancel(c.pool, id), FRISBEE_OK);
    CHECK_EQ(frisbee_cancel(c.pool, lent), FRISBEE_OK);
    WAIT_FOR(timed.count == 1 && cancelled.count == 1);
    CHECK(timed.result == FRISBEE_TIMED_OUT && !timed.sent);
    CHECK(cancelled.result == FRISBEE_CANCELLED && !cancelled.sent);
    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 2, "end", 3), FRISBEE_OK);
    do {
        if (!CHECK(raw_packet(fd, 1, &packet, data, sizeof data))) break;
        requests += packet.operation == ECHO;
    } while (packet.id != 2 || packet.operation != NOBODY);
    CHECK_EQ(requests, 0);
    WAIT_FOR(released == 1);
    close(fd);
    end();
}

static void promise_2_calls_of_a_connection_that_ends(void) {
    struct server s;
    struct client c;
    struct reply sent, unsent, refused;
    char address[64];
    int nobody;
    begin();
    meet(&s, NULL, &c, NULL);
    CHECK_EQ(call(c.pool, c.conn, SWALLOW, "?", 1, 0, &sent, NULL), FRISBEE_OK);
    WAIT_FOR(frisbee_queued(c.pool, c.conn) == 0);
    CHECK_EQ(call(c.pool, c.conn, SWALLOW, "?", 1, 0, &unsent, NULL), FRISBEE_OK);
    CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    CHECK_EQ(sent.count + unsent.count, 0);
    WAIT_FOR(c.seen.finals == 1);
    CHECK(sent.count == 1 && sent.result == FRISBEE_UNKNOWN && sent.sent);
    CHECK(unsent.count == 1 && unsent.result == FRISBEE_NOT_SENT && !unsent.sent);
    CHECK_EQ(c.seen.info.reason, FRISBEE_OK);
    CHECK_EQ(call(c.pool, c.conn, ECHO, NULL, 0, 0, &refused, NULL), FRISBEE_CLOSED);

    nobody = raw_listen(-1, address); // before an open that never comes
    dial(&c, c.pool, address, NULL);
    CHECK_EQ(call(c.pool, c.conn, ECHO, "?", 1, 0, &refused, NULL), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1);
    CHECK_EQ(c.seen.info.reason, FRISBEE_REFUSED);
    CHECK(!c.seen.info.opened && c.seen.opened == 0);
    CHECK(refused.count == 1 && refused.result == FRISBEE_NOT_SENT && !refused.sent);
    close(nobody);
    end();

    begin(); // and of a pool that ends
    meet(&s, NULL, &c, NULL);
    CHECK_EQ(call(c.pool, c.conn, SWALLOW, "?", 1, 0, &sent, NULL), FRISBEE_OK);
    turns(10);
    drop_pool(c.pool);
    CHECK(sent.count == 1 && sent.result == FRISBEE_CANCELLED);
    CHECK(c.seen.finals == 1 && c.seen.info.reason == FRISBEE_DESTROYED);
    WAIT_FOR(s.seen.finals == 1);
    end();
}

// Both ends call each other with the same operation at the same time.
static void promise_2_two_callers_on_one_connection(void) {
    enum { CALLS = 3000 };
    struct reply *replies = (struct reply *)calloc(2 * CALLS, sizeof *replies);
    struct server s;
    struct client c;
    uint32_t i, right = 0;
    begin();
    meet(&s, NULL, &c, NULL);
    for (i = 0; i < CALLS; i++) {
        uint32_t theirs = i + CALLS;
        CHECK_EQ(call(c.pool, c.conn, ECHO, &i, sizeof i, 0, &replies[i], NULL), FRISBEE_OK);
        CHECK_EQ(call(s.pool, s.seen.conn, ECHO, &theirs, sizeof theirs, 0, &replies[theirs], NULL), FRISBEE_OK);
        if (i % 100 == 0) turn(0);
    }
    WAIT_FOR(replies[CALLS - 1].count == 1 && replies[2 * CALLS - 1].count == 1);
    for (i = 0; i < 2 * CALLS; i++) right += replies[i].count == 1 && replies[i].result == FRISBEE_OK && replies[i].hash == hash_of(&i, sizeof i);
    CHECK_EQ(right, 2 * CALLS);
    end();
    free(replies);
}

static frisbee_result inside; // what a blocking function answers in a callback

static void route_blocks(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    frisbee_outcome outcome;
    (void)user;
    inside = frisbee_call_wait(pool, packet->from.conn, ECHO, NULL, 0, 10, &outcome);
    CHECK_EQ(frisbee_poll(pool, 0), FRISBEE_BUSY);
    CHECK_EQ(frisbee_run(pool), FRISBEE_BUSY);
    frisbee_reply(pool, &packet->from, NULL, 0);
}

static void route_stops(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)packet;
    (void)user;
    frisbee_stop(pool);
}

static void promise_2_call_wait(void) {
    static const frisbee_route routes[] = {
        {ECHO, route_echo, NULL}, {SWALLOW, route_swallow, NULL}, {20, route_blocks, NULL}, {21, route_stops, NULL}};
    struct server s;
    struct client c;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_outcome outcome;
    uint64_t start;
    begin();
    desc.routes = routes;
    desc.route_count = sizeof routes / sizeof *routes;
    serve(&s, &desc);
    dial(&c, s.pool, s.address, NULL); // before it is open; one pool serves and calls
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, ECHO, "hello", 5, 5000, &outcome), FRISBEE_OK);
    CHECK(outcome.result == FRISBEE_OK && outcome.sent && outcome.length == 5 && memcmp(outcome.data, "hello", 5) == 0);
    start = now_ms();
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, SWALLOW, NULL, 0, 50, &outcome), FRISBEE_TIMED_OUT);
    CHECK(now_ms() - start >= 49);
    CHECK(outcome.result == FRISBEE_TIMED_OUT && outcome.sent && outcome.length == 0);
    inside = FRISBEE_OK;
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, 20, NULL, 0, 5000, &outcome), FRISBEE_OK);
    CHECK_EQ(inside, FRISBEE_BUSY);
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, 21, NULL, 0, 5000, &outcome), FRISBEE_CANCELLED);
    CHECK_EQ(outcome.result, FRISBEE_CANCELLED);
    frisbee_stop(c.pool); // with nothing under way it is for the next run, and no call is hurt
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, ECHO, NULL, 0, 5000, &outcome), FRISBEE_OK);
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, ECHO, "again", 5, 5000, &outcome), FRISBEE_OK);
    CHECK_EQ(frisbee_run(c.pool), FRISBEE_OK);
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, 5, NULL, 0, 5000, &outcome), FRISBEE_INVALID);
    CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1);
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, ECHO, NULL, 0, 5000, &outcome), FRISBEE_CLOSED);
    end();
}

// A program that only ever calls blocking gets its connection back, too, and is told why there is none.
static void promise_2_call_wait_between_sessions(void) {
    struct server s;
    struct client c;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_outcome outcome;
    char address[64];
    int holder;
    begin();
    serve(&s, NULL);
    desc.retry_min_ms = 20;
    dial(&c, s.pool, s.address, &desc);
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, ECHO, "one", 3, 5000, &outcome), FRISBEE_OK);
    CHECK_EQ(frisbee_close(s.pool, s.seen.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    WAIT_FOR(c.seen.closed == 1);
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, ECHO, "two", 3, 5000, &outcome), FRISBEE_OK); // waits for the next session
    CHECK_EQ(c.seen.opened, 2);
    CHECK_EQ(frisbee_listener_close(s.pool, s.listener), FRISBEE_OK);
    CHECK_EQ(frisbee_close(s.pool, s.seen.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    WAIT_FOR(c.seen.closed == 2);
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, ECHO, "none", 4, 100, &outcome), FRISBEE_TIMED_OUT); // no longer than it was told to
    CHECK(outcome.result == FRISBEE_TIMED_OUT && !outcome.sent);
    end();

    begin();
    holder = raw_listen(-1, address); // an address at which nobody listens
    dial(&c, NULL, address, NULL);
    CHECK_EQ(frisbee_call_wait(c.pool, c.conn, ECHO, "?", 1, 5000, &outcome), FRISBEE_NOT_SENT);
    CHECK(outcome.reason == FRISBEE_REFUSED && !outcome.sent);
    close(holder);
    end();
}

// The server goes and comes back on the same port: the handle stays, the sessions do not mix.
static void promise_2_reconnect(void) {
    struct server s, again;
    struct client c;
    frisbee_conn_desc desc = quiet(NULL);
    struct reply lost, early;
    frisbee_stats stats;
    begin();
    desc.retry_min_ms = 20;
    desc.retry_max_ms = 80;
    meet(&s, NULL, &c, &desc);
    CHECK(echoes(c.pool, c.conn, "one", 3));
    CHECK_EQ(call(c.pool, c.conn, SWALLOW, "?", 1, FRISBEE_NEVER, &lost, NULL), FRISBEE_OK);
    turns(10);
    drop_pool(s.pool);
    WAIT_FOR(c.seen.closed == 1);
    CHECK(lost.count == 1 && lost.result == FRISBEE_UNKNOWN);
    CHECK(c.seen.info.reason == FRISBEE_CLOSED && c.seen.info.opened);
    CHECK(c.seen.info.retry_ms >= 10 && c.seen.info.retry_ms <= 20);
    CHECK_EQ(call(c.pool, c.conn, ECHO, NULL, 0, 0, &early, NULL), FRISBEE_NOT_SENT);
    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 0, NULL, 0), FRISBEE_NOT_SENT);
    WAIT_FOR(c.seen.closed == 5);
    CHECK(c.seen.info.reason == FRISBEE_REFUSED && !c.seen.info.opened);
    CHECK(c.seen.info.retry_ms >= 40 && c.seen.info.retry_ms <= 80); // doubled to its maximum, minus a random half
    CHECK_EQ(c.seen.finals, 0);
    serve_at(&again, s.address, NULL, NULL); // bound again although connections of the old one linger in the system
    WAIT_FOR(c.seen.opened == 2 && again.seen.opened == 1);
    CHECK(echoes(c.pool, c.conn, "two", 3));
    CHECK_EQ(frisbee_conn_stats(c.pool, c.conn, &stats), FRISBEE_OK);
    CHECK_EQ(stats.sessions, 2);
    CHECK_EQ(stats.calls, 0);
    CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1);
    CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_NOW), FRISBEE_CLOSED);
    end();

    begin(); // calls before the first open wait for it, over refusals
    {
        char address[64];
        int holder = raw_listen(-1, address);
        dial(&c, NULL, address, &desc);
        CHECK_EQ(call(c.pool, c.conn, ECHO, "early", 5, FRISBEE_NEVER, &early, NULL), FRISBEE_OK);
        WAIT_FOR(c.seen.closed == 2);
        CHECK_EQ(early.count, 0);
        close(holder);
        serve_at(&s, address, NULL, NULL);
        WAIT_FOR(early.count == 1);
        CHECK(early.result == FRISBEE_OK && early.hash == hash_of("early", 5));
    }
    end();
}

static void promise_2_a_reply_never_crosses_sessions(void) { // the server's half: its promise to reply dies with the session
    struct server s;
    struct client c;
    struct reply reply;
    begin();
    meet(&s, NULL, &c, NULL);
    CHECK_EQ(call(c.pool, c.conn, LATER, "?", 1, 0, &reply, NULL), FRISBEE_OK);
    WAIT_FOR(later_count == 1);
    CHECK_EQ(frisbee_close(s.pool, s.seen.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    WAIT_FOR(s.seen.finals == 1 && c.seen.finals == 1);
    CHECK(reply.count == 1 && reply.result == FRISBEE_UNKNOWN);
    dial(&c, c.pool, s.address, NULL);
    WAIT_FOR(s.seen.opened == 2); // perhaps in the same place
    CHECK_EQ(call(c.pool, c.conn, LATER, "?", 1, 0, &reply, NULL), FRISBEE_OK);
    turns(20);
    CHECK_EQ(frisbee_reply(s.pool, &later_origins[0], "stranger", 8), FRISBEE_CLOSED);
    WAIT_FOR(later_count == 2);
    CHECK_EQ(reply.count, 0);
    CHECK_EQ(frisbee_reply(s.pool, &later_origins[1], "mine", 4), FRISBEE_OK);
    WAIT_FOR(reply.count == 1);
    CHECK(reply.hash == hash_of("mine", 4));
    later_count = 0;
    end();
}

// >>promise 3: memory is bounded, with a defined answer at each limit

static void promise_3_connections_wait_in_the_backlog(void) {
    struct server s;
    struct raw_packet packet;
    frisbee_conn_desc desc = quiet(NULL);
    uint8_t out[32];
    size_t n = put_packet(out, 1, ECHO, 1, NULL, 0), i;
    int fds[4];
    begin();
    desc.max_conns = 2;
    serve(&s, &desc);
    for (i = 0; i < 4; i++) {
        fds[i] = raw_connect(s.address);
        CHECK_EQ(raw_send(fds[i], out, n), n);
    }
    WAIT_FOR(s.seen.opened == 2);
    CHECK(wakes(s.pool, 100) <= 10); // a full listener does not spin
    CHECK_EQ(conns_of(s.pool), 2);
    CHECK_EQ(s.seen.opened, 2);
    close(fds[0]);
    WAIT_FOR(s.seen.opened == 3);
    close(fds[1]);
    WAIT_FOR(s.seen.opened == 4);
    for (i = 2; i < 4; i++) { // the answer to its first request comes first
        CHECK(raw_packet(fds[i], 1, &packet, out, sizeof out) && packet.operation == ECHO && packet.id == 1);
        CHECK(raw_echo(fds[i], 1, 2, "served", 6));
        close(fds[i]);
    }
    WAIT_FOR(s.seen.closed == 4);
    end();
}

static void promise_3_connections_of_a_pool(void) {
    frisbee_pool_desc desc;
    frisbee_conn_desc conn = quiet(NULL);
    struct server s;
    struct client c;
    frisbee_conn extra;
    int pair[2];
    begin();
    memset(&desc, 0, sizeof desc);
    desc.max_conns = 2;
    serve_at(&s, "127.0.0.1:0", NULL, &desc);
    dial(&c, s.pool, s.address, NULL); // both ends in the pool: now it is full
    WAIT_FOR(s.seen.opened == 1 && c.seen.opened == 1);
    CHECK_EQ(frisbee_connect(s.pool, s.address, &conn, &extra), FRISBEE_EXHAUSTED);
    raw_pair(pair);
    conn.role = FRISBEE_ACCEPTOR;
    CHECK_EQ(frisbee_adopt(s.pool, pair[0], &conn, NULL, 0, &extra), FRISBEE_EXHAUSTED);
    CHECK_EQ(send(pair[0], "mine", 4, 0), 4); // it stays the caller's
    CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    WAIT_FOR(conns_of(s.pool) == 0);
    conn.user = &c.seen;
    CHECK_EQ(frisbee_adopt(s.pool, pair[0], &conn, NULL, 0, &extra), FRISBEE_OK);
    close(pair[1]);
    end();
}

static void promise_3_queue_limit_and_writable(void) {
    static uint8_t data[20000];
    struct client c;
    struct raw_packet packet;
    frisbee_conn_desc desc = quiet(NULL);
    uint8_t in[sizeof data];
    frisbee_result result;
    int fd, round;
    begin();
    desc.max_packet = sizeof data;
    desc.queue_limit = 100000;
    desc.high_water = 50000;
    desc.low_water = 10000;
    fd = adopt(&c, &desc, FRISBEE_CONNECTOR, 1);
    WAIT_FOR(c.seen.opened == 1);
    CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.operation == 0);
    for (round = 0; round < 3; round++) {
        int sent = 0, got;
        do {
            result = frisbee_send(c.pool, c.conn, NOBODY, (uint16_t)sent, data, sizeof data);
            CHECK(frisbee_queued(c.pool, c.conn) <= 100000);
            turn(0);
        } while (result == FRISBEE_OK && ++sent < 1000);
        CHECK_EQ(result, FRISBEE_AGAIN);
        CHECK(wakes(c.pool, 60) <= 10);
        CHECK_EQ(c.seen.writable, round);
        for (got = 0; got < sent; got++) CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.id == (unsigned)got);
        WAIT_FOR(c.seen.writable == round + 1);
        CHECK(frisbee_queued(c.pool, c.conn) <= 10000);
    }
    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 0, in, sizeof in + 1), FRISBEE_TOO_LARGE);
    close(fd);
    end();
}

// A peer that sends requests and does not read its answers stops being read; when it reads, all of them come, and nobody else noticed.
static void promise_3_replies_that_nobody_reads(void) {
    enum { REQUESTS = 100000 };
    static uint8_t data[1000];
    uint8_t out[1100], in[1100];
    struct server s;
    struct client other;
    struct raw_packet packet;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_pool_desc pool_desc;
    frisbee_stats stats;
    size_t n, sent = 0, got, most = 0;
    int fd, stuck = 0;
    begin();
    desc.high_water = 65536;
    memset(&pool_desc, 0, sizeof pool_desc);
    pool_desc.read_buffer = 16384;
    serve_at(&s, "127.0.0.1:0", &desc, &pool_desc);
    dial(&other, NULL, s.address, NULL);
    WAIT_FOR(other.seen.opened == 1);
    fd = raw_connect(s.address);
    fill(data, sizeof data, 2);
    for (n = 0; sent < REQUESTS && stuck < 200; stuck++) { // without reading, until nothing moves any more
        ssize_t wrote;
        if (n == 0) n = put_packet(out, 0, ECHO, (unsigned)sent & 0xFFFF, data, sizeof data);
        while ((wrote = send(fd, out + (sizeof data + 8 - n), n, MSG_NOSIGNAL)) > 0) {
            stuck = 0;
            n -= (size_t)wrote;
            if (n > 0) continue;
            sent++;
            n = put_packet(out, 0, ECHO, (unsigned)sent & 0xFFFF, data, sizeof data);
        }
        turn(0);
        CHECK_EQ(frisbee_pool_stats(s.pool, &stats), FRISBEE_OK);
        if (stats.queued > most) most = stats.queued;
    }
    CHECK(sent < REQUESTS);
    CHECK(most <= 65536 + 16384 + 2048); // high_water, and what one reading of input may add
    CHECK(wakes(s.pool, 60) <= 10);
    CHECK(echoes(other.pool, other.conn, "unharmed", 8));
    for (got = 0; got < sent; got++)
        if (!CHECK(raw_packet(fd, 0, &packet, in, sizeof in) && packet.id == (got & 0xFFFF) && packet.length == sizeof data)) break;
    CHECK(memcmp(in, data, sizeof data) == 0);
    CHECK_EQ(got, sent);
    close(fd);
    end();
}

static void promise_3_pool_memory(void) { // peers that claim long packets and trickle do not fill the pool
    enum { PEERS = 60 };
    static uint8_t data[20000];
    struct server s;
    struct client other;
    frisbee_pool_desc desc;
    frisbee_stats stats;
    uint8_t out[20000];
    size_t n;
    int fds[PEERS], i, closed = 0;
    begin();
    memset(&desc, 0, sizeof desc);
    desc.max_memory = 2 * MEBIBYTE;
    serve_at(&s, "127.0.0.1:0", NULL, &desc);
    dial(&other, NULL, s.address, NULL);
    WAIT_FOR(other.seen.opened == 1);
    for (i = 0; i < PEERS; i++) {
        fds[i] = raw_connect(s.address);
        n = put_claim(out, 1, NOBODY, 1, FRISBEE_PACKET_MAX, data, 100);
        CHECK_EQ(raw_send(fds[i], out, n), n);
        turn(0);
    }
    CHECK_EQ(frisbee_pool_stats(s.pool, &stats), FRISBEE_OK);
    CHECK(stats.memory <= desc.max_memory);
    CHECK_EQ(s.seen.closed, 0); // all fit, since a claim is not trusted
    for (i = 0; i < PEERS * 6; i++) { // now bytes come that do not fit
        send(fds[i % PEERS], data, sizeof data, MSG_NOSIGNAL);
        turns(2);
        CHECK_EQ(frisbee_pool_stats(s.pool, &stats), FRISBEE_OK);
        CHECK(stats.memory <= desc.max_memory);
    }
    closed = s.seen.closed;
    CHECK(closed > 0 && closed <= PEERS);
    if (closed) CHECK_EQ(s.seen.info.reason, FRISBEE_NO_MEMORY);
    for (i = 0; i < PEERS; i++) close(fds[i]);
    WAIT_FOR(s.seen.closed == PEERS);
    CHECK(echoes(other.pool, other.conn, "unharmed", 8));
    end();
}

// accept without a free descriptor: no spinning, and service within about a second once there is one.
static void promise_3_out_of_descriptors(void) {
    enum { PEERS = 5, HELD = 64 };
    struct rlimit before, low;
    struct server s;
    struct client c;
    struct sockaddr_storage to;
    socklen_t length;
    uint8_t out[32];
    size_t n = put_packet(out, 1, ECHO, 1, NULL, 0);
    uint64_t released;
    int fds[PEERS], hold[HELD], i, count = 0;
    begin();
    meet(&s, NULL, &c, NULL);
    length = parse_address(s.address, &to);
    for (i = 0; i < PEERS; i++) {
        fds[i] = socket(to.ss_family, SOCK_STREAM, 0);
        set_nonblocking(fds[i]);
    }
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = before;
    low.rlim_cur = (rlim_t)fds[PEERS - 1] + 4;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    while (count < HELD && (hold[count] = open("/dev/null", O_RDONLY)) >= 0) count++;
    CHECK(errno == EMFILE && count > 0);
    for (i = 0; i < PEERS; i++) {
        int result = connect(fds[i], (struct sockaddr *)&to, length);
        CHECK(result == 0 || errno == EINPROGRESS);
    }
    turn_for(20);
    for (i = 0; i < PEERS; i++) CHECK_EQ(raw_send(fds[i], out, n), n);
    CHECK(wakes(s.pool, 300) <= 30);
    CHECK_EQ(s.seen.opened, 1);
    CHECK(echoes(c.pool, c.conn, "unharmed", 8));
    while (count > 0) close(hold[--count]);
    setrlimit(RLIMIT_NOFILE, &before);
    released = now_ms();
    WAIT_FOR(s.seen.opened == 1 + PEERS);
    CHECK(now_ms() - released < 2000);
    for (i = 0; i < PEERS; i++) close(fds[i]);
    end();
}

// >>promise 4: nothing aborts, signals, spins or blocks where it should not; descriptors are close-on-exec

static void promise_4_descriptors_are_close_on_exec(void) {
    struct server s;
    struct client c, named, refused;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_remote *remote;
    char before[256], address[160];
    int fd, pair[2], checked = 0;
    begin();
    desc.role = FRISBEE_ACCEPTOR;
    raw_pair(pair);
    for (fd = 0; fd < 256; fd++) before[fd] = fcntl(fd, F_GETFD) >= 0 && fd != pair[0];
    meet(&s, NULL, &c, NULL);
    snprintf(address, sizeof address, "localhost%s", strrchr(s.address, ':'));
    dial(&named, c.pool, address, NULL);
    desc.user = &refused.seen;
    memset(&refused, 0, sizeof refused);
    CHECK_EQ(frisbee_adopt(c.pool, pair[0], &desc, NULL, 0, NULL), FRISBEE_OK);
    remote = frisbee_remote_retain(c.pool);
    CHECK(remote != NULL);
    for (fd = 0; fd < 256; fd++) // while it connects
        if (!before[fd] && fcntl(fd, F_GETFD) >= 0) CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    WAIT_FOR(named.seen.opened == 1 && s.seen.opened == 2);
    for (fd = 0; fd < 256; fd++) {
        if (before[fd] || fcntl(fd, F_GETFD) < 0) continue;
        CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        checked++;
    }
    CHECK(checked >= 6); // listener, four ends, the adopted one
    frisbee_remote_release(remote);
    close(pair[1]);
    end();
}

static void promise_4_no_sigpipe(void) {
    struct server s;
    struct client c, local;
    struct sigaction action;
    uint8_t out[64];
    size_t n = put_packet(out, 1, NOBODY, 1, "x", 1);
    int fd, i;
    begin();
    sigaction(SIGPIPE, NULL, &action);
    CHECK(action.sa_handler == SIG_DFL);
    serve(&s, NULL);
    for (i = 0; i < 6; i++) {
        memset(&s.seen, 0, sizeof s.seen);
        fd = raw_connect(s.address);
        CHECK_EQ(raw_send(fd, out, n), n);
        WAIT_FOR(s.seen.packets == 1);
        if (i & 1) CHECK_EQ(raw_send(fd, out, n), n); // with data unread
        raw_reset(fd);
        if (i < 4) CHECK_EQ(frisbee_send(s.pool, s.seen.conn, NOBODY, 0, out, sizeof out), FRISBEE_OK);
        if (i < 2) CHECK_EQ(frisbee_flush(s.pool), FRISBEE_OK); // writes without reading first
        WAIT_FOR(s.seen.finals == 1);
        CHECK_EQ(s.seen.closed, 1);
        CHECK(s.seen.info.reason == FRISBEE_SYSTEM && (s.seen.info.system_error == ECONNRESET || s.seen.info.system_error == EPIPE));
        CHECK_EQ(s.seen.packets >= 1 && s.seen.packets <= 2, 1);
    }
    fd = adopt(&local, NULL, FRISBEE_CONNECTOR, 1); // a local socket answers EPIPE at once
    WAIT_FOR(local.seen.opened == 1);
    close(fd);
    CHECK_EQ(frisbee_send(local.pool, local.conn, NOBODY, 0, out, sizeof out), FRISBEE_OK);
    CHECK_EQ(frisbee_flush(local.pool), FRISBEE_OK);
    WAIT_FOR(local.seen.finals == 1);
    dial(&c, NULL, s.address, NULL);
    WAIT_FOR(c.seen.opened == 1);
    CHECK(echoes(c.pool, c.conn, "alive", 5));
    sigaction(SIGPIPE, NULL, &action);
    CHECK(action.sa_handler == SIG_DFL);
    end();
}

static void promise_4_refused_unreachable_and_slow(void) {
    struct client c;
    frisbee_conn_desc desc = quiet(NULL);
    static const char *const wrong[] = {"", "nonsense", "1.2.3.4", "1.2.3.4:x", "1.2.3.4:99999", "::1:80", "[::1]", "unix:", "[::1:80"};
    char address[64];
    int listener, fds[4], i;
    size_t w;
    begin();
    listener = raw_listen(-1, address);
    dial(&c, NULL, address, NULL);
    WAIT_FOR(c.seen.finals == 1);
    CHECK_EQ(c.seen.info.reason, FRISBEE_REFUSED);
    close(listener);
    desc.connect_ms = 300;
    dial(&c, c.pool, "255.255.255.255:9", &desc); // nobody can be connected to there
    WAIT_FOR(c.seen.finals == 1);
    CHECK(c.seen.info.reason == FRISBEE_SYSTEM || c.seen.info.reason == FRISBEE_TIMED_OUT || c.seen.info.reason == FRISBEE_REFUSED);
    CHECK(c.seen.opened == 0 && (c.seen.info.reason != FRISBEE_SYSTEM || c.seen.info.system_error != 0));
    dial(&c, c.pool, "unix:/nowhere/at/all", NULL);
    WAIT_FOR(c.seen.finals == 1);
    CHECK(c.seen.info.reason == FRISBEE_REFUSED || (c.seen.info.reason == FRISBEE_SYSTEM && c.seen.info.system_error == ENOENT));
    listener = raw_listen(0, address); // a backlog that is full: the system keeps trying, connect_ms ends it
    for (i = 0; i < 4; i++) {
        struct sockaddr_storage to;
        socklen_t length = parse_address(address, &to);
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        set_nonblocking(fds[i]);
        CHECK(connect(fds[i], (struct sockaddr *)&to, length) == 0 || errno == EINPROGRESS);
    }
    sleep_ms(20);
    dial(&c, c.pool, address, &desc);
    WAIT_FOR(c.seen.finals == 1);
    CHECK_EQ(c.seen.info.reason, FRISBEE_TIMED_OUT);
    for (i = 0; i < 4; i++) close(fds[i]);
    close(listener);
    for (w = 0; w < sizeof wrong / sizeof *wrong; w++) CHECK_EQ(frisbee_connect(c.pool, wrong[w], NULL, NULL), FRISBEE_INVALID);
    CHECK_EQ(frisbee_listen(c.pool, "localhost:0", NULL, NULL), FRISBEE_INVALID); // numeric only
    CHECK_EQ(frisbee_listen(c.pool, "192.0.2.1:0", NULL, NULL), FRISBEE_SYSTEM);  // not an address of this machine
    CHECK(frisbee_system_error(c.pool) != 0);
    end();
}

// A resolve hook that keeps what it is asked.
static struct {
    int count;
    char host[4][64];
    uint64_t token[4];
} asked;

static frisbee_result ask(void *context, const char *host, uint64_t token) {
    (void)context;
    if (strcmp(host, "broken.example") == 0) return FRISBEE_SYSTEM;
    if (CHECK(asked.count < 4)) {
        snprintf(asked.host[asked.count], sizeof asked.host[0], "%s", host);
        asked.token[asked.count++] = token;
    }
    return FRISBEE_OK;
}

static void promise_4_names_by_a_hook(void) {
    static const char *const addresses[] = {"127.0.0.2", "127.0.0.1"}; // nobody listens on the first
    struct server s;
    struct client silent, found, nowhere, broken, numeric, unwanted;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_pool_desc pool_desc;
    char address[80];
    int i;
    begin();
    memset(&asked, 0, sizeof asked);
    memset(&pool_desc, 0, sizeof pool_desc);
    pool_desc.resolve = ask;
    serve_at(&s, "127.0.0.1:0", NULL, &pool_desc);
    dial(&numeric, s.pool, s.address, NULL); // numbers are not asked for
    WAIT_FOR(numeric.seen.opened == 1);
    CHECK_EQ(asked.count, 0);
    desc.connect_ms = 150;
    dial(&silent, s.pool, "silent.example:80", &desc);
    snprintf(address, sizeof address, "found.example%s", strrchr(s.address, ':'));
    dial(&found, s.pool, address, NULL);
    dial(&nowhere, s.pool, "nowhere.example:80", NULL);
    dial(&unwanted, s.pool, "unwanted.example:80", NULL);
    WAIT_FOR(asked.count == 4);
    CHECK(strcmp(asked.host[1], "found.example") == 0);
    CHECK_EQ(frisbee_close(s.pool, unwanted.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    CHECK_EQ(frisbee_resolved(s.pool, asked.token[2], NULL, 0), FRISBEE_OK);
    CHECK_EQ(frisbee_resolved(s.pool, asked.token[1], addresses, 2), FRISBEE_OK);
    CHECK_EQ(frisbee_resolved(s.pool, asked.token[1], addresses, 2), FRISBEE_CLOSED);
    WAIT_FOR(found.seen.opened == 1 && nowhere.seen.finals == 1 && unwanted.seen.finals == 1);
    CHECK_EQ(nowhere.seen.info.reason, FRISBEE_REFUSED);
    CHECK_EQ(unwanted.seen.info.reason, FRISBEE_OK);
    CHECK(echoes(s.pool, found.conn, "found", 5));
    for (i = 0; i < 10; i++) CHECK(echoes(s.pool, numeric.conn, "meanwhile", 9));
    WAIT_FOR(silent.seen.finals == 1);
    CHECK_EQ(silent.seen.info.reason, FRISBEE_TIMED_OUT);
    CHECK_EQ(frisbee_resolved(s.pool, asked.token[0], addresses, 2), FRISBEE_CLOSED);
    dial(&broken, s.pool, "broken.example:80", NULL);
    WAIT_FOR(broken.seen.finals == 1);
    CHECK_EQ(broken.seen.info.reason, FRISBEE_SYSTEM);
    CHECK_EQ(asked.count, 4);
    end();
}

// The default look-up never answers: others go on, the waiting one meets connect_ms, and destroy does not wait for the thread.
static void promise_4_a_stalled_look_up_stalls_nobody(void) {
    struct server s;
    struct client busy, stalled, waiting;
    frisbee_conn_desc desc = quiet(NULL);
    char address[80];
    int i;
    begin();
    serve(&s, NULL);
    dial(&busy, NULL, s.address, NULL);
    WAIT_FOR(busy.seen.opened == 1);
    stalling = 1;
    desc.connect_ms = 100;
    snprintf(address, sizeof address, "localhost%s", strrchr(s.address, ':'));
    dial(&stalled, busy.pool, address, &desc);
    dial(&waiting, busy.pool, address, NULL);
    for (i = 0; i < 100; i++) CHECK(echoes(busy.pool, busy.conn, "meanwhile", 9));
    WAIT_FOR(stalled.seen.finals == 1);
    CHECK_EQ(stalled.seen.info.reason, FRISBEE_TIMED_OUT);
    CHECK(wakes(busy.pool, 60) <= 10);
    CHECK_EQ(waiting.seen.opened + waiting.seen.closed, 0);
    stalling = 0;
    WAIT_FOR(waiting.seen.opened == 1);
    stalling = 1;
    dial(&stalled, busy.pool, address, NULL);
    turns(3);
    drop_pool(busy.pool);
    CHECK_EQ(stalled.seen.finals, 1);
    CHECK_EQ(stalled.seen.info.reason, FRISBEE_DESTROYED);
    stalling = 0;
    end(); // waits until the thread has let go
}

// Half-close, close and reset by the peer, in every state: the loop sleeps, and the connection still ends in one on_close.
static void promise_4_no_spin_at_the_peers_end(void) {
    enum { UNKNOWN_WIRE, IDLE, PAUSED, BLOCKED, OWED, FINISHED, STATES };
    enum { HALF_CLOSE, CLOSE, RESET, ENDS };
    static uint8_t data[MEBIBYTE];
    int state, how, with_end;
    for (state = 0; state < STATES; state++)
        for (how = 0; how < ENDS; how++)
            for (with_end = 0; with_end < 2; with_end++) {
                struct server s;
                frisbee_conn_desc desc = quiet(NULL);
                uint8_t out[64];
                size_t n = put_packet(out, 1, state == OWED ? LATER : ECHO, 1, "x", 1);
                long woken;
                int fd;
                begin();
                if (with_end) desc.events = &record_events_and_end;
                serve(&s, &desc);
                fd = raw_connect(s.address);
                if (state == UNKNOWN_WIRE) n = 1;
                CHECK_EQ(raw_send(fd, out, n), n);
                if (state == UNKNOWN_WIRE) WAIT_FOR(conns_of(s.pool) == 1);
                else WAIT_FOR(s.seen.opened == 1);
                turns(3);
                if (state == PAUSED) CHECK_EQ(frisbee_pause(s.pool, s.seen.conn, true), FRISBEE_OK);
                if (state == BLOCKED)
                    while (frisbee_send(s.pool, s.seen.conn, NOBODY, 0, data, sizeof data) == FRISBEE_OK) turn(0);
                if (state == FINISHED) CHECK_EQ(frisbee_finish(s.pool, s.seen.conn), FRISBEE_OK);
                turns(3);
                if (how == HALF_CLOSE) shutdown(fd, SHUT_WR);
                else if (how == CLOSE) close(fd);
                else raw_reset(fd);
                woken = wakes(s.pool, 50);
                if (!CHECK(woken <= 12)) fprintf(stderr, "    %ld wake-ups in state %d, end %d, on_end %d\n", woken, state, how, with_end);
                CHECK(s.seen.closed <= 1);
                if (!s.seen.closed && state == PAUSED) CHECK_EQ(frisbee_pause(s.pool, s.seen.conn, false), FRISBEE_OK);
                turn_for(20);
                woken = wakes(s.pool, 20);
                if (!CHECK(woken <= 12)) fprintf(stderr, "    %ld wake-ups in state %d, end %d, on_end %d, later\n", woken, state, how, with_end);
                if (state != UNKNOWN_WIRE && with_end && how == HALF_CLOSE) CHECK_EQ(s.seen.ended, 1);
                CHECK(s.seen.ended <= with_end);
                if (state == BLOCKED && how == HALF_CLOSE && !with_end) { // what is queued still arrives
                    struct raw_packet packet;
                    CHECK(raw_packet(fd, 1, &packet, out, sizeof out) && packet.operation == ECHO);
                    CHECK(raw_packet(fd, 1, &packet, data, sizeof data) && packet.length == sizeof data);
                }
                if (!s.seen.closed) frisbee_close(s.pool, s.seen.conn, FRISBEE_CLOSE_NOW);
                if (state == OWED && how == HALF_CLOSE && !with_end) CHECK_EQ(s.seen.closed, 0);
                if (state == UNKNOWN_WIRE || how != HALF_CLOSE || !with_end) WAIT_FOR(s.seen.closed == 1);
                if (how == HALF_CLOSE) close(fd);
                later_count = 0;
                drop_pool(s.pool);
                CHECK(s.seen.closed == 1 && s.seen.finals == 1);
                end();
            }
}

static void promise_4_an_idle_pool_sleeps(void) {
    struct server s;
    struct client c;
    long before;
    begin();
    meet(&s, NULL, &c, NULL);
    turn_for(10);
    CHECK_EQ(frisbee_next_timeout(s.pool), FRISBEE_NEVER);
    before = waits;
    CHECK(wakes(s.pool, 200) <= 2);
    CHECK(waits - before <= 2);
    end();
}

// A poll that may wait for ever returns when it has called back, however that came about.
static int task_ran;
static void note_task(frisbee_task *task, frisbee_pool *pool) {
    (void)task;
    (void)pool;
    task_ran++;
}

static void promise_4_poll_returns_after_a_callback(void) {
    struct server s;
    struct client c, idle;
    struct reply reply;
    frisbee_call_id id;
    frisbee_remote *remote;
    frisbee_task task;
    frisbee_span span;
    uint64_t start = now_ms();
    int released = 0;
    begin();
    meet(&s, NULL, &c, NULL);
    dial(&idle, c.pool, s.address, NULL);
    WAIT_FOR(idle.seen.opened == 1);
    turn_for(10);
    CHECK_EQ(call(c.pool, c.conn, SWALLOW, NULL, 0, FRISBEE_NEVER, &reply, &id), FRISBEE_OK);
    turns(10);
    CHECK_EQ(frisbee_cancel(c.pool, id), FRISBEE_OK);
    while (!reply.count && now_ms() - start < WAIT_MS) CHECK_EQ(frisbee_poll(c.pool, WAIT_MS), FRISBEE_OK);
    span.data = "lent";
    span.length = 4;
    CHECK_EQ(frisbee_send_spans(c.pool, c.conn, NOBODY, 0, &span, 1, count_release, &released), FRISBEE_OK);
    while (!released && now_ms() - start < WAIT_MS) CHECK_EQ(frisbee_poll(c.pool, WAIT_MS), FRISBEE_OK);
    remote = frisbee_remote_retain(c.pool);
    memset(&task, 0, sizeof task);
    task.run = note_task;
    task_ran = 0;
    CHECK_EQ(frisbee_remote_post(remote, &task), FRISBEE_OK);
    while (!task_ran && now_ms() - start < WAIT_MS) CHECK_EQ(frisbee_poll(c.pool, WAIT_MS), FRISBEE_OK);
    CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    while (!c.seen.finals && now_ms() - start < WAIT_MS) CHECK_EQ(frisbee_poll(c.pool, WAIT_MS), FRISBEE_OK);
    turns(10);
    frisbee_remote_stop(remote);
    CHECK_EQ(frisbee_run(c.pool), FRISBEE_OK);
    CHECK_EQ(frisbee_shutdown(c.pool, WAIT_MS), FRISBEE_OK);
    CHECK_EQ(frisbee_run(c.pool), FRISBEE_OK);
    CHECK(now_ms() - start < WAIT_MS / 2); // none of them waited for its timeout
    CHECK(reply.count == 1 && released == 1 && task_ran == 1 && c.seen.finals == 1);
    frisbee_remote_release(remote);
    end();
}

// A foreign loop: nothing but the descriptor and the timeout drive the pools.
static void promise_4_foreign_loop(void) {
    struct server s;
    struct client c;
    struct reply reply;
    struct pollfd fds[2];
    int i, rounds = 0, done = 0;
    begin();
    meet(&s, NULL, &c, NULL);
    turn_for(10);
    fds[0].fd = (int)frisbee_wait_fd(s.pool);
    fds[1].fd = (int)frisbee_wait_fd(c.pool);
    fds[0].events = fds[1].events = POLLIN;
#if FRISBEE_POLLER != FRISBEE_POLLER_EPOLL
    CHECK(frisbee_wait_fd(s.pool) == FRISBEE_NO_SOCKET);
    (void)reply, (void)i, (void)rounds, (void)done;
#else
    CHECK_EQ(poll(fds, 2, 0), 0); // idle
    CHECK_EQ(frisbee_next_timeout(c.pool), FRISBEE_NEVER);
    for (i = 0; i < 50; i++) {
        uint64_t deadline = now_ms() + WAIT_MS;
        bool lost = i % 10 == 9; // now and then a time-out
        CHECK_EQ(call(c.pool, c.conn, lost ? SWALLOW : ECHO, "x", 1, lost ? 20 : 5000, &reply, NULL), FRISBEE_OK);
        CHECK_EQ(frisbee_next_timeout(c.pool), 0); // something waits to be written
        while (!reply.count && now_ms() < deadline) {
            int32_t wait_s = frisbee_next_timeout(s.pool), wait_c = frisbee_next_timeout(c.pool), wait = wait_s;
            if (wait < 0 || (wait_c >= 0 && wait_c < wait)) wait = wait_c;
            CHECK(wait_c >= 0 && wait_c <= 5002); // a call is in flight; times are rounded up
            poll(fds, 2, wait < 0 ? 1000 : wait);
            CHECK_EQ(frisbee_poll(s.pool, 0), FRISBEE_OK);
            CHECK_EQ(frisbee_poll(c.pool, 0), FRISBEE_OK);
            rounds++;
        }
        done += reply.count == 1 && reply.result == (lost ? FRISBEE_TIMED_OUT : FRISBEE_OK);
    }
    CHECK_EQ(done, 50);
    CHECK(rounds <= 50 * 10); // no spinning
#endif
    end();
}

static void promise_4_a_forked_child_disturbs_nobody(void) {
    struct server s;
    struct client c;
    char address[128];
    struct stat status;
    pid_t child;
    int code = 0, fd;
    begin();
    snprintf(address, sizeof address, "unix:%s", scratch_path("fork"));
    serve_at(&s, address, NULL, NULL);
    dial(&c, NULL, s.address, NULL);
    WAIT_FOR(c.seen.opened == 1 && s.seen.opened == 1);
    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 1, "once", 4), FRISBEE_OK); // queued twice now: in the child too
    child = fork();
    if (child == 0) {
        frisbee_pool_destroy(s.pool);
        frisbee_pool_destroy(c.pool);
        _exit(s.seen.closed == 1 && c.seen.closed == 1 ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &code, 0) == child);
    CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    WAIT_FOR(s.seen.packets == 1);
    turn_for(50);
    CHECK(s.seen.packets == 1 && s.seen.closed == 0 && c.seen.closed == 0);
    CHECK(echoes(c.pool, c.conn, "still here", 10));
    CHECK(stat(address + 5, &status) == 0);
    fd = raw_connect(s.address);
    CHECK(raw_echo(fd, 0, 1, "new", 3));
    close(fd);
    end();
    CHECK(stat(address + 5, &status) != 0);
}

static void promise_4_shutdown(void) {
    struct server s;
    struct client c, late;
    struct reply owed, refused;
    uint64_t start;
    int i;
    begin(); // everything that is owed is done first
    meet(&s, NULL, &c, NULL);
    CHECK_EQ(call(c.pool, c.conn, LATER, "?", 1, 0, &owed, NULL), FRISBEE_OK);
    WAIT_FOR(later_count == 1);
    CHECK_EQ(frisbee_shutdown(s.pool, 5000), FRISBEE_OK);
    dial(&late, c.pool, s.address, NULL);
    WAIT_FOR(late.seen.finals == 1);
    CHECK_EQ(late.seen.info.reason, FRISBEE_REFUSED);
    CHECK_EQ(call(s.pool, s.seen.conn, ECHO, NULL, 0, 0, &refused, NULL), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_listen(s.pool, "127.0.0.1:0", NULL, NULL), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_connect(s.pool, s.address, NULL, NULL), FRISBEE_CLOSED);
    turn_for(30);
    CHECK_EQ(s.seen.closed, 0);
    CHECK_EQ(answer_later(s.pool, "paid", 4), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1 && s.seen.finals == 1);
    CHECK(owed.count == 1 && owed.result == FRISBEE_OK);
    CHECK_EQ(s.seen.info.reason, FRISBEE_OK);
    CHECK_EQ(frisbee_poll(s.pool, 0), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_run(s.pool), FRISBEE_OK);
    end();

    begin(); // what is never done is cut at the deadline
    meet(&s, NULL, &c, NULL);
    CHECK_EQ(call(c.pool, c.conn, SWALLOW, "?", 1, FRISBEE_NEVER, &owed, NULL), FRISBEE_OK);
    turns(10);
    start = now_ms();
    CHECK_EQ(frisbee_shutdown(c.pool, 100), FRISBEE_OK);
    for (i = 0; i < 1000 && frisbee_poll(c.pool, 50) != FRISBEE_CLOSED; i++) frisbee_poll(s.pool, 0);
    CHECK(i < 100);
    CHECK(now_ms() - start >= 95);
    CHECK(owed.count == 1 && owed.result == FRISBEE_UNKNOWN);
    CHECK_EQ(c.seen.finals, 1);
    WAIT_FOR(s.seen.finals == 1);
    end();
}

// >>promise 6: hostile input costs its sender the connection and nobody else anything

// Sends bytes as a fresh peer and waits for the end; answers why the server closed.
static frisbee_result fate_of(struct server *s, const void *data, size_t length) {
    int closed = s->seen.closed, fd = raw_connect(s->address);
    enum raw_end ended;
    CHECK_EQ(raw_send(fd, data, length), length);
    ended = raw_ended(fd);
    CHECK(ended == RAW_FIN || ended == RAW_RESET); // and nothing was said to it
    WAIT_FOR(s->seen.closed == closed + 1);
    close(fd);
    return s->seen.info.reason;
}

static void promise_6_greetings_of_others(void) {
    static const char *const greetings[] = {
        "\x16\x03\x01\x02",       "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.0\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n", "EHLO example.com\r\n",             "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
    struct server s;
    struct client other;
    size_t i;
    begin();
    serve(&s, NULL);
    dial(&other, NULL, s.address, NULL);
    WAIT_FOR(other.seen.opened == 1);
    for (i = 0; i < sizeof greetings / sizeof *greetings; i++) {
        frisbee_result reason = fate_of(&s, greetings[i], strlen(greetings[i]));
        CHECK(reason == FRISBEE_MALFORMED || reason == FRISBEE_TOO_LARGE);
    }
    CHECK(fate_of(&s, "\x00\x0f\x00\x0a\xff\xff\xff\xff", 8) == FRISBEE_MALFORMED); // senseless in both wires
    CHECK(echoes(other.pool, other.conn, "unharmed", 8));
    end();
}

static void promise_6_wrong_packets(void) {
    static uint8_t data[FRISBEE_PACKET_MAX + 16];
    struct server s;
    struct client other;
    frisbee_conn_desc desc = quiet(NULL);
    uint8_t out[64];
    size_t n;
    int wire, fd;
    begin();
    serve(&s, NULL);
    dial(&other, NULL, s.address, NULL);
    WAIT_FOR(other.seen.opened == 1);
    n = put_packet(out, 1, NOBODY, 1, "fine", 4);
    memcpy(out + n, "\x00\x10\x00\x01\x00\x0a\x00\x00\x00\x00", 10); // a wrong magic behind it
    CHECK_EQ(fate_of(&s, out, n + 10), FRISBEE_MALFORMED);
    CHECK_EQ(s.seen.packets, 1);
    for (wire = 0; wire <= 1; wire++) {
        n = put_packet(out, wire, NOBODY, 1, "fine", 4);
        n += put_claim(out + n, wire, NOBODY, 2, FRISBEE_PACKET_MAX + 1, NULL, 0);
        CHECK_EQ(fate_of(&s, out, n), FRISBEE_TOO_LARGE);
        n = put_packet(out, wire, NOBODY, 1, "fine", 4);
        n += put_claim(out + n, wire, 0, 0, 0xFFFFFFFFu, NULL, 0); // also on a PING
        CHECK_EQ(fate_of(&s, out, n), FRISBEE_TOO_LARGE);
    }
    fd = raw_connect(s.address); // the limit itself is allowed
    n = put_packet(data, 0, NOBODY, 1, "fine", 4);
    s.seen.packets = 0;
    n += put_claim(data + n, 0, NOBODY, 2, FRISBEE_PACKET_MAX, NULL, 0);
    CHECK_EQ(raw_send(fd, data, n), n);
    CHECK_EQ(raw_send(fd, data, FRISBEE_PACKET_MAX), FRISBEE_PACKET_MAX);
    WAIT_FOR(s.seen.packets == 2);
    CHECK(raw_echo(fd, 0, 3, "next", 4));
    close(fd);
    CHECK(echoes(other.pool, other.conn, "unharmed", 8));
    end();

    begin(); // a lower limit, in both directions
    desc.max_packet = 100;
    serve(&s, &desc);
    fd = raw_connect(s.address);
    CHECK(raw_echo(fd, 1, 1, data, 100));
    CHECK_EQ(frisbee_send(s.pool, s.seen.conn, NOBODY, 1, data, 101), FRISBEE_TOO_LARGE);
    n = put_packet(out, 1, ECHO, 1, NULL, 0);
    n += put_claim(out + n, 1, ECHO, 2, 101, NULL, 0);
    close(fd);
    WAIT_FOR(s.seen.closed == 1);
    fd = raw_connect(s.address);
    CHECK_EQ(raw_send(fd, out, n), n);
    WAIT_FOR(s.seen.closed == 2);
    CHECK_EQ(s.seen.info.reason, FRISBEE_TOO_LARGE);
    close(fd);
    end();
}

// A byte now and then does not help: a packet has a deadline as a whole, also the very first. Silence before the first byte is allowed.
static void promise_6_trickled_packets(void) {
    struct server s;
    frisbee_conn_desc desc = quiet(NULL);
    uint8_t out[64];
    int place, fd, silent;
    begin();
    desc.packet_ms = 120;
    serve(&s, &desc);
    silent = raw_connect(s.address);
    for (place = 0; place < 3; place++) { // within the first 8 bytes, within a header, within a payload
        int closed = s.seen.closed, i;
        size_t n = 0, more = 0;
        uint64_t start = now_ms();
        if (place) n = put_packet(out, 1, NOBODY, 1, NULL, 0);
        if (place == 2) more = put_claim(out + n, 1, NOBODY, 2, 40, NULL, 0);
        memset(out + n + more, 0, 10);
        if (place < 2) put_claim(out + n, 1, NOBODY, 2, 40, NULL, 0);
        fd = raw_connect(s.address);
        CHECK_EQ(raw_send(fd, out, n + more), n + more);
        n += more;
        for (i = 0; i < 7 && s.seen.closed == closed; i++) { // 7 bytes in 7 * 30 ms
            CHECK(send(fd, out + n + (size_t)i, 1, MSG_NOSIGNAL) == 1);
            turn_for(30);
        }
        CHECK_EQ(s.seen.closed, closed + 1);
        CHECK_EQ(s.seen.info.reason, FRISBEE_TIMED_OUT);
        CHECK(now_ms() - start >= 119);
        close(fd);
    }
    CHECK_EQ(conns_of(s.pool), 1);
    CHECK(raw_echo(silent, 1, 1, "at last", 7));
    close(silent);
    end();
}

static void promise_6_silent_peers(void) {
    struct server s;
    struct client c, mute;
    frisbee_conn_desc desc = quiet(NULL);
    struct raw_packet packet;
    frisbee_stats stats, before;
    uint8_t out[64], in[64];
    size_t n;
    uint64_t start, last;
    int fd, pings = 0;
    begin();
    desc.heartbeat_ms = 40;
    desc.heartbeat_timeout_ms = 200;
    serve(&s, &desc);
    fd = raw_connect(s.address);
    n = put_packet(out, 1, NOBODY, 1, NULL, 0);
    CHECK_EQ(raw_send(fd, out, n), n);
    WAIT_FOR(s.seen.opened == 1);
    for (start = now_ms(); now_ms() - start < 500;) { // each PING is answered: it stays alive beyond the timeout, and the round trip is known
        if (!CHECK(raw_packet(fd, 1, &packet, in, sizeof in) && packet.operation == 0 && packet.length == 0)) break;
        n = put_packet(out, 1, 1, 0, NULL, 0);
        CHECK_EQ(raw_send(fd, out, n), n);
        pings++;
    }
    last = now_ms();
    CHECK(pings >= 3 && pings <= 14);
    turns(3);
    CHECK_EQ(frisbee_conn_stats(s.pool, s.seen.conn, &stats), FRISBEE_OK);
    CHECK(stats.rtt_us > 0 && stats.rtt_us < 5000000);
    CHECK_EQ(s.seen.closed, 0);
    pings = 0; // now it falls silent
    while (raw_packet(fd, 1, &packet, in, sizeof in)) pings += packet.operation == 0;
    WAIT_FOR(s.seen.finals == 1);
    CHECK_EQ(s.seen.info.reason, FRISBEE_TIMED_OUT);
    CHECK(now_ms() - last >= 150);
    CHECK(pings >= 2 && pings <= 8);
    close(fd);
    end();

    begin(); // two silent library ends keep each other alive; without heartbeats nobody speaks, and a PING is answered all the same
    meet(&s, &desc, &c, &desc);
    turn_for(400);
    CHECK_EQ(s.seen.closed + c.seen.closed, 0);
    CHECK_EQ(frisbee_conn_stats(c.pool, c.conn, &stats), FRISBEE_OK);
    CHECK(stats.rtt_us > 0);
    dial(&mute, c.pool, s.address, NULL);
    turn_for(10);
    CHECK_EQ(frisbee_conn_stats(c.pool, mute.conn, &before), FRISBEE_OK);
    turn_for(400);
    CHECK_EQ(frisbee_conn_stats(c.pool, mute.conn, &stats), FRISBEE_OK);
    CHECK(stats.bytes_out > before.bytes_out); // its PONGs
    CHECK_EQ(s.seen.closed + c.seen.closed + mute.seen.closed, 0);
    end();
}

static void promise_6_a_flood_of_pings(void) {
    enum { PINGS = 200000 };
    uint8_t *out = (uint8_t *)malloc((size_t)PINGS * 8);
    struct server s;
    size_t i, n = 0, sent = 0, most = 0, pongs = 0;
    int fd, stuck = 0;
    begin();
    serve(&s, NULL);
    for (i = 0; i < PINGS; i++) n += put_packet(out + n, 0, 0, 0, NULL, 0);
    fd = raw_connect(s.address);
    while (sent < n && stuck < 1000) { // it never reads
        ssize_t wrote = send(fd, out + sent, n - sent, MSG_NOSIGNAL);
        if (wrote > 0) sent += (size_t)wrote, stuck = 0;
        else stuck++;
        turn(0);
        if (frisbee_queued(s.pool, s.seen.conn) > most) most = frisbee_queued(s.pool, s.seen.conn);
    }
    CHECK_EQ(sent, n);
    CHECK(most <= 16); // one PONG, whatever comes
    turns(10);
    for (;;) {
        size_t got = raw_ready(fd, out, n);
        if (!got) break;
        pongs += got;
    }
    CHECK(pongs % 8 == 0 && pongs > 0 && pongs < n / 8);
    CHECK(raw_echo(fd, 0, 1, "fine", 4));
    close(fd);
    end();
    free(out);
}

static void promise_6_peers_that_do_not_read_or_speak(void) {
    static uint8_t data[MEBIBYTE];
    struct client c;
    struct server s;
    frisbee_conn_desc desc = quiet(NULL);
    int fd, i;
    begin();
    desc.write_ms = 100; // without progress while output waits
    fd = adopt(&c, &desc, FRISBEE_CONNECTOR, 1);
    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 0, data, 300000), FRISBEE_OK);
    for (i = 0; i < 10; i++) { // a slow reader makes progress
        turn_for(30);
        CHECK(raw_ready(fd, data, 20000) > 0);
    }
    CHECK_EQ(c.seen.closed, 0);
    WAIT_FOR(c.seen.finals == 1);
    CHECK_EQ(c.seen.info.reason, FRISBEE_TIMED_OUT);
    close(fd);
    end();

    begin();
    desc = quiet(NULL);
    desc.idle_ms = 100; // heartbeats are no use
    desc.heartbeat_ms = 20;
    serve(&s, &desc);
    dial(&c, NULL, s.address, NULL);
    WAIT_FOR(s.seen.opened == 1 && c.seen.opened == 1);
    for (i = 0; i < 8; i++) {
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 0, NULL, 0), FRISBEE_OK);
        turn_for(30);
    }
    CHECK_EQ(s.seen.closed, 0);
    WAIT_FOR(s.seen.finals == 1);
    CHECK_EQ(s.seen.info.reason, FRISBEE_TIMED_OUT);
    end();
}

// Closing with unread input: the system would answer it with RST, which eats what is on its way. 20 of 20 replies must arrive whole.
static uint8_t large[MEBIBYTE];

static void route_reply_and_close(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    CHECK_EQ(frisbee_reply(pool, &packet->from, large, sizeof large), FRISBEE_OK);
    CHECK_EQ(frisbee_close(pool, packet->from.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
}

static void promise_7_close_with_unread_input(void) {
    static const frisbee_route routes[] = {{ECHO, route_reply_and_close, NULL}};
    static uint8_t in[MEBIBYTE], junk[256 * 1024];
    struct server s;
    struct raw_packet packet;
    frisbee_conn_desc desc = quiet(NULL);
    int round, whole = 0;
    begin();
    desc.routes = routes;
    desc.route_count = 1;
    fill(large, sizeof large, 6);
    serve(&s, &desc);
    for (round = 0; round < 20; round++) {
        int fd = raw_connect(s.address);
        size_t n = put_packet(junk, 1, ECHO, 1, "?", 1), sent = 0;
        ssize_t wrote;
        memset(junk + n, 0, sizeof junk - n);
        memset(in, 0, sizeof in);
        while (sent < sizeof junk && (wrote = send(fd, junk + sent, sizeof junk - sent, MSG_NOSIGNAL)) > 0) sent += (size_t)wrote;
        turns(round % 5);
        whole += raw_packet(fd, 1, &packet, in, sizeof in) && packet.length == sizeof in && memcmp(in, large, sizeof in) == 0 &&
                 raw_ended(fd) == RAW_FIN;
        close(fd);
        WAIT_FOR(s.seen.finals == round + 1);
        CHECK_EQ(s.seen.info.reason, FRISBEE_OK);
    }
    CHECK_EQ(whole, 20);
    CHECK_EQ(s.seen.packets, 0); // no handler is called after close
    end();
}

static void promise_7_close_now_and_close_after_flush(void) {
    static uint8_t in[2 * MEBIBYTE];
    int now;
    for (now = 0; now < 2; now++) {
        struct client c;
        size_t got;
        int fd;
        begin();
        fd = adopt(&c, NULL, FRISBEE_CONNECTOR, 1);
        WAIT_FOR(c.seen.opened == 1);
        turns(3);
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 1, large, sizeof large), FRISBEE_OK);
        CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
        CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK); // idempotent
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 2, "x", 1), FRISBEE_CLOSED);
        turn_for(20);
        CHECK_EQ(c.seen.closed, 0);
        if (now) { // overtakes
            CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
            WAIT_FOR(c.seen.finals == 1);
        }
        got = raw_receive(fd, in, sizeof in);
        if (now) CHECK(got < sizeof large);
        else CHECK_EQ(got, 10u + 10u + sizeof large); // the PING of the connector, and the packet
        close(fd);
        WAIT_FOR(c.seen.finals == 1);
        CHECK_EQ(c.seen.info.reason, FRISBEE_OK);
        end();
    }
}

// >>promise 7: hijack loses no byte

struct taken { // what a hijack handed over
    int count, fd;
    frisbee_result result;
    size_t unread_length, unsent_length;
    uint8_t unread[4096], *unsent;
    const char *greeting; // written at once, from inside on_hijacked
    int seen_closed;      // on_close came before: wrong
    struct record *record;
};

static void take(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    struct taken *t = (struct taken *)user;
    (void)pool;
    (void)conn;
    t->count++;
    t->result = hijacked->result;
    t->fd = (int)hijacked->socket;
    if (t->record) t->seen_closed = t->record->closed;
    CHECK((hijacked->result == FRISBEE_OK) == (hijacked->socket != FRISBEE_NO_SOCKET));
    CHECK(hijacked->io.close == NULL);
    if (!CHECK(hijacked->unread.length <= sizeof t->unread)) return;
    if ((t->unread_length = hijacked->unread.length) > 0) memcpy(t->unread, hijacked->unread.data, t->unread_length);
    if ((t->unsent_length = hijacked->unsent.length) > 0) {
        t->unsent = (uint8_t *)malloc(t->unsent_length);
        if (t->unsent) memcpy(t->unsent, hijacked->unsent.data, t->unsent_length);
    }
    if (hijacked->result != FRISBEE_OK) return;
    CHECK(fcntl(t->fd, F_GETFL) & O_NONBLOCK);
    if (t->greeting) CHECK_EQ(send(t->fd, t->greeting, strlen(t->greeting), MSG_NOSIGNAL), strlen(t->greeting));
}

static int has_raw(const struct taken *t, const void *expected, size_t length) { // unread, then the socket, are exactly these bytes
    uint8_t got[8192];
    size_t n = t->unread_length;
    if (n > length || length > sizeof got) return 0;
    memcpy(got, t->unread, n);
    n += raw_receive(t->fd, got + n, length - n);
    return n == length && memcmp(got, expected, length) == 0 && raw_ready(t->fd, got, 1) == 0;
}

// Megabytes of raw bytes both ways at once, over two descriptors of this process.
static int raw_megabytes(int a, int b) {
    enum { SIZE = 3 * MEBIBYTE };
    static uint8_t data[2][SIZE], in[SIZE];
    int fds[2], i, right = 1;
    size_t sent[2] = {0, 0}, got[2] = {0, 0};
    uint64_t hash[2] = {0, 0}, deadline = now_ms() + WAIT_MS;
    fds[0] = a, fds[1] = b;
    for (i = 0; i < 2; i++) fill(data[i], SIZE, (uint32_t)i + 40);
    while ((got[0] < SIZE || got[1] < SIZE) && now_ms() < deadline)
        for (i = 0; i < 2; i++) {
            ssize_t n = send(fds[i], data[i] + sent[i], SIZE - sent[i], MSG_NOSIGNAL);
            if (n > 0) sent[i] += (size_t)n;
            n = recv(fds[i], in, sizeof in, 0);
            if (n <= 0) continue;
            hash[i] = hash_more(hash[i], in, (size_t)n);
            got[i] += (size_t)n;
        }
    for (i = 0; i < 2; i++) right = right && got[i] == SIZE && hash[i] == hash_more(0, data[!i], SIZE);
    return right;
}

static void promise_7_hijack_fenced_at_every_timing(void) {
    int first, before, after, megabytes = 0;
    for (first = 0; first < 2; first++)
        for (before = 0; before < 4; before++)
            for (after = 0; after < 4; after++) {
                struct server s;
                struct client c;
                struct taken taken[2];
                struct reply cut;
                frisbee_conn_desc desc = quiet(NULL);
                frisbee_pool *pools[2];
                frisbee_conn conns[2];
                int i;
                begin();
                desc.heartbeat_ms = 1; // PINGs must not get among the raw bytes
                meet(&s, &desc, &c, &desc);
                memset(taken, 0, sizeof taken);
                taken[0].greeting = "raw from the client";
                taken[1].greeting = "and raw from the server";
                taken[0].record = &c.seen;
                taken[1].record = &s.seen;
                pools[0] = c.pool, pools[1] = s.pool;
                conns[0] = c.conn, conns[1] = s.seen.conn;
                CHECK_EQ(call(c.pool, c.conn, SWALLOW, NULL, 0, FRISBEE_NEVER, &cut, NULL), FRISBEE_OK);
                for (i = 0; i < 3; i++) {
                    CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, (uint16_t)i, "to the server", 13), FRISBEE_OK);
                    CHECK_EQ(frisbee_send(s.pool, s.seen.conn, NOBODY, (uint16_t)i, "to the client", 13), FRISBEE_OK);
                }
                for (i = 0; i < 2; i++) {
                    int who = i ^ first, k;
                    CHECK_EQ(frisbee_hijack(pools[who], conns[who], FRISBEE_HIJACK_FENCED, 0, take, &taken[who]), FRISBEE_OK);
                    CHECK_EQ(frisbee_hijack(pools[who], conns[who], FRISBEE_HIJACK_FENCED, 0, take, &taken[who]), FRISBEE_BUSY);
                    CHECK_EQ(frisbee_send(pools[who], conns[who], NOBODY, 9, NULL, 0), FRISBEE_HIJACKED);
                    for (k = 0; k < (i ? after : before); k++) frisbee_poll(pools[who], 0);
                    if (before & 1) frisbee_poll(pools[!who], 0);
                    if (after == 3) turn_for(3);
                }
                WAIT_FOR(c.seen.finals == 1 && s.seen.finals == 1);
                CHECK(s.seen.packets == 3 && c.seen.packets == 3); // packets before the fence are still delivered
                CHECK(cut.count == 1 && cut.result == FRISBEE_UNKNOWN);
                for (i = 0; i < 2; i++) {
                    CHECK(taken[i].count == 1 && taken[i].result == FRISBEE_OK && !taken[i].seen_closed && taken[i].unsent_length == 0);
                    CHECK(has_raw(&taken[i], taken[!i].greeting, strlen(taken[!i].greeting)));
                }
                CHECK(s.seen.info.reason == FRISBEE_HIJACKED && c.seen.info.reason == FRISBEE_HIJACKED);
                if (!megabytes++) CHECK(raw_megabytes(taken[0].fd, taken[1].fd));
                close(taken[0].fd);
                close(taken[1].fd);
                end();
            }
}

// The peer is played by hand: its last packets, its fence and raw bytes come cut in two at every byte, before or after our own hijack.
static void promise_7_hijack_fenced_cut_at_every_byte(void) {
    static const char raw[] = "\x00\x0f\xff\x00raw, and like a packet"; // 26 bytes and no terminator
    int late, wire;
    for (wire = 0; wire < 2; wire++)
        for (late = 0; late < 2; late++) {
            uint8_t out[128], in[128];
            size_t n = put_packet(out, wire, NOBODY, 1, "last", 4), cut, raw_length = sizeof raw - 1;
            n += put_packet(out + n, wire, 0, 0, NULL, 0);
            n += put_packet(out + n, wire, 0xFF00, 0, NULL, 0);
            memcpy(out + n, raw, raw_length);
            n += raw_length;
            for (cut = 0; cut <= n; cut++) {
                struct client c;
                struct taken taken;
                struct raw_packet packet;
                frisbee_conn_desc desc = quiet(NULL);
                int fd;
                begin();
                memset(&taken, 0, sizeof taken);
                desc.wire = wire ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
                fd = adopt(&c, &desc, FRISBEE_CONNECTOR, 0);
                WAIT_FOR(c.seen.opened == 1);
                if (!late) CHECK_EQ(frisbee_hijack(c.pool, c.conn, FRISBEE_HIJACK_FENCED, 0, take, &taken), FRISBEE_OK);
                CHECK_EQ(raw_send(fd, out, cut), cut);
                turns(3);
                if (late) CHECK_EQ(frisbee_hijack(c.pool, c.conn, FRISBEE_HIJACK_FENCED, 0, take, &taken), FRISBEE_OK);
                CHECK_EQ(raw_send(fd, out + cut, n - cut), n - cut);
                WAIT_FOR(taken.count == 1);
                CHECK(taken.result == FRISBEE_OK && c.seen.packets == 1);
                CHECK(has_raw(&taken, raw, raw_length));
                do {
                    if (!CHECK(raw_packet(fd, wire, &packet, in, sizeof in))) break;
                } while (packet.operation <= 1); // its PING, perhaps a PONG, then its fence, then nothing
                CHECK_EQ(packet.operation, 0xFF00);
                CHECK_EQ(raw_ready(fd, in, sizeof in), 0);
                close(taken.fd);
                close(fd);
                end();
            }
        }
}

static void promise_7_hijack_that_fails(void) {
    struct client c;
    struct server s;
    struct taken taken;
    frisbee_conn_desc desc = quiet(NULL);
    uint8_t out[32];
    size_t n = put_packet(out, 1, 0xFF00, 0, NULL, 0);
    int fd, how;
    for (how = 0; how < 2; how++) { // nobody answers
        begin();
        memset(&taken, 0, sizeof taken);
        fd = adopt(&c, NULL, FRISBEE_CONNECTOR, 0);
        CHECK_EQ(frisbee_hijack(c.pool, c.conn, (frisbee_hijack_how)how, 60, take, &taken), FRISBEE_NOT_SENT); // not open yet
        WAIT_FOR(c.seen.opened == 1);
        CHECK_EQ(frisbee_hijack(c.pool, c.conn, (frisbee_hijack_how)how, 60, take, &taken), FRISBEE_OK);
        WAIT_FOR(c.seen.finals == 1);
        CHECK(taken.count == 1 && taken.result == FRISBEE_TIMED_OUT && c.seen.info.reason == FRISBEE_TIMED_OUT);
        close(fd);
        end();
    }
    begin(); // the peer's fence is not answered
    desc.packet_ms = 60;
    fd = adopt(&c, &desc, FRISBEE_CONNECTOR, 0);
    WAIT_FOR(c.seen.opened == 1);
    CHECK_EQ(raw_send(fd, out, n), n);
    WAIT_FOR(c.seen.finals == 1);
    CHECK_EQ(c.seen.info.reason, FRISBEE_TIMED_OUT);
    close(fd);
    end();
    begin(); // the peer goes away meanwhile
    memset(&taken, 0, sizeof taken);
    meet(&s, NULL, &c, NULL);
    CHECK_EQ(frisbee_hijack(c.pool, c.conn, FRISBEE_HIJACK_FENCED, 0, take, &taken), FRISBEE_OK);
    CHECK_EQ(frisbee_close(s.pool, s.seen.conn, FRISBEE_CLOSE_NOW), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1);
    CHECK(taken.count == 1 && taken.result != FRISBEE_OK && c.seen.info.reason != FRISBEE_HIJACKED);
    CHECK_EQ(frisbee_hijack(c.pool, c.conn, FRISBEE_HIJACK_NOW, 0, take, &taken), FRISBEE_CLOSED);
    end();
}

static struct taken switched;

static void route_switch(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    CHECK_EQ(frisbee_reply(pool, &packet->from, "ok", 2), FRISBEE_OK);
    CHECK_EQ(frisbee_hijack(pool, packet->from.conn, FRISBEE_HIJACK_STOCK, 0, take, &switched), FRISBEE_OK);
}

// A Go peer by hand: it switches, its timer's PINGs still come, then raw bytes, cut at every byte. Nothing is written before the first of them.
static void promise_7_hijack_stock_cut_at_every_byte(void) {
    static const frisbee_route routes[] = {{30, route_switch, NULL}};
    static const char *const raws[2] = {"\0\0\0X like a PING, and raw", "\x00\x0f\x00\x00\x00\x01 like a PING"};
    static const size_t lengths[2] = {25, 18};
    int wire;
    for (wire = 0; wire < 2; wire++) {
        uint8_t out[128], in[128];
        size_t n = put_packet(out, wire, 30, 77, "raw please", 10), cut, head, raw_at;
        head = n;
        n += put_packet(out + n, wire, 0, 0, NULL, 0);
        n += put_packet(out + n, wire, 1, 0, NULL, 0);
        n += put_packet(out + n, wire, 0, 0, NULL, 0);
        raw_at = n;
        memcpy(out + n, raws[wire], lengths[wire]);
        n += lengths[wire];
        for (cut = 0; cut <= n; cut++) {
            struct server s;
            struct raw_packet packet;
            frisbee_conn_desc desc = quiet(NULL);
            int fd;
            begin();
            memset(&switched, 0, sizeof switched);
            desc.routes = routes;
            desc.route_count = 1;
            desc.heartbeat_ms = 1;
            serve(&s, &desc);
            fd = raw_connect(s.address);
            CHECK_EQ(raw_send(fd, out, cut), cut);
            if (cut >= head && cut <= raw_at) { // between the last packet and the first raw byte
                turn_for(3);
                CHECK_EQ(switched.count, 0);
            }
            turns(3);
            CHECK_EQ(raw_send(fd, out + cut, n - cut), n - cut);
            WAIT_FOR(switched.count == 1 && s.seen.finals == 1);
            CHECK_EQ(switched.result, FRISBEE_OK);
            CHECK(has_raw(&switched, raws[wire], lengths[wire]));
            do {
                if (!CHECK(raw_packet(fd, wire, &packet, in, sizeof in))) break;
            } while (packet.operation <= 1); // it may have pinged before the request came
            CHECK(packet.operation == 30 && packet.id == 77 && packet.length == 2);
            CHECK_EQ(raw_ready(fd, in, sizeof in), 0); // and then nothing
            close(switched.fd);
            close(fd);
            end();
        }
    }
}

static void promise_7_hijack_now_hands_over_what_was_not_sent(void) {
    static uint8_t expected[3 * MEBIBYTE], in[3 * MEBIBYTE];
    struct client c;
    struct taken taken;
    frisbee_span span;
    size_t n = 0, got;
    int fd, i, released = 0;
    begin();
    memset(&taken, 0, sizeof taken);
    fill(large, sizeof large, 13);
    fd = adopt(&c, NULL, FRISBEE_CONNECTOR, 1);
    WAIT_FOR(c.seen.opened == 1);
    n = put_packet(expected, 1, 0, 0, NULL, 0);
    for (i = 0; i < 4; i++) {
        size_t length = i == 2 ? 20 : 300000; // copied and borrowed, large and small
        span.data = large;
        span.length = length;
        if (i & 1) CHECK_EQ(frisbee_send_spans(c.pool, c.conn, NOBODY, (uint16_t)i, &span, 1, count_release, &released), FRISBEE_OK);
        else CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, (uint16_t)i, large, length), FRISBEE_OK);
        n += put_packet(expected + n, 1, NOBODY, (unsigned)i, large, length);
        turns(2);
    }
    CHECK_EQ(raw_send(fd, "\x00\x0f", 2), 2); // unread: the beginning of a packet
    turns(3);
    CHECK_EQ(frisbee_hijack(c.pool, c.conn, FRISBEE_HIJACK_NOW, 0, take, &taken), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1);
    CHECK(taken.count == 1 && taken.result == FRISBEE_OK && released == 2);
    CHECK(taken.unread_length == 2 && memcmp(taken.unread, "\x00\x0f", 2) == 0);
    CHECK(taken.unsent_length > 100000 && taken.unsent_length < n);
    got = raw_receive(fd, in, n - taken.unsent_length);
    CHECK_EQ(got, n - taken.unsent_length);
    if (taken.unsent) memcpy(in + got, taken.unsent, taken.unsent_length);
    CHECK(memcmp(in, expected, n) == 0);
    CHECK_EQ(raw_ready(fd, in, 1), 0);
    free(taken.unsent);
    close(taken.fd);
    close(fd);
    end();
}

// The inverse: a socket with what was already read from it, for every way to share the bytes between both.
static void promise_7_adopt_with_prefill(void) {
    uint8_t out[96], in[32];
    struct record expected;
    size_t n = put_packet(out, 1, NOBODY, 3, "one", 3), k;
    memset(&expected, 0, sizeof expected);
    expect(&expected, 3, "one", 3);
    expect(&expected, 4, "", 0);
    n += put_packet(out + n, 1, NOBODY, 4, NULL, 0);
    n += put_packet(out + n, 1, ECHO, 5, "echo", 4);
    for (k = 0; k <= n; k++) {
        struct client c;
        struct raw_packet packet;
        frisbee_conn_desc desc = quiet(NULL);
        int pair[2];
        begin();
        memset(&c, 0, sizeof c);
        c.pool = new_pool(NULL);
        desc.user = &c.seen;
        raw_pair(pair);
        CHECK_EQ(frisbee_adopt(c.pool, pair[1], &desc, out, k, &c.conn), FRISBEE_INVALID); // no role
        desc.role = FRISBEE_ACCEPTOR;
        CHECK_EQ(frisbee_adopt(c.pool, pair[1], &desc, out, k, &c.conn), FRISBEE_OK);
        if (k & 1) turns(2);
        CHECK_EQ(raw_send(pair[0], out + k, n - k), n - k);
        CHECK(raw_packet(pair[0], 1, &packet, in, sizeof in));
        CHECK(packet.operation == ECHO && packet.id == 5 && packet.length == 4 && memcmp(in, "echo", 4) == 0);
        CHECK(same(&c.seen, &expected));
        close(pair[0]);
        end();
    }
}

// A transport on top of another: every byte is inverted, a few thousand at a time. `below` is the socket, or the test's own read and write.
struct inverter {
    frisbee_transport below;
    uint8_t out[3000];
};
static int inverters;

static frisbee_result inverter_read(void *context, void *into, size_t room, size_t *done) {
    struct inverter *inverter = (struct inverter *)context;
    frisbee_result result = inverter->below.read(inverter->below.context, into, room < 3000 ? room : 3000, done);
    size_t i;
    for (i = 0; result == FRISBEE_OK && i < *done; i++) ((uint8_t *)into)[i] ^= 0xFF;
    return result;
}

static frisbee_result inverter_write(void *context, const frisbee_span *spans, size_t count, size_t *done) {
    struct inverter *inverter = (struct inverter *)context;
    frisbee_span span;
    size_t i, k;
    span.data = inverter->out;
    span.length = 0;
    for (i = 0; i < count; i++)
        for (k = 0; k < spans[i].length && span.length < sizeof inverter->out; k++)
            inverter->out[span.length++] = ((const uint8_t *)spans[i].data)[k] ^ 0xFF;
    *done = 0;
    return count ? inverter->below.write(inverter->below.context, &span, 1, done) : FRISBEE_OK;
}

static frisbee_result inverter_finish(void *context) {
    struct inverter *inverter = (struct inverter *)context;
    return inverter->below.finish(inverter->below.context);
}

static frisbee_socket inverter_socket(void *context) {
    struct inverter *inverter = (struct inverter *)context;
    return inverter->below.socket(inverter->below.context);
}

static void inverter_close(void *context) {
    struct inverter *inverter = (struct inverter *)context;
    inverter->below.close(inverter->below.context);
    free(inverter);
    inverters--;
}

static frisbee_result invert(frisbee_pool *pool, frisbee_conn conn, frisbee_transport *io, void *user) {
    struct inverter *inverter = (struct inverter *)calloc(1, sizeof *inverter);
    (void)pool;
    (void)conn;
    (void)user;
    if (!inverter) return FRISBEE_NO_MEMORY;
    inverters++;
    inverter->below = *io;
    memset(io, 0, sizeof *io);
    io->context = inverter;
    io->read = inverter_read;
    io->write = inverter_write;
    io->finish = inverter_finish;
    io->close = inverter_close;
    io->socket = inverter_socket;
    return FRISBEE_OK;
}

static void take_transport(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    frisbee_transport *io = (frisbee_transport *)user;
    (void)pool;
    (void)conn;
    CHECK_EQ(hijacked->result, FRISBEE_OK);
    CHECK(hijacked->socket == FRISBEE_NO_SOCKET && hijacked->unread.length == 0 && hijacked->unsent.length == 0);
    *io = hijacked->io;
}

// Wrapped connections: packets, calls, megabytes and the end; then their transports are let go of and attached again.
static void promise_7_wrapped_let_go_and_attached(void) {
    static uint8_t data[MEBIBYTE];
    struct server s;
    struct client c;
    struct record again[2];
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_transport io[2];
    frisbee_conn conns[2];
    begin();
    fill(data, sizeof data, 5);
    memset(io, 0, sizeof io);
    memset(again, 0, sizeof again);
    desc.wrap = invert;
    meet(&s, &desc, &c, &desc);
    CHECK_EQ(inverters, 2);
    exchange(c.pool, c.conn, &c.seen, s.pool, s.seen.conn, &s.seen);
    CHECK(echoes(c.pool, c.conn, data, sizeof data) && echoes(s.pool, s.seen.conn, data, sizeof data));
    CHECK_EQ(frisbee_hijack(c.pool, c.conn, FRISBEE_HIJACK_FENCED, 0, take_transport, &io[0]), FRISBEE_OK);
    CHECK_EQ(frisbee_hijack(s.pool, s.seen.conn, FRISBEE_HIJACK_FENCED, 0, take_transport, &io[1]), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1 && s.seen.finals == 1);
    CHECK(io[0].read == inverter_read && io[1].close == inverter_close);
    desc = quiet(&again[0]);
    CHECK_EQ(frisbee_attach(c.pool, &io[0], &desc, NULL, 0, &conns[0]), FRISBEE_INVALID); // no role
    desc.role = FRISBEE_CONNECTOR;
    CHECK_EQ(frisbee_attach(c.pool, &io[0], &desc, NULL, 0, &conns[0]), FRISBEE_OK);
    desc = quiet(&again[1]);
    desc.role = FRISBEE_ACCEPTOR;
    CHECK_EQ(frisbee_attach(s.pool, &io[1], &desc, NULL, 0, &conns[1]), FRISBEE_OK);
    WAIT_FOR(again[0].opened == 1 && again[1].opened == 1);
    exchange(c.pool, conns[0], &again[0], s.pool, conns[1], &again[1]);
    CHECK_EQ(frisbee_close(c.pool, conns[0], FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
    WAIT_FOR(again[0].finals == 1 && again[1].finals == 1);
    CHECK_EQ(inverters, 0);
    end();
}

// A protocol that counts bytes up to a number, then goes back to packets.
struct counting {
    size_t wanted, got;
    uint64_t hash;
    int started, stopped, releases;
    const uint8_t *out;
};

static frisbee_result counting_start(frisbee_pool *pool, frisbee_conn conn, void *user, void **state) {
    struct counting *c = (struct counting *)user;
    frisbee_span spans[2];
    *state = user;
    c->started++;
    spans[0].data = c->out;
    spans[0].length = 1000;
    spans[1].data = c->out + 1000;
    spans[1].length = c->wanted - 1000;
    CHECK_EQ(frisbee_write(pool, conn, spans, 1, NULL, NULL), FRISBEE_OK);
    return frisbee_write(pool, conn, spans + 1, 1, count_release, &c->releases);
}

static frisbee_result counting_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used,
                                     size_t *need) {
    struct counting *c = (struct counting *)state;
    size_t n = length < c->wanted - c->got ? length : c->wanted - c->got;
    (void)need;
    c->hash = hash_more(c->hash, data, n);
    c->got += n;
    *used = n;
    if (c->got == c->wanted) CHECK_EQ(frisbee_upgrade(pool, conn, FRISBEE_HIJACK_NOW, NULL), FRISBEE_OK);
    return FRISBEE_OK;
}

static void counting_stop(frisbee_pool *pool, frisbee_conn conn, void *state) {
    (void)pool;
    (void)conn;
    ((struct counting *)state)->stopped++;
}

static void promise_7_upgrade_and_back(void) {
    static uint8_t data[700000];
    struct counting counts[2];
    frisbee_protocol protocols[2];
    struct server s;
    struct client c;
    int i, round;
    begin();
    fill(data, sizeof data, 77);
    meet(&s, NULL, &c, NULL);
    for (round = 0; round < 3; round++) {
        memset(counts, 0, sizeof counts);
        memset(protocols, 0, sizeof protocols);
        for (i = 0; i < 2; i++) {
            counts[i].wanted = sizeof data;
            counts[i].out = data;
            protocols[i].start = counting_start;
            protocols[i].input = counting_input;
            protocols[i].stop = counting_stop;
            protocols[i].user = &counts[i];
        }
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 1, "before", 6), FRISBEE_OK);
        CHECK_EQ(frisbee_upgrade(c.pool, c.conn, FRISBEE_HIJACK_FENCED, &protocols[0]), FRISBEE_OK);
        turns(round * 2);
        CHECK_EQ(frisbee_upgrade(s.pool, s.seen.conn, FRISBEE_HIJACK_FENCED, &protocols[1]), FRISBEE_OK);
        WAIT_FOR(counts[0].stopped == 1 && counts[1].stopped == 1 && counts[0].releases == 1 && counts[1].releases == 1);
        for (i = 0; i < 2; i++) CHECK(counts[i].started == 1 && counts[i].got == sizeof data && counts[i].hash == hash_more(0, data, sizeof data));
        CHECK_EQ(s.seen.packets, round + 1);
        CHECK(echoes(c.pool, c.conn, "packets again", 13) && echoes(s.pool, s.seen.conn, "both ways", 9));
    }
    CHECK(s.seen.opened == 1 && c.seen.opened == 1 && s.seen.closed == 0 && c.seen.closed == 0);
    end();
}

// >>promise 8: stock peers work unmodified

static void promise_8_who_speaks_first_and_how(void) {
    static const frisbee_wire wires[] = {
        FRISBEE_WIRE_AUTO, FRISBEE_WIRE_V0, FRISBEE_WIRE_V1, FRISBEE_WIRE_WAIT, FRISBEE_WIRE_WAIT, FRISBEE_WIRE_WAIT};
    size_t i;
    for (i = 0; i < sizeof wires / sizeof *wires; i++) { // the last three: the peer speaks v0, v1, or nothing
        struct client c;
        struct raw_packet packet;
        struct reply reply;
        frisbee_conn_desc desc = quiet(NULL);
        frisbee_span span;
        uint8_t in[64], out[32], expected[64];
        int fd, released = 0, wire = wires[i] == FRISBEE_WIRE_V0 || i == 3 ? 0 : 1;
        size_t n;
        uint64_t start = now_ms();
        begin();
        desc.wire = wires[i];
        fd = adopt(&c, &desc, FRISBEE_CONNECTOR, 0);
        span.data = "borrowed";
        span.length = 8;
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 7, "early", 5), FRISBEE_OK); // before the wire is known
        CHECK_EQ(frisbee_send_spans(c.pool, c.conn, NOBODY, 8, &span, 1, count_release, &released), FRISBEE_OK);
        CHECK_EQ(call(c.pool, c.conn, ECHO, "call", 4, 0, &reply, NULL), FRISBEE_OK);
        turns(5);
        if (wires[i] == FRISBEE_WIRE_WAIT) {
            CHECK_EQ(raw_ready(fd, in, sizeof in), 0);
            CHECK_EQ(c.seen.opened, 0);
            n = put_packet(out, wire, 0, 0, NULL, 0);
            if (i < 5) CHECK_EQ(raw_send(fd, out, n), n);
        }
        WAIT_FOR(c.seen.opened == 1);
        if (i == 5) CHECK(now_ms() - start >= 999);
        // the early packets keep their order; the PING that tells the wire comes before or behind them
        n = put_packet(expected, wire, NOBODY, 7, "early", 5);
        n += put_packet(expected + n, wire, NOBODY, 8, "borrowed", 8);
        {
            size_t got = 0;
            unsigned pings = 0, pongs = 0, id = 0;
            while (raw_packet(fd, wire, &packet, in, sizeof in)) {
                if (packet.operation <= 1) {
                    CHECK(packet.id == 0 && packet.length == 0);
                    pings += packet.operation == 0;
                    pongs += packet.operation == 1;
                } else if (packet.operation == NOBODY) got += put_packet(out, wire, NOBODY, packet.id, NULL, 0) + packet.length;
                else {
                    CHECK(packet.operation == ECHO && packet.length == 4 && memcmp(in, "call", 4) == 0);
                    id = packet.id;
                    break;
                }
            }
            CHECK_EQ(got, n);
            CHECK(id >= 1 && id <= 57343);
            n = put_packet(out, wire, ECHO, id, "reply", 5);
            CHECK_EQ(raw_send(fd, out, n), n);
            WAIT_FOR(reply.count == 1 && released == 1);
            CHECK(reply.result == FRISBEE_OK && reply.hash == hash_of("reply", 5));
            if (pings == 0) CHECK(raw_packet(fd, wire, &packet, in, sizeof in) && packet.operation == 0);
            CHECK(pings <= 1 && pongs <= 1);
        }
        close(fd);
        end();
    }
}

static void promise_8_ids_of_stock_peers(void) {
    static const unsigned ids[] = {0, 1, 15, 255, 256, 57343, 57344, 65535};
    struct server s;
    frisbee_conn_desc desc = quiet(NULL);
    int wire, fd;
    size_t i;
    begin();
    serve(&s, NULL);
    for (wire = 0; wire < 2; wire++) {
        fd = raw_connect(s.address);
        for (i = 0; i < sizeof ids / sizeof *ids; i++) CHECK(raw_echo(fd, wire, ids[i], "stock", 5));
        { // the server calls as well, with the same operation, and the peer uses the id of that very call for a request of its own
            struct raw_packet packet;
            struct reply reply;
            uint8_t in[32], out[32];
            size_t n;
            CHECK_EQ(call(s.pool, s.seen.conn, ECHO, "?", 1, 0, &reply, NULL), FRISBEE_OK);
            CHECK(raw_packet(fd, wire, &packet, in, sizeof in) && packet.operation == ECHO && packet.id >= 57344);
            CHECK(raw_echo(fd, wire, packet.id == 57344 ? 57345u : 57344u, "mine", 4));
            n = put_packet(out, wire, ECHO, packet.id, "answer", 6);
            CHECK_EQ(raw_send(fd, out, n), n);
            WAIT_FOR(reply.count == 1);
            CHECK(reply.hash == hash_of("answer", 6));
        }
        close(fd);
    }
    end();

    begin(); // an opening that makes sense in both wires is v1, unless the wire is forced
    desc.wire = FRISBEE_WIRE_V0;
    serve(&s, &desc);
    {
        static uint8_t out[0xA0003 + 8];
        size_t n = put_claim(out, 0, ECHO, 15, 0xA0003, NULL, 0);
        struct raw_packet packet;
        static uint8_t in[0xA0003];
        fd = raw_connect(s.address);
        CHECK_EQ(raw_send(fd, out, n), n);
        CHECK_EQ(raw_send(fd, in, sizeof in), sizeof in);
        CHECK(raw_packet(fd, 0, &packet, in, sizeof in) && packet.id == 15 && packet.length == 0xA0003);
        close(fd);
    }
    end();
}

// >>statistics

static void statistics_add_up(void) {
    struct server s;
    struct client c;
    struct reply lost;
    frisbee_stats conn_c, conn_s, pool_c, pool_s;
    static uint8_t data[100000];
    int i;
    begin();
    meet(&s, NULL, &c, NULL);
    for (i = 0; i < 10; i++) {
        CHECK(echoes(c.pool, c.conn, data, (size_t)i * 1000));
        CHECK_EQ(frisbee_send(c.pool, c.conn, NOBODY, 0, data, (size_t)i * 9000), FRISBEE_OK);
    }
    CHECK_EQ(call(c.pool, c.conn, SWALLOW, NULL, 0, 20, &lost, NULL), FRISBEE_OK);
    WAIT_FOR(s.seen.packets == 10 && lost.count == 1);
    turns(5);
    CHECK_EQ(frisbee_conn_stats(c.pool, c.conn, &conn_c), FRISBEE_OK);
    CHECK_EQ(frisbee_conn_stats(s.pool, s.seen.conn, &conn_s), FRISBEE_OK);
    CHECK_EQ(frisbee_pool_stats(c.pool, &pool_c), FRISBEE_OK);
    CHECK_EQ(frisbee_pool_stats(s.pool, &pool_s), FRISBEE_OK);
    CHECK_EQ(conn_c.packets_out, 21);
    CHECK_EQ(conn_s.packets_in, 21);
    CHECK_EQ(conn_s.packets_out, 10);
    CHECK_EQ(conn_c.packets_in, 10);
    CHECK_EQ(conn_c.bytes_out, conn_s.bytes_in);
    CHECK_EQ(conn_s.bytes_out, conn_c.bytes_in);
    CHECK(conn_c.bytes_out >= 21 * 10 + 45 * 1000 + 45 * 9000);
    CHECK_EQ(pool_c.bytes_out, conn_c.bytes_out);
    CHECK_EQ(pool_s.packets_in, conn_s.packets_in);
    CHECK(conn_c.sessions == 1 && pool_s.sessions == 1 && pool_c.conns == 1);
    CHECK(conn_c.queued == 0 && conn_c.calls == 0 && conn_c.lost_ids == 1 && conn_s.deferred == 0);
    CHECK_EQ(pool_c.memory + pool_s.memory, held.bytes); // the pools' own book is the allocator's
    CHECK(conn_c.memory > 0 && conn_c.memory < pool_c.memory);
    CHECK_EQ(frisbee_close(c.pool, c.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
    WAIT_FOR(c.seen.finals == 1 && s.seen.finals == 1);
    CHECK_EQ(frisbee_conn_stats(c.pool, c.conn, &conn_c), FRISBEE_CLOSED);
    CHECK_EQ(frisbee_pool_stats(s.pool, &pool_s), FRISBEE_OK); // the dead are counted
    CHECK(pool_s.packets_in == 21 && pool_s.bytes_in == conn_s.bytes_in && pool_s.conns == 0 && pool_s.sessions == 1);
    CHECK_EQ(frisbee_pool_stats(c.pool, &pool_c), FRISBEE_OK);
    CHECK_EQ(pool_c.memory + pool_s.memory, held.bytes);
    end();
}

int main(int argc, char **argv) {
    watchdog(500);
    RUN(promise_1_packets_over_v4);
    RUN(promise_1_packets_over_v6);
    RUN(promise_1_packets_over_any_address);
    RUN(promise_1_packets_over_a_name);
    RUN(promise_1_packets_over_unix_sockets);
    RUN(promise_1_five_mebibytes_both_ways);
    RUN(promise_1_partial_writes);
    RUN(promise_1_chopped_at_every_byte);
    RUN(promise_1_one_write_per_turn);
    RUN(promise_1_reserved_room);
    RUN(promise_1_borrowed_spans);
    RUN(promise_1_finish_and_on_end);
    RUN(promise_1_a_stale_event_meets_nobody);
    RUN(promise_1_signals_through_a_busy_exchange);
    RUN(promise_2_fifty_thousand_calls_in_flight);
    RUN(promise_2_limit_of_calls);
    RUN(promise_2_timeout_cancel_and_late_replies);
    RUN(promise_2_struck_from_the_queue);
    RUN(promise_2_calls_of_a_connection_that_ends);
    RUN(promise_2_two_callers_on_one_connection);
    RUN(promise_2_call_wait);
    RUN(promise_2_call_wait_between_sessions);
    RUN(promise_2_reconnect);
    RUN(promise_2_a_reply_never_crosses_sessions);
    RUN(promise_3_connections_wait_in_the_backlog);
    RUN(promise_3_connections_of_a_pool);
    RUN(promise_3_queue_limit_and_writable);
    RUN(promise_3_replies_that_nobody_reads);
    RUN(promise_3_pool_memory);
    RUN(promise_3_out_of_descriptors);
    RUN(promise_4_descriptors_are_close_on_exec);
    RUN(promise_4_no_sigpipe);
    RUN(promise_4_refused_unreachable_and_slow);
    RUN(promise_4_names_by_a_hook);
    RUN(promise_4_a_stalled_look_up_stalls_nobody);
    RUN(promise_4_no_spin_at_the_peers_end);
    RUN(promise_4_an_idle_pool_sleeps);
    RUN(promise_4_poll_returns_after_a_callback);
    RUN(promise_4_foreign_loop);
    RUN(promise_4_a_forked_child_disturbs_nobody);
    RUN(promise_4_shutdown);
    RUN(promise_6_greetings_of_others);
    RUN(promise_6_wrong_packets);
    RUN(promise_6_trickled_packets);
    RUN(promise_6_silent_peers);
    RUN(promise_6_a_flood_of_pings);
    RUN(promise_6_peers_that_do_not_read_or_speak);
    RUN(promise_7_close_with_unread_input);
    RUN(promise_7_close_now_and_close_after_flush);
    RUN(promise_7_hijack_fenced_at_every_timing);
    RUN(promise_7_hijack_fenced_cut_at_every_byte);
    RUN(promise_7_hijack_that_fails);
    RUN(promise_7_hijack_stock_cut_at_every_byte);
    RUN(promise_7_hijack_now_hands_over_what_was_not_sent);
    RUN(promise_7_adopt_with_prefill);
    RUN(promise_7_wrapped_let_go_and_attached);
    RUN(promise_7_upgrade_and_back);
    RUN(promise_8_who_speaks_first_and_how);
    RUN(promise_8_ids_of_stock_peers);
    RUN(statistics_add_up);
    return check_report("loop");
}
