#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/status.h"
#include "common/utf8.h"

static void codes_have_grpc_names(void **state) {
    static const char *const names[] = {
        "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
        "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
        "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
        "DATA_LOSS", "UNAUTHENTICATED"};
    for (int i = 0; i < 17; i++)
        assert_string_equal(relay_code_name((relay_code)i), names[i]);
    assert_string_equal(relay_code_name((relay_code)17), "UNKNOWN");
    assert_string_equal(relay_code_name((relay_code)-1), "UNKNOWN");
}

static void fail_fills_in_the_error_and_returns_the_code(void **state) {
    relay_err e = {.retry_after_ms = 7};
    assert_int_equal(relay_fail(&e, RELAY_NOT_FOUND, "model \"%s\" of %d", "x", 3), RELAY_NOT_FOUND);
    assert_int_equal(e.code, RELAY_NOT_FOUND);
    assert_int_equal(e.retry_after_ms, 0);
    assert_string_equal(e.message, "model \"x\" of 3");
    assert_int_equal(relay_fail(NULL, RELAY_ABORTED, "nobody reads this"), RELAY_ABORTED);
}

static void messages_are_valid_utf8_whatever_they_quote(void **state) {
    relay_err e;
    relay_fail(&e, RELAY_INTERNAL, "name \"%s\"", "a\xFF\xC3 z");
    assert_string_equal(e.message, "name \"a?? z\"");
    char text[RELAY_ERR_MESSAGE_MAX * 2];
    for (size_t shift = 0; shift < 4; shift++) { // cut at each place inside a character
        memset(text, 'x', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 5);
        relay_fail(&e, RELAY_INTERNAL, "%s", text);
        size_t len = strlen(e.message);
        assert_int_equal(len, RELAY_ERR_MESSAGE_MAX - 1);
        assert_true(relay_utf8_is_valid(e.message, len));
    }
}

// Runs in a child; returns whether it was ended by SIGABRT.
static bool aborts(void (*fn)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        fn();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void fail_assertion(void) {
    RELAY_ASSERT(1 + 1 == 3);
}

static void hold_assertion(void) {
    RELAY_ASSERT(1 + 1 == 2);
}

static void assertions_abort(void **state) {
    assert_true(aborts(fail_assertion));
    assert_false(aborts(hold_assertion));
}

static void allocations_are_zeroed_and_copies_ended(void **state) {
    char *p = relay_calloc(100, 3);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(p[i], 0);
    p = relay_realloc(p, 1000);
    free(p);
    char *copy = relay_strndup("relay\0race", 10);
    assert_memory_equal(copy, "relay\0race", 11);
    free(copy);
    copy = relay_strndup(NULL, 0);
    assert_string_equal(copy, "");
    free(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_have_grpc_names),
        cmocka_unit_test(fail_fills_in_the_error_and_returns_the_code),
        cmocka_unit_test(messages_are_valid_utf8_whatever_they_quote),
        cmocka_unit_test(assertions_abort),
        cmocka_unit_test(allocations_are_zeroed_and_copies_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
