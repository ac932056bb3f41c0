#include "tests/model_svc/call_counter.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/types.h>

call_counts counted;
static _Thread_local bool counts_calls;

void count_calls(bool counts) {
    counts_calls = counts;
}

static void count(_Atomic uint64_t *n) {
    if (counts_calls) atomic_fetch_add(n, 1);
}

// One function that counts and then does what it is for.
#define WRAP(kind, type, name, params, args)                                                                           \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params {                                                                                        \
        count(&counted.kind);                                                                                          \
        return __real_##name args;                                                                                     \
    }

WRAP(memory, void *, malloc, (size_t size), (size))
WRAP(memory, void *, calloc, (size_t n, size_t size), (n, size))
WRAP(memory, void *, realloc, (void *p, size_t size), (p, size))
WRAP(memory, void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
WRAP(memory, void, free, (void *p), (p))
WRAP(locks, int, pthread_mutex_lock, (pthread_mutex_t * m), (m))
WRAP(locks, int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t *m), (c, m))
WRAP(locks, int, pthread_cond_signal, (pthread_cond_t * c), (c))
WRAP(locks, int, pthread_cond_broadcast, (pthread_cond_t * c), (c))
WRAP(output, ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n))
WRAP(output, int, vfprintf, (FILE * f, const char *format, va_list args), (f, format, args))
WRAP(output, int, fputs, (const char *s, FILE *f), (s, f))

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
    if (number != SYS_futex) count(&counted.syscalls);
    return __real_syscall(number, a, b, c, d, e, f);
}
