// Dictionaries in order of insertion, and namespaces, which are dictionaries that may change.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tokenizer_svc/jinja/compare.h"
#include "tokenizer_svc/jinja/run.h"

// Up to this many keys are compared one by one.
enum { FEW = 8 };

bool jinja_dict_make(jinja_run *run, jinja_kind kind, uint32_t cap, jinja_value *out) {
    jinja_dict *d = jinja_alloc(run, 1, sizeof *d);
    if (d == NULL) return false;
    d->pairs = jinja_alloc(run, cap, sizeof *d->pairs);
    if (d->pairs == NULL) return false;
    d->cap = cap;
    *out = (jinja_value){.kind = (uint8_t)kind, .dict = d};
    return true;
}

static int compare_text(const char *a, size_t a_len, const char *b, size_t b_len) {
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    if (order != 0) return order;
    return (a_len > b_len) - (a_len < b_len);
}

static int compare_index(const void *a, const void *b, void *pairs) {
    const jinja_pair *x = (jinja_pair *)pairs + *(const uint32_t *)a, *y = (jinja_pair *)pairs + *(const uint32_t *)b;
    return compare_text(x->key.s, x->key.len, y->key.s, y->key.len);
}

static bool make_index(jinja_run *run, jinja_dict *d) {
    d->index = jinja_alloc(run, d->n, sizeof *d->index);
    if (d->index == NULL || !jinja_spend(run, 4 * (uint64_t)d->n)) return false;
    for (uint32_t i = 0; i < d->n; i++)
        d->index[i] = i;
    qsort_r(d->index, d->n, sizeof *d->index, compare_index, d->pairs);
    return true;
}

bool jinja_dict_get_text(jinja_run *run, jinja_dict *d, const char *key, size_t len, jinja_value **found) {
    *found = NULL;
    // Long keys are compared to their ends by who makes them alike.
    if (len > 64 && !jinja_spend_bytes(run, len * (d->n < 32 ? d->n : 32))) return false;
    if (d->n <= FEW || d->has_other_keys) {
        if (d->n > FEW && !jinja_spend(run, d->n / 4)) return false;
        for (uint32_t i = 0; i < d->n; i++) {
            if (!jinja_is_str(d->pairs[i].key, key, len)) continue;
            *found = &d->pairs[i].value;
            return true;
        }
        return true;
    }
    if (d->index == NULL && !make_index(run, d)) return false;
    uint32_t low = 0, high = d->n;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        const jinja_pair *p = &d->pairs[d->index[mid]];
        int order = compare_text(p->key.s, p->key.len, key, len);
        if (order == 0) {
            *found = &d->pairs[d->index[mid]].value;
            return true;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return true;
}

static bool check_hashable(jinja_run *run, jinja_value key) {
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT ||
        (key.kind == JINJA_DICT_VIEW && key.view->of != JINJA_VALUES))
        return jinja_fail(run, "unhashable type: '%s'", jinja_type_name(key));
    if (key.kind != JINJA_TUPLE) return true;
    if (!jinja_enter(run)) return false;
    bool ok = true;
    for (uint32_t i = 0; i < key.list->n && ok; i++)
        ok = jinja_spend(run, 1) && check_hashable(run, key.list->items[i]);
    jinja_leave(run);
    return ok;
}

bool jinja_dict_get(jinja_run *run, jinja_dict *d, jinja_value key, jinja_value **found) {
    if (key.kind == JINJA_STR) return jinja_dict_get_text(run, d, key.s, key.len, found);
    *found = NULL;
    if (!check_hashable(run, key)) return false;
    for (uint32_t i = 0; d->has_other_keys && i < d->n; i++) {
        bool equal;
        if (!jinja_spend(run, 1) || !jinja_equal(run, d->pairs[i].key, key, &equal)) return false;
        if (!equal) continue;
        *found = &d->pairs[i].value;
        return true;
    }
    return true;
}

bool jinja_dict_append(jinja_run *run, jinja_dict *d, jinja_value key, jinja_value value) {
    if (d->n == d->cap) {
        uint32_t cap = d->cap < 4 ? 4 : 2 * d->cap;
        jinja_pair *pairs = jinja_alloc(run, cap, sizeof *pairs);
        if (pairs == NULL) return false;
        if (d->n != 0) memcpy(pairs, d->pairs, d->n * sizeof *pairs);
        d->pairs = pairs;
        d->cap = cap;
    }
    d->pairs[d->n++] = (jinja_pair){key, value};
    d->index = NULL;
    if (key.kind != JINJA_STR) d->has_other_keys = true;
    return true;
}

bool jinja_dict_set(jinja_run *run, jinja_dict *d, jinja_value key, jinja_value value) {
    jinja_value *found;
    // A dictionary that grows would make its index again and again: it is searched in the order of insertion until
    // then.
    if (key.kind == JINJA_STR && d->index == NULL) {
        if (!jinja_spend(run, 1 + (uint64_t)d->n * (16 + key.len) / 64)) return false;
        found = NULL;
        for (uint32_t i = 0; i < d->n && found == NULL; i++)
            if (jinja_is_str(d->pairs[i].key, key.s, key.len)) found = &d->pairs[i].value;
    } else if (!jinja_dict_get(run, d, key, &found)) {
        return false;
    }
    if (found == NULL) return jinja_dict_append(run, d, key, value);
    *found = value;
    return true;
}
