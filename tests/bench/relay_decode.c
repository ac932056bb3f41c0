// Relay's side of decode_bench: runs the model alone, without service or engine.
//
//   relay_decode MODEL THREADS [KV_TYPE]
//
// Reads commands, one a line, and answers each with a line of numbers:
//   prompt N   a fresh sequence of N ids in one step            tokens a second, and a second of processor time
//   decode N   N more ids, one a step, greedily                 the same
//   memory     resident bytes
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/model_svc/model_driver.h"

enum { MAX_ROWS = 512, MAX_CONTEXT = 4096 };

static uint32_t ids[MAX_CONTEXT], blocks[MAX_CONTEXT / RELAY_BLOCK_TOKENS];

// Both clocks in seconds: of the wall, and of the processors under all of this process's threads.
typedef struct stamp {
    double wall, cpu;
} stamp;

static stamp now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (stamp){.wall = (double)relay_mono_now() * 1e-6, .cpu = (double)t.tv_sec + (double)t.tv_nsec * 1e-9};
}

static void answer_rate(uint32_t n, stamp began) {
    stamp ended = now();
    printf("%.3f %.3f\n", n / (ended.wall - began.wall), n / (ended.cpu - began.cpu));
}

static void run_prompt(model_driver *d, driven_sequence *s, uint32_t n) {
    RELAY_ASSERT(n <= MAX_ROWS);
    uint32_t vocab_size = relay_model_get_info(d->model)->vocab_size;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = i * 7919 % vocab_size;
    }
    *s = (driven_sequence){.ids = ids, .n_ids = MAX_CONTEXT, .blocks = blocks};
    stamp began = now();
    model_driver_step(d, s, &n, 1);
    answer_rate(n, began);
}

static void run_decode(model_driver *d, driven_sequence *s, uint32_t n) {
    RELAY_ASSERT(s->n_done > 0 && s->n_done + n <= MAX_CONTEXT);
    stamp began = now();
    for (uint32_t i = 0; i < n; i++) {
        ids[s->n_done] = d->results[0].token_id;
        model_driver_step(d, s, &(uint32_t){1}, 1);
    }
    answer_rate(n, began);
}

static double resident_bytes(void) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    RELAY_ASSERT(f && fscanf(f, "%*u %lu", &pages) == 1);
    fclose(f);
    return (double)pages * 4096;
}

int main(int argc, char **argv) {
    relay_err e = {0};
    relay_gguf *g;
    relay_model *m;
    if (argc != 3 && argc != 4) return 2;
    relay_model_opts opts = {
        .n_threads = (uint32_t)atoi(argv[2]),
        .kv_type = relay_kv_type_of(argc == 4 ? argv[3] : "f16"),
        .max_context = MAX_CONTEXT,
        .max_rows = MAX_ROWS,
        .max_sequences = 1,
    };
    relay_code code = relay_gguf_open(&g, argv[1], &e);
    if (code == RELAY_OK) {
        code = relay_model_load(&m, g, argv[1], &opts, &e);
        relay_gguf_close(g);
    }
    if (code != RELAY_OK) {
        fprintf(stderr, "relay_decode: %s\n", e.message);
        return 1;
    }
    for (uint32_t i = 0; i < MAX_CONTEXT / RELAY_BLOCK_TOKENS; i++) {
        blocks[i] = i;
    }
    model_driver d;
    model_driver_init(&d, m, MAX_ROWS, 1);
    driven_sequence s = {0};
    char command[16];
    while (scanf("%15s", command) == 1) {
        unsigned n = 0;
        if (strcmp(command, "memory") != 0 && scanf("%u", &n) != 1) break;
        if (strcmp(command, "prompt") == 0) run_prompt(&d, &s, n);
        if (strcmp(command, "decode") == 0) run_decode(&d, &s, n);
        if (strcmp(command, "memory") == 0) printf("%.0f\n", resident_bytes());
        fflush(stdout);
    }
    model_driver_fini(&d);
    relay_model_destroy(m);
    return 0;
}
