#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <time.h>

#include "common/clock.h"

static void time_goes_forward_in_microseconds(void **state) {
    relay_mono_us start = relay_mono_now();
    struct timespec t = {.tv_nsec = 5 * 1000 * 1000};
    nanosleep(&t, NULL);
    relay_mono_us took = relay_mono_now() - start;
    assert_in_range(took, 5000, 10 * 1000 * 1000);
    assert_true(relay_unix_ms() / 1000 - (uint64_t)time(NULL) + 2 <= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_forward_in_microseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
