#include "model_svc/snapshot.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void gives_what_was_written_last(void **state) {
    for (uint32_t n = 1; n <= 40; n++) {
        relay_snapshot *s = relay_snapshot_create(n);
        unsigned char data[41], zeros[41] = {0};
        data[n] = 0xaa;
        relay_snapshot_read(s, data);
        assert_memory_equal(data, zeros, n);
        for (uint32_t round = 1; round < 4; round++) {
            unsigned char written[40];
            for (uint32_t i = 0; i < n; i++)
                written[i] = (unsigned char)(round * 50 + i);
            relay_snapshot_write(s, written);
            relay_snapshot_read(s, data);
            assert_memory_equal(data, written, n);
            assert_int_equal(data[n], 0xaa);
        }
        relay_snapshot_destroy(s);
    }
    relay_snapshot_destroy(NULL);
}

enum { N_WORDS = 24, N_READS = 50000 };

static _Atomic bool writer_stops;

// The same number in each word, one higher each time.
static void *write_on(void *arg) {
    uint64_t words[N_WORDS];
    for (uint64_t n = 1; !atomic_load(&writer_stops); n++) {
        for (uint32_t i = 0; i < N_WORDS; i++)
            words[i] = n;
        relay_snapshot_write(arg, words);
    }
    return NULL;
}

static void a_read_is_of_one_moment(void **state) {
    relay_snapshot *s = relay_snapshot_create(N_WORDS * sizeof(uint64_t));
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_on, s), 0);
    uint64_t first[N_WORDS] = {0};
    while (first[0] == 0) // the writer may not have begun
        relay_snapshot_read(s, first);
    uint64_t last = 0, n_torn = 0, n_back = 0;
    for (uint32_t k = 0; k < N_READS; k++) {
        uint64_t words[N_WORDS];
        relay_snapshot_read(s, words);
        for (uint32_t i = 1; i < N_WORDS; i++)
            n_torn += words[i] != words[0];
        n_back += words[0] < last;
        last = words[0];
    }
    atomic_store(&writer_stops, true);
    pthread_join(writer, NULL);
    assert_true(last > 0);
    assert_int_equal(n_torn, 0);
    assert_int_equal(n_back, 0);
    relay_snapshot_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_what_was_written_last),
        cmocka_unit_test(a_read_is_of_one_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
