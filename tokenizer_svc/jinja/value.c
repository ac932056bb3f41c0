#include "tokenizer_svc/jinja/value.h"

#include <string.h>

#include "tokenizer_svc/jinja/run.h"

bool jinja_is_true(jinja_value v) {
    switch ((jinja_kind)v.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.b;
    case JINJA_INT:
        return v.i != 0;
    case JINJA_FLOAT:
        return v.f != 0;
    case JINJA_STR:
        return v.len != 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.list->n != 0;
    case JINJA_DICT:
        return v.dict->n != 0;
    case JINJA_DICT_VIEW:
        return v.view->dict->n != 0;
    case JINJA_RANGE:
        return v.range->n != 0;
    case JINJA_LOOP: // it has a length, which counts
        return v.loop->n != 0;
    case JINJA_BIGINT:
    case JINJA_GENERATOR:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_FUNCTION:
    case JINJA_CYCLER:
    case JINJA_JOINER:
        break;
    }
    return true;
}

const char *jinja_type_name(jinja_value v) {
    switch ((jinja_kind)v.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
        return "Undefined";
    case JINJA_NONE:
        return "NoneType";
    case JINJA_BOOL:
        return "bool";
    case JINJA_INT:
    case JINJA_BIGINT:
        return "int";
    case JINJA_FLOAT:
        return "float";
    case JINJA_STR:
        return v.is_markup ? "Markup" : "str";
    case JINJA_LIST:
        return "list";
    case JINJA_TUPLE:
        return v.list->is_group ? "_GroupTuple" : "tuple";
    case JINJA_DICT:
        return "dict";
    case JINJA_DICT_VIEW:
        return v.view->of == JINJA_KEYS ? "dict_keys" : v.view->of == JINJA_VALUES ? "dict_values" : "dict_items";
    case JINJA_RANGE:
        return "range";
    case JINJA_GENERATOR:
        return v.generator->type_name;
    case JINJA_NAMESPACE:
        return "Namespace";
    case JINJA_LOOP:
        return "LoopContext";
    case JINJA_MACRO:
        return "Macro";
    case JINJA_METHOD:
        return "builtin_function_or_method";
    case JINJA_FUNCTION:
        return "function";
    case JINJA_CYCLER:
        return "Cycler";
    case JINJA_JOINER:
        return "Joiner";
    }
    return "object";
}

bool jinja_list_wrap(jinja_run *run, jinja_kind kind, jinja_value *items, uint32_t n, jinja_value *out) {
    jinja_list *list = jinja_alloc(run, 1, sizeof *list);
    if (list == NULL) return false;
    list->items = items;
    list->n = n;
    *out = (jinja_value){.kind = (uint8_t)kind, .list = list};
    return true;
}

bool jinja_list_make(jinja_run *run, jinja_kind kind, uint32_t n, jinja_value *out) {
    jinja_value *items = jinja_alloc(run, n, sizeof *items);
    return items != NULL && jinja_list_wrap(run, kind, items, n, out);
}

bool jinja_generator_make(jinja_run *run, const char *type_name, jinja_value *items, uint32_t n, jinja_value *out) {
    jinja_generator *g = jinja_alloc(run, 1, sizeof *g);
    if (g == NULL) return false;
    *g = (jinja_generator){.type_name = type_name, .items = items, .n = n};
    *out = (jinja_value){.kind = JINJA_GENERATOR, .generator = g};
    return true;
}
