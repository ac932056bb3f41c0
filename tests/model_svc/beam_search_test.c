// Beam search beside a plain one that holds every score of every beam and copies of all ids: transformers' loop, line
// by line, in float32 sums as there.
#include "model_svc/beam_search.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 37, MAX_IDS = 24, N_END_IDS = 2 };

// A model: logprobs of all ids behind some.
static void logprobs_of(const uint32_t *ids, uint32_t n, uint64_t seed, float out[VOCAB]) {
    uint64_t hash = seed * 0x9e3779b97f4a7c15 + 1;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ ids[i]) * 0xbf58476d1ce4e5b9;
        hash ^= hash >> 29;
    }
    double sum = 0, logits[VOCAB];
    for (uint32_t i = 0; i < VOCAB; i++) {
        uint64_t x = (hash ^ i * 0x9e3779b97f4a7c15) * 0x94d049bb133111eb;
        x ^= x >> 31;
        logits[i] = (double)(x % 100000) / 20000;
        sum += exp(logits[i]);
    }
    for (uint32_t i = 0; i < VOCAB; i++)
        out[i] = (float)(logits[i] - log(sum));
}

typedef struct outcome {
    uint32_t ids[MAX_IDS], n;
    bool has_ended;
    double score;
} outcome;

// ---- The plain one

typedef struct plain_beam {
    uint32_t ids[MAX_IDS];
    float score;
} plain_beam;

static outcome hypotheses[16];
static uint32_t n_hypotheses;

static uint32_t plain_worst(void) {
    uint32_t at = 0;
    for (uint32_t i = 1; i < n_hypotheses; i++) {
        if (hypotheses[i].score < hypotheses[at].score) at = i;
    }
    return at;
}

static void plain_add(uint32_t n_beams, const outcome *h) {
    if (n_hypotheses >= n_beams && h->score <= hypotheses[plain_worst()].score) return;
    hypotheses[n_hypotheses++] = *h;
    if (n_hypotheses <= n_beams) return;
    uint32_t at = plain_worst();
    for (uint32_t i = at; i + 1 < n_hypotheses; i++)
        hypotheses[i] = hypotheses[i + 1];
    n_hypotheses--;
}

static outcome plain_search(uint32_t n_beams, float length_penalty, bool early_stopping, uint32_t max_new,
                            uint64_t seed) {
    static plain_beam beams[RELAY_MAX_BEAMS], next[RELAY_MAX_BEAMS];
    static float scores[RELAY_MAX_BEAMS * VOCAB];
    n_hypotheses = 0;
    for (uint32_t i = 0; i < n_beams; i++)
        beams[i].score = i == 0 ? 0 : -1e9f;
    for (uint32_t n = 0; n < max_new; n++) {
        for (uint32_t i = 0; i < n_beams; i++) {
            float logprobs[VOCAB];
            logprobs_of(beams[i].ids, n, seed, logprobs);
            for (uint32_t k = 0; k < VOCAB; k++)
                scores[i * VOCAB + k] = beams[i].score + logprobs[k];
        }
        uint32_t n_next = 0;
        float best = 0;
        for (uint32_t rank = 0; rank < 2 * n_beams && n_next < n_beams; rank++) {
            uint32_t top = 0;
            for (uint32_t k = 1; k < n_beams * VOCAB; k++) {
                if (scores[k] > scores[top]) top = k;
            }
            float score = scores[top];
            scores[top] = -INFINITY;
            if (rank == 0) best = score;
            const plain_beam *from = &beams[top / VOCAB];
            uint32_t id = top % VOCAB;
            if (id < N_END_IDS) {
                if (rank >= n_beams) continue;
                outcome h = {.n = n + 1, .has_ended = true};
                memcpy(h.ids, from->ids, n * sizeof h.ids[0]);
                h.ids[n] = id;
                h.score = score / pow(n + 1, (double)length_penalty);
                plain_add(n_beams, &h);
            } else {
                next[n_next] = *from;
                next[n_next].ids[n] = id;
                next[n_next++].score = score;
            }
        }
        memcpy(beams, next, sizeof beams);
        bool is_full = n_hypotheses >= n_beams;
        if (is_full &&
            (early_stopping || hypotheses[plain_worst()].score >= best / pow(n + 1, (double)length_penalty))) {
            goto done;
        }
    }
    for (uint32_t i = 0; i < n_beams; i++) {
        outcome h = {.n = max_new};
        memcpy(h.ids, beams[i].ids, max_new * sizeof h.ids[0]);
        h.score = beams[i].score / pow(max_new, (double)length_penalty);
        plain_add(n_beams, &h);
    }
done:;
    outcome *winner = &hypotheses[0];
    for (uint32_t i = 1; i < n_hypotheses; i++) {
        if (hypotheses[i].score > winner->score) winner = &hypotheses[i];
    }
    return *winner;
}

// ---- Ours

static outcome search(uint32_t n_beams, float length_penalty, bool early_stopping, uint32_t max_new, uint64_t seed) {
    relay_arena arena;
    relay_arena_init(&arena, 1 << 20);
    relay_beam_search *b = relay_beam_search_create(&arena, n_beams, length_penalty, early_stopping, max_new);
    assert_non_null(b);
    uint32_t ids[RELAY_MAX_BEAMS][MAX_IDS], from[RELAY_MAX_BEAMS], tokens[RELAY_MAX_BEAMS];
    for (uint32_t n = 0;; n++) {
        for (uint32_t k = 0; k < n_beams; k++) {
            uint32_t slot = (k + (uint32_t)seed) % n_beams; // in whatever order they come
            float logprobs[VOCAB];
            logprobs_of(ids[slot], n, seed, logprobs);
            relay_beam_candidate c[RELAY_BEAM_CANDIDATES];
            for (uint32_t i = 0; i < RELAY_BEAM_CANDIDATES; i++) {
                uint32_t top = 0;
                for (uint32_t j = 1; j < VOCAB; j++) {
                    if (logprobs[j] > logprobs[top]) top = j;
                }
                c[i] = (relay_beam_candidate){.token_id = top, .logprob = logprobs[top], .ends = top < N_END_IDS};
                logprobs[top] = -INFINITY;
            }
            assert_false(relay_beam_search_has_offer(b, slot));
            assert_int_equal(relay_beam_search_offer(b, slot, c), k + 1 == n_beams);
        }
        if (relay_beam_search_choose(b, n + 1 == max_new, from, tokens)) break;
        uint32_t n_moved = 0;
        for (uint32_t i = 0; i < n_beams; i++) {
            if (from[i] != i) n_moved++;
            if (from[i] != i) assert_int_equal(from[from[i]], from[i]); // nobody moves away whom others follow
            uint32_t before[MAX_IDS];
            relay_beam_search_read(b, i, before);
            assert_int_equal(before[n], tokens[i]);
            memcpy(ids[i], before, (n + 1) * sizeof before[0]);
        }
        assert_true(n_moved < n_beams);
    }
    outcome o = {0};
    const uint32_t *best = relay_beam_search_best(b, &o.n, &o.has_ended, &o.score);
    memcpy(o.ids, best, o.n * sizeof o.ids[0]);
    relay_arena_fini(&arena);
    return o;
}

static void it_finds_what_the_plain_one_finds(void **state) {
    static const float penalties[] = {1, 0, 2, -1, 0.6f};
    uint32_t n_ended = 0, n_cases = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        for (uint32_t n_beams = 1; n_beams <= RELAY_MAX_BEAMS; n_beams += n_beams < 4 ? 1 : 3) {
            for (uint32_t k = 0; k < 10; k++) {
                float penalty = penalties[k / 2];
                uint32_t max_new = 1 + (uint32_t)(seed * 7 + k) % MAX_IDS;
                outcome a = plain_search(n_beams, penalty, k % 2, max_new, seed);
                outcome b = search(n_beams, penalty, k % 2, max_new, seed);
                assert_int_equal(a.n, b.n);
                assert_memory_equal(a.ids, b.ids, a.n * sizeof a.ids[0]);
                assert_int_equal(a.has_ended, b.has_ended);
                assert_true(a.score == b.score);
                n_ended += a.has_ended;
                n_cases++;
            }
        }
    }
    assert_true(n_ended > n_cases / 5 && n_ended < n_cases);
}

static void what_does_not_fit_is_not_made(void **state) {
    relay_arena arena;
    relay_arena_init(&arena, 4096);
    assert_null(relay_beam_search_create(&arena, 4, 1, false, 1000000));
    relay_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_finds_what_the_plain_one_finds),
        cmocka_unit_test(what_does_not_fit_is_not_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
