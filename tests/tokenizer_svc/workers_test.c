#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <semaphore.h>
#include <stdatomic.h>

#include "tokenizer_svc/workers.h"

static atomic_uint n_run;
static sem_t began, may_go;

static void count(void *arg) {
    atomic_fetch_add(&n_run, 1);
}

static void block(void *arg) {
    sem_post(&began);
    while (sem_wait(&may_go) != 0) {
    }
}

static void every_job_is_run_once_before_the_end(void **state) {
    atomic_store(&n_run, 0);
    relay_workers *w = relay_workers_create(3, 1000);
    for (int i = 0; i < 1000; i++) {
        relay_lane lane = i % 3 == 0 ? RELAY_LANE_LONG : RELAY_LANE_SHORT;
        assert_int_equal(relay_workers_submit(w, lane, count, NULL, NULL), RELAY_OK);
    }
    relay_workers_destroy(w);
    assert_int_equal(atomic_load(&n_run), 1000);
    relay_workers_destroy(NULL);
}

static void past_its_bound_a_job_is_refused_with_a_hint(void **state) {
    atomic_store(&n_run, 0);
    sem_init(&began, 0, 0);
    sem_init(&may_go, 0, 0);
    relay_workers *w = relay_workers_create(1, 2);
    assert_int_equal(relay_workers_submit(w, RELAY_LANE_LONG, block, NULL, NULL), RELAY_OK);
    while (sem_wait(&began) != 0) {
    }
    assert_int_equal(relay_workers_submit(w, RELAY_LANE_LONG, count, NULL, NULL), RELAY_OK);
    assert_int_equal(relay_workers_submit(w, RELAY_LANE_LONG, count, NULL, NULL), RELAY_OK);
    relay_err e;
    assert_int_equal(relay_workers_submit(w, RELAY_LANE_LONG, count, NULL, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_true(e.retry_after_ms != 0);
    sem_post(&may_go);
    relay_workers_destroy(w);
    assert_int_equal(atomic_load(&n_run), 2);
    sem_destroy(&began);
    sem_destroy(&may_go);
}

static void wait_for(sem_t *s) {
    while (sem_wait(s) != 0) {
    }
}

static void announce(void *arg) {
    sem_post(arg);
}

// Every thread that takes long jobs has one, and they go on until this test lets them.
static void long_jobs_hold_up_no_short_one(void **state) {
    enum { N = 2 };
    sem_t done;
    sem_init(&began, 0, 0);
    sem_init(&may_go, 0, 0);
    sem_init(&done, 0, 0);
    relay_workers *w = relay_workers_create(N, 100);
    for (int i = 0; i < 3 * N; i++)
        assert_int_equal(relay_workers_submit(w, RELAY_LANE_LONG, block, NULL, NULL), RELAY_OK);
    for (int i = 0; i < N; i++)
        wait_for(&began);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(relay_workers_submit(w, RELAY_LANE_SHORT, announce, &done, NULL), RELAY_OK);
        wait_for(&done);
    }
    // Nor is a short one refused because long ones wait.
    while (relay_workers_submit(w, RELAY_LANE_LONG, block, NULL, NULL) == RELAY_OK) {
    }
    assert_int_equal(relay_workers_submit(w, RELAY_LANE_SHORT, announce, &done, NULL), RELAY_OK);
    wait_for(&done);
    for (int i = 0; i < 200; i++)
        sem_post(&may_go);
    relay_workers_destroy(w);
    sem_destroy(&done);
    sem_destroy(&began);
    sem_destroy(&may_go);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_is_run_once_before_the_end),
        cmocka_unit_test(past_its_bound_a_job_is_refused_with_a_hint),
        cmocka_unit_test(long_jobs_hold_up_no_short_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
