// Making an older regular-expression library see a newer Unicode.
//
// Pre-tokenizer patterns ask for classes of characters (\p{L}, \p{N}, \s ...). The reference is Hugging Face
// tokenizers 0.23, whose classes are Unicode 16's (Oniguruma) and, where it splits digits by itself, Unicode 17's
// (Rust). PCRE2 10.42 has Unicode 14. All characters assigned in Unicode 14 have the same class in both but one: U+180E
// is a space for PCRE2 only. For the others a stand-in is matched in their place: an older character of the same class,
// of the same length in UTF-8, and on the same side of every explicit range that a pattern names. So words have the
// same borders, and patterns stay as their authors wrote them.
#ifndef RELAY_TOKENIZER_SVC_UNICODE_STANDIN_H
#define RELAY_TOKENIZER_SVC_UNICODE_STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Code points past this have no stand-in.
enum { RELAY_STANDIN_LAST = 0x323AF };

// True and the stand-in for a code point that needs one. `rust_digits`: what Rust's char::is_numeric takes for a digit
// is one, which is a dozen characters more.
bool relay_unicode_standin(uint32_t code_point, bool rust_digits, uint32_t *standin);

// The first character at or behind `from` that needs one; `len` if there is none. `s` must be valid UTF-8.
size_t relay_unicode_standin_find(const char *s, size_t len, size_t from, bool rust_digits);
// Puts the stand-ins in place of the characters that need one.
void relay_unicode_standin_replace(char *s, size_t len, bool rust_digits);

#endif
