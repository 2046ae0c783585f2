// The source file of the program that has the implementations.
#define FRISBEE_IMPLEMENTATION
#define FRPC_IMPLEMENTATION
#include "features.frpc.h"
#include "plain.frpc.h"
#include "google/protobuf/timestamp.frpc.h"
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
const test_features_v1_Work_functions *use_functions(void);
int use_messages(void);
#ifdef __cplusplus
}
#endif

int main(void) {
    frisbee_pool *pool;
    const int wrong = use_messages();
    if (frisbee_pool_create(NULL, &pool) != FRISBEE_OK) return 20;
    if (test_features_v1_Work_serve(pool, use_functions(), NULL, NULL) != FRISBEE_OK) return 21;
    if (test_features_v1_Work_serve(pool, use_functions(), NULL, NULL) != FRISBEE_INVALID) return 22; // its operations are taken
    frisbee_pool_destroy(pool);
    if (wrong) printf("use_messages answered %d\n", wrong);
    return wrong;
}
