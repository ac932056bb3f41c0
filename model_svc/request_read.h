// From a GenerateTokensRequest to a relay_request: every check and every default of the id-level contract.
//
// Pure: no thread, no clock but the time of receipt, no randomness but the seed of a request that names none.
#ifndef RELAY_MODEL_SVC_REQUEST_READ_H
#define RELAY_MODEL_SVC_REQUEST_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "model_svc/request.h"
#include "relay/v1/model.pb-c.h"

// What requests are checked against and completed with: the model that is served.
typedef struct relay_request_rules {
    uint32_t vocab_size;     // ids are below it
    uint32_t max_context;    // positions of one sequence
    uint32_t max_lease_ms;   // longer ones are cut to it
    const uint32_t *eos_ids; // ascending; borrowed, outlives every request
    uint32_t n_eos_ids;
    const uint8_t *fingerprint;          // [RELAY_FINGERPRINT_BYTES] of the vocabulary; borrowed likewise
    relay_constraint_cache *constraints; // borrowed likewise; never NULL
    relay_sample_params defaults;        // of the fields that a client may leave unset
    uint32_t default_penalty_window;
} relay_request_rules;

// Reads a message into *out, with its own copy of everything. Text fields have been checked to be UTF-8, enum values to
// be known. Every field is either used or refused:
//   INVALID_ARGUMENT     names the field, its value and what is allowed
//   FAILED_PRECONDITION  the ids belong to another vocabulary; names both fingerprints
//   RESOURCE_EXHAUSTED   larger than a request may be
// `received_at` is now; the deadline and credit of the call are the caller's to fill in, and its tenant to set. On
// failure *out needs no destroy.
relay_code relay_request_read(relay_request *out, const Relay__V1__GenerateTokensRequest *m,
                              const relay_request_rules *rules, relay_err *e) RELAY_NODISCARD;
// For whom the request `m` is; with it come the cached blocks that it may share. The label `field` is checked like any.
relay_code relay_request_set_tenant(relay_request *r, const Relay__V1__GenerateTokensRequest *m,
                                    protobuf_c_boolean is_set, ProtobufCBinaryData tenant, const char *field,
                                    relay_err *e) RELAY_NODISCARD;
// The name of a sequence, for leases. Zero where there is no id.
relay_sequence_key relay_sequence_key_of(const char *tenant, const char *sequence_id);
// A label of a message as text for logs: at most RELAY_MAX_LABEL_BYTES, no NUL; "" where it is unset.
relay_code relay_request_label(relay_request *r, const char **out, protobuf_c_boolean is_set, ProtobufCBinaryData value,
                               const char *field, relay_err *e) RELAY_NODISCARD;
// Frees what it owns. An empty one is fine.
void relay_request_fini(relay_request *r);

#endif
