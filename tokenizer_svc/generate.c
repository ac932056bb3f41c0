#include "tokenizer_svc/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/message.h"
#include "tokenizer_svc/breakers.h"
#include "tokenizer_svc/dispatch.h"
#include "tokenizer_svc/generation.h"
#include "tokenizer_svc/prompt.h"

struct relay_generation_service {
    relay_generation_service_opts opts;
    relay_generation_metrics metrics;
};

// ---- Generate

// The same request in token ids. Everything but the text is the model service's to check: it knows the limits. Borrows
// from `m` and `prompt`.
typedef struct model_request {
    Relay__V1__GenerateTokensRequest message;
    Relay__V1__SamplingParams sampling;
    Relay__V1__Dry dry;
    uint32_t *breaker_ids; // owned
    Relay__V1__StopCriteria stop;
    Relay__V1__OutputOptions output;
    Relay__V1__Resume resume;
} model_request;

static void put_stop(model_request *r, const Relay__V1__TextStop *stop, const relay_generation *g) {
    relay__v1__stop_criteria__init(&r->stop);
    r->stop.stop_token_ids = (uint32_t *)(uintptr_t)relay_generation_stop_ids(g, &r->stop.n_stop_token_ids);
    r->message.stop = &r->stop;
    if (stop == NULL) return;
    r->stop.has_max_new_tokens = stop->has_max_new_tokens;
    r->stop.max_new_tokens = stop->max_new_tokens;
    r->stop.has_min_new_tokens = stop->has_min_new_tokens;
    r->stop.min_new_tokens = stop->min_new_tokens;
    r->stop.has_ignore_eos = stop->has_ignore_eos;
    r->stop.ignore_eos = stop->ignore_eos;
}

// As it is, but for what is text: what breaks a repeat.
static relay_code put_sampling(model_request *r, const Relay__V1__SamplingParams *sampling, const relay_vocab *vocab,
                               relay_err *e) {
    if (sampling == NULL) return RELAY_OK;
    r->sampling = *sampling;
    r->message.sampling = &r->sampling;
    if (sampling->dry == NULL) return RELAY_OK;
    r->dry = *sampling->dry;
    r->sampling.dry = &r->dry;
    r->dry.n_breakers = 0;
    relay_code code = relay_breakers_make(&r->breaker_ids, &r->dry.n_breaker_token_ids, sampling->dry, vocab, e);
    r->dry.breaker_token_ids = r->breaker_ids;
    return code;
}

static void put_output(model_request *r, const Relay__V1__TextOutput *output) {
    if (output == NULL) return;
    relay__v1__output_options__init(&r->output);
    r->output.has_top_logprobs = output->has_top_logprobs;
    r->output.top_logprobs = output->top_logprobs;
    r->output.has_prompt_top_logprobs = output->has_prompt_top_logprobs;
    r->output.prompt_top_logprobs = output->prompt_top_logprobs;
    r->output.has_logprob_mode = output->has_logprob_mode;
    r->output.logprob_mode = output->logprob_mode;
    r->message.output = &r->output;
}

static relay_code make_model_request(model_request *r, const Relay__V1__GenerateRequest *m, const relay_prompt *prompt,
                                     const relay_vocab *vocab, const relay_generation *g, relay_err *e) {
    Relay__V1__GenerateTokensRequest *t = &r->message;
    r->breaker_ids = NULL;
    relay__v1__generate_tokens_request__init(t);
    RELAY_SET(t, request_id, relay_message_text(relay_generation_request_id(g)));
    t->n_prompt_token_ids = prompt->encoding.n;
    t->prompt_token_ids = prompt->encoding.ids;
    t->has_sequence_id = m->has_sequence_id;
    t->sequence_id = m->sequence_id;
    put_stop(r, m->stop, g);
    put_output(r, m->output);
    t->cache = m->cache;
    t->has_priority = m->has_priority;
    t->priority = m->priority;
    RELAY_SET(t, tokenizer_fingerprint, relay_message_bytes(relay_vocab_fingerprint(vocab), RELAY_FINGERPRINT_BYTES));
    t->has_num_sequences = m->has_num_sequences;
    t->num_sequences = m->num_sequences;
    t->has_time_limit_ms = m->has_time_limit_ms;
    t->time_limit_ms = m->time_limit_ms;
    if (m->n_resume_token_ids != 0 || m->has_resume_sampler_state) {
        relay__v1__resume__init(&r->resume);
        r->resume.has_sampler_state = m->has_resume_sampler_state;
        r->resume.sampler_state = m->resume_sampler_state;
        r->resume.n_generated_token_ids = m->n_resume_token_ids;
        r->resume.generated_token_ids = m->resume_token_ids;
        t->resume = &r->resume;
    }
    return put_sampling(r, m->sampling, vocab, e);
}

static relay_code generate(relay_rpc_call *call, const ProtobufCMessage *message, relay_err *e) {
    const relay_generation_service *s = relay_rpc_call_service(call);
    const relay_text_model *model = s->opts.model;
    relay_generation *g = relay_rpc_call_data(call);
    const Relay__V1__GenerateRequest *m = (const Relay__V1__GenerateRequest *)message;
    if (s->opts.link == NULL) {
        return relay_fail(e, RELAY_FAILED_PRECONDITION, "this service was started without --model-server");
    }
    relay_render_watch watch = {.is_over = relay_dispatch_is_over, .arg = call};
    relay_prompt prompt = {0};
    relay_code code = relay_text_model_check_name(model, m->has_model, m->model, e);
    if (code == RELAY_OK) code = relay_prompt_make(&prompt, model, m, s->opts.max_text_bytes, &watch, e);
    if (code == RELAY_OK) code = relay_generation_prepare(g, m, &prompt, e);
    if (code == RELAY_OK) {
        model_request request;
        code = make_model_request(&request, m, &prompt, relay_text_model_vocab(model), g, e);
        if (code == RELAY_OK) code = relay_generation_start(g, &request.message, e);
        free(request.breaker_ids);
    }
    relay_prompt_fini(&prompt);
    return code;
}

static void generate_on_message(relay_rpc_call *call, ProtobufCMessage *message) {
    const relay_generation_service *s = relay_rpc_call_service(call);
    relay_rpc_call_set_data(call, relay_generation_create(call, s->opts.model, s->opts.link, &s->metrics));
    relay_dispatch(s->opts.workers, call, false, generate);
}

static void generate_on_cancel(relay_rpc_call *call) {
    relay_generation *g = relay_rpc_call_data(call);
    if (g != NULL) relay_generation_cancel(g);
}

static void generate_on_destroy(relay_rpc_call *call) {
    relay_generation_destroy(relay_rpc_call_data(call));
}

// ---- ListModels

static relay_code list_models(relay_rpc_call *call, const ProtobufCMessage *message, relay_err *e) {
    const relay_generation_service *s = relay_rpc_call_service(call);
    relay_link_summary link = {0};
    if (s->opts.link != NULL) relay_model_link_get_summary(s->opts.link, &link);
    Relay__V1__ModelSummary summary = RELAY__V1__MODEL_SUMMARY__INIT;
    RELAY_SET(&summary, model, relay_message_text(relay_text_model_name(s->opts.model)));
    if (link.ready_pods != 0) RELAY_SET(&summary, max_context_tokens, link.max_context);
    RELAY_SET(&summary, has_chat_template, relay_text_model_has_chat_template(s->opts.model));
    RELAY_SET(&summary, ready_pods, link.ready_pods);
    Relay__V1__ModelSummary *models = &summary;
    Relay__V1__ListModelsResponse response = RELAY__V1__LIST_MODELS_RESPONSE__INIT;
    response.n_models = 1;
    response.models = &models;
    relay_rpc_call_reply(call, &response.base);
    return RELAY_OK;
}

static void list_models_on_message(relay_rpc_call *call, ProtobufCMessage *message) {
    const relay_generation_service *s = relay_rpc_call_service(call);
    relay_dispatch(s->opts.workers, call, false, list_models);
}

// ---- The service

static void make_metrics(relay_generation_metrics *g, relay_metrics *m) {
    for (int i = 0; i < RELAY_GENERATION_FINISH_REASONS; i++) {
        const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&relay__v1__finish_reason__descriptor, i);
        char labels[64];
        snprintf(labels, sizeof labels, "reason=\"%s\"", v->name + strlen("FINISH_REASON_"));
        g->finished[i] = relay_metrics_counter(m, "relay_generations_finished_total",
                                               "Answers that reached an end, by finish reason.", labels);
    }
    g->failed = relay_metrics_counter(m, "relay_generations_failed_total", "Answers that ended with an error.", NULL);
    g->slow_readers = relay_metrics_counter(m, "relay_slow_readers_total",
                                            "Calls that were cut off because their client did not read.", NULL);
    g->prompt_tokens = relay_metrics_counter(m, "relay_prompt_tokens_total", "Tokens of prompts.", NULL);
    g->output_tokens = relay_metrics_counter(m, "relay_output_tokens_total", "Tokens of answers.", NULL);
    g->first_token_seconds =
        relay_metrics_histogram(m, "relay_generate_first_token_seconds", "From the call's receipt to the first token.",
                                NULL, relay_latency_bounds, relay_latency_bounds_count);
    g->total_seconds =
        relay_metrics_histogram(m, "relay_generate_seconds", "From the call's receipt to the end of the answer.", NULL,
                                relay_latency_bounds, relay_latency_bounds_count);
}

relay_generation_service *relay_generation_service_create(relay_rpc_server *server,
                                                          const relay_generation_service_opts *opts) {
    relay_generation_service *s = relay_calloc(1, sizeof *s);
    s->opts = *opts;
    if (opts->metrics != NULL) make_metrics(&s->metrics, opts->metrics);
    const relay_rpc_method methods[] = {
        {
            .path = "/" RELAY_GENERATION_SERVICE_NAME "/Generate",
            .kind = RELAY_RPC_SERVER_STREAM,
            .request = &relay__v1__generate_request__descriptor,
            .response = &relay__v1__generate_response__descriptor,
            .service = s,
            .on_message = generate_on_message,
            .on_cancel = generate_on_cancel,
            .on_destroy = generate_on_destroy,
        },
        {
            .path = "/" RELAY_GENERATION_SERVICE_NAME "/ListModels",
            .kind = RELAY_RPC_UNARY,
            .request = &relay__v1__list_models_request__descriptor,
            .response = &relay__v1__list_models_response__descriptor,
            .service = s,
            .on_message = list_models_on_message,
        },
    };
    relay_rpc_server_add(server, methods, sizeof methods / sizeof methods[0]);
    return s;
}

void relay_generation_service_destroy(relay_generation_service *s) {
    free(s);
}
