// test_scale.c - thousands of connections in one pool: what an idle one costs in memory and CPU time, that all of them still answer, and that
// tens of thousands of short ones leave nothing behind. The clients live in a second process, so that each process has half of the descriptors.
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "net.h"

enum {
    WANTED = 10000,       // idle connections, if the limit of open files allows
    SHORT = 20000,        // connections opened and closed
    AT_ONCE = 100,        // of those
    SCALE_WAIT_MS = 60000 // for thousands of things, on a busy machine, under a sanitizer
};

#undef WAIT_FOR // with the longer deadline, and without the verification of every connection in each turn
#define WAIT_FOR(pool, condition)                                                                 \
    do {                                                                                          \
        uint64_t wait_end_ = now_ms() + SCALE_WAIT_MS;                                            \
        while (!(condition) && now_ms() < wait_end_) frisbee_poll(pool, 10);                      \
        CHECK(condition);                                                                         \
    } while (0)

// Raises the soft limit of open files; answers how many connections a process may then have.
static int descriptors_for(int wanted) {
    struct rlimit limit;
    int spare = 100;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    if (limit.rlim_cur < (rlim_t)(wanted + spare)) {
        limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max > (rlim_t)(wanted + spare) ? (rlim_t)(wanted + spare) : limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    return limit.rlim_cur < (rlim_t)(wanted + spare) ? (int)limit.rlim_cur - spare : wanted;
}

static uint64_t cpu_us(void) { // of this process, user and system
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u + (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static size_t memory_of(frisbee_pool *pool) {
    frisbee_stats stats;
    CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
    return stats.memory;
}

// >>the second process: raw clients, told what to do by a byte, answering with a byte and a number

struct orders {
    pid_t pid;
    int fd;
};

static int write_all(int fd, const void *data, size_t length) {
    const char *at = (const char *)data;
    while (length) {
        ssize_t n = write(fd, at, length);
        if (n <= 0) return 0;
        at += n;
        length -= (size_t)n;
    }
    return 1;
}

static int read_all(int fd, void *into, size_t length) {
    char *at = (char *)into;
    while (length) {
        ssize_t n = read(fd, at, length);
        if (n <= 0) return 0;
        at += n;
        length -= (size_t)n;
    }
    return 1;
}

static int blocking_client(const struct sockaddr_storage *to, socklen_t length) {
    struct timeval patience;
    int fd = socket(to->ss_family, SOCK_STREAM, 0);
    patience.tv_sec = SCALE_WAIT_MS / 1000;
    patience.tv_usec = 0;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (const struct sockaddr *)to, length) == 0) return fd;
    close(fd);
    return -1;
}

static int ask_echo(int fd, int wire, unsigned id) { // sends a request
    uint8_t out[32];
    return write_all(fd, out, put_packet(out, wire, ECHO, id, "ping", 4));
}

static int got_echo(int fd, int wire, unsigned id) {
    uint8_t in[32], expected[32];
    size_t n = put_packet(expected, wire, ECHO, id, "ping", 4);
    return read_all(fd, in, n) && memcmp(in, expected, n) == 0;
}

// 'o': opens the idle connections, each with one request, alternately in both wires. 'c': one request on each. 's': short connections, half of them
// reset. 'q': ends. Each order is answered with how many connections it worked for.
static void client_process(int fd, const char *address, int count) {
    struct sockaddr_storage to;
    socklen_t length = parse_address(address, &to);
    int *fds = (int *)calloc((size_t)count, sizeof *fds);
    char order;
    while (fds && read_all(fd, &order, 1) && order != 'q') {
        int i, k, right = 0;
        if (order == 'o')
            for (i = 0; i < count; i++) {
                fds[i] = blocking_client(&to, length);
                right += fds[i] >= 0 && ask_echo(fds[i], i & 1, 7) && got_echo(fds[i], i & 1, 7);
            }
        if (order == 'c') {
            for (i = 0; i < count; i++) (void)ask_echo(fds[i], i & 1, 8);
            for (i = 0; i < count; i++) right += got_echo(fds[i], i & 1, 8);
        }
        if (order == 's')
            for (i = 0; i < SHORT; i += AT_ONCE) {
                int some[AT_ONCE];
                for (k = 0; k < AT_ONCE; k++) some[k] = blocking_client(&to, length);
                for (k = 0; k < AT_ONCE; k++) {
                    int works = some[k] >= 0 && ask_echo(some[k], 1, 9) && (k % 4 == 3 || got_echo(some[k], 1, 9)); // some do not wait for the answer
                    right += works;
                    if (some[k] < 0) continue;
                    if (k & 1) raw_reset(some[k]);
                    else close(some[k]);
                }
            }
        if (!write_all(fd, &right, sizeof right)) break;
    }
    _exit(0);
}

static struct orders start_clients(const char *address, int count) {
    struct orders orders;
    int pair[2];
    orders.fd = -1;
    orders.pid = -1;
    if (!CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)) return orders;
    fflush(NULL);
    orders.pid = fork();
    if (orders.pid == 0) {
        close(pair[0]);
        signal(SIGPIPE, SIG_IGN);
        alarm(400);
        client_process(pair[1], address, count);
    }
    CHECK(orders.pid > 0);
    close(pair[1]);
    set_nonblocking(pair[0]);
    orders.fd = pair[0];
    return orders;
}

// Gives an order, runs the pool until it is answered.
static int obey(frisbee_pool *pool, const struct orders *orders, char order) {
    uint64_t deadline = now_ms() + 2 * SCALE_WAIT_MS;
    int answer = -1;
    if (!CHECK(write(orders->fd, &order, 1) == 1)) return -1;
    while (now_ms() < deadline) {
        ssize_t n = recv(orders->fd, &answer, sizeof answer, 0);
        if (n == (ssize_t)sizeof answer) return answer;
        if (n == 0) break;
        frisbee_poll(pool, 10);
    }
    return -1;
}

static void end_clients(struct orders *orders) {
    if (orders->pid <= 0) return;
    CHECK(write(orders->fd, "q", 1) == 1);
    close(orders->fd); // also ends it if it waits for something else
    CHECK_EQ(waitpid(orders->pid, NULL, 0), orders->pid);
}

// >>cases

static void idle_connections_cost_little(void) {
    struct server s;
    struct orders clients;
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_pool_desc pool_desc;
    size_t empty, full, one;
    uint64_t cpu;
    int count = descriptors_for(WANTED), turns_taken;
    begin();
    if (count < WANTED) printf("    the limit of open files allows only %d connections instead of %d\n", count, WANTED);
    if (!CHECK(count > 100)) return;
    memset(&pool_desc, 0, sizeof pool_desc);
    desc.max_conns = (uint32_t)count;
    serve_at(&s, "127.0.0.1:0", &desc, &pool_desc);
    {
        int fd = raw_connect(s.address); // what the pool takes once, for all
        CHECK(raw_echo(fd, 1, 1, "x", 1));
        close(fd);
        WAIT_FOR(s.pool, s.seen.closed == 1);
    }
    empty = memory_of(s.pool);
    clients = start_clients(s.address, count);
    CHECK_EQ(obey(s.pool, &clients, 'o'), count);
    CHECK_EQ(s.seen.opened, 1 + count);
    frisbee_poll(s.pool, 0);
    CHECK(frisbeei_check(s.pool));
    full = memory_of(s.pool);
    one = (full - empty) / (size_t)count;
    printf("    %d idle connections: %lu bytes each beyond an empty pool, %lu in all of the pool's memory / connections\n", count, (unsigned long)one,
           (unsigned long)(full / (size_t)count));
    CHECK(full > empty);
    CHECK(full - empty <= (size_t)256 * (size_t)count);
    cpu = cpu_us();
    turns_taken = idle_turns(s.pool, 2000);
    cpu = cpu_us() - cpu;
    printf("    %lu us of CPU time and %d turns in 2 s\n", (unsigned long)cpu, turns_taken);
    CHECK(cpu < 100000); // 5 % of one core
    CHECK(turns_taken <= 10);
    CHECK_EQ(s.seen.closed, 1);
    CHECK_EQ(obey(s.pool, &clients, 'c'), count); // all of them still answer
    CHECK_EQ(s.seen.closed, 1);
    CHECK(memory_of(s.pool) - empty <= (size_t)256 * (size_t)count);
    end_clients(&clients);
    WAIT_FOR(s.pool, s.seen.closed == 1 + count);
    CHECK_EQ(s.seen.finals, 1 + count);
    end();
}

static void short_connections_leave_nothing(void) {
    struct server s;
    struct orders clients;
    frisbee_stats stats;
    size_t before = 0;
    int round, descriptors, rounds_of = descriptors_for(AT_ONCE * 4) >= AT_ONCE ? 2 : 0;
    begin();
    if (!CHECK(rounds_of > 0)) return;
    serve(&s, NULL);
    clients = start_clients(s.address, 1);
    descriptors = count_descriptors();
    for (round = 0; round < rounds_of; round++) { // the first one brings the pool to its size
        CHECK_EQ(obey(s.pool, &clients, 's'), SHORT);
        WAIT_FOR(s.pool, frisbee_pool_stats(s.pool, &stats) == FRISBEE_OK && stats.conns == 0 && s.seen.closed == (round + 1) * SHORT);
        CHECK_EQ(s.seen.finals, (round + 1) * SHORT);
        CHECK(s.seen.opened <= s.seen.closed);
        CHECK_EQ(count_descriptors(), descriptors);
        CHECK(frisbeei_check(s.pool));
        if (round == 0) before = memory_of(s.pool);
    }
    printf("    %lu bytes of memory after %d connections, %lu after %d\n", (unsigned long)before, SHORT, (unsigned long)memory_of(s.pool), 2 * SHORT);
    CHECK_EQ(memory_of(s.pool), before);
    CHECK(before < MEBIBYTE);
    CHECK(stats.queued == 0 && stats.calls == 0 && stats.deferred == 0);
    end_clients(&clients);
    end();
}

int main(int argc, char **argv) {
    watchdog(500);
    RUN(idle_connections_cost_little);
    RUN(short_connections_leave_nothing);
    return check_report("scale");
}
