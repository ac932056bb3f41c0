// Reads the files of tests/golden: comment lines with #, `name value` lines, then `rows N` and N lines of numbers.
#ifndef RELAY_TESTS_MODEL_SVC_GOLDEN_H
#define RELAY_TESTS_MODEL_SVC_GOLDEN_H

#include <stdint.h>

typedef struct golden {
    double peer_same_top;        // share of positions where the peer's top id on the quantized file is the truth's
    double peer_mean_difference; // mean of |the peer's logprob of the next id - the truth's|
    uint32_t n_rows;
    uint32_t *ids;        // [n_rows]
    uint32_t *top_ids;    // [n_rows] the truth's; 0 in a file of ids alone
    double *next_logprob; // [n_rows] the truth's logprob of the next row's id; the last one means nothing
} golden;

// Ends the program where the file is missing or is none.
golden golden_read(const char *path);
void golden_free(golden *g);

#endif
