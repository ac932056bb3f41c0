// What was computed before is found: by the same ids with the same salt, shared while in use, and gone when its blocks
// are needed.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

// `n` ids more behind the ids and the answer of `before`.
static world_request *next_turn(const world_request *before, uint32_t n, uint32_t max_new_tokens) {
    uint32_t n_history = before->request.n_tokens + before->n_drawn;
    world_request *r = world_request_create(n_history + n, max_new_tokens, before->request.sampling.seed + 1);
    memcpy(r->ids, before->ids, before->request.n_tokens * sizeof r->ids[0]);
    memcpy(r->ids + before->request.n_tokens, before->drawn, before->n_drawn * sizeof r->ids[0]);
    return r;
}

static void run_alone(world *w, world_request *r) {
    world_add(w, r, 0);
    world_run(w, 2000);
    world_expect_own_ids(r);
}

static void a_second_turn_computes_only_what_is_new(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *first = world_add_new(&w, 0, 100, 61);
    world_run(&w, 100);
    // 160 of its 161 ids are computed, which is ten blocks; then the last id of the answer, and 30 more.
    world_request *second = next_turn(first, 30, 5);
    uint64_t before = w.model.n_rows;
    run_alone(&w, second);
    assert_int_equal(second->cached_tokens, 160);
    assert_int_equal(w.model.n_rows - before, 31 + 4);
    assert_int_equal(world_state(&w).cached_tokens, 160);
    world_request_destroy(first);
    world_request_destroy(second);
    world_fini(&w);
}

static void the_last_id_is_always_computed(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = world_request_create(64, 1, 5);
        run_alone(&w, r[i]);
    }
    assert_int_equal(r[0]->cached_tokens, 0);
    assert_int_equal(r[1]->cached_tokens, 48); // the block of the last id is made anew
    assert_int_equal(r[2]->cached_tokens, 48);
    assert_int_equal(world_state(&w).cached_blocks, 2 * 4); // and found to be known
    world_requests_destroy(r, 3);
    world_fini(&w);
}

static void blocks_are_shared_while_in_use(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[4];
    r[0] = world_request_create(100, 100, 5);
    world_add(&w, r[0], 0);
    world_steps(&w, 4);
    uint32_t alone = world_state(&w).used_blocks;
    for (uint32_t i = 1; i < 4; i++) {
        r[i] = world_request_create(100, 100, 5);
        r[i]->request.sampling.seed += i;
        world_add(&w, r[i], i);
    }
    world_steps(&w, 1);
    // Six full blocks are one and the same; the seventh is each one's own.
    assert_int_equal(world_state(&w).used_blocks, alone + 3 * 2);
    world_run(&w, 200);
    for (uint32_t i = 0; i < 4; i++) {
        world_expect_own_ids(r[i]);
        assert_int_equal(r[i]->cached_tokens, i == 0 ? 0 : 96);
    }
    world_requests_destroy(r, 4);
    world_fini(&w);
}

static void what_two_compute_at_once_becomes_one(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = world_request_create(64, 20, 5);
        world_add(&w, r[i], i);
    }
    world_steps(&w, 1);
    assert_int_equal(world_state(&w).used_blocks, 2 * 4);
    world_run(&w, 50);
    for (uint32_t i = 0; i < 2; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void another_salt_finds_nothing(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = world_request_create(100, 1, 5);
        r[i]->request.salt[31] = i == 1;
        run_alone(&w, r[i]);
    }
    assert_int_equal(r[1]->cached_tokens, 0);
    assert_int_equal(r[2]->cached_tokens, 96);
    world_requests_destroy(r, 3);
    world_fini(&w);
}

static void who_bypasses_the_cache_computes_all_of_it(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = world_request_create(100, 1, 5);
        r[i]->request.bypass_prefix_cache = i < 2; // the first is stored, and found by the third
        run_alone(&w, r[i]);
    }
    assert_int_equal(r[1]->cached_tokens, 0);
    assert_int_equal(r[2]->cached_tokens, 96);
    world_requests_destroy(r, 3);
    world_fini(&w);
}

static void what_is_not_to_be_stored_is_gone(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[3];
    r[0] = world_request_create(64, 1, 5);
    run_alone(&w, r[0]);
    uint32_t cached = world_state(&w).cached_blocks;
    for (uint32_t i = 1; i < 3; i++) {
        r[i] = next_turn(r[0], 100, 20); // finds what is known, and adds nothing
        r[i]->request.do_not_store = true;
        r[i]->request.bypass_prefix_cache = i == 2;
        run_alone(&w, r[i]);
        assert_int_equal(r[i]->cached_tokens, i == 1 ? 64 : 0);
        assert_int_equal(world_state(&w).cached_blocks, cached);
    }
    world_requests_destroy(r, 3);
    world_fini(&w);
}

static void what_was_cancelled_in_its_prompt_is_found(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[2];
    r[0] = world_request_create(300, 5, 5);
    world_add(&w, r[0], 0);
    world_steps(&w, 3); // of 64 ids each
    relay_scheduler_cancel(w.scheduler, 0, w.now);
    world_expect_finish(r[0], RELAY_FINISH_CANCELLED);
    r[1] = world_request_create(300, 5, 5);
    run_alone(&w, r[1]);
    assert_int_equal(r[1]->cached_tokens, 192);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void a_preempted_one_finds_what_is_left_of_its_own(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 12;
    world_init(&w, &opts);
    world_request *r[2];
    r[0] = world_add_new(&w, 0, 60, 42);
    r[1] = world_add_new(&w, 1, 80, 40);
    world_run(&w, 500);
    assert_true(r[1]->last.preemptions > 0);
    uint64_t n_ids = r[0]->request.n_prompt + r[0]->n_drawn + r[1]->request.n_prompt + r[1]->n_drawn - 2;
    // Its blocks were taken one by one: most of what it lost was still there.
    assert_true(world_state(&w).cached_tokens > 0);
    assert_true(w.model.n_rows < n_ids + 80);
    for (uint32_t i = 0; i < 2; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void cached_blocks_make_room_in_the_order_of_their_last_use(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 12;
    world_init(&w, &opts);
    world_request *r[6];
    static const uint64_t seeds[] = {1, 2, 1, 3, 1, 2};
    static const uint32_t cached[] = {0, 0, 64, 0, 64, 16}; // the fourth pushes out the end of the second
    for (uint32_t i = 0; i < 6; i++) {
        r[i] = world_request_create(i == 3 ? 100 : 65, 1, seeds[i]);
        run_alone(&w, r[i]);
        assert_int_equal(r[i]->cached_tokens, cached[i]);
    }
    world_requests_destroy(r, 6);
    world_fini(&w);
}

static void with_a_window_blocks_go_back_at_once(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.window[1] = 40;
    opts.n_blocks[1] = 12; // 192 positions: a window and a chunk
    opts.prompt_chunk = 64;
    world_init(&w, &opts);
    world_request *r = world_add_new(&w, 0, 1000, 500);
    while (r->is_live) {
        assert_true(world_step(&w));
        const relay_sequence *q = relay_scheduler_sequence(w.scheduler, 0);
        if (!r->is_live) break;
        assert_true(q->n_blocks - q->first_block[1] <= 4);
        assert_int_equal(q->first_block[0], 0);
    }
    world_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    world_expect_own_ids(r);
    world_request_destroy(r);
    world_fini(&w);
}

static void with_a_window_the_end_of_a_prefix_is_enough(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.window[1] = 40;
    opts.n_blocks[1] = 12;
    world_init(&w, &opts);
    world_request *first = world_request_create(1000, 9, 5);
    run_alone(&w, first);
    world_request *second = next_turn(first, 10, 5);
    run_alone(&w, second);
    assert_int_equal(second->cached_tokens, 1008);
    // A prompt that turns off in the middle has lost what its window would see there.
    world_request *third = world_request_create(600, 5, 5);
    run_alone(&w, third);
    assert_int_equal(third->cached_tokens, 0);
    world_request_destroy(first);
    world_request_destroy(second);
    world_request_destroy(third);
    world_fini(&w);
}

static void windows_alone_bound_the_memory_of_any_length(void **state) {
    static const uint32_t windows[] = {2, 3, 15, 16, 17, 18, 33, 100};
    for (uint32_t k = 0; k < sizeof windows / sizeof windows[0]; k++) {
        world w;
        relay_scheduler_opts opts = world_roomy;
        opts.n_groups = 1;
        opts.window[0] = windows[k];
        opts.n_blocks[0] = (windows[k] + 14) / 16 + 1; // what one row sees at most
        world_init(&w, &opts);
        world_request *r[2];
        for (uint32_t i = 0; i < 2; i++)
            r[i] = world_add_new(&w, i, 300, 100);
        world_run(&w, 3000);
        for (uint32_t i = 0; i < 2; i++) {
            world_expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
            world_expect_own_ids(r[i]);
        }
        world_requests_destroy(r, 2);
        world_fini(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_turn_computes_only_what_is_new),
        cmocka_unit_test(the_last_id_is_always_computed),
        cmocka_unit_test(blocks_are_shared_while_in_use),
        cmocka_unit_test(what_two_compute_at_once_becomes_one),
        cmocka_unit_test(another_salt_finds_nothing),
        cmocka_unit_test(who_bypasses_the_cache_computes_all_of_it),
        cmocka_unit_test(what_is_not_to_be_stored_is_gone),
        cmocka_unit_test(what_was_cancelled_in_its_prompt_is_found),
        cmocka_unit_test(a_preempted_one_finds_what_is_left_of_its_own),
        cmocka_unit_test(cached_blocks_make_room_in_the_order_of_their_last_use),
        cmocka_unit_test(with_a_window_blocks_go_back_at_once),
        cmocka_unit_test(with_a_window_the_end_of_a_prefix_is_enough),
        cmocka_unit_test(windows_alone_bound_the_memory_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
