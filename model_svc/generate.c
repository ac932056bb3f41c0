// GenerateTokens: one request, one stream of answers.
#include <stdlib.h>

#include "common/message.h"
#include "model_svc/service_internal.h"

enum { MAX_PIECE_SCORES = 1000 }; // in one message: at 20 ids each it stays below 256 kB

typedef struct generate_call {
    relay_answer_stream stream;
    relay_answer *answer; // under stream.lock; NULL before it is submitted and after its end
} generate_call;

// Under the stream's lock.
static void give_up(generate_call *g) {
    g->stream.is_over = true;
    if (g->answer != NULL) relay_engine_cancel(g->stream.service->serving.engine, g->answer->engine_key);
}

static void tell(generate_call *g, const Relay__V1__GenerateTokensResponse *response) {
    if (g->stream.is_over || response == NULL) return;
    relay_code code = relay_rpc_call_send(g->stream.call, &response->base);
    if (code == RELAY_RESOURCE_EXHAUSTED) relay_answer_stream_cut(&g->stream);
    if (code != RELAY_OK) give_up(g);
}

static void finish(generate_call *g, const relay_event *end) {
    if (g->stream.is_over) return;
    g->stream.is_over = true;
    relay_err e = {0};
    relay_code code = RELAY_OK;
    if (end->kind == RELAY_EVENT_FAILED) code = relay_fail(&e, end->code, "%s", end->message);
    relay_rpc_call_finish(g->stream.call, code, &e);
}

// Publisher thread.
static void flush(relay_answer_stream *stream, uint64_t step) {
    generate_call *g = (generate_call *)stream;
    relay_answer *a = stream->touched;
    stream->touched = NULL;
    a->is_touched = false;
    bool is_ended = a->is_ended;
    pthread_mutex_lock(&stream->lock);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        Relay__V1__GenerateTokensResponse *r;
        while ((r = relay_answer_tell(a, &a->parts[i], MAX_PIECE_SCORES, stream->service->pod)) != NULL)
            tell(g, r);
    }
    if (is_ended) {
        finish(g, &a->end);
        g->answer = NULL;
    }
    pthread_mutex_unlock(&stream->lock);
    if (is_ended) relay_answer_release(a);
}

static relay_code start(generate_call *g, const Relay__V1__GenerateTokensRequest *m, relay_err *e) {
    relay_model_service *s = g->stream.service;
    const relay_serving *serving = relay_model_service_serving(s, e);
    if (serving == NULL) return RELAY_UNAVAILABLE;
    relay_code code = relay_model_service_check(&m->base, e);
    if (code != RELAY_OK) return code;
    relay_answer *a = relay_answer_create();
    code = relay_request_read(&a->request, m, &serving->rules, e);
    if (code != RELAY_OK) goto done;
    a->request.deadline = relay_rpc_call_deadline(g->stream.call);
    a->request.owner = a;
    pthread_mutex_lock(&g->stream.lock);
    code = relay_answer_submit(a, &g->stream, e);
    if (code == RELAY_OK) g->answer = a;
    pthread_mutex_unlock(&g->stream.lock);
done:
    if (code != RELAY_OK) relay_answer_destroy(a);
    return code;
}

static void on_message(relay_rpc_call *call, ProtobufCMessage *message) {
    generate_call *g = relay_calloc(1, sizeof *g);
    g->stream.call = call;
    g->stream.service = relay_rpc_call_service(call);
    g->stream.flush = flush;
    pthread_mutex_init(&g->stream.lock, NULL);
    relay_rpc_call_set_data(call, g);
    relay_err e = {0};
    relay_code code = start(g, (const Relay__V1__GenerateTokensRequest *)message, &e);
    if (code != RELAY_OK) relay_rpc_call_finish(call, code, &e);
}

static void on_cancel(relay_rpc_call *call) {
    generate_call *g = relay_rpc_call_data(call);
    if (g == NULL) return;
    pthread_mutex_lock(&g->stream.lock);
    give_up(g);
    pthread_mutex_unlock(&g->stream.lock);
}

static void on_destroy(relay_rpc_call *call) {
    generate_call *g = relay_rpc_call_data(call);
    if (g == NULL) return;
    pthread_mutex_destroy(&g->stream.lock);
    free(g);
}

const relay_rpc_method relay_generate_tokens_method = {
    .path = "/" RELAY_MODEL_SERVICE_NAME "/GenerateTokens",
    .kind = RELAY_RPC_SERVER_STREAM,
    .request = &relay__v1__generate_tokens_request__descriptor,
    .response = &relay__v1__generate_tokens_response__descriptor,
    .on_message = on_message,
    .on_cancel = on_cancel,
    .on_destroy = on_destroy,
};
