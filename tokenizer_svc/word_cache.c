// Open addressing, at most half full; records lie in one block. Both double as they fill, from what suits a short text
// to MAX_SLOTS and MAX_RECORDS, about the size of a second-level cache.
#include "tokenizer_svc/word_cache.h"

#include <stdlib.h>

#include "common/status.h"

enum { MIN_SLOTS = 256, MAX_SLOTS = 1 << 17, MAX_RECORDS = 1 << 19, SLOTS_PER_BYTE = 16 };

void relay_word_cache_init(relay_word_cache *c, size_t text_len) {
    uint32_t n = MIN_SLOTS;
    while (n < MAX_SLOTS / 8 && n < text_len / SLOTS_PER_BYTE)
        n *= 2;
    *c = (relay_word_cache){.slots = relay_calloc(n, sizeof *c->slots), .mask = n - 1, .cap = 4 * n};
    c->records = relay_calloc(c->cap, sizeof *c->records);
}

void relay_word_cache_fini(relay_word_cache *c) {
    free(c->slots);
    free(c->records);
    *c = (relay_word_cache){0};
}

static relay_word_slot *free_slot(const relay_word_cache *c, uint32_t tag) {
    uint32_t i = tag & c->mask;
    while (c->slots[i].record != 0)
        i = (i + 1) & c->mask;
    return &c->slots[i];
}

static void empty(relay_word_cache *c) {
    memset(c->slots, 0, ((size_t)c->mask + 1) * sizeof *c->slots);
    c->n = c->used = 0;
}

static void grow_slots(relay_word_cache *c) {
    relay_word_slot *old = c->slots;
    uint32_t n_old = c->mask + 1;
    c->mask = 2 * n_old - 1;
    c->slots = relay_calloc(2 * (uint64_t)n_old, sizeof *c->slots);
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].record != 0) *free_slot(c, old[i].tag) = old[i];
    free(old);
}

relay_cached_word *relay_word_cache_add(relay_word_cache *c, const char *word, size_t len, uint32_t n_tokens,
                                        uint64_t hash) {
    RELAY_ASSERT(len <= RELAY_WORD_CACHE_MAX_WORD && n_tokens <= RELAY_WORD_CACHE_MAX_WORD);
    size_t bytes = sizeof(relay_cached_word) + n_tokens * (sizeof(uint32_t) + 1) + len;
    uint32_t need = (uint32_t)((bytes + 7) / 8);
    if (c->n >= (c->mask + 1) / 2) {
        if (c->mask + 1 < MAX_SLOTS)
            grow_slots(c);
        else
            empty(c);
    }
    if (c->cap - c->used < need) {
        if (c->cap < MAX_RECORDS) {
            c->cap = 2 * c->cap < need + c->used ? need + c->used : 2 * c->cap;
            c->records = relay_realloc(c->records, (uint64_t)c->cap * sizeof *c->records);
        } else {
            empty(c);
        }
    }
    *free_slot(c, (uint32_t)hash) = (relay_word_slot){.tag = (uint32_t)hash, .record = c->used + 1};
    relay_cached_word *w = (relay_cached_word *)&c->records[c->used];
    c->used += need;
    c->n++;
    *w = (relay_cached_word){.len = (uint8_t)len, .n_tokens = (uint8_t)n_tokens};
    memcpy(relay_cached_word_ends(w) + n_tokens, word, len);
    return w;
}
