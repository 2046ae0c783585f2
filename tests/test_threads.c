// test_threads.c - pools on threads of their own, and threads that post to them: tasks both ways, stop, sockets that move from pool to pool,
// brokers and streams that share nothing, and posting that races with destroying. Meant for ThreadSanitizer; without it, the counts still have
// to be right. Checks are made by the main thread, when the others have ended; what they share is guarded by one mutex, so that no race of the
// test's own hides one of the library's.
#ifndef FRISBEE_CHECK
#define FRISBEE_CHECK
#endif
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"
#include "net.h"
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void add(int *counter, int amount) {
    pthread_mutex_lock(&mutex);
    *counter += amount;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

// Waits until a counter that others add to has reached its value.
static int reached(const int *counter, int value) {
    struct timespec until;
    int got;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&mutex);
    while (*counter < value && pthread_cond_timedwait(&changed, &mutex, &until) == 0) {}
    got = *counter;
    pthread_mutex_unlock(&mutex);
    return got;
}

// >>workers: a pool and the thread that runs it, until it is stopped or destroys it

struct worker {
    pthread_t thread;
    frisbee_pool *pool;
    frisbee_remote *remote;
    struct worker *peer;
    int index, ready, failures;
    frisbee_result ran; // what frisbee_run answered
    bool keep;          // the pool is left to the main thread
};

static void *work(void *argument) {
    struct worker *w = (struct worker *)argument;
    frisbee_result result;
    if (!w->pool) result = frisbee_pool_create(NULL, &w->pool);
    else result = FRISBEE_OK;
    if (result == FRISBEE_OK) w->remote = frisbee_remote_retain(w->pool);
    add(&w->ready, 1);
    if (result != FRISBEE_OK || !w->remote) {
        w->failures++;
        return NULL;
    }
    w->ran = frisbee_run(w->pool);
    if (w->ran != FRISBEE_DESTROYED && !w->keep) frisbee_pool_destroy(w->pool);
    return NULL;
}

static void start_worker(struct worker *w, int index) {
    memset(w, 0, sizeof *w);
    w->index = index;
    CHECK_EQ(pthread_create(&w->thread, NULL, work, w), 0);
    CHECK_EQ(reached(&w->ready, 1), 1);
    CHECK(w->remote != NULL);
}

static void end_worker(struct worker *w) { // it has been told to stop, or stops itself
    CHECK_EQ(pthread_join(w->thread, NULL), 0);
    CHECK_EQ(w->failures, 0);
    frisbee_remote_release(w->remote);
}

// >>two pools that play ball, while other threads post to both

enum { BALLS = 8, BOUNCES = 2000, POSTERS = 3, POSTS = 3000 };

struct ball {
    frisbee_task task; // first, so that the task is the ball
    struct worker *at; // where it runs next
    int left, *landed, *wrong;
};

static void bounce(frisbee_task *task, frisbee_pool *pool) {
    struct ball *ball = (struct ball *)(void *)task;
    if (pool != ball->at->pool) add(ball->wrong, 1); // on another thread than it should
    if (--ball->left == 0) {
        add(ball->landed, 1);
        return;
    }
    ball->at = ball->at->peer;
    if (frisbee_remote_post(ball->at->remote, task) != FRISBEE_OK) add(ball->wrong, 1);
}

struct post {
    frisbee_task task;
    struct poster *poster;
    int number;
};

struct poster {
    pthread_t thread;
    struct worker *to;
    int next, *done, *out_of_order;
    struct post posts[POSTS];
};

static void land(frisbee_task *task, frisbee_pool *pool) {
    struct post *post = (struct post *)(void *)task;
    struct poster *poster = post->poster;
    if (pool != poster->to->pool || post->number != poster->next) add(poster->out_of_order, 1);
    poster->next = post->number + 1; // touched by the pool's thread alone
    add(poster->done, 1);
}

static void *post_all(void *argument) {
    struct poster *poster = (struct poster *)argument;
    int i;
    for (i = 0; i < POSTS; i++) {
        poster->posts[i].task.run = land;
        poster->posts[i].poster = poster;
        poster->posts[i].number = i;
        if (frisbee_remote_post(poster->to->remote, &poster->posts[i].task) != FRISBEE_OK) add(poster->out_of_order, 1);
    }
    return NULL;
}

static void pools_post_to_each_other(void) {
    struct worker workers[2];
    struct ball balls[BALLS];
    struct poster *posters = (struct poster *)calloc(POSTERS, sizeof *posters);
    int i, landed = 0, wrong = 0, done = 0, out_of_order = 0;
    begin();
    for (i = 0; i < 2; i++) start_worker(&workers[i], i);
    for (i = 0; i < 2; i++) workers[i].peer = &workers[!i];
    for (i = 0; i < POSTERS; i++) {
        posters[i].to = &workers[i % 2];
        posters[i].done = &done;
        posters[i].out_of_order = &out_of_order;
        CHECK_EQ(pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), 0);
    }
    memset(balls, 0, sizeof balls);
    for (i = 0; i < BALLS; i++) {
        balls[i].task.run = bounce;
        balls[i].at = &workers[i % 2];
        balls[i].left = BOUNCES;
        balls[i].landed = &landed;
        balls[i].wrong = &wrong;
        CHECK_EQ(frisbee_remote_post(balls[i].at->remote, &balls[i].task), FRISBEE_OK);
    }
    for (i = 0; i < POSTERS; i++) CHECK_EQ(pthread_join(posters[i].thread, NULL), 0);
    CHECK_EQ(reached(&done, POSTERS * POSTS), POSTERS * POSTS);
    CHECK_EQ(reached(&landed, BALLS), BALLS);
    for (i = 0; i < 2; i++) frisbee_remote_stop(workers[i].remote);
    for (i = 0; i < 2; i++) {
        end_worker(&workers[i]);
        CHECK_EQ(workers[i].ran, FRISBEE_OK);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(out_of_order, 0);
    CHECK_EQ(done, POSTERS * POSTS);
    CHECK_EQ(landed, BALLS);
    end();
    free(posters);
}

// >>posting races with destroying: each accepted task runs exactly once, with the pool or with none

struct last {
    frisbee_task task;
    int runs, orphaned, accepted;
};

struct racer {
    pthread_t thread;
    frisbee_remote *remote;
    int *going;
    struct last posts[500];
};

static void run_last(frisbee_task *task, frisbee_pool *pool) {
    struct last *last = (struct last *)(void *)task;
    pthread_mutex_lock(&mutex);
    last->runs++;
    last->orphaned += pool == NULL;
    pthread_mutex_unlock(&mutex);
}

static void *race(void *argument) {
    struct racer *racer = (struct racer *)argument;
    size_t i;
    add(racer->going, 1);
    for (i = 0; i < sizeof racer->posts / sizeof *racer->posts; i++) {
        frisbee_result result;
        racer->posts[i].task.run = run_last;
        result = frisbee_remote_post(racer->remote, &racer->posts[i].task);
        racer->posts[i].accepted = result == FRISBEE_OK;
        if (result != FRISBEE_OK && result != FRISBEE_CLOSED) racer->posts[i].accepted = -1;
    }
    frisbee_remote_stop(racer->remote); // of a pool that may be gone
    return NULL;
}

static void destroy_from_a_task(frisbee_task *task, frisbee_pool *pool) {
    (void)task;
    frisbee_pool_destroy(pool);
}

static void posting_races_with_destroying(void) {
    int round, orphans = 0, refused = 0, alive = 0;
    for (round = 0; round < 40; round++) {
        struct racer *racers = (struct racer *)calloc(2, sizeof *racers);
        struct worker worker;
        frisbee_task destroyer;
        frisbee_remote *remote;
        int i, going = 0;
        size_t k;
        begin();
        memset(&worker, 0, sizeof worker);
        start_worker(&worker, 0);
        remote = worker.remote;
        for (i = 0; i < 2; i++) {
            racers[i].remote = remote;
            racers[i].going = &going;
            CHECK_EQ(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
        }
        CHECK_EQ(reached(&going, 2), 2);
        if (round % 4) sleep_ms(round % 4 - 1); // the race is run at several distances
        memset(&destroyer, 0, sizeof destroyer);
        destroyer.run = destroy_from_a_task;
        if (round & 1) (void)frisbee_remote_post(remote, &destroyer); // CLOSED if a racer's stop came first
        else frisbee_remote_stop(remote);
        CHECK_EQ(pthread_join(worker.thread, NULL), 0);
        for (i = 0; i < 2; i++) CHECK_EQ(pthread_join(racers[i].thread, NULL), 0);
        CHECK(worker.ran == FRISBEE_OK || worker.ran == FRISBEE_DESTROYED);
        {
            struct last late;
            memset(&late, 0, sizeof late);
            late.task.run = run_last;
            CHECK_EQ(frisbee_remote_post(remote, &late.task), FRISBEE_CLOSED); // it outlives the pool
            CHECK_EQ(late.runs, 0);
        }
        for (i = 0; i < 2; i++)
            for (k = 0; k < sizeof racers[i].posts / sizeof *racers[i].posts; k++) {
                const struct last *last = &racers[i].posts[k];
                CHECK_EQ(last->runs, last->accepted);
                orphans += last->orphaned;
                refused += !last->accepted;
                alive += last->accepted && !last->orphaned;
            }
        frisbee_remote_release(remote);
        free(racers);
        end();
    }
    printf("    %d tasks ran in their pool, %d without, %d were refused\n", alive, orphans, refused);
    CHECK(alive > 0 && refused > 0);
}

// >>sockets move: an acceptor lets go of each connection with what it has read, and posts it to a pool that adopts it

enum { CLIENTS = 40, CALLS = 25, SERVERS = 2 };

struct handover {
    frisbee_task task;
    struct worker *to;
    int fd;
    size_t length;
    uint8_t unread[1024];
};

static struct {
    struct worker servers[SERVERS];
    int next, adopted[SERVERS], closed, failed; // `next` is the acceptor's; the rest is guarded by the mutex
} move;

static void moved_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    (void)pool;
    (void)conn;
    (void)info;
    (void)user;
    add(&move.closed, 1);
}

static const frisbee_events moved_events = {NULL, NULL, NULL, NULL, moved_close};

static void adopt_moved(frisbee_task *task, frisbee_pool *pool) {
    struct handover *h = (struct handover *)(void *)task;
    frisbee_conn_desc desc = quiet(NULL);
    desc.role = FRISBEE_ACCEPTOR;
    desc.events = &moved_events;
    if (pool && frisbee_adopt(pool, h->fd, &desc, h->unread, h->length, NULL) == FRISBEE_OK) add(&move.adopted[h->to->index], 1);
    else {
        close(h->fd);
        add(&move.failed, 1);
    }
    free(h);
}

static void moving_hijacked(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    struct handover *h = (struct handover *)calloc(1, sizeof *h);
    (void)pool;
    (void)conn;
    (void)user;
    if (!h || hijacked->result != FRISBEE_OK || hijacked->unread.length > sizeof h->unread || hijacked->unsent.length) {
        add(&move.failed, 1);
        free(h);
        return;
    }
    h->task.run = adopt_moved;
    h->to = &move.servers[move.next++ % SERVERS];
    h->fd = (int)hijacked->socket;
    h->length = hijacked->unread.length;
    if (h->length) memcpy(h->unread, hijacked->unread.data, h->length);
    if (frisbee_remote_post(h->to->remote, &h->task) != FRISBEE_OK) add(&move.failed, 1);
}

static void moving_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)user;
    if (frisbee_hijack(pool, conn, FRISBEE_HIJACK_NOW, 0, moving_hijacked, NULL) != FRISBEE_OK) add(&move.failed, 1);
}

static const frisbee_events moving_events = {moving_open, NULL, NULL, NULL, NULL};

static void sockets_move_between_pools(void) {
    static struct reply replies[CLIENTS][CALLS];
    static struct record seen[CLIENTS];
    struct worker acceptor;
    frisbee_conn conns[CLIENTS];
    frisbee_pool *clients;
    frisbee_conn_desc desc;
    frisbee_listener listener;
    char address[64];
    int i, k, right = 0;
    begin();
    memset(&move, 0, sizeof move);
    memset(seen, 0, sizeof seen);
    for (i = 0; i < SERVERS; i++) start_worker(&move.servers[i], i);
    memset(&acceptor, 0, sizeof acceptor);
    CHECK_EQ(frisbee_pool_create(NULL, &acceptor.pool), FRISBEE_OK);
    desc = quiet(NULL);
    desc.events = &moving_events;
    CHECK_EQ(frisbee_listen(acceptor.pool, "127.0.0.1:0", &desc, &listener), FRISBEE_OK);
    CHECK_EQ(frisbee_listener_address(acceptor.pool, listener, address, sizeof address), FRISBEE_OK);
    CHECK_EQ(pthread_create(&acceptor.thread, NULL, work, &acceptor), 0); // the pool is the thread's from here on
    CHECK_EQ(reached(&acceptor.ready, 1), 1);
    clients = new_pool(NULL);
    for (i = 0; i < CLIENTS; i++) {
        desc = quiet(&seen[i]);
        CHECK_EQ(frisbee_connect(clients, address, &desc, &conns[i]), FRISBEE_OK);
        for (k = 0; k < CALLS; k++) { // requests are among what the acceptor reads
            uint32_t number = (uint32_t)(i * CALLS + k);
            CHECK_EQ(call(clients, conns[i], ECHO, &number, sizeof number, 30000, &replies[i][k], NULL), FRISBEE_OK);
        }
        if (i % 5 == 0) turn(1);
    }
    for (i = 0; i < CLIENTS; i++) WAIT_FOR(replies[i][CALLS - 1].count == 1);
    for (i = 0; i < CLIENTS; i++)
        for (k = 0; k < CALLS; k++) {
            uint32_t number = (uint32_t)(i * CALLS + k);
            right += replies[i][k].count == 1 && replies[i][k].result == FRISBEE_OK && replies[i][k].hash == hash_of(&number, sizeof number);
        }
    CHECK_EQ(right, CLIENTS * CALLS);
    for (i = 0; i < CLIENTS; i++) {
        CHECK_EQ(frisbee_close(clients, conns[i], FRISBEE_CLOSE_FLUSH), FRISBEE_OK);
        WAIT_FOR(seen[i].finals == 1);
    }
    CHECK_EQ(reached(&move.closed, CLIENTS), CLIENTS);
    frisbee_remote_stop(acceptor.remote);
    end_worker(&acceptor);
    for (i = 0; i < SERVERS; i++) {
        frisbee_remote_stop(move.servers[i].remote);
        end_worker(&move.servers[i]);
        CHECK_EQ(move.adopted[i], CLIENTS / SERVERS);
    }
    CHECK_EQ(move.failed, 0);
    end();
}

// >>brokers and streams: each pool is a broker on its own thread, subscribes at the next one's, and has a stream to it. Tasks that other threads
// post publish, and write to the stream, which echoes.

enum { STATIONS = 3, PUBLISHERS = 2, PUBLISHES = 400, ALL = PUBLISHERS * PUBLISHES };

struct station { // its numbers belong to its thread, until that has ended
    struct worker worker;
    char address[64];
    const char *next; // address of the broker that it subscribes at
    frisbee_task start;
    frisbee_stream stream;
    uint32_t published, heard_here, heard_there, echoed;
    int wrong;
};

struct publish {
    frisbee_task task;
    struct station *at;
};

struct publisher {
    pthread_t thread;
    int refused;
    struct publish publishes[STATIONS][PUBLISHES];
};

static struct {
    struct station stations[STATIONS];
    int ready, done; // stations; guarded by the mutex
    bool racing;     // the stations are stopped meanwhile
} ring;

static void is_next(struct station *s, uint32_t *counter, const void *data, size_t length) {
    uint32_t number = 0;
    if (length == sizeof number) memcpy(&number, data, sizeof number);
    s->wrong += length != sizeof number || number != *counter;
    ++*counter;
    if (s->heard_here == ALL && s->heard_there == ALL && s->echoed == ALL) add(&ring.done, 1);
}

static void station_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    struct station *s = (struct station *)user;
    s->wrong += pool != s->worker.pool || message->dropped != 0;
    is_next(s, message->conn.id == FRISBEE_LOCAL.id ? &s->heard_here : &s->heard_there, message->data, message->length);
}

static void station_result(frisbee_pool *pool, frisbee_sub sub, frisbee_result result, void *user) {
    (void)pool;
    (void)sub;
    if (result == FRISBEE_OK) add(&ring.ready, 1);
    else ((struct station *)user)->wrong++;
}

static void station_echoed(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    (void)pool;
    (void)stream;
    is_next((struct station *)user, &((struct station *)user)->echoed, data, length);
}

static void station_echo(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    struct station *s = (struct station *)frisbee_user(pool, frisbee_stream_conn(pool, stream));
    (void)user;
    s->wrong += pool != s->worker.pool;
    if (frisbee_stream_send(pool, stream, data, length) != FRISBEE_OK && !ring.racing) s->wrong++;
}

static void station_accepts(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    struct station *s = (struct station *)user;
    s->wrong += pool != s->worker.pool || frisbee_stream_conn(pool, stream).id != conn.id;
}

static const frisbee_stream_events echoing = {station_accepts, station_echo, NULL, NULL}, echoed = {NULL, station_echoed, NULL, NULL};

static void station_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    struct station *s = (struct station *)user;
    s->wrong += frisbee_stream_open(pool, conn, NULL, s, &s->stream) != FRISBEE_OK;
}

static const frisbee_events station_events = {station_open, NULL, NULL, NULL, NULL};

static void station_start(frisbee_task *task, frisbee_pool *pool) {
    struct station *s = (struct station *)(void *)((char *)task - offsetof(struct station, start));
    frisbee_conn_desc desc = quiet(NULL);
    frisbee_sub_desc sub;
    frisbee_conn conn;
    memset(&sub, 0, sizeof sub);
    sub.on_message = station_message;
    sub.on_result = station_result;
    sub.user = s;
    desc.user = s;
    desc.events = &station_events;
    desc.streams = &echoed;
    if (frisbee_connect(pool, s->next, &desc, &conn) != FRISBEE_OK || frisbee_subscribe(pool, conn, "ring.>", &sub, NULL) != FRISBEE_OK ||
        frisbee_subscribe(pool, FRISBEE_LOCAL, "ring.*", &sub, NULL) != FRISBEE_OK)
        s->wrong++;
}

static void publish_next(frisbee_task *task, frisbee_pool *pool) {
    struct station *s = ((struct publish *)(void *)task)->at;
    if (!pool) return; // destroyed
    s->wrong += pool != s->worker.pool;
    s->wrong += frisbee_publish(pool, FRISBEE_LOCAL, "ring.number", &s->published, sizeof s->published, NULL) != FRISBEE_OK;
    if (frisbee_stream_send(pool, s->stream, &s->published, sizeof s->published) != FRISBEE_OK && !ring.racing) s->wrong++;
    s->published++;
}

static void *publish_all(void *argument) {
    struct publisher *p = (struct publisher *)argument;
    int i, k;
    for (k = 0; k < PUBLISHES; k++)
        for (i = 0; i < STATIONS; i++) {
            struct publish *publish = &p->publishes[i][k];
            publish->task.run = publish_next;
            publish->at = &ring.stations[i];
            p->refused += frisbee_remote_post(publish->at->worker.remote, &publish->task) != FRISBEE_OK;
        }
    return NULL;
}

static void brokers_share_nothing(bool racing) {
    static const frisbee_broker anybody;
    struct publisher *publishers = (struct publisher *)calloc(PUBLISHERS, sizeof *publishers);
    frisbee_pool_desc desc;
    frisbee_conn_desc listening = quiet(NULL);
    frisbee_listener listener;
    int i;
    begin();
    memset(&ring, 0, sizeof ring);
    memset(&desc, 0, sizeof desc);
    ring.racing = racing;
    desc.broker = &anybody;
    listening.events = NULL;
    listening.streams = &echoing;
    for (i = 0; i < STATIONS; i++) {
        struct station *s = &ring.stations[i];
        listening.user = s;
        CHECK_EQ(frisbee_pool_create(&desc, &s->worker.pool), FRISBEE_OK);
        CHECK_EQ(frisbee_listen(s->worker.pool, "127.0.0.1:0", &listening, &listener), FRISBEE_OK);
        CHECK_EQ(frisbee_listener_address(s->worker.pool, listener, s->address, sizeof s->address), FRISBEE_OK);
        ring.stations[(i + STATIONS - 1) % STATIONS].next = s->address;
    }
    for (i = 0; i < STATIONS; i++) {
        struct station *s = &ring.stations[i];
        CHECK_EQ(pthread_create(&s->worker.thread, NULL, work, &s->worker), 0); // the pool is the thread's from here on
        CHECK_EQ(reached(&s->worker.ready, 1), 1);
        s->start.run = station_start;
        CHECK_EQ(frisbee_remote_post(s->worker.remote, &s->start), FRISBEE_OK);
    }
    CHECK_EQ(reached(&ring.ready, STATIONS), STATIONS);
    for (i = 0; i < PUBLISHERS; i++) CHECK_EQ(pthread_create(&publishers[i].thread, NULL, publish_all, &publishers[i]), 0);
    if (!racing) CHECK_EQ(reached(&ring.done, STATIONS), STATIONS);
    for (i = 0; i < STATIONS; i++) {
        frisbee_remote_stop(ring.stations[i].worker.remote);
        if (racing) sleep_ms(1);
    }
    for (i = 0; i < STATIONS; i++) CHECK_EQ(pthread_join(ring.stations[i].worker.thread, NULL), 0);
    for (i = 0; i < PUBLISHERS; i++) {
        CHECK_EQ(pthread_join(publishers[i].thread, NULL), 0);
        CHECK(racing || !publishers[i].refused);
    }
    for (i = 0; i < STATIONS; i++) {
        const struct station *s = &ring.stations[i];
        CHECK_EQ(s->wrong, 0);
        CHECK_EQ(s->worker.failures, 0);
        CHECK_EQ(s->worker.ran, FRISBEE_OK);
        CHECK(s->published <= ALL && s->heard_here <= s->published && s->echoed <= s->published);
        CHECK(s->heard_there <= ring.stations[(i + 1) % STATIONS].published);
        if (!racing) CHECK(s->published == ALL && s->heard_here == ALL && s->heard_there == ALL && s->echoed == ALL);
        frisbee_remote_release(s->worker.remote);
    }
    end();
    free(publishers);
}

static void brokers_and_streams_share_nothing(void) { brokers_share_nothing(false); }

static void publishing_races_with_destroying(void) {
    int round;
    for (round = 0; round < 10; round++) brokers_share_nothing(true);
}

// >>stop from another thread, and posts from a signal handler

static void *stop_later(void *argument) {
    sleep_ms(30);
    frisbee_remote_stop((frisbee_remote *)argument);
    frisbee_remote_release((frisbee_remote *)argument);
    return NULL;
}

static void stop_ends_what_blocks(void) {
    int round;
    for (round = 0; round < 2; round++) {
        struct server s;
        frisbee_conn conn;
        frisbee_conn_desc desc = quiet(NULL);
        frisbee_outcome outcome;
        pthread_t thread;
        uint64_t start = now_ms();
        begin();
        serve(&s, NULL);
        desc.user = &s.seen;
        CHECK_EQ(frisbee_connect(s.pool, s.address, &desc, &conn), FRISBEE_OK);
        CHECK_EQ(pthread_create(&thread, NULL, stop_later, frisbee_remote_retain(s.pool)), 0);
        if (round) CHECK_EQ(frisbee_run(s.pool), FRISBEE_OK);
        else CHECK_EQ(frisbee_call_wait(s.pool, conn, SWALLOW, NULL, 0, WAIT_MS, &outcome), FRISBEE_CANCELLED);
        CHECK(now_ms() - start < WAIT_MS / 2);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        end();
    }
}

enum { SIGNALS = 200 };
static struct {
    frisbee_remote *remote;
    frisbee_task tasks[SIGNALS];
    volatile sig_atomic_t posted;
    int ran, in_order;
    pthread_t main_thread;
} handled;

static void run_posted_by_signal(frisbee_task *task, frisbee_pool *pool) {
    handled.in_order += task == &handled.tasks[handled.ran];
    if (++handled.ran == SIGNALS) frisbee_stop(pool);
}

static void post_from_handler(int number) {
    (void)number;
    if (handled.posted == SIGNALS) return;
    handled.tasks[handled.posted].run = run_posted_by_signal;
    if (frisbee_remote_post(handled.remote, &handled.tasks[handled.posted]) == FRISBEE_OK) handled.posted = handled.posted + 1;
}

static void *signal_often(void *argument) {
    int i;
    (void)argument;
    for (i = 0; i < SIGNALS * 2; i++) { // some may merge on their way
        pthread_kill(handled.main_thread, SIGUSR1);
        sleep_ms(1);
    }
    return NULL;
}

static void signal_handlers_may_post(void) {
    struct sigaction action, before;
    struct server s;
    pthread_t thread;
    begin();
    memset(&handled, 0, sizeof handled);
    memset(&action, 0, sizeof action);
    serve(&s, NULL);
    handled.remote = frisbee_remote_retain(s.pool);
    handled.main_thread = pthread_self();
    action.sa_handler = post_from_handler;
    sigaction(SIGUSR1, &action, &before);
    CHECK_EQ(pthread_create(&thread, NULL, signal_often, NULL), 0);
    CHECK_EQ(frisbee_run(s.pool), FRISBEE_OK);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(handled.ran, SIGNALS);
    CHECK_EQ(handled.in_order, SIGNALS);
    sigaction(SIGUSR1, &before, NULL);
    frisbee_remote_release(handled.remote);
    end();
}

// >>look-ups run on threads of the library: with the pool, and without it

static void look_ups_race_with_destroying(void) {
    int round, opened = 0;
    for (round = 0; round < 30; round++) {
        struct server s;
        struct record seen;
        frisbee_pool *pool;
        frisbee_conn_desc desc = quiet(&seen);
        char name[80];
        begin();
        memset(&seen, 0, sizeof seen);
        serve(&s, NULL);
        pool = new_pool(NULL);
        snprintf(name, sizeof name, "localhost%s", strrchr(s.address, ':'));
        CHECK_EQ(frisbee_connect(pool, name, &desc, NULL), FRISBEE_OK);
        CHECK_EQ(frisbee_connect(pool, name, &desc, NULL), FRISBEE_OK);
        if (round % 3 == 0) WAIT_FOR(seen.opened == 2);
        else turns(round % 10);
        opened += seen.opened;
        drop_pool(pool);
        CHECK_EQ(seen.finals, 2);
        end();
    }
    CHECK(opened >= 20);
}

int main(int argc, char **argv) {
    watchdog(500);
    RUN(pools_post_to_each_other);
    RUN(posting_races_with_destroying);
    RUN(sockets_move_between_pools);
    RUN(brokers_and_streams_share_nothing);
    RUN(publishing_races_with_destroying);
    RUN(stop_ends_what_blocks);
    RUN(signal_handlers_may_post);
    RUN(look_ups_race_with_destroying);
    return check_report("threads");
}
