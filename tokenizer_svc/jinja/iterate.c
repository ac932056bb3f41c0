#include "tokenizer_svc/jinja/iterate.h"

#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/run.h"

bool jinja_is_iterable(jinja_value v) {
    switch ((jinja_kind)v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_STR:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_DICT_VIEW:
    case JINJA_RANGE:
    case JINJA_GENERATOR:
    case JINJA_LOOP:
        return true;
    default:
        return false;
    }
}

bool jinja_iter_begin(jinja_run *run, jinja_value v, jinja_iter *it) {
    *it = (jinja_iter){.run = run, .of = v};
    if (v.kind == JINJA_LOOP) return jinja_fail(run, "'LoopContext' object cannot be iterated inside its own loop");
    return jinja_is_iterable(v) || jinja_fail(run, "'%s' object is not iterable", jinja_type_name(v));
}

static bool next_of_generator(jinja_run *run, jinja_generator *g, jinja_value *item) {
    if (g->pos < g->n) {
        *item = g->items[g->pos++];
        return true;
    }
    if (g->has_error && !run->has_failed) {
        run->has_failed = true;
        run->error = g->error;
    }
    return false;
}

static bool next_of_view(jinja_run *run, const jinja_dict_view *view, size_t at, jinja_value *item) {
    if (at >= view->dict->n) return false;
    const jinja_pair *p = &view->dict->pairs[at];
    switch (view->of) {
    case JINJA_KEYS:
        *item = p->key;
        return true;
    case JINJA_VALUES:
        *item = p->value;
        return true;
    case JINJA_ITEMS:
        break;
    }
    if (!jinja_list_make(run, JINJA_TUPLE, 2, item)) return false;
    item->list->items[0] = p->key;
    item->list->items[1] = p->value;
    item->origin = p->key.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER;
    return true;
}

bool jinja_iter_next(jinja_iter *it, jinja_value *item) {
    jinja_value v = it->of;
    if (it->run->has_failed || !jinja_spend(it->run, 1)) return false;
    switch ((jinja_kind)v.kind) {
    case JINJA_STR: {
        if (it->at >= v.len) return false;
        uint32_t cp;
        size_t n = relay_utf8_decode(v.s + it->at, v.len - it->at, &cp);
        *item = jinja_str_part(v, it->at, n);
        item->is_markup = false; // as Python has it: the characters of markup are plain
        it->at += n;
        return true;
    }
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (it->at >= v.list->n) return false;
        *item = v.list->items[it->at++];
        return true;
    case JINJA_DICT:
        if (it->at >= v.dict->n) return false;
        *item = v.dict->pairs[it->at++].key;
        return true;
    case JINJA_DICT_VIEW:
        return next_of_view(it->run, v.view, it->at++, item);
    case JINJA_RANGE:
        if (it->at >= (size_t)v.range->n) return false;
        *item = jinja_int(v.range->start + (int64_t)it->at++ * v.range->step);
        item->origin = v.origin;
        return true;
    case JINJA_GENERATOR:
        return next_of_generator(it->run, v.generator, item);
    default:
        return false;
    }
}

bool jinja_items_add(jinja_items_builder *b, jinja_value item) {
    if (b->n == b->cap) {
        uint32_t cap = b->cap == 0 ? 8 : 2 * b->cap;
        jinja_value *items = jinja_alloc(b->run, cap, sizeof *items);
        if (items == NULL) return false;
        if (b->n != 0) memcpy(items, b->items, b->n * sizeof *items);
        b->items = items;
        b->cap = cap;
    }
    b->items[b->n++] = item;
    return true;
}

bool jinja_items_finish_lazily(jinja_items_builder *b, bool ok, jinja_value *out) {
    relay_err error = b->run->error;
    if (!ok && error.code != RELAY_INVALID_ARGUMENT) return false;
    if (!ok) b->run->has_failed = false;
    // To make a message costs more than a step: its place in the template is looked for.
    if (!ok && !jinja_spend_chars(b->run, 1024 + b->run->at)) return false;
    if (!jinja_generator_make(b->run, "generator", b->items, b->n, out)) return false;
    out->generator->has_error = !ok;
    out->generator->error = error;
    return true;
}

// Loops over ranges are common, and long ones: exactly the memory they need. The sandbox bounds how long.
static bool range_items(jinja_run *run, jinja_value v, jinja_value **items, uint32_t *n) {
    if (!jinja_spend(run, (uint64_t)v.range->n)) return false;
    *n = (uint32_t)v.range->n;
    *items = jinja_alloc(run, *n, sizeof **items);
    if (*items == NULL) return false;
    for (uint32_t i = 0; i < *n; i++) {
        (*items)[i] = jinja_int(v.range->start + (int64_t)i * v.range->step);
        (*items)[i].origin = v.origin;
    }
    return true;
}

bool jinja_items(jinja_run *run, jinja_value v, jinja_value **items, uint32_t *n) {
    if (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) {
        *items = v.list->items;
        *n = v.list->n;
        return true;
    }
    if (v.kind == JINJA_RANGE) return range_items(run, v, items, n);
    jinja_iter it;
    if (!jinja_iter_begin(run, v, &it)) return false;
    jinja_items_builder b = {.run = run};
    jinja_value item;
    while (jinja_iter_next(&it, &item))
        if (!jinja_items_add(&b, item)) return false;
    *items = b.items;
    *n = b.n;
    return !run->has_failed;
}

bool jinja_has_length(jinja_value v) {
    return jinja_is_iterable(v) && v.kind != JINJA_GENERATOR;
}

bool jinja_length(jinja_run *run, jinja_value v, int64_t *n) {
    switch ((jinja_kind)v.kind) {
    case JINJA_UNDEFINED:
        *n = 0;
        return true;
    case JINJA_STR:
        *n = (int64_t)jinja_str_chars(v);
        return jinja_spend_bytes(run, v.len);
    case JINJA_LIST:
    case JINJA_TUPLE:
        *n = v.list->n;
        return true;
    case JINJA_DICT:
        *n = v.dict->n;
        return true;
    case JINJA_DICT_VIEW:
        *n = v.view->dict->n;
        return true;
    case JINJA_RANGE:
        *n = v.range->n;
        return true;
    case JINJA_LOOP:
        *n = v.loop->n;
        return true;
    default:
        return jinja_fail(run, "object of type '%s' has no len()", jinja_type_name(v));
    }
}
