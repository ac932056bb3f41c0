#include "tokenizer_svc/bpe_borders.h"

#include <stdlib.h>
#include <string.h>

enum {
    SIDE = RELAY_BPE_BORDER_BYTES,
    MIN_BITS = 12,
    MAX_BITS = 21, // 256 KiB: what a second-level cache can hold beside the rest
    BITS_A_BORDER = 8,
};

// The n bytes before, or behind, a place; the one next to it lowest.
static uint32_t left_of(const uint8_t *at, uint32_t n) {
    uint32_t x = at[-1];
    if (n > 1) x |= (uint32_t)at[-2] << 8;
    if (n > 2) x |= (uint32_t)at[-3] << 16;
    return x;
}

static uint32_t right_of(const uint8_t *at, uint32_t n) {
    uint32_t x = at[0];
    if (n > 1) x |= (uint32_t)at[1] << 8;
    if (n > 2) x |= (uint32_t)at[2] << 16;
    return x;
}

static uint32_t at_most(size_t n) {
    return n < SIDE ? (uint32_t)n : SIDE;
}

static void add_kind(relay_bpe_borders *b, uint32_t n_left, uint32_t n_right) {
    for (uint32_t i = 0; i < b->n_kinds; i++)
        if (b->n_left[i] == n_left && b->n_right[i] == n_right) return;
    b->n_left[b->n_kinds] = (uint8_t)n_left;
    b->n_right[b->n_kinds++] = (uint8_t)n_right;
}

static void add_border(relay_bpe_borders *b, const uint8_t *at, uint32_t n_left, uint32_t n_right) {
    uint64_t bit = relay_bpe_border_hash(left_of(at, n_left), n_left, right_of(at, n_right), n_right) >> (64 - b->bits);
    b->filter[bit / 64] |= UINT64_C(1) << (bit % 64);
    if (n_right == SIDE && memcmp(at, "\xE2\x96\x81", 3) == 0) b->mark[at[-1] / 64] |= UINT64_C(1) << (at[-1] % 64);
    if (n_left == SIDE && n_right == SIDE) return;
    b->partial[at[-1]][at[0] / 64] |= UINT64_C(1) << (at[0] % 64);
    add_kind(b, n_left, n_right);
}

static bool begins_character_beyond_ascii(uint8_t byte) {
    return byte >= 0xC0;
}

void relay_bpe_borders_init(relay_bpe_borders *b, const relay_bpe_rules *r) {
    *b = (relay_bpe_borders){.bits = MIN_BITS};
    uint64_t n = 0;
    for (int pass = 0; pass < 2; pass++) { // to count, and to fill in
        for (uint32_t id = 0; id < r->n_ids; id++) {
            if (r->made[id].rank == RELAY_BPE_NONE) continue;
            const uint8_t *piece = (const uint8_t *)r->pieces[id];
            uint32_t len = r->made[id].len;
            for (uint32_t i = 1; i < len; i++) {
                if (!begins_character_beyond_ascii(piece[i])) continue;
                if (pass == 0)
                    n++;
                else
                    add_border(b, piece + i, at_most(i), at_most(len - i));
            }
        }
        if (pass > 0) break;
        while (b->bits < MAX_BITS && UINT64_C(1) << b->bits < n * BITS_A_BORDER)
            b->bits++;
        b->filter = relay_calloc(((size_t)1 << b->bits) / 64, sizeof *b->filter);
    }
}

void relay_bpe_borders_fini(relay_bpe_borders *b) {
    free(b->filter);
    *b = (relay_bpe_borders){0};
}

bool relay_bpe_borders_may_cut(const relay_bpe_borders *b, const char *text, size_t len, size_t at) {
    const uint8_t *s = (const uint8_t *)text + at;
    if (at >= SIDE && len - at >= SIDE &&
        relay_bpe_border_known(b, relay_bpe_border_hash(left_of(s, SIDE), SIDE, right_of(s, SIDE), SIDE)))
        return false;
    if ((b->partial[s[-1]][s[0] / 64] >> (s[0] % 64) & 1) == 0) return true;
    for (uint32_t i = 0; i < b->n_kinds; i++) {
        uint32_t n_left = b->n_left[i], n_right = b->n_right[i];
        if (at < n_left || len - at < n_right) continue;
        if (relay_bpe_border_known(b, relay_bpe_border_hash(left_of(s, n_left), n_left, right_of(s, n_right), n_right)))
            return false;
    }
    return true;
}
