// Best paths, and words that need none.
//
// Where no piece has a U+2581 behind another character (all vocabularies that were trained to split at whitespace), a
// text falls apart before each U+2581 that follows one: every path crosses there. Each part is looked up in the word
// cache first, and only a new one is given to Viterbi.
//
// The sums run on through the text, and rounding makes them depend on what stands before: two paths of a part that are
// nearly as good as each other may change places. To be equal to the reference to the bit, a part is cached with its
// margin, the smallest difference that decided between two paths, and taken from there only where rounding is too small
// to close it; else it is worked out from the very sum that it begins with.
#include "tokenizer_svc/unigram.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_svc/byte_trie.h"
#include "tokenizer_svc/word_cache.h"

#define UNKNOWN_PENALTY 10.0
#define SCORE_RESET     100000.0
#define NO_BYTE         UINT32_MAX

enum { HAS_UNKNOWN = 1 }; // flag of a cached word

typedef struct relay_unigram {
    relay_word_model model;
    relay_byte_trie trie;
    double *scores; // by id
    double unk_score;
    double largest; // magnitude of a score
    bool has_unk, byte_fallback;
    bool is_sentencepiece; // sums in 32-bit floats
    bool falls_apart;      // before U+2581
    uint32_t unk_id;
    uint32_t byte_ids[256];
} relay_unigram;

// The best path that ends at a byte.
typedef struct path_end {
    double score;
    uint32_t begin, id; // of its last piece
} path_end;

typedef struct piece {
    uint32_t id, end;
} piece;

typedef struct unigram_work {
    relay_word_cache cache;
    path_end *ends; // [cap]
    piece *pieces;  // [cap] a part's, in order
    size_t cap;
} unigram_work;

// A text on its way: what is not yet a token.
typedef struct progress {
    double sum;       // of all scores so far
    uint32_t unknown; // where the unknown characters before `at` begin
    uint32_t at;
} progress;

// ---- The best path through one part

static uint32_t character_bytes(uint8_t first) {
    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// Whether the path through `candidate` is the better one; `margin`, if asked for, is the closest decision so far.
static inline void relax(path_end *end, double candidate, uint32_t begin, uint32_t id, double *margin) {
    if (end->begin != UINT32_MAX) {
        double difference = candidate - end->score;
        if (margin != NULL && fabs(difference) < *margin) *margin = fabs(difference);
        if (!(difference > 0)) return;
    }
    *end = (path_end){.score = candidate, .begin = begin, .id = id};
}

// A sum as the reference holds it. Of two floats, rounding the sum of doubles is the sum of floats.
static inline double add(double a, double b, bool is_float) {
    return is_float ? (double)(float)(a + b) : a + b;
}

// sentencepiece takes the sum so far from all paths that are open where it is too large for a float to add to.
static void reset_scores(path_end *ends, uint32_t at, uint32_t frontier) {
    double sum = ends[at].score;
    for (uint32_t i = at; i <= frontier; i++)
        if (i == at || ends[i].begin != UINT32_MAX) ends[i].score = add(ends[i].score, -sum, true);
}

// Fills ends[1..n]. False if a character has no piece and there is no unknown token.
static inline __attribute__((always_inline)) bool search(const relay_unigram *u, path_end *ends, const char *s,
                                                         uint32_t n, double sum, bool is_float, double *margin) {
    const relay_trie_unit *units = u->trie.units;
    ends[0].score = sum;
    for (uint32_t i = 1; i <= n; i++)
        ends[i].begin = UINT32_MAX;
    uint32_t frontier = 0;
    for (uint32_t at = 0; at < n;) {
        if (is_float && fabs(ends[at].score) > SCORE_RESET) reset_scores(ends, at, frontier);
        double here = ends[at].score;
        uint32_t single = at + character_bytes((uint8_t)s[at]), node = RELAY_TRIE_ROOT;
        bool has_single = false;
        for (uint32_t i = at; i < n;) {
            uint32_t next = units[node].base ^ (uint8_t)s[i];
            if (units[next].check != node) break;
            node = next;
            i++;
            uint32_t id = units[node].value;
            if (id == RELAY_TRIE_NONE) continue;
            relax(&ends[i], add(here, u->scores[id], is_float), at, id, margin);
            has_single |= i == single;
            if (i > frontier) frontier = i;
        }
        if (!has_single) {
            double candidate = add(here, u->unk_score, is_float);
            // A character that an earlier piece covers at less cost needs no unknown token.
            bool is_needed = ends[single].begin == UINT32_MAX || candidate > ends[single].score;
            if (!u->has_unk && is_needed) return false;
            relax(&ends[single], candidate, at, u->unk_id, margin);
            if (single > frontier) frontier = single;
        }
        at = single;
    }
    return true;
}

static void reserve(unigram_work *w, size_t n) {
    if (n < w->cap) return;
    w->cap = n + 1 < 256 ? 256 : n + 1;
    w->ends = relay_realloc(w->ends, w->cap * sizeof *w->ends);
    w->pieces = relay_realloc(w->pieces, w->cap * sizeof *w->pieces);
}

// As search(), into w->ends.
static bool find_path(const relay_unigram *u, unigram_work *w, const char *s, uint32_t n, double sum, double *margin) {
    reserve(w, n);
    if (margin == NULL)
        return u->is_sentencepiece ? search(u, w->ends, s, n, sum, true, NULL)
                                   : search(u, w->ends, s, n, sum, false, NULL);
    *margin = INFINITY;
    return u->is_sentencepiece ? search(u, w->ends, s, n, sum, true, margin)
                               : search(u, w->ends, s, n, sum, false, margin);
}

// Leaves the path's pieces in w->pieces, in order, and returns their number.
static uint32_t walk_back(const relay_unigram *u, unigram_work *w, uint32_t n, bool *has_unknown) {
    uint32_t n_pieces = 0;
    uint32_t unk_id = u->has_unk ? u->unk_id : UINT32_MAX;
    *has_unknown = false;
    for (uint32_t end = n; end > 0; end = w->ends[end].begin) {
        w->pieces[n_pieces++] = (piece){w->ends[end].id, end};
        *has_unknown |= w->ends[end].id == unk_id;
    }
    for (uint32_t i = 0, j = n_pieces - 1; i < j; i++, j--) {
        piece swap = w->pieces[i];
        w->pieces[i] = w->pieces[j];
        w->pieces[j] = swap;
    }
    return n_pieces;
}

// ---- From pieces to tokens

// The unknown characters before p->at become one token, or one for each byte. As the reference does it, a run that
// spells a piece is that piece: unknown characters can be a better path than it.
static void flush_unknown(const relay_unigram *u, const char *word, uint32_t base, progress *p, relay_encoding *enc) {
    uint32_t begin = p->unknown, end = p->at;
    if (begin == end) return;
    p->unknown = end;
    uint32_t id = u->is_sentencepiece ? RELAY_TRIE_NONE : relay_byte_trie_find(&u->trie, word + begin, end - begin);
    bool has_bytes = u->byte_fallback && id == RELAY_TRIE_NONE;
    for (uint32_t i = begin; i < end && has_bytes; i++)
        has_bytes = u->byte_ids[(uint8_t)word[i]] != NO_BYTE;
    if (!has_bytes) {
        relay_encoding_add(enc, id == RELAY_TRIE_NONE ? u->unk_id : id, base + begin, base + end);
        return;
    }
    for (uint32_t i = begin; i < end; i++)
        relay_encoding_add(enc, u->byte_ids[(uint8_t)word[i]], base + begin, base + end);
}

static inline void add_score(const relay_unigram *u, progress *p, uint32_t id) {
    bool is_unknown = u->has_unk && id == u->unk_id;
    p->sum = add(p->sum, is_unknown ? u->unk_score : u->scores[id], u->is_sentencepiece);
}

static void emit_piece(const relay_unigram *u, const char *word, uint32_t base, progress *p, uint32_t id, uint32_t end,
                       relay_encoding *enc) {
    bool is_unknown = u->has_unk && id == u->unk_id;
    if (!is_unknown) {
        flush_unknown(u, word, base, p, enc);
        relay_encoding_add(enc, id, base + p->at, base + end);
        p->unknown = end;
    }
    p->at = end;
}

// Pieces of which none is unknown.
static void emit_pieces(const relay_unigram *u, const char *word, uint32_t base, progress *p, const piece *pieces,
                        uint32_t n, uint32_t len, relay_encoding *enc) {
    flush_unknown(u, word, base, p, enc);
    relay_encoding_reserve(enc, n);
    for (uint32_t i = 0; i < n; i++)
        enc->ids[enc->n + i] = pieces[i].id;
    for (uint32_t i = 0; i < n && enc->has_offsets; i++) {
        enc->offset_begin[enc->n + i] = base + p->at + (i == 0 ? 0 : pieces[i - 1].end);
        enc->offset_end[enc->n + i] = base + p->at + pieces[i].end;
    }
    enc->n += n;
    p->at = p->unknown = p->at + len;
}

static void emit_cached(const relay_unigram *u, const char *word, uint32_t base, progress *p,
                        const relay_cached_word *c, relay_encoding *enc) {
    const uint8_t *ends = relay_cached_word_ends(c);
    uint32_t part = p->at;
    if (c->flags & HAS_UNKNOWN) {
        for (uint32_t i = 0; i < c->n_tokens; i++)
            emit_piece(u, word, base, p, c->ids[i], part + ends[i], enc);
        return;
    }
    flush_unknown(u, word, base, p, enc);
    relay_encoding_reserve(enc, c->n_tokens);
    uint32_t *ids = enc->ids + enc->n;
    for (uint32_t i = 0; i < c->n_tokens; i++)
        ids[i] = c->ids[i];
    if (enc->has_offsets) {
        for (uint32_t i = 0; i < c->n_tokens; i++) {
            enc->offset_begin[enc->n + i] = base + part + (i == 0 ? 0 : ends[i - 1]);
            enc->offset_end[enc->n + i] = base + part + ends[i];
        }
    }
    enc->n += c->n_tokens;
    p->at = p->unknown = part + c->len;
}

// How far rounding can bring two paths of a part together, or apart, where it begins with this sum; infinite where the
// sums may be reset within.
static double rounding(const relay_unigram *u, double sum, uint32_t len) {
    double largest = fabs(sum) + len * u->largest;
    if (u->is_sentencepiece && largest > SCORE_RESET) return INFINITY;
    return largest * (len + 2) * (u->is_sentencepiece ? FLT_EPSILON : DBL_EPSILON);
}

// A part whose sum begins at 0 was decided exactly so before; another only if its margin is beyond rounding.
static bool holds_at(const relay_unigram *u, const relay_cached_word *c, double sum) {
    return sum == 0 || c->margin > rounding(u, sum, c->len);
}

// The name of the unknown token, spelled out in the text: a piece like any other, but fused with unknown characters.
static bool is_name_of_unknown(const relay_unigram *u, const char *s, const unigram_work *w, uint32_t i) {
    uint32_t begin = i == 0 ? 0 : w->pieces[i - 1].end;
    return relay_byte_trie_find(&u->trie, s + begin, w->pieces[i].end - begin) == u->unk_id;
}

static void cache_part(const relay_unigram *u, unigram_work *w, const char *s, uint32_t len, uint32_t n_pieces,
                       double margin, uint64_t hash) {
    uint8_t flags = 0;
    for (uint32_t i = 0; i < n_pieces; i++) {
        if (!u->has_unk || w->pieces[i].id != u->unk_id) continue;
        if (is_name_of_unknown(u, s, w, i)) return; // its score is not an unknown character's
        flags = HAS_UNKNOWN;
    }
    relay_cached_word *c = relay_word_cache_add(&w->cache, s, len, n_pieces, hash);
    c->flags = flags;
    c->margin = margin > FLT_MAX ? FLT_MAX : (float)(margin * (1 - FLT_EPSILON));
    uint8_t *ends = relay_cached_word_ends(c);
    for (uint32_t i = 0; i < n_pieces; i++) {
        c->ids[i] = w->pieces[i].id;
        ends[i] = (uint8_t)w->pieces[i].end;
    }
}

static relay_code encode_part(const relay_unigram *u, unigram_work *w, const char *word, uint32_t len, bool is_last,
                              bool is_kept, uint32_t base, progress *p, relay_encoding *enc, relay_err *e) {
    const char *s = word + p->at;
    is_kept = is_kept && len <= RELAY_WORD_CACHE_MAX_WORD;
    uint64_t hash = is_kept ? relay_word_hash(s, len) : 0;
    const relay_cached_word *c = is_kept ? relay_word_cache_find(&w->cache, s, len, hash) : NULL;
    if (c != NULL && holds_at(u, c, p->sum)) {
        if (!is_last)
            for (uint32_t i = 0; i < c->n_tokens; i++)
                add_score(u, p, c->ids[i]);
        emit_cached(u, word, base, p, c, enc);
        return RELAY_OK;
    }
    is_kept = is_kept && c == NULL;
    double margin;
    if (!find_path(u, w, s, len, p->sum, is_kept ? &margin : NULL))
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "text: a character has no token, and the tokenizer has no unknown token");
    bool has_unknown;
    uint32_t n_pieces = walk_back(u, w, len, &has_unknown), part = p->at;
    if (is_kept) {
        double lost = rounding(u, p->sum, len); // of the margin, which is cached as if the sum were 0
        bool holds = p->sum == 0 ? isfinite(lost) : margin > 2 * lost;
        if (holds) cache_part(u, w, s, len, n_pieces, p->sum == 0 ? margin : margin - lost, hash);
    }
    if (has_unknown) {
        for (uint32_t i = 0; i < n_pieces; i++)
            emit_piece(u, word, base, p, w->pieces[i].id, part + w->pieces[i].end, enc);
    } else {
        emit_pieces(u, word, base, p, w->pieces, n_pieces, len, enc);
    }
    p->sum = w->ends[len].score;
    return RELAY_OK;
}

// Where the part that begins at `at` ends: before the next U+2581 behind another character.
static uint32_t part_end(const char *word, uint32_t at, uint32_t len) {
    bool is_space = true; // whether the character before `i` is U+2581
    for (uint32_t i = at; i < len;) {
        if (!is_space) {
            const char *next = memchr(word + i, 0xE2, len - i);
            if (next == NULL) return len;
            i = (uint32_t)(next - word);
        }
        bool is_next_space = len - i >= 3 && memcmp(word + i, "\xE2\x96\x81", 3) == 0;
        if (is_next_space && !is_space) return i;
        i += is_next_space ? 3 : 1;
        is_space = is_next_space;
    }
    return len;
}

static relay_code encode_word(const relay_unigram *u, unigram_work *w, const char *word, size_t len, bool is_kept,
                              uint32_t base, relay_encoding *enc, relay_err *e) {
    progress p = {.sum = 0};
    while (p.at < len) {
        uint32_t end = u->falls_apart ? part_end(word, p.at, (uint32_t)len) : (uint32_t)len;
        relay_code code = encode_part(u, w, word, end - p.at, end == len, is_kept, base, &p, enc, e);
        if (code != RELAY_OK) return code;
    }
    flush_unknown(u, word, base, &p, enc);
    return RELAY_OK;
}

static relay_code encode(const relay_word_model *m, void *work, const char *word, size_t len, uint32_t base,
                         relay_encoding *enc, relay_err *e) {
    return encode_word((const relay_unigram *)m, work, word, len, true, base, enc, e);
}

static relay_code encode_once(const relay_word_model *m, void *work, const char *word, size_t len, uint32_t base,
                              relay_encoding *enc, relay_err *e) {
    return encode_word((const relay_unigram *)m, work, word, len, false, base, enc, e);
}

// ---- The object

static void *work_create(const relay_word_model *m, size_t text_len) {
    (void)m;
    unigram_work *w = relay_calloc(1, sizeof *w);
    relay_word_cache_init(&w->cache, text_len);
    return w;
}

static void work_destroy(void *work) {
    unigram_work *w = work;
    if (w == NULL) return;
    relay_word_cache_fini(&w->cache);
    free(w->ends);
    free(w->pieces);
    free(w);
}

static void destroy(relay_word_model *m) {
    relay_unigram *u = (relay_unigram *)m;
    if (u == NULL) return;
    relay_byte_trie_fini(&u->trie);
    free(u->scores);
    free(u);
}

// Whether a U+2581 stands behind another character.
static bool has_inner_space(relay_spec_str s) {
    return part_end(s.s, 0, s.len) != s.len;
}

static bool is_found_in_text(const relay_unigram *u, const relay_model_token *t) {
    if (t->piece.s == NULL || t->piece.len == 0) return false;
    return !u->is_sentencepiece || t->kind == RELAY_TOKEN_NORMAL || t->kind == RELAY_TOKEN_USER;
}

static void load_pieces(relay_unigram *u, const relay_model_spec *model) {
    double lowest = INFINITY;
    for (uint32_t id = 0; id < model->n_tokens; id++) {
        const relay_model_token *t = &model->tokens[id];
        if (t->piece.s == NULL || (u->is_sentencepiece && t->kind != RELAY_TOKEN_NORMAL)) continue;
        if (t->score < lowest) lowest = t->score;
    }
    u->unk_score = lowest - UNKNOWN_PENALTY;
    if (u->is_sentencepiece) u->unk_score = (double)((float)lowest - (float)UNKNOWN_PENALTY);
    u->largest = fabs(u->unk_score);

    relay_trie_builder *b = relay_trie_builder_create();
    u->falls_apart = true;
    for (uint32_t id = 0; id < model->n_tokens; id++) {
        const relay_model_token *t = &model->tokens[id];
        u->scores[id] = t->score;
        if (u->is_sentencepiece && t->kind == RELAY_TOKEN_USER)
            u->scores[id] = (double)(float)(0.1 * (t->piece.len - 1));
        if (fabs(u->scores[id]) > u->largest) u->largest = fabs(u->scores[id]);
        if (!is_found_in_text(u, t)) continue;
        relay_trie_builder_add(b, t->piece.s, t->piece.len, id);
        if (has_inner_space(t->piece)) u->falls_apart = false;
    }
    relay_trie_builder_finish(b, &u->trie);
}

static void load_bytes(relay_unigram *u, const relay_model_spec *model) {
    memset(u->byte_ids, 0xFF, sizeof u->byte_ids);
    for (uint32_t id = 0; id < model->n_tokens; id++) {
        relay_spec_str name = model->tokens[id].piece;
        if (name.s == NULL) continue;
        int byte = relay_vocab_byte_of_name(name.s, name.len);
        if (byte >= 0 && name.s[3] < 'a' && name.s[4] < 'a') u->byte_ids[byte] = id; // capital digits only
    }
}

relay_code relay_unigram_create(relay_word_model **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    const relay_model_spec *model = &spec->model;
    if (model->has_unk && model->unk_id >= model->n_tokens)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "model.unk_id is %u; the vocabulary has %u tokens", model->unk_id,
                          model->n_tokens);
    for (uint32_t id = 0; id < model->n_tokens; id++)
        if (!isfinite(model->tokens[id].score))
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "model.vocab[%u]: the score is no finite number", id);
    relay_unigram *u = relay_calloc(1, sizeof *u);
    u->model = (relay_word_model){.destroy = destroy,
                                  .work_create = work_create,
                                  .work_destroy = work_destroy,
                                  .encode = encode,
                                  .encode_once = encode_once};
    u->has_unk = model->has_unk;
    u->unk_id = model->unk_id;
    u->byte_fallback = model->byte_fallback;
    u->is_sentencepiece = model->is_sentencepiece;
    u->scores = relay_calloc(model->n_tokens, sizeof *u->scores);
    load_pieces(u, model);
    load_bytes(u, model);
    *out = &u->model;
    return RELAY_OK;
}
