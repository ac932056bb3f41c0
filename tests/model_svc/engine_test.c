#include "model_svc/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/engine_world.h"

static const relay_engine_opts roomy = {
    .groups = {{.block_bytes = 1024, .n_blocks = 4096}},
    .n_groups = 1,
    .max_context = 4096,
    .max_running = 32,
    .token_budget = 128,
    .prompt_chunk = 64,
    .max_queued_requests = 128,
    .max_queued_tokens = 100000,
};

static bool is_idle(const relay_engine_load *l) {
    return l->running == 0 && l->waiting == 0 && l->used_blocks == 0;
}

static void a_request_is_served_to_its_end(void **state) {
    engine_world w;
    engine_world_init(&w, &roomy);
    engine_request *r = engine_request_create(&w, 100, 50, 1);
    relay_err e;
    assert_int_equal(engine_request_submit(r, &e), RELAY_OK);
    engine_wait_for_end(r);
    assert_int_equal(r->last.finish, RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(r->n_drawn, 50);
    engine_expect_own_ids(r);
    engine_wait_until(&w, is_idle);
    engine_world_fini(&w);
    engine_request_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_served_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
