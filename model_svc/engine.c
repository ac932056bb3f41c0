// What each part is for: inbox.c lets other threads in, scheduler.c decides, the model computes, and this file runs the
// loop between them and hands out what happened.
//
// Events go into a ring that the publisher thread empties. Before a step the engine makes sure that the ring has room
// for everything one step can say, so it never waits inside one; a publisher that does not keep up holds the next step.
#define _GNU_SOURCE // pthread_setname_np
#include "model_svc/engine.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/ident.h"
#include "common/queue.h"
#include "model_svc/engine_metrics.h"
#include "model_svc/inbox.h"
#include "model_svc/scheduler.h"
#include "model_svc/snapshot.h"
#include "model_svc/token_rate.h"

enum { MIN_RETRY_MS = 100, MAX_RETRY_MS = 30000, MAX_LEASE_CALLS = 256, LEASE_CALLS_A_LOOK = 16, MAX_TOLD_A_STEP = 64 };

// What the snapshot holds.
typedef struct told {
    relay_engine_load load; // tokens_per_second and is_draining are filled in by the reader
    relay_token_rate_window rate;
} told;

struct relay_engine {
    relay_engine_opts opts;
    relay_inbox *inbox;
    relay_mpsc *lease_calls;    // of relay_lease_call *
    pthread_mutex_t lease_lock; // who asks holds it, and stop(); the engine never
    bool refuses_leases;        // under lease_lock
    relay_metrics *own_metrics; // where the caller keeps none
    relay_engine_metrics metrics;
    pthread_t engine_thread, publisher_thread;
    bool is_joined; // stop() has been through

    // The engine thread's.
    relay_scheduler *scheduler;
    relay_step *step;
    relay_sample_result *results; // [max_samples]
    uint32_t max_sequences;
    uint32_t max_step_events; // most that can happen from one look at the inbox to the next
    relay_mono_us now;        // of what is being done
    relay_token_rate rate;

    // From the engine to the publisher.
    relay_spsc *events; // of relay_event
    uint32_t n_reserved;
    _Atomic bool waits_for_room; // then the publisher posts `room`
    sem_t room;
    _Atomic bool is_done; // no event comes any more

    // From the engine to everyone.
    relay_snapshot *snapshot;    // of a told
    _Atomic int64_t progress_at; // the last step's begin or end, or the last look around
    _Atomic bool is_asleep;

    _Atomic bool is_stopping; // from stop() to the engine
    _Atomic bool has_settled_constraints;
};

// How things stand as a step begins, after one, and after a look around, for everyone to see.
static void tell_state(relay_engine *en) {
    relay_scheduler_state state;
    relay_scheduler_get_state(en->scheduler, &state);
    relay_token_rate_note(&en->rate, state.decode_tokens, en->now);
    told t = {
        .load = {.step = state.step,
                 .running = state.n_running,
                 .waiting = state.n_waiting,
                 .waiting_tokens = state.waiting_tokens,
                 .free_blocks = state.total_blocks - state.used_blocks - state.cached_blocks,
                 .cached_blocks = state.cached_blocks,
                 .leased_sequences = state.n_leases,
                 .total_blocks = state.total_blocks,
                 .unix_ms = relay_unix_ms()},
        .rate = relay_token_rate_get(&en->rate, state.decode_tokens, en->now),
    };
    uint64_t kv_touched_bytes = 0;
    for (uint32_t g = 0; g < en->opts.n_groups; g++) {
        kv_touched_bytes += state.group_touched_blocks[g] * en->opts.groups[g].block_bytes;
    }
    relay_engine_metrics_state(&en->metrics, &state, kv_touched_bytes);
    relay_snapshot_write(en->snapshot, &t);
    atomic_store(&en->progress_at, en->now);
}

// ---- Events

static void on_event(void *arg, const relay_sequence *q, const relay_event *ev) {
    relay_engine *en = arg;
    relay_event *slot = relay_spsc_reserve(en->events);
    RELAY_ASSERT(slot != NULL);
    *slot = *ev;
    en->n_reserved++;
    relay_engine_metrics_event(&en->metrics, q, ev, en->now);
    if (ev->kind == RELAY_EVENT_STARTED) {
        relay_inbox_admit(en->inbox, q->id);
        // Who is refused is told to wait as long as the last one that got in had to.
        int64_t waited_ms = (en->now - ev->request->received_at) / 1000;
        if (waited_ms < MIN_RETRY_MS) waited_ms = MIN_RETRY_MS;
        if (waited_ms > MAX_RETRY_MS) waited_ms = MAX_RETRY_MS;
        relay_inbox_set_retry_hint(en->inbox, (uint32_t)waited_ms);
    } else if (ev->is_last) {
        relay_inbox_free(en->inbox, q->id);
    }
}

static void publish(relay_engine *en) {
    if (en->n_reserved == 0) return;
    en->n_reserved = 0;
    relay_spsc_commit(en->events);
}

static void wait_for_room(relay_engine *en) {
    while (relay_spsc_free(en->events) < en->max_step_events) {
        // An exchange here and there: one of the two comes first, and the other side sees what was done before it.
        atomic_exchange(&en->waits_for_room, true);
        if (relay_spsc_free(en->events) >= en->max_step_events) {
            if (atomic_exchange(&en->waits_for_room, false)) return;
            // The publisher has seen the flag; its post must not be left over.
        }
        while (sem_wait(&en->room) != 0) {
        }
    }
}

static void *run_publisher(void *arg) {
    relay_engine *en = arg;
    for (;;) {
        bool is_done = atomic_load(&en->is_done); // before the look: what came before it is then seen
        uint32_t n;
        const relay_event *events = relay_spsc_peek(en->events, &n);
        if (events != NULL) {
            en->opts.publish(en->opts.publish_arg, events, n);
            relay_spsc_release(en->events, n);
            if (atomic_exchange(&en->waits_for_room, false)) sem_post(&en->room);
        } else if (is_done) {
            return NULL;
        } else {
            relay_spsc_wait(en->events, RELAY_NEVER_US);
        }
    }
}

// ---- The engine thread

// What has come in; false where there is more than what one look may take or say.
static bool take_commands(relay_engine *en) {
    relay_inbox_command c;
    for (uint32_t n = 0; n < en->max_sequences && en->n_reserved < en->max_sequences; n++) {
        if (!relay_inbox_take(en->inbox, &c)) return true;
        if (c.request != NULL) relay_scheduler_add(en->scheduler, c.id, c.request, c.arrival, en->now);
        if (c.is_cancelled) {
            relay_scheduler_cancel(en->scheduler, c.id, en->now);
        } else if (c.credit != 0) {
            relay_scheduler_add_credit(en->scheduler, c.id, c.credit);
        }
    }
    return false;
}

// Those that have come in; false where there may be more than one look answers.
static bool answer_lease_calls(relay_engine *en) {
    relay_lease_call *call;
    for (uint32_t n = 0; n < LEASE_CALLS_A_LOOK; n++) {
        if (!relay_mpsc_pop(en->lease_calls, &call)) return true;
        if (call->is_fork) {
            call->n_tokens = relay_scheduler_fork(en->scheduler, call->from, call->to, call->lease_us, en->now);
        } else {
            call->found = relay_scheduler_release(en->scheduler, call->from);
        }
        relay_event *slot = relay_spsc_reserve(en->events);
        RELAY_ASSERT(slot != NULL);
        *slot = (relay_event){.kind = RELAY_EVENT_LEASE, .lease_call = call};
        en->n_reserved++;
    }
    return false;
}

// False where nobody can move.
static bool run_step(relay_engine *en) {
    relay_mono_us began = en->now;
    if (!relay_scheduler_fill(en->scheduler, en->step, en->now)) return false;
    tell_state(en); // who waits for this step, maybe for long, is running now
    en->opts.model_ops->submit(en->opts.model, en->step);
    en->opts.model_ops->complete(en->opts.model, en->results);
    en->now = relay_mono_now();
    relay_scheduler_take(en->scheduler, en->step, en->results, en->now);
    relay_engine_metrics_step(&en->metrics, en->step->n_rows, en->now - began);
    return true;
}

static void sleep_until_called(relay_engine *en) {
#ifndef NDEBUG
    RELAY_ASSERT(relay_scheduler_check(en->scheduler) == NULL);
#endif
    atomic_store(&en->is_asleep, true);
    relay_inbox_wait(en->inbox, relay_scheduler_next_expiry(en->scheduler));
    atomic_store(&en->is_asleep, false);
}

static void *run_engine(void *arg) {
    relay_engine *en = arg;
    while (!atomic_load(&en->is_stopping)) {
        wait_for_room(en);
        en->now = relay_mono_now();
        take_commands(en);
        bool has_answered = answer_lease_calls(en);
        relay_scheduler_expire(en->scheduler, en->now);
        if (atomic_exchange(&en->has_settled_constraints, false)) relay_scheduler_settle_constraints(en->scheduler);
        bool has_moved = run_step(en);
        publish(en);
        tell_state(en);
        if (!has_moved && has_answered && !relay_scheduler_has_more(en->scheduler)) sleep_until_called(en);
    }
    // The inbox is closed: what it still holds is all there is.
    bool is_empty;
    do {
        wait_for_room(en);
        en->now = relay_mono_now();
        is_empty = take_commands(en);
        publish(en);
    } while (!is_empty);
    do {
        wait_for_room(en);
        is_empty = answer_lease_calls(en);
        publish(en);
    } while (!is_empty);
    wait_for_room(en);
    relay_scheduler_end_all(en->scheduler, en->now);
    publish(en);
    tell_state(en);
    atomic_store(&en->is_done, true);
    relay_spsc_wake(en->events);
    return NULL;
}

// ---- Create

static relay_code check_opts(const relay_engine_opts *o, relay_err *e) {
    struct {
        const char *name;
        uint64_t value, min, max;
    } checks[] = {
        {"n_groups", o->n_groups, 1, RELAY_MAX_KV_GROUPS},
        {"vocab_size", o->vocab_size, 1, 1U << 24},
        {"max_context", o->max_context, 2, 1U << 28},
        {"max_running", o->max_running, 1, 1U << 16},
        {"token_budget", o->token_budget, o->max_running, 1U << 24},
        {"max_queued_requests", o->max_queued_requests, 1, 1U << 16},
        {"max_queued_tokens", o->max_queued_tokens, 1, UINT64_C(1) << 48},
    };
    for (uint32_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (checks[i].value < checks[i].min || checks[i].value > checks[i].max) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is %" PRIu64 "; it must be %" PRIu64 " to %" PRIu64,
                              checks[i].name, checks[i].value, checks[i].min, checks[i].max);
        }
    }
    if ((uint64_t)o->max_running * o->max_context > UINT32_MAX) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "max_running times max_context is %" PRIu64 "; at most %u fit",
                          (uint64_t)o->max_running * o->max_context, UINT32_MAX);
    }
    for (uint32_t g = 0; g < o->n_groups; g++) {
        if (o->groups[g].n_blocks == 0 || o->groups[g].n_blocks > 1U << 28) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "KV group %u has %u blocks; it must have 1 to %u", g,
                              o->groups[g].n_blocks, 1U << 28);
        }
    }
    return RELAY_OK;
}

static uint32_t round_up_to_power_of_two(uint32_t n) {
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

static uint64_t random_u64(void) {
    uint64_t x;
    relay_ident_random(&x, sizeof x);
    return x;
}

// Everything but the threads.
static relay_engine *create_parts(const relay_engine_opts *o) {
    relay_engine *en = relay_calloc(1, sizeof *en);
    en->opts = *o;
    en->max_sequences = o->max_running + o->max_queued_requests;
    en->inbox = relay_inbox_create(&(relay_inbox_opts){
        .max_sequences = en->max_sequences,
        .max_queued_requests = o->max_queued_requests,
        .max_queued_tokens = o->max_queued_tokens,
    });
    pthread_mutex_init(&en->lease_lock, NULL);
    en->lease_calls = relay_mpsc_create(MAX_LEASE_CALLS, sizeof(relay_lease_call *));
    relay_scheduler_opts so = {
        .n_groups = o->n_groups,
        .vocab_size = o->vocab_size,
        .max_context = o->max_context,
        .max_running = o->max_running,
        .max_sequences = en->max_sequences,
        .token_budget = o->token_budget,
        .prompt_chunk = o->prompt_chunk,
        .step_target = o->step_target,
        .hash_seed = random_u64(),
        .max_leases = o->max_leases,
        .emit = on_event,
        .emit_arg = en,
    };
    for (uint32_t g = 0; g < o->n_groups; g++) {
        so.n_blocks[g] = o->groups[g].n_blocks;
        so.window[g] = o->groups[g].window;
    }
    en->scheduler = relay_scheduler_create(&so);
    relay_step_limits limits = relay_scheduler_step_limits(en->scheduler);
    en->step = relay_step_create(&limits);
    o->model_ops->prepare(o->model, en->step);
    en->results = relay_calloc(limits.max_samples, sizeof en->results[0]);
    // An end for each answer that was cancelled, of which the last look may take all there are, and one for each that
    // expires or is drained; a start, a token and an end for each in the batch, and the scores.
    en->max_step_events =
        3 * en->max_sequences + 3 * o->max_running + RELAY_MAX_SCORED_ROWS + LEASE_CALLS_A_LOOK + MAX_TOLD_A_STEP;
    en->events =
        relay_spsc_create(round_up_to_power_of_two(en->max_step_events + en->max_step_events / 2), sizeof(relay_event));
    en->own_metrics = o->metrics == NULL ? relay_metrics_create() : NULL;
    relay_engine_metrics_init(&en->metrics, o->metrics != NULL ? o->metrics : en->own_metrics);
    en->snapshot = relay_snapshot_create(sizeof(told));
    sem_init(&en->room, 0, 0);
    en->now = relay_mono_now();
    tell_state(en);
    return en;
}

static void destroy_parts(relay_engine *en) {
    relay_inbox_destroy(en->inbox);
    relay_mpsc_destroy(en->lease_calls);
    pthread_mutex_destroy(&en->lease_lock);
    relay_scheduler_destroy(en->scheduler);
    relay_step_destroy(en->step);
    free(en->results);
    relay_spsc_destroy(en->events);
    relay_metrics_destroy(en->own_metrics);
    relay_snapshot_destroy(en->snapshot);
    sem_destroy(&en->room);
    free(en);
}

// The events of a publisher that was started without an engine are none.
static void end_publisher(relay_engine *en) {
    atomic_store(&en->is_done, true);
    relay_spsc_wake(en->events);
    pthread_join(en->publisher_thread, NULL);
}

relay_code relay_engine_create(relay_engine **out, const relay_engine_opts *opts, relay_err *e) {
    *out = NULL;
    relay_code code = check_opts(opts, e);
    if (code != RELAY_OK) return code;
    relay_engine *en = create_parts(opts);
    if (pthread_create(&en->publisher_thread, NULL, run_publisher, en) != 0) {
        destroy_parts(en);
        return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "the engine's publisher thread could not be started");
    }
    if (pthread_create(&en->engine_thread, NULL, run_engine, en) != 0) {
        end_publisher(en);
        destroy_parts(en);
        return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "the engine thread could not be started");
    }
    pthread_setname_np(en->publisher_thread, "relay-publish");
    pthread_setname_np(en->engine_thread, "relay-engine");
    *out = en;
    return RELAY_OK;
}

// ---- Any thread

relay_code relay_engine_submit(relay_engine *en, relay_request *r, uint64_t *key, relay_err *e) {
    relay_code code = relay_scheduler_check_request(en->scheduler, r, e);
    if (code == RELAY_OK) code = relay_inbox_submit(en->inbox, r, key, e);
    if (code == RELAY_RESOURCE_EXHAUSTED) relay_counter_add(en->metrics.rejected, 1);
    return code;
}

void relay_engine_cancel(relay_engine *en, uint64_t key) {
    relay_inbox_cancel(en->inbox, key);
}

void relay_engine_add_credit(relay_engine *en, uint64_t key, uint32_t tokens) {
    relay_inbox_add_credit(en->inbox, key, tokens);
}

relay_code relay_engine_lease(relay_engine *en, relay_lease_call *call, relay_err *e) {
    relay_code code = RELAY_OK;
    pthread_mutex_lock(&en->lease_lock);
    if (en->refuses_leases || relay_inbox_is_closed(en->inbox)) {
        code = relay_fail(e, RELAY_UNAVAILABLE, "the model service is draining");
    } else if (!relay_mpsc_push(en->lease_calls, &call)) {
        code = relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "%d calls about leases wait already", MAX_LEASE_CALLS);
        if (e != NULL) e->retry_after_ms = MIN_RETRY_MS;
    }
    pthread_mutex_unlock(&en->lease_lock);
    if (code == RELAY_OK) relay_inbox_wake(en->inbox);
    return code;
}

void relay_engine_get_load(const relay_engine *en, relay_engine_load *out) {
    told t;
    relay_snapshot_read(en->snapshot, &t);
    *out = t.load;
    out->tokens_per_second = relay_token_rate_at(&t.rate, relay_mono_now());
    out->is_draining = relay_inbox_is_closed(en->inbox);
}

bool relay_engine_is_alive(const relay_engine *en, int64_t limit_us) {
    int64_t since = atomic_load(&en->progress_at);
    if (atomic_load(&en->is_asleep)) {
        // Asleep with nothing to do is alive; asleep though there is something, it should be waking up.
        relay_mono_us pending_since = relay_inbox_pending_since(en->inbox);
        if (pending_since == RELAY_NEVER_US) return true;
        if (pending_since > since) since = pending_since;
    }
    return relay_mono_now() - since <= limit_us;
}

void relay_engine_settle_constraints(relay_engine *en) {
    atomic_store(&en->has_settled_constraints, true);
    relay_inbox_wake(en->inbox);
}

void relay_engine_drain(relay_engine *en) {
    relay_inbox_close(en->inbox);
}

void relay_engine_stop(relay_engine *en) {
    if (en->is_joined) return;
    pthread_mutex_lock(&en->lease_lock);
    en->refuses_leases = true; // what comes before is answered
    pthread_mutex_unlock(&en->lease_lock);
    relay_inbox_close(en->inbox);
    atomic_store(&en->is_stopping, true);
    relay_inbox_wake(en->inbox);
    pthread_join(en->engine_thread, NULL);
    pthread_join(en->publisher_thread, NULL);
    en->is_joined = true;
}

const char *relay_engine_check(const relay_engine *en) {
    return relay_scheduler_check(en->scheduler);
}

void relay_engine_destroy(relay_engine *en) {
    if (en == NULL) return;
    relay_engine_stop(en);
    destroy_parts(en);
}
