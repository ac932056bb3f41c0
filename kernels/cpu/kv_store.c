// Writing keys and values into the paged cache: see kv.h for where they lie.
//
// Of quantized types each run of rows (one sequence, one block) first gets its block's keys together in float16: those
// of steps before come from the sequence's tail. There attention reads them. A block that is full then is quantized,
// one that is not goes back to the tail.
#include <string.h>

#include "kernels/cpu/kv.h"
#include "kernels/cpu/ops.h"
#include "kernels/half.h"

typedef struct store {
    relay_cpu_device *d;
    const relay_kv_pool *pool;
    relay_kv_layout layout;
    uint32_t layer;
    const float *k, *v;
    const relay_rows *rows;
    uint32_t n_runs;
} store;

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// ---- As they are

// A head's key into one slot of [head_dim][16] halves.
static void put_key_f16(uint16_t *keys, uint32_t slot, const float *k, uint32_t head_dim) {
    for (uint32_t i = 0; i < head_dim; i += LANES) {
        const uint32_t n = least(head_dim - i, LANES);
        uint16_t halves[LANES];
        vf_store_f16(halves, vf_load_n(k + i, n));
        for (uint32_t j = 0; j < n; j++)
            keys[(i + j) * LANES + slot] = halves[j];
    }
}

static void store_f16(const store *s, char *head, uint32_t slot, const float *k, const float *v) {
    const uint32_t head_dim = s->pool->head_dim;
    put_key_f16((uint16_t *)(void *)head, slot, k, head_dim);
    uint16_t *values = (uint16_t *)(void *)(head + s->layout.values_at + slot * s->layout.value_row_bytes);
    for (uint32_t i = 0; i < head_dim; i += LANES)
        vf_store_f16(values + i, vf_load_n(v + i, least(head_dim - i, LANES)));
}

static void store_bf16(const store *s, char *head, uint32_t slot, const float *k, const float *v) {
    uint16_t *keys = (uint16_t *)(void *)head;
    uint16_t *values = (uint16_t *)(void *)(head + s->layout.values_at + slot * s->layout.value_row_bytes);
    for (uint32_t i = 0; i < s->pool->head_dim; i++) {
        keys[i * LANES + slot] = relay_bf16_from_f32(k[i]);
        values[i] = relay_bf16_from_f32(v[i]);
    }
    memset(values + s->pool->head_dim, 0, (s->layout.value_dim - s->pool->head_dim) * sizeof *values);
}

static void store_f32(const store *s, char *head, uint32_t slot, const float *k, const float *v) {
    const uint32_t head_dim = s->pool->head_dim;
    float *keys = (float *)(void *)head;
    float *values = (float *)(void *)(head + s->layout.values_at + slot * s->layout.value_row_bytes);
    for (uint32_t i = 0; i < head_dim; i++)
        keys[i * LANES + slot] = k[i];
    for (uint32_t i = 0; i < head_dim; i += LANES)
        vf_store(values + i, vf_load_n(v + i, least(head_dim - i, LANES)));
}

// ---- Quantized

typedef struct quantizer {
    float scale, minimum;
    float top; // the largest n
} quantizer;

// For numbers between low and high; its parameters, as they are kept, go to pair[2].
static quantizer quantizer_for(float low, float high, uint32_t bits, uint16_t *pair) {
    const float top = (float)((1u << bits) - 1);
    pair[0] = relay_f16_from_f32((high - low) / top);
    pair[1] = relay_f16_from_f32(low);
    const float scale = relay_f32_from_f16(pair[0]);
    return (quantizer){scale == 0 ? 1 : scale, relay_f32_from_f16(pair[1]), top};
}

// n of 16 numbers: round((x - minimum) / scale).
RELAY_INLINE vf quantize(const quantizer *q, vf x) {
    vf n = vf_round(vf_div(vf_sub(x, vf_set(q->minimum)), vf_set(q->scale)));
    return vf_min(vf_max(n, vf_set(0)), vf_set(q->top));
}

// 16 of them, `bits` each.
RELAY_INLINE void put_numbers(char *to, vf n, uint32_t bits) {
    float numbers[LANES];
    vf_store(numbers, n);
    uint8_t *bytes = (uint8_t *)to;
    if (bits == 8) {
        for (uint32_t i = 0; i < LANES; i++)
            bytes[i] = (uint8_t)numbers[i];
    } else {
        for (uint32_t i = 0; i < LANES / 2; i++)
            bytes[i] = (uint8_t)((uint8_t)numbers[i] | (uint8_t)numbers[LANES / 2 + i] << 4);
    }
}

static float min_lane(vf x) {
    return -vf_max_lane(vf_sub(vf_set(0), x));
}

// The keys of a full block of one head.
static void quantize_keys(const store *s, char *head, const uint16_t *keys, uint32_t bits) {
    uint16_t *pairs = (uint16_t *)(void *)(head + s->layout.key_scales_at);
    for (uint32_t i = 0; i < s->pool->head_dim; i++) {
        vf x = vf_load_f16(keys + i * LANES);
        const quantizer q = quantizer_for(min_lane(x), vf_max_lane(x), bits, pairs + 2 * i);
        put_numbers(head + (uint64_t)i * s->layout.key_row_bytes, quantize(&q, x), bits);
    }
}

// One position's values of one head.
static void quantize_values(const store *s, char *head, uint32_t slot, const float *v, uint32_t bits) {
    const uint32_t head_dim = s->pool->head_dim;
    char *numbers = head + s->layout.values_at + slot * s->layout.value_row_bytes;
    uint16_t *pairs = (uint16_t *)(void *)(head + s->layout.value_scales_at) + 2 * slot * s->layout.n_groups;
    for (uint32_t i = 0; i < head_dim; i += RELAY_KV_VALUE_GROUP, pairs += 2) {
        const uint32_t n = least(head_dim - i, RELAY_KV_VALUE_GROUP);
        float low = v[i], high = v[i];
        for (uint32_t j = 1; j < n; j++) {
            low = v[i + j] < low ? v[i + j] : low;
            high = v[i + j] > high ? v[i + j] : high;
        }
        const quantizer q = quantizer_for(low, high, bits, pairs);
        for (uint32_t j = 0; j < n; j += LANES) {
            vf x = vf_load_n(v + i + j, least(n - j, LANES));
            put_numbers(numbers + (i + j) * bits / 8, quantize(&q, x), bits);
        }
    }
}

// Whether the sequence of the row before has rows at `row` too.
static bool goes_on_behind(const relay_rows *rows, uint32_t row) {
    return row < rows->n_rows && rows->d_sequence[row] == rows->d_sequence[row - 1];
}

// Where one run of a sequence reads its tail and another one writes it, the reading comes first.
static void load_tails_of_long_sequences(const store *s) {
    const uint64_t keys_of_all = (uint64_t)s->pool->n_kv_heads * s->pool->head_dim * RELAY_BLOCK_TOKENS;
    for (uint32_t run = 0; run + 1 < s->n_runs; run++) {
        const uint32_t row = s->d->runs[run];
        if (s->rows->d_position[row] % RELAY_BLOCK_TOKENS == 0 || !goes_on_behind(s->rows, s->d->runs[run + 1]))
            continue;
        const uint16_t *tail = relay_kv_tail(s->pool, s->rows->d_tail[s->rows->d_sequence[row]], s->layer);
        memcpy(relay_cpu_own_keys(s->d, s->pool, run), tail, keys_of_all * sizeof *tail);
    }
}

static void store_quantized_run(const store *s, uint32_t run, uint32_t first_row, uint32_t end_row, uint32_t bits) {
    const relay_rows *rows = s->rows;
    const uint32_t n_kv_heads = s->pool->n_kv_heads, head_dim = s->pool->head_dim;
    const uint64_t keys_of_all = (uint64_t)n_kv_heads * head_dim * RELAY_BLOCK_TOKENS;
    const uint32_t sequence = rows->d_sequence[first_row], position = rows->d_position[first_row];
    const uint32_t block = rows->d_block_ids[rows->d_table_begin[sequence] + position / RELAY_BLOCK_TOKENS];
    const uint32_t first_slot = position % RELAY_BLOCK_TOKENS, end_slot = first_slot + (end_row - first_row);
    uint16_t *own = relay_cpu_own_keys(s->d, s->pool, run);
    uint16_t *tail = relay_kv_tail(s->pool, rows->d_tail[sequence], s->layer);
    if (first_slot > 0 && !goes_on_behind(rows, end_row)) memcpy(own, tail, keys_of_all * sizeof *own);
    for (uint32_t h = 0; h < n_kv_heads; h++) {
        char *head = relay_kv_head(s->pool, &s->layout, block, s->layer, h);
        uint16_t *keys = own + (uint64_t)h * head_dim * RELAY_BLOCK_TOKENS;
        for (uint32_t r = first_row; r < end_row; r++) {
            const uint32_t slot = first_slot + (r - first_row);
            const uint64_t at = ((uint64_t)r * n_kv_heads + h) * head_dim;
            put_key_f16(keys, slot, s->k + at, head_dim);
            quantize_values(s, head, slot, s->v + at, bits);
        }
        if (end_slot == RELAY_BLOCK_TOKENS) quantize_keys(s, head, keys, bits);
    }
    if (end_slot < RELAY_BLOCK_TOKENS) memcpy(tail, own, keys_of_all * sizeof *own);
}

// ---- Runs

static void store_run(void *arg, uint32_t run, uint32_t thread) {
    const store *s = arg;
    const relay_rows *rows = s->rows;
    const uint32_t first = s->d->runs[run], end = run + 1 < s->n_runs ? s->d->runs[run + 1] : rows->n_rows;
    if (relay_kv_is_quantized(s->pool->type)) {
        store_quantized_run(s, run, first, end, relay_kv_bits(s->pool->type));
        return;
    }
    const uint32_t n_kv_heads = s->pool->n_kv_heads, head_dim = s->pool->head_dim;
    for (uint32_t r = first; r < end; r++) {
        const uint32_t position = rows->d_position[r], table = rows->d_table_begin[rows->d_sequence[r]];
        const uint32_t block = rows->d_block_ids[table + position / RELAY_BLOCK_TOKENS];
        for (uint32_t h = 0; h < n_kv_heads; h++) {
            const uint64_t at = ((uint64_t)r * n_kv_heads + h) * head_dim;
            char *head = relay_kv_head(s->pool, &s->layout, block, s->layer, h);
            const uint32_t slot = position % RELAY_BLOCK_TOKENS;
            switch (s->pool->type) {
            case RELAY_KV_F32:
                store_f32(s, head, slot, s->k + at, s->v + at);
                break;
            case RELAY_KV_BF16:
                store_bf16(s, head, slot, s->k + at, s->v + at);
                break;
            default:
                store_f16(s, head, slot, s->k + at, s->v + at);
            }
        }
    }
}

void RELAY_ISA(relay_kv_store)(relay_device *device, const relay_kv_pool *pool, uint32_t layer, const float *k,
                               const float *v, const relay_rows *rows) {
    relay_cpu_device *d = relay_cpu_device_of(device);
    store s = {.d = d, .pool = pool, .layout = relay_kv_layout_of(pool), .layer = layer, .k = k, .v = v, .rows = rows};
    RELAY_ASSERT(rows->n_rows <= d->opts.max_rows && pool->n_kv_heads * pool->head_dim <= d->opts.max_width);
    for (uint32_t r = 0; r < rows->n_rows; r++) {
        if (r == 0 || !relay_kv_run_goes_on(rows, r)) d->runs[s.n_runs++] = r;
    }
    if (relay_kv_is_quantized(pool->type)) load_tails_of_long_sequences(&s);
    relay_pool_run(d->pool, store_run, &s, s.n_runs);
}
