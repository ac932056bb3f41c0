// Which ids break a repeat.
#include "tokenizer_svc/breakers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/message.h"
#include "tests/tokenizer_svc/small_vocab.h"

static small_vocab v;

static int open_vocab(void **state) {
    static const char *const pieces[] = {"a:", "\n\n", "word", "x*y", NULL};
    static const char *const control[] = {"<|end|>", NULL};
    v = small_vocab_make(&(small_vocab_spec){.pieces = pieces, .control = control});
    return 0;
}

static int close_vocab(void **state) {
    small_vocab_fini(&v);
    return 0;
}

static bool holds(const uint32_t *ids, size_t n, uint32_t id) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

static void every_token_that_holds_a_string_breaks(void **state) {
    Relay__V1__Dry dry = RELAY__V1__DRY__INIT;
    ProtobufCBinaryData strings[] = {relay_message_text("or"), relay_message_text("\n")};
    uint32_t given[] = {7}, *ids;
    size_t n;
    relay_err e;
    dry.n_breakers = 2;
    dry.breakers = strings;
    dry.n_breaker_token_ids = 1;
    dry.breaker_token_ids = given;
    assert_int_equal(relay_breakers_make(&ids, &n, &dry, v.vocab, &e), RELAY_OK);
    assert_int_equal(n, 4);
    assert_int_equal(ids[0], 7);
    assert_true(holds(ids, n, small_vocab_id(&v, "word")) && holds(ids, n, small_vocab_id(&v, "\n\n")));
    assert_true(holds(ids, n, small_vocab_id(&v, "\n")));
    free(ids);
}

static void without_any_the_usual_four_break(void **state) {
    Relay__V1__Dry dry = RELAY__V1__DRY__INIT;
    uint32_t given[] = {7}, *ids;
    size_t n;
    assert_int_equal(relay_breakers_make(&ids, &n, &dry, v.vocab, NULL), RELAY_OK);
    assert_int_equal(n, 7); // newline, colon, quote and star, and the tokens that hold one
    assert_true(holds(ids, n, small_vocab_id(&v, "a:")) && holds(ids, n, small_vocab_id(&v, "x*y")));
    free(ids);
    dry.n_breaker_token_ids = 1;
    dry.breaker_token_ids = given;
    assert_int_equal(relay_breakers_make(&ids, &n, &dry, v.vocab, NULL), RELAY_OK);
    assert_int_equal(n, 1);
    free(ids);
}

static void expect_refusal(Relay__V1__Dry *dry, const char *message) {
    uint32_t *ids;
    size_t n;
    relay_err e;
    assert_int_equal(relay_breakers_make(&ids, &n, dry, v.vocab, &e), RELAY_INVALID_ARGUMENT);
    if (strstr(e.message, message) == NULL) fail_msg("\"%s\"", e.message);
}

static void a_string_that_can_break_nothing_is_named(void **state) {
    Relay__V1__Dry dry = RELAY__V1__DRY__INIT;
    ProtobufCBinaryData strings[RELAY_MAX_BREAKERS + 1];
    char longest[RELAY_MAX_BREAKER_BYTES + 1];
    memset(longest, 'a', sizeof longest);
    strings[0] = relay_message_text("no token");
    dry.breakers = strings;
    dry.n_breakers = 1;
    expect_refusal(&dry, "sampling.dry.breakers[0] is \"no token\"");
    strings[0] = relay_message_text("");
    expect_refusal(&dry, "sampling.dry.breakers[0] has 0 bytes; allowed is [1, 64]");
    strings[0] = relay_message_bytes(longest, sizeof longest);
    expect_refusal(&dry, "sampling.dry.breakers[0] has 65 bytes; allowed is [1, 64]");
    dry.n_breakers = RELAY_MAX_BREAKERS + 1;
    expect_refusal(&dry, "sampling.dry.breakers has 65 strings; at most 64 are allowed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_that_holds_a_string_breaks),
        cmocka_unit_test(without_any_the_usual_four_break),
        cmocka_unit_test(a_string_that_can_break_nothing_is_named),
    };
    return cmocka_run_group_tests(tests, open_vocab, close_vocab);
}
