#include "model_svc/constraint/json_text.h"

#include <stdio.h>
#include <string.h>

#include "common/buf.h"
#include "model_svc/constraint/code_set.h"

enum { MAX_INDENT = 20, MAX_EXPONENT_DIGITS = 3 };

relay_expr relay_json_digits(relay_grammar *g, uint32_t min, uint32_t max) {
    return relay_expr_repeat(g, relay_expr_bytes(g, '0', '9'), min, max);
}

// ---- Strings

// RFC 8259, section 7: the escape of a character that must have one; 0 where it is \u00xx.
static char short_escape(uint32_t c) {
    switch (c) {
    case '"':
        return '"';
    case '\\':
        return '\\';
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return 0;
    }
}

static relay_expr escaped(relay_grammar *g, uint32_t c) {
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', short_escape(c)};
    if (text[1] != 0) return relay_expr_text(g, text, 2);
    memcpy(text, "\\u00", 4);
    text[4] = hex[c / 16];
    text[5] = hex[c % 16];
    return relay_expr_text(g, text, 6);
}

static bool needs_escape(uint32_t c) {
    return c < 0x20 || c == '"' || c == '\\';
}

static bool holds(const relay_code_range *ranges, uint32_t n, uint32_t c) {
    for (uint32_t i = 0; i < n; i++) {
        if (ranges[i].first <= c && c <= ranges[i].last) return true;
    }
    return false;
}

// As themselves but for those that are escaped.
static relay_expr plain_chars(relay_grammar *g, const relay_code_range *ranges, uint32_t n, bool is_negated) {
    relay_code_set others = {0}; // that are not to be matched
    relay_code_set_add(&others, 0, 0x1F);
    relay_code_set_add(&others, '"', '"');
    relay_code_set_add(&others, '\\', '\\');
    if (is_negated) {
        for (uint32_t i = 0; i < n; i++)
            relay_code_set_add(&others, ranges[i].first, ranges[i].last);
    } else {
        relay_code_set_add_others(&others, ranges, n);
    }
    relay_expr x = relay_expr_code_points(g, others.ranges, others.n, true);
    relay_code_set_fini(&others);
    return x;
}

relay_expr relay_json_chars(relay_grammar *g, const relay_code_range *ranges, uint32_t n, bool is_negated) {
    relay_expr x = plain_chars(g, ranges, n, is_negated);
    for (uint32_t c = 0; c < 0x80; c++) {
        if (needs_escape(c) && holds(ranges, n, c) != is_negated) x = relay_expr_or(g, x, escaped(g, c));
    }
    return x;
}

relay_expr relay_json_literal(relay_grammar *g, const char *s, size_t len) {
    relay_expr_list parts = {0};
    relay_expr_list_add(&parts, relay_expr_string(g, "\""));
    for (size_t i = 0; i < len; i++) {
        uint8_t b = (uint8_t)s[i];
        relay_expr_list_add(&parts, needs_escape(b) ? escaped(g, b) : relay_expr_bytes(g, b, b));
    }
    relay_expr_list_add(&parts, relay_expr_string(g, "\""));
    return relay_expr_list_seq(&parts, g);
}

static relay_expr hex4(relay_grammar *g, const char *pattern) {
    // A digit of the pattern: itself, or a range "8-b" written as its ends, by letters of both cases.
    relay_expr x = RELAY_EXPR_EMPTY;
    for (; *pattern != '\0'; pattern += 2) {
        relay_byte_set set = {{0}};
        for (uint32_t b = '0'; b <= 'f'; b++) {
            uint32_t lower = b >= 'A' && b <= 'F' ? b - 'A' + 'a' : b;
            bool is_digit = (b >= '0' && b <= '9') || (b >= 'A' && b <= 'F') || b >= 'a';
            if (is_digit && lower >= (uint8_t)pattern[0] && lower <= (uint8_t)pattern[1]) {
                set.bits[b / 64] |= 1ull << b % 64;
            }
        }
        x = relay_expr_then(g, x, relay_expr_set(g, &set));
    }
    return x;
}

// Every spelling that RFC 8259 has, but for halves of surrogate pairs, which are no text.
static relay_expr any_string(relay_grammar *g) {
    relay_byte_set letters = {{0}};
    for (const char *s = "\"\\/bfnrt"; *s != '\0'; s++)
        letters.bits[*s / 64] |= 1ull << *s % 64;
    relay_expr unit = relay_expr_or(g, hex4(g, "0c0f0f0f"), relay_expr_or(g, hex4(g, "dd070f0f"), hex4(g, "ef0f0f0f")));
    relay_expr pair =
        relay_expr_seq(g, (relay_expr[]){hex4(g, "dd8b0f0f"), relay_expr_string(g, "\\u"), hex4(g, "ddcf0f0f")}, 3);
    relay_expr u = relay_expr_then(g, relay_expr_string(g, "u"), relay_expr_or(g, unit, pair));
    relay_expr escape =
        relay_expr_then(g, relay_expr_string(g, "\\"), relay_expr_or(g, relay_expr_set(g, &letters), u));
    relay_expr one = relay_expr_or(g, plain_chars(g, NULL, 0, true), escape);
    relay_expr quote = relay_expr_string(g, "\"");
    return relay_expr_seq(g, (relay_expr[]){quote, relay_expr_repeat(g, one, 0, RELAY_UNBOUNDED), quote}, 3);
}

// ---- Values

relay_expr relay_json_space(const relay_json_rules *r) {
    return relay_expr_rule(r->g, r->space);
}

relay_expr relay_json_colon(const relay_json_rules *r) {
    return relay_expr_then(r->g, relay_expr_string(r->g, ":"), relay_expr_optional(r->g, relay_expr_string(r->g, " ")));
}

relay_expr relay_json_list(const relay_json_rules *r, const char *open, relay_expr item, uint32_t min, uint32_t max,
                           const char *close) {
    relay_grammar *g = r->g;
    relay_expr space = relay_json_space(r);
    relay_expr items = RELAY_EXPR_EMPTY;
    if (max > 0) {
        relay_expr next = relay_expr_seq(g, (relay_expr[]){relay_expr_string(g, ","), space, item}, 3);
        relay_expr more = relay_expr_repeat(g, next, min > 1 ? min - 1 : 0, max == RELAY_UNBOUNDED ? max : max - 1);
        items = relay_expr_seq(g, (relay_expr[]){item, more, space}, 3);
        if (min == 0) items = relay_expr_optional(g, items);
    }
    return relay_expr_seq(g, (relay_expr[]){relay_expr_string(g, open), space, items, relay_expr_string(g, close)}, 4);
}

static relay_expr space_text(relay_grammar *g) {
    relay_expr blank = relay_expr_or(g, relay_expr_string(g, " "), relay_expr_string(g, "\t"));
    relay_expr line = relay_expr_then(g, relay_expr_string(g, "\n"), relay_expr_repeat(g, blank, 0, MAX_INDENT));
    return relay_expr_optional(g, relay_expr_or(g, relay_expr_string(g, " "), line));
}

static relay_expr number_text(relay_grammar *g) {
    relay_expr whole = relay_expr_or(
        g, relay_expr_string(g, "0"),
        relay_expr_then(g, relay_expr_bytes(g, '1', '9'), relay_json_digits(g, 0, RELAY_JSON_MAX_DIGITS - 1)));
    relay_expr fraction = relay_expr_then(g, relay_expr_string(g, "."), relay_json_digits(g, 1, RELAY_JSON_MAX_DIGITS));
    relay_expr e = relay_expr_or(g, relay_expr_string(g, "e"), relay_expr_string(g, "E"));
    relay_expr sign = relay_expr_optional(g, relay_expr_or(g, relay_expr_string(g, "-"), relay_expr_string(g, "+")));
    relay_expr exponent = relay_expr_seq(g, (relay_expr[]){e, sign, relay_json_digits(g, 1, MAX_EXPONENT_DIGITS)}, 3);
    return relay_expr_seq(g,
                          (relay_expr[]){relay_expr_optional(g, relay_expr_string(g, "-")), whole,
                                         relay_expr_optional(g, fraction), relay_expr_optional(g, exponent)},
                          4);
}

static uint32_t add_rule(relay_grammar *g, const char *name) {
    return relay_grammar_add_rule(g, name, strlen(name));
}

void relay_json_rules_init(relay_json_rules *r, relay_grammar *g) {
    *r = (relay_json_rules){.g = g};
    r->space = add_rule(g, "whitespace");
    r->string = add_rule(g, "string");
    r->number = add_rule(g, "number");
    r->value = add_rule(g, "value");
    r->object = add_rule(g, "object");
    r->array = add_rule(g, "array");
    r->char_any = relay_json_chars(g, NULL, 0, true);
    relay_grammar_set_rule(g, r->space, space_text(g));
    relay_grammar_set_rule(g, r->string, any_string(g));
    relay_grammar_set_rule(g, r->number, number_text(g));
    relay_expr value = relay_expr_rule(g, r->value);
    relay_expr member = relay_expr_seq(g, (relay_expr[]){relay_expr_rule(g, r->string), relay_json_colon(r), value}, 3);
    relay_grammar_set_rule(g, r->object, relay_json_list(r, "{", member, 0, RELAY_UNBOUNDED, "}"));
    relay_grammar_set_rule(g, r->array, relay_json_list(r, "[", value, 0, RELAY_UNBOUNDED, "]"));
    relay_expr kinds[] = {
        relay_expr_rule(g, r->object), relay_expr_rule(g, r->array), relay_expr_rule(g, r->string),
        relay_expr_rule(g, r->number), relay_expr_string(g, "true"), relay_expr_string(g, "false"),
        relay_expr_string(g, "null"),
    };
    relay_grammar_set_rule(g, r->value, relay_expr_alt(g, kinds, sizeof kinds / sizeof kinds[0]));
}

// ---- Constants

static relay_expr constant_list(relay_grammar *g, yyjson_val *value) {
    bool is_object = yyjson_is_obj(value);
    relay_expr_list parts = {0};
    relay_expr_list_add(&parts, relay_expr_string(g, is_object ? "{" : "["));
    size_t i, n;
    yyjson_val *key, *item;
    yyjson_obj_foreach(value, i, n, key, item) {
        if (i > 0) relay_expr_list_add(&parts, relay_expr_string(g, ","));
        relay_expr_list_add(&parts, relay_json_literal(g, yyjson_get_str(key), yyjson_get_len(key)));
        relay_expr_list_add(&parts, relay_expr_string(g, ":"));
        relay_expr_list_add(&parts, relay_json_constant(g, item));
    }
    yyjson_arr_foreach(value, i, n, item) {
        if (i > 0) relay_expr_list_add(&parts, relay_expr_string(g, ","));
        relay_expr_list_add(&parts, relay_json_constant(g, item));
    }
    relay_expr_list_add(&parts, relay_expr_string(g, is_object ? "}" : "]"));
    return relay_expr_list_seq(&parts, g);
}

relay_expr relay_json_constant(relay_grammar *g, yyjson_val *value) {
    switch (yyjson_get_type(value)) {
    case YYJSON_TYPE_NULL:
        return relay_expr_string(g, "null");
    case YYJSON_TYPE_BOOL:
        return relay_expr_string(g, yyjson_get_bool(value) ? "true" : "false");
    case YYJSON_TYPE_STR:
        return relay_json_literal(g, yyjson_get_str(value), yyjson_get_len(value));
    case YYJSON_TYPE_RAW:
        return relay_expr_text(g, yyjson_get_raw(value), yyjson_get_len(value));
    case YYJSON_TYPE_NUM: {
        relay_buf b;
        relay_buf_init(&b, 64);
        if (yyjson_is_real(value)) {
            // The shortest that reads back the same.
            for (int digits = 1; digits <= 17; digits++) {
                relay_buf_clear(&b);
                relay_buf_printf(&b, "%.*g", digits, yyjson_get_real(value));
                double back = 0;
                if (sscanf(b.data, "%lf", &back) == 1 && back == yyjson_get_real(value)) break;
            }
        } else if (yyjson_is_uint(value)) {
            relay_buf_printf(&b, "%llu", (unsigned long long)yyjson_get_uint(value));
        } else {
            relay_buf_printf(&b, "%lld", (long long)yyjson_get_sint(value));
        }
        relay_expr x = relay_expr_text(g, b.data, b.len);
        relay_buf_fini(&b);
        return x;
    }
    default:
        return constant_list(g, value);
    }
}
