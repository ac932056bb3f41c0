// One answer, whatever happens: the same tokens and logprobs, bit for bit, alone and in company, in any cut of the
// prompt, on one thread and on two.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "common/message.h"
#include "tests/model_svc/service_world.h"

enum { N_PROBES = 3, PROBE_TOKENS = 40, PROMPT = 150 };

static const uint32_t chunks[] = {0, 7, 1, 64};

#ifdef RELAY_TSAN // looks for races, which do not hang on how much of the same there is
enum { N_OTHERS = 9, N_CHUNKS = 2 };
#else
enum { N_OTHERS = 29, N_CHUNKS = 4 };
#endif

// Greedy, sampled, and sampled with what looks back and what takes out.
static void make_probe(token_request *r, uint32_t i) {
    token_request_init(r, PROMPT + i, PROBE_TOKENS, 1000 + i);
    RELAY_SET(&r->output, top_logprobs, 5);
    RELAY_SET(&r->output, prompt_top_logprobs, i);
    r->message.output = &r->output;
    RELAY_SET(&r->sampling, temperature, i == 0 ? 0 : 0.9f);
    if (i == 0) return;
    RELAY_SET(&r->sampling, top_k, 50);
    RELAY_SET(&r->sampling, top_p, 0.95f);
    if (i == 1) return;
    RELAY_SET(&r->sampling, min_p, 0.01f);
    RELAY_SET(&r->sampling, repetition_penalty, 1.2f);
    RELAY_SET(&r->sampling, frequency_penalty, 0.3f);
    RELAY_SET(&r->sampling, presence_penalty, 0.4f);
    RELAY_SET(&r->sampling, penalty_window, 20);
    RELAY_SET(&r->sampling, typical_p, 0.95f);
    RELAY_SET(&r->sampling, xtc_probability, 0.5f);
    RELAY_SET(&r->sampling, no_repeat_ngram_size, 3);
    RELAY_SET(&r->output, logprob_mode, RELAY__V1__LOGPROB_MODE__LOGPROB_MODE_PROCESSED);
}

static token_answer expected[N_PROBES];

static void expect_same(const token_answer *a, const token_answer *b, const char *where) {
    if (a->n_ids != PROBE_TOKENS || a->n_logprobs != PROBE_TOKENS) fail_msg("%s: %u tokens", where, a->n_ids);
    for (uint32_t i = 0; i < PROBE_TOKENS; i++) {
        if (a->ids[i] != b->ids[i]) fail_msg("%s: token %u is %u, not %u", where, i, a->ids[i], b->ids[i]);
    }
    if (memcmp(a->logprobs, b->logprobs, PROBE_TOKENS * sizeof a->logprobs[0]) != 0) {
        fail_msg("%s: other logprobs", where);
    }
    if (a->top_hash != b->top_hash) fail_msg("%s: other top logprobs", where);
    if (a->n_scores != a->prompt_tokens - 1) fail_msg("%s: %u ids of the prompt are scored", where, a->n_scores);
    if (memcmp(a->scores, b->scores, a->n_scores * sizeof a->scores[0]) != 0 || a->score_hash != b->score_hash) {
        fail_msg("%s: other logprobs of the prompt", where);
    }
}

// The probe number i with nobody beside it.
static void run_alone(service_world *w, uint32_t i, token_answer *out) {
    token_request r;
    make_probe(&r, i);
    session *s = session_open(w, w->client);
    session_start(s, 0, &r.message);
    session_read_until_end(s, 0);
    *out = s->answers[0];
    session_close(s);
}

// Each probe beside all the others.
static void run_in_company(service_world *w, token_answer out[N_PROBES]) {
    session *s = session_open(w, w->client);
    static token_request others[N_OTHERS];
    uint32_t n_probes = 0;
    for (uint32_t k = 0; k < N_OTHERS; k++) {
        token_request_init(&others[k], 5 + 2 * k, 100, k);
        session_start(s, N_PROBES + k, &others[k].message);
        if (k % (N_OTHERS / N_PROBES) != 2) continue;
        token_request r;
        make_probe(&r, n_probes);
        session_start(s, n_probes++, &r.message);
    }
    assert_int_equal(n_probes, N_PROBES);
    for (uint32_t i = 0; i < N_PROBES; i++) {
        session_read_until_end(s, i);
        out[i] = s->answers[i];
    }
    session_close(s);
    service_world_wait_for(w, load_is_empty);
}

static void answers_are_the_same_bits(void **state) {
    static token_answer a, together[N_PROBES];
    for (uint32_t threads = 1; threads <= 2; threads++) {
        for (uint32_t c = 0; c < N_CHUNKS; c++) {
            service_world *w;
            w = service_world_create((service_world_opts){.is_real = true,
                                                          .threads = threads,
                                                          .prompt_chunk = chunks[c],
                                                          .max_running = 32,
                                                          .token_budget = 512});
            char where[96];
            for (uint32_t i = 0; i < N_PROBES; i++) {
                snprintf(where, sizeof where, "probe %u alone, chunks of %u, %u threads", i, chunks[c], threads);
                run_alone(w, i, &a);
                if (threads == 1 && c == 0) expected[i] = a;
                expect_same(&a, &expected[i], where);
            }
            run_in_company(w, together);
            for (uint32_t i = 0; i < N_PROBES; i++) {
                snprintf(where, sizeof where, "probe %u in company, chunks of %u, %u threads", i, chunks[c], threads);
                expect_same(&together[i], &expected[i], where);
            }
            service_world_destroy(w);
        }
    }
}

static void answers_are_the_same_bits_when_blocks_run_out(void **state) {
    service_world *w;
    // 30 blocks of 16 tokens: three probes do not fit together, so that some are taken back and computed again.
    w = service_world_create((service_world_opts){.is_real = true, .max_context = 512, .kv_blocks = 30});
    session *s = session_open(w, w->client);
    static token_request r[N_PROBES];
    for (uint32_t i = 0; i < N_PROBES; i++) {
        make_probe(&r[i], i);
        session_start(s, i, &r[i].message);
    }
    uint32_t n_preemptions = 0;
    for (uint32_t i = 0; i < N_PROBES; i++) {
        session_read_until_end(s, i);
        expect_same(&s->answers[i], &expected[i], "after preemption");
        n_preemptions += s->answers[i].preemptions;
    }
    assert_true(n_preemptions != 0);
    session_close(s);
    service_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_same_bits),
        cmocka_unit_test(answers_are_the_same_bits_when_blocks_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
