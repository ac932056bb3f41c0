// Many short random histories in small worlds: arrivals, priorities, several answers, cancels, forks, leases, credit,
// deadlines, resumed answers, common beginnings, salts, tenants, windows, tiny pools. After every step all invariants
// hold, the first in rank has moved, and in the end everybody has exactly the answer that a plain loop over the model
// gives.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

#ifdef __SANITIZE_ADDRESS__
enum { N_HISTORIES = 3000 };
#else
enum { N_HISTORIES = 8000 };
#endif

enum { MAX_SEQUENCES = 10, MAX_REQUESTS = 24 };

static uint32_t n_histories = N_HISTORIES; // or as many as the command line says
static uint32_t history;                   // the one that runs, for whoever reads a failure; 0 after the last
static uint64_t random_state;

static void tell_history(void) {
    if (history != 0) fprintf(stderr, "it failed in history %u\n", history);
}

// xorshift64* (Vigna 2016): the same histories everywhere.
static uint32_t below(uint32_t n) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * UINT64_C(2685821657736338717)) >> 33) % n;
}

static uint32_t between(uint32_t low, uint32_t high) {
    return low + below(high - low + 1);
}

static bool chance(uint32_t percent) {
    return below(100) < percent;
}

typedef struct story {
    world w;
    world_request *requests[MAX_REQUESTS];
    uint32_t n_requests;
    uint32_t most_tokens; // of one sequence
    uint32_t eos_ids[40];
    relay_arena arena; // of beam searches
} story;

static relay_scheduler_opts random_opts(void) {
    uint32_t max_running = between(1, 4);
    relay_scheduler_opts o = {
        .n_groups = between(1, 2),
        .n_blocks = {between(1, 8), between(1, 8)},
        .vocab_size = FAKE_VOCAB,
        .window = {chance(20) ? between(2, 40) : 0, chance(30) ? between(2, 40) : 0},
        .max_context = between(2, 90),
        .max_running = max_running,
        .max_sequences = MAX_SEQUENCES,
        .token_budget = max_running + below(24),
        .max_leases = below(4),
        .prompt_chunk = chance(50) ? 0 : between(1, 20),
        .step_target = chance(50) ? between(1, 50) : 0,
    };
    return o;
}

static uint32_t live_answers(const story *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_requests; i++) {
        if (s->requests[i]->is_live) n += s->requests[i]->request.n_sequences;
    }
    return n;
}

static bool id_is_taken(const story *s, uint32_t id) {
    for (uint32_t i = 0; i < s->n_requests; i++) {
        if (s->requests[i]->is_live && s->requests[i]->id == id) return true;
    }
    return false;
}

static relay_sequence_key random_key(void) {
    return (relay_sequence_key){.low = 1 + below(6)};
}

// A beam search in the place of draws; what it finds is scheduler_beams_test's to know, here it is a crowd of sequences
// that wait for one another.
static void make_search(story *s, world_request *r, uint32_t n_beams) {
    r->request.beams = relay_beam_search_create(&s->arena, n_beams, 1, false, r->request.max_new_tokens);
    assert_non_null(r->request.beams);
    r->request.sampling = (relay_sample_params){.top_p = 1, .repetition_penalty = 1, .seed = r->request.sampling.seed};
    r->request.min_new_tokens = 0;
    r->request.n_eos_ids = r->request.n_eos_ids > 0 ? 5 : 0;
}

static void arrive(story *s) {
    uint32_t id = below(MAX_SEQUENCES);
    uint32_t n_answers = chance(25) ? between(1, s->w.opts.max_running) : 1;
    if (s->n_requests == MAX_REQUESTS || id_is_taken(s, id)) return;
    if (live_answers(s) + n_answers > MAX_SEQUENCES) return; // as the engine's queue sees to
    uint32_t n_prompt = between(1, s->most_tokens - 1);
    uint32_t n_resumed = chance(20) ? below(s->most_tokens - n_prompt + 1) : 0;
    // Few seeds, so that many begin alike.
    world_request *r =
        world_request_create(n_prompt + n_resumed, between(n_resumed + 1, n_resumed + 60), history * 100 + below(3));
    r->request.n_prompt = n_prompt;
    r->request.sampling.sequence_index = n_resumed > 0 ? below(2) : 0;
    world_request_set_answers(r, n_resumed > 0 ? 1 : n_answers);
    r->request.priority = (int32_t)between(0, 2) - 1;
    static const char *const tenants[] = {"", "a", "b"};
    r->request.tenant = tenants[below(3)];
    r->request.salt[0] = (uint8_t)below(2);
    r->request.bypass_prefix_cache = chance(5);
    r->request.do_not_store = chance(5);
    r->request.sequence_key = random_key();
    if (chance(20)) r->request.lease_us = 1000 * between(1, 100);
    if (chance(30)) r->request.initial_credit = below(10);
    if (chance(60)) {
        r->request.eos_ids = s->eos_ids;
        r->request.n_eos_ids = 40;
        if (chance(30)) r->request.min_new_tokens = below(r->request.max_new_tokens);
    }
    if (chance(30)) r->request.sampling.repetition_penalty = 1.1f;
    if (chance(30)) r->request.sampling.frequency_penalty = 0.5f;
    if (chance(5)) r->request.deadline = s->w.now + 1000 * between(1, 60);
    if (chance(5)) r->request.time_limit_at = s->w.now + 1000 * between(1, 60);
    if (n_resumed == 0 && n_answers > 1 && chance(40)) make_search(s, r, n_answers);
    s->requests[s->n_requests++] = r;
    world_add(&s->w, r, id);
}

// The live sequence that is before all others that run and have credit.
static const relay_sequence *first_in_rank(const story *s) {
    const relay_sequence *first = NULL;
    for (uint32_t id = 0; id < 2 * MAX_SEQUENCES; id++) {
        const relay_sequence *q = relay_scheduler_sequence(s->w.scheduler, id);
        if (q->state != RELAY_SEQUENCE_RUNNING || relay_sequence_is_paused(q)) continue;
        if (first == NULL || relay_sequence_ranks_before(q, first)) first = q;
    }
    return first;
}

static void step(story *s) {
    const relay_sequence *first = first_in_rank(s);
    relay_sequence before = {0};
    if (first != NULL) before = *first;
    world_step(&s->w);
    // A beam may go on as another one, which has been preempted.
    if (first != NULL && first->arrival == before.arrival && first->index == before.index &&
        first->state != RELAY_SEQUENCE_NONE && first->request->beams == NULL) {
        assert_int_equal(first->n_preemptions, before.n_preemptions);
        assert_true(first->n_computed > before.n_computed);
    }
}

static void disturb(story *s) {
    if (chance(25)) arrive(s);
    if (chance(2)) s->w.now += RELAY_HEAD_START / 2 * between(1, 4);
    if (chance(5)) {
        relay_scheduler_fork(s->w.scheduler, random_key(), random_key(), 1000 * between(1, 100), s->w.now);
    }
    if (chance(3)) relay_scheduler_release(s->w.scheduler, random_key());
    for (uint32_t i = 0; i < s->n_requests; i++) {
        world_request *r = s->requests[i];
        if (!r->is_live) continue;
        if (chance(2)) relay_scheduler_preempt_request(s->w.scheduler, r->id);
        if (chance(1)) relay_scheduler_cancel(s->w.scheduler, r->id, s->w.now);
        if (chance(10)) relay_scheduler_add_credit(s->w.scheduler, r->id, below(6));
    }
}

// What is left has credit and no more company: every step brings somebody nearer to the end, so there are at most as
// many as all of them have ids, once for what is computed anew and once for what is drawn. Where beams do not fit side
// by side they take turns, and each id of each may be computed behind all that are before it.
static void let_them_end(story *s) {
    uint32_t most_steps = 1;
    for (uint32_t i = 0; i < s->n_requests; i++) {
        world_request *r = s->requests[i];
        if (!r->is_live) continue;
        relay_scheduler_add_credit(s->w.scheduler, r->id, RELAY_UNLIMITED_CREDIT);
        uint32_t most_rows = r->request.beams == NULL ? 2 : r->request.max_new_tokens + 1;
        most_steps += most_rows * s->most_tokens * r->request.n_sequences;
    }
    while (s->w.n_live > 0) {
        assert_true(most_steps-- > 0);
        step(s);
    }
}

// The answer by a plain loop: no batch, no cache.
static void expect_answer(const story *s, const world_request *r, uint32_t index) {
    uint64_t seed = fake_seed(r->request.sampling.seed, r->request.sampling.sequence_index + index);
    const uint32_t *drawn = r->all_drawn + index * r->request.max_new_tokens;
    uint32_t n_drawn = r->n_all_drawn[index];
    uint32_t ids[256], n = r->request.n_tokens;
    memcpy(ids, r->ids, n * sizeof ids[0]);
    relay_finish why = RELAY_FINISH_NONE;
    bool is_cut = r->finishes[index] == RELAY_FINISH_NONE || r->finishes[index] == RELAY_FINISH_CANCELLED ||
                  r->finishes[index] == RELAY_FINISH_TIME_LIMIT;
    for (uint32_t i = 0;; i++) {
        uint32_t n_output = n - r->request.n_prompt;
        bool is_eos = n_output > r->request.min_new_tokens && r->request.n_eos_ids > 0 && ids[n - 1] < 40;
        if (n_output > 0) {
            why = is_eos                                  ? RELAY_FINISH_EOS
                  : n_output >= r->request.max_new_tokens ? RELAY_FINISH_MAX_NEW_TOKENS
                  : n >= s->most_tokens                   ? RELAY_FINISH_CONTEXT_FULL
                                                          : RELAY_FINISH_NONE;
        }
        if (i == n_drawn && is_cut) return;
        if (why != RELAY_FINISH_NONE) break;
        assert_true(i < n_drawn);
        bool is_masked = n_output < r->request.min_new_tokens;
        ids[n] = fake_next(ids, n, seed, s->eos_ids, is_masked ? r->request.n_eos_ids : 0);
        assert_int_equal(drawn[i], ids[n]);
        n++;
    }
    assert_int_equal(n_drawn, n - r->request.n_tokens);
    assert_int_equal(r->finishes[index], why);
}

static void live(uint32_t seed) {
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    story s = {0};
    relay_arena_init(&s.arena, 1 << 24);
    for (uint32_t i = 0; i < 40; i++)
        s.eos_ids[i] = i;
    relay_scheduler_opts opts = random_opts();
    world_init(&s.w, &opts);
    s.w.step_us = below(20);
    s.w.row_us = below(5);
    s.most_tokens = opts.max_context;
    for (uint32_t g = 0; g < opts.n_groups; g++) {
        uint32_t slots = opts.n_blocks[g] * RELAY_BLOCK_TOKENS;
        if (opts.window[g] != 0 && opts.n_blocks[g] >= (opts.window[g] + 14) / 16 + 1) continue;
        if (slots < s.most_tokens) s.most_tokens = slots;
    }
    for (uint32_t n = between(5, 80); n > 0; n--) {
        disturb(&s);
        step(&s);
    }
    let_them_end(&s);
    relay_scheduler_state state;
    relay_scheduler_get_state(s.w.scheduler, &state);
    while (relay_scheduler_next_expiry(s.w.scheduler) != RELAY_NEVER_US) {
        s.w.now = relay_scheduler_next_expiry(s.w.scheduler);
        relay_scheduler_expire(s.w.scheduler, s.w.now);
    }
    relay_scheduler_get_state(s.w.scheduler, &state);
    assert_int_equal(state.n_leases, 0);
    assert_int_equal(state.used_blocks, 0);
    for (uint32_t i = 0; i < s.n_requests; i++) {
        bool is_search = s.requests[i]->request.beams != NULL;
        for (uint32_t k = 0; k < s.requests[i]->request.n_sequences && !is_search; k++)
            expect_answer(&s, s.requests[i], k);
        world_request_destroy(s.requests[i]);
    }
    world_fini(&s.w);
    relay_arena_fini(&s.arena);
}

static void whatever_happens_all_holds_and_everyone_ends(void **state) {
    for (history = 1; history <= n_histories; history++)
        live(history);
    history = 0;
}

int main(int argc, char **argv) {
    if (argc > 1) n_histories = (uint32_t)atoi(argv[1]);
    atexit(tell_history);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_happens_all_holds_and_everyone_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
