// The way to the model pods: one long Session stream to each, over which every generation of this process goes.
//
// A thread a pod keeps its stream up: it opens, says hello with the vocabulary's fingerprint, and after a loss tries
// again with growing pauses. What comes back is handed to the generation it belongs to on the client's thread of that
// pod, one call at a time.
//
// Which pod: one that is ready and not draining. With a sequence id by rendezvous hashing (Thaler and Ravishankar
// 1996), so that the turns of a conversation come to the pod that has its prefix, from whichever process they are sent;
// without one the least loaded.
#ifndef RELAY_TOKENIZER_SVC_MODEL_LINK_H
#define RELAY_TOKENIZER_SVC_MODEL_LINK_H

#include <stdint.h>

#include "common/clock.h"
#include "common/status.h"
#include "relay/v1/model.pb-c.h"

enum { RELAY_MAX_MODEL_SERVERS = 64 };

typedef struct relay_model_link relay_model_link;

typedef struct relay_model_link_opts {
    const char *const *addresses; // [n_addresses], borrowed; "host:port"
    uint32_t n_addresses;         // 1..RELAY_MAX_MODEL_SERVERS
    const char *client;           // what this process calls itself
    const uint8_t *fingerprint;   // [RELAY_FINGERPRINT_BYTES] of the vocabulary, borrowed
    uint32_t keepalive_ms;        // 0: the client's default
    // Called when the number of ready pods has changed, on threads of the link, one call at a time. It must not call
    // the link.
    void (*on_ready_pods)(void *arg, uint32_t n_ready);
    void *arg;
} relay_model_link_opts;

relay_model_link *relay_model_link_create(const relay_model_link_opts *opts);
// When no generation is running any more. Joins its threads.
void relay_model_link_destroy(relay_model_link *link);

typedef struct relay_link_handler {
    // News of one generation; the message is borrowed until it returns. With `finished` set it is the last of its
    // answer: of the last answer's it is the last of all.
    void (*on_response)(void *arg, const Relay__V1__GenerateTokensResponse *response);
    // Last of all: refused, failed, or its pod was lost.
    void (*on_error)(void *arg, relay_code code, const relay_err *e);
} relay_link_handler;

// Names a generation; stays harmless after its end.
typedef struct relay_link_ticket {
    uint32_t pod;
    uint64_t stream_key; // 0: none
} relay_link_ticket;

// Thread-safe. On OK exactly one last call of `handler` follows (it may come before this returns), on failure none.
// UNAVAILABLE where no pod is ready; FAILED_PRECONDITION where the pods there are serve another vocabulary. *ticket is
// set before the first call of the handler.
relay_code relay_model_link_start(relay_model_link *link, const Relay__V1__GenerateTokensRequest *request,
                                  relay_mono_us deadline, const relay_link_handler *handler, void *arg,
                                  relay_link_ticket *ticket, relay_err *e) RELAY_NODISCARD;
// Thread-safe, idempotent. The generation ends with what the model server says to that.
void relay_model_link_cancel(relay_model_link *link, relay_link_ticket ticket);

// What the ready pods say.
typedef struct relay_link_summary {
    uint32_t ready_pods;
    uint32_t max_context; // the smallest; 0 where no pod is ready
} relay_link_summary;
void relay_model_link_get_summary(relay_model_link *link, relay_link_summary *out);

#endif
