// firmware.c - frisbee.h on a microcontroller: no operating system, no malloc, no threads, a UART instead of a socket.
//
//     cc -I.. firmware.c -o firmware      (runs on the PC: two pools in one process, joined by two simulated UARTs)
//     ./firmware                          exits 0 if every call got its answer
//
// Shows: FRISBEE_POLLER_NONE and FRISBEE_NO_THREADS, a pool in a fixed block whose size the compiler knows, a transport of bytes that an
// interrupt handler pushes in (frisbee_feed) and drains (frisbee_wake), a clock made of ticks, routes that lie in ROM.

#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#define FRISBEE_NO_THREADS
#define FRISBEE_LOG_LEVEL 0
#define FRISBEE_MALLOC(size) ((void)(size), (void *)0) // there is no heap; whoever asked for one would get nothing
#define FRISBEE_REALLOC(block, size) ((void)(block), (void)(size), (void *)0)
#define FRISBEE_FREE(block) ((void)(block))
#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <stdio.h>

enum { OP_LED = 10, OP_SENSOR = 11 };
enum { CONNS = 1, CALLS_AT_ONCE = 4, PACKET_BYTES = 64, QUEUE_BYTES = 256 };

// What a pool lives in: static, aligned as by malloc, and always enough for the limits above.
typedef union block {
    long double widest;
    void *pointer;
    unsigned char bytes[FRISBEE_POOL_BYTES(CONNS, CALLS_AT_ONCE, PACKET_BYTES, QUEUE_BYTES)];
} block;

static uint64_t ticks; // milliseconds since power-on

static uint64_t tick_clock(void *context) {
    (void)context;
    return ticks * 1000;
}

// ---- the UART: a ring of bytes to send, emptied by an interrupt

enum { RING_BYTES = 32, BYTES_PER_TICK = 11 }; // 115,200 baud are 11.5 bytes a millisecond

typedef struct uart {
    frisbee_pool *pool;
    frisbee_conn conn;
    unsigned char ring[RING_BYTES];
    unsigned head, tail; // count up for ever; the remainder is the place
    bool closed;
} uart;

// What fits into the ring is taken; the rest comes again after frisbee_wake.
static frisbee_result uart_write(void *context, const frisbee_span *spans, size_t count, size_t *done) {
    uart *u = (uart *)context;
    *done = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < spans[i].length; k++, ++*done) {
            if (u->head - u->tail == RING_BYTES) return *done ? FRISBEE_OK : FRISBEE_AGAIN;
            u->ring[u->head++ % RING_BYTES] = ((const unsigned char *)spans[i].data)[k];
        }
    return FRISBEE_OK;
}

static void uart_close(void *context) {
    ((uart *)context)->closed = true;
}

// One tick of the wire: some bytes leave one ring and arrive at the other side. On a real board the receiving half is the interrupt
// handler's ring, emptied into frisbee_feed by the main loop.
static void uart_transfer(uart *from, uart *to) {
    unsigned char bytes[BYTES_PER_TICK];
    size_t count = 0, taken = 0;
    while (count < BYTES_PER_TICK && from->tail + count != from->head) bytes[count] = from->ring[(from->tail + count) % RING_BYTES], count++;
    if (!count) return;
    frisbee_feed(to->pool, to->conn, bytes, count, &taken); // fewer than all: the rest stays in the ring until the next tick
    from->tail += (unsigned)taken;
    if (taken) frisbee_wake(from->pool, from->conn, FRISBEE_WRITE);
}

// ---- the board: answers requests

typedef struct board {
    bool led;
    unsigned readings;
} board;

static board the_board;

static void on_led(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    board *b = (board *)user;
    if (packet->length == 1) b->led = *(const unsigned char *)packet->data != 0;
    frisbee_reply(pool, &packet->from, NULL, 0);
}

static void on_sensor(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    board *b = (board *)user;
    unsigned char reading[2];
    unsigned value = 2000 + b->readings++; // hundredths of a degree
    reading[0] = (unsigned char)(value >> 8);
    reading[1] = (unsigned char)value;
    frisbee_reply(pool, &packet->from, reading, sizeof reading);
}

static const frisbee_route board_routes[] = {{OP_LED, on_led, &the_board}, {OP_SENSOR, on_sensor, &the_board}}; // const: in ROM

// ---- the other side: asks

typedef struct host {
    uart *port;
    unsigned asked, answered, wrong;
} host;

static void on_reading(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    host *h = (host *)user;
    const unsigned char *reading = (const unsigned char *)outcome->data;
    (void)pool, (void)call;
    if (outcome->result || outcome->length != 2 || (unsigned)(reading[0] << 8 | reading[1]) != 2000 + h->answered) h->wrong++;
    h->answered++;
}

static void on_led_set(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call;
    if (outcome->result) ((host *)user)->wrong++;
}

// ---- both

static bool open_port(uart *u, block *memory, const frisbee_route *routes, size_t route_count, frisbee_role role) {
    frisbee_pool_desc pool = {0};
    frisbee_conn_desc conn = {0};
    frisbee_transport transport = {0};
    pool.memory = memory->bytes;
    pool.memory_size = sizeof memory->bytes;
    pool.max_conns = CONNS;
    pool.max_calls = CALLS_AT_ONCE;
    pool.max_packet = PACKET_BYTES;
    pool.queue_limit = QUEUE_BYTES;
    pool.now_us = tick_clock;
    if (frisbee_pool_create(&pool, &u->pool)) return false;
    transport.context = u;
    transport.write = uart_write; // no read: bytes come by frisbee_feed
    transport.close = uart_close;
    transport.wake_only = true; // it says by frisbee_wake when there is room again
    conn.role = role;
    conn.routes = routes;
    conn.route_count = route_count;
    return frisbee_attach(u->pool, &transport, &conn, NULL, 0, &u->conn) == FRISBEE_OK;
}

int main(void) {
    static block board_memory, host_memory;
    static uart board_port, host_port;
    enum { READINGS = 500, LIMIT_MS = 60000 };
    frisbee_call_desc led = {0}, sensor = {0};
    host h = {&host_port, 0, 0, 0};
    unsigned char on = 1;

    if (!open_port(&board_port, &board_memory, board_routes, 2, FRISBEE_ACCEPTOR)) return 1;
    if (!open_port(&host_port, &host_memory, NULL, 0, FRISBEE_CONNECTOR)) return 1;
    led.on_reply = on_led_set;
    sensor.on_reply = on_reading;
    led.user = sensor.user = &h;
    if (frisbee_call(host_port.pool, host_port.conn, OP_LED, &on, 1, &led, NULL)) return 1;

    for (; ticks < LIMIT_MS && h.answered < READINGS && !h.wrong; ticks++) { // the main loop, once a millisecond
        uart_transfer(&host_port, &board_port);
        uart_transfer(&board_port, &host_port);
        if (frisbee_poll(board_port.pool, 0) || frisbee_poll(host_port.pool, 0)) return 1;
        // EXHAUSTED or AGAIN is an answer, not a mishap: four calls are under way, the next tick tries again.
        while (h.asked < READINGS && frisbee_call(host_port.pool, host_port.conn, OP_SENSOR, NULL, 0, &sensor, NULL) == FRISBEE_OK) h.asked++;
    }

    printf("%u readings over a UART in %u ms of its time, the LED is %s, %u wrong; %u bytes of memory a side\n", h.answered, (unsigned)ticks,
           the_board.led ? "on" : "off", h.wrong, (unsigned)sizeof board_memory.bytes);
    frisbee_pool_destroy(host_port.pool);
    frisbee_pool_destroy(board_port.pool);
    return h.answered == READINGS && !h.wrong && the_board.led && host_port.closed && board_port.closed ? 0 : 1;
}
