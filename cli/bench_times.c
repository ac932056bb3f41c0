#include "cli/bench_times.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

enum { SECOND_US = 1000000 };

static void reserve(relay_bench_times *t, size_t n) {
    if (t->n + n <= t->cap) return;
    t->cap = t->cap * 2 + n + 64;
    t->micros = relay_realloc(t->micros, t->cap * sizeof *t->micros);
}

void relay_bench_times_add(relay_bench_times *t, relay_mono_us took) {
    reserve(t, 1);
    t->micros[t->n++] = took > UINT32_MAX ? UINT32_MAX : took < 0 ? 0 : (uint32_t)took;
}

void relay_bench_times_add_all(relay_bench_times *t, const relay_bench_times *of) {
    if (of->n == 0) return;
    reserve(t, of->n);
    memcpy(t->micros + t->n, of->micros, of->n * sizeof *of->micros);
    t->n += of->n;
}

static int compare_micros(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void relay_bench_times_sort(relay_bench_times *t) {
    if (t->n != 0) qsort(t->micros, t->n, sizeof *t->micros, compare_micros);
}

double relay_bench_times_quantile(const relay_bench_times *t, double q) {
    return t->micros[(size_t)(q * (double)(t->n - 1) + 0.5)] / 1e3;
}

void relay_bench_times_fini(relay_bench_times *t) {
    free(t->micros);
    *t = (relay_bench_times){0};
}

void relay_bench_sleep_until(relay_mono_us at) {
    struct timespec t = {.tv_sec = at / SECOND_US, .tv_nsec = at % SECOND_US * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0 && !relay_cli_is_interrupted()) {
    }
}
