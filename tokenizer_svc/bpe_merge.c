// A short list is merged in arrays that fit the first-level cache: find the lowest rank, join, close the gap.
// Quadratic, and faster than any cleverness up to some dozens of symbols. A long one is a linked list with a heap of
// candidate pairs.
#include "tokenizer_svc/bpe_merge.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"

enum { SHORT = 48 }; // symbols

void relay_bpe_symbols_fini(relay_bpe_symbols *l) {
    free(l->s);
    free(l->nodes);
    free(l->heap);
    *l = (relay_bpe_symbols){0};
}

void relay_bpe_symbols_add(relay_bpe_symbols *l, uint32_t id, uint32_t begin, uint32_t end) {
    if (l->n == l->cap) {
        l->cap = l->cap == 0 ? SHORT : 2 * l->cap;
        l->s = relay_realloc(l->s, l->cap * sizeof *l->s);
    }
    l->s[l->n++] = (relay_bpe_symbol){.id = id, .begin = begin, .end = end};
}

// ---- Short lists

typedef struct short_list {
    uint32_t rank[SHORT];   // of the pair (i, i + 1); RELAY_BPE_NONE where there is no rule
    uint32_t joined[SHORT]; // what that pair becomes
} short_list;

static void rank_pair(const relay_bpe_pairs *pairs, const relay_bpe_symbols *l, short_list *w, uint32_t i) {
    w->rank[i] = RELAY_BPE_NONE;
    if (i + 1 >= l->n) return;
    const relay_bpe_pair *p = relay_bpe_pairs_find(pairs, l->s[i].id, l->s[i + 1].id);
    if (p == NULL) return;
    w->rank[i] = p->rank;
    w->joined[i] = p->id;
}

static void merge_short(const relay_bpe_pairs *pairs, relay_bpe_symbols *l) {
    short_list w;
    for (uint32_t i = 0; i < l->n; i++)
        rank_pair(pairs, l, &w, i);
    while (l->n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < l->n; i++)
            if (w.rank[i] < w.rank[best]) best = i;
        if (w.rank[best] == RELAY_BPE_NONE) break;
        l->s[best].id = w.joined[best];
        l->s[best].end = l->s[best + 1].end;
        uint32_t n_behind = l->n - best - 2;
        memmove(&l->s[best + 1], &l->s[best + 2], n_behind * sizeof *l->s);
        memmove(&w.rank[best + 1], &w.rank[best + 2], n_behind * sizeof *w.rank);
        memmove(&w.joined[best + 1], &w.joined[best + 2], n_behind * sizeof *w.joined);
        l->n--;
        rank_pair(pairs, l, &w, best);
        if (best > 0) rank_pair(pairs, l, &w, best - 1);
    }
}

// ---- Long lists
//
// The heap holds (rank, node) in one number, so the lowest rank comes first and of equal ones the leftmost. An entry is
// out of date when its node's pair has another rank than the entry says; a joined-away node has none.

typedef struct relay_bpe_node {
    uint32_t prev, next; // nodes; RELAY_BPE_NONE at the ends
    uint32_t rank;       // of the pair with the next node
    uint32_t joined;     // what that pair becomes
} relay_bpe_node;

static void heap_push(uint64_t *heap, uint32_t *n, uint64_t entry) {
    uint32_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2] > entry) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = entry;
}

static uint64_t heap_pop(uint64_t *heap, uint32_t *n) {
    uint64_t top = heap[0], last = heap[--*n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= *n) break;
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static void queue_pair(const relay_bpe_pairs *pairs, relay_bpe_symbols *l, uint32_t *n_heap, uint32_t i) {
    relay_bpe_node *node = &l->nodes[i];
    node->rank = RELAY_BPE_NONE;
    if (node->next == RELAY_BPE_NONE) return;
    const relay_bpe_pair *p = relay_bpe_pairs_find(pairs, l->s[i].id, l->s[node->next].id);
    if (p == NULL) return;
    node->rank = p->rank;
    node->joined = p->id;
    heap_push(l->heap, n_heap, (uint64_t)p->rank << 32 | i);
}

static void merge_long(const relay_bpe_pairs *pairs, relay_bpe_symbols *l) {
    if (l->n > l->long_cap) {
        l->long_cap = l->n;
        l->nodes = relay_realloc(l->nodes, (uint64_t)l->long_cap * sizeof *l->nodes);
        l->heap = relay_realloc(l->heap, (uint64_t)l->long_cap * 3 * sizeof *l->heap); // one a symbol, two a merge
    }
    relay_bpe_node *nodes = l->nodes;
    for (uint32_t i = 0; i < l->n; i++)
        nodes[i] = (relay_bpe_node){.prev = i - 1, .next = i + 1};
    nodes[0].prev = nodes[l->n - 1].next = RELAY_BPE_NONE;
    uint32_t n_heap = 0;
    for (uint32_t i = 0; i < l->n; i++)
        queue_pair(pairs, l, &n_heap, i);
    while (n_heap > 0) {
        uint64_t entry = heap_pop(l->heap, &n_heap);
        uint32_t left = (uint32_t)entry;
        if (nodes[left].rank != entry >> 32) continue;
        uint32_t right = nodes[left].next;
        l->s[left].id = nodes[left].joined;
        l->s[left].end = l->s[right].end;
        nodes[left].next = nodes[right].next;
        nodes[right].rank = RELAY_BPE_NONE;
        if (nodes[left].next != RELAY_BPE_NONE) nodes[nodes[left].next].prev = left;
        queue_pair(pairs, l, &n_heap, left);
        if (nodes[left].prev != RELAY_BPE_NONE) queue_pair(pairs, l, &n_heap, nodes[left].prev);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i != RELAY_BPE_NONE; i = nodes[i].next)
        l->s[n++] = l->s[i];
    l->n = n;
}

void relay_bpe_merge(const relay_bpe_pairs *pairs, relay_bpe_symbols *l) {
    if (l->n <= SHORT)
        merge_short(pairs, l);
    else
        merge_long(pairs, l);
}
