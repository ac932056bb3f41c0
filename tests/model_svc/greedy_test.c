// A small model of real training data says what the peer's library says, id for id.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/model_svc/golden.h"
#include "tests/model_svc/model_driver.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stories260k_answers_greedily_as_the_peer_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
