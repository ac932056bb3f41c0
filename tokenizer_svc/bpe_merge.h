// Byte-pair encoding by its definition: again and again the adjacent pair whose rule stands first is joined, the
// leftmost where several stand equally, until no pair has a rule (Sennrich, Haddow and Birch 2016).
//
// It takes any rules and any symbols, in n log n; bpe_linear.h is the faster way for the rules that real models have.
#ifndef RELAY_TOKENIZER_SVC_BPE_MERGE_H
#define RELAY_TOKENIZER_SVC_BPE_MERGE_H

#include <stdint.h>

#include "tokenizer_svc/bpe_pairs.h"

typedef struct relay_bpe_symbol {
    uint32_t id;
    uint32_t begin, end; // bytes of the word
} relay_bpe_symbol;

// A growing list of symbols, and working memory. All zero at first; for one thread.
typedef struct relay_bpe_symbols {
    relay_bpe_symbol *s; // [n]
    uint32_t n, cap;
    struct relay_bpe_node *nodes; // [long_cap]
    uint64_t *heap;               // [3 * long_cap]
    uint32_t long_cap;
} relay_bpe_symbols;

void relay_bpe_symbols_fini(relay_bpe_symbols *l);
void relay_bpe_symbols_add(relay_bpe_symbols *l, uint32_t id, uint32_t begin, uint32_t end);

// Joins neighbours in place.
void relay_bpe_merge(const relay_bpe_pairs *pairs, relay_bpe_symbols *l);

#endif
