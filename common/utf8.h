// UTF-8: validation, decoding, and the state machine that cuts a byte stream into whole characters.
//
// "Valid" is Unicode's definition (Table 3-7 of the Unicode Standard): no overlong forms, no surrogates, nothing past
// U+10FFFF. Invalid input is replaced one U+FFFD for each maximal invalid part, as the WHATWG decoder does.
#ifndef RELAY_COMMON_UTF8_H
#define RELAY_COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Offset of the first byte that is not part of a whole valid character; `len` if all is valid.
size_t relay_utf8_valid_prefix(const char *s, size_t len);

static inline bool relay_utf8_is_valid(const char *s, size_t len) {
    return relay_utf8_valid_prefix(s, len) == len;
}

// Decodes the character at s[0], len > 0. Returns its length in bytes, 1..4, and writes the code point. On an invalid
// sequence writes U+FFFD and returns the length of the maximal invalid part (1..3).
size_t relay_utf8_decode(const char *s, size_t len, uint32_t *code_point);

// The character at s, of text that is known to be valid; *n is how many bytes it has.
static inline uint32_t relay_utf8_valid_at(const char *s, uint32_t *n) {
    const uint8_t *b = (const uint8_t *)s;
    if (b[0] < 0x80) {
        *n = 1;
        return b[0];
    }
    if (b[0] < 0xE0) {
        *n = 2;
        return (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    }
    if (b[0] < 0xF0) {
        *n = 3;
        return (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    }
    *n = 4;
    return (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 | (uint32_t)(b[2] & 0x3F) << 6 | (b[3] & 0x3F);
}

// Writes 1..4 bytes to `out` and returns how many; a surrogate or a value past U+10FFFF is written as U+FFFD.
size_t relay_utf8_encode(uint32_t code_point, char out[4]);

// How many bytes at the end of s are a beginning of a character that could still become valid: 0..3.
size_t relay_utf8_incomplete_suffix(const char *s, size_t len);

// Overwrites every byte of an invalid part by '?', in place.
void relay_utf8_repair(char *s, size_t len);

#endif
