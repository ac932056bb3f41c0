// Compiled once for a text, on another thread, and kept while somebody holds it or there is room.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "model_svc/constraint/constraint_cache.h"
#include "tests/model_svc/constraint/byte_vocab.h"

enum { N_THREADS = 4, N_ROUNDS = 30 };

static relay_vocab *vocab;
static sem_t settled;

static void on_settled(void *arg) {
    sem_post(&settled);
}

static relay_constraint_cache *create(void) {
    return relay_constraint_cache_create(vocab, relay_vocab_size(vocab), on_settled, NULL);
}

static relay_constraint_handle *get(relay_constraint_cache *c, const char *regex) {
    relay_constraint_spec spec = {.kind = RELAY_CONSTRAINT_REGEX, .text = {regex, strlen(regex)}};
    relay_constraint_handle *h;
    assert_int_equal(relay_constraint_cache_get(c, &spec, &h, NULL), RELAY_OK);
    return h;
}

static void wait_settled(const relay_constraint_handle *h) {
    while (relay_constraint_handle_state(h) == RELAY_CONSTRAINT_COMPILING) {
        while (sem_wait(&settled) != 0) {
        }
    }
}

static void one_text_is_compiled_once(void **state) {
    relay_constraint_cache *c = create();
    relay_constraint_handle *a = get(c, "a+"), *b = get(c, "b+"), *again = get(c, "a+");
    assert_ptr_equal(a, again);
    assert_ptr_not_equal(a, b);
    wait_settled(a);
    wait_settled(b);
    assert_int_equal(relay_constraint_handle_state(a), RELAY_CONSTRAINT_READY);
    assert_non_null(relay_constraint_handle_get(a));
    relay_constraint_handle_release(a);
    relay_constraint_handle_release(again);
    relay_constraint_handle *kept = get(c, "a+");
    assert_int_equal(relay_constraint_cache_compiled(c), 2);
    relay_constraint_handle_release(kept);
    relay_constraint_handle_release(b);
    relay_constraint_cache_destroy(c);
}

static void what_fails_says_why_to_everyone(void **state) {
    relay_constraint_cache *c = create();
    for (int i = 0; i < 2; i++) {
        relay_constraint_handle *h = get(c, "(a");
        wait_settled(h);
        assert_int_equal(relay_constraint_handle_state(h), RELAY_CONSTRAINT_FAILED);
        assert_int_equal(relay_constraint_handle_error(h)->code, RELAY_INVALID_ARGUMENT);
        assert_non_null(strstr(relay_constraint_handle_error(h)->message, "a group that is not closed"));
        relay_constraint_handle_release(h);
    }
    assert_int_equal(relay_constraint_cache_compiled(c), 1);
    relay_constraint_cache_destroy(c);
}

static void the_least_used_go_first(void **state) {
    relay_constraint_cache *c = create();
    char regex[16];
    for (int i = 0; i <= RELAY_CONSTRAINT_MAX_KEPT + 1; i++) {
        snprintf(regex, sizeof regex, "x%d", i);
        relay_constraint_handle *h = get(c, regex);
        wait_settled(h);
        relay_constraint_handle_release(h);
    }
    uint64_t before = relay_constraint_cache_compiled(c);
    relay_constraint_handle_release(get(c, regex)); // the last one
    assert_int_equal(relay_constraint_cache_compiled(c), before);
    relay_constraint_handle *first = get(c, "x0");
    wait_settled(first);
    assert_int_equal(relay_constraint_cache_compiled(c), before + 1);
    // A handle outlives its cache.
    relay_constraint_cache_destroy(c);
    relay_matcher at;
    relay_matcher_begin(relay_constraint_handle_get(first), &at);
    assert_true(relay_matcher_read(relay_constraint_handle_get(first), &at, 'x'));
    relay_constraint_handle_release(first);
}

static void what_waits_is_bounded_and_ends_with_the_cache(void **state) {
    relay_constraint_cache *c = create();
    relay_constraint_handle *held[RELAY_CONSTRAINT_MAX_WAITING + 2];
    uint32_t n = 0;
    relay_err e = {0};
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; code == RELAY_OK && i < RELAY_CONSTRAINT_MAX_WAITING + 2; i++) {
        char regex[40]; // some tens of milliseconds each
        snprintf(regex, sizeof regex, "(a|b)*a(a|b){13}c{%u}", i + 1);
        relay_constraint_spec spec = {.kind = RELAY_CONSTRAINT_REGEX, .text = {regex, strlen(regex)}};
        code = relay_constraint_cache_get(c, &spec, &held[n], &e);
        n += code == RELAY_OK;
    }
    // A machine that compiles them all before they are asked for has not met the bound.
    if (code != RELAY_OK) {
        assert_int_equal(code, RELAY_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(e.message, "64 constraints wait"));
    }
    relay_constraint_cache_destroy(c);
    for (uint32_t i = 0; i < n; i++) {
        relay_constraint_state s = relay_constraint_handle_state(held[i]);
        assert_int_not_equal(s, RELAY_CONSTRAINT_COMPILING);
        if (s == RELAY_CONSTRAINT_FAILED) {
            assert_int_equal(relay_constraint_handle_error(held[i])->code, RELAY_UNAVAILABLE);
        }
        relay_constraint_handle_release(held[i]);
    }
}

static void *get_and_release(void *arg) {
    relay_constraint_cache *c = arg;
    for (int i = 0; i < N_ROUNDS; i++) {
        char regex[16];
        snprintf(regex, sizeof regex, "y%d", i % 7);
        relay_constraint_spec spec = {.kind = RELAY_CONSTRAINT_REGEX, .text = {regex, strlen(regex)}};
        relay_constraint_handle *h;
        if (relay_constraint_cache_get(c, &spec, &h, NULL) == RELAY_OK) relay_constraint_handle_release(h);
    }
    return NULL;
}

static void many_threads_may_ask(void **state) {
    relay_constraint_cache *c = create();
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_and_release, c), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    relay_constraint_cache_destroy(c);
}

int main(void) {
    vocab = byte_vocab_create();
    sem_init(&settled, 0, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_text_is_compiled_once), cmocka_unit_test(what_fails_says_why_to_everyone),
        cmocka_unit_test(the_least_used_go_first),   cmocka_unit_test(what_waits_is_bounded_and_ends_with_the_cache),
        cmocka_unit_test(many_threads_may_ask),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    relay_vocab_destroy(vocab);
    return failed;
}
