#include "tokenizer_svc/scan_masks.h"

#include "tokenizer_svc/scan_class.h"

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2"))) static inline uint64_t bits_of(__m256i low, __m256i high) {
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

// Bytes from `first` on, n of them.
__attribute__((target("avx2"))) static inline uint64_t in_range_avx2(__m256i low, __m256i high, uint8_t first,
                                                                     uint8_t n) {
    // Moved so that the range begins at the smallest signed byte.
    __m256i move = _mm256_set1_epi8((char)(0x80 - first)), limit = _mm256_set1_epi8((char)(0x80 + n));
    return bits_of(_mm256_cmpgt_epi8(limit, _mm256_add_epi8(low, move)),
                   _mm256_cmpgt_epi8(limit, _mm256_add_epi8(high, move)));
}

__attribute__((target("avx2"))) static inline uint64_t equal_avx2(__m256i low, __m256i high, uint8_t byte) {
    __m256i b = _mm256_set1_epi8((char)byte);
    return bits_of(_mm256_cmpeq_epi8(low, b), _mm256_cmpeq_epi8(high, b));
}

__attribute__((target("avx2"))) static void masks_avx2(relay_scan_masks *m, const uint8_t *s) {
    __m256i low = _mm256_loadu_si256((const __m256i *)s), high = _mm256_loadu_si256((const __m256i *)(s + 32));
    m->wide = bits_of(low, high);
    m->tail = in_range_avx2(low, high, 0x80, 0x40);
    m->han = in_range_avx2(low, high, 0xE5, 4);
    m->upper = in_range_avx2(low, high, 'A', 26);
    m->lower = in_range_avx2(low, high, 'a', 26);
    m->number = m->digit = in_range_avx2(low, high, '0', 10);
    m->blank = equal_avx2(low, high, ' ');
    m->line = equal_avx2(low, high, '\n') | equal_avx2(low, high, '\r');
    m->space = m->blank | in_range_avx2(low, high, '\t', 5);
    m->apostrophe = equal_avx2(low, high, '\'');
    m->slash = equal_avx2(low, high, '/');
    m->letter = m->mark = 0;
}

#define AVX512 __attribute__((target("avx512f,avx512bw")))

AVX512 static inline uint64_t in_range_avx512(__m512i v, uint8_t first, uint8_t n) {
    return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8((char)first)), _mm512_set1_epi8((char)n));
}

AVX512 static inline uint64_t equal_avx512(__m512i v, uint8_t byte) {
    return _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)byte));
}

AVX512 static void masks_avx512(relay_scan_masks *m, const uint8_t *s) {
    __m512i v = _mm512_loadu_si512(s);
    m->wide = _mm512_movepi8_mask(v);
    m->tail = in_range_avx512(v, 0x80, 0x40);
    m->han = in_range_avx512(v, 0xE5, 4);
    m->upper = in_range_avx512(v, 'A', 26);
    m->lower = in_range_avx512(v, 'a', 26);
    m->number = m->digit = in_range_avx512(v, '0', 10);
    m->blank = equal_avx512(v, ' ');
    m->line = equal_avx512(v, '\n') | equal_avx512(v, '\r');
    m->space = m->blank | in_range_avx512(v, '\t', 5);
    m->apostrophe = equal_avx512(v, '\'');
    m->slash = equal_avx512(v, '/');
    m->letter = m->mark = 0;
}

relay_scan_masks_fn relay_scan_masks_choose(void) {
    if (__builtin_cpu_supports("avx512bw")) return masks_avx512;
    if (__builtin_cpu_supports("avx2")) return masks_avx2;
    return NULL;
}
#else
relay_scan_masks_fn relay_scan_masks_choose(void) {
    return NULL;
}
#endif

static void add_class(relay_scan_masks *m, uint32_t class, uint64_t bits) {
    m->upper |= (class & RELAY_SCAN_UPPER) != 0 ? bits : 0;
    m->lower |= (class & RELAY_SCAN_LOWER) != 0 ? bits : 0;
    m->letter |= (class & RELAY_SCAN_LETTER) != 0 ? bits : 0;
    m->mark |= (class & RELAY_SCAN_MARK) != 0 ? bits : 0;
    m->number |= (class & RELAY_SCAN_NUMBER) != 0 ? bits : 0;
    m->digit |= (class & RELAY_SCAN_DIGIT) != 0 ? bits : 0;
    m->space |= (class & RELAY_SCAN_SPACE) != 0 ? bits : 0;
}

void relay_scan_masks_widen(relay_scan_masks *m, const uint8_t *s, size_t n) {
    uint64_t within = n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);
    uint64_t han = m->han & within;
    han |= han << 1 | han << 2;
    m->letter |= han;
    uint64_t left = m->wide & ~m->tail & ~han & within;
    uint32_t run_class = 0; // characters of one class mostly stand together
    uint64_t run = 0;
    for (; left != 0; left &= left - 1) {
        uint32_t at = (uint32_t)__builtin_ctzll(left), size;
        uint32_t class = relay_scan_class_wide(s + at, &size);
        if (class != run_class) {
            add_class(m, run_class, run);
            run_class = class;
            run = 0;
        }
        run |= ((UINT64_C(1) << size) - 1) << at;
    }
    add_class(m, run_class, run);
}
