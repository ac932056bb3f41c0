#include "model_svc/engine_metrics.h"

static const double batch_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

static relay_histogram *latency(relay_metrics *registry, const char *name, const char *help) {
    return relay_metrics_histogram(registry, name, help, NULL, relay_latency_bounds, relay_latency_bounds_count);
}

static relay_counter *requests(relay_metrics *registry, const char *labels) {
    return relay_metrics_counter(registry, "relay_requests_total", "Requests that ended, by code and reason.", labels);
}

void relay_engine_metrics_init(relay_engine_metrics *m, relay_metrics *r) {
    *m = (relay_engine_metrics){0};
    m->requests_waiting =
        relay_metrics_gauge(r, "relay_requests_waiting", "Requests that wait, preempted ones included.", NULL);
    m->requests_running = relay_metrics_gauge(r, "relay_requests_running", "Requests that hold KV blocks.", NULL);
    m->kv_usage = relay_metrics_gauge(r, "relay_kv_cache_usage_ratio", "Part of the KV blocks in use, 0 to 1.", NULL);
    m->kv_blocks = relay_metrics_gauge(r, "relay_kv_cache_blocks", "KV blocks of all KV groups.", NULL);
    m->kv_used_blocks = relay_metrics_gauge(r, "relay_kv_cache_used_blocks", "KV blocks in use.", NULL);
    m->kv_block_tokens = relay_metrics_gauge(r, "relay_kv_cache_block_tokens", "Positions of one KV block.", NULL);
    m->kv_unused_slots =
        relay_metrics_gauge(r, "relay_kv_unused_slots", "Positions of used KV blocks that hold no token.", NULL);
    m->kv_touched_bytes = relay_metrics_gauge(r, "relay_kv_cache_touched_bytes",
                                              "Memory of the KV blocks that were used at least once.", NULL);
    m->prefill_tokens = relay_metrics_counter(r, "relay_prefill_tokens_total",
                                              "Tokens computed as prompt, resumed and recomputed ones included.", NULL);
    m->decode_tokens = relay_metrics_counter(r, "relay_decode_tokens_total", "Tokens drawn.", NULL);
    m->kv_cached_blocks =
        relay_metrics_gauge(r, "relay_kv_cache_cached_blocks",
                            "KV blocks that nobody uses but that are kept for whoever begins alike.", NULL);
    m->cached_tokens = relay_metrics_counter(r, "relay_cached_tokens_total",
                                             "Tokens whose keys and values were found, not computed.", NULL);
    m->leased = relay_metrics_gauge(r, "relay_leased_sequences", "Finished sequences whose KV blocks are kept.", NULL);
    m->preemptions =
        relay_metrics_counter(r, "relay_preemptions_total", "Times a request gave up its KV blocks to another.", NULL);
    m->finished[RELAY_FINISH_EOS] = requests(r, "code=\"OK\",reason=\"EOS\"");
    m->finished[RELAY_FINISH_STOP_TOKEN] = requests(r, "code=\"OK\",reason=\"STOP_TOKEN\"");
    m->finished[RELAY_FINISH_STOP_SEQUENCE] = requests(r, "code=\"OK\",reason=\"STOP_SEQUENCE\"");
    m->finished[RELAY_FINISH_MAX_NEW_TOKENS] = requests(r, "code=\"OK\",reason=\"MAX_NEW_TOKENS\"");
    m->finished[RELAY_FINISH_CONTEXT_FULL] = requests(r, "code=\"OK\",reason=\"CONTEXT_FULL\"");
    m->finished[RELAY_FINISH_TIME_LIMIT] = requests(r, "code=\"OK\",reason=\"TIME_LIMIT\"");
    m->finished[RELAY_FINISH_CANCELLED] = requests(r, "code=\"CANCELLED\",reason=\"CANCELLED\"");
    m->finished[RELAY_FINISH_CONSTRAINT_DONE] = requests(r, "code=\"OK\",reason=\"CONSTRAINT_DONE\"");
    m->finished[RELAY_FINISH_DRAINED] = requests(r, "code=\"OK\",reason=\"DRAINED\"");
    m->failed[RELAY_DEADLINE_EXCEEDED] = requests(r, "code=\"DEADLINE_EXCEEDED\",reason=\"\"");
    m->failed[RELAY_INTERNAL] = requests(r, "code=\"INTERNAL\",reason=\"\"");
    m->failed[RELAY_INVALID_ARGUMENT] = requests(r, "code=\"INVALID_ARGUMENT\",reason=\"\"");
    m->failed[RELAY_FAILED_PRECONDITION] = requests(r, "code=\"FAILED_PRECONDITION\",reason=\"\"");
    m->failed[RELAY_RESOURCE_EXHAUSTED] = requests(r, "code=\"RESOURCE_EXHAUSTED\",reason=\"\"");
    m->failed[RELAY_UNAVAILABLE] = requests(r, "code=\"UNAVAILABLE\",reason=\"\"");
    m->rejected = relay_metrics_counter(r, "relay_rejected_total", "Requests refused because the queue was full.",
                                        "cause=\"queue_full\"");
    m->step_seconds = latency(r, "relay_step_seconds", "Time of one engine step.");
    m->batch_tokens = relay_metrics_histogram(r, "relay_batch_tokens", "Rows of one engine step.", NULL, batch_bounds,
                                              sizeof batch_bounds / sizeof batch_bounds[0]);
    m->time_to_first_token =
        latency(r, "relay_time_to_first_token_seconds", "From the request's receipt to its first token.");
    m->inter_token_latency =
        latency(r, "relay_inter_token_latency_seconds", "From one token of a request to its next.");
    m->queue_time = latency(r, "relay_queue_time_seconds", "From the request's receipt to its first step.");
    m->request_seconds = latency(r, "relay_e2e_latency_seconds", "From the request's receipt to its last event.");
    relay_gauge_set(m->kv_block_tokens, RELAY_BLOCK_TOKENS);
}

static double seconds(relay_mono_us from, relay_mono_us to) {
    return to > from ? (double)(to - from) / 1e6 : 0;
}

void relay_engine_metrics_event(relay_engine_metrics *m, const relay_sequence *q, const relay_event *ev,
                                relay_mono_us now) {
    relay_mono_us received = ev->request->received_at;
    switch (ev->kind) {
    case RELAY_EVENT_STARTED:
        relay_histogram_observe(m->queue_time, seconds(received, now));
        break;
    case RELAY_EVENT_SCORE:
        break;
    case RELAY_EVENT_TOKEN:
        if (q->first_token_at == RELAY_NEVER_US) {
            relay_histogram_observe(m->time_to_first_token, seconds(received, now));
        } else {
            relay_histogram_observe(m->inter_token_latency, seconds(q->last_token_at, now));
        }
        break;
    case RELAY_EVENT_FINISHED:
        if (!ev->is_last) break;
        relay_counter_add(m->finished[ev->finish], 1);
        relay_histogram_observe(m->request_seconds, seconds(received, now));
        break;
    case RELAY_EVENT_LEASE:
        break;
    case RELAY_EVENT_FAILED:
        relay_counter_add(m->failed[ev->code], 1);
        relay_histogram_observe(m->request_seconds, seconds(received, now));
        break;
    }
}

void relay_engine_metrics_step(relay_engine_metrics *m, uint32_t n_rows, relay_mono_us took) {
    relay_histogram_observe(m->step_seconds, (double)took / 1e6);
    relay_histogram_observe(m->batch_tokens, n_rows);
}

void relay_engine_metrics_state(relay_engine_metrics *m, const relay_scheduler_state *s, uint64_t kv_touched_bytes) {
    relay_gauge_set(m->requests_waiting, s->n_waiting);
    relay_gauge_set(m->requests_running, s->n_running);
    relay_gauge_set(m->kv_usage, (double)s->used_blocks / s->total_blocks);
    relay_gauge_set(m->kv_blocks, s->total_blocks);
    relay_gauge_set(m->kv_used_blocks, s->used_blocks);
    relay_gauge_set(m->kv_cached_blocks, s->cached_blocks);
    relay_gauge_set(m->leased, s->n_leases);
    relay_gauge_set(m->kv_unused_slots, (double)s->unused_slots);
    relay_gauge_set(m->kv_touched_bytes, (double)kv_touched_bytes);
    relay_counter_add(m->prefill_tokens, s->prefill_tokens - m->last.prefill_tokens);
    relay_counter_add(m->decode_tokens, s->decode_tokens - m->last.decode_tokens);
    relay_counter_add(m->cached_tokens, s->cached_tokens - m->last.cached_tokens);
    relay_counter_add(m->preemptions, s->preemptions - m->last.preemptions);
    m->last = *s;
}
