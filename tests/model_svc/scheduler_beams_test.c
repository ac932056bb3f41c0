// Beams as sequences: whatever happens to them on the way, the best hypothesis is that of a plain loop over the model.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/status.h"
#include "model_svc/beam_search.h"
#include "tests/model_svc/scheduler_world.h"

enum { MAX_IDS = 600 };

static const uint32_t end_ids[] = {3, 12, 50, 61, 100};

typedef struct search {
    world_request *r;
    relay_arena arena;
    uint32_t n_beams;
    float length_penalty;
} search;

static search make_search(uint32_t n_beams, uint32_t n_prompt, uint32_t max_new_tokens, uint64_t seed) {
    search s = {.r = world_request_create(n_prompt, max_new_tokens, seed), .n_beams = n_beams, .length_penalty = 1};
    relay_arena_init(&s.arena, 1 << 20);
    relay_request *r = &s.r->request;
    r->beams = relay_beam_search_create(&s.arena, n_beams, s.length_penalty, false, max_new_tokens);
    assert_non_null(r->beams);
    r->n_sequences = n_beams;
    if (seed % 2 == 0) {
        r->eos_ids = end_ids;
        r->n_eos_ids = 5;
    }
    return s;
}

static void destroy_search(search *s) {
    relay_arena_fini(&s->arena);
    world_request_destroy(s->r);
}

// What is expected of it, by a loop; where it was stopped, of its first `n_stopped` ids.
static void expect_best_of(const search *s, uint32_t n_stopped) {
    const relay_request *r = &s->r->request;
    relay_arena arena;
    relay_arena_init(&arena, 1 << 20);
    relay_beam_search *b = relay_beam_search_create(&arena, s->n_beams, s->length_penalty, false, r->max_new_tokens);
    static uint32_t ids[RELAY_MAX_BEAMS][MAX_IDS];
    for (uint32_t i = 0; i < s->n_beams; i++)
        memcpy(ids[i], s->r->ids, r->n_prompt * sizeof ids[0][0]);
    for (uint32_t n = 0;; n++) {
        if (n == n_stopped) {
            assert_true(relay_beam_search_stop(b));
            break;
        }
        for (uint32_t i = 0; i < s->n_beams; i++) {
            uint32_t top_ids[FAKE_TOPS];
            float logprobs[FAKE_TOPS];
            fake_tops(ids[i], r->n_prompt + n, top_ids, logprobs);
            relay_beam_candidate c[RELAY_BEAM_CANDIDATES];
            for (uint32_t k = 0; k < FAKE_TOPS; k++) {
                c[k] = (relay_beam_candidate){top_ids[k], logprobs[k], false};
                for (uint32_t e = 0; e < r->n_eos_ids; e++)
                    c[k].ends = c[k].ends || top_ids[k] == r->eos_ids[e];
            }
            relay_beam_search_offer(b, i, c);
        }
        uint32_t from[RELAY_MAX_BEAMS], tokens[RELAY_MAX_BEAMS];
        if (relay_beam_search_choose(b, n + 1 == r->max_new_tokens, from, tokens)) break;
        for (uint32_t i = 0; i < s->n_beams; i++)
            relay_beam_search_read(b, i, ids[i] + r->n_prompt);
    }
    uint32_t n;
    bool has_ended;
    double score;
    const uint32_t *best = relay_beam_search_best(b, &n, &has_ended, &score);
    if (n_stopped != UINT32_MAX) {
        world_expect_finish(s->r, RELAY_FINISH_TIME_LIMIT);
    } else {
        world_expect_finish(s->r, has_ended ? RELAY_FINISH_EOS : RELAY_FINISH_MAX_NEW_TOKENS);
        if (has_ended) assert_int_equal(s->r->last.stop_cause, best[n - 1]);
    }
    assert_int_equal(s->r->n_drawn, n);
    assert_memory_equal(s->r->drawn, best, n * sizeof best[0]);
    relay_arena_fini(&arena);
}

static void expect_best(const search *s) {
    expect_best_of(s, UINT32_MAX);
}

// Steps until all have ended; some that only tell have no rows.
static void run(world *w) {
    for (uint32_t i = 0; i < 20000 && w->n_live > 0; i++)
        assert_true(world_step(w) || relay_scheduler_has_more(w->scheduler) || w->n_live == 0);
    assert_int_equal(w->n_live, 0);
    assert_int_equal(world_state(w).used_blocks, 0);
}

static void alone_it_finds_the_best(void **state) {
    for (uint64_t seed = 0; seed < 12; seed++) {
        for (uint32_t n_beams = 2; n_beams <= RELAY_MAX_BEAMS; n_beams += 4) {
            world w;
            world_init(&w, &world_roomy);
            search s = make_search(n_beams, 5 + 13 * (uint32_t)seed, 1 + 9 * (uint32_t)seed, seed);
            world_add(&w, s.r, 0);
            run(&w);
            expect_best(&s);
            destroy_search(&s);
            world_fini(&w);
        }
    }
}

static void beams_share_what_they_have_in_common(void **state) {
    world w;
    world_init(&w, &world_roomy);
    search s = make_search(4, 160, 40, 1);
    world_add(&w, s.r, 0);
    world_steps(&w, 3); // the prompt, a chunk of 64 a step
    assert_int_equal(world_state(&w).used_blocks, 2 * 10);
    world_steps(&w, 1);
    assert_in_range(world_state(&w).used_blocks, 2 * (10 + 1), 2 * (10 + 4)); // at most one of its own each
    run(&w);
    assert_true(w.model.n_copies > 0);
    // Each id of each beam is computed once.
    assert_int_equal(w.model.n_rows, 160 + 4 * 39);
    expect_best(&s);
    destroy_search(&s);
    world_fini(&w);
}

static void preempted_and_beside_others_it_finds_the_same(void **state) {
    for (uint32_t n_blocks = 8; n_blocks <= 40; n_blocks += 8) {
        for (uint32_t max_running = 5; max_running <= 13; max_running += 4) {
            world w;
            relay_scheduler_opts opts = world_roomy;
            opts.n_blocks[0] = n_blocks;
            opts.n_blocks[1] = n_blocks + 1;
            opts.max_running = max_running;
            world_init(&w, &opts);
            search s[6];
            world_request *r[4];
            for (uint32_t i = 0; i < 6; i++) {
                s[i] = make_search(2 + i % 4, 10 + 7 * i, 50, i);
                world_add(&w, s[i].r, i);
                if (i < 4) r[i] = world_add_new(&w, 10 + i, 20, 60);
            }
            srand(n_blocks);
            for (uint32_t n = 0; n < 300 && w.n_live > 0; n++) {
                world_step(&w);
                if (rand() % 3 == 0) relay_scheduler_preempt_request(w.scheduler, (uint32_t)rand() % 6);
            }
            run(&w);
            for (uint32_t i = 0; i < 6; i++) {
                expect_best(&s[i]);
                destroy_search(&s[i]);
                if (i < 4) world_expect_own_ids(r[i]);
            }
            world_requests_destroy(r, 4);
            world_fini(&w);
        }
    }
}

static void what_was_found_is_told_as_credit_allows(void **state) {
    world w;
    world_init(&w, &world_roomy);
    search s = make_search(3, 20, 100, 1);
    s.r->request.initial_credit = 7;
    world_add(&w, s.r, 0);
    while (world_step(&w) || relay_scheduler_has_more(w.scheduler)) {
    }
    assert_int_equal(s.r->n_drawn, 7);
    assert_int_equal(world_state(&w).n_running, 1);
    assert_int_equal(world_state(&w).used_blocks, 0);
    relay_scheduler_add_credit(w.scheduler, 0, 13);
    while (relay_scheduler_has_more(w.scheduler))
        world_step(&w);
    assert_int_equal(s.r->n_drawn, 20);
    relay_scheduler_add_credit(w.scheduler, 0, 1000);
    assert_true(relay_scheduler_has_more(w.scheduler));
    world_step(&w);
    assert_int_equal(s.r->n_drawn, 20 + 64); // so many a step
    run(&w);
    expect_best(&s);
    destroy_search(&s);
    world_fini(&w);
}

static void a_cancel_ends_it_at_any_time(void **state) {
    for (uint32_t n_steps = 0; n_steps < 40; n_steps++) {
        world w;
        world_init(&w, &world_roomy);
        search s = make_search(4, 100, 30, 1);
        s.r->request.initial_credit = 5; // so that the telling can be cut
        world_add(&w, s.r, 0);
        for (uint32_t i = 0; i < n_steps; i++)
            world_step(&w);
        relay_scheduler_cancel(w.scheduler, 0, w.now);
        world_expect_finish(s.r, RELAY_FINISH_CANCELLED);
        assert_null(relay_scheduler_check(w.scheduler));
        assert_int_equal(world_state(&w).used_blocks, 0);
        world_request *next = world_add_new(&w, 0, 20, 5);
        world_run(&w, 10);
        world_expect_own_ids(next);
        world_request_destroy(next);
        destroy_search(&s);
        world_fini(&w);
    }
}

static void a_time_limit_gives_the_best_there_is(void **state) {
    for (uint32_t n_steps = 1; n_steps <= 90; n_steps += 8) {
        for (uint64_t seed = 1; seed < 4; seed++) {
            world w;
            world_init(&w, &world_roomy);
            search s = make_search(4, 20, 100, seed);
            s.r->request.time_limit_at = w.now + n_steps * 1000 + 500; // a step takes 1000
            world_add(&w, s.r, 0);
            world_request *other = world_add_new(&w, 1, 20, 100);
            while (w.n_live > 1)
                assert_true(world_step(&w));
            if (s.r->last.finish == RELAY_FINISH_EOS) {
                expect_best(&s);
            } else {
                expect_best_of(&s, n_steps);
            }
            assert_null(relay_scheduler_check(w.scheduler));
            run(&w);
            world_expect_own_ids(other);
            world_request_destroy(other);
            destroy_search(&s);
            world_fini(&w);
        }
    }
}

static void a_time_limit_ends_what_has_nothing_to_tell(void **state) {
    for (uint32_t credit = 0; credit <= 5; credit += 5) {
        world w;
        world_init(&w, &world_roomy);
        search s = make_search(4, 20, 100, 1);
        s.r->request.initial_credit = credit;
        s.r->request.time_limit_at = w.now + 30 * 1000;
        world_add(&w, s.r, 0);
        for (uint32_t i = 0; i < 40; i++)
            world_step(&w);
        world_expect_finish(s.r, RELAY_FINISH_TIME_LIMIT);
        assert_int_equal(s.r->n_drawn, credit);
        destroy_search(&s);
        world_fini(&w);
    }
    world w;
    world_init(&w, &world_roomy);
    search s = make_search(4, 200, 100, 1);
    s.r->request.time_limit_at = w.now + 2000; // in the prompt
    world_add(&w, s.r, 0);
    run(&w);
    world_expect_finish(s.r, RELAY_FINISH_TIME_LIMIT);
    assert_int_equal(s.r->n_drawn, 0);
    destroy_search(&s);
    world_fini(&w);
}

static void more_beams_than_may_run_are_refused(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 3;
    world_init(&w, &opts);
    search s = make_search(4, 20, 10, 1);
    relay_err e;
    assert_int_equal(relay_scheduler_check_request(w.scheduler, &s.r->request, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "sampling.beam_search.num_beams is 4; at most 3 are computed at a time");
    destroy_search(&s);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_it_finds_the_best),
        cmocka_unit_test(beams_share_what_they_have_in_common),
        cmocka_unit_test(preempted_and_beside_others_it_finds_the_same),
        cmocka_unit_test(what_was_found_is_told_as_credit_allows),
        cmocka_unit_test(a_cancel_ends_it_at_any_time),
        cmocka_unit_test(a_time_limit_gives_the_best_there_is),
        cmocka_unit_test(a_time_limit_ends_what_has_nothing_to_tell),
        cmocka_unit_test(more_beams_than_may_run_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
