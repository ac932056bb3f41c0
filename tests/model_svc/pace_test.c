#include "model_svc/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void without_a_target_there_is_no_limit(void **state) {
    relay_pace p;
    relay_pace_init(&p, 0);
    relay_pace_note(&p, 10, 1000000);
    assert_int_equal(relay_pace_prompt_rows(&p, 8), UINT32_MAX);
}

static void before_the_first_step_it_is_careful(void **state) {
    relay_pace p;
    relay_pace_init(&p, 50000);
    assert_int_equal(relay_pace_prompt_rows(&p, 8), RELAY_PACE_FIRST_ROWS);
}

static void it_finds_what_a_step_and_a_row_cost(void **state) {
    relay_pace p;
    relay_pace_init(&p, 50000);
    for (uint32_t i = 0; i < 20; i++)
        relay_pace_note(&p, 8 + i * 3, 10000 + 400 * (8 + i * 3));
    assert_in_range(relay_pace_prompt_rows(&p, 8), 90, 92); // (50,000 - 10,000) / 400 - 8
}

static void where_all_steps_are_alike_a_row_costs_its_share(void **state) {
    relay_pace p;
    relay_pace_init(&p, 50000);
    for (uint32_t i = 0; i < 20; i++)
        relay_pace_note(&p, 10, 10000);
    assert_in_range(relay_pace_prompt_rows(&p, 8), 41, 42);
}

static void it_follows_when_rows_get_dearer(void **state) {
    relay_pace p;
    relay_pace_init(&p, 50000);
    uint32_t rows = 100;
    for (uint32_t i = 0; i < 200; i++) {
        relay_pace_note(&p, 8 + rows, 2000 + (200 + 4 * i) * (8 + rows));
        rows = relay_pace_prompt_rows(&p, 8);
    }
    // 1,000 us a row by now: 48 rows would take the time exactly.
    assert_in_range(rows + 8, 43, 58);
}

static void a_prompt_that_had_steps_to_itself_is_soon_forgotten(void **state) {
    relay_pace p;
    relay_pace_init(&p, 50000);
    for (uint32_t i = 0; i < 10; i++)
        relay_pace_note(&p, 512, 512 * 4000); // at the end of a long context
    uint32_t rows = relay_pace_prompt_rows(&p, 8);
    assert_int_equal(rows, RELAY_PACE_MIN_ROWS);
    for (uint32_t i = 0; i < 10; i++) {
        relay_pace_note(&p, 8 + rows, 4000 + 1000 * (8 + rows));
        rows = relay_pace_prompt_rows(&p, 8);
        assert_true(8 + rows <= 50); // never far beyond the target
    }
    assert_in_range(rows, 34, 38); // (50,000 - 4,000) / 1,000 - 8
}

static void a_prompt_gets_on_though_there_is_no_time(void **state) {
    relay_pace p;
    relay_pace_init(&p, 1000);
    for (uint32_t i = 0; i < 20; i++)
        relay_pace_note(&p, 8 + i, 100000);
    assert_int_equal(relay_pace_prompt_rows(&p, 200), RELAY_PACE_MIN_ROWS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_target_there_is_no_limit),
        cmocka_unit_test(before_the_first_step_it_is_careful),
        cmocka_unit_test(it_finds_what_a_step_and_a_row_cost),
        cmocka_unit_test(where_all_steps_are_alike_a_row_costs_its_share),
        cmocka_unit_test(it_follows_when_rows_get_dearer),
        cmocka_unit_test(a_prompt_that_had_steps_to_itself_is_soon_forgotten),
        cmocka_unit_test(a_prompt_gets_on_though_there_is_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
