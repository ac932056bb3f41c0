// Memory that lives as long as one request (or one load): a bump allocator, freed all at once.
//
// Not thread-safe: one owner at a time. Bounded: an allocation that would pass the limit returns NULL, which request
// code answers with RESOURCE_EXHAUSTED. Memory is zeroed and aligned to 16 bytes.
#ifndef RELAY_COMMON_ARENA_H
#define RELAY_COMMON_ARENA_H

#include <stddef.h>

#include "common/status.h"

typedef struct relay_arena {
    struct relay_arena_chunk *head; // newest first
    size_t used;                    // bytes given out
    size_t limit;                   // bytes that may be given out
} relay_arena;

void relay_arena_init(relay_arena *a, size_t limit);
// Frees everything; the arena is as after init.
void relay_arena_fini(relay_arena *a);
void *relay_arena_alloc(relay_arena *a, size_t size) RELAY_NODISCARD;
// A copy of `len` bytes with a NUL behind it.
char *relay_arena_copy(relay_arena *a, const char *s, size_t len) RELAY_NODISCARD;

#endif
