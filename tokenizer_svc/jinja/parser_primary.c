// Literals, names, tuples, and what can be assigned to.
#include <string.h>

#include "tokenizer_svc/jinja/parser.h"

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

jinja_node *jinja_parse_constant(jinja_parser *p) {
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

jinja_node *jinja_parse_primary(jinja_parser *p) {
    char text[64];
    switch (p->token->type) {
    case JINJA_T_NAME:
        return parse_name(p);
    case JINJA_T_STRING:
    case JINJA_T_INTEGER:
    case JINJA_T_FLOAT:
        return jinja_parse_constant(p);
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
    if (node->type != JINJA_N_TUPLE) return jinja_parse_fail(p, node->at, "cannot assign to this");
    for (uint32_t i = 0; i < node->items.n; i++)
        if (check_target(p, node->items.items[i]) == NULL) return NULL;
    return node;
}

static jinja_node *parse_target_item(jinja_parser *p, void *context) {
    jinja_target_kind kind = *(jinja_target_kind *)context;
    jinja_node *node = jinja_parse_primary(p);
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
