// The scheduler's state, for the files that make it up: scheduler.c takes requests in and lets them go,
// scheduler_rows.c says who gets rows, scheduler_step.c makes steps, scheduler_blocks.c gives and takes KV blocks,
// scheduler_state.c tells and checks.
#ifndef RELAY_MODEL_SVC_SCHEDULER_INTERNAL_H
#define RELAY_MODEL_SVC_SCHEDULER_INTERNAL_H

#include "model_svc/block_pool.h"
#include "model_svc/leases.h"
#include "model_svc/pace.h"
#include "model_svc/prefix_index.h"
#include "model_svc/scheduler.h"
#include "model_svc/tenants.h"

// A doubly linked list through the sequences, in rank order. Every live sequence is
// in one of these, the one of its state.
typedef struct relay_sequence_list {
    relay_sequence *head, *tail;
    uint32_t n;
} relay_sequence_list;

struct relay_scheduler {
    relay_scheduler_opts opts;
    uint32_t max_tokens; // ids of one sequence: the context, or the smallest pool
    relay_block_pool *pools[RELAY_MAX_KV_GROUPS];
    relay_prefix_index *index;
    relay_leases *leases;
    // [2 * max_sequences]: the first answer of the request at place i is sequences[i], further ones are taken from the
    // second half.
    relay_sequence *sequences;
    relay_sequence *free_sequences; // of the second half, through `next`
    relay_sequence **answers;       // [max_sequences] those of the request at each place, through `sibling`
    relay_lane *lanes;              // [max_running]
    relay_lane *free_lanes;         // used last first, so that untouched lanes stay untouched
    relay_sequence_list waiting, running, telling;
    uint32_t n_free_lanes, n_promised_lanes; // those promised are kept for beams
    uint64_t waiting_tokens;
    relay_mono_us next_expiry; // no sequence expires before; may be too early
    uint64_t step;             // the last one made
    uint64_t prefill_tokens, decode_tokens, preemptions, cached_tokens;
    relay_tenants *tenants; // one user for each sequence
    relay_pace pace;
    // Of the step that is made or computed:
    relay_mono_us began_at;
    relay_sequence **batch;           // [max_running] in the order of the step's sequences
    relay_sequence **sampled;         // [max_running] in the order of the step's samples
    relay_kv_block_copy *tail_copies; // [2 * max_running] of the next step
    uint32_t n_tail_copies;
    uint32_t budget;       // rows left
    uint32_t score_budget; // of them scored
};

static inline uint32_t relay_min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

// ---- scheduler.c

uint32_t relay_scheduler_max_entries(const relay_scheduler *s); // of the prefix index

void relay_sequence_list_insert(relay_sequence_list *l, relay_sequence *q);
void relay_sequence_list_remove(relay_sequence_list *l, relay_sequence *q);
void relay_scheduler_enter_waiting(relay_scheduler *s, relay_sequence *q);
void relay_scheduler_leave_waiting(relay_scheduler *s, relay_sequence *q);
void relay_scheduler_emit(relay_scheduler *s, const relay_sequence *q, relay_event *ev);
// Ends all answers of `q`'s request with this FAILED.
void relay_scheduler_fail(relay_scheduler *s, relay_sequence *q, relay_event *failed);
void relay_scheduler_finish(relay_scheduler *s, relay_sequence *q, relay_finish why, uint32_t stop_cause, uint64_t step,
                            relay_mono_us now);

// Ends all answers of `q`'s request but `q`, without a word.
void relay_scheduler_drop_others(relay_scheduler *s, relay_sequence *q);
// Takes list, blocks and lane from `q`.
void relay_scheduler_let_go(relay_scheduler *s, relay_sequence *q);
// A free lane; NULL where there is none.
relay_lane *relay_scheduler_take_lane(relay_scheduler *s);

// ---- scheduler_beams.c

// `q`, a beam, has its continuations.
void relay_scheduler_take_beam(relay_scheduler *s, relay_sequence *q, const relay_sample_result *result);
// The time of `q`, a beam or what tells, is over: what the search has found is the answer. False where there is nothing
// to tell, or no credit for it: the caller ends it.
bool relay_scheduler_stop_search(relay_scheduler *s, relay_sequence *q);
// Says the next ids of what was found.
void relay_scheduler_tell(relay_scheduler *s, relay_mono_us now);

// ---- scheduler_leases.c

// Keeps what `q`, which is about to end, has stored, where its request asks for it.
void relay_scheduler_lease(relay_scheduler *s, const relay_sequence *q, relay_mono_us now);

// ---- scheduler_rows.c

void relay_scheduler_grant_rows(relay_scheduler *s, relay_mono_us now);
void relay_scheduler_emit_start(relay_scheduler *s, const relay_sequence *q);

// ---- scheduler_blocks.c

// Most blocks that one row sees, in a group with a window.
static inline uint32_t relay_window_blocks(uint32_t window) {
    return (window + RELAY_BLOCK_TOKENS - 2) / RELAY_BLOCK_TOKENS + 1;
}
// Holds the blocks of the longest beginning of `q`'s ids that the index knows, into the tables of `lane`, and counts
// these ids as computed. `q` holds none.
void relay_scheduler_attach(relay_scheduler *s, relay_sequence *q, relay_lane *lane);
// Lets go all of them, the last ones first, so that of what is cached the end goes before the begin. Nothing of `q` is
// computed any more.
void relay_scheduler_detach(relay_scheduler *s, relay_sequence *q, relay_lane *lane);
// How many more ids of `q`, beyond those of this step, could be computed with the blocks that are available.
uint32_t relay_scheduler_room_for(const relay_scheduler *s, const relay_sequence *q);
// Whether the pools could give what `q` needs to have `n_tokens` ids computed, with `extra` [n_groups] blocks more.
bool relay_scheduler_has_room(const relay_scheduler *s, const relay_sequence *q, uint32_t n_tokens,
                              const uint32_t *extra);
// Gives `q` `n_rows` more of the step, for which there is room.
void relay_scheduler_grant(relay_scheduler *s, relay_sequence *q, uint32_t n_rows);
// Which block `q` must have a copy of to write its next row: one that others hold too; RELAY_NO_BLOCK.
uint32_t relay_scheduler_shared_block(const relay_scheduler *s, const relay_sequence *q, uint32_t group);
// The copies of the step are made.
void relay_scheduler_end_copies(relay_scheduler *s, relay_sequence *q);
// `to`, which holds nothing, gets what `from` has computed: the same blocks.
void relay_scheduler_share(relay_scheduler *s, const relay_sequence *from, relay_sequence *to);
void relay_scheduler_preempt(relay_scheduler *s, relay_sequence *q);
// Once more ids of `q` are computed: the index learns of its full blocks, and those behind the window are let go.
void relay_scheduler_settle(relay_scheduler *s, relay_sequence *q);

#endif
