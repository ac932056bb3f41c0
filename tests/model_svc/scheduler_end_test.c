// How a sequence ends, wherever it is, and how a resumed one goes on.
#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

// ---- Ends

static void cancel_ends_it_wherever_it_is(void **state) {
    enum { IN_QUEUE, IN_PROMPT, DECODING, PAUSED, PREEMPTED, N_PLACES };
    for (uint32_t place = 0; place < N_PLACES; place++) {
        world w;
        relay_scheduler_opts opts = world_roomy;
        opts.max_running = 2;
        if (place == PREEMPTED) opts.n_blocks[0] = 8;
        world_init(&w, &opts);
        world_request *other = world_add_new(&w, 0, 10, 100),
                      *r = world_request_create(place == IN_PROMPT ? 500 : 60, 100, 9);
        if (place == PAUSED) r->request.initial_credit = 2;
        world_request *filler = place == IN_QUEUE ? world_add_new(&w, 2, 10, 100) : NULL;
        world_add(&w, r, 1);
        const relay_sequence *q = relay_scheduler_sequence(w.scheduler, 1);
        world_steps(&w, place == IN_QUEUE ? 3 : place == IN_PROMPT ? 2 : 8);
        while (place == PREEMPTED && q->n_preemptions == 0)
            world_steps(&w, 1);
        assert_int_equal(q->state,
                         place == IN_QUEUE || place == PREEMPTED ? RELAY_SEQUENCE_WAITING : RELAY_SEQUENCE_RUNNING);
        if (place == IN_PROMPT) assert_true(q->n_computed > 0 && r->n_drawn == 0);
        if (place == PAUSED) assert_true(relay_sequence_is_paused(q));
        uint32_t drawn = r->n_drawn;
        relay_scheduler_cancel(w.scheduler, 1, w.now);
        world_expect_finish(r, RELAY_FINISH_CANCELLED);
        assert_int_equal(r->ended_in, world_state(&w).step + 1);
        relay_scheduler_cancel(w.scheduler, 1, w.now); // again: nothing
        if (filler != NULL) relay_scheduler_cancel(w.scheduler, 2, w.now);
        relay_scheduler_cancel(w.scheduler, 0, w.now);
        assert_int_equal(world_state(&w).used_blocks, 0);
        assert_false(world_step(&w));
        assert_int_equal(r->n_drawn, drawn);
        world_expect_own_ids(r);
        world_request_destroy(other);
        world_request_destroy(r);
        if (filler != NULL) world_request_destroy(filler);
        world_fini(&w);
    }
}

static void the_place_of_an_ended_one_serves_the_next_from_the_start(void **state) {
    world w;
    world_init(&w, &world_roomy);
    for (uint32_t i = 0; i < 5; i++) {
        world_request *r = world_request_create(40 + i, 10, i);
        r->request.sampling.repetition_penalty = 1.5f; // counts of the one before would show
        world_add(&w, r, 3);
        if (i == 2) {
            world_steps(&w, 3);
            relay_scheduler_cancel(w.scheduler, 3, w.now);
        } else {
            world_run(&w, 20);
        }
        world_expect_own_ids(r);
        world_request_destroy(r);
    }
    world_fini(&w);
}

static void end_ids_end_an_answer_and_min_new_tokens_puts_them_off(void **state) {
    // Which id the model would say fourth.
    world_request *probe = world_request_create(12, 10, 5);
    uint32_t ids[22];
    memcpy(ids, probe->ids, 12 * sizeof ids[0]);
    fake_continue(ids, 12, 10, 5);
    world_request_destroy(probe);
    uint32_t fourth = ids[15];
    for (uint32_t k = 0; k < 4; k++) {
        world w;
        world_init(&w, &world_roomy);
        world_request *r = world_request_create(12, 10, 5);
        if (k % 2 == 0) {
            r->request.eos_ids = &fourth;
            r->request.n_eos_ids = 1;
        } else {
            r->request.stop_ids = &fourth;
            r->request.n_stop_ids = 1;
        }
        if (k >= 2) r->request.min_new_tokens = 4;
        world_add(&w, r, 0);
        world_run(&w, 20);
        if (k < 2) {
            world_expect_finish(r, k == 0 ? RELAY_FINISH_EOS : RELAY_FINISH_STOP_TOKEN);
            assert_int_equal(r->last.stop_cause, fourth);
            assert_int_equal(r->n_drawn, 4);
        } else {
            memcpy(ids + 12, r->drawn, 3 * sizeof ids[0]);
            assert_int_equal(r->drawn[3], fake_next(ids, 15, 5, &fourth, 1));
            assert_int_not_equal(r->drawn[3], fourth);
        }
        world_request_destroy(r);
        world_fini(&w);
    }
}

static void an_end_id_on_the_last_allowed_token_is_the_reason(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r = world_request_create(12, 1, 5);
    uint32_t first = fake_next(r->ids, 12, 5, NULL, 0);
    r->request.eos_ids = &first;
    r->request.n_eos_ids = 1;
    world_add(&w, r, 0);
    world_run(&w, 1);
    world_expect_finish(r, RELAY_FINISH_EOS);
    assert_int_equal(r->n_drawn, 1); // it is told, too
    world_request_destroy(r);
    world_fini(&w);
}

static void a_deadline_fails_it_and_a_time_limit_ends_it_wherever_it_is(void **state) {
    enum { IN_QUEUE, DECODING, PAUSED, N_PLACES };
    for (uint32_t place = 0; place < N_PLACES; place++) {
        for (uint32_t limit = 0; limit < 5; limit++) {
            world w;
            relay_scheduler_opts opts = world_roomy;
            opts.max_running = 1;
            world_init(&w, &opts);
            world_request *other = world_request_create(5, 50, 1), *r = world_request_create(5, 50, 2);
            if (place == IN_QUEUE) world_add(&w, other, 0);
            if (place == PAUSED) r->request.initial_credit = 1;
            // 4 ms and 6 ms: steps take 1 ms here. Of two, the first counts; of equal ones the milder.
            if (limit != 1) r->request.deadline = w.now + (limit == 3 ? 6000 : 4000);
            if (limit != 0) r->request.time_limit_at = w.now + (limit == 2 ? 6000 : 4000);
            world_add(&w, r, 1);
            for (uint32_t i = 0; i < 10 && r->is_live; i++) {
                if (!world_step(&w))
                    assert_int_equal(relay_scheduler_next_expiry(w.scheduler),
                                     place == PAUSED && r->is_live ? 4000 : RELAY_NEVER_US);
            }
            assert_false(r->is_live);
            assert_int_equal(w.now, 4000);
            if (limit == 1 || limit >= 3) {
                world_expect_finish(r, RELAY_FINISH_TIME_LIMIT);
            } else {
                assert_int_equal(r->last.kind, RELAY_EVENT_FAILED);
                assert_int_equal(r->last.code, RELAY_DEADLINE_EXCEEDED);
                assert_non_null(strstr(r->last.message, place == IN_QUEUE ? "waiting" : "running"));
            }
            assert_int_equal(r->n_drawn, place == IN_QUEUE ? 0 : place == PAUSED ? 1 : 3);
            if (place == IN_QUEUE) relay_scheduler_cancel(w.scheduler, 0, w.now);
            assert_int_equal(world_state(&w).used_blocks, 0);
            world_request_destroy(other);
            world_request_destroy(r);
            world_fini(&w);
        }
    }
}

static void each_deadline_is_kept(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 1;
    world_init(&w, &opts);
    world_request *r[4];
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = world_request_create(5, 50, i);
        if (i > 0) r[i]->request.deadline = 1000 * (9 - 2 * i);
        world_add(&w, r[i], i);
    }
    for (uint32_t t = 1; t <= 8; t++) {
        world_steps(&w, 1);
        for (uint32_t i = 1; i < 4; i++)
            assert_int_equal(r[i]->is_live, t < 9 - 2 * i);
        assert_int_equal(relay_scheduler_next_expiry(w.scheduler), t < 3   ? 3000
                                                                   : t < 5 ? 5000
                                                                   : t < 7 ? 7000
                                                                           : RELAY_NEVER_US);
    }
    relay_scheduler_cancel(w.scheduler, 0, w.now);
    world_requests_destroy(r, 4);
    world_fini(&w);
}

static void logits_that_are_not_finite_fail_their_sequence_alone(void **state) {
    world w;
    world_init(&w, &world_roomy);
    world_request *r[3];
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = world_request_create(40, 10, i);
        if (i == 1) r[i]->ids[20] = FAKE_POISON;
        world_add(&w, r[i], i);
    }
    world_run(&w, 20);
    assert_int_equal(r[1]->last.kind, RELAY_EVENT_FAILED);
    assert_int_equal(r[1]->last.code, RELAY_INTERNAL);
    assert_non_null(strstr(r[1]->last.message, "position 40"));
    assert_int_equal(r[1]->n_drawn, 0);
    for (uint32_t i = 0; i < 3; i += 2) {
        world_expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
        world_expect_own_ids(r[i]);
    }
    assert_int_equal(world_state(&w).used_blocks, 0);
    world_requests_destroy(r, 3);
    world_fini(&w);
}

// A vocabulary of 30, all of it in the prompt: nothing can be drawn that would not repeat.
static void where_every_id_is_masked_the_error_says_so(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.vocab_size = 30;
    world_init(&w, &opts);
    world_request *r = world_request_create(40, 10, 1);
    r->ids[20] = FAKE_POISON; // as if nothing were left of its logits
    r->request.no_repeat_ngram_size = 1;
    world_add(&w, r, 0);
    world_run(&w, 20);
    assert_int_equal(r->last.kind, RELAY_EVENT_FAILED);
    assert_int_equal(r->last.code, RELAY_FAILED_PRECONDITION);
    assert_string_equal(r->last.message, "after 0 tokens of output no id is left that may come next, because of "
                                         "sampling.no_repeat_ngram_size");
    world_request_destroy(r);
    world_fini(&w);
}

static void end_all_ends_all(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 2;
    world_init(&w, &opts);
    world_request *r[5];
    for (uint32_t i = 0; i < 5; i++)
        r[i] = world_add_new(&w, i, 30, 10);
    world_steps(&w, 3);
    relay_scheduler_end_all(w.scheduler, w.now);
    for (uint32_t i = 0; i < 5; i++) {
        world_expect_finish(r[i], RELAY_FINISH_DRAINED);
        assert_int_equal(r[i]->n_drawn > 0, i < 2);
    }
    assert_int_equal(world_state(&w).used_blocks, 0);
    assert_false(world_step(&w));
    world_requests_destroy(r, 5);
    world_fini(&w);
}

static void times_are_told_apart(void **state) {
    world w;
    relay_scheduler_opts opts = world_roomy;
    opts.max_running = 1;
    world_init(&w, &opts);
    world_request *r[2];
    for (uint32_t i = 0; i < 2; i++)
        r[i] = world_add_new(&w, i, 100, 3);
    world_run(&w, 20);
    // A step is a millisecond and events carry the time of its beginning: two of prompt, then two more tokens.
    assert_int_equal(r[0]->last.queue_us, 1000);
    assert_int_equal(r[0]->last.prefill_us, 1000);
    assert_int_equal(r[0]->last.decode_us, 2000);
    assert_int_equal(r[1]->last.queue_us, 5000);
    assert_int_equal(r[1]->last.prefill_us, 1000);
    assert_int_equal(r[1]->last.decode_us, 2000);
    assert_int_equal(world_state(&w).prefill_tokens, 200);
    assert_int_equal(world_state(&w).decode_tokens, 6);
    world_requests_destroy(r, 2);
    world_fini(&w);
}

// ---- Resuming

static void a_resumed_answer_goes_on_as_if_nothing_had_happened(void **state) {
    for (uint32_t n_resumed = 0; n_resumed < 10; n_resumed++) {
        world w;
        world_init(&w, &world_roomy);
        world_request *r = world_request_create(30 + n_resumed, 10, 1);
        fake_continue(r->ids, 30, n_resumed, 1);
        r->request.n_prompt = 30;
        r->request.sampling.repetition_penalty = 1.3f;
        world_add(&w, r, 0);
        world_run(&w, 20);
        world_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
        assert_int_equal(r->n_drawn, 10 - n_resumed);
        assert_int_equal(r->last.output_tokens, 10);
        world_expect_own_ids(r);
        world_request_destroy(r);
        world_fini(&w);
    }
}

static void a_resumed_answer_that_was_at_its_end_ends_at_once(void **state) {
    static const relay_finish reasons[] = {RELAY_FINISH_EOS, RELAY_FINISH_STOP_TOKEN, RELAY_FINISH_MAX_NEW_TOKENS,
                                           RELAY_FINISH_CONTEXT_FULL};
    for (uint32_t k = 0; k < 4; k++) {
        world w;
        relay_scheduler_opts opts = world_roomy;
        opts.max_context = 40;
        world_init(&w, &opts);
        world_request *r = world_request_create(k == 3 ? 40 : 36, 10, 1);
        r->request.n_prompt = 32;
        uint32_t last = r->ids[35];
        r->request.eos_ids = r->request.stop_ids = &last;
        r->request.n_eos_ids = k == 0;
        r->request.n_stop_ids = k == 1;
        if (k == 2) r->request.max_new_tokens = 4;
        world_add(&w, r, 0);
        world_expect_finish(r, reasons[k]);
        assert_false(r->is_started);
        assert_false(world_step(&w));
        world_request_destroy(r);
        world_fini(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_ends_it_wherever_it_is),
        cmocka_unit_test(the_place_of_an_ended_one_serves_the_next_from_the_start),
        cmocka_unit_test(end_ids_end_an_answer_and_min_new_tokens_puts_them_off),
        cmocka_unit_test(an_end_id_on_the_last_allowed_token_is_the_reason),
        cmocka_unit_test(a_deadline_fails_it_and_a_time_limit_ends_it_wherever_it_is),
        cmocka_unit_test(each_deadline_is_kept),
        cmocka_unit_test(logits_that_are_not_finite_fail_their_sequence_alone),
        cmocka_unit_test(where_every_id_is_masked_the_error_says_so),
        cmocka_unit_test(end_all_ends_all),
        cmocka_unit_test(times_are_told_apart),
        cmocka_unit_test(a_resumed_answer_goes_on_as_if_nothing_had_happened),
        cmocka_unit_test(a_resumed_answer_that_was_at_its_end_ends_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
