// One answer of a Generate call: the model's token ids in; text, details and the place where it ends out.
//
// What has come and is not told yet gathers here. One thread at a time.
#ifndef RELAY_TOKENIZER_SVC_ANSWER_H
#define RELAY_TOKENIZER_SVC_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/status.h"
#include "relay/v1/generation.pb-c.h"
#include "relay/v1/model.pb-c.h"
#include "tokenizer_svc/text_stream.h"

enum { RELAY_MAX_SAMPLER_STATE_BYTES = 64 };

typedef struct relay_answer_opts {
    relay_text_stream_opts text;
    const uint32_t *stop_ids; // [n_stop_ids], borrowed, outlive the answer: the client's and the template's
    size_t n_stop_ids;
    uint32_t min_new_tokens;
    bool wants_details, wants_logprobs;
    size_t max_text_bytes, max_detail_bytes; // of what waits to be told
} relay_answer_opts;

typedef struct relay_answer {
    relay_answer_opts opts;
    relay_text_stream *stream;
    relay_buf text; // not told yet
    relay_arena details_arena;
    Relay__V1__TokenDetail **details; // not told yet
    size_t n_details, details_cap;
    uint8_t sampler_state[RELAY_MAX_SAMPLER_STATE_BYTES]; // behind the last token taken; not told yet
    size_t n_sampler_state;
    uint32_t n_output; // resumed ones included
    bool is_stopped;   // a stop string has completed
    uint32_t stop_index;
} relay_answer;

// *a is zeroed before. `opts` but for the stop ids are copied as relay_text_stream_create does. Needs relay_answer_fini
// in any case.
relay_code relay_answer_init(relay_answer *a, const relay_answer_opts *opts, relay_err *e) RELAY_NODISCARD;
void relay_answer_fini(relay_answer *a);
// Brings text and counts to where a lost call left the client; nothing of it is told again. `ids` are below the
// vocabulary's size. INVALID_ARGUMENT where they complete a stop string.
relay_code relay_answer_resume(relay_answer *a, const uint32_t *ids, size_t n, relay_err *e) RELAY_NODISCARD;
// Ids from the model, below the vocabulary's size, up to the one that completes a stop string. RESOURCE_EXHAUSTED where
// what waits passes its bounds.
relay_code relay_answer_take(relay_answer *a, const Relay__V1__GenerateTokensResponse *r, relay_err *e) RELAY_NODISCARD;
// The model has ended: what the stream kept back is text.
void relay_answer_finish(relay_answer *a);
// What has gathered is told.
void relay_answer_clear(relay_answer *a);

#endif
