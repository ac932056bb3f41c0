// How a decoder is made: HF's decoders become stages, and the stages at the beginning that look at one token alone are
// applied to every token of the vocabulary there and then, so that what is left to do for a token is to copy its bytes
// and to run them through the few stages that look further.
#define _GNU_SOURCE // memmem
#include "tokenizer_svc/decoder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/utf8.h"
#include "tokenizer_svc/decode_stage.h"

enum { MAX_STAGES = 128 };

// ---- Stages

typedef struct stage_list {
    relay_decode_stage stages[MAX_STAGES];
    uint32_t n;
    bool is_open; // what the last stage puts out
    bool has_fallback;
} stage_list;

static relay_code add(stage_list *l, relay_decode_stage stage, relay_spec_str pattern, relay_spec_str content,
                      relay_err *e) {
    if (l->n == MAX_STAGES) return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: more than %d steps", MAX_STAGES);
    if (pattern.len > RELAY_STAGE_MAX_PATTERN)
        return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: a pattern of %u bytes; at most %d are supported",
                          pattern.len, RELAY_STAGE_MAX_PATTERN);
    stage.is_open = l->is_open;
    stage.pattern = relay_strndup(pattern.s, pattern.len);
    stage.pattern_len = pattern.len;
    stage.content = relay_strndup(content.s, content.len);
    stage.content_len = content.len;
    l->stages[l->n++] = stage;
    return RELAY_OK;
}

static relay_code add_plain(stage_list *l, relay_stage_kind kind, relay_err *e) {
    return add(l, (relay_decode_stage){.kind = kind}, (relay_spec_str){0}, (relay_spec_str){0}, e);
}

static relay_code add_replace(stage_list *l, relay_spec_str pattern, relay_spec_str content, relay_err *e) {
    if (pattern.len == 0)
        return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: an empty pattern, which would match everywhere");
    relay_code code = add(l, (relay_decode_stage){.kind = RELAY_STAGE_REPLACE}, pattern, content, e);
    if (code != RELAY_OK || !l->is_open) return code;
    relay_decode_stage *s = &l->stages[l->n - 1];
    s->failure = relay_calloc((uint64_t)s->pattern_len + 1, sizeof *s->failure);
    for (uint32_t i = 1, k = 0; i < s->pattern_len; i++) {
        while (k > 0 && s->pattern[i] != s->pattern[k])
            k = s->failure[k];
        k += s->pattern[i] == s->pattern[k];
        s->failure[i + 1] = (uint16_t)k;
    }
    return RELAY_OK;
}

static relay_spec_str str(const char *s) {
    return (relay_spec_str){s, (uint32_t)strlen(s)};
}

// HF's `wordpiece::cleanup`, of WordPiece and CTC; without its " do not" it is transformers' clean_up_tokenization.
static relay_code add_cleanup(stage_list *l, bool has_do_not, relay_err *e) {
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    relay_code code = RELAY_OK;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && code == RELAY_OK; i++) {
        bool is_do_not = pairs[i][0][1] == 'd';
        if (!is_do_not || has_do_not) code = add_replace(l, str(pairs[i][0]), str(pairs[i][1]), e);
    }
    return code;
}

static relay_code add_ctc(stage_list *l, const relay_decoder_spec *d, relay_err *e) {
    relay_code code = l->is_open ? RELAY_OK : add_plain(l, RELAY_STAGE_DEDUP, e);
    if (code == RELAY_OK && d->content.len > 0) code = add_replace(l, d->content, str(""), e);
    if (code == RELAY_OK && d->cleanup) code = add_cleanup(l, true, e);
    if (code == RELAY_OK && d->cleanup) code = add_replace(l, d->pattern.text, str(" "), e);
    return code == RELAY_OK && !l->is_open ? add_plain(l, RELAY_STAGE_DROP_EMPTY, e) : code;
}

static relay_code add_wordpiece(stage_list *l, const relay_decoder_spec *d, relay_err *e) {
    relay_code code = RELAY_OK; // one open token is the first, and stays as it is
    if (!l->is_open)
        code = add(l, (relay_decode_stage){.kind = RELAY_STAGE_WORDPIECE}, d->content, (relay_spec_str){0}, e);
    return code == RELAY_OK && d->cleanup ? add_cleanup(l, true, e) : code;
}

static relay_code add_bpe(stage_list *l, const relay_decoder_spec *d, relay_err *e) {
    if (l->is_open) return add_replace(l, d->content, str(""), e); // the only token is the last
    if (l->has_fallback)
        return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: BPEDecoder behind ByteFallback is not supported");
    if (d->content.len == 0)
        return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: an empty suffix, which would match everywhere");
    return add(l, (relay_decode_stage){.kind = RELAY_STAGE_BPE}, d->content, (relay_spec_str){0}, e);
}

static relay_code check_closed(const stage_list *l, const char *name, relay_err *e) {
    if (!l->is_open) return RELAY_OK;
    return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: %s behind a decoder that makes one token of all", name);
}

static relay_code add_decoder(stage_list *l, const relay_decoder_spec *d, relay_err *e) {
    relay_decode_stage stage = {0};
    relay_code code = RELAY_OK;
    switch (d->kind) {
    case RELAY_DECODE_BPE:
        return add_bpe(l, d, e);
    case RELAY_DECODE_BYTE_FALLBACK:
        code = check_closed(l, "ByteFallback", e);
        if (code == RELAY_OK && l->has_fallback)
            return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: a second ByteFallback is not supported");
        l->has_fallback = true;
        return code == RELAY_OK ? add_plain(l, RELAY_STAGE_BYTE_FALLBACK, e) : code;
    case RELAY_DECODE_BYTE_LEVEL:
        code = check_closed(l, "ByteLevel", e);
        if (code == RELAY_OK) code = add_plain(l, RELAY_STAGE_BYTES, e);
        l->is_open = true;
        return code;
    case RELAY_DECODE_CTC:
        return add_ctc(l, d, e);
    case RELAY_DECODE_FUSE:
        if (!l->is_open) code = add_plain(l, RELAY_STAGE_FUSE, e);
        l->is_open = true;
        return code;
    case RELAY_DECODE_METASPACE:
        stage.kind = RELAY_STAGE_METASPACE;
        stage.drops_first = d->prepend_scheme != RELAY_PREPEND_NEVER;
        if (!l->is_open && d->content.len > 0) return add(l, stage, d->content, (relay_spec_str){0}, e);
        return add_replace(l, d->content, str(stage.drops_first ? "" : " "), e);
    case RELAY_DECODE_REPLACE:
        if (d->pattern.is_regex)
            return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: Replace with the regular expression \"%.*s\"",
                              (int)d->pattern.text.len, d->pattern.text.s);
        return add_replace(l, d->pattern.text, d->content, e);
    case RELAY_DECODE_STRIP:
        if (d->content.len == 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "decoder: Strip without its character");
        stage.kind = RELAY_STAGE_STRIP;
        // An open one counts what it has stripped in 16 bits.
        stage.begin = d->strip_begin < UINT16_MAX ? d->strip_begin : UINT16_MAX;
        stage.end = d->strip_end < UINT16_MAX ? d->strip_end : UINT16_MAX;
        return add(l, stage, d->content, (relay_spec_str){0}, e);
    case RELAY_DECODE_WORDPIECE:
        return add_wordpiece(l, d, e);
    }
    return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: kind %d is not supported", (int)d->kind);
}

static void free_stages(relay_decode_stage *stages, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        free(stages[i].pattern);
        free(stages[i].content);
        free(stages[i].failure);
    }
}

static relay_code add_decoders(stage_list *l, const relay_tokenizer_spec *spec, relay_err *e) {
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; i < spec->n_decoders && code == RELAY_OK; i++)
        code = add_decoder(l, &spec->decoders[i], e);
    if (code == RELAY_OK && spec->n_decoders == 0) code = add_plain(l, RELAY_STAGE_JOIN, e);
    if (code != RELAY_OK || !spec->clean_up_tokenization_spaces) return code;
    if (!l->is_open) code = add_plain(l, RELAY_STAGE_FUSE, e);
    l->is_open = true;
    return code == RELAY_OK ? add_cleanup(l, false, e) : code;
}

// What a stage may have to put into a state.
static uint32_t state_bytes(const relay_decode_stage *s) {
    switch (s->kind) {
    case RELAY_STAGE_REPLACE:
        return s->is_open ? 2 : 0;
    case RELAY_STAGE_STRIP:
        return s->is_open ? 5 : 0;
    case RELAY_STAGE_METASPACE:
    case RELAY_STAGE_WORDPIECE:
    case RELAY_STAGE_JOIN:
        return 1;
    case RELAY_STAGE_DEDUP:
        return 17;
    case RELAY_STAGE_BPE:
        return 2 + RELAY_STAGE_MAX_REST;
    case RELAY_STAGE_BYTE_FALLBACK:
        return 4 + RELAY_STAGE_MAX_RUN;
    case RELAY_STAGE_BYTES:
        return 2 + 3;
    default:
        return 0;
    }
}

static relay_code check_state_size(const stage_list *l, relay_err *e) {
    uint32_t total = 1;
    for (uint32_t i = 0; i < l->n; i++)
        total += state_bytes(&l->stages[i]);
    if (total <= RELAY_MAX_DECODE_RUN_BYTES) return RELAY_OK;
    return relay_fail(e, RELAY_UNIMPLEMENTED, "decoder: its steps keep %u bytes of state; at most %d are supported",
                      total, RELAY_MAX_DECODE_RUN_BYTES);
}

// ---- The table

typedef struct table_maker {
    relay_text_decoder *d;
    const relay_decode_stage *pure; // [n_pure] the stages that are applied here
    uint32_t n_pure;
    bool is_raw, is_bytes; // whether pieces are raw bytes; whether BYTES comes next
    bool is_too_long;
    relay_buf bytes, a, b;
} table_maker;

// Leaves in m->a what the stages make of the piece.
static void apply_pure(table_maker *m, relay_spec_str piece, bool is_first) {
    relay_buf_clear(&m->a);
    relay_buf_append(&m->a, piece.s, piece.len);
    for (uint32_t i = 0; i < m->n_pure; i++) {
        relay_buf_clear(&m->b);
        relay_decode_stage_apply(&m->pure[i], m->a.data, m->a.len, is_first, &m->b);
        relay_buf swap = m->a;
        m->a = m->b;
        m->b = swap;
    }
}

// The alphabet's bytes, or whole characters where no stage takes bytes.
static void finish_token(table_maker *m, bool is_name) {
    relay_buf_clear(&m->b);
    if (m->is_bytes && !m->is_raw && !is_name) {
        relay_decode_alphabet(m->a.data, m->a.len, &m->b);
    } else if (!m->is_bytes && !relay_utf8_is_valid(m->a.data, m->a.len)) {
        for (size_t i = 0; i < m->a.len;) {
            uint32_t cp;
            char out[4];
            i += relay_utf8_decode(m->a.data + i, m->a.len - i, &cp);
            relay_buf_append(&m->b, out, relay_utf8_encode(cp, out));
        }
    } else {
        return;
    }
    relay_buf swap = m->a;
    m->a = m->b;
    m->b = swap;
}

static relay_decode_token put_token(table_maker *m, relay_spec_str piece, const relay_added_token *added,
                                    bool is_first) {
    apply_pure(m, piece, is_first);
    finish_token(m, added != NULL);
    uint32_t flags = RELAY_TOKEN_IS_THERE;
    if (added != NULL && added->special) flags |= RELAY_TOKEN_IS_SPECIAL;
    if (relay_utf8_is_valid(m->a.data, m->a.len)) flags |= RELAY_TOKEN_IS_WHOLE;
    if (m->a.len > RELAY_STAGE_MAX_TOKEN) m->is_too_long = true;
    relay_decode_token t = {
        .at = (uint32_t)m->bytes.len, .len = (uint32_t)m->a.len & RELAY_STAGE_MAX_TOKEN, .flags = flags & 15};
    relay_buf_append(&m->bytes, m->a.data, m->a.len);
    return t;
}

static void put_tokens(table_maker *m, const relay_tokenizer_spec *spec, bool has_first) {
    relay_text_decoder *d = m->d;
    const relay_added_token **added_of = relay_calloc(d->n_ids, sizeof *added_of);
    for (uint32_t i = 0; i < spec->n_added; i++)
        added_of[spec->added[i].id] = &spec->added[i];
    for (uint32_t id = 0; id < d->n_ids; id++) {
        const relay_added_token *added = added_of[id];
        bool is_in_model = id < spec->model.n_tokens && spec->model.tokens[id].piece.s != NULL;
        if (added == NULL && !is_in_model) continue;
        if (added == NULL && spec->model.tokens[id].kind == RELAY_TOKEN_PADDING) continue;
        relay_spec_str piece = added != NULL ? added->content : spec->model.tokens[id].piece;
        d->rest[id] = put_token(m, piece, added, false);
        if (has_first) d->first[id] = put_token(m, piece, added, true);
    }
    free(added_of);
}

// What stands behind a suffix in one token has to fit a state.
static relay_code check_rests(const relay_text_decoder *d, relay_err *e) {
    if (d->n_stages == 0 || d->stages[0].kind != RELAY_STAGE_BPE) return RELAY_OK;
    const relay_decode_stage *s = &d->stages[0];
    for (uint32_t id = 0; id < d->n_ids; id++) {
        const char *token = d->bytes + d->rest[id].at;
        uint32_t len = d->rest[id].len;
        const char *suffix = len == 0 ? NULL : memmem(token, len, s->pattern, s->pattern_len);
        if (suffix != NULL && s->holds_whole) suffix = token;
        if (suffix == NULL || (uint32_t)(token + len - suffix) <= RELAY_STAGE_MAX_REST) continue;
        return relay_fail(e, RELAY_UNIMPLEMENTED,
                          "decoder: token %" PRIu32 " has %u bytes from its suffix on; at most %d", id,
                          (uint32_t)(token + len - suffix), RELAY_STAGE_MAX_REST);
    }
    return RELAY_OK;
}

static void compute_hash(relay_text_decoder *d) {
    XXH3_state_t *h = XXH3_createState();
    RELAY_ASSERT(h != NULL);
    XXH3_64bits_reset(h);
    for (uint32_t i = 0; i < d->n_stages; i++) {
        const relay_decode_stage *s = &d->stages[i];
        const uint32_t numbers[] = {(uint32_t)s->kind, s->is_open,     s->drops_first, s->is_raw, s->holds_whole,
                                    s->pattern_len,    s->content_len, s->begin,       s->end};
        XXH3_64bits_update(h, numbers, sizeof numbers);
        XXH3_64bits_update(h, s->pattern, s->pattern_len);
        XXH3_64bits_update(h, s->content, s->content_len);
    }
    const relay_decode_token *tables[] = {d->rest, d->first};
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t id = 0; id < d->n_ids; id++) {
            const uint32_t numbers[] = {tables[i][id].len, tables[i][id].flags};
            XXH3_64bits_update(h, numbers, sizeof numbers);
            XXH3_64bits_update(h, d->bytes + tables[i][id].at, tables[i][id].len);
        }
    }
    d->hash = XXH3_64bits_digest(h);
    XXH3_freeState(h);
}

// ---- The object

static relay_text_decoder *create_empty(uint32_t n_ids) {
    relay_text_decoder *d = relay_calloc(1, sizeof *d);
    d->n_ids = n_ids;
    d->rest = relay_calloc(n_ids, sizeof *d->rest);
    d->first = d->rest;
    return d;
}

static relay_code find_n_ids(const relay_tokenizer_spec *spec, uint32_t *n_ids, relay_err *e) {
    uint32_t n = spec->model.n_tokens;
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].id >= n && spec->added[i].id < RELAY_VOCAB_MAX_TOKENS) n = spec->added[i].id + 1;
    for (uint32_t i = 0; i < spec->n_added; i++)
        if (spec->added[i].id >= n)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "decoder: added token %u has id %u; ids are below %d", i,
                              spec->added[i].id, RELAY_VOCAB_MAX_TOKENS);
    *n_ids = n;
    return RELAY_OK;
}

relay_code relay_text_decoder_create(relay_text_decoder **out, const relay_tokenizer_spec *spec, relay_err *e) {
    *out = NULL;
    stage_list *l = relay_calloc(1, sizeof *l);
    uint32_t n_ids = 0;
    relay_code code = find_n_ids(spec, &n_ids, e);
    if (code == RELAY_OK) code = add_decoders(l, spec, e);
    if (code == RELAY_OK) code = check_state_size(l, e);
    if (code != RELAY_OK) {
        free_stages(l->stages, l->n);
        free(l);
        return code;
    }
    table_maker m = {.d = create_empty(n_ids),
                     .pure = l->stages,
                     .is_raw = spec->model.kind == RELAY_MODEL_BPE && !spec->model.byte_alphabet};
    bool has_first = false;
    while (m.n_pure < l->n && !l->stages[m.n_pure].is_open && relay_decode_stage_is_pure(l->stages[m.n_pure].kind)) {
        relay_stage_kind kind = l->stages[m.n_pure++].kind;
        has_first |= kind == RELAY_STAGE_METASPACE || kind == RELAY_STAGE_WORDPIECE || kind == RELAY_STAGE_JOIN;
    }
    relay_text_decoder *d = m.d;
    d->n_stages = l->n - m.n_pure;
    d->stages = relay_calloc(d->n_stages, sizeof *d->stages);
    if (d->n_stages > 0) memcpy(d->stages, l->stages + m.n_pure, d->n_stages * sizeof *d->stages);
    m.is_bytes = d->n_stages > 0 && d->stages[0].kind == RELAY_STAGE_BYTES;
    for (uint32_t i = 0; i < d->n_stages; i++) {
        relay_decode_stage *s = &d->stages[i];
        s->is_raw = i == 0 || m.is_raw; // of the first the table has the bytes
        s->holds_whole = i + 1 < d->n_stages && d->stages[i + 1].kind != RELAY_STAGE_FUSE;
    }
    if (has_first) d->first = relay_calloc(n_ids, sizeof *d->first);
    relay_buf_init(&m.bytes, UINT32_MAX);
    relay_buf_init(&m.a, UINT32_MAX);
    relay_buf_init(&m.b, UINT32_MAX);
    put_tokens(&m, spec, has_first);
    if (m.bytes.is_failed || m.is_too_long)
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "decoder: the tokens of the vocabulary have too much text");
    size_t len;
    d->bytes = relay_buf_take(&m.bytes, &len);
    relay_buf_fini(&m.a);
    relay_buf_fini(&m.b);
    free_stages(l->stages, m.n_pure);
    free(l);
    if (code == RELAY_OK) code = check_rests(d, e);
    if (code != RELAY_OK) {
        relay_text_decoder_destroy(d);
        return code;
    }
    compute_hash(d);
    *out = d;
    return RELAY_OK;
}

void relay_text_decoder_destroy(relay_text_decoder *d) {
    if (d == NULL) return;
    if (d->first != d->rest) free(d->first);
    free(d->rest);
    free(d->bytes);
    free_stages(d->stages, d->n_stages);
    free(d->stages);
    free(d);
}

bool relay_text_decoder_is_special(const relay_text_decoder *d, uint32_t id) {
    return id < d->n_ids && (d->rest[id].flags & RELAY_TOKEN_IS_SPECIAL) != 0;
}

uint64_t relay_text_decoder_hash(const relay_text_decoder *d) {
    return d->hash;
}
