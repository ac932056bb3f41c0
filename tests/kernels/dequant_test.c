#include "kernels/dequant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/half.h"

// The records of tests/golden/dequant.bin (made by make_dequant.py beside it).
static void rows_mean_what_llama_cpp_says(void **state) {
    FILE *f = fopen("tests/golden/dequant.bin", "rb");
    assert_non_null(f);
    uint32_t head[3], n_records = 0;
    while (fread(head, sizeof head, 1, f) == 1) {
        uint32_t type = head[0], n_values = head[1], n_bytes = head[2];
        uint8_t *row = malloc(n_bytes);
        float *expected = malloc(n_values * sizeof *expected), *got = malloc(n_values * sizeof *got);
        assert_int_equal(fread(row, 1, n_bytes, f), n_bytes);
        assert_int_equal(fread(expected, sizeof *expected, n_values, f), n_values);
        relay_err e;
        uint64_t row_bytes;
        assert_int_equal(relay_dequant_row_bytes(&row_bytes, type, n_values, &e), RELAY_OK);
        assert_int_equal(row_bytes, n_bytes);
        relay_dequant_row(type, row, got, n_values);
        assert_memory_equal(got, expected, n_values * sizeof *got);
        free(row);
        free(expected);
        free(got);
        n_records++;
    }
    fclose(f);
    assert_int_equal(n_records, 9);
}

static void refuses_unknown_types_and_broken_rows(void **state) {
    relay_err e;
    uint64_t bytes;
    assert_int_equal(relay_dequant_row_bytes(&bytes, 10, 256, &e), RELAY_UNIMPLEMENTED);
    assert_non_null(strstr(e.message, "ggml type 10"));
    assert_int_equal(relay_dequant_row_bytes(&bytes, RELAY_GGML_Q4_K, 288, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "288"));
    assert_non_null(strstr(e.message, "multiple of 256"));
    assert_int_equal(relay_dequant_row_bytes(&bytes, RELAY_GGML_F32, 0, &e), RELAY_INVALID_ARGUMENT);
}

// Against _Float16, whose conversions the compiler's library makes.
static void every_half_converts_both_ways(void **state) {
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t bits = (uint16_t)h;
        _Float16 value;
        memcpy(&value, &bits, sizeof bits);
        float f = relay_f32_from_f16(bits);
        if (isnan(f)) {
            assert_true((h & 0x7C00) == 0x7C00 && (h & 0x3FF) != 0);
            assert_true(isnan(relay_f32_from_f16(relay_f16_from_f32(f))));
            continue;
        }
        assert_true(f == (float)value);
        assert_int_equal(relay_f16_from_f32(f), bits);
    }
}

static void floats_round_to_the_nearest_half(void **state) {
    // Every exponent that matters, with the bits below a half's last place in every interesting state.
    static const uint32_t low[] = {0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF};
    for (uint32_t high = 0; high < 1u << 19; high++) {
        for (uint32_t i = 0; i < sizeof low / sizeof *low; i++) {
            float f = relay_f32_from_bits(high << 13 | low[i]);
            if (isnan(f)) continue;
            _Float16 expected = (_Float16)f;
            uint16_t bits;
            memcpy(&bits, &expected, sizeof bits);
            if (relay_f16_from_f32(f) != bits) fail_msg("%a: %04x, not %04x", f, relay_f16_from_f32(f), bits);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_mean_what_llama_cpp_says),
        cmocka_unit_test(refuses_unknown_types_and_broken_rows),
        cmocka_unit_test(every_half_converts_both_ways),
        cmocka_unit_test(floats_round_to_the_nearest_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
