#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "common/arena.h"

static void an_arena_gives_zeroed_aligned_memory_apart(void **state) {
    relay_arena a;
    relay_arena_init(&a, 1 << 20);
    unsigned char *blocks[100];
    for (size_t i = 0; i < 100; i++) {
        size_t size = i * i;
        blocks[i] = relay_arena_alloc(&a, size);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
        for (size_t b = 0; b < size; b++)
            assert_int_equal(blocks[i][b], 0);
        memset(blocks[i], (int)i, size);
    }
    for (size_t i = 0; i < 100; i++)
        for (size_t b = 0; b < i * i; b++)
            assert_int_equal(blocks[i][b], i);
    char *copy = relay_arena_copy(&a, "a\0b", 3);
    assert_memory_equal(copy, "a\0b", 4);
    relay_arena_fini(&a);
    assert_int_equal(a.used, 0);
    assert_non_null(relay_arena_alloc(&a, 1));
    relay_arena_fini(&a);
}

static void an_arena_refuses_what_passes_its_limit(void **state) {
    relay_arena a;
    relay_arena_init(&a, 100);
    assert_non_null(relay_arena_alloc(&a, 60));
    assert_null(relay_arena_alloc(&a, 41));
    assert_null(relay_arena_alloc(&a, SIZE_MAX));
    assert_null(relay_arena_copy(&a, "0123456789012345678901234567890123456789", 40)); // its NUL is too much
    assert_non_null(relay_arena_alloc(&a, 40));
    assert_null(relay_arena_alloc(&a, 1));
    assert_int_equal(a.used, 100);
    relay_arena_fini(&a);
    relay_arena_init(&a, SIZE_MAX);
    assert_null(relay_arena_alloc(&a, SIZE_MAX - 8));
    relay_arena_fini(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_gives_zeroed_aligned_memory_apart),
        cmocka_unit_test(an_arena_refuses_what_passes_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
