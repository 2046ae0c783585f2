// test_framing.c - frisbee_decode, frisbee_encode and frisbee_sniff as tables of cases. They are pure functions: no pool is made here.
#define FRISBEE_IMPLEMENTATION
#define FRISBEE_POLLER FRISBEE_POLLER_NONE
#include "../frisbee.h"
#include "check.h"
#include <sys/mman.h>
#include <unistd.h>

#define MAX FRISBEE_PACKET_MAX

static const frisbee_wire wires[] = {FRISBEE_WIRE_V0, FRISBEE_WIRE_V1};
static uint64_t random_state;

static uint32_t next_random(void) {
    uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)(z >> 32);
}

static void put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

// A header written by hand, so that frisbee_encode is not its own judge.
static size_t put_header(uint8_t *at, frisbee_wire wire, uint32_t id, uint32_t operation, uint32_t length) {
    size_t magic = wire == FRISBEE_WIRE_V1 ? 2 : 0;
    if (magic) put16(at, 0x000F);
    put16(at + magic, id);
    put16(at + magic + 2, operation);
    put16(at + magic + 4, length >> 16);
    put16(at + magic + 6, length & 0xFFFF);
    return magic + 8;
}

// Room whose last byte lies before a page that faults: whoever reads one byte too far dies.
static uint8_t *guarded;
static size_t guarded_room;
static uint8_t *at_guard(const void *data, size_t length) {
    if (length) memcpy(guarded + guarded_room - length, data, length);
    return guarded + guarded_room - length;
}

static void encode_writes_both_headers(void) {
    static const struct { frisbee_wire wire; uint16_t id, operation; uint32_t length; size_t size; uint8_t header[10]; } cases[] = {
        {FRISBEE_WIRE_V0, 0, 0, 0, 8, {0, 0, 0, 0, 0, 0, 0, 0}},
        {FRISBEE_WIRE_V1, 0, 0, 0, 10, {0, 15, 0, 0, 0, 0, 0, 0, 0, 0}},
        {FRISBEE_WIRE_V0, 0x1234, 0x5678, 0x9ABCDEF0, 8, {0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0}},
        {FRISBEE_WIRE_V1, 0x1234, 0x5678, 0x9ABCDEF0, 10, {0, 15, 0x12, 0x34, 0x56, 0x78, 0x9A, 0xBC, 0xDE, 0xF0}},
        {FRISBEE_WIRE_V0, 0xFFFF, 0xFF01, 0xFFFFFFFF, 8, {255, 255, 255, 1, 255, 255, 255, 255}},
        {FRISBEE_WIRE_V1, 1, 10, 5, 10, {0, 15, 0, 1, 0, 10, 0, 0, 0, 5}},
        {FRISBEE_WIRE_AUTO, 1, 10, 5, 10, {0, 15, 0, 1, 0, 10, 0, 0, 0, 5}},
        {FRISBEE_WIRE_WAIT, 1, 10, 5, 10, {0, 15, 0, 1, 0, 10, 0, 0, 0, 5}},
    };
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        frisbee_packet packet;
        uint8_t header[FRISBEE_WIRE_HEADER_MAX + 1];
        memset(&packet, 0, sizeof packet);
        memset(header, 0xEE, sizeof header);
        packet.from.id = cases[i].id;
        packet.from.operation = cases[i].operation;
        packet.length = cases[i].length;
        CHECK_EQ(frisbee_encode(cases[i].wire, &packet, header), cases[i].size);
        CHECK(!memcmp(header, cases[i].header, cases[i].size));
        CHECK_EQ(header[cases[i].size], 0xEE); // nothing behind it is touched
    }
}

static void decode_fills_the_packet(void) {
    size_t w;
    for (w = 0; w < 2; w++) {
        uint8_t data[64];
        frisbee_packet packet;
        size_t used = 99, header = put_header(data, wires[w], 0xABCD, 0x1357, 7);
        memcpy(data + header, "payload+next", 12);
        memset(&packet, 0xEE, sizeof packet);
        CHECK_EQ(frisbee_decode(wires[w], data, header + 12, 0, &packet, &used), FRISBEE_OK);
        CHECK_EQ(used, header + 7);
        CHECK_EQ(packet.from.id, 0xABCD);
        CHECK_EQ(packet.from.operation, 0x1357);
        CHECK_EQ(packet.from.conn.id, 0);
        CHECK_EQ(packet.from.session, 0);
        CHECK(packet.conn_user == NULL);
        CHECK_EQ(packet.length, 7);
        CHECK((const uint8_t *)packet.data == data + header);
    }
}

// Every length that has caught someone, against every limit, told from the header alone and before any payload came.
static void decode_judges_every_length(void) {
    static const uint32_t lengths[] = {0, 1, 2, 63, 64, 99, 100, 101, 0xFFFF, 0x10000, MAX - 1, MAX, MAX + 1, 0x7FFFFFFF, 0x80000000u, 0x80000001u, 0xFFFFFFFE, 0xFFFFFFFF};
    static const size_t limits[] = {0, 1, 100, 0xFFFF, MAX, 0x7FFFFFFF, 0x80000000u, 0xFFFFFFFF};
    size_t w, i, k;
    for (w = 0; w < 2; w++)
        for (i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (k = 0; k < sizeof limits / sizeof *limits; k++) {
                size_t limit = limits[k] ? limits[k] : MAX, used = 0;
                uint8_t data[FRISBEE_WIRE_HEADER_MAX];
                frisbee_packet packet;
                size_t header = put_header(data, wires[w], 1, 10, lengths[i]);
                frisbee_result result = frisbee_decode(wires[w], at_guard(data, header), header, limits[k], &packet, &used);
                if (sizeof(size_t) < 8 && lengths[i] > 0x7FFFFFF0) continue; // no such buffer exists there
                if (lengths[i] > limit) CHECK_EQ(result, FRISBEE_TOO_LARGE);
                else if (lengths[i]) {
                    CHECK_EQ(result, FRISBEE_AGAIN);
                    CHECK(used == header + (size_t)lengths[i]); // not added in 32 bits
                } else {
                    CHECK_EQ(result, FRISBEE_OK);
                    CHECK_EQ(used, header);
                }
            }
}

static void decode_asks_for_what_is_missing_at_every_byte(void) {
    static const uint32_t lengths[] = {0, 1, 2, 7, 8, 9, 10, 11, 255, 256, 1000};
    static const uint16_t operations[] = {0, 1, 2, 9, 10, 65279, 0xFF00, 0xFFFF}; // framing takes them all, with payloads too
    size_t w, i, o, n;
    for (w = 0; w < 2; w++)
        for (i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (o = 0; o < sizeof operations / sizeof *operations; o++) {
                uint8_t data[1024];
                size_t header = put_header(data, wires[w], 500, operations[o], lengths[i]), total = header + lengths[i];
                for (n = header; n < total; n++) data[n] = (uint8_t)n;
                for (n = 0; n <= total; n++) {
                    frisbee_packet packet;
                    size_t used = 0;
                    frisbee_result result = frisbee_decode(wires[w], at_guard(data, n), n, 0, &packet, &used);
                    if (n == total) {
                        CHECK_EQ(result, FRISBEE_OK);
                        CHECK_EQ(used, total);
                        CHECK(!memcmp(packet.data, data + header, lengths[i]));
                    } else {
                        CHECK_EQ(result, FRISBEE_AGAIN);
                        CHECK_EQ(used, n < header ? header : total);
                    }
                }
            }
    {
        frisbee_packet packet;
        size_t used = 0;
        CHECK_EQ(frisbee_decode(FRISBEE_WIRE_V1, NULL, 0, 0, &packet, &used), FRISBEE_AGAIN);
        CHECK_EQ(used, 10);
    }
}

static void decode_refuses_a_wrong_magic(void) {
    uint32_t magic;
    size_t n;
    for (magic = 0; magic < 0x10000; magic++) {
        uint8_t data[10];
        frisbee_packet packet;
        size_t used = 0;
        put_header(data, FRISBEE_WIRE_V1, 1, 10, 0);
        put16(data, magic);
        for (n = 2; n <= 10; n += 4) {
            frisbee_result result = frisbee_decode(FRISBEE_WIRE_V1, data, n, 0, &packet, &used);
            CHECK_EQ(result, magic != 0x000F ? FRISBEE_MALFORMED : n < 10 ? FRISBEE_AGAIN : FRISBEE_OK);
        }
    }
}

static void encode_and_decode_are_inverse(void) {
    int i;
    random_state = 1;
    for (i = 0; i < 20000; i++) {
        static const frisbee_wire all[] = {FRISBEE_WIRE_AUTO, FRISBEE_WIRE_V0, FRISBEE_WIRE_V1, FRISBEE_WIRE_WAIT};
        frisbee_wire wire = all[next_random() & 3], same = wire == FRISBEE_WIRE_V0 ? FRISBEE_WIRE_V0 : FRISBEE_WIRE_V1;
        uint8_t data[300];
        frisbee_packet packet, back;
        size_t used = 0, header;
        memset(&packet, 0, sizeof packet);
        packet.from.id = (uint16_t)next_random();
        packet.from.operation = (uint16_t)next_random();
        packet.length = next_random() % 256;
        header = frisbee_encode(wire, &packet, data);
        memset(data + header, i & 255, packet.length);
        CHECK_EQ(frisbee_decode(same, data, header + packet.length, 0, &back, &used), FRISBEE_OK);
        CHECK(back.from.id == packet.from.id && back.from.operation == packet.from.operation && back.length == packet.length);
        CHECK_EQ(used, header + packet.length);
    }
}

// The rule of the sniff, written a second time. b: 8 bytes.
static frisbee_result told_by_rule(const uint8_t *b, uint32_t max, frisbee_wire *wire) {
    uint32_t o = (uint32_t)b[2] << 8 | b[3], x = (uint32_t)b[4] << 8 | b[5], y = (uint32_t)b[6] << 8 | b[7], length = x << 16 | y;
    bool v0 = ((o == 2 || o >= 10) && length <= max) || (o <= 1 && !length);
    bool v1 = (x == 2 || x >= 10 || (!x && !o)) && y <= max >> 16;
    if (b[0] != 0 || b[1] != 15) v0 = true, v1 = false;
    *wire = v1 ? FRISBEE_WIRE_V1 : FRISBEE_WIRE_V0;
    return v0 || v1 ? FRISBEE_OK : FRISBEE_MALFORMED;
}

static bool sniffs_as(const uint8_t *b, size_t length, uint32_t max, frisbee_result result, frisbee_wire wire) {
    frisbee_wire told = FRISBEE_WIRE_AUTO;
    frisbee_result answer = frisbee_sniff(b, length, max, &told);
    return answer == result && (answer != FRISBEE_OK || told == wire);
}

// A prefix is undecided or says what the whole says; eight bytes always decide.
static void check_chopped(const uint8_t *b, size_t length, uint32_t max) {
    frisbee_wire whole = FRISBEE_WIRE_AUTO, part;
    frisbee_result result = frisbee_sniff(at_guard(b, length), length, max, &whole), previous = FRISBEE_AGAIN;
    size_t n;
    if (length >= 8) CHECK(result != FRISBEE_AGAIN);
    for (n = 0; n <= length; n++) {
        frisbee_result now = frisbee_sniff(at_guard(b, n), n, max, &part);
        CHECK(now == FRISBEE_AGAIN || (now == result && (now != FRISBEE_OK || part == whole)));
        CHECK(now != FRISBEE_AGAIN || previous == FRISBEE_AGAIN); // once told, always told
        if (n < 2 && !(n && b[0])) CHECK_EQ(now, FRISBEE_AGAIN);
        previous = now;
    }
}

static void sniff_knows_every_opening_of_stock_v1_peers(void) {
    // A stock peer opens with an empty PING of id 0, with a STREAM, or with an operation from 10 on; any id, up to 5 MiB.
    static const uint32_t few[] = {0, 1, 2, 3, 9, 10, 11, 14, 15, 16, 0x50, 0x51, 255, 256, 0x0FFF, 0x1603, 32767, 32768, 65278, 65279, 65280, 65534, 65535};
    const size_t count = sizeof few / sizeof *few;
    uint32_t wrong = 0, checked = 0, a, y;
    size_t i;
    uint8_t b[10];
    put_header(b, FRISBEE_WIRE_V1, 0, 0, 0);
    CHECK(sniffs_as(b, 10, 0, FRISBEE_OK, FRISBEE_WIRE_V1));
    CHECK(sniffs_as(b, 8, 0, FRISBEE_OK, FRISBEE_WIRE_V1));
    for (i = 0; i < count; i++)
        for (a = 0; a < 0x10000; a++)
            for (y = 0; y <= 0x50; y += a % 7 ? 0x28 : 1) { // every length's high half for every seventh
                if (few[i] == 2 || few[i] >= 10) { // every id
                    put_header(b, FRISBEE_WIRE_V1, a, few[i], y << 16);
                    wrong += !sniffs_as(b, 8, 0, FRISBEE_OK, FRISBEE_WIRE_V1);
                    checked++;
                }
                if (a == 2 || a >= 10) { // every operation
                    put_header(b, FRISBEE_WIRE_V1, few[i], a, y << 16);
                    wrong += !sniffs_as(b, 8, 0, FRISBEE_OK, FRISBEE_WIRE_V1);
                    checked++;
                }
            }
    CHECK_EQ(wrong, 0);
    CHECK(checked > 30000000);
}

static void sniff_knows_openings_of_stock_v0_peers(void) {
    static const uint32_t few_lengths[] = {0, 1, 15, 0xFFFF, 0x10000, 0x20000, 0xA0000, 0x4F0000, MAX - 1, MAX};
    static const uint32_t few_operations[] = {2, 10, 11, 255, 256, 65279, 65280, 65535};
    uint32_t id, length, wrong = 0, misread = 0;
    size_t i, k;
    uint8_t b[8];
    for (id = 0; id < 0x10000; id++) // every id but 15, and that of a TLS greeting
        for (i = 0; i < 10; i++)
            for (k = 0; k < 8; k++) {
                if (id == 15 || id == 0x1603) continue;
                put_header(b, FRISBEE_WIRE_V0, id, few_operations[k], few_lengths[i]);
                wrong += !sniffs_as(b, 8, 0, FRISBEE_OK, FRISBEE_WIRE_V0) || !sniffs_as(b, 2, 0, FRISBEE_OK, FRISBEE_WIRE_V0);
            }
    CHECK_EQ(wrong, 0);
    for (k = 0; k < 8; k++) { // id 15, every length: the manual admits some that are misread, and they are exactly these
        misread = 0;
        for (length = 0; length <= MAX; length++) {
            put_header(b, FRISBEE_WIRE_V0, 15, few_operations[k], length);
            if (sniffs_as(b, 8, 0, FRISBEE_OK, FRISBEE_WIRE_V0)) continue;
            misread++;
            wrong += !sniffs_as(b, 8, 0, FRISBEE_OK, FRISBEE_WIRE_V1) || (length & 0xFFFF) > 0x50 || !(length >> 16 == 2 || length >> 16 >= 10);
        }
        CHECK_EQ(misread, 5752);
    }
    CHECK_EQ(wrong, 0);
    put_header(b, FRISBEE_WIRE_V0, 0, 0, 0); // PING, PONG
    CHECK(sniffs_as(b, 8, 0, FRISBEE_OK, FRISBEE_WIRE_V0));
    put_header(b, FRISBEE_WIRE_V0, 15, 1, 0);
    CHECK(sniffs_as(b, 8, 0, FRISBEE_OK, FRISBEE_WIRE_V0));
}

static void sniff_follows_the_rule_whole_and_chopped(void) {
    static const uint32_t limits[] = {0, 1, 1000, 65535, 65536, 300000, MAX, 64u << 20};
    static const uint32_t edges[] = {0, 1, 2, 3, 9, 10, 11, 15, 0x4F, 0x50, 0x51, 0xFF, 0x100, 0xFFF, 0xFFFF};
    uint32_t i, j, k, n;
    uint8_t b[8];
    frisbee_wire wire;
    frisbee_result told;
    size_t m;
    for (m = 0; m < sizeof limits / sizeof *limits; m++) {
        uint32_t max = limits[m] > MAX ? limits[m] : MAX; // a lower limit is frisbee_decode's to judge: TOO_LARGE, not MALFORMED
        for (i = 0; i < 15; i++)
            for (j = 0; j < 15; j++)
                for (k = 0; k < 15; k++) {
                    put16(b, 15), put16(b + 2, edges[i]), put16(b + 4, edges[j]), put16(b + 6, edges[k]);
                    told = told_by_rule(b, max, &wire);
                    CHECK(sniffs_as(b, 8, limits[m], told, wire));
                    check_chopped(b, 8, limits[m]);
                }
    }
    random_state = 7;
    for (n = 0; n < 200000; n++) {
        for (i = 0; i < 8; i++) b[i] = (uint8_t)(next_random() & 3 ? next_random() % 17 : next_random());
        if (n & 1) put16(b, 15);
        if (b[0] == 0x16 && b[1] == 3) continue;
        told = told_by_rule(b, MAX, &wire);
        CHECK(sniffs_as(b, 8, 0, told, wire));
        if (n % 16 == 0) check_chopped(b, 8, 0);
    }
}

// What else may knock on the port: each is refused within its first eight bytes, whole or chopped.
static void greetings_of_tls_and_http_are_refused(void) {
    static const struct { const char *data; size_t length; } greetings[] = {
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11}, {"\x16\x03\x03\x00\x7a\x01\x00\x00\x76\x03\x03", 11}, {"\x16\x03\x00\x00\x05\x01\x00\x00", 8},
        {"GET / HTTP/1.1\r\n", 16}, {"POST / HTTP/1.1\r\n", 17}, {"PUT /a HTTP/1.1\r\n", 17}, {"HEAD / HTTP/1.0\r\n", 17},
        {"OPTIONS * HTTP/1.1\r\n", 20}, {"DELETE /a HTTP/1.1", 18}, {"CONNECT a:1 HTTP/1.1", 20}, {"PRI * HTTP/2.0\r\n\r\nSM", 20},
        {"SSH-2.0-OpenSSH_9.2\r\n", 21}, {"EHLO example.org\r\n", 18},
    };
    size_t i, n;
    for (i = 0; i < sizeof greetings / sizeof *greetings; i++) {
        const uint8_t *data = (const uint8_t *)greetings[i].data;
        frisbee_wire wire;
        frisbee_packet packet;
        size_t used;
        check_chopped(data, 8, 0);
        if (data[0] == 0x16) CHECK_EQ(frisbee_sniff(data, greetings[i].length, 0, &wire), FRISBEE_MALFORMED);
        for (n = 0; n <= greetings[i].length; n++) {
            frisbee_result result = frisbee_decode(FRISBEE_WIRE_AUTO, at_guard(data, n), n, 0, &packet, &used);
            if (n < 8) CHECK(result == FRISBEE_AGAIN || result == FRISBEE_MALFORMED || result == FRISBEE_TOO_LARGE);
            else CHECK_EQ(result, data[0] == 0x16 ? FRISBEE_MALFORMED : FRISBEE_TOO_LARGE);
        }
    }
}

static void decode_auto_and_wait_tell_the_wire_each_time(void) {
    static const frisbee_wire either[] = {FRISBEE_WIRE_AUTO, FRISBEE_WIRE_WAIT};
    size_t w, e, n;
    for (e = 0; e < 2; e++)
        for (w = 0; w < 2; w++) {
            uint8_t data[64];
            size_t header = put_header(data, wires[w], 300, 10, 20), total = header + 20;
            memset(data + header, 0x55, 20);
            for (n = 0; n <= total; n++) {
                frisbee_packet packet;
                size_t used = 0;
                frisbee_result result = frisbee_decode(either[e], at_guard(data, n), n, 0, &packet, &used);
                if (n == total) {
                    CHECK_EQ(result, FRISBEE_OK);
                    CHECK_EQ(used, total);
                    CHECK_EQ(packet.from.id, 300);
                } else {
                    CHECK_EQ(result, FRISBEE_AGAIN);
                    CHECK(used > n && used <= total);
                }
            }
        }
}

// Random and half-random bytes, at a guard page: answers that hold together, and never a byte too far.
static void random_bytes_never_hurt(void) {
    static const frisbee_wire all[] = {FRISBEE_WIRE_AUTO, FRISBEE_WIRE_V0, FRISBEE_WIRE_V1, FRISBEE_WIRE_WAIT};
    static const size_t limits[] = {0, 1, 100, 70000, 0xFFFFFFFF};
    int i;
    random_state = 42;
    for (i = 0; i < 300000; i++) {
        uint8_t data[200], *at;
        size_t length = next_random() % (sizeof data + 1), limit = limits[next_random() % 5], used, n, offset = 0;
        frisbee_wire wire = all[i & 3], told;
        frisbee_packet packet;
        for (n = 0; n < length; n++) data[n] = (uint8_t)(next_random() & 1 ? next_random() : next_random() & 15);
        if (length > 1 && next_random() & 1) put16(data, 15);
        at = at_guard(data, length);
        for (n = 0; n < 64 && offset <= length; n++) {
            frisbee_result result = frisbee_decode(wire, at + offset, length - offset, limit, &packet, &used);
            if (result == FRISBEE_AGAIN) CHECK(used > length - offset);
            else if (result != FRISBEE_OK) CHECK(result == FRISBEE_MALFORMED || result == FRISBEE_TOO_LARGE);
            if (result != FRISBEE_OK) break;
            CHECK(used >= 8 && used <= length - offset && packet.length <= used - 8);
            CHECK(!packet.length || (const uint8_t *)packet.data + packet.length == at + offset + used);
            CHECK(packet.length <= (limit ? limit : MAX));
            offset += used;
        }
        (void)frisbee_sniff(at, length, limit, &told);
    }
    CHECK(i == 300000);
}

int main(int argc, char **argv) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    guarded = (uint8_t *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guarded == MAP_FAILED || mprotect(guarded + page, page, PROT_NONE)) return 2;
    guarded_room = page;
    RUN(encode_writes_both_headers);
    RUN(decode_fills_the_packet);
    RUN(decode_judges_every_length);
    RUN(decode_asks_for_what_is_missing_at_every_byte);
    RUN(decode_refuses_a_wrong_magic);
    RUN(encode_and_decode_are_inverse);
    RUN(sniff_knows_every_opening_of_stock_v1_peers);
    RUN(sniff_knows_openings_of_stock_v0_peers);
    RUN(sniff_follows_the_rule_whole_and_chopped);
    RUN(greetings_of_tls_and_http_are_refused);
    RUN(decode_auto_and_wait_tell_the_wire_each_time);
    RUN(random_bytes_never_hurt);
    return check_report("framing");
}
