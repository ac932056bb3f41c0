// Masks and reading ask the system for nothing, cold or warm, full or not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/model_svc/call_counter.h"
#include "tests/model_svc/constraint/matching.h"

static matching m;

static void follow(relay_constraint *c, const char *text) {
    relay_matcher at;
    relay_matcher_begin(c, &at);
    for (const char *s = text; *s != 0; s++) {
        bool has_mask = relay_matcher_mask(c, &at, m.words);
        bool is_read = has_mask && relay_matcher_read(c, &at, (uint8_t)*s);
        if (!is_read) {
            count_calls(false);
            fail_msg("%s is not read", text);
        }
    }
}

static void check(relay_constraint_kind kind, const char *constraint, const char *text) {
    relay_err e = {0};
    relay_constraint *c = matching_compile(&m, kind, constraint, &e);
    if (c == NULL) fail_msg("%s", e.message);
    relay_constraint_reset(c); // what was made while compiling is to be made again
    count_calls(true);
    follow(c, text);
    follow(c, text);
    relay_constraint_reset(c);
    follow(c, text);
    count_calls(false);
    assert_int_equal(counted.memory, 0);
    assert_int_equal(counted.locks, 0);
    assert_int_equal(counted.output, 0);
    assert_int_equal(counted.syscalls, 0);
    relay_constraint_destroy(c);
}

static void nothing_is_asked_for(void **state) {
    check(RELAY_CONSTRAINT_ANY_JSON, "", "{\"a\": [1, 2.5e3, {\"b\": \"c\"}, \"\xE2\x82\xAC\"]}");
    check(RELAY_CONSTRAINT_REGEX, "(a|b)*a(a|b){6}", "abbabababa");
    check(RELAY_CONSTRAINT_GRAMMAR, "root ::= x root | y root | \"b\"\nx ::= \"a\"\ny ::= \"a\"", "aaaaaaaaaaaaaaab");
    // Calls of so many rules that the frames to be sorted are many.
    char grammar[8192] = "root ::= ( r0";
    for (int i = 1; i < 150; i++)
        snprintf(grammar + strlen(grammar), sizeof grammar - strlen(grammar), " | r%d", i);
    strcat(grammar, ") \"x\"\n");
    for (int i = 0; i < 150; i++)
        snprintf(grammar + strlen(grammar), sizeof grammar - strlen(grammar), "r%d ::= s \"%d\"\n", i, i);
    strcat(grammar, "s ::= \"a\" s? \"b\"\n");
    check(RELAY_CONSTRAINT_GRAMMAR, grammar, "aabb149x");
}

int main(void) {
    matching_init(&m);
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_asked_for)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matching_fini(&m);
    return failed;
}
