// Where the characters of each class are in 64 bytes of text, as bits: what the scanners compute
// with. The lowest bit is the first byte; all bytes of a character have its class.
#ifndef RELAY_TOKENIZER_SVC_SCAN_MASKS_H
#define RELAY_TOKENIZER_SVC_SCAN_MASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RELAY_SCAN_BLOCK = 64 };

typedef struct relay_scan_masks {
    uint64_t upper, lower, letter; // of a class each, see scan_class.h; of ASCII and, by relay_scan_masks_widen, beyond
    uint64_t number, digit;
    uint64_t space, line; // \s; \r and \n
    uint64_t blank;       // ' ' alone
    uint64_t mark;
    uint64_t apostrophe, slash;
    uint64_t wide, tail; // characters beyond ASCII; their bytes but the first
    uint64_t han;        // first bytes of U+5000 to U+8FFF, which are letters without case
} relay_scan_masks;

// Of ASCII characters, and where the others are, in the 64 bytes at s.
typedef void (*relay_scan_masks_fn)(relay_scan_masks *m, const uint8_t *s);
// The fastest way that this processor has; NULL where going character by character is faster.
relay_scan_masks_fn relay_scan_masks_choose(void);

// Adds the classes of the characters beyond ASCII, which must be complete within the first n bytes.
void relay_scan_masks_widen(relay_scan_masks *m, const uint8_t *s, size_t n);
#endif
