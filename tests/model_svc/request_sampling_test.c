// What a request says of sampling: what is refused, what gives way, what it becomes.
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

static void settings_that_leave_each_other_without_effect_are_refused_together(void **state) {
    whole_request r;
    whole_request_init(&r);
    r.sampling.mirostat = &r.mirostat;
    RELAY_SET(&r.sampling, top_k, 40);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.top_k", "40", "sampling.mirostat");
    RELAY_SET(&r.mirostat, version, 0); // off
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, NULL), RELAY_OK);
    assert_int_equal(request.sampling.top_k, 40);
    relay_request_fini(&request);
    RELAY_SET(&r.mirostat, version, 3);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.mirostat.version", "3", "[0, 2]");

    whole_request_init(&r);
    r.sampling.mirostat = &r.mirostat;
    RELAY_SET(&r.sampling, typical_p, 0.5f);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.typical_p", "0.5", "sampling.mirostat");
    r.sampling.has_typical_p = 0;
    RELAY_SET(&r.sampling, xtc_probability, 0.5f);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.xtc_probability", "0.5", "sampling.mirostat");
    r.sampling.has_xtc_probability = 0;
    RELAY_SET(&r.sampling, temperature, 0);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.temperature", "is 0", "(0, 2]");
}

static void what_the_model_sets_gives_way_to_the_request(void **state) {
    relay_request_rules own = whole_request_rules;
    own.defaults.top_k = 40;
    own.defaults.top_p = 0.9f;
    whole_request r;
    whole_request_init(&r);
    r.sampling.mirostat = &r.mirostat;
    RELAY_SET(&r.mirostat, tau, 3);
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &own, NULL), RELAY_OK);
    assert_true(request.sampling.mirostat == 2 && request.sampling.top_k == 0 && request.sampling.top_p == 1);
    assert_true(request.sampling.mirostat_mu == 6);
    relay_request_fini(&request);
    own.defaults.mirostat = 1;
    own.defaults.mirostat_tau = 5;
    r.sampling.mirostat = NULL;
    assert_int_equal(relay_request_read(&request, &r.message, &own, NULL), RELAY_OK);
    assert_true(request.sampling.mirostat == 1 && request.sampling.mirostat_mu == 10);
    relay_request_fini(&request);
    RELAY_SET(&r.sampling, top_k, 3);
    assert_int_equal(relay_request_read(&request, &r.message, &own, NULL), RELAY_OK);
    assert_true(request.sampling.mirostat == 0 && request.sampling.top_k == 3);
    relay_request_fini(&request);
}

static void a_sampler_goes_on_from_its_state(void **state) {
    whole_request r;
    whole_request_init(&r);
    r.sampling.mirostat = &r.mirostat;
    r.resume.n_generated_token_ids = 3;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.sampler_state", "3 ids", "mirostat needs");
    uint8_t bytes[RELAY_SAMPLER_STATE_BYTES + 1] = {0};
    relay_sampler_state_write(bytes, 7.25f);
    RELAY_SET(&r.resume, sampler_state, relay_message_bytes(bytes, RELAY_SAMPLER_STATE_BYTES));
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, NULL), RELAY_OK);
    assert_true(request.sampling.mirostat_mu == 7.25f);
    relay_request_fini(&request);
    r.resume.sampler_state.len++;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.sampler_state", "6 bytes", "5 bytes");
    r.resume.sampler_state.len--;
    relay_sampler_state_write(bytes, NAN);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.sampler_state", "nan", "finite");
    bytes[0] = 9;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.sampler_state", "begins with 9", "begin with 1");
    bytes[0] = 1;
    r.sampling.mirostat = NULL;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.sampler_state", "5 bytes", "none are allowed");
}

static void a_mask_holds_what_is_allowed_and_not_banned(void **state) {
    uint32_t allowed[] = {3, 40, 999}, banned[] = {40};
    whole_request r;
    whole_request_init(&r);
    r.sampling.n_banned_token_ids = 1;
    r.sampling.banned_token_ids = banned;
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, NULL), RELAY_OK);
    assert_int_equal(request.n_allowed_words, 32);
    for (uint32_t i = 0; i < 1024; i++)
        assert_int_equal(request.allowed[i / 32] >> i % 32 & 1, i < VOCAB && i != 40);
    relay_request_fini(&request);
    r.sampling.n_allowed_token_ids = 3;
    r.sampling.allowed_token_ids = allowed;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, NULL), RELAY_OK);
    for (uint32_t i = 0; i < 1024; i++)
        assert_int_equal(request.allowed[i / 32] >> i % 32 & 1, i == 3 || i == 999);
    relay_request_fini(&request);
    allowed[0] = 40;
    r.sampling.n_allowed_token_ids = 1;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.allowed_token_ids", "1 ids", "at least one");
}

static void lists_of_sampling_out_of_range_are_named(void **state) {
    whole_request r;
    whole_request_init_deep(&r);
    Relay__V1__TokenBias *many[RELAY_MAX_LOGIT_BIAS + 1];
    for (uint32_t i = 0; i <= RELAY_MAX_LOGIT_BIAS; i++)
        many[i] = &r.bias;
    r.sampling.logit_bias = many;
    r.sampling.n_logit_bias = RELAY_MAX_LOGIT_BIAS + 1;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.logit_bias", "1025", "1024");
    r.sampling.n_logit_bias = 2;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.logit_bias", "id 4", "once");
    r.sampling.n_logit_bias = 1;
    RELAY_SET(&r.bias, token_id, VOCAB);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.logit_bias[0].token_id", "1000", "below 1000");
    r.bias.has_token_id = 0;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.logit_bias[0].token_id", "unset", "needed");

    whole_request_init_deep(&r);
    uint32_t id = VOCAB;
    r.sampling.allowed_token_ids = &id;
    r.sampling.n_allowed_token_ids = 1;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.allowed_token_ids[0]", "1000", "below 1000");
    r.sampling.n_allowed_token_ids = 0;
    r.sampling.banned_token_ids = &id;
    r.sampling.n_banned_token_ids = 1;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.banned_token_ids[0]", "1000", "below 1000");
    r.sampling.n_banned_token_ids = 0;
    r.dry.breaker_token_ids = &id;
    r.dry.n_breaker_token_ids = 1;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.dry.breaker_token_ids[0]", "1000", "below 1000");

    whole_request_init_deep(&r);
    r.stop_sequence.n_token_ids = 0;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.stop_token_sequences[0]", "0 ids", "[1, 64]");
    r.stop_sequence.n_token_ids = 1;
    r.stop_sequence_ids[0] = VOCAB;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.stop_token_sequences.token_ids[0]", "1000", "below 1000");
    Relay__V1__TokenSequence *sequences[RELAY_MAX_STOP_SEQUENCES + 1];
    r.stop.stop_token_sequences = sequences;
    r.stop.n_stop_token_sequences = RELAY_MAX_STOP_SEQUENCES + 1;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.stop_token_sequences", "65", "64");

    whole_request_init(&r);
    uint32_t wanted[RELAY_MAX_WANTED_LOGPROBS + 1] = {0};
    r.output.logprob_token_ids = wanted;
    r.output.n_logprob_token_ids = RELAY_MAX_WANTED_LOGPROBS + 1;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "output.logprob_token_ids", "21", "20");

    whole_request_init(&r);
    r.stop.n_stop_token_sequences = 1;
    r.stop.stop_token_sequences = r.stop_sequences;
    r.stop_sequence_ids[0] = 10;
    r.stop_sequence_ids[1] = 11;
    r.resume.n_generated_token_ids = 2;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.generated_token_ids", "stop.stop_token_sequences[0]",
                   "nothing is left");
}

static relay_code read_constraint(Relay__V1__Constraint *c, relay_request *out, relay_err *e) {
    whole_request r;
    whole_request_init(&r);
    r.sampling.constraint = c;
    return relay_request_read(out, &r.message, &whole_request_rules, e);
}

static void the_kinds_of_constraint_are_read(void **state) {
    ProtobufCBinaryData choices[] = {relay_message_text("a"), relay_message_text("b")};
    Relay__V1__Choices list = RELAY__V1__CHOICES__INIT;
    list.n_choice = 2;
    list.choice = choices;
    Relay__V1__Constraint kinds[6];
    for (int i = 0; i < 6; i++)
        relay__v1__constraint__init(&kinds[i]);
    kinds[0].kind_case = RELAY__V1__CONSTRAINT__KIND_JSON_SCHEMA;
    kinds[0].json_schema = relay_message_text("{}");
    kinds[1].kind_case = RELAY__V1__CONSTRAINT__KIND_REGEX;
    kinds[1].regex = relay_message_text("{}");
    kinds[2].kind_case = RELAY__V1__CONSTRAINT__KIND_GRAMMAR;
    kinds[2].grammar = relay_message_text("root ::= \"a\"");
    kinds[3].kind_case = RELAY__V1__CONSTRAINT__KIND_CHOICES;
    kinds[3].choices = &list;
    kinds[4].kind_case = RELAY__V1__CONSTRAINT__KIND_ANY_JSON;
    kinds[4].any_json = 1;
    kinds[5] = kinds[4];
    RELAY_SET(&kinds[5], start_after, relay_message_text("x"));
    relay_request requests[6], again;
    relay_err e;
    for (int i = 0; i < 6; i++) {
        if (read_constraint(&kinds[i], &requests[i], &e) != RELAY_OK) fail_msg("kind %d: %s", i, e.message);
        assert_non_null(requests[i].constraint);
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(requests[i].constraint, requests[k].constraint);
    }
    assert_int_equal(read_constraint(&kinds[0], &again, &e), RELAY_OK);
    assert_ptr_equal(again.constraint, requests[0].constraint); // by its text
    relay_request_fini(&again);
    for (int i = 0; i < 6; i++)
        relay_request_fini(&requests[i]);

    kinds[4].any_json = 0;
    assert_int_equal(read_constraint(&kinds[4], &again, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "sampling.constraint.any_json is false"));
}

int main(void) {
    whole_request_rules_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_that_leave_each_other_without_effect_are_refused_together),
        cmocka_unit_test(what_the_model_sets_gives_way_to_the_request),
        cmocka_unit_test(a_sampler_goes_on_from_its_state),
        cmocka_unit_test(a_mask_holds_what_is_allowed_and_not_banned),
        cmocka_unit_test(lists_of_sampling_out_of_range_are_named),
        cmocka_unit_test(the_kinds_of_constraint_are_read),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    whole_request_rules_close();
    return failed;
}
