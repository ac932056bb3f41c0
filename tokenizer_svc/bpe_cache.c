#include "tokenizer_svc/bpe_cache.h"

#include <stdlib.h>

#include "common/status.h"

enum {
    FIRST_SHORT_BITS = 12, // 128 KiB
    MAX_SHORT_BITS = 19,   // 16 MiB
    FIRST_LONG_BITS = 8,   // 16 KiB
    MAX_LONG_BITS = 17,    // 8 MiB
    FIRST_LIST = 1 << 10,
    MAX_LIST = 1 << 21, // 8 MiB
};

enum { OVERRUN = 2 * RELAY_BPE_CACHE_PROBES }; // slots

_Static_assert((sizeof(relay_bpe_short_slot) << MAX_SHORT_BITS) + (sizeof(relay_bpe_long_slot) << MAX_LONG_BITS) +
                       MAX_LIST * sizeof(uint32_t) <=
                   RELAY_BPE_CACHE_MAX_BYTES,
               "the bound that the header promises");

#define LOW(bytes) (UINT64_MAX >> (64 - 8 * (bytes)))
const relay_bpe_key relay_bpe_key_masks[16] = {
    {0, 0},           {LOW(1), 0},      {LOW(2), 0},      {LOW(3), 0},      {LOW(4), 0},      {LOW(5), 0},
    {LOW(6), 0},      {LOW(7), 0},      {LOW(8), 0},      {LOW(8), LOW(1)}, {LOW(8), LOW(2)}, {LOW(8), LOW(3)},
    {LOW(8), LOW(4)}, {LOW(8), LOW(5)}, {LOW(8), LOW(6)}, {LOW(8), LOW(7)},
};

static size_t shorts_size(const relay_bpe_cache *c) {
    return (((size_t)1 << c->short_bits) + OVERRUN) * sizeof *c->shorts;
}

static void *zeroed_lines(size_t size) {
    void *p = aligned_alloc(64, size);
    RELAY_ASSERT(p != NULL);
    memset(p, 0, size);
    return p;
}

void relay_bpe_cache_init(relay_bpe_cache *c) {
    *c = (relay_bpe_cache){.short_bits = FIRST_SHORT_BITS, .long_bits = FIRST_LONG_BITS};
    c->shorts = zeroed_lines(shorts_size(c));
    c->longs = zeroed_lines(sizeof *c->longs << c->long_bits);
}

void relay_bpe_cache_fini(relay_bpe_cache *c) {
    free(c->shorts);
    free(c->longs);
    free(c->list);
    *c = (relay_bpe_cache){0};
}

static void forget_all(relay_bpe_cache *c) {
    memset(c->shorts, 0, shorts_size(c));
    memset(c->longs, 0, sizeof *c->longs << c->long_bits);
    c->n_list = c->n_shorts = c->n_longs = 0;
}

// Where n ids lie in the list; with the list full, everything is forgotten first.
static uint32_t add_to_list(relay_bpe_cache *c, const uint32_t *ids, uint32_t n) {
    if (c->n_list + n > MAX_LIST) forget_all(c);
    while (c->n_list + n > c->list_cap) {
        c->list_cap = c->list_cap == 0 ? FIRST_LIST : 2 * c->list_cap;
        c->list = relay_realloc(c->list, (c->list_cap + RELAY_BPE_LIST_SLACK) * sizeof *c->list);
    }
    memcpy(c->list + c->n_list, ids, n * sizeof *ids);
    c->n_list += n;
    return c->n_list - n;
}

// ---- Short words

// Into the first free slot of its sets, or else in place of the first.
static void put_short(relay_bpe_cache *c, const relay_bpe_short_slot *slot) {
    relay_bpe_short_slot *set = relay_bpe_cache_short_set(c, slot->key), *to = set;
    for (int i = 0; i < OVERRUN; i++) {
        if (!relay_bpe_short_is_free(&set[i])) continue;
        to = &set[i];
        break;
    }
    *to = *slot;
}

static void grow_shorts(relay_bpe_cache *c) {
    relay_bpe_short_slot *old = c->shorts;
    size_t n = ((size_t)1 << c->short_bits) + OVERRUN;
    c->short_bits++;
    c->shorts = zeroed_lines(shorts_size(c));
    for (size_t i = 0; i < n; i++)
        if (!relay_bpe_short_is_free(&old[i])) put_short(c, &old[i]);
    free(old);
}

void relay_bpe_cache_add_short(relay_bpe_cache *c, relay_bpe_key k, const uint32_t *ids, uint32_t n) {
    relay_bpe_short_slot slot = {.key = k, .n = n};
    if (n <= RELAY_BPE_SHORT_IDS)
        memcpy(slot.id, ids, n * sizeof *ids);
    else
        slot.id[0] = add_to_list(c, ids, n);
    if (c->short_bits < MAX_SHORT_BITS && 2 * (uint64_t)c->n_shorts > UINT64_C(1) << c->short_bits) grow_shorts(c);
    put_short(c, &slot);
    c->n_shorts++;
}

// ---- Longer words

void relay_bpe_long_key_of(const char *word, size_t len, uint32_t kind, relay_bpe_key k[2]) {
    memset(k, 0, 2 * sizeof *k);
    memcpy(k, word, len);
    k[1].tail |= (uint64_t)(len << 1 | kind) << 56;
}

relay_bpe_long_slot *relay_bpe_cache_long_set(const relay_bpe_cache *c, const relay_bpe_key k[2]) {
    uint64_t h = relay_bpe_key_hash(k[0]) ^ relay_bpe_key_hash(k[1]) >> 7;
    return &c->longs[h * UINT64_C(0x9E3779B97F4A7C15) >> (64 - c->long_bits) & ~UINT64_C(1)];
}

const relay_bpe_long_slot *relay_bpe_cache_find_long(const relay_bpe_cache *c, const relay_bpe_key k[2]) {
    const relay_bpe_long_slot *set = relay_bpe_cache_long_set(c, k);
    for (int i = 0; i < 2; i++)
        if (relay_bpe_key_equal(set[i].key[0], k[0]) && relay_bpe_key_equal(set[i].key[1], k[1])) return &set[i];
    return NULL;
}

static void put_long(relay_bpe_cache *c, const relay_bpe_long_slot *slot) {
    relay_bpe_long_slot *set = relay_bpe_cache_long_set(c, slot->key);
    if (set[0].n > 0) set[1] = set[0]; // the older of the two goes
    set[0] = *slot;
}

static void grow_longs(relay_bpe_cache *c) {
    relay_bpe_long_slot *old = c->longs;
    size_t n = (size_t)1 << c->long_bits;
    c->long_bits++;
    c->longs = zeroed_lines(sizeof *c->longs << c->long_bits);
    for (size_t i = 0; i < n; i++)
        if (old[i].n > 0) put_long(c, &old[i]);
    free(old);
}

void relay_bpe_cache_add_long(relay_bpe_cache *c, const relay_bpe_key k[2], const uint32_t *ids, uint32_t n) {
    relay_bpe_long_slot slot = {.key = {k[0], k[1]}, .n = n};
    if (n <= RELAY_BPE_LONG_IDS)
        memcpy(slot.id, ids, n * sizeof *ids);
    else
        slot.id[0] = add_to_list(c, ids, n);
    if (c->long_bits < MAX_LONG_BITS && 2 * (uint64_t)c->n_longs > UINT64_C(1) << c->long_bits) grow_longs(c);
    put_long(c, &slot);
    c->n_longs++;
}
