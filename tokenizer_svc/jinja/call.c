// Calls: arguments, macros, and whatever else can be called.
#include <stdio.h>
#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"

enum { FEW_POS = 4, FEW_NAMED = 2 };

// Room for the arguments of most calls; more come from the run.
typedef struct arg_space {
    jinja_args args;
    jinja_value pos[FEW_POS];
    jinja_pair named[FEW_NAMED];
} arg_space;

static bool add_star(jinja_run *run, jinja_frame *frame, const jinja_node *star, jinja_args *args) {
    jinja_value v, *items, *all;
    uint32_t n;
    if (!jinja_eval(run, frame, star, &v)) return false;
    run->at = star->at;
    if (!jinja_items(run, v, &items, &n)) return false;
    all = jinja_alloc(run, args->n_pos + (size_t)n, sizeof *all);
    if (all == NULL) return false;
    memcpy(all, args->pos, args->n_pos * sizeof *all);
    if (n != 0) memcpy(all + args->n_pos, items, n * sizeof *all);
    args->pos = all;
    args->n_pos += n;
    return true;
}

static bool add_star_star(jinja_run *run, jinja_frame *frame, const jinja_node *star_star, jinja_args *args) {
    jinja_value v;
    if (!jinja_eval(run, frame, star_star, &v)) return false;
    run->at = star_star->at;
    if (v.kind != JINJA_DICT) return jinja_fail(run, "argument after ** must be a mapping, not %s", jinja_type_name(v));
    jinja_pair *all = jinja_alloc(run, args->n_named + (size_t)v.dict->n, sizeof *all);
    if (all == NULL) return false;
    if (args->n_named != 0) memcpy(all, args->named, args->n_named * sizeof *all);
    for (uint32_t i = 0; i < v.dict->n; i++) {
        jinja_value key = v.dict->pairs[i].key;
        if (key.kind != JINJA_STR) return jinja_fail(run, "keywords must be strings");
        for (uint32_t k = 0; k < args->n_named; k++)
            if (jinja_is_str(key, args->named[k].key.s, args->named[k].key.len))
                return jinja_fail(run, "got multiple values for keyword argument '%.*s'", jinja_shown(key.len), key.s);
        all[args->n_named + i] = v.dict->pairs[i];
    }
    args->named = all;
    args->n_named += v.dict->n;
    return true;
}

static bool eval_args(jinja_run *run, jinja_frame *frame, const jinja_call_args *written, const jinja_value *caller,
                      arg_space *space) {
    jinja_args *args = &space->args;
    *args = (jinja_args){.pos = space->pos, .named = space->named};
    uint32_t n_pos = written != NULL ? written->pos.n : 0, n_named = written != NULL ? written->values.n : 0;
    if (n_pos > FEW_POS && (args->pos = jinja_alloc(run, n_pos, sizeof *args->pos)) == NULL) return false;
    if (n_named + (caller != NULL) > FEW_NAMED &&
        (args->named = jinja_alloc(run, n_named + 1, sizeof *args->named)) == NULL)
        return false;
    for (; args->n_pos < n_pos; args->n_pos++)
        if (!jinja_eval(run, frame, written->pos.items[args->n_pos], &args->pos[args->n_pos])) return false;
    for (; args->n_named < n_named; args->n_named++) {
        jinja_pair *p = &args->named[args->n_named];
        p->key = jinja_str(written->names[args->n_named].s, written->names[args->n_named].len, JINJA_TEMPLATE);
        if (!jinja_eval(run, frame, written->values.items[args->n_named], &p->value)) return false;
    }
    if (caller != NULL) args->named[args->n_named++] = (jinja_pair){JINJA_LITERAL("caller"), *caller};
    if (written == NULL) return true;
    return (written->star == NULL || add_star(run, frame, written->star, args)) &&
           (written->star_star == NULL || add_star_star(run, frame, written->star_star, args));
}

// ---- macros

bool jinja_macro_make(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    jinja_macro *macro = jinja_alloc(run, 1, sizeof *macro);
    if (macro == NULL) return false;
    *macro = (jinja_macro){.node = node, .frame = frame};
    if (node->type == JINJA_N_MACRO) {
        macro->name = node->macro.target->name.name.s;
        macro->name_len = node->macro.target->name.name.len;
    }
    *out = (jinja_value){.kind = JINJA_MACRO, .macro = macro};
    return true;
}

static bool fail_macro(jinja_run *run, const jinja_macro *macro, const char *what) {
    if (macro->name == NULL) return jinja_fail(run, "the body of the call block %s", what);
    return jinja_fail(run, "macro '%.*s' %s", jinja_shown(macro->name_len), macro->name, what);
}

// Takes the argument of that name out of the named ones.
static bool take_named(jinja_args *args, const char *name, uint32_t len, jinja_value *out) {
    for (uint32_t i = 0; i < args->n_named; i++) {
        if (!jinja_is_str(args->named[i].key, name, len)) continue;
        *out = args->named[i].value;
        args->n_named--;
        memmove(&args->named[i], &args->named[i + 1], (args->n_named - i) * sizeof args->named[i]);
        return true;
    }
    return false;
}

static bool bind_params(jinja_run *run, jinja_frame *frame, const jinja_macro *macro, const jinja_function_body *f,
                        jinja_args *args) {
    uint32_t n = f->params.names.n;
    for (uint32_t i = 0; i < n; i++) {
        const jinja_node *param = f->params.names.items[i];
        jinja_value *slot = &frame->slots[param->name.ref.index];
        *slot = jinja_missing();
        if (i < args->n_pos)
            *slot = args->pos[i];
        else
            take_named(args, param->name.name.s, param->name.name.len, slot);
    }
    if (f->uses_caller) {
        static const char hint[] = "No caller defined";
        jinja_value caller;
        if (!take_named(args, "caller", 6, &caller) || caller.kind == JINJA_NONE)
            caller = jinja_undefined_hint(hint, sizeof hint - 1);
        frame->slots[f->caller_slot] = caller;
    }
    if (f->uses_kwargs) {
        jinja_value kwargs;
        if (!jinja_dict_make(run, JINJA_DICT, args->n_named, &kwargs)) return false;
        for (uint32_t i = 0; i < args->n_named; i++)
            if (!jinja_dict_append(run, kwargs.dict, args->named[i].key, args->named[i].value)) return false;
        frame->slots[f->kwargs_slot] = kwargs;
    } else if (args->n_named > 0) {
        jinja_value name = args->named[0].key;
        char what[128];
        snprintf(what, sizeof what, "takes no keyword argument '%.*s'", name.len < 64 ? (int)name.len : 64, name.s);
        return fail_macro(run, macro, what);
    }
    if (f->uses_varargs) {
        uint32_t extra = args->n_pos > n ? args->n_pos - n : 0;
        jinja_value *varargs = &frame->slots[f->varargs_slot];
        if (!jinja_list_make(run, JINJA_TUPLE, extra, varargs)) return false;
        if (extra > 0) memcpy(varargs->list->items, args->pos + n, extra * sizeof *args->pos);
    } else if (args->n_pos > n) {
        char what[64];
        snprintf(what, sizeof what, "takes not more than %u argument(s)", n);
        return fail_macro(run, macro, what);
    }
    return true;
}

// Parameters without an argument get their default, in order: a default may use the parameters before it.
static bool set_defaults(jinja_run *run, jinja_frame *frame, const jinja_function_body *f) {
    uint32_t n = f->params.names.n, first_default = n - f->params.defaults.n;
    for (uint32_t i = 0; i < n; i++) {
        const jinja_node *param = f->params.names.items[i];
        jinja_value *slot = &frame->slots[param->name.ref.index];
        if (slot->kind != JINJA_MISSING) continue;
        if (i >= first_default) {
            if (!jinja_eval(run, frame, f->params.defaults.items[i - first_default], slot)) return false;
            continue;
        }
        jinja_text hint;
        jinja_value text;
        jinja_text_init(&hint, run);
        jinja_text_add(&hint, "parameter '", 11, JINJA_TEMPLATE);
        jinja_text_add(&hint, param->name.name.s, param->name.name.len, JINJA_TEMPLATE);
        jinja_text_add(&hint, "' was not provided", 18, JINJA_TEMPLATE);
        if (!jinja_text_finish(&hint, &text)) return false;
        *slot = jinja_undefined_hint(text.s, text.len);
    }
    return true;
}

static bool call_macro(jinja_run *run, const jinja_macro *macro, const jinja_args *given, jinja_value *out) {
    const jinja_function_body *f = macro->node->macro.function;
    jinja_frame *frame = jinja_frame_make(run, macro->frame, f->n_slots);
    jinja_args args = *given;
    if (frame == NULL || (args.named = jinja_alloc(run, args.n_named, sizeof *args.named)) == NULL) return false;
    if (args.n_named != 0) memcpy(args.named, given->named, args.n_named * sizeof *args.named);
    if (!bind_params(run, frame, macro, f, &args)) return false;
    jinja_enter_scope(run, frame, &f->scope);
    uint32_t at = run->at;
    bool ok = set_defaults(run, frame, f) && jinja_capture(run, frame, &f->body, out);
    if (ok) run->at = at;
    return ok;
}

// ---- calls

bool jinja_call(jinja_run *run, jinja_value callee, const jinja_args *args, jinja_value *out) {
    if (!jinja_spend(run, 1)) return false;
    switch ((jinja_kind)callee.kind) {
    case JINJA_MACRO:
        return call_macro(run, callee.macro, args, out);
    case JINJA_METHOD:
        return callee.method->builtin->call(run, callee.method->self, args, out);
    case JINJA_FUNCTION:
        return callee.function->builtin.call(run, jinja_missing(), args, out);
    case JINJA_LOOP:
        if (args->n_pos != 1 || args->n_named != 0) return jinja_fail(run, "loop() takes the items to go through");
        return jinja_loop_call(run, callee.loop, args->pos[0], out);
    case JINJA_JOINER:
        *out = callee.joiner->is_used ? callee.joiner->separator : JINJA_LITERAL("");
        callee.joiner->is_used = true;
        return true;
    case JINJA_UNDEFINED:
        return jinja_fail_undefined(run, callee);
    default:
        return jinja_fail(run, "'%s' object is not callable", jinja_type_name(callee));
    }
}

// object.method(...) without making a value of the method. A key of a dictionary never hides a method.
static bool eval_method_call(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out,
                             bool *is_done) {
    const jinja_node *callee = node->call.callee;
    jinja_value self;
    arg_space space;
    if (!jinja_eval(run, frame, callee->attr.object, &self)) return false;
    const jinja_builtin *method = jinja_find_method(self, callee->attr.name.s, callee->attr.name.len);
    *is_done = method != NULL;
    if (method == NULL) {
        run->at = callee->at;
        return jinja_get_attr(run, self, callee->attr.name.s, callee->attr.name.len, out);
    }
    if (!eval_args(run, frame, node->call.args, NULL, &space)) return false;
    run->at = callee->at;
    return jinja_spend(run, 1) && method->call(run, self, &space.args, out);
}

bool jinja_eval_call(jinja_run *run, jinja_frame *frame, const jinja_node *node, const jinja_value *caller,
                     jinja_value *out) {
    jinja_value callee;
    if (node->call.callee->type == JINJA_N_ATTR && caller == NULL) {
        bool is_done;
        if (!eval_method_call(run, frame, node, &callee, &is_done)) return false;
        if (is_done) {
            *out = callee;
            return true;
        }
    } else if (!jinja_eval(run, frame, node->call.callee, &callee)) {
        return false;
    }
    arg_space space;
    if (!eval_args(run, frame, node->call.args, caller, &space)) return false;
    run->at = node->at;
    return jinja_call(run, callee, &space.args, out);
}

bool jinja_eval_filter_or_test(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    jinja_value self;
    arg_space space;
    if (!jinja_eval(run, frame, node->call.value, &self) || !eval_args(run, frame, node->call.args, NULL, &space))
        return false;
    run->at = node->at;
    const jinja_builtin *function = node->call.function;
    if (function == NULL)
        return jinja_fail(run, "No %s named '%.*s' found", node->type == JINJA_N_FILTER ? "filter" : "test",
                          jinja_shown(node->call.name.len), node->call.name.s);
    return function->call(run, self, &space.args, out);
}
