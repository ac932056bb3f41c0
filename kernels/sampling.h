// What every backend's sampler does the same way: the changes to single logits before anything is compared.
#ifndef RELAY_KERNELS_SAMPLING_H
#define RELAY_KERNELS_SAMPLING_H

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "kernels/kernels.h"

// Applies penalties and masks to a row of logits, in place. Ids out of range are the caller's fault.
//
// Repetition: CTRL (Keskar et al., 2019), over prompt and output; frequency and presence: OpenAI's definition, output
// only. In float32 with one rounding an operation, so that equal logits stay equal on every backend. What a
// penalty takes past float32 (a repetition penalty near 0 does) stays at its end: finite logits stay finite.
static inline void relay_sampling_penalize(float *logits, const relay_sample_params *p, const relay_token_count *counts,
                                           const uint32_t *masked) {
    for (uint32_t i = 0; i < p->n_counts; i++) {
        const relay_token_count *c = &counts[p->counts_begin + i];
        float l = logits[c->token_id];
        if (!isfinite(l)) continue;
        if (c->in_prompt + c->in_output > 0) {
            l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        }
        l -= p->frequency_penalty * (float)c->in_output;
        if (c->in_output > 0) l -= p->presence_penalty;
        logits[c->token_id] = fmaxf(-FLT_MAX, fminf(l, FLT_MAX));
    }
    for (uint32_t i = 0; i < p->n_masked; i++)
        logits[masked[p->masked_begin + i]] = -INFINITY;
}

// A logprob as it is told: that of a finite logit is finite, at however small a temperature.
static inline float relay_sampling_logprob(double logit, double max, double temperature, double log_total) {
    double logprob = (logit - max) / temperature - log_total;
    return logit == -INFINITY ? -INFINITY : (float)fmax(logprob, -FLT_MAX);
}

#endif
