// Memory of the backends that run on the processor: zeroed pages that become resident when first touched.
#ifndef RELAY_KERNELS_HOST_MEMORY_H
#define RELAY_KERNELS_HOST_MEMORY_H

#include <stdint.h>

enum { RELAY_HOST_ALIGNMENT = 64 };

// Aligned to RELAY_HOST_ALIGNMENT at least; NULL for 0 bytes. Aborts when out of memory.
void *relay_host_alloc(uint64_t bytes);
void relay_host_free(void *p, uint64_t bytes);

#endif
