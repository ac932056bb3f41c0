// Filters of single values: defaults, numbers, JSON.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_svc/jinja/builtins.h"
#include "tokenizer_svc/jinja/eval.h"
#include "tokenizer_svc/jinja/iterate.h"
#include "tokenizer_svc/jinja/number.h"

static bool default_value(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"default_value", "boolean"};
    jinja_value a[2];
    if (!jinja_bind(run, args, "default", names, 2, 0, a)) return false;
    if (a[0].kind == JINJA_MISSING) a[0] = JINJA_LITERAL("");
    bool use_default = self.kind == JINJA_UNDEFINED || (jinja_is_true(a[1]) && !jinja_is_true(self));
    *out = use_default ? a[0] : self;
    return true;
}

static bool length(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    int64_t n;
    if (!jinja_bind(run, args, "length", NULL, 0, 0, NULL) || !jinja_length(run, self, &n)) return false;
    *out = jinja_int(n);
    out->origin = self.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER;
    return true;
}

static bool attr(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"name"};
    jinja_value name;
    if (!jinja_bind(run, args, "attr", names, 1, 1, &name) || !jinja_arg_str(run, name, "attr", &name)) return false;
    if (self.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, self);
    if (!jinja_find_attr(run, self, name.s, name.len, out)) return false;
    if (out->kind == JINJA_MISSING) *out = jinja_undefined_hint("an attribute that is not there", 30);
    return true;
}

static bool absolute(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    if (!jinja_bind(run, args, "abs", NULL, 0, 0, NULL)) return false;
    if (self.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, self);
    if (!jinja_is_number(self)) return jinja_fail(run, "bad operand type for abs(): '%s'", jinja_type_name(self));
    if (jinja_as_float(self) < 0) return jinja_unary(run, JINJA_OP_SUB, self, out);
    *out = self.kind == JINJA_FLOAT ? jinja_float(fabs(self.f)) : jinja_int(jinja_as_int(self));
    out->origin = self.origin;
    return true;
}

// int(), then int(float()): what `int` tries. *done says whether one of them worked.
static bool to_int(jinja_run *run, jinja_value v, int64_t base, jinja_value *out, bool *done) {
    double f;
    *done = true;
    if (v.kind == JINJA_BIGINT) {
        *out = v;
        return true;
    }
    if (v.kind == JINJA_STR) {
        int64_t i;
        if (!jinja_spend_chars(run, v.len)) return false;
        jinja_parsed parsed = jinja_parse_int(v, base, &i);
        if (parsed == JINJA_PARSE_TOO_LARGE) return jinja_fail(run, "an integer beyond 64 bits");
        if (parsed == JINJA_PARSED) {
            *out = jinja_int(i);
            return true;
        }
        *done = jinja_parse_float(v, &f);
        if (!*done) return true;
    } else if (jinja_is_integer(v)) {
        *out = jinja_int(jinja_as_int(v));
        return true;
    } else if (v.kind == JINJA_FLOAT) {
        f = v.f;
        if (isinf(f)) return jinja_fail(run, "cannot convert float infinity to integer");
    } else {
        *done = false;
        return true;
    }
    if (isnan(f) || isinf(f)) {
        *done = false;
        return true;
    }
    if (fabs(f) >= 9223372036854775808.0) return jinja_fail(run, "an integer beyond 64 bits");
    *out = jinja_int((int64_t)f);
    return true;
}

static bool integer(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"default", "base"};
    jinja_value a[2];
    int64_t base;
    bool done;
    if (!jinja_bind(run, args, "int", names, 2, 0, a) || !jinja_arg_int(run, a[1], "int", 10, &base)) return false;
    if (self.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, self);
    if (!to_int(run, self, base, out, &done)) return false;
    if (!done) *out = a[0].kind != JINJA_MISSING ? a[0] : jinja_int(0);
    if (done) out->origin = self.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER;
    return true;
}

static bool floating(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"default"};
    jinja_value otherwise;
    double f;
    if (!jinja_bind(run, args, "float", names, 1, 0, &otherwise)) return false;
    if (self.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, self);
    if (jinja_is_number(self))
        *out = jinja_float(jinja_as_float(self));
    else if (!jinja_spend_chars(run, self.kind == JINJA_STR ? self.len : 0))
        return false;
    else if (self.kind == JINJA_STR && jinja_parse_float(self, &f))
        *out = jinja_float(f);
    else if (self.kind == JINJA_BIGINT)
        *out = jinja_float(strtod(self.s, NULL)); // its digits end where the JSON goes on with no digit
    else
        *out = otherwise.kind != JINJA_MISSING ? otherwise : jinja_float(0);
    if (out->kind == JINJA_FLOAT) out->origin = self.origin == JINJA_TEMPLATE ? JINJA_TEMPLATE : JINJA_CALLER;
    return true;
}

static double round_float(double f, int64_t precision) {
    char text[400];
    if (precision >= 0) { // the decimal that is nearest to the exact value, ties to even
        if (precision > 30) return f;
        snprintf(text, sizeof text, "%.*f", (int)precision, f);
        return strtod(text, NULL);
    }
    if (precision < -308) return copysign(0, f);
    double power = pow(10, (double)-precision);
    return nearbyint(f / power) * power;
}

static int64_t round_int(int64_t i, int64_t precision) {
    if (precision >= 0) return i;
    if (precision < -18) return 0;
    int64_t power = 1;
    while (precision++ < 0)
        power *= 10;
    int64_t rest = i % power, whole = i - rest;
    if (rest < 0) {
        rest += power;
        whole -= power;
    }
    bool up = rest > power - rest || (rest == power - rest && (whole / power) % 2 != 0);
    return up ? whole + power : whole;
}

static bool round_number(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"precision", "method"};
    jinja_value a[2], method = JINJA_LITERAL("common");
    int64_t precision;
    if (!jinja_bind(run, args, "round", names, 2, 0, a) || !jinja_arg_int_or_none(run, a[0], "round", 0, &precision) ||
        (a[1].kind != JINJA_MISSING && !jinja_arg_str(run, a[1], "round", &method)))
        return false;
    bool is_ceil = jinja_is_str(method, "ceil", 4), is_floor = jinja_is_str(method, "floor", 5);
    if (!is_ceil && !is_floor && !jinja_is_str(method, "common", 6))
        return jinja_fail(run, "method must be common, ceil or floor");
    if (self.kind == JINJA_UNDEFINED) return jinja_fail_undefined(run, self);
    if (!jinja_is_number(self)) return jinja_fail(run, "type %s doesn't define round", jinja_type_name(self));
    if (a[0].kind == JINJA_NONE) { // Python's round() to an integer; math.ceil takes none
        if (is_ceil || is_floor) return jinja_fail(run, "a precision that is None");
        if (self.kind == JINJA_FLOAT) self.f = nearbyint(self.f);
        bool done;
        if (!to_int(run, self, 10, out, &done)) return false;
        if (!done) return jinja_fail(run, "cannot convert float NaN to integer");
    } else if (is_ceil || is_floor) {
        double power = pow(10, (double)precision), f = jinja_as_float(self) * power;
        *out = jinja_float((is_ceil ? ceil(f) : floor(f)) / power);
    } else if (self.kind == JINJA_FLOAT) {
        *out = jinja_float(round_float(self.f, precision));
    } else {
        *out = jinja_int(round_int(jinja_as_int(self), precision));
    }
    out->origin = self.origin;
    return true;
}

static bool json_separators(jinja_run *run, jinja_value v, jinja_json_style *style) {
    jinja_value *two;
    uint32_t n;
    if (!jinja_arg_is_given(v)) return true;
    if (!jinja_items(run, v, &two, &n)) return false;
    if (n != 2 || two[0].kind != JINJA_STR || two[1].kind != JINJA_STR)
        return jinja_fail(run, "tojson: separators must be two strings");
    style->item_separator = two[0];
    style->key_separator = two[1];
    return true;
}

static bool json_indent(jinja_run *run, jinja_value v, jinja_json_style *style) {
    int64_t n;
    style->has_indent = jinja_arg_is_given(v);
    if (!style->has_indent) return true;
    style->item_separator = JINJA_LITERAL(",");
    style->indent = v;
    if (v.kind == JINJA_STR) return true;
    return jinja_arg_int(run, v, "tojson", 0, &n) && jinja_str_repeat(run, JINJA_LITERAL(" "), n, &style->indent);
}

static bool tojson(jinja_run *run, jinja_value self, const jinja_args *args, jinja_value *out) {
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    jinja_value a[4];
    if (!jinja_bind(run, args, "tojson", names, 4, 0, a)) return false;
    jinja_json_style style = {
        .ensure_ascii = jinja_is_true(a[0]),
        .sort_keys = jinja_is_true(a[3]),
        .item_separator = JINJA_LITERAL(", "),
        .key_separator = JINJA_LITERAL(": "),
    };
    // json.dumps does not look at the indentation of a string.
    return (self.kind == JINJA_STR || json_indent(run, a[1], &style)) && json_separators(run, a[2], &style) &&
           jinja_to_json(run, self, &style, out);
}

const jinja_builtin jinja_value_filters[] = {
    {"abs", absolute},          {"attr", attr},      {"count", length}, {"d", default_value},
    {"default", default_value}, {"float", floating}, {"int", integer},  {"length", length},
    {"round", round_number},    {"tojson", tojson},  {NULL, NULL},
};
