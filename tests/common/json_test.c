#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/clock.h"
#include "common/json.h"

// Parses a copy of exactly the text's size, so that a sanitizer sees a read behind its end.
static relay_code parse(yyjson_doc **doc, const char *text, size_t len, uint32_t max_depth, relay_err *e) {
    char *copy = malloc(len != 0 ? len : 1);
    memcpy(copy, text, len);
    relay_code code = relay_json_parse(doc, copy, len, max_depth, "tools_json", e);
    assert_memory_equal(copy, text, len); // the text is only read
    free(copy);
    return code;
}

static void assert_refused(const char *text, size_t len, const char *says) {
    yyjson_doc *doc = NULL;
    relay_err e = {0};
    relay_code code = parse(&doc, text, len, RELAY_JSON_MAX_DEPTH, &e);
    if (code != RELAY_INVALID_ARGUMENT || doc != NULL || strncmp(e.message, "tools_json: byte ", 17) != 0 ||
        strstr(e.message, says) == NULL)
        fail_msg("%.60s: code %s, message \"%s\", expected \"%s\"", text, relay_code_name(code), e.message, says);
}

static void what_is_json_is_read(void **state) {
    static const char *const good[] = {
        "{}",
        "[]",
        "null",
        "true",
        "0",
        "-0",
        "1e5",
        "\"\"",
        " [1 ,\t2\r\n] ",
        "{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":2}]}", // one name at several places
        "{\"\":1}",
        "\"\\u0000\\ud83d\\ude00\\/\"",
        "{\"a\":1,\"A\":2}",
        "18446744073709551615",
        "[1e999, 123456789012345678901234567890]", // kept as text
        "\"{[\\\"{[\"",                            // brackets in a string
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        yyjson_doc *doc;
        relay_err e;
        if (parse(&doc, good[i], strlen(good[i]), RELAY_JSON_MAX_DEPTH, &e) != RELAY_OK)
            fail_msg("%s: %s", good[i], e.message);
        yyjson_doc_free(doc);
    }
    yyjson_doc *doc;
    assert_int_equal(parse(&doc, "{\"name\":\"f\\u00e9\",\"n\":[1,2.5]}", 30, 8, NULL), RELAY_OK);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "name")), "f\xC3\xA9");
    assert_true(yyjson_get_real(yyjson_arr_get(yyjson_obj_get(root, "n"), 1)) == 2.5);
    yyjson_doc_free(doc);
}

static void what_is_not_json_is_refused_at_its_byte(void **state) {
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "byte 0"},
        {"   ", "byte 0: input data is empty"},
        {"{", "byte 1"},
        {"[1,]", "byte 2"},
        {"[1 2]", "byte 3"},
        {"{\"a\" 1}", "byte 5"},
        {"{a:1}", "byte 1"},
        {"{'a':1}", "byte 1"},
        {"[1]x", "byte 3"},
        {"[1]]", "byte 3"},
        {"nul", "byte "},
        {"NaN", "byte 0"},
        {"[Infinity]", "byte 1"},
        {"01", "byte 0: number with leading zero"},
        {"+1", "byte 0"},
        {"1.", "byte "},
        {"\"a", "byte "},
        {"\"\\x\"", "byte 2: invalid escaped"},
        {"\"\\ud800\"", "byte "},
        {"\"a\nb\"", "byte 2"},
        {"// c\n1", "byte 0"},
        {"/* c */ 1", "byte 0"},
        {"\xEF\xBB\xBF{}", "byte 0"},
        {"[\"ok\", \"\xFF\"]", "byte 8"},
        {"\"\xED\xA0\x80\"", "byte "},
        {"\"\xC0\x80\"", "byte "},
        {"\"caf\xC3\"", "byte "},
        {"\xFF", "byte 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(bad[i].text, strlen(bad[i].text), bad[i].says);
    assert_refused("[1]\0", 4, "byte 3");
    assert_refused("\"a\0b\"", 5, "byte 2");
}

static void duplicate_keys_are_refused_by_name_and_byte(void **state) {
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"a\":1,\"a\":2}", "byte 7: duplicate key \"a\""},
        {"{\"a\":1,\"b\":2,\"a\":1}", "byte 13: duplicate key \"a\""},
        {"[{\"x\":{\"y\":1,\"z\":1,\"y\":3}}]", "byte 19: duplicate key \"y\""},
        {"{\"a\":1,\"\\u0061\":2}", "byte 7: duplicate key \"a\""}, // the same name, spelt otherwise
        {"{\"\":1,\"\":2}", "byte 6: duplicate key \"\""},
        {"[        [1],          {\"a\":1,        \"a\":2}]", "byte 38: duplicate key \"a\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(bad[i].text, strlen(bad[i].text), bad[i].says);
}

// Comparing each key with each would take minutes here.
static void large_objects_are_checked_in_time(void **state) {
    enum { N = 100000 };
    relay_buf b;
    relay_buf_init(&b, 16 << 20);
    relay_buf_putc(&b, '{');
    for (uint32_t i = 0; i < N; i++)
        relay_buf_printf(&b, "\"key %u\":%u,", i, i);
    size_t last = b.len;
    relay_buf_puts(&b, "\"end\":0}");
    yyjson_doc *doc;
    relay_err e;
    relay_mono_us start = relay_mono_now();
    assert_int_equal(parse(&doc, b.data, b.len, 8, &e), RELAY_OK);
    assert_int_equal(yyjson_obj_size(yyjson_doc_get_root(doc)), N + 1);
    yyjson_doc_free(doc);
    memcpy(b.data + last, "\"key 777\":0}", 13);
    b.len = last + 12;
    char says[64];
    snprintf(says, sizeof says, "byte %zu: duplicate key \"key 777\"", last);
    assert_refused(b.data, b.len, says);
    // Of several the first in the text is named.
    b.len = last;
    relay_buf_puts(&b, "\"key 999\":0,\"key 5\":0,\"key 999\":0,\"key 1\":0}");
    snprintf(says, sizeof says, "byte %zu: duplicate key \"key 999\"", last);
    assert_refused(b.data, b.len, says);
    assert_true(relay_mono_now() - start < 10 * 1000 * 1000);
    relay_buf_fini(&b);
}

static void depth_is_bounded(void **state) {
    yyjson_doc *doc;
    relay_err e;
    assert_int_equal(parse(&doc, "[[[]]]", 6, 3, &e), RELAY_OK);
    yyjson_doc_free(doc);
    assert_int_equal(parse(&doc, "[[[]]]", 6, 2, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "tools_json: byte 2: more than 2 levels of nesting");
    assert_int_equal(parse(&doc, "{\"a\":{\"b\":[]}}", 14, 2, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message, "tools_json: byte 10: more than 2 levels of nesting");
    assert_int_equal(parse(&doc, "[[],[],[[]]]", 12, 3, &e), RELAY_OK); // depth and not count
    yyjson_doc_free(doc);
    assert_int_equal(parse(&doc, "[\"[[[[\\\"[[\"]", 12, 1, &e), RELAY_OK);
    yyjson_doc_free(doc);

    enum { DEEP = 1000000 };
    char *deep = malloc(DEEP);
    memset(deep, '[', DEEP);
    assert_refused(deep, DEEP, "byte 64: more than 64 levels");
    memset(deep, ']', DEEP);
    assert_refused(deep, DEEP, "byte 0");
    free(deep);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_json_is_read),
        cmocka_unit_test(what_is_not_json_is_refused_at_its_byte),
        cmocka_unit_test(duplicate_keys_are_refused_by_name_and_byte),
        cmocka_unit_test(large_objects_are_checked_in_time),
        cmocka_unit_test(depth_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
