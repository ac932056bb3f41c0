// ModelService.Session: many sequences on one stream.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "common/message.h"
#include "tests/model_svc/service_world.h"

static service_world *w;

static void expect_ids(const token_answer *a, const token_request *r, uint32_t n, uint64_t seed) {
    uint32_t expected[2048];
    uint32_t n_prompt = (uint32_t)r->message.n_prompt_token_ids;
    memcpy(expected, r->prompt, n_prompt * sizeof expected[0]);
    fake_continue(expected, n_prompt, n, seed);
    assert_int_equal(a->n_ids, n);
    assert_memory_equal(a->ids, expected + n_prompt, n * sizeof expected[0]);
}

// ---- The beginning

static void expect_end(session *s, relay_code code, const char *text) {
    session_read_until_over(s);
    if (s->code != code) fail_msg("%s: %s", relay_code_name(s->code), s->error);
    if (strstr(s->error, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", s->error, text);
    session_close(s);
}

static void the_first_command_must_be_hello(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open_silent(w, w->client);
    token_request r;
    token_request_init(&r, 5, 5, 1);
    session_start(s, 1, &r.message);
    expect_end(s, RELAY_FAILED_PRECONDITION, "must be hello");
    service_world_destroy(w);
}

static void a_session_that_says_nothing_is_ended(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open_silent(w, w->client);
    expect_end(s, RELAY_FAILED_PRECONDITION, "no hello came within 5 s");
    service_world_destroy(w);
}

static void hello_is_said_once_and_with_this_vocabulary(void **state) {
    w = service_world_create((service_world_opts){0});
    const uint8_t *ours = relay_vocab_fingerprint(w->vocab);
    session *s = session_open(w, w->client);
    session_hello(s, ours, RELAY_FINGERPRINT_BYTES);
    expect_end(s, RELAY_FAILED_PRECONDITION, "twice");

    s = session_open_silent(w, w->client);
    session_hello(s, NULL, 0);
    expect_end(s, RELAY_INVALID_ARGUMENT, "hello.tokenizer_fingerprint");

    uint8_t other[RELAY_FINGERPRINT_BYTES] = {0xde, 0xad};
    s = session_open_silent(w, w->client);
    session_hello(s, other, sizeof other);
    expect_end(s, RELAY_FAILED_PRECONDITION, "dead0000");

    s = session_open_silent(w, w->client);
    session_hello(s, ours, 7);
    expect_end(s, RELAY_INVALID_ARGUMENT, "7 bytes");
    service_world_destroy(w);
}

static void while_the_model_loads_hello_is_told_to_come_back(void **state) {
    w = service_world_create((service_world_opts){.is_loading = true});
    session *s = session_open_silent(w, w->client);
    session_hello(s, relay_vocab_fingerprint(w->vocab), RELAY_FINGERPRINT_BYTES);
    expect_end(s, RELAY_UNAVAILABLE, "being loaded");
    service_world_destroy(w);
}

static void a_message_without_a_command_ends_the_session(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open(w, w->client);
    Relay__V1__SessionRequest empty = RELAY__V1__SESSION_REQUEST__INIT;
    session_send(s, &empty);
    expect_end(s, RELAY_INVALID_ARGUMENT, "no command");
    service_world_destroy(w);
}

// ---- Sequences

static void sequences_share_a_stream_and_keep_their_own_ids(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open(w, w->client);
    static token_request r[40];
    for (uint32_t i = 0; i < 40; i++) {
        token_request_init(&r[i], 5 + i, 10 + i, i);
        session_start(s, i, &r[i].message);
    }
    for (uint32_t i = 0; i < 40; i++)
        session_read_until_end(s, i);
    for (uint32_t i = 0; i < 40; i++)
        expect_ids(&s->answers[i], &r[i], 10 + i, i);
    session_close(s);
    service_world_destroy(w);
}

static void start_for(session *s, uint64_t key, const token_request *r, const char *tenant) {
    Relay__V1__SessionRequest m = RELAY__V1__SESSION_REQUEST__INIT;
    Relay__V1__SessionStart start = RELAY__V1__SESSION_START__INIT;
    RELAY_SET(&start, stream_key, key);
    RELAY_SET(&start, tenant, relay_message_text(tenant));
    start.request = (Relay__V1__GenerateTokensRequest *)&r->message;
    m.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_START;
    m.start = &start;
    session_send(s, &m);
    session_read_until_end(s, key);
}

static void a_tenant_finds_its_own_prompts_and_no_other_ones(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open(w, w->client);
    static const struct {
        const char *tenant;
        const char *salt;
        uint32_t cached_tokens;
    } turns[] = {{"a", "", 0}, {"a", "", 96}, {"b", "", 0}, {"", "a", 0}, {"a", "x", 0}, {"a", "x", 96}, {"b", "", 96}};
    enum { N = sizeof turns / sizeof turns[0] };
    for (uint32_t i = 0; i < N; i++) {
        token_request r;
        token_request_init(&r, 100, 5, 3);
        Relay__V1__CacheOptions cache = RELAY__V1__CACHE_OPTIONS__INIT;
        RELAY_SET(&cache, salt, relay_message_text(turns[i].salt));
        r.message.cache = &cache;
        start_for(s, i, &r, turns[i].tenant);
        assert_int_equal(s->answers[i].cached_tokens, turns[i].cached_tokens);
        expect_ids(&s->answers[i], &r, 5, 3);
    }
    session_close(s);
    service_world_destroy(w);
}

static void a_wrong_start_ends_that_sequence_alone(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open(w, w->client);
    token_request good, bad;
    token_request_init(&good, 5, 60, 1);
    session_start(s, 1, &good.message);

    token_request_init(&bad, 5, 60, 1);
    RELAY_SET(&bad.sampling, temperature, 9);
    session_start(s, 2, &bad.message);
    token_request_init(&bad, 5, 60, 1);
    RELAY_SET(&bad.message, request_id, relay_message_text("\xff"));
    session_start(s, 3, &bad.message);
    session_start(s, 4, NULL);
    token_request_init(&bad, 5, 60, 1);
    uint8_t other[RELAY_FINGERPRINT_BYTES] = {0};
    RELAY_SET(&bad.message, tokenizer_fingerprint, relay_message_bytes(other, sizeof other));
    session_start(s, 5, &bad.message);
    token_request_init(&bad, 5, 60, 1);
    bad.prompt[2] = FAKE_POISON;
    session_start(s, 6, &bad.message);
    for (uint32_t i = 1; i < 7; i++)
        session_read_until_end(s, i);

    expect_ids(&s->answers[1], &good, 60, 1);
    static const struct {
        relay_code code;
        const char *text;
    } expected[] = {
        [2] = {RELAY_INVALID_ARGUMENT, "sampling.temperature is 9"},
        [3] = {RELAY_INVALID_ARGUMENT, "request_id"},
        [4] = {RELAY_INVALID_ARGUMENT, "start.request is not set"},
        [5] = {RELAY_FAILED_PRECONDITION, "tokenizer_fingerprint"},
        [6] = {RELAY_INTERNAL, ""},
    };
    for (uint32_t i = 2; i < 7; i++) {
        assert_true(s->answers[i].is_failed);
        assert_int_equal(s->answers[i].code, expected[i].code);
        assert_non_null(strstr(s->answers[i].error, expected[i].text));
    }
    assert_string_equal(s->answers[5].reason_text, "TOKENIZER_MISMATCH");
    session_close(s);
    service_world_destroy(w);
}

static void a_stream_key_in_use_is_refused_and_free_again_after_its_end(void **state) {
    w = service_world_create((service_world_opts){0});
    service_world_hold(w);
    session *s = session_open(w, w->client);
    token_request r;
    token_request_init(&r, 5, 20, 1);
    session_start(s, 7, &r.message);
    while (!s->answers[7].is_accepted)
        session_read(s, RELAY_NEVER_US / 4);
    session_start(s, 7, &r.message);
    while (!s->answers[7].is_failed)
        session_read(s, RELAY_NEVER_US / 4);
    assert_int_equal(s->answers[7].code, RELAY_ALREADY_EXISTS);
    assert_string_equal(s->answers[7].reason_text, "STREAM_KEY_IN_USE");
    s->answers[7].is_failed = false; // the first of that key goes on
    s->answers[7].is_accepted = true;
    service_world_release(w);
    session_read_until_end(s, 7);
    expect_ids(&s->answers[7], &r, 20, 1);
    session_start(s, 7, &r.message);
    s->answers[7].is_finished = false;
    session_read_until_end(s, 7);
    expect_ids(&s->answers[7], &r, 20, 1);
    session_close(s);
    service_world_destroy(w);
}

static void credit_bounds_what_is_produced(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open(w, w->client);
    token_request r, other;
    token_request_init(&r, 5, 20, 1);
    token_request_init(&other, 5, 50, 2);
    Relay__V1__SessionStart start = RELAY__V1__SESSION_START__INIT;
    RELAY_SET(&start, stream_key, 1);
    RELAY_SET(&start, initial_credit, 3);
    start.request = &r.message;
    Relay__V1__SessionRequest m = RELAY__V1__SESSION_REQUEST__INIT;
    m.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_START;
    m.start = &start;
    session_send(s, &m);
    session_start(s, 2, &other.message);
    session_read_until_end(s, 2);
    assert_int_equal(s->answers[1].n_ids, 3);
    session_credit(s, 1, 5);
    while (s->answers[1].n_ids < 8)
        session_read(s, RELAY_NEVER_US / 4);
    session_start(s, 3, &other.message);
    session_read_until_end(s, 3);
    assert_int_equal(s->answers[1].n_ids, 8);
    session_credit(s, 99, 5); // unknown: it may have ended
    session_credit(s, 1, 1000);
    session_read_until_end(s, 1);
    expect_ids(&s->answers[1], &r, 20, 1);
    session_close(s);
    service_world_destroy(w);
}

static void a_deadline_ends_a_sequence_with_an_error(void **state) {
    w = service_world_create((service_world_opts){.max_running = 1});
    service_world_hold(w);
    session *s = session_open(w, w->client);
    token_request r;
    token_request_init(&r, 5, 20, 1);
    session_start(s, 1, &r.message);
    Relay__V1__SessionStart start = RELAY__V1__SESSION_START__INIT;
    RELAY_SET(&start, stream_key, 2);
    RELAY_SET(&start, deadline_ms, 0);
    start.request = &r.message;
    Relay__V1__SessionRequest m = RELAY__V1__SESSION_REQUEST__INIT;
    m.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_START;
    m.start = &start;
    session_send(s, &m);
    service_world_release(w);
    session_read_until_end(s, 2);
    assert_int_equal(s->answers[2].code, RELAY_DEADLINE_EXCEEDED);
    session_read_until_end(s, 1);
    assert_int_equal(s->answers[1].n_ids, 20);
    session_close(s);
    service_world_destroy(w);
}

static void labels_of_a_start_are_checked(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open(w, w->client);
    token_request r;
    token_request_init(&r, 5, 20, 1);
    Relay__V1__SessionStart start = RELAY__V1__SESSION_START__INIT;
    start.request = &r.message;
    Relay__V1__SessionRequest m = RELAY__V1__SESSION_REQUEST__INIT;
    m.command_case = RELAY__V1__SESSION_REQUEST__COMMAND_START;
    m.start = &start;
    static const char *const traces[] = {"", "00-xyz", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
                                         "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"};
    for (uint32_t i = 0; i < 4; i++) {
        RELAY_SET(&start, stream_key, i);
        RELAY_SET(&start, traceparent, relay_message_text(traces[i]));
        session_send(s, &m);
        session_read_until_end(s, i);
        assert_int_equal(s->answers[i].code, RELAY_INVALID_ARGUMENT);
        assert_non_null(strstr(s->answers[i].error, "start.traceparent"));
    }
    RELAY_SET(&start, stream_key, 10);
    RELAY_SET(&start, traceparent, relay_message_text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    session_send(s, &m);
    session_read_until_end(s, 10);
    assert_true(s->answers[10].is_finished);
    RELAY_SET(&start, stream_key, 11);
    static char tenant[RELAY_MAX_LABEL_BYTES + 2];
    memset(tenant, 't', sizeof tenant - 1);
    RELAY_SET(&start, tenant, relay_message_text(tenant));
    session_send(s, &m);
    session_read_until_end(s, 11);
    assert_non_null(strstr(s->answers[11].error, "start.tenant has 257 bytes"));
    session_close(s);
    service_world_destroy(w);
}

// ---- Steps

static void every_step_is_one_message(void **state) {
    w = service_world_create((service_world_opts){0});
    service_world_hold(w);
    session *s = session_open(w, w->client);
    static token_request r[20];
    for (uint32_t i = 0; i < 20; i++) {
        token_request_init(&r[i], 5, 50, i);
        session_start(s, i, &r[i].message);
    }
    for (uint32_t i = 0; i < 20; i++) {
        while (!s->answers[i].is_accepted)
            session_read(s, RELAY_NEVER_US / 4);
    }
    uint32_t before = s->n_messages;
    service_world_release(w);
    for (uint32_t i = 0; i < 20; i++)
        session_read_until_end(s, i);
    // 20 times 50 tokens: the first may have been alone in the step that was held. A silent second may add a message.
    uint32_t n = s->n_messages - before;
    assert_true(n >= 50 && n <= 60);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(s->answers[i].last_step - s->answers[i].first_step, 49);
        assert_int_equal(s->answers[i].n_messages, 50);
    }
    session_close(s);
    service_world_destroy(w);
}

static bool nine_are_running(const Relay__V1__Load *load) {
    return load->running == 9;
}

static void a_request_joins_those_that_decode(void **state) {
    w = service_world_create((service_world_opts){.prompt_chunk = 16});
    session *s = session_open(w, w->client);
    service_world_hold(w);
    static token_request r[9];
    for (uint32_t i = 0; i < 8; i++) {
        token_request_init(&r[i], 20, 300, i);
        session_start(s, i, &r[i].message);
    }
    while (s->answers[7].n_ids == 0) {
        service_world_step(w, 1);
        session_read(s, 10000);
    }
    session_read_until_step(s, service_world_steps(w));
    uint64_t step = s->step; // those decode, and the engine is held in the step after
    token_request_init(&r[8], 64, 100, 8);
    session_start(s, 8, &r[8].message);
    while (!s->answers[8].is_accepted)
        session_read(s, RELAY_NEVER_US / 4);
    while (s->answers[8].n_ids == 0) {
        service_world_step(w, 1);
        session_read_until_step(s, service_world_steps(w));
    }
    service_world_wait_for(w, nine_are_running);
    // Two steps and its own prompt of four chunks.
    assert_true(s->answers[8].first_step - step <= 2 + 4);
    for (uint32_t i = 0; i < 8; i++) {
        assert_false(s->answers[i].is_finished);
        assert_int_equal(s->answers[i].last_step, s->answers[8].first_step); // nobody waited
    }
    service_world_release(w);
    for (uint32_t i = 0; i < 9; i++)
        session_read_until_end(s, i);
    for (uint32_t i = 0; i < 9; i++)
        expect_ids(&s->answers[i], &r[i], i == 8 ? 100 : 300, i);
    session_close(s);
    service_world_destroy(w);
}

static void a_silent_session_is_told_the_step_every_second(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open(w, w->client);
    relay_mono_us begin = relay_mono_now();
    assert_true(session_read(s, 5000000));
    assert_true(session_read(s, 5000000));
    assert_true(relay_mono_now() - begin >= 900000);
    assert_int_equal(s->n_messages, 3);
    session_close(s);
    service_world_destroy(w);
}

static void past_the_queue_s_bound_a_start_is_refused_at_once(void **state) {
    w = service_world_create((service_world_opts){.max_running = 1, .max_queued_requests = 2});
    service_world_hold(w);
    session *s = session_open(w, w->client);
    token_request r;
    token_request_init(&r, 5, 20, 1);
    for (uint32_t i = 0; i < 4; i++)
        session_start(s, i, &r.message);
    session_read_until_end(s, 3); // while the step is held
    assert_int_equal(s->answers[3].code, RELAY_RESOURCE_EXHAUSTED);
    assert_string_equal(s->answers[3].reason_text, "OVERLOADED");
    assert_true(s->answers[3].retry_after_ms != 0);
    service_world_release(w);
    uint32_t n_finished = 0;
    for (uint32_t i = 0; i < 3; i++) {
        session_read_until_end(s, i);
        n_finished += s->answers[i].is_finished;
    }
    assert_true(n_finished >= 2); // the third was refused where the first had not been admitted yet
    session_close(s);
    service_world_destroy(w);
}

// ---- The end

static void after_the_half_close_the_rest_is_answered(void **state) {
    w = service_world_create((service_world_opts){0});
    session *s = session_open(w, w->client);
    token_request r;
    token_request_init(&r, 5, 100, 1);
    session_start(s, 1, &r.message);
    session_start(s, 2, &r.message);
    relay_rpc_stream_half_close(s->stream);
    session_read_until_over(s);
    assert_int_equal(s->code, RELAY_OK);
    expect_ids(&s->answers[1], &r, 100, 1);
    expect_ids(&s->answers[2], &r, 100, 1);
    session_close(s);
    s = session_open(w, w->client);
    relay_rpc_stream_half_close(s->stream);
    session_read_until_over(s);
    assert_int_equal(s->code, RELAY_OK);
    session_close(s);
    service_world_destroy(w);
}

static void a_drain_is_told_and_lets_what_runs_end(void **state) {
    w = service_world_create((service_world_opts){0});
    service_world_hold(w);
    session *busy = session_open(w, w->client), *idle = session_open(w, w->client);
    token_request r;
    token_request_init(&r, 5, 100, 1);
    session_start(busy, 1, &r.message);
    while (!busy->answers[1].is_accepted)
        session_read(busy, RELAY_NEVER_US / 4);
    relay_model_service_drain(w->service);
    session_read_until_over(idle);
    assert_true(idle->is_draining);
    assert_int_equal(idle->code, RELAY_OK);
    while (!busy->is_draining)
        session_read(busy, RELAY_NEVER_US / 4);
    session_start(busy, 2, &r.message);
    session_read_until_end(busy, 2);
    assert_int_equal(busy->answers[2].code, RELAY_UNAVAILABLE);
    assert_string_equal(busy->answers[2].reason_text, "DRAINING");
    service_world_release(w);
    session_read_until_over(busy);
    assert_int_equal(busy->code, RELAY_OK);
    expect_ids(&busy->answers[1], &r, 100, 1);
    session_close(busy);
    session_close(idle);
    service_world_destroy(w);
}

static void what_is_left_at_the_end_of_a_drain_ends_as_drained(void **state) {
    w = service_world_create((service_world_opts){.max_running = 1});
    service_world_hold(w);
    session *s = session_open(w, w->client);
    token_request r;
    token_request_init(&r, 5, 400, 1);
    session_start(s, 1, &r.message);
    session_start(s, 2, &r.message);
    while (s->answers[1].n_ids < 3 || !s->answers[2].is_accepted) {
        service_world_step(w, 1);
        session_read(s, 10000);
    }
    service_world_stop(w);
    session_read_until_over(s);
    assert_int_equal(s->code, RELAY_OK);
    assert_int_equal(s->answers[1].reason, RELAY__V1__FINISH_REASON__FINISH_REASON_DRAINED);
    assert_int_equal(s->answers[2].reason, RELAY__V1__FINISH_REASON__FINISH_REASON_DRAINED);
    assert_int_equal(s->answers[2].n_ids, 0);
    session_close(s);
    service_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_command_must_be_hello),
        cmocka_unit_test(a_session_that_says_nothing_is_ended),
        cmocka_unit_test(hello_is_said_once_and_with_this_vocabulary),
        cmocka_unit_test(while_the_model_loads_hello_is_told_to_come_back),
        cmocka_unit_test(a_message_without_a_command_ends_the_session),
        cmocka_unit_test(sequences_share_a_stream_and_keep_their_own_ids),
        cmocka_unit_test(a_wrong_start_ends_that_sequence_alone),
        cmocka_unit_test(a_stream_key_in_use_is_refused_and_free_again_after_its_end),
        cmocka_unit_test(credit_bounds_what_is_produced),
        cmocka_unit_test(a_deadline_ends_a_sequence_with_an_error),
        cmocka_unit_test(labels_of_a_start_are_checked),
        cmocka_unit_test(every_step_is_one_message),
        cmocka_unit_test(a_request_joins_those_that_decode),
        cmocka_unit_test(a_silent_session_is_told_the_step_every_second),
        cmocka_unit_test(past_the_queue_s_bound_a_start_is_refused_at_once),
        cmocka_unit_test(a_tenant_finds_its_own_prompts_and_no_other_ones),
        cmocka_unit_test(after_the_half_close_the_rest_is_answered),
        cmocka_unit_test(a_drain_is_told_and_lets_what_runs_end),
        cmocka_unit_test(what_is_left_at_the_end_of_a_drain_ends_as_drained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
