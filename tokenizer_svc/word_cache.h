// Words that a text had before, with their tokens: what lets a model be asked only once for each word.
//
// In one thread's working memory. It begins small, grows with the words it sees up to a bound, and is then emptied and
// filled again, so that it follows the text. A word is found by its hash and confirmed by its bytes.
#ifndef RELAY_TOKENIZER_SVC_WORD_CACHE_H
#define RELAY_TOKENIZER_SVC_WORD_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RELAY_WORD_CACHE_MAX_WORD = 255 };

typedef struct relay_cached_word {
    uint8_t len;      // of the word
    uint8_t n_tokens; // at most one a byte
    uint8_t flags;    // the model's own
    float margin;     // the model's own
    // Behind it: ids (uint32_t [n_tokens]), ends (uint8_t [n_tokens], bytes of the word), the word's bytes.
    uint32_t ids[];
} relay_cached_word;

static inline uint8_t *relay_cached_word_ends(const relay_cached_word *w) {
    return (uint8_t *)&w->ids[w->n_tokens];
}

typedef struct relay_word_cache {
    struct relay_word_slot *slots; // [mask + 1]
    uint32_t mask, n;
    uint64_t *records; // [cap], one behind the other
    uint32_t used, cap;
} relay_word_cache;

typedef struct relay_word_slot {
    uint32_t tag;    // low half of the hash
    uint32_t record; // where in `records`, plus one; 0: free
} relay_word_slot;

// `text_len`: about how much text is to come.
void relay_word_cache_init(relay_word_cache *c, size_t text_len);
void relay_word_cache_fini(relay_word_cache *c);

static inline uint64_t relay_word_load(const char *s, size_t n) {
    uint64_t v = 0;
    memcpy(&v, s, n);
    return v;
}

static inline uint64_t relay_word_mix(uint64_t a, uint64_t b) {
    __uint128_t m = (__uint128_t)(a ^ UINT64_C(0x9E3779B97F4A7C15)) * (b ^ UINT64_C(0xD1B54A32D192ED03));
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

// len > 0.
static inline uint64_t relay_word_hash(const char *s, size_t len) {
    if (len <= 3)
        return relay_word_mix((uint64_t)(uint8_t)s[0] << 16 | (uint64_t)(uint8_t)s[len / 2] << 8 | (uint8_t)s[len - 1],
                              len);
    if (len <= 8) return relay_word_mix(relay_word_load(s, 4) << 32 | relay_word_load(s + len - 4, 4), len);
    uint64_t h = len;
    size_t i = 0;
    for (; i + 16 < len; i += 16)
        h = relay_word_mix(relay_word_load(s + i, 8) ^ h, relay_word_load(s + i + 8, 8));
    size_t second = len - i > 8 ? i : len - 16; // at most 16 bytes are left; they may overlap those before
    return relay_word_mix(relay_word_load(s + second, 8) ^ h, relay_word_load(s + len - 8, 8));
}

// Words are short: two looks, or a call.
static inline bool relay_word_is_equal(const char *a, const char *b, size_t len) {
    if (len > 16) return memcmp(a, b, len) == 0;
    if (len >= 8)
        return ((relay_word_load(a, 8) ^ relay_word_load(b, 8)) |
                (relay_word_load(a + len - 8, 8) ^ relay_word_load(b + len - 8, 8))) == 0;
    if (len >= 4)
        return ((relay_word_load(a, 4) ^ relay_word_load(b, 4)) |
                (relay_word_load(a + len - 4, 4) ^ relay_word_load(b + len - 4, 4))) == 0;
    return a[0] == b[0] && a[len / 2] == b[len / 2] && a[len - 1] == b[len - 1];
}

static inline const relay_cached_word *relay_word_cache_find(const relay_word_cache *c, const char *word, size_t len,
                                                             uint64_t hash) {
    for (uint32_t i = (uint32_t)hash & c->mask;; i = (i + 1) & c->mask) {
        const relay_word_slot *slot = &c->slots[i];
        if (slot->record == 0) return NULL;
        if (slot->tag != (uint32_t)hash) continue;
        const relay_cached_word *w = (const relay_cached_word *)&c->records[slot->record - 1];
        const char *of = (const char *)(relay_cached_word_ends(w) + w->n_tokens);
        if (w->len == len && relay_word_is_equal(of, word, len)) return w;
    }
}

// Adds a word that is not there (len and n_tokens at most RELAY_WORD_CACHE_MAX_WORD) and returns its record, where the
// caller fills in ids, ends, flags and margin. Records given before may be gone.
relay_cached_word *relay_word_cache_add(relay_word_cache *c, const char *word, size_t len, uint32_t n_tokens,
                                        uint64_t hash);

#endif
