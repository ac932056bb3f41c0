// From a piece to its id, over all tokens of a specification: for merges, which are written as pieces, and to find a
// piece that is there twice.
//
// Open addressing with eight bytes a slot (a tag of the hash and the id), so that the table of a large vocabulary stays
// in the second-level cache; merges are looked up in batches whose slots are fetched ahead, which hides what is left.
// One thread; borrows the tokens.
#ifndef RELAY_TOKENIZER_SVC_FORMATS_PIECE_INDEX_H
#define RELAY_TOKENIZER_SVC_FORMATS_PIECE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "tokenizer_svc/tokenizer_spec.h"

#define RELAY_PIECE_NONE UINT32_MAX

typedef struct relay_piece_slot {
    uint32_t tag;
    uint32_t id; // RELAY_PIECE_NONE where the slot is free
} relay_piece_slot;

typedef struct relay_piece_index {
    const relay_model_token *tokens;
    relay_piece_slot *slots;
    uint32_t mask;
} relay_piece_index;

// Empty, with room for `n_tokens` pieces.
void relay_piece_index_init(relay_piece_index *x, const relay_model_token *tokens, uint32_t n_tokens);
void relay_piece_index_fini(relay_piece_index *x);
// Enters tokens[id], whose piece is not NULL. Returns RELAY_PIECE_NONE, or the id of an equal piece that is there, and
// then enters nothing.
uint32_t relay_piece_index_add(relay_piece_index *x, uint32_t id);
uint32_t relay_piece_index_find(const relay_piece_index *x, const char *s, size_t len);

// A merge as a file writes it.
typedef struct relay_written_merge {
    relay_spec_str left, right;
} relay_written_merge;

enum { RELAY_MERGE_BATCH = 32, RELAY_MAX_PIECE_BYTES = 1 << 16 };

// Finds the ids of up to RELAY_MERGE_BATCH merges, each RELAY_PIECE_NONE where there is no such piece. Every piece is
// at most RELAY_MAX_PIECE_BYTES long. Where two pieces are joined, the first `prefix` bytes of the right one, the
// continuing prefix ("##"), are left out.
void relay_piece_index_find_merges(const relay_piece_index *x, const relay_written_merge *written, uint32_t n,
                                   uint32_t prefix, relay_merge_spec *merges);

#endif
