// GPT-2's byte alphabet: each of the 256 bytes as one printable character, so that any bytes can be a piece of text.
//
// A byte that is a printable, non-blank character of Latin-1 stands for itself; the 68 others take U+0100, U+0101, ...
// in ascending order (a space is U+0120, a newline U+010A). Method: `bytes_to_unicode` of OpenAI's GPT-2 encoder.
#ifndef RELAY_COMMON_BYTE_LEVEL_H
#define RELAY_COMMON_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Writes the bytes that a piece stands for to `out` (room for `len`; may be the piece itself) and their number to
// *out_len. False, and *out_len 0, if a character of the piece is not of the alphabet or is no UTF-8.
bool relay_byte_level_decode(const char *piece, size_t len, char *out, size_t *out_len);

// The character that stands for a byte.
uint32_t relay_byte_level_char(uint8_t byte);

#endif
