#include "tokenizer_svc/jinja/builtins.h"

#include <string.h>

#include "tokenizer_svc/jinja/run.h"

static const jinja_builtin *find(const jinja_builtin *table, const char *name, size_t len) {
    for (; table->name != NULL; table++)
        if (strlen(table->name) == len && memcmp(table->name, name, len) == 0) return table;
    return NULL;
}

const jinja_builtin *jinja_find_filter(const char *name, size_t len) {
    const jinja_builtin *tables[] = {jinja_text_filters, jinja_value_filters, jinja_list_filters, jinja_select_filters};
    const jinja_builtin *found = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && found == NULL; i++)
        found = find(tables[i], name, len);
    return found;
}

const jinja_builtin *jinja_find_test(const char *name, size_t len) {
    return find(jinja_tests, name, len);
}

const jinja_function *jinja_find_function(const char *name, size_t len) {
    for (const jinja_function *f = jinja_functions; f->builtin.name != NULL; f++)
        if (strlen(f->builtin.name) == len && memcmp(f->builtin.name, name, len) == 0) return f;
    return NULL;
}

const jinja_builtin *jinja_find_method(jinja_value self, const char *name, size_t len) {
    const jinja_builtin *found;
    switch ((jinja_kind)self.kind) {
    case JINJA_STR:
        found = find(jinja_str_methods, name, len);
        return found != NULL ? found : find(jinja_str_tests, name, len);
    case JINJA_DICT:
        return find(jinja_dict_methods, name, len);
    case JINJA_LIST:
        return find(jinja_list_methods, name, len);
    case JINJA_TUPLE: // has no copy()
    case JINJA_RANGE:
        found = find(jinja_list_methods, name, len);
        return found != NULL && strcmp(found->name, "copy") == 0 ? NULL : found;
    case JINJA_LOOP:
        return find(jinja_loop_methods, name, len);
    case JINJA_CYCLER:
        return find(jinja_cycler_methods, name, len);
    default:
        return NULL;
    }
}

bool jinja_is_mutator(jinja_value self, const char *name, size_t len) {
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    if (self.kind != JINJA_DICT && self.kind != JINJA_LIST) return false;
    for (const char *const *p = self.kind == JINJA_DICT ? of_dict : of_list; *p != NULL; p++)
        if (strlen(*p) == len && memcmp(*p, name, len) == 0) return true;
    return false;
}

bool jinja_bind(jinja_run *run, const jinja_args *args, const char *what, const char *const *names, uint32_t n,
                uint32_t n_required, jinja_value *out) {
    if (args->n_pos > n) return jinja_fail(run, "%s takes at most %u arguments, got %u", what, n, args->n_pos);
    for (uint32_t i = 0; i < n; i++)
        out[i] = i < args->n_pos ? args->pos[i] : jinja_missing();
    for (uint32_t k = 0; k < args->n_named; k++) {
        jinja_value name = args->named[k].key;
        uint32_t i = 0;
        while (i < n && !jinja_is_str(name, names[i], strlen(names[i])))
            i++;
        if (i == n)
            return jinja_fail(run, "%s got an unexpected keyword argument '%.*s'", what, jinja_shown(name.len), name.s);
        if (out[i].kind != JINJA_MISSING) return jinja_fail(run, "%s got two values for argument '%s'", what, names[i]);
        out[i] = args->named[k].value;
    }
    for (uint32_t i = 0; i < n_required; i++)
        if (out[i].kind == JINJA_MISSING) return jinja_fail(run, "%s misses its argument '%s'", what, names[i]);
    return true;
}

bool jinja_only_positions(jinja_run *run, const jinja_args *args, const char *what, uint32_t least, uint32_t most) {
    if (args->n_named > 0) return jinja_fail(run, "%s() takes no keyword arguments", what);
    if (args->n_pos < least)
        return jinja_fail(run, "%s() takes at least %u arguments, got %u", what, least, args->n_pos);
    if (args->n_pos > most) return jinja_fail(run, "%s() takes at most %u arguments, got %u", what, most, args->n_pos);
    return true;
}

bool jinja_arg_int(jinja_run *run, jinja_value v, const char *what, int64_t otherwise, int64_t *out) {
    *out = otherwise;
    if (v.kind == JINJA_MISSING) return true;
    if (v.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, v);
    if (!jinja_is_integer(v))
        return jinja_fail(run, "%s: '%s' object cannot be interpreted as an integer", what, jinja_type_name(v));
    *out = jinja_as_int(v);
    return true;
}

bool jinja_arg_int_or_none(jinja_run *run, jinja_value v, const char *what, int64_t otherwise, int64_t *out) {
    return jinja_arg_int(run, v.kind == JINJA_NONE ? jinja_missing() : v, what, otherwise, out);
}

bool jinja_arg_str(jinja_run *run, jinja_value v, const char *what, jinja_value *out) {
    *out = v;
    if (v.kind == JINJA_STR) return true;
    if (v.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, v);
    return jinja_fail(run, "%s: must be str, not %s", what, jinja_type_name(v));
}
