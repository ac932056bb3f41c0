// The counts lie side by side, and an index of open addressing finds the one of an id. Nothing is ever taken out of the
// index but by clear.
#include "model_svc/token_counts.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"

void relay_token_counts_init(relay_token_counts *c, uint32_t max_items) {
    RELAY_ASSERT(max_items >= 1 && max_items <= UINT32_MAX / 4);
    *c = (relay_token_counts){.max_items = max_items, .index_bits = 1};
    // At most half full, so that probes are short.
    while ((1U << c->index_bits) < 2 * max_items)
        c->index_bits++;
    c->items = relay_calloc(max_items, sizeof c->items[0]);
    c->index = relay_calloc(1U << c->index_bits, sizeof c->index[0]);
    c->changed = relay_calloc(max_items, sizeof c->changed[0]);
    c->changed_place = relay_calloc(max_items, sizeof c->changed_place[0]);
}

void relay_token_counts_fini(relay_token_counts *c) {
    free(c->items);
    free(c->index);
    free(c->changed);
    free(c->changed_place);
    *c = (relay_token_counts){0};
}

// Where `token_id` is in the index, or the empty place where it belongs. Fibonacci hashing (Knuth, TAOCP 3, 6.4).
static uint32_t *find(const relay_token_counts *c, uint32_t token_id) {
    uint32_t mask = (1U << c->index_bits) - 1;
    uint32_t at = (token_id * 2654435769U) >> (32 - c->index_bits);
    while (c->index[at] != 0 && c->items[c->index[at] - 1].token_id != token_id)
        at = (at + 1) & mask;
    return &c->index[at];
}

// Takes the ids out newest first: what was passed over when an id came in is then still there to lead to it.
void relay_token_counts_clear(relay_token_counts *c) {
    while (c->n_items > 0) {
        *find(c, c->items[c->n_items - 1].token_id) = 0;
        c->n_items--;
    }
    c->n_changed = 0;
}

// The id's item, which is about to change.
static relay_token_count *item_of(relay_token_counts *c, uint32_t token_id) {
    uint32_t *place = find(c, token_id);
    if (*place == 0) {
        RELAY_ASSERT(c->n_items < c->max_items);
        c->items[c->n_items++] = (relay_token_count){.token_id = token_id};
        *place = c->n_items;
    }
    // A set without initialization (Briggs and Torczon, 1993): what changed_place says holds if `changed` agrees.
    const uint32_t item = *place - 1, at = c->changed_place[item];
    if (at >= c->n_changed || c->changed[at] != item) {
        c->changed_place[item] = c->n_changed;
        c->changed[c->n_changed++] = item;
    }
    return &c->items[item];
}

void relay_token_counts_add_prompt(relay_token_counts *c, uint32_t token_id) {
    item_of(c, token_id)->in_prompt++;
}

void relay_token_counts_add_output(relay_token_counts *c, uint32_t token_id) {
    item_of(c, token_id)->in_output++;
}

void relay_token_counts_remove_prompt(relay_token_counts *c, uint32_t token_id) {
    item_of(c, token_id)->in_prompt--;
}

void relay_token_counts_remove_output(relay_token_counts *c, uint32_t token_id) {
    item_of(c, token_id)->in_output--;
}

void relay_token_counts_carry(relay_token_counts *c, relay_count_update *out, uint64_t begin) {
    for (uint32_t i = 0; i < c->n_changed; i++)
        out[i] = (relay_count_update){.at = begin + c->changed[i], .count = c->items[c->changed[i]]};
    c->n_changed = 0;
}
