// Requests from their submission to their end, counted in steps where it matters.
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

// ---- Serving

static void a_request_is_served_to_its_end(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    engine_request *r = engine_submit_new(&w, 100, 50, 1);
    engine_wait_for_end(r);
    engine_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(r->n_drawn, 50);
    assert_int_equal(r->last.output_tokens, 50);
    engine_wait_until_idle(&w);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

static void a_newcomer_has_its_first_token_while_the_others_go_on(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    engine_let_run(&w, 0);
    engine_request *r[9];
    for (uint32_t i = 0; i < 8; i++)
        r[i] = engine_submit_new(&w, 20, 200, i);
    engine_wait_for_held_step(&w);
    engine_let_run(&w, 10);
    engine_wait_for_held_step(&w);
    uint64_t held = w.n_steps;
    r[8] = engine_submit_new(&w, 150, 10, 8); // three chunks
    engine_let_run(&w, 4);
    engine_wait_for_tokens(r[8], 1);
    assert_true(r[8]->first_token_in <= held + 2 + 3);
    engine_wait_for_held_step(&w);
    assert_int_equal(engine_load(&w).running, 9);
    for (uint32_t i = 0; i < 8; i++)
        assert_false(r[i]->is_ended);
    engine_let_run(&w, UINT64_MAX);
    for (uint32_t i = 0; i < 9; i++)
        engine_wait_for_end(r[i]);
    for (uint32_t i = 0; i < 9; i++)
        engine_expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
    engine_world_fini(&w);
    engine_requests_destroy(r, 9);
}

static void credit_pauses_and_resumes(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    engine_request *r = engine_request_create(&w, 20, 30, 1);
    relay_err e;
    r->request.initial_credit = 3;
    assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
    engine_wait_for_tokens(r, 3);
    usleep(20000);
    assert_int_equal(r->n_drawn, 3);
    assert_int_equal(engine_used_blocks(&w), 2);
    relay_engine_add_credit(w.engine, r->key, 4);
    engine_wait_for_tokens(r, 7);
    usleep(20000);
    assert_int_equal(r->n_drawn, 7);
    relay_engine_add_credit(w.engine, r->key, RELAY_UNLIMITED_CREDIT);
    engine_wait_for_end(r);
    engine_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

// ---- Cancel, counted in steps

typedef enum cancel_place { IN_QUEUE, IN_PROMPT, DECODING, PAUSED, N_CANCEL_PLACES } cancel_place;

static void cancel_frees_its_blocks_within_two_steps(void **state) {
    for (cancel_place place = 0; place < N_CANCEL_PLACES; place++) {
        engine_world w;
        relay_engine_opts opts = engine_roomy;
        opts.max_running = place == IN_QUEUE ? 1 : 4;
        opts.token_budget = opts.prompt_chunk = 32;
        engine_world_init(&w, &opts);
        engine_let_run(&w, 0);
        engine_request *other = engine_submit_new(&w, 1, 1000, 1);
        engine_wait_for_held_step(&w);
        engine_request *r = engine_request_create(&w, place == IN_PROMPT ? 1000 : 40, 500, 2);
        relay_err e;
        if (place == PAUSED) r->request.initial_credit = 1;
        assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
        engine_let_run(&w, 5);
        engine_wait_for_held_step(&w);
        if (place == DECODING || place == PAUSED) engine_wait_for_tokens(r, 1);
        assert_int_equal(engine_load(&w).running, place == IN_QUEUE ? 1 : 2);
        assert_int_equal(engine_load(&w).waiting, place == IN_QUEUE ? 1 : 0);
        uint64_t cancelled_in = w.n_steps;
        relay_engine_cancel(w.engine, r->key);
        relay_engine_cancel(w.engine, r->key);
        engine_let_run(&w, 2);
        engine_wait_for_end(r);
        engine_wait_for_held_step(&w);
        engine_expect_finish(r, RELAY_FINISH_CANCELLED);
        assert_true(r->ended_in <= cancelled_in + 1);
        // The other has drawn fewer than 16 ids: one block is its own, and no other is left.
        assert_int_equal(engine_used_blocks(&w), 1);
        assert_int_equal(engine_load(&w).waiting, 0);
        relay_engine_cancel(w.engine, other->key);
        engine_let_run(&w, UINT64_MAX);
        engine_wait_for_end(other);
        engine_wait_until_idle(&w);
        relay_engine_cancel(w.engine, r->key); // long gone
        engine_world_fini(&w);
        engine_request_destroy(other);
        engine_request_destroy(r);
    }
}

// ---- Ends

static void a_deadline_wakes_a_sleeping_engine(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    engine_request *r = engine_request_create(&w, 20, 30, 1);
    r->request.initial_credit = 1;
    r->request.deadline = relay_mono_now() + 50000;
    relay_err e;
    assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
    engine_wait_for_end(r);
    assert_true(relay_mono_now() >= r->request.deadline);
    assert_int_equal(r->last.kind, RELAY_EVENT_FAILED);
    assert_int_equal(r->last.code, RELAY_DEADLINE_EXCEEDED);
    engine_wait_until_idle(&w);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

static void stopping_it_in_mid_answer_ends_the_step_first(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    engine_request *r = engine_submit_new(&w, 30, 4000, 1); // far from its end
    engine_wait_for_tokens(r, 3);
    relay_engine_stop(w.engine);
    engine_expect_finish(r, RELAY_FINISH_DRAINED);
    assert_int_equal(r->last.output_tokens, r->n_drawn);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

static void *stop(void *arg) {
    relay_engine_stop(arg);
    return NULL;
}

static void what_was_submitted_in_the_last_step_is_given_back_too(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    engine_let_run(&w, 0);
    engine_request *r[2];
    r[0] = engine_submit_new(&w, 30, 50, 1);
    engine_wait_for_held_step(&w);
    r[1] = engine_submit_new(&w, 30, 50, 2);
    pthread_t stopper;
    assert_int_equal(pthread_create(&stopper, NULL, stop, w.engine), 0);
    while (!engine_load(&w).is_draining)
        usleep(200);
    usleep(20000); // stop() goes on from closing the inbox to waiting for the step
    engine_let_run(&w, UINT64_MAX);
    pthread_join(stopper, NULL);
    for (uint32_t i = 0; i < 2; i++)
        engine_expect_finish(r[i], RELAY_FINISH_DRAINED);
    assert_int_equal(r[0]->n_drawn, 1);
    assert_false(r[1]->is_started);
    engine_world_fini(&w);
    engine_requests_destroy(r, 2);
}

static void draining_it_finishes_what_it_has_and_takes_nothing_new(void **state) {
    engine_world w;
    relay_engine_opts opts = engine_roomy;
    opts.max_running = 2;
    engine_world_init(&w, &opts);
    engine_let_run(&w, 3);
    engine_request *r[5];
    for (uint32_t i = 0; i < 5; i++)
        r[i] = i < 4 ? engine_submit_new(&w, 30, 20, i) : engine_request_create(&w, 30, 20, i);
    engine_wait_for_held_step(&w);
    assert_false(engine_load(&w).is_draining);
    relay_engine_drain(w.engine);
    assert_true(engine_load(&w).is_draining);
    relay_err e;
    assert_int_equal(engine_request_submit(r[4], &e), RELAY_UNAVAILABLE);
    engine_let_run(&w, UINT64_MAX);
    for (uint32_t i = 0; i < 4; i++)
        engine_wait_for_end(r[i]);
    for (uint32_t i = 0; i < 4; i++)
        engine_expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
    engine_world_fini(&w);
    engine_requests_destroy(r, 5);
}

static void stopping_it_gives_every_request_back(void **state) {
    engine_world w;
    relay_engine_opts opts = engine_roomy;
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
        engine_expect_finish(r[i], RELAY_FINISH_DRAINED);
        assert_int_equal(r[i]->is_started, i < 2);
    }
    assert_int_equal(w.n_ended, 6);
    assert_int_equal(engine_used_blocks(&w), 0);
    relay_err e;
    engine_request *late = engine_request_create(&w, 30, 10, 1);
    assert_int_equal(engine_request_submit(late, &e), RELAY_UNAVAILABLE);
    relay_engine_cancel(w.engine, r[0]->key);
    relay_engine_stop(w.engine); // again: nothing
    engine_request_destroy(late);
    engine_world_fini(&w);
    engine_requests_destroy(r, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_served_to_its_end),
        cmocka_unit_test(a_newcomer_has_its_first_token_while_the_others_go_on),
        cmocka_unit_test(credit_pauses_and_resumes),
        cmocka_unit_test(cancel_frees_its_blocks_within_two_steps),
        cmocka_unit_test(a_deadline_wakes_a_sleeping_engine),
        cmocka_unit_test(stopping_it_in_mid_answer_ends_the_step_first),
        cmocka_unit_test(what_was_submitted_in_the_last_step_is_given_back_too),
        cmocka_unit_test(draining_it_finishes_what_it_has_and_takes_nothing_new),
        cmocka_unit_test(stopping_it_gives_every_request_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
