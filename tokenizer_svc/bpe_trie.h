// The pieces of a vocabulary as a tree of bytes: which tokens does a text begin with?
//
// The children of a node lie beside each other, sorted by their byte, so that a child is found by one look where its
// bytes have no gap (the middle of a CJK character) and in a short walk elsewhere. The first two bytes of a text are
// one look into a table. Immutable after it is built; any thread.
#ifndef RELAY_TOKENIZER_SVC_BPE_TRIE_H
#define RELAY_TOKENIZER_SVC_BPE_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer_svc/bpe_rules.h"

typedef struct relay_bpe_trie_node {
    uint32_t first; // its first child
    uint32_t id;    // of the token that ends here, or RELAY_BPE_NONE
    uint16_t n_children;
    bool is_made; // merges lead to that token
    uint8_t byte; // that leads here
} relay_bpe_trie_node;

typedef struct relay_bpe_trie {
    relay_bpe_trie_node *nodes; // [0] is the root
    uint32_t n_nodes;
    uint32_t *by_two;  // [65536] nodes by the first byte and 256 times the second; 0: none
    uint32_t *shorter; // [n_ids] the longest token that merges lead to and that a token begins with; or RELAY_BPE_NONE
} relay_bpe_trie;

void relay_bpe_trie_init(relay_bpe_trie *t, const relay_bpe_rules *r);
void relay_bpe_trie_fini(relay_bpe_trie *t);

// The child of a node; 0 if there is none.
static inline uint32_t relay_bpe_trie_child(const relay_bpe_trie *t, uint32_t node, uint8_t byte) {
    const relay_bpe_trie_node *n = &t->nodes[node];
    if (n->n_children == 0) return 0;
    const relay_bpe_trie_node *children = &t->nodes[n->first];
    if (byte < children[0].byte) return 0;
    // Bytes ascend without repeating, so a byte lies no further on than its distance from the first.
    uint32_t i = (uint32_t)(byte - children[0].byte), last = n->n_children - 1u;
    if (i > last) i = last;
    while (children[i].byte > byte)
        i--;
    return children[i].byte == byte ? n->first + i : 0;
}

// The longest token with a rule that text begins with, RELAY_BPE_NONE if there is none; and in *whole the token that is
// all of the text, with a rule or without, or RELAY_BPE_NONE. len > 0.
static inline uint32_t relay_bpe_trie_longest(const relay_bpe_trie *t, const char *text, size_t len, uint32_t *whole) {
    const uint8_t *s = (const uint8_t *)text;
    uint32_t node = relay_bpe_trie_child(t, 0, s[0]), best = RELAY_BPE_NONE;
    *whole = RELAY_BPE_NONE;
    if (node == 0) return best;
    size_t at = 1;
    if (t->nodes[node].is_made) best = t->nodes[node].id;
    if (len > 1) {
        node = t->by_two[s[0] | (uint32_t)s[1] << 8];
        for (at = 2; node != 0; at++) {
            const relay_bpe_trie_node *n = &t->nodes[node];
            if (n->is_made) best = n->id;
            if (at == len) break;
            node = relay_bpe_trie_child(t, node, s[at]);
        }
    }
    if (node != 0 && at == len) *whole = t->nodes[node].id;
    return best;
}

#endif
