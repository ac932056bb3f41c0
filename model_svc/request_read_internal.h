// What the files that read a request share: request_read.c walks the message, request_sampling.c reads how to draw,
// request_beams.c how to search.
#ifndef RELAY_MODEL_SVC_REQUEST_READ_INTERNAL_H
#define RELAY_MODEL_SVC_REQUEST_READ_INTERNAL_H

#include "model_svc/request_read.h"

relay_code relay_request_too_large(relay_err *e);
// INVALID_ARGUMENT naming the first id that is none of the vocabulary's.
relay_code relay_request_check_ids(const uint32_t *ids, size_t n, const char *field, uint32_t vocab_size,
                                   relay_err *e) RELAY_NODISCARD;
// A copy in the request's arena, ascending, each id once.
relay_code relay_request_copy_ids(relay_request *r, const uint32_t **out, uint32_t *n_out, const uint32_t *ids,
                                  size_t n, relay_err *e) RELAY_NODISCARD;

// `s` NULL: everything is the model's default. Needs the prompt and what is resumed.
relay_code relay_request_read_sampling(relay_request *r, const Relay__V1__SamplingParams *s,
                                       const Relay__V1__Resume *resume, const relay_request_rules *rules,
                                       relay_err *e) RELAY_NODISCARD;

// Last of all: what beam search needs and excludes.
relay_code relay_request_read_beams(relay_request *r, const Relay__V1__GenerateTokensRequest *m,
                                    const relay_request_rules *rules, relay_err *e) RELAY_NODISCARD;

#endif
