// What repeats, against its definition written down by brute force.
#include "model_svc/token_repeats.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 400, VOCAB = 40 };

static bool is_breaker(const relay_dry *d, uint32_t id) {
    for (uint32_t i = 0; i < d->n_breakers; i++) {
        if (d->breakers[i] == id) return true;
    }
    return false;
}

// As the author of DRY wrote it, over the window's ids: penalties [VOCAB].
static void define_dry(const relay_dry *d, const uint32_t *ids, uint32_t n, double *penalties) {
    for (uint32_t i = 0; i < VOCAB; i++)
        penalties[i] = 0;
    if (d->window != 0 && n > d->window) {
        ids += n - d->window;
        n = d->window;
    }
    uint32_t longest[VOCAB] = {0};
    if (is_breaker(d, ids[n - 1])) return;
    for (uint32_t i = 0; i + 1 < n; i++) {
        if (ids[i] != ids[n - 1] || is_breaker(d, ids[i + 1])) continue;
        uint32_t length = 1;
        while (length <= i && ids[i - length] == ids[n - 1 - length] && !is_breaker(d, ids[i - length]))
            length++;
        if (length > longest[ids[i + 1]]) longest[ids[i + 1]] = length;
    }
    for (uint32_t i = 0; i < VOCAB; i++) {
        if (longest[i] > 0 && longest[i] >= d->allowed_length) {
            penalties[i] = (double)d->multiplier * pow(d->base, (double)longest[i] - d->allowed_length);
        }
    }
}

static void define_ngrams(uint32_t size, const uint32_t *ids, uint32_t n, bool *banned) {
    memset(banned, 0, VOCAB * sizeof *banned);
    for (uint32_t i = 0; i + size <= n; i++) {
        if (memcmp(ids + i, ids + n - (size - 1), (size - 1) * sizeof *ids) == 0) banned[ids[i + size - 1]] = true;
    }
}

static void expect_definition(relay_token_repeats *r, const relay_dry *d, const uint32_t *ids, uint32_t n) {
    relay_token_bias biases[VOCAB];
    double penalties[VOCAB];
    define_dry(d, ids, n, penalties);
    uint32_t n_biases = relay_token_repeats_dry(r, biases), n_expected = 0;
    for (uint32_t i = 0; i < VOCAB; i++)
        n_expected += penalties[i] != 0;
    assert_int_equal(n_biases, n_expected);
    for (uint32_t i = 0; i < n_biases; i++) {
        double expected = penalties[biases[i].token_id];
        assert_true(expected != 0 && fabs(biases[i].bias + expected) <= 1e-6 * expected);
        penalties[biases[i].token_id] = 0; // once
    }
    for (uint32_t size = 1; size <= 4; size++) {
        bool banned[VOCAB];
        uint32_t out[VOCAB];
        define_ngrams(size, ids, n, banned);
        uint32_t n_out = relay_token_repeats_ngrams(r, size, out);
        for (uint32_t i = 0; i < n_out; i++) {
            assert_true(banned[out[i]]);
            banned[out[i]] = false;
        }
        for (uint32_t i = 0; i < VOCAB; i++)
            assert_false(banned[i]);
    }
}

// Few different ids, so that there is much to repeat; now and then a stretch copied from before.
static void make_ids(uint32_t *ids, uint32_t n, uint32_t vocab) {
    for (uint32_t i = 0; i < n;) {
        if (i > 20 && rand() % 4 == 0) {
            uint32_t from = (uint32_t)rand() % (i - 10), length = 1 + (uint32_t)rand() % 9;
            for (uint32_t k = 0; k < length && i < n; k++)
                ids[i++] = ids[from + k];
        } else {
            ids[i++] = (uint32_t)rand() % vocab;
        }
    }
}

static void repeats_are_what_the_definition_says_at_every_length(void **state) {
    static const uint32_t breakers[] = {1, 5, 17}, vocabs[] = {1, 2, 3, 10, VOCAB}, windows[] = {0, 1, 7, 100, 1000};
    srand(7);
    relay_token_repeats r;
    relay_token_repeats_init(&r, N);
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t ids[N], n_begin = 1 + (uint32_t)rand() % 200;
        relay_dry d = {.multiplier = 0.8f,
                       .base = 1.1f,
                       .allowed_length = (uint32_t)rand() % 5,
                       .window = windows[rand() % 5],
                       .breakers = breakers,
                       .n_breakers = (uint32_t)rand() % 4};
        make_ids(ids, N, vocabs[rand() % 5]);
        relay_token_repeats_begin(&r, &d, ids, n_begin);
        expect_definition(&r, &d, ids, n_begin);
        for (uint32_t n = n_begin; n < n_begin + 100; n++) {
            relay_token_repeats_append(&r, ids[n]);
            expect_definition(&r, &d, ids, n + 1);
        }
        relay_token_repeats_clear(&r);
        for (uint32_t i = 0; i < 1U << r.index_bits; i++)
            assert_int_equal(r.index[i], 0);
    }
    relay_token_repeats_fini(&r);
}

static void a_penalty_past_what_float32_holds_stays_at_its_end(void **state) {
    uint32_t ids[N] = {0};
    const relay_dry d = {.multiplier = 1, .base = 1e6f, .allowed_length = 1};
    relay_token_repeats r;
    relay_token_bias bias;
    relay_token_repeats_init(&r, N);
    relay_token_repeats_begin(&r, &d, ids, N);
    assert_int_equal(relay_token_repeats_dry(&r, &bias), 1);
    assert_true(isfinite(bias.bias) && bias.bias < -3e38f);
    relay_token_repeats_fini(&r);
}

// A prompt of one id over and over is the worst there is.
static void a_long_prompt_takes_time_that_grows_with_its_length_alone(void **state) {
    enum { LONG = 1 << 20 };
    uint32_t *ids = calloc(LONG, sizeof *ids);
    const relay_dry d = {.multiplier = 1, .base = 1.5f, .allowed_length = 2};
    relay_token_repeats r;
    relay_token_repeats_init(&r, LONG);
    relay_token_repeats_begin(&r, &d, ids, LONG); // its square would take minutes
    assert_int_equal(r.agrees[LONG - 2], LONG - 1);
    assert_int_equal(r.agrees[0], 1);
    relay_token_repeats_fini(&r);
    free(ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_are_what_the_definition_says_at_every_length),
        cmocka_unit_test(a_penalty_past_what_float32_holds_stays_at_its_end),
        cmocka_unit_test(a_long_prompt_takes_time_that_grows_with_its_length_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
