// The stages of a decoder (decoder.h), between the files that make them and that run them.
//
// A stage's input is either closed, whole tokens one after the other, or open: one token that goes on until the text
// ends, as behind ByteLevel and Fuse. HF's larger decoders are several stages: WordPiece's clean-up is eleven REPLACEs.
#ifndef RELAY_TOKENIZER_SVC_DECODE_STAGE_H
#define RELAY_TOKENIZER_SVC_DECODE_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/buf.h"

typedef enum relay_stage_kind {
    RELAY_STAGE_REPLACE,       // pattern by content
    RELAY_STAGE_METASPACE,     // pattern (a character) by a space; nothing in the first token where drops_first
    RELAY_STAGE_STRIP,         // up to `begin` of pattern (a character) before, up to `end` behind
    RELAY_STAGE_WORDPIECE,     // a space before each token but the first, or its prefix (pattern) taken away
    RELAY_STAGE_JOIN,          // a space before each token but the first
    RELAY_STAGE_DEDUP,         // a token equal to the one before is left out
    RELAY_STAGE_DROP_EMPTY,    // tokens of no bytes are left out
    RELAY_STAGE_BPE,           // pattern by a space; by nothing in the last token
    RELAY_STAGE_BYTE_FALLBACK, // runs of <0x0A> by their bytes, where these are UTF-8
    RELAY_STAGE_FUSE,          // all tokens become one
    RELAY_STAGE_BYTES,         // the tokens' bytes become one text; what is no UTF-8 becomes U+FFFD
} relay_stage_kind;

typedef struct relay_decode_stage {
    relay_stage_kind kind;
    bool is_open;            // its input
    bool drops_first;        // of METASPACE
    bool is_raw;             // of BYTES: tokens are bytes already, and not in GPT-2's alphabet
    bool holds_whole;        // of BPE: the next stage wants whole tokens
    char *pattern, *content; // owned
    uint32_t pattern_len, content_len;
    uint16_t *failure; // [pattern_len + 1] of an open REPLACE (Knuth, Morris and Pratt 1977); owned
    uint32_t begin, end;
} relay_decode_stage;

enum {
    RELAY_STAGE_MAX_RUN = 256,  // bytes of a BYTE_FALLBACK that are kept back
    RELAY_STAGE_MAX_REST = 128, // bytes behind BPE's suffix in one token
    RELAY_STAGE_MAX_PATTERN = 1024,
    RELAY_STAGE_MAX_TOKEN = (1 << 28) - 1,
};

typedef struct relay_decode_token {
    uint32_t at;        // in `bytes`
    uint32_t len : 28;  // RELAY_STAGE_MAX_TOKEN
    uint32_t flags : 4; // RELAY_TOKEN_IS_*
} relay_decode_token;

struct relay_text_decoder {
    // Each token behind the stages that look at one token alone, which are not in `stages` any more.
    uint32_t n_ids;
    relay_decode_token *rest;  // [n_ids] where it is not the text's first
    relay_decode_token *first; // [n_ids] where it is; may be `rest`
    char *bytes;
    relay_decode_stage *stages; // [n_stages]
    uint32_t n_stages;
    uint64_t hash;
};

enum {
    RELAY_TOKEN_IS_THERE = 1,
    RELAY_TOKEN_IS_SPECIAL = 2,
    RELAY_TOKEN_IS_WHOLE = 4, // its bytes are UTF-8
};

// What one of the stages that look at one token alone makes of a closed token: appends to `out`.
void relay_decode_stage_apply(const relay_decode_stage *s, const char *token, size_t len, bool is_first,
                              relay_buf *out);
// Whether it is one of those.
bool relay_decode_stage_is_pure(relay_stage_kind kind);
// The byte that <0x0A> names as HF reads it, or -1.
int relay_decode_byte_of(const char *token, size_t len);
// Appends the bytes of a token in GPT-2's alphabet, or the token itself where it has another character.
void relay_decode_alphabet(const char *token, size_t len, relay_buf *out);

#endif
