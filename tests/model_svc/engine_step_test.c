// What the engine's thread asks of the C library while it runs: nothing but to sleep.
#include "model_svc/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/model_svc/call_counter.h"
#include "tests/model_svc/engine_world.h"

enum { N_REQUESTS = 300 };

// On the engine's thread, from its first step to its last: the loop around the steps counts too.
static void start_to_count(void *arg, const relay_step *step) {
    count_calls(true);
}

static void the_counter_counts(void **state) {
    void *volatile p; // or the compiler leaves the calls out
    count_calls(true);
    p = malloc(1);
    free(p);
    count_calls(false);
    p = malloc(1);
    free(p);
    assert_int_equal(atomic_load(&counted.memory), 2);
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    count_calls(true);
    pthread_mutex_lock(&m);
    count_calls(false);
    pthread_mutex_unlock(&m);
    assert_int_equal(atomic_load(&counted.locks), 1);
    atomic_store(&counted.memory, 0);
    atomic_store(&counted.locks, 0);
}

static void its_thread_asks_for_no_memory_lock_or_output(void **state) {
    engine_world w;
    engine_world_init(&w, &(relay_engine_opts){
                              .groups = {{.block_bytes = 1024, .n_blocks = 40}, {.block_bytes = 512, .n_blocks = 50}},
                              .n_groups = 2,
                              .vocab_size = FAKE_VOCAB,
                              .max_context = 500,
                              .max_running = 8,
                              .token_budget = 64,
                              .prompt_chunk = 32,
                              .max_queued_requests = N_REQUESTS,
                              .max_queued_tokens = 1000000,
                          });
    w.model.on_step = start_to_count;
    engine_request *r[N_REQUESTS];
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        r[i] = engine_request_create(&w, 1 + i * 7 % 150, 1 + i * 11 % 90, i);
        if (i % 2 == 0) r[i]->request.sampling.repetition_penalty = 1.1f;
        if (i % 5 == 0) r[i]->request.initial_credit = 3;
        if (i % 7 == 0) r[i]->request.deadline = relay_mono_now() + 30000;
        if (i % 11 == 0) r[i]->ids[0] = FAKE_POISON;
        r[i]->request.priority = (int32_t)(i % 3);
        assert_int_equal(engine_request_submit(r[i], NULL), RELAY_OK);
        if (i % 13 == 0) relay_engine_cancel(w.engine, r[i / 2]->key);
        if (i % 20 == 0) usleep(1000);
    }
    for (uint32_t i = 0; i < N_REQUESTS; i += 5)
        relay_engine_add_credit(w.engine, r[i]->key, 1000);
    uint32_t n_preempted = 0;
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        engine_wait_for_end(r[i]);
        if (i % 11 != 0) engine_expect_own_ids(r[i]);
        n_preempted += r[i]->last.preemptions;
    }
    assert_true(n_preempted > 0);
    relay_engine_stop(w.engine);
    assert_int_equal(atomic_load(&counted.memory), 0);
    assert_int_equal(atomic_load(&counted.locks), 0);
    assert_int_equal(atomic_load(&counted.output), 0);
    assert_int_equal(atomic_load(&counted.syscalls), 0);
    engine_world_fini(&w);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        engine_request_destroy(r[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_counts),
        cmocka_unit_test(its_thread_asks_for_no_memory_lock_or_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
