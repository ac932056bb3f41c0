// The engine: one thread that owns the sequences, the KV blocks and the model, and runs the step loop.
//
//   submit / cancel / add_credit  --bounded queue-->  engine thread  --bounded ring-->  publisher thread -->
//   opts.publish
//
// A step: take what has arrived, let the scheduler fill one relay_step within the token budget, submit it to the model,
// complete it, give each sampled token to its sequence, and publish once. No allocation, no lock and no logging in the
// step. The publisher thread stands between so that packing messages never delays a step.
#ifndef RELAY_MODEL_SVC_ENGINE_H
#define RELAY_MODEL_SVC_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/metrics.h"
#include "common/status.h"
#include "model_svc/event.h"
#include "model_svc/model_ops.h"
#include "model_svc/request.h"

typedef struct relay_engine relay_engine;

// What GetLoad tells; a consistent snapshot of the begin or the end of a step. What was submitted since is not in it
// yet.
typedef struct relay_engine_load {
    uint64_t step;
    uint32_t running, waiting;
    uint64_t waiting_tokens; // ids of those waiting
    // Of all groups together; free + cached + those in use = total. Cached ones are given to whoever needs them.
    uint32_t free_blocks, cached_blocks, total_blocks;
    uint32_t leased_sequences;
    uint64_t unix_ms;         // wall time of the snapshot
    double tokens_per_second; // sampled, over the last seconds
    bool is_draining;
} relay_engine_load;

// What is asked about leases, and the answer. The caller's until its LEASE event.
typedef struct relay_lease_call {
    void *owner;  // the receiver's own
    bool is_fork; // else a release, of `from`
    relay_sequence_key from, to;
    int64_t lease_us;
    uint32_t n_tokens; // the answer to a fork: ids that are kept
    bool found;        // the answer to a release
} relay_lease_call;

typedef struct relay_engine_opts {
    const relay_model_ops *model_ops;
    void *model; // borrowed; from create to destroy only the engine thread touches it
    relay_kv_group groups[RELAY_MAX_KV_GROUPS];
    uint32_t n_groups;
    uint32_t vocab_size;          // ids are below it
    uint32_t max_context;         // positions of one sequence
    uint32_t max_running;         // sequences in a batch
    uint32_t token_budget;        // rows of a step; at least max_running
    uint32_t prompt_chunk;        // most prompt rows of one sequence in a step; 0: what the budget leaves
    relay_mono_us step_target;    // how long a step with decoding sequences should last at most; 0: no limit to prompts
    uint32_t max_queued_requests; // waiting; past either bound submit says RESOURCE_EXHAUSTED
    uint64_t max_queued_tokens;   // neither bound may be 0
    // Called on the publisher thread with what happened since the last call, oldest first; the events of one step are
    // adjacent, and may come in two calls. It must not wait for anybody: while it does not return, the engine holds its
    // next step once the events' ring is full.
    uint32_t max_leases; // finished sequences whose blocks are kept on request
    void (*publish)(void *arg, const relay_event *events, uint32_t n_events);
    void *publish_arg;
    relay_metrics *metrics; // may be NULL
} relay_engine_opts;

relay_code relay_engine_create(relay_engine **out, const relay_engine_opts *opts, relay_err *e) RELAY_NODISCARD;

// Thread-safe, from here to _stop. Takes the request when it returns OK and gives it back with the event that is its
// last; on
// failure it stays the caller's: RESOURCE_EXHAUSTED with a retry hint (queue full), UNAVAILABLE (draining),
// INVALID_ARGUMENT (it could never fit: names what and the limit). *key names it for cancel and credit; it may be used
// before its first event arrives.
relay_code relay_engine_submit(relay_engine *en, relay_request *r, uint64_t *key, relay_err *e) RELAY_NODISCARD;
// Wherever it is, it ends with CANCELLED before the next step; unknown keys are ignored. Never fails, never waits for a
// step.
void relay_engine_cancel(relay_engine *en, uint64_t key);
void relay_engine_add_credit(relay_engine *en, uint64_t key, uint32_t tokens);
// Takes the call when it returns OK, and answers it with a LEASE event between two steps. RESOURCE_EXHAUSTED,
// UNAVAILABLE (draining).
relay_code relay_engine_lease(relay_engine *en, relay_lease_call *call, relay_err *e) RELAY_NODISCARD;
void relay_engine_get_load(const relay_engine *en, relay_engine_load *out);
// Any thread: constraints of requests that were submitted may be ready, or have failed.
void relay_engine_settle_constraints(relay_engine *en);
// False when there was work and no step ended for `limit_us`.
bool relay_engine_is_alive(const relay_engine *en, int64_t limit_us);
// From now on submit says UNAVAILABLE; running and waiting requests go on.
void relay_engine_drain(relay_engine *en);
// Ends what is left with DRAINED, publishes it, joins both threads. Then destroy.
void relay_engine_stop(relay_engine *en);
void relay_engine_destroy(relay_engine *en);
// For tests, after stop(): lists, pools, tables and counts agree. NULL if so, else what does not. In debug builds the
// engine looks by itself whenever it has nothing to do.
const char *relay_engine_check(const relay_engine *en);

#endif
