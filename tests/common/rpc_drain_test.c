// The end of a server: what runs is waited for, what hangs is cut, nothing is left.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/common/rpc_world.h"

#define TEXT_TYPE &relay__v1__detokenize_response__descriptor

#define SECOND 1000000

static int set_up(void **state) {
    *state = rpc_world_create(NULL, NULL);
    return 0;
}

static int tear_down(void **state) {
    rpc_world_destroy(*state);
    return 0;
}

// A drain on a thread of its own.
typedef struct drain {
    rpc_world *world;
    relay_mono_us grace_us, took_us;
    pthread_t thread;
} drain;

static void *run_drain(void *arg) {
    drain *d = arg;
    relay_mono_us before = relay_mono_now();
    rpc_world_drain(d->world, d->grace_us);
    d->took_us = relay_mono_now() - before;
    return NULL;
}

static void start_drain(drain *d, rpc_world *w, relay_mono_us grace_us) {
    *d = (drain){.world = w, .grace_us = grace_us};
    assert_int_equal(pthread_create(&d->thread, NULL, run_drain, d), 0);
}

static void join_drain(drain *d, relay_mono_us at_least, relay_mono_us at_most) {
    pthread_join(d->thread, NULL);
    if (d->took_us < at_least || d->took_us > at_most) fail_msg("the drain took %lld us", (long long)d->took_us);
}

// Waits until the server takes no more calls. One call may be left without an answer (relay_rpc_server_drain).
static void wait_until_refused(rpc_world *w) {
    relay_mono_us until = rpc_soon();
    for (;;) {
        Relay__V1__DetokenizeResponse m = rpc_text("x");
        ProtobufCMessage *response;
        relay_err e;
        relay_code code = relay_rpc_client_unary(rpc_world_client(w), ECHO, &m.base, TEXT_TYPE, NULL, 0,
                                                 relay_mono_now() + SECOND, &response, &e);
        if (code == RELAY_UNAVAILABLE) return;
        if (code == RELAY_OK) protobuf_c_message_free_unpacked(response, NULL);
        if (relay_mono_now() > until) fail_msg("the last call ended with %s", relay_code_name(code));
        usleep(1000);
    }
}

static void shutdown_with_posted_slots(void **state) {
    rpc_world *w = rpc_world_create(NULL, NULL);
    rpc_world_drain(w, 10 * SECOND);
    rpc_world_destroy(w);
}

static void a_drain_without_calls_is_quick(void **state) {
    drain d;
    start_drain(&d, *state, 60 * SECOND);
    join_drain(&d, 0, 5 * SECOND);
}

static void drain_waits_for_streams(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_expect(s, "first");
    drain d;
    start_drain(&d, *state, 60 * SECOND);
    wait_until_refused(*state);
    // The stream goes on meanwhile.
    relay_rpc_call *call = rpc_world_hanging(*state);
    Relay__V1__DetokenizeResponse m = rpc_text("while draining");
    assert_int_equal(relay_rpc_call_send(call, &m.base), RELAY_OK);
    relay_rpc_call_unref(call);
    rpc_expect(s, "while draining");
    rpc_world_release(*state);
    rpc_expect_end(s, RELAY_OK);
    join_drain(&d, 0, 10 * SECOND);
    assert_int_equal(rpc_world_count(*state).cancelled, 0);
    relay_rpc_stream_release(s);
}

static void drain_cancels_after_grace(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    relay_rpc_stream *chat = rpc_open(rpc_world_client(*state), CHAT);
    rpc_send(chat, "x");
    rpc_expect(s, "first");
    rpc_expect(chat, "x");
    drain d;
    start_drain(&d, *state, SECOND / 4);
    join_drain(&d, SECOND / 4, 10 * SECOND);
    rpc_expect_end(s, RELAY_UNAVAILABLE);
    rpc_expect_end(chat, RELAY_UNAVAILABLE);
    assert_int_equal(rpc_world_count(*state).cancelled, 2);
    assert_int_equal(rpc_world_count(*state).half_closed, 0);
    relay_rpc_stream_release(s);
    relay_rpc_stream_release(chat);
}

static void drain_cuts_a_writer_that_is_stuck(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "nothing");
    relay_rpc_call *call = rpc_world_hanging(*state);
    rpc_world_stuff(call, 1 << 20);
    relay_rpc_call_finish(call, RELAY_OK, NULL); // can never be delivered
    relay_rpc_call_unref(call);
    rpc_world_release(*state);
    drain d;
    start_drain(&d, *state, SECOND / 4);
    join_drain(&d, SECOND / 4, 10 * SECOND);
    relay_rpc_stream_release(s);
}

static void drain_waits_for_the_last_reference(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_expect(s, "first");
    relay_rpc_call *call = rpc_world_hanging(*state);
    drain d;
    start_drain(&d, *state, 0);
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1});
    usleep(100000);
    assert_int_equal(rpc_world_count(*state).destroyed, 0);
    relay_rpc_call_unref(call);
    join_drain(&d, 100000, 10 * SECOND);
    assert_int_equal(rpc_world_count(*state).destroyed, 1);
    relay_rpc_stream_release(s);
}

static void hurry_ends_the_wait(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_expect(s, "first");
    drain d;
    start_drain(&d, *state, RELAY_NEVER_US);
    wait_until_refused(*state);
    relay_rpc_server_hurry(rpc_world_server(*state));
    join_drain(&d, 0, 10 * SECOND);
    rpc_expect_end(s, RELAY_UNAVAILABLE);
    relay_rpc_stream_release(s);
}

static void hurry_before_the_drain_counts(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_expect(s, "first");
    relay_rpc_server_hurry(rpc_world_server(*state));
    drain d;
    start_drain(&d, *state, RELAY_NEVER_US);
    join_drain(&d, 0, 10 * SECOND);
    rpc_expect_end(s, RELAY_UNAVAILABLE);
    relay_rpc_stream_release(s);
}

static void new_connections_are_refused_while_draining(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_expect(s, "first");
    drain d;
    start_drain(&d, *state, 60 * SECOND);
    wait_until_refused(*state);
    relay_rpc_client *c;
    relay_err e;
    assert_int_equal(relay_rpc_client_create(&c, &(relay_rpc_client_opts){.target = rpc_world_target(*state)}, &e),
                     RELAY_OK);
    assert_int_equal(relay_rpc_client_wait_ready(c, relay_mono_now() + SECOND / 2, &e), RELAY_UNAVAILABLE);
    relay_rpc_client_destroy(c);
    rpc_world_release(*state);
    rpc_expect_end(s, RELAY_OK);
    join_drain(&d, 0, 10 * SECOND);
    relay_rpc_stream_release(s);
}

static void drain_under_load_answers_or_refuses_every_call(void **state) {
    // Calls keep coming while the server goes: each has its whole answer or is UNAVAILABLE, which says: try elsewhere.
    enum { N = 400 };
    relay_rpc_stream *streams[N];
    drain d;
    for (int i = 0; i < N; i++) {
        if (i == N / 2) start_drain(&d, *state, 5 * SECOND);
        streams[i] = rpc_open(rpc_world_client(*state), COUNT);
        Relay__V1__DetokenizeResponse m = rpc_text("2");
        if (relay_rpc_stream_send(streams[i], &m.base) == RELAY_OK) relay_rpc_stream_half_close(streams[i]);
    }
    int n_ok = 0, n_refused = 0;
    for (int i = 0; i < N; i++) {
        int n = 0;
        ProtobufCMessage *message;
        relay_err e;
        relay_code code;
        while ((code = relay_rpc_stream_next(streams[i], rpc_soon(), &message, NULL, &e)) == RELAY_OK) {
            if (message == NULL) break;
            protobuf_c_message_free_unpacked(message, NULL);
            n++;
        }
        if (code == RELAY_OK) {
            assert_int_equal(n, 2);
            n_ok++;
        } else {
            assert_int_equal(code, RELAY_UNAVAILABLE);
            n_refused++;
        }
        relay_rpc_stream_release(streams[i]);
    }
    assert_int_equal(n_ok + n_refused, N);
    join_drain(&d, 0, 10 * SECOND);
}

// ---- Servers that never get far

static void a_server_may_go_without_having_started(void **state) {
    relay_rpc_server *s;
    relay_err e;
    assert_int_equal(relay_rpc_server_create(&s, &(relay_rpc_server_opts){.listen = "127.0.0.1:0"}, &e), RELAY_OK);
    assert_int_not_equal(relay_rpc_server_port(s), 0);
    relay_rpc_server_destroy(s);
    relay_rpc_server_destroy(NULL);
}

static void a_port_in_use_is_an_error(void **state) {
    relay_rpc_server *s;
    relay_err e;
    assert_int_equal(relay_rpc_server_create(&s, &(relay_rpc_server_opts){.listen = rpc_world_target(*state)}, &e),
                     RELAY_UNAVAILABLE);
    assert_null(s);
    assert_non_null(strstr(e.message, rpc_world_target(*state)));
}

static void an_address_that_is_none_is_an_error(void **state) {
    relay_rpc_server *s;
    relay_err e;
    assert_int_equal(relay_rpc_server_create(&s, &(relay_rpc_server_opts){.listen = "no.such.host.invalid:0"}, &e),
                     RELAY_UNAVAILABLE);
    assert_string_equal(e.message, "cannot listen on \"no.such.host.invalid:0\": the address is wrong, or in use");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        cmocka_unit_test(shutdown_with_posted_slots),
        TEST(a_drain_without_calls_is_quick),
        TEST(drain_waits_for_streams),
        TEST(drain_cancels_after_grace),
        TEST(drain_cuts_a_writer_that_is_stuck),
        TEST(drain_waits_for_the_last_reference),
        TEST(hurry_ends_the_wait),
        TEST(hurry_before_the_drain_counts),
        TEST(new_connections_are_refused_while_draining),
        TEST(drain_under_load_answers_or_refuses_every_call),
        cmocka_unit_test(a_server_may_go_without_having_started),
        TEST(a_port_in_use_is_an_error),
        cmocka_unit_test(an_address_that_is_none_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
