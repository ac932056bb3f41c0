// TokenizerService over gRPC: Tokenize, TokenizeBatch, RenderChat, Detokenize, DetokenizeStep, GetTokenizerInfo.
//
// Keeps nothing between calls. Every call's work is done on a worker; queue threads only hand over.
#ifndef RELAY_TOKENIZER_SVC_SERVICE_H
#define RELAY_TOKENIZER_SVC_SERVICE_H

#include <stdint.h>

#include "common/rpc_server.h"
#include "tokenizer_svc/text_model.h"
#include "tokenizer_svc/workers.h"

#define RELAY_TOKENIZER_SERVICE_NAME "relay.v1.TokenizerService"

typedef struct relay_tokenizer_service relay_tokenizer_service;

typedef struct relay_tokenizer_service_opts {
    const relay_text_model *model; // borrowed
    relay_workers *workers;        // borrowed
    uint64_t max_text_bytes;       // of all texts of one request
} relay_tokenizer_service_opts;

// Adds its methods to `server`, which must not have started.
relay_tokenizer_service *relay_tokenizer_service_create(relay_rpc_server *server,
                                                        const relay_tokenizer_service_opts *opts);
// After the server's drain. NULL is fine.
void relay_tokenizer_service_destroy(relay_tokenizer_service *s);

#endif
