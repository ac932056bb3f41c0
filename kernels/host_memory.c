#include "kernels/host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void out_of_memory(uint64_t bytes) {
    fprintf(stderr, "out of memory: %llu bytes\n", (unsigned long long)bytes);
    abort();
}

#ifdef RELAY_ASAN
// The address sanitizer watches the ends of malloc's memory, not those of mappings.
void *relay_host_alloc(uint64_t bytes) {
    if (bytes == 0) return NULL;
    void *p;
    if (posix_memalign(&p, RELAY_HOST_ALIGNMENT, bytes) != 0) out_of_memory(bytes);
    return memset(p, 0, bytes);
}

void relay_host_free(void *p, uint64_t bytes) {
    free(p);
}
#else
void *relay_host_alloc(uint64_t bytes) {
    if (bytes == 0) return NULL;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) out_of_memory(bytes);
    // Where the system makes large pages unasked, touching one KV block would make 2 MiB resident.
    madvise(p, bytes, MADV_NOHUGEPAGE);
    return p;
}

void relay_host_free(void *p, uint64_t bytes) {
    if (p != NULL) munmap(p, bytes);
}
#endif
