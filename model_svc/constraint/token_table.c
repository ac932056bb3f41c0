#include "model_svc/constraint/token_table.h"

#include <stdlib.h>

#include "common/status.h"

static uint32_t collect(relay_trie_key *keys, const relay_vocab *v, uint32_t n_ids, bool is_text, uint64_t *n_bytes) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < n_ids; id++) {
        const relay_token *t = relay_vocab_token(v, id);
        bool is_wanted = is_text ? relay_token_is_text(t) : t->kind == RELAY_TOKEN_CONTROL && t->len > 0;
        if (!is_wanted) continue;
        keys[n++] = (relay_trie_key){.bytes = t->bytes, .len = t->len, .id = id};
        *n_bytes += t->len;
    }
    relay_trie_keys_sort(keys, n);
    return n;
}

static void build(relay_token_trie *out, const relay_vocab *v, uint32_t n_ids, bool is_text) {
    relay_trie_key *keys = relay_calloc(n_ids + 1, sizeof keys[0]);
    uint64_t n_bytes = 0;
    uint32_t n = collect(keys, v, n_ids, is_text, &n_bytes);
    relay_trie_node *nodes = relay_calloc(n_bytes + 1, sizeof nodes[0]);
    uint32_t *ids = relay_calloc(n + 1, sizeof ids[0]);
    relay_token_trie_build(out, nodes, ids, keys, n);
    // Most prefixes are shared: what the sum of the lengths asked for is far more than there are nodes.
    out->nodes = relay_realloc(nodes, (out->n_nodes + 1) * sizeof nodes[0]);
    free(keys);
}

relay_token_table *relay_token_table_create(const relay_vocab *v, uint32_t n_vocab) {
    uint32_t n_known = relay_vocab_size(v) < n_vocab ? relay_vocab_size(v) : n_vocab;
    relay_token_table *t = relay_calloc(1, sizeof *t);
    t->n_vocab = n_vocab;
    t->n_words = (t->n_vocab + 31) / 32;
    t->vocab = v;
    build(&t->text, v, n_known, true);
    build(&t->named, v, n_known, false);
    return t;
}

static void free_trie(relay_token_trie *t) {
    free((void *)(uintptr_t)t->nodes);
    free((void *)(uintptr_t)t->ids);
}

void relay_token_table_destroy(relay_token_table *t) {
    if (t == NULL) return;
    free_trie(&t->text);
    free_trie(&t->named);
    free(t);
}
