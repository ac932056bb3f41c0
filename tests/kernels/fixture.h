// What the kernel tests share: random numbers, random weights, devices of every backend, and a paged cache to attend
// to.
#ifndef RELAY_TESTS_KERNELS_FIXTURE_H
#define RELAY_TESTS_KERNELS_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

typedef struct test_rng {
    uint64_t state;
} test_rng;

uint64_t test_random(test_rng *r);
uint32_t test_below(test_rng *r, uint32_t n);
double test_uniform(test_rng *r); // [0, 1)
float test_normal(test_rng *r);   // near enough: mean 0, variance 1
// n normal numbers times `scale`; free it.
float *test_normals(test_rng *r, uint64_t n, float scale);
// n_out rows of n_in random quants with scales of a usual size, as in a GGUF file; free it.
uint8_t *test_weight_rows(test_rng *r, uint32_t ggml_type, uint32_t n_out, uint32_t n_in);

// A device with room for everything the tests do.
relay_device *test_device(const relay_kernels *k, uint32_t n_threads);

// Backends, fastest first, "ref" last.
#define FOR_EACH_BACKEND(k)                                                                                            \
    for (uint32_t backend_n, backend_i = (relay_kernels_available(&backend_n), 0); backend_i < backend_n; backend_i++) \
        for (const relay_kernels *k = relay_kernels_available(&backend_n)[backend_i]; k != NULL; k = NULL)

// Two backends that promise the same bits; false where this machine has no two.
bool test_same_numerics(const relay_kernels **a, const relay_kernels **b);

// Fails the test where a and b differ in a bit.
void assert_same_bits(const float *a, const float *b, uint64_t n, const char *what);

// ---- A cache with some sequences in it

enum { TEST_MAX_SEQUENCES = 8, TEST_MAX_BLOCKS = 256 };

typedef struct test_cache_shape {
    uint32_t n_layers, n_kv_heads, head_dim, window;
    relay_kv_type type;
    uint32_t n_sequences;
    uint32_t lengths[TEST_MAX_SEQUENCES];
} test_cache_shape;

typedef struct test_cache {
    const relay_kernels *k;
    relay_device *d;
    relay_kv_pool pool;
    uint32_t table_begin[TEST_MAX_SEQUENCES];
    uint32_t block_ids[TEST_MAX_BLOCKS];
    uint32_t tails[TEST_MAX_SEQUENCES]; // tail i is sequence i's
} test_cache;

// Blocks in an order shuffled by `placement`, all bytes 0xFF (NaN as numbers) before anything is stored.
void test_cache_init(test_cache *c, const relay_kernels *k, relay_device *d, const test_cache_shape *shape,
                     uint64_t placement);
void test_cache_fini(test_cache *c);
// What the cache's rows are.
relay_rows test_cache_rows(const test_cache *c, uint32_t n_rows, const uint32_t *position, const uint32_t *sequence);
// The key and the value, [n_kv_heads, head_dim] each, that test_cache_fill() stores for a position.
void test_cache_numbers(const test_cache *c, uint32_t sequence, uint32_t layer, uint32_t position, float *key,
                        float *value);
// Stores key and value of positions [first, last) of a sequence in every layer: numbers that depend on sequence, layer,
// position, head and dimension alone. In calls of at most `chunk` rows.
void test_cache_fill(test_cache *c, uint32_t sequence, uint32_t first, uint32_t last, uint32_t chunk);

#endif
