#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "common/queue.h"

typedef struct record {
    uint32_t producer;
    uint32_t number;
    uint64_t payload[3]; // made of the two: a torn record does not fit
} record;

static record make_record(uint32_t producer, uint32_t number) {
    uint64_t x = (uint64_t)producer << 32 | number;
    return (record){.producer = producer, .number = number, .payload = {x * 3, x * 5, ~x}};
}

static void assert_whole(const record *r) {
    record expected = make_record(r->producer, r->number);
    assert_memory_equal(r, &expected, sizeof expected);
}

// A time by which a healthy test has long ended.
static relay_mono_us patience(void) {
    return relay_mono_now() + 60 * 1000 * 1000;
}

static void sleep_ms(long ms) {
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static void mpsc_gives_back_in_order_and_refuses_when_full(void **state) {
    relay_mpsc *q = relay_mpsc_create(4, sizeof(record));
    record out;
    assert_false(relay_mpsc_pop(q, &out));
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            record r = make_record(round, i);
            assert_int_equal(relay_mpsc_count(q), i);
            assert_true(relay_mpsc_push(q, &r));
        }
        record one_more = make_record(round, 4);
        assert_false(relay_mpsc_push(q, &one_more));
        assert_int_equal(relay_mpsc_count(q), 4);
        for (uint32_t i = 0; i < 4; i++) {
            assert_true(relay_mpsc_pop(q, &out));
            assert_whole(&out);
            assert_int_equal(out.producer, round);
            assert_int_equal(out.number, i);
        }
        assert_false(relay_mpsc_pop(q, &out));
    }
    relay_mpsc_destroy(q);
    relay_mpsc_destroy(NULL);
}

static void mpsc_takes_one_in_the_place_of_one_taken_out(void **state) {
    relay_mpsc *q = relay_mpsc_create(2, sizeof(record));
    record r = make_record(0, 0), out;
    assert_true(relay_mpsc_push(q, &r));
    assert_true(relay_mpsc_push(q, &r));
    for (int i = 0; i < 100; i++) {
        assert_false(relay_mpsc_push(q, &r));
        assert_true(relay_mpsc_pop(q, &out));
        assert_true(relay_mpsc_push(q, &r));
    }
    relay_mpsc_destroy(q);
}

static void mpsc_wait_ends_by_time_record_or_wake(void **state) {
    relay_mpsc *q = relay_mpsc_create(2, sizeof(record));
    record r = make_record(0, 0), out;
    relay_mono_us start = relay_mono_now();
    relay_mpsc_wait(q, start + 20000);
    assert_true(relay_mono_now() >= start + 20000); // nothing has notified: it must not be early
    relay_mpsc_wait(q, 0);                          // long past

    assert_true(relay_mpsc_push(q, &r));
    relay_mpsc_wait(q, RELAY_NEVER_US);
    assert_true(relay_mpsc_pop(q, &out));

    relay_mpsc_wait(q, relay_mono_now() + 1000); // takes away what the push has left
    relay_mpsc_wake(q);
    relay_mpsc_wait(q, RELAY_NEVER_US);
    start = relay_mono_now();
    relay_mpsc_wait(q, start + 20000); // one wake ends one wait
    assert_true(relay_mono_now() >= start + 20000);
    relay_mpsc_destroy(q);
}

static void *wake_later(void *arg) {
    sleep_ms(20);
    relay_mpsc_wake(arg);
    return NULL;
}

static void mpsc_wake_ends_a_wait_that_runs(void **state) {
    relay_mpsc *q = relay_mpsc_create(2, sizeof(record));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wake_later, q), 0);
    relay_mpsc_wait(q, RELAY_NEVER_US);
    pthread_join(thread, NULL);
    relay_mpsc_destroy(q);
}

enum { PRODUCERS = 4, RECORDS = 20000 };

typedef struct producer {
    relay_mpsc *q;
    uint32_t index;
} producer;

static void *produce(void *arg) {
    producer *p = arg;
    for (uint32_t i = 0; i < RECORDS; i++) {
        record r = make_record(p->index, i);
        while (!relay_mpsc_push(p->q, &r))
            sched_yield();
        if (i % 4096 == 0) sleep_ms(1); // lets the consumer fall asleep now and then
    }
    return NULL;
}

static void mpsc_loses_and_reorders_nothing_between_threads(void **state) {
    relay_mpsc *q = relay_mpsc_create(64, sizeof(record));
    producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (producer){.q = q, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    uint32_t next[PRODUCERS] = {0}, total = 0;
    relay_mono_us limit = patience();
    while (total < PRODUCERS * RECORDS) {
        record r;
        if (!relay_mpsc_pop(q, &r)) {
            relay_mpsc_wait(q, limit);
            assert_true(relay_mono_now() < limit);
            continue;
        }
        assert_true(relay_mpsc_count(q) <= 64);
        assert_whole(&r);
        assert_true(r.producer < PRODUCERS);
        assert_int_equal(r.number, next[r.producer]);
        next[r.producer]++;
        total++;
    }
    for (uint32_t i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(relay_mpsc_count(q), 0);
    relay_mpsc_destroy(q);
}

static void spsc_shows_records_only_after_commit(void **state) {
    relay_spsc *q = relay_spsc_create(4, sizeof(record));
    uint32_t n;
    assert_int_equal(relay_spsc_free(q), 4);
    record *slot = relay_spsc_reserve(q);
    *slot = make_record(1, 2);
    slot = relay_spsc_reserve(q);
    *slot = make_record(1, 3);
    assert_int_equal(relay_spsc_free(q), 2);
    assert_null(relay_spsc_peek(q, &n));
    assert_int_equal(n, 0);
    relay_spsc_commit(q);
    const record *seen = relay_spsc_peek(q, &n);
    assert_int_equal(n, 2);
    assert_whole(&seen[0]);
    assert_int_equal(seen[0].number, 2);
    assert_int_equal(seen[1].number, 3);
    relay_spsc_release(q, 1);
    seen = relay_spsc_peek(q, &n);
    assert_int_equal(n, 1);
    assert_int_equal(seen[0].number, 3);
    relay_spsc_destroy(q);
    relay_spsc_destroy(NULL);
}

static void spsc_is_full_at_its_capacity_and_wraps_in_two_parts(void **state) {
    relay_spsc *q = relay_spsc_create(4, sizeof(record));
    uint32_t n;
    for (uint32_t i = 0; i < 4; i++)
        *(record *)relay_spsc_reserve(q) = make_record(0, i);
    assert_null(relay_spsc_reserve(q));
    assert_int_equal(relay_spsc_free(q), 0);
    relay_spsc_commit(q);
    assert_null(relay_spsc_reserve(q));
    assert_non_null(relay_spsc_peek(q, &n));
    assert_int_equal(n, 4);
    relay_spsc_release(q, 3);
    for (uint32_t i = 4; i < 7; i++)
        *(record *)relay_spsc_reserve(q) = make_record(0, i);
    assert_null(relay_spsc_reserve(q));
    relay_spsc_commit(q);
    uint32_t next = 3;
    for (const record *r; (r = relay_spsc_peek(q, &n)) != NULL; relay_spsc_release(q, n))
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(r[i].number, next++);
    assert_int_equal(next, 7);
    relay_spsc_destroy(q);
}

static void spsc_wait_ends_by_time_record_or_wake(void **state) {
    relay_spsc *q = relay_spsc_create(2, sizeof(record));
    relay_mono_us start = relay_mono_now();
    relay_spsc_wait(q, start + 20000);
    assert_true(relay_mono_now() >= start + 20000);
    relay_spsc_wake(q);
    relay_spsc_wait(q, RELAY_NEVER_US);
    *(record *)relay_spsc_reserve(q) = make_record(0, 0);
    relay_spsc_commit(q);
    relay_spsc_wait(q, RELAY_NEVER_US);
    uint32_t n;
    assert_non_null(relay_spsc_peek(q, &n));
    relay_spsc_destroy(q);
}

static void *produce_steps(void *arg) {
    relay_spsc *q = arg;
    uint32_t number = 0;
    for (uint32_t step = 1; number < RECORDS; step++) {
        uint32_t n = step % 13;
        while (relay_spsc_free(q) < n)
            sched_yield();
        for (uint32_t i = 0; i < n; i++)
            *(record *)relay_spsc_reserve(q) = make_record(step, number++);
        relay_spsc_commit(q);
        if (step % 512 == 0) sleep_ms(1);
    }
    *(record *)relay_spsc_reserve(q) = make_record(UINT32_MAX, number);
    relay_spsc_commit(q);
    return NULL;
}

static void spsc_loses_and_reorders_nothing_between_threads(void **state) {
    relay_spsc *q = relay_spsc_create(32, sizeof(record));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce_steps, q), 0);
    uint32_t next = 0;
    relay_mono_us limit = patience();
    for (bool is_over = false; !is_over;) {
        uint32_t n;
        const record *r = relay_spsc_peek(q, &n);
        if (r == NULL) {
            relay_spsc_wait(q, limit);
            assert_true(relay_mono_now() < limit);
            continue;
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_whole(&r[i]);
            assert_int_equal(r[i].number, next++);
            is_over = r[i].producer == UINT32_MAX;
        }
        relay_spsc_release(q, n);
    }
    assert_true(next > RECORDS);
    pthread_join(thread, NULL);
    relay_spsc_destroy(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mpsc_gives_back_in_order_and_refuses_when_full),
        cmocka_unit_test(mpsc_takes_one_in_the_place_of_one_taken_out),
        cmocka_unit_test(mpsc_wait_ends_by_time_record_or_wake),
        cmocka_unit_test(mpsc_wake_ends_a_wait_that_runs),
        cmocka_unit_test(mpsc_loses_and_reorders_nothing_between_threads),
        cmocka_unit_test(spsc_shows_records_only_after_commit),
        cmocka_unit_test(spsc_is_full_at_its_capacity_and_wraps_in_two_parts),
        cmocka_unit_test(spsc_wait_ends_by_time_record_or_wake),
        cmocka_unit_test(spsc_loses_and_reorders_nothing_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
