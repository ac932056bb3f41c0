// grpc.health.v1.Health, as its clients see it.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc_client.h"
#include "common/rpc_standard.h"
#include "grpc/health/v1/health.pb-c.h"

#define CHECK         "/grpc.health.v1.Health/Check"
#define WATCH         "/grpc.health.v1.Health/Watch"
#define RESPONSE_TYPE &grpc__health__v1__health_check_response__descriptor

enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

typedef struct world {
    relay_rpc_server *server;
    relay_rpc_health *health;
    relay_rpc_client *client;
    bool is_drained;
} world;

static relay_mono_us soon(void) {
    return relay_mono_now() + 20 * 1000000;
}

static int set_up(void **state) {
    world *w = relay_calloc(1, sizeof *w);
    relay_err e;
    assert_int_equal(
        relay_rpc_server_create(&w->server, &(relay_rpc_server_opts){.listen = "127.0.0.1:0", .max_calls = 1}, &e),
        RELAY_OK);
    const char *const services[] = {"relay.v1.ModelService", "relay.v1.TokenizerService"};
    w->health = relay_rpc_health_create(w->server, services, 2);
    assert_int_equal(relay_rpc_server_start(w->server, &e), RELAY_OK);
    char target[64];
    snprintf(target, sizeof target, "127.0.0.1:%u", relay_rpc_server_port(w->server));
    assert_int_equal(relay_rpc_client_create(&w->client, &(relay_rpc_client_opts){.target = target}, &e), RELAY_OK);
    *state = w;
    return 0;
}

static int tear_down(void **state) {
    world *w = *state;
    relay_rpc_client_destroy(w->client);
    if (!w->is_drained) relay_rpc_server_drain(w->server, 10 * 1000000);
    relay_rpc_server_destroy(w->server);
    relay_rpc_health_destroy(w->health);
    free(w);
    return 0;
}

static Grpc__Health__V1__HealthCheckRequest request_for(const char *service) {
    Grpc__Health__V1__HealthCheckRequest m = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    m.has_service = 1;
    m.service = (ProtobufCBinaryData){.data = (uint8_t *)service, .len = strlen(service)};
    return m;
}

static relay_code check(world *w, const char *service, int *status, relay_err *e) {
    Grpc__Health__V1__HealthCheckRequest m = request_for(service);
    ProtobufCMessage *response;
    relay_code code = relay_rpc_client_unary(w->client, CHECK, &m.base, RESPONSE_TYPE, NULL, 0, soon(), &response, e);
    if (code != RELAY_OK) return code;
    const Grpc__Health__V1__HealthCheckResponse *got = (const Grpc__Health__V1__HealthCheckResponse *)response;
    assert_true(got->has_status);
    *status = (int)got->status;
    protobuf_c_message_free_unpacked(response, NULL);
    return RELAY_OK;
}

static void expect_status(world *w, const char *service, int want) {
    int status = 0;
    relay_err e;
    assert_int_equal(check(w, service, &status, &e), RELAY_OK);
    assert_int_equal(status, want);
}

static relay_rpc_stream *watch(world *w, const char *service) {
    relay_rpc_stream *s;
    relay_err e;
    assert_int_equal(relay_rpc_stream_open(&s, w->client, WATCH, RESPONSE_TYPE, NULL, 0, soon(), NULL, NULL, &e),
                     RELAY_OK);
    Grpc__Health__V1__HealthCheckRequest m = request_for(service);
    assert_int_equal(relay_rpc_stream_send(s, &m.base), RELAY_OK);
    relay_rpc_stream_half_close(s);
    return s;
}

// The next status of a watch; 0 at its end, with the code.
static int next_status(relay_rpc_stream *s, relay_code *code) {
    ProtobufCMessage *message;
    relay_err e;
    bool timed_out;
    relay_code got = relay_rpc_stream_next(s, soon(), &message, &timed_out, &e);
    assert_false(timed_out);
    if (code != NULL) *code = got;
    if (message == NULL) return 0;
    int status = (int)((const Grpc__Health__V1__HealthCheckResponse *)message)->status;
    protobuf_c_message_free_unpacked(message, NULL);
    return status;
}

static void expect_silence(relay_rpc_stream *s) {
    ProtobufCMessage *message;
    bool timed_out;
    relay_code code = relay_rpc_stream_next(s, relay_mono_now() + 50000, &message, &timed_out, NULL);
    assert_int_equal(code, RELAY_DEADLINE_EXCEEDED);
    assert_true(timed_out);
}

static void check_answers_for_the_server_and_each_service(void **state) {
    world *w = *state;
    const char *const services[] = {"", "relay.v1.ModelService", "relay.v1.TokenizerService"};
    for (int i = 0; i < 3; i++) {
        relay_rpc_health_set(w->health, false);
        expect_status(w, services[i], NOT_SERVING);
        relay_rpc_health_set(w->health, true);
        expect_status(w, services[i], SERVING);
    }
}

static void health_begins_as_not_serving(void **state) {
    expect_status(*state, "", NOT_SERVING);
}

static void check_of_an_unknown_service_is_not_found(void **state) {
    int status;
    relay_err e;
    assert_int_equal(check(*state, "relay.v1.Model", &status, &e), RELAY_NOT_FOUND);
    assert_string_equal(e.message, "unknown service \"relay.v1.Model\"");
    assert_int_equal(check(*state, "\xFF", &status, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "service is not valid UTF-8: byte 0 of 1 is 0xFF");
}

static void watch_tells_the_status_and_each_change(void **state) {
    world *w = *state;
    relay_rpc_stream *s = watch(w, "relay.v1.ModelService");
    assert_int_equal(next_status(s, NULL), NOT_SERVING);
    relay_rpc_health_set(w->health, true);
    assert_int_equal(next_status(s, NULL), SERVING);
    relay_rpc_health_set(w->health, true);
    expect_silence(s);
    relay_rpc_health_set(w->health, false);
    assert_int_equal(next_status(s, NULL), NOT_SERVING);
    relay_rpc_stream_release(s);
}

static void watch_of_an_unknown_service_stays_open(void **state) {
    world *w = *state;
    relay_rpc_stream *s = watch(w, "other.Service");
    assert_int_equal(next_status(s, NULL), SERVICE_UNKNOWN);
    relay_rpc_health_set(w->health, true);
    expect_silence(s);
    relay_rpc_stream_release(s);
}

static void health_watch_coalesces(void **state) {
    world *w = *state;
    relay_rpc_stream *s = watch(w, "");
    assert_int_equal(next_status(s, NULL), NOT_SERVING);
    // Nobody reads: far more changes than the transport takes (64 kB of 16-byte frames, were there no coalescing).
    enum { CHANGES = 200001 };
    for (int i = 0; i < CHANGES; i++)
        relay_rpc_health_set(w->health, i % 2 == 0);
    // The newest comes, and is the last.
    int n = 0, status = 0;
    for (;; n++) {
        ProtobufCMessage *message;
        bool timed_out;
        relay_code code = relay_rpc_stream_next(s, relay_mono_now() + 300000, &message, &timed_out, NULL);
        if (timed_out) break;
        assert_int_equal(code, RELAY_OK);
        assert_non_null(message);
        status = (int)((const Grpc__Health__V1__HealthCheckResponse *)message)->status;
        protobuf_c_message_free_unpacked(message, NULL);
    }
    assert_int_equal(status, SERVING);
    assert_true(n < CHANGES / 2);
    relay_rpc_stream_release(s);
}

static void many_watches_are_told_and_closed(void **state) {
    world *w = *state;
    enum { N = 50 };
    relay_rpc_stream *streams[N];
    for (int i = 0; i < N; i++) {
        streams[i] = watch(w, "");
        assert_int_equal(next_status(streams[i], NULL), NOT_SERVING);
    }
    // Some go away in between.
    for (int i = 0; i < N; i += 3) {
        relay_rpc_stream_release(streams[i]);
        streams[i] = NULL;
    }
    relay_rpc_health_set(w->health, true);
    relay_rpc_health_set(w->health, false);
    relay_rpc_health_close_watches(w->health);
    for (int i = 0; i < N; i++) {
        if (streams[i] == NULL) continue;
        relay_code code;
        int status, last = 0;
        while ((status = next_status(streams[i], &code)) != 0)
            last = status;
        assert_int_equal(code, RELAY_UNAVAILABLE);
        assert_true(last == 0 || last == NOT_SERVING);
        relay_rpc_stream_release(streams[i]);
    }
    // Late comers are told and sent away.
    relay_rpc_stream *late = watch(w, "");
    relay_code code;
    assert_int_equal(next_status(late, NULL), NOT_SERVING);
    assert_int_equal(next_status(late, &code), 0);
    assert_int_equal(code, RELAY_UNAVAILABLE);
    relay_rpc_stream_release(late);
    // Nothing holds the drain.
    relay_mono_us before = relay_mono_now();
    w->is_drained = true;
    relay_rpc_server_drain(w->server, 20 * 1000000);
    assert_true(relay_mono_now() - before < 5 * 1000000);
}

static void health_works_at_the_limit_of_calls(void **state) {
    world *w = *state; // max_calls is 1
    relay_rpc_stream *first = watch(w, ""), *second = watch(w, "");
    assert_int_equal(next_status(first, NULL), NOT_SERVING);
    assert_int_equal(next_status(second, NULL), NOT_SERVING);
    expect_status(w, "", NOT_SERVING);
    relay_rpc_stream_release(first);
    relay_rpc_stream_release(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(health_begins_as_not_serving),
        TEST(check_answers_for_the_server_and_each_service),
        TEST(check_of_an_unknown_service_is_not_found),
        TEST(watch_tells_the_status_and_each_change),
        TEST(watch_of_an_unknown_service_stays_open),
        TEST(health_watch_coalesces),
        TEST(many_watches_are_told_and_closed),
        TEST(health_works_at_the_limit_of_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
