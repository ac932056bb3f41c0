// Two lists run through the blocks' own entries: the free blocks as a stack, and the cached ones as a queue from the
// one that was let go longest ago to the newest, doubly linked, because a hit takes one out of its middle. Everything
// is constant time. Blocks that were never used are in neither: they are those from n_touched up.
#include "model_svc/block_pool.h"

#include <stdlib.h>

#include "common/status.h"

typedef struct block {
    uint32_t holders;
    uint32_t label;
    // While free: the next free block below. While cached: its neighbours. RELAY_NO_BLOCK at an end.
    uint32_t older, newer;
} block;

struct relay_block_pool {
    uint32_t n_blocks;
    uint32_t n_free;    // on the stack or never touched
    uint32_t n_cached;  // in the queue
    uint32_t n_touched; // blocks [0, n_touched) were taken at least once
    uint32_t top;       // of the stack
    uint32_t oldest, newest;
    block blocks[];
};

relay_block_pool *relay_block_pool_create(uint32_t n_blocks) {
    RELAY_ASSERT(n_blocks >= 1 && n_blocks < RELAY_NO_BLOCK);
    relay_block_pool *p = relay_calloc(1, sizeof *p + (uint64_t)n_blocks * sizeof p->blocks[0]);
    p->n_blocks = n_blocks;
    p->n_free = n_blocks;
    p->top = p->oldest = p->newest = RELAY_NO_BLOCK;
    return p;
}

void relay_block_pool_destroy(relay_block_pool *p) {
    free(p);
}

uint32_t relay_block_pool_total(const relay_block_pool *p) {
    return p->n_blocks;
}

uint32_t relay_block_pool_available(const relay_block_pool *p) {
    return p->n_free + p->n_cached;
}

uint32_t relay_block_pool_cached(const relay_block_pool *p) {
    return p->n_cached;
}

uint32_t relay_block_pool_touched(const relay_block_pool *p) {
    return p->n_touched;
}

static void leave_queue(relay_block_pool *p, uint32_t id) {
    block *b = &p->blocks[id];
    *(b->older != RELAY_NO_BLOCK ? &p->blocks[b->older].newer : &p->oldest) = b->newer;
    *(b->newer != RELAY_NO_BLOCK ? &p->blocks[b->newer].older : &p->newest) = b->older;
    p->n_cached--;
}

static void enter_queue(relay_block_pool *p, uint32_t id) {
    block *b = &p->blocks[id];
    b->older = p->newest;
    b->newer = RELAY_NO_BLOCK;
    *(b->older != RELAY_NO_BLOCK ? &p->blocks[b->older].newer : &p->oldest) = id;
    p->newest = id;
    p->n_cached++;
}

uint32_t relay_block_pool_take(relay_block_pool *p, uint32_t *forgotten) {
    RELAY_ASSERT(relay_block_pool_available(p) > 0);
    *forgotten = RELAY_NO_LABEL;
    uint32_t id = p->top;
    if (id != RELAY_NO_BLOCK) {
        p->top = p->blocks[id].older;
        p->n_free--;
    } else if (p->n_touched < p->n_blocks) {
        id = p->n_touched++;
        p->n_free--;
    } else {
        id = p->oldest;
        *forgotten = p->blocks[id].label;
        leave_queue(p, id);
    }
    p->blocks[id].holders = 1;
    p->blocks[id].label = RELAY_NO_LABEL;
    return id;
}

void relay_block_pool_hold(relay_block_pool *p, uint32_t id) {
    RELAY_ASSERT(id < p->n_touched);
    block *b = &p->blocks[id];
    if (b->holders == 0) {
        RELAY_ASSERT(b->label != RELAY_NO_LABEL);
        leave_queue(p, id);
    }
    b->holders++;
}

void relay_block_pool_release(relay_block_pool *p, uint32_t id) {
    RELAY_ASSERT(id < p->n_touched && p->blocks[id].holders > 0);
    block *b = &p->blocks[id];
    if (--b->holders > 0) return;
    if (b->label != RELAY_NO_LABEL) {
        enter_queue(p, id);
        return;
    }
    b->older = p->top;
    p->top = id;
    p->n_free++;
}

uint32_t relay_block_pool_holders(const relay_block_pool *p, uint32_t id) {
    return p->blocks[id].holders;
}

void relay_block_pool_set_label(relay_block_pool *p, uint32_t id, uint32_t label) {
    RELAY_ASSERT(id < p->n_touched && p->blocks[id].holders > 0);
    p->blocks[id].label = label;
}

uint32_t relay_block_pool_label(const relay_block_pool *p, uint32_t id) {
    return p->blocks[id].label;
}

static const char *check_queue(const relay_block_pool *p) {
    uint32_t n = 0, older = RELAY_NO_BLOCK;
    for (uint32_t id = p->oldest; id != RELAY_NO_BLOCK; older = id, id = p->blocks[id].newer) {
        const block *b = &p->blocks[id];
        if (id >= p->n_touched) return "a cached block was never taken";
        if (b->holders != 0 || b->label == RELAY_NO_LABEL) return "a cached block is held, or says nothing";
        if (b->older != older) return "the links of the cached blocks do not agree";
        if (++n > p->n_cached) return "there are more cached blocks than their count";
    }
    if (p->newest != older) return "the newest cached block is not the last";
    return n == p->n_cached ? NULL : "there are fewer cached blocks than their count";
}

const char *relay_block_pool_check(const relay_block_pool *p, const uint32_t *holders) {
    uint32_t n_free = p->n_blocks - p->n_touched;
    for (uint32_t id = p->top; id != RELAY_NO_BLOCK; id = p->blocks[id].older) {
        if (id >= p->n_touched) return "a block on the free stack was never taken";
        if (p->blocks[id].holders != 0) return "a block on the free stack is held";
        if (p->blocks[id].label != RELAY_NO_LABEL) return "a block on the free stack has a label";
        if (++n_free > p->n_blocks) return "the free stack runs in a circle";
    }
    if (n_free != p->n_free) return "the count of free blocks is not how many there are";
    const char *why = check_queue(p);
    if (why != NULL) return why;
    uint32_t n_held = 0;
    for (uint32_t id = 0; id < p->n_blocks; id++) {
        if (p->blocks[id].holders > 0) n_held++;
        if (holders != NULL && p->blocks[id].holders != holders[id])
            return "a block is not held as often as it was taken";
    }
    if (n_free + p->n_cached + n_held != p->n_blocks) return "a block is neither free nor cached nor held";
    return NULL;
}
