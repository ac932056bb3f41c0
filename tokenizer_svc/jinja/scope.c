// The scoping of jinja2, decided before anything runs.
//
// A scope is looked at twice. First all its own statements, not those of the scopes inside it, say which names it loads
// and which it stores: a name that is stored is a variable of this scope and begins as a copy of the outer scope's
// variable of that name; if there is none, as what the context holds if the scope loads it before it stores it or
// stores it only in a branch of an `if`, and as nothing otherwise. That is jinja2's rule, its surprises included: a
// loop does not see a variable of the context that the scope around it stores later. Then every name is resolved to its
// place, and the scopes inside are done the same way.
#include "tokenizer_svc/jinja/scope.h"

#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"

enum {
    MAX_VARIABLES = 2000, // of all scopes together: they are searched one by one
    MAX_HEIGHT = 500,     // of the tree: long chains of operators nest too
};

typedef struct entry {
    jinja_name name;
    bool is_stored; // it has a slot
    bool is_param;
    uint32_t slot;
    bool has_outer;         // it begins as a copy of `outer`
    jinja_ref outer;        // a variable of an outer scope or of the context
    struct jinja_for *loop; // of the variable `loop`
    struct entry *next;
} entry;

typedef struct symbols {
    struct symbols *parent;
    bool is_function;  // the parent's variables are in another frame
    uint32_t *n_slots; // of the frame
    entry *first, **last;
    uint32_t branches; // `if`s around the statement that is looked at
} symbols;

typedef struct analysis {
    jinja_compiler *c;
    bool is_resolving; // the second look
    bool is_soft;      // in an `if`: a filter that does not exist is an error only when it is reached
    uint32_t loops;    // for statements around
    uint32_t n_variables, height;
} analysis;

static bool visit(analysis *a, symbols *s, jinja_node *node);

static bool same_name(jinja_name a, jinja_name b) {
    return a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
}

static bool is_word(jinja_name name, const char *word) {
    return name.len == strlen(word) && memcmp(name.s, word, name.len) == 0;
}

// ---- symbols

static symbols new_symbols(symbols *parent, bool is_function, uint32_t *n_slots) {
    return (symbols){.parent = parent, .is_function = is_function, .n_slots = n_slots};
}

static entry *find_own(const symbols *s, jinja_name name) {
    for (entry *e = s->first; e != NULL; e = e->next)
        if (same_name(e->name, name)) return e;
    return NULL;
}

static entry *find(const symbols *s, jinja_name name, uint16_t *hops) {
    *hops = 0;
    for (; s != NULL; s = s->parent) {
        entry *e = find_own(s, name);
        if (e != NULL) return e;
        *hops += s->is_function;
    }
    return NULL;
}

static bool new_entry(analysis *a, symbols *s, jinja_node *at, jinja_name name, entry **out) {
    if (++a->n_variables > MAX_VARIABLES)
        return jinja_compile_fail(a->c, at->at, "more than %d variables", MAX_VARIABLES);
    entry *e = *out = jinja_compile_alloc(a->c, 1, sizeof *e);
    if (e == NULL) return false;
    e->name = name;
    if (s->first == NULL) s->last = &s->first;
    *s->last = e;
    s->last = &e->next;
    return true;
}

static bool context_ref(analysis *a, jinja_name name, jinja_ref *ref) {
    jinja_template *t = a->c->t;
    uint32_t i = 0;
    while (i < t->n_names && !same_name(t->names[i], name))
        i++;
    *ref = (jinja_ref){.place = JINJA_CONTEXT, .index = i};
    if (i < t->n_names) return true;
    if (t->names == NULL) {
        t->names = jinja_compile_alloc(a->c, MAX_VARIABLES, sizeof *t->names);
        if (t->names == NULL) return false;
    }
    t->names[t->n_names++] = name;
    return true;
}

static jinja_ref entry_ref(const entry *e, uint16_t hops) {
    if (!e->is_stored) return e->outer;
    return (jinja_ref){.place = JINJA_SLOT, .hops = hops, .index = e->slot};
}

static bool load(analysis *a, symbols *s, jinja_node *node) {
    uint16_t hops;
    entry *e = find(s, node->name.name, &hops);
    if (e != NULL) return true;
    if (!new_entry(a, s, node, node->name.name, &e)) return false;
    e->has_outer = true;
    return context_ref(a, e->name, &e->outer);
}

static bool store(analysis *a, symbols *s, jinja_node *node) {
    jinja_name name = node->name.name;
    if (a->loops > 0 && is_word(name, "loop"))
        return jinja_compile_fail(a->c, node->at, "Can't assign to special loop variable in for-loop target");
    entry *e = find_own(s, name);
    if (e == NULL) {
        if (!new_entry(a, s, node, name, &e)) return false;
        uint16_t hops = 0;
        const entry *outer = s->parent == NULL ? NULL : find(s->parent, name, &hops);
        e->has_outer = outer != NULL || s->branches > 0;
        if (outer != NULL)
            e->outer = entry_ref(outer, (uint16_t)(hops + s->is_function));
        else if (e->has_outer && !context_ref(a, name, &e->outer))
            return false;
    }
    if (!e->is_stored) e->slot = (*s->n_slots)++;
    e->is_stored = true;
    return true;
}

// A variable that whoever enters the scope sets.
static bool declare(analysis *a, symbols *s, jinja_node *at, jinja_name name, entry **out) {
    entry *e = find_own(s, name);
    if (e == NULL && !new_entry(a, s, at, name, &e)) return false;
    if (!e->is_stored) e->slot = (*s->n_slots)++;
    e->is_stored = e->is_param = true;
    if (out != NULL) *out = e;
    return true;
}

static bool resolve_name(analysis *a, symbols *s, jinja_node *node) {
    uint16_t hops;
    entry *e = find(s, node->name.name, &hops);
    if (e == NULL) return jinja_compile_fail(a->c, node->at, "a name that nothing declares");
    node->name.ref = entry_ref(e, hops);
    if (e->loop != NULL) e->loop->uses_loop = true;
    return true;
}

static bool finish_scope(analysis *a, const symbols *s, jinja_scope *scope) {
    uint32_t n = 0;
    for (const entry *e = s->first; e != NULL; e = e->next)
        n += e->is_stored && !e->is_param;
    scope->loads = jinja_compile_alloc(a->c, n, sizeof *scope->loads);
    if (scope->loads == NULL) return false;
    for (const entry *e = s->first; e != NULL; e = e->next) {
        if (!e->is_stored || e->is_param) continue;
        scope->loads[scope->n++] = (jinja_load){
            .kind = e->has_outer ? JINJA_LOAD_COPY : JINJA_LOAD_MISSING,
            .slot = e->slot,
            .from = e->outer,
        };
    }
    return true;
}

// ---- expressions

static bool visit_all(analysis *a, symbols *s, const jinja_nodes *nodes) {
    for (uint32_t i = 0; i < nodes->n; i++)
        if (!visit(a, s, nodes->items[i])) return false;
    return true;
}

static bool visit_optional(analysis *a, symbols *s, jinja_node *node) {
    return node == NULL || visit(a, s, node);
}

static bool visit_args(analysis *a, symbols *s, const jinja_call_args *args) {
    return args == NULL || (visit_all(a, s, &args->pos) && visit_all(a, s, &args->values) &&
                            visit_optional(a, s, args->star) && visit_optional(a, s, args->star_star));
}

static bool visit_filter_or_test(analysis *a, symbols *s, jinja_node *node) {
    if (a->is_resolving) {
        jinja_name name = node->call.name;
        bool is_filter = node->type == JINJA_N_FILTER;
        node->call.function = is_filter ? (const void *)jinja_find_filter(name.s, name.len)
                                        : (const void *)jinja_find_test(name.s, name.len);
        if (node->call.function == NULL && !a->is_soft)
            return jinja_compile_fail(a->c, node->at, "No %s named '%.*s'", is_filter ? "filter" : "test",
                                      (int)name.len, name.s);
    }
    return visit(a, s, node->call.value) && visit_args(a, s, node->call.args);
}

static bool visit_target(analysis *a, symbols *s, jinja_node *target, bool is_param) {
    switch (target->type) {
    case JINJA_N_NAME:
        if (a->is_resolving) return resolve_name(a, s, target);
        if (!is_param) return store(a, s, target);
        if (a->loops > 0 && is_word(target->name.name, "loop")) return store(a, s, target);
        return declare(a, s, target, target->name.name, NULL);
    case JINJA_N_NS_ATTR:
        return visit(a, s, target->attr.object);
    default:
        for (uint32_t i = 0; i < target->items.n; i++)
            if (!visit_target(a, s, target->items.items[i], is_param)) return false;
        return true;
    }
}

static bool visit_condition(analysis *a, symbols *s, jinja_node *node) {
    bool outer = a->is_soft;
    a->is_soft = true;
    bool ok = visit(a, s, node->cond.test) && visit(a, s, node->cond.yes) && visit_optional(a, s, node->cond.no);
    a->is_soft = outer;
    return ok;
}

// ---- statements with scopes

// Both looks at a list of statements that is all of a scope, whose parameters are declared already.
static bool visit_scope(analysis *a, symbols *s, const jinja_nodes *body, jinja_node *extra, jinja_scope *scope) {
    bool outer = a->is_soft;
    a->is_soft = false;
    bool ok = true;
    for (int look = 0; look < 2 && ok; look++) {
        a->is_resolving = look == 1;
        ok = visit_optional(a, s, extra) && visit_all(a, s, body);
    }
    a->is_soft = outer;
    a->is_resolving = true;
    return ok && finish_scope(a, s, scope);
}

static bool declare_target(analysis *a, symbols *s, jinja_node *target) {
    a->is_resolving = false;
    bool ok = visit_target(a, s, target, true);
    a->is_resolving = true;
    return ok && visit_target(a, s, target, true);
}

static bool visit_loop_test(analysis *a, symbols *s, struct jinja_for *loop) {
    if (loop->test == NULL) return true;
    symbols test = new_symbols(s, false, s->n_slots);
    const jinja_nodes nothing = {0};
    return declare_target(a, &test, loop->test_target) &&
           visit_scope(a, &test, &nothing, loop->test, &loop->test_scope);
}

static bool visit_loop_body(analysis *a, symbols *s, jinja_node *node) {
    struct jinja_for *loop = node->loop;
    symbols body = new_symbols(s, loop->is_recursive, loop->is_recursive ? &loop->n_slots : s->n_slots);
    entry *e;
    if (!declare(a, &body, node, (jinja_name){"loop", 4}, &e)) return false;
    e->loop = loop;
    loop->loop_slot = e->slot;
    return declare_target(a, &body, loop->target) && visit_scope(a, &body, &loop->body, NULL, &loop->scope);
}

static bool visit_for(analysis *a, symbols *s, jinja_node *node) {
    struct jinja_for *loop = node->loop;
    if (!visit(a, s, loop->iter)) return false;
    if (!a->is_resolving) return true;
    a->loops++;
    symbols otherwise = new_symbols(s, false, s->n_slots);
    bool ok = visit_loop_test(a, s, loop) && visit_loop_body(a, s, node) &&
              visit_scope(a, &otherwise, &loop->otherwise, NULL, &loop->otherwise_scope);
    a->loops--;
    return ok;
}

static bool declare_special(analysis *a, symbols *s, jinja_node *at, bool is_used, const char *name, uint32_t *slot) {
    entry *e;
    if (!is_used) return true;
    if (!declare(a, s, at, (jinja_name){name, (uint32_t)strlen(name)}, &e)) return false;
    *slot = e->slot;
    return true;
}

static bool visit_function(analysis *a, symbols *s, jinja_node *node) {
    jinja_function_body *f = node->macro.function;
    symbols inner = new_symbols(s, true, &f->n_slots);
    for (uint32_t i = 0; i < f->params.names.n; i++) {
        jinja_node *param = f->params.names.items[i];
        if (!declare(a, &inner, param, param->name.name, NULL) || !resolve_name(a, &inner, param)) return false;
    }
    if (!declare_special(a, &inner, node, f->uses_caller, "caller", &f->caller_slot) ||
        !declare_special(a, &inner, node, f->uses_varargs, "varargs", &f->varargs_slot) ||
        !declare_special(a, &inner, node, f->uses_kwargs, "kwargs", &f->kwargs_slot))
        return false;
    a->is_resolving = false;
    bool ok = visit_all(a, &inner, &f->params.defaults);
    a->is_resolving = true;
    if (!ok || !visit_scope(a, &inner, &f->body, NULL, &f->scope)) return false;
    bool outer = a->is_soft;
    a->is_soft = false;
    ok = visit_all(a, &inner, &f->params.defaults);
    a->is_soft = outer;
    return ok;
}

static bool visit_block(analysis *a, symbols *s, jinja_node *node) {
    // The arguments of a filter block's filter are loaded outside too.
    if (!a->is_resolving && node->type == JINJA_N_FILTER_BLOCK) return visit(a, s, node->block.filter);
    if (node->type == JINJA_N_SET_BLOCK && !visit_target(a, s, node->block.target, false)) return false;
    if (!a->is_resolving) return true;
    symbols inner = new_symbols(s, false, s->n_slots);
    return visit_scope(a, &inner, &node->block.body, node->block.filter, node->block.scope);
}

static bool visit_with(analysis *a, symbols *s, jinja_node *node) {
    if (!visit_all(a, s, &node->with.values)) return false;
    if (!a->is_resolving) return true;
    symbols inner = new_symbols(s, false, s->n_slots);
    for (uint32_t i = 0; i < node->with.targets.n; i++)
        if (!declare_target(a, &inner, node->with.targets.items[i])) return false;
    return visit_scope(a, &inner, &node->with.body, NULL, node->with.scope);
}

static bool visit_if(analysis *a, symbols *s, jinja_node *node) {
    bool outer = a->is_soft;
    a->is_soft = true;
    bool ok = true;
    uint32_t branches = s->branches;
    for (jinja_node *branch = node; branch != NULL && ok; branch = branch->branch.otherwise) {
        ok = visit_optional(a, s, branch->branch.test);
        s->branches = branches + 1;
        ok = ok && visit_all(a, s, &branch->branch.body);
    }
    s->branches = branches;
    a->is_soft = outer;
    return ok;
}

static bool visit_node(analysis *a, symbols *s, jinja_node *node) {
    switch ((jinja_node_type)node->type) {
    case JINJA_N_CONST:
    case JINJA_N_CAPTURED:
    case JINJA_N_BREAK:
    case JINJA_N_CONTINUE:
    case JINJA_N_NO_LOADER:
        return true;
    case JINJA_N_NAME:
        return a->is_resolving ? resolve_name(a, s, node) : load(a, s, node);
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
    case JINJA_N_DICT:
    case JINJA_N_CONCAT:
    case JINJA_N_OUTPUT:
        return visit_all(a, s, &node->items);
    case JINJA_N_ATTR:
    case JINJA_N_NS_ATTR:
        return visit(a, s, node->attr.object);
    case JINJA_N_ITEM:
        return visit(a, s, node->item.object) && visit(a, s, node->item.index);
    case JINJA_N_SLICE:
        return visit_optional(a, s, node->slice.start) && visit_optional(a, s, node->slice.stop) &&
               visit_optional(a, s, node->slice.step);
    case JINJA_N_CALL:
        return visit(a, s, node->call.callee) && visit_args(a, s, node->call.args);
    case JINJA_N_FILTER:
    case JINJA_N_TEST:
        return visit_filter_or_test(a, s, node);
    case JINJA_N_UNARY:
    case JINJA_N_NOT:
        return visit(a, s, node->binary.left);
    case JINJA_N_BINARY:
    case JINJA_N_AND:
    case JINJA_N_OR:
        return visit(a, s, node->binary.left) && visit(a, s, node->binary.right);
    case JINJA_N_COMPARE:
        return visit(a, s, node->compare.first) && visit_all(a, s, &node->compare.rest);
    case JINJA_N_COND:
        return visit_condition(a, s, node);
    case JINJA_N_IF:
        return visit_if(a, s, node);
    case JINJA_N_FOR:
        return visit_for(a, s, node);
    case JINJA_N_SET:
        return visit(a, s, node->set.value) && visit_target(a, s, node->set.target, false);
    case JINJA_N_SET_BLOCK:
    case JINJA_N_FILTER_BLOCK:
    case JINJA_N_GENERATION:
        return visit_block(a, s, node);
    case JINJA_N_MACRO:
        return visit_target(a, s, node->macro.target, false) && (!a->is_resolving || visit_function(a, s, node));
    case JINJA_N_CALL_BLOCK:
        return visit(a, s, node->macro.call) && (!a->is_resolving || visit_function(a, s, node));
    case JINJA_N_WITH:
        return visit_with(a, s, node);
    }
    return false;
}

static bool visit(analysis *a, symbols *s, jinja_node *node) {
    if (a->height >= MAX_HEIGHT)
        return jinja_compile_fail(a->c, node->at, "nests more than %d levels deep", MAX_HEIGHT);
    a->height++;
    bool ok = visit_node(a, s, node);
    a->height--;
    return ok;
}

bool jinja_resolve(jinja_compiler *c) {
    analysis a = {.c = c};
    symbols top = new_symbols(NULL, false, &c->t->n_slots);
    return visit_scope(&a, &top, &c->t->body, NULL, &c->t->scope);
}
