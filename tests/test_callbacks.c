// test_callbacks.c - promise 5: any function from any callback. Every kind of callback does every action, and pairs of them; afterwards
// each call that was accepted has had exactly one on_reply, each connection exactly one final on_close behind everything else, each hijack
// its on_hijacked, each borrowed payload its release, each task its run, and no memory and no descriptor is left. Over real sockets, under
// a virtual clock; built once for each poller. What it finds, it finds best under AddressSanitizer.
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "net.h"

// >>the table: kinds of callbacks, and what is done in them

#define KINDS(X)                                                                                                             \
    X(on_open) X(accepted_on_open) X(handler) X(on_packet) X(on_writable) X(on_end)                                          \
    X(reply_ok) X(reply_timed_out) X(reply_cancelled) X(reply_at_close) X(reply_at_peers_close)                              \
    X(on_hijacked) X(on_hijacked_that_failed) X(on_close) X(on_close_by_peer) X(on_close_before_a_retry)                     \
    X(release) X(release_at_close) X(task) X(protocol_start) X(protocol_input) X(protocol_end) X(protocol_stop)              \
    X(wrap) X(resolve) X(on_close_at_destroy) X(reply_at_destroy) X(protocol_stop_at_destroy) X(release_at_destroy)

#define ACTIONS(X)                                                                                                           \
    X(nothing) X(close_now) X(close_flush) X(close_other_now) X(close_other_flush) X(destroy) X(send) X(send_other)          \
    X(send_much) X(send_spans) X(send_spans_other) X(reserve_and_send) X(write_raw) X(call_own) X(call_other)                \
    X(cancel_own) X(cancel_other) X(hijack_fenced) X(hijack_stock) X(hijack_now) X(hijack_other_fenced)                      \
    X(hijack_other_stock) X(hijack_other_now) X(upgrade_fenced) X(upgrade_now) X(upgrade_other_now) X(packets_again)         \
    X(pause) X(pause_and_resume) X(pause_other) X(finish) X(finish_other) X(reply_twice) X(defer) X(connect_new)             \
    X(adopt_new) X(block) X(listener_close) X(listen_new) X(shut_down) X(stop_run) X(set_user) X(stats) X(flush) X(post)     \
    X(change_handlers)

#define AS_KIND(name) IN_##name,
#define AS_ACTION(name) DO_##name,
#define AS_TEXT(name) #name,
enum kind { KINDS(AS_KIND) KIND_COUNT };
enum action { ACTIONS(AS_ACTION) ACTION_COUNT };
static const char *const kind_names[] = {KINDS(AS_TEXT) ""};
static const char *const action_names[] = {ACTIONS(AS_TEXT) ""};

// What follows an action in the same callback: under AddressSanitizer, which is slower but sees most, every action; else these.
#ifdef __SANITIZE_ADDRESS__
static const enum action seconds[] = {ACTIONS(AS_ACTION)};
#else
static const enum action seconds[] = {DO_nothing, DO_close_now, DO_destroy, DO_send, DO_call_own, DO_hijack_now, DO_upgrade_now, DO_shut_down};
#endif

// >>the world: a pool that is tested, and one that plays the peers

enum { TICKETS = 64, SEEN = 64 };

struct seen { // a connection of the tested pool, by its handle
    uint64_t id;
    int finals, hijack_owed, expected; // expected: the test knows that it exists, so on_close must come
};

struct ticket { // a call
    uint64_t conn;
    int accepted, done, acts;
};

static struct {
    enum kind kind;
    enum action first, second;
    int armed, acted, acting, destroyed, polling;
    uint64_t now;
    frisbee_pool *pool, *peer;
    frisbee_listener listener;
    char address[128], peer_address[128], text[128];
    frisbee_conn self, other, peer_self, peer_other, accepted_at_peer;
    frisbee_call_id own_call, other_call;
    frisbee_remote *remote;
    const frisbee_packet *packet; // of the handler that runs
    struct seen seen[SEEN];
    struct ticket tickets[TICKETS];
    int seen_count, ticket_count;
    int owed, released, posted, ran, started, stopped, opened;
    int raw[8], raw_count; // the test's own ends
} w;

static uint8_t payload[MEBIBYTE];

static uint64_t virtual_now(void *context) {
    (void)context;
    return w.now;
}

static struct seen *see(frisbee_conn conn) { // anything but a final on_close: there must be none before
    int i;
    for (i = 0; i < w.seen_count && w.seen[i].id != conn.id; i++) {}
    if (i == w.seen_count) {
        if (!CHECK(w.seen_count < SEEN)) {
            fprintf(stderr, "    in %s: %s, then %s\n", kind_names[w.kind], action_names[w.first], action_names[w.second]);
            exit(1);
        }
        memset(&w.seen[w.seen_count], 0, sizeof w.seen[0]);
        w.seen[w.seen_count++].id = conn.id;
    }
    CHECK(conn.id != 0);
    CHECK_EQ(w.seen[i].finals, 0);
    return &w.seen[i];
}

static void expect_conn(frisbee_result result, frisbee_conn conn) {
    if (result == FRISBEE_OK) see(conn)->expected = 1;
}

static void act(enum kind kind, frisbee_pool *pool, frisbee_conn conn);

// >>callbacks of the tested pool

static void on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    see(conn);
    w.opened++;
    CHECK(user == (void *)&w);
    if (conn.id == w.self.id) act(IN_on_open, pool, conn);
    else if (conn.id != w.other.id) act(IN_accepted_on_open, pool, conn);
}

static void on_packet(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    see(packet->from.conn);
    act(IN_on_packet, pool, packet->from.conn);
}

static void on_writable(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)user;
    see(conn);
    act(IN_on_writable, pool, conn);
}

static void on_end(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)user;
    see(conn);
    act(IN_on_end, pool, conn);
    frisbee_close(pool, conn, FRISBEE_CLOSE_FLUSH);
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    struct seen *seen = see(conn);
    frisbee_stats stats;
    (void)user;
    CHECK_EQ(seen->hijack_owed, 0);
    CHECK(info->reason != FRISBEE_AGAIN);
    CHECK_EQ(frisbee_conn_stats(pool, conn, &stats), FRISBEE_OK); // the getters still work
    if (conn.id == w.self.id) {
        act(IN_on_close, pool, conn);
        act(IN_on_close_by_peer, pool, conn);
        act(IN_on_close_at_destroy, pool, conn);
        if (info->retry_ms >= 0) act(IN_on_close_before_a_retry, pool, conn);
    }
    if (info->retry_ms == FRISBEE_NEVER) seen->finals++;
}

static const frisbee_events events = {on_open, on_packet, on_writable, on_end, on_close};
static const frisbee_events events_without_end = {on_open, on_packet, on_writable, NULL, on_close};

static void handler(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    see(packet->from.conn);
    w.packet = packet;
    act(IN_handler, pool, packet->from.conn);
    w.packet = NULL;
    frisbee_reply(pool, &packet->from, packet->data, packet->length); // perhaps not any more
}

static const frisbee_route routes[] = {{ECHO, handler, NULL}};

static void on_reply(frisbee_pool *pool, frisbee_call_id call_id, const frisbee_outcome *outcome, void *user) {
    struct ticket *t = (struct ticket *)user;
    frisbee_conn conn;
    (void)call_id;
    conn.id = t->conn;
    see(conn); // on_close comes behind it
    CHECK(t->accepted);
    CHECK_EQ(t->done, 0);
    t->done++;
    if (outcome->result == FRISBEE_OK) CHECK(outcome->sent);
    if (!t->acts) return;
    act(IN_reply_ok, pool, conn);
    act(IN_reply_timed_out, pool, conn);
    act(IN_reply_cancelled, pool, conn);
    act(IN_reply_at_close, pool, conn);
    act(IN_reply_at_peers_close, pool, conn);
    act(IN_reply_at_destroy, pool, conn);
}

static void on_hijacked(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    struct seen *seen = see(conn);
    (void)user;
    CHECK_EQ(seen->hijack_owed, 1);
    seen->hijack_owed = 0;
    act(hijacked->result == FRISBEE_OK ? IN_on_hijacked : IN_on_hijacked_that_failed, pool, conn);
    CHECK((hijacked->result == FRISBEE_OK) == (hijacked->socket != FRISBEE_NO_SOCKET || hijacked->io.close != NULL));
    if (hijacked->result != FRISBEE_OK) return;
    if (hijacked->unread.length) CHECK(hash_of(hijacked->unread.data, hijacked->unread.length) != 0); // all of it can be read
    if (hijacked->unsent.length) CHECK(hash_of(hijacked->unsent.data, hijacked->unsent.length) != 0);
    if (hijacked->socket != FRISBEE_NO_SOCKET) close((int)hijacked->socket);
    else hijacked->io.close(hijacked->io.context);
}

static void on_release(void *user) {
    (void)user;
    w.released++;
    act(IN_release, w.pool, w.self);
    act(IN_release_at_close, w.pool, w.self);
    act(IN_release_at_destroy, w.pool, w.self);
}

static void run_task(frisbee_task *task, frisbee_pool *pool) {
    w.ran++;
    free(task);
    if (pool) act(IN_task, pool, w.self);
}

static frisbee_result protocol_start(frisbee_pool *pool, frisbee_conn conn, void *user, void **state) {
    see(conn);
    w.started++;
    *state = user;
    act(IN_protocol_start, pool, conn);
    return FRISBEE_OK;
}

static frisbee_result protocol_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used,
                                     size_t *need) {
    (void)need;
    see(conn);
    CHECK(state == (void *)&w && w.started > w.stopped);
    act(IN_protocol_input, pool, conn);
    CHECK(hash_of(data, length) != 0); // the input outlives what was done
    *used = length > 1 ? length / 2 : length;
    return FRISBEE_OK;
}

static void protocol_end(frisbee_pool *pool, frisbee_conn conn, void *state) {
    (void)state;
    see(conn);
    act(IN_protocol_end, pool, conn);
    frisbee_close(pool, conn, FRISBEE_CLOSE_FLUSH);
}

static void protocol_stop(frisbee_pool *pool, frisbee_conn conn, void *state) {
    see(conn);
    w.stopped++;
    CHECK(state == (void *)&w);
    act(IN_protocol_stop, pool, conn);
    act(IN_protocol_stop_at_destroy, pool, conn);
}

static const frisbee_protocol protocol = {protocol_start, protocol_input, protocol_end, protocol_stop, &w};

static frisbee_result wrap(frisbee_pool *pool, frisbee_conn conn, frisbee_transport *io, void *user) {
    (void)user;
    see(conn);
    CHECK(io->close != NULL);
    act(IN_wrap, pool, conn);
    return FRISBEE_OK;
}

static frisbee_result resolve(void *context, const char *host, uint64_t token) {
    (void)context;
    (void)host;
    (void)token; // never answered
    act(IN_resolve, w.pool, w.self);
    return FRISBEE_OK;
}

// >>actions

// Local sockets, so that thousands of scenarios do not fill the system with ports that rest.
static const char *local_address(const char *name) {
    static char address[128];
    const char *where = getenv("TMPDIR");
    snprintf(address, sizeof address, "unix:%.40s/frisbee_callbacks_%s_%ld", where && *where ? where : "/tmp", name, (long)getpid());
    return address;
}

static frisbee_conn_desc plain_desc(void) {
    frisbee_conn_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.user = &w;
    desc.events = &events;
    desc.routes = routes;
    desc.route_count = sizeof routes / sizeof *routes;
    desc.heartbeat_ms = FRISBEE_NEVER;
    desc.open_ms = desc.packet_ms = desc.connect_ms = 1000;
    desc.high_water = 4000;
    desc.low_water = 1000;
    desc.queue_limit = 2 * MEBIBYTE;
    desc.max_packet = MEBIBYTE;
    return desc;
}

static frisbee_result make_call(frisbee_pool *pool, frisbee_conn conn, uint16_t operation, int32_t timeout_ms, int acts, frisbee_call_id *id) {
    struct ticket *t = &w.tickets[w.ticket_count];
    frisbee_call_desc desc;
    frisbee_result result;
    if (!CHECK(w.ticket_count < TICKETS)) exit(1);
    w.ticket_count++;
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = timeout_ms;
    desc.on_reply = on_reply;
    desc.user = t;
    t->conn = conn.id;
    t->acts = acts;
    result = frisbee_call(pool, conn, operation, payload, 40, &desc, id);
    t->accepted = result == FRISBEE_OK;
    CHECK_EQ(t->done, 0); // never inside the call
    return result;
}

static void lend(frisbee_pool *pool, frisbee_conn conn, size_t length) {
    frisbee_span spans[2];
    int before = w.released;
    spans[0].data = payload;
    spans[0].length = 7;
    spans[1].data = payload + 7;
    spans[1].length = length - 7;
    if (frisbee_send_spans(pool, conn, NOBODY, 1, spans, 2, on_release, NULL) == FRISBEE_OK) w.owed++;
    CHECK_EQ(w.released, before);
}

static void hijack(frisbee_pool *pool, frisbee_conn conn, frisbee_hijack_how how) {
    frisbee_result result = frisbee_hijack(pool, conn, how, 500, on_hijacked, NULL);
    if (result == FRISBEE_OK) see(conn)->hijack_owed++;
}

// Both ends of a local pair: one for the tested pool, the other is the test's, or the peer pool's.
static frisbee_result adopt_pair(frisbee_pool *pool, const frisbee_conn_desc *given, int raw, frisbee_conn *conn, frisbee_conn *peer) {
    frisbee_conn_desc desc = *given;
    frisbee_result result;
    int fds[2];
    if (!CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0)) exit(1);
    set_nonblocking(fds[1]);
    desc.role = FRISBEE_CONNECTOR;
    result = frisbee_adopt(pool, fds[0], &desc, NULL, 0, conn);
    expect_conn(result, *conn);
    if (result != FRISBEE_OK) {
        close(fds[0]);
        close(fds[1]);
    } else if (raw) {
        if (!CHECK(w.raw_count < 8)) exit(1);
        w.raw[w.raw_count++] = fds[1];
    } else {
        desc = quiet(NULL);
        desc.events = NULL;
        desc.role = FRISBEE_ACCEPTOR;
        CHECK_EQ(frisbee_adopt(w.peer, fds[1], &desc, NULL, 0, peer), FRISBEE_OK);
    }
    return result;
}

static void answer(frisbee_pool *pool, int later) {
    frisbee_origin origin;
    if (!w.packet) return;
    origin = w.packet->from;
    if (later && frisbee_defer(pool, w.packet, &origin) != FRISBEE_OK) return;
    if (frisbee_reply(pool, &origin, payload, 10) == FRISBEE_OK) {
        frisbee_result again = frisbee_reply(pool, &origin, payload, 10);
        CHECK(again == FRISBEE_INVALID || again == FRISBEE_CLOSED);
    }
}

static void perform(enum action action, frisbee_pool *pool, frisbee_conn self) {
    frisbee_conn_desc desc = plain_desc();
    frisbee_conn conn = self;
    frisbee_listener listener;
    frisbee_outcome outcome;
    frisbee_stats stats;
    frisbee_result result;
    frisbee_task *task;
    void *room = NULL;
    int i;
    switch (action) {
    case DO_nothing: break;
    case DO_close_now: frisbee_close(pool, self, FRISBEE_CLOSE_NOW); break;
    case DO_close_flush: frisbee_close(pool, self, FRISBEE_CLOSE_FLUSH); break;
    case DO_close_other_now: frisbee_close(pool, w.other, FRISBEE_CLOSE_NOW); break;
    case DO_close_other_flush: frisbee_close(pool, w.other, FRISBEE_CLOSE_FLUSH); break;
    case DO_destroy:
        frisbee_pool_destroy(pool);
        frisbee_pool_destroy(pool);
        w.destroyed = 1;
        break;
    case DO_send: frisbee_send(pool, self, NOBODY, 1, payload, 100); break;
    case DO_send_other: frisbee_send(pool, w.other, NOBODY, 1, payload, 100); break;
    case DO_send_much: // to the limit, in copies that are offered to the socket at once
        for (i = 0; i < 40 && frisbee_send(pool, self, NOBODY, 1, payload, 300000) == FRISBEE_OK; i++) {}
        CHECK(i < 40);
        break;
    case DO_send_spans: lend(pool, self, 70000); break;
    case DO_send_spans_other: lend(pool, w.other, 100); break;
    case DO_reserve_and_send:
        if (frisbee_reserve(pool, self, 5000, &room) != FRISBEE_OK) break;
        memset(room, 1, 5000);
        frisbee_send(pool, self, NOBODY, 1, room, 4000);
        break;
    case DO_write_raw: {
        frisbee_span span;
        span.data = payload;
        span.length = 500;
        frisbee_write(pool, self, &span, 1, NULL, NULL);
        if (frisbee_write(pool, self, &span, 1, on_release, NULL) == FRISBEE_OK) w.owed++;
        break;
    }
    case DO_call_own:
        make_call(pool, self, ECHO, 0, 0, NULL);
        make_call(pool, self, SWALLOW, 3, 0, NULL);
        break;
    case DO_call_other: make_call(pool, w.other, ECHO, 0, 0, NULL); break;
    case DO_cancel_own:
        frisbee_cancel(pool, w.own_call);
        CHECK_EQ(frisbee_cancel(pool, w.own_call), FRISBEE_CLOSED);
        break;
    case DO_cancel_other: frisbee_cancel(pool, w.other_call); break;
    case DO_hijack_fenced: hijack(pool, self, FRISBEE_HIJACK_FENCED); break;
    case DO_hijack_stock: hijack(pool, self, FRISBEE_HIJACK_STOCK); break;
    case DO_hijack_now: hijack(pool, self, FRISBEE_HIJACK_NOW); break;
    case DO_hijack_other_fenced: hijack(pool, w.other, FRISBEE_HIJACK_FENCED); break;
    case DO_hijack_other_stock: hijack(pool, w.other, FRISBEE_HIJACK_STOCK); break;
    case DO_hijack_other_now: hijack(pool, w.other, FRISBEE_HIJACK_NOW); break;
    case DO_upgrade_fenced: frisbee_upgrade(pool, self, FRISBEE_HIJACK_FENCED, &protocol); break;
    case DO_upgrade_now: frisbee_upgrade(pool, self, FRISBEE_HIJACK_NOW, &protocol); break;
    case DO_upgrade_other_now: frisbee_upgrade(pool, w.other, FRISBEE_HIJACK_NOW, &protocol); break;
    case DO_packets_again: frisbee_upgrade(pool, self, FRISBEE_HIJACK_NOW, NULL); break;
    case DO_pause: frisbee_pause(pool, self, true); break;
    case DO_pause_and_resume:
        frisbee_pause(pool, self, true);
        frisbee_pause(pool, self, false);
        break;
    case DO_pause_other: frisbee_pause(pool, w.other, true); break;
    case DO_finish: frisbee_finish(pool, self); break;
    case DO_finish_other: frisbee_finish(pool, w.other); break;
    case DO_reply_twice: answer(pool, 0); break;
    case DO_defer: answer(pool, 1); break;
    case DO_connect_new:
        result = frisbee_connect(pool, w.address, &desc, &conn);
        expect_conn(result, conn);
        if (result == FRISBEE_OK) make_call(pool, conn, ECHO, 0, 0, NULL);
        break;
    case DO_adopt_new: adopt_pair(pool, &desc, 1, &conn, NULL); break;
    case DO_block:
        result = frisbee_poll(pool, 0);
        CHECK(result == FRISBEE_BUSY || w.destroyed);
        CHECK(result != FRISBEE_OK);
        result = frisbee_run(pool);
        CHECK(result == FRISBEE_BUSY || (w.destroyed && result != FRISBEE_OK));
        result = frisbee_call_wait(pool, self, ECHO, NULL, 0, 100, &outcome);
        CHECK(result == FRISBEE_BUSY || (w.destroyed && result != FRISBEE_OK));
        break;
    case DO_listener_close: frisbee_listener_close(pool, w.listener); break;
    case DO_listen_new: frisbee_listen(pool, local_address("new"), &desc, &listener); break;
    case DO_shut_down: frisbee_shutdown(pool, 300); break;
    case DO_stop_run: frisbee_stop(pool); break;
    case DO_set_user:
        if (frisbee_set_user(pool, self, &outcome) == FRISBEE_OK) CHECK(frisbee_user(pool, self) == (void *)&outcome);
        if (frisbee_set_user(pool, self, &w) == FRISBEE_OK) CHECK(frisbee_user(pool, self) == (void *)&w);
        break;
    case DO_stats:
        if (frisbee_pool_stats(pool, &stats) == FRISBEE_OK) CHECK(stats.memory > 0);
        frisbee_conn_stats(pool, self, &stats);
        frisbee_conn_stats(pool, w.other, &stats);
        frisbee_queued(pool, self);
        frisbee_next_timeout(pool);
        frisbee_system_error(pool);
        frisbee_conn_address(pool, self, true, w.text, sizeof w.text);
        break;
    case DO_flush: frisbee_flush(pool); break;
    case DO_post:
        task = (frisbee_task *)calloc(1, sizeof *task);
        if (!CHECK(task != NULL)) exit(1);
        task->run = run_task;
        if (frisbee_remote_post(w.remote, task) == FRISBEE_OK) w.posted++;
        else free(task);
        break;
    case DO_change_handlers:
        frisbee_on(pool, 500, handler, NULL);
        frisbee_on(pool, 500, NULL, NULL);
        break;
    case ACTION_COUNT: break;
    }
}

static void act(enum kind kind, frisbee_pool *pool, frisbee_conn conn) {
    if (kind != w.kind || !w.armed || w.acted) return;
    CHECK_EQ(w.acting, 0); // callbacks do not nest
    CHECK(w.polling);
    w.acted = w.acting = 1;
    perform(w.first, pool, conn);
    perform(w.second, pool, conn);
    w.acting = 0;
}

// >>one scenario

static void step(int ms) { // one turn of both pools
    int was_destroyed = w.destroyed;
    w.now += (uint64_t)ms * 1000u;
    if (w.peer) frisbee_poll(w.peer, 0);
    if (!w.pool) return;
    w.polling = 1;
    if (frisbee_poll(w.pool, 0) == FRISBEE_DESTROYED) {
        CHECK(w.destroyed && !was_destroyed);
        w.pool = NULL;
    } else {
        CHECK(!w.destroyed);
        CHECK(frisbeei_check(w.pool));
    }
    w.polling = 0;
}

static void steps(int count, int ms) {
    while (count-- > 0) step(ms);
}

static void set_up(void) {
    frisbee_pool_desc desc;
    frisbee_conn_desc conn = plain_desc(), plain = plain_desc();
    frisbee_listener at_peer;
    int raw = w.kind == IN_protocol_start || w.kind == IN_protocol_input || w.kind == IN_protocol_end || w.kind == IN_protocol_stop ||
              w.kind == IN_protocol_stop_at_destroy;
    w.now = 1000000;
    memset(&desc, 0, sizeof desc);
    desc.allocator.allocate = held_allocate;
    desc.allocator.resize = held_resize;
    desc.allocator.release = held_release;
    desc.now_us = virtual_now;
    desc.resolve = resolve;
    desc.read_buffer = 16384; // a quicker test
    if (!CHECK_EQ(frisbee_pool_create(&desc, &w.pool), FRISBEE_OK) || !CHECK_EQ(frisbee_pool_create(&desc, &w.peer), FRISBEE_OK)) exit(1);
    w.remote = frisbee_remote_retain(w.pool);
    CHECK_EQ(frisbee_listen(w.pool, local_address("own"), &plain, &w.listener), FRISBEE_OK);
    CHECK_EQ(frisbee_listener_address(w.pool, w.listener, w.address, sizeof w.address), FRISBEE_OK);
    if (raw) conn.protocol = &protocol;
    if (w.kind == IN_wrap) conn.wrap = wrap;
    adopt_pair(w.pool, &plain, 0, &w.other, &w.peer_other);
    w.armed = w.kind == IN_on_open || w.kind == IN_wrap || w.kind == IN_protocol_start;
    if (w.kind == IN_on_close_before_a_retry) {
        frisbee_conn_desc serving = quiet(NULL);
        serving.events = NULL;
        conn.retry_min_ms = 10;
        conn.events = &events_without_end; // whose own close would be no reason to come back
        CHECK_EQ(frisbee_listen(w.peer, local_address("peer"), &serving, &at_peer), FRISBEE_OK);
        CHECK_EQ(frisbee_listener_address(w.peer, at_peer, w.peer_address, sizeof w.peer_address), FRISBEE_OK);
        CHECK_EQ(frisbee_connect(w.pool, w.peer_address, &conn, &w.self), FRISBEE_OK);
        expect_conn(FRISBEE_OK, w.self);
    } else adopt_pair(w.pool, &conn, raw, &w.self, &w.peer_self);
    CHECK_EQ(make_call(w.pool, w.other, SWALLOW, FRISBEE_NEVER, 0, &w.other_call), FRISBEE_OK);
    if (!raw) CHECK_EQ(make_call(w.pool, w.self, SWALLOW, FRISBEE_NEVER, 0, &w.own_call), FRISBEE_OK);
    if (!w.armed) {
        int i;
        for (i = 0; i < 200 && w.opened < 2; i++) step(0);
        CHECK_EQ(w.opened, 2);
        steps(2, 1);
    }
    w.armed = 1;
}

static void trigger(void) {
    frisbee_task *task;
    frisbee_call_id id;
    frisbee_conn conn;
    frisbee_conn_desc desc = plain_desc();
    int fd;
    switch (w.kind) {
    case IN_on_open:
    case IN_wrap:
    case IN_protocol_start: break;
    case IN_accepted_on_open:
        fd = raw_connect(w.address);
        w.raw[w.raw_count++] = fd;
        CHECK(send(fd, "\0\1\0\x0d\0\0\0\0", 8, MSG_NOSIGNAL) == 8); // a packet of v0
        break;
    case IN_handler: CHECK_EQ(frisbee_call(w.peer, w.peer_self, ECHO, payload, 30, NULL, NULL), FRISBEE_OK); // and packets behind it
    // falls through
    case IN_on_packet:
        CHECK_EQ(frisbee_send(w.peer, w.peer_self, NOBODY, 1, payload, 300), FRISBEE_OK);
        CHECK_EQ(frisbee_send(w.peer, w.peer_self, NOBODY, 2, payload, 2000), FRISBEE_OK);
        CHECK_EQ(frisbee_send(w.peer, w.peer_other, NOBODY, 3, payload, 10), FRISBEE_OK);
        break;
    case IN_on_writable:
        CHECK_EQ(frisbee_send(w.pool, w.self, NOBODY, 1, payload, MEBIBYTE), FRISBEE_OK);
        lend(w.pool, w.self, 5000);
        break;
    case IN_on_end: CHECK_EQ(frisbee_finish(w.peer, w.peer_self), FRISBEE_OK); break;
    case IN_reply_ok:
        CHECK_EQ(make_call(w.pool, w.self, ECHO, 0, 1, NULL), FRISBEE_OK);
        CHECK_EQ(make_call(w.pool, w.self, ECHO, 0, 0, NULL), FRISBEE_OK);
        break;
    case IN_reply_timed_out: CHECK_EQ(make_call(w.pool, w.self, SWALLOW, 2, 1, NULL), FRISBEE_OK); break;
    case IN_reply_cancelled:
        CHECK_EQ(make_call(w.pool, w.self, SWALLOW, 0, 1, &id), FRISBEE_OK);
        CHECK_EQ(frisbee_cancel(w.pool, id), FRISBEE_OK);
        break;
    case IN_reply_at_close:
    case IN_reply_at_peers_close:
        CHECK_EQ(make_call(w.pool, w.self, SWALLOW, 0, 1, NULL), FRISBEE_OK);
        CHECK_EQ(make_call(w.pool, w.self, SWALLOW, 0, 0, NULL), FRISBEE_OK);
        if (w.kind == IN_reply_at_close) frisbee_close(w.pool, w.self, FRISBEE_CLOSE_NOW);
        else frisbee_close(w.peer, w.peer_self, FRISBEE_CLOSE_NOW);
        break;
    case IN_on_hijacked:
        lend(w.pool, w.self, 60000);
        hijack(w.pool, w.self, FRISBEE_HIJACK_NOW);
        break;
    case IN_on_hijacked_that_failed:
        hijack(w.pool, w.self, FRISBEE_HIJACK_FENCED);
        frisbee_close(w.peer, w.peer_self, FRISBEE_CLOSE_NOW);
        break;
    case IN_on_close:
    case IN_protocol_stop: CHECK_EQ(frisbee_close(w.pool, w.self, FRISBEE_CLOSE_NOW), FRISBEE_OK); break;
    case IN_on_close_by_peer: CHECK_EQ(frisbee_close(w.peer, w.peer_self, FRISBEE_CLOSE_NOW), FRISBEE_OK); break;
    case IN_on_close_before_a_retry: frisbee_pool_destroy(w.peer), w.peer = NULL; break;
    case IN_release: lend(w.pool, w.self, 5000); break;
    case IN_release_at_close:
    case IN_release_at_destroy:
        CHECK_EQ(frisbee_send(w.pool, w.self, NOBODY, 1, payload, MEBIBYTE), FRISBEE_OK); // more than the socket takes
        lend(w.pool, w.self, 500000);
        lend(w.pool, w.self, 5000);
        if (w.kind == IN_release_at_close) CHECK_EQ(frisbee_close(w.pool, w.self, FRISBEE_CLOSE_NOW), FRISBEE_OK);
        break;
    case IN_task:
        task = (frisbee_task *)calloc(1, sizeof *task);
        if (!CHECK(task != NULL)) exit(1);
        task->run = run_task;
        CHECK_EQ(frisbee_remote_post(w.remote, task), FRISBEE_OK);
        w.posted++;
        break;
    case IN_protocol_input: CHECK(send(w.raw[0], "some bytes of no packet", 23, MSG_NOSIGNAL) == 23); break;
    case IN_protocol_end: shutdown(w.raw[0], SHUT_WR); break;
    case IN_resolve:
        CHECK_EQ(frisbee_connect(w.pool, "name.example:1", &desc, &conn), FRISBEE_OK);
        expect_conn(FRISBEE_OK, conn);
        break;
    case IN_on_close_at_destroy:
    case IN_reply_at_destroy:
    case IN_protocol_stop_at_destroy:
        if (w.kind == IN_reply_at_destroy) CHECK_EQ(make_call(w.pool, w.self, SWALLOW, 0, 1, NULL), FRISBEE_OK);
        break;
    case KIND_COUNT: break;
    }
    if (w.kind >= IN_on_close_at_destroy) { // the last kinds, all at destroy
        w.polling = 1;
        w.destroyed = 1;
        frisbee_pool_destroy(w.pool);
        w.polling = 0;
        w.pool = NULL;
    }
}

static void peer_hijacked(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    (void)pool;
    (void)conn;
    (void)user;
    if (hijacked->result != FRISBEE_OK) return;
    (void)send((int)hijacked->socket, "raw bytes", 9, MSG_NOSIGNAL);
    close((int)hijacked->socket);
}

static void check_books(void) {
    int i;
    for (i = 0; i < w.ticket_count; i++) CHECK_EQ(w.tickets[i].done, w.tickets[i].accepted);
    for (i = 0; i < w.seen_count; i++) {
        CHECK_EQ(w.seen[i].finals, 1);
        CHECK_EQ(w.seen[i].hijack_owed, 0);
    }
    CHECK_EQ(w.released, w.owed);
    CHECK_EQ(w.ran, w.posted);
    CHECK_EQ(w.stopped, w.started);
    CHECK_EQ(held.blocks, 0);
    CHECK_EQ(held.bytes, 0);
}

static void scenario(enum kind kind, enum action first, enum action second) {
    int before = check_failures, i;
    memset(&w, 0, sizeof w);
    memset(&held, 0, sizeof held);
    w.kind = kind;
    w.first = first;
    w.second = second;
    set_up();
    trigger();
    for (i = 0; i < 100 && !w.acted && w.pool; i++) step(i < 30 ? 0 : 1);
    CHECK(w.acted); // or nothing was tested
    steps(6, 0);
    if (w.peer) { // what waits for a fence, or for raw bytes, gets both; what did not ask for it must stand it
        frisbee_hijack(w.peer, w.peer_self, FRISBEE_HIJACK_FENCED, 5, peer_hijacked, NULL);
        frisbee_hijack(w.peer, w.peer_other, FRISBEE_HIJACK_FENCED, 5, peer_hijacked, NULL);
    }
    steps(6, 0);
    steps(8, 400); // past every deadline of the test
    w.polling = 1;
    if (w.pool) frisbee_pool_destroy(w.pool);
    w.pool = NULL;
    frisbee_pool_destroy(w.peer);
    frisbee_remote_release(w.remote);
    while (w.raw_count > 0) close(w.raw[--w.raw_count]);
    check_books();
    if (check_failures != before) fprintf(stderr, "    in %s: %s, then %s\n", kind_names[kind], action_names[first], action_names[second]);
}

static void every_action(enum kind kind) {
    int descriptors = count_descriptors(), before = check_failures;
    size_t first, second;
    for (first = 0; first < ACTION_COUNT; first++)
        for (second = 0; second < sizeof seconds / sizeof *seconds && check_failures < before + 50; second++)
            scenario(kind, (enum action)first, seconds[second]);
    CHECK_EQ(count_descriptors(), descriptors);
}

#define AS_CASE(name) \
    static void promise_5_inside_##name(void) { every_action(IN_##name); }
KINDS(AS_CASE)

int main(int argc, char **argv) {
    watchdog(500);
    fill(payload, sizeof payload, 11);
#define AS_RUN(name) RUN(promise_5_inside_##name);
    KINDS(AS_RUN)
    return check_report("callbacks");
}
