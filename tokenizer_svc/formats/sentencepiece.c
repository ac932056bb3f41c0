// ModelProto is read by hand (common/pb_wire): three of its messages matter, and of these some twenty fields.
//
//   pieces           [{piece, score, type}], whose place is the id
//   trainer_spec     the kind of model, byte fallback, on which side of a word its space is, names of special pieces
//   normalizer_spec  the precompiled map of characters, what happens to spaces
//
// The four kinds of models in the terms of a specification:
//
//   Unigram   Unigram over the whole text, which SentencePiece does not split into words
//   BPE       any two neighbours whose concatenation is a piece, the highest score first
//   char      the same; no piece has two characters
//   word      words that begin (or end) with U+2581, each looked up as a whole
//
// A user-defined piece stays in the model (RELAY_TOKEN_USER): it is matched in the normalized text before all others.
// Nothing is put around a text: SentencePiece has no such setting, its callers ask for each text.
#include "tokenizer_svc/formats/sentencepiece.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/pb_wire.h"
#include "common/utf8.h"
#include "tokenizer_svc/formats/piece_index.h"
#include "tokenizer_svc/formats/spec_build.h"

// Field numbers of sentencepiece_model.proto.
enum { MODEL_PIECES = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3, MODEL_DENORMALIZER = 5 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum {
    TRAINER_MODEL_TYPE = 3,
    TRAINER_WHITESPACE_AS_SUFFIX = 24,
    TRAINER_BYTE_FALLBACK = 35,
    TRAINER_BOS_PIECE = 46,
    TRAINER_EOS_PIECE = 47,
    TRAINER_PAD_PIECE = 48,
};
enum { NORMALIZER_CHARSMAP = 2, NORMALIZER_DUMMY_PREFIX = 3, NORMALIZER_EXTRA_WHITESPACES = 4, NORMALIZER_ESCAPE = 5 };

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };
enum { UNIGRAM = 1, BPE, WORD, CHAR };

typedef struct model_proto {
    relay_tokenizer_spec *spec;
    relay_piece_index index;
    uint64_t model_type;
    bool whitespace_as_suffix, byte_fallback;
    relay_spec_str bos, eos, pad; // names of pieces
    relay_spec_str charsmap;
    bool dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
} model_proto;

static relay_code malformed(const char *where, relay_err *e) {
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: malformed protobuf", where);
}

static relay_spec_str text_of(const relay_pb_field *f) {
    return (relay_spec_str){.s = (const char *)f->data, .len = (uint32_t)f->size};
}

// ---- Pieces

// The number of pieces, and that the file is well formed at its top.
static relay_code count_pieces(const void *data, size_t len, uint64_t *n, relay_err *e) {
    relay_pb_reader r = relay_pb_read(data, len);
    relay_pb_field f;
    *n = 0;
    while (relay_pb_next(&r, &f)) {
        if (f.is_bytes && f.size > UINT32_MAX) return malformed("model", e);
        *n += f.number == MODEL_PIECES;
    }
    if (r.is_failed) return malformed("model", e);
    if (*n == 0 || *n > RELAY_SPEC_MAX_TOKENS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces: there are %llu; there must be 1 to %d",
                          (unsigned long long)*n, RELAY_SPEC_MAX_TOKENS);
    return RELAY_OK;
}

// From a piece's type; 0 for a number that is none.
static relay_token_kind kind_of(uint64_t type) {
    static const relay_token_kind kinds[] = {
        [TYPE_NORMAL] = RELAY_TOKEN_NORMAL,   [TYPE_UNKNOWN] = RELAY_TOKEN_UNKNOWN,
        [TYPE_CONTROL] = RELAY_TOKEN_CONTROL, [TYPE_USER_DEFINED] = RELAY_TOKEN_USER,
        [TYPE_UNUSED] = RELAY_TOKEN_PADDING,  [TYPE_BYTE] = RELAY_TOKEN_BYTE,
    };
    return type < sizeof kinds / sizeof *kinds ? kinds[type] : 0;
}

static relay_code check_piece(const relay_model_token *t, uint32_t id, uint64_t type, relay_err *e) {
    if (t->piece.len == 0 || t->piece.len > RELAY_SPEC_MAX_TOKEN_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces[%u].piece has %u bytes; it must have 1 to %d", id,
                          t->piece.len, RELAY_SPEC_MAX_TOKEN_BYTES);
    if (!relay_utf8_is_valid(t->piece.s, t->piece.len))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces[%u].piece is not valid UTF-8", id);
    if (t->kind == 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces[%u].type is %llu; it must be 1 to %d", id,
                          (unsigned long long)type, TYPE_BYTE);
    if (!isfinite(t->score)) return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces[%u].score is no finite number", id);
    return RELAY_OK;
}

static relay_code read_piece(model_proto *p, uint32_t id, const relay_pb_field *message, relay_err *e) {
    relay_model_token *t = &p->spec->model.tokens[id];
    uint64_t type = TYPE_NORMAL;
    relay_pb_reader r = relay_pb_read(message->data, message->size);
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number == PIECE_TEXT && f.is_bytes) {
            t->piece = text_of(&f);
        } else if (f.number == PIECE_SCORE && !f.is_bytes) {
            uint32_t bits = (uint32_t)f.value;
            float score;
            memcpy(&score, &bits, sizeof score);
            t->score = (double)score;
        } else if (f.number == PIECE_TYPE && !f.is_bytes) {
            type = f.value;
        }
    }
    if (r.is_failed || !message->is_bytes)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces[%u]: malformed protobuf", id);
    t->kind = kind_of(type);
    relay_code code = check_piece(t, id, type, e);
    if (code != RELAY_OK) return code;
    uint32_t before = relay_piece_index_add(&p->index, id);
    if (before != RELAY_PIECE_NONE)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces[%u].piece is \"%.*s\", as that of pieces[%u] is", id,
                          relay_spec_shown(t->piece.len), t->piece.s, before);
    return RELAY_OK;
}

// ---- Settings

static relay_code read_trainer(model_proto *p, const relay_pb_field *message, relay_err *e) {
    relay_pb_reader r = relay_pb_read(message->data, message->size);
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.is_bytes) {
            if (f.number == TRAINER_BOS_PIECE) p->bos = text_of(&f);
            if (f.number == TRAINER_EOS_PIECE) p->eos = text_of(&f);
            if (f.number == TRAINER_PAD_PIECE) p->pad = text_of(&f);
            continue;
        }
        if (f.number == TRAINER_MODEL_TYPE) p->model_type = f.value;
        if (f.number == TRAINER_WHITESPACE_AS_SUFFIX) p->whitespace_as_suffix = f.value != 0;
        if (f.number == TRAINER_BYTE_FALLBACK) p->byte_fallback = f.value != 0;
    }
    if (r.is_failed) return malformed("trainer_spec", e);
    if (p->model_type < UNIGRAM || p->model_type > CHAR)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "trainer_spec.model_type is %llu; it must be 1 to %d",
                          (unsigned long long)p->model_type, CHAR);
    return RELAY_OK;
}

static relay_code read_normalizer(model_proto *p, const relay_pb_field *message, relay_err *e) {
    relay_pb_reader r = relay_pb_read(message->data, message->size);
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number == NORMALIZER_CHARSMAP && f.is_bytes) p->charsmap = text_of(&f);
        if (f.is_bytes) continue;
        if (f.number == NORMALIZER_DUMMY_PREFIX) p->dummy_prefix = f.value != 0;
        if (f.number == NORMALIZER_EXTRA_WHITESPACES) p->remove_extra_whitespaces = f.value != 0;
        if (f.number == NORMALIZER_ESCAPE) p->escape_whitespaces = f.value != 0;
    }
    return r.is_failed ? malformed("normalizer_spec", e) : RELAY_OK;
}

// A map back from characters to others, which no published model has.
static relay_code read_denormalizer(const relay_pb_field *message, relay_err *e) {
    relay_pb_reader r = relay_pb_read(message->data, message->size);
    relay_pb_field f;
    while (relay_pb_next(&r, &f))
        if (f.number == NORMALIZER_CHARSMAP && f.is_bytes && f.size > 0)
            return relay_fail(e, RELAY_UNIMPLEMENTED,
                              "denormalizer_spec.precompiled_charsmap: Relay does not map characters back");
    return r.is_failed ? malformed("denormalizer_spec", e) : RELAY_OK;
}

static relay_code read_message(model_proto *p, const void *data, size_t len, relay_err *e) {
    relay_pb_reader r = relay_pb_read(data, len);
    relay_pb_field f;
    uint32_t id = 0;
    relay_code code = RELAY_OK;
    while (code == RELAY_OK && relay_pb_next(&r, &f)) {
        if (f.number == MODEL_PIECES) {
            code = read_piece(p, id++, &f, e);
        } else if (f.is_bytes) {
            if (f.number == MODEL_TRAINER) code = read_trainer(p, &f, e);
            if (f.number == MODEL_NORMALIZER) code = read_normalizer(p, &f, e);
            if (f.number == MODEL_DENORMALIZER) code = read_denormalizer(&f, e);
        }
    }
    return code;
}

// ---- What it comes to

static relay_code find_unknown(model_proto *p, relay_err *e) {
    relay_model_spec *m = &p->spec->model;
    for (uint32_t id = 0; id < m->n_tokens; id++) {
        if (m->tokens[id].kind != RELAY_TOKEN_UNKNOWN) continue;
        if (m->has_unk)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces[%u] is of type unknown, as pieces[%u] is; one may be",
                              id, m->unk_id);
        m->has_unk = true;
        m->unk_id = id;
    }
    if (!m->has_unk) return relay_fail(e, RELAY_INVALID_ARGUMENT, "pieces: none is of type unknown");
    p->spec->unk = (relay_special_id){true, m->unk_id};
    return RELAY_OK;
}

// Ids that are not given in a text: takes their pieces out of the model. SentencePiece's BPE joins by way of unused
// pieces, and then takes them apart again.
static relay_code drop_unused(model_proto *p, relay_err *e) {
    relay_model_spec *m = &p->spec->model;
    for (uint32_t id = 0; id < m->n_tokens; id++) {
        relay_model_token *t = &m->tokens[id];
        if (t->kind != RELAY_TOKEN_PADDING) continue;
        if (p->model_type == BPE)
            return relay_fail(e, RELAY_UNIMPLEMENTED,
                              "pieces[%u] is of type unused, which Relay does not know in a BPE model", id);
        t->piece = (relay_spec_str){0};
    }
    return RELAY_OK;
}

static relay_special_id find_control(const model_proto *p, relay_spec_str name) {
    uint32_t id = relay_piece_index_find(&p->index, name.s, name.len);
    bool is_set = id != RELAY_PIECE_NONE && p->spec->model.tokens[id].kind == RELAY_TOKEN_CONTROL;
    return (relay_special_id){.is_set = is_set, .id = is_set ? id : 0};
}

static void add_special_names(model_proto *p) {
    relay_model_spec *m = &p->spec->model;
    for (uint32_t id = 0; id < m->n_tokens; id++)
        if (m->tokens[id].kind == RELAY_TOKEN_CONTROL || m->tokens[id].kind == RELAY_TOKEN_UNKNOWN)
            relay_spec_add_token(p->spec, m->tokens[id].piece, id, true);
}

static void set_normalizers(model_proto *p) {
    relay_tokenizer_spec *spec = p->spec;
    if (p->charsmap.len > 0) {
        relay_normalizer_spec *n = relay_spec_add_normalizer(spec, RELAY_NORMALIZE_PRECOMPILED);
        n->content = p->charsmap;
        n->by_longest_prefix = true;
    }
    if (p->remove_extra_whitespaces) relay_spec_add_normalizer(spec, RELAY_NORMALIZE_EXTRA_WHITESPACE);
    relay_spec_str space = p->escape_whitespaces ? RELAY_SPEC_STR(RELAY_SPEC_SPACE) : RELAY_SPEC_STR(" ");
    if (p->dummy_prefix)
        relay_spec_add_normalizer(spec, p->whitespace_as_suffix ? RELAY_NORMALIZE_APPEND : RELAY_NORMALIZE_PREPEND)
            ->content = space;
    if (p->escape_whitespaces) relay_spec_add_space_normalizers(spec, false);
}

static relay_code set_model(model_proto *p, relay_err *e) {
    relay_tokenizer_spec *spec = p->spec;
    relay_model_spec *m = &spec->model;
    m->fuse_unk = m->is_sentencepiece = true;
    if (p->byte_fallback) {
        relay_code code = relay_spec_find_byte_fallback(spec, "pieces", e);
        if (code == RELAY_OK && !m->byte_fallback)
            code = relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "trainer_spec.byte_fallback is true, and there are no byte pieces");
        if (code != RELAY_OK) return code;
    }
    if (p->model_type == UNIGRAM) {
        m->kind = RELAY_MODEL_UNIGRAM;
    } else if (p->model_type == WORD) {
        if (p->whitespace_as_suffix || !p->escape_whitespaces)
            return relay_fail(e, RELAY_UNIMPLEMENTED, "%s: Relay does not know this in a word model",
                              p->whitespace_as_suffix ? "trainer_spec.treat_whitespace_as_suffix is true"
                                                      : "normalizer_spec.escape_whitespaces is false");
        m->kind = RELAY_MODEL_WORDLEVEL;
        relay_pretokenizer_spec *words = relay_spec_add_pretokenizer(spec, RELAY_PRETOKENIZE_METASPACE);
        words->content = RELAY_SPEC_STR(RELAY_SPEC_SPACE);
        words->prepend_scheme = RELAY_PREPEND_NEVER;
        words->split = true;
    } else {
        m->kind = RELAY_MODEL_BPE;
        m->order = RELAY_BPE_BY_SCORE;
    }
    return RELAY_OK;
}

// SentencePiece takes the first space away where it put one there or would have taken it away; where it removes extra
// spaces, all at the beginning.
static void set_decoders(model_proto *p) {
    relay_tokenizer_spec *spec = p->spec;
    if (p->escape_whitespaces) {
        relay_spec_add_space_decoders(spec, p->dummy_prefix || p->remove_extra_whitespaces, spec->model.byte_fallback);
        if (p->remove_extra_whitespaces) spec->decoders[spec->n_decoders - 1].strip_begin = UINT32_MAX;
        return;
    }
    if (spec->model.byte_fallback) relay_spec_add_decoder(spec, RELAY_DECODE_BYTE_FALLBACK);
    relay_spec_add_decoder(spec, RELAY_DECODE_FUSE);
}

bool relay_sentencepiece_is(const void *data, size_t len) {
    // A piece (field 1, bytes) whose first field is its text (field 1, bytes).
    relay_pb_reader r = relay_pb_read(data, len);
    relay_pb_field f;
    if (!relay_pb_next(&r, &f) || f.number != MODEL_PIECES || !f.is_bytes) return false;
    r = relay_pb_read(f.data, f.size);
    return relay_pb_next(&r, &f) && f.number == PIECE_TEXT && f.is_bytes;
}

relay_code relay_sentencepiece_read(relay_tokenizer_spec *spec, const void *data, size_t len, relay_err *e) {
    model_proto p = {
        .spec = spec,
        .model_type = UNIGRAM,
        .bos = RELAY_SPEC_STR("<s>"),
        .eos = RELAY_SPEC_STR("</s>"),
        .pad = RELAY_SPEC_STR("<pad>"),
        .dummy_prefix = true,
        .remove_extra_whitespaces = true,
        .escape_whitespaces = true,
    };
    spec->format = "SentencePiece";
    uint64_t n;
    relay_code code = count_pieces(data, len, &n, e);
    if (code != RELAY_OK) return code;
    spec->n_ids = spec->model.n_tokens = (uint32_t)n;
    spec->model.tokens = relay_spec_alloc(spec, n, sizeof *spec->model.tokens);
    relay_piece_index_init(&p.index, spec->model.tokens, spec->model.n_tokens);
    code = read_message(&p, data, len, e);
    if (code == RELAY_OK) code = find_unknown(&p, e);
    if (code == RELAY_OK) {
        spec->bos = find_control(&p, p.bos);
        spec->eos = find_control(&p, p.eos);
        spec->pad = find_control(&p, p.pad);
        code = drop_unused(&p, e);
    }
    if (code == RELAY_OK) code = set_model(&p, e);
    if (code == RELAY_OK) {
        add_special_names(&p);
        set_normalizers(&p);
        set_decoders(&p);
    }
    relay_piece_index_fini(&p.index);
    return code;
}
