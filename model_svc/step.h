// What one engine step computes, as plain data: one contiguous piece of memory with offsets in place of pointers, so
// that it can be uploaded at once, replayed, or sent to a rank in another process.
//
// The scheduler fills it, the model reads it. Capacities are set when it is made; filling it allocates nothing.
#ifndef RELAY_MODEL_SVC_STEP_H
#define RELAY_MODEL_SVC_STEP_H

#include <stdint.h>

#include "kernels/kernels.h"

enum {
    RELAY_MAX_KV_GROUPS = 8,
    // Rows of prompts whose next id is scored, beside the draws of a step: what bounds the memory of their logits.
    RELAY_MAX_SCORED_ROWS = 64,
};

typedef struct relay_step_limits {
    uint32_t max_rows;          // tokens in a batch
    uint32_t max_sequences;     // sequences in a batch
    uint32_t max_samples;       // rows to sample
    uint32_t max_block_ids;     // over all sequences, of one KV group
    uint32_t max_copies;        // blocks to copy, of one KV group
    uint32_t max_tail_copies;   // tails to copy
    uint32_t n_groups;          // KV groups, 1..RELAY_MAX_KV_GROUPS
    uint64_t n_resident_counts; // token counts that the model keeps from step to step
    uint32_t max_count_updates; // of these that one step changes
    uint32_t max_biases;        // biased ids over all samples
    uint32_t max_masked;        // masked ids over all samples
    uint32_t max_allowed;       // words of the bit masks of allowed ids over all samples
    uint32_t max_wanted;        // ids whose logprobs are wanted, over all samples
} relay_step_limits;

typedef struct relay_step {
    uint64_t size_bytes; // of the whole piece, this header included
    uint64_t number;     // step counter of the engine, from 1
    relay_step_limits limits;
    uint32_t n_rows;
    uint32_t n_sequences;
    uint32_t n_samples;
    uint32_t n_block_ids[RELAY_MAX_KV_GROUPS];
    uint32_t n_copies[RELAY_MAX_KV_GROUPS];
    uint32_t n_tail_copies;
    uint32_t n_count_updates;
    uint32_t n_biases;
    uint32_t n_masked;
    uint32_t n_allowed;
    uint32_t n_wanted;
    // Offsets in bytes from the start of this header.
    uint64_t off_token_ids;                        // uint32_t [n_rows]
    uint64_t off_positions;                        // uint32_t [n_rows]
    uint64_t off_row_sequence;                     // uint32_t [n_rows], ascending
    uint64_t off_table_begin[RELAY_MAX_KV_GROUPS]; // uint32_t [n_sequences]
    uint64_t off_block_ids[RELAY_MAX_KV_GROUPS];   // uint32_t [n_block_ids]
    uint64_t off_copies[RELAY_MAX_KV_GROUPS];      // relay_kv_block_copy [n_copies], done before anything is stored
    uint64_t off_tails;                            // uint32_t [n_sequences]: which tail of every pool is the sequence's
    uint64_t off_tail_copies;   // relay_kv_block_copy [n_tail_copies], one after the other, before anything is stored
    uint64_t off_sample_rows;   // uint32_t [n_samples]: which rows are sampled, ascending; one may be
                                // sampled several times
    uint64_t off_sample_params; // relay_sample_params [n_samples]
    uint64_t off_count_updates; // relay_count_update [n_count_updates]
    uint64_t off_biases;        // relay_token_bias [n_biases]
    uint64_t off_masked;        // uint32_t [n_masked]
    uint64_t off_allowed;       // uint32_t [n_allowed], words of relay_sample_params' allowed ids
    uint64_t off_wanted;        // uint32_t [n_wanted]
} relay_step;

relay_step *relay_step_create(const relay_step_limits *limits);
void relay_step_destroy(relay_step *s);
// Sets every n_ to 0.
void relay_step_clear(relay_step *s);

// Words that cover a vocabulary with one bit an id.
static inline uint32_t relay_mask_words(uint32_t n_vocab) {
    return (n_vocab + 31) / 32;
}

#define RELAY_STEP_ARRAY(name, type, off)                                                                              \
    static inline type *relay_step_##name(const relay_step *s) {                                                       \
        return (type *)((char *)(uintptr_t)s + s->off);                                                                \
    }
RELAY_STEP_ARRAY(token_ids, uint32_t, off_token_ids)
RELAY_STEP_ARRAY(positions, uint32_t, off_positions)
RELAY_STEP_ARRAY(row_sequence, uint32_t, off_row_sequence)
RELAY_STEP_ARRAY(tails, uint32_t, off_tails)
RELAY_STEP_ARRAY(tail_copies, relay_kv_block_copy, off_tail_copies)
RELAY_STEP_ARRAY(sample_rows, uint32_t, off_sample_rows)
RELAY_STEP_ARRAY(sample_params, relay_sample_params, off_sample_params)
RELAY_STEP_ARRAY(count_updates, relay_count_update, off_count_updates)
RELAY_STEP_ARRAY(biases, relay_token_bias, off_biases)
RELAY_STEP_ARRAY(masked, uint32_t, off_masked)
RELAY_STEP_ARRAY(allowed, uint32_t, off_allowed)
RELAY_STEP_ARRAY(wanted, uint32_t, off_wanted)
#undef RELAY_STEP_ARRAY

static inline uint32_t *relay_step_table_begin(const relay_step *s, uint32_t group) {
    return (uint32_t *)((char *)(uintptr_t)s + s->off_table_begin[group]);
}
static inline uint32_t *relay_step_block_ids(const relay_step *s, uint32_t group) {
    return (uint32_t *)((char *)(uintptr_t)s + s->off_block_ids[group]);
}
static inline relay_kv_block_copy *relay_step_copies(const relay_step *s, uint32_t group) {
    return (relay_kv_block_copy *)((char *)(uintptr_t)s + s->off_copies[group]);
}

#endif
