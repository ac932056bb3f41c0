// What a weight of a GGUF file means: rows of ggml's quantized types to float32.
//
// Format facts: ggml's ggml-common.h (the blocks) and ggml-quants.c (their order of values). Every backend's answer is
// checked against this one.
#ifndef RELAY_KERNELS_DEQUANT_H
#define RELAY_KERNELS_DEQUANT_H

#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"

// Bytes of a row of n_in values. Fails with UNIMPLEMENTED for a type that is not known here, and INVALID_ARGUMENT where
// n_in is 0 or no multiple of the type's block.
relay_code relay_dequant_row_bytes(uint64_t *out, uint32_t ggml_type, uint32_t n_in, relay_err *e) RELAY_NODISCARD;
// One row; the type and n_in have passed relay_dequant_row_bytes. Products and sums are rounded one by one.
void relay_dequant_row(uint32_t ggml_type, const void *row, float *out, uint32_t n_in);

// The 6-bit scale and min of sub-block i (0..7) of a Q4_K block's 12 bytes of scales.
static inline void relay_q4_k_scale_min(const uint8_t scales[12], uint32_t i, uint8_t *scale, uint8_t *min) {
    if (i < 4) {
        *scale = scales[i] & 63;
        *min = scales[i + 4] & 63;
    } else {
        *scale = (uint8_t)((scales[i + 4] & 0x0F) | scales[i - 4] >> 6 << 4);
        *min = (uint8_t)(scales[i + 4] >> 4 | scales[i] >> 6 << 4);
    }
}

#endif
