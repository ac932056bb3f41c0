#include <stdio.h>
#include <string.h>

#include "tokenizer_svc/jinja/parser.h"

static jinja_node *parse_unary(jinja_parser *p, bool with_filters);
static jinja_node *parse_primary(jinja_parser *p);
static jinja_node *parse_postfix(jinja_parser *p, jinja_node *node);

static jinja_node *fail(jinja_parser *p, uint32_t at, const char *what) {
    jinja_compile_fail(p->c, at, "%s", what);
    return NULL;
}

static jinja_node *binary(jinja_parser *p, jinja_node_type type, uint8_t op, uint32_t at, jinja_node *left,
                          jinja_node *right) {
    jinja_node *node = left == NULL || right == NULL ? NULL : jinja_new_node(p, type, at);
    if (node == NULL) return NULL;
    node->op = op;
    node->binary.left = left;
    node->binary.right = right;
    return node;
}

// ---- names and literals

static bool is_constant_name(const jinja_token *t, jinja_value *v) {
    static const struct {
        const char *word;
        jinja_value value;
    } words[] = {
        {"true", {.kind = JINJA_BOOL, .b = true}},
        {"True", {.kind = JINJA_BOOL, .b = true}},
        {"false", {.kind = JINJA_BOOL, .b = false}},
        {"False", {.kind = JINJA_BOOL, .b = false}},
        {"none", {.kind = JINJA_NONE}},
        {"None", {.kind = JINJA_NONE}},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) != t->len || memcmp(words[i].word, t->s, t->len) != 0) continue;
        *v = words[i].value;
        return true;
    }
    return false;
}

// A body that names caller, varargs or kwargs takes them.
static void note_special_name(jinja_parser *p, jinja_name name) {
    for (struct jinja_open_function *f = p->functions; f != NULL; f = f->outer) {
        if (name.len == 6 && memcmp(name.s, "caller", 6) == 0) f->body->uses_caller = true;
        if (name.len == 7 && memcmp(name.s, "varargs", 7) == 0) f->body->uses_varargs = true;
        if (name.len == 6 && memcmp(name.s, "kwargs", 6) == 0) f->body->uses_kwargs = true;
    }
}

static jinja_node *parse_name(jinja_parser *p) {
    const jinja_token *t = p->token++;
    jinja_value constant;
    bool is_constant = is_constant_name(t, &constant);
    jinja_node *node = jinja_new_node(p, is_constant ? JINJA_N_CONST : JINJA_N_NAME, t->at);
    if (node == NULL) return NULL;
    if (is_constant) {
        node->constant = constant;
    } else {
        node->name.name = (jinja_name){t->s, t->len};
        note_special_name(p, node->name.name);
    }
    return node;
}

static jinja_node *parse_constant(jinja_parser *p) {
    const jinja_token *t = p->token++;
    jinja_node *node = jinja_new_node(p, JINJA_N_CONST, t->at);
    if (node == NULL) return NULL;
    if (t->type == JINJA_T_INTEGER) {
        node->constant = jinja_int(t->i);
        return node;
    }
    if (t->type == JINJA_T_FLOAT) {
        node->constant = jinja_float(t->f);
        return node;
    }
    node->constant = jinja_str(t->s, t->len, JINJA_TEMPLATE);
    if (p->token->type != JINJA_T_STRING) return node;
    size_t len = 0, done = 0;
    for (const jinja_token *s = t; s->type == JINJA_T_STRING; s++)
        len += s->len;
    char *all = jinja_compile_alloc(p->c, len + 1, 1);
    if (all == NULL) return NULL;
    for (; t->type == JINJA_T_STRING; t++) {
        memcpy(all + done, t->s, t->len);
        done += t->len;
    }
    p->token = t;
    node->constant = jinja_str(all, len, JINJA_TEMPLATE);
    return node;
}

static jinja_node *parse_list(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_LIST, p->token++->at);
    while (node != NULL && !jinja_at_op(p, ']')) {
        if (node->items.n > 0 && !jinja_expect_op(p, ',')) return NULL;
        if (jinja_at_op(p, ']')) break;
        if (!jinja_add_node(p, &node->items, jinja_parse_expr(p, true))) return NULL;
    }
    p->token += node != NULL;
    return node;
}

static jinja_node *parse_dict(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_DICT, p->token++->at);
    while (node != NULL && !jinja_at_op(p, '}')) {
        if (node->items.n > 0 && !jinja_expect_op(p, ',')) return NULL;
        if (jinja_at_op(p, '}')) break;
        if (!jinja_add_node(p, &node->items, jinja_parse_expr(p, true)) || !jinja_expect_op(p, ':') ||
            !jinja_add_node(p, &node->items, jinja_parse_expr(p, true)))
            return NULL;
    }
    p->token += node != NULL;
    return node;
}

static jinja_node *parse_parenthesis(jinja_parser *p) {
    uint32_t at = p->token++->at;
    if (jinja_skip_op(p, ')')) return jinja_new_node(p, JINJA_N_TUPLE, at);
    jinja_node *node = jinja_parse_tuple(p, true, NULL);
    return node != NULL && jinja_expect_op(p, ')') ? node : NULL;
}

static jinja_node *parse_primary(jinja_parser *p) {
    char text[64];
    switch (p->token->type) {
    case JINJA_T_NAME:
        return parse_name(p);
    case JINJA_T_STRING:
    case JINJA_T_INTEGER:
    case JINJA_T_FLOAT:
        return parse_constant(p);
    case JINJA_T_OPERATOR:
        if (jinja_at_op(p, '(')) return parse_parenthesis(p);
        if (jinja_at_op(p, '[')) return parse_list(p);
        if (jinja_at_op(p, '{')) return parse_dict(p);
        break;
    default:
        break;
    }
    jinja_compile_fail(p->c, p->token->at, "unexpected %s", jinja_describe_token(p->token, text));
    return NULL;
}

static bool at_tuple_end(const jinja_parser *p, const char *stop) {
    return p->token->type == JINJA_T_VARIABLE_END || p->token->type == JINJA_T_BLOCK_END || jinja_at_op(p, ')') ||
           (stop != NULL && jinja_at_name(p, stop));
}

typedef jinja_node *(*parse_item)(jinja_parser *p, void *context);

static jinja_node *parse_items(jinja_parser *p, parse_item parse, void *context, const char *stop) {
    uint32_t at = p->token->at;
    if (at_tuple_end(p, stop)) {
        char text[64];
        jinja_compile_fail(p->c, at, "Expected an expression, got %s", jinja_describe_token(p->token, text));
        return NULL;
    }
    jinja_node *first = parse(p, context);
    if (first == NULL || !jinja_at_op(p, ',')) return first;
    jinja_node *tuple = jinja_new_node(p, JINJA_N_TUPLE, at);
    if (tuple == NULL || !jinja_add_node(p, &tuple->items, first)) return NULL;
    while (jinja_skip_op(p, ',') && !at_tuple_end(p, stop))
        if (!jinja_add_node(p, &tuple->items, parse(p, context))) return NULL;
    return tuple;
}

static jinja_node *parse_expr_item(jinja_parser *p, void *context) {
    return jinja_parse_expr(p, *(bool *)context);
}

jinja_node *jinja_parse_tuple(jinja_parser *p, bool with_condition, const char *stop) {
    return parse_items(p, parse_expr_item, &with_condition, stop);
}

// ---- targets of assignments

static jinja_node *check_target(jinja_parser *p, jinja_node *node) {
    if (node == NULL || node->type == JINJA_N_NAME || node->type == JINJA_N_NS_ATTR) return node;
    if (node->type != JINJA_N_TUPLE) return fail(p, node->at, "cannot assign to this");
    for (uint32_t i = 0; i < node->items.n; i++)
        if (check_target(p, node->items.items[i]) == NULL) return NULL;
    return node;
}

static jinja_node *parse_target_item(jinja_parser *p, void *context) {
    jinja_target_kind kind = *(jinja_target_kind *)context;
    jinja_node *node = parse_primary(p);
    if (node == NULL || node->type != JINJA_N_NAME || kind != JINJA_TARGET_WITH_NAMESPACE || !jinja_skip_op(p, '.'))
        return node;
    if (p->token->type != JINJA_T_NAME) {
        jinja_parse_fail_expected(p, "a name");
        return NULL;
    }
    jinja_node *attr = jinja_new_node(p, JINJA_N_NS_ATTR, node->at);
    if (attr == NULL) return NULL;
    attr->attr.object = node;
    attr->attr.name = (jinja_name){p->token->s, p->token->len};
    p->token++;
    return attr;
}

jinja_node *jinja_parse_target(jinja_parser *p, jinja_target_kind kind, const char *stop) {
    if (kind == JINJA_TARGET_ONE_NAME) {
        if (p->token->type == JINJA_T_NAME) return check_target(p, parse_name(p));
        jinja_parse_fail_expected(p, "a name");
        return NULL;
    }
    return check_target(p, parse_items(p, parse_target_item, &kind, stop));
}

// ---- calls, filters, tests

static bool parse_named_arg(jinja_parser *p, jinja_call_args *args) {
    jinja_name name = {p->token->s, p->token->len};
    for (uint32_t i = 0; i < args->values.n; i++)
        if (args->names[i].len == name.len && memcmp(args->names[i].s, name.s, name.len) == 0)
            return jinja_compile_fail(p->c, p->token->at, "keyword argument '%.*s' repeated", (int)name.len, name.s);
    p->token += 2;
    uint32_t n = args->values.n;
    if (!jinja_add_node(p, &args->values, jinja_parse_expr(p, true))) return false;
    if ((n & (n - 1)) == 0) { // 0, 1, 2, 4, ...: the array doubles
        jinja_name *names = jinja_compile_alloc(p->c, n == 0 ? 1 : 2 * (size_t)n, sizeof *names);
        if (names == NULL) return false;
        if (n != 0) memcpy(names, args->names, n * sizeof *names);
        args->names = names;
    }
    args->names[n] = name;
    return true;
}

static bool parse_arg(jinja_parser *p, jinja_call_args *args, uint32_t at) {
    bool ok = true;
    if (jinja_skip_op(p, '*')) {
        ok = args->star == NULL && args->star_star == NULL;
        if (ok) return (args->star = jinja_parse_expr(p, true)) != NULL;
    } else if (jinja_skip_op(p, JINJA_OP2('*', '*'))) {
        ok = args->star_star == NULL;
        if (ok) return (args->star_star = jinja_parse_expr(p, true)) != NULL;
    } else if (p->token->type == JINJA_T_NAME && p->token[1].type == JINJA_T_OPERATOR && p->token[1].op == '=') {
        ok = args->star_star == NULL;
        if (ok) return parse_named_arg(p, args);
    } else {
        ok = args->star == NULL && args->star_star == NULL && args->values.n == 0;
        if (ok) return jinja_add_node(p, &args->pos, jinja_parse_expr(p, true));
    }
    return jinja_compile_fail(p->c, at, "invalid syntax for function call expression");
}

static jinja_call_args *parse_args(jinja_parser *p) {
    uint32_t at = p->token->at;
    jinja_call_args *args = jinja_compile_alloc(p->c, 1, sizeof *args);
    if (args == NULL || !jinja_expect_op(p, '(')) return NULL;
    bool is_first = true;
    while (!jinja_at_op(p, ')')) {
        if (!is_first && !jinja_expect_op(p, ',')) return NULL;
        if (jinja_at_op(p, ')')) break;
        if (!parse_arg(p, args, at)) return NULL;
        is_first = false;
    }
    p->token++;
    return args;
}

static jinja_node *parse_call(jinja_parser *p, jinja_node *callee) {
    jinja_node *node = jinja_new_node(p, JINJA_N_CALL, p->token->at);
    if (node == NULL) return NULL;
    node->call.callee = callee;
    node->call.args = parse_args(p);
    return node->call.args != NULL ? node : NULL;
}

// A name with dots, as filters and tests may have. Dotted names are of other environments; they are looked up as
// written and not found.
static bool parse_dotted_name(jinja_parser *p, jinja_name *name) {
    if (p->token->type != JINJA_T_NAME) return jinja_parse_fail_expected(p, "a name");
    *name = (jinja_name){p->token->s, p->token->len};
    p->token++;
    while (jinja_skip_op(p, '.')) {
        if (p->token->type != JINJA_T_NAME) return jinja_parse_fail_expected(p, "a name");
        name->len = (uint32_t)(p->token->s + p->token->len - name->s);
        p->token++;
    }
    return true;
}

jinja_node *jinja_parse_filters(jinja_parser *p, jinja_node *node, bool is_started) {
    while (is_started || jinja_at_op(p, '|')) {
        if (!is_started) p->token++;
        is_started = false;
        jinja_node *filter = jinja_new_node(p, JINJA_N_FILTER, p->token->at);
        if (filter == NULL || !parse_dotted_name(p, &filter->call.name)) return NULL;
        filter->call.value = node;
        if (jinja_at_op(p, '(')) {
            filter->call.args = parse_args(p);
            if (filter->call.args == NULL) return NULL;
        }
        node = filter;
    }
    return node;
}

// A test takes its argument without parentheses too: `is divisibleby 3`.
static bool at_bare_argument(const jinja_parser *p) {
    switch (p->token->type) {
    case JINJA_T_NAME:
        return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and");
    case JINJA_T_STRING:
    case JINJA_T_INTEGER:
    case JINJA_T_FLOAT:
        return true;
    default:
        return jinja_at_op(p, '[') || jinja_at_op(p, '{');
    }
}

static jinja_node *parse_test(jinja_parser *p, jinja_node *value) {
    uint32_t at = p->token++->at;
    bool is_negated = jinja_skip_name(p, "not");
    jinja_node *node = jinja_new_node(p, JINJA_N_TEST, at);
    if (node == NULL || !parse_dotted_name(p, &node->call.name)) return NULL;
    node->call.value = value;
    if (jinja_at_op(p, '(')) {
        node->call.args = parse_args(p);
        if (node->call.args == NULL) return NULL;
    } else if (at_bare_argument(p)) {
        if (jinja_at_name(p, "is")) return fail(p, p->token->at, "You cannot chain multiple tests with is");
        node->call.args = jinja_compile_alloc(p->c, 1, sizeof *node->call.args);
        jinja_node *arg = node->call.args == NULL ? NULL : parse_primary(p);
        if (arg != NULL) arg = parse_postfix(p, arg);
        if (arg == NULL || !jinja_add_node(p, &node->call.args->pos, arg)) return NULL;
    }
    return is_negated ? binary(p, JINJA_N_NOT, 0, at, node, node) : node;
}

// ---- postfix

static jinja_node *parse_subscript(jinja_parser *p) {
    uint32_t at = p->token->at;
    jinja_node *parts[3] = {NULL, NULL, NULL};
    if (!jinja_at_op(p, ':')) {
        parts[0] = jinja_parse_expr(p, true);
        if (parts[0] == NULL || !jinja_at_op(p, ':')) return parts[0];
    }
    for (int i = 1; i < 3 && jinja_skip_op(p, ':'); i++) {
        if (jinja_at_op(p, ':') || jinja_at_op(p, ']') || jinja_at_op(p, ',')) continue;
        parts[i] = jinja_parse_expr(p, true);
        if (parts[i] == NULL) return NULL;
    }
    jinja_node *slice = jinja_new_node(p, JINJA_N_SLICE, at);
    if (slice == NULL) return NULL;
    slice->slice.start = parts[0];
    slice->slice.stop = parts[1];
    slice->slice.step = parts[2];
    return slice;
}

static jinja_node *parse_brackets(jinja_parser *p, jinja_node *object) {
    jinja_node *node = jinja_new_node(p, JINJA_N_ITEM, p->token++->at);
    if (node == NULL) return NULL;
    jinja_node *index = parse_subscript(p);
    if (index != NULL && jinja_at_op(p, ',')) { // [a, b] is a tuple
        jinja_node *tuple = jinja_new_node(p, JINJA_N_TUPLE, node->at);
        if (tuple == NULL || !jinja_add_node(p, &tuple->items, index)) return NULL;
        while (jinja_skip_op(p, ',') && !jinja_at_op(p, ']'))
            if (!jinja_add_node(p, &tuple->items, jinja_parse_expr(p, true))) return NULL;
        index = tuple;
    }
    if (index == NULL || !jinja_expect_op(p, ']')) return NULL;
    node->item.object = object;
    node->item.index = index;
    return node;
}

static jinja_node *parse_dot(jinja_parser *p, jinja_node *object) {
    uint32_t at = p->token++->at;
    if (p->token->type == JINJA_T_NAME) {
        jinja_node *node = jinja_new_node(p, JINJA_N_ATTR, at);
        if (node == NULL) return NULL;
        node->attr.object = object;
        node->attr.name = (jinja_name){p->token->s, p->token->len};
        p->token++;
        return node;
    }
    if (p->token->type != JINJA_T_INTEGER) return fail(p, p->token->at, "expected name or number");
    jinja_node *node = jinja_new_node(p, JINJA_N_ITEM, at);
    jinja_node *index = node == NULL ? NULL : parse_constant(p);
    if (index == NULL) return NULL;
    node->item.object = object;
    node->item.index = index;
    return node;
}

static jinja_node *parse_postfix(jinja_parser *p, jinja_node *node) {
    while (node != NULL) {
        if (jinja_at_op(p, '.'))
            node = parse_dot(p, node);
        else if (jinja_at_op(p, '['))
            node = parse_brackets(p, node);
        else if (jinja_at_op(p, '('))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

// ---- operators

static jinja_node *parse_unary(jinja_parser *p, bool with_filters) {
    if (!jinja_parser_enter(p)) return NULL;
    uint32_t at = p->token->at;
    jinja_node *node;
    if (jinja_at_op(p, '-') || jinja_at_op(p, '+')) {
        uint8_t op = jinja_at_op(p, '-') ? JINJA_OP_SUB : JINJA_OP_ADD;
        p->token++;
        jinja_node *operand = parse_unary(p, false);
        node = binary(p, JINJA_N_UNARY, op, at, operand, operand);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (with_filters && node != NULL) {
        if (jinja_at_op(p, '|'))
            node = jinja_parse_filters(p, node, false);
        else if (jinja_at_name(p, "is"))
            node = parse_test(p, node);
        else if (jinja_at_op(p, '('))
            node = parse_call(p, node);
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
        left = binary(p, JINJA_N_BINARY, JINJA_OP_POW, at, left, parse_unary(p, true));
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
        left = binary(p, JINJA_N_BINARY, op, at, left, parse_power(p));
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
        left = binary(p, JINJA_N_BINARY, op, at, left, parse_concat(p));
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
        if (node->compare.rest.n == JINJA_MAX_NESTING) return fail(p, p->token->at, "too many comparisons in a chain");
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
    return binary(p, JINJA_N_NOT, 0, at, operand, operand);
}

static jinja_node *parse_and(jinja_parser *p) {
    jinja_node *left = parse_not(p);
    while (left != NULL && jinja_at_name(p, "and")) {
        uint32_t at = p->token++->at;
        left = binary(p, JINJA_N_AND, 0, at, left, parse_not(p));
    }
    return left;
}

static jinja_node *parse_or(jinja_parser *p) {
    jinja_node *left = parse_and(p);
    while (left != NULL && jinja_at_name(p, "or")) {
        uint32_t at = p->token++->at;
        left = binary(p, JINJA_N_OR, 0, at, left, parse_and(p));
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
