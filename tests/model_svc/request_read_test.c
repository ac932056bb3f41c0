// What a GenerateTokensRequest may hold, and what becomes of it: ranges, lengths, ids, defaults.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/buf.h"
#include "common/message.h"
#include "model_svc/request_read.h"
#include "model_svc/sampler_state.h"
#include "tests/model_svc/whole_request.h"

static void numbers_out_of_range_are_named_with_their_range(void **state) {
    static const struct {
        size_t offset, has_offset;
        const char *name;
        float value;
        const char *text, *range;
    } cases[] = {
#define CASE(field, value, text, range)                                                                                \
    {offsetof(whole_request, sampling.field),                                                                          \
     offsetof(whole_request, sampling.has_##field),                                                                    \
     "sampling." #field,                                                                                               \
     value,                                                                                                            \
     text,                                                                                                             \
     range}
        CASE(temperature, -0.1f, "-0.1", "[0, 2]"),
        CASE(temperature, 2.1f, "2.1", "[0, 2]"),
        CASE(temperature, NAN, "nan", "[0, 2]"),
        CASE(temperature, INFINITY, "inf", "[0, 2]"),
        CASE(temperature, -INFINITY, "-inf", "[0, 2]"),
        CASE(top_p, 0, "is 0;", "(0, 1]"),
        CASE(top_p, 1.5f, "1.5", "(0, 1]"),
        CASE(top_p, NAN, "nan", "(0, 1]"),
        CASE(min_p, -1, "-1", "[0, 1]"),
        CASE(min_p, 1.01f, "1.01", "[0, 1]"),
        CASE(min_p, NAN, "nan", "[0, 1]"),
        CASE(repetition_penalty, 0, "is 0;", "(0, 2]"),
        CASE(repetition_penalty, 2.5f, "2.5", "(0, 2]"),
        CASE(repetition_penalty, NAN, "nan", "(0, 2]"),
        CASE(frequency_penalty, -2.5f, "-2.5", "[-2, 2]"),
        CASE(frequency_penalty, INFINITY, "inf", "[-2, 2]"),
        CASE(presence_penalty, 3, "3", "[-2, 2]"),
        CASE(presence_penalty, NAN, "nan", "[-2, 2]"),
        CASE(typical_p, 0, "is 0;", "(0, 1]"),
        CASE(typical_p, 1.5f, "1.5", "(0, 1]"),
        CASE(top_n_sigma, -1, "-1", "[0, 100]"),
        CASE(top_n_sigma, NAN, "nan", "[0, 100]"),
        CASE(xtc_probability, 2, "2", "[0, 1]"),
        CASE(xtc_threshold, 0.6f, "0.6", "[0, 0.5]"),
#undef CASE
#define CASE(part, field, name, value, text, range)                                                                    \
    {offsetof(whole_request, part.field), offsetof(whole_request, part.has_##field), name, value, text, range}
        CASE(mirostat, tau, "sampling.mirostat.tau", 0, "is 0;", "(0, 100]"),
        CASE(mirostat, eta, "sampling.mirostat.eta", 2, "2", "(0, 1]"),
        CASE(dry, multiplier, "sampling.dry.multiplier", -1, "-1", "[0, 100]"),
        CASE(dry, penalty_base, "sampling.dry.penalty_base", 0.5f, "0.5", "[1, 100]"),
        CASE(bias, bias, "sampling.logit_bias[0].bias", -101, "-101", "[-100, 100]"),
        CASE(bias, bias, "sampling.logit_bias[0].bias", NAN, "nan", "[-100, 100]"),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        whole_request r;
        whole_request_init_deep(&r);
        *(float *)((char *)&r + cases[i].offset) = cases[i].value;
        *(protobuf_c_boolean *)((char *)&r + cases[i].has_offset) = 1;
        expect_refusal(&r, RELAY_INVALID_ARGUMENT, cases[i].name, cases[i].text, cases[i].range);
    }
}

static void the_ends_of_the_ranges_are_allowed(void **state) {
    whole_request r;
    whole_request_init(&r);
    RELAY_SET(&r.sampling, temperature, 2);
    RELAY_SET(&r.sampling, top_p, 1);
    RELAY_SET(&r.sampling, min_p, 1);
    RELAY_SET(&r.sampling, repetition_penalty, 2);
    RELAY_SET(&r.sampling, frequency_penalty, -2);
    RELAY_SET(&r.sampling, presence_penalty, 2);
    RELAY_SET(&r.sampling, seed, (1ull << 53) - 1);
    RELAY_SET(&r.output, top_logprobs, 20);
    RELAY_SET(&r.stop, max_new_tokens, UINT32_MAX);
    r.message.n_prompt_token_ids = CONTEXT - 1;
    r.prompt[0] = VOCAB - 1;
    relay_request request;
    relay_err e;
    if (relay_request_read(&request, &r.message, &whole_request_rules, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_request_fini(&request);
}

static void lengths_and_counts_out_of_range_are_named(void **state) {
    whole_request r;
    whole_request_init(&r);
    r.message.n_prompt_token_ids = 0;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "prompt_token_ids", "empty", "at least one");

    whole_request_init(&r);
    r.message.n_prompt_token_ids = CONTEXT;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "prompt_token_ids", "64 ids", "64 tokens");

    whole_request_init(&r);
    r.message.n_prompt_token_ids = 50;
    r.resume.n_generated_token_ids = 14;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.generated_token_ids 14", "50 ids", "64 tokens");

    whole_request_init(&r);
    uint32_t many[RELAY_MAX_STOP_TOKEN_IDS + 1] = {0};
    r.stop.n_stop_token_ids = RELAY_MAX_STOP_TOKEN_IDS + 1;
    r.stop.stop_token_ids = many;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.stop_token_ids", "257", "256");

    whole_request_init(&r);
    RELAY_SET(&r.stop, max_new_tokens, 0);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.max_new_tokens", "is 0", "1 and more");

    whole_request_init(&r);
    RELAY_SET(&r.stop, min_new_tokens, 21);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.min_new_tokens", "21", "[0, 20]");

    whole_request_init(&r);
    r.stop.has_max_new_tokens = 0;
    RELAY_SET(&r.stop, min_new_tokens, 60);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.min_new_tokens", "60", "[0, 59]");

    whole_request_init(&r);
    RELAY_SET(&r.output, top_logprobs, 21);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "output.top_logprobs", "21", "[0, 20]");

    whole_request_init(&r);
    RELAY_SET(&r.output, prompt_top_logprobs, 21);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "output.prompt_top_logprobs", "21", "[0, 20]");

    whole_request_init(&r);
    r.output.has_top_logprobs = 0;
    RELAY_SET(&r.output, logprob_mode, RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_RAW);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "output.logprob_mode", "without", "output.top_logprobs");

    whole_request_init(&r);
    RELAY_SET(&r.message, num_sequences, 0);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "num_sequences", "is 0", "[1, 4096]");

    whole_request_init(&r);
    RELAY_SET(&r.message, priority, 101);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "priority", "is 101", "[-100, 100]");
    RELAY_SET(&r.message, priority, -101);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "priority", "is -101", "[-100, 100]");
    RELAY_SET(&r.message, priority, -100);
    RELAY_SET(&r.message, time_limit_ms, 0);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "time_limit_ms", "is 0", "1 and more");

    whole_request_init(&r);
    RELAY_SET(&r.sampling, seed, 1ull << 53);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.seed", "9007199254740992", "[0, 2^53)");

    char label[RELAY_MAX_LABEL_BYTES + 1];
    memset(label, 'a', sizeof label);
    whole_request_init(&r);
    RELAY_SET(&r.message, request_id, relay_message_bytes(label, sizeof label));
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "request_id", "257", "256");
    label[3] = '\0';
    whole_request_init(&r);
    RELAY_SET(&r.message, sequence_id, relay_message_bytes(label, 10));
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sequence_id", "NUL", "");
}

static void ids_past_the_vocabulary_are_named(void **state) {
    whole_request r;
    whole_request_init(&r);
    r.prompt[3] = VOCAB;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "prompt_token_ids[3]", "1000", "below 1000");

    whole_request_init(&r);
    r.resume.n_generated_token_ids = 2;
    r.resumed[1] = UINT32_MAX;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.generated_token_ids[1]", "4294967295", "below 1000");

    whole_request_init(&r);
    uint32_t ids[] = {5, 5000};
    r.stop.n_stop_token_ids = 2;
    r.stop.stop_token_ids = ids;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.stop_token_ids[1]", "5000", "below 1000");
}

static void what_is_resumed_must_have_something_left(void **state) {
    whole_request r;
    whole_request_init(&r);
    r.resume.n_generated_token_ids = 20;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.generated_token_ids", "20 ids", "max_new_tokens is 20");

    whole_request_init(&r);
    r.resume.n_generated_token_ids = 2;
    r.resumed[1] = whole_request_rules.eos_ids[1];
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.generated_token_ids", "ends with 7", "nothing is left");
    RELAY_SET(&r.stop, ignore_eos, 1);
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, NULL), RELAY_OK);
    assert_int_equal(request.n_prompt, 5);
    assert_int_equal(request.n_tokens, 7);
    relay_request_fini(&request);
}

static void another_vocabulary_is_refused_with_both_fingerprints(void **state) {
    whole_request r;
    whole_request_init(&r);
    uint8_t other[RELAY_FINGERPRINT_BYTES] = {0xab, 0xcd};
    r.prompt[0] = 4000000; // also wrong, but only because it belongs to that vocabulary
    RELAY_SET(&r.message, tokenizer_fingerprint, relay_message_bytes(other, sizeof other));
    expect_refusal(&r, RELAY_FAILED_PRECONDITION, "tokenizer_fingerprint", "abcd0000", "01020300");
    whole_request_init(&r);
    RELAY_SET(&r.message, tokenizer_fingerprint,
              relay_message_bytes(whole_request_rules.fingerprint, RELAY_FINGERPRINT_BYTES));
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, NULL), RELAY_OK);
    relay_request_fini(&request);
}

static void what_is_unset_is_the_models_default(void **state) {
    Relay__V1__GenerateTokensRequest m = RELAY__V1__GENERATE_TOKENS_REQUEST__INIT;
    uint32_t prompt[] = {4, 5};
    m.n_prompt_token_ids = 2;
    m.prompt_token_ids = prompt;
    relay_request_rules own = whole_request_rules;
    own.defaults.temperature = 0.25f;
    own.defaults.top_k = 11;
    relay_request a, b;
    assert_int_equal(relay_request_read(&a, &m, &own, NULL), RELAY_OK);
    assert_int_equal(relay_request_read(&b, &m, &own, NULL), RELAY_OK);
    assert_true(a.sampling.temperature == 0.25f);
    assert_int_equal(a.sampling.top_k, 11);
    assert_int_equal(a.sampling.logprob_mode, RELAY_LOGPROB_NONE);
    assert_true(a.max_new_tokens >= CONTEXT - 2);
    assert_int_equal(a.n_eos_ids, 2);
    assert_true(a.sampling.seed < 1ull << 53);
    assert_true(a.sampling.seed != b.sampling.seed); // one in 2^53
    assert_string_equal(a.request_id, "");
    relay_request_fini(&a);
    relay_request_fini(&b);
}

static void stop_ids_are_sorted_and_each_there_once(void **state) {
    whole_request r;
    whole_request_init(&r);
    uint32_t ids[] = {9, 3, 9, 3, 5};
    r.stop.n_stop_token_ids = 5;
    r.stop.stop_token_ids = ids;
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, NULL), RELAY_OK);
    assert_int_equal(request.n_stop_ids, 3);
    assert_memory_equal(request.stop_ids, ((uint32_t[]){3, 5, 9}), 3 * sizeof(uint32_t));
    relay_request_fini(&request);
}

int main(void) {
    whole_request_rules_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_out_of_range_are_named_with_their_range),
        cmocka_unit_test(the_ends_of_the_ranges_are_allowed),
        cmocka_unit_test(lengths_and_counts_out_of_range_are_named),
        cmocka_unit_test(ids_past_the_vocabulary_are_named),
        cmocka_unit_test(what_is_resumed_must_have_something_left),
        cmocka_unit_test(another_vocabulary_is_refused_with_both_fingerprints),
        cmocka_unit_test(what_is_unset_is_the_models_default),
        cmocka_unit_test(stop_ids_are_sorted_and_each_there_once),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    whole_request_rules_close();
    return failed;
}
