// Each behaviour of the scheduler by itself, counted in steps. scheduler_history_test.c mixes them at random.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

enum { MAX_REQUESTS = 64 };

static const relay_scheduler_opts roomy = {
    .n_groups = 2,
    .n_blocks = {4096, 4096},
    .max_context = 4096,
    .max_running = 32,
    .max_sequences = MAX_REQUESTS,
    .token_budget = 128,
    .prompt_chunk = 64,
};

static relay_scheduler_state state_of(const world *w) {
    relay_scheduler_state s;
    relay_scheduler_get_state(w->scheduler, &s);
    return s;
}

static world_request *add_new(world *w, uint32_t id, uint32_t n_prompt, uint32_t max_new_tokens) {
    world_request *r = world_request_create(n_prompt, max_new_tokens, 100 + id);
    world_add(w, r, id);
    return r;
}

static void destroy_all(world_request **r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        world_request_destroy(r[i]);
}

static void run_steps(world *w, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        assert_true(world_step(w));
}

// ---- Batching

static void one_request_is_served_to_its_end(void **state) {
    world w;
    world_init(&w, &roomy);
    world_request *r = add_new(&w, 0, 20, 7);
    world_run(&w, 7); // the prompt's step draws the first
    world_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(r->n_drawn, 7);
    world_expect_own_ids(r);
    assert_int_equal(state_of(&w).used_blocks, 0);
    world_request_destroy(r);
    world_fini(&w);
}

static void a_newcomer_beside_eight_others_has_its_first_token_at_once(void **state) {
    static const uint32_t prompts[] = {1, 16, 64, 65, 300, 1000};
    for (uint32_t k = 0; k < sizeof prompts / sizeof prompts[0]; k++) {
        world w;
        world_init(&w, &roomy);
        world_request *r[9];
        for (uint32_t i = 0; i < 8; i++)
            r[i] = add_new(&w, i, 10 + i, 200);
        run_steps(&w, 5);
        r[8] = add_new(&w, 8, prompts[k], 10);
        uint32_t own_steps = (prompts[k] + roomy.prompt_chunk - 1) / roomy.prompt_chunk;
        for (uint32_t i = 0; i < own_steps; i++) {
            uint32_t before[8];
            for (uint32_t j = 0; j < 8; j++)
                before[j] = r[j]->n_drawn;
            run_steps(&w, 1);
            // Nobody who decodes waits for its prompt.
            for (uint32_t j = 0; j < 8; j++)
                assert_int_equal(r[j]->n_drawn, before[j] + 1);
            assert_int_equal(state_of(&w).n_running, 9);
        }
        assert_int_equal(r[8]->first_token_in, r[8]->added_after + own_steps);
        world_run(&w, 400);
        for (uint32_t i = 0; i < 9; i++)
            world_expect_own_ids(r[i]);
        destroy_all(r, 9);
        world_fini(&w);
    }
}

static void prompts_share_a_step_with_each_other_and_with_decodes(void **state) {
    world w;
    world_init(&w, &roomy);
    world_request *r[4];
    r[0] = add_new(&w, 0, 5, 50);
    run_steps(&w, 1);
    for (uint32_t i = 1; i < 4; i++)
        r[i] = add_new(&w, i, 100, 5);
    run_steps(&w, 1);
    // 1 decode, a chunk of 64, and what the budget leaves.
    assert_int_equal(w.step->n_rows, 128);
    assert_int_equal(w.step->n_sequences, 3);
    assert_int_equal(w.step->n_samples, 1);
    world_run(&w, 100);
    for (uint32_t i = 0; i < 4; i++)
        world_expect_own_ids(r[i]);
    destroy_all(r, 4);
    world_fini(&w);
}

static void a_prompt_takes_as_many_steps_as_it_has_chunks(void **state) {
    static const struct { uint32_t chunk, steps; } cases[] = {{1, 100}, {7, 15}, {64, 2}, {99, 2}, {100, 1}, {0, 1}};
    for (uint32_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        world w;
        relay_scheduler_opts opts = roomy;
        opts.prompt_chunk = cases[k].chunk;
        world_init(&w, &opts);
        world_request *r = add_new(&w, 0, 100, 3);
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
            relay_scheduler_opts opts = roomy;
            opts.prompt_chunk = chunks[k];
            world_init(&w, &opts);
            world_request *r[32];
            for (uint32_t i = 0; i < n; i++) {
                r[i] = add_new(&w, i, 1 + 13 * i % 150, 40);
                if (i % 3 == 0) r[i]->request.sampling.repetition_penalty = 1.2f;
                if (i % 3 == 1) r[i]->request.sampling.presence_penalty = 0.3f;
            }
            world_run(&w, 3000);
            for (uint32_t i = 0; i < n; i++)
                world_expect_own_ids(r[i]);
            assert_true(w.model.max_rows <= opts.token_budget);
            destroy_all(r, n);
            world_fini(&w);
        }
    }
}

// ---- Order

static void waiting_ones_go_by_priority_and_then_by_arrival(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
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
    destroy_all(r, 7);
    world_fini(&w);
}

static void a_large_request_is_not_passed_by_small_ones_for_ever(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
    opts.n_blocks[0] = 10;
    opts.n_blocks[1] = 16;
    opts.prompt_chunk = 0;
    world_init(&w, &opts);
    world_request *r[10];
    r[0] = add_new(&w, 0, 60, 40); // 4 blocks, growing to 7
    run_steps(&w, 1);
    r[1] = add_new(&w, 1, 120, 2); // 8 blocks do not fit
    for (uint32_t i = 2; i < 10; i++)
        r[i] = add_new(&w, i, 5, 2); // would fit
    world_run(&w, 200);
    assert_true(r[1]->started_in > r[0]->started_in);
    for (uint32_t i = 2; i < 10; i++)
        assert_true(r[i]->started_in >= r[1]->started_in);
    destroy_all(r, 10);
    world_fini(&w);
}

// ---- Blocks

static void thirty_two_sequences_waste_under_four_percent(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
    opts.token_budget = 512;
    opts.prompt_chunk = 0;
    world_init(&w, &opts);
    world_request *r[32];
    // They grow from 200 to 2,000 ids and are nowhere at one time.
    for (uint32_t i = 0; i < 32; i++)
        r[i] = add_new(&w, i, 200 + 37 * i, 600 + 1 * i);
    uint64_t unused = 0, slots = 0;
    while (w.n_live > 0) {
        assert_true(world_step(&w)); // which holds every step to 15 slots a sequence and group
        relay_scheduler_state s = state_of(&w);
        unused += (uint64_t)s.used_blocks * RELAY_BLOCK_TOKENS - s.used_slots;
        slots += (uint64_t)s.used_blocks * RELAY_BLOCK_TOKENS;
        if (s.n_running == 32) {
            assert_true((s.used_blocks * RELAY_BLOCK_TOKENS - s.used_slots) * 100 <
                        4ULL * s.used_blocks * RELAY_BLOCK_TOKENS);
        }
    }
    assert_true(unused * 100 < 4 * slots);
    for (uint32_t i = 0; i < 32; i++)
        world_expect_own_ids(r[i]);
    destroy_all(r, 32);
    world_fini(&w);
}

static void blocks_come_with_the_rows_that_need_them(void **state) {
    world w;
    world_init(&w, &roomy);
    world_request *r = add_new(&w, 0, 16, 50);
    run_steps(&w, 1);
    assert_int_equal(state_of(&w).used_blocks, 2); // one in each group; none for the id that was drawn
    run_steps(&w, 1);
    assert_int_equal(state_of(&w).used_blocks, 4);
    run_steps(&w, 15);
    assert_int_equal(state_of(&w).used_blocks, 4);
    run_steps(&w, 1);
    assert_int_equal(state_of(&w).used_blocks, 6);
    world_run(&w, 100);
    assert_int_equal(state_of(&w).touched_blocks, 2 * 5); // 65 of its 66 ids were computed
    world_request_destroy(r);
    world_fini(&w);
}

static void preemption_gives_the_same_ids_and_says_none_twice(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
    opts.n_blocks[0] = 20; // 320 positions for six sequences that grow to 120 each
    opts.n_blocks[1] = 24;
    world_init(&w, &opts);
    world_request *r[6];
    for (uint32_t i = 0; i < 6; i++) {
        r[i] = add_new(&w, i, 20, 100);
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
    assert_int_equal(state_of(&w).preemptions, preemptions);
    destroy_all(r, 6);
    world_fini(&w);
}

static void the_lowest_priority_gives_way_first(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
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
    destroy_all(r, 3);
    world_fini(&w);
}

static void what_was_preempted_waits_until_all_of_it_fits(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 12;
    opts.prompt_chunk = 16;
    world_init(&w, &opts);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++)
        r[i] = add_new(&w, i, 80, 60);
    world_run(&w, 500);
    // Coming back by chunks while the other grows, it would be thrown out again and again.
    assert_int_equal(r[1]->last.preemptions, 1);
    for (uint32_t i = 0; i < 2; i++)
        world_expect_own_ids(r[i]);
    destroy_all(r, 2);
    world_fini(&w);
}

static void a_tiny_pool_serves_everyone_in_turn(void **state) {
    for (uint32_t n_blocks = 1; n_blocks <= 6; n_blocks++) {
        world w;
        relay_scheduler_opts opts = roomy;
        opts.n_blocks[0] = n_blocks;
        opts.n_blocks[1] = n_blocks + 1;
        opts.prompt_chunk = 5;
        world_init(&w, &opts);
        world_request *r[16];
        for (uint32_t i = 0; i < 16; i++)
            r[i] = add_new(&w, i, 1 + i % (16 * n_blocks - 1), 16 * n_blocks);
        world_run(&w, 16 * 16 * n_blocks * 4);
        for (uint32_t i = 0; i < 16; i++) {
            world_expect_finish(r[i], RELAY_FINISH_CONTEXT_FULL);
            assert_int_equal(r[i]->request.n_prompt + r[i]->n_drawn, 16 * n_blocks);
            world_expect_own_ids(r[i]);
        }
        destroy_all(r, 16);
        world_fini(&w);
    }
}

static void the_context_or_a_pool_that_is_full_ends_an_answer(void **state) {
    static const struct {
        uint32_t max_context, n_blocks, most;
    } cases[] = {{50, 100, 50}, {48, 3, 48}, {49, 3, 48}, {1000, 3, 48}, {2, 1, 2}};
    for (uint32_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        world w;
        relay_scheduler_opts opts = roomy;
        opts.max_context = cases[k].max_context;
        opts.n_blocks[1] = cases[k].n_blocks;
        world_init(&w, &opts);
        world_request *r = add_new(&w, 0, 1, 900);
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
    relay_scheduler_opts opts = roomy;
    opts.max_running = 2;
    opts.n_blocks[0] = opts.n_blocks[1] = 6;
    world_init(&w, &opts);
    world_request *r[4];
    for (uint32_t i = 0; i < 2; i++)
        r[i] = add_new(&w, i, 30, 60);
    run_steps(&w, 2);
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
    destroy_all(r, 4);
    world_fini(&w);
}

static void a_preempted_one_goes_on_though_who_waits_before_it_has_no_lane(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
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
        run_steps(&w, 1);
    const relay_sequence *preempted = relay_scheduler_sequence(w.scheduler, 1);
    assert_int_equal(preempted->state, RELAY_SEQUENCE_WAITING);
    assert_int_equal(preempted->n_preemptions, 1);
    world_add(&w, r[2], 2);
    // One lane is with the one that is out of credit, one with the preempted: only that one can move.
    while (r[1]->is_live)
        run_steps(&w, 1);
    assert_true(r[2]->is_live);
    relay_scheduler_add_credit(w.scheduler, 0, 100);
    world_run(&w, 500);
    for (uint32_t i = 0; i < 3; i++)
        world_expect_own_ids(r[i]);
    destroy_all(r, 3);
    world_fini(&w);
}

static void rows_of_who_gives_way_go_to_who_took_its_blocks(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
    opts.max_running = opts.token_budget = 2;
    opts.n_blocks[0] = opts.n_blocks[1] = 3;
    world_init(&w, &opts);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = i == 0 ? world_request_create(15, 33, i) : world_request_create(40, 8, i);
        r[i]->request.priority = (int32_t)i;
    }
    world_add(&w, r[0], 0);
    run_steps(&w, 8);
    world_add(&w, r[1], 1);
    while (state_of(&w).preemptions == 0)
        run_steps(&w, 1);
    assert_int_equal(w.step->n_sequences, 1);
    assert_int_equal(w.step->n_rows, 2);
    world_run(&w, 500);
    for (uint32_t i = 0; i < 2; i++)
        world_expect_own_ids(r[i]);
    destroy_all(r, 2);
    world_fini(&w);
}

// ---- Ends

static void cancel_ends_it_wherever_it_is(void **state) {
    enum { IN_QUEUE, IN_PROMPT, DECODING, PAUSED, PREEMPTED, N_PLACES };
    for (uint32_t place = 0; place < N_PLACES; place++) {
        world w;
        relay_scheduler_opts opts = roomy;
        opts.max_running = 2;
        if (place == PREEMPTED) opts.n_blocks[0] = 8;
        world_init(&w, &opts);
        world_request *other = add_new(&w, 0, 10, 100),
                      *r = world_request_create(place == IN_PROMPT ? 500 : 60, 100, 9);
        if (place == PAUSED) r->request.initial_credit = 2;
        world_request *filler = place == IN_QUEUE ? add_new(&w, 2, 10, 100) : NULL;
        world_add(&w, r, 1);
        const relay_sequence *q = relay_scheduler_sequence(w.scheduler, 1);
        run_steps(&w, place == IN_QUEUE ? 3 : place == IN_PROMPT ? 2 : 8);
        while (place == PREEMPTED && q->n_preemptions == 0)
            run_steps(&w, 1);
        assert_int_equal(q->state,
                         place == IN_QUEUE || place == PREEMPTED ? RELAY_SEQUENCE_WAITING : RELAY_SEQUENCE_RUNNING);
        if (place == IN_PROMPT) assert_true(q->n_computed > 0 && r->n_drawn == 0);
        if (place == PAUSED) assert_true(relay_sequence_is_paused(q));
        uint32_t drawn = r->n_drawn;
        relay_scheduler_cancel(w.scheduler, 1, w.now);
        world_expect_finish(r, RELAY_FINISH_CANCELLED);
        assert_int_equal(r->ended_in, state_of(&w).step + 1);
        relay_scheduler_cancel(w.scheduler, 1, w.now); // again: nothing
        if (filler != NULL) relay_scheduler_cancel(w.scheduler, 2, w.now);
        relay_scheduler_cancel(w.scheduler, 0, w.now);
        assert_int_equal(state_of(&w).used_blocks, 0);
        assert_false(world_step(&w));
        assert_int_equal(r->n_drawn, drawn);
        world_expect_own_ids(r);
        world_request_destroy(other);
        world_request_destroy(r);
        if (filler != NULL) world_request_destroy(filler);
        world_fini(&w);
    }
}

static void the_place_of_an_ended_one_serves_the_next_from_the_start(void **state) {
    world w;
    world_init(&w, &roomy);
    for (uint32_t i = 0; i < 5; i++) {
        world_request *r = world_request_create(40 + i, 10, i);
        r->request.sampling.repetition_penalty = 1.5f; // counts of the one before would show
        world_add(&w, r, 3);
        if (i == 2) {
            run_steps(&w, 3);
            relay_scheduler_cancel(w.scheduler, 3, w.now);
        } else {
            world_run(&w, 20);
        }
        world_expect_own_ids(r);
        world_request_destroy(r);
    }
    world_fini(&w);
}

static void end_ids_end_an_answer_and_min_new_tokens_puts_them_off(void **state) {
    // Which id the model would say fourth.
    world_request *probe = world_request_create(12, 10, 5);
    uint32_t ids[22];
    memcpy(ids, probe->ids, 12 * sizeof ids[0]);
    fake_continue(ids, 12, 10, 5);
    world_request_destroy(probe);
    uint32_t fourth = ids[15];
    for (uint32_t k = 0; k < 4; k++) {
        world w;
        world_init(&w, &roomy);
        world_request *r = world_request_create(12, 10, 5);
        if (k % 2 == 0) {
            r->request.eos_ids = &fourth;
            r->request.n_eos_ids = 1;
        } else {
            r->request.stop_ids = &fourth;
            r->request.n_stop_ids = 1;
        }
        if (k >= 2) r->request.min_new_tokens = 4;
        world_add(&w, r, 0);
        world_run(&w, 20);
        if (k < 2) {
            world_expect_finish(r, k == 0 ? RELAY_FINISH_EOS : RELAY_FINISH_STOP_TOKEN);
            assert_int_equal(r->last.stop_token_id, fourth);
            assert_int_equal(r->n_drawn, 4);
        } else {
            memcpy(ids + 12, r->drawn, 3 * sizeof ids[0]);
            assert_int_equal(r->drawn[3], fake_next(ids, 15, 5, &fourth, 1));
            assert_int_not_equal(r->drawn[3], fourth);
        }
        world_request_destroy(r);
        world_fini(&w);
    }
}

static void an_end_id_on_the_last_allowed_token_is_the_reason(void **state) {
    world w;
    world_init(&w, &roomy);
    world_request *r = world_request_create(12, 1, 5);
    uint32_t first = fake_next(r->ids, 12, 5, NULL, 0);
    r->request.eos_ids = &first;
    r->request.n_eos_ids = 1;
    world_add(&w, r, 0);
    world_run(&w, 1);
    world_expect_finish(r, RELAY_FINISH_EOS);
    assert_int_equal(r->n_drawn, 1); // it is told, too
    world_request_destroy(r);
    world_fini(&w);
}

static void a_deadline_fails_it_and_a_time_limit_ends_it_wherever_it_is(void **state) {
    enum { IN_QUEUE, DECODING, PAUSED, N_PLACES };
    for (uint32_t place = 0; place < N_PLACES; place++) {
        for (uint32_t limit = 0; limit < 5; limit++) {
            world w;
            relay_scheduler_opts opts = roomy;
            opts.max_running = 1;
            world_init(&w, &opts);
            world_request *other = world_request_create(5, 50, 1), *r = world_request_create(5, 50, 2);
            if (place == IN_QUEUE) world_add(&w, other, 0);
            if (place == PAUSED) r->request.initial_credit = 1;
            // 4 ms and 6 ms: steps take 1 ms here. Of two, the first counts; of equal ones the milder.
            if (limit != 1) r->request.deadline = w.now + (limit == 3 ? 6000 : 4000);
            if (limit != 0) r->request.time_limit_at = w.now + (limit == 2 ? 6000 : 4000);
            world_add(&w, r, 1);
            for (uint32_t i = 0; i < 10 && r->is_live; i++) {
                if (!world_step(&w))
                    assert_int_equal(relay_scheduler_next_expiry(w.scheduler),
                                     place == PAUSED && r->is_live ? 4000 : RELAY_NEVER_US);
            }
            assert_false(r->is_live);
            assert_int_equal(w.now, 4000);
            if (limit == 1 || limit >= 3) {
                world_expect_finish(r, RELAY_FINISH_TIME_LIMIT);
            } else {
                assert_int_equal(r->last.kind, RELAY_EVENT_FAILED);
                assert_int_equal(r->last.code, RELAY_DEADLINE_EXCEEDED);
                assert_non_null(strstr(r->last.message, place == IN_QUEUE ? "waiting" : "running"));
            }
            assert_int_equal(r->n_drawn, place == IN_QUEUE ? 0 : place == PAUSED ? 1 : 3);
            if (place == IN_QUEUE) relay_scheduler_cancel(w.scheduler, 0, w.now);
            assert_int_equal(state_of(&w).used_blocks, 0);
            world_request_destroy(other);
            world_request_destroy(r);
            world_fini(&w);
        }
    }
}

static void each_deadline_is_kept(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
    opts.max_running = 1;
    world_init(&w, &opts);
    world_request *r[4];
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = world_request_create(5, 50, i);
        if (i > 0) r[i]->request.deadline = 1000 * (9 - 2 * i);
        world_add(&w, r[i], i);
    }
    for (uint32_t t = 1; t <= 8; t++) {
        run_steps(&w, 1);
        for (uint32_t i = 1; i < 4; i++)
            assert_int_equal(r[i]->is_live, t < 9 - 2 * i);
        assert_int_equal(relay_scheduler_next_expiry(w.scheduler), t < 3   ? 3000
                                                                   : t < 5 ? 5000
                                                                   : t < 7 ? 7000
                                                                           : RELAY_NEVER_US);
    }
    relay_scheduler_cancel(w.scheduler, 0, w.now);
    destroy_all(r, 4);
    world_fini(&w);
}

static void logits_that_are_not_finite_fail_their_sequence_alone(void **state) {
    world w;
    world_init(&w, &roomy);
    world_request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = world_request_create(40, 10, i);
        if (i == 1) r[i]->ids[20] = FAKE_POISON;
        world_add(&w, r[i], i);
    }
    world_run(&w, 20);
    assert_int_equal(r[1]->last.kind, RELAY_EVENT_FAILED);
    assert_int_equal(r[1]->last.code, RELAY_INTERNAL);
    assert_non_null(strstr(r[1]->last.message, "position 40"));
    assert_int_equal(r[1]->n_drawn, 0);
    for (uint32_t i = 0; i < 3; i += 2) {
        world_expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
        world_expect_own_ids(r[i]);
    }
    assert_int_equal(state_of(&w).used_blocks, 0);
    destroy_all(r, 3);
    world_fini(&w);
}

static void end_all_ends_all(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
    opts.max_running = 2;
    world_init(&w, &opts);
    world_request *r[5];
    for (uint32_t i = 0; i < 5; i++)
        r[i] = add_new(&w, i, 30, 10);
    run_steps(&w, 3);
    relay_scheduler_end_all(w.scheduler, w.now);
    for (uint32_t i = 0; i < 5; i++) {
        world_expect_finish(r[i], RELAY_FINISH_DRAINED);
        assert_int_equal(r[i]->n_drawn > 0, i < 2);
    }
    assert_int_equal(state_of(&w).used_blocks, 0);
    assert_false(world_step(&w));
    destroy_all(r, 5);
    world_fini(&w);
}

static void times_are_told_apart(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
    opts.max_running = 1;
    world_init(&w, &opts);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++)
        r[i] = add_new(&w, i, 100, 3);
    world_run(&w, 20);
    // A step is a millisecond and events carry the time of its beginning: two of prompt, then two more tokens.
    assert_int_equal(r[0]->last.queue_us, 1000);
    assert_int_equal(r[0]->last.prefill_us, 1000);
    assert_int_equal(r[0]->last.decode_us, 2000);
    assert_int_equal(r[1]->last.queue_us, 5000);
    assert_int_equal(r[1]->last.prefill_us, 1000);
    assert_int_equal(r[1]->last.decode_us, 2000);
    assert_int_equal(state_of(&w).prefill_tokens, 200);
    assert_int_equal(state_of(&w).decode_tokens, 6);
    destroy_all(r, 2);
    world_fini(&w);
}

// ---- Credit

static void without_credit_it_keeps_its_blocks_and_draws_nothing(void **state) {
    world w;
    world_init(&w, &roomy);
    world_request *r = world_request_create(40, 20, 1);
    r->request.initial_credit = 5;
    world_add(&w, r, 0);
    run_steps(&w, 5);
    for (uint32_t i = 0; i < 3; i++)
        assert_false(world_step(&w));
    assert_int_equal(r->n_drawn, 5);
    assert_int_equal(state_of(&w).n_running, 1);
    assert_int_equal(state_of(&w).used_blocks, 2 * 3);
    relay_scheduler_add_credit(w.scheduler, 0, 2);
    run_steps(&w, 2);
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
    relay_scheduler_opts opts = roomy;
    opts.n_blocks[0] = opts.n_blocks[1] = 10;
    world_init(&w, &opts);
    world_request *r[4];
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = world_request_create(60, 80, i);
        r[i]->request.initial_credit = i == 3 ? RELAY_UNLIMITED_CREDIT : i == 2 ? 0 : 1;
        r[i]->request.priority = i == 3 ? -1 : 0; // it ranks below all who are paused
        if (i < 3) world_add(&w, r[i], i);
    }
    run_steps(&w, 1);
    assert_false(world_step(&w));
    assert_int_equal(state_of(&w).used_blocks, 2 * 2 * 4);
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
    destroy_all(r, 4);
    world_fini(&w);
}

// ---- Resuming

static void a_resumed_answer_goes_on_as_if_nothing_had_happened(void **state) {
    for (uint32_t n_resumed = 0; n_resumed < 10; n_resumed++) {
        world w;
        world_init(&w, &roomy);
        world_request *r = world_request_create(30 + n_resumed, 10, 1);
        fake_continue(r->ids, 30, n_resumed, 1);
        r->request.n_prompt = 30;
        r->request.sampling.repetition_penalty = 1.3f;
        world_add(&w, r, 0);
        world_run(&w, 20);
        world_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
        assert_int_equal(r->n_drawn, 10 - n_resumed);
        assert_int_equal(r->last.output_tokens, 10);
        world_expect_own_ids(r);
        world_request_destroy(r);
        world_fini(&w);
    }
}

static void a_resumed_answer_that_was_at_its_end_ends_at_once(void **state) {
    static const relay_finish reasons[] = {RELAY_FINISH_EOS, RELAY_FINISH_STOP_TOKEN, RELAY_FINISH_MAX_NEW_TOKENS,
                                           RELAY_FINISH_CONTEXT_FULL};
    for (uint32_t k = 0; k < 4; k++) {
        world w;
        relay_scheduler_opts opts = roomy;
        opts.max_context = 40;
        world_init(&w, &opts);
        world_request *r = world_request_create(k == 3 ? 40 : 36, 10, 1);
        r->request.n_prompt = 32;
        uint32_t last = r->ids[35];
        r->request.eos_ids = r->request.stop_ids = &last;
        r->request.n_eos_ids = k == 0;
        r->request.n_stop_ids = k == 1;
        if (k == 2) r->request.max_new_tokens = 4;
        world_add(&w, r, 0);
        world_expect_finish(r, reasons[k]);
        assert_false(r->is_started);
        assert_false(world_step(&w));
        world_request_destroy(r);
        world_fini(&w);
    }
}

// ---- What is refused

static void expect_refused(const world *w, const relay_request *r, const char *message) {
    relay_err e = {0};
    assert_int_equal(relay_scheduler_check_request(w->scheduler, r, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, message);
}

static void what_could_never_fit_is_refused_with_the_limit(void **state) {
    world w;
    relay_scheduler_opts opts = roomy;
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
        cmocka_unit_test(cancel_ends_it_wherever_it_is),
        cmocka_unit_test(the_place_of_an_ended_one_serves_the_next_from_the_start),
        cmocka_unit_test(end_ids_end_an_answer_and_min_new_tokens_puts_them_off),
        cmocka_unit_test(an_end_id_on_the_last_allowed_token_is_the_reason),
        cmocka_unit_test(a_deadline_fails_it_and_a_time_limit_ends_it_wherever_it_is),
        cmocka_unit_test(each_deadline_is_kept),
        cmocka_unit_test(logits_that_are_not_finite_fail_their_sequence_alone),
        cmocka_unit_test(end_all_ends_all),
        cmocka_unit_test(times_are_told_apart),
        cmocka_unit_test(without_credit_it_keeps_its_blocks_and_draws_nothing),
        cmocka_unit_test(who_waits_for_credit_keeps_nobody_waiting),
        cmocka_unit_test(a_resumed_answer_goes_on_as_if_nothing_had_happened),
        cmocka_unit_test(a_resumed_answer_that_was_at_its_end_ends_at_once),
        cmocka_unit_test(what_could_never_fit_is_refused_with_the_limit),
        cmocka_unit_test(destroying_none_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
