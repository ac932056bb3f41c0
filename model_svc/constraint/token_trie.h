// The byte strings of many ids as a trie in one array, in the order in which a walk from the root meets its nodes.
//
// A walk is a loop over the array: a node's children follow it, and `skip` leads past all of them, so that what cannot
// match costs one comparison. Ids with the same bytes share a node. Immutable once built; any thread.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_TOKEN_TRIE_H
#define RELAY_MODEL_SVC_CONSTRAINT_TOKEN_TRIE_H

#include <stdint.h>

enum { RELAY_TRIE_MAX_DEPTH = 512 }; // longer strings are left out

typedef struct relay_trie_node {
    uint32_t skip;  // index of the next node that is not below this one
    uint32_t first; // of its ids; they end where those of the next node in the array begin
    uint16_t depth; // 1: below the root; the root itself is no node
    uint8_t byte;
} relay_trie_node;

typedef struct relay_token_trie {
    const relay_trie_node *nodes; // [n_nodes + 1]; the last closes the ids of the one before
    const uint32_t *ids;
    uint32_t n_nodes;
    uint32_t n_ids;
    uint32_t max_depth;
} relay_token_trie;

// A string of one id; len >= 1.
typedef struct relay_trie_key {
    const char *bytes;
    uint32_t len;
    uint32_t id;
} relay_trie_key;

// In the order of the bytes, those of equal bytes by id.
void relay_trie_keys_sort(relay_trie_key *keys, uint32_t n);
// From sorted keys into memory of the caller: `nodes` has room for the sum of their lengths and one more, `ids` for n.
void relay_token_trie_build(relay_token_trie *out, relay_trie_node *nodes, uint32_t *ids, const relay_trie_key *keys,
                            uint32_t n);

#endif
