// One Generate call from its prompt to the end of its last answer: what the model pod sends becomes what the client
// reads.
//
// Made on a queue thread, prepared and started on a worker, then driven by the link's thread alone; on_cancel may come
// from a queue thread at any time. It belongs to its call and is destroyed with it.
#ifndef RELAY_TOKENIZER_SVC_GENERATION_H
#define RELAY_TOKENIZER_SVC_GENERATION_H

#include "common/metrics.h"
#include "common/rpc_server.h"
#include "relay/v1/generation.pb-c.h"
#include "tokenizer_svc/model_link.h"
#include "tokenizer_svc/prompt.h"
#include "tokenizer_svc/text_model.h"

enum {
    RELAY_REQUEST_ID_MAX_BYTES = 256,
    RELAY_MAX_ANSWERS = 128, // of one call
    RELAY_GENERATION_FINISH_REASONS = RELAY__V1__FINISH_REASON__FINISH_REASON_DRAINED + 1,
};

typedef struct relay_generation relay_generation;

// Shared by all generations; every pointer may be NULL.
typedef struct relay_generation_metrics {
    relay_counter *finished[RELAY_GENERATION_FINISH_REASONS]; // by FinishReason
    relay_counter *failed, *slow_readers;
    relay_counter *prompt_tokens, *output_tokens;
    relay_histogram *first_token_seconds, *total_seconds;
} relay_generation_metrics;

relay_generation *relay_generation_create(relay_rpc_call *call, const relay_text_model *model, relay_model_link *link,
                                          const relay_generation_metrics *metrics);
void relay_generation_destroy(relay_generation *g);

// What the request asks of the answer; copies what it needs. Errors name the field.
relay_code relay_generation_prepare(relay_generation *g, const Relay__V1__GenerateRequest *m,
                                    const relay_prompt *prompt, relay_err *e) RELAY_NODISCARD;
// The ids that end the answer beside the model's own: the client's, and the one that the chat's template ends a turn
// with. Valid after prepare.
const uint32_t *relay_generation_stop_ids(const relay_generation *g, size_t *n);
// As the client gave it, or made up: the same in the logs of both services. Valid after prepare.
const char *relay_generation_request_id(const relay_generation *g);
// Hands it to a model pod. On OK the call is answered from the link's thread. The caller holds a reference of the call.
relay_code relay_generation_start(relay_generation *g, const Relay__V1__GenerateTokensRequest *request,
                                  relay_err *e) RELAY_NODISCARD;
// The client has gone.
void relay_generation_cancel(relay_generation *g);

#endif
