// GenerationService over gRPC: Generate (text or chat in, text stream out) and ListModels.
//
//   queue thread   hands the message to a worker
//   worker         checks, renders, tokenizes, starts the generation at a model pod
//   link thread    token ids come back: text, stop strings, messages to the client
//
// Stop strings are found here and nowhere else: when one completes, the text behind it is dropped, the model is told to
// stop, and the answer ends with FINISH_REASON_STOP_SEQUENCE.
#ifndef RELAY_TOKENIZER_SVC_GENERATE_H
#define RELAY_TOKENIZER_SVC_GENERATE_H

#include <stdint.h>

#include "common/metrics.h"
#include "common/rpc_server.h"
#include "tokenizer_svc/model_link.h"
#include "tokenizer_svc/text_model.h"
#include "tokenizer_svc/workers.h"

#define RELAY_GENERATION_SERVICE_NAME "relay.v1.GenerationService"

typedef struct relay_generation_service relay_generation_service;

typedef struct relay_generation_service_opts {
    const relay_text_model *model; // borrowed, as what follows
    relay_workers *workers;
    relay_model_link *link;  // NULL: no model server is known, and Generate says so
    relay_metrics *metrics;  // may be NULL
    uint64_t max_text_bytes; // of a prompt
} relay_generation_service_opts;

// Adds its methods to `server`, which must not have started.
relay_generation_service *relay_generation_service_create(relay_rpc_server *server,
                                                          const relay_generation_service_opts *opts);
// After the server's drain. NULL is fine.
void relay_generation_service_destroy(relay_generation_service *s);

#endif
