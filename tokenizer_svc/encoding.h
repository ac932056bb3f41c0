// Tokens of a text as two or three growing arrays, to which every stage of an encoding appends.
#ifndef RELAY_TOKENIZER_SVC_ENCODING_H
#define RELAY_TOKENIZER_SVC_ENCODING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct relay_encoding {
    uint32_t *ids;                       // owned
    uint32_t *offset_begin, *offset_end; // owned, bytes into the text; NULL unless asked for
    uint32_t n, cap;
    bool has_offsets; // set before the first token is added
} relay_encoding;

void relay_encoding_fini(relay_encoding *enc);

// Room for `more` tokens behind n, which the caller writes and counts. A text has fewer tokens than 2^32.
void relay_encoding_grow(relay_encoding *enc, uint32_t more);
static inline void relay_encoding_reserve(relay_encoding *enc, uint32_t more) {
    if (enc->cap - enc->n < more) relay_encoding_grow(enc, more);
}

static inline void relay_encoding_add(relay_encoding *enc, uint32_t id, uint32_t begin, uint32_t end) {
    relay_encoding_reserve(enc, 1);
    enc->ids[enc->n] = id;
    if (enc->has_offsets) {
        enc->offset_begin[enc->n] = begin;
        enc->offset_end[enc->n] = end;
    }
    enc->n++;
}

#endif
