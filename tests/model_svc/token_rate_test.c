#include "model_svc/token_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SECOND = 1000000 };

// Whole tokens a second, at `now`.
static int rate(const relay_token_rate *r, uint64_t total, relay_mono_us noted, relay_mono_us now) {
    relay_token_rate_window w = relay_token_rate_get(r, total, noted);
    return (int)(relay_token_rate_at(&w, now) + 0.5);
}

static void tells_a_steady_rate(void **state) {
    relay_token_rate r = {0};
    uint64_t total = 0;
    relay_mono_us now = 77 * SECOND;
    for (uint32_t i = 0; i < 3000; i++, now += 10000, total += 2) {
        relay_token_rate_note(&r, total, now);
        if (i > 100) assert_in_range(rate(&r, total, now, now), 199, 201);
    }
}

static void follows_a_change_within_the_window(void **state) {
    relay_token_rate r = {0};
    uint64_t total = 0;
    relay_mono_us now = SECOND;
    for (uint32_t i = 0; i < 1000; i++, now += 10000, total += 1)
        relay_token_rate_note(&r, total, now);
    for (uint32_t i = 0; i < 560; i++, now += 10000, total += 10)
        relay_token_rate_note(&r, total, now);
    assert_in_range(rate(&r, total, now, now), 990, 1000);
}

static void falls_when_nothing_comes_and_ends_at_none(void **state) {
    relay_token_rate r = {0};
    uint64_t total = 0;
    relay_mono_us now = SECOND;
    for (uint32_t i = 0; i < 300; i++, now += 10000, total += 1)
        relay_token_rate_note(&r, total, now);
    int before = rate(&r, total, now, now);
    assert_in_range(before, 99, 101);
    int later = rate(&r, total, now, now + 2 * SECOND);
    assert_in_range(later, 1, before - 20);
    assert_int_equal(rate(&r, total, now, now + RELAY_TOKEN_RATE_WINDOW_US + 1), 0);
    // After a long pause only what came after it counts.
    now += 1000 * (relay_mono_us)SECOND;
    relay_token_rate_note(&r, total, now);
    assert_int_equal(rate(&r, total, now, now), 0);
    relay_token_rate_note(&r, total + 50, now + SECOND);
    assert_int_equal(rate(&r, total + 50, now + SECOND, now + SECOND), 50);
}

static void is_none_before_anything_was_noted(void **state) {
    relay_token_rate r = {0};
    assert_int_equal(rate(&r, 0, SECOND, 2 * SECOND), 0);
    relay_token_rate_window none = {0};
    assert_true(relay_token_rate_at(&none, SECOND) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_a_steady_rate),
        cmocka_unit_test(follows_a_change_within_the_window),
        cmocka_unit_test(falls_when_nothing_comes_and_ends_at_none),
        cmocka_unit_test(is_none_before_anything_was_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
