// What every backend's sampler does the same way: the changes to single logits before anything is compared.
#ifndef RELAY_KERNELS_SAMPLING_H
#define RELAY_KERNELS_SAMPLING_H

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "kernels/philox.h"

static inline float relay_sampling_clamp(float logit) {
    return fmaxf(-FLT_MAX, fminf(logit, FLT_MAX));
}

// Whether a row's logits are changed before anything is compared.
static inline bool relay_sampling_changes_logits(const relay_sample_params *p) {
    return p->n_counts != 0 || p->n_bias != 0 || p->n_masked != 0 || p->n_allowed_words != 0;
}

// Applies penalties, biases and masks to a row of logits, in place. Ids out of range are the caller's fault.
//
// Repetition: CTRL (Keskar et al., 2019), over prompt and output; frequency and presence: OpenAI's definition, output
// only. In float32 with one rounding an operation, so that equal logits stay equal on every backend. What a
// penalty takes past float32 (a repetition penalty near 0 does) stays at its end: finite logits stay finite.
static inline void relay_sampling_change_logits(float *logits, uint32_t n_vocab, const relay_sample_params *p,
                                                const relay_sample_input *in) {
    for (uint32_t i = 0; i < p->n_counts; i++) {
        const relay_token_count *c = &in->d_counts[p->counts_begin + i];
        float l = logits[c->token_id];
        if (!isfinite(l)) continue;
        if (c->in_prompt + c->in_output > 0) {
            l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        }
        l -= p->frequency_penalty * (float)c->in_output;
        if (c->in_output > 0) l -= p->presence_penalty;
        logits[c->token_id] = relay_sampling_clamp(l);
    }
    for (uint32_t i = 0; i < p->n_bias; i++) {
        const relay_token_bias *b = &in->d_biases[p->bias_begin + i];
        if (isfinite(logits[b->token_id])) logits[b->token_id] = relay_sampling_clamp(logits[b->token_id] + b->bias);
    }
    for (uint32_t i = 0; i < p->n_masked; i++)
        logits[in->d_masked[p->masked_begin + i]] = -INFINITY;
    for (uint32_t w = 0; w < p->n_allowed_words; w++) {
        const uint32_t first = 32 * w, n = n_vocab - first < 32 ? n_vocab - first : 32;
        uint32_t out = ~in->d_allowed[p->allowed_begin + w];
        if (n < 32) out &= (1U << n) - 1;
        for (; out != 0; out &= out - 1)
            logits[first + (uint32_t)__builtin_ctz(out)] = -INFINITY;
    }
}

// Whether XTC takes part in this draw.
static inline bool relay_sampling_xtc_happens(const relay_sample_params *p) {
    return p->xtc_probability > 0 &&
           relay_philox_uniform(p->seed, p->position, p->sequence_index, RELAY_DRAW_XTC) < (double)p->xtc_probability;
}

static inline bool relay_sampling_has_typical(const relay_sample_params *p) {
    return p->typical_p > 0 && p->typical_p < 1;
}

// Mirostat (Basu et al., "Mirostat: a neural text decoding algorithm that directly controls perplexity", ICLR 2021), as
// its authors' code has it: surprises are those of the whole distribution, not of what is left after the cut.

enum { RELAY_MIROSTAT_PAIRS = 100 }; // neighbours in the order from which version 1 estimates Zipf's exponent

// How many of the most likely version 1 draws from; `x` [n] are the log-weights of the first ones of the order.
static inline uint32_t relay_sampling_mirostat_k(const double *x, uint32_t n, uint32_t n_vocab, double mu) {
    double num = 0, den = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        double t = log((i + 2.0) / (i + 1.0));
        num += (x[i] - x[i + 1]) * t;
        den += t * t;
    }
    double s = den > 0 ? num / den : 1, eps = s - 1;
    double below = fabs(eps) < 1e-9 ? log(n_vocab) : (1 - pow(n_vocab, -eps)) / eps;
    double k = round(pow(exp2(mu) / below, 1 / s)) + 1;
    return k < n_vocab ? (uint32_t)k : n_vocab; // the whole vocabulary where it is no number
}

// The state after an id of this surprise, in bits, was drawn.
static inline float relay_sampling_mirostat_next(const relay_sample_params *p, double surprise) {
    return (float)(p->mirostat_mu - (double)p->mirostat_eta * (surprise - (double)p->mirostat_tau));
}

// A logprob as it is told: that of a finite logit is finite, at however small a temperature.
static inline float relay_sampling_logprob(double logit, double max, double temperature, double log_total) {
    double logprob = (logit - max) / temperature - log_total;
    return logit == -INFINITY ? -INFINITY : (float)fmax(logprob, -FLT_MAX);
}

#endif
