// What the readers of all formats do alike: memory out of a specification's arena, and the usual rows of stages.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_SPEC_BUILD_H
#define RELAY_TOKENIZER_SVC_FORMATS_SPEC_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/tokenizer_spec.h"

enum {
    RELAY_SPEC_MAX_TOKENS = 1 << 22,
    RELAY_SPEC_MAX_TOKEN_BYTES = 1 << 16,
    RELAY_SPEC_SHOWN_BYTES = 64, // of a piece, in messages
};

// A string literal.
#define RELAY_SPEC_STR(literal) ((relay_spec_str){.s = (literal), .len = sizeof(literal) - 1})
// SentencePiece's mark of a space.
#define RELAY_SPEC_SPACE "\xE2\x96\x81" // U+2581

// How much of a piece a message shows, for "%.*s".
static inline int relay_spec_shown(uint64_t len) {
    return len < RELAY_SPEC_SHOWN_BYTES ? (int)len : RELAY_SPEC_SHOWN_BYTES;
}

// Zeroed memory of the arena; aborts when out of memory.
void *relay_spec_alloc(relay_tokenizer_spec *spec, uint64_t count, uint64_t size) RELAY_NODISCARD;
relay_spec_str relay_spec_copy(relay_tokenizer_spec *spec, const char *s, size_t len) RELAY_NODISCARD;

bool relay_spec_str_is(relay_spec_str s, const char *text);

// Sets what add_special_tokens puts around a text: first and last where they are set.
void relay_spec_set_post(relay_tokenizer_spec *spec, relay_special_id first, relay_special_id last);

// Stages behind those that are there.
relay_normalizer_spec *relay_spec_add_normalizer(relay_tokenizer_spec *spec, relay_normalizer_kind kind);
relay_pretokenizer_spec *relay_spec_add_pretokenizer(relay_tokenizer_spec *spec, relay_pretokenizer_kind kind);
relay_decoder_spec *relay_spec_add_decoder(relay_tokenizer_spec *spec, relay_decoder_kind kind);
relay_added_token *relay_spec_add_token(relay_tokenizer_spec *spec, relay_spec_str content, uint32_t id, bool special);

// U+2581 for spaces, before the text too where `prefix`.
void relay_spec_add_space_normalizers(relay_tokenizer_spec *spec, bool prefix);
// Back: U+2581 to spaces, bytes of byte tokens joined, and without the one before the text where `prefix`.
void relay_spec_add_space_decoders(relay_tokenizer_spec *spec, bool prefix, bool byte_fallback);

// tiktoken's kind of model: the pattern splits text into words, a word that is a token is that token, else the lowest
// id is joined first; tokens are raw bytes.
void relay_spec_set_byte_bpe(relay_tokenizer_spec *spec, relay_spec_str pattern);

// BERT's WordPiece: its words, "##" before what goes on inside one, words of at most 100 characters.
void relay_spec_set_wordpiece(relay_tokenizer_spec *spec);

// A BPE or Unigram model's byte_fallback: true where all 256 byte tokens are there, false where none is.
// INVALID_ARGUMENT naming the first that is missing where only some are; `where` is the file's place of the tokens.
relay_code relay_spec_find_byte_fallback(relay_tokenizer_spec *spec, const char *where, relay_err *e);

#endif
