// peer.h - what the C programs of the interop test share: contents that both languages can compute, reports, and addresses in files.
#ifndef PEER_H
#define PEER_H

#include "../../frisbee.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { OFFSETS = 65521 }; // payloads begin at so many places of the pattern

static uint8_t pattern[FRISBEE_PACKET_MAX + OFFSETS];

static void make_pattern(void) { // xorshift32
    uint32_t x = 2463534242u;
    size_t i;
    for (i = 0; i < sizeof pattern; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        pattern[i] = (uint8_t)(x >> 24);
    }
}

// The payload that belongs to a number: numbers below OFFSETS differ in where they begin.
static const uint8_t *content(uint32_t number) { return pattern + number % OFFSETS * 7919u % OFFSETS; }

// An answer has all bits of what it answers inverted.
static bool inverted(const uint8_t *data, const uint8_t *original, uint32_t length) {
    uint32_t i;
    for (i = 0; i < length; i++)
        if ((data[i] ^ original[i]) != 0xFF) return false;
    return true;
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int failures;
static const char *role;

static void report(const char *who, bool ok, const char *format, ...) { // who NULL: the whole program
    va_list arguments;
    va_start(arguments, format);
    printf("%s %s: ", ok ? "ok  " : "FAIL", who ? who : role);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    if (!ok) failures++;
}

// The address takes its file's place whole: who sees the file sees all of it.
static bool write_address(const char *file, const char *address) {
    char temporary[512];
    FILE *out;
    if (snprintf(temporary, sizeof temporary, "%s.new", file) >= (int)sizeof temporary) return false;
    out = fopen(temporary, "w");
    if (!out) return false;
    fprintf(out, "%s\n", address);
    return fclose(out) == 0 && rename(temporary, file) == 0;
}

static bool read_address(const char *file, char *address, int room) {
    FILE *in = fopen(file, "r");
    bool read = in && fgets(address, room, in);
    if (in) fclose(in);
    if (read) address[strcspn(address, "\n")] = 0;
    return read;
}

// Listens on any port of 127.0.0.1 and writes the address to the file.
static bool serve(frisbee_pool *pool, const frisbee_conn_desc *desc, const char *file) {
    char address[128];
    frisbee_listener listener;
    return frisbee_listen(pool, "127.0.0.1:0", desc, &listener) == FRISBEE_OK &&
           frisbee_listener_address(pool, listener, address, sizeof address) == FRISBEE_OK && write_address(file, address);
}

#endif // PEER_H
