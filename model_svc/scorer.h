// A model by itself, for one question: how likely each id of a text is behind those before it. Without engine,
// scheduler or service; the same forward pass and kernels, so the same bits. One thread.
#ifndef RELAY_MODEL_SVC_SCORER_H
#define RELAY_MODEL_SVC_SCORER_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/kernels.h"

typedef struct relay_scorer relay_scorer;

// From a GGUF file, for texts of up to `max_context` ids (0: what the model was trained on).
relay_code relay_scorer_load(relay_scorer **out, const char *path, relay_kv_type kv_type, uint32_t max_context,
                             relay_err *e) RELAY_NODISCARD;
void relay_scorer_destroy(relay_scorer *s);

// Calls `score` for each id from the second on, in order, with its logprob and rank and the n_top most likely ids; on
// `is_finite` false its numbers mean nothing. INVALID_ARGUMENT naming an id that the model does not have, or a text
// that is empty or longer than the context.
relay_code relay_scorer_run(relay_scorer *s, const uint32_t *ids, size_t n, uint32_t n_top,
                            void (*score)(void *arg, const relay_sample_result *result), void *arg,
                            relay_err *e) RELAY_NODISCARD;

#endif
