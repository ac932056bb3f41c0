// Linear probing from the low bits of XXH3's 64-bit hash.
#include "common/str_index.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct relay_str_slot {
    const char *s; // NULL: free
    uint32_t len;
    uint32_t value;
} relay_str_slot;

void relay_str_index_init(relay_str_index *x, uint32_t max_entries) {
    RELAY_ASSERT(max_entries <= UINT32_C(1) << 30);
    uint32_t n_slots = 8;
    while (n_slots / 3 * 2 < max_entries)
        n_slots *= 2;
    *x = (relay_str_index){
        .slots = relay_calloc(n_slots, sizeof *x->slots), .mask = n_slots - 1, .max_entries = max_entries};
}

void relay_str_index_fini(relay_str_index *x) {
    free(x->slots);
    *x = (relay_str_index){0};
}

// The slot that holds the string, or the free one where it belongs.
static relay_str_slot *slot_of(const relay_str_index *x, const char *s, uint32_t len) {
    uint32_t i = (uint32_t)XXH3_64bits(s, len) & x->mask;
    for (;; i = (i + 1) & x->mask) {
        relay_str_slot *slot = &x->slots[i];
        if (slot->s == NULL || (slot->len == len && memcmp(slot->s, s, len) == 0)) return slot;
    }
}

uint32_t relay_str_index_add(relay_str_index *x, const char *s, uint32_t len, uint32_t value) {
    RELAY_ASSERT(s != NULL && value != RELAY_STR_NONE);
    relay_str_slot *slot = slot_of(x, s, len);
    if (slot->s != NULL) return slot->value;
    RELAY_ASSERT(x->n < x->max_entries);
    x->n++;
    *slot = (relay_str_slot){.s = s, .len = len, .value = value};
    return RELAY_STR_NONE;
}

uint32_t relay_str_index_find(const relay_str_index *x, const char *s, uint32_t len) {
    const relay_str_slot *slot = slot_of(x, s, len);
    return slot->s == NULL ? RELAY_STR_NONE : slot->value;
}

void relay_str_index_replace(relay_str_index *x, const char *s, uint32_t len, uint32_t value) {
    relay_str_slot *slot = slot_of(x, s, len);
    RELAY_ASSERT(slot->s != NULL);
    slot->value = value;
}
