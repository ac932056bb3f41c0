// Two steps: a tree of linked nodes, found by (parent, byte) in a hash table while strings are added in any order; then
// each node's children are laid into the double array, in the first place where all of them find free units.
//
// Free units form a list. Only those of the last OPEN_BLOCKS blocks are on it, so that laying out is linear in the size
// and hardly a unit is wasted (the idea is darts-clone's, Yata 2008).
#include "tokenizer_svc/byte_trie.h"

#include <stdlib.h>

#include "common/status.h"

enum { BLOCK = 256, OPEN_BLOCKS = 16 };

#define FREE UINT32_MAX // `check` of a unit that is no node; no parent has this number

typedef struct tree_node {
    uint32_t parent;
    uint32_t first_child, next_sibling; // 0: none
    uint32_t value;
    uint8_t byte;
} tree_node;

struct relay_trie_builder {
    tree_node *nodes; // [n]; the root is nodes[0]
    uint32_t n, cap;
    uint32_t *table; // [mask + 1] node numbers, 0: free
    uint32_t mask;
};

// ---- The tree

relay_trie_builder *relay_trie_builder_create(void) {
    relay_trie_builder *b = relay_calloc(1, sizeof *b);
    b->cap = 1024;
    b->nodes = relay_calloc(b->cap, sizeof *b->nodes);
    b->nodes[0].value = RELAY_TRIE_NONE;
    b->n = 1;
    b->mask = 4095;
    b->table = relay_calloc((uint64_t)b->mask + 1, sizeof *b->table);
    return b;
}

static uint32_t *slot_of(const relay_trie_builder *b, uint32_t parent, uint8_t byte) {
    uint64_t h = ((uint64_t)parent << 8 | byte) * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = (uint32_t)(h >> 32) & b->mask;; i = (i + 1) & b->mask) {
        const tree_node *node = &b->nodes[b->table[i]];
        if (b->table[i] == 0 || (node->parent == parent && node->byte == byte)) return &b->table[i];
    }
}

static void grow_table(relay_trie_builder *b) {
    free(b->table);
    b->mask = 2 * b->mask + 1;
    b->table = relay_calloc((uint64_t)b->mask + 1, sizeof *b->table);
    for (uint32_t i = 1; i < b->n; i++)
        *slot_of(b, b->nodes[i].parent, b->nodes[i].byte) = i;
}

static uint32_t child_of(relay_trie_builder *b, uint32_t parent, uint8_t byte) {
    uint32_t *slot = slot_of(b, parent, byte);
    if (*slot != 0) return *slot;
    if (b->n == b->cap) {
        b->cap *= 2;
        b->nodes = relay_realloc(b->nodes, (uint64_t)b->cap * sizeof *b->nodes);
    }
    uint32_t node = b->n++;
    b->nodes[node] = (tree_node){
        .parent = parent, .next_sibling = b->nodes[parent].first_child, .value = RELAY_TRIE_NONE, .byte = byte};
    b->nodes[parent].first_child = node;
    *slot = node;
    if (b->n > b->mask / 2) grow_table(b);
    return node;
}

void relay_trie_builder_add(relay_trie_builder *b, const char *bytes, size_t len, uint32_t value) {
    RELAY_ASSERT(value != RELAY_TRIE_NONE);
    if (len == 0) return;
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++)
        node = child_of(b, node, (uint8_t)bytes[i]);
    b->nodes[node].value = value;
}

// ---- The double array

typedef struct layout {
    relay_trie_unit *units;
    uint32_t n, cap;
    uint32_t *next_free, *prev_free; // [cap] a ring through unit 0, which is the root and never free
} layout;

static void unlink_free(layout *l, uint32_t unit) {
    l->next_free[l->prev_free[unit]] = l->next_free[unit];
    l->prev_free[l->next_free[unit]] = l->prev_free[unit];
}

static void add_block(layout *l) {
    if (l->n == l->cap) {
        l->cap = l->cap == 0 ? 16 * BLOCK : 2 * l->cap;
        l->units = relay_realloc(l->units, (uint64_t)l->cap * sizeof *l->units);
        l->next_free = relay_realloc(l->next_free, (uint64_t)l->cap * sizeof *l->next_free);
        l->prev_free = relay_realloc(l->prev_free, (uint64_t)l->cap * sizeof *l->prev_free);
    }
    if (l->n >= OPEN_BLOCKS * BLOCK) { // the oldest open block is closed
        uint32_t begin = l->n - OPEN_BLOCKS * BLOCK;
        for (uint32_t i = begin == 0 ? 1 : begin; i < begin + BLOCK; i++)
            if (l->units[i].check == FREE) unlink_free(l, i);
    }
    for (uint32_t i = l->n; i < l->n + BLOCK; i++) {
        l->units[i] = (relay_trie_unit){.base = 0, .check = FREE, .value = RELAY_TRIE_NONE};
        if (i == 0) {
            l->next_free[0] = l->prev_free[0] = 0;
            continue;
        }
        l->prev_free[i] = l->prev_free[0];
        l->next_free[i] = 0;
        l->next_free[l->prev_free[0]] = i;
        l->prev_free[0] = i;
    }
    l->n += BLOCK;
}

static bool is_room(const layout *l, const tree_node *nodes, uint32_t child, uint32_t base) {
    for (; child != 0; child = nodes[child].next_sibling) {
        uint32_t unit = base ^ nodes[child].byte;
        if (unit == RELAY_TRIE_ROOT || l->units[unit].check != FREE) return false;
    }
    return true;
}

// A base at which all children from `first` on find free units.
static uint32_t find_base(layout *l, const tree_node *nodes, uint32_t first) {
    for (;;) {
        for (uint32_t unit = l->next_free[0]; unit != 0; unit = l->next_free[unit]) {
            uint32_t base = unit ^ nodes[first].byte;
            if (is_room(l, nodes, first, base)) return base;
        }
        add_block(l);
    }
}

void relay_trie_builder_finish(relay_trie_builder *b, relay_byte_trie *trie) {
    layout l = {.n = 0};
    add_block(&l);
    l.units[RELAY_TRIE_ROOT].check = FREE - 1; // no node is the root's parent
    uint32_t *unit_of = relay_calloc(b->n, sizeof *unit_of);
    uint32_t *stack = relay_calloc(b->n, sizeof *stack), depth = 0;
    stack[depth++] = 0;
    while (depth > 0) {
        uint32_t node = stack[--depth], first = b->nodes[node].first_child;
        if (first == 0) continue;
        uint32_t base = find_base(&l, b->nodes, first);
        l.units[unit_of[node]].base = base;
        for (uint32_t child = first; child != 0; child = b->nodes[child].next_sibling) {
            uint32_t unit = base ^ b->nodes[child].byte;
            unlink_free(&l, unit);
            l.units[unit].check = unit_of[node];
            l.units[unit].value = b->nodes[child].value;
            unit_of[child] = unit;
            stack[depth++] = child;
        }
    }
    *trie = (relay_byte_trie){.units = relay_realloc(l.units, (uint64_t)l.n * sizeof *l.units), .n_units = l.n};
    free(l.next_free);
    free(l.prev_free);
    free(unit_of);
    free(stack);
    free(b->nodes);
    free(b->table);
    free(b);
}

void relay_byte_trie_fini(relay_byte_trie *t) {
    free(t->units);
    *t = (relay_byte_trie){0};
}
