#include "tokenizer_svc/jinja/format_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/run.h"

// A double with the largest precision, every digit of its whole part, and a separator for three of them.
enum { MAX_NUMBER = 320 * 4 / 3 + JINJA_FORMAT_MAX_PRECISION + 16 };

// ---- parsing

static bool is_align(char c) {
    return c == '<' || c == '>' || c == '=' || c == '^';
}

static bool parse_count(jinja_run *run, jinja_value text, size_t *at, int limit, int *out) {
    int64_t n = 0;
    while (*at < text.len && text.s[*at] >= '0' && text.s[*at] <= '9') {
        n = n * 10 + (text.s[(*at)++] - '0');
        if (n > limit) return jinja_fail(run, "a width or precision of more than %d in a format", limit);
    }
    *out = (int)n;
    return true;
}

bool jinja_format_spec_parse(jinja_run *run, jinja_value text, jinja_format_spec *spec) {
    size_t at = 0, first = 0;
    uint32_t cp;
    *spec = JINJA_FORMAT_SPEC_DEFAULT;
    if (text.len > 0) first = relay_utf8_decode(text.s, text.len, &cp);
    if (text.len > first && is_align(text.s[first])) {
        spec->fill = jinja_str_part(text, 0, first);
        spec->align = text.s[first];
        at = first + 1;
    } else if (text.len > 0 && is_align(text.s[0])) {
        spec->align = text.s[at++];
    }
    bool has_fill = at > 1;
    if (at < text.len && strchr("+- ", text.s[at]) != NULL) spec->sign = text.s[at++];
    if (at < text.len && text.s[at] == '#') {
        spec->alternate = true;
        at++;
    }
    if (at < text.len && text.s[at] == '0' && !has_fill) {
        spec->fill = jinja_str_part(text, at, 1);
        if (spec->align == 0) spec->align = '='; // for text: to the left
        at++;
    }
    if (!parse_count(run, text, &at, JINJA_FORMAT_MAX_WIDTH, &spec->width)) return false;
    if (at < text.len && (text.s[at] == ',' || text.s[at] == '_')) spec->grouping = text.s[at++];
    if (at < text.len && text.s[at] == '.') {
        size_t digits = ++at;
        if (!parse_count(run, text, &at, JINJA_FORMAT_MAX_PRECISION, &spec->precision)) return false;
        if (at == digits) return jinja_fail(run, "Format specifier missing precision");
    }
    if (at < text.len && (uint8_t)text.s[at] < 0x80) spec->type = text.s[at++];
    if (at < text.len) return jinja_fail(run, "Invalid format specifier '%.*s'", jinja_shown(text.len), text.s);
    return true;
}

// ---- padding

// Text of `chars` characters, its sign or prefix first, padded to the width.
static void add_padded(jinja_text *t, jinja_value prefix, jinja_value body, const jinja_format_spec *spec, char align) {
    int64_t chars = (int64_t)(jinja_str_chars(prefix) + jinja_str_chars(body));
    size_t missing = spec->width > chars ? (size_t)(spec->width - chars) : 0;
    size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    jinja_text_fill(t, spec->fill, left);
    jinja_text_add_value(t, prefix);
    if (align == '=') {
        jinja_text_fill(t, spec->fill, missing);
        left = missing;
    }
    jinja_text_add_value(t, body);
    jinja_text_fill(t, spec->fill, missing - left);
}

bool jinja_format_str(jinja_text *t, jinja_value str, const jinja_format_spec *spec) {
    if (spec->precision >= 0) str = jinja_str_part(str, 0, jinja_str_offset(str, (size_t)spec->precision));
    char align = spec->align == 0 || spec->align == '=' ? '<' : spec->align;
    add_padded(t, JINJA_LITERAL(""), str, spec, align);
    return !t->is_failed;
}

// ---- numbers

// Puts the separator between groups of digits of a whole number, in place; `text` has room.
static size_t group_digits(char *text, size_t len, char separator, size_t size) {
    size_t whole = 0;
    while (whole < len && strchr("0123456789abcdefABCDEF", text[whole]) != NULL)
        whole++;
    if (whole == 0) return len;
    size_t n = (whole - 1) / size;
    memmove(text + whole + n, text + whole, len - whole);
    for (size_t from = whole, to = whole + n, in_group = 0; from > 0;) {
        if (in_group++ == size) {
            text[--to] = separator;
            in_group = 1;
        }
        text[--to] = text[--from];
    }
    return len + n;
}

// Zeros on the left are digits too where digits are grouped: they get separators.
static size_t pad_grouped(char *text, size_t len, size_t cap, int width, size_t prefix, char separator) {
    size_t bare = 0;
    for (size_t i = 0; i < len; i++)
        if (text[i] != separator) text[bare++] = text[i];
    size_t grouped = len;
    while (prefix + grouped < (size_t)width && bare + 1 < cap / 2) {
        memmove(text + 1, text, bare++);
        text[0] = '0';
        size_t whole = 0;
        while (whole < bare && text[whole] >= '0' && text[whole] <= '9')
            whole++;
        grouped = bare + (whole - 1) / 3;
    }
    return group_digits(text, bare, separator, 3);
}

static bool add_number(jinja_text *t, bool is_negative, const char *base_prefix, char *digits, size_t len, size_t cap,
                       const jinja_format_spec *spec, size_t group, uint8_t origin) {
    char prefix[4];
    size_t n = 0;
    if (is_negative)
        prefix[n++] = '-';
    else if (spec->sign == '+' || spec->sign == ' ')
        prefix[n++] = spec->sign;
    for (; *base_prefix != 0; base_prefix++)
        prefix[n++] = *base_prefix;
    if (spec->grouping != 0) {
        len = group_digits(digits, len, spec->grouping, group);
        bool zeros = spec->align == '=' && jinja_is_str(spec->fill, "0", 1) && group == 3;
        if (zeros && spec->width < (int)(cap / 2)) len = pad_grouped(digits, len, cap, spec->width, n, spec->grouping);
    }
    add_padded(t, jinja_str(prefix, n, origin), jinja_str(digits, len, origin), spec,
               spec->align == 0 ? '>' : spec->align);
    return !t->is_failed;
}

bool jinja_format_int(jinja_text *t, int64_t i, const jinja_format_spec *spec, uint8_t origin) {
    char digits[MAX_NUMBER];
    uint64_t magnitude = i < 0 ? -(uint64_t)i : (uint64_t)i;
    if (spec->precision >= 0) return jinja_fail(t->run, "Precision not allowed in integer format specifier");
    const char *prefix = "";
    size_t len = 0;
    switch (spec->type) {
    case 0:
    case 'd':
    case 'n':
        len = (size_t)sprintf(digits, "%llu", (unsigned long long)magnitude);
        return add_number(t, i < 0, "", digits, len, sizeof digits, spec, 3, origin);
    case 'x':
        prefix = "0x";
        len = (size_t)sprintf(digits, "%llx", (unsigned long long)magnitude);
        break;
    case 'X':
        prefix = "0X";
        len = (size_t)sprintf(digits, "%llX", (unsigned long long)magnitude);
        break;
    case 'o':
        prefix = "0o";
        len = (size_t)sprintf(digits, "%llo", (unsigned long long)magnitude);
        break;
    case 'b':
        prefix = "0b";
        for (int bit = 63; bit >= 0; bit--)
            if (len > 0 || bit == 0 || (magnitude >> bit & 1) != 0)
                digits[len++] = (char)('0' + (magnitude >> bit & 1));
        break;
    case 'c': {
        if (i < 0 || i > 0x10FFFF || (i >= 0xD800 && i <= 0xDFFF)) return jinja_fail(t->run, "%%c arg not in range");
        char utf8[4];
        return jinja_format_str(t, jinja_str(utf8, relay_utf8_encode((uint32_t)i, utf8), origin), spec);
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case '%':
        return jinja_format_float(t, (double)i, spec, origin);
    default:
        return jinja_fail(t->run, "Unknown format code '%c' for object of type 'int'", spec->type);
    }
    return add_number(t, i < 0, spec->alternate ? prefix : "", digits, len, sizeof digits, spec, 4, origin);
}

// Without a type a float is repr's, or with a precision like g but with a digit behind the point.
static size_t general_float(double f, int precision, char *out) {
    if (precision < 0) return jinja_float_repr(f, out);
    size_t len = (size_t)sprintf(out, "%.*g", precision == 0 ? 1 : precision, f);
    if (strpbrk(out, ".e") != NULL || precision == 0) return len;
    if (len >= (size_t)precision) return (size_t)sprintf(out, "%.*e", precision - 1, f);
    return len + (size_t)sprintf(out + len, ".0");
}

bool jinja_format_float(jinja_text *t, double f, const jinja_format_spec *spec, uint8_t origin) {
    char digits[MAX_NUMBER];
    bool is_negative = signbit(f) && !isnan(f);
    double magnitude = isnan(f) ? f : fabs(f);
    int precision = spec->precision < 0 ? 6 : spec->precision;
    size_t len;
    if (strchr("eEfFgG%n", spec->type) == NULL && spec->type != 0)
        return jinja_fail(t->run, "Unknown format code '%c' for object of type 'float'", spec->type);
    if (isnan(f) || isinf(f)) {
        bool upper = spec->type == 'E' || spec->type == 'F' || spec->type == 'G';
        len = (size_t)sprintf(digits, "%s%s", isnan(f) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf"),
                              spec->type == '%' ? "%" : "");
        add_padded(t, JINJA_LITERAL(""), jinja_str(is_negative ? "-" : "", is_negative, origin),
                   &JINJA_FORMAT_SPEC_DEFAULT, '<');
        jinja_text_add(t, digits, len, origin);
        return !t->is_failed;
    }
    switch (spec->type) {
    case 0:
        len = general_float(magnitude, spec->precision, digits);
        break;
    case '%':
        len =
            (size_t)snprintf(digits, sizeof digits, spec->alternate ? "%#.*f%%" : "%.*f%%", precision, magnitude * 100);
        break;
    case 'n':
        len = (size_t)snprintf(digits, sizeof digits, spec->alternate ? "%#.*g" : "%.*g", precision, magnitude);
        break;
    default: {
        char format[8];
        snprintf(format, sizeof format, spec->alternate ? "%%#.*%c" : "%%.*%c", spec->type);
        len = (size_t)snprintf(digits, sizeof digits, format, precision, magnitude);
    }
    }
    return add_number(t, is_negative, "", digits, len, sizeof digits, spec, 3, origin);
}

static bool is_plain(const jinja_format_spec *s) {
    return s->align == 0 && s->sign == '-' && !s->alternate && s->grouping == 0 && s->width == 0 && s->precision < 0 &&
           s->type == 0;
}

bool jinja_format_value(jinja_text *t, jinja_value v, const jinja_format_spec *spec) {
    if (is_plain(spec)) return jinja_add_str(t, v);
    switch ((jinja_kind)v.kind) {
    case JINJA_STR:
        if (spec->type != 0 && spec->type != 's')
            return jinja_fail(t->run, "Unknown format code '%c' for object of type 'str'", spec->type);
        return jinja_format_str(t, v, spec);
    case JINJA_BOOL:
    case JINJA_INT:
        return jinja_format_int(t, jinja_as_int(v), spec, v.origin);
    case JINJA_FLOAT:
        return jinja_format_float(t, v.f, spec, v.origin);
    default:
        return jinja_fail(t->run, "unsupported format string passed to %s.__format__", jinja_type_name(v));
    }
}
