// The vocabulary: what bytes each token id stands for, and the fingerprint that says which vocabulary it is.
//
// Canonical over file formats: a GGUF file, and later a tokenizer.json, .tiktoken or tekken file, of one vocabulary
// give the same table and so the same fingerprint. Both services load it: the text service to turn ids into bytes, the
// model service to refuse ids of another vocabulary. Immutable after load; any thread.
#ifndef RELAY_COMMON_VOCAB_H
#define RELAY_COMMON_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"

enum { RELAY_FINGERPRINT_BYTES = 32 };

typedef enum relay_token_kind {
    RELAY_TOKEN_NORMAL = 1,  // text
    RELAY_TOKEN_CONTROL = 2, // special: never text, skipped when special tokens are skipped (<|im_end|>, </s>)
    RELAY_TOKEN_USER = 3,    // added by the model's makers, matched whole in text, shown as text
    RELAY_TOKEN_BYTE = 4,    // one byte of byte fallback (<0x0A>)
    RELAY_TOKEN_UNKNOWN = 5, // the unknown token
    RELAY_TOKEN_PADDING = 6, // an id that only fills up the matrix; in no fingerprint
} relay_token_kind;

typedef enum relay_vocab_family {
    RELAY_VOCAB_BYTE_LEVEL,    // GPT-2's byte alphabet: pieces are decoded to raw bytes
    RELAY_VOCAB_SENTENCEPIECE, // U+2581 is a space, <0xNN> a byte
} relay_vocab_family;

typedef struct relay_token {
    const char *bytes; // what it adds to the output, raw bytes; of a CONTROL token its name, such as <|im_end|>
    uint32_t len;
    relay_token_kind kind;
} relay_token;

typedef struct relay_vocab relay_vocab;

// Reads tokenizer.ggml.tokens, token_type and the special ids (bos, eos, eot, eom, unknown, padding); `g` may be closed
// afterwards. Refuses a tokenizer.ggml.model it does not know by name, a missing or short token_type, duplicate pieces,
// ids out of range. A token of type "unused", or a user-defined one named "[PAD<its id>]", is PADDING.
relay_code relay_vocab_load_gguf(relay_vocab **out, const relay_gguf *g, relay_err *e) RELAY_NODISCARD;
void relay_vocab_destroy(relay_vocab *v);

relay_vocab_family relay_vocab_get_family(const relay_vocab *v);
// Ids are < size (padding included: it is the number of rows of the output matrix).
uint32_t relay_vocab_size(const relay_vocab *v);
// id < size.
const relay_token *relay_vocab_token(const relay_vocab *v, uint32_t id);
// The longest token's length in bytes.
uint32_t relay_vocab_max_token_bytes(const relay_vocab *v);
// The id of the token with exactly these bytes: NORMAL and BYTE tokens. False if none.
bool relay_vocab_find(const relay_vocab *v, const char *bytes, size_t len, uint32_t *id);
// The same among CONTROL, USER and UNKNOWN tokens, by their name.
bool relay_vocab_find_special(const relay_vocab *v, const char *name, size_t len, uint32_t *id);

// Special ids. Each is false where the file names none.
bool relay_vocab_bos(const relay_vocab *v, uint32_t *id);
bool relay_vocab_unk(const relay_vocab *v, uint32_t *id);
bool relay_vocab_pad(const relay_vocab *v, uint32_t *id);
// Every id that ends an answer: eos, eot, eom, and the control tokens whose names are known to end a turn (<|im_end|>,
// <|eot_id|>, <end_of_turn>, <|endoftext|>, ...). Ascending, no duplicates.
const uint32_t *relay_vocab_eos(const relay_vocab *v, uint32_t *count);

// sha256 over the canonical table (id, kind, bytes of every token that is no padding, in id order) and the special ids.
const uint8_t *relay_vocab_fingerprint(const relay_vocab *v); // [RELAY_FINGERPRINT_BYTES]

#endif
