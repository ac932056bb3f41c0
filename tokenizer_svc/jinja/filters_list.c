// Filters of sequences.
#include <string.h>

#include "tokenizer_svc/jinja/attr_path.h"
#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/compare.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"

static bool first(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char hint[] = "No first item, sequence was empty.";
    jinja_iter it;
    if (!jinja_bind(run, args, "first", NULL, 0, 0, NULL) || !jinja_iter_begin(run, self, &it)) return false;
    if (!jinja_iter_next(&it, out)) *out = jinja_undefined_hint(hint, sizeof hint - 1);
    return !run->has_failed;
}

static bool last(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char hint[] = "No last item, sequence was empty.";
    jinja_value *items;
    uint32_t n;
    if (!jinja_bind(run, args, "last", NULL, 0, 0, NULL)) return false;
    if (!jinja_has_length(self)) return jinja_fail(run, "'%s' object is not reversible", jinja_type_name(self));
    if (!jinja_items(run, self, &items, &n)) return false;
    *out = n > 0 ? items[n - 1] : jinja_undefined_hint(hint, sizeof hint - 1);
    return true;
}

static bool reverse_str(jinja_run *run, jinja_value str, jinja_value *out) {
    return jinja_get_slice(run, str, jinja_none(), jinja_none(), jinja_int(-1), out);
}

// A string backwards, or an iterator; what has no length becomes a list.
static bool reverse(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    if (!jinja_bind(run, args, "reverse", NULL, 0, 0, NULL)) return false;
    if (self.kind == JINJA_STR) return reverse_str(run, self, out);
    if (!jinja_is_iterable(self)) return jinja_fail(run, "argument must be iterable");
    jinja_value *items;
    uint32_t n;
    if (!jinja_items(run, self, &items, &n)) return false;
    jinja_value *reversed = jinja_alloc(run, n, sizeof *reversed);
    if (reversed == NULL) return false;
    for (uint32_t i = 0; i < n; i++)
        reversed[i] = items[n - 1 - i];
    if (self.kind == JINJA_GENERATOR) return jinja_list_wrap(run, JINJA_LIST, reversed, n, out);
    return jinja_generator_make(run, self.kind == JINJA_LIST ? "list_reverseiterator" : "reversed", reversed, n, out);
}

static bool list(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value *items;
    uint32_t n;
    if (!jinja_bind(run, args, "list", NULL, 0, 0, NULL) || !jinja_items(run, self, &items, &n) ||
        !jinja_list_wrap(run, JINJA_LIST, items, n, out))
        return false;
    out->origin = self.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER;
    return true;
}

static bool add_pairs(jinja_run *run, jinja_value self, jinja_items_builder *b) {
    if (self.kind == JINJA_UNDEFINED) return true;
    if (self.kind != JINJA_DICT) return jinja_fail(run, "Can only get item pairs from a mapping.");
    jinja_dict_view view = {.dict = self.dict, .of = JINJA_ITEMS};
    return jinja_items(run, (jinja_value){.kind = JINJA_DICT_VIEW, .origin = self.origin, .view = &view}, &b->items,
                       &b->n);
}

static bool items(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_items_builder b = {.run = run};
    if (!jinja_bind(run, args, "items", NULL, 0, 0, NULL)) return false;
    return jinja_items_finish_lazily(&b, add_pairs(run, self, &b), out);
}

static bool join(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"d", "attribute"};
    jinja_value a[2], separator = JINJA_LITERAL(""), item;
    jinja_attr_path path;
    jinja_iter it;
    jinja_text t;
    jinja_text_init(&t, run);
    if (!jinja_bind(run, args, "join", names, 2, 0, a) || !jinja_attr_path_make(run, a[1], &path) ||
        (a[0].kind != JINJA_MISSING && !jinja_to_str(run, a[0], &separator)) || !jinja_iter_begin(run, self, &it))
        return false;
    for (bool is_first = true; jinja_iter_next(&it, &item); is_first = false) {
        if (!is_first) jinja_text_add_value(&t, separator);
        if (!jinja_attr_path_get(run, &path, item, &item) || !jinja_add_str(&t, item)) return false;
    }
    return !run->has_failed && jinja_text_finish(&t, out);
}

// ---- sorting

// The keys of a sort, each a list of the attributes that "a,b" names.
static bool sort_keys(jinja_run *run, const jinja_value *all, uint32_t n, jinja_value attribute, bool ignore_case,
                      jinja_value **keys) {
    jinja_value names;
    if (attribute.kind == JINJA_STR) {
        if (!jinja_str_split(run, attribute, JINJA_LITERAL(","), -1, false, &names)) return false;
    } else {
        if (!jinja_list_make(run, JINJA_LIST, 1, &names)) return false;
        names.list->items[0] = attribute;
    }
    uint32_t n_paths = names.list->n;
    jinja_attr_path *paths = jinja_alloc(run, n_paths, sizeof *paths);
    *keys = jinja_alloc(run, n, sizeof **keys);
    if (paths == NULL || *keys == NULL) return false;
    for (uint32_t p = 0; p < n_paths; p++) {
        if (!jinja_attr_path_make(run, names.list->items[p], &paths[p])) return false;
        paths[p].ignore_case = ignore_case;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!jinja_list_make(run, JINJA_LIST, n_paths, &(*keys)[i])) return false;
        for (uint32_t p = 0; p < n_paths; p++)
            if (!jinja_attr_path_get(run, &paths[p], all[i], &(*keys)[i].list->items[p])) return false;
    }
    return true;
}

static bool sort(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"reverse", "case_sensitive", "attribute"};
    jinja_value a[3], *all, *keys;
    uint32_t n, *order;
    if (!jinja_bind(run, args, "sort", names, 3, 0, a) || !jinja_items(run, self, &all, &n) ||
        !sort_keys(run, all, n, a[2], !jinja_is_true(a[1]), &keys) ||
        !jinja_sort(run, keys, n, jinja_is_true(a[0]), &order) || !jinja_list_make(run, JINJA_LIST, n, out))
        return false;
    for (uint32_t i = 0; i < n; i++)
        out->list->items[i] = all[order[i]];
    out->origin = self.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER;
    return true;
}

static bool dictsort(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"case_sensitive", "by", "reverse"};
    jinja_value a[3], *pairs, *keys;
    uint32_t n, *order;
    if (!jinja_bind(run, args, "dictsort", names, 3, 0, a)) return false;
    bool by_value = jinja_is_str(a[1], "value", 5);
    if (a[1].kind != JINJA_MISSING && !by_value && !jinja_is_str(a[1], "key", 3))
        return jinja_fail(run, "You can only sort by either \"key\" or \"value\"");
    if (self.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, self);
    if (self.kind != JINJA_DICT) return jinja_fail(run, "'%s' object has no attribute 'items'", jinja_type_name(self));
    jinja_dict_view view = {.dict = self.dict, .of = JINJA_ITEMS};
    if (!jinja_items(run, (jinja_value){.kind = JINJA_DICT_VIEW, .origin = self.origin, .view = &view}, &pairs, &n) ||
        (keys = jinja_alloc(run, n, sizeof *keys)) == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        keys[i] = pairs[i].list->items[by_value];
        if (keys[i].kind == JINJA_STR && !jinja_is_true(a[0]) && !jinja_str_case(run, keys[i], JINJA_LOWER, &keys[i]))
            return false;
    }
    if (!jinja_sort(run, keys, n, jinja_is_true(a[2]), &order) || !jinja_list_make(run, JINJA_LIST, n, out))
        return false;
    for (uint32_t i = 0; i < n; i++)
        out->list->items[i] = pairs[order[i]];
    out->origin = self.origin;
    return true;
}

static bool group_by(jinja_run *run, const jinja_value *all, const jinja_value *keys, const uint32_t *order, uint32_t n,
                     const jinja_attr_path *path, jinja_value *out) {
    jinja_items_builder groups = {.run = run};
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        bool equal = true;
        for (end = begin + 1; end < n; end++) {
            if (!jinja_equal(run, keys[order[begin]], keys[order[end]], &equal)) return false;
            if (!equal) break;
        }
        jinja_value group, members;
        if (!jinja_list_make(run, JINJA_LIST, end - begin, &members) || !jinja_list_make(run, JINJA_TUPLE, 2, &group))
            return false;
        for (uint32_t i = begin; i < end; i++)
            members.list->items[i - begin] = all[order[i]];
        group.list->is_group = true;
        group.list->items[1] = members;
        if (!jinja_attr_path_get(run, path, members.list->items[0], &group.list->items[0]) ||
            !jinja_items_add(&groups, group))
            return false;
    }
    return jinja_list_wrap(run, JINJA_LIST, groups.items, groups.n, out);
}

static bool groupby(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"attribute", "default", "case_sensitive"};
    jinja_value a[3], *all, *keys;
    jinja_attr_path path;
    uint32_t n, *order;
    if (!jinja_bind(run, args, "groupby", names, 3, 1, a) || !jinja_items(run, self, &all, &n) ||
        !jinja_attr_path_make(run, a[0], &path) || (keys = jinja_alloc(run, n, sizeof *keys)) == NULL)
        return false;
    path.otherwise = a[1];
    path.ignore_case = !jinja_is_true(a[2]);
    for (uint32_t i = 0; i < n; i++)
        if (!jinja_attr_path_get(run, &path, all[i], &keys[i])) return false;
    if (!jinja_sort(run, keys, n, false, &order)) return false;
    path.ignore_case = false; // a group is called as its first member has it
    return group_by(run, all, keys, order, n, &path, out);
}

// ---- the smallest, the largest, the sum, the different ones

static bool extreme(jinja_run *run, jinja_value self, const jinja_args *args, bool is_max, jinja_value *out) {
    static const char *const names[] = {"case_sensitive", "attribute"};
    static const char hint[] = "No aggregated item, sequence was empty.";
    jinja_value a[2], item, key, best_key = jinja_missing();
    jinja_attr_path path;
    jinja_iter it;
    *out = jinja_undefined_hint(hint, sizeof hint - 1);
    if (!jinja_bind(run, args, is_max ? "max" : "min", names, 2, 0, a) || !jinja_attr_path_make(run, a[1], &path) ||
        !jinja_iter_begin(run, self, &it))
        return false;
    path.ignore_case = !jinja_is_true(a[0]);
    while (jinja_iter_next(&it, &item)) {
        bool better = best_key.kind == JINJA_MISSING;
        if (!jinja_attr_path_get(run, &path, item, &key)) return false;
        // max() asks key > best, min() key < best
        bool ok = better || (is_max ? jinja_less(run, best_key, key, "<", &better)
                                    : jinja_less(run, key, best_key, "<", &better));
        if (!ok) return false;
        if (!better) continue;
        *out = item;
        best_key = key;
    }
    return !run->has_failed;
}

static bool min(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return extreme(run, self, args, false, out);
}

static bool max(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return extreme(run, self, args, true, out);
}

static bool sum(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"attribute", "start"};
    jinja_value a[2], item;
    jinja_attr_path path;
    jinja_iter it;
    if (!jinja_bind(run, args, "sum", names, 2, 0, a) || !jinja_attr_path_make(run, a[0], &path) ||
        !jinja_iter_begin(run, self, &it))
        return false;
    *out = a[1].kind != JINJA_MISSING ? a[1] : jinja_int(0);
    if (out->kind == JINJA_STR) return jinja_fail(run, "sum() can't sum strings [use ''.join(seq) instead]");
    while (jinja_iter_next(&it, &item)) {
        jinja_value so_far = *out;
        if (!jinja_attr_path_get(run, &path, item, &item) || !jinja_binary(run, JINJA_OP_ADD, so_far, item, out))
            return false;
    }
    return !run->has_failed;
}

static bool add_unique(jinja_run *run, jinja_value self, const jinja_value a[2], jinja_items_builder *b) {
    jinja_value item, key, seen;
    jinja_attr_path path;
    jinja_iter it;
    if (!jinja_attr_path_make(run, a[1], &path) || !jinja_dict_make(run, JINJA_DICT, 0, &seen) ||
        !jinja_iter_begin(run, self, &it))
        return false;
    path.ignore_case = !jinja_is_true(a[0]);
    while (jinja_iter_next(&it, &item)) {
        uint32_t before = seen.dict->n;
        if (!jinja_attr_path_get(run, &path, item, &key) || !jinja_dict_set(run, seen.dict, key, jinja_none()))
            return false;
        if (seen.dict->n > before && !jinja_items_add(b, item)) return false;
    }
    return !run->has_failed;
}

static bool unique(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"case_sensitive", "attribute"};
    jinja_value a[2];
    jinja_items_builder b = {.run = run};
    if (!jinja_bind(run, args, "unique", names, 2, 0, a)) return false;
    return jinja_items_finish_lazily(&b, add_unique(run, self, a, &b), out);
}

// ---- lists of lists

static bool add_part(jinja_run *run, jinja_items_builder *parts, const jinja_value *from, uint32_t n, uint32_t fill,
                     jinja_value with) {
    jinja_value part;
    if (!jinja_spend(run, fill) || !jinja_list_make(run, JINJA_LIST, n + fill, &part)) return false;
    if (n != 0) memcpy(part.list->items, from, n * sizeof *from);
    for (uint32_t i = 0; i < fill; i++)
        part.list->items[n + i] = with;
    return jinja_items_add(parts, part);
}

// How many items fill a batch; UINT32_MAX: no number of them does.
static uint32_t batch_size(jinja_value v) {
    double f = jinja_is_number(v) ? jinja_as_float(v) : -1;
    return f >= 0 && f < UINT32_MAX && f == (double)(uint32_t)f ? (uint32_t)f : UINT32_MAX;
}

// How many copies of fill_with make the last batch, of `part` items, full.
static bool batch_fill(jinja_run *run, const jinja_value a[2], uint32_t part, uint32_t *fill) {
    bool is_short;
    *fill = 0;
    if (!jinja_arg_is_given(a[1])) return true;
    if (!jinja_less(run, jinja_int(part), a[0], "<", &is_short)) return false;
    if (!is_short) return true;
    if (!jinja_is_integer(a[0])) return jinja_fail(run, "can't multiply sequence by non-int of type 'float'");
    int64_t missing = jinja_as_int(a[0]) - part;
    *fill = missing > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)missing;
    return true;
}

static bool add_batches(jinja_run *run, jinja_value self, const jinja_value a[2], jinja_items_builder *parts) {
    jinja_value *all;
    uint32_t n, fill, size = batch_size(a[0]), at = 0;
    if (!jinja_items(run, self, &all, &n)) return false;
    if (n == 0) return true;
    // With a size of 0 the list is full before the first item, and never again.
    if (size == 0 && !add_part(run, parts, all, 0, 0, a[1])) return false;
    if (size == 0) size = UINT32_MAX;
    for (; n - at > size; at += size)
        if (!add_part(run, parts, all + at, size, 0, a[1])) return false;
    return batch_fill(run, a, n - at, &fill) && add_part(run, parts, all + at, n - at, fill, a[1]);
}

static bool batch(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"linecount", "fill_with"};
    jinja_value a[2];
    jinja_items_builder parts = {.run = run};
    if (!jinja_bind(run, args, "batch", names, 2, 1, a)) return false;
    return jinja_items_finish_lazily(&parts, add_batches(run, self, a, &parts), out);
}

static bool add_slices(jinja_run *run, jinja_value self, const jinja_value a[2], jinja_items_builder *parts) {
    jinja_value *all;
    uint32_t n, at = 0;
    int64_t slices;
    if (!jinja_items(run, self, &all, &n) || !jinja_arg_int(run, a[0], "slice", 0, &slices)) return false;
    if (slices == 0) return jinja_fail(run, "integer division or modulo by zero");
    for (int64_t i = 0; i < slices; i++) {
        bool has_extra = i < n % slices;
        uint32_t part = (uint32_t)(n / slices) + has_extra;
        uint32_t fill = jinja_arg_is_given(a[1]) && !has_extra;
        if (!jinja_spend(run, 1) || !add_part(run, parts, all + at, part, fill, a[1])) return false;
        at += part;
    }
    return true;
}

static bool slice(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"slices", "fill_with"};
    jinja_value a[2];
    jinja_items_builder parts = {.run = run};
    if (!jinja_bind(run, args, "slice", names, 2, 1, a)) return false;
    return jinja_items_finish_lazily(&parts, add_slices(run, self, a, &parts), out);
}

const jinja_builtin jinja_list_filters[] = {
    {"batch", batch}, {"dictsort", dictsort}, {"first", first},     {"groupby", groupby},
    {"items", items}, {"join", join},         {"last", last},       {"list", list},
    {"max", max},     {"min", min},           {"reverse", reverse}, {"slice", slice},
    {"sort", sort},   {"sum", sum},           {"unique", unique},   {NULL, NULL},
};
