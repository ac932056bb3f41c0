// What a loaded model keeps in memory: its weights, the KV blocks that were used, and little else.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/model_svc/model_driver.h"

enum {
    N_IDS = 32,
    N_BLOCKS_USED = N_IDS / RELAY_BLOCK_TOKENS,
    SLACK = 48 << 20, // activations of 512 rows, logits, rope table, the program; the service may take 100 MiB
};

static double megabytes(uint64_t bytes) {
    return (double)bytes / (1 << 20);
}

// Resident bytes of the process, file pages included.
static uint64_t resident(void) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %lu", &pages), 1);
    fclose(f);
    return (uint64_t)pages * 4096;
}

static void weights_and_used_blocks_are_what_stays_resident(void **state) {
    const char *cache = getenv("RELAY_CACHE"), *home = getenv("HOME");
    char path[4096];
    if (cache)
        snprintf(path, sizeof path, "%s/models/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(path, sizeof path, "%s/.cache/relay/models/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "");

    uint64_t before = resident();
    relay_gguf *g;
    relay_err e = {0};
    relay_model *m;
    relay_model_opts opts = {.kv_type = RELAY_KV_F16, .max_rows = 512, .max_sequences = 32};
    relay_mono_us began = relay_mono_now();
    if (relay_gguf_open(&g, path, &e) != RELAY_OK) fail_msg("%s (./run fetches it)", e.message);
    if (relay_model_load(&m, g, path, &opts, &e) != RELAY_OK) fail_msg("%s", e.message);
    int64_t load_ms = (relay_mono_now() - began) / 1000;
    const relay_model_info *info = relay_model_get_info(m);
    uint64_t loaded = resident() - before; // the file is still open: its pages must have been given back
    assert_true(info->kv_bytes > UINT64_C(512) << 20);

    uint32_t ids[N_IDS], blocks[N_BLOCKS_USED];
    for (uint32_t i = 0; i < N_IDS; i++) {
        ids[i] = i * 7919 % info->vocab_size;
    }
    for (uint32_t i = 0; i < N_BLOCKS_USED; i++) {
        blocks[i] = i * (info->groups[0].n_blocks / N_BLOCKS_USED);
    }
    model_driver d;
    model_driver_init(&d, m, N_IDS, 1);
    driven_sequence s = {.ids = ids, .n_ids = N_IDS, .blocks = blocks};
    model_driver_run(&d, &s, N_IDS);
    uint64_t used = resident() - before;
    uint64_t kv_used = N_BLOCKS_USED * info->groups[0].block_bytes;
    print_message("loaded in %d ms; weights %.1f MiB, resident %.1f MiB; with %.1f MiB of KV used %.1f MiB\n",
                  (int)load_ms, megabytes(info->weight_bytes), megabytes(loaded), megabytes(kv_used), megabytes(used));
#if !defined(RELAY_ASAN) && !defined(RELAY_TSAN) // their shadow memory is resident too
    assert_true(loaded < info->weight_bytes + SLACK);
    assert_true(used < info->weight_bytes + kv_used + SLACK);
#endif
    model_driver_fini(&d);
    relay_model_destroy(m);
    relay_gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_and_used_blocks_are_what_stays_resident)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
