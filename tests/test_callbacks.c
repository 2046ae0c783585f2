// test_callbacks.c - promise 5: any function from any callback. Every kind of callback does every action, and pairs of them; afterwards
// each call and confirmed publish that was accepted has had exactly one on_reply, each connection exactly one final on_close behind everything
// else, each stream one on_close, each on_subscribe its on_unsubscribe, each hijack its on_hijacked, each borrowed payload its release, each
// task its run; no ended subscription got a message, no callback ran inside another, and no memory and no descriptor is left. Over real sockets,
// under a virtual clock; built once for each poller. What it finds, it finds best under AddressSanitizer.
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
    X(wrap) X(resolve)                                                                                                       \
    X(on_message) X(on_message_local) X(on_message_retained) X(on_result) X(on_result_refused) X(reply_published)            \
    X(may_subscribe) X(on_subscribe) X(on_unsubscribe) X(on_unsubscribe_by_us) X(on_unsubscribe_at_close)                    \
    X(may_publish) X(may_publish_again) X(broker_on_writable)                                                                \
    X(stream_on_open) X(stream_on_data) X(stream_on_writable) X(stream_on_close) X(stream_on_close_by_peer)                  \
    X(stream_on_close_at_close)                                                                                              \
    X(on_close_at_destroy) X(reply_at_destroy) X(protocol_stop_at_destroy) X(release_at_destroy)                             \
    X(on_unsubscribe_at_destroy) X(stream_on_close_at_destroy)

#define ACTIONS(X)                                                                                                           \
    X(nothing) X(close_now) X(close_flush) X(close_other_now) X(close_other_flush) X(destroy) X(send) X(send_other)          \
    X(send_much) X(send_spans) X(send_spans_other) X(reserve_and_send) X(write_raw) X(call_own) X(call_other)                \
    X(cancel_own) X(cancel_other) X(hijack_fenced) X(hijack_stock) X(hijack_now) X(hijack_other_fenced)                      \
    X(hijack_other_stock) X(hijack_other_now) X(upgrade_fenced) X(upgrade_now) X(upgrade_other_now) X(packets_again)         \
    X(pause) X(pause_and_resume) X(pause_other) X(finish) X(finish_other) X(reply_twice) X(defer) X(connect_new)             \
    X(adopt_new) X(block) X(listener_close) X(listen_new) X(shut_down) X(stop_run) X(set_user) X(stats) X(flush) X(post)     \
    X(change_handlers)                                                                                                       \
    X(publish_local) X(publish_local_large) X(publish_local_retained) X(publish_until_blocked) X(publish_self)               \
    X(publish_self_retained) X(publish_confirmed) X(publish_other) X(publish_other_confirmed) X(subscribe_local)             \
    X(subscribe_self) X(subscribe_other) X(unsubscribe_local) X(unsubscribe_self) X(unsubscribe_other) X(unsubscribe_peers)  \
    X(walk_and_unsubscribe) X(describe)                                                                                      \
    X(stream_open) X(stream_open_other) X(stream_send) X(stream_send_other) X(stream_send_much) X(stream_send_spans)         \
    X(stream_send_spans_other) X(stream_close) X(stream_close_other) X(stream_pause) X(stream_pause_and_resume)              \
    X(stream_pause_other) X(stream_bind) X(stream_bind_other)

#define AS_KIND(name) IN_##name,
#define AS_ACTION(name) DO_##name,
#define AS_TEXT(name) #name,
enum kind { KINDS(AS_KIND) KIND_COUNT };
enum action { ACTIONS(AS_ACTION) ACTION_COUNT };
static const char *const kind_names[] = {KINDS(AS_TEXT) ""};
static const char *const action_names[] = {ACTIONS(AS_TEXT) ""};

// What follows an action in the same callback: those that end most, and of all others every fourth (under AddressSanitizer, which is slower but
// sees most) or every tenth; which ones, changes with the kind and the action before.
#ifdef __SANITIZE_ADDRESS__
enum { SHARE = 4 };
#else
enum { SHARE = 10 };
#endif
static int may_follow(enum kind kind, int first, int second) {
    return second == DO_nothing || second == DO_close_now || second == DO_destroy || (first + second + (int)kind) % SHARE == 0;
}

// >>the world: a pool that is tested, and one that plays the peers

enum {
    TICKETS = 64, SEEN = 64, SUBS = 64, STRANDS = 64,
    WINDOW = 16384,                      // of streams
    BLOCKING = 20, BLOCKING_LIMIT = 4000 // messages of 1,000 bytes to a subscription that blocks above so many bytes
};

struct seen { // a connection of the tested pool, by its handle
    uint64_t id;
    int finals, hijack_owed, expected; // expected: the test knows that it exists, so on_close must come
};

struct ticket { // a call, or a confirmed publish
    uint64_t conn;
    int accepted, done, acts;
};

struct sub { // a subscription of the tested pool, at its own broker or its peer's
    frisbee_sub sub;
    frisbee_conn conn;
    int ended;
};

struct made { // a peer's subscription at the tested pool's broker, by its handle
    uint64_t id, conn;
    int ended;
};

struct strand { // a stream of the tested pool, by its handle
    uint64_t id, conn;
    int closing, paused, closed;
};

static struct {
    enum kind kind;
    enum action first, second;
    int armed, acted, acting, destroyed, polling;
    uint64_t now;
    frisbee_pool *pool, *peer;
    frisbee_listener listener;
    char address[128], peer_address[128], text[128];
    frisbee_conn self, other, peer_self, peer_other;
    frisbee_call_id own_call, other_call;
    frisbee_remote *remote;
    const frisbee_packet *packet; // of the handler that runs
    struct seen seen[SEEN];
    struct ticket tickets[TICKETS];
    int seen_count, ticket_count;
    int owed, released, posted, ran, started, stopped, opened;
    struct sub subs[SUBS], *local_sub, *self_sub, *other_sub;
    struct made made[SUBS];
    struct strand strands[STRANDS];
    int sub_count, made_count, strand_count, taken, asked; // taken: on_result was OK; asked: may_publish
    frisbee_stream self_stream, other_stream, stream;      // the first on each connection; that of the callback which runs
    frisbee_sub peer_sub;                                  // the peer's at the tested pool's broker, over peer_self
    frisbee_stream peer_stream, peer_self_stream;          // the peer's ends: of the stream that it opened, of self_stream
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

static struct strand *find_strand(frisbee_stream stream) {
    int i;
    for (i = 0; i < w.strand_count && w.strands[i].id != stream.id; i++) {}
    return i < w.strand_count ? &w.strands[i] : NULL;
}

static void add_strand(frisbee_stream stream, frisbee_conn conn) {
    CHECK(stream.id != 0 && !find_strand(stream));
    if (!CHECK(w.strand_count < STRANDS)) exit(1);
    memset(&w.strands[w.strand_count], 0, sizeof w.strands[0]);
    w.strands[w.strand_count].id = stream.id;
    w.strands[w.strand_count++].conn = conn.id;
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
    int i;
    (void)user;
    CHECK_EQ(seen->hijack_owed, 0);
    CHECK(info->reason != FRISBEE_AGAIN);
    CHECK_EQ(frisbee_conn_stats(pool, conn, &stats), FRISBEE_OK); // the getters still work
    for (i = 0; i < w.strand_count; i++) CHECK(w.strands[i].conn != conn.id || w.strands[i].closed);
    for (i = 0; i < w.made_count; i++) CHECK(w.made[i].conn != conn.id || w.made[i].ended);
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
    act(IN_reply_published, pool, conn);
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

// >>callbacks of the patterns

static void on_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    struct sub *s = (struct sub *)user;
    CHECK_EQ(s->ended, 0);
    CHECK(message->sub.id == s->sub.id && message->conn.id == s->conn.id);
    if (s->conn.id != FRISBEE_LOCAL.id) see(s->conn); // no connection's message after its last on_close
    if (s->conn.id == w.self.id) act(IN_on_message, pool, w.self);
    if (s->conn.id == FRISBEE_LOCAL.id) act(message->retained ? IN_on_message_retained : IN_on_message_local, pool, w.self);
    CHECK(strchr(message->topic, '.') != NULL); // both outlive what was done
    if (message->length) CHECK(hash_of(message->data, message->length) != 0);
}

static void on_result(frisbee_pool *pool, frisbee_sub sub, frisbee_result result, void *user) {
    struct sub *s = (struct sub *)user;
    CHECK_EQ(s->ended, 0);
    CHECK(sub.id == s->sub.id && s->conn.id != FRISBEE_LOCAL.id);
    see(s->conn);
    if (result == FRISBEE_OK) w.taken++;
    else s->ended = 1;
    if (s->conn.id == w.self.id) act(result == FRISBEE_OK ? IN_on_result : IN_on_result_refused, pool, w.self);
}

static bool may_subscribe(frisbee_pool *pool, const frisbee_sub_info *wanted, void *user) {
    CHECK(user == (void *)&w);
    see(wanted->conn);
    if (wanted->conn.id == w.self.id) act(IN_may_subscribe, pool, wanted->conn);
    CHECK(wanted->topic[0] != 0 && (!wanted->group || wanted->group[0] != 0));
    return true;
}

static bool may_publish(frisbee_pool *pool, const frisbee_message *message, void *user) {
    const frisbee_conn conn = message->conn;
    const char *topic = message->topic;
    CHECK(user == (void *)&w);
    see(conn);
    act(IN_may_publish, pool, conn);
    if (++w.asked > BLOCKING) act(IN_may_publish_again, pool, conn); // the last was asked twice
    CHECK(strchr(topic, '.') != NULL);
    return true;
}

static void on_subscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    int i;
    CHECK(user == (void *)&w);
    see(info->conn);
    for (i = 0; i < w.made_count; i++) CHECK(w.made[i].id != info->sub.id);
    if (!CHECK(w.made_count < SUBS)) exit(1);
    w.made[w.made_count].id = info->sub.id;
    w.made[w.made_count].conn = info->conn.id;
    w.made[w.made_count++].ended = 0;
    if (info->conn.id == w.self.id) act(IN_on_subscribe, pool, info->conn);
    CHECK(info->topic[0] != 0);
}

static void on_unsubscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    int i;
    CHECK(user == (void *)&w);
    see(info->conn);
    for (i = 0; i < w.made_count && w.made[i].id != info->sub.id; i++) {}
    if (CHECK(i < w.made_count)) CHECK_EQ(w.made[i].ended++, 0);
    if (info->conn.id == w.self.id) {
        act(IN_on_unsubscribe, pool, info->conn);
        act(IN_on_unsubscribe_by_us, pool, info->conn);
        act(IN_on_unsubscribe_at_close, pool, info->conn);
        act(IN_on_unsubscribe_at_destroy, pool, info->conn);
    }
    CHECK(info->topic[0] != 0);
}

static void broker_on_writable(frisbee_pool *pool, void *user) {
    CHECK(user == (void *)&w);
    act(IN_broker_on_writable, pool, w.self);
}

static const frisbee_broker broker = {&w, may_subscribe, may_publish, on_subscribe, on_unsubscribe, broker_on_writable, true, 0, 0, 0, 0};

static struct strand *see_stream(frisbee_stream stream, void *user) { // anything but its on_close: there must be none before
    struct strand *s = find_strand(stream);
    frisbee_conn conn;
    if (!CHECK(s != NULL)) exit(1);
    conn.id = s->conn;
    see(conn);
    CHECK_EQ(s->closed, 0);
    CHECK(user == (void *)&w);
    return s;
}

static void act_in_stream(enum kind kind, frisbee_pool *pool, const struct strand *s) {
    if (s->conn != w.self.id) return;
    w.stream.id = s->id;
    act(kind, pool, w.self);
    w.stream.id = 0;
    CHECK_EQ(s->closed, 0); // on_close does not come inside
}

static void stream_on_open(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    CHECK(frisbee_stream_conn(pool, stream).id == conn.id);
    add_strand(stream, conn);
    CHECK_EQ(frisbee_stream_bind(pool, stream, NULL, &w), FRISBEE_OK);
    act_in_stream(IN_stream_on_open, pool, see_stream(stream, user));
}

static void stream_on_data(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    struct strand *s = see_stream(stream, user);
    CHECK(!s->closing && !s->paused);
    act_in_stream(IN_stream_on_data, pool, s);
    CHECK(length > 0 && hash_of(data, length) != 0); // it outlives what was done
}

static void stream_on_writable(frisbee_pool *pool, frisbee_stream stream, void *user) {
    act_in_stream(IN_stream_on_writable, pool, see_stream(stream, user));
}

static void stream_on_close(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    struct strand *s = see_stream(stream, user);
    CHECK(reason != FRISBEE_AGAIN);
    if (reason == FRISBEE_CLOSED) act_in_stream(IN_stream_on_close_by_peer, pool, s);
    act_in_stream(IN_stream_on_close, pool, s);
    act_in_stream(IN_stream_on_close_at_close, pool, s);
    act_in_stream(IN_stream_on_close_at_destroy, pool, s);
    s->closed++;
}

static const frisbee_stream_events stream_events = {stream_on_open, stream_on_data, stream_on_writable, stream_on_close};
static const frisbee_stream_events other_stream_events = {stream_on_open, stream_on_data, stream_on_writable, stream_on_close};

// >>the peer: subscribes and opens a stream on each connection, and reads all that comes

static void peer_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    (void)pool;
    (void)user;
    CHECK(message->length <= sizeof payload);
}

static void peer_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    frisbee_sub_desc desc;
    frisbee_stream stream;
    frisbee_sub sub;
    (void)user;
    memset(&desc, 0, sizeof desc);
    desc.on_message = peer_message;
    desc.group = conn.id == w.peer_other.id ? "group" : NULL;
    CHECK_EQ(frisbee_subscribe(pool, conn, "own.>", &desc, &sub), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_open(pool, conn, NULL, NULL, &stream), FRISBEE_OK);
    CHECK_EQ(frisbee_stream_send(pool, stream, payload, 50), FRISBEE_OK);
    if (conn.id == w.peer_other.id) return;
    w.peer_self = conn;
    w.peer_sub = sub;
    w.peer_stream = stream;
}

static void peer_stream_open(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    (void)pool;
    (void)user;
    if (conn.id == w.peer_self.id && !w.peer_self_stream.id) w.peer_self_stream = stream;
}

static const frisbee_events peer_events = {peer_open, NULL, NULL, NULL, NULL};
static const frisbee_stream_events peer_stream_events = {peer_stream_open, NULL, NULL, NULL};
static const frisbee_broker peer_broker; // everybody may do everything

static frisbee_conn_desc peer_desc(void) {
    frisbee_conn_desc desc = quiet(NULL);
    desc.events = &peer_events;
    desc.streams = &peer_stream_events;
    desc.stream_window = WINDOW;
    return desc;
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
    desc.streams = &stream_events;
    desc.stream_window = WINDOW;
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

static struct sub *subscribe(frisbee_pool *pool, frisbee_conn conn, const char *topic, frisbee_slow slow, bool retained) {
    struct sub *s = &w.subs[w.sub_count];
    frisbee_sub_desc desc;
    if (!CHECK(w.sub_count < SUBS)) exit(1);
    memset(&desc, 0, sizeof desc);
    desc.on_message = on_message;
    desc.on_result = on_result;
    desc.user = s;
    desc.slow = slow;
    desc.limit = BLOCKING_LIMIT;
    desc.retained = retained;
    s->conn = conn;
    if (frisbee_subscribe(pool, conn, topic, &desc, &s->sub) != FRISBEE_OK) return NULL;
    CHECK(s->sub.id != 0);
    w.sub_count++;
    return s;
}

static void unsubscribe(frisbee_pool *pool, struct sub *s) { // twice
    frisbee_result result;
    if (!s) return;
    result = frisbee_unsubscribe(pool, s->sub);
    CHECK(result == FRISBEE_OK ? !s->ended : result == FRISBEE_CLOSED);
    s->ended = 1;
    CHECK_EQ(frisbee_unsubscribe(pool, s->sub), FRISBEE_CLOSED);
}

static void unsubscribe_peers(frisbee_pool *pool) { // all of them, at this pool's broker; on_unsubscribe follows
    frisbee_sub sub;
    int i, before;
    for (i = 0; i < w.made_count; i++) {
        sub.id = w.made[i].id;
        before = w.made[i].ended;
        if (frisbee_unsubscribe(pool, sub) == FRISBEE_OK) CHECK_EQ(before, 0);
        CHECK_EQ(w.made[i].ended, before); // but not inside
        CHECK_EQ(frisbee_unsubscribe(pool, sub), FRISBEE_CLOSED);
    }
}

// Every second one that is met is ended: this program's and peers'.
static void walk_and_unsubscribe(frisbee_pool *pool) {
    frisbee_sub at;
    frisbee_sub_info info, same;
    int i, k;
    at.id = 0;
    for (i = 0; i < 2 * SUBS && frisbee_sub_next(pool, &at, &info) == FRISBEE_OK; i++) {
        CHECK(info.sub.id == at.id && info.topic[0] != 0);
        CHECK_EQ(frisbee_sub_describe(pool, at, &same), FRISBEE_OK);
        CHECK(same.conn.id == info.conn.id && !strcmp(same.topic, info.topic));
        if (i % 2 == 0) continue;
        CHECK_EQ(frisbee_unsubscribe(pool, at), FRISBEE_OK);
        CHECK_EQ(frisbee_sub_describe(pool, at, &same), FRISBEE_CLOSED);
        for (k = 0; k < w.sub_count; k++)
            if (w.subs[k].sub.id == at.id) w.subs[k].ended = 1;
    }
    CHECK(i < 2 * SUBS); // it comes to an end
}

static frisbee_result publish(frisbee_pool *pool, frisbee_conn conn, const char *topic, size_t length, bool retain, int confirmed, int acts) {
    struct ticket *t = &w.tickets[w.ticket_count];
    frisbee_publish_desc desc;
    frisbee_result result;
    if (!CHECK(w.ticket_count < TICKETS)) exit(1);
    memset(&desc, 0, sizeof desc);
    desc.retain = retain;
    if (confirmed) {
        w.ticket_count++;
        desc.on_reply = on_reply;
        desc.user = t;
        t->conn = conn.id;
        t->acts = acts;
    }
    result = frisbee_publish(pool, conn, topic, payload, length, &desc);
    if (confirmed) {
        t->accepted = result == FRISBEE_OK;
        CHECK_EQ(t->done, 0); // never inside
    }
    return result;
}

// Until AGAIN, if the subscription that blocks is still there; then on_writable of the broker follows.
static frisbee_result publish_until_blocked(frisbee_pool *pool) {
    frisbee_result result = FRISBEE_OK;
    int i;
    for (i = 0; i < BLOCKING && !result; i++) result = publish(pool, FRISBEE_LOCAL, "own.block", 1000, false, 0, 0);
    return result;
}

static frisbee_stream open_stream(frisbee_pool *pool, frisbee_conn conn) {
    frisbee_stream stream;
    stream.id = 0;
    if (frisbee_stream_open(pool, conn, NULL, &w, &stream) != FRISBEE_OK) return stream;
    add_strand(stream, conn);
    frisbee_stream_send(pool, stream, payload, 60);
    return stream;
}

static frisbee_result send_until_blocked(frisbee_pool *pool, frisbee_stream stream) {
    frisbee_result result = FRISBEE_OK;
    int i;
    for (i = 0; i < 40 && !result; i++) result = frisbee_stream_send(pool, stream, payload, 3000);
    CHECK(result != FRISBEE_OK); // the window is smaller
    return result;
}

static void close_stream(frisbee_pool *pool, frisbee_stream stream) {
    struct strand *s = find_strand(stream);
    if (frisbee_stream_close(pool, stream) != FRISBEE_OK || !CHECK(s != NULL)) return;
    CHECK_EQ(s->closed, 0);
    s->closing = 1;
}

static void pause_stream(frisbee_pool *pool, frisbee_stream stream, int paused) {
    struct strand *s = find_strand(stream);
    if (frisbee_stream_pause(pool, stream, paused != 0) == FRISBEE_OK && CHECK(s != NULL)) s->paused = paused;
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

static void lend_to_stream(frisbee_pool *pool, frisbee_stream stream) {
    frisbee_span spans[2];
    int before = w.released;
    spans[0].data = payload;
    spans[0].length = 1;
    spans[1].data = payload + 1;
    spans[1].length = 30000;
    if (frisbee_stream_send_spans(pool, stream, spans, 2, on_release, NULL) == FRISBEE_OK) w.owed++;
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
        desc = peer_desc();
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
    frisbee_sub_info info;
    frisbee_stream stream = w.stream.id ? w.stream : w.self_stream;
    struct strand *strand;
    uint32_t count;
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
    case DO_publish_local: publish(pool, FRISBEE_LOCAL, "own.topic", 100, false, 0, 0); break;
    case DO_publish_local_large: // shared by the peers' queues, more than their sockets take
        for (i = 0; i < 4; i++) publish(pool, FRISBEE_LOCAL, "own.topic", 200000, false, 0, 0);
        break;
    case DO_publish_local_retained: publish(pool, FRISBEE_LOCAL, "own.kept", 100, true, 0, 0); break;
    case DO_publish_until_blocked: publish_until_blocked(pool); break;
    case DO_publish_self: publish(pool, self, "self.topic", 100, false, 0, 0); break;
    case DO_publish_self_retained: publish(pool, self, "self.topic", 100, true, 0, 0); break;
    case DO_publish_confirmed: publish(pool, self, "self.topic", 100, false, 1, 0); break;
    case DO_publish_other: publish(pool, w.other, "other.topic", 100, false, 0, 0); break;
    case DO_publish_other_confirmed: publish(pool, w.other, "other.topic", 100, true, 1, 0); break;
    case DO_subscribe_local: subscribe(pool, FRISBEE_LOCAL, "own.kept", FRISBEE_SLOW_LATEST, true); break;
    case DO_subscribe_self: subscribe(pool, self, "self.*", FRISBEE_SLOW_DROP_OLD, true); break;
    case DO_subscribe_other: subscribe(pool, w.other, "other.topic", FRISBEE_SLOW_CLOSE, true); break;
    case DO_unsubscribe_local: unsubscribe(pool, w.local_sub); break;
    case DO_unsubscribe_self: unsubscribe(pool, w.self_sub); break;
    case DO_unsubscribe_other: unsubscribe(pool, w.other_sub); break;
    case DO_unsubscribe_peers: unsubscribe_peers(pool); break;
    case DO_walk_and_unsubscribe: walk_and_unsubscribe(pool); break;
    case DO_describe:
        for (i = 0; i < w.sub_count; i++) { // its own, and those at a peer's
            result = frisbee_sub_describe(pool, w.subs[i].sub, &info);
            CHECK(result == FRISBEE_CLOSED || result == (w.subs[i].conn.id == FRISBEE_LOCAL.id ? FRISBEE_OK : FRISBEE_INVALID));
        }
        result = frisbee_topic_count(pool, "own.topic", &count);
        CHECK(result == FRISBEE_OK ? count <= 2 * SUBS : result == FRISBEE_CLOSED);
        strand = find_strand(stream);
        conn = frisbee_stream_conn(pool, stream);
        CHECK(!conn.id || (strand && conn.id == strand->conn && frisbee_stream_number(pool, stream) != 0));
        CHECK(!conn.id || frisbee_stream_user(pool, stream) == (void *)&w);
        break;
    case DO_stream_open: open_stream(pool, self); break;
    case DO_stream_open_other: open_stream(pool, w.other); break;
    case DO_stream_send: frisbee_stream_send(pool, stream, payload, 100); break;
    case DO_stream_send_other: frisbee_stream_send(pool, w.other_stream, payload, 100); break;
    case DO_stream_send_much: send_until_blocked(pool, stream); break;
    case DO_stream_send_spans: lend_to_stream(pool, stream); break;
    case DO_stream_send_spans_other: lend_to_stream(pool, w.other_stream); break;
    case DO_stream_close: close_stream(pool, stream); break;
    case DO_stream_close_other: close_stream(pool, w.other_stream); break;
    case DO_stream_pause: pause_stream(pool, stream, 1); break;
    case DO_stream_pause_and_resume:
        pause_stream(pool, stream, 1);
        pause_stream(pool, stream, 0);
        break;
    case DO_stream_pause_other: pause_stream(pool, w.other_stream, 1); break;
    case DO_stream_bind: frisbee_stream_bind(pool, stream, &other_stream_events, &w); break;
    case DO_stream_bind_other: frisbee_stream_bind(pool, w.other_stream, &other_stream_events, &w); break;
    case ACTION_COUNT: break;
    }
}

static void act(enum kind kind, frisbee_pool *pool, frisbee_conn conn) {
    CHECK_EQ(w.acting, 0); // callbacks do not nest
    CHECK(w.polling);
    if (kind != w.kind || !w.armed || w.acted) return;
    w.acted = w.acting = 1;
    perform(w.first, pool, conn);
    perform(w.second, pool, conn);
    w.acting = 0;
}

// >>one scenario

static void step(int ms) { // one turn of both pools
    int was_destroyed = w.destroyed;
    w.now += (uint64_t)ms * 1000u;
    if (w.peer) {
        frisbee_poll(w.peer, 0);
        CHECK(frisbeei_check(w.peer));
    }
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
    desc.broker = &broker;
    if (!CHECK_EQ(frisbee_pool_create(&desc, &w.pool), FRISBEE_OK)) exit(1);
    desc.broker = &peer_broker;
    if (!CHECK_EQ(frisbee_pool_create(&desc, &w.peer), FRISBEE_OK)) exit(1);
    w.remote = frisbee_remote_retain(w.pool);
    CHECK_EQ(frisbee_listen(w.pool, local_address("own"), &plain, &w.listener), FRISBEE_OK);
    CHECK_EQ(frisbee_listener_address(w.pool, w.listener, w.address, sizeof w.address), FRISBEE_OK);
    if (raw) conn.protocol = &protocol;
    if (w.kind == IN_wrap) conn.wrap = wrap;
    adopt_pair(w.pool, &plain, 0, &w.other, &w.peer_other);
    w.armed = w.kind == IN_on_open || w.kind == IN_wrap || w.kind == IN_protocol_start;
    if (w.kind == IN_on_close_before_a_retry) {
        frisbee_conn_desc serving = peer_desc();
        conn.retry_min_ms = 10;
        conn.events = &events_without_end; // whose own close would be no reason to come back
        CHECK_EQ(frisbee_listen(w.peer, local_address("peer"), &serving, &at_peer), FRISBEE_OK);
        CHECK_EQ(frisbee_listener_address(w.peer, at_peer, w.peer_address, sizeof w.peer_address), FRISBEE_OK);
        CHECK_EQ(frisbee_connect(w.pool, w.peer_address, &conn, &w.self), FRISBEE_OK);
        expect_conn(FRISBEE_OK, w.self);
    } else adopt_pair(w.pool, &conn, raw, &w.self, &w.peer_self);
    CHECK_EQ(make_call(w.pool, w.other, SWALLOW, FRISBEE_NEVER, 0, &w.other_call), FRISBEE_OK);
    if (!raw) CHECK_EQ(make_call(w.pool, w.self, SWALLOW, FRISBEE_NEVER, 0, &w.own_call), FRISBEE_OK);
    w.local_sub = subscribe(w.pool, FRISBEE_LOCAL, "own.>", FRISBEE_SLOW_DROP_NEW, false);
    w.other_sub = subscribe(w.pool, w.other, "other.>", FRISBEE_SLOW_DROP_OLD, false);
    if (!raw) w.self_sub = subscribe(w.pool, w.self, "self.>", FRISBEE_SLOW_LATEST, false);
    CHECK(w.local_sub && w.other_sub && (raw || w.self_sub) && subscribe(w.pool, FRISBEE_LOCAL, "own.block", FRISBEE_SLOW_BLOCK, false));
    if (!w.armed) {
        int i, ends = raw ? 1 : 2; // that speak packets
        for (i = 0; i < 200 && (w.opened < 2 || w.taken < ends || w.made_count < ends || w.strand_count < ends); i++) step(0);
        CHECK_EQ(w.opened, 2);
        CHECK_EQ(w.taken, ends);
        CHECK_EQ(w.made_count, ends);
        CHECK_EQ(w.strand_count, ends);
        w.other_stream = open_stream(w.pool, w.other);
        if (!raw) w.self_stream = open_stream(w.pool, w.self);
        for (i = 0; i < 200 && !raw && !w.peer_self_stream.id; i++) step(0);
        CHECK(raw || w.peer_self_stream.id);
        steps(2, 1);
    }
    w.asked = 0;
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
    case IN_on_message:
        CHECK_EQ(frisbee_publish(w.peer, FRISBEE_LOCAL, "self.a", payload, 100, NULL), FRISBEE_OK);
        CHECK_EQ(frisbee_publish(w.peer, FRISBEE_LOCAL, "self.b", payload, 3000, NULL), FRISBEE_OK);
        CHECK_EQ(frisbee_publish(w.peer, FRISBEE_LOCAL, "other.a", payload, 100, NULL), FRISBEE_OK);
        break;
    case IN_on_message_local:
        CHECK_EQ(publish(w.pool, FRISBEE_LOCAL, "own.a", 100, false, 0, 0), FRISBEE_OK);
        CHECK_EQ(publish(w.pool, FRISBEE_LOCAL, "own.block", 1000, false, 0, 0), FRISBEE_OK);
        break;
    case IN_on_message_retained:
        CHECK_EQ(publish(w.pool, FRISBEE_LOCAL, "kept.a", 100, true, 0, 0), FRISBEE_OK);
        CHECK_EQ(publish(w.pool, FRISBEE_LOCAL, "kept.b", 100, true, 0, 0), FRISBEE_OK);
        CHECK(subscribe(w.pool, FRISBEE_LOCAL, "kept.*", FRISBEE_SLOW_LATEST, true) != NULL);
        break;
    case IN_on_result: CHECK(subscribe(w.pool, w.self, "self.more", FRISBEE_SLOW_DROP_NEW, false) != NULL); break;
    case IN_on_result_refused: { // the peer's broker ends it
        frisbee_sub at;
        frisbee_sub_info info;
        at.id = 0;
        while (frisbee_sub_next(w.peer, &at, &info) == FRISBEE_OK && info.conn.id != w.peer_self.id) {}
        CHECK_EQ(frisbee_unsubscribe(w.peer, at), FRISBEE_OK);
        break;
    }
    case IN_reply_published:
        CHECK_EQ(publish(w.pool, w.self, "self.a", 100, true, 1, 1), FRISBEE_OK);
        CHECK_EQ(publish(w.pool, w.self, "self.a", 100, false, 1, 0), FRISBEE_OK);
        break;
    case IN_may_subscribe:
    case IN_on_subscribe: {
        frisbee_sub_desc wanted;
        memset(&wanted, 0, sizeof wanted);
        wanted.on_message = peer_message;
        wanted.retained = true;
        CHECK_EQ(frisbee_subscribe(w.peer, w.peer_self, "own.*", &wanted, NULL), FRISBEE_OK);
        CHECK_EQ(frisbee_subscribe(w.peer, w.peer_self, "own.topic", &wanted, NULL), FRISBEE_OK);
        break;
    }
    case IN_on_unsubscribe: CHECK_EQ(frisbee_unsubscribe(w.peer, w.peer_sub), FRISBEE_OK); break;
    case IN_on_unsubscribe_by_us: unsubscribe_peers(w.pool); break;
    case IN_on_unsubscribe_at_close:
    case IN_stream_on_close_at_close: CHECK_EQ(frisbee_close(w.peer, w.peer_self, FRISBEE_CLOSE_NOW), FRISBEE_OK); break;
    case IN_may_publish:
    case IN_may_publish_again: {
        int i;
        for (i = 0; i < BLOCKING; i++) CHECK_EQ(frisbee_publish(w.peer, w.peer_self, "own.block", payload, 1000, NULL), FRISBEE_OK);
        break;
    }
    case IN_broker_on_writable: CHECK_EQ(publish_until_blocked(w.pool), FRISBEE_AGAIN); break;
    case IN_stream_on_open: {
        frisbee_stream stream;
        CHECK_EQ(frisbee_stream_open(w.peer, w.peer_self, NULL, NULL, &stream), FRISBEE_OK);
        CHECK_EQ(frisbee_stream_send(w.peer, stream, payload, 70), FRISBEE_OK);
        CHECK_EQ(frisbee_stream_send(w.peer, stream, payload, 80), FRISBEE_OK);
        break;
    }
    case IN_stream_on_data:
        CHECK_EQ(frisbee_stream_send(w.peer, w.peer_self_stream, payload, 70), FRISBEE_OK);
        CHECK_EQ(frisbee_stream_send(w.peer, w.peer_self_stream, payload, 80), FRISBEE_OK);
        CHECK_EQ(frisbee_stream_send(w.peer, w.peer_stream, payload, 90), FRISBEE_OK);
        break;
    case IN_stream_on_writable: CHECK_EQ(send_until_blocked(w.pool, w.self_stream), FRISBEE_AGAIN); break;
    case IN_stream_on_close: close_stream(w.pool, w.self_stream); break;
    case IN_stream_on_close_by_peer:
        CHECK_EQ(frisbee_stream_send(w.peer, w.peer_self_stream, payload, 70), FRISBEE_OK);
        CHECK_EQ(frisbee_stream_close(w.peer, w.peer_self_stream), FRISBEE_OK);
        break;
    case IN_on_close_at_destroy:
    case IN_reply_at_destroy:
    case IN_protocol_stop_at_destroy:
    case IN_on_unsubscribe_at_destroy:
    case IN_stream_on_close_at_destroy:
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
    for (i = 0; i < w.strand_count; i++) CHECK_EQ(w.strands[i].closed, 1);
    for (i = 0; i < w.made_count; i++) CHECK_EQ(w.made[i].ended, 1);
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
    int first, second;
    for (first = 0; first < ACTION_COUNT; first++)
        for (second = 0; second < ACTION_COUNT && check_failures < before + 50; second++)
            if (may_follow(kind, first, second)) scenario(kind, (enum action)first, (enum action)second);
    CHECK_EQ(count_descriptors(), descriptors);
}

#define AS_CASE(name) \
    static void promise_5_inside_##name(void) { every_action(IN_##name); }
KINDS(AS_CASE)

int main(int argc, char **argv) {
    watchdog(800);
    fill(payload, sizeof payload, 11);
#define AS_RUN(name) RUN(promise_5_inside_##name);
    KINDS(AS_RUN)
    return check_report("callbacks");
}
