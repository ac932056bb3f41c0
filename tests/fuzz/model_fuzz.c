// Loads the input as a model and, where it is one, runs a step: whatever passes the loader's checks is computed without
// a crash.
#include <stdlib.h>
#include <string.h>

#include "common/gguf.h"
#include "tests/fuzz/fuzz.h"
#include "tests/model_svc/model_driver.h"
#include "tests/model_svc/tiny_model.h"

enum { N_IDS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    relay_gguf *g;
    if (relay_gguf_open_memory(&g, data, size, NULL) != RELAY_OK) return 0;
    uint32_t n_backends;
    relay_model_opts opts = {
        .kernels = relay_kernels_available(&n_backends)[0],
        .n_threads = 1,
        .kv_bytes = 1 << 20,
        .max_rows = N_IDS,
        .max_sequences = 1,
        .max_samples = N_IDS,
    };
    relay_model *m;
    relay_err e = {0};
    if (relay_model_load(&m, g, "fuzz.gguf", &opts, &e) == RELAY_OK) {
        const relay_model_info *info = relay_model_get_info(m);
        uint32_t n = info->max_context < N_IDS ? info->max_context : N_IDS;
        const uint32_t ids[N_IDS] = {0, info->vocab_size - 1, 0}, blocks[] = {info->groups[0].n_blocks - 1};
        driven_sequence s = {.ids = ids, .n_ids = n, .blocks = blocks};
        model_driver d;
        model_driver_init(&d, m, N_IDS, 1);
        model_driver_run(&d, &s, N_IDS);
        RELAY_ASSERT(!d.results[0].is_finite || d.results[0].token_id < info->vocab_size);
        model_driver_fini(&d);
        relay_model_destroy(m);
    } else {
        RELAY_ASSERT(e.message[0] != '\0');
    }
    relay_gguf_close(g);
    return 0;
}

// Seeds: a model of each variant, so small that most mutations hit what describes it, and one of quantized types.
size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    tiny_model t = tiny_llama;
    if (i > N_TINY_VARIANTS) return 0;
    if (i < N_TINY_VARIANTS) {
        t = tiny_variants[i];
        t.n_layers = 1;
        t.n_heads = 2;
        t.n_kv_heads = 1;
        t.width = t.ffn_width = 8;
        if (t.head_dim) t.head_dim = 6;
    } else {
        t.attention_type = RELAY_GGML_Q4_1;
        t.ffn_type = RELAY_GGML_Q8_0;
        t.embedding_type = RELAY_GGML_Q5_0;
    }
    size_t len;
    char *file = tiny_model_write(&t, &len);
    RELAY_ASSERT(len <= cap);
    memcpy(out, file, len);
    free(file);
    return len;
}
