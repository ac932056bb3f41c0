// Chunks: parts of a text whose tokens do not depend on what stands around them, so that a part that the text had
// before need not go through normalizers, pre-tokenizers and model again.
//
// Many tokenizers cut at every blank whatever stands beside it (BERT, T5, XLNet, ALBERT as Hugging Face has them), and
// BERT's at punctuation and Chinese characters, too. A chunker knows where, by bytes of the caller's own text, and
// knows for which tokenizers that holds. It is careful: where it is not sure it does not cut.
#ifndef RELAY_TOKENIZER_SVC_CHUNKER_H
#define RELAY_TOKENIZER_SVC_CHUNKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_chunker {
    bool minds_neighbours; // a blank is no border where it may form one character with what stands beside it
    bool has_only_blanks;  // chunks end at blanks alone
    uint8_t kinds[256];    // RELAY_CHUNK_*, by the first byte of a character
} relay_chunker;

// False where a text does not fall into chunks. Of the added tokens those that are `normalized` must be none.
bool relay_chunker_init(relay_chunker *c, const relay_tokenizer_spec *spec);

// The first chunk at or behind `at`: [*begin, *end), at < len. Blanks between chunks have no tokens. False if only
// blanks are left.
bool relay_chunker_next(const relay_chunker *c, const char *s, size_t len, size_t at, size_t *begin, size_t *end);

#endif
