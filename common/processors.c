#define _GNU_SOURCE
#include "common/processors.h"

#include <sched.h>
#include <stdio.h>

// Processors that control group v2's quota grants, rounded up; 0 where there is none.
static uint32_t quota_processors(void) {
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f == NULL) return 0;
    unsigned long quota, period;
    int n = fscanf(f, "%lu %lu", &quota, &period); // "max 100000" where there is no quota
    fclose(f);
    return n == 2 && period > 0 ? (uint32_t)((quota + period - 1) / period) : 0;
}

uint32_t relay_processors_available(void) {
    cpu_set_t set;
    uint32_t n = sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
    uint32_t quota = quota_processors();
    if (quota > 0 && quota < n) n = quota;
    return n > 0 ? n : 1;
}
