// What a second source file of a program sees: declarations alone, with the names that features.proto promises.
#include "features.frpc.h"
#include "plain.frpc.h"

#include <string.h>

static void one(frisbee_pool *pool, const frisbee_rpc *rpc, const test_features_v1_Everything *request, void *user) {
    const test_features_v1_Empty empty = {0};
    (void)request;
    (void)user;
    (void)test_features_v1_Work_One_reply(pool, rpc, &empty);
}

#ifdef __cplusplus
extern "C" {
#endif
const test_features_v1_Work_functions *use_functions(void);
int use_messages(void);
#ifdef __cplusplus
}
#endif

const test_features_v1_Work_functions *use_functions(void) {
    static test_features_v1_Work_functions functions;
    functions.One = one;
    functions.delete_ = NULL;
    return &functions;
}

// 0: all is as it should be.
int use_messages(void) {
    test_features_v1_Everything message, back;
    test_features_v1_Everything_Inner inner;
    unsigned char data[1024], block[4096];
    frisbee_arena arena;
    size_t length;
    const char *error;
    Point point;
    memset(&message, 0, sizeof message);
    memset(&inner, 0, sizeof inner);
    memset(&point, 0, sizeof point);
    point.Point = &point;
    if (Point_encode(&point, data, sizeof data, &length) != FRISBEE_INVALID) return 1; // a ring
    inner.text = frisbee_string_of("inner");
    message.int_ = -1;
    message.NULL_ = true;
    message.color = test_features_v1_Color_LOW;
    message.union_case = test_features_v1_Everything_union_inner;
    message.union_.inner = &inner;
    message.second_case = test_features_v1_Everything_second_a;
    message.second.a = 7;
    message.has_maybe = true;
    message.maybe_inner = &inner;
    if (test_features_v1_Everything_encode(&message, data, sizeof data, &length) != FRISBEE_OK) return 2;
    frisbee_arena_begin(&arena, block, sizeof block);
    if (test_features_v1_Everything_decode(&back, &arena, data, length, &error) != FRISBEE_OK) return 3;
    if (!test_features_v1_Everything_equal(&message, &back) || back.union_.inner == &inner) return 4;
    if (strcmp(test_features_v1_Color_name(5), "GREEN") != 0 || test_features_v1_Color_name(6)) return 5;
    if (test_features_v1_Everything_print(&back, NULL, 0) < 100) return 6;
    if (test_features_v1_Work_methods[3].operation != OPERATION + 3 || test_features_v1_Work_service.method_count != 5) return 7;
    return test_features_v1_Nothing_service.method_count == 0 ? 0 : 8;
}
