// codec.c - encoding and decoding: messages of frisbee.h, whose C frpc wrote, against protobuf-c on the same messages with the same contents.
//
//   codec.sh builds it and all that it needs, and runs it and codec.go, the same with the Go module polyglot
//
// What both decode is checked first. Measured in turn; prints medians in ns and the ratios to protobuf-c. Decoding into a block ("arena") and
// with malloc and free, which is protobuf-c's way if nothing else is said; frisbee.h does not know the latter.
#define _GNU_SOURCE
#define FRISBEE_IMPLEMENTATION
#define FRPC_IMPLEMENTATION
#include "codec.frpc.h"
#include "codec.pb-c.h"

#include "../bench.h"

enum { ROUNDS = 9, ROOM = 1 << 20, SLICE_US = 30000 };

static uint8_t own_data[ROOM], protobuf_data[ROOM];
static union {
    uint64_t align;
    uint8_t bytes[4 * ROOM];
} block;

// ---- a case: a message of both, and their codecs

typedef struct workload {
    const char *name;
    const frisbee_type *type;
    const void *message;
    const ProtobufCMessage *peer;
    const ProtobufCMessageDescriptor *descriptor;
} workload;

static size_t own_length, protobuf_length, block_used;

static void *block_take(void *unused, size_t size) {
    void *taken = block.bytes + block_used;
    (void)unused;
    block_used += (size + 15) & ~(size_t)15;
    return taken;
}

static void block_keep(void *unused, void *taken) {
    (void)unused;
    (void)taken;
}

static ProtobufCAllocator block_allocator = {block_take, block_keep, NULL};

static void own_encode(const workload *w) {
    if (frisbee_message_encode(w->type, w->message, own_data, ROOM, &own_length) != FRISBEE_OK) exit(1);
}

static void protobuf_encode(const workload *w) { protobuf_length = protobuf_c_message_pack(w->peer, protobuf_data); }

static void own_decode(const workload *w) {
    frisbee_arena arena;
    uint64_t message[32];
    frisbee_arena_begin(&arena, block.bytes, sizeof block.bytes);
    if (frisbee_message_decode(w->type, message, &arena, own_data, own_length, NULL) != FRISBEE_OK) exit(1);
}

static void protobuf_decode_block(const workload *w) {
    block_used = 0;
    if (!protobuf_c_message_unpack(w->descriptor, &block_allocator, protobuf_length, protobuf_data)) exit(1);
}

static void protobuf_decode(const workload *w) {
    ProtobufCMessage *message = protobuf_c_message_unpack(w->descriptor, NULL, protobuf_length, protobuf_data);
    if (!message) exit(1);
    protobuf_c_message_free_unpacked(message, NULL);
}

// ---- measuring

typedef struct contestant {
    const char *name;
    void (*run)(const workload *);
    double ns[ROUNDS];
} contestant;

static double time_of(const contestant *c, const workload *w) { // ns a run
    double begin = now(), end;
    uint64_t runs = 0, i;
    do {
        for (i = 0; i < 16; i++) c->run(w);
        runs += 16;
        end = now();
    } while (end - begin < SLICE_US / 1e6);
    return (end - begin) * 1e9 / (double)runs;
}

static int by_value(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

static double median(contestant *c) {
    qsort(c->ns, ROUNDS, sizeof c->ns[0], by_value);
    return c->ns[ROUNDS / 2];
}

static void compare(const workload *w, contestant *contestants, size_t count) {
    size_t round, i;
    double base = 0;
    for (round = 0; round < ROUNDS; round++)
        for (i = 0; i < count; i++) contestants[i].ns[round] = time_of(&contestants[i], w);
    for (i = 0; i < count; i++) {
        const double ns = median(&contestants[i]);
        if (i == 0) base = ns;
        printf("    %-28s %12.0f ns   %5.2f\n", contestants[i].name, ns, ns / base);
    }
}

static void measure(const workload *w) {
    contestant encoding[] = {{"encode  protobuf-c", protobuf_encode, {0}}, {"encode  frisbee.h", own_encode, {0}}};
    contestant decoding[] = {{"decode  protobuf-c, malloc", protobuf_decode, {0}},
                             {"decode  protobuf-c, a block", protobuf_decode_block, {0}},
                             {"decode  frisbee.h, an arena", own_decode, {0}}};
    own_encode(w);
    protobuf_encode(w);
    printf("%s: %lu bytes (protobuf %lu)\n", w->name, (unsigned long)own_length, (unsigned long)protobuf_length);
    compare(w, encoding, 2);
    compare(w, decoding, 3);
}

// ---- contents

enum { ITEMS = 1000, NUMBERS = 10000, BLOB = 65536 };

static bench_Small items[ITEMS];
static Bench__Small peer_items[ITEMS], *peer_pointers[ITEMS];
static char names[ITEMS][24];
static int64_t values[NUMBERS];
static double reals[NUMBERS];
static uint8_t blob[BLOB];
static const frisbee_string tags[] = {{"alpha", 5}, {"beta", 4}, {"gamma", 5}, {"a longer tag than the others", 28}};
static char *peer_tags[] = {(char *)"alpha", (char *)"beta", (char *)"gamma", (char *)"a longer tag than the others"};

static void fill(void) {
    uint64_t x = 1;
    int i;
    for (i = 0; i < ITEMS; i++) {
        snprintf(names[i], sizeof names[i], "item number %d", i);
        items[i].id = i * INT64_C(1234567);
        items[i].count = i % 200 - 100;
        items[i].on = i % 2;
        items[i].value = i * 0.25;
        items[i].name = frisbee_string_of(names[i]);
        bench__small__init(&peer_items[i]);
        peer_items[i].id = items[i].id;
        peer_items[i].count = items[i].count;
        peer_items[i].on = items[i].on;
        peer_items[i].value = items[i].value;
        peer_items[i].name = names[i];
        peer_pointers[i] = &peer_items[i];
    }
    for (i = 0; i < NUMBERS; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        values[i] = (int64_t)(x >> (x & 63)); // of all magnitudes
        reals[i] = (double)(x >> 11);
    }
    for (i = 0; i < BLOB; i++) blob[i] = (uint8_t)i;
}

// Is what protobuf-c and frisbee.h decode the same, for one of the messages with everything in it?
static void check_middle(const bench_Middle *middle) {
    frisbee_arena arena;
    bench_Middle back;
    Bench__Middle *peer;
    size_t i;
    frisbee_arena_begin(&arena, block.bytes, sizeof block.bytes);
    if (bench_Middle_decode(&back, &arena, own_data, own_length, NULL) != FRISBEE_OK || !bench_Middle_equal(middle, &back)) exit(1);
    peer = bench__middle__unpack(NULL, protobuf_length, protobuf_data);
    if (!peer || peer->n_items != back.items_count || peer->n_tags != back.tags_count || peer->data.len != back.data.length) exit(1);
    for (i = 0; i < peer->n_items; i++)
        if (peer->items[i]->id != back.items[i].id || !frisbee_string_is(back.items[i].name, peer->items[i]->name)) exit(1);
    bench__middle__free_unpacked(peer, NULL);
}

int main(void) {
    bench_Middle middle, large, bytes;
    bench_Numbers numbers;
    Bench__Middle peer_middle = BENCH__MIDDLE__INIT, peer_large = BENCH__MIDDLE__INIT, peer_bytes = BENCH__MIDDLE__INIT;
    Bench__Numbers peer_numbers = BENCH__NUMBERS__INIT;
    workload all[5];
    size_t i;
    pin(1);
    fill();
    memset(&middle, 0, sizeof middle);
    middle.text = frisbee_string_of("a text of some length, as programs send them to each other");
    middle.data.data = blob;
    middle.data.length = 100;
    middle.tags = tags, middle.tags_count = 4;
    middle.items = items, middle.items_count = 8;
    middle.head = &items[0];
    peer_middle.text = (char *)"a text of some length, as programs send them to each other";
    peer_middle.data.data = blob;
    peer_middle.data.len = 100;
    peer_middle.tags = peer_tags, peer_middle.n_tags = 4;
    peer_middle.items = peer_pointers, peer_middle.n_items = 8;
    peer_middle.head = &peer_items[0];
    memset(&large, 0, sizeof large);
    large.items = items, large.items_count = ITEMS;
    peer_large.items = peer_pointers, peer_large.n_items = ITEMS;
    memset(&numbers, 0, sizeof numbers);
    numbers.values = values, numbers.values_count = NUMBERS;
    numbers.reals = reals, numbers.reals_count = NUMBERS;
    peer_numbers.values = values, peer_numbers.n_values = NUMBERS;
    peer_numbers.reals = reals, peer_numbers.n_reals = NUMBERS;
    memset(&bytes, 0, sizeof bytes);
    bytes.data.data = blob;
    bytes.data.length = BLOB;
    peer_bytes.data.data = blob;
    peer_bytes.data.len = BLOB;
    all[0] = (workload){"small: five fields", &bench_Small_type, &items[42], &peer_items[42].base, &bench__small__descriptor};
    all[1] = (workload){"middle: texts, bytes, nine messages", &bench_Middle_type, &middle, &peer_middle.base, &bench__middle__descriptor};
    all[2] = (workload){"large: 1,000 messages", &bench_Middle_type, &large, &peer_large.base, &bench__middle__descriptor};
    all[3] = (workload){"numbers: 10,000 integers and floats", &bench_Numbers_type, &numbers, &peer_numbers.base, &bench__numbers__descriptor};
    all[4] = (workload){"bytes: 64 KiB", &bench_Middle_type, &bytes, &peer_bytes.base, &bench__middle__descriptor};
    for (i = 0; i < 5; i++) {
        own_encode(&all[i]);
        protobuf_encode(&all[i]);
        if (i == 1) check_middle(&middle);
        measure(&all[i]);
    }
    return 0;
}
