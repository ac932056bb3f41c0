#include "kernels/ref/ref.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/dequant.h"
#include "kernels/half.h"
#include "kernels/host_memory.h"

typedef struct ref_device {
    relay_device base;
    relay_device_opts opts;
    double *scores;  // [max_context], of one query head
    float *own_keys; // of quantized KV types, from kv_store() to attention(): see there
    uint64_t own_keys_bytes;
    void *sample_scratch; // of one row
} ref_device;

struct relay_weight {
    uint32_t n_out, n_in;
    float *values; // [n_out, n_in]
};

static relay_code device_create(relay_device **out, const relay_device_opts *opts, relay_err *e) {
    ref_device *d = relay_calloc(1, sizeof *d);
    d->base.k = &relay_kernels_ref;
    d->opts = *opts;
    d->scores = relay_calloc(opts->max_context, sizeof *d->scores);
    d->own_keys_bytes = (uint64_t)opts->max_rows * opts->max_width * RELAY_BLOCK_TOKENS * sizeof *d->own_keys;
    d->own_keys = relay_host_alloc(d->own_keys_bytes);
    d->sample_scratch = relay_calloc(1, relay_ref_sample_scratch(opts->max_vocab));
    *out = &d->base;
    return RELAY_OK;
}

static void device_destroy(relay_device *device) {
    if (device == NULL) return;
    ref_device *d = (ref_device *)device;
    free(d->scores);
    relay_host_free(d->own_keys, d->own_keys_bytes);
    free(d->sample_scratch);
    free(d);
}

static void *device_alloc(relay_device *d, uint64_t bytes) {
    return relay_host_alloc(bytes);
}

static void device_free(relay_device *d, void *p, uint64_t bytes) {
    relay_host_free(p, bytes);
}

static void copy(relay_device *d, void *dst, const void *src, uint64_t bytes) {
    if (bytes != 0) memcpy(dst, src, bytes);
}

static void device_wait(relay_device *d) {
}

// ---- Weights

static relay_code weight_create(relay_device *d, relay_weight **out, uint32_t ggml_type, uint32_t n_out, uint32_t n_in,
                                const void *rows, relay_err *e) {
    uint64_t row_bytes;
    relay_code code = relay_dequant_row_bytes(&row_bytes, ggml_type, n_in, e);
    if (code != RELAY_OK) return code;
    relay_weight *w = relay_calloc(1, sizeof *w);
    w->n_out = n_out;
    w->n_in = n_in;
    w->values = relay_calloc((uint64_t)n_out * n_in, sizeof *w->values);
    for (uint32_t o = 0; o < n_out; o++) {
        relay_dequant_row(ggml_type, (const char *)rows + o * row_bytes, w->values + (uint64_t)o * n_in, n_in);
    }
    *out = w;
    return RELAY_OK;
}

static void weight_destroy(relay_device *d, relay_weight *w) {
    if (w == NULL) return;
    free(w->values);
    free(w);
}

static uint64_t weight_bytes(const relay_weight *w) {
    return (uint64_t)w->n_out * w->n_in * sizeof *w->values;
}

static void embed(relay_device *d, float *out, const relay_weight *w, const uint32_t *ids, uint32_t n_rows) {
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(out + (uint64_t)r * w->n_in, w->values + (uint64_t)ids[r] * w->n_in, w->n_in * sizeof *out);
    }
}

static void matmul(relay_device *d, const float *x, uint32_t n_rows, const relay_matmul_job *jobs, uint32_t n_jobs) {
    for (uint32_t j = 0; j < n_jobs; j++) {
        const relay_weight *w = jobs[j].w;
        for (uint32_t r = 0; r < n_rows; r++) {
            const float *xr = x + (uint64_t)r * w->n_in;
            for (uint32_t o = 0; o < w->n_out; o++) {
                const float *wo = w->values + (uint64_t)o * w->n_in;
                double sum = jobs[j].d_bias != NULL ? jobs[j].d_bias[o] : 0;
                for (uint32_t i = 0; i < w->n_in; i++)
                    sum += (double)xr[i] * wo[i];
                jobs[j].d_out[(uint64_t)r * w->n_out + o] = (float)sum;
            }
        }
    }
}

// ---- Rows

static void rms_norm(relay_device *d, float *out, const float *x, const float *gain, uint32_t n_rows, uint32_t width,
                     float eps) {
    for (uint32_t r = 0; r < n_rows; r++, x += width, out += width) {
        double sum = 0;
        for (uint32_t i = 0; i < width; i++)
            sum += (double)x[i] * x[i];
        double scale = 1 / sqrt(sum / width + eps);
        for (uint32_t i = 0; i < width; i++)
            out[i] = (float)(x[i] * scale * gain[i]);
    }
}

static void rope(relay_device *d, float *x, const uint32_t *position, uint32_t n_rows, uint32_t n_heads,
                 uint32_t head_dim, uint32_t n_rot, relay_rope_style style, const float *cos_sin) {
    for (uint32_t r = 0; r < n_rows; r++) {
        const float *angles = cos_sin + (uint64_t)position[r] * n_rot;
        for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
            for (uint32_t i = 0; i < n_rot / 2; i++) {
                double c = angles[2 * i], s = angles[2 * i + 1];
                float *a = style == RELAY_ROPE_ADJACENT ? &x[2 * i] : &x[i];
                float *b = style == RELAY_ROPE_ADJACENT ? &x[2 * i + 1] : &x[i + n_rot / 2];
                double a0 = *a, b0 = *b;
                *a = (float)(a0 * c - b0 * s);
                *b = (float)(a0 * s + b0 * c);
            }
        }
    }
}

static void silu_mul(relay_device *d, float *out, const float *gate, const float *up, uint32_t n_rows, uint32_t width) {
    for (uint64_t i = 0; i < (uint64_t)n_rows * width; i++) {
        out[i] = (float)(gate[i] / (1 + exp(-(double)gate[i])) * up[i]);
    }
}

static void add(relay_device *d, float *x, const float *y, uint32_t n_rows, uint32_t width) {
    for (uint64_t i = 0; i < (uint64_t)n_rows * width; i++)
        x[i] += y[i];
}

static void gather_rows(relay_device *d, float *out, const float *x, const uint32_t *index, uint32_t n_index,
                        uint32_t width) {
    for (uint32_t i = 0; i < n_index; i++) {
        memcpy(out + (uint64_t)i * width, x + (uint64_t)index[i] * width, width * sizeof *out);
    }
}

// ---- KV cache. A block: [layer][keys, values][kv_head][slot], each slot head_dim numbers, which of INT8 and INT4 take
// a byte each and have behind them a pair of scale and minimum a number (keys: that of its channel) or 32 numbers
// (values). A tail: [layer][kv_head][slot][head_dim] keys in float16.

enum { KEYS, VALUES, VALUE_GROUP = 32 };

static bool is_quantized(const relay_kv_pool *pool) {
    return pool->type == RELAY_KV_INT8 || pool->type == RELAY_KV_INT4;
}

static uint64_t slot_bytes(const relay_kv_pool *pool) {
    switch (pool->type) {
    case RELAY_KV_F32:
        return pool->head_dim * sizeof(float);
    case RELAY_KV_INT8:
    case RELAY_KV_INT4:
        return pool->head_dim * (1 + 2 * sizeof(uint16_t));
    default:
        return pool->head_dim * sizeof(uint16_t);
    }
}

static uint64_t kv_block_bytes(const relay_kv_pool *pool) {
    return 2ull * pool->n_layers * pool->n_kv_heads * RELAY_BLOCK_TOKENS * slot_bytes(pool);
}

static uint64_t kv_tail_bytes(const relay_kv_pool *pool) {
    if (!is_quantized(pool)) return 0;
    return (uint64_t)pool->n_layers * pool->n_kv_heads * RELAY_BLOCK_TOKENS * pool->head_dim * sizeof(uint16_t);
}

// The head_dim values of one position and KV head.
static void *kv_slot(const relay_kv_pool *pool, uint32_t layer, int keys_or_values, const relay_rows *rows,
                     uint32_t sequence, uint32_t kv_head, uint32_t position) {
    uint32_t block = rows->d_block_ids[rows->d_table_begin[sequence] + position / RELAY_BLOCK_TOKENS];
    uint64_t index = (uint64_t)layer * 2 + (uint32_t)keys_or_values;
    index = (index * pool->n_kv_heads + kv_head) * RELAY_BLOCK_TOKENS + position % RELAY_BLOCK_TOKENS;
    return (char *)pool->d_data + block * pool->block_bytes + index * slot_bytes(pool);
}

static uint16_t *tail_slot(const relay_kv_pool *pool, uint32_t layer, const relay_rows *rows, uint32_t sequence,
                           uint32_t kv_head, uint32_t slot) {
    char *tail = (char *)pool->d_tails + rows->d_tail[sequence] * pool->tail_bytes;
    uint64_t index = ((uint64_t)layer * pool->n_kv_heads + kv_head) * RELAY_BLOCK_TOKENS + slot;
    return (uint16_t *)(void *)tail + index * pool->head_dim;
}

// The pair of number i in a slot of a quantized type.
static uint16_t *slot_pair(const relay_kv_pool *pool, void *slot, uint32_t i) {
    return (uint16_t *)(void *)((char *)slot + pool->head_dim) + 2 * i;
}

static float kv_load(const relay_kv_pool *pool, void *slot, int keys_or_values, uint32_t i) {
    switch (pool->type) {
    case RELAY_KV_F32:
        return ((const float *)slot)[i];
    case RELAY_KV_BF16:
        return relay_f32_from_bf16(((const uint16_t *)slot)[i]);
    case RELAY_KV_INT8:
    case RELAY_KV_INT4: {
        const uint16_t *pair = slot_pair(pool, slot, keys_or_values == KEYS ? i : i / VALUE_GROUP * VALUE_GROUP);
        return fmaf(((const uint8_t *)slot)[i], relay_f32_from_f16(pair[0]), relay_f32_from_f16(pair[1]));
    }
    default:
        return relay_f32_from_f16(((const uint16_t *)slot)[i]);
    }
}

static void kv_write(const relay_kv_pool *pool, void *slot, const float *values) {
    for (uint32_t i = 0; i < pool->head_dim; i++) {
        switch (pool->type) {
        case RELAY_KV_F32:
            ((float *)slot)[i] = values[i];
            break;
        case RELAY_KV_BF16:
            ((uint16_t *)slot)[i] = relay_bf16_from_f32(values[i]);
            break;
        default:
            ((uint16_t *)slot)[i] = relay_f16_from_f32(values[i]);
        }
    }
}

// The scale and minimum of numbers that lie `stride` apart.
static void fit(const float *x, uint32_t n, uint32_t stride, float top, uint16_t *pair) {
    float low = x[0], high = x[0];
    for (uint32_t i = 1; i < n; i++) {
        low = fminf(low, x[i * stride]);
        high = fmaxf(high, x[i * stride]);
    }
    pair[0] = relay_f16_from_f32((high - low) / top);
    pair[1] = relay_f16_from_f32(low);
}

static uint8_t quantize(float x, float top, const uint16_t *pair) {
    float scale = relay_f32_from_f16(pair[0]);
    float n = nearbyintf((x - relay_f32_from_f16(pair[1])) / (scale == 0 ? 1 : scale));
    return (uint8_t)fminf(fmaxf(n, 0), top);
}

static void write_quantized_values(const relay_kv_pool *pool, void *slot, const float *v, float top) {
    for (uint32_t i = 0; i < pool->head_dim; i++) {
        uint32_t first = i / VALUE_GROUP * VALUE_GROUP;
        uint32_t n = pool->head_dim - first < VALUE_GROUP ? pool->head_dim - first : VALUE_GROUP;
        uint16_t *pair = slot_pair(pool, slot, first);
        if (i == first) fit(v + first, n, 1, top, pair);
        ((uint8_t *)slot)[i] = quantize(v[i], top, pair);
    }
}

// keys [16][head_dim] of one head become a block's.
static void write_quantized_keys(const relay_kv_pool *pool, char *slots, const float *keys, float top) {
    for (uint32_t i = 0; i < pool->head_dim; i++) {
        uint16_t pair[2];
        fit(keys + i, RELAY_BLOCK_TOKENS, pool->head_dim, top, pair);
        for (uint32_t s = 0; s < RELAY_BLOCK_TOKENS; s++) {
            char *slot = slots + s * slot_bytes(pool);
            ((uint8_t *)slot)[i] = quantize(keys[s * pool->head_dim + i], top, pair);
            memcpy(slot_pair(pool, slot, i), pair, sizeof pair);
        }
    }
}

// Keys of the rows' own blocks go to own_keys, [row][kv_head][slot][head_dim], as they are at that row.
static void store_quantized(ref_device *d, const relay_kv_pool *pool, uint32_t layer, const float *k, const float *v,
                            const relay_rows *rows) {
    const float top = pool->type == RELAY_KV_INT8 ? 255 : 15;
    const uint64_t head_floats = (uint64_t)RELAY_BLOCK_TOKENS * pool->head_dim;
    float *own = d->own_keys;
    for (uint32_t r = 0; r < rows->n_rows; r++) {
        uint32_t sequence = rows->d_sequence[r], position = rows->d_position[r], slot = position % RELAY_BLOCK_TOKENS;
        for (uint32_t h = 0; h < pool->n_kv_heads; h++, k += pool->head_dim, v += pool->head_dim, own += head_floats) {
            for (uint32_t s = 0; s < slot; s++) {
                const uint16_t *before = tail_slot(pool, layer, rows, sequence, h, s);
                for (uint32_t i = 0; i < pool->head_dim; i++)
                    own[s * pool->head_dim + i] = relay_f32_from_f16(before[i]);
            }
            uint16_t *tail = tail_slot(pool, layer, rows, sequence, h, slot);
            for (uint32_t i = 0; i < pool->head_dim; i++) {
                tail[i] = relay_f16_from_f32(k[i]);
                own[slot * pool->head_dim + i] = relay_f32_from_f16(tail[i]);
            }
            write_quantized_values(pool, kv_slot(pool, layer, VALUES, rows, sequence, h, position), v, top);
            if (slot + 1 == RELAY_BLOCK_TOKENS) {
                char *slots = kv_slot(pool, layer, KEYS, rows, sequence, h, position - slot);
                write_quantized_keys(pool, slots, own, top);
            }
        }
    }
}

static void kv_store(relay_device *device, const relay_kv_pool *pool, uint32_t layer, const float *k, const float *v,
                     const relay_rows *rows) {
    if (is_quantized(pool)) {
        store_quantized((ref_device *)device, pool, layer, k, v, rows);
        return;
    }
    for (uint32_t r = 0; r < rows->n_rows; r++) {
        for (uint32_t h = 0; h < pool->n_kv_heads; h++, k += pool->head_dim, v += pool->head_dim) {
            uint32_t sequence = rows->d_sequence[r], position = rows->d_position[r];
            kv_write(pool, kv_slot(pool, layer, KEYS, rows, sequence, h, position), k);
            kv_write(pool, kv_slot(pool, layer, VALUES, rows, sequence, h, position), v);
        }
    }
}

static void kv_copy(relay_device *d, const relay_kv_pool *pool, const relay_kv_block_copy *copies, uint32_t n_copies) {
    char *blocks = pool->d_data;
    for (uint32_t i = 0; i < n_copies; i++) {
        memcpy(blocks + copies[i].to * pool->block_bytes, blocks + copies[i].from * pool->block_bytes,
               pool->block_bytes);
    }
}

static void kv_copy_tails(relay_device *d, const relay_kv_pool *pool, const relay_kv_block_copy *copies,
                          uint32_t n_copies) {
    char *tails = pool->d_tails;
    for (uint32_t i = 0; i < n_copies; i++) {
        memcpy(tails + copies[i].to * pool->tail_bytes, tails + copies[i].from * pool->tail_bytes, pool->tail_bytes);
    }
}

static void attend(ref_device *d, float *out, const float *q, const relay_kv_pool *pool, uint32_t layer,
                   const relay_rows *rows, uint32_t r, uint32_t kv_head, float scale) {
    uint32_t position = rows->d_position[r], sequence = rows->d_sequence[r];
    uint32_t begin = pool->window != 0 && position >= pool->window ? position - pool->window + 1 : 0;
    const float *own = d->own_keys + ((uint64_t)r * pool->n_kv_heads + kv_head) * RELAY_BLOCK_TOKENS * pool->head_dim;
    double max = -INFINITY;
    for (uint32_t p = begin; p <= position; p++) {
        void *key = kv_slot(pool, layer, KEYS, rows, sequence, kv_head, p);
        bool is_own = is_quantized(pool) && p / RELAY_BLOCK_TOKENS == position / RELAY_BLOCK_TOKENS;
        double sum = 0;
        for (uint32_t i = 0; i < pool->head_dim; i++) {
            sum += (double)q[i] *
                   (is_own ? own[p % RELAY_BLOCK_TOKENS * pool->head_dim + i] : kv_load(pool, key, KEYS, i));
        }
        d->scores[p] = sum * scale;
        if (d->scores[p] > max) max = d->scores[p];
    }
    double total = 0;
    for (uint32_t p = begin; p <= position; p++)
        total += d->scores[p] = exp(d->scores[p] - max);
    for (uint32_t i = 0; i < pool->head_dim; i++) {
        double sum = 0;
        for (uint32_t p = begin; p <= position; p++) {
            sum += d->scores[p] * kv_load(pool, kv_slot(pool, layer, VALUES, rows, sequence, kv_head, p), VALUES, i);
        }
        out[i] = (float)(sum / total);
    }
}

static void attention(relay_device *device, float *out, const float *q, const relay_kv_pool *pool, uint32_t layer,
                      const relay_rows *rows, uint32_t n_heads, float scale) {
    ref_device *d = (ref_device *)device;
    for (uint32_t r = 0; r < rows->n_rows; r++) {
        RELAY_ASSERT(rows->d_position[r] < d->opts.max_context);
        for (uint32_t h = 0; h < n_heads; h++, q += pool->head_dim, out += pool->head_dim) {
            attend(d, out, q, pool, layer, rows, r, h / (n_heads / pool->n_kv_heads), scale);
        }
    }
}

static void update_counts(relay_device *device, relay_token_count *counts, const relay_count_update *updates,
                          uint32_t n_updates) {
    for (uint32_t i = 0; i < n_updates; i++)
        counts[updates[i].at] = updates[i].count;
}

static void sample(relay_device *device, relay_sample_result *results, const float *logits, uint32_t n_vocab,
                   const relay_sample_input *in) {
    ref_device *d = (ref_device *)device;
    RELAY_ASSERT(n_vocab <= d->opts.max_vocab);
    relay_ref_sample(d->sample_scratch, results, logits, n_vocab, in);
}

const relay_kernels relay_kernels_ref = {
    .name = "ref",
    .numerics = "ref",
    .device_create = device_create,
    .device_destroy = device_destroy,
    .alloc = device_alloc,
    .free = device_free,
    .upload = copy,
    .download = copy,
    .wait = device_wait,
    .weight_create = weight_create,
    .weight_destroy = weight_destroy,
    .weight_bytes = weight_bytes,
    .kv_block_bytes = kv_block_bytes,
    .kv_tail_bytes = kv_tail_bytes,
    .embed = embed,
    .rms_norm = rms_norm,
    .matmul = matmul,
    .rope = rope,
    .kv_store = kv_store,
    .kv_copy = kv_copy,
    .kv_copy_tails = kv_copy_tails,
    .attention = attention,
    .silu_mul = silu_mul,
    .add = add,
    .gather_rows = gather_rows,
    .update_counts = update_counts,
    .sample = sample,
};
