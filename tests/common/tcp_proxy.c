#include "tests/common/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/status.h"

enum { CONNECTIONS_MAX = 16 };

struct tcp_proxy {
    int listener;
    int control[2]; // a pipe: a byte wakes the thread
    uint16_t port, to_port;
    atomic_bool is_frozen, is_cutting, is_closing;
    pthread_t thread;
    int sides[CONNECTIONS_MAX][2]; // the thread's; -1 when closed
    int n_connections;
};

static struct sockaddr_in loopback(uint16_t port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

// Loopback's segments of 64 KiB make the kernel buffer megabytes for a peer that does not read. With segments and
// buffers of a usual network a frozen connection is full after some hundred kilobytes.
static int narrow_socket(void) {
    int s = socket(AF_INET, SOCK_STREAM, 0), segment = 1400, buffer = 16384;
    RELAY_ASSERT(s >= 0 && setsockopt(s, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment) == 0);
    RELAY_ASSERT(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0);
    return s;
}

static void take_connection(tcp_proxy *p) {
    int client = accept(p->listener, NULL, NULL), server = narrow_socket();
    struct sockaddr_in address = loopback(p->to_port);
    RELAY_ASSERT(client >= 0 && p->n_connections < CONNECTIONS_MAX);
    RELAY_ASSERT(connect(server, (struct sockaddr *)&address, sizeof address) == 0);
    p->sides[p->n_connections][0] = client;
    p->sides[p->n_connections][1] = server;
    p->n_connections++;
}

static void cut(int sides[2]) {
    if (sides[0] < 0) return;
    close(sides[0]);
    close(sides[1]);
    sides[0] = sides[1] = -1;
}

static void pass_on(int from[2], int side) {
    char bytes[16384];
    ssize_t n = read(from[side], bytes, sizeof bytes);
    for (ssize_t at = 0; n > 0 && at < n;) {
        ssize_t written = send(from[!side], bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (written <= 0) n = 0;
        at += written;
    }
    if (n <= 0) cut(from);
}

static void *run(void *arg) {
    tcp_proxy *p = arg;
    while (!atomic_load(&p->is_closing)) {
        struct pollfd fds[2 + 2 * CONNECTIONS_MAX] = {{.fd = p->control[0], .events = POLLIN},
                                                      {.fd = p->listener, .events = POLLIN}};
        bool is_frozen = atomic_load(&p->is_frozen);
        int n = p->n_connections;
        for (int i = 0; i < 2 * n; i++) // poll leaves out what is negative
            fds[2 + i] = (struct pollfd){.fd = is_frozen ? -1 : p->sides[i / 2][i % 2], .events = POLLIN};
        if (is_frozen) fds[1].fd = -1;
        poll(fds, (nfds_t)(2 + 2 * n), -1);
        char wake;
        if (fds[0].revents) RELAY_ASSERT(read(p->control[0], &wake, 1) == 1);
        bool is_cutting = atomic_exchange(&p->is_cutting, false);
        for (int i = 0; is_cutting && i < n; i++)
            cut(p->sides[i]);
        if (fds[1].revents) take_connection(p);
        for (int i = 0; i < 2 * n; i++) {
            if (fds[2 + i].revents && p->sides[i / 2][0] >= 0) pass_on(p->sides[i / 2], i % 2);
        }
    }
    return NULL;
}

tcp_proxy *tcp_proxy_create(uint16_t to_port) {
    tcp_proxy *p = relay_calloc(1, sizeof *p);
    p->to_port = to_port;
    p->listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    RELAY_ASSERT(bind(p->listener, (struct sockaddr *)&address, size) == 0 && listen(p->listener, 16) == 0);
    RELAY_ASSERT(getsockname(p->listener, (struct sockaddr *)&address, &size) == 0);
    p->port = ntohs(address.sin_port);
    RELAY_ASSERT(pipe(p->control) == 0);
    RELAY_ASSERT(pthread_create(&p->thread, NULL, run, p) == 0);
    return p;
}

uint16_t tcp_proxy_port(const tcp_proxy *p) {
    return p->port;
}

static void wake_up(tcp_proxy *p) {
    RELAY_ASSERT(write(p->control[1], "", 1) == 1);
}

void tcp_proxy_freeze(tcp_proxy *p) {
    atomic_store(&p->is_frozen, true);
    wake_up(p);
}

void tcp_proxy_cut(tcp_proxy *p) {
    atomic_store(&p->is_cutting, true);
    wake_up(p);
}

void tcp_proxy_destroy(tcp_proxy *p) {
    atomic_store(&p->is_closing, true);
    wake_up(p);
    pthread_join(p->thread, NULL);
    for (int i = 0; i < p->n_connections; i++)
        cut(p->sides[i]);
    close(p->listener);
    close(p->control[0]);
    close(p->control[1]);
    free(p);
}
