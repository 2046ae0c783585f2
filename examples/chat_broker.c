// chat_broker.c - a chat over publish and subscribe: the broker knows who is who, and decides who may hear and say what.
//
//     cc -I.. chat_broker.c -o chat_broker
//     ./chat_broker serve ADDRESS            the broker, for instance on 127.0.0.1:7780
//     ./chat_broker ADDRESS NAME ROOM        a member in a terminal: lines are said to the room; /who, /topic TEXT; Ctrl-D leaves
//     ./chat_broker --self-test              the broker and its members in one process; exits 0 if all went as it should
//
// Shows: may_subscribe and may_publish, so that nobody listens in another room or speaks under another's name; a retained value (the topic
// line of a room); on_subscribe and on_unsubscribe; a broker that publishes itself; calls beside it all; a terminal and a pool in one loop.
//
//     chat.ROOM.NAME        what NAME says: only NAME may publish it
//     chat.ROOM.@topic      the topic line, retained: every member of the room may change it
//     chat.ROOM.@broker     who came and went: only the broker's own program publishes it
// A member has one subscription, chat.ROOM.* - so all of this arrives in one order.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <ctype.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OP_LOGIN = 10, // "NAME ROOM" -> nothing: welcome; or why not
    OP_WHO,        // -> the names of those who are in the room
};
enum { WORD_MAX = 32, LINE_MAX_BYTES = 1024, TOPIC_ROOM = 2 * WORD_MAX + 16 };

static int failed(const char *what, frisbee_result result) {
    fprintf(stderr, "chat_broker: %s: %s\n", what, frisbee_result_string(result));
    return 1;
}

static const char *room_topic(char topic[TOPIC_ROOM], const char *room, const char *last) {
    snprintf(topic, TOPIC_ROOM, "chat.%s.%s", room, last);
    return topic;
}

// ---- broker

// Somebody who has logged in: the user pointer of a connection.
typedef struct member {
    struct member *next;
    char name[WORD_MAX + 1], room[WORD_MAX + 1];
} member;

static member *members;

static bool is_in_room(const member *m, const char *topic, const char *last) {
    char own[TOPIC_ROOM];
    return strcmp(topic, room_topic(own, m->room, last)) == 0;
}

static bool may_subscribe(frisbee_pool *pool, const frisbee_sub_info *wanted, void *user) {
    const member *m = (const member *)frisbee_user(pool, wanted->conn); // NULL: has not logged in
    (void)user;
    return m && is_in_room(m, wanted->topic, "*"); // the room's own pattern and no wider one, such as ">"
}

static bool may_publish(frisbee_pool *pool, const frisbee_message *message, void *user) {
    const member *m = (const member *)frisbee_user(pool, message->conn);
    (void)user;
    return m && (is_in_room(m, message->topic, m->name) || is_in_room(m, message->topic, "@topic"));
}

static void announce(frisbee_pool *pool, const frisbee_sub_info *info, const char *what) {
    const member *m = (const member *)frisbee_user(pool, info->conn);
    char topic[TOPIC_ROOM], text[WORD_MAX + 16];
    snprintf(text, sizeof text, "%s %s", m->name, what);
    frisbee_publish(pool, FRISBEE_LOCAL, room_topic(topic, m->room, "@broker"), text, strlen(text), NULL);
}

static void on_subscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    (void)user;
    announce(pool, info, "is here");
}

static void on_unsubscribe(frisbee_pool *pool, const frisbee_sub_info *info, void *user) {
    (void)user;
    announce(pool, info, "left"); // also when its connection broke
}

// A token of a topic that cannot be mistaken for a wildcard or for one of the @ topics.
static bool is_word(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '-' && text[i] != '_') return false;
    return length > 0 && length <= WORD_MAX;
}

// Answers why not; NULL: welcome.
static const char *log_in(frisbee_pool *pool, const frisbee_packet *packet) {
    const char *name = (const char *)packet->data, *space = packet->length ? (const char *)memchr(name, ' ', packet->length) : NULL;
    size_t name_length = space ? (size_t)(space - name) : 0, room_length = space ? packet->length - name_length - 1 : 0;
    member *m;
    if (packet->conn_user) return "you have a name already";
    if (!is_word(name, name_length) || !is_word(space + 1, room_length)) return "names and rooms are up to 32 letters, digits, - and _";
    for (m = members; m; m = m->next)
        if (strlen(m->name) == name_length && memcmp(m->name, name, name_length) == 0) return "that name is taken";
    if (!(m = (member *)calloc(1, sizeof *m))) return "there is no room";
    memcpy(m->name, name, name_length);
    memcpy(m->room, space + 1, room_length);
    m->next = members;
    members = m;
    frisbee_set_user(pool, packet->from.conn, m);
    return NULL;
}

static void on_login(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const char *reason = log_in(pool, packet);
    (void)user;
    frisbee_reply(pool, &packet->from, reason, reason ? strlen(reason) : 0);
}

static void on_who(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    const member *asking = (const member *)packet->conn_user;
    char names[LINE_MAX_BYTES] = "";
    size_t length = 0;
    frisbee_sub at = {0};
    frisbee_sub_info info;
    (void)user;
    while (asking && length + WORD_MAX + 2 < sizeof names && frisbee_sub_next(pool, &at, &info) == FRISBEE_OK) {
        const member *m = (const member *)frisbee_user(pool, info.conn);
        if (m && strcmp(m->room, asking->room) == 0)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", length ? " " : "", m->name);
    }
    frisbee_reply(pool, &packet->from, names, length);
}

static void on_member_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    member **link = &members;
    (void)pool, (void)conn, (void)info;
    while (*link && *link != user) link = &(*link)->next;
    if (*link) *link = (*link)->next;
    free(user);
}

static const frisbee_route broker_routes[] = {{OP_LOGIN, on_login, NULL}, {OP_WHO, on_who, NULL}};
static const frisbee_events broker_events = {.on_close = on_member_close};

static frisbee_result start_broker(const char *address, frisbee_pool **pool, char *bound, size_t room) {
    frisbee_broker broker = {.may_subscribe = may_subscribe, .may_publish = may_publish, .on_subscribe = on_subscribe,
                             .on_unsubscribe = on_unsubscribe, .max_conn_subs = 1}; // a member is in one room, once
    frisbee_pool_desc pool_desc = {.broker = &broker};
    frisbee_conn_desc desc = {.routes = broker_routes, .route_count = 2, .events = &broker_events,
                              .max_packet = LINE_MAX_BYTES + FRISBEE_TOPIC_MAX + 2}; // a line and what PUBLISH puts before it
    frisbee_listener listener;
    frisbee_result result;
    if ((result = frisbee_pool_create(&pool_desc, pool)) != FRISBEE_OK) return result;
    if ((result = frisbee_listen(*pool, address, &desc, &listener)) != FRISBEE_OK) return result;
    return frisbee_listener_address(*pool, listener, bound, room);
}

static int serve(const char *address) {
    frisbee_pool *pool;
    char bound[128];
    frisbee_result result = start_broker(address, &pool, bound, sizeof bound);
    if (result) return failed(address, result);
    printf("listening on %s\n", bound);
    fflush(stdout);
    result = frisbee_run(pool);
    frisbee_pool_destroy(pool);
    return result ? failed("run", result) : 0;
}

// ---- member

typedef struct client {
    frisbee_pool *pool;
    frisbee_conn conn;
    frisbee_sub sub;
    const char *name, *room;
    char typed[LINE_MAX_BYTES + 1]; // of the terminal's next line
    size_t typed_length;
    bool leaving, over;
    char *seen; // the self-test keeps here what would be printed
    size_t seen_room;
} client;

// One line on the member's terminal. What others send may not steer it: no control characters.
static void show(client *c, const char *format, ...) {
    char line[LINE_MAX_BYTES + WORD_MAX + 16];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *p = line; *p; p++)
        if (iscntrl((unsigned char)*p)) *p = '?';
    if (c->seen) snprintf(c->seen + strlen(c->seen), c->seen_room - strlen(c->seen), "%s\n", line);
    else puts(line), fflush(stdout);
}

static void on_message(frisbee_pool *pool, const frisbee_message *message, void *user) {
    client *c = (client *)user;
    const char *who = strrchr(message->topic, '.') + 1, *text = (const char *)message->data;
    int length = (int)message->length;
    (void)pool;
    if (message->dropped) show(c, "* you were slow and missed %llu lines", (unsigned long long)message->dropped);
    if (strcmp(who, "@topic") == 0) show(c, "* topic: %.*s", length, text);
    else if (strcmp(who, "@broker") == 0) show(c, "* %.*s", length, text);
    else if (strcmp(who, c->name) != 0) show(c, "%s: %.*s", who, length, text); // our own line is on the terminal already
}

static void on_result(frisbee_pool *pool, frisbee_sub sub, frisbee_result result, void *user) {
    (void)pool, (void)sub;
    if (result) show((client *)user, "* you may not hear that: %s", frisbee_result_string(result));
}

// The topic line comes first (retained). Whoever does not keep up sees the newest lines, and how many are missing (DROP_OLD).
static frisbee_result listen_to(client *c, const char *last) {
    char topic[TOPIC_ROOM];
    frisbee_sub_desc desc = {.on_message = on_message, .on_result = on_result, .user = c, .retained = true, .slow = FRISBEE_SLOW_DROP_OLD};
    return frisbee_subscribe(c->pool, c->conn, room_topic(topic, c->room, last), &desc, &c->sub);
}

static void on_logged_in(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    client *c = (client *)user;
    (void)call;
    if (outcome->result == FRISBEE_OK && outcome->length == 0 && listen_to(c, "*") == FRISBEE_OK) return;
    if (outcome->result == FRISBEE_OK && outcome->length) show(c, "* %.*s", (int)outcome->length, (const char *)outcome->data);
    if (!c->leaving) frisbee_close(pool, c->conn, FRISBEE_CLOSE_NOW);
}

static void on_close(frisbee_pool *pool, frisbee_conn conn, const frisbee_close_info *info, void *user) {
    client *c = (client *)user;
    (void)pool, (void)conn;
    c->over = true;
    if (!c->leaving && info->reason && info->reason != FRISBEE_DESTROYED)
        show(c, "* the connection has ended: %s", frisbee_result_string(info->reason));
}

static const frisbee_events client_events = {.on_close = on_close};

// Connects, logs in and (on_logged_in) listens to the room.
static frisbee_result start_client(client *c, const char *address, const char *name, const char *room) {
    char credentials[2 * WORD_MAX + 16];
    frisbee_conn_desc desc = {.events = &client_events, .user = c};
    frisbee_call_desc call = {.on_reply = on_logged_in, .user = c};
    frisbee_result result;
    c->name = name;
    c->room = room;
    c->leaving = c->over = false;
    snprintf(credentials, sizeof credentials, "%s %s", name, room);
    if ((result = frisbee_pool_create(NULL, &c->pool)) != FRISBEE_OK) return result;
    if ((result = frisbee_connect(c->pool, address, &desc, &c->conn)) != FRISBEE_OK) return result;
    return frisbee_call(c->pool, c->conn, OP_LOGIN, credentials, strlen(credentials), &call, NULL); // waits for the connection
}

static void on_said(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call;
    if (outcome->result) show((client *)user, "* that was not said: %s", frisbee_result_string(outcome->result));
}

static void say(client *c, const char *last, const char *text, size_t length, bool retain) {
    char topic[TOPIC_ROOM];
    frisbee_publish_desc desc = {.retain = retain, .on_reply = on_said, .user = c}; // confirmed: we want to know when it was refused
    frisbee_result result;
    while ((result = frisbee_publish(c->pool, c->conn, room_topic(topic, c->room, last), text, length, &desc)) == FRISBEE_AGAIN ||
           result == FRISBEE_EXHAUSTED)
        frisbee_poll(c->pool, 100); // much is on its way: the keyboard can wait
    if (result) show(c, "* that was not said: %s", frisbee_result_string(result));
}

static void on_names(frisbee_pool *pool, frisbee_call_id call, const frisbee_outcome *outcome, void *user) {
    (void)pool, (void)call;
    if (outcome->result == FRISBEE_OK) show((client *)user, "* here are: %.*s", (int)outcome->length, (const char *)outcome->data);
}

static void typed_line(client *c, const char *line, size_t length) {
    frisbee_call_desc call = {.on_reply = on_names, .user = c};
    if (length == 4 && memcmp(line, "/who", 4) == 0) frisbee_call(c->pool, c->conn, OP_WHO, NULL, 0, &call, NULL);
    else if (length >= 7 && memcmp(line, "/topic ", 7) == 0) say(c, "@topic", line + 7, length - 7, true);
    else if (length) say(c, c->name, line, length, false);
}

// Takes what was typed. False: that was all.
static bool read_terminal(client *c) {
    ssize_t n = read(STDIN_FILENO, c->typed + c->typed_length, sizeof c->typed - 1 - c->typed_length);
    char *end;
    if (n > 0) c->typed_length += (size_t)n;
    while ((end = (char *)memchr(c->typed, '\n', c->typed_length)) != NULL || c->typed_length == sizeof c->typed - 1 ||
           (n <= 0 && c->typed_length)) {
        size_t length = end ? (size_t)(end - c->typed) : c->typed_length, used = end ? length + 1 : length;
        typed_line(c, c->typed, length);
        memmove(c->typed, c->typed + used, c->typed_length -= used);
    }
    return n > 0;
}

static int chat(const char *address, const char *name, const char *room) {
    static client c;
    frisbee_result result = start_client(&c, address, name, room);
    if (result) return failed(address, result);
    while (!c.over) {
        struct pollfd ready[2] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}}; // -1: poll looks past it
        int32_t timeout = frisbee_next_timeout(c.pool);
        if (!c.leaving) ready[0].fd = STDIN_FILENO;
        ready[1].fd = (int)frisbee_wait_fd(c.pool); // FRISBEE_NO_SOCKET is -1, too:
        if (ready[1].fd < 0 && (timeout < 0 || timeout > 20)) timeout = 20; // without a descriptor look in so often
        poll(ready, 2, timeout);
        if (ready[0].revents && !read_terminal(&c)) {
            c.leaving = true;
            frisbee_finish(c.pool, c.conn); // the broker answers what is due, then on_close
        }
        frisbee_poll(c.pool, 0);
    }
    frisbee_pool_destroy(c.pool);
    return c.leaving ? 0 : 1;
}

// ---- self-test: all pools on one thread, each polled in turn

enum { ALICE, BOB, MALLORY, CLIENTS };

static frisbee_pool *broker_pool;
static client clients[CLIENTS];

static bool start(int who, const char *address, const char *name) {
    client *c = &clients[who];
    c->seen_room = 4096;
    c->seen = (char *)calloc(1, c->seen_room);
    return c->seen && start_client(c, address, name, "lounge") == FRISBEE_OK;
}

// Waits (not for ever) for the next line that somebody sees.
static bool expect(int who, const char *expected) {
    char *seen = clients[who].seen, *end = NULL;
    bool good;
    for (int turn = 0; turn < 2000 && !(end = strchr(seen, '\n')); turn++) {
        frisbee_poll(broker_pool, 1);
        for (int i = 0; i < CLIENTS; i++)
            if (clients[i].pool) frisbee_poll(clients[i].pool, 1);
    }
    if (end) *end = '\0';
    good = strcmp(seen, expected) == 0;
    printf("    %-8s %-44s %s\n", clients[who].name, seen, good ? "ok" : "NOT WHAT WAS EXPECTED");
    if (end) memmove(seen, end + 1, strlen(end + 1) + 1);
    return good;
}

static bool type(int who, const char *line) {
    printf("%s: %s\n", clients[who].name, line);
    typed_line(&clients[who], line, strlen(line));
    return true;
}

static int self_test(void) {
    char address[128];
    bool good = start_broker("127.0.0.1:0", &broker_pool, address, sizeof address) == FRISBEE_OK;
    printf("alice comes in and sets the topic of the room\n");
    good = good && start(ALICE, address, "alice") && expect(ALICE, "* alice is here");
    good = good && type(ALICE, "/topic tea") && expect(ALICE, "* topic: tea");
    printf("bob comes later and finds it\n");
    good = good && start(BOB, address, "bob") && expect(BOB, "* topic: tea") && expect(BOB, "* bob is here");
    good = good && expect(ALICE, "* bob is here");
    good = good && type(BOB, "hello") && type(BOB, "is it\training?");
    good = good && expect(ALICE, "bob: hello") && expect(ALICE, "bob: is it?raining?");
    good = good && type(ALICE, "it is") && expect(BOB, "alice: it is");
    good = good && type(BOB, "/who") && expect(BOB, "* here are: alice bob");
    printf("mallory asks for bob's name, and takes another\n");
    good = good && start(MALLORY, address, "bob") && expect(MALLORY, "* that name is taken");
    if (good) frisbee_pool_destroy(clients[MALLORY].pool), clients[MALLORY].pool = NULL, free(clients[MALLORY].seen);
    good = good && start(MALLORY, address, "mallory") && expect(MALLORY, "* topic: tea") && expect(MALLORY, "* mallory is here");
    good = good && expect(ALICE, "* mallory is here") && expect(BOB, "* mallory is here");
    printf("but speaks as bob all the same, and as the broker, and asks for more than the room\n");
    if (good) say(&clients[MALLORY], "bob", "I owe mallory 10", 16, false), say(&clients[MALLORY], "@broker", "bob left", 8, false);
    good = good && expect(MALLORY, "* that was not said: FRISBEE_REFUSED") && expect(MALLORY, "* that was not said: FRISBEE_REFUSED");
    good = good && frisbee_unsubscribe(clients[MALLORY].pool, clients[MALLORY].sub) == FRISBEE_OK;
    good = good && expect(ALICE, "* mallory left") && expect(BOB, "* mallory left");
    good = good && listen_to(&clients[MALLORY], ">") == FRISBEE_OK && expect(MALLORY, "* you may not hear that: FRISBEE_REFUSED");
    printf("bob's program ends without a word\n");
    if (good) frisbee_pool_destroy(clients[BOB].pool), clients[BOB].pool = NULL;
    good = good && expect(ALICE, "* bob left");
    for (int i = 0; i < CLIENTS; i++) frisbee_pool_destroy(clients[i].pool), free(clients[i].seen);
    frisbee_pool_destroy(broker_pool);
    printf("%s\n", good ? "all as it should be" : "chat_broker: FAILED");
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--self-test") == 0) return self_test();
    if (argc == 3 && strcmp(argv[1], "serve") == 0) return serve(argv[2]);
    if (argc == 4) return chat(argv[1], argv[2], argv[3]);
    fprintf(stderr, "usage: chat_broker serve ADDRESS | ADDRESS NAME ROOM | --self-test\n");
    return 2;
}
