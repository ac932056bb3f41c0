// Finding the names of special and added tokens in text, before it is split into words.
//
// Added tokens (USER) are matched in all text, as their makers meant; CONTROL tokens, and the unknown token, only where
// the caller says that names stand for tokens, so that what a user types never becomes one. The leftmost match wins,
// and of those that begin at one byte the longest. Immutable after creation; any thread.
#ifndef RELAY_TOKENIZER_SVC_SPECIAL_TOKENS_H
#define RELAY_TOKENIZER_SVC_SPECIAL_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/vocab.h"

typedef struct relay_special_tokens relay_special_tokens;

// `vocab` is borrowed and outlives it.
relay_special_tokens *relay_special_tokens_create(const relay_vocab *vocab);
void relay_special_tokens_destroy(relay_special_tokens *s);

typedef struct relay_byte_range {
    size_t begin, end;
} relay_byte_range;

typedef struct relay_special_match {
    uint32_t id;
    size_t begin, end; // bytes of the text
} relay_special_match;

// A walk over one text. Everything is borrowed.
typedef struct relay_special_scan {
    const relay_special_tokens *tokens;
    const char *text;
    size_t len;
    const relay_byte_range *open; // where CONTROL names count: in the text, ascending, apart
    size_t n_open;
    size_t at; // the first byte that is not yet searched
} relay_special_scan;

// The next match, which lies behind the one before; false if there is none.
bool relay_special_scan_next(relay_special_scan *scan, relay_special_match *match);

#endif
