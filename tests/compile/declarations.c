// The public part alone, twice, before anything else: it must stand by itself, and declare every function and type of the patterns.
#include "frisbee.h"
#include "frisbee.h"

frisbee_result declarations_used(frisbee_pool *pool);
frisbee_result declarations_used(frisbee_pool *pool) {
    return frisbee_poll(pool, 0);
}

frisbee_result pubsub_used(frisbee_pool *pool, const frisbee_broker *broker, frisbee_on_message on_message);
frisbee_result pubsub_used(frisbee_pool *pool, const frisbee_broker *broker, frisbee_on_message on_message) {
    static const frisbee_slow slow[] = {FRISBEE_SLOW_DROP_NEW, FRISBEE_SLOW_DROP_OLD, FRISBEE_SLOW_LATEST, FRISBEE_SLOW_CLOSE, FRISBEE_SLOW_BLOCK};
    static char topic[FRISBEE_TOPIC_MAX + 1] = "a.b", group[FRISBEE_GROUP_MAX + 1] = "g";
    static frisbee_pool_desc pool_desc; // all are zero
    static frisbee_sub_desc sub_desc;
    static frisbee_publish_desc publish_desc;
    static frisbee_message message;
    frisbee_sub_info info;
    frisbee_published published;
    pool_desc.broker = broker;
    sub_desc.on_message = on_message;
    sub_desc.group = group;
    sub_desc.slow = slow[FRISBEE_TOPIC_TOKENS % 5];
    message.conn = FRISBEE_LOCAL;
    on_message(pool, &message, sub_desc.user);
    if (frisbee_pool_create(&pool_desc, &pool) != FRISBEE_OK) return FRISBEE_NO_MEMORY;
    if (frisbee_subscribe(pool, message.conn, topic, &sub_desc, &message.sub) != FRISBEE_OK) return FRISBEE_INVALID;
    if (frisbee_publish(pool, FRISBEE_LOCAL, topic, message.data, message.length, &publish_desc) != FRISBEE_OK) return FRISBEE_AGAIN;
    if (frisbee_sub_next(pool, &message.sub, &info) != FRISBEE_OK) return FRISBEE_CLOSED;
    if (frisbee_topic_count(pool, info.topic, &published.subscriptions) != FRISBEE_OK) return FRISBEE_MALFORMED;
    if (frisbee_sub_describe(pool, info.sub, &info) != FRISBEE_OK) return FRISBEE_REFUSED;
    return frisbee_unsubscribe(pool, info.sub);
}

uint16_t streams_used(frisbee_pool *pool, frisbee_conn conn, const frisbee_stream_events *events, frisbee_release release);
uint16_t streams_used(frisbee_pool *pool, frisbee_conn conn, const frisbee_stream_events *events, frisbee_release release) {
    static frisbee_conn_desc desc;
    frisbee_stream stream;
    frisbee_span span;
    span.data = "x";
    span.length = 1;
    desc.streams = events;
    if (frisbee_stream_open(pool, conn, desc.streams, NULL, &stream) != FRISBEE_OK) return 0;
    events->on_open(pool, frisbee_stream_conn(pool, stream), stream, frisbee_stream_user(pool, stream));
    events->on_data(pool, stream, span.data, (uint32_t)span.length, desc.user);
    events->on_writable(pool, stream, desc.user);
    events->on_close(pool, stream, frisbee_stream_send(pool, stream, span.data, span.length), desc.user);
    if (frisbee_stream_send_spans(pool, stream, &span, 1, release, NULL) != FRISBEE_OK) return 0;
    if (frisbee_stream_pause(pool, stream, true) != FRISBEE_OK) return 0;
    if (frisbee_stream_bind(pool, stream, events, NULL) != FRISBEE_OK) return 0;
    if (frisbee_stream_close(pool, stream) != FRISBEE_OK) return 0;
    return frisbee_stream_number(pool, stream);
}
