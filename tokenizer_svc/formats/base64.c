#include "tokenizer_svc/formats/base64.h"

#include <stdint.h>

static int value_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool relay_base64_decode(const char *s, size_t len, char *out, size_t *out_len) {
    *out_len = 0;
    if (len % 4 != 0) return false;
    size_t n = 0;
    for (size_t i = 0; i < len; i += 4) {
        int n_padding = i + 4 < len || s[i + 3] != '=' ? 0 : s[i + 2] != '=' ? 1 : 2;
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            int v = k >= 4 - n_padding ? 0 : value_of(s[i + k]);
            if (v < 0) return false;
            bits = bits << 6 | (uint32_t)v;
        }
        if (n_padding > 0 && (bits & ((UINT32_C(1) << 8 * n_padding) - 1)) != 0) return false; // bits that say nothing
        for (int k = 0; k < 3 - n_padding; k++)
            out[n++] = (char)(bits >> (16 - 8 * k) & 0xFF);
    }
    *out_len = n;
    return true;
}
