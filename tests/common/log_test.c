#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json.h"
#include "common/log.h"

// ---- Catching what goes to standard error

static int saved_stderr;
static FILE *caught;

static void begin_catch(void) {
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    caught = tmpfile();
    assert_non_null(caught);
    dup2(fileno(caught), STDERR_FILENO);
}

// What was written since begin_catch; the caller frees.
static char *end_catch(void) {
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    long len = (fseek(caught, 0, SEEK_END), ftell(caught));
    rewind(caught);
    char *text = calloc((size_t)len + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)len, caught), len);
    fclose(caught);
    return text;
}

#define CATCH(...)                                                                                                     \
    ({                                                                                                                 \
        begin_catch();                                                                                                 \
        __VA_ARGS__;                                                                                                   \
        end_catch();                                                                                                   \
    })

static void assert_timestamp(const char *s) {
    static const char form[] = "dddd-dd-ddTdd:dd:dd.ddddddZ";
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (form[i] == 'd' ? s[i] < '0' || s[i] > '9' : s[i] != form[i]) fail_msg("timestamp %.30s", s);
}

// A line of key=value, without its timestamp.
static void assert_line(char *text, const char *expected) {
    assert_memory_equal(text, "ts=", 3);
    assert_timestamp(text + 3);
    assert_string_equal(text + 3 + strlen("2026-01-02T03:04:05.678901Z"), expected);
    free(text);
}

static void assert_json_line(char *text, const char *expected) {
    assert_memory_equal(text, "{\"ts\":\"", 7);
    assert_timestamp(text + 7);
    assert_string_equal(text + 7 + strlen("2026-01-02T03:04:05.678901Z"), expected);
    yyjson_doc *doc;
    relay_err e;
    if (relay_json_parse(&doc, text, strlen(text), 4, "line", &e) != RELAY_OK) fail_msg("%s", e.message);
    yyjson_doc_free(doc);
    free(text);
}

static int use_key_value(void **state) {
    relay_log_init(RELAY_LOG_INFO, RELAY_LOG_KEY_VALUE);
    return 0;
}

static int use_json(void **state) {
    relay_log_init(RELAY_LOG_INFO, RELAY_LOG_JSON);
    return 0;
}

// ---- Lines

static void a_line_has_time_level_message_and_pairs(void **state) {
    assert_line(CATCH(RELAY_LOG(RELAY_LOG_INFO, "request finished", "request_id=%s tokens=%u", "abc", 7u)),
                " level=info msg=\"request finished\" request_id=abc tokens=7\n");
    assert_line(CATCH(RELAY_LOG(RELAY_LOG_ERROR, "bye", "")), " level=error msg=bye\n");
}

static void every_conversion_is_as_printf_has_it(void **state) {
    assert_line(
        CATCH(RELAY_LOG(RELAY_LOG_WARN, "m", "d=%d i=%i u=%u ld=%ld lld=%lld zu=%zu u64=%" PRIu64 " i64=%" PRId64, -1,
                        INT32_MIN, UINT32_MAX, -2L, -3LL, sizeof(int), UINT64_MAX, INT64_MIN)),
        " level=warn msg=m d=-1 i=-2147483648 u=4294967295 ld=-2 lld=-3 zu=4 u64=18446744073709551615 "
        "i64=-9223372036854775808\n");
    assert_line(
        CATCH(RELAY_LOG(RELAY_LOG_WARN, "m",
                        "f=%.2f e=%.1e g=%g x=%08x X=%lX c=%c w=%5d. l=%-4d. s=%.*s st=%.2s p=%d%%", 1.005, 1234.5,
                        0.25, 0xBEEFu, 0xABCDEFABCDul, 'z', 42, 42, 3, "abcdef", "xyz", 50)),
        " level=warn msg=m f=1.00 e=1.2e+03 g=0.25 x=0000beef X=ABCDEFABCD c=z w=\"   42.\" l=\"42  .\" s=abc st=xy "
        "p=50%\n");
    assert_line(CATCH(RELAY_LOG(RELAY_LOG_WARN, "m", "addr=%s:%d word", "::1", 80)),
                " level=warn msg=m addr=::1:80 text=word\n");
}

static void values_are_quoted_where_they_need_it(void **state) {
    static const struct {
        const char *value, *shown;
    } cases[] = {
        {"plain-1.5/x:y", "plain-1.5/x:y"},
        {"", "\"\""},
        {"two words", "\"two words\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"line\nnext\r\t", "\"line\\nnext\\r\\t\""},
        {"bell\x07\x7F", "\"bell\\u0007\\u007f\""},
        {"k=v", "\"k=v\""},
        {"caf\xC3\xA9", "caf\xC3\xA9"},
        {"bad\xFF\xC3", "bad??"},
        {NULL, "(null)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[128];
        snprintf(expected, sizeof expected, " level=info msg=m a=%s b=1\n", cases[i].shown);
        const char *value = cases[i].value; // in a variable: gcc would warn of a literal NULL
        assert_line(CATCH(RELAY_LOG(RELAY_LOG_INFO, "m", "a=%s b=%d", value, 1)), expected);
    }
}

static void no_value_forges_a_pair_or_a_line(void **state) {
    const char *hostile = "x level=error\nts=2026-01-02T03:04:05.678901Z level=error msg=forged";
    char *text = CATCH(RELAY_LOG(RELAY_LOG_INFO, "m", "request_id=%s tokens=%d", hostile, 1));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_line(text, " level=info msg=m request_id=\"x level=error\\nts=2026-01-02T03:04:05.678901Z level=error "
                      "msg=forged\" tokens=1\n");
}

static void json_lines_keep_numbers_and_strings_apart(void **state) {
    assert_json_line(
        CATCH(RELAY_LOG(RELAY_LOG_INFO, "request finished",
                        "request_id=%s tokens=%u n=%" PRIu64 " ms=%.3f neg=%d hex=%x padded=%04d plus=%+d "
                        "addr=%s:%d pct=%d%% nan=%g inf=%f",
                        "123", 7u, UINT64_MAX, 1.5, -2, 255u, 42, 3, "h", 80, 50, NAN, INFINITY)),
        "\",\"level\":\"info\",\"msg\":\"request finished\",\"request_id\":\"123\",\"tokens\":7,"
        "\"n\":18446744073709551615,\"ms\":1.500,\"neg\":-2,\"hex\":\"ff\",\"padded\":\"0042\",\"plus\":\"+3\","
        "\"addr\":\"h:80\",\"pct\":\"50%\",\"nan\":\"nan\",\"inf\":\"inf\"}\n");
    assert_json_line(CATCH(RELAY_LOG(RELAY_LOG_INFO, "q\"uote", "v=%s", "a\"b\\\n\xFF\x01 \xF0\x9F\x98\x80")),
                     "\",\"level\":\"info\",\"msg\":\"q\\\"uote\",\"v\":\"a\\\"b\\\\\\n?\\u0001 \xF0\x9F\x98\x80\"}\n");
    assert_json_line(CATCH(RELAY_LOG(RELAY_LOG_INFO, "m", "")), "\",\"level\":\"info\",\"msg\":\"m\"}\n");
}

// ---- Bounds

static void a_long_value_is_cut_between_characters(void **state) {
    for (size_t shift = 0; shift < 4; shift++) {
        char value[2 * RELAY_LOG_VALUE_MAX];
        memset(value, 'x', sizeof value);
        for (size_t i = shift; i + 5 < sizeof value; i += 4)
            memcpy(value + i, "\xF0\x9F\x98\x80", 4);
        value[sizeof value - 1] = 0;
        char *text = CATCH(RELAY_LOG(RELAY_LOG_INFO, "m", "v=%s end=%d", value, 1));
        char *shown = strstr(text, " v=") + 3, *end = strstr(text, "... end=1\n");
        assert_non_null(end);
        size_t len = (size_t)(end - shown);
        assert_in_range(len, RELAY_LOG_VALUE_MAX - 3, RELAY_LOG_VALUE_MAX);
        assert_memory_equal(shown, value, len);
        assert_int_equal((len - shift) % 4, 0);
        free(text);
    }
}

static void a_line_that_is_too_long_leaves_pairs_out_and_says_so(void **state) {
    char value[1000];
    memset(value, '"', sizeof value); // twice as long when escaped
    value[sizeof value - 1] = 0;
    char *text = CATCH(RELAY_LOG(RELAY_LOG_INFO, "m", "a=%s b=%s c=%s", value, value, value));
    size_t len = strlen(text);
    assert_in_range(len, 2000, RELAY_LOG_LINE_MAX);
    assert_string_equal(text + len - strlen("\\\"\" truncated=true\n"), "\\\"\" truncated=true\n");
    assert_null(strstr(text, " c="));
    free(text);

    relay_log_init(RELAY_LOG_INFO, RELAY_LOG_JSON);
    text = CATCH(RELAY_LOG(RELAY_LOG_INFO, "m", "a=%s b=%s c=%s", value, value, value));
    assert_in_range(strlen(text), 2000, RELAY_LOG_LINE_MAX);
    yyjson_doc *doc;
    assert_int_equal(relay_json_parse(&doc, text, strlen(text), 4, "line", NULL), RELAY_OK);
    assert_true(yyjson_get_bool(yyjson_obj_get(yyjson_doc_get_root(doc), "truncated")));
    yyjson_doc_free(doc);
    free(text);
}

// A pair grows byte by byte until first the one behind it and then itself does not fit: the end of the line is whole at
// each length.
static void a_line_near_the_limit_is_whole(void **state) {
    enum { LONG = RELAY_LOG_VALUE_MAX - 120, MIN = 100, MAX = 460 };
    char full[LONG + 1], growing[MAX + 1];
    memset(full, 'x', LONG);
    full[LONG] = 0;
    memset(growing, 'y', MAX);
    for (int is_json = 0; is_json < 2; is_json++) {
        relay_log_init(RELAY_LOG_INFO, is_json ? RELAY_LOG_JSON : RELAY_LOG_KEY_VALUE);
        const char *whole = is_json ? ",\"last\":\"z\"}\n" : " last=z\n";
        const char *cut = is_json ? ",\"truncated\":true}\n" : " truncated=true\n";
        size_t n_whole = 0, n_without_last = 0, n_without_both = 0;
        for (int n = MIN; n < MAX; n++) {
            char *text = CATCH(RELAY_LOG(RELAY_LOG_INFO, "m", "a=%s b=%s c=%s d=%s e=%.*s last=%s", full, full, full,
                                         full, n, growing, "z"));
            size_t len = strlen(text);
            assert_true(len <= RELAY_LOG_LINE_MAX);
            bool is_whole = strstr(text, "last") != NULL, has_growing = strstr(text, "yyy") != NULL;
            const char *end = is_whole ? whole : cut;
            assert_string_equal(text + len - strlen(end), end);
            assert_true(has_growing || !is_whole);
            n_whole += is_whole;
            n_without_last += !is_whole && has_growing;
            n_without_both += !has_growing;
            free(text);
        }
        assert_true(n_whole > 0 && n_without_last > 0 && n_without_both > 0);
    }
}

// ---- Levels

static int count_calls(int *calls) {
    return ++*calls;
}

static void lines_below_the_level_are_dropped_before_they_are_made(void **state) {
    int calls = 0;
    relay_log_init(RELAY_LOG_WARN, RELAY_LOG_KEY_VALUE);
    char *text = CATCH(RELAY_LOG(RELAY_LOG_INFO, "m", "n=%d", count_calls(&calls)));
    assert_string_equal(text, "");
    assert_int_equal(calls, 0);
    free(text);
    assert_false(relay_log_enabled(RELAY_LOG_DEBUG));
    assert_true(relay_log_enabled(RELAY_LOG_WARN));
    assert_line(CATCH(RELAY_LOG(RELAY_LOG_ERROR, "m", "n=%d", count_calls(&calls))), " level=error msg=m n=1\n");
    relay_log_init(RELAY_LOG_DEBUG, RELAY_LOG_KEY_VALUE);
    assert_line(CATCH(RELAY_LOG(RELAY_LOG_DEBUG, "m", "")), " level=debug msg=m\n");
}

static void level_names_are_read(void **state) {
    static const char *const names[] = {"debug", "info", "warn", "error"};
    relay_log_level level;
    for (int i = 0; i < 4; i++) {
        assert_true(relay_log_level_parse(names[i], &level));
        assert_int_equal(level, i);
    }
    static const char *const none[] = {"", "INFO", "warning", "inf"};
    for (int i = 0; i < 4; i++)
        assert_false(relay_log_level_parse(none[i], &level));
}

// ---- Threads

enum { THREADS = 4, LINES = 500 };

static void *write_lines(void *arg) {
    for (int i = 0; i < LINES; i++)
        RELAY_LOG(RELAY_LOG_INFO, "m", "thread=%d line=%d", *(int *)arg, i);
    return NULL;
}

static void lines_of_many_threads_stay_whole(void **state) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    begin_catch();
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, write_lines, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *text = end_catch();
    int next[THREADS] = {0}, total = 0;
    char *save;
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save), total++) {
        int thread, number, end = 0;
        assert_timestamp(line + 3);
        sscanf(line + 30, " level=info msg=m thread=%d line=%d%n", &thread, &number, &end);
        assert_int_equal(line[30 + end], 0);
        assert_int_equal(number, next[thread]++);
    }
    assert_int_equal(total, THREADS * LINES);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_line_has_time_level_message_and_pairs, use_key_value),
        cmocka_unit_test_setup(every_conversion_is_as_printf_has_it, use_key_value),
        cmocka_unit_test_setup(values_are_quoted_where_they_need_it, use_key_value),
        cmocka_unit_test_setup(no_value_forges_a_pair_or_a_line, use_key_value),
        cmocka_unit_test_setup(json_lines_keep_numbers_and_strings_apart, use_json),
        cmocka_unit_test_setup(a_long_value_is_cut_between_characters, use_key_value),
        cmocka_unit_test_setup(a_line_that_is_too_long_leaves_pairs_out_and_says_so, use_key_value),
        cmocka_unit_test(a_line_near_the_limit_is_whole),
        cmocka_unit_test_setup(lines_below_the_level_are_dropped_before_they_are_made, use_key_value),
        cmocka_unit_test(level_names_are_read),
        cmocka_unit_test_setup(lines_of_many_threads_stay_whole, use_key_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
