// Products of activation rows with packed weights.
//
// One kernel for one row and for many: a tile is 1, 2, 4 or 8 rows by one panel of 16 outputs, and walks K from front
// to back. For an output element the operations and their order are the same in every tile size, so its bits depend on
// nothing but its own row and weights.
//
//   quantized weights: by blocks of 32 inputs, an exact integer sum, then sum = fma(integer, d * scale, sum), and for
//                      types with a min sum = fma(min, activations' sum, sum). Q6_K has a scale of its own for 16
//                      inputs.
//   float weights:     sum = fma(w, x, sum), input by input, float activations.
//
// Threads share out panels. Many rows are taken in strips that stay in the second-level cache while a few panels pass.
#include "kernels/cpu/ops.h"

#include <math.h>
#include <string.h>

#include "common/gguf.h"
#include "kernels/cpu/act.h"
#include "kernels/cpu/pack.h"

enum {
    STRIP_ROWS = 64,
    TASKS_PER_THREAD = 4,       // so that a thread that is disturbed holds up little
    MIN_TASK_BYTES = 32 * 1024, // of weights times rows: what is worth handing over
};

// ---- Bytes of 4 inputs of 16 outputs, and their product with 4 values of an activation row

#ifdef __AVX512F__

enum { MAX_TILE_ROWS = 8, FLOAT_PANELS = 4 };

typedef __m512i bytes64;
typedef __m512i quads; // what bytes64 is multiplied as
typedef struct dot_sum {
    __m512i high, low;
} dot_sum;

RELAY_INLINE bytes64 load_bytes(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}
RELAY_INLINE bytes64 low_nibbles(bytes64 v) {
    return _mm512_and_si512(v, _mm512_set1_epi8(0x0F));
}
RELAY_INLINE bytes64 high_nibbles(bytes64 v) {
    return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(0x0F));
}
// Adds 16 where the bit is set.
RELAY_INLINE bytes64 add_fifth_bits(bytes64 v, const uint8_t *bits) {
    uint64_t m;
    memcpy(&m, bits, sizeof m);
    return _mm512_mask_add_epi8(v, (__mmask64)m, v, _mm512_set1_epi8(16));
}
// Adds bits 2j and 2j + 1 of each byte of `pairs` as bits 4 and 5.
RELAY_INLINE bytes64 add_bit_pairs(bytes64 v, bytes64 pairs, int j) {
    bytes64 t =
        j < 2 ? _mm512_slli_epi16(pairs, (unsigned)(4 - 2 * j)) : _mm512_srli_epi16(pairs, (unsigned)(2 * j - 4));
    // v | (t & 0x30)
    return _mm512_ternarylogic_epi32(v, t, _mm512_set1_epi8(0x30), 0xF8);
}
RELAY_INLINE quads quads_of(bytes64 v) {
    return v;
}
RELAY_INLINE dot_sum dot_zero(void) {
    return (dot_sum){_mm512_setzero_si512(), _mm512_setzero_si512()};
}
RELAY_INLINE __m512i broadcast4(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}
RELAY_INLINE dot_sum dot_add(dot_sum s, quads w, const relay_act_block *x, int input) {
    s.high = _mm512_dpbusd_epi32(s.high, w, broadcast4(x->high + input));
    s.low = _mm512_dpbusd_epi32(s.low, w, broadcast4(x->low + input));
    return s;
}
RELAY_INLINE vi dot_total(dot_sum s) {
    return _mm512_add_epi32(_mm512_slli_epi32(s.high, 8), s.low);
}

static void quantize_16(relay_act_block *x, int half, vi q) {
    vi high = vi_sra(vi_add(q, vi_set(128)), 8);
    vi low = vi_sub(q, vi_sll(high, 8));
    _mm_storeu_si128((__m128i *)(x->high + 16 * half), _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128((__m128i *)(x->low + 16 * half), _mm512_cvtepi32_epi8(low));
}

#else // AVX2

enum { MAX_TILE_ROWS = 4, FLOAT_PANELS = 4 };

typedef vi bytes64;
typedef struct quads {
    vi even, odd; // bytes 0 and 2 of each 4, bytes 1 and 3, as 16-bit numbers
} quads;
typedef vi dot_sum;

RELAY_INLINE bytes64 load_bytes(const uint8_t *p) {
    return (bytes64){_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))};
}
RELAY_INLINE bytes64 low_nibbles(bytes64 v) {
    return vi_and(v, vi_set(0x0F0F0F0F));
}
RELAY_INLINE bytes64 high_nibbles(bytes64 v) {
    return vi_and((vi){_mm256_srli_epi16(v.a, 4), _mm256_srli_epi16(v.b, 4)}, vi_set(0x0F0F0F0F));
}
RELAY_INLINE __m256i fifth_bits_half(const uint8_t *bits) {
    int32_t m;
    memcpy(&m, bits, sizeof m);
    // Byte i / 8 of the 32 bits in every byte i, then bit i % 8 of it.
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(m), spread), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(v, bit), _mm256_set1_epi8(16));
}
RELAY_INLINE bytes64 add_fifth_bits(bytes64 v, const uint8_t *bits) {
    return (bytes64){_mm256_or_si256(v.a, fifth_bits_half(bits)), _mm256_or_si256(v.b, fifth_bits_half(bits + 4))};
}
RELAY_INLINE __m256i add_bit_pairs_half(__m256i v, __m256i pairs, int j) {
    __m256i t = j < 2 ? _mm256_slli_epi16(pairs, 4 - 2 * j) : _mm256_srli_epi16(pairs, 2 * j - 4);
    return _mm256_or_si256(v, _mm256_and_si256(t, _mm256_set1_epi8(0x30)));
}
RELAY_INLINE bytes64 add_bit_pairs(bytes64 v, bytes64 pairs, int j) {
    return (bytes64){add_bit_pairs_half(v.a, pairs.a, j), add_bit_pairs_half(v.b, pairs.b, j)};
}
RELAY_INLINE quads quads_of(bytes64 v) {
    return (quads){vi_and(v, vi_set(0x00FF00FF)), (vi){_mm256_srli_epi16(v.a, 8), _mm256_srli_epi16(v.b, 8)}};
}
RELAY_INLINE dot_sum dot_zero(void) {
    return vi_set(0);
}
RELAY_INLINE dot_sum dot_add_pairs(dot_sum s, vi w, const int16_t *x) {
    int32_t v;
    memcpy(&v, x, sizeof v);
    __m256i b = _mm256_set1_epi32(v);
    return (dot_sum){_mm256_add_epi32(s.a, _mm256_madd_epi16(w.a, b)),
                     _mm256_add_epi32(s.b, _mm256_madd_epi16(w.b, b))};
}
RELAY_INLINE dot_sum dot_add(dot_sum s, quads w, const relay_act_block *x, int input) {
    s = dot_add_pairs(s, w.even, x->pairs + input);
    return dot_add_pairs(s, w.odd, x->pairs + input + 2);
}
RELAY_INLINE vi dot_total(dot_sum s) {
    return s;
}

static void quantize_16(relay_act_block *x, int half, vi q) {
    // packs works within 128-bit halves: the four quarters come out as 0, 2, 1, 3.
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(q.a, q.b), 0xD8);
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, //
                                           0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    _mm256_storeu_si256((__m256i *)(x->pairs + 16 * half), _mm256_shuffle_epi8(packed, order));
}

#endif

// ---- Activations to integers

static void quantize_block(relay_act_block *out, const float *x) {
    vf x0 = vf_load(x), x1 = vf_load(x + LANES);
    // Magnitudes compare as integers, where infinity and NaN are larger than all numbers.
    vi m = vi_max(vi_and(vi_bits_of(x0), vi_set(0x7FFFFFFF)), vi_and(vi_bits_of(x1), vi_set(0x7FFFFFFF)));
    int32_t bits = vi_max_lane(m);
    float max;
    memcpy(&max, &bits, sizeof max);
    if (!isfinite(max)) {
        // No integer stands for these: every output of the row becomes NaN by the scale.
        memset(out, 0, sizeof *out);
        out->scale = out->sum = NAN;
        return;
    }
    bool is_zero = max < 1e-30f; // so small that its inverse could be infinite
    float inverse = is_zero ? 0 : RELAY_ACT_MAX / max;
    out->scale = is_zero ? 0 : max / RELAY_ACT_MAX;
    vi q0 = vi_round(vf_mul(x0, vf_set(inverse))), q1 = vi_round(vf_mul(x1, vf_set(inverse)));
    int32_t sum0 = vi_sum(q0), sum1 = vi_sum(q1);
    out->minus_sums[0] = -sum0;
    out->minus_sums[1] = -sum1;
    out->sum = out->scale * (float)(sum0 + sum1);
    quantize_16(out, 0, q0);
    quantize_16(out, 1, q1);
}

static void quantize_row(relay_act_block *out, const float *x, uint32_t n_in) {
    for (uint32_t i = 0; i < n_in; i += RELAY_QUANT_BLOCK)
        quantize_block(out++, x + i);
}

// ---- Quantized weights

// The quants of inputs 16 * half + 4j .. + 3.
RELAY_INLINE quads load_quads(uint32_t type, const uint8_t *q, int half, int j) {
    if (type == RELAY_GGML_Q8_0) return quads_of(load_bytes(q + (4 * half + j) * 64));
    bytes64 v = load_bytes(q + j * 64);
    v = half == 0 ? low_nibbles(v) : high_nibbles(v);
    if (type == RELAY_GGML_Q5_0) v = add_fifth_bits(v, q + 256 + (4 * half + j) * 8);
    if (type == RELAY_GGML_Q6_K) v = add_bit_pairs(v, load_bytes(q + 256 + half * 64), j);
    return quads_of(v);
}

// log2 of what was added to the quants to make them unsigned; 0: nothing.
RELAY_INLINE int offset_shift(uint32_t type) {
    switch (type) {
    case RELAY_GGML_Q4_0:
        return 3;
    case RELAY_GGML_Q5_0:
        return 4;
    case RELAY_GGML_Q6_K:
        return 5;
    case RELAY_GGML_Q8_0:
        return 7;
    default:
        return 0;
    }
}

// A loop over a tile's rows, panels or vectors: it must be unrolled for the tile to live in registers.
#define UNROLLED _Pragma("GCC unroll 8") for

RELAY_INLINE const uint16_t *halves(const uint8_t *p) {
    return (const uint16_t *)(const void *)p;
}

// A panel of a weight, and how far ahead of what is read of it the cache should be filled: decoding waits for memory
// more than for anything else, and the processor's own prefetching stops at the end of a page.
typedef struct panel {
    const relay_weight *w;
    const uint8_t *bytes;
    uint64_t ahead;
} panel;

RELAY_INLINE void fill_cache(const uint8_t *p, uint32_t bytes) {
    UNROLLED(uint32_t i = 0; i < bytes; i += 64) {
        _mm_prefetch((const char *)p + i, _MM_HINT_T1);
    }
}

// R rows of activations times one panel. `x` has a stride of x_stride blocks a row, `out` is [R][16].
RELAY_INLINE void quant_tile(uint32_t type, int R, panel p, const relay_act_block *x, uint64_t x_stride, vf *out) {
    const bool is_k = type == RELAY_GGML_Q4_K || type == RELAY_GGML_Q6_K;
    const bool has_min = type == RELAY_GGML_Q4_1 || type == RELAY_GGML_Q4_K;
    const bool by_16 = type == RELAY_GGML_Q6_K; // scales of 16 inputs
    const int shift = offset_shift(type);
    const uint32_t n_blocks = p.w->n_in / RELAY_QUANT_BLOCK;
    const uint8_t *q = p.bytes, *s = p.bytes + p.w->quants_bytes;
    vf sum[MAX_TILE_ROWS];
    UNROLLED(int r = 0; r < R; r++) sum[r] = vf_set(0);
    vf d = vf_set(0), dmin = vf_set(0);
    for (uint32_t b = 0; b < n_blocks; b++) {
        if (!is_k || b % 8 == 0) {
            d = vf_load_f16(halves(s));
            s += 2 * LANES;
            if (has_min) {
                dmin = vf_load_f16(halves(s));
                s += 2 * LANES;
            }
        }
        vf scale[2] = {d, d}, min = dmin; // of either 16 inputs
        if (type == RELAY_GGML_Q4_K) {
            scale[0] = scale[1] = vf_mul(d, vf_load_u8(s));
            min = vf_mul(vf_set(-1), vf_mul(dmin, vf_load_u8(s + LANES)));
            s += 2 * LANES;
        } else if (type == RELAY_GGML_Q6_K) {
            scale[0] = vf_mul(d, vf_load_i8(s));
            scale[1] = vf_mul(d, vf_load_i8(s + LANES));
            s += 2 * LANES;
        }
        fill_cache(q + p.ahead, relay_pack_quant_bytes(type));
        fill_cache(s + p.ahead, 64);
        dot_sum dot[MAX_TILE_ROWS];
        UNROLLED(int half = 0; half < 2; half++) {
            if (half == 0 || by_16) {
                UNROLLED(int r = 0; r < R; r++) dot[r] = dot_zero();
            }
            UNROLLED(int j = 0; j < 4; j++) {
                quads v = load_quads(type, q, half, j);
                UNROLLED(int r = 0; r < R; r++) dot[r] = dot_add(dot[r], v, x + r * x_stride + b, 16 * half + 4 * j);
            }
            if (half == 0 && !by_16) continue;
            UNROLLED(int r = 0; r < R; r++) {
                const relay_act_block *xr = x + r * x_stride + b;
                vi total = dot_total(dot[r]);
                if (shift != 0) {
                    int32_t minus = by_16 ? xr->minus_sums[half] : xr->minus_sums[0] + xr->minus_sums[1];
                    total = vi_add(total, vi_sll(vi_set(minus), shift));
                }
                sum[r] = vf_fma(vf_from_vi(total), vf_mul(scale[half], vf_set(xr->scale)), sum[r]);
                if (has_min) sum[r] = vf_fma(min, vf_set(xr->sum), sum[r]);
            }
        }
        q += relay_pack_quant_bytes(type);
    }
    UNROLLED(int r = 0; r < R; r++) out[r] = sum[r];
}

// ---- Float weights

RELAY_INLINE vf load_floats(uint32_t type, const uint8_t *p) {
    switch (type) {
    case RELAY_GGML_F16:
        return vf_load_f16(halves(p));
    case RELAY_GGML_BF16:
        return vf_load_bf16(halves(p));
    default:
        return vf_load((const float *)(const void *)p);
    }
}

// R rows times P panels that follow one another; out is [P][R].
RELAY_INLINE void float_tile(uint32_t type, int R, int P, panel first, const float *x, vf *out) {
    const uint32_t n_in = first.w->n_in, group_bytes = (type == RELAY_GGML_F32 ? 4 : 2) * LANES;
    vf sum[MAX_TILE_ROWS];
    UNROLLED(int i = 0; i < R * P; i++) {
        sum[i] = vf_set(0);
    }
    for (uint32_t k = 0; k < n_in; k++) {
        UNROLLED(int p = 0; p < P; p++) {
            const uint8_t *group = first.bytes + p * first.w->panel_bytes + (uint64_t)k * group_bytes;
            fill_cache(group + first.ahead, 1);
            vf v = load_floats(type, group);
            UNROLLED(int r = 0; r < R; r++) {
                sum[p * R + r] = vf_fma(v, vf_set(x[(uint64_t)r * n_in + k]), sum[p * R + r]);
            }
        }
    }
    UNROLLED(int i = 0; i < R * P; i++) {
        out[i] = sum[i];
    }
}

// ---- Tiles by name: one function a type and size

typedef struct operands {
    const float *x;            // [n_rows, n_in]
    const relay_act_block *xq; // [n_rows, n_in / 32]
    uint64_t xq_stride;
} operands;

// One tile of rows from `row` on; `out` as the tile has it.
typedef void (*tile_fn)(panel p, const operands *in, uint32_t row, vf *out);

#define QUANT_TILE(type, R)                                                                                            \
    static void type##_##R(panel p, const operands *in, uint32_t row, vf *out) {                                       \
        quant_tile(RELAY_GGML_##type, R, p, in->xq + row * in->xq_stride, in->xq_stride, out);                         \
    }
#define FLOAT_TILE(type, R, P)                                                                                         \
    static void type##_##R##_##P(panel p, const operands *in, uint32_t row, vf *out) {                                 \
        float_tile(RELAY_GGML_##type, R, P, p, in->x + (uint64_t)row * p.w->n_in, out);                                \
    }

typedef struct tiles {
    uint32_t type;
    tile_fn rows[4];   // of 1, 2, 4, 8 rows; the last is NULL where that is too many for the registers
    tile_fn one_row_4; // one row times 4 panels, for types whose one-row tile is bound by latency; else NULL
} tiles;

#ifdef __AVX512F__
#define TILE_8(name)       name
#define QUANT_TILE_8(type) QUANT_TILE(type, 8)
#define FLOAT_TILE_8(type) FLOAT_TILE(type, 8, 1)
#else
#define TILE_8(name) NULL
#define QUANT_TILE_8(type)
#define FLOAT_TILE_8(type)
#endif

#define QUANT_TILES(type)                                                                                              \
    QUANT_TILE(type, 1)                                                                                                \
    QUANT_TILE(type, 2)                                                                                                \
    QUANT_TILE(type, 4)                                                                                                \
    QUANT_TILE_8(type)
#define FLOAT_TILES(type)                                                                                              \
    FLOAT_TILE(type, 1, 1)                                                                                             \
    FLOAT_TILE(type, 2, 1)                                                                                             \
    FLOAT_TILE(type, 4, 1)                                                                                             \
    FLOAT_TILE(type, 1, 4)                                                                                             \
    FLOAT_TILE_8(type)
#define QUANT_ENTRY(type)                                                                                              \
    { RELAY_GGML_##type, {type##_1, type##_2, type##_4, TILE_8(type##_8)}, NULL }
#define FLOAT_ENTRY(type)                                                                                              \
    { RELAY_GGML_##type, {type##_1_1, type##_2_1, type##_4_1, TILE_8(type##_8_1)}, type##_1_4 }

FLOAT_TILES(F32)
FLOAT_TILES(F16)
FLOAT_TILES(BF16)
QUANT_TILES(Q4_0)
QUANT_TILES(Q4_1)
QUANT_TILES(Q5_0)
QUANT_TILES(Q8_0)
QUANT_TILES(Q4_K)
QUANT_TILES(Q6_K)

static const tiles all_tiles[] = {
    FLOAT_ENTRY(F32),  FLOAT_ENTRY(F16),  FLOAT_ENTRY(BF16), QUANT_ENTRY(Q4_0), QUANT_ENTRY(Q4_1),
    QUANT_ENTRY(Q5_0), QUANT_ENTRY(Q8_0), QUANT_ENTRY(Q4_K), QUANT_ENTRY(Q6_K),
};

static const tiles *find_tiles(uint32_t type) {
    for (uint32_t i = 0; i < sizeof all_tiles / sizeof *all_tiles; i++) {
        if (all_tiles[i].type == type) return &all_tiles[i];
    }
    RELAY_ASSERT(!"a type that weight_create refuses");
    return NULL;
}

// ---- The operation

typedef struct product {
    const relay_matmul_job *jobs;
    uint32_t n_jobs;
    uint32_t n_rows;
    operands in;
    relay_act_block *xq;      // what in.xq points to, while it is made
    uint32_t rows_per_task;   // of quantizing
    uint32_t panels_per_task; // of multiplying; tasks of the jobs follow one another
} product;

static uint32_t task_count(const relay_weight *w, uint32_t panels_per_task) {
    return (w->n_panels + panels_per_task - 1) / panels_per_task;
}

static void store_tile(const relay_matmul_job *job, uint32_t index, uint32_t row, uint32_t n_rows, const vf *tile) {
    const uint32_t n_out = job->w->n_out, first = index * LANES;
    const uint32_t n = n_out - first < LANES ? n_out - first : LANES;
    vf bias = job->d_bias != NULL ? vf_load_n(job->d_bias + first, n) : vf_set(0);
    for (uint32_t r = 0; r < n_rows; r++) {
        vf y = job->d_bias != NULL ? vf_add(tile[r], bias) : tile[r];
        vf_store_n(job->d_out + (uint64_t)(row + r) * n_out + first, y, n);
    }
}

static panel panel_of(const relay_weight *w, uint32_t index, uint64_t ahead) {
    return (panel){w, w->data + index * w->panel_bytes, ahead};
}

// Rows [first, last) times one panel, in the largest tiles that fit.
static void multiply_rows(const tiles *t, const relay_matmul_job *job, uint32_t index, uint64_t ahead,
                          const operands *in, uint32_t first, uint32_t last) {
    vf out[MAX_TILE_ROWS];
    for (uint32_t row = first; row < last;) {
        int size = 3;
        while (t->rows[size] == NULL || row + (1u << size) > last) {
            size--;
        }
        t->rows[size](panel_of(job->w, index, ahead), in, row, out);
        store_tile(job, index, row, 1u << size, out);
        row += 1u << size;
        ahead = 0; // once is enough
    }
}

static void multiply_task(void *arg, uint32_t task, uint32_t thread) {
    const product *p = arg;
    const relay_matmul_job *job = p->jobs;
    while (task >= task_count(job->w, p->panels_per_task)) {
        task -= task_count(job->w, p->panels_per_task);
        job++;
    }
    const tiles *t = find_tiles(job->w->ggml_type);
    uint32_t first = task * p->panels_per_task, last = first + p->panels_per_task;
    if (last > job->w->n_panels) last = job->w->n_panels;
    // The panel that this thread takes next is read ahead; the last one's successor is another's.
    const uint64_t ahead = job->w->panel_bytes;
    if (p->n_rows == 1 && t->one_row_4 != NULL) {
        vf out[FLOAT_PANELS];
        for (; first + FLOAT_PANELS <= last; first += FLOAT_PANELS) {
            bool is_last = first + 2 * FLOAT_PANELS > last;
            t->one_row_4(panel_of(job->w, first, is_last ? 0 : FLOAT_PANELS * ahead), &p->in, 0, out);
            for (uint32_t i = 0; i < FLOAT_PANELS; i++) {
                store_tile(job, first + i, 0, 1, &out[i]);
            }
        }
    }
    for (uint32_t row = 0; row < p->n_rows; row += STRIP_ROWS) {
        uint32_t end = row + STRIP_ROWS < p->n_rows ? row + STRIP_ROWS : p->n_rows;
        for (uint32_t i = first; i < last; i++) {
            multiply_rows(t, job, i, i + 1 < last ? ahead : 0, &p->in, row, end);
        }
    }
}

static void quantize_task(void *arg, uint32_t task, uint32_t thread) {
    const product *p = arg;
    const uint32_t n_in = p->jobs[0].w->n_in;
    uint32_t first = task * p->rows_per_task, last = first + p->rows_per_task;
    if (last > p->n_rows) last = p->n_rows;
    for (uint32_t r = first; r < last; r++) {
        quantize_row(p->xq + r * p->in.xq_stride, p->in.x + (uint64_t)r * n_in, n_in);
    }
}

static uint32_t smaller(uint64_t a, uint64_t b) {
    return (uint32_t)(a < b ? a : b);
}

void RELAY_ISA(relay_matmul)(relay_device *device, const float *x, uint32_t n_rows, const relay_matmul_job *jobs,
                             uint32_t n_jobs) {
    relay_cpu_device *d = relay_cpu_device_of(device);
    const uint32_t n_in = jobs[0].w->n_in;
    RELAY_ASSERT(n_rows <= d->opts.max_rows && n_in <= d->opts.max_width);
    product p = {.jobs = jobs, .n_jobs = n_jobs, .n_rows = n_rows, .in = {x, d->acts, n_in / RELAY_QUANT_BLOCK}};
    p.xq = d->acts;
    uint32_t n_panels = 0;
    uint64_t bytes = 0;
    bool is_any_quantized = false;
    for (uint32_t j = 0; j < n_jobs; j++) {
        RELAY_ASSERT(jobs[j].w->n_in == n_in);
        n_panels += jobs[j].w->n_panels;
        bytes += relay_pack_bytes(jobs[j].w);
        is_any_quantized |= jobs[j].w->is_quantized;
    }
    const uint32_t n_threads = relay_pool_thread_count(d->pool);
    if (is_any_quantized) {
        p.rows_per_task = 1 + 8192 / n_in;
        relay_pool_run(d->pool, quantize_task, &p, (n_rows + p.rows_per_task - 1) / p.rows_per_task);
    }
    uint32_t wanted = smaller(n_threads * TASKS_PER_THREAD, 1 + bytes * n_rows / MIN_TASK_BYTES);
    p.panels_per_task = (n_panels + wanted - 1) / wanted;
    uint32_t n_tasks = 0;
    for (uint32_t j = 0; j < n_jobs; j++)
        n_tasks += task_count(jobs[j].w, p.panels_per_task);
    relay_pool_run(d->pool, multiply_task, &p, n_tasks);
}
