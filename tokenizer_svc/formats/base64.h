// Base64 (RFC 4648, section 4), strictly: with its padding, and nothing else beside the alphabet.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_BASE64_H
#define RELAY_TOKENIZER_SVC_FORMATS_BASE64_H

#include <stdbool.h>
#include <stddef.h>

// Writes the bytes to `out` (room for len / 4 * 3) and their number to *out_len. False if `s` is no base64.
bool relay_base64_decode(const char *s, size_t len, char *out, size_t *out_len);

#endif
