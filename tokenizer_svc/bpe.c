// Four ways to the same tokens, by how often they are needed:
//
//   0. A word that the text had before comes from a small cache in the working memory, in one cache line.
//   1. A word that is a token and that its merges lead to (nine of ten in prose) is found in `words`. The table is
//      filled at load with exactly the tokens for which this holds, so a hit is the answer.
//   2. A short word is merged in arrays that fit the L1 cache: find the lowest rank, join, close the gap. Quadratic,
//   and
//      faster than any cleverness up to some dozens of bytes.
//   3. A long word is merged in a linked list with a heap of candidate pairs: n log n, so that a megabyte of one letter
//      costs no more a byte than a page of them.
//
// `pairs` maps two ids to the merge's rank and result. The pair tables are open addressing at most half full, keyed by
// numbers, with the answer in the slot: one cache line a look-up.
#include "tokenizer_svc/bpe.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/byte_level.h"

enum {
    SHORT_WORD = 64, // bytes; both ways take the same time at about this length
    MAX_PIECE_BYTES = 1 << 16,
};

#define MERGES     "tokenizer.ggml.merges"
#define KEY_MERGES "key \"" MERGES "\"" // in messages

#define NO_TOKEN UINT32_MAX
#define NO_RANK  UINT32_MAX

typedef struct pair_slot {
    uint32_t left, right; // ids; left is NO_TOKEN where the slot is free
    uint32_t rank;        // place in the list of merges: lower goes first
    uint32_t id;          // of the joined token
} pair_slot;

typedef struct word_slot {
    uint32_t tag; // upper half of the word's hash
    uint32_t id;  // NO_TOKEN where the slot is free
} word_slot;

struct relay_bpe {
    const relay_vocab *vocab;
    uint32_t byte_id[256]; // NO_TOKEN where the vocabulary lacks it
    pair_slot *pairs;
    uint32_t pair_mask;
    word_slot *words;
    uint32_t word_mask;
};

// ---- Tables

static uint32_t table_size(uint64_t n_entries) {
    uint32_t size = 8;
    while (size < 2 * n_entries)
        size *= 2;
    return size;
}

static pair_slot *pair_slot_of(const relay_bpe *b, uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15); // Fibonacci hashing
    for (uint32_t i = (uint32_t)(h >> 32) & b->pair_mask;; i = (i + 1) & b->pair_mask) {
        pair_slot *slot = &b->pairs[i];
        if (slot->left == NO_TOKEN || (slot->left == left && slot->right == right)) return slot;
    }
}

static uint64_t hash_word(const char *word, size_t len) {
    return XXH3_64bits(word, len);
}

static uint32_t find_word(const relay_bpe *b, const char *word, size_t len) {
    uint64_t h = hash_word(word, len);
    uint32_t tag = (uint32_t)(h >> 32);
    for (uint32_t i = (uint32_t)h & b->word_mask;; i = (i + 1) & b->word_mask) {
        const word_slot *slot = &b->words[i];
        if (slot->id == NO_TOKEN) return NO_TOKEN;
        if (slot->tag != tag) continue;
        const relay_token *t = relay_vocab_token(b->vocab, slot->id);
        if (t->len == len && memcmp(t->bytes, word, len) == 0) return slot->id;
    }
}

static void add_word(relay_bpe *b, const char *word, size_t len, uint32_t id) {
    uint64_t h = hash_word(word, len);
    uint32_t i = (uint32_t)h & b->word_mask;
    while (b->words[i].id != NO_TOKEN)
        i = (i + 1) & b->word_mask;
    b->words[i] = (word_slot){.tag = (uint32_t)(h >> 32), .id = id};
}

// ---- Short words

typedef struct short_word {
    uint32_t n;
    uint32_t id[SHORT_WORD];
    uint32_t rank[SHORT_WORD];   // of the pair (i, i + 1); NO_RANK at the end
    uint32_t joined[SHORT_WORD]; // what that pair becomes
    uint8_t begin[SHORT_WORD], end[SHORT_WORD];
} short_word;

static void rank_pair(const relay_bpe *b, short_word *s, uint32_t i) {
    s->rank[i] = NO_RANK;
    if (i + 1 >= s->n) return;
    const pair_slot *p = pair_slot_of(b, s->id[i], s->id[i + 1]);
    if (p->left == NO_TOKEN) return;
    s->rank[i] = p->rank;
    s->joined[i] = p->id;
}

static void close_gap(short_word *s, uint32_t at) {
    uint32_t n_behind = s->n - at - 1;
    memmove(&s->id[at], &s->id[at + 1], n_behind * sizeof s->id[0]);
    memmove(&s->rank[at], &s->rank[at + 1], n_behind * sizeof s->rank[0]);
    memmove(&s->joined[at], &s->joined[at + 1], n_behind * sizeof s->joined[0]);
    memmove(&s->begin[at], &s->begin[at + 1], n_behind);
    memmove(&s->end[at], &s->end[at + 1], n_behind);
    s->n--;
}

static void encode_short(const relay_bpe *b, const char *word, size_t len, relay_bpe_work *w) {
    short_word s;
    s.n = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t id = b->byte_id[(uint8_t)word[i]];
        if (id == NO_TOKEN) continue;
        s.id[s.n] = id;
        s.begin[s.n] = (uint8_t)i;
        s.end[s.n++] = (uint8_t)(i + 1);
    }
    for (uint32_t i = 0; i < s.n; i++)
        rank_pair(b, &s, i);
    while (s.n > 1) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < s.n; i++)
            if (s.rank[i] < s.rank[best]) best = i;
        if (s.rank[best] == NO_RANK) break;
        s.id[best] = s.joined[best];
        s.end[best] = s.end[best + 1];
        close_gap(&s, best + 1);
        rank_pair(b, &s, best);
        if (best > 0) rank_pair(b, &s, best - 1);
    }
    for (uint32_t i = 0; i < s.n; i++)
        w->tokens[i] = (relay_bpe_token){.id = s.id[i], .begin = s.begin[i], .end = s.end[i]};
    w->n_tokens = s.n;
}

// ---- Long words
//
// The heap holds (rank, symbol) in one number, so the lowest rank comes first and of equal ones the leftmost. An entry
// is out of date when its symbol's pair has another rank than the entry says; a joined-away symbol has NO_RANK.

typedef struct relay_bpe_symbol {
    uint32_t id;
    uint32_t begin, end; // bytes of the word
    uint32_t prev, next; // symbols; NO_TOKEN at the ends
    uint32_t rank;       // of the pair with the next symbol
    uint32_t joined;     // what that pair becomes
} relay_bpe_symbol;

static void heap_push(uint64_t *heap, uint32_t *n, uint64_t entry) {
    uint32_t i = (*n)++;
    while (i > 0 && heap[(i - 1) / 2] > entry) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = entry;
}

static uint64_t heap_pop(uint64_t *heap, uint32_t *n) {
    uint64_t top = heap[0], last = heap[--*n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= *n) break;
        if (child + 1 < *n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

static void queue_pair(const relay_bpe *b, relay_bpe_work *w, uint32_t *n_heap, uint32_t i) {
    relay_bpe_symbol *s = &w->symbols[i];
    s->rank = NO_RANK;
    if (s->next == NO_TOKEN) return;
    const pair_slot *p = pair_slot_of(b, s->id, w->symbols[s->next].id);
    if (p->left == NO_TOKEN) return;
    s->rank = p->rank;
    s->joined = p->id;
    heap_push(w->heap, n_heap, (uint64_t)p->rank << 32 | i);
}

static void encode_long(const relay_bpe *b, const char *word, size_t len, relay_bpe_work *w) {
    relay_bpe_symbol *symbols = w->symbols;
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t id = b->byte_id[(uint8_t)word[i]];
        if (id == NO_TOKEN) continue;
        symbols[n] =
            (relay_bpe_symbol){.id = id, .begin = (uint32_t)i, .end = (uint32_t)i + 1, .prev = n - 1, .next = n + 1};
        n++;
    }
    w->n_tokens = 0;
    if (n == 0) return;
    symbols[0].prev = symbols[n - 1].next = NO_TOKEN;
    uint32_t n_heap = 0; // at most one entry a symbol and two a merge
    for (uint32_t i = 0; i < n; i++)
        queue_pair(b, w, &n_heap, i);
    while (n_heap > 0) {
        uint64_t entry = heap_pop(w->heap, &n_heap);
        uint32_t left = (uint32_t)entry;
        relay_bpe_symbol *l = &symbols[left];
        if (l->rank != entry >> 32) continue;
        relay_bpe_symbol *r = &symbols[l->next];
        l->id = l->joined;
        l->end = r->end;
        l->next = r->next;
        r->rank = NO_RANK;
        if (l->next != NO_TOKEN) symbols[l->next].prev = left;
        queue_pair(b, w, &n_heap, left);
        if (l->prev != NO_TOKEN) queue_pair(b, w, &n_heap, l->prev);
    }
    for (uint32_t i = 0; i != NO_TOKEN; i = symbols[i].next)
        w->tokens[w->n_tokens++] =
            (relay_bpe_token){.id = symbols[i].id, .begin = symbols[i].begin, .end = symbols[i].end};
}

// ---- Words the text had before
//
// A direct-mapped cache: a word has one place, and the last word there stays. It holds words of at most 16 bytes and 3
// tokens without a byte left out, which is nearly all of them.

enum {
    CACHED_BYTES = 16,
    CACHED_TOKENS = 3,
    CACHE_MAX_WORDS = 4096,    // 128 KiB
    CACHE_MIN_TEXT = 2 * 1024, // bytes; below, making it costs more than it saves
};

typedef struct word_key {
    uint64_t head, tail; // the first and last 8, 4 or up to 3 bytes; with the length they are the word
    uint8_t len;
} word_key;

typedef struct relay_bpe_cached {
    uint64_t head, tail;
    uint32_t id[CACHED_TOKENS];
    uint8_t len; // 0: empty
    uint8_t n_tokens;
    uint8_t end[CACHED_TOKENS - 1]; // of each token but the last
} relay_bpe_cached;

_Static_assert(sizeof(relay_bpe_cached) == 32, "two in a cache line");

void relay_bpe_work_expect(relay_bpe_work *w, size_t text_len) {
    if (w->cache != NULL || text_len < CACHE_MIN_TEXT) return;
    uint32_t n = CACHE_MAX_WORDS;
    while (n > text_len / 8)
        n /= 2;
    w->cache = relay_calloc(n, sizeof *w->cache);
    w->cache_mask = n - 1;
}

static word_key key_of(const char *word, size_t len) {
    word_key k = {.len = (uint8_t)len};
    uint32_t head, tail;
    if (len >= 8) {
        memcpy(&k.head, word, 8);
        memcpy(&k.tail, word + len - 8, 8);
    } else if (len >= 4) {
        memcpy(&head, word, 4);
        memcpy(&tail, word + len - 4, 4);
        k.head = head;
        k.tail = tail;
    } else {
        k.head = (uint8_t)word[0] | (uint32_t)(uint8_t)word[len / 2] << 8 | (uint32_t)(uint8_t)word[len - 1] << 16;
    }
    return k;
}

static relay_bpe_cached *cache_place(const relay_bpe_work *w, word_key k) {
    uint64_t h = (k.head ^ k.tail * UINT64_C(0x9E3779B97F4A7C15)) + k.len;
    h *= UINT64_C(0xD6E8FEB86659FD93); // an odd constant with well mixed bits (Degski)
    return &w->cache[(h >> 40) & w->cache_mask];
}

static bool read_cache(const relay_bpe_cached *c, word_key k, relay_bpe_work *w) {
    if (c->len != k.len || c->head != k.head || c->tail != k.tail) return false;
    uint32_t begin = 0;
    for (uint32_t i = 0; i < c->n_tokens; i++) {
        uint32_t end = i + 1 < c->n_tokens ? c->end[i] : c->len;
        w->tokens[i] = (relay_bpe_token){.id = c->id[i], .begin = begin, .end = end};
        begin = end;
    }
    w->n_tokens = c->n_tokens;
    return true;
}

static void write_cache(relay_bpe_cached *c, word_key k, const relay_bpe_work *w) {
    if (w->n_tokens == 0 || w->n_tokens > CACHED_TOKENS || w->tokens[w->n_tokens - 1].end != k.len) return;
    uint32_t begin = 0;
    for (uint32_t i = 0; i < w->n_tokens; i++) {
        if (w->tokens[i].begin != begin) return; // a byte is left out
        begin = w->tokens[i].end;
    }
    *c = (relay_bpe_cached){.head = k.head, .tail = k.tail, .len = k.len, .n_tokens = (uint8_t)w->n_tokens};
    for (uint32_t i = 0; i < w->n_tokens; i++) {
        c->id[i] = w->tokens[i].id;
        if (i + 1 < w->n_tokens) c->end[i] = (uint8_t)w->tokens[i].end;
    }
}

// ---- Encoding

static void reserve(relay_bpe_work *w, size_t len) {
    if (len > w->cap) {
        w->cap = len < SHORT_WORD ? SHORT_WORD : (uint32_t)len;
        w->tokens = relay_realloc(w->tokens, (uint64_t)w->cap * sizeof *w->tokens);
    }
    if (len > SHORT_WORD && len > w->long_cap) {
        w->long_cap = (uint32_t)len;
        w->symbols = relay_realloc(w->symbols, (uint64_t)w->long_cap * sizeof *w->symbols);
        w->heap = relay_realloc(w->heap, (uint64_t)w->long_cap * 3 * sizeof *w->heap);
    }
}

void relay_bpe_work_fini(relay_bpe_work *w) {
    free(w->tokens);
    free(w->symbols);
    free(w->heap);
    free(w->cache);
    *w = (relay_bpe_work){0};
}

static void merge_word(const relay_bpe *b, const char *word, size_t len, relay_bpe_work *w) {
    if (len <= SHORT_WORD)
        encode_short(b, word, len, w);
    else
        encode_long(b, word, len, w);
}

static void encode_word(const relay_bpe *b, const char *word, size_t len, relay_bpe_work *w) {
    uint32_t id = find_word(b, word, len);
    if (id == NO_TOKEN) {
        merge_word(b, word, len, w);
        return;
    }
    w->tokens[0] = (relay_bpe_token){.id = id, .begin = 0, .end = (uint32_t)len};
    w->n_tokens = 1;
}

void relay_bpe_encode(const relay_bpe *b, const char *word, size_t len, relay_bpe_work *w) {
    RELAY_ASSERT(len > 0 && len <= RELAY_BPE_MAX_WORD_BYTES);
    reserve(w, len);
    if (w->cache == NULL || len > CACHED_BYTES) {
        encode_word(b, word, len, w);
        return;
    }
    word_key key = key_of(word, len);
    relay_bpe_cached *cached = cache_place(w, key);
    if (read_cache(cached, key, w)) return;
    encode_word(b, word, len, w);
    write_cache(cached, key, w);
}

// ---- Loading

// The id of a piece that is written in the byte alphabet.
static relay_code find_piece(const relay_vocab *vocab, uint64_t merge, const char *piece, size_t len, char *raw,
                             size_t *raw_len, uint32_t *id, relay_err *e) {
    if (!relay_byte_level_decode(piece, len, raw, raw_len))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, KEY_MERGES "[%llu]: \"%.*s\" is not in GPT-2's byte alphabet",
                          (unsigned long long)merge, (int)len, piece);
    if (!relay_vocab_find(vocab, raw, *raw_len, id))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, KEY_MERGES "[%llu]: \"%.*s\" is no token",
                          (unsigned long long)merge, (int)len, piece);
    return RELAY_OK;
}

static relay_code add_merge(relay_bpe *b, uint64_t rank, const char *text, size_t len, char *raw, relay_err *e) {
    const char *space = memchr(text, ' ', len);
    size_t left_len = space == NULL ? len : (size_t)(space - text);
    size_t right_len = len - left_len - (space != NULL);
    if (left_len == 0 || right_len == 0 || len > MAX_PIECE_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          KEY_MERGES "[%llu] is not two pieces with a space between (%zu bytes)",
                          (unsigned long long)rank, len);
    size_t left_raw, right_raw;
    uint32_t left, right, joined;
    relay_code code = find_piece(b->vocab, rank, text, left_len, raw, &left_raw, &left, e);
    if (code == RELAY_OK)
        code = find_piece(b->vocab, rank, space + 1, right_len, raw + left_raw, &right_raw, &right, e);
    if (code != RELAY_OK) return code;
    if (!relay_vocab_find(b->vocab, raw, left_raw + right_raw, &joined))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, KEY_MERGES "[%llu]: \"%.*s\" joined is no token",
                          (unsigned long long)rank, (int)len, text);
    pair_slot *slot = pair_slot_of(b, left, right);
    if (slot->left != NO_TOKEN)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, KEY_MERGES "[%llu] repeats merge %u", (unsigned long long)rank,
                          slot->rank);
    *slot = (pair_slot){.left = left, .right = right, .rank = (uint32_t)rank, .id = joined};
    return RELAY_OK;
}

static relay_code load_merges(relay_bpe *b, const relay_gguf *g, relay_err *e) {
    uint64_t n;
    bool found;
    relay_code code = relay_gguf_string_array(g, MERGES, &n, &found, e);
    if (code != RELAY_OK) return code;
    if (!found) return relay_fail(e, RELAY_INVALID_ARGUMENT, KEY_MERGES " is missing");
    if (n > UINT32_C(1) << 28)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, KEY_MERGES " has %llu entries, at most %u are allowed",
                          (unsigned long long)n, UINT32_C(1) << 28);
    uint32_t size = table_size(n);
    b->pair_mask = size - 1;
    b->pairs = relay_calloc(size, sizeof *b->pairs);
    for (uint32_t i = 0; i < size; i++)
        b->pairs[i].left = NO_TOKEN;
    char *raw = relay_calloc(MAX_PIECE_BYTES, 1);
    for (uint64_t i = 0; i < n && code == RELAY_OK; i++) {
        const char *text;
        size_t len;
        relay_gguf_string_at(g, MERGES, i, &text, &len);
        code = add_merge(b, i, text, len, raw, e);
    }
    free(raw);
    return code;
}

// Puts into `words` every token that encoding its bytes gives: all of them where merges are to be ignored.
static void load_words(relay_bpe *b, bool ignore_merges) {
    uint32_t n = relay_vocab_size(b->vocab);
    uint32_t size = table_size(n);
    b->word_mask = size - 1;
    b->words = relay_calloc(size, sizeof *b->words);
    for (uint32_t i = 0; i < size; i++)
        b->words[i].id = NO_TOKEN;
    relay_bpe_work work = {0};
    for (uint32_t id = 0; id < n; id++) {
        const relay_token *t = relay_vocab_token(b->vocab, id);
        uint32_t of_bytes; // another token where two share their bytes
        if (!relay_vocab_find(b->vocab, t->bytes, t->len, &of_bytes) || of_bytes != id) continue;
        if (!ignore_merges) {
            reserve(&work, t->len);
            merge_word(b, t->bytes, t->len, &work);
            if (work.n_tokens != 1 || work.tokens[0].id != id) continue;
        }
        add_word(b, t->bytes, t->len, id);
    }
    relay_bpe_work_fini(&work);
}

relay_code relay_bpe_load_gguf(relay_bpe **out, const relay_gguf *g, const relay_vocab *vocab, bool ignore_merges,
                               relay_err *e) {
    *out = NULL;
    relay_bpe *b = relay_calloc(1, sizeof *b);
    b->vocab = vocab;
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        if (!relay_vocab_find(vocab, &c, 1, &b->byte_id[byte])) b->byte_id[byte] = NO_TOKEN;
    }
    relay_code code = load_merges(b, g, e);
    if (code != RELAY_OK) {
        relay_bpe_destroy(b);
        return code;
    }
    load_words(b, ignore_merges);
    *out = b;
    return RELAY_OK;
}

void relay_bpe_destroy(relay_bpe *b) {
    if (b == NULL) return;
    free(b->pairs);
    free(b->words);
    free(b);
}
