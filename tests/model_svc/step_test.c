#include "model_svc/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const relay_step_limits limits = {
    .max_rows = 7,
    .max_sequences = 3,
    .max_samples = 3,
    .max_block_ids = 11,
    .n_groups = 2,
    .max_count_updates = 5,
    .max_biases = 2,
    .max_masked = 1,
    .max_allowed = 3,
    .max_wanted = 4,
};

// Fills every array to its end with a byte of its own, then finds all of them whole: no two overlap, none passes the
// end.
static void arrays_do_not_overlap_and_stay_inside(void **state) {
    relay_step *s = relay_step_create(&limits);
    struct {
        void *begin;
        size_t bytes;
    } arrays[] = {
        {relay_step_token_ids(s), limits.max_rows * sizeof(uint32_t)},
        {relay_step_positions(s), limits.max_rows * sizeof(uint32_t)},
        {relay_step_row_sequence(s), limits.max_rows * sizeof(uint32_t)},
        {relay_step_table_begin(s, 0), limits.max_sequences * sizeof(uint32_t)},
        {relay_step_table_begin(s, 1), limits.max_sequences * sizeof(uint32_t)},
        {relay_step_block_ids(s, 0), limits.max_block_ids * sizeof(uint32_t)},
        {relay_step_block_ids(s, 1), limits.max_block_ids * sizeof(uint32_t)},
        {relay_step_sample_rows(s), limits.max_samples * sizeof(uint32_t)},
        {relay_step_sample_params(s), limits.max_samples * sizeof(relay_sample_params)},
        {relay_step_count_updates(s), limits.max_count_updates * sizeof(relay_count_update)},
        {relay_step_biases(s), limits.max_biases * sizeof(relay_token_bias)},
        {relay_step_masked(s), limits.max_masked * sizeof(uint32_t)},
        {relay_step_allowed(s), limits.max_allowed * sizeof(uint32_t)},
        {relay_step_wanted(s), limits.max_wanted * sizeof(uint32_t)},
    };
    enum { N = sizeof arrays / sizeof arrays[0] };
    relay_step before = *s;
    for (size_t i = 0; i < N; i++) {
        assert_true((char *)arrays[i].begin >= (char *)s + sizeof *s);
        assert_true((char *)arrays[i].begin + arrays[i].bytes <= (char *)s + s->size_bytes);
        memset(arrays[i].begin, (int)i + 1, arrays[i].bytes);
    }
    assert_memory_equal(&before, s, sizeof *s);
    for (size_t i = 0; i < N; i++) {
        for (size_t k = 0; k < arrays[i].bytes; k++) {
            assert_int_equal(((unsigned char *)arrays[i].begin)[k], i + 1);
        }
    }
    relay_step_destroy(s);
}

// No pointer inside: a copy anywhere else reads the same.
static void a_copy_of_its_bytes_is_the_same_step(void **state) {
    relay_step *s = relay_step_create(&limits);
    s->n_rows = 2;
    relay_step_token_ids(s)[1] = 42;
    relay_step_sample_params(s)[2].seed = 7;
    relay_step *copy = relay_step_create(&limits);
    assert_int_equal(copy->size_bytes, s->size_bytes);
    memcpy(copy, s, s->size_bytes);
    relay_step_destroy(s);
    assert_int_equal(relay_step_token_ids(copy)[1], 42);
    assert_int_equal(relay_step_sample_params(copy)[2].seed, 7);
    relay_step_destroy(copy);
}

static void clear_empties_it_and_keeps_its_limits(void **state) {
    relay_step *s = relay_step_create(&limits);
    s->n_rows = s->n_sequences = s->n_samples = s->n_count_updates = s->n_biases = s->n_masked = 1;
    s->n_allowed = s->n_wanted = 1;
    s->n_block_ids[0] = s->n_block_ids[1] = 2;
    uint64_t bytes = s->size_bytes;
    relay_step_clear(s);
    assert_int_equal(s->n_rows + s->n_sequences + s->n_samples + s->n_count_updates + s->n_masked, 0);
    assert_int_equal(s->n_biases + s->n_allowed + s->n_wanted, 0);
    assert_int_equal(s->n_block_ids[0] + s->n_block_ids[1], 0);
    assert_int_equal(s->size_bytes, bytes);
    assert_memory_equal(&s->limits, &limits, sizeof limits);
    relay_step_destroy(s);
}

static void destroying_none_is_fine(void **state) {
    relay_step_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_do_not_overlap_and_stay_inside),
        cmocka_unit_test(a_copy_of_its_bytes_is_the_same_step),
        cmocka_unit_test(clear_empties_it_and_keeps_its_limits),
        cmocka_unit_test(destroying_none_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
