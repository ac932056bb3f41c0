#define _GNU_SOURCE
#include "tokenizer_svc/workers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { RETRY_AFTER_MS = 200, N_LANES = RELAY_LANE_LONG + 1, LONG_NICE = 10 };

typedef struct job {
    void (*run)(void *arg);
    void *arg;
} job;

typedef struct lane {
    pthread_mutex_t lock; // guards everything below but the threads
    pthread_cond_t has_work;
    bool is_stopping;
    uint32_t first, n_jobs, max_jobs;
    job *jobs; // ring [max_jobs]
    uint32_t n_threads;
    pthread_t *threads; // [n_threads]
} lane;

struct relay_workers {
    lane lanes[N_LANES];
};

static void *run_worker(void *arg) {
    lane *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (l->n_jobs == 0 && !l->is_stopping)
            pthread_cond_wait(&l->has_work, &l->lock);
        if (l->n_jobs == 0) break;
        job j = l->jobs[l->first];
        l->first = (l->first + 1) % l->max_jobs;
        l->n_jobs--;
        pthread_mutex_unlock(&l->lock);
        j.run(j.arg);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void *run_long_worker(void *arg) {
    // Of this thread alone, as Linux has it. Without effect it is only less polite.
    id_t self = (id_t)gettid();
    setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + LONG_NICE);
    return run_worker(arg);
}

relay_workers *relay_workers_create(uint32_t n_threads, uint32_t max_jobs) {
    RELAY_ASSERT(n_threads != 0 && max_jobs != 0);
    relay_workers *w = relay_calloc(1, sizeof *w);
    for (int i = 0; i < N_LANES; i++) {
        lane *l = &w->lanes[i];
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->has_work, NULL);
        l->max_jobs = max_jobs;
        l->jobs = relay_calloc(max_jobs, sizeof *l->jobs);
        l->n_threads = n_threads;
        l->threads = relay_calloc(n_threads, sizeof *l->threads);
        void *(*run)(void *) = i == RELAY_LANE_LONG ? run_long_worker : run_worker;
        for (uint32_t t = 0; t < n_threads; t++)
            RELAY_ASSERT(pthread_create(&l->threads[t], NULL, run, l) == 0);
    }
    return w;
}

relay_code relay_workers_submit(relay_workers *w, relay_lane lane_of_job, void (*run)(void *arg), void *arg,
                                relay_err *e) {
    relay_code code = RELAY_OK;
    lane *l = &w->lanes[lane_of_job];
    pthread_mutex_lock(&l->lock);
    if (l->n_jobs == l->max_jobs) {
        code = relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "%u requests are waiting for a worker; no more may wait",
                          l->max_jobs);
        if (e != NULL) e->retry_after_ms = RETRY_AFTER_MS;
    } else {
        l->jobs[(l->first + l->n_jobs) % l->max_jobs] = (job){run, arg};
        l->n_jobs++;
        pthread_cond_signal(&l->has_work);
    }
    pthread_mutex_unlock(&l->lock);
    return code;
}

void relay_workers_destroy(relay_workers *w) {
    if (w == NULL) return;
    for (int i = 0; i < N_LANES; i++) {
        lane *l = &w->lanes[i];
        pthread_mutex_lock(&l->lock);
        l->is_stopping = true;
        pthread_cond_broadcast(&l->has_work);
        pthread_mutex_unlock(&l->lock);
        for (uint32_t t = 0; t < l->n_threads; t++)
            pthread_join(l->threads[t], NULL);
        pthread_cond_destroy(&l->has_work);
        pthread_mutex_destroy(&l->lock);
        free(l->threads);
        free(l->jobs);
    }
    free(w);
}
