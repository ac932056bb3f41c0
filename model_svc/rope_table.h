// Cosines and sines of the rotary position embedding, computed once at load in double precision.
//
// Method: Su et al. 2021, "RoFormer", with linear position scaling (Chen et al. 2023) and per-pair frequency factors
// (Llama 3.1's rope_freqs).
#ifndef RELAY_MODEL_SVC_ROPE_TABLE_H
#define RELAY_MODEL_SVC_ROPE_TABLE_H

#include <stdint.h>

#include "kernels/kernels.h"
#include "model_svc/hyperparameters.h"

// [n_positions][n_rot / 2][2] (cosine, sine) in the device's memory, the layout of the rope operation. `factors` has
// n_rot / 2 divisors of the frequencies, or is NULL. The caller frees it, relay_rope_table_bytes long.
float *relay_rope_table_create(relay_device *d, const relay_hyperparameters *h, const float *factors,
                               uint32_t n_positions);
uint64_t relay_rope_table_bytes(const relay_hyperparameters *h, uint32_t n_positions);

#endif
