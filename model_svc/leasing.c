// ForkSequence and ReleaseSequence: asked of the engine, answered by its event.
#include <stdlib.h>

#include "common/message.h"
#include "model_svc/service_internal.h"

// A call on its way through the engine.
typedef struct lease_rpc {
    relay_lease_call call;
    relay_rpc_call *rpc; // with a reference
} lease_rpc;

// The name that the two labels make. `out` keeps nothing of them.
static relay_code read_key(relay_sequence_key *out, const char *field, protobuf_c_boolean has_id,
                           ProtobufCBinaryData id, protobuf_c_boolean has_tenant, ProtobufCBinaryData tenant,
                           relay_err *e) {
    relay_request labels = {0};
    relay_arena_init(&labels.arena, 4 * RELAY_MAX_LABEL_BYTES);
    relay_code code = relay_request_label(&labels, &labels.sequence_id, has_id, id, field, e);
    if (code == RELAY_OK) code = relay_request_label(&labels, &labels.tenant, has_tenant, tenant, "tenant", e);
    if (code == RELAY_OK && labels.sequence_id[0] == '\0') {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is empty", field);
    }
    if (code == RELAY_OK) *out = relay_sequence_key_of(labels.tenant, labels.sequence_id);
    relay_arena_fini(&labels.arena);
    return code;
}

static relay_code read_fork(relay_lease_call *out, const Relay__V1__ForkSequenceRequest *m,
                            const relay_request_rules *rules, relay_err *e) {
    relay_code code =
        read_key(&out->from, "sequence_id", m->has_sequence_id, m->sequence_id, m->has_tenant, m->tenant, e);
    if (code != RELAY_OK) return code;
    code =
        read_key(&out->to, "new_sequence_id", m->has_new_sequence_id, m->new_sequence_id, m->has_tenant, m->tenant, e);
    if (code != RELAY_OK) return code;
    if (!m->has_lease_ms || m->lease_ms == 0) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "lease_ms is 0; allowed is 1 and more");
    }
    uint32_t ms = m->lease_ms < rules->max_lease_ms ? m->lease_ms : rules->max_lease_ms;
    out->lease_us = (int64_t)ms * 1000;
    out->is_fork = true;
    return RELAY_OK;
}

static relay_code read_release(relay_lease_call *out, const Relay__V1__ReleaseSequenceRequest *m, relay_err *e) {
    return read_key(&out->from, "sequence_id", m->has_sequence_id, m->sequence_id, m->has_tenant, m->tenant, e);
}

static void on_message(relay_rpc_call *rpc, ProtobufCMessage *m) {
    relay_model_service *s = relay_rpc_call_service(rpc);
    lease_rpc *l = relay_calloc(1, sizeof *l);
    l->rpc = rpc;
    l->call.owner = l;
    relay_err e = {0};
    const relay_serving *serving = relay_model_service_serving(s, &e);
    relay_code code = serving == NULL ? RELAY_UNAVAILABLE : relay_model_service_check(m, &e);
    if (code == RELAY_OK && m->descriptor == &relay__v1__fork_sequence_request__descriptor) {
        code = read_fork(&l->call, (const Relay__V1__ForkSequenceRequest *)m, &serving->rules, &e);
    } else if (code == RELAY_OK) {
        code = read_release(&l->call, (const Relay__V1__ReleaseSequenceRequest *)m, &e);
    }
    relay_rpc_call_ref(rpc); // before the engine may answer
    if (code == RELAY_OK) code = relay_engine_lease(serving->engine, &l->call, &e);
    if (code == RELAY_OK) return;
    relay_rpc_call_finish(rpc, code, &e);
    relay_rpc_call_unref(rpc);
    free(l);
}

void relay_lease_reply(relay_lease_call *call) {
    lease_rpc *l = call->owner;
    if (call->is_fork) {
        Relay__V1__ForkSequenceResponse response = RELAY__V1__FORK_SEQUENCE_RESPONSE__INIT;
        RELAY_SET(&response, cached_tokens, call->n_tokens);
        relay_rpc_call_reply(l->rpc, &response.base);
    } else {
        Relay__V1__ReleaseSequenceResponse response = RELAY__V1__RELEASE_SEQUENCE_RESPONSE__INIT;
        RELAY_SET(&response, found, call->found);
        relay_rpc_call_reply(l->rpc, &response.base);
    }
    relay_rpc_call_unref(l->rpc);
    free(l);
}

const relay_rpc_method relay_fork_sequence_method = {
    .path = "/" RELAY_MODEL_SERVICE_NAME "/ForkSequence",
    .kind = RELAY_RPC_UNARY,
    .request = &relay__v1__fork_sequence_request__descriptor,
    .response = &relay__v1__fork_sequence_response__descriptor,
    .on_message = on_message,
};

const relay_rpc_method relay_release_sequence_method = {
    .path = "/" RELAY_MODEL_SERVICE_NAME "/ReleaseSequence",
    .kind = RELAY_RPC_UNARY,
    .request = &relay__v1__release_sequence_request__descriptor,
    .response = &relay__v1__release_sequence_response__descriptor,
    .on_message = on_message,
};
