// file_transfer.c - sends a file over a stream, with a progress bar, a checksum, and calls that go on beside it on the same connection.
//
//     cc -I.. file_transfer.c -o file_transfer
//     ./file_transfer receive ADDRESS DIRECTORY [KIB_PER_SECOND]   takes files from any number of senders; never replaces one that is there
//     ./file_transfer send ADDRESS FILE
//     ./file_transfer --self-test             some MiB through a slow receiver in a temporary directory; exits 0 if all went as it should
//
// Shows: a stream opened in on_open of the connection; sending until FRISBEE_AGAIN and going on in on_writable, so that the sender holds one piece
// of the file and not the file; frisbee_stream_pause at the receiver, which stops the sender of this stream (credit runs out) and nothing else;
// frisbee_stream_bind and on_close, where what belongs to a stream is freed however it ended; names from a peer that are not trusted.
//
// A message is a letter and what belongs to it. The sender's:  N u64 size, name    D bytes    E u64 checksum (FNV-1a: it finds damage, not malice)
// The receiver's only one is its verdict: "ok", or what is wrong. Both may close the stream at any time.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OP_ECHO = 10, CHUNK = 32 * 1024, NAME_BYTES = 200, PATH_BYTES = 1024, TURN_MS = 10 };

static int failed(const char *what, frisbee_result result) {
    fprintf(stderr, "file_transfer: %s: %s\n", what, frisbee_result_string(result));
    return 1;
}

static const uint64_t checksum_start = 14695981039346656037u;

static uint64_t checksum(uint64_t sum, const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

static void put_u64(uint8_t *b, uint64_t value) {
    for (int i = 0; i < 8; i++) b[i] = (uint8_t)(value >> (56 - 8 * i));
}

static uint64_t get_u64(const uint8_t *b) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value = value << 8 | b[i];
    return value;
}

// ---- receiver

// A file on its way: the user pointer of a stream.
typedef struct incoming {
    struct incoming *next;
    frisbee_stream stream;
    FILE *file;                              // NULL: no name yet
    char path[PATH_BYTES], part[PATH_BYTES]; // where it is going, and where it is until it is whole
    uint64_t size, received, sum;
    int64_t allowance; // bytes that may still be written in this turn
} incoming;

static struct {
    const char *directory;
    int64_t per_turn; // bytes of each file in TURN_MS; 0: no limit
    incoming *all;
    unsigned pauses;
} receiver;

// A peer chooses the name: it must stay in our directory, be visible, and be safe to print.
static bool is_safe_name(const char *name, size_t length) {
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 32 || name[i] == 127 || name[i] == '/' || name[i] == '\\') return false;
    return length > 0 && length <= NAME_BYTES && name[0] != '.';
}

static void on_incoming(frisbee_pool *pool, frisbee_conn conn, frisbee_stream stream, void *user) {
    incoming *in = (incoming *)calloc(1, sizeof *in);
    (void)conn, (void)user;
    if (!in) {
        frisbee_stream_close(pool, stream);
        return;
    }
    in->stream = stream;
    in->sum = checksum_start;
    in->allowance = receiver.per_turn;
    in->next = receiver.all;
    receiver.all = in;
    frisbee_stream_bind(pool, stream, NULL, in); // on_incoming_close frees it, whatever happens
}

// NULL: go on. Else the verdict.
static const char *take_name(incoming *in, const uint8_t *data, size_t length) {
    const char *name = (const char *)data + 8;
    int descriptor;
    if (in->file || length < 8) return "not the protocol";
    if (!is_safe_name(name, length - 8)) return "not a name that we take";
    in->size = get_u64(data);
    snprintf(in->path, sizeof in->path, "%s/%.*s", receiver.directory, (int)(length - 8), name);
    snprintf(in->part, sizeof in->part, "%s/.%.*s.part", receiver.directory, (int)(length - 8), name); // no name that we take begins with a dot
    if (access(in->path, F_OK) == 0) return "a file of that name is there";
    // EXCL: no other transfer of this name, no link laid out for us. (What a receiver that was killed has left has to be removed by hand.)
    descriptor = open(in->part, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (descriptor < 0) return "cannot be created, or is on its way";
    in->file = fdopen(descriptor, "wb");
    if (in->file) return NULL;
    close(descriptor);
    unlink(in->part);
    return "out of memory";
}

static const char *take_bytes(incoming *in, const uint8_t *data, size_t length) {
    if (!in->file || length > in->size - in->received) return "not the protocol";
    if (fwrite(data, 1, length, in->file) != length) return "cannot be written";
    in->sum = checksum(in->sum, data, length);
    in->received += length;
    return NULL;
}

static const char *take_end(incoming *in, const uint8_t *data, size_t length) {
    bool written;
    if (!in->file || length != 8) return "not the protocol";
    written = fclose(in->file) == 0;
    in->file = NULL;
    if (written && in->received == in->size && get_u64(data) == in->sum) {
        written = link(in->part, in->path) == 0; // unlike rename, never replaces a file
        unlink(in->part);
        return written ? "ok" : "a file of that name is there";
    }
    unlink(in->part);
    return written ? "damaged on the way" : "cannot be written";
}

static void on_incoming_data(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    incoming *in = (incoming *)user;
    const uint8_t *bytes = (const uint8_t *)data + 1; // no message is empty
    const char *verdict = "not the protocol";
    switch (*(const char *)data) {
    case 'N': verdict = take_name(in, bytes, length - 1); break;
    case 'D': verdict = take_bytes(in, bytes, length - 1); break;
    case 'E': verdict = take_end(in, bytes, length - 1); break;
    }
    if (verdict) {
        printf("%s: %s\n", in->path[0] ? in->path : "a stream", verdict);
        fflush(stdout);
        frisbee_stream_send(pool, stream, verdict, strlen(verdict)); // should this fail, the close tells the sender that something did
        frisbee_stream_close(pool, stream);                          // behind it
    } else if (receiver.per_turn && (in->allowance -= length) <= 0) {
        frisbee_stream_pause(pool, stream, true); // what is under way is kept (a window at most); receiver_turn goes on
        receiver.pauses++;
    }
}

static void on_incoming_close(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    incoming *in = (incoming *)user, **link_to = &receiver.all;
    (void)pool, (void)stream, (void)reason;
    if (!in) return;
    while (*link_to != in) link_to = &(*link_to)->next;
    *link_to = in->next;
    if (in->file) fclose(in->file), unlink(in->part); // ended before its time
    free(in);
}

static void on_echo(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    (void)user;
    frisbee_reply(pool, &packet->from, packet->data, packet->length);
}

static const frisbee_stream_events receiver_streams = {.on_open = on_incoming, .on_data = on_incoming_data, .on_close = on_incoming_close};
static const frisbee_route receiver_routes[] = {{OP_ECHO, on_echo, NULL}};

// Gives every file its next allowance, once in TURN_MS.
static void receiver_turn(frisbee_pool *pool) {
    static struct timespec last;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((now.tv_sec - last.tv_sec) * 1000 + (now.tv_nsec - last.tv_nsec) / 1000000 < TURN_MS) return;
    last = now;
    for (incoming *in = receiver.all; in; in = in->next) {
        if (in->allowance <= 0) frisbee_stream_pause(pool, in->stream, false); // its messages come in the next poll
        in->allowance = receiver.per_turn;
    }
}

static frisbee_result start_receiver(const char *address, const char *directory, int64_t per_turn, frisbee_pool **pool, char *bound, size_t room) {
    frisbee_conn_desc desc = {.streams = &receiver_streams, .routes = receiver_routes, .route_count = 1, .max_streams = 16,
                              .max_packet = 1 + CHUNK}; // whoever sends more is no sender of ours
    frisbee_listener listener;
    frisbee_result result;
    receiver.directory = directory;
    receiver.per_turn = per_turn;
    if ((result = frisbee_pool_create(NULL, pool)) != FRISBEE_OK) return result;
    if ((result = frisbee_listen(*pool, address, &desc, &listener)) != FRISBEE_OK) return result;
    return frisbee_listener_address(*pool, listener, bound, room);
}

static int receive(const char *address, const char *directory, int64_t per_turn) {
    frisbee_pool *pool;
    char bound[128];
    frisbee_result result = start_receiver(address, directory, per_turn, &pool, bound, sizeof bound);
    if (result) return failed(address, result);
    printf("files for %s come in at %s\n", directory, bound);
    fflush(stdout);
    while ((result = frisbee_poll(pool, per_turn ? TURN_MS : FRISBEE_NEVER)) == FRISBEE_OK) receiver_turn(pool);
    frisbee_pool_destroy(pool);
    return failed("poll", result);
}

// ---- sender

typedef struct outgoing {
    FILE *file;
    const char *name;
    uint64_t size, sent, sum;
    uint8_t message[1 + CHUNK]; // read from the file and not yet taken by the stream
    size_t length;              // 0: none
    bool ended, over;           // ended: E was made
    int percent;                // that the bar shows
    char verdict[64];
    frisbee_result reason; // why the stream or the connection ended
} outgoing;

static void show_progress(outgoing *out) {
    int percent = out->size ? (int)(out->sent * 100 / out->size) : 100;
    if (percent == out->percent || !isatty(STDERR_FILENO)) return;
    out->percent = percent;
    fprintf(stderr, "\r%.40s [%.*s%*s] %3d%%%s", out->name, percent / 4, "#########################", 25 - percent / 4, "", percent,
            percent == 100 ? "\n" : "");
}

// Makes the next message. False: the file cannot be read.
static bool next_message(outgoing *out) {
    size_t n = fread(out->message + 1, 1, CHUNK, out->file);
    if (ferror(out->file)) return false;
    out->message[0] = n ? 'D' : 'E';
    out->sum = checksum(out->sum, out->message + 1, n);
    out->ended = n == 0;
    if (out->ended) put_u64(out->message + 1, out->sum);
    out->length = n ? 1 + n : 1 + 8;
    return true;
}

// Sends until the stream takes no more. It is also the stream's on_writable: called again when it does.
static void send_some(frisbee_pool *pool, frisbee_stream stream, void *user) {
    outgoing *out = (outgoing *)user;
    while (out->length || !out->ended) {
        frisbee_result result = out->length || next_message(out) ? frisbee_stream_send(pool, stream, out->message, out->length) : FRISBEE_SYSTEM;
        if (result == FRISBEE_AGAIN) return;
        if (result) {
            frisbee_stream_close(pool, stream); // without E: the receiver throws it away
            return;
        }
        if (out->message[0] == 'D') out->sent += out->length - 1, show_progress(out);
        out->length = 0;
    }
}

static void on_verdict(frisbee_pool *pool, frisbee_stream stream, const void *data, uint32_t length, void *user) {
    outgoing *out = (outgoing *)user;
    snprintf(out->verdict, sizeof out->verdict, "%.*s", (int)length, (const char *)data);
    frisbee_stream_close(pool, stream);
}

static void on_stream_close(frisbee_pool *pool, frisbee_stream stream, frisbee_result reason, void *user) {
    outgoing *out = (outgoing *)user;
    (void)pool, (void)stream;
    out->over = true;
    out->reason = reason;
}

static void on_open(frisbee_pool *pool, frisbee_conn conn, void *user) {
    outgoing *out = (outgoing *)user;
    size_t name_length = strlen(out->name);
    frisbee_stream stream;
    if (name_length > NAME_BYTES || frisbee_stream_open(pool, conn, NULL, out, &stream)) {
        frisbee_close(pool, conn, FRISBEE_CLOSE_NOW);
        return;
    }
    out->message[0] = 'N';
    put_u64(out->message + 1, out->size);
    memcpy(out->message + 9, out->name, name_length);
    out->length = 9 + name_length;
    send_some(pool, stream, out);
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    outgoing *out = (outgoing *)user;
    (void)pool, (void)conn;
    if (!out->over) out->reason = info->reason;
    out->over = true;
}

// No on_open: whoever opens a stream to us is refused.
static const frisbee_stream_events sender_streams = {.on_data = on_verdict, .on_writable = send_some, .on_close = on_stream_close};
static const frisbee_events sender_events = {.on_open = on_open, .on_close = on_close};

// Starts to send `path` under `name`. The caller polls until out->over.
static frisbee_result start_sender(outgoing *out, const char *address, const char *path, const char *name, frisbee_pool **pool,
                                   frisbee_conn *conn) {
    frisbee_conn_desc desc = {.events = &sender_events, .streams = &sender_streams, .user = out};
    struct stat about;
    frisbee_result result;
    memset(out, 0, sizeof *out);
    out->name = name;
    out->sum = checksum_start;
    out->percent = -1;
    *pool = NULL;
    if (!(out->file = fopen(path, "rb")) || fstat(fileno(out->file), &about)) return FRISBEE_SYSTEM;
    out->size = (uint64_t)about.st_size;
    if ((result = frisbee_pool_create(NULL, pool)) != FRISBEE_OK) return result;
    return frisbee_connect(*pool, address, &desc, conn);
}

static bool end_sender(outgoing *out, frisbee_pool *pool) {
    frisbee_pool_destroy(pool);
    if (out->file) fclose(out->file);
    return strcmp(out->verdict, "ok") == 0;
}

static int send_file(const char *address, const char *path) {
    static outgoing out;
    const char *slash = strrchr(path, '/');
    frisbee_pool *pool;
    frisbee_conn conn;
    frisbee_result result = start_sender(&out, address, path, slash ? slash + 1 : path, &pool, &conn);
    while (!result && !out.over) result = frisbee_poll(pool, FRISBEE_NEVER);
    if (end_sender(&out, pool)) return 0;
    if (result || !out.verdict[0]) return failed(path, result ? result : out.reason);
    fprintf(stderr, "file_transfer: %s: %s\n", path, out.verdict);
    return 1;
}

// ---- self-test: both sides on one thread, calls beside the transfer

enum { TEST_BYTES = 4 * 1024 * 1024 + 123, TEST_PER_TURN = 96 * 1024, TEST_TURNS = 20000 };

static struct {
    unsigned right, wrong, beside; // beside: while the stream was paused
    bool waiting;
    size_t memory; // the most that the receiving pool held
} test;

static void on_echoed(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call, (void)user;
    test.waiting = false;
    if (outcome->result == FRISBEE_OK && outcome->length == 5 && memcmp(outcome->data, "hello", 5) == 0) test.right++;
    else test.wrong++;
    if (receiver.all && receiver.all->allowance <= 0) test.beside++;
}

// Sends `path` as `name`, and calls meanwhile. True: the verdict is the expected one.
static bool transfer(frisbee_pool *receiving, const char *address, const char *path, const char *name, const char *expected) {
    static outgoing out;
    frisbee_call_desc call = {.on_reply = on_echoed};
    frisbee_pool *pool;
    frisbee_conn conn;
    frisbee_stats stats;
    frisbee_result result = start_sender(&out, address, path, name, &pool, &conn);
    for (int turn = 0; turn < TEST_TURNS && !out.over && !result; turn++) {
        if (!test.waiting) test.waiting = frisbee_call(pool, conn, OP_ECHO, "hello", 5, &call, NULL) == FRISBEE_OK;
        receiver_turn(receiving);
        frisbee_poll(receiving, 0);
        if (frisbee_pool_stats(receiving, &stats) == FRISBEE_OK && stats.memory > test.memory) test.memory = stats.memory;
        result = frisbee_poll(pool, 1);
    }
    for (int turn = 0; turn < TEST_TURNS && test.waiting; turn++) frisbee_poll(receiving, 0), frisbee_poll(pool, 1);
    end_sender(&out, pool);
    printf("    the sender of %s was told: %s\n", name, out.verdict);
    return !result && strcmp(out.verdict, expected) == 0;
}

static bool is_same(const char *one, const char *other) {
    FILE *a = fopen(one, "rb"), *b = fopen(other, "rb");
    bool same = a && b;
    for (int byte = 0; same && byte != EOF;) byte = getc(a), same = byte == getc(b);
    if (a) fclose(a);
    if (b) fclose(b);
    return same;
}

static bool make_file(const char *path) {
    FILE *file = fopen(path, "wb");
    uint32_t random = 1;
    for (int i = 0; file && i < TEST_BYTES; i++) putc((int)((random = random * 1664525u + 1013904223u) >> 24), file);
    return file && fclose(file) == 0;
}

static int self_test(void) {
    const char *temporary = getenv("TMPDIR");
    char directory[256], inbox[300], source[300], copy[400], address[128];
    frisbee_pool *pool = NULL;
    bool good;
    snprintf(directory, sizeof directory, "%s/file_transfer.XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(directory)) return failed("a temporary directory", FRISBEE_SYSTEM);
    snprintf(inbox, sizeof inbox, "%s/inbox", directory);
    snprintf(source, sizeof source, "%s/source", directory);
    snprintf(copy, sizeof copy, "%s/copy", inbox);
    good = mkdir(inbox, 0700) == 0 && make_file(source);
    good = good && start_receiver("127.0.0.1:0", inbox, TEST_PER_TURN, &pool, address, sizeof address) == FRISBEE_OK;
    printf("a file of %d bytes, to a receiver that takes %d KiB in %d ms:\n", TEST_BYTES, TEST_PER_TURN / 1024, TURN_MS);
    good = good && transfer(pool, address, source, "copy", "ok") && is_same(source, copy);
    printf("    it paused the stream %u times and held %u KiB at most; meanwhile %u calls were answered, %u of them during a pause, %u were not\n",
           receiver.pauses, (unsigned)(test.memory / 1024), test.right, test.beside, test.wrong);
    good = good && receiver.pauses > 0 && test.beside > 0 && !test.wrong && test.memory < TEST_BYTES / 2; // a window, not the file
    printf("names that are there already, or lead elsewhere:\n");
    good = good && transfer(pool, address, source, "copy", "a file of that name is there") && is_same(source, copy);
    good = good && transfer(pool, address, source, "../escaped", "not a name that we take");
    good = good && transfer(pool, address, source, ".profile", "not a name that we take");
    frisbee_pool_destroy(pool);
    unlink(copy);
    unlink(source);
    good = rmdir(inbox) == 0 && good; // and nothing else is left in it
    good = rmdir(directory) == 0 && good;
    printf("%s\n", good ? "all as it should be" : "file_transfer: FAILED");
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--self-test") == 0) return self_test();
    if (argc == 4 && strcmp(argv[1], "receive") == 0) return receive(argv[2], argv[3], 0);
    if (argc == 5 && strcmp(argv[1], "receive") == 0 && atol(argv[4]) > 0)
        return receive(argv[2], argv[3], (int64_t)atol(argv[4]) * 1024 * TURN_MS / 1000 + 1);
    if (argc == 4 && strcmp(argv[1], "send") == 0) return send_file(argv[2], argv[3]);
    fprintf(stderr, "usage: file_transfer receive ADDRESS DIRECTORY [KIB_PER_SECOND] | send ADDRESS FILE | --self-test\n");
    return 2;
}
