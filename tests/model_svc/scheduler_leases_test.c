// Leases: what a finished sequence has stays held by its name, until its time is over, it is let go, or the blocks are
// needed.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

static relay_sequence_key name(uint64_t n) {
    return (relay_sequence_key){.high = n, .low = 7};
}

// Runs alone; its blocks are kept under `key` for `lease_us`.
static world_request *run_leased(world *w, uint64_t key, uint32_t n_prompt, uint64_t seed, int64_t lease_us) {
    world_request *r = world_request_create(n_prompt, 1, seed);
    r->request.sequence_key = name(key);
    r->request.lease_us = lease_us;
    world_add(w, r, 0);
    world_run(w, 1000);
    world_expect_own_ids(r);
    return r;
}

static uint32_t cached_tokens_of(world *w, uint32_t n_prompt, uint64_t seed) {
    world_request *r = run_leased(w, 0, n_prompt, seed, 0);
    uint32_t n = r->cached_tokens;
    world_request_destroy(r);
    return n;
}

static void expect_sound(const world *w) {
    const char *why = relay_scheduler_check(w->scheduler);
    if (why != NULL) fail_msg("%s", why);
}

static void a_leased_sequence_is_there_when_cached_ones_are_gone(void **state) {
    for (uint32_t leases = 0; leases < 2; leases++) {
        world w;
        relay_scheduler_opts opts = world_roomy;
        opts.n_blocks[0] = opts.n_blocks[1] = 20;
        world_init(&w, &opts);
        world_request *r[3];
        r[0] = run_leased(&w, 1, 81, 1, leases * 1000000);
        assert_int_equal(world_state(&w).n_leases, leases);
        assert_int_equal(world_state(&w).used_blocks, leases * 2 * 5);
        r[1] = run_leased(&w, 2, 81, 2, 0);
        r[2] = run_leased(&w, 3, 200, 3, 0); // 13 blocks: of the other 15 by preference
        assert_int_equal(cached_tokens_of(&w, 81, 1), leases ? 80 : 32);
        world_requests_destroy(r, 3);
        world_fini(&w);
    }
}

static void a_lease_ends_with_its_time(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = run_leased(&w, 1, 81, 1, 50000);
    assert_int_equal(relay_scheduler_next_expiry(w.scheduler), w.now + 50000);
    w.now += 49999;
    relay_scheduler_expire(w.scheduler, w.now);
    assert_int_equal(world_state(&w).n_leases, 1);
    w.now += 1;
    relay_scheduler_expire(w.scheduler, w.now);
    assert_int_equal(world_state(&w).n_leases, 0);
    assert_int_equal(world_state(&w).used_blocks, 0);
    assert_int_equal(world_state(&w).cached_blocks, 2 * 5);
    assert_int_equal(relay_scheduler_next_expiry(w.scheduler), RELAY_NEVER_US);
    expect_sound(&w);
    world_request_destroy(r);
    world_fini(&w);
}

static void the_oldest_lease_gives_way_first_and_nobody_fails(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 20;
    world_init(&w, &opts);
    world_request *r[4];
    for (uint32_t i = 0; i < 3; i++)
        r[i] = run_leased(&w, 1 + i, 81, 1 + i, 1000000000);
    assert_int_equal(world_state(&w).used_blocks, 2 * 15);
    r[3] = run_leased(&w, 9, 100, 9, 0); // needs seven where five are free
    world_expect_finish(r[3], RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(world_state(&w).n_leases, 2);
    assert_false(relay_scheduler_release(w.scheduler, name(1)));
    assert_true(relay_scheduler_release(w.scheduler, name(2)));
    assert_true(relay_scheduler_release(w.scheduler, name(3)));
    assert_int_equal(world_state(&w).used_blocks, 0);
    world_requests_destroy(r, 4);
    world_fini(&w);
}

static void who_runs_takes_leases_before_it_preempts(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 20;
    world_init(&w, &opts);
    world_request *leased = run_leased(&w, 1, 81, 1, 1000000000);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++)
        r[i] = world_add_new(&w, i, 60, 80);
    world_run(&w, 200);
    assert_int_equal(world_state(&w).n_leases, 0);
    assert_int_equal(world_state(&w).preemptions, 0);
    world_request_destroy(leased);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void a_fork_is_a_name_more_for_the_same_blocks(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = run_leased(&w, 1, 81, 1, 1000000);
    assert_int_equal(relay_scheduler_fork(w.scheduler, name(1), name(2), 1000000, w.now), 80);
    assert_int_equal(world_state(&w).n_leases, 2);
    assert_int_equal(world_state(&w).used_blocks, 2 * 5);
    expect_sound(&w);
    assert_true(relay_scheduler_release(w.scheduler, name(1)));
    assert_int_equal(world_state(&w).used_blocks, 2 * 5);
    assert_true(relay_scheduler_release(w.scheduler, name(2)));
    assert_int_equal(world_state(&w).used_blocks, 0);
    assert_int_equal(relay_scheduler_fork(w.scheduler, name(1), name(2), 1000000, w.now), 0); // a miss, no error
    assert_false(relay_scheduler_release(w.scheduler, name(2)));
    // Onto itself: the lease is made anew.
    world_request *again = run_leased(&w, 1, 81, 1, 1000000);
    assert_int_equal(relay_scheduler_fork(w.scheduler, name(1), name(1), 5000, w.now), 80);
    assert_int_equal(world_state(&w).n_leases, 1);
    assert_int_equal(relay_scheduler_next_expiry(w.scheduler), w.now + 5000);
    expect_sound(&w);
    world_request_destroy(r);
    world_request_destroy(again);
    world_fini(&w);
}

static void a_running_sequence_is_forked_as_far_as_it_is(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = world_request_create(300, 20, 1);
    r->request.sequence_key = name(1);
    world_add(&w, r, 0);
    world_steps(&w, 2);
    assert_int_equal(relay_scheduler_fork(w.scheduler, name(1), name(2), 1000000, w.now), 128);
    relay_scheduler_cancel(w.scheduler, 0, w.now);
    expect_sound(&w);
    assert_int_equal(world_state(&w).used_blocks, 2 * 8);
    world_request_destroy(r);
    world_fini(&w);
}

static void the_next_turn_of_a_name_takes_its_lease_over(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[2];
    r[0] = run_leased(&w, 1, 81, 1, 1000000);
    r[1] = run_leased(&w, 1, 161, 1, 1000000);
    assert_int_equal(r[1]->cached_tokens, 80);
    assert_int_equal(world_state(&w).n_leases, 1);
    assert_int_equal(world_state(&w).used_blocks, 2 * 10);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

static void more_than_there_are_places_for_push_out_the_oldest(void **state) {
    world w;
    world_init(&w, &world_roomy); // eight places
    world_request *r[10];
    for (uint32_t i = 0; i < 10; i++)
        r[i] = run_leased(&w, 1 + i, 33, 1 + i, 1000000);
    assert_int_equal(world_state(&w).n_leases, 8);
    assert_false(relay_scheduler_release(w.scheduler, name(2)));
    assert_true(relay_scheduler_release(w.scheduler, name(3)));
    world_requests_destroy(r, 10);
    world_fini(&w);
}

static void neither_a_cancelled_one_nor_one_that_is_not_stored_is_leased(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = world_request_create(i == 2 ? 12 : 60, 5, i); // the last is less than a block
        r[i]->request.sequence_key = name(i);
        r[i]->request.lease_us = 1000000;
        r[i]->request.do_not_store = i == 1;
        r[i]->request.max_new_tokens = i == 2 ? 1 : 5;
        world_add(&w, r[i], i);
    }
    world_steps(&w, 1);
    relay_scheduler_cancel(w.scheduler, 0, w.now);
    world_run(&w, 100);
    assert_int_equal(world_state(&w).n_leases, 0);
    world_requests_destroy(r, 3);
    world_fini(&w);
}

static void with_a_window_a_lease_holds_what_the_sequence_held(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.window[1] = 40;
    world_init(&w, &opts);
    world_request *r = run_leased(&w, 1, 1000, 1, 1000000);
    assert_int_equal(world_state(&w).used_blocks, 62 + 2);
    expect_sound(&w);
    assert_true(relay_scheduler_release(w.scheduler, name(1)));
    assert_int_equal(world_state(&w).used_blocks, 0);
    world_request_destroy(r);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leased_sequence_is_there_when_cached_ones_are_gone),
        cmocka_unit_test(a_lease_ends_with_its_time),
        cmocka_unit_test(the_oldest_lease_gives_way_first_and_nobody_fails),
        cmocka_unit_test(who_runs_takes_leases_before_it_preempts),
        cmocka_unit_test(a_fork_is_a_name_more_for_the_same_blocks),
        cmocka_unit_test(a_running_sequence_is_forked_as_far_as_it_is),
        cmocka_unit_test(the_next_turn_of_a_name_takes_its_lease_over),
        cmocka_unit_test(more_than_there_are_places_for_push_out_the_oldest),
        cmocka_unit_test(neither_a_cancelled_one_nor_one_that_is_not_stored_is_leased),
        cmocka_unit_test(with_a_window_a_lease_holds_what_the_sequence_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
