// frisbee.h - packets, calls, publish/subscribe, streams and hijack over any byte stream, in one C header. Public domain or MIT, at your choice.
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

        frisbee_pool *pool; frisbee_conn conn; frisbee_outcome out;
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
        FRISBEE_NO_PUBSUB        leaves publish and subscribe out: its functions, and the creation of a broker, answer FRISBEE_UNSUPPORTED
        FRISBEE_NO_STREAMS       leaves streams out: its functions answer that, connections do without
        FRISBEE_NO_RPC           leaves polyglot, messages and typed calls (sections 13 and 14) out: their functions are not declared
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
        on_open       transport ready; an accepted connection is announced when its first bytes have told its wire (section 11)
        start         of a frisbee_protocol, if the connection has one
        handlers, on_packet, on_reply, on_writable, input
        on_end        the peer has sent its last byte (half-close). Without on_end: replies owed are flushed, what paused streams keep is
                      handed out, then it closes. When both directions have ended (frisbee_finish and on_end, in either order) the connection
                      closes by itself
        on_reply      of every call still in flight
        on_close      of every stream still open; on_unsubscribe of the peer's subscriptions
        on_hijacked   if a hijack was asked for, whether it worked or not
        stop          of the protocol
        on_close      always, always last, with the reason; user pointer and statistics can still be asked. retry_ms >= 0: another
                      session will follow after so many ms; FRISBEE_NEVER: the handle is dead when the callback returns

    That frisbee_connect answered FRISBEE_OK does not mean that anybody is there: on_open or on_close tells, and outcome.reason of a call.
    Sends and calls before the first on_open are queued, over failed attempts too, and go out before what on_open sends (who has to log in
    first sends the rest from there). Between sessions they answer FRISBEE_NOT_SENT.
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
        queue        queue_limit: AGAIN, and on_writable when there is room again; high_water only signals. A borrowed span costs some
                     100 bytes besides, which count for max_memory alone
        replies      while more than high_water bytes of replies wait (on the side that connected: queue_limit - high_water), the
                     connection is not read: a peer that does not read its answers stops being served, and nobody else notices.
                     Replies have a queue_limit of their own (twice that on the side that connected), so that calls cannot crowd them
                     out; in a fixed block there is one for both
        calls        max_calls, and the ids (section 7): EXHAUSTED        deferred replies    max_deferred: AGAIN
        connections  max_conns: the listener leaves them in the backlog; connect, adopt, attach answer EXHAUSTED
        streams      max_streams: EXHAUSTED to the opener here, and a peer's further streams are closed at once. A paused stream keeps at most
                     stream_window, 16 KiB and one message (section 10)
        subscribers  the limit and policy of each subscription; in a connection's queue at most high_water bytes of messages, outside it
                     (queue_limit) all its subscriptions together; retained values: max_retained (section 9)
        decoded      max_decoded, of one message in a pool's arena: NO_MEMORY; a request that needs more is answered with an error
        memory       max_memory of the pool: NO_MEMORY to senders; a connection whose input cannot be kept is closed, alone
    An idle connection holds no buffers. A packet's claim of length is not trusted: above half of max_memory, room grows with what comes.
    With `memory` in frisbee_pool_desc the pool lives in that block alone and never calls an allocator; FRISBEE_POOL_BYTES tells its size.
    Streams, subscriptions, typed calls live in what memory_size has beyond that, and answer NO_MEMORY when it is used up; nothing else does. (The
    broker itself takes about 1 KB of it, or the pool is not created; a connection that finds none there does without streams; when all of
    it is used up, only the last 16 ids of streams that were refused or closed are kept from use.)

    6. TIME
    =======
    The pool does nothing between polls: a program that does not poll for heartbeat_timeout_ms (a long handler counts) looks dead to its peers.
    Times are milliseconds in int32_t, at most 2^30 (12 days; more counts as that); 0 is the default, FRISBEE_NEVER switches off (but
    timeouts of poll are what they say).
    A deadline that has passed is noticed in the next turn, after input was read. No call times out in the turn that started it.
        connect_ms    10000   from the look-up of the name to the connected socket
        open_ms        5000   the transport's handshake
        packet_ms     30000   a packet from its first byte to its last, and 1 ms more for each 64 bytes of payload
        write_ms      30000   without progress while output waits
        idle_ms       never   without a packet (or protocol bytes) in either direction; also a peer that connects and says nothing, which has
                              no other deadline and costs no buffer
        heartbeat_ms    500   without a byte from the peer: a PING is sent (at most one waits in the queue); on a busy connection one in
                              eight times this, for the round trip in its statistics
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
    57344..65535 on the side that accepted, in turn, so that two frisbee.h peers may call each other with the same operation.
    The id of a call that ended without its reply is not used again in the session, unless lost_ms says when (lossy links): a late reply
    never meets a later call. Id 0 is an id like any other: stock peers count through it.
    Reply inside the handler, once; or frisbee_defer first, and reply later from anywhere, to the frisbee_origin; if the caller's session
    has ended meanwhile, that answers CLOSED. There is no status on the wire: an application's errors are part of its payload. A request
    that no handler takes is dropped, and its caller times out; an on_packet can answer it instead.
    (A transport that refused bytes will see the same bytes again: a call that it was offered counts as sent when it is given up.)

    8. LETTING GO OF THE CONNECTION
    ===============================
    frisbee_hijack ends Frisbee on a connection and hands over its socket or transport with every byte accounted for; frisbee_upgrade
    stays in the pool and swaps in a frisbee_protocol (or NULL: packets again). Three ways:
        FENCED   both peers are frisbee.h and both call hijack or upgrade. Each sends a last packet (the fence) behind its queue; raw
                 bytes begin behind the other's fence. Packets before it are still delivered. A peer's fence that is not answered within
                 packet_ms closes the connection.
        STOCK    the peer is a stock Go program that calls Raw(). Raw bytes begin behind the packet being handled (outside a handler:
                 behind the last one). PINGs and PONGs at the head of the raw bytes are skipped, and the hand-over waits for the peer's
                 first raw byte: whoever writes raw to a Go peer before it has switched corrupts it. The surest order: this side sends
                 the last packet and hijacks, the Go side calls Raw() when it receives it and writes first. Where the Go side has the last
                 word, it calls Raw() first and then writes that frame by hand; it must skip a PONG that may still come. Raw() can take
                 up to 5 s. Heartbeats rest while a hijack waits.
        NOW      raw bytes begin behind the packet being handled; nothing is flushed, unsent bytes are handed over.
    frisbee_adopt and frisbee_attach with a prefill are the inverse.

    9. PUBLISH AND SUBSCRIBE
    ========================
    A pool whose description has a `broker` passes on what is published to it. Its peers subscribe and publish over their connections;
    its own program does so with the same functions and FRISBEE_LOCAL in place of a connection.

        static void price(frisbee_pool *pool, const frisbee_message *message, void *user) {
            printf("%s: %.*s\n", message->topic, (int)message->length, (const char *)message->data);
        }
        frisbee_sub_desc desc = {0};
        desc.on_message = price;
        frisbee_subscribe(pool, conn, "prices.*.eur", &desc, NULL);
        frisbee_publish(pool, conn, "prices.gold.eur", "1789", 4, NULL);

    Topics are 1 to 16 tokens divided by '.', 255 bytes at most; a token is one or more bytes other than '.', '*', '>', space and control
    characters (0 to 32, 127). A subscription may have `*` for exactly one token and `>`, at the end, for one or more.
    One that matches several subscriptions of a connection is delivered once for each, under that subscription's handle.
    Finding who gets a message costs what its topic is long, however many subscribe; but patterns with many `*` are tried in all combinations
    that exist, up to as many as there are patterns: a broker for strangers refuses such in may_subscribe. (However much work a connection
    makes, after some milliseconds of it the others have their turn.)
    Groups: of the subscriptions with the same group name (whatever their topics, if they match) one gets each message: in turn, and
    preferably one that is not full.
    Order: each subscription gets the messages of one publisher (with LATEST: on one topic) as they were published, each at most once; between
    two subscriptions there is no order. There is no acknowledgement by subscribers and no store: who is not subscribed misses it, but for the
    last retained value of each topic, which a new subscription that asks for it (desc.retained) gets first. Publishing an empty retained message
    clears it. Nothing outlives the broker: publish retained values in on_open.
    A subscription belongs to its connection's handle: after a reconnect it is asked for again by itself, behind what on_open sends (a login
    goes first; what was published meanwhile is missed); an upgrade to a protocol ends it. on_result tells each time whether the broker took
    it; one that is refused has ended, in a later session too.

    When a subscriber is slow. Messages go straight into its connection's queue while that is at most high_water. Above that they wait in the
    subscription (each counts its payload, topic and 64 bytes), up to the subscription's limit, and, for all of a connection's subscriptions
    together, up to queue_limit; of a connection (of this program: of each subscription) one message may always wait. When that is full the
    subscription's policy decides (a message above the connection's own max_packet or queue_limit is dropped at once):
        FRISBEE_SLOW_DROP_NEW  (0) the new message is dropped for it
        FRISBEE_SLOW_DROP_OLD  the oldest waiting message is
        FRISBEE_SLOW_LATEST    of each topic only the last waiting message is kept, in the place of the one before; when even so it is full,
                               the oldest is dropped
        FRISBEE_SLOW_CLOSE     its connection is closed, EXHAUSTED
        FRISBEE_SLOW_BLOCK     nothing is dropped: the publisher waits. A publishing connection is not read until there is room (its
                               packets stay in order, its heartbeats go on); frisbee_publish with FRISBEE_LOCAL answers AGAIN, and
                               on_writable of the broker follows. Such a subscriber can stop others, so it must be allowed: broker.allow_block.
                               (Retained values that it begins with are dropped when it is full. Where one message matches several
                               that block, of one connection, they may hold one message more than their limits.)
    What the operating system has taken (often megabytes) no policy reaches any more. Nothing is dropped in silence: a subscriber is told with
    each message how many it has missed since the one before (message.dropped); the broker's program sees it in frisbee_sub_info, the publisher
    in frisbee_stats.lost (a publisher over a connection: as of its last confirmed publish). For each subscription, at any time: messages that
    matched = delivered + dropped + waiting. What is dropped for want of memory counts, too. What was delivered into the queue of a connection
    that then ends is as lost as all that is on its way.
    A broker should say who may do what: may_subscribe, may_publish. Without them everybody may. A call that logs in can leave what it knows
    of its caller in frisbee_set_user; if it is answered later (frisbee_defer), frisbee_pause keeps the packets behind it away until then.

    10. STREAMS
    ===========
    Many streams of messages share a connection, each opened by either side, closed by either side, for both directions. They are those of
    frisbee-go: a stream begins with its first message, an empty message cannot exist (it means close). Connections whose description has
    `streams` take part; for others packets of streams are dropped.

        static void got(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) { ... }
        static const frisbee_stream_events events = {opened, got, writable, closed};
        desc.streams = &events;                                        // in the frisbee_conn_desc of both sides
        frisbee_stream_open(pool, conn, NULL, user, &stream);          // when the connection is open
        frisbee_stream_send(pool, stream, data, length);               // AGAIN: on_writable of the stream follows
        frisbee_stream_close(pool, stream);                            // behind what was sent

    Each stream that opened gets on_close exactly once, last: FRISBEE_OK frisbee_stream_close here, CLOSED by the peer, after all its messages ·
    REFUSED the peer takes no streams at all (one above its max_streams it closes) · EXHAUSTED its kept input went over the bound · UNKNOWN its
    connection was closed, by either side, before it was: the peer may have meant to say more · TIMED_OUT, SYSTEM and the other reasons of
    a connection's end. OK does not mean that anything has arrived: who wants to know lets the peer answer on the stream, then close it.
    There is no half-close: a layer above that wants one sends a last message that says so (fRPC does).
    Flow control. frisbee_stream_pause keeps further messages of a stream, in order, until it goes on; all else on the connection continues.
    Between two frisbee.h peers a sender has stream_window bytes of credit on each stream (and may overdraw it by one message);
    what on_data has returned from is given back in halves of the window; without credit frisbee_stream_send answers AGAIN. Before the
    peer is known (the first round trip) the credit is 16 KiB. Stock peers know no credit: what they send to a paused stream is kept
    up to the same bound, stream_window + 16 KiB + one message, and then the stream is closed, EXHAUSTED: pause their streams briefly. (A kept
    message takes 4 bytes besides.) A stock peer that does not read one of its streams for some thousand messages stops its whole connection.
    Ids: the side that connected opens 1..32767, the side that accepted 32768..65535; a stock peer opens what it likes. The id of a closed
    stream is not used again, and what still comes for it is dropped, until the peer has confirmed the close (frisbee.h: by a close;
    stock: by the PONG to a second PING, a quarter of a second after the first).

    11. THE WIRE
    ============
    All integers big-endian. A connection carries packets and nothing else; there is no greeting.
        v0   u16 id, u16 operation, u32 length, payload                    frisbee-go up to v0.10.x and frpc-go
        v1   u16 0x000F, u16 id, u16 operation, u32 length, payload        frisbee-go from v0.11.0
    Operations 0..9 are Frisbee's: 0 PING (answered by 1 PONG; both empty), 2 STREAM; yours are 10..65279. 0xFF00..0xFFFF belong to this
    library; stock peers drop them unseen:
        0xFF00 FENCE   empty; the last packet of its sender before raw bytes (section 8)
        0xFF01 NOTHING any payload; a call that was struck from the queue. Ignored
    Streams. STREAM packets carry the stream's id in the header. To announce credit:
        0xFF02 HELLO         u32 window. The first packet of a connector that has streams; an acceptor that has this library answers it (0: it takes
                             no streams) before it answers the PING behind it. A connector whose first PONG comes before a HELLO, and an
                             acceptor whose first packet is none, has a stock peer. Later bytes of a HELLO are ignored
        0xFF03 CREDIT        id: the stream; u32 bytes more that may be sent on it
        Each direction of a stream starts with the receiver's window as credit; a message costs its length and may be sent while credit is
        above 0. Between peers that exchanged HELLO each close (empty STREAM packet) is answered by one, unless it is itself the answer; a
        stock peer's close is if the stream was opened on this side.
    Publish and subscribe. u8 and u16, u32, u64 big-endian; text without terminator. Ids of subscriptions are the subscriber's choice:
        0xFF10 SUBSCRIBE     id: of the subscription; u8 flags (1: retained values wanted), u8 policy (0 DROP_NEW, 1 DROP_OLD, 2 LATEST,
                             3 CLOSE, 4 BLOCK), u32 limit in bytes (0: 1 MiB; a broker lowers it to its maximum), u8 length, topic,
                             u8 length, group (length 0: none)
        0xFF11 SUBSCRIBED    id; u8 status: 0 taken; retained values follow, in no order. 1 refused (also BLOCK where it is not allowed), 2 malformed
                             topic or group, or no such policy, 3 limits or memory, 4 not a broker, 5 the id is in use: that subscription goes on.
                             1 to 4: there is no subscription with that id (any more: a broker may end one, with 1)
        0xFF12 UNSUBSCRIBE   id
        0xFF13 UNSUBSCRIBED  id; always answered. No MESSAGE for it follows, it may be used again
        0xFF14 PUBLISH       id: 0, or one to be answered; u8 flags (1: retain), u8 length, topic, data
        0xFF15 MESSAGE       id: of the subscription; u8 flags, or-ed (1: published as retained, 2: a retained value from before), u8 length,
                             topic, data. A publisher gets its own messages if it subscribed to them; an empty one that clears a
                             retained value is passed on like others
        0xFF16 DROPPED       id: of the subscription; u64 messages dropped for it since it was made; before the next MESSAGE, if there is one
        0xFF17 PUBLISHED     id of the PUBLISH; u8 status as above (3: passed on, but not retained), u32 subscriptions that it went to (a group is
                             one), u64 messages of this connection that slow subscribers lost so far
    Typed calls are calls and streams whose payloads are messages (sections 13, 14), as frpc-go has them. What it does not know:
        0xFF20 SCHEMA        id: to be answered; u64 fingerprint, u8 length, name of a service
        0xFF21 SCHEMA_IS     id of the SCHEMA; u8 status: 0 the same, 1 another, 2 no such service is served
        A PUBLISH with id 0 that is refused or malformed is dropped. Unknown flags and later bytes of a payload are ignored (but behind data,
        which has no end of its own). A payload that is shorter than this closes the connection.
        So any frisbee-go program can take part: handlers for MESSAGE (and DROPPED), and packets SUBSCRIBE and PUBLISH.
    A payload on PING or PONG is accepted and skipped, and never sent (stock peers lose their place over one). Stock peers ping every
    500 ms, drop a connection on which nothing comes for 5 s, and close on a payload above 5 MiB, which is why that is max_packet's default.
    An acceptor tells the wires apart by the first two bytes, or the first eight if they could be either, and frames nothing before.
    (A v0 peer whose first packet has id 15 and a payload length that would also make sense as v1 is misread; force .wire for such.)
    A connector speaks v1 unless .wire says otherwise and sends one PING at open (heartbeats or not), so that two silent ends do not wait for
    each other.
    FRISBEE_WIRE_WAIT waits for the peer's first bytes (a stock server pings within 500 ms); after a second without any it is v1.
    Greetings of TLS and HTTP are refused by the first bytes.

    12. PROMISES
    ============
    1 Packets of one connection arrive whole, in order, at most once.   2 Every call ends in exactly one on_reply; late replies meet nobody.
    3 Memory is bounded, with a defined answer at each limit.   4 No abort, exit, print, SIGPIPE, signal handler, global state or blocking
    outside the functions that say so; sockets are close-on-exec.   5 Any function from any callback; a pool is one thread's.
    6 Hostile input costs its sender the connection and nobody else anything.   7 Hijack loses no byte.   8 Stock Go peers work unmodified.
    9 Each message reaches each matching subscription once, in order, or is counted as dropped, by the policy that was asked for.
    10 Messages of one stream arrive whole, in order; each stream that opened ends in one on_close; a slow one stops no other.
    11 Each typed call ends in exactly one outcome, and each request that comes in has an answer: the response, an error with a text, or none
    because the connection ended. What is decoded never reads beyond its bytes nor takes more memory than its arena may.
    Each has tests named after it in tests/.

    13. POLYGLOT AND MESSAGES
    =========================
    Polyglot is the encoding of frpc-go: each value says of what kind it is. frisbee_put_ and frisbee_get_ functions write and read single values:

        frisbee_encoder_begin(&encoder, room, sizeof room);            frisbee_decoder_begin(&decoder, data, length);
        frisbee_put_u32(&encoder, 7);                                  n = frisbee_get_u32(&decoder);
        frisbee_put_string(&encoder, frisbee_string_of("text"));       s = frisbee_get_string(&decoder); // points into data
        if (encoder.result) ... TOO_LARGE: encoder.length bytes        if (decoder.result) ... decoder.error says what is wrong
    Errors stay: look once, at the end.
        0 Nil nothing · 1 Slice kind of the elements, Uint32 count, elements · 2 Map kinds of key and value, Uint32 count, key, value, ... ·
        3 Any only as kind of elements and values: messages · 4 Bytes, 5 String Uint32 length, bytes · 6 Error a String · 7 Bool u8 0 or 1 ·
        8 Uint8 · 9 Uint16, 10 Uint32, 11 Uint64 varint: 7 bits a byte, lowest first, the high bit on all but the last · 12 Int32, 13 Int64
        zigzag (0, -1, 1, -2 are 0, 1, 2, 3), varint · 14 Float32, 15 Float64 IEEE 754, big-endian. Counts, lengths and elements have
        their own kind byte. A varint of more bytes than its type has (3, 5, 10) or beyond its range is malformed.
    A message is a struct with a table (frisbee_type). On the wire: Uint8 0 (flags of fRPC), then its single values (numbers, texts, enums,
    optionals, oneofs) in the order of declaration, then repeated fields as Slices, then messages and maps. A message that is not
    there is Nil. An enum is the place of its value in the declaration, as Uint32, which is its number only where numbers have no gaps.
    Optionals and oneofs are this library's own: Nil, or the value; Nil, or Uint32 number of the member and its value; stock peers
    cannot read them (frpc --stock refuses them).
    Encoding copies all; what a message points to must live until then. Decoding takes no memory but from the arena that you give: a block
    of yours, or frisbee_pool_arena; strings and bytes point into the data that was decoded. Limits: 64 messages in messages, counts
    and lengths that the bytes can hold, the arena. Unknown fields do not exist: both sides have the same table, or a decoder says
    MALFORMED. So add fields in new messages or methods, and let peers compare (section 14).

    14. TYPED CALLS
    ===============
    A service is a set of methods with a request and a response message each, and an operation. Two ways to have one:
        from a .proto file    examples/frpc/frpc.c compiles it: `frpc echo.proto` writes echo.frpc.h with structs and functions
        from a list in C      no tool at all; the lists may stand in a header that both sides include:

        #define NUMBERS(F, T) F(T, many, i64, values)
        FRISBEE_MESSAGE(numbers, NUMBERS)
        #define TOTAL(F, T) F(T, one, i64, total)
        FRISBEE_MESSAGE(total, TOTAL)
        #define CALC(M, S) M(S, unary, 10, add, numbers, total)
        FRISBEE_SERVICE(calc, CALC)

        static void add(frisbee_pool *pool, const frisbee_rpc *rpc, const numbers *request, void *user) {
            total response = {0};
            for (uint32_t i = 0; i < request->values_count; i++) response.total += request->values[i];
            calc_add_reply(pool, rpc, &response);                      // or frisbee_rpc_fail(pool, rpc, "why"), or frisbee_rpc_defer
        }
        static const calc_functions functions = {add};
        calc_serve(pool, &functions, NULL, NULL);                      // before frisbee_listen
    and the caller
        calc_add_wait(pool, conn, &request, 1000, &response, &outcome) // blocks; or with a callback that comes once:
        calc_add(pool, conn, &request, NULL, on_total, user, NULL)
    A function that neither answers nor defers, one that is NULL, a request that cannot be decoded and an operation that is not served
    are answered with an error at once (a stock server answers none of them: the call times out). outcome.result tells: FAILED with
    outcome.error, the text · MALFORMED a reply that cannot be decoded · else as section 7. A payload that is an Error is never answered.
    Streaming methods are streams (section 10) on connections whose description has frisbee_rpc_streams(), which a pool that serves some
    takes by itself. A server gets the request, or, if the client streams, each message and then NULL; it replies as often as it likes and
    finishes, or fails. A client sends and finishes; its done gets each message with outcome NULL, and at last the outcome. AGAIN: on_writable
    of the events (server) or the description (client) follows. frisbee_rpc_pause holds the other side back; without done, frisbee_rpc_receive
    fetches message after message. A deadline (desc.timeout_ms) and frisbee_rpc_cancel end a call on both sides.
    On the wire a unary call is a call (section 7) with the request as payload, and as reply the response, or Error with a text. A streaming
    one is a stream: the client's first message is Uint16 operation; then messages as they are; Error("EOF") ends a direction; a server's other
    Error ends the call, and its EOF follows. A frisbee.h server closes the stream behind its EOF, a client when it has it.
    frisbee_service_compare asks a frisbee.h peer whether its service of that name has the same methods, operations and fields.
    Stock frpc-go programs are peers: wire v0 (.wire = FRISBEE_WIRE_V0 to connect; a server tells by itself). There methods are numbered from 10
    through all services of the file, as frpc does.
*/

// >>features: glibc freezes its feature-test macros at the first libc header, so this comes before any include
#if defined(FRISBEE_IMPLEMENTATION) && !defined(FRISBEE_IMPLEMENTED) && !defined(_WIN32)
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
    FRISBEE_UNSUPPORTED = -18, // this build has no sockets, no threads or no descriptor to wait on, or leaves it out; a peer that is no broker
    FRISBEE_FAILED = -19       // the function that a typed call was for answered with an error
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
typedef struct frisbee_stream { uint64_t id; } frisbee_stream;
typedef struct frisbee_sub { uint64_t id; } frisbee_sub; // a subscription

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
FRISBEE_API frisbee_result frisbee_decode(frisbee_wire wire, const void *data, size_t length, size_t max_packet, frisbee_packet *packet,
                                          size_t *used);

// Writes the header that goes before packet->length bytes of payload, and answers its size (8 or 10; AUTO and WAIT mean v1).
FRISBEE_API size_t frisbee_encode(frisbee_wire wire, const frisbee_packet *packet, uint8_t header[FRISBEE_WIRE_HEADER_MAX]);

// Tells the wire by the first bytes that a peer sends. OK: `*wire` is V0 or V1. AGAIN: at most 8 bytes are needed. MALFORMED: neither
// (also a TLS greeting). max_packet above FRISBEE_PACKET_MAX: longer first packets make sense, too.
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
    // Bytes came. Set *used (0 when called, as *need) to how many were taken; called again at once while it takes some and bytes remain.
    // What remains is kept and offered again, with more behind it, when there are *need bytes in all (0: one more). AGAIN or OK go on; else the
    // connection ends. More than max_packet bytes kept is TOO_LARGE.
    frisbee_result (*input)(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used, size_t *need);
    // The peer sent its last byte (events.on_end is for packets only). NULL: what is queued is flushed, then the connection closes.
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
    int system_error;      // errno beside FRISBEE_SYSTEM and FRISBEE_REFUSED, else 0
    bool opened;           // on_open was called in this session
    int32_t retry_ms;      // a reconnect follows after so long; FRISBEE_NEVER: the handle dies now
} frisbee_close_info;

// What happens to a connection; `user` is the connection's. Any may be NULL.
typedef struct frisbee_events {
    void (*on_open)(frisbee_pool *pool, frisbee_conn conn, void *user);
    void (*on_packet)(frisbee_pool *pool, const frisbee_packet *packet, void *user); // no route took it
    void (*on_writable)(frisbee_pool *pool, frisbee_conn conn, void *user); // the queue was above high_water or at its limit, and is at low_water
    void (*on_end)(frisbee_pool *pool, frisbee_conn conn, void *user);      // the peer half-closed; you may still send, then close or finish
    void (*on_close)(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user);
} frisbee_events;

typedef enum frisbee_role {
    FRISBEE_ROLE_DEFAULT = 0, // listen: acceptor, connect: connector; adopt and attach must say which
    FRISBEE_CONNECTOR,        // ids of calls are 1..57343; speaks first
    FRISBEE_ACCEPTOR          // ids of calls are 57344..65535; tells the wire by the first bytes
} frisbee_role;

// Streams of a connection (>>streams). `user` is the stream's, but for on_open: the connection's. Any may be NULL.
typedef struct frisbee_stream_events {
    // The peer opened a stream; its first message follows. frisbee_stream_bind gives it a user pointer, other events. NULL: refused.
    void (*on_open)(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user);
    void (*on_data)(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user); // a message, until it returns
    void (*on_writable)(frisbee_pool *pool, frisbee_stream stream, void *user); // a send was answered AGAIN and may be tried again
    void (*on_close)(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user); // section 10; once, last
} frisbee_stream_events;

// How a connection behaves. Copied; what it points to (events, routes, protocol, streams) must outlive the connections.
typedef struct frisbee_conn_desc {
    void *user;
    const frisbee_events *events;
    const frisbee_route *routes; // sorted by operation, may lie in ROM; if given, the pool's frisbee_on table does not apply
    size_t route_count;
    const frisbee_protocol *protocol; // NULL: packets
    const frisbee_stream_events *streams; // NULL: none on this connection
    frisbee_wire wire;
    frisbee_role role;
    // Called at the start of each session: *io is the transport so far; replace it by one that owns it. Not OK ends the session
    // with that result, and *io as it is then is closed.
    frisbee_result (*wrap)(frisbee_pool *pool, frisbee_conn conn, frisbee_transport *io, void *user);
    int32_t connect_ms, open_ms, packet_ms, write_ms, idle_ms, call_ms; // 10000, 5000, 30000, 30000, NEVER, 5000
    int32_t heartbeat_ms, heartbeat_timeout_ms;                         // 500, 5000
    int32_t retry_min_ms, retry_max_ms;                                 // NEVER (no reconnect), 30000; connect only
    int32_t lost_ms;           // NEVER: when the id of a call without reply may be used again
    uint32_t max_packet;       // FRISBEE_PACKET_MAX; payload bytes, both directions; at most 1 GiB - 10
    uint32_t max_calls;        // 16384; in flight on this connection
    uint32_t max_deferred;     // 1024
    uint32_t max_streams;      // 1024; open at a time, by both sides together
    uint32_t stream_window;    // 256 KiB; what a peer may send on a stream before it was handed out; at most 1 GiB
    uint32_t max_conns;        // 10000; of this listener
    uint32_t backlog;          // 511; of this listener
    size_t high_water;         // 256 KiB
    size_t low_water;          // a quarter of high_water
    size_t queue_limit;        // 8 MiB, or max_packet + 10 if that is more; at most 1 GiB
} frisbee_conn_desc;

// All three or none. Sizes are passed back. Used on the pool's thread only.
typedef struct frisbee_allocator {
    void *(*allocate)(void *context, size_t size);
    void *(*resize)(void *context, void *block, size_t old_size, size_t size);
    void (*release)(void *context, void *block, size_t size);
    void *context;
} frisbee_allocator;

struct frisbee_broker; // >>publish and subscribe

enum { FRISBEE_LOG_ERROR = 1, FRISBEE_LOG_WARNING = 2, FRISBEE_LOG_INFO = 3 };

typedef struct frisbee_pool_desc {
    frisbee_allocator allocator; // FRISBEE_MALLOC and friends
    void *memory;                // instead: the pool lives in this block alone, aligned as by malloc, until destroyed;
    size_t memory_size;          // FRISBEE_POOL_BYTES(max_conns, max_calls, max_packet, queue_limit), all four of which must be given
    // Caps over every frisbee_conn_desc (0: none, except max_conns 1000000 and max_memory 1 GiB); calls and queue are per connection.
    uint32_t max_conns, max_calls, max_packet;
    size_t queue_limit, max_memory;
    size_t read_buffer;                // 256 KiB; lent to one connection at a time. With `memory`: max_packet + 64
    size_t max_decoded;                // 16 MiB; that one decoded message may take in the pool's arena (section 13)
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
    const struct frisbee_broker *broker; // copied; NULL: not a broker
} frisbee_pool_desc;

// Bytes of `memory` that are always enough for so many connections (and as many listeners, at least two), each with so many calls (and
// as many deferred replies), payloads up to max_packet and a queue of so many bytes.
#define FRISBEE_POOL_BYTES(conns, calls, max_packet, queue)                    \
    (1728u + 248u * sizeof(void *) + 2u * (size_t)(max_packet) +                       \
     (size_t)(conns) * (1168u + 136u * sizeof(void *) + (size_t)(max_packet) + (size_t)(queue) + (size_t)(calls) * 112u))

// >>pool

// Makes a pool. NULL: all defaults. INVALID: what contradicts itself, or a block too small for its limits. Blocks: no.
FRISBEE_API frisbee_result frisbee_pool_create(const frisbee_pool_desc *desc, frisbee_pool **pool);

// Closes every connection at once (each call ends CANCELLED, each connection gets on_close DESTROYED), runs the remaining tasks with a NULL
// pool, frees. Meanwhile other functions answer CLOSED. In a callback: happens when the outermost poll returns; what the callback still does
// has no effect, whatever it is answered. In the child of a fork: abandons, without a byte to the peers. NULL is nothing. For a graceful end
// call frisbee_shutdown before.
FRISBEE_API void frisbee_pool_destroy(frisbee_pool *pool);

// One turn: writes what is queued, waits up to timeout_ms (0: not at all, FRISBEE_NEVER: until something happens), reads, calls back, writes.
// OK; AGAIN the budget is spent (or a connection makes very much work) and work is left; CLOSED a shutdown has ended (the pool still lives);
// DESTROYED in a callback, the pool is gone; BUSY inside a callback; SYSTEM the poller failed. A signal ends the wait.
FRISBEE_API frisbee_result frisbee_poll(frisbee_pool *pool, int32_t timeout_ms);

// Writes what is queued without waiting and without callbacks (releases follow in the next poll). For the end of a frame.
FRISBEE_API frisbee_result frisbee_flush(frisbee_pool *pool);

// Polls until frisbee_stop (OK), the end of a shutdown (OK), DESTROYED or SYSTEM. BUSY inside a callback.
FRISBEE_API frisbee_result frisbee_run(frisbee_pool *pool);

// The run or call_wait under way returns (the call ends CANCELLED); if none is, the next run returns at once.
FRISBEE_API void frisbee_stop(frisbee_pool *pool);

// Graceful end: closes listeners, refuses new connections, calls and streams of this side (CLOSED) and streams of peers, and closes each connection
// when its calls, streams, deferred replies, waiting messages and queue are done (requests that come until then are served); what is left after
// timeout_ms (0: 5000) is closed at once.
// Then poll answers CLOSED and run returns. To end on a signal: frisbee_remote_stop in its handler, then shutdown and run again.
FRISBEE_API frisbee_result frisbee_shutdown(frisbee_pool *pool, int32_t timeout_ms);

// For a foreign loop: a descriptor that is readable when poll has something to do (level-triggered); FRISBEE_NO_SOCKET unless the poller
// is epoll. Wait on it no longer than frisbee_next_timeout, then frisbee_poll(pool, 0).
FRISBEE_API frisbee_socket frisbee_wait_fd(frisbee_pool *pool);

// How long poll would wait, in ms: 0 work is waiting, FRISBEE_NEVER nothing is timed. Ask again after any other call.
FRISBEE_API int32_t frisbee_next_timeout(frisbee_pool *pool);

// Answers a resolve hook: numeric addresses ("192.0.2.1", "2001:db8::1"), best first, at most 8 are used, others than numeric ones are skipped;
// none: REFUSED. Strings are copied. CLOSED: the connection no longer waits. Not from inside the hook: answer it from a task or later.
FRISBEE_API frisbee_result frisbee_resolved(frisbee_pool *pool, uint64_t token, const char *const *numeric, size_t count);

// Sets the pool-wide handler of an operation (10..65279), for connections without routes of their own; NULL removes it. At any time.
FRISBEE_API frisbee_result frisbee_on(frisbee_pool *pool, uint16_t operation, frisbee_handler handler, void *user);

// errno of the last FRISBEE_SYSTEM that a function of this pool answered.
FRISBEE_API int frisbee_system_error(frisbee_pool *pool);

// >>remote: other threads

// A task that another thread posts. Yours: embed it, keep it alive until it runs.
typedef struct frisbee_task {
    struct frisbee_task *next; // the library's
    // On the pool's thread, in posting order; pool NULL: it was destroyed. May free the task. Post it again only after it has run.
    void (*run)(struct frisbee_task *task, frisbee_pool *pool);
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
// INVALID: not an address. EXHAUSTED: max_conns. UNSUPPORTED: a name, without resolve hook and without threads or in a fixed block.
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

// The connection's user pointer, which its events get; accepted connections begin with their listener's. A stale handle: NULL.
FRISBEE_API void *frisbee_user(frisbee_pool *pool, frisbee_conn conn);
FRISBEE_API frisbee_result frisbee_set_user(frisbee_pool *pool, frisbee_conn conn, void *user);

// The peer's or the own address, as text. TOO_LARGE: no room. UNSUPPORTED: a transport without a socket. NOT_SENT: there is no socket now
// (not yet connected; also in on_close: ask in on_open what you want to log then). SYSTEM: the peer has gone.
FRISBEE_API frisbee_result frisbee_conn_address(frisbee_pool *pool, frisbee_conn conn, bool peer, char *text, size_t room);

// >>sending. All of them queue; the bytes leave at the end of the turn, in one system call per connection (a copied payload of 16 KiB or
// more is offered to the socket at once). Results: OK · AGAIN the queue is at queue_limit, on_writable will follow · TOO_LARGE · INVALID
// an operation below 10 or above 65279 · NO_MEMORY · CLOSED · NOT_SENT between sessions · HIJACKED behind a hijack's end of packets.

// Lends room for a payload of up to `room` bytes in the connection's queue: encode into *data and pass *data (and the length used) to
// the next send, call, reply or write on this connection, which then copies nothing. Any other use of the connection, also a message that is
// published to it, ends the loan.
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
    frisbee_result reason; // of NOT_SENT and UNKNOWN: why the connection ended (REFUSED, TIMED_OUT, SYSTEM, ...), as in on_close
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

// The same, blocking: polls (with all callbacks) until the outcome is there, and answers outcome->result. Between sessions it waits for the
// next one, within the same time. outcome->data is valid until the next poll, run, call_wait or destroy. frisbee_stop, called meanwhile, ends it,
// CANCELLED. BUSY inside a callback. Other results of frisbee_call: nothing was sent. A program that only calls this must do so (or
// frisbee_poll) more often than the peer's heartbeat_timeout_ms, or the peer will think it dead.
FRISBEE_API frisbee_result frisbee_call_wait(frisbee_pool *pool, frisbee_conn conn, uint16_t operation, const void *data, size_t length,
                                             int32_t timeout_ms, frisbee_outcome *outcome);

// Gives a call up: on_reply with CANCELLED still comes, in this turn or the next. CLOSED: it has ended already.
FRISBEE_API frisbee_result frisbee_cancel(frisbee_pool *pool, frisbee_call_id call);

// Inside a handler, instead of replying: promises a later reply to *origin. Only OK is a promise; AGAIN: max_deferred are open (answer that you
// are busy). A promise ends with its reply or its session; a peer that has ended is kept until it got what it was promised.
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
    frisbee_span unread;        // bytes that were read behind the last packet, at most read_buffer; copy them before you return
    frisbee_span unsent;        // NOW only: bytes that were queued and not written; copy and write them first
} frisbee_hijacked;

// Exactly once after OK of frisbee_hijack, after every on_reply and before on_close.
typedef void (*frisbee_on_hijacked)(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user);

// Hands the connection over. timeout_ms (0: 10000) bounds the wait for the flush and the peer. BUSY: one is under way. INVALID: a
// connection with a protocol knows only NOW. NOT_SENT: the connection is not open.
FRISBEE_API frisbee_result frisbee_hijack(frisbee_pool *pool, frisbee_conn conn, frisbee_hijack_how how, int32_t timeout_ms,
                                          frisbee_on_hijacked on_hijacked, void *user);

// Swaps the protocol: packets to a protocol in one of the three ways (bounded by open_ms), a protocol to another or (NULL) to packets with NOW
// (v1, unless the description's wire says v0 or the connection has spoken packets before).
// Acts after the callback returns; bytes that are left go to the new protocol in the same turn. Calls in flight end first.
FRISBEE_API frisbee_result frisbee_upgrade(frisbee_pool *pool, frisbee_conn conn, frisbee_hijack_how how, const frisbee_protocol *protocol);

// >>publish and subscribe: section 9 of the manual

#define FRISBEE_LOCAL (frisbeei_local()) // in place of a connection: this pool's own broker
static inline frisbee_conn frisbeei_local(void) {
    frisbee_conn local;
    local.id = 1; // no connection's
    return local;
}

enum { FRISBEE_TOPIC_MAX = 255, FRISBEE_TOPIC_TOKENS = 16, FRISBEE_GROUP_MAX = 64 }; // bytes, tokens, bytes

// What happens to a message for a subscription that is full.
typedef enum frisbee_slow {
    FRISBEE_SLOW_DROP_NEW = 0,
    FRISBEE_SLOW_DROP_OLD,
    FRISBEE_SLOW_LATEST,
    FRISBEE_SLOW_CLOSE, // not for FRISBEE_LOCAL
    FRISBEE_SLOW_BLOCK
} frisbee_slow;

typedef struct frisbee_message {
    frisbee_sub sub;
    frisbee_conn conn; // by which it came; FRISBEE_LOCAL: from this pool's broker
    const char *topic; // that it was published on; ends with a 0
    const void *data;  // as topic: until the callback returns; not aligned
    uint32_t length;
    bool retained;     // a value from before the subscription
    uint64_t dropped;  // messages that this subscription has missed since the last one it got
} frisbee_message;

typedef void (*frisbee_on_message)(frisbee_pool *pool, const frisbee_message *message, void *user);

// All may be zero, but on_message.
typedef struct frisbee_sub_desc {
    frisbee_on_message on_message;
    // The broker's answer, in each session (never from a stock peer; not for FRISBEE_LOCAL): OK taken; REFUSED not allowed, INVALID, EXHAUSTED
    // its limits, UNSUPPORTED it is no broker: then the subscription has ended, and its handle with it.
    void (*on_result)(frisbee_pool *pool, frisbee_sub sub, frisbee_result result, void *user);
    void *user;
    const char *group; // 1 to FRISBEE_GROUP_MAX bytes as in a token; NULL: none
    frisbee_slow slow;
    uint32_t limit; // bytes that may wait; 0: 1 MiB. A broker lowers it to its max_pending
    bool retained;  // begin with the last retained value of each topic that matches
} frisbee_sub_desc;

// A subscription at this pool's broker.
typedef struct frisbee_sub_info {
    frisbee_sub sub;
    frisbee_conn conn;  // the subscriber; FRISBEE_LOCAL: this program
    const char *topic;  // as subscribed; like group until the subscription ends or, in a hook, until it returns
    const char *group;  // NULL: none
    frisbee_slow slow;
    uint32_t limit;     // bytes that may wait
    uint32_t waiting;   // messages that wait,
    size_t waiting_bytes; // and what they count
    uint64_t delivered, dropped;
} frisbee_sub_info;

// Makes a pool a broker. All may be zero. The hooks are callbacks (section 4) and concern peers only: this program's own calls are not asked about.
typedef struct frisbee_broker {
    void *user;
    // May this subscription be made, this message (message->conn publishes it; retained: is to be kept) be published? A publisher that had to
    // wait is asked again. NULL: yes.
    bool (*may_subscribe)(frisbee_pool *pool, const frisbee_sub_info *wanted, void *user);
    bool (*may_publish)(frisbee_pool *pool, const frisbee_message *message, void *user);
    void (*on_subscribe)(frisbee_pool *pool, const frisbee_sub_info *info, void *user);   // one was made,
    void (*on_unsubscribe)(frisbee_pool *pool, const frisbee_sub_info *info, void *user); // and has ended, in whatever way; info->waiting is lost
    void (*on_writable)(frisbee_pool *pool, void *user); // frisbee_publish with FRISBEE_LOCAL was answered AGAIN and may be tried again
    bool allow_block;        // peers may subscribe with FRISBEE_SLOW_BLOCK, and so stop publishers; otherwise that is refused
    uint32_t max_subs;       // 1000000; in all
    uint32_t max_conn_subs;  // 1024; of a connection
    uint32_t max_pending;    // 8 MiB; the highest limit of a subscription
    size_t max_retained;     // 16 MiB; each value counts its payload, topic, 256 bytes and 128 for each token; above it
                             // values are passed on but not kept, and what the topic had before is forgotten
} frisbee_broker;

// Subscribes at the peer's broker, or at this pool's own (FRISBEE_LOCAL). Copies topic and group. Before the connection is open, or between
// sessions, it is asked for as soon as it opens. sub may be NULL. on_message comes in polls, until unsubscribed or until the connection's last
// on_close. INVALID: a malformed topic or group, no on_message, or FRISBEE_LOCAL without a broker. EXHAUSTED: limits. Results else as >>sending.
FRISBEE_API frisbee_result frisbee_subscribe(frisbee_pool *pool, frisbee_conn conn, const char *topic, const frisbee_sub_desc *desc,
                                             frisbee_sub *sub);

// Ends a subscription: no on_message comes any more, what waits for it (info->waiting of on_unsubscribe) is lost. A broker may also end one of
// its peers' this way: the peer's on_result is REFUSED. CLOSED: it has ended already. NO_MEMORY, or in a fixed block AGAIN: the peer cannot be
// told now; it goes on.
FRISBEE_API frisbee_result frisbee_unsubscribe(frisbee_pool *pool, frisbee_sub sub);

typedef struct frisbee_publish_desc {
    bool retain;                // keep it as the topic's last value; with no data: forget that
    // NULL: unconfirmed. Else, over a connection, the publish is a call (section 7) that ends OK: it was passed on, and outcome.data is a
    // frisbee_published; or as the broker answered: REFUSED, INVALID, EXHAUSTED (passed on, but not retained), UNSUPPORTED
    frisbee_on_reply on_reply;
    void *user;
    int32_t timeout_ms;         // of that call
} frisbee_publish_desc;

typedef struct frisbee_published {
    uint32_t subscriptions; // that it went to, or would have but for their policy
    uint64_t lost;          // messages of this publisher that slow subscribers have lost so far
} frisbee_published;

// Publishes to the peer's broker, or to this pool's own (FRISBEE_LOCAL; then on_reply must be NULL). Copies. desc NULL: all defaults. Unconfirmed,
// a peer that is no broker drops it; what this program's own broker cannot retain is passed on, OK. Topic and 2 bytes count for max_packet.
// INVALID: a malformed topic, or one with wildcards. AGAIN: the queue is full, or (FRISBEE_LOCAL) a subscription that blocks is. EXHAUSTED:
// confirmed publishes are calls, and there are too many. Else as >>sending.
FRISBEE_API frisbee_result frisbee_publish(frisbee_pool *pool, frisbee_conn conn, const char *topic, const void *data, size_t length,
                                           const frisbee_publish_desc *desc);

// Who is subscribed at this pool's broker: begin with *at zero; each OK puts the next one into *at and, if it is not NULL, *info. CLOSED: that was
// the last. Subscriptions may be ended meanwhile.
FRISBEE_API frisbee_result frisbee_sub_next(frisbee_pool *pool, frisbee_sub *at, frisbee_sub_info *info);

// One subscription at this pool's broker. CLOSED: it has ended. INVALID: one at a peer's.
FRISBEE_API frisbee_result frisbee_sub_describe(frisbee_pool *pool, frisbee_sub sub, frisbee_sub_info *info);

// How many subscriptions a message on `topic` would go to now; a group counts as one. INVALID: malformed, or no broker here.
FRISBEE_API frisbee_result frisbee_topic_count(frisbee_pool *pool, const char *topic, uint32_t *count);

// >>streams: section 10 of the manual

// Opens a stream; nothing is sent until its first message. events NULL: those of the connection's description. `user` goes to them. NOT_SENT:
// the connection is not open (open streams in on_open). INVALID: its description has no `streams`. EXHAUSTED: max_streams, or ids. REFUSED: the
// peer takes none. CLOSED: also a peer that has ended.
FRISBEE_API frisbee_result frisbee_stream_open(frisbee_pool *pool, frisbee_conn conn, const frisbee_stream_events *events, void *user,
                                               frisbee_stream *stream);

// Queues a message, 1 to max_packet bytes; copies. AGAIN: no credit, or the connection's queue is at its limit; on_writable follows. CLOSED: the
// stream has ended, or the peer has closed it. INVALID: no bytes. Else as >>sending.
FRISBEE_API frisbee_result frisbee_stream_send(frisbee_pool *pool, frisbee_stream stream, const void *data, size_t length);

// The same, borrowing the spans until release(user) runs.
FRISBEE_API frisbee_result frisbee_stream_send_spans(frisbee_pool *pool, frisbee_stream stream, const frisbee_span *spans, size_t count,
                                                     frisbee_release release, void *user);

// Closes both directions, behind what was sent. No on_data comes any more; on_close (FRISBEE_OK) follows in this turn or the next.
FRISBEE_API frisbee_result frisbee_stream_close(frisbee_pool *pool, frisbee_stream stream);

// Keeps further messages instead of handing them out, or goes on.
FRISBEE_API frisbee_result frisbee_stream_pause(frisbee_pool *pool, frisbee_stream stream, bool paused);

// Gives a stream its user pointer and, if not NULL, its own events. At any time; usual in on_open.
FRISBEE_API frisbee_result frisbee_stream_bind(frisbee_pool *pool, frisbee_stream stream, const frisbee_stream_events *events, void *user);

FRISBEE_API void *frisbee_stream_user(frisbee_pool *pool, frisbee_stream stream);             // a stale handle: NULL
FRISBEE_API frisbee_conn frisbee_stream_conn(frisbee_pool *pool, frisbee_stream stream);      // a stale handle: zero
FRISBEE_API uint16_t frisbee_stream_number(frisbee_pool *pool, frisbee_stream stream);        // its id on the wire; a stale handle: 0

#ifndef FRISBEE_NO_RPC
// >>polyglot: section 13 of the manual. Pure functions: no pool, no allocation. Any thread.

// The kind byte that each value begins with.
typedef enum frisbee_kind {
    FRISBEE_KIND_NIL = 0,
    FRISBEE_KIND_SLICE,
    FRISBEE_KIND_MAP,
    FRISBEE_KIND_ANY, // of elements and values that are messages
    FRISBEE_KIND_BYTES,
    FRISBEE_KIND_STRING,
    FRISBEE_KIND_ERROR,
    FRISBEE_KIND_BOOL,
    FRISBEE_KIND_U8,
    FRISBEE_KIND_U16,
    FRISBEE_KIND_U32,
    FRISBEE_KIND_U64,
    FRISBEE_KIND_I32,
    FRISBEE_KIND_I64,
    FRISBEE_KIND_F32,
    FRISBEE_KIND_F64
} frisbee_kind;

// Text and bytes as fields have them: borrowed. What was decoded points into the packet; text has no terminator, and is not checked to be UTF-8.
typedef struct frisbee_string { const char *data; uint32_t length; } frisbee_string;
typedef struct frisbee_bytes { const void *data; uint32_t length; } frisbee_bytes;

FRISBEE_API frisbee_string frisbee_string_of(const char *text); // up to its terminator, without copying; NULL: empty
FRISBEE_API bool frisbee_string_is(frisbee_string string, const char *text);

// Writes values one behind the other. The first error stays, and what follows is only counted: `length` then tells how much room is needed.
typedef struct frisbee_encoder {
    uint8_t *data;         // NULL: counts only, and is no error
    size_t room, length;   // bytes there are, bytes used (or needed)
    frisbee_result result; // OK; TOO_LARGE `room` was not enough; INVALID a value that cannot be encoded
    uint32_t depth;        // of messages
} frisbee_encoder;

FRISBEE_API void frisbee_encoder_begin(frisbee_encoder *encoder, void *data, size_t room);
FRISBEE_API void frisbee_put_nil(frisbee_encoder *encoder);
FRISBEE_API void frisbee_put_bool(frisbee_encoder *encoder, bool value);
FRISBEE_API void frisbee_put_u8(frisbee_encoder *encoder, uint8_t value);
FRISBEE_API void frisbee_put_u16(frisbee_encoder *encoder, uint16_t value);
FRISBEE_API void frisbee_put_u32(frisbee_encoder *encoder, uint32_t value);
FRISBEE_API void frisbee_put_u64(frisbee_encoder *encoder, uint64_t value);
FRISBEE_API void frisbee_put_i32(frisbee_encoder *encoder, int32_t value);
FRISBEE_API void frisbee_put_i64(frisbee_encoder *encoder, int64_t value);
FRISBEE_API void frisbee_put_f32(frisbee_encoder *encoder, float value);
FRISBEE_API void frisbee_put_f64(frisbee_encoder *encoder, double value);
FRISBEE_API void frisbee_put_string(frisbee_encoder *encoder, frisbee_string value);
FRISBEE_API void frisbee_put_bytes(frisbee_encoder *encoder, frisbee_bytes value);
FRISBEE_API void frisbee_put_error(frisbee_encoder *encoder, frisbee_string text);
FRISBEE_API void frisbee_put_slice(frisbee_encoder *encoder, frisbee_kind kind, uint32_t count);               // `count` elements follow
FRISBEE_API void frisbee_put_map(frisbee_encoder *encoder, frisbee_kind key, frisbee_kind value, uint32_t count); // key, value, key, value ...

// Reads values in the order in which they were written. The first error stays, and all that follows answers zero.
typedef struct frisbee_decoder {
    const uint8_t *at, *end;
    frisbee_result result; // OK; MALFORMED; TOO_LARGE a limit; NO_MEMORY the arena is used up; FAILED an Error stands for the message
    const char *error;     // what is wrong, such as "a string is cut off": a constant; NULL: nothing
    const char *field;     // of a message: in which field; NULL: in none
    uint32_t depth;        // of messages, now
    uint32_t max_depth, max_count, max_length; // 64; elements of a slice or map, bytes of a string: no limit but that they are there
} frisbee_decoder;

FRISBEE_API void frisbee_decoder_begin(frisbee_decoder *decoder, const void *data, size_t length);
FRISBEE_API int frisbee_peek_kind(const frisbee_decoder *decoder); // of the next value; -1: there is none, or an error before it
FRISBEE_API bool frisbee_get_nil(frisbee_decoder *decoder);        // is it Nil? Then it is taken; else nothing is, and it is no error
FRISBEE_API bool frisbee_get_error(frisbee_decoder *decoder, frisbee_string *text); // the same for Error
FRISBEE_API bool frisbee_get_bool(frisbee_decoder *decoder);
FRISBEE_API uint8_t frisbee_get_u8(frisbee_decoder *decoder);
FRISBEE_API uint16_t frisbee_get_u16(frisbee_decoder *decoder);
FRISBEE_API uint32_t frisbee_get_u32(frisbee_decoder *decoder);
FRISBEE_API uint64_t frisbee_get_u64(frisbee_decoder *decoder);
FRISBEE_API int32_t frisbee_get_i32(frisbee_decoder *decoder);
FRISBEE_API int64_t frisbee_get_i64(frisbee_decoder *decoder);
FRISBEE_API float frisbee_get_f32(frisbee_decoder *decoder);
FRISBEE_API double frisbee_get_f64(frisbee_decoder *decoder);
FRISBEE_API frisbee_string frisbee_get_string(frisbee_decoder *decoder);
FRISBEE_API frisbee_bytes frisbee_get_bytes(frisbee_decoder *decoder);
FRISBEE_API uint32_t frisbee_get_slice(frisbee_decoder *decoder, frisbee_kind kind); // how many elements follow: never more than bytes do
FRISBEE_API uint32_t frisbee_get_map(frisbee_decoder *decoder, frisbee_kind key, frisbee_kind value);

// >>messages: structs with a table of their fields: frpc (examples/frpc) writes it from a .proto file, FRISBEE_MESSAGE from a list. Any thread.

typedef enum frisbee_shape {
    FRISBEE_SHAPE_ONE = 0,  // T x; of a message: const T *x, NULL is Nil
    FRISBEE_SHAPE_MANY,     // const T *x; uint32_t x_count
    FRISBEE_SHAPE_MAP,      // const ENTRY *x; uint32_t x_count, where ENTRY is struct {key; value}. Any order; of equal keys the last counts
    FRISBEE_SHAPE_OPTIONAL, // bool has_x; T x. Not for messages
    FRISBEE_SHAPE_CHOICE    // of a oneof: uint32_t NAME_case, the number of the member that is set or 0; its members, in a union. They follow
                            // each other in the table
} frisbee_shape;

typedef struct frisbee_enum_value { const char *name; int32_t number; } frisbee_enum_value;

// Fields of an enum are int32_t and have the numbers of the .proto; on the wire is the place in `values`.
typedef struct frisbee_enum {
    const char *name;
    const frisbee_enum_value *values;
    uint32_t count;
    bool dense; // each value's number is its place: unknown ones pass through. Otherwise they are INVALID, or MALFORMED
} frisbee_enum;

typedef struct frisbee_type frisbee_type;

typedef struct frisbee_field {
    const char *name;
    uint32_t number;            // in the .proto
    uint8_t kind;               // frisbee_kind; of the elements or values; ANY: a message; U32 with `values`: an enum
    uint8_t shape;              // frisbee_shape
    uint32_t offset, count;     // of x; of x_count, has_x or NAME_case
    const frisbee_type *type;   // of messages; MAP: of its ENTRY
    const frisbee_enum *values; // of enums
} frisbee_field;

// Fields stand in the order of the wire: single values, optionals and oneofs; repeated ones; messages and maps; each as in the .proto.
struct frisbee_type {
    const char *name; // with its package
    const frisbee_field *fields;
    uint32_t field_count, size;
};

// Memory for what is decoded: a block of yours, or a pool's (frisbee_pool_arena).
typedef struct frisbee_arena {
    uint8_t *data;
    size_t room, used;   // of this block
    size_t limit, total; // of a pool's arena: bytes that may be taken, that were
    frisbee_pool *pool;
} frisbee_arena;

FRISBEE_API void frisbee_arena_begin(frisbee_arena *arena, void *block, size_t size); // any alignment; begin again to empty it
FRISBEE_API void *frisbee_arena_take(frisbee_arena *arena, size_t size);              // aligned as by malloc, not cleared; NULL: used up

// An arena that the pool lends, emptied: yours until you ask for it again (typed calls have another). It may take max_decoded. Owner's thread.
FRISBEE_API frisbee_arena *frisbee_pool_arena(frisbee_pool *pool);

// Encodes a message. *length: bytes written, or with TOO_LARGE how many there would be. data NULL with room 0 measures: OK. INVALID: a value
// that its enum does not have, nesting deeper than 64 (a ring?), an unknown NAME_case, a count without elements.
FRISBEE_API frisbee_result frisbee_message_encode(const frisbee_type *type, const void *message, void *data, size_t room, size_t *length);

// Decodes a message from all of `data` (bytes behind it are ignored). Strings point into data, the rest into the arena. Nil is a message of zeros.
// FAILED: an Error is there instead (frisbee_get_error reads it). MALFORMED, TOO_LARGE, NO_MEMORY: *error says what (may be NULL); message is zero.
FRISBEE_API frisbee_result frisbee_message_decode(const frisbee_type *type, void *message, frisbee_arena *arena, const void *data, size_t length,
                                                  const char **error);

// The same among other values.
FRISBEE_API void frisbee_put_message(frisbee_encoder *encoder, const frisbee_type *type, const void *message); // NULL: Nil
FRISBEE_API void frisbee_get_message(frisbee_decoder *decoder, const frisbee_type *type, void *message, frisbee_arena *arena);

// A deep copy, that needs nothing but the arena. NO_MEMORY; INVALID as encode.
FRISBEE_API frisbee_result frisbee_message_copy(const frisbee_type *type, void *copy, const void *message, frisbee_arena *arena);

// Floats are compared by their bits, maps without regard to order.
FRISBEE_API bool frisbee_message_equal(const frisbee_type *type, const void *a, const void *b);

// Writes a message as text for people, like snprintf: answers the length of the whole, writes room - 1 characters of it and a 0.
FRISBEE_API size_t frisbee_message_print(const frisbee_type *type, const void *message, char *text, size_t room);

// >>services: typed calls. Section 14 of the manual; generated code and FRISBEE_SERVICE put types around these functions.

typedef struct frisbee_method frisbee_method;

// A call, on either side. Copy it to go on with it after a callback; what has ended answers CLOSED.
typedef struct frisbee_rpc {
    const frisbee_method *method;
    frisbee_origin origin;  // origin.conn: the connection. The rest: of a request
    frisbee_call_id call;   // of a call of this side
    frisbee_stream stream;  // of streaming methods
} frisbee_rpc;

typedef struct frisbee_rpc_outcome {
    frisbee_result result; // OK; FAILED the other side answered with an error; MALFORMED, TOO_LARGE, NO_MEMORY: with a reply that cannot be
                           // decoded; else as frisbee_outcome or, of streaming methods, as on_close in section 10
    frisbee_result reason; // as in frisbee_outcome
    bool sent;             // false: the other side never saw it, calling again is safe
    frisbee_string error;  // FAILED: its text; MALFORMED, TOO_LARGE, NO_MEMORY: what is wrong; as long as the callback
} frisbee_rpc_outcome;

// A request came in; a streaming client: for each message, and with NULL when it has sent its last one. request: until it returns.
typedef void (*frisbee_rpc_serve)(frisbee_pool *pool, const frisbee_rpc *rpc, const void *request, const void *functions, void *user);
// A call's end: outcome, and the response if there is one. Before it, if the server streams: outcome NULL, and each message.
typedef void (*frisbee_rpc_deliver)(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const void *response,
                                    void (*done)(void), void *user);

struct frisbee_method {
    const char *name;
    const frisbee_type *request, *response;
    uint16_t operation; // 10..65279
    bool client_streams, server_streams;
    frisbee_rpc_serve serve;     // calls the function of this method in `functions`
    frisbee_rpc_deliver deliver; // calls `done` with its real type
};

typedef struct frisbee_service {
    const char *name; // with its package
    const frisbee_method *methods;
    uint32_t method_count;
} frisbee_service;

// What happens to streaming calls of a service besides messages. Any may be NULL.
typedef struct frisbee_rpc_events {
    void (*on_open)(frisbee_pool *pool, const frisbee_rpc *rpc, void *user);     // before the first message
    void (*on_writable)(frisbee_pool *pool, const frisbee_rpc *rpc, void *user); // a reply was answered AGAIN and may be tried again
    void (*on_close)(frisbee_pool *pool, const frisbee_rpc *rpc, frisbee_result reason, void *user); // once, last; OK: finished here
} frisbee_rpc_events;

// Serves a service on the connections of this pool that have no routes of their own. functions: what method->serve takes; it, events (may be
// NULL) and service must outlive the pool. INVALID: an operation that is out of range or has a handler. Serve before frisbee_listen: then
// connections without `streams` of their own take the streams of frisbee_rpc_streams.
FRISBEE_API frisbee_result frisbee_serve(frisbee_pool *pool, const frisbee_service *service, const void *functions, const frisbee_rpc_events *events,
                                         void *user);

// Answers a call that is served: in its function, or after frisbee_rpc_defer; NULL: Nil. A streaming server: for each message; AGAIN: on_writable
// follows. Of a method where only the client streams, it ends the call. Results as frisbee_reply and frisbee_stream_send; INVALID: also a response
// that cannot be encoded.
FRISBEE_API frisbee_result frisbee_rpc_reply(frisbee_pool *pool, const frisbee_rpc *rpc, const void *response);

// Ends a call with an error (text up to 1024 bytes; not "EOF", which would mean the end). Once, instead of a reply; streaming: at any time.
FRISBEE_API frisbee_result frisbee_rpc_fail(frisbee_pool *pool, const frisbee_rpc *rpc, const char *text);

// In the function of a call that does not stream: the answer comes later, to *later. AGAIN: max_deferred; the caller gets an error unless it is
// answered now. (What neither answers nor defers is answered with an error. Streaming calls need no defer.)
FRISBEE_API frisbee_result frisbee_rpc_defer(frisbee_pool *pool, const frisbee_rpc *rpc, frisbee_rpc *later);

// The last message was sent. A server's finish ends the call, a client's only its direction. OK also if it has to wait for room.
FRISBEE_API frisbee_result frisbee_rpc_finish(frisbee_pool *pool, const frisbee_rpc *rpc);

// A pointer of yours on a streaming call that is served, from on_open to on_close. A stale one: NULL, or CLOSED.
FRISBEE_API void *frisbee_rpc_state(frisbee_pool *pool, const frisbee_rpc *rpc);
FRISBEE_API frisbee_result frisbee_rpc_set_state(frisbee_pool *pool, const frisbee_rpc *rpc, void *state);

// Pauses the messages of a streaming call, on either side, or goes on (frisbee_stream_pause).
FRISBEE_API frisbee_result frisbee_rpc_pause(frisbee_pool *pool, const frisbee_rpc *rpc, bool paused);

typedef struct frisbee_rpc_desc {
    int32_t timeout_ms; // 0: call_ms of the connection, streaming methods: never; of the whole call
    void (*on_writable)(frisbee_pool *pool, const frisbee_rpc *rpc, void *user); // streaming clients: a send was answered AGAIN
} frisbee_rpc_desc;

// Calls a method. `request` is encoded at once; NULL if the client streams. desc may be NULL; done is called through method->deliver until it got an
// outcome, exactly once if this answers OK; NULL: the outcome does not matter, or (streaming) frisbee_rpc_receive will fetch it. rpc may be NULL.
// Results as frisbee_call; streaming: as frisbee_stream_open and _send, on connections that have the streams of frisbee_rpc_streams.
FRISBEE_API frisbee_result frisbee_rpc_call(frisbee_pool *pool, frisbee_conn conn, const frisbee_method *method, const void *request,
                                            const frisbee_rpc_desc *desc, void (*done)(void), void *user, frisbee_rpc *rpc);

// For a method that does not stream, blocking as frisbee_call_wait does. *response and outcome->error live until the next poll.
FRISBEE_API frisbee_result frisbee_rpc_call_wait(frisbee_pool *pool, frisbee_conn conn, const frisbee_method *method, const void *request,
                                                 int32_t timeout_ms, void *response, frisbee_rpc_outcome *outcome);

// Sends a message of a streaming client. AGAIN: on_writable follows. CLOSED: the call has ended, or frisbee_rpc_finish was called.
FRISBEE_API frisbee_result frisbee_rpc_send(frisbee_pool *pool, const frisbee_rpc *rpc, const void *request);

// Waits for the next message of a streaming call that was made without `done`; blocks as frisbee_call_wait does. OK: *response is there, until the
// next poll. CLOSED: that was the last. TIMED_OUT: none came in timeout_ms (0: 5000), the call goes on (outcome->reason TIMED_OUT: the call's own
// deadline). Else the call has ended, as in outcome (may be NULL). Fetch the end, or cancel: until then the call takes memory.
FRISBEE_API frisbee_result frisbee_rpc_receive(frisbee_pool *pool, const frisbee_rpc *rpc, int32_t timeout_ms, void *response,
                                               frisbee_rpc_outcome *outcome);

// Gives a call of this side up: its outcome is CANCELLED. (A streaming one that is received: at once and silently.)
FRISBEE_API frisbee_result frisbee_rpc_cancel(frisbee_pool *pool, const frisbee_rpc *rpc);

// For frisbee_conn_desc.streams: on both sides of connections that carry streaming calls.
FRISBEE_API const frisbee_stream_events *frisbee_rpc_streams(void);

// A number that is the same where a service has the same methods, operations and messages. Names of messages do not count. Never 0. Any thread.
FRISBEE_API uint64_t frisbee_service_fingerprint(const frisbee_service *service);

// Asks the peer for the fingerprint of its service of this name. OK the same · FAILED another · UNHANDLED it does not serve it · TIMED_OUT (also:
// a stock peer) and others as outcome.result of calls.
typedef void (*frisbee_on_compared)(frisbee_pool *pool, frisbee_conn conn, frisbee_result result, void *user);
FRISBEE_API frisbee_result frisbee_service_compare(frisbee_pool *pool, frisbee_conn conn, const frisbee_service *service, int32_t timeout_ms,
                                                   frisbee_on_compared on_compared, void *user);
#endif // FRISBEE_NO_RPC

// >>statistics

typedef struct frisbee_stats {
    uint64_t packets_in, packets_out, bytes_in, bytes_out; // bytes as the transport saw them
    uint64_t dropped;      // packets that nobody took
    uint64_t late_replies; // replies to calls that had ended
    uint64_t sessions;     // sessions opened; more than one per connection: reconnects
    uint64_t published;    // at this broker; of a connection: by its peer
    uint64_t delivered;    // messages given to subscriptions here (their queue or on_message); of a connection: its own
    uint64_t lost;         // messages that slow subscriptions lost here; of a connection: of its own, here or (as last confirmed) there
    size_t queued;         // bytes waiting to be written
    size_t memory;         // bytes held from the allocator (pool), by this connection alone (connection)
    uint32_t conns, calls, deferred, lost_ids, streams, subs; // now; subs: at this broker
    uint32_t rtt_us;       // last heartbeat's round trip; 0: none yet. Connection only
} frisbee_stats;

FRISBEE_API frisbee_result frisbee_pool_stats(frisbee_pool *pool, frisbee_stats *stats); // sums, dead connections included
FRISBEE_API frisbee_result frisbee_conn_stats(frisbee_pool *pool, frisbee_conn conn, frisbee_stats *stats); // also in on_close

// >>typed without a tool: messages and services from lists. Section 14 of the manual shows them in use.
//
//     #define NUMBERS(F, T) F(T, many, i64, values) F(T, one, string, label)
//     FRISBEE_MESSAGE(numbers, NUMBERS)         // struct numbers {const int64_t *values; uint32_t values_count; frisbee_string label;}
//
// Shapes and their arguments (kinds: bool u8 u16 u32 u64 i32 i64 f32 f64 string bytes; another kind does not compile):
//     one, KIND, x            optional, KIND, x       many, KIND, x         map, KEY KIND, KIND, x
//     sub, MESSAGE, x         subs, MESSAGE, x        submap, KEY KIND, MESSAGE, x
// A message has at least one field. On the wire its fields stand as in a .proto with the same list.
//
//     #define CALC(M, S) M(S, unary, 10, add, numbers, total)
//     FRISBEE_SERVICE(calc, CALC)               // or server_stream, client_stream, bidi; operation, name, request, response
//
// FRISBEE_SERVICE yields calc_functions, calc_service, calc_serve, calc_add, calc_add_wait, calc_add_reply; streaming: calc_add_send (clients),
// calc_add_receive. All are static: the lists may stand in a header.
#if defined(__GNUC__) || defined(__clang__)
#define FRISBEEI_UNUSED __attribute__((unused))
#else
#define FRISBEEI_UNUSED
#endif
#define FRISBEEI_C_bool bool
#define FRISBEEI_C__Bool bool // where bool is a macro
#define FRISBEEI_C_u8 uint8_t
#define FRISBEEI_C_u16 uint16_t
#define FRISBEEI_C_u32 uint32_t
#define FRISBEEI_C_u64 uint64_t
#define FRISBEEI_C_i32 int32_t
#define FRISBEEI_C_i64 int64_t
#define FRISBEEI_C_f32 float
#define FRISBEEI_C_f64 double
#define FRISBEEI_C_string frisbee_string
#define FRISBEEI_C_bytes frisbee_bytes
#define FRISBEEI_K_bool FRISBEE_KIND_BOOL
#define FRISBEEI_K__Bool FRISBEE_KIND_BOOL
#define FRISBEEI_K_u8 FRISBEE_KIND_U8
#define FRISBEEI_K_u16 FRISBEE_KIND_U16
#define FRISBEEI_K_u32 FRISBEE_KIND_U32
#define FRISBEEI_K_u64 FRISBEE_KIND_U64
#define FRISBEEI_K_i32 FRISBEE_KIND_I32
#define FRISBEEI_K_i64 FRISBEE_KIND_I64
#define FRISBEEI_K_f32 FRISBEE_KIND_F32
#define FRISBEEI_K_f64 FRISBEE_KIND_F64
#define FRISBEEI_K_string FRISBEE_KIND_STRING
#define FRISBEEI_K_bytes FRISBEE_KIND_BYTES

// The list is gone through six times: entries of maps, members, and the rows of the table in the wire's order (single, repeated, the rest).
#define FRISBEEI_ENTRY(T, shape, ...) FRISBEEI_ENTRY_##shape(T, __VA_ARGS__)
#define FRISBEEI_MEMBER(T, shape, ...) FRISBEEI_MEMBER_##shape(T, __VA_ARGS__)
#define FRISBEEI_SINGLE(T, shape, ...) FRISBEEI_SINGLE_##shape(T, __VA_ARGS__)
#define FRISBEEI_REPEATED(T, shape, ...) FRISBEEI_REPEATED_##shape(T, __VA_ARGS__)
#define FRISBEEI_REST(T, shape, ...) FRISBEEI_REST_##shape(T, __VA_ARGS__)
#define FRISBEEI_ROW(T, x, kind, shape, count, type) {#x, 0, kind, shape, (uint32_t)offsetof(T, x), count, type, NULL},
#define FRISBEEI_COUNT(T, x) ((uint32_t)offsetof(T, x))
#define FRISBEEI_ENTRY_one(T, kind, x)
#define FRISBEEI_ENTRY_optional(T, kind, x)
#define FRISBEEI_ENTRY_many(T, kind, x)
#define FRISBEEI_ENTRY_sub(T, message, x)
#define FRISBEEI_ENTRY_subs(T, message, x)
#define FRISBEEI_ENTRY_map(T, k, v, x)                                                                                                    \
    typedef struct T##_##x##_entry { FRISBEEI_C_##k key; FRISBEEI_C_##v value; } T##_##x##_entry;                                         \
    FRISBEEI_UNUSED static const frisbee_field T##_##x##_entry_fields[2] = {                                                              \
        FRISBEEI_ROW(T##_##x##_entry, key, FRISBEEI_K_##k, FRISBEE_SHAPE_ONE, 0, NULL)                                                    \
        FRISBEEI_ROW(T##_##x##_entry, value, FRISBEEI_K_##v, FRISBEE_SHAPE_ONE, 0, NULL)};                                                \
    FRISBEEI_TABLE(T##_##x##_entry)
#define FRISBEEI_ENTRY_submap(T, k, message, x)                                                                                           \
    typedef struct T##_##x##_entry { FRISBEEI_C_##k key; const message *value; } T##_##x##_entry;                                         \
    FRISBEEI_UNUSED static const frisbee_field T##_##x##_entry_fields[2] = {                                                              \
        FRISBEEI_ROW(T##_##x##_entry, key, FRISBEEI_K_##k, FRISBEE_SHAPE_ONE, 0, NULL)                                                    \
        FRISBEEI_ROW(T##_##x##_entry, value, FRISBEE_KIND_ANY, FRISBEE_SHAPE_ONE, 0, &message##_type)};                                   \
    FRISBEEI_TABLE(T##_##x##_entry)
#define FRISBEEI_MEMBER_one(T, kind, x) FRISBEEI_C_##kind x;
#define FRISBEEI_MEMBER_optional(T, kind, x) bool has_##x; FRISBEEI_C_##kind x;
#define FRISBEEI_MEMBER_many(T, kind, x) const FRISBEEI_C_##kind *x; uint32_t x##_count;
#define FRISBEEI_MEMBER_sub(T, message, x) const message *x;
#define FRISBEEI_MEMBER_subs(T, message, x) const message *x; uint32_t x##_count;
#define FRISBEEI_MEMBER_map(T, k, v, x) const T##_##x##_entry *x; uint32_t x##_count;
#define FRISBEEI_MEMBER_submap(T, k, message, x) const T##_##x##_entry *x; uint32_t x##_count;
#define FRISBEEI_SINGLE_one(T, kind, x) FRISBEEI_ROW(T, x, FRISBEEI_K_##kind, FRISBEE_SHAPE_ONE, 0, NULL)
#define FRISBEEI_SINGLE_optional(T, kind, x) FRISBEEI_ROW(T, x, FRISBEEI_K_##kind, FRISBEE_SHAPE_OPTIONAL, FRISBEEI_COUNT(T, has_##x), NULL)
#define FRISBEEI_SINGLE_many(T, kind, x)
#define FRISBEEI_SINGLE_sub(T, message, x)
#define FRISBEEI_SINGLE_subs(T, message, x)
#define FRISBEEI_SINGLE_map(T, k, v, x)
#define FRISBEEI_SINGLE_submap(T, k, message, x)
#define FRISBEEI_REPEATED_one(T, kind, x)
#define FRISBEEI_REPEATED_optional(T, kind, x)
#define FRISBEEI_REPEATED_many(T, kind, x) FRISBEEI_ROW(T, x, FRISBEEI_K_##kind, FRISBEE_SHAPE_MANY, FRISBEEI_COUNT(T, x##_count), NULL)
#define FRISBEEI_REPEATED_sub(T, message, x)
#define FRISBEEI_REPEATED_subs(T, message, x)                                                                                             \
    FRISBEEI_ROW(T, x, FRISBEE_KIND_ANY, FRISBEE_SHAPE_MANY, FRISBEEI_COUNT(T, x##_count), &message##_type)
#define FRISBEEI_REPEATED_map(T, k, v, x)
#define FRISBEEI_REPEATED_submap(T, k, message, x)
#define FRISBEEI_REST_one(T, kind, x)
#define FRISBEEI_REST_optional(T, kind, x)
#define FRISBEEI_REST_many(T, kind, x)
#define FRISBEEI_REST_sub(T, message, x) FRISBEEI_ROW(T, x, FRISBEE_KIND_ANY, FRISBEE_SHAPE_ONE, 0, &message##_type)
#define FRISBEEI_REST_subs(T, message, x)
#define FRISBEEI_REST_map(T, k, v, x)                                                                                                     \
    FRISBEEI_ROW(T, x, FRISBEEI_K_##v, FRISBEE_SHAPE_MAP, FRISBEEI_COUNT(T, x##_count), &T##_##x##_entry_type)
#define FRISBEEI_REST_submap(T, k, message, x)                                                                                            \
    FRISBEEI_ROW(T, x, FRISBEE_KIND_ANY, FRISBEE_SHAPE_MAP, FRISBEEI_COUNT(T, x##_count), &T##_##x##_entry_type)
#define FRISBEEI_TABLE(T)                                                                                                                 \
    FRISBEEI_UNUSED static const frisbee_type T##_type = {#T, T##_fields, (uint32_t)(sizeof T##_fields / sizeof T##_fields[0]), (uint32_t)sizeof(T)};

#define FRISBEE_MESSAGE(NAME, FIELDS)                                                                                                     \
    FIELDS(FRISBEEI_ENTRY, NAME)                                                                                                          \
    typedef struct NAME { FIELDS(FRISBEEI_MEMBER, NAME) } NAME;                                                                           \
    FRISBEEI_UNUSED static const frisbee_field NAME##_fields[] = {                                                                        \
        FIELDS(FRISBEEI_SINGLE, NAME) FIELDS(FRISBEEI_REPEATED, NAME) FIELDS(FRISBEEI_REST, NAME)};                                       \
    FRISBEEI_TABLE(NAME)

#define FRISBEEI_FUNCTION(S, how, operation, name, Q, R) void (*name)(frisbee_pool *pool, const frisbee_rpc *rpc, const Q *request, void *user);
#define FRISBEEI_PLACE(S, how, operation, name, Q, R) S##_##name##_place,
#define FRISBEEI_GLUE(S, how, operation, name, Q, R)                                                                                      \
    typedef void (*S##_##name##_done)(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const R *response,  \
                                      void *user);                                                                                        \
    FRISBEEI_UNUSED static void S##_##name##_serve_one(frisbee_pool *pool, const frisbee_rpc *rpc, const void *request,                   \
                                                       const void *functions, void *user) {                                               \
        if (((const S##_functions *)functions)->name) ((const S##_functions *)functions)->name(pool, rpc, (const Q *)request, user);      \
        else (void)frisbee_rpc_fail(pool, rpc, "not implemented");                                                                        \
    }                                                                                                                                     \
    FRISBEEI_UNUSED static void S##_##name##_deliver_one(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome,  \
                                                         const void *response, void (*done)(void), void *user) {                          \
        ((S##_##name##_done)done)(pool, rpc, outcome, (const R *)response, user);                                                         \
    }
#define FRISBEEI_METHOD(S, how, operation, name, Q, R)                                                                                    \
    {#name, &Q##_type, &R##_type, operation, FRISBEEI_STREAMS_##how, S##_##name##_serve_one, S##_##name##_deliver_one},
#define FRISBEEI_STREAMS_unary false, false
#define FRISBEEI_STREAMS_server_stream false, true
#define FRISBEEI_STREAMS_client_stream true, false
#define FRISBEEI_STREAMS_bidi true, true
#define FRISBEEI_CALL(S, how, operation, name, Q, R)                                                                                      \
    FRISBEEI_UNUSED static frisbee_result S##_##name##_reply(frisbee_pool *pool, const frisbee_rpc *rpc, const R *response) {             \
        return frisbee_rpc_reply(pool, rpc, response);                                                                                    \
    }                                                                                                                                     \
    FRISBEEI_CALL_##how(S, name, Q, R)
#define FRISBEEI_CALL_ASKING(S, name, Q, R)                                                                                               \
    FRISBEEI_UNUSED static frisbee_result S##_##name(frisbee_pool *pool, frisbee_conn conn, const Q *request, const frisbee_rpc_desc *desc, \
                                                     S##_##name##_done done, void *user, frisbee_rpc *rpc) {                              \
        return frisbee_rpc_call(pool, conn, &S##_methods[S##_##name##_place], request, desc, (void (*)(void))done, user, rpc);            \
    }
#define FRISBEEI_CALL_SENDING(S, name, Q, R)                                                                                              \
    FRISBEEI_UNUSED static frisbee_result S##_##name(frisbee_pool *pool, frisbee_conn conn, const frisbee_rpc_desc *desc,                 \
                                                     S##_##name##_done done, void *user, frisbee_rpc *rpc) {                              \
        return frisbee_rpc_call(pool, conn, &S##_methods[S##_##name##_place], NULL, desc, (void (*)(void))done, user, rpc);               \
    }                                                                                                                                     \
    FRISBEEI_UNUSED static frisbee_result S##_##name##_send(frisbee_pool *pool, const frisbee_rpc *rpc, const Q *request) {               \
        return frisbee_rpc_send(pool, rpc, request);                                                                                      \
    }
#define FRISBEEI_CALL_RECEIVING(S, name, Q, R)                                                                                            \
    FRISBEEI_UNUSED static frisbee_result S##_##name##_receive(frisbee_pool *pool, const frisbee_rpc *rpc, int32_t timeout_ms, R *response, \
                                                               frisbee_rpc_outcome *outcome) {                                            \
        return frisbee_rpc_receive(pool, rpc, timeout_ms, response, outcome);                                                             \
    }
#define FRISBEEI_CALL_unary(S, name, Q, R)                                                                                                \
    FRISBEEI_CALL_ASKING(S, name, Q, R)                                                                                                   \
    FRISBEEI_UNUSED static frisbee_result S##_##name##_wait(frisbee_pool *pool, frisbee_conn conn, const Q *request, int32_t timeout_ms,  \
                                                            R *response, frisbee_rpc_outcome *outcome) {                                  \
        return frisbee_rpc_call_wait(pool, conn, &S##_methods[S##_##name##_place], request, timeout_ms, response, outcome);               \
    }
#define FRISBEEI_CALL_server_stream(S, name, Q, R) FRISBEEI_CALL_ASKING(S, name, Q, R) FRISBEEI_CALL_RECEIVING(S, name, Q, R)
#define FRISBEEI_CALL_client_stream(S, name, Q, R) FRISBEEI_CALL_SENDING(S, name, Q, R) FRISBEEI_CALL_RECEIVING(S, name, Q, R)
#define FRISBEEI_CALL_bidi(S, name, Q, R) FRISBEEI_CALL_SENDING(S, name, Q, R) FRISBEEI_CALL_RECEIVING(S, name, Q, R)

#define FRISBEE_SERVICE(NAME, METHODS)                                                                                                    \
    typedef struct NAME##_functions { METHODS(FRISBEEI_FUNCTION, NAME) } NAME##_functions;                                                \
    enum { METHODS(FRISBEEI_PLACE, NAME) NAME##_method_count };                                                                           \
    METHODS(FRISBEEI_GLUE, NAME)                                                                                                          \
    FRISBEEI_UNUSED static const frisbee_method NAME##_methods[] = {METHODS(FRISBEEI_METHOD, NAME)};                                      \
    FRISBEEI_UNUSED static const frisbee_service NAME##_service = {#NAME, NAME##_methods, NAME##_method_count};                           \
    FRISBEEI_UNUSED static frisbee_result NAME##_serve(frisbee_pool *pool, const NAME##_functions *functions,                             \
                                                       const frisbee_rpc_events *events, void *user) {                                    \
        return frisbee_serve(pool, &NAME##_service, functions, events, user);                                                             \
    }                                                                                                                                     \
    METHODS(FRISBEEI_CALL, NAME)

#ifdef __cplusplus
}
#endif
#endif // FRISBEE_H

#if defined(FRISBEE_STATIC) && !FRISBEE_HAS_STATIC
#error "frisbee.h: FRISBEE_STATIC must be defined before the first include of frisbee.h as well"
#elif !defined(FRISBEE_STATIC) && FRISBEE_HAS_STATIC
#error "frisbee.h: FRISBEE_STATIC was defined at the first include of frisbee.h and must stay so"
#endif

// ------------------------------------------------------------------------------------------------------------------------
// >>implementation: stop reading here if you only use the library
// ------------------------------------------------------------------------------------------------------------------------
#ifdef FRISBEE_IMPLEMENTATION
#ifndef FRISBEE_IMPLEMENTED
#define FRISBEE_IMPLEMENTED

// >>configuration

#define FRISBEE_POLLER_NONE 1
#define FRISBEE_POLLER_POLL 2
#define FRISBEE_POLLER_EPOLL 3
#ifndef FRISBEE_POLLER
#if defined(__linux__)
#define FRISBEE_POLLER FRISBEE_POLLER_EPOLL
#elif defined(__unix__) || defined(__APPLE__)
#define FRISBEE_POLLER FRISBEE_POLLER_POLL
#else
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#endif
#endif
#if FRISBEE_POLLER == FRISBEE_POLLER_NONE
#define FRISBEEI_SOCKETS 0
#else
#define FRISBEEI_SOCKETS 1
#endif
#if FRISBEEI_SOCKETS && !defined(FRISBEE_NO_THREADS)
#define FRISBEEI_THREADS 1
#else
#define FRISBEEI_THREADS 0
#endif
#ifdef FRISBEE_NO_PUBSUB
#define FRISBEEI_PUBSUB 0
#else
#define FRISBEEI_PUBSUB 1
#endif
#ifdef FRISBEE_NO_STREAMS
#define FRISBEEI_STREAMS 0
#else
#define FRISBEEI_STREAMS 1
#endif
#ifdef FRISBEE_NO_RPC
#define FRISBEEI_RPC 0
#else
#define FRISBEEI_RPC 1
#endif
#ifndef FRISBEE_LOG_LEVEL
#define FRISBEE_LOG_LEVEL 2
#endif
#ifndef FRISBEE_EVENTS
#define FRISBEE_EVENTS 64
#endif
#ifndef FRISBEE_CHUNK
#define FRISBEE_CHUNK 65536
#endif
#if defined(FRISBEE_MALLOC) != defined(FRISBEE_FREE) || defined(FRISBEE_MALLOC) != defined(FRISBEE_REALLOC)
#error "frisbee.h: define all of FRISBEE_MALLOC, FRISBEE_REALLOC and FRISBEE_FREE, or none"
#endif
#ifndef FRISBEE_MALLOC
#include <stdlib.h>
#define FRISBEE_MALLOC(size) malloc(size)
#define FRISBEE_REALLOC(block, size) realloc(block, size)
#define FRISBEE_FREE(block) free(block)
#endif

// >>system: what the library asks of the operating system, each through a macro of its own

#include <string.h>
#if FRISBEEI_RPC
#include <stdio.h> // snprintf of floats, for frisbee_message_print
#endif
#if FRISBEEI_SOCKETS
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#if FRISBEE_POLLER == FRISBEE_POLLER_EPOLL
#include <sys/epoll.h>
#else
#include <poll.h>
#endif
#if FRISBEEI_THREADS
#include <pthread.h>
#include <signal.h>
#endif
#if !defined(AI_NUMERICHOST) || (defined(__GLIBC__) && !defined(__USE_MISC))
#error "frisbee.h: a system header came first and froze strict C. Put FRISBEE_IMPLEMENTATION in a file of its own, or add -D_DEFAULT_SOURCE"
#endif
#ifdef MSG_NOSIGNAL
#define FRISBEEI_NO_SIGNAL MSG_NOSIGNAL
#else
#define FRISBEEI_NO_SIGNAL 0 // SO_NOSIGPIPE instead, set at each socket
#endif

#ifndef FRISBEE_SYS_SOCKET
#define FRISBEE_SYS_SOCKET socket
#endif
#ifndef FRISBEE_SYS_BIND
#define FRISBEE_SYS_BIND bind
#endif
#ifndef FRISBEE_SYS_LISTEN
#define FRISBEE_SYS_LISTEN listen
#endif
#ifndef FRISBEE_SYS_ACCEPT
#define FRISBEE_SYS_ACCEPT accept
#endif
#ifndef FRISBEE_SYS_CONNECT
#define FRISBEE_SYS_CONNECT connect
#endif
#ifndef FRISBEE_SYS_RECV
#define FRISBEE_SYS_RECV recv
#endif
#ifndef FRISBEE_SYS_RECVMSG
#define FRISBEE_SYS_RECVMSG recvmsg
#endif
#ifndef FRISBEE_SYS_SENDMSG
#define FRISBEE_SYS_SENDMSG sendmsg
#endif
#ifndef FRISBEE_SYS_SHUTDOWN
#define FRISBEE_SYS_SHUTDOWN shutdown
#endif
#ifndef FRISBEE_SYS_CLOSE
#define FRISBEE_SYS_CLOSE close
#endif
#ifndef FRISBEE_SYS_GETSOCKOPT
#define FRISBEE_SYS_GETSOCKOPT getsockopt
#endif
#ifndef FRISBEE_SYS_SETSOCKOPT
#define FRISBEE_SYS_SETSOCKOPT setsockopt
#endif
#ifndef FRISBEE_SYS_GETSOCKNAME
#define FRISBEE_SYS_GETSOCKNAME getsockname
#endif
#ifndef FRISBEE_SYS_GETPEERNAME
#define FRISBEE_SYS_GETPEERNAME getpeername
#endif
#ifndef FRISBEE_SYS_GETADDRINFO
#define FRISBEE_SYS_GETADDRINFO getaddrinfo
#endif
#ifndef FRISBEE_SYS_FREEADDRINFO
#define FRISBEE_SYS_FREEADDRINFO freeaddrinfo
#endif
#ifndef FRISBEE_SYS_GETNAMEINFO
#define FRISBEE_SYS_GETNAMEINFO getnameinfo
#endif
#ifndef FRISBEE_SYS_FCNTL
#define FRISBEE_SYS_FCNTL fcntl
#endif
#ifndef FRISBEE_SYS_PIPE
#define FRISBEE_SYS_PIPE pipe
#endif
#ifndef FRISBEE_SYS_READ
#define FRISBEE_SYS_READ read
#endif
#ifndef FRISBEE_SYS_WRITE
#define FRISBEE_SYS_WRITE write
#endif
#ifndef FRISBEE_SYS_STAT
#define FRISBEE_SYS_STAT lstat
#endif
#ifndef FRISBEE_SYS_UNLINK
#define FRISBEE_SYS_UNLINK unlink
#endif
#ifndef FRISBEE_SYS_GETPID
#define FRISBEE_SYS_GETPID getpid
#endif
#if FRISBEE_POLLER == FRISBEE_POLLER_EPOLL
#ifndef FRISBEE_SYS_EPOLL_CREATE
#define FRISBEE_SYS_EPOLL_CREATE epoll_create1
#endif
#ifndef FRISBEE_SYS_EPOLL_CTL
#define FRISBEE_SYS_EPOLL_CTL epoll_ctl
#endif
#ifndef FRISBEE_SYS_EPOLL_WAIT
#define FRISBEE_SYS_EPOLL_WAIT epoll_wait
#endif
#else
#ifndef FRISBEE_SYS_POLL
#define FRISBEE_SYS_POLL poll
#endif
#endif
#if FRISBEEI_THREADS && !defined(FRISBEE_SYS_THREAD)
#define FRISBEE_SYS_THREAD pthread_create
#endif
#ifndef FRISBEE_SYS_CLOCK
#define FRISBEE_SYS_CLOCK frisbeei_system_clock // uint64_t microseconds, monotonic
#define FRISBEEI_OWN_CLOCK
#endif
#endif // FRISBEEI_SOCKETS

// A number that differs from pool to pool and run to run: handles of one pool should not fit another, reconnects should not march in step.
#ifndef FRISBEE_SYS_SEED
#define FRISBEE_SYS_SEED frisbeei_system_seed // uint64_t (frisbee_pool *)
#define FRISBEEI_OWN_SEED
#endif

// Ordered access to what threads share: a pointer and two counters in frisbee_remote.
#if defined(__GNUC__) || defined(__clang__)
#define FRISBEEI_LOAD(at) __atomic_load_n((at), __ATOMIC_ACQUIRE)
#define FRISBEEI_EXCHANGE(at, value) __atomic_exchange_n((at), (value), __ATOMIC_ACQ_REL)
#define FRISBEEI_REPLACE(at, expected, value) __atomic_compare_exchange_n((at), (expected), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
#define FRISBEEI_ADD(at, value) __atomic_add_fetch((at), (value), __ATOMIC_ACQ_REL)
#else // one thread, no interrupts that post
#define FRISBEEI_LOAD(at) (*(at))
#define FRISBEEI_EXCHANGE(at, value) frisbeei_exchange((void **)(at), (value))
#define FRISBEEI_REPLACE(at, expected, value) (*(at) == *(expected) ? (*(at) = (value), 1) : (*(expected) = *(at), 0))
#define FRISBEEI_ADD(at, value) (*(at) += (value))
#define FRISBEEI_PLAIN_EXCHANGE
#endif
#if defined(__GNUC__) || defined(__clang__)
#define FRISBEEI_LIKELY(x) __builtin_expect(!!(x), 1)
#define FRISBEEI_COLD __attribute__((noinline, cold))
#else
#define FRISBEEI_LIKELY(x) (x)
#define FRISBEEI_COLD
#endif

// >>types

enum {
    FRISBEEI_PING = 0,
    FRISBEEI_PONG = 1,
    FRISBEEI_STREAM = 2,
    FRISBEEI_FIRST_OPERATION = 10,    // below: Frisbee's own
    FRISBEEI_LAST_OPERATION = 0xFEFF, // above: this library's own
    FRISBEEI_FENCE = 0xFF00,
    FRISBEEI_NOTHING = 0xFF01,
    FRISBEEI_HELLO = 0xFF02,
    FRISBEEI_CREDIT = 0xFF03,
    FRISBEEI_SUBSCRIBE = 0xFF10,
    FRISBEEI_SUBSCRIBED = 0xFF11,
    FRISBEEI_UNSUBSCRIBE = 0xFF12,
    FRISBEEI_UNSUBSCRIBED = 0xFF13,
    FRISBEEI_PUBLISH = 0xFF14,
    FRISBEEI_MESSAGE = 0xFF15,
    FRISBEEI_DROPPED = 0xFF16,
    FRISBEEI_PUBLISHED = 0xFF17,
    FRISBEEI_SCHEMA = 0xFF20,
    FRISBEEI_SCHEMA_IS = 0xFF21,
    FRISBEEI_DEPTH = 64,        // of messages in messages
    FRISBEEI_NUMBER_MAX = 11,   // bytes of the longest number with its kind
    FRISBEEI_ARENA_FIRST = 4096,
    FRISBEEI_ARENA_LARGEST = 65536,
    FRISBEEI_ERROR_MAX = 1024,  // bytes of the text of a typed call's error
    FRISBEEI_RPC_GUESS = 64,    // room for a message that was not measured
    FRISBEEI_LAST_CONNECTOR_ID = 57343, // ids of calls: 1 to this by the connector, the rest by the acceptor
    FRISBEEI_LAST_CONNECTOR_STREAM = 32767, // ids of streams, likewise
    FRISBEEI_EARLY_CREDIT = 16384,      // of a stream, before the peer has said hello
    FRISBEEI_SHARE = 8192,              // messages from here on are shared by the queues of their subscribers, below they are copied
    FRISBEEI_PUBLISH_FLUSH = 131072,    // a subscriber's queue is written when it holds more, before the turn ends;
    FRISBEEI_BATCH_FLUSH = 2048,        // or more than this, when it got a batch
    FRISBEEI_MESSAGE_COST = 62,         // what a waiting message counts beside its payload with topic, flags and a length: 64 in all
    FRISBEEI_RETAINED_COST = 254,       // and a retained one, which keeps the tokens of its topic:
    FRISBEEI_TOKEN_COST = 128,
    FRISBEEI_BATCH = 1024,              // messages that are passed on together
    FRISBEEI_EFFORT = 1000000,          // copies made in a turn before other connections have theirs; a token looked at counts as
    FRISBEEI_LOOK = 4,                  // so many
    FRISBEEI_GROUP_TRIES = 16,          // members of a group that are asked for room
    FRISBEEI_LARGE = 16384,             // payloads from here on are written from where they are
    FRISBEEI_SPANS = 64,                // pieces in one system call
    FRISBEEI_PAGE = 64,                 // connections in a page of the slab
    FRISBEEI_SMALL = 1024,              // bytes in a small input buffer
    FRISBEEI_SPARE_CHUNKS = 16,         // large pieces of queue kept for the next turn; those that a turn did not use go, but for
    FRISBEEI_LAST_CHUNKS = 2,
    FRISBEEI_SPARE_SMALLS = 8,          // small input buffers kept for the next partial packet
    FRISBEEI_MANY_CHUNKS = 2,           // so many large pieces are in use: other queues begin with a small one
    FRISBEEI_SMALL_CHUNK = 2048,
    FRISBEEI_FIXED_BORROWED = 4,        // borrowed pieces a connection may queue in a fixed block
    FRISBEEI_FIXED_HANDLERS = 32,       // slots of frisbee_on's table in a fixed block
    FRISBEEI_CONTROL_ROOM = 32,         // bytes above queue_limit for PING, PONG and FENCE
    FRISBEEI_ROUNDS = 16,               // reads of one transport in a turn
    FRISBEEI_ADDRESSES = 8,             // of one name
    FRISBEEI_LINGER_MS = 2000,          // after our end, for the peer's
    FRISBEEI_WAIT_WIRE_MS = 1000,
    FRISBEEI_SPARE_IDS = 16,            // of closed streams, for a fixed block that has no memory for more
    FRISBEEI_FENCE_MS = 250,            // from a PONG to the PING that confirms closed streams
    FRISBEEI_LONGEST_QUEUE = 1 << 30,   // a queue holds at most three times its limit, in 32 bits
    FRISBEEI_LONGEST_MS = 1 << 30,      // ticks of 32 bits tell the order of times only within half their range
    FRISBEEI_ACCEPTS = 64,              // of one listener in a turn
    FRISBEEI_ACCEPT_PAUSE_MS = 100,     // after accept ran out of descriptors
    FRISBEEI_HANGUP = 4                 // readiness beside FRISBEE_READ and FRISBEE_WRITE: error or both directions ended
};

typedef enum frisbeei_state {
    FRISBEEI_FREE = 0,
    FRISBEEI_WAITING,    // between sessions, until the deadline
    FRISBEEI_RESOLVING,  // a name is being looked up
    FRISBEEI_CONNECTING, // the socket is on its way
    FRISBEEI_OPENING,    // the transport's handshake
    FRISBEEI_SNIFFING,   // open, but the wire is not known yet
    FRISBEEI_OPEN,
    FRISBEEI_DRAINING,   // closing: the queue still leaves
    FRISBEEI_LINGERING,  // closing: our end is sent, the peer's is awaited
    FRISBEEI_CLOSED      // on_close is due
} frisbeei_state;

enum { // flags of a connection
    FRISBEEI_OPENED = 1 << 0,         // on_open was called in this session
    FRISBEEI_EVER_OPENED = 1 << 1,    // in any session
    FRISBEEI_ACCEPTED = 1 << 2,       // role
    FRISBEEI_NO_RETRY = 1 << 3,       // closed by the user, hijacked, or the pool ends
    FRISBEEI_IS_DIRTY = 1 << 4,       // in the list of queues to flush
    FRISBEEI_HAS_WORK = 1 << 5,       // in the list of work
    FRISBEEI_BLOCKED = 1 << 6,        // the transport took less than offered
    FRISBEEI_WANT_WRITABLE = 1 << 7,  // tell when the queue is low again
    FRISBEEI_PAUSED = 1 << 8,         // by the user
    FRISBEEI_REPLIES_FULL = 1 << 9,   // not read: its replies wait
    FRISBEEI_ENDED = 1 << 10,         // the peer's last byte was read
    FRISBEEI_END_TOLD = 1 << 11,      // and on_end is done
    FRISBEEI_FINISH = 1 << 12,        // half-close when the queue is empty
    FRISBEEI_FINISHED = 1 << 13,      // half-closed
    FRISBEEI_PING_QUEUED = 1 << 14,
    FRISBEEI_PONG_QUEUED = 1 << 15,
    FRISBEEI_FENCED = 1 << 16,        // the peer's fence was read: what follows is raw
    FRISBEEI_PARTIAL = 1 << 17,       // a packet has begun: packet_since counts
    FRISBEEI_POLLED = 1 << 18,        // its transport is tried each turn
    FRISBEEI_UNWATCHED = 1 << 19,     // hung up while paused: out of the poller until resumed
    FRISBEEI_HANDED_OVER = 1 << 20,   // hijacked: its socket is no longer ours
    FRISBEEI_STASHED = 1 << 21,       // `in` may hold whole packets, not yet handed out
    FRISBEEI_TRANSPORT_BUSY = 1 << 22, // the transport holds bytes of its own back
    FRISBEEI_STALLED = 1 << 23,        // output waits for the transport: write_since counts
    FRISBEEI_BROKEN = 1 << 24,         // writing failed: what the peer sent before is still read, then it closes
    FRISBEEI_PUBLISH_FULL = 1 << 25,   // not read: a subscription that blocks is full
    FRISBEEI_UNREAD = FRISBEEI_PAUSED | FRISBEEI_REPLIES_FULL | FRISBEEI_PUBLISH_FULL // any of the reasons not to read
};

enum { // work that waits for a safe point of the turn
    FRISBEEI_WORK_START = 1,    // begin a session
    FRISBEEI_WORK_INPUT = 2,    // hand out what is stashed, or try the transport
    FRISBEEI_WORK_SWEEP = 4,    // calls were cancelled
    FRISBEEI_WORK_HAND = 8,     // a hijack or upgrade may be able to go on
    FRISBEEI_WORK_WRITABLE = 16,
    FRISBEEI_WORK_CLOSE = 32,
    FRISBEEI_WORK_STREAMS = 64 // some stream has something to tell or to send
};

// Output in order. Own bytes lie behind the struct; a borrowed piece points to the user's and has its packet's header with it.
typedef struct frisbeei_chunk {
    struct frisbeei_chunk *next;
    uint8_t *data;
    size_t start, end, room;
    size_t replies, replies_end; // bytes of replies in it, and where the last one ends
    frisbee_release release;     // of a borrowed piece; the last of its packet has it
    void *user;
    struct frisbeei_message *message; // that it borrows from; a reference
    uint8_t header[FRISBEE_WIRE_HEADER_MAX];
    uint8_t header_at, header_size;
    bool borrowed;
} frisbeei_chunk;

typedef enum frisbeei_call_state { FRISBEEI_CALL_FREE = 0, FRISBEEI_CALL_LIVE, FRISBEEI_CALL_CANCELLED, FRISBEEI_CALL_LOST } frisbeei_call_state;

typedef struct frisbeei_call {
    frisbee_on_reply on_reply;
    void *user;
    uint64_t offset; // where its frame begins in the stream of all that the connection ever sent
    uint32_t due;    // tick, if timed
    uint32_t serial; // 24 bits, part of its handle
    uint16_t id, operation;
    uint8_t state;
    bool timed;
} frisbeei_call;

// Calls of a connection: slot `id & mask`. Ids go up and skip occupied slots; the table doubles when half full.
typedef struct frisbeei_calls {
    frisbeei_call *slots;
    size_t bytes;
    uint32_t mask, live, lost;
    uint32_t due; // the earliest, if timed
    uint16_t next;
    bool timed;
} frisbeei_calls;

// Replies that were promised: an open hash of operation << 16 | id, as a multiset.
typedef struct frisbeei_deferred {
    size_t bytes;
    uint32_t mask, count;
    uint64_t *keys; // 0: empty, else key + 1
} frisbeei_deferred;

// Pointers by a number of at most 32 bits: an open hash, by a multiplier of the pool's own.
typedef struct frisbeei_map_slot {
    void *value; // NULL: empty
    uint32_t key;
} frisbeei_map_slot;

typedef struct frisbeei_map {
    frisbeei_map_slot *slots;
    uint32_t mask, count;
} frisbeei_map;

typedef enum frisbeei_stream_state {
    FRISBEEI_STREAM_OPEN = 0,
    FRISBEEI_STREAM_ENDED, // on_close is due
    FRISBEEI_STREAM_SHUT   // told; the queue had no room for the close yet
} frisbeei_stream_state;

enum { // what a stream has to do
    FRISBEEI_TODO_WRITABLE = 1,
    FRISBEEI_TODO_KEPT = 2, // hand out what was kept
    FRISBEEI_TODO_TELL = 4  // on_close
};

typedef struct frisbeei_stream {
    struct frisbeei_conn *conn;
    const frisbee_stream_events *events;
    void *user;
    struct frisbeei_stream *next; // with something to do
    int64_t credit;               // bytes that may be sent
    uint8_t *kept;                // messages while paused: u32 length in the machine's order, bytes
    uint32_t kept_at, kept_size, kept_room, kept_bytes; // kept_bytes: of messages alone
    uint32_t consumed, serial; // bytes not given back as credit yet; 24 bits, part of its handle
    uint32_t key;              // in the map: its id, or, when the peer may use that again, its serial and a bit above
    uint16_t id;
    uint8_t state, todo;
    int8_t reason;
    bool paused, known, own, wants; // known: the peer has seen it; own: opened here; wants: on_writable
    bool ended;                // the peer has closed it
    bool owes_close, owes_credit; // packets that found no room in the queue
} frisbeei_stream;

// Ids of streams that were closed here and not confirmed by the peer, a bit each.
typedef struct frisbeei_dead {
    uint8_t *pages[64]; // of 1,024 ids
    uint32_t count;
} frisbeei_dead;

// A message to several: payload as on the wire (flags, length of topic, topic, data) behind the struct.
typedef struct frisbeei_message {
    uint32_t references, length;
    uint64_t publisher, hash; // handle of the connection, 0: this program; hash of the topic
} frisbeei_message;

typedef struct frisbeei_entry { // a message that waits for a subscription
    struct frisbeei_entry *next, *before;
    frisbeei_message *message;
    uint64_t dropped; // how many had been dropped before it, but for those that aged
} frisbeei_entry;

struct frisbeei_node;

// The subscriptions of one topic, or of one group on it.
typedef struct frisbeei_list {
    struct frisbeei_list *next, *chain; // of the topic; of those of its group that a message matched
    struct frisbeei_node *node, *group; // group NULL: each gets every message
    struct frisbeei_sub **subs;
    uint32_t count, room;
} frisbeei_list;

// A token of a topic below the tokens before it; or a group's name, below broker->groups. The token's bytes lie behind the struct.
typedef struct frisbeei_node {
    struct frisbeei_node *parent, *bucket;       // bucket: the next one in the hash
    struct frisbeei_node *first, *next, *before; // children by name; siblings
    struct frisbeei_node *any, *rest;            // the children '*' and '>'
    frisbeei_list *lists;
    frisbeei_message *retained;
    uint64_t hash;
    uint32_t retained_below; // values here and below
    uint32_t length;
    // of a group: its lists, and of those that the message with this stamp matched the first, their members, and whose turn it is
    frisbeei_list *chain;
    uint64_t stamp;
    uint32_t references, total, turn;
} frisbeei_node;

// A subscription: of a peer or this program at our broker, or of ours at a peer's. Topic and group lie behind the struct, each with a 0.
typedef struct frisbeei_sub {
    uint64_t id, peer; // the handle; its connection's, or FRISBEE_LOCAL's
    struct frisbeei_conn *conn;
    frisbeei_list *list; // at our broker; NULL: at the peer's
    frisbeei_entry *first, *last;
    struct frisbeei_sub *next, *before; // of its connection's that wait; of those that the broker's program is to be told the end of
    frisbeei_entry **latest;   // FRISBEE_SLOW_LATEST: the waiting ones by topic, an open hash
    uint64_t delivered, dropped, told, aged; // of dropped: what the subscriber knows; those that had waited, and so were older than what waits
    frisbee_on_message on_message;
    void (*on_result)(frisbee_pool *, frisbee_sub, frisbee_result, void *);
    void *user;
    size_t waiting_bytes;
    uint32_t waiting, limit, slot, latest_mask;
    uint16_t number; // its id on the wire
    uint8_t topic_length, group_length, slow;
    bool waits, retained, asked, ending; // waits: in the list; asked: in this session; ending: UNSUBSCRIBED is awaited
} frisbeei_sub;

typedef struct frisbeei_sub_slot {
    frisbeei_sub *sub;
    uint32_t next; // free: the next free one, + 1
} frisbeei_sub_slot;

typedef struct frisbeei_waiting { // subscriptions with waiting messages, in turn
    frisbeei_sub *first, *last;
    size_t bytes;
} frisbeei_waiting;

// A message on its way to its subscribers.
typedef struct frisbeei_publication {
    const uint8_t *payload; // as on the wire: flags, length of topic, topic, data
    size_t length;
    uint64_t publisher;       // handle of its connection; 0: this program
    frisbeei_message *shared; // the same, once somebody has to keep it
} frisbeei_publication;

typedef struct frisbeei_broker_state {
    frisbee_broker desc;
    frisbeei_node topics, groups;
    frisbeei_node **buckets;
    uint32_t bucket_count, node_count;
    uint32_t count, blocking, list_count; // subscriptions; of those, how many block; lists of them
    frisbeei_list **matched;  // by the message being published
    uint32_t matched_count, matched_room;
    uint64_t stamp;
    size_t retained_bytes;
    frisbeei_publication *batch; // messages of one publisher on one topic that came together
    uint32_t batch_count, batch_most;
    uint64_t batch_stamp; // of the match that was made for the first of them
    frisbeei_waiting local;
    frisbeei_sub *ended; // by frisbee_unsubscribe: on_unsubscribe is due
    struct frisbeei_conn *held, *held_last; // publishers that wait
    bool room, refused, resuming;           // room: one that blocks has room again; refused: this program was answered AGAIN
} frisbeei_broker_state;

#if FRISBEEI_RPC
typedef struct frisbeei_bound { // what a served operation's handler gets as user
    const struct frisbeei_served *served;
    const frisbee_method *method;
} frisbeei_bound;

typedef struct frisbeei_served {
    struct frisbeei_served *next;
    const frisbee_service *service;
    const void *functions;
    const frisbee_rpc_events *events;
    void *user;
    size_t bytes;
    frisbeei_bound *bound; // behind the struct, one for each method
} frisbeei_served;

// A call that this side made, or a streaming one that it serves.
typedef struct frisbeei_rpc {
    const frisbee_method *method;   // NULL: a server was not told yet
    const frisbeei_served *served;  // NULL likewise, and on the calling side
    frisbee_conn conn;
    frisbee_stream stream;
    void (*done)(void);
    void *user; // of done; of a server: frisbee_rpc_set_state's
    void (*on_writable)(frisbee_pool *, const frisbee_rpc *, void *);
    struct frisbeei_wait *wait;  // of the frisbee_rpc_receive that waits
    struct frisbeei_rpc *next, *before; // of a connection's that have a deadline; of the pool's that have ended and are yet to be received
    uint8_t *error;              // that is yet to be sent; encoded
    uint32_t error_length, due;  // due: tick, if timed
    int8_t cause;                // why this side closed the stream before the end; OK: it did not
    bool server, timed, pulled;  // pulled: by frisbee_rpc_receive
    bool asked, heard_end;       // of a server: it has its request, the client's end
    bool ended, owes_end;        // nothing more is sent; but the end, which found no room
    bool told, closed;           // done has its outcome; the stream is gone
} frisbeei_rpc;
#endif

typedef enum frisbeei_peer { FRISBEEI_PEER_UNKNOWN = 0, FRISBEEI_PEER_STOCK, FRISBEEI_PEER_FRISBEE } frisbeei_peer;

// What a connection needs for streams and subscriptions.
typedef struct frisbeei_patterns {
    frisbeei_map streams, mine, theirs; // by id: streams; our subscriptions there; the peer's here
    frisbeei_stream *todo, *todo_last;
    frisbeei_dead *dead, *dying; // dying: a stock peer confirms these, all at once, by the PONG to PING `fence`; dead: the next ones
    uint64_t pings, pongs, fence; // of this session
    uint32_t fence_since; // tick of the first PONG behind the closes
    uint8_t fence_stage;
    uint32_t live, kept, peer_window; // streams not yet told their end; those with kept messages
    uint16_t spare_ids[FRISBEEI_SPARE_IDS]; // in a fixed block without memory for `dead`: the last ones; 0: none
    uint32_t spare_next;
    uint16_t next_stream, next_sub;
    uint8_t peer;
    bool begun, owing;         // streams are possible; one owes a packet
    bool fence_wanted, asking; // a PING is to follow a close; subscriptions wait for room to be asked for
    frisbeei_waiting waiting;
    struct frisbeei_conn *next_held;
    struct frisbeei_rpc *timed; // streaming calls of this side that have a deadline
    uint64_t published, delivered, lost, peer_lost;
} frisbeei_patterns;

// A frisbee_conn_desc with its defaults filled in, shared by the connections that were made from it.
typedef struct frisbeei_profile {
    frisbee_conn_desc desc;
    const frisbee_route *last; // the route that was taken last
    uint32_t references;
} frisbeei_profile;

#if FRISBEEI_SOCKETS
typedef struct frisbeei_address {
    socklen_t length;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    } to;
} frisbeei_address;
#endif

typedef enum frisbeei_hand { FRISBEEI_HAND_NONE = 0, FRISBEEI_HAND_OVER, FRISBEEI_HAND_UPGRADE } frisbeei_hand;

// What few connections need: where to connect to, a protocol, a hijack under way.
typedef struct frisbeei_extra {
    char *host; // of connect: host and port as text; NULL: accepted, adopted, attached
    size_t host_bytes;
    const char *port;
#if FRISBEEI_SOCKETS
    frisbeei_address *addresses;
#endif
    uint32_t address_count, address_next, retries;
    uint64_t token; // of the look-up
    const frisbee_protocol *protocol; // NULL: packets
    void *state;
    size_t need; // bytes that the protocol waits for
    const frisbee_protocol *upgrade_to;
    frisbee_on_hijacked on_hijacked;
    void *hijack_user;
    int64_t hand_deadline;
    uint8_t hand, how;
    bool started, raw;
} frisbeei_extra;

typedef struct frisbeei_watch {
    int fd;                // -1: none
    unsigned slot : 28;    // the poll backend's place + 1
    unsigned interest : 4; // what the poller was told
} frisbeei_watch;

// A connection. Hot fields first; an idle one is this and nothing else.
typedef struct frisbeei_conn {
    uint64_t id; // the handle: generation << 32 | index + 1; 0: free
    frisbeei_profile *profile;
    frisbeei_calls *calls;
    frisbeei_chunk *out_head, *out_tail;
    uint32_t queued, replies; // bytes that wait; of those, replies, at most a chunk's worth too many while a chunk of mixed packets leaves
    uint64_t written;         // bytes that the transport ever took
    void *user;
    uint8_t *in; // bytes that were read and not yet handed out
    uint32_t in_size, in_room;
    uint32_t offered; // of `queued`, bytes that a transport refused and will see again unchanged
    uint32_t flags, session;
    uint32_t heard, used; // ticks of the last byte from the peer, of the last packet either way
    uint8_t state, wire, header, work;
    uint8_t pings; // 1: a PING awaits its PONG
    int8_t reason; // why it closed
    int system_error;
    frisbeei_watch watch;
    uint32_t next_dirty, next_work, timer_slot; // index + 1
    uint64_t packets_in, packets_out, bytes_in;
    uint32_t dropped, late_replies, sessions, rtt;
    uint32_t packet_since, write_since, pinged; // ticks
    uint32_t ping_us;                           // clock at the last PING, for the round trip
    int64_t timer_at, deadline;                 // of the state
    frisbee_transport *io; // NULL: the socket itself
    frisbeei_extra *extra;
    frisbeei_deferred *deferred;
    frisbeei_patterns *patterns;
} frisbeei_conn;

typedef struct frisbeei_listener {
    uint64_t id;
    frisbeei_profile *profile;
    frisbeei_watch watch;
    uint32_t conns;
    bool full, tired; // not accepting: at max_conns, out of descriptors
#if FRISBEEI_SOCKETS
    frisbeei_address address;
#endif
} frisbeei_listener;

typedef struct frisbeei_on { // pool-wide handlers, an open hash
    uint32_t key;            // operation + 1; 0: empty
    frisbee_handler handler;
    void *user;
} frisbeei_on;

struct frisbee_remote {
    frisbee_task *tasks; // newest first; frisbeei_gone when the pool is destroyed
    int references;
    int stop;
    int pipe[2];
    frisbee_pool *pool; // touched by the pool's thread only
    bool fixed;
};

typedef struct frisbeei_event {
    uint64_t token;
    unsigned ready;
} frisbeei_event;

typedef struct frisbeei_hole { // in a fixed block, beyond what its limits need: free bytes, by address
    size_t size;
    struct frisbeei_hole *next;
} frisbeei_hole;

typedef struct frisbeei_free_block { // in a fixed block: exact sizes are handed out again
    struct frisbeei_free_block *next;
    size_t size;
} frisbeei_free_block;

struct frisbee_pool {
    // the packet being handed out
    frisbeei_conn *current;
    const frisbee_packet *packet; // inside a handler
    bool answered;                // and it was replied to, or deferred
    bool stop;                    // hand out no more in this connection's turn
    bool depth, ending, fixed, stop_run, spent, abandoned;
    bool fresh_first, input_later; // in this phase of the turn stashed input waits, so that a budget is shared with those who come fresh
    uint8_t shut; // 1 shutting down, 2 done
    uint32_t budget_packets, effort; // effort: of this turn, for publish and subscribe
    int64_t now, turn_now, budget_end; // us since the pool began, plus one second
    uint32_t tick, turn_tick;          // the same in ms: now rounded up, turn_now rounded down
    uint64_t clock_last, random;
    frisbeei_conn **pages;
    uint32_t page_count, page_room, free_conn, conn_count, polled_count, polled_next;
    uint32_t dirty_head, dirty_tail, work_head, work_tail; // index + 1
    uint8_t *read_buffer;
    uint32_t *timers; // a heap of index + 1 by timer_at
    uint32_t timer_count, timer_room;
    uint32_t serial, generation;
    frisbeei_on *handlers;
    uint32_t handler_mask, handler_count;
    frisbeei_listener **listeners;
    uint32_t listener_count, listener_room;
    int64_t accept_at; // when tired listeners wake; 0: none is tired
    int64_t shut_at;
    frisbeei_chunk *spare_chunks, *released, *released_tail;
    uint8_t *spare_smalls;
    uint32_t spare_chunk_count, spare_chunk_low, spare_small_count, large_chunks; // low: the least there were in this turn
    frisbee_remote *remote;
    uint8_t *wait_data;
    uint32_t wait_room;
#if FRISBEEI_RPC
    frisbee_arena arena, lent; // of typed calls; of frisbee_pool_arena
    frisbeei_served *services;
    frisbeei_rpc *rpc_ended;   // by frisbee_rpc_receive to be told
    uint8_t *request;          // of frisbee_rpc_call_wait
    size_t request_room;
    bool serves_streams;
#endif
    int system_error;
    size_t memory, chunk_bytes;
    uint8_t *block_next, *block_end;
    frisbeei_free_block *block_free;
    frisbeei_hole *holes;
    uint64_t hash_key[2];
    frisbeei_broker_state *broker;
    frisbeei_sub_slot *subs;
    uint32_t sub_count, sub_room, sub_free; // slots in use, ever and now; the first free one + 1
    frisbee_pool_desc desc;
    frisbee_stats total; // of connections that are gone
#if FRISBEEI_SOCKETS
    long pid;
    int event_count, served; // served: events that the budget allowed in the last turn; 0: all
    frisbeei_watch wake;
#if FRISBEE_POLLER == FRISBEE_POLLER_EPOLL
    int poller;
    struct epoll_event events[FRISBEE_EVENTS];
#else
    struct pollfd *fds;
    uint64_t *tokens;
    uint32_t fd_count, fd_room, fd_next;
    frisbeei_event events[FRISBEE_EVENTS];
#endif
#endif
};

#define FRISBEEI_NO_TIME INT64_MAX

static void frisbeei_fail(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result reason, int system_error);
static void frisbeei_interest(frisbee_pool *pool, frisbeei_conn *conn);
static void frisbeei_input(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *data, size_t size);
static void frisbeei_try(frisbee_pool *pool, frisbeei_conn *conn, unsigned ready);
static void frisbeei_pool_free(frisbee_pool *pool);
static void frisbeei_listener_free(frisbee_pool *pool, uint32_t place);
static void frisbeei_begin_close(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result reason);
static void frisbeei_resume(frisbee_pool *pool, frisbeei_conn *conn);
static void frisbeei_message_drop(frisbee_pool *pool, frisbeei_message *message);
static bool frisbeei_pump(frisbee_pool *pool, frisbeei_conn *conn);
static void frisbeei_streams_room(frisbee_pool *pool, frisbeei_conn *conn);
static bool frisbeei_subs_begin(frisbee_pool *pool, frisbeei_conn *conn);
static void frisbeei_ping(frisbee_pool *pool, frisbeei_conn *conn);
static void frisbeei_ended_done(frisbee_pool *pool, frisbeei_conn *conn);
static void frisbeei_budget_count(frisbee_pool *pool);
static void frisbeei_rpc_free(frisbee_pool *pool);
static void frisbeei_rpc_expire(frisbee_pool *pool, frisbeei_conn *conn, int64_t *next);
static void frisbeei_schema_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet);
#if FRISBEEI_RPC
static void frisbeei_rpc_unknown(frisbee_pool *pool, const frisbee_packet *packet, void *user);
#endif

// >>log: constant lines for the callback; levels above FRISBEE_LOG_LEVEL are compiled out

static void frisbeei_log_line(frisbee_pool *pool, int level, const char *text, const char *detail) {
    char line[128];
    size_t at = 0;
    if (!pool->desc.log) return;
    while (*text && at < sizeof line - 1) line[at++] = *text++;
    while (*detail && at < sizeof line - 1) line[at++] = *detail++;
    line[at] = 0;
    pool->desc.log(pool->desc.log_context, level, line);
}

#define FRISBEEI_LOG(pool, level, text, detail)                                                             \
    do {                                                                                                    \
        if ((level) <= FRISBEE_LOG_LEVEL) frisbeei_log_line((pool), (level), (text), (detail));             \
    } while (0)

FRISBEE_API const char *frisbee_result_string(frisbee_result result) {
    static const char *const names[] = {"FRISBEE_OK",        "FRISBEE_AGAIN",     "FRISBEE_INVALID",   "FRISBEE_NO_MEMORY", "FRISBEE_CLOSED",
                                        "FRISBEE_NOT_SENT",  "FRISBEE_UNKNOWN",   "FRISBEE_TIMED_OUT", "FRISBEE_CANCELLED", "FRISBEE_TOO_LARGE",
                                        "FRISBEE_MALFORMED", "FRISBEE_UNHANDLED", "FRISBEE_REFUSED",   "FRISBEE_BUSY",      "FRISBEE_EXHAUSTED",
                                        "FRISBEE_HIJACKED",  "FRISBEE_DESTROYED", "FRISBEE_SYSTEM",    "FRISBEE_UNSUPPORTED", "FRISBEE_FAILED"};
    const int at = -(int)result;
    return at >= 0 && at < (int)(sizeof names / sizeof names[0]) ? names[at] : "not a frisbee_result";
}

// >>memory: every byte comes through here, is counted, and is refused above max_memory. In a fixed block sizes come from a small set (a
// connection's buffers are always of its limits' size), so that exact-size free lists never fragment.

static void *frisbeei_block_take(frisbee_pool *pool, size_t size) {
    frisbeei_free_block **at = &pool->block_free, *found;
    for (; *at; at = &(*at)->next)
        if ((*at)->size == size) {
            found = *at;
            *at = found->next;
            return found;
        }
    if ((size_t)(pool->block_end - pool->block_next) < size) return NULL;
    pool->block_next += size;
    return pool->block_next - size;
}

static size_t frisbeei_rounded(size_t size) {
    const size_t rounded = (size + 15u) & ~(size_t)15u;
    return rounded < sizeof(frisbeei_free_block) ? sizeof(frisbeei_free_block) : rounded;
}

static void *frisbeei_allocate(frisbee_pool *pool, size_t size) {
    void *block;
    if (size > pool->desc.max_memory || pool->memory > pool->desc.max_memory - size) return NULL;
    if (pool->fixed) block = frisbeei_block_take(pool, frisbeei_rounded(size));
    else if (pool->desc.allocator.allocate) block = pool->desc.allocator.allocate(pool->desc.allocator.context, size);
    else block = FRISBEE_MALLOC(size);
    if (block) pool->memory += size;
    return block;
}

static void frisbeei_give_back(frisbee_pool *pool, void *block, size_t size) {
    if (!block) return;
    pool->memory -= size;
    if (pool->fixed) {
        frisbeei_free_block *entry = (frisbeei_free_block *)block;
        entry->size = frisbeei_rounded(size);
        entry->next = pool->block_free;
        pool->block_free = entry;
    } else if (pool->desc.allocator.allocate) pool->desc.allocator.release(pool->desc.allocator.context, block, size);
    else FRISBEE_FREE(block);
}

static void *frisbeei_resize(frisbee_pool *pool, void *block, size_t old_size, size_t size) {
    void *moved;
    if (!block || pool->fixed) {
        moved = frisbeei_allocate(pool, size);
        if (moved && block) {
            memcpy(moved, block, old_size < size ? old_size : size);
            frisbeei_give_back(pool, block, old_size);
        }
        return moved;
    }
    if (size > old_size && (size > pool->desc.max_memory || pool->memory - old_size > pool->desc.max_memory - size)) return NULL;
    if (pool->desc.allocator.allocate) moved = pool->desc.allocator.resize(pool->desc.allocator.context, block, old_size, size);
    else moved = FRISBEE_REALLOC(block, size);
    if (moved) pool->memory = pool->memory - old_size + size;
    return moved;
}

// Room for one more in an array that grows by half. In a fixed block arrays are made in their final size.
static bool frisbeei_array_grow(frisbee_pool *pool, void **array, uint32_t *room, uint32_t count, size_t element, uint32_t fixed_room) {
    uint32_t wanted = *room < 16 ? 16 : *room + *room / 4;
    void *moved;
    if (count < *room) return true;
    if (pool->fixed) {
        if (*room) return false;
        wanted = fixed_room;
    }
    moved = frisbeei_resize(pool, *array, *room * element, wanted * element);
    if (!moved) return false;
    *array = moved;
    *room = wanted;
    return true;
}

// Streams and subscriptions come in all sizes. In a fixed block they have what lies beyond its limits' part: first fit, neighbours joined.
#if FRISBEEI_PUBSUB || FRISBEEI_STREAMS || FRISBEEI_RPC
static void *frisbeei_heap_take(frisbee_pool *pool, size_t size) {
    const size_t taken = frisbeei_rounded(size);
    frisbeei_hole **at = &pool->holes, *hole;
    if (!pool->fixed) return frisbeei_allocate(pool, size);
    while (*at && (*at)->size < taken) at = &(*at)->next;
    hole = *at;
    if (!hole) return NULL;
    if (hole->size == taken) *at = hole->next;
    else {
        frisbeei_hole *rest = (frisbeei_hole *)(void *)((uint8_t *)hole + taken);
        rest->size = hole->size - taken;
        rest->next = hole->next;
        *at = rest;
    }
    pool->memory += size;
    return hole;
}
#endif

static void frisbeei_heap_give(frisbee_pool *pool, void *block, size_t size) {
    frisbeei_hole *hole = (frisbeei_hole *)block, *before = NULL, *after = pool->holes;
    if (!pool->fixed) {
        frisbeei_give_back(pool, block, size);
        return;
    }
    if (!block) return;
    pool->memory -= size;
    while (after && (uint8_t *)after < (uint8_t *)hole) {
        before = after;
        after = after->next;
    }
    hole->size = frisbeei_rounded(size);
    hole->next = after;
    if (after && (uint8_t *)hole + hole->size == (uint8_t *)after) {
        hole->size += after->size;
        hole->next = after->next;
    }
    if (!before) pool->holes = hole;
    else if ((uint8_t *)before + before->size == (uint8_t *)hole) {
        before->size += hole->size;
        before->next = hole->next;
    } else before->next = hole;
}

#if FRISBEEI_PUBSUB
static bool frisbeei_heap_grow(frisbee_pool *pool, void **array, uint32_t *room, size_t element) {
    const uint32_t wanted = *room < 4 ? 4 : *room * 2;
    void *moved = frisbeei_heap_take(pool, wanted * element);
    if (!moved) return false;
    if (*room) memcpy(moved, *array, *room * element);
    frisbeei_heap_give(pool, *array, *room * element);
    *array = moved;
    *room = wanted;
    return true;
}
#endif

static size_t frisbeei_least(size_t a, size_t b) { return a < b ? a : b; }

static uint64_t frisbeei_random(frisbee_pool *pool) { // splitmix64
    uint64_t z = (pool->random += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#ifdef FRISBEEI_PLAIN_EXCHANGE
static void *frisbeei_exchange(void **at, void *value) {
    void *old = *at;
    *at = value;
    return old;
}
#endif

// >>framing: bytes to headers and back, by shifts

static uint32_t frisbeei_get16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }
static uint32_t frisbeei_get32(const uint8_t *at) { return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]; }

static void frisbeei_put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

#if FRISBEEI_PUBSUB || FRISBEEI_STREAMS || FRISBEEI_RPC
static void frisbeei_put32(uint8_t *at, uint32_t value) {
    frisbeei_put16(at, value >> 16);
    frisbeei_put16(at + 2, value);
}
#endif

static void frisbeei_put64(uint8_t *at, uint64_t value) { // compilers make one store of it
    at[0] = (uint8_t)(value >> 56);
    at[1] = (uint8_t)(value >> 48);
    at[2] = (uint8_t)(value >> 40);
    at[3] = (uint8_t)(value >> 32);
    at[4] = (uint8_t)(value >> 24);
    at[5] = (uint8_t)(value >> 16);
    at[6] = (uint8_t)(value >> 8);
    at[7] = (uint8_t)value;
}

static void frisbeei_put_header(uint8_t *at, size_t header, uint32_t operation, uint32_t id, uint32_t length) {
    if (header == 10) {
        frisbeei_put16(at, 0x000F);
        at += 2;
    }
    frisbeei_put64(at, (uint64_t)(id << 16 | operation) << 32 | length);
}

FRISBEE_API size_t frisbee_encode(frisbee_wire wire, const frisbee_packet *packet, uint8_t header[FRISBEE_WIRE_HEADER_MAX]) {
    const size_t size = wire == FRISBEE_WIRE_V0 ? 8 : 10;
    frisbeei_put_header(header, size, packet->from.operation, packet->from.id, packet->length);
    return size;
}

// v1 begins with 00 0F, and so does v0 with id 15. Read as pairs: v0 is 000F operation length-high length-low; v1 is 000F id operation
// length-high. An opening must make sense: an operation that peers use, a length within the limit; if both do, it is v1.
FRISBEE_API frisbee_result frisbee_sniff(const void *data, size_t length, size_t max_packet, frisbee_wire *wire) {
    const uint8_t *at = (const uint8_t *)data;
    const uint64_t most = max_packet > FRISBEE_PACKET_MAX ? max_packet : FRISBEE_PACKET_MAX;
    uint32_t second, third, fourth;
    bool v0, v1;
    if (length < 1) return FRISBEE_AGAIN;
    if (at[0] == 0 && length < 2) return FRISBEE_AGAIN;
    if (at[0] == 0x16) { // a TLS record begins 16 03
        if (length < 2) return FRISBEE_AGAIN;
        if (at[1] == 0x03) return FRISBEE_MALFORMED;
    }
    *wire = FRISBEE_WIRE_V0;
    if (at[0] != 0 || at[1] != 0x0F) return FRISBEE_OK;
    if (length < 8) return FRISBEE_AGAIN;
    second = frisbeei_get16(at + 2);
    third = frisbeei_get16(at + 4);
    fourth = frisbeei_get16(at + 6);
    v0 = second == 2 || second >= 10 ? (uint64_t)third * 65536 + fourth <= most : second < 2 && third == 0 && fourth == 0;
    v1 = (third == 2 || third >= 10 || (third == 0 && second == 0)) && fourth <= most >> 16;
    if (!v0 && !v1) return FRISBEE_MALFORMED;
    if (v1) *wire = FRISBEE_WIRE_V1;
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_decode(frisbee_wire wire, const void *data, size_t length, size_t max_packet, frisbee_packet *packet,
                                          size_t *used) {
    const uint8_t *at = (const uint8_t *)data;
    const size_t most = max_packet ? max_packet : FRISBEE_PACKET_MAX;
    size_t header;
    if (wire != FRISBEE_WIRE_V0 && wire != FRISBEE_WIRE_V1) {
        const frisbee_result sniffed = frisbee_sniff(data, length, most, &wire);
        if (sniffed != FRISBEE_OK) {
            *used = sniffed == FRISBEE_AGAIN ? (length < 2 ? 2u : 8u) : 0u;
            return sniffed;
        }
    }
    header = wire == FRISBEE_WIRE_V0 ? 8 : 10;
    *used = header;
    if (header == 10 && ((length > 0 && at[0] != 0) || (length > 1 && at[1] != 0x0F))) return FRISBEE_MALFORMED;
    if (length < header) return FRISBEE_AGAIN;
    at += header - 8;
    memset(packet, 0, sizeof *packet);
    packet->from.id = (uint16_t)frisbeei_get16(at);
    packet->from.operation = (uint16_t)frisbeei_get16(at + 2);
    packet->length = frisbeei_get32(at + 4);
    if (packet->length > most || packet->length > (size_t)-1 - header) return FRISBEE_TOO_LARGE;
    *used = header + packet->length;
    if (length < *used) return FRISBEE_AGAIN;
    packet->data = at + 8;
    return FRISBEE_OK;
}

// >>slab: connections in pages that never move; a handle is generation << 32 | index + 1

static frisbeei_conn *frisbeei_at(const frisbee_pool *pool, uint32_t index_plus_one) {
    const uint32_t index = index_plus_one - 1;
    return &pool->pages[index / FRISBEEI_PAGE][index % FRISBEEI_PAGE];
}

static uint32_t frisbeei_index(const frisbeei_conn *conn) { return (uint32_t)conn->id; }

static inline frisbeei_conn *frisbeei_find(const frisbee_pool *pool, uint64_t id) {
    frisbeei_conn *conn = pool->current;
    if (FRISBEEI_LIKELY(conn && conn->id == id)) return conn;
    if ((uint32_t)id == 0 || ((uint32_t)id - 1) / FRISBEEI_PAGE >= pool->page_count) return NULL;
    conn = frisbeei_at(pool, (uint32_t)id);
    return conn->id == id ? conn : NULL;
}

static frisbee_conn frisbeei_handle(const frisbeei_conn *conn) {
    frisbee_conn handle;
    handle.id = conn->id;
    return handle;
}

static frisbeei_conn *frisbeei_conn_take(frisbee_pool *pool) {
    frisbeei_conn *conn;
    uint32_t i, first, count;
    if (pool->conn_count >= pool->desc.max_conns) return NULL;
    // the timer heap has room for every connection, so that setting a timer cannot fail
    if (!frisbeei_array_grow(pool, (void **)&pool->timers, &pool->timer_room, pool->conn_count, sizeof *pool->timers, pool->desc.max_conns))
        return NULL;
    if (!pool->free_conn) {
        frisbeei_conn *page;
        const uint32_t pages = (pool->desc.max_conns + FRISBEEI_PAGE - 1) / FRISBEEI_PAGE;
        count = (uint32_t)frisbeei_least(FRISBEEI_PAGE, pool->desc.max_conns - pool->page_count * FRISBEEI_PAGE);
        if (!frisbeei_array_grow(pool, (void **)&pool->pages, &pool->page_room, pool->page_count, sizeof *pool->pages, pages)) return NULL;
        page = (frisbeei_conn *)frisbeei_allocate(pool, count * sizeof *page);
        if (!page) return NULL;
        memset(page, 0, count * sizeof *page);
        first = pool->page_count * FRISBEEI_PAGE;
        pool->pages[pool->page_count++] = page;
        for (i = count; i-- > 0;) {
            page[i].next_work = pool->free_conn;
            pool->free_conn = first + i + 1;
        }
    }
    first = pool->free_conn;
    conn = frisbeei_at(pool, first);
    pool->free_conn = conn->next_work;
    memset(conn, 0, sizeof *conn);
    if (++pool->generation == 0) pool->generation = 1;
    conn->id = (uint64_t)pool->generation << 32 | first;
    conn->watch.fd = -1;
    conn->header = 10;
    conn->session = 1;
    pool->conn_count++;
    return conn;
}

// Unlinks are not needed: a connection is given back only from the work list, after it left all other lists.
static void frisbeei_conn_give(frisbee_pool *pool, frisbeei_conn *conn) {
    const uint32_t index = frisbeei_index(conn);
    if (pool->current == conn) pool->current = NULL;
    memset(conn, 0, sizeof *conn);
    conn->next_work = pool->free_conn;
    pool->free_conn = index;
    pool->conn_count--;
}

// What a closed connection's callbacks still ask for it is not worth remembering: it must not be in the list when it is given back.
static void frisbeei_work(frisbee_pool *pool, frisbeei_conn *conn, uint8_t bits) {
    if (conn->state == FRISBEEI_CLOSED && bits != FRISBEEI_WORK_CLOSE) return;
    conn->work = (uint8_t)(conn->work | bits);
    if (conn->flags & FRISBEEI_HAS_WORK) return;
    conn->flags |= FRISBEEI_HAS_WORK;
    conn->next_work = 0;
    if (pool->work_tail) frisbeei_at(pool, pool->work_tail)->next_work = frisbeei_index(conn);
    else pool->work_head = frisbeei_index(conn);
    pool->work_tail = frisbeei_index(conn);
}

static void frisbeei_dirty_add(frisbee_pool *pool, frisbeei_conn *conn) {
    conn->flags |= FRISBEEI_IS_DIRTY;
    conn->next_dirty = 0;
    if (pool->dirty_tail) frisbeei_at(pool, pool->dirty_tail)->next_dirty = frisbeei_index(conn);
    else pool->dirty_head = frisbeei_index(conn);
    pool->dirty_tail = frisbeei_index(conn);
}

static inline void frisbeei_dirty(frisbee_pool *pool, frisbeei_conn *conn) {
    if (!(conn->flags & FRISBEEI_IS_DIRTY)) frisbeei_dirty_add(pool, conn);
}

// >>clock: time starts at one second when the pool does, never runs backward, and never jumps further than max_step_ms

#ifdef FRISBEEI_OWN_CLOCK
static uint64_t frisbeei_system_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}
#endif

static uint64_t frisbeei_clock_read(frisbee_pool *pool) {
#if FRISBEEI_SOCKETS
    if (!pool->desc.now_us) return FRISBEE_SYS_CLOCK();
#endif
    return pool->desc.now_us(pool->desc.now_context);
}

#ifdef FRISBEEI_OWN_SEED
static uint64_t frisbeei_system_seed(frisbee_pool *pool) {
    uint64_t seed = pool->clock_last ^ (uint64_t)(uintptr_t)pool << 17;
#if FRISBEEI_SOCKETS
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed ^= (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)FRISBEE_SYS_GETPID() << 48;
#endif
    return seed;
}
#endif

static void frisbeei_clock(frisbee_pool *pool) {
    const uint64_t now = frisbeei_clock_read(pool);
    uint64_t step = now - pool->clock_last;
    if (step > (uint64_t)INT64_MAX) step = 0; // backward
    pool->clock_last = now;
    if (pool->desc.max_step_ms > 0 && step > (uint64_t)pool->desc.max_step_ms * 1000u) step = (uint64_t)pool->desc.max_step_ms * 1000u;
    if (step > (uint64_t)(INT64_MAX / 4)) step = (uint64_t)(INT64_MAX / 4);
    if (pool->now < INT64_MAX / 2) pool->now += (int64_t)step;
    pool->tick = (uint32_t)((pool->now + 999) / 1000);
}

// Functions that stamp times may be called long after the last turn.
static void frisbeei_clock_outside(frisbee_pool *pool) {
    if (!pool->depth) frisbeei_clock(pool);
}

// Ms since a tick, as the turn sees it. Ticks are rounded up and the turn's is rounded down, so that no timeout comes early.
static int32_t frisbeei_elapsed(const frisbee_pool *pool, uint32_t since) { return (int32_t)(pool->turn_tick - since); }

// >>timers: one per connection, in a heap. A timer may be early: when it fires, what is due is done and the next time computed.

static void frisbeei_timer_place(frisbee_pool *pool, uint32_t slot, uint32_t index) {
    pool->timers[slot] = index;
    frisbeei_at(pool, index)->timer_slot = slot + 1;
}

static void frisbeei_timer_up(frisbee_pool *pool, uint32_t slot, uint32_t index) {
    const int64_t at = frisbeei_at(pool, index)->timer_at;
    while (slot > 0 && frisbeei_at(pool, pool->timers[(slot - 1) / 2])->timer_at > at) {
        frisbeei_timer_place(pool, slot, pool->timers[(slot - 1) / 2]);
        slot = (slot - 1) / 2;
    }
    frisbeei_timer_place(pool, slot, index);
}

static void frisbeei_timer_down(frisbee_pool *pool, uint32_t slot, uint32_t index) {
    const int64_t at = frisbeei_at(pool, index)->timer_at;
    for (;;) {
        uint32_t child = slot * 2 + 1;
        if (child >= pool->timer_count) break;
        if (child + 1 < pool->timer_count &&
            frisbeei_at(pool, pool->timers[child + 1])->timer_at < frisbeei_at(pool, pool->timers[child])->timer_at)
            child++;
        if (frisbeei_at(pool, pool->timers[child])->timer_at >= at) break;
        frisbeei_timer_place(pool, slot, pool->timers[child]);
        slot = child;
    }
    frisbeei_timer_place(pool, slot, index);
}

static void frisbeei_timer_set(frisbee_pool *pool, frisbeei_conn *conn, int64_t at) {
    const uint32_t slot = conn->timer_slot;
    if (slot == 0) {
        conn->timer_at = at;
        frisbeei_timer_up(pool, pool->timer_count++, frisbeei_index(conn));
    } else {
        const bool sooner = at < conn->timer_at;
        conn->timer_at = at;
        if (sooner) frisbeei_timer_up(pool, slot - 1, frisbeei_index(conn));
        else frisbeei_timer_down(pool, slot - 1, frisbeei_index(conn));
    }
}

static void frisbeei_timer_clear(frisbee_pool *pool, frisbeei_conn *conn) {
    const uint32_t slot = conn->timer_slot;
    uint32_t last;
    if (slot == 0) return;
    conn->timer_slot = 0;
    last = pool->timers[--pool->timer_count];
    if (slot - 1 == pool->timer_count) return;
    frisbeei_timer_up(pool, slot - 1, last);
    frisbeei_timer_down(pool, frisbeei_at(pool, last)->timer_slot - 1, last);
}

// Something is due at `at`, or `ms` from now: the timer must not be later.
static void frisbeei_timer_need(frisbee_pool *pool, frisbeei_conn *conn, int64_t at) {
    if (conn->timer_slot == 0 || at < conn->timer_at) frisbeei_timer_set(pool, conn, at);
}

static void frisbeei_timer_in(frisbee_pool *pool, frisbeei_conn *conn, int32_t ms) {
    if (ms >= 0) frisbeei_timer_need(pool, conn, pool->now + ((int64_t)ms + 1) * 1000);
}

static void frisbeei_deadline(frisbee_pool *pool, frisbeei_conn *conn, int32_t ms) {
    conn->deadline = ms < 0 ? FRISBEEI_NO_TIME : pool->now + (int64_t)ms * 1000;
    if (ms >= 0) frisbeei_timer_need(pool, conn, conn->deadline);
}

// >>queue: output in chunks, in order. Frames are contiguous in a chunk (or header and borrowed payload side by side), memory is taken
// before a function answers OK, and what the transport has taken is counted in conn->written, so that a call knows whether it left.

static size_t frisbeei_chunk_size(const frisbeei_chunk *chunk) {
    return (size_t)(chunk->header_size - chunk->header_at) + (chunk->end - chunk->start);
}

static size_t frisbeei_chunk_bytes(const frisbeei_chunk *chunk) { return sizeof *chunk + (chunk->borrowed ? 0 : chunk->room); }

static frisbeei_chunk *frisbeei_chunk_new(frisbee_pool *pool, size_t room) {
    frisbeei_chunk *chunk;
    if (room == pool->chunk_bytes && pool->spare_chunks) {
        chunk = pool->spare_chunks;
        pool->spare_chunks = chunk->next;
        if (--pool->spare_chunk_count < pool->spare_chunk_low) pool->spare_chunk_low = pool->spare_chunk_count;
    } else chunk = (frisbeei_chunk *)frisbeei_allocate(pool, sizeof *chunk + room);
    if (!chunk) return NULL;
    memset(chunk, 0, sizeof *chunk);
    chunk->data = (uint8_t *)(chunk + 1);
    chunk->room = room;
    if (room == pool->chunk_bytes) pool->large_chunks++;
    return chunk;
}

static void frisbeei_chunk_free(frisbee_pool *pool, frisbeei_chunk *chunk) {
    if (!chunk->borrowed && chunk->room == pool->chunk_bytes) {
        pool->large_chunks--;
        if (pool->spare_chunk_count < FRISBEEI_SPARE_CHUNKS && !pool->fixed) {
            chunk->next = pool->spare_chunks;
            pool->spare_chunks = chunk;
            pool->spare_chunk_count++;
            return;
        }
    }
    frisbeei_give_back(pool, chunk, frisbeei_chunk_bytes(chunk));
}

// At the end of a turn: one of the spare pieces that nobody needed in it is given back.
static void frisbeei_chunks_spare(frisbee_pool *pool) {
    if (pool->spare_chunk_low > FRISBEEI_LAST_CHUNKS) {
        frisbeei_chunk *chunk = pool->spare_chunks;
        pool->spare_chunks = chunk->next;
        pool->spare_chunk_count--;
        frisbeei_give_back(pool, chunk, frisbeei_chunk_bytes(chunk));
    }
    pool->spare_chunk_low = pool->spare_chunk_count;
}

static void frisbeei_chunk_append(frisbeei_conn *conn, frisbeei_chunk *chunk) {
    chunk->next = NULL;
    if (conn->out_tail) conn->out_tail->next = chunk;
    else conn->out_head = chunk;
    conn->out_tail = chunk;
}

// A finished piece: freed, or, if somebody waits for its release, kept until callbacks may run.
static void frisbeei_chunk_done(frisbee_pool *pool, frisbeei_chunk *chunk) {
    if (chunk->message) frisbeei_message_drop(pool, chunk->message);
    if (chunk->release) {
        chunk->next = NULL;
        if (pool->released) pool->released_tail->next = chunk;
        else pool->released = chunk;
        pool->released_tail = chunk;
    } else frisbeei_chunk_free(pool, chunk);
}

static void frisbeei_run_releases(frisbee_pool *pool) {
    while (pool->released) {
        frisbeei_chunk *chunk = pool->released;
        const frisbee_release release = chunk->release;
        void *user = chunk->user;
        pool->released = chunk->next;
        frisbeei_chunk_free(pool, chunk);
        release(user);
    }
}

// In a fixed block a connection has one chunk, of its queue's size: what was written is squeezed out.
static uint8_t *frisbeei_room_fixed(frisbee_pool *pool, frisbeei_conn *conn, size_t size) {
    frisbeei_chunk *chunk = conn->out_tail;
    if (chunk) {
        if (chunk->borrowed) return NULL;
        memmove(chunk->data, chunk->data + chunk->start, chunk->end - chunk->start);
        chunk->replies_end -= frisbeei_least(chunk->replies_end, chunk->start);
        chunk->end -= chunk->start;
        chunk->start = 0;
        if (chunk->room - chunk->end < size) return NULL;
    } else {
        chunk = frisbeei_chunk_new(pool, pool->desc.queue_limit + FRISBEEI_CONTROL_ROOM);
        if (!chunk || chunk->room < size) return NULL;
        frisbeei_chunk_append(conn, chunk);
    }
    return chunk->data + chunk->end;
}

static FRISBEEI_COLD uint8_t *frisbeei_room_slow(frisbee_pool *pool, frisbeei_conn *conn, size_t size) {
    frisbeei_chunk *chunk;
    size_t room = pool->chunk_bytes;
    if (pool->fixed) return frisbeei_room_fixed(pool, conn, size);
    if (!conn->out_tail && pool->large_chunks >= FRISBEEI_MANY_CHUNKS) // a broadcast to thousands must not take a large chunk for each
        room = FRISBEEI_SMALL_CHUNK - sizeof(frisbeei_chunk);
    if (size > room) room = size;
    chunk = frisbeei_chunk_new(pool, room);
    if (!chunk) return NULL;
    frisbeei_chunk_append(conn, chunk);
    return chunk->data;
}

// Contiguous room at the end of the queue; it becomes part of it with frisbeei_commit.
static uint8_t *frisbeei_room(frisbee_pool *pool, frisbeei_conn *conn, size_t size) {
    frisbeei_chunk *chunk = conn->out_tail;
    if (FRISBEEI_LIKELY(chunk && chunk->room - chunk->end >= size)) return chunk->data + chunk->end;
    return frisbeei_room_slow(pool, conn, size);
}

// How many bytes of replies may wait before the connection is not read. Were it the same on both sides, two peers that call each other could
// stop each other for good; so the side that connected, to a server of its choice, goes on until its replies come near their limit.
static size_t frisbeei_replies_high(const frisbeei_conn *conn) {
    const frisbee_conn_desc *desc = &conn->profile->desc;
    const size_t most = desc->queue_limit - desc->high_water;
    return conn->flags & FRISBEEI_ACCEPTED || most < desc->high_water ? desc->high_water : most;
}

static FRISBEEI_COLD void frisbeei_high(frisbee_pool *pool, frisbeei_conn *conn, bool reply) {
    conn->flags |= FRISBEEI_WANT_WRITABLE;
    if (!reply || conn->flags & FRISBEEI_REPLIES_FULL || conn->replies <= frisbeei_replies_high(conn)) return;
    conn->flags |= FRISBEEI_REPLIES_FULL;
    if (pool->current == conn) pool->stop = true;
    frisbeei_interest(pool, conn);
}

static inline void frisbeei_commit(frisbee_pool *pool, frisbeei_conn *conn, size_t size, bool reply) {
    frisbeei_chunk *chunk = conn->out_tail;
    chunk->end += size;
    conn->queued += (uint32_t)size;
    if (reply) {
        conn->replies += (uint32_t)size;
        chunk->replies += size;
        chunk->replies_end = chunk->end;
    }
    frisbeei_dirty(pool, conn);
    if (!FRISBEEI_LIKELY(conn->queued <= conn->profile->desc.high_water)) frisbeei_high(pool, conn, reply);
}

// Would so many bytes more pass queue_limit? Replies have one of their own, so that what a program sends cannot crowd out its answers; a
// fixed block has room for one.
static inline bool frisbeei_over(const frisbee_pool *pool, const frisbeei_conn *conn, size_t size, bool reply) {
    const size_t limit = conn->profile->desc.queue_limit;
    if (FRISBEEI_LIKELY(conn->queued + size <= limit)) return false;
    return !reply || pool->fixed || conn->replies + size > frisbeei_replies_high(conn) + limit - conn->profile->desc.high_water;
}

static frisbee_result frisbeei_full(frisbeei_conn *conn) {
    conn->flags |= FRISBEEI_WANT_WRITABLE;
    return FRISBEE_AGAIN;
}

// A small packet of Frisbee's or ours, above the user's limit.
static bool frisbeei_queue_control(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation) {
    uint8_t *at = frisbeei_room(pool, conn, conn->header);
    if (!at) return false;
    frisbeei_put_header(at, conn->header, operation, 0, 0);
    frisbeei_commit(pool, conn, conn->header, false);
    return true;
}

// A packet of ours with a payload; no user's limit applies. False: no memory.
static bool frisbeei_queue_own(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation, uint32_t id, const void *data, size_t length,
                               bool reply) {
    uint8_t *at = frisbeei_room(pool, conn, conn->header + length);
    if (!at) return false;
    frisbeei_put_header(at, conn->header, operation, id, (uint32_t)length);
    if (length) memcpy(at + conn->header, data, length);
    frisbeei_commit(pool, conn, conn->header + length, reply);
    conn->packets_out++;
    return true;
}

// When an unknown wire turns out to be v0: frames were queued as v1, and v0 is the same from their third byte.
static void frisbeei_queue_to_v0(frisbeei_conn *conn) {
    frisbeei_chunk *chunk;
    uint64_t old_at = conn->written, new_at = conn->written;
    uint32_t i;
    for (chunk = conn->out_head; chunk; chunk = chunk->next) {
        size_t from = chunk->start, to = chunk->start;
        if (chunk->header_size) {
            frisbeei_call *call = conn->calls ? &conn->calls->slots[frisbeei_get16(chunk->header + 2) & conn->calls->mask] : NULL;
            if (call && call->state != FRISBEEI_CALL_FREE && call->offset == old_at) call->offset = new_at | (uint64_t)1 << 63;
            chunk->header_at = 2;
            conn->queued -= 2;
            old_at += 10;
            new_at += 8;
        }
        if (chunk->borrowed) {
            old_at += chunk->end - chunk->start;
            new_at += chunk->end - chunk->start;
            continue;
        }
        while (from < chunk->end) {
            const size_t frame = 10 + (size_t)frisbeei_get32(chunk->data + from + 6);
            frisbeei_call *call = conn->calls ? &conn->calls->slots[frisbeei_get16(chunk->data + from + 2) & conn->calls->mask] : NULL;
            // marked, so that a later frame whose old place is this one's new place is not mistaken for it
            if (call && call->state != FRISBEEI_CALL_FREE && call->offset == old_at) call->offset = new_at | (uint64_t)1 << 63;
            memmove(chunk->data + to, chunk->data + from + 2, frame - 2);
            from += frame;
            to += frame - 2;
            old_at += frame;
            new_at += frame - 2;
            conn->queued -= 2;
        }
        chunk->end = to;
        if (chunk->replies) chunk->replies_end = to;
    }
    for (i = 0; conn->calls && i <= conn->calls->mask; i++) conn->calls->slots[i].offset &= ~((uint64_t)1 << 63);
}

// Takes `done` written bytes off the queue.
static void frisbeei_consume(frisbee_pool *pool, frisbeei_conn *conn, size_t done) {
    conn->written += done;
    conn->queued -= (uint32_t)done;
    conn->offered -= (uint32_t)frisbeei_least(done, conn->offered);
    while (conn->out_head) {
        frisbeei_chunk *chunk = conn->out_head;
        size_t part = frisbeei_least(done, (size_t)(chunk->header_size - chunk->header_at));
        chunk->header_at = (uint8_t)(chunk->header_at + part);
        done -= part;
        part = frisbeei_least(done, chunk->end - chunk->start);
        chunk->start += part;
        done -= part;
        if (chunk->replies && (chunk->start >= chunk->replies_end || frisbeei_chunk_size(chunk) == 0)) {
            conn->replies -= (uint32_t)chunk->replies;
            chunk->replies = 0;
        }
        if (frisbeei_chunk_size(chunk) > 0) return;
        conn->out_head = chunk->next;
        if (!conn->out_head) conn->out_tail = NULL;
        frisbeei_chunk_done(pool, chunk);
    }
}

static void frisbeei_queue_drop(frisbee_pool *pool, frisbeei_conn *conn) {
    while (conn->out_head) {
        frisbeei_chunk *chunk = conn->out_head;
        conn->out_head = chunk->next;
        frisbeei_chunk_done(pool, chunk);
    }
    conn->out_tail = NULL;
    conn->queued = conn->replies = conn->offered = 0;
}

// What a slow peer leaves behind in a large chunk moves to one of its size, if there is memory for it.
static void frisbeei_queue_trim(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_chunk *old = conn->out_head, *chunk;
    size_t size;
    if (!old || old->next || old->borrowed || old->room != pool->chunk_bytes || pool->fixed) return;
    size = old->end - old->start;
    if (size > old->room / 4) return;
    chunk = frisbeei_chunk_new(pool, frisbeei_rounded(size + 256));
    if (!chunk) return;
    memcpy(chunk->data, old->data + old->start, size);
    chunk->end = size;
    chunk->replies = old->replies;
    chunk->replies_end = old->replies_end > old->start ? old->replies_end - old->start : 0;
    conn->out_head = conn->out_tail = chunk;
    frisbeei_chunk_free(pool, old);
}

// >>transport: the socket itself, or what the user brought

#if FRISBEEI_SOCKETS
static frisbee_result frisbeei_system(frisbee_pool *pool, int error) {
    pool->system_error = error;
    return FRISBEE_SYSTEM;
}

static bool frisbeei_again(int error) {
#if EAGAIN != EWOULDBLOCK
    if (error == EWOULDBLOCK) return true;
#endif
    return error == EAGAIN || error == EINTR;
}

static frisbee_result frisbeei_socket_read(int fd, void *first, size_t first_room, void *second, size_t second_room, size_t *done) {
    ssize_t got;
    if (first_room == 0) got = FRISBEE_SYS_RECV(fd, second, second_room, 0);
    else {
        struct iovec parts[2];
        struct msghdr message;
        memset(&message, 0, sizeof message);
        parts[0].iov_base = first;
        parts[0].iov_len = first_room;
        parts[1].iov_base = second;
        parts[1].iov_len = second_room;
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        got = FRISBEE_SYS_RECVMSG(fd, &message, 0);
    }
    *done = got > 0 ? (size_t)got : 0;
    if (got > 0) return FRISBEE_OK;
    if (got == 0) return FRISBEE_CLOSED;
    return frisbeei_again(errno) ? FRISBEE_AGAIN : FRISBEE_SYSTEM;
}

static frisbee_result frisbeei_socket_write(int fd, const frisbee_span *spans, size_t count, size_t *done) {
    struct iovec parts[FRISBEEI_SPANS];
    struct msghdr message;
    ssize_t got;
    size_t i;
    *done = 0;
    if (count == 0) return FRISBEE_OK;
    if (count > FRISBEEI_SPANS) count = FRISBEEI_SPANS;
    for (i = 0; i < count; i++) {
        parts[i].iov_base = (void *)(uintptr_t)spans[i].data;
        parts[i].iov_len = spans[i].length;
    }
    memset(&message, 0, sizeof message);
    message.msg_iov = parts;
    message.msg_iovlen = (unsigned)count;
    got = FRISBEE_SYS_SENDMSG(fd, &message, FRISBEEI_NO_SIGNAL);
    if (got >= 0) {
        *done = (size_t)got;
        return FRISBEE_OK;
    }
    return frisbeei_again(errno) ? FRISBEE_AGAIN : FRISBEE_SYSTEM;
}

// The socket as a transport, for those who wrap it or are handed it. The context is the descriptor.
static int frisbeei_context_fd(void *context) { return (int)(intptr_t)context; }

static frisbee_result frisbeei_plain_read(void *context, void *into, size_t room, size_t *done) {
    return frisbeei_socket_read(frisbeei_context_fd(context), NULL, 0, into, room, done);
}
static frisbee_result frisbeei_plain_write(void *context, const frisbee_span *spans, size_t count, size_t *done) {
    return frisbeei_socket_write(frisbeei_context_fd(context), spans, count, done);
}
static frisbee_result frisbeei_plain_finish(void *context) {
    (void)FRISBEE_SYS_SHUTDOWN(frisbeei_context_fd(context), SHUT_WR);
    return FRISBEE_OK;
}
static void frisbeei_plain_close(void *context) { (void)FRISBEE_SYS_CLOSE(frisbeei_context_fd(context)); }
static frisbee_socket frisbeei_plain_socket(void *context) { return (frisbee_socket)(intptr_t)context; }

static frisbee_transport frisbeei_plain(int fd) {
    frisbee_transport io;
    memset(&io, 0, sizeof io);
    io.context = (void *)(intptr_t)fd;
    io.read = frisbeei_plain_read;
    io.write = frisbeei_plain_write;
    io.finish = frisbeei_plain_finish;
    io.close = frisbeei_plain_close;
    io.socket = frisbeei_plain_socket;
    return io;
}
#endif

static int frisbeei_last_error(frisbee_result result) {
#if FRISBEEI_SOCKETS
    if (result == FRISBEE_SYSTEM) return errno;
#endif
    (void)result;
    return 0;
}

static frisbee_result frisbeei_io_write(frisbeei_conn *conn, const frisbee_span *spans, size_t count, size_t *done) {
    *done = 0;
    if (conn->io) return conn->io->write(conn->io->context, spans, count, done);
#if FRISBEEI_SOCKETS
    return frisbeei_socket_write(conn->watch.fd, spans, count, done);
#else
    return FRISBEE_UNSUPPORTED;
#endif
}

static frisbee_result frisbeei_io_read(frisbeei_conn *conn, void *first, size_t first_room, void *second, size_t second_room, size_t *done) {
    *done = 0;
    if (conn->io) {
        if (!conn->io->read) return FRISBEE_AGAIN;
        return first_room ? conn->io->read(conn->io->context, first, first_room, done) : conn->io->read(conn->io->context, second, second_room, done);
    }
#if FRISBEEI_SOCKETS
    return frisbeei_socket_read(conn->watch.fd, first, first_room, second, second_room, done);
#else
    return FRISBEE_UNSUPPORTED;
#endif
}

static frisbee_result frisbeei_io_finish(frisbeei_conn *conn) {
    if (conn->io) return conn->io->finish ? conn->io->finish(conn->io->context) : FRISBEE_OK;
#if FRISBEEI_SOCKETS
    (void)FRISBEE_SYS_SHUTDOWN(conn->watch.fd, SHUT_WR); // what it could say, the next read says better
#endif
    return FRISBEE_OK;
}

// >>poller: five functions with the same names for each backend. A token is a connection's handle, or a small number for what else is watched.

enum { FRISBEEI_TOKEN_WAKE = 1, FRISBEEI_TOKEN_LISTENER = 2 }; // the upper half of a token is 0 for these; the lower: this + its place

#if FRISBEE_POLLER == FRISBEE_POLLER_EPOLL
static frisbee_result frisbeei_poller_open(frisbee_pool *pool) {
    pool->poller = FRISBEE_SYS_EPOLL_CREATE(EPOLL_CLOEXEC);
    return pool->poller < 0 ? frisbeei_system(pool, errno) : FRISBEE_OK;
}

static void frisbeei_poller_close(frisbee_pool *pool) {
    if (pool->poller >= 0) (void)FRISBEE_SYS_CLOSE(pool->poller);
}

static frisbee_result frisbeei_poller_set(frisbee_pool *pool, frisbeei_watch *watch, uint64_t token, unsigned interest) {
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = (interest & FRISBEE_READ ? (uint32_t)EPOLLIN : 0u) | (interest & FRISBEE_WRITE ? (uint32_t)EPOLLOUT : 0u);
    event.data.u64 = token;
    if (FRISBEE_SYS_EPOLL_CTL(pool->poller, watch->slot ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watch->fd, &event) != 0) return frisbeei_system(pool, errno);
    watch->slot = 1;
    watch->interest = interest & 15u;
    return FRISBEE_OK;
}

// Always before the descriptor is closed or handed over: a forked child may hold it, and events would go on.
static void frisbeei_poller_remove(frisbee_pool *pool, frisbeei_watch *watch) {
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    if (watch->slot && !pool->abandoned) (void)FRISBEE_SYS_EPOLL_CTL(pool->poller, EPOLL_CTL_DEL, watch->fd, &event);
    watch->slot = 0;
    watch->interest = 0;
}

static frisbee_result frisbeei_poller_wait(frisbee_pool *pool, int timeout_ms) {
    // epoll puts what it told of behind the others: under a spent budget it may tell of no more than is served, lest it favours one
    pool->event_count = FRISBEE_SYS_EPOLL_WAIT(pool->poller, pool->events, pool->served ? pool->served : FRISBEE_EVENTS, timeout_ms);
    if (pool->event_count >= 0) return FRISBEE_OK;
    pool->event_count = 0;
    return errno == EINTR ? FRISBEE_OK : frisbeei_system(pool, errno);
}

static frisbeei_event frisbeei_poller_event(const frisbee_pool *pool, int at) {
    const uint32_t events = pool->events[at].events;
    frisbeei_event event;
    event.token = pool->events[at].data.u64;
    event.ready = (events & EPOLLIN ? (unsigned)FRISBEE_READ : 0u) | (events & EPOLLOUT ? (unsigned)FRISBEE_WRITE : 0u) |
                  (events & (EPOLLERR | EPOLLHUP) ? (unsigned)FRISBEEI_HANGUP : 0u);
    return event;
}
#elif FRISBEE_POLLER == FRISBEE_POLLER_POLL
static frisbee_result frisbeei_poller_open(frisbee_pool *pool) {
    (void)pool;
    return FRISBEE_OK;
}

static void frisbeei_poller_close(frisbee_pool *pool) {
    frisbeei_give_back(pool, pool->fds, pool->fd_room * sizeof *pool->fds);
    frisbeei_give_back(pool, pool->tokens, pool->fd_room * sizeof *pool->tokens);
}

static bool frisbeei_poller_grow(frisbee_pool *pool) {
    const uint32_t fixed = pool->desc.max_conns * 2 + 3; // connections, as many listeners (at least two), the wake-up
    uint32_t room = pool->fd_room;
    if (pool->fd_count < pool->fd_room) return true;
    if (!frisbeei_array_grow(pool, (void **)&pool->tokens, &room, pool->fd_count, sizeof *pool->tokens, fixed)) return false;
    if (frisbeei_array_grow(pool, (void **)&pool->fds, &pool->fd_room, pool->fd_count, sizeof *pool->fds, fixed)) return true;
    if (pool->fd_room == 0) {
        frisbeei_give_back(pool, pool->tokens, room * sizeof *pool->tokens);
        pool->tokens = NULL;
    } else { // shrinking back; if even that fails the larger array serves as well, but its size must be remembered
        void *moved = frisbeei_resize(pool, pool->tokens, room * sizeof *pool->tokens, pool->fd_room * sizeof *pool->tokens);
        if (moved) pool->tokens = (uint64_t *)moved;
        else pool->memory -= (room - pool->fd_room) * sizeof *pool->tokens;
    }
    return false;
}

static frisbee_result frisbeei_poller_set(frisbee_pool *pool, frisbeei_watch *watch, uint64_t token, unsigned interest) {
    struct pollfd *fd;
    if (!watch->slot) {
        if (!frisbeei_poller_grow(pool)) return FRISBEE_NO_MEMORY;
        watch->slot = ++pool->fd_count & 0xFFFFFFFu;
        pool->tokens[watch->slot - 1] = token;
    }
    fd = &pool->fds[watch->slot - 1];
    fd->fd = watch->fd;
    fd->events = (short)((interest & FRISBEE_READ ? POLLIN : 0) | (interest & FRISBEE_WRITE ? POLLOUT : 0));
    fd->revents = 0;
    watch->interest = interest & 15u;
    return FRISBEE_OK;
}

static frisbeei_watch *frisbeei_watch_of(frisbee_pool *pool, uint64_t token);

static void frisbeei_poller_remove(frisbee_pool *pool, frisbeei_watch *watch) {
    uint32_t last = pool->fd_count;
    if (!watch->slot) return;
    if (watch->slot != last) { // the last one takes its place
        frisbeei_watch *moved = frisbeei_watch_of(pool, pool->tokens[last - 1]);
        pool->fds[watch->slot - 1] = pool->fds[last - 1];
        pool->tokens[watch->slot - 1] = pool->tokens[last - 1];
        if (moved) moved->slot = watch->slot;
    }
    pool->fd_count--;
    watch->slot = 0;
    watch->interest = 0;
}

// Events are copied out, FRISBEE_EVENTS at most, since callbacks move the array; the next turn goes on behind the last.
static frisbee_result frisbeei_poller_wait(frisbee_pool *pool, int timeout_ms) {
    uint32_t i;
    int ready = FRISBEE_SYS_POLL(pool->fds, (nfds_t)pool->fd_count, timeout_ms);
    pool->event_count = 0;
    if (ready < 0) return errno == EINTR ? FRISBEE_OK : frisbeei_system(pool, errno);
    for (i = 0; i < pool->fd_count && ready > 0 && pool->event_count < FRISBEE_EVENTS; i++) {
        const uint32_t at = (pool->fd_next + i) % pool->fd_count;
        const int events = pool->fds[at].revents;
        frisbeei_event *event = &pool->events[pool->event_count];
        if (!events) continue;
        ready--;
        event->token = pool->tokens[at];
        event->ready = (events & POLLIN ? (unsigned)FRISBEE_READ : 0u) | (events & POLLOUT ? (unsigned)FRISBEE_WRITE : 0u) |
                       (events & (POLLERR | POLLHUP | POLLNVAL) ? (unsigned)FRISBEEI_HANGUP : 0u);
        pool->event_count++;
    }
    if (pool->event_count < FRISBEE_EVENTS) i = 1; // all were found; another one is first next time, lest a budget favours one
    pool->fd_next = pool->fd_count ? (pool->fd_next + i) % pool->fd_count : 0;
    return FRISBEE_OK;
}

static frisbeei_event frisbeei_poller_event(const frisbee_pool *pool, int at) { return pool->events[at]; }

static frisbeei_watch *frisbeei_watch_of(frisbee_pool *pool, uint64_t token) {
    frisbeei_conn *conn;
    if (token == FRISBEEI_TOKEN_WAKE) return &pool->wake;
    if (token >> 32 == 0) return &pool->listeners[token - FRISBEEI_TOKEN_LISTENER]->watch;
    conn = frisbeei_find(pool, token);
    return conn ? &conn->watch : NULL;
}
#else
static frisbee_result frisbeei_poller_set(frisbee_pool *pool, frisbeei_watch *watch, uint64_t token, unsigned interest) {
    (void)pool, (void)watch, (void)token, (void)interest;
    return FRISBEE_UNSUPPORTED;
}
static void frisbeei_poller_remove(frisbee_pool *pool, frisbeei_watch *watch) { (void)pool, (void)watch; }
#endif

// >>connection: what it may do now

static bool frisbeei_is_packets(const frisbeei_conn *conn) { return !conn->extra || !conn->extra->protocol; }

static frisbeei_hand frisbeei_handing(const frisbeei_conn *conn) {
    return conn->extra ? (frisbeei_hand)conn->extra->hand : FRISBEEI_HAND_NONE;
}

// May packets of streams and subscriptions be queued now?
static bool frisbeei_may_deliver(const frisbeei_conn *conn) {
    if (FRISBEEI_LIKELY(conn->state == FRISBEEI_OPEN && !conn->extra && !(conn->flags & FRISBEEI_FINISH))) return true;
    return conn->state == FRISBEEI_OPEN && !(conn->flags & FRISBEEI_FINISH) && !frisbeei_handing(conn) && frisbeei_is_packets(conn);
}

static bool frisbeei_may_read(const frisbeei_conn *conn) {
    if (conn->flags & FRISBEEI_ENDED) return false;
    if (conn->state == FRISBEEI_LINGERING) return true;
    if (conn->flags & FRISBEEI_UNREAD) return false;
    if (conn->state == FRISBEEI_OPEN) {
        if (conn->flags & FRISBEEI_FENCED) return false;
        if (frisbeei_handing(conn) == FRISBEEI_HAND_NONE || !conn->extra->raw) return true;
        return conn->extra->how == FRISBEE_HIJACK_STOCK && conn->in_size < conn->header; // until the first raw byte
    }
    return conn->state == FRISBEEI_SNIFFING;
}

static bool frisbeei_will_retry(const frisbee_pool *pool, const frisbeei_conn *conn) {
    if (!conn->extra || !conn->extra->host || pool->ending || pool->shut) return false;
    return conn->profile->desc.retry_min_ms >= 0 && !(conn->flags & FRISBEEI_NO_RETRY);
}

// What readiness a transport that is blocked in this way waits for.
static unsigned frisbeei_wants(const frisbeei_conn *conn, unsigned blocked, unsigned otherwise) {
    return conn->io && conn->io->wants ? conn->io->wants(conn->io->context, blocked) : otherwise;
}

// Tells the poller what the connection waits for.
static void frisbeei_interest(frisbee_pool *pool, frisbeei_conn *conn) {
    unsigned want = 0;
    frisbee_result result;
    if (conn->watch.fd < 0 || conn->flags & FRISBEEI_UNWATCHED) return;
    switch ((frisbeei_state)conn->state) {
    case FRISBEEI_CONNECTING: want = FRISBEE_WRITE; break;
    case FRISBEEI_OPENING: want = frisbeei_wants(conn, 0, FRISBEE_READ); break;
    case FRISBEEI_SNIFFING:
    case FRISBEEI_OPEN:
    case FRISBEEI_DRAINING:
    case FRISBEEI_LINGERING:
        if (frisbeei_may_read(conn)) want |= frisbeei_wants(conn, FRISBEE_READ, FRISBEE_READ);
        if (conn->flags & FRISBEEI_BLOCKED) want |= frisbeei_wants(conn, FRISBEE_WRITE, FRISBEE_WRITE);
        if (conn->flags & FRISBEEI_TRANSPORT_BUSY) want |= frisbeei_wants(conn, 0, FRISBEE_WRITE);
        break;
    case FRISBEEI_FREE:
    case FRISBEEI_WAITING:
    case FRISBEEI_RESOLVING:
    case FRISBEEI_CLOSED: return;
    }
    if (conn->watch.slot && want == conn->watch.interest) return;
    result = frisbeei_poller_set(pool, &conn->watch, conn->id, want);
    if (result != FRISBEE_OK) frisbeei_fail(pool, conn, result, pool->system_error);
}

// Ends the session: nothing is called for it any more but what closing calls. on_close comes from the work list.
static void frisbeei_fail(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result reason, int system_error) {
    if (conn->state == FRISBEEI_CLOSED || conn->state == FRISBEEI_FREE) return;
    conn->state = FRISBEEI_CLOSED;
    conn->reason = (int8_t)reason;
    conn->system_error = reason == FRISBEE_SYSTEM ? system_error : 0;
    if (pool->current == conn) pool->stop = true;
    frisbeei_work(pool, conn, FRISBEEI_WORK_CLOSE);
}

// A subscription may have room, or need none any more: publishers that wait try again at the next safe point.
static void frisbeei_publishers_try(frisbee_pool *pool) {
    if (pool->broker && pool->broker->blocking) pool->broker->room = true;
}

static frisbee_result frisbeei_extra_need(frisbee_pool *pool, frisbeei_conn *conn) {
    if (conn->extra) return FRISBEE_OK;
    conn->extra = (frisbeei_extra *)frisbeei_allocate(pool, sizeof *conn->extra);
    if (!conn->extra) return FRISBEE_NO_MEMORY;
    memset(conn->extra, 0, sizeof *conn->extra);
    return FRISBEE_OK;
}

// >>flush: one system call per connection and turn

// May bytes leave? Not before the wire is known; in a stock hijack, nothing new is queued, but what was still goes.
static bool frisbeei_may_write(const frisbeei_conn *conn) {
    return (conn->state == FRISBEEI_OPEN || conn->state == FRISBEEI_DRAINING) && !(conn->flags & (FRISBEEI_BLOCKED | FRISBEEI_BROKEN));
}

// A peer that answered and left makes the next write fail while its answer still lies in the socket.
static void frisbeei_write_failed(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result result) {
    const int error = frisbeei_last_error(result);
    if (conn->io || conn->state != FRISBEEI_OPEN || !frisbeei_may_read(conn)) {
        frisbeei_fail(pool, conn, result, error);
        return;
    }
    conn->flags |= FRISBEEI_BROKEN;
    conn->system_error = error;
    frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
}

static size_t frisbeei_gather(const frisbeei_conn *conn, frisbee_span *spans, size_t *bytes) {
    const frisbeei_chunk *chunk;
    size_t count = 0;
    *bytes = 0;
    for (chunk = conn->out_head; chunk && count + 2 <= FRISBEEI_SPANS; chunk = chunk->next) {
        if (chunk->header_size > chunk->header_at) {
            spans[count].data = chunk->header + chunk->header_at;
            spans[count].length = (size_t)(chunk->header_size - chunk->header_at);
            *bytes += spans[count++].length;
        }
        if (chunk->end > chunk->start) {
            spans[count].data = chunk->data + chunk->start;
            spans[count].length = chunk->end - chunk->start;
            *bytes += spans[count++].length;
        }
    }
    return count;
}

static void frisbeei_blocked(frisbee_pool *pool, frisbeei_conn *conn, uint32_t flag) {
    if (!(conn->flags & FRISBEEI_STALLED)) {
        conn->write_since = pool->tick;
        frisbeei_timer_in(pool, conn, conn->profile->desc.write_ms);
    }
    conn->flags |= flag | FRISBEEI_STALLED;
    frisbeei_interest(pool, conn);
}

// Writes until the queue is empty or the transport takes no more.
static void frisbeei_write_out(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbee_span spans[FRISBEEI_SPANS];
    while (conn->queued > 0) {
        size_t bytes, done, count = frisbeei_gather(conn, spans, &bytes);
        frisbee_result result = frisbeei_io_write(conn, spans, count, &done);
        if (result == FRISBEE_OK && done > 0 && done <= bytes) {
            frisbeei_consume(pool, conn, done);
            conn->write_since = pool->tick;
            if (done == bytes || conn->io) continue;
            result = FRISBEE_AGAIN; // a socket that takes less than offered is full
        }
        if (result == FRISBEE_OK || result == FRISBEE_AGAIN) {
            if (conn->io && conn->offered < bytes) conn->offered = (uint32_t)bytes;
            frisbeei_blocked(pool, conn, FRISBEEI_BLOCKED);
        } else frisbeei_write_failed(pool, conn, result);
        return;
    }
    frisbeei_consume(pool, conn, 0); // frees a chunk that was reserved and not used
    if (conn->io && conn->io->write) {
        size_t done;
        const frisbee_result result = conn->io->write(conn->io->context, NULL, 0, &done);
        if (result == FRISBEE_AGAIN) frisbeei_blocked(pool, conn, FRISBEEI_TRANSPORT_BUSY);
        else if (result != FRISBEE_OK) frisbeei_fail(pool, conn, result, frisbeei_last_error(result));
        else conn->flags &= ~(uint32_t)FRISBEEI_TRANSPORT_BUSY;
    }
}

static void frisbeei_linger(frisbee_pool *pool, frisbeei_conn *conn) {
    if (conn->flags & FRISBEEI_ENDED || (conn->io && (!conn->io->finish || !conn->io->read))) {
        frisbeei_fail(pool, conn, (frisbee_result)conn->reason, 0);
        return;
    }
    conn->state = FRISBEEI_LINGERING;
    frisbeei_deadline(pool, conn, FRISBEEI_LINGER_MS);
    frisbeei_interest(pool, conn);
    if (conn->io) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
}

// The queue is empty: what waited for that?
static void frisbeei_flushed(frisbee_pool *pool, frisbeei_conn *conn) {
    conn->flags &= ~(uint32_t)(FRISBEEI_PING_QUEUED | FRISBEEI_PONG_QUEUED);
    if (conn->flags & FRISBEEI_TRANSPORT_BUSY) return;
    conn->flags &= ~(uint32_t)FRISBEEI_STALLED;
    if (conn->flags & FRISBEEI_FINISH && !(conn->flags & FRISBEEI_FINISHED)) {
        const frisbee_result result = frisbeei_io_finish(conn);
        if (result == FRISBEE_AGAIN) {
            frisbeei_blocked(pool, conn, FRISBEEI_TRANSPORT_BUSY);
            return;
        }
        if (result != FRISBEE_OK) {
            frisbeei_fail(pool, conn, result, frisbeei_last_error(result));
            return;
        }
        conn->flags |= FRISBEEI_FINISHED;
        if (conn->flags & FRISBEEI_END_TOLD) frisbeei_begin_close(pool, conn, FRISBEE_CLOSED);
    }
    if (conn->state == FRISBEEI_DRAINING) frisbeei_linger(pool, conn);
    else if (frisbeei_handing(conn)) frisbeei_work(pool, conn, FRISBEEI_WORK_HAND);
    else if (conn->patterns && conn->patterns->fence_wanted && frisbeei_may_deliver(conn)) {
        conn->patterns->fence_wanted = false;
        frisbeei_ping(pool, conn);
    }
}

static void frisbeei_flush_conn(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbee_conn_desc *desc = &conn->profile->desc;
    if (!frisbeei_may_write(conn)) return;
    if (!(conn->flags & FRISBEEI_FINISHED)) frisbeei_write_out(pool, conn);
    while (conn->patterns && conn->patterns->waiting.first && frisbeei_may_write(conn) && frisbeei_pump(pool, conn)) frisbeei_write_out(pool, conn);
    if (conn->state == FRISBEEI_CLOSED || conn->flags & FRISBEEI_BROKEN) return;
    if (conn->queued == 0) frisbeei_flushed(pool, conn);
    else frisbeei_queue_trim(pool, conn);
    if (conn->flags & FRISBEEI_WANT_WRITABLE && conn->queued <= desc->low_water) {
        conn->flags &= ~(uint32_t)FRISBEEI_WANT_WRITABLE;
        if (desc->events && desc->events->on_writable) frisbeei_work(pool, conn, FRISBEEI_WORK_WRITABLE);
        if (conn->patterns && conn->patterns->streams.count) frisbeei_streams_room(pool, conn);
        if (conn->patterns && conn->patterns->asking && frisbeei_may_deliver(conn) && !frisbeei_subs_begin(pool, conn))
            frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
    }
    if (conn->flags & FRISBEEI_REPLIES_FULL && conn->replies <= frisbeei_replies_high(conn) / 4 &&
        (!pool->fixed || conn->queued <= desc->low_water)) {
        conn->flags &= ~(uint32_t)(FRISBEEI_REPLIES_FULL | FRISBEEI_UNWATCHED);
        conn->heard = pool->tick;
        frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
        frisbeei_interest(pool, conn);
    }
    if (conn->watch.interest & FRISBEE_WRITE && !(conn->flags & (FRISBEEI_BLOCKED | FRISBEEI_TRANSPORT_BUSY))) frisbeei_interest(pool, conn);
}

static void frisbeei_flush_all(frisbee_pool *pool) {
    uint32_t last = pool->dirty_tail, index = 0;
    while (pool->dirty_head && index != last) {
        frisbeei_conn *conn;
        index = pool->dirty_head;
        conn = frisbeei_at(pool, index);
        pool->dirty_head = conn->next_dirty;
        if (!pool->dirty_head) pool->dirty_tail = 0;
        conn->flags &= ~(uint32_t)FRISBEEI_IS_DIRTY;
        frisbeei_flush_conn(pool, conn);
    }
}

// >>sending: the checks that all of it shares, then copying or borrowing

static frisbee_result frisbeei_may_send(const frisbee_pool *pool, const frisbeei_conn *conn) {
    switch ((frisbeei_state)conn->state) {
    case FRISBEEI_OPEN:
        if (frisbeei_handing(conn)) return FRISBEE_HIJACKED;
        return conn->flags & FRISBEEI_FINISH ? FRISBEE_CLOSED : FRISBEE_OK;
    case FRISBEEI_WAITING:
    case FRISBEEI_RESOLVING:
    case FRISBEEI_CONNECTING:
    case FRISBEEI_OPENING:
    case FRISBEEI_SNIFFING:
        if (conn->flags & FRISBEEI_EVER_OPENED) return FRISBEE_NOT_SENT;
        return conn->flags & FRISBEEI_FINISH ? FRISBEE_CLOSED : FRISBEE_OK;
    case FRISBEEI_CLOSED: return frisbeei_will_retry(pool, conn) ? FRISBEE_NOT_SENT : FRISBEE_CLOSED;
    case FRISBEEI_FREE:
    case FRISBEEI_DRAINING:
    case FRISBEEI_LINGERING: break;
    }
    return FRISBEE_CLOSED;
}

static inline frisbee_result frisbeei_may_send_packet(const frisbee_pool *pool, const frisbeei_conn *conn, uint32_t operation, size_t length) {
    if (!FRISBEEI_LIKELY(conn->state == FRISBEEI_OPEN && !conn->extra && !(conn->flags & FRISBEEI_FINISH))) {
        const frisbee_result result = frisbeei_may_send(pool, conn);
        if (result != FRISBEE_OK) return result;
        if (!frisbeei_is_packets(conn)) return FRISBEE_INVALID;
    }
    if (operation < FRISBEEI_FIRST_OPERATION || operation > FRISBEEI_LAST_OPERATION) return FRISBEE_INVALID;
    return length > conn->profile->desc.max_packet || length + conn->header > conn->profile->desc.queue_limit ? FRISBEE_TOO_LARGE : FRISBEE_OK;
}

// A large copied payload is first offered to the socket from where it is; only what the socket leaves is copied, into room that was taken before.
static FRISBEEI_COLD frisbee_result frisbeei_queue_large(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation, uint32_t id, const void *data,
                                                         size_t length, bool reply) {
    frisbeei_chunk *own = frisbeei_chunk_new(pool, conn->header + length);
    frisbee_span spans[FRISBEEI_SPANS + 2];
    size_t count, done = 0, before;
    frisbee_result result = FRISBEE_OK;
    bool offered;
    if (!own) return FRISBEE_NO_MEMORY;
    frisbeei_put_header(own->data, conn->header, operation, id, (uint32_t)length);
    count = frisbeei_gather(conn, spans, &before);
    offered = count + 2 <= FRISBEEI_SPANS && before == conn->queued; // all that is queued goes before it
    if (offered) {
        spans[count].data = own->data;
        spans[count++].length = conn->header;
        spans[count].data = data;
        spans[count++].length = length;
        result = frisbeei_io_write(conn, spans, count, &done);
    }
    if (result != FRISBEE_OK && result != FRISBEE_AGAIN) { // the packet is accepted, and lost with its connection
        frisbeei_write_failed(pool, conn, result);
        offered = false;
        done = 0;
    }
    before = frisbeei_least(done, conn->queued);
    frisbeei_consume(pool, conn, before);
    done -= before;
    conn->written += done;
    if (done == conn->header + length) {
        frisbeei_chunk_free(pool, own);
        frisbeei_dirty(pool, conn); // there may be somebody to tell that the queue is empty
        return FRISBEE_OK;
    }
    before = done < conn->header ? 0 : done - conn->header;
    memcpy(own->data + conn->header + before, (const uint8_t *)data + before, length - before);
    own->start = own->end = done;
    frisbeei_chunk_append(conn, own);
    frisbeei_commit(pool, conn, conn->header + length - done, reply);
    if (offered && conn->state == FRISBEEI_OPEN) frisbeei_blocked(pool, conn, FRISBEEI_BLOCKED);
    return FRISBEE_OK;
}

static frisbee_result frisbeei_queue_copy(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation, uint32_t id, const void *data, size_t length,
                                          bool reply) {
    const size_t size = conn->header + length;
    frisbee_result result = FRISBEE_OK;
    uint8_t *at;
    if (frisbeei_over(pool, conn, size, reply)) return frisbeei_full(conn);
    at = conn->out_tail && conn->out_tail->room - conn->out_tail->end >= size ? conn->out_tail->data + conn->out_tail->end : NULL;
    if (length >= FRISBEEI_LARGE && !conn->io && !pool->fixed && conn->state == FRISBEEI_OPEN && !(conn->flags & FRISBEEI_BLOCKED) &&
        !(at && at + conn->header == (const uint8_t *)data)) {
        result = frisbeei_queue_large(pool, conn, operation, id, data, length, reply);
    } else {
        if (!at) at = frisbeei_room_slow(pool, conn, size);
        if (!at) return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
        if (length && at + conn->header != (const uint8_t *)data) memmove(at + conn->header, data, length);
        frisbeei_put_header(at, conn->header, operation, id, (uint32_t)length);
        frisbeei_commit(pool, conn, size, reply);
    }
    if (result == FRISBEE_OK) {
        conn->packets_out++;
        conn->used = pool->tick;
    }
    return result;
}

static frisbeei_chunk *frisbeei_borrow(frisbee_pool *pool, frisbee_span span) {
    frisbeei_chunk *chunk = (frisbeei_chunk *)frisbeei_allocate(pool, sizeof *chunk);
    if (!chunk) return NULL;
    memset(chunk, 0, sizeof *chunk);
    chunk->borrowed = true;
    chunk->data = (uint8_t *)(uintptr_t)span.data;
    chunk->end = chunk->room = span.length; // no room: nothing is ever appended to it
    return chunk;
}

static uint32_t frisbeei_borrowed(const frisbeei_conn *conn) {
    const frisbeei_chunk *chunk;
    uint32_t count = 0;
    for (chunk = conn->out_head; chunk; chunk = chunk->next) count += chunk->borrowed;
    return count;
}

static bool frisbeei_spans_total(const frisbee_span *spans, size_t count, size_t *total) {
    size_t i;
    *total = 0;
    for (i = 0; i < count; i++) {
        if (spans[i].length > (size_t)-1 / 2 - *total) return false;
        *total += spans[i].length;
    }
    return true;
}

// Queues borrowed pieces behind a header (header 0: raw bytes). All pieces are made before the first is appended: all or nothing.
static frisbee_result frisbeei_queue_borrowed(frisbee_pool *pool, frisbeei_conn *conn, size_t header, uint32_t operation, uint32_t id,
                                              const frisbee_span *spans, size_t count, size_t length, frisbee_release release, void *user,
                                              bool reply) {
    frisbeei_chunk *first = NULL, *last = NULL;
    const frisbee_span nothing = {NULL, 0};
    size_t i;
    if (frisbeei_over(pool, conn, header + length, reply)) return frisbeei_full(conn);
    if (pool->fixed && frisbeei_borrowed(conn) + (count ? count : 1) > FRISBEEI_FIXED_BORROWED) return frisbeei_full(conn);
    for (i = 0; i < count || i == 0; i++) {
        frisbeei_chunk *chunk = frisbeei_borrow(pool, count ? spans[i] : nothing);
        if (!chunk) {
            while (first) {
                last = first;
                first = first->next;
                frisbeei_chunk_free(pool, last);
            }
            return FRISBEE_NO_MEMORY;
        }
        if (reply) {
            chunk->replies = chunk->end + (first ? 0 : header);
            chunk->replies_end = (size_t)-1; // until all of it has left
        }
        if (last) last->next = chunk;
        else first = chunk;
        last = chunk;
    }
    last->release = release;
    last->user = user;
    if (header) {
        frisbeei_put_header(first->header, header, operation, id, (uint32_t)length);
        first->header_size = (uint8_t)header;
        conn->packets_out++;
    }
    if (conn->out_tail) conn->out_tail->next = first;
    else conn->out_head = first;
    conn->out_tail = last;
    conn->queued += (uint32_t)(header + length);
    if (reply) conn->replies += (uint32_t)(header + length);
    conn->used = pool->tick;
    frisbeei_dirty(pool, conn);
    if (conn->queued > conn->profile->desc.high_water) frisbeei_high(pool, conn, reply);
    return FRISBEE_OK;
}

static frisbee_result frisbeei_queue_spans(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation, uint32_t id, const frisbee_span *spans,
                                           size_t count, frisbee_release release, void *user, bool reply) {
    size_t length;
    frisbee_result result;
    if (count && !spans) return FRISBEE_INVALID;
    if (!frisbeei_spans_total(spans, count, &length)) return FRISBEE_TOO_LARGE;
    result = frisbeei_may_send_packet(pool, conn, operation, length);
    if (result != FRISBEE_OK) return result;
    return frisbeei_queue_borrowed(pool, conn, conn->header, operation, id, spans, count, length, release, user, reply);
}

// >>calls

static uint32_t frisbeei_call_limit(const frisbee_pool *pool, const frisbeei_conn *conn) { // slots that a table may grow to
    uint32_t limit = conn->flags & FRISBEEI_ACCEPTED ? 8192u : 65536u, fit = 4;
    if (!pool->fixed) return limit;
    while (fit < conn->profile->desc.max_calls && fit < limit) fit *= 2;
    return fit;
}

static bool frisbeei_calls_grow(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_calls *old = conn->calls, *calls;
    const uint32_t limit = frisbeei_call_limit(pool, conn);
    const uint32_t slots = pool->fixed ? limit : old ? (old->mask + 1) * 2 : 16;
    const size_t bytes = sizeof *calls + slots * sizeof *calls->slots;
    uint32_t i;
    if (slots > limit) return true; // as large as ids go: every id has its slot
    calls = (frisbeei_calls *)frisbeei_allocate(pool, bytes);
    if (!calls) return old != NULL && old->live + old->lost <= old->mask; // a full table still has free slots
    memset(calls, 0, bytes);
    if (old) *calls = *old;
    else calls->next = conn->flags & FRISBEEI_ACCEPTED ? FRISBEEI_LAST_CONNECTOR_ID + 1 : 1;
    calls->bytes = bytes;
    calls->mask = slots - 1;
    calls->slots = (frisbeei_call *)(void *)(calls + 1);
    for (i = 0; old && i <= old->mask; i++)
        if (old->slots[i].state != FRISBEEI_CALL_FREE) calls->slots[old->slots[i].id & calls->mask] = old->slots[i];
    if (old) frisbeei_give_back(pool, old, old->bytes);
    conn->calls = calls;
    return true;
}

// More than half of the slots are taken: a larger table, while ids allow one. False: no id is left, or no memory.
static FRISBEEI_COLD bool frisbeei_calls_crowded(frisbee_pool *pool, frisbeei_conn *conn) {
    const uint32_t ids = conn->flags & FRISBEEI_ACCEPTED ? 65535u - FRISBEEI_LAST_CONNECTOR_ID : (uint32_t)FRISBEEI_LAST_CONNECTOR_ID;
    const frisbeei_calls *calls = conn->calls;
    if ((!calls || calls->mask + 1 < frisbeei_call_limit(pool, conn)) && !frisbeei_calls_grow(pool, conn)) return false;
    calls = conn->calls;
    return calls->live + calls->lost <= calls->mask && calls->live + calls->lost < ids;
}

// A free slot for the next id, which goes to *id: ids go up and around, and skip taken slots. NULL: none is left.
static inline frisbeei_call *frisbeei_call_slot(frisbee_pool *pool, frisbeei_conn *conn, uint16_t *id) {
    const uint32_t first = conn->flags & FRISBEEI_ACCEPTED ? FRISBEEI_LAST_CONNECTOR_ID + 1u : 1u;
    const uint32_t last = conn->flags & FRISBEEI_ACCEPTED ? 65535u : (uint32_t)FRISBEEI_LAST_CONNECTOR_ID;
    frisbeei_calls *calls = conn->calls;
    frisbeei_call *slot;
    if (!FRISBEEI_LIKELY(calls && (calls->live + calls->lost) * 2 <= calls->mask)) {
        if (!frisbeei_calls_crowded(pool, conn)) return NULL;
        calls = conn->calls;
    }
    do { // ends: one is free
        slot = &calls->slots[calls->next & calls->mask];
        *id = calls->next;
        calls->next = (uint16_t)(calls->next == last ? first : calls->next + 1u);
    } while (slot->state != FRISBEEI_CALL_FREE);
    return slot;
}

// A handle of a call: connection's index, id, serial.
static frisbee_call_id frisbeei_call_handle(const frisbeei_conn *conn, const frisbeei_call *call) {
    frisbee_call_id handle;
    handle.id = (uint64_t)frisbeei_index(conn) << 40 | (uint64_t)call->id << 24 | call->serial;
    return handle;
}

static frisbeei_call *frisbeei_call_find(const frisbee_pool *pool, frisbee_call_id handle, frisbeei_conn **conn) {
    const uint32_t index = (uint32_t)(handle.id >> 40);
    const uint16_t id = (uint16_t)(handle.id >> 24);
    frisbeei_call *call;
    if (index == 0 || (index - 1) / FRISBEEI_PAGE >= pool->page_count) return NULL;
    *conn = frisbeei_at(pool, index);
    if ((*conn)->state == FRISBEEI_FREE || !(*conn)->calls) return NULL;
    call = &(*conn)->calls->slots[id & (*conn)->calls->mask];
    if (call->id != id || call->serial != (uint32_t)(handle.id & 0xFFFFFF)) return NULL;
    return call->state == FRISBEEI_CALL_LIVE ? call : NULL;
}

// Ends a call with its one on_reply. `keep_id`: its reply may still come.
static void frisbeei_call_end(frisbee_pool *pool, frisbeei_conn *conn, frisbeei_call *call, const frisbee_outcome *outcome, bool keep_id) {
    const frisbee_on_reply on_reply = call->on_reply;
    const frisbee_call_id handle = frisbeei_call_handle(conn, call);
    void *user = call->user;
    conn->calls->live--;
    if (keep_id) {
        const int32_t lost_ms = conn->profile->desc.lost_ms;
        conn->calls->lost++;
        call->state = FRISBEEI_CALL_LOST;
        call->timed = lost_ms >= 0;
        if (call->timed) {
            call->due = pool->tick + (uint32_t)lost_ms;
            if (!conn->calls->timed || (int32_t)(call->due - conn->calls->due) < 0) conn->calls->due = call->due;
            conn->calls->timed = true;
            frisbeei_timer_in(pool, conn, lost_ms);
        }
    } else call->state = FRISBEEI_CALL_FREE;
    if (on_reply) on_reply(pool, handle, outcome, user);
}

// Turns the still unsent frame at `offset` into one that every peer ignores. False: some of it left, or a transport has seen it, and may
// (as TLS does) already hold it encrypted.
static bool frisbeei_call_strike(frisbeei_conn *conn, uint64_t offset) {
    frisbeei_chunk *chunk;
    uint64_t at = conn->written;
    if (offset < at + conn->offered) return false;
    for (chunk = conn->out_head; chunk; at += frisbeei_chunk_size(chunk), chunk = chunk->next) {
        if (offset - at >= frisbeei_chunk_size(chunk)) continue;
        if (chunk->borrowed) frisbeei_put16(chunk->header + chunk->header_size - 6, FRISBEEI_NOTHING);
        else frisbeei_put16(chunk->data + chunk->start + (offset - at) + conn->header - 6, FRISBEEI_NOTHING);
        return true;
    }
    return false;
}

// Ends a live call without its reply.
static void frisbeei_call_give_up(frisbee_pool *pool, frisbeei_conn *conn, frisbeei_call *call, frisbee_result result) {
    frisbee_outcome outcome;
    memset(&outcome, 0, sizeof outcome);
    outcome.result = result;
    outcome.sent = !frisbeei_call_strike(conn, call->offset);
    frisbeei_call_end(pool, conn, call, &outcome, outcome.sent);
}

// Ends cancelled calls and those whose time is over; finds the next time. Callbacks may start calls, and so move the table.
static void frisbeei_calls_sweep(frisbee_pool *pool, frisbeei_conn *conn) {
    uint32_t i, mask;
    if (!conn->calls) return;
    conn->calls->timed = false;
    mask = conn->calls->mask;
    for (i = 0; conn->calls && i <= conn->calls->mask; i++) {
        frisbeei_call *call = &conn->calls->slots[i];
        const bool due = call->timed && (int32_t)(pool->turn_tick - call->due) >= 0;
        if (call->state == FRISBEEI_CALL_FREE) continue;
        if (call->state == FRISBEEI_CALL_CANCELLED) {
            frisbeei_call_give_up(pool, conn, call, FRISBEE_CANCELLED);
        } else if (due && call->state == FRISBEEI_CALL_LIVE) {
            frisbeei_call_give_up(pool, conn, call, FRISBEE_TIMED_OUT);
        } else if (due) {
            call->state = FRISBEEI_CALL_FREE;
            conn->calls->lost--;
        } else if (call->timed && (!conn->calls->timed || (int32_t)(call->due - conn->calls->due) < 0)) {
            conn->calls->due = call->due;
            conn->calls->timed = true;
        }
        if (conn->calls && conn->calls->mask != mask) { // it grew: everything lies elsewhere
            mask = conn->calls->mask;
            i = (uint32_t)-1;
        }
    }
}

// No reply can come any more: every call ends, as never sent or as unknown. While the queue still leaves, the unsent are struck from it.
static void frisbeei_calls_end_all(frisbee_pool *pool, frisbeei_conn *conn) {
    uint32_t i;
    for (i = 0; conn->calls && i <= conn->calls->mask; i++) {
        frisbeei_call *call = &conn->calls->slots[i];
        frisbee_outcome outcome;
        if (call->state == FRISBEEI_CALL_LOST) {
            call->state = FRISBEEI_CALL_FREE;
            conn->calls->lost--;
        }
        if (call->state == FRISBEEI_CALL_FREE) continue;
        memset(&outcome, 0, sizeof outcome);
        if (conn->state == FRISBEEI_CLOSED && !(conn->flags & FRISBEEI_HANDED_OVER)) outcome.sent = call->offset < conn->written;
        else outcome.sent = !frisbeei_call_strike(conn, call->offset);
        if (call->state == FRISBEEI_CALL_CANCELLED || pool->ending) outcome.result = FRISBEE_CANCELLED;
        else outcome.result = outcome.sent ? FRISBEE_UNKNOWN : FRISBEE_NOT_SENT;
        outcome.reason = conn->state == FRISBEEI_CLOSED ? (frisbee_result)conn->reason : frisbeei_handing(conn) ? FRISBEE_HIJACKED : FRISBEE_CLOSED;
        frisbeei_call_end(pool, conn, call, &outcome, false);
    }
}

// Is the packet the reply to a call of ours? Then it is told, or counted as late, and true.
static inline bool frisbeei_call_reply(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet, frisbee_result result) {
    frisbeei_calls *calls = conn->calls;
    frisbeei_call *call = &calls->slots[packet->from.id & calls->mask];
    frisbee_outcome outcome;
    if (call->state == FRISBEEI_CALL_FREE || call->id != packet->from.id || call->operation != packet->from.operation) return false;
    if (call->state == FRISBEEI_CALL_LOST) {
        call->state = FRISBEEI_CALL_FREE;
        calls->lost--;
        conn->late_replies++;
        return true;
    }
    outcome.result = call->state == FRISBEEI_CALL_LIVE ? result : FRISBEE_CANCELLED;
    outcome.reason = FRISBEE_OK;
    outcome.sent = true;
    outcome.data = call->state == FRISBEEI_CALL_LIVE ? packet->data : NULL;
    outcome.length = call->state == FRISBEEI_CALL_LIVE ? packet->length : 0;
    frisbeei_call_end(pool, conn, call, &outcome, false);
    return true;
}

// >>deferred: promised replies, by operation and id

static uint64_t frisbeei_deferred_key(const frisbee_origin *origin) { return ((uint64_t)origin->operation << 16 | origin->id) + 1; }

static uint32_t frisbeei_deferred_home(const frisbeei_deferred *deferred, uint64_t key) {
    return (uint32_t)((key * 0x9E3779B97F4A7C15u) >> 40) & deferred->mask;
}

static bool frisbeei_deferred_grow(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_deferred *old = conn->deferred, *grown;
    uint32_t slots = old ? (old->mask + 1) * 2 : 16, i, at;
    size_t bytes;
    if (pool->fixed)
        for (slots = 4; slots < conn->profile->desc.max_deferred * 2;) slots *= 2;
    bytes = sizeof *grown + slots * sizeof *grown->keys;
    grown = (frisbeei_deferred *)frisbeei_allocate(pool, bytes);
    if (!grown) return false;
    memset(grown, 0, bytes);
    grown->bytes = bytes;
    grown->mask = slots - 1;
    grown->keys = (uint64_t *)(void *)(grown + 1);
    for (i = 0; old && i <= old->mask; i++) {
        if (!old->keys[i]) continue;
        for (at = frisbeei_deferred_home(grown, old->keys[i]); grown->keys[at];) at = (at + 1) & grown->mask;
        grown->keys[at] = old->keys[i];
        grown->count++;
    }
    if (old) frisbeei_give_back(pool, old, old->bytes);
    conn->deferred = grown;
    return true;
}

static frisbee_result frisbeei_deferred_add(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_origin *origin) {
    frisbeei_deferred *deferred = conn->deferred;
    uint32_t at;
    if (deferred && deferred->count >= conn->profile->desc.max_deferred) return FRISBEE_AGAIN;
    if ((!deferred || deferred->count * 2 > deferred->mask) && !frisbeei_deferred_grow(pool, conn)) return FRISBEE_NO_MEMORY;
    deferred = conn->deferred;
    for (at = frisbeei_deferred_home(deferred, frisbeei_deferred_key(origin)); deferred->keys[at];) at = (at + 1) & deferred->mask;
    deferred->keys[at] = frisbeei_deferred_key(origin);
    deferred->count++;
    return FRISBEE_OK;
}

static bool frisbeei_deferred_has(const frisbeei_conn *conn, const frisbee_origin *origin, uint32_t *place) {
    const frisbeei_deferred *deferred = conn->deferred;
    const uint64_t key = frisbeei_deferred_key(origin);
    uint32_t at;
    if (!deferred || !deferred->count) return false;
    for (at = frisbeei_deferred_home(deferred, key); deferred->keys[at]; at = (at + 1) & deferred->mask)
        if (deferred->keys[at] == key) {
            *place = at;
            return true;
        }
    return false;
}

static void frisbeei_deferred_remove(frisbeei_deferred *deferred, uint32_t hole) { // those behind move up to where they are found
    uint32_t at = hole;
    for (;;) {
        uint32_t home;
        at = (at + 1) & deferred->mask;
        if (!deferred->keys[at]) break;
        home = frisbeei_deferred_home(deferred, deferred->keys[at]);
        if (((at - home) & deferred->mask) < ((at - hole) & deferred->mask)) continue;
        deferred->keys[hole] = deferred->keys[at];
        hole = at;
    }
    deferred->keys[hole] = 0;
    deferred->count--;
}

// >>kept input: the rest of a packet (or of many, while the connection is not read), in a buffer of about its size

static void frisbeei_in_free(frisbee_pool *pool, uint8_t *in, uint32_t room) {
    if (!in) return;
    if (room == FRISBEEI_SMALL && pool->spare_small_count < FRISBEEI_SPARE_SMALLS && !pool->fixed) {
        memcpy(in, &pool->spare_smalls, sizeof pool->spare_smalls);
        pool->spare_smalls = in;
        pool->spare_small_count++;
    } else frisbeei_give_back(pool, in, room);
}

static uint8_t *frisbeei_in_take(frisbee_pool *pool, size_t *room) {
    uint8_t *in;
    if (pool->fixed) *room = pool->desc.read_buffer;
    else if (*room <= FRISBEEI_SMALL) {
        *room = FRISBEEI_SMALL;
        in = pool->spare_smalls;
        if (in) {
            memcpy(&pool->spare_smalls, in, sizeof pool->spare_smalls);
            pool->spare_small_count--;
            return in;
        }
    }
    return (uint8_t *)frisbeei_allocate(pool, *room);
}

static void frisbeei_in_drop(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_in_free(pool, conn->in, conn->in_room);
    conn->in = NULL;
    conn->in_size = conn->in_room = 0;
}

static bool frisbeei_in_reserve(frisbee_pool *pool, frisbeei_conn *conn, size_t room) {
    size_t taken = room;
    uint8_t *in;
    if (room <= conn->in_room) return true;
    if (room > UINT32_MAX / 2) return false;
    in = frisbeei_in_take(pool, &taken);
    if (in && taken < room) { // a fixed block's buffers do not grow
        frisbeei_in_free(pool, in, (uint32_t)taken);
        in = NULL;
    }
    if (!in) return false;
    if (conn->in_size) memcpy(in, conn->in, conn->in_size);
    frisbeei_in_free(pool, conn->in, conn->in_room);
    conn->in = in;
    conn->in_room = (uint32_t)taken;
    return true;
}

static bool frisbeei_in_append(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *data, size_t size) {
    if (size == 0) return true;
    if (conn->in_size + size > conn->in_room) {
        const size_t wanted = conn->in_size + size, doubled = frisbeei_least((size_t)conn->in_room * 2, conn->profile->desc.max_packet);
        if (!frisbeei_in_reserve(pool, conn, wanted > doubled ? wanted : doubled)) {
            frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
            return false;
        }
    }
    memcpy(conn->in + conn->in_size, data, size);
    conn->in_size += (uint32_t)size;
    return true;
}

// Size of the packet at the head of `in`, as far as known; a header that is wrong, if only in its first byte, ends the connection and answers 0.
static size_t frisbeei_in_total(frisbee_pool *pool, frisbeei_conn *conn) {
    const uint8_t *at = conn->in;
    uint32_t length;
    if (conn->header == 10 && (at[0] != 0 || (conn->in_size > 1 && at[1] != 0x0F))) {
        frisbeei_fail(pool, conn, FRISBEE_MALFORMED, 0);
        return 0;
    }
    if (conn->in_size < conn->header) return conn->header;
    length = frisbeei_get32(at + conn->header - 4);
    if (length > conn->profile->desc.max_packet) {
        frisbeei_fail(pool, conn, FRISBEE_TOO_LARGE, 0);
        return 0;
    }
    return conn->header + (size_t)length;
}

// Room for a packet that claims `total` bytes: all of it while memory is plenty, else no more than twice what came.
static bool frisbeei_in_trust(frisbee_pool *pool, frisbeei_conn *conn, size_t total) {
    if (total <= conn->in_room) return true;
    if (pool->memory + total > pool->desc.max_memory / 2) {
        if (conn->in_size < conn->in_room) return true;
        total = frisbeei_least(total, (size_t)conn->in_size * 2 + FRISBEEI_SMALL);
    }
    if (frisbeei_in_reserve(pool, conn, total)) return true;
    frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
    return false;
}

// >>patterns: what streams and subscriptions of a connection share

#if FRISBEEI_PUBSUB || FRISBEEI_STREAMS
static uint32_t frisbeei_map_home(const frisbee_pool *pool, const frisbeei_map *map, uint32_t key) {
    return (uint32_t)((((uint64_t)key + 1) * (pool->hash_key[0] | 1)) >> 40) & map->mask;
}

static void *frisbeei_map_get(const frisbee_pool *pool, const frisbeei_map *map, uint32_t key) {
    uint32_t at;
    if (map->count == 0) return NULL;
    for (at = frisbeei_map_home(pool, map, key); map->slots[at].value; at = (at + 1) & map->mask)
        if (map->slots[at].key == key) return map->slots[at].value;
    return NULL;
}

static void frisbeei_map_free(frisbee_pool *pool, frisbeei_map *map) {
    frisbeei_heap_give(pool, map->slots, map->slots ? (map->mask + 1) * sizeof *map->slots : 0);
    memset(map, 0, sizeof *map);
}

static void frisbeei_map_place(const frisbee_pool *pool, frisbeei_map *map, uint32_t key, void *value) {
    uint32_t at;
    for (at = frisbeei_map_home(pool, map, key); map->slots[at].value;) at = (at + 1) & map->mask;
    map->slots[at].key = key;
    map->slots[at].value = value;
    map->count++;
}

// Adds a key that is not in it. False: no memory.
static bool frisbeei_map_put(frisbee_pool *pool, frisbeei_map *map, uint32_t key, void *value) {
    if (!map->slots || map->count * 2 > map->mask) {
        const uint32_t slots = map->slots ? (map->mask + 1) * 2 : 4;
        frisbeei_map grown;
        uint32_t i;
        memset(&grown, 0, sizeof grown);
        grown.slots = (frisbeei_map_slot *)frisbeei_heap_take(pool, slots * sizeof *grown.slots);
        if (!grown.slots) return false;
        memset(grown.slots, 0, slots * sizeof *grown.slots);
        grown.mask = slots - 1;
        for (i = 0; map->slots && i <= map->mask; i++)
            if (map->slots[i].value) frisbeei_map_place(pool, &grown, map->slots[i].key, map->slots[i].value);
        frisbeei_map_free(pool, map);
        *map = grown;
    }
    frisbeei_map_place(pool, map, key, value);
    return true;
}

// Those behind move up to where they are found; so a walk from slot 0 that removes what it meets looks at the same slot again.
static void frisbeei_map_remove(const frisbee_pool *pool, frisbeei_map *map, uint32_t key) {
    uint32_t at, hole;
    for (at = frisbeei_map_home(pool, map, key); map->slots[at].key != key || !map->slots[at].value;) at = (at + 1) & map->mask;
    for (hole = at;;) {
        at = (at + 1) & map->mask;
        if (!map->slots[at].value) break;
        if (((at - frisbeei_map_home(pool, map, map->slots[at].key)) & map->mask) < ((at - hole) & map->mask)) continue;
        map->slots[hole] = map->slots[at];
        hole = at;
    }
    map->slots[hole].value = NULL;
    map->count--;
}

static bool frisbeei_patterns_need(frisbee_pool *pool, frisbeei_conn *conn) {
    if (conn->patterns) return true;
    conn->patterns = (frisbeei_patterns *)frisbeei_heap_take(pool, sizeof *conn->patterns);
    if (!conn->patterns) return false;
    memset(conn->patterns, 0, sizeof *conn->patterns);
    conn->patterns->next_stream = conn->flags & FRISBEEI_ACCEPTED ? FRISBEEI_LAST_CONNECTOR_STREAM + 1 : 1;
    conn->patterns->next_sub = 1;
    return true;
}
#endif

// Queues an answer to what the peer sent; it counts as a reply, so that a peer that does not read its answers is not read.
static void frisbeei_answer(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation, uint32_t id, const void *data, size_t length) {
    if (frisbeei_may_deliver(conn) && !frisbeei_queue_own(pool, conn, operation, id, data, length, true))
        frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
}

// >>streams: each is in its connection's map by id, from the first message (or frisbee_stream_open) until both sides have closed it. on_close,
// on_writable and what was kept are handed out from a list at a safe point of the turn, messages at once.

#if FRISBEEI_STREAMS
#define FRISBEEI_UNLIMITED (INT64_MAX / 2) // credit with a stock peer
#define FRISBEEI_MOVED (1u << 24)          // keys of streams that have no id any more

static frisbee_stream frisbeei_stream_handle(const frisbeei_stream *stream) {
    frisbee_stream handle;
    handle.id = (uint64_t)frisbeei_index(stream->conn) << 40 | (uint64_t)stream->id << 24 | stream->serial;
    return handle;
}

static frisbeei_stream *frisbeei_stream_find(const frisbee_pool *pool, frisbee_stream handle) {
    const uint32_t index = (uint32_t)(handle.id >> 40), serial = (uint32_t)(handle.id & 0xFFFFFF);
    frisbeei_stream *stream;
    frisbeei_conn *conn;
    if (index == 0 || (index - 1) / FRISBEEI_PAGE >= pool->page_count) return NULL;
    conn = frisbeei_at(pool, index);
    if (conn->state == FRISBEEI_FREE || !conn->patterns) return NULL;
    stream = (frisbeei_stream *)frisbeei_map_get(pool, &conn->patterns->streams, (uint16_t)(handle.id >> 24));
    if (!stream || stream->serial != serial)
        stream = (frisbeei_stream *)frisbeei_map_get(pool, &conn->patterns->streams, FRISBEEI_MOVED | serial);
    return stream && stream->serial == serial && stream->state != FRISBEEI_STREAM_SHUT ? stream : NULL;
}

static void frisbeei_stream_append(frisbeei_stream *stream, frisbeei_stream **first, frisbeei_stream **last) {
    stream->next = NULL;
    if (*first) (*last)->next = stream;
    else *first = stream;
    *last = stream;
}

static void frisbeei_stream_todo(frisbee_pool *pool, frisbeei_stream *stream, uint8_t bits) {
    frisbeei_patterns *patterns = stream->conn->patterns;
    if (!stream->todo) frisbeei_stream_append(stream, &patterns->todo, &patterns->todo_last);
    stream->todo = (uint8_t)(stream->todo | bits);
    frisbeei_work(pool, stream->conn, FRISBEEI_WORK_STREAMS);
}

static frisbeei_stream *frisbeei_stream_new(frisbee_pool *pool, frisbeei_conn *conn, uint16_t id, const frisbee_stream_events *events, void *user) {
    frisbeei_patterns *patterns = conn->patterns;
    frisbeei_stream *stream = (frisbeei_stream *)frisbeei_heap_take(pool, sizeof *stream);
    if (!stream) return NULL;
    memset(stream, 0, sizeof *stream);
    if (!frisbeei_map_put(pool, &patterns->streams, id, stream)) {
        frisbeei_heap_give(pool, stream, sizeof *stream);
        return NULL;
    }
    stream->conn = conn;
    stream->events = events;
    stream->user = user;
    stream->key = stream->id = id;
    stream->serial = pool->serial = (pool->serial + 1) & 0xFFFFFF;
    stream->credit = patterns->peer_window;
    if (patterns->peer == FRISBEEI_PEER_UNKNOWN) stream->credit = FRISBEEI_EARLY_CREDIT;
    else if (patterns->peer == FRISBEEI_PEER_STOCK) stream->credit = FRISBEEI_UNLIMITED;
    patterns->live++;
    return stream;
}

static void frisbeei_stream_kept_free(frisbee_pool *pool, frisbeei_stream *stream) {
    if (!stream->kept) return;
    frisbeei_heap_give(pool, stream->kept, stream->kept_room);
    stream->kept = NULL;
    stream->kept_at = stream->kept_size = stream->kept_room = stream->kept_bytes = 0;
    stream->conn->patterns->kept--;
}

// >>dead: ids that are kept from use

static bool frisbeei_dead_has(const frisbeei_dead *dead, uint16_t id) {
    const uint8_t *page = dead ? dead->pages[id >> 10] : NULL;
    return page && page[(id & 1023) >> 3] >> (id & 7) & 1;
}

static void frisbeei_dead_free(frisbee_pool *pool, frisbeei_dead **dead) {
    uint32_t i;
    if (!*dead) return;
    for (i = 0; i < 64; i++) frisbeei_heap_give(pool, (*dead)->pages[i], 128);
    frisbeei_heap_give(pool, *dead, sizeof **dead);
    *dead = NULL;
}

static void frisbeei_dead_clear(frisbee_pool *pool, frisbeei_dead **dead, uint16_t id) {
    uint8_t *byte;
    if (!frisbeei_dead_has(*dead, id)) return;
    byte = &(*dead)->pages[id >> 10][(id & 1023) >> 3];
    *byte = (uint8_t)(*byte & ~(1u << (id & 7)));
    if (--(*dead)->count == 0) frisbeei_dead_free(pool, dead);
}

static bool frisbeei_dead_set(frisbee_pool *pool, frisbeei_dead **dead, uint16_t id) {
    uint8_t **page;
    if (!*dead) {
        *dead = (frisbeei_dead *)frisbeei_heap_take(pool, sizeof **dead);
        if (!*dead) return false;
        memset(*dead, 0, sizeof **dead);
    }
    page = &(*dead)->pages[id >> 10];
    if (!*page) {
        *page = (uint8_t *)frisbeei_heap_take(pool, 128);
        if (*page) memset(*page, 0, 128);
        else if ((*dead)->count == 0) frisbeei_dead_free(pool, dead);
        if (!*dead || !*page) return false;
    }
    if (frisbeei_dead_has(*dead, id)) return true;
    (*page)[(id & 1023) >> 3] = (uint8_t)((*page)[(id & 1023) >> 3] | 1u << (id & 7));
    (*dead)->count++;
    return true;
}

// The next PING is behind all closes so far, and a stock peer has seen them when its PONG comes. One of its writers may still be about to write
// to a closed stream then, so that it is the PONG to a PING some time later that confirms them.
static void frisbeei_dead_rotate(frisbeei_patterns *patterns) {
    patterns->dying = patterns->dead;
    patterns->dead = NULL;
    patterns->fence = patterns->pings + 1;
    patterns->fence_stage = 0;
    patterns->fence_wanted = patterns->dying != NULL;
}

static void frisbeei_dead_pong(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_patterns *patterns = conn->patterns;
    if (!patterns->dying || patterns->pongs < patterns->fence || patterns->fence_stage == 1) return;
    if (patterns->fence_stage == 0) {
        patterns->fence_stage = 1;
        patterns->fence_since = pool->tick;
        frisbeei_timer_in(pool, conn, FRISBEEI_FENCE_MS);
        return;
    }
    frisbeei_dead_free(pool, &patterns->dying);
    frisbeei_dead_rotate(patterns);
    if (patterns->fence_wanted) frisbeei_dirty(pool, conn); // the flush sends the PING
}

// A close was queued: what still comes for this id is dropped until the peer has confirmed it.
static void frisbeei_id_bury(frisbee_pool *pool, frisbeei_conn *conn, uint16_t id) {
    frisbeei_patterns *patterns = conn->patterns;
    if (!frisbeei_dead_set(pool, &patterns->dead, id)) {
        if (!pool->fixed) frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0); // or a stream could begin in its middle
        else if (patterns->peer == FRISBEEI_PEER_FRISBEE) patterns->spare_ids[patterns->spare_next++ % FRISBEEI_SPARE_IDS] = id;
    }
    if (!patterns->dying && patterns->peer != FRISBEEI_PEER_FRISBEE) frisbeei_dead_rotate(patterns);
    if (patterns->fence_wanted) frisbeei_dirty(pool, conn); // the flush sends the PING
}

static bool frisbeei_id_buried(const frisbeei_patterns *patterns, uint16_t id) {
    uint32_t i;
    for (i = 0; i < FRISBEEI_SPARE_IDS && i < patterns->spare_next; i++)
        if (patterns->spare_ids[i] == id && id) return true;
    return frisbeei_dead_has(patterns->dead, id) || frisbeei_dead_has(patterns->dying, id);
}

// The peer has confirmed the close.
static void frisbeei_id_free(frisbee_pool *pool, frisbeei_conn *conn, uint16_t id) {
    frisbeei_patterns *patterns = conn->patterns;
    uint32_t i;
    for (i = 0; i < FRISBEEI_SPARE_IDS && i < patterns->spare_next; i++)
        if (patterns->spare_ids[i] == id) patterns->spare_ids[i] = 0;
    frisbeei_dead_clear(pool, &patterns->dead, id);
    frisbeei_dead_clear(pool, &patterns->dying, id);
    if (!patterns->dead || patterns->dying || patterns->peer == FRISBEEI_PEER_FRISBEE) return;
    frisbeei_dead_rotate(patterns);
    frisbeei_dirty(pool, conn); // the flush sends the PING
}

static void frisbeei_stream_free(frisbee_pool *pool, frisbeei_stream *stream) {
    frisbeei_map_remove(pool, &stream->conn->patterns->streams, stream->key);
    frisbeei_heap_give(pool, stream, sizeof *stream);
}

// Queues the packets that a stream owes; what finds no room is tried again when the queue is low.
static void frisbeei_stream_pay(frisbee_pool *pool, frisbeei_stream *stream) {
    frisbeei_conn *conn = stream->conn;
    frisbeei_patterns *patterns = conn->patterns;
    uint8_t credit[4];
    if (!frisbeei_may_deliver(conn)) return;
    if (stream->owes_credit && !frisbeei_over(pool, conn, conn->header + sizeof credit, true)) {
        frisbeei_put32(credit, stream->consumed);
        if (frisbeei_queue_own(pool, conn, FRISBEEI_CREDIT, stream->id, credit, sizeof credit, true)) {
            stream->owes_credit = false;
            stream->consumed = 0;
        } else if (!pool->fixed) frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
    }
    if (stream->owes_close && !stream->owes_credit && !frisbeei_over(pool, conn, conn->header, true)) {
        if (frisbeei_queue_own(pool, conn, FRISBEEI_STREAM, stream->id, NULL, 0, true)) stream->owes_close = false;
        else if (!pool->fixed) frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
    }
    if (!stream->owes_credit && !stream->owes_close) return;
    patterns->owing = true;
    conn->flags |= FRISBEEI_WANT_WRITABLE;
}

// The stream is over. A peer that knows of it is told, or, if it closed first and expects that, answered.
static void frisbeei_stream_end(frisbee_pool *pool, frisbeei_stream *stream, frisbee_result reason) {
    if (stream->state != FRISBEEI_STREAM_OPEN) return;
    stream->state = FRISBEEI_STREAM_ENDED;
    stream->reason = (int8_t)reason;
    stream->owes_credit = false;
    // a stock peer takes what was under way to it for the beginning of another stream: where the id is ours, a close can only end that
    if (stream->key == stream->id)
        stream->owes_close = stream->known && (!stream->ended || stream->own || stream->conn->patterns->peer == FRISBEEI_PEER_FRISBEE);
    frisbeei_stream_todo(pool, stream, FRISBEEI_TODO_TELL);
    if (stream->owes_close) frisbeei_stream_pay(pool, stream);
}

// Nothing is left of a stream but its id, if the peer has not confirmed that it is closed.
static void frisbeei_stream_bury(frisbee_pool *pool, frisbeei_stream *stream) {
    frisbeei_conn *conn = stream->conn;
    const uint16_t id = stream->id;
    const bool confirmed = stream->ended || !stream->known;
    frisbeei_stream_free(pool, stream);
    if (!confirmed) frisbeei_id_bury(pool, conn, id);
}

// on_close, the last callback of a stream. `last`: the session ends, nothing need be remembered.
static void frisbeei_stream_tell(frisbee_pool *pool, frisbeei_stream *stream, bool last) {
    stream->conn->patterns->live--;
    frisbeei_stream_kept_free(pool, stream);
    if (stream->events->on_close) stream->events->on_close(pool, frisbeei_stream_handle(stream), (frisbee_result)stream->reason, stream->user);
    if (last) frisbeei_stream_free(pool, stream);
    else if (stream->owes_close) stream->state = FRISBEEI_STREAM_SHUT;
    else frisbeei_stream_bury(pool, stream);
}

// Bytes that were handed out go back to the sender as credit when they make half of the window.
static void frisbeei_stream_give_back(frisbee_pool *pool, frisbeei_stream *stream) {
    const uint32_t half = stream->conn->profile->desc.stream_window / 2;
    if (stream->consumed < (half ? half : 1) || stream->state != FRISBEEI_STREAM_OPEN || stream->ended) return;
    if (stream->conn->patterns->peer != FRISBEEI_PEER_FRISBEE) return;
    stream->owes_credit = true;
    frisbeei_stream_pay(pool, stream);
}

static void frisbeei_stream_deliver(frisbee_pool *pool, frisbeei_stream *stream, const void *data, uint32_t length) {
    if (stream->events->on_data) stream->events->on_data(pool, frisbeei_stream_handle(stream), data, length, stream->user);
    if (stream->consumed <= UINT32_MAX / 2) stream->consumed += length;
    frisbeei_stream_give_back(pool, stream);
}

static void frisbeei_stream_keep(frisbee_pool *pool, frisbeei_stream *stream, const void *data, uint32_t length) {
    const frisbee_conn_desc *desc = &stream->conn->profile->desc;
    const uint64_t bound = (uint64_t)desc->stream_window + FRISBEEI_EARLY_CREDIT; // and one message more
    const uint64_t wanted = (uint64_t)(stream->kept_size - stream->kept_at) + sizeof length + length;
    if (stream->kept_bytes > bound || wanted > UINT32_MAX / 2) {
        frisbeei_stream_end(pool, stream, FRISBEE_EXHAUSTED);
        return;
    }
    if (!stream->kept || stream->kept_size + sizeof length + length > stream->kept_room) {
        const uint32_t room = (uint32_t)(wanted + (stream->kept ? wanted / 2 : 0));
        uint8_t *kept = (uint8_t *)frisbeei_heap_take(pool, room);
        if (!kept) {
            frisbeei_stream_end(pool, stream, FRISBEE_NO_MEMORY);
            return;
        }
        if (!stream->kept) stream->conn->patterns->kept++;
        else memcpy(kept, stream->kept + stream->kept_at, stream->kept_size - stream->kept_at);
        frisbeei_heap_give(pool, stream->kept, stream->kept_room);
        stream->kept = kept;
        stream->kept_room = room;
        stream->kept_size -= stream->kept_at;
        stream->kept_at = 0;
    }
    memcpy(stream->kept + stream->kept_size, &length, sizeof length);
    memcpy(stream->kept + stream->kept_size + sizeof length, data, length);
    stream->kept_size += (uint32_t)sizeof length + length;
    stream->kept_bytes += length;
}

// Hands out what was kept, until it is all gone or the stream is paused again.
static void frisbeei_stream_release(frisbee_pool *pool, frisbeei_stream *stream) {
    while (stream->kept_at < stream->kept_size && stream->state == FRISBEEI_STREAM_OPEN && !stream->paused &&
           stream->conn->state == FRISBEEI_OPEN && !(stream->conn->flags & FRISBEEI_PAUSED) && !pool->ending && !pool->spent) {
        const uint8_t *at = stream->kept + stream->kept_at;
        uint32_t length;
        memcpy(&length, at, sizeof length);
        stream->kept_at += (uint32_t)sizeof length + length;
        stream->kept_bytes -= length;
        frisbeei_stream_deliver(pool, stream, at + sizeof length, length);
        frisbeei_budget_count(pool);
    }
    if (pool->spent && stream->kept_at < stream->kept_size && !stream->paused && stream->state == FRISBEEI_STREAM_OPEN)
        frisbeei_stream_todo(pool, stream, FRISBEEI_TODO_KEPT);
    if (stream->kept_at == stream->kept_size) frisbeei_stream_kept_free(pool, stream);
    if (stream->ended && !stream->kept) frisbeei_stream_end(pool, stream, FRISBEE_CLOSED);
}

// Does what the streams in the list have to do. What they add to it meanwhile is done as well, within bounds.
static void frisbeei_streams_run(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_patterns *patterns = conn->patterns;
    uint32_t rounds = patterns ? patterns->streams.count * 3 : 0;
    while (rounds-- > 0 && patterns->todo && conn->state == FRISBEEI_OPEN && !pool->ending && !pool->spent) {
        frisbeei_stream *stream = patterns->todo;
        const uint8_t todo = stream->todo;
        patterns->todo = stream->next;
        stream->todo = 0;
        if (todo & FRISBEEI_TODO_KEPT) frisbeei_stream_release(pool, stream);
        if (todo & FRISBEEI_TODO_WRITABLE && stream->state == FRISBEEI_STREAM_OPEN && stream->wants && conn->state == FRISBEEI_OPEN) {
            stream->wants = false;
            if (stream->events->on_writable) stream->events->on_writable(pool, frisbeei_stream_handle(stream), stream->user);
        }
        if (todo & FRISBEEI_TODO_TELL) frisbeei_stream_tell(pool, stream, conn->state != FRISBEEI_OPEN);
    }
    if (patterns && patterns->todo) frisbeei_work(pool, conn, FRISBEEI_WORK_STREAMS);
    if (patterns && !patterns->kept) frisbeei_ended_done(pool, conn);
}

// The queue has room again: for packets that are owed, and for streams that were answered AGAIN.
static void frisbeei_streams_room(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_patterns *patterns = conn->patterns;
    const bool owing = patterns->owing;
    uint32_t i;
    patterns->owing = false;
    for (i = 0; i <= patterns->streams.mask; i++) {
        frisbeei_stream *stream = (frisbeei_stream *)patterns->streams.slots[i].value;
        if (!stream) continue;
        if (owing && (stream->owes_credit || stream->owes_close)) frisbeei_stream_pay(pool, stream);
        if (stream->state == FRISBEEI_STREAM_OPEN && stream->wants && stream->credit > 0)
            frisbeei_stream_todo(pool, stream, FRISBEEI_TODO_WRITABLE);
        if (stream->state == FRISBEEI_STREAM_SHUT && !stream->owes_close) {
            frisbeei_stream_bury(pool, stream);
            i--; // another one may lie there now
        }
    }
}

// The connection is no longer paused: what was kept meanwhile goes on.
static void frisbeei_streams_resume(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbeei_map *map = &conn->patterns->streams;
    uint32_t i;
    for (i = 0; i <= map->mask; i++) {
        frisbeei_stream *stream = (frisbeei_stream *)map->slots[i].value;
        if (stream && stream->state == FRISBEEI_STREAM_OPEN && stream->kept && !stream->paused)
            frisbeei_stream_todo(pool, stream, FRISBEEI_TODO_KEPT);
    }
}

// Ends all streams of a session. That a connection was closed does not say that its streams had come to their end.
static void frisbeei_streams_end(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result reason) {
    frisbeei_patterns *patterns = conn->patterns;
    uint32_t i;
    patterns->todo = NULL;
    for (i = 0; patterns->streams.slots && i <= patterns->streams.mask; i++) {
        frisbeei_stream *stream = (frisbeei_stream *)patterns->streams.slots[i].value;
        if (!stream) continue;
        stream->todo = 1; // never in the list again
        if (stream->state != FRISBEEI_STREAM_OPEN) continue;
        stream->state = FRISBEEI_STREAM_ENDED;
        stream->reason = (int8_t)(reason == FRISBEE_OK || reason == FRISBEE_CLOSED ? FRISBEE_UNKNOWN : reason);
    }
    for (i = 0; patterns->streams.slots && i <= patterns->streams.mask;) {
        frisbeei_stream *stream = (frisbeei_stream *)patterns->streams.slots[i].value;
        if (!stream) i++;
        else if (stream->state == FRISBEEI_STREAM_ENDED) frisbeei_stream_tell(pool, stream, true);
        else frisbeei_stream_free(pool, stream);
    }
    frisbeei_map_free(pool, &patterns->streams);
    frisbeei_dead_free(pool, &patterns->dead);
    frisbeei_dead_free(pool, &patterns->dying);
    patterns->spare_next = 0;
    patterns->pings = patterns->pongs = 0;
    patterns->peer = FRISBEEI_PEER_UNKNOWN;
    patterns->begun = patterns->owing = patterns->fence_wanted = false;
    patterns->next_stream = conn->flags & FRISBEEI_ACCEPTED ? FRISBEEI_LAST_CONNECTOR_STREAM + 1 : 1;
}

// Now it is known who the peer is, and so what credit the streams have that were opened before.
static void frisbeei_peer_known(frisbee_pool *pool, frisbeei_conn *conn, frisbeei_peer peer, uint32_t window) {
    frisbeei_patterns *patterns = conn->patterns;
    uint32_t i;
    patterns->peer = (uint8_t)peer;
    patterns->peer_window = window;
    for (i = 0; patterns->streams.slots && i <= patterns->streams.mask; i++) {
        frisbeei_stream *stream = (frisbeei_stream *)patterns->streams.slots[i].value;
        if (!stream || stream->state != FRISBEEI_STREAM_OPEN) continue;
        if (peer == FRISBEEI_PEER_STOCK) stream->credit = FRISBEEI_UNLIMITED;
        else if (window == 0) {
            stream->known = false; // it drops them
            frisbeei_stream_end(pool, stream, FRISBEE_REFUSED);
        } else {
            stream->credit += (int64_t)window - FRISBEEI_EARLY_CREDIT;
            frisbeei_stream_give_back(pool, stream);
        }
        if (stream->wants && stream->credit > 0) frisbeei_stream_todo(pool, stream, FRISBEEI_TODO_WRITABLE);
    }
}

static bool frisbeei_hello(frisbee_pool *pool, frisbeei_conn *conn, bool reply) {
    uint8_t window[4];
    frisbeei_put32(window, conn->patterns && conn->patterns->begun ? conn->profile->desc.stream_window : 0);
    return frisbeei_queue_own(pool, conn, FRISBEEI_HELLO, 0, window, sizeof window, reply);
}

// A connector that has streams says hello before anything else is queued.
static bool frisbeei_streams_begin(frisbee_pool *pool, frisbeei_conn *conn) {
    if (!conn->profile->desc.streams || !frisbeei_is_packets(conn)) return true;
    if (!frisbeei_patterns_need(pool, conn)) return pool->fixed; // it does without streams
    conn->patterns->begun = true;
    return conn->flags & FRISBEEI_ACCEPTED || frisbeei_hello(pool, conn, false);
}

static void frisbeei_hello_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    uint32_t window;
    if (packet->length < 4) {
        frisbeei_fail(pool, conn, FRISBEE_MALFORMED, 0);
        return;
    }
    window = frisbeei_get32((const uint8_t *)packet->data);
    if (conn->patterns && conn->patterns->begun && conn->patterns->peer == FRISBEEI_PEER_UNKNOWN) {
        if (conn->flags & FRISBEEI_ACCEPTED && frisbeei_may_deliver(conn) && !frisbeei_hello(pool, conn, true))
            frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
        else frisbeei_peer_known(pool, conn, FRISBEEI_PEER_FRISBEE, (uint32_t)frisbeei_least(window, 1u << 30));
    } else if (conn->flags & FRISBEEI_ACCEPTED && !(conn->patterns && conn->patterns->begun)) {
        if (frisbeei_may_deliver(conn) && !frisbeei_hello(pool, conn, true)) frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
    } else conn->dropped++;
}

static void frisbeei_credit_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    frisbeei_stream *stream = NULL;
    if (packet->length < 4) {
        frisbeei_fail(pool, conn, FRISBEE_MALFORMED, 0);
        return;
    }
    if (conn->patterns && conn->patterns->peer == FRISBEEI_PEER_FRISBEE)
        stream = (frisbeei_stream *)frisbeei_map_get(pool, &conn->patterns->streams, packet->from.id);
    if (!stream || stream->state != FRISBEEI_STREAM_OPEN) {
        conn->dropped++;
        return;
    }
    stream->credit += frisbeei_get32((const uint8_t *)packet->data);
    if (stream->credit > FRISBEEI_UNLIMITED) stream->credit = FRISBEEI_UNLIMITED;
    if (stream->wants && stream->credit > 0) frisbeei_stream_todo(pool, stream, FRISBEEI_TODO_WRITABLE);
}

// The first message of a stream that is not known. NULL: it is not taken.
static frisbeei_stream *frisbeei_stream_accept(frisbee_pool *pool, frisbeei_conn *conn, uint16_t id) {
    const frisbee_conn_desc *desc = &conn->profile->desc;
    const bool ours = conn->flags & FRISBEEI_ACCEPTED ? id > FRISBEEI_LAST_CONNECTOR_STREAM : id && id <= FRISBEEI_LAST_CONNECTOR_STREAM;
    frisbeei_stream *stream = NULL;
    if (conn->patterns->peer == FRISBEEI_PEER_FRISBEE && ours) return NULL; // one that has been closed here
    if (desc->streams->on_open && conn->patterns->live < desc->max_streams && !pool->shut && !(conn->flags & FRISBEEI_FINISH))
        stream = frisbeei_stream_new(pool, conn, id, desc->streams, NULL);
    if (!stream) {
        frisbeei_answer(pool, conn, FRISBEEI_STREAM, id, NULL, 0);
        frisbeei_id_bury(pool, conn, id);
        return NULL;
    }
    stream->known = true;
    desc->streams->on_open(pool, frisbeei_handle(conn), frisbeei_stream_handle(stream), conn->user);
    return stream;
}

static void frisbeei_stream_closed_by_peer(frisbee_pool *pool, frisbeei_stream *stream) {
    frisbeei_map *map = &stream->conn->patterns->streams;
    stream->ended = true;
    if (!stream->kept) {
        frisbeei_stream_end(pool, stream, FRISBEE_CLOSED);
        return;
    }
    if (stream->conn->patterns->peer == FRISBEEI_PEER_FRISBEE) return; // what was kept comes first, and the answer behind it
    if (frisbeei_map_get(pool, map, FRISBEEI_MOVED | stream->serial)) { // serials went around
        frisbeei_stream_end(pool, stream, FRISBEE_EXHAUSTED);
        return;
    }
    if (stream->own) {
        stream->owes_close = true;
        frisbeei_stream_pay(pool, stream);
    }
    frisbeei_map_remove(pool, map, stream->key); // a stock peer may use the id again at once
    stream->key = FRISBEEI_MOVED | stream->serial;
    frisbeei_map_place(pool, map, stream->key, stream); // in the room that it had
}

static void frisbeei_stream_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    frisbeei_patterns *patterns = conn->patterns;
    frisbeei_stream *stream;
    if (!patterns || !patterns->begun) {
        conn->dropped++;
        return;
    }
    stream = (frisbeei_stream *)frisbeei_map_get(pool, &patterns->streams, packet->from.id);
    if (stream && stream->state == FRISBEEI_STREAM_ENDED && stream->ended) { // a stock peer may use the id again at once
        frisbeei_streams_run(pool, conn);
        if (conn->state != FRISBEEI_OPEN || pool->ending) return;
        stream = (frisbeei_stream *)frisbeei_map_get(pool, &patterns->streams, packet->from.id);
    }
    if (!stream && packet->length && patterns->live >= conn->profile->desc.max_streams && patterns->todo) { // those that are over make room
        frisbeei_streams_run(pool, conn);
        if (conn->state != FRISBEEI_OPEN || pool->ending) return;
        stream = (frisbeei_stream *)frisbeei_map_get(pool, &patterns->streams, packet->from.id); // one may have been opened here meanwhile
    }
    if (!stream && frisbeei_id_buried(patterns, packet->from.id)) {
        if (packet->length) conn->dropped++;
        else frisbeei_id_free(pool, conn, packet->from.id);
        return;
    }
    if (packet->length == 0) {
        if (stream) frisbeei_stream_closed_by_peer(pool, stream);
        else conn->dropped++;
        return;
    }
    if (!stream) stream = frisbeei_stream_accept(pool, conn, packet->from.id);
    if (!stream || stream->state != FRISBEEI_STREAM_OPEN || stream->ended || conn->state != FRISBEEI_OPEN || pool->ending) conn->dropped++;
    else if (stream->paused || stream->kept) frisbeei_stream_keep(pool, stream, packet->data, packet->length);
    else frisbeei_stream_deliver(pool, stream, packet->data, packet->length);
}

// Would a message with this id begin a stream?
static bool frisbeei_opens_stream(const frisbee_pool *pool, const frisbeei_conn *conn, uint16_t id) {
    const frisbeei_patterns *patterns = conn->patterns;
    return patterns && patterns->begun && !frisbeei_map_get(pool, &patterns->streams, id) && !frisbeei_id_buried(patterns, id);
}

// The packet at the head of what came: an acceptor's first one says who the peer is.
static void frisbeei_streams_first(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation) {
    if (conn->patterns->begun && conn->patterns->peer == FRISBEEI_PEER_UNKNOWN && conn->flags & FRISBEEI_ACCEPTED && operation != FRISBEEI_HELLO)
        frisbeei_peer_known(pool, conn, FRISBEEI_PEER_STOCK, 0);
}

// A PONG tells a connector that did not get a HELLO before that its peer is stock, and confirms closes to a stock peer.
static void frisbeei_streams_pong(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_patterns *patterns = conn->patterns;
    if (!patterns->begun) return;
    if (patterns->peer == FRISBEEI_PEER_UNKNOWN) frisbeei_peer_known(pool, conn, FRISBEEI_PEER_STOCK, 0);
    patterns->pongs++;
    if (patterns->peer == FRISBEEI_PEER_STOCK) frisbeei_dead_pong(pool, conn);
}
#else
static void frisbeei_streams_run(frisbee_pool *pool, frisbeei_conn *conn) { (void)pool, (void)conn; }
static void frisbeei_streams_room(frisbee_pool *pool, frisbeei_conn *conn) { (void)pool, (void)conn; }
static void frisbeei_streams_resume(frisbee_pool *pool, frisbeei_conn *conn) { (void)pool, (void)conn; }
static bool frisbeei_opens_stream(const frisbee_pool *pool, const frisbeei_conn *conn, uint16_t id) {
    (void)pool, (void)conn, (void)id;
    return false;
}
static void frisbeei_streams_end(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result reason) { (void)pool, (void)conn, (void)reason; }
static bool frisbeei_streams_begin(frisbee_pool *pool, frisbeei_conn *conn) {
    (void)pool, (void)conn;
    return true;
}
static void frisbeei_hello_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) { // no streams here
    static const uint8_t window[4] = {0, 0, 0, 0};
    if (packet->length < 4) frisbeei_fail(pool, conn, FRISBEE_MALFORMED, 0);
    else if (conn->flags & FRISBEEI_ACCEPTED) frisbeei_answer(pool, conn, FRISBEEI_HELLO, 0, window, sizeof window);
    else conn->dropped++;
}
static void frisbeei_credit_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    (void)pool, (void)packet, conn->dropped++;
}
static void frisbeei_stream_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    (void)pool, (void)packet, conn->dropped++;
}
static void frisbeei_streams_first(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation) { (void)pool, (void)conn, (void)operation; }
static void frisbeei_streams_pong(frisbee_pool *pool, frisbeei_conn *conn) { (void)pool, (void)conn; }
#endif

// >>publish and subscribe: topics are a tree of tokens, found by a keyed hash of (parent, token), so that matching costs what the topic is
// long and nobody can choose names that collide. A message is copied into the queue of each subscriber that keeps up; for one that does
// not it is made once, counted by references, and waits in the subscription, where its policy applies.

#if FRISBEEI_PUBSUB
#define FRISBEEI_ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))

static void frisbeei_hash_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = FRISBEEI_ROTATE(v[1], 13) ^ v[0];
    v[3] = FRISBEEI_ROTATE(v[3], 16) ^ v[2];
    v[0] = FRISBEEI_ROTATE(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = FRISBEEI_ROTATE(v[1], 17) ^ v[2];
    v[3] = FRISBEEI_ROTATE(v[3], 21) ^ v[0];
    v[2] = FRISBEEI_ROTATE(v[2], 32);
}

// SipHash-1-3 of `first` and the bytes, with the pool's key.
static uint64_t frisbeei_hash(const frisbee_pool *pool, uint64_t first, const void *data, size_t length) {
    const uint8_t *at = (const uint8_t *)data;
    uint64_t v[4], word = first;
    size_t left = length, i;
    v[0] = pool->hash_key[0] ^ 0x736F6D6570736575u;
    v[1] = pool->hash_key[1] ^ 0x646F72616E646F6Du;
    v[2] = pool->hash_key[0] ^ 0x6C7967656E657261u;
    v[3] = pool->hash_key[1] ^ 0x7465646279746573u;
    for (;;) {
        v[3] ^= word;
        frisbeei_hash_round(v);
        v[0] ^= word;
        if (left < 8) break;
        memcpy(&word, at, 8); // the machine's order will do: the hash never leaves it
        at += 8;
        left -= 8;
    }
    word = (uint64_t)length << 56;
    for (i = 0; i < left; i++) word |= (uint64_t)at[i] << (8 * i);
    v[3] ^= word;
    frisbeei_hash_round(v);
    v[0] ^= word;
    v[2] ^= 0xFF;
    for (i = 0; i < 3; i++) frisbeei_hash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

typedef struct frisbeei_topic {
    const char *text;
    size_t length;
    uint32_t count;
    uint8_t ends[FRISBEE_TOPIC_TOKENS]; // of its tokens
} frisbeei_topic;

static bool frisbeei_topic_byte(char c) { return (unsigned char)c > ' ' && c != 127; }

// False: malformed. `pattern`: wildcards are allowed, '*' and '>' as whole tokens, '>' as the last.
static bool frisbeei_topic_parse(const char *text, size_t length, bool pattern, frisbeei_topic *topic) {
    size_t at, start = 0;
    if (length == 0 || length > FRISBEE_TOPIC_MAX) return false;
    topic->text = text;
    topic->length = length;
    topic->count = 0;
    for (at = 0; at <= length; at++) {
        if (at == length || text[at] == '.') {
            if (at == start || topic->count == FRISBEE_TOPIC_TOKENS || (at < length && text[at - 1] == '>')) return false;
            topic->ends[topic->count++] = (uint8_t)at;
            start = at + 1;
        } else if (text[at] == '*' || text[at] == '>') {
            if (!pattern || at != start || (at + 1 < length && text[at + 1] != '.')) return false;
        } else if (!frisbeei_topic_byte(text[at])) return false;
    }
    return true;
}

static const char *frisbeei_token(const frisbeei_topic *topic, uint32_t at, size_t *length) {
    const size_t start = at ? topic->ends[at - 1] + 1u : 0;
    *length = topic->ends[at] - start;
    return topic->text + start;
}

static bool frisbeei_group_valid(const char *text, size_t length) {
    size_t i;
    for (i = 0; i < length; i++)
        if (!frisbeei_topic_byte(text[i]) || text[i] == '.' || text[i] == '*' || text[i] == '>') return false;
    return length <= FRISBEE_GROUP_MAX;
}

// >>topics: the tree

static frisbeei_node *frisbeei_child(const frisbee_pool *pool, const frisbeei_node *parent, const char *text, size_t length) {
    const frisbeei_broker_state *broker = pool->broker;
    const uint64_t hash = frisbeei_hash(pool, (uint64_t)(uintptr_t)parent, text, length);
    frisbeei_node *node = broker->buckets[hash & (broker->bucket_count - 1)];
    for (; node; node = node->bucket)
        if (node->hash == hash && node->parent == parent && node->length == length && memcmp(node + 1, text, length) == 0) return node;
    return NULL;
}

// The table doubles when it is full; without memory for that it works on, with longer chains.
static void frisbeei_buckets_grow(frisbee_pool *pool) {
    frisbeei_broker_state *broker = pool->broker;
    const uint32_t count = broker->bucket_count * 2;
    frisbeei_node **grown = (frisbeei_node **)frisbeei_heap_take(pool, count * sizeof *grown);
    uint32_t i;
    if (!grown) return;
    memset(grown, 0, count * sizeof *grown);
    for (i = 0; i < broker->bucket_count; i++) {
        frisbeei_node *node = broker->buckets[i], *next;
        for (; node; node = next) {
            next = node->bucket;
            node->bucket = grown[node->hash & (count - 1)];
            grown[node->hash & (count - 1)] = node;
        }
    }
    frisbeei_heap_give(pool, broker->buckets, broker->bucket_count * sizeof *grown);
    broker->buckets = grown;
    broker->bucket_count = count;
}

// The place of a wildcard child in its parent; NULL: an ordinary token.
static frisbeei_node **frisbeei_wildcard(frisbeei_node *parent, const char *text, size_t length) {
    if (length != 1) return NULL;
    return *text == '*' ? &parent->any : *text == '>' ? &parent->rest : NULL;
}

static frisbeei_node *frisbeei_child_need(frisbee_pool *pool, frisbeei_node *parent, const char *text, size_t length) {
    frisbeei_broker_state *broker = pool->broker;
    frisbeei_node **wildcard = frisbeei_wildcard(parent, text, length);
    frisbeei_node *node = wildcard ? *wildcard : frisbeei_child(pool, parent, text, length);
    if (node) return node;
    node = (frisbeei_node *)frisbeei_heap_take(pool, sizeof *node + length);
    if (!node) return NULL;
    memset(node, 0, sizeof *node);
    memcpy(node + 1, text, length);
    node->parent = parent;
    node->length = (uint32_t)length;
    if (wildcard) {
        *wildcard = node;
        return node;
    }
    node->next = parent->first;
    if (parent->first) parent->first->before = node;
    parent->first = node;
    if (broker->node_count >= broker->bucket_count) frisbeei_buckets_grow(pool);
    node->hash = frisbeei_hash(pool, (uint64_t)(uintptr_t)parent, text, length);
    node->bucket = broker->buckets[node->hash & (broker->bucket_count - 1)];
    broker->buckets[node->hash & (broker->bucket_count - 1)] = node;
    broker->node_count++;
    return node;
}

// Frees a node that nothing needs any more, and then its parents.
static void frisbeei_prune(frisbee_pool *pool, frisbeei_node *node) {
    frisbeei_broker_state *broker = pool->broker;
    while (node->parent && !node->lists && !node->first && !node->any && !node->rest && !node->retained && !node->references) {
        frisbeei_node *parent = node->parent, **at;
        if (parent->any == node) parent->any = NULL;
        else if (parent->rest == node) parent->rest = NULL;
        else {
            if (node->before) node->before->next = node->next;
            else parent->first = node->next;
            if (node->next) node->next->before = node->before;
            for (at = &broker->buckets[node->hash & (broker->bucket_count - 1)]; *at != node;) at = &(*at)->bucket;
            *at = node->bucket;
            broker->node_count--;
        }
        frisbeei_heap_give(pool, node, sizeof *node + node->length);
        node = parent;
    }
}

static frisbeei_node *frisbeei_path_need(frisbee_pool *pool, const frisbeei_topic *topic) {
    frisbeei_node *node = &pool->broker->topics, *child;
    uint32_t i;
    for (i = 0; i < topic->count; i++, node = child) {
        size_t length;
        const char *text = frisbeei_token(topic, i, &length);
        child = frisbeei_child_need(pool, node, text, length);
        if (child) continue;
        frisbeei_prune(pool, node);
        return NULL;
    }
    return node;
}

static frisbeei_node *frisbeei_path_find(const frisbee_pool *pool, const frisbeei_topic *topic) { // of a topic without wildcards
    frisbeei_node *node = &pool->broker->topics;
    uint32_t i;
    for (i = 0; node && i < topic->count; i++) {
        size_t length;
        const char *text = frisbeei_token(topic, i, &length);
        node = frisbeei_child(pool, node, text, length);
    }
    return node;
}

static void frisbeei_list_drop(frisbee_pool *pool, frisbeei_list *list) {
    frisbeei_node *node = list->node, *group = list->group;
    frisbeei_list **at = &node->lists;
    for (; *at != list; at = &(*at)->next) pool->effort += FRISBEEI_LOOK;
    *at = list->next;
    frisbeei_heap_give(pool, list->subs, list->room * sizeof *list->subs);
    frisbeei_heap_give(pool, list, sizeof *list);
    pool->broker->list_count--;
    if (group) {
        group->references--;
        frisbeei_prune(pool, group);
    }
    frisbeei_prune(pool, node);
}

// The list of a node for a group (length 0: for none). There is room for every list in `matched`, so that matching cannot fail.
static frisbeei_list *frisbeei_list_need(frisbee_pool *pool, frisbeei_node *node, const char *group_name, size_t group_length) {
    frisbeei_broker_state *broker = pool->broker;
    frisbeei_node *group = NULL;
    frisbeei_list *list;
    if (group_length) {
        group = frisbeei_child_need(pool, &broker->groups, group_name, group_length);
        if (!group) return NULL;
    }
    for (list = node->lists; list; list = list->next, pool->effort += FRISBEEI_LOOK)
        if (list->group == group) return list;
    if (broker->list_count < broker->matched_room ||
        frisbeei_heap_grow(pool, (void **)&broker->matched, &broker->matched_room, sizeof *broker->matched))
        list = (frisbeei_list *)frisbeei_heap_take(pool, sizeof *list);
    if (!list) {
        if (group) frisbeei_prune(pool, group);
        return NULL;
    }
    memset(list, 0, sizeof *list);
    list->node = node;
    list->group = group;
    list->next = node->lists;
    node->lists = list;
    broker->list_count++;
    if (group) group->references++;
    return list;
}

// Lists of one group, whatever their topics, count as one: they are chained behind the first.
static void frisbeei_match_lists(frisbee_pool *pool, const frisbeei_node *node) {
    frisbeei_broker_state *broker = pool->broker;
    frisbeei_list *list;
    for (list = node->lists; list; list = list->next) {
        frisbeei_node *group = list->group;
        list->chain = NULL;
        if (group && group->stamp == broker->stamp) {
            list->chain = group->chain;
            group->chain = list;
            group->total += list->count;
            continue;
        }
        if (group) {
            group->stamp = broker->stamp;
            group->chain = list;
            group->total = list->count;
        }
        broker->matched[broker->matched_count++] = list;
    }
}

static void frisbeei_match_below(frisbee_pool *pool, const frisbeei_node *node, const frisbeei_topic *topic, uint32_t at) {
    for (; node; at++) {
        size_t length;
        const char *text;
        pool->effort += FRISBEEI_LOOK;
        if (at == topic->count) {
            frisbeei_match_lists(pool, node);
            return;
        }
        if (node->rest) frisbeei_match_lists(pool, node->rest);
        if (node->any) frisbeei_match_below(pool, node->any, topic, at + 1); // at most as deep as a topic
        if (!node->first) return;
        text = frisbeei_token(topic, at, &length);
        node = frisbeei_child(pool, node, text, length);
    }
}

// Finds the lists that a message on `topic` goes to.
static void frisbeei_match(frisbee_pool *pool, const frisbeei_topic *topic) {
    pool->broker->matched_count = 0;
    pool->broker->stamp++;
    frisbeei_match_below(pool, &pool->broker->topics, topic, 0);
}

// >>subscriptions

static frisbeei_sub *frisbeei_sub_find(const frisbee_pool *pool, frisbee_sub handle) {
    const uint32_t index = (uint32_t)handle.id;
    frisbeei_sub *sub;
    if (index == 0 || index > pool->sub_count) return NULL;
    sub = pool->subs[index - 1].sub;
    return sub && sub->id == handle.id ? sub : NULL;
}

static frisbee_sub frisbeei_sub_handle(const frisbeei_sub *sub) {
    frisbee_sub handle;
    handle.id = sub->id;
    return handle;
}

static char *frisbeei_sub_topic(const frisbeei_sub *sub) { return (char *)(uintptr_t)(sub + 1); }
static char *frisbeei_sub_group(const frisbeei_sub *sub) { return frisbeei_sub_topic(sub) + sub->topic_length + 1; }
static size_t frisbeei_sub_bytes(const frisbeei_sub *sub) { return sizeof *sub + sub->topic_length + sub->group_length + 2u; }

static frisbeei_sub *frisbeei_sub_new(frisbee_pool *pool, frisbeei_conn *conn, const frisbeei_topic *topic, const char *group, size_t group_length) {
    frisbeei_sub *sub;
    uint32_t index = pool->sub_free;
    if (!index && pool->sub_count == pool->sub_room &&
        !frisbeei_heap_grow(pool, (void **)&pool->subs, &pool->sub_room, sizeof *pool->subs))
        return NULL;
    sub = (frisbeei_sub *)frisbeei_heap_take(pool, sizeof *sub + topic->length + group_length + 2);
    if (!sub) return NULL;
    memset(sub, 0, sizeof *sub);
    if (index) pool->sub_free = pool->subs[index - 1].next;
    else index = ++pool->sub_count;
    pool->subs[index - 1].sub = sub;
    if (++pool->generation == 0) pool->generation = 1;
    sub->id = (uint64_t)pool->generation << 32 | index;
    sub->conn = conn;
    sub->peer = conn ? conn->id : FRISBEE_LOCAL.id;
    sub->topic_length = (uint8_t)topic->length;
    sub->group_length = (uint8_t)group_length;
    memcpy(frisbeei_sub_topic(sub), topic->text, topic->length);
    frisbeei_sub_topic(sub)[topic->length] = 0;
    if (group_length) memcpy(frisbeei_sub_group(sub), group, group_length);
    frisbeei_sub_group(sub)[group_length] = 0;
    return sub;
}

// The handle is stale from here on.
static void frisbeei_sub_forget(frisbee_pool *pool, frisbeei_sub *sub) {
    const uint32_t index = (uint32_t)sub->id;
    if (pool->subs[index - 1].sub != sub) return;
    pool->subs[index - 1].sub = NULL;
    pool->subs[index - 1].next = pool->sub_free;
    pool->sub_free = index;
}

static void frisbeei_sub_free(frisbee_pool *pool, frisbeei_sub *sub) {
    frisbeei_sub_forget(pool, sub);
    frisbeei_heap_give(pool, sub, frisbeei_sub_bytes(sub));
}

static void frisbeei_sub_info(const frisbeei_sub *sub, frisbee_sub_info *info) {
    info->sub = frisbeei_sub_handle(sub);
    info->conn.id = sub->peer;
    info->topic = frisbeei_sub_topic(sub);
    info->group = sub->group_length ? frisbeei_sub_group(sub) : NULL;
    info->slow = (frisbee_slow)sub->slow;
    info->limit = sub->limit;
    info->waiting = sub->waiting;
    info->waiting_bytes = sub->waiting_bytes;
    info->delivered = sub->delivered;
    info->dropped = sub->dropped;
}

// >>messages that wait

static uint8_t *frisbeei_message_bytes(const frisbeei_message *message) { return (uint8_t *)(uintptr_t)(message + 1); }

// A message with room for `length` bytes of payload, and one reference.
static frisbeei_message *frisbeei_message_new(frisbee_pool *pool, size_t length, uint64_t publisher) {
    frisbeei_message *message = (frisbeei_message *)frisbeei_heap_take(pool, sizeof *message + length);
    if (!message) return NULL;
    message->references = 1;
    message->length = (uint32_t)length;
    message->publisher = publisher;
    return message;
}

static void frisbeei_message_drop(frisbee_pool *pool, frisbeei_message *message) {
    if (--message->references == 0) frisbeei_heap_give(pool, message, sizeof *message + message->length);
}

static bool frisbeei_same_topic(const frisbeei_message *a, const frisbeei_message *b) {
    const uint8_t *x = frisbeei_message_bytes(a), *y = frisbeei_message_bytes(b);
    return a->hash == b->hash && x[1] == y[1] && memcmp(x + 2, y + 2, x[1]) == 0;
}

static size_t frisbeei_cost(size_t length) { return length + FRISBEEI_MESSAGE_COST; }

static frisbeei_waiting *frisbeei_waiting_of(frisbee_pool *pool, const frisbeei_sub *sub) {
    return sub->conn ? &sub->conn->patterns->waiting : &pool->broker->local;
}

static void frisbeei_waiting_add(frisbeei_waiting *waiting, frisbeei_sub *sub) {
    sub->waits = true;
    sub->next = NULL;
    sub->before = waiting->last;
    if (waiting->last) waiting->last->next = sub;
    else waiting->first = sub;
    waiting->last = sub;
}

static void frisbeei_waiting_remove(frisbeei_waiting *waiting, frisbeei_sub *sub) {
    if (!sub->waits) return;
    if (sub->before) sub->before->next = sub->next;
    else waiting->first = sub->next;
    if (sub->next) sub->next->before = sub->before;
    else waiting->last = sub->before;
    sub->waits = false;
}

// The index of a subscription that keeps the latest: its entries by topic.
static uint32_t frisbeei_latest_place(const frisbeei_sub *sub, const frisbeei_message *message) { // where it is, or would be
    uint32_t at = (uint32_t)message->hash & sub->latest_mask;
    while (sub->latest[at] && !frisbeei_same_topic(sub->latest[at]->message, message)) at = (at + 1) & sub->latest_mask;
    return at;
}

static bool frisbeei_latest_room(frisbee_pool *pool, frisbeei_sub *sub) {
    const uint32_t old_slots = sub->latest ? sub->latest_mask + 1 : 0, slots = old_slots ? old_slots * 2 : 8;
    frisbeei_entry **grown, *entry;
    if (sub->waiting * 2 < old_slots) return true;
    grown = (frisbeei_entry **)frisbeei_heap_take(pool, slots * sizeof *grown);
    if (!grown) return false;
    memset(grown, 0, slots * sizeof *grown);
    frisbeei_heap_give(pool, sub->latest, old_slots * sizeof *grown);
    sub->latest = grown;
    sub->latest_mask = slots - 1;
    for (entry = sub->first; entry; entry = entry->next) sub->latest[frisbeei_latest_place(sub, entry->message)] = entry;
    return true;
}

static void frisbeei_latest_remove(frisbeei_sub *sub, const frisbeei_message *message) {
    uint32_t hole = frisbeei_latest_place(sub, message), at = hole;
    for (;;) {
        at = (at + 1) & sub->latest_mask;
        if (!sub->latest[at]) break;
        if (((at - (uint32_t)sub->latest[at]->message->hash) & sub->latest_mask) < ((at - hole) & sub->latest_mask)) continue;
        sub->latest[hole] = sub->latest[at];
        hole = at;
    }
    sub->latest[hole] = NULL;
}

// Takes an entry out; its reference is the caller's.
static frisbeei_message *frisbeei_entry_take(frisbee_pool *pool, frisbeei_sub *sub, frisbeei_entry *entry) {
    frisbeei_message *message = entry->message;
    if (sub->latest) frisbeei_latest_remove(sub, message);
    if (entry->before) entry->before->next = entry->next;
    else sub->first = entry->next;
    if (entry->next) entry->next->before = entry->before;
    else sub->last = entry->before;
    sub->waiting--;
    sub->waiting_bytes -= frisbeei_cost(message->length);
    frisbeei_waiting_of(pool, sub)->bytes -= frisbeei_cost(message->length);
    frisbeei_heap_give(pool, entry, sizeof *entry);
    frisbeei_publishers_try(pool);
    return message;
}

// A message was dropped for a subscription: it is counted there, and for who published it.
static void frisbeei_lost(frisbee_pool *pool, frisbeei_sub *sub, uint64_t publisher) {
    const frisbeei_conn *conn = publisher ? frisbeei_find(pool, publisher) : NULL;
    sub->dropped++;
    pool->total.lost++;
    if (conn && conn->patterns) conn->patterns->lost++;
}

static void frisbeei_drop_oldest(frisbee_pool *pool, frisbeei_sub *sub) {
    frisbeei_message *message = frisbeei_entry_take(pool, sub, sub->first);
    sub->aged++;
    frisbeei_lost(pool, sub, message->publisher);
    frisbeei_message_drop(pool, message);
}

static void frisbeei_sub_empty(frisbee_pool *pool, frisbeei_sub *sub) {
    while (sub->first) frisbeei_message_drop(pool, frisbeei_entry_take(pool, sub, sub->first));
    frisbeei_heap_give(pool, sub->latest, sub->latest ? (sub->latest_mask + 1) * sizeof *sub->latest : 0);
    sub->latest = NULL;
}

// >>delivering

static frisbeei_message *frisbeei_share(frisbee_pool *pool, frisbeei_publication *publication) {
    frisbeei_message *message = publication->shared;
    if (message) return message;
    message = frisbeei_message_new(pool, publication->length, publication->publisher);
    if (!message) return NULL;
    memcpy(frisbeei_message_bytes(message), publication->payload, publication->length);
    message->hash = frisbeei_hash(pool, 0, publication->payload + 2, publication->payload[1]);
    return publication->shared = message;
}

// Could the connection ever carry it?
static bool frisbeei_fits(const frisbeei_conn *conn, size_t length) {
    const frisbee_conn_desc *desc = &conn->profile->desc;
    return length <= desc->max_packet && length + FRISBEE_WIRE_HEADER_MAX <= desc->queue_limit;
}

// May it go straight into the connection's queue, with a DROPPED before it?
static inline bool frisbeei_sub_direct(const frisbee_pool *pool, const frisbeei_sub *sub, size_t length) {
    const frisbeei_conn *conn = sub->conn;
    if (!conn || sub->first || !frisbeei_may_deliver(conn) || conn->queued > conn->profile->desc.high_water) return false;
    if (length > conn->profile->desc.max_packet) return false;
    return !frisbeei_over(pool, conn, conn->header + length + (sub->dropped == sub->told ? 0u : conn->header + 8u), false);
}

// Has it room to wait? Among what waits for a connection one message always has, and so has one of each subscription of this program.
static bool frisbeei_sub_room(frisbee_pool *pool, const frisbeei_sub *sub, size_t length) {
    const frisbeei_waiting *waiting = frisbeei_waiting_of(pool, sub);
    const size_t cost = frisbeei_cost(length);
    if (!sub->first && (!sub->conn || waiting->bytes == 0)) return true;
    if (sub->first && sub->waiting_bytes + cost > sub->limit) return false;
    if (sub->conn && waiting->bytes + cost > sub->conn->profile->desc.queue_limit) return false;
    return pool->memory + cost <= pool->desc.max_memory - pool->desc.max_memory / 4;
}

// Could it take the message, if not now?
static bool frisbeei_sub_able(const frisbeei_sub *sub, size_t length) {
    return !sub->conn || (frisbeei_may_deliver(sub->conn) && frisbeei_fits(sub->conn, length));
}

// Can a message be taken for it now, by queue or by waiting?
static bool frisbeei_sub_takes(frisbee_pool *pool, const frisbeei_sub *sub, size_t length) {
    if (!frisbeei_sub_able(sub, length)) return false;
    return frisbeei_sub_direct(pool, sub, length) || frisbeei_sub_room(pool, sub, length);
}

// Queues a message of which many connections write the same bytes.
static bool frisbeei_queue_shared(frisbee_pool *pool, frisbeei_conn *conn, uint16_t number, frisbeei_message *message) {
    frisbee_span span;
    frisbeei_chunk *chunk;
    span.data = frisbeei_message_bytes(message);
    span.length = message->length;
    chunk = frisbeei_borrow(pool, span);
    if (!chunk) return false;
    message->references++;
    chunk->message = message;
    chunk->header_size = conn->header;
    frisbeei_put_header(chunk->header, conn->header, FRISBEEI_MESSAGE, number, message->length);
    frisbeei_chunk_append(conn, chunk);
    conn->queued += (uint32_t)(conn->header + message->length);
    frisbeei_dirty(pool, conn);
    if (conn->queued > conn->profile->desc.high_water) frisbeei_high(pool, conn, false);
    return true;
}

// How many were dropped before a waiting message.
static uint64_t frisbeei_dropped_before(const frisbeei_sub *sub, const frisbeei_entry *entry) { return entry->dropped + sub->aged; }

// Queues a message, behind the count of those that were dropped before it. False: no memory, the message is not queued.
static bool frisbeei_sub_queue(frisbee_pool *pool, frisbeei_sub *sub, frisbeei_publication *publication, uint64_t dropped) {
    frisbeei_conn *conn = sub->conn;
    const size_t size = conn->header + publication->length, before = dropped == sub->told ? 0u : conn->header + 8u;
    const bool share = publication->length >= FRISBEEI_SHARE && !pool->fixed;
    uint8_t *at = NULL;
    if (share && !frisbeei_share(pool, publication)) return false;
    if (!share || before) {
        at = frisbeei_room(pool, conn, before + (share ? 0 : size));
        if (!at) return false;
    }
    if (share && !before && !frisbeei_queue_shared(pool, conn, sub->number, publication->shared)) return false;
    if (before) {
        frisbeei_put_header(at, conn->header, FRISBEEI_DROPPED, sub->number, 8);
        frisbeei_put64(at + conn->header, dropped);
        frisbeei_commit(pool, conn, before, false);
        sub->told = dropped;
        if (share && !frisbeei_queue_shared(pool, conn, sub->number, publication->shared)) return false;
    }
    if (!share) {
        at += before;
        frisbeei_put_header(at, conn->header, FRISBEEI_MESSAGE, sub->number, (uint32_t)publication->length);
        memcpy(at + conn->header, publication->payload, publication->length);
        frisbeei_commit(pool, conn, size, false);
    }
    conn->packets_out++;
    conn->used = pool->tick;
    conn->patterns->delivered++;
    pool->total.delivered++;
    sub->delivered++;
    return true;
}

// Keeps the latest: the waiting message on the same topic is replaced, if the new one fits in its place. True: done.
static bool frisbeei_replace(frisbee_pool *pool, frisbeei_sub *sub, frisbeei_message *message) {
    frisbeei_waiting *waiting = frisbeei_waiting_of(pool, sub);
    frisbeei_entry *entry = sub->latest ? sub->latest[frisbeei_latest_place(sub, message)] : NULL;
    frisbeei_message *old;
    size_t more;
    if (!entry) return false;
    sub->aged++;
    old = entry->message;
    more = message->length - frisbeei_least(message->length, old->length);
    if (more && (sub->waiting_bytes + more > sub->limit || (sub->conn && waiting->bytes + more > sub->conn->profile->desc.queue_limit) ||
                 pool->memory + more > pool->desc.max_memory - pool->desc.max_memory / 4)) {
        old = frisbeei_entry_take(pool, sub, entry); // it will be the newest of those that wait
        frisbeei_lost(pool, sub, old->publisher);
        frisbeei_message_drop(pool, old);
        return false;
    }
    entry->message = message;
    message->references++;
    sub->waiting_bytes = sub->waiting_bytes - old->length + message->length;
    waiting->bytes = waiting->bytes - old->length + message->length;
    if (message->length < old->length) frisbeei_publishers_try(pool);
    frisbeei_lost(pool, sub, old->publisher);
    frisbeei_message_drop(pool, old);
    return true;
}

// The policy of a full subscription. True: there is room now.
static bool frisbeei_make_room(frisbee_pool *pool, frisbeei_sub *sub, size_t length) {
    if (sub->slow == FRISBEE_SLOW_CLOSE && sub->conn) frisbeei_fail(pool, sub->conn, FRISBEE_EXHAUSTED, 0);
    if (sub->slow != FRISBEE_SLOW_DROP_OLD && sub->slow != FRISBEE_SLOW_LATEST) return false;
    while (sub->first && !frisbeei_sub_room(pool, sub, length)) frisbeei_drop_oldest(pool, sub);
    return frisbeei_sub_room(pool, sub, length);
}

// The message has to wait for the subscription, or is dropped. `promised`: it had room before the same message went to others.
static void frisbeei_sub_wait(frisbee_pool *pool, frisbeei_sub *sub, frisbeei_publication *publication, bool promised) {
    frisbeei_waiting *waiting = frisbeei_waiting_of(pool, sub);
    const bool latest = sub->slow == FRISBEE_SLOW_LATEST;
    bool possible = frisbeei_sub_able(sub, publication->length);
    frisbeei_message *message = latest && sub->first && possible ? frisbeei_share(pool, publication) : NULL;
    frisbeei_entry *entry = NULL;
    if (message && frisbeei_replace(pool, sub, message)) return;
    if (latest && sub->first && !message) possible = false; // no memory to see whether one on its topic waits: there must not be two
    if (possible && (promised || frisbeei_sub_room(pool, sub, publication->length) || frisbeei_make_room(pool, sub, publication->length))) {
        message = frisbeei_share(pool, publication);
        if (message && (!latest || frisbeei_latest_room(pool, sub))) entry = (frisbeei_entry *)frisbeei_heap_take(pool, sizeof *entry);
    }
    if (!sub->first) frisbeei_waiting_remove(waiting, sub); // dropping may have emptied it
    if (!entry) {
        frisbeei_lost(pool, sub, publication->publisher);
        return;
    }
    entry->message = message;
    entry->dropped = sub->dropped - sub->aged;
    message->references++;
    if (latest) sub->latest[frisbeei_latest_place(sub, message)] = entry;
    entry->next = NULL;
    entry->before = sub->last;
    if (sub->last) sub->last->next = entry;
    else sub->first = entry;
    sub->last = entry;
    sub->waiting++;
    sub->waiting_bytes += frisbeei_cost(message->length);
    waiting->bytes += frisbeei_cost(message->length);
    if (!sub->waits) frisbeei_waiting_add(waiting, sub);
    if (sub->conn) frisbeei_dirty(pool, sub->conn); // the next flush pumps, if only memory was short
}

static void frisbeei_sub_give(frisbee_pool *pool, frisbeei_sub *sub, frisbeei_publication *publication, bool promised) {
    frisbeei_conn *conn = sub->conn;
    // before too much is queued, while it is in the cache; and a subscriber that keeps up must not seem slow because much is published in one turn
    if (conn && conn->queued > FRISBEEI_PUBLISH_FLUSH && !conn->io && frisbeei_may_write(conn)) frisbeei_flush_conn(pool, conn);
    if (FRISBEEI_LIKELY(frisbeei_sub_direct(pool, sub, publication->length)) && frisbeei_sub_queue(pool, sub, publication, sub->dropped)) return;
    frisbeei_sub_wait(pool, sub, publication, promised && sub->slow == FRISBEE_SLOW_BLOCK);
}

// Moves waiting messages into the connection's queue, a subscription at a time, while it is below high water. True: some were.
static bool frisbeei_pump(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_waiting *waiting = &conn->patterns->waiting;
    bool some = false;
    while (waiting->first && frisbeei_may_deliver(conn) && conn->queued <= conn->profile->desc.high_water) {
        frisbeei_sub *sub = waiting->first;
        frisbeei_message *message = sub->first->message;
        frisbeei_publication publication;
        bool queued;
        if (frisbeei_over(pool, conn, 2u * FRISBEE_WIRE_HEADER_MAX + 8 + message->length, false)) {
            if (conn->queued) break;
        }
        memset(&publication, 0, sizeof publication);
        publication.payload = frisbeei_message_bytes(message);
        publication.length = message->length;
        publication.shared = message;
        queued = frisbeei_sub_queue(pool, sub, &publication, frisbeei_dropped_before(sub, sub->first));
        if (!queued && conn->queued) break; // no memory now; there will be another time
        message = frisbeei_entry_take(pool, sub, sub->first);
        if (!queued) frisbeei_lost(pool, sub, message->publisher);
        frisbeei_message_drop(pool, message);
        frisbeei_waiting_remove(waiting, sub);
        if (sub->first) frisbeei_waiting_add(waiting, sub);
        some = some || queued;
    }
    return some;
}

// >>publishing

// Whose turn it is in a group: the next one that has room, within a few; else the next one that could have. *turn: its place.
static frisbeei_sub *frisbeei_pick(frisbee_pool *pool, const frisbeei_node *group, size_t length, uint32_t *turn) {
    const frisbeei_list *list = group->chain;
    frisbeei_sub *able = NULL, *sub = NULL;
    uint32_t at = group->turn % group->total, place = at, tries = 0, i;
    while (at >= list->count) {
        at -= list->count;
        list = list->chain;
    }
    *turn = place;
    for (i = 0; i < group->total && tries < FRISBEEI_GROUP_TRIES; i++) {
        sub = list->subs[at];
        if (frisbeei_sub_able(sub, length)) {
            if (!able || frisbeei_sub_takes(pool, sub, length)) *turn = place;
            if (frisbeei_sub_takes(pool, sub, length)) return sub;
            if (!able) able = sub;
            tries++;
        }
        place = (place + 1) % group->total;
        if (++at < list->count) continue;
        at = 0;
        list = list->chain ? list->chain : group->chain;
    }
    return able ? able : sub;
}

static bool frisbeei_blocks(frisbee_pool *pool, const frisbeei_sub *sub, size_t length) {
    if (sub->slow != FRISBEE_SLOW_BLOCK || frisbeei_sub_takes(pool, sub, length)) return false;
    return frisbeei_sub_able(sub, length); // what can never go need not be waited for
}

// Is a subscription that blocks full? Before anything is delivered: a message goes to all, or waits.
static bool frisbeei_publish_blocked(frisbee_pool *pool, size_t length) {
    const frisbeei_broker_state *broker = pool->broker;
    uint32_t i, at;
    for (i = 0; broker->blocking && i < broker->matched_count; i++) {
        const frisbeei_list *list = broker->matched[i];
        if (list->group) {
            if (frisbeei_blocks(pool, frisbeei_pick(pool, list->group, length, &at), length)) return true;
            continue;
        }
        for (at = 0; at < list->count; at++)
            if (frisbeei_blocks(pool, list->subs[at], length)) return true;
    }
    return false;
}

static size_t frisbeei_retained_cost(const frisbeei_topic *topic, size_t length) {
    return length + FRISBEEI_RETAINED_COST + topic->count * (size_t)FRISBEEI_TOKEN_COST;
}

static void frisbeei_retained_drop(frisbee_pool *pool, frisbeei_node *node) {
    frisbeei_message *message = node->retained;
    frisbeei_node *at;
    if (!message) return;
    pool->broker->retained_bytes -= message->length + (size_t)FRISBEEI_RETAINED_COST;
    node->retained = NULL;
    for (at = node; at; at = at->parent) {
        at->retained_below--;
        if (at->parent) pool->broker->retained_bytes -= FRISBEEI_TOKEN_COST;
    }
    frisbeei_message_drop(pool, message);
    frisbeei_prune(pool, node);
}

// Keeps the message as its topic's last value; one without data clears it. EXHAUSTED: not kept, and what was before is forgotten.
static frisbee_result frisbeei_retain(frisbee_pool *pool, const frisbeei_topic *topic, const frisbeei_publication *publication) {
    frisbeei_broker_state *broker = pool->broker;
    const size_t cost = frisbeei_retained_cost(topic, publication->length);
    frisbeei_node *node = frisbeei_path_find(pool, topic), *at;
    frisbeei_message *message;
    if (node) frisbeei_retained_drop(pool, node);
    if (publication->length == 2 + topic->length) return FRISBEE_OK;
    if (cost > broker->desc.max_retained || broker->retained_bytes > broker->desc.max_retained - cost) return FRISBEE_EXHAUSTED;
    node = frisbeei_path_need(pool, topic);
    if (!node) return FRISBEE_EXHAUSTED;
    message = frisbeei_message_new(pool, publication->length, publication->publisher);
    if (!message) {
        frisbeei_prune(pool, node);
        return FRISBEE_EXHAUSTED;
    }
    memcpy(frisbeei_message_bytes(message), publication->payload, publication->length);
    frisbeei_message_bytes(message)[0] |= 2;
    message->hash = frisbeei_hash(pool, 0, topic->text, topic->length);
    node->retained = message;
    for (at = node; at; at = at->parent) at->retained_below++;
    broker->retained_bytes += cost;
    return FRISBEE_OK;
}

// Gives messages on one topic to the lists that matched, a subscriber at a time: what it needs is in the cache, and its queue is written and
// given back before the next one's is filled. Answers how many subscriptions they went to.
static uint32_t frisbeei_spread(frisbee_pool *pool, frisbeei_publication *publications, uint32_t count) {
    const frisbeei_broker_state *broker = pool->broker;
    uint32_t i, at, k, copies = 0;
    pool->total.published += count;
    pool->effort += count;
    for (i = 0; i < broker->matched_count; i++) {
        frisbeei_list *list = broker->matched[i];
        if (list->group) {
            for (k = 0; k < count; k++) {
                frisbeei_sub_give(pool, frisbeei_pick(pool, list->group, publications[k].length, &at), &publications[k], true);
                list->group->turn = at + 1;
            }
            copies++;
            continue;
        }
        for (at = 0; at < list->count; at++) {
            frisbeei_conn *conn = list->subs[at]->conn;
            for (k = 0; k < count; k++) frisbeei_sub_give(pool, list->subs[at], &publications[k], true);
            if (conn && count > 1 && conn->queued > FRISBEEI_BATCH_FLUSH && !conn->io && frisbeei_may_write(conn)) frisbeei_flush_conn(pool, conn);
        }
        copies += list->count;
    }
    for (k = 0; k < count; k++)
        if (publications[k].shared) frisbeei_message_drop(pool, publications[k].shared);
    pool->effort += copies * count;
    return copies;
}

// Passes on what was collected. Before anything that could tell the difference.
static void frisbeei_batch_end(frisbee_pool *pool) {
    frisbeei_broker_state *broker = pool->broker;
    const uint32_t count = broker->batch_count;
    frisbeei_topic topic;
    if (!count) return;
    broker->batch_count = 0;
    if (broker->stamp != broker->batch_stamp) { // somebody has looked for another topic meanwhile
        (void)frisbeei_topic_parse((const char *)broker->batch[0].payload + 2, broker->batch[0].payload[1], false, &topic);
        frisbeei_match(pool, &topic);
    }
    (void)frisbeei_spread(pool, broker->batch, count);
}

// The first of a batch: whom it goes to, and so how many may follow before others have their turn.
static void frisbeei_batch_begin(frisbee_pool *pool, const frisbeei_topic *topic) {
    frisbeei_broker_state *broker = pool->broker;
    uint32_t copies = 1, i;
    frisbeei_match(pool, topic);
    for (i = 0; i < broker->matched_count; i++) copies += broker->matched[i]->group ? 1 : broker->matched[i]->count;
    broker->batch_stamp = broker->stamp;
    broker->batch_most = (uint32_t)frisbeei_least(FRISBEEI_BATCH, FRISBEEI_EFFORT / copies + 1);
}

// Collects a message, if it may be: where nobody blocks, nothing is retained and no answer is wanted. The payloads stay where they are until
// the end of the dispatch that they came with.
static bool frisbeei_batch_add(frisbee_pool *pool, const frisbeei_topic *topic, const frisbeei_publication *publication) {
    frisbeei_broker_state *broker = pool->broker;
    const uint8_t *first = broker->batch_count ? broker->batch[0].payload : publication->payload;
    if (broker->blocking || publication->payload[0] || !broker->batch) return false;
    if (first[1] != publication->payload[1] || memcmp(first + 2, publication->payload + 2, first[1]) != 0) frisbeei_batch_end(pool);
    if (!broker->batch_count) frisbeei_batch_begin(pool, topic);
    broker->batch[broker->batch_count++] = *publication;
    if (broker->batch_count >= broker->batch_most) frisbeei_batch_end(pool);
    return true;
}

// Passes a message on. AGAIN: a subscription that blocks is full, nothing was done. EXHAUSTED: passed on, but not retained.
static frisbee_result frisbeei_publish(frisbee_pool *pool, const frisbeei_topic *topic, frisbeei_publication *publication, uint32_t *copies) {
    frisbee_result result = FRISBEE_OK;
    frisbeei_batch_end(pool);
    frisbeei_match(pool, topic);
    if (frisbeei_publish_blocked(pool, publication->length)) return FRISBEE_AGAIN;
    if (publication->payload[0] & 1) result = frisbeei_retain(pool, topic, publication);
    *copies = frisbeei_spread(pool, publication, 1);
    return result;
}

// A new subscription gets what is retained.
static void frisbeei_retained_give(frisbee_pool *pool, frisbeei_sub *sub, frisbeei_message *message) {
    frisbeei_publication publication;
    publication.payload = frisbeei_message_bytes(message);
    publication.length = message->length;
    publication.publisher = message->publisher;
    publication.shared = message;
    frisbeei_sub_give(pool, sub, &publication, false);
}

static void frisbeei_retained_below(frisbee_pool *pool, const frisbeei_node *node, frisbeei_sub *sub) {
    const frisbeei_node *child;
    pool->effort += FRISBEEI_LOOK;
    if (!node->retained_below) return;
    if (node->retained) frisbeei_retained_give(pool, sub, node->retained);
    for (child = node->first; child; child = child->next) frisbeei_retained_below(pool, child, sub); // at most as deep as a topic
}

static void frisbeei_retained_match(frisbee_pool *pool, const frisbeei_node *node, const frisbeei_topic *topic, uint32_t at, frisbeei_sub *sub) {
    const frisbeei_node *child;
    size_t length;
    const char *text;
    pool->effort += FRISBEEI_LOOK;
    if (!node || !node->retained_below) return;
    if (at == topic->count) {
        if (node->retained) frisbeei_retained_give(pool, sub, node->retained);
        return;
    }
    text = frisbeei_token(topic, at, &length);
    if (length == 1 && *text == '>')
        for (child = node->first; child; child = child->next) frisbeei_retained_below(pool, child, sub);
    else if (length == 1 && *text == '*')
        for (child = node->first; child; child = child->next) frisbeei_retained_match(pool, child, topic, at + 1, sub);
    else frisbeei_retained_match(pool, frisbeei_child(pool, node, text, length), topic, at + 1, sub);
}

// >>broker: subscriptions at this pool

static frisbee_result frisbeei_broker_new(frisbee_pool *pool) {
    const frisbee_broker *desc = pool->desc.broker;
    frisbeei_broker_state *broker;
    if (!desc) return FRISBEE_OK;
    broker = (frisbeei_broker_state *)frisbeei_heap_take(pool, sizeof *broker);
    if (!broker) return FRISBEE_NO_MEMORY;
    memset(broker, 0, sizeof *broker);
    broker->desc = *desc;
    if (!broker->desc.max_subs) broker->desc.max_subs = 1000000;
    if (!broker->desc.max_conn_subs) broker->desc.max_conn_subs = 1024;
    if (!broker->desc.max_pending) broker->desc.max_pending = 8u << 20;
    if (!broker->desc.max_retained) broker->desc.max_retained = (size_t)16 << 20;
    broker->bucket_count = 16;
    broker->buckets = (frisbeei_node **)frisbeei_heap_take(pool, broker->bucket_count * sizeof *broker->buckets);
    if (!broker->buckets) {
        frisbeei_heap_give(pool, broker, sizeof *broker);
        return FRISBEE_NO_MEMORY;
    }
    memset(broker->buckets, 0, broker->bucket_count * sizeof *broker->buckets);
    if (!pool->fixed) broker->batch = (frisbeei_publication *)frisbeei_heap_take(pool, FRISBEEI_BATCH * sizeof *broker->batch);
    pool->broker = broker;
    return FRISBEE_OK;
}

// What a subscription is asked for with.
typedef struct frisbeei_wanted {
    frisbeei_topic topic;
    const char *group;
    size_t group_length;
    uint32_t limit;
    uint16_t number;
    uint8_t slow;
} frisbeei_wanted;

static frisbee_result frisbeei_broker_add(frisbee_pool *pool, frisbeei_conn *conn, const frisbeei_wanted *wanted, frisbeei_sub **out) {
    frisbeei_broker_state *broker = pool->broker;
    frisbeei_node *node;
    frisbeei_list *list;
    frisbeei_sub *sub = NULL;
    frisbeei_batch_end(pool); // it gets nothing from before
    if (broker->count >= broker->desc.max_subs || (conn && conn->patterns->theirs.count >= broker->desc.max_conn_subs)) return FRISBEE_EXHAUSTED;
    node = frisbeei_path_need(pool, &wanted->topic);
    if (!node) return FRISBEE_NO_MEMORY;
    list = frisbeei_list_need(pool, node, wanted->group, wanted->group_length);
    if (!list) {
        frisbeei_prune(pool, node);
        return FRISBEE_NO_MEMORY;
    }
    if (list->count < list->room || frisbeei_heap_grow(pool, (void **)&list->subs, &list->room, sizeof *list->subs))
        sub = frisbeei_sub_new(pool, conn, &wanted->topic, wanted->group, wanted->group_length);
    if (sub && conn && !frisbeei_map_put(pool, &conn->patterns->theirs, wanted->number, sub)) {
        frisbeei_sub_free(pool, sub);
        sub = NULL;
    }
    if (!sub) {
        if (!list->count) frisbeei_list_drop(pool, list);
        return FRISBEE_NO_MEMORY;
    }
    sub->number = wanted->number;
    sub->slow = wanted->slow;
    sub->limit = wanted->limit ? wanted->limit : 1u << 20;
    if (sub->limit > broker->desc.max_pending) sub->limit = broker->desc.max_pending;
    sub->list = list;
    sub->slot = list->count;
    list->subs[list->count++] = sub;
    broker->count++;
    broker->blocking += sub->slow == FRISBEE_SLOW_BLOCK;
    frisbeei_publishers_try(pool); // a group may have waited for it
    *out = sub;
    return FRISBEE_OK;
}

// Takes a subscription out of the broker. What waits for it is dropped uncounted.
static void frisbeei_broker_remove(frisbee_pool *pool, frisbeei_sub *sub) {
    frisbeei_broker_state *broker = pool->broker;
    frisbeei_list *list = sub->list;
    uint32_t waiting;
    size_t waiting_bytes;
    frisbeei_batch_end(pool);
    waiting = sub->waiting;
    waiting_bytes = sub->waiting_bytes;
    frisbeei_waiting_remove(frisbeei_waiting_of(pool, sub), sub);
    frisbeei_sub_empty(pool, sub);
    sub->waiting = waiting; // as it was, for on_unsubscribe
    sub->waiting_bytes = waiting_bytes;
    if (sub->conn) frisbeei_map_remove(pool, &sub->conn->patterns->theirs, sub->number);
    list->subs[sub->slot] = list->subs[--list->count];
    list->subs[sub->slot]->slot = sub->slot;
    if (!list->count) frisbeei_list_drop(pool, list);
    broker->count--;
    frisbeei_publishers_try(pool); // nobody waits for it any more, or another one of its connection has its room
    if (sub->slow == FRISBEE_SLOW_BLOCK) broker->blocking--;
    frisbeei_sub_forget(pool, sub);
}

// The end of a peer's subscription, told to the broker's program. Its memory stays until then: a hook may look at it that ends it.
static void frisbeei_broker_tell(frisbee_pool *pool, frisbeei_sub *sub) {
    const frisbeei_broker_state *broker = pool->broker;
    frisbee_sub_info info;
    frisbeei_sub_info(sub, &info);
    if (broker->desc.on_unsubscribe) broker->desc.on_unsubscribe(pool, &info, broker->desc.user);
    frisbeei_sub_free(pool, sub);
}

static void frisbeei_broker_end(frisbee_pool *pool, frisbeei_sub *sub) {
    frisbeei_broker_remove(pool, sub);
    frisbeei_broker_tell(pool, sub);
}

static void frisbeei_broker_tell_ended(frisbee_pool *pool, const frisbeei_conn *conn) { // of a connection, or (NULL) all
    frisbeei_sub **at = &pool->broker->ended, *sub;
    while ((sub = *at) != NULL)
        if (!conn || sub->conn == conn) {
            *at = sub->next;
            frisbeei_broker_tell(pool, sub);
            at = &pool->broker->ended; // the hook may have ended more
        } else at = &sub->next;
}

static void frisbeei_hold_append(frisbeei_conn *conn, frisbeei_conn **first, frisbeei_conn **last) {
    conn->patterns->next_held = NULL;
    if (*first) (*last)->patterns->next_held = conn;
    else *first = conn;
    *last = conn;
}

// The publisher waits: it is not read until a subscription that blocks has room.
static void frisbeei_hold(frisbee_pool *pool, frisbeei_conn *conn) {
    conn->flags |= FRISBEEI_PUBLISH_FULL;
    pool->stop = true;
    frisbeei_interest(pool, conn);
    if (!pool->broker->resuming) frisbeei_hold_append(conn, &pool->broker->held, &pool->broker->held_last);
}

static void frisbeei_hold_end(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_conn *at, *before = NULL;
    if (!(conn->flags & FRISBEEI_PUBLISH_FULL)) return;
    conn->flags &= ~(uint32_t)FRISBEEI_PUBLISH_FULL;
    for (at = pool->broker->held; at && at != conn; at = at->patterns->next_held) before = at;
    if (!at) return;
    if (before) before->patterns->next_held = conn->patterns->next_held;
    else pool->broker->held = conn->patterns->next_held;
    if (pool->broker->held_last == conn) pool->broker->held_last = before;
}

// There is room: the publishers that wait go on, in turn. Who could not do anything keeps his place before who could.
static void frisbeei_publishers_resume(frisbee_pool *pool) {
    frisbeei_broker_state *broker = pool->broker;
    frisbeei_conn *conn = broker->held, *next, *moved = NULL, *moved_last = NULL;
    broker->room = false;
    broker->held = NULL;
    broker->resuming = true;
    for (; conn; conn = next) {
        const uint64_t before = conn->patterns->published;
        next = conn->patterns->next_held;
        conn->flags &= ~(uint32_t)(FRISBEEI_PUBLISH_FULL | FRISBEEI_UNWATCHED);
        if (conn->state == FRISBEEI_CLOSED) continue;
        conn->heard = pool->tick;
        if (!pool->ending) frisbeei_resume(pool, conn);
        if (!(conn->flags & FRISBEEI_PUBLISH_FULL)) frisbeei_interest(pool, conn);
        else if (conn->patterns->published == before) frisbeei_hold_append(conn, &broker->held, &broker->held_last);
        else frisbeei_hold_append(conn, &moved, &moved_last);
    }
    broker->resuming = false;
    if (!moved) return;
    if (broker->held) broker->held_last->patterns->next_held = moved;
    else broker->held = moved;
    broker->held_last = moved_last;
}

// Topic and data of a payload; the topic with a 0 behind it, in `topic`.
static void frisbeei_message_parts(frisbee_message *message, char *topic, const uint8_t *payload, size_t length) {
    memcpy(topic, payload + 2, payload[1]);
    topic[payload[1]] = 0;
    message->topic = topic;
    message->data = payload + 2 + payload[1];
    message->length = (uint32_t)(length - 2 - payload[1]);
}

// Calls this program's handler with a message. `sub` may be gone afterwards.
static void frisbeei_tell_message(frisbee_pool *pool, frisbeei_sub *sub, const uint8_t *payload, size_t length, uint64_t dropped) {
    char topic[FRISBEE_TOPIC_MAX + 1];
    frisbee_message message;
    message.sub = frisbeei_sub_handle(sub);
    message.conn.id = sub->peer;
    frisbeei_message_parts(&message, topic, payload, length);
    message.retained = (payload[0] & 2) != 0;
    message.dropped = dropped - sub->told;
    sub->told = dropped;
    sub->delivered++;
    sub->on_message(pool, &message, sub->user);
}

// Hands out what waits for this program's own subscriptions: what they publish meanwhile waits for the next time.
static void frisbeei_run_local(frisbee_pool *pool) {
    frisbeei_broker_state *broker = pool->broker;
    const frisbeei_sub *at;
    uint32_t rounds = 0;
    for (at = broker->local.first; at; at = at->next) rounds++;
    while (rounds-- > 0 && broker->local.first && !pool->ending && !pool->spent) {
        frisbeei_sub *sub = broker->local.first;
        const frisbee_sub handle = frisbeei_sub_handle(sub);
        uint32_t count = sub->waiting;
        while (count-- > 0 && !pool->ending && !pool->spent && sub->first) {
            const uint64_t dropped = frisbeei_dropped_before(sub, sub->first);
            frisbeei_message *message = frisbeei_entry_take(pool, sub, sub->first);
            if (!sub->first) frisbeei_waiting_remove(&broker->local, sub);
            pool->total.delivered++;
            frisbeei_tell_message(pool, sub, frisbeei_message_bytes(message), message->length, dropped);
            frisbeei_message_drop(pool, message);
            frisbeei_budget_count(pool);
            if (!frisbeei_sub_find(pool, handle)) break;
        }
        if (!frisbeei_sub_find(pool, handle) || !sub->waits) continue;
        frisbeei_waiting_remove(&broker->local, sub);
        frisbeei_waiting_add(&broker->local, sub);
    }
}

static bool frisbeei_broker_busy(const frisbee_pool *pool) {
    const frisbeei_broker_state *broker = pool->broker;
    return broker && (broker->local.first || broker->ended || (broker->room && (broker->held || broker->refused)));
}

static void frisbeei_broker_run(frisbee_pool *pool) {
    frisbeei_broker_state *broker = pool->broker;
    if (broker->ended) frisbeei_broker_tell_ended(pool, NULL);
    if (broker->local.first && !pool->input_later) frisbeei_run_local(pool); // or, under a budget, they could keep connections from theirs
    if (!broker->room || pool->ending) return;
    frisbeei_publishers_resume(pool);
    if (!broker->refused || pool->ending) return;
    broker->refused = false;
    if (broker->desc.on_writable) broker->desc.on_writable(pool, broker->desc.user);
}

static void frisbeei_broker_free(frisbee_pool *pool) {
    frisbeei_broker_state *broker = pool->broker;
    uint32_t i;
    if (broker) frisbeei_broker_tell_ended(pool, NULL);
    for (i = 0; i < pool->sub_count; i++) {
        frisbeei_sub *sub = pool->subs[i].sub;
        if (!sub) continue;
        frisbeei_broker_remove(pool, sub);
        frisbeei_sub_free(pool, sub);
    }
    for (i = 0; broker && i < broker->bucket_count; i++) {
        frisbeei_node *node = broker->buckets[i];
        while (node)
            if (node->retained) {
                frisbeei_retained_drop(pool, node); // with its parents, some of which may lie in this bucket
                node = broker->buckets[i];
            } else node = node->bucket;
    }
    frisbeei_heap_give(pool, pool->subs, pool->sub_room * sizeof *pool->subs);
    if (!broker) return;
    frisbeei_heap_give(pool, broker->matched, broker->matched_room * sizeof *broker->matched);
    frisbeei_heap_give(pool, broker->buckets, broker->bucket_count * sizeof *broker->buckets);
    frisbeei_heap_give(pool, broker->batch, broker->batch ? FRISBEEI_BATCH * sizeof *broker->batch : 0);
    frisbeei_heap_give(pool, broker, sizeof *broker);
    pool->broker = NULL;
}

// >>packets of publish and subscribe

enum {
    FRISBEEI_STATUS_OK = 0,
    FRISBEEI_STATUS_REFUSED,
    FRISBEEI_STATUS_INVALID,
    FRISBEEI_STATUS_EXHAUSTED,
    FRISBEEI_STATUS_UNSUPPORTED,
    FRISBEEI_STATUS_BUSY
};

static frisbee_result frisbeei_status_result(uint8_t status) {
    static const frisbee_result results[] = {FRISBEE_OK, FRISBEE_REFUSED, FRISBEE_INVALID, FRISBEE_EXHAUSTED, FRISBEE_UNSUPPORTED, FRISBEE_BUSY};
    return status < sizeof results / sizeof results[0] ? results[status] : FRISBEE_REFUSED;
}

static uint8_t frisbeei_result_status(frisbee_result result) {
    switch (result) {
    case FRISBEE_OK: return FRISBEEI_STATUS_OK;
    case FRISBEE_REFUSED: return FRISBEEI_STATUS_REFUSED;
    case FRISBEE_INVALID: return FRISBEEI_STATUS_INVALID;
    case FRISBEE_UNSUPPORTED: return FRISBEEI_STATUS_UNSUPPORTED;
    case FRISBEE_BUSY: return FRISBEEI_STATUS_BUSY;
    default: return FRISBEEI_STATUS_EXHAUSTED;
    }
}

static void frisbeei_malformed(frisbee_pool *pool, frisbeei_conn *conn) { frisbeei_fail(pool, conn, FRISBEE_MALFORMED, 0); }

// May the peer have this subscription? Asks the broker's program.
static frisbee_result frisbeei_subscribe_check(frisbee_pool *pool, frisbeei_conn *conn, const frisbeei_wanted *wanted) {
    const frisbeei_broker_state *broker = pool->broker;
    char topic[FRISBEE_TOPIC_MAX + 1], group[FRISBEE_GROUP_MAX + 1];
    frisbee_sub_info info;
    if (wanted->slow == FRISBEE_SLOW_BLOCK && !broker->desc.allow_block) return FRISBEE_REFUSED;
    if (!broker->desc.may_subscribe) return FRISBEE_OK;
    memcpy(topic, wanted->topic.text, wanted->topic.length);
    topic[wanted->topic.length] = 0;
    if (wanted->group_length) memcpy(group, wanted->group, wanted->group_length);
    group[wanted->group_length] = 0;
    memset(&info, 0, sizeof info);
    info.conn = frisbeei_handle(conn);
    info.topic = topic;
    info.group = wanted->group_length ? group : NULL;
    info.slow = (frisbee_slow)wanted->slow;
    info.limit = wanted->limit;
    return broker->desc.may_subscribe(pool, &info, broker->desc.user) ? FRISBEE_OK : FRISBEE_REFUSED;
}

static void frisbeei_subscribe_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    const uint8_t *at = (const uint8_t *)packet->data;
    const frisbeei_broker_state *broker = pool->broker;
    frisbeei_wanted wanted;
    frisbeei_sub *sub = NULL;
    frisbee_result result = FRISBEE_OK;
    frisbee_sub_info info;
    uint8_t status;
    if (packet->length < 8 || packet->length < 8u + at[6] || packet->length < 8u + at[6] + at[7 + at[6]]) {
        frisbeei_malformed(pool, conn);
        return;
    }
    wanted.slow = at[1];
    wanted.limit = frisbeei_get32(at + 2);
    wanted.number = packet->from.id;
    wanted.group = (const char *)at + 8 + at[6];
    wanted.group_length = at[7 + at[6]];
    if (!broker) result = FRISBEE_UNSUPPORTED;
    else if (!frisbeei_patterns_need(pool, conn)) result = FRISBEE_NO_MEMORY;
    else if (!frisbeei_topic_parse((const char *)at + 7, at[6], true, &wanted.topic) || !frisbeei_group_valid(wanted.group, wanted.group_length) ||
             at[1] > FRISBEE_SLOW_BLOCK)
        result = FRISBEE_INVALID;
    else if (frisbeei_map_get(pool, &conn->patterns->theirs, wanted.number)) result = FRISBEE_BUSY;
    else result = frisbeei_subscribe_check(pool, conn, &wanted);
    if (conn->state != FRISBEEI_OPEN || pool->ending) return; // the hook may have closed it
    if (result == FRISBEE_OK) result = frisbeei_broker_add(pool, conn, &wanted, &sub);
    status = frisbeei_result_status(result);
    frisbeei_answer(pool, conn, FRISBEEI_SUBSCRIBED, packet->from.id, &status, 1);
    if (!sub) return;
    if (at[0] & 1) frisbeei_retained_match(pool, &broker->topics, &wanted.topic, 0, sub);
    frisbeei_sub_info(sub, &info);
    if (broker->desc.on_subscribe) broker->desc.on_subscribe(pool, &info, broker->desc.user);
}

static void frisbeei_unsubscribe_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    frisbeei_sub *sub = conn->patterns ? (frisbeei_sub *)frisbeei_map_get(pool, &conn->patterns->theirs, packet->from.id) : NULL;
    frisbeei_answer(pool, conn, FRISBEEI_UNSUBSCRIBED, packet->from.id, NULL, 0);
    if (sub) frisbeei_broker_end(pool, sub);
}

static frisbee_result frisbeei_publish_check(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *payload, size_t length) {
    const frisbeei_broker_state *broker = pool->broker;
    char topic[FRISBEE_TOPIC_MAX + 1];
    frisbee_message message;
    if (!broker->desc.may_publish) return FRISBEE_OK;
    memset(&message, 0, sizeof message);
    message.conn = frisbeei_handle(conn);
    message.retained = payload[0] & 1;
    frisbeei_message_parts(&message, topic, payload, length);
    return broker->desc.may_publish(pool, &message, broker->desc.user) ? FRISBEE_OK : FRISBEE_REFUSED;
}

// False: it has to wait, and is read again later.
static bool frisbeei_publish_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    const uint8_t *at = (const uint8_t *)packet->data;
    frisbeei_publication publication;
    frisbee_result result;
    frisbeei_topic topic;
    uint32_t copies = 0;
    uint8_t reply[13], flags;
    if (packet->length < 2 || packet->length < 2u + at[1]) {
        frisbeei_malformed(pool, conn);
        return true;
    }
    flags = at[0];
    *(uint8_t *)(uintptr_t)at = flags & 1; // in our own buffer; subscribers get no flags that the publisher made up
    publication.payload = at;
    publication.length = packet->length;
    publication.publisher = conn->id;
    publication.shared = NULL;
    if (!pool->broker) result = FRISBEE_UNSUPPORTED;
    else if (!frisbeei_topic_parse((const char *)at + 2, at[1], false, &topic)) result = FRISBEE_INVALID;
    else result = frisbeei_publish_check(pool, conn, at, packet->length);
    if (conn->state != FRISBEEI_OPEN || pool->ending) return true;
    if (result == FRISBEE_OK) {
        const bool counted = frisbeei_patterns_need(pool, conn);
        if (packet->from.id == 0 && frisbeei_batch_add(pool, &topic, &publication)) {
            if (counted) conn->patterns->published++;
            return true;
        }
        result = frisbeei_publish(pool, &topic, &publication, &copies);
        if (result == FRISBEE_AGAIN && counted) {
            *(uint8_t *)(uintptr_t)at = flags; // unread
            frisbeei_hold(pool, conn);
            return false;
        }
        if (result != FRISBEE_AGAIN && counted) conn->patterns->published++;
        if (result == FRISBEE_AGAIN && packet->from.id == 0) conn->dropped++; // not even the memory to wait
    } else {
        if (pool->broker) frisbeei_batch_end(pool); // what it published before goes before the answer
        if (packet->from.id == 0) conn->dropped++;
    }
    if (packet->from.id == 0) return true;
    reply[0] = frisbeei_result_status(result);
    frisbeei_put32(reply + 1, copies);
    frisbeei_put64(reply + 5, conn->patterns ? conn->patterns->lost : 0);
    frisbeei_answer(pool, conn, FRISBEEI_PUBLISHED, packet->from.id, reply, sizeof reply);
    return true;
}

// >>subscriber: subscriptions of this program at a peer's broker

static void frisbeei_mine_free(frisbee_pool *pool, frisbeei_sub *sub) {
    frisbeei_map_remove(pool, &sub->conn->patterns->mine, sub->number);
    frisbeei_sub_free(pool, sub);
}

static bool frisbeei_subscribe_send(frisbee_pool *pool, frisbeei_sub *sub) {
    uint8_t payload[8 + FRISBEE_TOPIC_MAX + FRISBEE_GROUP_MAX];
    payload[0] = sub->retained;
    payload[1] = sub->slow;
    frisbeei_put32(payload + 2, sub->limit);
    payload[6] = sub->topic_length;
    memcpy(payload + 7, frisbeei_sub_topic(sub), sub->topic_length);
    payload[7 + sub->topic_length] = sub->group_length;
    memcpy(payload + 8 + sub->topic_length, frisbeei_sub_group(sub), sub->group_length);
    sub->asked = frisbeei_queue_own(pool, sub->conn, FRISBEEI_SUBSCRIBE, sub->number, payload, 8u + sub->topic_length + sub->group_length, false);
    return sub->asked;
}

// A session has opened: subscriptions are asked for (again), but for those that on_open has just made. Those that find no room in the queue
// follow when it is low. False: no memory.
static bool frisbeei_subs_begin(frisbee_pool *pool, frisbeei_conn *conn) {
    uint32_t i;
    if (!conn->patterns || !conn->patterns->mine.count || !frisbeei_is_packets(conn)) return true;
    for (i = 0; i <= conn->patterns->mine.mask; i++) {
        frisbeei_sub *sub = (frisbeei_sub *)conn->patterns->mine.slots[i].value;
        if (!sub || sub->asked || sub->ending) continue;
        conn->patterns->asking = conn->queued && frisbeei_over(pool, conn, conn->header + 8u + sub->topic_length + sub->group_length, false);
        if (!conn->patterns->asking && frisbeei_subscribe_send(pool, sub)) continue;
        if (!conn->patterns->asking && !pool->fixed) return false;
        conn->patterns->asking = true;
        conn->flags |= FRISBEEI_WANT_WRITABLE;
        return true;
    }
    conn->patterns->asking = false;
    return true;
}

static void frisbeei_subscribed_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    frisbeei_sub *sub = conn->patterns ? (frisbeei_sub *)frisbeei_map_get(pool, &conn->patterns->mine, packet->from.id) : NULL;
    frisbee_result result;
    frisbeei_sub copy;
    if (packet->length < 1) {
        frisbeei_malformed(pool, conn);
        return;
    }
    result = frisbeei_status_result(*(const uint8_t *)packet->data);
    if (!sub) {
        conn->dropped++;
        return;
    }
    copy = *sub;
    if (sub->ending) return; // UNSUBSCRIBED will follow
    if (result != FRISBEE_OK) frisbeei_mine_free(pool, sub);
    if (copy.on_result) copy.on_result(pool, frisbeei_sub_handle(&copy), result, copy.user);
}

static void frisbeei_message_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    frisbeei_sub *sub = conn->patterns ? (frisbeei_sub *)frisbeei_map_get(pool, &conn->patterns->mine, packet->from.id) : NULL;
    const uint8_t *at = (const uint8_t *)packet->data;
    if (packet->length < 2 || packet->length < 2u + at[1]) frisbeei_malformed(pool, conn);
    else if (!sub || sub->ending) conn->dropped++;
    else frisbeei_tell_message(pool, sub, at, packet->length, sub->dropped);
}

static void frisbeei_dropped_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    frisbeei_sub *sub = conn->patterns ? (frisbeei_sub *)frisbeei_map_get(pool, &conn->patterns->mine, packet->from.id) : NULL;
    uint64_t dropped;
    if (packet->length < 8) {
        frisbeei_malformed(pool, conn);
        return;
    }
    dropped = (uint64_t)frisbeei_get32((const uint8_t *)packet->data) << 32 | frisbeei_get32((const uint8_t *)packet->data + 4);
    if (sub && dropped > sub->dropped) sub->dropped = dropped;
}

// The answer to a confirmed publish ends its call.
static void frisbeei_published_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    const uint8_t *at = (const uint8_t *)packet->data;
    frisbee_published published;
    frisbee_packet reply = *packet;
    if (packet->length < 13) {
        frisbeei_malformed(pool, conn);
        return;
    }
    published.subscriptions = frisbeei_get32(at + 1);
    published.lost = (uint64_t)frisbeei_get32(at + 5) << 32 | frisbeei_get32(at + 9);
    reply.data = &published;
    reply.length = sizeof published;
    if (conn->patterns) conn->patterns->peer_lost = published.lost;
    if (!conn->calls || !frisbeei_call_reply(pool, conn, &reply, frisbeei_status_result(at[0]))) conn->dropped++;
}

// The session ends: of the peer's subscriptions nothing remains; ours are asked for again in the next one, if there is one.
static void frisbeei_subs_end(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_patterns *patterns = conn->patterns;
    uint32_t i;
    if (pool->broker) frisbeei_hold_end(pool, conn);
    for (i = 0; patterns->theirs.slots && i <= patterns->theirs.mask;) {
        frisbeei_sub *sub = (frisbeei_sub *)patterns->theirs.slots[i].value;
        if (sub) frisbeei_broker_end(pool, sub);
        else i++;
    }
    if (pool->broker) frisbeei_broker_tell_ended(pool, conn);
    frisbeei_map_free(pool, &patterns->theirs);
    for (i = 0; patterns->mine.slots && i <= patterns->mine.mask;) {
        frisbeei_sub *sub = (frisbeei_sub *)patterns->mine.slots[i].value;
        if (sub && sub->ending) {
            frisbeei_mine_free(pool, sub);
            continue;
        }
        patterns->asking = false;
        if (sub) {
            sub->dropped = sub->told = 0; // the next session counts anew
            sub->asked = false;
        }
        i++;
    }
}

static void frisbeei_subs_drop(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_map *mine = &conn->patterns->mine;
    uint32_t i;
    for (i = 0; mine->slots && i <= mine->mask;)
        if (mine->slots[i].value) frisbeei_mine_free(pool, (frisbeei_sub *)mine->slots[i].value);
        else i++;
    frisbeei_map_free(pool, mine);
}

// Packets of publish and subscribe. False: a PUBLISH that has to wait.
static bool frisbeei_pubsub_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    frisbeei_sub *sub;
    switch (packet->from.operation) {
    case FRISBEEI_SUBSCRIBE: frisbeei_subscribe_input(pool, conn, packet); break;
    case FRISBEEI_SUBSCRIBED: frisbeei_subscribed_input(pool, conn, packet); break;
    case FRISBEEI_UNSUBSCRIBE: frisbeei_unsubscribe_input(pool, conn, packet); break;
    case FRISBEEI_UNSUBSCRIBED:
        sub = conn->patterns ? (frisbeei_sub *)frisbeei_map_get(pool, &conn->patterns->mine, packet->from.id) : NULL;
        if (sub && sub->ending) frisbeei_mine_free(pool, sub);
        else conn->dropped++;
        break;
    case FRISBEEI_PUBLISH: return frisbeei_publish_input(pool, conn, packet);
    case FRISBEEI_MESSAGE: frisbeei_message_input(pool, conn, packet); break;
    case FRISBEEI_DROPPED: frisbeei_dropped_input(pool, conn, packet); break;
    default: frisbeei_published_input(pool, conn, packet); break;
    }
    return true;
}
#else
static void frisbeei_message_drop(frisbee_pool *pool, frisbeei_message *message) { (void)pool, (void)message; }
static bool frisbeei_pump(frisbee_pool *pool, frisbeei_conn *conn) {
    (void)pool, (void)conn;
    return false;
}
static bool frisbeei_broker_busy(const frisbee_pool *pool) {
    (void)pool;
    return false;
}
static void frisbeei_broker_run(frisbee_pool *pool) { (void)pool; }
static void frisbeei_broker_free(frisbee_pool *pool) { (void)pool; }
static void frisbeei_batch_end(frisbee_pool *pool) { (void)pool; }
static frisbee_result frisbeei_broker_new(frisbee_pool *pool) { return pool->desc.broker ? FRISBEE_UNSUPPORTED : FRISBEE_OK; }
static bool frisbeei_subs_begin(frisbee_pool *pool, frisbeei_conn *conn) {
    (void)pool, (void)conn;
    return true;
}
static void frisbeei_subs_end(frisbee_pool *pool, frisbeei_conn *conn) { (void)pool, (void)conn; }
static void frisbeei_subs_drop(frisbee_pool *pool, frisbeei_conn *conn) { (void)pool, (void)conn; }
static bool frisbeei_pubsub_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    (void)pool, (void)packet, conn->dropped++;
    return true;
}
#endif

// The end of a session, for its streams and subscriptions.
static void frisbeei_patterns_end(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result reason) {
    if (!conn->patterns) return;
    frisbeei_streams_end(pool, conn, reason);
    frisbeei_subs_end(pool, conn);
}

static void frisbeei_patterns_drop(frisbee_pool *pool, frisbeei_conn *conn) {
    if (!conn->patterns) return;
    frisbeei_subs_drop(pool, conn);
    frisbeei_heap_give(pool, conn->patterns, sizeof *conn->patterns);
    conn->patterns = NULL;
}

// >>dispatch: whole packets to those who take them

static void frisbeei_ping(frisbee_pool *pool, frisbeei_conn *conn) {
    conn->pinged = pool->tick;
    if (conn->flags & FRISBEEI_PING_QUEUED || !frisbeei_queue_control(pool, conn, FRISBEEI_PING)) return;
    conn->flags |= FRISBEEI_PING_QUEUED;
    if (conn->patterns) conn->patterns->pings++;
    if (conn->pings == 0) conn->ping_us = (uint32_t)pool->now; // PONGs come in order: the next one answers the first PING
    conn->pings = 1;
}

// Frisbee's own operations, and ours.
static FRISBEEI_COLD void frisbeei_control(frisbee_pool *pool, frisbeei_conn *conn, uint32_t operation) {
    switch (operation) {
    case FRISBEEI_PING: // at most one answer waits: a flood of PINGs is not amplified
        if (conn->flags & (FRISBEEI_PONG_QUEUED | FRISBEEI_FINISH) || frisbeei_handing(conn)) break;
        if (frisbeei_queue_control(pool, conn, FRISBEEI_PONG)) conn->flags |= FRISBEEI_PONG_QUEUED;
        break;
    case FRISBEEI_PONG:
        if (conn->pings) {
            const uint32_t rtt = (uint32_t)pool->now - conn->ping_us;
            conn->rtt = rtt ? rtt : 1;
        }
        conn->pings = 0;
        if (conn->patterns) frisbeei_streams_pong(pool, conn);
        break;
    case FRISBEEI_FENCE:
        conn->flags |= FRISBEEI_FENCED;
        pool->stop = true;
        frisbeei_work(pool, conn, FRISBEEI_WORK_HAND);
        frisbeei_interest(pool, conn);
        if (!frisbeei_handing(conn)) {
            conn->packet_since = pool->tick; // how long our own hijack may take
            frisbeei_timer_in(pool, conn, conn->profile->desc.packet_ms);
        }
        break;
    case FRISBEEI_NOTHING: break;
    default: conn->dropped++; break;
    }
}

// In a fixed block, where a queue cannot grow, a packet that is to be answered waits until there is room for the answer.
static bool frisbeei_answer_fits(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    const uint32_t operation = packet->from.operation;
    const bool opens = operation == FRISBEEI_STREAM && packet->length && frisbeei_opens_stream(pool, conn, packet->from.id);
    if (!opens && operation != FRISBEEI_SUBSCRIBE && operation != FRISBEEI_UNSUBSCRIBE && operation != FRISBEEI_HELLO &&
        operation != FRISBEEI_SCHEMA && (operation != FRISBEEI_PUBLISH || packet->from.id == 0))
        return true;
    if (frisbeei_room(pool, conn, conn->header + 13u)) return true; // the longest: PUBLISHED
    conn->flags |= FRISBEEI_REPLIES_FULL | FRISBEEI_WANT_WRITABLE;
    pool->stop = true;
    frisbeei_interest(pool, conn);
    return false;
}

// A packet that is not the user's. False: it has to wait, and stays where it is.
static bool frisbeei_own(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    const uint32_t operation = packet->from.operation;
    if (operation != FRISBEEI_STREAM && (operation < FRISBEEI_HELLO || operation > FRISBEEI_SCHEMA_IS)) {
        frisbeei_control(pool, conn, operation);
        return true;
    }
    conn->used = pool->tick;
    if (pool->fixed && !frisbeei_answer_fits(pool, conn, packet)) return false;
    if (operation >= FRISBEEI_SUBSCRIBE && operation <= FRISBEEI_PUBLISHED && !frisbeei_pubsub_input(pool, conn, packet)) return false;
    conn->packets_in++;
    if (operation == FRISBEEI_STREAM) frisbeei_stream_input(pool, conn, packet);
    else if (operation == FRISBEEI_HELLO) frisbeei_hello_input(pool, conn, packet);
    else if (operation == FRISBEEI_CREDIT) frisbeei_credit_input(pool, conn, packet);
    else if (operation >= FRISBEEI_SCHEMA) frisbeei_schema_input(pool, conn, packet);
    else if (operation < FRISBEEI_SUBSCRIBE || operation > FRISBEEI_PUBLISHED) conn->dropped++;
    return true;
}

static const frisbee_route *frisbeei_route_find(frisbeei_profile *profile, uint32_t operation) {
    const frisbee_route *routes = profile->desc.routes;
    size_t low = 0, high = profile->desc.route_count;
    if (FRISBEEI_LIKELY(profile->last && profile->last->operation == operation)) return profile->last;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (routes[middle].operation < operation) low = middle + 1;
        else high = middle;
    }
    if (low == profile->desc.route_count || routes[low].operation != operation) return NULL;
    return profile->last = &routes[low];
}

static frisbeei_on *frisbeei_on_find(const frisbee_pool *pool, uint32_t operation) {
    uint32_t at;
    if (!pool->handlers) return NULL;
    for (at = (operation * 0x9E3779B1u >> 16) & pool->handler_mask; pool->handlers[at].key; at = (at + 1) & pool->handler_mask)
        if (pool->handlers[at].key == operation + 1) return &pool->handlers[at];
    return NULL;
}

static inline void frisbeei_deliver(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    frisbee_handler handler = NULL;
    void *user = NULL;
    if (conn->calls && conn->calls->live + conn->calls->lost > 0 && frisbeei_call_reply(pool, conn, packet, FRISBEE_OK)) return;
    if (conn->profile->desc.routes) {
        const frisbee_route *route = frisbeei_route_find(conn->profile, packet->from.operation);
        if (route) {
            handler = route->handler;
            user = route->user;
        }
    } else {
        const frisbeei_on *on = frisbeei_on_find(pool, packet->from.operation);
        if (on) {
            handler = on->handler;
            user = on->user;
        }
    }
    if (!handler && conn->profile->desc.events) {
        handler = conn->profile->desc.events->on_packet;
        user = conn->user;
    }
#if FRISBEEI_RPC
    if (!handler && pool->services && !conn->profile->desc.routes) handler = frisbeei_rpc_unknown;
#endif
    if (!handler) {
        conn->dropped++;
        return;
    }
    pool->packet = packet;
    pool->answered = false;
    handler(pool, packet, user);
    pool->packet = NULL;
}

// A packet, or a message that was kept, was handed out.
static void frisbeei_budget_count(frisbee_pool *pool) {
    if (pool->budget_packets && --pool->budget_packets == 0) pool->spent = true;
    if (pool->budget_end == FRISBEEI_NO_TIME) return;
    frisbeei_clock(pool);
    if (pool->now >= pool->budget_end) pool->spent = true;
}

static bool frisbeei_budget_spent(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_budget_count(pool);
    if (pool->effort > FRISBEEI_EFFORT) pool->spent = true;
    if (pool->spent) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
    return pool->spent;
}

// Hands out the whole packets at the head of `data`; answers how many bytes they took. Stops behind a packet whose taker asked for it
// (pool->stop): paused, closed, hijacked, destroyed, replies full, budget spent.
static size_t frisbeei_dispatch(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *data, size_t size) {
    const size_t header = conn->header;
    const uint32_t most = conn->profile->desc.max_packet;
    const bool budgeted = pool->budget_packets || pool->budget_end != FRISBEEI_NO_TIME;
    frisbee_packet packet;
    size_t at = 0;
    packet.from.conn.id = conn->id;
    packet.from.session = conn->session;
    pool->stop = false;
    if (conn->patterns && size >= header) frisbeei_streams_first(pool, conn, frisbeei_get16(data + header - 6));
    while (size - at >= header) {
        const uint8_t *fields = data + at + header - 8;
        const uint32_t operation = frisbeei_get16(fields + 2), length = frisbeei_get32(fields + 4);
        if (header == 10 && (fields[-2] != 0 || fields[-1] != 0x0F)) {
            frisbeei_fail(pool, conn, FRISBEE_MALFORMED, 0);
            break;
        }
        if (length > most) {
            frisbeei_fail(pool, conn, FRISBEE_TOO_LARGE, 0);
            break;
        }
        if (size - at - header < length) break;
        if (pool->broker && pool->broker->batch_count && operation != FRISBEEI_PUBLISH) { // what was published before this packet goes before it
            frisbeei_batch_end(pool);
            if (pool->stop) break;
        }
        at += header + length;
        packet.from.id = (uint16_t)frisbeei_get16(fields);
        packet.from.operation = (uint16_t)operation;
        packet.conn_user = conn->user;
        packet.data = fields + 8;
        packet.length = length;
        if (FRISBEEI_LIKELY(operation >= FRISBEEI_FIRST_OPERATION && operation <= FRISBEEI_LAST_OPERATION)) {
            conn->packets_in++;
            conn->used = pool->tick;
            frisbeei_deliver(pool, conn, &packet);
        } else if (!frisbeei_own(pool, conn, &packet)) {
            at -= header + length;
            break;
        }
        if ((budgeted || pool->effort > FRISBEEI_EFFORT) && operation > FRISBEEI_PONG && frisbeei_budget_spent(pool, conn)) pool->stop = true;
        if (pool->stop) break;
    }
    if (pool->broker) frisbeei_batch_end(pool); // the payloads lie in `data`
    return at;
}

// May packets be handed out now?
static bool frisbeei_goes_on(const frisbee_pool *pool, const frisbeei_conn *conn) {
    if (conn->state != FRISBEEI_OPEN || pool->spent || pool->ending) return false;
    if (conn->flags & (FRISBEEI_UNREAD | FRISBEEI_FENCED)) return false;
    return !conn->extra || (!conn->extra->raw && !conn->extra->protocol);
}

// Takes the bytes that were kept away from the connection, so that a callback that ends it does not pull them from under itself; what is
// left of them is put back.
static void frisbeei_dispatch_kept(frisbee_pool *pool, frisbeei_conn *conn) {
    uint8_t *in = conn->in;
    const uint32_t size = conn->in_size, room = conn->in_room;
    size_t used;
    conn->in = NULL;
    conn->in_size = conn->in_room = 0;
    conn->flags &= ~(uint32_t)FRISBEEI_PARTIAL;
    used = frisbeei_dispatch(pool, conn, in, size);
    if (used == size || conn->state > FRISBEEI_OPEN) {
        frisbeei_in_free(pool, in, room);
        conn->flags &= ~(uint32_t)FRISBEEI_STASHED;
        return;
    }
    memmove(in, in + used, size - used);
    conn->in = in;
    conn->in_size = (uint32_t)(size - used);
    conn->in_room = room;
    if (!pool->stop) conn->flags &= ~(uint32_t)FRISBEEI_STASHED;
}

static void frisbeei_stash(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *data, size_t size) {
    if (conn->state == FRISBEEI_CLOSED || conn->state == FRISBEEI_DRAINING || !frisbeei_in_append(pool, conn, data, size)) return;
    conn->flags &= ~(uint32_t)FRISBEEI_PARTIAL;
    if (conn->in_size) conn->flags |= FRISBEEI_STASHED;
    if (conn->in_size && conn->state == FRISBEEI_OPEN && pool->spent) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
    if (frisbeei_handing(conn)) frisbeei_work(pool, conn, FRISBEEI_WORK_HAND);
}

static void frisbeei_partial_begins(frisbee_pool *pool, frisbeei_conn *conn) {
    if (conn->flags & FRISBEEI_PARTIAL) return;
    conn->flags |= FRISBEEI_PARTIAL;
    conn->packet_since = pool->tick;
    frisbeei_timer_in(pool, conn, conn->profile->desc.packet_ms);
}

// `data` came behind what is kept: the packet that is kept is completed and handed out, then packets straight from `data`, then the rest is kept.
static void frisbeei_packets_input(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *data, size_t size) {
    while (conn->in_size && frisbeei_goes_on(pool, conn)) {
        const size_t total = conn->flags & FRISBEEI_STASHED ? conn->in_size : frisbeei_in_total(pool, conn);
        size_t part;
        if (total == 0) return;
        if (conn->in_size >= total) {
            frisbeei_dispatch_kept(pool, conn);
            continue;
        }
        if (size == 0) break;
        if (!frisbeei_in_trust(pool, conn, total)) return;
        part = frisbeei_least(size, frisbeei_least(total, conn->in_room) - conn->in_size);
        memcpy(conn->in + conn->in_size, data, part);
        conn->in_size += (uint32_t)part;
        data += part;
        size -= part;
    }
    while (conn->in_size == 0 && size && frisbeei_goes_on(pool, conn)) {
        const size_t used = frisbeei_dispatch(pool, conn, data, size);
        data += used;
        size -= used;
        if (pool->stop || size == 0) continue;
        (void)frisbeei_in_append(pool, conn, data, size); // the beginning of a packet
        size = 0;
    }
    if (!frisbeei_goes_on(pool, conn)) frisbeei_stash(pool, conn, data, size);
    else if (conn->in_size && frisbeei_in_total(pool, conn)) frisbeei_partial_begins(pool, conn);
}

static void frisbeei_protocol_input(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *data, size_t size) {
    frisbeei_extra *extra = conn->extra;
    uint8_t *in = NULL;
    uint32_t room = 0;
    size_t need = extra->need;
    if (size) conn->used = pool->tick;
    if (conn->in_size) {
        if (!frisbeei_in_append(pool, conn, data, size)) return;
        in = conn->in; // away from the connection while the protocol looks at it
        room = conn->in_room;
        data = in;
        size = conn->in_size;
        conn->in = NULL;
        conn->in_size = conn->in_room = 0;
    }
    conn->flags &= ~(uint32_t)FRISBEEI_STASHED;
    while (size && size >= need && conn->state == FRISBEEI_OPEN && !pool->spent && !pool->ending && !(conn->flags & FRISBEEI_PAUSED) &&
           !extra->hand) {
        size_t used = 0;
        frisbee_result result;
        need = 0;
        result = extra->protocol->input(pool, frisbeei_handle(conn), extra->state, data, size, &used, &need);
        if (used > size) result = FRISBEE_INVALID;
        if (result != FRISBEE_OK && result != FRISBEE_AGAIN) {
            frisbeei_fail(pool, conn, result, frisbeei_last_error(result));
            break;
        }
        data += used;
        size -= used;
        if (pool->budget_packets || pool->budget_end != FRISBEEI_NO_TIME) (void)frisbeei_budget_spent(pool, conn);
        if (used == 0) {
            if (need <= size) need = size + 1;
            break;
        }
    }
    extra->need = extra->hand ? 0 : need;
    if (size && conn->state != FRISBEEI_CLOSED && conn->state != FRISBEEI_DRAINING) {
        if (size > conn->profile->desc.max_packet && !extra->hand) frisbeei_fail(pool, conn, FRISBEE_TOO_LARGE, 0);
        else if (in) {
            memmove(in, data, size);
            conn->in = in;
            conn->in_size = (uint32_t)size;
            conn->in_room = room;
            in = NULL;
        } else frisbeei_in_append(pool, conn, data, size);
        if (conn->flags & FRISBEEI_PAUSED || pool->spent) conn->flags |= FRISBEEI_STASHED;
    }
    frisbeei_in_free(pool, in, room);
}

static void frisbeei_set_wire(frisbeei_conn *conn, frisbee_wire wire);
static void frisbeei_announce(frisbee_pool *pool, frisbeei_conn *conn);

// The first bytes of an unknown peer.
static void frisbeei_sniff_input(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *data, size_t size) {
    frisbee_wire wire = FRISBEE_WIRE_V1;
    frisbee_result result;
    if (conn->in_size) {
        if (!frisbeei_in_append(pool, conn, data, size)) return;
        size = 0;
        result = frisbee_sniff(conn->in, conn->in_size, conn->profile->desc.max_packet, &wire);
    } else result = frisbee_sniff(data, size, conn->profile->desc.max_packet, &wire);
    if (result == FRISBEE_AGAIN) {
        if (frisbeei_in_append(pool, conn, data, size) && conn->in_size) frisbeei_partial_begins(pool, conn);
        return;
    }
    if (result != FRISBEE_OK) {
        frisbeei_fail(pool, conn, result, 0);
        return;
    }
    conn->flags &= ~(uint32_t)FRISBEEI_PARTIAL;
    if (conn->in_size) conn->flags |= FRISBEEI_STASHED;
    frisbeei_set_wire(conn, wire);
    frisbeei_announce(pool, conn);
    if (conn->state != FRISBEEI_CLOSED) frisbeei_input(pool, conn, data, size);
}

static void frisbeei_input(frisbee_pool *pool, frisbeei_conn *conn, const uint8_t *data, size_t size) {
    frisbeei_conn *before = pool->current;
    pool->current = conn;
    pool->stop = false;
    if (conn->state == FRISBEEI_SNIFFING) frisbeei_sniff_input(pool, conn, data, size);
    else if (conn->state != FRISBEEI_OPEN) { // nobody reads it any more
    } else if (frisbeei_handing(conn) && conn->extra->raw) frisbeei_stash(pool, conn, data, size);
    else if (frisbeei_is_packets(conn)) frisbeei_packets_input(pool, conn, data, size);
    else if (conn->flags & FRISBEEI_PAUSED || pool->spent) frisbeei_stash(pool, conn, data, size);
    else frisbeei_protocol_input(pool, conn, data, size);
    pool->current = before;
}

// >>reading

static void frisbeei_begin_close(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result reason) {
    if (conn->state == FRISBEEI_CLOSED || conn->state == FRISBEEI_DRAINING || conn->state == FRISBEEI_LINGERING) return;
    if (conn->state != FRISBEEI_OPEN) {
        frisbeei_fail(pool, conn, reason, 0);
        return;
    }
    frisbeei_publishers_try(pool);
    conn->reason = (int8_t)reason;
    conn->state = FRISBEEI_DRAINING;
    conn->flags |= FRISBEEI_FINISH;
    if (pool->current == conn) pool->stop = true;
    frisbeei_in_drop(pool, conn);
    conn->flags &= ~(uint32_t)(FRISBEEI_PARTIAL | FRISBEEI_STASHED | FRISBEEI_UNWATCHED);
    frisbeei_interest(pool, conn);
    frisbeei_dirty(pool, conn);
}

static uint32_t frisbeei_deferred_count(const frisbeei_conn *conn) { return conn->deferred ? conn->deferred->count : 0; }

// A peer that has ended, and got and gave everything, is let go, unless on_end decides that.
static void frisbeei_ended_done(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbee_events *events = conn->profile->desc.events;
    if (!(conn->flags & FRISBEEI_END_TOLD) || conn->state != FRISBEEI_OPEN || !frisbeei_is_packets(conn) || frisbeei_handing(conn)) return;
    if (frisbeei_deferred_count(conn) || (conn->patterns && conn->patterns->kept) || (events && events->on_end)) return;
    frisbeei_begin_close(pool, conn, FRISBEE_CLOSED);
}

// The peer's end was read, and everything before it handed out.
static void frisbeei_tell_end(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbee_events *events = conn->profile->desc.events;
    if (conn->flags & FRISBEEI_END_TOLD) return;
    conn->flags |= FRISBEEI_END_TOLD;
    if (frisbeei_handing(conn)) {
        if (conn->extra->raw || conn->flags & FRISBEEI_FENCED) frisbeei_work(pool, conn, FRISBEEI_WORK_HAND);
        else frisbeei_fail(pool, conn, FRISBEE_CLOSED, 0);
        return;
    }
    if (conn->state != FRISBEEI_OPEN) {
        frisbeei_fail(pool, conn, conn->state == FRISBEEI_LINGERING ? (frisbee_result)conn->reason : FRISBEE_CLOSED, 0);
        return;
    }
    conn->flags &= ~(uint32_t)FRISBEEI_PARTIAL;
    pool->current = conn;
    if (!frisbeei_is_packets(conn)) {
        if (conn->extra->protocol->end) conn->extra->protocol->end(pool, frisbeei_handle(conn), conn->extra->state);
        else frisbeei_begin_close(pool, conn, FRISBEE_CLOSED);
    } else {
        if (events && events->on_end) events->on_end(pool, frisbeei_handle(conn), conn->user);
        else frisbeei_ended_done(pool, conn);
        frisbeei_calls_end_all(pool, conn); // no reply can come any more
    }
    if (conn->flags & FRISBEEI_FINISHED) frisbeei_begin_close(pool, conn, FRISBEE_CLOSED); // both directions have ended
    pool->current = NULL;
}

static void frisbeei_ended(frisbee_pool *pool, frisbeei_conn *conn) {
    conn->flags |= FRISBEEI_ENDED;
    frisbeei_interest(pool, conn);
    if (!(conn->flags & FRISBEEI_STASHED) || (conn->extra && conn->extra->raw)) frisbeei_tell_end(pool, conn);
}

// Reads once (a transport: until it has no more, within bounds) and hands out what came.
static void frisbeei_read(frisbee_pool *pool, frisbeei_conn *conn) {
    int rounds = conn->io ? FRISBEEI_ROUNDS : 1;
    while (rounds-- > 0 && frisbeei_may_read(conn) && !(conn->flags & FRISBEEI_STASHED && conn->state == FRISBEEI_OPEN && !frisbeei_handing(conn))) {
        size_t own = 0, room = pool->desc.read_buffer, done;
        frisbee_result result;
        if (conn->in_size && conn->state == FRISBEEI_OPEN && frisbeei_is_packets(conn) && !frisbeei_handing(conn)) { // the rest goes to its place
            const size_t total = frisbeei_in_total(pool, conn);
            if (total == 0 || !frisbeei_in_trust(pool, conn, total)) return;
            own = frisbeei_least(total, conn->in_room) - conn->in_size;
        }
        if (pool->fixed && conn->in_size) room = conn->in_room - conn->in_size - own; // all of it may have to be kept
        if (room + own == 0) break;
        result = frisbeei_io_read(conn, own ? conn->in + conn->in_size : NULL, own, pool->read_buffer, room, &done);
        if (result == FRISBEE_OK && done > 0) {
            const size_t kept = frisbeei_least(own, done);
            conn->bytes_in += done;
            conn->heard = pool->tick;
            if (conn->state == FRISBEEI_LINGERING) continue;
            conn->in_size += (uint32_t)kept;
            frisbeei_input(pool, conn, pool->read_buffer, done - kept);
            continue;
        }
        if (result == FRISBEE_CLOSED) frisbeei_ended(pool, conn);
        else if (result != FRISBEE_OK && result != FRISBEE_AGAIN) frisbeei_fail(pool, conn, result, frisbeei_last_error(result));
        return;
    }
    if (conn->io && frisbeei_may_read(conn)) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT); // it may have more than the socket shows
}

// Reads what the peer sent before writing to it failed, then closes.
static FRISBEEI_COLD void frisbeei_read_last(frisbee_pool *pool, frisbeei_conn *conn) {
    const int error = conn->system_error;
    int rounds = FRISBEEI_ROUNDS * 4;
    uint64_t before = conn->bytes_in + 1;
    while (rounds-- > 0 && conn->state == FRISBEEI_OPEN && frisbeei_may_read(conn) && conn->bytes_in != before) {
        before = conn->bytes_in;
        frisbeei_read(pool, conn);
    }
    if (pool->spent && conn->state == FRISBEEI_OPEN) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT); // the rest in the next turn
    else frisbeei_fail(pool, conn, FRISBEE_SYSTEM, error);
}

// Goes on with what is stashed, then with the peer's end if it was read, then with reading.
static void frisbeei_resume(frisbee_pool *pool, frisbeei_conn *conn) {
    if (conn->in_size && (conn->state == FRISBEEI_OPEN || conn->state == FRISBEEI_SNIFFING)) {
        if (conn->state == FRISBEEI_SNIFFING) conn->flags &= ~(uint32_t)FRISBEEI_STASHED;
        frisbeei_input(pool, conn, NULL, 0);
    }
    if (conn->state == FRISBEEI_CLOSED) return;
    if (conn->flags & FRISBEEI_BROKEN) {
        frisbeei_read_last(pool, conn);
        return;
    }
    if (conn->flags & FRISBEEI_ENDED && !(conn->flags & FRISBEEI_STASHED)) frisbeei_tell_end(pool, conn);
    if (conn->io && pool->spent) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT); // it may have been woken: in the next turn
    else if (conn->io) frisbeei_try(pool, conn, FRISBEE_READ | FRISBEE_WRITE);
}

// >>hand over: hijack and upgrade, from the request to the moment when the last packet is out and in

// How many bytes of `in` are whole PINGs and PONGs of the wire; *open: what follows could still become one.
static uint32_t frisbeei_heartbeats(const frisbeei_conn *conn, bool *open) {
    uint32_t at = 0;
    *open = false;
    while (at < conn->in_size) {
        uint8_t ping[FRISBEE_WIRE_HEADER_MAX], pong[FRISBEE_WIRE_HEADER_MAX];
        const size_t left = frisbeei_least(conn->in_size - at, conn->header);
        frisbeei_put_header(ping, conn->header, FRISBEEI_PING, 0, 0);
        frisbeei_put_header(pong, conn->header, FRISBEEI_PONG, 0, 0);
        if (memcmp(conn->in + at, ping, left) != 0 && memcmp(conn->in + at, pong, left) != 0) break;
        *open = left < conn->header;
        if (*open) break;
        at += conn->header;
    }
    return at;
}

// The protocol of the connection changes; calls were ended before.
static void frisbeei_swap_protocol(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_protocol *protocol) {
    frisbeei_extra *extra = conn->extra;
    const frisbee_protocol *old = extra->protocol;
    frisbee_result result = FRISBEE_OK;
    extra->hand = FRISBEEI_HAND_NONE;
    extra->raw = false;
    conn->flags &= ~(uint32_t)(FRISBEEI_FENCED | FRISBEEI_PARTIAL | FRISBEEI_END_TOLD);
    if (old && extra->started && old->stop) old->stop(pool, frisbeei_handle(conn), extra->state);
    extra->started = false;
    if (conn->state != FRISBEEI_OPEN) return;
    extra->protocol = protocol;
    extra->need = 0;
    if (protocol) {
        extra->state = protocol->user;
        if (protocol->start) result = protocol->start(pool, frisbeei_handle(conn), protocol->user, &extra->state);
        extra->started = result == FRISBEE_OK;
        if (result != FRISBEE_OK) frisbeei_fail(pool, conn, result, frisbeei_last_error(result));
    } else {
        conn->heard = pool->tick;
        frisbeei_timer_in(pool, conn, 0); // heartbeats count again
        if (!frisbeei_streams_begin(pool, conn)) frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
        else if (conn->profile->desc.streams && !(conn->flags & FRISBEEI_ACCEPTED)) frisbeei_ping(pool, conn);
    }
    if (conn->in_size) conn->flags |= FRISBEEI_STASHED;
    frisbeei_interest(pool, conn);
    frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
}

static void frisbeei_hand_done(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_extra *extra = conn->extra;
    if (extra->hand == FRISBEEI_HAND_OVER) {
        conn->flags |= FRISBEEI_HANDED_OVER | FRISBEEI_NO_RETRY;
        frisbeei_fail(pool, conn, FRISBEE_HIJACKED, 0);
        return;
    }
    frisbeei_calls_end_all(pool, conn);
    if (conn->patterns) {
        frisbeei_patterns_end(pool, conn, FRISBEE_HIJACKED);
        frisbeei_subs_drop(pool, conn);
    }
    if (conn->state != FRISBEEI_OPEN) return;
    frisbeei_swap_protocol(pool, conn, extra->upgrade_to);
    frisbeei_resume(pool, conn); // what was read behind the last packet, in this turn
}

// Is it time? Called when the queue got empty, bytes or the fence came, or the peer ended.
static void frisbeei_hand_step(frisbee_pool *pool, frisbeei_conn *conn, bool late) {
    frisbeei_extra *extra = conn->extra;
    bool open = false;
    if (conn->state != FRISBEEI_OPEN || !frisbeei_handing(conn)) return;
    if (extra->how == FRISBEE_HIJACK_NOW) {
        frisbeei_hand_done(pool, conn);
        return;
    }
    if (conn->queued > 0 || conn->flags & FRISBEEI_TRANSPORT_BUSY) {
        if (late) frisbeei_fail(pool, conn, FRISBEE_TIMED_OUT, 0);
        return;
    }
    if (extra->how == FRISBEE_HIJACK_FENCED) {
        if (conn->flags & FRISBEEI_FENCED) frisbeei_hand_done(pool, conn);
        else if (late) frisbeei_fail(pool, conn, FRISBEE_TIMED_OUT, 0);
        return;
    }
    if (conn->in_size) {
        const uint32_t skip = frisbeei_heartbeats(conn, &open);
        memmove(conn->in, conn->in + skip, conn->in_size - skip);
        conn->in_size -= skip;
    }
    // bytes that only begin like a PING are raw if nothing more comes
    if (conn->in_size && (!open || late || conn->flags & FRISBEEI_ENDED)) frisbeei_hand_done(pool, conn);
    else if (conn->flags & FRISBEEI_ENDED) frisbeei_fail(pool, conn, FRISBEE_CLOSED, 0);
    else if (late) frisbeei_fail(pool, conn, FRISBEE_TIMED_OUT, 0);
}

static frisbee_result frisbeei_hand_begin(frisbee_pool *pool, frisbeei_conn *conn, frisbeei_hand hand, frisbee_hijack_how how, int32_t timeout_ms) {
    frisbee_result result;
    if (how != FRISBEE_HIJACK_FENCED && how != FRISBEE_HIJACK_STOCK && how != FRISBEE_HIJACK_NOW) return FRISBEE_INVALID;
    if (frisbeei_handing(conn)) return FRISBEE_BUSY;
    if (conn->state != FRISBEEI_OPEN) {
        result = frisbeei_may_send(pool, conn);
        return result == FRISBEE_OK ? FRISBEE_NOT_SENT : result;
    }
    if (!frisbeei_is_packets(conn) && how != FRISBEE_HIJACK_NOW) return FRISBEE_INVALID;
    if (conn->flags & FRISBEEI_FINISH && how != FRISBEE_HIJACK_NOW) return FRISBEE_CLOSED;
    result = frisbeei_extra_need(pool, conn);
    if (result != FRISBEE_OK) return result;
    if (pool->broker) frisbeei_batch_end(pool);
    if (how == FRISBEE_HIJACK_FENCED && !frisbeei_queue_control(pool, conn, FRISBEEI_FENCE))
        return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
    conn->extra->hand = (uint8_t)hand;
    conn->extra->how = (uint8_t)how;
    conn->extra->raw = how != FRISBEE_HIJACK_FENCED;
    conn->extra->hand_deadline = timeout_ms < 0 ? FRISBEEI_NO_TIME : pool->now + (int64_t)timeout_ms * 1000;
    if (timeout_ms >= 0) frisbeei_timer_need(pool, conn, conn->extra->hand_deadline);
    if (conn->extra->raw && pool->current == conn) pool->stop = true;
    conn->flags &= ~(uint32_t)(FRISBEEI_PAUSED | FRISBEEI_UNWATCHED);
    frisbeei_publishers_try(pool);
    frisbeei_interest(pool, conn);
    frisbeei_work(pool, conn, FRISBEEI_WORK_HAND | FRISBEEI_WORK_INPUT);
    return FRISBEE_OK;
}

static size_t frisbeei_unsent_bytes(const frisbee_pool *pool, const frisbeei_conn *conn) {
    return pool->fixed ? sizeof(frisbeei_chunk) + pool->chunk_bytes : conn->queued; // a size that the block hands out anyway
}

// What is queued, as one span: in place, or in a copy that the caller gives back. False: no memory.
static bool frisbeei_unsent(frisbee_pool *pool, const frisbeei_conn *conn, frisbee_span *span, uint8_t **copy) {
    const frisbeei_chunk *chunk = conn->out_head;
    size_t at = 0;
    *copy = NULL;
    span->data = NULL;
    span->length = conn->queued;
    if (conn->queued == 0) return true;
    if (!chunk->borrowed && chunk->end - chunk->start == conn->queued) {
        span->data = chunk->data + chunk->start;
        return true;
    }
    *copy = (uint8_t *)frisbeei_allocate(pool, frisbeei_unsent_bytes(pool, conn));
    if (!*copy) return false;
    for (; chunk; chunk = chunk->next) {
        memcpy(*copy + at, chunk->header + chunk->header_at, (size_t)(chunk->header_size - chunk->header_at));
        at += (size_t)(chunk->header_size - chunk->header_at);
        if (chunk->end > chunk->start) memcpy(*copy + at, chunk->data + chunk->start, chunk->end - chunk->start);
        at += chunk->end - chunk->start;
    }
    span->data = *copy;
    return true;
}

// Tells the hijacker how it went; the transport is his, or closed.
static void frisbeei_hand_tell(frisbee_pool *pool, frisbeei_conn *conn, frisbee_span unsent) {
    frisbeei_extra *extra = conn->extra;
    frisbee_hijacked hijacked;
    memset(&hijacked, 0, sizeof hijacked);
    hijacked.socket = FRISBEE_NO_SOCKET;
    hijacked.result = (frisbee_result)conn->reason;
    if (conn->flags & FRISBEEI_HANDED_OVER) {
        hijacked.result = FRISBEE_OK;
        if (conn->io) hijacked.io = *conn->io;
        else hijacked.socket = conn->watch.fd;
        hijacked.unread.data = conn->in;
        hijacked.unread.length = conn->in_size;
        hijacked.unsent = unsent;
    } else if (hijacked.result == FRISBEE_OK) hijacked.result = FRISBEE_CLOSED;
    extra->hand = FRISBEEI_HAND_NONE;
    if (extra->on_hijacked) extra->on_hijacked(pool, frisbeei_handle(conn), &hijacked, extra->hijack_user);
}

// >>session: from a transport to on_open, and to on_close

static void frisbeei_set_wire(frisbeei_conn *conn, frisbee_wire wire) {
    conn->wire = (uint8_t)wire;
    if (wire != FRISBEE_WIRE_V0 || conn->header == 8) return;
    if (frisbeei_is_packets(conn)) frisbeei_queue_to_v0(conn);
    conn->header = 8;
}

// The session is open: on_open, then the protocol's start.
static void frisbeei_announce(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbee_conn_desc *desc = &conn->profile->desc;
    const bool first = !(conn->flags & FRISBEEI_OPENED);
    conn->state = FRISBEEI_OPEN;
    conn->deadline = FRISBEEI_NO_TIME;
    if (first && conn->flags & FRISBEEI_EVER_OPENED && !frisbeei_streams_begin(pool, conn)) frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
    conn->flags |= FRISBEEI_OPENED | FRISBEEI_EVER_OPENED;
    conn->heard = conn->used = conn->pinged = pool->tick;
    frisbeei_timer_in(pool, conn, 0); // the timer finds out what is to be watched
    if (first) {
        conn->sessions++;
        if (conn->extra) conn->extra->retries = 0;
        if (frisbeei_is_packets(conn) && !(conn->flags & FRISBEEI_ACCEPTED)) frisbeei_ping(pool, conn); // so that the peer learns the wire
        FRISBEEI_LOG(pool, FRISBEE_LOG_INFO, "connection open", "");
        if (desc->events && desc->events->on_open) desc->events->on_open(pool, frisbeei_handle(conn), conn->user);
        if (frisbeei_may_deliver(conn) && !frisbeei_subs_begin(pool, conn)) frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
        if (conn->state == FRISBEEI_OPEN && conn->extra && conn->extra->protocol && !conn->extra->started && !conn->extra->hand)
            frisbeei_swap_protocol(pool, conn, conn->extra->protocol);
    }
    if (conn->state != FRISBEEI_OPEN) return;
    frisbeei_interest(pool, conn);
    frisbeei_dirty(pool, conn);
    if (conn->in_size || conn->io) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
}

// The transport's handshake is done. An acceptor of packets waits for the first bytes.
static void frisbeei_ready(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbee_wire wire = conn->profile->desc.wire;
    const bool acceptor = conn->flags & FRISBEEI_ACCEPTED;
    conn->deadline = FRISBEEI_NO_TIME;
    if (wire == FRISBEE_WIRE_V0 || wire == FRISBEE_WIRE_V1) frisbeei_set_wire(conn, wire);
    else if (!acceptor && wire == FRISBEE_WIRE_AUTO) frisbeei_set_wire(conn, FRISBEE_WIRE_V1);
    else if (frisbeei_is_packets(conn)) {
        conn->state = FRISBEEI_SNIFFING;
        if (!acceptor) frisbeei_deadline(pool, conn, FRISBEEI_WAIT_WIRE_MS);
        frisbeei_timer_in(pool, conn, conn->profile->desc.idle_ms);
        frisbeei_interest(pool, conn);
        if (conn->in_size || conn->io) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
        return;
    }
    frisbeei_announce(pool, conn);
}

static void frisbeei_try_open(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbee_result result = FRISBEE_OK;
    if (conn->io && conn->io->open) result = conn->io->open(conn->io->context);
    if (result == FRISBEE_OK) frisbeei_ready(pool, conn);
    else if (result == FRISBEE_AGAIN) frisbeei_interest(pool, conn);
    else frisbeei_fail(pool, conn, result, frisbeei_last_error(result));
}

// Lets the user put transports on top of what there is.
static frisbee_result frisbeei_wrap(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbee_result result;
    if (!conn->profile->desc.wrap) return FRISBEE_OK;
#if FRISBEEI_SOCKETS
    if (!conn->io) {
        conn->io = (frisbee_transport *)frisbeei_allocate(pool, sizeof *conn->io);
        if (!conn->io) return FRISBEE_NO_MEMORY;
        *conn->io = frisbeei_plain(conn->watch.fd);
    }
#endif
    result = conn->profile->desc.wrap(pool, frisbeei_handle(conn), conn->io, conn->user);
    return result == FRISBEE_AGAIN ? FRISBEE_INVALID : result;
}

// A connected socket or a transport is there: wrap, handshake.
static void frisbeei_open_session(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbee_result result;
    conn->state = FRISBEEI_OPENING;
    conn->heard = conn->used = pool->tick;
    frisbeei_deadline(pool, conn, conn->profile->desc.open_ms);
    result = frisbeei_wrap(pool, conn);
    if (conn->io) {
        if (conn->watch.slot) frisbeei_poller_remove(pool, &conn->watch);
        conn->watch.fd = conn->io->socket ? (int)conn->io->socket(conn->io->context) : -1;
        if (conn->watch.fd < 0 && !conn->io->wake_only && !(conn->flags & FRISBEEI_POLLED)) {
            conn->flags |= FRISBEEI_POLLED;
            pool->polled_count++;
        }
    }
    if (conn->state != FRISBEEI_OPENING) return; // closed by wrap
    if (result != FRISBEE_OK) frisbeei_fail(pool, conn, result, frisbeei_last_error(result));
    else frisbeei_try_open(pool, conn);
}

static void frisbeei_profile_release(frisbee_pool *pool, frisbeei_profile *profile) {
    if (--profile->references == 0) frisbeei_give_back(pool, profile, sizeof *profile);
}

static void frisbeei_extra_drop(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_extra *extra = conn->extra;
    if (!extra) return;
#if FRISBEEI_SOCKETS
    frisbeei_give_back(pool, extra->addresses, extra->address_count * sizeof *extra->addresses);
#endif
    frisbeei_give_back(pool, extra->host, extra->host_bytes);
    frisbeei_give_back(pool, extra, sizeof *extra);
    conn->extra = NULL;
}

// Lets go of the transport: out of the poller first, then closed, unless it was handed over.
static void frisbeei_close_transport(frisbee_pool *pool, frisbeei_conn *conn) {
    const bool keep = conn->flags & FRISBEEI_HANDED_OVER;
    frisbeei_poller_remove(pool, &conn->watch);
    conn->flags &= ~(uint32_t)FRISBEEI_UNWATCHED;
    if (conn->flags & FRISBEEI_POLLED) pool->polled_count--;
    conn->flags &= ~(uint32_t)FRISBEEI_POLLED;
    if (keep) return;
    if (conn->io && !pool->abandoned) conn->io->close(conn->io->context);
#if FRISBEEI_SOCKETS
    else if (conn->watch.fd >= 0) (void)FRISBEE_SYS_CLOSE(conn->watch.fd);
#endif
    conn->watch.fd = -1;
}

static void frisbeei_dirty_remove(frisbee_pool *pool, frisbeei_conn *conn) {
    uint32_t at, before = 0;
    if (!(conn->flags & FRISBEEI_IS_DIRTY)) return;
    for (at = pool->dirty_head; at != frisbeei_index(conn); at = frisbeei_at(pool, at)->next_dirty) before = at;
    if (before) frisbeei_at(pool, before)->next_dirty = conn->next_dirty;
    else pool->dirty_head = conn->next_dirty;
    if (pool->dirty_tail == at) pool->dirty_tail = before;
    conn->flags &= ~(uint32_t)FRISBEEI_IS_DIRTY;
}

static int32_t frisbeei_retry_pause(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbee_conn_desc *desc = &conn->profile->desc;
    int64_t pause = desc->retry_min_ms;
    uint32_t i;
    for (i = 0; i < conn->extra->retries && pause < desc->retry_max_ms; i++) pause *= 2;
    if (pause > desc->retry_max_ms) pause = desc->retry_max_ms;
    conn->extra->retries++;
    return (int32_t)(pause - (int64_t)(frisbeei_random(pool) % ((uint64_t)pause / 2 + 1)));
}

static void frisbeei_total_add(frisbee_stats *total, const frisbeei_conn *conn) {
    total->packets_in += conn->packets_in;
    total->packets_out += conn->packets_out;
    total->bytes_in += conn->bytes_in;
    total->bytes_out += conn->written;
    total->dropped += conn->dropped;
    total->late_replies += conn->late_replies;
    total->sessions += conn->sessions;
    total->queued += conn->queued;
    total->calls += conn->calls ? conn->calls->live : 0;
    total->lost_ids += conn->calls ? conn->calls->lost : 0;
    total->deferred += frisbeei_deferred_count(conn);
    total->streams += conn->patterns ? conn->patterns->live : 0;
}

static void frisbeei_listeners_resume(frisbee_pool *pool, bool tired);

// What the session had is given back. What was queued before a first open waits for it.
static void frisbeei_session_drop(frisbee_pool *pool, frisbeei_conn *conn, bool keep_queue) {
    if (conn->io) frisbeei_give_back(pool, conn->io, sizeof *conn->io);
    conn->io = NULL;
    frisbeei_in_drop(pool, conn);
    if (conn->deferred) frisbeei_give_back(pool, conn->deferred, conn->deferred->bytes);
    conn->deferred = NULL;
    if (keep_queue) return;
    frisbeei_queue_drop(pool, conn);
    if (conn->calls) frisbeei_give_back(pool, conn->calls, conn->calls->bytes);
    conn->calls = NULL;
}

// The end of a session, in the order that the manual promises; then another one, or the end of the handle.
static void frisbeei_close_session(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbee_events *events = conn->profile->desc.events;
    frisbeei_extra *extra = conn->extra;
    const bool retry = frisbeei_will_retry(pool, conn), keep_queue = retry && !(conn->flags & FRISBEEI_EVER_OPENED);
    frisbee_close_info info;
    frisbee_span unsent = {NULL, 0};
    uint8_t *copy = NULL;
    frisbeei_timer_clear(pool, conn);
    if (!keep_queue) {
        frisbeei_calls_end_all(pool, conn);
        frisbeei_patterns_end(pool, conn, (frisbee_result)conn->reason);
    }
    if (conn->flags & FRISBEEI_HANDED_OVER && !frisbeei_unsent(pool, conn, &unsent, &copy)) {
        conn->flags &= ~(uint32_t)FRISBEEI_HANDED_OVER; // no memory to hand over with: it is closed after all
        conn->reason = FRISBEE_NO_MEMORY;
    }
    info.reason = (frisbee_result)conn->reason;
    info.system_error = conn->system_error;
    info.opened = conn->flags & FRISBEEI_OPENED;
    frisbeei_close_transport(pool, conn);
    if (extra && extra->hand == FRISBEEI_HAND_OVER) frisbeei_hand_tell(pool, conn, unsent);
    frisbeei_give_back(pool, copy, frisbeei_unsent_bytes(pool, conn));
    if (extra && extra->started && extra->protocol->stop) extra->protocol->stop(pool, frisbeei_handle(conn), extra->state);
    if (extra) {
        extra->started = extra->raw = false;
        extra->hand = FRISBEEI_HAND_NONE;
        extra->protocol = conn->profile->desc.protocol;
    }
    frisbeei_session_drop(pool, conn, keep_queue);
    frisbeei_run_releases(pool);
    info.retry_ms = retry && frisbeei_will_retry(pool, conn) ? frisbeei_retry_pause(pool, conn) : FRISBEE_NEVER;
    FRISBEEI_LOG(pool, FRISBEE_LOG_INFO, "connection closed: ", frisbee_result_string(info.reason));
    if (events && events->on_close) events->on_close(pool, frisbeei_handle(conn), &info, conn->user);
    if (info.retry_ms >= 0 && frisbeei_will_retry(pool, conn)) {
        conn->session++;
        conn->wire = FRISBEE_WIRE_AUTO;
        if (!keep_queue) conn->header = 10;
        conn->flags &= FRISBEEI_EVER_OPENED | FRISBEEI_ACCEPTED | FRISBEEI_IS_DIRTY | FRISBEEI_HAS_WORK | FRISBEEI_WANT_WRITABLE |
                       FRISBEEI_PAUSED | (keep_queue ? (uint32_t)FRISBEEI_FINISH : 0u);
        conn->pings = 0;
        conn->state = FRISBEEI_WAITING;
        frisbeei_deadline(pool, conn, info.retry_ms);
        if (conn->calls) frisbeei_timer_in(pool, conn, 0);
        return;
    }
    if (info.retry_ms >= 0) { // closed in its on_close, which had announced another session: the handle's end is told as well
        info.reason = FRISBEE_OK;
        info.system_error = 0;
        info.opened = false;
        info.retry_ms = FRISBEE_NEVER;
        frisbeei_calls_end_all(pool, conn);
        if (events && events->on_close) events->on_close(pool, frisbeei_handle(conn), &info, conn->user);
    }
    frisbeei_session_drop(pool, conn, false);
    frisbeei_total_add(&pool->total, conn);
    frisbeei_patterns_drop(pool, conn);
    frisbeei_extra_drop(pool, conn);
    frisbeei_timer_clear(pool, conn);
    frisbeei_dirty_remove(pool, conn);
    frisbeei_profile_release(pool, conn->profile);
    frisbeei_conn_give(pool, conn);
    frisbeei_listeners_resume(pool, false);
}

static void frisbeei_start(frisbee_pool *pool, frisbeei_conn *conn);

// Everything that waited for a safe point. Work that comes up meanwhile waits for the next time, but for closing.
static void frisbeei_run_work(frisbee_pool *pool) {
    const uint32_t last = pool->work_tail;
    uint32_t index = 0;
    while (pool->work_head && index != last) {
        frisbeei_conn *conn;
        uint8_t bits;
        index = pool->work_head;
        conn = frisbeei_at(pool, index);
        pool->work_head = conn->next_work;
        if (!pool->work_head) pool->work_tail = 0;
        conn->flags &= ~(uint32_t)FRISBEEI_HAS_WORK;
        bits = conn->work;
        conn->work = 0;
        if (bits & FRISBEEI_WORK_START && conn->state != FRISBEEI_CLOSED) frisbeei_start(pool, conn);
        if (bits & FRISBEEI_WORK_INPUT && pool->input_later) frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
        else if (bits & FRISBEEI_WORK_INPUT && conn->state != FRISBEEI_CLOSED) frisbeei_resume(pool, conn);
        if (bits & FRISBEEI_WORK_SWEEP && conn->state != FRISBEEI_CLOSED) frisbeei_calls_sweep(pool, conn);
        if (bits & FRISBEEI_WORK_STREAMS && conn->state == FRISBEEI_OPEN) frisbeei_streams_run(pool, conn);
        if (bits & FRISBEEI_WORK_HAND) frisbeei_hand_step(pool, conn, false);
        if (bits & FRISBEEI_WORK_WRITABLE && conn->state == FRISBEEI_OPEN && conn->profile->desc.events->on_writable)
            conn->profile->desc.events->on_writable(pool, frisbeei_handle(conn), conn->user);
        if (conn->state == FRISBEEI_CLOSED) {
            if (conn->flags & FRISBEEI_HAS_WORK) continue; // further back in the list: closed from there
            frisbeei_close_session(pool, conn);
        }
    }
}

// >>sockets: addresses, listening, connecting

#if FRISBEEI_SOCKETS
static bool frisbeei_port(const char *text, uint16_t *port) {
    uint32_t value = 0;
    const char *at;
    for (at = text; *at; at++) {
        if (*at < '0' || *at > '9' || at - text > 4) return false;
        value = value * 10 + (uint32_t)(*at - '0');
    }
    *port = (uint16_t)value;
    return at != text && value <= 65535;
}

// Splits "host:port", "[v6]:port" or "unix:/path" (port NULL) into text of its own: host, end, port, end.
static frisbee_result frisbeei_split(const char *address, char *text, size_t room, const char **port) {
    const size_t length = address ? strlen(address) : 0;
    const char *colon = address ? strrchr(address, ':') : NULL;
    size_t host;
    uint16_t number;
    if (!colon || length + 1 > room) return FRISBEE_INVALID;
    memcpy(text, address, length + 1);
    *port = NULL;
    if (strncmp(address, "unix:", 5) == 0)
        return address[5] && length - 5 < sizeof(((struct sockaddr_un *)0)->sun_path) ? FRISBEE_OK : FRISBEE_INVALID;
    host = (size_t)(colon - address);
    if (!frisbeei_port(colon + 1, &number)) return FRISBEE_INVALID;
    text[host] = 0;
    *port = text + host + 1;
    if (text[0] == '[') {
        if (host < 3 || text[host - 1] != ']') return FRISBEE_INVALID;
        text[host - 1] = 0;
        memmove(text, text + 1, host - 1);
    } else if (strchr(text, ':')) return FRISBEE_INVALID; // IPv6 without brackets
    return FRISBEE_OK;
}

static bool frisbeei_numeric(const char *host, const char *port, frisbeei_address *address) {
    uint16_t number = 0;
    memset(address, 0, sizeof *address);
    if (!port) {
        address->to.local.sun_family = AF_UNIX;
        memcpy(address->to.local.sun_path, host + 5, strlen(host + 5));
        address->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(host + 5) + 1);
        return true;
    }
    (void)frisbeei_port(port, &number);
    if (inet_pton(AF_INET, host, &address->to.v4.sin_addr) == 1) {
        address->to.v4.sin_family = AF_INET;
        address->to.v4.sin_port = htons(number);
        address->length = sizeof address->to.v4;
        return true;
    }
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET6, host, &address->to.v6.sin6_addr) != 1) return false;
    address->to.v6.sin6_family = AF_INET6;
    address->to.v6.sin6_port = htons(number);
    address->length = sizeof address->to.v6;
    return true;
}

static size_t frisbeei_put_text(char *text, size_t room, size_t at, const char *more) {
    for (; *more; more++, at++)
        if (at < room) text[at] = *more;
    if (room) text[at < room ? at : room - 1] = 0;
    return at;
}

static frisbee_result frisbeei_address_text(const frisbeei_address *address, char *text, size_t room) {
    char host[INET6_ADDRSTRLEN] = "", port[8];
    size_t at = 0;
    int family = address->to.any.sa_family, i = (int)sizeof port - 1;
    uint32_t number;
    if (family == AF_UNIX) {
        at = frisbeei_put_text(text, room, 0, "unix:");
        if (address->length > offsetof(struct sockaddr_un, sun_path)) at = frisbeei_put_text(text, room, at, address->to.local.sun_path);
        return at < room ? FRISBEE_OK : FRISBEE_TOO_LARGE;
    }
    if (family != AF_INET && family != AF_INET6) return FRISBEE_UNSUPPORTED;
    number = ntohs(family == AF_INET ? address->to.v4.sin_port : address->to.v6.sin6_port);
    port[i] = 0;
    do port[--i] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    (void)inet_ntop(family, family == AF_INET ? (const void *)&address->to.v4.sin_addr : (const void *)&address->to.v6.sin6_addr, host, sizeof host);
    if (family == AF_INET6) at = frisbeei_put_text(text, room, at, "[");
    at = frisbeei_put_text(text, room, at, host);
    at = frisbeei_put_text(text, room, at, family == AF_INET6 ? "]:" : ":");
    at = frisbeei_put_text(text, room, at, port + i);
    return at < room ? FRISBEE_OK : FRISBEE_TOO_LARGE;
}

static bool frisbeei_fd_prepare(int fd) {
    const int flags = FRISBEE_SYS_FCNTL(fd, F_GETFL);
    return flags >= 0 && FRISBEE_SYS_FCNTL(fd, F_SETFL, flags | O_NONBLOCK) >= 0 && FRISBEE_SYS_FCNTL(fd, F_SETFD, FD_CLOEXEC) >= 0;
}

static bool frisbeei_socket_prepare(int fd) {
    const int on = 1;
    (void)FRISBEE_SYS_SETSOCKOPT(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); // not on Unix sockets
#ifdef SO_NOSIGPIPE
    (void)FRISBEE_SYS_SETSOCKOPT(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return frisbeei_fd_prepare(fd);
}

static frisbee_result frisbeei_refusal(int error) {
    return error == ECONNREFUSED || error == ENOENT ? FRISBEE_REFUSED : FRISBEE_SYSTEM;
}

// TCP lets a socket connect to itself when it tries the port that it was given: a dead local server seems alive.
static bool frisbeei_self_connected(int fd) {
    frisbeei_address own, peer;
    memset(&own, 0, sizeof own);
    memset(&peer, 0, sizeof peer);
    own.length = peer.length = sizeof own.to;
    if (FRISBEE_SYS_GETSOCKNAME(fd, &own.to.any, &own.length) != 0 || FRISBEE_SYS_GETPEERNAME(fd, &peer.to.any, &peer.length) != 0) return false;
    return own.to.any.sa_family != AF_UNIX && own.length == peer.length && memcmp(&own.to, &peer.to, own.length) == 0;
}

// Tries the addresses that are left, until one is on its way.
static void frisbeei_connect_next(frisbee_pool *pool, frisbeei_conn *conn, int error) {
    frisbeei_extra *extra = conn->extra;
    while (extra->address_next < extra->address_count) {
        const frisbeei_address *address = &extra->addresses[extra->address_next++];
        const int fd = FRISBEE_SYS_SOCKET(address->to.any.sa_family, SOCK_STREAM, 0);
        int result;
        if (fd < 0) {
            error = errno;
            continue;
        }
        result = frisbeei_socket_prepare(fd) ? FRISBEE_SYS_CONNECT(fd, &address->to.any, address->length) : -1;
        if (result == 0 || errno == EINPROGRESS || errno == EINTR) {
            conn->watch.fd = fd;
            conn->state = FRISBEEI_CONNECTING;
            frisbeei_interest(pool, conn);
            return;
        }
        error = errno;
        (void)FRISBEE_SYS_CLOSE(fd);
    }
    frisbeei_fail(pool, conn, frisbeei_refusal(error), error);
    conn->system_error = error;
}

static void frisbeei_connected(frisbee_pool *pool, frisbeei_conn *conn) {
    int error = 0;
    socklen_t length = sizeof error;
    if (FRISBEE_SYS_GETSOCKOPT(conn->watch.fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error == 0 && frisbeei_self_connected(conn->watch.fd)) error = ECONNREFUSED;
    if (error == 0) {
        frisbeei_open_session(pool, conn);
        return;
    }
    frisbeei_poller_remove(pool, &conn->watch);
    (void)FRISBEE_SYS_CLOSE(conn->watch.fd);
    conn->watch.fd = -1;
    frisbeei_connect_next(pool, conn, error);
}

static frisbee_result frisbeei_addresses_set(frisbee_pool *pool, frisbeei_conn *conn, const frisbeei_address *addresses, uint32_t count) {
    frisbeei_extra *extra = conn->extra;
    frisbeei_give_back(pool, extra->addresses, extra->address_count * sizeof *extra->addresses);
    extra->address_count = extra->address_next = 0;
    extra->addresses = (frisbeei_address *)frisbeei_allocate(pool, count * sizeof *addresses);
    if (!extra->addresses) return FRISBEE_NO_MEMORY;
    memcpy(extra->addresses, addresses, count * sizeof *addresses);
    extra->address_count = count;
    return FRISBEE_OK;
}

// The look-up's answer: connect, or fail.
static void frisbeei_resolve_done(frisbee_pool *pool, frisbeei_conn *conn, const frisbeei_address *addresses, uint32_t count) {
    frisbee_result result = count ? frisbeei_addresses_set(pool, conn, addresses, count) : FRISBEE_REFUSED;
    if (result == FRISBEE_OK) frisbeei_connect_next(pool, conn, 0);
    else frisbeei_fail(pool, conn, result, 0);
}

#if FRISBEEI_THREADS
// A look-up on a thread of its own, which may take as long as it likes: it answers by a task, to a pool that may be gone.
typedef struct frisbeei_lookup {
    frisbee_task task;
    frisbee_remote *remote;
    uint64_t token;
    uint32_t count;
    frisbeei_address addresses[FRISBEEI_ADDRESSES];
    char host[256], port[8];
} frisbeei_lookup;

static void frisbeei_lookup_done(frisbee_task *task, frisbee_pool *pool) {
    frisbeei_lookup *lookup = (frisbeei_lookup *)(void *)task;
    frisbeei_conn *conn = pool ? frisbeei_find(pool, lookup->token) : NULL;
    if (conn && conn->state == FRISBEEI_RESOLVING) frisbeei_resolve_done(pool, conn, lookup->addresses, lookup->count);
    FRISBEE_FREE(lookup);
}

static void *frisbeei_lookup_run(void *argument) {
    frisbeei_lookup *lookup = (frisbeei_lookup *)argument;
    frisbee_remote *remote = lookup->remote;
    struct addrinfo hints, *found = NULL, *at;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    if (FRISBEE_SYS_GETADDRINFO(lookup->host, lookup->port, &hints, &found) != 0) found = NULL;
    for (at = found; at && lookup->count < FRISBEEI_ADDRESSES; at = at->ai_next) {
        frisbeei_address *address = &lookup->addresses[lookup->count];
        if ((at->ai_family != AF_INET && at->ai_family != AF_INET6) || at->ai_addrlen > sizeof address->to) continue;
        memset(address, 0, sizeof *address);
        memcpy(&address->to, at->ai_addr, at->ai_addrlen);
        address->length = (socklen_t)at->ai_addrlen;
        lookup->count++;
    }
    if (found) FRISBEE_SYS_FREEADDRINFO(found);
    if (frisbee_remote_post(remote, &lookup->task) != FRISBEE_OK) FRISBEE_FREE(lookup);
    frisbee_remote_release(remote);
    return NULL;
}

static frisbee_result frisbeei_lookup_start(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_lookup *lookup;
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int error;
    if (strlen(conn->extra->host) >= sizeof lookup->host) return FRISBEE_INVALID;
    lookup = (frisbeei_lookup *)FRISBEE_MALLOC(sizeof *lookup);
    if (!lookup) return FRISBEE_NO_MEMORY;
    memset(lookup, 0, sizeof *lookup);
    lookup->task.run = frisbeei_lookup_done;
    lookup->token = conn->id;
    memcpy(lookup->host, conn->extra->host, strlen(conn->extra->host));
    memcpy(lookup->port, conn->extra->port, strlen(conn->extra->port));
    lookup->remote = frisbee_remote_retain(pool);
    if (!lookup->remote) {
        FRISBEE_FREE(lookup);
        return FRISBEE_NO_MEMORY;
    }
    sigfillset(&all); // the program's signals are for the program's threads
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = FRISBEE_SYS_THREAD(&thread, &attributes, frisbeei_lookup_run, lookup);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return FRISBEE_OK;
    frisbee_remote_release(lookup->remote);
    FRISBEE_FREE(lookup);
    return frisbeei_system(pool, error);
}
#endif

static void frisbeei_resolve(frisbee_pool *pool, frisbeei_conn *conn) {
    frisbeei_extra *extra = conn->extra;
    frisbeei_address address;
    frisbee_result result = FRISBEE_UNSUPPORTED;
    conn->state = FRISBEEI_RESOLVING;
    frisbeei_deadline(pool, conn, conn->profile->desc.connect_ms);
    if (frisbeei_numeric(extra->host, extra->port, &address)) {
        frisbeei_resolve_done(pool, conn, &address, 1);
        return;
    }
    if (pool->desc.resolve) result = pool->desc.resolve(pool->desc.resolve_context, extra->host, conn->id);
#if FRISBEEI_THREADS
    else result = frisbeei_lookup_start(pool, conn);
#endif
    if (result != FRISBEE_OK) frisbeei_fail(pool, conn, result, pool->system_error);
}

static uint64_t frisbeei_listener_token(uint32_t place) { return FRISBEEI_TOKEN_LISTENER + (uint64_t)place; }

static void frisbeei_listener_rest(frisbee_pool *pool, frisbeei_listener *listener) {
    frisbeei_poller_remove(pool, &listener->watch);
}

// A connection has gone, or the pause after a lack of descriptors is over: listeners go on.
static void frisbeei_listeners_resume(frisbee_pool *pool, bool tired) {
    uint32_t i;
    if (tired) pool->accept_at = 0;
    for (i = 0; i < pool->listener_count; i++) {
        frisbeei_listener *listener = pool->listeners[i];
        if (!listener || !(listener->full || (listener->tired && tired))) continue;
        if (listener->tired && !tired) continue;
        listener->full = listener->tired = false;
        if (frisbeei_poller_set(pool, &listener->watch, frisbeei_listener_token(i), FRISBEE_READ) != FRISBEE_OK) {
            listener->tired = true;
            pool->accept_at = pool->now + FRISBEEI_ACCEPT_PAUSE_MS * 1000;
        }
    }
}

static void frisbeei_accept_one(frisbee_pool *pool, frisbeei_listener *listener, int fd) {
    frisbeei_conn *conn = frisbeei_socket_prepare(fd) ? frisbeei_conn_take(pool) : NULL;
    if (!conn) {
        FRISBEEI_LOG(pool, FRISBEE_LOG_WARNING, "accepted connection dropped: no memory", "");
        (void)FRISBEE_SYS_CLOSE(fd);
        return;
    }
    conn->profile = listener->profile;
    conn->profile->references++;
    conn->user = conn->profile->desc.user;
    conn->flags |= FRISBEEI_ACCEPTED;
    conn->watch.fd = fd;
    if (conn->profile->desc.protocol && frisbeei_extra_need(pool, conn) != FRISBEE_OK) {
        conn->state = FRISBEEI_OPENING;
        frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
        return;
    }
    if (conn->extra) conn->extra->protocol = conn->profile->desc.protocol;
    if (!frisbeei_streams_begin(pool, conn)) {
        conn->state = FRISBEEI_OPENING;
        frisbeei_fail(pool, conn, FRISBEE_NO_MEMORY, 0);
        return;
    }
    frisbeei_open_session(pool, conn);
}

// Out of descriptors or memory: rest for a while, the backlog keeps who waits. Without this the loop would spin on a readable listener.
static void frisbeei_accept_failed(frisbee_pool *pool, frisbeei_listener *listener, int error) {
    if (error == ECONNABORTED || error == EINTR || frisbeei_again(error) || error == EPROTO) return;
    FRISBEEI_LOG(pool, FRISBEE_LOG_WARNING, "accept failed, pausing: ", error == EMFILE || error == ENFILE ? "out of descriptors" : "system error");
    listener->tired = true;
    frisbeei_listener_rest(pool, listener);
    pool->accept_at = pool->now + FRISBEEI_ACCEPT_PAUSE_MS * 1000;
}

static void frisbeei_accept(frisbee_pool *pool, uint32_t place) {
    int i;
    for (i = 0; i < FRISBEEI_ACCEPTS && !pool->ending; i++) {
        frisbeei_listener *listener = place < pool->listener_count ? pool->listeners[place] : NULL; // wrap may close it
        int fd;
        if (!listener || listener->tired || listener->full) return;
        if (pool->conn_count >= pool->desc.max_conns || listener->profile->references - 1 >= listener->profile->desc.max_conns) {
            listener->full = true;
            frisbeei_listener_rest(pool, listener);
            return;
        }
        fd = FRISBEE_SYS_ACCEPT(listener->watch.fd, NULL, NULL);
        if (fd < 0) {
            const int error = errno;
            if (frisbeei_again(error) && error != EINTR) return;
            frisbeei_accept_failed(pool, listener, error);
            continue;
        }
        frisbeei_accept_one(pool, listener, fd);
    }
}
#else
static void frisbeei_listeners_resume(frisbee_pool *pool, bool tired) { (void)pool, (void)tired; }
#endif

static void frisbeei_start(frisbee_pool *pool, frisbeei_conn *conn) {
#if FRISBEEI_SOCKETS
    if (conn->extra && conn->extra->host) {
        frisbeei_resolve(pool, conn);
        return;
    }
#endif
    frisbeei_open_session(pool, conn);
}

// >>events: readiness, and deadlines

#if FRISBEEI_SOCKETS
// Error or hang-up on a connection that is not being read: act, or the poller reports it for ever.
static void frisbeei_hangup(frisbee_pool *pool, frisbeei_conn *conn) {
    int error = 0;
    socklen_t length = sizeof error;
    if (FRISBEE_SYS_GETSOCKOPT(conn->watch.fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error) frisbeei_fail(pool, conn, FRISBEE_SYSTEM, error);
    else if (conn->state == FRISBEEI_DRAINING) frisbeei_fail(pool, conn, (frisbee_result)conn->reason, 0);
    else if (conn->flags & FRISBEEI_ENDED) frisbeei_fail(pool, conn, FRISBEE_CLOSED, 0);
    else { // paused: what is unread stays in the socket until it is resumed
        frisbeei_poller_remove(pool, &conn->watch);
        conn->flags |= FRISBEEI_UNWATCHED;
    }
}
#endif

static void frisbeei_try(frisbee_pool *pool, frisbeei_conn *conn, unsigned ready) {
    switch ((frisbeei_state)conn->state) {
#if FRISBEEI_SOCKETS
    case FRISBEEI_CONNECTING: frisbeei_connected(pool, conn); return;
#else
    case FRISBEEI_CONNECTING: return;
#endif
    case FRISBEEI_OPENING: frisbeei_try_open(pool, conn); return;
    case FRISBEEI_FREE:
    case FRISBEEI_WAITING:
    case FRISBEEI_RESOLVING:
    case FRISBEEI_CLOSED: return;
    case FRISBEEI_SNIFFING:
    case FRISBEEI_OPEN:
    case FRISBEEI_DRAINING:
    case FRISBEEI_LINGERING: break;
    }
    if ((ready & FRISBEE_WRITE && conn->flags & FRISBEEI_BLOCKED) || conn->io) {
        conn->flags &= ~(uint32_t)FRISBEEI_BLOCKED;
        frisbeei_dirty(pool, conn);
    }
    if (frisbeei_may_read(conn)) {
        if (ready & ((unsigned)FRISBEE_READ | (unsigned)FRISBEEI_HANGUP) || conn->io) frisbeei_read(pool, conn);
    }
#if FRISBEEI_SOCKETS
    else if (ready & FRISBEEI_HANGUP && conn->watch.fd >= 0) frisbeei_hangup(pool, conn);
#endif
}

// Is `limit` ms since `since` over? If not, *next is at most when it will be.
static bool frisbeei_due(const frisbee_pool *pool, uint32_t since, int64_t limit, int64_t *next) {
    const int64_t left = limit - frisbeei_elapsed(pool, since);
    const int64_t at = (pool->turn_now / 1000 + left) * 1000;
    if (limit < 0) return false;
    if (left <= 0) return true;
    if (at < *next) *next = at;
    return false;
}

static void frisbeei_expire_state(frisbee_pool *pool, frisbeei_conn *conn, int64_t *next) {
    if (conn->deadline == FRISBEEI_NO_TIME || conn->deadline == 0) return;
    if (conn->deadline > pool->turn_now) {
        if (conn->deadline < *next) *next = conn->deadline;
        return;
    }
    switch ((frisbeei_state)conn->state) {
    case FRISBEEI_WAITING:
        conn->deadline = FRISBEEI_NO_TIME;
        frisbeei_work(pool, conn, FRISBEEI_WORK_START);
        break;
    case FRISBEEI_RESOLVING:
    case FRISBEEI_CONNECTING:
    case FRISBEEI_OPENING: frisbeei_fail(pool, conn, FRISBEE_TIMED_OUT, 0); break;
    case FRISBEEI_SNIFFING: // a connector that waited for the peer's wire in vain
        frisbeei_set_wire(conn, FRISBEE_WIRE_V1);
        frisbeei_announce(pool, conn);
        break;
    case FRISBEEI_LINGERING: frisbeei_fail(pool, conn, (frisbee_result)conn->reason, 0); break;
    case FRISBEEI_OPEN:
    case FRISBEEI_DRAINING:
    case FRISBEEI_CLOSED:
    case FRISBEEI_FREE: conn->deadline = FRISBEEI_NO_TIME; break;
    }
}

// A packet may take packet_ms, and a millisecond more for each 64 bytes.
static int64_t frisbeei_packet_limit(const frisbeei_conn *conn) {
    const int64_t limit = conn->profile->desc.packet_ms;
    if (limit < 0 || conn->in_size < conn->header || conn->state != FRISBEEI_OPEN) return limit;
    return limit + frisbeei_get32(conn->in + conn->header - 4) / 64;
}

static void frisbeei_expire_heartbeat(frisbee_pool *pool, frisbeei_conn *conn, int64_t *next) {
    const frisbee_conn_desc *desc = &conn->profile->desc;
    const bool unheard = conn->flags & FRISBEEI_STASHED || (int32_t)(conn->heard - conn->pinged) <= 0; // what lies unread is no sign of life
    const uint32_t since = unheard ? conn->pinged : conn->heard;
    if (desc->heartbeat_ms < 0 || conn->state != FRISBEEI_OPEN || conn->flags & FRISBEEI_ENDED) return;
    if (!frisbeei_is_packets(conn) || frisbeei_handing(conn)) return;
    if (conn->flags & FRISBEEI_STASHED) conn->heard = pool->tick; // what it said is not even handed out yet
    if (frisbeei_may_read(conn) && frisbeei_due(pool, conn->heard, desc->heartbeat_timeout_ms, next)) {
        frisbeei_try(pool, conn, FRISBEE_READ); // what came is read before the peer is called dead
        if (conn->state != FRISBEEI_OPEN || conn->flags & FRISBEEI_ENDED) return;
        if (frisbeei_may_read(conn) && frisbeei_due(pool, conn->heard, desc->heartbeat_timeout_ms, next)) {
            frisbeei_fail(pool, conn, FRISBEE_TIMED_OUT, 0);
            return;
        }
    }
    if (conn->flags & FRISBEEI_FINISH) return;
    // a PING after silence, and now and then on a busy connection, for the round trip
    if (frisbeei_due(pool, since, desc->heartbeat_ms, next) || frisbeei_due(pool, conn->pinged, (int64_t)desc->heartbeat_ms * 8, next)) {
        frisbeei_ping(pool, conn);
        (void)frisbeei_due(pool, conn->pinged, desc->heartbeat_ms, next);
    }
}

// The PING that confirms closed streams to a stock peer.
static void frisbeei_expire_fence(frisbee_pool *pool, frisbeei_conn *conn, int64_t *next) {
    frisbeei_patterns *patterns = conn->patterns;
    if (!patterns->dying || !frisbeei_may_deliver(conn) || !frisbeei_due(pool, patterns->fence_since, FRISBEEI_FENCE_MS, next)) return;
    patterns->fence_stage = 2;
    patterns->fence = patterns->pings + 1; // if one waits already, the next of the heartbeat, or of the flush
    if (conn->flags & FRISBEEI_PING_QUEUED) patterns->fence_wanted = true;
    else frisbeei_ping(pool, conn);
}

// Has a packet taken too long, or the connection been idle too long?
static bool frisbeei_is_late(const frisbee_pool *pool, const frisbeei_conn *conn, int64_t *next) {
    const bool begun = conn->flags & FRISBEEI_PARTIAL && frisbeei_may_read(conn);
    if (begun && frisbeei_due(pool, conn->packet_since, frisbeei_packet_limit(conn), next)) return true;
    if (conn->flags & FRISBEEI_PUBLISH_FULL) return false; // it is we who keep it waiting
    return conn->state <= FRISBEEI_DRAINING && frisbeei_due(pool, conn->used, conn->profile->desc.idle_ms, next);
}

// A connection's timer fired: do what is due, find out what is next.
static void frisbeei_expire(frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbee_conn_desc *desc = &conn->profile->desc;
    int64_t next = FRISBEEI_NO_TIME;
    if (conn->calls && conn->calls->timed) {
        if ((int32_t)(pool->turn_tick - conn->calls->due) >= 0) {
            if (conn->state == FRISBEEI_OPEN) frisbeei_try(pool, conn, FRISBEE_READ); // the reply may have come already
            if (pool->spent && conn->flags & FRISBEEI_STASHED) next = pool->turn_now + 1000; // and the budget may keep it back
            else frisbeei_calls_sweep(pool, conn);
        }
        if (conn->calls && conn->calls->timed) {
            const int64_t at = (pool->turn_now / 1000 + (int32_t)(conn->calls->due - pool->turn_tick)) * 1000;
            if (at < next && at > pool->turn_now) next = at;
        }
    }
    frisbeei_expire_state(pool, conn, &next);
    if (conn->state == FRISBEEI_OPEN || conn->state == FRISBEEI_SNIFFING || conn->state == FRISBEEI_DRAINING) {
        if (frisbeei_is_late(pool, conn, &next)) {
            frisbeei_try(pool, conn, FRISBEE_READ); // more may lie in the socket
            if (frisbeei_is_late(pool, conn, &next)) frisbeei_fail(pool, conn, FRISBEE_TIMED_OUT, 0);
        }
        if (conn->flags & FRISBEEI_FENCED && !frisbeei_handing(conn) && frisbeei_due(pool, conn->packet_since, desc->packet_ms, &next))
            frisbeei_fail(pool, conn, FRISBEE_TIMED_OUT, 0);
        if (conn->flags & FRISBEEI_STALLED && frisbeei_due(pool, conn->write_since, desc->write_ms, &next))
            frisbeei_fail(pool, conn, FRISBEE_TIMED_OUT, 0);
        if (frisbeei_handing(conn) && conn->extra->hand_deadline != FRISBEEI_NO_TIME) {
            if (conn->extra->hand_deadline <= pool->turn_now) frisbeei_hand_step(pool, conn, true);
            else if (conn->extra->hand_deadline < next) next = conn->extra->hand_deadline;
        }
        frisbeei_expire_heartbeat(pool, conn, &next);
        if (conn->patterns && conn->patterns->fence_stage == 1 && conn->state == FRISBEEI_OPEN) frisbeei_expire_fence(pool, conn, &next);
        if (conn->patterns && conn->patterns->timed && conn->state == FRISBEEI_OPEN) frisbeei_rpc_expire(pool, conn, &next);
    }
    if (conn->state == FRISBEEI_CLOSED || conn->state == FRISBEEI_FREE || next == FRISBEEI_NO_TIME) return;
    frisbeei_timer_need(pool, conn, next > pool->turn_now ? next : pool->turn_now + 1000);
}

static void frisbeei_expire_all(frisbee_pool *pool) {
    while (pool->timer_count && !pool->ending) {
        frisbeei_conn *conn = frisbeei_at(pool, pool->timers[0]);
        if (conn->timer_at > pool->turn_now) break;
        frisbeei_timer_clear(pool, conn);
        frisbeei_expire(pool, conn);
    }
#if FRISBEEI_SOCKETS
    if (pool->accept_at && pool->accept_at <= pool->turn_now) frisbeei_listeners_resume(pool, true);
#endif
}

// >>remote: the pool as other threads see it: a stack of tasks that anybody may push to and only the pool takes, whole

// In place of a list: the pool is destroyed. No task can lie where the remote lies.
static frisbee_task *frisbeei_gone(frisbee_remote *remote) { return (frisbee_task *)(void *)remote; }

static void frisbeei_remote_ring(frisbee_remote *remote) {
#if FRISBEEI_SOCKETS
    const int error = errno; // signal handlers ring as well
    const char byte = 1;
    if (FRISBEE_SYS_WRITE(remote->pipe[1], &byte, 1) < 0) errno = error; // a full pipe wakes as well
#else
    (void)remote;
#endif
}

FRISBEE_API frisbee_result frisbee_remote_post(frisbee_remote *remote, frisbee_task *task) {
    frisbee_task *head;
    if (!remote || !task || !task->run) return FRISBEE_INVALID;
    head = FRISBEEI_LOAD(&remote->tasks);
    do {
        if (head == frisbeei_gone(remote)) return FRISBEE_CLOSED;
        task->next = head;
    } while (!FRISBEEI_REPLACE(&remote->tasks, &head, task));
    if (!head) frisbeei_remote_ring(remote);
    return FRISBEE_OK;
}

FRISBEE_API void frisbee_remote_stop(frisbee_remote *remote) {
    if (!remote) return;
    (void)FRISBEEI_EXCHANGE(&remote->stop, 1);
    frisbeei_remote_ring(remote);
}

FRISBEE_API void frisbee_remote_release(frisbee_remote *remote) {
    if (!remote || FRISBEEI_ADD(&remote->references, -1) > 0) return;
#if FRISBEEI_SOCKETS
    (void)FRISBEE_SYS_CLOSE(remote->pipe[0]);
    (void)FRISBEE_SYS_CLOSE(remote->pipe[1]);
#endif
    if (!remote->fixed) FRISBEE_FREE(remote); // not by the pool's allocator: the pool and its thread may be gone
}

#if FRISBEEI_SOCKETS
static bool frisbeei_remote_pipe(frisbee_pool *pool, frisbee_remote *remote) {
    if (FRISBEE_SYS_PIPE(remote->pipe) != 0) {
        (void)frisbeei_system(pool, errno);
        return false;
    }
    pool->wake.fd = remote->pipe[0];
    if (frisbeei_fd_prepare(remote->pipe[0]) && frisbeei_fd_prepare(remote->pipe[1]) &&
        frisbeei_poller_set(pool, &pool->wake, FRISBEEI_TOKEN_WAKE, FRISBEE_READ) == FRISBEE_OK)
        return true;
    (void)FRISBEE_SYS_CLOSE(remote->pipe[0]);
    (void)FRISBEE_SYS_CLOSE(remote->pipe[1]);
    return false;
}
#endif

FRISBEE_API frisbee_remote *frisbee_remote_retain(frisbee_pool *pool) {
    frisbee_remote *remote;
    if (!pool || pool->ending) return NULL;
    if (!pool->remote) {
        remote = pool->fixed ? (frisbee_remote *)frisbeei_allocate(pool, sizeof *remote) : (frisbee_remote *)FRISBEE_MALLOC(sizeof *remote);
        if (!remote) return NULL;
        memset(remote, 0, sizeof *remote);
        remote->fixed = pool->fixed;
        remote->references = 1; // the pool's own
#if FRISBEEI_SOCKETS
        if (!frisbeei_remote_pipe(pool, remote)) {
            if (pool->fixed) frisbeei_give_back(pool, remote, sizeof *remote);
            else FRISBEE_FREE(remote);
            return NULL;
        }
#endif
        pool->remote = remote;
    }
    (void)FRISBEEI_ADD(&pool->remote->references, 1);
    return pool->remote;
}

// Runs what was posted, oldest first. `last`: with a NULL pool, and nothing can be posted any more. True: there were some.
static bool frisbeei_run_tasks(frisbee_pool *pool, bool last) {
    frisbee_task *task, *first = NULL, *next;
    if (!pool->remote) return false;
    if (FRISBEEI_EXCHANGE(&pool->remote->stop, 0)) pool->stop_run = true;
    if (!last && !FRISBEEI_LOAD(&pool->remote->tasks)) return false;
    task = FRISBEEI_EXCHANGE(&pool->remote->tasks, last ? frisbeei_gone(pool->remote) : (frisbee_task *)NULL);
    for (; task && task != frisbeei_gone(pool->remote); task = next) {
        next = task->next;
        task->next = first;
        first = task;
    }
    for (; first; first = next) {
        next = first->next;
        first->run(first, pool->ending ? NULL : pool);
    }
    return true;
}

#if FRISBEEI_SOCKETS
static void frisbeei_remote_drain(frisbee_pool *pool) {
    char bytes[64];
    while (FRISBEE_SYS_READ(pool->wake.fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes) {}
}
#endif

// >>turn: tasks, what waits, wait, read, deadlines, write, what waits

// The next connection from *index on, or NULL; for walks over all of them.
static frisbeei_conn *frisbeei_each(const frisbee_pool *pool, uint32_t *index) {
    const uint32_t end = pool->page_count * FRISBEEI_PAGE;
    while (*index < end && *index < pool->desc.max_conns) {
        frisbeei_conn *conn = frisbeei_at(pool, ++*index);
        if (conn->state != FRISBEEI_FREE) return conn;
    }
    return NULL;
}

// How long the poller may wait: 0 if anything is left to do, otherwise until the next timer, and at most `timeout_ms`.
static int32_t frisbeei_wait_ms(const frisbee_pool *pool, int32_t timeout_ms) {
    int64_t at = FRISBEEI_NO_TIME, ms;
    if (pool->work_head || pool->dirty_head || pool->released || pool->spent || pool->ending || frisbeei_broker_busy(pool)) return 0;
    if (pool->remote && FRISBEEI_LOAD(&pool->remote->tasks)) return 0;
    if (pool->timer_count) at = frisbeei_at(pool, pool->timers[0])->timer_at;
    if (pool->accept_at && pool->accept_at < at) at = pool->accept_at;
    if (pool->shut == 1 && pool->shut_at < at) at = pool->shut_at;
    if (at != FRISBEEI_NO_TIME) {
        ms = at <= pool->now ? 0 : (at - pool->now + 999) / 1000; // rounded up, or the end of each wait would be a busy loop
        if (ms > INT32_MAX) ms = INT32_MAX;
        if (timeout_ms < 0 || ms < timeout_ms) timeout_ms = (int32_t)ms;
    }
    if (pool->polled_count && (timeout_ms < 0 || timeout_ms > 1)) timeout_ms = 1;
    return timeout_ms < 0 ? FRISBEE_NEVER : timeout_ms;
}

#if FRISBEEI_SOCKETS
static void frisbeei_run_events(frisbee_pool *pool) {
    int i;
    for (i = 0; i < pool->event_count && !pool->ending && !pool->spent; i++) {
        const frisbeei_event event = frisbeei_poller_event(pool, i);
        if (event.token >> 32) {
            frisbeei_conn *conn = frisbeei_find(pool, event.token); // gone, if a callback of this batch closed it
            if (!conn) continue;
            frisbeei_clock(pool);
            frisbeei_try(pool, conn, event.ready);
            // who answers only his peer is flushed while his queue is in the cache; output for several waits for the end of the turn
            if (pool->dirty_tail == (uint32_t)event.token && pool->dirty_head == pool->dirty_tail) frisbeei_flush_all(pool);
        } else if (event.token == FRISBEEI_TOKEN_WAKE) frisbeei_remote_drain(pool);
        else frisbeei_accept(pool, (uint32_t)(event.token - FRISBEEI_TOKEN_LISTENER));
    }
    pool->served = pool->spent ? i : 0;
}
#endif

static void frisbeei_run_polled(frisbee_pool *pool) {
    const uint32_t first = pool->polled_next; // where the budget ended the last walk
    uint32_t index = first, rounds;
    frisbeei_conn *conn;
    for (rounds = 0; pool->polled_count && rounds < 2; rounds++, index = 0)
        while ((conn = frisbeei_each(pool, &index)) != NULL && (rounds == 0 || index <= first)) {
            if (pool->ending || pool->spent) return;
            pool->polled_next = index;
            frisbeei_clock(pool);
            if (conn->flags & FRISBEEI_POLLED) frisbeei_try(pool, conn, FRISBEE_READ | FRISBEE_WRITE);
        }
    pool->polled_next = 0;
}

// A shutdown closes each connection that owes and expects nothing; at its end, all.
static void frisbeei_run_shutdown(frisbee_pool *pool) {
    uint32_t index = 0;
    frisbeei_conn *conn;
    const bool late = pool->turn_now >= pool->shut_at;
    if (pool->shut != 1) return;
    while ((conn = frisbeei_each(pool, &index)) != NULL) {
        const bool talks = conn->flags & FRISBEEI_PUBLISH_FULL || (conn->patterns && (conn->patterns->live || conn->patterns->waiting.first));
        const bool quiet = conn->queued == 0 && !talks && !frisbeei_deferred_count(conn) && (!conn->calls || conn->calls->live == 0) &&
                           !frisbeei_handing(conn);
        conn->flags |= FRISBEEI_NO_RETRY;
        if (late) frisbeei_fail(pool, conn, FRISBEE_OK, 0);
        else if (quiet || conn->state == FRISBEEI_WAITING) frisbeei_begin_close(pool, conn, FRISBEE_OK);
    }
    if (pool->conn_count == 0) pool->shut = 2;
}

// What collected: writes, then callbacks at a safe point. True: there were some.
static bool frisbeei_settle(frisbee_pool *pool) {
    bool acted;
    frisbeei_flush_all(pool);
    acted = pool->released || pool->work_head || frisbeei_broker_busy(pool);
    frisbeei_run_releases(pool);
    if (!pool->ending) frisbeei_run_work(pool);
    if (!pool->ending && pool->broker) frisbeei_broker_run(pool);
    return acted;
}

static frisbee_result frisbeei_turn(frisbee_pool *pool, int32_t timeout_ms) {
    frisbee_result result = FRISBEE_OK;
    const bool stopped = pool->stop_run;
    bool acted; // callbacks ran before the wait: something has happened, poll must not wait for more
    frisbeei_clock(pool);
    pool->input_later = pool->spent && !pool->fresh_first;
    pool->fresh_first = pool->input_later;
    pool->spent = false;
    pool->effort = 0;
    pool->budget_packets = pool->desc.budget_packets;
    pool->budget_end = pool->desc.budget_us >= 0 ? pool->now + pool->desc.budget_us : FRISBEEI_NO_TIME;
    acted = frisbeei_run_tasks(pool, false);
    acted = frisbeei_settle(pool) || acted || (pool->stop_run && !stopped);
    pool->input_later = false;
    if (!pool->ending) frisbeei_flush_all(pool);
    if (pool->shut == 1 && !pool->ending) {
        frisbeei_run_shutdown(pool);
        frisbeei_flush_all(pool);
    }
#if FRISBEEI_SOCKETS
    if (!pool->ending) result = frisbeei_poller_wait(pool, frisbeei_wait_ms(pool, acted || pool->shut == 2 ? 0 : timeout_ms));
#else
    (void)timeout_ms, (void)acted, (void)stopped;
#endif
    frisbeei_clock(pool);
    pool->turn_now = pool->now;
    pool->turn_tick = (uint32_t)(pool->now / 1000);
#if FRISBEEI_SOCKETS
    frisbeei_run_events(pool);
#endif
    frisbeei_run_polled(pool);
    if (!pool->ending) (void)frisbeei_run_tasks(pool, false);
    frisbeei_expire_all(pool);
    frisbeei_run_shutdown(pool);
    (void)frisbeei_settle(pool);
    if (!pool->ending) frisbeei_flush_all(pool);
    if (pool->ending) return FRISBEE_DESTROYED;
    frisbeei_chunks_spare(pool);
    if (result != FRISBEE_OK) return result;
    if (pool->shut == 1 && pool->conn_count == 0) pool->shut = 2;
    if (pool->shut == 2) return FRISBEE_CLOSED;
    return pool->spent ? FRISBEE_AGAIN : FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_poll(frisbee_pool *pool, int32_t timeout_ms) {
    frisbee_result result;
    if (!pool) return FRISBEE_INVALID;
    if (pool->depth) return FRISBEE_BUSY;
    pool->depth = true;
    result = frisbeei_turn(pool, timeout_ms);
    pool->depth = false;
    if (result == FRISBEE_DESTROYED) frisbeei_pool_free(pool);
    return result;
}

FRISBEE_API frisbee_result frisbee_run(frisbee_pool *pool) {
    if (!pool) return FRISBEE_INVALID;
    if (pool->depth) return FRISBEE_BUSY;
    for (;;) {
        frisbee_result result;
        if (pool->stop_run) {
            pool->stop_run = false;
            return FRISBEE_OK;
        }
        result = frisbee_poll(pool, FRISBEE_NEVER);
        if (result == FRISBEE_CLOSED) return FRISBEE_OK;
        if (result != FRISBEE_OK && result != FRISBEE_AGAIN) return result;
    }
}

FRISBEE_API frisbee_result frisbee_flush(frisbee_pool *pool) {
    if (!pool) return FRISBEE_INVALID;
    if (pool->ending) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    frisbeei_flush_all(pool);
    return FRISBEE_OK;
}

FRISBEE_API void frisbee_stop(frisbee_pool *pool) {
    if (pool) pool->stop_run = true;
}

FRISBEE_API frisbee_socket frisbee_wait_fd(frisbee_pool *pool) {
#if FRISBEE_POLLER == FRISBEE_POLLER_EPOLL
    return pool ? (frisbee_socket)pool->poller : FRISBEE_NO_SOCKET;
#else
    (void)pool;
    return FRISBEE_NO_SOCKET;
#endif
}

FRISBEE_API int32_t frisbee_next_timeout(frisbee_pool *pool) {
    if (!pool) return FRISBEE_NEVER;
    frisbeei_clock_outside(pool);
    return frisbeei_wait_ms(pool, FRISBEE_NEVER);
}

FRISBEE_API int frisbee_system_error(frisbee_pool *pool) { return pool ? pool->system_error : 0; }

// >>pool

// What FRISBEE_POOL_BYTES promises, checked against what is carved.
#define FRISBEEI_FIXED_PER_CONN                                                                                                                   \
    (sizeof(frisbeei_conn) + 2 * sizeof(frisbeei_profile) + sizeof(frisbeei_listener) + sizeof(frisbeei_extra) + sizeof(frisbee_transport) +       \
     (FRISBEEI_FIXED_BORROWED + 1) * sizeof(frisbeei_chunk) + sizeof(frisbeei_calls) + sizeof(frisbeei_deferred) + 4 * sizeof(frisbeei_call) +     \
     4 * sizeof(uint64_t) + FRISBEEI_CONTROL_ROOM + 64 + 96 + 16 * 16)
typedef char frisbeei_assert_conn_bytes[FRISBEEI_FIXED_PER_CONN <= 1168 + 136 * sizeof(void *) ? 1 : -1];
typedef char frisbeei_assert_pool_bytes[sizeof(frisbee_pool) + FRISBEEI_FIXED_HANDLERS * sizeof(frisbeei_on) + sizeof(frisbee_remote) +
                                                2 * (sizeof(frisbeei_listener) + sizeof(frisbeei_profile)) + 256 <=
                                            1728 + 248 * sizeof(void *)
                                        ? 1
                                        : -1];
typedef char frisbeei_assert_call_bytes[2 * sizeof(frisbeei_call) + 4 * sizeof(uint64_t) <= 112 ? 1 : -1];
typedef char frisbeei_assert_states[(int)FRISBEEI_CLOSED < 256 && FRISBEE_CHUNK >= 4096 && FRISBEE_EVENTS > 0 ? 1 : -1];

static int32_t frisbeei_or(int32_t value, int32_t otherwise) { return value == 0 ? otherwise : value; }

static frisbee_result frisbeei_pool_desc_check(frisbee_pool_desc *desc) {
    const frisbee_allocator *a = &desc->allocator;
    if ((a->allocate || a->resize || a->release) && !(a->allocate && a->resize && a->release)) return FRISBEE_INVALID;
    if (desc->budget_us < FRISBEE_NEVER || desc->max_step_ms < FRISBEE_NEVER) return FRISBEE_INVALID;
    if (!FRISBEEI_SOCKETS && !desc->now_us) return FRISBEE_INVALID; // without a system there is no clock
    desc->budget_us = frisbeei_or(desc->budget_us, FRISBEE_NEVER);
    desc->max_step_ms = frisbeei_or(desc->max_step_ms, FRISBEE_NEVER);
    if (desc->memory) {
        if (a->allocate || !desc->max_conns || !desc->max_calls || !desc->max_packet || !desc->queue_limit) return FRISBEE_INVALID;
        if (desc->max_conns > 65536 || desc->max_calls > 65536) return FRISBEE_INVALID;
        if (desc->memory_size < FRISBEE_POOL_BYTES(desc->max_conns, desc->max_calls, desc->max_packet, desc->queue_limit)) return FRISBEE_INVALID;
        desc->read_buffer = (size_t)desc->max_packet + 64;
        desc->max_memory = desc->memory_size;
    }
    if (!desc->max_conns) desc->max_conns = 1000000;
    if (desc->max_conns > 0xFFFFFE) desc->max_conns = 0xFFFFFE; // what a call's handle can name
    if (!desc->read_buffer) desc->read_buffer = 256 * 1024;
    if (desc->read_buffer < 64) desc->read_buffer = 64;
    if (!desc->max_memory) desc->max_memory = (size_t)1 << 30;
    if (!desc->max_decoded) desc->max_decoded = (size_t)16 << 20;
    return FRISBEE_OK;
}

// A fixed block's limits take their part; what is beyond is for streams and subscriptions.
static void frisbeei_holes_init(frisbee_pool *pool) {
    const frisbee_pool_desc *desc = &pool->desc;
    uint8_t *end = (uint8_t *)desc->memory + desc->memory_size;
    uint8_t *limits = (uint8_t *)desc->memory + FRISBEE_POOL_BYTES(desc->max_conns, desc->max_calls, desc->max_packet, desc->queue_limit);
    limits = (uint8_t *)(((uintptr_t)limits + 15u) & ~(uintptr_t)15u);
    pool->block_end = limits < end ? limits : end;
    if (limits >= end || (size_t)(end - limits) < 64) return;
    pool->holes = (frisbeei_hole *)(void *)limits;
    pool->holes->size = (size_t)(end - limits) & ~(size_t)15u;
    pool->holes->next = NULL;
}

FRISBEE_API frisbee_result frisbee_pool_create(const frisbee_pool_desc *given, frisbee_pool **out) {
    frisbee_pool_desc desc;
    frisbee_pool *pool;
    frisbee_result result;
    if (!out) return FRISBEE_INVALID;
    *out = NULL;
    memset(&desc, 0, sizeof desc);
    if (given) desc = *given;
    result = frisbeei_pool_desc_check(&desc);
    if (result != FRISBEE_OK) return result;
    if (desc.memory) pool = (frisbee_pool *)(((uintptr_t)desc.memory + 15u) & ~(uintptr_t)15u);
    else if (desc.allocator.allocate) pool = (frisbee_pool *)desc.allocator.allocate(desc.allocator.context, sizeof *pool);
    else pool = (frisbee_pool *)FRISBEE_MALLOC(sizeof *pool);
    if (!pool) return FRISBEE_NO_MEMORY;
    memset(pool, 0, sizeof *pool);
    pool->desc = desc;
    pool->memory = sizeof *pool;
    if (desc.memory) {
        pool->fixed = true;
        pool->block_next = (uint8_t *)pool + frisbeei_rounded(sizeof *pool);
        frisbeei_holes_init(pool);
    }
    pool->chunk_bytes = desc.memory ? desc.queue_limit + FRISBEEI_CONTROL_ROOM : FRISBEE_CHUNK - sizeof(frisbeei_chunk);
    pool->clock_last = frisbeei_clock_read(pool);
    pool->now = pool->turn_now = 1000000;
    pool->tick = pool->turn_tick = 1000;
    pool->budget_end = FRISBEEI_NO_TIME;
    pool->random = FRISBEE_SYS_SEED(pool);
    pool->generation = (uint32_t)frisbeei_random(pool);
    pool->hash_key[0] = frisbeei_random(pool);
    pool->hash_key[1] = frisbeei_random(pool);
#if FRISBEEI_SOCKETS
    pool->pid = (long)FRISBEE_SYS_GETPID();
    pool->wake.fd = -1;
#if FRISBEE_POLLER == FRISBEE_POLLER_EPOLL
    pool->poller = -1;
#endif
    result = frisbeei_poller_open(pool);
#endif
    pool->read_buffer = (uint8_t *)frisbeei_allocate(pool, desc.read_buffer);
    if (result == FRISBEE_OK && !pool->read_buffer) result = FRISBEE_NO_MEMORY;
    if (result == FRISBEE_OK) result = frisbeei_broker_new(pool);
    if (result != FRISBEE_OK) {
        frisbeei_pool_free(pool);
        return result;
    }
    *out = pool;
    return FRISBEE_OK;
}

// Ends everything with its callbacks, then frees.
static void frisbeei_pool_free(frisbee_pool *pool) {
    uint32_t index = 0, i;
    frisbeei_conn *conn;
    pool->ending = true;
    pool->depth = true;
#if FRISBEEI_SOCKETS
    pool->abandoned = pool->pid != (long)FRISBEE_SYS_GETPID();
#endif
    while (pool->dirty_head) { // nothing is written any more
        conn = frisbeei_at(pool, pool->dirty_head);
        pool->dirty_head = conn->next_dirty;
        conn->flags &= ~(uint32_t)FRISBEEI_IS_DIRTY;
    }
    pool->dirty_tail = 0;
    while ((conn = frisbeei_each(pool, &index)) != NULL) frisbeei_fail(pool, conn, FRISBEE_DESTROYED, 0);
    while (pool->work_head) frisbeei_run_work(pool);
    frisbeei_run_releases(pool);
    for (i = 0; i < pool->listener_count; i++)
        if (pool->listeners[i]) frisbeei_listener_free(pool, i);
    (void)frisbeei_run_tasks(pool, true);
    frisbeei_broker_free(pool);
#if FRISBEEI_SOCKETS
    frisbeei_poller_remove(pool, &pool->wake);
    frisbeei_poller_close(pool);
#endif
    if (pool->remote) frisbee_remote_release(pool->remote);
    frisbeei_give_back(pool, pool->listeners, pool->listener_room * sizeof *pool->listeners);
    for (i = 0; i < pool->page_count; i++) {
        const size_t count = frisbeei_least(FRISBEEI_PAGE, pool->desc.max_conns - i * FRISBEEI_PAGE);
        frisbeei_give_back(pool, pool->pages[i], count * sizeof **pool->pages);
    }
    frisbeei_give_back(pool, pool->pages, pool->page_room * sizeof *pool->pages);
    frisbeei_give_back(pool, pool->timers, pool->timer_room * sizeof *pool->timers);
    frisbeei_give_back(pool, pool->handlers, pool->handlers ? (pool->handler_mask + 1) * sizeof *pool->handlers : 0);
    frisbeei_give_back(pool, pool->read_buffer, pool->desc.read_buffer);
    frisbeei_give_back(pool, pool->wait_data, pool->wait_room);
    frisbeei_rpc_free(pool);
    while (pool->spare_chunks) {
        frisbeei_chunk *chunk = pool->spare_chunks;
        pool->spare_chunks = chunk->next;
        frisbeei_give_back(pool, chunk, frisbeei_chunk_bytes(chunk));
    }
    while (pool->spare_smalls) {
        uint8_t *in = pool->spare_smalls;
        memcpy(&pool->spare_smalls, in, sizeof pool->spare_smalls);
        frisbeei_give_back(pool, in, FRISBEEI_SMALL);
    }
    if (pool->fixed) return;
    if (pool->desc.allocator.allocate) pool->desc.allocator.release(pool->desc.allocator.context, pool, sizeof *pool);
    else FRISBEE_FREE(pool);
}

FRISBEE_API void frisbee_pool_destroy(frisbee_pool *pool) {
    if (!pool) return;
    if (!pool->depth) {
        frisbeei_pool_free(pool);
        return;
    }
    pool->ending = pool->stop = true; // the outermost poll does it
}

FRISBEE_API frisbee_result frisbee_shutdown(frisbee_pool *pool, int32_t timeout_ms) {
    uint32_t i;
    if (!pool || timeout_ms < FRISBEE_NEVER) return FRISBEE_INVALID;
    if (pool->ending || pool->shut) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    pool->shut = 1;
    pool->shut_at = timeout_ms == FRISBEE_NEVER ? FRISBEEI_NO_TIME : pool->now + (int64_t)frisbeei_or(timeout_ms, 5000) * 1000;
    for (i = 0; i < pool->listener_count; i++)
        if (pool->listeners[i]) frisbeei_listener_free(pool, i);
    return FRISBEE_OK;
}

static bool frisbeei_on_grow(frisbee_pool *pool) {
    const uint32_t slots = pool->fixed ? (uint32_t)FRISBEEI_FIXED_HANDLERS : pool->handlers ? (pool->handler_mask + 1) * 2 : 16;
    frisbeei_on *old = pool->handlers, *grown;
    const uint32_t old_slots = old ? pool->handler_mask + 1 : 0;
    frisbeei_on kept[FRISBEEI_FIXED_HANDLERS];
    uint32_t i, at, count = 0;
    if (pool->fixed && old) { // in place: only the removed ones go
        memcpy(kept, old, sizeof kept);
        grown = old;
        old = kept;
    } else grown = (frisbeei_on *)frisbeei_allocate(pool, slots * sizeof *grown);
    if (!grown) return false;
    memset(grown, 0, slots * sizeof *grown);
    for (i = 0; i < old_slots; i++) {
        if (!old[i].key || !old[i].handler) continue;
        for (at = ((old[i].key - 1) * 0x9E3779B1u >> 16) & (slots - 1); grown[at].key; at = (at + 1) & (slots - 1)) {}
        grown[at] = old[i];
        count++;
    }
    if (old != kept) frisbeei_give_back(pool, old, old_slots * sizeof *old);
    pool->handlers = grown;
    pool->handler_mask = slots - 1;
    pool->handler_count = count;
    return count * 4 <= pool->handler_mask * 3;
}

FRISBEE_API frisbee_result frisbee_on(frisbee_pool *pool, uint16_t operation, frisbee_handler handler, void *user) {
    frisbeei_on *on;
    uint32_t at;
    if (!pool || operation < FRISBEEI_FIRST_OPERATION || operation > FRISBEEI_LAST_OPERATION) return FRISBEE_INVALID;
    if (pool->ending) return FRISBEE_CLOSED;
    on = frisbeei_on_find(pool, operation);
    if (!on) {
        if (!handler) return FRISBEE_OK;
        if ((!pool->handlers || pool->handler_count * 4 > pool->handler_mask * 3) && !frisbeei_on_grow(pool)) return FRISBEE_NO_MEMORY;
        for (at = (operation * 0x9E3779B1u >> 16) & pool->handler_mask; pool->handlers[at].key; at = (at + 1) & pool->handler_mask) {}
        on = &pool->handlers[at];
        on->key = operation + 1u;
        pool->handler_count++;
    }
    on->handler = handler; // a removed one keeps its slot, without a handler
    on->user = user;
    return FRISBEE_OK;
}

// >>connections

// Defaults and caps; each connection of the description shares the result.
static frisbee_result frisbeei_profile_fill(const frisbee_pool *pool, frisbee_conn_desc *desc, frisbee_role role) {
    const frisbee_pool_desc *cap = &pool->desc;
    int32_t *times[] = {&desc->connect_ms, &desc->open_ms, &desc->packet_ms, &desc->write_ms, &desc->idle_ms, &desc->call_ms, &desc->heartbeat_ms,
                        &desc->heartbeat_timeout_ms, &desc->retry_min_ms, &desc->retry_max_ms, &desc->lost_ms};
    static const int32_t defaults[] = {10000, 5000, 30000, 30000, FRISBEE_NEVER, 5000, 500, 5000, FRISBEE_NEVER, 30000, FRISBEE_NEVER};
    size_t i;
    for (i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (*times[i] < FRISBEE_NEVER) return FRISBEE_INVALID;
        *times[i] = frisbeei_or(*times[i], defaults[i]);
        if (*times[i] > FRISBEEI_LONGEST_MS) *times[i] = FRISBEEI_LONGEST_MS;
    }
    if (desc->retry_max_ms < 0) desc->retry_max_ms = FRISBEEI_LONGEST_MS;
    if (desc->role == FRISBEE_ROLE_DEFAULT) desc->role = role;
    if (desc->role != FRISBEE_CONNECTOR && desc->role != FRISBEE_ACCEPTOR) return FRISBEE_INVALID;
    if ((unsigned)desc->wire > (unsigned)FRISBEE_WIRE_WAIT || (desc->route_count && !desc->routes)) return FRISBEE_INVALID;
    if (desc->protocol && !desc->protocol->input) return FRISBEE_INVALID;
#if FRISBEEI_RPC
    if (pool->serves_streams && !desc->streams && !desc->routes) desc->streams = frisbee_rpc_streams();
#endif
    for (i = 0; i < desc->route_count; i++) {
        const uint16_t operation = desc->routes[i].operation;
        if (operation < FRISBEEI_FIRST_OPERATION || operation > FRISBEEI_LAST_OPERATION || !desc->routes[i].handler) return FRISBEE_INVALID;
        if (i && desc->routes[i - 1].operation >= operation) return FRISBEE_INVALID;
    }
    if (!desc->max_packet) desc->max_packet = FRISBEE_PACKET_MAX;
    if (cap->max_packet && desc->max_packet > cap->max_packet) desc->max_packet = cap->max_packet;
    if (desc->max_packet > (1u << 30) - 10) desc->max_packet = (1u << 30) - 10; // with its header it fits the longest queue
    if (!desc->queue_limit) {
        const size_t packet = (size_t)desc->max_packet + FRISBEE_WIRE_HEADER_MAX;
        desc->queue_limit = (size_t)8 << 20;
        if (desc->queue_limit < packet) desc->queue_limit = packet;
    }
    if (cap->queue_limit && desc->queue_limit > cap->queue_limit) desc->queue_limit = cap->queue_limit;
    if (desc->queue_limit > FRISBEEI_LONGEST_QUEUE) desc->queue_limit = FRISBEEI_LONGEST_QUEUE;
    if (!desc->high_water) desc->high_water = frisbeei_least((size_t)256 << 10, desc->queue_limit / 2);
    if (desc->high_water > desc->queue_limit) desc->high_water = desc->queue_limit;
    if (!desc->low_water) desc->low_water = desc->high_water / 4;
    if (desc->low_water > desc->high_water) desc->low_water = desc->high_water;
    if (!desc->max_calls) desc->max_calls = 16384;
    if (cap->max_calls && desc->max_calls > cap->max_calls) desc->max_calls = cap->max_calls;
    if (!desc->max_deferred) desc->max_deferred = 1024;
    if (pool->fixed && desc->max_deferred > cap->max_calls) desc->max_deferred = cap->max_calls;
    if (!desc->max_streams) desc->max_streams = 1024;
    if (!desc->stream_window) desc->stream_window = 256u << 10;
    if (desc->stream_window > 1u << 30) desc->stream_window = 1u << 30;
    if (!desc->max_conns) desc->max_conns = 10000;
    if (!desc->backlog) desc->backlog = 511;
    return FRISBEE_OK;
}

static frisbee_result frisbeei_profile_new(frisbee_pool *pool, const frisbee_conn_desc *given, frisbee_role role, frisbeei_profile **out) {
    frisbee_conn_desc desc;
    frisbee_result result;
    memset(&desc, 0, sizeof desc);
    if (given) desc = *given;
    result = frisbeei_profile_fill(pool, &desc, role);
    if (result != FRISBEE_OK) return result;
    *out = (frisbeei_profile *)frisbeei_allocate(pool, sizeof **out);
    if (!*out) return FRISBEE_NO_MEMORY;
    (*out)->desc = desc;
    (*out)->last = NULL;
    (*out)->references = 1;
    return FRISBEE_OK;
}

// Undoes frisbeei_conn_new when a later step failed.
static frisbee_result frisbeei_conn_undo(frisbee_pool *pool, frisbeei_conn *conn, frisbee_result result) {
    frisbeei_in_drop(pool, conn);
    frisbeei_queue_drop(pool, conn);
    frisbeei_dirty_remove(pool, conn);
    frisbeei_patterns_drop(pool, conn);
    if (conn->io) frisbeei_give_back(pool, conn->io, sizeof *conn->io);
    frisbeei_extra_drop(pool, conn);
    frisbeei_profile_release(pool, conn->profile);
    frisbeei_conn_give(pool, conn);
    return result;
}

// A connection that connect, adopt or attach begins; its session starts in the next poll.
static frisbee_result frisbeei_conn_new(frisbee_pool *pool, const frisbee_conn_desc *desc, frisbee_role role, frisbeei_conn **out) {
    frisbeei_profile *profile;
    frisbeei_conn *conn;
    frisbee_result result;
    *out = NULL; // for compilers that do not see that it is set whenever the result is OK
    if (pool->ending || pool->shut) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    if (pool->conn_count >= pool->desc.max_conns) return FRISBEE_EXHAUSTED;
    result = frisbeei_profile_new(pool, desc, role, &profile);
    if (result != FRISBEE_OK) return result;
    conn = frisbeei_conn_take(pool);
    if (!conn) {
        frisbeei_profile_release(pool, profile);
        return FRISBEE_NO_MEMORY;
    }
    conn->profile = profile;
    conn->user = profile->desc.user;
    conn->state = FRISBEEI_OPENING;
    conn->deadline = FRISBEEI_NO_TIME;
    if (profile->desc.role == FRISBEE_ACCEPTOR) conn->flags |= FRISBEEI_ACCEPTED;
    if (profile->desc.protocol) {
        result = frisbeei_extra_need(pool, conn);
        if (result != FRISBEE_OK) return frisbeei_conn_undo(pool, conn, result);
        conn->extra->protocol = profile->desc.protocol;
    }
    if (!frisbeei_streams_begin(pool, conn)) return frisbeei_conn_undo(pool, conn, FRISBEE_NO_MEMORY);
    *out = conn;
    return FRISBEE_OK;
}

static void frisbeei_conn_begin(frisbee_pool *pool, frisbeei_conn *conn, frisbee_conn *out) {
    if (conn->in_size) conn->flags |= FRISBEEI_STASHED;
    frisbeei_work(pool, conn, FRISBEEI_WORK_START);
    if (out) *out = frisbeei_handle(conn);
}

static frisbee_result frisbeei_prefill(frisbee_pool *pool, frisbeei_conn *conn, const void *prefill, size_t length) {
    if (length == 0) return FRISBEE_OK;
    if (!prefill) return FRISBEE_INVALID;
    if (!frisbeei_in_reserve(pool, conn, length)) return FRISBEE_NO_MEMORY;
    memcpy(conn->in, prefill, length);
    conn->in_size = (uint32_t)length;
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_attach(frisbee_pool *pool, const frisbee_transport *transport, const frisbee_conn_desc *desc, const void *prefill,
                                          size_t length, frisbee_conn *out) {
    frisbeei_conn *conn;
    frisbee_result result;
    if (!pool || !transport || !transport->write || !transport->close || !desc) return FRISBEE_INVALID;
    result = frisbeei_conn_new(pool, desc, FRISBEE_ROLE_DEFAULT, &conn);
    if (result != FRISBEE_OK) return result;
    conn->io = (frisbee_transport *)frisbeei_allocate(pool, sizeof *conn->io);
    if (!conn->io) return frisbeei_conn_undo(pool, conn, FRISBEE_NO_MEMORY);
    *conn->io = *transport;
    result = frisbeei_prefill(pool, conn, prefill, length);
    if (result != FRISBEE_OK) return frisbeei_conn_undo(pool, conn, result);
    frisbeei_conn_begin(pool, conn, out);
    return FRISBEE_OK;
}

#if FRISBEEI_SOCKETS
FRISBEE_API frisbee_result frisbee_adopt(frisbee_pool *pool, frisbee_socket socket_, const frisbee_conn_desc *desc, const void *prefill,
                                         size_t length, frisbee_conn *out) {
    frisbeei_conn *conn;
    frisbee_result result;
    if (!pool || socket_ < 0 || !desc) return FRISBEE_INVALID;
    result = frisbeei_conn_new(pool, desc, FRISBEE_ROLE_DEFAULT, &conn);
    if (result != FRISBEE_OK) return result;
    result = frisbeei_prefill(pool, conn, prefill, length);
    if (result == FRISBEE_OK && !frisbeei_socket_prepare((int)socket_)) result = frisbeei_system(pool, errno);
    if (result != FRISBEE_OK) return frisbeei_conn_undo(pool, conn, result);
    conn->watch.fd = (int)socket_;
    frisbeei_conn_begin(pool, conn, out);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_connect(frisbee_pool *pool, const char *address, const frisbee_conn_desc *desc, frisbee_conn *out) {
    char text[320];
    const char *port = NULL;
    frisbeei_address numeric;
    frisbeei_conn *conn;
    frisbeei_extra *extra;
    frisbee_result result;
    if (!pool) return FRISBEE_INVALID;
    result = frisbeei_split(address, text, sizeof text, &port);
    if (result == FRISBEE_OK && (text[0] == 0 || strcmp(text, "*") == 0)) result = FRISBEE_INVALID;
    if (result != FRISBEE_OK) return result;
    if ((!FRISBEEI_THREADS || pool->fixed) && !pool->desc.resolve && !frisbeei_numeric(text, port, &numeric)) return FRISBEE_UNSUPPORTED;
    result = frisbeei_conn_new(pool, desc, FRISBEE_CONNECTOR, &conn);
    if (result != FRISBEE_OK) return result;
    result = frisbeei_extra_need(pool, conn);
    if (result != FRISBEE_OK) return frisbeei_conn_undo(pool, conn, result);
    extra = conn->extra;
    extra->host_bytes = strlen(address) + 1;
    extra->host = (char *)frisbeei_allocate(pool, extra->host_bytes);
    if (!extra->host) return frisbeei_conn_undo(pool, conn, FRISBEE_NO_MEMORY);
    memcpy(extra->host, text, extra->host_bytes);
    extra->port = port ? extra->host + (port - text) : NULL;
    conn->state = FRISBEEI_WAITING;
    frisbeei_conn_begin(pool, conn, out);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_resolved(frisbee_pool *pool, uint64_t token, const char *const *numeric, size_t count) {
    frisbeei_address addresses[FRISBEEI_ADDRESSES];
    frisbeei_conn *conn = pool ? frisbeei_find(pool, token) : NULL;
    uint32_t good = 0;
    size_t i;
    if (!pool || (count && !numeric)) return FRISBEE_INVALID;
    if (!conn || conn->state != FRISBEEI_RESOLVING || pool->ending) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    for (i = 0; i < count && good < FRISBEEI_ADDRESSES; i++)
        if (numeric[i] && frisbeei_numeric(numeric[i], conn->extra->port, &addresses[good])) good++;
    frisbeei_resolve_done(pool, conn, addresses, good);
    return FRISBEE_OK;
}

static int frisbeei_listen_socket(const frisbeei_address *address, bool dual, int backlog) {
    const int on = 1, off = 0;
    int error, fd = FRISBEE_SYS_SOCKET(address->to.any.sa_family, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    if (address->to.any.sa_family != AF_UNIX) (void)FRISBEE_SYS_SETSOCKOPT(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->to.any.sa_family == AF_INET6) (void)FRISBEE_SYS_SETSOCKOPT(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual ? &off : &on, sizeof on);
    if (frisbeei_fd_prepare(fd) && FRISBEE_SYS_BIND(fd, &address->to.any, address->length) == 0 && FRISBEE_SYS_LISTEN(fd, backlog) == 0) return fd;
    error = errno;
    (void)FRISBEE_SYS_CLOSE(fd);
    errno = error;
    return -1;
}

// A socket file without a listener behind it is left over from a process that died.
static bool frisbeei_unix_dead(const frisbeei_address *address) {
    struct stat status;
    bool dead;
    int fd;
    if (FRISBEE_SYS_STAT(address->to.local.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return false; // somebody's file
    fd = FRISBEE_SYS_SOCKET(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return false;
    dead = frisbeei_fd_prepare(fd) && FRISBEE_SYS_CONNECT(fd, &address->to.any, address->length) != 0 && errno == ECONNREFUSED;
    (void)FRISBEE_SYS_CLOSE(fd);
    return dead;
}

static int frisbeei_listen_any(const char *host, const char *port, frisbeei_address *address, int backlog) {
    int fd;
    if (port && (host[0] == 0 || strcmp(host, "*") == 0)) {
        (void)frisbeei_numeric("::", port, address);
        fd = frisbeei_listen_socket(address, true, backlog);
        if (fd >= 0 || errno == EADDRINUSE || errno == EACCES) return fd;
        (void)frisbeei_numeric("0.0.0.0", port, address); // no IPv6 here
    } else if (!frisbeei_numeric(host, port, address)) {
        errno = EINVAL;
        return -1;
    }
    fd = frisbeei_listen_socket(address, false, backlog);
    if (fd >= 0 || port || errno != EADDRINUSE) return fd;
    if (!frisbeei_unix_dead(address)) {
        errno = EADDRINUSE;
        return -1;
    }
    (void)FRISBEE_SYS_UNLINK(address->to.local.sun_path);
    return frisbeei_listen_socket(address, false, backlog);
}

static void frisbeei_listener_free(frisbee_pool *pool, uint32_t place) {
    frisbeei_listener *listener = pool->listeners[place];
    frisbeei_poller_remove(pool, &listener->watch);
    if (listener->watch.fd >= 0) {
        (void)FRISBEE_SYS_CLOSE(listener->watch.fd);
        if (listener->address.to.any.sa_family == AF_UNIX && !pool->abandoned) (void)FRISBEE_SYS_UNLINK(listener->address.to.local.sun_path);
    }
    pool->listeners[place] = NULL;
    frisbeei_profile_release(pool, listener->profile);
    frisbeei_give_back(pool, listener, sizeof *listener);
}

static frisbeei_listener *frisbeei_listener_find(const frisbee_pool *pool, frisbee_listener handle, uint32_t *place) {
    *place = (uint32_t)handle.id - 1;
    if ((uint32_t)handle.id == 0 || *place >= pool->listener_count || !pool->listeners[*place]) return NULL;
    return pool->listeners[*place]->id == handle.id ? pool->listeners[*place] : NULL;
}

FRISBEE_API frisbee_result frisbee_listen(frisbee_pool *pool, const char *address, const frisbee_conn_desc *desc, frisbee_listener *out) {
    char text[320];
    const char *port = NULL;
    frisbeei_listener *listener;
    frisbeei_profile *profile;
    frisbee_result result;
    uint32_t place = 0;
    if (out) out->id = 0;
    if (!pool) return FRISBEE_INVALID;
    if (pool->ending || pool->shut) return FRISBEE_CLOSED;
    result = frisbeei_split(address, text, sizeof text, &port);
    if (result != FRISBEE_OK) return result;
    frisbeei_clock_outside(pool);
    result = frisbeei_profile_new(pool, desc, FRISBEE_ACCEPTOR, &profile);
    if (result != FRISBEE_OK) return result;
    while (place < pool->listener_count && pool->listeners[place]) place++;
    listener = frisbeei_array_grow(pool, (void **)&pool->listeners, &pool->listener_room, place, sizeof *pool->listeners, pool->desc.max_conns + 2)
                   ? (frisbeei_listener *)frisbeei_allocate(pool, sizeof *listener)
                   : NULL;
    if (!listener) {
        frisbeei_profile_release(pool, profile);
        return FRISBEE_NO_MEMORY;
    }
    memset(listener, 0, sizeof *listener);
    listener->profile = profile;
    listener->id = (uint64_t)(pool->generation ? pool->generation : 1) << 32 | (place + 1);
    if (++pool->generation == 0) pool->generation = 1;
    pool->listeners[place] = listener;
    if (place == pool->listener_count) pool->listener_count++;
    listener->watch.fd = frisbeei_listen_any(text, port, &listener->address, (int)frisbeei_least(profile->desc.backlog, 65535));
    if (listener->watch.fd < 0) {
        const int error = errno;
        result = error == EINVAL && !frisbeei_numeric(text, port, &listener->address) ? FRISBEE_INVALID : frisbeei_system(pool, error);
    } else {
        socklen_t length = sizeof listener->address.to;
        if (port && FRISBEE_SYS_GETSOCKNAME(listener->watch.fd, &listener->address.to.any, &length) == 0) listener->address.length = length;
        result = frisbeei_poller_set(pool, &listener->watch, frisbeei_listener_token(place), FRISBEE_READ);
    }
    if (result != FRISBEE_OK) frisbeei_listener_free(pool, place);
    else if (out) out->id = listener->id;
    return result;
}

FRISBEE_API frisbee_result frisbee_listener_address(frisbee_pool *pool, frisbee_listener handle, char *text, size_t room) {
    uint32_t place;
    const frisbeei_listener *listener = pool ? frisbeei_listener_find(pool, handle, &place) : NULL;
    if (!pool || !text || !room) return FRISBEE_INVALID;
    return listener ? frisbeei_address_text(&listener->address, text, room) : FRISBEE_CLOSED;
}

FRISBEE_API frisbee_result frisbee_listener_close(frisbee_pool *pool, frisbee_listener handle) {
    uint32_t place;
    if (!pool) return FRISBEE_INVALID;
    if (!frisbeei_listener_find(pool, handle, &place)) return FRISBEE_CLOSED;
    frisbeei_listener_free(pool, place);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_conn_address(frisbee_pool *pool, frisbee_conn handle, bool peer, char *text, size_t room) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbeei_address address;
    int result;
    if (!pool || !text || !room) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    if (conn->watch.fd < 0) return conn->io ? FRISBEE_UNSUPPORTED : FRISBEE_NOT_SENT;
    memset(&address, 0, sizeof address);
    address.length = sizeof address.to;
    result = peer ? FRISBEE_SYS_GETPEERNAME(conn->watch.fd, &address.to.any, &address.length)
                  : FRISBEE_SYS_GETSOCKNAME(conn->watch.fd, &address.to.any, &address.length);
    return result == 0 ? frisbeei_address_text(&address, text, room) : frisbeei_system(pool, errno);
}
#else
static void frisbeei_listener_free(frisbee_pool *pool, uint32_t place) { (void)pool, (void)place; }
FRISBEE_API frisbee_result frisbee_adopt(frisbee_pool *pool, frisbee_socket socket_, const frisbee_conn_desc *desc, const void *prefill,
                                         size_t length, frisbee_conn *out) {
    (void)pool, (void)socket_, (void)desc, (void)prefill, (void)length, (void)out;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_connect(frisbee_pool *pool, const char *address, const frisbee_conn_desc *desc, frisbee_conn *out) {
    (void)pool, (void)address, (void)desc, (void)out;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_resolved(frisbee_pool *pool, uint64_t token, const char *const *numeric, size_t count) {
    (void)pool, (void)token, (void)numeric, (void)count;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_listen(frisbee_pool *pool, const char *address, const frisbee_conn_desc *desc, frisbee_listener *out) {
    (void)pool, (void)address, (void)desc, (void)out;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_listener_address(frisbee_pool *pool, frisbee_listener handle, char *text, size_t room) {
    (void)pool, (void)handle, (void)text, (void)room;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_listener_close(frisbee_pool *pool, frisbee_listener handle) {
    (void)pool, (void)handle;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_conn_address(frisbee_pool *pool, frisbee_conn handle, bool peer, char *text, size_t room) {
    if (!pool || !text || !room) return FRISBEE_INVALID;
    (void)peer;
    return frisbeei_find(pool, handle.id) ? FRISBEE_UNSUPPORTED : FRISBEE_CLOSED;
}
#endif

FRISBEE_API frisbee_result frisbee_feed(frisbee_pool *pool, frisbee_conn handle, const void *data, size_t length, size_t *taken) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    size_t most, part;
    if (!pool || !taken || (length && !data)) return FRISBEE_INVALID;
    *taken = 0;
    if (!conn || conn->state >= FRISBEEI_DRAINING) return FRISBEE_CLOSED;
    if (!conn->io || conn->io->read) return FRISBEE_INVALID;
    if (pool->current == conn) return length ? FRISBEE_AGAIN : FRISBEE_OK; // its input is being handed out: after the callback
    frisbeei_clock_outside(pool);
    most = pool->fixed ? pool->desc.read_buffer : (size_t)conn->profile->desc.max_packet + FRISBEE_WIRE_HEADER_MAX;
    part = frisbeei_least(length, most - frisbeei_least(most, conn->in_size));
    if (part) {
        size_t room = frisbeei_least((size_t)conn->in_size * 2, most);
        if (room < conn->in_size + part) room = conn->in_size + part;
        if (conn->in_size + part > conn->in_room && !frisbeei_in_reserve(pool, conn, room)) return FRISBEE_NO_MEMORY;
        memcpy(conn->in + conn->in_size, data, part);
        conn->in_size += (uint32_t)part;
        conn->bytes_in += part;
        conn->heard = pool->tick;
        conn->flags |= FRISBEEI_STASHED;
        frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
        *taken = part;
    }
    return part == length ? FRISBEE_OK : FRISBEE_AGAIN;
}

FRISBEE_API frisbee_result frisbee_wake(frisbee_pool *pool, frisbee_conn handle, unsigned ready) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    if (!pool || (ready & ~(unsigned)(FRISBEE_READ | FRISBEE_WRITE))) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    if (!conn->io) return FRISBEE_INVALID;
    frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_close(frisbee_pool *pool, frisbee_conn handle, frisbee_close_how how) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    if (!pool || (how != FRISBEE_CLOSE_FLUSH && how != FRISBEE_CLOSE_NOW)) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    if (pool->broker) frisbeei_batch_end(pool);
    conn->flags |= FRISBEEI_NO_RETRY;
    if (how == FRISBEE_CLOSE_NOW || frisbeei_handing(conn)) frisbeei_fail(pool, conn, FRISBEE_OK, 0);
    else frisbeei_begin_close(pool, conn, FRISBEE_OK);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_finish(frisbee_pool *pool, frisbee_conn handle) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbee_result result;
    if (!pool) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    if (conn->flags & FRISBEEI_FINISH && conn->state <= FRISBEEI_OPEN) return FRISBEE_OK;
    result = frisbeei_may_send(pool, conn);
    if (result != FRISBEE_OK) return result;
    frisbeei_clock_outside(pool);
    if (pool->broker) frisbeei_batch_end(pool);
    conn->flags |= FRISBEEI_FINISH;
    frisbeei_publishers_try(pool);
    frisbeei_dirty(pool, conn);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_pause(frisbee_pool *pool, frisbee_conn handle, bool paused) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    if (!pool) return FRISBEE_INVALID;
    if (!conn || conn->state >= FRISBEEI_DRAINING) return FRISBEE_CLOSED;
    if (frisbeei_handing(conn)) return FRISBEE_HIJACKED;
    if (paused == ((conn->flags & FRISBEEI_PAUSED) != 0)) return FRISBEE_OK;
    frisbeei_clock_outside(pool);
    if (paused) {
        conn->flags |= FRISBEEI_PAUSED;
        if (pool->current == conn) pool->stop = true;
    } else {
        conn->flags &= ~(uint32_t)(FRISBEEI_PAUSED | FRISBEEI_UNWATCHED);
        conn->heard = conn->packet_since = pool->tick; // silence and slowness count from now
        if (conn->patterns && conn->patterns->kept) frisbeei_streams_resume(pool, conn);
        frisbeei_work(pool, conn, FRISBEEI_WORK_INPUT);
        frisbeei_timer_in(pool, conn, 0);
    }
    frisbeei_interest(pool, conn);
    return FRISBEE_OK;
}

FRISBEE_API void *frisbee_user(frisbee_pool *pool, frisbee_conn handle) {
    const frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    return conn ? conn->user : NULL;
}

FRISBEE_API frisbee_result frisbee_set_user(frisbee_pool *pool, frisbee_conn handle, void *user) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    if (!conn) return pool ? FRISBEE_CLOSED : FRISBEE_INVALID;
    conn->user = user;
    return FRISBEE_OK;
}

// >>public sending and calling

FRISBEE_API frisbee_result frisbee_reserve(frisbee_pool *pool, frisbee_conn handle, size_t room, void **data) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    size_t header;
    frisbee_result result;
    uint8_t *at;
    if (!pool || !data) return FRISBEE_INVALID;
    *data = NULL;
    if (!conn) return FRISBEE_CLOSED;
    result = frisbeei_may_send(pool, conn);
    if (result != FRISBEE_OK) return result;
    header = frisbeei_is_packets(conn) ? conn->header : 0;
    if (room > conn->profile->desc.max_packet || header + room > conn->profile->desc.queue_limit) return FRISBEE_TOO_LARGE;
    if (conn->queued + header + room > conn->profile->desc.queue_limit) return frisbeei_full(conn);
    at = frisbeei_room(pool, conn, header + (room ? room : 1));
    if (!at) return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
    frisbeei_dirty(pool, conn); // room that is not used goes with the next flush
    *data = at + header;
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_send(frisbee_pool *pool, frisbee_conn handle, uint16_t operation, uint16_t id, const void *data, size_t length) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbee_result result;
    if (!pool || (length && !data)) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    result = frisbeei_may_send_packet(pool, conn, operation, length);
    if (result != FRISBEE_OK) return result;
    return frisbeei_queue_copy(pool, conn, operation, id, data, length, false);
}

FRISBEE_API frisbee_result frisbee_send_spans(frisbee_pool *pool, frisbee_conn handle, uint16_t operation, uint16_t id, const frisbee_span *spans,
                                              size_t count, frisbee_release release, void *user) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    if (!pool) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    return frisbeei_queue_spans(pool, conn, operation, id, spans, count, release, user, false);
}

FRISBEE_API frisbee_result frisbee_write(frisbee_pool *pool, frisbee_conn handle, const frisbee_span *spans, size_t count, frisbee_release release,
                                         void *user) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbee_result result;
    size_t length, i;
    uint8_t *at;
    if (!pool || (count && !spans)) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    result = frisbeei_may_send(pool, conn);
    if (result != FRISBEE_OK) return result;
    if (frisbeei_is_packets(conn)) return FRISBEE_INVALID;
    if (!frisbeei_spans_total(spans, count, &length) || length > conn->profile->desc.queue_limit) return FRISBEE_TOO_LARGE;
    if (release) return frisbeei_queue_borrowed(pool, conn, 0, 0, 0, spans, count, length, release, user, false);
    if (conn->queued + length > conn->profile->desc.queue_limit) return frisbeei_full(conn);
    if (length == 0) return FRISBEE_OK;
    at = frisbeei_room(pool, conn, length);
    if (!at) return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
    for (i = 0; i < count; at += spans[i++].length)
        if (spans[i].length && at != (const uint8_t *)spans[i].data) memmove(at, spans[i].data, spans[i].length);
    conn->used = pool->tick;
    frisbeei_commit(pool, conn, length, false);
    return FRISBEE_OK;
}

FRISBEE_API size_t frisbee_queued(frisbee_pool *pool, frisbee_conn handle) {
    const frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    return conn ? conn->queued : 0;
}

// A call whose packet may be sent: `operation` goes out, `answer` is what its reply has.
static inline frisbee_result frisbeei_call_start(frisbee_pool *pool, frisbeei_conn *conn, uint16_t operation, uint16_t answer, const void *data,
                                                 size_t length, const frisbee_call_desc *desc, frisbee_call_id *out) {
    frisbeei_call *call;
    frisbee_result result;
    frisbee_span span;
    uint64_t offset;
    uint16_t id = 0;
    int32_t timeout_ms = desc ? desc->timeout_ms : 0;
    if (conn->flags & FRISBEEI_ENDED || pool->shut) return FRISBEE_CLOSED;
    if (conn->calls && conn->calls->live >= conn->profile->desc.max_calls) return FRISBEE_EXHAUSTED;
    frisbeei_clock_outside(pool);
    call = frisbeei_call_slot(pool, conn, &id);
    if (!call) return conn->calls ? FRISBEE_EXHAUSTED : FRISBEE_NO_MEMORY;
    offset = conn->written + conn->queued;
    span.data = data;
    span.length = length;
    if (desc && desc->release)
        result = frisbeei_queue_borrowed(pool, conn, conn->header, operation, id, &span, 1, length, desc->release, desc->user, false);
    else result = frisbeei_queue_copy(pool, conn, operation, id, data, length, false);
    if (result != FRISBEE_OK) return result;
    call->on_reply = desc ? desc->on_reply : NULL;
    call->user = desc ? desc->user : NULL;
    call->offset = offset;
    call->serial = pool->serial = (pool->serial + 1) & 0xFFFFFF;
    call->id = id;
    call->operation = answer;
    call->state = FRISBEEI_CALL_LIVE;
    if (timeout_ms == 0) timeout_ms = conn->profile->desc.call_ms;
    if (timeout_ms > FRISBEEI_LONGEST_MS) timeout_ms = FRISBEEI_LONGEST_MS;
    call->timed = timeout_ms >= 0;
    call->due = pool->tick + (uint32_t)timeout_ms;
    conn->calls->live++;
    if (call->timed && (!conn->calls->timed || (int32_t)(call->due - conn->calls->due) < 0)) {
        conn->calls->due = call->due;
        conn->calls->timed = true;
        frisbeei_timer_in(pool, conn, timeout_ms);
    }
    if (out) *out = frisbeei_call_handle(conn, call);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_call(frisbee_pool *pool, frisbee_conn handle, uint16_t operation, const void *data, size_t length,
                                        const frisbee_call_desc *desc, frisbee_call_id *out) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbee_result result;
    if (out) out->id = 0;
    if (!pool || (length && !data) || (desc && desc->timeout_ms < FRISBEE_NEVER)) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    result = frisbeei_may_send_packet(pool, conn, operation, length);
    if (result != FRISBEE_OK) return result;
    return frisbeei_call_start(pool, conn, operation, operation, data, length, desc, out);
}

FRISBEE_API frisbee_result frisbee_cancel(frisbee_pool *pool, frisbee_call_id handle) {
    frisbeei_conn *conn;
    frisbeei_call *call = pool ? frisbeei_call_find(pool, handle, &conn) : NULL;
    if (!pool) return FRISBEE_INVALID;
    if (!call) return FRISBEE_CLOSED;
    call->state = FRISBEEI_CALL_CANCELLED;
    frisbeei_work(pool, conn, FRISBEEI_WORK_SWEEP);
    return FRISBEE_OK;
}

typedef struct frisbeei_wait {
    frisbee_outcome outcome;
    bool done;
} frisbeei_wait;

static void frisbeei_wait_keep(frisbee_pool *pool, frisbeei_wait *wait, const void *data, uint32_t length) {
    wait->done = true;
    wait->outcome.data = NULL;
    wait->outcome.length = length;
    if (length == 0) return;
    if (length > pool->wait_room) {
        const uint32_t room = pool->fixed ? pool->desc.max_packet : length;
        uint8_t *moved = (uint8_t *)frisbeei_allocate(pool, room);
        if (!moved) {
            wait->outcome.result = FRISBEE_NO_MEMORY;
            wait->outcome.length = 0;
            return;
        }
        frisbeei_give_back(pool, pool->wait_data, pool->wait_room);
        pool->wait_data = moved;
        pool->wait_room = room;
    }
    memcpy(pool->wait_data, data, length);
    wait->outcome.data = pool->wait_data;
}

static void frisbeei_wait_done(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    frisbeei_wait *wait = (frisbeei_wait *)user;
    (void)call;
    wait->outcome = *outcome;
    frisbeei_wait_keep(pool, wait, outcome->data, outcome->length);
}

// Starts a call after a look at what has happened since the last poll; between sessions, when the next one is open.
static frisbee_result frisbeei_call_soon(frisbee_pool *pool, frisbee_conn handle, uint16_t operation, const void *data, size_t length,
                                         frisbee_call_desc *desc, frisbee_call_id *call) {
    const frisbeei_conn *conn = frisbeei_find(pool, handle.id);
    int64_t until = FRISBEEI_NO_TIME;
    // before a first open the call is queued at once, and its outcome tells why it never opened
    frisbee_result result = conn && !(conn->flags & FRISBEEI_EVER_OPENED) ? FRISBEE_OK : frisbee_poll(pool, 0);
    if (result == FRISBEE_DESTROYED) return result;
    conn = frisbeei_find(pool, handle.id);
    if (desc->timeout_ms == 0 && conn) desc->timeout_ms = conn->profile->desc.call_ms;
    if (desc->timeout_ms >= 0) until = pool->now + (int64_t)desc->timeout_ms * 1000;
    for (;;) {
        const int64_t left = until == FRISBEEI_NO_TIME ? INT32_MAX : (until - pool->now + 999) / 1000;
        result = frisbee_call(pool, handle, operation, data, length, desc, call);
        if (result != FRISBEE_NOT_SENT) return result;
        if (pool->stop_run) return FRISBEE_CANCELLED;
        if (left <= 0) return FRISBEE_TIMED_OUT;
        result = frisbee_poll(pool, (int32_t)left);
        if (result == FRISBEE_SYSTEM || result == FRISBEE_DESTROYED) return result;
        if (desc->timeout_ms > 0) desc->timeout_ms = (int32_t)(until > pool->now ? (until - pool->now + 999) / 1000 : 1);
    }
}

FRISBEE_API frisbee_result frisbee_call_wait(frisbee_pool *pool, frisbee_conn handle, uint16_t operation, const void *data, size_t length,
                                             int32_t timeout_ms, frisbee_outcome *outcome) {
    frisbeei_wait wait;
    frisbee_call_desc desc;
    frisbee_call_id call;
    frisbee_result result;
    bool stopped;
    if (outcome) memset(outcome, 0, sizeof *outcome);
    if (!pool || !outcome) return FRISBEE_INVALID;
    call.id = 0;
    memset(&wait, 0, sizeof wait);
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = timeout_ms;
    desc.on_reply = frisbeei_wait_done;
    desc.user = &wait;
    outcome->result = FRISBEE_BUSY;
    if (pool->depth) return FRISBEE_BUSY;
    stopped = pool->stop_run; // before: that is for the next run
    pool->stop_run = false;
    result = frisbeei_call_soon(pool, handle, operation, data, length, &desc, &call);
    wait.outcome.result = result;
    wait.done = result != FRISBEE_OK;
    while (!wait.done) {
        if (pool->stop_run || result == FRISBEE_SYSTEM) {
            pool->stop_run = false;
            (void)frisbee_cancel(pool, call);
        }
        result = frisbee_poll(pool, FRISBEE_NEVER);
        if (result == FRISBEE_DESTROYED) break;
    }
    *outcome = wait.outcome;
    if (result == FRISBEE_DESTROYED) {
        outcome->data = NULL; // it was the pool's
        outcome->length = 0;
        return FRISBEE_DESTROYED;
    }
    pool->stop_run = stopped;
    return outcome->result;
}

static bool frisbeei_being_handled(const frisbee_pool *pool, const frisbee_origin *origin) {
    return pool->packet && pool->packet->from.conn.id == origin->conn.id && pool->packet->from.session == origin->session &&
           pool->packet->from.id == origin->id && pool->packet->from.operation == origin->operation && !pool->answered;
}

FRISBEE_API frisbee_result frisbee_defer(frisbee_pool *pool, const frisbee_packet *packet, frisbee_origin *origin) {
    frisbeei_conn *conn = pool && packet ? frisbeei_find(pool, packet->from.conn.id) : NULL;
    frisbee_result result;
    if (!pool || !packet || !origin) return FRISBEE_INVALID;
    if (!conn || conn->state != FRISBEEI_OPEN || packet->from.session != conn->session) return FRISBEE_CLOSED;
    if (!frisbeei_being_handled(pool, &packet->from)) return FRISBEE_INVALID;
    result = frisbeei_deferred_add(pool, conn, &packet->from);
    if (result != FRISBEE_OK) return result;
    pool->answered = true;
    *origin = packet->from;
    return FRISBEE_OK;
}

// Is a reply to `origin` owed? *deferred: the place of the promise, if it is one.
static inline frisbee_result frisbeei_reply_owed(const frisbee_pool *pool, const frisbee_origin *origin, frisbeei_conn **conn, uint32_t *place,
                                                 bool *deferred) {
    *deferred = false;
    if (FRISBEEI_LIKELY(pool->packet && origin == &pool->packet->from && !pool->answered)) { // by the packet's own origin, inside its handler
        *conn = pool->current;
        return FRISBEE_OK;
    }
    *conn = frisbeei_find(pool, origin->conn.id);
    if (!*conn || (*conn)->session != origin->session) return FRISBEE_CLOSED;
    if (frisbeei_being_handled(pool, origin)) return FRISBEE_OK;
    *deferred = frisbeei_deferred_has(*conn, origin, place);
    return *deferred ? FRISBEE_OK : (*conn)->state == FRISBEEI_CLOSED ? FRISBEE_CLOSED : FRISBEE_INVALID;
}

static void frisbeei_reply_done(frisbee_pool *pool, frisbeei_conn *conn, uint32_t place, bool deferred) {
    if (!deferred) {
        pool->answered = true;
        return;
    }
    frisbeei_deferred_remove(conn->deferred, place);
    frisbeei_ended_done(pool, conn); // it may be the last reply that an ended peer waited for
}

FRISBEE_API frisbee_result frisbee_reply(frisbee_pool *pool, const frisbee_origin *origin, const void *data, size_t length) {
    frisbeei_conn *conn;
    frisbee_result result;
    uint32_t place = 0;
    bool deferred;
    if (!pool || !origin || (length && !data)) return FRISBEE_INVALID;
    result = frisbeei_reply_owed(pool, origin, &conn, &place, &deferred);
    if (FRISBEEI_LIKELY(result == FRISBEE_OK)) result = frisbeei_may_send_packet(pool, conn, origin->operation, length);
    if (FRISBEEI_LIKELY(result == FRISBEE_OK)) result = frisbeei_queue_copy(pool, conn, origin->operation, origin->id, data, length, true);
    if (FRISBEEI_LIKELY(result == FRISBEE_OK)) frisbeei_reply_done(pool, conn, place, deferred);
    return result;
}

FRISBEE_API frisbee_result frisbee_reply_spans(frisbee_pool *pool, const frisbee_origin *origin, const frisbee_span *spans, size_t count,
                                               frisbee_release release, void *user) {
    frisbeei_conn *conn;
    frisbee_result result;
    uint32_t place = 0;
    bool deferred;
    if (!pool || !origin) return FRISBEE_INVALID;
    result = frisbeei_reply_owed(pool, origin, &conn, &place, &deferred);
    if (result == FRISBEE_OK) result = frisbeei_queue_spans(pool, conn, origin->operation, origin->id, spans, count, release, user, true);
    if (result == FRISBEE_OK) frisbeei_reply_done(pool, conn, place, deferred);
    return result;
}

FRISBEE_API frisbee_result frisbee_hijack(frisbee_pool *pool, frisbee_conn handle, frisbee_hijack_how how, int32_t timeout_ms,
                                          frisbee_on_hijacked on_hijacked, void *user) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbee_result result;
    if (!pool || !on_hijacked || timeout_ms < FRISBEE_NEVER) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    result = frisbeei_hand_begin(pool, conn, FRISBEEI_HAND_OVER, how, frisbeei_or(timeout_ms, 10000));
    if (result != FRISBEE_OK) return result;
    conn->extra->on_hijacked = on_hijacked;
    conn->extra->hijack_user = user;
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_upgrade(frisbee_pool *pool, frisbee_conn handle, frisbee_hijack_how how, const frisbee_protocol *protocol) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbee_result result;
    if (!pool || (protocol && !protocol->input)) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    result = frisbeei_hand_begin(pool, conn, FRISBEEI_HAND_UPGRADE, how, conn->profile->desc.open_ms);
    if (result == FRISBEE_OK) conn->extra->upgrade_to = protocol;
    return result;
}

// >>public publish and subscribe

#if FRISBEEI_PUBSUB
static frisbee_result frisbeei_subscribe_local(frisbee_pool *pool, const frisbeei_wanted *wanted, frisbeei_sub **out) {
    if (!pool->broker || wanted->slow == FRISBEE_SLOW_CLOSE) return FRISBEE_INVALID;
    return frisbeei_broker_add(pool, NULL, wanted, out);
}

static frisbee_result frisbeei_subscribe_there(frisbee_pool *pool, frisbeei_conn *conn, const frisbeei_wanted *wanted, bool retained,
                                               frisbeei_sub **out) {
    const frisbee_result result = frisbeei_may_send(pool, conn);
    frisbeei_map *mine;
    frisbeei_sub *sub;
    if (result != FRISBEE_OK && result != FRISBEE_NOT_SENT) return result;
    if (!frisbeei_is_packets(conn)) return FRISBEE_INVALID;
    if (!frisbeei_patterns_need(pool, conn)) return FRISBEE_NO_MEMORY;
    mine = &conn->patterns->mine;
    if (mine->count == 65535) return FRISBEE_EXHAUSTED;
    while (conn->patterns->next_sub == 0 || frisbeei_map_get(pool, mine, conn->patterns->next_sub)) conn->patterns->next_sub++;
    sub = frisbeei_sub_new(pool, conn, &wanted->topic, wanted->group, wanted->group_length);
    if (!sub) return FRISBEE_NO_MEMORY;
    sub->number = conn->patterns->next_sub;
    sub->slow = wanted->slow;
    sub->limit = wanted->limit;
    sub->retained = retained;
    if (!frisbeei_map_put(pool, mine, sub->number, sub)) {
        frisbeei_sub_free(pool, sub);
        return FRISBEE_NO_MEMORY;
    }
    if (conn->state == FRISBEEI_OPEN && conn->flags & FRISBEEI_OPENED) { // else it is asked for when the session opens
        const bool full = frisbeei_over(pool, conn, conn->header + 8u + sub->topic_length + sub->group_length, false);
        if (full || !frisbeei_subscribe_send(pool, sub)) {
            frisbeei_mine_free(pool, sub);
            return full || pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
        }
    }
    conn->patterns->next_sub++;
    *out = sub;
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_subscribe(frisbee_pool *pool, frisbee_conn handle, const char *topic, const frisbee_sub_desc *desc,
                                             frisbee_sub *out) {
    const bool local = handle.id == FRISBEE_LOCAL.id;
    frisbeei_conn *conn = pool && !local ? frisbeei_find(pool, handle.id) : NULL;
    frisbeei_wanted wanted;
    frisbeei_sub *sub = NULL;
    frisbee_result result;
    if (out) out->id = 0;
    if (!pool || !topic || !desc || !desc->on_message || (unsigned)desc->slow > (unsigned)FRISBEE_SLOW_BLOCK) return FRISBEE_INVALID;
    if (pool->ending || (!local && !conn)) return FRISBEE_CLOSED;
    wanted.group = desc->group ? desc->group : "";
    wanted.group_length = strlen(wanted.group);
    wanted.slow = (uint8_t)desc->slow;
    wanted.limit = desc->limit;
    wanted.number = 0;
    if (!frisbeei_topic_parse(topic, strlen(topic), true, &wanted.topic)) return FRISBEE_INVALID;
    if (desc->group && (wanted.group_length == 0 || !frisbeei_group_valid(wanted.group, wanted.group_length))) return FRISBEE_INVALID;
    frisbeei_clock_outside(pool);
    result = conn ? frisbeei_subscribe_there(pool, conn, &wanted, desc->retained, &sub) : frisbeei_subscribe_local(pool, &wanted, &sub);
    if (result != FRISBEE_OK) return result;
    sub->on_message = desc->on_message;
    sub->on_result = desc->on_result;
    sub->user = desc->user;
    if (!conn && desc->retained) frisbeei_retained_match(pool, &pool->broker->topics, &wanted.topic, 0, sub);
    if (out) *out = frisbeei_sub_handle(sub);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_unsubscribe(frisbee_pool *pool, frisbee_sub handle) {
    frisbeei_sub *sub = pool ? frisbeei_sub_find(pool, handle) : NULL;
    const uint8_t refused = FRISBEEI_STATUS_REFUSED;
    frisbeei_conn *conn;
    if (!pool) return FRISBEE_INVALID;
    if (!sub) return FRISBEE_CLOSED;
    conn = sub->conn;
    frisbeei_clock_outside(pool);
    if (sub->list) { // at our broker
        frisbeei_batch_end(pool);
        if (conn && frisbeei_may_deliver(conn) && !frisbeei_queue_own(pool, conn, FRISBEEI_SUBSCRIBED, sub->number, &refused, 1, false))
            return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
        frisbeei_broker_remove(pool, sub);
        if (conn) { // on_unsubscribe comes from the next turn
            sub->next = pool->broker->ended;
            pool->broker->ended = sub;
        } else frisbeei_sub_free(pool, sub);
        return FRISBEE_OK;
    }
    if (!frisbeei_may_deliver(conn)) {
        frisbeei_mine_free(pool, sub);
        return FRISBEE_OK;
    }
    if (!frisbeei_queue_own(pool, conn, FRISBEEI_UNSUBSCRIBE, sub->number, NULL, 0, false))
        return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
    frisbeei_sub_forget(pool, sub);
    sub->ending = true; // its id is free again when the broker has answered
    return FRISBEE_OK;
}

static frisbee_result frisbeei_publish_local(frisbee_pool *pool, const frisbeei_topic *topic, const void *data, size_t length, bool retain) {
    frisbeei_publication publication;
    frisbee_result result;
    uint32_t copies;
    uint8_t *at;
    if (!pool->broker) return FRISBEE_INVALID;
    if (length > FRISBEEI_LONGEST_QUEUE) return FRISBEE_TOO_LARGE;
    publication.length = 2 + topic->length + length;
    publication.publisher = 0;
    publication.shared = frisbeei_message_new(pool, publication.length, 0);
    if (!publication.shared) return FRISBEE_NO_MEMORY;
    at = frisbeei_message_bytes(publication.shared);
    publication.payload = at;
    at[0] = retain;
    at[1] = (uint8_t)topic->length;
    memcpy(at + 2, topic->text, topic->length);
    if (length) memcpy(at + 2 + topic->length, data, length);
    publication.shared->hash = frisbeei_hash(pool, 0, topic->text, topic->length);
    result = frisbeei_publish(pool, topic, &publication, &copies);
    if (result != FRISBEE_AGAIN) return FRISBEE_OK;
    frisbeei_message_drop(pool, publication.shared);
    pool->broker->refused = true;
    return FRISBEE_AGAIN;
}

static frisbee_result frisbeei_publish_there(frisbee_pool *pool, frisbeei_conn *conn, const frisbeei_topic *topic, const void *data, size_t length,
                                             const frisbee_publish_desc *desc) {
    const size_t prefix = 2 + topic->length;
    frisbee_result result;
    frisbee_call_desc call;
    uint8_t *at;
    if (length > (size_t)-1 - prefix) return FRISBEE_TOO_LARGE;
    result = frisbeei_may_send_packet(pool, conn, FRISBEEI_FIRST_OPERATION, prefix + length);
    if (result != FRISBEE_OK) return result;
    if (desc && desc->on_reply && !frisbeei_patterns_need(pool, conn)) return FRISBEE_NO_MEMORY; // for what it says was lost
    if (frisbeei_over(pool, conn, conn->header + prefix + length, false)) return frisbeei_full(conn);
    at = frisbeei_room(pool, conn, conn->header + prefix + length); // it is put together in the queue itself
    if (!at) return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
    frisbeei_dirty(pool, conn);
    at += conn->header;
    if (length) memmove(at + prefix, data, length); // first: it may lie in room that frisbee_reserve lent
    at[0] = desc && desc->retain;
    at[1] = (uint8_t)topic->length;
    memcpy(at + 2, topic->text, topic->length);
    if (!desc || !desc->on_reply) return frisbeei_queue_copy(pool, conn, FRISBEEI_PUBLISH, 0, at, prefix + length, false);
    memset(&call, 0, sizeof call);
    call.timeout_ms = desc->timeout_ms;
    call.on_reply = desc->on_reply;
    call.user = desc->user;
    return frisbeei_call_start(pool, conn, FRISBEEI_PUBLISH, FRISBEEI_PUBLISHED, at, prefix + length, &call, NULL);
}

FRISBEE_API frisbee_result frisbee_publish(frisbee_pool *pool, frisbee_conn handle, const char *topic, const void *data, size_t length,
                                           const frisbee_publish_desc *desc) {
    const bool local = handle.id == FRISBEE_LOCAL.id;
    frisbeei_conn *conn = pool && !local ? frisbeei_find(pool, handle.id) : NULL;
    frisbeei_topic parsed;
    if (!pool || !topic || (length && !data) || (desc && desc->timeout_ms < FRISBEE_NEVER)) return FRISBEE_INVALID;
    if (!frisbeei_topic_parse(topic, strlen(topic), false, &parsed)) return FRISBEE_INVALID;
    if (pool->ending || (!local && !conn)) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    if (conn) return frisbeei_publish_there(pool, conn, &parsed, data, length, desc);
    if (desc && desc->on_reply) return FRISBEE_INVALID;
    return frisbeei_publish_local(pool, &parsed, data, length, desc && desc->retain);
}

FRISBEE_API frisbee_result frisbee_sub_next(frisbee_pool *pool, frisbee_sub *at, frisbee_sub_info *info) {
    uint32_t index;
    if (!pool || !at) return FRISBEE_INVALID;
    for (index = (uint32_t)at->id; index < pool->sub_count; index++) {
        const frisbeei_sub *sub = pool->subs[index].sub;
        if (!sub || !sub->list) continue;
        *at = frisbeei_sub_handle(sub);
        if (info) frisbeei_sub_info(sub, info);
        return FRISBEE_OK;
    }
    return FRISBEE_CLOSED;
}

FRISBEE_API frisbee_result frisbee_sub_describe(frisbee_pool *pool, frisbee_sub handle, frisbee_sub_info *info) {
    const frisbeei_sub *sub = pool ? frisbeei_sub_find(pool, handle) : NULL;
    if (!pool || !info) return FRISBEE_INVALID;
    if (!sub) return FRISBEE_CLOSED;
    if (!sub->list) return FRISBEE_INVALID;
    frisbeei_sub_info(sub, info);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_topic_count(frisbee_pool *pool, const char *topic, uint32_t *count) {
    frisbeei_topic parsed;
    uint32_t i;
    if (!pool || !pool->broker || !topic || !count || !frisbeei_topic_parse(topic, strlen(topic), false, &parsed)) return FRISBEE_INVALID;
    frisbeei_match(pool, &parsed);
    *count = 0;
    for (i = 0; i < pool->broker->matched_count; i++) *count += pool->broker->matched[i]->group ? 1 : pool->broker->matched[i]->count;
    return FRISBEE_OK;
}
#else
FRISBEE_API frisbee_result frisbee_subscribe(frisbee_pool *pool, frisbee_conn handle, const char *topic, const frisbee_sub_desc *desc,
                                             frisbee_sub *out) {
    (void)pool, (void)handle, (void)topic, (void)desc, (void)out;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_unsubscribe(frisbee_pool *pool, frisbee_sub handle) {
    (void)pool, (void)handle;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_publish(frisbee_pool *pool, frisbee_conn handle, const char *topic, const void *data, size_t length,
                                           const frisbee_publish_desc *desc) {
    (void)pool, (void)handle, (void)topic, (void)data, (void)length, (void)desc;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_sub_next(frisbee_pool *pool, frisbee_sub *at, frisbee_sub_info *info) {
    (void)pool, (void)at, (void)info;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_sub_describe(frisbee_pool *pool, frisbee_sub handle, frisbee_sub_info *info) {
    (void)pool, (void)handle, (void)info;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_topic_count(frisbee_pool *pool, const char *topic, uint32_t *count) {
    (void)pool, (void)topic, (void)count;
    return FRISBEE_UNSUPPORTED;
}
#endif

// >>public streams

#if FRISBEEI_STREAMS
FRISBEE_API frisbee_result frisbee_stream_open(frisbee_pool *pool, frisbee_conn handle, const frisbee_stream_events *events, void *user,
                                               frisbee_stream *out) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbeei_patterns *patterns;
    frisbeei_stream *stream;
    uint32_t left;
    uint16_t first, last;
    frisbee_result result;
    if (out) out->id = 0;
    if (!pool || !out) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    result = frisbeei_may_send(pool, conn);
    if (result != FRISBEE_OK) return result;
    if (!conn->profile->desc.streams || !frisbeei_is_packets(conn)) return FRISBEE_INVALID;
    if (conn->state != FRISBEEI_OPEN) return FRISBEE_NOT_SENT;
    if (conn->flags & FRISBEEI_ENDED || pool->shut) return FRISBEE_CLOSED;
    patterns = conn->patterns;
    if (!patterns || !patterns->begun) return FRISBEE_NO_MEMORY;
    if (patterns->peer == FRISBEEI_PEER_FRISBEE && patterns->peer_window == 0) return FRISBEE_REFUSED;
    first = conn->flags & FRISBEEI_ACCEPTED ? FRISBEEI_LAST_CONNECTOR_STREAM + 1 : 1;
    last = conn->flags & FRISBEEI_ACCEPTED ? 65535 : FRISBEEI_LAST_CONNECTOR_STREAM;
    if (patterns->live >= conn->profile->desc.max_streams) return FRISBEE_EXHAUSTED;
    for (left = last - first + 1u;; left--) {
        if (left == 0) return FRISBEE_EXHAUSTED;
        if (!frisbeei_map_get(pool, &patterns->streams, patterns->next_stream) && !frisbeei_id_buried(patterns, patterns->next_stream)) break;
        patterns->next_stream = (uint16_t)(patterns->next_stream == last ? first : patterns->next_stream + 1);
    }
    stream = frisbeei_stream_new(pool, conn, patterns->next_stream, events ? events : conn->profile->desc.streams, user);
    if (!stream) return FRISBEE_NO_MEMORY;
    stream->own = true;
    patterns->next_stream = (uint16_t)(patterns->next_stream == last ? first : patterns->next_stream + 1);
    *out = frisbeei_stream_handle(stream);
    return FRISBEE_OK;
}

static frisbee_result frisbeei_stream_may_send(frisbee_pool *pool, frisbeei_stream *stream, size_t length) {
    frisbee_result result;
    if (!stream || stream->state != FRISBEEI_STREAM_OPEN || stream->ended) return FRISBEE_CLOSED;
    if (length == 0) return FRISBEE_INVALID;
    result = frisbeei_may_send_packet(pool, stream->conn, FRISBEEI_FIRST_OPERATION, length);
    if (result == FRISBEE_OK && stream->credit <= 0) result = FRISBEE_AGAIN;
    if (result == FRISBEE_AGAIN) stream->wants = true;
    return result;
}

static frisbee_result frisbeei_stream_sent(frisbeei_stream *stream, size_t length, frisbee_result result) {
    if (result == FRISBEE_AGAIN) stream->wants = true;
    if (result != FRISBEE_OK) return result;
    stream->known = true;
    if (stream->conn->patterns->peer != FRISBEEI_PEER_STOCK) stream->credit -= (int64_t)length;
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_stream_send(frisbee_pool *pool, frisbee_stream handle, const void *data, size_t length) {
    frisbeei_stream *stream = pool ? frisbeei_stream_find(pool, handle) : NULL;
    frisbee_result result;
    if (!pool || (length && !data)) return FRISBEE_INVALID;
    result = frisbeei_stream_may_send(pool, stream, length);
    if (result != FRISBEE_OK) return result;
    return frisbeei_stream_sent(stream, length, frisbeei_queue_copy(pool, stream->conn, FRISBEEI_STREAM, stream->id, data, length, false));
}

FRISBEE_API frisbee_result frisbee_stream_send_spans(frisbee_pool *pool, frisbee_stream handle, const frisbee_span *spans, size_t count,
                                                     frisbee_release release, void *user) {
    frisbeei_stream *stream = pool ? frisbeei_stream_find(pool, handle) : NULL;
    frisbee_result result;
    size_t length;
    if (!pool || (count && !spans)) return FRISBEE_INVALID;
    if (!frisbeei_spans_total(spans, count, &length)) return FRISBEE_TOO_LARGE;
    result = frisbeei_stream_may_send(pool, stream, length);
    if (result != FRISBEE_OK) return result;
    result = frisbeei_queue_borrowed(pool, stream->conn, stream->conn->header, FRISBEEI_STREAM, stream->id, spans, count, length, release, user,
                                     false);
    return frisbeei_stream_sent(stream, length, result);
}

FRISBEE_API frisbee_result frisbee_stream_close(frisbee_pool *pool, frisbee_stream handle) {
    frisbeei_stream *stream = pool ? frisbeei_stream_find(pool, handle) : NULL;
    if (!pool) return FRISBEE_INVALID;
    if (!stream || stream->state != FRISBEEI_STREAM_OPEN) return FRISBEE_CLOSED;
    frisbeei_clock_outside(pool);
    frisbeei_stream_end(pool, stream, FRISBEE_OK);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_stream_pause(frisbee_pool *pool, frisbee_stream handle, bool paused) {
    frisbeei_stream *stream = pool ? frisbeei_stream_find(pool, handle) : NULL;
    if (!pool) return FRISBEE_INVALID;
    if (!stream || stream->state != FRISBEEI_STREAM_OPEN) return FRISBEE_CLOSED;
    stream->paused = paused;
    if (!paused && stream->kept) frisbeei_stream_todo(pool, stream, FRISBEEI_TODO_KEPT);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_stream_bind(frisbee_pool *pool, frisbee_stream handle, const frisbee_stream_events *events, void *user) {
    frisbeei_stream *stream = pool ? frisbeei_stream_find(pool, handle) : NULL;
    if (!stream) return pool ? FRISBEE_CLOSED : FRISBEE_INVALID;
    stream->user = user;
    if (events) stream->events = events;
    return FRISBEE_OK;
}

FRISBEE_API void *frisbee_stream_user(frisbee_pool *pool, frisbee_stream handle) {
    const frisbeei_stream *stream = pool ? frisbeei_stream_find(pool, handle) : NULL;
    return stream ? stream->user : NULL;
}

FRISBEE_API frisbee_conn frisbee_stream_conn(frisbee_pool *pool, frisbee_stream handle) {
    const frisbeei_stream *stream = pool ? frisbeei_stream_find(pool, handle) : NULL;
    frisbee_conn none = {0};
    return stream ? frisbeei_handle(stream->conn) : none;
}

FRISBEE_API uint16_t frisbee_stream_number(frisbee_pool *pool, frisbee_stream handle) {
    const frisbeei_stream *stream = pool ? frisbeei_stream_find(pool, handle) : NULL;
    return stream ? stream->id : 0;
}
#else
FRISBEE_API frisbee_result frisbee_stream_open(frisbee_pool *pool, frisbee_conn handle, const frisbee_stream_events *events, void *user,
                                               frisbee_stream *out) {
    (void)pool, (void)handle, (void)events, (void)user, (void)out;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_stream_send(frisbee_pool *pool, frisbee_stream handle, const void *data, size_t length) {
    (void)pool, (void)handle, (void)data, (void)length;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_stream_send_spans(frisbee_pool *pool, frisbee_stream handle, const frisbee_span *spans, size_t count,
                                                     frisbee_release release, void *user) {
    (void)pool, (void)handle, (void)spans, (void)count, (void)release, (void)user;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_stream_close(frisbee_pool *pool, frisbee_stream handle) {
    (void)pool, (void)handle;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_stream_pause(frisbee_pool *pool, frisbee_stream handle, bool paused) {
    (void)pool, (void)handle, (void)paused;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API frisbee_result frisbee_stream_bind(frisbee_pool *pool, frisbee_stream handle, const frisbee_stream_events *events, void *user) {
    (void)pool, (void)handle, (void)events, (void)user;
    return FRISBEE_UNSUPPORTED;
}
FRISBEE_API void *frisbee_stream_user(frisbee_pool *pool, frisbee_stream handle) {
    (void)pool, (void)handle;
    return NULL;
}
FRISBEE_API frisbee_conn frisbee_stream_conn(frisbee_pool *pool, frisbee_stream handle) {
    frisbee_conn none = {0};
    (void)pool, (void)handle;
    return none;
}
FRISBEE_API uint16_t frisbee_stream_number(frisbee_pool *pool, frisbee_stream handle) {
    (void)pool, (void)handle;
    return 0;
}
#endif

// >>encoding: polyglot values, one behind the other

#if FRISBEEI_RPC

FRISBEE_API frisbee_string frisbee_string_of(const char *text) {
    frisbee_string string;
    string.data = text;
    string.length = text ? (uint32_t)strlen(text) : 0;
    return string;
}

FRISBEE_API bool frisbee_string_is(frisbee_string string, const char *text) {
    const size_t length = text ? strlen(text) : 0;
    return string.length == length && (length == 0 || memcmp(string.data, text, length) == 0);
}

FRISBEE_API void frisbee_encoder_begin(frisbee_encoder *encoder, void *data, size_t room) {
    encoder->data = (uint8_t *)data;
    encoder->room = data ? room : 0;
    encoder->length = 0;
    encoder->result = FRISBEE_OK;
    encoder->depth = 0;
}

static FRISBEEI_COLD void frisbeei_encoder_full(frisbee_encoder *encoder, size_t size) {
    if (encoder->result == FRISBEE_OK && encoder->data) encoder->result = FRISBEE_TOO_LARGE;
    encoder->length = size > (size_t)-1 - encoder->length ? (size_t)-1 : encoder->length + size;
}

static void frisbeei_encoder_invalid(frisbee_encoder *encoder) {
    if (encoder->result == FRISBEE_OK || encoder->result == FRISBEE_TOO_LARGE) encoder->result = FRISBEE_INVALID;
}

// Room for so many bytes, which count in any case. NULL: they do not fit.
static inline uint8_t *frisbeei_encoder_take(frisbee_encoder *encoder, size_t size) {
    const size_t at = encoder->length;
    if (FRISBEEI_LIKELY(at <= encoder->room && encoder->room - at >= size)) {
        encoder->length = at + size;
        return encoder->data ? encoder->data + at : NULL;
    }
    frisbeei_encoder_full(encoder, size);
    return NULL;
}

static inline void frisbeei_put_byte(frisbee_encoder *encoder, frisbee_kind kind, uint8_t value) {
    uint8_t *at = frisbeei_encoder_take(encoder, 2);
    if (!at) return;
    at[0] = (uint8_t)kind;
    at[1] = value;
}

static inline size_t frisbeei_varint_write(uint8_t *at, uint64_t value) {
    size_t size = 0;
    for (; value > 127; value >>= 7) at[size++] = (uint8_t)(value | 128);
    at[size++] = (uint8_t)value;
    return size;
}

static FRISBEEI_COLD void frisbeei_put_number_near(frisbee_encoder *encoder, frisbee_kind kind, uint64_t value) { // near the end of the room
    uint8_t bytes[FRISBEEI_NUMBER_MAX], *at;
    const size_t size = 1 + frisbeei_varint_write(bytes + 1, value);
    bytes[0] = (uint8_t)kind;
    at = frisbeei_encoder_take(encoder, size);
    if (at) memcpy(at, bytes, size);
}

static inline void frisbeei_put_number(frisbee_encoder *encoder, frisbee_kind kind, uint64_t value) {
    const size_t length = encoder->length;
    if (FRISBEEI_LIKELY(length <= encoder->room && encoder->room - length >= FRISBEEI_NUMBER_MAX)) {
        uint8_t *at = encoder->data + length;
        at[0] = (uint8_t)kind;
        if (FRISBEEI_LIKELY(value < 128)) {
            at[1] = (uint8_t)value;
            encoder->length = length + 2;
        } else encoder->length = length + 1 + frisbeei_varint_write(at + 1, value);
    } else frisbeei_put_number_near(encoder, kind, value);
}

static inline void frisbeei_put_signed(frisbee_encoder *encoder, frisbee_kind kind, int64_t value) { // zigzag: small numbers of either sign are short
    frisbeei_put_number(encoder, kind, (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0));
}

static inline void frisbeei_put_data(frisbee_encoder *encoder, frisbee_kind kind, const void *data, uint32_t length) {
    uint8_t *at = frisbeei_encoder_take(encoder, 1);
    if (at) *at = (uint8_t)kind;
    frisbeei_put_number(encoder, FRISBEE_KIND_U32, length);
    if (length && !data) frisbeei_encoder_invalid(encoder);
    at = frisbeei_encoder_take(encoder, length);
    if (at && length && data) memcpy(at, data, length);
}

FRISBEE_API void frisbee_put_nil(frisbee_encoder *encoder) {
    uint8_t *at = frisbeei_encoder_take(encoder, 1);
    if (at) *at = FRISBEE_KIND_NIL;
}

FRISBEE_API void frisbee_put_bool(frisbee_encoder *encoder, bool value) { frisbeei_put_byte(encoder, FRISBEE_KIND_BOOL, value ? 1 : 0); }
FRISBEE_API void frisbee_put_u8(frisbee_encoder *encoder, uint8_t value) { frisbeei_put_byte(encoder, FRISBEE_KIND_U8, value); }
FRISBEE_API void frisbee_put_u16(frisbee_encoder *encoder, uint16_t value) { frisbeei_put_number(encoder, FRISBEE_KIND_U16, value); }
FRISBEE_API void frisbee_put_u32(frisbee_encoder *encoder, uint32_t value) { frisbeei_put_number(encoder, FRISBEE_KIND_U32, value); }
FRISBEE_API void frisbee_put_u64(frisbee_encoder *encoder, uint64_t value) { frisbeei_put_number(encoder, FRISBEE_KIND_U64, value); }
FRISBEE_API void frisbee_put_i32(frisbee_encoder *encoder, int32_t value) { frisbeei_put_signed(encoder, FRISBEE_KIND_I32, value); }
FRISBEE_API void frisbee_put_i64(frisbee_encoder *encoder, int64_t value) { frisbeei_put_signed(encoder, FRISBEE_KIND_I64, value); }

FRISBEE_API void frisbee_put_f32(frisbee_encoder *encoder, float value) {
    uint8_t *at = frisbeei_encoder_take(encoder, 5);
    uint32_t bits;
    if (!at) return;
    memcpy(&bits, &value, sizeof bits);
    at[0] = FRISBEE_KIND_F32;
    frisbeei_put32(at + 1, bits);
}

FRISBEE_API void frisbee_put_f64(frisbee_encoder *encoder, double value) {
    uint8_t *at = frisbeei_encoder_take(encoder, 9);
    uint64_t bits;
    if (!at) return;
    memcpy(&bits, &value, sizeof bits);
    at[0] = FRISBEE_KIND_F64;
    frisbeei_put64(at + 1, bits);
}

FRISBEE_API void frisbee_put_string(frisbee_encoder *encoder, frisbee_string value) {
    frisbeei_put_data(encoder, FRISBEE_KIND_STRING, value.data, value.length);
}

FRISBEE_API void frisbee_put_bytes(frisbee_encoder *encoder, frisbee_bytes value) {
    frisbeei_put_data(encoder, FRISBEE_KIND_BYTES, value.data, value.length);
}

FRISBEE_API void frisbee_put_error(frisbee_encoder *encoder, frisbee_string text) {
    uint8_t *at = frisbeei_encoder_take(encoder, 1);
    if (at) *at = FRISBEE_KIND_ERROR;
    frisbee_put_string(encoder, text);
}

FRISBEE_API void frisbee_put_slice(frisbee_encoder *encoder, frisbee_kind kind, uint32_t count) {
    frisbeei_put_byte(encoder, FRISBEE_KIND_SLICE, (uint8_t)kind);
    frisbee_put_u32(encoder, count);
}

FRISBEE_API void frisbee_put_map(frisbee_encoder *encoder, frisbee_kind key, frisbee_kind value, uint32_t count) {
    frisbeei_put_byte(encoder, FRISBEE_KIND_MAP, (uint8_t)key);
    {
        uint8_t *at = frisbeei_encoder_take(encoder, 1);
        if (at) *at = (uint8_t)value;
    }
    frisbee_put_u32(encoder, count);
}

// >>decoding: every read is checked against the end. After an error the decoder stands at its end, so that all that follows fails as well

FRISBEE_API void frisbee_decoder_begin(frisbee_decoder *decoder, const void *data, size_t length) {
    memset(decoder, 0, sizeof *decoder);
    decoder->at = (const uint8_t *)data;
    decoder->end = data ? decoder->at + length : NULL;
    decoder->max_depth = FRISBEEI_DEPTH;
    decoder->max_count = decoder->max_length = UINT32_MAX;
}

static FRISBEEI_COLD void frisbeei_decoder_fail(frisbee_decoder *decoder, frisbee_result result, const char *error) {
    if (decoder->result == FRISBEE_OK) {
        decoder->result = result;
        decoder->error = error;
    }
    decoder->at = decoder->end;
}

static FRISBEEI_COLD void frisbeei_decoder_unexpected(frisbee_decoder *decoder, frisbee_kind kind) {
    static const char *const expected[] = {"Nil was expected",    "a Slice was expected",  "a Map was expected",    "a message was expected",
                                           "Bytes were expected", "a String was expected", "an Error was expected", "a Bool was expected",
                                           "a Uint8 was expected", "a Uint16 was expected", "a Uint32 was expected", "a Uint64 was expected",
                                           "an Int32 was expected", "an Int64 was expected", "a Float32 was expected", "a Float64 was expected"};
    if (decoder->at == decoder->end) frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "the data end too early");
    else frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, expected[kind & 15]);
}

static inline bool frisbeei_get_kind(frisbee_decoder *decoder, frisbee_kind kind) {
    if (FRISBEEI_LIKELY(decoder->at != decoder->end && *decoder->at == (uint8_t)kind)) {
        decoder->at++;
        return true;
    }
    frisbeei_decoder_unexpected(decoder, kind);
    return false;
}

static inline uint8_t frisbeei_get_byte(frisbee_decoder *decoder) {
    if (FRISBEEI_LIKELY(decoder->at != decoder->end)) return *decoder->at++;
    frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "the data end too early");
    return 0;
}

// A varint of a type with `bits` bits. What does not fit it is an error; more bytes than needed are none.
static uint64_t frisbeei_get_varint_long(frisbee_decoder *decoder, unsigned bits) {
    const uint8_t *at = decoder->at;
    uint64_t value = 0;
    unsigned shift = 0;
    for (; at != decoder->end; shift += 7, at++) {
        const uint64_t part = *at & 127;
        if (shift >= bits || (shift + 7 > bits && part >> (bits - shift))) {
            frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "a number is out of its range");
            return 0;
        }
        value |= part << shift;
        if (*at < 128) {
            decoder->at = at + 1;
            return value;
        }
    }
    frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "the data end too early");
    return 0;
}

static inline uint64_t frisbeei_get_varint(frisbee_decoder *decoder, unsigned bits) {
    if (FRISBEEI_LIKELY(decoder->at != decoder->end && *decoder->at < 128)) return *decoder->at++;
    return frisbeei_get_varint_long(decoder, bits);
}

static inline uint64_t frisbeei_get_number(frisbee_decoder *decoder, frisbee_kind kind, unsigned bits) {
    return frisbeei_get_kind(decoder, kind) ? frisbeei_get_varint(decoder, bits) : 0;
}

static inline int64_t frisbeei_get_signed(frisbee_decoder *decoder, frisbee_kind kind, unsigned bits) {
    const uint64_t value = frisbeei_get_number(decoder, kind, bits);
    const int64_t half = (int64_t)(value >> 1);
    return value & 1 ? -half - 1 : half;
}

static const uint8_t *frisbeei_get_text(frisbee_decoder *decoder, frisbee_kind kind, uint32_t *length) {
    const uint8_t *data;
    *length = 0;
    if (!frisbeei_get_kind(decoder, kind)) return NULL;
    *length = (uint32_t)frisbeei_get_number(decoder, FRISBEE_KIND_U32, 32);
    data = decoder->at;
    if (FRISBEEI_LIKELY(*length <= (size_t)(decoder->end - data) && *length <= decoder->max_length)) {
        decoder->at += *length;
        return data;
    }
    if (*length > (size_t)(decoder->end - data)) frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "a length is larger than what follows");
    else frisbeei_decoder_fail(decoder, FRISBEE_TOO_LARGE, "a string is longer than max_length");
    *length = 0;
    return NULL;
}

// A count of elements that have at least so many bytes each.
static uint32_t frisbeei_get_count(frisbee_decoder *decoder, size_t least) {
    const uint32_t count = frisbee_get_u32(decoder);
    if (count > (size_t)(decoder->end - decoder->at) / least) {
        frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "a count is larger than what follows");
        return 0;
    }
    if (count > decoder->max_count) {
        frisbeei_decoder_fail(decoder, FRISBEE_TOO_LARGE, "a count is larger than max_count");
        return 0;
    }
    return count;
}

FRISBEE_API int frisbee_peek_kind(const frisbee_decoder *decoder) { return decoder->at == decoder->end ? -1 : *decoder->at; }

FRISBEE_API bool frisbee_get_nil(frisbee_decoder *decoder) {
    if (decoder->at == decoder->end || *decoder->at != FRISBEE_KIND_NIL) return false;
    decoder->at++;
    return true;
}

FRISBEE_API bool frisbee_get_error(frisbee_decoder *decoder, frisbee_string *text) {
    const frisbee_string none = {NULL, 0};
    if (text) *text = none;
    if (decoder->at == decoder->end || *decoder->at != FRISBEE_KIND_ERROR) return false;
    decoder->at++;
    if (text) *text = frisbee_get_string(decoder);
    else (void)frisbee_get_string(decoder);
    return decoder->result == FRISBEE_OK;
}

FRISBEE_API bool frisbee_get_bool(frisbee_decoder *decoder) {
    uint8_t value = 0;
    if (frisbeei_get_kind(decoder, FRISBEE_KIND_BOOL)) value = frisbeei_get_byte(decoder);
    if (value <= 1) return value == 1;
    frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "a Bool is neither 0 nor 1");
    return false;
}

FRISBEE_API uint8_t frisbee_get_u8(frisbee_decoder *decoder) {
    return frisbeei_get_kind(decoder, FRISBEE_KIND_U8) ? frisbeei_get_byte(decoder) : 0;
}

FRISBEE_API uint16_t frisbee_get_u16(frisbee_decoder *decoder) { return (uint16_t)frisbeei_get_number(decoder, FRISBEE_KIND_U16, 16); }
FRISBEE_API uint32_t frisbee_get_u32(frisbee_decoder *decoder) { return (uint32_t)frisbeei_get_number(decoder, FRISBEE_KIND_U32, 32); }
FRISBEE_API uint64_t frisbee_get_u64(frisbee_decoder *decoder) { return frisbeei_get_number(decoder, FRISBEE_KIND_U64, 64); }
FRISBEE_API int32_t frisbee_get_i32(frisbee_decoder *decoder) { return (int32_t)frisbeei_get_signed(decoder, FRISBEE_KIND_I32, 32); }
FRISBEE_API int64_t frisbee_get_i64(frisbee_decoder *decoder) { return frisbeei_get_signed(decoder, FRISBEE_KIND_I64, 64); }

static const uint8_t *frisbeei_get_fixed(frisbee_decoder *decoder, frisbee_kind kind, size_t size) {
    const uint8_t *at;
    if (!frisbeei_get_kind(decoder, kind)) return NULL;
    at = decoder->at;
    if ((size_t)(decoder->end - at) < size) {
        frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "the data end too early");
        return NULL;
    }
    decoder->at += size;
    return at;
}

FRISBEE_API float frisbee_get_f32(frisbee_decoder *decoder) {
    const uint8_t *at = frisbeei_get_fixed(decoder, FRISBEE_KIND_F32, 4);
    const uint32_t bits = at ? frisbeei_get32(at) : 0;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

FRISBEE_API double frisbee_get_f64(frisbee_decoder *decoder) {
    const uint8_t *at = frisbeei_get_fixed(decoder, FRISBEE_KIND_F64, 8);
    const uint64_t bits = at ? (uint64_t)frisbeei_get32(at) << 32 | frisbeei_get32(at + 4) : 0;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

FRISBEE_API frisbee_string frisbee_get_string(frisbee_decoder *decoder) {
    frisbee_string value;
    value.data = (const char *)frisbeei_get_text(decoder, FRISBEE_KIND_STRING, &value.length);
    return value;
}

FRISBEE_API frisbee_bytes frisbee_get_bytes(frisbee_decoder *decoder) {
    frisbee_bytes value;
    value.data = frisbeei_get_text(decoder, FRISBEE_KIND_BYTES, &value.length);
    return value;
}

FRISBEE_API uint32_t frisbee_get_slice(frisbee_decoder *decoder, frisbee_kind kind) {
    if (!frisbeei_get_kind(decoder, FRISBEE_KIND_SLICE)) return 0;
    if (frisbeei_get_byte(decoder) != (uint8_t)kind) {
        frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "a Slice has elements of another kind");
        return 0;
    }
    return frisbeei_get_count(decoder, 1);
}

FRISBEE_API uint32_t frisbee_get_map(frisbee_decoder *decoder, frisbee_kind key, frisbee_kind value) {
    if (!frisbeei_get_kind(decoder, FRISBEE_KIND_MAP)) return 0;
    if (frisbeei_get_byte(decoder) != (uint8_t)key || frisbeei_get_byte(decoder) != (uint8_t)value) {
        frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "a Map has keys or values of another kind");
        return 0;
    }
    return frisbeei_get_count(decoder, 2);
}

// >>arenas

typedef struct frisbeei_arena_block {
    struct frisbeei_arena_block *next; // the one before
    size_t size;
} frisbeei_arena_block;

FRISBEE_API void frisbee_arena_begin(frisbee_arena *arena, void *block, size_t size) {
    memset(arena, 0, sizeof *arena);
    arena->data = (uint8_t *)block;
    arena->room = block ? size : 0;
}

// A pool's arena is a chain of blocks, each larger than the one before; the newest is `data`, with the link at its start.
static bool frisbeei_arena_more(frisbee_arena *arena, size_t size) {
    const size_t link = frisbeei_rounded(sizeof(frisbeei_arena_block));
    const size_t left = arena->limit - arena->total;
    size_t wanted = frisbeei_least(arena->total, FRISBEEI_ARENA_LARGEST);
    frisbeei_arena_block *block;
    if (wanted < FRISBEEI_ARENA_FIRST) wanted = FRISBEEI_ARENA_FIRST;
    if (!arena->pool || left < link + 16 || size > left - link - 16) return false;
    if (wanted < link + size + 16) wanted = link + size + 16;
    if (wanted > left) wanted = left;
    block = (frisbeei_arena_block *)frisbeei_heap_take(arena->pool, wanted);
    if (!block && wanted > link + size + 16) block = (frisbeei_arena_block *)frisbeei_heap_take(arena->pool, wanted = link + size + 16);
    if (!block) return false;
    block->next = (frisbeei_arena_block *)(void *)arena->data;
    block->size = wanted;
    arena->data = (uint8_t *)block;
    arena->room = wanted;
    arena->used = link;
    arena->total += wanted;
    return true;
}

FRISBEE_API void *frisbee_arena_take(frisbee_arena *arena, size_t size) {
    const size_t align = 2 * sizeof(void *);
    for (;;) {
        const size_t skip = (align - ((uintptr_t)arena->data + arena->used) % align) % align;
        const size_t left = arena->room - arena->used;
        if (arena->data && skip <= left && size <= left - skip) {
            uint8_t *taken = arena->data + arena->used + skip;
            arena->used += skip + size;
            return taken;
        }
        if (!frisbeei_arena_more(arena, size)) return NULL;
    }
}

// Gives all blocks of a pool's arena back, but one that is worth keeping.
static void frisbeei_arena_empty(frisbee_pool *pool, frisbee_arena *arena, bool keep) {
    frisbeei_arena_block *block = (frisbeei_arena_block *)(void *)arena->data;
    while (block && (!keep || block->next || block->size > FRISBEEI_ARENA_LARGEST || pool->fixed)) {
        frisbeei_arena_block *next = block->next;
        frisbeei_heap_give(pool, block, block->size);
        block = next;
    }
    arena->data = (uint8_t *)block;
    arena->room = arena->total = block ? block->size : 0;
    arena->used = block ? frisbeei_rounded(sizeof *block) : 0;
    arena->pool = pool;
    arena->limit = pool->desc.max_decoded;
}

FRISBEE_API frisbee_arena *frisbee_pool_arena(frisbee_pool *pool) {
    if (!pool) return NULL;
    frisbeei_arena_empty(pool, &pool->lent, true);
    return &pool->lent;
}

// >>messages: structs by their tables

static size_t frisbeei_kind_size(const frisbee_field *field) { // of an element
    switch ((frisbee_kind)field->kind) {
    case FRISBEE_KIND_ANY: return field->type->size;
    case FRISBEE_KIND_BYTES:
    case FRISBEE_KIND_STRING: return sizeof(frisbee_string);
    case FRISBEE_KIND_BOOL: return sizeof(bool);
    case FRISBEE_KIND_U8: return 1;
    case FRISBEE_KIND_U16: return 2;
    case FRISBEE_KIND_U32:
    case FRISBEE_KIND_I32:
    case FRISBEE_KIND_F32: return 4;
    case FRISBEE_KIND_U64:
    case FRISBEE_KIND_I64:
    case FRISBEE_KIND_F64: return 8;
    case FRISBEE_KIND_NIL:
    case FRISBEE_KIND_SLICE:
    case FRISBEE_KIND_MAP:
    case FRISBEE_KIND_ERROR: break;
    }
    return 0;
}

static const void *frisbeei_pointer(const void *at) {
    const void *pointer;
    memcpy(&pointer, at, sizeof pointer);
    return pointer;
}

static uint32_t frisbeei_field_count(const frisbee_field *field, const uint8_t *message) {
    return *(const uint32_t *)(const void *)(message + field->count);
}

static bool frisbeei_enum_place(const frisbee_enum *values, int32_t number, uint32_t *place) {
    if (values->dense) {
        *place = (uint32_t)number;
        return true;
    }
    for (*place = 0; *place < values->count; ++*place)
        if (values->values[*place].number == number) return true;
    return false;
}

static bool frisbeei_enum_number(const frisbee_enum *values, uint32_t place, int32_t *number) {
    if (values->dense) {
        *number = (int32_t)(place & INT32_MAX);
        return place <= INT32_MAX || (*number = (int32_t)((int64_t)place - ((int64_t)1 << 32)), true);
    }
    *number = place < values->count ? values->values[place].number : 0;
    return place < values->count;
}

// How many members a oneof has, from its first one on.
static uint32_t frisbeei_choice_count(const frisbee_type *type, uint32_t first) {
    uint32_t end = first + 1;
    while (end < type->field_count && type->fields[end].shape == FRISBEE_SHAPE_CHOICE && type->fields[end].count == type->fields[first].count) end++;
    return end - first;
}

static const frisbee_field *frisbeei_choice_find(const frisbee_type *type, uint32_t first, uint32_t number) {
    const uint32_t count = frisbeei_choice_count(type, first);
    uint32_t i;
    for (i = 0; i < count; i++)
        if (type->fields[first + i].number == number) return &type->fields[first + i];
    return NULL;
}

// `at` is the value itself; of a message, its struct.
static void frisbeei_put_value(frisbee_encoder *encoder, const frisbee_field *field, const void *at) {
    uint32_t place = 0;
    switch ((frisbee_kind)field->kind) {
    case FRISBEE_KIND_ANY: frisbee_put_message(encoder, field->type, at); return;
    case FRISBEE_KIND_BYTES: frisbee_put_bytes(encoder, *(const frisbee_bytes *)at); return;
    case FRISBEE_KIND_STRING: frisbee_put_string(encoder, *(const frisbee_string *)at); return;
    case FRISBEE_KIND_BOOL: frisbee_put_bool(encoder, *(const bool *)at); return;
    case FRISBEE_KIND_U8: frisbee_put_u8(encoder, *(const uint8_t *)at); return;
    case FRISBEE_KIND_U16: frisbee_put_u16(encoder, *(const uint16_t *)at); return;
    case FRISBEE_KIND_U32:
        if (!field->values) place = *(const uint32_t *)at;
        else if (!frisbeei_enum_place(field->values, *(const int32_t *)at, &place)) break;
        frisbee_put_u32(encoder, place);
        return;
    case FRISBEE_KIND_U64: frisbee_put_u64(encoder, *(const uint64_t *)at); return;
    case FRISBEE_KIND_I32: frisbee_put_i32(encoder, *(const int32_t *)at); return;
    case FRISBEE_KIND_I64: frisbee_put_i64(encoder, *(const int64_t *)at); return;
    case FRISBEE_KIND_F32: frisbee_put_f32(encoder, *(const float *)at); return;
    case FRISBEE_KIND_F64: frisbee_put_f64(encoder, *(const double *)at); return;
    case FRISBEE_KIND_NIL:
    case FRISBEE_KIND_SLICE:
    case FRISBEE_KIND_MAP:
    case FRISBEE_KIND_ERROR: break;
    }
    frisbeei_encoder_invalid(encoder);
}

// A single value in a struct: of a message there is a pointer.
static void frisbeei_put_single(frisbee_encoder *encoder, const frisbee_field *field, const uint8_t *at) {
    frisbeei_put_value(encoder, field, field->kind == FRISBEE_KIND_ANY ? frisbeei_pointer(at) : at);
}

// The elements of a slice, or the entries of a map.
static const uint8_t *frisbeei_elements(frisbee_encoder *encoder, const frisbee_field *field, const uint8_t *message, uint32_t *count) {
    const uint8_t *elements = (const uint8_t *)frisbeei_pointer(message + field->offset);
    *count = frisbeei_field_count(field, message);
    if (*count == 0 || elements) return elements;
    *count = 0;
    frisbeei_encoder_invalid(encoder);
    return NULL;
}

static void frisbeei_put_many(frisbee_encoder *encoder, const frisbee_field *field, const uint8_t *message) {
    const size_t size = frisbeei_kind_size(field);
    uint32_t count, i;
    const uint8_t *at = frisbeei_elements(encoder, field, message, &count);
    frisbee_put_slice(encoder, (frisbee_kind)field->kind, count);
    for (i = 0; i < count; i++, at += size) frisbeei_put_value(encoder, field, at);
}

static void frisbeei_put_entries(frisbee_encoder *encoder, const frisbee_field *field, const uint8_t *message) {
    const frisbee_field *key = &field->type->fields[0], *value = &field->type->fields[1];
    uint32_t count, i;
    const uint8_t *at = frisbeei_elements(encoder, field, message, &count);
    frisbee_put_map(encoder, (frisbee_kind)key->kind, (frisbee_kind)value->kind, count);
    for (i = 0; i < count; i++, at += field->type->size) {
        frisbeei_put_value(encoder, key, at + key->offset);
        frisbeei_put_single(encoder, value, at + value->offset);
    }
}

static void frisbeei_put_choice(frisbee_encoder *encoder, const frisbee_type *type, uint32_t first, const uint8_t *message) {
    const uint32_t number = frisbeei_field_count(&type->fields[first], message);
    const frisbee_field *field = frisbeei_choice_find(type, first, number);
    if (number && field) {
        frisbee_put_u32(encoder, number);
        frisbeei_put_single(encoder, field, message + field->offset);
        return;
    }
    if (number) frisbeei_encoder_invalid(encoder);
    frisbee_put_nil(encoder);
}

FRISBEE_API void frisbee_put_message(frisbee_encoder *encoder, const frisbee_type *type, const void *message) {
    const uint8_t *at = (const uint8_t *)message;
    uint32_t i;
    if (!at) {
        frisbee_put_nil(encoder);
        return;
    }
    if (encoder->depth >= FRISBEEI_DEPTH) {
        frisbeei_encoder_invalid(encoder);
        return;
    }
    encoder->depth++;
    frisbee_put_u8(encoder, 0); // fRPC's flags
    for (i = 0; i < type->field_count; i++) {
        const frisbee_field *field = &type->fields[i];
        switch ((frisbee_shape)field->shape) {
        case FRISBEE_SHAPE_ONE: frisbeei_put_single(encoder, field, at + field->offset); break;
        case FRISBEE_SHAPE_MANY: frisbeei_put_many(encoder, field, at); break;
        case FRISBEE_SHAPE_MAP: frisbeei_put_entries(encoder, field, at); break;
        case FRISBEE_SHAPE_OPTIONAL:
            if (*(const bool *)(at + field->count)) frisbeei_put_value(encoder, field, at + field->offset);
            else frisbee_put_nil(encoder);
            break;
        case FRISBEE_SHAPE_CHOICE:
            frisbeei_put_choice(encoder, type, i, at);
            i += frisbeei_choice_count(type, i) - 1;
            break;
        }
    }
    encoder->depth--;
}

static void *frisbeei_decoder_take(frisbee_decoder *decoder, frisbee_arena *arena, size_t count, size_t size) {
    void *taken = size && count > (size_t)-1 / size ? NULL : frisbee_arena_take(arena, count * size);
    if (!taken) frisbeei_decoder_fail(decoder, FRISBEE_NO_MEMORY, "the arena is used up");
    return taken;
}

static void frisbeei_get_fields(frisbee_decoder *decoder, const frisbee_type *type, uint8_t *message, frisbee_arena *arena);

// Into cleared memory. `at` is the value itself; of a message, its struct.
static void frisbeei_get_value(frisbee_decoder *decoder, const frisbee_field *field, void *at, frisbee_arena *arena) {
    switch ((frisbee_kind)field->kind) {
    case FRISBEE_KIND_ANY: // an element that is Nil is a struct of zeros, and so counts for the depth
        if (decoder->depth >= decoder->max_depth || !frisbee_get_nil(decoder)) frisbeei_get_fields(decoder, field->type, (uint8_t *)at, arena);
        return;
    case FRISBEE_KIND_BYTES: *(frisbee_bytes *)at = frisbee_get_bytes(decoder); return;
    case FRISBEE_KIND_STRING: *(frisbee_string *)at = frisbee_get_string(decoder); return;
    case FRISBEE_KIND_BOOL: *(bool *)at = frisbee_get_bool(decoder); return;
    case FRISBEE_KIND_U8: *(uint8_t *)at = frisbee_get_u8(decoder); return;
    case FRISBEE_KIND_U16: *(uint16_t *)at = frisbee_get_u16(decoder); return;
    case FRISBEE_KIND_U32:
        if (!field->values) *(uint32_t *)at = frisbee_get_u32(decoder);
        else if (!frisbeei_enum_number(field->values, frisbee_get_u32(decoder), (int32_t *)at))
            frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "an enum has no such value");
        return;
    case FRISBEE_KIND_U64: *(uint64_t *)at = frisbee_get_u64(decoder); return;
    case FRISBEE_KIND_I32: *(int32_t *)at = frisbee_get_i32(decoder); return;
    case FRISBEE_KIND_I64: *(int64_t *)at = frisbee_get_i64(decoder); return;
    case FRISBEE_KIND_F32: *(float *)at = frisbee_get_f32(decoder); return;
    case FRISBEE_KIND_F64: *(double *)at = frisbee_get_f64(decoder); return;
    case FRISBEE_KIND_NIL:
    case FRISBEE_KIND_SLICE:
    case FRISBEE_KIND_MAP:
    case FRISBEE_KIND_ERROR: break;
    }
    frisbeei_decoder_fail(decoder, FRISBEE_INVALID, "a table has a field of no kind");
}

// A single value of a struct: of a message there is a pointer, which stays NULL for Nil.
static void frisbeei_get_single(frisbee_decoder *decoder, const frisbee_field *field, uint8_t *at, frisbee_arena *arena) {
    void *message;
    if (field->kind != FRISBEE_KIND_ANY) {
        frisbeei_get_value(decoder, field, at, arena);
        return;
    }
    if (frisbee_get_nil(decoder) || decoder->at == decoder->end) {
        if (decoder->at == decoder->end && decoder->end[-1] != FRISBEE_KIND_NIL) frisbeei_decoder_unexpected(decoder, FRISBEE_KIND_ANY);
        return;
    }
    message = frisbeei_decoder_take(decoder, arena, 1, field->type->size);
    if (!message) return;
    memset(message, 0, field->type->size);
    memcpy(at, &message, sizeof message);
    frisbeei_get_fields(decoder, field->type, (uint8_t *)message, arena);
}

static void frisbeei_get_many(frisbee_decoder *decoder, const frisbee_field *field, uint8_t *message, frisbee_arena *arena) {
    const size_t size = frisbeei_kind_size(field);
    const uint32_t count = frisbee_get_nil(decoder) ? 0 : frisbee_get_slice(decoder, (frisbee_kind)field->kind);
    uint8_t *elements;
    uint32_t i;
    if (count == 0) return;
    elements = (uint8_t *)frisbeei_decoder_take(decoder, arena, count, size);
    if (!elements) return;
    if (field->kind == FRISBEE_KIND_ANY) memset(elements, 0, count * size);
    for (i = 0; i < count && decoder->result == FRISBEE_OK; i++) frisbeei_get_value(decoder, field, elements + i * size, arena);
    memcpy(message + field->offset, &elements, sizeof elements);
    *(uint32_t *)(void *)(message + field->count) = count;
}

static void frisbeei_get_entries(frisbee_decoder *decoder, const frisbee_field *field, uint8_t *message, frisbee_arena *arena) {
    const frisbee_field *key = &field->type->fields[0], *value = &field->type->fields[1];
    const size_t size = field->type->size;
    const uint32_t count = frisbee_get_nil(decoder) ? 0 : frisbee_get_map(decoder, (frisbee_kind)key->kind, (frisbee_kind)value->kind);
    uint8_t *entries;
    uint32_t i;
    if (count == 0) return;
    entries = (uint8_t *)frisbeei_decoder_take(decoder, arena, count, size);
    if (!entries) return;
    memset(entries, 0, count * size);
    for (i = 0; i < count && decoder->result == FRISBEE_OK; i++) {
        frisbeei_get_value(decoder, key, entries + i * size + key->offset, arena);
        frisbeei_get_single(decoder, value, entries + i * size + value->offset, arena);
    }
    memcpy(message + field->offset, &entries, sizeof entries);
    *(uint32_t *)(void *)(message + field->count) = count;
}

static void frisbeei_get_choice(frisbee_decoder *decoder, const frisbee_type *type, uint32_t first, uint8_t *message, frisbee_arena *arena) {
    const frisbee_field *field;
    uint32_t number;
    if (frisbee_get_nil(decoder)) return;
    number = frisbee_get_u32(decoder);
    if (decoder->result != FRISBEE_OK) return;
    field = frisbeei_choice_find(type, first, number);
    if (!field) {
        frisbeei_decoder_fail(decoder, FRISBEE_MALFORMED, "a oneof has no such member");
        return;
    }
    *(uint32_t *)(void *)(message + field->count) = number;
    frisbeei_get_single(decoder, field, message + field->offset, arena);
}

static void frisbeei_get_field(frisbee_decoder *decoder, const frisbee_type *type, uint32_t *i, uint8_t *message, frisbee_arena *arena) {
    const frisbee_field *field = &type->fields[*i];
    switch ((frisbee_shape)field->shape) {
    case FRISBEE_SHAPE_ONE: frisbeei_get_single(decoder, field, message + field->offset, arena); break;
    case FRISBEE_SHAPE_MANY: frisbeei_get_many(decoder, field, message, arena); break;
    case FRISBEE_SHAPE_MAP: frisbeei_get_entries(decoder, field, message, arena); break;
    case FRISBEE_SHAPE_OPTIONAL:
        if (frisbee_get_nil(decoder)) break;
        *(bool *)(message + field->count) = true;
        frisbeei_get_value(decoder, field, message + field->offset, arena);
        break;
    case FRISBEE_SHAPE_CHOICE:
        frisbeei_get_choice(decoder, type, *i, message, arena);
        *i += frisbeei_choice_count(type, *i) - 1;
        break;
    }
    if (decoder->result != FRISBEE_OK && !decoder->field) decoder->field = field->name;
}

static void frisbeei_get_fields(frisbee_decoder *decoder, const frisbee_type *type, uint8_t *message, frisbee_arena *arena) {
    uint32_t i;
    if (decoder->depth >= decoder->max_depth) {
        frisbeei_decoder_fail(decoder, FRISBEE_TOO_LARGE, "messages are nested deeper than max_depth");
        return;
    }
    decoder->depth++;
    if (frisbee_peek_kind(decoder) == FRISBEE_KIND_U8) (void)frisbee_get_u8(decoder); // fRPC's flags
    else frisbeei_decoder_unexpected(decoder, FRISBEE_KIND_ANY);
    for (i = 0; i < type->field_count && decoder->result == FRISBEE_OK; i++) frisbeei_get_field(decoder, type, &i, message, arena);
    decoder->depth--;
}

FRISBEE_API void frisbee_get_message(frisbee_decoder *decoder, const frisbee_type *type, void *message, frisbee_arena *arena) {
    memset(message, 0, type->size);
    if (frisbee_get_nil(decoder)) return;
    if (frisbee_peek_kind(decoder) == FRISBEE_KIND_ERROR) frisbeei_decoder_fail(decoder, FRISBEE_FAILED, "an Error is there instead");
    else frisbeei_get_fields(decoder, type, (uint8_t *)message, arena);
    if (decoder->result != FRISBEE_OK) memset(message, 0, type->size);
}

FRISBEE_API frisbee_result frisbee_message_encode(const frisbee_type *type, const void *message, void *data, size_t room, size_t *length) {
    frisbee_encoder encoder;
    if (length) *length = 0;
    if (!type || (room && !data)) return FRISBEE_INVALID;
    frisbee_encoder_begin(&encoder, data, room);
    frisbee_put_message(&encoder, type, message);
    if (length) *length = encoder.length;
    return encoder.result;
}

FRISBEE_API frisbee_result frisbee_message_decode(const frisbee_type *type, void *message, frisbee_arena *arena, const void *data, size_t length,
                                                  const char **error) {
    frisbee_decoder decoder;
    if (error) *error = NULL;
    if (!type || !message || !arena || (length && !data)) return FRISBEE_INVALID;
    frisbee_decoder_begin(&decoder, data, length);
    frisbee_get_message(&decoder, type, message, arena);
    if (error) *error = decoder.error;
    return decoder.result;
}

FRISBEE_API frisbee_result frisbee_message_copy(const frisbee_type *type, void *copy, const void *message, frisbee_arena *arena) {
    size_t length;
    frisbee_result result;
    void *data;
    if (!type || !copy || !message || !arena) return FRISBEE_INVALID;
    result = frisbee_message_encode(type, message, NULL, 0, &length);
    if (result != FRISBEE_OK) return result;
    data = frisbee_arena_take(arena, length);
    if (!data) return FRISBEE_NO_MEMORY;
    result = frisbee_message_encode(type, message, data, length, &length);
    return result == FRISBEE_OK ? frisbee_message_decode(type, copy, arena, data, length, NULL) : result;
}

// >>comparing

static bool frisbeei_equal(const frisbee_type *type, const uint8_t *a, const uint8_t *b, uint32_t depth);

static bool frisbeei_equal_value(const frisbee_field *field, const void *a, const void *b, uint32_t depth) {
    const frisbee_string *s = (const frisbee_string *)a, *t = (const frisbee_string *)b;
    const frisbee_bytes *x = (const frisbee_bytes *)a, *y = (const frisbee_bytes *)b;
    switch ((frisbee_kind)field->kind) {
    case FRISBEE_KIND_ANY: return frisbeei_equal(field->type, (const uint8_t *)a, (const uint8_t *)b, depth + 1);
    case FRISBEE_KIND_STRING: return s->length == t->length && (s->length == 0 || memcmp(s->data, t->data, s->length) == 0);
    case FRISBEE_KIND_BYTES: return x->length == y->length && (x->length == 0 || memcmp(x->data, y->data, x->length) == 0);
    default: return memcmp(a, b, frisbeei_kind_size(field)) == 0;
    }
}

static bool frisbeei_equal_single(const frisbee_field *field, const uint8_t *a, const uint8_t *b, uint32_t depth) {
    if (field->kind != FRISBEE_KIND_ANY) return frisbeei_equal_value(field, a, b, depth);
    a = (const uint8_t *)frisbeei_pointer(a);
    b = (const uint8_t *)frisbeei_pointer(b);
    return a && b ? frisbeei_equal_value(field, a, b, depth) : a == b;
}

static bool frisbeei_equal_many(const frisbee_field *field, const uint8_t *a, const uint8_t *b, uint32_t depth) {
    const uint32_t count = frisbeei_field_count(field, a);
    const size_t size = frisbeei_kind_size(field);
    uint32_t i;
    if (count != frisbeei_field_count(field, b)) return false;
    a = (const uint8_t *)frisbeei_pointer(a + field->offset);
    b = (const uint8_t *)frisbeei_pointer(b + field->offset);
    for (i = 0; i < count; i++)
        if (!frisbeei_equal_value(field, a + i * size, b + i * size, depth)) return false;
    return true;
}

// The last entry with that key, which is the one that counts; NULL: none.
static const uint8_t *frisbeei_entry_find(const frisbee_type *type, const uint8_t *entries, uint32_t count, const uint8_t *key, uint32_t depth) {
    const frisbee_field *field = &type->fields[0];
    while (count-- > 0)
        if (frisbeei_equal_value(field, entries + count * type->size + field->offset, key, depth)) return entries + count * type->size;
    return NULL;
}

// Does `b` have each entry of `a`?
static bool frisbeei_entries_in(const frisbee_type *type, const uint8_t *a, uint32_t a_count, const uint8_t *b, uint32_t b_count, uint32_t depth) {
    const frisbee_field *key = &type->fields[0], *value = &type->fields[1];
    uint32_t i;
    for (i = 0; i < a_count; i++) {
        const uint8_t *mine = a + i * type->size, *other;
        if (i < b_count && frisbeei_equal_value(key, mine + key->offset, b + i * type->size + key->offset, depth) && a_count == b_count &&
            frisbeei_equal_single(value, mine + value->offset, b + i * type->size + value->offset, depth))
            continue; // in the same place, as most are
        mine = frisbeei_entry_find(type, a, a_count, mine + key->offset, depth);
        other = frisbeei_entry_find(type, b, b_count, mine + key->offset, depth);
        if (!other || !frisbeei_equal_single(value, mine + value->offset, other + value->offset, depth)) return false;
    }
    return true;
}

static bool frisbeei_equal_entries(const frisbee_field *field, const uint8_t *a, const uint8_t *b, uint32_t depth) {
    const uint32_t a_count = frisbeei_field_count(field, a), b_count = frisbeei_field_count(field, b);
    a = (const uint8_t *)frisbeei_pointer(a + field->offset);
    b = (const uint8_t *)frisbeei_pointer(b + field->offset);
    return frisbeei_entries_in(field->type, a, a_count, b, b_count, depth) && frisbeei_entries_in(field->type, b, b_count, a, a_count, depth);
}

static bool frisbeei_equal_choice(const frisbee_type *type, uint32_t first, const uint8_t *a, const uint8_t *b, uint32_t depth) {
    const uint32_t number = frisbeei_field_count(&type->fields[first], a);
    const frisbee_field *field = frisbeei_choice_find(type, first, number);
    if (number != frisbeei_field_count(&type->fields[first], b)) return false;
    return number == 0 || !field || frisbeei_equal_single(field, a + field->offset, b + field->offset, depth);
}

static bool frisbeei_equal(const frisbee_type *type, const uint8_t *a, const uint8_t *b, uint32_t depth) {
    uint32_t i;
    bool same = depth <= FRISBEEI_DEPTH; // deeper it could not be encoded either
    for (i = 0; i < type->field_count && same; i++) {
        const frisbee_field *field = &type->fields[i];
        switch ((frisbee_shape)field->shape) {
        case FRISBEE_SHAPE_ONE: same = frisbeei_equal_single(field, a + field->offset, b + field->offset, depth); break;
        case FRISBEE_SHAPE_MANY: same = frisbeei_equal_many(field, a, b, depth); break;
        case FRISBEE_SHAPE_MAP: same = frisbeei_equal_entries(field, a, b, depth); break;
        case FRISBEE_SHAPE_OPTIONAL:
            same = *(const bool *)(a + field->count) == *(const bool *)(b + field->count) &&
                   (!*(const bool *)(a + field->count) || frisbeei_equal_value(field, a + field->offset, b + field->offset, depth));
            break;
        case FRISBEE_SHAPE_CHOICE:
            same = frisbeei_equal_choice(type, i, a, b, depth);
            i += frisbeei_choice_count(type, i) - 1;
            break;
        }
    }
    return same;
}

FRISBEE_API bool frisbee_message_equal(const frisbee_type *type, const void *a, const void *b) {
    if (!type || !a || !b) return a == b;
    return frisbeei_equal(type, (const uint8_t *)a, (const uint8_t *)b, 0);
}

// >>printing

typedef struct frisbeei_text {
    char *data;
    size_t room, length;
} frisbeei_text;

static void frisbeei_text_add(frisbeei_text *text, const char *data, size_t length) {
    if (text->length < text->room) memcpy(text->data + text->length, data, frisbeei_least(length, text->room - text->length));
    text->length += length;
}

static void frisbeei_text_put(frisbeei_text *text, const char *string) { frisbeei_text_add(text, string, strlen(string)); }

static void frisbeei_text_number(frisbeei_text *text, uint64_t value, bool negative) {
    char digits[21];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    if (negative) digits[--at] = '-';
    frisbeei_text_add(text, digits + at, sizeof digits - at);
}

static void frisbeei_text_signed(frisbeei_text *text, int64_t value) {
    frisbeei_text_number(text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value < 0);
}

static void frisbeei_text_float(frisbeei_text *text, double value, int digits) {
    char number[40];
    const int length = snprintf(number, sizeof number, "%.*g", digits, value);
    if (length > 0) frisbeei_text_add(text, number, (size_t)length);
}

static void frisbeei_text_quoted(frisbeei_text *text, const void *data, uint32_t length, bool bytes) {
    static const char hex[] = "0123456789abcdef";
    const uint8_t *at = (const uint8_t *)data;
    uint32_t i;
    frisbeei_text_put(text, "\"");
    for (i = 0; i < length; i++) {
        const bool plain = at[i] >= 32 && at[i] != 127 && (at[i] < 128 || !bytes); // text may be UTF-8
        char escaped[4] = {'\\', 'x', 0, 0};
        escaped[2] = hex[at[i] >> 4];
        escaped[3] = hex[at[i] & 15];
        if (at[i] == '"' || at[i] == '\\') frisbeei_text_put(text, "\\");
        if (plain) frisbeei_text_add(text, (const char *)at + i, 1);
        else frisbeei_text_add(text, escaped, 4);
    }
    frisbeei_text_put(text, "\"");
}

static void frisbeei_text_enum(frisbeei_text *text, const frisbee_enum *values, int32_t number) {
    uint32_t i;
    for (i = 0; i < values->count; i++)
        if (values->values[i].number == number) {
            frisbeei_text_put(text, values->values[i].name);
            return;
        }
    frisbeei_text_signed(text, number);
}

static void frisbeei_text_message(frisbeei_text *text, const frisbee_type *type, const uint8_t *message, uint32_t depth);

static void frisbeei_text_value(frisbeei_text *text, const frisbee_field *field, const void *at, uint32_t depth) {
    switch ((frisbee_kind)field->kind) {
    case FRISBEE_KIND_ANY: frisbeei_text_message(text, field->type, (const uint8_t *)at, depth + 1); break;
    case FRISBEE_KIND_BYTES: frisbeei_text_quoted(text, ((const frisbee_bytes *)at)->data, ((const frisbee_bytes *)at)->length, true); break;
    case FRISBEE_KIND_STRING: frisbeei_text_quoted(text, ((const frisbee_string *)at)->data, ((const frisbee_string *)at)->length, false); break;
    case FRISBEE_KIND_BOOL: frisbeei_text_put(text, *(const bool *)at ? "true" : "false"); break;
    case FRISBEE_KIND_U8: frisbeei_text_number(text, *(const uint8_t *)at, false); break;
    case FRISBEE_KIND_U16: frisbeei_text_number(text, *(const uint16_t *)at, false); break;
    case FRISBEE_KIND_U32:
        if (field->values) frisbeei_text_enum(text, field->values, *(const int32_t *)at);
        else frisbeei_text_number(text, *(const uint32_t *)at, false);
        break;
    case FRISBEE_KIND_U64: frisbeei_text_number(text, *(const uint64_t *)at, false); break;
    case FRISBEE_KIND_I32: frisbeei_text_signed(text, *(const int32_t *)at); break;
    case FRISBEE_KIND_I64: frisbeei_text_signed(text, *(const int64_t *)at); break;
    case FRISBEE_KIND_F32: frisbeei_text_float(text, (double)*(const float *)at, 9); break;
    case FRISBEE_KIND_F64: frisbeei_text_float(text, *(const double *)at, 17); break;
    case FRISBEE_KIND_NIL:
    case FRISBEE_KIND_SLICE:
    case FRISBEE_KIND_MAP:
    case FRISBEE_KIND_ERROR: frisbeei_text_put(text, "?"); break;
    }
}

static void frisbeei_text_single(frisbeei_text *text, const frisbee_field *field, const uint8_t *at, uint32_t depth) {
    const void *value = field->kind == FRISBEE_KIND_ANY ? frisbeei_pointer(at) : at;
    if (value) frisbeei_text_value(text, field, value, depth);
    else frisbeei_text_put(text, "nil");
}

static void frisbeei_text_elements(frisbeei_text *text, const frisbee_field *field, const uint8_t *message, uint32_t depth) {
    const bool map = field->shape == FRISBEE_SHAPE_MAP;
    const size_t size = map ? field->type->size : frisbeei_kind_size(field);
    const uint8_t *at = (const uint8_t *)frisbeei_pointer(message + field->offset);
    const uint32_t count = at ? frisbeei_field_count(field, message) : 0;
    uint32_t i;
    frisbeei_text_put(text, map ? "{" : "[");
    for (i = 0; i < count; i++, at += size) {
        if (i) frisbeei_text_put(text, ", ");
        if (map) {
            frisbeei_text_value(text, &field->type->fields[0], at + field->type->fields[0].offset, depth);
            frisbeei_text_put(text, ": ");
            frisbeei_text_single(text, &field->type->fields[1], at + field->type->fields[1].offset, depth);
        } else frisbeei_text_value(text, field, at, depth);
    }
    frisbeei_text_put(text, map ? "}" : "]");
}

// Is there something to print of a field? Not of optionals, messages and members of a oneof that are not set.
static bool frisbeei_text_set(const frisbee_field *field, const uint8_t *message) {
    switch ((frisbee_shape)field->shape) {
    case FRISBEE_SHAPE_ONE: return field->kind != FRISBEE_KIND_ANY || frisbeei_pointer(message + field->offset);
    case FRISBEE_SHAPE_OPTIONAL: return *(const bool *)(message + field->count);
    case FRISBEE_SHAPE_CHOICE: return frisbeei_field_count(field, message) == field->number;
    case FRISBEE_SHAPE_MANY:
    case FRISBEE_SHAPE_MAP: break;
    }
    return true;
}

static void frisbeei_text_message(frisbeei_text *text, const frisbee_type *type, const uint8_t *message, uint32_t depth) {
    const char *between = "";
    uint32_t i;
    frisbeei_text_put(text, type->name);
    frisbeei_text_put(text, " {");
    for (i = 0; i < type->field_count && depth < FRISBEEI_DEPTH; i++) {
        const frisbee_field *field = &type->fields[i];
        if (!frisbeei_text_set(field, message)) continue;
        frisbeei_text_put(text, between);
        frisbeei_text_put(text, field->name);
        frisbeei_text_put(text, ": ");
        if (field->shape == FRISBEE_SHAPE_MANY || field->shape == FRISBEE_SHAPE_MAP) frisbeei_text_elements(text, field, message, depth);
        else frisbeei_text_single(text, field, message + field->offset, depth);
        between = ", ";
    }
    if (depth >= FRISBEEI_DEPTH) frisbeei_text_put(text, "...");
    frisbeei_text_put(text, "}");
}

FRISBEE_API size_t frisbee_message_print(const frisbee_type *type, const void *message, char *text, size_t room) {
    frisbeei_text out;
    out.data = text;
    out.room = text ? room : 0;
    out.length = 0;
    if (type && message) frisbeei_text_message(&out, type, (const uint8_t *)message, 0);
    else frisbeei_text_put(&out, "nil");
    if (out.room) out.data[frisbeei_least(out.length, out.room - 1)] = 0;
    return out.length;
}

// >>services: typed calls over calls and streams, section 14

#define FRISBEEI_END "EOF" // the text of the Error that ends a direction of a streaming call

static frisbee_rpc frisbeei_rpc_public(const frisbeei_rpc *record) {
    frisbee_rpc rpc;
    memset(&rpc, 0, sizeof rpc);
    rpc.method = record->method;
    rpc.origin.conn = record->conn;
    rpc.stream = record->stream;
    return rpc;
}

static bool frisbeei_rpc_streams_either(const frisbee_method *method) { return method->client_streams || method->server_streams; }

static frisbeei_rpc *frisbeei_rpc_new(frisbee_pool *pool, frisbee_conn conn, const frisbee_method *method) {
    frisbeei_rpc *record = (frisbeei_rpc *)frisbeei_heap_take(pool, sizeof *record);
    if (!record) return NULL;
    memset(record, 0, sizeof *record);
    record->conn = conn;
    record->method = method;
    return record;
}

static void frisbeei_rpc_untimed(frisbee_pool *pool, frisbeei_rpc *record) {
    frisbeei_conn *conn = record->timed ? frisbeei_find(pool, record->conn.id) : NULL;
    if (!conn) return;
    if (record->before) record->before->next = record->next;
    else conn->patterns->timed = record->next;
    if (record->next) record->next->before = record->before;
    record->timed = false;
}

static void frisbeei_rpc_drop(frisbee_pool *pool, frisbeei_rpc *record) {
    frisbeei_rpc_untimed(pool, record);
    frisbeei_heap_give(pool, record->error, record->error_length);
    frisbeei_heap_give(pool, record, sizeof *record);
}

// Encodes at the end of the connection's queue, where sending finds it in place.
static frisbee_result frisbeei_rpc_encode(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_type *type, const void *message, const void **data,
                                          size_t *length) {
    const size_t most = frisbeei_least(conn->profile->desc.max_packet, conn->profile->desc.queue_limit - conn->header);
    frisbee_encoder encoder;
    size_t room = FRISBEEI_RPC_GUESS;
    frisbee_result result = frisbeei_may_send(pool, conn);
    if (result == FRISBEE_OK && pool->fixed) result = frisbee_message_encode(type, message, NULL, 0, &room);
    if (result != FRISBEE_OK) return result;
    for (;;) {
        uint8_t *at = room <= most ? frisbeei_room(pool, conn, conn->header + room) : NULL;
        if (!at && room > most) return FRISBEE_TOO_LARGE;
        if (!at) return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
        frisbeei_dirty(pool, conn); // room that is not used goes with the next flush
        room = conn->out_tail->room - conn->out_tail->end - conn->header;
        frisbee_encoder_begin(&encoder, at + conn->header, room);
        frisbee_put_message(&encoder, type, message);
        if (encoder.result != FRISBEE_TOO_LARGE) break;
        room = encoder.length;
    }
    *data = encoder.data;
    *length = encoder.length;
    return encoder.length > most ? FRISBEE_TOO_LARGE : encoder.result;
}

// "field: what is wrong", in the arena if there is room.
static frisbee_string frisbeei_rpc_complaint(frisbee_arena *arena, const frisbee_decoder *decoder) {
    const size_t field = decoder->field ? strlen(decoder->field) + 2 : 0, error = strlen(decoder->error);
    char *text = field ? (char *)frisbee_arena_take(arena, field + error) : NULL;
    frisbee_string string = frisbee_string_of(decoder->error);
    if (!text) return string;
    memcpy(text, decoder->field, field - 2);
    memcpy(text + field - 2, ": ", 2);
    memcpy(text + field, decoder->error, error);
    string.data = text;
    string.length = (uint32_t)(field + error);
    return string;
}

// Decodes into the emptied arena: the message too, if *message is NULL. FAILED: *error is the text of the Error that is there instead.
static frisbee_result frisbeei_rpc_decode(frisbee_pool *pool, const frisbee_type *type, void **message, const void *data, size_t length,
                                          frisbee_string *error) {
    frisbee_decoder decoder;
    frisbeei_arena_empty(pool, &pool->arena, true);
    frisbee_decoder_begin(&decoder, data, length);
    if (frisbee_get_error(&decoder, error)) return FRISBEE_FAILED;
    if (decoder.result == FRISBEE_OK && !*message) *message = frisbeei_decoder_take(&decoder, &pool->arena, 1, type->size ? type->size : 1);
    if (decoder.result == FRISBEE_OK) frisbee_get_message(&decoder, type, *message, &pool->arena);
    if (decoder.result != FRISBEE_OK) *error = frisbeei_rpc_complaint(&pool->arena, &decoder);
    return decoder.result;
}

static bool frisbeei_rpc_is_end(frisbee_string error) { return frisbee_string_is(error, FRISBEEI_END); }

static size_t frisbeei_rpc_error(uint8_t *data, frisbee_string text) { // room for FRISBEEI_ERROR_MAX and FRISBEEI_NUMBER_MAX
    frisbee_encoder encoder;
    if (text.length > FRISBEEI_ERROR_MAX) text.length = FRISBEEI_ERROR_MAX;
    frisbee_encoder_begin(&encoder, data, FRISBEEI_ERROR_MAX + FRISBEEI_NUMBER_MAX);
    frisbee_put_error(&encoder, text);
    return encoder.length;
}

static frisbee_result frisbeei_rpc_reply_error(frisbee_pool *pool, const frisbee_origin *origin, frisbee_string text) {
    uint8_t data[FRISBEEI_ERROR_MAX + FRISBEEI_NUMBER_MAX];
    return frisbee_reply(pool, origin, data, frisbeei_rpc_error(data, text));
}

// >>serving

// A request for an operation that does not stream. An Error is never answered: two servers would answer each other for ever.
static void frisbeei_rpc_request(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const frisbeei_bound *bound = (const frisbeei_bound *)user;
    frisbee_string error = {NULL, 0};
    void *request = NULL;
    frisbee_result result;
    frisbee_rpc rpc;
    memset(&rpc, 0, sizeof rpc);
    rpc.method = bound->method;
    rpc.origin = packet->from;
    result = frisbeei_rpc_decode(pool, bound->method->request, &request, packet->data, packet->length, &error);
    if (result == FRISBEE_FAILED) return;
    if (frisbeei_rpc_streams_either(bound->method)) error = frisbee_string_of("this method streams");
    if (error.length) (void)frisbeei_rpc_reply_error(pool, &packet->from, error);
    else bound->method->serve(pool, &rpc, request, bound->served->functions, bound->served->user);
    error = frisbee_string_of("the function of this method gave no answer");
    if (!pool->answered && !pool->ending) (void)frisbeei_rpc_reply_error(pool, &packet->from, error);
    frisbeei_arena_empty(pool, &pool->arena, true);
}

static size_t frisbeei_rpc_unknown_text(char *text, uint32_t operation) {
    static const char unknown[] = "unknown operation ";
    frisbeei_text out;
    out.data = text;
    out.room = 32;
    out.length = 0;
    frisbeei_text_put(&out, unknown);
    frisbeei_text_number(&out, operation, false);
    return out.length;
}

// A request for an operation that a serving pool does not have.
static void frisbeei_rpc_unknown(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    char text[32];
    frisbee_string error;
    (void)user;
    if (packet->length && *(const uint8_t *)packet->data == FRISBEE_KIND_ERROR) return;
    error.data = text;
    error.length = (uint32_t)frisbeei_rpc_unknown_text(text, packet->from.operation);
    (void)frisbeei_rpc_reply_error(pool, &packet->from, error);
}

static const frisbeei_bound *frisbeei_bound_find(const frisbee_pool *pool, frisbee_conn handle, uint32_t operation) {
    const frisbeei_conn *conn = frisbeei_find(pool, handle.id);
    const frisbeei_on *on = conn && !conn->profile->desc.routes ? frisbeei_on_find(pool, operation) : NULL;
    return on && on->handler == frisbeei_rpc_request ? (const frisbeei_bound *)on->user : NULL;
}

FRISBEE_API frisbee_result frisbee_serve(frisbee_pool *pool, const frisbee_service *service, const void *functions, const frisbee_rpc_events *events,
                                         void *user) {
    frisbeei_served *served;
    size_t bytes;
    uint32_t i, j;
    if (!pool || !service || !functions || (service->method_count && !service->methods)) return FRISBEE_INVALID;
    if (pool->ending) return FRISBEE_CLOSED;
    for (i = 0; i < service->method_count; i++) {
        const uint16_t operation = service->methods[i].operation;
        const frisbeei_on *on = frisbeei_on_find(pool, operation);
        if (operation < FRISBEEI_FIRST_OPERATION || operation > FRISBEEI_LAST_OPERATION || (on && on->handler)) return FRISBEE_INVALID;
        for (j = 0; j < i; j++)
            if (service->methods[j].operation == operation) return FRISBEE_INVALID;
    }
    bytes = sizeof *served + service->method_count * sizeof *served->bound;
    served = (frisbeei_served *)frisbeei_heap_take(pool, bytes);
    if (!served) return FRISBEE_NO_MEMORY;
    served->service = service;
    served->functions = functions;
    served->events = events;
    served->user = user;
    served->bytes = bytes;
    served->bound = (frisbeei_bound *)(void *)(served + 1);
    for (i = 0; i < service->method_count; i++) {
        served->bound[i].served = served;
        served->bound[i].method = &service->methods[i];
        if (frisbee_on(pool, service->methods[i].operation, frisbeei_rpc_request, &served->bound[i]) == FRISBEE_OK) continue;
        while (i-- > 0) (void)frisbee_on(pool, service->methods[i].operation, NULL, NULL);
        frisbeei_heap_give(pool, served, bytes);
        return FRISBEE_NO_MEMORY;
    }
    for (i = 0; i < service->method_count; i++)
        if (frisbeei_rpc_streams_either(&service->methods[i])) pool->serves_streams = true;
    served->next = pool->services;
    pool->services = served;
    return FRISBEE_OK;
}

// >>streaming calls, on both sides

static frisbeei_rpc *frisbeei_rpc_find(frisbee_pool *pool, const frisbee_rpc *rpc, bool server) {
    frisbeei_rpc *record = rpc->stream.id ? (frisbeei_rpc *)frisbee_stream_user(pool, rpc->stream) : NULL;
    return record && record->server == server ? record : NULL;
}

static frisbee_result frisbeei_rpc_stream_send(frisbee_pool *pool, const frisbeei_rpc *record, const frisbee_type *type, const void *message) {
    frisbeei_conn *conn = frisbeei_find(pool, record->conn.id);
    const void *data = NULL;
    size_t length = 0;
    frisbee_result result = conn ? frisbeei_rpc_encode(pool, conn, type, message, &data, &length) : FRISBEE_CLOSED;
    return result == FRISBEE_OK ? frisbee_stream_send(pool, record->stream, data, length) : result;
}

// Sends an error, if one waits, and the end. What finds no room waits for on_writable; where nothing helps, the stream is closed.
static frisbee_result frisbeei_rpc_end(frisbee_pool *pool, frisbeei_rpc *record) {
    uint8_t data[FRISBEEI_ERROR_MAX + FRISBEEI_NUMBER_MAX];
    frisbee_result result = FRISBEE_OK;
    record->ended = record->owes_end = true;
    if (record->error) result = frisbee_stream_send(pool, record->stream, record->error, record->error_length);
    if (result == FRISBEE_OK) {
        frisbeei_heap_give(pool, record->error, record->error_length);
        record->error = NULL;
        record->error_length = 0;
        result = frisbee_stream_send(pool, record->stream, data, frisbeei_rpc_error(data, frisbee_string_of(FRISBEEI_END)));
    }
    if (result == FRISBEE_AGAIN) return FRISBEE_OK;
    record->owes_end = false;
    if (result != FRISBEE_OK) record->cause = (int8_t)result;
    if (record->server || result != FRISBEE_OK) (void)frisbee_stream_close(pool, record->stream);
    return result;
}

static frisbee_result frisbeei_rpc_fail(frisbee_pool *pool, frisbeei_rpc *record, frisbee_string text) {
    uint8_t data[FRISBEEI_ERROR_MAX + FRISBEEI_NUMBER_MAX];
    const size_t length = frisbeei_rpc_error(data, text);
    if (record->ended) return FRISBEE_CLOSED;
    record->error = (uint8_t *)frisbeei_heap_take(pool, length);
    if (!record->error) return FRISBEE_NO_MEMORY;
    memcpy(record->error, data, length);
    record->error_length = (uint32_t)length;
    return frisbeei_rpc_end(pool, record);
}

// A server says no to what came. Without memory for that the stream is closed.
static void frisbeei_rpc_refuse(frisbee_pool *pool, frisbeei_rpc *record, frisbee_string text) {
    if (frisbeei_rpc_fail(pool, record, text) != FRISBEE_OK) (void)frisbee_stream_close(pool, record->stream);
}

static void frisbeei_rpc_opened(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    frisbeei_rpc *record = frisbeei_rpc_new(pool, conn, NULL);
    (void)user;
    if (!record) {
        (void)frisbee_stream_close(pool, stream);
        return;
    }
    record->server = true;
    record->stream = stream;
    (void)frisbee_stream_bind(pool, stream, NULL, record);
}

// The first message names the method.
static void frisbeei_rpc_begin(frisbee_pool *pool, frisbeei_rpc *record, const void *data, uint32_t length) {
    const frisbeei_bound *bound;
    frisbee_decoder decoder;
    frisbee_rpc rpc;
    char text[32];
    uint16_t operation;
    frisbee_string error;
    frisbee_decoder_begin(&decoder, data, length);
    operation = frisbee_get_u16(&decoder);
    bound = decoder.result == FRISBEE_OK ? frisbeei_bound_find(pool, record->conn, operation) : NULL;
    if (!bound || !frisbeei_rpc_streams_either(bound->method)) {
        error.data = text;
        error.length = (uint32_t)frisbeei_rpc_unknown_text(text, operation);
        if (bound) error = frisbee_string_of("this method does not stream");
        if (decoder.result != FRISBEE_OK) error = frisbee_string_of("a stream begins with the number of its operation");
        frisbeei_rpc_refuse(pool, record, error);
        return;
    }
    record->method = bound->method;
    record->served = bound->served;
    rpc = frisbeei_rpc_public(record);
    if (bound->served->events && bound->served->events->on_open) bound->served->events->on_open(pool, &rpc, bound->served->user);
}

static void frisbeei_rpc_serve(frisbee_pool *pool, const frisbeei_rpc *record, const void *request) {
    const frisbee_rpc rpc = frisbeei_rpc_public(record);
    record->method->serve(pool, &rpc, request, record->served->functions, record->served->user);
}

static void frisbeei_rpc_server_data(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    frisbeei_rpc *record = (frisbeei_rpc *)user;
    frisbee_string error = {NULL, 0};
    void *request = NULL;
    frisbee_result result;
    if (!record || record->ended || record->heard_end) return;
    if (!record->method) {
        frisbeei_rpc_begin(pool, record, data, length);
        return;
    }
    if (record->asked && !record->method->client_streams) return; // but for its end nothing more can come
    result = frisbeei_rpc_decode(pool, record->method->request, &request, data, length, &error);
    record->asked = true;
    record->heard_end = result == FRISBEE_FAILED;
    if (result == FRISBEE_FAILED && (!record->method->client_streams || !frisbeei_rpc_is_end(error)))
        (void)frisbee_stream_close(pool, stream); // the client gives up
    else if (result == FRISBEE_OK || result == FRISBEE_FAILED) frisbeei_rpc_serve(pool, record, result == FRISBEE_OK ? request : NULL);
    else frisbeei_rpc_refuse(pool, record, error);
    frisbeei_arena_empty(pool, &pool->arena, true);
}

static void frisbeei_rpc_server_writable(frisbee_pool *pool, frisbee_stream stream, void *user) {
    frisbeei_rpc *record = (frisbeei_rpc *)user;
    frisbee_rpc rpc;
    (void)stream;
    if (!record) return;
    if (record->owes_end) (void)frisbeei_rpc_end(pool, record);
    if (record->ended || !record->served || !record->served->events || !record->served->events->on_writable) return;
    rpc = frisbeei_rpc_public(record);
    record->served->events->on_writable(pool, &rpc, record->served->user);
}

static void frisbeei_rpc_server_closed(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    frisbeei_rpc *record = (frisbeei_rpc *)user;
    frisbee_rpc rpc;
    (void)stream;
    if (!record) return;
    rpc = frisbeei_rpc_public(record);
    if (reason == FRISBEE_OK && (record->owes_end || !record->ended)) reason = FRISBEE_CLOSED; // the client gave up
    if (record->served && record->served->events && record->served->events->on_close)
        record->served->events->on_close(pool, &rpc, reason, record->served->user);
    frisbeei_rpc_drop(pool, record);
}

FRISBEE_API const frisbee_stream_events *frisbee_rpc_streams(void) {
    static const frisbee_stream_events events = {frisbeei_rpc_opened, frisbeei_rpc_server_data, frisbeei_rpc_server_writable,
                                                 frisbeei_rpc_server_closed};
    return &events;
}

// >>answering

FRISBEE_API frisbee_result frisbee_rpc_reply(frisbee_pool *pool, const frisbee_rpc *rpc, const void *response) {
    frisbeei_conn *conn = NULL;
    frisbeei_rpc *record;
    const void *data = NULL;
    size_t length = 0;
    uint32_t place;
    bool deferred;
    frisbee_result result;
    if (!pool || !rpc || !rpc->method) return FRISBEE_INVALID;
    if (!frisbeei_rpc_streams_either(rpc->method)) {
        result = frisbeei_reply_owed(pool, &rpc->origin, &conn, &place, &deferred);
        if (result == FRISBEE_OK) result = frisbeei_rpc_encode(pool, conn, rpc->method->response, response, &data, &length);
        return result == FRISBEE_OK ? frisbee_reply(pool, &rpc->origin, data, length) : result;
    }
    record = frisbeei_rpc_find(pool, rpc, true);
    if (!record || record->ended) return FRISBEE_CLOSED;
    result = frisbeei_rpc_stream_send(pool, record, record->method->response, response);
    return result == FRISBEE_OK && !record->method->server_streams ? frisbeei_rpc_end(pool, record) : result;
}

FRISBEE_API frisbee_result frisbee_rpc_fail(frisbee_pool *pool, const frisbee_rpc *rpc, const char *text) {
    const frisbee_string string = frisbee_string_of(text);
    frisbeei_rpc *record;
    if (!pool || !rpc || !rpc->method || !text || frisbeei_rpc_is_end(string)) return FRISBEE_INVALID;
    if (!frisbeei_rpc_streams_either(rpc->method)) return frisbeei_rpc_reply_error(pool, &rpc->origin, string);
    record = frisbeei_rpc_find(pool, rpc, true);
    return record ? frisbeei_rpc_fail(pool, record, string) : FRISBEE_CLOSED;
}

FRISBEE_API frisbee_result frisbee_rpc_defer(frisbee_pool *pool, const frisbee_rpc *rpc, frisbee_rpc *later) {
    if (!pool || !rpc || !rpc->method || !later) return FRISBEE_INVALID;
    *later = *rpc;
    if (frisbeei_rpc_streams_either(rpc->method)) return frisbeei_rpc_find(pool, rpc, true) ? FRISBEE_OK : FRISBEE_CLOSED;
    return frisbeei_being_handled(pool, &rpc->origin) ? frisbee_defer(pool, pool->packet, &later->origin) : FRISBEE_INVALID;
}

FRISBEE_API frisbee_result frisbee_rpc_finish(frisbee_pool *pool, const frisbee_rpc *rpc) {
    frisbeei_rpc *record;
    if (!pool || !rpc || !rpc->method || !frisbeei_rpc_streams_either(rpc->method)) return FRISBEE_INVALID;
    record = frisbeei_rpc_find(pool, rpc, true);
    if (!record) record = frisbeei_rpc_find(pool, rpc, false);
    if (!record || record->ended || record->told) return FRISBEE_CLOSED;
    return record->server || record->method->client_streams ? frisbeei_rpc_end(pool, record) : FRISBEE_INVALID;
}

FRISBEE_API void *frisbee_rpc_state(frisbee_pool *pool, const frisbee_rpc *rpc) {
    const frisbeei_rpc *record = pool && rpc ? frisbeei_rpc_find(pool, rpc, true) : NULL;
    return record ? record->user : NULL;
}

FRISBEE_API frisbee_result frisbee_rpc_set_state(frisbee_pool *pool, const frisbee_rpc *rpc, void *state) {
    frisbeei_rpc *record = pool && rpc ? frisbeei_rpc_find(pool, rpc, true) : NULL;
    if (!record) return pool && rpc ? FRISBEE_CLOSED : FRISBEE_INVALID;
    record->user = state;
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_rpc_pause(frisbee_pool *pool, const frisbee_rpc *rpc, bool paused) {
    const frisbeei_rpc *record = pool && rpc ? frisbeei_rpc_find(pool, rpc, false) : NULL;
    if (!pool || !rpc || (record && record->pulled)) return FRISBEE_INVALID;
    return frisbee_stream_pause(pool, rpc->stream, paused);
}

// >>calling

static void frisbeei_rpc_outcome_of(frisbee_rpc_outcome *out, frisbee_result result, frisbee_result reason, bool sent) {
    memset(out, 0, sizeof *out);
    out->result = result;
    out->reason = reason;
    out->sent = sent;
}

static void frisbeei_rpc_replied(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    const frisbeei_rpc record = *(frisbeei_rpc *)user;
    frisbee_rpc rpc = frisbeei_rpc_public(&record);
    frisbee_rpc_outcome out;
    void *response = NULL;
    frisbeei_rpc_drop(pool, (frisbeei_rpc *)user);
    rpc.call = call;
    frisbeei_rpc_outcome_of(&out, outcome->result, outcome->reason, outcome->sent);
    if (out.result == FRISBEE_OK)
        out.result = frisbeei_rpc_decode(pool, record.method->response, &response, outcome->data, outcome->length, &out.error);
    record.method->deliver(pool, &rpc, &out, out.result == FRISBEE_OK ? response : NULL, record.done, record.user);
    frisbeei_arena_empty(pool, &pool->arena, true);
}

static frisbee_result frisbeei_rpc_unary(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_method *method, const void *request,
                                         const frisbee_rpc_desc *desc, void (*done)(void), void *user, frisbee_rpc *rpc) {
    frisbeei_rpc *record = NULL;
    frisbee_call_desc call;
    const void *data = NULL;
    size_t length = 0;
    frisbee_result result = frisbeei_rpc_encode(pool, conn, method->request, request, &data, &length);
    if (result != FRISBEE_OK) return result;
    memset(&call, 0, sizeof call);
    if (desc) call.timeout_ms = desc->timeout_ms;
    if (done) {
        record = frisbeei_rpc_new(pool, frisbeei_handle(conn), method);
        if (!record) return FRISBEE_NO_MEMORY;
        record->done = done;
        record->user = user;
        call.on_reply = frisbeei_rpc_replied;
        call.user = record;
    }
    result = frisbee_call(pool, frisbeei_handle(conn), method->operation, data, length, &call, rpc ? &rpc->call : NULL);
    if (result != FRISBEE_OK && record) frisbeei_rpc_drop(pool, record);
    return result;
}

// The stream is closed here before done is called, so that the call has ended for whoever asks from there.
static void frisbeei_rpc_tell(frisbee_pool *pool, frisbeei_rpc *record, const frisbee_rpc_outcome *outcome, const void *response) {
    const frisbee_rpc rpc = frisbeei_rpc_public(record);
    record->told = true;
    (void)frisbee_stream_close(pool, record->stream);
    if (record->done) record->method->deliver(pool, &rpc, outcome, response, record->done, record->user);
}

static void frisbeei_rpc_client_data(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    frisbeei_rpc *record = (frisbeei_rpc *)user;
    frisbee_rpc_outcome out;
    frisbee_rpc rpc;
    void *response = NULL;
    if (record->told || record->cause) return;
    if (record->pulled) {
        (void)frisbee_stream_pause(pool, stream, true); // one at a time
        if (record->wait) frisbeei_wait_keep(pool, record->wait, data, length);
        return;
    }
    frisbeei_rpc_outcome_of(&out, FRISBEE_OK, FRISBEE_OK, true);
    out.result = frisbeei_rpc_decode(pool, record->method->response, &response, data, length, &out.error);
    if (out.result == FRISBEE_OK && record->method->server_streams) {
        rpc = frisbeei_rpc_public(record);
        if (record->done) record->method->deliver(pool, &rpc, NULL, response, record->done, record->user);
    } else {
        if (out.result != FRISBEE_OK) response = NULL;
        if (out.result == FRISBEE_FAILED && frisbeei_rpc_is_end(out.error)) {
            out.result = FRISBEE_OK;
            out.error = frisbee_string_of(NULL);
        }
        frisbeei_rpc_tell(pool, record, &out, response);
    }
    frisbeei_arena_empty(pool, &pool->arena, true);
}

static void frisbeei_rpc_client_writable(frisbee_pool *pool, frisbee_stream stream, void *user) {
    frisbeei_rpc *record = (frisbeei_rpc *)user;
    const frisbee_rpc rpc = frisbeei_rpc_public(record);
    (void)stream;
    if (record->owes_end) (void)frisbeei_rpc_end(pool, record);
    else if (!record->ended && record->on_writable) record->on_writable(pool, &rpc, record->user);
}

static void frisbeei_rpc_client_closed(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    frisbeei_rpc *record = (frisbeei_rpc *)user;
    frisbee_rpc_outcome out;
    (void)stream;
    frisbeei_rpc_untimed(pool, record);
    if (record->cause) reason = (frisbee_result)record->cause;
    if (record->pulled && !record->told) { // frisbee_rpc_receive will ask
        record->cause = (int8_t)reason;
        record->closed = true;
        record->next = pool->rpc_ended;
        pool->rpc_ended = record;
        return;
    }
    frisbeei_rpc_outcome_of(&out, reason == FRISBEE_OK ? FRISBEE_CANCELLED : reason, reason, true);
    if (!record->told) frisbeei_rpc_tell(pool, record, &out, NULL);
    frisbeei_rpc_drop(pool, record);
}

static void frisbeei_rpc_timed(frisbee_pool *pool, frisbeei_conn *conn, frisbeei_rpc *record, int32_t timeout_ms) {
    if (timeout_ms > FRISBEEI_LONGEST_MS) timeout_ms = FRISBEEI_LONGEST_MS;
    frisbeei_clock_outside(pool);
    record->timed = true;
    record->due = pool->tick + (uint32_t)timeout_ms;
    record->next = conn->patterns->timed;
    if (record->next) record->next->before = record;
    conn->patterns->timed = record;
    frisbeei_timer_in(pool, conn, timeout_ms);
}

// Ends streaming calls whose time is over; *next: when the next one's is.
static void frisbeei_rpc_expire(frisbee_pool *pool, frisbeei_conn *conn, int64_t *next) {
    frisbeei_rpc *record = conn->patterns->timed, *after;
    for (; record; record = after) {
        const int32_t left = (int32_t)(record->due - pool->turn_tick);
        const int64_t at = (pool->turn_now / 1000 + left) * 1000;
        after = record->next;
        if (left <= 0) {
            frisbeei_rpc_untimed(pool, record);
            record->cause = FRISBEE_TIMED_OUT;
            (void)frisbee_stream_close(pool, record->stream);
        } else if (at < *next) *next = at;
    }
}

// The operation, and the request if the client does not stream. Room for both is there before either is sent.
static frisbee_result frisbeei_rpc_ask(frisbee_pool *pool, frisbeei_conn *conn, const frisbeei_rpc *record, const void *request, size_t length) {
    const frisbee_method *method = record->method;
    const size_t size = 2u * conn->header + FRISBEEI_NUMBER_MAX + length;
    frisbee_encoder encoder;
    uint8_t data[FRISBEEI_NUMBER_MAX];
    frisbee_result result;
    if (frisbeei_over(pool, conn, size, false)) return frisbeei_full(conn);
    if (!frisbeei_room(pool, conn, size)) return pool->fixed ? frisbeei_full(conn) : FRISBEE_NO_MEMORY;
    frisbeei_dirty(pool, conn);
    frisbee_encoder_begin(&encoder, data, sizeof data);
    frisbee_put_u16(&encoder, method->operation);
    result = frisbee_stream_send(pool, record->stream, data, encoder.length);
    if (result == FRISBEE_OK && !method->client_streams) result = frisbeei_rpc_stream_send(pool, record, method->request, request);
    return result;
}

static frisbee_result frisbeei_rpc_open(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_method *method, const void *request,
                                        const frisbee_rpc_desc *desc, void (*done)(void), void *user, frisbee_rpc *rpc) {
    static const frisbee_stream_events events = {NULL, frisbeei_rpc_client_data, frisbeei_rpc_client_writable, frisbeei_rpc_client_closed};
    frisbeei_rpc *record;
    size_t length = 0;
    frisbee_result result = FRISBEE_OK;
    if (!method->client_streams) result = frisbee_message_encode(method->request, request, NULL, 0, &length);
    if (result == FRISBEE_OK && length > conn->profile->desc.max_packet) result = FRISBEE_TOO_LARGE;
    if (result != FRISBEE_OK) return result;
    record = frisbeei_rpc_new(pool, frisbeei_handle(conn), method);
    if (!record) return FRISBEE_NO_MEMORY;
    result = frisbee_stream_open(pool, record->conn, &events, record, &record->stream);
    if (result != FRISBEE_OK) {
        frisbeei_rpc_drop(pool, record);
        return result;
    }
    record->done = done;
    record->user = user;
    record->on_writable = desc ? desc->on_writable : NULL;
    result = frisbeei_rpc_ask(pool, conn, record, request, length);
    if (result != FRISBEE_OK) { // closing it frees the record
        record->told = true;
        (void)frisbee_stream_close(pool, record->stream);
        return result;
    }
    record->pulled = !done;
    if (!done) (void)frisbee_stream_pause(pool, record->stream, true);
    if (desc && desc->timeout_ms > 0) frisbeei_rpc_timed(pool, conn, record, desc->timeout_ms);
    if (rpc) *rpc = frisbeei_rpc_public(record);
    return FRISBEE_OK;
}

FRISBEE_API frisbee_result frisbee_rpc_call(frisbee_pool *pool, frisbee_conn handle, const frisbee_method *method, const void *request,
                                            const frisbee_rpc_desc *desc, void (*done)(void), void *user, frisbee_rpc *rpc) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    if (rpc) {
        memset(rpc, 0, sizeof *rpc);
        rpc->method = method;
        rpc->origin.conn = handle;
    }
    if (!pool || !method || (!request && !method->client_streams) || (desc && desc->timeout_ms < FRISBEE_NEVER)) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    if (frisbeei_rpc_streams_either(method)) return frisbeei_rpc_open(pool, conn, method, request, desc, done, user, rpc);
    return frisbeei_rpc_unary(pool, conn, method, request, desc, done, user, rpc);
}

// The request of a blocking call lies in the pool: polling may go on before it can be sent, and may destroy the pool.
static frisbee_result frisbeei_rpc_keep_request(frisbee_pool *pool, const frisbee_type *type, const void *request, size_t *length) {
    frisbee_result result = frisbee_message_encode(type, request, NULL, 0, length);
    uint8_t *moved;
    if (result != FRISBEE_OK) return result;
    if (*length > pool->request_room) {
        moved = (uint8_t *)frisbeei_heap_take(pool, *length);
        if (!moved) return FRISBEE_NO_MEMORY;
        frisbeei_heap_give(pool, pool->request, pool->request_room);
        pool->request = moved;
        pool->request_room = *length;
    }
    return frisbee_message_encode(type, request, pool->request, pool->request_room, length);
}

FRISBEE_API frisbee_result frisbee_rpc_call_wait(frisbee_pool *pool, frisbee_conn conn, const frisbee_method *method, const void *request,
                                                 int32_t timeout_ms, void *response, frisbee_rpc_outcome *outcome) {
    frisbee_rpc_outcome out;
    frisbee_outcome raw;
    size_t length = 0;
    frisbee_result result = FRISBEE_INVALID;
    frisbeei_rpc_outcome_of(&out, FRISBEE_INVALID, FRISBEE_OK, false);
    if (method && response) memset(response, 0, method->response->size);
    if (pool && method && request && response && !frisbeei_rpc_streams_either(method))
        result = pool->depth ? FRISBEE_BUSY : frisbeei_rpc_keep_request(pool, method->request, request, &length);
    out.result = result;
    if (result == FRISBEE_OK) {
        out.result = result = frisbee_call_wait(pool, conn, method->operation, pool->request, length, timeout_ms, &raw);
        out.reason = raw.reason;
        out.sent = raw.sent;
        if (result == FRISBEE_OK) out.result = frisbeei_rpc_decode(pool, method->response, &response, raw.data, raw.length, &out.error);
    }
    if (outcome) *outcome = out;
    return out.result;
}

FRISBEE_API frisbee_result frisbee_rpc_send(frisbee_pool *pool, const frisbee_rpc *rpc, const void *request) {
    const frisbeei_rpc *record = pool && rpc ? frisbeei_rpc_find(pool, rpc, false) : NULL;
    if (!pool || !rpc || !request) return FRISBEE_INVALID;
    if (!record || record->ended || record->told || record->cause) return FRISBEE_CLOSED;
    return record->method->client_streams ? frisbeei_rpc_stream_send(pool, record, record->method->request, request) : FRISBEE_INVALID;
}

// A streaming call that ended before anybody received its end. Taken out: the caller frees it.
static frisbeei_rpc *frisbeei_rpc_take_ended(frisbee_pool *pool, frisbee_stream stream) {
    frisbeei_rpc **at = &pool->rpc_ended, *record;
    while (*at && (*at)->stream.id != stream.id) at = &(*at)->next;
    record = *at;
    if (record) *at = record->next;
    return record;
}

// Waits until a message has come, or the end; frisbee_stop ends the call. TIMED_OUT: neither came; DESTROYED: the pool.
static frisbee_result frisbeei_rpc_await(frisbee_pool *pool, frisbeei_rpc *record, const frisbeei_wait *wait, int32_t timeout_ms) {
    const bool stopped = pool->stop_run; // before: that is for the next run
    frisbee_result result = FRISBEE_OK;
    int64_t until, left = 1;
    frisbeei_clock_outside(pool);
    until = timeout_ms < 0 ? FRISBEEI_NO_TIME : pool->now + (int64_t)frisbeei_or(timeout_ms, 5000) * 1000;
    pool->stop_run = false;
    while (!wait->done && !record->closed && left > 0) {
        result = frisbee_poll(pool, left > INT32_MAX ? INT32_MAX : (int32_t)left);
        if (result == FRISBEE_DESTROYED) return result;
        if ((pool->stop_run || result == FRISBEE_SYSTEM) && !record->cause) {
            record->cause = (int8_t)(pool->stop_run ? FRISBEE_CANCELLED : FRISBEE_SYSTEM);
            (void)frisbee_stream_close(pool, record->stream);
        }
        left = until == FRISBEEI_NO_TIME || record->cause ? INT32_MAX : (until - pool->now + 999) / 1000;
    }
    pool->stop_run = stopped;
    return wait->done || record->closed ? FRISBEE_OK : FRISBEE_TIMED_OUT;
}

FRISBEE_API frisbee_result frisbee_rpc_receive(frisbee_pool *pool, const frisbee_rpc *rpc, int32_t timeout_ms, void *response,
                                               frisbee_rpc_outcome *outcome) {
    frisbeei_rpc *record, *ended;
    frisbee_rpc_outcome out;
    frisbeei_wait wait;
    frisbee_result result;
    memset(&wait, 0, sizeof wait);
    frisbeei_rpc_outcome_of(&out, FRISBEE_OK, FRISBEE_OK, true);
    if (outcome) *outcome = out;
    if (!pool || !rpc || !rpc->method || !response || timeout_ms < FRISBEE_NEVER) return FRISBEE_INVALID;
    memset(response, 0, rpc->method->response->size);
    if (pool->depth) return FRISBEE_BUSY;
    record = frisbeei_rpc_find(pool, rpc, false);
    if (record && (!record->pulled || record->told)) return record->pulled ? FRISBEE_CLOSED : FRISBEE_INVALID;
    result = FRISBEE_OK;
    if (record) {
        record->wait = &wait;
        (void)frisbee_stream_pause(pool, record->stream, false);
        result = frisbeei_rpc_await(pool, record, &wait, timeout_ms);
        if (result == FRISBEE_DESTROYED) return result;
        record->wait = NULL;
        if (result != FRISBEE_OK && !record->closed) (void)frisbee_stream_pause(pool, record->stream, true);
        if (result != FRISBEE_OK) return result;
    }
    if (wait.done) {
        out.result = wait.outcome.result;
        if (out.result == FRISBEE_OK)
            out.result = frisbeei_rpc_decode(pool, rpc->method->response, &response, wait.outcome.data, wait.outcome.length, &out.error);
        if (out.result == FRISBEE_FAILED && frisbeei_rpc_is_end(out.error)) {
            out.result = FRISBEE_CLOSED;
            out.error = frisbee_string_of(NULL);
        }
    }
    ended = frisbeei_rpc_take_ended(pool, rpc->stream);
    if (!wait.done) out.result = out.reason = ended ? (frisbee_result)ended->cause : FRISBEE_CLOSED;
    if (!wait.done && ended && out.result == FRISBEE_CLOSED) out.result = FRISBEE_UNKNOWN; // without its end
    if (outcome) *outcome = out;
    if (ended && wait.done && out.result == FRISBEE_OK) { // its end is for the next one to ask
        ended->next = pool->rpc_ended;
        pool->rpc_ended = ended;
    } else if (ended) frisbeei_rpc_drop(pool, ended);
    else if (record && out.result != FRISBEE_OK) {
        record->told = true;
        (void)frisbee_stream_close(pool, record->stream);
    }
    return out.result;
}

FRISBEE_API frisbee_result frisbee_rpc_cancel(frisbee_pool *pool, const frisbee_rpc *rpc) {
    frisbeei_rpc *record;
    if (!pool || !rpc || !rpc->method) return FRISBEE_INVALID;
    if (!frisbeei_rpc_streams_either(rpc->method)) return frisbee_cancel(pool, rpc->call);
    record = frisbeei_rpc_find(pool, rpc, false);
    if (!record) {
        record = frisbeei_rpc_take_ended(pool, rpc->stream);
        if (!record) return FRISBEE_CLOSED;
        frisbeei_rpc_drop(pool, record);
        return FRISBEE_OK;
    }
    if (record->told || record->cause) return FRISBEE_CLOSED;
    record->cause = FRISBEE_CANCELLED;
    record->told = record->pulled;
    return frisbee_stream_close(pool, record->stream);
}

// >>fingerprints: FNV-1a of what a service's wire depends on, and of the names of methods, fields and enum values

static uint64_t frisbeei_hash_add(uint64_t hash, uint64_t value) {
    unsigned i;
    for (i = 0; i < 64; i += 8) hash = (hash ^ (value >> i & 255)) * 0x100000001B3u;
    return hash;
}

static uint64_t frisbeei_hash_text(uint64_t hash, const char *text) {
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 0x100000001B3u;
    return frisbeei_hash_add(hash, 0);
}

// Types by the order in which they are first met, so that a ring ends and a type counts once.
typedef struct frisbeei_seen {
    const frisbee_type *types[256];
    uint32_t count;
} frisbeei_seen;

static uint32_t frisbeei_seen_place(frisbeei_seen *seen, const frisbee_type *type) {
    uint32_t i;
    for (i = 0; i < seen->count; i++)
        if (seen->types[i] == type) return i;
    if (seen->count < 256) seen->types[seen->count++] = type;
    return i; // those above are known by their number of fields alone
}

static uint64_t frisbeei_hash_type(uint64_t hash, frisbeei_seen *seen, const frisbee_type *type) {
    uint32_t i, j;
    hash = frisbeei_hash_add(hash, type->field_count);
    for (i = 0; i < type->field_count; i++) {
        const frisbee_field *field = &type->fields[i];
        hash = frisbeei_hash_text(hash, field->name);
        hash = frisbeei_hash_add(hash, (uint64_t)field->kind << 8 | field->shape);
        if (field->shape == FRISBEE_SHAPE_CHOICE) hash = frisbeei_hash_add(hash, field->number);
        if (field->type) hash = frisbeei_hash_add(hash, frisbeei_seen_place(seen, field->type));
        for (j = 0; field->values && j < field->values->count; j++) {
            hash = frisbeei_hash_text(hash, field->values->values[j].name);
            hash = frisbeei_hash_add(hash, (uint64_t)(int64_t)field->values->values[j].number);
        }
    }
    return hash;
}

FRISBEE_API uint64_t frisbee_service_fingerprint(const frisbee_service *service) {
    uint64_t hash = 0xCBF29CE484222325u;
    frisbeei_seen seen;
    uint32_t i;
    seen.count = 0;
    for (i = 0; service && i < service->method_count; i++) {
        const frisbee_method *method = &service->methods[i];
        hash = frisbeei_hash_text(hash, method->name);
        hash = frisbeei_hash_add(hash, method->operation);
        hash = frisbeei_hash_add(hash, (method->client_streams ? 1u : 0u) | (method->server_streams ? 2u : 0u));
        hash = frisbeei_hash_add(hash, frisbeei_seen_place(&seen, method->request));
        hash = frisbeei_hash_add(hash, frisbeei_seen_place(&seen, method->response));
    }
    for (i = 0; i < seen.count; i++) hash = frisbeei_hash_type(hash, &seen, seen.types[i]); // it may add some
    return hash ? hash : 1;
}

typedef struct frisbeei_comparison {
    frisbee_conn conn;
    frisbee_on_compared on_compared;
    void *user;
} frisbeei_comparison;

static void frisbeei_compared(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    static const frisbee_result results[] = {FRISBEE_OK, FRISBEE_FAILED, FRISBEE_UNHANDLED};
    const frisbeei_comparison comparison = *(frisbeei_comparison *)user;
    frisbee_result result = outcome->result;
    (void)call;
    frisbeei_heap_give(pool, user, sizeof comparison);
    if (result == FRISBEE_OK) result = FRISBEE_MALFORMED;
    if (outcome->result == FRISBEE_OK && outcome->length && *(const uint8_t *)outcome->data < 3) result = results[*(const uint8_t *)outcome->data];
    comparison.on_compared(pool, comparison.conn, result, comparison.user);
}

FRISBEE_API frisbee_result frisbee_service_compare(frisbee_pool *pool, frisbee_conn handle, const frisbee_service *service, int32_t timeout_ms,
                                                   frisbee_on_compared on_compared, void *user) {
    frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    frisbeei_comparison *comparison;
    frisbee_call_desc desc;
    frisbee_result result;
    uint8_t data[9 + 255];
    size_t length;
    if (!pool || !service || !on_compared || timeout_ms < FRISBEE_NEVER || strlen(service->name) > 255) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    length = strlen(service->name);
    result = frisbeei_may_send_packet(pool, conn, FRISBEEI_FIRST_OPERATION, 9 + length);
    if (result != FRISBEE_OK) return result;
    comparison = (frisbeei_comparison *)frisbeei_heap_take(pool, sizeof *comparison);
    if (!comparison) return FRISBEE_NO_MEMORY;
    comparison->conn = handle;
    comparison->on_compared = on_compared;
    comparison->user = user;
    frisbeei_put64(data, frisbee_service_fingerprint(service));
    data[8] = (uint8_t)length;
    memcpy(data + 9, service->name, length);
    memset(&desc, 0, sizeof desc);
    desc.timeout_ms = timeout_ms;
    desc.on_reply = frisbeei_compared;
    desc.user = comparison;
    result = frisbeei_call_start(pool, conn, FRISBEEI_SCHEMA, FRISBEEI_SCHEMA_IS, data, 9 + length, &desc, NULL);
    if (result != FRISBEE_OK) frisbeei_heap_give(pool, comparison, sizeof *comparison);
    return result;
}

static void frisbeei_schema_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    const uint8_t *data = (const uint8_t *)packet->data;
    const frisbeei_served *served = conn->profile->desc.routes ? NULL : pool->services;
    uint8_t status = 2;
    if (packet->from.operation != FRISBEEI_SCHEMA) {
        if (!conn->calls || !frisbeei_call_reply(pool, conn, packet, FRISBEE_OK)) conn->dropped++;
        return;
    }
    if (packet->length < 9 || packet->length - 9 < data[8]) {
        frisbeei_fail(pool, conn, FRISBEE_MALFORMED, 0);
        return;
    }
    for (; served && status == 2; served = served->next) {
        uint8_t own[8];
        if (strlen(served->service->name) != data[8] || memcmp(served->service->name, data + 9, data[8]) != 0) continue;
        frisbeei_put64(own, frisbee_service_fingerprint(served->service));
        status = memcmp(own, data, sizeof own) != 0;
    }
    frisbeei_answer(pool, conn, FRISBEEI_SCHEMA_IS, packet->from.id, &status, 1);
}

// What the pool keeps for typed calls.
static void frisbeei_rpc_free(frisbee_pool *pool) {
    while (pool->rpc_ended) {
        frisbeei_rpc *record = pool->rpc_ended;
        pool->rpc_ended = record->next;
        frisbeei_rpc_drop(pool, record);
    }
    while (pool->services) {
        frisbeei_served *served = pool->services;
        pool->services = served->next;
        frisbeei_heap_give(pool, served, served->bytes);
    }
    frisbeei_heap_give(pool, pool->request, pool->request_room);
    frisbeei_arena_empty(pool, &pool->arena, false);
    frisbeei_arena_empty(pool, &pool->lent, false);
}
#else
static void frisbeei_rpc_free(frisbee_pool *pool) { (void)pool; }
static void frisbeei_rpc_expire(frisbee_pool *pool, frisbeei_conn *conn, int64_t *next) { (void)pool, (void)conn, (void)next; }
static void frisbeei_schema_input(frisbee_pool *pool, frisbeei_conn *conn, const frisbee_packet *packet) {
    (void)pool, (void)packet, conn->dropped++;
}
#endif

// >>statistics

FRISBEE_API frisbee_result frisbee_pool_stats(frisbee_pool *pool, frisbee_stats *stats) {
    uint32_t index = 0;
    const frisbeei_conn *conn;
    if (!pool || !stats) return FRISBEE_INVALID;
    *stats = pool->total;
    stats->queued = 0;
    stats->calls = stats->deferred = stats->lost_ids = stats->streams = 0;
    while ((conn = frisbeei_each(pool, &index)) != NULL) frisbeei_total_add(stats, conn);
    stats->memory = pool->memory;
    stats->conns = pool->conn_count;
    stats->subs = pool->broker ? pool->broker->count : 0;
    return FRISBEE_OK;
}

// Messages that several share count for each.
static size_t frisbeei_patterns_memory(const frisbeei_patterns *patterns) {
    const frisbeei_map *maps[3];
    size_t memory = sizeof *patterns + patterns->waiting.bytes, slots;
    uint32_t i, m;
    maps[0] = &patterns->streams;
    maps[1] = &patterns->mine;
    maps[2] = &patterns->theirs;
    for (m = 0; m < 3; m++) {
        slots = maps[m]->slots ? maps[m]->mask + 1 : 0;
        memory += slots * sizeof *maps[m]->slots;
        for (i = 0; i < slots; i++) {
            const frisbeei_stream *stream = (const frisbeei_stream *)maps[m]->slots[i].value;
            if (stream) memory += m == 0 ? sizeof *stream + stream->kept_room : sizeof(frisbeei_sub);
        }
    }
    return memory;
}

FRISBEE_API frisbee_result frisbee_conn_stats(frisbee_pool *pool, frisbee_conn handle, frisbee_stats *stats) {
    const frisbeei_conn *conn = pool ? frisbeei_find(pool, handle.id) : NULL;
    const frisbeei_chunk *chunk;
    if (!pool || !stats) return FRISBEE_INVALID;
    if (!conn) return FRISBEE_CLOSED;
    memset(stats, 0, sizeof *stats);
    frisbeei_total_add(stats, conn);
    stats->conns = 1;
    stats->rtt_us = conn->rtt;
    if (conn->patterns) {
        stats->published = conn->patterns->published;
        stats->delivered = conn->patterns->delivered;
        stats->lost = conn->patterns->lost + conn->patterns->peer_lost;
        stats->subs = conn->patterns->theirs.count;
        stats->memory = frisbeei_patterns_memory(conn->patterns);
    }
    stats->memory += sizeof *conn + conn->in_room + (conn->calls ? conn->calls->bytes : 0) + (conn->deferred ? conn->deferred->bytes : 0) +
                    (conn->extra ? sizeof *conn->extra + conn->extra->host_bytes : 0) + (conn->io ? sizeof *conn->io : 0);
    for (chunk = conn->out_head; chunk; chunk = chunk->next) stats->memory += frisbeei_chunk_bytes(chunk);
    return FRISBEE_OK;
}

// >>check: what is always true between two turns; for tests

#ifdef FRISBEE_CHECK
#if defined(__GNUC__) || defined(__clang__)
__attribute__((unused))
#endif
static bool frisbeei_check(const frisbee_pool *pool);

static bool frisbeei_check_waiting(const frisbeei_waiting *waiting) {
    const frisbeei_sub *sub;
    size_t bytes = 0;
    for (sub = waiting->first; sub; sub = sub->next) {
        const frisbeei_entry *entry, *before = NULL;
        size_t own = 0;
        uint32_t count = 0;
        for (entry = sub->first; entry; before = entry, entry = entry->next) {
            if (entry->before != before || entry->message->references == 0) return false;
            own += entry->message->length + (size_t)FRISBEEI_MESSAGE_COST;
            count++;
        }
        if (before != sub->last || count != sub->waiting || own != sub->waiting_bytes || !count || !sub->waits) return false;
        if (!sub->next && sub != waiting->last) return false;
        bytes += own;
    }
    return bytes == waiting->bytes;
}

static bool frisbeei_check_patterns(const frisbeei_conn *conn) {
    const frisbeei_patterns *patterns = conn->patterns;
    uint32_t live = 0, kept = 0, streams = 0, subs = 0, i;
    for (i = 0; patterns->streams.slots && i <= patterns->streams.mask; i++) {
        const frisbeei_stream *stream = (const frisbeei_stream *)patterns->streams.slots[i].value;
        if (!stream) continue;
        streams++;
        live += stream->state != FRISBEEI_STREAM_SHUT;
        kept += stream->kept != NULL;
        if (stream->conn != conn || stream->key != patterns->streams.slots[i].key || stream->kept_at > stream->kept_size) return false;
        if (stream->kept_size > stream->kept_room || (stream->kept && stream->kept_at == stream->kept_size)) return false;
    }
    for (i = 0; patterns->theirs.slots && i <= patterns->theirs.mask; i++) subs += patterns->theirs.slots[i].value != NULL;
    return streams == patterns->streams.count && live == patterns->live && kept == patterns->kept &&
           subs == patterns->theirs.count && frisbeei_check_waiting(&patterns->waiting);
}

static bool frisbeei_check_conn(const frisbee_pool *pool, frisbeei_conn *conn) {
    const frisbeei_chunk *chunk;
    size_t queued = 0, replies = 0;
    uint32_t i, live = 0, lost = 0, keys = 0;
    for (chunk = conn->out_head; chunk; chunk = chunk->next) {
        if (chunk->start > chunk->end || chunk->end > chunk->room || chunk->header_at > chunk->header_size) return false;
        if (!chunk->next && chunk != conn->out_tail) return false;
        queued += frisbeei_chunk_size(chunk);
        replies += chunk->replies;
    }
    if (replies != conn->replies) return false;
    if (queued != conn->queued || (!conn->out_head && conn->out_tail)) return false;
    if (conn->in_size > conn->in_room || (conn->in_room && !conn->in)) return false;
    if (conn->queued > 3 * conn->profile->desc.queue_limit + FRISBEEI_CONTROL_ROOM) return false; // calls, and a connector's replies
    for (i = 0; conn->calls && i <= conn->calls->mask; i++) {
        const frisbeei_call *call = &conn->calls->slots[i];
        live += call->state == FRISBEEI_CALL_LIVE || call->state == FRISBEEI_CALL_CANCELLED;
        lost += call->state == FRISBEEI_CALL_LOST;
        if (call->state != FRISBEEI_CALL_FREE && (call->id & conn->calls->mask) != i) return false;
        if (call->state == FRISBEEI_CALL_LIVE && call->timed && (!conn->calls->timed || (int32_t)(call->due - conn->calls->due) < 0)) return false;
    }
    if (conn->calls && (live != conn->calls->live || lost != conn->calls->lost)) return false;
    if (conn->calls && conn->calls->timed && !conn->timer_slot && conn->state != FRISBEEI_CLOSED) return false;
    for (i = 0; conn->deferred && i <= conn->deferred->mask; i++) keys += conn->deferred->keys[i] != 0;
    if (conn->deferred && (keys != conn->deferred->count || keys > conn->profile->desc.max_deferred)) return false;
    if (conn->timer_slot && pool->timers[conn->timer_slot - 1] != frisbeei_index(conn)) return false;
    if (conn->patterns && !frisbeei_check_patterns(conn)) return false;
    return !(conn->flags & FRISBEEI_PARTIAL) || conn->in_size > 0;
}

// True if every invariant holds. Not inside a callback.
static bool frisbeei_check(const frisbee_pool *pool) {
    uint32_t index = 0, count = 0, timers = 0, i;
    frisbeei_conn *conn;
    while ((conn = frisbeei_each(pool, &index)) != NULL) {
        count++;
        timers += conn->timer_slot != 0;
        if (frisbeei_index(conn) != index || !frisbeei_check_conn(pool, conn)) return false;
    }
    for (i = 1; i < pool->timer_count; i++)
        if (frisbeei_at(pool, pool->timers[(i - 1) / 2])->timer_at > frisbeei_at(pool, pool->timers[i])->timer_at) return false;
    if (pool->broker && !frisbeei_check_waiting(&pool->broker->local)) return false;
    return count == pool->conn_count && timers == pool->timer_count && pool->memory <= pool->desc.max_memory && !pool->packet && !pool->depth;
}
#endif

#ifdef FRISBEEI_DEFINED_DEFAULT_SOURCE
#undef FRISBEEI_DEFINED_DEFAULT_SOURCE
#undef _DEFAULT_SOURCE
#endif

#endif // FRISBEE_IMPLEMENTED
#endif // FRISBEE_IMPLEMENTATION

/*
    Public domain or MIT, at your choice.

    MIT: Copyright (c) 2026 the frisbee.h authors. Permission is hereby granted, free of charge, to any person obtaining a copy of this
    software and associated documentation files (the "Software"), to deal in the Software without restriction, including without
    limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
    permit persons to whom the Software is furnished to do so, subject to the following conditions: The above copyright notice and this
    permission notice shall be included in all copies or substantial portions of the Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT
    WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR
    PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY,
    WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER
    DEALINGS IN THE SOFTWARE.

    Public domain (unlicense.org): This is free and unencumbered software released into the public domain. Anyone is free to copy, modify,
    publish, use, compile, sell, or distribute this software, either in source code form or as a compiled binary, for any purpose,
    commercial or non-commercial, and by any means. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, as above.
*/
