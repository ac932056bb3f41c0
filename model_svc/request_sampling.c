// How a request wants its ids drawn: each setting is checked against its range and put in the form that the sampler
// takes. A setting that another one leaves without effect is refused with it, never ignored; one that the model's file
// sets gives way.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/ident.h"
#include "model_svc/request_read_internal.h"
#include "model_svc/sampler_state.h"
#include "model_svc/step.h"

// Seeds stay below it so that clients whose numbers are doubles can repeat them.
static const uint64_t SEED_END = 1ull << 53;

// ---- Numbers in a range

typedef struct range {
    const char *field;
    size_t has, value; // in the message
    size_t out;        // in the struct it is read into
    float min, max;
    bool min_excluded;
} range;

// Leaves alone what is unset. Written so that a NaN fails both comparisons.
static relay_code read_ranges(void *out, const void *message, const range *ranges, size_t n, relay_err *e) {
    for (const range *g = ranges; g < ranges + n; g++) {
        if (!*(const protobuf_c_boolean *)((const char *)message + g->has)) continue;
        float value = *(const float *)((const char *)message + g->value);
        bool is_above = g->min_excluded ? value > g->min : value >= g->min;
        if (!(is_above && value <= g->max)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is %g; allowed is %c%g, %g]", g->field, (double)value,
                              g->min_excluded ? '(' : '[', (double)g->min, (double)g->max);
        }
        *(float *)((char *)out + g->out) = value;
    }
    return RELAY_OK;
}

#define RANGE(prefix, message, name, struct_, field, ...)                                                              \
    { prefix #name, offsetof(message, has_##name), offsetof(message, name), offsetof(struct_, field), __VA_ARGS__ }
#define SAMPLING(name, ...) RANGE("sampling.", Relay__V1__SamplingParams, name, relay_sample_params, name, __VA_ARGS__)
static const range sampling_ranges[] = {
    SAMPLING(temperature, 0, 2, false),
    SAMPLING(top_p, 0, 1, true),
    SAMPLING(min_p, 0, 1, false),
    SAMPLING(typical_p, 0, 1, true),
    SAMPLING(repetition_penalty, 0, 2, true),
    SAMPLING(frequency_penalty, -2, 2, false),
    SAMPLING(presence_penalty, -2, 2, false),
    SAMPLING(top_n_sigma, 0, 100, false),
    SAMPLING(xtc_probability, 0, 1, false),
    SAMPLING(xtc_threshold, 0, 0.5f, false),
};
static const range mirostat_ranges[] = {
    RANGE("sampling.mirostat.", Relay__V1__Mirostat, tau, relay_sample_params, mirostat_tau, 0, 100, true),
    RANGE("sampling.mirostat.", Relay__V1__Mirostat, eta, relay_sample_params, mirostat_eta, 0, 1, true),
};
static const range dry_ranges[] = {
    RANGE("sampling.dry.", Relay__V1__Dry, multiplier, relay_dry, multiplier, 0, 100, false),
    RANGE("sampling.dry.", Relay__V1__Dry, penalty_base, relay_dry, base, 1, 100, false),
};
#define READ_RANGES(out, message, ranges, e) read_ranges(out, message, ranges, sizeof(ranges) / sizeof(ranges)[0], e)

static relay_code read_seed(relay_sample_params *p, const Relay__V1__SamplingParams *s, relay_err *e) {
    if (!s->has_seed) return RELAY_OK;
    if (s->seed >= SEED_END) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.seed is %llu; allowed is [0, 2^53)",
                          (unsigned long long)s->seed);
    }
    p->seed = s->seed;
    return RELAY_OK;
}

// ---- Single ids

static int compare_bias(const void *a, const void *b) {
    uint32_t x = ((const relay_token_bias *)a)->token_id, y = ((const relay_token_bias *)b)->token_id;
    return (x > y) - (x < y);
}

static relay_code read_logit_bias(relay_request *r, const Relay__V1__SamplingParams *s,
                                  const relay_request_rules *rules, relay_err *e) {
    const size_t n = s->n_logit_bias;
    if (n == 0) return RELAY_OK;
    if (n > RELAY_MAX_LOGIT_BIAS) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.logit_bias has %zu entries; at most %d are allowed", n,
                          RELAY_MAX_LOGIT_BIAS);
    }
    relay_token_bias *biases = relay_arena_alloc(&r->arena, n * sizeof *biases);
    if (biases == NULL) return relay_request_too_large(e);
    for (size_t i = 0; i < n; i++) {
        const Relay__V1__TokenBias *b = s->logit_bias[i];
        if (!b->has_token_id || !b->has_bias) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.logit_bias[%zu].%s is unset; both fields are needed",
                              i, b->has_token_id ? "bias" : "token_id");
        }
        if (b->token_id >= rules->vocab_size) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "sampling.logit_bias[%zu].token_id is %u; ids are below %u, the size of the vocabulary",
                              i, b->token_id, rules->vocab_size);
        }
        if (!(b->bias >= -100 && b->bias <= 100)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.logit_bias[%zu].bias is %g; allowed is [-100, 100]",
                              i, (double)b->bias);
        }
        biases[i] = (relay_token_bias){b->token_id, b->bias};
    }
    qsort(biases, n, sizeof *biases, compare_bias);
    for (size_t i = 1; i < n; i++) {
        if (biases[i].token_id == biases[i - 1].token_id) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.logit_bias names the id %u twice; allowed is once",
                              biases[i].token_id);
        }
    }
    r->logit_bias = biases;
    r->n_logit_bias = (uint32_t)n;
    return RELAY_OK;
}

// Allowed and banned ids as one mask.
static relay_code read_mask(relay_request *r, const Relay__V1__SamplingParams *s, const relay_request_rules *rules,
                            relay_err *e) {
    relay_code code = relay_request_check_ids(s->allowed_token_ids, s->n_allowed_token_ids,
                                              "sampling.allowed_token_ids", rules->vocab_size, e);
    if (code == RELAY_OK) {
        code = relay_request_check_ids(s->banned_token_ids, s->n_banned_token_ids, "sampling.banned_token_ids",
                                       rules->vocab_size, e);
    }
    if (code != RELAY_OK || s->n_allowed_token_ids + s->n_banned_token_ids == 0) return code;
    const uint32_t n = relay_mask_words(rules->vocab_size), last = rules->vocab_size % 32;
    uint32_t *mask = relay_arena_alloc(&r->arena, n * sizeof *mask);
    if (mask == NULL) return relay_request_too_large(e);
    memset(mask, s->n_allowed_token_ids == 0 ? 0xFF : 0, n * sizeof *mask);
    if (s->n_allowed_token_ids == 0 && last != 0) mask[n - 1] = (1U << last) - 1;
    for (size_t i = 0; i < s->n_allowed_token_ids; i++)
        mask[s->allowed_token_ids[i] / 32] |= 1U << s->allowed_token_ids[i] % 32;
    for (size_t i = 0; i < s->n_banned_token_ids; i++)
        mask[s->banned_token_ids[i] / 32] &= ~(1U << s->banned_token_ids[i] % 32);
    uint32_t any = 0;
    for (uint32_t i = 0; i < n; i++)
        any |= mask[i];
    if (any == 0) {
        return relay_fail(
            e, RELAY_INVALID_ARGUMENT,
            "sampling.allowed_token_ids has %zu ids and sampling.banned_token_ids %zu: together they leave "
            "none of the %u ids of the vocabulary; at least one is needed",
            s->n_allowed_token_ids, s->n_banned_token_ids, rules->vocab_size);
    }
    r->allowed = mask;
    r->n_allowed_words = n;
    return RELAY_OK;
}

// ---- Repeats

static relay_code read_dry(relay_request *r, const Relay__V1__Dry *m, const relay_request_rules *rules, relay_err *e) {
    if (m == NULL) return RELAY_OK;
    relay_dry *d = &r->dry;
    *d = (relay_dry){.multiplier = 0.8f, .base = 1.75f, .allowed_length = 2};
    relay_code code = READ_RANGES(d, m, dry_ranges, e);
    if (code != RELAY_OK) return code;
    if (m->has_allowed_length) d->allowed_length = m->allowed_length;
    if (m->has_window) d->window = m->window;
    if (m->n_breakers != 0) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "sampling.dry.breakers has %zu strings; this service knows no text and takes "
                          "sampling.dry.breaker_token_ids",
                          m->n_breakers);
    }
    code = relay_request_check_ids(m->breaker_token_ids, m->n_breaker_token_ids, "sampling.dry.breaker_token_ids",
                                   rules->vocab_size, e);
    if (code != RELAY_OK) return code;
    return relay_request_copy_ids(r, &d->breakers, &d->n_breakers, m->breaker_token_ids, m->n_breaker_token_ids, e);
}

// ---- Mirostat

static relay_code refuse_with_mirostat(relay_err *e, const char *field, double value) {
    return relay_fail(
        e, RELAY_INVALID_ARGUMENT,
        "sampling.%s is %g beside sampling.mirostat, which takes the place of truncation; leave one of them "
        "unset",
        field, value);
}

// Truncations of the request itself; those of the model's defaults give way.
static relay_code check_mirostat_alone(const Relay__V1__SamplingParams *s, relay_err *e) {
    if (s->has_top_k && s->top_k != 0) return refuse_with_mirostat(e, "top_k", s->top_k);
    if (s->has_top_p && s->top_p != 1) return refuse_with_mirostat(e, "top_p", (double)s->top_p);
    if (s->has_min_p && s->min_p != 0) return refuse_with_mirostat(e, "min_p", (double)s->min_p);
    if (s->has_typical_p && s->typical_p != 1) return refuse_with_mirostat(e, "typical_p", (double)s->typical_p);
    if (s->has_top_n_sigma && s->top_n_sigma != 0)
        return refuse_with_mirostat(e, "top_n_sigma", (double)s->top_n_sigma);
    if (s->has_xtc_probability && s->xtc_probability != 0) {
        return refuse_with_mirostat(e, "xtc_probability", (double)s->xtc_probability);
    }
    return RELAY_OK;
}

static relay_code read_mirostat(relay_request *r, const Relay__V1__SamplingParams *s, const Relay__V1__Resume *resume,
                                relay_err *e) {
    relay_sample_params *p = &r->sampling;
    const Relay__V1__Mirostat *m = s->mirostat;
    const bool has_state = resume != NULL && resume->has_sampler_state && resume->sampler_state.len != 0;
    if (m != NULL) {
        relay_code code = READ_RANGES(p, m, mirostat_ranges, e);
        if (code != RELAY_OK) return code;
        if (m->has_version && m->version > 2) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.mirostat.version is %u; allowed is [0, 2]",
                              m->version);
        }
        p->mirostat = m->has_version ? m->version : 2;
        code = p->mirostat != 0 ? check_mirostat_alone(s, e) : RELAY_OK;
        if (code != RELAY_OK) return code;
    } else if (p->mirostat != 0 && check_mirostat_alone(s, NULL) != RELAY_OK) {
        p->mirostat = 0; // the model's own gives way to the request's truncation
    }
    if (p->mirostat != 0 && p->temperature == 0) {
        if (m != NULL) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "sampling.temperature is 0 beside sampling.mirostat; allowed with it is (0, 2]");
        }
        p->mirostat = 0;
    }
    if (p->mirostat == 0) {
        if (!has_state) return RELAY_OK;
        return relay_fail(
            e, RELAY_INVALID_ARGUMENT,
            "resume.sampler_state has %zu bytes; this request has no sampler that carries state, so none are "
            "allowed",
            resume->sampler_state.len);
    }
    p->top_k = 0;
    p->top_p = 1;
    p->min_p = 0;
    p->typical_p = 1;
    p->top_n_sigma = p->xtc_probability = 0;
    p->mirostat_mu = 2 * p->mirostat_tau;
    if (has_state) {
        return relay_sampler_state_read(&p->mirostat_mu, resume->sampler_state.data, resume->sampler_state.len, e);
    }
    if (resume != NULL && resume->n_generated_token_ids != 0) {
        return relay_fail(
            e, RELAY_INVALID_ARGUMENT,
            "resume.sampler_state is unset and resume.generated_token_ids has %zu ids; to go on, mirostat "
            "needs the state that came with the last of them",
            resume->n_generated_token_ids);
    }
    return RELAY_OK;
}

// ---- Constraint

static relay_constraint_text text_of(ProtobufCBinaryData d) {
    return (relay_constraint_text){.bytes = (const char *)d.data, .len = d.len};
}

static relay_code get_constraint(relay_request *r, const relay_constraint_spec *spec, const relay_request_rules *rules,
                                 relay_err *e) {
    relay_code code = relay_constraint_cache_get(rules->constraints, spec, &r->constraint, e);
    if (code != RELAY_OK || relay_constraint_handle_state(r->constraint) != RELAY_CONSTRAINT_FAILED) return code;
    if (e != NULL) *e = *relay_constraint_handle_error(r->constraint);
    return relay_constraint_handle_error(r->constraint)->code;
}

// What is wrong with a constraint's text is found while it is compiled, which may be later: the request ends then.
static relay_code read_constraint(relay_request *r, const Relay__V1__Constraint *c, const relay_request_rules *rules,
                                  relay_err *e) {
    if (c == NULL) return RELAY_OK;
    relay_constraint_spec spec = {0};
    if (c->has_start_after) spec.start_after = text_of(c->start_after);
    relay_constraint_text *choices = NULL;
    switch (c->kind_case) {
    case RELAY__V1__CONSTRAINT__KIND_JSON_SCHEMA:
        spec.kind = RELAY_CONSTRAINT_JSON_SCHEMA;
        spec.text = text_of(c->json_schema);
        break;
    case RELAY__V1__CONSTRAINT__KIND_REGEX:
        spec.kind = RELAY_CONSTRAINT_REGEX;
        spec.text = text_of(c->regex);
        break;
    case RELAY__V1__CONSTRAINT__KIND_GRAMMAR:
        spec.kind = RELAY_CONSTRAINT_GRAMMAR;
        spec.text = text_of(c->grammar);
        break;
    case RELAY__V1__CONSTRAINT__KIND_CHOICES:
        spec.kind = RELAY_CONSTRAINT_CHOICES;
        spec.n_choices = (uint32_t)c->choices->n_choice;
        choices = relay_calloc(spec.n_choices + 1, sizeof choices[0]);
        for (uint32_t i = 0; i < spec.n_choices; i++)
            choices[i] = text_of(c->choices->choice[i]);
        spec.choices = choices;
        break;
    case RELAY__V1__CONSTRAINT__KIND_ANY_JSON:
        if (!c->any_json) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "sampling.constraint.any_json is false; allowed is true");
        }
        spec.kind = RELAY_CONSTRAINT_ANY_JSON;
        break;
    default:
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "sampling.constraint has none of json_schema, regex, grammar, choices and any_json");
    }
    relay_code code = get_constraint(r, &spec, rules, e);
    free(choices);
    return code;
}

// ---- All of it

static uint64_t random_seed(void) {
    uint64_t seed;
    relay_ident_random(&seed, sizeof seed);
    return seed % SEED_END;
}

static relay_code read_repeats(relay_request *r, const Relay__V1__SamplingParams *s, const relay_request_rules *rules,
                               relay_err *e) {
    if (s->has_penalty_window) r->penalty_window = s->penalty_window;
    if (s->has_no_repeat_ngram_size) r->no_repeat_ngram_size = s->no_repeat_ngram_size;
    return read_dry(r, s->dry, rules, e);
}

relay_code relay_request_read_sampling(relay_request *r, const Relay__V1__SamplingParams *s,
                                       const Relay__V1__Resume *resume, const relay_request_rules *rules,
                                       relay_err *e) {
    static const Relay__V1__SamplingParams unset = RELAY__V1__SAMPLING_PARAMS__INIT;
    if (s == NULL) s = &unset;
    relay_sample_params *p = &r->sampling;
    *p = rules->defaults;
    p->seed = random_seed();
    r->penalty_window = rules->default_penalty_window;
    if (s->has_top_k) p->top_k = s->top_k;
    relay_code code = READ_RANGES(p, s, sampling_ranges, e);
    if (code == RELAY_OK && s->has_xtc_threshold && p->xtc_probability == 0) {
        code =
            relay_fail(e, RELAY_INVALID_ARGUMENT,
                       "sampling.xtc_threshold is %g without sampling.xtc_probability; it is allowed with (0, 1] there",
                       (double)s->xtc_threshold);
    }
    if (code == RELAY_OK) code = read_seed(p, s, e);
    if (code == RELAY_OK) code = read_logit_bias(r, s, rules, e);
    if (code == RELAY_OK) code = read_mask(r, s, rules, e);
    if (code == RELAY_OK) code = read_constraint(r, s->constraint, rules, e);
    if (code == RELAY_OK) code = read_repeats(r, s, rules, e);
    if (code == RELAY_OK) code = read_mirostat(r, s, resume, e);
    return code;
}
