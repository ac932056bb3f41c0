// "%s" % values and "{}".format(values).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/format_spec.h"
#include "tokenizer_svc/jinja/number.h"

// ---- %

typedef struct percent {
    jinja_run *run;
    jinja_value format;
    jinja_value values; // a tuple, a mapping, or the only value
    uint32_t used;
    size_t at; // in the format
    jinja_text t;
} percent;

static bool next_value(percent *p, jinja_value *v) {
    bool is_tuple = p->values.kind == JINJA_TUPLE;
    if (p->used >= (is_tuple ? p->values.list->n : 1))
        return jinja_fail(p->run, "not enough arguments for format string");
    *v = is_tuple ? p->values.list->items[p->used] : p->values;
    p->used++;
    return true;
}

// A number in the format, or * for the next value.
static bool percent_count(percent *p, int limit, int *out) {
    int64_t n = 0;
    const char *s = p->format.s;
    if (p->at < p->format.len && s[p->at] == '*') {
        jinja_value v;
        p->at++;
        if (!next_value(p, &v) || !jinja_is_integer(v)) return jinja_fail(p->run, "* wants int");
        n = jinja_as_int(v);
    } else {
        while (p->at < p->format.len && s[p->at] >= '0' && s[p->at] <= '9' && n <= limit)
            n = n * 10 + (s[p->at++] - '0');
    }
    if (n > limit || n < -limit) return jinja_fail(p->run, "a width or precision of more than %d in a format", limit);
    *out = (int)n;
    return true;
}

static void percent_flags(percent *p, jinja_format_spec *spec) {
    bool zero = false, left = false;
    for (; p->at < p->format.len; p->at++) {
        switch (p->format.s[p->at]) {
        case '-':
            left = true;
            continue;
        case '+':
            spec->sign = '+';
            continue;
        case ' ':
            if (spec->sign != '+') spec->sign = ' ';
            continue;
        case '#':
            spec->alternate = true;
            continue;
        case '0':
            zero = true;
            continue;
        }
        break;
    }
    spec->align = left ? '<' : zero ? '=' : '>';
    if (zero && !left) spec->fill = JINJA_LITERAL("0");
}

static bool percent_str(percent *p, jinja_value v, jinja_format_spec *spec) {
    jinja_value str;
    jinja_text t;
    jinja_text_init(&t, p->run);
    if (spec->type == 's') {
        if (!jinja_to_str(p->run, v, &str)) return false;
    } else if (!jinja_add_repr(&t, v) || !jinja_text_finish(&t, &str)) {
        return false;
    }
    if (p->format.is_markup && !jinja_str_escape(p->run, str, &str)) return false;
    if (spec->align == '=') { // zeros are for numbers
        spec->align = '>';
        spec->fill = JINJA_LITERAL(" ");
    }
    return jinja_format_str(&p->t, str, spec);
}

static bool percent_int(percent *p, jinja_value v, jinja_format_spec *spec) {
    char type = spec->type;
    if (v.kind == JINJA_FLOAT && (type == 'd' || type == 'i' || type == 'u')) {
        if (!(fabs(v.f) < 9223372036854775808.0)) return jinja_fail(p->run, "an integer beyond 64 bits");
        uint8_t origin = v.origin;
        v = jinja_int((int64_t)v.f);
        v.origin = origin;
    }
    if (!jinja_is_integer(v))
        return jinja_fail(p->run, "%%%c format: %s is required, not %s", type,
                          type == 'd' || type == 'i' || type == 'u' ? "a real number" : "an integer",
                          jinja_type_name(v));
    if (type == 'i' || type == 'u') spec->type = 'd';
    int digits = spec->precision; // at least so many
    spec->precision = -1;
    if (digits <= 0) return jinja_format_int(&p->t, jinja_as_int(v), spec, v.origin);
    jinja_format_spec inner = *spec;
    inner.fill = JINJA_LITERAL("0");
    inner.align = '=';
    inner.width = digits + (jinja_as_int(v) < 0 || spec->sign != '-') + (spec->alternate && spec->type != 'd' ? 2 : 0);
    jinja_text t;
    jinja_value str;
    jinja_text_init(&t, p->run);
    if (!jinja_format_int(&t, jinja_as_int(v), &inner, v.origin) || !jinja_text_finish(&t, &str)) return false;
    return jinja_format_str(&p->t, str, spec);
}

static bool percent_value(percent *p, jinja_value v, jinja_format_spec *spec) {
    switch (spec->type) {
    case 's':
    case 'r':
    case 'a':
        return percent_str(p, v, spec);
    case 'd':
    case 'i':
    case 'u':
    case 'o':
    case 'x':
    case 'X':
        if (v.kind == JINJA_UNDEFINED) return jinja_fail_undefined(p->run, v);
        return percent_int(p, v, spec);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (v.kind == JINJA_UNDEFINED) return jinja_fail_undefined(p->run, v);
        if (!jinja_is_number(v)) return jinja_fail(p->run, "must be real number, not %s", jinja_type_name(v));
        return jinja_format_float(&p->t, jinja_as_float(v), spec, v.origin);
    case 'c':
        if (spec->align == '=') spec->align = '>';
        if (v.kind == JINJA_STR && jinja_str_chars(v) == 1) return jinja_format_str(&p->t, v, spec);
        if (!jinja_is_integer(v)) return jinja_fail(p->run, "%%c requires int or char");
        return jinja_format_int(&p->t, jinja_as_int(v), spec, v.origin);
    default:
        return jinja_fail(p->run, "unsupported format character '%c'", spec->type);
    }
}

// %(name)...: the value of that key.
static bool percent_key(percent *p, jinja_value *v) {
    size_t begin = ++p->at, depth = 1;
    for (; p->at < p->format.len && depth > 0; p->at++)
        depth += (p->format.s[p->at] == '(') - (p->format.s[p->at] == ')');
    if (depth > 0) return jinja_fail(p->run, "incomplete format key");
    if (p->values.kind != JINJA_DICT) return jinja_fail(p->run, "format requires a mapping");
    jinja_value *found;
    size_t len = p->at - 1 - begin;
    if (!jinja_dict_get_text(p->run, p->values.dict, p->format.s + begin, len, &found)) return false;
    if (found == NULL) return jinja_fail(p->run, "no key '%.*s' for a format", jinja_shown(len), p->format.s + begin);
    *v = *found;
    return true;
}

static bool percent_directive(percent *p) {
    jinja_format_spec spec = JINJA_FORMAT_SPEC_DEFAULT;
    jinja_value v = jinja_missing();
    const char *s = p->format.s;
    if (p->at < p->format.len && s[p->at] == '(' && !percent_key(p, &v)) return false;
    percent_flags(p, &spec);
    if (!percent_count(p, JINJA_FORMAT_MAX_WIDTH, &spec.width)) return false;
    if (spec.width < 0) {
        spec.align = '<';
        spec.width = -spec.width;
        spec.fill = JINJA_LITERAL(" ");
    }
    if (p->at < p->format.len && s[p->at] == '.') {
        p->at++;
        if (!percent_count(p, JINJA_FORMAT_MAX_PRECISION, &spec.precision)) return false;
        if (spec.precision < 0) spec.precision = 0;
    }
    while (p->at < p->format.len && strchr("hlL", s[p->at]) != NULL)
        p->at++;
    if (p->at >= p->format.len) return jinja_fail(p->run, "incomplete format");
    spec.type = s[p->at++];
    if (spec.type == '%') {
        jinja_text_add_part(&p->t, p->format, p->at - 1, 1);
        return true;
    }
    if (v.kind == JINJA_MISSING && !next_value(p, &v)) return false;
    return percent_value(p, v, &spec);
}

bool jinja_format_percent(jinja_run *run, jinja_value format, jinja_value values, jinja_value *out) {
    percent p = {.run = run, .format = format, .values = values};
    jinja_text_init(&p.t, run);
    while (p.at < format.len) {
        const char *sign = memchr(format.s + p.at, '%', format.len - p.at);
        size_t end = sign == NULL ? format.len : (size_t)(sign - format.s);
        jinja_text_add_part(&p.t, format, p.at, end - p.at);
        p.at = end + 1;
        if (sign != NULL && !percent_directive(&p)) return false;
    }
    // What has items may stay unread: it could be a mapping.
    bool may_stay = values.kind == JINJA_DICT || values.kind == JINJA_LIST || values.kind == JINJA_RANGE ||
                    values.kind == JINJA_UNDEFINED;
    if (p.used < (values.kind == JINJA_TUPLE ? values.list->n : may_stay ? 0 : 1))
        return jinja_fail(run, "not all arguments converted during string formatting");
    if (!jinja_text_finish(&p.t, out)) return false;
    out->is_markup = format.is_markup;
    return true;
}

// ---- {}

typedef struct braces {
    jinja_run *run;
    const jinja_args *args;
    int64_t next; // automatic number, -1 once a field has a number
    bool is_markup;
} braces;

static bool format_text(braces *b, jinja_value format, uint32_t depth, jinja_text *t);

static bool braces_first(braces *b, jinja_value name, jinja_value *v) {
    int64_t index;
    bool is_number = name.len == 0;
    if (name.len == 0) {
        if (b->next < 0)
            return jinja_fail(b->run, "cannot switch from manual field specification to automatic field numbering");
        index = b->next++;
    } else if (name.s[0] >= '0' && name.s[0] <= '9' && jinja_parse_int(name, 10, &index) == JINJA_PARSED) {
        if (b->next > 0)
            return jinja_fail(b->run, "cannot switch from automatic field numbering to manual field specification");
        b->next = -1;
        is_number = true;
    }
    if (is_number) {
        if (index >= b->args->n_pos)
            return jinja_fail(b->run, "Replacement index %lld out of range for positional args tuple",
                              (long long)index);
        *v = b->args->pos[index];
        return true;
    }
    for (uint32_t i = 0; i < b->args->n_named; i++) {
        if (!jinja_is_str(b->args->named[i].key, name.s, name.len)) continue;
        *v = b->args->named[i].value;
        return true;
    }
    return jinja_fail(b->run, "no argument '%.*s' for a format", jinja_shown(name.len), name.s);
}

// name.attribute[item]...
static bool braces_lookup(braces *b, jinja_value name, jinja_value *v) {
    size_t at = 0;
    while (at < name.len && name.s[at] != '.' && name.s[at] != '[')
        at++;
    if (!braces_first(b, jinja_str_part(name, 0, at), v)) return false;
    while (at < name.len) {
        bool is_item = name.s[at] == '[';
        size_t begin = ++at;
        while (at < name.len && (is_item ? name.s[at] != ']' : name.s[at] != '.' && name.s[at] != '['))
            at++;
        if (is_item && at >= name.len) return jinja_fail(b->run, "expected '}' before end of string");
        jinja_value part = jinja_str_part(name, begin, at - begin), object = *v;
        int64_t index;
        if (part.len == 0) return jinja_fail(b->run, "Empty attribute in format string");
        if (!is_item) {
            if (!jinja_get_attr(b->run, object, part.s, part.len, v)) return false;
            continue;
        }
        at++;
        bool is_index = part.s[0] >= '0' && part.s[0] <= '9' && jinja_parse_int(part, 10, &index) == JINJA_PARSED;
        if (!jinja_get_item(b->run, object, is_index ? jinja_int(index) : part, v)) return false;
    }
    return true;
}

static bool braces_field(braces *b, jinja_value name, char conversion, jinja_value spec_text, uint32_t depth,
                         jinja_text *t) {
    jinja_value v, spec_value;
    jinja_format_spec spec;
    jinja_text text;
    if (!braces_lookup(b, name, &v)) return false;
    if (conversion == 's' && !jinja_to_str(b->run, v, &v)) return false;
    if (conversion == 'r' || conversion == 'a') {
        jinja_text_init(&text, b->run);
        if (!jinja_add_repr(&text, v) || !jinja_text_finish(&text, &v)) return false;
    }
    jinja_text_init(&text, b->run);
    if (!format_text(b, spec_text, depth + 1, &text) || !jinja_text_finish(&text, &spec_value) ||
        !jinja_format_spec_parse(b->run, spec_value, &spec))
        return false;
    if (!b->is_markup) return jinja_format_value(t, v, &spec);
    jinja_text_init(&text, b->run);
    jinja_value formatted;
    bool was_markup = v.kind == JINJA_STR && v.is_markup;
    if (!jinja_format_value(&text, v, &spec) || !jinja_text_finish(&text, &formatted)) return false;
    if (!was_markup && !jinja_str_escape(b->run, formatted, &formatted)) return false;
    jinja_text_add_value(t, formatted);
    return !t->is_failed;
}

// The field whose opening brace is at *at - 1.
static bool braces_replacement(braces *b, jinja_value format, size_t *at, uint32_t depth, jinja_text *t) {
    size_t begin = *at, nested = 1, end = begin, name_end = SIZE_MAX;
    for (; end < format.len && nested > 0; end++) {
        char c = format.s[end];
        nested += (c == '{') - (c == '}');
        if (name_end == SIZE_MAX && nested == 1 && (c == '!' || c == ':')) name_end = end;
    }
    if (nested > 0) return jinja_fail(b->run, "expected '}' before end of string");
    *at = end--;
    if (name_end == SIZE_MAX) name_end = end;
    size_t spec = name_end;
    char conversion = 0;
    if (spec < end && format.s[spec] == '!') {
        conversion = spec + 1 < end ? format.s[spec + 1] : 0;
        if (conversion == 0 || strchr("sra", conversion) == NULL)
            return jinja_fail(b->run, "a conversion that is not !s, !r or !a");
        spec += 2;
        if (spec < end && format.s[spec] != ':') return jinja_fail(b->run, "expected ':' after conversion specifier");
    }
    if (spec < end) spec++;
    return braces_field(b, jinja_str_part(format, begin, name_end - begin), conversion,
                        jinja_str_part(format, spec, end - spec), depth, t);
}

static bool format_text(braces *b, jinja_value format, uint32_t depth, jinja_text *t) {
    if (depth > 2) return jinja_fail(b->run, "Max string recursion exceeded");
    for (size_t at = 0; at < format.len;) {
        char c = format.s[at];
        if (c != '{' && c != '}') {
            size_t end = at;
            while (end < format.len && format.s[end] != '{' && format.s[end] != '}')
                end++;
            jinja_text_add_part(t, format, at, end - at);
            at = end;
            continue;
        }
        if (at + 1 < format.len && format.s[at + 1] == c) {
            jinja_text_add_part(t, format, at, 1);
            at += 2;
            continue;
        }
        if (c == '}') return jinja_fail(b->run, "Single '}' encountered in format string");
        if (at + 1 == format.len) return jinja_fail(b->run, "Single '{' encountered in format string");
        at++;
        if (!braces_replacement(b, format, &at, depth, t)) return false;
    }
    return !t->is_failed;
}

bool jinja_format_braces(jinja_run *run, jinja_value format, const jinja_args *args, jinja_value *out) {
    braces b = {.run = run, .args = args, .is_markup = format.is_markup};
    jinja_text t;
    jinja_text_init(&t, run);
    if (!format_text(&b, format, 0, &t) || !jinja_text_finish(&t, out)) return false;
    out->is_markup = format.is_markup;
    return true;
}
