// What every backend's sampler does the same way: the changes to single logits before anything is compared.
#ifndef RELAY_KERNELS_SAMPLING_H
#define RELAY_KERNELS_SAMPLING_H

#include <math.h>
#include <stdint.h>

#include "kernels/kernels.h"

// Applies penalties and masks to a row of logits, in place. Ids out of range are the caller's fault.
//
// Repetition: CTRL (Keskar et al., 2019), over prompt and output; frequency and presence: OpenAI's definition, output
// only. In float32 with one rounding an operation, so that equal logits stay equal on every backend.
static inline void relay_sampling_penalize(float *logits, const relay_sample_params *p, const relay_token_count *counts,
                                           const uint32_t *masked) {
    for (uint32_t i = 0; i < p->n_counts; i++) {
        const relay_token_count *c = &counts[p->counts_begin + i];
        float l = logits[c->token_id];
        if (c->in_prompt + c->in_output > 0) {
            l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        }
        l -= p->frequency_penalty * (float)c->in_output;
        if (c->in_output > 0) l -= p->presence_penalty;
        logits[c->token_id] = l;
    }
    for (uint32_t i = 0; i < p->n_masked; i++)
        logits[masked[p->masked_begin + i]] = -INFINITY;
}

#endif
