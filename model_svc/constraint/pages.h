// Memory of a fixed size of which most is never used: zeroed pages from the system, resident once they are touched, and
// given back whole.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_PAGES_H
#define RELAY_MODEL_SVC_CONSTRAINT_PAGES_H

#include <stdint.h>
#include <sys/mman.h>

#include "common/status.h"

// Aborts when out of address space.
static inline void *relay_pages_map(uint64_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    RELAY_ASSERT(p != MAP_FAILED);
    return p;
}

// With the size that it was mapped with. NULL is fine.
static inline void relay_pages_unmap(void *p, uint64_t bytes) {
    if (p != NULL) munmap(p, bytes);
}

#endif
