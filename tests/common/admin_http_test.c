#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/admin_http.h"

typedef struct service {
    atomic_bool is_healthy, is_ready;
} service;

static bool is_healthy(void *arg, char *why, size_t why_cap) {
    service *s = arg;
    snprintf(why, why_cap, "%s", s->is_healthy ? "ok" : "no step for 30 s");
    return s->is_healthy;
}

static bool is_ready(void *arg, char *why, size_t why_cap) {
    service *s = arg;
    snprintf(why, why_cap, "%s", s->is_ready ? "SERVING" : "NOT_SERVING");
    return s->is_ready;
}

typedef struct fixture {
    service service;
    relay_metrics *metrics;
    relay_admin_http *admin;
} fixture;

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    f->service.is_healthy = f->service.is_ready = true;
    f->metrics = relay_metrics_create();
    relay_counter_add(relay_metrics_counter(f->metrics, "races_total", "Races run.", NULL), 7);
    relay_admin_http_opts opts = {.listen = "127.0.0.1:0",
                                  .metrics = f->metrics,
                                  .is_healthy = is_healthy,
                                  .is_ready = is_ready,
                                  .arg = &f->service};
    relay_err e;
    assert_int_equal(relay_admin_http_start(&f->admin, &opts, &e), RELAY_OK);
    assert_int_not_equal(relay_admin_http_port(f->admin), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    relay_admin_http_stop(f->admin);
    relay_metrics_destroy(f->metrics);
    free(f);
    return 0;
}

static int connect_to(const fixture *f) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(relay_admin_http_port(f->admin)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = 30};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    // The server may stop reading what is too much before it closes.
    struct timeval send_limit = {.tv_sec = 2};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send_limit, sizeof send_limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

// Sends raw bytes and returns all that comes back until the server closes.
static const char *exchange(const fixture *f, const char *request, size_t len) {
    static char reply[1 << 16];
    int fd = connect_to(f);
    assert_int_equal(send(fd, request, len, MSG_NOSIGNAL), len);
    size_t n = 0;
    for (ssize_t got; (got = recv(fd, reply + n, sizeof reply - 1 - n, 0)) > 0;)
        n += (size_t)got;
    reply[n] = 0;
    close(fd);
    return reply;
}

static const char *ask(const fixture *f, const char *method, const char *path) {
    char request[256];
    int n = snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, path);
    return exchange(f, request, (size_t)n);
}

static void assert_begins(const char *reply, const char *with) {
    if (strncmp(reply, with, strlen(with)) != 0) fail_msg("expected \"%s\", got: %.200s", with, reply);
}

static const char *body_of(const char *reply) {
    const char *end = strstr(reply, "\r\n\r\n");
    assert_non_null(end);
    return end + 4;
}

static void metrics_are_prometheus_text(void **state) {
    const char *reply = ask(*state, "GET", "/metrics");
    assert_begins(reply, "HTTP/1.1 200 ");
    assert_non_null(strstr(reply, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert_string_equal(body_of(reply), "# HELP races_total Races run.\n# TYPE races_total counter\nraces_total 7\n");
    assert_begins(ask(*state, "GET", "/metrics?name=x"), "HTTP/1.1 200 ");
}

static void health_and_readiness_are_apart(void **state) {
    fixture *f = *state;
    const char *reply = ask(f, "GET", "/healthz");
    assert_begins(reply, "HTTP/1.1 200 ");
    assert_string_equal(body_of(reply), "ok\n");
    reply = ask(f, "GET", "/readyz");
    assert_begins(reply, "HTTP/1.1 200 ");
    assert_string_equal(body_of(reply), "SERVING\n");

    f->service.is_ready = false;
    reply = ask(f, "GET", "/readyz");
    assert_begins(reply, "HTTP/1.1 503 ");
    assert_string_equal(body_of(reply), "NOT_SERVING\n");
    assert_begins(ask(f, "GET", "/healthz"), "HTTP/1.1 200 ");

    f->service.is_healthy = false;
    reply = ask(f, "GET", "/healthz");
    assert_begins(reply, "HTTP/1.1 503 ");
    assert_string_equal(body_of(reply), "no step for 30 s\n");
}

static void head_has_no_body(void **state) {
    const char *reply = ask(*state, "HEAD", "/healthz");
    assert_begins(reply, "HTTP/1.1 200 ");
    assert_string_equal(body_of(reply), "");
}

static void other_paths_are_404_and_other_methods_405(void **state) {
    assert_begins(ask(*state, "GET", "/"), "HTTP/1.1 404 ");
    assert_begins(ask(*state, "GET", "/metrics/"), "HTTP/1.1 404 ");
    assert_begins(ask(*state, "GET", "/healthz/../metrics"), "HTTP/1.1 404 ");
    const char *reply = ask(*state, "DELETE", "/metrics");
    assert_begins(reply, "HTTP/1.1 405 ");
    assert_non_null(strstr(reply, "Allow: GET, HEAD\r\n"));
    const char post[] = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody";
    assert_begins(exchange(*state, post, sizeof post - 1), "HTTP/1.1 405 ");
}

static void garbage_does_not_stop_it(void **state) {
    static const char *const garbage[] = {"\r\n\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                                          "\x16\x03\x01\x02\r\n\r\n"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        int fd = connect_to(*state);
        (void)!send(fd, garbage[i], strlen(garbage[i]), MSG_NOSIGNAL);
        close(fd);
    }
    char *huge = calloc(1, 1 << 20);
    memset(huge, 'x', (1 << 20) - 1);
    memcpy(huge, "GET /", 5);
    int fd = connect_to(*state);
    (void)!send(fd, huge, 1 << 20, MSG_NOSIGNAL);
    close(fd);
    free(huge);
    assert_begins(ask(*state, "GET", "/healthz"), "HTTP/1.1 200 ");
}

static void stops_while_connections_are_open(void **state) {
    fixture *f = *state;
    int idle = connect_to(f), half = connect_to(f);
    assert_int_equal(send(half, "GET /met", 8, MSG_NOSIGNAL), 8);
    relay_admin_http_stop(f->admin);
    f->admin = NULL; // stop(NULL) in the tear-down
    close(idle);
    close(half);
}

static void addresses_that_are_none_are_refused(void **state) {
    static const char *const bad[] = {"",       "127.0.0.1",   "127.0.0.1:",  "127.0.0.1:x", "127.0.0.1:65536",
                                      "::1:80", "300.0.0.1:0", "127.0.0.1:-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        relay_admin_http *a;
        relay_err e;
        relay_admin_http_opts opts = {.listen = bad[i]};
        assert_int_equal(relay_admin_http_start(&a, &opts, &e), RELAY_INVALID_ARGUMENT);
        assert_null(a);
        assert_non_null(strstr(e.message, bad[i]));
    }
}

static void no_host_means_every_address(void **state) {
    service fine = {true, true};
    relay_admin_http_opts opts = {.listen = ":0", .is_healthy = is_healthy, .is_ready = is_ready, .arg = &fine};
    fixture f = {0};
    relay_err e;
    assert_int_equal(relay_admin_http_start(&f.admin, &opts, &e), RELAY_OK);
    assert_begins(ask(&f, "GET", "/healthz"), "HTTP/1.1 200 ");
    relay_admin_http_stop(f.admin);
}

static void a_port_in_use_is_unavailable(void **state) {
    fixture *f = *state;
    char listen_on[64];
    snprintf(listen_on, sizeof listen_on, "127.0.0.1:%u", relay_admin_http_port(f->admin));
    relay_admin_http *a;
    relay_err e;
    relay_admin_http_opts opts = {.listen = listen_on};
    assert_int_equal(relay_admin_http_start(&a, &opts, &e), RELAY_UNAVAILABLE);
    assert_non_null(strstr(e.message, listen_on));
    assert_non_null(strstr(e.message, "in use"));
}

static void metrics_past_the_limit_are_an_error(void **state) {
    fixture *f = *state;
    char *help = calloc(1, RELAY_ADMIN_MAX_METRICS_BYTES + 1);
    memset(help, 'h', RELAY_ADMIN_MAX_METRICS_BYTES);
    relay_metrics_gauge(f->metrics, "large", help, NULL);
    free(help);
    assert_begins(ask(f, "GET", "/metrics"), "HTTP/1.1 500 ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(metrics_are_prometheus_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(health_and_readiness_are_apart, set_up, tear_down),
        cmocka_unit_test_setup_teardown(head_has_no_body, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_paths_are_404_and_other_methods_405, set_up, tear_down),
        cmocka_unit_test_setup_teardown(garbage_does_not_stop_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stops_while_connections_are_open, set_up, tear_down),
        cmocka_unit_test(addresses_that_are_none_are_refused),
        cmocka_unit_test(no_host_means_every_address),
        cmocka_unit_test_setup_teardown(a_port_in_use_is_unavailable, set_up, tear_down),
        cmocka_unit_test_setup_teardown(metrics_past_the_limit_are_an_error, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
