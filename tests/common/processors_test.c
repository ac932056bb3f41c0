// What a process may use, rather than what the machine has.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>

#include "common/processors.h"

static void an_affinity_mask_counts(void **state) {
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    uint32_t n = relay_processors_available();
    assert_true(n >= 1 && n <= (uint32_t)CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(relay_processors_available(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(relay_processors_available(), n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_affinity_mask_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
