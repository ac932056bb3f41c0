#include "model_svc/prefix_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_GROUPS = 2, N_BLOCKS = 8, MAX_ENTRIES = 20 };

typedef struct fixture {
    relay_block_pool *pools[N_GROUPS];
    relay_prefix_index *index;
} fixture;

static const uint8_t salt_a[RELAY_SALT_BYTES] = {1}, salt_b[RELAY_SALT_BYTES] = {2};

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    for (uint32_t g = 0; g < N_GROUPS; g++)
        f->pools[g] = relay_block_pool_create(N_BLOCKS);
    f->index = relay_prefix_index_create(f->pools, N_GROUPS, MAX_ENTRIES, 7);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    const char *why = relay_prefix_index_check(f->index, NULL);
    relay_prefix_index_destroy(f->index);
    for (uint32_t g = 0; g < N_GROUPS; g++) {
        if (why == NULL) why = relay_block_pool_check(f->pools[g], NULL);
        relay_block_pool_destroy(f->pools[g]);
    }
    free(f);
    if (why != NULL) print_error("%s\n", why);
    return why == NULL ? 0 : -1;
}

static const uint32_t *block_ids(uint32_t first) {
    static uint32_t ids[RELAY_BLOCK_TOKENS];
    for (uint32_t i = 0; i < RELAY_BLOCK_TOKENS; i++)
        ids[i] = first + i;
    return ids;
}

static void take_blocks(fixture *f, uint32_t blocks[N_GROUPS]) {
    for (uint32_t g = 0; g < N_GROUPS; g++)
        blocks[g] = relay_prefix_index_take(f->index, g);
}

static void release_blocks(fixture *f, const uint32_t blocks[N_GROUPS]) {
    for (uint32_t g = 0; g < N_GROUPS; g++) {
        if (blocks[g] != RELAY_NO_BLOCK) relay_block_pool_release(f->pools[g], blocks[g]);
    }
}

// A chain of `n` blocks behind a salt, let go again, the last first.
static void put_chain(fixture *f, const uint8_t *salt, uint32_t n, uint32_t first) {
    uint32_t blocks[N_BLOCKS][N_GROUPS];
    uint32_t entry = relay_prefix_index_enter(f->index, salt);
    for (uint32_t i = 0; i < n; i++) {
        take_blocks(f, blocks[i]);
        entry = relay_prefix_index_store(f->index, entry, block_ids(first + i), blocks[i]);
        assert_int_not_equal(entry, RELAY_NO_ENTRY);
    }
    relay_prefix_index_leave(f->index, entry);
    for (uint32_t i = n; i-- > 0;)
        release_blocks(f, blocks[i]);
}

// Of a chain that put_chain made: how many are known.
static uint32_t chain_length(fixture *f, const uint8_t *salt, uint32_t first) {
    uint32_t root = relay_prefix_index_enter(f->index, salt), n = 0;
    uint32_t entry = root;
    while ((entry = relay_prefix_index_find(f->index, entry, block_ids(first + n))) != RELAY_NO_ENTRY &&
           relay_prefix_index_block(f->index, entry, 0) != RELAY_NO_BLOCK) {
        n++;
    }
    relay_prefix_index_leave(f->index, root);
    return n;
}

static void what_was_stored_is_found_with_its_blocks(void **state) {
    fixture *f = *state;
    uint32_t root = relay_prefix_index_enter(f->index, salt_a), blocks[N_GROUPS];
    take_blocks(f, blocks);
    uint32_t entry = relay_prefix_index_store(f->index, root, block_ids(5), blocks);
    assert_int_equal(relay_prefix_index_find(f->index, root, block_ids(5)), entry);
    assert_int_equal(relay_prefix_index_find(f->index, root, block_ids(6)), RELAY_NO_ENTRY);
    assert_int_equal(relay_prefix_index_find(f->index, entry, block_ids(5)), RELAY_NO_ENTRY);
    assert_int_equal(relay_prefix_index_parent(f->index, entry), root);
    for (uint32_t g = 0; g < N_GROUPS; g++)
        assert_int_equal(relay_prefix_index_block(f->index, entry, g), blocks[g]);
    relay_prefix_index_leave(f->index, entry);
    release_blocks(f, blocks);
}

static void two_salts_have_nothing_in_common(void **state) {
    fixture *f = *state;
    put_chain(f, salt_a, 3, 10);
    assert_int_equal(chain_length(f, salt_a, 10), 3);
    assert_int_equal(chain_length(f, salt_b, 10), 0);
    put_chain(f, salt_b, 2, 10);
    assert_int_equal(relay_block_pool_cached(f->pools[0]), 5);
}

// The same ids behind other ids are another entry: a chain, not a bag.
static void equal_ids_behind_other_ids_are_not_found(void **state) {
    fixture *f = *state;
    put_chain(f, salt_a, 2, 0);  // 0, 1
    put_chain(f, salt_a, 1, 50); // 50
    uint32_t root = relay_prefix_index_enter(f->index, salt_a);
    uint32_t other = relay_prefix_index_find(f->index, root, block_ids(50));
    assert_int_not_equal(other, RELAY_NO_ENTRY);
    assert_int_equal(relay_prefix_index_find(f->index, other, block_ids(1)), RELAY_NO_ENTRY);
    assert_int_equal(relay_prefix_index_find(f->index, root, block_ids(1)), RELAY_NO_ENTRY);
    relay_prefix_index_leave(f->index, root);
}

static void who_computed_it_too_gets_the_block_that_is_known(void **state) {
    fixture *f = *state;
    uint32_t first[N_GROUPS], second[N_GROUPS];
    take_blocks(f, first);
    take_blocks(f, second);
    uint32_t known[N_GROUPS] = {first[0], first[1]};
    uint32_t a = relay_prefix_index_store(f->index, relay_prefix_index_enter(f->index, salt_a), block_ids(3), first);
    uint32_t b = relay_prefix_index_store(f->index, relay_prefix_index_enter(f->index, salt_a), block_ids(3), second);
    assert_int_equal(a, b);
    for (uint32_t g = 0; g < N_GROUPS; g++) {
        assert_int_equal(second[g], known[g]);
        assert_int_equal(relay_block_pool_holders(f->pools[g], known[g]), 2);
        assert_int_equal(relay_block_pool_available(f->pools[g]), N_BLOCKS - 1);
    }
    relay_prefix_index_leave(f->index, a);
    relay_prefix_index_leave(f->index, b);
    release_blocks(f, first);
    release_blocks(f, second);
}

static void the_end_of_the_longest_unused_chain_goes_first(void **state) {
    fixture *f = *state;
    put_chain(f, salt_a, 4, 0);
    put_chain(f, salt_a, 4, 100);
    uint32_t taken[6][N_GROUPS];
    static const uint32_t lengths[] = {3, 2, 1, 0, 0, 0};
    for (uint32_t i = 0; i < 6; i++) {
        take_blocks(f, taken[i]);
        assert_int_equal(chain_length(f, salt_a, 0), lengths[i]);
        assert_int_equal(chain_length(f, salt_a, 100), i < 4 ? 4 : 7 - i);
    }
    for (uint32_t i = 0; i < 6; i++)
        release_blocks(f, taken[i]);
}

static void an_entry_goes_with_its_last_block(void **state) {
    fixture *f = *state;
    put_chain(f, salt_a, 1, 0);
    assert_int_equal(relay_prefix_index_entries(f->index), 2); // the salt's too
    uint32_t taken[2][N_BLOCKS];
    for (uint32_t g = 0; g < N_GROUPS; g++) {
        for (uint32_t i = 0; i < N_BLOCKS; i++)
            taken[g][i] = relay_prefix_index_take(f->index, g);
        assert_int_equal(relay_prefix_index_entries(f->index), g == 0 ? 2 : 0);
    }
    for (uint32_t g = 0; g < N_GROUPS; g++) {
        for (uint32_t i = 0; i < N_BLOCKS; i++)
            relay_block_pool_release(f->pools[g], taken[g][i]);
    }
}

static void a_group_may_have_lost_its_block_and_get_one_again(void **state) {
    fixture *f = *state;
    put_chain(f, salt_a, 1, 0);
    uint32_t taken[N_BLOCKS];
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        taken[i] = relay_prefix_index_take(f->index, 1);
    uint32_t root = relay_prefix_index_enter(f->index, salt_a);
    uint32_t entry = relay_prefix_index_find(f->index, root, block_ids(0));
    assert_int_equal(relay_prefix_index_block(f->index, entry, 1), RELAY_NO_BLOCK);
    uint32_t known = relay_prefix_index_block(f->index, entry, 0);
    assert_int_not_equal(known, RELAY_NO_BLOCK);
    uint32_t blocks[N_GROUPS] = {relay_prefix_index_take(f->index, 0), taken[0]};
    assert_int_equal(relay_prefix_index_store(f->index, root, block_ids(0), blocks), entry);
    assert_int_equal(blocks[0], known);
    assert_int_equal(relay_prefix_index_block(f->index, entry, 1), taken[0]);
    relay_prefix_index_leave(f->index, entry);
    relay_block_pool_release(f->pools[0], blocks[0]);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        relay_block_pool_release(f->pools[1], taken[i]);
}

static void a_block_that_has_left_the_window_may_be_missing(void **state) {
    fixture *f = *state;
    uint32_t blocks[N_GROUPS] = {relay_prefix_index_take(f->index, 0), RELAY_NO_BLOCK};
    uint32_t entry =
        relay_prefix_index_store(f->index, relay_prefix_index_enter(f->index, salt_a), block_ids(0), blocks);
    assert_int_equal(relay_prefix_index_block(f->index, entry, 0), blocks[0]);
    assert_int_equal(relay_prefix_index_block(f->index, entry, 1), RELAY_NO_BLOCK);
    relay_prefix_index_leave(f->index, entry);
    release_blocks(f, blocks);
}

static void when_all_entries_are_in_use_nothing_more_is_remembered(void **state) {
    fixture *f = *state;
    static const uint32_t none[N_GROUPS] = {RELAY_NO_BLOCK, RELAY_NO_BLOCK};
    uint32_t blocks[N_GROUPS];
    uint32_t entry = relay_prefix_index_enter(f->index, salt_a);
    for (uint32_t i = 1; i < MAX_ENTRIES; i++) {
        memcpy(blocks, none, sizeof blocks);
        entry = relay_prefix_index_store(f->index, entry, block_ids(i), blocks);
        assert_int_not_equal(entry, RELAY_NO_ENTRY);
    }
    assert_int_equal(relay_prefix_index_entries(f->index), MAX_ENTRIES);
    assert_int_equal(relay_prefix_index_enter(f->index, salt_b), RELAY_NO_ENTRY);
    assert_int_equal(relay_prefix_index_store(f->index, entry, block_ids(99), blocks), RELAY_NO_ENTRY);
    // With its last user the whole chain goes.
    assert_int_equal(relay_prefix_index_entries(f->index), 0);
    relay_prefix_index_leave(f->index, RELAY_NO_ENTRY);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_was_stored_is_found_with_its_blocks),
        TEST(two_salts_have_nothing_in_common),
        TEST(equal_ids_behind_other_ids_are_not_found),
        TEST(who_computed_it_too_gets_the_block_that_is_known),
        TEST(the_end_of_the_longest_unused_chain_goes_first),
        TEST(an_entry_goes_with_its_last_block),
        TEST(a_group_may_have_lost_its_block_and_get_one_again),
        TEST(a_block_that_has_left_the_window_may_be_missing),
        TEST(when_all_entries_are_in_use_nothing_more_is_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
