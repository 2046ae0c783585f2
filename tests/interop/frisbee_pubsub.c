// frisbee_pubsub.c - the C side of the interop test of publish and subscribe; pubsub.go is the other.
//
//     frisbee_pubsub broker FILE                  writes its address to FILE and is the broker of both Go versions. What happens is Go's
//                                                 script: it asks this program (DO) to publish, and what it has received
//     frisbee_pubsub client FILE WIRE VERSION     subscribes and publishes at a stock Go server, which knows nothing of it
#define FRISBEE_IMPLEMENTATION
#include "peer.h"

#include <unistd.h>

enum { ECHO = 11, DO = 20 }; // operations

enum {
    VERSIONS = 2,
    MAX_CONN_SUBS = 16,
    ANSWER_MS = 700,   // that the client waits for an answer that does not come
    SILENCE_MS = 1500, // and in all
    LIMIT_MS = 100000  // for everything
};

// The messages of both sides begin with their number; the rest follows from it. size 0: small, of all sizes.
static uint32_t numbered(uint8_t *message, uint32_t number, uint32_t size) {
    uint32_t i;
    if (size == 0) size = 4 + (number * 2654435761u >> 24);
    for (i = 0; i < 4; i++) message[i] = (uint8_t)(number >> (24 - 8 * i));
    memcpy(message + 4, content(number), size - 4);
    return size;
}

static uint32_t read_u32(const uint8_t *data) {
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

// >>broker

static struct version { uint32_t received, wrong; } versions[VERSIONS]; // by the first token of a topic, v0 or v1
static uint32_t finished, subscribed, unsubscribed;

static struct version *version_of(const char *topic) { return &versions[topic[1] == '1']; }

// What Go publishes to "v?.up.*".
static void on_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    static uint8_t expected[65536];
    struct version *v = version_of(message->topic);
    uint32_t length = numbered(expected, v->received, 0);
    (void)pool, (void)user;
    if (message->length != length || memcmp(message->data, expected, length) || message->dropped || message->retained) v->wrong++;
    v->received++;
}

static bool ends_with(const char *topic, const char *end) {
    size_t length = strlen(topic), wanted = strlen(end);
    return length >= wanted && !strcmp(topic + length - wanted, end);
}

static bool may_subscribe(frisbee_pool *pool, const frisbee_sub_info *wanted, void *user) {
    (void)pool, (void)user;
    return !ends_with(wanted->topic, ".secret");
}

static bool may_publish(frisbee_pool *pool, const frisbee_message *message, void *user) {
    const frisbee_conn conn = message->conn;
    const char *topic = message->topic;
    (void)pool, (void)conn, (void)user;
    return !ends_with(topic, ".forbidden");
}

static void on_subscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    (void)pool, (void)info, (void)user;
    subscribed++;
}

static void on_unsubscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    (void)pool, (void)info, (void)user;
    unsubscribed++;
}

// u8 flags (1: retain), u8 topics, u16 size, u32 first, u32 count, topic: messages from number `first` on; how many could be published.
static uint32_t do_publish(frisbee_pool *pool, const uint8_t *data, uint32_t length) {
    static uint8_t message[65536 + 4];
    char topic[300], below[320];
    uint32_t first, count, size, published = 0, i;
    frisbee_publish_desc desc;
    if (length < 12 || length - 12 >= sizeof topic) return 0;
    memcpy(topic, data + 12, length - 12);
    topic[length - 12] = 0;
    size = (uint32_t)data[2] << 8 | data[3];
    first = read_u32(data + 4);
    count = read_u32(data + 8);
    memset(&desc, 0, sizeof desc);
    desc.retain = data[0] & 1;
    for (i = first; i < first + count; i++) {
        if (data[1]) snprintf(below, sizeof below, "%s.%u", topic, (unsigned)(i % data[1]));
        if (frisbee_publish(pool, FRISBEE_LOCAL, data[1] ? below : topic, message, numbered(message, i, size), &desc) == FRISBEE_OK)
            published++;
    }
    return published;
}

// Ends all subscriptions with this topic; how many there were.
static uint32_t do_end(frisbee_pool *pool, const uint8_t *topic, uint32_t length) {
    frisbee_sub at;
    frisbee_sub_info info;
    uint32_t ended = 0;
    at.id = 0;
    while (frisbee_sub_next(pool, &at, &info) == FRISBEE_OK)
        if (strlen(info.topic) == length && !memcmp(info.topic, topic, length) && frisbee_unsubscribe(pool, at) == FRISBEE_OK) ended++;
    return ended;
}

static void on_do(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const uint8_t *data = (const uint8_t *)packet->data;
    uint8_t answer[4];
    uint32_t number = 0, i;
    (void)user;
    if (packet->length < 3) {
        report(NULL, false, "DO with %u bytes", (unsigned)packet->length);
        return;
    }
    switch (data[0]) {
    case 'p': number = do_publish(pool, data + 1, packet->length - 1); break;
    case 'e': number = do_end(pool, data + 1, packet->length - 1); break;
    case 'r': { // how many messages came from this version, all as they should be
        const struct version *v = version_of((const char *)data + 1);
        number = v->wrong ? 0 : v->received;
        break;
    }
    case 'q': { // this version has finished
        const struct version *v = version_of((const char *)data + 1);
        char name[16];
        snprintf(name, sizeof name, "C broker, v%c", data[2]);
        report(name, v->received == 1100 && !v->wrong, "%u messages from Go in order, byte for byte (%u wrong)", (unsigned)v->received,
               (unsigned)v->wrong);
        finished++;
        break;
    }
    default: report(NULL, false, "DO with command %u", data[0]);
    }
    for (i = 0; i < 4; i++) answer[i] = (uint8_t)(number >> (24 - 8 * i));
    if (frisbee_reply(pool, &packet->from, answer, 4) != FRISBEE_OK) report(NULL, false, "no room for the answer to DO");
}

static bool start_broker(frisbee_pool *pool, const char *file) {
    frisbee_conn_desc conn;
    frisbee_sub_desc sub;
    memset(&conn, 0, sizeof conn);
    memset(&sub, 0, sizeof sub);
    sub.on_message = on_message;
    return frisbee_on(pool, DO, on_do, NULL) == FRISBEE_OK && frisbee_subscribe(pool, FRISBEE_LOCAL, "*.up.*", &sub, NULL) == FRISBEE_OK &&
           serve(pool, &conn, file);
}

// Whether both versions have finished and their connections are gone.
static bool broker_ended(frisbee_pool *pool) {
    frisbee_stats stats;
    frisbee_pool_stats(pool, &stats);
    if (finished < VERSIONS || stats.conns) return false;
    report(NULL, stats.subs == 1 && subscribed > 0 && unsubscribed == subscribed, "%u subscriptions of peers were made, %u ended, %u are left",
           (unsigned)subscribed, (unsigned)unsubscribed, (unsigned)stats.subs - 1);
    return true;
}

// >>client of a server that is no broker

static struct client {
    char name[64];
    frisbee_conn conn;
    frisbee_sub sub;
    int64_t opened;
    uint32_t calls, asked;          // answered, and made
    uint32_t unexpected, streams;   // events of the subscription; streams closed
    frisbee_result published, stream, closed;
    bool unsubscribed, ended;
} client;

static void on_nothing(frisbee_pool *pool, const frisbee_message *message, void *user) {
    (void)pool, (void)message, (void)user;
    client.unexpected++;
}

static void on_no_result(frisbee_pool *pool, frisbee_sub sub, frisbee_result result, void *user) {
    (void)pool, (void)sub, (void)result, (void)user;
    client.unexpected++;
}

static void on_echo(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call, (void)user;
    if (outcome->result == FRISBEE_OK && outcome->length == 100 && inverted((const uint8_t *)outcome->data, content(7), 100)) client.calls++;
}

static void on_published(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call, (void)user;
    client.published = outcome->result;
}

static void ask_echo(frisbee_pool *pool) {
    frisbee_call_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.on_reply = on_echo;
    if (frisbee_call(pool, client.conn, ECHO, content(7), 100, &desc, NULL) == FRISBEE_OK) client.asked++;
}

static void on_stream_close(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    (void)pool, (void)stream, (void)user;
    client.stream = reason;
    client.streams++;
}

static const frisbee_stream_events stream_events = {NULL, NULL, NULL, on_stream_close};

static void on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    frisbee_publish_desc desc;
    frisbee_stream stream;
    (void)user;
    memset(&desc, 0, sizeof desc);
    client.opened = now_ms();
    ask_echo(pool);
    if (frisbee_publish(pool, conn, "a.b", "unconfirmed", 11, NULL) != FRISBEE_OK) report(client.name, false, "frisbee_publish");
    desc.on_reply = on_published;
    desc.timeout_ms = ANSWER_MS;
    if (frisbee_publish(pool, conn, "a.b", "confirmed", 9, &desc) != FRISBEE_OK) report(client.name, false, "frisbee_publish, confirmed");
    // One message: the stock server's way to refuse streams is to close them, which is a race if more come (streams.go).
    if (frisbee_stream_open(pool, conn, NULL, NULL, &stream) != FRISBEE_OK || frisbee_stream_send(pool, stream, "x", 1) != FRISBEE_OK)
        report(client.name, false, "a stream");
    ask_echo(pool);
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    (void)pool, (void)conn, (void)user;
    client.closed = info->reason;
    client.ended = true;
}

static const frisbee_events events = {on_open, NULL, NULL, NULL, on_close};

static bool start_client(frisbee_pool *pool, char **argv) {
    char address[128];
    frisbee_conn_desc conn;
    frisbee_sub_desc sub;
    snprintf(client.name, sizeof client.name, "C client, Go %s", argv[4]);
    memset(&conn, 0, sizeof conn);
    memset(&sub, 0, sizeof sub);
    conn.events = &events;
    conn.streams = &stream_events;
    conn.wire = !strcmp(argv[3], "v0") ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_AUTO;
    sub.on_message = on_nothing;
    sub.on_result = on_no_result;
    sub.retained = true;
    return read_address(argv[2], address, sizeof address) && frisbee_connect(pool, address, &conn, &client.conn) == FRISBEE_OK &&
           frisbee_subscribe(pool, client.conn, "a.*", &sub, &client.sub) == FRISBEE_OK;
}

static bool client_ended(frisbee_pool *pool) {
    if (client.opened && !client.unsubscribed && now_ms() - client.opened > SILENCE_MS) {
        client.unsubscribed = frisbee_unsubscribe(pool, client.sub) == FRISBEE_OK;
        ask_echo(pool);
        if (!client.unsubscribed) report(client.name, false, "frisbee_unsubscribe");
        client.unsubscribed = true;
    }
    if (client.unsubscribed && client.calls == 3) frisbee_close(pool, client.conn, FRISBEE_CLOSE_FLUSH);
    if (!client.ended) return false;
    report(client.name, client.unexpected == 0 && client.calls == 3 && client.asked == 3 && client.closed == FRISBEE_OK,
           "no broker: a subscription gets no answer in %d ms, calls go on (%u of %u), the connection is fine (%s)", SILENCE_MS,
           (unsigned)client.calls, (unsigned)client.asked, frisbee_result_string(client.closed));
    report(client.name, client.published == FRISBEE_TIMED_OUT, "no broker: a confirmed publish: %s", frisbee_result_string(client.published));
    report(client.name, client.streams == 1 && client.stream == FRISBEE_CLOSED, "no streams: the stock server closes one (%s)",
           frisbee_result_string(client.stream));
    return true;
}

// >>main

int main(int argc, char **argv) {
    int64_t deadline = now_ms() + LIMIT_MS;
    frisbee_broker broker;
    frisbee_pool_desc desc;
    frisbee_pool *pool;
    bool is_broker, ok;
    alarm(LIMIT_MS / 1000 + 5); // should the library hang
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    role = argc > 1 ? argv[1] : "";
    is_broker = argc == 3 && !strcmp(role, "broker");
    make_pattern();
    memset(&desc, 0, sizeof desc);
    memset(&broker, 0, sizeof broker);
    broker.may_subscribe = may_subscribe;
    broker.may_publish = may_publish;
    broker.on_subscribe = on_subscribe;
    broker.on_unsubscribe = on_unsubscribe;
    broker.allow_block = true;
    broker.max_conn_subs = MAX_CONN_SUBS;
    if (is_broker) desc.broker = &broker;
    if (frisbee_pool_create(&desc, &pool) != FRISBEE_OK) return 1;
    ok = is_broker ? start_broker(pool, argv[2]) : argc == 5 && !strcmp(role, "client") && start_client(pool, argv);
    if (!ok) report(NULL, false, "set-up");
    while (ok && !(is_broker ? broker_ended(pool) : client_ended(pool))) {
        frisbee_result result = frisbee_poll(pool, 20);
        if (now_ms() < deadline && result == FRISBEE_OK) continue;
        report(NULL, false, "not finished: %s, %u versions, %u calls", frisbee_result_string(result), (unsigned)finished, (unsigned)client.calls);
        ok = false;
    }
    frisbee_pool_destroy(pool);
    return failures != 0;
}
