#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/utf8.h"
#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/pretokenizer.h"
#include "tokenizer_svc/unicode_standin.h"

static relay_pretokenizer *make(const relay_pretokenizer_scheme *scheme) {
    relay_pretokenizer *p;
    relay_err e = {0};
    if (relay_pretokenizer_create(&p, scheme, &e) != RELAY_OK) fail_msg("%s", e.message);
    return p;
}

static const relay_pretokenizer_scheme *scheme_named(const char *name) {
    const relay_pretokenizer_scheme *s = relay_pretokenizer_scheme_find(name, strlen(name));
    assert_non_null(s);
    return s;
}

static relay_code append_word(void *arg, const char *word, size_t len, relay_err *e) {
    relay_buf *out = arg;
    if (out->len > 0) relay_buf_putc(out, '|');
    relay_buf_append(out, word, len);
    return RELAY_OK;
}

static void assert_words(const relay_pretokenizer *p, const char *text, const char *expected) {
    relay_pretokenizer_work w = {0};
    relay_buf out;
    relay_buf_init(&out, 1 << 16);
    relay_err e = {0};
    if (relay_pretokenizer_split(p, &w, text, strlen(text), append_word, &out, &e) != RELAY_OK)
        fail_msg("%s", e.message);
    assert_string_equal(out.data == NULL ? "" : out.data, expected);
    relay_buf_fini(&out);
    relay_pretokenizer_work_fini(&w);
}

static void assert_scheme_words(const char *name, const char *text, const char *expected) {
    relay_pretokenizer *p = make(scheme_named(name));
    assert_words(p, text, expected);
    relay_pretokenizer_destroy(p);
}

static void splits_as_the_models_were_trained(void **state) {
    static const struct {
        const char *scheme, *text, *words;
    } cases[] = {
        {"gpt-2", "", ""},
        {"gpt-2", "I'll pay  12.50 'S\n\nnow", "I|'ll| pay| | 12|.|50| '|S|\n|\n|now"},
        {"gpt-2", "a\xE3\x80\x80\xE3\x80\x80!", "a|\xE3\x80\x80|\xE3\x80\x80|!"}, // U+3000 is a blank
        {"smollm", "It costs 250", "It| costs| |2|5|0"},
        {"smollm", "a  1  b", "a|  |1| | b"}, // the blanks before a digit are a piece of their own
        {"qwen2", "I'LL pay\t12\r\n\n  x", "I|'LL| pay|\t|1|2|\r\n\n| | x"},
        {"qwen2", "'\xC5\xBFx", "'\xC5\xBF|x"}, // a long s is an s of another case
        {"llama-bpe", "12345 $x()\n", "123|45| $|x|()\n"},
        {"gpt-4o", "fooBar HTTPServer don't", "foo|Bar| HTTPServer| don't"},
        {"tekken", "don't 12", "don|'t| |1|2"},
        {"deepseek-v3", "abc1234\xE6\xBC\xA2\xE5\xAD\x97 x", "abc|123|4|\xE6\xBC\xA2\xE5\xAD\x97| x"},
        {"deepseek-llm", "a b   ", "a| b|   "},
        {"falcon", "x=12345", "x|=|123|45"},
        {"bloom", "a, b", "a|,| b"},
        {"exaone-moe", "a b c 1", "a b c| |1"},
        {"default", "1234 a", "123|4| a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_scheme_words(cases[i].scheme, cases[i].text, cases[i].words);
}

static void knows_every_scheme_by_name_and_no_other(void **state) {
    assert_true(relay_pretokenizer_scheme_count() > 60);
    for (uint32_t i = 0; i < relay_pretokenizer_scheme_count(); i++) {
        const relay_pretokenizer_scheme *s = relay_pretokenizer_scheme_at(i);
        assert_ptr_equal(scheme_named(s->name), s); // no name is there twice
        relay_pretokenizer_destroy(make(s));
    }
    assert_null(relay_pretokenizer_scheme_at(relay_pretokenizer_scheme_count()));
    static const char *const unknown[] = {"", "qwen", "qwen22", "superbpe", "gemma4", "tiny_aya", "jais-2"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_null(relay_pretokenizer_scheme_find(unknown[i], strlen(unknown[i])));
}

// ---- A newer Unicode

static void sees_characters_newer_than_its_library(void **state) {
    // U+1E4D0 is a letter since Unicode 15, U+10D40 a digit since 16, U+11DE0 one since 17 and only for Rust.
    assert_scheme_words("qwen2", "a\xF0\x9E\x93\x90", "a\xF0\x9E\x93\x90");
    assert_scheme_words("qwen2", "a\xF0\x90\xB5\x80", "a|\xF0\x90\xB5\x80");
    assert_scheme_words("smollm", "!\xF0\x91\xB7\xA0!", "!|\xF0\x91\xB7\xA0|!");
    assert_scheme_words("gpt-2", "!\xF0\x91\xB7\xA0!", "!\xF0\x91\xB7\xA0!");
    assert_scheme_words("gpt-2", " \xE1\xA0\x8E", " \xE1\xA0\x8E"); // U+180E is no space
}

static void stands_in_with_characters_of_the_same_length(void **state) {
    uint32_t n = 0;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        uint32_t standin, again;
        char a[4], b[4];
        if (!relay_unicode_standin(cp, true, &standin)) continue;
        n++;
        assert_true(cp <= RELAY_STANDIN_LAST);
        assert_int_equal(relay_utf8_encode(cp, a), relay_utf8_encode(standin, b));
        assert_false(relay_unicode_standin(standin, true, &again));
    }
    assert_int_equal(n, 10294 + 1 + 13);
}

static void replaces_all_and_only_what_needs_it(void **state) {
    char text[] = "plain text, \xC3\xA9 \xE1\xB2\x89 and \xF0\x9E\x93\x90\xF0\x9E\x93\x90.";
    size_t len = sizeof text - 1;
    assert_int_equal(relay_unicode_standin_find(text, len, 0, false), 15);
    relay_unicode_standin_replace(text, len, false);
    assert_string_equal(text, "plain text, \xC3\xA9 \xE1\x83\x87 and \xF0\x90\x80\x80\xF0\x90\x80\x80.");
    assert_int_equal(relay_unicode_standin_find(text, len, 0, false), len);
}

// ---- Any text

typedef struct cover {
    const char *next; // where the next word must begin
    uint32_t n_words, longest;
} cover;

static relay_code check_cover(void *arg, const char *word, size_t len, relay_err *e) {
    cover *c = arg;
    assert_ptr_equal(word, c->next);
    assert_true(len > 0);
    c->next += len;
    c->n_words++;
    if (len > c->longest) c->longest = (uint32_t)len;
    return RELAY_OK;
}

static cover split(const relay_pretokenizer *p, relay_pretokenizer_work *w, const char *text, size_t len) {
    cover c = {.next = text};
    relay_err e = {0};
    if (relay_pretokenizer_split(p, w, text, len, check_cover, &c, &e) != RELAY_OK) fail_msg("%s", e.message);
    assert_ptr_equal(c.next, text + len);
    return c;
}

static uint32_t random_code_point(test_random *r) {
    static const char ascii[] = "aZ 09'\n\r\t.,-_sdltrem";
    switch (test_random_below(r, 5)) {
    case 0:
        return test_random_below(r, 0x3000);
    case 1:
        return test_random_below(r, 0x110000); // a surrogate becomes U+FFFD
    default:
        return (uint8_t)ascii[test_random_below(r, sizeof ascii - 1)];
    }
}

static void makes_words_of_every_byte_of_any_text(void **state) {
    test_random r = {11};
    for (uint32_t i = 0; i < relay_pretokenizer_scheme_count(); i++) {
        relay_pretokenizer *p = make(relay_pretokenizer_scheme_at(i));
        relay_pretokenizer_work w = {0};
        for (int k = 0; k < 150; k++) {
            char text[400];
            size_t len = 0;
            for (uint32_t n = test_random_below(&r, 100); n > 0; n--)
                len += relay_utf8_encode(random_code_point(&r), text + len);
            split(p, &w, text, len);
        }
        relay_pretokenizer_work_fini(&w);
        relay_pretokenizer_destroy(p);
    }
}

// Runs of everything that a pattern repeats, with something behind it that makes it try again. Where the time grew with
// the square of a run's length this would not end in the test's time.
static void takes_long_runs_of_anything(void **state) {
    static const char *const runs[] = {"a",        "A",  "aA",   " ", "\n",        " \n",          "1",
                                       "\xD9\xA3", "!",  "a ",   "'", "a\xCC\x81", "\xE6\xBC\xA2", "\xF0\x9F\x98\x80",
                                       "\r",       "\t", "a b ", "=-"};
    static const char *const ends[] = {"", "x", "\n"};
    enum { LEN = 30 * 1000 };
    char *text = malloc(LEN + 8);
    for (uint32_t i = 0; i < relay_pretokenizer_scheme_count(); i++) {
        const relay_pretokenizer_scheme *scheme = relay_pretokenizer_scheme_at(i);
        bool is_seen = false;
        for (uint32_t k = 0; k < i; k++)
            is_seen |= relay_pretokenizer_scheme_at(k)->patterns == scheme->patterns;
        if (is_seen) continue;
        relay_pretokenizer *p = make(scheme);
        relay_pretokenizer_work w = {0};
        for (size_t run = 0; run < sizeof runs / sizeof *runs; run++)
            for (size_t end = 0; end < sizeof ends / sizeof *ends; end++) {
                size_t unit = strlen(runs[run]), len = 0;
                for (; len + unit <= LEN; len += unit)
                    memcpy(text + len, runs[run], unit);
                memcpy(text + len, ends[end], strlen(ends[end]));
                split(p, &w, text, len + strlen(ends[end]));
            }
        relay_pretokenizer_work_fini(&w);
        relay_pretokenizer_destroy(p);
    }
    free(text);
}

// ---- PCRE2's limits, by schemes of the test's own

static void splits_the_same_without_jit(void **state) {
    static const char *const plain[] = {"\\p{N}", " ?\\p{L}+|\\s+(?!\\S)", NULL};
    static const char *const no_jit[] = {"(*NO_JIT)\\p{N}", "(*NO_JIT) ?\\p{L}+|\\s+(?!\\S)", NULL};
    const relay_pretokenizer_scheme schemes[] = {{.name = "jit", .patterns = plain},
                                                 {.name = "no jit", .patterns = no_jit}};
    for (int i = 0; i < 2; i++) {
        relay_pretokenizer *p = make(&schemes[i]);
        assert_words(p, "ab  cd12 \xC3\xA9!", "ab| | cd|1|2| \xC3\xA9|!");
        relay_pretokenizer_destroy(p);
    }
}

static void gives_up_on_too_many_steps_and_says_where(void **state) {
    static const char *const jit[] = {"(?:a+)+b", NULL}, *const no_jit[] = {"(*NO_JIT)(?:a+)+b", NULL};
    const relay_pretokenizer_scheme schemes[] = {{.name = "steps", .patterns = jit},
                                                 {.name = "steps", .patterns = no_jit}};
    for (int i = 0; i < 2; i++) {
        relay_pretokenizer *p = make(&schemes[i]);
        relay_pretokenizer_work w = {0};
        relay_buf out;
        relay_buf_init(&out, 1 << 16);
        relay_err e = {0};
        // The b is there, so that PCRE2 cannot know without trying; the c keeps it from being reached.
        char text[] = "xab aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaacb";
        assert_int_equal(relay_pretokenizer_split(p, &w, text, sizeof text - 1, append_word, &out, &e),
                         RELAY_RESOURCE_EXHAUSTED);
        assert_string_equal(e.message,
                            "text: splitting it into words takes too many steps at byte 3 (pre-tokenizer \"steps\")");
        relay_buf_fini(&out);
        relay_pretokenizer_work_fini(&w);
        relay_pretokenizer_destroy(p);
    }
}

// Each letter costs a frame, which is more than the machine stack holds.
static void takes_a_stack_of_its_own_where_a_pattern_needs_one(void **state) {
    static const char *const patterns[] = {"(?:(a)|(b))+c", NULL};
    const relay_pretokenizer_scheme scheme = {.name = "deep", .patterns = patterns};
    relay_pretokenizer *p = make(&scheme);
    relay_pretokenizer_work w = {0};
    enum { LEN = 100 * 1000 };
    char *text = malloc(LEN);
    memset(text, 'a', LEN);
    text[LEN - 1] = 'c';
    assert_int_equal(split(p, &w, text, LEN).longest, LEN);
    free(text);
    relay_pretokenizer_work_fini(&w);
    relay_pretokenizer_destroy(p);
}

static void says_which_pattern_is_wrong(void **state) {
    static const char *const patterns[] = {"a", "b(", NULL};
    const relay_pretokenizer_scheme scheme = {.name = "broken", .patterns = patterns};
    relay_pretokenizer *p;
    relay_err e = {0};
    assert_int_equal(relay_pretokenizer_create(&p, &scheme, &e), RELAY_INTERNAL);
    assert_null(p);
    assert_non_null(strstr(e.message, "pre-tokenizer \"broken\""));
}

static relay_code refuse(void *arg, const char *word, size_t len, relay_err *e) {
    return --*(int *)arg == 0 ? relay_fail(e, RELAY_CANCELLED, "enough") : RELAY_OK;
}

static void ends_when_a_word_is_refused(void **state) {
    relay_pretokenizer *p = make(scheme_named("gpt-2"));
    relay_pretokenizer_work w = {0};
    int n = 2;
    relay_err e = {0};
    assert_int_equal(relay_pretokenizer_split(p, &w, "a b c", 5, refuse, &n, &e), RELAY_CANCELLED);
    assert_int_equal(n, 0);
    relay_pretokenizer_work_fini(&w);
    relay_pretokenizer_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_as_the_models_were_trained),
        cmocka_unit_test(knows_every_scheme_by_name_and_no_other),
        cmocka_unit_test(sees_characters_newer_than_its_library),
        cmocka_unit_test(stands_in_with_characters_of_the_same_length),
        cmocka_unit_test(replaces_all_and_only_what_needs_it),
        cmocka_unit_test(makes_words_of_every_byte_of_any_text),
        cmocka_unit_test(takes_long_runs_of_anything),
        cmocka_unit_test(splits_the_same_without_jit),
        cmocka_unit_test(gives_up_on_too_many_steps_and_says_where),
        cmocka_unit_test(takes_a_stack_of_its_own_where_a_pattern_needs_one),
        cmocka_unit_test(says_which_pattern_is_wrong),
        cmocka_unit_test(ends_when_a_word_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
