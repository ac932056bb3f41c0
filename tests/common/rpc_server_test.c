// Calls of every kind, and what passes between client and server.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

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

static void simple_request(void **state) {
    char answer[256];
    assert_int_equal(rpc_unary(rpc_world_client(*state), ECHO, "hello", answer), RELAY_OK);
    assert_string_equal(answer, "hello");
}

static void server_stream_comes_in_order_and_ends(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), COUNT, "1000");
    for (int i = 0; i < 1000; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        rpc_expect(s, number);
    }
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
}

static void server_stream_may_be_empty(void **state) {
    relay_rpc_stream *s = rpc_ask(rpc_world_client(*state), COUNT, "0");
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
}

static void client_stream_is_answered_at_its_end(void **state) {
    relay_rpc_stream *s = rpc_open(rpc_world_client(*state), JOIN);
    rpc_send(s, "re");
    rpc_send(s, "la");
    rpc_send(s, "y");
    relay_rpc_stream_half_close(s);
    rpc_expect(s, "relay");
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
}

static void bidi_answers_while_the_client_sends(void **state) {
    relay_rpc_stream *s = rpc_open(rpc_world_client(*state), CHAT);
    for (int i = 0; i < 50; i++) {
        rpc_send(s, "ping");
        rpc_expect(s, "ping");
    }
    relay_rpc_stream_half_close(s);
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(simple_request),
        TEST(server_stream_comes_in_order_and_ends),
        TEST(server_stream_may_be_empty),
        TEST(client_stream_is_answered_at_its_end),
        TEST(bidi_answers_while_the_client_sends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
