#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_reference_is_always_there_and_last(void **state) {
    uint32_t n;
    const relay_kernels *const *all = relay_kernels_available(&n);
    assert_true(n >= 1);
    assert_string_equal(all[n - 1]->name, "ref");
}

static void chooses_by_name(void **state) {
    uint32_t n;
    const relay_kernels *const *all = relay_kernels_available(&n);
    for (uint32_t i = 0; i < n; i++) {
        const relay_kernels *k = NULL;
        assert_int_equal(relay_kernels_choose(&k, all[i]->name, NULL), RELAY_OK);
        assert_ptr_equal(k, all[i]);
    }
}

static void chooses_the_fastest_unless_the_environment_names_one(void **state) {
    uint32_t n;
    const relay_kernels *const *all = relay_kernels_available(&n);
    const relay_kernels *k = NULL;
    unsetenv("RELAY_KERNELS");
    assert_int_equal(relay_kernels_choose(&k, NULL, NULL), RELAY_OK);
    assert_ptr_equal(k, all[0]);
    setenv("RELAY_KERNELS", "ref", 1);
    assert_int_equal(relay_kernels_choose(&k, NULL, NULL), RELAY_OK);
    assert_ptr_equal(k, all[n - 1]);
    assert_int_equal(relay_kernels_choose(&k, "", NULL), RELAY_OK);
    assert_ptr_equal(k, all[0]);
    unsetenv("RELAY_KERNELS");
}

static void an_unknown_name_is_refused_with_what_there_is(void **state) {
    const relay_kernels *k;
    relay_err e;
    assert_int_equal(relay_kernels_choose(&k, "sse9", &e), RELAY_FAILED_PRECONDITION);
    assert_non_null(strstr(e.message, "\"sse9\""));
    assert_non_null(strstr(e.message, "ref"));
}

static void a_weight_of_an_unknown_type_or_shape_is_refused(void **state) {
    uint32_t n;
    const relay_kernels *const *all = relay_kernels_available(&n);
    for (uint32_t i = 0; i < n; i++) {
        relay_device_opts opts = {
            .n_threads = 1, .max_rows = 1, .max_width = 64, .max_context = 16, .max_vocab = 16, .max_samples = 1};
        relay_device *d = NULL;
        relay_err e;
        assert_int_equal(all[i]->device_create(&d, &opts, &e), RELAY_OK);
        relay_weight *w = NULL;
        uint8_t bytes[512] = {0};
        assert_int_equal(all[i]->weight_create(d, &w, 11, 1, 256, bytes, &e), RELAY_UNIMPLEMENTED);
        assert_non_null(strstr(e.message, "type 11"));
        assert_int_equal(all[i]->weight_create(d, &w, 2, 1, 33, bytes, &e), RELAY_INVALID_ARGUMENT);
        assert_non_null(strstr(e.message, "33"));
        assert_null(w);
        all[i]->weight_destroy(d, NULL);
        all[i]->device_destroy(d);
        all[i]->device_destroy(NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_is_always_there_and_last),
        cmocka_unit_test(chooses_by_name),
        cmocka_unit_test(chooses_the_fastest_unless_the_environment_names_one),
        cmocka_unit_test(an_unknown_name_is_refused_with_what_there_is),
        cmocka_unit_test(a_weight_of_an_unknown_type_or_shape_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
