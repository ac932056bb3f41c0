// What the engine does about a slow publisher and about having nothing to do, and what it tells of itself.
#include "model_svc/engine.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/model_svc/engine_world.h"

// ---- The publisher and the pulse

// Only an engine that sleeps with nothing to do is alive by a limit of one microsecond.
static void wait_until_asleep(engine_world *w) {
    for (relay_mono_us end = relay_mono_now() + 20 * 1000000; !relay_engine_is_alive(w->engine, 1);) {
        if (relay_mono_now() > end) fail_msg("the engine did not go to sleep");
        usleep(200);
    }
}

static bool has_stalled(engine_world *w) {
    uint64_t step = engine_load(w).step;
    usleep(30000);
    return engine_load(w).step == step;
}

static void a_publisher_that_does_not_keep_up_holds_the_engine_and_loses_nothing(void **state) {
    engine_world w;
    relay_engine_opts opts = engine_roomy;
    opts.max_running = 4;
    opts.max_queued_requests = 4;
    opts.max_context = 2000;
    engine_world_init(&w, &opts);
    engine_hold_publisher(&w, true);
    engine_request *r[4];
    for (uint32_t i = 0; i < 4; i++)
        r[i] = engine_submit_new(&w, 10, 1500, i);
    while (!has_stalled(&w)) {
    }
    assert_true(engine_load(&w).step < 600); // of 1500: a step says one thing at least, and the ring holds no more
    assert_false(relay_engine_is_alive(w.engine, 10000));
    engine_hold_publisher(&w, false);
    for (uint32_t i = 0; i < 4; i++)
        engine_wait_for_end(r[i]);
    for (uint32_t i = 0; i < 4; i++)
        engine_expect_finish(r[i], RELAY_FINISH_MAX_NEW_TOKENS);
    wait_until_asleep(&w);
    engine_world_fini(&w);
    engine_requests_destroy(r, 4);
}

static void it_is_alive_unless_a_step_hangs(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    wait_until_asleep(&w); // nothing to do is no hang
    engine_let_run(&w, 2);
    engine_request *r = engine_request_create(&w, 10, 8, 1);
    r->request.initial_credit = 5;
    relay_err e;
    assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
    engine_wait_for_held_step(&w);
    usleep(30000);
    assert_false(relay_engine_is_alive(w.engine, 10000));
    assert_true(relay_engine_is_alive(w.engine, 60 * 1000000LL));
    engine_let_run(&w, UINT64_MAX);
    engine_wait_for_tokens(r, 5);
    wait_until_asleep(&w); // out of credit is none either
    relay_engine_add_credit(w.engine, r->key, 3);
    engine_wait_for_end(r);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

static int64_t cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void it_sleeps_when_nobody_can_move(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    engine_request *r = engine_request_create(&w, 10, 8, 1);
    r->request.initial_credit = 2;
    relay_err e;
    for (uint32_t is_paused = 0; is_paused < 2; is_paused++) {
        if (is_paused == 1) {
            assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
            engine_wait_for_tokens(r, 2);
        }
        int64_t before = cpu_us();
        usleep(200000);
        assert_true(cpu_us() - before < 20000);
    }
    engine_world_fini(&w);
    engine_request_destroy(r);
}

// ---- What it tells

static _Atomic bool reader_stops;

static void *read_load(void *arg) {
    engine_world *w = arg;
    uint64_t last_step = 0;
    uintptr_t n_wrong = 0;
    while (!atomic_load(&reader_stops)) {
        relay_engine_load l = engine_load(w);
        if (l.free_blocks > l.total_blocks || l.running > 32 || l.step < last_step) n_wrong++;
        // Who runs holds at least a block, and at most those of 49 + 100 ids.
        uint32_t used_blocks = l.total_blocks - l.free_blocks - l.cached_blocks;
        if (used_blocks < l.running || used_blocks > l.running * 10) n_wrong++;
        last_step = l.step;
    }
    return (void *)n_wrong;
}

static void the_load_is_that_of_one_moment(void **state) {
    engine_world w;
    engine_world_init(&w, &engine_roomy);
    pthread_t reader;
    atomic_store(&reader_stops, false);
    assert_int_equal(pthread_create(&reader, NULL, read_load, &w), 0);
    engine_request *r[40];
    for (uint32_t i = 0; i < 40; i++)
        r[i] = engine_submit_new(&w, 10 + i, 100, i);
    for (uint32_t i = 0; i < 40; i++)
        engine_wait_for_end(r[i]);
    engine_wait_until_idle(&w);
    assert_true(engine_load(&w).tokens_per_second > 0);
    atomic_store(&reader_stops, true);
    void *n_wrong;
    pthread_join(reader, &n_wrong);
    assert_null(n_wrong);
    engine_world_fini(&w);
    engine_requests_destroy(r, 40);
}

static void expect_metric(relay_metrics *m, const char *line) {
    relay_buf b;
    relay_buf_init(&b, 1 << 20);
    relay_metrics_write(m, &b);
    if (strstr(b.data, line) == NULL) fail_msg("no line \"%s\" in:\n%s", line, b.data);
    relay_buf_fini(&b);
}

static void a_step_that_runs_is_told_from_its_begin(void **state) {
    engine_world w;
    relay_engine_opts opts = engine_roomy;
    opts.metrics = relay_metrics_create();
    engine_world_init(&w, &opts);
    wait_until_asleep(&w);
    usleep(2100000); // long idle is no hang of the step after it
    uint64_t idle_at = engine_load(&w).unix_ms;
    engine_let_run(&w, 0);
    uint64_t before = relay_unix_ms();
    engine_request *r = engine_submit_new(&w, 50, 2, 1);
    engine_wait_for_held_step(&w);
    assert_true(relay_engine_is_alive(w.engine, 2000000));
    relay_engine_load first = engine_load(&w);
    assert_int_equal(first.running, 1);
    assert_int_equal(first.waiting, 0);
    assert_int_equal(engine_used_blocks(&w), 4);
    assert_true(idle_at < before && first.unix_ms >= before);
    expect_metric(opts.metrics, "relay_requests_running 1\n");
    expect_metric(opts.metrics, "relay_kv_cache_used_blocks 4\n");
    expect_metric(opts.metrics, "relay_kv_unused_slots 14\n");
    expect_metric(opts.metrics, "relay_kv_cache_touched_bytes 4096\n");
    expect_metric(opts.metrics, "relay_prefill_tokens_total 0\n");
    usleep(20000);
    assert_int_equal(engine_load(&w).unix_ms, first.unix_ms); // the snapshot's time, not the call's
    engine_let_run(&w, UINT64_MAX);
    engine_wait_for_end(r);
    engine_wait_until_idle(&w);
    assert_true(engine_load(&w).unix_ms >= first.unix_ms + 20);
    engine_world_fini(&w);
    engine_request_destroy(r);
    relay_metrics_destroy(opts.metrics);
}

static void drained_ones_end_well(void **state) {
    engine_world w;
    relay_engine_opts opts = engine_roomy;
    opts.metrics = relay_metrics_create();
    engine_world_init(&w, &opts);
    engine_request *r = engine_request_create(&w, 10, 8, 1);
    r->request.initial_credit = 2;
    relay_err e;
    assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
    engine_wait_for_tokens(r, 2);
    relay_engine_stop(w.engine);
    engine_world_fini(&w);
    expect_metric(opts.metrics, "relay_requests_total{code=\"OK\",reason=\"DRAINED\"} 1\n");
    engine_request_destroy(r);
    relay_metrics_destroy(opts.metrics);
}

static void metrics_say_what_happened(void **state) {
    engine_world w;
    relay_engine_opts opts = engine_roomy;
    opts.metrics = relay_metrics_create();
    engine_world_init(&w, &opts);
    engine_request *r[2];
    r[0] = engine_submit_new(&w, 100, 20, 1);
    engine_wait_for_end(r[0]);
    r[1] = engine_request_create(&w, 50, 20, 2);
    r[1]->request.initial_credit = 3;
    relay_err e;
    assert_int_equal(engine_request_submit(r[1], &e), RELAY_OK);
    engine_wait_for_tokens(r[1], 3);
    while (engine_load(&w).step < 24)
        usleep(200);
    expect_metric(opts.metrics, "relay_requests_running 1\n");
    expect_metric(opts.metrics, "relay_kv_cache_blocks 4096\n");
    expect_metric(opts.metrics, "relay_kv_cache_used_blocks 4\n"); // 52 positions
    expect_metric(opts.metrics, "relay_kv_cache_block_tokens 16\n");
    expect_metric(opts.metrics, "relay_kv_unused_slots 12\n");
    expect_metric(opts.metrics, "relay_kv_cache_usage_ratio 0.0009765625\n");
    relay_engine_cancel(w.engine, r[1]->key);
    engine_wait_for_end(r[1]);
    engine_wait_until_idle(&w);
    engine_world_fini(&w);
    expect_metric(opts.metrics, "relay_requests_running 0\n");
    expect_metric(opts.metrics, "relay_requests_waiting 0\n");
    expect_metric(opts.metrics, "relay_prefill_tokens_total 150\n");
    expect_metric(opts.metrics, "relay_decode_tokens_total 23\n");
    expect_metric(opts.metrics, "relay_preemptions_total 0\n");
    expect_metric(opts.metrics, "relay_requests_total{code=\"OK\",reason=\"MAX_NEW_TOKENS\"} 1\n");
    expect_metric(opts.metrics, "relay_requests_total{code=\"CANCELLED\",reason=\"CANCELLED\"} 1\n");
    expect_metric(opts.metrics, "relay_time_to_first_token_seconds_count 2\n");
    expect_metric(opts.metrics, "relay_inter_token_latency_seconds_count 21\n");
    expect_metric(opts.metrics, "relay_queue_time_seconds_count 2\n");
    expect_metric(opts.metrics, "relay_e2e_latency_seconds_count 2\n");
    expect_metric(opts.metrics, "relay_step_seconds_count 24\n");
    expect_metric(opts.metrics, "relay_batch_tokens_sum 171\n"); // every id but the last drawn of each was a row
    engine_requests_destroy(r, 2);
    relay_metrics_destroy(opts.metrics);
}

static void expect_bad_opts(relay_engine_opts o, const char *message) {
    o.model_ops = &fake_model_ops;
    relay_engine *en = (relay_engine *)&o;
    relay_err e = {0};
    assert_int_equal(relay_engine_create(&en, &o, &e), RELAY_INVALID_ARGUMENT);
    assert_null(en);
    assert_string_equal(e.message, message);
}

static void settings_without_a_bound_are_refused(void **state) {
    relay_engine_opts o = engine_roomy;
    o.max_queued_requests = 0;
    expect_bad_opts(o, "max_queued_requests is 0; it must be 1 to 65536");
    o = engine_roomy;
    o.max_queued_tokens = 0;
    expect_bad_opts(o, "max_queued_tokens is 0; it must be 1 to 281474976710656");
    o = engine_roomy;
    o.token_budget = 31;
    expect_bad_opts(o, "token_budget is 31; it must be 32 to 16777216");
    o = engine_roomy;
    o.max_context = 1;
    expect_bad_opts(o, "max_context is 1; it must be 2 to 268435456");
    o = engine_roomy;
    o.groups[0].n_blocks = 0;
    expect_bad_opts(o, "KV group 0 has 0 blocks; it must have 1 to 268435456");
    o = engine_roomy;
    o.n_groups = 9;
    expect_bad_opts(o, "n_groups is 9; it must be 1 to 8");
    relay_engine_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_publisher_that_does_not_keep_up_holds_the_engine_and_loses_nothing),
        cmocka_unit_test(it_is_alive_unless_a_step_hangs),
        cmocka_unit_test(it_sleeps_when_nobody_can_move),
        cmocka_unit_test(the_load_is_that_of_one_moment),
        cmocka_unit_test(a_step_that_runs_is_told_from_its_begin),
        cmocka_unit_test(drained_ones_end_well),
        cmocka_unit_test(metrics_say_what_happened),
        cmocka_unit_test(settings_without_a_bound_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
