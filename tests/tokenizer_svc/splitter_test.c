#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "tokenizer_svc/splitter.h"

#define STR(s) ((relay_spec_str){(s), sizeof(s) - 1})

// Words joined by '|'.
static void assert_splits(const relay_pretokenizer_spec *specs, uint32_t n, bool keeps_bytes, const char *text,
                          const char *expected) {
    relay_splitter *s;
    relay_err e = {0};
    if (relay_splitter_create(&s, specs, n, keeps_bytes, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_splitter_work work = {0};
    relay_split split;
    for (int is_aligned = 0; is_aligned < 2; is_aligned++) {
        relay_buf got;
        relay_buf_init(&got, 1 << 16);
        relay_code code = relay_splitter_apply(s, &work, text, (uint32_t)strlen(text), NULL, 0, is_aligned, &split, &e);
        if (code != RELAY_OK) fail_msg("%s", e.message);
        for (uint32_t i = 0; i < split.n_words; i++) {
            if (i > 0) relay_buf_putc(&got, '|');
            relay_buf_append(&got, split.s + split.words[i].begin, split.words[i].end - split.words[i].begin);
        }
        assert_string_equal(got.data == NULL ? "" : got.data, expected);
        relay_buf_fini(&got);
    }
    relay_splitter_work_fini(&work);
    relay_splitter_destroy(s);
}

static void assert_one(relay_pretokenizer_spec spec, const char *text, const char *expected) {
    assert_splits(&spec, 1, false, text, expected);
}

static void every_behavior_of_a_delimiter(void **state) {
    relay_pretokenizer_spec split = {.kind = RELAY_PRETOKENIZE_SPLIT, .pattern = {.text = STR("-")}};
    static const char text[] = "the-final--countdown-";
    split.behavior = RELAY_SPLIT_REMOVED;
    assert_one(split, text, "the|final|countdown");
    split.behavior = RELAY_SPLIT_ISOLATED;
    assert_one(split, text, "the|-|final|-|-|countdown|-");
    split.behavior = RELAY_SPLIT_MERGED_WITH_PREVIOUS;
    assert_one(split, text, "the-|final-|-|countdown-");
    split.behavior = RELAY_SPLIT_MERGED_WITH_NEXT;
    assert_one(split, text, "the|-final|-|-countdown|-");
    split.behavior = RELAY_SPLIT_CONTIGUOUS;
    assert_one(split, text, "the|-|final|--|countdown|-");
    split.invert = true;
    split.behavior = RELAY_SPLIT_REMOVED;
    assert_one(split, text, "-|-|-|-");
    // The empty delimiter stands between all characters.
    split = (relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_SPLIT, .behavior = RELAY_SPLIT_ISOLATED};
    assert_one(split, "aa b\xC3\xA9", "a|a| |b|\xC3\xA9");
    assert_one(split, "", "");
}

static void characters_by_their_class(void **state) {
    static const char text[] = "Hey, 12\xC2\xB2 you\xE2\x80\xA6  ok_";
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_BERT}, text,
               "Hey|,|12\xC2\xB2|you|\xE2\x80\xA6|ok|_");
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_WHITESPACE}, text,
               "Hey|,|12|\xC2\xB2|you|\xE2\x80\xA6|ok_");
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_WHITESPACE_SPLIT}, text,
               "Hey,|12\xC2\xB2|you\xE2\x80\xA6|ok_");
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_DIGITS, .individual_digits = true}, "a12\xC2\xB2",
               "a|1|2|\xC2\xB2");
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_DIGITS}, "a12b3", "a|12|b|3");
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_PUNCTUATION, .behavior = RELAY_SPLIT_CONTIGUOUS},
               "a?!b", "a|?!|b");
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_CHAR_DELIMITER_SPLIT, .content = STR("\xC3\xA9")},
               "a\xC3\xA9\xC3\xA9"
               "b",
               "a|b");
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_FIXED_LENGTH, .length = 2},
               "a\xC3\xA9"
               "bcd",
               "a\xC3\xA9|bc|d");
    // Kana is Han; a blank belongs to what is before it, and to nothing at the beginning.
    assert_one((relay_pretokenizer_spec){.kind = RELAY_PRETOKENIZE_UNICODE_SCRIPTS}, " ab \xE6\x9D\xB1\xE3\x81\x82x",
               "ab |\xE6\x9D\xB1\xE3\x81\x82|x");
}

static void metaspace_marks_and_splits(void **state) {
    relay_pretokenizer_spec metaspace = {.kind = RELAY_PRETOKENIZE_METASPACE, .content = STR("_"), .split = true};
    assert_one(metaspace, "a b  c", "_a|_b|_|_c");
    assert_one(metaspace, " a", "_a");
    metaspace.split = false;
    assert_one(metaspace, "a b", "_a_b");
    metaspace.prepend_scheme = RELAY_PREPEND_NEVER;
    assert_one(metaspace, "a b", "a_b");
    metaspace.prepend_scheme = RELAY_PREPEND_FIRST;
    const relay_pretokenizer_spec specs[] = {{.kind = RELAY_PRETOKENIZE_WHITESPACE_SPLIT}, metaspace};
    assert_splits(specs, 2, false, "a b", "_a|b");
}

static void byte_level_keeps_bytes_where_it_comes_last(void **state) {
    relay_pretokenizer_spec byte_level = {.kind = RELAY_PRETOKENIZE_BYTE_LEVEL, .use_regex = true};
    assert_splits(&byte_level, 1, true, "it's \xC3\xA9  x", "it|'s| \xC3\xA9| | x");
    assert_splits(&byte_level, 1, false, "a \xC3\xA9", "a|\xC4\xA0\xC3\x83\xC2\xA9");
    byte_level.add_prefix_space = true;
    assert_splits(&byte_level, 1, true, "a b", " a| b");
    byte_level.use_regex = false;
    assert_splits(&byte_level, 1, true, "a b", " a b");
    assert_splits(&byte_level, 1, true, " a b", " a b");
}

static void alignments_go_through(void **state) {
    const relay_pretokenizer_spec specs[] = {
        {.kind = RELAY_PRETOKENIZE_METASPACE, .content = STR("\xE2\x96\x81"), .split = true}};
    relay_splitter *s;
    assert_int_equal(relay_splitter_create(&s, specs, 1, false, NULL), RELAY_OK);
    relay_splitter_work work = {0};
    relay_split split;
    static const char text[] = "\xC3\xA9 b";
    assert_int_equal(relay_splitter_apply(s, &work, text, 4, NULL, 10, true, &split, NULL), RELAY_OK);
    assert_int_equal(split.n_words, 2);
    assert_int_equal(split.of[0].begin, 10); // the mark stands where the first character does
    assert_int_equal(split.of[0].end, 12);
    assert_int_equal(split.of[split.words[1].begin].begin, 12);
    assert_int_equal(split.of[split.words[1].end - 1].end, 14);
    relay_splitter_work_fini(&work);
    relay_splitter_destroy(s);
}

static void assert_pattern(const char *pattern, const char *text, const char *expected) {
    relay_pretokenizer_spec split = {.kind = RELAY_PRETOKENIZE_SPLIT,
                                     .pattern = {.text = {pattern, (uint32_t)strlen(pattern)}, .is_regex = true},
                                     .behavior = RELAY_SPLIT_ISOLATED};
    assert_one(split, text, expected);
}

static void patterns_are_oniguruma_s(void **state) {
    assert_pattern("[\\p{L}&&[^\\p{Han}]]+",
                   "ab\xE6\x9D\xB1"
                   "c",
                   "ab|\xE6\x9D\xB1|c");
    assert_pattern("\\h+", "xbadz", "x|bad|z");
    assert_pattern("a{2}+", "aaaaa", "aaaa|a"); // repeated, not possessive
    assert_pattern("^b|a$", "a\nb\nba", "a|\n|b|\n|b|a");
    assert_pattern("(?m:x.)", "x\ny", "x\n|y");
    assert_pattern("[a-c[0-9]]+", "xa1y", "x|a1|y");
    assert_pattern("(?=[A-Z])", "fooBarBaz", "foo|Bar|Baz");
    assert_pattern("\\b", "ab, c", "ab|, |c");
    assert_pattern("a(?i)b|c", "aB aC ab", "aB| |aC| |ab");
    assert_pattern("\\p{^L}+", "a12b", "a|12|b");
    assert_pattern("\\p{Han}+", "x\xF0\xB1\x8D\x90y", "x|\xF0\xB1\x8D\x90|y");                // newer than PCRE2
    assert_pattern("\\p{Latin}+", "a\xF0\x9D\xBC\xA5\xD0\xB4", "a\xF0\x9D\xBC\xA5|\xD0\xB4"); // U+1DF25, the same
    assert_pattern("\\w+", "a\xCC\x81_ \xC2\xB2", "a\xCC\x81_| |\xC2\xB2");
}

static void assert_refused(const char *pattern, const char *why) {
    relay_pretokenizer_spec split = {.kind = RELAY_PRETOKENIZE_SPLIT,
                                     .pattern = {.text = {pattern, (uint32_t)strlen(pattern)}, .is_regex = true}};
    relay_splitter *s;
    relay_err e = {0};
    assert_int_not_equal(relay_splitter_create(&s, &split, 1, false, &e), RELAY_OK);
    assert_null(s);
    if (strstr(e.message, why) == NULL) fail_msg("%s", e.message);
}

static void patterns_that_have_no_equal_are_refused_by_name(void **state) {
    assert_refused("\\X", "pre-tokenizer 0: pattern \"\\X\" has \"\\X\" at byte 0: an escape Relay does not know");
    assert_refused("a\\p{Cyrillic}", "a property Relay does not know");
    assert_refused("(?~ab)", "a group Relay does not know");
    assert_refused("[[:alpha:]]", "a class inside of a class");
    assert_refused("(?i)stra\xC3\x9F"
                   "e",
                   "letters of more than one folding");
    assert_refused("(?i)\\p{Lu}", "a property that depends on case");
    assert_refused("(a", "a group without its end");
    assert_refused("a)", "a parenthesis that closes nothing");
    assert_refused("[a", "");
    assert_refused("(?<=a+)b", "");
    relay_splitter_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_behavior_of_a_delimiter),
        cmocka_unit_test(characters_by_their_class),
        cmocka_unit_test(metaspace_marks_and_splits),
        cmocka_unit_test(byte_level_keeps_bytes_where_it_comes_last),
        cmocka_unit_test(alignments_go_through),
        cmocka_unit_test(patterns_are_oniguruma_s),
        cmocka_unit_test(patterns_that_have_no_equal_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
