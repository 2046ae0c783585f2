// check.h - the little that the tests share: named cases, checks that count, and the line `suite: N passed, N failed`.
// A check that fails prints where and what, and the case goes on; a case passes if none of its checks failed.
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_cases_passed, check_cases_failed, check_failures, check_count;
static const char *check_case = "";

// Evaluates `condition` once. Usable from callbacks and helpers, on the main thread.
#define CHECK(condition) check_that((condition) ? 1 : 0, #condition, __FILE__, __LINE__)

// Compares integers and shows both on failure.
#define CHECK_EQ(actual, expected) check_equal((long long)(actual), (long long)(expected), #actual " == " #expected, __FILE__, __LINE__)

// Runs `static void name(void)` as a case; with arguments on the command line, only the cases whose name contains one of them.
#define RUN(name) check_run(#name, name, argc, argv)

static int check_that(int holds, const char *text, const char *file, int line) {
    check_count++;
    if (!holds) {
        check_failures++;
        fprintf(stderr, "%s:%d: %s: failed: %s\n", file, line, check_case, text);
    }
    return holds;
}

static int check_equal(long long actual, long long expected, const char *text, const char *file, int line) {
    if (!check_that(actual == expected, text, file, line)) {
        fprintf(stderr, "    got %lld, expected %lld\n", actual, expected);
        return 0;
    }
    return 1;
}

static void check_run(const char *name, void (*test)(void), int argc, char **argv) {
    int wanted = argc <= 1, before = check_failures, count = check_count, i;
    for (i = 1; i < argc; i++)
        if (strstr(name, argv[i])) wanted = 1;
    if (!wanted) return;
    check_case = name;
    test();
    if (check_count == count) check_that(0, "the case checks something", name, 0);
    if (check_failures == before) check_cases_passed++;
    else check_cases_failed++;
}

// The suite's last line and exit status: `return check_report("framing");`
static int check_report(const char *suite) {
    (void)check_equal;
    printf("%s: %d passed, %d failed\n", suite, check_cases_passed, check_cases_failed);
    return check_cases_failed != 0;
}

#endif
