#include "model_svc/block_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/status.h"

static void expect_sound(const relay_block_pool *p, const uint32_t *holders) {
    const char *why = relay_block_pool_check(p, holders);
    if (why != NULL) fail_msg("%s", why);
}

static void gives_every_block_once(void **state) {
    enum { N = 37 };
    relay_block_pool *p = relay_block_pool_create(N);
    bool given[N] = {false};
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(relay_block_pool_free(p), N - i);
        uint32_t id = relay_block_pool_take(p);
        assert_in_range(id, 0, N - 1);
        assert_false(given[id]);
        given[id] = true;
        expect_sound(p, NULL);
    }
    assert_int_equal(relay_block_pool_free(p), 0);
    assert_int_equal(relay_block_pool_total(p), N);
    relay_block_pool_destroy(p);
}

static void touches_a_fresh_block_only_when_no_used_one_is_free(void **state) {
    relay_block_pool *p = relay_block_pool_create(100);
    uint32_t a = relay_block_pool_take(p), b = relay_block_pool_take(p);
    assert_int_equal(relay_block_pool_touched(p), 2);
    relay_block_pool_release(p, a);
    relay_block_pool_release(p, b);
    assert_int_equal(relay_block_pool_take(p), b); // the one that was let go last
    assert_int_equal(relay_block_pool_take(p), a);
    assert_int_equal(relay_block_pool_touched(p), 2);
    relay_block_pool_take(p);
    assert_int_equal(relay_block_pool_touched(p), 3);
    relay_block_pool_destroy(p);
}

static void a_block_is_free_when_its_holder_lets_go(void **state) {
    relay_block_pool *p = relay_block_pool_create(2);
    uint32_t id = relay_block_pool_take(p);
    assert_int_equal(relay_block_pool_free(p), 1);
    expect_sound(p, NULL);
    relay_block_pool_release(p, id);
    assert_int_equal(relay_block_pool_free(p), 2);
    expect_sound(p, NULL);
    relay_block_pool_destroy(p);
}

static void the_check_finds_a_wrong_count(void **state) {
    relay_block_pool *p = relay_block_pool_create(2);
    uint32_t id = relay_block_pool_take(p);
    uint32_t holders[2] = {0};
    assert_non_null(relay_block_pool_check(p, holders));
    holders[id] = 1;
    expect_sound(p, holders);
    holders[id] = 2;
    assert_non_null(relay_block_pool_check(p, holders));
    relay_block_pool_destroy(p);
}

static void any_history_keeps_it_sound(void **state) {
    enum { N = 23, STEPS = 20000 };
    relay_block_pool *p = relay_block_pool_create(N);
    uint32_t holders[N] = {0}, n_held = 0, most_held = 0;
    srand(7);
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t id = (uint32_t)rand() % N;
        if (rand() % 2 == 0 && relay_block_pool_free(p) > 0) {
            id = relay_block_pool_take(p);
            assert_int_equal(holders[id], 0);
            holders[id] = 1;
            n_held++;
        } else if (holders[id] > 0) {
            relay_block_pool_release(p, id);
            holders[id] = 0;
            n_held--;
        }
        if (n_held > most_held) most_held = n_held;
        assert_int_equal(relay_block_pool_free(p), N - n_held);
        assert_int_equal(relay_block_pool_touched(p), most_held);
        expect_sound(p, holders);
    }
    relay_block_pool_destroy(p);
}

static void destroying_none_is_fine(void **state) {
    relay_block_pool_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_every_block_once),
        cmocka_unit_test(touches_a_fresh_block_only_when_no_used_one_is_free),
        cmocka_unit_test(a_block_is_free_when_its_holder_lets_go),
        cmocka_unit_test(the_check_finds_a_wrong_count),
        cmocka_unit_test(any_history_keeps_it_sound),
        cmocka_unit_test(destroying_none_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
