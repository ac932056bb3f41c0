// The device of the processor backends: the worker pool, and scratch memory made once.
#ifndef RELAY_KERNELS_CPU_DEVICE_H
#define RELAY_KERNELS_CPU_DEVICE_H

#include "kernels/cpu/act.h"
#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"

// Attention takes positions in segments of this many, which begin at multiples of it: see attention.c.
enum { RELAY_ATTENTION_SEGMENT = 256 };

// Most queries of one KV head that are taken together.
enum { RELAY_ATTENTION_QUERIES = 16 };

// The sampler sums weights of runs of this many ids.
enum { RELAY_SAMPLE_RUN = 1024 };

// An id that may be drawn, in the sampler's scratch.
typedef struct relay_candidate {
    float logit;
    float weight; // exp((logit - largest logit) / temperature)
    uint32_t id;
} relay_candidate;

// A thread's scratch for sampling one row.
typedef struct relay_sample_scratch {
    float *logits;               // [max_vocab] after penalties and masks
    relay_candidate *candidates; // [max_vocab]
    float *weights;              // [max_vocab] of the row's logits
    float *keys;                 // [max_vocab] what ids are ordered by where it is not their logits
    double *runs;                // [max_vocab / RELAY_SAMPLE_RUN, rounded up] sums of weights
} relay_sample_scratch;

// Rows of one sequence whose queries are taken together.
typedef struct relay_attention_tile {
    uint32_t first_row, n_rows;
    uint32_t run; // of quantized types: which run of rows (kv.h) they are in
} relay_attention_tile;

typedef struct relay_cpu_device {
    relay_device base;
    relay_device_opts opts; // n_threads as it is
    relay_pool *pool;
    relay_act_block *acts; // [max_rows, max_width / 32], of one product
    uint64_t acts_bytes;
    relay_attention_tile *tiles; // [max_rows]
    float *attention_scratch;    // [n_threads][attention_thread_floats]
    uint64_t attention_thread_floats;
    uint16_t *own_keys; // of quantized types: [runs of the step][n_kv_heads][head_dim][16] float16, of one layer
    uint64_t own_keys_bytes;
    uint32_t *runs;  // [max_rows] first rows of the runs, in kv_store()
    float *partials; // results of segments, where threads share the positions of one row
    uint64_t n_partial_floats;
    relay_sample_scratch *sample_scratch; // [n_threads]
} relay_cpu_device;

static inline relay_cpu_device *relay_cpu_device_of(relay_device *d) {
    return (relay_cpu_device *)d;
}

// The keys of the block that a run of rows is in, from kv_store() to attention().
static inline uint16_t *relay_cpu_own_keys(const relay_cpu_device *d, const relay_kv_pool *pool, uint32_t run) {
    return d->own_keys + (uint64_t)run * pool->n_kv_heads * pool->head_dim * RELAY_BLOCK_TOKENS;
}

// `k` is the table of the instruction set.
relay_code relay_cpu_device_create(relay_device **out, const relay_kernels *k, const relay_device_opts *opts,
                                   relay_err *e) RELAY_NODISCARD;
void relay_cpu_device_destroy(relay_device *d);

// The slots of the vtable that are the same for every instruction set.
void *relay_cpu_alloc(relay_device *d, uint64_t bytes);
void relay_cpu_free(relay_device *d, void *p, uint64_t bytes);
void relay_cpu_copy(relay_device *d, void *dst, const void *src, uint64_t bytes);
void relay_cpu_wait(relay_device *d);
relay_code relay_cpu_weight_create(relay_device *d, relay_weight **out, uint32_t ggml_type, uint32_t n_out,
                                   uint32_t n_in, const void *rows, relay_err *e) RELAY_NODISCARD;
void relay_cpu_weight_destroy(relay_device *d, relay_weight *w);
uint64_t relay_cpu_kv_block_bytes(const relay_kv_pool *pool);
uint64_t relay_cpu_kv_tail_bytes(const relay_kv_pool *pool);
void relay_cpu_kv_copy_tails(relay_device *d, const relay_kv_pool *pool, const relay_kv_block_copy *copies,
                             uint32_t n_copies);
void relay_cpu_kv_copy(relay_device *d, const relay_kv_pool *pool, const relay_kv_block_copy *copies,
                       uint32_t n_copies);
void relay_cpu_embed(relay_device *d, float *out, const relay_weight *w, const uint32_t *ids, uint32_t n_rows);
void relay_cpu_update_counts(relay_device *d, relay_token_count *counts, const relay_count_update *updates,
                             uint32_t n_updates);
void relay_cpu_gather_rows(relay_device *d, float *out, const float *x, const uint32_t *index, uint32_t n_index,
                           uint32_t width);

#endif
