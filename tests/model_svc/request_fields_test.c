// Every field that a GenerateTokensRequest may hold has an effect.
//
// The tables are read against the contract's descriptors: a field that is in the contract and not in a table fails the
// test, so that none can be forgotten.
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

// ---- Every field

typedef enum expectation {
    PART,    // a message whose own fields are in a table
    USED,    // changes what the request is read into
    CHECKED, // changes nothing, but a wrong value is an error
} expectation;

typedef struct field_case {
    const char *name;
    expectation expects;
    double on;
} field_case;

#define FIELD(field, what, value)                                                                                      \
    { .name = field, .expects = what, .on = value }
static const field_case request_fields[] = {
    FIELD("request_id", USED, 0),       FIELD("prompt_token_ids", USED, 44),
    FIELD("sequence_id", USED, 0),      FIELD("lease_ms", USED, 1000),
    FIELD("sampling", PART, 0),         FIELD("stop", PART, 0),
    FIELD("output", PART, 0),           FIELD("cache", PART, 0),
    FIELD("priority", USED, -3),        FIELD("tokenizer_fingerprint", CHECKED, 0),
    FIELD("num_sequences", CHECKED, 0), FIELD("time_limit_ms", USED, 500),
    FIELD("resume", PART, 0),
};
static const field_case sampling_fields[] = {
    FIELD("temperature", USED, 0.5),
    FIELD("top_k", USED, 3),
    FIELD("top_p", USED, 0.5),
    FIELD("min_p", USED, 0.5),
    FIELD("typical_p", USED, 0.5),
    FIELD("repetition_penalty", USED, 1.5),
    FIELD("frequency_penalty", USED, -1.5),
    FIELD("presence_penalty", USED, 1.5),
    FIELD("seed", USED, 77),
    FIELD("logit_bias", CHECKED, 0),
    FIELD("allowed_token_ids", USED, 3),
    FIELD("banned_token_ids", USED, 3),
    FIELD("constraint", CHECKED, 0), // read by the_kinds_of_constraint_are_read
    FIELD("penalty_window", USED, 5),
    FIELD("top_n_sigma", USED, 1),
    FIELD("xtc_probability", USED, 0.5),
    FIELD("xtc_threshold", CHECKED, 0.1),
    FIELD("mirostat", USED, 0),
    FIELD("beam_search", CHECKED, 0),
    FIELD("no_repeat_ngram_size", USED, 3),
    FIELD("dry", USED, 0),
};
static const field_case stop_fields[] = {
    FIELD("max_new_tokens", USED, 9), FIELD("min_new_tokens", USED, 4),          FIELD("stop_token_ids", USED, 6),
    FIELD("ignore_eos", USED, 1),     FIELD("stop_token_sequences", CHECKED, 0),
};
static const field_case output_fields[] = {
    FIELD("top_logprobs", USED, 5), FIELD("prompt_top_logprobs", USED, 3), FIELD("logprob_token_ids", USED, 3),
    FIELD("logprob_mode", USED, 2), FIELD("final_only", USED, 1),
};
static const field_case cache_fields[] = {
    FIELD("salt", USED, 0),
    FIELD("bypass_prefix_cache", USED, 1),
    FIELD("do_not_store", USED, 1),
};
static const field_case resume_fields[] = {
    FIELD("generated_token_ids", USED, 44),
    FIELD("sampler_state", CHECKED, 0),
    FIELD("index", CHECKED, 1),
};
static const field_case mirostat_fields[] = {
    FIELD("version", USED, 1),
    FIELD("tau", USED, 3),
    FIELD("eta", USED, 0.5),
};
static const field_case dry_fields[] = {
    FIELD("multiplier", USED, 2),        FIELD("penalty_base", USED, 3), FIELD("allowed_length", USED, 5),
    FIELD("breaker_token_ids", USED, 9), FIELD("breakers", CHECKED, 0),  FIELD("window", USED, 50),
};
static const field_case bias_fields[] = {
    FIELD("token_id", USED, 9),
    FIELD("bias", USED, -3),
};
static const field_case token_sequence_fields[] = {
    FIELD("token_ids", USED, 44),
};
#undef FIELD

static const field_case *find_case(const field_case *cases, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(cases[i].name, name) == 0) return &cases[i];
    }
    fail_msg("%s is in the contract and not in this test", name);
    return NULL;
}

static void check_field(void (*init)(whole_request *), size_t part_offset, const char *prefix,
                        const ProtobufCFieldDescriptor *f, const field_case *c) {
    relay_buf before, after;
    relay_buf_init(&before, 1 << 16);
    relay_buf_init(&after, 1 << 16);
    relay_err e;
    whole_request r;
    init(&r);
    assert_int_equal(read_and_describe(&r, &before, &e), RELAY_OK);
    char path[64];
    snprintf(path, sizeof path, "%s%s", prefix, f->name);
    field_memory memory;
    ProtobufCMessage *part = (ProtobufCMessage *)((char *)&r + part_offset);
    set_field(part, f, c->on, &memory);
    relay_code code = read_and_describe(&r, &after, &e);
    switch (c->expects) {
    case USED:
        if (code != RELAY_OK) fail_msg("%s: %s", path, e.message);
        if (strcmp(before.data, after.data) == 0) fail_msg("%s has no effect", path);
        break;
    case CHECKED:
        assert_int_equal(code, RELAY_INVALID_ARGUMENT);
        assert_non_null(strstr(e.message, path));
        break;
    case PART:
        assert_int_equal(f->type, PROTOBUF_C_TYPE_MESSAGE);
        break;
    }
    relay_buf_fini(&before);
    relay_buf_fini(&after);
}

static void check_message(void (*init)(whole_request *), const ProtobufCMessageDescriptor *d, size_t part_offset,
                          const char *prefix, const field_case *cases, size_t n_cases) {
    for (unsigned i = 0; i < d->n_fields; i++) {
        check_field(init, part_offset, prefix, &d->fields[i], find_case(cases, n_cases, d->fields[i].name));
    }
    assert_int_equal(d->n_fields, n_cases);
}

#define CHECK_MESSAGE(init, descriptor, part, prefix, cases)                                                           \
    check_message(init, &descriptor, offsetof(whole_request, part), prefix, cases, sizeof cases / sizeof cases[0])

static void every_field_has_an_effect(void **state) {
    CHECK_MESSAGE(whole_request_init, relay__v1__generate_tokens_request__descriptor, message, "", request_fields);
    CHECK_MESSAGE(whole_request_init, relay__v1__sampling_params__descriptor, sampling, "sampling.", sampling_fields);
    CHECK_MESSAGE(whole_request_init, relay__v1__stop_criteria__descriptor, stop, "stop.", stop_fields);
    CHECK_MESSAGE(whole_request_init, relay__v1__output_options__descriptor, output, "output.", output_fields);
    CHECK_MESSAGE(whole_request_init, relay__v1__cache_options__descriptor, cache, "cache.", cache_fields);
    CHECK_MESSAGE(whole_request_init, relay__v1__resume__descriptor, resume, "resume.", resume_fields);
    CHECK_MESSAGE(whole_request_init_deep, relay__v1__mirostat__descriptor, mirostat, "sampling.mirostat.",
                  mirostat_fields);
    CHECK_MESSAGE(whole_request_init_deep, relay__v1__dry__descriptor, dry, "sampling.dry.", dry_fields);
    CHECK_MESSAGE(whole_request_init_deep, relay__v1__token_bias__descriptor, bias, "sampling.logit_bias", bias_fields);
    CHECK_MESSAGE(whole_request_init_deep, relay__v1__token_sequence__descriptor, stop_sequence,
                  "stop.stop_token_sequences", token_sequence_fields);
}

int main(void) {
    whole_request_rules_open();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_an_effect),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    whole_request_rules_close();
    return failed;
}
