// Operators, from the conditional down to the unary signs.
#include <string.h>

#include "tokenizer_svc/jinja/parser.h"

static jinja_node *parse_unary(jinja_parser *p, bool with_filters) {
    if (!jinja_parser_enter(p)) return NULL;
    uint32_t at = p->token->at;
    jinja_node *node;
    if (jinja_at_op(p, '-') || jinja_at_op(p, '+')) {
        uint8_t op = jinja_at_op(p, '-') ? JINJA_OP_SUB : JINJA_OP_ADD;
        p->token++;
        jinja_node *operand = parse_unary(p, false);
        node = jinja_new_binary(p, JINJA_N_UNARY, op, at, operand, operand);
    } else {
        node = jinja_parse_primary(p);
    }
    node = jinja_parse_postfix(p, node);
    while (with_filters && node != NULL) {
        if (jinja_at_op(p, '|'))
            node = jinja_parse_filters(p, node, false);
        else if (jinja_at_name(p, "is"))
            node = jinja_parse_test(p, node);
        else if (jinja_at_op(p, '('))
            node = jinja_parse_call(p, node);
        else
            break;
    }
    jinja_parser_leave(p);
    return node;
}

static jinja_node *parse_power(jinja_parser *p) {
    jinja_node *left = parse_unary(p, true);
    while (left != NULL && jinja_at_op(p, JINJA_OP2('*', '*'))) {
        uint32_t at = p->token++->at;
        left = jinja_new_binary(p, JINJA_N_BINARY, JINJA_OP_POW, at, left, parse_unary(p, true));
    }
    return left;
}

static bool product_operator(const jinja_parser *p, uint8_t *op) {
    if (p->token->type != JINJA_T_OPERATOR) return false;
    switch (p->token->op) {
    case '*':
        *op = JINJA_OP_MUL;
        return true;
    case '/':
        *op = JINJA_OP_DIV;
        return true;
    case JINJA_OP2('/', '/'):
        *op = JINJA_OP_FLOORDIV;
        return true;
    case '%':
        *op = JINJA_OP_MOD;
        return true;
    default:
        return false;
    }
}

static jinja_node *parse_product(jinja_parser *p) {
    jinja_node *left = parse_power(p);
    uint8_t op;
    while (left != NULL && product_operator(p, &op)) {
        uint32_t at = p->token++->at;
        left = jinja_new_binary(p, JINJA_N_BINARY, op, at, left, parse_power(p));
    }
    return left;
}

static jinja_node *parse_concat(jinja_parser *p) {
    jinja_node *first = parse_product(p);
    if (first == NULL || !jinja_at_op(p, '~')) return first;
    jinja_node *node = jinja_new_node(p, JINJA_N_CONCAT, p->token->at);
    if (node == NULL || !jinja_add_node(p, &node->items, first)) return NULL;
    while (jinja_skip_op(p, '~'))
        if (!jinja_add_node(p, &node->items, parse_product(p))) return NULL;
    return node;
}

static jinja_node *parse_sum(jinja_parser *p) {
    jinja_node *left = parse_concat(p);
    while (left != NULL && (jinja_at_op(p, '+') || jinja_at_op(p, '-'))) {
        uint8_t op = jinja_at_op(p, '+') ? JINJA_OP_ADD : JINJA_OP_SUB;
        uint32_t at = p->token++->at;
        left = jinja_new_binary(p, JINJA_N_BINARY, op, at, left, parse_concat(p));
    }
    return left;
}

// The comparison at the current token, skipped; false if there is none.
static bool skip_comparison(jinja_parser *p, uint8_t *op) {
    static const struct {
        uint16_t token;
        uint8_t op;
    } signs[] = {
        {JINJA_OP2('=', '='), JINJA_OP_EQ},
        {JINJA_OP2('!', '='), JINJA_OP_NE},
        {'<', JINJA_OP_LT},
        {JINJA_OP2('<', '='), JINJA_OP_LE},
        {'>', JINJA_OP_GT},
        {JINJA_OP2('>', '='), JINJA_OP_GE},
    };
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (!jinja_skip_op(p, signs[i].token)) continue;
        *op = signs[i].op;
        return true;
    }
    if (jinja_skip_name(p, "in")) {
        *op = JINJA_OP_IN;
        return true;
    }
    const jinja_token *next = p->token + 1;
    if (!jinja_at_name(p, "not") || next->type != JINJA_T_NAME || next->len != 2 || memcmp(next->s, "in", 2) != 0)
        return false;
    p->token += 2;
    *op = JINJA_OP_NOT_IN;
    return true;
}

static jinja_node *parse_comparison(jinja_parser *p) {
    uint32_t at = p->token->at;
    jinja_node *first = parse_sum(p), *node = NULL;
    uint8_t ops[JINJA_MAX_NESTING], op;
    while (first != NULL && skip_comparison(p, &op)) {
        if (node == NULL && (node = jinja_new_node(p, JINJA_N_COMPARE, at)) == NULL) return NULL;
        if (node->compare.rest.n == JINJA_MAX_NESTING)
            return jinja_parse_fail(p, p->token->at, "too many comparisons in a chain");
        ops[node->compare.rest.n] = op;
        if (!jinja_add_node(p, &node->compare.rest, parse_sum(p))) return NULL;
    }
    if (node == NULL) return first;
    node->compare.first = first;
    node->compare.ops = jinja_compile_alloc(p->c, node->compare.rest.n, 1);
    if (node->compare.ops == NULL) return NULL;
    memcpy(node->compare.ops, ops, node->compare.rest.n);
    return node;
}

static jinja_node *parse_not(jinja_parser *p) {
    if (!jinja_at_name(p, "not")) return parse_comparison(p);
    if (!jinja_parser_enter(p)) return NULL;
    uint32_t at = p->token++->at;
    jinja_node *operand = parse_not(p);
    jinja_parser_leave(p);
    return jinja_new_binary(p, JINJA_N_NOT, 0, at, operand, operand);
}

static jinja_node *parse_and(jinja_parser *p) {
    jinja_node *left = parse_not(p);
    while (left != NULL && jinja_at_name(p, "and")) {
        uint32_t at = p->token++->at;
        left = jinja_new_binary(p, JINJA_N_AND, 0, at, left, parse_not(p));
    }
    return left;
}

static jinja_node *parse_or(jinja_parser *p) {
    jinja_node *left = parse_and(p);
    while (left != NULL && jinja_at_name(p, "or")) {
        uint32_t at = p->token++->at;
        left = jinja_new_binary(p, JINJA_N_OR, 0, at, left, parse_and(p));
    }
    return left;
}

static jinja_node *parse_conditional(jinja_parser *p) {
    jinja_node *value = parse_or(p);
    while (value != NULL && jinja_at_name(p, "if")) {
        jinja_node *node = jinja_new_node(p, JINJA_N_COND, p->token++->at);
        if (node == NULL) return NULL;
        node->cond.yes = value;
        node->cond.test = parse_or(p);
        if (node->cond.test == NULL) return NULL;
        if (jinja_skip_name(p, "else")) {
            node->cond.no = jinja_parse_expr(p, true);
            if (node->cond.no == NULL) return NULL;
        }
        value = node;
    }
    return value;
}

jinja_node *jinja_parse_expr(jinja_parser *p, bool with_condition) {
    if (!jinja_parser_enter(p)) return NULL;
    jinja_node *node = with_condition ? parse_conditional(p) : parse_or(p);
    jinja_parser_leave(p);
    return node;
}
