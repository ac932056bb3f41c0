#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/spec_vocab.h"

#define STR(text)                                                                                                      \
    { (text), sizeof(text) - 1 }
#define SP "\xE2\x96\x81" // U+2581

static relay_vocab *create(const relay_tokenizer_spec *spec) {
    relay_vocab *v = NULL;
    relay_err e = {0};
    if (relay_vocab_create_from_spec(&v, spec, &e) != RELAY_OK) fail_msg("%s", e.message);
    return v;
}

static void assert_token(const relay_vocab *v, uint32_t id, const char *bytes, relay_token_kind kind) {
    const relay_token *t = relay_vocab_token(v, id);
    if (t->len != strlen(bytes) || memcmp(t->bytes, bytes, t->len) != 0 || t->kind != kind)
        fail_msg("token %u is \"%.*s\" of kind %d", id, (int)t->len, t->bytes, t->kind);
}

static void byte_level_pieces_become_bytes(void **state) {
    relay_model_token tokens[] = {{STR("\xC4\xA0"
                                       "caf\xC3\x83\xC2\xA9"),
                                   0, RELAY_TOKEN_NORMAL},
                                  {STR("two words"), 0, RELAY_TOKEN_NORMAL},
                                  {{NULL, 0}, 0, 0},
                                  {STR("<|im_end|>"), 0, RELAY_TOKEN_NORMAL}};
    relay_added_token added[] = {{.content = STR("<|im_end|>"), .id = 3, .special = true},
                                 {.content = STR("<tool" SP ">"), .id = 5}};
    relay_tokenizer_spec spec = {
        .model = {.kind = RELAY_MODEL_BPE, .byte_alphabet = true, .tokens = tokens, .n_tokens = 4},
        .added = added,
        .n_added = 2,
        .n_ids = 8};
    relay_vocab *v = create(&spec);
    assert_int_equal(relay_vocab_size(v), 8);
    assert_token(v, 0, " caf\xC3\xA9", RELAY_TOKEN_NORMAL);
    assert_token(v, 1, "two words", RELAY_TOKEN_NORMAL);
    assert_token(v, 2, "", RELAY_TOKEN_PADDING);
    assert_token(v, 3, "<|im_end|>", RELAY_TOKEN_CONTROL);
    assert_token(v, 4, "", RELAY_TOKEN_PADDING);
    assert_token(v, 5, "<tool" SP ">", RELAY_TOKEN_USER);
    assert_token(v, 7, "", RELAY_TOKEN_PADDING);
    uint32_t id, n;
    assert_false(relay_vocab_find(v, "two words", 9, &id));
    assert_true(relay_vocab_eos(v, &n)[0] == 3 && n == 1);
    relay_vocab_destroy(v);
}

static void sentencepiece_pieces_have_spaces_and_bytes(void **state) {
    relay_model_token tokens[] = {{STR("<unk>"), 0, RELAY_TOKEN_NORMAL},
                                  {STR("<0x0A>"), 0, RELAY_TOKEN_NORMAL},
                                  {STR(SP "the" SP), 0, RELAY_TOKEN_NORMAL},
                                  {STR(SP SP), 0, RELAY_TOKEN_NORMAL}};
    relay_added_token added[] = {{.content = STR(SP SP), .id = 3}};
    relay_decoder_spec metaspace = {.kind = RELAY_DECODE_METASPACE, .content = STR(SP)};
    relay_decoder_spec replace = {.kind = RELAY_DECODE_REPLACE, .pattern = {.text = STR(SP)}, .content = STR(" ")};
    relay_tokenizer_spec spec = {.model = {.kind = RELAY_MODEL_UNIGRAM,
                                           .tokens = tokens,
                                           .n_tokens = 4,
                                           .has_unk = true,
                                           .unk_id = 0,
                                           .byte_fallback = true},
                                 .added = added,
                                 .n_added = 1,
                                 .decoders = &metaspace,
                                 .n_decoders = 1};
    for (int i = 0; i < 2; i++) {
        relay_vocab *v = create(&spec);
        assert_token(v, 0, "<unk>", RELAY_TOKEN_UNKNOWN);
        assert_token(v, 1, "\n", RELAY_TOKEN_BYTE);
        assert_token(v, 2, " the ", RELAY_TOKEN_NORMAL);
        assert_token(v, 3, "  ", RELAY_TOKEN_USER);
        relay_vocab_destroy(v);
        spec.decoders = &replace;
    }
    spec.model.byte_fallback = false;
    relay_vocab *v = create(&spec);
    assert_token(v, 1, "<0x0A>", RELAY_TOKEN_NORMAL); // it is text where no byte falls back
    relay_vocab_destroy(v);
}

static void words_have_their_spaces(void **state) {
    relay_model_token tokens[] = {{STR("play"), 0, RELAY_TOKEN_NORMAL}, {STR("##ing"), 0, RELAY_TOKEN_NORMAL}};
    relay_tokenizer_spec spec = {
        .model = {
            .kind = RELAY_MODEL_WORDPIECE, .tokens = tokens, .n_tokens = 2, .continuing_subword_prefix = STR("##")}};
    relay_vocab *v = create(&spec);
    assert_token(v, 0, " play", RELAY_TOKEN_NORMAL);
    assert_token(v, 1, "ing", RELAY_TOKEN_NORMAL);
    relay_vocab_destroy(v);

    tokens[0] = (relay_model_token){STR("play</w>"), 0, RELAY_TOKEN_NORMAL};
    tokens[1] = (relay_model_token){STR("play"), 0, RELAY_TOKEN_NORMAL};
    spec.model =
        (relay_model_spec){.kind = RELAY_MODEL_BPE, .tokens = tokens, .n_tokens = 2, .end_of_word_suffix = STR("</w>")};
    v = create(&spec);
    assert_token(v, 0, "play ", RELAY_TOKEN_NORMAL);
    assert_token(v, 1, "play", RELAY_TOKEN_NORMAL);
    relay_vocab_destroy(v);
}

// A GGUF file against plain data of the same vocabulary, as a tokenizer.json says it.
static void formats_of_one_vocabulary_have_one_fingerprint(void **state) {
    static const char *const control[] = {"<|endoftext|>", "<|fim_prefix|>", NULL};
    small_vocab file = small_vocab_make(&(small_vocab_spec){.control = control, .n_padding = 3});
    relay_model_token tokens[256];
    char pieces[256][4];
    for (uint32_t b = 0, next = 0x100; b < 256; b++) {
        bool is_printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
        uint32_t cp = is_printable ? b : next++;
        size_t n = 0;
        if (cp < 0x80) {
            pieces[b][n++] = (char)cp;
        } else {
            pieces[b][n++] = (char)(0xC0 | cp >> 6);
            pieces[b][n++] = (char)(0x80 | (cp & 0x3F));
        }
        tokens[b] = (relay_model_token){{pieces[b], (uint32_t)n}, 0, RELAY_TOKEN_NORMAL};
    }
    relay_added_token added[] = {{.content = STR("<|endoftext|>"), .id = 256, .special = true},
                                 {.content = STR("<|fim_prefix|>"), .id = 257}};
    relay_tokenizer_spec spec = {
        .model = {.kind = RELAY_MODEL_BPE, .byte_alphabet = true, .tokens = tokens, .n_tokens = 256},
        .added = added,
        .n_added = 2,
        .pad = {true, 256}};
    relay_vocab *v = create(&spec);
    assert_memory_equal(relay_vocab_fingerprint(v), relay_vocab_fingerprint(file.vocab), RELAY_FINGERPRINT_BYTES);
    relay_vocab_destroy(v);
    small_vocab_fini(&file);
}

static void assert_refused(const relay_tokenizer_spec *spec, const char *says) {
    relay_vocab *v = NULL;
    relay_err e = {0};
    assert_int_equal(relay_vocab_create_from_spec(&v, spec, &e), RELAY_INVALID_ARGUMENT);
    if (strstr(e.message, says) == NULL) fail_msg("expected \"%s\", got \"%s\"", says, e.message);
    assert_null(v);
}

static void ids_out_of_range_are_refused(void **state) {
    relay_model_token token = {STR("a"), 0, RELAY_TOKEN_NORMAL};
    relay_added_token added = {.content = STR("<x>"), .id = RELAY_VOCAB_MAX_TOKENS};
    relay_tokenizer_spec spec = {.model = {.kind = RELAY_MODEL_WORDLEVEL, .tokens = &token, .n_tokens = 1}};
    uint32_t end = 1;
    spec.added = &added;
    spec.n_added = 1;
    assert_refused(&spec, "added token 0 has id 4194304");
    spec.n_added = 0;
    spec.n_ids = UINT32_MAX;
    assert_refused(&spec, "4294967295 tokens");
    spec.n_ids = 0;
    spec.end_ids = &end;
    spec.n_end_ids = 1;
    assert_refused(&spec, "the end id is 1");
    spec.n_end_ids = 0;
    spec.eos = (relay_special_id){true, 7};
    assert_refused(&spec, "the end id is 7");
    spec.model.n_tokens = 0;
    assert_refused(&spec, "0 tokens");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_pieces_become_bytes),
        cmocka_unit_test(sentencepiece_pieces_have_spaces_and_bytes),
        cmocka_unit_test(words_have_their_spaces),
        cmocka_unit_test(formats_of_one_vocabulary_have_one_fingerprint),
        cmocka_unit_test(ids_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
