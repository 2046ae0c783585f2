// typed.c - typed calls without any tool: messages and a service declared by lists in C, a server and a client in one program.
//
//     cc -I.. typed.c -o typed && ./typed
//
// Shows: FRISBEE_MESSAGE, FRISBEE_SERVICE, a blocking call, a call with a callback, an error, a stream, comparing schemas.
// The same as a .proto file, with a compiler that writes the C, is in frpc/.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <stdio.h>

// A reading of a sensor, and what a station answers. Fields: shape, kind, name.
#define READING(F, T) F(T, one, string, sensor) F(T, many, f64, values) F(T, optional, u32, battery)
FRISBEE_MESSAGE(reading, READING)

#define SUMMARY(F, T) F(T, one, f64, mean) F(T, map, string, u32, readings)
FRISBEE_MESSAGE(summary, SUMMARY)

#define WATCH(F, T) F(T, one, u32, count)
FRISBEE_MESSAGE(watch, WATCH)

// The station's methods: kind, operation, name, request, response.
#define STATION(M, S) M(S, unary, 10, report, reading, summary) M(S, server_stream, 11, follow, watch, reading)
FRISBEE_SERVICE(station, STATION)

// ---- the server: a table of functions

static void report(frisbee_pool *pool, const frisbee_rpc *rpc, const reading *request, void *user) {
    static summary_readings_entry entry;
    summary response;
    uint32_t i;
    (void)user;
    if (request->values_count == 0) {
        (void)frisbee_rpc_fail(pool, rpc, "a reading without values");
        return;
    }
    memset(&response, 0, sizeof response);
    for (i = 0; i < request->values_count; i++) response.mean += request->values[i] / request->values_count;
    entry.key = request->sensor;
    entry.value++;
    response.readings = &entry;
    response.readings_count = 1;
    (void)station_report_reply(pool, rpc, &response); // encoded before it returns: nothing has to live on
}

static void follow(frisbee_pool *pool, const frisbee_rpc *rpc, const watch *request, void *user) {
    uint32_t i;
    (void)user;
    for (i = 0; i < request->count; i++) {
        const double value = 20 + i * 0.5;
        reading message;
        memset(&message, 0, sizeof message);
        message.sensor = frisbee_string_of("cellar");
        message.values = &value;
        message.values_count = 1;
        if (station_follow_reply(pool, rpc, &message) != FRISBEE_OK) return;
    }
    (void)frisbee_rpc_finish(pool, rpc);
}

// ---- the client

static int ends;

static void on_report(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const summary *response, void *user) {
    (void)pool;
    (void)rpc;
    (void)response;
    (void)user;
    printf("report: %s, %.*s\n", frisbee_result_string(outcome->result), (int)outcome->error.length, outcome->error.data);
    ends += outcome->result == FRISBEE_FAILED;
}

static void on_reading(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const reading *response, void *user) {
    char text[128];
    (void)pool;
    (void)rpc;
    (void)user;
    if (response) {
        (void)frisbee_message_print(&reading_type, response, text, sizeof text);
        printf("follow: %s\n", text);
    }
    if (outcome) ends += outcome->result == FRISBEE_OK; // the end of the stream
}

static void on_compared(frisbee_pool *pool, frisbee_conn conn, frisbee_result result, void *user) {
    (void)pool;
    (void)conn;
    (void)user;
    printf("both sides mean the same station: %s\n", frisbee_result_string(result));
    ends += result == FRISBEE_OK;
}

static void on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    const reading empty = {{"cellar", 6}, NULL, 0, false, 0};
    const watch request = {3};
    (void)user;
    (void)station_report(pool, conn, &empty, NULL, on_report, NULL, NULL);
    (void)station_follow(pool, conn, &request, NULL, on_reading, NULL, NULL);
    (void)frisbee_service_compare(pool, conn, &station_service, 0, on_compared, NULL);
}

int main(void) {
    static const station_functions functions = {report, follow};
    static const double values[] = {19.5, 20.5, 23};
    const reading request = {{"cellar", 6}, values, 3, true, 87};
    static frisbee_events events;
    frisbee_rpc_outcome outcome;
    frisbee_listener listener;
    frisbee_conn_desc desc;
    frisbee_pool *pool;
    frisbee_conn conn;
    char address[128];
    summary response;
    int turns;

    if (frisbee_pool_create(NULL, &pool) != FRISBEE_OK || station_serve(pool, &functions, NULL, NULL) != FRISBEE_OK) return 1;
    if (frisbee_listen(pool, "127.0.0.1:0", NULL, &listener) != FRISBEE_OK) return 1;
    if (frisbee_listener_address(pool, listener, address, sizeof address) != FRISBEE_OK) return 1;

    events.on_open = on_open;
    memset(&desc, 0, sizeof desc);
    desc.events = &events;
    desc.streams = frisbee_rpc_streams(); // for methods that stream
    if (frisbee_connect(pool, address, &desc, &conn) != FRISBEE_OK) return 1;
    if (station_report_wait(pool, conn, &request, 1000, &response, &outcome) != FRISBEE_OK) return 1;
    printf("report: a mean of %.2f, reading %lu of %.*s\n", response.mean, (unsigned long)response.readings[0].value,
           (int)response.readings[0].key.length, response.readings[0].key.data);
    for (turns = 0; turns < 1000 && ends < 3; turns++) (void)frisbee_poll(pool, 100);
    frisbee_pool_destroy(pool);
    return ends == 3 && response.mean == 21 ? 0 : 1;
}
