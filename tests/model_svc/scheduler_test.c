// Who moves in a step, counted in steps, and who is refused. The others beside it: scheduler_blocks_test.c,
// scheduler_end_test.c, and scheduler_history_test.c, which mixes everything at random.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

// ---- Batching

static void one_request_is_served_to_its_end(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = world_add_new(&w, 0, 20, 7);
    world_run(&w, 7); // the prompt's step draws the first
    world_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(r->n_drawn, 7);
    world_expect_own_ids(r);
    assert_int_equal(world_state(&w).used_blocks, 0);
    world_request_destroy(r);
    world_fini(&w);
}

static void a_newcomer_beside_eight_others_has_its_first_token_at_once(void **state) {
    static const uint32_t prompts[] = {1, 16, 64, 65, 300, 1000};
    for (uint32_t k = 0; k < sizeof prompts / sizeof prompts[0]; k++) {
        world w;
        world_init(&w, &world_roomy);
        world_request *r[9];
        for (uint32_t i = 0; i < 8; i++)
            r[i] = world_add_new(&w, i, 10 + i, 200);
        world_steps(&w, 5);
        r[8] = world_add_new(&w, 8, prompts[k], 10);
        uint32_t own_steps = (prompts[k] + world_roomy.prompt_chunk - 1) / world_roomy.prompt_chunk;
        for (uint32_t i = 0; i < own_steps; i++) {
            uint32_t before[8];
            for (uint32_t j = 0; j < 8; j++)
                before[j] = r[j]->n_drawn;
            world_steps(&w, 1);
            // Nobody who decodes waits for its prompt.
            for (uint32_t j = 0; j < 8; j++)
                assert_int_equal(r[j]->n_drawn, before[j] + 1);
            assert_int_equal(world_state(&w).n_running, 9);
        }
        assert_int_equal(r[8]->first_token_in, r[8]->added_after + own_steps);
        world_run(&w, 400);
        for (uint32_t i = 0; i < 9; i++)
            world_expect_own_ids(r[i]);
        world_requests_destroy(r, 9);
        world_fini(&w);
    }
}

static void prompts_share_a_step_with_each_other_and_with_decodes(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[4];
    r[0] = world_add_new(&w, 0, 5, 50);
    world_steps(&w, 1);
    for (uint32_t i = 1; i < 4; i++)
        r[i] = world_add_new(&w, i, 100, 5);
    world_steps(&w, 1);
    // 1 decode, a chunk of 64, and what the budget leaves.
    assert_int_equal(w.step->n_rows, 128);
    assert_int_equal(w.step->n_sequences, 3);
    assert_int_equal(w.step->n_samples, 1);
    world_run(&w, 100);
    for (uint32_t i = 0; i < 4; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 4);
    world_fini(&w);
}

static void a_prompt_takes_as_many_steps_as_it_has_chunks(void **state) {
    static const struct { uint32_t chunk, steps; } cases[] = {{1, 100}, {7, 15}, {64, 2}, {99, 2}, {100, 1}, {0, 1}};
    for (uint32_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        world w;
        relay_scheduler_opts opts = world_roomy;
        opts.prompt_chunk = cases[k].chunk;
        world_init(&w, &opts);
        world_request *r = world_add_new(&w, 0, 100, 3);
        world_run(&w, 200);
        assert_int_equal(r->first_token_in, cases[k].steps);
        world_expect_own_ids(r);
        world_request_destroy(r);
        world_fini(&w);
    }
}

static void ids_do_not_depend_on_chunks_or_mates(void **state) {
    static const uint32_t chunks[] = {1, 7, 64, 0};
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t n = 1; n <= 32; n += 31) {
            world w;
            relay_scheduler_opts opts = world_roomy;
            opts.prompt_chunk = chunks[k];
            world_init(&w, &opts);
            world_request *r[32];
            for (uint32_t i = 0; i < n; i++) {
                r[i] = world_add_new(&w, i, 1 + 13 * i % 150, 40);
                if (i % 3 == 0) r[i]->request.sampling.repetition_penalty = 1.2f;
                if (i % 3 == 1) r[i]->request.sampling.presence_penalty = 0.3f;
            }
            world_run(&w, 3000);
            for (uint32_t i = 0; i < n; i++)
                world_expect_own_ids(r[i]);
            assert_true(w.model.max_rows <= opts.token_budget);
            world_requests_destroy(r, n);
            world_fini(&w);
        }
    }
}

// ---- Order

static void waiting_ones_go_by_priority_and_then_by_arrival(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 1;
    world_init(&w, &opts);
    static const int32_t priorities[] = {0, -5, 7, 0, 7, INT32_MIN, INT32_MAX};
    static const uint32_t order[] = {6, 2, 4, 0, 3, 1, 5};
    world_request *r[7];
    for (uint32_t i = 0; i < 7; i++) {
        r[i] = world_request_create(10, 2, i);
        r[i]->request.priority = priorities[i];
        world_add(&w, r[i], i);
    }
    world_run(&w, 100);
    for (uint32_t i = 1; i < 7; i++)
        assert_true(r[order[i - 1]]->ended_in < r[order[i]]->started_in);
    world_requests_destroy(r, 7);
    world_fini(&w);
}

static void a_large_request_is_not_passed_by_small_ones_for_ever(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = 10;
    opts.n_blocks[1] = 16;
    opts.prompt_chunk = 0;
    world_init(&w, &opts);
    world_request *r[10];
    r[0] = world_add_new(&w, 0, 60, 40); // 4 blocks, growing to 7
    world_steps(&w, 1);
    r[1] = world_add_new(&w, 1, 120, 2); // 8 blocks do not fit
    for (uint32_t i = 2; i < 10; i++)
        r[i] = world_add_new(&w, i, 5, 2); // would fit
    world_run(&w, 200);
    assert_true(r[1]->started_in > r[0]->started_in);
    for (uint32_t i = 2; i < 10; i++)
        assert_true(r[i]->started_in >= r[1]->started_in);
    world_requests_destroy(r, 10);
    world_fini(&w);
}

// ---- Credit

static void without_credit_it_keeps_its_blocks_and_draws_nothing(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = world_request_create(40, 20, 1);
    r->request.initial_credit = 5;
    world_add(&w, r, 0);
    world_steps(&w, 5);
    for (uint32_t i = 0; i < 3; i++)
        assert_false(world_step(&w));
    assert_int_equal(r->n_drawn, 5);
    assert_int_equal(world_state(&w).n_running, 1);
    assert_int_equal(world_state(&w).used_blocks, 2 * 3);
    relay_scheduler_add_credit(w.scheduler, 0, 2);
    world_steps(&w, 2);
    assert_false(world_step(&w));
    assert_int_equal(r->n_drawn, 7);
    relay_scheduler_add_credit(w.scheduler, 0, RELAY_UNLIMITED_CREDIT);
    world_run(&w, 13);
    world_expect_own_ids(r);
    world_request_destroy(r);
    world_fini(&w);
}

static void who_waits_for_credit_keeps_nobody_waiting(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 10;
    world_init(&w, &opts);
    world_request *r[4];
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = world_request_create(60, 80, i);
        r[i]->request.initial_credit = i == 3 ? RELAY_UNLIMITED_CREDIT : i == 2 ? 0 : 1;
        r[i]->request.priority = i == 3 ? -1 : 0; // it ranks below all who are paused
        if (i < 3) world_add(&w, r[i], i);
    }
    world_steps(&w, 1);
    assert_false(world_step(&w));
    assert_int_equal(world_state(&w).used_blocks, 2 * 2 * 4);
    world_add(&w, r[3], 3);
    // It fills the pool alone though two hold 4 blocks each and a third is before it in the queue.
    for (uint32_t i = 0; i < 200 && r[3]->is_live; i++)
        assert_true(world_step(&w));
    world_expect_finish(r[3], RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(r[3]->last.preemptions, 0);
    assert_false(r[2]->is_started);
    assert_false(world_step(&w));
    for (uint32_t i = 0; i < 3; i++)
        relay_scheduler_add_credit(w.scheduler, i, 100);
    world_run(&w, 1000);
    assert_true(r[0]->last.preemptions + r[1]->last.preemptions > 0);
    for (uint32_t i = 0; i < 4; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 4);
    world_fini(&w);
}

// ---- What is refused

static void expect_refused(const world *w, const relay_request *r, const char *message) {
    relay_err e = {0};
    assert_int_equal(relay_scheduler_check_request(w->scheduler, r, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, message);
}

static void what_could_never_fit_is_refused_with_the_limit(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_context = 100;
    world_init(&w, &opts);
    world_request *r = world_request_create(101, 1, 1);
    relay_err e;
    r->request.n_prompt = r->request.n_tokens = 0;
    expect_refused(&w, &r->request, "prompt_token_ids is empty; at least 1 id is needed");
    r->request.n_prompt = r->request.n_tokens = 99;
    assert_int_equal(relay_scheduler_check_request(w.scheduler, &r->request, &e), RELAY_OK);
    r->request.n_prompt = r->request.n_tokens = 100;
    expect_refused(&w, &r->request,
                   "prompt_token_ids has 100 ids; at most 99 leave room for one more token (max_context 100)");
    r->request.n_prompt = 50;
    assert_int_equal(relay_scheduler_check_request(w.scheduler, &r->request, &e), RELAY_OK);
    r->request.n_tokens = 101;
    expect_refused(
        &w, &r->request,
        "prompt_token_ids and resume.generated_token_ids have 101 ids together; at most 100 fit (max_context)");
    r->request.n_tokens = 50;
    r->request.n_stop_ids = RELAY_MAX_STOP_TOKEN_IDS + 1;
    expect_refused(&w, &r->request, "stop_token_ids has 257 ids; at most 256 are taken");
    world_fini(&w);
    opts.n_blocks[1] = 3;
    world_init(&w, &opts);
    r->request.n_stop_ids = 0;
    expect_refused(&w, &r->request,
                   "prompt_token_ids has 50 ids; at most 47 leave room for one more token (size of the KV pool 48)");
    world_request_destroy(r);
    world_fini(&w);
}

static void destroying_none_is_fine(void **state) {
    relay_scheduler_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request_is_served_to_its_end),
        cmocka_unit_test(a_newcomer_beside_eight_others_has_its_first_token_at_once),
        cmocka_unit_test(prompts_share_a_step_with_each_other_and_with_decodes),
        cmocka_unit_test(a_prompt_takes_as_many_steps_as_it_has_chunks),
        cmocka_unit_test(ids_do_not_depend_on_chunks_or_mates),
        cmocka_unit_test(waiting_ones_go_by_priority_and_then_by_arrival),
        cmocka_unit_test(a_large_request_is_not_passed_by_small_ones_for_ever),
        cmocka_unit_test(without_credit_it_keeps_its_blocks_and_draws_nothing),
        cmocka_unit_test(who_waits_for_credit_keeps_nobody_waiting),
        cmocka_unit_test(what_could_never_fit_is_refused_with_the_limit),
        cmocka_unit_test(destroying_none_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
