// Statements.
#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"
#include "tokenizer_svc/jinja/template.h"

// How a list of statements ended.
typedef enum outcome {
    FAILED,
    DONE,
    BREAK,
    CONTINUE,
} outcome;

static outcome exec_body(jinja_run *run, jinja_frame *frame, const jinja_nodes *body);

void jinja_enter_scope(jinja_run *run, jinja_frame *frame, const jinja_scope *scope) {
    for (uint32_t i = 0; i < scope->n; i++) {
        const jinja_load *load = &scope->loads[i];
        frame->slots[load->slot] =
            load->kind == JINJA_LOAD_COPY ? jinja_load_ref(run, frame, load->from) : jinja_missing();
    }
}

// ---- output

static bool output(jinja_run *run, jinja_value v) {
    if (!jinja_add_str(run->out, v)) return false;
    if (run->out->len <= run->limits.max_output_bytes) return true;
    return jinja_fail_code(run, RELAY_RESOURCE_EXHAUSTED, "makes more than %zu bytes of text",
                           run->limits.max_output_bytes);
}

static bool exec_output(jinja_run *run, jinja_frame *frame, const jinja_node *node) {
    for (uint32_t i = 0; i < node->items.n; i++) {
        const jinja_node *item = node->items.items[i];
        jinja_value v;
        if (!jinja_eval(run, frame, item, &v)) return false;
        run->at = item->at;
        if (!output(run, v) || !jinja_spend(run, 1)) return false;
    }
    return true;
}

static outcome capture(jinja_run *run, jinja_frame *frame, const jinja_nodes *body, jinja_value *out) {
    jinja_text text, *outer = run->out;
    jinja_text_init(&text, run);
    run->out = &text;
    outcome how = exec_body(run, frame, body);
    run->out = outer;
    if (how == FAILED || !jinja_text_finish(&text, out)) return FAILED;
    return how;
}

bool jinja_capture(jinja_run *run, jinja_frame *frame, const jinja_nodes *body, jinja_value *out) {
    return capture(run, frame, body, out) != FAILED;
}

// ---- assignment

static bool assign(jinja_run *run, jinja_frame *frame, const jinja_node *target, jinja_value v);

static bool assign_tuple(jinja_run *run, jinja_frame *frame, const jinja_node *target, jinja_value v) {
    run->at = target->at;
    if (!jinja_is_iterable(v)) return jinja_fail(run, "cannot unpack non-iterable %s object", jinja_type_name(v));
    jinja_value *items;
    uint32_t n, want = target->items.n;
    if (!jinja_items(run, v, &items, &n)) return false;
    if (n > want) return jinja_fail(run, "too many values to unpack (expected %u)", want);
    if (n < want) return jinja_fail(run, "not enough values to unpack (expected %u, got %u)", want, n);
    for (uint32_t i = 0; i < n; i++)
        if (!assign(run, frame, target->items.items[i], items[i])) return false;
    return true;
}

static bool assign(jinja_run *run, jinja_frame *frame, const jinja_node *target, jinja_value v) {
    if (target->type == JINJA_N_NAME) {
        *jinja_slot(frame, target->name.ref) = v;
        return true;
    }
    if (target->type == JINJA_N_TUPLE) return assign_tuple(run, frame, target, v);
    jinja_value ns;
    if (!jinja_eval(run, frame, target->attr.object, &ns)) return false;
    run->at = target->at;
    if (ns.kind != JINJA_NAMESPACE) return jinja_fail(run, "cannot assign attribute on non-namespace object");
    return jinja_dict_set(run, ns.dict, jinja_str(target->attr.name.s, target->attr.name.len, JINJA_TEMPLATE), v);
}

// ---- loops

bool jinja_loop_fetch(jinja_run *run, jinja_loop *loop, uint32_t n) {
    const struct jinja_for *statement = loop->node->loop;
    while (loop->n < n && loop->n_rest > 0) {
        jinja_value item = *loop->rest++, test;
        loop->n_rest--;
        jinja_enter_scope(run, loop->frame, &statement->test_scope);
        if (!assign(run, loop->frame, statement->test_target, item) ||
            !jinja_eval(run, loop->frame, statement->test, &test) || !jinja_spend(run, 1))
            return false;
        if (jinja_is_true(test)) loop->items[loop->n++] = item;
    }
    return true;
}

static bool begin_loop(jinja_run *run, jinja_loop *loop, jinja_value iterable) {
    jinja_value *items;
    uint32_t n;
    if (!jinja_items(run, iterable, &items, &n)) return false;
    if (loop->node->loop->test == NULL) {
        loop->items = items;
        loop->n = n;
        return true;
    }
    loop->rest = items;
    loop->n_rest = n;
    loop->items = jinja_alloc(run, n, sizeof *items);
    return loop->items != NULL;
}

// The body once for each item; `frame` is the body's. *any_ended: some body came to its end, without break or continue.
static outcome exec_items(jinja_run *run, jinja_frame *frame, jinja_loop *loop, bool *any_ended) {
    const struct jinja_for *statement = loop->node->loop;
    *any_ended = false;
    for (uint32_t i = 0;; i++) {
        if (!jinja_loop_fetch(run, loop, i + 1)) return FAILED;
        if (i >= loop->n) return DONE;
        loop->index0 = i;
        if (!jinja_spend(run, 1) || !assign(run, frame, statement->target, loop->items[i])) return FAILED;
        if (statement->uses_loop) frame->slots[statement->loop_slot] = (jinja_value){.kind = JINJA_LOOP, .loop = loop};
        jinja_enter_scope(run, frame, &statement->scope);
        outcome how = exec_body(run, frame, &statement->body);
        if (how == FAILED) return FAILED;
        if (how == BREAK) return DONE;
        if (how == DONE) *any_ended = true;
    }
}

// One run of a for statement; `frame` is the one around it.
static outcome exec_loop(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value iterable,
                         uint32_t depth0) {
    const struct jinja_for *statement = node->loop;
    jinja_loop *loop = jinja_alloc(run, 1, sizeof *loop);
    if (loop == NULL) return FAILED;
    *loop = (jinja_loop){.node = node, .frame = frame, .depth0 = depth0};
    run->at = statement->iter->at;
    if (!begin_loop(run, loop, iterable)) return FAILED;
    jinja_frame *body_frame = statement->is_recursive ? jinja_frame_make(run, frame, statement->n_slots) : frame;
    bool any_ended;
    if (body_frame == NULL || exec_items(run, body_frame, loop, &any_ended) == FAILED) return FAILED;
    if (any_ended || statement->otherwise.n == 0) return DONE; // jinja2's rule, which is not Python's
    jinja_enter_scope(run, frame, &statement->otherwise_scope);
    return exec_body(run, frame, &statement->otherwise);
}

bool jinja_loop_call(jinja_run *run, const jinja_loop *loop, jinja_value items, jinja_value *out) {
    if (!loop->node->loop->is_recursive)
        return jinja_fail(run, "The loop must have the 'recursive' marker to be called recursively.");
    jinja_text text, *outer = run->out;
    jinja_text_init(&text, run);
    run->out = &text;
    outcome how = exec_loop(run, loop->frame, loop->node, items, loop->depth0 + 1);
    run->out = outer;
    return how != FAILED && jinja_text_finish(&text, out);
}

static outcome exec_for(jinja_run *run, jinja_frame *frame, const jinja_node *node) {
    jinja_value iterable;
    if (!jinja_eval(run, frame, node->loop->iter, &iterable)) return FAILED;
    return exec_loop(run, frame, node, iterable, 0);
}

// ---- blocks

static outcome exec_if(jinja_run *run, jinja_frame *frame, const jinja_node *node) {
    for (; node != NULL; node = node->branch.otherwise) {
        jinja_value test = jinja_bool(true);
        if (node->branch.test != NULL && !jinja_eval(run, frame, node->branch.test, &test)) return FAILED;
        if (jinja_is_true(test)) return exec_body(run, frame, &node->branch.body);
    }
    return DONE;
}

// The filters of a block around the text that it captured.
static bool filter_captured(jinja_run *run, jinja_frame *frame, const jinja_node *filter, jinja_value *text) {
    if (filter == NULL) return true;
    jinja_value outer = frame->captured;
    frame->captured = *text;
    bool ok = jinja_eval(run, frame, filter, text);
    frame->captured = outer;
    return ok;
}

static outcome exec_capturing_block(jinja_run *run, jinja_frame *frame, const jinja_node *node) {
    jinja_value text;
    jinja_enter_scope(run, frame, node->block.scope);
    outcome how = capture(run, frame, &node->block.body, &text);
    if (how != DONE) return how; // a break out of the block loses its text
    if (!filter_captured(run, frame, node->block.filter, &text)) return FAILED;
    bool ok = node->type == JINJA_N_SET_BLOCK ? assign(run, frame, node->block.target, text) : output(run, text);
    return ok ? DONE : FAILED;
}

static outcome exec_with(jinja_run *run, jinja_frame *frame, const jinja_node *node) {
    jinja_value few[4], *values = few;
    uint32_t n = node->with.values.n;
    if (n > 4 && (values = jinja_alloc(run, n, sizeof *values)) == NULL) return FAILED;
    for (uint32_t i = 0; i < n; i++)
        if (!jinja_eval(run, frame, node->with.values.items[i], &values[i])) return FAILED;
    jinja_enter_scope(run, frame, node->with.scope);
    for (uint32_t i = 0; i < n; i++)
        if (!assign(run, frame, node->with.targets.items[i], values[i])) return FAILED;
    return exec_body(run, frame, &node->with.body);
}

static bool exec_call_block(jinja_run *run, jinja_frame *frame, const jinja_node *node) {
    jinja_value caller, text;
    if (!jinja_macro_make(run, frame, node, &caller) || !jinja_eval_call(run, frame, node->macro.call, &caller, &text))
        return false;
    return output(run, text);
}

static outcome exec(jinja_run *run, jinja_frame *frame, const jinja_node *node) {
    jinja_value v;
    bool ok;
    switch ((jinja_node_type)node->type) {
    case JINJA_N_OUTPUT:
        ok = exec_output(run, frame, node);
        break;
    case JINJA_N_IF:
        return exec_if(run, frame, node);
    case JINJA_N_FOR:
        return exec_for(run, frame, node);
    case JINJA_N_SET:
        ok = jinja_eval(run, frame, node->set.value, &v) && assign(run, frame, node->set.target, v);
        break;
    case JINJA_N_SET_BLOCK:
    case JINJA_N_FILTER_BLOCK:
        return exec_capturing_block(run, frame, node);
    case JINJA_N_GENERATION:
        jinja_enter_scope(run, frame, node->block.scope);
        return exec_body(run, frame, &node->block.body);
    case JINJA_N_MACRO:
        ok = jinja_macro_make(run, frame, node, &v) && assign(run, frame, node->macro.target, v);
        break;
    case JINJA_N_CALL_BLOCK:
        ok = exec_call_block(run, frame, node);
        break;
    case JINJA_N_WITH:
        return exec_with(run, frame, node);
    case JINJA_N_BREAK:
        return BREAK;
    case JINJA_N_CONTINUE:
        return CONTINUE;
    default:
        ok = jinja_fail(run, "'%.*s': a chat template has no loader for other templates", jinja_shown(node->word.len),
                        node->word.s);
    }
    return ok ? DONE : FAILED;
}

static outcome exec_body(jinja_run *run, jinja_frame *frame, const jinja_nodes *body) {
    if (!jinja_enter(run)) return FAILED;
    outcome how = DONE;
    for (uint32_t i = 0; i < body->n && how == DONE; i++) {
        run->at = body->items[i]->at;
        how = jinja_spend(run, 1) ? exec(run, frame, body->items[i]) : FAILED;
    }
    jinja_leave(run);
    return how;
}

// What the template asks the caller and the globals for, once.
static bool load_context(jinja_run *run, const jinja_template *t) {
    run->context_values = jinja_alloc(run, t->n_names, sizeof *run->context_values);
    if (run->context_values == NULL) return false;
    for (uint32_t i = 0; i < t->n_names; i++) {
        jinja_name name = t->names[i];
        jinja_value *found;
        if (!jinja_dict_get_text(run, run->context.dict, name.s, name.len, &found)) return false;
        const jinja_function *function = jinja_find_function(name.s, name.len);
        if (found != NULL)
            run->context_values[i] = *found;
        else if (function != NULL)
            run->context_values[i] = (jinja_value){.kind = JINJA_FUNCTION, .function = function};
    }
    return true;
}

bool jinja_eval_template(jinja_run *run, const jinja_template *t) {
    jinja_frame *frame = load_context(run, t) ? jinja_frame_make(run, NULL, t->n_slots) : NULL;
    if (frame == NULL) return false;
    jinja_enter_scope(run, frame, &t->scope);
    return exec_body(run, frame, &t->body) != FAILED;
}
