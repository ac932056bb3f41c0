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

// ---- The definition

typedef struct definition {
    uint32_t n;
    float *processed;    // logits after penalties and masks
    uint32_t *order;     // ids, most likely first, by processed logits
    uint32_t *raw_order; // the same by raw logits
    uint32_t n_left;     // of the order, after truncation
    double *share;       // [n] by id, of what is drawn from; sums to 1
    double raw_log_sum;  // log of the sum of exp(raw logit)
    double log_total;    // of what is drawn from: log of the sum of weights, the largest being 1
    double temperature;  // 1 where it is greedy
} definition;

static const float *sort_logits;

static int by_logit(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    if (sort_logits[x] != sort_logits[y]) return sort_logits[x] > sort_logits[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

static uint32_t *sorted_ids(const float *logits, uint32_t n) {
    uint32_t *ids = relay_calloc(n, sizeof *ids);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i;
    sort_logits = logits;
    qsort(ids, n, sizeof *ids, by_logit);
    return ids;
}

static definition define(const float *logits, uint32_t n, const relay_sample_input *in) {
    const relay_sample_params *p = in->d_params;
    definition f = {.n = n, .raw_order = sorted_ids(logits, n)};
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - logits[f.raw_order[0]]);
    f.raw_log_sum = log(sum) + logits[f.raw_order[0]];
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
    f.order = sorted_ids(f.processed, n);
    f.n_left = n;
    while (f.n_left > 0 && f.processed[f.order[f.n_left - 1]] == -INFINITY)
        f.n_left--;
    f.share = relay_calloc(n, sizeof *f.share);
    f.temperature = p->temperature == 0 ? 1 : p->temperature;
    if (f.n_left == 0) return f;
    if (p->temperature == 0) {
        f.n_left = 1;
        f.share[f.order[0]] = 1;
        return f;
    }
    if (p->top_k > 0 && p->top_k < f.n_left) f.n_left = p->top_k;
    double *weight = relay_calloc(n, sizeof *weight), total = 0, kept = 0;
    for (uint32_t i = 0; i < f.n_left; i++) {
        weight[i] = exp(((double)f.processed[f.order[i]] - f.processed[f.order[0]]) / p->temperature);
        total += weight[i];
    }
    for (uint32_t i = 0; i < f.n_left && p->top_p < 1; i++) {
        kept += weight[i];
        if (kept >= p->top_p * total) f.n_left = i + 1;
    }
    while (weight[f.n_left - 1] < p->min_p)
        f.n_left--;
    total = 0;
    for (uint32_t i = 0; i < f.n_left; i++)
        total += weight[i];
    for (uint32_t i = 0; i < f.n_left; i++)
        f.share[f.order[i]] = weight[i] / total;
    f.log_total = log(total);
    free(weight);
    return f;
}

static void definition_free(definition *f) {
    free(f->processed);
    free(f->order);
    free(f->raw_order);
    free(f->share);
}

static uint32_t place_in(const uint32_t *order, uint32_t id) {
    uint32_t i = 0;
    while (order[i] != id)
        i++;
    return i;
}

static void assert_logprob(float got, double expected) {
    if (isfinite(expected)) expected = fmax(expected, -FLT_MAX); // that of a finite logit is told as finite
    if (got == (float)expected) return;
    if (!(fabs(got - expected) <= 2e-6 * fmax(1, fabs(expected)))) fail_msg("logprob %.9g, not %.9g", got, expected);
}

// The result is what the definition says for this draw.
static void assert_defined(const relay_sample_result *r, const definition *f, const float *logits,
                           const relay_sample_params *p) {
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
    if (p->logprob_mode == RELAY_LOGPROB_NONE) {
        assert_true(r->logprob == 0 && r->rank == 0 && r->n_top == 0);
        return;
    }
    bool is_raw = p->logprob_mode == RELAY_LOGPROB_RAW;
    // What is left is seen in the sum that its logprobs are relative to, and in their number where that is small.
    const uint32_t *order = is_raw ? f->raw_order : f->order;
    uint32_t n_top = is_raw ? f->n : f->n_left;
    if (n_top > p->n_top) n_top = p->n_top;
    assert_int_equal(r->n_top, n_top);
    assert_int_equal(r->rank, p->n_top == 0 ? 0 : place_in(order, r->token_id) + 1);
    for (uint32_t i = 0; i <= n_top; i++) {
        uint32_t id = i < n_top ? order[i] : r->token_id;
        float got = i < n_top ? r->top_logprobs[i] : r->logprob;
        if (i < n_top) assert_int_equal(r->top_ids[i], id);
        double less = ((double)f->processed[id] - f->processed[f->order[0]]) / f->temperature;
        assert_logprob(got, is_raw ? logits[id] - f->raw_log_sum : less - f->log_total);
    }
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
    if (test_below(r, 3) == 0) p.n_bias = test_below(r, 40);
    if (test_below(r, 3) == 0) p.n_allowed_words = (n + 31) / 32;
    return p;
}

static void results_are_what_the_definition_says(void **state) {
    static const uint32_t vocabs[] = {1, 2, 15, 16, 17, 100, 1000, 1024, 1025, 3001, 20000};
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        test_rng r = {77};
        for (uint32_t i = 0; i < 700; i++) {
            const uint32_t n = vocabs[test_below(&r, i % 10 == 0 ? 11 : 9)];
            float *logits = make_row(&r, test_below(&r, N_SHAPES), n);
            relay_sample_params p = make_params(&r, n);
            // Unique ids for counts and masks, from two ends of a stride through the vocabulary.
            relay_token_count counts[53];
            uint32_t masked[13], allowed[5 + 20000 / 32];
            relay_token_bias biases[43];
            p.counts_begin = p.masked_begin = p.bias_begin = 3;
            p.allowed_begin = 4;
            for (uint32_t j = 0; j < p.n_counts; j++) {
                counts[3 + j] = (relay_token_count){(j * 7 + i) % n, 1 + test_below(&r, 2), test_below(&r, 4)};
                if (n % 7 == 0) counts[3 + j].token_id = (j + i) % n;
            }
            for (uint32_t j = 0; j < p.n_masked; j++)
                masked[3 + j] = (j + i / 2) % n;
            for (uint32_t j = 0; j < p.n_bias; j++)
                biases[3 + j] = (relay_token_bias){test_below(&r, n), (float)test_uniform(&r) * 200 - 100};
            for (uint32_t j = 0; j < p.n_allowed_words; j++)
                allowed[4 + j] = j % 5 == 4 ? 0 : j % 5 == 3 ? UINT32_MAX : (uint32_t)test_random(&r);
            relay_sample_input in = {1, &p, counts, biases, masked, allowed, NULL};
            definition f = define(logits, n, &in);
            if (f.n_left == 0) {
                relay_sample_result none = {.is_finite = true};
                k->sample(d, &none, logits, n, &in);
                assert_false(none.is_finite);
                definition_free(&f);
                free(logits);
                continue;
            }
            float *copy = relay_calloc(n, sizeof *copy);
            memcpy(copy, logits, n * sizeof *copy);
            relay_sample_result result;
            memset(&result, 0xFF, sizeof result);
            k->sample(d, &result, logits, n, &in);
            assert_memory_equal(logits, copy, n * sizeof *copy); // it is read only
            assert_defined(&result, &f, logits, &p);
            definition_free(&f);
            free(copy);
            free(logits);
        }
        k->device_destroy(d);
    }
}

static void a_vocabulary_of_usual_size_is_sampled_right(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        test_rng r = {78};
        for (uint32_t i = 0; i < 12; i++) {
            float *logits = make_row(&r, i % N_SHAPES, 49152);
            relay_sample_params p = make_params(&r, 49152);
            p.n_counts = p.n_bias = p.n_masked = p.n_allowed_words = 0;
            p.logprob_mode = RELAY_LOGPROB_PROCESSED;
            definition f = define(logits, 49152, &(relay_sample_input){.n_samples = 1, .d_params = &p});
            relay_sample_result result = sample_one(k, d, logits, 49152, &p);
            assert_defined(&result, &f, logits, &p);
            definition_free(&f);
            free(logits);
        }
        k->device_destroy(d);
    }
}

static void draws_follow_the_distribution(void **state) {
    enum { N = 200, DRAWS = 20000 };
    test_rng r = {79};
    float *logits = make_row(&r, NORMAL, N);
    relay_sample_params p = plain;
    p.temperature = 0.8f;
    p.top_k = 40;
    p.top_p = 0.97f;
    p.min_p = 0.01f;
    definition f = define(logits, N, &(relay_sample_input){.n_samples = 1, .d_params = &p});
    assert_true(f.n_left > 15 && f.n_left < 40);
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        uint32_t count[N] = {0};
        for (uint32_t i = 0; i < DRAWS; i++) {
            p.seed = i / 100;
            p.position = i % 100;
            count[sample_one(k, d, logits, N, &p).token_id]++;
        }
        double chi2 = 0;
        for (uint32_t i = 0; i < N; i++) {
            double expected = f.share[i] * DRAWS;
            if (f.share[i] == 0)
                assert_int_equal(count[i], 0);
            else
                chi2 += (count[i] - expected) * (count[i] - expected) / expected;
        }
        assert_true(chi2 < f.n_left - 1 + 4 * sqrt(2.0 * (f.n_left - 1))); // four standard deviations
        k->device_destroy(d);
    }
    definition_free(&f);
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
        p[i].n_counts = p[i].n_bias = p[i].n_masked = p[i].n_allowed_words = 0;
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
        p.n_counts = p.n_bias = p.n_masked = p.n_allowed_words = 0;
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
        cmocka_unit_test(a_vocabulary_of_usual_size_is_sampled_right),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(equal_logits_rank_by_id),
        cmocka_unit_test(rows_that_are_not_finite_say_so),
        cmocka_unit_test(the_smallest_parameters_leave_a_row_finite),
        cmocka_unit_test(a_draw_depends_on_seed_position_and_index_alone),
        cmocka_unit_test(backends_with_the_same_numerics_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
