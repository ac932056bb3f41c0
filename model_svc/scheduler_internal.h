// The scheduler's state, for the files that make it up: scheduler.c moves it, scheduler_state.c tells and checks it.
#ifndef RELAY_MODEL_SVC_SCHEDULER_INTERNAL_H
#define RELAY_MODEL_SVC_SCHEDULER_INTERNAL_H

#include "model_svc/block_pool.h"
#include "model_svc/scheduler.h"

// A doubly linked list through the sequences, in rank order: priority, then arrival. Every live sequence is in one of
// the two, the one of its state.
typedef struct relay_sequence_list {
    relay_sequence *head, *tail;
    uint32_t n;
} relay_sequence_list;

struct relay_scheduler {
    relay_scheduler_opts opts;
    uint32_t max_tokens; // ids of one sequence: the context, or the smallest pool
    relay_block_pool *pools[RELAY_MAX_KV_GROUPS];
    relay_sequence *sequences; // [max_sequences]
    relay_lane *lanes;         // [max_running]
    relay_lane *free_lanes;    // used last first, so that untouched lanes stay untouched
    relay_sequence_list waiting, running;
    uint64_t waiting_tokens;
    relay_mono_us next_expiry; // no sequence expires before; may be too early
    uint64_t step;             // the last one made
    uint64_t prefill_tokens, decode_tokens, preemptions;
    // Of the step that is made or computed:
    relay_sequence **batch; // [max_running] in the order of the step's sequences
    uint32_t budget;        // rows left
};

static inline bool relay_sequence_ranks_before(const relay_sequence *a, const relay_sequence *b) {
    if (a->request->priority != b->request->priority) return a->request->priority > b->request->priority;
    return a->arrival < b->arrival;
}

#endif
