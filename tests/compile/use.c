// A user of frisbee.h in C and in C++: includes it before and after other headers, and twice; uses a little of everything. Linked with frisbee.c
// (in C or C++), or alone with FRISBEE_STATIC. Exits 0 if what was built works.
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

int main(void) {
    int framing = framing_works(), pool = pool_works();
    printf("framing %s, %s\n", framing ? "works" : "FAILS", pool == 2 ? "no sockets" : pool ? "sockets work" : "sockets FAIL");
#ifdef EXPECT_SOCKETS
    if (pool != EXPECT_SOCKETS) return 1;
#endif
    return framing && pool ? 0 : 1;
}
