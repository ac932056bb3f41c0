// A pool of threads for work that would hold up a queue thread: tokenizing, rendering, loading texts into messages.
//
// Two lanes with threads of their own, so that a text of a megabyte holds up nobody who asks for a sentence. Where both
// have work the system's scheduler divides the processors: the threads of long jobs give way (nice), and get their
// share all the same.
//
// Bounded: a submit past `max_jobs` waiting jobs of its lane is refused, so that a burst costs an error and not the
// memory.
#ifndef RELAY_TOKENIZER_SVC_WORKERS_H
#define RELAY_TOKENIZER_SVC_WORKERS_H

#include <stdint.h>

#include "common/status.h"

typedef struct relay_workers relay_workers;

typedef enum relay_lane {
    RELAY_LANE_SHORT,
    RELAY_LANE_LONG,
} relay_lane;

// `n_threads` for each lane.
relay_workers *relay_workers_create(uint32_t n_threads, uint32_t max_jobs);
// Thread-safe. `run(arg)` is called once, on some worker of the lane; first come, first served. RESOURCE_EXHAUSTED with
// a retry hint when the lane is full: then it is never called.
relay_code relay_workers_submit(relay_workers *w, relay_lane lane, void (*run)(void *arg), void *arg,
                                relay_err *e) RELAY_NODISCARD;
// Runs what is waiting, then ends the threads. Nobody may submit any more. NULL is fine.
void relay_workers_destroy(relay_workers *w);

#endif
