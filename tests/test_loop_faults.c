// test_loop_faults.c - faults that a hostile reading once found, a case for each. It is named after what the library promises instead,
// and fails if the fault returns. Built once for each poller. Where time matters, the pool's clock is the test's.
static long waits;                     // for the poller
static struct frisbee_pool *sleepless; // this pool's waits do not sleep;
static int endless;                    // those that would have slept for ever are counted, and after many it is stopped
static int wait_ms(int timeout);
static int waited(int count, int timeout);
#define FRISBEE_SYS_EPOLL_WAIT(poller, events, room, timeout) waited(epoll_wait(poller, events, room, wait_ms(timeout)), timeout)
#define FRISBEE_SYS_POLL(fds, count, timeout) waited(poll(fds, count, wait_ms(timeout)), timeout)

#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "net.h"

static int longest_wait;

static int wait_ms(int timeout) {
    waits++;
    if (timeout > longest_wait) longest_wait = timeout;
    return sleepless ? 0 : timeout;
}

static int waited(int count, int timeout) {
    if (sleepless && count == 0 && timeout < 0 && ++endless > 100) frisbee_stop(sleepless);
    return count;
}

// >>helpers

#define NOWHERE "unix:/nonexistent/socket" // refused in the turn that tries it

static uint64_t clock_us;

static uint64_t virtual_now(void *context) {
    (void)context;
    return clock_us;
}

static frisbee_pool *timed_pool(uint32_t budget_packets) {
    frisbee_pool_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.now_us = virtual_now;
    desc.budget_packets = budget_packets;
    clock_us = 1000000;
    return new_pool(&desc);
}

// Time goes by, with a turn after each step of it.
static void pass(int ms, int step_ms) {
    for (; ms > 0; ms -= step_ms) {
        clock_us += (uint64_t)step_ms * 1000;
        turn(0);
    }
}

struct line {
    frisbee_conn conn;
    struct record seen;
    int fd; // the peer, which is the test
};

static void adopt(struct line *l, frisbee_pool *pool, frisbee_role role, const frisbee_conn_desc *given) {
    frisbee_conn_desc desc = given ? *given : quiet(NULL);
    int fds[2];
    memset(l, 0, sizeof *l);
    if (!desc.user) desc.user = &l->seen;
    desc.role = role;
    desc.wire = FRISBEE_WIRE_V1;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    set_nonblocking(fds[1]);
    l->fd = fds[1];
    CHECK_EQ(frisbee_adopt(pool, fds[0], &desc, NULL, 0, &l->conn), FRISBEE_OK);
    turns(2);
}

static void say(int fd, unsigned operation, unsigned id) { // a packet without payload
    uint8_t out[16];
    size_t n = put_packet(out, 1, operation, id, NULL, 0);
    CHECK_EQ(send(fd, out, n, MSG_NOSIGNAL), n);
}

// A protocol that counts.
static struct { int bytes, ends, stops; } spoken;

static frisbee_result take_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length,
                                 size_t *used, size_t *need) {
    (void)pool, (void)conn, (void)state, (void)data, (void)need;
    spoken.bytes += (int)length;
    *used = length;
    return FRISBEE_OK;
}

static void take_end(frisbee_pool *pool, frisbee_conn conn, void *state) {
    (void)state;
    spoken.ends++;
    frisbee_close(pool, conn, FRISBEE_CLOSE_FLUSH);
}

static const frisbee_protocol counting = {NULL, take_input, take_end, NULL, NULL};
static const frisbee_protocol counting_without_end = {NULL, take_input, NULL, NULL, NULL};

// >>calls

static frisbee_call_id sibling;

static void cancel_sibling(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    (void)id, (void)outcome;
    ++*(int *)user;
    frisbee_cancel(pool, sibling);
}

static void a_cancel_in_on_reply_leaves_nothing_behind(void) {
    struct line first, next[2];
    frisbee_call_desc desc;
    frisbee_pool *pool;
    int replies = 0, i;
    begin();
    pool = new_pool(NULL);
    adopt(&first, pool, FRISBEE_CONNECTOR, NULL);
    memset(&desc, 0, sizeof desc);
    desc.on_reply = cancel_sibling;
    desc.user = &replies;
    for (i = 0; i < 2; i++) CHECK_EQ(frisbee_call(pool, first.conn, ECHO, "x", 1, &desc, &sibling), FRISBEE_OK); // the second's id stays
    frisbee_close(pool, first.conn, FRISBEE_CLOSE_NOW);
    turn(0);
    CHECK_EQ(replies, 2);
    CHECK_EQ(first.seen.finals, 1);
    CHECK_EQ(frisbee_next_timeout(pool), FRISBEE_NEVER); // the dead connection has no work left
    for (i = 0; i < 2; i++) adopt(&next[i], pool, FRISBEE_CONNECTOR, NULL);
    CHECK(next[0].conn.id != next[1].conn.id && next[0].seen.opened == 1 && next[1].seen.opened == 1);
    close(first.fd), close(next[0].fd), close(next[1].fd);
    end();
}

static void destroy_in_on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    record_close(pool, conn, info, user);
    frisbee_pool_destroy(pool);
}

static void call_wait_survives_the_end_of_its_connection_and_of_its_pool(void) {
    static const frisbee_events destroys = {record_open, NULL, NULL, NULL, destroy_in_on_close};
    int round;
    begin();
    for (round = 0; round < 4; round++) { // the end comes in the first poll of call_wait
        const int opened = round & 1, destroyed = round >> 1;
        struct line l;
        frisbee_conn_desc desc = quiet(&l.seen);
        frisbee_pool *pool = new_pool(NULL);
        frisbee_outcome outcome;
        if (destroyed) desc.events = &destroys;
        memset(&l, 0, sizeof l);
        if (opened) {
            adopt(&l, pool, FRISBEE_CONNECTOR, &desc);
            frisbee_close(pool, l.conn, FRISBEE_CLOSE_NOW);
            close(l.fd);
        } else CHECK_EQ(frisbee_connect(pool, NOWHERE, &desc, &l.conn), FRISBEE_OK);
        CHECK_EQ(frisbee_call_wait(pool, l.conn, ECHO, "x", 1, 0, &outcome),
                 destroyed ? FRISBEE_DESTROYED : opened ? FRISBEE_CLOSED : FRISBEE_NOT_SENT);
        CHECK_EQ(l.seen.finals, 1);
        if (destroyed) live[0] = NULL;
        else drop_pool(pool);
    }
    end();
}

// Closes the accepted end of a connection whose both ends one pool has.
static int drop_accepted(frisbee_pool *pool, frisbee_conn connected) {
    uint32_t index = 0;
    int count = 0;
    frisbeei_conn *conn;
    while ((conn = frisbeei_each(pool, &index)) != NULL)
        if (conn->id != connected.id) count += frisbee_close(pool, frisbeei_handle(conn), FRISBEE_CLOSE_NOW) == FRISBEE_OK;
    return count;
}

static void stop_in_task(frisbee_task *task, frisbee_pool *pool) {
    (void)task;
    if (pool) frisbee_stop(pool);
}

static void a_stop_ends_a_call_wait_that_waits_for_a_session(void) {
    frisbee_conn_desc desc = quiet(NULL);
    struct record seen;
    frisbee_outcome outcome;
    frisbee_remote *remote;
    frisbee_listener listener;
    frisbee_task task;
    frisbee_conn conn;
    frisbee_pool *pool;
    char address[64];
    begin();
    memset(&seen, 0, sizeof seen);
    memset(&task, 0, sizeof task);
    pool = new_pool(NULL);
    desc.user = &seen;
    desc.retry_min_ms = 60000;
    desc.retry_max_ms = 60000;
    CHECK_EQ(frisbee_listen(pool, "127.0.0.1:0", NULL, &listener), FRISBEE_OK);
    CHECK_EQ(frisbee_listener_address(pool, listener, address, sizeof address), FRISBEE_OK);
    CHECK_EQ(frisbee_connect(pool, address, &desc, &conn), FRISBEE_OK);
    CHECK_EQ(frisbee_call_wait(pool, conn, ECHO, "x", 1, 50, &outcome), FRISBEE_TIMED_OUT); // open, and nobody answers
    CHECK_EQ(seen.opened, 1);
    CHECK_EQ(frisbee_listener_close(pool, listener), FRISBEE_OK);
    CHECK_EQ(drop_accepted(pool, conn), 1);
    WAIT_FOR(seen.closed == 1);
    CHECK(remote = frisbee_remote_retain(pool));
    task.run = stop_in_task;
    CHECK_EQ(frisbee_remote_post(remote, &task), FRISBEE_OK);
    CHECK_EQ(frisbee_call_wait(pool, conn, ECHO, "x", 1, 20000, &outcome), FRISBEE_CANCELLED);
    CHECK(outcome.result == FRISBEE_CANCELLED && !outcome.sent);
    CHECK(!pool->stop_run); // and is used up
    frisbee_remote_release(remote);
    end();
}

static void a_stop_for_the_next_run_takes_no_sleep_from_poll(void) {
    frisbee_pool *pool;
    begin();
    pool = new_pool(NULL);
    frisbee_stop(pool);
    longest_wait = 0;
    CHECK_EQ(frisbee_poll(pool, 20), FRISBEE_OK);
    CHECK_EQ(longest_wait, 20);
    CHECK_EQ(frisbee_run(pool), FRISBEE_OK);
    end();
}

static void a_look_up_that_has_not_begun_takes_no_answer(void) {
    static const char *const numeric[] = {"127.0.0.1"};
    frisbee_conn_desc desc = quiet(NULL);
    struct record seen;
    frisbee_conn conn;
    frisbee_pool *pool;
    begin();
    memset(&seen, 0, sizeof seen);
    pool = new_pool(NULL);
    desc.user = &seen;
    CHECK_EQ(frisbee_connect(pool, NOWHERE, &desc, &conn), FRISBEE_OK);
    CHECK_EQ(frisbee_resolved(pool, conn.id, numeric, 1), FRISBEE_CLOSED);
    WAIT_FOR(seen.finals == 1);
    CHECK_EQ(seen.info.reason, FRISBEE_REFUSED);
    end();
}

static void a_stop_before_call_wait_is_for_the_next_run(void) {
    struct line l;
    frisbee_outcome outcome;
    frisbee_pool *pool;
    begin();
    pool = new_pool(NULL);
    adopt(&l, pool, FRISBEE_CONNECTOR, NULL);
    frisbee_stop(pool);
    waits = 0;
    CHECK_EQ(frisbee_call_wait(pool, l.conn, ECHO, "x", 1, 100, &outcome), FRISBEE_TIMED_OUT);
    CHECK(waits <= 10); // it slept: a loop that spins takes thousands
    sleepless = pool;
    waits = endless = 0;
    CHECK_EQ(frisbee_run(pool), FRISBEE_OK);
    CHECK_EQ(waits, 0);
    sleepless = NULL;
    close(l.fd);
    end();
}

// Writing to it fails, and its packets and the reply still lie in the socket.
static void a_peer_that_left_is_heard_to_the_end(void) {
    enum { PACKETS = 5 };
    uint32_t budget;
    begin();
    for (budget = 0; budget < 3; budget++) { // none, and such that spend themselves before all is read
        struct line l;
        struct reply reply;
        uint8_t request[64], all[64];
        size_t n = 0;
        frisbee_pool *pool = timed_pool(budget);
        int i;
        adopt(&l, pool, FRISBEE_CONNECTOR, NULL);
        CHECK_EQ(call(pool, l.conn, ECHO, "x", 1, FRISBEE_NEVER, &reply, NULL), FRISBEE_OK);
        turn(0);
        CHECK_EQ(raw_ready(l.fd, request, sizeof request), 21); // PING and the call: unread, they would reset it
        for (i = 0; i < PACKETS; i++) n += put_packet(all + n, 1, NOBODY, 1, NULL, 0);
        n += put_packet(all + n, 1, ECHO, 1, NULL, 0);
        CHECK_EQ(send(l.fd, all, n, MSG_NOSIGNAL), n);
        close(l.fd);
        CHECK_EQ(frisbee_send(pool, l.conn, SWALLOW, 1, "y", 1), FRISBEE_OK);
        turns(30);
        CHECK_EQ(l.seen.packets, PACKETS);
        CHECK(reply.count == 1 && reply.result == FRISBEE_OK);
        CHECK_EQ(l.seen.finals, 1);
        CHECK(l.seen.info.reason == FRISBEE_SYSTEM && l.seen.info.system_error == EPIPE);
        drop_pool(pool);
    }
    end();
}

// >>time

static void a_far_timeout_hides_no_near_one_and_does_not_come_at_once(void) {
    enum { NEAR, FAR, LATE_FAR, CANCELLED, CALLS };
    struct reply replies[CALLS];
    struct line l;
    frisbee_call_id id;
    frisbee_pool *pool;
    begin();
    pool = timed_pool(0);
    adopt(&l, pool, FRISBEE_CONNECTOR, NULL);
    CHECK_EQ(call(pool, l.conn, SWALLOW, NULL, 0, 10, &replies[NEAR], NULL), FRISBEE_OK);
    clock_us += 50000;
    CHECK_EQ(call(pool, l.conn, SWALLOW, NULL, 0, INT32_MAX, &replies[FAR], NULL), FRISBEE_OK);
    pass(1000, 100);
    CHECK_EQ(replies[NEAR].count, 1);
    CHECK_EQ(replies[NEAR].result, FRISBEE_TIMED_OUT);
    clock_us += 10000000; // the last turn is long ago when the sweep for the cancelled one looks at all
    CHECK_EQ(call(pool, l.conn, SWALLOW, NULL, 0, INT32_MAX, &replies[LATE_FAR], NULL), FRISBEE_OK);
    CHECK_EQ(call(pool, l.conn, SWALLOW, NULL, 0, 100000, &replies[CANCELLED], &id), FRISBEE_OK);
    CHECK_EQ(frisbee_cancel(pool, id), FRISBEE_OK);
    turn(0);
    CHECK_EQ(replies[CANCELLED].result, FRISBEE_CANCELLED);
    CHECK(replies[FAR].count == 0 && replies[LATE_FAR].count == 0);
    clock_us += ((uint64_t)1 << 30) * 1000; // the longest time there is
    pass(200, 100);
    CHECK(replies[FAR].result == FRISBEE_TIMED_OUT && replies[LATE_FAR].result == FRISBEE_TIMED_OUT);
    close(l.fd);
    end();
}

static void a_reply_that_lies_in_the_socket_is_read_before_its_call_times_out(void) {
    enum { LINES = 100 }; // more than the poller tells of at once
    static struct line lines[LINES];
    static struct reply replies[LINES];
    frisbee_pool *pool;
    int i, replied = 0;
    begin();
    pool = timed_pool(0);
    for (i = 0; i < LINES; i++) {
        adopt(&lines[i], pool, FRISBEE_CONNECTOR, NULL);
        CHECK_EQ(call(pool, lines[i].conn, ECHO, NULL, 0, 1000, &replies[i], NULL), FRISBEE_OK);
    }
    turn(0);
    for (i = 0; i < LINES; i++) say(lines[i].fd, ECHO, 1);
    pass(1100, 1100); // a slow handler, say
    turns(4);
    for (i = 0; i < LINES; i++) replied += replies[i].count == 1 && replies[i].result == FRISBEE_OK;
    CHECK_EQ(replied, LINES);
    for (i = 0; i < LINES; i++) close(lines[i].fd);
    end();
}

static void bytes_that_lie_in_the_socket_are_read_before_their_connection_times_out(void) {
    enum { LINES = 100, IDLE = 0, PACKET = 5, WHOLE = 10 }; // more than the poller tells of at once
    static struct line lines[LINES];
    uint8_t packet[WHOLE];
    int early, i; // early: so many bytes of the packet came before
    begin();
    CHECK_EQ(put_packet(packet, 1, NOBODY, 1, NULL, 0), WHOLE);
    for (early = IDLE; early <= PACKET; early += PACKET) {
        frisbee_conn_desc desc = quiet(NULL);
        frisbee_pool *pool = timed_pool(0);
        int packets = 0, closed = 0;
        if (early == IDLE) desc.idle_ms = 1000;
        else desc.packet_ms = 1000;
        for (i = 0; i < LINES; i++) {
            adopt(&lines[i], pool, FRISBEE_ACCEPTOR, &desc);
            if (early) CHECK_EQ(send(lines[i].fd, packet, (size_t)early, MSG_NOSIGNAL), early);
        }
        turns(5);
        pass(500, 500);
        turns(2);
        for (i = 0; i < LINES; i++)
            CHECK_EQ(send(lines[i].fd, packet + early, (size_t)(WHOLE - early), MSG_NOSIGNAL), WHOLE - early);
        pass(700, 700);
        turns(4);
        for (i = 0; i < LINES; i++) packets += lines[i].seen.packets, closed += lines[i].seen.closed;
        CHECK_EQ(packets, LINES);
        CHECK_EQ(closed, 0);
        pass(1200, 1200);
        turns(4);
        for (closed = i = 0; i < LINES; i++) {
            closed += lines[i].seen.finals == 1 && lines[i].seen.info.reason == FRISBEE_TIMED_OUT;
            close(lines[i].fd);
        }
        CHECK_EQ(closed, early == IDLE ? LINES : 0); // then nothing lies there
        drop_pool(pool);
    }
    end();
}

static void idle_ms_counts_before_the_first_byte(void) {
    struct record seen;
    frisbee_conn_desc desc = quiet(&seen);
    frisbee_conn conn;
    int fds[2];
    begin();
    memset(&seen, 0, sizeof seen);
    desc.role = FRISBEE_ACCEPTOR;
    desc.idle_ms = 1000;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK_EQ(frisbee_adopt(timed_pool(0), fds[0], &desc, NULL, 0, &conn), FRISBEE_OK);
    turns(2);
    pass(900, 100);
    CHECK_EQ(seen.closed, 0);
    pass(200, 100);
    CHECK_EQ(seen.finals, 1);
    CHECK_EQ(seen.info.reason, FRISBEE_TIMED_OUT);
    CHECK_EQ(seen.opened, 0); // nobody has told its wire
    close(fds[1]);
    end();
}

static void a_peer_is_not_dead_while_a_budget_holds_its_packets_back(void) {
    enum { PACKETS = 600 };
    struct line l;
    static uint8_t all[PACKETS * 10];
    uint8_t heartbeats[4096];
    size_t n = 0;
    frisbee_conn_desc desc = quiet(NULL);
    int i;
    begin();
    desc.heartbeat_ms = 0; // the default: 500, and 5000 for the timeout
    adopt(&l, timed_pool(1), FRISBEE_ACCEPTOR, &desc);
    for (i = 0; i < PACKETS; i++) n += put_packet(all + n, 1, NOBODY, 1, NULL, 0);
    CHECK_EQ(send(l.fd, all, n, MSG_NOSIGNAL), n);
    for (i = 0; i < PACKETS + 50; i++) {
        if (i % 20 == 0) say(l.fd, 0, 0); // PING: it lives
        pass(16, 16);
        raw_ready(l.fd, heartbeats, sizeof heartbeats);
    }
    CHECK_EQ(l.seen.packets, PACKETS);
    CHECK_EQ(l.seen.closed, 0);
    close(l.fd);
    end();
}

static void a_budget_favours_nobody(void) {
    enum { TURNS = 300 };
    struct line lines[3];
    int asked[3] = {0, 0, 0}, turned, i;
    frisbee_pool *pool;
    begin();
    pool = timed_pool(1);
    for (i = 0; i < 3; i++) adopt(&lines[i], pool, FRISBEE_ACCEPTOR, NULL);
    for (turned = 0; turned < TURNS; turned++) {
        for (i = 0; i < 3; i++) // each has always one packet in its socket
            if (asked[i] == lines[i].seen.packets) say(lines[i].fd, NOBODY, 1), asked[i]++;
        turn(0);
    }
    for (i = 0; i < 3; i++) {
        CHECK(lines[i].seen.packets > TURNS / 6);
        close(lines[i].fd);
    }
    end();
}

// >>sessions

static void no_longest_pause_is_not_the_end_of_a_connection(void) {
    enum { CONNS = 32 };
    static struct record seen[CONNS];
    frisbee_pool *pool;
    int i;
    begin();
    memset(seen, 0, sizeof seen);
    pool = timed_pool(0);
    for (i = 0; i < CONNS; i++) {
        frisbee_conn_desc desc = quiet(&seen[i]);
        desc.retry_min_ms = 1000;
        desc.retry_max_ms = FRISBEE_NEVER;
        CHECK_EQ(frisbee_connect(pool, NOWHERE, &desc, NULL), FRISBEE_OK);
    }
    turns(2);
    for (i = 0; i < CONNS; i++) {
        CHECK_EQ(seen[i].closed, 1);
        CHECK(seen[i].info.retry_ms >= 500 && seen[i].info.retry_ms <= 1000);
    }
    pass(60000, 1000); // 1, 2, 4, 8, 16 and 32 s, each minus a random half
    for (i = 0; i < CONNS; i++) CHECK(seen[i].closed >= 6 && seen[i].finals == 0 && seen[i].info.retry_ms >= 16000);
    end();
}

static void call_in_on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    record_open(pool, conn, user);
    CHECK_EQ(frisbee_call(pool, conn, ECHO, "x", 1, NULL, NULL), FRISBEE_OK);
}

static void a_role_outlives_its_session(void) {
    static const frisbee_events events = {call_in_on_open, NULL, NULL, NULL, record_close};
    struct record seen;
    frisbee_conn_desc desc = quiet(&seen);
    char address[64];
    int listener, session;
    begin();
    memset(&seen, 0, sizeof seen);
    listener = raw_listen(4, address);
    desc.events = &events;
    desc.role = FRISBEE_ACCEPTOR;
    desc.wire = FRISBEE_WIRE_V1;
    desc.retry_min_ms = 1;
    CHECK_EQ(frisbee_connect(new_pool(NULL), address, &desc, NULL), FRISBEE_OK);
    for (session = 0; session < 3; session++) {
        struct raw_packet packet;
        uint8_t payload;
        int fd = raw_accept(listener);
        CHECK(raw_packet(fd, 1, &packet, &payload, 1));
        CHECK_EQ(packet.operation, ECHO); // no PING before it
        CHECK_EQ(packet.id, 57344);       // the acceptor's first
        close(fd);
    }
    close(listener);
    end();
}

static struct { struct line lines[2]; int requests; } closing;

static void answer_and_shut_down(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    int i;
    (void)user;
    CHECK_EQ(frisbee_reply(pool, &packet->from, "x", 1), FRISBEE_OK);
    for (i = 0; i < 2; i++) // output for several leaves at the end of the turn
        CHECK_EQ(frisbee_send(pool, closing.lines[i].conn, SWALLOW, 1, "y", 1), FRISBEE_OK);
    CHECK_EQ(frisbee_shutdown(pool, FRISBEE_NEVER), ++closing.requests == 1 ? FRISBEE_OK : FRISBEE_CLOSED);
}

static void a_shutdown_without_limit_ends(void) {
    enum { EMPTY, OUTPUT_WAITS, IN_HANDLERS, ROUNDS };
    int round, i;
    begin();
    for (round = 0; round < ROUNDS; round++) {
        frisbee_pool *pool = timed_pool(0);
        frisbee_conn_desc desc = quiet(NULL);
        frisbee_result result = FRISBEE_OK;
        const int count = round == EMPTY ? 0 : 2;
        memset(&closing, 0, sizeof closing);
        desc.routes = NULL;
        desc.route_count = 0;
        CHECK_EQ(frisbee_on(pool, ECHO, answer_and_shut_down, NULL), FRISBEE_OK);
        for (i = 0; i < count; i++) adopt(&closing.lines[i], pool, FRISBEE_ACCEPTOR, &desc);
        pass(100, 50); // no timer is left that could wake the loop by chance
        for (i = 0; i < count && round == OUTPUT_WAITS; i++)
            CHECK_EQ(frisbee_send(pool, closing.lines[i].conn, SWALLOW, 1, "y", 1), FRISBEE_OK);
        for (i = 0; i < count && round == IN_HANDLERS; i++) say(closing.lines[i].fd, ECHO, 1);
        if (round != IN_HANDLERS) CHECK_EQ(frisbee_shutdown(pool, FRISBEE_NEVER), FRISBEE_OK);
        sleepless = pool;
        endless = 0;
        for (i = 0; i < 20 && result != FRISBEE_CLOSED; i++) {
            result = frisbee_poll(pool, FRISBEE_NEVER);
            if (i != 3 || !count) continue;
            shutdown(closing.lines[0].fd, SHUT_WR); // the peers end, too
            shutdown(closing.lines[1].fd, SHUT_WR);
        }
        CHECK_EQ(result, FRISBEE_CLOSED);
        CHECK_EQ(endless, 0);
        for (i = 0; i < count; i++) {
            uint8_t in[64];
            CHECK_EQ(raw_ready(closing.lines[i].fd, in, sizeof in), round == OUTPUT_WAITS ? 11 : 33); // nothing was lost
            CHECK(closing.lines[i].seen.finals == 1 && closing.lines[i].seen.info.reason == FRISBEE_OK);
            close(closing.lines[i].fd);
        }
        sleepless = NULL;
        drop_pool(pool);
    }
    end();
}

// >>hijack and upgrade

// A transport in memory.
static struct { uint8_t in[64], out[64]; size_t in_size, out_size; bool blocked; int closed; } memory;

static frisbee_result memory_read(void *context, void *into, size_t room, size_t *done) {
    (void)context;
    if (memory.in_size == 0) return FRISBEE_AGAIN;
    *done = memory.in_size < room ? memory.in_size : room;
    memcpy(into, memory.in, *done);
    memory.in_size -= *done;
    memmove(memory.in, memory.in + *done, memory.in_size);
    return FRISBEE_OK;
}

static frisbee_result memory_write(void *context, const frisbee_span *spans, size_t count, size_t *done) {
    const size_t left = sizeof memory.out - memory.out_size;
    (void)context;
    if (count == 0) return FRISBEE_OK;
    if (memory.blocked || left == 0) return FRISBEE_AGAIN;
    *done = spans->length < left ? spans->length : left;
    memcpy(memory.out + memory.out_size, spans->data, *done);
    memory.out_size += *done;
    return FRISBEE_OK;
}

static void memory_close(void *context) {
    (void)context;
    memory.closed++;
}

static frisbee_transport memory_transport(void) {
    frisbee_transport io;
    memset(&io, 0, sizeof io);
    memset(&memory, 0, sizeof memory);
    io.read = memory_read;
    io.write = memory_write;
    io.close = memory_close;
    return io;
}

static const char switching[] = "HTTP/1.1 101 Switching\r\n";

static frisbee_result switch_to_packets(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length,
                                        size_t *used, size_t *need) {
    frisbee_span span;
    (void)state, (void)data, (void)need;
    span.data = switching;
    span.length = sizeof switching - 1;
    *used = length;
    CHECK_EQ(frisbee_write(pool, conn, &span, 1, NULL, NULL), FRISBEE_OK);
    return frisbee_upgrade(pool, conn, FRISBEE_HIJACK_NOW, NULL);
}

static void raw_output_leaves_unchanged_before_the_packets_that_follow_it(void) {
    static const frisbee_protocol switches = {NULL, switch_to_packets, NULL, NULL, NULL};
    int round;
    begin();
    for (round = 0; round < 4; round++) { // the wire of the description, and that of the peer: the same or not
        const int ours = (round & 1) ? 0 : 1, theirs = (round >> 1) ? !ours : ours;
        struct record seen;
        frisbee_conn_desc desc = quiet(&seen);
        frisbee_transport io = memory_transport();
        frisbee_pool *pool = timed_pool(0);
        frisbee_conn conn;
        uint8_t reply[16];
        size_t n = put_packet(reply, ours, ECHO, 7, "x", 1), raw = sizeof switching - 1;
        memset(&seen, 0, sizeof seen);
        desc.role = FRISBEE_ACCEPTOR;
        desc.protocol = &switches;
        desc.wire = ours ? FRISBEE_WIRE_AUTO : FRISBEE_WIRE_V0;
        CHECK_EQ(frisbee_attach(pool, &io, &desc, NULL, 0, &conn), FRISBEE_OK);
        turns(2);
        memory.blocked = true;
        memcpy(memory.in, "GET", memory.in_size = 3);
        pass(2, 1);
        CHECK_EQ(frisbee_queued(pool, conn), raw);
        memory.in_size = put_packet(memory.in, theirs, ECHO, 7, "x", 1);
        pass(2, 1);
        memory.blocked = false;
        pass(4, 1);
        if (ours == theirs) {
            CHECK_EQ(frisbee_queued(pool, conn), 0);
            CHECK_EQ(memory.out_size, raw + n);
            CHECK(memcmp(memory.out, switching, raw) == 0 && memcmp(memory.out + raw, reply, n) == 0);
        } else if (ours) CHECK(seen.finals == 1 && seen.info.reason == FRISBEE_MALFORMED);
        else CHECK(memory.out_size == raw && memcmp(memory.out, switching, raw) == 0); // to v0 it is the head of a long packet
        drop_pool(pool);
        CHECK_EQ(memory.closed, 1);
    }
    end();
}

static void upgrade_stock(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    CHECK_EQ(frisbee_upgrade(pool, packet->from.conn, FRISBEE_HIJACK_STOCK, (const frisbee_protocol *)user), FRISBEE_OK);
}

static void a_protocol_hears_an_end_that_came_before_it(void) {
    int with_end;
    begin();
    for (with_end = 0; with_end < 2; with_end++) {
        struct line l;
        frisbee_route route = {ECHO, upgrade_stock, NULL};
        frisbee_conn_desc desc = quiet(NULL);
        frisbee_pool *pool = timed_pool(0);
        route.user = (void *)(with_end ? &counting : &counting_without_end);
        desc.routes = &route;
        desc.route_count = 1;
        memset(&spoken, 0, sizeof spoken);
        adopt(&l, pool, FRISBEE_ACCEPTOR, &desc);
        say(l.fd, ECHO, 1);
        turns(3);
        CHECK_EQ(send(l.fd, "\0\17\0", 3, MSG_NOSIGNAL), 3); // raw bytes that begin like a PING
        turn(0);
        shutdown(l.fd, SHUT_WR);
        pass(60000, 1000);
        CHECK_EQ(spoken.bytes, 3);
        CHECK_EQ(spoken.ends, with_end);
        CHECK_EQ(l.seen.finals, 1);
        CHECK_EQ(l.seen.info.reason, with_end ? FRISBEE_OK : FRISBEE_CLOSED);
        close(l.fd);
        drop_pool(pool);
    }
    end();
}

static void an_upgrade_reads_on_where_a_pause_had_stopped(void) {
    struct line l;
    frisbee_pool *pool;
    begin();
    pool = timed_pool(0);
    memset(&spoken, 0, sizeof spoken);
    adopt(&l, pool, FRISBEE_ACCEPTOR, NULL);
    CHECK_EQ(frisbee_pause(pool, l.conn, true), FRISBEE_OK);
    CHECK_EQ(send(l.fd, "raw bytes", 9, MSG_NOSIGNAL), 9);
    close(l.fd);
    turns(2); // the poller tells of the hang-up, and must not go on doing so
    CHECK_EQ(frisbee_upgrade(pool, l.conn, FRISBEE_HIJACK_NOW, &counting), FRISBEE_OK);
    pass(60000, 1000);
    CHECK_EQ(spoken.bytes, 9);
    CHECK_EQ(spoken.ends, 1);
    CHECK_EQ(l.seen.finals, 1);
    end();
}

// >>memory

static int starve_after; // so many allocations more succeed; below 0: all

static void *starved_allocate(void *context, size_t size) {
    if (starve_after == 0) return NULL;
    if (starve_after > 0) starve_after--;
    return held_allocate(context, size);
}

static void *starved_resize(void *context, void *block, size_t old_size, size_t size) {
    if (starve_after == 0) return NULL;
    if (starve_after > 0) starve_after--;
    return held_resize(context, block, old_size, size);
}

static void a_connection_that_finds_no_memory_was_never_there(void) {
    enum { ATTACH, ADOPT, CONNECT, WAYS };
    int way, allowed;
    begin();
    for (way = 0; way < WAYS; way++) {
        frisbee_result result = FRISBEE_NO_MEMORY;
        for (allowed = 0; allowed < 32 && result == FRISBEE_NO_MEMORY; allowed++) {
            struct record seen;
            frisbee_conn_desc desc = quiet(&seen);
            frisbee_transport io = memory_transport();
            frisbee_pool_desc pool_desc;
            frisbee_pool *pool = NULL;
            frisbee_stats stats;
            int fds[2];
            memset(&seen, 0, sizeof seen);
            memset(&pool_desc, 0, sizeof pool_desc);
            pool_desc.allocator.allocate = starved_allocate;
            pool_desc.allocator.resize = starved_resize;
            pool_desc.allocator.release = held_release;
            desc.role = FRISBEE_CONNECTOR;
            desc.protocol = &counting;
            starve_after = -1;
            CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
            CHECK_EQ(frisbee_pool_create(&pool_desc, &pool), FRISBEE_OK);
            starve_after = allowed;
            if (way == ATTACH) result = frisbee_attach(pool, &io, &desc, "prefill", 7, NULL);
            else if (way == ADOPT) result = frisbee_adopt(pool, fds[0], &desc, "prefill", 7, NULL);
            else result = frisbee_connect(pool, NOWHERE, &desc, NULL);
            starve_after = -1;
            CHECK(frisbeei_check(pool));
            CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
            CHECK_EQ(stats.conns, result == FRISBEE_OK);
            frisbee_poll(pool, 0);
            frisbee_pool_destroy(pool);
            CHECK_EQ(seen.closed, result == FRISBEE_OK);
            CHECK_EQ(memory.closed, way == ATTACH && result == FRISBEE_OK);
            if (way != ADOPT || result != FRISBEE_OK) CHECK(close(fds[0]) == 0); // still the test's
            close(fds[1]);
        }
        CHECK_EQ(result, FRISBEE_OK);
        CHECK(allowed > 3); // some have failed before
    }
    end();
}

enum { BORROWED = 100000 };
static struct { int released, disordered; } borrowed;
static char borrowed_marks[BORROWED];

static void released_in_turn(void *user) {
    borrowed.disordered += (char *)user != borrowed_marks + borrowed.released;
    borrowed.released++;
}

static void many_releases_come_in_order_and_take_time_in_proportion(void) {
    struct line l;
    frisbee_span span = {"12345678", 8};
    frisbee_pool *pool;
    uint64_t cpu;
    int i, sent = 0;
    begin();
    pool = new_pool(NULL);
    memset(&borrowed, 0, sizeof borrowed);
    adopt(&l, pool, FRISBEE_CONNECTOR, NULL);
    for (i = 0; i < BORROWED; i++)
        sent += frisbee_send_spans(pool, l.conn, SWALLOW, 1, &span, 1, released_in_turn, borrowed_marks + i) == FRISBEE_OK;
    CHECK_EQ(sent, BORROWED);
    frisbee_close(pool, l.conn, FRISBEE_CLOSE_NOW);
    cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    turn(0);
    CHECK(clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu < 5000); // a few ms; where each walks the list of all, many seconds
    CHECK_EQ(borrowed.released, BORROWED);
    CHECK_EQ(borrowed.disordered, 0);
    close(l.fd);
    end();
}

static void reply_in_a_span(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    frisbee_span span = {"x", 1};
    *(int *)user += frisbee_reply_spans(pool, &packet->from, &span, 1, NULL, NULL) == FRISBEE_OK;
}

static void many_replies_that_wait_take_time_in_proportion(void) {
    enum { REPLIES = 100000, AHEAD = 3 * MEBIBYTE };
    static uint8_t requests[REPLIES * 10], ahead[AHEAD], in[10 + AHEAD + REPLIES * 11], *reply = in + 10 + AHEAD;
    struct line l;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_route route = {ECHO, reply_in_a_span, NULL};
    frisbee_pool *pool;
    uint64_t cpu;
    size_t n = 0;
    int i, replied = 0;
    begin();
    route.user = &replied;
    desc.routes = &route;
    desc.route_count = 1;
    desc.high_water = 2 * MEBIBYTE; // less than waits, and more than the replies, so that it reads on
    pool = new_pool(NULL);
    adopt(&l, pool, FRISBEE_ACCEPTOR, &desc);
    CHECK_EQ(frisbee_send(pool, l.conn, SWALLOW, 1, ahead, sizeof ahead), FRISBEE_OK);
    turn(0);
    for (i = 0; i < REPLIES; i++) n += put_packet(requests + n, 1, ECHO, 1, NULL, 0);
    cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    CHECK_EQ(raw_send(l.fd, requests, n), n);
    turns(4);
    CHECK(frisbee_queued(pool, l.conn) > desc.high_water + REPLIES * 11 / 2);
    CHECK(clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu < 5000); // some 100 ms; where each walks the queue of all, many seconds
    CHECK_EQ(replied, REPLIES);
    CHECK_EQ(raw_receive(l.fd, in, sizeof in), sizeof in);
    for (i = 0; i < REPLIES; i++, reply += 11) replied -= reply[5] == ECHO && reply[10] == 'x';
    CHECK_EQ(replied, 0);
    close(l.fd);
    end();
}

static int let_go;

// The first packet pauses, the next one closes, and many have been kept behind it.
static void pause_then_close(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    static char much[3 * MEBIBYTE]; // more than the peer, which does not read, lets out
    frisbee_span span;
    span.data = much;
    span.length = sizeof much;
    record_packet(pool, packet, user);
    if (((struct record *)user)->packets == 1) CHECK_EQ(frisbee_pause(pool, packet->from.conn, true), FRISBEE_OK);
    else {
        CHECK_EQ(frisbee_send_spans(pool, packet->from.conn, SWALLOW, 1, &span, 1, count_release, &let_go), FRISBEE_OK);
        CHECK_EQ(frisbee_close(pool, packet->from.conn, FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
    }
}

static void a_connection_that_drains_keeps_no_input(void) {
    enum { PACKETS = 5000, KEPT = PACKETS * 10 };
    static const frisbee_events events = {record_open, pause_then_close, NULL, NULL, record_close};
    static uint8_t all[KEPT];
    struct line l;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_stats stats;
    frisbee_pool *pool;
    size_t n = 0;
    int i;
    begin();
    pool = timed_pool(0);
    let_go = 0;
    desc.events = &events;
    adopt(&l, pool, FRISBEE_ACCEPTOR, &desc);
    for (i = 0; i < PACKETS; i++) n += put_packet(all + n, 1, NOBODY, 1, NULL, 0);
    CHECK_EQ(send(l.fd, all, n, MSG_NOSIGNAL), n);
    turn(0);
    CHECK_EQ(frisbee_conn_stats(pool, l.conn, &stats), FRISBEE_OK);
    CHECK(stats.memory > KEPT / 2); // while it pauses
    CHECK_EQ(frisbee_pause(pool, l.conn, false), FRISBEE_OK);
    turns(5);
    CHECK_EQ(l.seen.packets, 2);
    CHECK_EQ(frisbee_conn_stats(pool, l.conn, &stats), FRISBEE_OK);
    CHECK(let_go == 0 && stats.memory < KEPT / 2); // what is borrowed does not count
    close(l.fd);
    end();
    CHECK_EQ(let_go, 1);
}

static struct { int asked; uint64_t token; } lookup;

static frisbee_result look_up(void *context, const char *host, uint64_t token) {
    (void)context;
    lookup.asked += strcmp(host, "name.invalid") == 0;
    lookup.token = token;
    return FRISBEE_OK;
}

// A look-up's thread may outlive the pool, and the block is then the user's: none is started.
static void a_fixed_block_is_left_alone_once_its_pool_is_destroyed(void) {
    int hook;
    begin();
    for (hook = 0; hook < 2; hook++) {
        struct record seen;
        frisbee_conn_desc desc = quiet(&seen);
        frisbee_pool_desc pool_desc;
        frisbee_pool *pool = NULL;
        memset(&seen, 0, sizeof seen);
        memset(&lookup, 0, sizeof lookup);
        memset(&pool_desc, 0, sizeof pool_desc);
        pool_desc.max_conns = 2;
        pool_desc.max_calls = 4;
        pool_desc.max_packet = 1000;
        pool_desc.queue_limit = 4000;
        pool_desc.memory_size = FRISBEE_POOL_BYTES(2, 4, 1000, 4000);
        pool_desc.memory = malloc(pool_desc.memory_size);
        if (hook) pool_desc.resolve = look_up;
        CHECK_EQ(frisbee_pool_create(&pool_desc, &pool), FRISBEE_OK);
        CHECK_EQ(frisbee_connect(pool, "name.invalid:80", &desc, NULL), hook ? FRISBEE_OK : FRISBEE_UNSUPPORTED);
        CHECK_EQ(frisbee_connect(pool, NOWHERE, &desc, NULL), FRISBEE_OK); // needs none
        frisbee_poll(pool, 0);
        CHECK_EQ(lookup.asked, hook);
        CHECK_EQ(seen.finals, 1);
        if (hook) CHECK_EQ(frisbee_resolved(pool, lookup.token, NULL, 0), FRISBEE_OK);
        frisbee_poll(pool, 0);
        CHECK_EQ(seen.finals, 1 + hook);
        frisbee_pool_destroy(pool);
        free(pool_desc.memory);
    }
    end();
}

// One has begun a packet, the other spends the budget, and a heartbeat is due: the last look into the socket is for what fits.
static void a_fixed_block_reads_no_more_than_it_can_keep(void) {
    enum { LENGTH = 1000, PACKET = 10 + LENGTH, BEGUN = 900 };
    struct line spender, begun;
    uint8_t both[2 * PACKET];
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_pool_desc pool_desc;
    frisbee_pool *pool = NULL;
    int i;
    begin();
    memset(&pool_desc, 0, sizeof pool_desc);
    memset(both, 0, sizeof both);
    for (i = 0; i < 2; i++) put_claim(both + i * PACKET, 1, NOBODY, 1, LENGTH, NULL, 0);
    pool_desc.now_us = virtual_now;
    pool_desc.budget_packets = 1;
    pool_desc.max_conns = pool_desc.max_calls = 4;
    pool_desc.max_packet = LENGTH;
    pool_desc.queue_limit = 4 * LENGTH;
    pool_desc.memory_size = FRISBEE_POOL_BYTES(4, 4, LENGTH, 4 * LENGTH);
    pool_desc.memory = malloc(pool_desc.memory_size);
    clock_us = 1000000;
    CHECK_EQ(frisbee_pool_create(&pool_desc, &pool), FRISBEE_OK);
    live[0] = pool;
    desc.heartbeat_ms = 0; // the default: 500, and 5000 for the timeout
    adopt(&spender, pool, FRISBEE_ACCEPTOR, &desc);
    adopt(&begun, pool, FRISBEE_ACCEPTOR, &desc);
    CHECK_EQ(send(begun.fd, both, BEGUN, MSG_NOSIGNAL), BEGUN);
    turns(2);
    for (i = 0; i < 3; i++) say(spender.fd, NOBODY, 1);
    CHECK_EQ(send(begun.fd, both + BEGUN, sizeof both - BEGUN, MSG_NOSIGNAL), sizeof both - BEGUN);
    pass(5100, 5100);
    pass(10, 1);
    CHECK_EQ(spender.seen.packets, 3);
    CHECK_EQ(begun.seen.packets, 2);
    CHECK_EQ(begun.seen.bytes, 2 * LENGTH);
    CHECK(spender.seen.closed == 0 && begun.seen.closed == 0);
    close(spender.fd), close(begun.fd);
    drop_pool(pool);
    free(pool_desc.memory);
    end();
}

static void decode_never_claims_less_than_the_packet_takes(void) {
    uint8_t head[16];
    frisbee_packet packet;
    size_t used = 0, n = put_claim(head, 1, ECHO, 1, 0xFFFFFFF8u, NULL, 0);
    frisbee_result result = frisbee_decode(FRISBEE_WIRE_V1, head, n, (size_t)-1, &packet, &used);
    if (sizeof(size_t) == 4) CHECK_EQ(result, FRISBEE_TOO_LARGE); // header and payload together cannot be counted
    else CHECK(result == FRISBEE_AGAIN && used == (size_t)0xFFFFFFF8u + 10);
}

int main(int argc, char **argv) {
    watchdog(200);
    RUN(a_cancel_in_on_reply_leaves_nothing_behind);
    RUN(call_wait_survives_the_end_of_its_connection_and_of_its_pool);
    RUN(a_stop_before_call_wait_is_for_the_next_run);
    RUN(a_stop_ends_a_call_wait_that_waits_for_a_session);
    RUN(a_stop_for_the_next_run_takes_no_sleep_from_poll);
    RUN(a_look_up_that_has_not_begun_takes_no_answer);
    RUN(a_peer_that_left_is_heard_to_the_end);
    RUN(a_far_timeout_hides_no_near_one_and_does_not_come_at_once);
    RUN(a_reply_that_lies_in_the_socket_is_read_before_its_call_times_out);
    RUN(bytes_that_lie_in_the_socket_are_read_before_their_connection_times_out);
    RUN(idle_ms_counts_before_the_first_byte);
    RUN(a_peer_is_not_dead_while_a_budget_holds_its_packets_back);
    RUN(a_budget_favours_nobody);
    RUN(no_longest_pause_is_not_the_end_of_a_connection);
    RUN(a_role_outlives_its_session);
    RUN(a_shutdown_without_limit_ends);
    RUN(raw_output_leaves_unchanged_before_the_packets_that_follow_it);
    RUN(a_protocol_hears_an_end_that_came_before_it);
    RUN(an_upgrade_reads_on_where_a_pause_had_stopped);
    RUN(a_connection_that_finds_no_memory_was_never_there);
    RUN(many_releases_come_in_order_and_take_time_in_proportion);
    RUN(many_replies_that_wait_take_time_in_proportion);
    RUN(a_connection_that_drains_keeps_no_input);
    RUN(a_fixed_block_is_left_alone_once_its_pool_is_destroyed);
    RUN(a_fixed_block_reads_no_more_than_it_can_keep);
    RUN(decode_never_claims_less_than_the_packet_takes);
    return check_report("loop_faults");
}
