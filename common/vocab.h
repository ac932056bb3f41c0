// The vocabulary: what bytes each token id stands for, and the fingerprint that says which vocabulary it is.
//
// Canonical over file formats: GGUF, tokenizer.json, SentencePiece, .tiktoken and tekken files of one vocabulary give
// the same fingerprint. Both services load it: the text service from whatever file it has, the model service from its
// weights, to refuse ids of another vocabulary and to mask tokens by their bytes. Immutable after load; any thread.
#ifndef RELAY_COMMON_VOCAB_H
#define RELAY_COMMON_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"

enum {
    RELAY_FINGERPRINT_BYTES = 32,
    RELAY_VOCAB_MAX_TOKENS = 1 << 22,
    RELAY_VOCAB_MAX_TOKEN_BYTES = 1 << 16,
};

typedef enum relay_token_kind {
    RELAY_TOKEN_NORMAL = 1,  // text
    RELAY_TOKEN_CONTROL = 2, // special: never text, skipped when special tokens are skipped (<|im_end|>, </s>)
    RELAY_TOKEN_USER = 3,    // added by the model's makers, matched whole in text, shown as text
    RELAY_TOKEN_BYTE = 4,    // one byte of byte fallback (<0x0A>)
    RELAY_TOKEN_UNKNOWN = 5, // the unknown token
    RELAY_TOKEN_PADDING = 6, // an id that only fills up the matrix; in no fingerprint
} relay_token_kind;

typedef struct relay_token {
    const char *bytes; // what it adds to the output, raw bytes; of a CONTROL token its name, such as <|im_end|>
    uint32_t len;
    relay_token_kind kind;
} relay_token;

typedef struct relay_vocab relay_vocab;

typedef struct relay_special_id {
    bool is_set;
    uint32_t id;
} relay_special_id;

// What a reader says of one token. A WordPiece that begins a word has a space before its piece, one that goes on (##)
// is what is behind the prefix: what they add to the output, and what GGUF files write.
typedef struct relay_vocab_entry {
    const char *bytes; // as in relay_token
    uint32_t len;
    relay_token_kind kind; // PADDING where no token has the id
    bool is_unreachable;   // no text leads to it, so it is not found by its bytes
} relay_vocab_entry;

typedef struct relay_vocab_table {
    const relay_vocab_entry *tokens; // [size], by id
    uint32_t size;
    relay_special_id bos, unk, pad;
    const uint32_t *end_ids; // [n_end_ids] that the file says end an answer, in any order
    uint32_t n_end_ids;
} relay_vocab_table;

// From plain data, of which it takes copies. Refuses sizes and ids out of range.
relay_code relay_vocab_create(relay_vocab **out, const relay_vocab_table *table, relay_err *e) RELAY_NODISCARD;

// For readers: "<0x0A>" -> 10, -1 for a piece of another form; and each U+2581 of a piece as the space that it stands
// for, into `out` (room for `len`; may be the piece itself), returning the number of bytes.
int relay_vocab_byte_of_name(const char *piece, size_t len);
size_t relay_vocab_unescape_spaces(const char *piece, size_t len, char *out);

// What a number of tokenizer.ggml.token_type says of the piece with this id; 0 for a number that is none.
relay_token_kind relay_vocab_gguf_kind(double type, const char *piece, size_t len, uint32_t id);
// Reads tokenizer.ggml.tokens, token_type and the special ids (bos, eos, eot, eom, unknown, padding); `g` may be closed
// afterwards. Refuses a tokenizer.ggml.model it does not know by name, a missing or short token_type, duplicate pieces,
// ids out of range. A token of type "unused", or a user-defined one named "[PAD<its id>]", is PADDING.
relay_code relay_vocab_load_gguf(relay_vocab **out, const relay_gguf *g, relay_err *e) RELAY_NODISCARD;
void relay_vocab_destroy(relay_vocab *v);

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
// Every id that ends an answer: those the file says (eos, eot, eom), and the CONTROL and USER tokens whose names are
// known to end a turn (<|im_end|>, <|eot_id|>, <end_of_turn>, <|endoftext|>, ...). Ascending, no duplicates.
const uint32_t *relay_vocab_eos(const relay_vocab *v, uint32_t *count);

// sha256 over the canonical table (id and bytes of every token that is no padding, whether it is text or a name) and
// the ids that end an answer; see vocab.c.
const uint8_t *relay_vocab_fingerprint(const relay_vocab *v); // [RELAY_FINGERPRINT_BYTES]

#endif
