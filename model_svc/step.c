// One allocation a step, laid out once: the header, then each array at a multiple of 64 bytes, so that a device may
// load it in whole lines. Offsets depend on the limits alone, so every step made with the same limits has the same
// layout.
#include "model_svc/step.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"

enum { ALIGN = 64 };

// Takes room for `count` items at the end of what is laid out so far.
static uint64_t place(uint64_t *end, uint64_t count, uint64_t item_bytes) {
    uint64_t begin = (*end + ALIGN - 1) / ALIGN * ALIGN;
    *end = begin + count * item_bytes;
    return begin;
}

relay_step *relay_step_create(const relay_step_limits *l) {
    RELAY_ASSERT(l->n_groups >= 1 && l->n_groups <= RELAY_MAX_KV_GROUPS);
    relay_step layout = {.limits = *l};
    uint64_t end = sizeof layout;
    layout.off_token_ids = place(&end, l->max_rows, sizeof(uint32_t));
    layout.off_positions = place(&end, l->max_rows, sizeof(uint32_t));
    layout.off_row_sequence = place(&end, l->max_rows, sizeof(uint32_t));
    for (uint32_t g = 0; g < l->n_groups; g++) {
        layout.off_table_begin[g] = place(&end, l->max_sequences, sizeof(uint32_t));
        layout.off_block_ids[g] = place(&end, l->max_block_ids, sizeof(uint32_t));
        layout.off_copies[g] = place(&end, l->max_copies, sizeof(relay_kv_block_copy));
    }
    layout.off_tails = place(&end, l->max_sequences, sizeof(uint32_t));
    layout.off_tail_copies = place(&end, l->max_tail_copies, sizeof(relay_kv_block_copy));
    layout.off_sample_rows = place(&end, l->max_samples, sizeof(uint32_t));
    layout.off_sample_params = place(&end, l->max_samples, sizeof(relay_sample_params));
    layout.off_count_updates = place(&end, l->max_count_updates, sizeof(relay_count_update));
    layout.off_biases = place(&end, l->max_biases, sizeof(relay_token_bias));
    layout.off_masked = place(&end, l->max_masked, sizeof(uint32_t));
    layout.off_allowed = place(&end, l->max_allowed, sizeof(uint32_t));
    layout.off_wanted = place(&end, l->max_wanted, sizeof(uint32_t));
    layout.size_bytes = (end + ALIGN - 1) / ALIGN * ALIGN;

    relay_step *s = relay_calloc(1, layout.size_bytes);
    *s = layout;
    return s;
}

void relay_step_destroy(relay_step *s) {
    free(s);
}

void relay_step_clear(relay_step *s) {
    s->n_rows = 0;
    s->n_sequences = 0;
    s->n_samples = 0;
    memset(s->n_block_ids, 0, sizeof s->n_block_ids);
    memset(s->n_copies, 0, sizeof s->n_copies);
    s->n_tail_copies = 0;
    s->n_count_updates = 0;
    s->n_biases = 0;
    s->n_masked = 0;
    s->n_allowed = 0;
    s->n_wanted = 0;
}
