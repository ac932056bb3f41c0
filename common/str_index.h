// From byte strings to small integers: the names of a file's keys and tensors, the pieces of a vocabulary.
//
// Open addressing over a table sized once, at most two thirds full: an entry is added and found in constant time and
// never removed. The bytes are borrowed and must outlive the index. Adding is for one thread; finding for any number,
// once the adding is over.
#ifndef RELAY_COMMON_STR_INDEX_H
#define RELAY_COMMON_STR_INDEX_H

#include <stdint.h>

#include "common/status.h"

#define RELAY_STR_NONE UINT32_MAX // no entry; no entry's value

typedef struct relay_str_index {
    struct relay_str_slot *slots; // mask + 1 of them, a power of two
    uint32_t mask;
    uint32_t n, max_entries;
} relay_str_index;

// max_entries <= 2^30. Aborts when out of memory.
void relay_str_index_init(relay_str_index *x, uint32_t max_entries);
void relay_str_index_fini(relay_str_index *x);
// Adds the string and returns RELAY_STR_NONE; if it is there already, changes nothing and returns its value. Adding
// more than max_entries different strings is a programmer error.
uint32_t relay_str_index_add(relay_str_index *x, const char *s, uint32_t len, uint32_t value);
// Its value, or RELAY_STR_NONE.
uint32_t relay_str_index_find(const relay_str_index *x, const char *s, uint32_t len);
// Gives a string that is there another value.
void relay_str_index_replace(relay_str_index *x, const char *s, uint32_t len, uint32_t value);

#endif
