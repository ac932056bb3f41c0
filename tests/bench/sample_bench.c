// What drawing an id costs, by vocabulary and setting: microseconds a row, on one thread of the fastest backend.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "kernels/kernels.h"

enum { MAX_VOCAB = 262144, REPEATS = 60 };

// Logits of roughly the shape that models give: normal, with a few far ahead.
static void make_row(float *logits, uint32_t n) {
    uint64_t x = 88172645463325252u;
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < 12; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            sum += (double)(x >> 11) * 0x1p-53;
        }
        logits[i] = (float)((sum - 6) * 2.5);
    }
    for (uint32_t i = 0; i < 20; i++)
        logits[(uint64_t)i * 7919 % n] = 16 - 0.4f * (float)i;
}

typedef struct setting {
    const char *name;
    relay_sample_params p;
} setting;

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
#define PLAIN .top_p = 1, .typical_p = 1, .repetition_penalty = 1
    static const setting settings[] = {
        {"greedy", {PLAIN}},
        {"temperature 1", {PLAIN, .temperature = 1}},
        {"top_k 40", {PLAIN, .temperature = 1, .top_k = 40}},
        {"top_p 0.95", {.temperature = 1, .top_p = 0.95f, .typical_p = 1, .repetition_penalty = 1}},
        {"top_p 0.95 at temperature 2", {.temperature = 2, .top_p = 0.95f, .typical_p = 1, .repetition_penalty = 1}},
        {"min_p 0.05", {PLAIN, .temperature = 1, .min_p = 0.05f}},
        {"top_n_sigma 1", {PLAIN, .temperature = 1, .top_n_sigma = 1}},
        {"typical_p 0.95", {.temperature = 1, .top_p = 1, .typical_p = 0.95f, .repetition_penalty = 1}},
        {"xtc", {PLAIN, .temperature = 1, .xtc_probability = 1, .xtc_threshold = 0.1f}},
        {"mirostat 1",
         {PLAIN, .temperature = 1, .mirostat = 1, .mirostat_tau = 5, .mirostat_eta = 0.1f, .mirostat_mu = 10}},
        {"mirostat 2",
         {PLAIN, .temperature = 1, .mirostat = 2, .mirostat_tau = 5, .mirostat_eta = 0.1f, .mirostat_mu = 10}},
        {"top_p 0.95, 20 raw logprobs",
         {.temperature = 1,
          .top_p = 0.95f,
          .typical_p = 1,
          .repetition_penalty = 1,
          .logprob_mode = RELAY_LOGPROB_RAW,
          .n_top = 20}},
    };
    static const uint32_t vocabs[] = {49152, 151936, 262144};
    const relay_kernels *k;
    relay_device *d;
    relay_err e;
    const relay_device_opts opts = {
        .n_threads = 1, .max_rows = 1, .max_width = 64, .max_context = 64, .max_vocab = MAX_VOCAB, .max_samples = 1};
    if (relay_kernels_choose(&k, NULL, &e) != RELAY_OK || k->device_create(&d, &opts, &e) != RELAY_OK) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    float *logits = relay_calloc(MAX_VOCAB, sizeof *logits);
    printf("%s, median of %d, microseconds a row\n%-30s", k->name, REPEATS, "vocabulary");
    for (uint32_t v = 0; v < 3; v++)
        printf("%10u", vocabs[v]);
    for (uint32_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
        printf("\n%-30s", settings[s].name);
        for (uint32_t v = 0; v < 3; v++) {
            make_row(logits, vocabs[v]);
            double us[REPEATS];
            for (uint32_t i = 0; i < REPEATS; i++) {
                relay_sample_params p = settings[s].p;
                relay_sample_result r;
                p.seed = i;
                relay_mono_us begin = relay_mono_now();
                for (uint32_t j = 0; j < 4; j++)
                    k->sample(d, &r, logits, vocabs[v], &(relay_sample_input){.n_samples = 1, .d_params = &p});
                us[i] = (double)(relay_mono_now() - begin) / 4;
            }
            qsort(us, REPEATS, sizeof us[0], compare);
            printf("%10.0f", us[REPEATS / 2]);
        }
    }
    printf("\n");
    k->device_destroy(d);
    free(logits);
    return 0;
}
