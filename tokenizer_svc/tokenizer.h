// A tokenizer: text to token ids. Immutable after creation; any number of threads.
//
// Made from what a file says (tokenizer_spec.h), whatever its format. Ids and offsets are those of HF tokenizers 0.23.
// What a specification asks for and Relay does not know is refused at creation, by name; nothing is approximated.
#ifndef RELAY_TOKENIZER_SVC_TOKENIZER_H
#define RELAY_TOKENIZER_SVC_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/encoding.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_tokenizer relay_tokenizer;

// Takes copies: the specification may be freed afterwards.
relay_code relay_tokenizer_create(relay_tokenizer **out, const relay_tokenizer_spec *spec,
                                  relay_err *e) RELAY_NODISCARD;
void relay_tokenizer_destroy(relay_tokenizer *t);
const char *relay_tokenizer_family(const relay_tokenizer *t); // "BPE (GGUF)"
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
    bool add_special_tokens; // what the file puts around a text, such as BOS and EOS
    bool want_offsets;
    bool is_continuation; // the text goes on behind other tokens: what is put where a text begins is not put here
    uint32_t max_tokens;  // 0: no limit. The tokens around a text count and stay; of the text's own the first are kept,
    bool truncate_left;   // or the last
} relay_encode_opts;

// Tokenizes the concatenation of the spans: text of adjacent spans is joined before it is split into words, so that a
// border between spans is no border of tokens unless a special token stands there. A CONTROL token's name counts where
// all of it lies in spans that say parse_special; an added token's (USER) everywhere, but for what is inside the name
// of a CONTROL token that does not count.
//
// Appends to *enc, which is zeroed at first; after a failure it may hold a part. Offsets are bytes of the text, of
// whole characters of it: all tokens of one character have its bytes; tokens around the text have 0, 0.
//
// INVALID_ARGUMENT for text that is no UTF-8 or too long, and for a max_tokens below the tokens around a text;
// RESOURCE_EXHAUSTED when splitting takes too many steps. Where a vocabulary has no token for a byte and none for what
// is unknown, the byte is left out, as by HF tokenizers.
relay_code relay_tokenizer_encode(const relay_tokenizer *t, const relay_text_span *spans, size_t n_spans,
                                  const relay_encode_opts *opts, relay_encoding *enc, relay_err *e) RELAY_NODISCARD;

#endif
