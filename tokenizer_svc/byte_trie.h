// A map from byte strings to ids that is walked a byte at a time: what pieces begin here, and how long are they?
//
// A double array (Aoe 1989) whose children lie at base XOR byte, so that those of one node share a block of 256 units;
// a step is one load and one comparison. Immutable once made; any thread.
#ifndef RELAY_TOKENIZER_SVC_BYTE_TRIE_H
#define RELAY_TOKENIZER_SVC_BYTE_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RELAY_TRIE_NONE UINT32_MAX // no value

enum { RELAY_TRIE_ROOT = 0, RELAY_TRIE_NOWHERE = 0 }; // no step leads to the root

typedef struct relay_trie_unit {
    uint32_t base;  // where the children are
    uint32_t check; // the parent
    uint32_t value; // of the string that ends here, or RELAY_TRIE_NONE
} relay_trie_unit;

typedef struct relay_byte_trie {
    relay_trie_unit *units;
    uint32_t n_units;
} relay_byte_trie;

// How one is made: strings are added in any order, of two equal ones the last counts, an empty one is left out; then
// `finish` makes the trie and frees the builder.
typedef struct relay_trie_builder relay_trie_builder;
relay_trie_builder *relay_trie_builder_create(void);
// value < RELAY_TRIE_NONE. `bytes` are copied.
void relay_trie_builder_add(relay_trie_builder *b, const char *bytes, size_t len, uint32_t value);
void relay_trie_builder_finish(relay_trie_builder *b, relay_byte_trie *trie);
void relay_byte_trie_fini(relay_byte_trie *t);

// The node behind `node` by this byte, or RELAY_TRIE_NOWHERE.
static inline uint32_t relay_byte_trie_step(const relay_byte_trie *t, uint32_t node, uint8_t byte) {
    uint32_t next = t->units[node].base ^ byte;
    return t->units[next].check == node ? next : RELAY_TRIE_NOWHERE;
}

// The value of exactly this string, or RELAY_TRIE_NONE.
static inline uint32_t relay_byte_trie_find(const relay_byte_trie *t, const char *s, size_t len) {
    uint32_t node = RELAY_TRIE_ROOT;
    for (size_t i = 0; i < len; i++) {
        node = relay_byte_trie_step(t, node, (uint8_t)s[i]);
        if (node == RELAY_TRIE_NOWHERE) return RELAY_TRIE_NONE;
    }
    return t->units[node].value;
}

#endif
