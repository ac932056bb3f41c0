// Whoever goes away takes its requests along: wherever they are, however it goes, within two steps.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "common/message.h"
#include "tests/common/tcp_proxy.h"
#include "tests/model_svc/service_world.h"

enum { PROMPT = 200, CHUNK = 16, SEQUENCE = 1, PROBE = 2 };

typedef enum place {
    QUEUED,
    IN_PROMPT,
    DECODING,
} place;

typedef enum way {
    CALL_CANCELLED,
    CALL_CONNECTION_LOST,
    CALL_CONNECTION_SILENT,
    CALL_NAMED_IN_CANCEL,
    SESSION_CANCELS_SEQUENCE,
    SESSION_CANCELLED,
    SESSION_CONNECTION_LOST,
    SESSION_CONNECTION_SILENT,
    N_WAYS,
} way;

static const char *const place_names[] = {"queued", "in its prompt", "decoding"};
static const char *const way_names[] = {
    "call cancelled",     "call's connection lost", "call's connection silent",  "call named",
    "session cancels it", "session cancelled",      "session's connection lost", "session's connection silent"};

typedef struct victim {
    service_world *w;
    tcp_proxy *proxy;
    relay_rpc_client *client;
    relay_rpc_stream *call;
    session *session;
} victim;

static bool is_session(way how) {
    return how >= SESSION_CANCELS_SEQUENCE;
}

static void start_victim(victim *v, way how) {
    v->proxy = tcp_proxy_create(relay_rpc_server_port(v->w->server));
    v->client = service_world_connect_to(v->w, tcp_proxy_port(v->proxy));
    token_request r;
    token_request_init(&r, PROMPT, 300, 1);
    RELAY_SET(&r.message, sequence_id, relay_message_text("victim"));
    if (is_session(how)) {
        v->session = session_open(v->w, v->client);
        session_start(v->session, SEQUENCE, &r.message);
    } else {
        v->call = generate_open(v->client, &r.message);
    }
}

static void bring_to(victim *v, place where) {
    switch (where) {
    case QUEUED:
        service_world_step_until(v->w, load_has_one_waiting);
        break;
    case IN_PROMPT:
        service_world_step(v->w, 3);
        break;
    case DECODING:
        service_world_step(v->w, PROMPT / CHUNK + 5);
        break;
    }
}

static void name_in_cancel(service_world *w) {
    Relay__V1__CancelRequest m = RELAY__V1__CANCEL_REQUEST__INIT;
    m.target_case = RELAY__V1__CANCEL_REQUEST__TARGET_SEQUENCE_ID;
    m.sequence_id = relay_message_text("victim");
    ProtobufCMessage *response;
    assert_int_equal(relay_rpc_client_unary(w->client, "/relay.v1.ModelService/Cancel", &m.base,
                                            &relay__v1__cancel_response__descriptor, NULL, 0, RELAY_NEVER_US, &response,
                                            NULL),
                     RELAY_OK);
    assert_true(((Relay__V1__CancelResponse *)response)->found);
    protobuf_c_message_free_unpacked(response, NULL);
}

// Returns once the server knows.
static void go_away(victim *v, way how, uint32_t calls_left) {
    token_request r;
    switch (how) {
    case CALL_CANCELLED:
        relay_rpc_stream_cancel(v->call);
        break;
    case SESSION_CANCELLED:
        relay_rpc_stream_cancel(v->session->stream);
        break;
    case CALL_CONNECTION_LOST:
    case SESSION_CONNECTION_LOST:
        tcp_proxy_destroy(v->proxy);
        v->proxy = NULL;
        break;
    case CALL_CONNECTION_SILENT:
    case SESSION_CONNECTION_SILENT:
        tcp_proxy_freeze(v->proxy);
        break;
    case CALL_NAMED_IN_CANCEL:
        name_in_cancel(v->w);
        return;
    case SESSION_CANCELS_SEQUENCE:
        session_cancel(v->session, SEQUENCE);
        token_request_init(&r, 0, 1, 1);
        session_start(v->session, PROBE, &r.message); // refused; the answer comes after the cancel was taken
        session_read_until_end(v->session, PROBE);
        return;
    case N_WAYS:
        break;
    }
    service_world_wait_for_calls(v->w, calls_left);
}

static void end_victim(victim *v) {
    if (v->call != NULL) relay_rpc_stream_cancel(v->call);
    if (v->call != NULL) relay_rpc_stream_release(v->call);
    if (v->session != NULL) session_close(v->session);
    relay_rpc_client_destroy(v->client);
    if (v->proxy != NULL) tcp_proxy_destroy(v->proxy);
}

static void check_case(place where, way how) {
    service_world_opts opts = {.max_running = where == QUEUED ? 1 : 8, .prompt_chunk = CHUNK};
    if (how == CALL_CONNECTION_SILENT || how == SESSION_CONNECTION_SILENT) opts.keepalive_ms = 100;
    service_world *w = service_world_create(opts);
    service_world_hold(w);
    victim v = {.w = w};
    relay_rpc_stream *blocker = NULL;
    if (where == QUEUED) {
        token_request r;
        token_request_init(&r, 10, 400, 2);
        blocker = generate_open(w->client, &r.message);
        service_world_step_until(w, load_has_one_running);
    }
    start_victim(&v, how);
    bring_to(&v, where);
    go_away(&v, how, blocker == NULL ? 0 : 1);
    service_world_allow(w, 2);
    if (where == QUEUED) {
        service_world_wait_for(w, load_has_one_running);
        relay_rpc_stream_cancel(blocker);
        relay_rpc_stream_release(blocker);
        service_world_release(w);
    }
    service_world_wait_for(w, load_is_empty);
    end_victim(&v);
    service_world_destroy(w);
}

static void whoever_goes_away_is_gone_within_two_steps(void **state) {
    for (place where = QUEUED; where <= DECODING; where++) {
        for (way how = 0; how < N_WAYS; how++) {
            print_message("%s, %s\n", place_names[where], way_names[how]);
            check_case(where, how);
        }
    }
}

// ---- Who does not read

static void a_session_that_does_not_read_is_cut_at_its_bound(void **state) {
    // 5 kB a step: more than the transport takes up, which is 4 MB once it has measured the connection.
    service_world *w = service_world_create((service_world_opts){
        .outbox_bytes = 512 << 10, .max_context = 4096, .n_blocks = 32 * 256, .token_budget = 1024});
    tcp_proxy *proxy = tcp_proxy_create(relay_rpc_server_port(w->server));
    relay_rpc_client *client = service_world_connect_to(w, tcp_proxy_port(proxy));
    session *slow = session_open(w, client), *healthy = session_open(w, w->client);
    token_request r;
    service_world_hold(w);
    for (uint32_t i = 0; i < 31; i++) {
        token_request_init(&r, 5, 2500, i);
        RELAY_SET(&r.output, top_logprobs, RELAY_MAX_TOP_LOGPROBS);
        r.message.output = &r.output;
        session_start(slow, i, &r.message);
    }
    for (uint32_t i = 0; i < 31; i++) {
        while (!slow->answers[i].is_accepted)
            session_read(slow, RELAY_NEVER_US / 4);
    }
    token_request_init(&r, 5, 2500, 99); // all of it would fit the outbox, however late it is read
    session_start(healthy, 0, &r.message);
    tcp_proxy_freeze(proxy);
    service_world_release(w);
    session_read_until_end(healthy, 0);
    assert_int_equal(healthy->answers[0].n_ids, 2500);
    service_world_wait_for(w, load_is_empty);
    assert_int_equal(service_world_counter(w, "relay_slow_readers_total"), 1);
    service_world_wait_for_calls(w, 1);
    session_close(healthy);
    session_close(slow);
    relay_rpc_client_destroy(client);
    tcp_proxy_destroy(proxy);
    service_world_destroy(w);
}

static void a_call_that_does_not_read_is_cut_at_its_bound(void **state) {
    service_world *w = service_world_create(
        (service_world_opts){.outbox_bytes = 4096, .max_context = 8192, .n_blocks = 1024, .token_budget = 8192});
    tcp_proxy *proxy = tcp_proxy_create(relay_rpc_server_port(w->server));
    relay_rpc_client *client = service_world_connect_to(w, tcp_proxy_port(proxy));
    token_request r;
    token_request_init(&r, 5, 8000, 1);
    service_world_hold(w);
    relay_rpc_stream *s = generate_open(client, &r.message);
    service_world_step_until(w, load_has_one_running);
    tcp_proxy_freeze(proxy);
    service_world_release(w);
    service_world_wait_for(w, load_is_empty);
    assert_int_equal(service_world_counter(w, "relay_slow_readers_total"), 1);
    assert_true(service_world_steps(w) < 8000);
    service_world_wait_for_calls(w, 0);
    relay_rpc_stream_cancel(s);
    relay_rpc_stream_release(s);
    relay_rpc_client_destroy(client);
    tcp_proxy_destroy(proxy);
    service_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_goes_away_is_gone_within_two_steps),
        cmocka_unit_test(a_session_that_does_not_read_is_cut_at_its_bound),
        cmocka_unit_test(a_call_that_does_not_read_is_cut_at_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
