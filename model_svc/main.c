// relay-model: wiring only. Flags, then the port with health NOT_SERVING, then the model, then SERVING; on SIGTERM the
// way back.
//
//   SIGTERM   NOT_SERVING; new requests get UNAVAILABLE; running answers may finish within --drain-seconds, and what is
//             left then ends with FINISH_REASON_DRAINED; exit 0
//   again     the same without the wait
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/daemon.h"
#include "common/gguf.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/processors.h"
#include "common/service_ports.h"
#include "common/vocab.h"
#include "kernels/kernels.h"
#include "model_svc/engine.h"
#include "model_svc/model.h"
#include "model_svc/service.h"
#include "model_svc/settings.h"

static const int64_t DEAD_ENGINE_US = 60 * 1000000LL; // a step that takes longer has hung
enum { MAX_LEASES = 1024 };
static const int64_t DRAIN_POLL_US = 20000;
static const int64_t FLUSH_US = 2 * 1000000LL; // for last messages to leave once everything has ended

// Everything that is made at start, in that order, and destroyed in the other.
typedef struct process {
    relay_service_ports ports;
    relay_model_service *service;
    relay_gguf *file;
    relay_vocab *vocab;
    relay_model *model;
    relay_engine *engine;
    _Atomic(relay_engine *) alive_engine; // what /healthz asks; NULL while there is none
    _Atomic bool is_ready;
} process;

static bool is_healthy(void *arg, char *why, unsigned long why_cap) {
    process *p = arg;
    const relay_engine *engine = atomic_load(&p->alive_engine);
    if (engine == NULL || relay_engine_is_alive(engine, DEAD_ENGINE_US)) return true;
    snprintf(why, why_cap, "no step has ended for %lld s", (long long)(DEAD_ENGINE_US / 1000000));
    return false;
}

static bool is_ready(void *arg, char *why, unsigned long why_cap) {
    process *p = arg;
    if (atomic_load(&p->is_ready)) return true;
    snprintf(why, why_cap, "not serving");
    return false;
}

static void set_ready(process *p, bool ready) {
    atomic_store(&p->is_ready, ready);
    relay_rpc_health_set(p->ports.health, ready);
}

// The ports, open while the model is still being loaded: probes get an answer from the first second.
static relay_code open_ports(process *p, const relay_model_settings *s, relay_err *e) {
    static const char *const services[] = {RELAY_MODEL_SERVICE_NAME};
    relay_code code = relay_service_ports_bind(&p->ports, &s->service, services, 1, 0, e);
    if (code != RELAY_OK) return code;
    p->service = relay_model_service_create(p->ports.server, p->ports.metrics);
    return relay_service_ports_open(&p->ports, &s->service, is_healthy, is_ready, p, e);
}

static relay_code load(process *p, const relay_model_settings *s, relay_err *e) {
    relay_mono_us begin = relay_mono_now();
    uint32_t processors = relay_processors_available();
    if (s->threads > processors) {
        RELAY_LOG(RELAY_LOG_WARN, "more threads than processors", "threads=%lld processors=%u", (long long)s->threads,
                  processors);
    }
    const relay_kernels *kernels;
    relay_code code = relay_kernels_choose(&kernels, s->kernels[0] == '\0' ? NULL : s->kernels, e);
    if (code != RELAY_OK) return code;
    code = relay_gguf_open(&p->file, s->model, e);
    if (code != RELAY_OK) return code;
    code = relay_vocab_load_gguf(&p->vocab, p->file, e);
    if (code != RELAY_OK) return code;
    const char *slash = strrchr(s->model, '/');
    relay_model_opts model_opts = {
        .kernels = kernels,
        .n_threads = (uint32_t)s->threads,
        .kv_type = relay_kv_type_of(s->kv_type),
        .kv_bytes = s->kv_memory,
        .max_context = (uint32_t)s->max_context,
        .max_rows = (uint32_t)s->token_budget,
        .max_sequences = (uint32_t)s->max_running,
    };
    code = relay_model_load(&p->model, p->file, slash == NULL ? s->model : slash + 1, &model_opts, e);
    if (code != RELAY_OK) return code;
    relay_gguf_close(p->file);
    p->file = NULL;

    const relay_model_info *info = relay_model_get_info(p->model);
    relay_engine_opts engine_opts = {
        .model_ops = &relay_model_decoder_ops,
        .model = p->model,
        .n_groups = info->n_groups,
        .vocab_size = info->vocab_size,
        .max_context = info->max_context,
        .max_running = (uint32_t)s->max_running,
        .token_budget = (uint32_t)s->token_budget,
        .prompt_chunk = (uint32_t)s->prompt_chunk,
        .step_target = s->step_target_ms * 1000,
        .max_leases = MAX_LEASES,
        .max_queued_requests = (uint32_t)s->max_queued_requests,
        .max_queued_tokens = (uint64_t)s->max_queued_tokens,
        .publish = relay_model_service_publish,
        .publish_arg = p->service,
        .metrics = p->ports.metrics,
    };
    memcpy(engine_opts.groups, info->groups, sizeof engine_opts.groups);
    code = relay_engine_create(&p->engine, &engine_opts, e);
    if (code != RELAY_OK) return code;
    relay_gauge_set(
        relay_metrics_gauge(p->ports.metrics, "relay_model_weight_bytes", "Memory of the weights as kept.", NULL),
        (double)info->weight_bytes);
    relay_model_service_serve(p->service, p->engine, info, p->vocab, kernels->name, (uint32_t)s->max_lease_ms);
    atomic_store(&p->alive_engine, p->engine);
    RELAY_LOG(
        RELAY_LOG_INFO, "model loaded",
        "model=%s architecture=%s weights=%s weight_bytes=%llu kv_type=%s kv_bytes=%llu max_context=%u kernels=%s "
        "load_ms=%lld",
        info->name, info->architecture, info->weight_format, (unsigned long long)info->weight_bytes, s->kv_type,
        (unsigned long long)info->kv_bytes, info->max_context, kernels->name,
        (long long)((relay_mono_now() - begin) / 1000));
    if (info->max_context < s->max_context) {
        RELAY_LOG(RELAY_LOG_WARN, "the KV cache holds less than --max-context",
                  "max_context=%u asked=%lld kv_bytes=%llu", info->max_context, (long long)s->max_context,
                  (unsigned long long)info->kv_bytes);
    }
    return RELAY_OK;
}

static void wait_until_idle(const process *p, int64_t drain_seconds) {
    relay_mono_us deadline = relay_mono_now() + drain_seconds * 1000000;
    while (relay_mono_now() < deadline) {
        relay_engine_load now;
        relay_engine_get_load(p->engine, &now);
        if (now.running == 0 && now.waiting == 0) return;
        if (relay_daemon_wait(2, relay_mono_now() + DRAIN_POLL_US)) return;
    }
}

static void drain(process *p, const relay_model_settings *s) {
    RELAY_LOG(RELAY_LOG_INFO, "draining", "drain_seconds=%lld", (long long)s->service.drain_seconds);
    set_ready(p, false);
    relay_model_service_drain(p->service);
    wait_until_idle(p, s->service.drain_seconds);
    relay_engine_stop(p->engine);
}

static void close_all(process *p) {
    relay_service_ports_close(&p->ports, FLUSH_US);
    relay_model_service_destroy(p->service);
    relay_engine_destroy(p->engine);
    relay_model_destroy(p->model);
    relay_vocab_destroy(p->vocab);
    relay_gguf_close(p->file);
    relay_service_ports_destroy(&p->ports);
}

int main(int argc, char **argv) {
    relay_daemon_start(); // first, so that a signal at any time is an end in good order
    relay_model_settings s;
    relay_err e = {0};
    bool help_shown = false;
    if (relay_model_settings_read(&s, argc, argv, &help_shown, &e) != RELAY_OK) {
        fprintf(stderr, "relay-model: %s\n", e.message);
        return 2;
    }
    if (help_shown) return 0;
    relay_service_settings_start_log(&s.service);

    process p = {0};
    relay_code code = open_ports(&p, &s, &e);
    if (code == RELAY_OK) code = load(&p, &s, &e);
    if (code == RELAY_OK) {
        relay_daemon_ready();
        set_ready(&p, true);
        RELAY_LOG(RELAY_LOG_INFO, "serving", "model=%s", relay_model_get_info(p.model)->name);
        relay_daemon_wait(1, RELAY_NEVER_US);
        drain(&p, &s);
    } else {
        RELAY_LOG(RELAY_LOG_ERROR, "cannot start", "error=%s", e.message);
    }
    close_all(&p);
    int status = code == RELAY_OK ? 0 : code == RELAY_OUT_OF_RANGE ? 2 : 1; // 2: a flag that the model rules out
    RELAY_LOG(RELAY_LOG_INFO, "stopped", "status=%d", status);
    return status;
}
