// Philox4x32-10: random numbers as a function of a counter and a key.
//
// Method: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). There is no state to
// carry, so a draw depends on its name alone and can be made again on another machine.
#ifndef RELAY_KERNELS_PHILOX_H
#define RELAY_KERNELS_PHILOX_H

#include <stdint.h>

typedef struct relay_philox_block {
    uint32_t v[4];
} relay_philox_block;

static inline relay_philox_block relay_philox4x32(relay_philox_block counter, uint32_t key0, uint32_t key1) {
    uint32_t *c = counter.v;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * c[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57 * c[2];
        relay_philox_block next = {{
            (uint32_t)(p1 >> 32) ^ c[1] ^ key0,
            (uint32_t)p1,
            (uint32_t)(p0 >> 32) ^ c[3] ^ key1,
            (uint32_t)p0,
        }};
        counter = next;
        key0 += 0x9E3779B9; // the golden ratio and sqrt(3) - 1: Weyl sequences of the key
        key1 += 0xBB67AE85;
    }
    return counter;
}

// What a draw is for: draws of one token for different purposes are independent.
enum { RELAY_DRAW_TOKEN = 0, RELAY_DRAW_XTC = 1 };

// Uniform in [0, 1), of 53 random bits.
static inline double relay_philox_uniform(uint64_t seed, uint32_t position, uint32_t sequence_index, uint32_t purpose) {
    relay_philox_block counter = {{position, sequence_index, purpose, 0}};
    relay_philox_block r = relay_philox4x32(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    return (double)((uint64_t)(r.v[0] >> 5) << 26 | r.v[1] >> 6) * 0x1p-53;
}

#endif
