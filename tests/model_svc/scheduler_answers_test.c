// Several answers over one prompt: it is computed once, its blocks are shared, and each goes its own way from there.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

static world_request *add(world *w, uint32_t id, uint32_t n_prompt, uint32_t max_new_tokens, uint32_t n_answers) {
    world_request *r = world_request_create(n_prompt, max_new_tokens, 100 + id);
    world_request_set_answers(r, n_answers);
    world_add(w, r, id);
    return r;
}

static void expect_all_whole(const world_request *r) {
    world_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    for (uint32_t i = 0; i < r->request.n_sequences; i++) {
        assert_int_equal(r->finishes[i], RELAY_FINISH_MAX_NEW_TOKENS);
        assert_int_equal(r->n_all_drawn[i], r->request.max_new_tokens);
    }
    world_expect_own_ids(r);
}

static void the_prompt_is_computed_once(void **state) {
    static const uint32_t prompts[] = {1, 15, 16, 17, 64, 100, 300};
    for (uint32_t k = 0; k < sizeof prompts / sizeof prompts[0]; k++) {
        world w;
        world_init(&w, &world_roomy);
        world_request *r = add(&w, 0, prompts[k], 40, 5);
        world_run(&w, 100);
        expect_all_whole(r);
        assert_int_equal(w.model.n_rows, prompts[k] + 5 * 39);
        world_request_destroy(r);
        world_fini(&w);
    }
}

static void full_blocks_are_shared_and_the_last_is_copied(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = add(&w, 0, 50, 20, 4);
    world_steps(&w, 1);
    assert_int_equal(world_state(&w).n_running, 4);
    assert_int_equal(world_state(&w).used_blocks, 2 * 4); // of two groups
    assert_int_equal(w.model.n_copies, 0);
    world_steps(&w, 1);
    assert_int_equal(world_state(&w).used_blocks, 2 * (3 + 4));
    assert_int_equal(w.model.n_copies, 2 * 4); // each before it writes into what others hold
    world_run(&w, 50);
    assert_int_equal(w.model.n_copies, 2 * 4);
    expect_all_whole(r);
    world_request_destroy(r);
    world_fini(&w);
}

static void who_has_no_lane_follows_later(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 3;
    world_init(&w, &opts);
    world_request *r[2];
    r[0] = add(&w, 0, 30, 10, 1);
    r[1] = add(&w, 1, 100, 20, 3);
    world_run(&w, 200);
    expect_all_whole(r[0]);
    expect_all_whole(r[1]);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void a_cancel_ends_all_of_them(void **state) {
    for (uint32_t n_steps = 0; n_steps < 8; n_steps++) {
        world w;
        world_init(&w, &world_roomy);
        world_request *r = add(&w, 0, 200, 20, 4); // four steps of prompt
        world_steps(&w, n_steps);
        relay_scheduler_cancel(w.scheduler, 0, w.now);
        world_expect_finish(r, RELAY_FINISH_CANCELLED);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(r->finishes[i], RELAY_FINISH_CANCELLED);
        assert_null(relay_scheduler_check(w.scheduler));
        assert_int_equal(world_state(&w).used_blocks, 0);
        world_request *next = add(&w, 0, 20, 5, 4); // the place is free
        world_run(&w, 100);
        expect_all_whole(next);
        world_request_destroy(next);
        world_request_destroy(r);
        world_fini(&w);
    }
}

static void a_deadline_fails_all_of_them_at_once(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = world_request_create(20, 500, i);
        world_request_set_answers(r[i], 4);
        r[i]->request.deadline = 20000;
        world_add(&w, r[i], i);
    }
    while (w.n_live > 0)
        world_step(&w);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(r[i]->last.kind, RELAY_EVENT_FAILED);
        assert_int_equal(r[i]->last.code, RELAY_DEADLINE_EXCEEDED);
        world_expect_own_ids(r[i]);
    }
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void logits_that_are_not_finite_fail_the_request_alone(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[2];
    r[0] = world_request_create(20, 10, 1);
    world_request_set_answers(r[0], 3);
    r[0]->ids[7] = FAKE_POISON;
    world_add(&w, r[0], 0);
    r[1] = add(&w, 1, 20, 10, 3);
    world_run(&w, 100);
    assert_int_equal(r[0]->last.kind, RELAY_EVENT_FAILED);
    assert_int_equal(r[0]->last.code, RELAY_INTERNAL);
    assert_int_equal(r[0]->n_drawn, 0);
    expect_all_whole(r[1]);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void preempted_ones_come_back_with_the_same_ids(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = 14;
    opts.n_blocks[1] = 16;
    world_init(&w, &opts);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++)
        r[i] = add(&w, i, 40, 60, 4);
    world_run(&w, 2000);
    assert_true(world_state(&w).preemptions > 0);
    for (uint32_t i = 0; i < 2; i++)
        expect_all_whole(r[i]);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void credit_is_each_ones_own(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = world_request_create(20, 10, 1);
    world_request_set_answers(r, 3);
    r->request.initial_credit = 4;
    world_add(&w, r, 0);
    while (world_step(&w)) {
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(r->n_all_drawn[i], 4);
    relay_scheduler_add_credit(w.scheduler, 0, 100);
    world_run(&w, 100);
    expect_all_whole(r);
    world_request_destroy(r);
    world_fini(&w);
}

static void none_begins_without_credit(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = world_request_create(20, 10, 1);
    world_request_set_answers(r, 3);
    r->request.initial_credit = 0;
    world_add(&w, r, 0);
    assert_false(world_step(&w));
    relay_scheduler_add_credit(w.scheduler, 0, 100);
    world_run(&w, 100);
    expect_all_whole(r);
    world_request_destroy(r);
    world_fini(&w);
}

static void one_of_several_is_resumed_as_itself(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *whole = add(&w, 0, 30, 20, 3);
    world_run(&w, 100);
    world_request *rest = world_request_create(30 + 8, 20, 100);
    memcpy(rest->ids, whole->ids, 30 * sizeof rest->ids[0]);
    memcpy(rest->ids + 30, whole->all_drawn + 2 * 20, 8 * sizeof rest->ids[0]);
    rest->request.n_prompt = 30;
    rest->request.sampling.sequence_index = 2;
    world_add(&w, rest, 0);
    world_run(&w, 100);
    assert_int_equal(rest->n_drawn, 12);
    assert_memory_equal(rest->drawn, whole->all_drawn + 2 * 20 + 8, 12 * sizeof rest->drawn[0]);
    world_request_destroy(whole);
    world_request_destroy(rest);
    world_fini(&w);
}

static void more_than_may_run_are_refused(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = world_request_create(30, 20, 100);
    r->request.n_sequences = 33;
    relay_err e;
    assert_int_equal(relay_scheduler_check_request(w.scheduler, &r->request, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "num_sequences is 33; at most 32 are computed at a time");
    world_request_destroy(r);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prompt_is_computed_once),
        cmocka_unit_test(full_blocks_are_shared_and_the_last_is_copied),
        cmocka_unit_test(who_has_no_lane_follows_later),
        cmocka_unit_test(a_cancel_ends_all_of_them),
        cmocka_unit_test(a_deadline_fails_all_of_them_at_once),
        cmocka_unit_test(logits_that_are_not_finite_fail_the_request_alone),
        cmocka_unit_test(preempted_ones_come_back_with_the_same_ids),
        cmocka_unit_test(credit_is_each_ones_own),
        cmocka_unit_test(none_begins_without_credit),
        cmocka_unit_test(one_of_several_is_resumed_as_itself),
        cmocka_unit_test(more_than_may_run_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
