// Tags out of text: white space control as trim_blocks and lstrip_blocks have it, then the tokens inside the tags.
//
// A tag's `-` takes all white space away on its side, `+` keeps it. Without either, a block or a comment that stands
// alone before a line end takes that line end with it (trim_blocks) and the blanks before it on its line
// (lstrip_blocks); an expression takes nothing.
#define _GNU_SOURCE
#include "tokenizer_svc/jinja/lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/text.h"
#include "tokenizer_svc/jinja/unicode.h"

typedef struct lexer {
    jinja_compiler *c;
    const char *s;
    uint32_t len, at;
    jinja_token *tokens; // [n]
    uint32_t n, cap;
    bool is_line_start; // the text before `at` ended a line
} lexer;

static bool fail(lexer *l, uint32_t at, const char *what) {
    return jinja_compile_fail(l->c, at, "%s", what);
}

static bool add(lexer *l, jinja_token token) {
    if (l->n == l->cap) {
        uint32_t cap = l->cap == 0 ? 256 : 2 * l->cap;
        jinja_token *tokens = realloc(l->tokens, cap * sizeof *tokens);
        if (tokens == NULL) return fail(l, token.at, "out of memory");
        l->tokens = tokens;
        l->cap = cap;
    }
    l->tokens[l->n++] = token;
    return true;
}

static bool at_text(const lexer *l, uint32_t at, const char *text) {
    size_t n = strlen(text);
    return l->len - at >= n && memcmp(l->s + at, text, n) == 0;
}

static uint32_t skip_space(const lexer *l, uint32_t at) {
    while (at < l->len) {
        uint32_t cp;
        size_t n = relay_utf8_decode(l->s + at, l->len - at, &cp);
        if (!jinja_is_space(cp)) break;
        at += (uint32_t)n;
    }
    return at;
}

// Text [begin, end) before a tag that has `sign` behind its opening (0 if none).
static bool add_data(lexer *l, uint32_t begin, uint32_t end, char sign, bool is_expression) {
    if (sign == '-') {
        jinja_value text = jinja_str(l->s + begin, end - begin, JINJA_TEMPLATE);
        end = begin + jinja_str_strip(text, jinja_none(), JINJA_STRIP_RIGHT).len;
    } else if (sign != '+' && !is_expression) {
        const char *newline = memrchr(l->s + begin, '\n', end - begin);
        uint32_t line = newline == NULL ? begin : (uint32_t)(newline - l->s) + 1;
        if ((newline != NULL || l->is_line_start) && skip_space(l, line) >= end) end = line;
    }
    if (end == begin) return true;
    return add(l, (jinja_token){.type = JINJA_T_DATA, .at = begin, .s = l->s + begin, .len = end - begin});
}

// Behind a closing tag: `-` takes the white space, a block's or a comment's tag the line end.
static void after_tag(lexer *l, uint32_t at, char sign, bool is_expression) {
    l->is_line_start = false;
    l->at = at;
    if (sign == '-') {
        l->at = skip_space(l, at);
        l->is_line_start = l->at > at && l->s[l->at - 1] == '\n';
    } else if (sign != '+' && !is_expression && at < l->len && l->s[at] == '\n') {
        l->at = at + 1;
        l->is_line_start = true;
    }
}

static char sign_at(const lexer *l, uint32_t at) {
    return at < l->len && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
}

// Finds `close` with an optional sign before it, from `at` on.
static bool find_close(const lexer *l, uint32_t at, const char *close, uint32_t *found, char *sign) {
    const char *p = memmem(l->s + at, l->len - at, close, 2);
    if (p == NULL) return false;
    *found = (uint32_t)(p - l->s);
    *sign = *found > at ? sign_at(l, *found - 1) : 0;
    return true;
}

static bool lex_comment(lexer *l, uint32_t begin) {
    uint32_t open = l->at, close;
    char sign = sign_at(l, open + 2), close_sign;
    if (!add_data(l, begin, open, sign, false)) return false;
    if (!find_close(l, open + 2 + (sign != 0), "#}", &close, &close_sign))
        return fail(l, open, "Missing end of comment tag");
    after_tag(l, close + 2, close_sign, false);
    return true;
}

// The end of `{%- word -%}` at `at`, 0 if something else stands there; its signs.
static uint32_t match_word_tag(const lexer *l, uint32_t at, const char *word, char *open_sign, char *close_sign) {
    if (!at_text(l, at, "{%")) return 0;
    *open_sign = sign_at(l, at + 2);
    at = skip_space(l, at + 2 + (*open_sign != 0));
    if (!at_text(l, at, word)) return 0;
    at = skip_space(l, at + (uint32_t)strlen(word));
    *close_sign = sign_at(l, at);
    at += *close_sign != 0;
    return at_text(l, at, "%}") ? at + 2 : 0;
}

// {% raw %} has been seen to end at `content`.
static bool lex_raw(lexer *l, uint32_t begin, uint32_t content, char open_sign, char close_sign) {
    uint32_t open = l->at;
    if (!add_data(l, begin, open, open_sign, false)) return false;
    if (close_sign == '-') content = skip_space(l, content);
    l->is_line_start = content > 0 && l->s[content - 1] == '\n';
    for (uint32_t at = content; at < l->len; at++) {
        const char *p = memmem(l->s + at, l->len - at, "{%", 2);
        if (p == NULL) break;
        at = (uint32_t)(p - l->s);
        char end_open, end_close;
        uint32_t end = match_word_tag(l, at, "endraw", &end_open, &end_close);
        if (end == 0) continue;
        if (!add_data(l, content, at, end_open, false)) return false;
        after_tag(l, end, end_close, false);
        return true;
    }
    return fail(l, open, "Missing end of raw directive");
}

// ---- inside a tag

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// \xHH, \uHHHH, \UHHHHHHHH: the value in *cp, the digits skipped.
static bool lex_hex_escape(lexer *l, uint32_t *at, uint32_t end, uint32_t digits, uint32_t *cp) {
    *cp = 0;
    for (uint32_t i = 0; i < digits; i++, ++*at) {
        int digit = *at < end ? hex_digit(l->s[*at]) : -1;
        if (digit < 0) return fail(l, *at, "truncated \\x, \\u or \\U escape in a string");
        *cp = *cp << 4 | (uint32_t)digit;
    }
    if (*cp > 0x10FFFF || (*cp >= 0xD800 && *cp <= 0xDFFF))
        return fail(l, *at - digits, "an escape in a string that is no character");
    return true;
}

// The escape behind the backslash at *at - 1; what it stands for goes to out.
static bool lex_escape(lexer *l, uint32_t *at, uint32_t end, char *out, uint32_t *n) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char c = l->s[*at];
    const char *simple = memchr(from, c, sizeof from - 1);
    uint32_t cp = 0;
    if (c == '\n') { // a line that goes on
        ++*at;
        return true;
    }
    if (simple != NULL) {
        out[(*n)++] = to[simple - from];
        ++*at;
        return true;
    }
    if (c >= '0' && c <= '7') {
        for (int i = 0; i < 3 && *at < end && l->s[*at] >= '0' && l->s[*at] <= '7'; i++)
            cp = cp * 8 + (uint32_t)(l->s[(*at)++] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        ++*at;
        if (!lex_hex_escape(l, at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8, &cp)) return false;
    } else if (c == 'N') {
        return fail(l, *at, "\\N escapes are not supported");
    } else { // no escape: the backslash stays
        out[(*n)++] = '\\';
        return true;
    }
    *n += (uint32_t)relay_utf8_encode(cp, out + *n);
    return true;
}

static bool lex_string(lexer *l) {
    uint32_t begin = l->at + 1, end = begin;
    char quote = l->s[l->at];
    while (end < l->len && l->s[end] != quote)
        end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->len) return fail(l, l->at, "a string without an end");
    char *out = jinja_compile_alloc(l->c, end - begin + 1, 1);
    if (out == NULL) return false;
    uint32_t n = 0;
    for (uint32_t at = begin; at < end;) {
        if (l->s[at] == '\\') {
            at++;
            if (!lex_escape(l, &at, end, out, &n)) return false;
        } else {
            out[n++] = l->s[at++];
        }
    }
    jinja_token token = {.type = JINJA_T_STRING, .at = l->at, .s = out, .len = n};
    l->at = end + 1;
    return add(l, token);
}

static bool is_digit_of(char c, int base) {
    int digit = hex_digit(c);
    return digit >= 0 && digit < base;
}

// Digits of `base` with single underscores between them (and before the first if `leading`); the end.
static uint32_t skip_digits(const lexer *l, uint32_t at, int base, bool leading) {
    uint32_t end = at;
    bool may_underscore = leading;
    while (at < l->len) {
        if (is_digit_of(l->s[at], base)) {
            end = ++at;
            may_underscore = true;
        } else if (l->s[at] == '_' && may_underscore) {
            at++;
            may_underscore = false;
        } else {
            break;
        }
    }
    return end;
}

// The end of the float at `at`, or `at` if there is none.
static uint32_t match_float(const lexer *l, uint32_t at) {
    if (at > 0 && l->s[at - 1] == '.') return at;
    uint32_t whole = skip_digits(l, at, 10, false), end = whole;
    if (end < l->len && l->s[end] == '.') {
        uint32_t fraction = skip_digits(l, end + 1, 10, false);
        if (fraction > end + 1) end = fraction;
    }
    if (end < l->len && (l->s[end] == 'e' || l->s[end] == 'E')) {
        uint32_t exponent = end + 1;
        if (exponent < l->len && (l->s[exponent] == '+' || l->s[exponent] == '-')) exponent++;
        uint32_t after = skip_digits(l, exponent, 10, false);
        if (after > exponent) end = after;
    }
    return end > whole ? end : at;
}

static uint32_t match_integer(const lexer *l, uint32_t at, int *base) {
    *base = 10;
    if (l->s[at] == '0' && at + 1 < l->len) {
        char kind = l->s[at + 1] | 0x20;
        int prefixed = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        uint32_t end = prefixed != 0 ? skip_digits(l, at + 2, prefixed, true) : 0;
        if (end > at + 2) {
            *base = prefixed;
            return end;
        }
    }
    if (l->s[at] != '0') return skip_digits(l, at, 10, false);
    uint32_t end = at + 1; // zeros only
    while (end < l->len && (l->s[end] == '0' || (l->s[end] == '_' && end + 1 < l->len && l->s[end + 1] == '0')))
        end++;
    return end;
}

static bool lex_number(lexer *l) {
    char text[400];
    int base = 10;
    uint32_t end = match_float(l, l->at);
    bool is_float = end > l->at;
    if (!is_float) end = match_integer(l, l->at, &base);
    uint32_t n = 0;
    for (uint32_t at = l->at + (!is_float && base != 10 ? 2 : 0); at < end; at++) {
        if (n + 1 == sizeof text) return fail(l, l->at, "a number with too many digits");
        if (l->s[at] != '_') text[n++] = l->s[at];
    }
    text[n] = 0;
    jinja_token token = {.type = is_float ? JINJA_T_FLOAT : JINJA_T_INTEGER, .at = l->at};
    errno = 0;
    if (is_float)
        token.f = strtod(text, NULL);
    else
        token.i = strtoll(text, NULL, base);
    if (!is_float && errno == ERANGE) return fail(l, l->at, "an integer beyond 64 bits");
    l->at = end;
    return add(l, token);
}

static bool lex_name(lexer *l, bool *matched) {
    uint32_t at = l->at, cp;
    while (at < l->len) {
        size_t n = relay_utf8_decode(l->s + at, l->len - at, &cp);
        if (!jinja_is_identifier(cp, at == l->at)) break;
        at += (uint32_t)n;
    }
    *matched = at > l->at;
    if (!*matched) return true;
    jinja_token token = {.type = JINJA_T_NAME, .at = l->at, .s = l->s + l->at, .len = at - l->at};
    l->at = at;
    return add(l, token);
}

// Brackets that are open inside the tag.
typedef struct brackets {
    char open[JINJA_MAX_NESTING];
    uint32_t n;
} brackets;

static bool track_bracket(lexer *l, brackets *b, char c) {
    if (c == '(' || c == '[' || c == '{') {
        if (b->n == JINJA_MAX_NESTING)
            return jinja_compile_fail(l->c, l->at, "more than %d brackets inside each other", JINJA_MAX_NESTING);
        b->open[b->n++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (b->n == 0) return jinja_compile_fail(l->c, l->at, "unexpected '%c'", c);
        char expected = b->open[--b->n];
        if (expected != c) return jinja_compile_fail(l->c, l->at, "unexpected '%c', expected '%c'", c, expected);
    }
    return true;
}

static bool lex_operator(lexer *l, brackets *b) {
    static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = l->s[l->at];
    jinja_token token = {.type = JINJA_T_OPERATOR, .at = l->at, .len = 1, .op = JINJA_OP1(c)};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (!at_text(l, l->at, pairs[i])) continue;
        token.len = 2;
        token.op = JINJA_OP2(pairs[i][0], pairs[i][1]);
    }
    if (token.len == 1 && (c == 0 || strchr("+-/*%~[](){}><=.:|,;", c) == NULL)) {
        uint32_t cp;
        size_t n = relay_utf8_decode(l->s + l->at, l->len - l->at, &cp);
        return jinja_compile_fail(l->c, l->at, "unexpected char '%.*s'", (int)n, l->s + l->at);
    }
    if (token.len == 1 && !track_bracket(l, b, c)) return false;
    l->at += token.len;
    return add(l, token);
}

static bool lex_tag(lexer *l, uint32_t begin, bool is_expression) {
    uint32_t open = l->at;
    const char *close = is_expression ? "}}" : "%}";
    char sign = sign_at(l, open + 2);
    jinja_token edge = {.type = is_expression ? JINJA_T_VARIABLE_BEGIN : JINJA_T_BLOCK_BEGIN, .at = open};
    if (!add_data(l, begin, open, sign, is_expression) || !add(l, edge)) return false;
    l->at = open + 2 + (sign != 0);
    brackets b = {.n = 0};
    for (;;) {
        l->at = skip_space(l, l->at);
        if (l->at >= l->len)
            return fail(l, open, is_expression ? "Missing end of print statement" : "Missing end of block tag");
        char end_sign = sign_at(l, l->at);
        if (is_expression && end_sign == '+') end_sign = 0;
        if (b.n == 0 && at_text(l, l->at + (end_sign != 0), close)) {
            edge.type = is_expression ? JINJA_T_VARIABLE_END : JINJA_T_BLOCK_END;
            edge.at = l->at;
            after_tag(l, l->at + (end_sign != 0) + 2, end_sign, is_expression);
            return add(l, edge);
        }
        bool matched = false, ok = true;
        char c = l->s[l->at];
        if (c >= '0' && c <= '9')
            ok = lex_number(l);
        else if (c == '\'' || c == '"')
            ok = lex_string(l);
        else if ((ok = lex_name(l, &matched)) && !matched)
            ok = lex_operator(l, &b);
        if (!ok) return false;
    }
}

static bool lex_all(lexer *l) {
    l->is_line_start = true;
    while (l->at < l->len) {
        uint32_t begin = l->at;
        const char *p = l->s + l->at, *end = l->s + l->len;
        while ((p = memchr(p, '{', (size_t)(end - p))) != NULL &&
               (p + 1 >= end || strchr("{%#", p[1]) == NULL || p[1] == 0))
            p++;
        if (p == NULL) {
            jinja_token rest = {.type = JINJA_T_DATA, .at = begin, .s = l->s + begin, .len = l->len - begin};
            l->at = l->len;
            return add(l, rest);
        }
        l->at = (uint32_t)(p - l->s);
        char open_sign, close_sign;
        uint32_t raw = match_word_tag(l, l->at, "raw", &open_sign, &close_sign);
        bool ok;
        if (raw != 0 && close_sign != '+')
            ok = lex_raw(l, begin, raw, open_sign, close_sign);
        else if (p[1] == '#')
            ok = lex_comment(l, begin);
        else
            ok = lex_tag(l, begin, p[1] == '{');
        if (!ok) return false;
    }
    return true;
}

bool jinja_lex(jinja_compiler *c, jinja_token **tokens) {
    lexer l = {.c = c, .s = c->t->source, .len = c->t->len};
    bool ok = lex_all(&l) && add(&l, (jinja_token){.type = JINJA_T_END, .at = l.len});
    if (ok) {
        *tokens = l.tokens;
        return true;
    }
    free(l.tokens);
    return false;
}
