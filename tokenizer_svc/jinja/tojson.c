// json.dumps: HF's tojson.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/compare.h"
#include "tokenizer_svc/jinja/run.h"

typedef struct writer {
    jinja_text t;
    const jinja_json_style *style;
    uint32_t level;
} writer;

static bool write_value(writer *w, jinja_value v);

static void put(writer *w, const char *s, uint8_t origin) {
    jinja_text_add(&w->t, s, strlen(s), origin);
}

static int escape(uint32_t cp, bool ensure_ascii, char out[16]) {
    switch (cp) {
    case '"':
        return sprintf(out, "\\\"");
    case '\\':
        return sprintf(out, "\\\\");
    case '\n':
        return sprintf(out, "\\n");
    case '\r':
        return sprintf(out, "\\r");
    case '\t':
        return sprintf(out, "\\t");
    case '\f':
        return sprintf(out, "\\f");
    case '\b':
        return sprintf(out, "\\b");
    }
    if (cp < 0x20) return sprintf(out, "\\u%04x", cp);
    if (!ensure_ascii || cp < 0x7F) return 0;
    if (cp < 0x10000) return sprintf(out, "\\u%04x", cp);
    cp -= 0x10000;
    return sprintf(out, "\\u%04x\\u%04x", 0xD800 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
}

static bool needs_look(uint8_t c, bool ensure_ascii) {
    return c < 0x20 || c == '"' || c == '\\' || (ensure_ascii && c >= 0x7F);
}

static bool write_string(writer *w, jinja_value str) {
    if (!jinja_spend_chars(w->t.run, str.len)) return false;
    uint8_t edge = str.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER;
    put(w, "\"", edge);
    size_t done = 0;
    for (size_t i = 0; i < str.len;) {
        if (!needs_look((uint8_t)str.s[i], w->style->ensure_ascii)) {
            i++;
            continue;
        }
        uint32_t cp;
        char text[16];
        size_t n = relay_utf8_decode(str.s + i, str.len - i, &cp);
        int len = escape(cp, w->style->ensure_ascii, text);
        jinja_text_add_part(&w->t, str, done, i - done);
        jinja_text_add(&w->t, text, (size_t)len, jinja_origin_at(str, i));
        i += n;
        done = i;
    }
    jinja_text_add_part(&w->t, str, done, str.len - done);
    put(w, "\"", edge);
    return true;
}

static bool write_number(writer *w, jinja_value v) {
    char text[40];
    size_t len;
    if (v.kind == JINJA_BIGINT) {
        jinja_text_add(&w->t, v.s, v.len, v.origin);
        return true;
    }
    if (v.kind == JINJA_INT)
        len = (size_t)snprintf(text, sizeof text, "%lld", (long long)v.i);
    else if (isnan(v.f))
        len = (size_t)sprintf(text, "NaN");
    else if (isinf(v.f))
        len = (size_t)sprintf(text, v.f < 0 ? "-Infinity" : "Infinity");
    else
        len = jinja_float_repr(v.f, text);
    jinja_text_add(&w->t, text, len, v.origin);
    return true;
}

static void new_line(writer *w, uint8_t origin) {
    if (!w->style->has_indent) return;
    put(w, "\n", origin);
    for (uint32_t i = 0; i < w->level; i++)
        jinja_text_add(&w->t, w->style->indent.s, w->style->indent.len, origin);
}

// What stands between the items of a container has its origin, whoever chose the characters.
static void separate(writer *w, jinja_value separator, uint8_t origin) {
    jinja_text_add(&w->t, separator.s, separator.len, origin);
}

static bool write_list(writer *w, jinja_value v) {
    put(w, "[", v.origin);
    w->level++;
    for (uint32_t i = 0; i < v.list->n; i++) {
        if (i > 0) separate(w, w->style->item_separator, v.origin);
        new_line(w, v.origin);
        if (!write_value(w, v.list->items[i])) return false;
    }
    w->level--;
    if (v.list->n > 0) new_line(w, v.origin);
    put(w, "]", v.origin);
    return true;
}

static bool write_key(writer *w, jinja_value key) {
    switch ((jinja_kind)key.kind) {
    case JINJA_STR:
        return write_string(w, key);
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_BIGINT:
    case JINJA_FLOAT:
        put(w, "\"", key.origin);
        if (!write_value(w, key)) return false;
        put(w, "\"", key.origin);
        return true;
    default:
        return jinja_fail(w->t.run, "keys must be str, int, float, bool or None, not %s", jinja_type_name(key));
    }
}

static bool sort_keys(writer *w, const jinja_dict *d, uint32_t **order) {
    jinja_value *keys = jinja_alloc(w->t.run, d->n, sizeof *keys);
    if (keys == NULL) return false;
    for (uint32_t i = 0; i < d->n; i++)
        keys[i] = d->pairs[i].key;
    return jinja_sort(w->t.run, keys, d->n, false, order);
}

static bool write_dict(writer *w, jinja_value v) {
    uint32_t *order = NULL;
    if (w->style->sort_keys && !sort_keys(w, v.dict, &order)) return false;
    put(w, "{", v.origin);
    w->level++;
    for (uint32_t i = 0; i < v.dict->n; i++) {
        const jinja_pair *p = &v.dict->pairs[order != NULL ? order[i] : i];
        if (i > 0) separate(w, w->style->item_separator, v.origin);
        new_line(w, v.origin);
        if (!write_key(w, p->key)) return false;
        separate(w, w->style->key_separator, v.origin);
        if (!write_value(w, p->value)) return false;
    }
    w->level--;
    if (v.dict->n > 0) new_line(w, v.origin);
    put(w, "}", v.origin);
    return true;
}

static bool write_value(writer *w, jinja_value v) {
    if (!jinja_spend(w->t.run, 1)) return false;
    bool ok = true;
    switch ((jinja_kind)v.kind) {
    case JINJA_NONE:
        put(w, "null", v.origin);
        break;
    case JINJA_BOOL:
        put(w, v.b ? "true" : "false", v.origin);
        break;
    case JINJA_INT:
    case JINJA_BIGINT:
    case JINJA_FLOAT:
        ok = write_number(w, v);
        break;
    case JINJA_STR:
        ok = write_string(w, v);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        if (!jinja_enter(w->t.run)) return false;
        ok = v.kind == JINJA_DICT ? write_dict(w, v) : write_list(w, v);
        jinja_leave(w->t.run);
        break;
    default:
        return jinja_fail(w->t.run, "Object of type %s is not JSON serializable", jinja_type_name(v));
    }
    return ok && !w->t.is_failed;
}

bool jinja_to_json(jinja_run *run, jinja_value v, const jinja_json_style *style, jinja_value *out) {
    writer w = {.style = style};
    jinja_text_init(&w.t, run);
    return write_value(&w, v) && jinja_text_finish(&w.t, out);
}
