// Which KV blocks hold the keys and values of which ids: a prompt that begins as an earlier one did finds its blocks
// here in place of computing them.
//
// One entry for each full block of ids that follows another: its key is the entry of the ids before it and its own
// RELAY_BLOCK_TOKENS ids, so that an entry stands for everything from the begin of a sequence to its end. Keys are
// found by hash and confirmed by comparing both parts: a hit says the truth whatever the hash. The first entry of every
// chain is that of a salt, and two salts have no entry in common.
//
// An entry names one block in each KV group, or none where that one has been taken for something else. Blocks that
// nobody holds stay with their entry until their pool (block_pool.h) has no other to give: all blocks are to be taken
// through here. An entry lives as long as it has a block, an entry behind it, or a user; entries are a fixed number,
// and where all are in use nothing more is remembered. One thread; nothing allocates after create.
#ifndef RELAY_MODEL_SVC_PREFIX_INDEX_H
#define RELAY_MODEL_SVC_PREFIX_INDEX_H

#include <stdint.h>

#include "model_svc/block_pool.h"
#include "model_svc/request.h"
#include "model_svc/step.h"

enum { RELAY_NO_ENTRY = RELAY_NO_LABEL };

typedef struct relay_prefix_index relay_prefix_index;

// The pools are borrowed. `hash_seed` should be unknown to whoever chooses ids, who could else make them collide;
// nothing but time depends on it.
relay_prefix_index *relay_prefix_index_create(relay_block_pool *const *pools, uint32_t n_groups, uint32_t max_entries,
                                              uint64_t hash_seed);
void relay_prefix_index_destroy(relay_prefix_index *x);

// A block of the group's pool, as relay_block_pool_take; the entry that it was cached for forgets it.
uint32_t relay_prefix_index_take(relay_prefix_index *x, uint32_t group);

// The entry that all chains with this salt begin with, with one user more; RELAY_NO_ENTRY where there is no room.
uint32_t relay_prefix_index_enter(relay_prefix_index *x, const uint8_t salt[RELAY_SALT_BYTES]);
// The entry of `ids` behind `parent`; RELAY_NO_ENTRY where it is not known.
uint32_t relay_prefix_index_find(const relay_prefix_index *x, uint32_t parent, const uint32_t ids[RELAY_BLOCK_TOKENS]);
// Its block; RELAY_NO_BLOCK where it has none.
uint32_t relay_prefix_index_block(const relay_prefix_index *x, uint32_t entry, uint32_t group);
// Remembers that the blocks hold `ids` behind `parent`, which has a user. In place of a block that somebody computed
// before, the caller gets that one: it holds the same bits. blocks [n_groups]: held by the caller, or RELAY_NO_BLOCK.
// The user of `parent` becomes one of the entry that is returned; where that is RELAY_NO_ENTRY, there was no room, and
// `parent` has a user less.
uint32_t relay_prefix_index_store(relay_prefix_index *x, uint32_t parent, const uint32_t ids[RELAY_BLOCK_TOKENS],
                                  uint32_t *blocks);
void relay_prefix_index_use(relay_prefix_index *x, uint32_t entry);
// RELAY_NO_ENTRY is fine.
void relay_prefix_index_leave(relay_prefix_index *x, uint32_t entry);
uint32_t relay_prefix_index_parent(const relay_prefix_index *x, uint32_t entry); // RELAY_NO_ENTRY: it is a salt's

uint32_t relay_prefix_index_entries(const relay_prefix_index *x); // in use
// For tests: keys, links and counts agree, and each block and its entry name each other. NULL if so, else what is
// wrong. users [max_entries] are those that every entry should have.
const char *relay_prefix_index_check(const relay_prefix_index *x, const uint32_t *users);

#endif
