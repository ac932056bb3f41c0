// Time. Intervals are monotonic microseconds; wall time appears only in logs and in what a client is told.
#ifndef RELAY_COMMON_CLOCK_H
#define RELAY_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

typedef int64_t relay_mono_us; // microseconds of CLOCK_MONOTONIC

#define RELAY_NEVER_US INT64_MAX // a deadline that never comes

static inline relay_mono_us relay_mono_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

// Milliseconds since 1970.
static inline uint64_t relay_unix_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

#endif
