// Who wrote each byte: the template (t) or the caller (c), through every operation on text.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/tokenizer_svc/jinja_world.h"

typedef struct origin_case {
    const char *source, *text, *from;
} origin_case;

static void all_hold(const origin_case *cases, size_t n) {
    static const char context[] =
        "{\"u\": \"abc\", \"v\": \" x y \", \"n\": 12, \"f\": 1.5, \"b\": true, \"z\": null, \"g\": \"\xC3\x9F\", "
        "\"l\": [\"p\", \"q\"], \"d\": {\"k\": \"w\", \"i\": 7}, \"big\": 123456789012345678901234567890, "
        "\"s\": \"%s|{}\", \"h\": \"<'>\", \"m\": \"one\\ntwo\"}";
    for (size_t i = 0; i < n; i++) {
        jinja_result r = jinja_world_render_text(cases[i].source, context);
        if (r.code != RELAY_OK) fail_msg("%s: %s", cases[i].source, r.error.message);
        if (strcmp(r.text, cases[i].text) != 0)
            fail_msg("%s: text\n%s, want\n%s", cases[i].source, r.text, cases[i].text);
        if (strcmp(r.from, cases[i].from) != 0)
            fail_msg("%s: %s from\n%s, want\n%s", cases[i].source, r.text, r.from, cases[i].from);
        jinja_result_fini(&r);
    }
}
#define ALL_HOLD(cases) all_hold(cases, sizeof(cases) / sizeof(cases)[0])

static void plain_output(void **state) {
    static const origin_case cases[] = {
        {"x{{ u }}y", "xabcy", "tccct"},
        {"{{ 'lit' }}{{ 1 }}{{ true }}{{ none }}", "lit1TrueNone", "tttttttttttt"},
        {"{{ n }}{{ f }}{{ b }}{{ z }}{{ big }}", "121.5TrueNone123456789012345678901234567890",
         "ccccccccccccccccccccccccccccccccccccccccccc"},
        {"{{ missing }}", "", ""},
    };
    ALL_HOLD(cases);
}

static void joining_and_cutting(void **state) {
    static const origin_case cases[] = {
        {"{{ 'a' + u }}", "aabc", "tccc"},
        {"{{ 'a' ~ u ~ 1 ~ n }}", "aabc112", "tccctcc"},
        {"{{ ('a' ~ u ~ 'b')[1:] }}", "abcb", "ccct"},
        {"{{ ('a' ~ u ~ 'b')[::-1] }}", "bcbaa", "tccct"},
        {"{{ ('a' ~ u)[0] }}{{ ('a' ~ u)[1] }}", "aa", "tc"},
        {"{{ u * 2 }}{{ '-' * 2 }}", "abcabc--", "cccccctt"},
        {"{{ v.strip() }}|{{ v | trim }}|{{ (' ' ~ v).lstrip() }}", "x y|x y|x y ", "ccctccctcccc"},
        {"{{ ('-' ~ u).split('b') | join('+') }}", "-a+c", "tctc"},
        {"{{ (u ~ ',' ~ u).split(',') | join(';') }}", "abc;abc", "ccctccc"},
        {"{{ l | join(', ') }}", "p, q", "cttc"},
        {"{{ u.join(['1', '2']) }}", "1abc2", "tccct"},
        {"{{ (u ~ '.').partition('b') | join }}", "abc.", "ccct"},
        {"{{ u | replace('b', 'XY') }}", "aXYc", "cttc"},
        {"{{ 'a.c' | replace('.', u) }}", "aabcc", "tccct"},
        {"{{ 'ab'.replace('', u[0]) }}", "aaaba", "ctctc"},
        {"{{ u | upper }}{{ 'x' | upper }}{{ g | upper }}{{ ('x' ~ u) | title }}", "ABCXSSXabc", "ccctcctccc"},
        {"{{ u | first }}{{ u | list | last }}{{ u | reverse }}", "accba", "ccccc"},
        {"{% for c in 'x' ~ u %}{{ c }}{% endfor %}", "xabc", "tccc"},
        {"{{ u.center(5) }}|{{ u.zfill(4) }}", " abc |0abc", "tccctttccc"},
        {"{{ m | indent(2) }}", "one\n  two", "ccccttccc"},
        {"{{ m.splitlines() | join('/') }}", "one/two", "ccctccc"},
        {"{{ u | truncate(2, true, '~', 0) }}", "a~", "ct"},
        {"{{ h | e }}", "&lt;&#39;&gt;", "ccccccccccccc"},
        {"{{ ('<' | safe) + h }}", "<&lt;&#39;&gt;", "tccccccccccccc"},
        {"{{ h | urlencode }}", "%3C%27%3E", "ccccccccc"},
    };
    ALL_HOLD(cases);
}

// A string that grows in place keeps each piece's origin, and so does what shares its beginning.
static void growing_in_place(void **state) {
    jinja_result r = jinja_world_render_text(
        "{% set ns = namespace(s='t' * 600) %}{% for i in range(3) %}{% set ns.s = ns.s ~ u ~ '!' %}{% endfor %}"
        "{% set a = ns.s ~ u %}{% set b = ns.s ~ '!?!' %}{{ ns.s[600:] }} {{ a[-3:] }} {{ b[-3:] }}",
        "{\"u\": \"abc\"}");
    assert_string_equal(r.text, "abc!abc!abc! abc !?!");
    assert_string_equal(r.from, "ccctccctcccttccctttt");
    jinja_result_fini(&r);
}

static void numbers_and_formats(void **state) {
    static const origin_case cases[] = {
        {"{{ n + 1 }}{{ 1 + 1 }}{{ -n }}{{ n * f }}", "132-1218.0", "cctccccccc"},
        {"{{ n | string }}{{ n | float }}{{ f | int }}{{ f | round }}{{ n | abs }}", "1212.012.012", "cccccccccccc"},
        {"{{ u | length }}{{ 'ab' | length }}", "32", "ct"},
        // what fills up to a width is the template's
        {"{{ '<%s|%3d>' % (u, n) }}", "<abc| 12>", "tcccttcct"},
        {"{{ '<{}:{:>4}>'.format(u, n) }}", "<abc:  12>", "tccctttcct"},
        {"{{ s % u }}", "abc|{}", "cccccc"},
        {"{{ s.format('x') }}", "%s|x", "ccct"},
        {"{{ '%s' | format(u) }}", "abc", "ccc"},
    };
    ALL_HOLD(cases);
}

// Brackets, commas and quotes have the origin of what they enclose.
static void containers(void **state) {
    static const origin_case cases[] = {
        {"{{ l }}{{ ['a'] }}", "['p', 'q']['a']", "ccccccccccttttt"},
        {"{{ [u] }}", "['abc']", "tccccct"},
        {"{{ d }}", "{'k': 'w', 'i': 7}", "cccccccccccccccccc"},
        {"{{ {'k': u} }}", "{'k': 'abc'}", "ttttttccccct"},
        {"{{ l | tojson }}", "[\"p\", \"q\"]", "cccccccccc"},
        {"{{ {'k': u, 'n': n} | tojson }}", "{\"k\": \"abc\", \"n\": 12}", "ttttttccccctttttttcct"},
        {"{{ d | tojson(indent=1) }}", "{\n \"k\": \"w\",\n \"i\": 7\n}", "cccccccccccccccccccccc"},
        {"{{ m | tojson }}", "\"one\\ntwo\"", "cccccccccc"},
        {"{{ d.items() | list }}", "[('k', 'w'), ('i', 7)]", "cccccccccccccccccccccc"},
        {"{{ l + ['a'] }}", "['p', 'q', 'a']", "ccccccccccctttc"},
        {"{{ l | sort }}{{ l | list }}{{ l[1:] }}", "['p', 'q']['p', 'q']['q']", "ccccccccccccccccccccccccc"},
    };
    ALL_HOLD(cases);
}

static void blocks_and_macros(void **state) {
    static const origin_case cases[] = {
        {"{% set x %}<{{ u }}>{% endset %}{{ x }}{{ x[1:] }}", "<abc>abc>", "tccctccct"},
        {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}{{ m('x') }}", "<abc><x>", "tccctttt"},
        {"{% macro m() %}({{ caller() }}){% endmacro %}{% call m() %}{{ u }}!{% endcall %}", "(abc!)", "tccctt"},
        {"{% filter upper %}x{{ u }}{% endfilter %}", "XABC", "tccc"},
        {"{% for x in l recursive %}{{ x }}{{ loop.index }}{% endfor %}", "p1q2", "ctct"},
        {"{% generation %}a{{ u }}{% endgeneration %}", "aabc", "tccc"},
        {"{% set ns = namespace(a=u) %}{% set ns.a = ns.a ~ '.' %}{{ ns.a }}", "abc.", "ccct"},
        {"{{ u if u == 'abc' else 'abc' }}{{ 'abc' if u == 'abc' }}", "abcabc", "cccttt"},
        {"{{ missing | default(u) }}{{ u | default('x') }}{{ z | default('x', true) }}", "abcabcx", "cccccct"},
    };
    ALL_HOLD(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_output),     cmocka_unit_test(joining_and_cutting),
        cmocka_unit_test(growing_in_place), cmocka_unit_test(numbers_and_formats),
        cmocka_unit_test(containers),       cmocka_unit_test(blocks_and_macros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
