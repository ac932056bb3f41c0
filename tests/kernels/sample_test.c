// The sampling operation of every backend against its definition in kernels.h, written down once more here in float64.
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/philox.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/fixture.h"

enum { MAX_VOCAB = 50000 };

// A sanitizer makes everything some ten times slower, and looks for what a part of the rounds shows as well.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SHARE = 10 };
#else
enum { SHARE = 1 };
#endif

// ---- The definition

typedef struct definition {
    uint32_t n;
    float *processed;    // logits after penalties, biases and masks
    uint32_t *order;     // ids, most likely first, by processed logits; those that are left first
    uint32_t *raw_order; // the same by raw logits
    uint32_t n_left;     // of the order, after truncation
    double *share;       // [n] by id, of what is drawn from; sums to 1
    double *logprob;     // [n] its logarithm; -infinity of what is not left
    double *raw_logprob; // [n]
    float *mu;           // [n] the state of mirostat if this id is drawn
} definition;

static const double *sort_keys;

static int by_key(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (sort_keys[x] != sort_keys[y]) return sort_keys[x] > sort_keys[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

// Ids by descending key, equal ones by id.
static uint32_t *sorted_ids(const double *keys, uint32_t n) {
    uint32_t *ids = relay_calloc(n, sizeof *ids);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i;
    sort_keys = keys;
    qsort(ids, n, sizeof *ids, by_key);
    return ids;
}

static double *log_softmax(const double *scores, uint32_t n) {
    double *out = relay_calloc(n, sizeof *out), max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        max = fmax(max, scores[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += exp(scores[i] - max);
    for (uint32_t i = 0; i < n; i++)
        out[i] = scores[i] - max - log(sum);
    return out;
}

// ---- The truncations, as the logits processors of HF transformers (generation/logits_process.py) write them: each
// takes scores and gives them back with -infinity for what it removes. Where equal scores meet a cut HF leaves the
// choice to its sort; here the lower id comes first.

// The shortest front of the order of `keys` whose probabilities reach `mass`.
static void keep_mass(double *scores, uint32_t n, const double *keys, double mass) {
    double *logp = log_softmax(scores, n), sum = 0;
    uint32_t *ids = sorted_ids(keys, n);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && sum >= mass) scores[ids[i]] = -INFINITY;
        sum += exp(logp[ids[i]]);
    }
    free(ids);
    free(logp);
}

static void warp_top_k(double *scores, uint32_t n, uint32_t top_k) {
    uint32_t *ids = sorted_ids(scores, n);
    for (uint32_t i = top_k; i < n; i++)
        scores[ids[i]] = -INFINITY;
    free(ids);
}

static void warp_top_p(double *scores, uint32_t n, double top_p) {
    double *keys = relay_calloc(n, sizeof *keys);
    memcpy(keys, scores, n * sizeof *keys);
    keep_mass(scores, n, keys, top_p);
    free(keys);
}

static void warp_min_p(double *scores, uint32_t n, double min_p) {
    double *logp = log_softmax(scores, n), max = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        max = fmax(max, logp[i]);
    for (uint32_t i = 0; i < n; i++) {
        if (exp(logp[i] - max) < min_p) scores[i] = -INFINITY;
    }
    free(logp);
}

static void warp_typical(double *scores, uint32_t n, double mass) {
    double *logp = log_softmax(scores, n), entropy = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (logp[i] != -INFINITY) entropy -= exp(logp[i]) * logp[i];
    }
    double *keys = relay_calloc(n, sizeof *keys);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = -fabs(-logp[i] - entropy);
    keep_mass(scores, n, keys, mass);
    free(keys);
    free(logp);
}

// Of the paper, over the logits that are not -infinity.
static void warp_top_n_sigma(double *scores, uint32_t n, double n_sigma) {
    double mean = 0, variance = 0, max = -INFINITY;
    uint32_t n_finite = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (scores[i] == -INFINITY) continue;
        mean += scores[i];
        n_finite++;
        max = fmax(max, scores[i]);
    }
    mean /= n_finite;
    for (uint32_t i = 0; i < n; i++)
        variance += scores[i] == -INFINITY ? 0 : (scores[i] - mean) * (scores[i] - mean) / n_finite;
    for (uint32_t i = 0; i < n; i++) {
        if (scores[i] < max - n_sigma * sqrt(variance)) scores[i] = -INFINITY;
    }
}

// Of its author's text-generation-webui processor.
static void warp_xtc(double *scores, uint32_t n, double threshold) {
    double *logp = log_softmax(scores, n);
    uint32_t *ids = sorted_ids(scores, n);
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (exp(logp[ids[i + 1]]) >= threshold && scores[ids[i + 1]] != -INFINITY) scores[ids[i]] = -INFINITY;
    }
    free(ids);
    free(logp);
}

// Of its authors' implementation (basusourya/mirostat).
static void warp_mirostat(double *scores, uint32_t n, const relay_sample_params *p, float *mu) {
    double *logp = log_softmax(scores, n);
    uint32_t *ids = sorted_ids(scores, n);
    for (uint32_t i = 0; i < n; i++)
        mu[i] = (float)(p->mirostat_mu - p->mirostat_eta * (-logp[i] / log(2) - p->mirostat_tau));
    uint32_t k = n;
    if (p->mirostat == 2) {
        k = 1;
        while (k < n && -logp[ids[k]] / log(2) <= p->mirostat_mu)
            k++;
    } else {
        double num = 0, den = 0;
        for (uint32_t i = 0; i < 100 && i + 1 < n && logp[ids[i + 1]] != -INFINITY; i++) {
            double b = logp[ids[i]] - logp[ids[i + 1]], t = log((i + 2.0) / (i + 1.0));
            num += b * t;
            den += t * t;
        }
        double s = den == 0 ? 1 : num / den, eps = s - 1;
        double exact = eps == 0 ? pow(exp2(p->mirostat_mu) / log(n), 1 / s)
                                : pow(eps * exp2(p->mirostat_mu) / (1 - pow(n, -eps)), 1 / s);
        if (round(exact) + 1 < n) k = (uint32_t)round(exact) + 1;
    }
    for (uint32_t i = k; i < n; i++)
        scores[ids[i]] = -INFINITY;
    free(ids);
    free(logp);
}

static void warp(double *scores, uint32_t n, const relay_sample_params *p, float *mu) {
    if (p->mirostat != 0) {
        warp_mirostat(scores, n, p, mu);
        return;
    }
    if (p->top_n_sigma > 0) warp_top_n_sigma(scores, n, p->top_n_sigma);
    if (p->top_k > 0) warp_top_k(scores, n, p->top_k);
    if (p->top_p < 1) warp_top_p(scores, n, p->top_p);
    if (p->min_p > 0) warp_min_p(scores, n, p->min_p);
    if (p->typical_p > 0 && p->typical_p < 1) warp_typical(scores, n, p->typical_p);
    double u = relay_philox_uniform(p->seed, p->position, p->sequence_index, RELAY_DRAW_XTC);
    if (u < p->xtc_probability) warp_xtc(scores, n, p->xtc_threshold);
}

static double *doubles_of(const float *x, uint32_t n) {
    double *out = relay_calloc(n, sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i];
    return out;
}

static definition define(const float *logits, uint32_t n, const relay_sample_input *in) {
    const relay_sample_params *p = in->d_params;
    double *raw = doubles_of(logits, n);
    definition f = {.n = n, .raw_order = sorted_ids(raw, n), .raw_logprob = log_softmax(raw, n)};
    free(raw);
    f.processed = relay_calloc(n, sizeof *f.processed);
    memcpy(f.processed, logits, n * sizeof *logits);
    for (uint32_t i = 0; i < p->n_counts; i++) {
        const relay_token_count *c = &in->d_counts[p->counts_begin + i];
        float *l = &f.processed[c->token_id];
        if (*l > 0)
            *l /= p->repetition_penalty;
        else
            *l *= p->repetition_penalty;
        *l -= p->frequency_penalty * (float)c->in_output;
        *l -= c->in_output > 0 ? p->presence_penalty : 0;
    }
    for (uint32_t i = 0; i < p->n_bias; i++) {
        const relay_token_bias *b = &in->d_biases[p->bias_begin + i];
        f.processed[b->token_id] += b->bias;
    }
    for (uint32_t i = 0; i < p->n_masked; i++)
        f.processed[in->d_masked[p->masked_begin + i]] = -INFINITY;
    for (uint32_t i = 0; i < n && p->n_allowed_words != 0; i++) {
        if (!(in->d_allowed[p->allowed_begin + i / 32] >> i % 32 & 1)) f.processed[i] = -INFINITY;
    }
    double *scores = doubles_of(f.processed, n);
    f.order = sorted_ids(scores, n);
    f.n_left = f.processed[f.order[0]] != -INFINITY;
    f.share = relay_calloc(n, sizeof *f.share);
    f.mu = relay_calloc(n, sizeof *f.mu);
    for (uint32_t i = 0; i < n; i++)
        f.mu[i] = p->mirostat_mu;
    if (f.n_left != 0 && p->temperature == 0) {
        for (uint32_t i = 1; i < n; i++)
            scores[f.order[i]] = -INFINITY;
    } else if (f.n_left != 0) {
        // Divided after the largest is taken off, or a temperature near 0 would make all of them infinite.
        const double max = scores[f.order[0]];
        for (uint32_t i = 0; i < n; i++)
            scores[i] = (scores[i] - max) / p->temperature;
        warp(scores, n, p, f.mu);
        free(f.order);
        f.order = sorted_ids(scores, n);
        while (f.n_left < n && scores[f.order[f.n_left]] != -INFINITY)
            f.n_left++;
    }
    f.logprob = log_softmax(scores, n);
    for (uint32_t i = 0; i < n && f.n_left != 0; i++)
        f.share[i] = exp(f.logprob[i]);
    free(scores);
    return f;
}

static void definition_free(definition *f) {
    free(f->processed);
    free(f->order);
    free(f->raw_order);
    free(f->raw_logprob);
    free(f->share);
    free(f->logprob);
    free(f->mu);
}

static uint32_t place_in(const uint32_t *order, uint32_t id) {
    uint32_t i = 0;
    while (order[i] != id)
        i++;
    return i;
}

static void assert_logprob(float got, double expected) {
    if (expected == -INFINITY) {
        assert_true(got == -INFINITY);
        return;
    }
    if (isfinite(expected)) expected = fmax(expected, -FLT_MAX); // that of a finite logit is told as finite
    if (got == (float)expected) return;
    if (!(fabs(got - expected) <= 2e-6 * fmax(1, fabs(expected)))) fail_msg("logprob %.9g, not %.9g", got, expected);
}

// The result is what the definition says for this draw.
static void assert_defined(const relay_sample_result *r, const definition *f, const relay_sample_input *in) {
    const relay_sample_params *p = in->d_params;
    assert_true(r->is_finite);
    assert_true(r->token_id < f->n);
    // The ids below it have less than u together, and with it more: up to the rounding of float32 weights.
    double u = relay_philox_uniform(p->seed, p->position, p->sequence_index, RELAY_DRAW_TOKEN), before = 0;
    for (uint32_t i = 0; i < r->token_id; i++)
        before += f->share[i];
    assert_true(f->share[r->token_id] > 0);
    if (!(before <= u + 1e-6 && u <= before + f->share[r->token_id] + 1e-6)) {
        fail_msg("drew id %u, which has [%.9g, %.9g], for %.9g", r->token_id, before, before + f->share[r->token_id],
                 u);
    }
    assert_true(fabsf(r->mirostat_mu - f->mu[r->token_id]) <= 1e-5f * fmaxf(1, fabsf(r->mirostat_mu)));
    if (p->logprob_mode == RELAY_LOGPROB_NONE) {
        assert_true(r->logprob == 0 && r->rank == 0 && r->n_top == 0);
        return;
    }
    bool is_raw = p->logprob_mode == RELAY_LOGPROB_RAW;
    // What is left is seen in the sum that its logprobs are relative to, and in their number where that is small.
    const uint32_t *order = is_raw ? f->raw_order : f->order;
    const double *logprob = is_raw ? f->raw_logprob : f->logprob;
    uint32_t n_top = is_raw ? f->n : f->n_left;
    if (n_top > p->n_top) n_top = p->n_top;
    assert_int_equal(r->n_top, n_top);
    assert_int_equal(r->rank, p->n_top == 0 ? 0 : place_in(order, r->token_id) + 1);
    for (uint32_t i = 0; i < n_top; i++) {
        assert_int_equal(r->top_ids[i], order[i]);
        assert_logprob(r->top_logprobs[i], logprob[order[i]]);
    }
    assert_logprob(r->logprob, logprob[r->token_id]);
    for (uint32_t i = 0; i < p->n_wanted; i++)
        assert_logprob(r->wanted_logprobs[i], logprob[in->d_wanted[p->wanted_begin + i]]);
}

// ---- Rows and parameters

static const relay_sample_params plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

static relay_sample_result sample_one(const relay_kernels *k, relay_device *d, const float *logits, uint32_t n,
                                      const relay_sample_params *p) {
    relay_sample_result r;
    memset(&r, 0xFF, sizeof r);
    k->sample(d, &r, logits, n, &(relay_sample_input){.n_samples = 1, .d_params = p});
    return r;
}

typedef enum shape { NORMAL, PEAKED, FLAT, ASCENDING, DESCENDING, COARSE, N_SHAPES } shape;

// Rows as models make them, and as they make trouble: sorted, with many equal values.
static float *make_row(test_rng *r, shape s, uint32_t n) {
    float *x = test_normals(r, n, s == PEAKED ? 5 : s == FLAT ? 0.01f : 2);
    if (s == ASCENDING || s == DESCENDING) {
        for (uint32_t i = 0; i < n; i++)
            x[i] = 8 * (float)(s == ASCENDING ? i : n - 1 - i) / (float)n;
    }
    if (s == COARSE) {
        for (uint32_t i = 0; i < n; i++)
            x[i] = roundf(x[i] * 2);
    }
    return x;
}

static relay_sample_params make_params(test_rng *r, uint32_t n) {
    static const float temperatures[] = {0, 1e-42f, 0.1f, 0.7f, 1, 1.3f, 2};
    static const float top_ps[] = {1, 1, 0.95f, 0.9f, 0.5f, 0.01f, 0.9999f};
    static const float min_ps[] = {0, 0, 0, 0.05f, 0.5f, 1};
    static const uint32_t top_ks[] = {0, 0, 1, 2, 40, 500, 3000, UINT32_MAX};
    relay_sample_params p = plain;
    p.temperature = temperatures[test_below(r, 7)];
    p.top_p = top_ps[test_below(r, 7)];
    p.min_p = min_ps[test_below(r, 6)];
    p.top_k = top_ks[test_below(r, 8)];
    p.seed = test_random(r);
    p.position = test_below(r, 1000);
    p.sequence_index = test_below(r, 3);
    p.logprob_mode = test_below(r, 3);
    p.n_top = test_below(r, 2) == 0 ? 0 : test_below(r, RELAY_MAX_TOP_LOGPROBS + 1);
    if (test_below(r, 3) == 0) {
        p.repetition_penalty = 0.5f + (float)test_uniform(r) * 1.5f;
        p.frequency_penalty = (float)test_uniform(r) * 4 - 2;
        p.presence_penalty = (float)test_uniform(r) * 4 - 2;
        p.n_counts = test_below(r, n < 50 ? n : 50);
    }
    if (test_below(r, 3) == 0) p.n_masked = test_below(r, n < 10 ? n : 10);
    static const float n_sigmas[] = {0, 0, 0, 0.3f, 1, 2.5f}, typicals[] = {1, 1, 1, 0.2f, 0.9f, 0.99f};
    p.top_n_sigma = n_sigmas[test_below(r, 6)];
    p.typical_p = typicals[test_below(r, 6)];
    if (test_below(r, 3) == 0) {
        p.xtc_probability = 0.7f;
        p.xtc_threshold = (float)test_uniform(r) * 0.5f * (float)test_below(r, 2);
    }
    if (test_below(r, 4) == 0) {
        p.mirostat = 1 + test_below(r, 2);
        p.mirostat_tau = 0.5f + (float)test_uniform(r) * 6;
        p.mirostat_eta = (float)test_uniform(r);
        p.mirostat_mu = (float)test_uniform(r) * 14;
    }
    if (p.logprob_mode != RELAY_LOGPROB_NONE) p.n_wanted = test_below(r, 3) * 10;
    if (test_below(r, 3) == 0) p.n_bias = test_below(r, 40);
    if (test_below(r, 3) == 0) p.n_allowed_words = (n + 31) / 32;
    return p;
}

// A row with all that its parameters point to.
typedef struct row_case {
    relay_sample_params p;
    relay_sample_input in;
    uint32_t n;
    float *logits;
    relay_token_count counts[53];
    relay_token_bias biases[43];
    uint32_t masked[13], allowed[4 + 20000 / 32 + 1], wanted[21];
} row_case;

// Arrays begin at some place, counts and masks have unique ids from two ends of a stride through the vocabulary.
static void row_case_init(row_case *c, test_rng *r, uint32_t n, uint32_t i) {
    *c = (row_case){.n = n, .logits = make_row(r, test_below(r, N_SHAPES), n), .p = make_params(r, n)};
    relay_sample_params *p = &c->p;
    p->counts_begin = p->masked_begin = p->bias_begin = 3;
    p->allowed_begin = 4;
    p->wanted_begin = 1;
    for (uint32_t j = 0; j < p->n_counts; j++) {
        c->counts[3 + j] = (relay_token_count){(j * 7 + i) % n, 1 + test_below(r, 2), test_below(r, 4)};
        if (n % 7 == 0) c->counts[3 + j].token_id = (j + i) % n;
    }
    for (uint32_t j = 0; j < p->n_masked; j++)
        c->masked[3 + j] = (j + i / 2) % n;
    for (uint32_t j = 0; j < p->n_bias; j++)
        c->biases[3 + j] = (relay_token_bias){test_below(r, n), (float)test_uniform(r) * 20 - 10};
    for (uint32_t j = 0; j < p->n_allowed_words; j++)
        c->allowed[4 + j] = j % 5 == 4 ? 0 : j % 5 == 3 ? UINT32_MAX : (uint32_t)test_random(r);
    for (uint32_t j = 0; j < p->n_wanted; j++)
        c->wanted[1 + j] = test_below(r, n);
    c->in = (relay_sample_input){1, p, c->counts, c->biases, c->masked, c->allowed, c->wanted};
}

enum { MAX_BACKENDS = 8 };

static uint32_t make_devices(relay_device **devices) {
    uint32_t n = 0;
    FOR_EACH_BACKEND(k) {
        assert_true(n < MAX_BACKENDS);
        devices[n++] = test_device(k, 1);
    }
    return n;
}

static void destroy_devices(relay_device **devices, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        devices[i]->k->device_destroy(devices[i]);
}

static void results_are_what_the_definition_says(void **state) {
    static const uint32_t vocabs[] = {1, 2, 15, 16, 17, 100, 1000, 1024, 1025, 3001, 20000};
    relay_device *devices[MAX_BACKENDS];
    const uint32_t n_devices = make_devices(devices);
    test_rng r = {77};
    for (uint32_t i = 0; i < 400 / SHARE; i++) {
        row_case c;
        row_case_init(&c, &r, vocabs[test_below(&r, i % 20 == 0 ? 11 : 9)], i);
        definition f = define(c.logits, c.n, &c.in);
        float *copy = relay_calloc(c.n, sizeof *copy);
        memcpy(copy, c.logits, c.n * sizeof *copy);
        for (uint32_t d = 0; d < n_devices; d++) {
            relay_sample_result result;
            memset(&result, 0xFF, sizeof result);
            devices[d]->k->sample(devices[d], &result, c.logits, c.n, &c.in);
            assert_memory_equal(c.logits, copy, c.n * sizeof *copy); // it is read only
            if (f.n_left == 0) {
                assert_false(result.is_finite);
            } else {
                assert_defined(&result, &f, &c.in);
            }
        }
        definition_free(&f);
        free(copy);
        free(c.logits);
    }
    destroy_devices(devices, n_devices);
}

static void what_is_drawn_from_is_the_distribution_of_the_formulas(void **state) {
    enum { N = 200, STEP = RELAY_MAX_WANTED_LOGPROBS };
    relay_device *devices[MAX_BACKENDS];
    const uint32_t n_devices = make_devices(devices);
    test_rng r = {82};
    for (uint32_t i = 0; i < 2000 / SHARE; i++) {
        row_case c;
        row_case_init(&c, &r, N, i);
        c.p.logprob_mode = RELAY_LOGPROB_PROCESSED;
        definition f = define(c.logits, N, &c.in);
        for (uint32_t first = 0; first < N && f.n_left != 0; first += STEP) {
            c.p.n_wanted = STEP;
            for (uint32_t j = 0; j < STEP; j++)
                c.wanted[1 + j] = first + j;
            for (uint32_t d = 0; d < n_devices; d++) {
                relay_sample_result result;
                devices[d]->k->sample(devices[d], &result, c.logits, N, &c.in);
                for (uint32_t j = 0; j < STEP; j++) {
                    double got = exp(result.wanted_logprobs[j]), expected = f.share[first + j];
                    if (fabs(got - expected) <= 1e-5 && (got > 0) == (expected > 0)) continue;
                    fail_msg("%s: case %u: id %u has %.9g, not %.9g", devices[d]->k->name, i, first + j, got, expected);
                }
            }
        }
        definition_free(&f);
        free(c.logits);
    }
    destroy_devices(devices, n_devices);
}

static void a_vocabulary_of_usual_size_is_sampled_right(void **state) {
    relay_device *devices[MAX_BACKENDS];
    const uint32_t n_devices = make_devices(devices);
    test_rng r = {78};
    for (uint32_t i = 0; i < 12; i++) {
        float *logits = make_row(&r, i % N_SHAPES, 49152);
        relay_sample_params p = make_params(&r, 49152);
        p.n_counts = p.n_bias = p.n_masked = p.n_allowed_words = p.n_wanted = 0;
        p.logprob_mode = RELAY_LOGPROB_PROCESSED;
        const relay_sample_input in = {.n_samples = 1, .d_params = &p};
        definition f = define(logits, 49152, &in);
        for (uint32_t d = 0; d < n_devices; d++) {
            relay_sample_result result = sample_one(devices[d]->k, devices[d], logits, 49152, &p);
            assert_defined(&result, &f, &in);
        }
        definition_free(&f);
        free(logits);
    }
    destroy_devices(devices, n_devices);
}

// A million from the fastest backend, fewer from the others: they are held to the same definition.
static void draws_follow_the_distribution(void **state) {
    enum { N = 200, ROWS = 1000 };
    test_rng r = {79};
    float *row = make_row(&r, NORMAL, N), *logits = relay_calloc(ROWS * N, sizeof *logits);
    for (uint32_t i = 0; i < ROWS; i++)
        memcpy(logits + i * N, row, N * sizeof *row);
    relay_sample_params p = plain;
    p.temperature = 0.8f;
    p.top_k = 40;
    p.top_p = 0.97f;
    p.min_p = 0.01f;
    definition f = define(row, N, &(relay_sample_input){.n_samples = 1, .d_params = &p});
    assert_true(f.n_left > 15 && f.n_left < 40);
    relay_sample_params *params = relay_calloc(ROWS, sizeof *params);
    relay_sample_result *results = relay_calloc(ROWS, sizeof *results);
    bool is_fastest = true;
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        const uint32_t n_calls = is_fastest ? 1000 / SHARE : 20;
        double count[N] = {0};
        for (uint32_t call = 0; call < n_calls; call++) {
            for (uint32_t i = 0; i < ROWS; i++) {
                params[i] = p;
                params[i].seed = call / 10;
                params[i].position = call % 10 * ROWS + i;
            }
            k->sample(d, results, logits, N, &(relay_sample_input){.n_samples = ROWS, .d_params = params});
            for (uint32_t i = 0; i < ROWS; i++)
                count[results[i].token_id]++;
        }
        double chi2 = 0;
        for (uint32_t i = 0; i < N; i++) {
            double expected = f.share[i] * n_calls * ROWS;
            if (f.share[i] == 0)
                assert_true(count[i] == 0);
            else
                chi2 += (count[i] - expected) * (count[i] - expected) / expected;
        }
        assert_true(chi2 < f.n_left - 1 + 4 * sqrt(2.0 * (f.n_left - 1))); // four standard deviations
        k->device_destroy(d);
        is_fastest = false;
    }
    definition_free(&f);
    free(params);
    free(results);
    free(row);
    free(logits);
}

// Version 2 keeps the average surprise at tau; both versions do as the authors' code in float64 along a whole sequence.
static void mirostat_holds_the_surprise_at_its_target(void **state) {
    enum { N = 300, STEPS = 200 };
    FOR_EACH_BACKEND(k) {
        for (uint32_t version = 1; version <= 2; version++) {
            relay_device *d = test_device(k, 1);
            test_rng r = {83};
            relay_sample_params p = plain;
            const relay_sample_input in = {.n_samples = 1, .d_params = &p};
            p.mirostat = version;
            p.mirostat_tau = 4;
            p.mirostat_eta = 0.2f;
            p.mirostat_mu = 2 * p.mirostat_tau;
            p.logprob_mode = RELAY_LOGPROB_RAW;
            double surprise = 0;
            for (uint32_t i = 0; i < STEPS; i++) {
                float *logits = make_row(&r, NORMAL, N);
                p.position = i;
                definition f = define(logits, N, &in);
                relay_sample_result result;
                k->sample(d, &result, logits, N, &in);
                assert_defined(&result, &f, &in);
                p.mirostat_mu = result.mirostat_mu;
                if (i >= STEPS / 2) surprise -= result.logprob / log(2) / (STEPS - STEPS / 2);
                definition_free(&f);
                free(logits);
            }
            if (fabs(surprise - 4) > 0.3) fail_msg("version %u: the average surprise is %g", version, surprise);
            k->device_destroy(d);
        }
    }
}

static void a_row_that_is_scored_draws_nothing(void **state) {
    enum { N = 100 };
    test_rng r = {84};
    float *logits = make_row(&r, NORMAL, N);
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        relay_sample_params p = plain;
        p.is_score_only = 1;
        p.n_top = 5;
        definition f = define(logits, N, &(relay_sample_input){.n_samples = 1, .d_params = &p});
        for (p.scored_id = 0; p.scored_id < N; p.scored_id++) {
            relay_sample_result result = sample_one(k, d, logits, N, &p);
            assert_true(result.is_finite);
            assert_int_equal(result.token_id, p.scored_id);
            assert_logprob(result.logprob, f.raw_logprob[p.scored_id]);
            assert_int_equal(result.rank, place_in(f.raw_order, p.scored_id) + 1);
            assert_int_equal(result.n_top, 5);
            for (uint32_t i = 0; i < 5; i++)
                assert_int_equal(result.top_ids[i], f.raw_order[i]);
        }
        definition_free(&f);
        k->device_destroy(d);
    }
    free(logits);
}

static void equal_logits_rank_by_id(void **state) {
    enum { N = 5000 };
    float *logits = relay_calloc(N, sizeof *logits);
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        relay_sample_params p = plain;
        p.temperature = 0;
        p.logprob_mode = RELAY_LOGPROB_RAW;
        p.n_top = 3;
        relay_sample_result r = sample_one(k, d, logits, N, &p);
        assert_int_equal(r.token_id, 0);
        assert_int_equal(r.rank, 1);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(r.top_ids[i], i);
        p.temperature = 1;
        for (uint32_t seed = 0; seed < 50; seed++) {
            p.seed = seed;
            p.top_k = 10;
            p.top_p = 1;
            assert_true(sample_one(k, d, logits, N, &p).token_id < 10);
            p.top_p = 0.5f;
            assert_true(sample_one(k, d, logits, N, &p).token_id < 5);
            p.top_k = 0;
            assert_true(sample_one(k, d, logits, N, &p).token_id < N / 2);
        }
        k->device_destroy(d);
    }
    free(logits);
}

static void rows_that_are_not_finite_say_so(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        for (uint32_t at = 0; at < 35; at++) {
            for (uint32_t mode = 0; mode < 3; mode++) {
                float logits[35];
                relay_sample_params p = plain;
                p.temperature = (float)(at % 2);
                p.logprob_mode = mode;
                for (uint32_t i = 0; i < 35; i++)
                    logits[i] = (float)i;
                logits[at] = NAN;
                assert_false(sample_one(k, d, logits, 35, &p).is_finite);
                logits[at] = INFINITY;
                assert_false(sample_one(k, d, logits, 35, &p).is_finite);
                logits[at] = -INFINITY; // an id that cannot be drawn is none of these
                assert_true(sample_one(k, d, logits, 35, &p).is_finite);
                for (uint32_t i = 0; i < 35; i++)
                    logits[i] = -INFINITY;
                assert_false(sample_one(k, d, logits, 35, &p).is_finite);
                logits[at] = 1;
                relay_sample_result r = sample_one(k, d, logits, 35, &p);
                assert_true(r.is_finite);
                assert_int_equal(r.token_id, at);
                // Nothing is left when the only one is masked.
                p.n_masked = 1;
                k->sample(d, &r, logits, 35, &(relay_sample_input){.n_samples = 1, .d_params = &p, .d_masked = &at});
                assert_false(r.is_finite);
            }
        }
        k->device_destroy(d);
    }
}

static void the_smallest_parameters_leave_a_row_finite(void **state) {
    enum { N = 35 };
    const relay_token_count counts[] = {{30, 1, 0}, {3, 0, 2}, {0, 5, 5}, {34, 0, 0}};
    const float smallest[] = {1, 1e-38f, 1e-45f};
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        float logits[N];
        for (uint32_t i = 0; i < N; i++)
            logits[i] = (float)i - 10;
        for (uint32_t at = 1; at < 27; at++) {
            relay_sample_params p = plain;
            p.repetition_penalty = smallest[at % 3];
            p.temperature = at / 9 == 0 ? 0 : smallest[at / 9];
            p.logprob_mode = at / 3 % 3;
            p.frequency_penalty = p.presence_penalty = at % 2 ? 2 : -2;
            p.n_counts = 4;
            p.n_top = 3;
            relay_sample_result r;
            k->sample(d, &r, logits, N, &(relay_sample_input){.n_samples = 1, .d_params = &p, .d_counts = counts});
            assert_true(r.is_finite);
            // The penalty makes the penalized positive logit the largest there can be.
            assert_int_equal(r.token_id, at % 3 == 0 ? 34 : 30);
            assert_true(isfinite(r.logprob));
            for (uint32_t i = 0; i < r.n_top; i++)
                assert_true(isfinite(r.top_logprobs[i]));
        }
        k->device_destroy(d);
    }
}

static void a_draw_depends_on_seed_position_and_index_alone(void **state) {
    enum { N = 3000, ROWS = 33 };
    test_rng r = {80};
    float *logits = relay_calloc(ROWS * N, sizeof *logits);
    relay_sample_params p[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        float *row = make_row(&r, i % N_SHAPES, N);
        memcpy(logits + i * N, row, N * sizeof *row);
        free(row);
        p[i] = make_params(&r, N);
        p[i].n_counts = p[i].n_bias = p[i].n_masked = p[i].n_allowed_words = p[i].n_wanted = 0;
    }
    FOR_EACH_BACKEND(k) {
        relay_sample_result alone[ROWS], together[ROWS];
        relay_device *d = test_device(k, 1);
        for (uint32_t i = 0; i < ROWS; i++)
            alone[i] = sample_one(k, d, logits + i * N, N, &p[i]);
        k->device_destroy(d);
        for (uint32_t threads = 1; threads <= 3; threads++) {
            d = test_device(k, threads);
            for (uint32_t times = 0; times < 2; times++) {
                k->sample(d, together, logits, N, &(relay_sample_input){.n_samples = ROWS, .d_params = p});
                for (uint32_t i = 0; i < ROWS; i++)
                    assert_memory_equal(&together[i], &alone[i], sizeof alone[i]);
            }
            k->device_destroy(d);
        }
    }
    free(logits);
}

static void backends_with_the_same_numerics_give_the_same_bits(void **state) {
    const relay_kernels *a, *b;
    if (!test_same_numerics(&a, &b)) skip();
    relay_device *da = test_device(a, 1), *db = test_device(b, 1);
    test_rng r = {81};
    for (uint32_t i = 0; i < 300; i++) {
        const uint32_t n = 1 + test_below(&r, 5000);
        float *logits = make_row(&r, i % N_SHAPES, n);
        relay_sample_params p = make_params(&r, n);
        p.n_counts = p.n_bias = p.n_masked = p.n_allowed_words = p.n_wanted = 0;
        relay_sample_result ra = sample_one(a, da, logits, n, &p), rb = sample_one(b, db, logits, n, &p);
        assert_memory_equal(&ra, &rb, sizeof ra);
        free(logits);
    }
    a->device_destroy(da);
    b->device_destroy(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_what_the_definition_says),
        cmocka_unit_test(what_is_drawn_from_is_the_distribution_of_the_formulas),
        cmocka_unit_test(a_vocabulary_of_usual_size_is_sampled_right),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(mirostat_holds_the_surprise_at_its_target),
        cmocka_unit_test(a_row_that_is_scored_draws_nothing),
        cmocka_unit_test(equal_logits_rank_by_id),
        cmocka_unit_test(rows_that_are_not_finite_say_so),
        cmocka_unit_test(the_smallest_parameters_leave_a_row_finite),
        cmocka_unit_test(a_draw_depends_on_seed_position_and_index_alone),
        cmocka_unit_test(backends_with_the_same_numerics_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
