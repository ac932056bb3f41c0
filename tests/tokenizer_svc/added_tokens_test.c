#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/buf.h"
#include "tokenizer_svc/added_tokens.h"

#define TOKEN(text, ...)                                                                                               \
    { .content = {(text), sizeof(text) - 1}, __VA_ARGS__ }

static const relay_added_token shared[] = {
    TOKEN("<s>", .special = true),  TOKEN("<|im_start|>", .special = true), TOKEN("<|im", .special = true),
    TOKEN("ab", .special = true),   TOKEN("bcd", .special = true),          TOKEN("<tool>", .special = false),
    TOKEN("  ", .special = false),  TOKEN("    ", .special = false),        TOKEN("<|", .special = false),
    TOKEN("abx", .special = false),
};

// The text with [brackets] around each match.
static void assert_matches(const relay_added_token *list, uint32_t n, const char *text, const relay_byte_range *open,
                           size_t n_open, const char *expected) {
    relay_added_tokens *tokens;
    relay_err e = {0};
    if (relay_added_tokens_create(&tokens, list, n, &e) != RELAY_OK) fail_msg("%s", e.message);
    relay_added_scan scan = {.tokens = tokens, .text = text, .len = strlen(text), .open = open, .n_open = n_open};
    relay_added_match m;
    relay_buf out;
    relay_buf_init(&out, 1 << 16);
    size_t at = 0;
    while (relay_added_scan_next(&scan, &m)) {
        assert_true(m.begin >= at && m.end > m.begin);
        relay_buf_append(&out, text + at, m.begin - at);
        relay_buf_printf(&out, "[%.*s]", (int)(m.end - m.begin), text + m.begin);
        at = m.end;
    }
    relay_buf_puts(&out, text + at);
    assert_string_equal(out.data, expected);
    relay_buf_fini(&out);
    relay_added_tokens_destroy(tokens);
}

static void assert_shared(const char *text, const relay_byte_range *open, size_t n_open, const char *expected) {
    assert_matches(shared, sizeof shared / sizeof *shared, text, open, n_open, expected);
}

static void special_names_count_only_where_the_text_is_open(void **state) {
    const char *text = "x<s><tool><s>y<s>";
    assert_shared(text, NULL, 0, "x<s>[<tool>]<s>y<s>");
    assert_shared(text, &(relay_byte_range){0, strlen(text)}, 1, "x[<s>][<tool>][<s>]y[<s>]");
    assert_shared(text, &(relay_byte_range){10, 14}, 1, "x<s>[<tool>][<s>]y<s>");
    assert_shared(text, &(relay_byte_range){1, 3}, 1, "x<s>[<tool>]<s>y<s>"); // one byte short
    const relay_byte_range two[] = {{0, 4}, {14, 17}};
    assert_shared(text, two, 2, "x[<s>][<tool>]<s>y[<s>]");
}

static void the_leftmost_and_then_the_longest_is_taken(void **state) {
    relay_byte_range all = {0, 12};
    assert_shared("<|im_start|>", &all, 1, "[<|im_start|>]");
    assert_shared("<|im_sta", &all, 1, "[<|im]_sta");
    assert_shared("abcd", &all, 1, "[ab]cd"); // not bcd, which begins later
    assert_shared("abxbcd", &all, 1, "[abx][bcd]");
    assert_shared("       .", NULL, 0, "[    ][  ] .");
}

static void a_name_that_does_not_count_is_passed_over_as_a_whole(void **state) {
    assert_shared("<|im_start|>", NULL, 0, "<|im_start|>"); // though "<|" counts
    // One that lies partly in open text is not: a user's bytes cannot take the template's with them.
    assert_shared("<|im_start|>", &(relay_byte_range){4, 12}, 1, "<|im_start|>");
    assert_shared("<|im_start|>", &(relay_byte_range){5, 12}, 1, "<|im_start|>");
    assert_shared("<|im<s>", &(relay_byte_range){4, 7}, 1, "<|im[<s>]");
}

static void blanks_are_taken_along(void **state) {
    static const relay_added_token strips[] = {TOKEN("<m>", .lstrip = true), TOKEN("<n>", .rstrip = true)};
    assert_matches(strips, 2, "a \t<m> b", NULL, 0, "a[ \t<m>] b");
    assert_matches(strips, 2, "a <n>\xE3\x80\x80 b", NULL, 0, "a [<n>\xE3\x80\x80 ]b");
    assert_matches(strips, 2, "<n> <m>", NULL, 0, "[<n> ][<m>]"); // the first takes what is between them
    assert_matches(strips, 2, "  <m>", NULL, 0, "[  <m>]");
}

static void single_words_stand_alone(void **state) {
    static const relay_added_token word[] = {TOKEN("the", .single_word = true)};
    assert_matches(word, 1, "the then bathe _the the\xCC\x81 the, the", NULL, 0,
                   "[the] then bathe _the the\xCC\x81 [the], [the]");
}

static void two_alike_and_empty_ones_are_refused(void **state) {
    static const relay_added_token twice[] = {TOKEN("x", .id = 7), TOKEN("x", .id = 9)}, empty[] = {TOKEN("", .id = 3)};
    relay_added_tokens *tokens;
    relay_err e;
    assert_int_equal(relay_added_tokens_create(&tokens, twice, 2, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "are both \"x\""));
    assert_int_equal(relay_added_tokens_create(&tokens, empty, 1, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "added token 3 is empty");
    assert_null(tokens);
    relay_added_tokens_destroy(NULL);
    assert_matches(NULL, 0, "<s>", &(relay_byte_range){0, 3}, 1, "<s>");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_names_count_only_where_the_text_is_open),
        cmocka_unit_test(the_leftmost_and_then_the_longest_is_taken),
        cmocka_unit_test(a_name_that_does_not_count_is_passed_over_as_a_whole),
        cmocka_unit_test(blanks_are_taken_along),
        cmocka_unit_test(single_words_stand_alone),
        cmocka_unit_test(two_alike_and_empty_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
