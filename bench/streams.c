// streams.c - what streams with flow control cost over plain packets: one connection between two processes, each with frisbee.h on a core
// of its own; one side sends as fast as the other takes, by frisbee_send ("packets"), on one stream, or on many in turn.
//
//   streams [-p bytes] [-c streams] [-w stream_window in KiB] [-s seconds per run] [-n rounds] [-k (keep spinning)]
//
// Runs the contestants in turn and prints the medians and their ratios to packets, also of the processor time that both sides together take
// per message. The order of each stream is checked, and that all that was sent has come. Linux only.
#define _GNU_SOURCE
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "bench.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { STREAMS_MOST = 1000, BYTES_MOST = 1 << 20, ROUNDS_MOST = 101, WAIT = 10 /* s */, OPERATION = 10, HIGH_WATER = 256 * 1024 };
enum { PACKETS, PACKETS_AGAIN, ONE_STREAM, MANY_STREAMS, CONTESTANTS };
static int bytes, many = 100, rounds = 5, spin;
static uint32_t window;
static double seconds = 0.5;

// What the receiver tells the sender: messages that came in order, and whether one did not.
static struct {
    volatile uint64_t received;
    volatile int disordered;
} *shared;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

// >>receiver

static uint64_t expected[STREAMS_MOST + 1]; // the next number of each stream, which its messages begin with; the last: of packets
static int opened;

static void receive(const void *data, uint32_t length, uint64_t *number) {
    uint64_t got;
    memcpy(&got, data, sizeof got);
    if (got != (*number)++ || length != (uint32_t)bytes) shared->disordered = 1;
    shared->received++;
}

static void on_packet(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)pool;
    receive(packet->data, packet->length, (uint64_t *)user);
}

static void on_data(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    (void)pool, (void)stream;
    receive(data, length, (uint64_t *)user);
}

static void on_stream(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    (void)conn, (void)user;
    if (opened < STREAMS_MOST) frisbee_stream_bind(pool, stream, NULL, &expected[opened++]);
    else shared->disordered = 1;
}

// Tells the port, then receives until the process is killed.
static void receiver(int tell) {
    static const frisbee_stream_events streams = {on_stream, on_data, NULL, NULL};
    frisbee_pool *pool;
    frisbee_listener listener;
    frisbee_conn_desc desc;
    char address[64];
    int port;
    memset(&desc, 0, sizeof desc);
    desc.streams = &streams;
    desc.stream_window = window;
    if (frisbee_pool_create(NULL, &pool) || frisbee_on(pool, OPERATION, on_packet, &expected[STREAMS_MOST])) fail("pool");
    if (frisbee_listen(pool, "127.0.0.1:0", &desc, &listener) || frisbee_listener_address(pool, listener, address, sizeof address)) fail("listen");
    port = atoi(strrchr(address, ':') + 1);
    if (write(tell, &port, sizeof port) != sizeof port) die("write");
    while (frisbee_poll(pool, spin ? 0 : -1) >= FRISBEE_AGAIN) {}
}

// >>sender: fills the connection's queue up to its high water; on_writable, of the connection or of a stream that had no credit, goes on

typedef struct outlet { // a stream, or the connection itself
    frisbee_stream stream;
    uint64_t number;
    bool ready; // it is in the ring
} outlet;
static outlet outlets[STREAMS_MOST];
static outlet *ring[STREAMS_MOST]; // those that may send, in turn
static int outlet_count, ring_at, ring_count, streaming;
static frisbee_conn conn;
static uint64_t sent;
static bool stopped;

static void put_ready(outlet *o) {
    if (o->ready) return;
    o->ready = true;
    ring[(ring_at + ring_count++) % STREAMS_MOST] = o;
}

static void fill(frisbee_pool *pool) {
    static uint8_t message[BYTES_MOST];
    while (!stopped && ring_count && frisbee_queued(pool, conn) <= HIGH_WATER) {
        outlet *o = ring[ring_at];
        frisbee_result result;
        memcpy(message, &o->number, sizeof o->number);
        if (streaming) result = frisbee_stream_send(pool, o->stream, message, (size_t)bytes);
        else result = frisbee_send(pool, conn, OPERATION, 0, message, (size_t)bytes);
        if (result != FRISBEE_OK && result != FRISBEE_AGAIN) fail(frisbee_result_string(result));
        ring_at = (ring_at + 1) % STREAMS_MOST;
        ring_count--;
        o->ready = false;
        if (result == FRISBEE_AGAIN) continue; // on_writable puts it back
        o->number++;
        sent++;
        put_ready(o);
    }
}

static void stream_writable(frisbee_pool *pool, frisbee_stream stream, void *user) {
    (void)stream;
    put_ready((outlet *)user);
    fill(pool);
}

static void stream_closed(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    (void)pool, (void)stream, (void)user;
    fail(frisbee_result_string(reason));
}

static void on_open(frisbee_pool *pool, frisbee_conn opened_conn, void *user) {
    int i;
    (void)user;
    for (i = 0; i < outlet_count; i++) {
        if (streaming && frisbee_stream_open(pool, opened_conn, NULL, &outlets[i], &outlets[i].stream)) fail("a stream could not be opened");
        put_ready(&outlets[i]);
    }
    fill(pool);
}

static void on_writable(frisbee_pool *pool, frisbee_conn written, void *user) {
    (void)written, (void)user;
    if (!streaming) put_ready(&outlets[0]);
    fill(pool);
}

static void on_close(frisbee_pool *pool, frisbee_conn closed, const frisbee_close_info *info, void *user) {
    (void)pool, (void)closed, (void)user;
    fail(frisbee_result_string(info->reason));
}

static double cpu_of(pid_t process) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(process, &clock) || clock_gettime(clock, &t)) return 0;
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

typedef struct score {
    double rate; // messages per second
    double cost; // ns of processor time per message, both sides together
} score;

static score sender(int port, pid_t server, int contestant) {
    static const frisbee_stream_events streams = {NULL, NULL, stream_writable, stream_closed};
    static const frisbee_events events = {on_open, NULL, on_writable, NULL, on_close};
    frisbee_pool *pool;
    frisbee_conn_desc desc;
    char address[32];
    double began, end, spent;
    uint64_t first;
    score result;
    streaming = contestant >= ONE_STREAM;
    outlet_count = contestant == MANY_STREAMS ? many : 1;
    memset(&desc, 0, sizeof desc);
    desc.events = &events;
    desc.streams = &streams;
    desc.stream_window = window;
    desc.high_water = HIGH_WATER;
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    if (frisbee_pool_create(NULL, &pool) || frisbee_connect(pool, address, &desc, &conn)) fail("connect");
    for (began = now(); now() - began < seconds / 5;) frisbee_poll(pool, spin ? 0 : 10); // until all is in step
    first = shared->received;
    spent = cpu_of(server) + cpu_of(0);
    began = now();
    do {
        frisbee_poll(pool, spin ? 0 : 10);
        end = now();
    } while (end - began < seconds);
    first = shared->received - first;
    result.rate = (double)first / (end - began);
    result.cost = (cpu_of(server) + cpu_of(0) - spent) * 1e9 / (double)first;
    stopped = true;
    for (end = now(); shared->received < sent && now() - end < WAIT;) frisbee_poll(pool, 1);
    if (shared->received != sent || shared->disordered || !first) fail("messages are missing, or out of order");
    return result;
}

// >>contest

// One run in two processes; what they have to tell comes through a pipe that ends with them.
static score contest(int contestant) {
    int port = 0, tell[2][2];
    pid_t server, client;
    score result;
    memset((void *)shared, 0, sizeof *shared);
    if (pipe(tell[0])) die("pipe");
    server = fork();
    if (server == 0) {
        alarm((unsigned)seconds * 2 + 3 * WAIT); // nothing is left running, whatever happens
        pin(0);
        receiver(tell[0][1]);
        _exit(0);
    }
    close(tell[0][1]);
    if (read(tell[0][0], &port, sizeof port) != sizeof port) fail("the receiver did not start");
    if (pipe(tell[1])) die("pipe"); // only now: it must end with the sender alone
    client = fork();
    if (client == 0) {
        alarm((unsigned)seconds * 2 + 3 * WAIT);
        pin(1);
        result = sender(port, server, contestant);
        if (write(tell[1][1], &result, sizeof result) != sizeof result) die("write");
        _exit(0);
    }
    close(tell[1][1]);
    if (read(tell[1][0], &result, sizeof result) != sizeof result) result.rate = 0;
    waitpid(client, NULL, 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    close(tell[0][0]);
    close(tell[1][0]);
    if (result.rate <= 0) exit(1); // the sender has said why
    return result;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void table(void) {
    static double rates[CONTESTANTS][ROUNDS_MOST], costs[CONTESTANTS][ROUNDS_MOST];
    char names[CONTESTANTS][32] = {"packets", "packets again (control)", "1 stream", ""};
    int i, k;
    snprintf(names[MANY_STREAMS], sizeof names[0], "%d streams", many);
    for (k = 0; k < rounds; k++)
        for (i = 0; i < CONTESTANTS; i++) {
            const score result = contest(i);
            rates[i][k] = result.rate;
            costs[i][k] = result.cost;
        }
    for (i = 0; i < CONTESTANTS; i++) {
        qsort(rates[i], (size_t)rounds, sizeof rates[i][0], by_size);
        qsort(costs[i], (size_t)rounds, sizeof costs[i][0], by_size);
    }
    for (i = 0; i < CONTESTANTS; i++) {
        const double rate = rates[i][rounds / 2], packets = rates[PACKETS][rounds / 2], cost = costs[i][rounds / 2];
        printf("%7d  %-24s %12.0f %8.0f  %5.2f (%.2f to %.2f)     %7.0f  %5.2f\n", bytes, names[i], rate, rate * bytes / 1e6, rate / packets,
               rates[i][0] / packets, rates[i][rounds - 1] / packets, cost, cost / costs[PACKETS][rounds / 2]);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const int usual[] = {100, 4096, 65536};
    int option, only = 0;
    size_t i;
    while ((option = getopt(argc, argv, "p:c:w:s:n:k")) != -1) {
        if (option == 'p') only = atoi(optarg);
        else if (option == 'c') many = atoi(optarg);
        else if (option == 'w') window = (uint32_t)atoi(optarg) * 1024;
        else if (option == 's') seconds = atof(optarg);
        else if (option == 'n') rounds = atoi(optarg);
        else if (option == 'k') spin = 1;
        else return 2;
    }
    if ((only && only < 8) || only > BYTES_MOST || many < 1 || many > STREAMS_MOST || rounds < 1 || rounds > ROUNDS_MOST) return 2;
    if (seconds <= 0 || seconds > 60) return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) die("mmap");
    printf("one connection: medians of %d runs of %.1f s\n", rounds, seconds);
    printf("%7s  %-24s %12s %8s  %s %7s  %s\n", "bytes", "sent as", "messages/s", "MB/s", "of packets (low to high)", "CPU ns", "of packets");
    fflush(stdout); // children have a copy of what is not yet written
    for (i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        bytes = only ? only : usual[i];
        table();
        if (only) break;
    }
    return 0;
}
