// Which two neighbours may join, and in which order: the one table that everything about BPE asks.
//
// Open addressing, at most half full, with the answer in the slot. A filter of a few bits a rule lies before it, small
// enough for a processor's second-level cache: nearly all questions are about pairs that do not join, and the filter
// answers those. Built by one thread; then immutable, any thread.
#ifndef RELAY_TOKENIZER_SVC_BPE_PAIRS_H
#define RELAY_TOKENIZER_SVC_BPE_PAIRS_H

#include <stddef.h>
#include <stdint.h>

#define RELAY_BPE_NONE UINT32_MAX // no token, no rule

typedef struct relay_bpe_pair {
    uint32_t left, right; // ids; left is RELAY_BPE_NONE where the slot is free
    uint32_t rank;        // lower goes first
    uint32_t id;          // of the joined token
} relay_bpe_pair;

typedef struct relay_bpe_pairs {
    relay_bpe_pair *slots; // [2^slot_bits]
    uint64_t *filter;      // [2^filter_bits / 64]
    uint32_t slot_bits, filter_bits;
    uint32_t n;
} relay_bpe_pairs;

// Room for n_rules of them.
void relay_bpe_pairs_init(relay_bpe_pairs *p, uint32_t n_rules);
void relay_bpe_pairs_fini(relay_bpe_pairs *p);
// The pair must not be there yet.
void relay_bpe_pairs_add(relay_bpe_pairs *p, relay_bpe_pair pair);

static inline uint64_t relay_bpe_pair_hash(uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15); // Fibonacci hashing, twice, since the
    return (h ^ h >> 32) * UINT64_C(0xD6E8FEB86659FD93);                        // upper bits must depend on both
}

// NULL where the two do not join.
static inline const relay_bpe_pair *relay_bpe_pairs_find(const relay_bpe_pairs *p, uint32_t left, uint32_t right) {
    uint64_t h = relay_bpe_pair_hash(left, right);
    uint64_t bit = h >> (64 - p->filter_bits);
    if ((p->filter[bit / 64] >> (bit % 64) & 1) == 0) return NULL;
    uint32_t mask = (UINT32_C(1) << p->slot_bits) - 1;
    for (uint32_t i = (uint32_t)(h >> (64 - p->slot_bits));; i = (i + 1) & mask) {
        const relay_bpe_pair *slot = &p->slots[i];
        if (slot->left == left && slot->right == right) return slot;
        if (slot->left == RELAY_BPE_NONE) return NULL;
    }
}

#endif
