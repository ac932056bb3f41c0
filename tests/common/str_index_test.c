#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "common/str_index.h"

static void an_index_finds_every_string_and_no_other(void **state) {
    enum { N = 5000, LEN = 16 };
    static char text[N][LEN];
    relay_str_index x;
    relay_str_index_init(&x, N);
    for (uint32_t i = 0; i < N; i++) {
        int len = snprintf(text[i], LEN, "s%u", i);
        assert_int_equal(relay_str_index_add(&x, text[i], (uint32_t)len, i), RELAY_STR_NONE);
    }
    for (uint32_t i = 0; i < N; i++) {
        uint32_t len = (uint32_t)strlen(text[i]);
        assert_int_equal(relay_str_index_find(&x, text[i], len), i);
        assert_int_equal(relay_str_index_add(&x, text[i], len, 7), i);
        char other[LEN];
        int other_len = snprintf(other, LEN, "t%u", i);
        assert_int_equal(relay_str_index_find(&x, other, (uint32_t)other_len), RELAY_STR_NONE);
    }
    assert_int_equal(relay_str_index_find(&x, "s1", 1), RELAY_STR_NONE);
    assert_int_equal(relay_str_index_find(&x, "", 0), RELAY_STR_NONE);
    relay_str_index_replace(&x, "s77", 3, 123);
    assert_int_equal(relay_str_index_find(&x, "s77", 3), 123);
    relay_str_index_fini(&x);
}

static void an_index_takes_any_bytes_and_may_be_empty(void **state) {
    relay_str_index x;
    relay_str_index_init(&x, 0);
    assert_int_equal(relay_str_index_find(&x, "a", 1), RELAY_STR_NONE);
    relay_str_index_fini(&x);
    relay_str_index_init(&x, 3);
    assert_int_equal(relay_str_index_add(&x, "", 0, 0), RELAY_STR_NONE);
    assert_int_equal(relay_str_index_add(&x, "\0", 1, 1), RELAY_STR_NONE);
    assert_int_equal(relay_str_index_add(&x, "\0\0", 2, 2), RELAY_STR_NONE);
    assert_int_equal(relay_str_index_find(&x, "", 0), 0);
    assert_int_equal(relay_str_index_find(&x, "\0", 1), 1);
    assert_int_equal(relay_str_index_find(&x, "\0\0", 2), 2);
    relay_str_index_fini(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_finds_every_string_and_no_other),
        cmocka_unit_test(an_index_takes_any_bytes_and_may_be_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
