#include "model_svc/rope_table.h"

#include <math.h>
#include <stdlib.h>

enum { CHUNK = 64 }; // positions computed before they are uploaded

uint64_t relay_rope_table_bytes(const relay_hyperparameters *h, uint32_t n_positions) {
    return (uint64_t)n_positions * h->n_rot * sizeof(float);
}

float *relay_rope_table_create(relay_device *d, const relay_hyperparameters *h, const float *factors,
                               uint32_t n_positions) {
    uint32_t n_pairs = h->n_rot / 2;
    double *frequency = relay_calloc(n_pairs, sizeof *frequency); // radians a position
    for (uint32_t i = 0; i < n_pairs; i++) {
        frequency[i] = pow(h->rope_base, -2.0 * i / h->n_rot) / h->rope_factor / (factors ? (double)factors[i] : 1);
    }
    float *d_table = d->k->alloc(d, relay_rope_table_bytes(h, n_positions));
    float *chunk = relay_calloc((uint64_t)CHUNK * h->n_rot, sizeof *chunk);
    for (uint32_t first = 0; first < n_positions; first += CHUNK) {
        uint32_t n = n_positions - first < CHUNK ? n_positions - first : CHUNK;
        for (uint32_t p = 0; p < n; p++) {
            for (uint32_t i = 0; i < n_pairs; i++) {
                double angle = (first + p) * frequency[i];
                chunk[(p * n_pairs + i) * 2] = (float)cos(angle);
                chunk[(p * n_pairs + i) * 2 + 1] = (float)sin(angle);
            }
        }
        d->k->upload(d, d_table + (uint64_t)first * h->n_rot, chunk, (uint64_t)n * h->n_rot * sizeof *chunk);
    }
    free(chunk);
    free(frequency);
    return d_table;
}
