// How a step's rows are shared: decoding clients keep their pace beside long prompts, tenants get the same, nobody
// starves. Steps take what the test says, so that all is counted.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/arena.h"
#include "model_svc/beam_search.h"
#include "tests/model_svc/scheduler_world.h"

static void eight_clients_keep_their_pace_beside_a_long_prompt(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_context = 8192;
    opts.token_budget = 512;
    opts.prompt_chunk = 0;
    opts.step_target = 50000;
    world_init(&w, &opts);
    w.step_us = 5000;
    w.row_us = 500;
    world_request *r[9];
    for (uint32_t i = 0; i < 8; i++)
        r[i] = world_add_new(&w, i, 20, 400);
    world_steps(&w, 10);
    r[8] = world_add_new(&w, 8, 4000, 5);
    uint32_t n_steps = 0, n_late = 0;
    while (!r[8]->is_started || r[8]->n_drawn == 0) {
        uint32_t before[8];
        for (uint32_t i = 0; i < 8; i++)
            before[i] = r[i]->n_drawn;
        world_steps(&w, 1);
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(r[i]->n_drawn, before[i] + 1); // a token each in every step
        n_steps++;
        if (w.step->n_rows > 2 * 90) n_late++; // 90 rows are the target
    }
    assert_true(100 * n_late <= n_steps); // p99
    assert_true(n_steps < 4000 / 70);     // and the time is used
    world_run(&w, 1000);
    for (uint32_t i = 0; i < 9; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 9);
    world_fini(&w);
}

static void where_nobody_decodes_a_prompt_gets_the_whole_step(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.token_budget = 512;
    opts.prompt_chunk = 0;
    opts.step_target = 1000;
    world_init(&w, &opts);
    w.step_us = 5000;
    w.row_us = 500;
    world_request *r = world_add_new(&w, 0, 1024, 1);
    world_run(&w, 2);
    world_request_destroy(r);
    world_fini(&w);
}

static world_request *add_for(world *w, uint32_t id, const char *tenant, uint32_t n_prompt, uint32_t max_new_tokens) {
    world_request *r = world_request_create(n_prompt, max_new_tokens, 100 + id);
    r->request.tenant = tenant;
    world_add(w, r, id);
    return r;
}

static void a_tenant_with_many_requests_gets_no_more_than_one_with_few(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 4;
    world_init(&w, &opts);
    world_request *r[24];
    for (uint32_t i = 0; i < 20; i++)
        r[i] = add_for(&w, i, "many", 500, 20);
    world_steps(&w, 2);
    for (uint32_t i = 20; i < 24; i++)
        r[i] = add_for(&w, i, "few", 500, 20);
    while (r[20]->is_live || r[21]->is_live || r[22]->is_live || r[23]->is_live)
        world_steps(&w, 1);
    // Those who came first, and about as many as the other tenant's four since.
    uint32_t n_done = 0;
    for (uint32_t i = 0; i < 20; i++)
        n_done += !r[i]->is_live;
    assert_in_range(n_done, 3, 9);
    world_run(&w, 2000);
    for (uint32_t i = 0; i < 24; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 24);
    world_fini(&w);
}

static void a_short_prompt_passes_the_long_one_of_another_tenant(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.prompt_chunk = 0;
    world_init(&w, &opts);
    world_request *r[3];
    r[0] = add_for(&w, 0, "a", 4000, 5);
    world_steps(&w, 3);
    r[1] = add_for(&w, 1, "b", 100, 5); // fits beside the block that the first in rank gets
    r[2] = add_for(&w, 2, "a", 100, 5);
    world_steps(&w, 2); // they begin level, and of those the first in rank goes before
    assert_int_equal(r[1]->n_drawn, 1);
    while (r[1]->is_live)
        world_steps(&w, 1);
    assert_false(r[2]->is_started); // of the same tenant: behind
    assert_true(r[0]->is_live);
    world_run(&w, 200);
    for (uint32_t i = 0; i < 3; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, 3);
    world_fini(&w);
}

static void a_higher_priority_goes_first_whatever_was_served(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 1;
    world_init(&w, &opts);
    world_request *r[3];
    r[0] = add_for(&w, 0, "a", 100, 50);
    world_steps(&w, 5);
    r[1] = add_for(&w, 1, "b", 100, 5);
    r[2] = world_request_create(100, 5, 2);
    r[2]->request.tenant = "a"; // which has had more
    r[2]->request.priority = 1;
    world_add(&w, r[2], 2);
    world_run(&w, 200);
    assert_true(r[2]->ended_in < r[1]->started_in);
    world_requests_destroy(r, 3);
    world_fini(&w);
}

// An old prompt of the tenant that had most gets on in every step, however many others come for the other tenants.
static void the_first_in_rank_always_gets_on(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 4;
    world_init(&w, &opts);
    world_request *old = add_for(&w, 0, "a", 3000, 5);
    world_steps(&w, 5);
    world_request *others[200];
    uint32_t n = 0;
    while (old->is_live) {
        for (uint32_t id = 1; id < 40 && n < 200; id++) {
            bool is_free = true;
            for (uint32_t i = 0; i < n; i++)
                is_free = is_free && !(others[i]->is_live && others[i]->id == id);
            if (is_free) others[n++] = add_for(&w, id, "b", 100, 2);
        }
        uint32_t before = relay_scheduler_sequence(w.scheduler, 0)->n_computed;
        world_steps(&w, 1);
        const relay_sequence *q = relay_scheduler_sequence(w.scheduler, 0);
        if (q->state == RELAY_SEQUENCE_RUNNING) assert_true(q->n_computed > before);
    }
    world_run(&w, 1000);
    world_request_destroy(old);
    world_requests_destroy(others, n);
    world_fini(&w);
}

enum { WAVES = 200, SECOND = 1000 * 1000 };

// A steady stream of requests of priority 3, always more than can run, and one of priority 0 in it: how many seconds,
// at one step each, it takes it to start. `n_beams` > 1: it is a beam search, and needs that many lanes.
static uint32_t seconds_to_start(uint32_t n_beams, uint32_t n_blocks) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 4;
    opts.n_blocks[0] = opts.n_blocks[1] = n_blocks;
    world_init(&w, &opts);
    w.step_us = SECOND;
    relay_arena arena;
    relay_arena_init(&arena, 1 << 20);
    world_request *stream[WAVES * 2], *low = NULL;
    uint32_t n = 0;
    uint64_t added_after = 0;
    for (uint32_t i = 0; i < WAVES; i++) {
        for (uint32_t id = 0; id < 16 && n < WAVES * 2; id++) {
            bool is_free = true;
            for (uint32_t k = 0; k < n; k++)
                is_free = is_free && !(stream[k]->is_live && stream[k]->id == id);
            if (!is_free) continue;
            stream[n] = world_request_create(40, 10, n);
            stream[n]->request.priority = 3;
            stream[n]->request.tenant = id % 2 == 0 ? "a" : "b";
            world_add(&w, stream[n++], id);
        }
        if (i == 15) {
            low = world_request_create(50, 30, 9999);
            low->request.tenant = "a";
            if (n_beams > 1) {
                low->request.beams = relay_beam_search_create(&arena, n_beams, 1, false, 30);
                low->request.n_sequences = n_beams;
            }
            added_after = world_state(&w).step;
            world_add(&w, low, 20);
        }
        world_step(&w);
    }
    assert_true(n < WAVES * 2); // the stream has not run dry
    assert_false(low->is_live); // who has started is not overtaken again
    world_expect_finish(low, RELAY_FINISH_MAX_NEW_TOKENS);
    uint32_t seconds = (uint32_t)(low->started_in - added_after);
    world_run(&w, 1000);
    world_request_destroy(low);
    world_requests_destroy(stream, n);
    relay_arena_fini(&arena);
    world_fini(&w);
    return seconds;
}

// Sixteen of the stream are before it when it comes, and those of the 30 seconds that follow, four at a time.
static void a_stream_of_higher_priority_delays_a_lower_one_and_no_more(void **state) {
    for (uint32_t n_beams = 1; n_beams <= 4; n_beams += 3) {
        static const uint32_t n_blocks[] = {4096, 14};
        for (uint32_t i = 0; i < 2; i++)
            assert_in_range(seconds_to_start(n_beams, n_blocks[i]), 30, 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_clients_keep_their_pace_beside_a_long_prompt),
        cmocka_unit_test(where_nobody_decodes_a_prompt_gets_the_whole_step),
        cmocka_unit_test(a_tenant_with_many_requests_gets_no_more_than_one_with_few),
        cmocka_unit_test(a_short_prompt_passes_the_long_one_of_another_tenant),
        cmocka_unit_test(a_higher_priority_goes_first_whatever_was_served),
        cmocka_unit_test(the_first_in_rank_always_gets_on),
        cmocka_unit_test(a_stream_of_higher_priority_delays_a_lower_one_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
