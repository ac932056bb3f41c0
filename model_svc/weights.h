// The weights of a decoder on a device, read from a GGUF file.
//
// Every tensor of the file must be one that the architecture has, in the shape that the hyperparameters say: a missing,
// unknown or misshapen one is an error that names it. Matrices go to the device in the backend's own layout, vectors as
// float32; the file is not needed afterwards.
#ifndef RELAY_MODEL_SVC_WEIGHTS_H
#define RELAY_MODEL_SVC_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"
#include "kernels/kernels.h"
#include "model_svc/hyperparameters.h"

typedef struct relay_matrix {
    relay_weight *w;
    float *d_bias; // [n_out], or NULL
} relay_matrix;

typedef struct relay_layer_weights {
    float *d_attn_norm, *d_ffn_norm; // [width]
    relay_matrix query, key, value;  // width -> heads of head_dim
    relay_matrix attn_output;        // n_heads * head_dim -> width
    relay_matrix ffn_gate, ffn_up;   // width -> ffn_width
    relay_matrix ffn_down;           // ffn_width -> width
} relay_layer_weights;

typedef struct relay_weights {
    relay_device *device;
    relay_hyperparameters shape;
    relay_matrix embedding;      // [vocab_size, width]
    relay_matrix output;         // [vocab_size, width]; the embedding itself where the file has none of its own
    float *d_output_norm;        // [width]
    relay_layer_weights *layers; // [n_layers]
    float *rope_factors;         // [n_rot / 2] in the host's memory, or NULL
    uint64_t bytes;              // on the device
    uint32_t main_type;          // the ggml type of most of the file's bytes
    uint8_t fingerprint[16];     // XXH3-128 of the hyperparameters and of every tensor's name, type, shape and bytes
} relay_weights;

// With as_f32 every matrix is dequantized to float32 first.
relay_code relay_weights_load(relay_weights **out, relay_device *d, const relay_gguf *g, const relay_hyperparameters *h,
                              bool as_f32, relay_err *e) RELAY_NODISCARD;
void relay_weights_destroy(relay_weights *w);

#endif
