// From token ids to text, as the tokenizer's file says: what HF tokenizers' decoders do, in a stream.
//
// HF's decoders take all tokens of a text at once. Here a decoder is a row of stages through which tokens pass one by
// one. Each remembers a few bytes at most, so that a stream can stop after any token, travel as a state (text_stream),
// and go on elsewhere; a stage keeps back only what a later token can still change. The text is HF's of the whole.
//
// A decoder is immutable; a relay_decode_run is one text on its way, of one thread at a time.
#ifndef RELAY_TOKENIZER_SVC_DECODER_H
#define RELAY_TOKENIZER_SVC_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"
#include "common/status.h"
#include "common/vocab.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_text_decoder relay_text_decoder;

// What is kept of the spec is copied. UNIMPLEMENTED for what no stream can do, by name: a regular expression, ByteLevel
// or ByteFallback behind a decoder that makes one token of all; an empty pattern; a state that would be too large.
relay_code relay_text_decoder_create(relay_text_decoder **out, const relay_tokenizer_spec *spec,
                                     relay_err *e) RELAY_NODISCARD;
void relay_text_decoder_destroy(relay_text_decoder *d);
// Whether the token is left out where special tokens are: an added token that is special. Any id.
bool relay_text_decoder_is_special(const relay_text_decoder *d, uint32_t id);
// Of everything that gives a saved state its meaning.
uint64_t relay_text_decoder_hash(const relay_text_decoder *d);

enum { RELAY_MAX_DECODE_RUN_BYTES = 420 };

typedef struct relay_decode_run relay_decode_run;

// Takes text, whole characters.
typedef void (*relay_decode_sink)(void *arg, const char *text, size_t len);

// `d` and `vocab` are borrowed and outlive the run. Where `d` is NULL each token of `vocab` adds its bytes, as those of
// byte-level vocabularies do.
relay_decode_run *relay_decode_run_create(const relay_text_decoder *d, const relay_vocab *vocab, relay_decode_sink sink,
                                          void *arg);
void relay_decode_run_destroy(relay_decode_run *r);
// An id without a token adds nothing.
void relay_decode_run_push(relay_decode_run *r, uint32_t id);
// The end of the text: what is kept back comes out. The run is as it was created, from the beginning.
void relay_decode_run_finish(relay_decode_run *r);
// Forgets everything: the run is as it was created.
void relay_decode_run_reset(relay_decode_run *r);
// Begins behind a prompt of which these are the last tokens, `is_all` if there were none before: nothing of it comes
// out but the character that its last token leaves unfinished.
void relay_decode_run_follow(relay_decode_run *r, const uint32_t *ids, uint32_t n, bool is_all);
// How many bytes are kept back, about.
uint32_t relay_decode_run_held(const relay_decode_run *r);
// The state as bytes, at most RELAY_MAX_DECODE_RUN_BYTES; and back: false if they are none that a run can have.
void relay_decode_run_save(const relay_decode_run *r, relay_buf *out);
bool relay_decode_run_restore(relay_decode_run *r, const uint8_t *state, size_t len);

#endif
