// Beam search, several answers, leases, and whose cache a request shares.
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

// ---- Beam search

static void beam_request_init(whole_request *r) {
    whole_request_init(r);
    r->sampling.has_seed = 0;
    r->message.output = NULL;
    r->message.resume = NULL;
    r->sampling.beam_search = &r->beam_search;
    relay__v1__beam_search__init(&r->beam_search);
    RELAY_SET(&r->beam_search, num_beams, 4);
}

static void a_beam_search_is_read_with_its_memory(void **state) {
    whole_request r;
    relay_request request;
    relay_err e;
    beam_request_init(&r);
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, &e), RELAY_OK);
    assert_non_null(request.beams);
    assert_int_equal(relay_beam_search_beams(request.beams), 4);
    assert_int_equal(request.n_sequences, 4);
    assert_true(request.sampling.temperature == 0); // whatever the model's default
    relay_request_fini(&request);
}

static void a_beam_search_excludes_whatever_changes_draws_or_logprobs(void **state) {
    whole_request r;
    static const char *const sampling[] = {"temperature",
                                           "top_k",
                                           "top_p",
                                           "min_p",
                                           "typical_p",
                                           "top_n_sigma",
                                           "xtc_probability",
                                           "seed",
                                           "repetition_penalty",
                                           "frequency_penalty",
                                           "presence_penalty",

                                           "allowed_token_ids",
                                           "banned_token_ids",
                                           "no_repeat_ngram_size"};
    static const double values[] = {0.5, 7, 0.5, 0.1, 0.5, 1, 0.1, 5, 1.5, 0.5, 0.5, 7, 7, 2};
    for (uint32_t i = 0; i < sizeof sampling / sizeof sampling[0]; i++) {
        beam_request_init(&r);
        field_memory memory;
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(&relay__v1__sampling_params__descriptor, sampling[i]);
        set_field(&r.sampling.base, f, values[i], &memory);
        expect_refusal(&r, RELAY_INVALID_ARGUMENT, sampling[i], "beside", "sampling.beam_search");
    }
    beam_request_init(&r);
    r.sampling.n_logit_bias = 1;
    r.sampling.logit_bias = r.biases;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.logit_bias", "beside", "sampling.beam_search");
    beam_request_init(&r);
    RELAY_SET(&r.message, num_sequences, 2);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "num_sequences", "beside", "sampling.beam_search");
    beam_request_init(&r);
    RELAY_SET(&r.stop, min_new_tokens, 2);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "stop.min_new_tokens", "beside", "sampling.beam_search");
    beam_request_init(&r);
    RELAY_SET(&r.output, top_logprobs, 0);
    r.message.output = &r.output;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "output.top_logprobs", "beside", "sampling.beam_search");
    // What is off excludes nothing.
    beam_request_init(&r);
    RELAY_SET(&r.sampling, temperature, 0);
    RELAY_SET(&r.sampling, top_p, 1);
    RELAY_SET(&r.message, num_sequences, 1);
    relay_request request;
    relay_err e;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, &e), RELAY_OK);
    relay_request_fini(&request);
}

static void a_beam_search_out_of_range_is_refused(void **state) {
    whole_request r;
    static const uint32_t wrong[] = {0, 1, 11};
    for (uint32_t i = 0; i < 3; i++) {
        beam_request_init(&r);
        char text[16];
        snprintf(text, sizeof text, "is %u", wrong[i]);
        RELAY_SET(&r.beam_search, num_beams, wrong[i]);
        expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.beam_search.num_beams", text, "[2, 10]");
    }
    beam_request_init(&r);
    RELAY_SET(&r.beam_search, length_penalty, INFINITY);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.beam_search.length_penalty", "is inf", "finite");
    beam_request_init(&r);
    uint32_t stops[20];
    for (uint32_t i = 0; i < 20; i++)
        stops[i] = i;
    r.stop.n_stop_token_ids = 20;
    r.stop.stop_token_ids = stops;
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.beam_search.num_beams", "of 4", "at most 16");
}

// ---- Several answers

static void the_number_of_answers_is_bounded(void **state) {
    static const uint32_t refused[] = {0, RELAY_MAX_SEQUENCES + 1, UINT32_MAX};
    whole_request r;
    for (size_t i = 0; i < 3; i++) {
        char said[40];
        snprintf(said, sizeof said, "num_sequences is %u;", refused[i]);
        whole_request_init(&r);
        RELAY_SET(&r.message, num_sequences, refused[i]);
        expect_refusal(&r, RELAY_INVALID_ARGUMENT, said, "[1, ", "4096]");
    }
}

static void several_answers_are_asked_for_or_one_of_them_goes_on(void **state) {
    whole_request r;
    relay_request request;
    relay_err e;
    whole_request_init(&r);
    RELAY_SET(&r.message, num_sequences, 3);
    r.message.resume = NULL;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, &e), RELAY_OK);
    assert_int_equal(request.n_sequences, 3);
    assert_int_equal(request.sampling.sequence_index, 0);
    relay_request_fini(&request);
    r.message.resume = &r.resume;
    RELAY_SET(&r.resume, index, 2);
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, &e), RELAY_OK);
    assert_int_equal(request.n_sequences, 1);
    assert_int_equal(request.sampling.sequence_index, 2);
    relay_request_fini(&request);
    RELAY_SET(&r.resume, index, 3);
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "resume.index is 3; allowed is [0, 3), what num_sequences says");
}

// ---- Leases

static void a_lease_wants_a_name_and_is_cut_to_what_the_server_allows(void **state) {
    whole_request r;
    relay_request request;
    relay_err e;
    whole_request_init(&r);
    RELAY_SET(&r.message, lease_ms, 6000);
    RELAY_SET(&r.message, sequence_id, relay_message_text("s"));
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, &e), RELAY_OK);
    assert_int_equal(request.lease_us, 5000 * 1000);
    relay_sequence_key key = request.sequence_key;
    assert_memory_equal(&key, &(relay_sequence_key[]){relay_sequence_key_of("", "s")}[0], sizeof key);
    assert_int_equal(relay_request_set_tenant(&request, &r.message, 1, relay_message_text("t"), "tenant", &e),
                     RELAY_OK);
    assert_memory_not_equal(&key, &request.sequence_key, sizeof key);
    assert_memory_equal(&request.sequence_key, &(relay_sequence_key[]){relay_sequence_key_of("t", "s")}[0], sizeof key);
    relay_request_fini(&request);
    r.message.has_sequence_id = 0;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "lease_ms is 6000; without a sequence_id it leads to nothing");
}

// ---- Whose cache it shares

static void read_salt(uint8_t out[RELAY_SALT_BYTES], const char *tenant, const char *salt) {
    whole_request r;
    whole_request_init(&r);
    if (salt != NULL) RELAY_SET(&r.cache, salt, relay_message_text(salt));
    relay_request request;
    relay_err e;
    assert_int_equal(relay_request_read(&request, &r.message, &whole_request_rules, &e), RELAY_OK);
    if (tenant != NULL) {
        assert_int_equal(relay_request_set_tenant(&request, &r.message, 1, relay_message_text(tenant), "tenant", &e),
                         RELAY_OK);
        assert_string_equal(request.tenant, tenant);
    }
    memcpy(out, request.salt, RELAY_SALT_BYTES);
    relay_request_fini(&request);
}

static void no_salt_reaches_another_tenant(void **state) {
    static const struct {
        const char *tenant, *salt;
    } cases[] = {{NULL, NULL}, {"a", NULL},  {"b", NULL}, {"ab", NULL}, {NULL, "a"},
                 {"a", "b"},   {"a", "b\1"}, {"b", "a"},  {NULL, "ab"}, {NULL, "\1"}};
    enum { N = sizeof cases / sizeof cases[0] };
    uint8_t salts[N][RELAY_SALT_BYTES], again[RELAY_SALT_BYTES];
    for (uint32_t i = 0; i < N; i++) {
        read_salt(salts[i], cases[i].tenant, cases[i].salt);
        for (uint32_t j = 0; j < i; j++)
            assert_memory_not_equal(salts[i], salts[j], RELAY_SALT_BYTES);
        read_salt(again, cases[i].tenant, cases[i].salt);
        assert_memory_equal(salts[i], again, RELAY_SALT_BYTES);
    }
    read_salt(again, "", "");
    assert_memory_equal(salts[0], again, RELAY_SALT_BYTES); // unset and empty are the same
}

int main(void) {
    whole_request_rules_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beam_search_is_read_with_its_memory),
        cmocka_unit_test(a_beam_search_excludes_whatever_changes_draws_or_logprobs),
        cmocka_unit_test(a_beam_search_out_of_range_is_refused),
        cmocka_unit_test(the_number_of_answers_is_bounded),
        cmocka_unit_test(several_answers_are_asked_for_or_one_of_them_goes_on),
        cmocka_unit_test(a_lease_wants_a_name_and_is_cut_to_what_the_server_allows),
        cmocka_unit_test(no_salt_reaches_another_tenant),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    whole_request_rules_close();
    return failed;
}
