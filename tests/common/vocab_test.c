#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/vocab.h"
#include "tests/common/gguf_writer.h"

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 }; // as tokenizer.ggml.token_type has them
enum { MAX_TOKENS = 64, NO_ID = -1 };

#define ROOM    "\xC4\xA0"         // U+0120, a space in GPT-2's alphabet
#define NEWLINE "\xC4\x8A"         // U+010A
#define E_ACUTE "\xC3\x83\xC2\xA9" // the two bytes of U+00E9, each as the Latin-1 character that it is
#define SP      "\xE2\x96\x81"     // U+2581, a space in SentencePiece

typedef struct piece {
    const char *text;
    int32_t type;
} piece;

// What a vocabulary file is made of; ids of NO_ID are not written.
typedef struct source {
    const char *model;
    piece pieces[MAX_TOKENS];
    uint32_t n;
    int64_t bos, unk, pad, eos, eot, eom;
    bool is_reversed; // keys in the other order
} source;

static source byte_level_source(void) {
    return (source){
        .model = "gpt2",
        .pieces = {{"<|endoftext|>", CONTROL},
                   {"<|im_start|>", CONTROL},
                   {"<|im_end|>", CONTROL},
                   {"a", NORMAL},
                   {ROOM "b", NORMAL},
                   {"caf" E_ACUTE, NORMAL},
                   {NEWLINE, NORMAL},
                   {"<tool>", USER},
                   {"two words", NORMAL}, // a space is not of the alphabet: the piece stands for itself
                   {"im_end", NORMAL},
                   {"[PAD10]", UNUSED},
                   {"[PAD11]", USER}},
        .n = 12,
        .bos = 1,
        .unk = 0,
        .pad = 2,
        .eos = 2,
        .eot = NO_ID,
        .eom = NO_ID,
    };
}

static source sentencepiece_source(void) {
    return (source){
        .model = "llama",
        .pieces = {{"<unk>", UNKNOWN},
                   {"<s>", CONTROL},
                   {"</s>", CONTROL},
                   {"<0x0A>", BYTE},
                   {"<0x61>", BYTE},
                   {"<0x62>", BYTE},
                   {SP "the" SP "end", NORMAL},
                   {"a", NORMAL},
                   {" b", NORMAL},
                   {SP "b", NORMAL},
                   {SP SP, USER},
                   {"unused", UNUSED}},
        .n = 12,
        .bos = 1,
        .unk = 0,
        .pad = NO_ID,
        .eos = 2,
        .eot = NO_ID,
        .eom = NO_ID,
    };
}

static void write_special(gguf_writer *w, const source *s, uint32_t i) {
    const struct {
        const char *key;
        int64_t id;
    } special[] = {{"tokenizer.ggml.bos_token_id", s->bos},     {"tokenizer.ggml.unknown_token_id", s->unk},
                   {"tokenizer.ggml.padding_token_id", s->pad}, {"tokenizer.ggml.eos_token_id", s->eos},
                   {"tokenizer.ggml.eot_token_id", s->eot},     {"tokenizer.ggml.eom_token_id", s->eom}};
    if (special[i].id != NO_ID) gguf_writer_scalar(w, special[i].key, GGUF_INT64, &special[i].id);
}

static gguf_writer *write_source(const source *s) {
    const char *pieces[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    for (uint32_t i = 0; i < s->n; i++) {
        pieces[i] = s->pieces[i].text;
        types[i] = s->pieces[i].type;
    }
    gguf_writer *w = gguf_writer_create();
    for (uint32_t i = 0; i < 9; i++) {
        switch (s->is_reversed ? 8 - i : i) {
        case 0:
            gguf_writer_string(w, "tokenizer.ggml.model", s->model);
            break;
        case 1:
            gguf_writer_string_array(w, "tokenizer.ggml.tokens", pieces, s->n);
            break;
        case 2:
            gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_INT32, types, s->n);
            break;
        default:
            write_special(w, s, s->is_reversed ? 5 - i : i - 3);
        }
    }
    return w;
}

static relay_code load(relay_vocab **v, gguf_writer *w, relay_err *e) {
    size_t len;
    const uint8_t *bytes = gguf_writer_finish(w, &len);
    relay_gguf *g;
    relay_code code = relay_gguf_open_memory(&g, bytes, len, e);
    if (code == RELAY_OK) code = relay_vocab_load_gguf(v, g, e);
    relay_gguf_close(g);
    gguf_writer_destroy(w); // a vocabulary needs neither file nor object any more
    return code;
}

static relay_vocab *load_good(const source *s) {
    relay_vocab *v = NULL;
    relay_err e = {0};
    if (load(&v, write_source(s), &e) != RELAY_OK) fail_msg("%s", e.message);
    return v;
}

static void assert_token(const relay_vocab *v, uint32_t id, const char *bytes, relay_token_kind kind) {
    const relay_token *t = relay_vocab_token(v, id);
    if (t->len != strlen(bytes) || memcmp(t->bytes, bytes, t->len) != 0 || t->kind != kind)
        fail_msg("token %u is \"%.*s\", kind %d", id, (int)t->len, t->bytes, t->kind);
}

static int64_t find(const relay_vocab *v, const char *bytes) {
    uint32_t id;
    return relay_vocab_find(v, bytes, strlen(bytes), &id) ? (int64_t)id : NO_ID;
}

static int64_t find_special(const relay_vocab *v, const char *name) {
    uint32_t id;
    return relay_vocab_find_special(v, name, strlen(name), &id) ? (int64_t)id : NO_ID;
}

static void assert_eos(const relay_vocab *v, const uint32_t *ids, uint32_t n) {
    uint32_t count;
    const uint32_t *eos = relay_vocab_eos(v, &count);
    assert_int_equal(count, n);
    assert_memory_equal(eos, ids, n * sizeof *ids);
}

// ---- Tokens

static void byte_level_pieces_become_raw_bytes(void **state) {
    source s = byte_level_source();
    relay_vocab *v = load_good(&s);
    assert_int_equal(relay_vocab_size(v), 12);
    assert_int_equal(relay_vocab_max_token_bytes(v), strlen("<|endoftext|>"));
    assert_token(v, 2, "<|im_end|>", RELAY_TOKEN_CONTROL);
    assert_token(v, 3, "a", RELAY_TOKEN_NORMAL);
    assert_token(v, 4, " b", RELAY_TOKEN_NORMAL);
    assert_token(v, 5, "caf\xC3\xA9", RELAY_TOKEN_NORMAL);
    assert_token(v, 6, "\n", RELAY_TOKEN_NORMAL);
    assert_token(v, 7, "<tool>", RELAY_TOKEN_USER);
    assert_token(v, 8, "two words", RELAY_TOKEN_NORMAL);
    assert_token(v, 10, "[PAD10]", RELAY_TOKEN_PADDING);
    assert_token(v, 11, "[PAD11]", RELAY_TOKEN_PADDING);
    relay_vocab_destroy(v);
    relay_vocab_destroy(NULL);
}

static void text_and_special_names_are_found_apart(void **state) {
    source s = byte_level_source();
    relay_vocab *v = load_good(&s);
    assert_int_equal(find(v, " b"), 4);
    assert_int_equal(find(v, ROOM "b"), NO_ID);
    assert_int_equal(find(v, "caf\xC3\xA9"), 5);
    assert_int_equal(find(v, "<|im_end|>"), NO_ID);
    assert_int_equal(find(v, "<tool>"), NO_ID);
    assert_int_equal(find(v, ""), NO_ID);
    assert_int_equal(find_special(v, "<|im_end|>"), 2);
    assert_int_equal(find_special(v, "<tool>"), 7);
    assert_int_equal(find_special(v, "a"), NO_ID);
    assert_int_equal(find_special(v, "[PAD10]"), NO_ID);
    assert_int_equal(find_special(v, "[PAD11]"), NO_ID);
    relay_vocab_destroy(v);
}

static void a_piece_outside_the_alphabet_is_no_text(void **state) {
    source s = byte_level_source();
    relay_vocab *v = load_good(&s);
    assert_int_equal(find(v, "two words"), NO_ID);
    assert_int_equal(find_special(v, "two words"), NO_ID);
    relay_vocab_destroy(v);
    s.pieces[9].text = "two" ROOM "words"; // the same bytes, spelt in the alphabet
    v = load_good(&s);
    assert_token(v, 8, "two words", RELAY_TOKEN_NORMAL);
    assert_token(v, 9, "two words", RELAY_TOKEN_NORMAL);
    assert_int_equal(find(v, "two words"), 9);
    relay_vocab_destroy(v);
}

static void sentencepiece_pieces_have_spaces_and_bytes(void **state) {
    source s = sentencepiece_source();
    relay_vocab *v = load_good(&s);
    assert_token(v, 0, "<unk>", RELAY_TOKEN_UNKNOWN);
    assert_token(v, 3, "\n", RELAY_TOKEN_BYTE);
    assert_token(v, 6, " the end", RELAY_TOKEN_NORMAL);
    assert_token(v, 10, "  ", RELAY_TOKEN_USER);
    assert_token(v, 11, "unused", RELAY_TOKEN_PADDING);
    assert_int_equal(find(v, "\n"), 3);
    assert_int_equal(find(v, "a"), 7);  // the NORMAL token, though the BYTE token comes first
    assert_int_equal(find(v, "b"), 5);  // the BYTE token alone
    assert_int_equal(find(v, " b"), 8); // of two with one text the lowest
    assert_int_equal(find_special(v, "<unk>"), 0);
    relay_vocab_destroy(v);
}

static void a_trained_vocabulary_loads(void **state) {
    relay_gguf *g;
    relay_vocab *v;
    relay_err e = {0};
    if (relay_gguf_open(&g, "tests/data/stories260K.gguf", &e) != RELAY_OK) fail_msg("%s", e.message);
    if (relay_vocab_load_gguf(&v, g, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_gguf_close(g);
    assert_int_equal(relay_vocab_size(v), 512);
    assert_int_equal(relay_vocab_max_token_bytes(v), 7);
    for (uint32_t b = 0; b < 256; b++) {
        assert_int_equal(relay_vocab_token(v, 3 + b)->kind, RELAY_TOKEN_BYTE);
        assert_int_equal(relay_vocab_token(v, 3 + b)->len, 1);
        assert_int_equal((uint8_t)relay_vocab_token(v, 3 + b)->bytes[0], b);
    }
    assert_token(v, 265, " the", RELAY_TOKEN_NORMAL);
    assert_int_equal(find(v, " there"), 383);
    assert_eos(v, (uint32_t[]){2}, 1);
    uint32_t id;
    assert_true(relay_vocab_bos(v, &id) && id == 1);
    assert_true(relay_vocab_unk(v, &id) && id == 0);
    assert_false(relay_vocab_pad(v, &id));
    // By tests/golden/vocab_fingerprint.py.
    static const char expected[] = "e10308919fedf84af1f8af252ae3eb52cc4093c8e9dcb0bfbd00c5f2e956c642";
    char hex[2 * RELAY_FINGERPRINT_BYTES + 1];
    for (size_t i = 0; i < RELAY_FINGERPRINT_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", relay_vocab_fingerprint(v)[i]);
    assert_string_equal(hex, expected);
    relay_vocab_destroy(v);
}

// ---- Special ids

static void special_ids_are_those_of_the_file(void **state) {
    source s = byte_level_source();
    relay_vocab *v = load_good(&s);
    uint32_t id;
    assert_true(relay_vocab_bos(v, &id) && id == 1);
    assert_true(relay_vocab_unk(v, &id) && id == 0);
    assert_true(relay_vocab_pad(v, &id) && id == 2);
    relay_vocab_destroy(v);
    s.bos = s.unk = s.pad = NO_ID;
    v = load_good(&s);
    id = 99;
    assert_false(relay_vocab_bos(v, &id) || relay_vocab_unk(v, &id) || relay_vocab_pad(v, &id));
    assert_int_equal(id, 99);
    relay_vocab_destroy(v);
}

static void an_answer_ends_by_key_or_by_known_name(void **state) {
    source s = byte_level_source();
    s.eos = 4; // a token of text, because the file says so
    s.eot = 7;
    s.eom = 2;
    relay_vocab *v = load_good(&s);
    assert_eos(v, (uint32_t[]){0, 2, 4, 7}, 4); // <|endoftext|> and <|im_end|> by their names
    relay_vocab_destroy(v);

    s = byte_level_source();
    s.eos = NO_ID;
    s.pieces[2].type = NORMAL; // text of that name ends nothing
    s.pieces[0].type = NORMAL;
    v = load_good(&s);
    assert_eos(v, NULL, 0);
    relay_vocab_destroy(v);
    s.pieces[0].type = USER; // a name does, however it is marked
    v = load_good(&s);
    assert_eos(v, (uint32_t[]){0}, 1);
    relay_vocab_destroy(v);
}

static void in_harmony_the_end_of_a_message_is_not_the_end(void **state) {
    source s = byte_level_source();
    s.eos = NO_ID;
    s.pieces[0].text = "<|end|>";
    s.pieces[1].text = "<|return|>";
    relay_vocab *v = load_good(&s);
    assert_eos(v, (uint32_t[]){0, 1, 2}, 3);
    relay_vocab_destroy(v);
    s.pieces[2].text = "<|call|>";
    v = load_good(&s);
    assert_eos(v, (uint32_t[]){1, 2}, 2);
    relay_vocab_destroy(v);
    s.eos = 0; // but what the file says counts
    v = load_good(&s);
    assert_eos(v, (uint32_t[]){0, 1, 2}, 3);
    relay_vocab_destroy(v);
}

// ---- The fingerprint

static bool same_fingerprint(const source *a, const source *b) {
    relay_vocab *x = load_good(a), *y = load_good(b);
    bool same = memcmp(relay_vocab_fingerprint(x), relay_vocab_fingerprint(y), RELAY_FINGERPRINT_BYTES) == 0;
    relay_vocab_destroy(x);
    relay_vocab_destroy(y);
    return same;
}

static void the_fingerprint_does_not_depend_on_padding_or_the_order_of_keys(void **state) {
    source a = byte_level_source(), b = a;
    b.is_reversed = true;
    assert_true(same_fingerprint(&a, &b));
    b.n = 10; // no padding at all
    assert_true(same_fingerprint(&a, &b));
    b.n = 14;
    b.pieces[12] = (piece){"[PAD12]", UNUSED};
    b.pieces[13] = (piece){"anything", UNUSED};
    assert_true(same_fingerprint(&a, &b));
}

static void the_fingerprint_is_of_the_table_and_not_of_the_format(void **state) {
    source a = {.model = "gpt2",
                .pieces = {{"<s>", CONTROL}, {"</s>", CONTROL}, {"the", NORMAL}, {ROOM "end", NORMAL}},
                .n = 4,
                .bos = 0,
                .unk = NO_ID,
                .pad = NO_ID,
                .eos = 1,
                .eot = NO_ID,
                .eom = NO_ID};
    source b = a;
    b.model = "llama";
    b.pieces[3].text = SP "end";
    assert_true(same_fingerprint(&a, &b));
    b.model = "t5";
    assert_true(same_fingerprint(&a, &b));
    b.model = "gemma4";
    assert_true(same_fingerprint(&a, &b));
    b = a;
    b.eos = NO_ID; // ends an answer by its name
    assert_true(same_fingerprint(&a, &b));
    // What depends on who wrote the file.
    b = a;
    b.bos = NO_ID;
    b.unk = b.pad = 0;
    assert_true(same_fingerprint(&a, &b));
    a.pieces[0] = (piece){"<" SP "x>", CONTROL};
    b.pieces[0] = (piece){"< x>", USER};
    assert_true(same_fingerprint(&a, &b));
}

static void word_pieces_have_the_space_before_a_word(void **state) {
    source s = {.model = "bert",
                .pieces = {{"[UNK]", UNKNOWN}, {"[CLS]", CONTROL}, {SP "play", NORMAL}, {"ing", NORMAL}},
                .n = 4,
                .bos = NO_ID,
                .unk = 0,
                .pad = NO_ID,
                .eos = NO_ID,
                .eot = NO_ID,
                .eom = NO_ID};
    relay_vocab *v = load_good(&s);
    assert_token(v, 2, " play", RELAY_TOKEN_NORMAL);
    assert_token(v, 3, "ing", RELAY_TOKEN_NORMAL);
    assert_eos(v, NULL, 0);
    relay_vocab_destroy(v);
}

// ---- From plain data

static void plain_data_and_a_file_give_one_vocabulary(void **state) {
    source s = sentencepiece_source();
    relay_vocab *of_file = load_good(&s), *v = NULL;
    const relay_vocab_entry tokens[] = {
        {"<unk>", 5, RELAY_TOKEN_UNKNOWN, false},   {"<s>", 3, RELAY_TOKEN_CONTROL, false},
        {"</s>", 4, RELAY_TOKEN_CONTROL, false},    {"\n", 1, RELAY_TOKEN_BYTE, false},
        {"a", 1, RELAY_TOKEN_BYTE, false},          {"b", 1, RELAY_TOKEN_BYTE, false},
        {" the end", 8, RELAY_TOKEN_NORMAL, false}, {"a", 1, RELAY_TOKEN_NORMAL, false},
        {" b", 2, RELAY_TOKEN_NORMAL, false},       {" b", 2, RELAY_TOKEN_NORMAL, false},
        {"  ", 2, RELAY_TOKEN_USER, false}};
    const uint32_t ends[] = {2, 2};
    const relay_vocab_table table = {.tokens = tokens, .size = 11, .bos = {true, 1}, .end_ids = ends, .n_end_ids = 2};
    relay_err e = {0};
    if (relay_vocab_create(&v, &table, &e) != RELAY_OK) fail_msg("%s", e.message);
    assert_memory_equal(relay_vocab_fingerprint(v), relay_vocab_fingerprint(of_file), RELAY_FINGERPRINT_BYTES);
    assert_eos(v, (uint32_t[]){2}, 1);
    uint32_t id;
    assert_true(relay_vocab_bos(v, &id) && id == 1);
    assert_false(relay_vocab_unk(v, &id));
    assert_int_equal(find(v, "a"), 7);
    relay_vocab_destroy(v);
    relay_vocab_destroy(of_file);
}

static void an_empty_token_and_an_unreachable_one_are_not_found(void **state) {
    const relay_vocab_entry tokens[] = {{"", 0, RELAY_TOKEN_NORMAL, false},
                                        {"x", 1, RELAY_TOKEN_NORMAL, true},
                                        {NULL, 0, RELAY_TOKEN_PADDING, false},
                                        {"<x>", 3, RELAY_TOKEN_CONTROL, true}};
    relay_vocab *v = NULL;
    relay_err e = {0};
    if (relay_vocab_create(&v, &(relay_vocab_table){.tokens = tokens, .size = 4}, &e) != RELAY_OK)
        fail_msg("%s", e.message);
    uint32_t id;
    assert_false(relay_vocab_find(v, "", 0, &id));
    assert_false(relay_vocab_find(v, "x", 1, &id));
    assert_int_equal(find_special(v, "<x>"), 3);
    relay_vocab_destroy(v);
}

static void assert_table_refused(const relay_vocab_table *table, const char *says) {
    relay_vocab *v = NULL;
    relay_err e = {0};
    assert_int_equal(relay_vocab_create(&v, table, &e), RELAY_INVALID_ARGUMENT);
    if (strstr(e.message, says) == NULL) fail_msg("expected \"%s\", got \"%s\"", says, e.message);
    assert_null(v);
}

static void tables_out_of_range_are_refused(void **state) {
    relay_vocab_entry token = {"a", 1, RELAY_TOKEN_NORMAL, false};
    const uint32_t ends[] = {0, 1};
    assert_table_refused(&(relay_vocab_table){0}, "vocabulary: 0 tokens");
    assert_table_refused(&(relay_vocab_table){.tokens = &token, .size = 1, .unk = {true, 1}}, "the unk id is 1");
    assert_table_refused(&(relay_vocab_table){.tokens = &token, .size = 1, .end_ids = ends, .n_end_ids = 2},
                         "the end id is 1");
    token.len = RELAY_VOCAB_MAX_TOKEN_BYTES + 1;
    assert_table_refused(&(relay_vocab_table){.tokens = &token, .size = 1}, "token 0 has 65537 bytes");
}

static void every_change_that_means_something_changes_the_fingerprint(void **state) {
    source a = byte_level_source(), b;
    enum { CHANGES = 7 };
    for (int i = 0; i < CHANGES; i++) {
        b = a;
        switch (i) {
        case 0:
            b.pieces[3].text = "A";
            break;
        case 1:
            b.pieces[3].text = "aa";
            break;
        case 2:
            b.pieces[7].type = NORMAL;
            break;
        case 3: // two tokens change places
            b.pieces[3] = a.pieces[6];
            b.pieces[6] = a.pieces[3];
            break;
        case 4:
            b.pieces[9].type = UNUSED;
            break;
        case 5:
            b.eos = 1;
            break;
        default:
            b.pieces[10] = (piece){"real", NORMAL};
        }
        if (same_fingerprint(&a, &b)) fail_msg("change %d", i);
    }
    // Bytes that move from one token to the next.
    a.pieces[3].text = "ab";
    a.pieces[4].text = "c";
    b = a;
    b.pieces[3].text = "a";
    b.pieces[4].text = "bc";
    assert_false(same_fingerprint(&a, &b));
}

// ---- What is refused

static void assert_refused(gguf_writer *w, relay_code code, const char *says) {
    relay_vocab *v = NULL;
    relay_err e = {0};
    relay_code got = load(&v, w, &e);
    if (got != code || strstr(e.message, says) == NULL)
        fail_msg("expected %s \"%s\", got %s \"%s\"", relay_code_name(code), says, relay_code_name(got), e.message);
    assert_null(v);
}

static void assert_source_refused(const source *s, const char *says) {
    assert_refused(write_source(s), RELAY_INVALID_ARGUMENT, says);
}

static void wrong_vocabularies_are_refused_by_key_and_value(void **state) {
    const source good = byte_level_source();
    source s = good;
    s.model = "rwkv";
    assert_refused(write_source(&s), RELAY_UNIMPLEMENTED, "key \"tokenizer.ggml.model\" is \"rwkv\"");
    s = good;
    s.n = 0;
    s.bos = s.unk = s.pad = s.eos = NO_ID;
    assert_source_refused(&s, "key \"tokenizer.ggml.tokens\" has 0 tokens");
    s = good;
    s.pieces[9] = s.pieces[3];
    assert_source_refused(&s, "key \"tokenizer.ggml.tokens\": tokens 3 and 9 are both \"a\"");
    s = good;
    s.pieces[9].text = "<|im_end|>"; // a duplicate of another kind
    assert_source_refused(&s, "tokens 2 and 9 are both \"<|im_end|>\"");
    s = good;
    s.pieces[4].text = "";
    assert_source_refused(&s, "key \"tokenizer.ggml.tokens\": token 4 has 0 bytes");
    static const int32_t types[] = {0, 7, -1, INT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char says[96];
        snprintf(says, sizeof says, "key \"tokenizer.ggml.token_type\": token 5 has type %d; it must be 1 to 6",
                 types[i]);
        s = good;
        s.pieces[5].type = types[i];
        assert_source_refused(&s, says);
    }
    static const char *const no_bytes[] = {"0x0A", "<0x0>", "<0x0A", "<0xG0>", "<0x1G>", "<0x0A)", "<0x0A> ", "<1x0A>"};
    for (size_t i = 0; i < sizeof no_bytes / sizeof *no_bytes; i++) {
        s = sentencepiece_source();
        s.pieces[3].text = no_bytes[i];
        assert_source_refused(&s, "key \"tokenizer.ggml.tokens\": byte token 3 is \"");
    }
}

static void special_ids_out_of_range_are_refused(void **state) {
    source s = byte_level_source();
    static const char *const names[] = {"bos", "unknown", "padding", "eos", "eot", "eom"};
    for (size_t i = 0; i < 6; i++) {
        int64_t *ids[] = {&s.bos, &s.unk, &s.pad, &s.eos, &s.eot, &s.eom};
        s = byte_level_source();
        char says[96];
        snprintf(says, sizeof says, "key \"tokenizer.ggml.%s_token_id\" is 12; it must be from 0 to 11", names[i]);
        *ids[i] = 12;
        assert_source_refused(&s, says);
        *ids[i] = -2;
        snprintf(says, sizeof says, "key \"tokenizer.ggml.%s_token_id\" is -2", names[i]);
        assert_source_refused(&s, says);
    }
}

static void keys_that_are_missing_or_of_another_type_are_named(void **state) {
    static const char *const tokens[] = {"a", "b"};
    static const int32_t types[] = {1, 1, 1};
    for (int i = 0; i < 7; i++) {
        static const char *const says[] = {
            "key \"tokenizer.ggml.model\" is missing",
            "key \"tokenizer.ggml.tokens\" has 0 tokens",
            "key \"tokenizer.ggml.token_type\" has 0 entries for 2 tokens",
            "key \"tokenizer.ggml.token_type\" has 1 entries for 2 tokens",
            "key \"tokenizer.ggml.token_type\" has 3 entries for 2 tokens",
            "key \"tokenizer.ggml.tokens\" is an array of int32; it must be an array of strings",
            "key \"tokenizer.ggml.model\" is of type uint32; it must be a string",
        };
        gguf_writer *w = gguf_writer_create();
        if (i == 6)
            gguf_writer_u32(w, "tokenizer.ggml.model", 1);
        else if (i != 0)
            gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
        if (i == 5)
            gguf_writer_array(w, "tokenizer.ggml.tokens", GGUF_INT32, types, 2);
        else if (i != 1)
            gguf_writer_string_array(w, "tokenizer.ggml.tokens", tokens, 2);
        if (i == 3)
            gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_INT32, types, 1);
        else if (i == 4)
            gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_INT32, types, 3);
        else if (i != 2)
            gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_INT32, types, 2);
        assert_refused(w, RELAY_INVALID_ARGUMENT, says[i]);
    }
}

// ---- Size

static void a_large_vocabulary_loads_in_time_linear_in_its_size(void **state) {
    enum { N = 150000, PIECE = 12 };
    char *text = calloc(N, PIECE);
    const char **pieces = calloc(N, sizeof *pieces);
    int32_t *types = calloc(N, sizeof *types);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(text + (size_t)i * PIECE, PIECE, "t%u", i);
        pieces[i] = text + (size_t)i * PIECE;
        types[i] = NORMAL;
    }
    gguf_writer *w = gguf_writer_create();
    gguf_writer_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_string_array(w, "tokenizer.ggml.tokens", pieces, N);
    gguf_writer_string_array(w, "tokenizer.ggml.merges", pieces, N);
    gguf_writer_array(w, "tokenizer.ggml.token_type", GGUF_INT32, types, N);
    relay_vocab *v = NULL;
    relay_err e = {0};
    relay_mono_us start = relay_mono_now();
    if (load(&v, w, &e) != RELAY_OK) fail_msg("%s", e.message);
    // Tens of milliseconds when built for speed; a quadratic one would take minutes.
    assert_true(relay_mono_now() - start < 5 * 1000 * 1000);
    for (uint32_t i = 0; i < N; i += 997)
        assert_int_equal(find(v, pieces[i]), i);
    relay_vocab_destroy(v);
    free(text);
    free(pieces);
    free(types);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_pieces_become_raw_bytes),
        cmocka_unit_test(text_and_special_names_are_found_apart),
        cmocka_unit_test(a_piece_outside_the_alphabet_is_no_text),
        cmocka_unit_test(sentencepiece_pieces_have_spaces_and_bytes),
        cmocka_unit_test(a_trained_vocabulary_loads),
        cmocka_unit_test(word_pieces_have_the_space_before_a_word),
        cmocka_unit_test(plain_data_and_a_file_give_one_vocabulary),
        cmocka_unit_test(an_empty_token_and_an_unreachable_one_are_not_found),
        cmocka_unit_test(tables_out_of_range_are_refused),
        cmocka_unit_test(special_ids_are_those_of_the_file),
        cmocka_unit_test(an_answer_ends_by_key_or_by_known_name),
        cmocka_unit_test(in_harmony_the_end_of_a_message_is_not_the_end),
        cmocka_unit_test(the_fingerprint_does_not_depend_on_padding_or_the_order_of_keys),
        cmocka_unit_test(the_fingerprint_is_of_the_table_and_not_of_the_format),
        cmocka_unit_test(every_change_that_means_something_changes_the_fingerprint),
        cmocka_unit_test(wrong_vocabularies_are_refused_by_key_and_value),
        cmocka_unit_test(special_ids_out_of_range_are_refused),
        cmocka_unit_test(keys_that_are_missing_or_of_another_type_are_named),
        cmocka_unit_test(a_large_vocabulary_loads_in_time_linear_in_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
