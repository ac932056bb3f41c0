// What a client sees of each sampling field, from the message to the tokens, on a trained model; and that an answer
// goes on as it would have when another call resumes it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/message.h"
#include "tests/model_svc/service_world.h"

enum { N_TOKENS = 60, PROMPT = 40, VOCAB = 512 };

static service_world *world;

static int open_world(void **state) {
    world = service_world_create((service_world_opts){.is_real = true});
    return 0;
}

static int close_world(void **state) {
    service_world_destroy(world);
    return 0;
}

// A request with the parts that a case may fill.
typedef struct probe {
    token_request request;
    Relay__V1__Mirostat mirostat;
    Relay__V1__Dry dry;
    Relay__V1__TokenBias bias, *biases[1];
    Relay__V1__TokenSequence sequence, *sequences[1];
    Relay__V1__Resume resume;
    uint32_t ids[VOCAB];
} probe;

static void probe_init(probe *p) {
    token_request_init(&p->request, PROMPT, N_TOKENS, 5);
    relay__v1__mirostat__init(&p->mirostat);
    relay__v1__dry__init(&p->dry);
    relay__v1__token_bias__init(&p->bias);
    relay__v1__token_sequence__init(&p->sequence);
    relay__v1__resume__init(&p->resume);
    p->biases[0] = &p->bias;
    p->sequences[0] = &p->sequence;
    RELAY_SET(&p->request.sampling, temperature, 1.2f);
    RELAY_SET(&p->request.stop, ignore_eos, 1);
    p->request.message.output = &p->request.output;
    RELAY_SET(&p->request.output, top_logprobs, 0);
}

static bool holds(const uint32_t *ids, uint32_t n, uint32_t id) {
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

static const token_answer *run(const probe *p) {
    static token_answer a;
    memset(&a, 0, sizeof a);
    generate(world->client, &p->request.message, &a);
    if (a.code != RELAY_OK) fail_msg("%s", a.error);
    return &a;
}

// ---- What each field does

static void set_typical(probe *p) {
    RELAY_SET(&p->request.sampling, typical_p, 0.3f);
}
static void set_top_n_sigma(probe *p) {
    RELAY_SET(&p->request.sampling, top_n_sigma, 0.5f);
}
static void set_xtc(probe *p) {
    RELAY_SET(&p->request.sampling, xtc_probability, 1);
    RELAY_SET(&p->request.sampling, xtc_threshold, 0.02f);
}
static void set_mirostat_1(probe *p) {
    p->request.sampling.mirostat = &p->mirostat;
    RELAY_SET(&p->mirostat, version, 1);
    RELAY_SET(&p->mirostat, tau, 2);
    RELAY_SET(&p->mirostat, eta, 0.3f);
}
static void set_mirostat_2(probe *p) {
    set_mirostat_1(p);
    RELAY_SET(&p->mirostat, version, 2);
}
static void set_penalties(probe *p) {
    RELAY_SET(&p->request.sampling, repetition_penalty, 1.3f);
    RELAY_SET(&p->request.sampling, frequency_penalty, 0.5f);
    RELAY_SET(&p->request.sampling, presence_penalty, 0.5f);
}
static void set_penalty_window(probe *p) {
    set_penalties(p);
    RELAY_SET(&p->request.sampling, penalty_window, 8);
}
static void set_dry(probe *p) {
    p->request.sampling.dry = &p->dry;
    RELAY_SET(&p->dry, multiplier, 3);
    RELAY_SET(&p->dry, allowed_length, 1);
}
static void set_ngram(probe *p) {
    RELAY_SET(&p->request.sampling, no_repeat_ngram_size, 2);
}
static void set_bias(probe *p) {
    p->request.sampling.n_logit_bias = 1;
    p->request.sampling.logit_bias = p->biases;
    RELAY_SET(&p->bias, token_id, 300);
    RELAY_SET(&p->bias, bias, 100);
}
static void set_allowed(probe *p) {
    for (uint32_t i = 0; i < 50; i++)
        p->ids[i] = 260 + 3 * i;
    p->request.sampling.allowed_token_ids = p->ids;
    p->request.sampling.n_allowed_token_ids = 50;
}
static void set_banned(probe *p) {
    for (uint32_t i = 0; i < 256; i++)
        p->ids[i] = 2 * i;
    p->request.sampling.banned_token_ids = p->ids;
    p->request.sampling.n_banned_token_ids = 256;
}
static void set_everything(probe *p) {
    set_typical(p);
    set_xtc(p);
    set_penalty_window(p);
    set_dry(p);
    RELAY_SET(&p->dry, window, 30);
    set_ngram(p);
    set_banned(p);
    RELAY_SET(&p->request.sampling, typical_p, 0.9f);
    RELAY_SET(&p->request.sampling, top_n_sigma, 3);
}

static const struct {
    const char *name;
    void (*set)(probe *p);
} cases[] = {
    {"typical_p", set_typical},
    {"top_n_sigma", set_top_n_sigma},
    {"xtc", set_xtc},
    {"mirostat 1", set_mirostat_1},
    {"mirostat 2", set_mirostat_2},
    {"penalties", set_penalties},
    {"penalty_window", set_penalty_window},
    {"dry", set_dry},
    {"no_repeat_ngram_size", set_ngram},
    {"logit_bias", set_bias},
    {"allowed_token_ids", set_allowed},
    {"banned_token_ids", set_banned},
    {"all of them", set_everything},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void every_field_changes_the_answer_and_differs_from_the_others(void **state) {
    static token_answer answers[N_CASES + 1];
    for (uint32_t i = 0; i <= N_CASES; i++) {
        probe p;
        probe_init(&p);
        if (i < N_CASES) cases[i].set(&p);
        answers[i] = *run(&p);
        assert_int_equal(answers[i].n_ids, N_TOKENS);
        assert_int_equal(answers[i].n_sampler_state, i == 3 || i == 4 ? 5 : 0);
        for (uint32_t k = 0; k < i; k++) {
            if (memcmp(answers[k].ids, answers[i].ids, N_TOKENS * sizeof(uint32_t)) != 0) continue;
            fail_msg("%s: the same answer as with %s", i < N_CASES ? cases[i].name : "nothing", cases[k].name);
        }
    }
}

// Stopped after any number of tokens and resumed by another call, with what the first one told, it goes on with the
// same bits.
static void an_answer_goes_on_where_another_call_stopped(void **state) {
    static token_answer whole, begun;
    for (uint32_t i = 0; i < N_CASES; i++) {
        for (uint32_t cut = 1; cut < N_TOKENS; cut += 19) {
            probe p;
            probe_init(&p);
            cases[i].set(&p);
            whole = *run(&p);
            RELAY_SET(&p.request.stop, max_new_tokens, cut);
            begun = *run(&p);
            assert_int_equal(begun.n_ids, cut);
            RELAY_SET(&p.request.stop, max_new_tokens, N_TOKENS);
            p.request.message.resume = &p.resume;
            p.resume.n_generated_token_ids = cut;
            p.resume.generated_token_ids = begun.ids;
            if (begun.n_sampler_state != 0) {
                RELAY_SET(&p.resume, sampler_state, relay_message_bytes(begun.sampler_state, begun.n_sampler_state));
            }
            const token_answer *rest = run(&p);
            assert_int_equal(rest->n_ids, N_TOKENS - cut);
            if (memcmp(rest->ids, whole.ids + cut, rest->n_ids * sizeof(uint32_t)) != 0 ||
                memcmp(rest->logprobs, whole.logprobs + cut, rest->n_ids * sizeof(float)) != 0) {
                fail_msg("%s, resumed after %u tokens, goes on otherwise", cases[i].name, cut);
            }
        }
    }
}

static void what_may_not_be_drawn_is_not(void **state) {
    probe p;
    probe_init(&p);
    set_allowed(&p);
    const token_answer *a = run(&p);
    for (uint32_t i = 0; i < a->n_ids; i++)
        assert_true(a->ids[i] >= 260 && a->ids[i] < 410 && (a->ids[i] - 260) % 3 == 0);
    probe_init(&p);
    set_banned(&p);
    a = run(&p);
    for (uint32_t i = 0; i < a->n_ids; i++)
        assert_int_equal(a->ids[i] % 2, 1);
    probe_init(&p);
    set_bias(&p);
    a = run(&p);
    for (uint32_t i = 0; i < a->n_ids; i++)
        assert_int_equal(a->ids[i], 300);
    probe_init(&p);
    set_ngram(&p);
    a = run(&p);
    for (uint32_t i = 1; i < a->n_ids; i++) {
        for (uint32_t k = i + 1; k < a->n_ids; k++)
            assert_false(a->ids[i - 1] == a->ids[k - 1] && a->ids[i] == a->ids[k]);
    }
}

static void expect_cornered(const probe *p, uint32_t n_tokens, const char *message) {
    static token_answer a;
    memset(&a, 0, sizeof a);
    generate(world->client, &p->request.message, &a);
    assert_int_equal(a.code, RELAY_FAILED_PRECONDITION);
    assert_string_equal(a.error, message);
    assert_int_equal(a.n_ids, n_tokens);
}

static void where_nothing_may_be_drawn_the_error_says_why(void **state) {
    static probe p;
    static uint32_t few[3] = {7, 8, 9};
    probe_init(&p);
    p.request.sampling.allowed_token_ids = few;
    p.request.sampling.n_allowed_token_ids = 3;
    RELAY_SET(&p.request.sampling, no_repeat_ngram_size, 1);
    for (uint32_t i = 0; i < 3; i++) // the prompt's count as repeats too
        while (holds(p.request.message.prompt_token_ids, PROMPT, few[i]))
            few[i] += 100;
    expect_cornered(
        &p, 3,
        "after 3 tokens of output no id is left that may come next, because of sampling.allowed_token_ids less "
        "sampling.banned_token_ids and sampling.no_repeat_ngram_size");
    p.request.sampling.has_no_repeat_ngram_size = 0;
    p.request.stop.has_ignore_eos = 0;
    p.request.stop.stop_token_ids = few;
    p.request.stop.n_stop_token_ids = 3;
    RELAY_SET(&p.request.stop, min_new_tokens, 2);
    expect_cornered(
        &p, 0,
        "after 0 tokens of output no id is left that may come next, because of sampling.allowed_token_ids less "
        "sampling.banned_token_ids and stop.min_new_tokens");
}

static void a_stop_sequence_ends_the_answer_and_is_named(void **state) {
    probe p;
    probe_init(&p);
    static token_answer whole;
    whole = *run(&p);
    p.request.stop.n_stop_token_sequences = 1;
    p.request.stop.stop_token_sequences = p.sequences;
    p.sequence.n_token_ids = 2;
    p.sequence.token_ids = whole.ids + 20;
    const token_answer *a = run(&p);
    assert_int_equal(a->reason, RELAY__V1__FINISH_REASON__FINISH_REASON_STOP_SEQUENCE);
    assert_int_equal(a->stop_sequence_index, 0);
    assert_true(a->n_ids <= 22);
    assert_memory_equal(a->ids + a->n_ids - 2, whole.ids + 20, 2 * sizeof(uint32_t));
}

static void logprobs_of_wanted_ids_follow_the_most_likely(void **state) {
    probe p;
    probe_init(&p);
    const uint32_t wanted[] = {300, 17};
    memcpy(p.ids, wanted, sizeof wanted);
    p.request.output.logprob_token_ids = p.ids;
    p.request.output.n_logprob_token_ids = 2;
    for (uint32_t n_top = 0; n_top < 4; n_top += 3) {
        RELAY_SET(&p.request.output, top_logprobs, n_top);
        const token_answer *a = run(&p);
        assert_int_equal(a->n_last_top, n_top + 2);
        assert_int_equal(a->last_top_ids[n_top], 300);
        assert_int_equal(a->last_top_ids[n_top + 1], 17);
        for (uint32_t i = 0; i < 2; i++)
            assert_true(a->last_top_logprobs[n_top + i] < 0 && isfinite(a->last_top_logprobs[n_top + i]));
    }
}

// The score of each id of the prompt is the logprob that a call has for it that ends its prompt before it.
static void the_prompts_logprobs_are_those_of_its_ids(void **state) {
    static token_answer whole, again;
    probe p;
    probe_init(&p);
    RELAY_SET(&p.request.output, prompt_top_logprobs, 4);
    whole = *run(&p);
    assert_int_equal(whole.n_scores, PROMPT - 1);
    assert_int_equal(whole.n_ids, N_TOKENS);
    again = *run(&p); // from a warm cache, which has no logits
    assert_int_equal(again.cached_tokens, 0);
    assert_memory_equal(again.scores, whole.scores, whole.n_scores * sizeof(float));
    assert_true(again.score_hash == whole.score_hash);
    RELAY_SET(&p.request.output, final_only, 1);
    again = *run(&p);
    assert_true(again.n_messages <= again.n_score_messages + 1);
    assert_memory_equal(again.scores, whole.scores, whole.n_scores * sizeof(float));
    for (uint32_t n = 1; n < PROMPT; n += 3) {
        probe_init(&p);
        p.request.message.n_prompt_token_ids = n;
        RELAY_SET(&p.request.stop, max_new_tokens, 1);
        p.ids[0] = p.request.prompt[n];
        p.request.output.logprob_token_ids = p.ids;
        p.request.output.n_logprob_token_ids = 1;
        const token_answer *a = run(&p);
        assert_int_equal(a->n_last_top, 1);
        assert_true(a->last_top_logprobs[0] == whole.scores[n - 1]);
    }
}

// More than fits a message, and more than one step scores.
static void a_long_prompt_is_scored_in_pieces(void **state) {
    static token_answer a;
    service_world *w = service_world_create((service_world_opts){.max_context = 2048, .token_budget = 512});
    token_request r;
    token_request_init(&r, 1024, 1, 1);
    r.message.output = &r.output;
    RELAY_SET(&r.output, prompt_top_logprobs, 20);
    generate(w->client, &r.message, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.n_scores, 1023);
    assert_true(a.n_score_messages >= 2);
    assert_int_equal(a.n_ids, 1);
    service_world_destroy(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_changes_the_answer_and_differs_from_the_others),
        cmocka_unit_test(an_answer_goes_on_where_another_call_stopped),
        cmocka_unit_test(what_may_not_be_drawn_is_not),
        cmocka_unit_test(where_nothing_may_be_drawn_the_error_says_why),
        cmocka_unit_test(a_stop_sequence_ends_the_answer_and_is_named),
        cmocka_unit_test(logprobs_of_wanted_ids_follow_the_most_likely),
        cmocka_unit_test(the_prompts_logprobs_are_those_of_its_ids),
        cmocka_unit_test(a_long_prompt_is_scored_in_pieces),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
