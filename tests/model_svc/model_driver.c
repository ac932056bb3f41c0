#include "tests/model_svc/model_driver.h"

#include <stdlib.h>

void model_driver_init(model_driver *d, relay_model *m, uint32_t max_rows, uint32_t max_sequences) {
    const relay_model_info *info = relay_model_get_info(m);
    uint32_t blocks = (info->max_context + RELAY_BLOCK_TOKENS - 1) / RELAY_BLOCK_TOKENS;
    *d = (model_driver){.model = m};
    d->step = relay_step_create(&(relay_step_limits){
        .max_rows = max_rows,
        .max_sequences = max_sequences,
        .max_samples = max_rows,
        .max_block_ids = max_sequences * blocks,
        .n_groups = info->n_groups,
    });
    relay_model_decoder_ops.prepare(m, d->step);
    d->results = relay_calloc(max_rows, sizeof *d->results);
    d->logits = relay_calloc(info->vocab_size, sizeof *d->logits);
}

void model_driver_fini(model_driver *d) {
    relay_step_destroy(d->step);
    free(d->results);
    free(d->logits);
}

static void add_sequence(relay_step *step, const driven_sequence *s, uint32_t n_rows) {
    uint32_t index = step->n_sequences++;
    uint32_t end = s->n_done + n_rows;
    relay_step_tails(step)[index] = s->tail;
    for (uint32_t g = 0; g < step->limits.n_groups; g++) {
        relay_step_table_begin(step, g)[index] = step->n_block_ids[g];
        for (uint32_t b = 0; b * RELAY_BLOCK_TOKENS < end; b++) {
            relay_step_block_ids(step, g)[step->n_block_ids[g]++] = s->blocks[b];
        }
    }
    for (uint32_t p = s->n_done; p < end; p++) {
        uint32_t r = step->n_rows++;
        relay_step_token_ids(step)[r] = s->ids[p];
        relay_step_positions(step)[r] = p;
        relay_step_row_sequence(step)[r] = index;
        if (!s->on_logits && p + 1 < end) continue;
        relay_step_sample_rows(step)[step->n_samples] = r;
        relay_step_sample_params(step)[step->n_samples++] = (relay_sample_params){
            .top_p = 1,
            .repetition_penalty = 1,
            .position = p + 1,
        };
    }
}

void model_driver_step(model_driver *d, driven_sequence *sequences, const uint32_t *rows, uint32_t n_sequences) {
    uint32_t vocab_size = relay_model_get_info(d->model)->vocab_size;
    relay_step_clear(d->step);
    d->step->number++;
    for (uint32_t i = 0; i < n_sequences; i++) {
        if (rows[i]) add_sequence(d->step, &sequences[i], rows[i]);
    }
    relay_model_decoder_ops.submit(d->model, d->step);
    relay_model_decoder_ops.complete(d->model, d->results);
    uint32_t sample = 0;
    for (uint32_t i = 0; i < n_sequences; i++) {
        driven_sequence *s = &sequences[i];
        for (uint32_t r = 0; s->on_logits && r < rows[i]; r++) {
            relay_model_read_logits(d->model, sample++, d->logits);
            s->on_logits(s->arg, s->n_done + r, d->logits, vocab_size);
        }
        if (!s->on_logits && rows[i]) sample++;
        s->n_done += rows[i];
    }
}

void model_driver_run(model_driver *d, driven_sequence *s, uint32_t chunk) {
    while (s->n_done < s->n_ids) {
        uint32_t left = s->n_ids - s->n_done;
        model_driver_step(d, s, &(uint32_t){chunk < left ? chunk : left}, 1);
    }
}
