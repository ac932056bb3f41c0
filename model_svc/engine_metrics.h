// The engine's metrics: made once, then only relaxed atomic updates, all from the engine's thread but for `rejected`,
// which is counted where submit says no.
#ifndef RELAY_MODEL_SVC_ENGINE_METRICS_H
#define RELAY_MODEL_SVC_ENGINE_METRICS_H

#include "common/metrics.h"
#include "model_svc/event.h"
#include "model_svc/scheduler.h"
#include "model_svc/sequence.h"

typedef struct relay_engine_metrics {
    relay_gauge *requests_waiting, *requests_running;
    relay_gauge *kv_usage, *kv_blocks, *kv_used_blocks, *kv_cached_blocks, *leased, *kv_block_tokens, *kv_unused_slots,
        *kv_touched_bytes;
    relay_counter *prefill_tokens, *decode_tokens, *preemptions, *cached_tokens;
    relay_counter *finished[RELAY_FINISH_DRAINED + 1]; // by reason
    relay_counter *failed[RELAY_UNAUTHENTICATED + 1];  // by code, those that an engine gives
    relay_counter *rejected;
    relay_histogram *step_seconds, *batch_tokens;
    relay_histogram *time_to_first_token, *inter_token_latency, *queue_time, *request_seconds;
    relay_scheduler_state last; // what the counters have been told
} relay_engine_metrics;

void relay_engine_metrics_init(relay_engine_metrics *m, relay_metrics *registry);
// An event as it happens; `q` as it was before it.
void relay_engine_metrics_event(relay_engine_metrics *m, const relay_sequence *q, const relay_event *ev,
                                relay_mono_us now);
void relay_engine_metrics_step(relay_engine_metrics *m, uint32_t n_rows, relay_mono_us took);
// How things stand as a step begins or between two; `kv_touched_bytes` is the memory of the blocks that were used at
// least once.
void relay_engine_metrics_state(relay_engine_metrics *m, const relay_scheduler_state *state, uint64_t kv_touched_bytes);

#endif
