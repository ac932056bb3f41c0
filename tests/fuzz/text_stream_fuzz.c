// Forged states, odd stop strings and any ids through the text stream.
//
// Whatever the state is, it is refused or what comes out is valid UTF-8, and going on through a saved copy gives the
// same text. Input: options (1 byte), number of stop strings (1), each its length (1) and bytes, length of a state (1),
// the state, then ids (1 byte each, of a vocabulary of 256 bytes and a few more).
#include <string.h>

#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/text_stream.h"

static const char *const pieces[] = {"stop", "\xF0\x9F\x98", "\x80!", "a\xC3", "\xA9t\xE2", "abab", NULL};
static const char *const controls[] = {"<|im_end|>", "<s>", NULL};

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
    relay_text_stream_opts opts = {.vocab = shared_vocab(),
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
    enum { FREE_BYTES = 10 }; // what is before them in a state
    if (forged_len > FREE_BYTES) forged_len = FREE_BYTES;
    if (forged_len > 0) memcpy(state.data, forged, forged_len);
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
    };
    if (i >= sizeof seeds / sizeof *seeds) return 0;
    size_t n = sizeof seeds[i] < cap ? sizeof seeds[i] : cap;
    memcpy(out, seeds[i], n);
    return n;
}
