// A pool of threads for work that would hold up a queue thread: tokenizing, rendering, loading texts into messages.
//
// Bounded: a submit past `max_jobs` waiting jobs is refused, so that a burst costs an error and not the memory.
#ifndef RELAY_TOKENIZER_SVC_WORKERS_H
#define RELAY_TOKENIZER_SVC_WORKERS_H

#include <stdint.h>

#include "common/status.h"

typedef struct relay_workers relay_workers;

relay_workers *relay_workers_create(uint32_t n_threads, uint32_t max_jobs);
// Thread-safe. `run(arg)` is called once, on some worker; first come, first served. RESOURCE_EXHAUSTED with a retry
// hint when the queue is full: then it is never called.
relay_code relay_workers_submit(relay_workers *w, void (*run)(void *arg), void *arg, relay_err *e) RELAY_NODISCARD;
// Runs what is waiting, then ends the threads. Nobody may submit any more. NULL is fine.
void relay_workers_destroy(relay_workers *w);

#endif
