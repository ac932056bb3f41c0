// The client's own side: callbacks, waiting, connecting.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay/v1/model.pb-c.h"
#include "tests/common/rpc_world.h"

#define TEXT_TYPE &relay__v1__detokenize_response__descriptor

static int set_up(void **state) {
    *state = rpc_world_create(NULL, NULL);
    return 0;
}

static int tear_down(void **state) {
    rpc_world_destroy(*state);
    return 0;
}

// ---- Callbacks

// What a stream with callbacks has told.
typedef struct listener {
    pthread_mutex_t mu; // guards what follows
    pthread_cond_t cond;
    int n_messages;
    bool is_wrong; // a message out of order, or after the end
    int n_done;
    relay_code code;
    relay_err e;
} listener;

static void on_message(void *arg, ProtobufCMessage *message) {
    listener *l = arg;
    const Relay__V1__DetokenizeResponse *m = (const Relay__V1__DetokenizeResponse *)message;
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)m->text.len, (const char *)m->text.data);
    pthread_mutex_lock(&l->mu);
    if (l->n_done != 0 || atoi(text) != l->n_messages) l->is_wrong = true;
    l->n_messages++;
    pthread_cond_broadcast(&l->cond);
    pthread_mutex_unlock(&l->mu);
}

static void on_done(void *arg, relay_code code, const relay_err *e) {
    listener *l = arg;
    pthread_mutex_lock(&l->mu);
    l->n_done++;
    l->code = code;
    l->e = *e;
    pthread_cond_broadcast(&l->cond);
    pthread_mutex_unlock(&l->mu);
}

static void listener_init(listener *l) {
    *l = (listener){.code = RELAY_UNKNOWN};
    pthread_mutex_init(&l->mu, NULL);
    pthread_cond_init(&l->cond, NULL);
}

static void listener_wait_done(listener *l) {
    pthread_mutex_lock(&l->mu);
    while (l->n_done == 0)
        pthread_cond_wait(&l->cond, &l->mu);
    pthread_mutex_unlock(&l->mu);
}

static void listener_fini(listener *l) {
    assert_false(l->is_wrong);
    assert_int_equal(l->n_done, 1);
    pthread_mutex_destroy(&l->mu);
    pthread_cond_destroy(&l->cond);
}

static relay_rpc_stream *listen_to(relay_rpc_client *c, const char *path, const char *text, listener *l,
                                   const ProtobufCMessageDescriptor *type) {
    static const relay_rpc_stream_callbacks callbacks = {.on_message = on_message, .on_done = on_done};
    listener_init(l);
    relay_rpc_stream *s;
    relay_err e;
    assert_int_equal(relay_rpc_stream_open(&s, c, path, type, NULL, 0, rpc_soon(), &callbacks, l, &e), RELAY_OK);
    rpc_send(s, text);
    relay_rpc_stream_half_close(s);
    return s;
}

static void callbacks_come_in_order_and_done_last(void **state) {
    listener l;
    relay_rpc_stream *s = listen_to(rpc_world_client(*state), COUNT, "500", &l, TEXT_TYPE);
    listener_wait_done(&l);
    assert_int_equal(l.n_messages, 500);
    assert_int_equal(l.code, RELAY_OK);
    relay_rpc_stream_release(s);
    listener_fini(&l);
}

static void many_streams_with_callbacks(void **state) {
    enum { N = 64 };
    listener l[N];
    relay_rpc_stream *s[N];
    for (int i = 0; i < N; i++) {
        char count[16];
        snprintf(count, sizeof count, "%d", i);
        s[i] = listen_to(rpc_world_client(*state), COUNT, count, &l[i], TEXT_TYPE);
    }
    for (int i = 0; i < N; i++) {
        listener_wait_done(&l[i]);
        assert_int_equal(l[i].n_messages, i);
        relay_rpc_stream_release(s[i]);
        listener_fini(&l[i]);
    }
}

static void done_comes_after_an_early_release(void **state) {
    listener l;
    relay_rpc_stream_release(listen_to(rpc_world_client(*state), COUNT, "100", &l, TEXT_TYPE));
    listener_wait_done(&l);
    assert_int_equal(l.n_messages, 100);
    assert_int_equal(l.code, RELAY_OK);
    listener_fini(&l);
}

static void done_brings_the_error_and_its_hint(void **state) {
    listener l;
    relay_rpc_stream *s = listen_to(rpc_world_client(*state), FAIL, "full", &l, TEXT_TYPE);
    listener_wait_done(&l);
    assert_int_equal(l.code, RELAY_RESOURCE_EXHAUSTED);
    assert_string_equal(l.e.message, "full");
    assert_int_equal(l.e.retry_after_ms, 1234);
    relay_rpc_stream_release(s);
    listener_fini(&l);
}

static void done_comes_after_cancel(void **state) {
    listener l;
    relay_rpc_stream *s = listen_to(rpc_world_client(*state), HANG, "nothing", &l, TEXT_TYPE);
    rpc_world_wait(*state, (rpc_world_counts){.messages = 1});
    relay_rpc_stream_cancel(s);
    listener_wait_done(&l);
    assert_int_equal(l.code, RELAY_CANCELLED);
    relay_rpc_stream_release(s);
    listener_fini(&l);
}

static void garbage_from_the_server_ends_a_stream_with_callbacks(void **state) {
    listener l;
    relay_rpc_stream *s = listen_to(rpc_world_client(*state), COUNT, "5", &l, &relay__v1__session_cancel__descriptor);
    listener_wait_done(&l);
    assert_int_equal(l.n_messages, 0);
    assert_int_equal(l.code, RELAY_INTERNAL);
    relay_rpc_stream_release(s);
    listener_fini(&l);
}

// ---- Sending and waiting

static void send_after_the_end_is_refused(void **state) {
    relay_rpc_stream *s = rpc_open(rpc_world_client(*state), CHAT);
    relay_rpc_stream_half_close(s);
    Relay__V1__DetokenizeResponse m = rpc_text("x");
    assert_int_equal(relay_rpc_stream_send(s, &m.base), RELAY_CANCELLED);
    relay_rpc_stream_half_close(s);
    rpc_expect_end(s, RELAY_OK);
    assert_int_equal(relay_rpc_stream_send(s, &m.base), RELAY_CANCELLED);
    relay_rpc_stream_release(s);
}

static void next_times_out_and_the_stream_goes_on(void **state) {
    relay_rpc_stream *s = rpc_open(rpc_world_client(*state), CHAT);
    ProtobufCMessage *message;
    bool timed_out;
    relay_mono_us until = relay_mono_now() + 50000;
    assert_int_equal(relay_rpc_stream_next(s, until, &message, &timed_out, NULL), RELAY_DEADLINE_EXCEEDED);
    assert_true(timed_out && message == NULL && relay_mono_now() >= until);
    rpc_send(s, "after all");
    rpc_expect(s, "after all");
    relay_rpc_stream_half_close(s);
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
}

// ---- Connecting

// A socket that listens and never says a word.
static int silent_listener(char target[64]) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(target, 64, "127.0.0.1:%u", ntohs(address.sin_port));
    return fd;
}

static relay_rpc_client *client_of(const char *target) {
    relay_rpc_client *c;
    relay_err e;
    assert_int_equal(relay_rpc_client_create(&c, &(relay_rpc_client_opts){.target = target, .outbox_bytes = 5000}, &e),
                     RELAY_OK);
    return c;
}

static void nobody_at_the_address_is_unavailable(void **state) {
    char target[64];
    close(silent_listener(target));
    relay_rpc_client *c = client_of(target);
    relay_err e;
    assert_int_equal(relay_rpc_client_wait_ready(c, RELAY_NEVER_US, &e), RELAY_UNAVAILABLE);
    assert_non_null(strstr(e.message, target));
    char answer[256];
    assert_int_equal(rpc_unary(c, ECHO, "x", answer), RELAY_UNAVAILABLE);
    relay_rpc_client_destroy(c);
}

static void silence_at_the_address_runs_into_the_deadline(void **state) {
    char target[64];
    int fd = silent_listener(target);
    relay_rpc_client *c = client_of(target);
    relay_err e;
    assert_int_equal(relay_rpc_client_wait_ready(c, relay_mono_now() + 200000, &e), RELAY_DEADLINE_EXCEEDED);
    relay_rpc_client_destroy(c);
    close(fd);
}

static void what_cannot_be_sent_is_bounded(void **state) {
    char target[64];
    int fd = silent_listener(target);
    relay_rpc_client *c = client_of(target);
    relay_rpc_stream *s = rpc_open(c, CHAT);
    Relay__V1__DetokenizeResponse m = rpc_text("a text of about thirty letters");
    int n = 0;
    while (relay_rpc_stream_send(s, &m.base) == RELAY_OK)
        assert_true(++n < 100);
    assert_true(n > 10);
    relay_rpc_stream_release(s);
    relay_rpc_client_destroy(c);
    close(fd);
}

static void reconnects_to_a_restarted_server(void **state) {
    rpc_world *first = rpc_world_create(NULL, NULL);
    relay_rpc_client *c = rpc_world_new_client(first, NULL);
    char target[64], answer[256];
    snprintf(target, sizeof target, "%s", rpc_world_target(first));
    assert_int_equal(rpc_unary(c, ECHO, "x", answer), RELAY_OK);
    rpc_world_destroy(first);
    assert_int_equal(rpc_unary(c, ECHO, "x", answer), RELAY_UNAVAILABLE);

    relay_rpc_server *second;
    relay_err e;
    assert_int_equal(relay_rpc_server_create(&second, &(relay_rpc_server_opts){.listen = target}, &e), RELAY_OK);
    assert_int_equal(relay_rpc_server_start(second, &e), RELAY_OK);
    assert_int_equal(relay_rpc_client_wait_ready(c, rpc_soon(), &e), RELAY_OK);
    assert_int_equal(rpc_unary(c, ECHO, "x", answer), RELAY_UNIMPLEMENTED); // it has no methods, but it is there
    relay_rpc_client_destroy(c);
    relay_rpc_server_drain(second, 0);
    relay_rpc_server_destroy(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(callbacks_come_in_order_and_done_last),
        TEST(many_streams_with_callbacks),
        TEST(done_comes_after_an_early_release),
        TEST(done_brings_the_error_and_its_hint),
        TEST(done_comes_after_cancel),
        TEST(garbage_from_the_server_ends_a_stream_with_callbacks),
        TEST(send_after_the_end_is_refused),
        TEST(next_times_out_and_the_stream_goes_on),
        TEST(nobody_at_the_address_is_unavailable),
        TEST(silence_at_the_address_runs_into_the_deadline),
        TEST(what_cannot_be_sent_is_bounded),
        cmocka_unit_test(reconnects_to_a_restarted_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
