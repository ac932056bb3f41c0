#include "model_svc/tenants.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void who_was_served_is_later(void **state) {
    relay_tenants *t = relay_tenants_create(4);
    uint32_t a = relay_tenants_enter(t, 100), b = relay_tenants_enter(t, 200);
    assert_int_not_equal(a, b);
    assert_int_equal(relay_tenants_time(t, a), relay_tenants_time(t, b));
    relay_tenants_charge(t, a, 10);
    assert_int_equal(relay_tenants_time(t, a), relay_tenants_time(t, b) + 10);
    assert_int_equal(relay_tenants_enter(t, 100), a);
    relay_tenants_destroy(t);
}

static void a_pause_saves_nothing_up(void **state) {
    relay_tenants *t = relay_tenants_create(4);
    uint32_t a = relay_tenants_enter(t, 100);
    relay_tenants_charge(t, a, 1000);
    uint32_t b = relay_tenants_enter(t, 200);
    assert_int_equal(relay_tenants_time(t, b), 1000);
    relay_tenants_destroy(t);
}

static void a_pause_repays_nothing(void **state) {
    relay_tenants *t = relay_tenants_create(4);
    uint32_t a = relay_tenants_enter(t, 100), b = relay_tenants_enter(t, 200);
    relay_tenants_charge(t, a, 1000);
    relay_tenants_leave(t, a);
    relay_tenants_charge(t, b, 10);
    assert_int_equal(relay_tenants_enter(t, 100), a);
    assert_int_equal(relay_tenants_time(t, a), 1000);
    relay_tenants_destroy(t);
}

static void places_are_used_again(void **state) {
    relay_tenants *t = relay_tenants_create(2);
    for (uint64_t i = 0; i < 100; i++) {
        uint32_t a = relay_tenants_enter(t, 2 * i), b = relay_tenants_enter(t, 2 * i + 1);
        assert_true(a < 2 && b < 2 && a != b);
        relay_tenants_charge(t, a, 5);
        relay_tenants_leave(t, a);
        relay_tenants_leave(t, b);
    }
    relay_tenants_destroy(t);
    relay_tenants_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_was_served_is_later),
        cmocka_unit_test(a_pause_saves_nothing_up),
        cmocka_unit_test(a_pause_repays_nothing),
        cmocka_unit_test(places_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
