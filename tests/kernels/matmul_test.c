// Weights and products with them, on every backend.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/gguf.h"
#include "kernels/dequant.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/fixture.h"

static const uint32_t types[] = {RELAY_GGML_F32,  RELAY_GGML_F16,  RELAY_GGML_BF16, RELAY_GGML_Q4_0, RELAY_GGML_Q4_1,
                                 RELAY_GGML_Q5_0, RELAY_GGML_Q8_0, RELAY_GGML_Q4_K, RELAY_GGML_Q6_K};
enum { N_TYPES = sizeof types / sizeof *types, MAX_ROWS = 70 };

static bool is_float(uint32_t type) {
    return type == RELAY_GGML_F32 || type == RELAY_GGML_F16 || type == RELAY_GGML_BF16;
}

// How far a product may be from the exact one, as a part of |x| |w|. Float weights: rounding of float32 sums.
// Quantized ones: activations rounded by at most 1/65024 of the largest of 32, most of them by less and in both
// directions.
static double tolerance(uint32_t type) {
    return is_float(type) ? 1e-6 : 5e-5;
}

typedef struct problem {
    uint32_t type, n_out, n_in, n_rows;
    uint8_t *weights;
    float *x, *bias;
} problem;

static problem problem_make(uint32_t type, uint32_t n_out, uint32_t n_in, uint32_t n_rows) {
    test_rng r = {type * 1000003ull + n_out * 1009 + n_in * 31 + n_rows};
    problem p = {type, n_out, n_in, n_rows, NULL, NULL, NULL};
    p.weights = test_weight_rows(&r, type, n_out, n_in);
    p.x = test_normals(&r, (uint64_t)n_rows * n_in, 1);
    // Values of very different size, as hidden states have them.
    for (uint32_t i = 0; i < n_rows; i++)
        p.x[(uint64_t)i * n_in + test_below(&r, n_in)] *= 100;
    p.bias = test_normals(&r, n_out, 0.1f);
    return p;
}

static void problem_free(problem *p) {
    free(p->weights);
    free(p->x);
    free(p->bias);
}

static float *solve(const relay_kernels *k, relay_device *d, const problem *p, const float *bias) {
    relay_weight *w;
    relay_err e;
    if (k->weight_create(d, &w, p->type, p->n_out, p->n_in, p->weights, &e) != RELAY_OK) fail_msg("%s", e.message);
    float *out = relay_calloc((uint64_t)p->n_rows * p->n_out, sizeof *out);
    relay_matmul_job job = {w, bias, out};
    k->matmul(d, p->x, p->n_rows, &job, 1);
    k->weight_destroy(d, w);
    return out;
}

static double norm(const float *x, uint32_t n) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

static void assert_near_reference(const relay_kernels *k, relay_device *d, const problem *p, const float *bias) {
    relay_device *ref = test_device(&relay_kernels_ref, 1);
    float *expected = solve(&relay_kernels_ref, ref, p, bias), *got = solve(k, d, p, bias);
    float *row = relay_calloc(p->n_in, sizeof *row);
    uint64_t row_bytes;
    assert_int_equal(relay_dequant_row_bytes(&row_bytes, p->type, p->n_in, NULL), RELAY_OK);
    for (uint32_t o = 0; o < p->n_out; o++) {
        relay_dequant_row(p->type, p->weights + o * row_bytes, row, p->n_in);
        for (uint32_t i = 0; i < p->n_rows; i++) {
            double size = norm(p->x + (uint64_t)i * p->n_in, p->n_in) * norm(row, p->n_in) + fabsf(bias ? bias[o] : 0);
            double difference = fabs((double)got[i * p->n_out + o] - expected[i * p->n_out + o]);
            if (!(difference <= tolerance(p->type) * size)) {
                fail_msg("%s type %u [%u, %u] row %u of %u, output %u: %.9g, not %.9g", k->name, p->type, p->n_out,
                         p->n_in, i, p->n_rows, o, got[i * p->n_out + o], expected[i * p->n_out + o]);
            }
        }
    }
    free(row);
    free(expected);
    free(got);
    relay_kernels_ref.device_destroy(ref);
}

static void products_are_near_the_reference_for_odd_sizes(void **state) {
    static const uint32_t outs[] = {1, 15, 16, 17, 31, 33, 127};
    static const uint32_t float_ins[] = {1, 2, 15, 33, 127}, block_ins[] = {32, 64, 96, 256, 576}, k_ins[] = {256, 768};
    static const uint32_t rows[] = {1, 2, 3, 7, 8, 13};
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        for (uint32_t t = 0; t < N_TYPES; t++) {
            bool is_k = types[t] == RELAY_GGML_Q4_K || types[t] == RELAY_GGML_Q6_K;
            const uint32_t *ins = is_float(types[t]) ? float_ins : is_k ? k_ins : block_ins;
            for (uint32_t i = 0; i < (is_k ? 2 : 5); i++) {
                for (uint32_t o = 0; o < sizeof outs / sizeof *outs; o++) {
                    problem p = problem_make(types[t], outs[o], ins[i], rows[(i + o + t) % 6]);
                    assert_near_reference(k, d, &p, (i + o) % 2 == 0 ? NULL : p.bias);
                    problem_free(&p);
                }
            }
        }
        k->device_destroy(d);
    }
}

static void a_row_has_the_same_bits_in_any_company_and_on_any_number_of_threads(void **state) {
    static const uint32_t counts[] = {1, 2, 3, 7, 64, 69};
    FOR_EACH_BACKEND(k) {
        relay_device *all = test_device(k, 1);
        for (uint32_t t = 0; t < N_TYPES; t++) {
            problem p = problem_make(types[t], 70, 256, MAX_ROWS);
            float *expected = solve(k, all, &p, p.bias);
            for (uint32_t threads = 1; threads <= 3; threads++) {
                relay_device *d = test_device(k, threads);
                for (uint32_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    for (uint32_t first = 0; first + counts[c] <= MAX_ROWS; first += counts[c] < 8 ? 23 : 1) {
                        problem part = p;
                        part.x = p.x + (uint64_t)first * p.n_in;
                        part.n_rows = counts[c];
                        float *got = solve(k, d, &part, p.bias);
                        assert_same_bits(got, expected + (uint64_t)first * p.n_out, (uint64_t)counts[c] * p.n_out,
                                         k->name);
                        free(got);
                    }
                }
                k->device_destroy(d);
            }
            free(expected);
            problem_free(&p);
        }
        k->device_destroy(all);
    }
}

static void backends_with_the_same_numerics_give_the_same_bits(void **state) {
    const relay_kernels *a, *b;
    if (!test_same_numerics(&a, &b)) skip();
    relay_device *da = test_device(a, 1), *db = test_device(b, 1);
    for (uint32_t t = 0; t < N_TYPES; t++) {
        problem p = problem_make(types[t], 100, 512, 11);
        float *xa = solve(a, da, &p, p.bias), *xb = solve(b, db, &p, p.bias);
        assert_same_bits(xa, xb, (uint64_t)p.n_rows * p.n_out, "one numerics");
        free(xa);
        free(xb);
        problem_free(&p);
    }
    a->device_destroy(da);
    b->device_destroy(db);
}

static void jobs_that_share_an_input_do_not_mix(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        problem p[3] = {problem_make(RELAY_GGML_Q5_0, 33, 96, 5), problem_make(RELAY_GGML_F16, 7, 96, 5),
                        problem_make(RELAY_GGML_Q8_0, 64, 96, 5)};
        relay_weight *w[3];
        float *out[3], *alone[3];
        relay_matmul_job jobs[3];
        for (uint32_t i = 0; i < 3; i++) {
            if (i > 0) memcpy(p[i].x, p[0].x, 5 * 96 * sizeof(float));
            alone[i] = solve(k, d, &p[i], i == 1 ? NULL : p[i].bias);
            out[i] = relay_calloc((uint64_t)p[i].n_rows * p[i].n_out, sizeof(float));
            assert_int_equal(k->weight_create(d, &w[i], p[i].type, p[i].n_out, 96, p[i].weights, NULL), RELAY_OK);
            jobs[i] = (relay_matmul_job){w[i], i == 1 ? NULL : p[i].bias, out[i]};
        }
        k->matmul(d, p[0].x, 5, jobs, 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_same_bits(out[i], alone[i], (uint64_t)5 * p[i].n_out, k->name);
            k->weight_destroy(d, w[i]);
            free(out[i]);
            free(alone[i]);
            problem_free(&p[i]);
        }
        k->device_destroy(d);
    }
}

static void a_row_that_is_not_finite_says_so_and_spoils_no_other(void **state) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        for (uint32_t t = 0; t < N_TYPES; t++) {
            problem p = problem_make(types[t], 40, 256, 4);
            float *expected = solve(k, d, &p, NULL);
            for (uint32_t i = 0; i < 3; i++) {
                float saved = p.x[2 * 256 + 77 + i];
                p.x[2 * 256 + 77 + i] = bad[i];
                float *got = solve(k, d, &p, NULL);
                p.x[2 * 256 + 77 + i] = saved;
                assert_same_bits(got, expected, 2 * 40, k->name);
                assert_same_bits(got + 3 * 40, expected + 3 * 40, 40, k->name);
                for (uint32_t o = 0; o < 40; o++)
                    assert_false(isfinite(got[2 * 40 + o]));
                free(got);
            }
            free(expected);
            problem_free(&p);
        }
        k->device_destroy(d);
    }
}

static void zeros_give_the_bias(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        for (uint32_t t = 0; t < N_TYPES; t++) {
            problem p = problem_make(types[t], 17, 256, 1);
            memset(p.x, 0, 256 * sizeof *p.x);
            float *got = solve(k, d, &p, p.bias);
            assert_same_bits(got, p.bias, 17, k->name);
            free(got);
            problem_free(&p);
        }
        k->device_destroy(d);
    }
}

static void a_row_read_back_is_what_the_file_means(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        for (uint32_t t = 0; t < N_TYPES; t++) {
            const uint32_t n_in = is_float(types[t]) ? 37 : 512, n_out = 35;
            problem p = problem_make(types[t], n_out, n_in, 1);
            relay_weight *w;
            assert_int_equal(k->weight_create(d, &w, types[t], n_out, n_in, p.weights, NULL), RELAY_OK);
            uint32_t ids[35];
            for (uint32_t o = 0; o < n_out; o++)
                ids[o] = (o * 11 + 5) % n_out;
            float *got = relay_calloc((uint64_t)n_out * n_in, sizeof *got), *row = relay_calloc(n_in, sizeof *row);
            k->embed(d, got, w, ids, n_out);
            uint64_t row_bytes;
            assert_int_equal(relay_dequant_row_bytes(&row_bytes, types[t], n_in, NULL), RELAY_OK);
            for (uint32_t o = 0; o < n_out; o++) {
                relay_dequant_row(types[t], p.weights + ids[o] * row_bytes, row, n_in);
                assert_same_bits(got + (uint64_t)o * n_in, row, n_in, k->name);
            }
            free(got);
            free(row);
            k->weight_destroy(d, w);
            problem_free(&p);
        }
        k->device_destroy(d);
    }
}

static void packed_weights_take_little_more_than_the_file(void **state) {
    FOR_EACH_BACKEND(k) {
        if (k == &relay_kernels_ref) continue;
        relay_device *d = test_device(k, 1);
        for (uint32_t t = 0; t < N_TYPES; t++) {
            problem p = problem_make(types[t], 64, 1024, 1);
            relay_weight *w;
            assert_int_equal(k->weight_create(d, &w, types[t], 64, 1024, p.weights, NULL), RELAY_OK);
            uint64_t row_bytes;
            assert_int_equal(relay_dequant_row_bytes(&row_bytes, types[t], 1024, NULL), RELAY_OK);
            // Q4_K's 6-bit scales are kept in bytes; all others are the file's size.
            double most = types[t] == RELAY_GGML_Q4_K ? 1.03 : 1;
            assert_true((double)k->weight_bytes(w) <= most * 64 * (double)row_bytes);
            k->weight_destroy(d, w);
            problem_free(&p);
        }
        k->device_destroy(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_near_the_reference_for_odd_sizes),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company_and_on_any_number_of_threads),
        cmocka_unit_test(backends_with_the_same_numerics_give_the_same_bits),
        cmocka_unit_test(jobs_that_share_an_input_do_not_mix),
        cmocka_unit_test(a_row_that_is_not_finite_says_so_and_spoils_no_other),
        cmocka_unit_test(zeros_give_the_bias),
        cmocka_unit_test(a_row_read_back_is_what_the_file_means),
        cmocka_unit_test(packed_weights_take_little_more_than_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
