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

// A block that was not cached.
static uint32_t take(relay_block_pool *p) {
    uint32_t forgotten = 7;
    uint32_t id = relay_block_pool_take(p, &forgotten);
    assert_int_equal(forgotten, RELAY_NO_LABEL);
    assert_int_equal(relay_block_pool_holders(p, id), 1);
    assert_int_equal(relay_block_pool_label(p, id), RELAY_NO_LABEL);
    return id;
}

static void gives_every_block_once(void **state) {
    enum { N = 37 };
    relay_block_pool *p = relay_block_pool_create(N);
    bool given[N] = {false};
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(relay_block_pool_available(p), N - i);
        uint32_t id = take(p);
        assert_in_range(id, 0, N - 1);
        assert_false(given[id]);
        given[id] = true;
        expect_sound(p, NULL);
    }
    assert_int_equal(relay_block_pool_available(p), 0);
    assert_int_equal(relay_block_pool_total(p), N);
    relay_block_pool_destroy(p);
}

static void touches_a_fresh_block_only_when_no_used_one_is_free(void **state) {
    relay_block_pool *p = relay_block_pool_create(100);
    uint32_t a = take(p), b = take(p);
    assert_int_equal(relay_block_pool_touched(p), 2);
    relay_block_pool_release(p, a);
    relay_block_pool_release(p, b);
    assert_int_equal(take(p), b); // the one that was let go last
    assert_int_equal(take(p), a);
    assert_int_equal(relay_block_pool_touched(p), 2);
    take(p);
    assert_int_equal(relay_block_pool_touched(p), 3);
    relay_block_pool_destroy(p);
}

static void a_block_is_free_when_its_holder_lets_go(void **state) {
    relay_block_pool *p = relay_block_pool_create(2);
    uint32_t id = take(p);
    assert_int_equal(relay_block_pool_available(p), 1);
    expect_sound(p, NULL);
    relay_block_pool_release(p, id);
    assert_int_equal(relay_block_pool_available(p), 2);
    expect_sound(p, NULL);
    relay_block_pool_destroy(p);
}

static void the_check_finds_a_wrong_count(void **state) {
    relay_block_pool *p = relay_block_pool_create(2);
    uint32_t id = take(p);
    uint32_t holders[2] = {0};
    assert_non_null(relay_block_pool_check(p, holders));
    holders[id] = 1;
    expect_sound(p, holders);
    holders[id] = 2;
    assert_non_null(relay_block_pool_check(p, holders));
    relay_block_pool_destroy(p);
}

static void a_labelled_block_is_cached_and_given_away_last_and_in_order(void **state) {
    relay_block_pool *p = relay_block_pool_create(4);
    uint32_t a = take(p), b = take(p), c = take(p), forgotten;
    relay_block_pool_set_label(p, a, 100);
    relay_block_pool_set_label(p, b, 101);
    relay_block_pool_release(p, b);
    relay_block_pool_release(p, c);
    relay_block_pool_release(p, a);
    assert_int_equal(relay_block_pool_cached(p), 2);
    assert_int_equal(relay_block_pool_available(p), 4);
    expect_sound(p, (uint32_t[4]){0});
    assert_int_equal(take(p), c); // free
    take(p);                      // never used
    assert_int_equal(relay_block_pool_take(p, &forgotten), b);
    assert_int_equal(forgotten, 101);
    assert_int_equal(relay_block_pool_take(p, &forgotten), a);
    assert_int_equal(forgotten, 100);
    assert_int_equal(relay_block_pool_available(p), 0);
    expect_sound(p, (uint32_t[4]){1, 1, 1, 1});
    relay_block_pool_destroy(p);
}

static void a_cached_block_that_is_held_again_is_the_newest_after(void **state) {
    relay_block_pool *p = relay_block_pool_create(3);
    uint32_t ids[3], forgotten;
    for (uint32_t i = 0; i < 3; i++) {
        ids[i] = take(p);
        relay_block_pool_set_label(p, ids[i], i);
    }
    for (uint32_t i = 0; i < 3; i++)
        relay_block_pool_release(p, ids[i]);
    for (uint32_t n = 0; n < 2; n++) { // held by two, let go by both
        relay_block_pool_hold(p, ids[1]);
        assert_int_equal(relay_block_pool_holders(p, ids[1]), n + 1);
    }
    assert_int_equal(relay_block_pool_available(p), 2);
    relay_block_pool_release(p, ids[1]);
    assert_int_equal(relay_block_pool_available(p), 2);
    expect_sound(p, NULL);
    relay_block_pool_release(p, ids[1]);
    static const uint32_t order[] = {0, 2, 1};
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(relay_block_pool_take(p, &forgotten), ids[order[i]]);
        assert_int_equal(forgotten, order[i]);
    }
    relay_block_pool_destroy(p);
}

static void any_history_keeps_it_sound(void **state) {
    enum { N = 23, STEPS = 20000 };
    relay_block_pool *p = relay_block_pool_create(N);
    uint32_t holders[N] = {0}, n_held = 0, forgotten;
    bool is_labelled[N] = {false};
    srand(7);
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t id = (uint32_t)rand() % N;
        switch (rand() % 4) {
        case 0:
            if (relay_block_pool_available(p) == 0) break;
            id = relay_block_pool_take(p, &forgotten);
            assert_int_equal(holders[id], 0);
            assert_int_equal(forgotten, is_labelled[id] ? id : RELAY_NO_LABEL);
            is_labelled[id] = false;
            holders[id] = 1;
            n_held++;
            break;
        case 1:
            if (holders[id] == 0) break;
            relay_block_pool_set_label(p, id, id);
            is_labelled[id] = true;
            break;
        case 2:
            if (holders[id] == 0 && !is_labelled[id]) break;
            relay_block_pool_hold(p, id);
            if (holders[id]++ == 0) n_held++;
            break;
        case 3:
            if (holders[id] == 0) break;
            relay_block_pool_release(p, id);
            if (--holders[id] == 0) n_held--;
            break;
        }
        assert_int_equal(relay_block_pool_available(p), N - n_held);
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
        cmocka_unit_test(a_labelled_block_is_cached_and_given_away_last_and_in_order),
        cmocka_unit_test(a_cached_block_that_is_held_again_is_the_newest_after),
        cmocka_unit_test(any_history_keeps_it_sound),
        cmocka_unit_test(destroying_none_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
