// Operations on rows of values, on every backend.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/fixture.h"

static const uint32_t widths[] = {1, 2, 15, 16, 17, 31, 33, 127, 576, 1536};
enum { N_WIDTHS = sizeof widths / sizeof *widths, MAX_ROWS = 70, MAX_WIDTH = 1536 };

typedef enum op {
    RMS_NORM,
    SILU_MUL,
    ADD,
    GATHER,
    ROPE_ADJACENT,
    ROPE_HALVES,
    N_OPS,
} op;

static const char *const op_names[] = {"rms_norm", "silu_mul", "add", "gather_rows", "rope adjacent", "rope halves"};

typedef struct inputs {
    float *x, *y, *cos_sin;
    uint32_t position[MAX_ROWS];
} inputs;

static inputs inputs_make(void) {
    test_rng r = {5};
    inputs in = {.x = test_normals(&r, MAX_ROWS * MAX_WIDTH, 3), .y = test_normals(&r, MAX_ROWS * MAX_WIDTH, 1)};
    in.cos_sin = relay_calloc(1000 * MAX_WIDTH, sizeof(float));
    for (uint32_t i = 0; i < 1000 * MAX_WIDTH; i += 2) {
        double angle = test_uniform(&r) * 100;
        in.cos_sin[i] = (float)cos(angle);
        in.cos_sin[i + 1] = (float)sin(angle);
    }
    for (uint32_t i = 0; i < MAX_ROWS; i++)
        in.position[i] = test_below(&r, 1000);
    return in;
}

static void inputs_free(inputs *in) {
    free(in->x);
    free(in->y);
    free(in->cos_sin);
}

// Applies an operation to rows [first, first + n); false where it has no such width. The result is in `out`.
static bool apply(const relay_kernels *k, relay_device *d, op o, const inputs *in, uint32_t first, uint32_t n,
                  uint32_t width, float *out) {
    const float *x = in->x + (uint64_t)first * width, *y = in->y + (uint64_t)first * width;
    const uint64_t bytes = (uint64_t)n * width * sizeof *out;
    uint32_t index[MAX_ROWS];
    switch (o) {
    case RMS_NORM:
        k->rms_norm(d, out, x, in->y, n, width, 1e-5f);
        return true;
    case SILU_MUL:
        k->silu_mul(d, out, x, y, n, width);
        return true;
    case ADD:
        memcpy(out, x, bytes);
        k->add(d, out, y, n, width);
        return true;
    case GATHER:
        for (uint32_t i = 0; i < n; i++)
            index[i] = (first + i) * 7 % MAX_ROWS;
        k->gather_rows(d, out, in->x, index, n, width);
        return true;
    default:
        break;
    }
    // Two heads; the last pair of a head with more than one is left as it is.
    if (width % 4 != 0) return false;
    uint32_t n_rot = width / 2 > 2 ? width / 2 - 2 : 2;
    n_rot -= n_rot % 2;
    memcpy(out, x, bytes);
    k->rope(d, out, in->position + first, n, 2, width / 2, n_rot,
            o == ROPE_ADJACENT ? RELAY_ROPE_ADJACENT : RELAY_ROPE_HALVES, in->cos_sin);
    return true;
}

static void results_are_near_the_reference_for_odd_widths(void **state) {
    inputs in = inputs_make();
    float *expected = relay_calloc(MAX_ROWS * MAX_WIDTH, sizeof *expected);
    float *got = relay_calloc(MAX_ROWS * MAX_WIDTH, sizeof *got);
    relay_device *ref = test_device(&relay_kernels_ref, 1);
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        for (op o = 0; o < N_OPS; o++) {
            for (uint32_t w = 0; w < N_WIDTHS; w++) {
                if (!apply(&relay_kernels_ref, ref, o, &in, 0, 5, widths[w], expected)) continue;
                got[5 * widths[w]] = 42;
                apply(k, d, o, &in, 0, 5, widths[w], got);
                for (uint32_t i = 0; i < 5 * widths[w]; i++) {
                    if (!(fabsf(got[i] - expected[i]) <= 2e-6f * fmaxf(1, fabsf(expected[i])))) {
                        fail_msg("%s %s width %u value %u: %.9g, not %.9g", k->name, op_names[o], widths[w], i, got[i],
                                 expected[i]);
                    }
                }
                assert_true(got[5 * widths[w]] == 42); // nothing is written past the end
            }
        }
        k->device_destroy(d);
    }
    relay_kernels_ref.device_destroy(ref);
    free(expected);
    free(got);
    inputs_free(&in);
}

static void a_row_has_the_same_bits_in_any_company_and_on_any_number_of_threads(void **state) {
    static const uint32_t counts[] = {1, 2, 7, 64};
    inputs in = inputs_make();
    float *expected = relay_calloc(MAX_ROWS * MAX_WIDTH, sizeof *expected);
    float *got = relay_calloc(MAX_ROWS * MAX_WIDTH, sizeof *got);
    FOR_EACH_BACKEND(k) {
        relay_device *all = test_device(k, 1);
        for (uint32_t threads = 1; threads <= 3; threads++) {
            relay_device *d = test_device(k, threads);
            for (op o = 0; o < N_OPS; o++) {
                for (uint32_t w = 0; w < N_WIDTHS; w++) {
                    if (!apply(k, all, o, &in, 0, MAX_ROWS, widths[w], expected)) continue;
                    for (uint32_t c = 0; c < 4; c++) {
                        for (uint32_t first = 0; first + counts[c] <= MAX_ROWS; first += 5) {
                            apply(k, d, o, &in, first, counts[c], widths[w], got);
                            assert_same_bits(got, expected + (uint64_t)first * widths[w], counts[c] * widths[w],
                                             op_names[o]);
                        }
                    }
                }
            }
            k->device_destroy(d);
        }
        k->device_destroy(all);
    }
    free(expected);
    free(got);
    inputs_free(&in);
}

static void backends_with_the_same_numerics_give_the_same_bits(void **state) {
    const relay_kernels *a, *b;
    if (!test_same_numerics(&a, &b)) skip();
    inputs in = inputs_make();
    float *xa = relay_calloc(MAX_ROWS * MAX_WIDTH, sizeof *xa), *xb = relay_calloc(MAX_ROWS * MAX_WIDTH, sizeof *xb);
    relay_device *da = test_device(a, 1), *db = test_device(b, 1);
    for (op o = 0; o < N_OPS; o++) {
        for (uint32_t w = 0; w < N_WIDTHS; w++) {
            if (!apply(a, da, o, &in, 0, 9, widths[w], xa)) continue;
            apply(b, db, o, &in, 0, 9, widths[w], xb);
            assert_same_bits(xa, xb, 9 * widths[w], op_names[o]);
        }
    }
    a->device_destroy(da);
    b->device_destroy(db);
    free(xa);
    free(xb);
    inputs_free(&in);
}

static void silu_holds_at_the_ends(void **state) {
    static const float gate[] = {-INFINITY, -1e30f, -200,   -104, -88.8f, -88,   -87.4f, -20,   -1e-30f,
                                 -0.0f,     0,      1e-30f, 20,   88,     88.8f, 104,    1e30f, INFINITY};
    enum { N = sizeof gate / sizeof *gate };
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        float one[N], got[N];
        for (uint32_t i = 0; i < N; i++)
            one[i] = 1;
        k->silu_mul(d, got, gate, one, 1, N);
        for (uint32_t i = 1; i < N; i++) {
            double expected = gate[i] / (1 + exp(-(double)gate[i]));
            assert_true(got[i] == expected || fabs(got[i] - expected) <= 1e-6 * fabs(expected) + 1e-36);
        }
        float nan = NAN;
        k->silu_mul(d, got, &nan, one, 1, 1);
        assert_true(isnan(got[0]));
        k->device_destroy(d);
    }
}

static void operations_may_work_in_place(void **state) {
    inputs in = inputs_make();
    float out[3 * 33], same[3 * 33];
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        memcpy(same, in.x, sizeof same);
        k->rms_norm(d, out, in.x, in.y, 3, 33, 1e-5f);
        k->rms_norm(d, same, same, in.y, 3, 33, 1e-5f);
        assert_same_bits(same, out, 3 * 33, "rms_norm");
        memcpy(same, in.x, sizeof same);
        k->silu_mul(d, out, in.x, in.y, 3, 33);
        k->silu_mul(d, same, same, in.y, 3, 33);
        assert_same_bits(same, out, 3 * 33, "silu_mul");
        k->device_destroy(d);
    }
    inputs_free(&in);
}

static void memory_is_zeroed_and_copies_arrive(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        uint8_t *p = k->alloc(d, 10000);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (uint32_t i = 0; i < 10000; i++)
            assert_int_equal(p[i], 0);
        k->upload(d, p + 100, "text", 5);
        char back[5];
        k->download(d, back, p + 100, 5);
        assert_string_equal(back, "text");
        k->wait(d);
        k->free(d, p, 10000);
        k->device_destroy(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_near_the_reference_for_odd_widths),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company_and_on_any_number_of_threads),
        cmocka_unit_test(backends_with_the_same_numerics_give_the_same_bits),
        cmocka_unit_test(silu_holds_at_the_ends),
        cmocka_unit_test(operations_may_work_in_place),
        cmocka_unit_test(memory_is_zeroed_and_copies_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
