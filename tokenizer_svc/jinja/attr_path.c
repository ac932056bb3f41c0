#include "tokenizer_svc/jinja/attr_path.h"

#include "common/utf8.h"
#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/number.h"
#include "tokenizer_svc/jinja/unicode.h"

static bool is_digits(jinja_value str) {
    for (size_t i = 0; i < str.len;) {
        uint32_t cp;
        i += relay_utf8_decode(str.s + i, str.len - i, &cp);
        if (!jinja_is_digit(cp)) return false;
    }
    return str.len > 0;
}

bool jinja_attr_path_make(jinja_run *run, jinja_value attribute, jinja_attr_path *path) {
    *path = (jinja_attr_path){.otherwise = jinja_missing()};
    if (!jinja_arg_is_given(attribute)) return true;
    if (attribute.kind != JINJA_STR) {
        path->parts = jinja_alloc(run, 1, sizeof *path->parts);
        if (path->parts == NULL) return false;
        path->parts[path->n++] = attribute;
        return true;
    }
    jinja_value parts;
    if (!jinja_str_split(run, attribute, JINJA_LITERAL("."), -1, false, &parts)) return false;
    path->parts = parts.list->items;
    path->n = parts.list->n;
    for (uint32_t i = 0; i < path->n; i++) {
        int64_t index;
        if (!is_digits(path->parts[i])) continue;
        if (jinja_parse_int(path->parts[i], 10, &index) != JINJA_PARSED)
            return jinja_fail(run, "'%.*s' is no index", jinja_shown(path->parts[i].len), path->parts[i].s);
        path->parts[i] = jinja_int(index);
    }
    return true;
}

bool jinja_attr_path_get(jinja_run *run, const jinja_attr_path *path, jinja_value item, jinja_value *out) {
    for (uint32_t i = 0; i < path->n; i++) {
        jinja_value part;
        if (!jinja_spend(run, 1) || !jinja_get_item(run, item, path->parts[i], &part)) return false;
        item = part.kind == JINJA_UNDEFINED && jinja_arg_is_given(path->otherwise) ? path->otherwise : part;
    }
    *out = item;
    if (path->ignore_case && item.kind == JINJA_STR) return jinja_str_case(run, item, JINJA_LOWER, out);
    return true;
}
