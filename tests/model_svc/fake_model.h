// A scripted model: the next id is a hash of every id before it, its position and the seed, so that a wrong row,
// position, block or table changes what comes out.
//
// It has a KV cache of its own, in which each slot keeps what was written there: an id, its position, and the hash of
// all ids up to it. Every row must find its predecessor through the block table, and every sampled row all of its
// history that is in the window, in every KV group. Counts and poison are looked for in a group that sees all. What
// does not agree is kept as `error`. Top logprobs are always those of ids 0, 1, ...
#ifndef RELAY_TESTS_MODEL_SVC_FAKE_MODEL_H
#define RELAY_TESTS_MODEL_SVC_FAKE_MODEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "model_svc/model_ops.h"

enum {
    FAKE_VOCAB = 1000,
    // An id whose presence in the history makes the logits not finite.
    FAKE_POISON = 999,
};

typedef struct fake_slot {
    uint32_t token_id, position;
    uint64_t hash;
} fake_slot;

typedef struct fake_model {
    uint32_t n_groups;
    uint32_t n_blocks[RELAY_MAX_KV_GROUPS];
    uint32_t window[RELAY_MAX_KV_GROUPS]; // positions a row of the group sees, itself included; not 1; 0: all
    fake_slot *slots[RELAY_MAX_KV_GROUPS];
    uint64_t step_bytes; // what was prepared for
    const relay_step *step;
    relay_token_count *counts; // [n_counts] resident
    uint64_t n_counts;
    uint32_t seen[FAKE_VOCAB]; // scratch
    uint64_t n_rows;           // computed since create
    uint64_t n_copies;         // of blocks since create
    uint32_t max_rows;         // of one step since create
    // Called in complete(), before results are written; for tests that hold or slow a step.
    void (*on_step)(void *arg, const relay_step *step);
    void *on_step_arg;
    const char *error; // the first thing that did not agree
} fake_model;

void fake_model_init(fake_model *m, uint32_t n_groups, const uint32_t *n_blocks);
void fake_model_fini(fake_model *m);
extern const relay_model_ops fake_model_ops;

// With this seed in place of the request's, what follows is for the answer `index` of several.
static inline uint64_t fake_seed(uint64_t seed, uint32_t index) {
    return seed + index * UINT64_C(0x9e3779b97f4a7c15);
}
// The 20 most likely ids after ids [n], where a row asks for as many, and their logprobs.
enum { FAKE_TOPS = 20 };
void fake_tops(const uint32_t *ids, uint32_t n, uint32_t top_ids[FAKE_TOPS], float top_logprobs[FAKE_TOPS]);
// What the model says after `ids` [n]: the id at position n. `masked` is not drawn.
uint32_t fake_next(const uint32_t *ids, uint32_t n, uint64_t seed, const uint32_t *masked, uint32_t n_masked);
// Ids from [n] to [n + n_more) of the sequence that begins with `ids` [n], which has room for them.
void fake_continue(uint32_t *ids, uint32_t n, uint32_t n_more, uint64_t seed);

#endif
