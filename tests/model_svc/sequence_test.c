#include "model_svc/sequence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_TOKENS = 64, EOS = 2, OTHER_EOS = 9, STOP = 7 };

static const uint32_t eos_ids[] = {EOS, OTHER_EOS};
static const uint32_t stop_ids[] = {5, STOP, 100};
static const uint32_t ids[] = {10, 11, 10, 12, 13, 10};

// Three ids of prompt; `n_resumed` more that are output already.
static relay_request request_of(uint32_t n_resumed) {
    return (relay_request){
        .token_ids = ids,
        .n_prompt = 3,
        .n_tokens = 3 + n_resumed,
        .sampling = {.top_p = 1, .repetition_penalty = 1, .seed = 77},
        .max_new_tokens = 10,
        .eos_ids = eos_ids,
        .n_eos_ids = 2,
        .stop_ids = stop_ids,
        .n_stop_ids = 3,
        .initial_credit = RELAY_UNLIMITED_CREDIT,
    };
}

typedef struct fixture {
    relay_request request;
    relay_sequence sequence;
    relay_lane lane;
} fixture;

static void begin(fixture *f, relay_request r) {
    *f = (fixture){.request = r};
    relay_lane_init(&f->lane, 3, MAX_TOKENS, MAX_TOKENS, 2);
    relay_sequence_begin(&f->sequence, &f->request, 0, 1, 0);
    relay_sequence_enter(&f->sequence, &f->lane, 1000);
}

static void end(fixture *f) {
    relay_lane_fini(&f->lane);
}

static relay_finish append(fixture *f, uint32_t id, uint32_t *stop_token_id) {
    relay_sequence_append(&f->sequence, id, 2000);
    return relay_sequence_check_end(&f->sequence, MAX_TOKENS, stop_token_id);
}

static void its_ids_are_the_requests_and_then_those_drawn(void **state) {
    fixture f;
    uint32_t stop;
    begin(&f, request_of(2));
    assert_int_equal(append(&f, 40, &stop), RELAY_FINISH_NONE);
    assert_int_equal(append(&f, 41, &stop), RELAY_FINISH_NONE);
    static const uint32_t all[] = {10, 11, 10, 12, 13, 40, 41};
    assert_int_equal(f.sequence.n_tokens, 7);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(relay_sequence_token(&f.sequence, i), all[i]);
    assert_int_equal(relay_sequence_output(&f.sequence), 4);
    assert_int_equal(relay_sequence_drawn(&f.sequence), 2);
    assert_int_equal(relay_sequence_pending(&f.sequence), 7);
    end(&f);
}

static void ends_with_an_id_that_ends_an_answer(void **state) {
    fixture f;
    uint32_t stop;
    begin(&f, request_of(0));
    assert_int_equal(append(&f, 40, &stop), RELAY_FINISH_NONE);
    assert_int_equal(append(&f, OTHER_EOS, &stop), RELAY_FINISH_EOS);
    assert_int_equal(stop, OTHER_EOS);
    end(&f);
    begin(&f, request_of(0));
    assert_int_equal(append(&f, STOP, &stop), RELAY_FINISH_STOP_TOKEN);
    assert_int_equal(stop, STOP);
    end(&f);
}

static void every_stop_id_is_found_and_no_other(void **state) {
    uint32_t many[RELAY_MAX_STOP_TOKEN_IDS];
    for (uint32_t n = 0; n <= RELAY_MAX_STOP_TOKEN_IDS; n += n < 4 ? 1 : 63) {
        for (uint32_t i = 0; i < n; i++)
            many[i] = 1000 + 2 * i;
        for (uint32_t id = 998; id < 1002 + 2 * n; id++) {
            fixture f;
            uint32_t stop;
            relay_request r = request_of(0);
            r.stop_ids = many;
            r.n_stop_ids = n;
            begin(&f, r);
            bool is_stop = id >= 1000 && id < 1000 + 2 * n && id % 2 == 0;
            assert_int_equal(append(&f, id, &stop), is_stop ? RELAY_FINISH_STOP_TOKEN : RELAY_FINISH_NONE);
            end(&f);
        }
    }
}

// In the order: end of answer, stop id, max_new_tokens, context.
static void the_first_reason_that_holds_is_told(void **state) {
    static const uint32_t both[] = {EOS};
    fixture f;
    uint32_t stop;
    relay_request r = request_of(0);
    r.max_new_tokens = 1;
    r.stop_ids = both;
    r.n_stop_ids = 1;
    begin(&f, r);
    assert_int_equal(append(&f, EOS, &stop), RELAY_FINISH_EOS);
    end(&f);
    r.n_eos_ids = 0; // ignore_eos
    begin(&f, r);
    assert_int_equal(append(&f, EOS, &stop), RELAY_FINISH_STOP_TOKEN);
    end(&f);
    begin(&f, r);
    relay_sequence_append(&f.sequence, 40, 2000);
    assert_int_equal(relay_sequence_check_end(&f.sequence, f.sequence.n_tokens, &stop), RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(stop, 0);
    f.request.max_new_tokens = 2;
    assert_int_equal(relay_sequence_check_end(&f.sequence, f.sequence.n_tokens, &stop), RELAY_FINISH_CONTEXT_FULL);
    assert_int_equal(relay_sequence_check_end(&f.sequence, f.sequence.n_tokens + 1, &stop), RELAY_FINISH_NONE);
    end(&f);
}

static void nothing_drawn_is_no_end(void **state) {
    static const uint32_t last_of_prompt[] = {10};
    fixture f;
    uint32_t stop;
    relay_request r = request_of(0);
    r.eos_ids = last_of_prompt; // the prompt's own last id ends nothing
    r.n_eos_ids = 1;
    begin(&f, r);
    assert_int_equal(relay_sequence_check_end(&f.sequence, MAX_TOKENS, &stop), RELAY_FINISH_NONE);
    end(&f);
}

static void a_resumed_answer_counts_towards_its_limits(void **state) {
    fixture f;
    uint32_t stop;
    relay_request r = request_of(3);
    r.max_new_tokens = 4;
    begin(&f, r);
    assert_int_equal(relay_sequence_check_end(&f.sequence, MAX_TOKENS, &stop), RELAY_FINISH_NONE);
    assert_int_equal(append(&f, 40, &stop), RELAY_FINISH_MAX_NEW_TOKENS);
    end(&f);
}

static relay_step *step_of_one_sample(relay_sequence *s) {
    relay_step *step = relay_step_create(&(relay_step_limits){.max_rows = 8,
                                                              .max_sequences = 1,
                                                              .max_samples = 1,
                                                              .max_block_ids = 1,
                                                              .n_groups = 1,
                                                              .max_count_updates = MAX_TOKENS,
                                                              .max_biases = MAX_TOKENS,
                                                              .max_masked = MAX_TOKENS,
                                                              .max_allowed = 2,
                                                              .max_wanted = 3});
    relay_sequence_put_sample(s, step, 5);
    assert_int_equal(step->n_samples, 1);
    assert_int_equal(relay_step_sample_rows(step)[0], 5);
    return step;
}

static void ids_that_end_an_answer_are_masked_until_min_new_tokens(void **state) {
    fixture f;
    uint32_t stop;
    relay_request r = request_of(1);
    r.min_new_tokens = 3;
    begin(&f, r);
    for (uint32_t n_output = 1; n_output < 5; n_output++) {
        relay_step *step = step_of_one_sample(&f.sequence);
        static const uint32_t masked[] = {EOS, OTHER_EOS, 5, STOP, 100};
        assert_int_equal(relay_step_sample_params(step)->n_masked, n_output < 3 ? 5 : 0);
        assert_int_equal(step->n_masked, n_output < 3 ? 5 : 0);
        if (n_output < 3) assert_memory_equal(relay_step_masked(step), masked, sizeof masked);
        relay_step_destroy(step);
        append(&f, 40, &stop);
    }
    end(&f);
}

static void a_draw_is_known_by_its_position(void **state) {
    fixture f;
    uint32_t stop;
    begin(&f, request_of(2));
    for (uint32_t position = 5; position < 9; position++) {
        relay_step *step = step_of_one_sample(&f.sequence);
        assert_int_equal(relay_step_sample_params(step)->position, position);
        assert_int_equal(relay_step_sample_params(step)->seed, 77);
        assert_int_equal(relay_step_sample_params(step)->n_counts, 0); // no penalty, no counts
        relay_step_destroy(step);
        append(&f, 40 + position, &stop);
    }
    end(&f);
}

// The counts as the model has them: those that steps carried, at their places.
static void expect_counts(fixture *f, relay_token_count *resident, const relay_token_count *counts, uint32_t n) {
    relay_step *step = step_of_one_sample(&f->sequence);
    const uint64_t begin = 3 * MAX_TOKENS; // of this lane
    assert_int_equal(relay_step_sample_params(step)->n_counts, n);
    assert_int_equal(relay_step_sample_params(step)->counts_begin, begin);
    for (uint32_t i = 0; i < step->n_count_updates; i++) {
        const relay_count_update *u = &relay_step_count_updates(step)[i];
        assert_true(u->at >= begin && u->at < begin + MAX_TOKENS);
        resident[u->at - begin] = u->count;
    }
    assert_memory_equal(resident, counts, n * sizeof counts[0]);
    relay_step_destroy(step);
}

static void penalties_see_prompt_and_output_with_what_was_resumed(void **state) {
    fixture f;
    uint32_t stop;
    relay_request r = request_of(3);
    r.sampling.repetition_penalty = 1.1f;
    relay_token_count resident[MAX_TOKENS];
    begin(&f, r);
    expect_counts(&f, resident, (const relay_token_count[]){{10, 2, 1}, {11, 1, 0}, {12, 0, 1}, {13, 0, 1}}, 4);
    append(&f, 11, &stop);
    append(&f, 40, &stop);
    expect_counts(&f, resident, (const relay_token_count[]){{10, 2, 1}, {11, 1, 1}, {12, 0, 1}, {13, 0, 1}, {40, 0, 1}},
                  5);
    end(&f);
}

static void without_a_repetition_penalty_the_prompt_is_not_counted(void **state) {
    fixture f;
    relay_request r = request_of(3);
    r.sampling.frequency_penalty = 0.5f;
    relay_token_count resident[MAX_TOKENS];
    begin(&f, r);
    expect_counts(&f, resident, (const relay_token_count[]){{12, 0, 1}, {13, 0, 1}, {10, 0, 1}}, 3);
    end(&f);
    r.sampling.frequency_penalty = 0;
    r.sampling.presence_penalty = -1;
    begin(&f, r);
    expect_counts(&f, resident, (const relay_token_count[]){{12, 0, 1}, {13, 0, 1}, {10, 0, 1}}, 3);
    end(&f);
}

static void a_step_carries_the_counts_that_changed_and_no_others(void **state) {
    fixture f;
    relay_request r = request_of(3);
    r.sampling.repetition_penalty = 1.1f;
    begin(&f, r);
    relay_step *step = step_of_one_sample(&f.sequence);
    assert_int_equal(step->n_count_updates, 4);
    relay_step_destroy(step);
    step = step_of_one_sample(&f.sequence);
    assert_int_equal(step->n_count_updates, 0);
    relay_step_destroy(step);
    relay_sequence_append(&f.sequence, 13, 2000);
    relay_sequence_append(&f.sequence, 13, 2000);
    step = step_of_one_sample(&f.sequence);
    assert_int_equal(step->n_count_updates, 1);
    assert_int_equal(relay_step_count_updates(step)->count.in_output, 3);
    relay_step_destroy(step);
    end(&f);
}

static void penalties_forget_what_has_left_their_window(void **state) {
    fixture f;
    relay_request r = request_of(3); // 10 11 10 | 12 13 10
    r.sampling.repetition_penalty = 1.1f;
    r.penalty_window = 4;
    relay_token_count resident[MAX_TOKENS];
    begin(&f, r);
    expect_counts(&f, resident, (const relay_token_count[]){{10, 1, 1}, {11, 0, 0}, {12, 0, 1}, {13, 0, 1}}, 4);
    relay_sequence_append(&f.sequence, 40, 2000);
    expect_counts(&f, resident, (const relay_token_count[]){{10, 0, 1}, {11, 0, 0}, {12, 0, 1}, {13, 0, 1}, {40, 0, 1}},
                  5);
    relay_sequence_append(&f.sequence, 41, 2000);
    expect_counts(&f, resident,
                  (const relay_token_count[]){{10, 0, 1}, {11, 0, 0}, {12, 0, 0}, {13, 0, 1}, {40, 0, 1}, {41, 0, 1}},
                  6);
    end(&f);
    // An answer that is resumed counts the same.
    static const uint32_t longer[] = {10, 11, 10, 12, 13, 10, 40, 41};
    r.token_ids = longer;
    r.n_tokens = 8;
    begin(&f, r);
    relay_step *step = step_of_one_sample(&f.sequence);
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->n_count_updates; i++)
        n += relay_step_count_updates(step)[i].count.in_output + relay_step_count_updates(step)[i].count.in_prompt;
    assert_int_equal(n, 4);
    relay_step_destroy(step);
    end(&f);
}

static void a_stop_sequence_ends_the_answer_that_ends_with_it(void **state) {
    static const uint32_t first[] = {40, 41, 42}, second[] = {41, 43}, third[] = {10, 44};
    const relay_stop_sequence sequences[] = {{first, 3}, {second, 2}, {third, 2}};
    fixture f;
    uint32_t cause;
    relay_request r = request_of(0); // its prompt ends with 10
    r.stop_sequences = sequences;
    r.n_stop_sequences = 3;
    begin(&f, r);
    assert_int_equal(append(&f, 44, &cause), RELAY_FINISH_NONE); // 10 is the prompt's
    assert_int_equal(append(&f, 40, &cause), RELAY_FINISH_NONE);
    assert_int_equal(append(&f, 41, &cause), RELAY_FINISH_NONE);
    assert_int_equal(append(&f, 42, &cause), RELAY_FINISH_STOP_SEQUENCE);
    assert_int_equal(cause, 0);
    end(&f);
    begin(&f, r);
    append(&f, 41, &cause);
    assert_int_equal(append(&f, 43, &cause), RELAY_FINISH_STOP_SEQUENCE);
    assert_int_equal(cause, 1);
    end(&f);
    r.min_new_tokens = 2;
    begin(&f, r);
    append(&f, 41, &cause);
    assert_int_equal(append(&f, 43, &cause), RELAY_FINISH_NONE);
    append(&f, 41, &cause);
    assert_int_equal(append(&f, 43, &cause), RELAY_FINISH_STOP_SEQUENCE);
    end(&f);
}

static void what_would_repeat_is_masked_or_costs(void **state) {
    fixture f;
    relay_request r = request_of(3); // 10 11 10 | 12 13 10
    r.no_repeat_ngram_size = 2;
    r.dry = (relay_dry){.multiplier = 0.5f, .base = 2, .allowed_length = 1};
    static const relay_token_bias given = {11, 3};
    r.logit_bias = &given;
    r.n_logit_bias = 1;
    begin(&f, r);
    relay_step *step = step_of_one_sample(&f.sequence);
    const relay_sample_params *p = relay_step_sample_params(step);
    assert_int_equal(p->n_masked, 2);
    assert_int_equal(relay_step_masked(step)[0] + relay_step_masked(step)[1], 11 + 12);
    assert_int_equal(p->n_bias, 3); // DRY's first, then what was given
    assert_int_equal(relay_step_biases(step)[2].token_id, 11);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(relay_step_biases(step)[i].bias == -0.5f);
    relay_step_destroy(step);
    end(&f);
}

static void the_requests_own_lists_go_with_every_sample(void **state) {
    static const uint32_t allowed[] = {5, 6}, wanted[] = {7, 8, 9};
    fixture f;
    relay_request r = request_of(1);
    r.allowed = allowed;
    r.n_allowed_words = 2;
    r.wanted_ids = wanted;
    r.n_wanted_ids = 3;
    r.sampling.mirostat_mu = 4;
    begin(&f, r);
    relay_step *step = step_of_one_sample(&f.sequence);
    const relay_sample_params *p = relay_step_sample_params(step);
    assert_int_equal(p->n_allowed_words, 2);
    assert_memory_equal(relay_step_allowed(step), allowed, sizeof allowed);
    assert_int_equal(p->n_wanted, 3);
    assert_memory_equal(relay_step_wanted(step), wanted, sizeof wanted);
    assert_true(p->mirostat_mu == 4);
    relay_step_destroy(step);
    end(&f);
}

static void a_lane_comes_back_clean(void **state) {
    fixture f;
    relay_request r = request_of(3);
    r.sampling.repetition_penalty = 2;
    r.no_repeat_ngram_size = 2;
    begin(&f, r);
    assert_ptr_equal(relay_sequence_leave(&f.sequence), &f.lane);
    assert_int_equal(f.lane.counts.n_items, 0);
    assert_int_equal(f.lane.repeats.n, 0);
    assert_null(relay_sequence_leave(&f.sequence));
    end(&f);
}

static void is_paused_when_it_has_drawn_its_credit(void **state) {
    fixture f;
    uint32_t stop;
    relay_request r = request_of(2); // resumed ids were sent before: they cost nothing
    r.initial_credit = 1;
    begin(&f, r);
    assert_false(relay_sequence_is_paused(&f.sequence));
    append(&f, 40, &stop);
    assert_true(relay_sequence_is_paused(&f.sequence));
    relay_sequence_add_credit(&f.sequence, 1);
    assert_false(relay_sequence_is_paused(&f.sequence));
    append(&f, 41, &stop);
    assert_true(relay_sequence_is_paused(&f.sequence));
    relay_sequence_add_credit(&f.sequence, UINT32_MAX);
    assert_int_equal(f.sequence.credit, RELAY_UNLIMITED_CREDIT);
    relay_sequence_add_credit(&f.sequence, 5);
    assert_int_equal(f.sequence.credit, RELAY_UNLIMITED_CREDIT);
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_ids_are_the_requests_and_then_those_drawn),
        cmocka_unit_test(ends_with_an_id_that_ends_an_answer),
        cmocka_unit_test(every_stop_id_is_found_and_no_other),
        cmocka_unit_test(the_first_reason_that_holds_is_told),
        cmocka_unit_test(nothing_drawn_is_no_end),
        cmocka_unit_test(a_resumed_answer_counts_towards_its_limits),
        cmocka_unit_test(ids_that_end_an_answer_are_masked_until_min_new_tokens),
        cmocka_unit_test(a_draw_is_known_by_its_position),
        cmocka_unit_test(penalties_see_prompt_and_output_with_what_was_resumed),
        cmocka_unit_test(without_a_repetition_penalty_the_prompt_is_not_counted),
        cmocka_unit_test(a_step_carries_the_counts_that_changed_and_no_others),
        cmocka_unit_test(penalties_forget_what_has_left_their_window),
        cmocka_unit_test(a_stop_sequence_ends_the_answer_that_ends_with_it),
        cmocka_unit_test(what_would_repeat_is_masked_or_costs),
        cmocka_unit_test(the_requests_own_lists_go_with_every_sample),
        cmocka_unit_test(a_lane_comes_back_clean),
        cmocka_unit_test(is_paused_when_it_has_drawn_its_credit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
