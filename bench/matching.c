// matching.c - what a publish costs while the broker holds many other subscriptions: 100 to 100,000 (or 1,000,000) of each kind, also such
// as are made to hurt: names that collide under common hashes, long common prefixes, wildcards in every combination. The broker's own
// program publishes to 1 to 4 local subscriptions, so nothing but the broker is measured; there is no socket and no system call.
//
//   matching [-c part of a case's name] [-m most other subscriptions] [-n rounds] [-i publishes (one pool with -m others, not timed)]
//
// Brokers of all sizes are measured in turn; prints medians, and ratios to the broker with 100. Every delivery is counted and must add up.
// Instructions: valgrind --tool=callgrind --toggle-collect=publish_batch build/matching -c literal -m 100000 -i 10240
#define _GNU_SOURCE
#define FRISBEE_IMPLEMENTATION
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#include "../frisbee.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 128, ROUNDS_MOST = 101, SIZES_MOST = 6, PAYLOAD = 100, SLICE = 20000000 /* ns */ };
enum { PATTERN = FRISBEE_TOPIC_MAX + 1, GROUP = 32, STAGES = 20, BLOCK = 5 }; // 2^20 colliding names
static int rounds = 7;

static uint64_t now_ns(void) { // of this process: others on the machine do not count
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what, long long detail) {
    fprintf(stderr, "%s (%lld)\n", what, detail);
    exit(1);
}

// >>names: the i-th of many other subscriptions. None may match the case's target, but for those of one_group.

static void literal(uint32_t i, char *pattern, char *group) { (void)group, snprintf(pattern, PATTERN, "market.%07u.eur", i); }

static void wildcards(uint32_t i, char *pattern, char *group) {
    static const char *const forms[] = {"market.*.x%u", "market.x%u.*", "*.x%u.eur", "x%u.>"};
    (void)group;
    snprintf(pattern, PATTERN, forms[i % 4], i);
}

static void deep(uint32_t i, char *pattern, char *group) { // leave the target's path at each depth
    static const char path[] = "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p";
    const uint32_t depth = 1 + i % 15;
    (void)group;
    snprintf(pattern, PATTERN, "%.*s.x%u%s", (int)(2 * depth - 1), path, i, path + 2 * depth + 1);
}

// The target's path with `*` for any of its first 15 tokens, in every combination: 2^15 ways lead to where the last token does not match.
static void maze(uint32_t i, char *pattern, char *group) {
    int token;
    (void)group;
    for (token = 0; token < 15; token++) {
        pattern[2 * token] = i >> token & 1 ? '*' : (char)('a' + token);
        pattern[2 * token + 1] = '.';
    }
    snprintf(pattern + 30, PATTERN - 30, "x%u", i);
}

static void groups(uint32_t i, char *pattern, char *group) {
    literal(i, pattern, group);
    snprintf(group, GROUP, "group-%u", i);
}

static void one_group(uint32_t i, char *pattern, char *group) {
    (void)i;
    strcpy(pattern, "market.gold.eur");
    strcpy(group, "workers");
}

static void long_prefix(uint32_t i, char *pattern, char *group) {
    (void)group;
    memset(pattern, 'p', 247);
    snprintf(pattern + 247, PATTERN - 247, "%08u", i);
}

// h = h * 33 + c: "Az" and "BY" are the same step, whatever came before.
static void collide_djb2(uint32_t i, char *pattern, char *group) {
    int stage;
    (void)group;
    for (stage = 0; stage < STAGES; stage++) memcpy(pattern + 2 * stage, i >> stage & 1 ? "Az" : "BY", 2);
    pattern[2 * STAGES] = 0;
}

// FNV-1a: from each state two blocks that lead to the same next one, found by their birthdays; any choice of blocks then collides. Of the
// 64-bit hash the low 32 bits depend on nothing above them and collide alike: more than any table uses.
typedef struct fnv {
    uint32_t basis, prime;
    char blocks[STAGES][2][BLOCK];
    bool made;
} fnv;
static fnv fnv_32 = {0x811C9DC5u, 0x01000193u, {{{0}}}, false}, fnv_64 = {0x84222325u, 0x000001B3u, {{{0}}}, false};

static uint32_t fnv_step(uint32_t hash, uint32_t prime, const char *data, size_t length) {
    while (length--) hash = (hash ^ (uint8_t)*data++) * prime;
    return hash;
}

static void fnv_block(uint32_t number, char *block) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    int i;
    number *= 0x9E3779B1u; // neighbours shall not look alike
    for (i = 0; i < BLOCK; i++, number >>= 6) block[i] = letters[number & 63];
}

static void fnv_make(fnv *family) {
    enum { SLOTS = 1 << 22 };
    uint32_t *numbers = (uint32_t *)malloc(SLOTS * sizeof *numbers), state = family->basis;
    int stage;
    if (!numbers) die("malloc", SLOTS);
    for (stage = 0; stage < STAGES; stage++) {
        uint32_t number;
        bool found = false;
        memset(numbers, 0, SLOTS * sizeof *numbers);
        for (number = 1; number < SLOTS / 2 && !found; number++) {
            char (*pair)[BLOCK] = family->blocks[stage];
            uint32_t hash, at;
            fnv_block(number, pair[1]);
            hash = fnv_step(state, family->prime, pair[1], BLOCK);
            for (at = hash & (SLOTS - 1); numbers[at] && !found; at = (at + 1) & (SLOTS - 1)) {
                fnv_block(numbers[at], pair[0]);
                found = fnv_step(state, family->prime, pair[0], BLOCK) == hash && memcmp(pair[0], pair[1], BLOCK);
            }
            numbers[at] = number;
        }
        if (!found) die("no collision of FNV-1a in stage", stage);
        state = fnv_step(state, family->prime, family->blocks[stage][0], BLOCK);
    }
    family->made = true;
    free(numbers);
}

static void collide_fnv(fnv *family, uint32_t i, char *pattern) {
    int stage;
    if (!family->made) fnv_make(family);
    for (stage = 0; stage < STAGES; stage++) memcpy(pattern + BLOCK * stage, family->blocks[stage][i >> stage & 1], BLOCK);
    pattern[BLOCK * STAGES] = 0;
}
static void collide_fnv_32(uint32_t i, char *pattern, char *group) { (void)group, collide_fnv(&fnv_32, i, pattern); }
static void collide_fnv_64(uint32_t i, char *pattern, char *group) { (void)group, collide_fnv(&fnv_64, i, pattern); }

static uint32_t fnv_of(const fnv *family, const char *text) { return fnv_step(family->basis, family->prime, text, strlen(text)); }

// The generators must do what they promise, or the hostile cases would be harmless.
static void check_collisions(void) {
    char a[PATTERN], b[PATTERN], group[GROUP];
    uint32_t i, x = 5381, y = 5381;
    const char *at;
    for (i = 1; i < 1u << STAGES; i = i * 3 + 1) {
        collide_fnv_32(0, a, group), collide_fnv_32(i, b, group);
        if (!strcmp(a, b) || fnv_of(&fnv_32, a) != fnv_of(&fnv_32, b)) die("FNV-1a, 32 bits, does not collide", i);
        collide_fnv_64(0, a, group), collide_fnv_64(i, b, group);
        if (!strcmp(a, b) || fnv_of(&fnv_64, a) != fnv_of(&fnv_64, b)) die("FNV-1a, 64 bits, does not collide", i);
        collide_djb2(0, a, group), collide_djb2(i, b, group);
        for (at = a; *at; at++) x = x * 33 + (uint8_t)*at;
        for (at = b; *at; at++) y = y * 33 + (uint8_t)*at;
        if (!strcmp(a, b) || x != y) die("djb2 does not collide", i);
    }
}

// >>cases

static const struct {
    const char *name;
    void (*other)(uint32_t i, char *pattern, char *group);
    const char *target;      // what is published to; NULL: the name that other(0) makes, and the others begin with 1
    const char *matching[3]; // "": the target itself
    bool in_turn;            // publish to each of the others' topics instead
} cases[] = {
    {"literal, 1 match", literal, "market.gold.eur", {""}, false},
    {"literal, 3 matches", literal, "market.gold.eur", {"", "market.*.eur", "market.>"}, false},
    {"wildcards, 3 matches", wildcards, "market.gold.eur", {"", "market.*.eur", "*.gold.>"}, false},
    {"16 tokens deep", deep, "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p", {"", "a.b.c.d.e.f.g.>", "*.b.*.d.e.f.g.h.i.j.k.l.m.n.o.p"}, false},
    {"groups of one", groups, "market.gold.eur", {""}, false},
    {"one group of all", one_group, "market.gold.eur", {""}, false},
    {"long common prefix", long_prefix, NULL, {"", "*", ">"}, false},
    {"colliding, FNV-1a 32", collide_fnv_32, NULL, {"", "*", ">"}, false},
    {"colliding, FNV-1a 64", collide_fnv_64, NULL, {"", "*", ">"}, false},
    {"colliding, djb2", collide_djb2, NULL, {"", "*", ">"}, false},
    {"maze of wildcards", maze, "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p", {""}, false},
    {"each topic in turn", literal, "market.gold.eur", {NULL}, true},
};

typedef struct contestant {
    frisbee_pool *pool;
    uint64_t published, matched, others; // messages; deliveries to the matching subscriptions, to the others
    uint64_t clock;
    uint32_t size, next;
    double publish[ROUNDS_MOST], deliver[ROUNDS_MOST]; // ns per publish
    double subscribe;                                  // ns each
} contestant;

static uint64_t tick(void *clock) { return ++*(uint64_t *)clock; } // time is no matter here, and costs nothing

static void count(frisbee_pool *pool, const frisbee_message *message, void *user) {
    (void)pool, (void)message;
    ++*(uint64_t *)user;
}

static void target_of(int which, char *pattern) {
    char group[GROUP];
    if (cases[which].target) strcpy(pattern, cases[which].target);
    else cases[which].other(0, pattern, group);
}

static int matches(int which) { // deliveries of each message to the matching subscriptions
    int i = 0;
    while (i < 3 && cases[which].matching[i]) i++;
    return i;
}

static int other_matches(int which) { return cases[which].in_turn || cases[which].other == one_group; } // and to the others

static void build(contestant *c, int which, uint32_t size) {
    frisbee_pool_desc desc;
    frisbee_broker broker;
    frisbee_sub_desc sub;
    char target[PATTERN], pattern[PATTERN], group[GROUP];
    frisbee_result result;
    uint64_t began;
    uint32_t i, topics = 0;
    memset(c, 0, sizeof *c);
    memset(&desc, 0, sizeof desc);
    memset(&broker, 0, sizeof broker);
    memset(&sub, 0, sizeof sub);
    broker.max_subs = 2000000;
    desc.broker = &broker;
    desc.now_us = tick;
    desc.now_context = &c->clock;
    desc.max_memory = (size_t)16 << 30;
    c->size = size;
    if ((result = frisbee_pool_create(&desc, &c->pool)) != FRISBEE_OK) die("pool", result);
    target_of(which, target);
    sub.on_message = count;
    sub.user = &c->matched;
    for (i = 0; i < (uint32_t)matches(which); i++) {
        const char *topic = *cases[which].matching[i] ? cases[which].matching[i] : target;
        if ((result = frisbee_subscribe(c->pool, FRISBEE_LOCAL, topic, &sub, NULL)) != FRISBEE_OK) die("subscribe", result);
    }
    sub.user = &c->others;
    began = now_ns();
    for (i = 1; i <= size; i++) {
        group[0] = 0;
        cases[which].other(i, pattern, group);
        sub.group = group[0] ? group : NULL;
        if ((result = frisbee_subscribe(c->pool, FRISBEE_LOCAL, pattern, &sub, NULL)) != FRISBEE_OK) die("subscribe", result);
    }
    c->subscribe = (double)(now_ns() - began) / size;
    if (frisbee_topic_count(c->pool, target, &topics) || topics != (uint32_t)(matches(which) + (cases[which].other == one_group)))
        die("this many subscriptions match the target", topics);
}

// Apart, so that callgrind can be told to count nothing else.
__attribute__((noinline)) static void publish_batch(contestant *c, const char (*topics)[PATTERN]) {
    static const uint8_t payload[PAYLOAD];
    int i;
    for (i = 0; i < BATCH; i++) {
        const frisbee_result result = frisbee_publish(c->pool, FRISBEE_LOCAL, topics[i], payload, sizeof payload, NULL);
        if (result != FRISBEE_OK) die(frisbee_result_string(result), i);
    }
    c->published += BATCH;
}

static void next_topics(contestant *c, int which, char (*topics)[PATTERN]) {
    char group[GROUP];
    int i;
    for (i = 0; i < BATCH; i++) {
        if (!cases[which].in_turn) target_of(which, topics[i]);
        else literal(1 + (c->next = (c->next + 7919) % c->size), topics[i], group);
    }
}

// Publishes for a while; each batch is delivered by a poll.
static void measure(contestant *c, int which, int round, uint64_t publishes) {
    char topics[BATCH][PATTERN];
    uint64_t before = c->published, publish = 0, deliver = 0;
    next_topics(c, which, topics);
    do {
        uint64_t began, middle;
        if (cases[which].in_turn) next_topics(c, which, topics);
        began = now_ns();
        publish_batch(c, (const char (*)[PATTERN])topics);
        middle = now_ns();
        if (frisbee_poll(c->pool, 0) < FRISBEE_AGAIN) die("poll", 0);
        publish += middle - began;
        deliver += now_ns() - middle;
    } while (publishes ? c->published - before < publishes : publish + deliver < SLICE);
    c->publish[round] = (double)publish / (double)(c->published - before);
    c->deliver[round] = (double)deliver / (double)(c->published - before);
    if (c->matched != c->published * (uint64_t)matches(which) || c->others != c->published * (uint64_t)other_matches(which))
        die("deliveries do not add up, of so many messages", (long long)c->published);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void table(int which, uint32_t most) {
    static contestant contestants[SIZES_MOST];
    int i, k, sizes = 0;
    uint32_t size = 100;
    build(&contestants[sizes++], which, 100);
    for (; size <= most && sizes < SIZES_MOST; size *= 10) build(&contestants[sizes++], which, size); // 100 twice: the control
    for (i = 0; i < sizes; i++) measure(&contestants[i], which, 0, 0);                                // warms up
    for (k = 0; k < rounds; k++)
        for (i = 0; i < sizes; i++) measure(&contestants[i], which, k, 0);
    for (i = 0; i < sizes; i++) {
        qsort(contestants[i].publish, (size_t)rounds, sizeof(double), by_size);
        qsort(contestants[i].deliver, (size_t)rounds, sizeof(double), by_size);
    }
    for (i = 0; i < sizes; i++) {
        const contestant *c = &contestants[i], *least = &contestants[0];
        const double base = least->publish[rounds / 2];
        frisbee_stats stats;
        if (frisbee_pool_stats(c->pool, &stats)) die("stats", i);
        printf("%-22s %8u %9.0f  %7.2f (%.2f to %.2f) ", i ? "" : cases[which].name, c->size, c->publish[rounds / 2],
               c->publish[rounds / 2] / base, c->publish[0] / base, c->publish[rounds - 1] / base);
        printf("%9.0f  %5.2f %10.0f %6.0f\n", c->deliver[rounds / 2], c->deliver[rounds / 2] / least->deliver[rounds / 2], c->subscribe,
               (double)stats.memory / (c->size + (uint32_t)matches(which)));
    }
    fflush(stdout);
    for (i = 0; i < sizes; i++) frisbee_pool_destroy(contestants[i].pool);
}

int main(int argc, char **argv) {
    const char *wanted = "";
    uint32_t most = 100000;
    uint64_t publishes = 0;
    int option, which, ran = 0;
    while ((option = getopt(argc, argv, "c:m:n:i:")) != -1) {
        if (option == 'c') wanted = optarg;
        else if (option == 'm') most = (uint32_t)atoi(optarg);
        else if (option == 'n') rounds = atoi(optarg);
        else if (option == 'i') publishes = (uint64_t)atoi(optarg);
        else return 2;
    }
    if (most < 1 || most >= 1u << STAGES || rounds < 1 || rounds > ROUNDS_MOST) return 2;
    check_collisions();
    if (!publishes)
        printf("%-22s %8s %9s  %-22s %9s  %5s %10s %6s\n", "other subscriptions", "", "publish", "of 100 (low to high)", "deliver", "of 100",
               "subscribe", "bytes");
    for (which = 0; which < (int)(sizeof cases / sizeof cases[0]); which++) {
        if (!strstr(cases[which].name, wanted)) continue;
        ran++;
        if (publishes) {
            static contestant one;
            build(&one, which, most);
            measure(&one, which, 0, publishes);
            printf("%s, %u others: %llu publishes\n", cases[which].name, most, (unsigned long long)one.published);
            frisbee_pool_destroy(one.pool);
        } else {
            table(which, most);
        }
    }
    return !ran;
}
