// The truth is the set of all encodings: every code point but the surrogates, encoded by arithmetic.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

// ---- The truth

// Bit sets over byte strings of 1, 2 and 3 bytes, the first byte most significant.
static uint8_t is_whole[4][1 << 21]; // is a character
static uint8_t begins[4][1 << 21];   // begins a longer character

static void add(uint8_t *set, uint32_t key) {
    set[key / 8] |= (uint8_t)(1u << key % 8);
}

static bool has(const uint8_t *set, uint32_t key) {
    return set[key / 8] >> key % 8 & 1;
}

static size_t encode_by_arithmetic(uint32_t cp, uint8_t out[4]) {
    if (cp < 128) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    size_t len = cp < 2048 ? 2 : cp < 65536 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, cp /= 64)
        out[i] = (uint8_t)(128 + cp % 64);
    out[0] = (uint8_t)(cp + (len == 2 ? 192 : len == 3 ? 224 : 240));
    return len;
}

static uint32_t key_of(const uint8_t *s, size_t len) {
    uint32_t key = 0;
    for (size_t i = 0; i < len; i++)
        key = key * 256 + s[i];
    return key;
}

static int make_truth(void **state) {
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp == 0xD800) cp = 0xE000;
        uint8_t s[4];
        size_t len = encode_by_arithmetic(cp, s);
        if (len < 4) add(is_whole[len], key_of(s, len));
        for (size_t n = 1; n < len; n++)
            add(begins[n], key_of(s, n));
    }
    return 0;
}

// Length of the character at s, 0 if there is none. One of four bytes is a beginning of three and any continuation
// byte.
static size_t true_length(const uint8_t *s, size_t len) {
    for (size_t n = 1; n <= 3 && n <= len; n++)
        if (has(is_whole[n], key_of(s, n))) return n;
    return len >= 4 && has(begins[3], key_of(s, 3)) && s[3] >= 128 && s[3] < 192 ? 4 : 0;
}

// Length of the longest beginning of a character at s; of what begins none, one byte.
static size_t true_invalid_length(const uint8_t *s, size_t len) {
    size_t n = 1;
    while (n < 3 && n < len && has(begins[n + 1], key_of(s, n + 1)))
        n++;
    return has(begins[1], s[0]) ? n : 1;
}

static uint32_t true_code_point(const uint8_t *s, size_t len) {
    uint32_t cp = len == 1 ? s[0] : len == 2 ? s[0] - 192u : len == 3 ? s[0] - 224u : s[0] - 240u;
    for (size_t i = 1; i < len; i++)
        cp = cp * 64 + (s[i] - 128u);
    return cp;
}

static size_t true_incomplete_suffix(const uint8_t *s, size_t len) {
    for (size_t n = 3; n > 0; n--)
        if (n <= len && has(begins[n], key_of(s + len - n, n))) return n;
    return 0;
}

// ---- Comparing

static void compare(const uint8_t *s, size_t len) {
    const char *text = (const char *)s;
    uint32_t cp;
    size_t n = relay_utf8_decode(text, len, &cp), whole = true_length(s, len);
    size_t expected = whole != 0 ? whole : true_invalid_length(s, len);
    uint32_t expected_cp = whole != 0 ? true_code_point(s, whole) : 0xFFFD;
    if (n != expected || cp != expected_cp)
        fail_msg("decode %02x.. of %zu: length %zu, not %zu; U+%04X, not U+%04X", s[0], len, n, expected, cp,
                 expected_cp);
    size_t prefix = 0;
    for (size_t step; prefix < len && (step = true_length(s + prefix, len - prefix)) != 0;)
        prefix += step;
    if (relay_utf8_valid_prefix(text, len) != prefix) fail_msg("valid prefix of %02x.. of %zu", s[0], len);
    if (relay_utf8_is_valid(text, len) != (prefix == len)) fail_msg("validity of %02x.. of %zu", s[0], len);
    if (relay_utf8_incomplete_suffix(text, len) != true_incomplete_suffix(s, len))
        fail_msg("incomplete suffix of %02x.. of %zu", s[0], len);
}

// Every one of up to two bytes, and of three bytes all but those behind the ASCII characters from NUL to '}'.
static void every_string_of_up_to_three_bytes(void **state) {
    uint8_t s[3];
    for (uint32_t i = 0; i < 1u << 24; i += i >> 16 < 0x7E ? 256 : 1) {
        s[0] = (uint8_t)(i >> 16);
        s[1] = (uint8_t)(i >> 8);
        s[2] = (uint8_t)i;
        compare(s, 3);
        if (s[2] == 0) compare(s, 2);
        if (s[2] == 0 && s[1] == 0) compare(s, 1);
    }
    assert_int_equal(relay_utf8_valid_prefix("", 0), 0);
    assert_int_equal(relay_utf8_incomplete_suffix("", 0), 0);
}

static void strings_of_four_and_five_bytes_at_every_border(void **state) {
    static const uint8_t border[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F,
                                     0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xF4, 0xFF};
    enum { N = sizeof border };
    for (uint32_t lead = 0x7E; lead < 256; lead++)
        for (uint32_t second = 0; second < 256; second++) {
            if (lead < 0xE0 && memchr(border, (int)second, N) == NULL) continue;
            for (uint32_t i = 0; i < N * N; i++) {
                uint8_t s[5] = {(uint8_t)lead, (uint8_t)second, border[i / N], border[i % N], 'x'};
                compare(s, 4);
                if (lead >= 0xC0) compare(s, 5);
            }
        }
}

static void every_code_point_goes_there_and_back(void **state) {
    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        bool is_one = cp < 0xD800 || (cp > 0xDFFF && cp <= 0x10FFFF);
        uint8_t expected[4];
        size_t len = encode_by_arithmetic(is_one ? cp : 0xFFFD, expected);
        char out[4];
        if (relay_utf8_encode(cp, out) != len || memcmp(out, expected, len) != 0) fail_msg("encode U+%04X", cp);
        uint32_t back;
        if (relay_utf8_decode(out, len, &back) != len || back != (is_one ? cp : 0xFFFD)) fail_msg("decode U+%04X", cp);
        uint32_t n;
        if (relay_utf8_valid_at(out, &n) != back || n != len) fail_msg("valid at U+%04X", cp);
    }
    char out[4];
    assert_int_equal(relay_utf8_encode(UINT32_MAX, out), 3);
}

// Validity is read eight bytes at a time where all are ASCII: a bad byte at every place of texts of every length around
// that.
static void a_bad_byte_is_found_wherever_it_is(void **state) {
    for (size_t len = 1; len < 40; len++)
        for (size_t at = 0; at < len; at++) {
            char *text = malloc(len); // exact, for the sanitizer
            memset(text, 'a', len);
            assert_int_equal(relay_utf8_valid_prefix(text, len), len);
            text[at] = (char)0xFF;
            assert_int_equal(relay_utf8_valid_prefix(text, len), at);
            free(text);
        }
}

static void repair_replaces_bad_bytes_and_nothing_else(void **state) {
    static const struct {
        const char *before, *after;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"caf\xC3\xA9 \xF0\x9F\x98\x80", "caf\xC3\xA9 \xF0\x9F\x98\x80"},
        {"caf\xC3", "caf?"},
        {"\xF0\x9F\x98", "???"},
        {"\xED\xA0\x80", "???"},
        {"a\xFF\xC3\xA9\x80z", "a?\xC3\xA9?z"},
        {"\xC3(", "?("},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len = strlen(cases[i].before);
        char text[32];
        memcpy(text, cases[i].before, len + 1);
        relay_utf8_repair(text, len);
        assert_string_equal(text, cases[i].after);
    }
}

// Long texts of whole characters of every length, with up to two bytes changed at any place: what is looked at many
// bytes at a time and what is not meet everywhere.
static void the_valid_prefix_of_long_texts_is_where_the_truth_ends(void **state) {
    static const uint32_t edges[] = {0x00,   0x7F,   0x80,   0x7FF,   0x800,   0xFFF,   0x1000,
                                     0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0x10FFFF};
    uint64_t random = 88172645463325252;
    for (int round = 0; round < 60000; round++) {
        uint8_t s[160];
        size_t len = 0;
        for (int kind = round % 5; len + 4 <= sizeof s;) {
            random ^= random << 13; // xorshift (Marsaglia 2003)
            random ^= random >> 7;
            random ^= random << 17;
            size_t n = kind == 0 ? 1 : 14;
            len += encode_by_arithmetic(kind == 1 ? 0x4E00 : edges[(random >> 20) % n], s + len);
        }
        len -= random % 40;
        for (uint64_t changes = random >> 8 & 3; changes > 1; changes--)
            s[(random >> (8 * changes)) % len] = (uint8_t)(random >> 50);
        size_t expected = 0, n;
        while (expected < len && (n = true_length(s + expected, len - expected)) > 0)
            expected += n;
        assert_int_equal(relay_utf8_valid_prefix((const char *)s, len), expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_valid_prefix_of_long_texts_is_where_the_truth_ends),
        cmocka_unit_test(every_string_of_up_to_three_bytes),
        cmocka_unit_test(strings_of_four_and_five_bytes_at_every_border),
        cmocka_unit_test(every_code_point_goes_there_and_back),
        cmocka_unit_test(a_bad_byte_is_found_wherever_it_is),
        cmocka_unit_test(repair_replaces_bad_bytes_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, make_truth, NULL);
}
