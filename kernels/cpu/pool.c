#define _GNU_SOURCE
#include "kernels/cpu/pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

// How long a thread looks again before it sleeps, in pauses of some 40 ns: longer than the owner's work between two
// operations, shorter than a time slice by far.
enum { SPINS = 1000 };

typedef struct worker {
    relay_pool *pool;
    uint32_t thread;
    pthread_t handle;
} worker;

struct relay_pool {
    // The job's number in the high half and its unclaimed tasks in the low half. A task is claimed by taking one from
    // it, which fails when either half is not what was read: no claim can reach a job that has ended. While a claimed
    // task is not done its job cannot end, so the claimer may read the job's fields.
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) _Atomic uint32_t n_done;
    _Atomic bool owner_sleeps;
    _Atomic uint32_t n_asleep; // workers
    _Atomic bool is_stopping;

    // The job. Written by the owner while no task is claimed.
    relay_pool_fn fn;
    void *arg;
    uint32_t n_tasks;

    uint32_t n_threads;
    worker workers[];
};

// The futex word of the sleeping workers: it changes with every job.
static _Atomic uint32_t *job_number(relay_pool *p) {
    return (_Atomic uint32_t *)&p->state + 1;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

// Takes tasks until none is left.
static void work(relay_pool *p, uint32_t thread) {
    uint64_t s = atomic_load_explicit(&p->state, memory_order_acquire);
    while ((uint32_t)s != 0) {
        if (!atomic_compare_exchange_weak_explicit(&p->state, &s, s - 1, memory_order_acq_rel, memory_order_acquire)) {
            continue;
        }
        uint32_t n_tasks = p->n_tasks;
        p->fn(p->arg, n_tasks - (uint32_t)s, thread);
        // From here on the job may end at any time.
        if (atomic_fetch_add(&p->n_done, 1) + 1 == n_tasks && atomic_load(&p->owner_sleeps)) futex_wake(&p->n_done, 1);
        s = atomic_load_explicit(&p->state, memory_order_acquire);
    }
}

static void *worker_main(void *arg) {
    worker *w = arg;
    relay_pool *p = w->pool;
    while (!atomic_load_explicit(&p->is_stopping, memory_order_acquire)) {
        work(p, w->thread);
        uint64_t seen = atomic_load(&p->state);
        for (int i = 0; i < SPINS && (uint32_t)seen == 0; i++) {
            _mm_pause();
            seen = atomic_load_explicit(&p->state, memory_order_relaxed);
        }
        if ((uint32_t)seen != 0) continue;
        // The owner either sees this worker asleep, or it has changed the word before and the wait returns at once.
        atomic_fetch_add(&p->n_asleep, 1);
        if (!atomic_load(&p->is_stopping)) futex_wait(job_number(p), (uint32_t)(seen >> 32));
        atomic_fetch_sub(&p->n_asleep, 1);
    }
    return NULL;
}

void relay_pool_run(relay_pool *p, relay_pool_fn fn, void *arg, uint32_t n_tasks) {
    if (p->n_threads == 1 || n_tasks <= 1) {
        for (uint32_t t = 0; t < n_tasks; t++)
            fn(arg, t, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_tasks = n_tasks;
    atomic_store_explicit(&p->n_done, 0, memory_order_relaxed);
    uint64_t number = (atomic_load_explicit(&p->state, memory_order_relaxed) >> 32) + 1;
    atomic_store(&p->state, number << 32 | n_tasks);
    if (atomic_load(&p->n_asleep) != 0) futex_wake(job_number(p), n_tasks - 1);
    work(p, 0);
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->n_done, memory_order_acquire) == n_tasks) return;
        _mm_pause();
    }
    atomic_store(&p->owner_sleeps, true);
    for (uint32_t done; (done = atomic_load(&p->n_done)) != n_tasks;)
        futex_wait(&p->n_done, done);
    atomic_store(&p->owner_sleeps, false);
}

relay_code relay_pool_create(relay_pool **out, uint32_t n_threads, relay_err *e) {
    RELAY_ASSERT(n_threads >= 1);
    uint64_t bytes = sizeof(relay_pool) + (n_threads - 1) * sizeof(worker);
    relay_pool *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "no memory for a pool of %u threads", n_threads);
    *p = (relay_pool){.n_threads = 1};
    for (uint32_t i = 0; i + 1 < n_threads; i++) {
        worker *w = &p->workers[i];
        w->pool = p;
        w->thread = i + 1;
        if (pthread_create(&w->handle, NULL, worker_main, w) != 0) {
            relay_pool_destroy(p);
            return relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "thread %u of %u could not be made", i + 1, n_threads);
        }
        char name[16];
        snprintf(name, sizeof name, "kernels-%u", (i + 1) % 1000000);
        pthread_setname_np(w->handle, name);
        p->n_threads++;
    }
    *out = p;
    return RELAY_OK;
}

void relay_pool_destroy(relay_pool *p) {
    if (p == NULL) return;
    atomic_store(&p->is_stopping, true);
    atomic_fetch_add(&p->state, (uint64_t)1 << 32);
    futex_wake(job_number(p), p->n_threads);
    for (uint32_t i = 0; i + 1 < p->n_threads; i++)
        pthread_join(p->workers[i].handle, NULL);
    free(p);
}

uint32_t relay_pool_thread_count(const relay_pool *p) {
    return p->n_threads;
}
