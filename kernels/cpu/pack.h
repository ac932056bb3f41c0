// Weights as the processor's kernels read them: in panels of 16 output rows.
//
// A panel's bytes are contiguous, so one thread streams through memory once. Within it, lane i of every vector belongs
// to output row 16 * panel + i. Rows past n_out are zeros.
//
// Float types: n_in groups of 16 values; group k holds input k of the 16 rows.
//
// Quantized types, by blocks of 32 inputs: first the quants of all blocks, then the scales of all blocks. The quants of
// 4 inputs lie in 64 bytes, 4 bytes a row: what VNNI multiplies in one instruction, and a row of an AMX tile. Vector j
// of a block holds inputs 4j..4j+3; where quants are nibbles, the high halves hold inputs 16+4j..16+4j+3.
//
//   type   quants of a block                                  scales                               bits a weight
//   Q4_0   4 vectors of nibbles                               f16 d[16]                            4.5
//   Q4_1   same                                               f16 d[16], min[16]                   5
//   Q5_0   same, then 8 x 64 bits: the fifth bit of vector j  f16 d[16]                            5.5
//   Q8_0   8 vectors of bytes, 128 added                      f16 d[16]                            8.5
//   Q4_K   4 vectors of nibbles                               by 256: f16 d[16], dmin[16], then
//                                                             by 32: 6-bit scale[16], min[16]      4.625
//   Q6_K   same, then 2 vectors with 2 bits of each quant:    by 256: f16 d[16], then
//          those of vector j at bit 2j, first the low halves' by 32: 8-bit scale[16] of either 16  6.5625
//
// These are the file's own numbers in another order: nothing is rounded, and a row can be read back exactly.
#ifndef RELAY_KERNELS_CPU_PACK_H
#define RELAY_KERNELS_CPU_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"
#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"

enum {
    RELAY_PANEL_ROWS = 16,
    RELAY_QUANT_BLOCK = 32, // inputs
};

struct relay_weight {
    uint32_t ggml_type;
    uint32_t n_out, n_in;
    uint32_t n_panels;
    bool is_quantized;     // else floats of some kind
    uint64_t quants_bytes; // of a panel, where its scales begin; all of it for float types
    uint64_t panel_bytes;  // a multiple of 64
    uint8_t *data;         // [n_panels][panel_bytes]
};

// Bytes of quants a block of 32 inputs of 16 rows.
static inline uint32_t relay_pack_quant_bytes(uint32_t ggml_type) {
    switch (ggml_type) {
    case RELAY_GGML_Q8_0:
        return 512;
    case RELAY_GGML_Q6_K:
        return 256 + 128;
    case RELAY_GGML_Q5_0:
        return 256 + 64;
    default:
        return 256;
    }
}

relay_code relay_pack_create(relay_weight **out, relay_pool *pool, uint32_t ggml_type, uint32_t n_out, uint32_t n_in,
                             const void *rows, relay_err *e) RELAY_NODISCARD;
void relay_pack_destroy(relay_weight *w);
uint64_t relay_pack_bytes(const relay_weight *w);
// Row `row` dequantized: the same bits as relay_dequant_row of the file's row.
void relay_pack_read_row(const relay_weight *w, uint32_t row, float *out);

#endif
