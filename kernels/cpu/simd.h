// Vectors of 16 lanes for the instruction set that the including file is compiled for: one zmm register with AVX-512,
// two ymm registers with AVX2.
//
// Both do the same IEEE operations lane by lane, and reductions go down one tree, so code written with these functions
// gives the same bits on both.
#ifndef RELAY_KERNELS_CPU_SIMD_H
#define RELAY_KERNELS_CPU_SIMD_H

#include <immintrin.h>
#include <stdint.h>

#define RELAY_INLINE static inline __attribute__((always_inline))

// Names of what is compiled once an instruction set: RELAY_ISA(relay_matmul) is relay_matmul_avx2.
#define RELAY_ISA_PASTE(name, isa)  name##_##isa
#define RELAY_ISA_EXPAND(name, isa) RELAY_ISA_PASTE(name, isa)
#define RELAY_ISA(name)             RELAY_ISA_EXPAND(name, RELAY_ISA_TARGET)

enum { LANES = 16 };

#ifdef __AVX512F__

typedef __m512 vf;    // 16 float32
typedef __m512i vi;   // 16 int32
typedef __mmask16 vm; // 16 booleans

RELAY_INLINE vf vf_set(float x) {
    return _mm512_set1_ps(x);
}
RELAY_INLINE vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
RELAY_INLINE vf vf_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
RELAY_INLINE vf vf_load_bf16(const uint16_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
// The first n lanes, zeros behind; touches nothing past them.
RELAY_INLINE vf vf_load_n(const float *p, uint32_t n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
RELAY_INLINE void vf_store(float *p, vf x) {
    _mm512_storeu_ps(p, x);
}
RELAY_INLINE void vf_store_n(float *p, vf x, uint32_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}
RELAY_INLINE void vf_store_f16(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
RELAY_INLINE vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
RELAY_INLINE vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
RELAY_INLINE vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
RELAY_INLINE vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
// a * b + c, rounded once
RELAY_INLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
// b where a or b is NaN
RELAY_INLINE vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
RELAY_INLINE vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
RELAY_INLINE vf vf_round(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
RELAY_INLINE vf vf_from_vi(vi a) {
    return _mm512_cvtepi32_ps(a);
}
RELAY_INLINE vf vf_from_bits(vi a) {
    return _mm512_castsi512_ps(a);
}
// The signed bytes or unsigned bytes of 16 lanes.
RELAY_INLINE vf vf_load_i8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
RELAY_INLINE vf vf_load_u8(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
// The nibbles of 8 bytes: lanes 0..7 the low ones, 8..15 the high ones.
RELAY_INLINE vf vf_load_u4(const uint8_t *p) {
    __m128i bytes = _mm_loadl_epi64((const __m128i *)p);
    __m128i nibbles = _mm_unpacklo_epi64(bytes, _mm_srli_epi16(bytes, 4));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_and_si128(nibbles, _mm_set1_epi8(15))));
}
// One half in every lane.
RELAY_INLINE vf vf_set_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)*p));
}

// False where either is NaN.
RELAY_INLINE vm vf_lt(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
RELAY_INLINE vm vf_le(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
RELAY_INLINE vm vf_eq(vf a, vf b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
RELAY_INLINE vm vi_lt(vi a, vi b) {
    return _mm512_cmp_epi32_mask(a, b, _MM_CMPINT_LT);
}
RELAY_INLINE vm vm_and(vm a, vm b) {
    return a & b;
}
RELAY_INLINE vm vm_or(vm a, vm b) {
    return a | b;
}
// Lane i as bit i.
RELAY_INLINE uint32_t vm_bits(vm m) {
    return m;
}
// b where the mask is set, else a
RELAY_INLINE vf vf_select(vm m, vf a, vf b) {
    return _mm512_mask_blend_ps(m, a, b);
}

RELAY_INLINE vi vi_set(int32_t x) {
    return _mm512_set1_epi32(x);
}
RELAY_INLINE vi vi_lane_index(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
RELAY_INLINE vi vi_add(vi a, vi b) {
    return _mm512_add_epi32(a, b);
}
RELAY_INLINE vi vi_sub(vi a, vi b) {
    return _mm512_sub_epi32(a, b);
}
RELAY_INLINE vi vi_and(vi a, vi b) {
    return _mm512_and_si512(a, b);
}
RELAY_INLINE vi vi_max(vi a, vi b) {
    return _mm512_max_epi32(a, b);
}
RELAY_INLINE vi vi_sll(vi a, int n) {
    return _mm512_slli_epi32(a, (unsigned)n);
}
RELAY_INLINE vi vi_sra(vi a, int n) {
    return _mm512_srai_epi32(a, (unsigned)n);
}
RELAY_INLINE vi vi_bits_of(vf a) {
    return _mm512_castps_si512(a);
}
// Rounded to nearest even.
RELAY_INLINE vi vi_round(vf a) {
    return _mm512_cvtps_epi32(a);
}
RELAY_INLINE __m256i half_low(vi a) {
    return _mm512_castsi512_si256(a);
}
RELAY_INLINE __m256i half_high(vi a) {
    return _mm512_extracti64x4_epi64(a, 1);
}
RELAY_INLINE __m256 fhalf_low(vf a) {
    return _mm512_castps512_ps256(a);
}
RELAY_INLINE __m256 fhalf_high(vf a) {
    return _mm512_extractf32x8_ps(a, 1);
}

#else // AVX2

typedef struct vf {
    __m256 a, b; // lanes 0..7, 8..15
} vf;
typedef struct vi {
    __m256i a, b;
} vi;
typedef vi vm; // all bits of a lane

RELAY_INLINE vf vf_set(float x) {
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
RELAY_INLINE vf vf_load(const float *p) {
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
RELAY_INLINE vf vf_load_f16(const uint16_t *p) {
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}
RELAY_INLINE __m256 half_load_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
RELAY_INLINE vf vf_load_bf16(const uint16_t *p) {
    return (vf){half_load_bf16(p), half_load_bf16(p + 8)};
}
RELAY_INLINE vi first_lanes(uint32_t n) {
    __m256i limit = _mm256_set1_epi32((int32_t)n);
    return (vi){_mm256_cmpgt_epi32(limit, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                _mm256_cmpgt_epi32(limit, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
RELAY_INLINE vf vf_load_n(const float *p, uint32_t n) {
    vi m = first_lanes(n);
    return (vf){_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
RELAY_INLINE void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
RELAY_INLINE void vf_store_n(float *p, vf x, uint32_t n) {
    vi m = first_lanes(n);
    _mm256_maskstore_ps(p, m.a, x.a);
    _mm256_maskstore_ps(p + 8, m.b, x.b);
}
RELAY_INLINE void vf_store_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
RELAY_INLINE vf vf_add(vf x, vf y) {
    return (vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
RELAY_INLINE vf vf_sub(vf x, vf y) {
    return (vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
RELAY_INLINE vf vf_mul(vf x, vf y) {
    return (vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
RELAY_INLINE vf vf_div(vf x, vf y) {
    return (vf){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
RELAY_INLINE vf vf_fma(vf x, vf y, vf z) {
    return (vf){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
RELAY_INLINE vf vf_max(vf x, vf y) {
    return (vf){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
RELAY_INLINE vf vf_min(vf x, vf y) {
    return (vf){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
RELAY_INLINE vf vf_round(vf x) {
    return (vf){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
RELAY_INLINE vf vf_from_vi(vi x) {
    return (vf){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
RELAY_INLINE vf vf_from_bits(vi x) {
    return (vf){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
RELAY_INLINE vf vf_load_i8(const uint8_t *p) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return vf_from_vi((vi){_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))});
}
RELAY_INLINE vf vf_load_u8(const uint8_t *p) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return vf_from_vi((vi){_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))});
}
RELAY_INLINE vf vf_load_u4(const uint8_t *p) {
    __m128i bytes = _mm_loadl_epi64((const __m128i *)p), mask = _mm_set1_epi8(15);
    return vf_from_vi((vi){_mm256_cvtepu8_epi32(_mm_and_si128(bytes, mask)),
                           _mm256_cvtepu8_epi32(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask))});
}
RELAY_INLINE vf vf_set_f16(const uint16_t *p) {
    __m256 x = _mm256_cvtph_ps(_mm_set1_epi16((short)*p));
    return (vf){x, x};
}

RELAY_INLINE vi vi_bits_of(vf x) {
    return (vi){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
RELAY_INLINE vm vf_lt(vf x, vf y) {
    return vi_bits_of((vf){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)});
}
RELAY_INLINE vm vf_le(vf x, vf y) {
    return vi_bits_of((vf){_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)});
}
RELAY_INLINE vm vf_eq(vf x, vf y) {
    return vi_bits_of((vf){_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)});
}
RELAY_INLINE vm vi_lt(vi x, vi y) {
    return (vm){_mm256_cmpgt_epi32(y.a, x.a), _mm256_cmpgt_epi32(y.b, x.b)};
}
RELAY_INLINE vi vi_and(vi x, vi y) {
    return (vi){_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
RELAY_INLINE vm vm_and(vm x, vm y) {
    return vi_and(x, y);
}
RELAY_INLINE vm vm_or(vm x, vm y) {
    return (vi){_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
RELAY_INLINE uint32_t vm_bits(vm m) {
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(m.a)) |
           (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(m.b)) << 8;
}
RELAY_INLINE vf vf_select(vm m, vf x, vf y) {
    return (vf){_mm256_blendv_ps(x.a, y.a, _mm256_castsi256_ps(m.a)),
                _mm256_blendv_ps(x.b, y.b, _mm256_castsi256_ps(m.b))};
}

RELAY_INLINE vi vi_set(int32_t x) {
    return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
RELAY_INLINE vi vi_lane_index(void) {
    return (vi){_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
RELAY_INLINE vi vi_add(vi x, vi y) {
    return (vi){_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
RELAY_INLINE vi vi_sub(vi x, vi y) {
    return (vi){_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
RELAY_INLINE vi vi_max(vi x, vi y) {
    return (vi){_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}
RELAY_INLINE vi vi_sll(vi x, int n) {
    return (vi){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)};
}
RELAY_INLINE vi vi_sra(vi x, int n) {
    return (vi){_mm256_srai_epi32(x.a, n), _mm256_srai_epi32(x.b, n)};
}
RELAY_INLINE vi vi_round(vf x) {
    return (vi){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
RELAY_INLINE __m256i half_low(vi x) {
    return x.a;
}
RELAY_INLINE __m256i half_high(vi x) {
    return x.b;
}
RELAY_INLINE __m256 fhalf_low(vf x) {
    return x.a;
}
RELAY_INLINE __m256 fhalf_high(vf x) {
    return x.b;
}

#endif

// ---- Reductions: lanes 8 apart, then 4, 2, 1.

RELAY_INLINE float vf_sum(vf x) {
    __m256 y = _mm256_add_ps(fhalf_low(x), fhalf_high(x));
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
}

RELAY_INLINE float vf_max_lane(vf x) {
    __m256 y = _mm256_max_ps(fhalf_low(x), fhalf_high(x));
    __m128 z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_max_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
}

RELAY_INLINE int32_t vi_sum(vi x) {
    __m256i y = _mm256_add_epi32(half_low(x), half_high(x));
    __m128i z = _mm_add_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    z = _mm_add_epi32(z, _mm_shuffle_epi32(z, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(z, _mm_shuffle_epi32(z, 0xB1)));
}

RELAY_INLINE int32_t vi_max_lane(vi x) {
    __m256i y = _mm256_max_epi32(half_low(x), half_high(x));
    __m128i z = _mm_max_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    z = _mm_max_epi32(z, _mm_shuffle_epi32(z, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(z, _mm_shuffle_epi32(z, 0xB1)));
}

// ---- exp
//
// exp(x) = 2^n * exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2; r comes from x by two subtractions with ln 2
// split in two, exp(r) from a polynomial of degree 6 (the method of Cephes' expf, with Taylor-near minimax
// coefficients). Error below 2 units in the last place. -inf gives 0, and so does what is below the smallest normal
// number; NaN stays NaN.
RELAY_INLINE vf vf_exp(vf x) {
    const vf low = vf_set(-87.33654f), high = vf_set(88.72283f);
    vf n = vf_round(vf_mul(x, vf_set(1.44269504f)));
    vf r = vf_fma(n, vf_set(-0.693359375f), x);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(vf_mul(r, r), p, vf_add(r, vf_set(1)));
    // 2^n in two steps, since n may be 128 while the product is finite.
    vi whole = vi_round(n);
    vi half = vi_sra(whole, 1);
    vf scale1 = vf_from_bits(vi_sll(vi_add(half, vi_set(127)), 23));
    vf scale2 = vf_from_bits(vi_sll(vi_add(vi_sub(whole, half), vi_set(127)), 23));
    vf y = vf_mul(vf_mul(p, scale1), scale2);
    y = vf_select(vf_lt(x, low), y, vf_set(0));
    return vf_select(vf_lt(high, x), y, vf_set(__builtin_inff()));
}

#endif
