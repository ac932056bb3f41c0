// The ends of a call that nobody asked for: cancellation, deadlines, lost connections.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/common/rpc_world.h"
#include "tests/common/tcp_proxy.h"

#define TEXT_TYPE &relay__v1__detokenize_response__descriptor

static int set_up(void **state) {
    *state = rpc_world_create(NULL, NULL);
    return 0;
}

// A server that looks after its silent connections every 300 ms, with patience for a busy machine.
static int set_up_keepalive(void **state) {
    *state = rpc_world_create(&(relay_rpc_server_opts){.keepalive_time_ms = 300, .keepalive_timeout_ms = 4000}, NULL);
    return 0;
}

static int tear_down(void **state) {
    rpc_world_destroy(*state);
    return 0;
}

static void cancel_before_first_message(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "nothing");
    rpc_world_wait(*state, (rpc_world_counts){.messages = 1});
    relay_rpc_stream_cancel(s);
    rpc_expect_end(s, RELAY_CANCELLED);
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1, .destroyed = 1});
    relay_rpc_stream_release(s);
}

static void cancel_after_first_message(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_expect(s, "first");
    relay_rpc_stream_cancel(s);
    rpc_expect_end(s, RELAY_CANCELLED);
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1, .destroyed = 1});
    relay_rpc_stream_release(s);
}

static void release_without_reading_cancels(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_world_wait(*state, (rpc_world_counts){.messages = 1});
    relay_rpc_stream_release(s);
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1, .destroyed = 1});
}

static void write_after_cancel_fails_cleanly(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_expect(s, "first");
    relay_rpc_call *call = rpc_world_hanging(*state);
    assert_false(relay_rpc_call_is_over(call));
    relay_rpc_stream_cancel(s);
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1});
    assert_true(relay_rpc_call_is_over(call));
    Relay__V1__DetokenizeResponse m = rpc_text("too late");
    assert_int_equal(relay_rpc_call_send(call, &m.base), RELAY_CANCELLED);
    assert_int_equal(relay_rpc_call_outbox_used(call), 0);
    relay_rpc_call_reply(call, &m.base);
    relay_rpc_call_finish(call, RELAY_OK, NULL);
    relay_rpc_call_abort(call, RELAY_INTERNAL, NULL);
    assert_int_equal(rpc_world_count(*state).destroyed, 0); // the test's reference holds it
    relay_rpc_call_unref(call);
    rpc_world_wait(*state, (rpc_world_counts){.destroyed = 1});
    relay_rpc_stream_release(s);
}

static void half_close_vs_cancel(void **state) {
    relay_rpc_stream *s = rpc_open(rpc_world_client(*state), CHAT);
    rpc_send(s, "x");
    rpc_expect(s, "x");
    relay_rpc_stream_half_close(s);
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
    rpc_world_wait(*state, (rpc_world_counts){.destroyed = 1});
    rpc_world_counts n = rpc_world_count(*state);
    assert_true(n.half_closed == 1 && n.cancelled == 0);

    for (uint32_t i = 0; i < 50; i++) {
        s = rpc_open(rpc_world_client(*state), CHAT);
        rpc_send(s, "x");
        rpc_expect(s, "x");
        relay_rpc_stream_cancel(s);
        relay_rpc_stream_release(s);
        rpc_world_wait(*state, (rpc_world_counts){.cancelled = i + 1, .destroyed = i + 2});
    }
    assert_int_equal(rpc_world_count(*state).half_closed, 1);
}

static relay_rpc_stream *ask_until(relay_rpc_client *c, const char *path, const char *text, relay_mono_us deadline) {
    relay_rpc_stream *s;
    relay_err e;
    assert_int_equal(relay_rpc_stream_open(&s, c, path, TEXT_TYPE, NULL, 0, deadline, NULL, NULL, &e), RELAY_OK);
    rpc_send(s, text);
    relay_rpc_stream_half_close(s);
    return s;
}

static void deadline_stops_call(void **state) {
    relay_mono_us deadline = relay_mono_now() + 2000000;
    relay_rpc_stream *s = ask_until(rpc_world_client(*state), HANG, "first", deadline);
    rpc_expect(s, "first");
    relay_rpc_call *call = rpc_world_hanging(*state);
    // Travels as a time span, in milliseconds at best.
    relay_mono_us seen = relay_rpc_call_deadline(call);
    assert_true(seen > deadline - 1000000 && seen < deadline + 1000000);
    relay_rpc_call_unref(call);
    rpc_expect_end(s, RELAY_DEADLINE_EXCEEDED);
    assert_true(relay_mono_now() >= deadline - 1000);
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1, .destroyed = 1});
    relay_rpc_stream_release(s);
}

static void a_deadline_that_is_past_reaches_no_handler(void **state) {
    Relay__V1__DetokenizeResponse m = rpc_text("x");
    ProtobufCMessage *response;
    relay_err e;
    assert_int_equal(relay_rpc_client_unary(rpc_world_client(*state), ECHO, &m.base, TEXT_TYPE, NULL, 0,
                                            relay_mono_now() - 1000000, &response, &e),
                     RELAY_DEADLINE_EXCEEDED);
    assert_int_equal(rpc_world_count(*state).messages, 0);
}

static void a_call_without_deadline_has_none(void **state) {
    relay_rpc_stream *s = ask_until(rpc_world_client(*state), HANG, "first", RELAY_NEVER_US);
    rpc_expect(s, "first");
    relay_rpc_call *call = rpc_world_hanging(*state);
    assert_true(relay_rpc_call_deadline(call) == RELAY_NEVER_US);
    relay_rpc_call_unref(call);
    rpc_world_release(*state);
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
}

// A client that reaches the world through a proxy.
static relay_rpc_client *client_through(tcp_proxy *proxy, const relay_rpc_client_opts *client_opts) {
    relay_rpc_client_opts opts = *client_opts;
    char target[64];
    snprintf(target, sizeof target, "127.0.0.1:%u", tcp_proxy_port(proxy));
    opts.target = target;
    relay_rpc_client *c;
    relay_err e;
    assert_int_equal(relay_rpc_client_create(&c, &opts, &e), RELAY_OK);
    return c;
}

// Nothing comes for a while.
static void expect_silence(relay_rpc_stream *s, relay_mono_us us) {
    ProtobufCMessage *message;
    bool timed_out;
    assert_int_equal(relay_rpc_stream_next(s, relay_mono_now() + us, &message, &timed_out, NULL),
                     RELAY_DEADLINE_EXCEEDED);
    assert_true(timed_out);
}

static void a_closed_connection_cancels_its_calls(void **state) {
    tcp_proxy *proxy = tcp_proxy_create(relay_rpc_server_port(rpc_world_server(*state)));
    relay_rpc_client *c = client_through(proxy, &(relay_rpc_client_opts){0});
    relay_rpc_stream *s = rpc_ask(c, HANG, "first");
    rpc_expect(s, "first");
    tcp_proxy_destroy(proxy);
    rpc_expect_end(s, RELAY_UNAVAILABLE);
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1, .destroyed = 1});
    relay_rpc_stream_release(s);
    relay_rpc_client_destroy(c);
}

static void a_half_open_connection_is_found_by_the_server(void **state) {
    tcp_proxy *proxy = tcp_proxy_create(relay_rpc_server_port(rpc_world_server(*state)));
    relay_rpc_client *c = client_through(proxy, &(relay_rpc_client_opts){0});
    relay_rpc_stream *s = rpc_ask(c, HANG, "first");
    rpc_expect(s, "first");
    expect_silence(s, 1000000); // some rounds of pings go well
    tcp_proxy_freeze(proxy);
    // The client's pings come after a minute: it is the server's that find out.
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1, .destroyed = 1});
    relay_rpc_stream_release(s);
    relay_rpc_client_destroy(c);
    tcp_proxy_destroy(proxy);
}

static void a_half_open_connection_is_found_by_the_client(void **state) {
    tcp_proxy *proxy = tcp_proxy_create(relay_rpc_server_port(rpc_world_server(*state)));
    relay_rpc_client *c =
        client_through(proxy, &(relay_rpc_client_opts){.keepalive_time_ms = 300, .keepalive_timeout_ms = 4000});
    relay_rpc_stream *s = rpc_ask(c, HANG, "first");
    rpc_expect(s, "first");
    tcp_proxy_freeze(proxy);
    rpc_expect_end(s, RELAY_UNAVAILABLE);
    relay_rpc_stream_release(s);
    relay_rpc_client_destroy(c);
    tcp_proxy_destroy(proxy);
    rpc_world_wait(*state, (rpc_world_counts){.cancelled = 1, .destroyed = 1});
}

static void a_silent_connection_that_answers_pings_stays(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), HANG, "first");
    rpc_expect(s, "first");
    expect_silence(s, 1500000); // several rounds of pings
    rpc_world_release(*state);
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
}

static void many_cancels_leave_nothing_behind(void **state) {
    enum { N = 300 };
    for (uint32_t i = 0; i < N; i++) {
        // At every stage a call can be in.
        const char *const paths[] = {HANG, ECHO, COUNT, CHAT, JOIN};
        relay_rpc_stream *s = rpc_open(rpc_world_client(*state), paths[i % 5]);
        if (i % 3 != 0) rpc_send(s, i % 2 ? "first" : "9");
        if (i % 7 == 0) relay_rpc_stream_half_close(s);
        relay_rpc_stream_cancel(s);
        relay_rpc_stream_release(s);
    }
    // The world's end waits for every call, and counts.
    char answer[256];
    assert_int_equal(rpc_unary(rpc_world_client(*state), ECHO, "fine", answer), RELAY_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name)           cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define TEST_KEEPALIVE(name) cmocka_unit_test_setup_teardown(name, set_up_keepalive, tear_down)
        TEST(cancel_before_first_message),
        TEST(cancel_after_first_message),
        TEST(release_without_reading_cancels),
        TEST(write_after_cancel_fails_cleanly),
        TEST(half_close_vs_cancel),
        TEST(deadline_stops_call),
        TEST(a_deadline_that_is_past_reaches_no_handler),
        TEST(a_call_without_deadline_has_none),
        TEST(a_closed_connection_cancels_its_calls),
        TEST_KEEPALIVE(a_half_open_connection_is_found_by_the_server),
        TEST(a_half_open_connection_is_found_by_the_client),
        TEST_KEEPALIVE(a_silent_connection_that_answers_pings_stays),
        TEST(many_cancels_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
