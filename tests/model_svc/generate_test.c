// ModelService for one sequence a call: GenerateTokens, Cancel, GetModelInfo, GetLoad.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "common/message.h"
#include "tests/model_svc/service_world.h"

static void an_answer_is_what_the_model_says(void **state) {
    service_world w;
    service_world_init(&w, (service_world_opts){0});
    token_request r;
    token_request_init(&r, 20, 30, 5);
    static token_answer a;
    generate(w.client, &r.message, &a);
    assert_int_equal(a.code, RELAY_OK);
    assert_int_equal(a.n_ids, 30);
    assert_int_equal(a.reason, RELAY__V1__FINISH_REASON__FINISH_REASON_MAX_NEW_TOKENS);
    assert_int_equal(a.prompt_tokens, 20);
    assert_int_equal(a.seed, 5);
    uint32_t expected[50];
    memcpy(expected, r.prompt, 20 * sizeof expected[0]);
    fake_continue(expected, 20, 30, 5);
    assert_memory_equal(a.ids, expected + 20, 30 * sizeof expected[0]);
    service_world_fini(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_what_the_model_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
