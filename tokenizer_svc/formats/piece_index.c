#include "tokenizer_svc/formats/piece_index.h"

#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

void relay_piece_index_init(relay_piece_index *x, const relay_model_token *tokens, uint32_t n_tokens) {
    uint64_t n_slots = 8;
    while (n_slots / 2 < n_tokens)
        n_slots *= 2;
    *x = (relay_piece_index){
        .tokens = tokens, .slots = relay_calloc(n_slots, sizeof *x->slots), .mask = (uint32_t)(n_slots - 1)};
    for (uint64_t i = 0; i < n_slots; i++)
        x->slots[i].id = RELAY_PIECE_NONE;
}

void relay_piece_index_fini(relay_piece_index *x) {
    free(x->slots);
    *x = (relay_piece_index){0};
}

static uint32_t tag_of(uint64_t hash) {
    return (uint32_t)(hash >> 32);
}

// The slot that holds the piece, or the free one where it belongs.
static relay_piece_slot *slot_of(const relay_piece_index *x, uint64_t hash, const char *s, size_t len) {
    for (uint32_t i = (uint32_t)hash & x->mask;; i = (i + 1) & x->mask) {
        relay_piece_slot *slot = &x->slots[i];
        if (slot->id == RELAY_PIECE_NONE) return slot;
        if (slot->tag != tag_of(hash)) continue;
        const relay_spec_str *piece = &x->tokens[slot->id].piece;
        if (piece->len == len && memcmp(piece->s, s, len) == 0) return slot;
    }
}

uint32_t relay_piece_index_add(relay_piece_index *x, uint32_t id) {
    const relay_spec_str *piece = &x->tokens[id].piece;
    uint64_t hash = XXH3_64bits(piece->s, piece->len);
    relay_piece_slot *slot = slot_of(x, hash, piece->s, piece->len);
    if (slot->id != RELAY_PIECE_NONE) return slot->id;
    *slot = (relay_piece_slot){.tag = tag_of(hash), .id = id};
    return RELAY_PIECE_NONE;
}

uint32_t relay_piece_index_find(const relay_piece_index *x, const char *s, size_t len) {
    return slot_of(x, XXH3_64bits(s, len), s, len)->id;
}

// ---- Merges

static void prefetch(const relay_piece_index *x, uint64_t hash) {
    __builtin_prefetch(&x->slots[(uint32_t)hash & x->mask]);
}

static uint64_t hash_joined(const relay_written_merge *m, uint32_t prefix) {
    char buffer[256];
    size_t left = m->left.len, right = m->right.len - prefix;
    const char *tail = m->right.s + prefix;
    if (left + right <= sizeof buffer) {
        memcpy(buffer, m->left.s, left);
        memcpy(buffer + left, tail, right);
        return XXH3_64bits(buffer, left + right);
    }
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, m->left.s, left);
    XXH3_64bits_update(&state, tail, right);
    return XXH3_64bits_digest(&state);
}

static uint32_t find_joined(const relay_piece_index *x, uint64_t hash, const relay_written_merge *m, uint32_t prefix) {
    uint32_t left = m->left.len, right = m->right.len - prefix;
    for (uint32_t i = (uint32_t)hash & x->mask;; i = (i + 1) & x->mask) {
        const relay_piece_slot *slot = &x->slots[i];
        if (slot->id == RELAY_PIECE_NONE) return RELAY_PIECE_NONE;
        if (slot->tag != tag_of(hash)) continue;
        const relay_spec_str *piece = &x->tokens[slot->id].piece;
        if (piece->len == left + right && memcmp(piece->s, m->left.s, left) == 0 &&
            memcmp(piece->s + left, m->right.s + prefix, right) == 0)
            return slot->id;
    }
}

void relay_piece_index_find_merges(const relay_piece_index *x, const relay_written_merge *written, uint32_t n,
                                   uint32_t prefix, relay_merge_spec *merges) {
    RELAY_ASSERT(n <= RELAY_MERGE_BATCH);
    uint64_t hashes[RELAY_MERGE_BATCH][3];
    for (uint32_t i = 0; i < n; i++) {
        const relay_written_merge *m = &written[i];
        hashes[i][0] = XXH3_64bits(m->left.s, m->left.len);
        hashes[i][1] = XXH3_64bits(m->right.s, m->right.len);
        hashes[i][2] = m->right.len < prefix ? 0 : hash_joined(m, prefix);
        for (int k = 0; k < 3; k++)
            prefetch(x, hashes[i][k]);
    }
    for (uint32_t i = 0; i < n; i++) {
        const relay_written_merge *m = &written[i];
        merges[i].left = slot_of(x, hashes[i][0], m->left.s, m->left.len)->id;
        merges[i].right = slot_of(x, hashes[i][1], m->right.s, m->right.len)->id;
        merges[i].result = m->right.len < prefix ? RELAY_PIECE_NONE : find_joined(x, hashes[i][2], m, prefix);
    }
}
