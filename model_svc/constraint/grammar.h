// A grammar over bytes, as every kind of constraint is read into it: expressions, and rules that may call one another.
//
// Expressions are small integers; those made of others keep them, so that one may be used in many places. Building
// never fails at the call: past a limit the grammar is marked as failed, every further expression is NOTHING, and
// whoever built it asks once at the end. One thread at a time.
//
// The work of reading and compiling is counted in units of some 10 ns, not in time: the same constraint is taken or
// refused on every machine and under every load.
#ifndef RELAY_MODEL_SVC_CONSTRAINT_GRAMMAR_H
#define RELAY_MODEL_SVC_CONSTRAINT_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef uint32_t relay_expr;

enum {
    RELAY_EXPR_NOTHING = 0, // matches no text
    RELAY_EXPR_EMPTY = 1,   // matches the empty text
    RELAY_GRAMMAR_MAX_EXPRS = 1 << 18,
    RELAY_GRAMMAR_MAX_RULES = 1 << 14,
    RELAY_GRAMMAR_MAX_DEPTH = 1 << 13, // of expressions inside one another: compiling goes down them
};
#define RELAY_UNBOUNDED UINT32_MAX

typedef enum relay_expr_kind {
    RELAY_EXPR_KIND_NOTHING,
    RELAY_EXPR_KIND_EMPTY,
    RELAY_EXPR_KIND_SET,    // one byte of sets[a]
    RELAY_EXPR_KIND_SEQ,    // children[a, a + b)
    RELAY_EXPR_KIND_ALT,    // likewise
    RELAY_EXPR_KIND_REPEAT, // a, from children[b] to children[b + 1] times
    RELAY_EXPR_KIND_RULE,   // what rule a matches
    RELAY_EXPR_KIND_AND,    // what both a and b match; neither calls a rule
    RELAY_EXPR_KIND_MINUS,  // what a matches and b does not; likewise
} relay_expr_kind;

typedef struct relay_expr_node {
    uint32_t kind, a, b;
    uint32_t depth; // of expressions inside it
} relay_expr_node;

typedef struct relay_byte_set {
    uint64_t bits[4];
} relay_byte_set;

typedef struct relay_grammar_rule {
    char *name; // for messages; owned
    relay_expr expr;
} relay_grammar_rule;

typedef struct relay_grammar {
    relay_expr_node *exprs;
    uint32_t *children;
    relay_byte_set *sets;
    relay_grammar_rule *rules;
    uint32_t n_exprs, n_children, n_sets, n_rules;
    uint32_t cap_exprs, cap_children, cap_sets, cap_rules;
    uint32_t root;     // the rule
    uint64_t work;     // units left
    relay_code code;   // OK, or why it failed
    const char *limit; // that was passed, where it failed
} relay_grammar;

// A range of code points, both ends included.
typedef struct relay_code_range {
    uint32_t first, last;
} relay_code_range;

// Expressions being collected; those that are many are put together at once, not one inside the other.
typedef struct relay_expr_list {
    relay_expr *items; // owned
    uint32_t n, cap;
} relay_expr_list;

void relay_expr_list_add(relay_expr_list *l, relay_expr x);
// As a sequence, or as alternatives; the list is empty then.
relay_expr relay_expr_list_seq(relay_expr_list *l, relay_grammar *g);
relay_expr relay_expr_list_alt(relay_expr_list *l, relay_grammar *g);

void relay_grammar_init(relay_grammar *g, uint64_t work);
void relay_grammar_fini(relay_grammar *g);
// Takes `units` from what is left. False, and failed, where there is not enough.
bool relay_grammar_spend(relay_grammar *g, uint64_t units);
// Marks it as failed by `limit`, unless it is already.
void relay_grammar_pass_limit(relay_grammar *g, const char *limit);
// The error where it failed, INVALID_ARGUMENT naming `field` and the limit.
relay_code relay_grammar_check(const relay_grammar *g, const char *field, relay_err *e) RELAY_NODISCARD;

relay_expr relay_expr_set(relay_grammar *g, const relay_byte_set *set);
relay_expr relay_expr_bytes(relay_grammar *g, uint8_t first, uint8_t last);
relay_expr relay_expr_text(relay_grammar *g, const char *s, size_t len);
relay_expr relay_expr_string(relay_grammar *g, const char *s); // NUL-terminated
relay_expr relay_expr_seq(relay_grammar *g, const relay_expr *parts, uint32_t n);
relay_expr relay_expr_alt(relay_grammar *g, const relay_expr *parts, uint32_t n);
relay_expr relay_expr_then(relay_grammar *g, relay_expr a, relay_expr b);
relay_expr relay_expr_or(relay_grammar *g, relay_expr a, relay_expr b);
// min <= max; max may be RELAY_UNBOUNDED.
relay_expr relay_expr_repeat(relay_grammar *g, relay_expr x, uint32_t min, uint32_t max);
relay_expr relay_expr_optional(relay_grammar *g, relay_expr x);
relay_expr relay_expr_and(relay_grammar *g, relay_expr a, relay_expr b);
relay_expr relay_expr_minus(relay_grammar *g, relay_expr a, relay_expr b);
relay_expr relay_expr_rule(relay_grammar *g, uint32_t rule);
// The UTF-8 of one code point of the ranges, which need be neither sorted nor apart; surrogates are no characters.
relay_expr relay_expr_code_points(relay_grammar *g, const relay_code_range *ranges, uint32_t n, bool is_negated);

// A rule that matches nothing until it is set; NOTHING's number where the grammar has failed.
uint32_t relay_grammar_add_rule(relay_grammar *g, const char *name, size_t len);
void relay_grammar_set_rule(relay_grammar *g, uint32_t rule, relay_expr x);

#endif
