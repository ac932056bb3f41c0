// Templates that would never end, or not in this memory.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/tokenizer_svc/jinja_world.h"

static jinja_result render(const char *source, const char *context_json, const jinja_limits *limits) {
    yyjson_doc *doc = NULL;
    relay_err e = {0};
    if (context_json != NULL &&
        relay_json_parse(&doc, context_json, strlen(context_json), RELAY_JSON_MAX_DEPTH, "context", &e) != RELAY_OK)
        fail_msg("%s", e.message);
    jinja_result r = jinja_world_render(source, strlen(source), yyjson_doc_get_root(doc), limits);
    yyjson_doc_free(doc);
    return r;
}

static void exhausts(const char *source, const jinja_limits *limits, const char *what) {
    jinja_result r = render(source, NULL, limits);
    if (r.code != RELAY_RESOURCE_EXHAUSTED) fail_msg("%s: %s", source, r.error.message);
    if (strstr(r.error.message, what) == NULL) fail_msg("%s: %s, want %s", source, r.error.message, what);
    jinja_result_fini(&r);
}

static void steps_are_counted(void **state) {
    jinja_limits limits = JINJA_LIMITS_DEFAULT;
    limits.max_steps = 100 * 1000;
    static const char *const endless[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' }}{% endfor %}",
        "{% set s = 'abcdefghijklmnop' * 10000 %}{% for a in range(9999) %}{{ s[-1] }}{% endfor %}",
        "{% set s = 'abcdefghijklmnop' * 10000 %}{% for a in range(9999) %}{% if 'q' in s %}{% endif %}{% endfor %}",
        "{% set s = 'ab' * 10000 %}{{ s.rfind('aa' * 5000) }}{{ s.rsplit('bb' * 5000) }}",
        "{% set l = range(50000) | list %}{% for a in range(999) %}{% if 'q' in l %}{% endif %}{% endfor %}",
        "{% set l = range(50000) | list %}{{ l | map('string') | sort | unique | groupby(0) }}",
        "{{ range(99999) | map('string') | map('upper') | join }}",
        "{% set l = range(1000) | list %}{{ l == l }}{% for a in range(999) %}{{ l == l }}{% endfor %}",
        "{{ ('x' * 99999) | replace('', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy') }}",
        "{% for i in range(99999) if i < 0 %}{% endfor %}{% for i in range(99999) if i < 0 %}{% endfor %}",
        "{% set a = 'ab' * 9999 ~ 'x' %}{% set b = 'ab' * 9999 ~ 'y' %}{% for i in range(999) %}{{ a == b }}{{ a < b }}"
        "{{ a.startswith(b) }}{{ a.count('a') }}{{ {a: 1}[b] }}{% endfor %}",
        "{% set n = '9' * 9999 ~ 'x' %}{% for i in range(999) %}{{ n | int }}{{ n | float }}{% endfor %}",
        "{% for i in range(999) %}{% set x = [1] | map('nope') %}{% endfor %}",
        "{% set c = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' * 1000 %}{% for i in range(999) %}{{ c | trim('xa') }}{% "
        "endfor %}",
    };
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++)
        exhausts(endless[i], &limits, "takes more than 100000 steps");
}

static void the_default_bounds_end_in_seconds(void **state) {
    static const char *const endless[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ a ~ b }}{% endfor %}{% endfor %}",
        "{% set s = 'abcdefghijklmnop' * 100000 %}{% for a in range(99999) %}{% if s[-1] == 'x' %}{% endif %}{% endfor "
        "%}",
        "{% set ns = namespace(s='x') %}{% for a in range(99999) %}{% set ns.s = ns.s ~ ns.s[:5000] %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for a in range(99999) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++) {
        clock_t begin = clock();
        exhausts(endless[i], NULL, "chat template: line 1, column ");
        assert_true((clock() - begin) / CLOCKS_PER_SEC < 30); // far above what it takes, for slow builds
    }
}

static void depth_is_bounded(void **state) {
    exhausts("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL, "nests more than 1000 levels deep");
    exhausts(
        "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}{% endmacro %}"
        "{{ g() }}",
        NULL, "nests more than 1000 levels deep");
    exhausts("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", NULL, "nests more than 1000 levels deep");
    exhausts("{% set ns = namespace(l=[]) %}{% for i in range(2000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
             NULL, "nests more than 1000 levels deep");
    exhausts("{% set ns = namespace(l=[]) %}{% for i in range(2000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | "
             "tojson }}",
             NULL, "nests more than 1000 levels deep");
    exhausts("{% set ns = namespace(l=[], m=[]) %}{% for i in range(2000) %}{% set ns.l = [ns.l] %}"
             "{% set ns.m = [ns.m] %}{% endfor %}{{ ns.l == ns.m }}{{ ns.l < ns.m }}",
             NULL, "nests more than 1000 levels deep");
    exhausts(
        "{% set ns = namespace(l=()) %}{% for i in range(2000) %}{% set ns.l = (ns.l,) %}{% endfor %}{{ {ns.l: 1} }}",
        NULL, "nests more than 1000 levels deep");
    // a namespace that holds itself
    exhausts("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}", NULL, "nests more than 1000 levels deep");
}

#if defined(RELAY_ASAN) || defined(RELAY_TSAN)
// A sanitizer's frames are larger.
static void a_level_needs_a_kibibyte_of_stack(void **state) {
    skip();
}
#else
// The deepest render must fit the stack that jinja.h promises: a KiB a level.
static void *render_deep(void *arg) {
    exhausts("{% macro f(a) %}{% if true %}{{ 'x' ~ (f(a | default('', true)) ~ a)[0:] }}{% endif %}{% endmacro %}{{ "
             "f('') }}",
             NULL, "nests more than 1000 levels deep");
    return arg;
}

static void a_level_needs_a_kibibyte_of_stack(void **state) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (1000 + 64) * 1024);
    assert_int_equal(pthread_create(&thread, &attr, render_deep, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
}
#endif

static char *repeat(const char *begin, const char *middle, size_t times, const char *end) {
    size_t len = strlen(begin) + times * strlen(middle) + strlen(end) + 1;
    char *s = relay_calloc(len, 1), *p = stpcpy(s, begin);
    for (size_t i = 0; i < times; i++)
        p = stpcpy(p, middle);
    strcpy(p, end);
    return s;
}

static void nesting_of_the_source_is_bounded(void **state) {
    static const struct {
        const char *begin, *middle, *end;
    } deep[] = {
        {"{{ ", "(", " }}"},
        {"{{ ", "[", " }}"},
        {"{{ ", "{1:", " }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "not ", "1 }}"},
        {"{{ 1", " + 1", " }}"},
        {"{{ 1", " ** 1", " }}"},
        {"{{ x", ".y", " }}"},
        {"{{ x", "[0]", " }}"},
        {"{{ x", "()", " }}"},
        {"{{ x", " | e", " }}"},
        {"{{ x", " is defined", " }}"},
        {"{{ 1", " if 1 else 1", " }}"},
        {"{{ 1", " and 1", " }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for x in y %}", ""},
        {"", "{% macro m() %}", ""},
        {"", "{% set x %}", ""},
        {"", "{% filter e %}", ""},
        {"{{ 1", " < 1", " }}"},
        {"{{ f(", "f(", ")) }}"},
    };
    for (size_t i = 0; i < sizeof deep / sizeof deep[0]; i++) {
        char *source = repeat(deep[i].begin, deep[i].middle, 10000, deep[i].end);
        jinja_result r = jinja_world_render_text(source, NULL);
        if (r.code != RELAY_INVALID_ARGUMENT) fail_msg("%s...: accepted", deep[i].middle);
        jinja_result_fini(&r);
        free(source);
    }
}

static void long_is_not_deep(void **state) {
    char *source = repeat("{% if false %}", "{% elif false %}", 5000, "{% else %}x{% endif %}");
    jinja_result r = jinja_world_render_text(source, NULL);
    assert_string_equal(r.text, "x");
    jinja_result_fini(&r);
    free(source);
    source = repeat("{{ 'a'", " ~ 'b'", 20000, " }}");
    r = jinja_world_render_text(source, NULL);
    assert_int_equal(r.len, 20001);
    jinja_result_fini(&r);
    free(source);
    source = repeat("{{ (f([1,", "1,", 20000, "])) if false else 'x' }}");
    r = jinja_world_render_text(source, NULL);
    assert_string_equal(r.text, "x");
    jinja_result_fini(&r);
    free(source);
}

static void variables_are_bounded(void **state) {
    char *source = relay_calloc(64 * 4000, 1), *p = source;
    for (int i = 0; i < 4000; i++)
        p += sprintf(p, "{%% set v%d = 1 %%}", i);
    jinja_result r = jinja_world_render_text(source, NULL);
    assert_int_equal(r.code, RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.message, "more than 2000 variables"));
    jinja_result_fini(&r);
    free(source);
}

static void output_and_memory_are_bounded(void **state) {
    jinja_limits limits = JINJA_LIMITS_DEFAULT;
    limits.max_output_bytes = 1000;
    exhausts("{% for i in range(101) %}0123456789{% endfor %}", &limits, "makes more than 1000 bytes of text");
    jinja_result r = render("{% for i in range(100) %}0123456789{% endfor %}", NULL, &limits);
    assert_int_equal(r.len, 1000);
    jinja_result_fini(&r);
    limits = JINJA_LIMITS_DEFAULT;
    limits.max_memory_bytes = 1 << 20;
    static const char *const large[] = {
        "{{ 'x' * 10000000 }}",
        "{{ [1] * 1000000 }}",
        "{{ 'x'.center(100000000) }}",
        "{{ '%1000000d' % 5 }}{{ '%1000000d' % 5 }}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{{ range(99999) | list }}",
        "{{ [1, 2] | batch(100000, 'x') | list }}",
        "{{ '\t'.expandtabs(99999999) }}",
    };
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        exhausts(large[i], &limits, "needs more than 1048576 bytes of memory");
    limits.max_memory_bytes = 16;
    exhausts("x", &limits, "needs more than 16 bytes of memory");
}

// Of these sizes nothing may be written, nor may a loop count them.
static void what_cannot_fit_is_refused_at_once(void **state) {
    static const char *const huge[] = {
        "{{ 'a' * 9000000000000000000 }}",       "{{ 'a' * 1000000000 }}",
        "{{ 'x'.center(99999999999) }}",         "{{ 'x' | center(9000000000000000000) }}",
        "{{ 'x'.ljust(9000000000000000000) }}",  "{{ 'x'.rjust(99999999999) }}",
        "{{ ''.zfill(9000000000000000000) }}",   "{{ 'x' | indent(1000000000, true) }}",
        "{{ [1] | tojson(indent=1000000000) }}", "{{ '\t'.expandtabs(9000000000000000000) }}",
    };
    clock_t begin = clock();
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++)
        exhausts(huge[i], NULL, "needs more than 67108864 bytes of memory");
    assert_true(clock() - begin < CLOCKS_PER_SEC);
}

static void nothing_repeated_is_nothing(void **state) {
    jinja_result r = jinja_world_render_text(
        "[{{ '' * 9000000000000000000 }}{{ 'x' * -1 }}{{ 'x' * 0 }}{{ 'ab' * 5 }}{{ 'x'.center(8, '-') }}"
        "{{ 'é' * 3 }}{{ '-7'.zfill(5) }}{{ ('a' ~ c) * 3 }}]",
        "{\"c\": \"b\"}");
    if (r.code != RELAY_OK) fail_msg("%s", r.error.message);
    assert_string_equal(r.text, "[ababababab---x----ééé-0007ababab]");
    assert_int_equal(memcmp(r.from + r.len - 7, "tctctct", 7), 0);
    jinja_result_fini(&r);
}

static const char BUSY[] = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";

// What a filter looks at and makes is paid for; the time is the bound behind the others.
static void time_is_bounded(void **state) {
    jinja_limits limits = JINJA_LIMITS_DEFAULT;
    limits.max_steps = UINT64_MAX;
    limits.max_memory_bytes = (size_t)1 << 30;
    limits.max_time_ms = 30;
    clock_t begin = clock();
    exhausts(BUSY, &limits, "takes more than 30 ms");
    assert_true(clock() - begin < 5 * CLOCKS_PER_SEC);
    static const char *const busy[] = {
        "{% set s = 'a' * 100000 %}{% for i in range(99999) %}{% if s | upper | length > 5 %}{% endif %}{% endfor %}",
        "{% set s = 'é' * 50000 %}{% for i in range(99999) %}{% if s | title == 5 %}{% endif %}{% endfor %}",
        "{{ ('b' * 1000000) | trim('a' * 1000000 ~ 'b') }}",
        "{% set s = 'a ' * 50000 %}{% for i in range(99999) %}{% if s | wordcount == 5 %}{% endif %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof busy / sizeof busy[0]; i++) {
        begin = clock();
        exhausts(busy[i], NULL, "chat template: line 1, column ");
        assert_true(clock() - begin < 5 * CLOCKS_PER_SEC); // two and some room
    }
}

static bool is_over_at_the_third(void *arg) {
    return ++*(int *)arg == 3;
}

static void who_is_gone_stops_the_render(void **state) {
    int n_asked = 0;
    jinja_limits limits = JINJA_LIMITS_DEFAULT;
    limits.is_over = is_over_at_the_third;
    limits.arg = &n_asked;
    jinja_result r = render(BUSY, NULL, &limits);
    assert_int_equal(r.code, RELAY_CANCELLED);
    assert_int_equal(n_asked, 3);
    jinja_result_fini(&r);
}

static bool is_never_over(void *arg) {
    ++*(int *)arg;
    return false;
}

// One filter over much text asks on its way and not only at its end: each of 100,000 hits or look-ups is a step.
static void a_long_filter_is_asked_on_its_way(void **state) {
    static const char *const sources[] = {
        "{{ ('a' * 100000).count('a') }}", "{{ ('é' * 100000).isalpha() }}",      "{{ ('é' * 100000).islower() }}",
        "{{ ('Éé ' * 50000).istitle() }}", "{{ ('é' * 100000).isidentifier() }}", "{{ ('é' * 100000) | wordcount }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        int n_asked = 0;
        jinja_limits limits = JINJA_LIMITS_DEFAULT;
        limits.max_time_ms = UINT32_MAX;
        limits.is_over = is_never_over;
        limits.arg = &n_asked;
        jinja_result r = render(sources[i], NULL, &limits);
        if (r.code != RELAY_OK) fail_msg("%s: %s", sources[i], r.error.message);
        if (n_asked < 20) fail_msg("%s: asked %d times", sources[i], n_asked);
        jinja_result_fini(&r);
    }
}

// What a template accumulates piece by piece must cost what it is, not its square.
static void growing_a_string_or_a_list_is_linear(void **state) {
    jinja_limits limits = JINJA_LIMITS_DEFAULT;
    limits.max_memory_bytes = 24 << 20;
    jinja_result r =
        render("{% set ns = namespace(a='', b='', l=[]) %}{% for i in range(20000) %}"
               "{% set ns.a = ns.a ~ '0123456789' %}{% set ns.b = ns.b + 'abcdefghij' %}"
               "{% set ns.l = ns.l + [i] %}{% endfor %}"
               "{{ ns.a | length }} {{ ns.b | length }} {{ ns.l | length }} {{ ns.a[-3:] }} {{ ns.l[-1] }}",
               NULL, &limits);
    if (r.code != RELAY_OK) fail_msg("%s", r.error.message);
    assert_string_equal(r.text, "200000 200000 20000 789 19999");
    jinja_result_fini(&r);
}

// Thousands of keys are found by binary search.
static void a_large_dictionary_is_searched_quickly(void **state) {
    enum { KEYS = 20000 };
    char *json = relay_calloc(KEYS * 16 + 64, 1), *p = json;
    p += sprintf(p, "{\"d\": {");
    for (int i = 0; i < KEYS; i++)
        p += sprintf(p, "%s\"k%d\": %d", i > 0 ? ", " : "", i, i);
    sprintf(p, "}}");
    jinja_limits limits = JINJA_LIMITS_DEFAULT;
    limits.max_steps = 2 * 1000 * 1000;
    jinja_result r =
        render("{% set ns = namespace(n=0) %}{% for k in d %}{% set ns.n = ns.n + d[k] %}{% endfor %}{{ ns.n }}"
               "{{ d['k'] is defined }}{{ 'k19999' in d }}",
               json, &limits);
    if (r.code != RELAY_OK) fail_msg("%s", r.error.message);
    assert_string_equal(r.text, "199990000FalseTrue");
    jinja_result_fini(&r);
    free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_counted),
        cmocka_unit_test(the_default_bounds_end_in_seconds),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(a_level_needs_a_kibibyte_of_stack),
        cmocka_unit_test(nesting_of_the_source_is_bounded),
        cmocka_unit_test(long_is_not_deep),
        cmocka_unit_test(variables_are_bounded),
        cmocka_unit_test(output_and_memory_are_bounded),
        cmocka_unit_test(what_cannot_fit_is_refused_at_once),
        cmocka_unit_test(nothing_repeated_is_nothing),
        cmocka_unit_test(time_is_bounded),
        cmocka_unit_test(who_is_gone_stops_the_render),
        cmocka_unit_test(a_long_filter_is_asked_on_its_way),
        cmocka_unit_test(growing_a_string_or_a_list_is_linear),
        cmocka_unit_test(a_large_dictionary_is_searched_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
