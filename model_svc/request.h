// One request as the engine takes it: checked, complete, immutable once submitted.
//
// Made by the service from a GenerateTokensRequest (request_read.c: every check and every default is there), submitted
// to the engine, and given back with its last event. What the sampler needs is already in relay_sample_params form.
#ifndef RELAY_MODEL_SVC_REQUEST_H
#define RELAY_MODEL_SVC_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/clock.h"
#include "kernels/kernels.h"
#include "model_svc/beam_search.h"
#include "model_svc/constraint/constraint_cache.h"
#include "model_svc/token_repeats.h"

enum {
    RELAY_MAX_STOP_TOKEN_IDS = 256,
    RELAY_MAX_LOGIT_BIAS = 1024,
    RELAY_MAX_STOP_SEQUENCES = 64,
    RELAY_MAX_STOP_SEQUENCE_IDS = 64,
    RELAY_MAX_SEQUENCES = 4096,  // of one request, and that any server computes at a time
    RELAY_MAX_LABEL_BYTES = 256, // of request_id, sequence_id and tenant
    RELAY_UNLIMITED_CREDIT = UINT32_MAX,
    RELAY_MAX_PRIORITY = 100, // and the least is this less than zero
    RELAY_SALT_BYTES = 32,    // of a prefix cache's salt: a SHA-256
};

// A sequence's name, the tenant's before it, as a hash; zero where it has none. Two with one hash share a lease at
// most.
typedef struct relay_sequence_key {
    uint64_t high, low;
} relay_sequence_key;

// Ids that end an answer when it ends with them.
typedef struct relay_stop_sequence {
    const uint32_t *ids;
    uint32_t n;
} relay_stop_sequence;

typedef struct relay_request {
    relay_arena arena;   // owns everything below, the struct itself not
    void *owner;         // the receiver's own: the call or stream it belongs to
    uint64_t stream_key; // Session: the client's key

    const char *request_id;  // for logs, "" if none; NUL-terminated, valid UTF-8
    const char *sequence_id; // "" if none
    const char *tenant;      // "" if none

    // The sequence so far. token_ids[0, n_prompt) is the prompt, [n_prompt, n_tokens) is output of a call that is
    // resumed: penalties, limits and draws count it as output, and it is not sent again.
    const uint32_t *token_ids;
    uint32_t n_prompt, n_tokens;

    // Answers over the one prompt, each with draws of its own: sampling.sequence_index is that of the first, the others
    // count on. At least 1.
    uint32_t n_sequences;

    // seed, temperature, ... of every draw; position and the step's arrays are filled in at each step (sequence.c).
    // mirostat_mu is the state before the first draw here.
    relay_sample_params sampling;
    uint32_t penalty_window;       // how many of the last ids penalties count; 0: all
    uint32_t no_repeat_ngram_size; // 0: off
    relay_dry dry;
    const relay_token_bias *logit_bias; // ids unique
    uint32_t n_logit_bias;
    // A bit an id of those that may ever be drawn, relay_mask_words(vocabulary) words; NULL where all may.
    const uint32_t *allowed;
    uint32_t n_allowed_words;
    bool scores_prompt; // the prompt's logprobs are told, with those of its n_prompt_top most likely ids
    uint32_t n_prompt_top;
    const uint32_t *wanted_ids; // whose logprobs are told with every token
    uint32_t n_wanted_ids;

    // Beam search in place of draws, over n_sequences beams of which the best is told: its memory, which the engine
    // writes; NULL: none.
    relay_beam_search *beams;
    relay_constraint_handle *constraint; // a reference; NULL where the output is free

    uint32_t max_new_tokens; // >= 1; the output's length where it ends, resumed ids included
    uint32_t min_new_tokens; // ids that end an answer are masked before
    const uint32_t *eos_ids; // ascending; none with ignore_eos
    uint32_t n_eos_ids;
    const uint32_t *stop_ids; // ascending; the request's own
    uint32_t n_stop_ids;
    const relay_stop_sequence *stop_sequences; // of the output, each of 1 to RELAY_MAX_STOP_SEQUENCE_IDS ids
    uint32_t n_stop_sequences;

    uint8_t salt[RELAY_SALT_BYTES];  // whose cached blocks it may share: those of requests with the same salt
    relay_sequence_key sequence_key; // of sequence_id
    int64_t lease_us;                // how long the first answer's blocks are kept after its end; 0: they are not
    bool bypass_prefix_cache;        // computes all of its prompt
    bool do_not_store;               // what it computes is not kept for others

    int32_t priority;            // a head start (sequence.h)
    relay_mono_us deadline;      // DEADLINE_EXCEEDED past it; RELAY_NEVER_US
    relay_mono_us time_limit_at; // ends with TIME_LIMIT and what there is; RELAY_NEVER_US
    uint32_t initial_credit;     // tokens of each answer before more credit; RELAY_UNLIMITED_CREDIT
    relay_mono_us received_at;

    bool is_final_only; // the receiver's own: one message at the end
} relay_request;

#endif
