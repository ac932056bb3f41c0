// KV blocks: how many are taken and when, and who gives way when they run out.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

static void thirty_two_sequences_waste_under_four_percent(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.token_budget = 512;
    opts.prompt_chunk = 0;
    world_init(&w, &opts);
    world_request *r[32];
    // They grow from 200 to 2,000 ids and are nowhere at one time.
    for (uint32_t i = 0; i < 32; i++)
        r[i] = world_add_new(&w, i, 200 + 37 * i, 600 + 1 * i);
    uint64_t unused = 0, slots = 0;
    while (w.n_live > 0) {
        assert_true(world_step(&w)); // which holds every step to 15 slots a sequence and group
        relay_scheduler_state s = world_state(&w);
        unused += s.unused_slots;
        slots += (uint64_t)s.used_blocks * RELAY_BLOCK_TOKENS;
        if (s.n_running == 32) {
            assert_true(s.unused_slots * 100 < 4ULL * s.used_blocks * RELAY_BLOCK_TOKENS);
        }
    }
    assert_true(unused * 100 < 4 * slots);
    for (uint32_t i = 0; i < 32; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 32);
    world_fini(&w);
}

static void blocks_come_with_the_rows_that_need_them(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = world_add_new(&w, 0, 16, 50);
    world_steps(&w, 1);
    assert_int_equal(world_state(&w).used_blocks, 2); // one in each group; none for the id that was drawn
    world_steps(&w, 1);
    assert_int_equal(world_state(&w).used_blocks, 4);
    world_steps(&w, 15);
    assert_int_equal(world_state(&w).used_blocks, 4);
    world_steps(&w, 1);
    assert_int_equal(world_state(&w).used_blocks, 6);
    world_run(&w, 100);
    for (uint32_t g = 0; g < 2; g++)
        assert_int_equal(world_state(&w).group_touched_blocks[g], 5); // 65 of its 66 ids were computed
    world_request_destroy(r);
    world_fini(&w);
}

static void preemption_gives_the_same_ids_and_says_none_twice(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = 20; // 320 positions for six sequences that grow to 120 each
    opts.n_blocks[1] = 24;
    world_init(&w, &opts);
    world_request *r[6];
    for (uint32_t i = 0; i < 6; i++) {
        r[i] = world_add_new(&w, i, 20, 100);
        r[i]->request.sampling.repetition_penalty = 1.1f;
    }
    world_run(&w, 2000);
    uint32_t preemptions = 0;
    for (uint32_t i = 0; i < 6; i++) {
        world_expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
        assert_int_equal(r[i]->n_drawn, 100);
        world_expect_own_ids(r[i]);
        preemptions += r[i]->last.preemptions;
        // Who came first is never the one that gives way.
        if (i > 0) assert_true(r[i]->ended_in >= r[i - 1]->ended_in);
    }
    assert_true(preemptions > 0);
    assert_int_equal(r[0]->last.preemptions, 0);
    assert_int_equal(world_state(&w).preemptions, preemptions);
    world_requests_destroy(r, 6);
    world_fini(&w);
}

static void the_lowest_priority_gives_way_first(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 12;
    world_init(&w, &opts);
    world_request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = world_request_create(30, 80, i);
        r[i]->request.priority = i == 0 ? -1 : 0; // the oldest is the least important
        world_add(&w, r[i], i);
    }
    world_run(&w, 1000);
    assert_true(r[0]->last.preemptions > 0);
    assert_int_equal(r[1]->last.preemptions, 0);
    for (uint32_t i = 0; i < 3; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 3);
    world_fini(&w);
}

static void what_was_preempted_waits_until_all_of_it_fits(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 12;
    opts.prompt_chunk = 16;
    world_init(&w, &opts);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++)
        r[i] = world_add_new(&w, i, 80, 60);
    world_run(&w, 500);
    // Coming back by chunks while the other grows, it would be thrown out again and again.
    assert_int_equal(r[1]->last.preemptions, 1);
    for (uint32_t i = 0; i < 2; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void a_tiny_pool_serves_everyone_in_turn(void **state) {
    for (uint32_t n_blocks = 1; n_blocks <= 6; n_blocks++) {
        world w;
        relay_scheduler_opts opts = world_roomy;
        opts.n_blocks[0] = n_blocks;
        opts.n_blocks[1] = n_blocks + 1;
        opts.prompt_chunk = 5;
        world_init(&w, &opts);
        world_request *r[16];
        for (uint32_t i = 0; i < 16; i++)
            r[i] = world_add_new(&w, i, 1 + i % (16 * n_blocks - 1), 16 * n_blocks);
        world_run(&w, 16 * 16 * n_blocks * 4);
        for (uint32_t i = 0; i < 16; i++) {
            world_expect_finish(r[i], RELAY_FINISH_CONTEXT_FULL);
            assert_int_equal(r[i]->request.n_prompt + r[i]->n_drawn, 16 * n_blocks);
            world_expect_own_ids(r[i]);
        }
        world_requests_destroy(r, 16);
        world_fini(&w);
    }
}

static void the_context_or_a_pool_that_is_full_ends_an_answer(void **state) {
    static const struct {
        uint32_t max_context, n_blocks, most;
    } cases[] = {{50, 100, 50}, {48, 3, 48}, {49, 3, 48}, {1000, 3, 48}, {2, 1, 2}};
    for (uint32_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        world w;
        relay_scheduler_opts opts = world_roomy;
        opts.max_context = cases[k].max_context;
        opts.n_blocks[1] = cases[k].n_blocks;
        world_init(&w, &opts);
        world_request *r = world_add_new(&w, 0, 1, 900);
        world_run(&w, 1000);
        world_expect_finish(r, RELAY_FINISH_CONTEXT_FULL);
        assert_int_equal(1 + r->n_drawn, cases[k].most);
        world_expect_own_ids(r);
        world_request_destroy(r);
        world_fini(&w);
    }
}

static void a_lane_is_kept_through_preemption_and_does_not_block_who_has_one(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 2;
    opts.n_blocks[0] = opts.n_blocks[1] = 6;
    world_init(&w, &opts);
    world_request *r[4];
    for (uint32_t i = 0; i < 2; i++)
        r[i] = world_add_new(&w, i, 30, 60);
    world_steps(&w, 2);
    // More important, but both lanes are taken; the preempted one must come back past them.
    for (uint32_t i = 2; i < 4; i++) {
        r[i] = world_request_create(30, 60, i);
        r[i]->request.priority = 1;
        world_add(&w, r[i], i);
    }
    world_run(&w, 1000);
    assert_true(r[1]->last.preemptions > 0);
    for (uint32_t i = 0; i < 4; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 4);
    world_fini(&w);
}

static void a_preempted_one_goes_on_though_who_waits_before_it_has_no_lane(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 2;
    opts.n_blocks[0] = opts.n_blocks[1] = 6;
    world_init(&w, &opts);
    world_request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = world_request_create(30, 60, i);
        if (i == 0) r[i]->request.initial_credit = 40;
        if (i == 2) r[i]->request.priority = 1;
        if (i < 2) world_add(&w, r[i], i);
    }
    while (r[0]->n_drawn < 40)
        world_steps(&w, 1);
    const relay_sequence *preempted = relay_scheduler_sequence(w.scheduler, 1);
    assert_int_equal(preempted->state, RELAY_SEQUENCE_WAITING);
    assert_int_equal(preempted->n_preemptions, 1);
    world_add(&w, r[2], 2);
    // One lane is with the one that is out of credit, one with the preempted: only that one can move.
    while (r[1]->is_live)
        world_steps(&w, 1);
    assert_true(r[2]->is_live);
    relay_scheduler_add_credit(w.scheduler, 0, 100);
    world_run(&w, 500);
    for (uint32_t i = 0; i < 3; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 3);
    world_fini(&w);
}

static void rows_of_who_gives_way_go_to_who_took_its_blocks(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = opts.token_budget = 2;
    opts.n_blocks[0] = opts.n_blocks[1] = 3;
    world_init(&w, &opts);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = i == 0 ? world_request_create(15, 33, i) : world_request_create(40, 8, i);
        r[i]->request.priority = (int32_t)i;
    }
    world_add(&w, r[0], 0);
    world_steps(&w, 8);
    world_add(&w, r[1], 1);
    while (world_state(&w).preemptions == 0)
        world_steps(&w, 1);
    assert_int_equal(w.step->n_sequences, 1);
    assert_int_equal(w.step->n_rows, 2);
    world_run(&w, 500);
    for (uint32_t i = 0; i < 2; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thirty_two_sequences_waste_under_four_percent),
        cmocka_unit_test(blocks_come_with_the_rows_that_need_them),
        cmocka_unit_test(preemption_gives_the_same_ids_and_says_none_twice),
        cmocka_unit_test(the_lowest_priority_gives_way_first),
        cmocka_unit_test(what_was_preempted_waits_until_all_of_it_fits),
        cmocka_unit_test(a_tiny_pool_serves_everyone_in_turn),
        cmocka_unit_test(the_context_or_a_pool_that_is_full_ends_an_answer),
        cmocka_unit_test(a_lane_is_kept_through_preemption_and_does_not_block_who_has_one),
        cmocka_unit_test(a_preempted_one_goes_on_though_who_waits_before_it_has_no_lane),
        cmocka_unit_test(rows_of_who_gives_way_go_to_who_took_its_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
