// What the benchmarks that load a server share: times taken, their quantiles, and waiting for when a call is due.
#ifndef RELAY_CLI_BENCH_TIMES_H
#define RELAY_CLI_BENCH_TIMES_H

#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"

typedef struct relay_bench_times {
    uint32_t *micros; // what takes longer than they can tell counts as the longest
    size_t n, cap;
} relay_bench_times;

void relay_bench_times_add(relay_bench_times *t, relay_mono_us took);
void relay_bench_times_add_all(relay_bench_times *t, const relay_bench_times *of);
// Before quantiles are asked for.
void relay_bench_times_sort(relay_bench_times *t);
// The q-quantile in milliseconds, 0 <= q <= 1; there must be a time.
double relay_bench_times_quantile(const relay_bench_times *t, double q);
void relay_bench_times_fini(relay_bench_times *t);

// Returns early on Ctrl-C.
void relay_bench_sleep_until(relay_mono_us at);

#endif
