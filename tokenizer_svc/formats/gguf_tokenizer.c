// A GGUF file has a vocabulary with a type a token, merges or scores, special ids, and a name or two for all the rest:
// tokenizer.ggml.model for the family, tokenizer.ggml.pre for how words are split. What the names stand for is here and
// in gguf_pre.c:
//
//   gpt2    byte-level BPE by merges
//   llama   SentencePiece BPE: U+2581 for spaces, the highest score first, bytes for what has no piece
//   gemma4  the same pieces, joined by merges
//   t5      SentencePiece Unigram, with its precompiled map of characters
//   bert    WordPiece, its pieces marked at the beginning of a word (U+2581) and not at its inside ("##")
//
// Where the file leaves a setting out, the default is llama.cpp's (src/llama-vocab.cpp), whose format it is.
#include "tokenizer_svc/formats/gguf_tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer_svc/formats/gguf_pre.h"
#include "tokenizer_svc/formats/piece_index.h"
#include "tokenizer_svc/formats/spec_build.h"

#define TOKENS   "tokenizer.ggml.tokens"
#define TYPES    "tokenizer.ggml.token_type"
#define SCORES   "tokenizer.ggml.scores"
#define MERGES   "tokenizer.ggml.merges"
#define PRE      "tokenizer.ggml.pre"
#define CHARSMAP "tokenizer.ggml.precompiled_charsmap"
#define TEMPLATE "tokenizer.chat_template"

enum {
    MAX_MERGES = 1 << 23,
    MAX_CHARSMAP_BYTES = 1 << 24,
    MAX_TEMPLATES = 64,
    MAX_TEMPLATE_NAME = 64,
};

typedef struct reader reader;

typedef struct family {
    const char *name;
    relay_model_kind model;
    bool adds_bos, adds_eos; // where the file does not say
    bool has_scores;
    relay_code (*read_rest)(reader *r, relay_err *e); // what only this family has
} family;

struct reader {
    const relay_gguf *g;
    relay_tokenizer_spec *spec;
    const family *family;
    const relay_gguf_pre *pre; // of gpt2
    relay_piece_index index;
};

// ---- Tokens

static relay_code check_counts(reader *r, uint64_t *n_bytes, relay_err *e) {
    uint64_t n_tokens, n_types, n_scores;
    bool has_scores;
    relay_code code = relay_gguf_string_array(r->g, TOKENS, &n_tokens, NULL, e);
    if (code == RELAY_OK) code = relay_gguf_number_array(r->g, TYPES, &n_types, NULL, e);
    if (code == RELAY_OK) code = relay_gguf_number_array(r->g, SCORES, &n_scores, &has_scores, e);
    if (code != RELAY_OK) return code;
    if (n_tokens == 0 || n_tokens > RELAY_SPEC_MAX_TOKENS)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" TOKENS "\" has %" PRIu64 " tokens; it must have 1 to %d",
                          n_tokens, RELAY_SPEC_MAX_TOKENS);
    if (n_types != n_tokens)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" TYPES "\" has %" PRIu64 " entries for %" PRIu64 " tokens",
                          n_types, n_tokens);
    if (r->family->has_scores && n_scores != n_tokens)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" SCORES "\" has %" PRIu64 " entries for %" PRIu64 " tokens", n_scores, n_tokens);
    r->spec->model.n_tokens = r->spec->n_ids = (uint32_t)n_tokens;
    *n_bytes = 0;
    for (uint64_t id = 0; id < n_tokens; id++) {
        const char *s;
        size_t len;
        relay_gguf_string_at(r->g, TOKENS, id, &s, &len);
        *n_bytes += len;
    }
    return RELAY_OK;
}

static relay_code check_token(const char *piece, size_t len, double type, relay_token_kind kind, uint32_t id,
                              relay_err *e) {
    if (kind == 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" TYPES "\"[%u] is %.15g; it must be 1 to 6", id, type);
    if (kind != RELAY_TOKEN_PADDING && (len == 0 || len > RELAY_SPEC_MAX_TOKEN_BYTES))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" TOKENS "\"[%u] has %zu bytes; it must have 1 to %d", id,
                          len, RELAY_SPEC_MAX_TOKEN_BYTES);
    if (kind == RELAY_TOKEN_BYTE && relay_vocab_byte_of_name(piece, len) < 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" TOKENS "\"[%u]: the byte token is \"%.*s\"; it must be of the form <0x0A>", id,
                          relay_spec_shown(len), piece);
    return RELAY_OK;
}

static relay_code read_tokens(reader *r, relay_err *e) {
    relay_tokenizer_spec *spec = r->spec;
    uint64_t n_bytes = 0;
    relay_code code = check_counts(r, &n_bytes, e);
    if (code != RELAY_OK) return code;
    relay_model_spec *m = &spec->model;
    m->tokens = relay_spec_alloc(spec, m->n_tokens, sizeof *m->tokens);
    char *out = relay_spec_alloc(spec, n_bytes + 1, 1);
    relay_piece_index_init(&r->index, m->tokens, m->n_tokens);
    for (uint32_t id = 0; id < m->n_tokens; id++) {
        const char *piece;
        size_t len;
        relay_gguf_string_at(r->g, TOKENS, id, &piece, &len);
        double type = relay_gguf_number_at(r->g, TYPES, id);
        relay_token_kind kind = relay_vocab_gguf_kind(type, piece, len, id);
        code = check_token(piece, len, type, kind, id, e);
        if (code != RELAY_OK) return code;
        m->tokens[id].kind = kind;
        if (kind == RELAY_TOKEN_PADDING) continue;
        memcpy(out, piece, len);
        m->tokens[id].piece = (relay_spec_str){.s = out, .len = (uint32_t)len};
        out += len;
        uint32_t before = relay_piece_index_add(&r->index, id);
        if (before != RELAY_PIECE_NONE)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" TOKENS "\"[%u] is \"%.*s\", as [%u] is", id,
                              relay_spec_shown(len), piece, before);
        if (!r->family->has_scores) continue;
        double score = relay_gguf_number_at(r->g, SCORES, id);
        if (!isfinite(score))
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" SCORES "\"[%u] is no finite number", id);
        m->tokens[id].score = score;
    }
    return RELAY_OK;
}

// Names that are matched whole in the text. Unknown tokens are such names, too: with "<unk>" in a template comes the
// token.
static void add_added(reader *r) {
    relay_model_spec *m = &r->spec->model;
    for (uint32_t id = 0; id < m->n_tokens; id++) {
        relay_token_kind kind = m->tokens[id].kind;
        bool special = kind == RELAY_TOKEN_CONTROL || kind == RELAY_TOKEN_UNKNOWN;
        if (special || kind == RELAY_TOKEN_USER) relay_spec_add_token(r->spec, m->tokens[id].piece, id, special);
    }
}

// ---- Merges

static relay_code check_merge(const relay_written_merge *w, const relay_merge_spec *m, uint64_t i, relay_err *e) {
    const relay_spec_str *none = m->left == RELAY_PIECE_NONE    ? &w->left
                                 : m->right == RELAY_PIECE_NONE ? &w->right
                                                                : NULL;
    if (none != NULL)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" MERGES "\"[%" PRIu64 "]: \"%.*s\" is no token", i,
                          relay_spec_shown(none->len), none->s);
    if (m->result == RELAY_PIECE_NONE)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" MERGES "\"[%" PRIu64 "]: \"%.*s\" and \"%.*s\" joined is no token", i,
                          relay_spec_shown(w->left.len), w->left.s, relay_spec_shown(w->right.len), w->right.s);
    return RELAY_OK;
}

// "left right": the space is the first behind the first character, for a piece may begin with one.
static relay_code split_merge(const reader *r, uint64_t i, relay_written_merge *w, relay_err *e) {
    const char *s;
    size_t len;
    relay_gguf_string_at(r->g, MERGES, i, &s, &len);
    const char *space = len < 3 ? NULL : memchr(s + 1, ' ', len - 2);
    if (space == NULL || len > RELAY_SPEC_MAX_TOKEN_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" MERGES "\"[%" PRIu64
                          "] is \"%.*s\"; it must be two pieces with a space between them",
                          i, relay_spec_shown(len), s);
    size_t left = (size_t)(space - s);
    w->left = (relay_spec_str){.s = s, .len = (uint32_t)left};
    w->right = (relay_spec_str){.s = space + 1, .len = (uint32_t)(len - left - 1)};
    return RELAY_OK;
}

static relay_code read_merges(reader *r, relay_err *e) {
    uint64_t n;
    bool found;
    relay_code code = relay_gguf_string_array(r->g, MERGES, &n, &found, e);
    if (code != RELAY_OK) return code;
    if (!found) return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" MERGES "\" is missing");
    if (n > MAX_MERGES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" MERGES "\" has %" PRIu64 " entries; it may have %d", n,
                          MAX_MERGES);
    relay_model_spec *m = &r->spec->model;
    m->merges = relay_spec_alloc(r->spec, n, sizeof *m->merges);
    m->n_merges = (uint32_t)n;
    relay_written_merge written[RELAY_MERGE_BATCH];
    for (uint64_t begin = 0; begin < n; begin += RELAY_MERGE_BATCH) {
        uint32_t batch = n - begin < RELAY_MERGE_BATCH ? (uint32_t)(n - begin) : RELAY_MERGE_BATCH;
        for (uint32_t i = 0; i < batch && code == RELAY_OK; i++)
            code = split_merge(r, begin + i, &written[i], e);
        if (code != RELAY_OK) return code;
        relay_piece_index_find_merges(&r->index, written, batch, 0, &m->merges[begin]);
        for (uint32_t i = 0; i < batch && code == RELAY_OK; i++)
            code = check_merge(&written[i], &m->merges[begin + i], begin + i, e);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

// ---- Families

static relay_code get_bool(const reader *r, const char *key, bool *value, relay_err *e) {
    return relay_gguf_bool(r->g, key, value, NULL, e);
}

static relay_code read_pre(reader *r, relay_err *e) {
    const char *name;
    size_t len;
    bool found;
    relay_code code = relay_gguf_string(r->g, PRE, &name, &len, &found, e);
    if (code != RELAY_OK) return code;
    if (!found)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"" PRE "\" is missing: the file does not say how text is split into words");
    r->pre = relay_gguf_pre_find(name, len);
    if (r->pre != NULL) return RELAY_OK;
    return relay_fail(e, RELAY_UNIMPLEMENTED, "key \"" PRE "\" is \"%.*s\", a pre-tokenizer Relay does not know",
                      relay_spec_shown(len), name);
}

static relay_code read_gpt2(reader *r, relay_err *e) {
    relay_tokenizer_spec *spec = r->spec;
    bool add_space_prefix = false;
    relay_code code = get_bool(r, "tokenizer.ggml.add_space_prefix", &add_space_prefix, e);
    if (code == RELAY_OK && add_space_prefix)
        code = relay_fail(e, RELAY_UNIMPLEMENTED,
                          "key \"tokenizer.ggml.add_space_prefix\" is true: Relay does not know this for \"gpt2\"");
    if (code == RELAY_OK) code = read_pre(r, e);
    if (code != RELAY_OK) return code;
    for (uint32_t i = 0; i < r->pre->n_stages; i++)
        *relay_spec_add_pretokenizer(spec, r->pre->stages[i].kind) = r->pre->stages[i];
    spec->model.byte_alphabet = spec->model.is_byte_level = true;
    spec->model.ignore_merges = r->pre->ignore_merges;
    relay_spec_add_decoder(spec, RELAY_DECODE_BYTE_LEVEL);
    add_added(r);
    if (r->pre->by_rank) {
        spec->model.order = RELAY_BPE_BY_RANK;
        return RELAY_OK;
    }
    return read_merges(r, e);
}

static relay_code read_llama(reader *r, relay_err *e) {
    relay_tokenizer_spec *spec = r->spec;
    bool prefix = true;
    relay_code code = get_bool(r, "tokenizer.ggml.add_space_prefix", &prefix, e);
    if (code == RELAY_OK) code = relay_spec_find_byte_fallback(spec, "key \"" TOKENS "\"", e);
    if (code != RELAY_OK) return code;
    spec->model.order = RELAY_BPE_BY_SCORE;
    spec->model.fuse_unk = true;
    relay_spec_add_space_normalizers(spec, prefix);
    relay_spec_add_space_decoders(spec, prefix, spec->model.byte_fallback);
    add_added(r);
    return RELAY_OK;
}

static relay_code read_gemma4(reader *r, relay_err *e) {
    relay_tokenizer_spec *spec = r->spec;
    bool prefix = false;
    relay_code code = get_bool(r, "tokenizer.ggml.add_space_prefix", &prefix, e);
    if (code == RELAY_OK) code = relay_spec_find_byte_fallback(spec, "key \"" TOKENS "\"", e);
    if (code != RELAY_OK) return code;
    spec->model.fuse_unk = true;
    relay_spec_add_space_normalizers(spec, prefix);
    relay_spec_add_space_decoders(spec, prefix, spec->model.byte_fallback);
    add_added(r);
    return read_merges(r, e);
}

static relay_code read_charsmap(reader *r, relay_err *e) {
    uint64_t n;
    bool found;
    relay_code code = relay_gguf_number_array(r->g, CHARSMAP, &n, &found, e);
    if (code != RELAY_OK || n == 0) return code;
    if (n > MAX_CHARSMAP_BYTES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" CHARSMAP "\" has %" PRIu64 " bytes; it may have %d", n,
                          MAX_CHARSMAP_BYTES);
    char *map = relay_spec_alloc(r->spec, n, 1);
    for (uint64_t i = 0; i < n; i++) {
        double v = relay_gguf_number_at(r->g, CHARSMAP, i); // of int8 or uint8
        if (!(v >= -128 && v <= 255 && v == floor(v)))
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"" CHARSMAP "\"[%" PRIu64 "] is %.15g, which is no byte",
                              i, v);
        map[i] = (char)(uint8_t)(int)v;
    }
    relay_normalizer_spec *stage = relay_spec_add_normalizer(r->spec, RELAY_NORMALIZE_PRECOMPILED);
    stage->content = (relay_spec_str){.s = map, .len = (uint32_t)n};
    stage->by_longest_prefix = true;
    return RELAY_OK;
}

static relay_code read_t5(reader *r, relay_err *e) {
    relay_tokenizer_spec *spec = r->spec;
    bool prefix = false, remove_spaces = false;
    relay_code code = read_charsmap(r, e);
    if (code == RELAY_OK) code = get_bool(r, "tokenizer.ggml.add_space_prefix", &prefix, e);
    if (code == RELAY_OK) code = get_bool(r, "tokenizer.ggml.remove_extra_whitespaces", &remove_spaces, e);
    if (code == RELAY_OK) code = relay_spec_find_byte_fallback(spec, "key \"" TOKENS "\"", e);
    if (code != RELAY_OK) return code;
    if (!spec->unk.is_set)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.unknown_token_id\" is missing");
    spec->model.fuse_unk = spec->model.is_sentencepiece = true;
    if (remove_spaces) relay_spec_add_normalizer(spec, RELAY_NORMALIZE_EXTRA_WHITESPACE);
    relay_spec_add_space_normalizers(spec, prefix);
    relay_spec_add_space_decoders(spec, prefix, spec->model.byte_fallback);
    add_added(r);
    return RELAY_OK;
}

// Pieces at the beginning of a word have U+2581 before them, those inside have none, and names in brackets are as they
// are: llama.cpp's converter made them so out of "word" and "##inside".
static void restore_wordpieces(reader *r) {
    relay_model_spec *m = &r->spec->model;
    const size_t mark = sizeof RELAY_SPEC_SPACE - 1;
    for (uint32_t id = 0; id < m->n_tokens; id++) {
        relay_spec_str *p = &m->tokens[id].piece;
        if (m->tokens[id].kind != RELAY_TOKEN_NORMAL || (p->len > 1 && p->s[0] == '[' && p->s[p->len - 1] == ']'))
            continue;
        if (p->len > mark && memcmp(p->s, RELAY_SPEC_SPACE, mark) == 0) {
            *p = (relay_spec_str){.s = p->s + mark, .len = p->len - (uint32_t)mark};
        } else {
            char *s = relay_spec_alloc(r->spec, (uint64_t)p->len + 3, 1);
            memcpy(s, "##", 2);
            memcpy(s + 2, p->s, p->len);
            *p = (relay_spec_str){.s = s, .len = p->len + 2};
        }
    }
}

static relay_code read_bert(reader *r, relay_err *e) {
    relay_tokenizer_spec *spec = r->spec;
    bool lowercase = true, strip_accents;
    relay_code code = get_bool(r, "tokenizer.ggml.normalizer.lowercase", &lowercase, e);
    strip_accents = lowercase;
    if (code == RELAY_OK) code = get_bool(r, "tokenizer.ggml.normalizer.strip_accents", &strip_accents, e);
    if (code != RELAY_OK) return code;
    if (!spec->unk.is_set)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.unknown_token_id\" is missing");
    restore_wordpieces(r);
    relay_normalizer_spec *n = relay_spec_add_normalizer(spec, RELAY_NORMALIZE_BERT);
    n->clean_text = n->handle_chinese_chars = true;
    n->lowercase = lowercase;
    n->strip_accents = strip_accents;
    relay_spec_set_wordpiece(spec);
    add_added(r);
    return RELAY_OK;
}

static const family families[] = {
    {"gpt2", RELAY_MODEL_BPE, false, false, false, read_gpt2},
    {"llama", RELAY_MODEL_BPE, true, false, true, read_llama},
    {"gemma4", RELAY_MODEL_BPE, true, false, false, read_gemma4},
    {"t5", RELAY_MODEL_UNIGRAM, false, true, true, read_t5},
    {"bert", RELAY_MODEL_WORDPIECE, true, true, false, read_bert},
};

static relay_code read_family(reader *r, relay_err *e) {
    const char *name;
    size_t len;
    bool found;
    relay_code code = relay_gguf_string(r->g, "tokenizer.ggml.model", &name, &len, &found, e);
    if (code != RELAY_OK) return code;
    if (!found) return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"tokenizer.ggml.model\" is missing");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strlen(families[i].name) == len && memcmp(families[i].name, name, len) == 0) r->family = &families[i];
    if (r->family != NULL) return RELAY_OK;
    return relay_fail(e, RELAY_UNIMPLEMENTED,
                      "key \"tokenizer.ggml.model\" is \"%.*s\"; Relay knows gpt2, llama, gemma4, t5 and bert",
                      relay_spec_shown(len), name);
}

// ---- Special ids

static relay_code get_id(const reader *r, const char *key, relay_special_id *id, relay_err *e) {
    uint64_t v = 0;
    relay_code code = relay_gguf_u64(r->g, key, 0, r->spec->n_ids - 1, &v, &id->is_set, e);
    if (code == RELAY_OK && id->is_set && r->spec->model.tokens[v].kind == RELAY_TOKEN_PADDING &&
        r->spec->model.tokens[v].piece.s == NULL)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"%s\" is %" PRIu64 ", which is no token but padding", key,
                          v);
    id->id = (uint32_t)v;
    return code;
}

static relay_code read_ids(reader *r, relay_err *e) {
    relay_tokenizer_spec *s = r->spec;
    const struct {
        const char *key;
        relay_special_id *id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &s->bos},       {"tokenizer.ggml.eos_token_id", &s->eos},
        {"tokenizer.ggml.unknown_token_id", &s->unk},   {"tokenizer.ggml.padding_token_id", &s->pad},
        {"tokenizer.ggml.seperator_token_id", &s->sep}, // so is the format's spelling
        {"tokenizer.ggml.cls_token_id", &s->cls},       {"tokenizer.ggml.mask_token_id", &s->mask},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        relay_code code = get_id(r, ids[i].key, ids[i].id, e);
        if (code != RELAY_OK) return code;
    }
    relay_special_id ends[2];
    relay_code code = get_id(r, "tokenizer.ggml.eot_token_id", &ends[0], e);
    if (code == RELAY_OK) code = get_id(r, "tokenizer.ggml.eom_token_id", &ends[1], e);
    if (code != RELAY_OK) return code;
    s->end_ids = relay_spec_alloc(s, 2, sizeof *s->end_ids);
    for (int i = 0; i < 2; i++)
        if (ends[i].is_set) s->end_ids[s->n_end_ids++] = ends[i].id;
    return RELAY_OK;
}

// The unknown token: what the key says, else the first token of that type. Families but gpt2 use it.
static void find_unknown(reader *r) {
    relay_tokenizer_spec *s = r->spec;
    for (uint32_t id = 0; id < s->model.n_tokens && !s->unk.is_set && r->family->has_scores; id++)
        if (s->model.tokens[id].kind == RELAY_TOKEN_UNKNOWN) s->unk = (relay_special_id){true, id};
    s->model.has_unk = s->unk.is_set && r->family->read_rest != read_gpt2;
    s->model.unk_id = s->unk.id;
}

static relay_code missing_id(const char *what, const char *key, relay_err *e) {
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is to be added, and key \"%s\" is missing", what, key);
}

// What stands around a text: BERT has [CLS] and [SEP] in their places.
static relay_code read_post(reader *r, relay_err *e) {
    relay_tokenizer_spec *s = r->spec;
    s->add_bos = r->pre != NULL ? r->pre->adds_bos : r->family->adds_bos;
    s->add_eos = r->family->adds_eos;
    bool is_bert = r->family->model == RELAY_MODEL_WORDPIECE;
    relay_code code = get_bool(r, "tokenizer.ggml.add_bos_token", &s->add_bos, e);
    if (code == RELAY_OK)
        code = get_bool(r, is_bert ? "tokenizer.ggml.add_sep_token" : "tokenizer.ggml.add_eos_token", &s->add_eos, e);
    if (code != RELAY_OK) return code;
    relay_special_id first = is_bert && s->cls.is_set ? s->cls : s->bos, last = is_bert ? s->sep : s->eos;
    if (s->add_bos && !first.is_set)
        return missing_id("a BOS token", is_bert ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id", e);
    if (s->add_eos && !last.is_set)
        return is_bert ? missing_id("a separator", "tokenizer.ggml.seperator_token_id", e)
                       : missing_id("an EOS token", "tokenizer.ggml.eos_token_id", e);
    first.is_set = s->add_bos;
    last.is_set = s->add_eos;
    relay_spec_set_post(s, first, last);
    return RELAY_OK;
}

// ---- Chat templates

static relay_code add_template(reader *r, const char *key, relay_spec_str name, relay_err *e) {
    const char *source;
    size_t len;
    bool found;
    relay_code code = relay_gguf_string(r->g, key, &source, &len, &found, e);
    if (code != RELAY_OK || !found) return code;
    r->spec->templates[r->spec->n_templates++] =
        (relay_named_template){.name = name, .source = relay_spec_copy(r->spec, source, len)};
    return RELAY_OK;
}

// The default one, and those that tokenizer.chat_templates names.
static relay_code read_templates(reader *r, relay_err *e) {
    uint64_t n;
    relay_code code = relay_gguf_string_array(r->g, "tokenizer.chat_templates", &n, NULL, e);
    if (code != RELAY_OK) return code;
    if (n > MAX_TEMPLATES)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"tokenizer.chat_templates\" has %" PRIu64 " entries; it may have %d", n, MAX_TEMPLATES);
    r->spec->templates = relay_spec_alloc(r->spec, n + 1, sizeof *r->spec->templates);
    code = add_template(r, TEMPLATE, RELAY_SPEC_STR("default"), e);
    for (uint64_t i = 0; i < n && code == RELAY_OK; i++) {
        const char *name;
        size_t len;
        relay_gguf_string_at(r->g, "tokenizer.chat_templates", i, &name, &len);
        if (len == 0 || len > MAX_TEMPLATE_NAME || memchr(name, 0, len) != NULL)
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "key \"tokenizer.chat_templates\"[%" PRIu64 "] must be a name of 1 to %d bytes", i,
                              MAX_TEMPLATE_NAME);
        char key[sizeof TEMPLATE + 1 + MAX_TEMPLATE_NAME];
        snprintf(key, sizeof key, TEMPLATE ".%.*s", (int)len, name);
        code = add_template(r, key, relay_spec_copy(r->spec, name, len), e);
    }
    return code;
}

static relay_code read_name(reader *r, relay_err *e) {
    const char *s;
    size_t len;
    bool found;
    relay_code code = relay_gguf_string(r->g, "general.name", &s, &len, &found, e);
    if (code == RELAY_OK && found) r->spec->name = relay_spec_copy(r->spec, s, len);
    return code;
}

relay_code relay_gguf_tokenizer_read(relay_tokenizer_spec *spec, const relay_gguf *g, relay_err *e) {
    reader r = {.g = g, .spec = spec};
    spec->format = "GGUF";
    relay_code code = read_family(&r, e);
    if (code == RELAY_OK) {
        spec->model.kind = r.family->model;
        code = read_tokens(&r, e);
    }
    if (code == RELAY_OK) code = read_ids(&r, e);
    if (code == RELAY_OK) {
        find_unknown(&r);
        code = r.family->read_rest(&r, e);
    }
    if (code == RELAY_OK) code = read_post(&r, e);
    if (code == RELAY_OK) code = read_templates(&r, e);
    if (code == RELAY_OK) code = read_name(&r, e);
    relay_piece_index_fini(&r.index);
    return code;
}
