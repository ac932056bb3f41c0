// Any vocabulary and any words through Unigram, WordPiece and WordLevel.
//
// Whatever the model is, it is refused or its tokens lie in the word, in order, with ids of the vocabulary; and working
// memory that has seen other words gives the same as fresh one. Input: which model (1 byte), options (1), number of
// pieces (1), each its length (1) and bytes and score (1); then words, each its length (1) and bytes, made UTF-8.
#include <math.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer_svc/unigram.h"
#include "tokenizer_svc/wordlevel.h"
#include "tokenizer_svc/wordpiece.h"

enum { MAX_PIECES = 64 };

typedef struct reader {
    const uint8_t *data;
    size_t size;
} reader;

static uint8_t read_byte(reader *r) {
    if (r->size == 0) return 0;
    r->size--;
    return *r->data++;
}

// Text of the input, '?' where it is no UTF-8.
static relay_spec_str read_text(reader *r, char *out) {
    size_t n = read_byte(r);
    if (n > r->size) n = r->size;
    memcpy(out, r->data, n);
    r->data += n;
    r->size -= n;
    relay_utf8_repair(out, n);
    return (relay_spec_str){out, (uint32_t)n};
}

static void check(const relay_encoding *enc, uint32_t len, uint32_t n_ids) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < enc->n; i++) {
        RELAY_ASSERT(enc->ids[i] < n_ids);
        RELAY_ASSERT(enc->offset_begin[i] <= enc->offset_end[i] && enc->offset_end[i] <= len);
        RELAY_ASSERT(enc->offset_begin[i] >= at || (i > 0 && enc->offset_begin[i] == enc->offset_begin[i - 1]));
        at = enc->offset_begin[i];
    }
    RELAY_ASSERT(enc->n > 0 && enc->offset_end[enc->n - 1] == len);
}

static void encode(const relay_word_model *m, void *work, relay_spec_str word, uint32_t n_ids) {
    void *fresh = m->work_create(m, 0);
    relay_encoding a = {.has_offsets = true}, b = {.has_offsets = true};
    relay_code code = m->encode(m, work, word.s, word.len, 0, &a, NULL);
    RELAY_ASSERT(m->encode(m, fresh, word.s, word.len, 0, &b, NULL) == code);
    if (code == RELAY_OK) {
        check(&a, word.len, n_ids);
        size_t bytes = a.n * sizeof *a.ids;
        RELAY_ASSERT(a.n == b.n && memcmp(a.ids, b.ids, bytes) == 0);
        RELAY_ASSERT(memcmp(a.offset_begin, b.offset_begin, bytes) == 0);
        RELAY_ASSERT(memcmp(a.offset_end, b.offset_end, bytes) == 0);
    }
    relay_encoding_fini(&a);
    relay_encoding_fini(&b);
    m->work_destroy(fresh);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const double scores[] = {0, -1, -1.5, -2.25, -300, -1e6, 1e300, 3, -0.1, NAN};
    static const relay_token_kind kinds[] = {RELAY_TOKEN_NORMAL, RELAY_TOKEN_NORMAL, RELAY_TOKEN_USER,
                                             RELAY_TOKEN_CONTROL};
    static char text[MAX_PIECES][256], word[256];
    reader r = {data, size};
    relay_model_token tokens[MAX_PIECES];
    uint8_t kind = read_byte(&r), options = read_byte(&r);
    uint32_t n = read_byte(&r) % (MAX_PIECES + 1);
    for (uint32_t i = 0; i < n; i++) {
        tokens[i].piece = read_text(&r, text[i]);
        uint8_t score = read_byte(&r);
        tokens[i].score = scores[score % (sizeof scores / sizeof *scores)];
        tokens[i].kind = kinds[score >> 6];
    }
    relay_tokenizer_spec spec = {.model = {.kind = RELAY_MODEL_UNIGRAM,
                                           .tokens = tokens,
                                           .n_tokens = n,
                                           .has_unk = options & 1,
                                           .unk_id = options >> 5,
                                           .byte_fallback = options & 2,
                                           .is_sentencepiece = options & 4,
                                           .continuing_subword_prefix = {"##", options & 8 ? 2 : 0},
                                           .max_input_chars_per_word = options & 16 ? 5 : UINT32_MAX}};
    relay_word_model *m = NULL;
    relay_code code = kind % 3 == 0   ? relay_unigram_create(&m, &spec, NULL)
                      : kind % 3 == 1 ? relay_wordpiece_create(&m, &spec, NULL)
                                      : relay_wordlevel_create(&m, &spec, NULL);
    if (code != RELAY_OK) return 0;
    void *work = m->work_create(m, size);
    while (r.size > 0) {
        relay_spec_str w = read_text(&r, word);
        if (w.len > 0) encode(m, work, w, n);
    }
    m->work_destroy(work);
    m->destroy(m);
    return 0;
}

size_t relay_fuzz_seed(size_t i, uint8_t *out, size_t cap) {
    static const char seeds[][96] = {
        "\x00\x01\x05\x05<unk>\x00\x01"
        "a\x01\x01"
        "b\x02\x02"
        "ab\x03\x04\xE2\x96\x81"
        "a\x03\x05"
        "abzab\x07\xE2\x96\x81"
        "a"
        "\xE2\x96\x81",
        "\x00\x03\x04\x05<unk>\x00\x06<0xC3>\x01\x06<0xA9>\x01\x01x\x03\x04x\xC3\xA9x\x04x\xC3\xA9x",
        "\x00\x05\x04\x05<unk>\xC0\x02"
        "ab\x81\x01"
        "a\x01\x01"
        "b\x05\x06"
        "ababab\x03"
        "aba",
        "\x01\x09\x05\x05[UNK]\x00\x04play\x00\x05##ing\x00\x03##i\x00\x01p\x00\x07playing\x05playi\x07playing",
        "\x02\x01\x02\x05<unk>\x00\x04play\x00\x04play\x03pla",
    };
    if (i >= sizeof seeds / sizeof *seeds) return 0;
    size_t n = sizeof seeds[i] < cap ? sizeof seeds[i] : cap;
    memcpy(out, seeds[i], n);
    return n;
}
