// Which sequences move in the next step, by how many ids, and in which KV blocks. Pure: no thread, no clock, no I/O and
// no allocation after create; given the same calls it does the same things.
//
// Each step has one budget of rows. First one row for each that has one id pending, so that nobody who decodes waits
// for a prompt; then prompts, as many rows as keep the step within its target time where anybody decodes: by priority,
// then the tenant that has been served least, then arrival. Those that wait are admitted as their turn comes; there
// must be a lane (sequence.h) and blocks for their next chunk. Blocks are taken for the rows of this step alone.
//
// Rank is arrival, with a head start for each priority (sequence.h).
//
// What was computed is kept in the prefix index as long as nobody needs its blocks: who begins with the same ids and
// has the same salt starts behind them, and computes at least its last id. A preempted one finds what is left of its
// own. Blocks all of whose positions have left the window of their KV group are let go at once.
//
// When blocks run out, who asks takes those of the lowest-ranked running sequence below it, or of a paused one: that
// one waits again in its place of rank, and computes its ids anew when all of them fit (preemption by recompute). Who
// finds nobody keeps its blocks and sits the step out. So the first in rank always moves, every sequence fits alone
// (check), and therefore everyone ends.
#ifndef RELAY_MODEL_SVC_SCHEDULER_H
#define RELAY_MODEL_SVC_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "model_svc/event.h"
#include "model_svc/sequence.h"
#include "model_svc/step.h"

typedef struct relay_scheduler relay_scheduler;

typedef struct relay_scheduler_opts {
    uint32_t n_groups;
    uint32_t n_blocks[RELAY_MAX_KV_GROUPS]; // of each KV group's pool
    uint32_t vocab_size;                    // ids are below it
    uint32_t window[RELAY_MAX_KV_GROUPS];   // positions a row of the group sees, itself included; 0: all
    uint32_t max_context;                   // positions of one sequence
    uint32_t max_running;                   // sequences with a lane
    uint32_t max_sequences;                 // answers, waiting ones included; places of requests are below it
    uint32_t token_budget;                  // rows of a step; at least max_running
    uint32_t prompt_chunk;                  // most rows of one sequence in a step; 0: what the budget leaves
    relay_mono_us step_target; // how long a step with decoding sequences should last at most; 0: no limit to prompts
    uint32_t max_leases;       // finished sequences whose blocks are kept on request
    uint64_t hash_seed;        // of the prefix index; only time depends on it
    // Called with each event as it happens. Times and counts of the sequence may be read; after a last event its id is
    // free when the call returns.
    void (*emit)(void *arg, const relay_sequence *s, const relay_event *event);
    void *emit_arg;
} relay_scheduler_opts;

// Counts at a moment between two calls.
typedef struct relay_scheduler_state {
    uint64_t step; // the last one made
    uint32_t n_waiting, n_running;
    uint64_t waiting_tokens; // ids of those waiting
    uint32_t n_leases;
    uint32_t used_blocks, cached_blocks,
        total_blocks; // of all groups; used: by sequences and leases; cached: kept, and there for the taking
    uint32_t group_touched_blocks[RELAY_MAX_KV_GROUPS]; // blocks taken at least once
    // Positions of held blocks that neither hold an id's KV nor get it in the step made last, of all groups.
    uint64_t unused_slots;
    uint64_t prefill_tokens, decode_tokens, preemptions; // since create: rows of prompts and recomputed ids; ids drawn
    uint64_t cached_tokens;                              // since create: ids that were found in place of computing them
} relay_scheduler_state;

relay_scheduler *relay_scheduler_create(const relay_scheduler_opts *opts);
// Nothing is emitted for what it still holds.
void relay_scheduler_destroy(relay_scheduler *s);
// What a step must hold.
relay_step_limits relay_scheduler_step_limits(const relay_scheduler *s);

// Whether the request could be served alone. Any thread. INVALID_ARGUMENT naming what does not fit and the limit.
relay_code relay_scheduler_check_request(const relay_scheduler *s, const relay_request *r,
                                         relay_err *e) RELAY_NODISCARD;
// `r` passed the check; `id` < max_sequences is free until its last event. A resumed answer that is at its end already
// ends at once.
void relay_scheduler_add(relay_scheduler *s, uint32_t id, relay_request *r, uint64_t arrival, relay_mono_us now);
// Ends it with CANCELLED and frees its blocks; nothing where the id is free.
void relay_scheduler_cancel(relay_scheduler *s, uint32_t id, relay_mono_us now);
void relay_scheduler_add_credit(relay_scheduler *s, uint32_t id, uint32_t tokens);
// Ends those whose constraint could not be compiled.
void relay_scheduler_settle_constraints(relay_scheduler *s);
// Ends those whose deadline or time limit has come.
void relay_scheduler_expire(relay_scheduler *s, relay_mono_us now);
// No expire() is needed before then; RELAY_NEVER_US.
relay_mono_us relay_scheduler_next_expiry(const relay_scheduler *s);
// A lease of the name `to` on what there is of the sequence `from`, leased or running: how many ids it holds, 0 where
// nothing is known of it. It gives way when blocks are needed.
uint32_t relay_scheduler_fork(relay_scheduler *s, relay_sequence_key from, relay_sequence_key to, int64_t lease_us,
                              relay_mono_us now);
// Ends the lease; false where there is none.
bool relay_scheduler_release(relay_scheduler *s, relay_sequence_key key);
// Ends everything with DRAINED.
void relay_scheduler_end_all(relay_scheduler *s, relay_mono_us now);

// Makes the next step. False, and the step is empty, where nobody can move: all that are there are out of credit, or
// have more to tell.
bool relay_scheduler_fill(relay_scheduler *s, relay_step *step, relay_mono_us now);
// Whether fill() has something to tell though nobody moves.
bool relay_scheduler_has_more(const relay_scheduler *s);
// Takes the results of the step that was made last: [n_samples].
void relay_scheduler_take(relay_scheduler *s, const relay_step *step, const relay_sample_result *results,
                          relay_mono_us now);

// For tests, between steps: takes its blocks from the first answer of the request at place `id`, as if they were
// needed; nothing where it does not run.
void relay_scheduler_preempt_request(relay_scheduler *s, uint32_t id);

void relay_scheduler_get_state(const relay_scheduler *s, relay_scheduler_state *out);
// For tests: the first answer of the request at place id < max_sequences; further ones are behind those.
const relay_sequence *relay_scheduler_sequence(const relay_scheduler *s, uint32_t id);
// For tests, between steps: lists, pools, tables, lanes and counts agree. NULL if so, else what does not.
const char *relay_scheduler_check(const relay_scheduler *s);

#endif
