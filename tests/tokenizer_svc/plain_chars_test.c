#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tokenizer_svc/plain_chars.h"

#define STR(s)                                                                                                         \
    { (s), sizeof(s) - 1 }
#define METASPACE "\xE2\x96\x81"

static relay_plain_chars plain_of(relay_normalizer_spec *normalizers, uint32_t n_normalizers,
                                  relay_pretokenizer_spec *pretokenizers, uint32_t n_pretokenizers) {
    relay_tokenizer_spec spec = {.normalizers = normalizers,
                                 .n_normalizers = n_normalizers,
                                 .pretokenizers = pretokenizers,
                                 .n_pretokenizers = n_pretokenizers};
    relay_normalizer *z;
    assert_int_equal(relay_normalizer_create(&z, normalizers, n_normalizers, NULL), RELAY_OK);
    relay_plain_chars plain;
    relay_plain_chars_init(&plain, &spec, z);
    relay_normalizer_destroy(z);
    return plain;
}

static void assert_plain(const relay_plain_chars *p, const char *text, bool expected) {
    if (relay_plain_chars_hold(p, text, strlen(text)) != expected) fail_msg("%s", text);
}

static void what_a_stage_changes_or_cuts_at_is_not_plain(void **state) {
    relay_normalizer_spec nfkc = {.kind = RELAY_NORMALIZE_NFKC};
    relay_pretokenizer_spec words[] = {
        {.kind = RELAY_PRETOKENIZE_WHITESPACE_SPLIT},
        {.kind = RELAY_PRETOKENIZE_METASPACE, .content = STR(METASPACE), .prepend_scheme = RELAY_PREPEND_ALWAYS}};
    relay_plain_chars p = plain_of(&nfkc, 1, words, 2);
    assert_int_equal(p.prefix_len, 3);
    assert_memory_equal(p.prefix, METASPACE, 3);
    assert_plain(&p, "Ab,1.", true);
    assert_plain(&p, "\xD0\xB4\xE4\xB8\xAD", true); // U+0434, U+4E2D
    assert_plain(&p, "a\xEF\xBC\x8C", false);       // U+FF0C, which NFKC changes
    assert_plain(&p, "a\xCC\x81", false);           // U+0301, which composes
    assert_plain(&p, "a b", false);                 // cut
    assert_plain(&p, "a\xE2\x80\xA8", false);       // U+2028, cut
    assert_plain(&p, "a" METASPACE, false);         // begins a word
    assert_plain(&p, "\xF0\x9F\x98\x80", false);    // beyond the table
    words[1].prepend_scheme = RELAY_PREPEND_NEVER;
    p = plain_of(&nfkc, 1, words, 2);
    assert_int_equal(p.prefix_len, 0);
    assert_plain(&p, "a", true);
}

static void bert_cuts_at_punctuation(void **state) {
    relay_normalizer_spec bert = {
        .kind = RELAY_NORMALIZE_BERT, .clean_text = true, .handle_chinese_chars = true, .lowercase = true};
    relay_pretokenizer_spec words = {.kind = RELAY_PRETOKENIZE_BERT};
    relay_plain_chars p = plain_of(&bert, 1, &words, 1);
    assert_plain(&p, "abc1", true);
    assert_plain(&p, "Abc", false);
    assert_plain(&p, "a,", false);
    assert_plain(&p, "\xE4\xB8\xAD", false);
    words.kind = RELAY_PRETOKENIZE_WHITESPACE; // a run of \w is a word
    p = plain_of(NULL, 0, &words, 1);
    assert_plain(&p, "Abc_1", true);
    assert_plain(&p, "a-b", false);
}

// Each character of a text that is looked for stands alone unchanged; together they are replaced.
static void a_replaced_text_is_not_plain(void **state) {
    relay_normalizer_spec replace = {
        .kind = RELAY_NORMALIZE_REPLACE, .pattern = {.text = STR("ab")}, .content = STR("x")};
    relay_pretokenizer_spec words = {.kind = RELAY_PRETOKENIZE_WHITESPACE_SPLIT};
    relay_plain_chars p = plain_of(&replace, 1, &words, 1);
    assert_plain(&p, "ab", false);
    assert_plain(&p, "xyz", true);
}

static void other_stages_have_no_plain_characters(void **state) {
    relay_pretokenizer_spec words[] = {
        {.kind = RELAY_PRETOKENIZE_WHITESPACE_SPLIT},
        {.kind = RELAY_PRETOKENIZE_DIGITS},
    };
    relay_plain_chars p = plain_of(NULL, 0, words, 2);
    assert_plain(&p, "a", false);
    words[0].kind = RELAY_PRETOKENIZE_DIGITS;
    p = plain_of(NULL, 0, words, 1);
    assert_plain(&p, "a", false);
    p = plain_of(NULL, 0, words, 0);
    assert_plain(&p, "a", false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_stage_changes_or_cuts_at_is_not_plain),
        cmocka_unit_test(bert_cuts_at_punctuation),
        cmocka_unit_test(a_replaced_text_is_not_plain),
        cmocka_unit_test(other_stages_have_no_plain_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
