// Arrays of a specification grow by doubling: the arena keeps the shorter copies until its end, which is as much again.
#include "tokenizer_svc/formats/spec_build.h"

#include <string.h>

void *relay_spec_alloc(relay_tokenizer_spec *spec, uint64_t count, uint64_t size) {
    RELAY_ASSERT(size != 0 && count <= SIZE_MAX / size);
    void *p = relay_arena_alloc(&spec->arena, (size_t)(count * size));
    RELAY_ASSERT(p != NULL);
    return p;
}

relay_spec_str relay_spec_copy(relay_tokenizer_spec *spec, const char *s, size_t len) {
    RELAY_ASSERT(len <= UINT32_MAX);
    char *copy = relay_arena_copy(&spec->arena, s, len);
    RELAY_ASSERT(copy != NULL);
    return (relay_spec_str){.s = copy, .len = (uint32_t)len};
}

bool relay_spec_str_is(relay_spec_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.s, text, s.len) == 0;
}

// Room for one more behind `n` elements: a power of two of them is the most that the array holds.
static void *grow(relay_tokenizer_spec *spec, void *array, uint32_t n, size_t size) {
    if (n != 0 && (n & (n - 1)) != 0) return array;
    void *longer = relay_spec_alloc(spec, n == 0 ? 1 : 2 * (uint64_t)n, size);
    if (n != 0) memcpy(longer, array, n * size);
    return longer;
}

relay_normalizer_spec *relay_spec_add_normalizer(relay_tokenizer_spec *spec, relay_normalizer_kind kind) {
    spec->normalizers = grow(spec, spec->normalizers, spec->n_normalizers, sizeof *spec->normalizers);
    relay_normalizer_spec *n = &spec->normalizers[spec->n_normalizers++];
    *n = (relay_normalizer_spec){.kind = kind};
    return n;
}

relay_pretokenizer_spec *relay_spec_add_pretokenizer(relay_tokenizer_spec *spec, relay_pretokenizer_kind kind) {
    spec->pretokenizers = grow(spec, spec->pretokenizers, spec->n_pretokenizers, sizeof *spec->pretokenizers);
    relay_pretokenizer_spec *p = &spec->pretokenizers[spec->n_pretokenizers++];
    *p = (relay_pretokenizer_spec){.kind = kind};
    return p;
}

relay_decoder_spec *relay_spec_add_decoder(relay_tokenizer_spec *spec, relay_decoder_kind kind) {
    spec->decoders = grow(spec, spec->decoders, spec->n_decoders, sizeof *spec->decoders);
    relay_decoder_spec *d = &spec->decoders[spec->n_decoders++];
    *d = (relay_decoder_spec){.kind = kind};
    return d;
}

relay_added_token *relay_spec_add_token(relay_tokenizer_spec *spec, relay_spec_str content, uint32_t id, bool special) {
    spec->added = grow(spec, spec->added, spec->n_added, sizeof *spec->added);
    relay_added_token *t = &spec->added[spec->n_added++];
    *t = (relay_added_token){.content = content, .id = id, .special = special};
    return t;
}

void relay_spec_set_post(relay_tokenizer_spec *spec, relay_special_id first, relay_special_id last) {
    spec->post = NULL;
    spec->n_post = 0;
    if (!first.is_set && !last.is_set) return;
    spec->post = relay_spec_alloc(spec, 3, sizeof *spec->post);
    if (first.is_set) spec->post[spec->n_post++] = (relay_template_piece){.id = first.id};
    spec->post[spec->n_post++] = (relay_template_piece){.is_text = true};
    if (last.is_set) spec->post[spec->n_post++] = (relay_template_piece){.id = last.id};
}

void relay_spec_add_space_normalizers(relay_tokenizer_spec *spec, bool prefix) {
    if (prefix) relay_spec_add_normalizer(spec, RELAY_NORMALIZE_PREPEND)->content = RELAY_SPEC_STR(RELAY_SPEC_SPACE);
    relay_normalizer_spec *n = relay_spec_add_normalizer(spec, RELAY_NORMALIZE_REPLACE);
    n->pattern.text = RELAY_SPEC_STR(" ");
    n->content = RELAY_SPEC_STR(RELAY_SPEC_SPACE);
}

void relay_spec_add_space_decoders(relay_tokenizer_spec *spec, bool prefix, bool byte_fallback) {
    relay_decoder_spec *d = relay_spec_add_decoder(spec, RELAY_DECODE_REPLACE);
    d->pattern.text = RELAY_SPEC_STR(RELAY_SPEC_SPACE);
    d->content = RELAY_SPEC_STR(" ");
    if (byte_fallback) relay_spec_add_decoder(spec, RELAY_DECODE_BYTE_FALLBACK);
    relay_spec_add_decoder(spec, RELAY_DECODE_FUSE);
    if (!prefix) return;
    d = relay_spec_add_decoder(spec, RELAY_DECODE_STRIP);
    d->content = RELAY_SPEC_STR(" ");
    d->strip_begin = 1;
}

void relay_spec_set_byte_bpe(relay_tokenizer_spec *spec, relay_spec_str pattern) {
    spec->model.kind = RELAY_MODEL_BPE;
    spec->model.order = RELAY_BPE_BY_RANK;
    spec->model.is_byte_level = spec->model.ignore_merges = true;
    relay_pretokenizer_spec *split = relay_spec_add_pretokenizer(spec, RELAY_PRETOKENIZE_SPLIT);
    split->pattern = (relay_spec_pattern){.text = pattern, .is_regex = true};
    split->behavior = RELAY_SPLIT_ISOLATED;
    relay_spec_add_decoder(spec, RELAY_DECODE_BYTE_LEVEL);
}

void relay_spec_set_wordpiece(relay_tokenizer_spec *spec) {
    spec->model.kind = RELAY_MODEL_WORDPIECE;
    spec->model.continuing_subword_prefix = RELAY_SPEC_STR("##");
    spec->model.max_input_chars_per_word = 100;
    relay_spec_add_pretokenizer(spec, RELAY_PRETOKENIZE_BERT);
    relay_decoder_spec *d = relay_spec_add_decoder(spec, RELAY_DECODE_WORDPIECE);
    d->content = RELAY_SPEC_STR("##");
    d->cleanup = true;
}

relay_code relay_spec_find_byte_fallback(relay_tokenizer_spec *spec, const char *where, relay_err *e) {
    bool is_there[256] = {0};
    uint32_t n = 0;
    for (uint32_t id = 0; id < spec->model.n_tokens; id++) {
        const relay_model_token *t = &spec->model.tokens[id];
        if (t->kind != RELAY_TOKEN_BYTE) continue;
        int byte = relay_vocab_byte_of_name(t->piece.s, t->piece.len);
        if (byte < 0)
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "%s[%u]: the byte token is \"%.*s\"; it must be of the form <0x0A>", where, id,
                              relay_spec_shown(t->piece.len), t->piece.s);
        n += !is_there[byte];
        is_there[byte] = true;
    }
    spec->model.byte_fallback = n == 256;
    if (n == 0 || n == 256) return RELAY_OK;
    int missing = 0;
    while (is_there[missing])
        missing++;
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: there are byte tokens, but none is <0x%02X>", where,
                      (unsigned)missing);
}
