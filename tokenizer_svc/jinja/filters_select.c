// map, select and their kin. Python's are lazy: nothing is wrong until somebody reads the item that is.
#include <string.h>

#include "tokenizer_svc/jinja/attr_path.h"
#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"

typedef struct selection {
    bool of_attribute; // tests an attribute of the item, else the item
    bool rejects;
    jinja_attr_path path;
    const jinja_builtin *test; // NULL: is the item true?
    jinja_args test_args;
} selection;

static bool prepare_selection(jinja_run *run, const jinja_args *args, selection *s) {
    uint32_t used = 0;
    if (s->of_attribute) {
        if (args->n_pos == 0) return jinja_fail(run, "Missing parameter for attribute name");
        if (!jinja_attr_path_make(run, args->pos[used++], &s->path)) return false;
    }
    if (args->n_pos == used) return true;
    jinja_value name = args->pos[used++];
    s->test = name.kind == JINJA_STR ? jinja_find_test(name.s, name.len) : NULL;
    if (s->test == NULL) {
        jinja_value text;
        if (!jinja_to_str(run, name, &text)) return false;
        return jinja_fail(run, "No test named '%.*s'", jinja_shown(text.len), text.s);
    }
    s->test_args = (jinja_args){args->pos + used, args->n_pos - used, args->named, args->n_named};
    return true;
}

static bool is_selected(jinja_run *run, const selection *s, jinja_value item, bool *selected) {
    jinja_value result = item;
    if (s->of_attribute && !jinja_attr_path_get(run, &s->path, item, &result)) return false;
    if (s->test != NULL) {
        jinja_value tested = result;
        if (!s->test->call(run, tested, &s->test_args, &result)) return false;
    }
    *selected = jinja_is_true(result) != s->rejects;
    return true;
}

static bool select_items(jinja_run *run, jinja_value self, const jinja_args *args, selection *s,
                         jinja_items_builder *b) {
    jinja_iter it;
    jinja_value item;
    bool selected;
    if (!jinja_is_true(self)) return true;
    if (!prepare_selection(run, args, s) || !jinja_iter_begin(run, self, &it)) return false;
    while (jinja_iter_next(&it, &item)) {
        if (!is_selected(run, s, item, &selected)) return false;
        if (selected && !jinja_items_add(b, item)) return false;
    }
    return !run->has_failed;
}

static bool select_with(jinja_run *run, jinja_value self, const jinja_args *args, bool of_attribute, bool rejects,
                        jinja_value *out) {
    selection s = {.of_attribute = of_attribute, .rejects = rejects};
    jinja_items_builder b = {.run = run};
    bool ok = select_items(run, self, args, &s, &b);
    return jinja_items_finish_lazily(&b, ok, out);
}

static bool select(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return select_with(run, self, args, false, false, out);
}

static bool reject(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return select_with(run, self, args, false, true, out);
}

static bool selectattr(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return select_with(run, self, args, true, false, out);
}

static bool rejectattr(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return select_with(run, self, args, true, true, out);
}

static bool map_attribute(jinja_run *run, jinja_value self, const jinja_args *args, jinja_items_builder *b) {
    static const char *const names[] = {"attribute", "default"};
    jinja_value a[2], item;
    jinja_attr_path path;
    jinja_iter it;
    if (!jinja_bind(run, args, "map", names, 2, 1, a) || !jinja_attr_path_make(run, a[0], &path) ||
        !jinja_iter_begin(run, self, &it))
        return false;
    path.otherwise = a[1];
    while (jinja_iter_next(&it, &item))
        if (!jinja_attr_path_get(run, &path, item, &item) || !jinja_items_add(b, item)) return false;
    return !run->has_failed;
}

static bool map_filter(jinja_run *run, jinja_value self, const jinja_args *args, jinja_items_builder *b) {
    if (args->n_pos == 0) return jinja_fail(run, "map requires a filter argument");
    jinja_value name = args->pos[0], item, mapped;
    const jinja_builtin *filter = name.kind == JINJA_STR ? jinja_find_filter(name.s, name.len) : NULL;
    if (filter == NULL) {
        if (!jinja_to_str(run, name, &name)) return false;
        return jinja_fail(run, "No filter named '%.*s'", jinja_shown(name.len), name.s);
    }
    jinja_args filter_args = {args->pos + 1, args->n_pos - 1, args->named, args->n_named};
    jinja_iter it;
    if (!jinja_iter_begin(run, self, &it)) return false;
    while (jinja_iter_next(&it, &item))
        if (!filter->call(run, item, &filter_args, &mapped) || !jinja_items_add(b, mapped)) return false;
    return !run->has_failed;
}

static bool map(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_items_builder b = {.run = run};
    bool has_attribute = false, ok = true;
    for (uint32_t i = 0; i < args->n_named; i++)
        has_attribute = has_attribute || jinja_is_str(args->named[i].key, "attribute", 9);
    if (jinja_is_true(self))
        ok = args->n_pos == 0 && has_attribute ? map_attribute(run, self, args, &b) : map_filter(run, self, args, &b);
    return jinja_items_finish_lazily(&b, ok, out);
}

const jinja_builtin jinja_select_filters[] = {
    {"map", map},       {"reject", reject},         {"rejectattr", rejectattr},
    {"select", select}, {"selectattr", selectattr}, {NULL, NULL},
};
