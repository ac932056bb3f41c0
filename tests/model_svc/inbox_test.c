#include "model_svc/inbox.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const relay_inbox_opts small = {.max_sequences = 6, .max_queued_requests = 4, .max_queued_tokens = 100};

static uint64_t submit(relay_inbox *b, relay_request *r) {
    relay_err e;
    uint64_t key;
    if (relay_inbox_submit(b, r, &key, &e) != RELAY_OK) fail_msg("%s", e.message);
    return key;
}

static relay_inbox_command take(relay_inbox *b) {
    relay_inbox_command c;
    assert_true(relay_inbox_take(b, &c));
    return c;
}

static void expect_empty(relay_inbox *b) {
    relay_inbox_command c;
    assert_false(relay_inbox_take(b, &c));
    assert_int_equal(relay_inbox_pending_since(b), RELAY_NEVER_US);
}

static void requests_come_out_as_they_went_in(void **state) {
    relay_inbox *b = relay_inbox_create(&small);
    relay_request r[3] = {
        {.n_tokens = 1, .n_sequences = 1}, {.n_tokens = 2, .n_sequences = 1}, {.n_tokens = 3, .n_sequences = 1}};
    bool seen[6] = {false};
    expect_empty(b);
    for (uint32_t i = 0; i < 3; i++)
        submit(b, &r[i]);
    assert_int_not_equal(relay_inbox_pending_since(b), RELAY_NEVER_US);
    for (uint32_t i = 0; i < 3; i++) {
        relay_inbox_command c = take(b);
        assert_ptr_equal(c.request, &r[i]);
        assert_int_equal(c.arrival, i);
        assert_false(c.is_cancelled);
        assert_int_equal(c.credit, 0);
        assert_in_range(c.id, 0, 5);
        assert_false(seen[c.id]);
        seen[c.id] = true;
    }
    expect_empty(b);
    relay_inbox_destroy(b);
}

static void what_is_asked_of_a_request_gathers(void **state) {
    relay_inbox *b = relay_inbox_create(&small);
    relay_request r = {.n_tokens = 1, .n_sequences = 1};
    uint64_t key = submit(b, &r);
    relay_inbox_add_credit(b, key, 5);
    relay_inbox_add_credit(b, key, 6);
    relay_inbox_command c = take(b);
    assert_ptr_equal(c.request, &r);
    assert_int_equal(c.credit, 11);
    expect_empty(b);
    relay_inbox_add_credit(b, key, UINT32_MAX);
    relay_inbox_add_credit(b, key, UINT32_MAX);
    relay_inbox_add_credit(b, key, 0);
    for (uint32_t i = 0; i < 1000; i++)
        relay_inbox_cancel(b, key);
    c = take(b);
    assert_null(c.request);
    assert_int_equal(c.credit, UINT32_MAX);
    assert_true(c.is_cancelled);
    expect_empty(b);
    relay_inbox_destroy(b);
}

static void a_key_is_void_when_its_request_has_ended(void **state) {
    relay_inbox *b =
        relay_inbox_create(&(relay_inbox_opts){.max_sequences = 1, .max_queued_requests = 1, .max_queued_tokens = 10});
    relay_request r[3] = {
        {.n_tokens = 1, .n_sequences = 1}, {.n_tokens = 1, .n_sequences = 1}, {.n_tokens = 1, .n_sequences = 1}};
    uint64_t key[3];
    for (uint32_t i = 0; i < 3; i++) {
        key[i] = submit(b, &r[i]);
        for (uint32_t j = 0; j < i; j++) {
            assert_true(key[i] != key[j]);
            relay_inbox_cancel(b, key[j]);
            relay_inbox_add_credit(b, key[j], 3);
        }
        relay_inbox_command c = take(b);
        assert_ptr_equal(c.request, &r[i]);
        assert_false(c.is_cancelled);
        assert_int_equal(c.credit, 0);
        relay_inbox_admit(b, c.id);
        // What came too late to be taken is not for the next request of the place, which is listed already.
        if (i == 1) relay_inbox_cancel(b, key[i]);
        if (i == 1) relay_inbox_add_credit(b, key[i], 7);
        relay_inbox_free(b, c.id);
        relay_inbox_cancel(b, key[i]);
        if (i != 1) expect_empty(b);
    }
    relay_inbox_destroy(b);
}

static void keys_that_were_never_given_are_ignored(void **state) {
    relay_inbox *b = relay_inbox_create(&small);
    static const uint64_t keys[] = {0,         1, 5, 6, UINT64_C(1) << 32, UINT64_C(2) << 32, UINT64_C(3) << 32 | 1,
                                    UINT64_MAX};
    for (uint32_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        relay_inbox_cancel(b, keys[i]);
        relay_inbox_add_credit(b, keys[i], 1);
    }
    expect_empty(b);
    relay_request r = {.n_tokens = 1, .n_sequences = 1};
    submit(b, &r);
    relay_inbox_command c = take(b);
    assert_false(c.is_cancelled);
    relay_inbox_destroy(b);
}

static void past_a_bound_it_refuses_with_a_hint(void **state) {
    relay_inbox *b = relay_inbox_create(&small);
    relay_request r[4] = {{.n_tokens = 10, .n_sequences = 1},
                          {.n_tokens = 10, .n_sequences = 1},
                          {.n_tokens = 10, .n_sequences = 1},
                          {.n_tokens = 10, .n_sequences = 1}};
    relay_request more = {.n_tokens = 1, .n_sequences = 1};
    uint64_t key = 77;
    relay_err e;
    for (uint32_t i = 0; i < 4; i++)
        submit(b, &r[i]);
    assert_int_equal(relay_inbox_submit(b, &more, &key, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_string_equal(e.message,
                        "the queue is full: with this request 5 requests would wait (max_queued_requests is 4)");
    assert_int_equal(e.retry_after_ms, 100);
    relay_inbox_set_retry_hint(b, 2500);
    assert_int_equal(relay_inbox_submit(b, &more, &key, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_int_equal(e.retry_after_ms, 2500);
    assert_int_equal(relay_inbox_submit(b, &more, &key, NULL), RELAY_RESOURCE_EXHAUSTED);
    assert_int_equal(key, 77);
    // Taken is still waiting; admitted is not, and admitted twice is once.
    relay_inbox_command c = take(b);
    assert_int_equal(relay_inbox_submit(b, &more, &key, &e), RELAY_RESOURCE_EXHAUSTED);
    relay_inbox_admit(b, c.id);
    relay_inbox_admit(b, c.id);
    more.n_tokens = 71;
    assert_int_equal(relay_inbox_submit(b, &more, &key, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_string_equal(e.message,
                        "the queue is full: with this request 101 tokens would wait (max_queued_tokens is 100)");
    more.n_tokens = 70;
    submit(b, &more);
    relay_inbox_destroy(b);
}

static void one_larger_than_the_queue_could_never_come_in(void **state) {
    relay_inbox *b = relay_inbox_create(&small);
    relay_request r = {.n_tokens = 101, .n_sequences = 1};
    uint64_t key;
    relay_err e;
    assert_int_equal(relay_inbox_submit(b, &r, &key, &e), RELAY_INVALID_ARGUMENT);
    assert_string_equal(e.message,
                        "prompt_token_ids has 101 ids; more than the whole queue takes (max_queued_tokens is 100)");
    r.n_tokens = 100;
    submit(b, &r);
    relay_inbox_destroy(b);
}

static void what_ends_before_it_is_admitted_no_longer_waits(void **state) {
    relay_inbox *b = relay_inbox_create(&small);
    relay_request r = {.n_tokens = 100, .n_sequences = 1};
    for (uint32_t i = 0; i < 50; i++) {
        submit(b, &r);
        relay_inbox_free(b, take(b).id);
    }
    expect_empty(b);
    relay_inbox_destroy(b);
}

static void closed_it_takes_nothing_new_and_gives_what_it_has(void **state) {
    relay_inbox *b = relay_inbox_create(&small);
    relay_request r[2] = {{.n_tokens = 1, .n_sequences = 1}, {.n_tokens = 1, .n_sequences = 1}};
    uint64_t key = submit(b, &r[0]);
    relay_err e;
    assert_false(relay_inbox_is_closed(b));
    relay_inbox_close(b);
    assert_true(relay_inbox_is_closed(b));
    assert_int_equal(relay_inbox_submit(b, &r[1], &key, &e), RELAY_UNAVAILABLE);
    relay_inbox_cancel(b, key);
    relay_inbox_command c = take(b);
    assert_ptr_equal(c.request, &r[0]);
    assert_true(c.is_cancelled);
    relay_inbox_destroy(b);
}

// ---- Threads

enum { N_THREADS = 8, ROUNDS = 2000 };

typedef struct crowd {
    relay_inbox *inbox;
    relay_request requests[N_THREADS][ROUNDS];
    _Atomic uint32_t n_done;
    uint32_t n_accepted[N_THREADS];
} crowd;

typedef struct member {
    crowd *crowd;
    uint32_t index;
    pthread_t thread;
} member;

static void *hand_in(void *arg) {
    member *m = arg;
    crowd *c = m->crowd;
    uint64_t old_key = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        relay_request *r = &c->requests[m->index][i];
        uint64_t key;
        if (relay_inbox_submit(c->inbox, r, &key, NULL) != RELAY_OK) continue;
        c->n_accepted[m->index]++;
        relay_inbox_add_credit(c->inbox, key, 1);
        relay_inbox_cancel(c->inbox, key);
        relay_inbox_cancel(c->inbox, old_key);
        old_key = key;
    }
    atomic_fetch_add(&c->n_done, 1);
    relay_inbox_wake(c->inbox);
    return NULL;
}

// Each request that was accepted is seen once as new and once as cancelled, whatever else goes on.
static void nothing_is_lost_between_threads(void **state) {
    crowd *c = calloc(1, sizeof *c);
    c->inbox = relay_inbox_create(
        &(relay_inbox_opts){.max_sequences = 20, .max_queued_requests = 16, .max_queued_tokens = 64});
    member members[N_THREADS];
    for (uint32_t i = 0; i < N_THREADS; i++) {
        for (uint32_t k = 0; k < ROUNDS; k++)
            c->requests[i][k].n_tokens = 1 + k % 8;
        members[i] = (member){.crowd = c, .index = i};
        assert_int_equal(pthread_create(&members[i].thread, NULL, hand_in, &members[i]), 0);
    }
    uint32_t n_new = 0, n_cancelled = 0;
    bool is_live[20] = {false};
    uint64_t last_arrival = 0;
    for (;;) {
        bool is_last = atomic_load(&c->n_done) == N_THREADS;
        relay_inbox_command m;
        while (relay_inbox_take(c->inbox, &m)) {
            if (m.request != NULL) {
                assert_false(is_live[m.id]);
                is_live[m.id] = true;
                n_new++;
                if (m.arrival > last_arrival) last_arrival = m.arrival;
            }
            if (!m.is_cancelled) continue;
            assert_true(is_live[m.id]);
            is_live[m.id] = false;
            n_cancelled++;
            relay_inbox_free(c->inbox, m.id);
        }
        if (is_last) break;
        relay_inbox_wait(c->inbox, RELAY_NEVER_US);
    }
    uint32_t n_accepted = 0;
    for (uint32_t i = 0; i < N_THREADS; i++) {
        pthread_join(members[i].thread, NULL);
        n_accepted += c->n_accepted[i];
    }
    assert_true(n_accepted > 0);
    assert_int_equal(n_new, n_accepted);
    assert_int_equal(n_cancelled, n_accepted);
    assert_int_equal(last_arrival, n_accepted - 1);
    // All room is back.
    relay_request whole = {.n_tokens = 64, .n_sequences = 1};
    submit(c->inbox, &whole);
    relay_inbox_destroy(c->inbox);
    free(c);
}

static void each_answer_counts_as_one_that_waits(void **state) {
    relay_inbox *b =
        relay_inbox_create(&(relay_inbox_opts){.max_sequences = 8, .max_queued_requests = 4, .max_queued_tokens = 100});
    relay_request three = {.n_tokens = 10, .n_sequences = 3}, two = {.n_tokens = 10, .n_sequences = 2};
    relay_request five = {.n_tokens = 10, .n_sequences = 5};
    uint64_t key;
    relay_err e;
    assert_int_equal(relay_inbox_submit(b, &five, &key, &e), RELAY_INVALID_ARGUMENT);
    assert_non_null(strstr(e.message, "num_sequences is 5"));
    assert_int_equal(relay_inbox_submit(b, &three, &key, &e), RELAY_OK);
    assert_int_equal(relay_inbox_submit(b, &two, &key, &e), RELAY_RESOURCE_EXHAUSTED);
    relay_inbox_command c;
    assert_true(relay_inbox_take(b, &c));
    relay_inbox_admit(b, c.id);
    assert_int_equal(relay_inbox_submit(b, &two, &key, &e), RELAY_OK);
    relay_inbox_free(b, c.id); // with two that were not admitted
    assert_int_equal(relay_inbox_submit(b, &two, &key, &e), RELAY_OK);
    assert_int_equal(relay_inbox_submit(b, &two, &key, &e), RELAY_RESOURCE_EXHAUSTED);
    relay_inbox_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_answer_counts_as_one_that_waits),
        cmocka_unit_test(requests_come_out_as_they_went_in),
        cmocka_unit_test(what_is_asked_of_a_request_gathers),
        cmocka_unit_test(a_key_is_void_when_its_request_has_ended),
        cmocka_unit_test(keys_that_were_never_given_are_ignored),
        cmocka_unit_test(past_a_bound_it_refuses_with_a_hint),
        cmocka_unit_test(one_larger_than_the_queue_could_never_come_in),
        cmocka_unit_test(what_ends_before_it_is_admitted_no_longer_waits),
        cmocka_unit_test(closed_it_takes_nothing_new_and_gives_what_it_has),
        cmocka_unit_test(nothing_is_lost_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
