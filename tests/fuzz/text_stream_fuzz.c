// Forged states, odd stop strings and any ids through the text stream.
//
// Whatever the state is, it is refused or what comes out is valid UTF-8, and going on through a saved copy gives the
// same text. Input: options (1 byte), number of stop strings (1), each its length (1) and bytes, length of a state (1),
// the state, then ids (1 byte each, of a vocabulary of 256 bytes and a few more).
#include <string.h>

#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/spec_vocab.h"
#include "tokenizer_svc/text_stream.h"

static const char *const pieces[] = {"stop", "\xF0\x9F\x98", "\x80!", "a\xC3", "\xA9t\xE2", "abab", NULL};
static const char *const controls[] = {"<|im_end|>", "<s>", NULL};

// Rows of decoders whose state differs, over pieces that they look at.
#define STR(s)                                                                                                         \
    { (s), sizeof(s) - 1 }

static const char *const worded[] = {"a",      "##a",    ".",      "n't",    " ",      "</w>",
                                     "a</w>.", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "\xE2\x96\x81",
                                     "<s>",    "  ",     "a .",    "stop",   "<0x41>"};
enum { N_WORDED = sizeof worded / sizeof *worded, N_ROWS = 6, MAX_ROW = 4 };

static const relay_decoder_spec rows[N_ROWS][MAX_ROW] = {
    {{.kind = RELAY_DECODE_REPLACE, .pattern = {.text = STR("\xE2\x96\x81")}, .content = STR(" ")},
     {.kind = RELAY_DECODE_BYTE_FALLBACK},
     {.kind = RELAY_DECODE_FUSE},
     {.kind = RELAY_DECODE_STRIP, .content = STR(" "), .strip_begin = 1, .strip_end = 2}},
    {{.kind = RELAY_DECODE_WORDPIECE, .content = STR("##"), .cleanup = true}, {.kind = RELAY_DECODE_FUSE}},
    {{.kind = RELAY_DECODE_BPE, .content = STR("</w>")}, {.kind = RELAY_DECODE_FUSE}},
    {{.kind = RELAY_DECODE_CTC, .content = STR("a"), .pattern = {.text = STR(" ")}, .cleanup = true},
     {.kind = RELAY_DECODE_FUSE}},
    {{.kind = RELAY_DECODE_BYTE_FALLBACK},
     {.kind = RELAY_DECODE_METASPACE, .content = STR("\xE2\x96\x81")},
     {.kind = RELAY_DECODE_CTC, .content = STR("<s>"), .pattern = {.text = STR("a")}, .cleanup = true},
     {.kind = RELAY_DECODE_FUSE}},
    {{.kind = RELAY_DECODE_FUSE},
     {.kind = RELAY_DECODE_REPLACE, .pattern = {.text = STR("aa.aa")}, .content = STR("b")},
     {.kind = RELAY_DECODE_STRIP, .content = STR("a"), .strip_begin = 2, .strip_end = 2},
     {.kind = RELAY_DECODE_REPLACE, .pattern = {.text = STR(" .")}, .content = STR(".")}},
};

typedef struct decoded_vocab {
    relay_vocab *vocab;
    relay_text_decoder *decoder;
} decoded_vocab;

static decoded_vocab shared_decoder(uint32_t row) {
    static decoded_vocab made[N_ROWS];
    decoded_vocab *d = &made[row];
    if (d->vocab != NULL) return *d;
    relay_model_token tokens[N_WORDED];
    for (uint32_t id = 0; id < N_WORDED; id++)
        tokens[id] = (relay_model_token){{worded[id], (uint32_t)strlen(worded[id])}, 0, RELAY_TOKEN_NORMAL};
    relay_added_token added = {.content = STR("<s>"), .id = 12, .special = true};
    relay_decoder_spec decoders[MAX_ROW];
    memcpy(decoders, rows[row], sizeof decoders);
    relay_tokenizer_spec spec = {.model = {.kind = RELAY_MODEL_WORDLEVEL, .tokens = tokens, .n_tokens = N_WORDED},
                                 .added = &added,
                                 .n_added = 1,
                                 .decoders = decoders,
                                 .clean_up_tokenization_spaces = row == 2};
    while (spec.n_decoders < MAX_ROW && (spec.n_decoders == 0 || decoders[spec.n_decoders].kind != 0))
        spec.n_decoders++;
    RELAY_ASSERT(relay_vocab_create_from_spec(&d->vocab, &spec, NULL) == RELAY_OK);
    RELAY_ASSERT(relay_text_decoder_create(&d->decoder, &spec, NULL) == RELAY_OK);
    return *d;
}

static const relay_vocab *shared_vocab(void) {
    static small_vocab v;
    if (v.vocab == NULL)
        v = small_vocab_make(&(small_vocab_spec){.pieces = pieces, .control = controls, .n_padding = 1});
    return v.vocab;
}

typedef struct reader {
    const uint8_t *data;
    size_t size;
} reader;

static uint8_t read_byte(reader *r) {
    if (r->size == 0) return 0;
    r->size--;
    return *r->data++;
}

static const char *read_bytes(reader *r, size_t *len) {
    size_t n = read_byte(r);
    if (n > r->size) n = r->size;
    const char *bytes = (const char *)r->data;
    r->data += n;
    r->size -= n;
    *len = n;
    return bytes;
}

static void push(relay_text_stream *s, reader ids, bool look, const relay_text_stream_opts *opts, bool change,
                 relay_buf *text) {
    uint32_t size = relay_vocab_size(opts->vocab);
    relay_text_step step;
    relay_text_stream *other = NULL;
    while (ids.size > 0) {
        uint32_t id = read_byte(&ids);
        if (id % 7 == 0) id = 250 + id / 7; // reaches the last ids
        id %= size;
        relay_text_stream_push(s, &id, 1, look, text, &step);
        RELAY_ASSERT(relay_utf8_is_valid(text->data, text->len));
        if (!change) continue;
        relay_buf saved;
        relay_buf_init(&saved, RELAY_MAX_DECODE_STATE_BYTES);
        relay_text_stream_save(s, &saved);
        relay_text_stream *next;
        RELAY_ASSERT(relay_text_stream_create(&next, opts, NULL) == RELAY_OK);
        RELAY_ASSERT(relay_text_stream_restore(next, (const uint8_t *)saved.data, saved.len, NULL) == RELAY_OK);
        relay_text_stream_destroy(other);
        s = other = next;
        relay_buf_fini(&saved);
    }
    relay_text_stream_finish(s, text);
    RELAY_ASSERT(relay_utf8_is_valid(text->data, text->len));
    relay_text_stream_destroy(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    reader r = {data, size};
    uint8_t flags = read_byte(&r);
    relay_stop_string stops[RELAY_MAX_STOP_STRINGS + 1];
    uint32_t row = flags >> 3; // the byte-level vocabulary, or one with decoders
    decoded_vocab decoded = {NULL, NULL};
    if (row % 8 < N_ROWS && row >= 8) decoded = shared_decoder(row % 8);
    relay_text_stream_opts opts = {.vocab = decoded.vocab != NULL ? decoded.vocab : shared_vocab(),
                                   .decoder = decoded.decoder,
                                   .skip_special_tokens = flags & 1,
                                   .include_stop_string = flags & 2,
                                   .stop_strings = stops,
                                   .n_stop_strings = read_byte(&r) % (RELAY_MAX_STOP_STRINGS + 2)};
    for (uint32_t i = 0; i < opts.n_stop_strings; i++)
        stops[i].bytes = read_bytes(&r, &stops[i].len);
    relay_text_stream *a, *b;
    if (relay_text_stream_create(&a, &opts, NULL) != RELAY_OK) return 0;
    if (relay_text_stream_create(&b, &opts, NULL) != RELAY_OK) return 0;

    // The state's options hash and fingerprint are made right, or no forged state would get past them.
    relay_buf state, one, other;
    relay_buf_init(&state, RELAY_MAX_DECODE_STATE_BYTES);
    relay_buf_init(&one, 1 << 24);
    relay_buf_init(&other, 1 << 24);
    relay_text_stream_save(a, &state);
    size_t forged_len;
    const char *forged = read_bytes(&r, &forged_len);
    enum { BEFORE = 5, BEHIND = 45 }; // they are in between
    size_t n_before = forged_len < BEFORE ? forged_len : BEFORE;
    if (n_before > 0) memcpy(state.data, forged, n_before);
    if (forged_len > BEFORE) {
        state.len = BEHIND;
        relay_buf_append(&state, forged + BEFORE, forged_len - BEFORE);
    }
    relay_code code = relay_text_stream_restore(a, (const uint8_t *)state.data, state.len, NULL);
    RELAY_ASSERT(relay_text_stream_restore(b, (const uint8_t *)state.data, state.len, NULL) == code);

    push(a, r, flags & 4, &opts, false, &one);
    push(b, r, flags & 4, &opts, true, &other);
    RELAY_ASSERT(one.len == other.len && (one.len == 0 || memcmp(one.data, other.data, one.len) == 0));
    relay_buf_fini(&state);
    relay_buf_fini(&one);
    relay_buf_fini(&other);
    relay_text_stream_destroy(a);
    relay_text_stream_destroy(b);
    return 0;
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    static const char seeds[][64] = {
        "\x05\x02\x04stop\x03\xE2\x82\xAC\x00stopab\xF0\x9F\x98\x80\xE2\x82\xAC",
        "\x07\x01\x04"
        "abab\x0A\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00"
        "ababab",
        "\x04\x02\x0A<|im_end|>\x02\xC3\xA9\x0A\x01\x00\x00\x02\x00\xF0\x9F\x00\x00\x00\x98\x80\x2A\x31",
        "\x00\x00\x0A\x01\x00\x00\x03\x03\xF0\x9F\x98\x00\x00\x80xyz",
        "\x45\x01\x04stop\x00\x0B\x07\x08\x09\x0A\x0F\x0D",
        "\x4D\x00\x00\x01\x00\x02\x03\x04\x0E",
        "\x54\x00\x00\x05\x06\x00\x06\x0D\x02",
        "\x5C\x01\x01.\x00\x01\x01\x04\x02\x0B",
        "\x65\x00\x00\x07\x08\x09\x0A\x0B\x0C\x10",
        "\x6D\x00\x00\x00\x00\x0E\x00\x00\x02\x00",
    };
    if (i >= sizeof seeds / sizeof *seeds) return 0;
    size_t n = sizeof seeds[i] < cap ? sizeof seeds[i] : cap;
    memcpy(out, seeds[i], n);
    return n;
}
