// Polyglot and messages (sections 13 and 14 of the manual): the bytes, the limits, the errors, messages of every shape.
#define FRISBEE_IMPLEMENTATION
#include "../frisbee.h"

#include "check.h"

#include <float.h>
#include <math.h>

#define HEX(text) unhex(text, hex_room), sizeof(text) / 2

static uint8_t hex_room[512];

static const uint8_t *unhex(const char *text, uint8_t *into) { // NULL terminated, two digits a byte
    static const char digits[] = "0123456789abcdef";
    uint8_t *to = into;
    for (; text[0] && text[1]; text += 2)
        *to++ = (uint8_t)((strchr(digits, text[0]) - digits) << 4 | (strchr(digits, text[1]) - digits));
    return into;
}

// ---- values

static void each_kind_has_its_bytes(void) {
    uint8_t data[256];
    frisbee_encoder e;
    frisbee_decoder d;
    static const char expected[] = "09800" "80cffffffff0f" "0ec8519e16" "0701" "0700" "08ff" "09ffff03" "0affffffff0f" "0bffffffffffffffffff01"
                                   "0cfeffffff0f" "0dffffffffffffffffff01" "0dfeffffffffffffffff01" "0fbff0000000000000" "00";
    uint8_t wanted[128];
    const size_t length = (sizeof expected - 1) / 2;
    const float wanted_single = -214648.34432f;
    float single;
    frisbee_encoder_begin(&e, data, sizeof data);
    frisbee_put_u16(&e, 1024);
    frisbee_put_i32(&e, INT32_MIN);
    frisbee_put_f32(&e, -214648.34432f);
    frisbee_put_bool(&e, true);
    frisbee_put_bool(&e, false);
    frisbee_put_u8(&e, 255);
    frisbee_put_u16(&e, 65535);
    frisbee_put_u32(&e, UINT32_MAX);
    frisbee_put_u64(&e, UINT64_MAX);
    frisbee_put_i32(&e, INT32_MAX);
    frisbee_put_i64(&e, INT64_MIN);
    frisbee_put_i64(&e, INT64_MAX);
    frisbee_put_f64(&e, -1.0);
    frisbee_put_nil(&e);
    CHECK_EQ(e.result, FRISBEE_OK);
    CHECK_EQ(e.length, length);
    CHECK(memcmp(data, unhex(expected, wanted), length) == 0);

    frisbee_decoder_begin(&d, data, e.length);
    CHECK_EQ(frisbee_peek_kind(&d), FRISBEE_KIND_U16);
    CHECK_EQ(frisbee_get_u16(&d), 1024);
    CHECK_EQ(frisbee_get_i32(&d), INT32_MIN);
    single = frisbee_get_f32(&d);
    CHECK(memcmp(&single, &wanted_single, sizeof single) == 0); // by bits: compilers may compute with more
    CHECK(frisbee_get_bool(&d));
    CHECK(!frisbee_get_bool(&d));
    CHECK_EQ(frisbee_get_u8(&d), 255);
    CHECK_EQ(frisbee_get_u16(&d), 65535);
    CHECK(frisbee_get_u32(&d) == UINT32_MAX);
    CHECK(frisbee_get_u64(&d) == UINT64_MAX);
    CHECK_EQ(frisbee_get_i32(&d), INT32_MAX);
    CHECK(frisbee_get_i64(&d) == INT64_MIN);
    CHECK(frisbee_get_i64(&d) == INT64_MAX);
    CHECK(frisbee_get_f64(&d) == -1.0);
    CHECK(frisbee_get_nil(&d));
    CHECK_EQ(frisbee_peek_kind(&d), -1);
    CHECK_EQ(d.result, FRISBEE_OK);
}

static void texts_slices_and_maps_have_their_bytes(void) {
    uint8_t data[128];
    frisbee_encoder e;
    frisbee_decoder d;
    frisbee_string text;
    frisbee_bytes bytes;
    const frisbee_bytes three = {"\x00\x01\x02", 3};
    frisbee_encoder_begin(&e, data, sizeof data);
    frisbee_put_slice(&e, FRISBEE_KIND_STRING, 3);
    frisbee_put_string(&e, frisbee_string_of("1"));
    frisbee_put_string(&e, frisbee_string_of("2"));
    frisbee_put_string(&e, frisbee_string_of("3"));
    CHECK(e.length == 16 && memcmp(data, unhex("01050a03050a0131050a0132050a0133", hex_room), 16) == 0);
    frisbee_encoder_begin(&e, data, sizeof data);
    frisbee_put_map(&e, FRISBEE_KIND_STRING, FRISBEE_KIND_U32, 1);
    frisbee_put_string(&e, frisbee_string_of("1"));
    frisbee_put_u32(&e, 1);
    CHECK(e.length == 11 && memcmp(data, unhex("02050a0a01050a01310a01", hex_room), 11) == 0);
    frisbee_put_error(&e, frisbee_string_of("Test String"));
    frisbee_put_bytes(&e, three);
    frisbee_put_string(&e, frisbee_string_of(NULL));
    CHECK(memcmp(data + 11, unhex("06050a0b5465737420537472696e67" "040a03000102" "050a00", hex_room), 24) == 0);
    CHECK_EQ(e.length, 11 + 24);

    frisbee_decoder_begin(&d, data, e.length);
    CHECK_EQ(frisbee_get_map(&d, FRISBEE_KIND_STRING, FRISBEE_KIND_U32), 1);
    text = frisbee_get_string(&d);
    CHECK(frisbee_string_is(text, "1") && text.data == (const char *)data + 8); // borrowed
    CHECK_EQ(frisbee_get_u32(&d), 1);
    CHECK(!frisbee_get_nil(&d) && d.result == FRISBEE_OK);
    CHECK(frisbee_get_error(&d, &text) && frisbee_string_is(text, "Test String"));
    CHECK(!frisbee_get_error(&d, &text) && d.result == FRISBEE_OK && text.length == 0);
    bytes = frisbee_get_bytes(&d);
    CHECK(bytes.length == 3 && memcmp(bytes.data, "\x00\x01\x02", 3) == 0);
    CHECK_EQ(frisbee_get_string(&d).length, 0);
    CHECK(d.result == FRISBEE_OK && d.at == d.end);
}

// The first error stays, with its name, and what follows answers zero.
static void errors_stay(void) {
    frisbee_decoder d;
    frisbee_decoder_begin(&d, HEX("0a050b07"));
    CHECK_EQ(frisbee_get_u64(&d), 0);
    CHECK(d.result == FRISBEE_MALFORMED && strcmp(d.error, "a Uint64 was expected") == 0);
    CHECK(frisbee_get_u32(&d) == 0 && frisbee_get_string(&d).length == 0 && !frisbee_get_nil(&d) && frisbee_peek_kind(&d) == -1);
    CHECK(frisbee_get_f64(&d) == 0 && !frisbee_get_bool(&d) && frisbee_get_slice(&d, FRISBEE_KIND_BOOL) == 0);
    CHECK(strcmp(d.error, "a Uint64 was expected") == 0);
    frisbee_decoder_begin(&d, NULL, 0);
    CHECK(frisbee_get_i32(&d) == 0 && d.result == FRISBEE_MALFORMED && strcmp(d.error, "the data end too early") == 0);
}

static frisbee_result read_as(frisbee_kind kind, const char *hex, const char **error) {
    frisbee_decoder d;
    const size_t length = strlen(hex) / 2;
    uint8_t *exact = (uint8_t *)malloc(length + 1); // of the very size, so that a sanitizer sees a read beyond
    if (!exact) exit(2);
    memcpy(exact, unhex(hex, hex_room), length);
    frisbee_decoder_begin(&d, exact, length);
    switch (kind) {
    case FRISBEE_KIND_U16: (void)frisbee_get_u16(&d); break;
    case FRISBEE_KIND_U32: (void)frisbee_get_u32(&d); break;
    case FRISBEE_KIND_U64: (void)frisbee_get_u64(&d); break;
    case FRISBEE_KIND_I32: (void)frisbee_get_i32(&d); break;
    case FRISBEE_KIND_I64: (void)frisbee_get_i64(&d); break;
    case FRISBEE_KIND_BOOL: (void)frisbee_get_bool(&d); break;
    case FRISBEE_KIND_U8: (void)frisbee_get_u8(&d); break;
    case FRISBEE_KIND_F32: (void)frisbee_get_f32(&d); break;
    case FRISBEE_KIND_F64: (void)frisbee_get_f64(&d); break;
    case FRISBEE_KIND_STRING: (void)frisbee_get_string(&d); break;
    case FRISBEE_KIND_BYTES: (void)frisbee_get_bytes(&d); break;
    case FRISBEE_KIND_SLICE: (void)frisbee_get_slice(&d, FRISBEE_KIND_U8); break;
    case FRISBEE_KIND_MAP: (void)frisbee_get_map(&d, FRISBEE_KIND_U8, FRISBEE_KIND_U8); break;
    case FRISBEE_KIND_ERROR: (void)frisbee_get_error(&d, NULL); break;
    case FRISBEE_KIND_NIL:
    case FRISBEE_KIND_ANY: break;
    }
    *error = d.error ? d.error : "";
    free(exact);
    return d.result;
}

static void malformed_values_are_refused(void) {
    static const struct {
        frisbee_kind kind;
        const char *hex, *error;
    } cases[] = {
        {FRISBEE_KIND_U16, "09", "the data end too early"},
        {FRISBEE_KIND_U16, "0980", "the data end too early"},
        {FRISBEE_KIND_U16, "09808004", "a number is out of its range"},
        {FRISBEE_KIND_U16, "0980808000", "a number is out of its range"},
        {FRISBEE_KIND_U32, "0a8080808010", "a number is out of its range"},
        {FRISBEE_KIND_U32, "0a808080808000", "a number is out of its range"},
        {FRISBEE_KIND_U64, "0b80808080808080808002", "a number is out of its range"},
        {FRISBEE_KIND_U64, "0b8080808080808080808000", "a number is out of its range"},
        {FRISBEE_KIND_I32, "0cffffffff1f", "a number is out of its range"},
        {FRISBEE_KIND_I64, "0dffffffffffffffffff02", "a number is out of its range"},
        {FRISBEE_KIND_BOOL, "0702", "a Bool is neither 0 nor 1"},
        {FRISBEE_KIND_BOOL, "07", "the data end too early"},
        {FRISBEE_KIND_BOOL, "0801", "a Bool was expected"},
        {FRISBEE_KIND_U8, "08", "the data end too early"},
        {FRISBEE_KIND_F32, "0e010203", "the data end too early"},
        {FRISBEE_KIND_F64, "0f01020304050607", "the data end too early"},
        {FRISBEE_KIND_STRING, "050a0141424380", ""},
        {FRISBEE_KIND_STRING, "050a04414243", "a length is larger than what follows"},
        {FRISBEE_KIND_STRING, "050affffffff0f41", "a length is larger than what follows"},
        {FRISBEE_KIND_STRING, "05090141", "a Uint32 was expected"},
        {FRISBEE_KIND_BYTES, "050a0141", "Bytes were expected"},
        {FRISBEE_KIND_SLICE, "01080a0308", "a count is larger than what follows"},
        {FRISBEE_KIND_SLICE, "01090a00", "a Slice has elements of another kind"},
        {FRISBEE_KIND_SLICE, "01", "the data end too early"},
        {FRISBEE_KIND_MAP, "0208080a0108", "a count is larger than what follows"},
        {FRISBEE_KIND_MAP, "0208090a00", "a Map has keys or values of another kind"},
        {FRISBEE_KIND_ERROR, "0641", "a String was expected"},
    };
    const char *error;
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const frisbee_result result = read_as(cases[i].kind, cases[i].hex, &error);
        const bool good = *cases[i].error == 0;
        if (!CHECK(result == (good ? FRISBEE_OK : FRISBEE_MALFORMED) && strcmp(error, cases[i].error) == 0))
            fprintf(stderr, "%s: %s, %s\n", cases[i].hex, frisbee_result_string(result), error);
    }
    CHECK_EQ(read_as(FRISBEE_KIND_U32, "0a8000", &error), FRISBEE_OK); // longer than needed is no error
}

static void limits_of_the_reader_hold(void) {
    frisbee_decoder d;
    frisbee_decoder_begin(&d, HEX("050a03414243"));
    d.max_length = 2;
    CHECK(frisbee_get_string(&d).length == 0 && d.result == FRISBEE_TOO_LARGE);
    frisbee_decoder_begin(&d, HEX("01080a03080108020803"));
    d.max_count = 2;
    CHECK(frisbee_get_slice(&d, FRISBEE_KIND_U8) == 0 && d.result == FRISBEE_TOO_LARGE);
}

// ---- messages: a table for each shape, by lists and by hand

#define INNER(F, T) F(T, one, string, name) F(T, one, i32, size)
FRISBEE_MESSAGE(inner, INNER)

#define ALL(F, T)                                                                                                                             \
    F(T, sub, inner, single) F(T, one, bool, b) F(T, one, u8, byte) F(T, one, u16, word) F(T, one, u32, n32) F(T, one, u64, n64)              \
    F(T, one, i32, s32) F(T, one, i64, s64) F(T, one, f32, x32) F(T, one, f64, x64) F(T, one, string, text) F(T, one, bytes, blob)           \
    F(T, optional, i64, maybe) F(T, optional, string, maybe_text) F(T, many, bool, bools) F(T, many, u16, words) F(T, many, f32, floats)     \
    F(T, many, i64, longs) F(T, many, string, texts) F(T, many, bytes, blobs) F(T, subs, inner, inners) F(T, map, string, u64, counts)       \
    F(T, map, i32, bytes, blob_of) F(T, submap, u32, inner, inner_of)
FRISBEE_MESSAGE(all, ALL)

typedef int32_t color;
static const frisbee_enum_value color_values[] = {{"RED", 0}, {"GREEN", 5}, {"VERT", 5}, {"LOW", INT32_MIN}};
static const frisbee_enum color_enum = {"color", color_values, 4, false};
static const frisbee_enum_value level_values[] = {{"OFF", 0}, {"ON", 1}};
static const frisbee_enum level_enum = {"level", level_values, 2, true};

typedef struct tree tree;
struct tree {
    color own;
    int32_t level;
    uint32_t what_case;
    union {
        frisbee_string text;
        const tree *child;
        color other;
    } what;
    const color *colors;
    uint32_t colors_count;
    const tree *next;
    const tree *kids;
    uint32_t kids_count;
};
extern const frisbee_type tree_type;
#define AT(member) ((uint32_t)offsetof(tree, member))
static const frisbee_field tree_fields[] = {
    {"own", 1, FRISBEE_KIND_U32, FRISBEE_SHAPE_ONE, AT(own), 0, NULL, &color_enum},
    {"text", 2, FRISBEE_KIND_STRING, FRISBEE_SHAPE_CHOICE, AT(what.text), AT(what_case), NULL, NULL},
    {"child", 3, FRISBEE_KIND_ANY, FRISBEE_SHAPE_CHOICE, AT(what.child), AT(what_case), &tree_type, NULL},
    {"other", 4, FRISBEE_KIND_U32, FRISBEE_SHAPE_CHOICE, AT(what.other), AT(what_case), NULL, &color_enum},
    {"level", 5, FRISBEE_KIND_U32, FRISBEE_SHAPE_ONE, AT(level), 0, NULL, &level_enum},
    {"colors", 6, FRISBEE_KIND_U32, FRISBEE_SHAPE_MANY, AT(colors), AT(colors_count), NULL, &color_enum},
    {"kids", 7, FRISBEE_KIND_ANY, FRISBEE_SHAPE_MANY, AT(kids), AT(kids_count), &tree_type, NULL},
    {"next", 8, FRISBEE_KIND_ANY, FRISBEE_SHAPE_ONE, AT(next), 0, &tree_type, NULL},
};
const frisbee_type tree_type = {"tree", tree_fields, 8, sizeof(tree)};

static const bool some_bools[] = {true, false};
static const uint16_t some_words[] = {0, 127, 128, 65535};
static const float some_floats[] = {0, -1.5f};
static const int64_t some_longs[] = {INT64_MIN, -1, 0, INT64_MAX};
static const frisbee_string some_texts[] = {{"", 0}, {"abc", 3}, {"\xFF\x00z", 3}};
static const frisbee_bytes some_blobs[] = {{"\x00", 1}, {NULL, 0}};
static const inner some_inners[] = {{{"a", 1}, 1}, {{"", 0}, 0}, {{"ccc", 3}, -3}};
static const all_counts_entry some_counts[] = {{{"one", 3}, 1}, {{"most", 4}, UINT64_MAX}};
static const all_blob_of_entry some_blob_of[] = {{-1, {"x", 1}}};
static const all_inner_of_entry some_inner_of[] = {{7, &some_inners[0]}, {8, NULL}, {9, &some_inners[2]}};

static all full_message(void) {
    all m;
    memset(&m, 0, sizeof m);
    m.single = &some_inners[2];
    m.b = true;
    m.byte = 200;
    m.word = 60000;
    m.n32 = UINT32_MAX;
    m.n64 = UINT64_MAX;
    m.s32 = INT32_MIN;
    m.s64 = INT64_MIN;
    m.x32 = -0.0f;
    m.x64 = DBL_MAX;
    m.text = frisbee_string_of("text");
    m.blob.data = "\x01\x02";
    m.blob.length = 2;
    m.has_maybe = true;
    m.maybe = -5;
    m.bools = some_bools, m.bools_count = 2;
    m.words = some_words, m.words_count = 4;
    m.floats = some_floats, m.floats_count = 2;
    m.longs = some_longs, m.longs_count = 4;
    m.texts = some_texts, m.texts_count = 3;
    m.blobs = some_blobs, m.blobs_count = 2;
    m.inners = some_inners, m.inners_count = 3;
    m.counts = some_counts, m.counts_count = 2;
    m.blob_of = some_blob_of, m.blob_of_count = 1;
    m.inner_of = some_inner_of, m.inner_of_count = 3;
    return m;
}

static union {
    uint64_t align;
    uint8_t bytes[1 << 16];
} block;

static frisbee_arena arena_of(size_t size) {
    frisbee_arena arena;
    frisbee_arena_begin(&arena, block.bytes, size);
    return arena;
}

static void messages_come_back_as_they_were(void) {
    const all m = full_message();
    all back;
    uint8_t data[1024];
    size_t length, measured, room, again;
    const char *error;
    frisbee_arena arena = arena_of(sizeof block.bytes);
    CHECK_EQ(frisbee_message_encode(&all_type, &m, data, sizeof data, &length), FRISBEE_OK);
    CHECK_EQ(frisbee_message_encode(&all_type, &m, NULL, 0, &measured), FRISBEE_OK);
    CHECK_EQ(measured, length);
    CHECK_EQ(frisbee_message_decode(&all_type, &back, &arena, data, length, &error), FRISBEE_OK);
    CHECK(error == NULL);
    CHECK(frisbee_message_equal(&all_type, &m, &back));
    CHECK(back.single && back.single->size == -3 && back.has_maybe && back.maybe == -5 && !back.has_maybe_text);
    CHECK(back.inner_of_count == 3 && back.inner_of[1].key == 8 && !back.inner_of[1].value && back.inner_of[2].value->size == -3);
    CHECK(back.texts[2].length == 3 && memcmp(back.texts[2].data, "\xFF\x00z", 3) == 0);
    CHECK(back.longs[3] == INT64_MAX && signbit(back.x32) && back.x64 == DBL_MAX && back.words[3] == 65535);
    for (room = 0; room < length; room++) { // with less room: TOO_LARGE, the needed length, and nothing behind the room is touched
        uint8_t *exact = (uint8_t *)malloc(room + 1);
        if (!exact) exit(2);
        exact[room] = 0xA5;
        CHECK(frisbee_message_encode(&all_type, &m, exact, room, &again) == FRISBEE_TOO_LARGE && again == length);
        CHECK_EQ(exact[room], 0xA5);
        free(exact);
    }
}

static void a_message_of_zeros_and_nil_are_short(void) {
    all back;
    inner small;
    uint8_t data[256];
    size_t length;
    frisbee_arena arena = arena_of(256);
    memset(&small, 0, sizeof small);
    CHECK_EQ(frisbee_message_encode(&inner_type, &small, data, sizeof data, &length), FRISBEE_OK);
    CHECK(length == 7 && memcmp(data, unhex("0800050a000c00", hex_room), 7) == 0);
    CHECK_EQ(frisbee_message_encode(&inner_type, NULL, data, sizeof data, &length), FRISBEE_OK);
    CHECK(length == 1 && data[0] == 0);
    memset(&back, 0xEE, sizeof back);
    CHECK_EQ(frisbee_message_decode(&all_type, &back, &arena, data, 1, NULL), FRISBEE_OK); // Nil: zeros
    CHECK(!back.single && back.text.length == 0 && back.inners_count == 0 && !back.has_maybe && back.x64 == 0);
    CHECK_EQ(frisbee_message_decode(&inner_type, &small, &arena, HEX("06050a026e6f"), NULL), FRISBEE_FAILED);
}

static void fields_stand_in_the_order_of_the_wire(void) {
    const color two[] = {5, INT32_MIN};
    tree kid, t;
    uint8_t data[256];
    size_t length;
    memset(&t, 0, sizeof t);
    memset(&kid, 0, sizeof kid);
    t.own = 5;
    t.what_case = 2;
    t.what.text = frisbee_string_of("x");
    t.level = 7; // a dense enum lets unknown values pass
    t.colors = two;
    t.colors_count = 2;
    t.next = &kid;
    CHECK_EQ(frisbee_message_encode(&tree_type, &t, data, sizeof data, &length), FRISBEE_OK);
    // flags; own at its place 1; the case and the text; level; slice of places; empty slice of messages; next with zeros
    unhex("0800" "0a01" "0a02050a0178" "0a07" "010a0a02" "0a010a03" "01030a00" "0800" "0a00" "00" "0a00" "010a0a00" "01030a00" "00", hex_room);
    CHECK_EQ(length, 40);
    CHECK(memcmp(data, hex_room, length) == 0);
    t.own = 3;
    CHECK_EQ(frisbee_message_encode(&tree_type, &t, data, sizeof data, &length), FRISBEE_INVALID); // no such value
    t.own = 0;
    t.what_case = 9;
    CHECK_EQ(frisbee_message_encode(&tree_type, &t, data, sizeof data, &length), FRISBEE_INVALID); // no such member
    t.what_case = 0;
    t.colors = NULL;
    CHECK_EQ(frisbee_message_encode(&tree_type, &t, data, sizeof data, &length), FRISBEE_INVALID); // a count without elements
}

static void enums_and_oneofs_are_checked_when_read(void) {
    tree t;
    const char *error;
    frisbee_arena arena = arena_of(1024);
    static const char head[] = "0800";
    char text[128];
    snprintf(text, sizeof text, "%s0a04", head); // own: place 4 of 4 values
    CHECK_EQ(frisbee_message_decode(&tree_type, &t, &arena, unhex(text, hex_room), 4, &error), FRISBEE_MALFORMED);
    CHECK(strcmp(error, "an enum has no such value") == 0 && t.own == 0);
    snprintf(text, sizeof text, "%s0a030a09", head);
    CHECK_EQ(frisbee_message_decode(&tree_type, &t, &arena, unhex(text, hex_room), 6, &error), FRISBEE_MALFORMED);
    CHECK(strcmp(error, "a oneof has no such member") == 0);
    snprintf(text, sizeof text, "%s0a030a040a020a01010a0a0001030a0000", head);
    CHECK_EQ(frisbee_message_decode(&tree_type, &t, &arena, unhex(text, hex_room), 19, &error), FRISBEE_OK);
    CHECK(t.own == INT32_MIN && t.what_case == 4 && t.what.other == 5 && t.level == 1 && !t.next);
    snprintf(text, sizeof text, "%s0a0000" "0a00010a0a0001030a0006050a0141", head); // an Error where a message of a message is
    CHECK_EQ(frisbee_message_decode(&tree_type, &t, &arena, unhex(text, hex_room), 20, &error), FRISBEE_MALFORMED);
}

// Each truncation is an error, and none reads beyond.
static void cut_messages_are_refused(void) {
    const all m = full_message();
    all back;
    uint8_t data[1024];
    size_t length, cut;
    CHECK_EQ(frisbee_message_encode(&all_type, &m, data, sizeof data, &length), FRISBEE_OK);
    for (cut = 0; cut < length; cut++) {
        uint8_t *exact = (uint8_t *)malloc(cut + 1);
        frisbee_arena arena = arena_of(sizeof block.bytes);
        const char *error = NULL;
        static const all zeros;
        if (!exact) exit(2);
        memcpy(exact, data, cut);
        CHECK_EQ(frisbee_message_decode(&all_type, &back, &arena, exact, cut, &error), FRISBEE_MALFORMED);
        CHECK(error && *error && frisbee_message_equal(&all_type, &back, &zeros));
        free(exact);
    }
}

static void an_arena_that_is_too_small_is_an_error(void) {
    const all m = full_message();
    all back;
    uint8_t data[1024];
    size_t length, size;
    bool enough = false;
    CHECK_EQ(frisbee_message_encode(&all_type, &m, data, sizeof data, &length), FRISBEE_OK);
    for (size = 0; !enough && size < sizeof block.bytes - 1; size++) {
        frisbee_arena arena = arena_of(size);
        frisbee_result result;
        const char *error;
        block.bytes[size] = 0x5A;
        result = frisbee_message_decode(&all_type, &back, &arena, data, length, &error);
        enough = result == FRISBEE_OK;
        CHECK(enough || (result == FRISBEE_NO_MEMORY && strcmp(error, "the arena is used up") == 0));
        CHECK_EQ(block.bytes[size], 0x5A);
        CHECK(arena.used <= size);
    }
    CHECK(enough && size > 100);
    {
        frisbee_arena arena;
        size_t before = 0;
        frisbee_arena_begin(&arena, block.bytes + 1, 1000); // any alignment
        while (before < 50) {
            uint8_t *taken = (uint8_t *)frisbee_arena_take(&arena, before);
            if (!taken) break;
            CHECK_EQ((uintptr_t)taken % (2 * sizeof(void *)), 0);
            memset(taken, 1, before++);
        }
        CHECK(before > 20 && !frisbee_arena_take(&arena, (size_t)-1));
    }
}

static void depth_is_limited_both_ways(void) {
    tree chain[66], back;
    uint8_t data[4096];
    size_t length;
    int i;
    const char *error;
    frisbee_arena arena = arena_of(sizeof block.bytes);
    memset(chain, 0, sizeof chain);
    for (i = 0; i < 63; i++) chain[i].next = &chain[i + 1];
    CHECK_EQ(frisbee_message_encode(&tree_type, chain, data, sizeof data, &length), FRISBEE_OK); // 64 of them
    CHECK_EQ(frisbee_message_decode(&tree_type, &back, &arena, data, length, &error), FRISBEE_OK);
    CHECK(frisbee_message_equal(&tree_type, chain, &back));
    chain[63].next = &chain[64];
    CHECK_EQ(frisbee_message_encode(&tree_type, chain, data, sizeof data, &length), FRISBEE_INVALID);
    chain[63].next = chain; // a ring
    CHECK_EQ(frisbee_message_encode(&tree_type, chain, NULL, 0, &length), FRISBEE_INVALID);
    CHECK(!frisbee_message_equal(&tree_type, chain, chain)); // ends
    CHECK(frisbee_message_print(&tree_type, chain, NULL, 0) > 1000);
    // an element that is Nil is a struct, which counts
    for (i = 0, length = 0; i < 64; i++, length += 15) memcpy(data + length, unhex("08000a00000a00010a0a0001030a01", hex_room), 15);
    data[length++] = 0;
    for (i = 0; i < 64; i++) data[length++] = 0; // next of each
    CHECK_EQ(frisbee_message_decode(&tree_type, &back, &arena, data, length, &error), FRISBEE_TOO_LARGE);
    // deeper by hand: 70 times the head of a message up to next, which is the last field
    for (i = 0, length = 0; i < 70; i++, length += 15) memcpy(data + length, unhex("08000a00000a00010a0a0001030a00", hex_room), 15);
    data[length++] = 0;
    CHECK_EQ(frisbee_message_decode(&tree_type, &back, &arena, data, length, &error), FRISBEE_TOO_LARGE);
    CHECK(error && strstr(error, "max_depth") != NULL);
}

// A few bytes that claim much memory do not get it.
static void claims_cost_what_they_bring(void) {
    frisbee_pool_desc desc;
    frisbee_pool *pool;
    frisbee_stats stats;
    tree t;
    uint8_t *data;
    const size_t kids = 100000;
    size_t i;
    memset(&desc, 0, sizeof desc);
    desc.max_decoded = 1 << 20;
    CHECK_EQ(frisbee_pool_create(&desc, &pool), FRISBEE_OK);
    CHECK_EQ(frisbee_message_decode(&tree_type, &t, frisbee_pool_arena(pool), HEX("08000a00000a00010a0a0001030affffffff0f"), NULL), FRISBEE_MALFORMED);
    data = (uint8_t *)malloc(32 + kids);
    if (!data) exit(2);
    memset(data, 0, 32 + kids); // each kid a Nil: one byte, and a whole struct here
    memcpy(data, unhex("08000a00000a00010a0a0001030aa08d06", hex_room), 17);
    CHECK_EQ(frisbee_message_decode(&tree_type, &t, frisbee_pool_arena(pool), data, 18 + kids, NULL), FRISBEE_NO_MEMORY);
    for (i = 0; i < 10; i++) (void)frisbee_message_decode(&tree_type, &t, frisbee_pool_arena(pool), data, 18 + kids, NULL);
    CHECK_EQ(frisbee_pool_stats(pool, &stats), FRISBEE_OK);
    CHECK(stats.memory < (2 << 20));
    frisbee_pool_destroy(pool);
    free(data);
}

static void a_difference_anywhere_is_seen(void) {
    const all m = full_message();
    all n;
    inner other = some_inners[0];
    int64_t longs[4];
    inner inners[3];
    all_counts_entry counts[2];
    all_inner_of_entry inner_of[3];
    float minus = -0.0f;
#define DIFFERS(change)                                                                                                                          \
    n = m;                                                                                                                                       \
    change;                                                                                                                                      \
    CHECK(!frisbee_message_equal(&all_type, &m, &n))
    n = m;
    CHECK(frisbee_message_equal(&all_type, &m, &n));
    CHECK(!frisbee_message_equal(&all_type, &m, NULL));
    DIFFERS(n.b = false);
    DIFFERS(n.byte++);
    DIFFERS(n.word++);
    DIFFERS(n.n32--);
    DIFFERS(n.n64--);
    DIFFERS(n.s32++);
    DIFFERS(n.s64++);
    DIFFERS(n.x32 = 0.0f);
    DIFFERS(n.x64 = 1);
    DIFFERS(n.text.length--);
    DIFFERS(n.text = frisbee_string_of("texT"));
    DIFFERS(n.blob.length = 1);
    DIFFERS(n.has_maybe = false);
    DIFFERS(n.maybe = 5);
    DIFFERS(n.has_maybe_text = true);
    DIFFERS(n.single = NULL);
    DIFFERS(n.single = &other);
    DIFFERS(n.bools_count = 1);
    DIFFERS((memcpy(longs, some_longs, sizeof longs), longs[2] = 1, n.longs = longs));
    DIFFERS((memcpy(inners, some_inners, sizeof inners), inners[2].size = 0, n.inners = inners));
    DIFFERS((memcpy(counts, some_counts, sizeof counts), counts[1].value = 2, n.counts = counts));
    DIFFERS((memcpy(inner_of, some_inner_of, sizeof inner_of), inner_of[1].value = &other, n.inner_of = inner_of));
    n = m; // a map in another order, and with an entry that a later one overrules
    counts[0] = some_counts[1];
    counts[1] = some_counts[0];
    n.counts = counts;
    CHECK(frisbee_message_equal(&all_type, &m, &n));
    inner_of[0] = some_inner_of[0], inner_of[1] = some_inner_of[1], inner_of[2] = some_inner_of[2];
    n.inner_of = inner_of;
    CHECK(frisbee_message_equal(&all_type, &m, &n));
    n.x32 = minus;
    CHECK(frisbee_message_equal(&all_type, &m, &n));
    n.x64 = (double)NAN;
    CHECK(frisbee_message_equal(&all_type, &n, &n)); // by bits
#undef DIFFERS
}

static void copies_are_deep(void) {
    const all m = full_message();
    all copy;
    tree t, of_tree;
    frisbee_arena arena = arena_of(sizeof block.bytes);
    memset(&copy, 0, sizeof copy);
    CHECK_EQ(frisbee_message_copy(&all_type, &copy, &m, &arena), FRISBEE_OK);
    CHECK(frisbee_message_equal(&all_type, &m, &copy));
    CHECK(copy.text.data != m.text.data && copy.longs != m.longs && copy.single != m.single);
    CHECK((const uint8_t *)copy.text.data >= block.bytes && (const uint8_t *)copy.text.data < block.bytes + sizeof block.bytes);
    memset(&t, 0, sizeof t);
    t.own = 77;
    CHECK_EQ(frisbee_message_copy(&tree_type, &of_tree, &t, &arena), FRISBEE_INVALID);
    arena = arena_of(16);
    CHECK_EQ(frisbee_message_copy(&all_type, &copy, &m, &arena), FRISBEE_NO_MEMORY);
}

static void messages_are_printed_like_snprintf(void) {
    static const char expected[] = "tree {own: LOW, text: \"a\\\"\\x0a\", level: 7, colors: [RED, GREEN], kids: [tree {own: RED, level: OFF, colors: [], kids: []}]}";
    const color two[] = {0, 5};
    tree kid, t;
    char text[256];
    size_t room;
    memset(&kid, 0, sizeof kid);
    memset(&t, 0, sizeof t);
    t.own = INT32_MIN;
    t.what_case = 2;
    t.what.text = frisbee_string_of("a\"\n");
    t.level = 7;
    t.colors = two, t.colors_count = 2;
    t.kids = &kid, t.kids_count = 1;
    for (room = 0; room < sizeof expected + 5; room++) {
        memset(text, 'Q', sizeof text);
        CHECK_EQ(frisbee_message_print(&tree_type, &t, text, room), sizeof expected - 1);
        if (room && !CHECK(strncmp(text, expected, room - 1) == 0 && text[room < sizeof expected ? room - 1 : sizeof expected - 1] == 0))
            fprintf(stderr, "%s\n", text);
        CHECK_EQ(text[room > sizeof expected - 1 ? sizeof expected : room], 'Q');
    }
    {
        const all m = full_message();
        char large[2048];
        CHECK(frisbee_message_print(&all_type, &m, large, sizeof large) < sizeof large);
        CHECK(strstr(large, "s64: -9223372036854775808") && strstr(large, "n64: 18446744073709551615") && strstr(large, "inner_of: {7: inner {") &&
              strstr(large, "8: nil") && strstr(large, "x32: -0") && strstr(large, "blob: \"\\x01\\x02\""));
    }
}

// ---- bytes that were changed: an error, or a message that can be encoded, printed and copied

static uint64_t state = 3;

static uint32_t draw(uint32_t below) { // splitmix64
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) % below);
}

static void changed_bytes_do_no_harm(void) {
    enum { ROUNDS = 40000 };
    const all m = full_message();
    uint8_t data[1024], out[4096];
    char text[256];
    size_t whole, length, again;
    int round, good = 0;
    CHECK_EQ(frisbee_message_encode(&all_type, &m, data, sizeof data, &whole), FRISBEE_OK);
    for (round = 0; round < ROUNDS; round++) {
        frisbee_arena arena = arena_of(32768);
        uint8_t *exact;
        uint32_t changes = 1 + draw(3);
        all back;
        length = draw(8) ? whole : draw((uint32_t)whole);
        exact = (uint8_t *)malloc(length + 1);
        if (!exact) exit(2);
        memcpy(exact, data, length);
        while (changes-- > 0 && length) exact[draw((uint32_t)length)] = (uint8_t)draw(draw(2) ? 256 : 16);
        if (frisbee_message_decode(&all_type, &back, &arena, exact, length, NULL) == FRISBEE_OK) {
            good++;
            CHECK_EQ(frisbee_message_encode(&all_type, &back, out, sizeof out, &again), FRISBEE_OK);
            CHECK(frisbee_message_print(&all_type, &back, text, sizeof text) > 0);
            CHECK(frisbee_message_equal(&all_type, &back, &back));
        }
        free(exact);
    }
    CHECK(good > ROUNDS / 20 && good < ROUNDS);
}

int main(int argc, char **argv) {
    RUN(each_kind_has_its_bytes);
    RUN(texts_slices_and_maps_have_their_bytes);
    RUN(errors_stay);
    RUN(malformed_values_are_refused);
    RUN(limits_of_the_reader_hold);
    RUN(messages_come_back_as_they_were);
    RUN(a_message_of_zeros_and_nil_are_short);
    RUN(fields_stand_in_the_order_of_the_wire);
    RUN(enums_and_oneofs_are_checked_when_read);
    RUN(cut_messages_are_refused);
    RUN(an_arena_that_is_too_small_is_an_error);
    RUN(depth_is_limited_both_ways);
    RUN(claims_cost_what_they_bring);
    RUN(a_difference_anywhere_is_seen);
    RUN(copies_are_deep);
    RUN(messages_are_printed_like_snprintf);
    RUN(changed_bytes_do_no_harm);
    return check_report("polyglot");
}
