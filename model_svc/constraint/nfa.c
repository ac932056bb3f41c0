// Nodes are made back to front: an expression is built to lead to a node that exists, so that nothing is patched but
// loops. A subset holds only nodes that read, call or end; what leads there without reading is followed when the subset
// is made.
#include "model_svc/constraint/nfa.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"

enum { MAX_NODES = 1 << 20, MAX_SUBSET_ITEMS = 1 << 22, NONE = UINT32_MAX };

typedef enum node_kind { NODE_SPLIT, NODE_SET, NODE_CALL, NODE_FINAL } node_kind;

typedef struct node {
    uint32_t kind;
    uint32_t arg; // NODE_SET: its set of classes; NODE_CALL: the rule; NODE_SPLIT: the second way, or NONE
    uint32_t to;
} node;

struct relay_nfa {
    relay_grammar *g;
    const bool *is_nullable;
    uint8_t classes[256];
    uint32_t n_classes;
    relay_byte_set *class_sets; // one for each set of the grammar, then those of products
    uint32_t n_sets, cap_sets;
    node *nodes;
    uint32_t n_nodes, cap_nodes;
    uint32_t *marks; // by node: the number of the closure it was last in
    uint32_t mark;
    uint32_t *stack; // of a closure being made
    uint32_t cap_marks;
    struct memo *memo; // of the expression being built
};

// What was built: an expression that is used again before the same continuation is the same nodes. Open addressing.
typedef struct memo {
    struct memo_slot {
        uint32_t expr, to, node; // expr 0: free
    } * slots;
    uint32_t n, mask;
} memo;

static bool has(const relay_byte_set *s, uint32_t i) {
    return s->bits[i / 64] >> i % 64 & 1;
}

static void group_bytes(relay_nfa *n) {
    const relay_grammar *g = n->g;
    n->n_classes = 1;
    for (uint32_t s = 0; s < g->n_sets && n->n_classes < 256; s++) {
        uint32_t split[256]; // by class: its number for the bytes in this set
        uint32_t n_in[256] = {0}, n_all[256] = {0};
        for (uint32_t b = 0; b < 256; b++) {
            n_all[n->classes[b]]++;
            n_in[n->classes[b]] += has(&g->sets[s], b);
        }
        for (uint32_t c = 0, known = n->n_classes; c < known; c++) {
            split[c] = n_in[c] == 0 || n_in[c] == n_all[c] ? c : n->n_classes++;
        }
        for (uint32_t b = 0; b < 256; b++) {
            if (has(&g->sets[s], b)) n->classes[b] = (uint8_t)split[n->classes[b]];
        }
    }
}

relay_nfa *relay_nfa_create(relay_grammar *g, const bool *is_nullable) {
    relay_nfa *n = relay_calloc(1, sizeof *n);
    n->g = g;
    n->is_nullable = is_nullable;
    group_bytes(n);
    n->cap_sets = n->n_sets = g->n_sets;
    n->class_sets = relay_calloc(n->cap_sets + 1, sizeof n->class_sets[0]);
    for (uint32_t s = 0; s < g->n_sets; s++) {
        for (uint32_t b = 0; b < 256; b++) {
            if (has(&g->sets[s], b)) n->class_sets[s].bits[n->classes[b] / 64] |= 1ull << n->classes[b] % 64;
        }
    }
    return n;
}

void relay_nfa_destroy(relay_nfa *n) {
    if (n == NULL) return;
    free(n->class_sets);
    free(n->nodes);
    free(n->marks);
    free(n->stack);
    free(n);
}

uint32_t relay_nfa_classes(const relay_nfa *n, uint8_t classes[256]) {
    memcpy(classes, n->classes, sizeof n->classes);
    return n->n_classes;
}

// ---- From expressions to nodes

static uint32_t add_node(relay_nfa *n, node_kind kind, uint32_t arg, uint32_t to) {
    if (n->n_nodes >= MAX_NODES) relay_grammar_pass_limit(n->g, "more than 1048576 parts with its repeats written out");
    if (!relay_grammar_spend(n->g, 1)) return 0;
    if (n->n_nodes == n->cap_nodes) {
        n->cap_nodes = n->cap_nodes == 0 ? 256 : 2 * n->cap_nodes;
        n->nodes = relay_realloc(n->nodes, n->cap_nodes * sizeof n->nodes[0]);
    }
    n->nodes[n->n_nodes] = (node){.kind = kind, .arg = arg, .to = to};
    return n->n_nodes++;
}

static struct memo_slot *memo_find(memo *m, uint32_t expr, uint32_t to) {
    uint32_t at = (uint32_t)(((uint64_t)expr << 32 | to) * 0x9E3779B97F4A7C15ull >> 32) & m->mask;
    while (m->slots[at].expr != 0 && (m->slots[at].expr != expr || m->slots[at].to != to))
        at = (at + 1) & m->mask;
    return &m->slots[at];
}

static void memo_add(memo *m, uint32_t expr, uint32_t to, uint32_t from) {
    if (2 * m->n >= m->mask) {
        memo old = *m;
        *m = (memo){.mask = old.mask == 0 ? 63 : 2 * old.mask + 1};
        m->slots = relay_calloc(m->mask + 1ull, sizeof m->slots[0]);
        for (uint32_t i = 0; old.slots != NULL && i <= old.mask; i++) {
            if (old.slots[i].expr != 0) memo_add(m, old.slots[i].expr, old.slots[i].to, old.slots[i].node);
        }
        free(old.slots);
    }
    *memo_find(m, expr, to) = (struct memo_slot){.expr = expr, .to = to, .node = from};
    m->n++;
}

static uint32_t build_product(relay_nfa *n, const relay_expr_node *x, uint32_t to);
static uint32_t build_list(relay_nfa *n, const relay_expr_node *x, uint32_t to);

// The node from which `x` is read and then `to` reached. Its depth is that of the expression, which readers bound.
static uint32_t build(relay_nfa *n, relay_expr expr, uint32_t to) {
    const relay_expr_node *x = &n->g->exprs[expr];
    switch ((relay_expr_kind)x->kind) {
    case RELAY_EXPR_KIND_NOTHING:
        return NONE;
    case RELAY_EXPR_KIND_EMPTY:
        return to;
    case RELAY_EXPR_KIND_SET:
        return add_node(n, NODE_SET, x->a, to);
    case RELAY_EXPR_KIND_SEQ:
    case RELAY_EXPR_KIND_ALT: {
        if (n->memo->n > 0) {
            const struct memo_slot *known = memo_find(n->memo, expr, to);
            if (known->expr != 0) return known->node;
        }
        uint32_t from = build_list(n, x, to);
        memo_add(n->memo, expr, to, from);
        return from;
    }
    case RELAY_EXPR_KIND_REPEAT: {
        uint32_t min = n->g->children[x->b], max = n->g->children[x->b + 1];
        if (max == RELAY_UNBOUNDED) {
            uint32_t loop = add_node(n, NODE_SPLIT, to, NONE);
            uint32_t body = build(n, x->a, loop);
            if (n->g->code != RELAY_OK) return NONE;
            n->nodes[loop].to = body;
            to = loop;
        } else {
            uint32_t end = to;
            for (uint32_t i = min; i < max && n->g->code == RELAY_OK; i++) {
                uint32_t way = build(n, x->a, to);
                if (way == NONE) break;
                to = add_node(n, NODE_SPLIT, end, way);
            }
        }
        for (uint32_t i = 0; i < min && to != NONE && n->g->code == RELAY_OK; i++)
            to = build(n, x->a, to);
        return to;
    }
    case RELAY_EXPR_KIND_RULE: {
        uint32_t call = add_node(n, NODE_CALL, x->a, to);
        return n->is_nullable[x->a] ? add_node(n, NODE_SPLIT, to, call) : call;
    }
    case RELAY_EXPR_KIND_AND:
    case RELAY_EXPR_KIND_MINUS:
        return build_product(n, x, to);
    }
    return NONE;
}

static uint32_t build_list(relay_nfa *n, const relay_expr_node *x, uint32_t to) {
    const uint32_t *children = n->g->children + x->a;
    if (x->kind == RELAY_EXPR_KIND_SEQ) {
        for (uint32_t i = x->b; i-- > 0 && to != NONE && n->g->code == RELAY_OK;)
            to = build(n, children[i], to);
        return to;
    }
    uint32_t all = NONE;
    for (uint32_t i = x->b; i-- > 0 && n->g->code == RELAY_OK;) {
        uint32_t way = build(n, children[i], to);
        if (way != NONE) all = all == NONE ? way : add_node(n, NODE_SPLIT, all, way);
    }
    return all;
}

// ---- Subsets

// Open addressing from a subset to its number.
typedef struct subsets {
    uint32_t *items; // all of them, one behind the other
    uint32_t n_items, cap_items;
    uint32_t *begins; // [n + 1]
    uint32_t n, cap;
    uint32_t *table;
    uint32_t table_mask;
} subsets;

static uint32_t hash_items(const uint32_t *items, uint32_t n) {
    uint64_t h = 0x9E3779B97F4A7C15ull ^ n;
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ items[i]) * 0xFF51AFD7ED558CCDull, h ^= h >> 32;
    return (uint32_t)h;
}

static void subsets_fini(subsets *s) {
    free(s->items);
    free(s->begins);
    free(s->table);
}

static void subsets_grow_table(subsets *s) {
    uint32_t size = s->table_mask == 0 ? 256 : 2 * (s->table_mask + 1);
    free(s->table);
    s->table = relay_calloc(size, sizeof s->table[0]);
    s->table_mask = size - 1;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t at = hash_items(s->items + s->begins[i], s->begins[i + 1] - s->begins[i]) & s->table_mask;
        while (s->table[at] != 0)
            at = (at + 1) & s->table_mask;
        s->table[at] = i + 1;
    }
}

// The number of the subset whose items were appended last, from `begin` on; takes them back if it is known.
static uint32_t subsets_intern(subsets *s, uint32_t begin) {
    uint32_t n = s->n_items - begin;
    if (2 * s->n >= s->table_mask) subsets_grow_table(s);
    uint32_t at = hash_items(s->items + begin, n) & s->table_mask;
    for (; s->table[at] != 0; at = (at + 1) & s->table_mask) {
        uint32_t i = s->table[at] - 1;
        if (s->begins[i + 1] - s->begins[i] == n &&
            memcmp(s->items + s->begins[i], s->items + begin, n * sizeof s->items[0]) == 0) {
            s->n_items = begin;
            return i;
        }
    }
    if (s->n + 2 > s->cap) {
        s->cap = s->cap == 0 ? 64 : 2 * s->cap;
        s->begins = relay_realloc(s->begins, s->cap * sizeof s->begins[0]);
    }
    s->begins[s->n] = begin;
    s->begins[s->n + 1] = s->n_items;
    s->table[at] = s->n + 1;
    return s->n++;
}

static void subsets_append(subsets *s, uint32_t item) {
    if (s->n_items == s->cap_items) {
        s->cap_items = s->cap_items == 0 ? 1024 : 2 * s->cap_items;
        s->items = relay_realloc(s->items, s->cap_items * sizeof s->items[0]);
    }
    s->items[s->n_items++] = item;
}

static void begin_closure(relay_nfa *n) {
    if (n->cap_marks < n->n_nodes) {
        n->marks = relay_realloc(n->marks, n->cap_nodes * sizeof n->marks[0]);
        n->stack = relay_realloc(n->stack, n->cap_nodes * sizeof n->stack[0]);
        memset(n->marks + n->cap_marks, 0, (n->cap_nodes - n->cap_marks) * sizeof n->marks[0]);
        n->cap_marks = n->cap_nodes;
    }
    n->mark++;
}

// Appends what is reached from `from` without reading.
static void follow(relay_nfa *n, subsets *s, uint32_t from) {
    uint32_t depth = 0;
    if (from == NONE || n->marks[from] == n->mark) return;
    n->marks[from] = n->mark;
    n->stack[depth++] = from;
    while (depth > 0) {
        uint32_t at = n->stack[--depth];
        const node *x = &n->nodes[at];
        if (x->kind != NODE_SPLIT) {
            subsets_append(s, at);
            continue;
        }
        uint32_t ways[2] = {x->arg, x->to};
        for (uint32_t i = 0; i < 2; i++) {
            if (ways[i] == NONE || n->marks[ways[i]] == n->mark) continue;
            n->marks[ways[i]] = n->mark;
            n->stack[depth++] = ways[i];
        }
    }
}

static int compare_u32(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

// The items from `begin` on as a subset; NONE if there are none or past a limit.
static uint32_t end_closure(relay_nfa *n, subsets *s, uint32_t begin) {
    uint32_t count = s->n_items - begin;
    if (count == 0 || !relay_grammar_spend(n->g, 4 + count)) return NONE;
    qsort(s->items + begin, count, sizeof s->items[0], compare_u32);
    uint32_t i = subsets_intern(s, begin);
    if (s->n_items > MAX_SUBSET_ITEMS) relay_grammar_pass_limit(n->g, "too many states at once");
    if (s->n > RELAY_AUTOMATON_MAX_STATES) relay_grammar_pass_limit(n->g, "more than 65536 states");
    return i;
}

static void reserve_row(relay_dfa *d, uint32_t *cap, uint32_t state) {
    if (state < *cap) return;
    *cap = *cap == 0 ? 16 : 2 * *cap;
    d->rows = relay_realloc(d->rows, (uint64_t)*cap * d->n_classes * sizeof d->rows[0]);
    d->is_final = relay_realloc(d->is_final, *cap * sizeof d->is_final[0]);
    d->first_call = relay_realloc(d->first_call, (*cap + 1) * sizeof d->first_call[0]);
}

// The edges of `state` for every class, from the sets of its nodes: classes that the same nodes read lead to one place,
// so each is worked out once.
static void put_bytes(relay_nfa *n, subsets *s, relay_dfa *d, uint32_t state) {
    uint32_t *row = d->rows + (uint64_t)state * d->n_classes;
    memset(row, 0xFF, d->n_classes * sizeof row[0]);
    relay_byte_set unread = {{0}};
    for (uint32_t i = s->begins[state]; i < s->begins[state + 1]; i++) {
        const node *x = &n->nodes[s->items[i]];
        if (x->kind != NODE_SET) continue;
        for (uint32_t w = 0; w < 4; w++)
            unread.bits[w] |= n->class_sets[x->arg].bits[w];
    }
    for (uint32_t c = 0; c < d->n_classes; c++) {
        if (!has(&unread, c)) continue;
        relay_byte_set same = unread;
        uint32_t begin = s->n_items;
        begin_closure(n);
        for (uint32_t i = s->begins[state]; i < s->begins[state + 1]; i++) {
            node x = n->nodes[s->items[i]];
            if (x.kind != NODE_SET) continue;
            const relay_byte_set *set = &n->class_sets[x.arg];
            bool is_in = has(set, c);
            for (uint32_t w = 0; w < 4; w++)
                same.bits[w] &= is_in ? set->bits[w] : ~set->bits[w];
            if (is_in) follow(n, s, x.to);
        }
        if (!relay_grammar_spend(n->g, 1 + s->begins[state + 1] - s->begins[state])) return;
        uint32_t to = end_closure(n, s, begin);
        if (n->g->code != RELAY_OK) return;
        for (uint32_t k = c; k < d->n_classes; k++) {
            if (has(&same, k)) row[k] = to;
        }
        for (uint32_t w = 0; w < 4; w++)
            unread.bits[w] &= ~same.bits[w];
    }
}

static int compare_nodes_by_rule(const void *a, const void *b) {
    const relay_call_edge *x = a, *y = b;
    return (x->rule > y->rule) - (x->rule < y->rule);
}

// One edge for each rule that a node of `state` calls, to all that these calls come back to.
static void put_calls(relay_nfa *n, subsets *s, relay_dfa *d, uint32_t state, uint32_t *cap_calls) {
    uint32_t first = d->n_calls;
    d->first_call[state] = first;
    for (uint32_t i = s->begins[state]; i < s->begins[state + 1]; i++) {
        const node *x = &n->nodes[s->items[i]];
        if (x->kind != NODE_CALL) continue;
        if (d->n_calls == *cap_calls) {
            *cap_calls = *cap_calls == 0 ? 16 : 2 * *cap_calls;
            d->calls = relay_realloc(d->calls, *cap_calls * sizeof d->calls[0]);
        }
        d->calls[d->n_calls++] = (relay_call_edge){.rule = x->arg, .to = x->to};
    }
    if (d->n_calls == first) return;
    qsort(d->calls + first, d->n_calls - first, sizeof d->calls[0], compare_nodes_by_rule);
    uint32_t out = first;
    for (uint32_t i = first; i < d->n_calls && n->g->code == RELAY_OK; out++) {
        uint32_t rule = d->calls[i].rule, begin = s->n_items;
        begin_closure(n);
        for (; i < d->n_calls && d->calls[i].rule == rule; i++)
            follow(n, s, d->calls[i].to);
        d->calls[out] = (relay_call_edge){.rule = rule, .to = end_closure(n, s, begin)};
    }
    d->n_calls = out;
}

static void determinize_from(relay_nfa *n, uint32_t start, relay_dfa *d) {
    subsets s = {0};
    uint32_t cap = 0, cap_calls = 0;
    begin_closure(n);
    follow(n, &s, start);
    end_closure(n, &s, 0);
    for (uint32_t state = 0; state < s.n && n->g->code == RELAY_OK; state++) {
        if (!relay_grammar_spend(n->g, d->n_classes)) break;
        reserve_row(d, &cap, state);
        d->is_final[state] = false;
        for (uint32_t i = s.begins[state]; i < s.begins[state + 1]; i++)
            d->is_final[state] |= n->nodes[s.items[i]].kind == NODE_FINAL;
        put_bytes(n, &s, d, state);
        put_calls(n, &s, d, state, &cap_calls);
        d->n_states = state + 1;
    }
    if (d->n_states > 0) d->first_call[d->n_states] = d->n_calls;
    subsets_fini(&s);
}

bool relay_nfa_determinize(relay_nfa *n, relay_expr x, relay_dfa *out) {
    *out = (relay_dfa){.n_classes = n->n_classes};
    uint32_t outer = n->n_nodes; // this may be part of a larger one: its nodes are given back
    memo own = {0}, *outer_memo = n->memo;
    n->memo = &own;
    uint32_t end = add_node(n, NODE_FINAL, 0, NONE);
    uint32_t start = build(n, x, end);
    n->memo = outer_memo;
    free(own.slots);
    if (n->g->code == RELAY_OK && start != NONE) determinize_from(n, start, out);
    // The numbers of given back nodes come again with other meanings; marks are of closures, which are over.
    n->n_nodes = outer;
    return n->g->code == RELAY_OK;
}

void relay_dfa_fini(relay_dfa *d) {
    free(d->rows);
    free(d->is_final);
    free(d->first_call);
    free(d->calls);
    *d = (relay_dfa){0};
}

// ---- Products

static uint32_t add_class_set(relay_nfa *n, const relay_byte_set *set) {
    if (n->n_sets == n->cap_sets) {
        n->cap_sets = 2 * n->cap_sets + 64;
        n->class_sets = relay_realloc(n->class_sets, n->cap_sets * sizeof n->class_sets[0]);
    }
    n->class_sets[n->n_sets] = *set;
    return n->n_sets++;
}

// Pairs of states as they are found. A pair's node is made with it, so that an edge can lead to a pair whose own edges
// come later.
typedef struct product {
    const relay_dfa *a, *b;
    bool is_minus;
    subsets pairs;   // of two items: a's state, and b's or NONE
    uint32_t *nodes; // [pairs.n] of each pair
    uint32_t cap_nodes;
} product;

static uint32_t pair_node(relay_nfa *n, product *p, uint32_t a, uint32_t b) {
    uint32_t begin = p->pairs.n_items, known = p->pairs.n;
    subsets_append(&p->pairs, a);
    subsets_append(&p->pairs, b);
    uint32_t i = subsets_intern(&p->pairs, begin);
    if (i < known) return p->nodes[i];
    if (p->pairs.n > RELAY_AUTOMATON_MAX_STATES) relay_grammar_pass_limit(n->g, "more than 65536 states");
    if (i == p->cap_nodes) {
        p->cap_nodes = 2 * p->cap_nodes + 64;
        p->nodes = relay_realloc(p->nodes, p->cap_nodes * sizeof p->nodes[0]);
    }
    return p->nodes[i] = add_node(n, NODE_SPLIT, NONE, NONE);
}

// The ways on from a pair: one for each set of classes that lead to the same pair, and `to` where the text may end.
static void put_pair(relay_nfa *n, product *p, uint32_t pair, uint32_t to) {
    uint32_t a = p->pairs.items[2 * pair], b = p->pairs.items[2 * pair + 1];
    uint32_t n_classes = p->a->n_classes, edges[256];
    if (!relay_grammar_spend(n->g, n_classes)) return;
    for (uint32_t c = 0; c < n_classes; c++) {
        uint32_t x = p->a->rows[(uint64_t)a * n_classes + c];
        uint32_t y = b == NONE ? NONE : p->b->rows[(uint64_t)b * n_classes + c];
        edges[c] = x == NONE || (y == NONE && !p->is_minus) ? NONE : pair_node(n, p, x, y);
    }
    bool is_in_b = b != NONE && p->b->is_final[b];
    uint32_t ways = p->a->is_final[a] && is_in_b != p->is_minus ? to : NONE;
    for (uint32_t c = 0; c < n_classes; c++) {
        if (edges[c] == NONE) continue;
        relay_byte_set set = {{0}};
        uint32_t target = edges[c];
        for (uint32_t k = c; k < n_classes; k++) {
            if (edges[k] != target) continue;
            set.bits[k / 64] |= 1ull << k % 64;
            edges[k] = NONE;
        }
        uint32_t way = add_node(n, NODE_SET, add_class_set(n, &set), target);
        ways = ways == NONE ? way : add_node(n, NODE_SPLIT, ways, way);
    }
    if (n->g->code == RELAY_OK) n->nodes[p->nodes[pair]].to = ways;
}

static uint32_t build_product(relay_nfa *n, const relay_expr_node *x, uint32_t to) {
    relay_dfa a = {0}, b = {0};
    product p = {.a = &a, .b = &b, .is_minus = x->kind == RELAY_EXPR_KIND_MINUS};
    uint32_t start = NONE;
    if (!relay_nfa_determinize(n, x->a, &a) || !relay_nfa_determinize(n, x->b, &b)) goto done;
    RELAY_ASSERT(a.n_calls == 0 && b.n_calls == 0);
    if (a.n_states == 0 || (b.n_states == 0 && !p.is_minus)) goto done;
    start = pair_node(n, &p, 0, b.n_states == 0 ? NONE : 0);
    for (uint32_t i = 0; i < p.pairs.n && n->g->code == RELAY_OK; i++)
        put_pair(n, &p, i, to);
done:
    relay_dfa_fini(&a);
    relay_dfa_fini(&b);
    subsets_fini(&p.pairs);
    free(p.nodes);
    return start;
}
