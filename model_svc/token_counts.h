// How often each id occurs in one sequence, kept up as it grows: what penalties need at every step without a walk over
// the sequence. Memory is set at init; adding allocates nothing.
//
// The counts themselves lie with the model (relay_step.h's resident counts); a step carries the items that changed
// since the last one that was carried.
#ifndef RELAY_MODEL_SVC_TOKEN_COUNTS_H
#define RELAY_MODEL_SVC_TOKEN_COUNTS_H

#include <stdint.h>

#include "kernels/kernels.h"

typedef struct relay_token_counts {
    relay_token_count *items; // [n_items], ids in the order in which they first came
    uint32_t n_items;
    uint32_t max_items;
    uint32_t *index; // [1 << index_bits]: open addressing over token_id; item + 1, or 0 where none
    uint32_t index_bits;
    uint32_t *changed; // [n_changed] items that changed, each once
    uint32_t n_changed;
    uint32_t *changed_place; // [max_items] where an item is in `changed`, if it is there
} relay_token_counts;

// Room for `max_items` different ids, >= 1. Pages become resident as they are used.
void relay_token_counts_init(relay_token_counts *c, uint32_t max_items);
void relay_token_counts_fini(relay_token_counts *c);
void relay_token_counts_clear(relay_token_counts *c);
void relay_token_counts_add_prompt(relay_token_counts *c, uint32_t token_id);
void relay_token_counts_add_output(relay_token_counts *c, uint32_t token_id);
// Of one that was added: it has left the window that is counted. Its item stays, at fewer or none.
void relay_token_counts_remove_prompt(relay_token_counts *c, uint32_t token_id);
void relay_token_counts_remove_output(relay_token_counts *c, uint32_t token_id);
// Writes the items that changed, item i at `begin` + i, and takes them for carried. Room for n_changed.
void relay_token_counts_carry(relay_token_counts *c, relay_count_update *out, uint64_t begin);

#endif
