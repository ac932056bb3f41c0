// Which ids a sequence's next draw may give, under a constraint or without, and what it means when there are none.
//
// The constraint governs the output: ids of the prompt are not read. What was read is a function of the output alone,
// so nothing is kept through a resume, and a lane that changes hands begins with a matcher of zeros.
//
// Ids that end an answer (the model's, and the request's stop ids) are no text under a constraint: they may be drawn
// exactly where the output is complete, and min_new_tokens reached. What the request allows, bans or masks besides is
// taken out of what the constraint allows.
#ifndef RELAY_MODEL_SVC_SEQUENCE_CONSTRAINT_H
#define RELAY_MODEL_SVC_SEQUENCE_CONSTRAINT_H

#include <stdbool.h>
#include <stdint.h>

#include "model_svc/sequence.h"

// Writes the bits of the ids that may be drawn: those of `words` that are set and allowed by the constraint. `masked`
// is taken out too. Notes in the lane how the output stands. Only under a constraint, which must be ready.
void relay_sequence_constrain(relay_sequence *s, uint32_t *words, uint32_t n_words, const uint32_t *masked,
                              uint32_t n_masked);
// Reads what was drawn last: whether the output is complete and nothing may follow.
bool relay_sequence_constraint_is_over(relay_sequence *s);
// The same without a constraint, for a request with a mask of its own: writes its `n_allowed_words` less `masked`.
void relay_sequence_restrict(relay_sequence *s, uint32_t *words, const uint32_t *masked, uint32_t n_masked);
// After a draw that had no id to give: OK where the output is complete under its constraint and so ends; else a code,
// and a message that names what left none.
relay_code relay_sequence_why_cornered(const relay_sequence *s, char *message, size_t size);
// The request's constraint could not be compiled, or is none: no step may be made for it.
bool relay_sequence_constraint_has_failed(const relay_sequence *s);

#endif
