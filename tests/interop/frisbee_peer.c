// frisbee_peer.c - the C side of the interop test: what peer.go does, seen from here. run.sh says what the test as a whole shows.
//
//     frisbee_peer server FILE                 writes its address to FILE and serves both Go versions on that one port
//     frisbee_peer client FILE WIRE VERSION    reads the server's address from FILE; WIRE is v0 or v1, VERSION is for the report
//
// The side that connects opens three sessions and names each in its first packet (START, with id 15: a v0 packet that begins like
// v1). They differ in how they go over to raw bytes:
//     A  calls and packets both ways, 20 s of silence; then this side asks Go to call Raw(), and is silent until Go's raw bytes come
//     B  Go asks, this side answers and hijacks, and Go calls Raw() only after its timer has put PINGs behind its last packet
//     C  Go calls Raw() unasked and writes its last packet by hand, with raw bytes right behind it
#define FRISBEE_IMPLEMENTATION
#include "peer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

// >>script: what both sides know; peer.go has the same

enum { DATA = 10, ECHO, ASK, START, SYNC, SWITCH }; // operations

enum {
    PACKETS = 10000,           // DATA each way
    CALLS = 5000,              // from here, all in flight at once
    ASKS = 2000,               // from Go
    QUIET_MS = 20500,          // at least 20 s by either clock
    RAW = 10 * 1024 * 1024,    // raw bytes each way, followed by their hash
    SESSIONS = 3,              // A, B and C
    HIJACK_MS = 15000,         // Raw() waits up to 5 s if it is overtaken by its own read loop
    LIMIT_MS = 80000           // for everything
};

// Go's DATA is numbered from PACKETS on. Most payloads are small. Every 50th is at an edge, a power of two and up to 10 (a header)
// below it; five are 5 MiB or a byte less.
static uint32_t size_of(uint32_t number) {
    static const uint32_t edges[10] = {16, 64, 256, 1024, 4096, 16384, 65536, 131072, 262144, 1048576};
    if (number % 2000 == 777) return FRISBEE_PACKET_MAX - number / 2000 % 2;
    if (number % 50 == 0) return edges[number / 50 % 10] + 1 - number / 500 % 12;
    return (number * 2654435761u) >> 24;
}

static uint32_t call_size(uint32_t number) { return number == CALLS - 1 ? FRISBEE_PACKET_MAX : number % 301; }

static uint64_t fnv1a(uint64_t hash, const uint8_t *data, size_t length) {
    while (length--) hash = (hash ^ *data++) * 1099511628211u;
    return hash;
}

static const uint64_t fnv1a_start = 14695981039346656037u;

// >>sessions

struct session;

struct call {
    struct session *session;
    uint32_t number, answers;
};

static struct session {
    char name[64];
    char way; // 0: not in use
    bool finished;
    frisbee_conn conn;
    struct call calls[CALLS];
    uint32_t in_flight, answered, asked;   // calls; requests served
    uint32_t sent, got, borrowed, released; // DATA, and the payloads that were lent to the library
    uint32_t wrong;                        // calls, requests and packets that were not what they should be
    uint32_t syncs_asked, syncs; // SYNC called, and answered
    int64_t quiet_since; // 0: not waiting
    uint64_t quiet_bytes;
    bool pings;          // from this side too
    bool hijacked, closed;
    int socket;          // raw from here; -1 before and after
    size_t raw_out, raw_in;
    uint64_t raw_hash;
    uint8_t raw_end[8];  // the peer's hash
} sessions[2 * SESSIONS];

static uint8_t own_end[8]; // the hash of what we send

// A step that cannot go wrong did: the session ends here.
static void give_up(struct session *s, const char *what, frisbee_result result) {
    if (s->finished) return;
    report(s->name, false, "%s: %s", what, frisbee_result_string(result));
    s->finished = true;
}

static struct session *session_new(char way, const char *version, size_t version_length) {
    size_t i;
    for (i = 0; i < sizeof sessions / sizeof *sessions; i++)
        if (!sessions[i].way) {
            struct session *s = &sessions[i];
            s->way = way;
            s->raw_hash = fnv1a_start;
            snprintf(s->name, sizeof s->name, "C %s, Go %.*s, %c", role, (int)version_length, version, way);
            return s;
        }
    report(NULL, false, "more sessions than there should be");
    return NULL;
}

// >>raw: what comes after a hijack, on the bare socket

static void raw_take(struct session *s, const uint8_t *data, size_t length) {
    size_t hashed = s->raw_in >= RAW ? 0 : length < RAW - s->raw_in ? length : RAW - s->raw_in, i;
    s->raw_hash = fnv1a(s->raw_hash, data, hashed);
    for (i = hashed; i < length; i++)
        if (s->raw_in + i < RAW + sizeof s->raw_end) s->raw_end[s->raw_in + i - RAW] = data[i];
    s->raw_in += length;
}

// Ours is the pattern from its second byte on, over and over; then the hash.
static const uint8_t *raw_piece(size_t at, size_t *length) {
    size_t from = 1 + at % FRISBEE_PACKET_MAX, left = RAW - at, run = FRISBEE_PACKET_MAX + 1 - from;
    if (at >= RAW) {
        *length = RAW + sizeof own_end - at;
        return own_end + (at - RAW);
    }
    *length = left < run ? left : run;
    return pattern + from;
}

static void raw_step(struct session *s) {
    static uint8_t buffer[65536];
    uint8_t end[8];
    ssize_t n = 1;
    bool broken;
    unsigned i;
    while (s->raw_out < RAW + sizeof own_end && n > 0) {
        size_t length;
        const uint8_t *piece = raw_piece(s->raw_out, &length);
        n = send(s->socket, piece, length, MSG_NOSIGNAL);
        if (n > 0) s->raw_out += (size_t)n;
        if (s->raw_out == RAW + sizeof own_end) shutdown(s->socket, SHUT_WR);
    }
    broken = n < 0 && errno != EAGAIN && errno != EWOULDBLOCK;
    if (!broken) {
        while ((n = recv(s->socket, buffer, sizeof buffer, 0)) > 0) raw_take(s, buffer, (size_t)n);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n == 0 && s->raw_out < RAW + sizeof own_end) return; // Go has ended; we have not
    }
    for (i = 0; i < 8; i++) end[i] = (uint8_t)(s->raw_hash >> (56 - 8 * i));
    report(s->name, n == 0 && s->closed && s->raw_in == RAW + sizeof end && !memcmp(end, s->raw_end, sizeof end),
           "hijack, then raw bytes both ways: %lu of %lu from Go, with the right hash, and its end", (unsigned long)s->raw_in,
           (unsigned long)(RAW + sizeof end));
    close(s->socket);
    s->socket = -1;
    s->finished = true;
}

static void on_hijacked(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    struct session *s = (struct session *)user;
    (void)pool, (void)conn;
    if (hijacked->result != FRISBEE_OK) {
        give_up(s, "hijack", hijacked->result);
        return;
    }
    if (hijacked->socket == FRISBEE_NO_SOCKET || hijacked->unsent.length)
        report(s->name, false, "a hijack without a socket, or with unsent bytes");
    raw_take(s, (const uint8_t *)hijacked->unread.data, hijacked->unread.length);
    s->socket = (int)hijacked->socket;
    s->hijacked = true;
}

static void hijack(frisbee_pool *pool, struct session *s) {
    frisbee_result result = frisbee_hijack(pool, s->conn, FRISBEE_HIJACK_STOCK, HIJACK_MS, on_hijacked, s);
    if (result != FRISBEE_OK) give_up(s, "frisbee_hijack", result);
}

// >>session A: calls, then packets, then silence, then the hijack

// Tells Go that all is sent, and asks how many packets have come: first behind the last packet, then behind the silence.
static void on_sync(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    static const uint8_t all[4] = {0, 0, PACKETS >> 8, PACKETS & 255};
    struct session *s = (struct session *)user;
    frisbee_stats stats;
    (void)call;
    if (outcome->result != FRISBEE_OK || outcome->length != 4 || memcmp(outcome->data, all, 4)) {
        give_up(s, "sync", outcome->result);
        return;
    }
    frisbee_conn_stats(pool, s->conn, &stats);
    if (++s->syncs == 1) {
        report(s->name, s->got == PACKETS && !s->wrong, "%u packets from Go in order, byte for byte (%u wrong)", (unsigned)s->got,
               (unsigned)s->wrong);
        report(s->name, s->asked == ASKS && stats.dropped == 0 && s->released == s->borrowed && s->borrowed > 0,
               "%u requests from Go served, none dropped, %u payloads given back", (unsigned)s->asked, (unsigned)s->released);
        s->quiet_since = now_ms();
        s->quiet_bytes = stats.bytes_in;
        return;
    }
    // Go pings every 500 ms: fewer than 20 of 40 PINGs would mean that this side saw no heartbeat and lived by luck.
    report(s->name, s->got == PACKETS && s->answered == CALLS && stats.bytes_in - s->quiet_bytes >= 20 * 8 &&
               (!s->pings || stats.rtt_us > 0),
           "%d ms of silence survived, with %lu bytes of heartbeats, %s", QUIET_MS, (unsigned long)(stats.bytes_in - s->quiet_bytes),
           s->pings ? "PINGs from both sides" : "PINGs from Go alone");
    if (frisbee_send(pool, s->conn, SWITCH, 0, NULL, 0) != FRISBEE_OK) report(s->name, false, "no room for SWITCH");
    hijack(pool, s);
}

static void ask_sync(frisbee_pool *pool, struct session *s) {
    frisbee_call_desc desc;
    frisbee_result result;
    s->syncs_asked++;
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = LIMIT_MS;
    desc.on_reply = on_sync;
    desc.user = s;
    result = frisbee_call(pool, s->conn, SYNC, NULL, 0, &desc, NULL);
    if (result != FRISBEE_OK) give_up(s, "frisbee_call SYNC", result);
}

static void on_release(void *user) { ((struct session *)user)->released++; }

// Sends until the queue is full; on_writable goes on. Large payloads are lent, in two pieces.
static void send_packets(frisbee_pool *pool, struct session *s) {
    while (s->sent < PACKETS) {
        uint32_t size = size_of(s->sent);
        const uint8_t *payload = content(s->sent);
        frisbee_result result;
        if (size >= 100000) {
            frisbee_span spans[2];
            spans[0].data = payload;
            spans[0].length = size / 3;
            spans[1].data = payload + size / 3;
            spans[1].length = size - size / 3;
            result = frisbee_send_spans(pool, s->conn, DATA, (uint16_t)s->sent, spans, 2, on_release, s);
            if (result == FRISBEE_OK) s->borrowed++;
        } else {
            result = frisbee_send(pool, s->conn, DATA, (uint16_t)s->sent, payload, size);
        }
        if (result == FRISBEE_AGAIN) return;
        if (result != FRISBEE_OK) {
            give_up(s, "frisbee_send", result);
            return;
        }
        s->sent++;
    }
    if (s->got == PACKETS && !s->syncs_asked) ask_sync(pool, s);
}

static void on_data(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    struct session *s = (struct session *)packet->conn_user;
    uint32_t number = s->got++;
    (void)user;
    if (number >= PACKETS || packet->from.id != (uint16_t)number || packet->length != size_of(number) ||
        (packet->length && memcmp(packet->data, content(number + PACKETS), packet->length))) {
        if (!s->wrong++) report(s->name, false, "packet %u: id %u, %u bytes", (unsigned)number, packet->from.id, (unsigned)packet->length);
    }
    if (s->got == PACKETS && s->sent == PACKETS && !s->syncs_asked) ask_sync(pool, s);
}

static void on_echo(frisbee_pool *pool, frisbee_call_id id, const frisbee_outcome *outcome, void *user) {
    struct call *call = (struct call *)user;
    struct session *s = call->session;
    uint32_t size = call_size(call->number);
    (void)id;
    if (call->answers++ || outcome->result != FRISBEE_OK || outcome->length != size ||
        !inverted((const uint8_t *)outcome->data, content(call->number), size)) {
        if (!s->wrong++) report(s->name, false, "call %u: %s", (unsigned)call->number, frisbee_result_string(outcome->result));
    }
    if (++s->answered < CALLS) return;
    report(s->name, s->in_flight == CALLS && !s->wrong, "%u calls in flight, each answered once by Go", (unsigned)s->in_flight);
    send_packets(pool, s);
}

static void start_calls(frisbee_pool *pool, struct session *s) {
    frisbee_call_desc desc;
    frisbee_stats stats;
    uint32_t i;
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = LIMIT_MS;
    desc.on_reply = on_echo;
    for (i = 0; i < CALLS; i++) {
        frisbee_result result;
        s->calls[i].session = s;
        s->calls[i].number = i;
        desc.user = &s->calls[i];
        result = frisbee_call(pool, s->conn, ECHO, content(i), call_size(i), &desc, NULL);
        if (result != FRISBEE_OK) {
            give_up(s, "frisbee_call", result);
            return;
        }
    }
    frisbee_conn_stats(pool, s->conn, &stats);
    s->in_flight = stats.calls;
}

// >>requests from Go

static void on_ask(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    static uint8_t answer[FRISBEE_PACKET_MAX];
    struct session *s = (struct session *)packet->conn_user;
    const uint8_t *data = (const uint8_t *)packet->data;
    frisbee_result result;
    uint32_t i;
    (void)user;
    for (i = 0; i < packet->length; i++) answer[i] = data[i] ^ 0xFF;
    result = frisbee_reply(pool, &packet->from, answer, packet->length);
    if (result != FRISBEE_OK) give_up(s, "frisbee_reply", result);
    s->asked++;
}

// B wants to be answered; in C the peer has called Raw() already.
static void on_switch(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    struct session *s = (struct session *)packet->conn_user;
    (void)user;
    if (s->way == 'B' && frisbee_reply(pool, &packet->from, NULL, 0) != FRISBEE_OK)
        report(s->name, false, "no room for the answer to SWITCH");
    hijack(pool, s);
}

// The first packet that a Go client sends: the way, then its version.
static void on_start(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const char *text = (const char *)packet->data;
    struct session *s = packet->length ? session_new(text[0], text + 1, packet->length - 1) : NULL;
    (void)user;
    if (!s) return;
    s->conn = packet->from.conn;
    s->pings = true;
    frisbee_set_user(pool, s->conn, s);
    if (packet->from.id != 15) report(s->name, false, "START came with id %u", packet->from.id);
    if (s->way == 'A') start_calls(pool, s);
}

static void on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    struct session *s = (struct session *)user;
    if (!s) return; // accepted: START will tell
    s->conn = conn;
    if (frisbee_send(pool, conn, START, 15, &s->way, 1) != FRISBEE_OK) report(s->name, false, "no room for START");
    if (s->way == 'A') start_calls(pool, s);
}

static void on_writable(frisbee_pool *pool, frisbee_conn conn, void *user) {
    struct session *s = (struct session *)user;
    (void)conn;
    if (s && s->answered == CALLS) send_packets(pool, s);
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    struct session *s = (struct session *)user;
    (void)pool, (void)conn;
    if (!s) {
        report(NULL, false, "closed before START: %s", frisbee_result_string(info->reason));
        return;
    }
    s->closed = s->hijacked && info->reason == FRISBEE_HIJACKED;
    if (!s->closed && !s->finished) give_up(s, "closed", info->reason);
}

static const frisbee_events events = {on_open, NULL, on_writable, NULL, on_close};

static const frisbee_route routes[] = {
    {DATA, on_data, NULL}, {ASK, on_ask, NULL}, {START, on_start, NULL}, {SWITCH, on_switch, NULL}};

// >>main

static bool setup(frisbee_pool *pool, int argc, char **argv) {
    char address[128];
    frisbee_conn_desc desc;
    int i;
    memset(&desc, 0, sizeof desc);
    desc.events = &events;
    desc.routes = routes;
    desc.route_count = sizeof routes / sizeof *routes;
    if (argc == 3 && !strcmp(role, "server")) {
        desc.heartbeat_ms = 400; // sooner than Go's, so that it is sure to be needed
        return serve(pool, &desc, argv[2]);
    }
    if (argc != 5 || strcmp(role, "client") || !read_address(argv[2], address, sizeof address)) return false;
    desc.heartbeat_ms = FRISBEE_NEVER; // only the answers to Go's PINGs keep Go from closing
    for (i = 0; i < SESSIONS; i++) {
        desc.user = session_new((char)('A' + i), argv[4], strlen(argv[4]));
        desc.wire = i ? FRISBEE_WIRE_WAIT : !strcmp(argv[3], "v0") ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_AUTO;
        if (!desc.user || frisbee_connect(pool, address, &desc, NULL) != FRISBEE_OK) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    int64_t deadline = now_ms() + LIMIT_MS;
    size_t wanted, done = 0, i;
    frisbee_pool *pool;
    uint64_t hash = fnv1a_start;
    alarm(LIMIT_MS / 1000 + 5); // should the library hang
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    role = argc > 1 ? argv[1] : "";
    wanted = !strcmp(role, "server") ? 2 * SESSIONS : SESSIONS;
    make_pattern();
    for (i = 0; i < sizeof sessions / sizeof *sessions; i++) sessions[i].socket = -1;
    for (i = 0; i < RAW;) {
        size_t length;
        const uint8_t *piece = raw_piece(i, &length);
        hash = fnv1a(hash, piece, length);
        i += length;
    }
    for (i = 0; i < 8; i++) own_end[i] = (uint8_t)(hash >> (56 - 8 * i));
    if (frisbee_pool_create(NULL, &pool) != FRISBEE_OK || !setup(pool, argc, argv)) {
        report(NULL, false, "set-up");
        return 1;
    }
    while (done < wanted && now_ms() < deadline) {
        bool raw = false;
        frisbee_result result;
        for (i = done = 0; i < wanted; i++) {
            struct session *s = &sessions[i];
            if (s->quiet_since && now_ms() >= s->quiet_since + QUIET_MS) {
                s->quiet_since = 0;
                ask_sync(pool, s);
            }
            if (s->socket >= 0) raw_step(s);
            raw = raw || s->socket >= 0;
            done += s->finished;
        }
        if ((result = frisbee_poll(pool, raw ? 1 : 20)) != FRISBEE_OK) {
            report(NULL, false, "frisbee_poll: %s", frisbee_result_string(result));
            break;
        }
    }
    for (i = 0; i < wanted; i++) {
        const struct session *s = &sessions[i];
        if (s->finished) continue;
        report(s->way ? s->name : NULL, false, "not finished: %u calls answered, %u requests served, %u packets sent, %u got, %u syncs",
               (unsigned)s->answered, (unsigned)s->asked, (unsigned)s->sent, (unsigned)s->got, (unsigned)s->syncs);
        if (s->hijacked) report(s->name, false, "raw bytes: %lu sent, %lu got", (unsigned long)s->raw_out, (unsigned long)s->raw_in);
    }
    frisbee_pool_destroy(pool);
    return failures != 0;
}
