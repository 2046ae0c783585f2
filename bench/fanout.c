// fanout.c - one publisher, 1 to 1,000 subscribers on loopback: what the broker costs over the least that can be done, a hand-written
// epoll loop ("raw") that reads once, copies what it read into a buffer for each subscriber, with its id, and writes that once. "Shared"
// is the floor below: every subscriber has the same id and gets the very bytes that were read. Broker and clients are processes on cores
// of their own; the clients are hand-written too and discard what they count, so that the broker is what is measured.
//
//   fanout [-c subscribers] [-p payload bytes] [-w KiB in flight] [-s seconds per run] [-n rounds]
//          [-b (subscriptions block)] [-l (the broker's program publishes)] [-k (keep spinning)]
//
// The window keeps queues short, so that nothing is dropped; -w 0: no window, and subscriptions that block the publisher instead.
//
// Runs the contestants in turn and prints the medians and their ratios to raw, also of the broker's processor time per delivery (where it
// waits for its clients, the rate tells little). In each run the first and the last message are compared byte for byte, and every subscriber
// must have got every byte that was published. Linux only.
#define _GNU_SOURCE
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "bench.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { HEADER = 10, BUFFER = 256 * 1024, MOST = 4000, PAYLOAD_MOST = 1 << 20, ROUNDS_MOST = 101, WAIT = 10 /* s */ };
enum { SUBSCRIBE = 0xFF10, SUBSCRIBED = 0xFF11, PUBLISH = 0xFF14, MESSAGE = 0xFF15, ID = 1, DROP_NEW = 0, BLOCK = 4 };
enum { RAW, RAW_AGAIN, RAW_SHARED, LIBRARY, CONTESTANTS };
static const char topic[] = "bench.fanout";
static int subscribers, payload = 100, rounds = 5, block, local, spin;
static size_t window = 128 * 1024; // bytes of messages that were published and have not yet reached the average subscriber
static double seconds = 0.5;

// What the two processes of a run share. Each field has one writer and only grows.
static struct {
    volatile uint64_t delivered; // messages, to all subscribers together
    uint8_t apart[56];
    volatile uint64_t published; // by the broker's program (-l)
    volatile int begin, stop, stopped;
} *shared;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static size_t frame_size(void) { return HEADER + 2 + sizeof topic - 1 + (size_t)payload; }

// PUBLISH and MESSAGE differ in their headers alone: u8 flags, u8 length of the topic, topic, data.
static size_t put_frame(uint8_t *at, uint32_t operation, uint32_t id, uint64_t number) {
    const size_t size = frame_size();
    frisbeei_put_header(at, HEADER, operation, id, (uint32_t)(size - HEADER));
    at[HEADER] = 0;
    at[HEADER + 1] = sizeof topic - 1;
    memcpy(at + HEADER + 2, topic, sizeof topic - 1);
    memset(at + size - payload, (int)number, (size_t)payload);
    memcpy(at + size - payload, &number, sizeof number);
    return size;
}

static void write_all(int fd, const uint8_t *data, size_t size) {
    while (size) {
        const ssize_t done = send(fd, data, size, MSG_NOSIGNAL);
        if (done > 0) data += done, size -= (size_t)done;
        else if (done < 0 && errno != EAGAIN && errno != EINTR) return;
    }
}

// For -l. (Without a window raw is stopped by a full socket, the library by a subscription that blocks.)
static int window_open(void) {
    const uint64_t reached = shared->delivered / (uint64_t)subscribers;
    return window == 0 || (shared->published - reached) * frame_size() < window;
}

static int batch_size(void) { return 1 + (int)(BUFFER / 4 / frame_size()); }

// >>raw broker

static struct { int fd; uint32_t id; } raw_subs[MOST];
static int raw_sub_count;

static void raw_fan_out(uint8_t *frames, size_t size, bool share) {
    static uint8_t out[BUFFER + PAYLOAD_MOST + 1024];
    size_t at, length;
    int i;
    if (share)
        for (at = 0; at < size; at += HEADER + length) {
            length = frisbeei_get32(frames + at + 6);
            frisbeei_put_header(frames + at, HEADER, MESSAGE, ID, (uint32_t)length);
        }
    for (i = 0; i < raw_sub_count; i++) {
        for (at = 0; at < size && !share; at += HEADER + length) {
            length = frisbeei_get32(frames + at + 6);
            frisbeei_put_header(out + at, HEADER, MESSAGE, raw_subs[i].id, (uint32_t)length);
            memcpy(out + at + HEADER, frames + at + HEADER, length);
        }
        write_all(raw_subs[i].fd, share ? frames : out, size);
    }
}

static void raw_subscribe(int fd, uint32_t id) {
    uint8_t answer[HEADER + 1];
    if (raw_sub_count == MOST) return;
    raw_subs[raw_sub_count].fd = fd;
    raw_subs[raw_sub_count++].id = id;
    frisbeei_put_header(answer, HEADER, SUBSCRIBED, id, 1);
    answer[HEADER] = 0;
    write_all(fd, answer, sizeof answer);
}

static void raw_publish(uint8_t *frames, bool share) {
    size_t size = 0;
    int i;
    for (i = 0; i < batch_size() && window_open(); i++) size += put_frame(frames + size, PUBLISH, 0, shared->published++);
    raw_fan_out(frames, size, share);
}

// A subscriber sends SUBSCRIBE and the one publisher PUBLISH: its descriptor is the only one that can have part of a frame left over.
static void raw_broker(int listener, bool share) {
    static uint8_t in[BUFFER + PAYLOAD_MOST + 1024];
    struct epoll_event events[64], event;
    const int poller = epoll_create1(0);
    size_t kept = 0;
    event.events = EPOLLIN;
    event.data.fd = listener;
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int i, count = epoll_wait(poller, events, 64, spin || (local && shared->begin) ? 0 : local ? 1 : -1);
        for (i = 0; i < count; i++) {
            const int fd = events[i].data.fd, on = 1;
            size_t at = 0, size, publishes = 0;
            ssize_t got;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                if (event.data.fd < 0) continue;
                fcntl(event.data.fd, F_SETFL, O_NONBLOCK);
                setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                epoll_ctl(poller, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            got = recv(fd, in + kept, BUFFER, 0);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return; // the run has ended
            size = kept + (got > 0 ? (size_t)got : 0);
            while (size - at >= HEADER) {
                const uint32_t length = frisbeei_get32(in + at + 6), operation = frisbeei_get16(in + at + 4);
                if (size - at - HEADER < length) break;
                at += HEADER + length;
                if (operation == SUBSCRIBE) raw_subscribe(fd, frisbeei_get16(in + at - HEADER - length + 2));
                else if (operation == PUBLISH) publishes = at;
            }
            if (publishes) raw_fan_out(in, publishes, share);
            kept = size - at;
            memmove(in, in + at, kept);
        }
        if (!local || !shared->begin) continue;
        if (shared->stop) shared->stopped = 1;
        else raw_publish(in, share);
    }
}

static int raw_listen(int tell) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    int port;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096)) die("listen");
    if (getsockname(listener, (struct sockaddr *)&at, &length)) die("getsockname");
    port = ntohs(at.sin_port);
    if (write(tell, &port, sizeof port) != sizeof port) die("write");
    return listener;
}

// >>frisbee.h as broker

static void publish_batch(frisbee_pool *pool) {
    static uint8_t data[PAYLOAD_MOST];
    int i;
    for (i = 0; i < batch_size() && window_open(); i++) {
        const uint64_t number = shared->published;
        frisbee_result result;
        memset(data, (int)number, (size_t)payload); // as raw does
        memcpy(data, &number, sizeof number);
        result = frisbee_publish(pool, FRISBEE_LOCAL, topic, data, (size_t)payload, NULL);
        if (result == FRISBEE_AGAIN) return; // a subscriber blocks: there is room after a poll
        if (result != FRISBEE_OK) fail(frisbee_result_string(result));
        shared->published++;
    }
}

// Tells the port, then serves until the process is killed.
static void library_broker(int tell) {
    frisbee_pool *pool;
    frisbee_pool_desc pool_desc;
    frisbee_broker broker;
    frisbee_conn_desc desc;
    frisbee_listener listener;
    char address[64];
    int port;
    memset(&pool_desc, 0, sizeof pool_desc);
    memset(&broker, 0, sizeof broker);
    memset(&desc, 0, sizeof desc);
    broker.allow_block = true;
    pool_desc.broker = &broker;
    pool_desc.max_memory = (size_t)4 << 30;
    desc.backlog = 4096;
    desc.heartbeat_ms = FRISBEE_NEVER; // subscribers count bytes, and only messages may be among them
    if (frisbee_pool_create(&pool_desc, &pool)) fail("pool");
    if (frisbee_listen(pool, "127.0.0.1:0", &desc, &listener) || frisbee_listener_address(pool, listener, address, sizeof address)) fail("listen");
    port = atoi(strrchr(address, ':') + 1);
    if (write(tell, &port, sizeof port) != sizeof port) die("write");
    for (;;) {
        if (local && shared->begin) {
            if (shared->stop) shared->stopped = 1;
            else publish_batch(pool);
        }
        if (frisbee_poll(pool, spin || (local && shared->begin) ? 0 : local ? 1 : -1) < FRISBEE_AGAIN) return;
    }
}

// >>clients: the subscribers and the publisher, in one process

static struct { int fd; uint64_t bytes; } subs[MOST];
static uint64_t total;     // bytes, of all subscribers
static uint64_t published; // bytes
static uint8_t *frames;    // many PUBLISH frames, written again and again
static size_t frames_size;

static int dial(int port) {
    struct sockaddr_in to;
    struct timeval most = {WAIT, 0};
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most); // for what is awaited; the rest is read with MSG_DONTWAIT
    return fd;
}

// The next bytes from the broker must be these.
static void expect(int fd, const uint8_t *wanted, size_t size) {
    static uint8_t got[PAYLOAD_MOST + 1024];
    if (recv(fd, got, size, MSG_WAITALL) != (ssize_t)size || memcmp(got, wanted, size)) fail("a subscriber got something else");
}

static void subscribe_all(int port) {
    uint8_t frame[HEADER + 64], answer[HEADER + 1];
    const size_t length = 1 + 1 + 4 + 1 + sizeof topic - 1 + 1;
    int i;
    memset(frame, 0, sizeof frame); // no flags, the default limit, no group
    frisbeei_put_header(frame, HEADER, SUBSCRIBE, ID, (uint32_t)length);
    frame[HEADER + 1] = block ? BLOCK : DROP_NEW;
    frame[HEADER + 6] = sizeof topic - 1;
    memcpy(frame + HEADER + 7, topic, sizeof topic - 1);
    frisbeei_put_header(answer, HEADER, SUBSCRIBED, ID, 1);
    answer[HEADER] = 0;
    for (i = 0; i < subscribers; i++) {
        subs[i].fd = dial(port);
        write_all(subs[i].fd, frame, HEADER + length);
    }
    for (i = 0; i < subscribers; i++) expect(subs[i].fd, answer, sizeof answer);
}

// Message `number`, compared byte for byte, to all.
static void expect_message(int publisher, uint64_t number) {
    uint8_t *frame = (uint8_t *)malloc(frame_size());
    int i;
    if (!frame) die("malloc");
    if (publisher >= 0) write_all(publisher, frame, put_frame(frame, PUBLISH, 0, number));
    put_frame(frame, MESSAGE, ID, number);
    for (i = 0; i < subscribers; i++) expect(subs[i].fd, frame, frame_size());
    free(frame);
}

// Publishes as far as the window, and `end` (bytes), allow.
static void push(int publisher, uint64_t end) {
    const uint64_t reached = total / (uint64_t)subscribers;
    size_t size = frames_size - published % frames_size;
    ssize_t done;
    if (window && published - reached + window / 4 > window && published < end) return; // no tiny writes
    if (window && size > window - (published - reached)) size = window - (published - reached);
    if (size > end - published) size = (size_t)(end - published);
    if (!size) return;
    done = send(publisher, frames + published % frames_size, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done > 0) published += (size_t)done;
    else if (done < 0 && errno != EAGAIN && errno != EINTR) die("publish");
}

// Reads what there is. MSG_TRUNC discards it in the kernel.
static void pull(int poller) {
    static double heard;
    struct epoll_event events[64];
    int i, count = epoll_wait(poller, events, 64, spin ? 0 : 1);
    for (i = 0; i < count; i++) {
        const int index = events[i].data.fd;
        const ssize_t got = recv(subs[index].fd, NULL, 1 << 24, MSG_TRUNC | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) fail("the broker hung up");
        if (got < 0) continue;
        subs[index].bytes += (uint64_t)got;
        total += (uint64_t)got;
    }
    shared->delivered = total / frame_size();
    if (count > 0 || heard <= 0) heard = now();
    else if (now() - heard > WAIT) fail("messages are missing");
}

static double cpu_of(pid_t process) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(process, &clock) || clock_gettime(clock, &t)) return 0;
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

typedef struct score {
    double rate; // deliveries per second
    double cost; // ns of the broker's processor time per delivery
} score;

static score run_clients(int port, pid_t broker) {
    const int poller = epoll_create1(0);
    const size_t frame = frame_size();
    int publisher = -1, i;
    double began, spent, end;
    uint64_t first, last;
    struct epoll_event event;
    score result;
    frames_size = (size_t)batch_size() * frame;
    if (!(frames = (uint8_t *)malloc(frames_size))) die("malloc");
    for (i = 0; i < batch_size(); i++) put_frame(frames + (size_t)i * frame, PUBLISH, 0, 1);
    subscribe_all(port);
    if (!local) publisher = dial(port);
    shared->begin = 1;
    expect_message(publisher, 0);
    for (i = 0; i < subscribers; i++) {
        if (local) subs[i].bytes = frame, total += frame;
        event.events = EPOLLIN;
        event.data.fd = i;
        epoll_ctl(poller, EPOLL_CTL_ADD, subs[i].fd, &event);
    }
    for (began = now(); now() - began < seconds / 5;) { // until all are in step
        if (!local) push(publisher, UINT64_MAX);
        pull(poller);
    }
    first = total;
    spent = cpu_of(broker);
    began = now();
    do {
        if (!local) push(publisher, UINT64_MAX);
        pull(poller);
        end = now();
    } while (end - began < seconds);
    result.rate = (double)(total - first) / (double)frame / (end - began);
    result.cost = (cpu_of(broker) - spent) * 1e9 * (double)frame / (double)(total - first);
    shared->stop = 1;
    for (last = (published + frame - 1) / frame * frame; !local && published < last; pull(poller)) push(publisher, last);
    while (local && !shared->stopped) pull(poller);
    if (local) last = shared->published * frame;
    while (total < last * (uint64_t)subscribers) pull(poller);
    for (i = 0; i < subscribers; i++)
        if (subs[i].bytes != last) fail("a subscriber got more, another less");
    if (!local) expect_message(publisher, 0x0123456789ABCDEF);
    return result;
}

// >>contest

// One run in two processes; what they have to tell comes through a pipe that ends with them.
static score contest(int contestant) {
    int port = 0, tell[2][2];
    pid_t broker, clients;
    score result;
    memset((void *)shared, 0, sizeof *shared);
    if (pipe(tell[0])) die("pipe");
    broker = fork();
    if (broker == 0) {
        alarm((unsigned)seconds * 2 + 6 * WAIT); // nothing is left running, whatever happens
        pin(0);
        if (contestant == LIBRARY) library_broker(tell[0][1]);
        else raw_broker(raw_listen(tell[0][1]), contestant == RAW_SHARED);
        _exit(0);
    }
    close(tell[0][1]);
    if (read(tell[0][0], &port, sizeof port) != sizeof port) fail("the broker did not start");
    if (pipe(tell[1])) die("pipe"); // only now: it must end with the clients alone
    clients = fork();
    if (clients == 0) {
        alarm((unsigned)seconds * 2 + 6 * WAIT);
        pin(1);
        result = run_clients(port, broker);
        if (write(tell[1][1], &result, sizeof result) != sizeof result) die("write");
        _exit(0);
    }
    close(tell[1][1]);
    if (read(tell[1][0], &result, sizeof result) != sizeof result) result.rate = -1;
    waitpid(clients, NULL, 0);
    kill(broker, SIGKILL);
    waitpid(broker, NULL, 0);
    close(tell[0][0]);
    close(tell[1][0]);
    if (result.rate < 0) exit(1); // the clients have said why
    return result;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void table(void) {
    static const char *const names[CONTESTANTS] = {"raw", "raw again (control)", "raw, shared", "frisbee.h"};
    static double rates[CONTESTANTS][ROUNDS_MOST], costs[CONTESTANTS][ROUNDS_MOST];
    int i, k;
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
        const double rate = rates[i][rounds / 2], raw = rates[RAW][rounds / 2], cost = costs[i][rounds / 2];
        printf("%6d  %-20s %11.0f %12.0f %7.0f  %5.2f (%.2f to %.2f) %7.0f  %5.2f\n", subscribers, names[i], rate / subscribers, rate,
               rate * (double)frame_size() / 1e6, rate / raw, rates[i][0] / raw, rates[i][rounds - 1] / raw, cost, cost / costs[RAW][rounds / 2]);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const int usual[] = {1, 10, 100, 1000};
    int option, only = 0;
    size_t i;
    while ((option = getopt(argc, argv, "c:p:w:s:n:blk")) != -1) {
        if (option == 'c') only = atoi(optarg);
        else if (option == 'p') payload = atoi(optarg);
        else if (option == 'w') window = (size_t)atoi(optarg) * 1024;
        else if (option == 's') seconds = atof(optarg);
        else if (option == 'n') rounds = atoi(optarg);
        else if (option == 'b') block = 1;
        else if (option == 'l') local = 1;
        else if (option == 'k') spin = 1;
        else return 2;
    }
    if (only < 0 || only > MOST || payload < 8 || payload > PAYLOAD_MOST || rounds < 1 || rounds > ROUNDS_MOST) return 2;
    if (seconds <= 0 || seconds > 60) return 2;
    if (window == 0) block = 1;
    else if (window < 4 * frame_size()) window = 4 * frame_size();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) die("mmap");
    printf("%d bytes, published %s, %zu KiB in flight%s: medians of %d runs of %.1f s\n", payload,
           local ? "by the broker's program" : "over a connection", window / 1024, block ? ", blocking" : "", rounds, seconds);
    printf("%6s  %-20s %11s %12s %7s  %s %7s  %s\n", "subs", "broker", "messages/s", "deliveries/s", "MB/s", "of raw (low to high)", "CPU ns",
           "of raw");
    fflush(stdout); // children have a copy of what is not yet written
    for (i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        subscribers = only ? only : usual[i];
        table();
        if (only) break;
    }
    return 0;
}
