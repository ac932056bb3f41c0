// Whatever is drawn under the masks of a constraint, another program for the same thing accepts: PCRE2 for regular
// expressions, a JSON parser for JSON, a few lines by hand for schemas and grammars. And what these accept the masks
// allow, token by token.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <yyjson.h>

#include "tests/model_svc/constraint/matching.h"

enum { N_WALKS = 60, MAX_IDS = 60, MAX_TEXT = 1 << 16 };

static matching m;
static relay_buf text;

static relay_constraint *compile(relay_constraint_kind kind, const char *constraint) {
    relay_err e = {0};
    relay_constraint *c = matching_compile(&m, kind, constraint, &e);
    if (c == NULL) fail_msg("%s: %s", constraint, e.message);
    return c;
}

static bool pcre2_accepts(const pcre2_code *code, const char *s, size_t len) {
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    int n = pcre2_match(code, (PCRE2_SPTR)s, len, 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED, data, NULL);
    pcre2_match_data_free(data);
    return n > 0;
}

static pcre2_code *pcre2_of(const char *pattern) {
    int error;
    PCRE2_SIZE at;
    // \d and \w are ASCII there too without PCRE2_UCP; . and \s are told apart by the patterns below.
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
    assert_non_null(code);
    return code;
}

static const char *const patterns[] = {
    "(foo|ba+r)[0-9]{2,4}\\.(x|y)?",
    "[^a-z\"]{3,9}[a-z]{2}",
    "(a|b)*a(a|b){5}",
    "(\\d{1,3}\\.){3}\\d{1,3}",
    "\\w+(, \\w+)*!?",
    "(?:(?:a?b?)*c){2}",
    "[\xC3\xA4-\xE2\x82\xAC]+\xF0\x9F\x98\x80?",
    "\\p{L}{1,5}\\P{L}",
    "((((a|b)c|d)e|f)g|h)*",
    "a*?b+?c??d{2,3}?",
};

static void what_is_drawn_matches_the_pattern(void **state) {
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        relay_constraint *c = compile(RELAY_CONSTRAINT_REGEX, patterns[i]);
        pcre2_code *code = pcre2_of(patterns[i]);
        uint32_t n_complete = 0;
        for (int walk = 0; walk < N_WALKS; walk++) {
            if (!matching_walk(&m, c, MAX_IDS, &text)) continue;
            n_complete++;
            if (!pcre2_accepts(code, text.data == NULL ? "" : text.data, text.len)) {
                fail_msg("%s: \"%.*s\"", patterns[i], (int)text.len, text.data);
            }
        }
        assert_true(n_complete > N_WALKS / 4);
        pcre2_code_free(code);
        relay_constraint_destroy(c);
    }
}

// Over texts of a small alphabet, so that many match: both say the same of each.
static void what_matches_is_allowed(void **state) {
    static const char *const small[] = {"(a|b)*a(a|b){2}",   "a*b?c*",  "(ab|c)+", "[ab]{2,4}c?",
                                        "(?:(?:a?b?)*c){2}", "a|b|cc|", "a+b{0,2}"};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        relay_constraint *c = compile(RELAY_CONSTRAINT_REGEX, small[i]);
        pcre2_code *code = pcre2_of(small[i]);
        for (int n = 0; n < 400; n++) {
            char s[9] = "";
            uint32_t len = matching_random(&m, 8);
            for (uint32_t k = 0; k < len; k++)
                s[k] = (char)('a' + matching_random(&m, 3));
            bool wanted = pcre2_accepts(code, s, len);
            bool got = matching_feed(&m, c, s, n % 2) == COMPLETE;
            if (wanted != got) fail_msg("%s: \"%s\" is %d", small[i], s, got);
        }
        pcre2_code_free(code);
        relay_constraint_destroy(c);
    }
}

static yyjson_doc *parse(void) {
    // Names may come twice where any may; RFC 8259 lets them, Relay's own reader does not.
    yyjson_read_err why;
    yyjson_doc *doc = yyjson_read_opts(text.data, text.len, YYJSON_READ_BIGNUM_AS_RAW, NULL, &why);
    if (doc == NULL) fail_msg("%s at %zu: %.*s", why.msg, why.pos, (int)text.len, text.data);
    return doc;
}

static void any_json_is_json(void **state) {
    relay_constraint *c = compile(RELAY_CONSTRAINT_ANY_JSON, "");
    for (int walk = 0; walk < 5 * N_WALKS; walk++) {
        if (matching_walk(&m, c, MAX_IDS, &text)) yyjson_doc_free(parse());
    }
    relay_constraint_destroy(c);
}

static bool is_between(yyjson_val *v, double min, double max) {
    return yyjson_is_num(v) && yyjson_get_num(v) >= min && yyjson_get_num(v) <= max;
}

static void a_schema_is_kept(void **state) {
    relay_constraint *c = compile(
        RELAY_CONSTRAINT_JSON_SCHEMA,
        "{\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"number\",\"minimum\":-2.5,"
        "\"exclusiveMaximum\":10},\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/tree\"},\"maxItems\":2}},"
        "\"required\":[\"v\"],\"additionalProperties\":{\"type\":\"string\",\"maxLength\":3}}},"
        "\"type\":\"array\",\"minItems\":1,\"items\":{\"$ref\":\"#/$defs/tree\"}}");
    uint32_t n_complete = 0;
    for (int walk = 0; walk < 10 * N_WALKS; walk++) {
        if (!matching_walk(&m, c, 2 * MAX_IDS, &text)) continue;
        n_complete++;
        yyjson_doc *doc = parse();
        yyjson_val *root = yyjson_doc_get_root(doc), *tree, *key, *value;
        assert_true(yyjson_is_arr(root) && yyjson_arr_size(root) >= 1);
        size_t i, n, k, n_keys;
        yyjson_arr_foreach(root, i, n, tree) {
            uint32_t n_v = 0;
            yyjson_obj_foreach(tree, k, n_keys, key, value) {
                if (yyjson_equals_str(key, "v")) {
                    n_v++;
                    assert_true(is_between(value, -2.5, 10) && yyjson_get_num(value) != 10);
                } else if (yyjson_equals_str(key, "kids")) {
                    assert_true(yyjson_is_arr(value) && yyjson_arr_size(value) <= 2);
                } else {
                    assert_true(yyjson_is_str(value) && yyjson_get_len(value) <= 12);
                }
            }
            assert_int_equal(n_v, 1);
        }
        yyjson_doc_free(doc);
    }
    assert_true(n_complete > N_WALKS);
    relay_constraint_destroy(c);
}

static void numbers_keep_within_their_bounds(void **state) {
    for (int round = 0; round < 60; round++) {
        int is_integer = round % 2;
        double scale = is_integer ? 1 : 64; // exact in binary, so that the schema says what is meant
        double a = ((double)matching_random(&m, 40000) - 20000) / scale,
               b = a + (double)matching_random(&m, 3000) / scale;
        char schema[160];
        snprintf(schema, sizeof schema, "{\"type\":\"%s\",\"minimum\":%.6f,\"maximum\":%.6f}",
                 is_integer ? "integer" : "number", a, b);
        relay_constraint *c = compile(RELAY_CONSTRAINT_JSON_SCHEMA, schema);
        for (int walk = 0; walk < 10; walk++) {
            assert_true(matching_walk(&m, c, MAX_IDS, &text));
            yyjson_doc *doc = parse();
            if (!is_between(yyjson_doc_get_root(doc), a, b)) fail_msg("%s: %.*s", schema, (int)text.len, text.data);
            yyjson_doc_free(doc);
        }
        for (int i = 0; i < 40; i++) {
            double value = a + ((double)matching_random(&m, 6000) - 1500) / scale;
            char s[64];
            snprintf(s, sizeof s, is_integer ? "%.0f" : "%.6f", value);
            bool got = matching_feed(&m, c, s, true) == COMPLETE;
            if (value == 0) continue; // -0.0
            if (got != (value >= a && value <= b)) fail_msg("%s: %s is %d", schema, s, got);
        }
        relay_constraint_destroy(c);
    }
}

// expr = term (("+" | "-") term)*, term = number | "(" expr ")".
static bool reads_expr(const char **s);

static bool reads_term(const char **s) {
    if (**s == '(') {
        ++*s;
        if (!reads_expr(s) || **s != ')') return false;
        ++*s;
        return true;
    }
    const char *begin = *s;
    while (**s >= '0' && **s <= '9')
        ++*s;
    return *s > begin;
}

static bool reads_expr(const char **s) {
    if (!reads_term(s)) return false;
    while (**s == '+' || **s == '-') {
        ++*s;
        if (!reads_term(s)) return false;
    }
    return true;
}

static void a_grammar_is_kept(void **state) {
    relay_constraint *c = compile(RELAY_CONSTRAINT_GRAMMAR, "root ::= term ((\"+\" | \"-\") term)*\n"
                                                            "term ::= [0-9]+ | \"(\" root \")\"");
    for (int walk = 0; walk < 3 * N_WALKS; walk++) {
        if (!matching_walk(&m, c, MAX_IDS, &text)) continue;
        const char *s = text.data;
        if (!reads_expr(&s) || *s != 0) fail_msg("%s", text.data);
    }
    for (int i = 0; i < 2000; i++) {
        char t[9] = "";
        uint32_t len = 1 + matching_random(&m, 7);
        for (uint32_t k = 0; k < len; k++)
            t[k] = "1(1)+2-)"[matching_random(&m, 8)];
        const char *s = t;
        bool wanted = reads_expr(&s) && *s == 0, got = matching_feed(&m, c, t, false) == COMPLETE;
        if (wanted != got) fail_msg("\"%s\" is %d", t, got);
    }
    relay_constraint_destroy(c);
}

// What was forgotten is read again, and nothing is different.
static void a_reset_changes_nothing(void **state) {
    relay_constraint *c = compile(RELAY_CONSTRAINT_ANY_JSON, "");
    uint32_t ids[40], n = 0, *before = relay_calloc(m.tokens->n_words, sizeof before[0]);
    relay_matcher at, again;
    relay_matcher_begin(c, &at);
    for (const char *s = "{\"a\": [1, {\"b\": \"c"; *s != 0; s++) {
        ids[n++] = (uint8_t)*s;
        assert_true(relay_matcher_read(c, &at, (uint8_t)*s));
    }
    assert_true(relay_matcher_mask(c, &at, before));
    relay_constraint_reset(c);
    assert_true(relay_matcher_is_stale(c, &at));
    relay_matcher_begin(c, &again);
    for (uint32_t i = 0; i < n; i++)
        assert_true(relay_matcher_read(c, &again, ids[i]));
    assert_true(relay_matcher_mask(c, &again, m.words));
    assert_memory_equal(before, m.words, m.tokens->n_words * sizeof before[0]);
    free(before);
    relay_constraint_destroy(c);
}

int main(void) {
    matching_init(&m);
    relay_buf_init(&text, MAX_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_drawn_matches_the_pattern),
        cmocka_unit_test(what_matches_is_allowed),
        cmocka_unit_test(any_json_is_json),
        cmocka_unit_test(a_schema_is_kept),
        cmocka_unit_test(numbers_keep_within_their_bounds),
        cmocka_unit_test(a_grammar_is_kept),
        cmocka_unit_test(a_reset_changes_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    relay_buf_fini(&text);
    matching_fini(&m);
    return failed;
}
