// One request on its way through the service: from the engine's events to the messages that the client gets. A request
// for several answers has a part for each.
//
// Made by the thread that takes the request (a queue thread), then owned by the publisher thread, which notes events,
// builds a message from what has been noted, and destroys it after its last event. Memory for a message lies in the
// answer itself and is used again: in the steady state a token costs no allocation.
#ifndef RELAY_MODEL_SVC_ANSWER_H
#define RELAY_MODEL_SVC_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "model_svc/event.h"
#include "model_svc/request.h"
#include "model_svc/sampler_state.h"
#include "relay/v1/model.pb-c.h"

enum { RELAY_SERVER_REQUEST_ID_BYTES = 16 };

typedef struct relay_answer_stream relay_answer_stream;

// One of the answers that the request asks for.
typedef struct relay_answer_part {
    uint32_t index;
    uint8_t sampler_state[RELAY_SAMPLER_STATE_BYTES]; // after the token noted last, where the sampler carries one
    // Noted and not yet told. Arrays of `cap` tokens; those of top logprobs n_top + n_wanted times as long.
    uint32_t n_tokens, cap;
    uint32_t *token_ids;
    float *logprobs;
    uint32_t *top_ids;
    float *top_logprobs;
    Relay__V1__TopLogprobs *tops;
    Relay__V1__TopLogprobs **top_pointers;
    bool is_finished; // `finish` is its last event
    bool is_finished_told;
    relay_event finish;
    // The message being built.
    Relay__V1__GenerateTokensResponse response;
    Relay__V1__TokensFinished finished;
    Relay__V1__RequestTimings timings;
    Relay__V1__SessionDelta delta;
} relay_answer_part;

typedef struct relay_answer {
    relay_request request; // its owner is this answer
    char server_request_id[2 * RELAY_SERVER_REQUEST_ID_BYTES + 1];
    char trace_id[33]; // of the caller's trace; "" if none
    uint64_t engine_key;
    bool is_submitted; // engine_key is valid

    // Who tells it, and the lists it is in. Guarded as said in service_internal.h.
    relay_answer_stream *stream;
    struct relay_answer *prev, *next;    // all answers of the service
    struct relay_answer *next_in_bucket; // of a session, by stream key
    struct relay_answer *next_touched;   // of a stream, with something to tell

    uint32_t cached_tokens;
    bool is_started;      // the engine has admitted it
    bool is_started_told; // and the client knows
    bool is_touched;
    bool is_ended; // `end` is its last event
    relay_event end;
    relay_mono_us first_token_at; // 0 before
    uint32_t output_tokens;       // of all that have ended
    uint32_t preemptions;         // likewise

    // Scores of the prompt that are noted, of which those before first_score are told; told_scores in all.
    uint32_t n_scores, first_score, scores_cap, told_scores;
    float *score_logprobs;
    uint32_t *score_ids; // [scores_cap][n_prompt_top]
    float *score_tops;   // likewise
    Relay__V1__TopLogprobs *score_messages;
    Relay__V1__TopLogprobs **score_pointers;
    Relay__V1__PromptLogprobs prompt_logprobs;

    uint32_t n_parts;
    relay_answer_part *parts; // [n_parts] by index, from request.sampling.sequence_index on
    Relay__V1__TokensStarted started;
    Relay__V1__SessionError error;
} relay_answer;

// With an id of its own; the request is still empty.
relay_answer *relay_answer_create(void);
// Also frees the request. NULL is fine.
void relay_answer_destroy(relay_answer *a);

// Before the first note, once the request is filled in.
void relay_answer_prepare(relay_answer *a);
void relay_answer_note(relay_answer *a, const relay_event *event);
// What has been noted of one part as a message, valid until the next note; NULL where there is nothing (more) to tell.
// It counts as told. With more than `max_scores` scores of the prompt it is the first of several. `pod` is borrowed.
Relay__V1__GenerateTokensResponse *relay_answer_tell(relay_answer *a, relay_answer_part *p, uint32_t max_scores,
                                                     const char *pod);
// One line for the log: counts and times, never tokens.
void relay_answer_log_end(const relay_answer *a);

#endif
