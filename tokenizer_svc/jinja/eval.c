#include "tokenizer_svc/jinja/eval.h"

#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/compare.h"
#include "tokenizer_svc/jinja/template.h"

jinja_frame *jinja_frame_make(jinja_run *run, jinja_frame *outer, uint32_t n_slots) {
    jinja_frame *frame = jinja_alloc(run, 1, sizeof *frame + n_slots * sizeof frame->slots[0]);
    if (frame != NULL) frame->outer = outer;
    return frame;
}

jinja_value *jinja_slot(jinja_frame *frame, jinja_ref ref) {
    for (uint16_t i = 0; i < ref.hops; i++)
        frame = frame->outer;
    return &frame->slots[ref.index];
}

jinja_value jinja_load_ref(const jinja_run *run, jinja_frame *frame, jinja_ref ref) {
    return ref.place == JINJA_CONTEXT ? run->context_values[ref.index] : *jinja_slot(frame, ref);
}

static jinja_value load_name(const jinja_run *run, jinja_frame *frame, const jinja_node *node) {
    jinja_value v = jinja_load_ref(run, frame, node->name.ref);
    if (v.kind != JINJA_MISSING) return v;
    return (jinja_value){
        .kind = JINJA_UNDEFINED, .reason = JINJA_UNDEFINED_NAME, .s = node->name.name.s, .len = node->name.name.len};
}

static bool eval_list(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    jinja_kind kind = node->type == JINJA_N_LIST ? JINJA_LIST : JINJA_TUPLE;
    if (!jinja_list_make(run, kind, node->items.n, out)) return false;
    for (uint32_t i = 0; i < node->items.n; i++)
        if (!jinja_eval(run, frame, node->items.items[i], &out->list->items[i])) return false;
    return true;
}

static bool eval_dict(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    if (!jinja_dict_make(run, JINJA_DICT, node->items.n / 2, out)) return false;
    for (uint32_t i = 0; i + 1 < node->items.n; i += 2) {
        jinja_value key, value;
        if (!jinja_eval(run, frame, node->items.items[i], &key) ||
            !jinja_eval(run, frame, node->items.items[i + 1], &value))
            return false;
        run->at = node->items.items[i]->at;
        if (!jinja_dict_set(run, out->dict, key, value)) return false;
    }
    return true;
}

static bool eval_optional(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    *out = jinja_none();
    return node == NULL || jinja_eval(run, frame, node, out);
}

static bool eval_item(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    jinja_value object, key, stop, step;
    const jinja_node *index = node->item.index;
    if (!jinja_eval(run, frame, node->item.object, &object)) return false;
    if (index->type != JINJA_N_SLICE) {
        if (!jinja_eval(run, frame, index, &key)) return false;
        run->at = node->at;
        return jinja_get_item(run, object, key, out);
    }
    if (!eval_optional(run, frame, index->slice.start, &key) || !eval_optional(run, frame, index->slice.stop, &stop) ||
        !eval_optional(run, frame, index->slice.step, &step))
        return false;
    run->at = node->at;
    return jinja_get_slice(run, object, key, stop, step, out);
}

// The parts of a ~ b ~ c as text.
static bool eval_concat(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    enum { FEW = 6 };
    jinja_value few[FEW], *parts = few;
    if (node->items.n > FEW && (parts = jinja_alloc(run, node->items.n, sizeof *parts)) == NULL) return false;
    for (uint32_t i = 0; i < node->items.n; i++) {
        jinja_value v;
        if (!jinja_eval(run, frame, node->items.items[i], &v) || !jinja_to_str(run, v, &parts[i])) return false;
    }
    run->at = node->at;
    return jinja_str_join(run, parts, node->items.n, out);
}

static bool compare(jinja_run *run, jinja_operator op, jinja_value a, jinja_value b, bool *result) {
    switch (op) {
    case JINJA_OP_EQ:
        return jinja_equal(run, a, b, result);
    case JINJA_OP_NE:
        if (!jinja_equal(run, a, b, result)) return false;
        *result = !*result;
        return true;
    case JINJA_OP_LT:
        return jinja_less(run, a, b, "<", result);
    case JINJA_OP_LE:
        return jinja_less_equal(run, a, b, "<=", result);
    case JINJA_OP_GT:
        return jinja_less(run, b, a, ">", result);
    case JINJA_OP_GE:
        return jinja_less_equal(run, b, a, ">=", result);
    case JINJA_OP_IN:
        return jinja_contains(run, b, a, result);
    default:
        if (!jinja_contains(run, b, a, result)) return false;
        *result = !*result;
        return true;
    }
}

static bool eval_compare(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    jinja_value left, right;
    bool result = true;
    if (!jinja_eval(run, frame, node->compare.first, &left)) return false;
    for (uint32_t i = 0; i < node->compare.rest.n && result; i++) {
        if (!jinja_eval(run, frame, node->compare.rest.items[i], &right)) return false;
        run->at = node->at;
        if (!compare(run, node->compare.ops[i], left, right, &result)) return false;
        left = right;
    }
    *out = jinja_bool(result);
    return true;
}

static bool eval_condition(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    static const char hint[] = "the inline if-expression evaluated to false and no else section was defined";
    jinja_value test;
    if (!jinja_eval(run, frame, node->cond.test, &test)) return false;
    if (jinja_is_true(test)) return jinja_eval(run, frame, node->cond.yes, out);
    if (node->cond.no != NULL) return jinja_eval(run, frame, node->cond.no, out);
    *out = jinja_undefined_hint(hint, sizeof hint - 1);
    return true;
}

static bool eval_inner(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    jinja_value v;
    switch ((jinja_node_type)node->type) {
    case JINJA_N_LIST:
    case JINJA_N_TUPLE:
        return eval_list(run, frame, node, out);
    case JINJA_N_DICT:
        return eval_dict(run, frame, node, out);
    case JINJA_N_ATTR:
        if (!jinja_eval(run, frame, node->attr.object, &v)) return false;
        run->at = node->at;
        return jinja_get_attr(run, v, node->attr.name.s, node->attr.name.len, out);
    case JINJA_N_ITEM:
        return eval_item(run, frame, node, out);
    case JINJA_N_CALL:
        return jinja_eval_call(run, frame, node, NULL, out);
    case JINJA_N_FILTER:
    case JINJA_N_TEST:
        return jinja_eval_filter_or_test(run, frame, node, out);
    case JINJA_N_UNARY:
        if (!jinja_eval(run, frame, node->binary.left, &v)) return false;
        run->at = node->at;
        return jinja_unary(run, node->op, v, out);
    case JINJA_N_BINARY: {
        jinja_value right;
        if (!jinja_eval(run, frame, node->binary.left, &v) || !jinja_eval(run, frame, node->binary.right, &right))
            return false;
        run->at = node->at;
        return jinja_binary(run, node->op, v, right, out);
    }
    case JINJA_N_COMPARE:
        return eval_compare(run, frame, node, out);
    case JINJA_N_CONCAT:
        return eval_concat(run, frame, node, out);
    case JINJA_N_AND:
    case JINJA_N_OR:
        if (!jinja_eval(run, frame, node->binary.left, out)) return false;
        if (jinja_is_true(*out) != (node->type == JINJA_N_AND)) return true;
        return jinja_eval(run, frame, node->binary.right, out);
    case JINJA_N_NOT:
        if (!jinja_eval(run, frame, node->binary.left, &v)) return false;
        *out = jinja_bool(!jinja_is_true(v));
        return true;
    case JINJA_N_COND:
        return eval_condition(run, frame, node, out);
    default: // a slice outside brackets
        run->at = node->at;
        return jinja_fail(run, "a slice where a value must be");
    }
}

bool jinja_eval(jinja_run *run, jinja_frame *frame, const jinja_node *node, jinja_value *out) {
    if (node->type == JINJA_N_CONST) {
        *out = node->constant;
        return true;
    }
    if (node->type == JINJA_N_NAME) {
        *out = load_name(run, frame, node);
        return true;
    }
    if (node->type == JINJA_N_CAPTURED) {
        *out = frame->captured;
        return true;
    }
    run->at = node->at;
    if (!jinja_spend(run, 1) || !jinja_enter(run)) return false;
    bool ok = eval_inner(run, frame, node, out);
    jinja_leave(run);
    return ok;
}
