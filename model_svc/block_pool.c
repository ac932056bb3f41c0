// The free blocks form a stack that runs through the blocks' own entries (each names the one below it), so that taking
// and releasing is constant time and needs no memory beyond one entry a block. Blocks that were never used are not on
// it: they are those from n_touched up.
#include "model_svc/block_pool.h"

#include <stdlib.h>

#include "common/status.h"

enum { NONE = UINT32_MAX };

typedef struct block {
    uint32_t below; // while free: the next free block, or NONE
    bool is_held;
} block;

struct relay_block_pool {
    uint32_t n_blocks;
    uint32_t n_free;    // on the stack or never touched
    uint32_t n_touched; // blocks [0, n_touched) were taken at least once
    uint32_t top;       // of the stack, or NONE
    block blocks[];
};

relay_block_pool *relay_block_pool_create(uint32_t n_blocks) {
    RELAY_ASSERT(n_blocks >= 1 && n_blocks < NONE);
    relay_block_pool *p = relay_calloc(1, sizeof *p + (uint64_t)n_blocks * sizeof p->blocks[0]);
    p->n_blocks = n_blocks;
    p->n_free = n_blocks;
    p->top = NONE;
    return p;
}

void relay_block_pool_destroy(relay_block_pool *p) {
    free(p);
}

uint32_t relay_block_pool_total(const relay_block_pool *p) {
    return p->n_blocks;
}

uint32_t relay_block_pool_free(const relay_block_pool *p) {
    return p->n_free;
}

uint32_t relay_block_pool_touched(const relay_block_pool *p) {
    return p->n_touched;
}

uint32_t relay_block_pool_take(relay_block_pool *p) {
    RELAY_ASSERT(p->n_free > 0);
    uint32_t id = p->top;
    if (id != NONE) {
        p->top = p->blocks[id].below;
    } else {
        id = p->n_touched++;
    }
    p->n_free--;
    p->blocks[id].is_held = true;
    return id;
}

void relay_block_pool_release(relay_block_pool *p, uint32_t id) {
    RELAY_ASSERT(id < p->n_touched && p->blocks[id].is_held);
    p->blocks[id].is_held = false;
    p->blocks[id].below = p->top;
    p->top = id;
    p->n_free++;
}

const char *relay_block_pool_check(const relay_block_pool *p, const uint32_t *holders) {
    uint32_t n_free = p->n_blocks - p->n_touched;
    for (uint32_t id = p->top; id != NONE; id = p->blocks[id].below) {
        if (id >= p->n_touched) return "a block on the free stack was never taken";
        if (p->blocks[id].is_held) return "a block on the free stack is held";
        if (++n_free > p->n_blocks) return "the free stack runs in a circle";
    }
    if (n_free != p->n_free) return "the count of free blocks is not how many there are";
    uint32_t n_held = 0;
    for (uint32_t id = 0; id < p->n_blocks; id++) {
        if (p->blocks[id].is_held) n_held++;
        if (holders != NULL && (p->blocks[id].is_held ? 1 : 0) != holders[id])
            return "a block is not held as often as it was taken";
    }
    if (n_free + n_held != p->n_blocks) return "a block is neither free nor held";
    return NULL;
}
