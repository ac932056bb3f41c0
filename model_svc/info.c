// GetModelInfo and GetLoad.
#include <string.h>

#include "common/message.h"
#include "common/version.h"
#include "model_svc/service_internal.h"

void relay_load_message(Relay__V1__Load *out, const relay_engine_load *load) {
    relay__v1__load__init(out);
    RELAY_SET(out, running, load->running);
    RELAY_SET(out, waiting, load->waiting);
    RELAY_SET(out, waiting_tokens, load->waiting_tokens);
    RELAY_SET(out, free_blocks, load->free_blocks);
    RELAY_SET(out, cached_blocks, load->cached_blocks);
    RELAY_SET(out, total_blocks, load->total_blocks);
    RELAY_SET(out, leased_sequences, load->leased_sequences);
    RELAY_SET(out, draining, load->is_draining);
    RELAY_SET(out, tokens_per_second, load->tokens_per_second);
    RELAY_SET(out, snapshot_unix_ms, load->unix_ms);
}

void relay_model_info_message(relay_serving *v) {
    const relay_model_info *info = v->info;
    Relay__V1__SamplingParams *sampling = &v->default_sampling;
    relay__v1__sampling_params__init(sampling);
    const relay_sample_params *p = &v->rules.defaults;
    RELAY_SET(sampling, temperature, p->temperature);
    RELAY_SET(sampling, top_k, p->top_k);
    RELAY_SET(sampling, top_p, p->top_p);
    RELAY_SET(sampling, min_p, p->min_p);
    RELAY_SET(sampling, typical_p, p->typical_p);
    RELAY_SET(sampling, repetition_penalty, p->repetition_penalty);
    RELAY_SET(sampling, frequency_penalty, p->frequency_penalty);
    RELAY_SET(sampling, presence_penalty, p->presence_penalty);
    RELAY_SET(sampling, penalty_window, v->rules.default_penalty_window);
    RELAY_SET(sampling, top_n_sigma, p->top_n_sigma);
    RELAY_SET(sampling, xtc_probability, p->xtc_probability);
    if (p->xtc_probability != 0) RELAY_SET(sampling, xtc_threshold, p->xtc_threshold);
    if (p->mirostat != 0) {
        relay__v1__mirostat__init(&v->default_mirostat);
        RELAY_SET(&v->default_mirostat, version, p->mirostat);
        RELAY_SET(&v->default_mirostat, tau, p->mirostat_tau);
        RELAY_SET(&v->default_mirostat, eta, p->mirostat_eta);
        sampling->mirostat = &v->default_mirostat;
    }

    uint32_t total_blocks = 0;
    for (uint32_t i = 0; i < info->n_groups; i++)
        total_blocks += info->groups[i].n_blocks;

    Relay__V1__GetModelInfoResponse *m = &v->info_message;
    relay__v1__get_model_info_response__init(m);
    RELAY_SET(m, model, relay_message_text(info->name));
    RELAY_SET(m, architecture, relay_message_text(info->architecture));
    RELAY_SET(m, tokenizer_fingerprint, relay_message_bytes(v->rules.fingerprint, RELAY_FINGERPRINT_BYTES));
    RELAY_SET(m, weights_fingerprint, relay_message_bytes(info->weights_fingerprint, sizeof info->weights_fingerprint));
    RELAY_SET(m, numerics_id, relay_message_text(info->numerics_id));
    RELAY_SET(m, vocab_size, info->vocab_size);
    RELAY_SET(m, max_context_tokens, info->max_context);
    m->n_eos_token_ids = v->rules.n_eos_ids;
    m->eos_token_ids = (uint32_t *)(uintptr_t)v->rules.eos_ids;
    uint32_t bos;
    if (relay_vocab_bos(v->vocab, &bos)) RELAY_SET(m, bos_token_id, bos);
    m->default_sampling = sampling;
    RELAY_SET(m, weight_format, relay_message_text(info->weight_format));
    RELAY_SET(m, kv_format, relay_message_text(relay_kv_type_name(info->kv_type)));
    RELAY_SET(m, backend, relay_message_text(v->backend));
    RELAY_SET(m, build, relay_message_text(RELAY_VERSION));
    RELAY_SET(m, block_tokens, RELAY_BLOCK_TOKENS);
    RELAY_SET(m, total_blocks, total_blocks);
}

static const relay_serving *check_call(relay_rpc_call *call, const ProtobufCMessage *message) {
    relay_err e = {0};
    relay_code code = relay_model_service_check(message, &e);
    const relay_serving *serving = NULL;
    if (code == RELAY_OK) {
        serving = relay_model_service_serving(relay_rpc_call_service(call), &e);
        code = e.code;
    }
    if (code != RELAY_OK) relay_rpc_call_finish(call, code, &e);
    return serving;
}

static void info_on_message(relay_rpc_call *call, ProtobufCMessage *message) {
    const relay_serving *serving = check_call(call, message);
    if (serving != NULL) relay_rpc_call_reply(call, &serving->info_message.base);
}

static void load_on_message(relay_rpc_call *call, ProtobufCMessage *message) {
    const relay_serving *serving = check_call(call, message);
    if (serving == NULL) return;
    relay_engine_load load;
    relay_engine_get_load(serving->engine, &load);
    Relay__V1__Load load_message;
    relay_load_message(&load_message, &load);
    Relay__V1__GetLoadResponse response = RELAY__V1__GET_LOAD_RESPONSE__INIT;
    response.load = &load_message;
    relay_rpc_call_reply(call, &response.base);
}

const relay_rpc_method relay_get_model_info_method = {
    .path = "/" RELAY_MODEL_SERVICE_NAME "/GetModelInfo",
    .kind = RELAY_RPC_UNARY,
    .request = &relay__v1__get_model_info_request__descriptor,
    .response = &relay__v1__get_model_info_response__descriptor,
    .on_message = info_on_message,
};

const relay_rpc_method relay_get_load_method = {
    .path = "/" RELAY_MODEL_SERVICE_NAME "/GetLoad",
    .kind = RELAY_RPC_UNARY,
    .request = &relay__v1__get_load_request__descriptor,
    .response = &relay__v1__get_load_response__descriptor,
    .on_message = load_on_message,
};
