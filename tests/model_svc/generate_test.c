// ModelService for one sequence a call: GenerateTokens, Cancel, GetModelInfo, GetLoad.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/message.h"
#include "tests/model_svc/service_world.h"

static service_world *w;
static token_answer a;

// ---- Answers

static void an_answer_is_what_the_model_says(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request r;
    token_request_init(&r, 20, 30, 5);
    generate(w->client, &r.message, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.n_ids, 30);
    assert_int_equal(a.output_tokens, 30);
    assert_int_equal(a.n_logprobs, 0);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_MAX_NEW_TOKENS);
    assert_int_equal(a.prompt_tokens, 20);
    assert_int_equal(a.seed, 5);
    assert_int_equal(strlen(a.server_request_id), 32);
    uint32_t expected[50];
    memcpy(expected, r.prompt, 20 * sizeof expected[0]);
    fake_continue(expected, 20, 30, 5);
    assert_memory_equal(a.ids, expected + 20, 30 * sizeof expected[0]);
    service_world_destroy(w);
}

static void a_seed_is_made_up_and_told_where_none_is_given(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request r;
    token_request_init(&r, 20, 30, 0);
    r.sampling.has_seed = 0;
    generate(w->client, &r.message, &a);
    assert_true(a.seed != 0 && a.seed < 1ull << 53);
    static token_answer again;
    RELAY_SET(&r.sampling, seed, a.seed);
    generate(w->client, &r.message, &again);
    assert_memory_equal(a.ids, again.ids, 30 * sizeof a.ids[0]);
    service_world_destroy(w);
}

static void the_last_token_of_a_stop_is_told_and_named(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request r;
    token_request_init(&r, 20, 30, 5);
    generate(w->client, &r.message, &a);
    uint32_t stop = a.ids[11], first_at = 0;
    while (a.ids[first_at] != stop)
        first_at++;
    r.stop.n_stop_token_ids = 1;
    r.stop.stop_token_ids = &stop;
    generate(w->client, &r.message, &a);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_TOKEN);
    assert_int_equal(a.stop_token_id, stop);
    assert_int_equal(a.n_ids, first_at + 1);
    assert_int_equal(a.ids[a.n_ids - 1], stop);
    assert_int_equal(a.output_tokens, first_at + 1);
    service_world_destroy(w);
}

static void what_is_resumed_goes_on_as_if_nothing_had_happened(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request r;
    token_request_init(&r, 20, 30, 5);
    generate(w->client, &r.message, &a);
    Relay__V1__Resume resume = RELAY__V1__RESUME__INIT;
    resume.n_generated_token_ids = 12;
    resume.generated_token_ids = a.ids;
    r.message.resume = &resume;
    static token_answer rest;
    generate(w->client, &r.message, &rest);
    assert_int_equal(rest.prompt_tokens, 20);
    assert_int_equal(rest.n_ids, 18);
    assert_int_equal(rest.output_tokens, 30);
    assert_memory_equal(rest.ids, a.ids + 12, 18 * sizeof a.ids[0]);
    service_world_destroy(w);
}

static void a_beam_search_tells_its_best(void **state) {
    w = service_world_create((service_world_opts){.is_real = true});
    token_request r;
    token_request_init(&r, 20, 12, 5);
    r.sampling.has_seed = 0;
    RELAY_SET(&r.sampling, temperature, 0);
    static token_answer greedy;
    generate(w->client, &r.message, &greedy);
    Relay__V1__BeamSearch beams = RELAY__V1__BEAM_SEARCH__INIT;
    r.sampling.beam_search = &beams;
    RELAY_SET(&beams, num_beams, 4);
    generate(w->client, &r.message, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_MAX_NEW_TOKENS);
    assert_int_equal(a.n_ids, 12);
    assert_int_equal(a.output_tokens, 12);
    static token_answer again;
    generate(w->client, &r.message, &again);
    assert_memory_equal(a.ids, again.ids, 12 * sizeof a.ids[0]);
    assert_memory_not_equal(a.ids, greedy.ids, 12 * sizeof a.ids[0]); // of this prompt it finds a likelier one
    RELAY_SET(&r.sampling, top_k, 5);
    generate(w->client, &r.message, &a);
    assert_int_equal(a.code, RELAY_INVALID_ARGUMENT);
    service_world_wait_for(w, load_is_empty);
    service_world_destroy(w);
}

// ---- Leases

static uint32_t fork_sequence(const char *from, const char *to, uint32_t lease_ms, relay_code code, const char *text) {
    Relay__V1__ForkSequenceRequest m = RELAY__V1__FORK_SEQUENCE_REQUEST__INIT;
    RELAY_SET(&m, sequence_id, relay_message_text(from));
    RELAY_SET(&m, new_sequence_id, relay_message_text(to));
    RELAY_SET(&m, lease_ms, lease_ms);
    ProtobufCMessage *reply = NULL;
    relay_err e = {0};
    relay_code got =
        relay_rpc_client_unary(w->client, "/relay.v1.ModelService/ForkSequence", &m.base,
                               &relay__v1__fork_sequence_response__descriptor, NULL, 0, RELAY_NEVER_US, &reply, &e);
    if (got != code || strstr(e.message, text) == NULL) fail_msg("%s: %s", relay_code_name(got), e.message);
    if (got != RELAY_OK) return 0;
    uint32_t n = ((Relay__V1__ForkSequenceResponse *)reply)->cached_tokens;
    protobuf_c_message_free_unpacked(reply, NULL);
    return n;
}

static bool release_sequence(const char *id) {
    Relay__V1__ReleaseSequenceRequest m = RELAY__V1__RELEASE_SEQUENCE_REQUEST__INIT;
    RELAY_SET(&m, sequence_id, relay_message_text(id));
    ProtobufCMessage *reply = NULL;
    relay_err e = {0};
    if (relay_rpc_client_unary(w->client, "/relay.v1.ModelService/ReleaseSequence", &m.base,
                               &relay__v1__release_sequence_response__descriptor, NULL, 0, RELAY_NEVER_US, &reply,
                               &e) != RELAY_OK) {
        fail_msg("%s", e.message);
    }
    bool found = ((Relay__V1__ReleaseSequenceResponse *)reply)->found;
    protobuf_c_message_free_unpacked(reply, NULL);
    return found;
}

static bool has_two_leases(const Relay__V1__Load *load) {
    return load->leased_sequences == 2;
}

static bool has_no_lease(const Relay__V1__Load *load) {
    return load->leased_sequences == 0 && load->free_blocks + load->cached_blocks == load->total_blocks;
}

static void sequences_are_leased_forked_and_released(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request r;
    token_request_init(&r, 100, 10, 5);
    RELAY_SET(&r.message, sequence_id, relay_message_text("chat"));
    RELAY_SET(&r.message, lease_ms, 60000);
    generate(w->client, &r.message, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(fork_sequence("chat", "other", 60000, RELAY_OK, ""), 96);
    service_world_wait_for(w, has_two_leases);
    assert_int_equal(fork_sequence("unknown", "other", 60000, RELAY_OK, ""), 0);
    fork_sequence("chat", "", 60000, RELAY_INVALID_ARGUMENT, "new_sequence_id is empty");
    fork_sequence("", "x", 60000, RELAY_INVALID_ARGUMENT, "sequence_id is empty");
    fork_sequence("chat", "x", 0, RELAY_INVALID_ARGUMENT, "lease_ms is 0");
    assert_true(release_sequence("chat"));
    assert_false(release_sequence("chat"));
    assert_true(release_sequence("other"));
    service_world_wait_for(w, has_no_lease);
    service_world_destroy(w);
}

enum { N_ANSWERS = 3 };

static void several_answers_each_have_their_own_draws(void **state) {
    w = service_world_create((service_world_opts){.is_real = true});
    token_request r;
    token_request_init(&r, 20, 30, 5);
    RELAY_SET(&r.output, top_logprobs, 3);
    r.message.output = &r.output;
    generate(w->client, &r.message, &a);
    static token_answer answers[N_ANSWERS], rest;
    RELAY_SET(&r.message, num_sequences, N_ANSWERS);
    relay_rpc_stream *s = generate_open(w->client, &r.message);
    generate_read_all(s, answers, N_ANSWERS);
    relay_rpc_stream_release(s);
    assert_int_equal(answers[0].code, RELAY_OK);
    assert_memory_equal(answers[0].ids, a.ids, 30 * sizeof a.ids[0]);
    assert_memory_equal(answers[0].logprobs, a.logprobs, 30 * sizeof a.logprobs[0]);
    Relay__V1__Resume resume = RELAY__V1__RESUME__INIT;
    r.message.resume = &resume;
    for (uint32_t i = 0; i < N_ANSWERS; i++) {
        assert_true(answers[i].is_finished);
        assert_int_equal(answers[i].n_ids, 30);
        if (i > 0) assert_memory_not_equal(answers[i].ids, answers[i - 1].ids, 30 * sizeof a.ids[0]);
        // Taken up by another call, each goes on as itself.
        RELAY_SET(&resume, index, i);
        resume.n_generated_token_ids = 4 * i;
        resume.generated_token_ids = answers[i].ids;
        generate(w->client, &r.message, &rest);
        assert_int_equal(rest.n_ids, 30 - 4 * i);
        assert_memory_equal(rest.ids, answers[i].ids + 4 * i, rest.n_ids * sizeof a.ids[0]);
        assert_memory_equal(rest.logprobs, answers[i].logprobs + 4 * i, rest.n_ids * sizeof a.logprobs[0]);
    }
    service_world_destroy(w);
}

static void an_answer_ends_where_the_context_does(void **state) {
    w = service_world_create((service_world_opts){.max_context = 64});
    token_request r;
    token_request_init(&r, 20, 0, 5);
    generate(w->client, &r.message, &a);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_CONTEXT_FULL);
    assert_true(a.n_ids >= 43 && a.n_ids <= 45);
    service_world_destroy(w);
}

static void final_only_is_one_message(void **state) {
    w = service_world_create((service_world_opts){.is_real = true});
    token_request r;
    token_request_init(&r, 20, 200, 5);
    RELAY_SET(&r.output, top_logprobs, 3);
    r.message.output = &r.output;
    generate(w->client, &r.message, &a);
    static token_answer whole;
    RELAY_SET(&r.output, final_only, 1);
    generate(w->client, &r.message, &whole);
    assert_true(a.n_messages > 1);
    assert_int_equal(whole.n_messages, 1);
    assert_int_equal(whole.n_ids, 200);
    assert_memory_equal(whole.ids, a.ids, 200 * sizeof a.ids[0]);
    assert_memory_equal(whole.logprobs, a.logprobs, 200 * sizeof a.logprobs[0]);
    assert_int_equal(whole.top_hash, a.top_hash);
    service_world_destroy(w);
}

static void a_time_limit_ends_an_answer_and_a_deadline_a_call(void **state) {
    w = service_world_create((service_world_opts){0});
    service_world_hold(w);
    token_request r;
    token_request_init(&r, 20, 400, 5);
    RELAY_SET(&r.message, time_limit_ms, 60);
    relay_rpc_stream *limited = generate_open(w->client, &r.message);
    service_world_wait_for(w, load_has_one_running);
    r.message.has_time_limit_ms = 0;
    relay_rpc_stream *late;
    assert_int_equal(relay_rpc_stream_open(&late, w->client, "/relay.v1.ModelService/GenerateTokens",
                                           &relay__v1__generate_tokens_response__descriptor, NULL, 0,
                                           relay_mono_now() + 60000, NULL, NULL, NULL),
                     RELAY_OK);
    assert_int_equal(relay_rpc_stream_send(late, &r.message.base), RELAY_OK);
    generate_read(late, &a);
    assert_int_equal(a.code, RELAY_DEADLINE_EXCEEDED);
    usleep(100000); // now the other's limit has passed too, and it ends with the step that is held
    service_world_step(w, 1);
    generate_read(limited, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_TIME_LIMIT);
    relay_rpc_stream_release(late);
    relay_rpc_stream_release(limited);
    service_world_release(w);
    service_world_wait_for(w, load_is_empty);
    service_world_destroy(w);
}

static void a_broken_sequence_fails_alone(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request good, bad;
    token_request_init(&good, 20, 30, 5);
    token_request_init(&bad, 20, 30, 6);
    bad.prompt[7] = FAKE_POISON;
    relay_rpc_stream *s = generate_open(w->client, &good.message);
    generate(w->client, &bad.message, &a);
    assert_int_equal(a.code, RELAY_INTERNAL);
    generate_read(s, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.n_ids, 30);
    relay_rpc_stream_release(s);
    service_world_wait_for(w, load_is_empty);
    service_world_destroy(w);
}

// ---- Refusals

static void expect_refusal(const Relay__V1__GenerateTokensRequest *m, relay_code code, const char *text) {
    generate(w->client, m, &a);
    assert_int_equal(a.n_messages, 0);
    if (a.code != code) fail_msg("%s: %s", relay_code_name(a.code), a.error);
    if (strstr(a.error, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", a.error, text);
}

static void wrong_requests_are_refused_by_name(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request r;
    token_request_init(&r, 0, 5, 1);
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "prompt_token_ids is empty");
    token_request_init(&r, 600, 5, 1);
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "prompt_token_ids has 600 ids");
    token_request_init(&r, 10, 5, 1);
    r.prompt[9] = FAKE_VOCAB;
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "prompt_token_ids[9] is 1000");
    token_request_init(&r, 10, 5, 1);
    RELAY_SET(&r.message, request_id, relay_message_text("caf\xc3"));
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "request_id");
    token_request_init(&r, 10, 5, 1);
    RELAY_SET(&r.output, logprob_mode, (Relay__V1__LogprobMode)9);
    r.message.output = &r.output;
    expect_refusal(&r.message, RELAY_INVALID_ARGUMENT, "output.logprob_mode is 9");
    service_world_destroy(w);
}

static void a_field_of_a_later_contract_is_refused(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request r;
    token_request_init(&r, 10, 5, 1);
    uint8_t one = 1;
    ProtobufCMessageUnknownField field = {.tag = 77, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = &one};
    r.sampling.base.n_unknown_fields = 1;
    r.sampling.base.unknown_fields = &field;
    expect_refusal(&r.message, RELAY_UNIMPLEMENTED, "sampling holds field number 77");
    service_world_destroy(w);
}

static void ids_of_another_vocabulary_are_refused(void **state) {
    w = service_world_create((service_world_opts){0});
    token_request r;
    token_request_init(&r, 10, 5, 1);
    uint8_t other[RELAY_FINGERPRINT_BYTES] = {0};
    RELAY_SET(&r.message, tokenizer_fingerprint, relay_message_bytes(other, sizeof other));
    expect_refusal(&r.message, RELAY_FAILED_PRECONDITION, "tokenizer_fingerprint is 0000000000");
    RELAY_SET(&r.message, tokenizer_fingerprint,
              relay_message_bytes(relay_vocab_fingerprint(w->vocab), RELAY_FINGERPRINT_BYTES));
    generate(w->client, &r.message, &a);
    assert_int_equal(a.code, RELAY_OK);
    service_world_destroy(w);
}

static void while_the_model_loads_calls_are_told_to_come_back(void **state) {
    w = service_world_create((service_world_opts){.is_loading = true});
    token_request r;
    token_request_init(&r, 10, 5, 1);
    expect_refusal(&r.message, RELAY_UNAVAILABLE, "still being loaded");
    assert_true(a.retry_after_ms != 0);
    relay_model_service_serve(w->service, w->engine, &w->info, w->vocab, "test", 60000);
    generate(w->client, &r.message, &a);
    assert_int_equal(a.code, RELAY_OK);
    service_world_destroy(w);
}

static void past_the_queue_s_bound_requests_are_refused_at_once(void **state) {
    w = service_world_create((service_world_opts){.max_running = 1, .max_queued_requests = 2});
    service_world_hold(w);
    token_request r;
    token_request_init(&r, 10, 200, 1);
    relay_rpc_stream *streams[3];
    streams[0] = generate_open(w->client, &r.message);
    service_world_step_until(w, load_has_one_running);
    for (int i = 1; i < 3; i++)
        streams[i] = generate_open(w->client, &r.message);
    service_world_step_until(w, load_has_two_waiting);
    // The step is held, so this answer does not wait for its end.
    expect_refusal(&r.message, RELAY_RESOURCE_EXHAUSTED, "2");
    assert_true(a.retry_after_ms != 0);
    service_world_release(w);
    for (int i = 0; i < 3; i++) {
        generate_read(streams[i], &a);
        assert_int_equal(a.code, RELAY_OK);
        assert_int_equal(a.n_ids, 200);
        relay_rpc_stream_release(streams[i]);
    }
    service_world_wait_for(w, load_is_empty);
    service_world_destroy(w);
}

static void past_the_queue_s_tokens_requests_are_refused_at_once(void **state) {
    w = service_world_create((service_world_opts){.max_running = 1, .max_queued_tokens = 100});
    service_world_hold(w);
    token_request r;
    token_request_init(&r, 80, 200, 1);
    relay_rpc_stream *first = generate_open(w->client, &r.message);
    service_world_step_until(w, load_has_one_running);
    relay_rpc_stream *second = generate_open(w->client, &r.message);
    service_world_step_until(w, load_has_one_waiting);
    expect_refusal(&r.message, RELAY_RESOURCE_EXHAUSTED, "100");
    service_world_release(w);
    generate_read(first, &a);
    assert_int_equal(a.code, RELAY_OK);
    generate_read(second, &a);
    assert_int_equal(a.code, RELAY_OK);
    relay_rpc_stream_release(first);
    relay_rpc_stream_release(second);
    service_world_destroy(w);
}

// ---- Cancel

static protobuf_c_boolean cancel(const char *server_request_id, const char *sequence_id) {
    Relay__V1__CancelRequest m = RELAY__V1__CANCEL_REQUEST__INIT;
    if (server_request_id != NULL) {
        m.target_case = RELAY__V1__CANCEL_REQUEST__TARGET_SERVER_REQUEST_ID;
        m.server_request_id = relay_message_text(server_request_id);
    } else {
        m.target_case = RELAY__V1__CANCEL_REQUEST__TARGET_SEQUENCE_ID;
        m.sequence_id = relay_message_text(sequence_id);
    }
    ProtobufCMessage *response;
    relay_err e;
    if (relay_rpc_client_unary(w->client, "/relay.v1.ModelService/Cancel", &m.base,
                               &relay__v1__cancel_response__descriptor, NULL, 0, RELAY_NEVER_US, &response,
                               &e) != RELAY_OK) {
        fail_msg("Cancel: %s", e.message);
    }
    protobuf_c_boolean found = ((Relay__V1__CancelResponse *)response)->found;
    protobuf_c_message_free_unpacked(response, NULL);
    return found;
}

static void cancel_ends_a_request_by_either_name_and_is_idempotent(void **state) {
    w = service_world_create((service_world_opts){.max_running = 1});
    service_world_hold(w);
    token_request r;
    token_request_init(&r, 10, 400, 1);
    RELAY_SET(&r.message, sequence_id, relay_message_text("talk"));
    relay_rpc_stream *running = generate_open(w->client, &r.message);
    service_world_step_until(w, load_has_one_running);
    relay_rpc_stream *waiting = generate_open(w->client, &r.message);
    service_world_step_until(w, load_has_one_waiting);
    ProtobufCMessage *m;
    bool timed_out;
    assert_int_equal(relay_rpc_stream_next(running, RELAY_NEVER_US, &m, &timed_out, NULL), RELAY_OK);
    char id[64] = "";
    const Relay__V1__TokensStarted *started = ((Relay__V1__GenerateTokensResponse *)m)->started;
    memcpy(id, started->server_request_id.data, started->server_request_id.len);
    protobuf_c_message_free_unpacked(m, NULL);

    assert_false(cancel("00000000000000000000000000000000", NULL));
    assert_false(cancel(NULL, "tal"));
    assert_true(cancel(id, NULL));
    assert_true(cancel(NULL, "talk"));
    service_world_release(w);
    service_world_wait_for(w, load_is_empty);
    assert_false(cancel(id, NULL));
    assert_false(cancel(NULL, "talk"));
    for (;;) {
        relay_code code = relay_rpc_stream_next(running, RELAY_NEVER_US, &m, &timed_out, NULL);
        assert_int_equal(code, RELAY_OK);
        if (m == NULL) break;
        const Relay__V1__TokensFinished *finished = ((Relay__V1__GenerateTokensResponse *)m)->finished;
        if (finished != NULL) assert_int_equal(finished->reason, RELAY__V1__FINISH_REASON__FINISH_REASON_CANCELLED);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    generate_read(waiting, &a);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_CANCELLED);
    assert_int_equal(a.n_ids, 0);
    relay_rpc_stream_release(running);
    relay_rpc_stream_release(waiting);
    service_world_destroy(w);
}

static void cancel_needs_a_name(void **state) {
    w = service_world_create((service_world_opts){0});
    Relay__V1__CancelRequest m = RELAY__V1__CANCEL_REQUEST__INIT;
    ProtobufCMessage *response;
    relay_err e;
    assert_int_equal(relay_rpc_client_unary(w->client, "/relay.v1.ModelService/Cancel", &m.base,
                                            &relay__v1__cancel_response__descriptor, NULL, 0, RELAY_NEVER_US, &response,
                                            &e),
                     RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "server_request_id"));
    service_world_destroy(w);
}

// ---- What the service says of itself

static void the_model_s_info_is_told(void **state) {
    w = service_world_create((service_world_opts){0});
    Relay__V1__GetModelInfoRequest m = RELAY__V1__GET_MODEL_INFO_REQUEST__INIT;
    ProtobufCMessage *response;
    assert_int_equal(relay_rpc_client_unary(w->client, "/relay.v1.ModelService/GetModelInfo", &m.base,
                                            &relay__v1__get_model_info_response__descriptor, NULL, 0, RELAY_NEVER_US,
                                            &response, NULL),
                     RELAY_OK);
    const Relay__V1__GetModelInfoResponse *info = (Relay__V1__GetModelInfoResponse *)response;
    assert_int_equal(info->vocab_size, FAKE_VOCAB);
    assert_int_equal(info->max_context_tokens, 512);
    assert_int_equal(info->total_blocks, 1024);
    assert_int_equal(info->block_tokens, 16);
    assert_int_equal(info->tokenizer_fingerprint.len, RELAY_FINGERPRINT_BYTES);
    assert_memory_equal(info->tokenizer_fingerprint.data, relay_vocab_fingerprint(w->vocab), RELAY_FINGERPRINT_BYTES);
    assert_true(info->n_eos_token_ids >= 1);
    // The file's own where it has them, else neutral.
    assert_true(info->default_sampling->temperature == 1);
    assert_int_equal(info->default_sampling->top_k, 7);
    assert_true(info->default_sampling->top_p == 1);
    assert_false(info->default_sampling->has_seed);
    protobuf_c_message_free_unpacked(response, NULL);
    service_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_what_the_model_says),
        cmocka_unit_test(a_seed_is_made_up_and_told_where_none_is_given),
        cmocka_unit_test(the_last_token_of_a_stop_is_told_and_named),
        cmocka_unit_test(a_beam_search_tells_its_best),
        cmocka_unit_test(sequences_are_leased_forked_and_released),
        cmocka_unit_test(several_answers_each_have_their_own_draws),
        cmocka_unit_test(what_is_resumed_goes_on_as_if_nothing_had_happened),
        cmocka_unit_test(an_answer_ends_where_the_context_does),
        cmocka_unit_test(final_only_is_one_message),
        cmocka_unit_test(a_time_limit_ends_an_answer_and_a_deadline_a_call),
        cmocka_unit_test(a_broken_sequence_fails_alone),
        cmocka_unit_test(wrong_requests_are_refused_by_name),
        cmocka_unit_test(a_field_of_a_later_contract_is_refused),
        cmocka_unit_test(ids_of_another_vocabulary_are_refused),
        cmocka_unit_test(while_the_model_loads_calls_are_told_to_come_back),
        cmocka_unit_test(past_the_queue_s_bound_requests_are_refused_at_once),
        cmocka_unit_test(past_the_queue_s_tokens_requests_are_refused_at_once),
        cmocka_unit_test(cancel_ends_a_request_by_either_name_and_is_idempotent),
        cmocka_unit_test(cancel_needs_a_name),
        cmocka_unit_test(the_model_s_info_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
