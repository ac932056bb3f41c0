// The rules of a BPE model, reduced to those that can ever be applied, whatever way the file says them.
//
// A token's bytes go one way only: encoding is deterministic, and as long as nothing joins across the ends of a
// stretch, what happens inside depends on the stretch alone. So of all rules that give a token at most one can be its
// last step, and that is its rule; the others of a file (Llama 3 lists 280,147 for 128,000 tokens) never fire. A token
// without a rule of its own is never made by joining.
//
// Mostly a token's rank is higher than those of its two parts. Where it is not (Gemma's runs of spaces are listed
// longest first), the token is called odd, and bpe_linear.h asks for its neighbours in another way.
#ifndef RELAY_TOKENIZER_SVC_BPE_RULES_H
#define RELAY_TOKENIZER_SVC_BPE_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "tokenizer_svc/bpe_merge.h"
#include "tokenizer_svc/bpe_pairs.h"
#include "tokenizer_svc/tokenizer_spec.h"

typedef struct relay_bpe_made {
    uint32_t left, right; // what the token's rule joins; of a single character (or byte): itself
    uint32_t rank;        // of that rule, from 1; 0: a single character; RELAY_BPE_NONE: nothing leads to it
    uint32_t len;         // bytes of its piece
} relay_bpe_made;

typedef struct relay_bpe_rules {
    uint32_t n_ids;
    relay_bpe_made *made;  // [n_ids]
    uint64_t *odd;         // [n_ids / 64 + 1] bits, or NULL where no token is odd
    relay_bpe_pairs pairs; // the tokens' rules; where !is_linear, all rules of the file
    bool is_linear;        // pieces are their parts put together, and the above holds
    bool is_byte_level;    // words begin as bytes, not as characters
    uint32_t
        byte_id[256]; // of the byte's token (is_byte_level), or of its fallback; RELAY_BPE_NONE where there is none
    bool has_all_bytes;

    const char **pieces; // [n_ids] raw bytes of tokens that text can become, else NULL
    char *piece_bytes;
    uint32_t *index; // [index_mask + 1] ids by their piece, open addressing
    uint32_t index_mask;
} relay_bpe_rules;

// INVALID_ARGUMENT for merges that name no tokens, or that repeat one another.
relay_code relay_bpe_rules_init(relay_bpe_rules *r, const relay_model_spec *m, relay_err *e) RELAY_NODISCARD;
void relay_bpe_rules_fini(relay_bpe_rules *r);

// The token with exactly these bytes; RELAY_BPE_NONE if there is none.
uint32_t relay_bpe_rules_find(const relay_bpe_rules *r, const char *bytes, size_t len);

// Puts the characters (or bytes) of a word into out, which is emptied first; false where one of them is no token.
bool relay_bpe_rules_start(const relay_bpe_rules *r, const char *word, uint32_t len, relay_bpe_symbols *out);

static inline bool relay_bpe_is_odd(const relay_bpe_rules *r, uint32_t id) {
    return r->odd != NULL && (r->odd[id / 64] >> (id % 64) & 1) != 0;
}

// Whether two tokens beside each other, neither odd, are what the encoding of their joined bytes gives. Undoes, last
// first, the steps that led to the two, and looks at every pair that ever met at the border: had its rule stood before
// the step that is undone next, it would have joined across.
static inline bool relay_bpe_stay_apart(const relay_bpe_rules *r, uint32_t left, uint32_t right) {
    uint32_t limit = RELAY_BPE_NONE;
    for (;;) {
        const relay_bpe_pair *p = relay_bpe_pairs_find(&r->pairs, left, right);
        if (p != NULL && p->rank < limit) return false;
        const relay_bpe_made *l = &r->made[left], *m = &r->made[right];
        if (l->rank > m->rank) {
            limit = l->rank; // of equal ranks the leftmost is first: the left token's before the border's
            left = l->right;
        } else {
            if (m->rank == 0) return true;
            limit = m->rank + 1; // and the border's before the right token's
            right = m->left;
        }
    }
}

#endif
