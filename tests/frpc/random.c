// Random messages of every type of a generated header: what is encoded comes back equal, cut and changed bytes do no harm.
//
//     cc -I. -Igenerated -DHEADER='"name.frpc.h"' -DTYPES='&a_type, &b_type,' tests/frpc/random.c && ./a.out [ROUNDS [SEED]]
#define FRISBEE_IMPLEMENTATION
#define FRPC_IMPLEMENTATION
#include HEADER
#include <stdio.h>
#include <stdlib.h>

static const frisbee_type *const types[] = {TYPES};

enum { DEEPEST = 6, BLOCK = 1 << 20 };

static uint64_t state;

static uint32_t draw(uint32_t below) { // splitmix64
    uint64_t z = (state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) % below);
}

static uint64_t draw_bits(void) { // of any magnitude
    const uint64_t high = (uint64_t)draw(0x7FFFFFFF) << 33, low = draw(0x7FFFFFFF);
    return (high | low << 1 | draw(2)) >> draw(64);
}

static void fill(frisbee_arena *arena, const frisbee_type *type, uint8_t *message, uint32_t depth);

static void *taken(frisbee_arena *arena, size_t size) {
    void *block = frisbee_arena_take(arena, size ? size : 1);
    if (!block) {
        printf("the message is larger than the block\n");
        exit(1);
    }
    memset(block, 0, size);
    return block;
}

static void put_pointer(uint8_t *at, const void *pointer) { memcpy(at, &pointer, sizeof pointer); }

static void fill_text(frisbee_arena *arena, void *at) {
    frisbee_string string;
    uint32_t i;
    char *data;
    string.length = draw(4) ? draw(12) : draw(300);
    data = (char *)taken(arena, string.length);
    for (i = 0; i < string.length; i++) data[i] = (char)draw(256);
    string.data = data;
    memcpy(at, &string, sizeof string);
}

static void fill_value(frisbee_arena *arena, const frisbee_field *field, uint8_t *at, uint32_t depth) {
    const uint64_t bits = draw_bits() * (draw(2) ? 1u : UINT64_MAX);
    const uint32_t half = (uint32_t)bits;
    const bool truth = draw(2) == 1;
    const uint16_t quarter = (uint16_t)bits;
    const uint8_t byte = (uint8_t)bits;
    switch ((frisbee_kind)field->kind) {
    case FRISBEE_KIND_ANY: fill(arena, field->type, at, depth + 1); break;
    case FRISBEE_KIND_BYTES:
    case FRISBEE_KIND_STRING: fill_text(arena, at); break;
    case FRISBEE_KIND_BOOL: memcpy(at, &truth, sizeof truth); break;
    case FRISBEE_KIND_U8: *at = byte; break;
    case FRISBEE_KIND_U16: memcpy(at, &quarter, 2); break;
    case FRISBEE_KIND_U32:
        if (field->values) memcpy(at, &field->values->values[draw(field->values->count)].number, 4);
        else memcpy(at, &half, 4);
        break;
    case FRISBEE_KIND_I32:
    case FRISBEE_KIND_F32: memcpy(at, &half, 4); break;
    default: memcpy(at, &bits, 8); break;
    }
}

static size_t value_size(const frisbee_field *field) {
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
    default: return 8;
    }
}

static void fill_single(frisbee_arena *arena, const frisbee_field *field, uint8_t *at, uint32_t depth) {
    uint8_t *message;
    if (field->kind != FRISBEE_KIND_ANY) {
        fill_value(arena, field, at, depth);
        return;
    }
    if (depth >= DEEPEST || draw(3) == 0) return;
    message = (uint8_t *)taken(arena, field->type->size);
    fill_value(arena, field, message, depth);
    put_pointer(at, message);
}

static void fill_many(frisbee_arena *arena, const frisbee_field *field, uint8_t *message, uint32_t depth) {
    const bool map = field->shape == FRISBEE_SHAPE_MAP;
    const size_t size = map ? field->type->size : value_size(field);
    const uint32_t count = depth >= DEEPEST ? 0 : draw(depth ? 3 : 6);
    uint8_t *elements = (uint8_t *)taken(arena, count * size);
    uint32_t i;
    for (i = 0; i < count; i++) {
        if (!map) fill_value(arena, field, elements + i * size, depth);
        else {
            fill_value(arena, &field->type->fields[0], elements + i * size + field->type->fields[0].offset, depth);
            fill_single(arena, &field->type->fields[1], elements + i * size + field->type->fields[1].offset, depth);
        }
    }
    put_pointer(message + field->offset, elements);
    memcpy(message + field->count, &count, sizeof count);
}

static void fill(frisbee_arena *arena, const frisbee_type *type, uint8_t *message, uint32_t depth) {
    uint32_t i, members = 0;
    for (i = 0; i < type->field_count; i++) {
        const frisbee_field *field = &type->fields[i];
        const bool has = true;
        switch ((frisbee_shape)field->shape) {
        case FRISBEE_SHAPE_ONE: fill_single(arena, field, message + field->offset, depth); break;
        case FRISBEE_SHAPE_MANY:
        case FRISBEE_SHAPE_MAP: fill_many(arena, field, message, depth); break;
        case FRISBEE_SHAPE_OPTIONAL:
            if (draw(2)) break;
            memcpy(message + field->count, &has, sizeof has);
            fill_value(arena, field, message + field->offset, depth);
            break;
        case FRISBEE_SHAPE_CHOICE: // none, or one of the members, each as likely
            if (i == 0 || type->fields[i - 1].shape != FRISBEE_SHAPE_CHOICE || type->fields[i - 1].count != field->count) members = 1;
            if (draw(++members) != 0) break;
            memset(message + field->offset, 0, field->kind == FRISBEE_KIND_ANY ? sizeof(void *) : value_size(field));
            memcpy(message + field->count, &field->number, sizeof field->number);
            fill_single(arena, field, message + field->offset, depth);
            break;
        }
    }
}

static void fail(const frisbee_type *type, const char *what, const char *error) {
    printf("%s: %s%s%s\n", type->name, what, error ? ": " : "", error ? error : "");
    exit(1);
}

// Bytes that are cut off or changed: an error or another message, which can be encoded again.
static void harm(const frisbee_type *type, const uint8_t *data, size_t length, void *message, void *block) {
    uint8_t *copy = (uint8_t *)malloc(length + 1);
    frisbee_arena arena;
    size_t room;
    uint32_t i;
    const uint32_t changes = draw(4);
    const size_t cut = draw(3) ? length : draw((uint32_t)length + 1);
    if (!copy) exit(1);
    memcpy(copy, data, cut);
    for (i = 0; i < changes && cut; i++) copy[draw((uint32_t)cut)] = (uint8_t)draw(draw(2) ? 256 : 16);
    frisbee_arena_begin(&arena, block, BLOCK);
    if (frisbee_message_decode(type, message, &arena, copy, cut, NULL) == FRISBEE_OK) {
        if (frisbee_message_encode(type, message, NULL, 0, &room) != FRISBEE_OK) fail(type, "what was decoded cannot be encoded", NULL);
        (void)frisbee_message_print(type, message, NULL, 0);
    }
    free(copy);
}

static void round_trip(const frisbee_type *type, void *made, void *read, void *blocks[2]) {
    frisbee_arena arena;
    size_t length = 0, again = 0;
    const char *error = NULL;
    uint8_t *data;
    memset(made, 0, type->size);
    frisbee_arena_begin(&arena, blocks[0], BLOCK);
    fill(&arena, type, (uint8_t *)made, 0);
    if (frisbee_message_encode(type, made, NULL, 0, &length) != FRISBEE_OK) fail(type, "cannot be measured", NULL);
    data = (uint8_t *)malloc(length);
    if (!data || frisbee_message_encode(type, made, data, length, &again) != FRISBEE_OK || again != length) fail(type, "cannot be encoded", NULL);
    frisbee_arena_begin(&arena, blocks[1], BLOCK);
    if (frisbee_message_decode(type, read, &arena, data, length, &error) != FRISBEE_OK) fail(type, "cannot be decoded", error);
    if (!frisbee_message_equal(type, made, read)) fail(type, "is not what it was", NULL);
    harm(type, data, length, read, blocks[1]);
    free(data);
}

int main(int argc, char **argv) {
    const uint32_t rounds = argc > 1 ? (uint32_t)atoi(argv[1]) : 100;
    const size_t count = sizeof types / sizeof types[0];
    void *blocks[2];
    size_t i;
    uint32_t round;
    state = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    blocks[0] = malloc(BLOCK);
    blocks[1] = malloc(BLOCK);
    for (i = 0; i < count; i++) {
        void *made = malloc(types[i]->size), *read = malloc(types[i]->size);
        if (!made || !read || !blocks[0] || !blocks[1]) return 1;
        for (round = 0; round < rounds; round++) round_trip(types[i], made, read, blocks);
        free(made);
        free(read);
    }
    printf("%lu types, %lu messages of each came back as they were\n", (unsigned long)count, (unsigned long)rounds);
    free(blocks[0]);
    free(blocks[1]);
    return 0;
}
