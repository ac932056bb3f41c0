// Activations as integers, for products with quantized weights.
//
// Every 32 values of a row share a scale: x = scale * q with q of 16 bits, |q| <= 32512. That is some 250 times finer
// than the 8 bits that are usual; decoding reads weights from memory all the while and hides the second half of the
// products, and with it logits are within rounding of what float activations would give.
//
// With VNNI q is split in bytes, q = 256 * high + low, both signed, so that two byte products and a shift give the
// exact sum; with AVX2 the 16-bit value is multiplied as it is. Sums over a block fit in 32 bits and are the same
// integer on both, whatever the order.
#ifndef RELAY_KERNELS_CPU_ACT_H
#define RELAY_KERNELS_CPU_ACT_H

#include <stdint.h>

#include "kernels/cpu/pack.h"

enum { RELAY_ACT_MAX = 127 * 256 }; // the largest |q| whose high byte is a signed byte

typedef struct relay_act_block {
    union {
        struct {
            int8_t high[RELAY_QUANT_BLOCK], low[RELAY_QUANT_BLOCK]; // AVX-512
        };
        int16_t pairs[RELAY_QUANT_BLOCK]; // AVX2: every 4 values in the order 0, 2, 1, 3
    };
    float scale;
    float sum;             // of the 32 values as quantized
    int32_t minus_sums[2]; // minus the sum of q over either 16 values
} relay_act_block;

#endif
