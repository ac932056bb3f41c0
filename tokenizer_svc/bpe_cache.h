// The words that were seen lately, with their tokens: nine of ten words of any text are among them.
//
// A word of at most 15 bytes is a key of 16 with its length in the last, compared at once; one of at most 31 is a key
// of 32. Up to three (seven) ids lie in the slot itself, so that a hit is one cache line; more lie in a list beside it.
// Longer words (scripts without spaces make words of whole clauses) lie in the list with their ids, and are found by a
// hash and confirmed by their bytes. The tables begin small, double while they fill, and then replace. One thread's;
// bounded by RELAY_BPE_CACHE_MAX_BYTES.
#ifndef RELAY_TOKENIZER_SVC_BPE_CACHE_H
#define RELAY_TOKENIZER_SVC_BPE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    RELAY_BPE_SHORT_WORD = 15, // bytes
    RELAY_BPE_LONG_WORD = 31,
    RELAY_BPE_CLAUSE = 1023,
    RELAY_BPE_SHORT_IDS = 3,
    RELAY_BPE_LONG_IDS = 7,
    RELAY_BPE_CACHE_MAX_BYTES = 42 << 20,
    RELAY_BPE_CACHE_PROBES = 4, // sets
    RELAY_BPE_LIST_SLACK = 32,  // ids behind the list that may be read
};

typedef struct relay_bpe_key {
    uint64_t head, tail;
} relay_bpe_key;

typedef struct relay_bpe_short_slot {
    relay_bpe_key key; // all zero: free
    uint32_t id[RELAY_BPE_SHORT_IDS];
    uint32_t n; // more than fit: id[0] is where they begin in the list
} relay_bpe_short_slot;

typedef struct relay_bpe_long_slot {
    relay_bpe_key key[2];
    uint32_t id[RELAY_BPE_LONG_IDS];
    uint32_t n;
} relay_bpe_long_slot;

typedef struct relay_bpe_clause_slot {
    uint64_t hash;
    uint32_t at;     // in the list: its bytes, in whole numbers of the list, and behind them its ids
    uint16_t len, n; // len 0: free
} relay_bpe_clause_slot;

_Static_assert(sizeof(relay_bpe_short_slot) == 32 && sizeof(relay_bpe_long_slot) == 64, "parts of a cache line");

typedef struct relay_bpe_cache {
    relay_bpe_short_slot *shorts;   // [2^short_bits] in sets of two, and some sets for those that run over the end
    relay_bpe_long_slot *longs;     // [2^long_bits] in sets of two
    relay_bpe_clause_slot *clauses; // [2^clause_bits] in sets of two
    uint32_t short_bits, long_bits, clause_bits;
    uint32_t n_shorts, n_longs, n_clauses; // added since all was empty
    uint32_t *list;                        // what does not fit into slots
    uint32_t n_list, list_cap;
} relay_bpe_cache;

void relay_bpe_cache_init(relay_bpe_cache *c);
void relay_bpe_cache_fini(relay_bpe_cache *c);

// What of 16 bytes belongs to a word, by its length; little-endian.
extern const relay_bpe_key relay_bpe_key_masks[16];

// The key of up to 15 bytes; `kind` < 16 tells apart keys of the same bytes. room: bytes that may be read at `word`.
static inline relay_bpe_key relay_bpe_key_of(const char *word, size_t len, size_t room, uint32_t kind) {
    relay_bpe_key k = {0, 0};
    if (room >= sizeof k) {
        memcpy(&k, word, sizeof k);
        k.head &= relay_bpe_key_masks[len].head;
        k.tail &= relay_bpe_key_masks[len].tail;
    } else {
        memcpy(&k, word, len);
    }
    k.tail |= (uint64_t)(len << 4 | kind) << 56;
    return k;
}

// The two halves of the product, as in wyhash (Wang Yi).
static inline uint64_t relay_bpe_key_hash(relay_bpe_key k) {
    __uint128_t product =
        (__uint128_t)(k.head ^ UINT64_C(0x9E3779B97F4A7C15)) * (k.tail ^ UINT64_C(0xD6E8FEB86659FD93));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline relay_bpe_short_slot *relay_bpe_cache_short_set(const relay_bpe_cache *c, relay_bpe_key k) {
    return &c->shorts[relay_bpe_key_hash(k) >> (64 - c->short_bits) & ~UINT64_C(1)];
}

static inline bool relay_bpe_key_equal(relay_bpe_key a, relay_bpe_key b) {
    return ((a.head ^ b.head) | (a.tail ^ b.tail)) == 0;
}

static inline bool relay_bpe_short_is_free(const relay_bpe_short_slot *s) {
    return s->key.tail == 0; // a key has its length there
}

// In the sets from `set` on, up to the first with room; NULL if it is not there.
static inline const relay_bpe_short_slot *relay_bpe_cache_find_short(const relay_bpe_short_slot *set, relay_bpe_key k) {
    for (int i = 0; i < RELAY_BPE_CACHE_PROBES; i++, set += 2) {
        bool is_second = relay_bpe_key_equal(set[1].key, k); // without a branch on which of the two
        if (is_second | relay_bpe_key_equal(set[0].key, k)) return set + is_second;
        if (relay_bpe_short_is_free(&set[1])) break;
    }
    return NULL;
}

// ---- Words of 16 to 31 bytes

static inline void relay_bpe_long_key_of(const char *word, size_t len, size_t room, uint32_t kind, relay_bpe_key k[2]) {
    memcpy(&k[0], word, sizeof k[0]);
    k[1] = relay_bpe_key_of(word + sizeof k[0], len - sizeof k[0], room - sizeof k[0], kind | 2); // and so not all zero
}

static inline relay_bpe_long_slot *relay_bpe_cache_long_set(const relay_bpe_cache *c, const relay_bpe_key k[2]) {
    uint64_t h = relay_bpe_key_hash(k[0]) ^ relay_bpe_key_hash(k[1]) >> 7;
    return &c->longs[h * UINT64_C(0x9E3779B97F4A7C15) >> (64 - c->long_bits) & ~UINT64_C(1)];
}

static inline const relay_bpe_long_slot *relay_bpe_cache_find_long(const relay_bpe_cache *c, const relay_bpe_key k[2]) {
    const relay_bpe_long_slot *set = relay_bpe_cache_long_set(c, k);
    for (int i = 0; i < 2; i++)
        if (relay_bpe_key_equal(set[i].key[0], k[0]) && relay_bpe_key_equal(set[i].key[1], k[1])) return &set[i];
    return NULL;
}

// ---- Words of 32 to RELAY_BPE_CLAUSE bytes, by relay_word_hash()

// Their ids, and how many; NULL if they are not there. Valid until the next word is added.
const uint32_t *relay_bpe_cache_find_clause(const relay_bpe_cache *c, const char *word, size_t len, uint64_t hash,
                                            uint32_t *n);

// ---- Remembers the ids, n > 0, of a word that is not there

void relay_bpe_cache_add_short(relay_bpe_cache *c, relay_bpe_key k, const uint32_t *ids, uint32_t n);
void relay_bpe_cache_add_long(relay_bpe_cache *c, const relay_bpe_key k[2], const uint32_t *ids, uint32_t n);
void relay_bpe_cache_add_clause(relay_bpe_cache *c, const char *word, size_t len, uint64_t hash, const uint32_t *ids,
                                uint32_t n);

#endif
