// Scores of a model by itself: the service's, bit for bit, whatever the length.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "common/message.h"
#include "model_svc/scorer.h"
#include "tests/model_svc/service_world.h"

static const char model_file[] = "tests/data/stories260K.gguf";

typedef struct scores {
    float logprobs[1024];
    uint32_t n, n_top;
} scores;

static void take(void *arg, const relay_sample_result *r) {
    scores *s = arg;
    assert_true(r->is_finite);
    s->logprobs[s->n++] = r->logprob;
    s->n_top = r->n_top;
}

static void scores_are_those_of_the_service(void **state) {
    relay_err e;
    relay_scorer *scorer;
    if (relay_scorer_load(&scorer, model_file, RELAY_KV_F16, 0, &e) != RELAY_OK) fail_msg("%s", e.message);
    service_world *w = service_world_create((service_world_opts){.is_real = true});
    static const uint32_t lengths[] = {1, 2, 63, 64, 65, 66, 200};
    for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        static token_answer a;
        memset(&a, 0, sizeof a);
        token_request r;
        token_request_init(&r, lengths[i], 1, 1);
        r.message.output = &r.output;
        RELAY_SET(&r.output, prompt_top_logprobs, 3);
        generate(w->client, &r.message, &a);
        assert_int_equal(a.code, RELAY_OK);
        scores s = {0};
        assert_int_equal(relay_scorer_run(scorer, r.prompt, lengths[i], 3, take, &s, &e), RELAY_OK);
        assert_int_equal(s.n, lengths[i] - 1);
        assert_int_equal(a.n_scores, s.n);
        assert_memory_equal(s.logprobs, a.scores, s.n * sizeof s.logprobs[0]);
        if (s.n != 0) assert_int_equal(s.n_top, 3);
    }
    service_world_destroy(w);
    relay_scorer_destroy(scorer);
}

static void what_cannot_be_scored_is_named(void **state) {
    relay_err e;
    relay_scorer *scorer;
    scores s = {0};
    assert_int_equal(relay_scorer_load(&scorer, "tests/data/none.gguf", RELAY_KV_F16, 0, &e), RELAY_NOT_FOUND);
    assert_null(scorer);
    assert_int_equal(relay_scorer_load(&scorer, model_file, RELAY_KV_F32, 32, &e), RELAY_OK);
    static const uint32_t ids[33] = {1, 512};
    assert_int_equal(relay_scorer_run(scorer, ids, 2, 0, take, &s, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "ids[1] is 512; ids are below 512, the size of the vocabulary");
    assert_int_equal(relay_scorer_run(scorer, ids, 0, 0, take, &s, &e), RELAY_INVALID_ARGUMENT);
    assert_int_equal(relay_scorer_run(scorer, ids, 33, 0, take, &s, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "the text has 33 ids; allowed is [1, 32], what the context holds");
    assert_int_equal(s.n, 0);
    relay_scorer_destroy(scorer);
    relay_scorer_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_the_service),
        cmocka_unit_test(what_cannot_be_scored_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
