// A user of frisbee.h in C and in C++: includes it before and after other headers, and twice; uses a little of everything. Linked with frisbee.c
// (in C or C++), or alone with FRISBEE_STATIC. Exits 0 if what was built works, and what was left out (FRISBEE_NO_PUBSUB, FRISBEE_NO_STREAMS)
// says so.
#ifdef FRISBEE_STATIC
#define FRISBEE_IMPLEMENTATION
#endif
#include "frisbee.h"

#include <stdio.h>
#include <string.h>

#include "frisbee.h"

#define OP_ECHO 10

static void on_echo(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    *(frisbee_result *)user = frisbee_reply(pool, &packet->from, packet->data, packet->length);
}

static uint64_t no_time(void *context) {
    (void)context;
    return 0;
}

static int framing_works(void) {
    static const frisbee_wire wires[] = {FRISBEE_WIRE_V0, FRISBEE_WIRE_V1};
    uint8_t header[FRISBEE_WIRE_HEADER_MAX];
    frisbee_packet packet, back;
    frisbee_wire told;
    size_t i, size, used;
    memset(&packet, 0, sizeof packet);
    packet.from.id = 0x1234;
    packet.from.operation = 0xFEDC;
    for (i = 0; i < 2; i++) {
        size = frisbee_encode(wires[i], &packet, header);
        if (frisbee_decode(wires[i], header, size, 0, &back, &used) != FRISBEE_OK || used != size) return 0;
        if (back.from.id != 0x1234 || back.from.operation != 0xFEDC || back.length != 0) return 0;
        if (frisbee_sniff(header, size, 0, &told) != FRISBEE_OK || told != wires[i]) return 0;
        if (frisbee_decode(wires[i], header, size - 1, 0, &back, &used) != FRISBEE_AGAIN) return 0;
    }
    return strcmp(frisbee_result_string(FRISBEE_TIMED_OUT), "FRISBEE_TIMED_OUT") == 0;
}

// One pool that calls itself; 2 says that this build has no sockets.
static int pool_works(void) {
    frisbee_pool_desc desc;
    frisbee_pool *pool;
    frisbee_listener listener;
    frisbee_conn conn;
    frisbee_outcome outcome;
    frisbee_result result, replied = FRISBEE_UNHANDLED;
    char address[64];
    memset(&desc, 0, sizeof desc);
    if (frisbee_pool_create(NULL, &pool) != FRISBEE_OK) {
        desc.now_us = no_time; // without an operating system there is no clock either
        if (frisbee_pool_create(&desc, &pool) != FRISBEE_OK) return 0;
    }
    result = frisbee_listen(pool, "127.0.0.1:0", NULL, &listener);
    if (result == FRISBEE_UNSUPPORTED) {
        result = frisbee_connect(pool, "127.0.0.1:1", NULL, &conn);
        frisbee_pool_destroy(pool);
        return result == FRISBEE_UNSUPPORTED ? 2 : 0;
    }
    if (result != FRISBEE_OK || frisbee_listener_address(pool, listener, address, sizeof address) != FRISBEE_OK) return 0;
    if (frisbee_on(pool, OP_ECHO, on_echo, &replied) != FRISBEE_OK || frisbee_connect(pool, address, NULL, &conn) != FRISBEE_OK) return 0;
    result = frisbee_call_wait(pool, conn, OP_ECHO, "hello", 5, 5000, &outcome);
    if (result != FRISBEE_OK || outcome.length != 5 || memcmp(outcome.data, "hello", 5) != 0) return 0;
    frisbee_pool_destroy(pool);
    return replied == FRISBEE_OK;
}

// >>publish and subscribe, in one process

static int messages_right, replies_right;

static void on_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    (void)pool;
    messages_right += user == &messages_right && strcmp(message->topic, "a.b") == 0 && message->length == 5 &&
                      memcmp(message->data, "hello", 5) == 0 && message->conn.id == FRISBEE_LOCAL.id && !message->dropped;
}

static int pubsub_works(frisbee_pool *pool) {
    frisbee_sub_desc desc;
    frisbee_publish_desc retain;
    frisbee_sub_info info;
    frisbee_sub sub, at;
    frisbee_conn none;
    uint32_t count = 0;
    int i;
    memset(&desc, 0, sizeof desc);
    memset(&retain, 0, sizeof retain);
    sub.id = at.id = none.id = 0;
    desc.on_message = on_message;
    desc.user = &messages_right;
    retain.retain = true;
#ifdef FRISBEE_NO_PUBSUB
    (void)i, (void)none;
    return frisbee_subscribe(pool, FRISBEE_LOCAL, "a.*", &desc, &sub) == FRISBEE_UNSUPPORTED &&
           frisbee_unsubscribe(pool, sub) == FRISBEE_UNSUPPORTED &&
           frisbee_publish(pool, FRISBEE_LOCAL, "a.b", "hello", 5, &retain) == FRISBEE_UNSUPPORTED &&
           frisbee_sub_next(pool, &at, &info) == FRISBEE_UNSUPPORTED && frisbee_sub_describe(pool, sub, &info) == FRISBEE_UNSUPPORTED &&
           frisbee_topic_count(pool, "a.b", &count) == FRISBEE_UNSUPPORTED;
#else
    if (frisbee_subscribe(pool, FRISBEE_LOCAL, "a.*", &desc, &sub) != FRISBEE_OK) return 0;
    if (frisbee_publish(pool, none, "a.b", "hello", 5, &retain) != FRISBEE_CLOSED) return 0; // no handle is not FRISBEE_LOCAL
    if (frisbee_publish(pool, FRISBEE_LOCAL, "a.b", "hello", 5, &retain) != FRISBEE_OK || messages_right) return 0;
    for (i = 0; i < 10 && !messages_right; i++) (void)frisbee_poll(pool, 0);
    if (messages_right != 1 || frisbee_topic_count(pool, "a.b", &count) != FRISBEE_OK || count != 1) return 0;
    if (frisbee_sub_next(pool, &at, &info) != FRISBEE_OK || at.id != sub.id || strcmp(info.topic, "a.*") != 0) return 0;
    if (frisbee_sub_describe(pool, sub, &info) != FRISBEE_OK || info.delivered != 1 || info.dropped) return 0;
    return frisbee_unsubscribe(pool, sub) == FRISBEE_OK && frisbee_sub_next(pool, &at, NULL) == FRISBEE_CLOSED;
#endif
}

// >>streams, over a transport in memory: two pipes of which each end reads one and writes the other

struct pipe_end {
    struct pipe_end *peer;
    size_t length; // bytes that wait for this end
    int closed;
    char bytes[4096];
};

static frisbee_result pipe_read(void *context, void *into, size_t room, size_t *done) {
    struct pipe_end *end = (struct pipe_end *)context;
    if (!end->length) return end->peer->closed ? FRISBEE_CLOSED : FRISBEE_AGAIN;
    *done = end->length < room ? end->length : room;
    memcpy(into, end->bytes, *done);
    end->length -= *done;
    memmove(end->bytes, end->bytes + *done, end->length);
    return FRISBEE_OK;
}

static frisbee_result pipe_write(void *context, const frisbee_span *spans, size_t count, size_t *done) {
    struct pipe_end *to = ((struct pipe_end *)context)->peer;
    size_t i, n;
    *done = 0;
    for (i = 0; i < count; i++) {
        n = spans[i].length < sizeof to->bytes - to->length ? spans[i].length : sizeof to->bytes - to->length;
        if (n) memcpy(to->bytes + to->length, spans[i].data, n);
        to->length += n;
        *done += n;
    }
    return *done || !count ? FRISBEE_OK : FRISBEE_AGAIN;
}

static void pipe_close(void *context) { ((struct pipe_end *)context)->closed = 1; }

static int streams_closed, spans_released, streams_writable;

static void on_stream_open(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    (void)conn;
    (void)frisbee_stream_bind(pool, stream, NULL, user); // that of the connection
}

static void on_stream_data(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    if (user == &replies_right) replies_right += length == 5 && memcmp(data, "hello", 5) == 0; // the opener's
    else (void)frisbee_stream_send(pool, stream, data, length);
}

static void on_stream_writable(frisbee_pool *pool, frisbee_stream stream, void *user) {
    (void)pool;
    (void)stream;
    (void)user;
    streams_writable++;
}

static void on_stream_close(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    (void)pool;
    (void)stream;
    streams_closed += reason == (user == &replies_right ? FRISBEE_OK : FRISBEE_CLOSED);
}

static void on_release(void *user) { ++*(int *)user; }

static const frisbee_stream_events stream_events = {on_stream_open, on_stream_data, on_stream_writable, on_stream_close};

static int streams_work(frisbee_pool *pool) {
    static struct pipe_end ends[2];
    frisbee_transport io;
    frisbee_conn_desc desc;
    frisbee_conn conns[2];
    frisbee_stream stream;
    frisbee_span span;
    frisbee_result result = FRISBEE_NOT_SENT;
    int i;
    memset(&io, 0, sizeof io);
    memset(&desc, 0, sizeof desc);
    stream.id = 0;
    span.data = "hello";
    span.length = 5;
    io.read = pipe_read;
    io.write = pipe_write;
    io.close = pipe_close;
    desc.streams = &stream_events;
    desc.heartbeat_ms = FRISBEE_NEVER;
    for (i = 0; i < 2; i++) {
        ends[i].peer = &ends[!i];
        io.context = &ends[i];
        desc.role = i ? FRISBEE_ACCEPTOR : FRISBEE_CONNECTOR;
        if (frisbee_attach(pool, &io, &desc, NULL, 0, &conns[i]) != FRISBEE_OK) return 0;
    }
#ifdef FRISBEE_NO_STREAMS
    (void)result;
    return frisbee_stream_open(pool, conns[0], NULL, NULL, &stream) == FRISBEE_UNSUPPORTED &&
           frisbee_stream_send(pool, stream, "hello", 5) == FRISBEE_UNSUPPORTED &&
           frisbee_stream_send_spans(pool, stream, &span, 1, on_release, &spans_released) == FRISBEE_UNSUPPORTED &&
           frisbee_stream_pause(pool, stream, true) == FRISBEE_UNSUPPORTED &&
           frisbee_stream_bind(pool, stream, NULL, NULL) == FRISBEE_UNSUPPORTED &&
           frisbee_stream_close(pool, stream) == FRISBEE_UNSUPPORTED && frisbee_stream_user(pool, stream) == NULL &&
           frisbee_stream_conn(pool, stream).id == 0 && frisbee_stream_number(pool, stream) == 0;
#else
    for (i = 0; i < 100 && result == FRISBEE_NOT_SENT; i++) {
        (void)frisbee_poll(pool, 0);
        result = frisbee_stream_open(pool, conns[0], NULL, &replies_right, &stream);
    }
    if (result != FRISBEE_OK || frisbee_stream_user(pool, stream) != &replies_right) return 0;
    if (frisbee_stream_conn(pool, stream).id != conns[0].id || frisbee_stream_number(pool, stream) != 1) return 0;
    if (frisbee_stream_send(pool, stream, "hello", 5) != FRISBEE_OK) return 0;
    if (frisbee_stream_send_spans(pool, stream, &span, 1, on_release, &spans_released) != FRISBEE_OK) return 0;
    if (frisbee_stream_pause(pool, stream, true) != FRISBEE_OK) return 0;
    for (i = 0; i < 100; i++) (void)frisbee_poll(pool, 0);
    if (replies_right || frisbee_stream_pause(pool, stream, false) != FRISBEE_OK) return 0;
    for (i = 0; i < 100 && replies_right < 2; i++) (void)frisbee_poll(pool, 0);
    if (replies_right != 2 || frisbee_stream_close(pool, stream) != FRISBEE_OK) return 0;
    for (i = 0; i < 100; i++) (void)frisbee_poll(pool, 0);
    return streams_closed == 2 && spans_released == 1 && !streams_writable;
#endif
}

static int patterns_work(int *streams) {
    static frisbee_broker broker; // zero: all defaults
    frisbee_pool_desc desc;
    frisbee_pool *pool;
    int pubsub;
    memset(&desc, 0, sizeof desc);
    desc.now_us = no_time;
    desc.broker = &broker;
    *streams = 0;
#ifdef FRISBEE_NO_PUBSUB
    if (frisbee_pool_create(&desc, &pool) != FRISBEE_UNSUPPORTED) return 0; // it would be no broker
    desc.broker = NULL;
#endif
    if (frisbee_pool_create(&desc, &pool) != FRISBEE_OK) return 0;
    pubsub = pubsub_works(pool);
    *streams = streams_work(pool);
    frisbee_pool_destroy(pool);
    return pubsub;
}

int main(void) {
    int framing = framing_works(), pool = pool_works(), streams, pubsub = patterns_work(&streams);
    printf("framing %s, %s, publish and subscribe %s, streams %s\n", framing ? "works" : "FAILS",
           pool == 2 ? "no sockets" : pool ? "sockets work" : "sockets FAIL", pubsub ? "as built" : "FAIL", streams ? "as built" : "FAIL");
#ifdef EXPECT_SOCKETS
    if (pool != EXPECT_SOCKETS) return 1;
#endif
    return framing && pool && pubsub && streams ? 0 : 1;
}
