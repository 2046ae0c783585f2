// two_pools.c - two pools on two threads: one accepts and hands its sockets to the other; tasks travel both ways.
//
//     cc -I.. two_pools.c -o two_pools -pthread
//     ./two_pools                         exits 0 if everything came back right
//
// Shows: frisbee_remote_post (1,000 tasks to the worker's thread and back, without an allocation or a lock of ours), and how one acceptor
// spreads connections over threads: hijack NOW as soon as a connection opens, then adopt in the other pool, with the bytes that were
// already read as prefill. The client does not notice. Pools share nothing; each is used by its own thread only.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OP_DOUBLE = 10, TASKS = 1000, CONNECTIONS = 8, CALLS = 100, WAIT_MS = 10000 };

static frisbee_remote *front_remote, *worker_remote; // each pool as the other thread sees it

static void must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "two_pools: %s\n", what);
    exit(1);
}

// ---- work handed over. The task is embedded in the job, and whoever holds the job owns it: first front, then worker, then front again.

typedef struct job {
    frisbee_task task; // first, so that the task's address is the job's
    uint64_t number, square;
} job;

static job jobs[TASKS];
static unsigned jobs_back; // front's thread only

static void job_back(frisbee_task *task, frisbee_pool *pool) {
    const job *j = (const job *)task;
    if (!pool) return; // front was destroyed before the answer came
    must(j->square == j->number * j->number, "a job came back wrong");
    if (++jobs_back == TASKS) frisbee_stop(pool);
}

static void job_work(frisbee_task *task, frisbee_pool *pool) {
    job *j = (job *)task;
    if (!pool) return;
    j->square = j->number * j->number;
    task->run = job_back;
    must(frisbee_remote_post(front_remote, task) == FRISBEE_OK, "front has gone");
}

// ---- connections handed over

typedef struct handover {
    frisbee_task task;
    frisbee_socket socket;
    size_t length;
    unsigned char unread[1]; // `length` of them
} handover;

static unsigned answered_by_worker; // worker's thread only, until it is joined

static void on_double(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    uint32_t number;
    (void)user;
    must(packet->length == sizeof number, "length of a request");
    memcpy(&number, packet->data, sizeof number); // payloads are not aligned
    number *= 2;
    must(frisbee_reply(pool, &packet->from, &number, sizeof number) == FRISBEE_OK, "reply");
    answered_by_worker++;
}

// On the worker's thread: from here on the connection is its own.
static void take_over(frisbee_task *task, frisbee_pool *pool) {
    handover *h = (handover *)task;
    frisbee_conn_desc desc = {0};
    desc.role = FRISBEE_ACCEPTOR;
    if (!pool || frisbee_adopt(pool, h->socket, &desc, h->unread, h->length, NULL)) close((int)h->socket); // not taken: still ours
    free(h);
}

static void on_handed_over(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    handover *h;
    (void)pool, (void)conn, (void)user;
    if (hijacked->result) return; // the peer went away in between
    must(hijacked->unsent.length == 0, "nothing was sent on a connection that has just opened");
    h = (handover *)malloc(sizeof *h + hijacked->unread.length);
    must(h != NULL, "out of memory");
    h->task.run = take_over;
    h->socket = hijacked->socket;
    h->length = hijacked->unread.length;
    if (h->length) memcpy(h->unread, hijacked->unread.data, h->length);
    if (frisbee_remote_post(worker_remote, &h->task)) close((int)h->socket), free(h);
}

static void front_on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)user;
    must(frisbee_hijack(pool, conn, FRISBEE_HIJACK_NOW, 0, on_handed_over, NULL) == FRISBEE_OK, "hijack");
}

static void *worker_main(void *argument) {
    frisbee_pool *pool = (frisbee_pool *)argument;
    frisbee_result result = frisbee_run(pool); // until frisbee_remote_stop
    frisbee_pool_destroy(pool);                // on the thread that used it
    return result == FRISBEE_OK ? argument : NULL;
}

// ---- clients, on front's thread

typedef struct client {
    frisbee_conn conn;
    uint32_t started;
} client;

static unsigned doubled; // right answers

static void on_reply(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user);

static void start_call(frisbee_pool *pool, client *c) {
    frisbee_call_desc desc = {0};
    desc.on_reply = on_reply;
    desc.user = c;
    c->started++;
    must(frisbee_call(pool, c->conn, OP_DOUBLE, &c->started, sizeof c->started, &desc, NULL) == FRISBEE_OK, "call");
}

static void on_reply(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    client *c = (client *)user;
    uint32_t number;
    (void)call;
    must(outcome->result == FRISBEE_OK && outcome->length == sizeof number, frisbee_result_string(outcome->result));
    memcpy(&number, outcome->data, sizeof number);
    must(number == 2 * c->started, "an answer is wrong");
    if (++doubled == CONNECTIONS * CALLS) frisbee_stop(pool);
    else if (c->started < CALLS) start_call(pool, c);
}

// frisbee_run with an end: stops after WAIT_MS without anything happening.
static void run_until(frisbee_pool *pool, const unsigned *count, unsigned wanted, const char *what) {
    for (int turns = 0; *count < wanted && turns < 100000; turns++) must(frisbee_poll(pool, WAIT_MS) == FRISBEE_OK, "poll");
    must(*count == wanted, what);
}

int main(void) {
    static const frisbee_events front_events = {front_on_open, NULL, NULL, NULL, NULL};
    static client clients[CONNECTIONS];
    frisbee_pool *front, *worker;
    frisbee_conn_desc desc = {0};
    frisbee_listener listener;
    pthread_t thread;
    void *good = NULL;
    char address[128];

    // Both pools and both remotes are made before the thread starts, and the worker's pool is its own from then on.
    must(frisbee_pool_create(NULL, &front) == FRISBEE_OK, "pool");
    must(frisbee_pool_create(NULL, &worker) == FRISBEE_OK, "pool");
    must((front_remote = frisbee_remote_retain(front)) && (worker_remote = frisbee_remote_retain(worker)), "remotes");
    must(frisbee_on(worker, OP_DOUBLE, on_double, NULL) == FRISBEE_OK, "route");
    must(pthread_create(&thread, NULL, worker_main, worker) == 0, "thread");

    for (unsigned i = 0; i < TASKS; i++) {
        jobs[i].number = i;
        jobs[i].task.run = job_work;
        must(frisbee_remote_post(worker_remote, &jobs[i].task) == FRISBEE_OK, "post");
    }
    run_until(front, &jobs_back, TASKS, "not every task came back");
    printf("%u tasks went to the other thread and came back\n", jobs_back);

    desc.events = &front_events;
    must(frisbee_listen(front, "127.0.0.1:0", &desc, &listener) == FRISBEE_OK, "listen");
    must(frisbee_listener_address(front, listener, address, sizeof address) == FRISBEE_OK, "address");
    for (int i = 0; i < CONNECTIONS; i++) {
        must(frisbee_connect(front, address, NULL, &clients[i].conn) == FRISBEE_OK, "connect");
        start_call(front, &clients[i]);
    }
    run_until(front, &doubled, CONNECTIONS * CALLS, "not every call was answered");

    frisbee_remote_stop(worker_remote);
    must(pthread_join(thread, &good) == 0 && good, "the worker's run");
    must(answered_by_worker == doubled, "someone else answered");
    printf("%d connections, accepted here and handed over, got %u answers from the other thread\n", CONNECTIONS, doubled);

    frisbee_pool_destroy(front);
    frisbee_remote_release(front_remote); // a remote outlives its pool: late posts are told CLOSED
    frisbee_remote_release(worker_remote);
    return 0;
}
