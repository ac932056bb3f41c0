// Constraints that ask for too much are refused by a limit; deep and ambiguous ones are followed within theirs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "tests/model_svc/constraint/matching.h"

enum { MAX_TEXT = 1 << 22 };

static matching m;
static relay_buf text;

static void repeat(const char *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        relay_buf_puts(&text, s);
}

static void check_refused(relay_constraint_kind kind, const char *wants) {
    relay_err e = {0};
    assert_false(text.is_failed);
    relay_constraint *c = matching_compile(&m, kind, text.data, &e);
    if (c != NULL) fail_msg("%.60s was taken", text.data);
    assert_int_equal(e.code, RELAY_INVALID_ARGUMENT);
    if (strstr(e.message, wants) == NULL) fail_msg("%.60s: %s", text.data, e.message);
    relay_buf_clear(&text);
}

static void what_grows_without_end_is_refused(void **state) {
    static const char *const patterns[] = {
        "(a|b)*a(a|b){30}", "((((a{100}){100}){100}){100})", "[^x]{65536}", "(a?){65536}a", "(.{0,1000}x){50}",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        relay_buf_puts(&text, patterns[i]);
        check_refused(RELAY_CONSTRAINT_REGEX, "too complex");
    }
    repeat("a", 100000);
    check_refused(RELAY_CONSTRAINT_REGEX, "more than 65536 states");
    repeat("a", 300000);
    check_refused(RELAY_CONSTRAINT_REGEX, "parts");
    repeat("a", (1 << 20) + 1);
    check_refused(RELAY_CONSTRAINT_REGEX, "at most 1048576 are allowed");
    repeat("(", 200);
    check_refused(RELAY_CONSTRAINT_REGEX, "more than 128 groups");
    relay_buf_puts(&text, "root ::= ");
    repeat("(", 200);
    check_refused(RELAY_CONSTRAINT_GRAMMAR, "more than 128 groups");
    for (int i = 0; i < 20000; i++)
        relay_buf_printf(&text, "r%d ::= \"a\"\n", i);
    check_refused(RELAY_CONSTRAINT_GRAMMAR, "more than 16384 rules");
    repeat("{\"items\":", 100);
    check_refused(RELAY_CONSTRAINT_JSON_SCHEMA, "levels of nesting");
    relay_buf_puts(&text, "{\"properties\":{");
    for (int i = 0; i < 1100; i++)
        relay_buf_printf(&text, "%s\"p%d\":true", i == 0 ? "" : ",", i);
    relay_buf_puts(&text, "}}");
    check_refused(RELAY_CONSTRAINT_JSON_SCHEMA, "more than 1024 properties");
    relay_buf_puts(&text,
                   "{\"type\":\"array\",\"items\":{\"maxLength\":2000,\"type\":\"string\"},\"maxItems\":1000000000}");
    check_refused(RELAY_CONSTRAINT_JSON_SCHEMA, "too complex");
}

static void what_is_large_but_fits_is_taken(void **state) {
    relay_err e = {0};
    for (int i = 0; i < 3000; i++)
        relay_buf_printf(&text, "%sw%d", i == 0 ? "" : "|", i);
    relay_constraint *c = matching_compile(&m, RELAY_CONSTRAINT_REGEX, text.data, &e);
    if (c == NULL) fail_msg("%s", e.message);
    assert_int_equal(matching_feed(&m, c, "w2999", false), COMPLETE);
    assert_int_equal(matching_feed(&m, c, "w3000", false), REJECTED);
    relay_constraint_destroy(c);
    relay_buf_clear(&text);
    relay_buf_puts(&text, "{\"properties\":{");
    for (int i = 0; i < 200; i++)
        relay_buf_printf(&text, "%s\"p%d\":{\"const\":%d}", i == 0 ? "" : ",", i, i);
    relay_buf_puts(&text, "}}"); // any of them, or none
    c = matching_compile(&m, RELAY_CONSTRAINT_JSON_SCHEMA, text.data, &e);
    if (c == NULL) fail_msg("%s", e.message);
    assert_int_equal(matching_feed(&m, c, "{\"p7\":7,\"p30\":30, \"p199\":199}", false), COMPLETE);
    assert_int_equal(matching_feed(&m, c, "{\"p30\":30,\"p7\"", false), REJECTED);
    relay_constraint_destroy(c);
    relay_buf_clear(&text);
}

// Reads `s` n times, as far as it is allowed.
static uint32_t read_repeated(relay_constraint *c, relay_matcher *at, char s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (!relay_matcher_read(c, at, (uint8_t)s)) return i;
    }
    return n;
}

static void nesting_goes_deep_and_ends(void **state) {
    relay_constraint *c = matching_compile(&m, RELAY_CONSTRAINT_ANY_JSON, "", NULL);
    relay_matcher at;
    relay_matcher_begin(c, &at);
    assert_int_equal(read_repeated(c, &at, '[', 250), 250);
    matching_check_mask(&m, c, &at);
    assert_int_equal(read_repeated(c, &at, ']', 250), 250);
    assert_true(relay_matcher_is_over(c, &at));
    // To the bound: one bracket more is not allowed, nor what would be as deep, and what is open can still be closed.
    relay_matcher_begin(c, &at);
    uint32_t depth = 0;
    for (;; depth++) {
        relay_matcher next = at;
        if (!relay_matcher_read(c, &next, '[')) break;
        at = next;
        assert_true(depth < 100000);
    }
    assert_true(depth > 250);
    matching_check_mask(&m, c, &at);
    assert_int_equal(read_repeated(c, &at, ']', depth), depth);
    assert_true(relay_matcher_is_over(c, &at));
    relay_constraint_destroy(c);
}

// Every prefix can be read in exponentially many ways.
static void ambiguity_does_not_multiply(void **state) {
    static const char *const grammars[] = {
        "root ::= x root | y root | \"b\"\nx ::= \"a\"\ny ::= \"a\"",
        "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" root | \"\"",
        "root ::= s\ns ::= \"a\" s s | \"a\" s | \"a\" | \"b\"",
        "root ::= x root \"b\" | y root \"c\" | \"d\"\nx ::= \"a\"\ny ::= \"a\"",
    };
    for (size_t i = 0; i < sizeof grammars / sizeof grammars[0]; i++) {
        relay_err e = {0};
        relay_constraint *c = matching_compile(&m, RELAY_CONSTRAINT_GRAMMAR, grammars[i], &e);
        if (c == NULL) fail_msg("%s", e.message);
        relay_matcher at;
        relay_matcher_begin(c, &at);
        assert_int_equal(read_repeated(c, &at, 'a', 60), 60);
        matching_check_mask(&m, c, &at);
        relay_constraint_destroy(c);
    }
}

// More configurations than there is memory for: what was read is read again, in memory that is empty.
static void full_memory_is_begun_again(void **state) {
    relay_constraint *c = matching_compile(&m, RELAY_CONSTRAINT_ANY_JSON, "", NULL);
    uint32_t n_stale = 0;
    for (uint32_t round = 0; round < 20000 && n_stale < 1; round++) {
        relay_matcher at;
        relay_matcher_begin(c, &at);
        // Brackets in an order that no other round has.
        for (uint32_t i = 0; i < 16 && !relay_matcher_is_stale(c, &at); i++) {
            for (const char *s = round >> i & 1 ? "{\"a\":" : "["; *s != 0 && !relay_matcher_is_stale(c, &at); s++)
                assert_true(relay_matcher_read(c, &at, (uint8_t)*s) || relay_matcher_is_stale(c, &at));
        }
        if (relay_matcher_is_stale(c, &at)) {
            n_stale++;
        } else if (!relay_matcher_mask(c, &at, m.words)) {
            assert_true(relay_matcher_is_stale(c, &at));
            n_stale++;
        }
    }
    assert_true(n_stale >= 1);
    assert_int_equal(matching_feed(&m, c, "{\"a\": [1, 2]}", false), COMPLETE);
    relay_constraint_destroy(c);
}

int main(void) {
    matching_init(&m);
    relay_buf_init(&text, MAX_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_grows_without_end_is_refused), cmocka_unit_test(what_is_large_but_fits_is_taken),
        cmocka_unit_test(nesting_goes_deep_and_ends),        cmocka_unit_test(ambiguity_does_not_multiply),
        cmocka_unit_test(full_memory_is_begun_again),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    relay_buf_fini(&text);
    matching_fini(&m);
    return failed;
}
