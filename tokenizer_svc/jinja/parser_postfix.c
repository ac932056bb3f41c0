// What stands behind a value: .name [item] (arguments) | filter is test.
#include <string.h>

#include "tokenizer_svc/jinja/parser.h"

// Of one call: they are compared with each other.
enum { MAX_NAMES = 256 };

static bool parse_named_arg(jinja_parser *p, jinja_call_args *args) {
    jinja_name name = {p->token->s, p->token->len};
    if (args->values.n == MAX_NAMES)
        return jinja_compile_fail(p->c, p->token->at, "more than %d named arguments", MAX_NAMES);
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
    const jinja_token *t = p->token;
    bool is_star = jinja_at_op(p, '*'), is_star_star = jinja_at_op(p, JINJA_OP2('*', '*'));
    bool is_named = t->type == JINJA_T_NAME && t[1].type == JINJA_T_OPERATOR && t[1].op == '=';
    // Positions, then *, then names and **: what has gone by may not come back.
    bool is_late = args->star_star != NULL || (is_star && args->star != NULL) ||
                   (!is_star && !is_star_star && !is_named && (args->star != NULL || args->values.n > 0));
    if (is_late) return jinja_compile_fail(p->c, at, "invalid syntax for function call expression");
    if (is_named) return parse_named_arg(p, args);
    if (!is_star && !is_star_star) return jinja_add_node(p, &args->pos, jinja_parse_expr(p, true));
    p->token++;
    jinja_node *list = jinja_parse_expr(p, true);
    if (is_star)
        args->star = list;
    else
        args->star_star = list;
    return list != NULL;
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

jinja_node *jinja_parse_call(jinja_parser *p, jinja_node *callee) {
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

jinja_node *jinja_parse_test(jinja_parser *p, jinja_node *value) {
    uint32_t at = p->token++->at;
    bool is_negated = jinja_skip_name(p, "not");
    jinja_node *node = jinja_new_node(p, JINJA_N_TEST, at);
    if (node == NULL || !parse_dotted_name(p, &node->call.name)) return NULL;
    node->call.value = value;
    if (jinja_at_op(p, '(')) {
        node->call.args = parse_args(p);
        if (node->call.args == NULL) return NULL;
    } else if (at_bare_argument(p)) {
        if (jinja_at_name(p, "is")) return jinja_parse_fail(p, p->token->at, "You cannot chain multiple tests with is");
        node->call.args = jinja_compile_alloc(p->c, 1, sizeof *node->call.args);
        jinja_node *arg = node->call.args == NULL ? NULL : jinja_parse_primary(p);
        if (arg != NULL) arg = jinja_parse_postfix(p, arg);
        if (arg == NULL || !jinja_add_node(p, &node->call.args->pos, arg)) return NULL;
    }
    return is_negated ? jinja_new_binary(p, JINJA_N_NOT, 0, at, node, node) : node;
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
    if (p->token->type != JINJA_T_INTEGER) return jinja_parse_fail(p, p->token->at, "expected name or number");
    jinja_node *node = jinja_new_node(p, JINJA_N_ITEM, at);
    jinja_node *index = node == NULL ? NULL : jinja_parse_constant(p);
    if (index == NULL) return NULL;
    node->item.object = object;
    node->item.index = index;
    return node;
}

jinja_node *jinja_parse_postfix(jinja_parser *p, jinja_node *node) {
    while (node != NULL) {
        if (jinja_at_op(p, '.'))
            node = parse_dot(p, node);
        else if (jinja_at_op(p, '['))
            node = parse_brackets(p, node);
        else if (jinja_at_op(p, '('))
            node = jinja_parse_call(p, node);
        else
            break;
    }
    return node;
}
