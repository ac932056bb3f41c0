// What the types of the KV cache do to attention: how near they are to float32, that what a row reads of a position
// depends on the two alone, and how many bytes they take.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/fixture.h"

static const relay_kv_type types[] = {RELAY_KV_F16, RELAY_KV_BF16, RELAY_KV_INT8, RELAY_KV_INT4};
enum { N_TYPES = sizeof types / sizeof *types, LAYER = 1 };

typedef struct shape {
    uint32_t n_kv_heads, head_dim, window, n_heads, length;
} shape;

static const shape shapes[] = {
    {3, 64, 0, 9, 100},  // SmolLM2-135M
    {2, 128, 0, 4, 40},  //
    {1, 80, 0, 3, 270},  // groups that are not full
    {2, 10, 0, 2, 50},   // less than a vector
    {2, 16, 40, 4, 290}, // a window
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void cache_init(test_cache *c, const relay_kernels *k, relay_device *d, const shape *s, relay_kv_type type,
                       uint64_t placement) {
    const test_cache_shape cache = {2, s->n_kv_heads, s->head_dim, s->window, type, 2, {s->length, s->length}};
    test_cache_init(c, k, d, &cache, placement);
}

// Channels of very different sizes, as the keys of real models have.
static float channel_size(uint32_t i) {
    return i % 7 == 3 ? 20.0f : i % 5 == 0 ? 0.1f : 1.0f;
}

// Stores and attends positions [first, last) of sequence 0 in chunks, beside rows of sequence 1 in the same step.
// Appends to out: [positions, n_heads, head_dim].
static void run(test_cache *c, const shape *s, uint32_t first, uint32_t last, uint32_t chunk, float *out) {
    const uint32_t n_kv = s->n_kv_heads * s->head_dim, n_q = s->n_heads * s->head_dim;
    float *k = relay_calloc((uint64_t)(chunk + 1) * n_kv, sizeof *k),
          *v = relay_calloc((uint64_t)(chunk + 1) * n_kv, sizeof *v);
    float *q = relay_calloc((uint64_t)(chunk + 1) * n_q, sizeof *q);
    float *result = relay_calloc((uint64_t)(chunk + 1) * n_q, sizeof *result);
    uint32_t position[257], sequence[257];
    for (uint32_t p = first; p < last; p += chunk) {
        uint32_t n = last - p < chunk ? last - p : chunk;
        for (uint32_t i = 0; i <= n; i++) {
            position[i] = i < n ? p + i : (p - first) / chunk % s->length; // sequence 1: one row a step
            sequence[i] = i < n ? 0 : 1;
            test_cache_numbers(c, sequence[i], LAYER, position[i], k + i * n_kv, v + i * n_kv);
            for (uint32_t j = 0; j < n_kv; j++)
                k[i * n_kv + j] = (k[i * n_kv + j] + 1) * channel_size(j % s->head_dim);
            test_rng r = {((uint64_t)sequence[i] << 32) + position[i] + 12345};
            for (uint32_t j = 0; j < n_q; j++)
                q[i * n_q + j] = test_normal(&r) / channel_size(j % s->head_dim);
        }
        relay_rows rows = test_cache_rows(c, n + 1, position, sequence);
        c->k->kv_store(c->d, &c->pool, LAYER, k, v, &rows);
        c->k->attention(c->d, result, q, &c->pool, LAYER, &rows, s->n_heads, 1 / sqrtf((float)s->head_dim));
        memcpy(out + (uint64_t)(p - first) * n_q, result, (uint64_t)n * n_q * sizeof *out);
    }
    free(k);
    free(v);
    free(q);
    free(result);
}

static float *run_all(const relay_kernels *k, uint32_t n_threads, const shape *s, relay_kv_type type, uint32_t chunk,
                      uint64_t placement) {
    float *out = relay_calloc((uint64_t)s->length * s->n_heads * s->head_dim, sizeof *out);
    relay_device *d = test_device(k, n_threads);
    test_cache c;
    cache_init(&c, k, d, s, type, placement);
    run(&c, s, 0, s->length, chunk, out);
    test_cache_fini(&c);
    k->device_destroy(d);
    return out;
}

static double distance(const float *a, const float *b, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum / (double)n);
}

static void backends_are_near_the_reference_and_it_is_near_the_truth(void **state) {
    // Root of the mean square of the difference; the outputs are about 1.
    static const double bounds[N_TYPES] = {0.001, 0.01, 0.02, 0.2};
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        const uint64_t n = (uint64_t)s->length * s->n_heads * s->head_dim;
        float *truth = run_all(&relay_kernels_ref, 1, s, RELAY_KV_F32, 64, 1);
        for (uint32_t t = 0; t < N_TYPES; t++) {
            float *expected = run_all(&relay_kernels_ref, 1, s, types[t], 64, 1);
            double from_truth = distance(expected, truth, n);
            if (!(from_truth < bounds[t]))
                fail_msg("%s shape %u: %g from the truth", relay_kv_type_name(types[t]), i, from_truth);
            FOR_EACH_BACKEND(k) {
                if (k == &relay_kernels_ref) continue;
                float *got = run_all(k, 2, s, types[t], 64, 2);
                for (uint64_t j = 0; j < n; j++) {
                    if (!(fabsf(got[j] - expected[j]) <= 5e-6f * (1 + fabsf(expected[j]))))
                        fail_msg("%s %s shape %u value %llu: %.9g, not %.9g", k->name, relay_kv_type_name(types[t]), i,
                                 (unsigned long long)j, got[j], expected[j]);
                }
                free(got);
            }
            free(expected);
        }
        free(truth);
    }
}

static void a_row_has_the_same_bits_for_any_chunk_placement_and_number_of_threads(void **state) {
    static const uint32_t chunks[] = {1, 7, 16, 200};
    FOR_EACH_BACKEND(k) {
        for (uint32_t t = 0; t < N_TYPES; t++) {
            const shape *s = &shapes[t % N_SHAPES];
            const uint64_t n = (uint64_t)s->length * s->n_heads * s->head_dim;
            if (k == &relay_kernels_ref) continue; // slow, and it takes every row by itself
            float *expected = run_all(k, 1, s, types[t], 64, 1);
            for (uint32_t c = 0; c < 4; c++) {
                float *got = run_all(k, 1 + c % 3, s, types[t], chunks[c], 2 + c);
                assert_same_bits(got, expected, n, relay_kv_type_name(types[t]));
                free(got);
            }
            free(expected);
        }
    }
}

static void backends_with_the_same_numerics_give_the_same_bits(void **state) {
    const relay_kernels *a, *b;
    if (!test_same_numerics(&a, &b)) skip();
    for (uint32_t i = 0; i < N_SHAPES; i++) {
        for (uint32_t t = 0; t < N_TYPES; t++) {
            const shape *s = &shapes[i];
            float *x = run_all(a, 1, s, types[t], 64, 1), *y = run_all(b, 2, s, types[t], 64, 2);
            assert_same_bits(x, y, (uint64_t)s->length * s->n_heads * s->head_dim, relay_kv_type_name(types[t]));
            free(x);
            free(y);
        }
    }
}

static void a_sequence_goes_on_from_a_copy_of_its_tail(void **state) {
    FOR_EACH_BACKEND(k) {
        for (uint32_t t = 0; t < N_TYPES; t++) {
            const shape *s = &shapes[3];
            const uint32_t middle = 24, n_q = s->n_heads * s->head_dim;
            relay_device *d = test_device(k, 1);
            test_cache c;
            cache_init(&c, k, d, s, types[t], 1);
            float *expected = relay_calloc((uint64_t)s->length * n_q, sizeof *expected);
            float *got = relay_calloc((uint64_t)s->length * n_q, sizeof *got);
            run(&c, s, 0, s->length, 8, expected);
            run(&c, s, 0, middle, 8, got);
            // Its last block, which is not full, and its tail go somewhere else; what was there is spoilt.
            const relay_kv_block_copy block = {c.block_ids[1], c.block_ids[40]}, tail = {0, 5};
            k->kv_copy(d, &c.pool, &block, 1);
            k->kv_copy_tails(d, &c.pool, &tail, c.pool.tail_bytes != 0);
            memset((char *)c.pool.d_data + block.from * c.pool.block_bytes, 0xFF, c.pool.block_bytes);
            if (c.pool.tail_bytes != 0) memset(c.pool.d_tails, 0xFF, c.pool.tail_bytes);
            c.block_ids[1] = block.to;
            c.tails[0] = tail.to;
            run(&c, s, middle, s->length, 8, got);
            assert_same_bits(got, expected + (uint64_t)middle * n_q, (uint64_t)(s->length - middle) * n_q, k->name);
            free(expected);
            free(got);
            test_cache_fini(&c);
            k->device_destroy(d);
        }
    }
}

static void a_type_takes_the_bytes_it_says(void **state) {
    uint32_t n;
    const relay_kernels *k = relay_kernels_available(&n)[0];
    if (k == &relay_kernels_ref) skip();
    relay_kv_pool pool = {.n_layers = 30, .n_kv_heads = 3, .head_dim = 64};
    const uint64_t numbers = 2ull * 30 * 3 * 64 * RELAY_BLOCK_TOKENS;
    // A scale and a minimum of 2 bytes each: of keys for each channel of a block, of values for each 32.
    const uint64_t scales = 30ull * 3 * (64 + RELAY_BLOCK_TOKENS * 64 / 32) * 4;
    const struct {
        relay_kv_type type;
        uint64_t bytes;
    } expected[] = {{RELAY_KV_F32, 4 * numbers},
                    {RELAY_KV_F16, 2 * numbers},
                    {RELAY_KV_BF16, 2 * numbers},
                    {RELAY_KV_INT8, numbers + scales},
                    {RELAY_KV_INT4, numbers / 2 + scales}};
    for (uint32_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        pool.type = expected[i].type;
        assert_int_equal(k->kv_block_bytes(&pool), expected[i].bytes);
        bool is_quantized = pool.type == RELAY_KV_INT8 || pool.type == RELAY_KV_INT4;
        assert_int_equal(k->kv_tail_bytes(&pool), is_quantized ? numbers : 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_are_near_the_reference_and_it_is_near_the_truth),
        cmocka_unit_test(a_row_has_the_same_bits_for_any_chunk_placement_and_number_of_threads),
        cmocka_unit_test(backends_with_the_same_numerics_give_the_same_bits),
        cmocka_unit_test(a_sequence_goes_on_from_a_copy_of_its_tail),
        cmocka_unit_test(a_type_takes_the_bytes_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
