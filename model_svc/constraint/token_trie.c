#include "model_svc/constraint/token_trie.h"

#include <string.h>

#include "common/status.h"
#include "model_svc/constraint/sort.h"

static int compare_keys(const void *a, const void *b) {
    const relay_trie_key *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);
    if (order != 0) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

void relay_trie_keys_sort(relay_trie_key *keys, uint32_t n) {
    relay_sort(keys, n, sizeof keys[0], compare_keys);
}

void relay_token_trie_build(relay_token_trie *out, relay_trie_node *nodes, uint32_t *ids, const relay_trie_key *keys,
                            uint32_t n) {
    uint32_t open[RELAY_TRIE_MAX_DEPTH]; // nodes on the path to the last key
    uint32_t depth = 0, n_nodes = 0, n_ids = 0, max_depth = 0;
    const char *last = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const relay_trie_key *k = &keys[i];
        RELAY_ASSERT(k->len >= 1);
        if (k->len > RELAY_TRIE_MAX_DEPTH) continue;
        uint32_t common = 0;
        while (common < depth && common < k->len && last[common] == k->bytes[common])
            common++;
        while (depth > common)
            nodes[open[--depth]].skip = n_nodes;
        for (; depth < k->len; depth++) {
            open[depth] = n_nodes;
            nodes[n_nodes++] =
                (relay_trie_node){.first = n_ids, .depth = (uint16_t)(depth + 1), .byte = (uint8_t)k->bytes[depth]};
        }
        ids[n_ids++] = k->id;
        last = k->bytes;
        if (depth > max_depth) max_depth = depth;
    }
    while (depth > 0)
        nodes[open[--depth]].skip = n_nodes;
    nodes[n_nodes] = (relay_trie_node){.skip = n_nodes, .first = n_ids};
    *out = (relay_token_trie){.nodes = nodes, .ids = ids, .n_nodes = n_nodes, .n_ids = n_ids, .max_depth = max_depth};
}
