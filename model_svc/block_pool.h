// The ids of the KV blocks of one KV group: which are free and which are held.
//
// Only ids and counts: the memory is the model's (relay_kv_pool in kernels.h). One thread; nothing allocates after
// create. A block is held by whoever took it until it is released.
#ifndef RELAY_MODEL_SVC_BLOCK_POOL_H
#define RELAY_MODEL_SVC_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct relay_block_pool relay_block_pool;

relay_block_pool *relay_block_pool_create(uint32_t n_blocks); // >= 1
void relay_block_pool_destroy(relay_block_pool *p);

uint32_t relay_block_pool_total(const relay_block_pool *p);
uint32_t relay_block_pool_free(const relay_block_pool *p);
// Blocks that were taken at least once: those whose memory is resident.
uint32_t relay_block_pool_touched(const relay_block_pool *p);

// A free block, held by the caller. The pool must have one: ask relay_block_pool_free first, so that a taker of
// many takes all or none. The block that was let go last comes first, and one never used before only when no other is
// left, so that memory is touched no further than needed.
uint32_t relay_block_pool_take(relay_block_pool *p);
void relay_block_pool_release(relay_block_pool *p, uint32_t block);

// For tests: free and held blocks are all blocks, each in one of the two, and where `holders` [total] is given, the
// held ones are those with 1 there. NULL if so, else what is wrong.
const char *relay_block_pool_check(const relay_block_pool *p, const uint32_t *holders);

#endif
