// How the processor backends lay out a KV block: by layer, by KV head, first keys, then values.
//
//   keys    [head_dim][16 positions]: the scores of 16 positions come from one vector a dimension, without sums across
//           lanes; of INT8 and INT4 then [head_dim][scale, minimum]
//   values  [16 positions][head_dim, padded to a multiple of 16]: a position adds to 16 outputs at a time; of INT8 and
//           INT4 then [16 positions][groups of 32][scale, minimum]
//
// INT4 has two numbers in a byte: of every 16, number i in the low half of byte i and number 8 + i in its high half.
//
// A tail is [layer][KV head][head_dim][16 positions] in float16: the keys of a block that is not full, as in a block of
// F16.
#ifndef RELAY_KERNELS_CPU_KV_H
#define RELAY_KERNELS_CPU_KV_H

#include <stdbool.h>

#include "kernels/kernels.h"

enum {
    RELAY_KV_VALUE_GROUP = 32,
    RELAY_KV_PAIR_BYTES = 4, // scale and minimum, float16 each
};

typedef struct relay_kv_layout {
    uint32_t value_dim;       // head_dim, padded
    uint32_t key_row_bytes;   // of 16 positions of one dimension
    uint32_t value_row_bytes; // of one position
    uint32_t n_groups;        // of a position's values that share a scale; 0 where there are no scales
    // Within a head:
    uint64_t key_scales_at, values_at, value_scales_at;
    uint64_t head_bytes; // keys and values of a head
    uint64_t layer_bytes;
} relay_kv_layout;

static inline bool relay_kv_is_quantized(relay_kv_type type) {
    return type == RELAY_KV_INT8 || type == RELAY_KV_INT4;
}

static inline uint32_t relay_kv_bits(relay_kv_type type) {
    switch (type) {
    case RELAY_KV_F32:
        return 32;
    case RELAY_KV_INT8:
        return 8;
    case RELAY_KV_INT4:
        return 4;
    default:
        return 16;
    }
}

static inline relay_kv_layout relay_kv_layout_of(const relay_kv_pool *pool) {
    const uint32_t bits = relay_kv_bits(pool->type);
    const bool is_quantized = relay_kv_is_quantized(pool->type);
    relay_kv_layout l;
    l.value_dim = (pool->head_dim + 15) / 16 * 16;
    l.key_row_bytes = RELAY_BLOCK_TOKENS * bits / 8;
    l.value_row_bytes = l.value_dim * bits / 8;
    l.n_groups = is_quantized ? (pool->head_dim + RELAY_KV_VALUE_GROUP - 1) / RELAY_KV_VALUE_GROUP : 0;
    l.key_scales_at = (uint64_t)pool->head_dim * l.key_row_bytes;
    l.values_at = l.key_scales_at + (is_quantized ? (uint64_t)pool->head_dim * RELAY_KV_PAIR_BYTES : 0);
    l.value_scales_at = l.values_at + (uint64_t)RELAY_BLOCK_TOKENS * l.value_row_bytes;
    l.head_bytes = l.value_scales_at + (uint64_t)RELAY_BLOCK_TOKENS * l.n_groups * RELAY_KV_PAIR_BYTES;
    l.layer_bytes = l.head_bytes * pool->n_kv_heads;
    return l;
}

// One head in one block.
static inline char *relay_kv_head(const relay_kv_pool *pool, const relay_kv_layout *l, uint32_t block, uint32_t layer,
                                  uint32_t kv_head) {
    return (char *)pool->d_data + block * pool->block_bytes + layer * l->layer_bytes + kv_head * l->head_bytes;
}

// Rows of a step that are of one sequence and one block are a run: whether row r > 0 is of the same one as the row
// before.
static inline bool relay_kv_run_goes_on(const relay_rows *rows, uint32_t r) {
    return rows->d_sequence[r] == rows->d_sequence[r - 1] && rows->d_position[r] % RELAY_BLOCK_TOKENS != 0;
}

// The keys of one layer in a tail: [n_kv_heads][head_dim][16].
static inline uint16_t *relay_kv_tail(const relay_kv_pool *pool, uint32_t tail, uint32_t layer) {
    return (uint16_t *)(void *)((char *)pool->d_tails + tail * pool->tail_bytes) +
           (uint64_t)layer * pool->n_kv_heads * pool->head_dim * RELAY_BLOCK_TOKENS;
}

#endif
