#include "model_svc/constraint/mask.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "model_svc/constraint/pages.h"
#include "model_svc/constraint/sort.h"

enum {
    POOL_WORDS = 1 << 21,  // of kept masks and entries: 8 MiB
    MAX_LEAVING = 1 << 13, // ids of one entry that leave the rule
    MAX_GROUPS = 256,
    MAX_PATH = 32, // bytes up to where a group leaves
    MAX_SUFFIX_NODES = 1 << 16,
    KEEP_VISITS = 1000,                          // a mask that costs more is kept
    MAX_LOCAL_DEPTH = RELAY_MAX_FRAME_DEPTH / 2, // deeper, what a local configuration allows may be too deep
    WIDE_BYTES = 16,
    USELESS = 1, // an entry that was tried and has no use; also no place in the pool
};

// What is kept of a local configuration; in the pool, followed by its ids or bits, then its groups.
typedef struct entry {
    uint32_t n_ids; // that it settles; UINT32_MAX: as bits
    uint32_t n_groups;
} entry;

// Ids that leave the rule in the same way: `path` leads there from the beginning, the trie holds what they go on with.
// Followed by the trie's nodes and ids.
typedef struct group {
    uint32_t path_len;
    uint8_t path[MAX_PATH];
    uint32_t n_nodes, n_ids;
} group;

typedef struct leaving {
    uint32_t group;
    relay_trie_key key;
} leaving;

typedef struct new_group {
    uint32_t config; // local, where it leaves
    uint32_t path_len;
    uint8_t path[MAX_PATH];
} new_group;

struct relay_mask_maker {
    relay_pushdown *p;
    const relay_token_table *tokens;
    uint32_t *pool;
    uint32_t n_pool; // words used; the first two are none
    uint64_t visits;
    uint32_t configs[RELAY_TRIE_MAX_DEPTH + 1]; // along the path of a walk
    uint8_t path[RELAY_TRIE_MAX_DEPTH + 1];
    // An entry being made.
    uint32_t *bits;
    uint32_t n_leaving, n_groups;
    leaving *leaving;
    new_group groups[MAX_GROUPS];
    relay_trie_key *keys;
    relay_trie_node *nodes; // [MAX_SUFFIX_NODES]
    uint32_t *ids;
};

static void set_bit(uint32_t *bits, uint32_t id) {
    bits[id / 32] |= 1u << id % 32;
}

// Sets the bit of every id whose bytes lead from `config` to one that is alive.
static void walk(relay_mask_maker *m, const relay_token_trie *t, uint32_t config, uint32_t *bits) {
    m->configs[0] = config;
    uint32_t i = 0, visits = 0;
    while (i < t->n_nodes) {
        const relay_trie_node *node = &t->nodes[i];
        uint32_t to = relay_pushdown_step(m->p, m->configs[node->depth - 1], node->byte);
        visits++;
        if (to == RELAY_CONFIG_DEAD) {
            i = node->skip;
            continue;
        }
        m->configs[node->depth] = to;
        for (uint32_t k = node->first; k < node[1].first; k++)
            set_bit(bits, t->ids[k]);
        i++;
    }
    m->visits += visits;
}

// ---- Entries

static uint32_t find_group(relay_mask_maker *m, uint32_t config, uint32_t depth) {
    for (uint32_t i = 0; i < m->n_groups; i++) {
        if (m->groups[i].config == config) return i;
    }
    if (m->n_groups == MAX_GROUPS || depth > MAX_PATH) return MAX_GROUPS;
    new_group *g = &m->groups[m->n_groups];
    g->config = config;
    g->path_len = depth;
    memcpy(g->path, m->path, depth);
    return m->n_groups++;
}

// As walk() from a local configuration. What goes on past a place where the rule may be left is not cut off, but noted,
// unless the rule itself allows it. False where there is too much of it.
static bool walk_local(relay_mask_maker *m, uint32_t config) {
    const relay_token_trie *t = &m->tokens->text;
    uint32_t i = 0, group_depth = 0, group_index = 0;
    m->configs[0] = config;
    m->n_leaving = m->n_groups = 0;
    memset(m->bits, 0, m->tokens->n_words * sizeof m->bits[0]);
    while (i < t->n_nodes) {
        const relay_trie_node *node = &t->nodes[i];
        if (node->depth <= group_depth) group_depth = 0;
        uint32_t to = relay_pushdown_step(m->p, m->configs[node->depth - 1], node->byte);
        m->visits++;
        if (to == RELAY_CONFIG_DEAD && group_depth == 0) {
            i = node->skip;
            continue;
        }
        m->configs[node->depth] = to;
        m->path[node->depth - 1] = node->byte;
        for (uint32_t k = node->first; k < node[1].first; k++) {
            uint32_t id = t->ids[k];
            if (to != RELAY_CONFIG_DEAD) {
                set_bit(m->bits, id);
                continue;
            }
            if (m->n_leaving == MAX_LEAVING) return false;
            const relay_token *token = relay_vocab_token(m->tokens->vocab, id);
            m->leaving[m->n_leaving++] =
                (leaving){.group = group_index,
                          .key = {.bytes = token->bytes + group_depth, .len = token->len - group_depth, .id = id}};
        }
        if (group_depth == 0 && m->p->configs[to].is_leaking) {
            group_depth = node->depth;
            group_index = find_group(m, to, node->depth);
            if (group_index == MAX_GROUPS) return false;
        }
        i++;
    }
    return true;
}

static int compare_groups(const void *a, const void *b) {
    const leaving *x = a, *y = b;
    return (x->group > y->group) - (x->group < y->group);
}

// Room in the pool; NULL, and the automaton counts as full, where there is none.
static void *take(relay_mask_maker *m, uint32_t words) {
    if (words > POOL_WORDS - m->n_pool) {
        m->p->is_full = true;
        return NULL;
    }
    m->n_pool += words;
    return m->pool + m->n_pool - words;
}

static uint32_t words_for(uint64_t bytes) {
    return (uint32_t)((bytes + 3) / 4);
}

// One group with the ids of keys[0, n). False where there is no room.
static bool put_group(relay_mask_maker *m, const new_group *from, uint32_t n) {
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += m->keys[i].len;
    if (n_bytes >= MAX_SUFFIX_NODES) return false;
    relay_trie_keys_sort(m->keys, n);
    relay_token_trie t;
    relay_token_trie_build(&t, m->nodes, m->ids, m->keys, n);
    uint64_t nodes_bytes = (t.n_nodes + 1) * sizeof t.nodes[0];
    group *g = take(m, words_for(sizeof *g + nodes_bytes) + t.n_ids);
    if (g == NULL) return false;
    *g = (group){.path_len = from->path_len, .n_nodes = t.n_nodes, .n_ids = t.n_ids};
    memcpy(g->path, from->path, from->path_len);
    memcpy(g + 1, t.nodes, nodes_bytes);
    memcpy((char *)(g + 1) + nodes_bytes, t.ids, t.n_ids * sizeof t.ids[0]);
    return true;
}

static uint32_t count_bits(const uint32_t *bits, uint32_t n_words) {
    uint32_t n = 0;
    for (uint32_t w = 0; w < n_words; w++)
        n += (uint32_t)__builtin_popcount(bits[w]);
    return n;
}

static bool put_settled(relay_mask_maker *m, entry *e) {
    uint32_t n_words = m->tokens->n_words, n_ids = count_bits(m->bits, n_words);
    bool as_bits = n_ids >= n_words;
    e->n_ids = as_bits ? UINT32_MAX : n_ids;
    uint32_t *out = take(m, as_bits ? n_words : n_ids);
    if (out == NULL) return false;
    if (as_bits) {
        memcpy(out, m->bits, n_words * sizeof out[0]);
        return true;
    }
    for (uint32_t w = 0; w < n_words; w++) {
        for (uint32_t word = m->bits[w]; word != 0; word &= word - 1)
            *out++ = 32 * w + (uint32_t)__builtin_ctz(word);
    }
    return true;
}

// The place of the entry of a local configuration, or USELESS.
static uint32_t make_entry(relay_mask_maker *m, uint32_t local) {
    if (!walk_local(m, local) || m->p->is_full) return USELESS;
    uint32_t place = m->n_pool;
    entry *e = take(m, words_for(sizeof *e));
    if (e == NULL) return USELESS;
    *e = (entry){0};
    if (!put_settled(m, e)) return USELESS;
    relay_sort(m->leaving, m->n_leaving, sizeof m->leaving[0], compare_groups);
    for (uint32_t i = 0; i < m->n_leaving;) {
        uint32_t n = 0, index = m->leaving[i].group;
        for (; i < m->n_leaving && m->leaving[i].group == index; i++)
            m->keys[n++] = m->leaving[i].key;
        if (!put_group(m, &m->groups[index], n)) {
            if (!m->p->is_full) m->n_pool = place;
            return USELESS;
        }
        e->n_groups++;
    }
    return place;
}

static uint32_t get_entry(relay_mask_maker *m, uint32_t local) {
    relay_config *c = &m->p->configs[local];
    if (c->entry == 0) c->entry = make_entry(m, local);
    return c->entry;
}

// The mask of `config` from the entry of its local one.
static void fill_from_entry(relay_mask_maker *m, uint32_t place, uint32_t config, uint32_t *bits) {
    const entry *e = (const entry *)(const void *)(m->pool + place);
    const uint32_t *ids = (const uint32_t *)(const void *)(e + 1);
    uint32_t n_words = m->tokens->n_words;
    if (e->n_ids == UINT32_MAX) {
        memcpy(bits, ids, n_words * sizeof bits[0]);
        ids += n_words;
    } else {
        memset(bits, 0, n_words * sizeof bits[0]);
        for (uint32_t i = 0; i < e->n_ids; i++)
            set_bit(bits, ids[i]);
        ids += e->n_ids;
    }
    const group *g = (const group *)(const void *)ids;
    for (uint32_t i = 0; i < e->n_groups; i++) {
        const relay_trie_node *nodes = (const relay_trie_node *)(const void *)(g + 1);
        relay_token_trie t = {.nodes = nodes, .n_nodes = g->n_nodes, .n_ids = g->n_ids};
        t.ids = (const uint32_t *)(const void *)(nodes + g->n_nodes + 1);
        uint32_t at = config;
        for (uint32_t k = 0; k < g->path_len; k++)
            at = relay_pushdown_step(m->p, at, g->path[k]);
        walk(m, &t, at, bits);
        g = (const group *)(const void *)(t.ids + g->n_ids);
    }
}

// ---- Masks

static void fill_plain(relay_mask_maker *m, uint32_t config, uint32_t *bits) {
    memset(bits, 0, m->tokens->n_words * sizeof bits[0]);
    walk(m, &m->tokens->text, config, bits);
    if (m->p->configs[config].scanned > 0) walk(m, &m->tokens->named, config, bits);
}

void relay_mask_fill(relay_mask_maker *m, uint32_t config, uint32_t *bits) {
    uint32_t n_words = m->tokens->n_words;
    relay_config *c = &m->p->configs[config];
    if (c->mask != 0) {
        memcpy(bits, m->pool + c->mask, n_words * sizeof bits[0]);
        return;
    }
    uint64_t visits = m->visits;
    uint32_t place = USELESS;
    if (c->scanned == 0 && c->depth < MAX_LOCAL_DEPTH) {
        uint32_t local = relay_pushdown_local(m->p, config);
        if (local != RELAY_CONFIG_DEAD) place = get_entry(m, local);
    }
    if (m->p->is_full) return;
    if (place != USELESS) {
        visits = m->visits;
        fill_from_entry(m, place, config, bits);
    } else {
        fill_plain(m, config, bits);
    }
    if (m->visits - visits < KEEP_VISITS || m->p->is_full) return;
    uint32_t *kept = take(m, n_words);
    if (kept == NULL) return;
    memcpy(kept, bits, n_words * sizeof bits[0]);
    c->mask = (uint32_t)(kept - m->pool);
}

void relay_mask_warm(relay_mask_maker *m, uint64_t max_visits) {
    const relay_automaton *a = m->p->a;
    uint32_t sizes[256] = {0};
    for (uint32_t b = 0; b < 256; b++)
        sizes[a->classes[b]]++;
    for (uint32_t s = RELAY_FIRST_STATE; s < a->n_states && m->visits < max_visits; s++) {
        if (a->alike[s] != s) continue;
        uint32_t n_bytes = 0;
        for (uint32_t c = 0; c < a->n_classes; c++) {
            if (a->rows[(size_t)s * a->n_classes + c] != RELAY_STATE_DEAD) n_bytes += sizes[c];
        }
        if (n_bytes < WIDE_BYTES) continue;
        uint32_t local = relay_pushdown_local_state(m->p, s);
        if (local != RELAY_CONFIG_DEAD) get_entry(m, local);
        if (m->p->is_full) return;
    }
}

uint64_t relay_mask_visits(const relay_mask_maker *m) {
    return m->visits;
}

// ---- Create

relay_mask_maker *relay_mask_maker_create(relay_pushdown *p, const relay_token_table *tokens) {
    relay_mask_maker *m = relay_calloc(1, sizeof *m);
    m->p = p;
    m->tokens = tokens;
    m->pool = relay_pages_map(POOL_WORDS * sizeof m->pool[0]);
    m->bits = relay_calloc(tokens->n_words + 1, sizeof m->bits[0]);
    m->leaving = relay_pages_map(MAX_LEAVING * sizeof m->leaving[0]);
    m->keys = relay_pages_map(MAX_LEAVING * sizeof m->keys[0]);
    m->nodes = relay_pages_map(MAX_SUFFIX_NODES * sizeof m->nodes[0]);
    m->ids = relay_calloc(MAX_LEAVING, sizeof m->ids[0]);
    relay_mask_maker_reset(m);
    return m;
}

void relay_mask_maker_reset(relay_mask_maker *m) {
    m->n_pool = USELESS + 1;
}

void relay_mask_maker_destroy(relay_mask_maker *m) {
    if (m == NULL) return;
    relay_pages_unmap(m->pool, POOL_WORDS * sizeof m->pool[0]);
    free(m->bits);
    relay_pages_unmap(m->leaving, MAX_LEAVING * sizeof m->leaving[0]);
    relay_pages_unmap(m->keys, MAX_LEAVING * sizeof m->keys[0]);
    relay_pages_unmap(m->nodes, MAX_SUFFIX_NODES * sizeof m->nodes[0]);
    free(m->ids);
    free(m);
}
