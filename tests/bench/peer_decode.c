// The peer's side of decode_bench: the same commands as relay_decode, by llama.cpp's library with its default settings.
//
//   peer_decode BACKENDS MODEL THREADS
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml-backend.h"
#include "llama.h"

enum { MAX_ROWS = 512, MAX_CONTEXT = 4096 };

static struct llama_context *context;
static int n_vocab;

static void die(const char *what) {
    fprintf(stderr, "peer_decode: %s\n", what);
    exit(1);
}

static void no_log(enum ggml_log_level level, const char *text, void *arg) {
    (void)arg;
    if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct stamp {
    double wall, cpu;
} stamp;

static stamp now(void) {
    return (stamp){seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

static void answer_rate(int n, stamp began) {
    stamp ended = now();
    printf("%.3f %.3f\n", n / (ended.wall - began.wall), n / (ended.cpu - began.cpu));
}

static llama_token best(void) {
    const float *x = llama_get_logits_ith(context, -1);
    int top = 0;
    for (int i = 1; i < n_vocab; i++)
        if (x[i] > x[top]) top = i;
    return top;
}

static void run_prompt(int n) {
    static llama_token ids[MAX_ROWS];
    if (n > MAX_ROWS) die("the prompt is too long");
    for (int i = 0; i < n; i++)
        ids[i] = i * 7919 % n_vocab;
    llama_memory_clear(llama_get_memory(context), true);
    stamp began = now();
    if (llama_decode(context, llama_batch_get_one(ids, n))) die("decode failed");
    best();
    answer_rate(n, began);
}

static void run_decode(int n) {
    stamp began = now();
    for (int i = 0; i < n; i++) {
        llama_token id = best();
        if (llama_decode(context, llama_batch_get_one(&id, 1))) die("decode failed");
    }
    best();
    answer_rate(n, began);
}

static double resident_bytes(void) {
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*u %lu", &pages) != 1) die("no statm");
    fclose(f);
    return (double)pages * 4096;
}

int main(int argc, char **argv) {
    if (argc != 4) die("usage: BACKENDS MODEL THREADS");
    llama_log_set(no_log, NULL);
    ggml_backend_load_all_from_path(argv[1]);
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    struct llama_model *m = llama_model_load_from_file(argv[2], mp);
    if (!m) die("the model does not load");
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = MAX_CONTEXT;
    p.n_threads = p.n_threads_batch = atoi(argv[3]);
    context = llama_init_from_model(m, p);
    if (!context) die("no context");
    n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
    char command[16];
    while (scanf("%15s", command) == 1) {
        int n = 0;
        if (strcmp(command, "memory") != 0 && scanf("%d", &n) != 1) break;
        if (strcmp(command, "prompt") == 0) run_prompt(n);
        if (strcmp(command, "decode") == 0) run_decode(n);
        if (strcmp(command, "memory") == 0) printf("%.0f\n", resident_bytes());
        fflush(stdout);
    }
    llama_free(context);
    llama_model_free(m);
    return 0;
}
