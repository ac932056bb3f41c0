#include "tests/model_svc/scheduler_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/status.h"

const relay_scheduler_opts world_roomy = {
    .n_groups = 2,
    .n_blocks = {4096, 4096},
    .vocab_size = FAKE_VOCAB,
    .max_context = 4096,
    .max_running = 32,
    .max_sequences = 64,
    .token_budget = 128,
    .prompt_chunk = 64,
    .max_leases = 8,
};

static void note_drawn(world_request *r, uint32_t index, uint32_t token_id) {
    if (r->n_all_drawn == NULL) return;
    assert_true(r->n_all_drawn[index] < r->request.max_new_tokens);
    r->all_drawn[index * r->request.max_new_tokens + r->n_all_drawn[index]++] = token_id;
}

static void on_event(void *arg, const relay_sequence *q, const relay_event *ev) {
    world *w = arg;
    world_request *r = ev->request->owner;
    assert_ptr_equal(ev->request, &r->request);
    assert_true(r->is_live);
    assert_int_equal(q->id, r->id);
    uint32_t index = ev->index - r->request.sampling.sequence_index;
    assert_true(index < r->request.n_sequences);
    switch (ev->kind) {
    case RELAY_EVENT_STARTED:
        if (index > 0) {
            assert_true(r->is_started);
            break;
        }
        assert_false(r->is_started);
        r->is_started = true;
        r->started_in = ev->step;
        r->cached_tokens = ev->cached_tokens;
        break;
    case RELAY_EVENT_SCORE:
        assert_true(r->is_started && r->n_drawn == 0);
        assert_int_equal(ev->position, ++r->n_scored);
        assert_int_equal(ev->sample.token_id, r->request.token_ids[ev->position]);
        break;
    case RELAY_EVENT_TOKEN:
        assert_true(r->is_started);
        note_drawn(r, index, ev->sample.token_id);
        if (index > 0) break;
        assert_true(r->request.n_tokens - r->request.n_prompt + r->n_drawn < r->request.max_new_tokens);
        if (r->n_drawn == 0) r->first_token_in = ev->step;
        r->drawn[r->n_drawn++] = ev->sample.token_id;
        break;
    case RELAY_EVENT_LEASE:
        fail_msg("the scheduler speaks of leases");
        break;
    case RELAY_EVENT_FINISHED:
        if (index == 0) {
            assert_int_equal(ev->output_tokens, r->request.n_tokens - r->request.n_prompt + r->n_drawn);
        }
        if (r->finishes != NULL) {
            assert_int_equal(r->finishes[index], RELAY_FINISH_NONE);
            r->finishes[index] = ev->finish;
        }
        if (!ev->is_last) {
            assert_true(r->request.n_sequences > 1);
            break;
        }
        // fallthrough
    case RELAY_EVENT_FAILED:
        assert_true(ev->is_last);
        r->is_live = false;
        r->ended_in = ev->step;
        r->last = *ev;
        w->n_live--;
        break;
    }
}

void world_init(world *w, const relay_scheduler_opts *opts) {
    *w = (world){.opts = *opts};
    w->opts.emit = on_event;
    w->opts.emit_arg = w;
    w->scheduler = relay_scheduler_create(&w->opts);
    relay_step_limits limits = relay_scheduler_step_limits(w->scheduler);
    w->step = relay_step_create(&limits);
    w->results = relay_calloc(limits.max_samples, sizeof w->results[0]);
    fake_model_init(&w->model, opts->n_groups, opts->n_blocks);
    memcpy(w->model.window, opts->window, sizeof w->model.window);
    fake_model_ops.prepare(&w->model, w->step);
}

void world_fini(world *w) {
    relay_scheduler_destroy(w->scheduler);
    relay_step_destroy(w->step);
    free(w->results);
    fake_model_fini(&w->model);
}

world_request *world_request_create(uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed) {
    world_request *r = relay_calloc(1, sizeof *r);
    r->ids = relay_calloc(n_prompt, sizeof r->ids[0]);
    r->drawn = relay_calloc(max_new_tokens, sizeof r->drawn[0]);
    r->last.kind = RELAY_EVENT_TOKEN;
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
    };
    return r;
}

void world_request_set_answers(world_request *r, uint32_t n) {
    r->request.n_sequences = n;
    r->all_drawn = relay_calloc((uint64_t)n * r->request.max_new_tokens, sizeof r->all_drawn[0]);
    r->n_all_drawn = relay_calloc(n, sizeof r->n_all_drawn[0]);
    r->finishes = relay_calloc(n, sizeof r->finishes[0]);
}

void world_request_destroy(world_request *r) {
    free(r->ids);
    free(r->drawn);
    free(r->all_drawn);
    free(r->n_all_drawn);
    free(r->finishes);
    free(r);
}

void world_requests_destroy(world_request **r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        world_request_destroy(r[i]);
}

void world_add(world *w, world_request *r, uint32_t id) {
    relay_err e;
    assert_int_equal(relay_scheduler_check_request(w->scheduler, &r->request, &e), RELAY_OK);
    relay_scheduler_state state = world_state(w);
    r->id = id;
    r->is_live = true;
    r->added_after = state.step;
    r->request.received_at = w->now;
    w->n_live++;
    w->n_answers += r->request.n_sequences;
    relay_scheduler_add(w->scheduler, id, &r->request, w->arrivals++, w->now);
}

world_request *world_add_new(world *w, uint32_t id, uint32_t n_prompt, uint32_t max_new_tokens) {
    world_request *r = world_request_create(n_prompt, max_new_tokens, 100 + id);
    world_add(w, r, id);
    return r;
}

relay_scheduler_state world_state(const world *w) {
    relay_scheduler_state s;
    relay_scheduler_get_state(w->scheduler, &s);
    return s;
}

static void check(world *w) {
    const char *why = relay_scheduler_check(w->scheduler);
    if (why != NULL) fail_msg("%s", why);
    if (w->model.error != NULL) fail_msg("%s", w->model.error);
    relay_scheduler_state state = world_state(w);
    assert_true(state.n_waiting + state.n_running >= w->n_live);
    if (w->n_answers == w->arrivals) assert_int_equal(state.n_waiting + state.n_running, w->n_live);
    assert_true(state.unused_slots <= (uint64_t)(RELAY_BLOCK_TOKENS - 1) * state.n_running * w->opts.n_groups);
}

bool world_step(world *w) {
    w->now += 1000;
    relay_scheduler_expire(w->scheduler, w->now);
    bool has_rows = relay_scheduler_fill(w->scheduler, w->step, w->now);
    if (has_rows) {
        assert_true(w->step->n_rows <= w->opts.token_budget);
        w->now += w->step_us + w->row_us * w->step->n_rows;
        fake_model_ops.submit(&w->model, w->step);
        fake_model_ops.complete(&w->model, w->results);
        relay_scheduler_take(w->scheduler, w->step, w->results, w->now);
    }
    check(w);
    return has_rows;
}

void world_steps(world *w, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        assert_true(world_step(w));
}

void world_run(world *w, uint32_t max_steps) {
    for (uint32_t i = 0; i < max_steps && w->n_live > 0; i++)
        assert_true(world_step(w));
    assert_int_equal(w->n_live, 0);
}

static void expect_own_ids(const world_request *r, uint32_t index, const uint32_t *drawn, uint32_t n_drawn) {
    uint32_t *ids = relay_calloc(r->request.n_tokens + n_drawn, sizeof ids[0]);
    memcpy(ids, r->ids, r->request.n_tokens * sizeof ids[0]);
    uint64_t seed = fake_seed(r->request.sampling.seed, r->request.sampling.sequence_index + index);
    fake_continue(ids, r->request.n_tokens, n_drawn, seed);
    assert_memory_equal(ids + r->request.n_tokens, drawn, n_drawn * sizeof ids[0]);
    free(ids);
}

void world_expect_own_ids(const world_request *r) {
    expect_own_ids(r, 0, r->drawn, r->n_drawn);
    for (uint32_t i = 0; r->n_all_drawn != NULL && i < r->request.n_sequences; i++)
        expect_own_ids(r, i, r->all_drawn + i * r->request.max_new_tokens, r->n_all_drawn[i]);
}

void world_expect_finish(const world_request *r, relay_finish why) {
    assert_false(r->is_live);
    assert_int_equal(r->last.kind, RELAY_EVENT_FINISHED);
    assert_int_equal(r->last.finish, why);
}
