#include "model_svc/kv_groups.h"

relay_code relay_kv_groups_assign(relay_layer_kv *layers, uint32_t n_layers, relay_kv_type type,
                                  relay_kv_pool pools[RELAY_MAX_KV_GROUPS], uint32_t *n_groups, relay_err *e) {
    *n_groups = 0;
    for (uint32_t i = 0; i < n_layers; i++) {
        relay_layer_kv *l = &layers[i];
        uint32_t g = 0;
        while (g < *n_groups && !(pools[g].n_kv_heads == l->n_kv_heads && pools[g].head_dim == l->head_dim &&
                                  pools[g].window == l->window)) {
            g++;
        }
        if (g == RELAY_MAX_KV_GROUPS) {
            return relay_fail(e, RELAY_UNIMPLEMENTED, "the layers have more than %d shapes of KV entries",
                              RELAY_MAX_KV_GROUPS);
        }
        if (g == *n_groups) {
            pools[g] = (relay_kv_pool){
                .n_kv_heads = l->n_kv_heads,
                .head_dim = l->head_dim,
                .window = l->window,
                .type = type,
            };
            *n_groups = g + 1;
        }
        l->group = g;
        l->layer_in_group = pools[g].n_layers++;
    }
    return RELAY_OK;
}
