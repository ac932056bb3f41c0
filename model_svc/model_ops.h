// What the engine needs of a model: the size of its KV cache, and one step in, its samples out. Tests put a scripted
// model in its place.
#ifndef RELAY_MODEL_SVC_MODEL_OPS_H
#define RELAY_MODEL_SVC_MODEL_OPS_H

#include <stdint.h>

#include "model_svc/step.h"

typedef struct relay_model_ops {
    // Before the first step, on the thread that makes the engine: sets aside what steps of this one's limits need, so
    // that no step allocates.
    void (*prepare)(void *model, const relay_step *step);
    // Starts a step; it and its memory stay untouched until complete() returns. One step at a time.
    void (*submit)(void *model, const relay_step *step);
    // Waits for it: results [n_samples], in the order of the step's samples.
    void (*complete)(void *model, relay_sample_result *results);
} relay_model_ops;

// Layers that share window, KV heads, head size and type share one pool and one block table.
typedef struct relay_kv_group {
    uint64_t block_bytes; // of RELAY_BLOCK_TOKENS positions of all its layers
    uint32_t n_blocks;
    uint32_t window; // positions a row sees, itself included; 0: all
} relay_kv_group;

#endif
