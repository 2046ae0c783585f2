// frisbee.h - packets, calls and hijack over any byte stream, in one C header. Public domain or MIT, at your choice.
// Speaks the Frisbee wire: stock Go programs (frisbee-go v0.10 and v0.11, frpc-go) talk to it unmodified, both ways.
/*
    IN ONE FILE OF YOUR PROJECT (a two-line frisbee.c is best, so that no other include comes before it):

        #define FRISBEE_IMPLEMENTATION
        #include "frisbee.h"

    and `#include "frisbee.h"` wherever else you use it. C99 or C++11, libc only. Search for ">>" to jump between sections.

    1. QUICK START
    ==============
    A server that answers operation 10 with what it was sent:

        static void echo(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
            (void)user;
            frisbee_reply(pool, &packet->from, packet->data, packet->length);
        }
        int main(void) {
            frisbee_pool *pool;
            if (frisbee_pool_create(NULL, &pool)) return 1;
            frisbee_on(pool, 10, echo, NULL);
            if (frisbee_listen(pool, "127.0.0.1:7777", NULL, NULL)) return 1;
            frisbee_run(pool);
            frisbee_pool_destroy(pool);
            return 0;
        }

    A client that calls it, blocking (frisbee_call is the same without blocking, thousands at once):

        frisbee_conn conn; frisbee_outcome out;
        frisbee_pool_create(NULL, &pool);
        frisbee_connect(pool, "127.0.0.1:7777", NULL, &conn);
        if (frisbee_call_wait(pool, conn, 10, "hello", 5, 1000, &out) == FRISBEE_OK)
            printf("%.*s\n", (int)out.length, (const char *)out.data);
        else
            printf("%s\n", frisbee_result_string(out.result));

    The words: a *packet* has an operation (what it is for), an id (which conversation it belongs to) and a payload. A *pool* runs
    connections on one thread. A *connection* carries packets, or another *protocol*, over a *transport* (a socket, unless you bring your
    own). A *route* is an operation and its handler. A *call* is a packet that waits for the packet with the same operation and id.
    Every description (frisbee_pool_desc, frisbee_conn_desc, frisbee_call_desc) may be all zero: zero means the default.

    2. OPTIONS (define before the implementation; none changes a public struct)
    ==========
        FRISBEE_IMPLEMENTATION   compile the implementation here
        FRISBEE_STATIC           everything is static: one translation unit only (define it wherever the header is included)
        FRISBEE_API              what stands before each declaration (default: extern, or static with FRISBEE_STATIC)
        FRISBEE_POLLER           FRISBEE_POLLER_EPOLL (default on Linux), _POLL (default on other Unix systems), _NONE: no sockets, no
                                 operating system; only frisbee_attach, with the pool's clock from its description
        FRISBEE_NO_THREADS       no pthreads: host names need the pool's resolve hook (frisbee_remote needs no threads)
        FRISBEE_LOG_LEVEL        0 nothing, 1 errors, 2 warnings (default), 3 information: what is compiled in for the log callback
        FRISBEE_MALLOC(n)        with FRISBEE_REALLOC(p,n) and FRISBEE_FREE(p): the allocator of pools that bring none
        FRISBEE_EVENTS           connections served between two looks at the poller (64)
        FRISBEE_CHUNK            bytes in a large piece of output queue (65536)
        FRISBEE_SYS_*            each system call by its own macro (section >>system of the implementation); tests replace them
        FRISBEE_CHECK            compile frisbeei_check(pool), which verifies every internal invariant; for tests

    3. THE LIFE OF A CONNECTION
    ===========================
    A handle (frisbee_conn) names a connection from listen's accept, connect, adopt or attach until its last on_close. A handle that is no
    longer valid answers FRISBEE_CLOSED everywhere and never names a newer connection. Where retry_min_ms asks for it, the handle stays
    the same over reconnects; each *session* has a number, and a reply never crosses from one session to another.

    Order of callbacks in a session, whatever happens:
        wrap          put your transports (TLS, WebSocket) on top of the socket
        on_open       transport ready; an accepted connection is announced when its first bytes have told its wire (section 9)
        start         of a frisbee_protocol, if the connection has one
        handlers, on_packet, on_reply, on_writable, input
        on_end        the peer has sent its last byte (half-close). Without on_end: replies owed are flushed, then it closes
        on_reply      of every call still in flight
        on_hijacked   if a hijack was asked for, whether it worked or not
        stop          of the protocol
        on_close      always, always last, with the reason; the handle's getters still work in it. retry_ms >= 0: another session will
                      follow after so many ms; FRISBEE_NEVER: the handle is dead when the callback returns

    Sends and calls before the first on_open are queued. Between sessions they answer FRISBEE_NOT_SENT.
    close_info.reason: FRISBEE_OK this side asked for it · CLOSED the peer ended it · TIMED_OUT a deadline or heartbeat, MALFORMED, TOO_LARGE
    what the peer sent · NO_MEMORY · REFUSED nobody listens there, or the name does not exist · SYSTEM see system_error · HIJACKED ·
    DESTROYED the pool was destroyed · any result that a transport, protocol or wrap gave.

    4. CALLBACKS AND THREADS
    ========================
    Callbacks run only inside frisbee_poll, frisbee_run, frisbee_call_wait and frisbee_pool_destroy, never inside another function.
    A callback may call any function, also close, hijack or destroy the connection or pool that it was called for. In a callback
    poll, run and call_wait answer FRISBEE_BUSY; destroy takes effect when the outermost poll returns FRISBEE_DESTROYED.
    A pool belongs to one thread at a time; pools share nothing. Other threads (and signal handlers) use frisbee_remote_post and
    frisbee_remote_stop. Only the functions marked "any thread" may be called from another thread.
    Functions of a transport are called from the same places and from frisbee_flush; they may call frisbee_wake and nothing else.

    5. MEMORY AND LIMITS
    ====================
    Payloads handed to callbacks are valid until the callback returns, and are not aligned. Sending copies; the _spans variants borrow
    until their release runs. A function that does not answer FRISBEE_OK has done nothing and owns nothing: no callback will follow.
    Everything that grows has a limit in a description and an answer when it is reached:
        packet       max_packet: TOO_LARGE to the sender here; a peer's longer packet closes its connection
        queue        queue_limit: AGAIN, and on_writable when there is room again; high_water only signals
        replies      while more than high_water bytes of replies wait, that connection is not read: a peer that does not read its
                     answers stops being served, and nobody else notices
        calls        max_calls, and the ids (section 7): EXHAUSTED        deferred replies    max_deferred: AGAIN
        connections  max_conns: the listener leaves them in the backlog; connect, adopt, attach answer EXHAUSTED
        memory       max_memory of the pool: NO_MEMORY to senders; a connection whose input cannot be kept is closed, alone
    An idle connection holds no buffers. A packet's claim of length is not trusted: above half of max_memory, room grows with what comes.
    With `memory` in frisbee_pool_desc the pool lives in that block alone and never calls an allocator; FRISBEE_POOL_BYTES tells its size.

    6. TIME
    =======
    Times are milliseconds in int32_t; 0 is the default, FRISBEE_NEVER switches off (but timeouts of poll are what they say).
    A deadline that has passed is noticed in the next turn, after input was read. No call times out in the turn that started it.
        connect_ms    10000   from the look-up of the name to the connected socket
        open_ms        5000   the transport's handshake
        packet_ms     30000   a packet from its first byte to its last, and 1 ms more for each 64 bytes of payload
        write_ms      30000   without progress while output waits
        idle_ms       never   without a packet (or protocol bytes) in either direction
        heartbeat_ms    500   without a byte from the peer: a PING is sent (at most one waits in the queue)
        heartbeat_timeout_ms 5000  without a byte from the peer: the connection is closed, TIMED_OUT. NEVER in heartbeat_ms switches both off
        call_ms        5000   a call, unless it brings its own timeout
        retry_min_ms  never   first pause before a reconnect; doubled each time up to retry_max_ms (30000), minus a random half
    frisbee_poll(pool, 0) never blocks: a game calls it once a frame, with budget_us or budget_packets if handlers are slow, its own
    clock in now_us, and max_step_ms so that an hour in the debugger is not a dead peer.

    7. CALLS
    ========
    Each frisbee_call that answers OK ends in exactly one on_reply: OK with the reply · TIMED_OUT · CANCELLED · NOT_SENT, no byte of it
    left · UNKNOWN, it left and the connection ended before a reply. outcome.sent false means that the peer has not seen it and never
    will: calling again is safe. (A call that times out or is cancelled while still in the queue is struck from it.)
    A packet that comes in is a reply if its operation and id are those of a call in flight; else it is a request for the operation's
    route; else, without on_packet, it is dropped and counted. The ids of calls are 1..57343 on the side that connected and
    57344..65535 on the side that accepted, oldest first, so that two frisbee.h peers may call each other with the same operation.
    The id of a call that ended without its reply is not used again in the session, unless lost_ms says when (lossy links): a late reply
    never meets a later call. Id 0 is an id like any other: stock peers count through it.
    Reply inside the handler, once; or frisbee_defer first, and reply later from anywhere, to the frisbee_origin.

    8. LETTING GO OF THE CONNECTION
    ===============================
    frisbee_hijack ends Frisbee on a connection and hands over its socket or transport with every byte accounted for; frisbee_upgrade
    stays in the pool and swaps in a frisbee_protocol (or NULL: packets again). Three ways:
        FENCED   both peers are frisbee.h and both call hijack or upgrade. Each sends a last packet (the fence) behind its queue; raw
                 bytes begin behind the other's fence. Packets before it are still delivered. A peer's fence that is not answered within
                 packet_ms closes the connection.
        STOCK    the peer is a stock Go program that calls Raw(). Raw bytes begin behind the packet being handled (outside a handler:
                 behind the last one). PINGs and PONGs at the head of the raw bytes are skipped, and the hand-over waits for the peer's
                 first raw byte: whoever writes raw to a Go peer before it has switched corrupts it. The Go side does best to call Raw()
                 first and then write its last frame by hand: its timer may otherwise send a PING in the middle of raw bytes.
        NOW      raw bytes begin behind the packet being handled; nothing is flushed, unsent bytes are handed over.
    frisbee_adopt and frisbee_attach with a prefill are the inverse.

    9. THE WIRE
    ===========
    All integers big-endian. A connection carries packets and nothing else; there is no greeting.
        v0   u16 id, u16 operation, u32 length, payload                    frisbee-go up to v0.10.x and frpc-go
        v1   u16 0x000F, u16 id, u16 operation, u32 length, payload        frisbee-go from v0.11.0
    Operations 0..9 are Frisbee's: 0 PING (answered by 1 PONG; both empty), 2 STREAM; yours are 10..65279. 0xFF00..0xFFFF belong to this
    library; stock peers drop them unseen:
        0xFF00 FENCE   empty; the last packet of its sender before raw bytes (section 8)
        0xFF01 NOTHING any payload; a call that was struck from the queue. Ignored
    A payload on PING or PONG is accepted and skipped, and never sent (stock peers lose their place over one). Stock peers ping every
    500 ms, drop a connection on which nothing comes for 5 s, and close on a payload above 5 MiB, which is why that is max_packet's default.
    An acceptor tells the wires apart by the first two bytes, or the first eight if they could be either, and frames nothing before.
    (A v0 peer whose first packet has id 15 and a payload length that would also make sense as v1 is misread; force .wire for such.)
    A connector speaks v1 unless .wire says otherwise and sends one PING at open, so that two silent ends do not wait for each other.
    FRISBEE_WIRE_WAIT waits for the peer's first bytes (a stock server pings within 500 ms); after a second without any it is v1.
    Greetings of TLS and HTTP are refused by the first bytes.

    10. PROMISES
    ============
    1 Packets of one connection arrive whole, in order, at most once.   2 Every call ends in exactly one on_reply; late replies meet nobody.
    3 Memory is bounded, with a defined answer at each limit.   4 No abort, exit, print, SIGPIPE, signal handler, global state or blocking
    outside the functions that say so; sockets are close-on-exec.   5 Any function from any callback; a pool is one thread's.
    6 Hostile input costs its sender the connection and nobody else anything.   7 Hijack loses no byte.   8 Stock Go peers work unmodified.
    Each has tests named after it in tests/.
*/

// >>features: glibc freezes its feature-test macros at the first libc header, so this comes before any include
#if defined(FRISBEE_IMPLEMENTATION) && !defined(_WIN32)
#if defined(__APPLE__)
#if !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE 1
#endif
#elif defined(__linux__) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#define FRISBEEI_DEFINED_DEFAULT_SOURCE
#endif
#endif

#ifndef FRISBEE_H
#define FRISBEE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRISBEE_VERSION 100 // major * 10000 + minor * 100 + patch

#ifdef FRISBEE_STATIC
#define FRISBEE_HAS_STATIC 1
#if !defined(FRISBEE_IMPLEMENTATION)
#error "frisbee.h: FRISBEE_STATIC needs FRISBEE_IMPLEMENTATION in the same translation unit, before the first include of frisbee.h"
#endif
#else
#define FRISBEE_HAS_STATIC 0
#endif

#ifndef FRISBEE_API
#ifndef FRISBEE_STATIC
#define FRISBEE_API extern
#elif defined(__GNUC__) || defined(__clang__)
#define FRISBEE_API static __attribute__((unused))
#else
#define FRISBEE_API static
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

// >>basics

#define FRISBEE_NEVER (-1)                     // a time: off, no limit
#define FRISBEE_NO_SOCKET ((frisbee_socket)-1) // no descriptor
#define FRISBEE_PACKET_MAX 5242880u            // default of max_packet: what stock peers accept, 5 MiB

// Every function that can fail answers one of these; FRISBEE_OK is 0 and all others are negative.
typedef enum frisbee_result {
    FRISBEE_OK = 0,
    FRISBEE_AGAIN = -1,        // not now: a queue is at its limit, more bytes are needed, the budget is spent
    FRISBEE_INVALID = -2,      // an argument, or a use that the connection's state or protocol does not allow
    FRISBEE_NO_MEMORY = -3,    // the allocator, max_memory or the fixed block has no more
    FRISBEE_CLOSED = -4,       // the handle, session, pool or peer has ended
    FRISBEE_NOT_SENT = -5,     // between sessions, or the session ended before a byte left
    FRISBEE_UNKNOWN = -6,      // sent, but the outcome is unknown
    FRISBEE_TIMED_OUT = -7,    // a deadline passed
    FRISBEE_CANCELLED = -8,    // by frisbee_cancel, frisbee_stop or the end of the pool
    FRISBEE_TOO_LARGE = -9,    // above max_packet or queue_limit
    FRISBEE_MALFORMED = -10,   // not a packet
    FRISBEE_UNHANDLED = -11,   // no handler for an operation; for the use of protocols built on top
    FRISBEE_REFUSED = -12,     // nobody listens there, or the name does not exist
    FRISBEE_BUSY = -13,        // called from inside a callback, or something of the kind is under way already
    FRISBEE_EXHAUSTED = -14,   // no connection, call or id is left
    FRISBEE_HIJACKED = -15,    // the connection was, or is about to be, handed over
    FRISBEE_DESTROYED = -16,   // the pool was destroyed
    FRISBEE_SYSTEM = -17,      // the operating system said no: frisbee_system_error, or system_error beside the result
    FRISBEE_UNSUPPORTED = -18  // this build has no sockets, no threads or no descriptor to wait on
} frisbee_result;

// The name of a result, such as "FRISBEE_TIMED_OUT"; a constant string, never NULL. Any thread.
FRISBEE_API const char *frisbee_result_string(frisbee_result result);

typedef struct frisbee_pool frisbee_pool;     // connections and what they need, run by one thread
typedef struct frisbee_remote frisbee_remote; // a pool as other threads see it; outlives it
typedef intptr_t frisbee_socket;              // a descriptor, without its system header

// Handles. Copy and compare them freely; an id of zero is no handle. A stale one is answered with FRISBEE_CLOSED.
typedef struct frisbee_conn { uint64_t id; } frisbee_conn;
typedef struct frisbee_listener { uint64_t id; } frisbee_listener;
typedef struct frisbee_call_id { uint64_t id; } frisbee_call_id;

typedef struct frisbee_span { const void *data; size_t length; } frisbee_span; // bytes somewhere

// Called exactly once, inside poll, run, call_wait or destroy, when the library is done with borrowed bytes: sent or given up.
typedef void (*frisbee_release)(void *user);

// >>packets: framing alone. Pure functions: no pool, no operating system, no allocation. Any thread.

typedef enum frisbee_wire {
    FRISBEE_WIRE_AUTO = 0, // an acceptor tells by the first bytes; a connector speaks v1
    FRISBEE_WIRE_V0,       // 8-byte header
    FRISBEE_WIRE_V1,       // 10-byte header with magic
    FRISBEE_WIRE_WAIT      // a connector waits for the peer's first bytes; after a second without any: v1
} frisbee_wire;

enum { FRISBEE_WIRE_HEADER_MAX = 10 }; // bytes that the longest header takes

// Where an answer to a packet belongs: keep it after frisbee_defer to reply later.
typedef struct frisbee_origin {
    frisbee_conn conn;
    uint32_t session;
    uint16_t id, operation;
} frisbee_origin;

// A packet as handlers see it. `data` is not aligned and valid until the handler returns.
typedef struct frisbee_packet {
    frisbee_origin from;
    void *conn_user; // frisbee_conn_desc.user, or what frisbee_set_user put there
    const void *data;
    uint32_t length;
} frisbee_packet;

// Reads the packet at the head of `data`. OK: `packet` is filled (its data points into yours; from.conn and from.session are zero) and
// `*used` says how many bytes it took. AGAIN: `*used` bytes in all are needed before it is worth asking again. MALFORMED: wrong magic.
// TOO_LARGE: payload above max_packet (0: FRISBEE_PACKET_MAX). With FRISBEE_WIRE_AUTO or _WAIT the wire is told by frisbee_sniff each time.
FRISBEE_API frisbee_result frisbee_decode(frisbee_wire wire, const void *data, size_t length, size_t max_packet, frisbee_packet *packet, size_t *used);

// Writes the header that goes before packet->length bytes of payload, and answers its size (8 or 10; AUTO and WAIT mean v1).
FRISBEE_API size_t frisbee_encode(frisbee_wire wire, const frisbee_packet *packet, uint8_t header[FRISBEE_WIRE_HEADER_MAX]);

// Tells the wire by the first bytes that a peer sends. OK: `*wire` is V0 or V1. AGAIN: at most 8 bytes are needed. MALFORMED: neither
// (also a TLS greeting). max_packet as above: how long a first packet may be.
FRISBEE_API frisbee_result frisbee_sniff(const void *data, size_t length, size_t max_packet, frisbee_wire *wire);

// >>transports and protocols: bring your own

enum { FRISBEE_READ = 1, FRISBEE_WRITE = 2 }; // readiness, or-ed

// A byte stream that never blocks. Any function but close may be NULL where it says so. All get `context`.
typedef struct frisbee_transport {
    void *context;
    // The handshake: OK done, AGAIN call again when ready, else the connection ends with that result. NULL: none needed.
    frisbee_result (*open)(void *context);
    // Up to `room` bytes into `into`. OK with *done > 0; AGAIN none now; CLOSED the peer's orderly end. NULL: bytes come by frisbee_feed.
    frisbee_result (*read)(void *context, void *into, size_t room, size_t *done);
    // As many bytes of the spans as go now. OK with *done > 0 (it may be fewer than offered); AGAIN none now: the same bytes come again,
    // perhaps with more behind them and from another address. count 0: write what the transport itself holds back; OK when that is all.
    frisbee_result (*write)(void *context, const frisbee_span *spans, size_t count, size_t *done);
    // The last byte was written: FIN, close_notify. OK or AGAIN. NULL: the transport has no half-close.
    frisbee_result (*finish)(void *context);
    // The last call, exactly once. Frees the context and closes what lies below.
    void (*close)(void *context);
    // What readiness of the socket a blocked FRISBEE_READ, FRISBEE_WRITE or (0) open, finish or own bytes waits for. NULL: the same.
    unsigned (*wants)(void *context, unsigned blocked);
    // The descriptor to wait on. NULL: no descriptor: tried each turn and at least every millisecond; with wake_only after frisbee_wake.
    frisbee_socket (*socket)(void *context);
    bool wake_only;
} frisbee_transport;

// What speaks on a connection instead of packets. `state` belongs to the connection, from start to stop.
typedef struct frisbee_protocol {
    // Before the first byte; may frisbee_write. Not OK ends the connection with that result. NULL: state is `user`.
    frisbee_result (*start)(frisbee_pool *pool, frisbee_conn conn, void *user, void **state);
    // Bytes came. Set *used to how many were taken; called again at once while it takes some and bytes remain. What remains is kept and
    // offered again, with more behind it, when there are *need bytes in all (0: one more). AGAIN or OK go on; else the connection ends.
    // More than max_packet bytes kept is TOO_LARGE.
    frisbee_result (*input)(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used, size_t *need);
    // The peer sent its last byte. NULL: what is queued is flushed, then the connection closes.
    void (*end)(frisbee_pool *pool, frisbee_conn conn, void *state);
    // Swapped out, handed over or closed; once, if start was OK. NULL allowed.
    void (*stop)(frisbee_pool *pool, frisbee_conn conn, void *state);
    void *user;
} frisbee_protocol;

// >>descriptions: zero-initialise, then set what you need

// A request came in: `user` is the route's.
typedef void (*frisbee_handler)(frisbee_pool *pool, const frisbee_packet *packet, void *user);

typedef struct frisbee_route {
    uint16_t operation; // 10..65279
    frisbee_handler handler;
    void *user;
} frisbee_route;

typedef struct frisbee_close_info {
    frisbee_result reason; // section 3 of the manual
    int system_error;      // errno beside FRISBEE_SYSTEM, else 0
    bool opened;           // on_open was called in this session
    int32_t retry_ms;      // a reconnect follows after so long; FRISBEE_NEVER: the handle dies now
} frisbee_close_info;

// What happens to a connection; `user` is the connection's. Any may be NULL.
typedef struct frisbee_events {
    void (*on_open)(frisbee_pool *pool, frisbee_conn conn, void *user);
    void (*on_packet)(frisbee_pool *pool, const frisbee_packet *packet, void *user); // no route took it
    void (*on_writable)(frisbee_pool *pool, frisbee_conn conn, void *user); // the queue was above high_water or at its limit, and is at low_water
    void (*on_end)(frisbee_pool *pool, frisbee_conn conn, void *user);      // the peer half-closed; you may still send, then close
    void (*on_close)(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user);
} frisbee_events;

typedef enum frisbee_role {
    FRISBEE_ROLE_DEFAULT = 0, // listen: acceptor, connect: connector; adopt and attach must say which
    FRISBEE_CONNECTOR,        // ids of calls are 1..57343; speaks first
    FRISBEE_ACCEPTOR          // ids of calls are 57344..65535; tells the wire by the first bytes
} frisbee_role;

// How a connection behaves. Copied; what it points to (events, routes, protocol) must outlive the connections.
typedef struct frisbee_conn_desc {
    void *user;
    const frisbee_events *events;
    const frisbee_route *routes; // sorted by operation, may lie in ROM; if given, the pool's frisbee_on table does not apply
    size_t route_count;
    const frisbee_protocol *protocol; // NULL: packets
    frisbee_wire wire;
    frisbee_role role;
    // Called at the start of each session: *io is the transport so far; replace it by one that owns it. Not OK ends the session
    // with that result, and *io as it is then is closed.
    frisbee_result (*wrap)(frisbee_pool *pool, frisbee_conn conn, frisbee_transport *io, void *user);
    int32_t connect_ms, open_ms, packet_ms, write_ms, idle_ms, call_ms; // 10000, 5000, 30000, 30000, NEVER, 5000
    int32_t heartbeat_ms, heartbeat_timeout_ms;                         // 500, 5000
    int32_t retry_min_ms, retry_max_ms;                                 // NEVER (no reconnect), 30000; connect only
    int32_t lost_ms;           // NEVER: when the id of a call without reply may be used again
    uint32_t max_packet;       // FRISBEE_PACKET_MAX; payload bytes, both directions
    uint32_t max_calls;        // 16384; in flight on this connection
    uint32_t max_deferred;     // 1024
    uint32_t max_conns;        // 10000; of this listener
    uint32_t backlog;          // 511; of this listener
    size_t high_water;         // 256 KiB
    size_t low_water;          // a quarter of high_water
    size_t queue_limit;        // 8 MiB, and at least max_packet + 10
} frisbee_conn_desc;

// All three or none. Sizes are passed back. Used on the pool's thread only.
typedef struct frisbee_allocator {
    void *(*allocate)(void *context, size_t size);
    void *(*resize)(void *context, void *block, size_t old_size, size_t size);
    void (*release)(void *context, void *block, size_t size);
    void *context;
} frisbee_allocator;

enum { FRISBEE_LOG_ERROR = 1, FRISBEE_LOG_WARNING = 2, FRISBEE_LOG_INFO = 3 };

typedef struct frisbee_pool_desc {
    frisbee_allocator allocator; // FRISBEE_MALLOC and friends
    void *memory;                // instead: the pool lives in this block alone, aligned as by malloc, until destroyed;
    size_t memory_size;          // FRISBEE_POOL_BYTES(max_conns, max_calls, max_packet, queue_limit), all four of which must be given
    // Caps over every frisbee_conn_desc (0: none, except max_conns 1000000 and max_memory 1 GiB); calls and queue are per connection.
    uint32_t max_conns, max_calls, max_packet;
    size_t queue_limit, max_memory;
    size_t read_buffer;                // 256 KiB; lent to one connection at a time. With `memory`: max_packet + 64
    uint64_t (*now_us)(void *context); // the system's monotonic clock; steps backward count as none
    void *now_context;
    int32_t max_step_ms;               // NEVER; a longer jump of the clock counts as this long
    int32_t budget_us;                 // NEVER; poll stops calling handlers after so long and answers AGAIN
    uint32_t budget_packets;           // 0: no limit; or after so many packets
    // Looks a host name up: later answer `token` with frisbee_resolved. Not OK fails the connection. NULL: a thread per look-up.
    frisbee_result (*resolve)(void *context, const char *host, uint64_t token);
    void *resolve_context;
    void (*log)(void *context, int level, const char *text); // one line, without its end; may call nothing of the library
    void *log_context;
} frisbee_pool_desc;

// Bytes of `memory` that are always enough for so many connections (and as many listeners, at least two), each with so many calls (and
// as many deferred replies), payloads up to max_packet and a queue of so many bytes.
#define FRISBEE_POOL_BYTES(conns, calls, max_packet, queue)                                  \
    ((size_t)4096 + 2u * (size_t)(max_packet) +                                              \
     (size_t)(conns) * ((size_t)2048 + (size_t)(max_packet) + (size_t)(queue) + (size_t)(calls) * 112u))

// >>pool

// Makes a pool. NULL: all defaults. INVALID: what contradicts itself, or a block too small for its limits. Blocks: no.
FRISBEE_API frisbee_result frisbee_pool_create(const frisbee_pool_desc *desc, frisbee_pool **pool);

// Closes every connection at once (each call ends CANCELLED, each connection gets on_close DESTROYED), runs the remaining tasks with a NULL
// pool, frees. Meanwhile other functions answer CLOSED. In a callback: happens when the outermost poll returns. In the child of a
// fork: abandons, without a byte to the peers. NULL is nothing. For a graceful end call frisbee_shutdown before.
FRISBEE_API void frisbee_pool_destroy(frisbee_pool *pool);

// One turn: writes what is queued, waits up to timeout_ms (0: not at all, FRISBEE_NEVER: until something happens), reads, calls back, writes.
// OK; AGAIN the budget is spent and work is left; CLOSED a shutdown has ended (the pool still lives); DESTROYED in a callback, the
// pool is gone; BUSY inside a callback; SYSTEM the poller failed. A signal ends the wait.
FRISBEE_API frisbee_result frisbee_poll(frisbee_pool *pool, int32_t timeout_ms);

// Writes what is queued without waiting and without callbacks (releases follow in the next poll). For the end of a frame.
FRISBEE_API frisbee_result frisbee_flush(frisbee_pool *pool);

// Polls until frisbee_stop (OK), the end of a shutdown (OK), DESTROYED or SYSTEM. BUSY inside a callback.
FRISBEE_API frisbee_result frisbee_run(frisbee_pool *pool);

// The run or call_wait under way returns, or the next one at once.
FRISBEE_API void frisbee_stop(frisbee_pool *pool);

// Graceful end: closes listeners, refuses new connections and calls (CLOSED), and closes each connection when its calls, deferred replies
// and queue are empty; what is left after timeout_ms (0: 5000) is closed at once. Then poll answers CLOSED and run returns.
FRISBEE_API frisbee_result frisbee_shutdown(frisbee_pool *pool, int32_t timeout_ms);

// For a foreign loop: a descriptor that is readable when poll has something to do (level-triggered); FRISBEE_NO_SOCKET unless the poller
// is epoll. Wait on it no longer than frisbee_next_timeout, then frisbee_poll(pool, 0).
FRISBEE_API frisbee_socket frisbee_wait_fd(frisbee_pool *pool);

// How long poll would wait, in ms: 0 work is waiting, FRISBEE_NEVER nothing is timed. Ask again after any other call.
FRISBEE_API int32_t frisbee_next_timeout(frisbee_pool *pool);

// Answers a resolve hook: numeric addresses ("192.0.2.1", "2001:db8::1"), best first, at most 8 are used; count 0: there is none. Strings are
// copied. CLOSED: the connection no longer waits. Not from inside the hook: answer it from a task or later.
FRISBEE_API frisbee_result frisbee_resolved(frisbee_pool *pool, uint64_t token, const char *const *numeric, size_t count);

// Sets the pool-wide handler of an operation (10..65279), for connections without routes of their own; NULL removes it. At any time.
FRISBEE_API frisbee_result frisbee_on(frisbee_pool *pool, uint16_t operation, frisbee_handler handler, void *user);

// errno of the last FRISBEE_SYSTEM that a function of this pool answered.
FRISBEE_API int frisbee_system_error(frisbee_pool *pool);

// >>remote: other threads

// A task that another thread posts. Yours: embed it, keep it alive until it runs.
typedef struct frisbee_task {
    struct frisbee_task *next; // the library's
    void (*run)(struct frisbee_task *task, frisbee_pool *pool); // on the pool's thread, in posting order; pool NULL: it was destroyed. May free the task
} frisbee_task;

// A counted reference for other threads; release each. On the pool's thread. NULL: no memory or descriptors. With a fixed `memory` block
// the block must outlive the reference.
FRISBEE_API frisbee_remote *frisbee_remote_retain(frisbee_pool *pool);
FRISBEE_API void frisbee_remote_release(frisbee_remote *remote); // any thread

// Hands a task to the pool's thread and wakes it. Allocates nothing, never blocks. OK: it will run exactly once. CLOSED: the pool was
// destroyed, the task is yours. Any thread, signal handlers too.
FRISBEE_API frisbee_result frisbee_remote_post(frisbee_remote *remote, frisbee_task *task);

// frisbee_stop. Any thread, signal handlers too.
FRISBEE_API void frisbee_remote_stop(frisbee_remote *remote);

// >>connections

// Listens. Addresses: "127.0.0.1:7777", "[::1]:7777", ":7777" or "*:7777" (any, IPv6 and IPv4), "unix:/path" (a dead socket file is replaced,
// the file is removed at close). Port 0 is any port. Bound when it returns; numeric addresses only. desc NULL: all defaults. listener may be
// NULL. SYSTEM: see frisbee_system_error. CLOSED: shut down.
FRISBEE_API frisbee_result frisbee_listen(frisbee_pool *pool, const char *address, const frisbee_conn_desc *desc, frisbee_listener *listener);

// The bound address as text that frisbee_connect takes, with the real port. TOO_LARGE: no room (64 bytes are enough but for long paths).
FRISBEE_API frisbee_result frisbee_listener_address(frisbee_pool *pool, frisbee_listener listener, char *text, size_t room);

// Stops listening. Accepted connections stay.
FRISBEE_API frisbee_result frisbee_listener_close(frisbee_pool *pool, frisbee_listener listener);

// Connects, never blocking: on_open or on_close follows in a poll. Addresses as above, also with a host name; each of its addresses is tried.
// Sends and calls may start at once. With retry_min_ms the connection comes back by itself until closed. conn may be NULL.
// INVALID: not an address. EXHAUSTED: max_conns. UNSUPPORTED: a name, without threads and without resolve hook.
FRISBEE_API frisbee_result frisbee_connect(frisbee_pool *pool, const char *address, const frisbee_conn_desc *desc, frisbee_conn *conn);

// Takes a connected stream socket (made non-blocking and close-on-exec). desc->role is required. `prefill` was already read from it
// and is copied. OK: the socket is the pool's; otherwise it stays yours.
FRISBEE_API frisbee_result frisbee_adopt(frisbee_pool *pool, frisbee_socket socket, const frisbee_conn_desc *desc, const void *prefill,
                                         size_t length, frisbee_conn *conn);

// Takes a transport (copied). desc->role is required. OK: transport->close will be called, once; otherwise it is yours.
FRISBEE_API frisbee_result frisbee_attach(frisbee_pool *pool, const frisbee_transport *transport, const frisbee_conn_desc *desc,
                                          const void *prefill, size_t length, frisbee_conn *conn);

// Gives bytes to a connection whose transport has no read; they are copied and handled in the next poll. *taken says how many were
// taken; AGAIN: fewer than all (room comes as poll handles them). NO_MEMORY: none.
FRISBEE_API frisbee_result frisbee_feed(frisbee_pool *pool, frisbee_conn conn, const void *data, size_t length, size_t *taken);

// Tells that a transport without a socket can go on: FRISBEE_READ, FRISBEE_WRITE or both. Acted on in the next poll.
FRISBEE_API frisbee_result frisbee_wake(frisbee_pool *pool, frisbee_conn conn, unsigned ready);

typedef enum frisbee_close_how {
    FRISBEE_CLOSE_FLUSH = 0, // send what is queued, end the stream properly, wait up to 2 s for the peer's end, then on_close
    FRISBEE_CLOSE_NOW        // drop what is queued; on_close in this turn or the next
} frisbee_close_how;

// Closes; no handler is called any more, on_close follows. Idempotent (NOW overtakes FLUSH); no reconnect.
FRISBEE_API frisbee_result frisbee_close(frisbee_pool *pool, frisbee_conn conn, frisbee_close_how how);

// Half-close: FIN behind what is queued. Sending then answers CLOSED; packets still come until the peer ends too.
FRISBEE_API frisbee_result frisbee_finish(frisbee_pool *pool, frisbee_conn conn);

// Stops or resumes reading; packets already read are kept. While paused the peer's silence is not judged.
FRISBEE_API frisbee_result frisbee_pause(frisbee_pool *pool, frisbee_conn conn, bool paused);

// The connection's user pointer. A stale handle: NULL.
FRISBEE_API void *frisbee_user(frisbee_pool *pool, frisbee_conn conn);
FRISBEE_API frisbee_result frisbee_set_user(frisbee_pool *pool, frisbee_conn conn, void *user);

// The peer's or the own address, as text. TOO_LARGE: no room. UNSUPPORTED: a transport without a socket.
FRISBEE_API frisbee_result frisbee_conn_address(frisbee_pool *pool, frisbee_conn conn, bool peer, char *text, size_t room);

// >>sending. All of them queue; the bytes leave at the end of the turn, in one system call per connection (a copied payload of 16 KiB or
// more is offered to the socket at once). Results: OK · AGAIN the queue is at queue_limit, on_writable will follow · TOO_LARGE · INVALID
// an operation below 10 or above 65279 · NO_MEMORY · CLOSED · NOT_SENT between sessions · HIJACKED behind a hijack's end of packets.

// Lends room for a payload of up to `room` bytes in the connection's queue: encode into *data and pass *data (and the length used) to
// the next send, call, reply or write on this connection, which then copies nothing. Any other use of the connection ends the loan.
FRISBEE_API frisbee_result frisbee_reserve(frisbee_pool *pool, frisbee_conn conn, size_t room, void **data);

// Queues a packet; copies the payload. `id` is what you make of it; replies made by hand use the request's.
FRISBEE_API frisbee_result frisbee_send(frisbee_pool *pool, frisbee_conn conn, uint16_t operation, uint16_t id, const void *data, size_t length);

// Queues a packet whose payload is the spans, borrowed until release(user) runs (NULL: until the connection is closed, or the bytes are known to
// have left). The span array itself is copied.
FRISBEE_API frisbee_result frisbee_send_spans(frisbee_pool *pool, frisbee_conn conn, uint16_t operation, uint16_t id, const frisbee_span *spans,
                                              size_t count, frisbee_release release, void *user);

// Queues raw bytes on a connection that speaks a frisbee_protocol. Without a release they are copied, with one borrowed. INVALID: packets.
FRISBEE_API frisbee_result frisbee_write(frisbee_pool *pool, frisbee_conn conn, const frisbee_span *spans, size_t count, frisbee_release release,
                                         void *user);

// Bytes that the transport has not yet taken. A stale handle: 0.
FRISBEE_API size_t frisbee_queued(frisbee_pool *pool, frisbee_conn conn);

// >>calls

typedef struct frisbee_outcome {
    frisbee_result result; // section 7 of the manual
    bool sent;             // false: the peer never saw it, calling again is safe
    const void *data;      // the reply, if result is OK
    uint32_t length;
} frisbee_outcome;

// Exactly once for each frisbee_call that answered OK. outcome and its data are valid until it returns.
typedef void (*frisbee_on_reply)(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user);

typedef struct frisbee_call_desc {
    int32_t timeout_ms; // 0: call_ms of the connection; FRISBEE_NEVER
    frisbee_on_reply on_reply;
    void *user;
    frisbee_release release; // NULL: the payload is copied; else it is borrowed until release(user)
} frisbee_call_desc;

// Sends a request and waits for its reply in the background. desc NULL: the reply is awaited and dropped. call may be NULL.
// EXHAUSTED: max_calls in flight, or no id is left. Otherwise as >>sending.
FRISBEE_API frisbee_result frisbee_call(frisbee_pool *pool, frisbee_conn conn, uint16_t operation, const void *data, size_t length,
                                        const frisbee_call_desc *desc, frisbee_call_id *call);

// The same, blocking: polls (with all callbacks) until the outcome is there, and answers outcome->result. outcome->data is valid until the next
// poll, run, call_wait or destroy. frisbee_stop ends it, CANCELLED. BUSY inside a callback. Other results of frisbee_call: nothing was sent.
FRISBEE_API frisbee_result frisbee_call_wait(frisbee_pool *pool, frisbee_conn conn, uint16_t operation, const void *data, size_t length,
                                             int32_t timeout_ms, frisbee_outcome *outcome);

// Gives a call up: on_reply with CANCELLED still comes, in this turn or the next. CLOSED: it has ended already.
FRISBEE_API frisbee_result frisbee_cancel(frisbee_pool *pool, frisbee_call_id call);

// Inside a handler, instead of replying: promises a later reply to *origin. Only OK is a promise; AGAIN: max_deferred are open.
FRISBEE_API frisbee_result frisbee_defer(frisbee_pool *pool, const frisbee_packet *packet, frisbee_origin *origin);

// Answers a request: inside its handler, or after frisbee_defer. Once: INVALID the second time. CLOSED: that session is over.
// Results as >>sending; AGAIN can come only if a single handler queues more than queue_limit - high_water.
FRISBEE_API frisbee_result frisbee_reply(frisbee_pool *pool, const frisbee_origin *origin, const void *data, size_t length);
FRISBEE_API frisbee_result frisbee_reply_spans(frisbee_pool *pool, const frisbee_origin *origin, const frisbee_span *spans, size_t count,
                                               frisbee_release release, void *user);

// >>hijack: section 8 of the manual

typedef enum frisbee_hijack_how { FRISBEE_HIJACK_FENCED = 0, FRISBEE_HIJACK_STOCK, FRISBEE_HIJACK_NOW } frisbee_hijack_how;

// What a hijack hands over. On any result but OK everything else is empty and the connection closes.
typedef struct frisbee_hijacked {
    frisbee_result result;      // OK, TIMED_OUT, or why the connection ended before
    frisbee_socket socket;      // a plain connection's descriptor, non-blocking, yours; else FRISBEE_NO_SOCKET
    frisbee_transport io;       // else its transport, yours: read, write and close it, or attach it again; close is NULL if there is none
    frisbee_span unread;        // bytes that were read behind the last packet; copy them before you return
    frisbee_span unsent;        // NOW only: bytes that were queued and not written; copy and write them first
} frisbee_hijacked;

// Exactly once after OK of frisbee_hijack, after every on_reply and before on_close.
typedef void (*frisbee_on_hijacked)(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user);

// Hands the connection over. timeout_ms (0: 5000) bounds the wait for the flush and the peer. BUSY: one is under way. INVALID: a
// connection with a protocol knows only NOW. NOT_SENT: the connection is not open.
FRISBEE_API frisbee_result frisbee_hijack(frisbee_pool *pool, frisbee_conn conn, frisbee_hijack_how how, int32_t timeout_ms,
                                          frisbee_on_hijacked on_hijacked, void *user);

// Swaps the protocol: packets to a protocol in one of the three ways (bounded by open_ms), a protocol to another or (NULL) to packets with NOW.
// Acts after the callback returns; bytes that are left go to the new protocol in the same turn. Calls in flight end first.
FRISBEE_API frisbee_result frisbee_upgrade(frisbee_pool *pool, frisbee_conn conn, frisbee_hijack_how how, const frisbee_protocol *protocol);

// >>statistics

typedef struct frisbee_stats {
    uint64_t packets_in, packets_out, bytes_in, bytes_out; // bytes as the transport saw them
    uint64_t dropped;      // packets that nobody took
    uint64_t late_replies; // replies to calls that had ended
    uint64_t sessions;     // sessions opened; more than one per connection: reconnects
    size_t queued;         // bytes waiting to be written
    size_t memory;         // bytes held from the allocator (pool), by this connection alone (connection)
    uint32_t conns, calls, deferred, lost_ids; // now
    uint32_t rtt_us;       // last heartbeat's round trip; 0: none yet. Connection only
} frisbee_stats;

FRISBEE_API frisbee_result frisbee_pool_stats(frisbee_pool *pool, frisbee_stats *stats); // sums, dead connections included
FRISBEE_API frisbee_result frisbee_conn_stats(frisbee_pool *pool, frisbee_conn conn, frisbee_stats *stats); // also in on_close

#ifdef __cplusplus
}
#endif
#endif // FRISBEE_H
