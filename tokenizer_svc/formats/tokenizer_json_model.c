// Pieces stay where the JSON reader has put them; what is made anew is the table by id, an index of pieces, and the
// merges as ids. A file from before types is known by its fields, as in the library.
#include "tokenizer_svc/formats/tokenizer_json_model.h"

#include <stdlib.h>
#include <string.h>

#include "common/byte_level.h"
#include "common/utf8.h"
#include "common/vocab.h"
#include "tokenizer_svc/formats/json_score.h"
#include "tokenizer_svc/formats/spec_build.h"

typedef struct reading {
    relay_tokenizer_spec *spec;
    const relay_json_object *o;
    relay_piece_index *index;
} reading;

// ---- Pieces

static relay_code bad_piece(const reading *r, relay_spec_str piece, const char *why) {
    return relay_json_refuse(r->o, RELAY_INVALID_ARGUMENT, "vocab", "\"%.*s\" %s", relay_spec_shown(piece.len), piece.s,
                             why);
}

static bool fits(yyjson_val *piece) {
    return yyjson_is_str(piece) && yyjson_get_len(piece) <= RELAY_SPEC_MAX_TOKEN_BYTES;
}

// {"piece": id}; ids may have holes.
static relay_code read_vocab_object(reading *r, uint32_t *n_pieces) {
    relay_model_spec *m = &r->spec->model;
    yyjson_val *vocab = yyjson_obj_get(r->o->v, "vocab"), *key, *value;
    if (!yyjson_is_obj(vocab))
        return relay_json_refuse(r->o, RELAY_INVALID_ARGUMENT, "vocab", "must be an object of pieces and ids");
    uint64_t max_id = 0;
    size_t i, n;
    yyjson_obj_foreach(vocab, i, n, key, value) {
        if (!yyjson_is_uint(value) || yyjson_get_uint(value) >= RELAY_SPEC_MAX_TOKENS || !fits(key)) {
            relay_spec_str piece = {yyjson_get_str(key), (uint32_t)yyjson_get_len(key)};
            return bad_piece(r, piece, "is too long or has no id below 4194304");
        }
        if (yyjson_get_uint(value) > max_id) max_id = yyjson_get_uint(value);
    }
    *n_pieces = (uint32_t)n;
    m->n_tokens = n == 0 ? 0 : (uint32_t)max_id + 1;
    m->tokens = relay_spec_alloc(r->spec, m->n_tokens + 1, sizeof *m->tokens);
    yyjson_obj_foreach(vocab, i, n, key, value) {
        relay_model_token *t = &m->tokens[yyjson_get_uint(value)];
        relay_spec_str piece = {yyjson_get_str(key), (uint32_t)yyjson_get_len(key)};
        if (t->piece.s != NULL) return bad_piece(r, piece, "has the id of another piece");
        *t = (relay_model_token){.piece = piece, .kind = RELAY_TOKEN_NORMAL};
    }
    return RELAY_OK;
}

// [["piece", score], ...] in the order of ids.
static relay_code read_vocab_list(reading *r, uint32_t *n_pieces) {
    relay_model_spec *m = &r->spec->model;
    yyjson_val *vocab, *entry;
    relay_code code = relay_json_array(r->o, "vocab", &vocab);
    if (code != RELAY_OK) return code;
    size_t i, n = yyjson_arr_size(vocab);
    if (n > RELAY_SPEC_MAX_TOKENS)
        return relay_json_refuse(r->o, RELAY_INVALID_ARGUMENT, "vocab", "has %zu pieces; at most %d are read", n,
                                 RELAY_SPEC_MAX_TOKENS);
    m->tokens = relay_spec_alloc(r->spec, n + 1, sizeof *m->tokens);
    *n_pieces = m->n_tokens = (uint32_t)n;
    yyjson_arr_foreach(vocab, i, n, entry) {
        yyjson_val *piece = yyjson_arr_get_first(entry), *score = yyjson_arr_get(entry, 1);
        if (yyjson_arr_size(entry) != 2 || !fits(piece) || !yyjson_is_num(score))
            return relay_json_refuse(r->o, RELAY_INVALID_ARGUMENT, "vocab", "[%zu] must be a piece and its score", i);
        m->tokens[i] = (relay_model_token){.piece = {yyjson_get_str(piece), (uint32_t)yyjson_get_len(piece)},
                                           .score = relay_json_score(score),
                                           .kind = RELAY_TOKEN_NORMAL};
    }
    return RELAY_OK;
}

static relay_code index_pieces(reading *r) {
    relay_model_spec *m = &r->spec->model;
    relay_piece_index_init(r->index, m->tokens, m->n_tokens);
    for (uint32_t id = 0; id < m->n_tokens; id++) {
        if (m->tokens[id].piece.s == NULL) continue;
        if (relay_piece_index_add(r->index, id) != RELAY_PIECE_NONE)
            return bad_piece(r, m->tokens[id].piece, "is there twice");
    }
    return RELAY_OK;
}

// Tokens that stand for one byte: <0x00> to <0xFF>.
static void mark_bytes(relay_model_spec *m) {
    for (uint32_t id = 0; id < m->n_tokens; id++)
        if (m->tokens[id].piece.s != NULL &&
            relay_vocab_byte_of_name(m->tokens[id].piece.s, m->tokens[id].piece.len) >= 0)
            m->tokens[id].kind = RELAY_TOKEN_BYTE;
}

// ---- The unknown token

static relay_code set_unk(reading *r, relay_spec_str unk) {
    relay_model_spec *m = &r->spec->model;
    if (unk.s == NULL) return RELAY_OK;
    uint32_t id = relay_piece_index_find(r->index, unk.s, unk.len);
    // The library looks for it only when it is needed; without it, what is unknown is an error there.
    if (id == RELAY_PIECE_NONE && m->byte_alphabet) return RELAY_OK; // every byte has a token
    if (id == RELAY_PIECE_NONE)
        return relay_json_refuse(r->o, RELAY_INVALID_ARGUMENT, "unk_token", "\"%.*s\" is no piece of the vocabulary",
                                 relay_spec_shown(unk.len), unk.s);
    m->has_unk = true;
    m->unk_id = id;
    m->tokens[id].kind = RELAY_TOKEN_UNKNOWN;
    return RELAY_OK;
}

// ---- BPE

// "a b", or ["a", "b"]. False where it is neither.
static bool read_merge(yyjson_val *v, relay_written_merge *out) {
    if (yyjson_is_arr(v)) {
        yyjson_val *left = yyjson_arr_get_first(v), *right = yyjson_arr_get(v, 1);
        if (yyjson_arr_size(v) != 2 || !fits(left) || !fits(right)) return false;
        out->left = (relay_spec_str){yyjson_get_str(left), (uint32_t)yyjson_get_len(left)};
        out->right = (relay_spec_str){yyjson_get_str(right), (uint32_t)yyjson_get_len(right)};
        return true;
    }
    if (!fits(v)) return false;
    const char *s = yyjson_get_str(v);
    size_t len = yyjson_get_len(v);
    const char *space = memchr(s, ' ', len);
    if (space == NULL || memchr(space + 1, ' ', len - (size_t)(space + 1 - s)) != NULL) return false;
    out->left = (relay_spec_str){s, (uint32_t)(space - s)};
    out->right = (relay_spec_str){space + 1, (uint32_t)(len - (size_t)(space + 1 - s))};
    return true;
}

static relay_code bad_merge(const reading *r, size_t i, const char *why) {
    return relay_json_refuse(r->o, RELAY_INVALID_ARGUMENT, "merges", "[%zu] %s", i, why);
}

static relay_code read_merges(reading *r) {
    relay_model_spec *m = &r->spec->model;
    yyjson_val *merges, *v;
    relay_code code = relay_json_array(r->o, "merges", &merges);
    if (code != RELAY_OK) return code;
    size_t n = yyjson_arr_size(merges);
    if (n > RELAY_SPEC_MAX_TOKENS) return bad_merge(r, RELAY_SPEC_MAX_TOKENS, "is one too many");
    m->merges = relay_spec_alloc(r->spec, n + 1, sizeof *m->merges);
    m->n_merges = (uint32_t)n;
    relay_written_merge batch[RELAY_MERGE_BATCH];
    uint32_t first = 0, filled = 0;
    yyjson_arr_iter it = yyjson_arr_iter_with(merges);
    for (size_t i = 0; i < n; i++) {
        v = yyjson_arr_iter_next(&it);
        if (!read_merge(v, &batch[filled++])) return bad_merge(r, i, "is not two pieces");
        if (filled < RELAY_MERGE_BATCH && i + 1 < n) continue;
        relay_piece_index_find_merges(r->index, batch, filled, m->continuing_subword_prefix.len, m->merges + first);
        for (uint32_t k = 0; k < filled; k++) {
            const relay_merge_spec *merge = &m->merges[first + k];
            if (merge->left == RELAY_PIECE_NONE || merge->right == RELAY_PIECE_NONE ||
                merge->result == RELAY_PIECE_NONE)
                return bad_merge(r, first + k, "is of pieces, or makes one, that the vocabulary lacks");
        }
        first += filled;
        filled = 0;
    }
    return RELAY_OK;
}

static bool ends_with_byte_level(const relay_tokenizer_spec *spec) {
    return spec->n_pretokenizers > 0 &&
           spec->pretokenizers[spec->n_pretokenizers - 1].kind == RELAY_PRETOKENIZE_BYTE_LEVEL;
}

static relay_code read_bpe(reading *r, relay_spec_str *unk) {
    relay_model_spec *m = &r->spec->model;
    yyjson_val *dropout = yyjson_obj_get(r->o->v, "dropout");
    if (dropout != NULL && !yyjson_is_null(dropout) && yyjson_get_num(dropout) != 0)
        return relay_json_refuse(r->o, RELAY_UNIMPLEMENTED, "dropout", "is %g: a tokenizer that is not always the same",
                                 yyjson_get_num(dropout));
    m->order = RELAY_BPE_BY_MERGES;
    relay_code code = relay_json_str(r->o, "unk_token", true, unk);
    if (code == RELAY_OK) code = relay_json_str(r->o, "continuing_subword_prefix", true, &m->continuing_subword_prefix);
    if (code == RELAY_OK) code = relay_json_str(r->o, "end_of_word_suffix", true, &m->end_of_word_suffix);
    if (code == RELAY_OK) code = relay_json_bool(r->o, "fuse_unk", true, &m->fuse_unk);
    if (code == RELAY_OK) code = relay_json_bool(r->o, "byte_fallback", true, &m->byte_fallback);
    if (code == RELAY_OK) code = relay_json_bool(r->o, "ignore_merges", true, &m->ignore_merges);
    return code;
}

// Raw bytes may stand for the alphabet's characters where each of these is a piece, or none is anything else.
static void find_byte_alphabet(reading *r) {
    relay_model_spec *m = &r->spec->model;
    if (!ends_with_byte_level(r->spec)) return;
    bool is_whole = true;
    for (uint32_t byte = 0; byte < 256 && is_whole; byte++) {
        char piece[4];
        size_t n = relay_utf8_encode(relay_byte_level_char((uint8_t)byte), piece);
        is_whole = relay_piece_index_find(r->index, piece, n) != RELAY_PIECE_NONE;
    }
    m->byte_alphabet = m->is_byte_level =
        is_whole || (!yyjson_is_str(yyjson_obj_get(r->o->v, "unk_token")) && !m->byte_fallback);
}

// ---- All of them

static relay_code read_kind(const relay_json_object *o, relay_model_kind *kind) {
    static const char *const names[] = {"BPE", "Unigram", "WordPiece", "WordLevel", NULL};
    _Static_assert(RELAY_MODEL_WORDLEVEL == 3, "names are in the enum's order");
    uint32_t type = RELAY_MODEL_WORDLEVEL;
    if (yyjson_obj_get(o->v, "type") == NULL) {
        if (yyjson_obj_get(o->v, "merges") != NULL)
            type = RELAY_MODEL_BPE;
        else if (yyjson_is_arr(yyjson_obj_get(o->v, "vocab")))
            type = RELAY_MODEL_UNIGRAM;
        else if (yyjson_obj_get(o->v, "max_input_chars_per_word") != NULL)
            type = RELAY_MODEL_WORDPIECE;
        *kind = (relay_model_kind)type;
        return RELAY_OK;
    }
    relay_code code = relay_json_choice(o, "type", names, false, &type);
    *kind = (relay_model_kind)type;
    return code;
}

static relay_code read_unigram_options(reading *r) {
    relay_model_spec *m = &r->spec->model;
    yyjson_val *unk = yyjson_obj_get(r->o->v, "unk_id");
    m->has_unk = unk != NULL && !yyjson_is_null(unk);
    relay_code code = relay_json_u32(r->o, "unk_id", true, &m->unk_id);
    if (code == RELAY_OK) code = relay_json_bool(r->o, "byte_fallback", true, &m->byte_fallback);
    if (code != RELAY_OK || !m->has_unk) return code;
    if (m->unk_id >= m->n_tokens)
        return relay_json_refuse(r->o, RELAY_INVALID_ARGUMENT, "unk_id", "is %u of %u pieces", m->unk_id, m->n_tokens);
    m->tokens[m->unk_id].kind = RELAY_TOKEN_UNKNOWN;
    return RELAY_OK;
}

relay_code relay_tokenizer_json_model(relay_tokenizer_spec *spec, const relay_json_object *model,
                                      relay_piece_index *index, bool *has_index, uint32_t *n_pieces) {
    reading r = {.spec = spec, .o = model, .index = index};
    relay_model_spec *m = &spec->model;
    relay_spec_str unk = {0};
    *has_index = false;
    relay_code code = read_kind(model, &m->kind);
    if (code != RELAY_OK) return code;
    switch (m->kind) {
    case RELAY_MODEL_BPE:
        code = read_bpe(&r, &unk);
        break;
    case RELAY_MODEL_WORDPIECE:
        m->max_input_chars_per_word = 100;
        code = relay_json_str(model, "unk_token", false, &unk);
        if (code == RELAY_OK)
            code = relay_json_str(model, "continuing_subword_prefix", false, &m->continuing_subword_prefix);
        if (code == RELAY_OK)
            code = relay_json_u32(model, "max_input_chars_per_word", false, &m->max_input_chars_per_word);
        break;
    case RELAY_MODEL_WORDLEVEL:
        code = relay_json_str(model, "unk_token", false, &unk);
        break;
    case RELAY_MODEL_UNIGRAM:
        break;
    }
    if (code == RELAY_OK)
        code = m->kind == RELAY_MODEL_UNIGRAM ? read_vocab_list(&r, n_pieces) : read_vocab_object(&r, n_pieces);
    if (code != RELAY_OK) return code;
    if (m->kind == RELAY_MODEL_UNIGRAM) code = read_unigram_options(&r);
    *has_index = true;
    relay_code indexed = index_pieces(&r);
    if (code == RELAY_OK) code = indexed;
    if (m->byte_fallback) mark_bytes(m);
    if (m->kind == RELAY_MODEL_BPE) find_byte_alphabet(&r);
    if (code == RELAY_OK) code = set_unk(&r, unk);
    if (code == RELAY_OK && m->kind == RELAY_MODEL_BPE) code = read_merges(&r);
    return code;
}
