// Attention over the paged cache, and the writing of it.
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

RELAY_INLINE vf load_kv(bool is_f16, const char *p, uint32_t index) {
    return is_f16 ? vf_load_f16((const uint16_t *)(const void *)p + index)
                  : vf_load((const float *)(const void *)p + index);
}

// Scores of NQ queries with NB blocks of keys; `q` has a stride of head_dim, `scores` of SEGMENT.
RELAY_INLINE void score_blocks(bool is_f16, int NQ, int NB, char *const *keys, const float *q, uint32_t head_dim,
                               float *scores) {
    vf sum[8];
    UNROLLED(int i = 0; i < NQ * NB; i++) sum[i] = vf_set(0);
    for (uint32_t k = 0; k < head_dim; k++) {
        UNROLLED(int b = 0; b < NB; b++) {
            vf key = load_kv(is_f16, keys[b], k * LANES);
            UNROLLED(int i = 0; i < NQ; i++) {
                sum[b * NQ + i] = vf_fma(key, vf_set(q[(uint32_t)i * head_dim + k]), sum[b * NQ + i]);
            }
        }
    }
    UNROLLED(int b = 0; b < NB; b++) {
        UNROLLED(int i = 0; i < NQ; i++) vf_store(scores + i * SEGMENT + b * LANES, sum[b * NQ + i]);
    }
}

RELAY_INLINE void score_range(bool is_f16, int NQ, int NB, char *const *keys, uint32_t first, uint32_t last,
                              const float *q, uint32_t head_dim, float *scores) {
    uint32_t b = first;
    for (; b + (uint32_t)NB <= last; b += (uint32_t)NB) {
        score_blocks(is_f16, NQ, NB, keys + b, q, head_dim, scores + b * LANES);
    }
    for (; b < last; b++)
        score_blocks(is_f16, NQ, 1, keys + b, q, head_dim, scores + b * LANES);
}

// Few queries take several blocks at once, so that there are sums enough to hide the latency of one.
RELAY_INLINE void score_queries(bool is_f16, uint32_t n, char *const *keys, uint32_t first, uint32_t last,
                                const float *q, uint32_t head_dim, float *scores) {
    switch (n) {
    case 1:
        score_range(is_f16, 1, 4, keys, first, last, q, head_dim, scores);
        break;
    case 2:
        score_range(is_f16, 2, SCORE_QUERIES / 2, keys, first, last, q, head_dim, scores);
        break;
    case 3:
        score_range(is_f16, 3, SCORE_QUERIES / 4, keys, first, last, q, head_dim, scores);
        break;
    case 4:
        score_range(is_f16, 4, SCORE_QUERIES / 4, keys, first, last, q, head_dim, scores);
        break;
#ifdef __AVX512F__
    case 5:
        score_range(is_f16, 5, 1, keys, first, last, q, head_dim, scores);
        break;
    case 6:
        score_range(is_f16, 6, 1, keys, first, last, q, head_dim, scores);
        break;
    case 7:
        score_range(is_f16, 7, 1, keys, first, last, q, head_dim, scores);
        break;
    case 8:
        score_range(is_f16, 8, 1, keys, first, last, q, head_dim, scores);
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

// out[i] += the sum over positions [begin, end) of weights[i] times values, for NQ queries and NV vectors of each.
RELAY_INLINE void add_values(bool is_f16, int NQ, int NV, char *const *values, uint32_t value_dim, uint32_t begin,
                             uint32_t end, const float *weights, float *out) {
    vf sum[VALUE_QUERIES * VALUE_VECTORS];
    UNROLLED(int i = 0; i < NQ; i++) {
        UNROLLED(int v = 0; v < NV; v++) sum[i * NV + v] = vf_load(out + (uint32_t)i * value_dim + v * LANES);
    }
    for (uint32_t p = begin; p < end; p++) {
        const uint32_t at = p % LANES * value_dim;
        vf value[VALUE_VECTORS];
        UNROLLED(int v = 0; v < NV; v++) value[v] = load_kv(is_f16, values[p / LANES], at + v * LANES);
        UNROLLED(int i = 0; i < NQ; i++) {
            vf weight = vf_set(weights[i * SEGMENT + p]);
            UNROLLED(int v = 0; v < NV; v++) sum[i * NV + v] = vf_fma(weight, value[v], sum[i * NV + v]);
        }
    }
    UNROLLED(int i = 0; i < NQ; i++) {
        UNROLLED(int v = 0; v < NV; v++) vf_store(out + (uint32_t)i * value_dim + v * LANES, sum[i * NV + v]);
    }
}

RELAY_INLINE void add_values_of(bool is_f16, int NQ, char *const *values, uint32_t value_dim, uint32_t begin,
                                uint32_t end, const float *weights, float *out) {
    char *moved[SEGMENT_BLOCKS];
    uint32_t i = 0;
    for (; i + VALUE_VECTORS * LANES <= value_dim; i += VALUE_VECTORS * LANES) {
        for (uint32_t b = begin / LANES; b * LANES < end; b++)
            moved[b] = values[b] + i * (is_f16 ? 2u : 4u);
        add_values(is_f16, NQ, VALUE_VECTORS, moved, value_dim, begin, end, weights, out + i);
    }
    for (; i < value_dim; i += LANES) {
        for (uint32_t b = begin / LANES; b * LANES < end; b++)
            moved[b] = values[b] + i * (is_f16 ? 2u : 4u);
        add_values(is_f16, NQ, 1, moved, value_dim, begin, end, weights, out + i);
    }
}

RELAY_INLINE void add_values_queries(bool is_f16, uint32_t n, char *const *values, uint32_t value_dim, uint32_t begin,
                                     uint32_t end, const float *weights, float *out) {
    if (begin >= end) return;
    switch (n) {
    case 1:
        add_values_of(is_f16, 1, values, value_dim, begin, end, weights, out);
        break;
    case 2:
        add_values_of(is_f16, 2, values, value_dim, begin, end, weights, out);
        break;
#ifdef __AVX512F__
    case 3:
        add_values_of(is_f16, 3, values, value_dim, begin, end, weights, out);
        break;
    case 4:
        add_values_of(is_f16, 4, values, value_dim, begin, end, weights, out);
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
RELAY_INLINE void attend_segment(bool is_f16, const work *w, const queries *qs, uint32_t segment, const float *q,
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
    char *keys[SEGMENT_BLOCKS], *values[SEGMENT_BLOCKS];
    for (uint32_t b = first_block; b < last_block; b++) {
        keys[b] =
            relay_kv_head(w->pool, &w->layout, qs->block_ids[segment * SEGMENT_BLOCKS + b], w->layer, qs->kv_head);
        values[b] = keys[b] + w->layout.keys_bytes;
    }
    for (uint32_t i = 0; i < qs->n; i += SCORE_QUERIES) {
        uint32_t n = least(qs->n - i, SCORE_QUERIES);
        score_queries(is_f16, n, keys, first_block, last_block, q + i * head_dim, head_dim, scores + i * SEGMENT);
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
            add_values_queries(is_f16, 1, values, value_dim, begin[j], least(end[j], from), scores + j * SEGMENT,
                               result.out + j * value_dim);
        }
        add_values_queries(is_f16, n, values, value_dim, from, to, scores + i * SEGMENT, result.out + i * value_dim);
        for (uint32_t j = i; j < i + n; j++) {
            add_values_queries(is_f16, 1, values, value_dim, most(begin[j], to), end[j], scores + j * SEGMENT,
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
    if (w->pool->type == RELAY_KV_F16) {
        attend_segment(true, w, qs, segment, q, scores, result);
    } else {
        attend_segment(false, w, qs, segment, q, scores, result);
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

// Runs of rows of one sequence, at most `max_rows` each. Returns how many.
static uint32_t make_tiles(relay_attention_tile *tiles, const relay_rows *rows, uint32_t max_rows) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < rows->n_rows; r++) {
        bool goes_on = n > 0 && tiles[n - 1].n_rows < max_rows && rows->d_sequence[r] == rows->d_sequence[r - 1];
        if (!goes_on) tiles[n++] = (relay_attention_tile){r, 0};
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
    const uint32_t n_tiles = make_tiles(d->tiles, rows, most(1, QUERIES / w.group));
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

// ---- Writing

typedef struct store {
    const relay_kv_pool *pool;
    relay_kv_layout layout;
    uint32_t layer;
    const float *k, *v;
    const relay_rows *rows;
    uint32_t rows_per_task;
} store;

static void store_head(const store *s, char *head, uint32_t slot, const float *k, const float *v) {
    const uint32_t head_dim = s->pool->head_dim;
    float padded[LANES];
    if (s->pool->type == RELAY_KV_F16) {
        uint16_t *keys = (uint16_t *)(void *)head + slot;
        uint16_t *values = (uint16_t *)(void *)(head + s->layout.keys_bytes) + slot * s->layout.value_dim;
        for (uint32_t i = 0; i < head_dim; i += LANES) {
            uint32_t n = least(head_dim - i, LANES);
            uint16_t halves[LANES];
            vf_store_f16(halves, vf_load_n(k + i, n));
            for (uint32_t j = 0; j < n; j++)
                keys[(i + j) * LANES] = halves[j];
            vf_store_f16(values + i, vf_load_n(v + i, n));
        }
    } else {
        float *keys = (float *)(void *)head + slot;
        float *values = (float *)(void *)(head + s->layout.keys_bytes) + slot * s->layout.value_dim;
        for (uint32_t i = 0; i < head_dim; i += LANES) {
            uint32_t n = least(head_dim - i, LANES);
            vf_store(padded, vf_load_n(k + i, n));
            for (uint32_t j = 0; j < n; j++)
                keys[(i + j) * LANES] = padded[j];
            vf_store(values + i, vf_load_n(v + i, n));
        }
    }
}

static void store_task(void *arg, uint32_t task, uint32_t thread) {
    const store *s = arg;
    const relay_rows *rows = s->rows;
    const uint32_t n_kv_heads = s->pool->n_kv_heads, head_dim = s->pool->head_dim;
    for (uint32_t r = task * s->rows_per_task; r < least((task + 1) * s->rows_per_task, rows->n_rows); r++) {
        uint32_t position = rows->d_position[r];
        uint32_t table = rows->d_table_begin[rows->d_sequence[r]];
        uint32_t block = rows->d_block_ids[table + position / RELAY_BLOCK_TOKENS];
        for (uint32_t h = 0; h < n_kv_heads; h++) {
            const uint64_t at = ((uint64_t)r * n_kv_heads + h) * head_dim;
            char *head = relay_kv_head(s->pool, &s->layout, block, s->layer, h);
            store_head(s, head, position % RELAY_BLOCK_TOKENS, s->k + at, s->v + at);
        }
    }
}

void RELAY_ISA(relay_kv_store)(relay_device *d, const relay_kv_pool *pool, uint32_t layer, const float *k,
                               const float *v, const relay_rows *rows) {
    store s = {.pool = pool, .layout = relay_kv_layout_of(pool), .layer = layer, .k = k, .v = v, .rows = rows};
    s.rows_per_task = RELAY_BLOCK_TOKENS;
    relay_pool_run(relay_cpu_device_of(d)->pool, store_task, &s,
                   (rows->n_rows + s.rows_per_task - 1) / s.rows_per_task);
}
