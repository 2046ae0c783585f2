// game_loop.c - 60 frames a second; the network is served once a frame and never blocks, allocates threads or reads a clock.
//
//     cc -I.. game_loop.c -o game_loop
//     ./game_loop [frames]                       server and client in one process (120 frames), checks the outcome
//     ./game_loop server ADDRESS [frames]        each in its own
//     ./game_loop client ADDRESS [frames]
//
// Shows: frisbee_poll(pool, 0) at the start of a frame, frisbee_flush at its end, the game's own clock (which may stand still, be slowed
// down, or jump after a stop in the debugger), a budget for each frame, packets without replies, slow players that miss snapshots.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OP_INPUT = 10, OP_SNAPSHOT = 11, PLAYERS = 16, FRAME_US = 1000000 / 60, SLOW_PLAYER_BYTES = 16384 };

static uint64_t game_clock_us; // advances by one frame at a time

static uint64_t game_clock(void *context) {
    (void)context;
    return game_clock_us;
}

static void must(frisbee_result result, const char *what) {
    if (result == FRISBEE_OK) return;
    fprintf(stderr, "game_loop: %s: %s\n", what, frisbee_result_string(result));
    exit(1);
}

static frisbee_pool *create_pool(void) {
    frisbee_pool *pool;
    frisbee_pool_desc desc = {0};
    desc.now_us = game_clock;
    desc.max_step_ms = 250;    // an hour in the debugger is a quarter of a second to the heartbeats
    desc.budget_packets = 500; // what is left waits for the next frame
    must(frisbee_pool_create(&desc, &pool), "pool");
    return pool;
}

// ---- server: players steer with OP_INPUT, and everybody is told where all are by OP_SNAPSHOT

typedef struct player {
    frisbee_conn conn;
    bool here;
    int32_t x;
} player;

static struct {
    frisbee_pool *pool;
    player players[PLAYERS];
    unsigned inputs, snapshots, skipped;
} server;

static void server_on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)user;
    for (int i = 0; i < PLAYERS; i++) {
        player *p = &server.players[i];
        if (p->here) continue;
        p->conn = conn;
        p->here = true;
        p->x = 0;
        frisbee_set_user(pool, conn, p); // from now on packet->conn_user
        return;
    }
    frisbee_close(pool, conn, FRISBEE_CLOSE_NOW);
}

static void server_on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    player *p = (player *)user;
    (void)pool, (void)conn, (void)info;
    if (p) p->here = false;
}

static void server_on_input(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    player *p = (player *)packet->conn_user;
    (void)pool, (void)user;
    if (!p || packet->length != 1) return; // not for us: ignored
    p->x += *(const int8_t *)packet->data;
    server.inputs++;
}

static const frisbee_events server_events = {server_on_open, NULL, NULL, NULL, server_on_close};
static const frisbee_route server_routes[] = {{OP_INPUT, server_on_input, NULL}};

static void server_start(const char *address, char *bound, size_t room) {
    frisbee_conn_desc desc = {0};
    frisbee_listener listener;
    desc.events = &server_events;
    desc.routes = server_routes;
    desc.route_count = 1;
    desc.max_conns = PLAYERS;
    desc.max_packet = 64; // whoever sends more is no player
    server.pool = create_pool();
    must(frisbee_listen(server.pool, address, &desc, &listener), address);
    must(frisbee_listener_address(server.pool, listener, bound, room), "address");
}

static void server_frame(unsigned frame) {
    uint8_t snapshot[PLAYERS * 4];
    size_t length = 0;
    for (int i = 0; i < PLAYERS; i++) {
        uint32_t x = (uint32_t)server.players[i].x;
        for (int shift = 24; shift >= 0; shift -= 8) snapshot[length++] = (uint8_t)(x >> shift);
    }
    for (int i = 0; i < PLAYERS; i++) {
        player *p = &server.players[i];
        if (!p->here) continue;
        // A snapshot is worth nothing when the next one is there: a slow player gets fewer of them instead of old ones.
        if (frisbee_queued(server.pool, p->conn) > SLOW_PLAYER_BYTES ||
            frisbee_send(server.pool, p->conn, OP_SNAPSHOT, (uint16_t)frame, snapshot, length) != FRISBEE_OK)
            server.skipped++;
        else
            server.snapshots++;
    }
}

// ---- client

static struct {
    frisbee_pool *pool;
    frisbee_conn conn;
    unsigned inputs, snapshots;
    int32_t x; // of player 0, in the latest snapshot
    bool closed;
} client;

static void client_on_snapshot(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const uint8_t *data = (const uint8_t *)packet->data;
    (void)pool, (void)user;
    if (packet->length != PLAYERS * 4) return;
    client.x = (int32_t)((uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3]);
    client.snapshots++;
}

static void client_on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    (void)pool, (void)conn, (void)user;
    client.closed = true;
    if (info->reason != FRISBEE_DESTROYED) printf("client: connection closed: %s\n", frisbee_result_string(info->reason));
}

static const frisbee_events client_events = {NULL, NULL, NULL, NULL, client_on_close};
static const frisbee_route client_routes[] = {{OP_SNAPSHOT, client_on_snapshot, NULL}};

static void client_start(const char *address) {
    frisbee_conn_desc desc = {0};
    desc.events = &client_events;
    desc.routes = client_routes;
    desc.route_count = 1;
    client.pool = create_pool();
    must(frisbee_connect(client.pool, address, &desc, &client.conn), address);
}

static void client_frame(unsigned frame, bool steer) {
    int8_t step = frame % 4 ? 1 : -1;
    if (steer && frisbee_send(client.pool, client.conn, OP_INPUT, (uint16_t)frame, &step, 1) == FRISBEE_OK) client.inputs++;
}

// ---- the loop

static void network_in(frisbee_pool *pool) {
    frisbee_result result = pool ? frisbee_poll(pool, 0) : FRISBEE_OK;
    if (result != FRISBEE_AGAIN) must(result, "poll"); // AGAIN: the budget of this frame is spent
}

static void network_out(frisbee_pool *pool) {
    if (pool) must(frisbee_flush(pool), "flush");
}

static void wait_for_next_frame(struct timespec *next) {
    struct timespec now, pause;
    next->tv_nsec += FRAME_US * 1000L;
    if (next->tv_nsec >= 1000000000L) next->tv_sec++, next->tv_nsec -= 1000000000L;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pause.tv_sec = next->tv_sec - now.tv_sec;
    pause.tv_nsec = next->tv_nsec - now.tv_nsec;
    if (pause.tv_nsec < 0) pause.tv_sec--, pause.tv_nsec += 1000000000L;
    if (pause.tv_sec >= 0) nanosleep(&pause, NULL);
    else *next = now; // too late: do not try to catch up
}

int main(int argc, char **argv) {
    bool serve = argc > 2 && strcmp(argv[1], "server") == 0, play = argc > 2 && strcmp(argv[1], "client") == 0;
    bool both = !serve && !play;
    const char *count = both ? (argc > 1 ? argv[1] : "120") : (argc > 3 ? argv[3] : "3600");
    unsigned frames = (unsigned)strtoul(count, NULL, 10), extra = both ? 120 : 0, frame;
    struct timespec next;
    char bound[128];

    if (serve || both) {
        server_start(both ? "127.0.0.1:0" : argv[2], bound, sizeof bound);
        printf("server: listening on %s\n", bound);
    }
    if (play || both) client_start(both ? bound : argv[2]);
    fflush(stdout);

    clock_gettime(CLOCK_MONOTONIC, &next);
    for (frame = 0; frame < frames + extra && !client.closed; frame++) {
        // In one process the outcome is checked: after the last input the loop goes on until everything has arrived.
        if (frame >= frames && server.inputs == client.inputs && client.x == server.players[0].x) break;
        network_in(server.pool); // callbacks run here and only here
        network_in(client.pool);
        if (server.pool) server_frame(frame);
        if (client.pool) client_frame(frame, frame < frames);
        network_out(server.pool); // what this frame sent leaves now, not at the start of the next
        network_out(client.pool);
        wait_for_next_frame(&next);
        game_clock_us += FRAME_US;
    }

    if (server.pool) printf("server: %u frames, %u inputs, %u snapshots, %u skipped\n", frame, server.inputs, server.snapshots, server.skipped);
    if (client.pool) printf("client: %u frames, %u inputs, %u snapshots, now at %d\n", frame, client.inputs, client.snapshots, (int)client.x);
    if (both && (client.closed || client.inputs != frames || server.inputs != frames || client.x != server.players[0].x || !client.snapshots)) {
        fprintf(stderr, "game_loop: client and server do not agree\n");
        return 1;
    }
    frisbee_pool_destroy(client.pool);
    frisbee_pool_destroy(server.pool);
    return 0;
}
