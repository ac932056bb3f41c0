// What a GenerateTokensRequest may hold, and what becomes of it.
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
#include "common/vocab.h"
#include "model_svc/request_read.h"
#include "model_svc/sampler_state.h"
#include "tests/model_svc/constraint/byte_vocab.h"

enum { VOCAB = 1000, CONTEXT = 64 };

static const uint32_t eos_ids[] = {2, 7};
static const uint8_t fingerprint[RELAY_FINGERPRINT_BYTES] = {1, 2, 3};

static relay_request_rules rules = {
    // the cache of constraints is made in main
    .vocab_size = VOCAB,
    .max_lease_ms = 5000,
    .max_context = CONTEXT,
    .eos_ids = eos_ids,
    .n_eos_ids = 2,
    .fingerprint = fingerprint,
    .defaults = {.temperature = 1,
                 .top_p = 1,
                 .typical_p = 1,
                 .repetition_penalty = 1,
                 .xtc_threshold = 0.1f,
                 .mirostat_tau = 5,
                 .mirostat_eta = 0.1f},
};

// A request with every part there and everything off.
typedef struct whole_request {
    Relay__V1__GenerateTokensRequest message;
    Relay__V1__SamplingParams sampling;
    Relay__V1__StopCriteria stop;
    Relay__V1__OutputOptions output;
    Relay__V1__CacheOptions cache;
    Relay__V1__BeamSearch beam_search;
    Relay__V1__Resume resume;
    Relay__V1__Mirostat mirostat;
    Relay__V1__Dry dry;
    Relay__V1__TokenBias bias, *biases[1];
    Relay__V1__TokenSequence stop_sequence, *stop_sequences[1];
    uint32_t stop_sequence_ids[2];
    uint32_t prompt[CONTEXT + 1], resumed[CONTEXT + 1];
} whole_request;

static void whole_request_init(whole_request *r) {
    memset(r, 0, sizeof *r);
    relay__v1__generate_tokens_request__init(&r->message);
    relay__v1__sampling_params__init(&r->sampling);
    relay__v1__stop_criteria__init(&r->stop);
    relay__v1__output_options__init(&r->output);
    relay__v1__cache_options__init(&r->cache);
    relay__v1__resume__init(&r->resume);
    for (uint32_t i = 0; i <= CONTEXT; i++)
        r->prompt[i] = r->resumed[i] = 10 + i;
    r->message.n_prompt_token_ids = 5;
    r->message.prompt_token_ids = r->prompt;
    RELAY_SET(&r->message, sequence_id, relay_message_text("s"));
    r->message.sampling = &r->sampling;
    r->message.stop = &r->stop;
    r->message.output = &r->output;
    r->message.cache = &r->cache;
    r->message.resume = &r->resume;
    r->resume.generated_token_ids = r->resumed;
    relay__v1__mirostat__init(&r->mirostat);
    relay__v1__dry__init(&r->dry);
    relay__v1__token_bias__init(&r->bias);
    relay__v1__token_sequence__init(&r->stop_sequence);
    r->biases[0] = &r->bias;
    r->stop_sequences[0] = &r->stop_sequence;
    RELAY_SET(&r->bias, token_id, 4);
    RELAY_SET(&r->bias, bias, 1);
    r->stop_sequence_ids[0] = 4;
    r->stop_sequence.token_ids = r->stop_sequence_ids;
    r->stop_sequence.n_token_ids = 2;
    RELAY_SET(&r->sampling, seed, 1);
    RELAY_SET(&r->output, top_logprobs, 1);
    RELAY_SET(&r->stop, max_new_tokens, 20);
}

// With the parts that change an answer by being there.
static void whole_request_init_deep(whole_request *r) {
    whole_request_init(r);
    r->sampling.mirostat = &r->mirostat;
    r->sampling.dry = &r->dry;
    r->sampling.n_logit_bias = 1;
    r->sampling.logit_bias = r->biases;
    r->stop.n_stop_token_sequences = 1;
    r->stop.stop_token_sequences = r->stop_sequences;
}

// Everything that a request was read into, as text.
static void describe(relay_buf *out, const relay_request *r) {
    const relay_sample_params *p = &r->sampling;
    relay_buf_printf(out, "id=%s sequence=%s answers=%u from=%u prompt=%u:", r->request_id, r->sequence_id,
                     r->n_sequences, r->sampling.sequence_index, r->n_prompt);
    for (uint32_t i = 0; i < r->n_tokens; i++)
        relay_buf_printf(out, " %u", r->token_ids[i]);
    relay_buf_printf(out, " t=%g k=%u p=%g minp=%g rep=%g freq=%g pres=%g seed=%llu mode=%u top=%u",
                     (double)p->temperature, p->top_k, (double)p->top_p, (double)p->min_p,
                     (double)p->repetition_penalty, (double)p->frequency_penalty, (double)p->presence_penalty,
                     (unsigned long long)p->seed, p->logprob_mode, p->n_top);
    relay_buf_printf(out, " typical=%g sigma=%g xtc=%g,%g mirostat=%u,%g,%g,%g window=%u ngram=%u dry=%g,%g,%u,%u:",
                     (double)p->typical_p, (double)p->top_n_sigma, (double)p->xtc_probability, (double)p->xtc_threshold,
                     p->mirostat, (double)p->mirostat_tau, (double)p->mirostat_eta, (double)p->mirostat_mu,
                     r->penalty_window, r->no_repeat_ngram_size, (double)r->dry.multiplier, (double)r->dry.base,
                     r->dry.allowed_length, r->dry.window);
    for (uint32_t i = 0; i < r->dry.n_breakers; i++)
        relay_buf_printf(out, " %u", r->dry.breakers[i]);
    relay_buf_printf(out, " bias:");
    for (uint32_t i = 0; i < r->n_logit_bias; i++)
        relay_buf_printf(out, " %u=%g", r->logit_bias[i].token_id, (double)r->logit_bias[i].bias);
    relay_buf_printf(out, " allowed:");
    for (uint32_t i = 0; i < r->n_allowed_words; i++)
        relay_buf_printf(out, " %x", r->allowed[i]);
    relay_buf_printf(out, " scores=%d,%u wanted:", r->scores_prompt, r->n_prompt_top);
    for (uint32_t i = 0; i < r->n_wanted_ids; i++)
        relay_buf_printf(out, " %u", r->wanted_ids[i]);
    relay_buf_printf(out, " sequences:");
    for (uint32_t i = 0; i < r->n_stop_sequences; i++) {
        for (uint32_t k = 0; k < r->stop_sequences[i].n; k++)
            relay_buf_printf(out, " %u", r->stop_sequences[i].ids[k]);
        relay_buf_printf(out, ";");
    }
    relay_buf_printf(out, " max=%u min=%u eos=%u stop=%u:", r->max_new_tokens, r->min_new_tokens, r->n_eos_ids,
                     r->n_stop_ids);
    for (uint32_t i = 0; i < r->n_stop_ids; i++)
        relay_buf_printf(out, " %u", r->stop_ids[i]);
    relay_buf_printf(out, " lease=%lld", (long long)r->lease_us);
    relay_buf_printf(out, " bypass=%d keep=%d salt=", r->bypass_prefix_cache, !r->do_not_store);
    for (uint32_t i = 0; i < RELAY_SALT_BYTES; i++)
        relay_buf_printf(out, "%02x", r->salt[i]);
    relay_buf_printf(out, " priority=%d limited=%d final=%d", r->priority, r->time_limit_at != RELAY_NEVER_US,
                     r->is_final_only);
}

static relay_code read_and_describe(const whole_request *r, relay_buf *out, relay_err *e) {
    relay_request request;
    relay_code code = relay_request_read(&request, &r->message, &rules, e);
    relay_buf_clear(out);
    if (code == RELAY_OK) {
        describe(out, &request);
        relay_request_fini(&request);
    }
    return code;
}

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

// Memory that a set field points to.
typedef struct field_memory {
    uint32_t id;
    ProtobufCBinaryData text;
    _Alignas(16) char message[512];
    ProtobufCMessage *pointer;
} field_memory;

static void set_scalar(void *at, ProtobufCType type, double value) {
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
        *(float *)at = (float)value;
        break;
    case PROTOBUF_C_TYPE_UINT64:
        *(uint64_t *)at = (uint64_t)value;
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_ENUM:
        *(int32_t *)at = (int32_t)value;
        break;
    case PROTOBUF_C_TYPE_UINT32:
        *(uint32_t *)at = (uint32_t)value;
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = value != 0;
        break;
    default:
        fail_msg("a field of type %d", (int)type);
    }
}

// One value in the field: `value`, or the text "x", or an empty message.
static void set_field(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, double value, field_memory *memory) {
    char *at = (char *)m + f->offset, *quantifier = (char *)m + f->quantifier_offset;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessageDescriptor *d = f->descriptor;
        assert_true(d->sizeof_message <= sizeof memory->message);
        memory->pointer = (ProtobufCMessage *)memory->message;
        d->message_init(memory->pointer);
    }
    memory->text = relay_message_text("x");
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        *(size_t *)quantifier = 1;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
            *(ProtobufCMessage ***)at = &memory->pointer;
        } else {
            memory->id = (uint32_t)value;
            *(uint32_t **)at = &memory->id;
        }
    } else if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        *(ProtobufCMessage **)at = memory->pointer;
    } else {
        *(protobuf_c_boolean *)quantifier = 1;
        if (f->type == PROTOBUF_C_TYPE_BYTES) {
            *(ProtobufCBinaryData *)at = memory->text;
        } else {
            set_scalar(at, f->type, value);
        }
    }
}

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

// ---- Beam search

static void expect_refusal(const whole_request *r, relay_code code, const char *field, const char *value,
                           const char *limit);

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
    assert_int_equal(relay_request_read(&request, &r.message, &rules, &e), RELAY_OK);
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
    assert_int_equal(relay_request_read(&request, &r.message, &rules, &e), RELAY_OK);
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
    assert_int_equal(relay_request_read(&request, &r.message, &rules, &e), RELAY_OK);
    assert_int_equal(request.n_sequences, 3);
    assert_int_equal(request.sampling.sequence_index, 0);
    relay_request_fini(&request);
    r.message.resume = &r.resume;
    RELAY_SET(&r.resume, index, 2);
    assert_int_equal(relay_request_read(&request, &r.message, &rules, &e), RELAY_OK);
    assert_int_equal(request.n_sequences, 1);
    assert_int_equal(request.sampling.sequence_index, 2);
    relay_request_fini(&request);
    RELAY_SET(&r.resume, index, 3);
    assert_int_equal(relay_request_read(&request, &r.message, &rules, &e), RELAY_INVALID_ARGUMENT);
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
    assert_int_equal(relay_request_read(&request, &r.message, &rules, &e), RELAY_OK);
    assert_int_equal(request.lease_us, 5000 * 1000);
    relay_sequence_key key = request.sequence_key;
    assert_memory_equal(&key, &(relay_sequence_key[]){relay_sequence_key_of("", "s")}[0], sizeof key);
    assert_int_equal(relay_request_set_tenant(&request, &r.message, 1, relay_message_text("t"), "tenant", &e),
                     RELAY_OK);
    assert_memory_not_equal(&key, &request.sequence_key, sizeof key);
    assert_memory_equal(&request.sequence_key, &(relay_sequence_key[]){relay_sequence_key_of("t", "s")}[0], sizeof key);
    relay_request_fini(&request);
    r.message.has_sequence_id = 0;
    assert_int_equal(relay_request_read(&request, &r.message, &rules, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "lease_ms is 6000; without a sequence_id it leads to nothing");
}

// ---- Whose cache it shares

static void read_salt(uint8_t out[RELAY_SALT_BYTES], const char *tenant, const char *salt) {
    whole_request r;
    whole_request_init(&r);
    if (salt != NULL) RELAY_SET(&r.cache, salt, relay_message_text(salt));
    relay_request request;
    relay_err e;
    assert_int_equal(relay_request_read(&request, &r.message, &rules, &e), RELAY_OK);
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

// ---- Values

static void expect_refusal(const whole_request *r, relay_code code, const char *field, const char *value,
                           const char *limit) {
    relay_request request;
    relay_err e = {0};
    relay_code got = relay_request_read(&request, &r->message, &rules, &e);
    if (got != code) fail_msg("%s = %s: %s (%s)", field, value, relay_code_name(got), e.message);
    if (strstr(e.message, field) == NULL || strstr(e.message, value) == NULL || strstr(e.message, limit) == NULL) {
        fail_msg("\"%s\" does not name %s, %s and %s", e.message, field, value, limit);
    }
}

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
    if (relay_request_read(&request, &r.message, &rules, &e) != RELAY_OK) fail_msg("%s", e.message);
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

static void settings_that_leave_each_other_without_effect_are_refused_together(void **state) {
    whole_request r;
    whole_request_init(&r);
    r.sampling.mirostat = &r.mirostat;
    RELAY_SET(&r.sampling, top_k, 40);
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "sampling.top_k", "40", "sampling.mirostat");
    RELAY_SET(&r.mirostat, version, 0); // off
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &rules, NULL), RELAY_OK);
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
    relay_request_rules own = rules;
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
    assert_int_equal(relay_request_read(&request, &r.message, &rules, NULL), RELAY_OK);
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
    assert_int_equal(relay_request_read(&request, &r.message, &rules, NULL), RELAY_OK);
    assert_int_equal(request.n_allowed_words, 32);
    for (uint32_t i = 0; i < 1024; i++)
        assert_int_equal(request.allowed[i / 32] >> i % 32 & 1, i < VOCAB && i != 40);
    relay_request_fini(&request);
    r.sampling.n_allowed_token_ids = 3;
    r.sampling.allowed_token_ids = allowed;
    assert_int_equal(relay_request_read(&request, &r.message, &rules, NULL), RELAY_OK);
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
    r.resumed[1] = eos_ids[1];
    expect_refusal(&r, RELAY_INVALID_ARGUMENT, "resume.generated_token_ids", "ends with 7", "nothing is left");
    RELAY_SET(&r.stop, ignore_eos, 1);
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &rules, NULL), RELAY_OK);
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
    RELAY_SET(&r.message, tokenizer_fingerprint, relay_message_bytes(fingerprint, sizeof fingerprint));
    relay_request request;
    assert_int_equal(relay_request_read(&request, &r.message, &rules, NULL), RELAY_OK);
    relay_request_fini(&request);
}

static void what_is_unset_is_the_models_default(void **state) {
    Relay__V1__GenerateTokensRequest m = RELAY__V1__GENERATE_TOKENS_REQUEST__INIT;
    uint32_t prompt[] = {4, 5};
    m.n_prompt_token_ids = 2;
    m.prompt_token_ids = prompt;
    relay_request_rules own = rules;
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
    assert_int_equal(relay_request_read(&request, &r.message, &rules, NULL), RELAY_OK);
    assert_int_equal(request.n_stop_ids, 3);
    assert_memory_equal(request.stop_ids, ((uint32_t[]){3, 5, 9}), 3 * sizeof(uint32_t));
    relay_request_fini(&request);
}

static void on_settled(void *arg) {
}

static relay_code read_constraint(Relay__V1__Constraint *c, relay_request *out, relay_err *e) {
    whole_request r;
    whole_request_init(&r);
    r.sampling.constraint = c;
    return relay_request_read(out, &r.message, &rules, e);
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
    relay_vocab *vocab = byte_vocab_create();
    rules.constraints = relay_constraint_cache_create(vocab, VOCAB, on_settled, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beam_search_is_read_with_its_memory),
        cmocka_unit_test(a_beam_search_excludes_whatever_changes_draws_or_logprobs),
        cmocka_unit_test(a_beam_search_out_of_range_is_refused),
        cmocka_unit_test(the_number_of_answers_is_bounded),
        cmocka_unit_test(several_answers_are_asked_for_or_one_of_them_goes_on),
        cmocka_unit_test(a_lease_wants_a_name_and_is_cut_to_what_the_server_allows),
        cmocka_unit_test(no_salt_reaches_another_tenant),
        cmocka_unit_test(every_field_has_an_effect),
        cmocka_unit_test(numbers_out_of_range_are_named_with_their_range),
        cmocka_unit_test(the_ends_of_the_ranges_are_allowed),
        cmocka_unit_test(lengths_and_counts_out_of_range_are_named),
        cmocka_unit_test(settings_that_leave_each_other_without_effect_are_refused_together),
        cmocka_unit_test(what_the_model_sets_gives_way_to_the_request),
        cmocka_unit_test(a_sampler_goes_on_from_its_state),
        cmocka_unit_test(a_mask_holds_what_is_allowed_and_not_banned),
        cmocka_unit_test(lists_of_sampling_out_of_range_are_named),
        cmocka_unit_test(ids_past_the_vocabulary_are_named),
        cmocka_unit_test(what_is_resumed_must_have_something_left),
        cmocka_unit_test(another_vocabulary_is_refused_with_both_fingerprints),
        cmocka_unit_test(what_is_unset_is_the_models_default),
        cmocka_unit_test(stop_ids_are_sorted_and_each_there_once),
        cmocka_unit_test(the_kinds_of_constraint_are_read),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    relay_constraint_cache_destroy(rules.constraints);
    relay_vocab_destroy(vocab);
    return failed;
}
