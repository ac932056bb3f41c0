// How the processor backends lay out a KV block: by layer, by KV head, first keys, then values.
//
//   keys    [head_dim][16 positions]: the scores of 16 positions come from one vector a dimension, without sums across
//           lanes
//   values  [16 positions][head_dim, padded to a multiple of 16]: a position adds to 16 outputs at a time
#ifndef RELAY_KERNELS_CPU_KV_H
#define RELAY_KERNELS_CPU_KV_H

#include "kernels/kernels.h"

typedef struct relay_kv_layout {
    uint32_t value_bytes; // of one number
    uint32_t value_dim;   // head_dim, padded
    uint64_t keys_bytes;  // of a head
    uint64_t head_bytes;  // keys and values of a head
    uint64_t layer_bytes;
} relay_kv_layout;

static inline relay_kv_layout relay_kv_layout_of(const relay_kv_pool *pool) {
    relay_kv_layout l;
    l.value_bytes = pool->type == RELAY_KV_F16 ? 2 : 4;
    l.value_dim = (pool->head_dim + 15) / 16 * 16;
    l.keys_bytes = (uint64_t)RELAY_BLOCK_TOKENS * pool->head_dim * l.value_bytes;
    l.head_bytes = l.keys_bytes + (uint64_t)RELAY_BLOCK_TOKENS * l.value_dim * l.value_bytes;
    l.layer_bytes = l.head_bytes * pool->n_kv_heads;
    return l;
}

// The keys of one head in one block; its values are keys_bytes further on.
static inline char *relay_kv_head(const relay_kv_pool *pool, const relay_kv_layout *l, uint32_t block, uint32_t layer,
                                  uint32_t kv_head) {
    return (char *)pool->d_data + block * pool->block_bytes + layer * l->layer_bytes + kv_head * l->head_bytes;
}

#endif
