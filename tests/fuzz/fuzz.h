// What a fuzz target defines. libFuzzer calls the first; tests/fuzz/standalone.c calls both.
#ifndef RELAY_TESTS_FUZZ_FUZZ_H
#define RELAY_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

// Feeds one input to the code under test; returns 0. Anything wrong is a crash, an abort or a sanitizer's report.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Writes seed i (at most `cap` bytes) and returns its size; 0: there are no more. A target whose seeds are files needs
// none.
size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap);

#endif
