// relay-tokenizer: wiring only. Flags, the tokenizer, the port with health NOT_SERVING, SERVING as long as a model
// server is ready (at once where none is named); on SIGTERM the way back.
//
//   SIGTERM   NOT_SERVING; connections and calls are refused; running calls may finish within --drain-seconds, what is
//             left is cancelled; exit 0
//   again     the same without the wait
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/daemon.h"
#include "common/ident.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/processors.h"
#include "common/service_ports.h"
#include "tokenizer_svc/generate.h"
#include "tokenizer_svc/model_link.h"
#include "tokenizer_svc/service.h"
#include "tokenizer_svc/settings.h"
#include "tokenizer_svc/text_model.h"
#include "tokenizer_svc/workers.h"

enum { REQUEST_OVERHEAD_BYTES = 16 << 20 }; // what a request may hold beside its text: ids, options

// Everything that is made at start, in that order, and destroyed in the other.
typedef struct process {
    relay_text_model *model;
    relay_service_ports ports;
    relay_gauge *ready_pods;
    relay_workers *workers;
    relay_model_link *link;
    relay_tokenizer_service *tokenizer;
    relay_generation_service *generation;
    char pod[256];

    pthread_mutex_t lock; // guards the three below, so that nothing makes a draining process SERVING again
    bool is_open, has_model, is_draining;
} process;

static bool is_serving(const process *p) {
    return p->is_open && p->has_model && !p->is_draining;
}

static void change_state(process *p, bool *flag, bool value) {
    pthread_mutex_lock(&p->lock);
    bool before = is_serving(p);
    *flag = value;
    bool after = is_serving(p);
    if (before != after) {
        relay_rpc_health_set(p->ports.health, after);
        RELAY_LOG(RELAY_LOG_INFO, after ? "serving" : "not serving", "model=%s", relay_text_model_name(p->model));
    }
    pthread_mutex_unlock(&p->lock);
}

static void on_ready_pods(void *arg, uint32_t n_ready) {
    process *p = arg;
    relay_gauge_set(p->ready_pods, n_ready);
    change_state(p, &p->has_model, n_ready != 0);
}

static bool is_healthy(void *arg, char *why, unsigned long why_cap) {
    return true; // it answers
}

static bool is_ready(void *arg, char *why, unsigned long why_cap) {
    process *p = arg;
    pthread_mutex_lock(&p->lock);
    bool ready = is_serving(p);
    snprintf(why, why_cap, "%s", p->is_draining ? "draining" : "no model server is ready");
    pthread_mutex_unlock(&p->lock);
    return ready;
}

static void create_services(process *p, const relay_tokenizer_settings *s) {
    uint32_t n_threads = s->threads != 0 ? (uint32_t)s->threads : relay_processors_available();
    p->workers = relay_workers_create(n_threads, (uint32_t)s->max_queued_jobs);
    if (s->n_model_servers != 0) {
        p->link = relay_model_link_create(&(relay_model_link_opts){
            .addresses = s->model_servers,
            .n_addresses = s->n_model_servers,
            .client = p->pod,
            .fingerprint = relay_vocab_fingerprint(relay_text_model_vocab(p->model)),
            .keepalive_ms = (uint32_t)s->service.keepalive_ms,
            .on_ready_pods = on_ready_pods,
            .arg = p,
        });
    }
    relay_tokenizer_service_opts tokenizer = {
        .model = p->model, .workers = p->workers, .max_text_bytes = s->max_text_bytes};
    p->tokenizer = relay_tokenizer_service_create(p->ports.server, &tokenizer);
    relay_generation_service_opts generation = {.model = p->model,
                                                .workers = p->workers,
                                                .link = p->link,
                                                .metrics = p->ports.metrics,
                                                .max_text_bytes = s->max_text_bytes};
    p->generation = relay_generation_service_create(p->ports.server, &generation);
}

static relay_code open_ports(process *p, const relay_tokenizer_settings *s, relay_err *e) {
    static const char *const names[] = {RELAY_GENERATION_SERVICE_NAME, RELAY_TOKENIZER_SERVICE_NAME};
    uint32_t max_request_bytes = (uint32_t)s->max_text_bytes + REQUEST_OVERHEAD_BYTES;
    relay_code code = relay_service_ports_bind(&p->ports, &s->service, names, 2, max_request_bytes, e);
    if (code != RELAY_OK) return code;
    p->ready_pods =
        relay_metrics_gauge(p->ports.metrics, "relay_ready_model_servers", "Model servers that take requests.", NULL);
    create_services(p, s);
    return relay_service_ports_open(&p->ports, &s->service, is_healthy, is_ready, p, e);
}

static relay_code start(process *p, const relay_tokenizer_settings *s, relay_err *e) {
    relay_ident_pod(p->pod, sizeof p->pod);
    p->has_model = s->n_model_servers == 0;
    relay_code code = relay_text_model_load(&p->model, s->tokenizer, s->model_name, e);
    if (code == RELAY_OK) code = open_ports(p, s, e);
    if (code == RELAY_OK) change_state(p, &p->is_open, true);
    return code;
}

static void close_all(process *p, int64_t drain_seconds) {
    relay_service_ports_close(&p->ports, drain_seconds * 1000000);
    relay_workers_destroy(p->workers);
    relay_model_link_destroy(p->link);
    relay_generation_service_destroy(p->generation);
    relay_tokenizer_service_destroy(p->tokenizer);
    relay_service_ports_destroy(&p->ports);
    relay_text_model_destroy(p->model);
}

int main(int argc, char **argv) {
    relay_daemon_start(); // first, so that a signal at any time is an end in good order
    relay_tokenizer_settings s;
    relay_err e = {0};
    bool help_shown = false;
    if (relay_tokenizer_settings_read(&s, argc, argv, &help_shown, &e) != RELAY_OK) {
        fprintf(stderr, "relay-tokenizer: %s\n", e.message);
        relay_tokenizer_settings_fini(&s);
        return 2;
    }
    if (help_shown) return 0;
    relay_service_settings_start_log(&s.service);

    process p = {.lock = PTHREAD_MUTEX_INITIALIZER};
    relay_code code = start(&p, &s, &e);
    if (code == RELAY_OK) {
        relay_daemon_ready();
        relay_daemon_wait(1, RELAY_NEVER_US);
        RELAY_LOG(RELAY_LOG_INFO, "draining", "drain_seconds=%lld", (long long)s.service.drain_seconds);
        change_state(&p, &p.is_draining, true);
    } else {
        RELAY_LOG(RELAY_LOG_ERROR, "cannot start", "error=%s", e.message);
    }
    close_all(&p, s.service.drain_seconds);
    int status = code == RELAY_OK ? 0 : 1;
    RELAY_LOG(RELAY_LOG_INFO, "stopped", "status=%d", status);
    relay_tokenizer_settings_fini(&s);
    return status;
}
