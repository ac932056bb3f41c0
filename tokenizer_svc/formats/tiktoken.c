// tiktoken's BPE: any two neighbours whose concatenation is a token may be joined, the lowest rank first; a word that
// is a token is that token. Every byte has one, so there is no unknown text.
#include "tokenizer_svc/formats/tiktoken.h"

#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer_svc/formats/base64.h"
#include "tokenizer_svc/formats/piece_index.h"
#include "tokenizer_svc/formats/spec_build.h"
#include "tokenizer_svc/formats/tiktoken_encodings.h"

typedef struct line {
    const char *token; // base64
    size_t token_len;
    uint32_t rank;
} line;

// Takes the next line that is not empty. False if it is no token and rank; *found is false at the end.
static bool next_line(const char **at, const char *end, uint32_t *number, line *l, bool *found) {
    *found = false;
    while (*at < end && **at == '\n') {
        (*at)++;
        (*number)++;
    }
    if (*at == end) return true;
    (*number)++;
    const char *eol = memchr(*at, '\n', (size_t)(end - *at));
    if (eol == NULL) eol = end;
    const char *space = memchr(*at, ' ', (size_t)(eol - *at));
    if (space == NULL || space == *at) return false;
    l->token = *at;
    l->token_len = (size_t)(space - *at);
    const char *digit = space + 1, *last = eol > digit && eol[-1] == '\r' ? eol - 1 : eol;
    if (digit == last) return false;
    uint64_t rank = 0;
    for (; digit < last; digit++) {
        if (*digit < '0' || *digit > '9') return false;
        rank = rank * 10 + (uint64_t)(*digit - '0');
        if (rank > UINT32_MAX) return false;
    }
    l->rank = (uint32_t)rank;
    *at = eol == end ? end : eol + 1;
    *found = true;
    return true;
}

bool relay_tiktoken_is(const void *data, size_t len) {
    const char *at = data, *end = at + len;
    uint32_t number = 0;
    line l;
    bool found;
    if (!next_line(&at, end, &number, &l, &found) || !found || l.token_len > RELAY_SPEC_MAX_TOKEN_BYTES) return false;
    char out[RELAY_SPEC_SHOWN_BYTES];
    size_t n;
    return l.token_len <= sizeof out && relay_base64_decode(l.token, l.token_len, out, &n);
}

// The number of ranks, and one more than the highest.
static relay_code count_ranks(const char *data, size_t len, uint32_t *n, uint32_t *n_ids, relay_err *e) {
    const char *at = data, *end = data + len;
    uint32_t number = 0;
    line l;
    bool found;
    *n = *n_ids = 0;
    for (;;) {
        if (!next_line(&at, end, &number, &l, &found))
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "line %u: it must be a token in base64, a space and a rank",
                              number);
        if (!found) break;
        if (l.rank >= RELAY_SPEC_MAX_TOKENS)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "line %u: the rank is %u; ranks are below %d", number, l.rank,
                              RELAY_SPEC_MAX_TOKENS);
        if (l.token_len > RELAY_SPEC_MAX_TOKEN_BYTES)
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "line %u: the token has %zu characters of base64; it may have %d", number, l.token_len,
                              RELAY_SPEC_MAX_TOKEN_BYTES);
        ++*n;
        if (l.rank >= *n_ids) *n_ids = l.rank + 1;
    }
    if (*n == 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "the file has no tokens");
    return RELAY_OK;
}

static relay_code read_token(relay_tokenizer_spec *spec, relay_piece_index *index, const line *l, uint32_t number,
                             char *out, size_t *n, relay_err *e) {
    relay_model_token *t = &spec->model.tokens[l->rank];
    if (!relay_base64_decode(l->token, l->token_len, out, n) || *n == 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "line %u: \"%.*s\" is no base64 of one byte or more", number,
                          relay_spec_shown(l->token_len), l->token);
    if (t->piece.s != NULL)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "line %u: the rank %u is there twice", number, l->rank);
    *t = (relay_model_token){.piece = {.s = out, .len = (uint32_t)*n}, .kind = RELAY_TOKEN_NORMAL};
    uint32_t before = relay_piece_index_add(index, l->rank);
    if (before != RELAY_PIECE_NONE)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "line %u: the token is that of rank %u, too", number, before);
    return RELAY_OK;
}

static relay_code read_tokens(relay_tokenizer_spec *spec, const char *data, size_t len, relay_err *e) {
    relay_model_spec *m = &spec->model;
    m->tokens = relay_spec_alloc(spec, m->n_tokens, sizeof *m->tokens);
    char *out = relay_spec_alloc(spec, len, 1);
    relay_piece_index index;
    relay_piece_index_init(&index, m->tokens, m->n_tokens);
    for (uint32_t id = 0; id < m->n_tokens; id++)
        m->tokens[id].kind = RELAY_TOKEN_PADDING;
    const char *at = data, *end = data + len;
    uint32_t number = 0;
    relay_code code = RELAY_OK;
    line l;
    bool found;
    while (code == RELAY_OK && next_line(&at, end, &number, &l, &found) && found) {
        size_t n;
        code = read_token(spec, &index, &l, number, out, &n, e);
        out += n;
    }
    for (int byte = 0; byte < 256 && code == RELAY_OK; byte++) {
        char c = (char)byte;
        if (relay_piece_index_find(&index, &c, 1) == RELAY_PIECE_NONE)
            code = relay_fail(e, RELAY_INVALID_ARGUMENT, "the file has no token for byte 0x%02X", (unsigned)byte);
    }
    relay_piece_index_fini(&index);
    return code;
}

// ---- The encoding

static bool digest(const char *data, size_t len, char hex[65]) {
    uint8_t bytes[32];
    if (EVP_Digest(data, len, bytes, NULL, EVP_sha256(), NULL) != 1) return false;
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

static relay_code find_encoding(const relay_tiktoken_encoding **out, const char *name, uint32_t n_ranks, relay_err *e) {
    *out = relay_tiktoken_encoding_find(name);
    if (*out == NULL)
        return relay_fail(e, RELAY_UNIMPLEMENTED, "the encoding \"%.*s\" is not known; there are %s",
                          relay_spec_shown(strlen(name)), name, relay_tiktoken_encoding_names());
    if ((*out)->n_ranks == n_ranks) return RELAY_OK;
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "the file has %u ranks, and \"%s\" has %u", n_ranks, name,
                      (*out)->n_ranks);
}

static relay_code recognise_encoding(const relay_tiktoken_encoding **out, const char *data, size_t len,
                                     uint32_t n_ranks, relay_err *e) {
    char hex[65];
    if (!digest(data, len, hex)) return relay_fail(e, RELAY_INTERNAL, "libcrypto: sha256 failed");
    *out = relay_tiktoken_encoding_recognise(hex, n_ranks);
    if (*out != NULL) return RELAY_OK;
    return relay_fail(e, RELAY_UNIMPLEMENTED,
                      "the encoding of the file (%u ranks) is not known: give it as FILE:ENCODING, which is one of %s",
                      n_ranks, relay_tiktoken_encoding_names());
}

// The name with its `#` as a number.
static relay_spec_str number_name(relay_tokenizer_spec *spec, const char *name, uint32_t number) {
    const char *mark = strchr(name, '#');
    RELAY_ASSERT(mark != NULL);
    char text[RELAY_SPEC_SHOWN_BYTES];
    int n = snprintf(text, sizeof text, "%.*s%u%s", (int)(mark - name), name, number, mark + 1);
    RELAY_ASSERT(n > 0 && n < (int)sizeof text);
    return relay_spec_copy(spec, text, (size_t)n);
}

static void add_special(relay_tokenizer_spec *spec, const relay_tiktoken_encoding *encoding) {
    for (const relay_tiktoken_special *s = encoding->special; s->name != NULL; s++) {
        if (s->count == 0)
            relay_spec_add_token(spec, (relay_spec_str){.s = s->name, .len = (uint32_t)strlen(s->name)}, s->id, true);
        uint32_t n_named = spec->n_added;
        for (uint32_t i = 0; i < s->count; i++) {
            bool is_named = false;
            for (uint32_t k = 0; k < n_named && !is_named; k++)
                is_named = spec->added[k].id == s->id + i;
            if (!is_named) relay_spec_add_token(spec, number_name(spec, s->name, s->number + i), s->id + i, true);
        }
    }
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].id >= spec->n_ids) spec->n_ids = spec->added[i].id + 1;
}

static relay_special_id find_special(const relay_tokenizer_spec *spec, const char *name) {
    for (uint32_t i = 0; i < spec->n_added && name != NULL; i++)
        if (relay_spec_str_is(spec->added[i].content, name)) return (relay_special_id){true, spec->added[i].id};
    return (relay_special_id){0};
}

static void apply_encoding(relay_tokenizer_spec *spec, const relay_tiktoken_encoding *encoding) {
    spec->name = (relay_spec_str){.s = encoding->name, .len = (uint32_t)strlen(encoding->name)};
    if (encoding->is_nfc) relay_spec_add_normalizer(spec, RELAY_NORMALIZE_NFC);
    relay_spec_set_byte_bpe(spec, (relay_spec_str){.s = encoding->pattern, .len = (uint32_t)strlen(encoding->pattern)});
    add_special(spec, encoding);
    spec->bos = find_special(spec, encoding->bos);
    spec->eos = find_special(spec, encoding->eos);
    spec->pad = find_special(spec, encoding->pad);
    spec->add_bos = encoding->adds_bos;
    if (encoding->adds_bos) relay_spec_set_post(spec, spec->bos, (relay_special_id){0});
}

relay_code relay_tiktoken_read(relay_tokenizer_spec *spec, const void *data, size_t len, const char *encoding,
                               relay_err *e) {
    spec->format = "tiktoken";
    uint32_t n_ranks;
    relay_code code = count_ranks(data, len, &n_ranks, &spec->model.n_tokens, e);
    if (code != RELAY_OK) return code;
    spec->n_ids = spec->model.n_tokens;
    const relay_tiktoken_encoding *known = NULL;
    if (encoding != NULL) code = find_encoding(&known, encoding, n_ranks, e);
    if (code == RELAY_OK) code = read_tokens(spec, data, len, e);
    if (code == RELAY_OK && encoding == NULL) code = recognise_encoding(&known, data, len, n_ranks, e);
    if (code == RELAY_OK) apply_encoding(spec, known);
    return code;
}
