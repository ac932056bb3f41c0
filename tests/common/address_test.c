#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/address.h"

static void an_address_has_a_host_and_a_port(void **state) {
    static const struct {
        const char *text, *host;
        uint16_t port;
    } right[] = {{"a:1", "a", 1},
                 {"127.0.0.1:65535", "127.0.0.1", 65535},
                 {"[::1]:1", "::1", 1},
                 {":1", "", 1},
                 {"a.b-c:00080", "a.b-c", 80},
                 {"a:0", "a", 0}};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        relay_address a;
        if (!relay_address_read(&a, right[i].text)) fail_msg("\"%s\" is an address", right[i].text);
        assert_int_equal(a.host_len, strlen(right[i].host));
        assert_memory_equal(a.host, right[i].host, a.host_len);
        assert_int_equal(a.port, right[i].port);
    }
}

static void what_is_no_address_is_refused(void **state) {
    static const char *const wrong[] = {"",     "a",     ":",     "a:",   "a:65536", "a:99999", "a:1x",  "a: 1",
                                        "a:-1", "::1:1", "[::1]", "[]:1", "[::1:1",  "::1]:1",  "a:b:1", "a:000001"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        relay_address a;
        if (relay_address_read(&a, wrong[i])) fail_msg("\"%s\" is no address", wrong[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_a_host_and_a_port),
        cmocka_unit_test(what_is_no_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
