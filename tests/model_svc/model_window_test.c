// Models with a sliding window: what a row depends on, and what memory the pools get.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/status.h"
#include "tests/model_svc/model_driver.h"
#include "tests/model_svc/tiny_model.h"

enum { WINDOW = 6, N_IDS = 48, VOCAB = 40 };

typedef struct subject {
    relay_model *model;
    model_driver driver;
} subject;

static void open_subject(subject *s, const relay_kernels *k, uint32_t n_layers, uint32_t window, uint32_t period) {
    tiny_model t = {
        .name = "window",
        .architecture = "llama",
        .n_layers = n_layers,
        .n_heads = 4,
        .n_kv_heads = 2,
        .width = 32,
        .ffn_width = 64,
        .vocab_size = VOCAB,
        .context = 64,
        .seed = 11,
        .edits = {{.what = TINY_U32, .name = "llama.attention.sliding_window", .number = window},
                  {.what = TINY_U32, .name = "llama.attention.sliding_window_pattern", .number = period}},
    };
    size_t len;
    char *file = tiny_model_write(&t, &len);
    relay_gguf *g;
    assert_int_equal(relay_gguf_open_memory(&g, file, len, NULL), RELAY_OK);
    relay_err e = {0};
    relay_model_opts opts = {.kernels = k,
                             .n_threads = 1,
                             .kv_type = RELAY_KV_F32,
                             .max_rows = N_IDS,
                             .max_sequences = 1,
                             .max_samples = N_IDS};
    if (relay_model_load(&s->model, g, t.name, &opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_gguf_close(g);
    free(file);
    model_driver_init(&s->driver, s->model, N_IDS, 1);
}

static void close_subject(subject *s) {
    model_driver_fini(&s->driver);
    relay_model_destroy(s->model);
}

static void keep(void *arg, uint32_t position, const float *logits, uint32_t vocab_size) {
    memcpy((float *)arg + position * VOCAB, logits, vocab_size * sizeof *logits);
}

// Logits at every position.
static void run(subject *s, const uint32_t *ids, uint32_t n, uint32_t chunk, float out[N_IDS * VOCAB]) {
    static const uint32_t blocks[] = {2, 0, 1};
    driven_sequence q = {.ids = ids, .n_ids = n, .blocks = blocks, .on_logits = keep, .arg = out};
    model_driver_run(&s->driver, &q, chunk);
}

static void make_ids(uint32_t ids[N_IDS]) {
    for (uint32_t i = 0; i < N_IDS; i++)
        ids[i] = (i * 7 + 3) % VOCAB;
}

#define FOR_EACH_KERNEL(k)                                                                                             \
    for (uint32_t n_k, i_k = (relay_kernels_available(&n_k), 0); i_k < n_k; i_k++)                                     \
        for (const relay_kernels *k = relay_kernels_available(&n_k)[i_k]; k != NULL; k = NULL)

// The last position at which logits differ after the id at `changed` is another, in bits.
static uint32_t reach(const relay_kernels *k, uint32_t n_layers, uint32_t window, uint32_t period, uint32_t changed) {
    subject s;
    open_subject(&s, k, n_layers, window, period);
    static float before[N_IDS * VOCAB], after[N_IDS * VOCAB];
    uint32_t ids[N_IDS], last = 0;
    make_ids(ids);
    run(&s, ids, N_IDS, N_IDS, before);
    ids[changed] = (ids[changed] + 1) % VOCAB;
    run(&s, ids, N_IDS, 7, after);
    for (uint32_t p = 0; p < N_IDS; p++) {
        bool differs = memcmp(before + p * VOCAB, after + p * VOCAB, VOCAB * sizeof(float)) != 0;
        if (p < changed) assert_false(differs);
        if (differs) last = p;
    }
    close_subject(&s);
    return last;
}

static void a_row_sees_as_far_back_as_its_layers_windows_reach(void **state) {
    FOR_EACH_KERNEL(k) {
        assert_int_equal(reach(k, 1, WINDOW, 0, 9), 9 + WINDOW - 1);
        assert_int_equal(reach(k, 2, WINDOW, 0, 9), 9 + 2 * (WINDOW - 1));
        assert_int_equal(reach(k, 3, WINDOW, 0, 9), 9 + 3 * (WINDOW - 1));
        assert_int_equal(reach(k, 2, WINDOW, 2, 9), N_IDS - 1); // the second layer sees all
        assert_int_equal(reach(k, 1, WINDOW, 2, 9), 9 + WINDOW - 1);
        assert_int_equal(reach(k, 2, WINDOW, 1, 9), N_IDS - 1); // every layer sees all
        assert_int_equal(reach(k, 2, 0, 0, 9), N_IDS - 1);
        assert_int_equal(reach(k, 2, 64, 0, 9), N_IDS - 1); // as long as the context
    }
}

// One layer with a window says of the end of a text what one without says of its last ids alone: positions are
// relative.
static void one_layer_says_what_one_without_a_window_says_of_the_last_ids(void **state) {
    FOR_EACH_KERNEL(k) {
        subject with, without;
        open_subject(&with, k, 1, WINDOW, 0);
        open_subject(&without, k, 1, 0, 0);
        static float whole[N_IDS * VOCAB], end[N_IDS * VOCAB];
        uint32_t ids[N_IDS];
        make_ids(ids);
        run(&with, ids, N_IDS, 16, whole);
        for (uint32_t p = 0; p < N_IDS; p++) {
            uint32_t n = p + 1 < WINDOW ? p + 1 : WINDOW;
            run(&without, ids + p + 1 - n, n, n, end);
            for (uint32_t i = 0; i < VOCAB; i++)
                assert_true(fabsf(whole[p * VOCAB + i] - end[(n - 1) * VOCAB + i]) < 1e-4f);
        }
        close_subject(&with);
        close_subject(&without);
    }
}

static void a_pool_with_a_window_is_as_large_as_it_is_useful(void **state) {
    subject s;
    open_subject(&s, NULL, 4, WINDOW, 2);
    const relay_model_info *info = relay_model_get_info(s.model);
    assert_int_equal(info->n_groups, 2);
    assert_int_equal(info->groups[0].window, WINDOW);
    assert_int_equal(info->groups[1].window, 0);
    assert_int_equal(info->groups[0].n_blocks, 2 * (2 + 3)); // a window's and a step's, twice
    assert_int_equal(info->groups[1].n_blocks, 4);           // the context
    assert_int_equal(info->max_context, 64);
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < 2; g++)
        bytes += info->groups[g].n_blocks * info->groups[g].block_bytes;
    assert_int_equal(info->kv_bytes, bytes);
    close_subject(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_sees_as_far_back_as_its_layers_windows_reach),
        cmocka_unit_test(one_layer_says_what_one_without_a_window_says_of_the_last_ids),
        cmocka_unit_test(a_pool_with_a_window_is_as_large_as_it_is_useful),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
