#include "kernels/cpu/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_TASKS = 1000, MAX_THREADS = 4 };

typedef struct counting {
    uint8_t done[MAX_TASKS]; // written by the task's thread alone, read after the run
    _Atomic bool is_busy[MAX_THREADS];
    _Atomic uint32_t n_overlaps; // two tasks at once with one thread number
    _Atomic uint32_t n_by_workers;
    uint32_t sleep_us; // in every task, so that workers join in and owners wait
    uint32_t n_threads;
} counting;

static void sleep_us(uint32_t us) {
    struct timespec t = {0, us * 1000L};
    nanosleep(&t, NULL);
}

static void count_task(void *arg, uint32_t task, uint32_t thread) {
    counting *c = arg;
    if (thread >= c->n_threads || atomic_exchange(&c->is_busy[thread], true)) atomic_fetch_add(&c->n_overlaps, 1);
    if (thread != 0) atomic_fetch_add(&c->n_by_workers, 1);
    if (c->sleep_us > 0) sleep_us(c->sleep_us);
    c->done[task]++;
    atomic_store(&c->is_busy[thread], false);
}

static void run_and_check(relay_pool *p, uint32_t n_tasks, uint32_t task_us) {
    counting c;
    memset(&c, 0, sizeof c);
    c.sleep_us = task_us;
    c.n_threads = relay_pool_thread_count(p);
    relay_pool_run(p, count_task, &c, n_tasks);
    for (uint32_t i = 0; i < MAX_TASKS; i++)
        assert_int_equal(c.done[i], i < n_tasks ? 1 : 0);
    assert_int_equal(c.n_overlaps, 0);
}

static void runs_every_task_once(void **state) {
    static const uint32_t n_tasks[] = {0, 1, 2, 3, 7, 64, MAX_TASKS};
    for (uint32_t threads = 1; threads <= MAX_THREADS; threads++) {
        relay_pool *p;
        assert_int_equal(relay_pool_create(&p, threads, NULL), RELAY_OK);
        assert_int_equal(relay_pool_thread_count(p), threads);
        for (uint32_t i = 0; i < sizeof n_tasks / sizeof *n_tasks; i++)
            run_and_check(p, n_tasks[i], 0);
        run_and_check(p, 20, 300); // the owner runs out of tasks while others still work
        relay_pool_destroy(p);
    }
}

static void jobs_that_follow_at_once_do_not_mix(void **state) {
    relay_pool *p;
    assert_int_equal(relay_pool_create(&p, 3, NULL), RELAY_OK);
    for (uint32_t i = 0; i < 3000; i++)
        run_and_check(p, i % 9, 0);
    relay_pool_destroy(p);
}

static void workers_that_sleep_wake_up(void **state) {
    relay_pool *p;
    assert_int_equal(relay_pool_create(&p, 3, NULL), RELAY_OK);
    run_and_check(p, 30, 1000); // they run by then
    uint32_t n_by_workers = 0;
    for (uint32_t i = 0; i < 20 && n_by_workers == 0; i++) {
        sleep_us(50000); // much longer than they spin
        counting c;
        memset(&c, 0, sizeof c);
        c.sleep_us = 3000;
        c.n_threads = 3;
        relay_pool_run(p, count_task, &c, 30);
        n_by_workers = c.n_by_workers;
    }
    assert_true(n_by_workers > 0);
    relay_pool_destroy(p);
}

static double process_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void an_idle_pool_uses_no_processor(void **state) {
    relay_pool *p;
    assert_int_equal(relay_pool_create(&p, 3, NULL), RELAY_OK);
    run_and_check(p, 10, 0);
    sleep_us(20000); // they have spun by then
    double before = process_seconds();
    sleep_us(200000);
    assert_true(process_seconds() - before < 0.02);
    relay_pool_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_every_task_once),
        cmocka_unit_test(jobs_that_follow_at_once_do_not_mix),
        cmocka_unit_test(workers_that_sleep_wake_up),
        cmocka_unit_test(an_idle_pool_uses_no_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
