// bench.h - the little that the benches share. Included behind frisbee.h and its implementation, under _GNU_SOURCE. Linux only.
#ifndef BENCH_H
#define BENCH_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static double now(void) { return (double)frisbeei_system_clock() / 1e6; } // seconds

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void pin(size_t core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

#endif
