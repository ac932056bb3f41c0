// Recursive descent. Anchors are taken where they can be: at the beginning and the end of an alternative of the whole
// pattern. Greedy and lazy repeats match the same texts, so the mark of a lazy one is read and means nothing.
#include "model_svc/constraint/regex.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model_svc/constraint/code_set.h"

enum { MAX_NESTING = 128, MAX_REPEAT = 1 << 16 };

typedef struct reader {
    relay_grammar *g;
    const char *text;
    size_t len, at;
    relay_chars_fn chars;
    const char *field;
    uint32_t nesting;
    relay_code code;
    relay_err *e;
} reader;

static relay_expr fail(reader *r, size_t at, const char *what) {
    if (r->code == RELAY_OK) {
        r->code = relay_fail(r->e, RELAY_INVALID_ARGUMENT, "%s: at byte %zu: %s", r->field, at, what);
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

static uint32_t next_char(reader *r) {
    uint32_t c = 0;
    if (r->at == r->len) {
        fail(r, r->at, "a character is expected");
    } else {
        r->at += relay_utf8_decode(r->text + r->at, r->len - r->at, &c);
    }
    return c;
}

// ---- Escapes

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// Exactly `n` digits, or those up to a brace. A number past Unicode is an error.
static uint32_t read_hex(reader *r, uint32_t n) {
    size_t begin = r->at;
    bool has_brace = take(r, "{");
    uint32_t value = 0, count = 0;
    while (r->at < r->len && count < (has_brace ? 6 : n)) {
        int digit = hex_digit(r->text[r->at]);
        if (digit < 0) break;
        value = 16 * value + (uint32_t)digit;
        r->at++;
        count++;
    }
    bool is_whole = has_brace ? count > 0 && take(r, "}") : count == n;
    if (!is_whole || value > 0x10FFFF) fail(r, begin, "hexadecimal digits of a character are expected");
    return value;
}

// Behind "\u": two halves of a surrogate pair are one character.
static uint32_t read_u(reader *r) {
    size_t begin = r->at;
    uint32_t c = read_hex(r, 4);
    if (c >= 0xD800 && c < 0xDC00 && take(r, "\\u")) {
        uint32_t low = read_hex(r, 4);
        if (low >= 0xDC00 && low < 0xE000) return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    if (c >= 0xD800 && c < 0xE000) fail(r, begin, "half of a surrogate pair is no character");
    return c;
}

static void read_category(reader *r, bool is_negated, relay_code_set *set) {
    size_t begin = r->at;
    const char *name = r->text + r->at + 1;
    const char *end = is_at(r, "{") ? memchr(name, '}', r->len - r->at - 1) : NULL;
    if (end == NULL) {
        fail(r, begin, "\\p takes the name of a general category in braces, such as \\p{Lu}");
        return;
    }
    r->at = (size_t)(end - r->text) + 1;
    if (!relay_grammar_spend(r->g, 1 << 21)) return;
    if (!relay_code_set_add_category(set, name, (size_t)(end - name), is_negated)) {
        fail(r, begin,
             "not a general category of Unicode (L, Lu, Nd, P, ...); scripts and other properties are not "
             "supported");
    }
}

// Behind a backslash. A class is added to `set`, or one character given; true for a class.
static bool read_escape(reader *r, relay_code_set *set, uint32_t *c) {
    size_t begin = r->at - 1;
    *c = 0;
    if (r->at == r->len) {
        fail(r, begin, "a backslash at the end");
        return false;
    }
    char letter = r->text[r->at];
    if ((letter & 0x80) != 0 || strchr("^$\\.*+?()[]{}|/-\"'`~!@#%&=:;,<> _", letter) != NULL) {
        *c = next_char(r);
        return false;
    }
    r->at++;
    if (relay_code_set_add_class(set, letter)) return true;
    switch (letter) {
    case 'p':
    case 'P':
        read_category(r, letter == 'P', set);
        return true;
    case 't':
        *c = '\t';
        return false;
    case 'n':
        *c = '\n';
        return false;
    case 'r':
        *c = '\r';
        return false;
    case 'f':
        *c = '\f';
        return false;
    case 'v':
        *c = '\v';
        return false;
    case 'x':
        *c = read_hex(r, 2);
        return false;
    case 'u':
        *c = read_u(r);
        return false;
    case '0':
        if (r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9') break;
        return false;
    case 'b':
    case 'B':
        fail(r, begin, "word boundaries (\\b, \\B) are not supported");
        return false;
    case 'k':
        fail(r, begin, "backreferences are not regular and not supported");
        return false;
    case 'A':
    case 'z':
    case 'Z':
        fail(r, begin, "\\A, \\z and \\Z are not supported; write ^ and $");
        return false;
    default:
        break;
    }
    fail(r, begin,
         letter >= '1' && letter <= '9' ? "backreferences are not regular and not supported"
                                        : "an escape that is not supported");
    return false;
}

// ---- Classes

// One end of a range; true where it is a whole class instead, which is in the set already.
static bool read_class_item(reader *r, relay_code_set *set, uint32_t *c) {
    if (is_at(r, "[:") || is_at(r, "[=") || is_at(r, "[.")) {
        fail(r, r->at, "POSIX classes are not supported; write the characters or \\p{..}");
        return true;
    }
    if (!take(r, "\\")) {
        *c = next_char(r);
        return false;
    }
    if (take(r, "b")) { // in a class a backspace
        *c = '\b';
        return false;
    }
    return read_escape(r, set, c);
}

// Behind "[".
static relay_expr read_class(reader *r) {
    size_t begin = r->at - 1;
    relay_code_set set = {0};
    bool is_negated = take(r, "^");
    bool is_closed = false, is_first = true;
    while (r->at < r->len && r->code == RELAY_OK) {
        if (!is_first && take(r, "]")) {
            is_closed = true;
            break;
        }
        if (is_first && is_at(r, "]")) {
            fail(r, r->at, "an empty class, or a ] that dialects read differently; write \\]");
            break;
        }
        is_first = false;
        size_t item = r->at;
        uint32_t first, last;
        bool is_class = read_class_item(r, &set, &first);
        if (is_at(r, "-") && !is_at(r, "-]")) {
            r->at++;
            if (is_class || read_class_item(r, &set, &last)) {
                fail(r, item, "a class like \\d cannot be an end of a range");
            } else if (last < first) {
                fail(r, item, "a range whose end comes before its beginning");
            } else {
                relay_code_set_add(&set, first, last);
            }
        } else if (!is_class) {
            relay_code_set_add(&set, first, first);
        }
    }
    relay_expr x = RELAY_EXPR_NOTHING;
    if (!is_closed) fail(r, begin, "a class that is not closed");
    if (r->code == RELAY_OK && relay_grammar_spend(r->g, 16ull * set.n)) {
        x = r->chars(r->g, set.ranges, set.n, is_negated);
    }
    relay_code_set_fini(&set);
    return x;
}

static relay_expr one_char(reader *r, uint32_t c) {
    return r->chars(r->g, &(relay_code_range){.first = c, .last = c}, 1, false);
}

// ---- Pieces

static relay_expr read_alternatives(reader *r);

static const char *unsupported_group(const reader *r) {
    static const struct {
        const char *begin, *what;
    } groups[] = {
        {"?=", "lookahead is not supported"},
        {"?!", "lookahead is not supported"},
        {"?<=", "lookbehind is not supported"},
        {"?<!", "lookbehind is not supported"},
        {"?>", "atomic groups are not supported"},
        {"?(", "conditional groups are not supported"},
        {"?R", "recursion is not supported in a regular expression; write a grammar"},
        {"?P=", "backreferences are not regular and not supported"},
        {"?#", "comments are not supported"},
    };
    for (uint32_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if (is_at(r, groups[i].begin)) return groups[i].what;
    }
    return "flags and other groups that begin with (? are not supported";
}

// Behind "(".
static relay_expr read_group(reader *r) {
    size_t begin = r->at - 1;
    if (is_at(r, "?") && !take(r, "?:")) {
        bool is_named = (is_at(r, "?<") && !is_at(r, "?<=") && !is_at(r, "?<!")) || is_at(r, "?P<");
        if (!is_named) return fail(r, begin, unsupported_group(r));
        const char *end = memchr(r->text + r->at, '>', r->len - r->at);
        if (end == NULL) return fail(r, begin, "a group's name that is not closed");
        r->at = (size_t)(end - r->text) + 1;
    }
    if (++r->nesting > MAX_NESTING) return fail(r, begin, "more than 128 groups inside one another");
    relay_expr x = read_alternatives(r);
    r->nesting--;
    if (r->code == RELAY_OK && !take(r, ")")) return fail(r, begin, "a group that is not closed");
    return x;
}

static relay_expr read_atom(reader *r) {
    size_t begin = r->at;
    if (take(r, "(")) return read_group(r);
    if (take(r, "[")) return read_class(r);
    if (take(r, ".")) {
        static const relay_code_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
        return r->chars(r->g, line_ends, 3, true);
    }
    if (take(r, "^") || take(r, "$")) {
        return fail(r, begin,
                    "an anchor is supported only where an alternative of the whole pattern begins (^) or "
                    "ends ($)");
    }
    if (is_at(r, "*") || is_at(r, "+") || is_at(r, "?")) return fail(r, begin, "a repeat of nothing");
    if (!take(r, "\\")) return one_char(r, next_char(r));
    relay_code_set set = {0};
    uint32_t c;
    relay_expr x = RELAY_EXPR_NOTHING;
    bool is_class = read_escape(r, &set, &c);
    if (r->code == RELAY_OK && relay_grammar_spend(r->g, 16ull * set.n)) {
        x = is_class ? r->chars(r->g, set.ranges, set.n, false) : one_char(r, c);
    }
    relay_code_set_fini(&set);
    return x;
}

static bool read_count(reader *r, uint32_t *out) {
    size_t begin = r->at;
    uint32_t n = 0;
    while (r->at < r->len && r->text[r->at] >= '0' && r->text[r->at] <= '9') {
        if (n <= MAX_REPEAT) n = 10 * n + (uint32_t)(r->text[r->at] - '0');
        r->at++;
    }
    *out = n;
    return r->at > begin;
}

// A repeat behind a piece: {2}, {2,}, {2,5}. What looks otherwise is no repeat but text.
static bool read_braces(reader *r, uint32_t *min, uint32_t *max) {
    size_t begin = r->at;
    if (take(r, "{") && read_count(r, min)) {
        *max = *min;
        if (take(r, ",") && !read_count(r, max)) *max = RELAY_UNBOUNDED;
        if (take(r, "}")) {
            if (*min > MAX_REPEAT || (*max != RELAY_UNBOUNDED && *max > MAX_REPEAT)) {
                fail(r, begin, "a repeat of more than 65536 times");
            } else if (*max < *min) {
                fail(r, begin, "a repeat whose most is below its least");
            }
            return true;
        }
    }
    r->at = begin;
    return false;
}

static relay_expr read_piece(reader *r) {
    relay_expr x = read_atom(r);
    bool is_repeated = false;
    while (r->code == RELAY_OK) {
        size_t begin = r->at;
        uint32_t min = 0, max = RELAY_UNBOUNDED;
        if (take(r, "+")) {
            min = 1;
        } else if (take(r, "?")) {
            max = 1;
        } else if (!take(r, "*") && !read_braces(r, &min, &max)) {
            break;
        }
        if (is_repeated) return fail(r, begin, "a repeat of a repeat (or a possessive one); put the first in a group");
        is_repeated = true;
        take(r, "?"); // lazy
        x = relay_expr_repeat(r->g, x, min, max);
    }
    return x;
}

static bool is_at_end(const reader *r) {
    return r->at == r->len || is_at(r, "|") || (r->nesting > 0 && is_at(r, ")"));
}

static relay_expr read_sequence(reader *r) {
    relay_expr_list parts = {0};
    while (r->code == RELAY_OK && r->g->code == RELAY_OK && !is_at_end(r)) {
        if (r->nesting == 0 && is_at(r, "$") && (r->at + 1 == r->len || r->text[r->at + 1] == '|')) break;
        if (r->nesting == 0 && is_at(r, ")")) {
            fail(r, r->at, "a ) without its (");
        } else {
            relay_expr_list_add(&parts, read_piece(r));
        }
    }
    return relay_expr_list_seq(&parts, r->g);
}

static relay_expr read_alternatives(reader *r) {
    relay_expr_list ways = {0};
    do {
        relay_expr_list_add(&ways, read_sequence(r));
    } while (r->code == RELAY_OK && r->g->code == RELAY_OK && take(r, "|"));
    return relay_expr_list_alt(&ways, r->g);
}

// ---- The pattern

// An alternative of the whole pattern, with its anchors.
static relay_expr read_anchored(reader *r, relay_expr anything) {
    bool is_bound = take(r, "^");
    relay_expr x = read_sequence(r);
    if (!is_bound) x = relay_expr_then(r->g, anything, x);
    if (r->code == RELAY_OK && !take(r, "$")) x = relay_expr_then(r->g, x, anything);
    return x;
}

relay_code relay_regex_read(relay_expr *out, relay_grammar *g, const char *text, size_t len, relay_chars_fn chars,
                            bool is_search, const char *field, relay_err *e) {
    reader r = {.g = g, .text = text, .len = len, .chars = chars, .field = field, .e = e};
    relay_expr anything = RELAY_EXPR_EMPTY;
    if (is_search) anything = relay_expr_repeat(g, chars(g, NULL, 0, true), 0, RELAY_UNBOUNDED);
    relay_expr_list ways = {0};
    do {
        relay_expr_list_add(&ways, read_anchored(&r, anything));
    } while (r.code == RELAY_OK && g->code == RELAY_OK && take(&r, "|"));
    *out = relay_expr_list_alt(&ways, g);
    if (r.code == RELAY_OK && g->code == RELAY_OK && r.at < r.len) fail(&r, r.at, "what follows cannot be read");
    return r.code;
}
