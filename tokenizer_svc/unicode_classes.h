// What stages ask of a character, exactly as Hugging Face tokenizers 0.23 answers it.
//
// The reference takes its answers from six libraries with as many versions of Unicode (9 for normalization forms, 8 for
// BERT's categories, 16 for words, 17 for digits and lower case), so they are data of this project's own
// (unicode_data.c), taken from the reference code point by code point. Decompositions and compositions are utf8proc's,
// which never change once a character has them; what is newer than Unicode 9 has none.
//
// The tables are made once, by the first relay_unicode_prepare; 200 kB.
#ifndef RELAY_TOKENIZER_SVC_UNICODE_CLASSES_H
#define RELAY_TOKENIZER_SVC_UNICODE_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RELAY_CHAR_WORD = 1,             // \w of Rust's regex
    RELAY_CHAR_NUMERIC = 2,          // char::is_numeric
    RELAY_CHAR_PUNCTUATION = 4,      // BERT's: ASCII's and Unicode's
    RELAY_CHAR_OTHER = 8,            // BERT's control characters: Cc, Cf, Cn, Co
    RELAY_CHAR_NONSPACING_MARK = 16, // Mn: BERT's accents
    RELAY_CHAR_MARK = 32,            // M: StripAccents' accents
    RELAY_CHAR_EXTENDS = 64,         // grapheme clusters: belongs to the character before it
    RELAY_CHAR_PREPENDS = 128,       // ... to the one behind it
    RELAY_CHAR_BREAKS = 256,         // ... to none
    // Whether a character may be changed, or moved, by a form.
    RELAY_CHAR_NOT_NFC = 1 << 9,
    RELAY_CHAR_NOT_NFD = 1 << 10,
    RELAY_CHAR_NOT_NFKC = 1 << 11,
    RELAY_CHAR_NOT_NFKD = 1 << 12,
    RELAY_CHAR_NOT_LOWER = 1 << 13,
    RELAY_CHAR_SPACE = 1 << 14,   // char::is_whitespace
    RELAY_CHAR_CHINESE = 1 << 15, // BERT's handle_chinese_chars
};

void relay_unicode_prepare(void); // any thread, any number of times; before everything below

extern uint16_t relay_unicode_page_of[0x1100];
extern const uint16_t (*relay_unicode_pages)[256];
static inline uint32_t relay_unicode_class(uint32_t cp) {
    return relay_unicode_pages[relay_unicode_page_of[cp >> 8]][cp & 0xFF];
}

// The lower case: 1 or 2 code points (2 of U+0130 only). Returns how many.
uint32_t relay_unicode_lower(uint32_t cp, uint32_t out[2]);
uint8_t relay_unicode_script(uint32_t cp); // a number of its own for each script; 0: of any
uint8_t relay_unicode_combining_class(uint32_t cp);
enum { RELAY_MAX_DECOMPOSITION = 18 };
// The full decomposition, in canonical order; the character itself where it has none. Returns how many.
uint32_t relay_unicode_decompose(uint32_t cp, bool compatible, uint32_t out[RELAY_MAX_DECOMPOSITION]);
// The primary composite of two characters, or 0.
uint32_t relay_unicode_compose(uint32_t first, uint32_t second);

// The first byte at which a character has one of the classes; `len` if none.
size_t relay_unicode_find(const char *s, size_t len, uint32_t classes);

#endif
