// The paged cache and attention over it, on every backend.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#include "tests/kernels/fixture.h"

// Rows to attend: some positions of some sequences.
typedef struct batch {
    uint32_t n_rows;
    uint32_t position[256], sequence[256];
} batch;

static void batch_add(batch *b, uint32_t sequence, uint32_t first, uint32_t last) {
    for (uint32_t p = first; p < last; p++) {
        b->position[b->n_rows] = p;
        b->sequence[b->n_rows++] = sequence;
    }
}

// Queries depend on sequence, position, head and dimension alone.
static void fill_queries(float *q, const batch *b, uint32_t n_values) {
    for (uint32_t i = 0; i < b->n_rows; i++) {
        test_rng r = {((uint64_t)b->sequence[i] << 32) + b->position[i] + 12345};
        for (uint32_t j = 0; j < n_values; j++)
            q[(uint64_t)i * n_values + j] = test_normal(&r);
    }
}

// Attention of a batch over a cache, layer 1 (the second); [n_rows, n_heads, head_dim], free it.
static float *attend(test_cache *c, const batch *b, uint32_t n_heads) {
    const uint32_t n_values = n_heads * c->pool.head_dim;
    float *q = relay_calloc((uint64_t)b->n_rows * n_values, sizeof *q);
    float *out = relay_calloc((uint64_t)b->n_rows * n_values + 1, sizeof *out);
    fill_queries(q, b, n_values);
    out[(uint64_t)b->n_rows * n_values] = 42;
    relay_rows rows = test_cache_rows(c, b->n_rows, b->position, b->sequence);
    c->k->attention(c->d, out, q, &c->pool, 1, &rows, n_heads, 1 / sqrtf((float)c->pool.head_dim));
    assert_true(out[(uint64_t)b->n_rows * n_values] == 42);
    free(q);
    return out;
}

static void fill_all(test_cache *c, const test_cache_shape *shape, uint32_t chunk) {
    for (uint32_t s = 0; s < shape->n_sequences; s++)
        test_cache_fill(c, s, 0, shape->lengths[s], chunk);
}

typedef struct attention_case {
    test_cache_shape shape;
    uint32_t n_heads;
} attention_case;

static const attention_case cases[] = {
    {{2, 3, 64, 0, RELAY_KV_F16, 3, {1, 17, 300}}, 9}, // SmolLM2-135M
    {{2, 2, 64, 0, RELAY_KV_F32, 2, {31, 515}}, 14},   // Qwen2.5-0.5B
    {{2, 4, 8, 0, RELAY_KV_F32, 2, {16, 260}}, 8},     // stories260K
    {{2, 1, 80, 0, RELAY_KV_F16, 2, {33, 127}}, 1},
    {{2, 2, 128, 0, RELAY_KV_F16, 1, {270}}, 8},
    {{2, 1, 2, 0, RELAY_KV_F32, 1, {40}}, 40}, // a group larger than the kernels take at once
    {{2, 1, 10, 0, RELAY_KV_F16, 1, {600}}, 20},
    {{2, 3, 64, 1, RELAY_KV_F16, 2, {20, 300}}, 3}, // a window of the row itself
    {{2, 1, 16, 20, RELAY_KV_F32, 2, {15, 600}}, 4},
    {{2, 2, 64, 256, RELAY_KV_F16, 1, {800}}, 6},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void results_are_near_the_reference(void **state) {
    relay_device *ref = test_device(&relay_kernels_ref, 1);
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        for (uint32_t i = 0; i < N_CASES; i++) {
            const test_cache_shape *shape = &cases[i].shape;
            test_cache expected_cache, cache;
            test_cache_init(&expected_cache, &relay_kernels_ref, ref, shape, 1);
            test_cache_init(&cache, k, d, shape, 2);
            fill_all(&expected_cache, shape, 64);
            fill_all(&cache, shape, 64);
            // The last rows of every sequence, and one from the middle of each.
            batch b = {0};
            for (uint32_t s = 0; s < shape->n_sequences; s++) {
                uint32_t n = shape->lengths[s];
                if (n > 20) batch_add(&b, s, n / 2, n / 2 + 1);
                batch_add(&b, s, n > 5 ? n - 5 : 0, n);
            }
            float *expected = attend(&expected_cache, &b, cases[i].n_heads),
                  *got = attend(&cache, &b, cases[i].n_heads);
            for (uint32_t j = 0; j < b.n_rows * cases[i].n_heads * shape->head_dim; j++) {
                if (!(fabsf(got[j] - expected[j]) <= 3e-6f)) {
                    fail_msg("%s case %u value %u: %.9g, not %.9g", k->name, i, j, got[j], expected[j]);
                }
            }
            free(expected);
            free(got);
            test_cache_fini(&expected_cache);
            test_cache_fini(&cache);
        }
        k->device_destroy(d);
    }
    relay_kernels_ref.device_destroy(ref);
}

// Rows [first, last) of a sequence, attended in chunks.
static float *attend_in_chunks(test_cache *c, uint32_t sequence, uint32_t first, uint32_t last, uint32_t chunk,
                               uint32_t n_heads) {
    const uint32_t n_values = n_heads * c->pool.head_dim;
    float *all = relay_calloc((uint64_t)(last - first) * n_values, sizeof *all);
    for (uint32_t p = first; p < last; p += chunk) {
        batch b = {0};
        batch_add(&b, sequence, p, p + chunk < last ? p + chunk : last);
        float *out = attend(c, &b, n_heads);
        memcpy(all + (uint64_t)(p - first) * n_values, out, (uint64_t)b.n_rows * n_values * sizeof *out);
        free(out);
    }
    return all;
}

static void a_row_has_the_same_bits_for_any_chunk_placement_and_number_of_threads(void **state) {
    static const uint32_t chunks[] = {1, 2, 7, 64}, fill_chunks[] = {1, 7, 64};
    FOR_EACH_BACKEND(k) {
        if (k == &relay_kernels_ref) continue; // slow, and it takes every row by itself
        for (uint32_t i = 0; i < N_CASES; i++) {
            const test_cache_shape *shape = &cases[i].shape;
            const uint32_t s = shape->n_sequences - 1, n = shape->lengths[s], first = n > 64 ? n - 64 : 0;
            const uint64_t n_values = (uint64_t)cases[i].n_heads * shape->head_dim * (n - first);
            float *expected = NULL;
            for (uint32_t threads = 1; threads <= 3; threads++) {
                relay_device *d = test_device(k, threads);
                test_cache cache;
                test_cache_init(&cache, k, d, shape, threads);
                test_cache_fill(&cache, s, 0, n, fill_chunks[threads - 1]);
                for (uint32_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
                    float *got = attend_in_chunks(&cache, s, first, n, chunks[c], cases[i].n_heads);
                    if (expected == NULL) {
                        expected = got;
                        continue;
                    }
                    assert_same_bits(got, expected, n_values, k->name);
                    free(got);
                }
                test_cache_fini(&cache);
                k->device_destroy(d);
            }
            free(expected);
        }
    }
}

static void a_row_has_the_same_bits_beside_other_sequences(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        const test_cache_shape shape = {2, 3, 64, 0, RELAY_KV_F16, 6, {5, 300, 17, 600, 1, 33}};
        test_cache cache;
        test_cache_init(&cache, k, d, &shape, 3);
        fill_all(&cache, &shape, 256);
        batch all = {0};
        for (uint32_t s = 0; s < shape.n_sequences; s++) {
            batch_add(&all, s, shape.lengths[s] > 8 ? shape.lengths[s] - 8 : 0, shape.lengths[s]);
        }
        float *together = attend(&cache, &all, 9);
        for (uint32_t i = 0; i < all.n_rows; i++) {
            batch one = {0};
            batch_add(&one, all.sequence[i], all.position[i], all.position[i] + 1);
            float *alone = attend(&cache, &one, 9);
            assert_same_bits(alone, together + i * 9 * 64, 9 * 64, k->name);
            free(alone);
        }
        free(together);
        test_cache_fini(&cache);
        k->device_destroy(d);
    }
}

// Scores that differ by hundreds, and grow from one segment to the next: exp of a difference taken the wrong way round
// would be infinite.
static void large_scores_do_not_overflow(void **state) {
    enum { HEAD_DIM = 2, LENGTH = 700 };
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        const test_cache_shape shape = {1, 1, HEAD_DIM, 0, RELAY_KV_F32, 1, {LENGTH}};
        for (int sign = -1; sign <= 1; sign += 2) {
            test_cache cache;
            test_cache_init(&cache, k, d, &shape, 1);
            for (uint32_t p = 0; p < LENGTH; p++) {
                const uint32_t position[] = {p}, zero[] = {0};
                const float key[] = {(float)(sign * (int)p), 0}, value[] = {(float)p, 1};
                relay_rows row = test_cache_rows(&cache, 1, position, zero);
                k->kv_store(d, &cache.pool, 0, key, value, &row);
            }
            const uint32_t position[] = {LENGTH - 1}, zero[] = {0};
            const float q[] = {1, 0};
            float out[HEAD_DIM];
            relay_rows row = test_cache_rows(&cache, 1, position, zero);
            k->attention(d, out, q, &cache.pool, 0, &row, 1, 1);
            // The weights fall by e from one position to the next: the mean distance from the largest is 1 / (e - 1).
            double expected = sign > 0 ? LENGTH - 1 - 1 / (exp(1) - 1) : 1 / (exp(1) - 1);
            assert_true(fabs(out[0] - expected) < 1e-6 * LENGTH);
            assert_true(fabsf(out[1] - 1) < 1e-6f);
            test_cache_fini(&cache);
        }
        k->device_destroy(d);
    }
}

// A later row of the same call whose keys and values are not numbers is nothing to the rows before it.
static void a_row_does_not_see_what_comes_after_it(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        for (uint32_t type = RELAY_KV_F16; type <= RELAY_KV_BF16; type++) {
            const test_cache_shape shape = {2, 1, 16, 0, type, 1, {40}};
            test_cache cache;
            test_cache_init(&cache, k, d, &shape, 3);
            test_cache_fill(&cache, 0, 0, 40, 40);
            batch b = {0};
            batch_add(&b, 0, 30, 40);
            float *before = attend(&cache, &b, 4);
            float bad[16];
            for (uint32_t i = 0; i < 16; i++)
                bad[i] = i % 2 == 0 ? NAN : 1e30f; // infinite as a half
            const uint32_t position[] = {35}, sequence[] = {0};
            relay_rows row = test_cache_rows(&cache, 1, position, sequence);
            k->kv_store(d, &cache.pool, 1, bad, bad, &row);
            float *after = attend(&cache, &b, 4);
            assert_same_bits(after, before, 5 * 4 * 16, k->name);
            for (uint32_t i = 5 * 4 * 16; i < 10 * 4 * 16; i += 2)
                assert_true(isnan(after[i]));
            free(before);
            free(after);
            test_cache_fini(&cache);
        }
        k->device_destroy(d);
    }
}

static void what_lies_before_the_window_is_not_touched(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        const test_cache_shape shape = {2, 2, 16, 40, RELAY_KV_F32, 1, {700}};
        test_cache cache;
        test_cache_init(&cache, k, d, &shape, 3);
        test_cache_fill(&cache, 0, 600, 700, 64); // NaN everywhere before
        // Blocks that are wholly before the window have been given back: their ids lead nowhere.
        for (uint32_t i = 0; i < 600 / RELAY_BLOCK_TOKENS; i++)
            cache.block_ids[i] = UINT32_MAX;
        batch b = {0};
        batch_add(&b, 0, 660, 700);
        float *out = attend(&cache, &b, 4);
        for (uint32_t i = 0; i < 40 * 4 * 16; i++)
            assert_true(isfinite(out[i]));
        free(out);
        test_cache_fini(&cache);
        k->device_destroy(d);
    }
}

static void layers_and_heads_are_kept_apart(void **state) {
    // What is stored in one layer leaves the other as it was, byte for byte.
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 1);
        const test_cache_shape shape = {3, 2, 10, 0, RELAY_KV_F16, 1, {16}};
        test_cache cache;
        test_cache_init(&cache, k, d, &shape, 3);
        const uint64_t layer_bytes = cache.pool.block_bytes / 3;
        char *block = (char *)cache.pool.d_data + cache.block_ids[0] * cache.pool.block_bytes;
        float ones[2 * 10];
        for (uint32_t i = 0; i < 20; i++)
            ones[i] = 1;
        const uint32_t zero[] = {0};
        relay_rows row = test_cache_rows(&cache, 1, zero, zero);
        k->kv_store(d, &cache.pool, 1, ones, ones, &row);
        for (uint64_t i = 0; i < layer_bytes; i++) {
            assert_int_equal((uint8_t)block[i], 0xFF);
            assert_int_equal((uint8_t)block[2 * layer_bytes + i], 0xFF);
        }
        test_cache_fini(&cache);
        k->device_destroy(d);
    }
}

static void a_copied_block_is_read_as_the_one_it_was_copied_from(void **state) {
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        for (uint32_t type = RELAY_KV_F16; type <= RELAY_KV_BF16; type++) {
            const test_cache_shape shape = {2, 2, 16, 0, type, 1, {40}};
            test_cache cache;
            test_cache_init(&cache, k, d, &shape, 3);
            test_cache_fill(&cache, 0, 0, 40, 64);
            batch b = {0};
            batch_add(&b, 0, 30, 40);
            float *before = attend(&cache, &b, 4);
            relay_kv_block_copy copies[3];
            for (uint32_t i = 0; i < 3; i++) {
                copies[i] = (relay_kv_block_copy){cache.block_ids[i], cache.block_ids[10 + i]};
                cache.block_ids[i] = copies[i].to;
            }
            k->kv_copy(d, &cache.pool, copies, 3);
            char *blocks = cache.pool.d_data;
            memset(blocks + copies[0].from * cache.pool.block_bytes, 0xFF, cache.pool.block_bytes);
            float *after = attend(&cache, &b, 4);
            assert_same_bits(after, before, 10 * 4 * 16, k->name);
            for (uint64_t i = 0; i < cache.pool.block_bytes; i++) // its neighbour
                assert_int_equal((uint8_t)blocks[cache.block_ids[20] * cache.pool.block_bytes + i], 0xFF);
            free(before);
            free(after);
            test_cache_fini(&cache);
        }
        k->device_destroy(d);
    }
}

static void backends_with_the_same_numerics_give_the_same_bits(void **state) {
    const relay_kernels *a, *b;
    if (!test_same_numerics(&a, &b)) skip();
    relay_device *da = test_device(a, 2), *db = test_device(b, 1);
    for (uint32_t i = 0; i < N_CASES; i++) {
        const test_cache_shape *shape = &cases[i].shape;
        const uint32_t s = shape->n_sequences - 1, n = shape->lengths[s];
        test_cache ca, cb;
        test_cache_init(&ca, a, da, shape, 1);
        test_cache_init(&cb, b, db, shape, 2);
        fill_all(&ca, shape, 64);
        fill_all(&cb, shape, 64);
        float *xa = attend_in_chunks(&ca, s, 0, n, 16, cases[i].n_heads),
              *xb = attend_in_chunks(&cb, s, 0, n, 64, cases[i].n_heads);
        assert_same_bits(xa, xb, (uint64_t)n * cases[i].n_heads * shape->head_dim, "one numerics");
        free(xa);
        free(xb);
        test_cache_fini(&ca);
        test_cache_fini(&cb);
    }
    a->device_destroy(da);
    b->device_destroy(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_near_the_reference),
        cmocka_unit_test(a_row_has_the_same_bits_for_any_chunk_placement_and_number_of_threads),
        cmocka_unit_test(a_row_has_the_same_bits_beside_other_sequences),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(a_row_does_not_see_what_comes_after_it),
        cmocka_unit_test(what_lies_before_the_window_is_not_touched),
        cmocka_unit_test(a_copied_block_is_read_as_the_one_it_was_copied_from),
        cmocka_unit_test(layers_and_heads_are_kept_apart),
        cmocka_unit_test(backends_with_the_same_numerics_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
