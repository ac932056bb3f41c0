#include "model_svc/constraint/grammar.h"

#include <stdlib.h>
#include <string.h>

void relay_grammar_init(relay_grammar *g, uint64_t work) {
    *g = (relay_grammar){.work = work};
    g->cap_exprs = 256;
    g->exprs = relay_calloc(g->cap_exprs, sizeof g->exprs[0]);
    g->exprs[RELAY_EXPR_NOTHING].kind = RELAY_EXPR_KIND_NOTHING;
    g->exprs[RELAY_EXPR_EMPTY].kind = RELAY_EXPR_KIND_EMPTY;
    g->n_exprs = 2;
}

void relay_grammar_fini(relay_grammar *g) {
    for (uint32_t i = 0; i < g->n_rules; i++)
        free(g->rules[i].name);
    free(g->exprs);
    free(g->children);
    free(g->sets);
    free(g->rules);
    *g = (relay_grammar){0};
}

void relay_grammar_pass_limit(relay_grammar *g, const char *limit) {
    if (g->code != RELAY_OK) return;
    g->code = RELAY_INVALID_ARGUMENT;
    g->limit = limit;
}

bool relay_grammar_spend(relay_grammar *g, uint64_t units) {
    if (units > g->work) relay_grammar_pass_limit(g, "more work to compile than is allowed");
    if (g->code != RELAY_OK) return false;
    g->work -= units;
    return true;
}

relay_code relay_grammar_check(const relay_grammar *g, const char *field, relay_err *e) {
    if (g->code == RELAY_OK) return RELAY_OK;
    return relay_fail(e, g->code, "%s is too complex: it has %s", field, g->limit);
}

// Room for one more of `*items`.
static void *reserve(void *items, uint32_t n, uint32_t more, uint32_t *cap, size_t size) {
    if (n + more <= *cap) return items;
    while (*cap < n + more)
        *cap = *cap == 0 ? 64 : *cap * 2;
    return relay_realloc(items, *cap * size);
}

static relay_expr add(relay_grammar *g, relay_expr_kind kind, uint32_t a, uint32_t b) {
    if (g->n_exprs >= RELAY_GRAMMAR_MAX_EXPRS) relay_grammar_pass_limit(g, "more than 262144 parts");
    if (g->code != RELAY_OK) return RELAY_EXPR_NOTHING;
    g->exprs = reserve(g->exprs, g->n_exprs, 1, &g->cap_exprs, sizeof g->exprs[0]);
    g->exprs[g->n_exprs] = (relay_expr_node){.kind = kind, .a = a, .b = b};
    return g->n_exprs++;
}

// As add(), made of `parts`.
static relay_expr add_of(relay_grammar *g, relay_expr_kind kind, uint32_t a, uint32_t b, const relay_expr *parts,
                         uint32_t n) {
    relay_expr x = add(g, kind, a, b);
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n && g->code == RELAY_OK; i++) {
        if (g->exprs[parts[i]].depth > depth) depth = g->exprs[parts[i]].depth;
    }
    if (depth >= RELAY_GRAMMAR_MAX_DEPTH) relay_grammar_pass_limit(g, "parts more than 8192 deep inside one another");
    if (x != RELAY_EXPR_NOTHING) g->exprs[x].depth = depth + 1;
    return x;
}

// A copy of the children's numbers; the place of the first.
static uint32_t add_children(relay_grammar *g, const uint32_t *items, uint32_t n) {
    if (g->n_children + n > 4 * RELAY_GRAMMAR_MAX_EXPRS) relay_grammar_pass_limit(g, "more than 1048576 parts");
    if (g->code != RELAY_OK) return 0;
    g->children = reserve(g->children, g->n_children, n, &g->cap_children, sizeof g->children[0]);
    memcpy(g->children + g->n_children, items, n * sizeof items[0]);
    g->n_children += n;
    return g->n_children - n;
}

relay_expr relay_expr_set(relay_grammar *g, const relay_byte_set *set) {
    if ((set->bits[0] | set->bits[1] | set->bits[2] | set->bits[3]) == 0) return RELAY_EXPR_NOTHING;
    uint32_t i = g->n_sets;
    // The last ones only: enough to find a set that is used again and again.
    for (uint32_t back = 1; back <= 64 && back <= g->n_sets; back++) {
        if (memcmp(&g->sets[g->n_sets - back], set, sizeof *set) == 0) {
            i = g->n_sets - back;
            break;
        }
    }
    if (i == g->n_sets) {
        g->sets = reserve(g->sets, g->n_sets, 1, &g->cap_sets, sizeof g->sets[0]);
        g->sets[g->n_sets++] = *set;
    }
    return add(g, RELAY_EXPR_KIND_SET, i, 0);
}

relay_expr relay_expr_bytes(relay_grammar *g, uint8_t first, uint8_t last) {
    relay_byte_set set = {{0}};
    for (uint32_t b = first; b <= last; b++)
        set.bits[b / 64] |= 1ull << b % 64;
    return relay_expr_set(g, &set);
}

relay_expr relay_expr_text(relay_grammar *g, const char *s, size_t len) {
    relay_expr_list parts = {0};
    for (size_t i = 0; i < len && g->code == RELAY_OK; i++)
        relay_expr_list_add(&parts, relay_expr_bytes(g, (uint8_t)s[i], (uint8_t)s[i]));
    return relay_expr_list_seq(&parts, g);
}

relay_expr relay_expr_string(relay_grammar *g, const char *s) {
    return relay_expr_text(g, s, strlen(s));
}

relay_expr relay_expr_seq(relay_grammar *g, const relay_expr *parts, uint32_t n) {
    if (n == 0) return RELAY_EXPR_EMPTY;
    if (n == 1) return parts[0];
    for (uint32_t i = 0; i < n; i++) {
        if (parts[i] == RELAY_EXPR_NOTHING) return RELAY_EXPR_NOTHING;
    }
    return add_of(g, RELAY_EXPR_KIND_SEQ, add_children(g, parts, n), n, parts, n);
}

relay_expr relay_expr_alt(relay_grammar *g, const relay_expr *parts, uint32_t n) {
    if (n == 0) return RELAY_EXPR_NOTHING;
    if (n == 1) return parts[0];
    return add_of(g, RELAY_EXPR_KIND_ALT, add_children(g, parts, n), n, parts, n);
}

relay_expr relay_expr_then(relay_grammar *g, relay_expr a, relay_expr b) {
    if (a == RELAY_EXPR_EMPTY) return b;
    if (b == RELAY_EXPR_EMPTY) return a;
    return relay_expr_seq(g, (relay_expr[]){a, b}, 2);
}

relay_expr relay_expr_or(relay_grammar *g, relay_expr a, relay_expr b) {
    if (a == RELAY_EXPR_NOTHING) return b;
    if (b == RELAY_EXPR_NOTHING) return a;
    return relay_expr_alt(g, (relay_expr[]){a, b}, 2);
}

relay_expr relay_expr_repeat(relay_grammar *g, relay_expr x, uint32_t min, uint32_t max) {
    if (min == 1 && max == 1) return x;
    if (max == 0 || x == RELAY_EXPR_EMPTY) return RELAY_EXPR_EMPTY;
    if (x == RELAY_EXPR_NOTHING) return min == 0 ? RELAY_EXPR_EMPTY : RELAY_EXPR_NOTHING;
    return add_of(g, RELAY_EXPR_KIND_REPEAT, x, add_children(g, (uint32_t[]){min, max}, 2), &x, 1);
}

relay_expr relay_expr_optional(relay_grammar *g, relay_expr x) {
    return relay_expr_repeat(g, x, 0, 1);
}

relay_expr relay_expr_and(relay_grammar *g, relay_expr a, relay_expr b) {
    return add_of(g, RELAY_EXPR_KIND_AND, a, b, (relay_expr[]){a, b}, 2);
}

relay_expr relay_expr_minus(relay_grammar *g, relay_expr a, relay_expr b) {
    return add_of(g, RELAY_EXPR_KIND_MINUS, a, b, (relay_expr[]){a, b}, 2);
}

relay_expr relay_expr_rule(relay_grammar *g, uint32_t rule) {
    return add(g, RELAY_EXPR_KIND_RULE, rule, 0);
}

void relay_expr_list_add(relay_expr_list *l, relay_expr x) {
    l->items = reserve(l->items, l->n, 1, &l->cap, sizeof l->items[0]);
    l->items[l->n++] = x;
}

relay_expr relay_expr_list_seq(relay_expr_list *l, relay_grammar *g) {
    relay_expr x = relay_expr_seq(g, l->items, l->n);
    free(l->items);
    *l = (relay_expr_list){0};
    return x;
}

relay_expr relay_expr_list_alt(relay_expr_list *l, relay_grammar *g) {
    relay_expr x = relay_expr_alt(g, l->items, l->n);
    free(l->items);
    *l = (relay_expr_list){0};
    return x;
}

uint32_t relay_grammar_add_rule(relay_grammar *g, const char *name, size_t len) {
    if (g->n_rules >= RELAY_GRAMMAR_MAX_RULES) relay_grammar_pass_limit(g, "more than 16384 rules");
    if (g->code != RELAY_OK) return 0;
    g->rules = reserve(g->rules, g->n_rules, 1, &g->cap_rules, sizeof g->rules[0]);
    g->rules[g->n_rules] = (relay_grammar_rule){.name = relay_strndup(name, len), .expr = RELAY_EXPR_NOTHING};
    return g->n_rules++;
}

void relay_grammar_set_rule(relay_grammar *g, uint32_t rule, relay_expr x) {
    if (rule < g->n_rules) g->rules[rule].expr = x;
}

// ---- Code points

static int compare_ranges(const void *a, const void *b) {
    const relay_code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

// Both ends have UTF-8 of one length: splits until every byte varies on its own (Thompson's construction, as in RE2).
static relay_expr utf8_range(relay_grammar *g, uint32_t first, uint32_t last) {
    uint32_t n_tail = first < 0x80 ? 0 : first < 0x800 ? 1 : first < 0x10000 ? 2 : 3;
    static const uint8_t leads[] = {0x00, 0xC0, 0xE0, 0xF0};
    if (n_tail == 0) return relay_expr_bytes(g, (uint8_t)first, (uint8_t)last);
    // Cut where a tail of continuation bytes is neither the same at both ends nor all that it may be.
    for (uint32_t i = 1; i <= n_tail; i++) {
        uint32_t low = (1u << 6 * i) - 1;
        if ((first & ~low) == (last & ~low)) break;
        if ((first & low) != 0) {
            return relay_expr_or(g, utf8_range(g, first, first | low), utf8_range(g, (first | low) + 1, last));
        }
        if ((last & low) != low) {
            return relay_expr_or(g, utf8_range(g, first, (last & ~low) - 1), utf8_range(g, last & ~low, last));
        }
    }
    relay_expr parts[4];
    for (uint32_t i = 0; i <= n_tail; i++) {
        uint32_t shift = 6 * (n_tail - i);
        uint32_t a = first >> shift, b = last >> shift;
        parts[i] = i == 0 ? relay_expr_bytes(g, (uint8_t)(leads[n_tail] | a), (uint8_t)(leads[n_tail] | b))
                          : relay_expr_bytes(g, (uint8_t)(0x80 | (a & 0x3F)), (uint8_t)(0x80 | (b & 0x3F)));
    }
    return relay_expr_seq(g, parts, n_tail + 1);
}

// The part of [first, last] that is characters, cut where the length of UTF-8 changes.
static relay_expr characters(relay_grammar *g, uint32_t first, uint32_t last) {
    static const relay_code_range lengths[] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
    relay_expr x = RELAY_EXPR_NOTHING;
    for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint32_t a = first > lengths[i].first ? first : lengths[i].first;
        uint32_t b = last < lengths[i].last ? last : lengths[i].last;
        if (a <= b) x = relay_expr_or(g, x, utf8_range(g, a, b));
    }
    return x;
}

relay_expr relay_expr_code_points(relay_grammar *g, const relay_code_range *ranges, uint32_t n, bool is_negated) {
    relay_code_range *sorted = relay_calloc(n + 1, sizeof sorted[0]);
    if (n > 0) memcpy(sorted, ranges, n * sizeof sorted[0]);
    qsort(sorted, n, sizeof sorted[0], compare_ranges);
    relay_byte_set ascii = {{0}};
    relay_expr x = RELAY_EXPR_NOTHING;
    uint32_t next = 0; // the first code point that no range has covered
    for (uint32_t i = 0; i <= n; i++) {
        uint32_t first = i < n ? sorted[i].first : 0x110000, last = i < n ? sorted[i].last : 0x110000;
        uint32_t a = is_negated ? next : first > next ? first : next;
        uint32_t b = is_negated ? first : last + 1; // past the end
        if (i == n && !is_negated) break;
        for (uint32_t c = a; c < b && c < 0x80; c++)
            ascii.bits[c / 64] |= 1ull << c % 64;
        if (b > 0x110000) b = 0x110000;
        if (b > 0x80 && a < b) x = relay_expr_or(g, x, characters(g, a > 0x80 ? a : 0x80, b - 1));
        if (last + 1 > next) next = last + 1;
    }
    free(sorted);
    return relay_expr_or(g, relay_expr_set(g, &ascii), x);
}
