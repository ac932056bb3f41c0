#include "tokenizer_svc/jinja/compare.h"

#include <math.h>
#include <string.h>

#include "tokenizer_svc/jinja/iterate.h"
#include "tokenizer_svc/jinja/run.h"

static bool equal_lists(jinja_run *run, const jinja_list *a, const jinja_list *b, bool *equal) {
    *equal = a->n == b->n;
    for (uint32_t i = 0; i < a->n && *equal; i++)
        if (!jinja_equal(run, a->items[i], b->items[i], equal)) return false;
    return true;
}

static bool equal_dicts(jinja_run *run, jinja_dict *a, jinja_dict *b, bool *equal) {
    *equal = a->n == b->n;
    for (uint32_t i = 0; i < a->n && *equal; i++) {
        jinja_value *other;
        if (!jinja_dict_get(run, b, a->pairs[i].key, &other)) return false;
        *equal = other != NULL;
        if (*equal && !jinja_equal(run, a->pairs[i].value, *other, equal)) return false;
    }
    return true;
}

static bool equal_numbers(jinja_value a, jinja_value b) {
    if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT) return jinja_as_int(a) == jinja_as_int(b);
    if (a.kind == JINJA_FLOAT && b.kind == JINJA_FLOAT) return a.f == b.f;
    // An integer beyond 2^53 equals a float only if it is that float's exact value.
    double f = a.kind == JINJA_FLOAT ? a.f : b.f;
    int64_t i = a.kind == JINJA_FLOAT ? jinja_as_int(b) : jinja_as_int(a);
    return (double)i == f && f < 9223372036854775808.0 && (int64_t)f == i;
}

static bool equal_ranges(const jinja_range *a, const jinja_range *b) {
    return a->n == b->n && (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

bool jinja_equal(jinja_run *run, jinja_value a, jinja_value b, bool *equal) {
    *equal = false;
    if (!jinja_spend(run, 1)) return false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *equal = equal_numbers(a, b);
        return true;
    }
    if (a.kind != b.kind) return true;
    bool ok = true;
    switch ((jinja_kind)a.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED: // all undefined values are equal
    case JINJA_NONE:
        *equal = true;
        break;
    case JINJA_STR:
    case JINJA_BIGINT:
        ok = a.len != b.len || jinja_spend_bytes(run, a.len);
        *equal = a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (!jinja_enter(run)) return false;
        ok = equal_lists(run, a.list, b.list, equal);
        jinja_leave(run);
        break;
    case JINJA_DICT:
        if (!jinja_enter(run)) return false;
        ok = equal_dicts(run, a.dict, b.dict, equal);
        jinja_leave(run);
        break;
    case JINJA_RANGE:
        *equal = equal_ranges(a.range, b.range);
        break;
    case JINJA_DICT_VIEW: // as sets; only views of one dictionary are looked at here
        *equal = a.view->dict == b.view->dict && a.view->of == b.view->of && a.view->of != JINJA_VALUES;
        break;
    default:
        *equal = a.list == b.list; // the same object
    }
    return ok;
}

static bool refuse_order(jinja_run *run, jinja_value a, jinja_value b, const char *op) {
    if (a.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, a);
    if (b.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, b);
    return jinja_fail(run, "'%s' not supported between instances of '%s' and '%s'", op, jinja_type_name(a),
                      jinja_type_name(b));
}

// <0, 0, >0; 2 where one is not a number.
static int order_numbers(jinja_value a, jinja_value b) {
    if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT) {
        int64_t x = jinja_as_int(a), y = jinja_as_int(b);
        return (x > y) - (x < y);
    }
    // long double holds every int64 and every double.
    long double x = a.kind == JINJA_FLOAT ? (long double)a.f : (long double)jinja_as_int(a);
    long double y = b.kind == JINJA_FLOAT ? (long double)b.f : (long double)jinja_as_int(b);
    if (isnan(x) || isnan(y)) return 2;
    return (x > y) - (x < y);
}

static bool order(jinja_run *run, jinja_value a, jinja_value b, const char *op, int *result);

// The first items that differ decide.
static bool order_lists(jinja_run *run, const jinja_list *a, const jinja_list *b, const char *op, int *result) {
    for (uint32_t i = 0; i < a->n && i < b->n; i++) {
        bool equal;
        if (!jinja_equal(run, a->items[i], b->items[i], &equal)) return false;
        if (!equal) return order(run, a->items[i], b->items[i], op, result);
    }
    *result = (a->n > b->n) - (a->n < b->n);
    return true;
}

static bool order(jinja_run *run, jinja_value a, jinja_value b, const char *op, int *result) {
    if (!jinja_spend(run, 1)) return false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *result = order_numbers(a, b);
        return true;
    }
    if (a.kind == JINJA_STR && b.kind == JINJA_STR) { // UTF-8 sorts as its code points do
        size_t common = a.len < b.len ? a.len : b.len;
        if (!jinja_spend_bytes(run, common)) return false;
        int c = memcmp(a.s, b.s, common);
        *result = c != 0 ? c : (a.len > b.len) - (a.len < b.len);
        return true;
    }
    if (a.kind != b.kind || (a.kind != JINJA_LIST && a.kind != JINJA_TUPLE)) return refuse_order(run, a, b, op);
    if (!jinja_enter(run)) return false;
    bool ok = order_lists(run, a.list, b.list, op, result);
    jinja_leave(run);
    return ok;
}

bool jinja_less(jinja_run *run, jinja_value a, jinja_value b, const char *op, bool *less) {
    int result = 0;
    if (!order(run, a, b, op, &result)) return false;
    *less = result < 0;
    return true;
}

bool jinja_less_equal(jinja_run *run, jinja_value a, jinja_value b, const char *op, bool *less_equal) {
    int result = 0;
    if (!order(run, a, b, op, &result)) return false;
    *less_equal = result <= 0;
    return true;
}

bool jinja_contains(jinja_run *run, jinja_value container, jinja_value item, bool *found) {
    *found = false;
    jinja_value *in_dict;
    switch ((jinja_kind)container.kind) {
    case JINJA_STR:
        if (item.kind != JINJA_STR)
            return jinja_fail(run, "'in <string>' requires string as left operand, not %s", jinja_type_name(item));
        if (!jinja_spend_bytes(run, container.len)) return false;
        *found = jinja_str_find(container, item, 0) != SIZE_MAX;
        return true;
    case JINJA_DICT:
        if (!jinja_dict_get(run, container.dict, item, &in_dict)) return false;
        *found = in_dict != NULL;
        return true;
    default:
        break;
    }
    jinja_iter it;
    jinja_value v;
    if (!jinja_iter_begin(run, container, &it)) {
        return false;
    }
    while (!*found && jinja_iter_next(&it, &v))
        if (!jinja_equal(run, v, item, found)) return false;
    return !run->has_failed;
}

// Merge sort of order[begin..end) by keys; `spare` is as large.
static bool sort_part(jinja_run *run, const jinja_value *keys, uint32_t *order, uint32_t *spare, uint32_t n,
                      bool reverse) {
    if (n < 2) return true;
    uint32_t half = n / 2;
    if (!sort_part(run, keys, order, spare, half, reverse) ||
        !sort_part(run, keys, order + half, spare, n - half, reverse))
        return false;
    memcpy(spare, order, n * sizeof *order);
    uint32_t left = 0, right = half, at = 0;
    while (left < half && right < n) {
        const jinja_value a = keys[spare[left]], b = keys[spare[right]];
        bool right_first;
        // Only `<` is asked, as Python's sort does.
        bool ok = reverse ? jinja_less(run, a, b, "<", &right_first) : jinja_less(run, b, a, "<", &right_first);
        if (!ok) return false;
        order[at++] = spare[right_first ? right++ : left++];
    }
    while (left < half)
        order[at++] = spare[left++];
    while (right < n)
        order[at++] = spare[right++];
    return true;
}

bool jinja_sort(jinja_run *run, const jinja_value *keys, uint32_t n, bool reverse, uint32_t **order) {
    *order = jinja_alloc(run, n, sizeof **order);
    uint32_t *spare = jinja_alloc(run, n, sizeof *spare);
    if (*order == NULL || spare == NULL) return false;
    for (uint32_t i = 0; i < n; i++)
        (*order)[i] = i;
    return sort_part(run, keys, *order, spare, n, reverse);
}
