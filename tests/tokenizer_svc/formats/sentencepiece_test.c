// SentencePiece models: what each kind becomes, and broken files, each refused with what is wrong and where.
#include "tokenizer_svc/formats/sentencepiece.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/buf.h"
#include "common/pb_wire.h"

#define SPACE "\xE2\x96\x81"

enum { UNIGRAM = 1, BPE, WORD, CHAR };
enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };
enum { NO = 1, YES = 2 };

typedef struct piece {
    const char *text; // NULL: the field is left out
    int type;         // 0: the field is left out
    float score;
} piece;

// A model as its fields; what is NULL or 0 is left out.
typedef struct model {
    piece pieces[8]; // up to one of all zeros
    int n_pieces;    // else counted
    bool all_bytes;
    int model_type, byte_fallback, suffix;
    const char *bos;
    const char *charsmap;
    int dummy_prefix, extra_whitespaces, escape;
    const char *denormalizer;
    const char *tail; // raw bytes behind it all
} model;

static void put_float(relay_buf *b, uint32_t number, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint8_t raw[5] = {(uint8_t)(number << 3 | 5), bits & 0xFF, bits >> 8 & 0xFF, bits >> 16 & 0xFF, bits >> 24};
    relay_buf_append(b, raw, sizeof raw);
}

static void put_text(relay_buf *b, uint32_t number, const char *s) {
    if (s != NULL) relay_pb_put_bytes(b, number, s, strlen(s));
}

static void put_flag(relay_buf *b, uint32_t number, int value) {
    if (value != 0) relay_pb_put_varint(b, number, value == YES);
}

static void put_message(relay_buf *b, uint32_t number, relay_buf *message) {
    relay_pb_put_bytes(b, number, message->data, message->len);
    relay_buf_fini(message);
}

static void put_piece(relay_buf *b, const piece *p) {
    relay_buf m;
    relay_buf_init(&m, 1 << 20);
    put_text(&m, 1, p->text);
    put_float(&m, 2, p->score);
    if (p->type != 0) relay_pb_put_varint(&m, 3, (uint64_t)p->type);
    put_message(b, 1, &m);
}

static void write_model(relay_buf *b, const model *m) {
    relay_buf_init(b, 1 << 24);
    for (int i = 0; i < 8 && (m->n_pieces == 0 ? m->pieces[i].text != NULL : i < m->n_pieces); i++)
        put_piece(b, &m->pieces[i]);
    for (int byte = 0; byte < 256 && m->all_bytes; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        put_piece(b, &(piece){name, BYTE, 0});
    }
    relay_buf trainer, normalizer, denormalizer;
    relay_buf_init(&trainer, 1 << 20);
    if (m->model_type != 0) relay_pb_put_varint(&trainer, 3, (uint64_t)m->model_type);
    put_flag(&trainer, 24, m->suffix);
    put_flag(&trainer, 35, m->byte_fallback);
    put_text(&trainer, 46, m->bos);
    put_message(b, 2, &trainer);
    relay_buf_init(&normalizer, 1 << 20);
    put_text(&normalizer, 2, m->charsmap);
    put_flag(&normalizer, 3, m->dummy_prefix);
    put_flag(&normalizer, 4, m->extra_whitespaces);
    put_flag(&normalizer, 5, m->escape);
    put_message(b, 3, &normalizer);
    relay_buf_init(&denormalizer, 1 << 20);
    put_text(&denormalizer, 2, m->denormalizer);
    put_message(b, 5, &denormalizer);
    if (m->tail != NULL) relay_buf_append(b, m->tail, strlen(m->tail));
}

// The strings of *spec point into *b.
static relay_code read_model(relay_tokenizer_spec *spec, relay_buf *b, const model *m, relay_err *e) {
    write_model(b, m);
    *spec = (relay_tokenizer_spec){0};
    relay_arena_init(&spec->arena, SIZE_MAX / 2);
    return relay_sentencepiece_read(spec, b->data, b->len, e);
}

static relay_tokenizer_spec read_good(relay_buf *b, const model *m) {
    relay_tokenizer_spec spec;
    relay_err e;
    if (read_model(&spec, b, m, &e) != RELAY_OK) fail_msg("%s", e.message);
    assert_true(relay_sentencepiece_is(b->data, b->len));
    return spec;
}

static void assert_text(relay_spec_str s, const char *text) {
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.s, text, s.len);
}

#define SPECIAL                                                                                                        \
    {"<unk>", UNKNOWN}, {"<s>", CONTROL}, {                                                                            \
        "</s>", CONTROL                                                                                                \
    }

static void bpe_joins_by_score(void **state) {
    relay_buf b;
    relay_tokenizer_spec s = read_good(&b, &(model){
                                               .pieces = {SPECIAL, {"[TOOL]", USER}, {"a", 0, -0.5f}},
                                               .all_bytes = true,
                                               .model_type = BPE,
                                               .byte_fallback = YES,
                                               .extra_whitespaces = NO,
                                           });
    assert_int_equal(s.model.kind, RELAY_MODEL_BPE);
    assert_int_equal(s.model.order, RELAY_BPE_BY_SCORE);
    assert_true(s.model.byte_fallback && s.model.fuse_unk && s.model.has_unk);
    assert_int_equal(s.model.n_tokens, 261);
    assert_int_equal(s.n_ids, 261);
    assert_true(s.model.tokens[4].score == -0.5f);
    assert_int_equal(s.model.tokens[4].kind, RELAY_TOKEN_NORMAL); // where a piece has no type
    // A user-defined piece is the model's to find; names are found where the caller says so.
    assert_int_equal(s.model.tokens[3].kind, RELAY_TOKEN_USER);
    assert_int_equal(s.n_added, 3);
    assert_true(s.added[0].special && s.added[2].special);
    assert_true(s.bos.is_set && s.bos.id == 1);
    assert_true(s.eos.is_set && s.eos.id == 2);
    assert_false(s.pad.is_set);
    assert_int_equal(s.n_post, 0);
    assert_int_equal(s.n_normalizers, 2);
    assert_int_equal(s.normalizers[0].kind, RELAY_NORMALIZE_PREPEND);
    assert_text(s.normalizers[0].content, SPACE);
    assert_int_equal(s.decoders[s.n_decoders - 1].strip_begin, 1);
    relay_tokenizer_spec_fini(&s);
    relay_buf_fini(&b);
}

static void unigram_has_all_of_the_normalizer(void **state) {
    relay_buf b;
    relay_tokenizer_spec s = read_good(&b, &(model){
                                               .pieces = {SPECIAL, {"a", NORMAL, -1}, {"spare", UNUSED}},
                                               .charsmap = "MAP",
                                               .bos = "</s>",
                                           });
    assert_int_equal(s.model.kind, RELAY_MODEL_UNIGRAM); // the default
    assert_null(s.model.tokens[4].piece.s);
    assert_int_equal(s.bos.id, 2);
    assert_int_equal(s.n_normalizers, 4);
    assert_int_equal(s.normalizers[0].kind, RELAY_NORMALIZE_PRECOMPILED);
    assert_true(s.normalizers[0].by_longest_prefix);
    assert_text(s.normalizers[0].content, "MAP");
    assert_int_equal(s.normalizers[1].kind, RELAY_NORMALIZE_EXTRA_WHITESPACE);
    assert_int_equal(s.normalizers[2].kind, RELAY_NORMALIZE_PREPEND);
    assert_int_equal(s.normalizers[3].kind, RELAY_NORMALIZE_REPLACE);
    relay_tokenizer_spec_fini(&s);
    relay_buf_fini(&b);
}

static void a_suffix_is_appended_and_spaces_may_stay(void **state) {
    relay_buf b;
    relay_tokenizer_spec s = read_good(
        &b, &(model){.pieces = {SPECIAL}, .model_type = CHAR, .suffix = YES, .extra_whitespaces = NO, .escape = NO});
    assert_int_equal(s.model.kind, RELAY_MODEL_BPE);
    assert_int_equal(s.n_normalizers, 1);
    assert_int_equal(s.normalizers[0].kind, RELAY_NORMALIZE_APPEND);
    assert_text(s.normalizers[0].content, " ");
    assert_int_equal(s.n_decoders, 1);
    relay_tokenizer_spec_fini(&s);
    relay_buf_fini(&b);
}

static void words_are_looked_up_whole(void **state) {
    relay_buf b;
    relay_tokenizer_spec s =
        read_good(&b, &(model){.pieces = {SPECIAL, {SPACE "a", NORMAL}}, .model_type = WORD, .dummy_prefix = NO});
    assert_int_equal(s.model.kind, RELAY_MODEL_WORDLEVEL);
    assert_int_equal(s.n_pretokenizers, 1);
    assert_int_equal(s.pretokenizers[0].kind, RELAY_PRETOKENIZE_METASPACE);
    assert_int_equal(s.pretokenizers[0].prepend_scheme, RELAY_PREPEND_NEVER);
    relay_tokenizer_spec_fini(&s);
    relay_buf_fini(&b);
}

// ---- Broken files

typedef struct broken {
    model m;
    relay_code code;
    const char *message;
} broken;

static const broken broken_files[] = {
    {{.n_pieces = 0}, RELAY_INVALID_ARGUMENT, "pieces: there are 0; there must be 1 to"},
    {{.pieces = {SPECIAL}, .tail = "\x0A\x7F"}, RELAY_INVALID_ARGUMENT, "model: malformed protobuf"},
    {{.pieces = {SPECIAL}, .tail = "\x0B"}, RELAY_INVALID_ARGUMENT, "model: malformed protobuf"},
    {{.pieces = {SPECIAL}, .tail = "\x0A\x02\x0A\x05"}, RELAY_INVALID_ARGUMENT, "pieces[3]: malformed protobuf"},
    {{.pieces = {SPECIAL}, .tail = "\x12\x01\x18"}, RELAY_INVALID_ARGUMENT, "trainer_spec: malformed protobuf"},
    {{.pieces = {SPECIAL}, .tail = "\x1A\x02\x12\x09"}, RELAY_INVALID_ARGUMENT, "normalizer_spec: malformed protobuf"},
    {{.pieces = {SPECIAL}, .tail = "\x08\x05"}, RELAY_INVALID_ARGUMENT, "pieces[3]: malformed protobuf"},
    {{.n_pieces = 4, .pieces = {SPECIAL, {NULL, NORMAL}}}, RELAY_INVALID_ARGUMENT, "pieces[3].piece has 0 bytes"},
    {{.pieces = {SPECIAL, {"a\xFF", NORMAL}}}, RELAY_INVALID_ARGUMENT, "pieces[3].piece is not valid UTF-8"},
    {{.pieces = {SPECIAL, {"a", 7}}}, RELAY_INVALID_ARGUMENT, "pieces[3].type is 7; it must be 1 to 6"},
    {{.pieces = {SPECIAL, {"a", NORMAL, INFINITY}}}, RELAY_INVALID_ARGUMENT, "pieces[3].score is no finite number"},
    {{.pieces = {SPECIAL, {"<s>", NORMAL}}},
     RELAY_INVALID_ARGUMENT,
     "pieces[3].piece is \"<s>\", as that of pieces[1]"},
    {{.pieces = {{"a", NORMAL}}}, RELAY_INVALID_ARGUMENT, "pieces: none is of type unknown"},
    {{.pieces = {SPECIAL, {"<u>", UNKNOWN}}}, RELAY_INVALID_ARGUMENT, "pieces[3] is of type unknown, as pieces[0] is"},
    {{.pieces = {SPECIAL}, .model_type = 5}, RELAY_INVALID_ARGUMENT, "trainer_spec.model_type is 5; it must be 1 to 4"},
    {{.pieces = {SPECIAL}, .byte_fallback = YES},
     RELAY_INVALID_ARGUMENT,
     "byte_fallback is true, and there are no byte"},
    {{.pieces = {SPECIAL, {"<0x00>", BYTE}}, .byte_fallback = YES}, RELAY_INVALID_ARGUMENT, "none is <0x01>"},
    {{.pieces = {SPECIAL, {"<0xG0>", BYTE}}, .byte_fallback = YES},
     RELAY_INVALID_ARGUMENT,
     "pieces[3]: the byte token is"},
    {{.pieces = {SPECIAL, {"a", UNUSED}}, .model_type = BPE}, RELAY_UNIMPLEMENTED, "pieces[3] is of type unused"},
    {{.pieces = {SPECIAL}, .model_type = WORD, .suffix = YES},
     RELAY_UNIMPLEMENTED,
     "treat_whitespace_as_suffix is true"},
    {{.pieces = {SPECIAL}, .model_type = WORD, .escape = NO}, RELAY_UNIMPLEMENTED, "escape_whitespaces is false"},
    {{.pieces = {SPECIAL}, .denormalizer = "MAP"}, RELAY_UNIMPLEMENTED, "denormalizer_spec.precompiled_charsmap"},
};

static void broken_files_are_refused_with_what_and_where(void **state) {
    for (size_t i = 0; i < sizeof broken_files / sizeof *broken_files; i++) {
        const broken *f = &broken_files[i];
        relay_tokenizer_spec spec;
        relay_buf b;
        relay_err e = {0};
        relay_code code = read_model(&spec, &b, &f->m, &e);
        if (code != f->code || strstr(e.message, f->message) == NULL)
            fail_msg("file %zu: %s \"%s\", expected \"%s\"", i, relay_code_name(code), e.message, f->message);
        relay_tokenizer_spec_fini(&spec);
        relay_buf_fini(&b);
    }
}

static void other_files_are_not_taken_for_one(void **state) {
    assert_false(relay_sentencepiece_is("", 0));
    assert_false(relay_sentencepiece_is("{\"a\": 1}", 8));
    assert_false(relay_sentencepiece_is("IQ== 0\n", 7));
    assert_false(relay_sentencepiece_is("\n\n\n\n", 4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bpe_joins_by_score),
        cmocka_unit_test(unigram_has_all_of_the_normalizer),
        cmocka_unit_test(a_suffix_is_appended_and_spaces_may_stay),
        cmocka_unit_test(words_are_looked_up_whole),
        cmocka_unit_test(broken_files_are_refused_with_what_and_where),
        cmocka_unit_test(other_files_are_not_taken_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
