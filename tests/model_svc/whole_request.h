// A GenerateTokensRequest with every part there, the rules that the tests read it by, and what it became as text.
#ifndef RELAY_TESTS_MODEL_SVC_WHOLE_REQUEST_H
#define RELAY_TESTS_MODEL_SVC_WHOLE_REQUEST_H

#include "common/buf.h"
#include "model_svc/request_read.h"

enum { VOCAB = 1000, CONTEXT = 64 };

// With a cache of constraints from open() to close().
extern relay_request_rules whole_request_rules;
void whole_request_rules_open(void);
void whole_request_rules_close(void);

// A request with every part there and everything off.
typedef struct whole_request {
    Relay__V1__GenerateTokensRequest message;
    Relay__V1__SamplingParams sampling;
    Relay__V1__StopCriteria stop;
    Relay__V1__OutputOptions output;
    Relay__V1__CacheOptions cache;
    Relay__V1__BeamSearch beam_search;
    Relay__V1__Resume resume;
    Relay__V1__Mirostat mirostat;
    Relay__V1__Dry dry;
    Relay__V1__TokenBias bias, *biases[1];
    Relay__V1__TokenSequence stop_sequence, *stop_sequences[1];
    uint32_t stop_sequence_ids[2];
    uint32_t prompt[CONTEXT + 1], resumed[CONTEXT + 1];
} whole_request;

void whole_request_init(whole_request *r);
// With the parts that change an answer by being there.
void whole_request_init_deep(whole_request *r);
// Reads it; `out` says everything that it was read into.
relay_code read_and_describe(const whole_request *r, relay_buf *out, relay_err *e);
// Fails the test where it is not refused with `code` and a message that holds field, value and limit.
void expect_refusal(const whole_request *r, relay_code code, const char *field, const char *value, const char *limit);

// Memory that a set field points to.
typedef struct field_memory {
    uint32_t id;
    ProtobufCBinaryData text;
    _Alignas(16) char message[512];
    ProtobufCMessage *pointer;
} field_memory;

// Puts one value into the field: `value`, or the text "x", or an empty message.
void set_field(ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, double value, field_memory *memory);

#endif
