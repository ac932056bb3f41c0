#include "model_svc/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/model_svc/scheduler_world.h"

static const relay_scheduler_opts roomy = {
    .n_groups = 2,
    .n_blocks = {4096, 4096},
    .max_context = 4096,
    .max_running = 32,
    .max_sequences = 64,
    .token_budget = 256,
};

static void one_request_is_served_to_its_end(void **state) {
    world w;
    world_init(&w, &roomy);
    world_request *r = world_request_create(20, 7, 1);
    world_add(&w, r, 0);
    world_run(&w, 7);
    world_expect_finish(r, RELAY_FINISH_MAX_NEW_TOKENS);
    assert_int_equal(r->n_drawn, 7);
    world_expect_own_ids(r);
    world_request_destroy(r);
    world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request_is_served_to_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
