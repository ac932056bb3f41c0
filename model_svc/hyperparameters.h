// What a GGUF file says about the shape of its model, checked.
//
// After relay_hyperparameters_read every value is in range and they agree with each other, so that sizes made of them
// do not wrap and the decoder needs no checks of its own. Keys that would change the answer and that Relay does not
// know how to follow are refused by name: a model that is served is computed as it was trained.
#ifndef RELAY_MODEL_SVC_HYPERPARAMETERS_H
#define RELAY_MODEL_SVC_HYPERPARAMETERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"
#include "kernels/kernels.h"

typedef struct relay_hyperparameters {
    const char *architecture; // "llama", "qwen2"; static
    bool needs_qkv_bias;      // query, key and value matrices come with a bias (other matrices may)
    relay_rope_style rope_style;

    uint32_t n_layers;
    uint32_t n_heads;
    uint32_t n_kv_heads; // divides n_heads
    uint32_t head_dim;   // even
    uint32_t width;      // of the hidden state
    uint32_t ffn_width;
    uint32_t vocab_size; // rows of the embedding matrix
    uint32_t context;    // positions it was trained on
    float rms_epsilon;
    // Rotary embedding: pair i of a head's first n_rot values turns by position / rope_factor * rope_base^(-2i /
    // n_rot), divided by the file's factor for that pair, where it has them (rope_freqs.weight).
    uint32_t n_rot; // even, at most head_dim
    double rope_base;
    double rope_factor; // 1: unscaled
    // Sliding window: positions that a row sees, itself included; 0: all. Of each window_period layers the last sees
    // all all the same; 0: none does.
    uint32_t window;
    uint32_t window_period;
} relay_hyperparameters;

// Of that layer; 0: it sees all positions.
static inline uint32_t relay_layer_window(const relay_hyperparameters *h, uint32_t layer) {
    bool sees_all = h->window_period != 0 && layer % h->window_period == h->window_period - 1;
    return sees_all ? 0 : h->window;
}

// UNIMPLEMENTED names an architecture, a rope scaling or a feature that Relay does not know; INVALID_ARGUMENT names the
// key, its value and the range.
relay_code relay_hyperparameters_read(relay_hyperparameters *out, const relay_gguf *g, relay_err *e) RELAY_NODISCARD;

#endif
