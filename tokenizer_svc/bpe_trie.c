// Built breadth first from the sorted pieces: a node is a range of them that share their first bytes, and its children
// are the parts of the range by the next byte.
#include "tokenizer_svc/bpe_trie.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *piece;
    uint32_t len, id;
} entry;

static int compare_entries(const void *a, const void *b) {
    const entry *x = a, *y = b;
    uint32_t common = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->piece, y->piece, common);
    if (order != 0) return order;
    return x->len < y->len ? -1 : x->len > y->len;
}

static uint32_t bucket_of(const entry *x) {
    return (uint32_t)(uint8_t)x->piece[0] << 8 | (x->len > 1 ? (uint8_t)x->piece[1] : 0);
}

// By their bytes: first into buckets by two of them, then each bucket. The caller frees the list.
static entry *sorted_pieces(const relay_bpe_rules *r, uint32_t *n) {
    entry *all = relay_calloc((size_t)r->n_ids + 1, sizeof *all);
    uint32_t *begin = relay_calloc(65537, sizeof *begin);
    *n = 0;
    for (uint32_t id = 0; id < r->n_ids; id++) {
        entry x = {.piece = r->pieces[id], .len = r->made[id].len, .id = id};
        if (x.piece == NULL || relay_bpe_rules_find(r, x.piece, x.len) != id) continue;
        all[(*n)++] = x;
        begin[bucket_of(&x) + 1]++;
    }
    for (uint32_t i = 0; i < 65536; i++)
        begin[i + 1] += begin[i];
    entry *sorted = relay_calloc((size_t)*n + 1, sizeof *sorted);
    uint32_t *next = relay_calloc(65537, sizeof *next);
    memcpy(next, begin, 65537 * sizeof *next);
    for (uint32_t i = 0; i < *n; i++)
        sorted[next[bucket_of(&all[i])]++] = all[i];
    for (uint32_t i = 0; i < 65536; i++)
        if (begin[i + 1] - begin[i] > 1)
            qsort(sorted + begin[i], begin[i + 1] - begin[i], sizeof *sorted, compare_entries);
    free(all);
    free(begin);
    free(next);
    return sorted;
}

typedef struct range {
    uint32_t low, high; // entries
    uint32_t shorter;   // what the node's piece begins with, the node's own token aside
} range;

void relay_bpe_trie_init(relay_bpe_trie *t, const relay_bpe_rules *r) {
    *t = (relay_bpe_trie){.by_two = relay_calloc(65536, sizeof *t->by_two),
                          .shorter = relay_calloc((size_t)r->n_ids + 1, sizeof *t->shorter)};
    memset(t->shorter, 0xFF, ((size_t)r->n_ids + 1) * sizeof *t->shorter);
    uint32_t n;
    entry *sorted = sorted_pieces(r, &n);
    size_t cap = 1;
    for (uint32_t i = 0; i < n; i++)
        cap += sorted[i].len; // no piece adds more nodes than it has bytes
    t->nodes = relay_calloc(cap, sizeof *t->nodes);
    range *ranges = relay_calloc(cap, sizeof *ranges); // of the nodes
    t->nodes[0].id = RELAY_BPE_NONE;
    ranges[0] = (range){.low = 0, .high = n, .shorter = RELAY_BPE_NONE};
    t->n_nodes = 1;
    uint32_t depth = 0, depth_end = 1; // nodes before depth_end have at most this depth
    for (uint32_t i = 0; i < t->n_nodes; i++) {
        if (i == depth_end) {
            depth++;
            depth_end = t->n_nodes;
        }
        relay_bpe_trie_node *node = &t->nodes[i];
        range own = ranges[i];
        uint32_t at = own.low, shorter = own.shorter;
        if (at < own.high && sorted[at].len == depth) {
            node->id = sorted[at].id;
            node->is_made = r->made[node->id].rank != RELAY_BPE_NONE;
            t->shorter[node->id] = shorter;
            if (node->is_made) shorter = node->id;
            at++;
        }
        node->first = t->n_nodes;
        while (at < own.high) {
            uint8_t byte = (uint8_t)sorted[at].piece[depth];
            uint32_t begin = at;
            while (at < own.high && (uint8_t)sorted[at].piece[depth] == byte)
                at++;
            t->nodes[t->n_nodes] = (relay_bpe_trie_node){.id = RELAY_BPE_NONE, .byte = byte};
            if (depth == 1) t->by_two[node->byte | (uint32_t)byte << 8] = t->n_nodes;
            ranges[t->n_nodes++] = (range){.low = begin, .high = at, .shorter = shorter};
            node->n_children++;
        }
    }
    t->nodes = relay_realloc(t->nodes, t->n_nodes * sizeof *t->nodes);
    free(ranges);
    free(sorted);
}

void relay_bpe_trie_fini(relay_bpe_trie *t) {
    free(t->nodes);
    free(t->by_two);
    free(t->shorter);
    *t = (relay_bpe_trie){0};
}
