#include "model_svc/token_counts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_IDS = 300 };

typedef struct expected {
    uint32_t in_prompt[N_IDS], in_output[N_IDS], n_different;
} expected;

// Ids that lie apart by `spacing`, so that they may meet in the index.
static void fill(relay_token_counts *c, expected *x, uint32_t n, uint32_t spacing) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t which = (uint32_t)rand() % N_IDS;
        if (x->in_prompt[which] + x->in_output[which] == 0) x->n_different++;
        if (i < n / 2) {
            x->in_prompt[which]++;
            relay_token_counts_add_prompt(c, which * spacing);
        } else {
            x->in_output[which]++;
            relay_token_counts_add_output(c, which * spacing);
        }
    }
}

static void expect_counts(const relay_token_counts *c, const expected *x, uint32_t spacing) {
    assert_int_equal(c->n_items, x->n_different);
    bool seen[N_IDS] = {false};
    for (uint32_t i = 0; i < c->n_items; i++) {
        uint32_t which = c->items[i].token_id / spacing;
        assert_int_equal(c->items[i].token_id % spacing, 0);
        assert_false(seen[which]);
        seen[which] = true;
        assert_int_equal(c->items[i].in_prompt, x->in_prompt[which]);
        assert_int_equal(c->items[i].in_output, x->in_output[which]);
    }
}

static void counts_what_was_added(void **state) {
    static const uint32_t spacings[] = {1, 2, 64, 4096, 1U << 20};
    srand(3);
    for (uint32_t i = 0; i < sizeof spacings / sizeof spacings[0]; i++) {
        relay_token_counts c;
        relay_token_counts_init(&c, N_IDS);
        expected x = {0};
        fill(&c, &x, 2000, spacings[i]);
        expect_counts(&c, &x, spacings[i]);
        relay_token_counts_fini(&c);
    }
}

static void is_as_new_after_clear(void **state) {
    relay_token_counts c;
    relay_token_counts_init(&c, N_IDS);
    srand(4);
    for (uint32_t round = 0; round < 50; round++) {
        expected x = {0};
        fill(&c, &x, 1 + round * 20, 64);
        expect_counts(&c, &x, 64);
        relay_token_counts_clear(&c);
        assert_int_equal(c.n_items, 0);
        for (uint32_t i = 0; i < 1U << c.index_bits; i++)
            assert_int_equal(c.index[i], 0);
    }
    relay_token_counts_fini(&c);
}

static void holds_as_many_ids_as_it_was_made_for(void **state) {
    for (uint32_t max = 1; max <= 40; max++) {
        relay_token_counts c;
        relay_token_counts_init(&c, max);
        for (uint32_t i = 0; i < max; i++)
            relay_token_counts_add_output(&c, i * 1024);
        for (uint32_t i = 0; i < max; i++)
            relay_token_counts_add_output(&c, i * 1024);
        assert_int_equal(c.n_items, max);
        for (uint32_t i = 0; i < max; i++)
            assert_int_equal(c.items[i].in_output, 2);
        relay_token_counts_fini(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_was_added),
        cmocka_unit_test(is_as_new_after_clear),
        cmocka_unit_test(holds_as_many_ids_as_it_was_made_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
