// Characters of which the pipeline makes nothing: text of no others goes through all normalizers unchanged and through
// all pre-tokenizers as one word, save for what Metaspace writes before it. Most chunks (chunker.h) are such text.
#ifndef RELAY_TOKENIZER_SVC_PLAIN_CHARS_H
#define RELAY_TOKENIZER_SVC_PLAIN_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer_svc/normalizer.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_plain_chars {
    char prefix[4]; // what is written before the word
    uint32_t prefix_len;
    uint64_t bits[0x10000 / 64]; // by code point; those from U+10000 on are never plain
} relay_plain_chars;

// `z` is made of the spec's normalizers. The spec is one whose texts fall into chunks; where its pre-tokenizers are
// others than those known here, no character is plain.
void relay_plain_chars_init(relay_plain_chars *p, const relay_tokenizer_spec *spec, const relay_normalizer *z);

// Whether all characters of the text are plain.
bool relay_plain_chars_hold(const relay_plain_chars *p, const char *s, size_t len);

#endif
