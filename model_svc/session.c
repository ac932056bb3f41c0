// Session: many requests on one stream of commands, one message per engine step with the news of all of them.
//
// The first command is hello. A start that is wrong ends that sequence alone, with a SessionError; a command that
// cannot be assigned to a sequence ends the call. When the server drains, or the client has sent its last command, the
// call ends with its last sequence.
#include <stdlib.h>
#include <string.h>

#include "common/fingerprint.h"
#include "common/log.h"
#include "common/message.h"
#include "model_svc/service_internal.h"

enum { N_BUCKETS = 256 };

static const int64_t SILENCE_US = 900000;    // after which the timer speaks
static const int64_t LOAD_PERIOD_US = 50000; // between two loads told with steps
static const int64_t HELLO_WITHIN_US = 5000000;

struct relay_session {
    relay_answer_stream stream;
    relay_session *prev, *next; // under service.sessions_lock
    // Under stream.lock.
    bool is_greeted, is_half_closed, is_draining_told;
    uint32_t n_answers;
    relay_answer *buckets[N_BUCKETS]; // by stream key
    relay_mono_us opened_at, sent_at, load_sent_at;
    uint64_t step_sent;
    relay_engine_load load_sent;
    Relay__V1__Load load; // of the message being built
    // Publisher thread only: room for the deltas of one step.
    Relay__V1__SessionDelta **deltas;
    uint32_t deltas_cap;
};

relay_session *relay_session_next(const relay_session *session) {
    return session->next;
}

// ---- Sequences of a session, all under stream.lock

static relay_answer **find_slot(relay_session *session, uint64_t stream_key) {
    relay_answer **slot = &session->buckets[stream_key % N_BUCKETS];
    while (*slot != NULL && (*slot)->request.stream_key != stream_key)
        slot = &(*slot)->next_in_bucket;
    return slot;
}

static void give_up(relay_session *session) {
    session->stream.is_over = true;
    for (uint32_t i = 0; i < N_BUCKETS; i++) {
        for (relay_answer *a = session->buckets[i]; a != NULL; a = a->next_in_bucket) {
            relay_engine_cancel(session->stream.service->serving.engine, a->engine_key);
        }
    }
}

static void finish(relay_session *session, relay_code code, const relay_err *e) {
    if (session->stream.is_over) return;
    give_up(session);
    relay_rpc_call_finish(session->stream.call, code, e);
}

static void finish_if_done(relay_session *session) {
    bool is_last = session->is_half_closed || (session->is_greeted && session->is_draining_told);
    if (is_last && session->n_answers == 0) finish(session, RELAY_OK, NULL);
}

// ---- Messages, all under stream.lock

static bool is_load_news(const relay_engine_load *a, const relay_engine_load *b) {
    return a->running != b->running || a->waiting != b->waiting || a->free_blocks != b->free_blocks ||
           a->cached_blocks != b->cached_blocks || a->is_draining != b->is_draining;
}

// Adds what every message may carry, and sends it.
static void send_message(relay_session *session, Relay__V1__SessionResponse *m, relay_mono_us now) {
    if (session->stream.is_over) return;
    relay_model_service *s = session->stream.service;
    if (now - session->load_sent_at >= LOAD_PERIOD_US) {
        relay_engine_load load;
        relay_engine_get_load(s->serving.engine, &load);
        if (session->load_sent_at == 0 || is_load_news(&load, &session->load_sent)) {
            relay_load_message(&session->load, &load);
            m->load = &session->load;
            session->load_sent = load;
            session->load_sent_at = now;
        }
    }
    if (atomic_load(&s->is_draining)) {
        RELAY_SET(m, draining, 1);
        session->is_draining_told = true;
    }
    // What happens between two steps is told with the number of the one that comes, before the load knows of it.
    if (m->has_step && m->step < session->step_sent) m->step = session->step_sent;
    if (m->has_step) session->step_sent = m->step;
    session->sent_at = now;
    relay_code code = relay_rpc_call_send(session->stream.call, &m->base);
    if (code == RELAY_RESOURCE_EXHAUSTED) relay_answer_stream_cut(&session->stream);
    if (code != RELAY_OK) give_up(session);
}

static const char *error_reason(relay_code code) {
    switch (code) {
    case RELAY_ALREADY_EXISTS:
        return "STREAM_KEY_IN_USE";
    case RELAY_FAILED_PRECONDITION:
        return "TOKENIZER_MISMATCH";
    case RELAY_RESOURCE_EXHAUSTED:
        return "OVERLOADED";
    case RELAY_UNAVAILABLE:
        return "DRAINING";
    default:
        return NULL;
    }
}

static void put_error(Relay__V1__SessionDelta *delta, Relay__V1__SessionError *error, relay_code code,
                      const char *message, uint32_t retry_after_ms) {
    relay__v1__session_error__init(error);
    RELAY_SET(error, code, code);
    RELAY_SET(error, message, relay_message_text(message));
    const char *reason = error_reason(code);
    if (reason != NULL) RELAY_SET(error, reason, relay_message_text(reason));
    if (retry_after_ms != 0) RELAY_SET(error, retry_after_ms, retry_after_ms);
    delta->error = error;
}

static void send_delta(relay_session *session, Relay__V1__SessionDelta *delta) {
    Relay__V1__SessionResponse m = RELAY__V1__SESSION_RESPONSE__INIT;
    m.n_deltas = 1;
    m.deltas = &delta;
    send_message(session, &m, relay_mono_now());
}

// ---- Events: publisher thread

// A failure is of the whole request: its last part tells it.
static Relay__V1__SessionDelta *tell(relay_answer *a, relay_answer_part *p, const char *pod) {
    Relay__V1__SessionDelta *delta = &p->delta;
    relay__v1__session_delta__init(delta);
    RELAY_SET(delta, stream_key, a->request.stream_key);
    // All scores at once: the engine never runs far ahead of the publisher.
    delta->response = relay_answer_tell(a, p, UINT32_MAX, pod);
    bool has_failed = a->is_ended && a->end.kind == RELAY_EVENT_FAILED;
    if (has_failed && p == a->parts + a->n_parts - 1) {
        put_error(delta, &a->error, a->end.code, a->end.message, 0);
    }
    return delta->response == NULL && delta->error == NULL ? NULL : delta;
}

static void add_delta(relay_session *session, uint32_t n, Relay__V1__SessionDelta *delta) {
    if (n == session->deltas_cap) {
        session->deltas_cap = session->deltas_cap == 0 ? 32 : 2 * session->deltas_cap;
        session->deltas =
            relay_realloc(session->deltas, (uint64_t)session->deltas_cap * sizeof(Relay__V1__SessionDelta *));
    }
    session->deltas[n] = delta;
}

static uint32_t collect(relay_session *session, relay_answer *touched) {
    uint32_t n = 0;
    for (relay_answer *a = touched; a != NULL; a = a->next_touched) {
        for (uint32_t i = 0; i < a->n_parts; i++) {
            Relay__V1__SessionDelta *delta = tell(a, &a->parts[i], session->stream.service->pod);
            if (delta != NULL) add_delta(session, n++, delta);
        }
    }
    return n;
}

static void flush(relay_answer_stream *stream, uint64_t step) {
    relay_session *session = (relay_session *)stream;
    relay_answer *touched = stream->touched;
    stream->touched = NULL;

    Relay__V1__SessionResponse m = RELAY__V1__SESSION_RESPONSE__INIT;
    m.n_deltas = collect(session, touched);
    m.deltas = session->deltas;
    RELAY_SET(&m, step, step);

    relay_answer *ended = NULL;
    pthread_mutex_lock(&stream->lock);
    if (m.n_deltas != 0) send_message(session, &m, relay_mono_now());
    for (relay_answer *a = touched, *next; a != NULL; a = next) {
        next = a->next_touched;
        a->is_touched = false;
        if (!a->is_ended) continue;
        *find_slot(session, a->request.stream_key) = a->next_in_bucket;
        session->n_answers--;
        a->next_touched = ended;
        ended = a;
    }
    if (ended != NULL) finish_if_done(session);
    pthread_mutex_unlock(&stream->lock);
    // The last of them may free the session.
    for (relay_answer *next; ended != NULL; ended = next) {
        next = ended->next_touched;
        relay_answer_release(ended);
    }
}

// ---- Timer

void relay_session_tick(relay_session *session, relay_mono_us now) {
    relay_model_service *s = session->stream.service;
    pthread_mutex_lock(&session->stream.lock);
    bool drain_is_news = atomic_load(&s->is_draining) && !session->is_draining_told;
    if (!session->is_greeted) {
        if (now - session->opened_at >= HELLO_WITHIN_US) {
            relay_err e;
            finish(session, relay_fail(&e, RELAY_FAILED_PRECONDITION, "no hello came within 5 s"), &e);
        }
    } else if (drain_is_news || now - session->sent_at >= SILENCE_US) {
        relay_engine_load load;
        relay_engine_get_load(s->serving.engine, &load);
        Relay__V1__SessionResponse m = RELAY__V1__SESSION_RESPONSE__INIT;
        RELAY_SET(&m, step, load.step);
        send_message(session, &m, now);
        finish_if_done(session);
    }
    pthread_mutex_unlock(&session->stream.lock);
}

// ---- Commands: queue thread, under stream.lock

static relay_code take_hello(relay_session *session, const Relay__V1__SessionHello *m, relay_err *e) {
    const relay_serving *serving = relay_model_service_serving(session->stream.service, e);
    if (serving == NULL) return RELAY_UNAVAILABLE;
    relay_code code = relay_model_service_check(&m->base, e);
    if (code != RELAY_OK) return code;
    if (session->is_greeted) return relay_fail(e, RELAY_FAILED_PRECONDITION, "hello came twice");
    if (!m->has_tokenizer_fingerprint) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "hello.tokenizer_fingerprint is not set");
    }
    code = relay_fingerprint_check(m->tokenizer_fingerprint.data, m->tokenizer_fingerprint.len,
                                   serving->rules.fingerprint, e);
    if (code != RELAY_OK) return code;
    session->is_greeted = true;

    RELAY_LOG(RELAY_LOG_INFO, "session opened", "peer=%s client=%.*s build=%.*s",
              relay_rpc_call_peer(session->stream.call), (int)m->client.len, (const char *)m->client.data,
              (int)m->build.len, (const char *)m->build.data);

    relay_engine_load load;
    relay_engine_get_load(serving->engine, &load);
    Relay__V1__SessionWelcome welcome = RELAY__V1__SESSION_WELCOME__INIT;
    welcome.info = (Relay__V1__GetModelInfoResponse *)(uintptr_t)&serving->info_message;
    Relay__V1__SessionResponse response = RELAY__V1__SESSION_RESPONSE__INIT;
    response.welcome = &welcome;
    RELAY_SET(&response, step, load.step);
    send_message(session, &response, relay_mono_now());
    return RELAY_OK;
}

// W3C Trace Context: version "-" trace-id "-" parent-id "-" flags, lower-case hexadecimal.
static relay_code read_traceparent(char trace_id[33], ProtobufCBinaryData value, relay_err *e) {
    static const char form[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    bool is_valid = value.len == sizeof form - 1;
    for (size_t i = 0; is_valid && i < value.len; i++) {
        char c = (char)value.data[i];
        bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        is_valid = form[i] == 'x' ? is_hex : c == form[i];
    }
    if (!is_valid) return relay_fail(e, RELAY_INVALID_ARGUMENT, "start.traceparent is not of the form %s", form);
    memcpy(trace_id, value.data + 3, 32);
    trace_id[32] = '\0';
    return RELAY_OK;
}

static relay_code read_start(relay_answer *a, const Relay__V1__SessionStart *m, const relay_request_rules *rules,
                             relay_err *e) {
    relay_code code = relay_model_service_check(&m->base, e);
    if (code != RELAY_OK) return code;
    if (m->request == NULL) return relay_fail(e, RELAY_INVALID_ARGUMENT, "start.request is not set");
    relay_request *r = &a->request;
    code = relay_request_read(r, m->request, rules, e);
    if (code != RELAY_OK) return code;
    r->owner = a;
    r->stream_key = m->stream_key;
    if (m->has_deadline_ms) r->deadline = r->received_at + (int64_t)m->deadline_ms * 1000;
    if (m->has_initial_credit) r->initial_credit = m->initial_credit;
    code = relay_request_set_tenant(r, m->request, m->has_tenant, m->tenant, "start.tenant", e);
    if (code == RELAY_OK && m->has_traceparent) code = read_traceparent(a->trace_id, m->traceparent, e);
    return code;
}

static relay_code start_sequence(relay_session *session, const Relay__V1__SessionStart *m, relay_err *e) {
    relay_answer **slot = find_slot(session, m->stream_key);
    if (*slot != NULL) {
        return relay_fail(e, RELAY_ALREADY_EXISTS, "start.stream_key %llu is in use on this stream",
                          (unsigned long long)m->stream_key);
    }
    relay_answer *a = relay_answer_create();
    relay_code code = read_start(a, m, &session->stream.service->serving.rules, e);
    if (code == RELAY_OK) code = relay_answer_submit(a, &session->stream, e);
    if (code != RELAY_OK) {
        relay_answer_destroy(a);
        return code;
    }
    *slot = a;
    session->n_answers++;
    return RELAY_OK;
}

static relay_code take_start(relay_session *session, const Relay__V1__SessionStart *m, relay_err *e) {
    if (!m->has_stream_key) return relay_fail(e, RELAY_INVALID_ARGUMENT, "start.stream_key is not set");
    relay_err start_error = {0};
    relay_code code = start_sequence(session, m, &start_error);
    Relay__V1__SessionDelta delta = RELAY__V1__SESSION_DELTA__INIT;
    Relay__V1__SessionError error;
    RELAY_SET(&delta, stream_key, m->stream_key);
    if (code == RELAY_OK) {
        RELAY_SET(&delta, accepted, 1);
    } else {
        put_error(&delta, &error, code, start_error.message, start_error.retry_after_ms);
    }
    send_delta(session, &delta);
    return RELAY_OK;
}

// A sequence that has just ended is unknown here while the client cannot know it: no error.
static relay_code take_cancel(relay_session *session, const Relay__V1__SessionCancel *m, relay_err *e) {
    relay_code code = relay_model_service_check(&m->base, e);
    if (code != RELAY_OK) return code;
    if (!m->has_stream_key) return relay_fail(e, RELAY_INVALID_ARGUMENT, "cancel.stream_key is not set");
    const relay_answer *a = *find_slot(session, m->stream_key);
    if (a != NULL) relay_engine_cancel(session->stream.service->serving.engine, a->engine_key);
    return RELAY_OK;
}

static relay_code take_credit(relay_session *session, const Relay__V1__SessionCredit *m, relay_err *e) {
    relay_code code = relay_model_service_check(&m->base, e);
    if (code != RELAY_OK) return code;
    if (!m->has_stream_key) return relay_fail(e, RELAY_INVALID_ARGUMENT, "credit.stream_key is not set");
    if (!m->has_tokens) return relay_fail(e, RELAY_INVALID_ARGUMENT, "credit.tokens is not set");
    const relay_answer *a = *find_slot(session, m->stream_key);
    if (a != NULL) relay_engine_add_credit(session->stream.service->serving.engine, a->engine_key, m->tokens);
    return RELAY_OK;
}

static relay_code take_command(relay_session *session, const Relay__V1__SessionRequest *m, relay_err *e) {
    if (m->command_case == RELAY__V1__SESSION_REQUEST__COMMAND__NOT_SET) {
        relay_code code = relay_model_service_check(&m->base, e);
        return code != RELAY_OK ? code : relay_fail(e, RELAY_INVALID_ARGUMENT, "the message holds no command");
    }
    bool is_hello = m->command_case == RELAY__V1__SESSION_REQUEST__COMMAND_HELLO;
    if (!session->is_greeted && !is_hello) {
        return relay_fail(e, RELAY_FAILED_PRECONDITION, "the first command of a session must be hello");
    }
    switch (m->command_case) {
    case RELAY__V1__SESSION_REQUEST__COMMAND_HELLO:
        return take_hello(session, m->hello, e);
    case RELAY__V1__SESSION_REQUEST__COMMAND_START:
        return take_start(session, m->start, e);
    case RELAY__V1__SESSION_REQUEST__COMMAND_CANCEL:
        return take_cancel(session, m->cancel, e);
    case RELAY__V1__SESSION_REQUEST__COMMAND_CREDIT:
        return take_credit(session, m->credit, e);
    default:
        return RELAY_OK; // NOT_SET, answered above
    }
}

// ---- The call

static void on_start(relay_rpc_call *call) {
    relay_session *session = relay_calloc(1, sizeof *session);
    relay_model_service *s = relay_rpc_call_service(call);
    session->stream.call = call;
    session->stream.service = s;
    session->stream.flush = flush;
    session->opened_at = relay_mono_now();
    pthread_mutex_init(&session->stream.lock, NULL);
    relay_rpc_call_set_data(call, session);
    pthread_mutex_lock(&s->sessions_lock);
    session->next = s->sessions;
    if (session->next != NULL) session->next->prev = session;
    s->sessions = session;
    pthread_mutex_unlock(&s->sessions_lock);
}

static void on_message(relay_rpc_call *call, ProtobufCMessage *message) {
    relay_session *session = relay_rpc_call_data(call);
    relay_err e = {0};
    pthread_mutex_lock(&session->stream.lock);
    if (!session->stream.is_over) {
        relay_code code = take_command(session, (const Relay__V1__SessionRequest *)message, &e);
        if (code != RELAY_OK) finish(session, code, &e);
    }
    pthread_mutex_unlock(&session->stream.lock);
}

static void on_half_close(relay_rpc_call *call) {
    relay_session *session = relay_rpc_call_data(call);
    pthread_mutex_lock(&session->stream.lock);
    session->is_half_closed = true;
    finish_if_done(session);
    pthread_mutex_unlock(&session->stream.lock);
}

static void on_cancel(relay_rpc_call *call) {
    relay_session *session = relay_rpc_call_data(call);
    pthread_mutex_lock(&session->stream.lock);
    give_up(session);
    pthread_mutex_unlock(&session->stream.lock);
}

static void on_destroy(relay_rpc_call *call) {
    relay_session *session = relay_rpc_call_data(call);
    relay_model_service *s = session->stream.service;
    pthread_mutex_lock(&s->sessions_lock);
    if (session->next != NULL) session->next->prev = session->prev;
    *(session->prev != NULL ? &session->prev->next : &s->sessions) = session->next;
    pthread_mutex_unlock(&s->sessions_lock);
    if (session->is_greeted) {
        RELAY_LOG(RELAY_LOG_INFO, "session closed", "peer=%s", relay_rpc_call_peer(call));
    }
    pthread_mutex_destroy(&session->stream.lock);
    free(session->deltas);
    free(session);
}

const relay_rpc_method relay_session_method = {
    .path = "/" RELAY_MODEL_SERVICE_NAME "/Session",
    .kind = RELAY_RPC_BIDI,
    .request = &relay__v1__session_request__descriptor,
    .response = &relay__v1__session_response__descriptor,
    .on_start = on_start,
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_cancel = on_cancel,
    .on_destroy = on_destroy,
};
