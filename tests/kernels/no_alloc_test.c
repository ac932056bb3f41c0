// No operation of any backend allocates. The linker leads malloc and its kin here (--wrap), so that they can be
// counted.
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/gguf.h"
#include "kernels/kernels.h"
#include "tests/kernels/fixture.h"

static _Atomic uint32_t n_allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size) {
    n_allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    n_allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size) {
    n_allocations++;
    return __real_realloc(p, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    n_allocations++;
    return __real_aligned_alloc(alignment, size);
}

void *__wrap_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset) {
    n_allocations++;
    return __real_mmap(at, length, prot, flags, fd, offset);
}

static void allocations_are_counted(void **state) {
    uint32_t before = n_allocations;
    free(relay_calloc(1, 10));
    assert_true(n_allocations > before);
}

static void operations_do_not_allocate(void **state) {
    enum { ROWS = 64, N_IN = 256, N_OUT = 512 };
    test_rng r = {1};
    float *x = test_normals(&r, ROWS * N_OUT, 1), *y = test_normals(&r, ROWS * N_OUT, 1);
    float *out = relay_calloc(ROWS * N_OUT, sizeof *out);
    uint8_t *rows_q = test_weight_rows(&r, RELAY_GGML_Q4_1, N_OUT, N_IN);
    uint8_t *rows_f = test_weight_rows(&r, RELAY_GGML_F16, N_OUT, N_IN);
    uint32_t ids[ROWS], positions[ROWS], sequences[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        ids[i] = i;
        positions[i] = 600 + i;
        sequences[i] = 0;
    }
    relay_sample_params params[ROWS];
    relay_sample_result results[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        params[i] = (relay_sample_params){.temperature = (float)(i % 3),
                                          .top_p = i % 2 == 0 ? 0.9f : 1,
                                          .top_k = i % 5 == 0 ? 40 : 0,
                                          .min_p = 0.01f,
                                          .repetition_penalty = 1,
                                          .logprob_mode = i % 3,
                                          .n_top = 20,
                                          .seed = i};
    }
    FOR_EACH_BACKEND(k) {
        relay_device *d = test_device(k, 2);
        relay_weight *wq, *wf;
        assert_int_equal(k->weight_create(d, &wq, RELAY_GGML_Q4_1, N_OUT, N_IN, rows_q, NULL), RELAY_OK);
        assert_int_equal(k->weight_create(d, &wf, RELAY_GGML_F16, N_OUT, N_IN, rows_f, NULL), RELAY_OK);
        const test_cache_shape shape = {2, 2, 64, 0, RELAY_KV_F16, 1, {700}};
        test_cache cache;
        test_cache_init(&cache, k, d, &shape, 1);
        test_cache_fill(&cache, 0, 0, 700, 64);

        uint32_t before = n_allocations;
        for (uint32_t n = ROWS; n > 0; n /= 8) {
            relay_rows rows = test_cache_rows(&cache, n, positions, sequences);
            relay_matmul_job jobs[] = {{wq, NULL, out}, {wf, NULL, out}};
            k->embed(d, out, wq, ids, n);
            k->rms_norm(d, out, x, y, n, N_IN, 1e-5f);
            k->matmul(d, x, n, jobs, 2);
            k->rope(d, x, positions, n, 2, 64, 0, RELAY_ROPE_HALVES, y);
            k->kv_store(d, &cache.pool, 1, x, y, &rows);
            k->kv_copy(d, &cache.pool, &(relay_kv_block_copy){cache.block_ids[0], cache.block_ids[60]}, 1);
            k->attention(d, out, x, &cache.pool, 1, &rows, 4, 0.1f);
            k->silu_mul(d, out, x, y, n, N_IN);
            k->add(d, out, y, n, N_IN);
            k->gather_rows(d, out, x, ids, n, N_IN);
            k->sample(d, results, x, N_OUT, &(relay_sample_input){.n_samples = n, .d_params = params});
            k->wait(d);
        }
        assert_int_equal(n_allocations, before);

        test_cache_fini(&cache);
        k->weight_destroy(d, wq);
        k->weight_destroy(d, wf);
        k->device_destroy(d);
    }
    free(x);
    free(y);
    free(out);
    free(rows_q);
    free(rows_f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_counted),
        cmocka_unit_test(operations_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
