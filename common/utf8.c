#include "common/utf8.h"

#include <string.h>

#include "common/utf8_simd.h"

// The range of the second byte after a lead byte; the table that keeps out overlong forms, surrogates and > U+10FFFF.
static bool second_byte_ok(uint8_t lead, uint8_t b) {
    switch (lead) {
    case 0xE0:
        return b >= 0xA0 && b <= 0xBF;
    case 0xED:
        return b >= 0x80 && b <= 0x9F;
    case 0xF0:
        return b >= 0x90 && b <= 0xBF;
    case 0xF4:
        return b >= 0x80 && b <= 0x8F;
    default:
        return b >= 0x80 && b <= 0xBF;
    }
}

static size_t sequence_length(uint8_t lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    if (lead < 0xF5) return 4;
    return 0;
}

// Length of the valid part at s: returns the number of bytes that fit a character's shape, and that character's full
// length in *need (0 if the lead byte is impossible).
static size_t match(const uint8_t *s, size_t len, size_t *need) {
    *need = sequence_length(s[0]);
    if (*need <= 1) return *need;
    if (len < 2 || !second_byte_ok(s[0], s[1])) return 1;
    size_t n = 2;
    while (n < *need && n < len && (s[n] & 0xC0) == 0x80)
        n++;
    return n;
}

size_t relay_utf8_valid_prefix(const char *text, size_t len) {
    const uint8_t *s = (const uint8_t *)text;
    size_t i = relay_utf8_simd_prefix(text, len);
    while (i < len) {
        uint64_t word;
        if (i + 8 <= len && (memcpy(&word, s + i, 8), (word & 0x8080808080808080u) == 0)) {
            i += 8;
            continue;
        }
        size_t need, n = match(s + i, len - i, &need);
        if (need == 0 || n < need) return i;
        i += n;
    }
    return len;
}

size_t relay_utf8_decode(const char *text, size_t len, uint32_t *code_point) {
    const uint8_t *s = (const uint8_t *)text;
    size_t need, n = match(s, len, &need);
    if (need == 0 || n < need) {
        *code_point = 0xFFFD;
        return n == 0 ? 1 : n;
    }
    static const uint8_t lead_bits[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t cp = s[0] & lead_bits[n];
    for (size_t i = 1; i < n; i++)
        cp = cp << 6 | (s[i] & 0x3F);
    *code_point = cp;
    return n;
}

size_t relay_utf8_encode(uint32_t cp, char out[4]) {
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF)) cp = 0xFFFD;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t relay_utf8_incomplete_suffix(const char *text, size_t len) {
    const uint8_t *s = (const uint8_t *)text;
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        uint8_t b = s[len - back];
        if ((b & 0xC0) == 0x80) continue;
        size_t need, n = match(s + len - back, back, &need);
        return need > back && n == back ? back : 0;
    }
    return 0;
}

void relay_utf8_repair(char *s, size_t len) {
    size_t i = 0;
    while (i < len) {
        size_t valid = relay_utf8_valid_prefix(s + i, len - i);
        i += valid;
        if (i == len) return;
        uint32_t cp;
        size_t bad = relay_utf8_decode(s + i, len - i, &cp);
        memset(s + i, '?', bad);
        i += bad;
    }
}
