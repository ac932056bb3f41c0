// The forward pass: a step's rows through the layers, and its samples out of the last one.
//
// A pre-norm transformer as Llama and Qwen2 are: RMS normalization, rotary embedding, grouped-query attention over the
// paged cache, gated feed-forward with SiLU. It knows the order of the operations and nothing of how they are done.
// Memory for the largest step is set aside by create and prepare and becomes resident as it is used.
#ifndef RELAY_MODEL_SVC_FORWARD_H
#define RELAY_MODEL_SVC_FORWARD_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "model_svc/kv_groups.h"
#include "model_svc/step.h"
#include "model_svc/weights.h"

typedef struct relay_forward relay_forward;

// What it works on; all borrowed and to outlive it.
typedef struct relay_forward_opts {
    relay_device *device;
    const relay_hyperparameters *shape;
    const relay_weights *weights;
    const relay_layer_kv *layers; // [n_layers], with their groups
    const relay_kv_pool *pools;   // [n_groups]
    uint32_t n_groups;
    uint32_t max_rows, max_samples;
    uint32_t max_context; // positions of one sequence
} relay_forward_opts;

relay_forward *relay_forward_create(const relay_forward_opts *opts);
void relay_forward_destroy(relay_forward *d);

// Sets aside device memory for the arrays of steps of this one's limits, and the resident counts. Before the first
// submit.
void relay_forward_prepare(relay_forward *d, const relay_step *step);
// Issues the step's operations. The step must fit what it was made for (a programmer's error otherwise) and
// stay untouched until complete returns.
void relay_forward_submit(relay_forward *d, const relay_step *step);
// Waits for them: results [n_samples].
void relay_forward_complete(relay_forward *d, relay_sample_result *results);
// After complete and before the next submit: the logits of sample i, [vocab_size], to `out`.
void relay_forward_read_logits(const relay_forward *d, uint32_t sample, float *out);

#endif
