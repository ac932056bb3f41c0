#include "tests/model_svc/whole_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "common/message.h"
#include "common/vocab.h"
#include "tests/model_svc/constraint/byte_vocab.h"

static const uint32_t eos_ids[] = {2, 7};
static const uint8_t fingerprint[RELAY_FINGERPRINT_BYTES] = {1, 2, 3};

relay_request_rules whole_request_rules = {
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

static relay_vocab *vocab;

static void on_settled(void *arg) {
}

void whole_request_rules_open(void) {
    vocab = byte_vocab_create();
    whole_request_rules.constraints = relay_constraint_cache_create(vocab, VOCAB, on_settled, NULL);
}

void whole_request_rules_close(void) {
    relay_constraint_cache_destroy(whole_request_rules.constraints);
    relay_vocab_destroy(vocab);
}

void whole_request_init(whole_request *r) {
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

void whole_request_init_deep(whole_request *r) {
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

relay_code read_and_describe(const whole_request *r, relay_buf *out, relay_err *e) {
    relay_request request;
    relay_code code = relay_request_read(&request, &r->message, &whole_request_rules, e);
    relay_buf_clear(out);
    if (code == RELAY_OK) {
        describe(out, &request);
        relay_request_fini(&request);
    }
    return code;
}

void expect_refusal(const whole_request *r, relay_code code, const char *field, const char *value, const char *limit) {
    relay_request request;
    relay_err e = {0};
    relay_code got = relay_request_read(&request, &r->message, &whole_request_rules, &e);
    if (got != code) fail_msg("%s = %s: %s (%s)", field, value, relay_code_name(got), e.message);
    if (strstr(e.message, field) == NULL || strstr(e.message, value) == NULL || strstr(e.message, limit) == NULL) {
        fail_msg("\"%s\" does not name %s, %s and %s", e.message, field, value, limit);
    }
}

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

void set_field(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, double value, field_memory *memory) {
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
