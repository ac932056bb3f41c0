#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "tests/tokenizer_svc/small_vocab.h"
#include "tokenizer_svc/stop_matcher.h"

static relay_stop_matcher *make(const char *const *strings, uint32_t n) {
    relay_stop_string list[RELAY_MAX_STOP_STRINGS];
    for (uint32_t i = 0; i < n; i++)
        list[i] = (relay_stop_string){.bytes = strings[i], .len = strlen(strings[i])};
    return relay_stop_matcher_create(list, n);
}

static relay_stop_state feed(const relay_stop_matcher *m, const char *text) {
    relay_stop_state at = 0;
    for (; *text != 0; text++)
        at = relay_stop_matcher_step(m, at, (uint8_t)*text);
    return at;
}

static void finds_the_longest_of_those_that_end_at_one_byte(void **state) {
    static const char *const strings[] = {"he", "she", "hers", "e"};
    relay_stop_matcher *m = make(strings, 4);
    assert_int_equal(relay_stop_matcher_match(m, feed(m, "xh")), RELAY_STOP_NO_MATCH);
    assert_int_equal(relay_stop_matcher_match(m, feed(m, "she")), 1);
    assert_int_equal(relay_stop_matcher_match(m, feed(m, "xhe")), 0);
    assert_int_equal(relay_stop_matcher_match(m, feed(m, "xe")), 3);
    assert_int_equal(relay_stop_matcher_match(m, feed(m, "shers")), 2);
    relay_stop_matcher_destroy(m);
}

static void counts_equal_strings_as_the_first(void **state) {
    static const char *const strings[] = {"x", "ab", "ab"};
    relay_stop_matcher *m = make(strings, 3);
    assert_int_equal(relay_stop_matcher_match(m, feed(m, "ab")), 1);
    relay_stop_matcher_destroy(m);
}

static void forgets_a_completed_match_but_not_what_may_still_grow(void **state) {
    static const char *const strings[] = {"abab", "ab"};
    relay_stop_matcher *m = make(strings, 2);
    size_t len;
    relay_stop_matcher_prefix(m, relay_stop_matcher_forget_match(m, feed(m, "ab")), &len);
    assert_int_equal(len, 2); // may become abab
    relay_stop_matcher_prefix(m, relay_stop_matcher_forget_match(m, feed(m, "abab")), &len);
    assert_int_equal(len, 2); // its second half may
    relay_stop_matcher_destroy(m);
}

static void has_one_state_without_strings(void **state) {
    relay_stop_matcher *m = relay_stop_matcher_create(NULL, 0);
    assert_int_equal(relay_stop_matcher_n_states(m), 1);
    assert_int_equal(feed(m, "anything"), 0);
    relay_stop_matcher_destroy(m);
    relay_stop_matcher_destroy(NULL);
}

static bool ends_with(const char *text, size_t len, const char *tail, size_t tail_len) {
    return tail_len <= len && memcmp(text + len - tail_len, tail, tail_len) == 0;
}

// Against the definitions, over an alphabet so small that everything overlaps.
static void agrees_with_the_definition_on_random_strings(void **state) {
    test_random r = {1};
    for (int round = 0; round < 3000; round++) {
        char strings[RELAY_MAX_STOP_STRINGS][8];
        const char *list[RELAY_MAX_STOP_STRINGS];
        uint32_t n = 1 + test_random_below(&r, RELAY_MAX_STOP_STRINGS);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t len = 1 + test_random_below(&r, 6);
            for (uint32_t k = 0; k < len; k++)
                strings[i][k] = (char)('a' + test_random_below(&r, 2 + round % 2));
            strings[i][len] = 0;
            list[i] = strings[i];
        }
        relay_stop_matcher *m = make(list, n);
        char text[64];
        relay_stop_state at = 0;
        for (size_t len = 1; len <= sizeof text; len++) {
            text[len - 1] = (char)('a' + test_random_below(&r, 3));
            at = relay_stop_matcher_step(m, at, (uint8_t)text[len - 1]);
            int longest = RELAY_STOP_NO_MATCH;
            size_t partial = 0;
            for (uint32_t i = 0; i < n; i++) {
                size_t string_len = strlen(list[i]);
                if (ends_with(text, len, list[i], string_len) &&
                    (longest == RELAY_STOP_NO_MATCH || string_len > strlen(list[longest])))
                    longest = (int)i;
                for (size_t k = 1; k < string_len; k++)
                    if (k > partial && ends_with(text, len, list[i], k)) partial = k;
            }
            assert_int_equal(relay_stop_matcher_match(m, at), longest);
            size_t held;
            const char *prefix = relay_stop_matcher_prefix(m, relay_stop_matcher_forget_match(m, at), &held);
            assert_int_equal(held, partial);
            assert_true(ends_with(text, len, prefix, held));
        }
        relay_stop_matcher_destroy(m);
    }
}

static void takes_the_most_and_longest_strings(void **state) {
    char strings[RELAY_MAX_STOP_STRINGS][RELAY_MAX_STOP_STRING_BYTES];
    relay_stop_string list[RELAY_MAX_STOP_STRINGS];
    for (int i = 0; i < RELAY_MAX_STOP_STRINGS; i++) {
        memset(strings[i], 'a' + i, sizeof strings[i]);
        list[i] = (relay_stop_string){.bytes = strings[i], .len = sizeof strings[i]};
    }
    relay_stop_matcher *m = relay_stop_matcher_create(list, RELAY_MAX_STOP_STRINGS);
    assert_int_equal(relay_stop_matcher_n_states(m), 1 + RELAY_MAX_STOP_STRINGS * RELAY_MAX_STOP_STRING_BYTES);
    relay_stop_state at = 0;
    for (int i = 0; i < RELAY_MAX_STOP_STRING_BYTES; i++)
        at = relay_stop_matcher_step(m, at, 'p');
    assert_int_equal(relay_stop_matcher_match(m, at), 15);
    relay_stop_matcher_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_longest_of_those_that_end_at_one_byte),
        cmocka_unit_test(counts_equal_strings_as_the_first),
        cmocka_unit_test(forgets_a_completed_match_but_not_what_may_still_grow),
        cmocka_unit_test(has_one_state_without_strings),
        cmocka_unit_test(agrees_with_the_definition_on_random_strings),
        cmocka_unit_test(takes_the_most_and_longest_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
