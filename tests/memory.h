// memory.h - an in-memory network for the tests: pairs of transports under a virtual clock, and an allocator that counts, fails on demand and
// moves everything. All that happens follows from a seed. Include it after frisbee.h and check.h. An end of a pair is either given to a
// pool (mem_transport) or played by the test (mem_put, mem_take).
#ifndef MEMORY_H
#define MEMORY_H

// >>bytes that grow

typedef struct mem_bytes { uint8_t *data; size_t length, room; } mem_bytes;

static inline void mem_append(mem_bytes *bytes, const void *data, size_t length) {
    if (bytes->length + length > bytes->room) {
        bytes->room = (bytes->length + length) * 2 + 64;
        bytes->data = (uint8_t *)realloc(bytes->data, bytes->room);
        if (!bytes->data) exit(2);
    }
    if (length) memcpy(bytes->data + bytes->length, data, length);
    bytes->length += length;
}

static inline void mem_drop(mem_bytes *bytes, size_t length) { // the first `length` bytes
    bytes->length -= length;
    if (length && bytes->length) memmove(bytes->data, bytes->data + length, bytes->length);
}

static inline void mem_free(mem_bytes *bytes) {
    free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}

static inline bool mem_same(const mem_bytes *a, const mem_bytes *b) {
    return a->length == b->length && (!a->length || !memcmp(a->data, b->data, a->length));
}

// >>the network

struct mem_net;

// One direction of a pair. Bytes lie in `bytes` from `head` on; a mark says when a run of them arrives.
typedef struct mem_mark { uint64_t at_us; size_t length; } mem_mark;
typedef struct mem_pipe {
    mem_bytes bytes, marks;
    size_t head, mark_head;
    size_t capacity;  // a write blocks when so many bytes are under way
    uint64_t delay_us;
    uint64_t position, cut; // reads never cross `cut`, counted from the first byte; one AGAIN stands there
    bool ended, gone; // the writer sent its last byte; the reader has closed
} mem_pipe;

typedef struct mem_end {
    struct mem_net *net;
    struct mem_end *peer, *next;
    mem_pipe out; // what the peer reads
    frisbee_pool *pool; // whom to wake
    frisbee_conn conn;
    bool wake_only, no_read, no_finish;
    bool read_waits, write_waits; // AGAIN was answered: one wake is due
    bool cut_stood, saw_end, finished;
    frisbee_result broken; // what reads and writes answer after a reset
    size_t piece;          // most bytes of one read or write; 0: any
    int slow_open, slow_finish; // so many AGAIN before OK; a negative number: for ever
    int opens, reads, writes, finishes, closes, reads_after_end, changed;
    mem_bytes refused, offered; // what a write that was answered AGAIN came with: the same must come again
} mem_end;

typedef struct mem_net {
    uint64_t now_us;  // the virtual clock
    uint64_t tick_us; // what each reading adds to it, for the functions that wait
    uint64_t random;  // state of the generator
    uint32_t fickle;  // of 256 reads and writes so many answer AGAIN without a reason
    bool ragged;      // pieces are of random size
    mem_end *ends;
} mem_net;

static inline uint64_t mem_now(void *context) {
    mem_net *net = (mem_net *)context;
    return net->now_us += net->tick_us;
}

static inline uint32_t mem_random(mem_net *net) { // splitmix64
    uint64_t z = net->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(z >> 32);
}

static inline uint32_t mem_below(mem_net *net, uint32_t limit) { return mem_random(net) % limit; }

static inline void mem_fill(mem_net *net, void *into, size_t length) {
    size_t i;
    for (i = 0; i < length; i++) ((uint8_t *)into)[i] = (uint8_t)mem_random(net);
}

// FNV-1a, to compare long runs of bytes and events.
static inline uint64_t mem_hash(uint64_t hash, const void *data, size_t length) {
    size_t i;
    for (i = 0; i < length; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static inline size_t mem_size(const mem_pipe *pipe) { return pipe->bytes.length - pipe->head; } // under way and arrived

static inline size_t mem_arrived(const mem_net *net, const mem_pipe *pipe) {
    size_t i, count = pipe->marks.length / sizeof(mem_mark), length = 0;
    for (i = pipe->mark_head; i < count; i++) {
        mem_mark mark;
        memcpy(&mark, pipe->marks.data + i * sizeof mark, sizeof mark);
        if (mark.at_us > net->now_us) break;
        length += mark.length;
    }
    return length;
}

static inline void mem_push(mem_net *net, mem_pipe *pipe, const void *data, size_t length) {
    mem_mark mark;
    mark.at_us = pipe->delay_us ? net->now_us + pipe->delay_us : 0;
    mark.length = length;
    mem_append(&pipe->bytes, data, length);
    mem_append(&pipe->marks, &mark, sizeof mark);
}

static inline void mem_pull(mem_pipe *pipe, void *into, size_t length) {
    size_t left = length;
    if (length) memcpy(into, pipe->bytes.data + pipe->head, length);
    pipe->head += length;
    pipe->position += length;
    while (left) {
        mem_mark mark;
        uint8_t *at = pipe->marks.data + pipe->mark_head * sizeof mark;
        memcpy(&mark, at, sizeof mark);
        if (mark.length > left) {
            mark.length -= left;
            left = 0;
            memcpy(at, &mark, sizeof mark);
        } else {
            left -= mark.length;
            pipe->mark_head++;
        }
    }
    if (pipe->head > pipe->bytes.length / 2) {
        mem_drop(&pipe->bytes, pipe->head);
        pipe->head = 0;
    }
    if (pipe->mark_head * sizeof(mem_mark) > pipe->marks.length / 2) {
        mem_drop(&pipe->marks, pipe->mark_head * sizeof(mem_mark));
        pipe->mark_head = 0;
    }
}

static inline bool mem_readable(const mem_end *end) {
    return end->broken || mem_arrived(end->net, &end->peer->out) || (end->peer->out.ended && !mem_size(&end->peer->out));
}

static inline bool mem_writable(const mem_end *end) {
    return end->broken || end->out.gone || mem_size(&end->out) < end->out.capacity;
}

// Wakes the pool of an end whose transport is wake_only: once after each AGAIN, when the reason for it is gone.
static inline void mem_wake(mem_end *end) {
    unsigned ready = 0;
    if (!end->wake_only || !end->pool) return;
    if (end->read_waits && mem_readable(end)) ready |= FRISBEE_READ;
    if (end->write_waits && mem_writable(end)) ready |= FRISBEE_WRITE;
    if (ready & FRISBEE_READ) end->read_waits = false;
    if (ready & FRISBEE_WRITE) end->write_waits = false;
    if (ready) (void)frisbee_wake(end->pool, end->conn, ready);
}

static inline void mem_advance(mem_net *net, uint64_t us) {
    mem_end *end;
    net->now_us += us;
    for (end = net->ends; end; end = end->next) mem_wake(end);
}

// Both ends lose the connection at once, with what was under way.
static inline void mem_reset(mem_end *end, frisbee_result result) {
    mem_end *both[2];
    int i;
    both[0] = end;
    both[1] = end->peer;
    for (i = 0; i < 2; i++) {
        mem_pipe *pipe = &both[i]->out;
        if (!both[i]->broken) both[i]->broken = result;
        pipe->bytes.length = pipe->head = pipe->marks.length = pipe->mark_head = 0;
    }
    mem_wake(end);
    mem_wake(end->peer);
}

static inline size_t mem_piece(const mem_end *end, size_t length) {
    if (end->piece && length > end->piece) length = end->piece;
    if (end->net->ragged && length > 1) length = 1 + mem_below(end->net, (uint32_t)length);
    return length;
}

static inline bool mem_fickle(mem_net *net) { return net->fickle && (mem_random(net) & 255) < net->fickle; }

static inline frisbee_result mem_open(void *context) {
    mem_end *end = (mem_end *)context;
    end->opens++;
    CHECK(!end->closes);
    if (end->broken) return end->broken;
    if (!end->slow_open) return FRISBEE_OK;
    if (end->slow_open > 0) end->slow_open--;
    end->read_waits = end->write_waits = true;
    return FRISBEE_AGAIN;
}

static inline frisbee_result mem_read(void *context, void *into, size_t room, size_t *done) {
    mem_end *end = (mem_end *)context;
    mem_pipe *pipe = &end->peer->out;
    size_t length = mem_arrived(end->net, pipe);
    *done = 0;
    end->reads++;
    CHECK(!end->closes && room > 0);
    if (end->saw_end) end->reads_after_end++;
    if (end->broken) return end->broken;
    if (!mem_size(pipe) && pipe->ended) {
        end->saw_end = true;
        return FRISBEE_CLOSED;
    }
    if (length && pipe->position == pipe->cut && pipe->cut && !end->cut_stood) {
        end->cut_stood = true;
        length = 0;
    }
    if (!length || mem_fickle(end->net)) {
        end->read_waits = true;
        return FRISBEE_AGAIN;
    }
    if (length > room) length = room;
    length = mem_piece(end, length);
    if (pipe->position < pipe->cut && length > pipe->cut - pipe->position) length = (size_t)(pipe->cut - pipe->position);
    mem_pull(pipe, into, length);
    *done = length;
    mem_wake(end->peer);
    return FRISBEE_OK;
}

static inline frisbee_result mem_write(void *context, const frisbee_span *spans, size_t count, size_t *done) {
    mem_end *end = (mem_end *)context;
    mem_bytes swap;
    size_t total, taken = 0, room, i;
    *done = 0;
    end->writes++;
    CHECK(!end->closes && (!end->finished || !count));
    if (end->broken) return end->broken;
    if (!count) return FRISBEE_OK; // nothing is held back here
    end->offered.length = 0;
    for (i = 0; i < count; i++) mem_append(&end->offered, spans[i].data, spans[i].length);
    total = end->offered.length;
    CHECK(total > 0);
    if (end->refused.length > total || (end->refused.length && memcmp(end->refused.data, end->offered.data, end->refused.length))) end->changed++;
    end->refused.length = 0;
    if (end->out.gone) return end->broken = FRISBEE_CLOSED;
    room = mem_writable(end) ? end->out.capacity - mem_size(&end->out) : 0;
    if (total > room) total = room;
    total = mem_piece(end, total);
    if (!total || mem_fickle(end->net)) {
        swap = end->refused, end->refused = end->offered, end->offered = swap;
        end->write_waits = true;
        return FRISBEE_AGAIN;
    }
    for (i = 0; taken < total; i++) {
        size_t part = spans[i].length < total - taken ? spans[i].length : total - taken;
        if (part) mem_push(end->net, &end->out, spans[i].data, part);
        taken += part;
    }
    *done = total;
    mem_wake(end->peer);
    return FRISBEE_OK;
}

static inline frisbee_result mem_finish(void *context) {
    mem_end *end = (mem_end *)context;
    end->finishes++;
    CHECK(!end->closes && !end->finished);
    if (end->broken) return end->broken;
    if (end->slow_finish) {
        if (end->slow_finish > 0) end->slow_finish--;
        end->write_waits = true;
        return FRISBEE_AGAIN;
    }
    end->finished = end->out.ended = true;
    mem_wake(end->peer);
    return FRISBEE_OK;
}

// As TCP does it: who closes with input unread resets the connection, and the peer loses what it has not read.
static inline void mem_close(void *context) {
    mem_end *end = (mem_end *)context;
    end->closes++;
    end->pool = NULL;
    if (mem_size(&end->peer->out)) mem_reset(end, FRISBEE_SYSTEM);
    end->peer->out.gone = true;
    end->out.ended = true;
    mem_wake(end->peer);
}

static inline frisbee_transport mem_transport(mem_end *end) {
    frisbee_transport io;
    memset(&io, 0, sizeof io);
    io.context = end;
    io.open = mem_open;
    io.read = end->no_read ? NULL : mem_read;
    io.write = mem_write;
    io.finish = end->no_finish ? NULL : mem_finish;
    io.close = mem_close;
    io.wake_only = end->wake_only;
    return io;
}

static inline void mem_pair(mem_net *net, mem_end **a, mem_end **b) {
    mem_end *both[2];
    int i;
    for (i = 0; i < 2; i++) {
        both[i] = (mem_end *)calloc(1, sizeof **a);
        if (!both[i]) exit(2);
        both[i]->net = net;
        both[i]->out.capacity = SIZE_MAX;
        both[i]->read_waits = true;
        both[i]->next = net->ends;
        net->ends = both[i];
    }
    (*a = both[0])->peer = both[1];
    (*b = both[1])->peer = both[0];
}

static inline void mem_net_free(mem_net *net) {
    while (net->ends) {
        mem_end *end = net->ends;
        net->ends = end->next;
        mem_free(&end->out.bytes);
        mem_free(&end->out.marks);
        mem_free(&end->refused);
        mem_free(&end->offered);
        free(end);
    }
}

// What a played end does: send (whatever the capacity), and look at and take what has come.
static inline void mem_put(mem_end *end, const void *data, size_t length) {
    if (end->broken || end->out.gone || !length) return;
    mem_push(end->net, &end->out, data, length);
    mem_wake(end->peer);
}

static inline const uint8_t *mem_peek(const mem_end *end, size_t *length) {
    *length = mem_arrived(end->net, &end->peer->out);
    return end->peer->out.bytes.data + end->peer->out.head;
}

static inline void mem_take(mem_end *end, mem_bytes *into, size_t length) {
    size_t have;
    const uint8_t *data = mem_peek(end, &have);
    mem_bytes sink;
    memset(&sink, 0, sizeof sink);
    if (length > have) length = have;
    if (!length) return;
    if (into) mem_append(into, data, length);
    mem_append(&sink, data, length);
    mem_pull(&end->peer->out, sink.data, length);
    mem_free(&sink);
    mem_wake(end->peer);
}

static inline void mem_put_packet(mem_end *end, frisbee_wire wire, unsigned operation, unsigned id, const void *data, size_t length) {
    frisbee_packet packet;
    uint8_t header[FRISBEE_WIRE_HEADER_MAX];
    memset(&packet, 0, sizeof packet);
    packet.from.operation = (uint16_t)operation;
    packet.from.id = (uint16_t)id;
    packet.length = (uint32_t)length;
    mem_put(end, header, frisbee_encode(wire, &packet, header));
    mem_put(end, data, length);
}

// The next whole packet that came to a played end; its payload is valid until the next call.
static inline bool mem_take_packet(mem_end *end, frisbee_wire wire, frisbee_packet *packet) {
    static mem_bytes kept;
    size_t length, used = 0;
    const uint8_t *data = mem_peek(end, &length);
    frisbee_result result = frisbee_decode(wire, data, length, 0xFFFFFFFFu, packet, &used);
    CHECK(result == FRISBEE_OK || result == FRISBEE_AGAIN);
    if (result) return false;
    kept.length = 0;
    mem_take(end, &kept, used);
    packet->data = kept.data + (used - packet->length);
    return true;
}

// >>the allocator: every block knows its heap and size, a resize moves always, freed blocks are poisoned, the nth request can fail

typedef struct mem_heap {
    size_t bytes, peak, blocks;
    size_t requests, fail_at, failures; // fail_at 0: never
    bool fail_on; // from fail_at on, not only once
} mem_heap;

typedef struct mem_block { mem_heap *heap; size_t size; uint64_t mark, unused; } mem_block; // keeps what follows aligned
#define MEM_MARK UINT64_C(0xA110CA7EDB10C4ED)

static inline void *mem_allocate(void *context, size_t size) {
    mem_heap *heap = (mem_heap *)context;
    mem_block *block;
    heap->requests++;
    CHECK(size > 0);
    if (heap->fail_at && (heap->requests == heap->fail_at || (heap->fail_on && heap->requests > heap->fail_at))) {
        heap->failures++;
        return NULL;
    }
    block = (mem_block *)malloc(sizeof *block + size);
    if (!block) exit(2);
    block->heap = heap;
    block->size = size;
    block->mark = MEM_MARK;
    memset(block + 1, 0xA5, size);
    heap->blocks++;
    heap->bytes += size;
    if (heap->bytes > heap->peak) heap->peak = heap->bytes;
    return block + 1;
}

static inline void mem_release(void *context, void *memory, size_t size) {
    mem_block *block = (mem_block *)memory - 1;
    if (!CHECK(memory != NULL)) return;
    if (!CHECK(block->mark == MEM_MARK)) return;
    CHECK(block->heap == (mem_heap *)context);
    CHECK_EQ(block->size, size);
    block->heap->blocks--;
    block->heap->bytes -= block->size;
    memset(block, 0xDD, sizeof *block + block->size);
    free(block);
}

static inline void *mem_resize(void *context, void *memory, size_t old_size, size_t size) {
    void *moved = mem_allocate(context, size);
    if (!moved) return NULL;
    memcpy(moved, memory, old_size < size ? old_size : size);
    mem_release(context, memory, old_size);
    return moved;
}

static inline frisbee_allocator mem_allocator(mem_heap *heap) {
    frisbee_allocator allocator;
    allocator.allocate = mem_allocate;
    allocator.resize = mem_resize;
    allocator.release = mem_release;
    allocator.context = heap;
    return allocator;
}

#endif
