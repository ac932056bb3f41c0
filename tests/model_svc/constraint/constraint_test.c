// What each kind of constraint allows, refuses, and says of what is wrong with it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "tests/model_svc/constraint/byte_vocab.h"
#include "tests/model_svc/constraint/matching.h"

static matching m;

static void check_text(relay_constraint_kind kind, const char *constraint, const char *text, verdict wanted) {
    relay_err e = {0};
    relay_constraint *c = matching_compile(&m, kind, constraint, &e);
    if (c == NULL) fail_msg("%s: %s", constraint, e.message);
    for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
        verdict got = matching_feed(&m, c, text, by_bytes);
        if (got != wanted)
            fail_msg("%s: \"%s\" by %s is %d", constraint, text, by_bytes ? "bytes" : "tokens", (int)got);
    }
    relay_constraint_destroy(c);
}

typedef struct text_case {
    const char *constraint, *complete, *open, *rejected; // any may be NULL
} text_case;

static void check_cases(relay_constraint_kind kind, const text_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (cases[i].complete != NULL) check_text(kind, cases[i].constraint, cases[i].complete, COMPLETE);
        if (cases[i].open != NULL) check_text(kind, cases[i].constraint, cases[i].open, OPEN);
        if (cases[i].rejected != NULL) check_text(kind, cases[i].constraint, cases[i].rejected, REJECTED);
    }
}

#define CHECK(kind, cases) check_cases(kind, cases, sizeof cases / sizeof cases[0])

static void regular_expressions(void **state) {
    static const text_case cases[] = {
        {"abc", "abc", "ab", "abx"},
        {"", "", NULL, "a"},
        {"a|bc|", "bc", "b", "c"},
        {"^a$|^b$", "b", NULL, "ab"},
        {"(ab)*c+", "ababcc", "aba", "ac"},
        {"a{2}", "aa", "a", "aaa"},
        {"a{2,}", "aaaaa", "a", "b"},
        {"a{1,3}?", "aaa", "", "aaaa"},
        {"a{,3}", "a{,3}", "a", "aa"}, // no repeat, as in PCRE2
        {"[a-c0]+", "abc0", "", "d"},
        {"[^a-c]", "\xE2\x82\xAC", "\xE2", "a"},
        {".", "\xF0\x9F\x98\x80", "\xF0\x9F", "\n"},
        {"\\d\\w\\s", "1_ ", "1_", "a"},
        {"\\D\\W\\S", "a-b", "a", "1"},
        {"\\x41\\u00e4\\u{1F600}\\uD83D\\uDE00", "A\xC3\xA4\xF0\x9F\x98\x80\xF0\x9F\x98\x80", "A", "B"},
        {"\\p{Lu}\\P{L}",
         "\xC3\x84"
         "1",
         "A", "a"},
        {"(?:a)(?<n>b)(?P<m>c)", "abc", "a", "b"},
        {"\\.\\*\\/", ".*/", ".", "a"},
        {"[a\\-z]+", "-az", "", "b"},
        {"[\xC3\xA4-\xC3\xBC]", "\xC3\xB6", "\xC3", "\xC4"},
    };
    CHECK(RELAY_CONSTRAINT_REGEX, cases);
}

static void grammars(void **state) {
    static const text_case cases[] = {
        {"root ::= \"a\" b\nb ::= [0-9]+ # digits", "a12", "a", "1"},
        {"root ::= (\n  \"a\"\n  | \"b\"\n)* \"\\x41\"", "abA", "ab", "c"},
        {"root ::= \"a\"\n  | \"b\"", "b", "", "c"},
        {"root ::= \"(\" root \")\" | [x-z]", "((x))", "((x)", "()"},
        {"root ::= a a?\na ::= \"q\"{2}", "qqqq", "qqq", "p"},
        {"root ::= [^\"\\n]{1,2} .", "ab\n", "a", "\""},
        {"root ::= \"\xC3\xA4\" [\\u00e4-\\u00fc]", "\xC3\xA4\xC3\xBC", "\xC3", "a"},
        {"list ::= root\nroot ::= \"x\" (\",\" root)?", "x,x,x", "x,", ","},
        {"root ::= e\ne ::= \"\" | \"a\" e", "aaa", NULL, "b"},
        {"root ::= e e e\ne ::= \"a\"? o\no ::= \"b\"*", "abbaba", NULL, "c"},
    };
    CHECK(RELAY_CONSTRAINT_GRAMMAR, cases);
}

static void json_of_any_kind(void **state) {
    static const char *const complete[] = {
        "1",
        "-0.5e+10",
        "\"\"",
        "\"a\\u00e4\\ud83d\\ude00\\n\"",
        "[]",
        "{}",
        "[1, 2,[ ]]",
        "{\"a\":1, \"b\": [true,false,null]}",
        "{\n  \"a\": {\n    \"b\": \"\xC3\xA4\"\n  }\n}",
        "[[[[[[[[[[\"x\"]]]]]]]]]]",
    };
    static const char *const rejected[] = {
        "01",      "+1",   ".5",    "1.e",         "'a'",       "[1,]", "{a",   "{\"a\":}",
        "{\"a\",", "\"\n", "\"\\x", "\"\\ud83d\"", "\"\\ude00", "tru ", "[1 2", "\"\x80",
    };
    for (size_t i = 0; i < sizeof complete / sizeof complete[0]; i++)
        check_text(RELAY_CONSTRAINT_ANY_JSON, "", complete[i], COMPLETE);
    for (size_t i = 0; i < sizeof rejected / sizeof rejected[0]; i++)
        check_text(RELAY_CONSTRAINT_ANY_JSON, "", rejected[i], REJECTED);
}

static void schemas(void **state) {
    static const text_case cases[] = {
        {"{}", "[1]", "[1", "]"},
        {"true", "null", "nul", "x"},
        {"{\"type\":\"boolean\"}", "true", "tr", "1"},
        {"{\"type\":[\"null\",\"integer\"]}", "-12", "-", "1.5"},
        {"{\"enum\":[1,\"a\\\"b\",null,{\"k\":[true]},1.5]}", "{\"k\":[true]}", "\"a\\\"", "2"},
        {"{\"enum\":[1,\"a\",2],\"type\":\"integer\"}", "2", NULL, "\"a"},
        {"{\"const\":\"\\u00e4\\n\"}", "\"\xC3\xA4\\n\"", "\"", "\"a"},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":120}", "120", "", "121"},
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":17}", "-5", "-", "-6"},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":9,\"exclusiveMaximum\":1000}", "999", "1", "1000"},
        {"{\"type\":\"number\",\"minimum\":0.25,\"maximum\":1.5}", "0.25", "0.2", "1.51"},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":0.1}", "0.0001", "0", "0.11"},
        {"{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":0}", "-1.49", "-", "-1.51"},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"\xC3\xA4\xE2\x82\xAC\"", "\"a", "\"aaaa"},
        {"{\"type\":\"string\",\"pattern\":\"^a+$\"}", "\"aa\"", "\"", "\"ab"},
        {"{\"type\":\"string\",\"pattern\":\"a\\\\d\"}", "\"xxa1yy\"", "\"xxa", NULL},
        {"{\"type\":\"string\",\"pattern\":\"^\\\"$\"}", "\"\\\"\"", "\"\\", "\"a"},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\",\"maxLength\":2}", "\"ab\"", "\"a", "\"abc"},
        {"{\"type\":\"string\",\"format\":\"date\"}", "\"2020-02-28\"", "\"2020-", "\"2020-13"},
        {"{\"type\":\"string\",\"format\":\"date-time\"}", "\"1999-12-31T23:59:59Z\"", NULL, NULL},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", "\"255.1.0.19\"", "\"25", "\"256"},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}", "[null, null]", "[null",
         "[]"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}}", "[1,2,3,3]",
         "[1,2,", "[2"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false}", "[1]", "[1", "[1,2,"},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"minItems\":2,\"maxItems\":2}", "[1,2]",
         "[1,2", "[1]"},
        {"{\"type\":\"array\",\"maxItems\":0}", "[]", "[", "[1"},
        {"{\"type\":\"object\"}", "{\"x\":1}", "{", "[]"},
        {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},\"required\":[\"b\"]}",
         "{\"b\":2,\"c\":3}", "{\"a\":1,", "{\"c"},
        {"{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}}}", "{}", "{\"a\":1", "{\"x"},
        {"{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":{\"const\":2}}", "{\"ab\":2,\"c\":2}",
         "{\"a\":1", "{\"b\":1"},
        {"{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":true}", "{\"a\":1,\"b\":[]}", NULL,
         "{\"a\":1,\"a\""},
        {"{\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":true}", NULL, NULL, "{\"\\u0061"},
        {"{\"additionalProperties\":false,\"properties\":{}}", "{}", "{", "{\""},
        {"{\"type\":\"object\",\"required\":[\"z\"]}", "{\"z\":0}", "{\"z\":", "{}"},
        {"{\"anyOf\":[{\"const\":1},{\"type\":\"string\",\"maxLength\":1}]}", "\"a\"", "\"", "2"},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "5", "\"", "5."},
        {"{\"allOf\":[{\"const\":1}],\"title\":\"t\"}", "1", "", "2"},
        {"{\"$defs\":{\"n\":{\"properties\":{\"v\":{\"type\":\"integer\"},\"n\":{\"$ref\":\"#/$defs/"
         "n\"}}}},\"$ref\":\"#/$defs/n\"}",
         "{\"v\":1,\"n\":{\"n\":{}}}", "{\"n\":{}", "{\"n\":1"},
    };
    CHECK(RELAY_CONSTRAINT_JSON_SCHEMA, cases);
}

static void choices_end_where_they_end(void **state) {
    relay_constraint_text texts[] = {{"foo", 3}, {"foobar", 6}, {"\xC3\xA4", 2}};
    relay_constraint_spec spec = {.kind = RELAY_CONSTRAINT_CHOICES, .choices = texts, .n_choices = 3};
    relay_constraint *c;
    assert_int_equal(relay_constraint_compile(&c, &spec, m.tokens, NULL), RELAY_OK);
    assert_int_equal(matching_feed(&m, c, "foo", false), COMPLETE);
    assert_int_equal(matching_feed(&m, c, "foob", false), OPEN);
    assert_int_equal(matching_feed(&m, c, "\xC3\xA4", false), COMPLETE);
    assert_int_equal(matching_feed(&m, c, "fox", true), REJECTED);
    relay_matcher at;
    relay_matcher_begin(c, &at);
    for (const char *s = "foo"; *s != 0; s++)
        assert_true(relay_matcher_read(c, &at, (uint8_t)*s));
    assert_true(relay_matcher_is_complete(c, &at) && !relay_matcher_is_over(c, &at));
    for (const char *s = "bar"; *s != 0; s++)
        assert_true(relay_matcher_read(c, &at, (uint8_t)*s));
    assert_true(relay_matcher_is_over(c, &at));
    relay_constraint_destroy(c);
}

// Control tokens are text by their names only before start_after has come, the unknown ones never.
static void nothing_is_constrained_before_start_after(void **state) {
    relay_constraint_spec spec = matching_spec(RELAY_CONSTRAINT_REGEX, "[{\\[]1");
    spec.start_after = (relay_constraint_text){"</think>", 8};
    relay_constraint *c;
    assert_int_equal(relay_constraint_compile(&c, &spec, m.tokens, NULL), RELAY_OK);
    assert_int_equal(matching_feed(&m, c, "any<</think></think>", true), REJECTED);
    assert_int_equal(matching_feed(&m, c, "any<</th</think>", true), OPEN);
    assert_int_equal(matching_feed(&m, c, "any</think>{1", true), COMPLETE);
    assert_int_equal(matching_feed(&m, c, "any</think>[1", false), COMPLETE);
    assert_int_equal(matching_feed(&m, c, "</think>2", false), REJECTED);
    relay_matcher at;
    relay_matcher_begin(c, &at);
    matching_check_mask(&m, c, &at);
    assert_true(relay_matcher_read(c, &at, BYTE_VOCAB_END)); // whoever knows that it ends the answer takes it out
    assert_true(relay_matcher_read(c, &at, 't'));
    assert_true(relay_matcher_read(c, &at, BYTE_VOCAB_THINK));
    matching_check_mask(&m, c, &at);
    assert_false(relay_matcher_is_complete(c, &at));
    relay_matcher fork = at;
    assert_false(relay_matcher_read(c, &fork, BYTE_VOCAB_THINK));
    assert_true(relay_matcher_is_dead(&fork));
    assert_true(relay_matcher_read(c, &at, '{'));
    assert_true(relay_matcher_read(c, &at, '1'));
    assert_true(relay_matcher_is_over(c, &at));
    relay_constraint_destroy(c);
}

static void what_is_wrong_is_said(void **state) {
    static const struct {
        relay_constraint_kind kind;
        const char *text, *wants;
    } cases[] = {
        {RELAY_CONSTRAINT_REGEX, "a(b", "regex: at byte 1: a group that is not closed"},
        {RELAY_CONSTRAINT_REGEX, "a)", "at byte 1: a ) without its ("},
        {RELAY_CONSTRAINT_REGEX, "[a", "at byte 0: a class that is not closed"},
        {RELAY_CONSTRAINT_REGEX, "[a-", "at byte 3: a character is expected"},
        {RELAY_CONSTRAINT_GRAMMAR, "root ::= [a-", "line 1: a character is expected"},
        {RELAY_CONSTRAINT_REGEX, "[b-a]", "at byte 1: a range whose end"},
        {RELAY_CONSTRAINT_REGEX, "[]a]", "at byte 1: an empty class"},
        {RELAY_CONSTRAINT_REGEX, "[[:alpha:]]", "POSIX classes"},
        {RELAY_CONSTRAINT_REGEX, "*a", "at byte 0: a repeat of nothing"},
        {RELAY_CONSTRAINT_REGEX, "a++", "at byte 2: a repeat of a repeat"},
        {RELAY_CONSTRAINT_REGEX, "a{3,2}", "whose most is below its least"},
        {RELAY_CONSTRAINT_REGEX, "a{70000}", "more than 65536 times"},
        {RELAY_CONSTRAINT_REGEX, "(a)\\1", "at byte 3: backreferences"},
        {RELAY_CONSTRAINT_REGEX, "\\k<a>", "backreferences"},
        {RELAY_CONSTRAINT_REGEX, "a(?=b)", "at byte 1: lookahead"},
        {RELAY_CONSTRAINT_REGEX, "a(?<!b)", "lookbehind"},
        {RELAY_CONSTRAINT_REGEX, "(?i)a", "flags"},
        {RELAY_CONSTRAINT_REGEX, "(?>a)", "atomic groups"},
        {RELAY_CONSTRAINT_REGEX, "\\bx", "word boundaries"},
        {RELAY_CONSTRAINT_REGEX, "a^b", "at byte 1: an anchor"},
        {RELAY_CONSTRAINT_REGEX, "(a$)", "an anchor"},
        {RELAY_CONSTRAINT_REGEX, "\\p{Greek}", "at byte 2: not a general category"},
        {RELAY_CONSTRAINT_REGEX, "\\q", "an escape that is not supported"},
        {RELAY_CONSTRAINT_REGEX, "\\ud800", "surrogate"},
        {RELAY_CONSTRAINT_REGEX, "a\\", "a backslash at the end"},
        {RELAY_CONSTRAINT_GRAMMAR, "x ::= \"a\"", "no rule named root"},
        {RELAY_CONSTRAINT_GRAMMAR, "root ::= \"a\"\nroot ::= \"b\"", "line 2: a rule that is defined twice"},
        {RELAY_CONSTRAINT_GRAMMAR, "\n\nroot ::= y", "line 3: the rule y is not defined"},
        {RELAY_CONSTRAINT_GRAMMAR, "root ::= \"a", "line 1: a text that is not closed"},
        {RELAY_CONSTRAINT_GRAMMAR, "root ::= (\"a\"", "a group that is not closed"},
        {RELAY_CONSTRAINT_GRAMMAR, "root ::= root \"a\" | \"b\"", "root calls itself before it has matched anything"},
        {RELAY_CONSTRAINT_GRAMMAR, "root ::= a? root2 \"x\"\na ::= \"z\"\nroot2 ::= root | \"b\"", "left recursion"},
        {RELAY_CONSTRAINT_GRAMMAR, "root ::= \"a\" root", "grammar matches no text at all"},
        {RELAY_CONSTRAINT_GRAMMAR, "root = \"a\"", "line 1: ::= is expected"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "[", "json_schema: byte 1"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "1", "at \"\": a schema is an object"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"items\":{\"not\":{}}}", "at \"/items\": keyword \"not\" is not supported"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"properties\":{\"a/b~\":{\"multipleOf\":2}}}",
         "at \"/properties/a~1b~0\": keyword \"multipleOf\""},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"anyOf\":[true,{\"if\":true}]}", "at \"/anyOf/1\": keyword \"if\""},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"uniqueItems\":true}", "keyword \"uniqueItems\""},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"text\"}", "type is not the name of a type"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"$ref\":\"other.json\"}", "$ref \"other.json\" is not supported"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"$ref\":\"#/$defs/x\"}", "points to nothing"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"$ref\":\"#\",\"type\":\"object\"}", "$ref beside other keywords"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "left recursion"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}",
         "oneOf is supported where"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"allOf\":[{},{}]}", "allOf with more than one"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"format\":\"iri\"}", "format \"iri\" is not supported"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"pattern\":\"(?=a)\"}", "pattern: at byte 0: lookahead"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"minimum\":\"1\"}", "minimum is not a number"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"minLength\":-1}", "minLength is not a whole number"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "matches no text at all"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":0.2,\"maximum\":0.8}",
         "matches no text at all"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "{\"enum\":[]}", "matches no text at all"},
        {RELAY_CONSTRAINT_JSON_SCHEMA, "false", "matches no text at all"},
        {RELAY_CONSTRAINT_REGEX, "\xFF", "sampling.constraint.regex is not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        relay_err e = {0};
        relay_constraint *c = matching_compile(&m, cases[i].kind, cases[i].text, &e);
        if (c != NULL) fail_msg("%s was taken", cases[i].text);
        assert_int_equal(e.code, RELAY_INVALID_ARGUMENT);
        if (strstr(e.message, cases[i].wants) == NULL) fail_msg("%s: %s", cases[i].text, e.message);
        assert_non_null(strstr(e.message, "sampling.constraint."));
    }
}

int main(void) {
    matching_init(&m);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regular_expressions),        cmocka_unit_test(grammars),
        cmocka_unit_test(json_of_any_kind),           cmocka_unit_test(schemas),
        cmocka_unit_test(choices_end_where_they_end), cmocka_unit_test(nothing_is_constrained_before_start_after),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    matching_fini(&m);
    return failed;
}
