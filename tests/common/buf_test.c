#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "common/buf.h"

static void a_buffer_holds_what_is_appended(void **state) {
    relay_buf b;
    relay_buf_init(&b, 1000);
    relay_buf_puts(&b, "tokens=");
    relay_buf_printf(&b, "%d %s", 42, "of");
    relay_buf_putc(&b, ' ');
    relay_buf_append(&b, "a\0b", 3);
    relay_buf_append(&b, NULL, 0);
    assert_int_equal(b.len, 16);
    assert_memory_equal(b.data, "tokens=42 of a\0b", 17); // with the NUL behind it
    relay_buf_clear(&b);
    assert_int_equal(b.len, 0);
    for (int i = 0; i < 1000; i++)
        relay_buf_putc(&b, (char)('a' + i % 26));
    assert_false(b.is_failed);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(b.data[i], 'a' + i % 26);
    relay_buf_fini(&b);
    assert_null(b.data);
    assert_int_equal(b.limit, 1000);
}

static void a_buffer_past_its_limit_stays_as_it_was(void **state) {
    relay_buf b;
    relay_buf_init(&b, 8);
    relay_buf_puts(&b, "12345");
    relay_buf_puts(&b, "678"); // exactly full
    assert_false(b.is_failed);
    relay_buf_putc(&b, '9');
    assert_true(b.is_failed);
    assert_string_equal(b.data, "12345678");
    relay_buf_clear(&b);
    assert_false(b.is_failed);
    assert_string_equal(b.data, "");
    relay_buf_printf(&b, "%s", "123456789");
    assert_true(b.is_failed);
    assert_int_equal(b.len, 0);
    relay_buf_puts(&b, "1"); // would fit, but something before it is missing
    assert_int_equal(b.len, 0);
    relay_buf_fini(&b);
    relay_buf_init(&b, 0);
    relay_buf_append(&b, "", 0);
    assert_false(b.is_failed);
    relay_buf_putc(&b, 'x');
    assert_true(b.is_failed);
    relay_buf_fini(&b);
    relay_buf_init(&b, SIZE_MAX - 1);
    relay_buf_puts(&b, "x");
    relay_buf_append(&b, b.data, 1);
    assert_false(b.is_failed);
    relay_buf_fini(&b);
}

static void a_buffer_gives_its_bytes_away(void **state) {
    relay_buf b;
    relay_buf_init(&b, 10);
    size_t len = 7;
    char *data = relay_buf_take(&b, &len);
    assert_string_equal(data, "");
    assert_int_equal(len, 0);
    free(data);
    relay_buf_puts(&b, "relay");
    data = relay_buf_take(&b, &len);
    assert_string_equal(data, "relay");
    assert_int_equal(len, 5);
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    assert_int_equal(b.limit, 10);
    free(data);
}

static void json_strings_are_escaped(void **state) {
    relay_buf b;
    relay_buf_init(&b, 1000);
    relay_buf_put_json_string(&b, "a\"\\\n\r\t\x01\x7F\0/\xC3\xA9", 12);
    assert_string_equal(b.data, "\"a\\\"\\\\\\n\\r\\t\\u0001\\u007f\\u0000/\xC3\xA9\"");
    relay_buf_clear(&b);
    relay_buf_put_json_string(&b, "", 0);
    assert_string_equal(b.data, "\"\"");
    relay_buf_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_holds_what_is_appended),
        cmocka_unit_test(a_buffer_past_its_limit_stays_as_it_was),
        cmocka_unit_test(a_buffer_gives_its_bytes_away),
        cmocka_unit_test(json_strings_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
