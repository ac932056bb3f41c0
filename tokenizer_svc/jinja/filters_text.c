// Filters that make text of text.
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"
#include "tokenizer_svc/jinja/unicode.h"

static bool to_case(jinja_run *run, jinja_value self, const jinja_args *args, const char *what, jinja_case to,
                    jinja_value *out) {
    jinja_value str;
    return jinja_bind(run, args, what, NULL, 0, 0, NULL) && jinja_to_str(run, self, &str) &&
           jinja_str_case(run, str, to, out);
}

static bool upper(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return to_case(run, self, args, "upper", JINJA_UPPER, out);
}

static bool lower(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return to_case(run, self, args, "lower", JINJA_LOWER, out);
}

static bool capitalize(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return to_case(run, self, args, "capitalize", JINJA_CAPITALIZE, out);
}

static bool ends_word(uint32_t cp) {
    return jinja_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

// Words begin after white space, - ( { [ <: not the rule of the method of that name.
static bool title(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value str, part;
    jinja_text t;
    jinja_text_init(&t, run);
    if (!jinja_bind(run, args, "title", NULL, 0, 0, NULL) || !jinja_to_str(run, self, &str) ||
        !jinja_spend_chars(run, str.len))
        return false;
    uint32_t cp;
    for (size_t i = 0; i < str.len;) {
        size_t first = relay_utf8_decode(str.s + i, str.len - i, &cp), end = i + first;
        if (ends_word(cp)) {
            jinja_text_add_part(&t, str, i, first);
            i = end;
            continue;
        }
        while (end < str.len) {
            size_t n = relay_utf8_decode(str.s + end, str.len - end, &cp);
            if (ends_word(cp)) break;
            end += n;
        }
        if (!jinja_str_case(run, jinja_str_part(str, i, first), JINJA_UPPER, &part)) return false;
        jinja_text_add_value(&t, part);
        if (!jinja_str_case(run, jinja_str_part(str, i + first, end - i - first), JINJA_LOWER, &part)) return false;
        jinja_text_add_value(&t, part);
        i = end;
    }
    return jinja_text_finish(&t, out);
}

static bool trim(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"chars"};
    jinja_value chars, str;
    if (!jinja_bind(run, args, "trim", names, 1, 0, &chars) || !jinja_to_str(run, self, &str)) return false;
    if (jinja_arg_is_given(chars) && !jinja_arg_str(run, chars, "trim", &chars)) return false;
    return jinja_str_strip_spending(run, str, chars, JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT, out);
}

static bool replace(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"old", "new", "count"};
    jinja_value a[3], str, old, new_text;
    int64_t count;
    if (!jinja_bind(run, args, "replace", names, 3, 2, a) || !jinja_arg_int_or_none(run, a[2], "replace", -1, &count) ||
        !jinja_to_str(run, self, &str) || !jinja_to_str(run, a[0], &old) || !jinja_to_str(run, a[1], &new_text))
        return false;
    str.is_markup = false;
    return jinja_str_replace(run, str, old, new_text, count, out);
}

static bool string(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    return jinja_bind(run, args, "string", NULL, 0, 0, NULL) && jinja_to_str(run, self, out);
}

static bool safe(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    if (!jinja_bind(run, args, "safe", NULL, 0, 0, NULL) || !jinja_to_str(run, self, out)) return false;
    out->is_markup = true;
    return true;
}

static bool escape(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value str;
    return jinja_bind(run, args, "escape", NULL, 0, 0, NULL) && jinja_to_str(run, self, &str) &&
           jinja_str_escape(run, str, out);
}

static bool forceescape(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value str;
    if (!jinja_bind(run, args, "forceescape", NULL, 0, 0, NULL) || !jinja_to_str(run, self, &str)) return false;
    str.is_markup = false;
    return jinja_str_escape(run, str, out);
}

static bool format(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value str, values;
    if (args->n_pos > 0 && args->n_named > 0)
        return jinja_fail(run, "can't handle positional and keyword arguments at the same time");
    if (!jinja_to_str(run, self, &str)) return false;
    if (args->n_named == 0) {
        if (!jinja_list_wrap(run, JINJA_TUPLE, args->pos, args->n_pos, &values)) return false;
    } else {
        if (!jinja_dict_make(run, JINJA_DICT, args->n_named, &values)) return false;
        for (uint32_t i = 0; i < args->n_named; i++)
            if (!jinja_dict_append(run, values.dict, args->named[i].key, args->named[i].value)) return false;
    }
    return jinja_format_percent(run, str, values, out);
}

static bool center(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"width"};
    jinja_value width, str;
    if (!jinja_bind(run, args, "center", names, 1, 0, &width) || !jinja_to_str(run, self, &str)) return false;
    if (width.kind == JINJA_MISSING) width = jinja_int(80);
    jinja_args method_args = {.pos = &width, .n_pos = 1};
    return jinja_find_method(str, "center", 6)->call(run, str, &method_args, out);
}

// The text that indent puts before a line: so many blanks, or a string.
static bool indentation(jinja_run *run, jinja_value width, jinja_value *out) {
    int64_t n;
    *out = width;
    if (width.kind == JINJA_STR) return true;
    return jinja_arg_int(run, width, "indent", 4, &n) && jinja_str_repeat(run, JINJA_LITERAL(" "), n, out);
}

static bool indent(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"width", "first", "blank"};
    jinja_value a[3], before, str, lines;
    jinja_text t;
    if (!jinja_bind(run, args, "indent", names, 3, 0, a) || !indentation(run, a[0], &before) ||
        !jinja_arg_str(run, self, "indent", &str))
        return false;
    bool first = jinja_is_true(a[1]), blank = jinja_is_true(a[2]);
    // A line end is added before the lines are split, so that one at the end leaves an empty last line.
    jinja_value whole[2] = {str, jinja_str("\n", 1, JINJA_TEMPLATE)};
    if (!jinja_str_join(run, whole, 2, &str) || !jinja_str_splitlines(run, str, false, &lines)) return false;
    jinja_text_init(&t, run);
    if (first) jinja_text_add_value(&t, before);
    for (uint32_t i = 0; i < lines.list->n; i++) {
        jinja_value line = lines.list->items[i];
        size_t at = (size_t)(line.s - str.s);
        // The line end that stood there, with its origin; whatever it was, it becomes \n.
        if (i > 0) jinja_text_add(&t, "\n", 1, jinja_origin_at(str, at - 1));
        if (i > 0 && (blank || line.len > 0)) jinja_text_add_value(&t, before);
        jinja_text_add_value(&t, line);
    }
    if (!jinja_text_finish(&t, out)) return false;
    out->is_markup = self.is_markup;
    return true;
}

static bool truncate_args(jinja_run *run, const jinja_value a[4], int64_t *length, int64_t *leeway,
                          int64_t *end_length) {
    if (!jinja_arg_int(run, a[0], "truncate", 255, length) ||
        !jinja_arg_int_or_none(run, a[3], "truncate", 5, leeway) || !jinja_length(run, a[2], end_length))
        return false;
    if (*length < *end_length)
        return jinja_fail(run, "expected length >= %lld, got %lld", (long long)*end_length, (long long)*length);
    if (*leeway < 0) return jinja_fail(run, "expected leeway >= 0, got %lld", (long long)*leeway);
    return true;
}

static bool truncate(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"length", "killwords", "end", "leeway"};
    jinja_value a[4], parts[2];
    int64_t length, leeway, end_length, chars;
    if (!jinja_bind(run, args, "truncate", names, 4, 0, a)) return false;
    if (a[2].kind == JINJA_MISSING) a[2] = JINJA_LITERAL("...");
    if (!truncate_args(run, a, &length, &leeway, &end_length) || !jinja_length(run, self, &chars)) return false;
    *out = self; // whatever it is, if it is short
    if (leeway > chars || chars <= length + leeway) return true;
    if (!jinja_arg_str(run, self, "truncate", &parts[0]) || !jinja_arg_str(run, a[2], "truncate", &parts[1]))
        return false;
    parts[0] = jinja_str_part(parts[0], 0, jinja_str_offset(parts[0], (size_t)(length - end_length)));
    size_t space = jinja_is_true(a[1]) ? SIZE_MAX : jinja_str_rfind(parts[0], JINJA_LITERAL(" "), parts[0].len);
    if (space != SIZE_MAX) parts[0] = jinja_str_part(parts[0], 0, space);
    return jinja_binary(run, JINJA_OP_ADD, parts[0], parts[1], out);
}

static bool quote(jinja_text *t, jinja_value str, bool in_query) {
    static const char hex[] = "0123456789ABCDEF";
    if (!jinja_spend_chars(t->run, str.len)) return false;
    for (size_t i = 0; i < str.len; i++) {
        uint8_t c = (uint8_t)str.s[i];
        char escaped[3] = {'%', hex[c >> 4], hex[c & 15]};
        bool plain = (c < 0x80 && jinja_is_alpha(c)) || (c >= '0' && c <= '9') || (c != 0 && strchr("_.-~", c) != NULL);
        if (plain || (c == '/' && !in_query))
            jinja_text_add_part(t, str, i, 1);
        else if (c == ' ' && in_query)
            jinja_text_add(t, "+", 1, jinja_origin_at(str, i));
        else
            jinja_text_add(t, escaped, 3, jinja_origin_at(str, i));
    }
    return !t->is_failed;
}

static bool quote_pair(jinja_run *run, jinja_text *t, jinja_value pair) {
    jinja_value *two, str;
    uint32_t n;
    if (!jinja_items(run, pair, &two, &n)) return false;
    if (n != 2) return jinja_fail(run, "urlencode: a pair has %u items", n);
    if (t->len > 0) jinja_text_add(t, "&", 1, JINJA_TEMPLATE);
    if (!jinja_to_str(run, two[0], &str) || !quote(t, str, true)) return false;
    jinja_text_add(t, "=", 1, JINJA_TEMPLATE);
    return jinja_to_str(run, two[1], &str) && quote(t, str, true);
}

static bool urlencode(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_text t;
    jinja_text_init(&t, run);
    if (!jinja_bind(run, args, "urlencode", NULL, 0, 0, NULL)) return false;
    if (self.kind == JINJA_STR || !jinja_is_iterable(self)) {
        jinja_value str;
        return jinja_to_str(run, self, &str) && quote(&t, str, false) && jinja_text_finish(&t, out);
    }
    jinja_dict_view items = {.dict = self.dict, .of = JINJA_ITEMS};
    if (self.kind == JINJA_DICT) self = (jinja_value){.kind = JINJA_DICT_VIEW, .origin = self.origin, .view = &items};
    jinja_iter it;
    jinja_value pair;
    if (!jinja_iter_begin(run, self, &it)) return false;
    while (jinja_iter_next(&it, &pair))
        if (!quote_pair(run, &t, pair)) return false;
    return !run->has_failed && jinja_text_finish(&t, out);
}

static bool wordcount(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    jinja_value str;
    if (!jinja_bind(run, args, "wordcount", NULL, 0, 0, NULL) || !jinja_to_str(run, self, &str) ||
        !jinja_spend_chars(run, str.len))
        return false;
    int64_t n = 0;
    bool in_word = false;
    for (size_t i = 0; i < str.len;) {
        uint32_t cp;
        if (!jinja_str_next(run, str, &i, &cp)) return false;
        bool is_word = jinja_is_alpha(cp) || jinja_is_numeric(cp) || jinja_is_digit(cp) || cp == '_';
        n += is_word && !in_word;
        in_word = is_word;
    }
    *out = jinja_int(n);
    return true;
}

const jinja_builtin jinja_text_filters[] = {
    {"capitalize", capitalize},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"forceescape", forceescape},
    {"format", format},
    {"indent", indent},
    {"lower", lower},
    {"replace", replace},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", upper},
    {"urlencode", urlencode},
    {"wordcount", wordcount},
    {NULL, NULL},
};
