#include "tests/model_svc/engine_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/status.h"

enum { PATIENCE_SECONDS = 20 };

const relay_engine_opts engine_roomy = {
    .groups = {{.block_bytes = 1024, .n_blocks = 4096}},
    .n_groups = 1,
    .vocab_size = FAKE_VOCAB,
    .max_context = 4096,
    .max_running = 32,
    .token_budget = 128,
    .prompt_chunk = 64,
    .max_leases = 8,
    .max_queued_requests = 128,
    .max_queued_tokens = 100000,
};

static void note(engine_world *w, bool holds, const char *what) {
    if (!holds && w->error == NULL) w->error = what;
}

static void take_event(engine_world *w, const relay_event *ev) {
    if (ev->kind == RELAY_EVENT_LEASE) {
        *(bool *)ev->lease_call->owner = true;
        return;
    }
    engine_request *r = ev->request->owner;
    note(w, ev->step >= w->last_step, "events of an earlier step came after those of a later one");
    w->last_step = ev->step;
    note(w, !r->is_ended, "an event came after the last one");
    switch (ev->kind) {
    case RELAY_EVENT_STARTED:
        note(w, !r->is_started && r->n_drawn == 0, "a start came twice or after a token");
        r->is_started = true;
        break;
    case RELAY_EVENT_SCORE:
        note(w, r->is_started && r->n_drawn == 0, "a score came before the start or after a token");
        note(w, ev->position == ++r->n_scored, "scores are not in order");
        break;
    case RELAY_EVENT_TOKEN:
        note(w, r->is_started, "a token came before the start");
        if (r->n_drawn == 0) r->first_token_in = ev->step;
        r->drawn[r->n_drawn++] = ev->sample.token_id;
        break;
    case RELAY_EVENT_LEASE:
        break;
    case RELAY_EVENT_FINISHED:
    case RELAY_EVENT_FAILED:
        r->is_ended = true;
        r->ended_in = ev->step;
        r->last = *ev;
        w->n_ended++;
        break;
    }
}

static void on_publish(void *arg, const relay_event *events, uint32_t n) {
    engine_world *w = arg;
    pthread_mutex_lock(&w->mutex);
    while (w->holds_publisher)
        pthread_cond_wait(&w->changed, &w->mutex);
    for (uint32_t i = 0; i < n; i++)
        take_event(w, &events[i]);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

// In the middle of a step, on the engine's thread.
static void on_step(void *arg, const relay_step *step) {
    engine_world *w = arg;
    pthread_mutex_lock(&w->mutex);
    w->n_steps++;
    note(w, w->n_steps == step->number, "a step's number is not its place among the steps");
    pthread_cond_broadcast(&w->changed);
    while (w->n_steps > w->last_free)
        pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

void engine_world_init(engine_world *w, const relay_engine_opts *opts) {
    *w = (engine_world){.opts = *opts, .last_free = UINT64_MAX};
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    uint32_t n_blocks[RELAY_MAX_KV_GROUPS];
    for (uint32_t g = 0; g < opts->n_groups; g++)
        n_blocks[g] = opts->groups[g].n_blocks;
    fake_model_init(&w->model, opts->n_groups, n_blocks);
    w->model.on_step = on_step;
    w->model.on_step_arg = w;
    w->opts.model_ops = &fake_model_ops;
    w->opts.model = &w->model;
    w->opts.publish = on_publish;
    w->opts.publish_arg = w;
    relay_err e;
    if (relay_engine_create(&w->engine, &w->opts, &e) != RELAY_OK) fail_msg("%s", e.message);
}

void engine_world_fini(engine_world *w) {
    relay_engine_stop(w->engine);
    const char *why = relay_engine_check(w->engine);
    if (why != NULL) fail_msg("%s", why);
    relay_engine_destroy(w->engine);
    if (w->error != NULL) fail_msg("%s", w->error);
    if (w->model.error != NULL) fail_msg("%s", w->model.error);
    fake_model_fini(&w->model);
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->changed);
}

engine_request *engine_request_create(engine_world *w, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed) {
    engine_request *r = relay_calloc(1, sizeof *r);
    r->world = w;
    r->ids = relay_calloc(n_prompt, sizeof r->ids[0]);
    r->drawn = relay_calloc(max_new_tokens, sizeof r->drawn[0]);
    fake_continue(r->ids, 0, n_prompt, seed);
    r->request = (relay_request){
        .owner = r,
        .token_ids = r->ids,
        .n_prompt = n_prompt,
        .n_tokens = n_prompt,
        .n_sequences = 1,
        .tenant = "",
        .sampling = {.top_p = 1, .repetition_penalty = 1, .seed = seed},
        .max_new_tokens = max_new_tokens,
        .deadline = RELAY_NEVER_US,
        .time_limit_at = RELAY_NEVER_US,
        .initial_credit = RELAY_UNLIMITED_CREDIT,
        .received_at = relay_mono_now(),
    };
    return r;
}

void engine_request_destroy(engine_request *r) {
    free(r->ids);
    free(r->drawn);
    free(r);
}

void engine_requests_destroy(engine_request **r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        engine_request_destroy(r[i]);
}

relay_code engine_request_submit(engine_request *r, relay_err *e) {
    return relay_engine_submit(r->world->engine, &r->request, &r->key, e);
}

engine_request *engine_submit_new(engine_world *w, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed) {
    engine_request *r = engine_request_create(w, n_prompt, max_new_tokens, seed);
    relay_err e;
    if (engine_request_submit(r, &e) != RELAY_OK) fail_msg("%s", e.message);
    return r;
}

relay_engine_load engine_load(engine_world *w) {
    relay_engine_load load;
    relay_engine_get_load(w->engine, &load);
    return load;
}

uint32_t engine_used_blocks(engine_world *w) {
    relay_engine_load load = engine_load(w);
    return load.total_blocks - load.free_blocks - load.cached_blocks;
}

// With the mutex: waits for a change; false when patience is at its end.
static bool wait_for_change(engine_world *w, const struct timespec *until) {
    return pthread_cond_timedwait(&w->changed, &w->mutex, until) == 0;
}

static struct timespec patience(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += PATIENCE_SECONDS;
    return t;
}

void engine_let_run(engine_world *w, uint64_t n) {
    pthread_mutex_lock(&w->mutex);
    // A held step has begun and is the first to go on.
    uint64_t n_done = w->n_steps > w->last_free ? w->n_steps - 1 : w->n_steps;
    w->last_free = n == UINT64_MAX ? UINT64_MAX : n_done + n;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

void engine_hold_publisher(engine_world *w, bool holds) {
    pthread_mutex_lock(&w->mutex);
    w->holds_publisher = holds;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

void engine_wait_for_held_step(engine_world *w) {
    struct timespec until = patience();
    pthread_mutex_lock(&w->mutex);
    while (w->n_steps <= w->last_free && wait_for_change(w, &until)) {
    }
    bool is_held = w->n_steps > w->last_free;
    pthread_mutex_unlock(&w->mutex);
    if (!is_held) fail_msg("no step came to be held");
}

void engine_wait_for_tokens(engine_request *r, uint32_t n) {
    struct timespec until = patience();
    pthread_mutex_lock(&r->world->mutex);
    while (r->n_drawn < n && !r->is_ended && wait_for_change(r->world, &until)) {
    }
    bool has = r->n_drawn >= n;
    pthread_mutex_unlock(&r->world->mutex);
    if (!has) fail_msg("%u tokens did not come", n);
}

bool engine_ends(engine_request *r) {
    struct timespec until = patience();
    pthread_mutex_lock(&r->world->mutex);
    while (!r->is_ended && wait_for_change(r->world, &until)) {
    }
    bool is_ended = r->is_ended;
    pthread_mutex_unlock(&r->world->mutex);
    return is_ended;
}

void engine_wait_for_end(engine_request *r) {
    if (!engine_ends(r)) fail_msg("a request did not end");
}

void engine_wait_until_idle(engine_world *w) {
    for (relay_mono_us end = relay_mono_now() + PATIENCE_SECONDS * 1000000; relay_mono_now() < end;) {
        relay_engine_load l = engine_load(w);
        if (l.running == 0 && l.waiting == 0 && l.free_blocks + l.cached_blocks == l.total_blocks) return;
        usleep(200);
    }
    fail_msg("the engine did not become idle");
}

void engine_expect_finish(const engine_request *r, relay_finish why) {
    assert_true(r->is_ended);
    assert_int_equal(r->last.kind, RELAY_EVENT_FINISHED);
    assert_int_equal(r->last.finish, why);
    engine_expect_own_ids(r);
}

bool engine_has_own_ids(const engine_request *r) {
    uint32_t n = r->request.n_tokens + r->n_drawn;
    uint32_t *ids = relay_calloc(n, sizeof ids[0]);
    memcpy(ids, r->ids, r->request.n_tokens * sizeof ids[0]);
    fake_continue(ids, r->request.n_tokens, r->n_drawn, r->request.sampling.seed);
    bool is_same = memcmp(ids + r->request.n_tokens, r->drawn, r->n_drawn * sizeof ids[0]) == 0;
    free(ids);
    return is_same;
}

void engine_expect_own_ids(const engine_request *r) {
    assert_true(engine_has_own_ids(r));
}
