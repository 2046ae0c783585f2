// hijack_chat.c - a connection logs in with a call, then stops being Frisbee: from there on it carries lines of chat.
//
//     cc -I.. hijack_chat.c -o hijack_chat
//     ./hijack_chat server [address]                     default 127.0.0.1:7779
//     ./hijack_chat client ADDRESS NAME PASSWORD         type lines, end with Ctrl-D; the password is "frisbee"
//     ./hijack_chat                                      plays server and two clients by itself; exits 0 if all went as it should
//
// Shows: FRISBEE_HIJACK_FENCED on both sides. The server stays in its pool (frisbee_upgrade to a frisbee_protocol); the client takes
// the socket out of its pool (frisbee_hijack) and goes on with poll, recv and send. No byte is lost in between: what either side wrote behind its
// last packet arrives as the other's first raw bytes.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OP_LOGIN = 10, NAME_MAX_BYTES = 32, LINE_MAX_BYTES = 1024, WAIT_MS = 5000 };
enum { READ_AHEAD = 256 * 1024 }; // the pool's read_buffer: more cannot have been read behind the last packet

static const char password[] = "frisbee"; // an example: a real one would go through TLS (see `wrap`)

static int failed(const char *what, frisbee_result result) {
    fprintf(stderr, "hijack_chat: %s: %s\n", what, frisbee_result_string(result));
    return 1;
}

// ---- server

typedef struct member {
    struct member *next;
    frisbee_conn conn;
    char name[NAME_MAX_BYTES + 1];
} member;

static member *room;

static void tell_everybody(frisbee_pool *pool, const char *who, const char *what, size_t length) {
    frisbee_span spans[3];
    spans[0].data = who;
    spans[0].length = strlen(who);
    spans[1].data = what;
    spans[1].length = length;
    spans[2].data = "\n";
    spans[2].length = 1;
    for (member *m = room; m; m = m->next)
        if (frisbee_write(pool, m->conn, spans, 3, NULL, NULL) == FRISBEE_AGAIN)
            frisbee_close(pool, m->conn, FRISBEE_CLOSE_NOW); // does not read what it is told
}

static frisbee_result chat_start(frisbee_pool *pool, frisbee_conn conn, void *user, void **state) {
    member *m = (member *)frisbee_user(pool, conn); // on_login put it there
    (void)user;
    m->conn = conn;
    m->next = room;
    room = m;
    *state = m;
    tell_everybody(pool, m->name, " joined", 7);
    return FRISBEE_OK;
}

static frisbee_result chat_input(frisbee_pool *pool, frisbee_conn conn, void *state, const void *data, size_t length, size_t *used,
                                 size_t *need) {
    char who[NAME_MAX_BYTES + 3];
    const char *end = (const char *)memchr(data, '\n', length);
    (void)conn;
    *need = 0;
    *used = end ? (size_t)(end - (const char *)data) + 1 : 0;
    if (!end) return FRISBEE_AGAIN;
    snprintf(who, sizeof who, "%s: ", ((member *)state)->name);
    tell_everybody(pool, who, (const char *)data, *used - 1);
    return FRISBEE_OK;
}

static void chat_stop(frisbee_pool *pool, frisbee_conn conn, void *state) {
    member *m = (member *)state, **link = &room;
    (void)conn;
    while (*link != m) link = &(*link)->next;
    *link = m->next;
    tell_everybody(pool, m->name, " left", 5);
}

static const frisbee_protocol chat = {chat_start, chat_input, NULL, chat_stop, NULL};

// Payload: "name:password". Welcome is the last packet of this connection; behind it comes chat.
static void on_login(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const char *text = (const char *)packet->data, *colon = (const char *)memchr(text, ':', packet->length);
    size_t name_length = colon ? (size_t)(colon - text) : 0, rest = colon ? packet->length - name_length - 1 : 0;
    bool good = name_length && name_length <= NAME_MAX_BYTES && rest == strlen(password) && memcmp(colon + 1, password, rest) == 0;
    member *m = good && !packet->conn_user ? (member *)calloc(1, sizeof(member)) : NULL;
    (void)user;
    if (!m) {
        if (frisbee_reply(pool, &packet->from, "go away", 7)) frisbee_close(pool, packet->from.conn, FRISBEE_CLOSE_NOW);
        else frisbee_close(pool, packet->from.conn, FRISBEE_CLOSE_FLUSH);
        return;
    }
    memcpy(m->name, text, name_length);
    frisbee_set_user(pool, packet->from.conn, m); // on_close frees it, whatever happens until then
    if (frisbee_reply(pool, &packet->from, "welcome", 7) || frisbee_upgrade(pool, packet->from.conn, FRISBEE_HIJACK_FENCED, &chat))
        frisbee_close(pool, packet->from.conn, FRISBEE_CLOSE_NOW);
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    (void)pool, (void)conn, (void)info;
    free(user);
}

static const frisbee_route server_routes[] = {{OP_LOGIN, on_login, NULL}};
static const frisbee_events server_events = {NULL, NULL, NULL, NULL, on_close};

// `report`: where the address goes in the self-test, else -1.
static int serve(const char *address, int report) {
    frisbee_pool *pool;
    frisbee_listener listener;
    frisbee_conn_desc desc = {0};
    frisbee_result result;
    char bound[128] = "";
    desc.routes = server_routes;
    desc.route_count = 1;
    desc.events = &server_events;
    desc.max_packet = LINE_MAX_BYTES; // of a packet, and of a line
    if ((result = frisbee_pool_create(NULL, &pool)) != FRISBEE_OK) return failed("pool", result);
    if ((result = frisbee_listen(pool, address, &desc, &listener)) != FRISBEE_OK) return failed(address, result);
    if ((result = frisbee_listener_address(pool, listener, bound, sizeof bound)) != FRISBEE_OK) return failed("address", result);
    if (report < 0) printf("listening on %s\n", bound), fflush(stdout);
    else if (write(report, bound, sizeof bound) != (ssize_t)sizeof bound) return 1;
    result = frisbee_run(pool);
    frisbee_pool_destroy(pool);
    return result ? failed("run", result) : 0;
}

// ---- client

// The connection once it is raw: a socket, and what was already read from it.
typedef struct raw {
    int socket; // -1: none
    char bytes[READ_AHEAD];
    size_t length;
    bool done;
} raw;

static void on_hijacked(frisbee_pool *pool, frisbee_conn conn, const frisbee_hijacked *hijacked, void *user) {
    raw *r = (raw *)user;
    (void)pool, (void)conn;
    r->done = true;
    if (hijacked->result || hijacked->unread.length > sizeof r->bytes) {
        fprintf(stderr, "hijack_chat: not handed over: %s\n", frisbee_result_string(hijacked->result));
        if (hijacked->result == FRISBEE_OK) close((int)hijacked->socket); // ours already
        return;
    }
    r->socket = (int)hijacked->socket;
    r->length = hijacked->unread.length;
    if (r->length) memcpy(r->bytes, hijacked->unread.data, r->length); // valid only until we return
}

// Logs in and lets go of the connection. False: refused, or no connection. The pool is gone afterwards, the socket lives on.
static bool log_in(const char *address, const char *name, const char *secret, raw *r) {
    char credentials[256];
    frisbee_pool *pool;
    frisbee_conn conn;
    frisbee_outcome outcome = {0};
    frisbee_result result;
    memset(r, 0, sizeof *r);
    r->socket = -1;
    snprintf(credentials, sizeof credentials, "%s:%s", name, secret);
    if (frisbee_pool_create(NULL, &pool)) return false;
    if ((result = frisbee_connect(pool, address, NULL, &conn)) != FRISBEE_OK ||
        (result = frisbee_call_wait(pool, conn, OP_LOGIN, credentials, strlen(credentials), WAIT_MS, &outcome)) != FRISBEE_OK) {
        failed("log in", result);
    } else if (outcome.length != 7 || memcmp(outcome.data, "welcome", 7) != 0) {
        fprintf(stderr, "the server says: %.*s\n", (int)outcome.length, (const char *)outcome.data);
    } else if ((result = frisbee_hijack(pool, conn, FRISBEE_HIJACK_FENCED, WAIT_MS, on_hijacked, r)) != FRISBEE_OK) {
        failed("hijack", result);
    } else {
        while (!r->done && frisbee_poll(pool, WAIT_MS) == FRISBEE_OK) {} // comes within WAIT_MS, one way or the other
    }
    frisbee_pool_destroy(pool);
    return r->socket >= 0;
}

static bool send_all(raw *r, const char *data, size_t length) {
    while (length) {
        struct pollfd ready = {0, POLLOUT, 0};
        ssize_t n = send(r->socket, data, length, MSG_NOSIGNAL);
        ready.fd = r->socket; // the socket is non-blocking: that is how the pool left it
        if (n > 0) data += n, length -= (size_t)n;
        else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (poll(&ready, 1, WAIT_MS) == 0) return false;
        } else return false;
    }
    return true;
}

// Takes what has come. False: the connection has ended.
static bool receive(raw *r) {
    ssize_t n = recv(r->socket, r->bytes + r->length, sizeof r->bytes - r->length, 0);
    if (n > 0) r->length += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

// Moves the first whole line into `line`, without its end.
static bool take_line(raw *r, char line[LINE_MAX_BYTES + NAME_MAX_BYTES + 4]) {
    char *end = (char *)memchr(r->bytes, '\n', r->length);
    size_t length = end ? (size_t)(end - r->bytes) : 0;
    if (!end || length > LINE_MAX_BYTES + NAME_MAX_BYTES) return false;
    memcpy(line, r->bytes, length);
    line[length] = '\0';
    r->length -= length + 1;
    memmove(r->bytes, end + 1, r->length);
    return true;
}

static int chat_client(const char *address, const char *name, const char *secret) {
    char line[LINE_MAX_BYTES + NAME_MAX_BYTES + 4];
    static raw r;
    bool talking = true;
    if (!log_in(address, name, secret, &r)) return 1;
    for (;;) {
        struct pollfd ready[2] = {{0, POLLIN, 0}, {0, POLLIN, 0}};
        while (take_line(&r, line)) puts(line);
        fflush(stdout);
        ready[0].fd = r.socket;
        ready[1].fd = talking ? STDIN_FILENO : -1;
        if (poll(ready, 2, -1) < 0 && errno != EINTR) break;
        if (ready[0].revents && !receive(&r)) break;
        if (ready[1].revents) {
            char typed[LINE_MAX_BYTES / 2];
            ssize_t n = read(STDIN_FILENO, typed, sizeof typed);
            if (n > 0 && !send_all(&r, typed, (size_t)n)) break;
            if (n <= 0) talking = false, shutdown(r.socket, SHUT_WR); // the server flushes and closes
        }
    }
    close(r.socket);
    return 0;
}

// ---- self-test

static bool expect(raw *r, const char *expected) {
    char line[LINE_MAX_BYTES + NAME_MAX_BYTES + 4] = "";
    while (!take_line(r, line)) {
        struct pollfd ready = {0, POLLIN, 0};
        ready.fd = r->socket;
        if (poll(&ready, 1, WAIT_MS) <= 0 || !receive(r)) break;
    }
    printf("    %-28s %s\n", line, strcmp(line, expected) == 0 ? "ok" : "NOT WHAT WAS EXPECTED");
    return strcmp(line, expected) == 0;
}

static int self_test(void) {
    char address[128] = "";
    int report[2], status = 0;
    static raw alice, bob, mallory;
    bool good;
    pid_t server;
    if (pipe(report)) return 1;
    if ((server = fork()) < 0) return 1;
    if (server == 0) {
        close(report[0]);
        alarm(60); // should the other process disappear
        _exit(serve("127.0.0.1:0", report[1]));
    }
    close(report[1]);
    good = read(report[0], address, sizeof address) == (ssize_t)sizeof address;
    printf("a wrong password is refused:\n");
    good = good && !log_in(address, "mallory", "guess", &mallory);
    printf("alice logs in and hears:\n");
    good = good && log_in(address, "alice", password, &alice) && expect(&alice, "alice joined");
    printf("bob logs in, says two things, and both hear the same:\n");
    good = good && log_in(address, "bob", password, &bob) && send_all(&bob, "hello\nis it ", 12) && send_all(&bob, "raining?\n", 9);
    good = good && expect(&alice, "bob joined") && expect(&alice, "bob: hello") && expect(&alice, "bob: is it raining?");
    good = good && expect(&bob, "bob joined") && expect(&bob, "bob: hello") && expect(&bob, "bob: is it raining?");
    printf("bob goes:\n");
    good = good && shutdown(bob.socket, SHUT_WR) == 0 && expect(&alice, "bob left");
    kill(server, SIGTERM);
    good = good && waitpid(server, &status, 0) == server && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
    if (good) close(alice.socket), close(bob.socket);
    close(report[0]);
    printf("%s\n", good ? "all as it should be" : "hijack_chat: FAILED");
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 1) return self_test();
    if (strcmp(argv[1], "server") == 0) return serve(argc > 2 ? argv[2] : "127.0.0.1:7779", -1);
    if (strcmp(argv[1], "client") == 0 && argc == 5) return chat_client(argv[2], argv[3], argv[4]);
    fprintf(stderr, "usage: hijack_chat [server [ADDRESS] | client ADDRESS NAME PASSWORD]\n");
    return 2;
}
