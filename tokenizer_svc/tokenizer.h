// A tokenizer: text to token ids, and ids to text. Immutable after load; any number of threads.
//
// Stages as in HF tokenizers: special tokens split off, pre-tokenizer, model, post-processor; backwards the decoder.
// What a tokenizer file uses and Relay does not know is refused at load by name; nothing is approximated.
#ifndef RELAY_TOKENIZER_SVC_TOKENIZER_H
#define RELAY_TOKENIZER_SVC_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"
#include "common/vocab.h"
#include "tokenizer_svc/encoding.h"

typedef struct relay_tokenizer relay_tokenizer;

// Reads merges, pre-tokenizer name, add_bos/add_eos from the file. `vocab` is borrowed and outlives it; `g` may be
// closed afterwards.
relay_code relay_tokenizer_load_gguf(relay_tokenizer **out, const relay_gguf *g, const relay_vocab *vocab,
                                     relay_err *e) RELAY_NODISCARD;
void relay_tokenizer_destroy(relay_tokenizer *t);
const char *relay_tokenizer_family(const relay_tokenizer *t); // "byte-level BPE (qwen2)"
bool relay_tokenizer_adds_bos(const relay_tokenizer *t);

// Of all spans together; keeps offsets within 32 bits.
#define RELAY_TOKENIZER_MAX_TEXT_BYTES (UINT32_C(1) << 30)

// A stretch of text and where it comes from. Control tokens are recognised only in stretches that say so.
typedef struct relay_text_span {
    const char *text; // valid UTF-8, may hold NUL
    size_t len;
    bool parse_special; // names of CONTROL tokens in it become those tokens
} relay_text_span;

typedef struct relay_encode_opts {
    bool add_special_tokens; // BOS and EOS as the file says
    bool want_offsets;
} relay_encode_opts;

// Tokenizes the concatenation of the spans: text of adjacent spans is joined before it is split into words, so that a
// border between spans is no border of tokens unless a special token stands there. A CONTROL token's name counts where
// all of it lies in spans that say parse_special; an added token's (USER) everywhere. Appends to *enc (zeroed at first;
// always with the same want_offsets); after a failure it may hold a part. INVALID_ARGUMENT for text that is no UTF-8 or
// too long, RESOURCE_EXHAUSTED when splitting takes too many steps.
//
// Where the vocabulary has no token for a byte, the byte is left out, as by HF tokenizers and llama.cpp: SmolLM2 lacks
// U+0004, U+0006, U+0013, U+0014, U+0016, U+001D and the first byte of U+40000 to U+BFFFF. With all bytes there,
// detokenizing gives back the text.
relay_code relay_tokenizer_encode(const relay_tokenizer *t, const relay_text_span *spans, size_t n_spans,
                                  const relay_encode_opts *opts, relay_encoding *enc, relay_err *e) RELAY_NODISCARD;

#endif
