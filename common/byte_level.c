#include "common/byte_level.h"

#include "common/utf8.h"

static bool stands_for_itself(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

// The bytes that do not are, in ascending order, 0x00..0x20, 0x7F..0xA0 and 0xAD: 33 + 34 + 1.
enum { N_LOW = 0x21, N_MIDDLE = 0xA1 - 0x7F, N_SHIFTED = N_LOW + N_MIDDLE + 1 };

// The byte that a code point stands for, or -1.
static int byte_of(uint32_t cp) {
    if (cp <= 0xFF) return stands_for_itself(cp) ? (int)cp : -1;
    uint32_t shifted = cp - 0x100;
    if (shifted < N_LOW) return (int)shifted;
    if (shifted < N_LOW + N_MIDDLE) return (int)(0x7F + (shifted - N_LOW));
    return shifted < N_SHIFTED ? 0xAD : -1;
}

bool relay_byte_level_decode(const char *piece, size_t len, char *out, size_t *out_len) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp; // U+FFFD for what is no UTF-8, which the alphabet does not hold
        i += relay_utf8_decode(piece + i, len - i, &cp);
        int byte = byte_of(cp);
        if (byte < 0) {
            *out_len = 0;
            return false;
        }
        out[n++] = (char)byte;
    }
    *out_len = n;
    return true;
}

uint32_t relay_byte_level_char(uint8_t byte) {
    if (stands_for_itself(byte)) return byte;
    if (byte < N_LOW) return 0x100u + byte;
    return byte == 0xAD ? 0x100u + N_LOW + N_MIDDLE : 0x100u + N_LOW + (byte - 0x7Fu);
}
