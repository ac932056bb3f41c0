// What the scanners ask of a character: its class, by two looks into a table.
//
// Classes are those of HF tokenizers' regular expressions (Unicode 16): what utf8proc says of the character or, where
// it knows too old a Unicode, of its stand-in (unicode_standin.h).
#ifndef RELAY_TOKENIZER_SVC_SCAN_CLASS_H
#define RELAY_TOKENIZER_SVC_SCAN_CLASS_H

#include <stdint.h>

enum {
    RELAY_SCAN_UPPER = 1,   // Lu, Lt
    RELAY_SCAN_LOWER = 2,   // Ll
    RELAY_SCAN_LETTER = 4,  // Lm, Lo
    RELAY_SCAN_MARK = 8,    // M
    RELAY_SCAN_NUMBER = 16, // N
    RELAY_SCAN_SPACE = 32,  // \s
    RELAY_SCAN_LINE = 64,   // \r and \n, which are SPACE, too
    RELAY_SCAN_DIGIT = 128, // what Rust's char::is_numeric says
    // Together
    RELAY_SCAN_L = RELAY_SCAN_UPPER | RELAY_SCAN_LOWER | RELAY_SCAN_LETTER,
};

// Before everything below; any thread, any number of times.
void relay_scan_class_prepare(void);

extern uint8_t relay_scan_ascii[256]; // of characters below 128
extern uint16_t relay_scan_page_of[0x110000 >> 7];
extern uint8_t (*relay_scan_pages)[128];

static inline uint32_t relay_scan_class(uint32_t cp) {
    return relay_scan_pages[relay_scan_page_of[cp >> 7]][cp & 127];
}

// Of the character at s, beyond ASCII and valid; *n is how many bytes it has.
static inline uint32_t relay_scan_class_wide(const uint8_t *s, uint32_t *n) {
    if (s[0] < 0xE0) {
        *n = 2;
        return relay_scan_class((uint32_t)(s[0] & 0x1F) << 6 | (s[1] & 0x3F));
    }
    if (s[0] < 0xF0) {
        *n = 3;
        return relay_scan_class((uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (s[2] & 0x3F));
    }
    *n = 4;
    return relay_scan_class((uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3F) << 12 |
                            (uint32_t)(s[2] & 0x3F) << 6 | (s[3] & 0x3F));
}

static inline uint32_t relay_scan_class_at(const uint8_t *s, uint32_t *n) {
    *n = 1;
    return s[0] < 0x80 ? relay_scan_ascii[s[0]] : relay_scan_class_wide(s, n);
}

#endif
