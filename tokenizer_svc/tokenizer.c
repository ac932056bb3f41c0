// The stages of an encoding, each in its own file:
//
//   spans -> one text -> added_tokens splits off whole tokens -> normalizer -> added_tokens again, for those that are
//   matched in normalized text -> stretch encoder, or splitter and word model -> post_processor
//
// A stretch between two added tokens is normalized and split into words on its own: a pattern does not look past an
// added token. Where a tokenizer's texts fall into chunks (chunker.h) and nobody asks for offsets, a chunk that was
// there before takes none of this way: its tokens come from a cache.
//
// Text that no normalizer changes stays where it is, in the caller's memory; the first copy is made by the
// first stage that must write.
//
// Offsets go from a model's bytes of a stretch to bytes of the caller's text at one place (place_tokens).
#include "tokenizer_svc/tokenizer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/added_tokens.h"
#include "tokenizer_svc/bpe_model.h"
#include "tokenizer_svc/chunker.h"
#include "tokenizer_svc/normalizer.h"
#include "tokenizer_svc/plain_chars.h"
#include "tokenizer_svc/post_processor.h"
#include "tokenizer_svc/splitter.h"
#include "tokenizer_svc/unigram.h"
#include "tokenizer_svc/word_cache.h"
#include "tokenizer_svc/word_model.h"
#include "tokenizer_svc/wordlevel.h"
#include "tokenizer_svc/wordpiece.h"

enum { FAMILY_MAX = 64 };

// Working memory of one call; kept for later ones, as many as there were at a time.
typedef struct call_work {
    relay_normalizer_work normalizer;
    relay_splitter_work splitter;
    void *stretch, *model; // theirs
    relay_word_cache chunks;
    char *word; // a plain chunk behind the prefix of words
    size_t word_cap;
} call_work;

enum { MAX_KEPT = 64 };

typedef struct work_pool {
    pthread_mutex_t lock;
    call_work *kept[MAX_KEPT]; // guarded by lock
    uint32_t n_kept;           // guarded by lock
} work_pool;

struct relay_tokenizer {
    relay_added_tokens *raw;        // matched in the caller's text
    relay_added_tokens *normalized; // matched in normalized text
    relay_normalizer *normalizer;
    relay_stretch_encoder *stretch; // NULL: splitter and model do its work
    relay_splitter *splitter;
    relay_word_model *model;
    relay_post_processor *post;
    relay_chunker chunker;
    bool has_chunks;
    relay_plain_chars *plain; // where there are chunks
    work_pool *pool;
    bool adds_bos;
    uint32_t unk_as_text; // the unknown token, where its text is what it stands for; UINT32_MAX: none
    bool asks_for_place;  // the splitter must know where normalized text comes from
    char family[FAMILY_MAX];
};

// ---- Making one

static relay_code create_model(relay_tokenizer *t, const relay_tokenizer_spec *spec, relay_err *e) {
    switch (spec->model.kind) {
    case RELAY_MODEL_BPE: {
        relay_code code = relay_bpe_stretch_create(&t->stretch, spec, e);
        return code == RELAY_OK && t->stretch == NULL ? relay_bpe_create(&t->model, spec, e) : code;
    }
    case RELAY_MODEL_UNIGRAM:
        return relay_unigram_create(&t->model, spec, e);
    case RELAY_MODEL_WORDPIECE:
        return relay_wordpiece_create(&t->model, spec, e);
    case RELAY_MODEL_WORDLEVEL:
        return relay_wordlevel_create(&t->model, spec, e);
    }
    return relay_fail(e, RELAY_INTERNAL, "model of kind %d", (int)spec->model.kind);
}

// The tokens that are matched in normalized text, by what the normalizers make of their contents. Owned: the list and
// each content.
static relay_code normalize_contents(const relay_tokenizer *t, relay_added_token *tokens, uint32_t n, relay_err *e) {
    relay_normalizer_work work = {0};
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; i < n; i++) {
        relay_spec_str content = tokens[i].content;
        tokens[i].content = (relay_spec_str){0};
        const relay_aligned_text *text = NULL;
        if (code == RELAY_OK)
            code = relay_normalizer_apply(t->normalizer, &work, content.s, content.len, 0, false, &text, e);
        if (code == RELAY_OK)
            tokens[i].content = (relay_spec_str){relay_strndup(text->len == 0 ? "" : text->s, text->len), text->len};
    }
    relay_normalizer_work_fini(&work);
    return code;
}

// A user-defined piece of SentencePiece's BPE, which the spec leaves to the model: it is taken out of the normalized
// text before anything is joined, just as an added token is.
static bool is_user_piece(const relay_tokenizer_spec *spec, uint32_t id) {
    const relay_model_spec *m = &spec->model;
    return m->kind == RELAY_MODEL_BPE && m->order == RELAY_BPE_BY_SCORE && id < m->n_tokens &&
           m->tokens[id].kind == RELAY_TOKEN_USER && m->tokens[id].piece.len > 0;
}

static uint32_t count_user_pieces(const relay_tokenizer_spec *spec) {
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (is_user_piece(spec, spec->added[i].id)) return 0; // a format that has them among the added tokens
    uint32_t n = 0;
    for (uint32_t id = 0; id < spec->model.n_tokens; id++)
        n += is_user_piece(spec, id);
    return n;
}

// Behind the n that are there; each has its content as it is in the normalized text.
static uint32_t add_user_pieces(const relay_tokenizer_spec *spec, uint32_t n_pieces, relay_added_token *tokens,
                                uint32_t n) {
    const uint32_t n_all = n + n_pieces;
    for (uint32_t id = 0; n < n_all; id++) {
        if (!is_user_piece(spec, id)) continue;
        relay_spec_str piece = spec->model.tokens[id].piece;
        tokens[n++] = (relay_added_token){
            .content = {relay_strndup(piece.s, piece.len), piece.len}, .id = id, .normalized = true};
    }
    return n;
}

static relay_code create_added_tokens(relay_tokenizer *t, const relay_tokenizer_spec *spec, relay_err *e) {
    uint32_t n_raw = 0, n_normalized = 0;
    const uint32_t n_pieces = count_user_pieces(spec);
    relay_added_token *tokens = relay_calloc((uint64_t)spec->n_added + n_pieces + 1, sizeof *tokens);
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (!spec->added[i].normalized) tokens[n_raw++] = spec->added[i];
    relay_code code = relay_added_tokens_create(&t->raw, tokens, n_raw, e);
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].normalized) tokens[n_normalized++] = spec->added[i];
    if (code == RELAY_OK) {
        code = normalize_contents(t, tokens, n_normalized, e);
        n_normalized = add_user_pieces(spec, n_pieces, tokens, n_normalized);
        if (code == RELAY_OK) code = relay_added_tokens_create(&t->normalized, tokens, n_normalized, e);
        for (uint32_t i = 0; i < n_normalized; i++)
            free((char *)tokens[i].content.s);
    }
    free(tokens);
    return code;
}

static void name_family(relay_tokenizer *t, const relay_tokenizer_spec *spec) {
    static const char *const names[] = {
        [RELAY_MODEL_BPE] = "BPE",
        [RELAY_MODEL_UNIGRAM] = "Unigram",
        [RELAY_MODEL_WORDPIECE] = "WordPiece",
        [RELAY_MODEL_WORDLEVEL] = "WordLevel",
    };
    snprintf(t->family, sizeof t->family, "%s%s (%s)", spec->model.byte_alphabet ? "byte-level " : "",
             names[spec->model.kind], spec->format == NULL ? "made" : spec->format);
}

relay_code relay_tokenizer_create(relay_tokenizer **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    relay_tokenizer *t = relay_calloc(1, sizeof *t);
    t->pool = relay_calloc(1, sizeof *t->pool);
    pthread_mutex_init(&t->pool->lock, NULL);
    t->adds_bos = spec->add_bos;
    bool is_text = spec->model.kind == RELAY_MODEL_UNIGRAM && spec->model.has_unk;
    t->unk_as_text = is_text ? spec->model.unk_id : UINT32_MAX;
    name_family(t, spec);
    relay_code code = relay_normalizer_create(&t->normalizer, spec->normalizers, spec->n_normalizers, e);
    if (code == RELAY_OK) code = create_added_tokens(t, spec, e);
    if (code == RELAY_OK)
        code = relay_splitter_create(&t->splitter, spec->pretokenizers, spec->n_pretokenizers,
                                     spec->model.byte_alphabet, e);
    if (code == RELAY_OK) code = create_model(t, spec, e);
    if (code == RELAY_OK) code = relay_post_processor_create(&t->post, spec, e);
    if (code != RELAY_OK) {
        relay_tokenizer_destroy(t);
        return code;
    }
    t->has_chunks = t->model != NULL && relay_chunker_init(&t->chunker, spec);
    if (t->has_chunks) {
        t->plain = relay_calloc(1, sizeof *t->plain);
        relay_plain_chars_init(t->plain, spec, t->normalizer);
    }
    t->asks_for_place = relay_splitter_asks_for_place(t->splitter);
    *out = t;
    return RELAY_OK;
}

// ---- Working memory

static void destroy_work(const relay_tokenizer *t, call_work *w) {
    if (w->stretch != NULL) t->stretch->work_destroy(w->stretch);
    if (w->model != NULL) t->model->work_destroy(w->model);
    relay_normalizer_work_fini(&w->normalizer);
    relay_splitter_work_fini(&w->splitter);
    relay_word_cache_fini(&w->chunks);
    free(w->word);
    free(w);
}

static call_work *take_work(const relay_tokenizer *t, size_t text_len) {
    work_pool *pool = t->pool;
    pthread_mutex_lock(&pool->lock);
    call_work *w = pool->n_kept > 0 ? pool->kept[--pool->n_kept] : NULL;
    pthread_mutex_unlock(&pool->lock);
    if (w != NULL) return w;
    w = relay_calloc(1, sizeof *w);
    if (t->stretch != NULL) w->stretch = t->stretch->work_create(t->stretch, text_len);
    if (t->model != NULL) w->model = t->model->work_create(t->model, text_len);
    if (t->has_chunks) relay_word_cache_init(&w->chunks, text_len);
    return w;
}

static void give_back_work(const relay_tokenizer *t, call_work *w) {
    work_pool *pool = t->pool;
    pthread_mutex_lock(&pool->lock);
    bool is_kept = pool->n_kept < MAX_KEPT;
    if (is_kept) pool->kept[pool->n_kept++] = w;
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept) destroy_work(t, w);
}

void relay_tokenizer_destroy(relay_tokenizer *t) {
    if (t == NULL) return;
    for (uint32_t i = 0; i < t->pool->n_kept; i++)
        destroy_work(t, t->pool->kept[i]);
    pthread_mutex_destroy(&t->pool->lock);
    free(t->pool);
    relay_added_tokens_destroy(t->raw);
    relay_added_tokens_destroy(t->normalized);
    relay_normalizer_destroy(t->normalizer);
    if (t->stretch != NULL) t->stretch->destroy(t->stretch);
    relay_splitter_destroy(t->splitter);
    if (t->model != NULL) t->model->destroy(t->model);
    relay_post_processor_destroy(t->post);
    free(t->plain);
    free(t);
}

const char *relay_tokenizer_family(const relay_tokenizer *t) {
    return t->family;
}

bool relay_tokenizer_adds_bos(const relay_tokenizer *t) {
    return t->adds_bos;
}

// ---- Encoding

typedef struct encoding_run {
    const relay_tokenizer *t;
    relay_encoding *enc;
    const char *text; // the caller's
    size_t len;
    const relay_byte_range *open; // where names of CONTROL tokens count
    size_t n_open;
    call_work *w;
    bool is_remembered; // a chunk whose tokens will be kept
    relay_added_values values;
    relay_err *e;
} encoding_run;

// Text on its way: the caller's own, or a normalized one with what it stands for.
typedef struct stretch {
    const char *s;
    uint32_t len;
    uint32_t origin;           // of the caller's own text
    const relay_alignment *of; // NULL: the caller's own, or nobody asks
    bool is_own;
} stretch;

static bool is_continuation(char c) {
    return ((uint8_t)c & 0xC0) == 0x80;
}

// The part of the caller's text that bytes [begin, end) of a stretch stand for: whole characters.
static relay_alignment place_of(const encoding_run *r, const stretch *x, uint32_t begin, uint32_t end) {
    if (begin >= end) end = begin + 1;
    if (x->of != NULL) return (relay_alignment){x->of[begin].begin, x->of[end - 1].end};
    size_t first = x->origin + begin, last = x->origin + end;
    while (first > 0 && is_continuation(r->text[first]))
        first--;
    while (last < r->len && is_continuation(r->text[last]))
        last++;
    return (relay_alignment){(uint32_t)first, (uint32_t)last};
}

// Turns the offsets of the tokens from `first` on, which are bytes of the stretch, into bytes of the caller's text.
static void place_tokens(encoding_run *r, const stretch *x, uint32_t first) {
    relay_encoding *enc = r->enc;
    if (!enc->has_offsets) return;
    for (uint32_t i = first; i < enc->n; i++) {
        uint32_t begin = enc->offset_begin[i], end = enc->offset_end[i];
        relay_alignment of = place_of(r, x, begin, end);
        if (enc->ids[i] == r->t->unk_as_text)
            relay_post_processor_note_value(r->t->post, &r->values, i, x->s + begin, end - begin);
        enc->offset_begin[i] = of.begin;
        enc->offset_end[i] = of.end;
    }
}

static relay_code encode_word(encoding_run *r, const char *s, size_t len, uint32_t base) {
    const relay_word_model *m = r->t->model;
    bool is_once = r->is_remembered && m->encode_once != NULL;
    return (is_once ? m->encode_once : m->encode)(m, r->w->model, s, len, base, r->enc, r->e);
}

static relay_code encode_words(encoding_run *r, const stretch *x) {
    const relay_tokenizer *t = r->t;
    relay_split split;
    relay_code code = relay_splitter_apply(t->splitter, &r->w->splitter, x->s, x->len, x->of, x->origin,
                                           r->enc->has_offsets, &split, r->e);
    uint32_t first = r->enc->n;
    for (uint32_t i = 0; i < split.n_words && code == RELAY_OK; i++) {
        relay_word word = split.words[i];
        code = encode_word(r, split.s + word.begin, word.end - word.begin, word.begin);
    }
    if (code != RELAY_OK) return code;
    if (split.s == x->s) {
        place_tokens(r, x, first);
    } else {
        stretch written = {.s = split.s, .len = split.len, .of = split.of};
        place_tokens(r, &written, first);
    }
    return RELAY_OK;
}

// Text without added tokens, as it goes to pre-tokenizers and model.
static relay_code encode_stretch(encoding_run *r, const stretch *x) {
    if (x->len == 0) return RELAY_OK;
    const relay_tokenizer *t = r->t;
    if (t->stretch == NULL) return encode_words(r, x);
    uint32_t first = r->enc->n;
    relay_code code = t->stretch->encode(t->stretch, r->w->stretch, x->s, x->len, 0, r->enc, r->e);
    if (code == RELAY_OK) place_tokens(r, x, first);
    return code;
}

static void add_added_token(encoding_run *r, const stretch *x, const relay_added_match *match) {
    uint32_t begin = (uint32_t)match->begin, end = (uint32_t)match->end;
    relay_alignment of = {0};
    if (r->enc->has_offsets) {
        of = place_of(r, x, begin, end);
        relay_post_processor_note_value(r->t->post, &r->values, r->enc->n, x->s + begin, end - begin);
    }
    relay_encoding_add(r->enc, match->id, of.begin, of.end);
}

static stretch part_of(const stretch *x, size_t begin, size_t end) {
    stretch part = *x;
    part.s += begin;
    part.len = (uint32_t)(end - begin);
    part.origin += (uint32_t)begin;
    if (part.of != NULL) part.of += begin;
    return part;
}

typedef relay_code (*stretch_fn)(encoding_run *r, const stretch *x);

// Splits off the tokens and hands what is between them to `next`.
static relay_code split_off(encoding_run *r, const relay_added_tokens *tokens, const stretch *x,
                            const relay_byte_range *open, size_t n_open, stretch_fn next) {
    relay_added_scan scan = {.tokens = tokens, .text = x->s, .len = x->len, .open = open, .n_open = n_open};
    relay_added_match match;
    size_t at = 0;
    while (relay_added_scan_next(&scan, &match)) {
        if (at < match.begin) {
            stretch part = part_of(x, at, match.begin);
            relay_code code = next(r, &part);
            if (code != RELAY_OK) return code;
        }
        add_added_token(r, x, &match);
        at = match.end;
    }
    stretch rest = part_of(x, at, x->len);
    return next(r, &rest);
}

// The open ranges of the caller's text as they lie in a stretch. Owned; count in *n.
static relay_byte_range *open_in_stretch(const encoding_run *r, const stretch *x, size_t *n) {
    relay_byte_range *open = relay_calloc(x->len == 0 ? 1 : x->len, sizeof *open);
    *n = 0;
    size_t k = 0;
    for (uint32_t i = 0; i < x->len && k < r->n_open;) {
        relay_alignment of = place_of(r, x, i, i + 1);
        while (k < r->n_open && r->open[k].end <= of.begin)
            k++;
        bool is_open = k < r->n_open && r->open[k].begin <= of.begin && of.end <= r->open[k].end;
        if (is_open && (*n == 0 || open[*n - 1].end != i)) open[(*n)++] = (relay_byte_range){.begin = i};
        i++;
        if (is_open) open[*n - 1].end = i;
    }
    return open;
}

static relay_code encode_normalized(encoding_run *r, const stretch *x, bool is_placed, bool is_open) {
    const relay_added_tokens *tokens = r->t->normalized;
    if (relay_added_tokens_is_empty(tokens)) return encode_stretch(r, x);
    if (!relay_added_tokens_has_special(tokens)) return split_off(r, tokens, x, NULL, 0, encode_stretch);
    if (!is_placed) {
        relay_byte_range all = {0, x->len};
        return split_off(r, tokens, x, &all, is_open ? 1 : 0, encode_stretch);
    }
    size_t n_open;
    relay_byte_range *open = open_in_stretch(r, x, &n_open);
    relay_code code = split_off(r, tokens, x, open, n_open, encode_stretch);
    free(open);
    return code;
}

// The caller's own text, through all stages.
static relay_code encode_own(encoding_run *r, const stretch *x) {
    const relay_tokenizer *t = r->t;
    bool is_open = false, is_partly_open = false;
    for (size_t i = 0; i < r->n_open; i++) {
        size_t begin = r->open[i].begin, end = r->open[i].end;
        is_partly_open |= begin < x->origin + x->len && end > x->origin;
        is_open |= begin <= x->origin && end >= x->origin + x->len;
    }
    bool is_mixed = is_partly_open && !is_open && relay_added_tokens_has_special(t->normalized);
    if (relay_normalizer_is_identity(t->normalizer, x->s, x->len)) return encode_normalized(r, x, is_mixed, is_open);
    bool is_aligned = r->enc->has_offsets || t->asks_for_place || is_mixed;
    const relay_aligned_text *text;
    relay_code code =
        relay_normalizer_apply(t->normalizer, &r->w->normalizer, x->s, x->len, x->origin, is_aligned, &text, r->e);
    if (code != RELAY_OK || text->len == 0) return code;
    stretch normalized = {.s = text->s, .len = text->len, .of = is_aligned ? text->of : NULL};
    return encode_normalized(r, &normalized, is_mixed, is_open);
}

static void keep_chunk(encoding_run *r, const char *s, size_t len, uint64_t hash, uint32_t first) {
    uint32_t n = r->enc->n - first;
    if (n > RELAY_WORD_CACHE_MAX_WORD) return;
    relay_cached_word *fresh = relay_word_cache_add(&r->w->chunks, s, len, n, hash);
    for (uint32_t i = 0; i < n; i++)
        fresh->ids[i] = r->enc->ids[first + i];
}

// A chunk of plain characters: one word.
static relay_code encode_plain(encoding_run *r, const char *s, size_t len) {
    const relay_plain_chars *plain = r->t->plain;
    call_work *w = r->w;
    if (plain->prefix_len == 0) return encode_word(r, s, len, 0);
    size_t need = plain->prefix_len + len;
    if (need > w->word_cap) {
        w->word_cap = 2 * need;
        w->word = relay_realloc(w->word, w->word_cap);
    }
    memcpy(w->word, plain->prefix, plain->prefix_len);
    memcpy(w->word + plain->prefix_len, s, len);
    return encode_word(r, w->word, need, 0);
}

static relay_code encode_chunk(encoding_run *r, const stretch *x) {
    return relay_plain_chars_hold(r->t->plain, x->s, x->len) ? encode_plain(r, x->s, x->len) : encode_own(r, x);
}

static relay_code encode_chunks(encoding_run *r, const stretch *x) {
    const relay_chunker *chunker = &r->t->chunker;
    relay_encoding *enc = r->enc;
    size_t begin, end = 0;
    while (relay_chunker_next(chunker, x->s, x->len, end, &begin, &end)) {
        const char *s = x->s + begin;
        size_t len = end - begin;
        bool is_short = len <= RELAY_WORD_CACHE_MAX_WORD;
        uint64_t hash = is_short ? relay_word_hash(s, len) : 0;
        const relay_cached_word *known = is_short ? relay_word_cache_find(&r->w->chunks, s, len, hash) : NULL;
        if (known != NULL) {
            relay_encoding_reserve(enc, known->n_tokens);
            for (uint32_t i = 0; i < known->n_tokens; i++)
                enc->ids[enc->n + i] = known->ids[i];
            enc->n += known->n_tokens;
            continue;
        }
        uint32_t first = enc->n;
        stretch part = part_of(x, begin, end);
        r->is_remembered = is_short;
        relay_code code = encode_chunk(r, &part);
        r->is_remembered = false;
        if (code != RELAY_OK) return code;
        if (is_short) keep_chunk(r, s, len, hash, first);
    }
    return RELAY_OK;
}

// The caller's own text between two added tokens.
static relay_code encode_between(encoding_run *r, const stretch *x) {
    if (x->len == 0) return RELAY_OK;
    return r->t->has_chunks && !r->enc->has_offsets ? encode_chunks(r, x) : encode_own(r, x);
}

static relay_code check_spans(const relay_text_span *spans, size_t n_spans, size_t *total, relay_err *e) {
    *total = 0;
    for (size_t i = 0; i < n_spans; i++) {
        size_t valid = relay_utf8_valid_prefix(spans[i].text, spans[i].len);
        if (valid != spans[i].len)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "text: not valid UTF-8 at byte %zu", *total + valid);
        if (spans[i].len > RELAY_TOKENIZER_MAX_TEXT_BYTES - *total)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "text: more than %u bytes, which is the limit",
                              RELAY_TOKENIZER_MAX_TEXT_BYTES);
        *total += spans[i].len;
    }
    return RELAY_OK;
}

// Joins the spans; neighbours where CONTROL names count become one range. Returns how many there are.
static size_t join_spans(const relay_text_span *spans, size_t n_spans, char *text, relay_byte_range *open) {
    size_t at = 0, n_open = 0;
    for (size_t i = 0; i < n_spans; i++) {
        if (spans[i].len == 0) continue;
        if (text != NULL) memcpy(text + at, spans[i].text, spans[i].len);
        if (spans[i].parse_special) {
            if (n_open == 0 || open[n_open - 1].end != at) open[n_open++] = (relay_byte_range){.begin = at};
            open[n_open - 1].end = at + spans[i].len;
        }
        at += spans[i].len;
    }
    return n_open;
}

static relay_code encode_text(encoding_run *r, bool is_continuation) {
    const relay_tokenizer *t = r->t;
    if (r->len == 0) return RELAY_OK;
    r->w = take_work(t, r->len);
    r->w->splitter.is_continuation = is_continuation;
    stretch all = {.s = r->text, .len = (uint32_t)r->len};
    relay_code code = split_off(r, t->raw, &all, r->open, r->n_open, encode_between);
    give_back_work(t, r->w);
    return code;
}

relay_code relay_tokenizer_encode(const relay_tokenizer *t, const relay_text_span *spans, size_t n_spans,
                                  const relay_encode_opts *opts, relay_encoding *enc, relay_err *e) {
    encoding_run r = {.t = t, .enc = enc, .e = e};
    relay_code code = check_spans(spans, n_spans, &r.len, e);
    if (code != RELAY_OK) return code;
    enc->has_offsets = opts->want_offsets;
    uint32_t first = enc->n;
    char *joined = n_spans > 1 ? relay_calloc(r.len == 0 ? 1 : r.len, 1) : NULL;
    relay_byte_range *open = relay_calloc(n_spans == 0 ? 1 : n_spans, sizeof *open);
    r.n_open = join_spans(spans, n_spans, joined, open);
    r.open = open;
    r.text = n_spans == 1 ? spans[0].text : joined;

    code = encode_text(&r, opts->is_continuation);
    if (code == RELAY_OK)
        code = relay_post_processor_apply(t->post, enc, first, opts, r.text, (uint32_t)r.len, &r.values, e);

    relay_added_values_fini(&r.values);
    free(open);
    free(joined);
    return code;
}
