// Tokens as a tree. Private to this folder.
//
// A recursive descent with the precedence of jinja2: conditional, or, and, not, comparisons (which chain), + -, ~,
// * / // %, ** (to the left), unary signs, postfix, filters and tests. Nesting is bounded by JINJA_MAX_NESTING.
#ifndef RELAY_TOKENIZER_SVC_JINJA_PARSER_H
#define RELAY_TOKENIZER_SVC_JINJA_PARSER_H

#include "tokenizer_svc/jinja/lexer.h"

// Fills in c->t->body.
bool jinja_parse(jinja_compiler *c, const jinja_token *tokens) RELAY_NODISCARD;

// ---- between parser.c (statements), parser_expr.c, parser_primary.c and parser_postfix.c

typedef struct jinja_parser {
    jinja_compiler *c;
    const jinja_token *token; // the current one
    uint32_t depth;
    uint32_t loops; // for loops around, inside the innermost function
    struct jinja_open_function {
        jinja_function_body *body;
        struct jinja_open_function *outer;
    } * functions;        // macros and call blocks around, innermost first
    const char *end_tags; // what closes the block being parsed, for messages
} jinja_parser;

static inline bool jinja_at_op(const jinja_parser *p, uint16_t op) {
    return p->token->type == JINJA_T_OPERATOR && p->token->op == op;
}
bool jinja_at_name(const jinja_parser *p, const char *name);
bool jinja_skip_op(jinja_parser *p, uint16_t op);
bool jinja_skip_name(jinja_parser *p, const char *name);
bool jinja_expect_op(jinja_parser *p, uint16_t op) RELAY_NODISCARD;
bool jinja_parse_fail_expected(jinja_parser *p, const char *expected);
// The current token, for a message.
const char *jinja_describe_token(const jinja_token *token, char out[64]);

jinja_node *jinja_new_node(jinja_parser *p, jinja_node_type type, uint32_t at) RELAY_NODISCARD;
bool jinja_add_node(jinja_parser *p, jinja_nodes *nodes, jinja_node *node) RELAY_NODISCARD;
bool jinja_parser_enter(jinja_parser *p) RELAY_NODISCARD;
void jinja_parser_leave(jinja_parser *p);

// These return NULL with the error set; jinja_parse_fail does nothing else.
jinja_node *jinja_parse_fail(jinja_parser *p, uint32_t at, const char *what);
// NULL also if an operand is.
jinja_node *jinja_new_binary(jinja_parser *p, jinja_node_type type, uint8_t op, uint32_t at, jinja_node *left,
                             jinja_node *right) RELAY_NODISCARD;
jinja_node *jinja_parse_expr(jinja_parser *p, bool with_condition) RELAY_NODISCARD;
jinja_node *jinja_parse_primary(jinja_parser *p) RELAY_NODISCARD;
jinja_node *jinja_parse_constant(jinja_parser *p) RELAY_NODISCARD;
// Attributes, items and calls of `node`.
jinja_node *jinja_parse_postfix(jinja_parser *p, jinja_node *node) RELAY_NODISCARD;
// `is name args`; the current token is `is`.
jinja_node *jinja_parse_test(jinja_parser *p, jinja_node *value) RELAY_NODISCARD;
jinja_node *jinja_parse_call(jinja_parser *p, jinja_node *callee) RELAY_NODISCARD;
// One expression, or several with commas as a tuple; `stop` is a name that ends it, or NULL.
jinja_node *jinja_parse_tuple(jinja_parser *p, bool with_condition, const char *stop) RELAY_NODISCARD;
typedef enum jinja_target_kind {
    JINJA_TARGET_NAMES,          // names and tuples of them
    JINJA_TARGET_WITH_NAMESPACE, // and attributes of a namespace
    JINJA_TARGET_ONE_NAME,
} jinja_target_kind;
jinja_node *jinja_parse_target(jinja_parser *p, jinja_target_kind kind, const char *stop) RELAY_NODISCARD;
// `| name(args) | ...` around `node`; the first bar may be missing where `is_started`.
jinja_node *jinja_parse_filters(jinja_parser *p, jinja_node *node, bool is_started) RELAY_NODISCARD;

#endif
