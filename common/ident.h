// Identifiers: unguessable ones, and what this process is called.
#ifndef RELAY_COMMON_IDENT_H
#define RELAY_COMMON_IDENT_H

#include <stdint.h>

// Fills `out` with `n` bytes from the kernel's generator; n <= 256.
void relay_ident_random(void *out, uint32_t n);
// `n` bytes as lower-case hexadecimal with a NUL behind: `out` has room for 2 * n + 1.
void relay_ident_hex(char *out, const uint8_t *bytes, uint32_t n);
// The name of this machine or pod, NUL-terminated, cut to fit.
void relay_ident_pod(char *out, uint32_t cap);

#endif
