// Checking UTF-8 many bytes at a time, where the processor can.
#ifndef RELAY_COMMON_UTF8_SIMD_H
#define RELAY_COMMON_UTF8_SIMD_H

#include <stddef.h>

// A number of bytes from the beginning that are valid and end between characters: all that this way can be sure of, and
// perhaps 0. What follows is to be looked at byte by byte.
size_t relay_utf8_simd_prefix(const char *s, size_t len);

#endif
