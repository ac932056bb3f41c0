// How the rules are found: every rule of the file, lowest rank first, is one if both its parts have theirs and the two
// would meet, by the rules found before, with nothing joined across their border. That finds all but the odd ones,
// which come before their parts: what is left is tried by merging the token's own bytes. With odd rules there, the
// others are looked at once more; should one of them fail, the model is merged by its definition (is_linear is false).
#include "tokenizer_svc/bpe_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/byte_level.h"
#include "common/utf8.h"

// ---- Pieces

static bool is_of_text(relay_token_kind kind) {
    return kind == RELAY_TOKEN_NORMAL || kind == RELAY_TOKEN_USER;
}

static uint32_t *index_slot(const relay_bpe_rules *r, const char *bytes, size_t len) {
    uint32_t i = (uint32_t)XXH3_64bits(bytes, len) & r->index_mask;
    for (;; i = (i + 1) & r->index_mask) {
        uint32_t id = r->index[i];
        if (id == RELAY_BPE_NONE || (r->made[id].len == len && memcmp(r->pieces[id], bytes, len) == 0))
            return &r->index[i];
    }
}

uint32_t relay_bpe_rules_find(const relay_bpe_rules *r, const char *bytes, size_t len) {
    return *index_slot(r, bytes, len);
}

// Copies the pieces that text can become, as raw bytes. Of two tokens with one piece the first counts.
static void load_pieces(relay_bpe_rules *r, const relay_model_spec *m) {
    r->n_ids = m->n_tokens;
    size_t n_bytes = 0;
    uint32_t index_size = 64;
    while (index_size < 2 * (uint64_t)m->n_tokens)
        index_size *= 2;
    for (uint32_t id = 0; id < m->n_tokens; id++)
        n_bytes += m->tokens[id].piece.len;
    r->made = relay_calloc((size_t)r->n_ids + 1, sizeof *r->made);
    r->pieces = relay_calloc((size_t)r->n_ids + 1, sizeof *r->pieces);
    r->piece_bytes = relay_calloc(n_bytes + 1, 1);
    r->index = relay_calloc(index_size, sizeof *r->index);
    r->index_mask = index_size - 1;
    memset(r->index, 0xFF, index_size * sizeof *r->index);
    char *at = r->piece_bytes;
    for (uint32_t id = 0; id < m->n_tokens; id++) {
        const relay_model_token *t = &m->tokens[id];
        r->made[id] = (relay_bpe_made){.left = id, .right = id, .rank = RELAY_BPE_NONE};
        if (t->piece.s == NULL || t->piece.len == 0 || !is_of_text(t->kind)) continue;
        size_t len = t->piece.len;
        if (!m->byte_alphabet)
            memcpy(at, t->piece.s, len);
        else if (!relay_byte_level_decode(t->piece.s, len, at, &len))
            continue; // a name: no text is written so
        r->made[id].len = (uint32_t)len;
        uint32_t *slot = index_slot(r, at, len);
        r->pieces[id] = at;
        if (*slot == RELAY_BPE_NONE) *slot = id;
        at += len;
    }
}

static void load_bytes(relay_bpe_rules *r, const relay_model_spec *m) {
    r->is_byte_level = m->is_byte_level;
    r->has_all_bytes = true;
    memset(r->byte_id, 0xFF, sizeof r->byte_id);
    for (uint32_t byte = 0; byte < 256 && r->is_byte_level; byte++) {
        char c = (char)byte;
        r->byte_id[byte] = relay_bpe_rules_find(r, &c, 1);
    }
    for (uint32_t id = 0; id < m->n_tokens && !r->is_byte_level && m->byte_fallback; id++) {
        relay_spec_str piece = m->tokens[id].piece;
        unsigned byte;
        if (piece.len == 6 && memcmp(piece.s, "<0x", 3) == 0 && piece.s[5] == '>' &&
            sscanf(piece.s + 3, "%2X>", &byte) == 1)
            r->byte_id[byte] = id;
    }
    for (int byte = 0; byte < 256; byte++)
        r->has_all_bytes &= r->byte_id[byte] != RELAY_BPE_NONE;
}

// What a word begins as: single bytes or characters.
static void load_singles(relay_bpe_rules *r) {
    for (uint32_t id = 0; id < r->n_ids; id++) {
        uint32_t len = r->made[id].len, cp;
        const char *piece = r->pieces[id];
        if (piece == NULL || len > 4) continue;
        bool is_single = r->is_byte_level ? len == 1 : relay_utf8_decode(piece, len, &cp) == len;
        if (is_single && relay_bpe_rules_find(r, piece, len) == id) r->made[id].rank = 0;
    }
}

// ---- The file's rules, in order

typedef struct rule {
    uint32_t left, right, id, rank;
} rule;

typedef struct rule_list {
    rule *rules;
    uint32_t n, cap;
} rule_list;

static void add_rule(rule_list *l, rule x) {
    if (l->n == l->cap) {
        l->cap = l->cap == 0 ? 1024 : 2 * l->cap;
        l->rules = relay_realloc(l->rules, (uint64_t)l->cap * sizeof *l->rules);
    }
    l->rules[l->n++] = x;
}

static relay_code check_merges(const relay_model_spec *m, relay_err *e) {
    for (uint32_t i = 0; i < m->n_merges; i++) {
        const relay_merge_spec *x = &m->merges[i];
        const uint32_t ids[] = {x->left, x->right, x->result};
        for (int k = 0; k < 3; k++)
            if (ids[k] >= m->n_tokens || m->tokens[ids[k]].piece.s == NULL)
                return relay_fail(e, RELAY_INVALID_ARGUMENT, "model.merges[%u]: id %u is no token", i, ids[k]);
    }
    return RELAY_OK;
}

typedef struct ranked_token {
    float score;
    uint32_t id;
} ranked_token;

static int compare_scores(const void *a, const void *b) {
    const ranked_token *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

// Every way to cut a piece into two tokens.
static void add_cuts(const relay_bpe_rules *r, uint32_t id, uint32_t rank, rule_list *out) {
    const char *piece = r->pieces[id];
    for (uint32_t cut = 1; cut < r->made[id].len; cut++) {
        if (!r->is_byte_level && ((uint8_t)piece[cut] & 0xC0) == 0x80) continue;
        uint32_t left = relay_bpe_rules_find(r, piece, cut);
        if (left == RELAY_BPE_NONE) continue;
        uint32_t right = relay_bpe_rules_find(r, piece + cut, r->made[id].len - cut);
        if (right != RELAY_BPE_NONE) add_rule(out, (rule){.left = left, .right = right, .id = id, .rank = rank});
    }
}

// By rank, from 1.
static rule_list list_rules(const relay_bpe_rules *r, const relay_model_spec *m) {
    rule_list l = {0};
    if (m->order == RELAY_BPE_BY_MERGES) {
        for (uint32_t i = 0; i < m->n_merges; i++)
            add_rule(&l, (rule){m->merges[i].left, m->merges[i].right, m->merges[i].result, i + 1});
        return l;
    }
    ranked_token *order = relay_calloc((size_t)r->n_ids + 1, sizeof *order);
    uint32_t n = 0;
    for (uint32_t id = 0; id < r->n_ids; id++)
        if (r->pieces[id] != NULL && relay_bpe_rules_find(r, r->pieces[id], r->made[id].len) == id)
            order[n++] = (ranked_token){.score = m->tokens[id].score, .id = id};
    bool by_score = m->order == RELAY_BPE_BY_SCORE;
    if (by_score) qsort(order, n, sizeof *order, compare_scores);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || !by_score || order[i].score != order[i - 1].score) rank++;
        add_cuts(r, order[i].id, rank, &l);
    }
    free(order);
    return l;
}

// ---- The tokens' own rules

static bool is_lower(const relay_bpe_rules *r, uint32_t id, uint32_t rank) {
    return r->made[id].rank < rank; // RELAY_BPE_NONE is not
}

static void set_rule(relay_bpe_rules *r, const rule *x) {
    r->made[x->id].left = x->left;
    r->made[x->id].right = x->right;
    r->made[x->id].rank = x->rank;
    relay_bpe_pairs_add(&r->pairs, (relay_bpe_pair){.left = x->left, .right = x->right, .rank = x->rank, .id = x->id});
}

static relay_code find_rules(relay_bpe_rules *r, const rule_list *l, relay_err *e) {
    for (uint32_t i = 0; i < l->n; i++) {
        const rule *x = &l->rules[i];
        relay_bpe_made *z = &r->made[x->id];
        if (z->rank != RELAY_BPE_NONE) {
            if (z->left == x->left && z->right == x->right && z->rank > 0)
                return relay_fail(e, RELAY_INVALID_ARGUMENT, "model.merges[%u] repeats merge %u", i, z->rank - 1);
            continue;
        }
        if (is_lower(r, x->left, x->rank) && is_lower(r, x->right, x->rank) &&
            relay_bpe_stay_apart(r, x->left, x->right))
            set_rule(r, x);
    }
    return RELAY_OK;
}

static bool put_together(const relay_bpe_rules *r, const rule *x) {
    if (r->pieces[x->left] == NULL || r->pieces[x->right] == NULL || r->pieces[x->id] == NULL) return false;
    uint32_t left_len = r->made[x->left].len;
    return r->made[x->id].len == left_len + r->made[x->right].len &&
           memcmp(r->pieces[x->id], r->pieces[x->left], left_len) == 0 &&
           memcmp(r->pieces[x->id] + left_len, r->pieces[x->right], r->made[x->right].len) == 0;
}

bool relay_bpe_rules_start(const relay_bpe_rules *r, const char *word, uint32_t len, relay_bpe_symbols *out) {
    out->n = 0;
    for (uint32_t at = 0, n; at < len; at += n) {
        uint32_t cp;
        n = r->is_byte_level ? 1 : (uint32_t)relay_utf8_decode(word + at, len - at, &cp);
        uint32_t id = n == 0 ? RELAY_BPE_NONE : relay_bpe_rules_find(r, word + at, n);
        if (id == RELAY_BPE_NONE) return false;
        relay_bpe_symbols_add(out, id, at, at + n);
    }
    return true;
}

static void mark_odd(relay_bpe_rules *r, uint32_t id) {
    if (r->odd == NULL) r->odd = relay_calloc((size_t)r->n_ids / 64 + 1, sizeof *r->odd);
    r->odd[id / 64] |= UINT64_C(1) << (id % 64);
}

// The rules whose token has none yet: what their bytes become by all rules, these included, shows which of them fire.
// Returns how many did.
static uint32_t find_odd_rules(relay_bpe_rules *r, const rule_list *l) {
    uint32_t n_open = 0, n_found = 0;
    for (uint32_t i = 0; i < l->n; i++)
        n_open += r->made[l->rules[i].id].rank == RELAY_BPE_NONE;
    if (n_open == 0) return 0;
    relay_bpe_pairs all;
    relay_bpe_pairs_init(&all, r->pairs.n + n_open);
    rule_list open = {0};
    for (uint32_t i = 0; i < l->n; i++) {
        const rule *x = &l->rules[i];
        const relay_bpe_made *z = &r->made[x->id];
        bool is_own = z->left == x->left && z->right == x->right && z->rank == x->rank;
        if (!is_own && z->rank != RELAY_BPE_NONE) continue;
        if (relay_bpe_pairs_find(&all, x->left, x->right) != NULL) continue;
        relay_bpe_pairs_add(&all, (relay_bpe_pair){.left = x->left, .right = x->right, .rank = x->rank, .id = x->id});
        if (!is_own) add_rule(&open, *x);
    }
    relay_bpe_symbols halves[2] = {0};
    rule_list found = {0};
    for (uint32_t i = 0; i < open.n; i++) {
        // The rule is the token's own if each part comes from its own bytes and the two together become the token.
        const rule *x = &open.rules[i];
        bool is_found = relay_bpe_rules_start(r, r->pieces[x->id], r->made[x->id].len, &halves[0]);
        if (is_found) relay_bpe_merge(&all, &halves[0]);
        if (!is_found || halves[0].n != 1 || halves[0].s[0].id != x->id) continue;
        // It does become one; whether by this rule: without its last step it is the two parts.
        relay_bpe_pair *own = (relay_bpe_pair *)relay_bpe_pairs_find(&all, x->left, x->right);
        uint32_t rank = own->rank;
        own->left = own->right = RELAY_BPE_NONE - 1; // hidden, and the slot still taken
        relay_bpe_rules_start(r, r->pieces[x->id], r->made[x->id].len, &halves[1]);
        relay_bpe_merge(&all, &halves[1]);
        own->left = x->left;
        own->right = x->right;
        own->rank = rank;
        if (halves[1].n == 2 && halves[1].s[0].id == x->left && halves[1].s[1].id == x->right) add_rule(&found, *x);
    }
    for (uint32_t i = 0; i < found.n; i++) {
        set_rule(r, &found.rules[i]);
        mark_odd(r, found.rules[i].id);
        n_found++;
    }
    relay_bpe_symbols_fini(&halves[0]);
    relay_bpe_symbols_fini(&halves[1]);
    relay_bpe_pairs_fini(&all);
    free(open.rules);
    free(found.rules);
    return n_found;
}

// With odd rules there, whether the others still hold.
static bool check_rules(relay_bpe_rules *r, const rule_list *l) {
    for (uint32_t i = 0; i < l->n; i++) {
        const rule *x = &l->rules[i];
        const relay_bpe_made *z = &r->made[x->id];
        if (z->left != x->left || z->right != x->right || z->rank != x->rank || relay_bpe_is_odd(r, x->id)) continue;
        uint32_t rank = z->rank;
        relay_bpe_pair *own = (relay_bpe_pair *)relay_bpe_pairs_find(&r->pairs, x->left, x->right);
        own->rank = RELAY_BPE_NONE;
        bool holds = relay_bpe_stay_apart(r, x->left, x->right);
        own->rank = rank;
        if (!holds) return false;
    }
    return true;
}

// All rules of the file as they stand.
static relay_code take_all(relay_bpe_rules *r, const rule_list *l, relay_err *e) {
    r->is_linear = false;
    relay_bpe_pairs_fini(&r->pairs);
    relay_bpe_pairs_init(&r->pairs, l->n);
    for (uint32_t i = 0; i < l->n; i++) {
        const rule *x = &l->rules[i];
        const relay_bpe_pair *known = relay_bpe_pairs_find(&r->pairs, x->left, x->right);
        if (known != NULL)
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "model.merges[%u] repeats merge %u", i, known->rank - 1);
        relay_bpe_pairs_add(&r->pairs,
                            (relay_bpe_pair){.left = x->left, .right = x->right, .rank = x->rank, .id = x->id});
    }
    return RELAY_OK;
}

static bool has_affixes(const relay_model_spec *m) {
    return m->continuing_subword_prefix.len > 0 || m->end_of_word_suffix.len > 0;
}

relay_code relay_bpe_rules_init(relay_bpe_rules *r, const relay_model_spec *m, relay_err *e) {
    *r = (relay_bpe_rules){0};
    load_pieces(r, m);
    load_bytes(r, m);
    load_singles(r);
    relay_code code = m->order == RELAY_BPE_BY_MERGES ? check_merges(m, e) : RELAY_OK;
    if (code != RELAY_OK) return code;
    rule_list l = list_rules(r, m);
    relay_bpe_pairs_init(&r->pairs, l.n < r->n_ids ? l.n : r->n_ids);
    r->is_linear = !has_affixes(m);
    for (uint32_t i = 0; i < l.n && r->is_linear; i++)
        r->is_linear = put_together(r, &l.rules[i]);
    if (r->is_linear) code = find_rules(r, &l, e);
    if (code == RELAY_OK && r->is_linear && find_odd_rules(r, &l) > 0) r->is_linear = check_rules(r, &l);
    if (code == RELAY_OK && !r->is_linear) code = take_all(r, &l, e);
    free(l.rules);
    return code;
}

void relay_bpe_rules_fini(relay_bpe_rules *r) {
    free(r->made);
    free(r->odd);
    relay_bpe_pairs_fini(&r->pairs);
    free(r->pieces);
    free(r->piece_bytes);
    free(r->index);
    *r = (relay_bpe_rules){0};
}
