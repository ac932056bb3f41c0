// Methods of dictionaries, lists, loops and cyclers.
#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/compare.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"

// ---- dictionaries

static bool get(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value *found;
    if (!jinja_only_positions(run, args, "get", 1, 2) || !jinja_dict_get(run, self.dict, args->pos[0], &found))
        return false;
    *out = found != NULL ? *found : args->n_pos > 1 ? args->pos[1] : jinja_none();
    return true;
}

static bool view(jinja_run *run, jinja_value self, const jinja_args *args, jinja_view_of of, jinja_value *out) {
    jinja_dict_view *v = jinja_alloc(run, 1, sizeof *v);
    if (v == NULL || !jinja_only_positions(run, args, "items, keys, values", 0, 0)) return false;
    *v = (jinja_dict_view){self.dict, of};
    *out = (jinja_value){.kind = JINJA_DICT_VIEW, .origin = self.origin, .view = v};
    return true;
}

static bool keys(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return view(run, self, args, JINJA_KEYS, out);
}

static bool values(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return view(run, self, args, JINJA_VALUES, out);
}

static bool items(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return view(run, self, args, JINJA_ITEMS, out);
}

// Nothing can change a dictionary or a list: a copy is the thing itself.
static bool copy(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    *out = self;
    return jinja_only_positions(run, args, "copy", 0, 0);
}

const jinja_builtin jinja_dict_methods[] = {
    {"copy", copy}, {"get", get}, {"items", items}, {"keys", keys}, {"values", values}, {NULL, NULL},
};

// ---- lists, tuples, ranges

static bool count(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_iter it;
    jinja_value item;
    int64_t n = 0;
    bool equal;
    if (!jinja_only_positions(run, args, "count", 1, 1) || !jinja_iter_begin(run, self, &it)) return false;
    while (jinja_iter_next(&it, &item)) {
        if (!jinja_equal(run, item, args->pos[0], &equal)) return false;
        n += equal;
    }
    *out = jinja_int(n);
    return !run->has_failed;
}

static bool index_of(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value *all;
    uint32_t n;
    int64_t bounds[2] = {0, INT64_MAX};
    bool equal;
    if (!jinja_only_positions(run, args, "index", 1, self.kind == JINJA_RANGE ? 1 : 3) ||
        !jinja_items(run, self, &all, &n))
        return false;
    for (uint32_t i = 1; i < args->n_pos; i++) {
        if (!jinja_arg_int(run, args->pos[i], "index", bounds[i - 1], &bounds[i - 1])) return false;
        if (bounds[i - 1] < 0) bounds[i - 1] += n;
    }
    for (int64_t i = bounds[0] < 0 ? 0 : bounds[0]; i < n && i < bounds[1]; i++) {
        if (!jinja_equal(run, all[i], args->pos[0], &equal)) return false;
        if (!equal) continue;
        *out = jinja_int(i);
        return true;
    }
    return jinja_fail(run, "the item is not in the %s", jinja_type_name(self));
}

const jinja_builtin jinja_list_methods[] = {
    {"copy", copy},
    {"count", count},
    {"index", index_of},
    {NULL, NULL},
};

// ---- loops

static bool cycle(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    if (!jinja_only_positions(run, args, "cycle", 0, UINT32_MAX)) return false;
    if (args->n_pos == 0) return jinja_fail(run, "no items for cycling given");
    *out = args->pos[self.loop->index0 % args->n_pos];
    return true;
}

static bool changed(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value before = self.loop->changed, after;
    bool equal = false;
    if (!jinja_only_positions(run, args, "changed", 0, UINT32_MAX) ||
        !jinja_list_make(run, JINJA_TUPLE, args->n_pos, &after))
        return false;
    memcpy(after.list->items, args->pos, args->n_pos * sizeof *args->pos);
    if (before.kind != JINJA_MISSING && !jinja_equal(run, before, after, &equal)) return false;
    self.loop->changed = after;
    *out = jinja_bool(!equal);
    return true;
}

const jinja_builtin jinja_loop_methods[] = {
    {"changed", changed},
    {"cycle", cycle},
    {NULL, NULL},
};

// ---- cyclers

static bool next(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_cycler *c = self.cycler;
    *out = c->items[c->pos];
    c->pos = (c->pos + 1) % c->n;
    return jinja_only_positions(run, args, "next", 0, 0);
}

static bool reset(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    self.cycler->pos = 0;
    *out = jinja_none();
    return jinja_only_positions(run, args, "reset", 0, 0);
}

const jinja_builtin jinja_cycler_methods[] = {
    {"next", next},
    {"reset", reset},
    {NULL, NULL},
};
