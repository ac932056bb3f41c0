#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "tokenizer_svc/normalizer.h"
#include "tokenizer_svc/unicode_classes.h"

#define STR(s) ((relay_spec_str){(s), sizeof(s) - 1})

static relay_normalizer *make(const relay_normalizer_spec *specs, uint32_t n) {
    relay_normalizer *z;
    relay_err e = {0};
    if (relay_normalizer_create(&z, specs, n, &e) != RELAY_OK) fail_msg("%s", e.message);
    return z;
}

// The normalized text, and behind a bar for each of its characters the bytes of the text that it stands for.
static void assert_normalizes(const relay_normalizer_spec *specs, uint32_t n, const char *text, const char *expected) {
    relay_normalizer *z = make(specs, n);
    relay_normalizer_work work = {0};
    const relay_aligned_text *out;
    relay_err e = {0};
    relay_buf got;
    relay_buf_init(&got, 1 << 16);
    uint32_t len = (uint32_t)strlen(text);
    assert_int_equal(relay_normalizer_apply(z, &work, text, len, 0, true, &out, &e), RELAY_OK);
    relay_buf_append(&got, out->s, out->len);
    relay_buf_putc(&got, '|');
    for (uint32_t i = 0; i < out->len; i++)
        if (((uint8_t)out->s[i] & 0xC0) != 0x80) relay_buf_printf(&got, " %u-%u", out->of[i].begin, out->of[i].end);
    assert_string_equal(got.data, expected);
    // Without alignments the text is the same, and a text that is said to be left alone is.
    assert_int_equal(relay_normalizer_apply(z, &work, text, len, 0, false, &out, &e), RELAY_OK);
    assert_memory_equal(got.data, out->s, out->len);
    if (relay_normalizer_is_identity(z, text, len)) {
        assert_int_equal(out->len, len);
        assert_memory_equal(out->s, text, len);
    }
    relay_buf_fini(&got);
    relay_normalizer_work_fini(&work);
    relay_normalizer_destroy(z);
}

static void assert_one(relay_normalizer_spec spec, const char *text, const char *expected) {
    assert_normalizes(&spec, 1, text, expected);
}

static void forms_compose_and_decompose(void **state) {
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_NFD}, "\xC3\xA9x", "e\xCC\x81x| 0-2 0-2 2-3");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_NFC}, "e\xCC\x81x", "\xC3\xA9x| 0-1 3-4");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_NFKC}, "\xEF\xAC\x81\xE2\x91\xA0", "fi1| 0-3 0-3 3-6");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_NFKD}, "\xC2\xBD",
               "1\xE2\x81\x84"
               "2| 0-2 0-2 0-2");
    // Marks in canonical order: the dot below (220) goes before the acute (230).
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_NFD}, "a\xCC\x81\xCC\xA3",
               "a\xCC\xA3\xCC\x81| 0-1 1-3 3-5");
    // Hangul, by arithmetic; a character of Unicode 11 has no form.
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_NFC}, "\xE1\x84\x80\xE1\x85\xA1", "\xEA\xB0\x80| 0-3");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_NFKD}, "\xE3\x8B\xBF", "\xE3\x8B\xBF| 0-3");
}

static void a_long_run_of_marks_is_sorted(void **state) {
    relay_normalizer_spec spec = {.kind = RELAY_NORMALIZE_NFD};
    relay_normalizer *z = make(&spec, 1);
    relay_normalizer_work work = {0};
    relay_buf text;
    relay_buf_init(&text, 1 << 20);
    enum { PAIRS = 50000 };
    relay_buf_putc(&text, 'a');
    for (int i = 0; i < PAIRS; i++)
        relay_buf_puts(&text, "\xCC\x81\xCC\xA3");
    const relay_aligned_text *out;
    assert_int_equal(relay_normalizer_apply(z, &work, text.data, (uint32_t)text.len, 0, true, &out, NULL), RELAY_OK);
    assert_int_equal(out->len, text.len);
    for (int i = 0; i < 2 * PAIRS; i++)
        assert_memory_equal(out->s + 1 + 2 * i, i < PAIRS ? "\xCC\xA3" : "\xCC\x81", 2);
    relay_buf_fini(&text);
    relay_normalizer_work_fini(&work);
    relay_normalizer_destroy(z);
}

static void case_accents_and_blanks_go(void **state) {
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_LOWERCASE}, "A\xC4\xB0", "ai\xCC\x87| 0-1 1-3 1-3");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_STRIP_ACCENTS}, "e\xCC\x81x", "ex| 0-1 3-4");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_STRIP, .strip_left = true}, " \t a ", "a | 3-4 4-5");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_STRIP, .strip_right = true}, " a\xE3\x80\x80",
               " a| 0-1 1-2");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_NMT}, "a\x01\nb", "a b| 0-1 2-3 3-4");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_EXTRA_WHITESPACE}, "  a  b ", "a b| 2-3 3-4 5-6");
}

static void text_is_put_in(void **state) {
    relay_normalizer_spec replace = {
        .kind = RELAY_NORMALIZE_REPLACE, .pattern = {.text = STR(" ")}, .content = STR("\xE2\x96\x81")};
    assert_one(replace, "a b",
               "a\xE2\x96\x81"
               "b| 0-1 1-2 2-3");
    replace.pattern = (relay_spec_pattern){.text = STR("\\s+"), .is_regex = true};
    replace.content = STR("xy");
    assert_one(replace, "a \n b", "axyb| 0-1 3-4 3-4 4-5");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_PREPEND, .content = STR("_")}, "\xC3\xA9",
               "_\xC3\xA9| 0-2 0-2");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_APPEND, .content = STR("_")}, "ab", "ab_| 0-1 1-2 1-2");
    assert_one((relay_normalizer_spec){.kind = RELAY_NORMALIZE_BYTE_LEVEL}, " \xC3\xA9",
               "\xC4\xA0\xC3\x83\xC2\xA9| 0-1 1-3 1-3");
}

static void bert_does_four_things(void **state) {
    relay_normalizer_spec bert = {.kind = RELAY_NORMALIZE_BERT};
    assert_one(bert, "\xC3\x89\t", "\xC3\x89\t| 0-2 2-3");
    bert.clean_text = true;
    assert_one(bert, "a\xE2\x80\x8B\tb", "a b| 0-1 4-5 5-6");
    bert.handle_chinese_chars = true;
    assert_one(bert, "\xE6\x9D\xB1", " \xE6\x9D\xB1 | 0-3 0-3 0-3");
    bert.strip_accents = true;
    assert_one(bert, "\xC3\x89", "E| 0-2");
    bert.lowercase = true;
    assert_one(bert, "\xC3\x89", "e| 0-2");
}

static void several_follow_one_another(void **state) {
    const relay_normalizer_spec specs[] = {
        {.kind = RELAY_NORMALIZE_NFKC},
        {.kind = RELAY_NORMALIZE_LOWERCASE},
        {.kind = RELAY_NORMALIZE_REPLACE, .pattern = {.text = STR("tm")}, .content = STR("")},
        {.kind = RELAY_NORMALIZE_PREPEND, .content = STR(">")},
    };
    assert_normalizes(specs, 4, "A\xE2\x84\xA2 B", ">a b| 0-1 0-1 4-5 5-6");
}

// "a" -> "xyz", "bc" -> "", as a double array of hand-placed units.
static void a_character_map_is_applied_to_short_clusters(void **state) {
    enum { UNITS = 1024 };
    static uint32_t map[1 + UNITS + 2];
    map[0] = UNITS * 4;
    uint32_t *unit = map + 1;
    unit[0] = 256u << 10;
    unit[256 ^ 'a'] = ((256u ^ 'a') ^ 512u) << 10 | 1u << 8 | 'a';
    unit[512] = 1u << 31;
    unit[256 ^ 'b'] = ((256u ^ 'b') ^ 768u) << 10 | 'b';
    unit[768 ^ 'c'] = ((768u ^ 'c') ^ 600u) << 10 | 1u << 8 | 'c';
    unit[600] = 1u << 31 | 3;
    memcpy(map + 1 + UNITS, "xyz\0\0\0\0", 8);
    relay_normalizer_spec spec = {.kind = RELAY_NORMALIZE_PRECOMPILED, .content = {(char *)map, sizeof map}};
    assert_one(spec, "ad", "xyzd| 0-1 0-1 0-1 1-2");
    // The whole cluster is replaced by what its beginning stands for.
    assert_one(spec,
               "a\xCC\x81"
               "d",
               "xyzd| 0-1 1-3 1-3 3-4");
    relay_normalizer *z;
    relay_err e;
    spec.content.len = 6;
    assert_int_equal(relay_normalizer_create(&z, &spec, 1, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "normalizer 0: a trie of 4096 bytes in a map of 6");
}

static void refuses_what_it_cannot_do_exactly(void **state) {
    relay_normalizer *z;
    relay_err e;
    relay_normalizer_spec spec = {
        .kind = RELAY_NORMALIZE_REPLACE, .pattern = {.text = STR("x*"), .is_regex = true}, .content = STR("y")};
    assert_int_equal(relay_normalizer_create(&z, &spec, 1, &e), RELAY_UNIMPLEMENTED);
    assert_non_null(strstr(e.message, "normalizer 0: pattern \"x*\" matches where there is no text"));
    spec.pattern.text = STR("(");
    assert_int_not_equal(relay_normalizer_create(&z, &spec, 1, &e), RELAY_OK);
    assert_null(z);
    relay_normalizer_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_compose_and_decompose),
        cmocka_unit_test(a_long_run_of_marks_is_sorted),
        cmocka_unit_test(case_accents_and_blanks_go),
        cmocka_unit_test(text_is_put_in),
        cmocka_unit_test(bert_does_four_things),
        cmocka_unit_test(several_follow_one_another),
        cmocka_unit_test(a_character_map_is_applied_to_short_clusters),
        cmocka_unit_test(refuses_what_it_cannot_do_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
