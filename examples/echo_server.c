// echo_server.c - answers operation 10 with what it was sent, until Ctrl-C. One port serves both wires, stock Go peers included.
//
//     cc -I.. echo_server.c -o echo_server
//     ./echo_server [address]            default 127.0.0.1:7777; port 0 takes any free port, "unix:/tmp/echo.sock" a Unix socket
//
// Shows: a route for every connection, listening, stopping from a signal handler, a graceful end, statistics.
// Its counterpart is echo_client.c.

#define FRISBEE_IMPLEMENTATION
#include "frisbee.h"

#include <signal.h>
#include <stdio.h>

enum { OP_ECHO = 10 };

static frisbee_remote *remote; // the pool as a signal handler may use it

static void on_signal(int number) {
    (void)number;
    frisbee_remote_stop(remote);
}

static void on_echo(frisbee_pool *pool, const frisbee_packet *packet, void *user) {
    frisbee_result result = frisbee_reply(pool, &packet->from, packet->data, packet->length);
    (void)user;
    if (result) fprintf(stderr, "a reply was not sent: %s\n", frisbee_result_string(result));
}

static int failed(const char *what, frisbee_result result) {
    fprintf(stderr, "echo_server: %s: %s\n", what, frisbee_result_string(result));
    return 1;
}

int main(int argc, char **argv) {
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:7777";
    char bound[128];
    frisbee_pool *pool;
    frisbee_listener listener;
    frisbee_stats stats;
    frisbee_result result;

    if ((result = frisbee_pool_create(NULL, &pool)) != FRISBEE_OK) return failed("pool", result);
    if ((result = frisbee_on(pool, OP_ECHO, on_echo, NULL)) != FRISBEE_OK) return failed("route", result);
    if ((result = frisbee_listen(pool, address, NULL, &listener)) != FRISBEE_OK) return failed(address, result);
    if ((result = frisbee_listener_address(pool, listener, bound, sizeof bound)) != FRISBEE_OK) return failed("address", result);
    if (!(remote = frisbee_remote_retain(pool))) return failed("remote", FRISBEE_NO_MEMORY);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    printf("listening on %s\n", bound);
    fflush(stdout);

    if ((result = frisbee_run(pool)) != FRISBEE_OK) return failed("run", result); // until on_signal

    // No new connections; what was asked is still answered, for two seconds at most.
    if ((result = frisbee_shutdown(pool, 2000)) != FRISBEE_OK) return failed("shutdown", result);
    if ((result = frisbee_run(pool)) != FRISBEE_OK) return failed("run", result);

    if ((result = frisbee_pool_stats(pool, &stats)) != FRISBEE_OK) return failed("statistics", result);
    printf("%llu connections, %llu packets in, %llu out\n", (unsigned long long)stats.sessions,
           (unsigned long long)stats.packets_in, (unsigned long long)stats.packets_out);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    frisbee_remote_release(remote);
    frisbee_pool_destroy(pool);
    return 0;
}
