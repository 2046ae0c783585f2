// The C side of the test of typed calls: a server and a client over what frpc wrote from frpc.proto. peer.go, a stock Go program, is the other side.
//
//     frpc_peer server FILE          writes its address to FILE and serves until it is killed
//     frpc_peer client FILE          reads the server's address from FILE, and checks
#define FRISBEE_IMPLEMENTATION
#define FRPC_IMPLEMENTATION
#include "frpc.frpc.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WAIT_MS = 10000 };

// ---- server

static void echo(frisbee_pool *pool, const frisbee_rpc *rpc, const interop_All *request, void *user) {
    (void)user;
    (void)interop_Checks_Echo_reply(pool, rpc, request);
}

static void fail(frisbee_pool *pool, const frisbee_rpc *rpc, const interop_Range *request, void *user) {
    char text[256];
    (void)user;
    snprintf(text, sizeof text, "%.*s", (int)request->fail.length, request->fail.data ? request->fail.data : "");
    (void)frisbee_rpc_fail(pool, rpc, text);
}

typedef struct counting {
    int64_t next, last;
    char fail[256];
} counting;

static void count_on(frisbee_pool *pool, const frisbee_rpc *rpc) {
    counting *own = (counting *)frisbee_rpc_state(pool, rpc);
    while (own && own->next <= own->last) {
        const interop_Number number = {own->next};
        if (interop_Checks_Count_reply(pool, rpc, &number) != FRISBEE_OK) return;
        own->next++;
    }
    if (own && *own->fail) (void)frisbee_rpc_fail(pool, rpc, own->fail);
    else (void)frisbee_rpc_finish(pool, rpc);
}

static void count(frisbee_pool *pool, const frisbee_rpc *rpc, const interop_Range *request, void *user) {
    counting *own = (counting *)calloc(1, sizeof *own);
    (void)user;
    if (!own || frisbee_rpc_set_state(pool, rpc, own) != FRISBEE_OK) exit(2);
    own->next = request->first;
    own->last = request->last;
    snprintf(own->fail, sizeof own->fail, "%.*s", (int)request->fail.length, request->fail.data ? request->fail.data : "");
    count_on(pool, rpc);
}

static void sum(frisbee_pool *pool, const frisbee_rpc *rpc, const interop_Number *request, void *user) {
    interop_Number *own = (interop_Number *)frisbee_rpc_state(pool, rpc);
    (void)user;
    if (request) own->value += request->value;
    else (void)interop_Checks_Sum_reply(pool, rpc, own);
}

static void twice(frisbee_pool *pool, const frisbee_rpc *rpc, const interop_Number *request, void *user) {
    (void)user;
    if (!request) (void)frisbee_rpc_finish(pool, rpc);
    else if (request->value == -1) (void)frisbee_rpc_fail(pool, rpc, "negative");
    else {
        const interop_Number number = {request->value * 2};
        (void)interop_Checks_Twice_reply(pool, rpc, &number);
    }
}

static void next(frisbee_pool *pool, const frisbee_rpc *rpc, const interop_Number *request, void *user) {
    const interop_Number number = {request->value + 1};
    (void)user;
    (void)interop_More_Next_reply(pool, rpc, &number);
}

static void on_open(frisbee_pool *pool, const frisbee_rpc *rpc, void *user) {
    (void)user;
    if (rpc->method == &interop_Checks_methods[3]) (void)frisbee_rpc_set_state(pool, rpc, calloc(1, sizeof(interop_Number)));
}

static void on_writable(frisbee_pool *pool, const frisbee_rpc *rpc, void *user) {
    (void)user;
    if (rpc->method == &interop_Checks_methods[2]) count_on(pool, rpc);
}

static void on_close(frisbee_pool *pool, const frisbee_rpc *rpc, frisbee_result reason, void *user) {
    (void)user;
    (void)reason;
    free(frisbee_rpc_state(pool, rpc));
}

static int serve(const char *path) {
    static const interop_Checks_functions checks = {echo, fail, count, sum, twice};
    static const interop_More_functions more = {next};
    static const frisbee_rpc_events events = {on_open, on_writable, on_close};
    frisbee_listener listener;
    frisbee_pool *pool;
    char address[64], temporary[512];
    FILE *file;
    if (frisbee_pool_create(NULL, &pool) != FRISBEE_OK || interop_Checks_serve(pool, &checks, &events, NULL) != FRISBEE_OK) return 1;
    if (interop_More_serve(pool, &more, NULL, NULL) != FRISBEE_OK || frisbee_listen(pool, "127.0.0.1:0", NULL, &listener) != FRISBEE_OK) return 1;
    if (frisbee_listener_address(pool, listener, address, sizeof address) != FRISBEE_OK) return 1;
    snprintf(temporary, sizeof temporary, "%s.new", path);
    file = fopen(temporary, "w");
    if (!file || fprintf(file, "%s\n", address) < 0 || fclose(file) != 0 || rename(temporary, path) != 0) return 1;
    alarm(120); // nobody killed it
    return frisbee_run(pool) != FRISBEE_OK;
}

// ---- client

static int failures;

static void check(bool good, const char *what, frisbee_result result) {
    if (good) printf("ok   C client: %s\n", what);
    else printf("FAIL C client: %s (%s)\n", what, frisbee_result_string(result));
    failures += !good;
}

static void check_echo(frisbee_pool *pool, frisbee_conn conn, const interop_All *sent, const char *what) {
    interop_All back;
    frisbee_rpc_outcome outcome;
    const frisbee_result result = interop_Checks_Echo_wait(pool, conn, sent, WAIT_MS, &back, &outcome);
    check(result == FRISBEE_OK && interop_All_equal(sent, &back), what, result);
}

static interop_All largest(void) {
    interop_All m;
    memset(&m, 0, sizeof m);
    m.b = true;
    m.i32 = m.s32 = m.sf32 = INT32_MAX;
    m.i64 = m.s64 = m.sf64 = INT64_MAX;
    m.u32 = m.f32 = UINT32_MAX;
    m.u64 = m.f64 = UINT64_MAX;
    m.real = FLT_MAX;
    m.exact = DBL_MAX;
    m.level = interop_Level_HIGH;
    m.gapped = interop_Gapped_HUNDRED;
    return m;
}

static interop_All smallest(void) {
    interop_All m;
    memset(&m, 0, sizeof m);
    m.i32 = m.s32 = m.sf32 = INT32_MIN;
    m.i64 = m.s64 = m.sf64 = INT64_MIN;
    m.real = FLT_MIN;
    m.exact = -DBL_MIN;
    m.level = interop_Level_LOW;
    m.gapped = interop_Gapped_TEN;
    return m;
}

static interop_All nested(void) {
    static const interop_Point points[] = {{-1, 1, {"origin, nearly", 14}}, {0, -2, {"b", 1}}, {0, 0, {NULL, 0}}};
    static const interop_All_points_entry by_name[] = {{{"first", 5}, &points[0]}, {{"second", 6}, &points[1]}, {{"", 0}, &points[2]}};
    static const interop_All_numbers_entry numbers[] = {{-5, INT64_MIN}, {5, INT64_MAX}};
    static const interop_All_names_entry names[] = {{UINT64_MAX, {"most", 4}}};
    static const interop_All_halves_entry halves[] = {{true, 0.5}, {false, -0.5}};
    static const frisbee_string strings[] = {{"", 0}, {"a", 1}, {"b\0c", 3}};
    static const bool bools[] = {true, false};
    static const int32_t i32s[] = {INT32_MIN, 0, INT32_MAX};
    static const int64_t i64s[] = {INT64_MIN, -1, INT64_MAX};
    static const uint32_t u32s[] = {0, 127, 128, UINT32_MAX};
    static const uint64_t u64s[] = {0, UINT64_MAX};
    static const float reals[] = {0, -1.5f};
    static const double exacts[] = {3.14159};
    interop_All m = largest();
    m.point = &points[0];
    m.points = by_name, m.points_count = 3;
    m.path = points, m.path_count = 3;
    m.strings = strings, m.strings_count = 3;
    m.bools = bools, m.bools_count = 2;
    m.i32s = i32s, m.i32s_count = 3;
    m.i64s = i64s, m.i64s_count = 3;
    m.u32s = u32s, m.u32s_count = 4;
    m.u64s = u64s, m.u64s_count = 2;
    m.reals = reals, m.reals_count = 2;
    m.exacts = exacts, m.exacts_count = 1;
    m.numbers = numbers, m.numbers_count = 2;
    m.names = names, m.names_count = 1;
    m.halves = halves, m.halves_count = 2;
    m.text = frisbee_string_of("text");
    m.data.data = "\0\1\377";
    m.data.length = 3;
    return m;
}

typedef struct tally {
    int64_t replies, sum, wrong;
    int ends;
    frisbee_result result;
    char error[256];
} tally;

static void on_number(frisbee_pool *pool, const frisbee_rpc *rpc, const frisbee_rpc_outcome *outcome, const interop_Number *response, void *user) {
    tally *own = (tally *)user;
    (void)pool;
    (void)rpc;
    if (response) {
        own->replies++;
        own->sum += response->value;
    }
    if (!outcome) return;
    own->ends++;
    own->wrong += outcome->result != FRISBEE_OK;
    own->result = outcome->result;
    snprintf(own->error, sizeof own->error, "%.*s", (int)outcome->error.length, outcome->error.data ? outcome->error.data : "");
}

static void run_until(frisbee_pool *pool, const tally *own, int ends) {
    int turns;
    for (turns = 0; turns < 10000 && own->ends < ends; turns++) (void)frisbee_poll(pool, 100);
}

static void check_concurrent(frisbee_pool *pool, frisbee_conn conn) {
    tally own;
    int i;
    memset(&own, 0, sizeof own);
    for (i = 0; i < 1000; i++) {
        const interop_Number number = {i};
        own.wrong += interop_More_Next(pool, conn, &number, NULL, on_number, &own, NULL) != FRISBEE_OK;
    }
    run_until(pool, &own, 1000);
    check(own.replies == 1000 && own.sum == 500500 && own.wrong == 0 && own.ends == 1000, "1,000 concurrent calls, of the second service", own.result);
}

static void check_count(frisbee_pool *pool, frisbee_conn conn, int64_t last, const char *error, const char *what) {
    interop_Range range;
    tally own;
    memset(&own, 0, sizeof own);
    memset(&range, 0, sizeof range);
    range.first = 1;
    range.last = last;
    range.fail = frisbee_string_of(error);
    own.wrong = interop_Checks_Count(pool, conn, &range, NULL, on_number, &own, NULL) != FRISBEE_OK;
    run_until(pool, &own, 1);
    check(own.replies == last && own.sum == last * (last + 1) / 2 && own.ends == 1 && own.result == (error ? FRISBEE_FAILED : FRISBEE_OK) &&
              strcmp(own.error, error ? error : "") == 0,
          what, own.result);
}

static void check_sum(frisbee_pool *pool, frisbee_conn conn) {
    frisbee_rpc rpc;
    tally own;
    int i;
    memset(&own, 0, sizeof own);
    own.wrong = interop_Checks_Sum(pool, conn, NULL, on_number, &own, &rpc) != FRISBEE_OK;
    for (i = 1; i <= 1000; i++) {
        const interop_Number number = {i};
        own.wrong += interop_Checks_Sum_send(pool, &rpc, &number) != FRISBEE_OK;
    }
    own.wrong += frisbee_rpc_finish(pool, &rpc) != FRISBEE_OK;
    run_until(pool, &own, 1);
    check(own.wrong == 0 && own.ends == 1 && own.replies == 1 && own.sum == 500500, "client streaming", own.result);
}

static void check_twice(frisbee_pool *pool, frisbee_conn conn, bool negative, const char *what) {
    const interop_Number minus = {-1};
    frisbee_rpc_outcome outcome;
    frisbee_rpc rpc;
    interop_Number response;
    frisbee_result result;
    bool good = interop_Checks_Twice(pool, conn, NULL, NULL, NULL, &rpc) == FRISBEE_OK;
    int i;
    for (i = 1; i <= 100 && good; i++) {
        const interop_Number number = {i};
        good = interop_Checks_Twice_send(pool, &rpc, &number) == FRISBEE_OK;
        good = good && interop_Checks_Twice_receive(pool, &rpc, WAIT_MS, &response, &outcome) == FRISBEE_OK && response.value == 2 * i;
    }
    good = good && (negative ? interop_Checks_Twice_send(pool, &rpc, &minus) : frisbee_rpc_finish(pool, &rpc)) == FRISBEE_OK;
    result = interop_Checks_Twice_receive(pool, &rpc, WAIT_MS, &response, &outcome);
    check(good && result == (negative ? FRISBEE_FAILED : FRISBEE_CLOSED) && (!negative || frisbee_string_is(outcome.error, "negative")), what, result);
}

static void check_stock_limits(frisbee_pool *pool, frisbee_conn conn) {
    frisbee_outcome outcome;
    const frisbee_result result = frisbee_call_wait(pool, conn, 10, "\10\0\5", 3, 300, &outcome);
    check(result == FRISBEE_TIMED_OUT, "a stock server does not answer what it cannot decode", result);
}

static frisbee_result compared;

static void on_compared(frisbee_pool *pool, frisbee_conn conn, frisbee_result result, void *user) {
    (void)pool;
    (void)conn;
    compared = result;
    *(int *)user = 1;
}

static void check_compare(frisbee_pool *pool, frisbee_conn conn) {
    int told = 0, turns;
    compared = frisbee_service_compare(pool, conn, &interop_Checks_service, 300, on_compared, &told);
    for (turns = 0; turns < 100 && !told; turns++) (void)frisbee_poll(pool, 100);
    check(told && compared == FRISBEE_TIMED_OUT, "a stock server knows no fingerprints", compared);
}

static void opened(frisbee_pool *pool, frisbee_conn conn, void *user) {
    (void)pool;
    (void)conn;
    *(bool *)user = true;
}

static int call(const char *path) {
    static frisbee_events events;
    static interop_All_numbers_entry entries[500];
    interop_All m;
    interop_Range range;
    interop_Number number;
    frisbee_rpc_outcome outcome;
    frisbee_result result;
    frisbee_conn_desc desc;
    frisbee_pool *pool;
    frisbee_conn conn;
    char address[64] = "", *large = (char *)calloc(1, 1 << 20);
    bool is_open = false;
    FILE *file = fopen(path, "r");
    int i;
    if (!large || !file || !fgets(address, sizeof address, file) || fclose(file) != 0) return 1;
    address[strcspn(address, "\n")] = 0;
    alarm(60);
    events.on_open = opened;
    memset(&desc, 0, sizeof desc);
    desc.events = &events;
    desc.user = &is_open;
    desc.wire = FRISBEE_WIRE_V0; // of frisbee-go v0.10.2, which frpc-go is built on
    desc.streams = frisbee_rpc_streams();
    if (frisbee_pool_create(NULL, &pool) != FRISBEE_OK || frisbee_connect(pool, address, &desc, &conn) != FRISBEE_OK) return 1;
    while (!is_open) (void)frisbee_poll(pool, 1000);
    memset(&m, 0, sizeof m);
    check_echo(pool, conn, &m, "a message of zeros");
    m = largest();
    check_echo(pool, conn, &m, "all scalars at their upper limits");
    m = smallest();
    check_echo(pool, conn, &m, "all scalars at their lower limits");
    m = nested();
    check_echo(pool, conn, &m, "nested and repeated messages and maps");
    m.text.data = large;
    m.text.length = 1 << 20;
    m.data.data = large;
    m.data.length = 1 << 20;
    check_echo(pool, conn, &m, "a text and bytes of 1 MiB");
    memset(&m, 0, sizeof m);
    m.real = -0.0f;
    m.exact = (double)INFINITY;
    check_echo(pool, conn, &m, "infinity and minus zero");
    m.exact = (double)NAN;
    check_echo(pool, conn, &m, "NaN");
    for (i = 0; i < 500; i++) {
        entries[i].key = i;
        entries[i].value = i * INT64_C(1000000000000000);
    }
    m = nested();
    m.numbers = entries;
    m.numbers_count = 500;
    check_echo(pool, conn, &m, "a map of 500 entries");
    memset(&range, 0, sizeof range);
    range.fail = frisbee_string_of("as asked for");
    result = interop_Checks_Fail_wait(pool, conn, &range, WAIT_MS, &number, &outcome);
    check(result == FRISBEE_FAILED && frisbee_string_is(outcome.error, "as asked for"), "an error", result);
    check_concurrent(pool, conn);
    check_count(pool, conn, 1000, NULL, "server streaming");
    check_count(pool, conn, 10, "no more", "server streaming that ends with an error");
    check_count(pool, conn, 0, NULL, "server streaming of nothing");
    check_sum(pool, conn);
    check_twice(pool, conn, false, "bidirectional streaming");
    check_twice(pool, conn, true, "bidirectional streaming that ends with an error");
    check_stock_limits(pool, conn);
    check_compare(pool, conn);
    m = largest();
    check_echo(pool, conn, &m, "and all goes on");
    frisbee_pool_destroy(pool);
    free(large);
    return failures != 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    return strcmp(argv[1], "server") == 0 ? serve(argv[2]) : call(argv[2]);
}
