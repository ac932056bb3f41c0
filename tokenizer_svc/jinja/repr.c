// Python's str() and repr().
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/run.h"
#include "tokenizer_svc/jinja/unicode.h"

// Digits and decimal exponent of a finite f >= 0, shortest that read back: value = 0.d1d2d3... * 10^point.
static size_t shortest_digits(double f, char digits[20], int *point) {
    char text[40];
    int precision = 1;
    for (; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision - 1, f);
        if (strtod(text, NULL) == f) break;
    }
    snprintf(text, sizeof text, "%.*e", precision - 1, f);
    size_t n = 0;
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p != '.') digits[n++] = *p;
    *point = atoi(p + 1) + 1;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

size_t jinja_float_repr(double f, char *out) {
    if (isnan(f)) return (size_t)sprintf(out, "nan");
    if (isinf(f)) return (size_t)sprintf(out, f < 0 ? "-inf" : "inf");
    char *p = out;
    if (signbit(f)) *p++ = '-';
    char digits[20];
    int point;
    int n = (int)shortest_digits(fabs(f), digits, &point);
    if (point > 16 || point < -3) { // the exponent form, with two digits of exponent at least
        *p++ = digits[0];
        if (n > 1) *p++ = '.';
        memcpy(p, digits + 1, (size_t)n - 1);
        p += n - 1;
        p += sprintf(p, "e%c%02d", point - 1 < 0 ? '-' : '+', abs(point - 1));
        return (size_t)(p - out);
    }
    if (point <= 0) *p++ = '0';
    for (int i = 0; i < point; i++)
        *p++ = i < n ? digits[i] : '0';
    *p++ = '.';
    for (int i = point; i < 0; i++)
        *p++ = '0';
    if (n <= point) *p++ = '0';
    for (int i = point > 0 ? point : 0; i < n; i++)
        *p++ = digits[i];
    return (size_t)(p - out);
}

// A quoted string: in single quotes unless it has those and no double ones.
static bool add_quoted(jinja_text *t, jinja_value str) {
    if (!jinja_spend_chars(t->run, str.len)) return false;
    bool has_single = memchr(str.s, '\'', str.len) != NULL, has_double = memchr(str.s, '"', str.len) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    uint8_t edge = str.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER;
    jinja_text_add(t, &quote, 1, edge);
    size_t done = 0;
    for (size_t i = 0; i < str.len;) {
        uint32_t cp;
        size_t n = relay_utf8_decode(str.s + i, str.len - i, &cp);
        char escape[12];
        int len = 0;
        if (cp == (uint32_t)quote || cp == '\\')
            len = sprintf(escape, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            len = sprintf(escape, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (!jinja_is_printable(cp))
            len = sprintf(escape, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        if (len > 0) {
            jinja_text_add_part(t, str, done, i - done);
            jinja_text_add(t, escape, (size_t)len, jinja_origin_at(str, i));
            done = i + n;
        }
        i += n;
    }
    jinja_text_add_part(t, str, done, str.len - done);
    jinja_text_add(t, &quote, 1, edge);
    return !t->is_failed;
}

static void add(jinja_text *t, const char *s, uint8_t origin) {
    jinja_text_add(t, s, strlen(s), origin);
}

static bool add_items(jinja_text *t, const jinja_value *items, uint32_t n, uint8_t origin) {
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) add(t, ", ", origin);
        if (!jinja_add_repr(t, items[i])) return false;
    }
    return true;
}

static bool add_pairs(jinja_text *t, const jinja_dict *d, uint8_t origin) {
    add(t, "{", origin);
    for (uint32_t i = 0; i < d->n; i++) {
        if (i > 0) add(t, ", ", origin);
        if (!jinja_add_repr(t, d->pairs[i].key)) return false;
        add(t, ": ", origin);
        if (!jinja_add_repr(t, d->pairs[i].value)) return false;
    }
    add(t, "}", origin);
    return true;
}

static bool add_view(jinja_text *t, jinja_value v) {
    const jinja_dict_view *view = v.view;
    add(t, jinja_type_name(v), v.origin);
    add(t, "([", v.origin);
    for (uint32_t i = 0; i < view->dict->n; i++) {
        const jinja_pair *p = &view->dict->pairs[i];
        if (i > 0) add(t, ", ", v.origin);
        if (view->of == JINJA_ITEMS) add(t, "(", v.origin);
        if (view->of != JINJA_VALUES && !jinja_add_repr(t, p->key)) return false;
        if (view->of == JINJA_ITEMS) add(t, ", ", v.origin);
        if (view->of != JINJA_KEYS && !jinja_add_repr(t, p->value)) return false;
        if (view->of == JINJA_ITEMS) add(t, ")", v.origin);
    }
    add(t, "])", v.origin);
    return true;
}

static bool add_container(jinja_text *t, jinja_value v) {
    uint8_t origin = v.origin;
    char text[96];
    switch ((jinja_kind)v.kind) {
    case JINJA_LIST:
        add(t, "[", origin);
        if (!add_items(t, v.list->items, v.list->n, origin)) return false;
        add(t, "]", origin);
        return true;
    case JINJA_TUPLE:
        add(t, "(", origin);
        if (!add_items(t, v.list->items, v.list->n, origin)) return false;
        add(t, v.list->n == 1 ? ",)" : ")", origin);
        return true;
    case JINJA_DICT:
        return add_pairs(t, v.dict, origin);
    case JINJA_DICT_VIEW:
        return add_view(t, v);
    case JINJA_NAMESPACE:
        add(t, "<Namespace ", origin);
        if (!add_pairs(t, v.dict, origin)) return false;
        add(t, ">", origin);
        return true;
    case JINJA_RANGE: {
        long long start = v.range->start, stop = start + v.range->n * v.range->step, step = v.range->step;
        if (step == 1)
            snprintf(text, sizeof text, "range(%lld, %lld)", start, stop);
        else
            snprintf(text, sizeof text, "range(%lld, %lld, %lld)", start, stop, step);
        add(t, text, origin);
        return true;
    }
    case JINJA_MACRO:
        add(t, "<Macro ", origin);
        if (v.macro->name == NULL)
            add(t, "anonymous", origin);
        else if (!add_quoted(t, jinja_str(v.macro->name, v.macro->name_len, JINJA_TEMPLATE)))
            return false;
        add(t, ">", origin);
        return true;
    case JINJA_LOOP:
        snprintf(text, sizeof text, "<LoopContext %u/%u>", v.loop->index0 + 1, v.loop->n);
        add(t, text, origin);
        return true;
    default: // Python would print an address
        snprintf(text, sizeof text, "<%s object>", jinja_type_name(v));
        add(t, text, origin);
        return true;
    }
}

bool jinja_add_repr(jinja_text *t, jinja_value v) {
    char number[40];
    if (t->is_failed || !jinja_spend(t->run, 1)) return false;
    switch ((jinja_kind)v.kind) {
    case JINJA_MISSING:
    case JINJA_UNDEFINED:
        add(t, "Undefined", v.origin);
        break;
    case JINJA_NONE:
        add(t, "None", v.origin);
        break;
    case JINJA_BOOL:
        add(t, v.b ? "True" : "False", v.origin);
        break;
    case JINJA_INT:
        jinja_text_add(t, number, (size_t)snprintf(number, sizeof number, "%lld", (long long)v.i), v.origin);
        break;
    case JINJA_BIGINT:
        jinja_text_add(t, v.s, v.len, v.origin);
        break;
    case JINJA_FLOAT:
        jinja_text_add(t, number, jinja_float_repr(v.f, number), v.origin);
        break;
    case JINJA_STR:
        if (v.is_markup) add(t, "Markup(", v.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER);
        if (!add_quoted(t, v)) return false;
        if (v.is_markup) add(t, ")", v.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER);
        break;
    default: {
        if (!jinja_enter(t->run)) return false;
        bool ok = add_container(t, v);
        jinja_leave(t->run);
        return ok && !t->is_failed;
    }
    }
    return !t->is_failed;
}

bool jinja_add_str(jinja_text *t, jinja_value v) {
    if (v.kind == JINJA_STR)
        jinja_text_add_value(t, v);
    else if (v.kind != JINJA_UNDEFINED)
        return jinja_add_repr(t, v);
    return !t->is_failed;
}

bool jinja_to_str(jinja_run *run, jinja_value v, jinja_value *out) {
    if (v.kind == JINJA_STR) {
        *out = v;
        return true;
    }
    if (v.kind == JINJA_UNDEFINED) {
        *out = JINJA_LITERAL("");
        return true;
    }
    jinja_text t;
    jinja_text_init(&t, run);
    return jinja_add_repr(&t, v) && jinja_text_finish(&t, out);
}
