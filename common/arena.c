#include "common/arena.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 16 * 1024, ALIGN = 16 };

struct relay_arena_chunk {
    struct relay_arena_chunk *next;
    size_t used, cap;
    _Alignas(ALIGN) char data[];
};

void relay_arena_init(relay_arena *a, size_t limit) {
    *a = (relay_arena){.limit = limit};
}

void relay_arena_fini(relay_arena *a) {
    struct relay_arena_chunk *c = a->head;
    while (c != NULL) {
        struct relay_arena_chunk *next = c->next;
        free(c);
        c = next;
    }
    relay_arena_init(a, a->limit);
}

void *relay_arena_alloc(relay_arena *a, size_t size) {
    if (size > a->limit - a->used || size > SIZE_MAX - ALIGN) return NULL;
    size_t rounded = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct relay_arena_chunk *c = a->head;
    if (c == NULL || c->cap - c->used < rounded) {
        size_t cap = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
        c = calloc(1, sizeof *c + cap);
        if (c == NULL) return NULL;
        c->cap = cap;
        c->next = a->head;
        a->head = c;
    }
    void *p = c->data + c->used;
    c->used += rounded;
    a->used += size;
    return p;
}

char *relay_arena_copy(relay_arena *a, const char *s, size_t len) {
    char *copy = relay_arena_alloc(a, len + 1);
    if (copy != NULL && len != 0) memcpy(copy, s, len);
    return copy;
}
