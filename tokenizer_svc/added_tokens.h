// Finding the added tokens of a tokenizer in text, before it is split into words, as HF tokenizers 0.23 does it.
//
// The leftmost match wins, and of those that begin at one byte the longest. Tokens that are not special (USER) are
// matched everywhere; special ones (CONTROL) only where the caller says that names stand for tokens, so that what a
// user types never becomes one: in closed text a name of theirs is passed over. Immutable after creation; any thread.
#ifndef RELAY_TOKENIZER_SVC_ADDED_TOKENS_H
#define RELAY_TOKENIZER_SVC_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_added_tokens relay_added_tokens;

// Takes copies of the contents. Two that are alike, and an empty one, are refused by name.
relay_code relay_added_tokens_create(relay_added_tokens **out, const relay_added_token *tokens, uint32_t n,
                                     relay_err *e) RELAY_NODISCARD;
void relay_added_tokens_destroy(relay_added_tokens *a);
bool relay_added_tokens_is_empty(const relay_added_tokens *a);
bool relay_added_tokens_has_special(const relay_added_tokens *a);

typedef struct relay_byte_range {
    size_t begin, end;
} relay_byte_range;

typedef struct relay_added_match {
    uint32_t id;
    size_t begin, end; // bytes of the text, with the blanks that the token takes
} relay_added_match;

// A walk over one text. Everything is borrowed.
typedef struct relay_added_scan {
    const relay_added_tokens *tokens;
    const char *text;
    size_t len;
    const relay_byte_range *open; // where special tokens count: in the text, ascending, apart
    size_t n_open;
    size_t at;    // the first byte that is not yet searched
    size_t taken; // the end of the match before
} relay_added_scan;

// The next match; false if there is none. It may begin in blanks that the one before took, if it takes none before it.
bool relay_added_scan_next(relay_added_scan *scan, relay_added_match *match);

#endif
