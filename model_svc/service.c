#include "model_svc/service_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/ident.h"
#include "common/log.h"
#include "common/message.h"

static const int64_t TICK_US = 1000000;
enum { RETRY_WHILE_LOADING_MS = 1000 };

const relay_serving *relay_model_service_serving(relay_model_service *s, relay_err *e) {
    if (atomic_load_explicit(&s->is_serving, memory_order_acquire)) return &s->serving;
    relay_fail(e, RELAY_UNAVAILABLE, "the model is still being loaded");
    e->retry_after_ms = RETRY_WHILE_LOADING_MS;
    return NULL;
}

relay_code relay_model_service_check(const ProtobufCMessage *m, relay_err *e) {
    relay_code code = relay_message_check(m, e);
    return code == RELAY_OK ? relay_rpc_check_utf8(m, e) : code;
}

// ---- Answers

static void list_answer(relay_model_service *s, relay_answer *a) {
    pthread_mutex_lock(&s->answers_lock);
    a->next = s->answers;
    if (a->next != NULL) a->next->prev = a;
    s->answers = a;
    pthread_mutex_unlock(&s->answers_lock);
}

static void unlist_answer(relay_model_service *s, relay_answer *a) {
    pthread_mutex_lock(&s->answers_lock);
    if (a->next != NULL) a->next->prev = a->prev;
    *(a->prev != NULL ? &a->prev->next : &s->answers) = a->next;
    pthread_mutex_unlock(&s->answers_lock);
}

relay_code relay_answer_submit(relay_answer *a, relay_answer_stream *stream, relay_err *e) {
    relay_model_service *s = stream->service;
    a->stream = stream;
    relay_answer_prepare(a);
    list_answer(s, a);
    uint64_t key;
    relay_code code = relay_engine_submit(s->serving.engine, &a->request, &key, e);
    if (code != RELAY_OK) {
        unlist_answer(s, a);
        return code;
    }
    pthread_mutex_lock(&s->answers_lock);
    a->engine_key = key;
    a->is_submitted = true;
    pthread_mutex_unlock(&s->answers_lock);
    relay_rpc_call_ref(stream->call);
    return RELAY_OK;
}

void relay_answer_release(relay_answer *a) {
    relay_model_service *s = a->stream->service;
    relay_rpc_call *call = a->stream->call;
    unlist_answer(s, a);
    relay_answer_log_end(a);
    relay_answer_destroy(a);
    relay_rpc_call_unref(call);
}

// ---- Events

void relay_answer_stream_cut(relay_answer_stream *stream) {
    relay_err e;
    relay_fail(&e, RELAY_RESOURCE_EXHAUSTED, "the client does not read its answers: %llu bytes are waiting for it",
               (unsigned long long)relay_rpc_call_outbox_used(stream->call));
    RELAY_LOG(RELAY_LOG_WARN, "slow reader cut off", "peer=%s method=%s", relay_rpc_call_peer(stream->call),
              relay_rpc_call_method(stream->call)->path);
    if (stream->service->slow_readers != NULL) relay_counter_add(stream->service->slow_readers, 1);
    relay_rpc_call_abort(stream->call, e.code, &e);
}

static void flush_all(relay_answer_stream **touched, uint64_t step) {
    for (relay_answer_stream *stream = *touched; stream != NULL;) {
        relay_answer_stream *next = stream->next_touched;
        stream->is_touched = false;
        stream->flush(stream, step); // may free it
        stream = next;
    }
    *touched = NULL;
}

void relay_model_service_publish(void *service, const relay_event *events, uint32_t n_events) {
    relay_answer_stream *touched = NULL;
    for (uint32_t i = 0; i < n_events; i++) {
        if (events[i].kind == RELAY_EVENT_LEASE) {
            relay_lease_reply(events[i].lease_call);
            continue;
        }
        if (i != 0 && events[i].step != events[i - 1].step) flush_all(&touched, events[i - 1].step);
        relay_answer *a = events[i].request->owner;
        relay_answer_stream *stream = a->stream;
        relay_answer_note(a, &events[i]);
        if (!a->is_touched) {
            a->is_touched = true;
            a->next_touched = stream->touched;
            stream->touched = a;
        }
        if (!stream->is_touched) {
            stream->is_touched = true;
            stream->next_touched = touched;
            touched = stream;
        }
    }
    if (n_events != 0) flush_all(&touched, events[n_events - 1].step);
}

// ---- Cancel

static bool is_text(ProtobufCBinaryData wanted, const char *s) {
    return wanted.len == strlen(s) && memcmp(wanted.data, s, wanted.len) == 0;
}

static void cancel_on_message(relay_rpc_call *call, ProtobufCMessage *message) {
    relay_model_service *s = relay_rpc_call_service(call);
    const Relay__V1__CancelRequest *m = (const Relay__V1__CancelRequest *)message;
    relay_err e = {0};
    relay_code code = relay_model_service_check(message, &e);
    bool by_id = m->target_case == RELAY__V1__CANCEL_REQUEST__TARGET_SERVER_REQUEST_ID;
    ProtobufCBinaryData wanted = by_id ? m->server_request_id : m->sequence_id;
    if (code == RELAY_OK && m->target_case == RELAY__V1__CANCEL_REQUEST__TARGET__NOT_SET) {
        code = relay_fail(&e, RELAY_INVALID_ARGUMENT, "neither server_request_id nor sequence_id is set");
    } else if (code == RELAY_OK && wanted.len == 0) {
        code = relay_fail(&e, RELAY_INVALID_ARGUMENT, "%s is empty", by_id ? "server_request_id" : "sequence_id");
    }
    if (code != RELAY_OK) {
        relay_rpc_call_finish(call, code, &e);
        return;
    }
    Relay__V1__CancelResponse response = RELAY__V1__CANCEL_RESPONSE__INIT;
    RELAY_SET(&response, found, 0);
    pthread_mutex_lock(&s->answers_lock);
    for (relay_answer *a = s->answers; a != NULL; a = a->next) {
        if (!a->is_submitted || !is_text(wanted, by_id ? a->server_request_id : a->request.sequence_id)) continue;
        relay_engine_cancel(s->serving.engine, a->engine_key);
        response.found = 1;
    }
    pthread_mutex_unlock(&s->answers_lock);
    relay_rpc_call_reply(call, &response.base);
}

static const relay_rpc_method cancel_method = {
    .path = "/" RELAY_MODEL_SERVICE_NAME "/Cancel",
    .kind = RELAY_RPC_UNARY,
    .request = &relay__v1__cancel_request__descriptor,
    .response = &relay__v1__cancel_response__descriptor,
    .on_message = cancel_on_message,
};

// ---- Life

static void tick_sessions(relay_model_service *s) {
    relay_mono_us now = relay_mono_now();
    for (relay_session *session = s->sessions; session != NULL; session = relay_session_next(session)) {
        relay_session_tick(session, now);
    }
}

static void *run_ticker(void *arg) {
    relay_model_service *s = arg;
    pthread_mutex_lock(&s->sessions_lock);
    while (!s->is_stopping) {
        relay_mono_us at = relay_mono_now() + TICK_US;
        struct timespec until = {.tv_sec = at / 1000000, .tv_nsec = at % 1000000 * 1000};
        pthread_cond_timedwait(&s->wake_ticker, &s->sessions_lock, &until);
        tick_sessions(s);
    }
    pthread_mutex_unlock(&s->sessions_lock);
    return NULL;
}

static void add_method(relay_model_service *s, relay_rpc_server *server, const relay_rpc_method *method) {
    relay_rpc_method own = *method;
    own.service = s;
    relay_rpc_server_add(server, &own, 1);
}

relay_model_service *relay_model_service_create(relay_rpc_server *server, relay_metrics *metrics) {
    relay_model_service *s = relay_calloc(1, sizeof *s);
    relay_ident_pod(s->pod, sizeof s->pod);
    pthread_mutex_init(&s->answers_lock, NULL);
    pthread_mutex_init(&s->sessions_lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->wake_ticker, &attr);
    pthread_condattr_destroy(&attr);
    if (metrics != NULL) {
        s->slow_readers = relay_metrics_counter(metrics, "relay_slow_readers_total",
                                                "Calls that were cut off because their client did not read.", NULL);
    }

    add_method(s, server, &relay_generate_tokens_method);
    add_method(s, server, &relay_session_method);
    add_method(s, server, &cancel_method);
    add_method(s, server, &relay_fork_sequence_method);
    add_method(s, server, &relay_release_sequence_method);
    add_method(s, server, &relay_get_model_info_method);
    add_method(s, server, &relay_get_load_method);
    RELAY_ASSERT(pthread_create(&s->ticker, NULL, run_ticker, s) == 0);
    return s;
}

static void on_constraint_settled(void *engine) {
    relay_engine_settle_constraints(engine);
}

void relay_model_service_serve(relay_model_service *s, relay_engine *engine, const relay_model_info *info,
                               const relay_vocab *vocab, const char *backend, uint32_t max_lease_ms) {
    relay_serving *v = &s->serving;
    *v = (relay_serving){.engine = engine, .info = info, .vocab = vocab, .backend = backend};
    v->rules = (relay_request_rules){
        .vocab_size = info->vocab_size,
        .max_context = info->max_context,
        .max_lease_ms = max_lease_ms,
        .fingerprint = relay_vocab_fingerprint(vocab),
        .defaults = info->default_sampling,
        .default_penalty_window = info->default_penalty_window,
    };
    s->constraints = relay_constraint_cache_create(vocab, info->vocab_size, on_constraint_settled, engine);
    v->rules.constraints = s->constraints;
    v->rules.eos_ids = relay_vocab_eos(vocab, &v->rules.n_eos_ids);
    relay_model_info_message(v);
    atomic_store_explicit(&s->is_serving, true, memory_order_release);
}

void relay_model_service_drain(relay_model_service *s) {
    atomic_store(&s->is_draining, true);
    if (atomic_load(&s->is_serving)) relay_engine_drain(s->serving.engine);
    pthread_mutex_lock(&s->sessions_lock);
    tick_sessions(s);
    pthread_mutex_unlock(&s->sessions_lock);
}

void relay_model_service_destroy(relay_model_service *s) {
    if (s == NULL) return;
    pthread_mutex_lock(&s->sessions_lock);
    s->is_stopping = true;
    pthread_cond_signal(&s->wake_ticker);
    pthread_mutex_unlock(&s->sessions_lock);
    pthread_join(s->ticker, NULL);
    RELAY_ASSERT(s->answers == NULL && s->sessions == NULL);
    relay_constraint_cache_destroy(s->constraints);
    pthread_cond_destroy(&s->wake_ticker);
    pthread_mutex_destroy(&s->sessions_lock);
    pthread_mutex_destroy(&s->answers_lock);
    free(s);
}
