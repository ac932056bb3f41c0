// What a template is told when it is wrong, and where.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/tokenizer_svc/jinja_world.h"

typedef struct wrong {
    const char *source, *message; // behind "chat template: "
} wrong;

static void all_are_refused(const wrong *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        jinja_result r = jinja_world_render_text(cases[i].source, "{\"d\": {\"a\": 1}, \"l\": [1, 2], \"s\": \"abc\"}");
        if (r.code != RELAY_INVALID_ARGUMENT) fail_msg("%s: not refused", cases[i].source);
        assert_memory_equal(r.error.message, "chat template: ", 15);
        assert_string_equal(r.error.message + 15, cases[i].message);
        jinja_result_fini(&r);
    }
}

static void syntax_errors_name_line_and_column(void **state) {
    static const wrong cases[] = {
        {"a {# b", "line 1, column 3: Missing end of comment tag"},
        {"\n\n {{ x", "line 3, column 2: Missing end of print statement"},
        {"{% if x", "line 1, column 1: Missing end of block tag"},
        {"{% raw %} x", "line 1, column 1: Missing end of raw directive"},
        {"{{ 'abc }}", "line 1, column 4: a string without an end"},
        {"{{ '\\xZ1' }}", "line 1, column 7: truncated \\x, \\u or \\U escape in a string"},
        {"{{ '\\ud800' }}", "line 1, column 7: an escape in a string that is no character"},
        {"{{ '\\N{DASH}' }}", "line 1, column 6: \\N escapes are not supported"},
        {"{{ 99999999999999999999 }}", "line 1, column 4: an integer beyond 64 bits"},
        {"{{ a ? b }}", "line 1, column 6: unexpected char '?'"},
        {"{{ \xE2\x82\xAC }}", "line 1, column 4: unexpected char '\xE2\x82\xAC'"},
        {"{{ ) }}", "line 1, column 4: unexpected ')'"},
        {"{{ (a] }}", "line 1, column 6: unexpected ']', expected ')'"},
        {"{{ a b }}", "line 1, column 6: expected end of print statement, got 'b'"},
        {"{{ }}", "line 1, column 4: Expected an expression, got end of print statement"},
        {"{{ 1 + }}", "line 1, column 8: unexpected end of print statement"},
        {"{{ [1 2] }}", "line 1, column 7: expected ',', got integer"},
        {"{{ a. }}", "line 1, column 7: expected name or number"},
        {"{{ a | }}", "line 1, column 8: expected a name, got end of print statement"},
        {"{{ a | nope }}", "line 1, column 8: No filter named 'nope'"},
        {"{{ a is nope }}", "line 1, column 6: No test named 'nope'"},
        {"{{ a is defined is true }}", "line 1, column 17: You cannot chain multiple tests with is"},
        {"{{ f(a=1, 2) }}", "line 1, column 5: invalid syntax for function call expression"},
        {"{{ f(a=1, a=2) }}", "line 1, column 11: keyword argument 'a' repeated"},
        {"{% 5 %}", "line 1, column 4: expected the name of a tag, got integer"},
        {"{% nope %}", "line 1, column 4: Encountered unknown tag 'nope'"},
        {"{% block x %}{% endblock %}", "line 1, column 4: Encountered unknown tag 'block'"},
        {"{% if x %}{% endfor %}",
         "line 1, column 14: Encountered unknown tag 'endfor'. Looking for the tags: elif else endif"},
        {"{% if x %}\n\n", "line 2, column 1: Unexpected end of template. Looking for the tags: elif else endif"},
        {"{% for x y %}", "line 1, column 10: expected 'in', got 'y'"},
        {"{% for 1 in x %}{% endfor %}", "line 1, column 8: cannot assign to this"},
        {"{% for loop in x %}{% endfor %}",
         "line 1, column 8: Can't assign to special loop variable in for-loop target"},
        {"{% set x.y.z = 1 %}", "line 1, column 11: expected end of statement block, got '.'"},
        {"{% break %}", "line 1, column 4: 'break' outside a loop"},
        {"{% macro m(a, a) %}{% endmacro %}", "line 1, column 15: duplicate parameter 'a'"},
        {"{% macro m(a=1, b) %}{% endmacro %}", "line 1, column 17: non-default argument follows default argument"},
        {"{% call 5 %}{% endcall %}", "line 1, column 4: expected call"},
    };
    all_are_refused(cases, sizeof cases / sizeof cases[0]);
}

static void runtime_errors_name_line_and_column(void **state) {
    static const wrong cases[] = {
        {"\n{{ nothing.more }}", "line 2, column 11: 'nothing' is undefined"},
        {"{{ d.b.c }}", "line 1, column 7: 'dict object' has no attribute 'b'"},
        {"{{ l[5] + 1 }}", "line 1, column 9: list object has no element 5"},
        {"{{ l.append(1) }}", "line 1, column 12: access to attribute 'append' of 'list object' object is unsafe"},
        {"{{ s + 1 }}", "line 1, column 6: can only concatenate str (not \"int\") to str"},
        {"{% for x in 5 %}{% endfor %}", "line 1, column 13: 'int' object is not iterable"},
        {"{% set a, b = l + l %}", "line 1, column 8: too many values to unpack (expected 2)"},
        {"{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}", "line 1, column 21: parameter 'a' was not provided"},
        {"{{ 9223372036854775807 + 1 }}", "line 1, column 24: an integer beyond 64 bits"},
        {"{% include 'x' %}", "line 1, column 4: 'include': a chat template has no loader for other templates"},
        {"{% if d %}{{ d | nope }}{% endif %}", "line 1, column 18: No filter named 'nope' found"},
        {"{{ ('a' if false).b }}",
         "line 1, column 18: the inline if-expression evaluated to false and no else section was defined"},
    };
    all_are_refused(cases, sizeof cases / sizeof cases[0]);
}

static void columns_count_characters_and_lines_any_line_end(void **state) {
    jinja_result r = jinja_world_render_text("\xC3\xA9\r\n\xE2\x82\xAC\r{{ x.y }}", NULL);
    assert_string_equal(r.error.message, "chat template: line 3, column 5: 'x' is undefined");
    jinja_result_fini(&r);
}

static void refuses_source_that_is_no_utf8_or_too_long(void **state) {
    jinja_template *t;
    relay_err e = {0};
    assert_int_equal(jinja_template_compile(&t, "ab\xFF", 3, &e), RELAY_INVALID_ARGUMENT);
    assert_null(t);
    assert_string_equal(e.message, "chat template: byte 2 is not valid UTF-8");
    char *source = relay_calloc(JINJA_MAX_SOURCE + 1, 1);
    memset(source, 'x', JINJA_MAX_SOURCE + 1);
    assert_int_equal(jinja_template_compile(&t, source, JINJA_MAX_SOURCE, &e), RELAY_OK);
    jinja_template_destroy(t);
    assert_int_equal(jinja_template_compile(&t, source, JINJA_MAX_SOURCE + 1, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "chat template: 262145 bytes, at most 262144");
    free(source);
    jinja_template_destroy(NULL);
    jinja_run_destroy(NULL);
}

static void a_long_exception_is_cut_and_still_utf8(void **state) {
    jinja_result r = jinja_world_render_text("{{ raise_exception('\xE2\x82\xAC' * 1000) }}", NULL);
    assert_int_equal(r.code, RELAY_INVALID_ARGUMENT);
    assert_int_equal(strlen(r.error.message), RELAY_ERR_MESSAGE_MAX - 1);
    assert_true(relay_utf8_is_valid(r.error.message, strlen(r.error.message)));
    assert_memory_equal(r.error.message, "\xE2\x82\xAC\xE2\x82\xAC", 6);
    jinja_result_fini(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(syntax_errors_name_line_and_column),
        cmocka_unit_test(runtime_errors_name_line_and_column),
        cmocka_unit_test(columns_count_characters_and_lines_any_line_end),
        cmocka_unit_test(refuses_source_that_is_no_utf8_or_too_long),
        cmocka_unit_test(a_long_exception_is_cut_and_still_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
