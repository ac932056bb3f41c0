// Many callers: a queue that is full, and threads that submit, cancel and give credit side by side.
#include "model_svc/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/model_svc/engine_world.h"

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
    relay_engine_opts opts = engine_roomy;
    opts.max_queued_requests = 100;
    relay_metrics *metrics = opts.metrics = relay_metrics_create();
    engine_world_init(&w, &opts);
    engine_let_run(&w, 0);
    engine_request *first = engine_submit_new(&w, 10, 5, 1);
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
            engine_expect_finish(s[i].requests[k], RELAY_FINISH_MAX_NEW_TOKENS);
            engine_request_destroy(s[i].requests[k]);
        }
    }
    engine_world_fini(&w);
    engine_request_destroy(first);
    relay_metrics_destroy(metrics);
}

static void the_queue_is_bounded_in_tokens_too(void **state) {
    engine_world w;
    relay_engine_opts opts = engine_roomy;
    opts.max_queued_tokens = 1000;
    engine_world_init(&w, &opts);
    engine_let_run(&w, 0);
    engine_request *r[4];
    r[0] = engine_submit_new(&w, 10, 5, 1);
    engine_wait_for_held_step(&w);
    r[1] = engine_submit_new(&w, 600, 5, 1);
    r[2] = engine_request_create(&w, 401, 5, 1);
    relay_err e;
    assert_int_equal(engine_request_submit(r[2], &e), RELAY_RESOURCE_EXHAUSTED);
    assert_true(e.retry_after_ms > 0);
    r[3] = engine_submit_new(&w, 400, 5, 1);
    engine_let_run(&w, UINT64_MAX);
    engine_wait_for_end(r[3]);
    engine_wait_for_end(r[1]);
    assert_int_equal(engine_request_submit(r[2], &e), RELAY_OK);
    engine_wait_for_end(r[2]);
    engine_world_fini(&w);
    engine_requests_destroy(r, 4);
}

static void what_could_never_fit_stays_the_callers(void **state) {
    engine_world w;
    relay_engine_opts opts = engine_roomy;
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
    relay_engine_opts opts = engine_roomy;
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
    engine_wait_until_idle(&w);
    engine_world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_refuses_at_once_and_exactly),
        cmocka_unit_test(the_queue_is_bounded_in_tokens_too),
        cmocka_unit_test(what_could_never_fit_stays_the_callers),
        cmocka_unit_test(sixty_four_callers_are_served_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
