// The stages of an encoding, each in its own file:
//
//   spans -> one text -> special_tokens splits off whole tokens -> pretokenizer splits the rest into words
//         -> bpe makes each word tokens -> BOS and EOS around them
//
// A stretch between two special tokens is split into words on its own, as HF tokenizers and llama.cpp do: a pattern
// does not look past a special token.
#include "tokenizer_svc/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/bpe.h"
#include "tokenizer_svc/pretokenizer.h"
#include "tokenizer_svc/special_tokens.h"

enum { FAMILY_MAX = 64 };

struct relay_tokenizer {
    const relay_vocab *vocab;
    relay_special_tokens *special;
    relay_pretokenizer *pretokenizer;
    relay_bpe *bpe;
    bool adds_bos, adds_eos;
    uint32_t bos, eos; // where they are added
    char family[FAMILY_MAX];
};

// ---- Loading

static relay_code find_scheme(const relay_gguf *g, const relay_pretokenizer_scheme **scheme, relay_err *e) {
    const char *name;
    size_t len;
    bool found;
    relay_code code = relay_gguf_string(g, "tokenizer.ggml.pre", &name, &len, &found, e);
    if (code != RELAY_OK) return code;
    if (!found)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "key \"tokenizer.ggml.pre\" is missing: the file does not say how text is split into words");
    *scheme = relay_pretokenizer_scheme_find(name, len);
    if (*scheme != NULL) return RELAY_OK;
    return relay_fail(e, RELAY_UNIMPLEMENTED,
                      "key \"tokenizer.ggml.pre\" is \"%.*s\", a pre-tokenizer Relay does not know",
                      len < FAMILY_MAX ? (int)len : FAMILY_MAX, name);
}

// What the file asks for and Relay does not do.
static relay_code check_settings(const relay_gguf *g, relay_err *e) {
    const char *model = "";
    size_t len = 0;
    relay_code code = relay_gguf_string(g, "tokenizer.ggml.model", &model, &len, NULL, e);
    if (code != RELAY_OK) return code;
    if (len != 4 || memcmp(model, "gpt2", 4) != 0)
        return relay_fail(e, RELAY_UNIMPLEMENTED,
                          "key \"tokenizer.ggml.model\" is not \"gpt2\": Relay tokenizes with byte-level BPE only");
    bool add_space_prefix = false;
    code = relay_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &add_space_prefix, NULL, e);
    if (code == RELAY_OK && add_space_prefix)
        return relay_fail(e, RELAY_UNIMPLEMENTED,
                          "key \"tokenizer.ggml.add_space_prefix\" is true: Relay does not know this for \"gpt2\"");
    return code;
}

static relay_code read_bos_eos(relay_tokenizer *t, const relay_gguf *g, relay_err *e) {
    t->adds_bos = relay_pretokenizer_get_scheme(t->pretokenizer)->adds_bos;
    relay_code code = relay_gguf_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, NULL, e);
    if (code == RELAY_OK) code = relay_gguf_bool(g, "tokenizer.ggml.add_eos_token", &t->adds_eos, NULL, e);
    if (code != RELAY_OK) return code;
    if (t->adds_bos && !relay_vocab_bos(t->vocab, &t->bos))
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "a BOS token is to be added, and key \"tokenizer.ggml.bos_token_id\" is missing");
    if (!t->adds_eos) return RELAY_OK;
    uint64_t eos = 0;
    bool found;
    code = relay_gguf_u64(g, "tokenizer.ggml.eos_token_id", 0, relay_vocab_size(t->vocab) - 1, &eos, &found, e);
    if (code == RELAY_OK && !found)
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "an EOS token is to be added, and key \"tokenizer.ggml.eos_token_id\" is missing");
    t->eos = (uint32_t)eos;
    return code;
}

relay_code relay_tokenizer_load_gguf(relay_tokenizer **out, const relay_gguf *g, const relay_vocab *vocab,
                                     relay_err *e) {
    *out = NULL;
    relay_tokenizer *t = relay_calloc(1, sizeof *t);
    t->vocab = vocab;
    const relay_pretokenizer_scheme *scheme = NULL;
    relay_code code = check_settings(g, e);
    if (code == RELAY_OK) code = find_scheme(g, &scheme, e);
    if (code == RELAY_OK) code = relay_pretokenizer_create(&t->pretokenizer, scheme, e);
    if (code == RELAY_OK) code = relay_bpe_load_gguf(&t->bpe, g, vocab, scheme->ignore_merges, e);
    if (code == RELAY_OK) code = read_bos_eos(t, g, e);
    if (code != RELAY_OK) {
        relay_tokenizer_destroy(t);
        return code;
    }
    t->special = relay_special_tokens_create(vocab);
    snprintf(t->family, sizeof t->family, "byte-level BPE (%s)", scheme->name);
    *out = t;
    return RELAY_OK;
}

void relay_tokenizer_destroy(relay_tokenizer *t) {
    if (t == NULL) return;
    relay_special_tokens_destroy(t->special);
    relay_pretokenizer_destroy(t->pretokenizer);
    relay_bpe_destroy(t->bpe);
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
    const char *text;
    size_t len;
    relay_pretokenizer_work split_work;
    relay_bpe_work bpe_work;
} encoding_run;

static void add_token(encoding_run *r, uint32_t id, size_t begin, size_t end) {
    relay_encoding_add(r->enc, id, (uint32_t)begin, (uint32_t)end);
}

static relay_code add_word(void *arg, const char *word, size_t len, relay_err *e) {
    encoding_run *r = arg;
    relay_bpe_encode(r->t->bpe, word, len, &r->bpe_work);
    uint32_t n = r->bpe_work.n_tokens;
    relay_encoding *enc = r->enc;
    relay_encoding_reserve(enc, n);
    const relay_bpe_token *tokens = r->bpe_work.tokens;
    for (uint32_t i = 0; i < n; i++)
        enc->ids[enc->n + i] = tokens[i].id;
    if (enc->has_offsets) {
        uint32_t base = (uint32_t)(word - r->text);
        for (uint32_t i = 0; i < n; i++) {
            enc->offset_begin[enc->n + i] = base + tokens[i].begin;
            enc->offset_end[enc->n + i] = base + tokens[i].end;
        }
    }
    enc->n += n;
    return RELAY_OK;
}

static relay_code add_text(encoding_run *r, size_t begin, size_t end, relay_err *e) {
    return relay_pretokenizer_split(r->t->pretokenizer, &r->split_work, r->text + begin, end - begin, add_word, r, e);
}

// All tokens of the text; `open` is where names of CONTROL tokens count.
static relay_code encode_text(encoding_run *r, const relay_byte_range *open, size_t n_open, relay_err *e) {
    relay_special_scan scan = {.tokens = r->t->special, .text = r->text, .len = r->len, .open = open, .n_open = n_open};
    relay_special_match match;
    size_t at = 0;
    while (relay_special_scan_next(&scan, &match)) {
        relay_code code = add_text(r, at, match.begin, e);
        if (code != RELAY_OK) return code;
        add_token(r, match.id, match.begin, match.end);
        at = match.end;
    }
    return add_text(r, at, r->len, e);
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

relay_code relay_tokenizer_encode(const relay_tokenizer *t, const relay_text_span *spans, size_t n_spans,
                                  const relay_encode_opts *opts, relay_encoding *enc, relay_err *e) {
    encoding_run r = {.t = t, .enc = enc};
    enc->has_offsets = opts->want_offsets;
    relay_code code = check_spans(spans, n_spans, &r.len, e);
    if (code != RELAY_OK) return code;
    char *joined = n_spans > 1 ? relay_calloc(r.len, 1) : NULL;
    relay_byte_range *open = relay_calloc(n_spans, sizeof *open);
    size_t n_open = join_spans(spans, n_spans, joined, open);
    r.text = n_spans == 1 ? spans[0].text : joined;
    relay_bpe_work_expect(&r.bpe_work, r.len);

    if (opts->add_special_tokens && t->adds_bos) add_token(&r, t->bos, 0, 0);
    if (r.len > 0) code = encode_text(&r, open, n_open, e);
    if (code == RELAY_OK && opts->add_special_tokens && t->adds_eos) add_token(&r, t->eos, r.len, r.len);

    relay_pretokenizer_work_fini(&r.split_work);
    relay_bpe_work_fini(&r.bpe_work);
    free(open);
    free(joined);
    return code;
}
