#include "tokenizer_svc/workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { RETRY_AFTER_MS = 200 };

typedef struct job {
    void (*run)(void *arg);
    void *arg;
} job;

struct relay_workers {
    pthread_mutex_t lock; // guards everything below
    pthread_cond_t has_work;
    bool is_stopping;
    uint32_t first, n_jobs, max_jobs;
    job *jobs; // ring [max_jobs]
    uint32_t n_threads;
    pthread_t threads[];
};

static void *run_worker(void *arg) {
    relay_workers *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->n_jobs == 0 && !w->is_stopping)
            pthread_cond_wait(&w->has_work, &w->lock);
        if (w->n_jobs == 0) break;
        job j = w->jobs[w->first];
        w->first = (w->first + 1) % w->max_jobs;
        w->n_jobs--;
        pthread_mutex_unlock(&w->lock);
        j.run(j.arg);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

relay_workers *relay_workers_create(uint32_t n_threads, uint32_t max_jobs) {
    RELAY_ASSERT(n_threads != 0 && max_jobs != 0);
    relay_workers *w = relay_calloc(1, sizeof *w + n_threads * sizeof w->threads[0]);
    w->max_jobs = max_jobs;
    w->jobs = relay_calloc(max_jobs, sizeof *w->jobs);
    w->n_threads = n_threads;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->has_work, NULL);
    for (uint32_t i = 0; i < n_threads; i++) {
        RELAY_ASSERT(pthread_create(&w->threads[i], NULL, run_worker, w) == 0);
    }
    return w;
}

relay_code relay_workers_submit(relay_workers *w, void (*run)(void *arg), void *arg, relay_err *e) {
    relay_code code = RELAY_OK;
    pthread_mutex_lock(&w->lock);
    if (w->n_jobs == w->max_jobs) {
        code = relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "%u requests are waiting for a worker; no more may wait",
                          w->max_jobs);
        if (e != NULL) e->retry_after_ms = RETRY_AFTER_MS;
    } else {
        w->jobs[(w->first + w->n_jobs) % w->max_jobs] = (job){run, arg};
        w->n_jobs++;
        pthread_cond_signal(&w->has_work);
    }
    pthread_mutex_unlock(&w->lock);
    return code;
}

void relay_workers_destroy(relay_workers *w) {
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->is_stopping = true;
    pthread_cond_broadcast(&w->has_work);
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < w->n_threads; i++)
        pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->has_work);
    pthread_mutex_destroy(&w->lock);
    free(w->jobs);
    free(w);
}
