// Counts what a thread asks of the C library that a step must not: memory, locks and output. The program is linked with
// --wrap for each of these functions (BUILD.bazel), so every call from Relay's code comes by here.
#ifndef RELAY_TESTS_MODEL_SVC_CALL_COUNTER_H
#define RELAY_TESTS_MODEL_SVC_CALL_COUNTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct call_counts {
    _Atomic uint64_t memory;   // malloc, calloc, realloc, aligned_alloc, free
    _Atomic uint64_t locks;    // mutexes and condition variables
    _Atomic uint64_t output;   // write, fprintf, vfprintf, fputs
    _Atomic uint64_t syscalls; // through syscall(), futexes apart
} call_counts;

extern call_counts counted;
// Whether this thread's calls count from here on. A function, because compilers know that malloc changes no variable.
void count_calls(bool counts);

#endif
