#include "tokenizer_svc/bpe_pairs.h"

#include <stdlib.h>

#include "common/status.h"

enum {
    MIN_BITS = 6,
    FILTER_BITS_A_RULE = 8, // one question in eight or so passes it in vain
};

static uint32_t bits_for(uint64_t n) {
    uint32_t bits = MIN_BITS;
    while (UINT64_C(1) << bits < n)
        bits++;
    return bits;
}

void relay_bpe_pairs_init(relay_bpe_pairs *p, uint32_t n_rules) {
    *p = (relay_bpe_pairs){.slot_bits = bits_for(2 * (uint64_t)n_rules),
                           .filter_bits = bits_for(FILTER_BITS_A_RULE * (uint64_t)n_rules)};
    size_t n_slots = (size_t)1 << p->slot_bits;
    p->slots = relay_calloc(n_slots, sizeof *p->slots);
    for (size_t i = 0; i < n_slots; i++)
        p->slots[i].left = RELAY_BPE_NONE;
    p->filter = relay_calloc(((size_t)1 << p->filter_bits) / 64, sizeof *p->filter);
}

void relay_bpe_pairs_fini(relay_bpe_pairs *p) {
    free(p->slots);
    free(p->filter);
    *p = (relay_bpe_pairs){0};
}

void relay_bpe_pairs_add(relay_bpe_pairs *p, relay_bpe_pair pair) {
    uint64_t h = relay_bpe_pair_hash(pair.left, pair.right);
    uint64_t bit = h >> (64 - p->filter_bits);
    p->filter[bit / 64] |= UINT64_C(1) << (bit % 64);
    uint32_t mask = (UINT32_C(1) << p->slot_bits) - 1;
    uint32_t i = (uint32_t)(h >> (64 - p->slot_bits));
    while (p->slots[i].left != RELAY_BPE_NONE)
        i = (i + 1) & mask;
    p->slots[i] = pair;
    p->n++;
    RELAY_ASSERT(p->n <= mask); // a free slot ends every search
}
