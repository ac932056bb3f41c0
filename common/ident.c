#include "common/ident.h"

#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/status.h"

void relay_ident_random(void *out, uint32_t n) {
    RELAY_ASSERT(n <= 256); // up to here the kernel gives all or nothing (getrandom(2))
    while (getrandom(out, n, 0) != (ssize_t)n)
        RELAY_ASSERT(errno == EINTR);
}

void relay_ident_hex(char *out, const uint8_t *bytes, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

void relay_ident_pod(char *out, uint32_t cap) {
    if (gethostname(out, cap) != 0) out[0] = '\0';
    out[cap - 1] = '\0';
}
