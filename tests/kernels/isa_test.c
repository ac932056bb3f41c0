#include "kernels/cpu/isa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

// The compiler's own detection, which also asks what the operating system saves.
static void finds_what_the_compiler_finds(void **state) {
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vnni");
    relay_cpu_isa isa = relay_cpu_isa_detect();
    assert_int_equal(isa.avx2, avx2);
    assert_int_equal(isa.avx512, avx512);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_the_compiler_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
