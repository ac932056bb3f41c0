#include "common/daemon.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock; // guards everything below
    pthread_cond_t changed;
    uint32_t n_signals;
    bool is_ready;
    void (*hurry)(void *arg);
    void *hurry_arg;
} daemon_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static sigset_t ending_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return set;
}

static void *signal_thread(void *arg) {
    sigset_t set = ending_signals();
    for (;;) {
        int sig;
        if (sigwait(&set, &sig) != 0) continue;
        pthread_mutex_lock(&daemon_state.lock);
        if (!daemon_state.is_ready) _exit(0);
        daemon_state.n_signals++;
        // Called under the lock, so that relay_daemon_on_second_signal(NULL) waits for it.
        if (daemon_state.n_signals == 2 && daemon_state.hurry != NULL) daemon_state.hurry(daemon_state.hurry_arg);
        pthread_cond_broadcast(&daemon_state.changed);
        pthread_mutex_unlock(&daemon_state.lock);
    }
    return NULL;
}

void relay_daemon_start(void) {
    signal(SIGPIPE, SIG_IGN);
    sigset_t set = ending_signals();
    pthread_sigmask(SIG_BLOCK, &set, NULL);

    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&daemon_state.changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_t thread;
    RELAY_ASSERT(pthread_create(&thread, NULL, signal_thread, NULL) == 0);
    pthread_detach(thread);
}

void relay_daemon_ready(void) {
    pthread_mutex_lock(&daemon_state.lock);
    daemon_state.is_ready = true;
    pthread_mutex_unlock(&daemon_state.lock);
}

bool relay_daemon_wait(uint32_t n_signals, relay_mono_us until) {
    struct timespec at = {.tv_sec = until / 1000000, .tv_nsec = until % 1000000 * 1000};
    pthread_mutex_lock(&daemon_state.lock);
    while (daemon_state.n_signals < n_signals) {
        if (until == RELAY_NEVER_US) {
            pthread_cond_wait(&daemon_state.changed, &daemon_state.lock);
        } else if (pthread_cond_timedwait(&daemon_state.changed, &daemon_state.lock, &at) == ETIMEDOUT) {
            break;
        }
    }
    bool came = daemon_state.n_signals >= n_signals;
    pthread_mutex_unlock(&daemon_state.lock);
    return came;
}

void relay_daemon_on_second_signal(void (*hurry)(void *arg), void *arg) {
    pthread_mutex_lock(&daemon_state.lock);
    daemon_state.hurry = hurry;
    daemon_state.hurry_arg = arg;
    if (hurry != NULL && daemon_state.n_signals >= 2) hurry(arg);
    pthread_mutex_unlock(&daemon_state.lock);
}

relay_code relay_daemon_write_port_file(const char *path, uint16_t grpc_port, uint16_t admin_port, relay_err *e) {
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, (int)getpid()) >= (int)sizeof temporary) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "port-file: the path is longer than %zu bytes", sizeof temporary);
    }
    FILE *f = fopen(temporary, "w");
    if (f == NULL) return relay_fail(e, RELAY_INVALID_ARGUMENT, "port-file: cannot write %s: %m", temporary);
    fprintf(f, "grpc=%u\n", grpc_port);
    if (admin_port != 0) fprintf(f, "admin=%u\n", admin_port);
    if (fclose(f) != 0 || rename(temporary, path) != 0) {
        relay_fail(e, RELAY_INVALID_ARGUMENT, "port-file: cannot write %s: %m", path);
        unlink(temporary);
        return RELAY_INVALID_ARGUMENT;
    }
    return RELAY_OK;
}
