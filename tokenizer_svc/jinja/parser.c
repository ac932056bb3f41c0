#include "tokenizer_svc/jinja/parser.h"

#include <stdio.h>
#include <string.h>

// ---- tokens

static bool name_is(const jinja_token *t, const char *name) {
    return t->type == JINJA_T_NAME && t->len == strlen(name) && memcmp(t->s, name, t->len) == 0;
}

bool jinja_at_name(const jinja_parser *p, const char *name) {
    return name_is(p->token, name);
}

bool jinja_skip_op(jinja_parser *p, uint16_t op) {
    bool matched = jinja_at_op(p, op);
    p->token += matched;
    return matched;
}

bool jinja_skip_name(jinja_parser *p, const char *name) {
    bool matched = jinja_at_name(p, name);
    p->token += matched;
    return matched;
}

const char *jinja_describe_token(const jinja_token *t, char out[64]) {
    switch ((jinja_token_type)t->type) {
    case JINJA_T_END:
        return "end of template";
    case JINJA_T_DATA:
        return "template text";
    case JINJA_T_VARIABLE_BEGIN:
        return "begin of print statement";
    case JINJA_T_VARIABLE_END:
        return "end of print statement";
    case JINJA_T_BLOCK_BEGIN:
        return "begin of statement block";
    case JINJA_T_BLOCK_END:
        return "end of statement block";
    case JINJA_T_STRING:
        return "string";
    case JINJA_T_INTEGER:
        return "integer";
    case JINJA_T_FLOAT:
        return "float";
    case JINJA_T_NAME:
        snprintf(out, 64, "'%.*s'", t->len < 50 ? (int)t->len : 50, t->s);
        break;
    case JINJA_T_OPERATOR:
        if (t->op > 0xFF)
            snprintf(out, 64, "'%c%c'", t->op >> 8, t->op & 0xFF);
        else
            snprintf(out, 64, "'%c'", t->op);
        break;
    }
    return out;
}

bool jinja_parse_fail_expected(jinja_parser *p, const char *expected) {
    char text[64];
    return jinja_compile_fail(p->c, p->token->at, "expected %s, got %s", expected,
                              jinja_describe_token(p->token, text));
}

bool jinja_expect_op(jinja_parser *p, uint16_t op) {
    if (jinja_skip_op(p, op)) return true;
    char expected[4] = {'\'', (char)op, '\'', 0};
    return jinja_parse_fail_expected(p, expected);
}

static bool expect_type(jinja_parser *p, jinja_token_type type) {
    char text[64];
    jinja_token expected = {.type = (uint8_t)type};
    if (p->token->type != type) return jinja_parse_fail_expected(p, jinja_describe_token(&expected, text));
    p->token++;
    return true;
}

// ---- nodes

jinja_node *jinja_new_node(jinja_parser *p, jinja_node_type type, uint32_t at) {
    jinja_node *node = jinja_compile_alloc(p->c, 1, sizeof *node);
    if (node == NULL) return NULL;
    node->type = (uint8_t)type;
    node->at = at;
    return node;
}

// The array doubles whenever its length is a power of two.
bool jinja_add_node(jinja_parser *p, jinja_nodes *nodes, jinja_node *node) {
    if (node == NULL) return false;
    uint32_t n = nodes->n;
    if ((n & (n - 1)) == 0) {
        jinja_node **items = jinja_compile_alloc(p->c, n == 0 ? 1 : 2 * (size_t)n, sizeof *items);
        if (items == NULL) return false;
        if (n != 0) memcpy(items, nodes->items, n * sizeof *items);
        nodes->items = items;
    }
    nodes->items[nodes->n++] = node;
    return true;
}

jinja_node *jinja_parse_fail(jinja_parser *p, uint32_t at, const char *what) {
    jinja_compile_fail(p->c, at, "%s", what);
    return NULL;
}

jinja_node *jinja_new_binary(jinja_parser *p, jinja_node_type type, uint8_t op, uint32_t at, jinja_node *left,
                             jinja_node *right) {
    jinja_node *node = left == NULL || right == NULL ? NULL : jinja_new_node(p, type, at);
    if (node == NULL) return NULL;
    node->op = op;
    node->binary.left = left;
    node->binary.right = right;
    return node;
}

bool jinja_parser_enter(jinja_parser *p) {
    if (p->depth >= JINJA_MAX_NESTING)
        return jinja_compile_fail(p->c, p->token->at, "nests more than %d levels deep", JINJA_MAX_NESTING);
    p->depth++;
    return true;
}

void jinja_parser_leave(jinja_parser *p) {
    p->depth--;
}

// ---- statements

static bool parse_body(jinja_parser *p, jinja_nodes *body, const char *end_tags);
static jinja_node *parse_statement(jinja_parser *p);

// Is the name at the current token one of a list such as "elif else endif"?
static bool at_one_of(const jinja_parser *p, const char *names) {
    if (names == NULL || p->token->type != JINJA_T_NAME) return false;
    for (const char *name = names; *name != 0;) {
        size_t len = strcspn(name, " ");
        if (len == p->token->len && memcmp(name, p->token->s, len) == 0) return true;
        name += len + (name[len] == ' ');
    }
    return false;
}

static bool parse_until(jinja_parser *p, jinja_nodes *body, const char *end_tags) {
    jinja_node *output = NULL; // the output statement that is being gathered
    while (p->token->type != JINJA_T_END) {
        jinja_node *node;
        const jinja_token *t = p->token++;
        if (t->type == JINJA_T_BLOCK_BEGIN) {
            if (at_one_of(p, end_tags)) return true;
            output = NULL;
            node = parse_statement(p);
            if (!jinja_add_node(p, body, node) || !expect_type(p, JINJA_T_BLOCK_END)) return false;
            continue;
        }
        if (t->type == JINJA_T_DATA) {
            node = jinja_new_node(p, JINJA_N_CONST, t->at);
            if (node != NULL) node->constant = jinja_str(t->s, t->len, JINJA_TEMPLATE);
        } else {
            node = jinja_parse_tuple(p, true, NULL);
            if (node != NULL && !expect_type(p, JINJA_T_VARIABLE_END)) return false;
        }
        if (node == NULL) return false;
        if (output == NULL) {
            output = jinja_new_node(p, JINJA_N_OUTPUT, t->at);
            if (!jinja_add_node(p, body, output)) return false;
        }
        if (!jinja_add_node(p, &output->items, node)) return false;
    }
    if (end_tags == NULL) return true;
    return jinja_compile_fail(p->c, p->token->at, "Unexpected end of template. Looking for the tags: %s", end_tags);
}

// From the end of the opening tag to the name of the tag that closes it, which is the current token then.
static bool parse_body(jinja_parser *p, jinja_nodes *body, const char *end_tags) {
    jinja_skip_op(p, ':');
    if (!expect_type(p, JINJA_T_BLOCK_END) || !jinja_parser_enter(p)) return false;
    const char *outer = p->end_tags;
    p->end_tags = end_tags;
    bool ok = parse_until(p, body, end_tags);
    p->end_tags = outer;
    jinja_parser_leave(p);
    return ok;
}

static bool parse_closed_body(jinja_parser *p, jinja_nodes *body, const char *end_tag) {
    if (!parse_body(p, body, end_tag)) return false;
    p->token++;
    return true;
}

// {% if %} and, as its `otherwise`, the elif and else branches, in a loop: a long chain is no nesting.
static jinja_node *parse_if(jinja_parser *p) {
    jinja_node *result = NULL, **link = &result;
    for (;;) {
        jinja_node *node = jinja_new_node(p, JINJA_N_IF, p->token->at);
        if (node == NULL) return NULL;
        bool is_else = jinja_skip_name(p, "else");
        if (!is_else) {
            p->token++;
            node->branch.test = jinja_parse_tuple(p, false, NULL);
            if (node->branch.test == NULL) return NULL;
        }
        *link = node;
        link = &node->branch.otherwise;
        if (!parse_body(p, &node->branch.body, is_else ? "endif" : "elif else endif")) return NULL;
        if (jinja_skip_name(p, "endif")) return result;
    }
}

static jinja_node *parse_for(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_FOR, p->token++->at);
    struct jinja_for *loop = node == NULL ? NULL : jinja_compile_alloc(p->c, 1, sizeof *loop);
    if (loop == NULL) return NULL;
    node->loop = loop;
    const jinja_token *target = p->token;
    loop->target = jinja_parse_target(p, JINJA_TARGET_NAMES, "in");
    if (loop->target == NULL) return NULL;
    if (!jinja_skip_name(p, "in")) {
        jinja_parse_fail_expected(p, "'in'");
        return NULL;
    }
    loop->iter = jinja_parse_tuple(p, false, "recursive");
    if (loop->iter == NULL) return NULL;
    if (jinja_skip_name(p, "if")) {
        loop->test = jinja_parse_expr(p, true);
        if (loop->test == NULL) return NULL;
        // The test has variables of its own: the target once more.
        const jinja_token *behind = p->token;
        p->token = target;
        loop->test_target = jinja_parse_target(p, JINJA_TARGET_NAMES, "in");
        if (loop->test_target == NULL) return NULL;
        p->token = behind;
    }
    loop->is_recursive = jinja_skip_name(p, "recursive");
    p->loops++;
    bool ok = parse_body(p, &loop->body, "endfor else");
    p->loops--;
    if (!ok) return NULL;
    if (jinja_skip_name(p, "endfor")) return node;
    p->token++;
    return parse_closed_body(p, &loop->otherwise, "endfor") ? node : NULL;
}

static jinja_scope *new_scope(jinja_parser *p) {
    return jinja_compile_alloc(p->c, 1, sizeof(jinja_scope));
}

static jinja_node *parse_set(jinja_parser *p) {
    uint32_t at = p->token++->at;
    jinja_node *target = jinja_parse_target(p, JINJA_TARGET_WITH_NAMESPACE, NULL);
    if (target == NULL) return NULL;
    if (jinja_skip_op(p, '=')) {
        jinja_node *node = jinja_new_node(p, JINJA_N_SET, at);
        if (node == NULL) return NULL;
        node->set.target = target;
        node->set.value = jinja_parse_tuple(p, true, NULL);
        return node->set.value != NULL ? node : NULL;
    }
    jinja_node *node = jinja_new_node(p, JINJA_N_SET_BLOCK, at);
    if (node == NULL || (node->block.scope = new_scope(p)) == NULL) return NULL;
    node->block.target = target;
    if (jinja_at_op(p, '|')) {
        jinja_node *captured = jinja_new_node(p, JINJA_N_CAPTURED, at);
        node->block.filter = captured == NULL ? NULL : jinja_parse_filters(p, captured, false);
        if (node->block.filter == NULL) return NULL;
    }
    return parse_closed_body(p, &node->block.body, "endset") ? node : NULL;
}

static jinja_node *parse_filter_block(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_FILTER_BLOCK, p->token++->at);
    if (node == NULL || (node->block.scope = new_scope(p)) == NULL) return NULL;
    jinja_node *captured = jinja_new_node(p, JINJA_N_CAPTURED, node->at);
    node->block.filter = captured == NULL ? NULL : jinja_parse_filters(p, captured, true);
    if (node->block.filter == NULL) return NULL;
    return parse_closed_body(p, &node->block.body, "endfilter") ? node : NULL;
}

// The assistant's part of a conversation, for training masks: its text as it is.
static jinja_node *parse_generation(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_GENERATION, p->token++->at);
    if (node == NULL || (node->block.scope = new_scope(p)) == NULL) return NULL;
    uint32_t loops = p->loops;
    p->loops = 0;
    bool ok = parse_closed_body(p, &node->block.body, "endgeneration");
    p->loops = loops;
    return ok ? node : NULL;
}

static jinja_node *parse_with(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_WITH, p->token++->at);
    if (node == NULL || (node->with.scope = new_scope(p)) == NULL) return NULL;
    while (p->token->type != JINJA_T_BLOCK_END) {
        if (node->with.targets.n > 0 && !jinja_expect_op(p, ',')) return NULL;
        jinja_node *target = jinja_parse_target(p, JINJA_TARGET_NAMES, NULL);
        if (!jinja_add_node(p, &node->with.targets, target) || !jinja_expect_op(p, '=') ||
            !jinja_add_node(p, &node->with.values, jinja_parse_expr(p, true)))
            return NULL;
    }
    return parse_closed_body(p, &node->with.body, "endwith") ? node : NULL;
}

// Of one macro: they are compared with each other.
enum { MAX_PARAMS = 256 };

static bool parse_params(jinja_parser *p, jinja_params *params) {
    if (!jinja_expect_op(p, '(')) return false;
    while (!jinja_at_op(p, ')')) {
        if (params->names.n > 0 && !jinja_expect_op(p, ',')) return false;
        if (params->names.n == MAX_PARAMS)
            return jinja_compile_fail(p->c, p->token->at, "more than %d parameters", MAX_PARAMS);
        jinja_node *name = jinja_parse_target(p, JINJA_TARGET_ONE_NAME, NULL);
        for (uint32_t i = 0; name != NULL && i < params->names.n; i++) {
            jinja_name a = name->name.name, b = params->names.items[i]->name.name;
            if (a.len == b.len && memcmp(a.s, b.s, a.len) == 0)
                return jinja_compile_fail(p->c, name->at, "duplicate parameter '%.*s'", (int)a.len, a.s);
        }
        if (!jinja_add_node(p, &params->names, name)) return false;
        if (jinja_skip_op(p, '=')) {
            if (!jinja_add_node(p, &params->defaults, jinja_parse_expr(p, true))) return false;
        } else if (params->defaults.n > 0) {
            return jinja_compile_fail(p->c, name->at, "non-default argument follows default argument");
        }
    }
    p->token++;
    return true;
}

// A parameter named like one of the special variables takes its place.
static bool check_special_params(jinja_parser *p, jinja_function_body *f) {
    for (uint32_t i = 0; i < f->params.names.n; i++) {
        jinja_node *node = f->params.names.items[i];
        jinja_name name = node->name.name;
        if (name.len == 7 && memcmp(name.s, "varargs", 7) == 0) f->uses_varargs = false;
        if (name.len == 6 && memcmp(name.s, "kwargs", 6) == 0) f->uses_kwargs = false;
        if (name.len != 6 || memcmp(name.s, "caller", 6) != 0) continue;
        if (f->uses_caller && i < f->params.names.n - f->params.defaults.n)
            return jinja_compile_fail(p->c, node->at,
                                      "the special \"caller\" argument must be omitted or be given a default");
        f->uses_caller = false;
    }
    return true;
}

static bool parse_function_body(jinja_parser *p, jinja_function_body *f, const char *end_tag) {
    struct jinja_open_function open = {.body = f, .outer = p->functions};
    uint32_t loops = p->loops;
    p->functions = &open;
    p->loops = 0;
    bool ok = parse_closed_body(p, &f->body, end_tag);
    p->loops = loops;
    p->functions = open.outer;
    return ok && check_special_params(p, f);
}

static jinja_node *parse_macro(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_MACRO, p->token++->at);
    if (node == NULL) return NULL;
    jinja_function_body *f = node->macro.function = jinja_compile_alloc(p->c, 1, sizeof *f);
    node->macro.target = f == NULL ? NULL : jinja_parse_target(p, JINJA_TARGET_ONE_NAME, NULL);
    if (node->macro.target == NULL || !parse_params(p, &f->params)) return NULL;
    return parse_function_body(p, f, "endmacro") ? node : NULL;
}

static jinja_node *parse_call_block(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_CALL_BLOCK, p->token++->at);
    if (node == NULL) return NULL;
    jinja_function_body *f = node->macro.function = jinja_compile_alloc(p->c, 1, sizeof *f);
    if (f == NULL || (jinja_at_op(p, '(') && !parse_params(p, &f->params))) return NULL;
    node->macro.call = jinja_parse_expr(p, true);
    if (node->macro.call == NULL) return NULL;
    if (node->macro.call->type != JINJA_N_CALL) {
        jinja_compile_fail(p->c, node->at, "expected call");
        return NULL;
    }
    return parse_function_body(p, f, "endcall") ? node : NULL;
}

static jinja_node *parse_print(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_OUTPUT, p->token++->at);
    while (node != NULL && p->token->type != JINJA_T_BLOCK_END) {
        if (node->items.n > 0 && !jinja_expect_op(p, ',')) return NULL;
        if (!jinja_add_node(p, &node->items, jinja_parse_expr(p, true))) return NULL;
    }
    return node;
}

static jinja_node *parse_loop_control(jinja_parser *p) {
    bool is_break = jinja_at_name(p, "break");
    if (p->loops == 0) {
        jinja_compile_fail(p->c, p->token->at, "'%s' outside a loop", is_break ? "break" : "continue");
        return NULL;
    }
    return jinja_new_node(p, is_break ? JINJA_N_BREAK : JINJA_N_CONTINUE, p->token++->at);
}

// Without a loader these fail when they are reached and not before; what they say is skipped.
static jinja_node *parse_no_loader(jinja_parser *p) {
    jinja_node *node = jinja_new_node(p, JINJA_N_NO_LOADER, p->token->at);
    if (node == NULL) return NULL;
    node->word = (jinja_name){p->token->s, p->token->len};
    while (p->token->type != JINJA_T_BLOCK_END && p->token->type != JINJA_T_END)
        p->token++;
    return node;
}

static jinja_node *parse_statement(jinja_parser *p) {
    static const struct {
        const char *tag;
        jinja_node *(*parse)(jinja_parser *);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"generation", parse_generation},
        {"break", parse_loop_control},
        {"continue", parse_loop_control},
        {"print", parse_print},
        {"include", parse_no_loader},
        {"import", parse_no_loader},
        {"from", parse_no_loader},
        {"extends", parse_no_loader},
    };
    if (p->token->type != JINJA_T_NAME) {
        jinja_parse_fail_expected(p, "the name of a tag");
        return NULL;
    }
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++)
        if (jinja_at_name(p, statements[i].tag)) return statements[i].parse(p);
    char text[64];
    jinja_compile_fail(p->c, p->token->at, "Encountered unknown tag %s%s%s", jinja_describe_token(p->token, text),
                       p->end_tags != NULL ? ". Looking for the tags: " : "", p->end_tags != NULL ? p->end_tags : "");
    return NULL;
}

bool jinja_parse(jinja_compiler *c, const jinja_token *tokens) {
    jinja_parser p = {.c = c, .token = tokens};
    return parse_until(&p, &c->t->body, NULL);
}
