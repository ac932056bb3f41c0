// Worker threads that share the tasks of one operation.
//
// One thread, the owner, calls run(); it works too. Tasks are claimed one by one, so a thread that the kernel has put
// aside holds up the one task it claimed and nothing else; a worker that has claimed none is not waited for. Between
// operations workers spin for a moment, then sleep on a futex: an operation that follows at once costs no system call,
// and an idle pool costs nothing.
#ifndef RELAY_KERNELS_CPU_POOL_H
#define RELAY_KERNELS_CPU_POOL_H

#include <stdint.h>

#include "common/status.h"

typedef struct relay_pool relay_pool;

// `thread` is below the pool's n_threads and belongs to one running thread: scratch memory may be indexed by it.
typedef void (*relay_pool_fn)(void *arg, uint32_t task, uint32_t thread);

// n_threads counts the owner; at least 1. RESOURCE_EXHAUSTED where threads cannot be made.
relay_code relay_pool_create(relay_pool **out, uint32_t n_threads, relay_err *e) RELAY_NODISCARD;
void relay_pool_destroy(relay_pool *p);
uint32_t relay_pool_thread_count(const relay_pool *p);
// Runs fn(arg, t, thread) for every t < n_tasks, in any order, and returns when all are done. Not from within a task.
void relay_pool_run(relay_pool *p, relay_pool_fn fn, void *arg, uint32_t n_tasks);

#endif
