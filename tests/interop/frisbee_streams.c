// frisbee_streams.c - the C side of the interop test of streams: what streams.go does, seen from here.
//
//     frisbee_streams server FILE                 writes its address to FILE and serves both Go versions on that one port
//     frisbee_streams client FILE WIRE VERSION    reads the server's address from FILE; WIRE is v0 or v1, VERSION is for the report
//
// The side that connects opens the sessions, a connection each, one after the other, and names each in a packet (START). In all of them
// a message has a content that follows from its stream's id and its number, and its echo is the same with all bits inverted.
//     A  C opens 1,000 streams, all at once, and sends 100 messages on each; Go echoes them
//     B  Go opens the streams and C echoes, ids 0, 15 and 65535 among them
//     C  A and B at once
//     D  streams that end early: closed right behind the opener's last message, or by the other side half-way; and one id again and again
//     E  C pauses half of the streams; calls and the other streams go on
//     F  Go floods two streams that C has paused, and uses the id of one of them again
//     G  Go cuts the connection (RST) amid messages
//     H  C closes it amid messages
#define FRISBEE_IMPLEMENTATION
#include "peer.h"

#include <unistd.h>

// >>script: what both sides know; streams.go has the same

enum { ECHO = 11, START = 13, FINISH = 16 }; // operations

enum {
    MESSAGES = 100,    // of a stream
    HALF = 50,
    AHEAD = 20,        // in G and H an opener is so many messages ahead of their echoes
    CUT = 3000,        // messages received in G and H by the side that ends it
    CALLS = 300,       // in E and F, one after the other
    PAUSE_MS = 1000,   // in E
    PAUSE_AT = 10,     // messages, then it is paused
    FLOODS = 2,        // in F: ids 1 and 2 of Go's half: messages of 1,000 bytes and of one
    WINDOW = 65536,    // stream_window
    MESSAGE_MAX = 65536,
    SLOTS = 2100,      // streams of a session
    LIMIT_MS = 100000  // for everything
};

static const struct way {
    uint32_t ours, theirs; // streams
    uint32_t echoed;       // messages that Go receives, in all
    const char *what;
} ways[] = {
    {1000, 0, 100000, "1000 streams opened by C"},
    {0, 1000, 100000, "1000 streams opened by Go"},
    {1000, 1000, 200000, "1000 streams opened by each side at once"},
    {200, 220, 22000, "400 streams closed early by either side, and 20 with one id"},
    {20, 20, 4000, "40 streams, half of them paused"},
    {0, FLOODS + 2, 200, "a paused and flooded stream is closed, its neighbour lives, its id serves again"},
    {50, 50, 0, "Go cuts the connection"},
    {50, 50, 0, "C closes the connection"},
};

enum { WAYS = sizeof ways / sizeof *ways };

// What becomes of a stream, by session and id.
enum plan {
    OPENER_CLOSES, // when the last echo has come
    ECHOER_CLOSES, // behind its last echo
    ONE_WAY,       // the opener closes right behind its last message; there may be echoes
    HALFWAY,       // the other side closes behind HALF echoes; a Go opener does not wait for them, C does (see streams.go)
    FLOOD,         // the opener sends until it is closed; there are no echoes
    ENDLESS        // until the connection ends
};

static enum plan plan_of(char way, uint32_t id) {
    if (way == 'D' && (id & 32767) < 20000) return id & 1 ? HALFWAY : ONE_WAY;
    if (way == 'F' && ((id & 32767) == 1 || (id & 32767) == 2)) return FLOOD; // the first time
    if (way >= 'G') return ENDLESS;
    return id & 1 ? ECHOER_CLOSES : OPENER_CLOSES;
}

// One message of each stream is at an edge, the others are small.
static uint32_t message_size(uint32_t id, uint32_t index) {
    static const uint32_t edges[8] = {65536, 1, 16384, 65535, 4096, 32768, 16385, 65526};
    if (index == id % MESSAGES) return edges[id / 8 % 8];
    return 1 + ((id * MESSAGES + index) * 2654435761u >> 24);
}

static const uint8_t *message_content(uint32_t id, uint32_t index) { return content(id * MESSAGES + index); }

// >>sessions

struct session;

struct stream {
    struct session *session;
    frisbee_stream handle;
    uint32_t id, got, sent, closes;
    enum plan plan;
    bool ours, paused, closing;
};

static struct session {
    char name[64];
    char way; // 0: not in use
    const struct way *expected;
    bool finished;
    frisbee_conn conn;
    struct stream streams[SLOTS];
    uint32_t opened, theirs, closed, received, wrong;
    uint32_t paused, calls, asked; // asked: in flight
    int64_t paused_since;
    bool flooded[FLOODS];
    size_t memory;                 // the most that the connection held
    frisbee_result reason;         // with which ENDLESS streams were closed
} sessions[2 * WAYS];

static size_t used; // sessions

static void on_finish(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user);
static void on_echo(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user);

// Tells the first thing that is wrong; the others are counted.
static void wrong(struct session *s, const struct stream *t, const char *what, frisbee_result result) {
    if (s->wrong++) return;
    report(s->name, false, "%s (%s), stream %u, plan %d, opened by %s, %u sent, %u got", what, frisbee_result_string(result),
           t ? (unsigned)t->id : 0, t ? (int)t->plan : -1, t && t->ours ? "C" : "Go", t ? (unsigned)t->sent : 0, t ? (unsigned)t->got : 0);
}

static struct session *session_new(char way, const char *version, size_t version_length) {
    struct session *s = &sessions[used];
    if (used == sizeof sessions / sizeof *sessions || way < 'A' || way >= 'A' + (int)WAYS) {
        report(NULL, false, "more sessions than there should be");
        return NULL;
    }
    used++;
    s->way = way;
    s->expected = &ways[way - 'A'];
    snprintf(s->name, sizeof s->name, "C %s, Go %.*s, streams %c", role, (int)version_length, version, way);
    return s;
}

static struct stream *stream_new(struct session *s, bool ours) {
    struct stream *t = &s->streams[s->opened];
    if (s->opened == SLOTS) {
        wrong(s, NULL, "more streams than there should be", FRISBEE_OK);
        return NULL;
    }
    s->opened++;
    s->theirs += !ours;
    t->session = s;
    t->ours = ours;
    return t;
}

static void call(frisbee_pool *pool, struct session *s, uint16_t operation, frisbee_on_reply on_reply, uint32_t length) {
    frisbee_call_desc desc;
    frisbee_result result;
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = LIMIT_MS;
    desc.on_reply = on_reply;
    desc.user = s;
    result = frisbee_call(pool, s->conn, operation, content(s->calls), length, &desc, NULL);
    if (result != FRISBEE_OK) wrong(s, NULL, "frisbee_call", result);
}

// >>streams

// How many messages may have been sent by now.
static uint32_t may_send(const struct stream *t) {
    switch (t->plan) {
    case OPENER_CLOSES:
    case ECHOER_CLOSES: return t->ours ? MESSAGES : t->got;
    case ONE_WAY: return t->ours ? MESSAGES : 0;
    case HALFWAY: return t->ours || t->got > HALF ? HALF : t->got;
    case ENDLESS: return t->got + (t->ours ? AHEAD : 0);
    case FLOOD: break;
    }
    return 0;
}

static bool ends_here(const struct stream *t) { return t->ours == (t->plan == OPENER_CLOSES || t->plan == ONE_WAY); }

// Sends what there is to send, and closes when it is time; on_writable and the next message go on.
static void step(frisbee_pool *pool, struct stream *t) {
    static uint8_t echo[MESSAGE_MAX];
    struct session *s = t->session;
    bool done = false;
    while (!t->closing && t->sent < may_send(t)) {
        uint32_t size = message_size(t->id, t->sent), i;
        const uint8_t *data = message_content(t->id, t->sent);
        frisbee_result result;
        if (!t->ours) {
            for (i = 0; i < size; i++) echo[i] = data[i] ^ 0xFF;
            data = echo;
        }
        result = frisbee_stream_send(pool, t->handle, data, size);
        if (result == FRISBEE_AGAIN) return;
        if (result != FRISBEE_OK) {
            wrong(s, t, "frisbee_stream_send", result);
            t->closing = true;
            return;
        }
        t->sent++;
    }
    switch (t->plan) {
    case OPENER_CLOSES:
    case ECHOER_CLOSES: done = t->got == MESSAGES && t->sent == MESSAGES; break;
    case ONE_WAY: done = t->sent == MESSAGES; break;
    case HALFWAY: done = t->sent == HALF; break;
    default: break;
    }
    if (done && ends_here(t) && !t->closing) {
        frisbee_result result = frisbee_stream_close(pool, t->handle);
        t->closing = true;
        if (result != FRISBEE_OK) wrong(s, t, "frisbee_stream_close", result);
    }
}

static void set_paused(frisbee_pool *pool, struct stream *t, bool paused) {
    frisbee_result result = frisbee_stream_pause(pool, t->handle, paused);
    t->paused = paused;
    if (result != FRISBEE_OK) wrong(t->session, t, "frisbee_stream_pause", result);
}

static void on_stream_open(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    struct session *s = (struct session *)user;
    struct stream *t = s ? stream_new(s, false) : NULL;
    (void)conn;
    if (!t) { // more than there should be, which was told, or one before START
        if (!s) report(NULL, false, "a stream before START");
        frisbee_stream_close(pool, stream);
        return;
    }
    t->handle = stream;
    t->id = frisbee_stream_number(pool, stream);
    t->plan = plan_of(s->way, t->id);
    if (t->plan == FLOOD) {
        bool *flooded = &s->flooded[(t->id & 32767) - 1];
        if (*flooded) t->plan = ECHOER_CLOSES; // its id once more
        *flooded = true;
    }
    frisbee_stream_bind(pool, stream, NULL, t);
    if (t->plan != FLOOD) return;
    set_paused(pool, t, true);
    if (!s->asked++) call(pool, s, ECHO, on_echo, 1);
}

static void on_stream_data(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    struct stream *t = (struct stream *)user;
    struct session *s = t->session;
    uint32_t index = t->got++;
    const uint8_t *expected = message_content(t->id, index);
    (void)stream;
    if (t->closing || t->closes || t->paused) wrong(s, t, "a message on a stream that is closed or paused", FRISBEE_OK);
    if ((index >= MESSAGES && t->plan != ENDLESS) || length != message_size(t->id, index) ||
        (t->ours ? !inverted((const uint8_t *)data, expected, length) : memcmp(data, expected, length) != 0))
        wrong(s, t, "not the message that should have come", FRISBEE_OK);
    if (s->way >= 'E' && s->way != 'F' && index + 1 == PAUSE_AT && (t->id & 3) < 2) {
        set_paused(pool, t, true);
        s->paused++;
        if (s->way == 'E' && s->paused == (s->expected->ours + s->expected->theirs) / 2) {
            s->paused_since = now_ms();
            s->asked++;
            call(pool, s, ECHO, on_echo, 1);
        }
    }
    step(pool, t);
    if (++s->received == CUT && s->way == 'H') frisbee_close(pool, s->conn, FRISBEE_CLOSE_NOW);
}

static void on_stream_writable(frisbee_pool *pool, frisbee_stream stream, void *user) {
    (void)stream;
    step(pool, (struct stream *)user);
}

static bool complete(const struct stream *t, frisbee_result reason) {
    frisbee_result expected = ends_here(t) ? FRISBEE_OK : FRISBEE_CLOSED;
    switch (t->plan) {
    case OPENER_CLOSES:
    case ECHOER_CLOSES: return t->got == MESSAGES && t->sent == MESSAGES && reason == expected;
    case ONE_WAY: return (t->ours ? t->sent : t->got) == MESSAGES && reason == expected;
    case HALFWAY: return t->sent == HALF && (t->ours ? t->got == HALF : t->got >= HALF) && reason == expected;
    case FLOOD: return t->got == 0 && reason == FRISBEE_EXHAUSTED;
    case ENDLESS: break;
    }
    return reason == t->session->reason;
}

// The reason of streams whose connection ends: that it was closed, by whomever, does not say that they had come to their end.
static frisbee_result unfinished(frisbee_result reason) {
    return reason == FRISBEE_OK || reason == FRISBEE_CLOSED ? FRISBEE_UNKNOWN : reason;
}

static void on_stream_close(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    struct stream *t = (struct stream *)user;
    struct session *s = t->session;
    if (!s->closed++) s->reason = reason;
    if (t->closes++ || stream.id != t->handle.id || !complete(t, reason)) wrong(s, t, "not the close that should have come", reason);
    if (s->way < 'G' && s->closed == s->expected->ours + s->expected->theirs) call(pool, s, FINISH, on_finish, 0);
}

static const frisbee_stream_events stream_events = {on_stream_open, on_stream_data, on_stream_writable, on_stream_close};

static void open_streams(frisbee_pool *pool, struct session *s) {
    uint32_t i;
    for (i = 0; i < s->expected->ours; i++) {
        struct stream *t = stream_new(s, true);
        frisbee_result result;
        if (!t) return;
        result = frisbee_stream_open(pool, s->conn, NULL, t, &t->handle);
        if (result != FRISBEE_OK) {
            wrong(s, t, "frisbee_stream_open", result);
            return;
        }
        t->id = frisbee_stream_number(pool, t->handle);
        t->plan = plan_of(s->way, t->id);
    }
    for (i = 0; i < s->expected->ours; i++) step(pool, &s->streams[i]); // all at once: the first are open before any sends
}

// >>calls

// The next one; in E until the streams that are not paused have finished and the pause was long enough.
static void on_echo(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    struct session *s = (struct session *)user;
    uint32_t size = 1 + s->calls % 301;
    (void)id;
    if (outcome->result != FRISBEE_OK || outcome->length != size ||
        !inverted((const uint8_t *)outcome->data, content(s->calls), size)) {
        wrong(s, NULL, "call", outcome->result);
        return;
    }
    s->calls++;
    if (s->calls < CALLS) call(pool, s, ECHO, on_echo, 1 + s->calls % 301);
}

static void resume_streams(frisbee_pool *pool, struct session *s) {
    uint32_t i, silent = 0;
    int64_t pause = now_ms() - s->paused_since;
    s->paused_since = 0;
    for (i = 0; i < s->opened; i++) {
        struct stream *t = &s->streams[i];
        if (!t->paused) continue;
        silent += t->got == PAUSE_AT && !t->closes;
        set_paused(pool, t, false);
    }
    report(s->name, silent == s->paused && s->calls == CALLS && pause < 2000,
           "%u streams paused for about a second: silent, while %u calls were answered and %u streams went to their end",
           (unsigned)s->paused, (unsigned)s->calls, (unsigned)s->closed);
}

// Go's answer, when all its streams have ended: how many, and how many messages it received on them.
static void on_finish(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    struct session *s = (struct session *)user;
    const struct way *expected = s->expected;
    const uint8_t *data = (const uint8_t *)outcome->data;
    uint32_t numbers[2] = {0, 0}, i;
    // A flooded stream keeps its window, 16 KiB and a message, of one byte each at worst; the connection has buffers of its own.
    const size_t most = 8 * (WINDOW + 16384 + 1000) + 1048576;
    (void)id;
    for (i = 0; outcome->length == 8 && i < 8; i++) numbers[i / 4] = numbers[i / 4] << 8 | data[i];
    report(s->name, !s->wrong && outcome->result == FRISBEE_OK && s->theirs == expected->theirs && s->opened == s->closed &&
               numbers[0] == s->opened && numbers[1] == expected->echoed,
           "%s: %u messages came from Go, %u to Go, in order; each stream ended once", expected->what, (unsigned)s->received,
           (unsigned)numbers[1]);
    if (s->way == 'F')
        report(s->name, s->calls == CALLS && s->memory < most, "%u calls went on beside the floods, and at most %lu KiB were held",
               (unsigned)s->calls, (unsigned long)(s->memory / 1024));
    frisbee_close(pool, s->conn, FRISBEE_CLOSE_FLUSH);
}

// >>connections

// The first packet that a Go client sends: the way, then its version.
static void on_start(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const char *text = (const char *)packet->data;
    struct session *s = packet->length ? session_new(text[0], text + 1, packet->length - 1) : NULL;
    (void)user;
    if (!s) return;
    s->conn = packet->from.conn;
    frisbee_set_user(pool, s->conn, s);
    open_streams(pool, s);
}

static void on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    struct session *s = (struct session *)user;
    if (!s) return; // accepted: START will tell
    s->conn = conn;
    if (frisbee_send(pool, conn, START, 15, &s->way, 1) != FRISBEE_OK) report(s->name, false, "no room for START");
    open_streams(pool, s);
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    struct session *s = (struct session *)user;
    uint32_t i, answered = 0;
    (void)conn;
    if (!s) {
        report(NULL, false, "closed before START: %s", frisbee_result_string(info->reason));
        return;
    }
    for (i = 0; i < s->opened; i++) answered += frisbee_stream_send(pool, s->streams[i].handle, "", 1) == FRISBEE_CLOSED;
    if (s->way >= 'G')
        report(s->name, !s->wrong && s->opened > s->expected->ours && s->closed == s->opened && s->received >= (s->way == 'H' ? CUT : 1) &&
                   s->reason == unfinished(info->reason) && (info->reason == FRISBEE_OK) == (s->way == 'H') && answered == s->opened,
               "%s behind %u messages: each of %u streams is closed once, before the connection, with its reason (%s)", s->expected->what,
               (unsigned)s->received, (unsigned)s->opened, frisbee_result_string(info->reason));
    else if (info->reason != FRISBEE_OK || answered != s->opened)
        report(s->name, false, "closed: %s, %u of %u streams", frisbee_result_string(info->reason), (unsigned)s->closed, (unsigned)s->opened);
    s->finished = true;
}

static const frisbee_events events = {on_open, NULL, NULL, NULL, on_close};

static const frisbee_route routes[] = {{START, on_start, NULL}};

// >>main

static bool connect_next(frisbee_pool *pool, const char *address, frisbee_conn_desc *desc, char **argv) {
    struct session *s = session_new((char)('A' + (int)used), argv[4], strlen(argv[4]));
    desc->user = s;
    desc->wire = used % 2 ? FRISBEE_WIRE_WAIT : !strcmp(argv[3], "v0") ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_AUTO;
    return s && frisbee_connect(pool, address, desc, NULL) == FRISBEE_OK;
}

int main(int argc, char **argv) {
    int64_t deadline = now_ms() + LIMIT_MS;
    char address[128];
    frisbee_conn_desc desc;
    frisbee_pool *pool;
    size_t wanted, done = 0, i;
    bool client, ok;
    alarm(LIMIT_MS / 1000 + 5); // should the library hang
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    role = argc > 1 ? argv[1] : "";
    client = argc == 5 && !strcmp(role, "client");
    wanted = client ? WAYS : 2 * WAYS;
    make_pattern();
    memset(&desc, 0, sizeof desc);
    desc.events = &events;
    desc.streams = &stream_events;
    desc.routes = routes;
    desc.route_count = sizeof routes / sizeof *routes;
    desc.max_streams = SLOTS;
    desc.stream_window = WINDOW;
    desc.heartbeat_ms = 150; // so that PONGs soon confirm closed streams
    if (frisbee_pool_create(NULL, &pool) != FRISBEE_OK) return 1;
    ok = client ? read_address(argv[2], address, sizeof address) : argc == 3 && !strcmp(role, "server") && serve(pool, &desc, argv[2]);
    if (!ok) report(NULL, false, "set-up");
    while (ok && done < wanted && now_ms() < deadline) {
        frisbee_result result;
        for (i = done = 0; i < used; i++) {
            struct session *s = &sessions[i];
            frisbee_stats stats;
            done += s->finished;
            if (s->way == 'F' && frisbee_conn_stats(pool, s->conn, &stats) == FRISBEE_OK && stats.memory > s->memory)
                s->memory = stats.memory;
            if (s->paused_since && s->calls == CALLS && s->closed == s->opened - s->paused && now_ms() - s->paused_since >= PAUSE_MS)
                resume_streams(pool, s);
        }
        if (client && done == used && used < WAYS && !connect_next(pool, address, &desc, argv)) {
            report(NULL, false, "connect");
            break;
        }
        if ((result = frisbee_poll(pool, 20)) != FRISBEE_OK) {
            report(NULL, false, "frisbee_poll: %s", frisbee_result_string(result));
            break;
        }
    }
    for (i = 0; i < used; i++) {
        const struct session *s = &sessions[i];
        if (!s->finished)
            report(s->name, false, "not finished: %u streams opened, %u closed, %u messages, %u wrong", (unsigned)s->opened,
                   (unsigned)s->closed, (unsigned)s->received, (unsigned)s->wrong);
    }
    if (used < wanted) report(NULL, false, "%u of %u sessions", (unsigned)used, (unsigned)wanted);
    frisbee_pool_destroy(pool);
    return failures != 0;
}
