// Small models say what the peer's library says: a trained one id for id, random ones at every position.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/model_svc/golden.h"
#include "tests/model_svc/model_driver.h"
#include "tests/model_svc/tiny_model.h"

static void stories260k_answers_greedily_as_the_peer_does(void **state) {
    golden expected = golden_read("tests/golden/stories260K.f32.txt");
    assert_int_equal(expected.n_rows, 201);
    uint32_t blocks[(201 + RELAY_BLOCK_TOKENS - 1) / RELAY_BLOCK_TOKENS];
    enum { N_BLOCKS = sizeof blocks / sizeof blocks[0] };
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        blocks[i] = N_BLOCKS - 1 - i;
    }
    relay_gguf *g;
    assert_int_equal(relay_gguf_open(&g, "tests/data/stories260K.gguf", NULL), RELAY_OK);

    uint32_t n_backends;
    const relay_kernels *const *backends = relay_kernels_available(&n_backends);
    for (uint32_t b = 0; b < n_backends; b++) {
        relay_model *m;
        relay_model_opts opts = {
            .kernels = backends[b],
            .n_threads = 1,
            .kv_type = RELAY_KV_F32,
            .max_context = N_BLOCKS * RELAY_BLOCK_TOKENS,
            .max_rows = 1,
            .max_sequences = 1,
        };
        assert_int_equal(relay_model_load(&m, g, "stories260K.gguf", &opts, NULL), RELAY_OK);
        model_driver d;
        model_driver_init(&d, m, 1, 1);
        uint32_t ids[201] = {expected.ids[0]};
        driven_sequence s = {.ids = ids, .n_ids = 201, .blocks = blocks};
        for (uint32_t i = 1; i < 201; i++) {
            model_driver_step(&d, &s, &(uint32_t){1}, 1);
            assert_true(d.results[0].is_finite);
            ids[i] = d.results[0].token_id;
        }
        assert_memory_equal(ids, expected.ids, sizeof ids);
        model_driver_fini(&d);
        relay_model_destroy(m);
    }
    relay_gguf_close(g);
    golden_free(&expected);
}

// What the golden file says of each position.
static void check_row(void *arg, uint32_t position, const float *logits, uint32_t vocab_size) {
    const golden *expected = arg;
    uint32_t top = 0;
    double sum = 0;
    for (uint32_t i = 0; i < vocab_size; i++) {
        if (logits[i] > logits[top]) top = i;
        sum += exp((double)logits[i]);
    }
    assert_int_equal(top, expected->top_ids[position]);
    if (position + 1 == expected->n_rows) return;
    double logprob = (double)logits[expected->ids[position + 1]] - log(sum);
    if (fabs(logprob - expected->next_logprob[position]) > 1e-4) {
        fail_msg("position %u: logprob %f, the peer's %f", position, logprob, expected->next_logprob[position]);
    }
}

static void every_variant_of_a_tiny_model_says_what_the_peer_says(void **state) {
    uint32_t n_backends;
    const relay_kernels *const *backends = relay_kernels_available(&n_backends);
    for (uint32_t i = 0; i < N_TINY_VARIANTS * n_backends; i++) {
        const tiny_model *t = &tiny_variants[i / n_backends];
        char path[128];
        snprintf(path, sizeof path, "tests/golden/tiny-%s.txt", t->name);
        golden expected = golden_read(path);
        size_t len;
        char *file = tiny_model_write(t, &len);
        relay_gguf *g;
        assert_int_equal(relay_gguf_open_memory(&g, file, len, NULL), RELAY_OK);
        relay_model *m;
        relay_err e = {0};
        relay_model_opts opts = {
            .kernels = backends[i % n_backends],
            .n_threads = 1,
            .kv_type = RELAY_KV_F32,
            .max_rows = expected.n_rows,
            .max_sequences = 1,
            .max_samples = expected.n_rows,
        };
        if (relay_model_load(&m, g, t->name, &opts, &e) != RELAY_OK) fail_msg("%s: %s", t->name, e.message);
        relay_gguf_close(g);
        free(file);

        model_driver d;
        model_driver_init(&d, m, expected.n_rows, 1);
        driven_sequence s = {
            .ids = expected.ids,
            .n_ids = expected.n_rows,
            .blocks = (const uint32_t[]){0, 1, 2},
            .on_logits = check_row,
            .arg = &expected,
        };
        model_driver_run(&d, &s, expected.n_rows);
        model_driver_fini(&d);
        relay_model_destroy(m);
        golden_free(&expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories260k_answers_greedily_as_the_peer_does),
        cmocka_unit_test(every_variant_of_a_tiny_model_says_what_the_peer_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
