#include "tests/kernels/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/gguf.h"
#include "kernels/half.h"

// SplitMix64 (Steele, Lea, Flood, 2014).
uint64_t test_random(test_rng *r) {
    uint64_t z = r->state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

uint32_t test_below(test_rng *r, uint32_t n) {
    return (uint32_t)(test_random(r) % n);
}

double test_uniform(test_rng *r) {
    return (double)(test_random(r) >> 11) * 0x1p-53;
}

float test_normal(test_rng *r) {
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += test_uniform(r);
    return (float)(sum - 6);
}

float *test_normals(test_rng *r, uint64_t n, float scale) {
    float *x = relay_calloc(n, sizeof *x);
    for (uint64_t i = 0; i < n; i++)
        x[i] = test_normal(r) * scale;
    return x;
}

static void put_half(uint8_t *p, float f) {
    uint16_t h = relay_f16_from_f32(f);
    memcpy(p, &h, sizeof h);
}

uint8_t *test_weight_rows(test_rng *r, uint32_t ggml_type, uint32_t n_out, uint32_t n_in) {
    uint32_t block_values, block_bytes;
    assert_true(relay_ggml_type_block(ggml_type, &block_values, &block_bytes));
    const uint64_t n_blocks = (uint64_t)n_out * n_in / block_values;
    uint8_t *rows = relay_calloc(n_blocks, block_bytes);
    for (uint64_t i = 0; i < n_blocks * block_bytes; i++)
        rows[i] = (uint8_t)test_random(r);
    for (uint64_t i = 0; i < n_blocks; i++) {
        uint8_t *b = rows + i * block_bytes;
        float x = test_normal(r) * 0.05f;
        switch (ggml_type) {
        case RELAY_GGML_F32:
            memcpy(b, &x, sizeof x);
            break;
        case RELAY_GGML_F16:
            put_half(b, x);
            break;
        case RELAY_GGML_BF16: {
            uint32_t bits = relay_f32_bits(x);
            uint16_t high = (uint16_t)(bits >> 16);
            memcpy(b, &high, sizeof high);
            break;
        }
        case RELAY_GGML_Q4_1:
            put_half(b, x * 0.1f);
            put_half(b + 2, test_normal(r) * 0.05f);
            break;
        case RELAY_GGML_Q4_K:
            put_half(b, x * 0.01f);
            put_half(b + 2, test_normal(r) * 0.001f);
            break;
        case RELAY_GGML_Q6_K:
            put_half(b + 208, x * 0.001f);
            break;
        default:
            put_half(b, x * 0.1f);
        }
    }
    return rows;
}

relay_device *test_device(const relay_kernels *k, uint32_t n_threads) {
    const relay_device_opts opts = {
        .n_threads = n_threads,
        .max_rows = 256,
        .max_width = 2048,
        .max_context = 4096,
        .max_vocab = 200000,
        .max_samples = 64,
    };
    relay_device *d = NULL;
    relay_err e;
    if (k->device_create(&d, &opts, &e) != RELAY_OK) fail_msg("%s: %s", k->name, e.message);
    assert_ptr_equal(d->k, k);
    return d;
}

bool test_same_numerics(const relay_kernels **a, const relay_kernels **b) {
    uint32_t n;
    const relay_kernels *const *all = relay_kernels_available(&n);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = i + 1; j < n; j++) {
            if (strcmp(all[i]->numerics, all[j]->numerics) != 0) continue;
            *a = all[i];
            *b = all[j];
            return true;
        }
    }
    return false;
}

void assert_same_bits(const float *a, const float *b, uint64_t n, const char *what) {
    for (uint64_t i = 0; i < n; i++) {
        if (relay_f32_bits(a[i]) != relay_f32_bits(b[i])) {
            fail_msg("%s: value %llu is %a and %a", what, (unsigned long long)i, a[i], b[i]);
        }
    }
}

void test_cache_init(test_cache *c, const relay_kernels *k, relay_device *d, const test_cache_shape *shape,
                     uint64_t placement) {
    *c = (test_cache){.k = k, .d = d};
    c->pool = (relay_kv_pool){
        .n_blocks = TEST_MAX_BLOCKS,
        .n_layers = shape->n_layers,
        .n_kv_heads = shape->n_kv_heads,
        .head_dim = shape->head_dim,
        .window = shape->window,
        .type = shape->type,
    };
    c->pool.block_bytes = k->kv_block_bytes(&c->pool);
    const uint64_t bytes = c->pool.n_blocks * c->pool.block_bytes;
    c->pool.d_data = k->alloc(d, bytes);
    memset(c->pool.d_data, 0xFF, bytes);
    c->pool.tail_bytes = k->kv_tail_bytes(&c->pool);
    c->pool.n_tails = TEST_MAX_SEQUENCES;
    if (c->pool.tail_bytes != 0) {
        c->pool.d_tails = k->alloc(d, c->pool.n_tails * c->pool.tail_bytes);
        memset(c->pool.d_tails, 0xFF, c->pool.n_tails * c->pool.tail_bytes);
    }
    for (uint32_t i = 0; i < TEST_MAX_SEQUENCES; i++)
        c->tails[i] = i;
    for (uint32_t i = 0; i < TEST_MAX_BLOCKS; i++)
        c->block_ids[i] = i;
    test_rng r = {placement};
    for (uint32_t i = TEST_MAX_BLOCKS; i-- > 1;) {
        uint32_t j = test_below(&r, i + 1), t = c->block_ids[i];
        c->block_ids[i] = c->block_ids[j];
        c->block_ids[j] = t;
    }
    uint32_t next = 0;
    for (uint32_t s = 0; s < shape->n_sequences; s++) {
        c->table_begin[s] = next;
        next += (shape->lengths[s] + RELAY_BLOCK_TOKENS - 1) / RELAY_BLOCK_TOKENS;
    }
    assert_true(next <= TEST_MAX_BLOCKS);
}

void test_cache_fini(test_cache *c) {
    c->k->free(c->d, c->pool.d_data, c->pool.n_blocks * c->pool.block_bytes);
    if (c->pool.d_tails != NULL) c->k->free(c->d, c->pool.d_tails, c->pool.n_tails * c->pool.tail_bytes);
}

relay_rows test_cache_rows(const test_cache *c, uint32_t n_rows, const uint32_t *position, const uint32_t *sequence) {
    return (relay_rows){.n_rows = n_rows,
                        .d_position = position,
                        .d_sequence = sequence,
                        .d_table_begin = c->table_begin,
                        .d_block_ids = c->block_ids,
                        .d_tail = c->tails};
}

void test_cache_numbers(const test_cache *c, uint32_t sequence, uint32_t layer, uint32_t position, float *key,
                        float *value) {
    test_rng r = {((uint64_t)sequence << 40) + ((uint64_t)layer << 32) + position};
    for (uint32_t j = 0; j < c->pool.n_kv_heads * c->pool.head_dim; j++) {
        key[j] = test_normal(&r);
        value[j] = test_normal(&r);
    }
}

void test_cache_fill(test_cache *c, uint32_t sequence, uint32_t first, uint32_t last, uint32_t chunk) {
    const uint32_t row_values = c->pool.n_kv_heads * c->pool.head_dim;
    float *keys = relay_calloc((uint64_t)chunk * row_values, sizeof *keys);
    float *values = relay_calloc((uint64_t)chunk * row_values, sizeof *values);
    uint32_t *position = relay_calloc(chunk, sizeof *position), *sequences = relay_calloc(chunk, sizeof *sequences);
    for (uint32_t layer = 0; layer < c->pool.n_layers; layer++) {
        for (uint32_t p = first; p < last; p += chunk) {
            uint32_t n = last - p < chunk ? last - p : chunk;
            for (uint32_t i = 0; i < n; i++) {
                position[i] = p + i;
                sequences[i] = sequence;
                test_cache_numbers(c, sequence, layer, p + i, keys + i * row_values, values + i * row_values);
            }
            relay_rows rows = test_cache_rows(c, n, position, sequences);
            c->k->kv_store(c->d, &c->pool, layer, keys, values, &rows);
        }
    }
    free(keys);
    free(values);
    free(position);
    free(sequences);
}
