// object.name, object[key], object[start:stop:step].
//
// A dot asks for an attribute first and for an item then, brackets the other way round. What Python's objects have as
// attributes are the methods in builtins.h and the few below; names that begin with an underscore are closed by the
// sandbox, and so are methods that change their object.
#include <stdio.h>
#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"

// "dict object": how messages call the owner of a missing attribute.
static const char *object_name(jinja_value v) {
    switch ((jinja_kind)v.kind) {
    case JINJA_NONE:
        return "None";
    case JINJA_BOOL:
        return "bool object";
    case JINJA_INT:
    case JINJA_BIGINT:
        return "int object";
    case JINJA_FLOAT:
        return "float object";
    case JINJA_STR:
        return v.is_markup ? "markupsafe.Markup object" : "str object";
    case JINJA_LIST:
        return "list object";
    case JINJA_TUPLE:
        return "tuple object";
    case JINJA_DICT:
        return "dict object";
    case JINJA_DICT_VIEW:
        return "dict view object";
    case JINJA_RANGE:
        return "range object";
    case JINJA_GENERATOR:
        return "generator object";
    case JINJA_NAMESPACE:
        return "jinja2.utils.Namespace object";
    case JINJA_LOOP:
        return "jinja2.runtime.LoopContext object";
    case JINJA_MACRO:
        return "jinja2.runtime.Macro object";
    case JINJA_CYCLER:
        return "jinja2.utils.Cycler object";
    case JINJA_JOINER:
        return "jinja2.utils.Joiner object";
    default:
        return "function object";
    }
}

static jinja_value undefined(jinja_value object, jinja_undefined_reason reason, const char *name, uint32_t len) {
    return (jinja_value){
        .kind = JINJA_UNDEFINED, .reason = (uint8_t)reason, .s = name, .len = len, .type_name = object_name(object)};
}

static bool is(const char *name, uint32_t len, const char *word) {
    return strlen(word) == len && memcmp(name, word, len) == 0;
}

static bool loop_attr(jinja_run *run, jinja_loop *loop, const char *name, uint32_t len, jinja_value *out) {
    if (is(name, len, "index")) {
        *out = jinja_int((int64_t)loop->index0 + 1);
    } else if (is(name, len, "index0")) {
        *out = jinja_int(loop->index0);
    } else if (is(name, len, "first")) {
        *out = jinja_bool(loop->index0 == 0);
    } else if (is(name, len, "last")) {
        if (!jinja_loop_fetch(run, loop, loop->index0 + 2)) return false;
        *out = jinja_bool(loop->n < loop->index0 + 2);
    } else if (is(name, len, "length") || is(name, len, "revindex") || is(name, len, "revindex0")) {
        if (!jinja_loop_fetch(run, loop, UINT32_MAX)) return false;
        int64_t minus = is(name, len, "length") ? 0 : is(name, len, "revindex") ? loop->index0 : loop->index0 + 1;
        *out = jinja_int(loop->n - minus);
    } else if (is(name, len, "previtem")) {
        static const char hint[] = "there is no previous item";
        *out = loop->index0 > 0 ? loop->items[loop->index0 - 1] : jinja_undefined_hint(hint, sizeof hint - 1);
    } else if (is(name, len, "nextitem")) {
        static const char hint[] = "there is no next item";
        if (!jinja_loop_fetch(run, loop, loop->index0 + 2)) return false;
        bool has_next = loop->n >= loop->index0 + 2;
        *out = has_next ? loop->items[loop->index0 + 1] : jinja_undefined_hint(hint, sizeof hint - 1);
    } else if (is(name, len, "depth")) {
        *out = jinja_int((int64_t)loop->depth0 + 1);
    } else if (is(name, len, "depth0")) {
        *out = jinja_int(loop->depth0);
    }
    return true;
}

// The attribute that is no method; *out stays MISSING where there is none.
static bool own_attr(jinja_run *run, jinja_value object, const char *name, uint32_t len, jinja_value *out) {
    jinja_value *found;
    switch ((jinja_kind)object.kind) {
    case JINJA_LOOP:
        return loop_attr(run, object.loop, name, len, out);
    case JINJA_NAMESPACE:
        if (!jinja_dict_get_text(run, object.dict, name, len, &found)) return false;
        if (found != NULL) *out = *found;
        return true;
    case JINJA_TUPLE:
        if (object.list->is_group && is(name, len, "grouper")) *out = object.list->items[0];
        if (object.list->is_group && is(name, len, "list")) *out = object.list->items[1];
        return true;
    case JINJA_RANGE:
        if (is(name, len, "start")) *out = jinja_int(object.range->start);
        if (is(name, len, "step")) *out = jinja_int(object.range->step);
        return true;
    case JINJA_CYCLER:
        if (is(name, len, "current")) *out = object.cycler->items[object.cycler->pos];
        return true;
    case JINJA_MACRO:
        if (!is(name, len, "name")) return true;
        *out = object.macro->name == NULL ? jinja_none()
                                          : jinja_str(object.macro->name, object.macro->name_len, JINJA_TEMPLATE);
        return true;
    default:
        return true;
    }
}

bool jinja_find_attr(jinja_run *run, jinja_value object, const char *name, uint32_t len, jinja_value *out) {
    *out = jinja_missing();
    if (!own_attr(run, object, name, len, out)) return false;
    bool is_private = len > 0 && name[0] == '_' && (out->kind != JINJA_MISSING || (len > 4 && name[1] == '_'));
    if (is_private || jinja_is_mutator(object, name, len)) {
        *out = undefined(object, JINJA_UNDEFINED_UNSAFE, name, len);
        return true;
    }
    if (out->kind != JINJA_MISSING) return true;
    const jinja_builtin *builtin = jinja_find_method(object, name, len);
    if (builtin == NULL) return true;
    jinja_method *method = jinja_alloc(run, 1, sizeof *method);
    if (method == NULL) return false;
    *method = (jinja_method){object, builtin};
    *out = (jinja_value){.kind = JINJA_METHOD, .method = method};
    return true;
}

bool jinja_get_attr(jinja_run *run, jinja_value object, const char *name, uint32_t len, jinja_value *out) {
    if (object.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, object);
    if (!jinja_find_attr(run, object, name, len, out)) return false;
    if (out->kind != JINJA_MISSING) return true;
    if (object.kind == JINJA_DICT) {
        jinja_value *found;
        if (!jinja_dict_get_text(run, object.dict, name, len, &found)) return false;
        if (found != NULL) {
            *out = *found;
            return true;
        }
    }
    *out = undefined(object, JINJA_UNDEFINED_ATTR, name, len);
    return true;
}

// ---- items

// Python's rule for an index: from the end if negative. False: out of range.
static bool find_index(int64_t index, int64_t n, int64_t *at) {
    *at = index < 0 ? index + n : index;
    return *at >= 0 && *at < n;
}

static bool char_at(jinja_run *run, jinja_value str, int64_t index, jinja_value *out) {
    int64_t at;
    if (!jinja_spend_bytes(run, str.len)) return false;
    if (jinja_str_is_ascii(str)) {
        if (find_index(index, str.len, &at)) *out = jinja_str_part(str, (size_t)at, 1);
        return true;
    }
    if (!find_index(index, (int64_t)jinja_str_chars(str), &at)) return true;
    size_t begin = jinja_str_offset(str, (size_t)at);
    *out = jinja_str_part(str, begin, jinja_str_offset(jinja_str_part(str, begin, str.len - begin), 1));
    return true;
}

static bool item_at(jinja_run *run, jinja_value object, int64_t index, jinja_value *out) {
    int64_t at;
    switch ((jinja_kind)object.kind) {
    case JINJA_STR:
        return char_at(run, object, index, out);
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (find_index(index, object.list->n, &at)) *out = object.list->items[at];
        return true;
    case JINJA_RANGE:
        if (find_index(index, object.range->n, &at)) *out = jinja_int(object.range->start + at * object.range->step);
        return true;
    default:
        return true;
    }
}

static bool is_hashable(jinja_value key) {
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT || key.kind == JINJA_DICT_VIEW) return false;
    bool ok = true;
    for (uint32_t i = 0; key.kind == JINJA_TUPLE && ok && i < key.list->n; i++)
        ok = key.list->items[i].kind != JINJA_TUPLE && is_hashable(key.list->items[i]);
    return ok;
}

bool jinja_get_item(jinja_run *run, jinja_value object, jinja_value key, jinja_value *out) {
    if (object.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, object);
    *out = jinja_missing();
    if (object.kind == JINJA_DICT) {
        jinja_value *found = NULL;
        if (is_hashable(key) && !jinja_dict_get(run, object.dict, key, &found)) return false;
        if (found != NULL) *out = *found;
    } else if (jinja_is_integer(key) && !item_at(run, object, jinja_as_int(key), out)) {
        return false;
    }
    if (out->kind != JINJA_MISSING) return true;
    if (key.kind == JINJA_STR) {
        if (!jinja_find_attr(run, object, key.s, key.len, out)) return false;
        if (out->kind == JINJA_MISSING) *out = undefined(object, JINJA_UNDEFINED_ATTR, key.s, key.len);
        return true;
    }
    jinja_text text;
    jinja_value name;
    jinja_text_init(&text, run);
    if (!jinja_add_repr(&text, key) || !jinja_text_finish(&text, &name)) return false;
    *out = undefined(object, JINJA_UNDEFINED_ELEMENT, name.s, name.len);
    return true;
}

// ---- slices

static bool slice_bound(jinja_run *run, jinja_value v, int64_t otherwise, int64_t low, int64_t high, int64_t n,
                        int64_t *out) {
    *out = otherwise;
    if (v.kind == JINJA_NONE) return true;
    if (v.kind == JINJA_UNDEFINED || !jinja_is_integer(v))
        return jinja_fail(run, "slice indices must be integers or None or have an __index__ method");
    int64_t i = jinja_as_int(v);
    if (i < 0) i += n; // n is below 2^33: no overflow
    *out = i < low ? low : i > high ? high : i;
    return true;
}

typedef struct span {
    int64_t start, step, n; // n items
} span;

static bool make_span(jinja_run *run, jinja_value start, jinja_value stop, jinja_value step, int64_t n, span *out) {
    int64_t begin, end;
    out->step = 1;
    if (step.kind != JINJA_NONE) {
        if (!jinja_is_integer(step))
            return jinja_fail(run, "slice indices must be integers or None or have an __index__ method");
        out->step = jinja_as_int(step);
        if (out->step == 0) return jinja_fail(run, "slice step cannot be zero");
        if (out->step > UINT32_MAX) out->step = UINT32_MAX;
        if (out->step < -(int64_t)UINT32_MAX) out->step = -(int64_t)UINT32_MAX;
    }
    if (out->step > 0) {
        if (!slice_bound(run, start, 0, 0, n, n, &begin) || !slice_bound(run, stop, n, 0, n, n, &end)) return false;
        out->n = end > begin ? (end - begin + out->step - 1) / out->step : 0;
    } else {
        if (!slice_bound(run, start, n - 1, -1, n - 1, n, &begin) || !slice_bound(run, stop, -1, -1, n - 1, n, &end))
            return false;
        out->n = begin > end ? (begin - end - out->step - 1) / -out->step : 0;
    }
    out->start = begin;
    return jinja_spend(run, (uint64_t)out->n / 16 + 1);
}

static bool slice_str(jinja_run *run, jinja_value str, const span *s, bool is_ascii, jinja_value *out) {
    if (!jinja_spend_bytes(run, str.len)) return false;
    if (s->step == 1) {
        size_t begin = is_ascii ? (size_t)s->start : jinja_str_offset(str, (size_t)s->start);
        jinja_value rest = jinja_str_part(str, begin, str.len - begin);
        *out = jinja_str_part(rest, 0, is_ascii ? (size_t)s->n : jinja_str_offset(rest, (size_t)s->n));
        return true;
    }
    jinja_value *chars = NULL;
    uint32_t n_chars;
    jinja_text t;
    jinja_text_init(&t, run);
    if (!is_ascii && !jinja_items(run, str, &chars, &n_chars)) return false;
    for (int64_t i = 0, at = s->start; i < s->n && !t.is_failed; i++, at += s->step) {
        if (is_ascii)
            jinja_text_add_part(&t, str, (size_t)at, 1);
        else
            jinja_text_add_value(&t, chars[at]);
    }
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = str.is_markup;
    return true;
}

bool jinja_get_slice(jinja_run *run, jinja_value object, jinja_value start, jinja_value stop, jinja_value step,
                     jinja_value *out) {
    span s;
    bool is_ascii;
    switch ((jinja_kind)object.kind) {
    case JINJA_UNDEFINED:
        return jinja_fail_undefined(run, object);
    case JINJA_STR:
        is_ascii = jinja_str_is_ascii(object);
        return make_span(run, start, stop, step, is_ascii ? object.len : (int64_t)jinja_str_chars(object), &s) &&
               slice_str(run, object, &s, is_ascii, out);
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (!make_span(run, start, stop, step, object.list->n, &s) ||
            !jinja_list_make(run, object.kind, (uint32_t)s.n, out))
            return false;
        for (int64_t i = 0; i < s.n; i++)
            out->list->items[i] = object.list->items[s.start + i * s.step];
        out->origin = object.origin;
        return true;
    case JINJA_RANGE: {
        jinja_range *range = jinja_alloc(run, 1, sizeof *range);
        if (range == NULL || !make_span(run, start, stop, step, object.range->n, &s)) return false;
        *range = (jinja_range){object.range->start + s.start * object.range->step, s.step * object.range->step, s.n};
        *out = (jinja_value){.kind = JINJA_RANGE, .range = range};
        return true;
    }
    case JINJA_DICT:
        return jinja_fail(run, "unhashable type: 'slice'");
    default:
        return jinja_fail(run, "'%s' object is not subscriptable", jinja_type_name(object));
    }
}
