// name ::= alternatives of sequences of: "text", [a-z], [^a-z], . (any character), a rule's name, a group in
// parentheses; each may be followed by * + ? {n} {n,} {n,m}. # begins a comment. A rule's text goes on at the next line
// inside parentheses and after "|" and "::=", else a line's end ends it.
#include "model_svc/constraint/gbnf.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/str_index.h"
#include "common/utf8.h"
#include "model_svc/constraint/code_set.h"

enum { MAX_NESTING = 128, MAX_REPEAT = 1 << 16 };

typedef struct reader {
    relay_grammar *g;
    const char *text;
    size_t len, at;
    const char *field;
    uint32_t nesting;
    relay_str_index names; // of rules; their bytes are in the text
    bool *is_defined;      // [RELAY_GRAMMAR_MAX_RULES]
    size_t *used_at;       // likewise: where it was first named
    relay_code code;
    relay_err *e;
} reader;

static uint32_t line_of(const reader *r, size_t at) {
    uint32_t line = 1;
    for (size_t i = 0; i < at && i < r->len; i++)
        line += r->text[i] == '\n';
    return line;
}

static relay_expr fail(reader *r, size_t at, const char *what) {
    if (r->code == RELAY_OK) {
        r->code = relay_fail(r->e, RELAY_INVALID_ARGUMENT, "%s: line %u: %s", r->field, line_of(r, at), what);
    }
    return RELAY_EXPR_NOTHING;
}

static bool is_at(const reader *r, const char *s) {
    size_t n = strlen(s);
    return r->len - r->at >= n && memcmp(r->text + r->at, s, n) == 0;
}

static bool take(reader *r, const char *s) {
    if (!is_at(r, s)) return false;
    r->at += strlen(s);
    return true;
}

static void skip_space(reader *r, bool with_lines) {
    while (r->at < r->len) {
        char c = r->text[r->at];
        if (c == '#') {
            while (r->at < r->len && r->text[r->at] != '\n')
                r->at++;
        } else if (c == ' ' || c == '\t' || c == '\r' || (with_lines && c == '\n')) {
            r->at++;
        } else {
            return;
        }
    }
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// The rule of the name at hand, made where it is met for the first time.
static uint32_t read_name(reader *r) {
    size_t begin = r->at;
    while (r->at < r->len && is_name_char(r->text[r->at]))
        r->at++;
    if (r->at == begin) {
        fail(r, begin, "a rule's name is expected");
        return 0;
    }
    uint32_t n = (uint32_t)(r->at - begin);
    uint32_t rule = relay_str_index_find(&r->names, r->text + begin, n);
    if (rule != RELAY_STR_NONE) return rule;
    rule = relay_grammar_add_rule(r->g, r->text + begin, n);
    if (r->g->code != RELAY_OK) return 0;
    relay_str_index_add(&r->names, r->text + begin, n, rule);
    r->used_at[rule] = begin;
    return rule;
}

// One character of a literal or class, which may be escaped.
static uint32_t read_char(reader *r) {
    size_t begin = r->at;
    uint32_t c = 0;
    if (r->at == r->len) {
        fail(r, begin, "a character is expected");
        return c;
    }
    if (!take(r, "\\")) {
        r->at += relay_utf8_decode(r->text + r->at, r->len - r->at, &c);
        return c;
    }
    if (r->at == r->len) {
        fail(r, begin, "a backslash at the end");
        return 0;
    }
    char letter = r->text[r->at++];
    uint32_t n_hex = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (n_hex > 0) {
        uint64_t value = 0;
        for (uint32_t i = 0; i < n_hex; i++, r->at++) {
            char h = r->at < r->len ? r->text[r->at] : '\0';
            int digit = h >= '0' && h <= '9'   ? h - '0'
                        : h >= 'a' && h <= 'f' ? h - 'a' + 10
                        : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                               : -1;
            if (digit < 0) {
                fail(r, begin, "\\x takes 2, \\u 4 and \\U 8 hexadecimal digits");
                return 0;
            }
            value = 16 * value + (uint64_t)digit;
        }
        if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail(r, begin, "an escape that is no character");
        return (uint32_t)value;
    }
    switch (letter) {
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'n':
        return '\n';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '^':
    case '-':
        return (uint32_t)letter;
    default:
        fail(r, begin, "an escape that is not supported (\\t \\r \\n \\x \\u \\U \\\\ \\\" \\[ \\] \\^ \\-)");
        return 0;
    }
}

static relay_expr read_literal(reader *r) {
    size_t begin = r->at++;
    relay_expr_list parts = {0};
    while (r->code == RELAY_OK && r->g->code == RELAY_OK && !take(r, "\"")) {
        if (r->at == r->len || r->text[r->at] == '\n') {
            fail(r, begin, "a text that is not closed");
            break;
        }
        char utf8[4];
        size_t len = relay_utf8_encode(read_char(r), utf8);
        relay_expr_list_add(&parts, relay_expr_text(r->g, utf8, len));
    }
    return relay_expr_list_seq(&parts, r->g);
}

static relay_expr read_class(reader *r) {
    size_t begin = r->at++;
    bool is_negated = take(r, "^");
    relay_code_set set = {0};
    while (r->code == RELAY_OK && !take(r, "]")) {
        if (r->at == r->len) {
            fail(r, begin, "a class that is not closed");
            break;
        }
        size_t item = r->at;
        uint32_t first = read_char(r), last = first;
        if (is_at(r, "-") && !is_at(r, "-]")) {
            r->at++;
            last = read_char(r);
        }
        if (last < first) fail(r, item, "a range whose end comes before its beginning");
        relay_code_set_add(&set, first, last);
    }
    relay_expr x = RELAY_EXPR_NOTHING;
    if (r->code == RELAY_OK && relay_grammar_spend(r->g, 16ull * set.n)) {
        x = relay_expr_code_points(r->g, set.ranges, set.n, is_negated);
    }
    relay_code_set_fini(&set);
    return x;
}

static relay_expr read_alternatives(reader *r);

static relay_expr read_group(reader *r) {
    size_t begin = r->at++;
    if (++r->nesting > MAX_NESTING) return fail(r, begin, "more than 128 groups inside one another");
    relay_expr x = read_alternatives(r);
    r->nesting--;
    if (r->code == RELAY_OK && !take(r, ")")) return fail(r, begin, "a group that is not closed");
    return x;
}

static bool is_at_item(const reader *r) {
    return r->at < r->len && (strchr("\"[(.", r->text[r->at]) != NULL || is_name_char(r->text[r->at]));
}

static relay_expr read_item(reader *r) {
    switch (r->text[r->at]) {
    case '"':
        return read_literal(r);
    case '[':
        return read_class(r);
    case '(':
        return read_group(r);
    case '.':
        r->at++;
        return relay_expr_code_points(r->g, NULL, 0, true);
    default:
        return relay_expr_rule(r->g, read_name(r));
    }
}

static bool read_count(reader *r, uint32_t *out) {
    size_t begin = r->at;
    uint32_t n = 0;
    for (; r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++) {
        if (n <= MAX_REPEAT) n = 10 * n + (uint32_t)(r->text[r->at] - '0');
    }
    *out = n;
    return r->at > begin;
}

static relay_expr read_braces(reader *r, relay_expr x) {
    size_t begin = r->at++;
    uint32_t min = 0, max = 0;
    skip_space(r, false);
    bool is_read = read_count(r, &min);
    max = min;
    skip_space(r, false);
    if (take(r, ",")) {
        skip_space(r, false);
        if (!read_count(r, &max)) max = RELAY_UNBOUNDED;
        skip_space(r, false);
        is_read = is_read || max != RELAY_UNBOUNDED;
    }
    if (!is_read || !take(r, "}")) return fail(r, begin, "a repeat is written {n}, {n,}, {,m} or {n,m}");
    if (min > MAX_REPEAT || (max != RELAY_UNBOUNDED && max > MAX_REPEAT)) {
        return fail(r, begin, "a repeat of more than 65536 times");
    }
    if (max < min) return fail(r, begin, "a repeat whose most is below its least");
    return relay_expr_repeat(r->g, x, min, max);
}

static relay_expr read_sequence(reader *r) {
    relay_expr_list parts = {0};
    while (r->code == RELAY_OK && r->g->code == RELAY_OK && is_at_item(r)) {
        size_t begin = r->at;
        // A name that is defined here begins the next rule.
        if (r->nesting == 0 && is_name_char(r->text[r->at])) {
            while (r->at < r->len && is_name_char(r->text[r->at]))
                r->at++;
            skip_space(r, false);
            bool is_next = is_at(r, "::=");
            r->at = begin;
            if (is_next) break;
        }
        relay_expr item = read_item(r);
        skip_space(r, r->nesting > 0);
        for (;;) {
            if (take(r, "*")) {
                item = relay_expr_repeat(r->g, item, 0, RELAY_UNBOUNDED);
            } else if (take(r, "+")) {
                item = relay_expr_repeat(r->g, item, 1, RELAY_UNBOUNDED);
            } else if (take(r, "?")) {
                item = relay_expr_optional(r->g, item);
            } else if (is_at(r, "{")) {
                item = read_braces(r, item);
            } else {
                break;
            }
            if (r->code != RELAY_OK) break;
            skip_space(r, r->nesting > 0);
        }
        relay_expr_list_add(&parts, item);
    }
    return relay_expr_list_seq(&parts, r->g);
}

static relay_expr read_alternatives(reader *r) {
    skip_space(r, true);
    relay_expr_list ways = {0};
    relay_expr_list_add(&ways, read_sequence(r));
    while (r->code == RELAY_OK && r->g->code == RELAY_OK) {
        // A line may also begin with the bar.
        size_t before = r->at;
        skip_space(r, true);
        if (!take(r, "|")) {
            r->at = before;
            break;
        }
        skip_space(r, true);
        relay_expr_list_add(&ways, read_sequence(r));
    }
    skip_space(r, r->nesting > 0);
    return relay_expr_list_alt(&ways, r->g);
}

static void read_rule(reader *r) {
    size_t begin = r->at;
    uint32_t rule = read_name(r);
    if (r->code != RELAY_OK || r->g->code != RELAY_OK) return;
    skip_space(r, false);
    if (!take(r, "::=")) {
        fail(r, r->at, "::= is expected behind a rule's name");
        return;
    }
    if (r->is_defined[rule]) {
        fail(r, begin, "a rule that is defined twice");
        return;
    }
    r->is_defined[rule] = true;
    relay_grammar_set_rule(r->g, rule, read_alternatives(r));
    if (r->code == RELAY_OK && r->at < r->len && r->text[r->at] != '\n') fail(r, r->at, "what follows cannot be read");
}

static void check_rules(reader *r) {
    for (uint32_t i = 0; i < r->g->n_rules && r->code == RELAY_OK; i++) {
        if (r->is_defined[i]) continue;
        r->code = relay_fail(r->e, RELAY_INVALID_ARGUMENT, "%s: line %u: the rule %.200s is not defined", r->field,
                             line_of(r, r->used_at[i]), r->g->rules[i].name);
    }
    r->g->root = relay_str_index_find(&r->names, "root", 4);
    if (r->g->root == RELAY_STR_NONE) fail(r, r->len, "there is no rule named root");
}

relay_code relay_gbnf_read(relay_grammar *g, const char *text, size_t len, const char *field, relay_err *e) {
    reader r = {.g = g, .text = text, .len = len, .field = field, .e = e};
    relay_str_index_init(&r.names, RELAY_GRAMMAR_MAX_RULES);
    r.is_defined = relay_calloc(RELAY_GRAMMAR_MAX_RULES, sizeof r.is_defined[0]);
    r.used_at = relay_calloc(RELAY_GRAMMAR_MAX_RULES, sizeof r.used_at[0]);
    for (skip_space(&r, true); r.at < r.len && r.code == RELAY_OK && g->code == RELAY_OK; skip_space(&r, true))
        read_rule(&r);
    if (r.code == RELAY_OK && g->code == RELAY_OK) check_rules(&r);
    relay_str_index_fini(&r.names);
    free(r.is_defined);
    free(r.used_at);
    return r.code;
}
