// Logits over English text, against the truth: the file's own weights dequantized to float32 and run by the peer's
// library (tests/golden says how).
//
//   logits_test MODEL_FILE GOLDEN_FILE
//
// Two claims for each backend. With its weights and KV cache in float32 it computes the model: the same top id, the
// same probabilities but for rounding. With the weights as they are packed it is no further from the truth than the
// peer is with its own kernels on the same file.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/golden.h"
#include "tests/model_svc/model_driver.h"

enum {
    CHUNK = 64,
    REF_ROWS = 49,    // the reference backend is slow, and has no packed weights that could be wrong
    OTHER_ROWS = 257, // in float32, of backends that are not this processor's best
};

static const char *model_path, *golden_path;

// How far from the truth, over the rows that have a next id.
typedef struct distance {
    const golden *truth;
    uint32_t n_same_top;
    double sum; // of |logprob of the next id - the truth's|
    uint32_t n;
} distance;

static void measure_row(void *arg, uint32_t position, const float *logits, uint32_t vocab_size) {
    distance *d = arg;
    if (position + 1 == d->truth->n_rows) return;
    uint32_t top = 0;
    for (uint32_t i = 1; i < vocab_size; i++) {
        if (logits[i] > logits[top]) top = i;
    }
    double sum = 0;
    for (uint32_t i = 0; i < vocab_size; i++) {
        sum += exp((double)logits[i] - (double)logits[top]);
    }
    double logprob = (double)logits[d->truth->ids[position + 1]] - (double)logits[top] - log(sum);
    d->n_same_top += top == d->truth->top_ids[position];
    d->sum += fabs(logprob - d->truth->next_logprob[position]);
    d->n++;
}

static distance measure(const relay_kernels *kernels, const golden *truth, bool weights_as_f32, relay_kv_type kv_type,
                        uint32_t n_rows) {
    uint32_t n_blocks = (n_rows + RELAY_BLOCK_TOKENS - 1) / RELAY_BLOCK_TOKENS;
    relay_gguf *g;
    relay_err e = {0};
    if (relay_gguf_open(&g, model_path, &e) != RELAY_OK) fail_msg("%s (./run --model fetches models)", e.message);
    relay_model_opts opts = {
        .kernels = kernels,
        .kv_type = kv_type,
        .max_context = n_blocks * RELAY_BLOCK_TOKENS,
        .max_rows = CHUNK,
        .max_sequences = 1,
        .max_samples = CHUNK,
        .weights_as_f32 = weights_as_f32,
    };
    relay_model *m;
    if (relay_model_load(&m, g, model_path, &opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_gguf_close(g);

    uint32_t *blocks = relay_calloc(n_blocks, sizeof *blocks);
    for (uint32_t i = 0; i < n_blocks; i++) {
        blocks[i] = i;
    }
    distance d = {.truth = truth};
    driven_sequence s = {.ids = truth->ids, .n_ids = n_rows, .blocks = blocks, .on_logits = measure_row, .arg = &d};
    model_driver driver;
    model_driver_init(&driver, m, CHUNK, 1);
    model_driver_run(&driver, &s, CHUNK);
    model_driver_fini(&driver);
    relay_model_destroy(m);
    free(blocks);
    return d;
}

static void in_float32_the_backends_compute_the_model(void **state) {
    golden truth = golden_read(golden_path);
    uint32_t n_backends;
    const relay_kernels *const *backends = relay_kernels_available(&n_backends);
    for (uint32_t b = 0; b < n_backends; b++) {
        uint32_t n_rows = b == 0 ? truth.n_rows : strcmp(backends[b]->name, "ref") == 0 ? REF_ROWS : OTHER_ROWS;
        distance d = measure(backends[b], &truth, true, RELAY_KV_F32, n_rows);
        print_message("%s, float32: same top %.4f, mean difference %.6f\n", backends[b]->name,
                      (double)d.n_same_top / d.n, d.sum / d.n);
        assert_true(d.n_same_top >= 0.998 * d.n);
        assert_true(d.sum < 0.001 * d.n);
    }
    golden_free(&truth);
}

static void packed_the_backends_are_as_near_the_truth_as_the_peer(void **state) {
    golden truth = golden_read(golden_path);
    uint32_t n_backends;
    const relay_kernels *const *backends = relay_kernels_available(&n_backends);
    for (uint32_t b = 0; b < n_backends; b++) {
        if (strcmp(backends[b]->name, "ref") == 0) continue;
        distance d = measure(backends[b], &truth, false, RELAY_KV_F16, truth.n_rows);
        print_message("%s, packed: same top %.4f (the peer %.4f), mean difference %.6f (the peer %.6f)\n",
                      backends[b]->name, (double)d.n_same_top / d.n, truth.peer_same_top, d.sum / d.n,
                      truth.peer_mean_difference);
        assert_true((double)d.n_same_top / d.n >= truth.peer_same_top);
        assert_true(d.sum / d.n <= truth.peer_mean_difference);
    }
    golden_free(&truth);
}

int main(int argc, char **argv) {
    const char *cache = getenv("RELAY_CACHE"), *home = getenv("HOME");
    static char path[4096];
    if (argc != 3) return 2;
    if (cache)
        snprintf(path, sizeof path, "%s/models/%s", cache, argv[1]);
    else
        snprintf(path, sizeof path, "%s/.cache/relay/models/%s", home ? home : "", argv[1]);
    model_path = path;
    golden_path = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_float32_the_backends_compute_the_model),
        cmocka_unit_test(packed_the_backends_are_as_near_the_truth_as_the_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
