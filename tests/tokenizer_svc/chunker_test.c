#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tokenizer_svc/chunker.h"

#define STR(s)                                                                                                         \
    { (s), sizeof(s) - 1 }

static relay_normalizer_spec bert = {
    .kind = RELAY_NORMALIZE_BERT, .clean_text = true, .handle_chinese_chars = true, .lowercase = true};
static relay_normalizer_spec charsmap = {.kind = RELAY_NORMALIZE_PRECOMPILED};
static relay_pretokenizer_spec bert_words = {.kind = RELAY_PRETOKENIZE_BERT};
static relay_pretokenizer_spec blanks[] = {
    {.kind = RELAY_PRETOKENIZE_WHITESPACE_SPLIT},
    {.kind = RELAY_PRETOKENIZE_METASPACE, .content = STR("\xE2\x96\x81"), .prepend_scheme = RELAY_PREPEND_ALWAYS}};

static relay_tokenizer_spec bert_spec(void) {
    return (relay_tokenizer_spec){
        .normalizers = &bert, .n_normalizers = 1, .pretokenizers = &bert_words, .n_pretokenizers = 1};
}

static relay_tokenizer_spec t5_spec(void) {
    return (relay_tokenizer_spec){
        .normalizers = &charsmap, .n_normalizers = 1, .pretokenizers = blanks, .n_pretokenizers = 2};
}

// The chunks, each with "|" behind it.
static void assert_chunks(const relay_tokenizer_spec *spec, const char *text, const char *expected) {
    relay_chunker c;
    assert_true(relay_chunker_init(&c, spec));
    char got[256] = "";
    size_t begin, end = 0, len = strlen(text), n = 0;
    while (relay_chunker_next(&c, text, len, end, &begin, &end)) {
        assert_true(begin < end && end <= len);
        n += (size_t)snprintf(got + n, sizeof got - n, "%.*s|", (int)(end - begin), text + begin);
    }
    assert_string_equal(got, expected);
}

static void blanks_are_between_chunks(void **state) {
    relay_tokenizer_spec spec = t5_spec();
    assert_chunks(&spec, "", "");
    assert_chunks(&spec, " \n ", "");
    assert_chunks(&spec, "  one two,\nthree ", "one|two,|three|");
    assert_chunks(&spec, "abcdefgh ijklmnopqrstu\nv !\"#*+ abcdefghi", "abcdefgh|ijklmnopqrstu|v|!\"#*+|abcdefghi|");
    assert_chunks(&spec, "\xD0\xB4\xD0\xB0 \xD0\xBD\xD0\xB5\xD1\x82 \xE4\xB8\xAD",
                  "\xD0\xB4\xD0\xB0|\xD0\xBD\xD0\xB5\xD1\x82|\xE4\xB8\xAD|");
}

static void a_blank_that_may_belong_to_a_neighbour_is_no_border(void **state) {
    relay_tokenizer_spec spec = t5_spec();
    assert_chunks(&spec, "a \xCC\x81 b", "a \xCC\x81 b|"); // U+0301 joins the blank before it
    assert_chunks(&spec, "a\r\nb", "a\r\nb|");             // one cluster
    assert_chunks(&spec,
                  "a \xE2\x80\x8D"
                  "b c",
                  "a \xE2\x80\x8D"
                  "b|c|");                                 // a joiner
    assert_chunks(&spec, "\xD8\x80 a b", "\xD8\x80 a|b|"); // U+0600 joins what follows
    spec = bert_spec();                                    // looks at no clusters
    assert_chunks(&spec, "a \xCC\x81 b", "a|\xCC\x81|b|");
}

static void bert_cuts_at_punctuation_and_chinese_characters(void **state) {
    relay_tokenizer_spec spec = bert_spec();
    assert_chunks(&spec, "It's 3.5!", "It|'|s|3|.|5|!|");
    assert_chunks(&spec, "a\xE4\xB8\xAD\xE6\x96\x87\xE3\x81\xAE\xE3\x81\xAE z",
                  "a|\xE4\xB8\xAD|\xE6\x96\x87|\xE3\x81\xAE\xE3\x81\xAE|z|");
    bert.handle_chinese_chars = false;
    assert_chunks(&spec, "a\xE4\xB8\xAD\xE6\x96\x87", "a\xE4\xB8\xAD\xE6\x96\x87|");
    bert.handle_chinese_chars = true;
    relay_normalizer_spec both[] = {bert, {.kind = RELAY_NORMALIZE_NFC}}; // which may move what punctuation is
    spec.normalizers = both;
    spec.n_normalizers = 2;
    assert_chunks(&spec, "It's", "It's|");
}

static void assert_no_chunks(const relay_tokenizer_spec *spec) {
    relay_chunker c;
    assert_false(relay_chunker_init(&c, spec));
}

static void what_may_look_past_a_blank_has_no_chunks(void **state) {
    relay_tokenizer_spec spec = t5_spec();
    blanks[1].prepend_scheme = RELAY_PREPEND_FIRST;
    assert_no_chunks(&spec);
    blanks[1].prepend_scheme = RELAY_PREPEND_ALWAYS;
    spec.pretokenizers = blanks + 1; // no pre-tokenizer removes blanks
    spec.n_pretokenizers = 1;
    assert_no_chunks(&spec);
    spec.n_pretokenizers = 0;
    assert_no_chunks(&spec);

    spec = t5_spec();
    relay_added_token added = {.content = STR("<mask>"), .normalized = true};
    spec.added = &added;
    spec.n_added = 1;
    assert_no_chunks(&spec);
    added.normalized = false;
    relay_chunker c;
    assert_true(relay_chunker_init(&c, &spec));

    relay_normalizer_spec n = {.kind = RELAY_NORMALIZE_REPLACE, .pattern = {.text = STR("``")}, .content = STR("\"")};
    spec.normalizers = &n;
    assert_true(relay_chunker_init(&c, &spec));
    n.pattern.is_regex = true;
    assert_no_chunks(&spec);
    n.pattern = (relay_spec_pattern){.text = STR("a b")};
    assert_no_chunks(&spec);
    static const relay_normalizer_kind others[] = {RELAY_NORMALIZE_PREPEND, RELAY_NORMALIZE_STRIP, RELAY_NORMALIZE_NMT,
                                                   RELAY_NORMALIZE_EXTRA_WHITESPACE, RELAY_NORMALIZE_BYTE_LEVEL};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        n = (relay_normalizer_spec){.kind = others[i]};
        assert_no_chunks(&spec);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blanks_are_between_chunks),
        cmocka_unit_test(a_blank_that_may_belong_to_a_neighbour_is_no_border),
        cmocka_unit_test(bert_cuts_at_punctuation_and_chinese_characters),
        cmocka_unit_test(what_may_look_past_a_blank_has_no_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
