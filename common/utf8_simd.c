// Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte", 2021: the upper and lower half of a byte
// and the upper half of the next one each look up, in a table of 16, which errors they allow; an error is what all
// three allow. What must be a third or fourth byte is found by the bytes two and three before.
#include "common/utf8_simd.h"

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum {
    TOO_SHORT = 1,       // a lead byte, or ASCII, where a continuation is due
    TOO_LONG = 2,        // a continuation behind ASCII
    OVERLONG_3 = 4,      // 11100000 100_____
    TOO_LARGE = 8,       // 11110100 1001____ and above
    SURROGATE = 16,      // 11101101 101_____
    OVERLONG_2 = 32,     // 1100000_ 10______
    TOO_LARGE_1000 = 64, // 11110101 1000____ and above
    OVERLONG_4 = 64,     // 11110000 1000____
    TWO_CONTS = 128,     // two continuations, right or wrong by what is before them
    CARRY = TOO_SHORT | TOO_LONG | TWO_CONTS,
    LARGE = CARRY | TOO_LARGE | TOO_LARGE_1000,
};

#define C(x)            ((char)(x))
#define FOUR(x)         C(x), C(x), C(x), C(x)
#define TWICE(...)      _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)
#define AVX2            __attribute__((target("avx2")))
#define BEHIND(v, w, n) _mm256_alignr_epi8((v), _mm256_permute2x128_si256((w), (v), 0x21), 16 - (n)) // n bytes earlier

AVX2 static inline __m256i errors_of(__m256i input, __m256i before) {
    const __m256i by_first_high =
        TWICE(FOUR(TOO_LONG), FOUR(TOO_LONG), FOUR(TWO_CONTS), C(TOO_SHORT | OVERLONG_2), C(TOO_SHORT),
              C(TOO_SHORT | OVERLONG_3 | SURROGATE), C(TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4));
    const __m256i by_first_low = TWICE(C(CARRY | OVERLONG_3 | OVERLONG_2 | OVERLONG_4), C(CARRY | OVERLONG_2), C(CARRY),
                                       C(CARRY), C(CARRY | TOO_LARGE), C(LARGE), C(LARGE), C(LARGE), FOUR(LARGE),
                                       C(LARGE), C(LARGE | SURROGATE), C(LARGE), C(LARGE));
    const __m256i by_second_high =
        TWICE(FOUR(TOO_SHORT), FOUR(TOO_SHORT),
              C(TOO_LONG | OVERLONG_2 | TWO_CONTS | OVERLONG_3 | TOO_LARGE_1000 | OVERLONG_4),
              C(TOO_LONG | OVERLONG_2 | TWO_CONTS | OVERLONG_3 | TOO_LARGE),
              C(TOO_LONG | OVERLONG_2 | TWO_CONTS | SURROGATE | TOO_LARGE),
              C(TOO_LONG | OVERLONG_2 | TWO_CONTS | SURROGATE | TOO_LARGE), FOUR(TOO_SHORT));
    const __m256i low_half = _mm256_set1_epi8(0x0F);
    __m256i first = BEHIND(input, before, 1);
    __m256i special = _mm256_and_si256(
        _mm256_and_si256(_mm256_shuffle_epi8(by_first_high, _mm256_and_si256(_mm256_srli_epi16(first, 4), low_half)),
                         _mm256_shuffle_epi8(by_first_low, _mm256_and_si256(first, low_half))),
        _mm256_shuffle_epi8(by_second_high, _mm256_and_si256(_mm256_srli_epi16(input, 4), low_half)));
    __m256i third = _mm256_subs_epu8(BEHIND(input, before, 2), _mm256_set1_epi8(0xE0 - 0x80));
    __m256i fourth = _mm256_subs_epu8(BEHIND(input, before, 3), _mm256_set1_epi8(0xF0 - 0x80));
    __m256i must = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(C(0x80)));
    return _mm256_xor_si256(must, special);
}

AVX2 static size_t prefix_avx2(const uint8_t *s, size_t len) {
    __m256i before = _mm256_setzero_si256();
    size_t at = 0;
    for (; at + 32 <= len; at += 32) {
        __m256i input = _mm256_loadu_si256((const __m256i *)(s + at));
        __m256i errors = errors_of(input, before);
        if (!_mm256_testz_si256(errors, errors)) break;
        before = input;
    }
    // The last character may lack its end, or have it in what follows.
    size_t back = 0;
    while (back < 3 && back < at && (s[at - 1 - back] & 0xC0) == 0x80)
        back++;
    return back < at && s[at - 1 - back] >= 0xC0 ? at - 1 - back : at;
}

size_t relay_utf8_simd_prefix(const char *s, size_t len) {
    return len >= 32 && __builtin_cpu_supports("avx2") ? prefix_avx2((const uint8_t *)s, len) : 0;
}
#else
size_t relay_utf8_simd_prefix(const char *s, size_t len) {
    return 0;
}
#endif
