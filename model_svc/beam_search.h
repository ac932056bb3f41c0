// Beam search over the candidates that a model gives: which beams go on, which hypotheses are complete, and when it is
// over. As Hugging Face's transformers does it (BeamSearchScorer, BeamHypotheses, 4.36): of the 2 * num_beams most
// likely continuations of all beams, those that end an answer among the first num_beams become hypotheses, and the
// first num_beams of the others are the next beams. A hypothesis is worth the sum of its logprobs by the
// length_penalty-th power of its length.
//
// Pure: it knows ids and scores, not sequences. Beams are told apart by slots, which stay with a beam's first
// continuation, so that whoever holds something for a slot moves it only where a slot gets another one's. All memory is
// made at create, in an arena; scores are float32 sums, as transformers has them.
#ifndef RELAY_MODEL_SVC_BEAM_SEARCH_H
#define RELAY_MODEL_SVC_BEAM_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"

enum {
    RELAY_MAX_BEAMS = 10,
    RELAY_BEAM_CANDIDATES = 20, // continuations of a beam; fewer than these less the beams may end an answer
};

typedef struct relay_beam_search relay_beam_search;

typedef struct relay_beam_candidate {
    uint32_t token_id;
    float logprob;
    bool ends; // the answer
} relay_beam_candidate;

// For at most `max_new_tokens` ids. NULL where the arena has no room. length_penalty may be any number.
relay_beam_search *relay_beam_search_create(relay_arena *arena, uint32_t n_beams, float length_penalty,
                                            bool early_stopping, uint32_t max_new_tokens);
uint32_t relay_beam_search_beams(const relay_beam_search *b);
// The [RELAY_BEAM_CANDIDATES] most likely continuations of the beam in `slot`, the most likely first. True when all
// beams have theirs. Before the first choice all beams are one: that of slot 0 counts.
bool relay_beam_search_offer(relay_beam_search *b, uint32_t slot, const relay_beam_candidate *candidates);
bool relay_beam_search_has_offer(const relay_beam_search *b, uint32_t slot);
// The beams go on: slot i with `token_ids[i]`, behind what slot `from[i]` had. True where the search is over, and
// nothing is set: it is decided, or `is_last` says that no beam may get longer.
bool relay_beam_search_choose(relay_beam_search *b, bool is_last, uint32_t *from, uint32_t *token_ids);
// The search is over with what there is: the open beams are hypotheses too. False where there is none, because nothing
// was chosen yet.
bool relay_beam_search_stop(relay_beam_search *b);
// The ids of a beam.
void relay_beam_search_read(const relay_beam_search *b, uint32_t slot, uint32_t *out);
// Of the best hypothesis, after the search: its ids, and whether the last one ended it.
const uint32_t *relay_beam_search_best(const relay_beam_search *b, uint32_t *n, bool *has_ended, double *score);

#endif
