// What the engine tells about a request: plain data, in the order in which it happened.
#ifndef RELAY_MODEL_SVC_EVENT_H
#define RELAY_MODEL_SVC_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/kernels.h"
#include "model_svc/request.h"

// The values are those of the contract's FinishReason.
typedef enum relay_finish {
    RELAY_FINISH_NONE = 0,
    RELAY_FINISH_EOS = 1,
    RELAY_FINISH_STOP_TOKEN = 2,
    RELAY_FINISH_STOP_SEQUENCE = 3,
    RELAY_FINISH_MAX_NEW_TOKENS = 4,
    RELAY_FINISH_CONTEXT_FULL = 5,
    RELAY_FINISH_TIME_LIMIT = 6,
    RELAY_FINISH_CANCELLED = 7,
    RELAY_FINISH_CONSTRAINT_DONE = 8,
    RELAY_FINISH_DRAINED = 9,
} relay_finish;

typedef enum relay_event_kind {
    RELAY_EVENT_STARTED,  // an answer has been admitted: its first rows are in this step
    RELAY_EVENT_SCORE,    // `sample` is what the model made of prompt id `position`; in order, before the first token
    RELAY_EVENT_TOKEN,    // `sample` is its next token. An EOS or stop id that ends it is reported too.
    RELAY_EVENT_FINISHED, // its last: `finish` says why
    RELAY_EVENT_FAILED,   // the last of all answers of the request: `code` and `message`
    RELAY_EVENT_LEASE,    // of no request: `lease_call` is answered
} relay_event_kind;

// An answer that ends before it was admitted has its last event alone, without STARTED. The answers of a request tell
// theirs apart by index; the first one starts before the others.
typedef struct relay_event {
    relay_event_kind kind;
    relay_request *request; // borrowed until the event that is the last
    uint32_t index;         // of the answer, among those of the request
    bool is_last;           // of the request, which is the receiver's again
    uint64_t step;          // of the engine, from 1; between two steps the one that comes
    // STARTED
    uint32_t cached_tokens; // of the prompt, found in the cache
    // SCORE, TOKEN
    uint32_t position; // of the prompt, from 1
    relay_sample_result sample;
    // FINISHED
    relay_finish finish;
    uint32_t stop_cause;    // with EOS and STOP_TOKEN the id, with STOP_SEQUENCE its index in the request
    uint32_t output_tokens; // resumed ones included
    uint32_t preemptions;
    uint64_t queue_us, prefill_us, decode_us;
    // LEASE
    struct relay_lease_call *lease_call;
    // FAILED
    relay_code code;
    char message[RELAY_ERR_MESSAGE_MAX];
} relay_event;

#endif
