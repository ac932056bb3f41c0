#include "tokenizer_svc/bpe_linear.h"

#include <stdlib.h>
#include <string.h>

enum { N_APART_BITS = 10 };

// An answer to "do these stay apart?", in a direct-mapped table.
typedef struct relay_bpe_apart {
    uint32_t left, right; // right's upper bit: yes. All zero: empty, unless it is the pair (0, 0) and no
} relay_bpe_apart;

#define YES (UINT32_C(1) << 31)

void relay_bpe_linear_fini(relay_bpe_linear *w) {
    free(w->dead);
    free(w->apart);
    free(w->joined);
    relay_bpe_symbols_fini(&w->pair);
    *w = (relay_bpe_linear){0};
}

// By the definition: what do the bytes of the two become?
static bool odd_stay_apart(const relay_bpe_rules *r, relay_bpe_linear *w, uint32_t left, uint32_t right) {
    uint32_t left_len = r->made[left].len, len = left_len + r->made[right].len;
    if (len > w->joined_cap) {
        w->joined_cap = len;
        w->joined = relay_realloc(w->joined, len);
    }
    memcpy(w->joined, r->pieces[left], left_len);
    memcpy(w->joined + left_len, r->pieces[right], len - left_len);
    relay_bpe_rules_start(r, w->joined, len, &w->pair);
    relay_bpe_merge(&r->pairs, &w->pair);
    return w->pair.n == 2 && w->pair.s[0].id == left && w->pair.s[1].id == right;
}

static bool stay_apart(const relay_bpe_rules *r, relay_bpe_linear *w, uint32_t left, uint32_t right) {
    if (!relay_bpe_is_odd(r, left) && !relay_bpe_is_odd(r, right)) return relay_bpe_stay_apart(r, left, right);
    relay_bpe_apart *known = &w->apart[relay_bpe_pair_hash(left, right) >> (64 - N_APART_BITS)];
    if (known->left == left && (known->right & ~YES) == right && (left | known->right) != 0)
        return (known->right & YES) != 0;
    bool apart = odd_stay_apart(r, w, left, right);
    *known = (relay_bpe_apart){.left = left, .right = apart ? right | YES : right};
    return apart;
}

static void prepare(relay_bpe_linear *w, size_t len) {
    size_t words = len / 64 + 1;
    if (w->apart == NULL) w->apart = relay_calloc((size_t)1 << N_APART_BITS, sizeof *w->apart);
    if (words > w->dead_cap) {
        w->dead_cap = words < 64 ? 64 : words;
        w->dead = relay_realloc(w->dead, w->dead_cap * sizeof *w->dead);
    }
    memset(w->dead, 0, words * sizeof *w->dead);
}

uint32_t relay_bpe_linear_encode(const relay_bpe_rules *r, const relay_bpe_trie *t, relay_bpe_linear *w,
                                 const char *text, size_t len, uint32_t *ids) {
    prepare(w, len);
    uint64_t *dead = w->dead;
    uint32_t n = 0, whole;
    size_t at = 0;
    uint32_t id = relay_bpe_trie_longest(t, text, len, &whole);
    if (id == RELAY_BPE_NONE) return 0;
    for (;;) {
        w->n_steps++;
        size_t end = at + r->made[id].len;
        bool is_dead = (dead[end / 64] >> (end % 64) & 1) != 0;
        if (!is_dead && (n == 0 || stay_apart(r, w, ids[n - 1], id))) {
            ids[n++] = id;
            if (end == len) return n;
            id = relay_bpe_trie_longest(t, text + end, len - end, &whole);
            if (id == RELAY_BPE_NONE) return 0;
            at = end;
            continue;
        }
        id = t->shorter[id];
        while (id == RELAY_BPE_NONE) { // nothing fits here: this place leads nowhere
            dead[at / 64] |= UINT64_C(1) << (at % 64);
            RELAY_ASSERT(n > 0);
            id = ids[--n];
            at -= r->made[id].len;
            id = t->shorter[id];
        }
    }
}
