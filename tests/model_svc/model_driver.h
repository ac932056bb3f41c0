// Runs id sequences through a loaded model, step by step, and shows the logits of every position: what the tests of the
// decoder have in common. The test says how the rows are cut into steps and where the KV blocks lie.
#ifndef RELAY_TESTS_MODEL_SVC_MODEL_DRIVER_H
#define RELAY_TESTS_MODEL_SVC_MODEL_DRIVER_H

#include <stdint.h>

#include "model_svc/model.h"

typedef struct model_driver {
    relay_model *model; // borrowed
    relay_step *step;
    relay_sample_result *results; // of the last step
    float *logits;                // one row
} model_driver;

typedef struct driven_sequence {
    const uint32_t *ids;
    uint32_t n_ids;
    uint32_t n_done;        // how many of them the cache holds
    uint32_t tail;          // its place among sequences that are computed at the same time
    const uint32_t *blocks; // block of positions [16 i, 16 i + 16), for all of n_ids
    // Called for every row that a step has computed, in the order of positions. Without it only the last of the
    // sequence's rows in a step is sampled.
    void (*on_logits)(void *arg, uint32_t position, const float *logits, uint32_t vocab_size);
    void *arg;
} driven_sequence;

// Steps have up to max_rows rows of up to max_sequences sequences; the model was loaded with max_samples >= max_rows.
void model_driver_init(model_driver *d, relay_model *m, uint32_t max_rows, uint32_t max_sequences);
void model_driver_fini(model_driver *d);

// One step: the next rows[i] ids of sequence i (0: it is not in this step), sampled greedily.
void model_driver_step(model_driver *d, driven_sequence *sequences, const uint32_t *rows, uint32_t n_sequences);
// The whole of one sequence, `chunk` rows a step.
void model_driver_run(model_driver *d, driven_sequence *s, uint32_t chunk);

#endif
