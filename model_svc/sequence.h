// One answer on its way through the engine: what is known of it, what is computed of it, and where its KV lies. A
// request with several answers has as many sequences, which have the prompt in common.
//
// A sequence has n_tokens ids, of which the KV of the first n_computed is in the cache. There are no phases: whatever
// is not computed is pending, be it a prompt, a resumed answer, what a preemption took, or the one id drawn last; and
// the step that computes the last pending one draws the next.
//
// The ids are those of the request, which stays as it is, followed by those drawn here. Memory that grows with a
// sequence lies in a lane; there are as many lanes as sequences may run. A sequence gets one when it is first admitted
// and keeps it to its end, through preemptions too, because what it has drawn is not drawn again. While it waits for
// the first time it is this struct alone.
#ifndef RELAY_MODEL_SVC_SEQUENCE_H
#define RELAY_MODEL_SVC_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "model_svc/event.h"
#include "model_svc/request.h"
#include "model_svc/step.h"
#include "model_svc/token_counts.h"

// Blocks that hold `n_tokens` positions.
static inline uint32_t relay_blocks_for(uint32_t n_tokens) {
    return (n_tokens + RELAY_BLOCK_TOKENS - 1) / RELAY_BLOCK_TOKENS;
}

enum {
    RELAY_HEAD_START = 10 * 1000 * 1000, // microseconds of waiting that one priority is worth
};

// Some 60 bytes for each of max_tokens: 4 of output, 28 to 36 of counts, 24 to 32 of repeats. Pages become resident as
// a sequence grows into them, those of counts and repeats only where the request asks for what needs them.
typedef struct relay_lane {
    struct relay_lane *next;               // among free lanes
    uint32_t *output;                      // [max_tokens] ids drawn here
    uint32_t *tables[RELAY_MAX_KV_GROUPS]; // [max_tokens / 16, rounded up] block ids of each KV group
    relay_token_counts counts;             // kept where a penalty is on
    uint64_t counts_begin;                 // of this lane among the resident counts
    relay_token_repeats repeats;           // kept where DRY or no_repeat_ngram_size is on
    relay_matcher matcher;                 // of the output, under a constraint; of zeros it is to begin again
    bool is_cornered;                      // at the last draw: constraint or mask left no id;
    bool is_complete;                      // under a constraint: the output may end there,
    bool constraint_fits;                  // and the constraint's memory held it
} relay_lane;

// Lane `index` of a scheduler's, for sequences of `max_tokens` ids, `max_different` different ones.
void relay_lane_init(relay_lane *l, uint32_t index, uint32_t max_tokens, uint32_t max_different, uint32_t n_groups);
void relay_lane_fini(relay_lane *l);

typedef enum relay_sequence_state {
    RELAY_SEQUENCE_NONE,    // this place is free
    RELAY_SEQUENCE_WAITING, // for its first step, or after a preemption for the next one; holds no blocks
    RELAY_SEQUENCE_RUNNING, // holds the blocks of what is computed
    RELAY_SEQUENCE_TELLING, // the best hypothesis of a beam search, which is over; holds nothing
} relay_sequence_state;

typedef struct relay_sequence {
    struct relay_sequence *prev, *next; // in the scheduler's list of its state
    uint32_t id;                        // the place of its request
    uint32_t index;                     // which of its request's answers
    struct relay_sequence *sibling;     // the next answer of the same request
    struct relay_sequence *leader;      // computes the prompt for it; NULL: it does so itself
    relay_sequence_state state;
    relay_request *request; // borrowed to the last event
    relay_lane *lane;       // NULL before it was first admitted
    uint64_t arrival;       // order of arrival
    int64_t ranks_from;     // microseconds: when it was added, less the head start of its priority
    uint32_t n_tokens;      // ids it has
    uint32_t n_computed;    // of these in the cache
    uint32_t n_blocks;      // its positions' blocks, in each KV group: n_computed and n_scheduled lie in them ...
    uint32_t first_block[RELAY_MAX_KV_GROUPS]; // ... and those before this one have left the window: not held
    uint32_t entry;    // of the prefix index: its ids up to n_stored blocks; RELAY_NO_ENTRY: it stores nothing
    uint32_t n_stored; // full blocks that the index knows
    uint32_t copy_from[RELAY_MAX_KV_GROUPS]; // in this step, what its last block begins as; RELAY_NO_BLOCK
    uint32_t n_scheduled;                    // rows in the step that is being made or computed
    bool had_its_turn;                       // in the step that is being made
    bool waits_for_beams;                    // it has offered its continuations, others have not
    uint32_t n_promised;                     // lanes that are kept for its followers
    uint32_t n_told;                         // ids, while it tells
    bool was_stopped;                        // it tells what its search had found at the time limit
    uint32_t tenant;                         // among the scheduler's
    uint32_t credit;                         // ids that may be drawn here in all
    uint32_t n_scored;                       // prompt ids whose score has been told, and the first, which has none
    uint32_t n_preemptions;
    float mirostat_mu;            // after the last draw
    relay_mono_us admitted_at;    // first; RELAY_NEVER_US before
    relay_mono_us first_token_at; // RELAY_NEVER_US before
    relay_mono_us last_token_at;  // of the one drawn last; RELAY_NEVER_US before
} relay_sequence;

// Starts over with answer `index` of `r`; keeps id and links.
void relay_sequence_begin(relay_sequence *s, relay_request *r, uint32_t index, uint64_t arrival, relay_mono_us now);
// Gives it its lane, which must be clean.
void relay_sequence_enter(relay_sequence *s, relay_lane *lane, relay_mono_us now);
// Takes the lane back, clean; NULL if it has none.
relay_lane *relay_sequence_leave(relay_sequence *s);

// i < n_tokens
static inline uint32_t relay_sequence_token(const relay_sequence *s, uint32_t i) {
    return i < s->request->n_tokens ? s->request->token_ids[i] : s->lane->output[i - s->request->n_tokens];
}
static inline uint32_t relay_sequence_pending(const relay_sequence *s) {
    return s->n_tokens - s->n_computed;
}
// Ids of the answer so far, resumed ones included.
static inline uint32_t relay_sequence_output(const relay_sequence *s) {
    return s->n_tokens - s->request->n_prompt;
}
// Ids drawn here.
static inline uint32_t relay_sequence_drawn(const relay_sequence *s) {
    return s->n_tokens - s->request->n_tokens;
}
// Out of credit, or its constraint is being compiled: it gets no rows until there is more.
// A beam waits until all have offered; a search needs credit only to tell what it found.
static inline bool relay_sequence_is_paused(const relay_sequence *s) {
    if (s->request->beams != NULL) return s->waits_for_beams;
    const relay_constraint_handle *c = s->request->constraint;
    if (c != NULL && relay_constraint_handle_state(c) == RELAY_CONSTRAINT_COMPILING) return true;
    return s->credit != RELAY_UNLIMITED_CREDIT && relay_sequence_drawn(s) >= s->credit;
}
// Some of the prompt's ids are still to be scored. What they are is told once, also where their rows are computed
// again.
static inline bool relay_sequence_scores(const relay_sequence *s) {
    const relay_request *r = s->request;
    return r->scores_prompt && s->index == r->sampling.sequence_index && s->n_scored < r->n_prompt;
}
// How many of the next n_rows rows are scored.
uint32_t relay_sequence_scored_rows(const relay_sequence *s, uint32_t n_rows);
void relay_sequence_add_credit(relay_sequence *s, uint32_t tokens);
void relay_sequence_append(relay_sequence *s, uint32_t token_id, relay_mono_us now);

// Rank. A priority is a head start: one more ranks as if it had come RELAY_HEAD_START earlier. So everybody's priority
// grows as it waits, and the order of any two is settled when they arrive.
static inline bool relay_sequence_ranks_before(const relay_sequence *a, const relay_sequence *b) {
    if (a->ranks_from != b->ranks_from) return a->ranks_from < b->ranks_from;
    return a->arrival != b->arrival ? a->arrival < b->arrival : a->index < b->index;
}

// Whether the answer ends with its last id, where it has one: end of answer, stop id, stop sequence, complete
// under its constraint, max_new_tokens, context (in this order; the first that holds is the reason). *cause is the id
// for the first two, the sequence's index for the third.
relay_finish relay_sequence_check_end(relay_sequence *s, uint32_t max_tokens, uint32_t *cause);

// Appends what the draw of the next id needs to the step: parameters, changed counts, biases, masks. `row` is the
// step's row that is sampled.
void relay_sequence_put_sample(relay_sequence *s, relay_step *step, uint32_t row);
// The same for the score of the prompt's id behind this row, which is that of `position`.
void relay_sequence_put_score(const relay_sequence *s, relay_step *step, uint32_t row, uint32_t position);

#endif
