// What the files of the service share.
//
// A call that gets answers is a relay_answer_stream: a GenerateTokens call has one answer, a Session any number. Each
// answer holds a reference of its call, so that the stream, which is freed by the call's on_destroy, outlives them.
//
// Locks, in the order in which they may be nested:
//   service.sessions_lock  the list of sessions (ticker; a session's start and end)
//   stream.lock            a stream's answers and flags, and the order of its messages. Held while a request is
//                          submitted, so that no event of it is handled before its key is known.
//   service.answers_lock   the list of all answers (Cancel)
// An answer's chain of touched ones, its noted events and its messages belong to the publisher thread alone.
#ifndef RELAY_MODEL_SVC_SERVICE_INTERNAL_H
#define RELAY_MODEL_SVC_SERVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "model_svc/answer.h"
#include "model_svc/request_read.h"
#include "model_svc/service.h"

enum { RELAY_POD_NAME_BYTES = 256 };

typedef struct relay_session relay_session;

struct relay_answer_stream {
    relay_rpc_call *call; // borrowed: it frees this
    relay_model_service *service;
    pthread_mutex_t lock;
    bool is_over; // nothing more is sent: cancelled, finished or cut off
    // Publisher thread only.
    void (*flush)(relay_answer_stream *stream, uint64_t step); // tells what its touched answers have noted
    relay_answer *touched;                                     // newest first
    relay_answer_stream *next_touched;
    bool is_touched;
};

// What is known once a model is loaded; written before `is_serving`.
typedef struct relay_serving {
    relay_engine *engine;
    const relay_model_info *info;
    const relay_vocab *vocab;
    const char *backend;
    relay_request_rules rules;
    Relay__V1__GetModelInfoResponse info_message; // points into the above and below
    Relay__V1__SamplingParams default_sampling;
    Relay__V1__Mirostat default_mirostat;
} relay_serving;

struct relay_model_service {
    relay_serving serving;
    atomic_bool is_serving, is_draining;
    char pod[RELAY_POD_NAME_BYTES];

    relay_constraint_cache *constraints; // made when serving begins

    pthread_mutex_t answers_lock;
    relay_answer *answers;

    pthread_mutex_t sessions_lock;
    pthread_cond_t wake_ticker; // with sessions_lock
    relay_session *sessions;
    bool is_stopping;
    pthread_t ticker;

    relay_counter *slow_readers; // NULL without a registry
};

extern const relay_rpc_method relay_generate_tokens_method, relay_session_method;
extern const relay_rpc_method relay_fork_sequence_method, relay_release_sequence_method;
extern const relay_rpc_method relay_get_model_info_method, relay_get_load_method;

// The engine and the rest, or NULL with an error while the model is being loaded.
const relay_serving *relay_model_service_serving(relay_model_service *s, relay_err *e);
// The checks that every message gets first: known fields and values, text that is UTF-8.
relay_code relay_model_service_check(const ProtobufCMessage *m, relay_err *e) RELAY_NODISCARD;

// Under the stream's lock: hands a filled-in request to the engine, with a reference of the call. On failure the answer
// stays the caller's.
relay_code relay_answer_submit(relay_answer *a, relay_answer_stream *stream, relay_err *e) RELAY_NODISCARD;
// Publisher thread, after an answer's last event was told and the stream's lock was released: logs, counts, frees, and
// drops its reference of the call, which may free the stream.
void relay_answer_release(relay_answer *a);

// Publisher thread: tells the caller what became of it. Frees it.
void relay_lease_reply(relay_lease_call *call);

// Under the stream's lock: ends the call of a client that does not read.
void relay_answer_stream_cut(relay_answer_stream *stream);

// Called by the ticker and when draining begins, under sessions_lock: tells the session what has changed, or that
// nothing has where it has been silent for a while.
void relay_session_tick(relay_session *session, relay_mono_us now);
// The next in the service's list.
relay_session *relay_session_next(const relay_session *session);

void relay_load_message(Relay__V1__Load *out, const relay_engine_load *load);
void relay_model_info_message(relay_serving *serving);

#endif
