// Traces of real services, scaled to what a test can do: how many slots are wasted, and how many prompts are found.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/status.h"
#include "tests/model_svc/scheduler_world.h"

static FILE *open_trace(const char *name) {
    char path[96];
    snprintf(path, sizeof path, "tests/data/traces/%s.txt", name);
    FILE *f = fopen(path, "r");
    if (f == NULL) fail_msg("%s is missing", path);
    return f;
}

// ---- Waste

enum { N_TRACED = 200, SCALE = 4, MAX_CONTEXT = 4096 };

typedef struct traced {
    unsigned at_ms, n_prompt, n_output;
} traced;

static uint32_t read_lengths(const char *name, bool has_times, traced *out) {
    FILE *f = open_trace(name);
    uint32_t n = 0;
    traced t = {0};
    while (n < N_TRACED && (!has_times || fscanf(f, "%u", &t.at_ms) == 1) &&
           fscanf(f, "%u %u", &t.n_prompt, &t.n_output) == 2) {
        if (!has_times) t.at_ms = n * 250;
        out[n++] = t;
    }
    fclose(f);
    return n;
}

static uint32_t scaled(uint32_t length, uint32_t max) {
    uint32_t n = length / SCALE;
    return n == 0 ? 1 : n < max ? n : max;
}

static void expect_little_waste(const char *name, bool has_times) {
    static traced trace[N_TRACED];
    static world_request *r[N_TRACED];
    uint32_t n = read_lengths(name, has_times, trace), next = 0;
    assert_int_equal(n, N_TRACED);
    world w;
    relay_scheduler_opts opts = world_roomy; // two groups
    opts.max_context = MAX_CONTEXT;
    opts.max_sequences = N_TRACED;
    opts.token_budget = 512;
    opts.prompt_chunk = 0;
    opts.step_target = 50000;
    opts.n_blocks[0] = opts.n_blocks[1] = 1000;
    world_init(&w, &opts);
    w.step_us = 5000;
    w.row_us = 100;
    uint64_t unused = 0, slots = 0, n_tokens = 0;
    while (next < n || w.n_live > 0) {
        if (w.n_live == 0 && next < n && w.now < trace[next].at_ms * 1000) w.now = trace[next].at_ms * 1000;
        for (; next < n && trace[next].at_ms * 1000 <= w.now; next++) {
            uint32_t n_prompt = scaled(trace[next].n_prompt, 3000), n_output = scaled(trace[next].n_output, 1000);
            r[next] = world_add_new(&w, next, n_prompt, n_output);
            n_tokens += n_prompt + n_output;
        }
        world_step(&w); // which holds every moment to 15 slots a sequence and group
        relay_scheduler_state s = world_state(&w);
        unused += s.unused_slots;
        slots += (uint64_t)s.used_blocks * RELAY_BLOCK_TOKENS;
    }
    assert_true(n_tokens / n >= 200);
    assert_true(100 * unused < 4 * slots);
    for (uint32_t i = 0; i < n; i++)
        world_expect_own_ids(r[i]);
    world_requests_destroy(r, n);
    world_fini(&w);
}

static void azure_conversations_waste_under_four_percent(void **state) {
    expect_little_waste("azure_conv", true);
}

static void sharegpt_conversations_waste_under_four_percent(void **state) {
    expect_little_waste("sharegpt", false);
}

// ---- Prefixes

enum { N_PROMPTS = 3000, MAX_BLOCKS = 100, MAX_HASH = 60000 };

// One prompt of the Mooncake trace, as hashes of blocks; 0 at the trace's end.
static uint32_t read_prompt(FILE *f, uint32_t hashes[MAX_BLOCKS]) {
    uint32_t n = 0;
    unsigned first, last;
    char after = ' ';
    while (after != '\n' && fscanf(f, "%u%c", &first, &after) == 2) {
        last = first;
        if (after == '-' && fscanf(f, "%u%c", &last, &after) != 2) return 0;
        for (; first <= last; first++) {
            assert_true(n < MAX_BLOCKS && first < MAX_HASH);
            hashes[n++] = first;
        }
    }
    return n;
}

// A cache of `capacity` blocks that always gives up what was not used for the longest time; of what one prompt used,
// the end before the begin. A ring through the blocks, from the head on the oldest first.
typedef struct exact_lru {
    uint32_t older[MAX_HASH + 1], newer[MAX_HASH + 1];
    bool is_there[MAX_HASH];
    uint32_t n, capacity;
} exact_lru;

enum { HEAD = MAX_HASH };

static void lru_take_out(exact_lru *c, uint32_t hash) {
    c->newer[c->older[hash]] = c->newer[hash];
    c->older[c->newer[hash]] = c->older[hash];
    c->is_there[hash] = false;
    c->n--;
}

static uint32_t lru_use(exact_lru *c, const uint32_t *hashes, uint32_t n) {
    uint32_t n_hits = 0;
    while (n_hits < n && c->is_there[hashes[n_hits]])
        n_hits++;
    for (uint32_t i = n; i-- > 0;) {
        uint32_t hash = hashes[i];
        if (c->is_there[hash]) lru_take_out(c, hash);
        c->older[hash] = c->older[HEAD];
        c->newer[hash] = HEAD;
        c->newer[c->older[HEAD]] = hash;
        c->older[HEAD] = hash;
        c->is_there[hash] = true;
        c->n++;
    }
    while (c->n > c->capacity)
        lru_take_out(c, c->newer[HEAD]);
    return n_hits;
}

static uint32_t working_set(void) {
    static bool seen[MAX_HASH];
    uint32_t hashes[MAX_BLOCKS], n_seen = 0, n;
    FILE *f = open_trace("mooncake_prefixes");
    while ((n = read_prompt(f, hashes)) != 0) {
        for (uint32_t i = 0; i < n; i++) {
            if (!seen[hashes[i]]) n_seen++;
            seen[hashes[i]] = true;
        }
    }
    fclose(f);
    return n_seen;
}

// Ids that no other block has.
static void put_block_ids(uint32_t *ids, uint32_t hash) {
    for (uint32_t i = 0; i < RELAY_BLOCK_TOKENS; i++) {
        ids[i] = hash % FAKE_POISON;
        hash = hash / FAKE_POISON + 7 * i;
    }
}

static void prompts_are_found_as_often_as_by_an_exact_lru(void **state) {
    static exact_lru exact;
    exact.capacity = working_set() / 4;
    exact.older[HEAD] = exact.newer[HEAD] = HEAD;
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.n_groups = 1;
    opts.n_blocks[0] = exact.capacity;
    opts.token_budget = 2048;
    opts.prompt_chunk = 0;
    world_init(&w, &opts);
    FILE *f = open_trace("mooncake_prefixes");
    uint32_t hashes[MAX_BLOCKS], n, n_prompts = 0;
    uint64_t n_blocks = 0, exact_hits = 0;
    while ((n = read_prompt(f, hashes)) != 0) {
        n_prompts++;
        n_blocks += n;
        exact_hits += lru_use(&exact, hashes, n);
        // One id behind its blocks, so that all of them may be found.
        world_request *r = world_request_create(n * RELAY_BLOCK_TOKENS + 1, 1, n_prompts);
        for (uint32_t i = 0; i < n; i++)
            put_block_ids(r->ids + i * RELAY_BLOCK_TOKENS, hashes[i]);
        world_add(&w, r, 0);
        while (r->is_live) {
            assert_true(relay_scheduler_fill(w.scheduler, w.step, w.now));
            fake_model_ops.submit(&w.model, w.step);
            fake_model_ops.complete(&w.model, w.results);
            relay_scheduler_take(w.scheduler, w.step, w.results, w.now);
        }
        world_request_destroy(r);
    }
    fclose(f);
    assert_int_equal(n_prompts, N_PROMPTS);
    assert_null(w.model.error);
    assert_null(relay_scheduler_check(w.scheduler));
    double ours = (double)world_state(&w).cached_tokens / RELAY_BLOCK_TOKENS / (double)n_blocks;
    double theirs = (double)exact_hits / (double)n_blocks;
    if (ours < theirs - 0.02 || ours > theirs + 0.02) fail_msg("hit rate %.4f, exact %.4f", ours, theirs);
    assert_true(theirs > 0.1);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(azure_conversations_waste_under_four_percent),
        cmocka_unit_test(sharegpt_conversations_waste_under_four_percent),
        cmocka_unit_test(prompts_are_found_as_often_as_by_an_exact_lru),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
