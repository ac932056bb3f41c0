// Byte-pair encoding in one pass from left to right.
//
// A list of tokens is the encoding of its joined bytes exactly if each two neighbours in it are the encoding of theirs:
// the first join across a border between two of them would be the first when those two stand alone, because all that
// happened before happened inside the tokens. So a text is walked by the longest token that stays apart from the one
// before; where none does, the step before was wrong and the next shorter token is tried there. The encoding of a
// beginning is unique, so no place of the text is entered twice, and the time is linear. (The observation is that of
// GitHub's article "So many tokens, so little time", 2024; ranks of any kind and odd tokens are our addition.)
#ifndef RELAY_TOKENIZER_SVC_BPE_LINEAR_H
#define RELAY_TOKENIZER_SVC_BPE_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer_svc/bpe_merge.h"
#include "tokenizer_svc/bpe_rules.h"
#include "tokenizer_svc/bpe_trie.h"

// Working memory of one thread with one model. All zero at first.
typedef struct relay_bpe_linear {
    uint64_t *dead; // bits of places that are known to lead nowhere
    size_t dead_cap;
    struct relay_bpe_apart *apart; // pairs with an odd token that were asked for before
    char *joined;                  // the bytes of a pair with an odd token
    uint32_t joined_cap;
    relay_bpe_symbols pair; // what they become
    uint64_t n_steps;       // looks at a token, for those who count
} relay_bpe_linear;

void relay_bpe_linear_fini(relay_bpe_linear *w);

// Writes the ids of the text, at most len, and returns how many there are; 0 where it holds a character (or byte) that
// is no token. len > 0; the rules must be linear.
uint32_t relay_bpe_linear_encode(const relay_bpe_rules *r, const relay_bpe_trie *t, relay_bpe_linear *w,
                                 const char *text, size_t len, uint32_t *ids);

#endif
