// Which layers share a KV pool: those whose cache entries have one shape and one window.
#ifndef RELAY_MODEL_SVC_KV_GROUPS_H
#define RELAY_MODEL_SVC_KV_GROUPS_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/kernels.h"
#include "model_svc/step.h"

// What a layer keeps of a position.
typedef struct relay_layer_kv {
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t window;         // positions a row sees, itself included; 0: all
    uint32_t group;          // filled in: its group ...
    uint32_t layer_in_group; // ... and its place there
} relay_layer_kv;

// Fills in group and layer_in_group of every layer, and of each pool what the group's layers say (n_layers, n_kv_heads,
// head_dim, window, type); groups are numbered by their first layer. UNIMPLEMENTED past RELAY_MAX_KV_GROUPS.
relay_code relay_kv_groups_assign(relay_layer_kv *layers, uint32_t n_layers, relay_kv_type type,
                                  relay_kv_pool pools[RELAY_MAX_KV_GROUPS], uint32_t *n_groups,
                                  relay_err *e) RELAY_NODISCARD;

#endif
