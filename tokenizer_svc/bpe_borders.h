// Places in a text that no token can lie across, whatever stands around them: there it may be cut, and the parts are
// encoded each for itself with the same result.
//
// A token that lies across a place has, on each side of it, up to three bytes there that also stand in its piece. All
// such pairs of byte strings in the vocabulary are kept in a filter, which may say yes where it should say no, but not
// the other way round. Asked for where a character beyond ASCII begins: runs of such characters are long words in most
// patterns (a Chinese sentence is one), and their parts come again where the whole never does.
#ifndef RELAY_TOKENIZER_SVC_BPE_BORDERS_H
#define RELAY_TOKENIZER_SVC_BPE_BORDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer_svc/bpe_rules.h"

enum { RELAY_BPE_BORDER_BYTES = 3 }; // on each side

typedef struct relay_bpe_borders {
    uint64_t *filter; // [2^bits / 64] by left and right bytes and how many of each
    uint32_t bits;
    uint64_t partial[256][4]; // by the bytes before and behind: a token with fewer than three on a side lies across
    uint64_t mark[4];         // by the byte before U+2581, SentencePiece's space: some token has the two inside
    uint8_t n_left[9], n_right[9], n_kinds; // of those, which numbers of bytes there are
} relay_bpe_borders;

void relay_bpe_borders_init(relay_bpe_borders *b, const relay_bpe_rules *r);
void relay_bpe_borders_fini(relay_bpe_borders *b);

static inline uint64_t relay_bpe_border_hash(uint32_t left, uint32_t n_left, uint32_t right, uint32_t n_right) {
    uint64_t h = ((uint64_t)(left | n_left << 24) << 32 | (right | n_right << 24)) * UINT64_C(0x9E3779B97F4A7C15);
    return (h ^ h >> 32) * UINT64_C(0xD6E8FEB86659FD93);
}

static inline bool relay_bpe_border_known(const relay_bpe_borders *b, uint64_t hash) {
    uint64_t bit = hash >> (64 - b->bits);
    return (b->filter[bit / 64] >> (bit % 64) & 1) != 0;
}

// Whether text[0..len) may be cut before text[at], which begins a character beyond ASCII; 0 < at < len.
bool relay_bpe_borders_may_cut(const relay_bpe_borders *b, const char *text, size_t len, size_t at);

// The same before U+2581, which text[at] begins.
static inline bool relay_bpe_borders_may_cut_mark(const relay_bpe_borders *b, const char *text, size_t len, size_t at) {
    uint8_t before = (uint8_t)text[at - 1];
    return (b->mark[before / 64] >> (before % 64) & 1) == 0 || relay_bpe_borders_may_cut(b, text, len, at);
}

#endif
