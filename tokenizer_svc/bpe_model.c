// A stretch becomes words (scan.h), a block of them at a time, so that the cache's lines are on their way when they are
// looked at; and each word its tokens, by the first of these that applies:
//
//   1. the cache (bpe_cache.h);
//   2. a word that is a token, where a file says that this goes before merges;
//   3. a long word with characters beyond ASCII is cut where no token can lie (bpe_borders.h), and its parts are looked
//      up as if they were words;
//   4. one pass over the word (bpe_linear.h);
//   5. the definition (bpe_merge.h): for models with affixes or with rules that a pass cannot follow, and for words
//      with bytes that are no token.
//
// Where there are no pre-tokenizers (SentencePiece), a whole text is one word and goes by 3.
#include "tokenizer_svc/bpe_model.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "common/utf8.h"
#include "tokenizer_svc/bpe_borders.h"
#include "tokenizer_svc/bpe_cache.h"
#include "tokenizer_svc/bpe_linear.h"
#include "tokenizer_svc/bpe_rules.h"
#include "tokenizer_svc/bpe_trie.h"
#include "tokenizer_svc/scan.h"
#include "tokenizer_svc/word_cache.h"

enum {
    BLOCK = 256, // words
    MAX_IDLE = 16,
    SHORT_ROOM = RELAY_BPE_SHORT_WORD + 1, // ids that a short word may write
    ROOM = RELAY_BPE_LONG_WORD + 1,        // and a longer one
    MAX_AFFIX = 64,
};

typedef struct bpe_work bpe_work;

typedef struct bpe {
    relay_bpe_rules rules;
    relay_bpe_trie trie;
    relay_bpe_borders borders;
    const relay_scan *scan; // NULL: no pre-tokenizers
    bool whole_words;       // a word that is a token is that token
    bool cuts_at_spaces;    // U+2581, SentencePiece's, are places to cut a text at
    bool byte_fallback, fuse_unk, has_unk;
    uint32_t unk_id;
    char prefix[MAX_AFFIX], suffix[MAX_AFFIX];
    uint32_t prefix_len, suffix_len;
    _Atomic(bpe_work *) idle[MAX_IDLE];
} bpe;

struct bpe_work {
    bpe *b;
    relay_bpe_cache cache;
    relay_bpe_linear linear;
    relay_bpe_symbols symbols;
    uint32_t *ids; // [ids_cap] of one word
    size_t ids_cap;
    char *affixed; // a character with its affixes
    uint32_t affixed_cap;
};

// A text on its way to its tokens.
typedef struct run {
    const bpe *b;
    bpe_work *w;
    const char *text;
    size_t len;
    uint32_t base;
    relay_encoding *enc;
    uint32_t room; // ids that the blocks at work may write without asking
} run;

typedef enum span_kind {
    WORD,
    PART,  // of a text without pre-tokenizers, between spaces
    PIECE, // of a word: never a whole word's token, and not cut again
} span_kind;

// ---- Tokens to the encoding

// Offsets of the tokens from `first` on, whose pieces together are the bytes from `begin` on.
static void write_offsets(const run *r, uint32_t first, size_t begin) {
    relay_encoding *enc = r->enc;
    uint32_t at = r->base + (uint32_t)begin;
    for (uint32_t i = first; i < enc->n; i++) {
        enc->offset_begin[i] = at;
        at += r->b->rules.made[enc->ids[i]].len;
        enc->offset_end[i] = at;
    }
}

static void add_ids(run *r, size_t begin, const uint32_t *ids, uint32_t n) {
    relay_encoding *enc = r->enc;
    relay_encoding_reserve(enc, n + r->room);
    memcpy(enc->ids + enc->n, ids, n * sizeof *ids);
    enc->n += n;
    if (enc->has_offsets) write_offsets(r, enc->n - n, begin);
}

// ---- By the definition

typedef struct pending_unk {
    bool is_set;
    uint32_t begin, end;
} pending_unk;

static void flush_unk(run *r, pending_unk *unk) {
    if (unk->is_set) relay_bpe_symbols_add(&r->w->symbols, r->b->unk_id, unk->begin, unk->end);
    unk->is_set = false;
}

// The character text[begin..end) as the vocabulary has it at its place in the word. *len is the length with affixes.
static const char *with_affixes(run *r, size_t begin, size_t end, bool is_first, bool is_last, uint32_t *len) {
    const bpe *b = r->b;
    uint32_t prefix_len = is_first ? 0 : b->prefix_len, suffix_len = is_last ? b->suffix_len : 0;
    uint32_t n = (uint32_t)(end - begin);
    *len = prefix_len + n + suffix_len;
    if (*len == n) return r->text + begin;
    char *out = r->w->affixed;
    memcpy(out, b->prefix, prefix_len);
    memcpy(out + prefix_len, r->text + begin, n);
    memcpy(out + prefix_len + n, b->suffix, suffix_len);
    return out;
}

static bool add_fallback(run *r, const char *bytes, uint32_t len, uint32_t begin) {
    const bpe *b = r->b;
    if (!b->byte_fallback || b->rules.is_byte_level) return false;
    for (uint32_t i = 0; i < len; i++)
        if (b->rules.byte_id[(uint8_t)bytes[i]] == RELAY_BPE_NONE) return false;
    for (uint32_t i = 0; i < len; i++)
        relay_bpe_symbols_add(&r->w->symbols, b->rules.byte_id[(uint8_t)bytes[i]], begin + i, begin + i + 1);
    return true;
}

// What a word begins as, as HF tokenizers has it: a character without a token becomes its bytes; or the unknown token,
// which waits for the next character that has one; or nothing, and its neighbours come together.
static void start_symbols(run *r, size_t begin, size_t end) {
    const bpe *b = r->b;
    relay_bpe_symbols *symbols = &r->w->symbols;
    symbols->n = 0;
    pending_unk unk = {0};
    size_t n;
    for (size_t at = begin; at < end; at += n) {
        uint32_t cp, len;
        n = b->rules.is_byte_level ? 1 : relay_utf8_decode(r->text + at, end - at, &cp);
        const char *bytes = with_affixes(r, at, at + n, at == begin, at + n == end, &len);
        uint32_t id = relay_bpe_rules_find(&b->rules, bytes, len);
        uint32_t from = (uint32_t)at, to = (uint32_t)(at + n);
        if (id != RELAY_BPE_NONE) {
            flush_unk(r, &unk);
            relay_bpe_symbols_add(symbols, id, from, to);
        } else if (!add_fallback(r, bytes, len, from) && b->has_unk) {
            if (!b->fuse_unk) flush_unk(r, &unk);
            if (!unk.is_set) unk = (pending_unk){.is_set = true, .begin = from};
            unk.end = to;
        }
    }
    flush_unk(r, &unk);
}

static void encode_by_definition(run *r, size_t begin, size_t end) {
    start_symbols(r, begin, end);
    relay_bpe_symbols *symbols = &r->w->symbols;
    relay_bpe_merge(&r->b->rules.pairs, symbols);
    relay_encoding_reserve(r->enc, symbols->n + r->room);
    for (uint32_t i = 0; i < symbols->n; i++)
        relay_encoding_add(r->enc, symbols->s[i].id, r->base + symbols->s[i].begin, r->base + symbols->s[i].end);
}

// ---- One pass

// The ids of text[begin..end) in w->ids; 0 if it has a character that is no token.
static uint32_t pass_over(run *r, size_t begin, size_t end) {
    bpe_work *w = r->w;
    if (end - begin > w->ids_cap) {
        w->ids_cap = end - begin;
        w->ids = relay_realloc(w->ids, w->ids_cap * sizeof *w->ids);
    }
    return relay_bpe_linear_encode(&r->b->rules, &r->b->trie, &w->linear, r->text + begin, end - begin, w->ids);
}

// Adds the tokens of a word or piece that is in no cache. Returns how many, if they are in w->ids and each has the
// bytes of its piece, so that they may be remembered; else 0.
static uint32_t encode_anew(run *r, size_t begin, size_t end, span_kind kind) {
    const bpe *b = r->b;
    bpe_work *w = r->w;
    if (kind == WORD && b->whole_words) {
        uint32_t whole;
        relay_bpe_trie_longest(&b->trie, r->text + begin, end - begin, &whole);
        if (whole != RELAY_BPE_NONE) {
            add_ids(r, begin, &whole, 1);
            w->ids[0] = whole;
            return 1;
        }
    }
    uint32_t n = b->rules.is_linear ? pass_over(r, begin, end) : 0;
    if (n > 0)
        add_ids(r, begin, w->ids, n);
    else
        encode_by_definition(r, begin, end);
    return n;
}

// ---- Words and pieces

static void encode_spans(run *r, size_t begin, const uint32_t *ends, size_t n, span_kind kind);

static bool is_space_mark(const char *s) {
    return memcmp(s, "\xE2\x96\x81", 3) == 0;
}

// Which of the next 64 bytes, at most len, are this one.
static uint64_t bytes_equal(const char *s, size_t len, uint8_t byte) {
    uint64_t bits = 0;
    if (len < 64) {
        for (size_t i = 0; i < len; i++)
            bits |= (uint64_t)((uint8_t)s[i] == byte) << i;
        return bits;
    }
#if defined(__SSE2__)
    for (int i = 0; i < 4; i++) {
        __m128i equal = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(s + 16 * i)), _mm_set1_epi8((char)byte));
        bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(equal) << 16 * i;
    }
#else
    for (int i = 0; i < 64; i++)
        bits |= (uint64_t)((uint8_t)s[i] == byte) << i;
#endif
    return bits;
}

// Cuts a word where no token can lie.
static void encode_pieces(run *r, size_t begin, size_t end) {
    const bpe *b = r->b;
    uint32_t ends[BLOCK];
    size_t n = 0, block_begin = begin;
    for (size_t at = begin + 1; at < end; at++) {
        if ((uint8_t)r->text[at] < 0xC0) continue;
        if (!relay_bpe_borders_may_cut(&b->borders, r->text + begin, end - begin, at - begin)) continue;
        ends[n++] = (uint32_t)at;
        if (n < BLOCK) continue;
        encode_spans(r, block_begin, ends, n, PIECE);
        block_begin = at;
        n = 0;
    }
    ends[n++] = (uint32_t)end;
    encode_spans(r, block_begin, ends, n, PIECE);
}

// Whether the word has a character that is no token and so brings its neighbours together, or becomes one unknown token
// with the one behind it. Not where all bytes have tokens.
static bool has_gap(const run *r, size_t begin, size_t end) {
    const relay_bpe_rules *rules = &r->b->rules;
    if (rules->has_all_bytes) return false;
    size_t n;
    for (size_t at = begin; at < end; at += n) {
        uint32_t cp;
        n = rules->is_byte_level ? 1 : relay_utf8_decode(r->text + at, end - at, &cp);
        if (relay_bpe_rules_find(rules, r->text + at, n) == RELAY_BPE_NONE) return true;
    }
    return false;
}

// Cuts a text without pre-tokenizers before its spaces: a step of its own, since nearly all of its words lie between
// them. They are found 64 bytes at a time.
static void encode_parts(run *r, size_t begin, size_t end) {
    const bpe *b = r->b;
    const char *text = r->text;
    uint32_t ends[BLOCK];
    size_t n = 0, block_begin = begin;
    for (size_t base = begin + 1; base + 3 <= end; base += 64) {
        uint64_t bits = bytes_equal(text + base, end - base, 0xE2);
        for (; bits != 0; bits &= bits - 1) {
            size_t at = base + (size_t)__builtin_ctzll(bits);
            if (end - at < 3 || !is_space_mark(text + at)) continue;
            if (at - begin >= 3 && is_space_mark(text + at - 3)) continue;
            if (!relay_bpe_borders_may_cut_mark(&b->borders, text + begin, end - begin, at - begin)) continue;
            ends[n++] = (uint32_t)at;
            if (n < BLOCK) continue;
            encode_spans(r, block_begin, ends, n, PART);
            block_begin = at;
            n = 0;
        }
    }
    ends[n++] = (uint32_t)end;
    encode_spans(r, block_begin, ends, n, PART);
}

// A word that is in no cache, by its parts.
static void encode_longest(run *r, size_t begin, size_t end, span_kind kind) {
    const bpe *b = r->b;
    uint32_t whole = RELAY_BPE_NONE;
    if (kind == WORD && b->whole_words) relay_bpe_trie_longest(&b->trie, r->text + begin, end - begin, &whole);
    if (whole != RELAY_BPE_NONE)
        add_ids(r, begin, &whole, 1);
    else if (kind == PIECE || !b->rules.is_linear)
        encode_anew(r, begin, end, PIECE);
    else if (has_gap(r, begin, end))
        encode_by_definition(r, begin, end);
    else if (kind == WORD && b->cuts_at_spaces)
        encode_parts(r, begin, end);
    else
        encode_pieces(r, begin, end);
}

// Whether the tokens from `first` on stand for the bytes of their pieces, so that their offsets are known by them.
static bool have_length(const run *r, uint32_t first, size_t len) {
    const bpe *b = r->b;
    size_t sum = 0;
    for (uint32_t i = first; i < r->enc->n; i++) {
        uint32_t id = r->enc->ids[i];
        if (b->has_unk && id == b->unk_id) return false;
        sum += b->rules.made[id].len;
    }
    return sum == len && r->enc->n > first;
}

// A word of 16 to 31 bytes that is not in the cache.
static void encode_long(run *r, size_t begin, size_t end, span_kind kind, const relay_bpe_key key[2]) {
    uint32_t first = r->enc->n;
    if ((uint8_t)r->text[end - 3] >= 0xE0) // of three bytes a character: its parts are known sooner than the whole
        encode_longest(r, begin, end, kind);
    else
        encode_anew(r, begin, end, kind);
    if (r->b->rules.is_linear && have_length(r, first, end - begin))
        relay_bpe_cache_add_long(&r->w->cache, key, r->enc->ids + first, r->enc->n - first);
}

// A word of 32 bytes or more. Pieces of words are not remembered: their words are.
static void encode_clause(run *r, size_t begin, size_t end, span_kind kind) {
    size_t len = end - begin;
    if (len > RELAY_BPE_CLAUSE || kind == PIECE) {
        encode_longest(r, begin, end, kind);
        return;
    }
    const char *word = r->text + begin;
    uint64_t hash = relay_word_hash(word, len);
    uint32_t n, first = r->enc->n;
    const uint32_t *ids = relay_bpe_cache_find_clause(&r->w->cache, word, len, hash, &n);
    if (ids != NULL) {
        add_ids(r, begin, ids, n);
        return;
    }
    encode_longest(r, begin, end, kind);
    if (r->b->rules.is_linear && have_length(r, first, len))
        relay_bpe_cache_add_clause(&r->w->cache, word, len, hash, r->enc->ids + first, r->enc->n - first);
}

// The text's spans from `begin`, each up to its end; n <= BLOCK.
static inline __attribute__((always_inline)) void encode_block(run *r, size_t begin, const uint32_t *ends, size_t n,
                                                               span_kind kind, bool has_offsets) {
    bpe_work *w = r->w;
    relay_encoding *enc = r->enc;
    uint32_t key_kind = kind == WORD || !r->b->whole_words ? 0 : 1;
    const char *text = r->text;
    size_t len_of_text = r->len;
    relay_bpe_key keys[BLOCK];
    const relay_bpe_short_slot *sets[BLOCK];
    size_t at = begin;
    for (size_t i = 0; i < n; i++) {
        size_t len = ends[i] - at;
        if (len <= RELAY_BPE_SHORT_WORD) {
            keys[i] = relay_bpe_key_of(text + at, len, len_of_text - at, key_kind);
            sets[i] = relay_bpe_cache_short_set(&w->cache, keys[i]);
            __builtin_prefetch(sets[i]);
        } else if (len <= RELAY_BPE_LONG_WORD) {
            relay_bpe_key key[2];
            relay_bpe_long_key_of(text + at, len, len_of_text - at, key_kind, key);
            __builtin_prefetch(relay_bpe_cache_long_set(&w->cache, key));
        }
        at = ends[i];
    }
    r->room += (uint32_t)n * ROOM;
    relay_encoding_reserve(enc, r->room);
    uint32_t short_bits = w->cache.short_bits;
    const uint32_t *list = w->cache.list;
    uint32_t *out = enc->ids + enc->n; // the encoding's own count stands still while words come from the cache
    at = begin;
    for (size_t i = 0; i < n; at = ends[i++]) {
        size_t end = ends[i], len = end - at;
        relay_bpe_key key[2]; // of a word of 16 to 31 bytes
        const uint32_t *ids = NULL;
        uint32_t n_ids = 0;
        if (len <= RELAY_BPE_SHORT_WORD) {
            const relay_bpe_short_slot *slot = relay_bpe_cache_find_short(sets[i], keys[i]);
            if (slot != NULL) {
                ids = slot->id;
                n_ids = slot->n;
                if (n_ids <= RELAY_BPE_SHORT_IDS)
                    memcpy(out, ids, sizeof slot->id);
                else // more than there are, up to what a word may write: of a fixed size
                    memcpy(out, list + ids[0], SHORT_ROOM * sizeof *ids);
            }
        } else if (len <= RELAY_BPE_LONG_WORD) {
            relay_bpe_long_key_of(text + at, len, len_of_text - at, key_kind, key);
            const relay_bpe_long_slot *slot = relay_bpe_cache_find_long(&w->cache, key);
            if (slot != NULL) {
                ids = slot->id;
                n_ids = slot->n;
                if (n_ids <= RELAY_BPE_LONG_IDS)
                    memcpy(out, ids, sizeof slot->id);
                else
                    memcpy(out, list + ids[0], ROOM * sizeof *ids);
            }
        }
        if (ids != NULL) {
            uint32_t first = (uint32_t)(out - enc->ids);
            out += n_ids;
            if (has_offsets) {
                enc->n = first + n_ids;
                write_offsets(r, first, at);
            }
            continue;
        }
        enc->n = (uint32_t)(out - enc->ids);
        if (len <= RELAY_BPE_SHORT_WORD) {
            uint32_t m = encode_anew(r, at, end, kind);
            if (m > 0) relay_bpe_cache_add_short(&w->cache, keys[i], w->ids, m);
        } else if (len <= RELAY_BPE_LONG_WORD) {
            encode_long(r, at, end, kind, key);
        } else {
            encode_clause(r, at, end, kind);
        }
        out = enc->ids + enc->n;
        list = w->cache.list;
        if (short_bits == w->cache.short_bits) continue;
        short_bits = w->cache.short_bits; // the table has grown
        size_t begin_of = end;
        for (size_t k = i + 1; k < n; begin_of = ends[k++])
            if (ends[k] - begin_of <= RELAY_BPE_SHORT_WORD) sets[k] = relay_bpe_cache_short_set(&w->cache, keys[k]);
    }
    enc->n = (uint32_t)(out - enc->ids);
    r->room -= (uint32_t)n * ROOM;
}

static void encode_spans(run *r, size_t begin, const uint32_t *ends, size_t n, span_kind kind) {
    if (r->enc->has_offsets)
        encode_block(r, begin, ends, n, kind, true);
    else
        encode_block(r, begin, ends, n, kind, false);
}

static void encode_stretch(run *r) {
    uint32_t ends[BLOCK] = {(uint32_t)r->len};
    if (r->b->scan == NULL) {
        encode_spans(r, 0, ends, 1, WORD);
        return;
    }
    relay_scan_walk walk = {0};
    while (walk.at < r->len) {
        size_t begin = walk.at;
        size_t n = relay_scan_words(r->b->scan, &walk, r->text, r->len, ends, BLOCK);
        encode_spans(r, begin, ends, n, WORD);
    }
}

// ---- Working memory

static void work_free(bpe_work *w) {
    if (w == NULL) return;
    relay_bpe_cache_fini(&w->cache);
    relay_bpe_linear_fini(&w->linear);
    relay_bpe_symbols_fini(&w->symbols);
    free(w->ids);
    free(w->affixed);
    free(w);
}

static bpe_work *work_take(bpe *b) {
    for (int i = 0; i < MAX_IDLE; i++) {
        if (atomic_load_explicit(&b->idle[i], memory_order_relaxed) == NULL) continue;
        bpe_work *w = atomic_exchange(&b->idle[i], NULL);
        if (w != NULL) return w;
    }
    bpe_work *w = relay_calloc(1, sizeof *w);
    w->b = b;
    relay_bpe_cache_init(&w->cache);
    w->ids_cap = BLOCK;
    w->ids = relay_calloc(w->ids_cap, sizeof *w->ids);
    w->affixed = relay_calloc(2 * MAX_AFFIX + 4, 1);
    return w;
}

static void work_give_back(void *work) {
    bpe_work *w = work;
    for (int i = 0; i < MAX_IDLE; i++) {
        bpe_work *none = NULL;
        if (atomic_compare_exchange_strong(&w->b->idle[i], &none, w)) return;
    }
    work_free(w);
}

// ---- The two seams

typedef struct word_model {
    relay_word_model base;
    bpe b;
} word_model;

typedef struct stretch_encoder {
    relay_stretch_encoder base;
    bpe b;
} stretch_encoder;

static void bpe_fini(bpe *b) {
    for (int i = 0; i < MAX_IDLE; i++)
        work_free(b->idle[i]);
    relay_bpe_rules_fini(&b->rules);
    relay_bpe_trie_fini(&b->trie);
    relay_bpe_borders_fini(&b->borders);
}

static relay_code copy_affix(char out[MAX_AFFIX], uint32_t *len, relay_spec_str s, const char *what, relay_err *e) {
    if (s.len > MAX_AFFIX)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "model.%s: %u bytes, at most %d are allowed", what, s.len,
                          MAX_AFFIX);
    if (s.len > 0) memcpy(out, s.s, s.len);
    *len = s.len;
    return RELAY_OK;
}

static relay_code bpe_init(bpe *b, const relay_model_spec *m, relay_err *e) {
    b->whole_words = m->ignore_merges || m->order == RELAY_BPE_BY_RANK; // as tiktoken does
    b->byte_fallback = m->byte_fallback;
    b->fuse_unk = m->fuse_unk;
    b->has_unk = m->has_unk;
    b->unk_id = m->unk_id;
    relay_code code =
        copy_affix(b->prefix, &b->prefix_len, m->continuing_subword_prefix, "continuing_subword_prefix", e);
    if (code == RELAY_OK) code = copy_affix(b->suffix, &b->suffix_len, m->end_of_word_suffix, "end_of_word_suffix", e);
    if (code == RELAY_OK) code = relay_bpe_rules_init(&b->rules, m, e);
    if (code != RELAY_OK) return code;
    relay_bpe_trie_init(&b->trie, &b->rules);
    relay_bpe_borders_init(&b->borders, &b->rules);
    // Not where it is no token itself, nor where a character may vanish between two others.
    b->cuts_at_spaces = !b->rules.is_byte_level && !b->whole_words &&
                        (b->has_unk || (b->byte_fallback && b->rules.has_all_bytes)) &&
                        relay_bpe_rules_find(&b->rules, "\xE2\x96\x81", 3) != RELAY_BPE_NONE;
    return RELAY_OK;
}

static void word_destroy(relay_word_model *m) {
    if (m == NULL) return;
    bpe_fini(&((word_model *)m)->b);
    free(m);
}

static void *word_work(const relay_word_model *m, size_t text_len) {
    return work_take(&((word_model *)m)->b);
}

static relay_code word_encode(const relay_word_model *m, void *work, const char *word, size_t len, uint32_t base,
                              relay_encoding *enc, relay_err *e) {
    run r = {.b = &((const word_model *)m)->b, .w = work, .text = word, .len = len, .base = base, .enc = enc};
    uint32_t end = (uint32_t)len;
    encode_spans(&r, 0, &end, 1, WORD);
    return RELAY_OK;
}

relay_code relay_bpe_create(relay_word_model **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    word_model *m = relay_calloc(1, sizeof *m);
    m->base = (relay_word_model){
        .destroy = word_destroy, .work_create = word_work, .work_destroy = work_give_back, .encode = word_encode};
    relay_code code = bpe_init(&m->b, &spec->model, e);
    if (code != RELAY_OK)
        word_destroy(&m->base);
    else
        *out = &m->base;
    return code;
}

static void stretch_destroy(relay_stretch_encoder *s) {
    if (s == NULL) return;
    bpe_fini(&((stretch_encoder *)s)->b);
    free(s);
}

static void *stretch_work(const relay_stretch_encoder *s, size_t text_len) {
    return work_take(&((stretch_encoder *)s)->b);
}

static relay_code stretch_encode(const relay_stretch_encoder *s, void *work, const char *text, size_t len,
                                 uint32_t base, relay_encoding *enc, relay_err *e) {
    run r = {.b = &((const stretch_encoder *)s)->b, .w = work, .text = text, .len = len, .base = base, .enc = enc};
    encode_stretch(&r);
    return RELAY_OK;
}

relay_code relay_bpe_stretch_create(relay_stretch_encoder **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    const relay_scan *scan = relay_scan_find(spec->pretokenizers, spec->n_pretokenizers);
    if (spec->model.kind != RELAY_MODEL_BPE || (scan == NULL && spec->n_pretokenizers > 0)) return RELAY_OK;
    stretch_encoder *s = relay_calloc(1, sizeof *s);
    s->base = (relay_stretch_encoder){.destroy = stretch_destroy,
                                      .work_create = stretch_work,
                                      .work_destroy = work_give_back,
                                      .encode = stretch_encode};
    s->b.scan = scan;
    relay_code code = bpe_init(&s->b, &spec->model, e);
    if (code != RELAY_OK)
        stretch_destroy(&s->base);
    else
        *out = &s->base;
    return code;
}
