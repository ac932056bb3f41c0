// What loading a tokenizer costs: processor time and time of the reader, the vocabulary, the tokenizer and the whole
// text model, and the most memory held meanwhile, beside the file's size. The file is in the page cache.
//
// usage: tokenizer_load [--rounds N] FILE...     the least of N rounds, each in a process of its own
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "tokenizer_svc/formats/formats.h"
#include "tokenizer_svc/spec_vocab.h"
#include "tokenizer_svc/text_model.h"

enum { N_STAGES = 3 };

// Microseconds, and kilobytes above what the process held before it.
typedef struct load_cost {
    bool is_loaded;
    uint64_t stage_cpu[N_STAGES]; // reader, vocabulary, tokenizer
    uint64_t cpu, wall;           // of the whole model
    uint64_t peak_kb;
} load_cost;

static uint64_t cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t peak_kb(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss;
}

static relay_code load_model(const char *path, load_cost *cost, relay_err *e) {
    relay_text_model *model;
    uint64_t held = peak_kb(), cpu = cpu_now();
    relay_mono_us begin = relay_mono_now();
    relay_code code = relay_text_model_load(&model, path, "", e);
    if (code != RELAY_OK) return code;
    cost->wall = (uint64_t)(relay_mono_now() - begin);
    cost->cpu = cpu_now() - cpu;
    cost->peak_kb = peak_kb() - held;
    relay_text_model_destroy(model);
    return RELAY_OK;
}

static relay_code load_stages(const char *path, load_cost *cost, relay_err *e) {
    relay_tokenizer_spec spec = {0};
    relay_vocab *vocab = NULL;
    relay_tokenizer *tokenizer = NULL;
    uint64_t t[N_STAGES + 1] = {cpu_now()};
    relay_code code = relay_tokenizer_spec_read(&spec, path, e);
    t[1] = cpu_now();
    if (code == RELAY_OK) code = relay_vocab_create_from_spec(&vocab, &spec, e);
    t[2] = cpu_now();
    if (code == RELAY_OK) code = relay_tokenizer_create(&tokenizer, &spec, e);
    t[3] = cpu_now();
    for (int i = 0; i < N_STAGES; i++)
        cost->stage_cpu[i] = t[i + 1] - t[i];
    relay_tokenizer_destroy(tokenizer);
    relay_vocab_destroy(vocab);
    relay_tokenizer_spec_fini(&spec);
    return code;
}

// In a child, so that no round finds the memory of another.
static load_cost measure(const char *path) {
    load_cost cost = {0};
    int ends[2];
    RELAY_ASSERT(pipe(ends) == 0);
    pid_t child = fork();
    RELAY_ASSERT(child >= 0);
    if (child == 0) {
        relay_err e = {0};
        relay_code code = load_model(path, &cost, &e);
        if (code == RELAY_OK) code = load_stages(path, &cost, &e);
        if (code != RELAY_OK) fprintf(stderr, "%s\n", e.message);
        cost.is_loaded = code == RELAY_OK;
        _exit(write(ends[1], &cost, sizeof cost) == (ssize_t)sizeof cost ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &cost, sizeof cost) != (ssize_t)sizeof cost) cost.is_loaded = false;
    close(ends[0]);
    waitpid(child, NULL, 0);
    return cost;
}

static void keep_least(uint64_t *least, uint64_t v) {
    if (*least == 0 || v < *least) *least = v;
}

static bool bench(const char *path, long rounds) {
    load_cost least = {0};
    for (long i = 0; i < rounds; i++) {
        load_cost cost = measure(path);
        if (!cost.is_loaded) return false;
        for (int k = 0; k < N_STAGES; k++)
            keep_least(&least.stage_cpu[k], cost.stage_cpu[k]);
        keep_least(&least.cpu, cost.cpu);
        keep_least(&least.wall, cost.wall);
        keep_least(&least.peak_kb, cost.peak_kb);
    }
    struct stat st = {0};
    double mb = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? (double)st.st_size / 1e6 : 0;
    printf("| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", path, mb, (double)least.stage_cpu[0] / 1e3,
           (double)least.stage_cpu[1] / 1e3, (double)least.stage_cpu[2] / 1e3, (double)least.cpu / 1e3,
           (double)least.wall / 1e3, (double)least.peak_kb * 1024 / 1e6);
    fflush(stdout);
    return true;
}

int main(int argc, char **argv) {
    int first = 1;
    long rounds = 5;
    if (argc > 2 && strcmp(argv[1], "--rounds") == 0) {
        rounds = strtol(argv[2], NULL, 10);
        first = 3;
    }
    if (first >= argc || rounds < 1) {
        fprintf(stderr, "usage: tokenizer_load [--rounds N] FILE...\n");
        return 2;
    }
    printf("| file | MB | reader, ms | vocabulary, ms | tokenizer, ms | all, ms | all, elapsed ms | memory, MB |\n"
           "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    fflush(stdout);
    bool is_good = true;
    for (int i = first; i < argc; i++)
        is_good = bench(argv[i], rounds) && is_good;
    return is_good ? 0 : 1;
}
