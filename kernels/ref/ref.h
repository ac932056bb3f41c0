// The reference backend: every operation in plain C, slow and readable, on one thread. The truth for tests.
//
// Weights are kept as float32 and sums are made in double, so its results are near what exact arithmetic gives. A
// result depends on its own row alone because every row is computed by itself.
#ifndef RELAY_KERNELS_REF_REF_H
#define RELAY_KERNELS_REF_REF_H

#include "kernels/kernels.h"

extern const relay_kernels relay_kernels_ref;

// ---- For the files of this folder

// Bytes of scratch that relay_ref_sample needs for a vocabulary.
uint64_t relay_ref_sample_scratch(uint32_t n_vocab);
void relay_ref_sample(void *scratch, relay_sample_result *results, const float *logits, uint32_t n_vocab,
                      const relay_sample_input *in);

#endif
