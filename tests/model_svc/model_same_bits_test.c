// One sequence, one answer: the logits of every position are the same bits however the rows are cut into steps,
// whatever runs beside them, wherever the KV blocks lie, and on how many threads.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "tests/model_svc/model_driver.h"
#include "tests/model_svc/tiny_model.h"

#if defined(RELAY_ASAN) || defined(RELAY_TSAN)
enum { IS_SLOW = 1 }; // a sanitizer: fewer rows, and neither the reference backend nor the large model
#else
enum { IS_SLOW = 0 };
#endif

enum {
    MAX_IDS = 160,
    MAX_ROWS = 192,
    N_SEQUENCES = 5, // in the batch: the one that is looked at, and others
    N_BLOCKS = N_SEQUENCES * (MAX_IDS / RELAY_BLOCK_TOKENS),
};

// What is looked at: a hash of the logits of every position.
typedef struct trace {
    uint64_t hash[MAX_IDS];
} trace;

static void hash_row(void *arg, uint32_t position, const float *logits, uint32_t vocab_size) {
    trace *t = arg;
    t->hash[position] = XXH3_64bits(logits, vocab_size * sizeof *logits);
}

static relay_model *load(const relay_gguf *g, const relay_kernels *kernels, relay_kv_type kv_type, uint32_t n_threads) {
    relay_model *m;
    relay_err e = {0};
    relay_model_opts opts = {
        .kernels = kernels,
        .n_threads = n_threads,
        .kv_type = kv_type,
        .max_context = MAX_IDS,
        .max_rows = MAX_ROWS,
        .max_sequences = N_SEQUENCES,
        .max_samples = MAX_ROWS,
    };
    if (relay_model_load(&m, g, "model.gguf", &opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    assert_int_equal(relay_model_get_info(m)->groups[0].n_blocks, N_BLOCKS);
    return m;
}

static void make_ids(uint32_t *ids, uint32_t n, uint32_t vocab_size, uint32_t seed) {
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = (i * i * 31 + i * 7 + seed * 1009) % vocab_size;
    }
}

static void expect_same(const trace *a, const trace *b, uint32_t n, const char *what, const char *kernels) {
    for (uint32_t p = 0; p < n; p++) {
        if (a->hash[p] != b->hash[p]) fail_msg("%s, %s: position %u has other bits", kernels, what, p);
    }
}

// Alone, from its first block on, `chunk` rows a step.
static trace run_alone(relay_model *m, uint32_t n_ids, uint32_t chunk) {
    uint32_t ids[MAX_IDS], blocks[MAX_IDS / RELAY_BLOCK_TOKENS];
    make_ids(ids, n_ids, relay_model_get_info(m)->vocab_size, 0);
    for (uint32_t i = 0; i < MAX_IDS / RELAY_BLOCK_TOKENS; i++) {
        blocks[i] = i;
    }
    trace t = {{0}};
    driven_sequence s = {.ids = ids, .n_ids = n_ids, .blocks = blocks, .on_logits = hash_row, .arg = &t};
    model_driver d;
    model_driver_init(&d, m, MAX_ROWS, 1);
    model_driver_run(&d, &s, chunk);
    model_driver_fini(&d);
    return t;
}

// Among others that are cut in other ways, its blocks scattered over the pool in no order. Every sequence has another
// place in the batch and other neighbours in every step; the looked-at one is the third.
static trace run_among_others(relay_model *m, uint32_t n_ids) {
    static uint32_t ids[N_SEQUENCES][MAX_IDS], blocks[N_SEQUENCES][MAX_IDS / RELAY_BLOCK_TOKENS];
    enum { LOOKED_AT = 2, BLOCKS_EACH = MAX_IDS / RELAY_BLOCK_TOKENS };
    static const uint32_t chunks[N_SEQUENCES] = {1, 16, 5, 33, 2};
    trace t = {{0}};
    driven_sequence s[N_SEQUENCES];
    for (uint32_t i = 0; i < N_SEQUENCES; i++) {
        make_ids(ids[i], n_ids, relay_model_get_info(m)->vocab_size, i == LOOKED_AT ? 0 : i + 1);
        for (uint32_t b = 0; b < BLOCKS_EACH; b++) {
            blocks[i][b] = (i * BLOCKS_EACH + b) * 37 % N_BLOCKS; // 37 and N_BLOCKS have no common divisor
        }
        s[i] = (driven_sequence){.ids = ids[i], .n_ids = n_ids, .tail = i, .blocks = blocks[i]};
    }
    s[LOOKED_AT].on_logits = hash_row;
    s[LOOKED_AT].arg = &t;
    model_driver d;
    model_driver_init(&d, m, MAX_ROWS, N_SEQUENCES);
    for (uint32_t step = 0; s[LOOKED_AT].n_done < n_ids; step++) {
        uint32_t rows[N_SEQUENCES];
        for (uint32_t i = 0; i < N_SEQUENCES; i++) {
            uint32_t left = n_ids - s[i].n_done, chunk = (step + i) % 4 == 3 ? 1 : chunks[i];
            rows[i] = chunk < left ? chunk : left;
        }
        model_driver_step(&d, s, rows, N_SEQUENCES);
    }
    model_driver_fini(&d);
    return t;
}

// Everything above on one file with every backend, for the KV types of the mask.
static void check_file(const relay_gguf *g, uint32_t n_ids, bool with_ref, uint32_t kv_types) {
    uint32_t n_backends;
    const relay_kernels *const *backends = relay_kernels_available(&n_backends);
    for (uint32_t b = 0; b < n_backends; b++) {
        const char *name = backends[b]->name;
        if (!(with_ref && !IS_SLOW) && strcmp(name, "ref") == 0) continue;
        for (relay_kv_type kv = RELAY_KV_F16; kv < RELAY_KV_N_TYPES; kv++) {
            if ((kv_types >> kv & 1) == 0) continue;
            relay_model *m = load(g, backends[b], kv, 1);
            trace whole = run_alone(m, n_ids, n_ids), other;
            static const uint32_t chunks[] = {1, 7, 64};
            for (uint32_t c = 0; c < 3; c++) {
                char what[32];
                snprintf(what, sizeof what, "in chunks of %u", chunks[c]);
                other = run_alone(m, n_ids, chunks[c]);
                expect_same(&whole, &other, n_ids, what, name);
            }
            other = run_among_others(m, n_ids);
            expect_same(&whole, &other, n_ids, "among others", name);
            relay_model_destroy(m);

            m = load(g, backends[b], kv, 2);
            other = run_alone(m, n_ids, n_ids);
            expect_same(&whole, &other, n_ids, "whole on two threads", name);
            other = run_among_others(m, n_ids);
            expect_same(&whole, &other, n_ids, "among others on two threads", name);
            relay_model_destroy(m);
        }
    }
}

static void a_trained_float32_model_gives_the_same_bits(void **state) {
    relay_gguf *g;
    assert_int_equal(relay_gguf_open(&g, "tests/data/stories260K.gguf", NULL), RELAY_OK);
    check_file(g, IS_SLOW ? 70 : MAX_IDS, true, 1u << RELAY_KV_F16 | 1u << RELAY_KV_F32);
    check_file(g, 70, false, 1u << RELAY_KV_BF16 | 1u << RELAY_KV_INT8 | 1u << RELAY_KV_INT4);
    relay_gguf_close(g);
}

static void a_model_of_every_quantized_type_gives_the_same_bits(void **state) {
    static const struct {
        uint32_t attention, ffn, embedding;
    } types[] = {
        {RELAY_GGML_Q5_0, RELAY_GGML_Q4_K, RELAY_GGML_Q8_0},
        {RELAY_GGML_Q4_1, RELAY_GGML_Q6_K, RELAY_GGML_Q5_0},
        {RELAY_GGML_Q4_0, RELAY_GGML_Q8_0, RELAY_GGML_Q6_K},
    };
    for (uint32_t i = 0; i < 3; i++) {
        tiny_model t = tiny_qwen2;
        t.attention_type = types[i].attention;
        t.ffn_type = types[i].ffn;
        t.embedding_type = types[i].embedding;
        size_t len;
        char *file = tiny_model_write(&t, &len);
        relay_gguf *g;
        assert_int_equal(relay_gguf_open_memory(&g, file, len, NULL), RELAY_OK);
        check_file(g, IS_SLOW ? 20 : 70, i == 0,
                   1u << RELAY_KV_F16 | 1u << RELAY_KV_F32); // the reference backend widens every type to float32
        relay_gguf_close(g);
        free(file);
    }
}

static void smollm2_gives_the_same_bits(void **state) {
    const char *cache = getenv("RELAY_CACHE"), *home = getenv("HOME");
    char path[4096];
    if (cache)
        snprintf(path, sizeof path, "%s/models/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/relay/models/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");
    if (IS_SLOW) skip();
    relay_gguf *g;
    relay_err e = {0};
    if (relay_gguf_open(&g, path, &e) != RELAY_OK) fail_msg("%s (./run fetches it)", e.message);
    check_file(g, 40, false, 1u << RELAY_KV_F16 | 1u << RELAY_KV_F32);
    relay_gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trained_float32_model_gives_the_same_bits),
        cmocka_unit_test(a_model_of_every_quantized_type_gives_the_same_bits),
        cmocka_unit_test(smollm2_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
