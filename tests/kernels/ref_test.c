// The reference backend against answers known by hand: every other backend is tested against it.
#include "kernels/ref/ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/gguf.h"

static const relay_kernels *const k = &relay_kernels_ref;
static relay_device *d;

static int open_device(void **state) {
    relay_device_opts opts = {.max_rows = 8, .max_width = 64, .max_context = 64, .max_vocab = 64, .max_samples = 8};
    return k->device_create(&d, &opts, NULL);
}

static int close_device(void **state) {
    k->device_destroy(d);
    return 0;
}

static void assert_near(float got, double expected) {
    if (!(fabs(got - expected) <= 1e-6 * fmax(1, fabs(expected)))) fail_msg("%.9g, not %.9g", got, expected);
}

static void matmul_multiplies_rows_by_weights_and_adds_the_bias(void **state) {
    const float rows[] = {1, 2, 3, 4, 5, 6}; // [2, 3]
    relay_weight *w;
    assert_int_equal(k->weight_create(d, &w, RELAY_GGML_F32, 2, 3, rows, NULL), RELAY_OK);
    assert_int_equal(k->weight_bytes(w), sizeof rows);
    const float x[] = {1, 0, -1, 1, 1, 1}, bias[] = {0.5f, -0.5f};
    float plain[4], biased[4];
    relay_matmul_job jobs[] = {{w, NULL, plain}, {w, bias, biased}};
    k->matmul(d, x, 2, jobs, 2);
    const float expected[] = {-2, -2, 6, 15}, expected_biased[] = {-1.5f, -2.5f, 6.5f, 14.5f};
    assert_memory_equal(plain, expected, sizeof expected);
    assert_memory_equal(biased, expected_biased, sizeof expected);
    float embedded[3];
    k->embed(d, embedded, w, (const uint32_t[]){1}, 1);
    assert_memory_equal(embedded, rows + 3, sizeof embedded);
    k->weight_destroy(d, w);
}

static void rms_norm_divides_by_the_root_mean_square(void **state) {
    float x[] = {3, 4, 0, 0}; // mean of squares 25 / 4
    const float gain[] = {1, 2, 1, 1};
    k->rms_norm(d, x, x, gain, 2, 2, 0);
    assert_near(x[0], 3 / sqrt(12.5));
    assert_near(x[1], 2 * 4 / sqrt(12.5));
    k->rms_norm(d, x, (const float[]){3, 4}, gain, 1, 2, 12.5f);
    assert_near(x[0], 0.6);
    assert_near(x[1], 1.6);
}

static void rope_turns_pairs_of_either_style_and_leaves_the_rest(void **state) {
    // Position 0 does nothing, position 1 turns the first pair by 90 degrees and the second by 180.
    const float cos_sin[] = {1, 0, 1, 0, 0, 1, -1, 0};
    const uint32_t position[] = {1, 0};
    float adjacent[] = {1, 2, 3, 4, 9, 1, 2, 3, 4, 9};
    k->rope(d, adjacent, position, 2, 1, 5, 4, RELAY_ROPE_ADJACENT, cos_sin);
    const float expected_adjacent[] = {-2, 1, -3, -4, 9, 1, 2, 3, 4, 9};
    assert_memory_equal(adjacent, expected_adjacent, sizeof adjacent);
    float halves[] = {1, 2, 3, 4, 9, 1, 2, 3, 4, 9};
    k->rope(d, halves, position, 1, 2, 5, 4, RELAY_ROPE_HALVES, cos_sin);
    const float expected_halves[] = {-3, -2, 1, -4, 9, -3, -2, 1, -4, 9};
    assert_memory_equal(halves, expected_halves, sizeof halves);
}

static void silu_mul_add_and_gather_do_what_they_say(void **state) {
    float x[] = {0, 1, -1, 200, -200};
    k->silu_mul(d, x, x, (const float[]){1, 2, 1, 1, 1}, 1, 5);
    assert_near(x[0], 0);
    assert_near(x[1], 2 / (1 + exp(-1)));
    assert_near(x[2], -1 / (1 + exp(1)));
    assert_near(x[3], 200);
    assert_near(x[4], 0);
    float y[] = {1, 2};
    k->add(d, y, (const float[]){10, 20}, 1, 2);
    assert_true(y[0] == 11 && y[1] == 22);
    float picked[4];
    k->gather_rows(d, picked, (const float[]){1, 2, 3, 4, 5, 6}, (const uint32_t[]){2, 0}, 2, 2);
    assert_memory_equal(picked, ((const float[]){5, 6, 1, 2}), sizeof picked);
}

static void attention_weighs_values_by_the_softmax_of_scores(void **state) {
    // Two query heads on one KV head; 20 positions in blocks 2 and 0; the last query sees all, or a window of 2.
    relay_kv_pool pool = {.n_blocks = 3, .n_layers = 2, .n_kv_heads = 1, .head_dim = 2, .type = RELAY_KV_F32};
    pool.block_bytes = k->kv_block_bytes(&pool);
    assert_int_equal(pool.block_bytes, 2 * 2 * 16 * 2 * 4);
    pool.d_data = k->alloc(d, pool.n_blocks * pool.block_bytes);
    memset(pool.d_data, 0xFF, pool.n_blocks * pool.block_bytes); // NaN wherever nothing was written
    uint32_t position[20], sequence[20] = {0};
    float keys[20][2], values[20][2];
    for (uint32_t p = 0; p < 20; p++) {
        position[p] = p;
        keys[p][0] = p == 3 || p == 19 ? 1 : 0;
        keys[p][1] = 0;
        values[p][0] = (float)p;
        values[p][1] = 1;
    }
    const uint32_t table_begin[] = {1}, block_ids[] = {99, 2, 0};
    relay_rows rows = {20, position, sequence, table_begin, block_ids, NULL};
    k->kv_store(d, &pool, 1, &keys[0][0], &values[0][0], &rows);

    rows = (relay_rows){1, position + 19, sequence, table_begin, block_ids, NULL};
    const float q[] = {0, 5, 2, 0};
    float out[4];
    k->attention(d, out, q, &pool, 1, &rows, 2, 0.5f);
    assert_near(out[0], 9.5); // equal scores: the mean
    assert_near(out[1], 1);
    double e = exp(1); // positions 3 and 19 score 2 * 1 * 0.5, all others 0
    assert_near(out[2], ((190 - 22) + 22 * e) / (18 + 2 * e));
    pool.window = 2;
    k->attention(d, out, q, &pool, 1, &rows, 2, 0.5f);
    assert_near(out[0], 18.5);
    assert_near(out[2], (18 + 19 * e) / (1 + e));
    k->free(d, pool.d_data, pool.n_blocks * pool.block_bytes);
}

static void f16_caches_round_to_half(void **state) {
    relay_kv_pool pool = {.n_blocks = 1, .n_layers = 1, .n_kv_heads = 1, .head_dim = 2, .type = RELAY_KV_F16};
    pool.block_bytes = k->kv_block_bytes(&pool);
    pool.d_data = k->alloc(d, pool.block_bytes);
    const uint32_t zero[] = {0};
    relay_rows rows = {1, zero, zero, zero, zero, NULL};
    k->kv_store(d, &pool, 0, (const float[]){1, 1}, (const float[]){0.1f, 1000.3f}, &rows);
    float out[2];
    k->attention(d, out, (const float[]){1, 1}, &pool, 0, &rows, 1, 1);
    assert_near(out[0], (float)(_Float16)0.1f);
    assert_near(out[1], (float)(_Float16)1000.3f);
    k->free(d, pool.d_data, pool.block_bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_multiplies_rows_by_weights_and_adds_the_bias),
        cmocka_unit_test(rms_norm_divides_by_the_root_mean_square),
        cmocka_unit_test(rope_turns_pairs_of_either_style_and_leaves_the_rest),
        cmocka_unit_test(silu_mul_add_and_gather_do_what_they_say),
        cmocka_unit_test(attention_weighs_values_by_the_softmax_of_scores),
        cmocka_unit_test(f16_caches_round_to_half),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
