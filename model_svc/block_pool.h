// The KV blocks of one KV group: which are free, which are held by how many, and which nobody holds but are worth
// keeping.
//
// Only ids and counts: the memory is the model's (relay_kv_pool in kernels.h). One thread; nothing allocates after
// create. A block is free, held, or cached: held blocks count their holders, and one whose last holder lets go is
// cached where it carries a label, else free. Cached blocks are given out when no other is left, those that were let go
// longest ago first. What a label means is the business of who sets it (prefix_index.h).
#ifndef RELAY_MODEL_SVC_BLOCK_POOL_H
#define RELAY_MODEL_SVC_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

enum { RELAY_NO_BLOCK = UINT32_MAX, RELAY_NO_LABEL = UINT32_MAX };

typedef struct relay_block_pool relay_block_pool;

relay_block_pool *relay_block_pool_create(uint32_t n_blocks); // >= 1
void relay_block_pool_destroy(relay_block_pool *p);

uint32_t relay_block_pool_total(const relay_block_pool *p);
// Blocks that take() could give: those that nobody holds, cached or not.
uint32_t relay_block_pool_available(const relay_block_pool *p);
uint32_t relay_block_pool_cached(const relay_block_pool *p);
// Blocks that were taken at least once: those whose memory is resident.
uint32_t relay_block_pool_touched(const relay_block_pool *p);

// A block that nobody held, with one holder and no label. The pool must have one: ask relay_block_pool_available first,
// so that a taker of many takes all or none. The free block that was let go last comes first, then one never used
// before, then the cached one that was let go longest ago; *forgotten is that one's label, else RELAY_NO_LABEL.
uint32_t relay_block_pool_take(relay_block_pool *p, uint32_t *forgotten);
// One holder more, of a block that is held or cached.
void relay_block_pool_hold(relay_block_pool *p, uint32_t block);
void relay_block_pool_release(relay_block_pool *p, uint32_t block);
uint32_t relay_block_pool_holders(const relay_block_pool *p, uint32_t block);
// The block is held. RELAY_NO_LABEL takes the label away.
void relay_block_pool_set_label(relay_block_pool *p, uint32_t block, uint32_t label);
uint32_t relay_block_pool_label(const relay_block_pool *p, uint32_t block);

// For tests: each block is in one of the three states and the counts are how many there are, and where `holders`
// [total] is given, each block has as many holders as it says. NULL if so, else what is wrong.
const char *relay_block_pool_check(const relay_block_pool *p, const uint32_t *holders);

#endif
