#include "kernels/cpu/device.h"

#include <stdlib.h>
#include <string.h>

#include "common/processors.h"
#include "kernels/cpu/kv.h"
#include "kernels/cpu/pack.h"
#include "kernels/host_memory.h"

// Bounds what threads that share the positions of a row may write down: beyond it they do not share them.
enum { MAX_PARTIAL_BYTES = 64 << 20 };

static void sample_scratch_init(relay_sample_scratch *s, uint32_t n_vocab) {
    s->logits = relay_host_alloc((uint64_t)n_vocab * sizeof *s->logits);
    s->candidates = relay_host_alloc((uint64_t)n_vocab * sizeof *s->candidates);
    s->weights = relay_host_alloc((uint64_t)n_vocab * sizeof *s->weights);
    s->keys = relay_host_alloc((uint64_t)n_vocab * sizeof *s->keys);
    s->runs = relay_calloc(n_vocab / RELAY_SAMPLE_RUN + 1, sizeof *s->runs);
}

static void sample_scratch_fini(relay_sample_scratch *s, uint32_t n_vocab) {
    relay_host_free(s->logits, (uint64_t)n_vocab * sizeof *s->logits);
    relay_host_free(s->candidates, (uint64_t)n_vocab * sizeof *s->candidates);
    relay_host_free(s->weights, (uint64_t)n_vocab * sizeof *s->weights);
    relay_host_free(s->keys, (uint64_t)n_vocab * sizeof *s->keys);
    free(s->runs);
}

relay_code relay_cpu_device_create(relay_device **out, const relay_kernels *k, const relay_device_opts *opts,
                                   relay_err *e) {
    relay_cpu_device *d = relay_calloc(1, sizeof *d);
    d->base.k = k;
    d->opts = *opts;
    if (d->opts.n_threads == 0) d->opts.n_threads = relay_processors_available();
    const uint64_t n_threads = d->opts.n_threads;
    relay_code code = relay_pool_create(&d->pool, d->opts.n_threads, e);
    if (code != RELAY_OK) {
        free(d);
        return code;
    }
    d->acts_bytes = (uint64_t)opts->max_rows * (opts->max_width / RELAY_QUANT_BLOCK) * sizeof *d->acts;
    d->acts = relay_host_alloc(d->acts_bytes);
    d->tiles = relay_calloc(opts->max_rows, sizeof *d->tiles);
    // Queries, scores, and two results with their padding.
    d->attention_thread_floats =
        RELAY_ATTENTION_QUERIES * (3ull * (opts->max_width + 16) + RELAY_ATTENTION_SEGMENT + 4);
    d->attention_scratch = relay_host_alloc(n_threads * d->attention_thread_floats * sizeof(float));
    d->own_keys_bytes = (uint64_t)opts->max_rows * opts->max_width * RELAY_BLOCK_TOKENS * sizeof *d->own_keys;
    d->own_keys = relay_host_alloc(d->own_keys_bytes);
    d->runs = relay_calloc(opts->max_rows, sizeof *d->runs);
    const uint64_t n_segments = opts->max_context / RELAY_ATTENTION_SEGMENT + 1;
    d->n_partial_floats = n_segments * 4 * n_threads * RELAY_ATTENTION_QUERIES * (128 + 2);
    if (d->n_partial_floats > MAX_PARTIAL_BYTES / sizeof(float))
        d->n_partial_floats = MAX_PARTIAL_BYTES / sizeof(float);
    d->partials = relay_host_alloc(d->n_partial_floats * sizeof(float));
    d->sample_scratch = relay_calloc(n_threads, sizeof *d->sample_scratch);
    for (uint64_t t = 0; t < n_threads; t++)
        sample_scratch_init(&d->sample_scratch[t], opts->max_vocab);
    *out = &d->base;
    return RELAY_OK;
}

void relay_cpu_device_destroy(relay_device *device) {
    if (device == NULL) return;
    relay_cpu_device *d = relay_cpu_device_of(device);
    relay_pool_destroy(d->pool);
    relay_host_free(d->acts, d->acts_bytes);
    free(d->tiles);
    free(d->runs);
    relay_host_free(d->own_keys, d->own_keys_bytes);
    relay_host_free(d->attention_scratch, d->opts.n_threads * d->attention_thread_floats * sizeof(float));
    relay_host_free(d->partials, d->n_partial_floats * sizeof(float));
    for (uint32_t t = 0; t < d->opts.n_threads; t++)
        sample_scratch_fini(&d->sample_scratch[t], d->opts.max_vocab);
    free(d->sample_scratch);
    free(d);
}

void *relay_cpu_alloc(relay_device *d, uint64_t bytes) {
    return relay_host_alloc(bytes);
}

void relay_cpu_free(relay_device *d, void *p, uint64_t bytes) {
    relay_host_free(p, bytes);
}

void relay_cpu_copy(relay_device *d, void *dst, const void *src, uint64_t bytes) {
    if (bytes != 0) memcpy(dst, src, bytes);
}

// An operation has ended when its call returns.
void relay_cpu_wait(relay_device *d) {
}

relay_code relay_cpu_weight_create(relay_device *d, relay_weight **out, uint32_t ggml_type, uint32_t n_out,
                                   uint32_t n_in, const void *rows, relay_err *e) {
    return relay_pack_create(out, relay_cpu_device_of(d)->pool, ggml_type, n_out, n_in, rows, e);
}

void relay_cpu_weight_destroy(relay_device *d, relay_weight *w) {
    relay_pack_destroy(w);
}

uint64_t relay_cpu_kv_block_bytes(const relay_kv_pool *pool) {
    return pool->n_layers * relay_kv_layout_of(pool).layer_bytes;
}

uint64_t relay_cpu_kv_tail_bytes(const relay_kv_pool *pool) {
    if (!relay_kv_is_quantized(pool->type)) return 0;
    return (uint64_t)pool->n_layers * pool->n_kv_heads * pool->head_dim * RELAY_BLOCK_TOKENS * sizeof(uint16_t);
}

typedef struct embedding {
    float *out;
    const relay_weight *w;
    const uint32_t *ids;
} embedding;

static void embed_task(void *arg, uint32_t row, uint32_t thread) {
    const embedding *j = arg;
    relay_pack_read_row(j->w, j->ids[row], j->out + (uint64_t)row * j->w->n_in);
}

typedef struct block_copies {
    const relay_kv_pool *pool;
    const relay_kv_block_copy *copies;
} block_copies;

static void copy_block(void *arg, uint32_t task, uint32_t thread) {
    const block_copies *c = arg;
    char *blocks = c->pool->d_data;
    memcpy(blocks + c->copies[task].to * c->pool->block_bytes, blocks + c->copies[task].from * c->pool->block_bytes,
           c->pool->block_bytes);
}

void relay_cpu_kv_copy(relay_device *d, const relay_kv_pool *pool, const relay_kv_block_copy *copies,
                       uint32_t n_copies) {
    block_copies c = {pool, copies};
    relay_pool_run(relay_cpu_device_of(d)->pool, copy_block, &c, n_copies);
}

void relay_cpu_kv_copy_tails(relay_device *d, const relay_kv_pool *pool, const relay_kv_block_copy *copies,
                             uint32_t n_copies) {
    for (uint32_t i = 0; i < n_copies; i++)
        memcpy(relay_kv_tail(pool, copies[i].to, 0), relay_kv_tail(pool, copies[i].from, 0), pool->tail_bytes);
}

void relay_cpu_embed(relay_device *d, float *out, const relay_weight *w, const uint32_t *ids, uint32_t n_rows) {
    embedding j = {out, w, ids};
    relay_pool_run(relay_cpu_device_of(d)->pool, embed_task, &j, n_rows);
}

void relay_cpu_gather_rows(relay_device *d, float *out, const float *x, const uint32_t *index, uint32_t n_index,
                           uint32_t width) {
    for (uint32_t i = 0; i < n_index; i++) {
        memcpy(out + (uint64_t)i * width, x + (uint64_t)index[i] * width, width * sizeof *out);
    }
}

void relay_cpu_update_counts(relay_device *d, relay_token_count *counts, const relay_count_update *updates,
                             uint32_t n_updates) {
    for (uint32_t i = 0; i < n_updates; i++)
        counts[updates[i].at] = updates[i].count;
}
