#include "tokenizer_svc/bpe_cache.h"

#include <stdlib.h>

#include "common/status.h"

enum {
    FIRST_SHORT_BITS = 12, // 128 KiB
    MAX_SHORT_BITS = 19,   // 16 MiB
    FIRST_LONG_BITS = 8,   // 16 KiB
    MAX_LONG_BITS = 17,    // 8 MiB
    FIRST_CLAUSE_BITS = 8, // 4 KiB
    MAX_CLAUSE_BITS = 16,  // 1 MiB
    FIRST_LIST = 1 << 10,
    MAX_LIST = 1 << 22, // 16 MiB
};

enum { OVERRUN = 2 * RELAY_BPE_CACHE_PROBES }; // slots

_Static_assert((sizeof(relay_bpe_short_slot) << MAX_SHORT_BITS) + (sizeof(relay_bpe_long_slot) << MAX_LONG_BITS) +
                       (sizeof(relay_bpe_clause_slot) << MAX_CLAUSE_BITS) + MAX_LIST * sizeof(uint32_t) <=
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
    *c = (relay_bpe_cache){
        .short_bits = FIRST_SHORT_BITS, .long_bits = FIRST_LONG_BITS, .clause_bits = FIRST_CLAUSE_BITS};
    c->shorts = zeroed_lines(shorts_size(c));
    c->longs = zeroed_lines(sizeof *c->longs << c->long_bits);
    c->clauses = zeroed_lines(sizeof *c->clauses << c->clause_bits);
}

void relay_bpe_cache_fini(relay_bpe_cache *c) {
    free(c->shorts);
    free(c->longs);
    free(c->clauses);
    free(c->list);
    *c = (relay_bpe_cache){0};
}

static void forget_all(relay_bpe_cache *c) {
    memset(c->shorts, 0, shorts_size(c));
    memset(c->longs, 0, sizeof *c->longs << c->long_bits);
    memset(c->clauses, 0, sizeof *c->clauses << c->clause_bits);
    c->n_list = c->n_shorts = c->n_longs = c->n_clauses = 0;
}

// Where n numbers may be put into the list; with the list full, everything is forgotten first.
static uint32_t take_of_list(relay_bpe_cache *c, uint32_t n) {
    if (c->n_list + n > MAX_LIST) forget_all(c);
    while (c->n_list + n > c->list_cap) {
        c->list_cap = c->list_cap == 0 ? FIRST_LIST : 2 * c->list_cap;
        c->list = relay_realloc(c->list, (c->list_cap + RELAY_BPE_LIST_SLACK) * sizeof *c->list);
    }
    c->n_list += n;
    return c->n_list - n;
}

static uint32_t add_to_list(relay_bpe_cache *c, const uint32_t *ids, uint32_t n) {
    uint32_t at = take_of_list(c, n);
    memcpy(c->list + at, ids, n * sizeof *ids);
    return at;
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

// ---- The longest

static uint32_t numbers_of(size_t n_bytes) {
    return (uint32_t)((n_bytes + sizeof(uint32_t) - 1) / sizeof(uint32_t));
}

static relay_bpe_clause_slot *clause_set(const relay_bpe_cache *c, uint64_t hash) {
    return &c->clauses[hash >> (64 - c->clause_bits) & ~UINT64_C(1)];
}

const uint32_t *relay_bpe_cache_find_clause(const relay_bpe_cache *c, const char *word, size_t len, uint64_t hash,
                                            uint32_t *n) {
    const relay_bpe_clause_slot *set = clause_set(c, hash);
    for (int i = 0; i < 2; i++) {
        if (set[i].hash != hash || set[i].len != len || memcmp(c->list + set[i].at, word, len) != 0) continue;
        *n = set[i].n;
        return c->list + set[i].at + numbers_of(len);
    }
    return NULL;
}

static void put_clause(relay_bpe_cache *c, const relay_bpe_clause_slot *slot) {
    relay_bpe_clause_slot *set = clause_set(c, slot->hash);
    if (set[0].len > 0) set[1] = set[0]; // the older of the two goes
    set[0] = *slot;
}

static void grow_clauses(relay_bpe_cache *c) {
    relay_bpe_clause_slot *old = c->clauses;
    size_t n = (size_t)1 << c->clause_bits;
    c->clause_bits++;
    c->clauses = zeroed_lines(sizeof *c->clauses << c->clause_bits);
    for (size_t i = 0; i < n; i++)
        if (old[i].len > 0) put_clause(c, &old[i]);
    free(old);
}

void relay_bpe_cache_add_clause(relay_bpe_cache *c, const char *word, size_t len, uint64_t hash, const uint32_t *ids,
                                uint32_t n) {
    RELAY_ASSERT(len > 0 && len <= RELAY_BPE_CLAUSE && n <= len);
    relay_bpe_clause_slot slot = {.hash = hash, .len = (uint16_t)len, .n = (uint16_t)n};
    slot.at = take_of_list(c, numbers_of(len) + n);
    memcpy(c->list + slot.at, word, len);
    memcpy(c->list + slot.at + numbers_of(len), ids, n * sizeof *ids);
    if (c->clause_bits < MAX_CLAUSE_BITS && 2 * (uint64_t)c->n_clauses > UINT64_C(1) << c->clause_bits) grow_clauses(c);
    put_clause(c, &slot);
    c->n_clauses++;
}
