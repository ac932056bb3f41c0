// From a stream of token ids to a stream of text: whole UTF-8 characters, special tokens skipped, stop strings found.
//
// Used by Generate (state in memory) and by DetokenizeStep (state in the caller's hands, relay_text_stream_save).
// Tokens run through the tokenizer's decoder (decoder.h): whole characters are emitted as soon as no later token can
// change them; bytes that are no UTF-8 are one U+FFFD for each maximal invalid part, at once. Stop strings are matched
// by Aho-Corasick over the emitted bytes; only a real partial match is held back. The earliest to complete wins (of
// those completing at the same byte the longest).
#ifndef RELAY_TOKENIZER_SVC_TEXT_STREAM_H
#define RELAY_TOKENIZER_SVC_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "common/vocab.h"
#include "tokenizer_svc/decoder.h"
#include "tokenizer_svc/stop_matcher.h"

enum { RELAY_MAX_DECODE_STATE_BYTES = 512, RELAY_PROMPT_TAIL = 8 };

typedef struct relay_text_stream relay_text_stream;

typedef struct relay_text_stream_opts {
    const relay_vocab *vocab;              // borrowed, outlives the stream
    const relay_text_decoder *decoder;     // borrowed as well; NULL: each token of `vocab` adds its bytes
    bool skip_special_tokens;              // CONTROL tokens add no text (a stop string equal to one's name still stops)
    const relay_stop_string *stop_strings; // copied
    uint32_t n_stop_strings;               // at most RELAY_MAX_STOP_STRINGS
    const char *stop_strings_field;        // what errors call them; NULL: stop_strings
    bool include_stop_string;              // the text ends behind the stop string rather than before it
    const uint32_t *prompt_tail; // the last ids of the prompt (RELAY_PROMPT_TAIL are enough), for what depends on it
    uint32_t n_prompt_tail;
} relay_text_stream_opts;

typedef struct relay_text_step {
    uint32_t tokens_consumed; // of this push, up to and including the one that completed a stop string
    bool is_stopped;          // a stop string completed; nothing more is taken
    uint32_t stop_index;      // which, where is_stopped
    uint32_t held_bytes;      // kept back: a character not whole, or the beginning of a stop string
} relay_text_step;

// Fails with INVALID_ARGUMENT naming the field (stop_strings[2]: empty, too long, not UTF-8; too many).
relay_code relay_text_stream_create(relay_text_stream **out, const relay_text_stream_opts *opts,
                                    relay_err *e) RELAY_NODISCARD;
void relay_text_stream_destroy(relay_text_stream *s);
// Takes ids (each < vocab size, checked by the caller) and appends whole characters to `text`. Stop strings are looked
// for only where `look_for_stops`, so that min_new_tokens can hold them off.
void relay_text_stream_push(relay_text_stream *s, const uint32_t *ids, uint32_t n, bool look_for_stops, relay_buf *text,
                            relay_text_step *step);
// The end of the answer: emits what is held (an unfinished character as U+FFFD).
void relay_text_stream_finish(relay_text_stream *s, relay_buf *text);

// State for the caller's hands: versioned, at most RELAY_MAX_DECODE_STATE_BYTES, no pointers, no secrets. It holds the
// vocabulary's fingerprint and a hash of the options, so that restoring it with others is refused: INVALID_ARGUMENT
// naming decode_state and what differs.
void relay_text_stream_save(const relay_text_stream *s, relay_buf *state);
relay_code relay_text_stream_restore(relay_text_stream *s, const uint8_t *state, size_t len,
                                     relay_err *e) RELAY_NODISCARD;

#endif
