// Format: mistral_common's tekken.py. Ids are special tokens first (config.default_num_special_tokens of them, those
// that the file does not name as <SPECIAL_n>), then tokens by rank; of these only as many as
// config.default_vocab_size leaves room for. Files of versions up to v7 may name no special tokens: they are the list
// below.
#include "tokenizer_svc/formats/tekken.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/formats/base64.h"
#include "tokenizer_svc/formats/piece_index.h"
#include "tokenizer_svc/formats/spec_build.h"

enum { MAX_SPECIAL = 1 << 16, MAX_PATTERN_BYTES = 1 << 16 };

static const char *const early_special[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};
enum { N_EARLY_SPECIAL = sizeof early_special / sizeof *early_special };

typedef struct tekken {
    relay_tokenizer_spec *spec;
    yyjson_val *root;
    uint32_t n_special, n_ranks;
    relay_spec_str pattern;
} tekken;

static relay_code get_number(yyjson_val *object, const char *key, const char *path, uint32_t min, uint32_t max,
                             uint32_t *out, relay_err *e) {
    yyjson_val *v = yyjson_obj_get(object, key);
    if (!yyjson_is_uint(v) || yyjson_get_uint(v) < min || yyjson_get_uint(v) > max)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s.%s must be a number from %u to %u", path, key, min, max);
    *out = (uint32_t)yyjson_get_uint(v);
    return RELAY_OK;
}

static relay_code get_string(yyjson_val *object, const char *key, const char *path, size_t max, relay_spec_str *out,
                             relay_err *e) {
    yyjson_val *v = yyjson_obj_get(object, key);
    if (!yyjson_is_str(v) || yyjson_get_len(v) == 0 || yyjson_get_len(v) > max)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s.%s must be a string of 1 to %zu bytes", path, key, max);
    *out = (relay_spec_str){.s = yyjson_get_str(v), .len = (uint32_t)yyjson_get_len(v)};
    return RELAY_OK;
}

static relay_code read_config(tekken *t, relay_err *e) {
    yyjson_val *config = yyjson_obj_get(t->root, "config");
    uint32_t n_ids = 0;
    relay_code code = get_string(config, "pattern", "config", MAX_PATTERN_BYTES, &t->pattern, e);
    if (code == RELAY_OK)
        code = get_number(config, "default_num_special_tokens", "config", 0, MAX_SPECIAL, &t->n_special, e);
    if (code == RELAY_OK)
        code = get_number(config, "default_vocab_size", "config", t->n_special + 256, RELAY_SPEC_MAX_TOKENS, &n_ids, e);
    if (code != RELAY_OK) return code;
    t->n_ranks = n_ids - t->n_special;
    size_t n_vocab = yyjson_arr_size(yyjson_obj_get(t->root, "vocab"));
    if (n_vocab < t->n_ranks)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "vocab has %zu entries; config.default_vocab_size and default_num_special_tokens ask for %u",
                          n_vocab, t->n_ranks);
    t->spec->n_ids = t->spec->model.n_tokens = n_ids;
    return RELAY_OK;
}

// ---- Tokens

static relay_code read_token(tekken *t, yyjson_val *entry, uint32_t rank, relay_piece_index *index, relay_err *e) {
    char path[32];
    snprintf(path, sizeof path, "vocab[%" PRIu32 "]", rank);
    uint32_t said;
    relay_spec_str base64;
    relay_code code = get_number(entry, "rank", path, rank, rank, &said, e);
    if (code == RELAY_OK) code = get_string(entry, "token_bytes", path, RELAY_SPEC_MAX_TOKEN_BYTES, &base64, e);
    if (code != RELAY_OK) return code;
    char *bytes = relay_spec_alloc(t->spec, base64.len, 1);
    size_t n;
    if (!relay_base64_decode(base64.s, base64.len, bytes, &n) || n == 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "%s.token_bytes is \"%.*s\", which is no base64 of one byte or more", path,
                          relay_spec_shown(base64.len), base64.s);
    uint32_t id = t->n_special + rank;
    t->spec->model.tokens[id] =
        (relay_model_token){.piece = {.s = bytes, .len = (uint32_t)n}, .kind = RELAY_TOKEN_NORMAL};
    uint32_t before = relay_piece_index_add(index, id);
    if (before != RELAY_PIECE_NONE)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s.token_bytes is that of vocab[%u], too", path,
                          before - t->n_special);
    return RELAY_OK;
}

static relay_code read_tokens(tekken *t, relay_err *e) {
    relay_model_spec *m = &t->spec->model;
    m->tokens = relay_spec_alloc(t->spec, m->n_tokens, sizeof *m->tokens);
    for (uint32_t id = 0; id < t->n_special; id++)
        m->tokens[id].kind = RELAY_TOKEN_PADDING; // added tokens
    relay_piece_index index;
    relay_piece_index_init(&index, m->tokens, m->n_tokens);
    relay_code code = RELAY_OK;
    size_t rank, n;
    yyjson_val *entry;
    yyjson_arr_foreach(yyjson_obj_get(t->root, "vocab"), rank, n, entry) {
        if (rank == t->n_ranks) break;
        code = read_token(t, entry, (uint32_t)rank, &index, e);
        if (code != RELAY_OK) break;
    }
    for (int byte = 0; byte < 256 && code == RELAY_OK; byte++) {
        char c = (char)byte;
        if (relay_piece_index_find(&index, &c, 1) == RELAY_PIECE_NONE)
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "vocab has no token for byte 0x%02X", (unsigned)byte);
    }
    relay_piece_index_fini(&index);
    return code;
}

// ---- Special tokens

static relay_code read_named(tekken *t, yyjson_val *list, relay_spec_str *names, relay_err *e) {
    size_t i, n;
    yyjson_val *entry;
    yyjson_arr_foreach(list, i, n, entry) {
        char path[40];
        snprintf(path, sizeof path, "special_tokens[%zu]", i);
        uint32_t rank;
        relay_spec_str name;
        if (t->n_special == 0)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: config.default_num_special_tokens is 0", path);
        relay_code code = get_number(entry, "rank", path, 0, t->n_special - 1, &rank, e);
        if (code == RELAY_OK) code = get_string(entry, "token_str", path, RELAY_SPEC_MAX_TOKEN_BYTES, &name, e);
        if (code != RELAY_OK) return code;
        if (names[rank].s != NULL)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s.rank is %u, which is there twice", path, rank);
        names[rank] = relay_spec_copy(t->spec, name.s, name.len);
    }
    return RELAY_OK;
}

static relay_code read_special(tekken *t, relay_err *e) {
    relay_tokenizer_spec *spec = t->spec;
    relay_spec_str *names = relay_spec_alloc(spec, (uint64_t)t->n_special + 1, sizeof *names);
    yyjson_val *list = yyjson_obj_get(t->root, "special_tokens");
    if (list != NULL && !yyjson_is_null(list)) {
        if (!yyjson_is_arr(list)) return relay_fail(e, RELAY_INVALID_ARGUMENT, "special_tokens must be an array");
        relay_code code = read_named(t, list, names, e);
        if (code != RELAY_OK) return code;
    } else {
        for (uint32_t i = 0; i < N_EARLY_SPECIAL && i < t->n_special; i++)
            names[i] = (relay_spec_str){.s = early_special[i], .len = (uint32_t)strlen(early_special[i])};
    }
    for (uint32_t id = 0; id < t->n_special; id++) {
        if (names[id].s == NULL) {
            char filler[32];
            int n = snprintf(filler, sizeof filler, "<SPECIAL_%" PRIu32 ">", id);
            names[id] = relay_spec_copy(spec, filler, (size_t)n);
        }
        relay_spec_add_token(spec, names[id], id, true);
        relay_special_id self = {true, id};
        if (relay_spec_str_is(names[id], "<s>")) spec->bos = self;
        if (relay_spec_str_is(names[id], "</s>")) spec->eos = self;
        if (relay_spec_str_is(names[id], "<unk>")) spec->unk = self;
        if (relay_spec_str_is(names[id], "<pad>")) spec->pad = self;
    }
    return RELAY_OK;
}

bool relay_tekken_is(yyjson_val *root) {
    return yyjson_is_arr(yyjson_obj_get(root, "vocab")) && yyjson_is_obj(yyjson_obj_get(root, "config"));
}

relay_code relay_tekken_read(relay_tokenizer_spec *spec, yyjson_val *root, relay_err *e) {
    tekken t = {.spec = spec, .root = root};
    spec->format = "tekken";
    if (!relay_tekken_is(root))
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "there must be a config (an object) and a vocab (an array)");
    relay_code code = read_config(&t, e);
    if (code == RELAY_OK) code = read_tokens(&t, e);
    if (code == RELAY_OK) code = read_special(&t, e);
    if (code != RELAY_OK) return code;
    relay_spec_set_byte_bpe(spec, relay_spec_copy(spec, t.pattern.s, t.pattern.len));
    spec->add_bos = spec->bos.is_set;
    relay_spec_set_post(spec, spec->bos, (relay_special_id){0});
    return RELAY_OK;
}
