#include "model_svc/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/model_svc/engine_world.h"

static const relay_engine_opts roomy = {
    .groups = {{.block_bytes = 1024, .n_blocks = 4096}},
    .n_groups = 1,
    .max_context = 4096,
    .max_running = 32,
    .token_budget = 128,
    .prompt_chunk = 64,
    .max_queued_requests = 128,
    .max_queued_tokens = 100000,
};

static relay_engine_load load_of(engine_world *w) {
    relay_engine_load load;
    relay_engine_get_load(w->engine, &load);
    return load;
}

static bool is_idle(const relay_engine_load *l) {
    return l->running == 0 && l->waiting == 0 && l->used_blocks == 0;
}

static engine_request *submit_new(engine_world *w, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed) {
    engine_request *r = engine_request_create(w, n_prompt, max_new_tokens, seed);
    relay_err e;
    if (engine_request_submit(r, &e) != RELAY_OK) fail_msg("%s", e.message);
    return r;
}

static void destroy_all(engine_request **r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        engine_request_destroy(r[i]);
}

static void expect_finish(const engine_request *r, relay_finish why) {
    assert_true(r->is_ended);
    assert_int_equal(r->last.kind, RELAY_EVENT_FINISHED);
    assert_int_equal(r->last.finish, why);
    engine_expect_own_ids(r);
}

// ---- Serving

static void a_request_is_served_to_its_end(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    engine_request *r = submit_new(&w, 100, 50, 1);
    engine_wait_for_end(r);
    expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(r->n_drawn, 50);
    assert_int_equal(r->last.output_tokens, 50);
    engine_wait_until(&w, is_idle);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

static void a_newcomer_has_its_first_token_while_the_others_go_on(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    engine_let_run(&w, 0);
    engine_request *r[9];
    for (uint32_t i = 0; i < 8; i++)
        r[i] = submit_new(&w, 20, 200, i);
    engine_wait_for_held_step(&w);
    engine_let_run(&w, 10);
    engine_wait_for_held_step(&w);
    uint64_t held = w.n_steps;
    r[8] = submit_new(&w, 150, 10, 8); // three chunks
    engine_let_run(&w, 4);
    engine_wait_for_tokens(r[8], 1);
    assert_true(r[8]->first_token_in <= held + 2 + 3);
    engine_wait_for_held_step(&w);
    assert_int_equal(load_of(&w).running, 9);
    for (uint32_t i = 0; i < 8; i++)
        assert_false(r[i]->is_ended);
    engine_let_run(&w, UINT64_MAX);
    for (uint32_t i = 0; i < 9; i++)
        engine_wait_for_end(r[i]);
    for (uint32_t i = 0; i < 9; i++)
        expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
    engine_world_fini(&w);
    destroy_all(r, 9);
}

static void credit_pauses_and_resumes(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    engine_request *r = engine_request_create(&w, 20, 30, 1);
    relay_err e;
    r->request.initial_credit = 3;
    assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
    engine_wait_for_tokens(r, 3);
    usleep(20000);
    assert_int_equal(r->n_drawn, 3);
    assert_int_equal(load_of(&w).used_blocks, 2);
    relay_engine_add_credit(w.engine, r->key, 4);
    engine_wait_for_tokens(r, 7);
    usleep(20000);
    assert_int_equal(r->n_drawn, 7);
    relay_engine_add_credit(w.engine, r->key, RELAY_UNLIMITED_CREDIT);
    engine_wait_for_end(r);
    expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

// ---- Cancel, counted in steps

typedef enum cancel_place { IN_QUEUE, IN_PROMPT, DECODING, PAUSED, N_CANCEL_PLACES } cancel_place;

static void cancel_frees_its_blocks_within_two_steps(void **state) {
    for (cancel_place place = 0; place < N_CANCEL_PLACES; place++) {
        engine_world w;
        relay_engine_opts opts = roomy;
        opts.max_running = place == IN_QUEUE ? 1 : 4;
        opts.token_budget = opts.prompt_chunk = 32;
        engine_world_init(&w, &opts);
        engine_let_run(&w, 0);
        engine_request *other = submit_new(&w, 1, 1000, 1);
        engine_wait_for_held_step(&w);
        engine_request *r = engine_request_create(&w, place == IN_PROMPT ? 1000 : 40, 500, 2);
        relay_err e;
        if (place == PAUSED) r->request.initial_credit = 1;
        assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
        engine_let_run(&w, 5);
        engine_wait_for_held_step(&w);
        if (place == DECODING || place == PAUSED) engine_wait_for_tokens(r, 1);
        assert_int_equal(load_of(&w).running, place == IN_QUEUE ? 1 : 2);
        assert_int_equal(load_of(&w).waiting, place == IN_QUEUE ? 1 : 0);
        uint64_t cancelled_in = w.n_steps;
        relay_engine_cancel(w.engine, r->key);
        relay_engine_cancel(w.engine, r->key);
        engine_let_run(&w, 2);
        engine_wait_for_end(r);
        engine_wait_for_held_step(&w);
        expect_finish(r, RELAY_FINISH_CANCELLED);
        assert_true(r->ended_in <= cancelled_in + 1);
        // The other has drawn fewer than 16 ids: one block is its own, and no other is left.
        assert_int_equal(load_of(&w).used_blocks, 1);
        assert_int_equal(load_of(&w).waiting, 0);
        relay_engine_cancel(w.engine, other->key);
        engine_let_run(&w, UINT64_MAX);
        engine_wait_for_end(other);
        engine_wait_until(&w, is_idle);
        relay_engine_cancel(w.engine, r->key); // long gone
        engine_world_fini(&w);
        engine_request_destroy(other);
        engine_request_destroy(r);
    }
}

// ---- Overload

typedef struct submitter {
    engine_world *world;
    pthread_t thread;
    engine_request *requests[10];
    uint32_t n_accepted, n_refused, n_other;
} submitter;

static void *submit_ten(void *arg) {
    submitter *s = arg;
    for (uint32_t i = 0; i < 10; i++) {
        relay_err e = {0};
        relay_code code = engine_request_submit(s->requests[i], &e);
        if (code == RELAY_OK) {
            s->n_accepted++;
        } else if (code == RELAY_RESOURCE_EXHAUSTED && e.retry_after_ms >= 100 && strstr(e.message, "queue is full")) {
            s->n_refused++;
            engine_request_destroy(s->requests[i]);
            s->requests[i] = NULL;
        } else {
            s->n_other++;
        }
    }
    return NULL;
}

// While one step is held for all this time, so that a refusal cannot have waited for its end.
static void a_full_queue_refuses_at_once_and_exactly(void **state) {
    enum { N_SUBMITTERS = 32 };
    engine_world w;
    relay_engine_opts opts = roomy;
    opts.max_queued_requests = 100;
    relay_metrics *metrics = opts.metrics = relay_metrics_create();
    engine_world_init(&w, &opts);
    engine_let_run(&w, 0);
    engine_request *first = submit_new(&w, 10, 5, 1);
    engine_wait_for_held_step(&w);
    submitter s[N_SUBMITTERS];
    for (uint32_t i = 0; i < N_SUBMITTERS; i++) {
        s[i] = (submitter){.world = &w};
        for (uint32_t k = 0; k < 10; k++)
            s[i].requests[k] = engine_request_create(&w, 10, 5, i * 10 + k);
        assert_int_equal(pthread_create(&s[i].thread, NULL, submit_ten, &s[i]), 0);
    }
    uint32_t n_accepted = 0, n_refused = 0;
    for (uint32_t i = 0; i < N_SUBMITTERS; i++) {
        pthread_join(s[i].thread, NULL);
        n_accepted += s[i].n_accepted;
        n_refused += s[i].n_refused;
        assert_int_equal(s[i].n_other, 0);
    }
    assert_int_equal(n_accepted, 100);
    assert_int_equal(n_refused, N_SUBMITTERS * 10 - 100);
    assert_int_equal(
        relay_counter_value(relay_metrics_counter(metrics, "relay_rejected_total", "", "cause=\"queue_full\"")),
        n_refused);
    engine_let_run(&w, UINT64_MAX);
    engine_wait_for_end(first);
    for (uint32_t i = 0; i < N_SUBMITTERS; i++) {
        for (uint32_t k = 0; k < 10; k++) {
            if (s[i].requests[k] == NULL) continue;
            engine_wait_for_end(s[i].requests[k]);
            expect_finish(s[i].requests[k], RELAY_FINISH_MAX_NEW_TOKENS);
            engine_request_destroy(s[i].requests[k]);
        }
    }
    engine_world_fini(&w);
    engine_request_destroy(first);
    relay_metrics_destroy(metrics);
}

static void the_queue_is_bounded_in_tokens_too(void **state) {
    engine_world w;
    relay_engine_opts opts = roomy;
    opts.max_queued_tokens = 1000;
    engine_world_init(&w, &opts);
    engine_let_run(&w, 0);
    engine_request *r[4];
    r[0] = submit_new(&w, 10, 5, 1);
    engine_wait_for_held_step(&w);
    r[1] = submit_new(&w, 600, 5, 1);
    r[2] = engine_request_create(&w, 401, 5, 1);
    relay_err e;
    assert_int_equal(engine_request_submit(r[2], &e), RELAY_RESOURCE_EXHAUSTED);
    assert_true(e.retry_after_ms > 0);
    r[3] = submit_new(&w, 400, 5, 1);
    engine_let_run(&w, UINT64_MAX);
    engine_wait_for_end(r[3]);
    engine_wait_for_end(r[1]);
    assert_int_equal(engine_request_submit(r[2], &e), RELAY_OK);
    engine_wait_for_end(r[2]);
    engine_world_fini(&w);
    destroy_all(r, 4);
}

static void what_could_never_fit_stays_the_callers(void **state) {
    engine_world w;
    relay_engine_opts opts = roomy;
    opts.groups[0].n_blocks = 4;
    engine_world_init(&w, &opts);
    engine_request *r = engine_request_create(&w, 64, 5, 1);
    relay_err e;
    assert_int_equal(engine_request_submit(r, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(
        e.message, "prompt_token_ids has 64 ids; at most 63 leave room for one more token (size of the KV pool 64)");
    engine_request_destroy(r);
    engine_world_fini(&w);
}

// ---- Ends

static void a_deadline_wakes_a_sleeping_engine(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    engine_request *r = engine_request_create(&w, 20, 30, 1);
    r->request.initial_credit = 1;
    r->request.deadline = relay_mono_now() + 50000;
    relay_err e;
    assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
    engine_wait_for_end(r);
    assert_true(relay_mono_now() >= r->request.deadline);
    assert_int_equal(r->last.kind, RELAY_EVENT_FAILED);
    assert_int_equal(r->last.code, RELAY_DEADLINE_EXCEEDED);
    engine_wait_until(&w, is_idle);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

static void stopping_it_in_mid_answer_ends_the_step_first(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    engine_request *r = submit_new(&w, 30, 4000, 1); // far from its end
    engine_wait_for_tokens(r, 3);
    relay_engine_stop(w.engine);
    expect_finish(r, RELAY_FINISH_DRAINED);
    assert_int_equal(r->last.output_tokens, r->n_drawn);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

static void draining_it_finishes_what_it_has_and_takes_nothing_new(void **state) {
    engine_world w;
    relay_engine_opts opts = roomy;
    opts.max_running = 2;
    engine_world_init(&w, &opts);
    engine_let_run(&w, 3);
    engine_request *r[5];
    for (uint32_t i = 0; i < 5; i++)
        r[i] = i < 4 ? submit_new(&w, 30, 20, i) : engine_request_create(&w, 30, 20, i);
    engine_wait_for_held_step(&w);
    assert_false(load_of(&w).is_draining);
    relay_engine_drain(w.engine);
    assert_true(load_of(&w).is_draining);
    relay_err e;
    assert_int_equal(engine_request_submit(r[4], &e), RELAY_UNAVAILABLE);
    engine_let_run(&w, UINT64_MAX);
    for (uint32_t i = 0; i < 4; i++)
        engine_wait_for_end(r[i]);
    for (uint32_t i = 0; i < 4; i++)
        expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
    engine_world_fini(&w);
    destroy_all(r, 5);
}

static void stopping_it_gives_every_request_back(void **state) {
    engine_world w;
    relay_engine_opts opts = roomy;
    opts.max_running = 2;
    engine_world_init(&w, &opts);
    engine_request *r[6];
    for (uint32_t i = 0; i < 6; i++) {
        r[i] = engine_request_create(&w, 30, 1000, i);
        r[i]->request.initial_credit = 2; // two hold the lanes, out of credit; the others wait
        relay_err e;
        assert_int_equal(engine_request_submit(r[i], &e), RELAY_OK);
    }
    for (uint32_t i = 0; i < 2; i++)
        engine_wait_for_tokens(r[i], 2);
    relay_engine_stop(w.engine);
    // No waiting here: when stop returns all has been published.
    for (uint32_t i = 0; i < 6; i++) {
        expect_finish(r[i], RELAY_FINISH_DRAINED);
        assert_int_equal(r[i]->is_started, i < 2);
    }
    assert_int_equal(w.n_ended, 6);
    assert_int_equal(load_of(&w).used_blocks, 0);
    relay_err e;
    engine_request *late = engine_request_create(&w, 30, 10, 1);
    assert_int_equal(engine_request_submit(late, &e), RELAY_UNAVAILABLE);
    relay_engine_cancel(w.engine, r[0]->key);
    relay_engine_stop(w.engine); // again: nothing
    engine_request_destroy(late);
    engine_world_fini(&w);
    destroy_all(r, 6);
}

// ---- The publisher and the pulse

static bool has_stalled(engine_world *w) {
    uint64_t step = load_of(w).step;
    usleep(30000);
    return load_of(w).step == step;
}

static void a_publisher_that_does_not_keep_up_holds_the_engine_and_loses_nothing(void **state) {
    engine_world w;
    relay_engine_opts opts = roomy;
    opts.max_running = 4;
    opts.max_queued_requests = 4;
    opts.max_context = 2000;
    engine_world_init(&w, &opts);
    engine_hold_publisher(&w, true);
    engine_request *r[4];
    for (uint32_t i = 0; i < 4; i++)
        r[i] = submit_new(&w, 10, 1500, i);
    while (!has_stalled(&w)) {
    }
    assert_true(load_of(&w).step < 100);
    assert_false(relay_engine_is_alive(w.engine, 10000));
    engine_hold_publisher(&w, false);
    for (uint32_t i = 0; i < 4; i++)
        engine_wait_for_end(r[i]);
    for (uint32_t i = 0; i < 4; i++)
        expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
    assert_true(relay_engine_is_alive(w.engine, 10000));
    engine_world_fini(&w);
    destroy_all(r, 4);
}

static void it_is_alive_unless_a_step_hangs(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    usleep(30000);
    assert_true(relay_engine_is_alive(w.engine, 10000)); // nothing to do for longer than the limit
    engine_let_run(&w, 2);
    engine_request *r = engine_request_create(&w, 10, 8, 1);
    r->request.initial_credit = 5;
    relay_err e;
    assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
    engine_wait_for_held_step(&w);
    usleep(30000);
    assert_false(relay_engine_is_alive(w.engine, 10000));
    assert_true(relay_engine_is_alive(w.engine, 60 * 1000000LL));
    engine_let_run(&w, UINT64_MAX);
    engine_wait_for_tokens(r, 5);
    usleep(30000);
    assert_true(relay_engine_is_alive(w.engine, 10000)); // out of credit is no hang
    relay_engine_add_credit(w.engine, r->key, 3);
    engine_wait_for_end(r);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

static int64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void it_sleeps_when_nobody_can_move(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    engine_request *r = engine_request_create(&w, 10, 8, 1);
    r->request.initial_credit = 2;
    relay_err e;
    for (uint32_t is_paused = 0; is_paused < 2; is_paused++) {
        if (is_paused == 1) {
            assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
            engine_wait_for_tokens(r, 2);
        }
        int64_t before = cpu_us();
        usleep(200000);
        assert_true(cpu_us() - before < 20000);
    }
    engine_world_fini(&w);
    engine_request_destroy(r);
}

// ---- What it tells

static _Atomic bool reader_stops;

static void *read_load(void *arg) {
    engine_world *w = arg;
    uint64_t last_step = 0;
    uintptr_t n_wrong = 0;
    while (!atomic_load(&reader_stops)) {
        relay_engine_load l = load_of(w);
        if (l.free_blocks + l.used_blocks != l.total_blocks || l.step < last_step) n_wrong++;
        if (l.used_slots > (uint64_t)l.used_blocks * 16 || l.used_slots + 15 * l.running < (uint64_t)l.used_blocks * 16)
            n_wrong++;
        if (l.running > 32 || l.kv_touched_bytes < l.used_blocks * 1024ULL) n_wrong++;
        last_step = l.step;
    }
    return (void *)n_wrong;
}

static void the_load_is_that_of_one_moment(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    pthread_t reader;
    atomic_store(&reader_stops, false);
    assert_int_equal(pthread_create(&reader, NULL, read_load, &w), 0);
    engine_request *r[40];
    for (uint32_t i = 0; i < 40; i++)
        r[i] = submit_new(&w, 10 + i, 100, i);
    for (uint32_t i = 0; i < 40; i++)
        engine_wait_for_end(r[i]);
    engine_wait_until(&w, is_idle);
    assert_true(load_of(&w).tokens_per_second > 0);
    assert_true(load_of(&w).kv_touched_bytes > 0);
    atomic_store(&reader_stops, true);
    void *n_wrong;
    pthread_join(reader, &n_wrong);
    assert_null(n_wrong);
    engine_world_fini(&w);
    destroy_all(r, 40);
}

static void expect_metric(relay_metrics *m, const char *line) {
    relay_buf b;
    relay_buf_init(&b, 1 << 20);
    relay_metrics_write(m, &b);
    if (strstr(b.data, line) == NULL) fail_msg("no line \"%s\" in:\n%s", line, b.data);
    relay_buf_fini(&b);
}

static void metrics_say_what_happened(void **state) {
    engine_world w;
    relay_engine_opts opts = roomy;
    opts.metrics = relay_metrics_create();
    engine_world_init(&w, &opts);
    engine_request *r[2];
    r[0] = submit_new(&w, 100, 20, 1);
    engine_wait_for_end(r[0]);
    r[1] = engine_request_create(&w, 50, 20, 2);
    r[1]->request.initial_credit = 3;
    relay_err e;
    assert_int_equal(engine_request_submit(r[1], &e), RELAY_OK);
    engine_wait_for_tokens(r[1], 3);
    while (load_of(&w).step < 24)
        usleep(200);
    expect_metric(opts.metrics, "relay_requests_running 1\n");
    expect_metric(opts.metrics, "relay_kv_cache_blocks 4096\n");
    expect_metric(opts.metrics, "relay_kv_cache_used_blocks 4\n"); // 52 positions
    expect_metric(opts.metrics, "relay_kv_cache_block_tokens 16\n");
    expect_metric(opts.metrics, "relay_kv_unused_slots 12\n");
    expect_metric(opts.metrics, "relay_kv_cache_usage_ratio 0.0009765625\n");
    relay_engine_cancel(w.engine, r[1]->key);
    engine_wait_for_end(r[1]);
    engine_wait_until(&w, is_idle);
    engine_world_fini(&w);
    expect_metric(opts.metrics, "relay_requests_running 0\n");
    expect_metric(opts.metrics, "relay_requests_waiting 0\n");
    expect_metric(opts.metrics, "relay_prefill_tokens_total 150\n");
    expect_metric(opts.metrics, "relay_decode_tokens_total 23\n");
    expect_metric(opts.metrics, "relay_preemptions_total 0\n");
    expect_metric(opts.metrics, "relay_cancelled_total 1\n");
    expect_metric(opts.metrics, "relay_requests_total{code=\"OK\",reason=\"MAX_NEW_TOKENS\"} 1\n");
    expect_metric(opts.metrics, "relay_requests_total{code=\"CANCELLED\",reason=\"CANCELLED\"} 1\n");
    expect_metric(opts.metrics, "relay_time_to_first_token_seconds_count 2\n");
    expect_metric(opts.metrics, "relay_inter_token_latency_seconds_count 21\n");
    expect_metric(opts.metrics, "relay_queue_time_seconds_count 2\n");
    expect_metric(opts.metrics, "relay_e2e_latency_seconds_count 2\n");
    expect_metric(opts.metrics, "relay_step_seconds_count 24\n");
    expect_metric(opts.metrics, "relay_batch_tokens_sum 171\n"); // every id but the last drawn of each was a row
    destroy_all(r, 2);
    relay_metrics_destroy(opts.metrics);
}

static void expect_bad_opts(relay_engine_opts o, const char *message) {
    o.model_ops = &fake_model_ops;
    relay_engine *en = (relay_engine *)&o;
    relay_err e = {0};
    assert_int_equal(relay_engine_create(&en, &o, &e), RELAY_INVALID_ARGUMENT);
    assert_null(en);
    assert_string_equal(e.message, message);
}

static void settings_without_a_bound_are_refused(void **state) {
    relay_engine_opts o = roomy;
    o.max_queued_requests = 0;
    expect_bad_opts(o, "max_queued_requests is 0; it must be 1 to 65536");
    o = roomy;
    o.max_queued_tokens = 0;
    expect_bad_opts(o, "max_queued_tokens is 0; it must be 1 to 281474976710656");
    o = roomy;
    o.token_budget = 31;
    expect_bad_opts(o, "token_budget is 31; it must be 32 to 16777216");
    o = roomy;
    o.max_context = 1;
    expect_bad_opts(o, "max_context is 1; it must be 2 to 268435456");
    o = roomy;
    o.groups[0].n_blocks = 0;
    expect_bad_opts(o, "KV group 0 has 0 blocks; it must have 1 to 268435456");
    o = roomy;
    o.n_groups = 9;
    expect_bad_opts(o, "n_groups is 9; it must be 1 to 8");
    relay_engine_destroy(NULL);
}

// ---- A crowd

enum { N_CALLERS = 64, N_CALLS = 12 };

typedef struct caller {
    engine_world *world;
    pthread_t thread;
    uint32_t seed;
    uint32_t n_cancelled, n_late;
    const char *error;
} caller;

// What does not hold is left in `error`: cmocka's assertions are for the main thread alone.
static void *call_many(void *arg) {
    caller *c = arg;
    unsigned seed = c->seed;
    for (uint32_t i = 0; i < N_CALLS; i++) {
        engine_request *r = engine_request_create(c->world, 1 + (uint32_t)rand_r(&seed) % 100,
                                                  1 + (uint32_t)rand_r(&seed) % 40, c->seed * 100 + i);
        r->request.priority = rand_r(&seed) % 3;
        if (rand_r(&seed) % 3 == 0) r->request.initial_credit = (uint32_t)rand_r(&seed) % 5;
        if (rand_r(&seed) % 10 == 0) r->request.deadline = relay_mono_now() + rand_r(&seed) % 20000;
        if (rand_r(&seed) % 3 == 0) r->request.sampling.repetition_penalty = 1.1f;
        while (engine_request_submit(r, NULL) != RELAY_OK)
            usleep(500);
        bool is_cancelled = rand_r(&seed) % 4 == 0;
        if (is_cancelled) usleep((useconds_t)(rand_r(&seed) % 3000));
        if (is_cancelled) relay_engine_cancel(c->world->engine, r->key);
        for (uint32_t k = 0; k < 5; k++)
            relay_engine_add_credit(c->world->engine, r->key, 2);
        relay_engine_add_credit(c->world->engine, r->key, RELAY_UNLIMITED_CREDIT);
        if (!engine_ends(r)) c->error = "a request did not end";
        if (!engine_has_own_ids(r)) c->error = "a request was given other ids than its own";
        bool is_late = r->last.kind == RELAY_EVENT_FAILED && r->last.code == RELAY_DEADLINE_EXCEEDED;
        bool is_whole = r->last.kind == RELAY_EVENT_FINISHED && r->last.finish == RELAY_FINISH_MAX_NEW_TOKENS &&
                        r->n_drawn == r->request.max_new_tokens;
        bool was_cancelled =
            r->last.kind == RELAY_EVENT_FINISHED && r->last.finish == RELAY_FINISH_CANCELLED && is_cancelled;
        if (is_late && r->request.deadline == RELAY_NEVER_US) c->error = "a request without a deadline was late";
        if (!is_late && !is_whole && !was_cancelled) c->error = "a request ended otherwise than it could";
        c->n_cancelled += was_cancelled;
        c->n_late += is_late;
        engine_request_destroy(r);
    }
    return NULL;
}

static void sixty_four_callers_are_served_side_by_side(void **state) {
    engine_world w;
    relay_engine_opts opts = roomy;
    opts.max_running = 16;
    opts.groups[0].n_blocks = 60;
    opts.max_queued_requests = 20;
    engine_world_init(&w, &opts);
    caller callers[N_CALLERS];
    for (uint32_t i = 0; i < N_CALLERS; i++) {
        callers[i] = (caller){.world = &w, .seed = i + 1};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_many, &callers[i]), 0);
    }
    uint32_t n_cancelled = 0;
    for (uint32_t i = 0; i < N_CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        if (callers[i].error != NULL) fail_msg("%s", callers[i].error);
        n_cancelled += callers[i].n_cancelled;
    }
    assert_true(n_cancelled > 0);
    assert_int_equal(w.n_ended, N_CALLERS * N_CALLS);
    engine_wait_until(&w, is_idle);
    engine_world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_served_to_its_end),
        cmocka_unit_test(a_newcomer_has_its_first_token_while_the_others_go_on),
        cmocka_unit_test(credit_pauses_and_resumes),
        cmocka_unit_test(cancel_frees_its_blocks_within_two_steps),
        cmocka_unit_test(a_full_queue_refuses_at_once_and_exactly),
        cmocka_unit_test(the_queue_is_bounded_in_tokens_too),
        cmocka_unit_test(what_could_never_fit_stays_the_callers),
        cmocka_unit_test(a_deadline_wakes_a_sleeping_engine),
        cmocka_unit_test(draining_it_finishes_what_it_has_and_takes_nothing_new),
        cmocka_unit_test(stopping_it_gives_every_request_back),
        cmocka_unit_test(stopping_it_in_mid_answer_ends_the_step_first),
        cmocka_unit_test(a_publisher_that_does_not_keep_up_holds_the_engine_and_loses_nothing),
        cmocka_unit_test(it_is_alive_unless_a_step_hangs),
        cmocka_unit_test(it_sleeps_when_nobody_can_move),
        cmocka_unit_test(the_load_is_that_of_one_moment),
        cmocka_unit_test(metrics_say_what_happened),
        cmocka_unit_test(settings_without_a_bound_are_refused),
        cmocka_unit_test(sixty_four_callers_are_served_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
