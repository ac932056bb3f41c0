// The bounds: sizes, calls, queues, memory.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/metrics.h"
#include "tests/common/rpc_world.h"

#define TEXT_TYPE &relay__v1__detokenize_response__descriptor

static rpc_world *create_world(relay_rpc_server_opts opts) {
    return rpc_world_create(&opts, NULL);
}

// A text of `len` letters; the caller frees.
static char *long_text(size_t len) {
    char *text = relay_calloc(len + 1, 1);
    memset(text, 'x', len);
    return text;
}

static relay_code echo_letters(relay_rpc_client *c, size_t len, relay_err *e) {
    char *text = long_text(len);
    Relay__V1__DetokenizeResponse m = rpc_text(text);
    ProtobufCMessage *response;
    relay_code code = relay_rpc_client_unary(c, ECHO, &m.base, TEXT_TYPE, NULL, 0, rpc_soon(), &response, e);
    if (code == RELAY_OK) {
        const Relay__V1__DetokenizeResponse *got = (const Relay__V1__DetokenizeResponse *)response;
        assert_int_equal(got->text.len, len);
        assert_memory_equal(got->text.data, text, len);
        protobuf_c_message_free_unpacked(response, NULL);
    }
    free(text);
    return code;
}

// ---- Sizes

static void request_too_large(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.max_request_bytes = 1000});
    relay_err e;
    assert_int_equal(echo_letters(rpc_world_client(w), 2000, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_int_equal(echo_letters(rpc_world_client(w), 990, &e), RELAY_OK);
    rpc_world_destroy(w);
}

static void message_of_a_stream_too_large(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.max_request_bytes = 1000});
    relay_rpc_stream *s = rpc_open(rpc_world_client(w), CHAT);
    rpc_send(s, "small");
    rpc_expect(s, "small");
    char *text = long_text(2000);
    rpc_send(s, text);
    free(text);
    rpc_expect_end(s, RELAY_RESOURCE_EXHAUSTED);
    relay_rpc_stream_release(s);
    rpc_world_wait(w, (rpc_world_counts){.cancelled = 1, .destroyed = 1});
    rpc_world_destroy(w);
}

static void response_too_large(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.max_response_bytes = 1000});
    relay_err e;
    assert_int_equal(echo_letters(rpc_world_client(w), 2000, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_string_equal(e.message, "relay.v1.DetokenizeResponse of 2003 bytes is larger than the limit of 1000 bytes");
    assert_int_equal(echo_letters(rpc_world_client(w), 990, &e), RELAY_OK);
    rpc_world_destroy(w);
}

static void response_too_large_for_the_client(void **state) {
    rpc_world *w = rpc_world_create(NULL, &(relay_rpc_client_opts){.max_response_bytes = 1000});
    relay_err e;
    assert_int_equal(echo_letters(rpc_world_client(w), 2000, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_int_equal(echo_letters(rpc_world_client(w), 990, &e), RELAY_OK);
    rpc_world_destroy(w);
}

static void a_message_larger_than_the_outbox_is_sent(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.outbox_bytes = 1000});
    relay_err e;
    assert_int_equal(echo_letters(rpc_world_client(w), 5 << 20, &e), RELAY_OK);
    rpc_world_destroy(w);
}

static void a_message_with_too_many_parts_is_refused(void **state) {
    // Two bytes each on the wire, dozens in memory.
    rpc_world *w = create_world((relay_rpc_server_opts){0});
    enum { N = 1 << 20 };
    ProtobufCBinaryData *texts = relay_calloc(N, sizeof *texts);
    Relay__V1__TokenizeBatchRequest m = RELAY__V1__TOKENIZE_BATCH_REQUEST__INIT;
    m.texts = texts;
    m.n_texts = N;
    ProtobufCMessage *response;
    relay_err e;
    assert_int_equal(
        relay_rpc_client_unary(rpc_world_client(w), ECHO, &m.base, TEXT_TYPE, NULL, 0, rpc_soon(), &response, &e),
        RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "the relay.v1.DetokenizeResponse of 2097152 bytes has too many parts for its size: "
                                   "parsed, it passes the limit of 34603008 bytes");
    // What a client may well send passes: many short texts of some bytes each.
    for (int i = 0; i < N; i++)
        texts[i] = (ProtobufCBinaryData){.data = (uint8_t *)"eleven byte", .len = 11};
    m.n_texts = 100000;
    assert_int_equal(
        relay_rpc_client_unary(rpc_world_client(w), ECHO, &m.base, TEXT_TYPE, NULL, 0, rpc_soon(), &response, &e),
        RELAY_OK);
    protobuf_c_message_free_unpacked(response, NULL);
    free(texts);
    rpc_world_destroy(w);
}

// ---- A client that does not read

static void slow_reader_is_bounded(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.outbox_bytes = 100000});
    relay_rpc_stream *s = rpc_ask(rpc_world_client(w), HANG, "nothing");
    relay_rpc_call *call = rpc_world_hanging(w);
    int n = rpc_world_stuff(call, 100000);
    // The transport and its client take up to about 4 MB before they stall.
    assert_true(n < 10000);
    relay_err e;
    relay_fail(&e, RELAY_RESOURCE_EXHAUSTED, "the client reads too slowly: 100\xE2\x82\xAC late");
    relay_rpc_call_abort(call, e.code, &e);
    relay_rpc_call_unref(call);
    rpc_world_release(w);
    // The call is gone although nothing was read.
    rpc_world_wait(w, (rpc_world_counts){.destroyed = 1});
    assert_int_equal(rpc_world_count(w).cancelled, 0);
    // Who reads after all finds the status behind what had arrived.
    ProtobufCMessage *message;
    relay_code code;
    relay_err got = {0};
    while ((code = relay_rpc_stream_next(s, rpc_soon(), &message, NULL, &got)) == RELAY_OK && message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
    assert_int_equal(code, RELAY_RESOURCE_EXHAUSTED);
    assert_string_equal(got.message, e.message);
    relay_rpc_stream_release(s);
    rpc_world_destroy(w);
}

static void a_slow_reader_that_reads_again_gets_everything(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.outbox_bytes = 100000});
    relay_rpc_stream *s = rpc_ask(rpc_world_client(w), HANG, "nothing");
    relay_rpc_call *call = rpc_world_hanging(w);
    int n = rpc_world_stuff(call, 100000);
    char *text = long_text(1000);
    for (int i = 0; i < n; i++)
        rpc_expect(s, text);
    rpc_world_wait(w, (rpc_world_counts){.drained = 1});
    Relay__V1__DetokenizeResponse m = rpc_text("again");
    assert_int_equal(relay_rpc_call_send(call, &m.base), RELAY_OK);
    rpc_expect(s, "again");
    relay_rpc_call_unref(call);
    rpc_world_release(w);
    rpc_expect_end(s, RELAY_OK);
    relay_rpc_stream_release(s);
    free(text);
    rpc_world_destroy(w);
}

static void abort_of_a_call_that_is_not_stuck_keeps_the_hint(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){0});
    relay_rpc_stream *s = rpc_ask(rpc_world_client(w), HANG, "first");
    rpc_expect(s, "first");
    rpc_world_wait(w, (rpc_world_counts){.drained = 1});
    relay_rpc_call *call = rpc_world_hanging(w);
    relay_err e;
    relay_fail(&e, RELAY_UNAVAILABLE, "go elsewhere");
    e.retry_after_ms = 77;
    relay_rpc_call_abort(call, e.code, &e);
    relay_rpc_call_unref(call);
    rpc_world_release(w);
    ProtobufCMessage *message;
    relay_err got;
    assert_int_equal(relay_rpc_stream_next(s, rpc_soon(), &message, NULL, &got), RELAY_UNAVAILABLE);
    assert_string_equal(got.message, "go elsewhere");
    assert_int_equal(got.retry_after_ms, 77);
    relay_rpc_stream_release(s);
    rpc_world_destroy(w);
}

static void a_cancelled_call_drops_its_outbox(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.outbox_bytes = 100000});
    relay_rpc_stream *s = rpc_ask(rpc_world_client(w), HANG, "nothing");
    relay_rpc_call *call = rpc_world_hanging(w);
    rpc_world_stuff(call, 100000);
    relay_rpc_call_finish(call, RELAY_OK, NULL); // waits behind a write that nobody takes
    relay_rpc_stream_cancel(s);
    relay_rpc_call_unref(call);
    rpc_world_release(w);
    rpc_world_wait(w, (rpc_world_counts){.destroyed = 1});
    assert_int_equal(rpc_world_count(w).cancelled, 0); // the handler had finished
    relay_rpc_stream_release(s);
    rpc_world_destroy(w);
}

// ---- Calls at a time

static void calls_past_the_limit_are_refused_with_a_hint(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.max_calls = 2});
    relay_rpc_client *c = rpc_world_client(w);
    relay_rpc_stream *first = rpc_ask(c, HANG, "first"), *second = rpc_ask(c, HANG, "first");
    rpc_expect(first, "first");
    rpc_expect(second, "first");
    relay_err e;
    assert_int_equal(echo_letters(c, 5, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_string_equal(e.message, "the server is at its limit of 2 calls");
    assert_int_equal(e.retry_after_ms, 500);
    char answer[256];
    assert_int_equal(rpc_unary(c, ALWAYS, "still", answer), RELAY_OK);
    relay_rpc_stream_cancel(first);
    rpc_world_wait(w, (rpc_world_counts){.cancelled = 1, .destroyed = 2});
    assert_int_equal(echo_letters(c, 5, &e), RELAY_OK);
    relay_rpc_stream_release(first);
    relay_rpc_stream_release(second);
    rpc_world_destroy(w);
}

// ---- Compression

// One unary call with a gzip message, by the C core itself: our own client cannot send one.
static grpc_status_code send_gzip(const char *target, size_t len) {
    grpc_arg args[] = {{.type = GRPC_ARG_INTEGER,
                        .key = (char *)GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM,
                        .value.integer = GRPC_COMPRESS_GZIP}};
    grpc_channel_args list = {.num_args = 1, .args = args};
    grpc_channel_credentials *plaintext = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(target, plaintext, &list);
    grpc_channel_credentials_release(plaintext);
    grpc_completion_queue *cq = grpc_completion_queue_create_for_next(NULL);
    grpc_slice path = grpc_slice_from_static_string(ECHO);
    gpr_timespec deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(20, GPR_TIMESPAN));
    grpc_call *call = grpc_channel_create_call(channel, NULL, 0, cq, path, NULL, deadline, NULL);
    grpc_slice payload = grpc_slice_malloc(len);
    memset(GRPC_SLICE_START_PTR(payload), 0, len);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&payload, 1);
    grpc_slice_unref(payload);

    grpc_metadata_array trailers;
    grpc_metadata_array_init(&trailers);
    grpc_status_code status = GRPC_STATUS_OK;
    grpc_slice details = grpc_empty_slice();
    grpc_metadata_array head;
    grpc_metadata_array_init(&head);
    grpc_op ops[5];
    memset(ops, 0, sizeof ops);
    ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    ops[1].op = GRPC_OP_SEND_MESSAGE;
    ops[1].data.send_message.send_message = message;
    ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[3].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
    ops[3].data.recv_status_on_client.trailing_metadata = &trailers;
    ops[3].data.recv_status_on_client.status = &status;
    ops[3].data.recv_status_on_client.status_details = &details;
    ops[4].op = GRPC_OP_RECV_INITIAL_METADATA;
    ops[4].data.recv_initial_metadata.recv_initial_metadata = &head;
    assert_int_equal(grpc_call_start_batch(call, ops, 5, NULL, NULL), GRPC_CALL_OK);
    grpc_event event = grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    assert_int_equal(event.type, GRPC_OP_COMPLETE);

    grpc_byte_buffer_destroy(message);
    grpc_metadata_array_destroy(&head);
    grpc_metadata_array_destroy(&trailers);
    grpc_slice_unref(details);
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
    grpc_completion_queue_shutdown(cq);
    while (grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(cq);
    return status;
}

static void gzip_bomb_is_refused(void **state) {
    rpc_world *w = create_world((relay_rpc_server_opts){.max_request_bytes = 1 << 20});
    // Small on the wire, far above the limit once inflated.
    assert_int_equal(send_gzip(rpc_world_target(w), 8 << 20), GRPC_STATUS_UNIMPLEMENTED);
    assert_int_equal(rpc_world_count(w).started, 0);
    rpc_world_destroy(w);
}

// ---- The process

static void the_fd_limit_is_raised(void **state) {
    struct rlimit before, after;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit low = {.rlim_cur = 256, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    rpc_world *w = create_world((relay_rpc_server_opts){0});
    getrlimit(RLIMIT_NOFILE, &after);
    assert_true(after.rlim_cur == before.rlim_max);
    rpc_world_destroy(w);
}

// ---- Metrics

static void expect_line(const relay_buf *text, const char *line) {
    const char *at = strstr(text->data, line);
    if (at == NULL) fail_msg("no line \"%s\" in:\n%s", line, text->data);
}

static void metrics_count_calls_by_code(void **state) {
    relay_metrics *m = relay_metrics_create();
    rpc_world *w = create_world((relay_rpc_server_opts){.metrics = m});
    char answer[256];
    for (int i = 0; i < 3; i++)
        assert_int_equal(rpc_unary(rpc_world_client(w), ECHO, "x", answer), RELAY_OK);
    assert_int_equal(rpc_unary(rpc_world_client(w), FAIL, "x", answer), RELAY_RESOURCE_EXHAUSTED);
    assert_int_equal(rpc_unary(rpc_world_client(w), "/no.Such/Method", "x", answer), RELAY_UNIMPLEMENTED);
    relay_rpc_stream *cancelled = rpc_ask(rpc_world_client(w), HANG, "first");
    relay_rpc_stream *running = rpc_ask(rpc_world_client(w), HANG, "first");
    rpc_expect(cancelled, "first");
    rpc_expect(running, "first");
    relay_rpc_stream_release(cancelled);
    rpc_world_wait(w, (rpc_world_counts){.cancelled = 1, .destroyed = 5});
    relay_buf text;
    relay_buf_init(&text, 1 << 20);
    relay_metrics_write(m, &text);
    expect_line(&text, "relay_rpc_active 1\n");
    expect_line(&text, "relay_rpc_requests_total{code=\"OK\",method=\"" ECHO "\"} 3\n");
    expect_line(&text, "relay_rpc_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"" FAIL "\"} 1\n");
    expect_line(&text, "relay_rpc_requests_total{code=\"UNIMPLEMENTED\",method=\"unknown\"} 1\n");
    expect_line(&text, "relay_rpc_requests_total{code=\"CANCELLED\",method=\"" HANG "\"} 1\n");
    expect_line(&text, "relay_rpc_seconds_count{method=\"" ECHO "\"} 3\n");
    relay_buf_fini(&text);
    relay_rpc_stream_release(running);
    rpc_world_destroy(w);
    relay_metrics_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_too_large),
        cmocka_unit_test(message_of_a_stream_too_large),
        cmocka_unit_test(response_too_large),
        cmocka_unit_test(response_too_large_for_the_client),
        cmocka_unit_test(a_message_larger_than_the_outbox_is_sent),
        cmocka_unit_test(a_message_with_too_many_parts_is_refused),
        cmocka_unit_test(slow_reader_is_bounded),
        cmocka_unit_test(a_slow_reader_that_reads_again_gets_everything),
        cmocka_unit_test(abort_of_a_call_that_is_not_stuck_keeps_the_hint),
        cmocka_unit_test(a_cancelled_call_drops_its_outbox),
        cmocka_unit_test(calls_past_the_limit_are_refused_with_a_hint),
        cmocka_unit_test(gzip_bomb_is_refused),
        cmocka_unit_test(the_fd_limit_is_raised),
        cmocka_unit_test(metrics_count_calls_by_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
