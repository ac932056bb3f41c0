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
    for (int i = 0; i < 1000; i++)
        assert_int_equal(relay_workers_submit(w, count, NULL, NULL), RELAY_OK);
    relay_workers_destroy(w);
    assert_int_equal(atomic_load(&n_run), 1000);
    relay_workers_destroy(NULL);
}

static void past_its_bound_a_job_is_refused_with_a_hint(void **state) {
    atomic_store(&n_run, 0);
    sem_init(&began, 0, 0);
    sem_init(&may_go, 0, 0);
    relay_workers *w = relay_workers_create(1, 2);
    assert_int_equal(relay_workers_submit(w, block, NULL, NULL), RELAY_OK);
    while (sem_wait(&began) != 0) {
    }
    assert_int_equal(relay_workers_submit(w, count, NULL, NULL), RELAY_OK);
    assert_int_equal(relay_workers_submit(w, count, NULL, NULL), RELAY_OK);
    relay_err e;
    assert_int_equal(relay_workers_submit(w, count, NULL, &e), RELAY_RESOURCE_EXHAUSTED);
    assert_true(e.retry_after_ms != 0);
    sem_post(&may_go);
    relay_workers_destroy(w);
    assert_int_equal(atomic_load(&n_run), 2);
    sem_destroy(&began);
    sem_destroy(&may_go);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_is_run_once_before_the_end),
        cmocka_unit_test(past_its_bound_a_job_is_refused_with_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
