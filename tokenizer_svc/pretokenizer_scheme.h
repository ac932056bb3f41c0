// What each name in tokenizer.ggml.pre stands for: a list of patterns, and what else the name implies.
#ifndef RELAY_TOKENIZER_SVC_PRETOKENIZER_SCHEME_H
#define RELAY_TOKENIZER_SVC_PRETOKENIZER_SCHEME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RELAY_PRETOKENIZER_MAX_PATTERNS = 6 };

typedef struct relay_pretokenizer_scheme {
    const char *name;
    // In the order they are applied, NULL-terminated. Each splits the pieces of the one before into its matches and
    // what lies between them.
    const char *const *patterns;
    bool ignore_merges; // a word that is a token is that token, whatever the merges say
    bool adds_bos;      // where the file does not say
    bool rust_digits;   // its \p{N} is HF's Digits pre-tokenizer (see unicode_standin.h)
} relay_pretokenizer_scheme;

// NULL for a name Relay does not know.
const relay_pretokenizer_scheme *relay_pretokenizer_scheme_find(const char *name, size_t len);
// All of them: 0 <= i < count.
const relay_pretokenizer_scheme *relay_pretokenizer_scheme_at(uint32_t i);
uint32_t relay_pretokenizer_scheme_count(void);

#endif
