#include "kernels/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

// Random123's kat_vectors, "philox4x32 10".
static void gives_the_published_answers(void **state) {
    static const struct {
        relay_philox_block counter;
        uint32_t key[2];
        relay_philox_block answer;
    } cases[] = {
        {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {0xa4093822, 0x299f31d0},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        relay_philox_block r = relay_philox4x32(cases[i].counter, cases[i].key[0], cases[i].key[1]);
        assert_memory_equal(&r, &cases[i].answer, sizeof r);
    }
}

static void a_draw_depends_on_each_part_of_its_name(void **state) {
    double u = relay_philox_uniform(7, 1, 2, RELAY_DRAW_TOKEN);
    assert_true(u == relay_philox_uniform(7, 1, 2, RELAY_DRAW_TOKEN));
    assert_true(u != relay_philox_uniform(8, 1, 2, RELAY_DRAW_TOKEN));
    assert_true(u != relay_philox_uniform(7ull << 32, 1, 2, RELAY_DRAW_TOKEN));
    assert_true(u != relay_philox_uniform(7, 2, 2, RELAY_DRAW_TOKEN));
    assert_true(u != relay_philox_uniform(7, 1, 3, RELAY_DRAW_TOKEN));
    assert_true(u != relay_philox_uniform(7, 1, 2, RELAY_DRAW_TOKEN + 1));
}

static void draws_fill_the_unit_interval(void **state) {
    enum { BINS = 64, DRAWS = 64000 };
    uint32_t count[BINS] = {0};
    for (uint32_t i = 0; i < DRAWS; i++) {
        double u = relay_philox_uniform(42, i, 0, RELAY_DRAW_TOKEN);
        assert_true(u >= 0 && u < 1);
        count[(uint32_t)(u * BINS)]++;
    }
    double chi2 = 0;
    for (uint32_t i = 0; i < BINS; i++) {
        double d = count[i] - (double)DRAWS / BINS;
        chi2 += d * d / ((double)DRAWS / BINS);
    }
    assert_true(chi2 < 103.4); // 63 degrees of freedom: passed by chance in 1 of 1000; the draws are fixed
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_answers),
        cmocka_unit_test(a_draw_depends_on_each_part_of_its_name),
        cmocka_unit_test(draws_fill_the_unit_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
