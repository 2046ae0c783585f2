// echo.c - what the library costs over the least that can be done: a hand-written epoll loop ("raw") with the same packets, which reads once,
// parses all, copies the replies together and writes once. Server and client are each raw or frisbee.h, on a core of their own.
//
//   echo [-c connections] [-d calls in flight on each] [-p payload bytes] [-s seconds per run] [-n pairs] [-k (keep spinning)]
//
// Runs the contestants in turn and prints the medians and their ratios to raw. Linux only.
#define _GNU_SOURCE
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "bench.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { HEADER = 10, BUFFER = 256 * 1024, MOST = 10000 };
static int connections = 100, depth = 10, payload = 32, pairs = 5, spin;
static double seconds = 1;

// >>raw: a connection is its descriptor and what was left over

typedef struct raw_conn {
    uint8_t *rest;
    size_t size;
    uint16_t next;
} raw_conn;

static void write_all(int fd, const uint8_t *data, size_t size) {
    while (size) {
        const ssize_t done = send(fd, data, size, MSG_NOSIGNAL);
        if (done > 0) data += done, size -= (size_t)done;
        else if (done < 0 && errno != EAGAIN && errno != EINTR) return;
    }
}

// Reads once; answers the bytes, with what was left over before them, or 0 at the end.
static size_t raw_read(int fd, raw_conn *conn, uint8_t *buffer) {
    ssize_t got;
    if (conn->size) memcpy(buffer, conn->rest, conn->size);
    got = recv(fd, buffer + conn->size, BUFFER, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return 0;
    return conn->size + (got > 0 ? (size_t)got : 0);
}

static void raw_keep(raw_conn *conn, const uint8_t *data, size_t size) {
    if (size && !conn->rest && !(conn->rest = (uint8_t *)malloc((size_t)payload + HEADER))) die("malloc");
    if (size) memcpy(conn->rest, data, size);
    conn->size = size;
}

static void raw_server(int listener) {
    static raw_conn conns[MOST * 2];
    static uint8_t in[BUFFER * 8], out[BUFFER * 8];
    struct epoll_event events[64], event;
    const int poller = epoll_create1(0);
    event.events = EPOLLIN;
    event.data.fd = listener;
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int i, count = epoll_wait(poller, events, 64, spin ? 0 : -1);
        for (i = 0; i < count; i++) {
            const int fd = events[i].data.fd, on = 1;
            size_t size, at = 0, to = 0;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                if (event.data.fd < 0 || event.data.fd >= MOST * 2) continue;
                fcntl(event.data.fd, F_SETFL, O_NONBLOCK);
                setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                epoll_ctl(poller, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            size = raw_read(fd, &conns[fd], in);
            if (size == 0) {
                close(fd);
                conns[fd].size = 0;
                continue;
            }
            while (size - at >= HEADER) {
                const uint32_t length = frisbeei_get32(in + at + 6), operation = frisbeei_get16(in + at + 4);
                if (size - at - HEADER < length) break;
                if (operation >= 10) { // not a PING
                    memcpy(out + to, in + at, HEADER + length);
                    to += HEADER + length;
                }
                at += HEADER + length;
            }
            raw_keep(&conns[fd], in + at, size - at);
            if (to) write_all(fd, out, to);
        }
    }
}

static int dial(int port) {
    struct sockaddr_in to;
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static double raw_client(int port) {
    static raw_conn conns[MOST * 2];
    static uint8_t in[BUFFER * 8], out[BUFFER * 8];
    struct epoll_event events[64], event;
    const int poller = epoll_create1(0);
    const size_t frame = HEADER + (size_t)payload;
    uint64_t replies = 0;
    double began, end;
    int i, k;
    event.events = EPOLLIN;
    for (i = 0; i < connections; i++) {
        event.data.fd = dial(port);
        epoll_ctl(poller, EPOLL_CTL_ADD, event.data.fd, &event);
        for (k = 0; k < depth; k++) {
            frisbeei_put_header(out, HEADER, 10, (uint32_t)k, (uint32_t)payload);
            write_all(event.data.fd, out, frame);
        }
    }
    began = now();
    do {
        int count = epoll_wait(poller, events, 64, spin ? 0 : -1);
        for (i = 0; i < count; i++) {
            const int fd = events[i].data.fd;
            size_t at = 0, to = 0, size = raw_read(fd, &conns[fd], in);
            while (size - at >= frame) { // the next request takes the reply's place
                frisbeei_put_header(out + to, HEADER, 10, conns[fd].next++, (uint32_t)payload);
                memcpy(out + to + HEADER, in + at + HEADER, (size_t)payload);
                to += frame;
                at += frame;
                replies++;
            }
            raw_keep(&conns[fd], in + at, size - at);
            if (to) write_all(fd, out, to);
        }
        end = now();
    } while (end - began < seconds);
    return (double)replies / (end - began);
}

// >>frisbee.h

static void serve(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    frisbee_reply(pool, &packet->from, packet->data, packet->length);
}

static uint64_t got;
static uint8_t request[1 << 20];

static void again(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    frisbee_call_desc desc;
    const frisbee_conn conn = {(uint64_t)(uintptr_t)user};
    (void)id;
    if (outcome->result != FRISBEE_OK) return;
    got++;
    memset(&desc, 0, sizeof desc);
    desc.on_reply = again;
    desc.user = user;
    frisbee_call(pool, conn, 10, request, (size_t)payload, &desc, NULL);
}

static double frisbee_client(int port) {
    frisbee_pool *pool;
    frisbee_conn_desc conn_desc;
    char address[32];
    double began, end;
    int i, k;
    memset(&conn_desc, 0, sizeof conn_desc);
    conn_desc.max_calls = 60000;
    conn_desc.queue_limit = (size_t)1 << 28;
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    if (frisbee_pool_create(NULL, &pool)) die("pool");
    for (i = 0; i < connections; i++) {
        frisbee_call_desc desc;
        frisbee_conn conn;
        memset(&desc, 0, sizeof desc);
        if (frisbee_connect(pool, address, &conn_desc, &conn)) die("connect");
        desc.on_reply = again;
        desc.user = (void *)(uintptr_t)conn.id;
        for (k = 0; k < depth; k++)
            if (frisbee_call(pool, conn, 10, request, (size_t)payload, &desc, NULL)) die("call");
    }
    while (got < (uint64_t)connections) frisbee_poll(pool, -1);
    got = 0;
    began = now();
    do {
        frisbee_poll(pool, spin ? 0 : -1);
        end = now();
    } while (end - began < seconds);
    return (double)got / (end - began);
}

// >>contest

static int port_of(int listener) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    getsockname(listener, (struct sockaddr *)&at, &length);
    return ntohs(at.sin_port);
}

// The frisbee.h server: tells its port, then serves until it is killed.
static void frisbee_server(int tell) {
    frisbee_pool *pool;
    frisbee_listener listener;
    frisbee_conn_desc desc;
    char address[64];
    int port;
    memset(&desc, 0, sizeof desc);
    desc.backlog = 4096;
    if (frisbee_pool_create(NULL, &pool) || frisbee_listen(pool, "127.0.0.1:0", &desc, &listener)) die("listen");
    if (frisbee_listener_address(pool, listener, address, sizeof address)) die("address");
    port = atoi(strrchr(address, ':') + 1);
    if (write(tell, &port, sizeof port) != sizeof port) die("write");
    frisbee_on(pool, 10, serve, NULL);
    while (frisbee_poll(pool, spin ? 0 : -1) >= FRISBEE_AGAIN) {}
}

static int raw_listen(int tell) {
    struct sockaddr_in at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    int port;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096)) die("listen");
    port = port_of(listener);
    if (write(tell, &port, sizeof port) != sizeof port) die("write");
    return listener;
}

// One run in two processes; what they have to tell comes through a pipe that ends with them.
static double contest(bool frisbee_serves, bool frisbee_calls) {
    int port = 0, tell[2][2];
    pid_t server, client;
    double rate = 0;
    if (pipe(tell[0]) || pipe(tell[1])) die("pipe");
    server = fork();
    if (server == 0) {
        pin(0);
        if (frisbee_serves) frisbee_server(tell[0][1]);
        else raw_server(raw_listen(tell[0][1]));
        _exit(0);
    }
    close(tell[0][1]);
    if (read(tell[0][0], &port, sizeof port) != sizeof port) die("the server did not start");
    client = fork();
    if (client == 0) {
        pin(1);
        rate = frisbee_calls ? frisbee_client(port) : raw_client(port);
        if (write(tell[1][1], &rate, sizeof rate) != sizeof rate) die("write");
        _exit(0);
    }
    close(tell[1][1]);
    if (read(tell[1][0], &rate, sizeof rate) != sizeof rate) rate = 0;
    waitpid(client, NULL, 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    close(tell[0][0]);
    close(tell[1][0]);
    return rate;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"raw server, raw client", "raw again (control)", "frisbee.h server, raw client", "frisbee.h server and client"};
    static double rates[4][101];
    int i, k, option;
    while ((option = getopt(argc, argv, "c:d:p:s:n:k")) != -1) {
        if (option == 'c') connections = atoi(optarg);
        else if (option == 'd') depth = atoi(optarg);
        else if (option == 'p') payload = atoi(optarg);
        else if (option == 's') seconds = atof(optarg);
        else if (option == 'n') pairs = atoi(optarg);
        else if (option == 'k') spin = 1;
        else return 2;
    }
    if (connections < 1 || connections > MOST || depth < 1 || depth > 57000 || payload < 0 || payload > 1 << 20 || pairs < 1 || pairs > 101) return 2;
    for (k = 0; k < pairs; k++)
        for (i = 0; i < 4; i++) rates[i][k] = contest(i >= 2, i == 3);
    printf("%d connections, %d calls in flight on each, %d bytes: median of %d runs, each %.1f s\n", connections, depth, payload, pairs, seconds);
    for (i = 0; i < 4; i++) qsort(rates[i], (size_t)pairs, sizeof rates[i][0], by_size);
    for (i = 0; i < 4; i++)
        printf("  %-30s %12.0f calls/s  %.2f of raw  (%.2f to %.2f)\n", names[i], rates[i][pairs / 2], rates[i][pairs / 2] / rates[0][pairs / 2],
               rates[i][0] / rates[0][pairs / 2], rates[i][pairs - 1] / rates[0][pairs / 2]);
    return 0;
}
