// A token's bytes are what it adds to the output in the middle of a text: its piece, through what each decoder does to
// one token wherever it stands. What a decoder does only at the ends of a text, or to neighbours, is not the token's.
//
//   byte-level pieces        raw bytes
//   METASPACE, REPLACE       their substitution (U+2581 by a space)
//   BPE                      the end-of-word suffix by a space
//   WORDPIECE                the prefix taken away, or a space before a piece without it
//
// So one vocabulary gives the same bytes whether a GGUF file wrote a space as U+2581, or a tokenizer.json as U+0120.
#include "tokenizer_svc/spec_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/byte_level.h"

typedef struct table_maker {
    const relay_tokenizer_spec *spec;
    bool is_byte_level, is_word_piece;
    relay_spec_str word_prefix; // of continuing word pieces
    relay_vocab_entry *tokens;
    uint32_t size;
    relay_buf bytes, a, b; // of all tokens; of one
} table_maker;

static bool has_suffix(const char *s, size_t len, relay_spec_str suffix) {
    return suffix.len > 0 && len >= suffix.len && memcmp(s + len - suffix.len, suffix.s, suffix.len) == 0;
}

static bool has_prefix(const char *s, size_t len, relay_spec_str prefix) {
    return len >= prefix.len && (prefix.len == 0 || memcmp(s, prefix.s, prefix.len) == 0);
}

// `from` by `to` throughout m->a.
static void substitute(table_maker *m, relay_spec_str from, const char *to, size_t to_len) {
    if (from.len == 0) return;
    relay_buf_clear(&m->b);
    for (size_t i = 0; i < m->a.len;) {
        if (has_prefix(m->a.data + i, m->a.len - i, from)) {
            relay_buf_append(&m->b, to, to_len);
            i += from.len;
        } else {
            relay_buf_putc(&m->b, m->a.data[i++]);
        }
    }
    relay_buf swap = m->a;
    m->a = m->b;
    m->b = swap;
}

static void apply_substitutions(table_maker *m) {
    for (uint32_t i = 0; i < m->spec->n_decoders; i++) {
        const relay_decoder_spec *d = &m->spec->decoders[i];
        if (d->kind == RELAY_DECODE_METASPACE)
            substitute(m, d->content, " ", 1);
        else if (d->kind == RELAY_DECODE_REPLACE && !d->pattern.is_regex)
            substitute(m, d->pattern.text, d->content.s, d->content.len);
    }
}

static void put_space_for_suffix(table_maker *m, relay_spec_str suffix) {
    if (!has_suffix(m->a.data, m->a.len, suffix)) return;
    m->a.len -= suffix.len;
    relay_buf_putc(&m->a, ' ');
}

// Leaves in m->a what the piece adds to the output.
static void decode_normal(table_maker *m, relay_vocab_entry *t, relay_spec_str piece) {
    relay_buf_clear(&m->a);
    if (m->is_word_piece) {
        bool goes_on = m->word_prefix.len > 0 && has_prefix(piece.s, piece.len, m->word_prefix);
        if (!goes_on) relay_buf_putc(&m->a, ' ');
        size_t cut = goes_on ? m->word_prefix.len : 0;
        relay_buf_append(&m->a, piece.s + cut, piece.len - cut);
        return;
    }
    relay_buf_append(&m->a, piece.s, piece.len);
    if (m->is_byte_level && piece.len > 0) {
        // A piece that is not of the alphabet stands for itself, and no text leads to it.
        size_t n;
        t->is_unreachable = !relay_byte_level_decode(piece.s, piece.len, m->a.data, &n);
        if (t->is_unreachable)
            memcpy(m->a.data, piece.s, piece.len);
        else
            m->a.len = n;
        return;
    }
    put_space_for_suffix(m, m->spec->model.end_of_word_suffix);
    apply_substitutions(m);
}

static relay_code set_token(table_maker *m, uint32_t id, relay_spec_str piece, relay_token_kind kind, relay_err *e) {
    if (piece.len > RELAY_VOCAB_MAX_TOKEN_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocabulary: token %u has %u bytes; it may have %d", id, piece.len,
                          RELAY_VOCAB_MAX_TOKEN_BYTES);
    relay_vocab_entry *t = &m->tokens[id];
    *t = (relay_vocab_entry){.kind = kind};
    int byte = kind == RELAY_TOKEN_BYTE ? relay_vocab_byte_of_name(piece.s, piece.len) : -1;
    relay_buf_clear(&m->a);
    if (kind == RELAY_TOKEN_NORMAL) {
        decode_normal(m, t, piece);
    } else if (byte >= 0) {
        relay_buf_putc(&m->a, (char)byte);
    } else {
        relay_buf_append(&m->a, piece.s, piece.len);
        if (kind == RELAY_TOKEN_USER && !m->is_byte_level) apply_substitutions(m);
    }
    t->len = (uint32_t)m->a.len;
    relay_buf_append(&m->bytes, m->a.data, m->a.len);
    return RELAY_OK;
}

// The kind of a model's token that is no added one.
static relay_token_kind kind_in_model(const relay_tokenizer_spec *spec, uint32_t id) {
    const relay_model_spec *model = &spec->model;
    const relay_model_token *t = &model->tokens[id];
    if (t->kind != RELAY_TOKEN_NORMAL) return t->kind;
    if (model->has_unk && model->unk_id == id) return RELAY_TOKEN_UNKNOWN;
    bool is_byte = model->byte_fallback && relay_vocab_byte_of_name(t->piece.s, t->piece.len) >= 0;
    return is_byte ? RELAY_TOKEN_BYTE : RELAY_TOKEN_NORMAL;
}

static relay_code set_tokens(table_maker *m, const relay_added_token *const *added_of, relay_err *e) {
    const relay_model_spec *model = &m->spec->model;
    for (uint32_t id = 0; id < m->size; id++) {
        const relay_added_token *added = added_of[id];
        relay_code code = RELAY_OK;
        if (added != NULL) {
            bool is_unk = !added->special && id < model->n_tokens && model->tokens[id].kind == RELAY_TOKEN_UNKNOWN;
            relay_token_kind kind = added->special ? RELAY_TOKEN_CONTROL : RELAY_TOKEN_USER;
            code = set_token(m, id, added->content, is_unk ? RELAY_TOKEN_UNKNOWN : kind, e);
        } else if (id < model->n_tokens && model->tokens[id].piece.s != NULL) {
            code = set_token(m, id, model->tokens[id].piece, kind_in_model(m->spec, id), e);
        } else {
            m->tokens[id] = (relay_vocab_entry){.kind = RELAY_TOKEN_PADDING};
        }
        if (code != RELAY_OK) return code;
    }
    const char *at = m->bytes.data;
    for (uint32_t id = 0; id < m->size; id++) {
        m->tokens[id].bytes = at;
        if (m->tokens[id].len > 0) at += m->tokens[id].len;
    }
    return RELAY_OK;
}

static relay_code find_size(table_maker *m, relay_err *e) {
    const relay_tokenizer_spec *spec = m->spec;
    m->size = spec->n_ids > spec->model.n_tokens ? spec->n_ids : spec->model.n_tokens;
    for (uint32_t i = 0; i < spec->n_added; i++) {
        uint32_t id = spec->added[i].id;
        if (id >= RELAY_VOCAB_MAX_TOKENS)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocabulary: added token %u has id %u; ids are below %d", i,
                              id, RELAY_VOCAB_MAX_TOKENS);
        if (id >= m->size) m->size = id + 1;
    }
    if (m->size > RELAY_VOCAB_MAX_TOKENS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "vocabulary: %u tokens; it must have 1 to %d", m->size,
                          RELAY_VOCAB_MAX_TOKENS);
    return RELAY_OK;
}

static void find_shape(table_maker *m) {
    const relay_tokenizer_spec *spec = m->spec;
    m->is_byte_level = spec->model.byte_alphabet;
    // Ranks are of raw bytes unless the pieces are said to be in the alphabet.
    bool is_raw = spec->model.kind == RELAY_MODEL_BPE && spec->model.order == RELAY_BPE_BY_RANK;
    for (uint32_t i = 0; i < spec->n_decoders && !is_raw; i++)
        m->is_byte_level |= spec->decoders[i].kind == RELAY_DECODE_BYTE_LEVEL;
    m->is_word_piece = spec->model.kind == RELAY_MODEL_WORDPIECE;
    m->word_prefix = spec->model.continuing_subword_prefix;
    for (uint32_t i = 0; i < spec->n_decoders; i++) {
        if (spec->decoders[i].kind != RELAY_DECODE_WORDPIECE) continue;
        m->is_word_piece = true;
        m->word_prefix = spec->decoders[i].content;
    }
}

relay_code relay_vocab_create_from_spec(relay_vocab **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    table_maker m = {.spec = spec};
    relay_buf_init(&m.bytes, SIZE_MAX / 2); // bounded by the pieces that they are made of
    relay_buf_init(&m.a, SIZE_MAX / 2);
    relay_buf_init(&m.b, SIZE_MAX / 2);
    relay_code code = find_size(&m, e);
    if (code != RELAY_OK) return code;
    find_shape(&m);
    m.tokens = relay_calloc(m.size, sizeof *m.tokens);
    const relay_added_token **added_of = relay_calloc(m.size, sizeof *added_of);
    for (uint32_t i = 0; i < spec->n_added; i++)
        added_of[spec->added[i].id] = &spec->added[i];
    code = set_tokens(&m, added_of, e);

    uint32_t n_ends = spec->n_end_ids + spec->eos.is_set;
    uint32_t *ends = relay_calloc(n_ends, sizeof *ends);
    if (spec->n_end_ids > 0) memcpy(ends, spec->end_ids, spec->n_end_ids * sizeof *ends);
    if (spec->eos.is_set) ends[n_ends - 1] = spec->eos.id;
    relay_vocab_table table = {.tokens = m.tokens,
                               .size = m.size,
                               .bos = spec->bos,
                               .unk = spec->unk,
                               .pad = spec->pad,
                               .end_ids = ends,
                               .n_end_ids = n_ends};
    if (code == RELAY_OK) code = relay_vocab_create(out, &table, e);
    free(ends);
    free(added_of);
    free(m.tokens);
    relay_buf_fini(&m.bytes);
    relay_buf_fini(&m.a);
    relay_buf_fini(&m.b);
    return code;
}
