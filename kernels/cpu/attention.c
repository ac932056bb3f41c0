// Attention over the paged cache (kv_store.c writes it).
//
// Positions are taken in segments of 256 that begin at multiples of 256. Within a segment a query's scores, its largest
// score, its weights exp(score - largest), their sum and the weighted sum of values are made by themselves; segments
// are then merged front to back by rescaling to the larger maximum (online softmax: Milakov, Gimelshein, 2018). What a
// row gets depends on its query, its position and the keys and values it sees: segments may be computed by different
// threads, and queries may be taken together to read a key once, without a change of bits. Sums are float32 in the
// order of positions.
//
// Slots behind a row's position, or before its window, may hold anything: their scores are replaced before use, and
// their values are not read as numbers.
//
// Quantized keys become numbers in registers. The keys of a row's own block are read where kv_store() left them in
// float16, so queries that are taken together are of one block there.
#include "kernels/cpu/ops.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/kv.h"
#include "kernels/half.h"

enum {
    SEGMENT = RELAY_ATTENTION_SEGMENT,
    QUERIES = RELAY_ATTENTION_QUERIES,
    SEGMENT_BLOCKS = SEGMENT / RELAY_BLOCK_TOKENS,
#ifdef __AVX512F__
    SCORE_QUERIES = 8, // queries whose scores of a block are made together, as many as the registers hold
    VALUE_QUERIES = 4, // the same for weighted values
    VALUE_VECTORS = 4, // of 16 values
#else
    SCORE_QUERIES = 4,
    VALUE_QUERIES = 2,
    VALUE_VECTORS = 2,
#endif
};

#define UNROLLED _Pragma("GCC unroll 8") for

// What an attention call works on.
typedef struct work {
    relay_cpu_device *d;
    const relay_kv_pool *pool;
    const relay_rows *rows;
    relay_kv_layout layout;
    uint32_t layer;
    const float *q;
    float *out;
    float scale;
    uint32_t n_heads;
    uint32_t group;          // query heads of a KV head
    uint32_t n_parts;        // parts of a group that is more than QUERIES
    uint32_t n_segments;     // that any row sees, from position 0; for threads that share positions
    uint64_t partial_floats; // of the partial results of one tile, head and segment
} work;

// The queries of a task: some query heads of one KV head, of some rows of one sequence. Row-major: query i is of row
// i / n_heads of the tile.
typedef struct queries {
    uint32_t n;
    uint32_t first_row, n_heads, first_head;
    uint32_t kv_head;
    const uint32_t *block_ids;             // of the sequence
    uint32_t begin[QUERIES], end[QUERIES]; // the positions each sees
    uint32_t first_segment, last_segment;  // that any of them sees
    char *own_keys;                        // of quantized types: the keys of the block they are in, else NULL
    uint32_t own_block;                    // its place in the sequence
} queries;

// Softmax and weighted values over some positions.
typedef struct partial {
    float *max; // [queries]
    float *sum; // [queries] of exp(score - max); 0: it saw no position
    float *out; // [queries][value_dim], not divided by sum
} partial;

static partial partial_at(float *memory) {
    return (partial){memory, memory + QUERIES, memory + 2 * QUERIES};
}

static uint64_t partial_size(const work *w) {
    return QUERIES * (2 + (uint64_t)w->layout.value_dim);
}

// ---- Scores

// 16 numbers of a type; `pair` is their scale and minimum, read for quantized types alone.
RELAY_INLINE vf load_numbers(relay_kv_type type, const char *numbers, const char *pair) {
    const uint16_t *scale = (const uint16_t *)(const void *)pair;
    switch (type) {
    case RELAY_KV_F32:
        return vf_load((const float *)(const void *)numbers);
    case RELAY_KV_BF16:
        return vf_load_bf16((const uint16_t *)(const void *)numbers);
    case RELAY_KV_INT8:
        return vf_fma(vf_load_u8((const uint8_t *)numbers), vf_set_f16(scale), vf_set_f16(scale + 1));
    case RELAY_KV_INT4:
        return vf_fma(vf_load_u4((const uint8_t *)numbers), vf_set_f16(scale), vf_set_f16(scale + 1));
    default:
        return vf_load_f16((const uint16_t *)(const void *)numbers);
    }
}

// The keys of dimension k at 16 positions; `head` is a head's part of a block, or of a tail (F16).
RELAY_INLINE vf load_key(relay_kv_type type, const relay_kv_layout *l, const char *head, uint32_t k) {
    return load_numbers(type, head + (uint64_t)k * RELAY_BLOCK_TOKENS * relay_kv_bits(type) / 8,
                        head + l->key_scales_at + k * RELAY_KV_PAIR_BYTES);
}

// Values [v, v + 16) of a position.
RELAY_INLINE vf load_value(relay_kv_type type, const relay_kv_layout *l, const char *head, uint32_t slot, uint32_t v) {
    return load_numbers(type, head + l->values_at + slot * l->value_row_bytes + v * relay_kv_bits(type) / 8,
                        head + l->value_scales_at +
                            (slot * l->n_groups + v / RELAY_KV_VALUE_GROUP) * RELAY_KV_PAIR_BYTES);
}

// Scores of NQ queries with NB blocks of keys; `q` has a stride of head_dim, `scores` of SEGMENT.
RELAY_INLINE void score_blocks(relay_kv_type type, const relay_kv_layout *l, int NQ, int NB, char *const *heads,
                               const float *q, uint32_t head_dim, float *scores) {
    vf sum[8];
    UNROLLED(int i = 0; i < NQ * NB; i++) sum[i] = vf_set(0);
    for (uint32_t k = 0; k < head_dim; k++) {
        UNROLLED(int b = 0; b < NB; b++) {
            vf key = load_key(type, l, heads[b], k);
            UNROLLED(int i = 0; i < NQ; i++) {
                sum[b * NQ + i] = vf_fma(key, vf_set(q[(uint32_t)i * head_dim + k]), sum[b * NQ + i]);
            }
        }
    }
    UNROLLED(int b = 0; b < NB; b++) {
        UNROLLED(int i = 0; i < NQ; i++) vf_store(scores + i * SEGMENT + b * LANES, sum[b * NQ + i]);
    }
}

RELAY_INLINE void score_range(relay_kv_type type, const relay_kv_layout *l, int NQ, int NB, char *const *heads,
                              uint32_t first, uint32_t last, const float *q, uint32_t head_dim, float *scores) {
    uint32_t b = first;
    for (; b + (uint32_t)NB <= last; b += (uint32_t)NB) {
        score_blocks(type, l, NQ, NB, heads + b, q, head_dim, scores + b * LANES);
    }
    for (; b < last; b++)
        score_blocks(type, l, NQ, 1, heads + b, q, head_dim, scores + b * LANES);
}

// Few queries take several blocks at once, so that there are sums enough to hide the latency of one.
RELAY_INLINE void score_queries(relay_kv_type type, const relay_kv_layout *l, uint32_t n, char *const *heads,
                                uint32_t first, uint32_t last, const float *q, uint32_t head_dim, float *scores) {
    switch (n) {
    case 1:
        score_range(type, l, 1, 4, heads, first, last, q, head_dim, scores);
        break;
    case 2:
        score_range(type, l, 2, SCORE_QUERIES / 2, heads, first, last, q, head_dim, scores);
        break;
    case 3:
        score_range(type, l, 3, SCORE_QUERIES / 4, heads, first, last, q, head_dim, scores);
        break;
    case 4:
        score_range(type, l, 4, SCORE_QUERIES / 4, heads, first, last, q, head_dim, scores);
        break;
#ifdef __AVX512F__
    case 5:
        score_range(type, l, 5, 1, heads, first, last, q, head_dim, scores);
        break;
    case 6:
        score_range(type, l, 6, 1, heads, first, last, q, head_dim, scores);
        break;
    case 7:
        score_range(type, l, 7, 1, heads, first, last, q, head_dim, scores);
        break;
    case 8:
        score_range(type, l, 8, 1, heads, first, last, q, head_dim, scores);
        break;
#endif
    }
}

// ---- Weights: the softmax of scores[begin, end) (offsets in the segment), not divided by its sum. Weights of the
// first and last block outside the range become 0.

static void weigh(float *scores, uint32_t begin, uint32_t end, float *max_out, float *sum_out) {
    const uint32_t first = begin / LANES * LANES;
    vf max = vf_set(-INFINITY);
    for (uint32_t p = first; p < end; p += LANES) {
        vi at = vi_add(vi_lane_index(), vi_set((int32_t)p));
        vm is_seen = vm_and(vi_lt(at, vi_set((int32_t)end)), vi_lt(vi_set((int32_t)begin - 1), at));
        vf s = vf_select(is_seen, vf_set(-INFINITY), vf_load(scores + p));
        vf_store(scores + p, s);
        max = vf_max(max, s);
    }
    *max_out = vf_max_lane(max);
    vf sum = vf_set(0);
    for (uint32_t p = first; p < end; p += LANES) {
        vf e = vf_exp(vf_sub(vf_load(scores + p), vf_set(*max_out)));
        vf_store(scores + p, e);
        sum = vf_add(sum, e);
    }
    *sum_out = vf_sum(sum);
}

// ---- Values

// out[i] += the sum over positions [begin, end) of weights[i] times values [first, first + 16 NV), for NQ queries.
RELAY_INLINE void add_values(relay_kv_type type, const relay_kv_layout *l, int NQ, int NV, char *const *heads,
                             uint32_t first, uint32_t begin, uint32_t end, const float *weights, float *out) {
    vf sum[VALUE_QUERIES * VALUE_VECTORS];
    UNROLLED(int i = 0; i < NQ; i++) {
        UNROLLED(int v = 0; v < NV; v++) sum[i * NV + v] = vf_load(out + (uint32_t)i * l->value_dim + v * LANES);
    }
    for (uint32_t p = begin; p < end; p++) {
        vf value[VALUE_VECTORS];
        UNROLLED(int v = 0; v < NV; v++) {
            value[v] = load_value(type, l, heads[p / LANES], p % LANES, first + (uint32_t)v * LANES);
        }
        UNROLLED(int i = 0; i < NQ; i++) {
            vf weight = vf_set(weights[i * SEGMENT + p]);
            UNROLLED(int v = 0; v < NV; v++) sum[i * NV + v] = vf_fma(weight, value[v], sum[i * NV + v]);
        }
    }
    UNROLLED(int i = 0; i < NQ; i++) {
        UNROLLED(int v = 0; v < NV; v++) vf_store(out + (uint32_t)i * l->value_dim + v * LANES, sum[i * NV + v]);
    }
}

RELAY_INLINE void add_values_of(relay_kv_type type, const relay_kv_layout *l, int NQ, char *const *heads,
                                uint32_t begin, uint32_t end, const float *weights, float *out) {
    uint32_t i = 0;
    for (; i + VALUE_VECTORS * LANES <= l->value_dim; i += VALUE_VECTORS * LANES) {
        add_values(type, l, NQ, VALUE_VECTORS, heads, i, begin, end, weights, out + i);
    }
    for (; i < l->value_dim; i += LANES)
        add_values(type, l, NQ, 1, heads, i, begin, end, weights, out + i);
}

RELAY_INLINE void add_values_queries(relay_kv_type type, const relay_kv_layout *l, uint32_t n, char *const *heads,
                                     uint32_t begin, uint32_t end, const float *weights, float *out) {
    if (begin >= end) return;
    switch (n) {
    case 1:
        add_values_of(type, l, 1, heads, begin, end, weights, out);
        break;
    case 2:
        add_values_of(type, l, 2, heads, begin, end, weights, out);
        break;
#ifdef __AVX512F__
    case 3:
        add_values_of(type, l, 3, heads, begin, end, weights, out);
        break;
    case 4:
        add_values_of(type, l, 4, heads, begin, end, weights, out);
        break;
#endif
    }
}

// ---- A segment

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static uint32_t most(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

// `q` is [queries][head_dim], scaled; `scores` is [queries][SEGMENT] of scratch.
RELAY_INLINE void attend_segment(relay_kv_type type, const work *w, const queries *qs, uint32_t segment, const float *q,
                                 float *scores, partial result) {
    const uint32_t head_dim = w->pool->head_dim, value_dim = w->layout.value_dim, start = segment * SEGMENT;
    // The part of the segment that each query sees, and that any does, as offsets.
    uint32_t begin[QUERIES], end[QUERIES], any_begin = SEGMENT, any_end = 0;
    for (uint32_t i = 0; i < qs->n; i++) {
        begin[i] = most(qs->begin[i], start) - start;
        end[i] = qs->end[i] <= start ? 0 : least(qs->end[i] - start, SEGMENT);
        if (begin[i] >= end[i]) begin[i] = end[i] = 0;
        if (begin[i] < end[i]) {
            any_begin = least(any_begin, begin[i]);
            any_end = most(any_end, end[i]);
        }
    }
    const uint32_t first_block = any_begin / LANES, last_block = (any_end + LANES - 1) / LANES;
    const relay_kv_layout *l = &w->layout;
    char *heads[SEGMENT_BLOCKS];
    for (uint32_t b = first_block; b < last_block; b++) {
        heads[b] = relay_kv_head(w->pool, l, qs->block_ids[segment * SEGMENT_BLOCKS + b], w->layer, qs->kv_head);
    }
    // The queries' own block, the last that they see, where its keys lie elsewhere.
    const bool has_own = relay_kv_is_quantized(type) && qs->own_block / SEGMENT_BLOCKS == segment;
    const uint32_t own = qs->own_block % SEGMENT_BLOCKS, last_stored = has_own ? own : last_block;
    for (uint32_t i = 0; i < qs->n; i += SCORE_QUERIES) {
        uint32_t n = least(qs->n - i, SCORE_QUERIES);
        score_queries(type, l, n, heads, first_block, last_stored, q + i * head_dim, head_dim, scores + i * SEGMENT);
        if (has_own) {
            score_queries(RELAY_KV_F16, l, n, &qs->own_keys, 0, 1, q + i * head_dim, head_dim,
                          scores + i * SEGMENT + own * LANES);
        }
    }
    for (uint32_t i = 0; i < qs->n; i++) {
        result.max[i] = -INFINITY;
        result.sum[i] = 0;
        if (begin[i] < end[i]) weigh(scores + i * SEGMENT, begin[i], end[i], &result.max[i], &result.sum[i]);
    }
    memset(result.out, 0, (uint64_t)qs->n * value_dim * sizeof *result.out);
    for (uint32_t i = 0; i < qs->n; i += VALUE_QUERIES) {
        // What all of them see is taken together; what lies before or behind it, one by one.
        uint32_t n = least(qs->n - i, VALUE_QUERIES), from = 0, to = SEGMENT;
        for (uint32_t j = i; j < i + n; j++) {
            from = most(from, begin[j]);
            to = least(to, end[j]);
        }
        if (from > to) from = to = SEGMENT;
        for (uint32_t j = i; j < i + n; j++) {
            add_values_queries(type, l, 1, heads, begin[j], least(end[j], from), scores + j * SEGMENT,
                               result.out + j * value_dim);
        }
        add_values_queries(type, l, n, heads, from, to, scores + i * SEGMENT, result.out + i * value_dim);
        for (uint32_t j = i; j < i + n; j++) {
            add_values_queries(type, l, 1, heads, most(begin[j], to), end[j], scores + j * SEGMENT,
                               result.out + j * value_dim);
        }
    }
}

// Adds what a later segment found.
static void merge(partial total, const partial segment, uint32_t n_queries, uint32_t value_dim) {
    for (uint32_t i = 0; i < n_queries; i++) {
        if (segment.sum[i] == 0) continue;
        float *out = total.out + i * value_dim;
        const float *more = segment.out + i * value_dim;
        if (total.sum[i] == 0) {
            total.max[i] = segment.max[i];
            total.sum[i] = segment.sum[i];
            memcpy(out, more, value_dim * sizeof *out);
            continue;
        }
        vf max = vf_max(vf_set(total.max[i]), vf_set(segment.max[i]));
        vf keep = vf_exp(vf_sub(vf_set(total.max[i]), max)), add = vf_exp(vf_sub(vf_set(segment.max[i]), max));
        for (uint32_t v = 0; v < value_dim; v += LANES) {
            vf_store(out + v, vf_fma(vf_load(more + v), add, vf_mul(vf_load(out + v), keep)));
        }
        float lanes[LANES];
        vf_store(lanes, vf_fma(vf_set(segment.sum[i]), add, vf_mul(vf_set(total.sum[i]), keep)));
        total.sum[i] = lanes[0];
        vf_store(lanes, max);
        total.max[i] = lanes[0];
    }
}

// ---- Tasks

static float *thread_scratch(const work *w, uint32_t thread) {
    return w->d->attention_scratch + thread * w->d->attention_thread_floats;
}

// Task: (tile, KV head, part of its query heads).
static queries queries_of(const work *w, uint32_t task) {
    const uint32_t n_kv_heads = w->pool->n_kv_heads;
    const uint32_t part = task % w->n_parts, kv_head = task / w->n_parts % n_kv_heads;
    const relay_attention_tile *tile = &w->d->tiles[task / w->n_parts / n_kv_heads];
    queries qs = {.first_row = tile->first_row, .kv_head = kv_head};
    qs.n_heads = least(w->group - part * QUERIES, QUERIES);
    qs.first_head = kv_head * w->group + part * QUERIES;
    qs.n = tile->n_rows * qs.n_heads;
    qs.block_ids = w->rows->d_block_ids + w->rows->d_table_begin[w->rows->d_sequence[tile->first_row]];
    const uint32_t window = w->pool->window;
    uint32_t any_begin = UINT32_MAX, any_end = 0;
    for (uint32_t i = 0; i < qs.n; i++) {
        uint32_t position = w->rows->d_position[tile->first_row + i / qs.n_heads];
        qs.begin[i] = window != 0 && position >= window ? position - window + 1 : 0;
        qs.end[i] = position + 1;
        any_begin = least(any_begin, qs.begin[i]);
        any_end = most(any_end, qs.end[i]);
    }
    qs.first_segment = any_begin / SEGMENT;
    qs.last_segment = (any_end - 1) / SEGMENT;
    qs.own_block = (any_end - 1) / RELAY_BLOCK_TOKENS;
    if (relay_kv_is_quantized(w->pool->type)) {
        qs.own_keys = (char *)relay_cpu_own_keys(w->d, w->pool, tile->run) +
                      (uint64_t)kv_head * w->pool->head_dim * RELAY_BLOCK_TOKENS * sizeof(uint16_t);
    }
    return qs;
}

static void load_queries(const work *w, const queries *qs, float *q) {
    const uint32_t head_dim = w->pool->head_dim;
    for (uint32_t i = 0; i < qs->n; i++) {
        uint64_t head = (uint64_t)(qs->first_row + i / qs->n_heads) * w->n_heads + qs->first_head + i % qs->n_heads;
        const float *from = w->q + head * head_dim;
        for (uint32_t k = 0; k < head_dim; k++)
            q[i * head_dim + k] = from[k] * w->scale;
    }
}

static void store_outputs(const work *w, const queries *qs, partial total) {
    const uint32_t head_dim = w->pool->head_dim, value_dim = w->layout.value_dim;
    for (uint32_t i = 0; i < qs->n; i++) {
        uint64_t head = (uint64_t)(qs->first_row + i / qs->n_heads) * w->n_heads + qs->first_head + i % qs->n_heads;
        float *to = w->out + head * head_dim;
        const vf sum = vf_set(total.sum[i]);
        for (uint32_t v = 0; v < head_dim; v += LANES) {
            vf_store_n(to + v, vf_div(vf_load(total.out + i * value_dim + v), sum), least(head_dim - v, LANES));
        }
    }
}

static void attend_one_segment(const work *w, const queries *qs, uint32_t segment, const float *q, float *scores,
                               partial result) {
    switch (w->pool->type) {
    case RELAY_KV_F32:
        attend_segment(RELAY_KV_F32, w, qs, segment, q, scores, result);
        break;
    case RELAY_KV_BF16:
        attend_segment(RELAY_KV_BF16, w, qs, segment, q, scores, result);
        break;
    case RELAY_KV_INT8:
        attend_segment(RELAY_KV_INT8, w, qs, segment, q, scores, result);
        break;
    case RELAY_KV_INT4:
        attend_segment(RELAY_KV_INT4, w, qs, segment, q, scores, result);
        break;
    default:
        attend_segment(RELAY_KV_F16, w, qs, segment, q, scores, result);
    }
}

static void attend_task(void *arg, uint32_t task, uint32_t thread) {
    const work *w = arg;
    const queries qs = queries_of(w, task);
    float *q = thread_scratch(w, thread), *scores = q + QUERIES * w->pool->head_dim;
    partial total = partial_at(scores + QUERIES * SEGMENT);
    partial next = partial_at(scores + QUERIES * SEGMENT + partial_size(w));
    load_queries(w, &qs, q);
    attend_one_segment(w, &qs, qs.first_segment, q, scores, total);
    for (uint32_t s = qs.first_segment + 1; s <= qs.last_segment; s++) {
        attend_one_segment(w, &qs, s, q, scores, next);
        merge(total, next, qs.n, w->layout.value_dim);
    }
    store_outputs(w, &qs, total);
}

// The same in two steps, for few rows with many positions: each segment by itself, then their merging.

static partial shared_partial(const work *w, uint32_t task, uint32_t segment) {
    return partial_at(w->d->partials + ((uint64_t)task * w->n_segments + segment) * w->partial_floats);
}

static void segment_task(void *arg, uint32_t task, uint32_t thread) {
    const work *w = arg;
    const uint32_t segment = task % w->n_segments;
    task /= w->n_segments;
    const queries qs = queries_of(w, task);
    if (segment < qs.first_segment || segment > qs.last_segment) return;
    float *q = thread_scratch(w, thread), *scores = q + QUERIES * w->pool->head_dim;
    load_queries(w, &qs, q);
    attend_one_segment(w, &qs, segment, q, scores, shared_partial(w, task, segment));
}

static void merge_task(void *arg, uint32_t task, uint32_t thread) {
    const work *w = arg;
    const queries qs = queries_of(w, task);
    partial total = shared_partial(w, task, qs.first_segment);
    for (uint32_t s = qs.first_segment + 1; s <= qs.last_segment; s++) {
        merge(total, shared_partial(w, task, s), qs.n, w->layout.value_dim);
    }
    store_outputs(w, &qs, total);
}

// Rows of one sequence, and of one block where its keys are read apart from the others; at most `max_rows` each.
// Returns how many there are.
static uint32_t make_tiles(relay_attention_tile *tiles, const relay_rows *rows, uint32_t max_rows, bool by_block) {
    uint32_t n = 0, run = 0;
    for (uint32_t r = 0; r < rows->n_rows; r++) {
        bool goes_on =
            r > 0 && (by_block ? relay_kv_run_goes_on(rows, r) : rows->d_sequence[r] == rows->d_sequence[r - 1]);
        if (r > 0 && !goes_on) run++;
        if (!goes_on || tiles[n - 1].n_rows == max_rows)
            tiles[n++] = (relay_attention_tile){.first_row = r, .run = run};
        tiles[n - 1].n_rows++;
    }
    return n;
}

void RELAY_ISA(relay_attention)(relay_device *device, float *out, const float *q, const relay_kv_pool *pool,
                                uint32_t layer, const relay_rows *rows, uint32_t n_heads, float scale) {
    relay_cpu_device *d = relay_cpu_device_of(device);
    work w = {.d = d,
              .pool = pool,
              .rows = rows,
              .layout = relay_kv_layout_of(pool),
              .layer = layer,
              .q = q,
              .out = out,
              .scale = scale,
              .n_heads = n_heads,
              .group = n_heads / pool->n_kv_heads};
    RELAY_ASSERT(rows->n_rows <= d->opts.max_rows && pool->head_dim <= d->opts.max_width);
    w.n_parts = (w.group + QUERIES - 1) / QUERIES;
    w.partial_floats = partial_size(&w);
    const uint32_t n_tiles = make_tiles(d->tiles, rows, most(1, QUERIES / w.group), relay_kv_is_quantized(pool->type));
    const uint32_t n_tasks = n_tiles * pool->n_kv_heads * w.n_parts;
    uint32_t last_position = 0;
    for (uint32_t r = 0; r < rows->n_rows; r++)
        last_position = most(last_position, rows->d_position[r]);
    w.n_segments = last_position / SEGMENT + 1;
    const uint32_t n_threads = relay_pool_thread_count(d->pool);
    const bool is_shared = n_threads > 1 && n_tasks < 4 * n_threads && w.n_segments > 1 &&
                           (uint64_t)n_tasks * w.n_segments * w.partial_floats <= d->n_partial_floats;
    if (!is_shared) {
        relay_pool_run(d->pool, attend_task, &w, n_tasks);
    } else {
        relay_pool_run(d->pool, segment_task, &w, n_tasks * w.n_segments);
        relay_pool_run(d->pool, merge_task, &w, n_tasks);
    }
}
