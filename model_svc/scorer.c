#include "model_svc/scorer.h"

#include <stdlib.h>

#include "common/gguf.h"
#include "model_svc/model.h"
#include "model_svc/step.h"

// Rows of a step: each has its logits in memory.
enum { CHUNK = RELAY_MAX_SCORED_ROWS };

struct relay_scorer {
    relay_model *model;
    const relay_model_info *info;
    relay_step *step;
    relay_sample_result results[CHUNK];
};

relay_code relay_scorer_load(relay_scorer **out, const char *path, relay_kv_type kv_type, uint32_t max_context,
                             relay_err *e) {
    *out = NULL;
    relay_gguf *file;
    relay_code code = relay_gguf_open(&file, path, e);
    if (code != RELAY_OK) return code;
    relay_scorer *s = relay_calloc(1, sizeof *s);
    const relay_model_opts opts = {
        .kv_type = kv_type,
        .max_context = max_context,
        .max_rows = CHUNK,
        .max_sequences = 1,
        .max_samples = CHUNK,
    };
    code = relay_model_load(&s->model, file, path, &opts, e);
    relay_gguf_close(file);
    if (code != RELAY_OK) {
        free(s);
        return code;
    }
    s->info = relay_model_get_info(s->model);
    s->step = relay_step_create(&(relay_step_limits){
        .max_rows = CHUNK,
        .max_sequences = 1,
        .max_samples = CHUNK,
        .max_block_ids = (s->info->max_context + RELAY_BLOCK_TOKENS - 1) / RELAY_BLOCK_TOKENS,
        .n_groups = s->info->n_groups,
    });
    relay_model_decoder_ops.prepare(s->model, s->step);
    *out = s;
    return RELAY_OK;
}

void relay_scorer_destroy(relay_scorer *s) {
    if (s == NULL) return;
    relay_step_destroy(s->step);
    relay_model_destroy(s->model);
    free(s);
}

static relay_code check(const relay_scorer *s, const uint32_t *ids, size_t n, relay_err *e) {
    if (n == 0 || n > s->info->max_context) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "the text has %zu ids; allowed is [1, %u], what the context holds",
                          n, s->info->max_context);
    }
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= s->info->vocab_size) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "ids[%zu] is %u; ids are below %u, the size of the vocabulary",
                              i, ids[i], s->info->vocab_size);
        }
    }
    return RELAY_OK;
}

// Rows [first, last) of the text. The last id of all has nothing behind it to be scored.
static void fill_step(relay_step *step, const uint32_t *ids, uint32_t n, uint32_t first, uint32_t last,
                      uint32_t n_top) {
    relay_step_clear(step);
    step->n_sequences = 1;
    relay_step_tails(step)[0] = 0;
    step->number++;
    for (uint32_t g = 0; g < step->limits.n_groups; g++) {
        relay_step_table_begin(step, g)[0] = 0;
        for (uint32_t b = 0; b * RELAY_BLOCK_TOKENS < last; b++)
            relay_step_block_ids(step, g)[step->n_block_ids[g]++] = b;
    }
    for (uint32_t p = first; p < last; p++) {
        uint32_t row = step->n_rows++;
        relay_step_token_ids(step)[row] = ids[p];
        relay_step_positions(step)[row] = p;
        relay_step_row_sequence(step)[row] = 0;
        if (p + 1 == n) continue;
        relay_step_sample_rows(step)[step->n_samples] = row;
        relay_step_sample_params(step)[step->n_samples++] = (relay_sample_params){
            .position = p + 1,
            .logprob_mode = RELAY_LOGPROB_RAW,
            .n_top = n_top,
            .is_score_only = 1,
            .scored_id = ids[p + 1],
        };
    }
}

relay_code relay_scorer_run(relay_scorer *s, const uint32_t *ids, size_t n, uint32_t n_top,
                            void (*score)(void *arg, const relay_sample_result *result), void *arg, relay_err *e) {
    relay_code code = check(s, ids, n, e);
    for (uint32_t first = 0; code == RELAY_OK && first < n; first += CHUNK) {
        uint32_t last = n - first > CHUNK ? first + CHUNK : (uint32_t)n;
        fill_step(s->step, ids, (uint32_t)n, first, last, n_top);
        relay_model_decoder_ops.submit(s->model, s->step);
        relay_model_decoder_ops.complete(s->model, s->results);
        for (uint32_t i = 0; i < s->step->n_samples; i++)
            score(arg, &s->results[i]);
    }
    return code;
}
