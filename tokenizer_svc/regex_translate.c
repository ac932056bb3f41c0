// A walk over the pattern that copies what reads the same in Oniguruma and PCRE2 and writes the rest anew. Groups and
// classes recurse, to a bounded depth. A pattern that is no valid one in either is left to PCRE2 to refuse.
//
// Sources: Oniguruma's doc/RE (6.9) and pcre2pattern(3).
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/utf8.h"
#include "tokenizer_svc/regex.h"

enum { MAX_DEPTH = 32, SHOWN_BYTES = 160, MAX_NAME = 32 };

// \w in a class; by itself it is the superscript digits and fractions of Latin-1, too.
#define WORD_MEMBERS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_ALONE   WORD_MEMBERS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"
#define IS_WORD      "[" WORD_ALONE "]"
#define ANY          "[\\x{0}-\\x{10FFFF}]"

typedef struct translation {
    const char *p;
    size_t len, at;
    relay_buf *out;
    const char *what;
    relay_err *e;
    bool is_caseless;
    uint32_t depth;
} translation;

static bool more(const translation *t) {
    return t->at < t->len;
}

static char peek(const translation *t, size_t ahead) {
    return t->at + ahead < t->len ? t->p[t->at + ahead] : '\0';
}

static relay_code refuse(translation *t, size_t from, const char *why) {
    size_t end = t->at < t->len ? t->at : t->len;
    return relay_fail(t->e, RELAY_UNIMPLEMENTED, "%s: pattern \"%.*s\" has \"%.*s\" at byte %zu: %s", t->what,
                      t->len < SHOWN_BYTES ? (int)t->len : SHOWN_BYTES, t->p, end > from ? (int)(end - from) : 0,
                      t->p + from, from, why);
}

// ---- Properties

typedef struct property {
    const char *name;     // as the file may write it, without blanks, dashes and underscores, in lower case
    const char *as_pcre2; // what stands between the braces
} property;

// Those of which Unicode 14 and 16 hold the same characters, or whose newer ones have stand-ins among them
// (tests/oracle/scripts_oracle.py). Of Arabic, Cyrillic, Devanagari, Myanmar and others some have none.
static const property properties[] = {
    {"letter", "L"},
    {"mark", "M"},
    {"number", "N"},
    {"punctuation", "P"},
    {"symbol", "S"},
    {"separator", "Z"},
    {"digit", "Nd"},
    {"upper", "Uppercase"},
    {"uppercase", "Uppercase"},
    {"han", "sc:Han"},
    {"hangul", "sc:Hangul"},
    {"thai", "sc:Thai"},
    {"hebrew", "sc:Hebrew"},
    {"greek", "sc:Greek"},
    {"armenian", "sc:Armenian"},
    {"bengali", "sc:Bengali"},
    {"tamil", "sc:Tamil"},
    {"khmer", "sc:Khmer"},
    {"bopomofo", "sc:Bopomofo"},
    {"latin", "sc:Latin"},
    {"georgian", "sc:Georgian"},
    {"hiragana", "sc:Hiragana"},
    {"katakana", "sc:Katakana"},
    {"inherited", "sc:Inherited"},
    {"lao", "sc:Lao"},
    {"tibetan", "sc:Tibetan"},
    {"ethiopic", "sc:Ethiopic"},
    {"gujarati", "sc:Gujarati"},
    {"gurmukhi", "sc:Gurmukhi"},
    {"kannada", "sc:Kannada"},
    {"malayalam", "sc:Malayalam"},
    {"oriya", "sc:Oriya"},
    {"telugu", "sc:Telugu"},
    {"sinhala", "sc:Sinhala"},
    {"syriac", "sc:Syriac"},
    {"thaana", "sc:Thaana"},
    {"cherokee", "sc:Cherokee"},
    {"yi", "sc:Yi"},
    {"braille", "sc:Braille"},
    {"coptic", "sc:Coptic"},
    {"gothic", "sc:Gothic"},
    {"javanese", "sc:Javanese"},
    {"balinese", "sc:Balinese"},
    {"tifinagh", "sc:Tifinagh"},
    {"nko", "sc:Nko"},
};

// General categories are written alike: one or two letters. Not Cn, of which PCRE2 knows more.
static bool is_category(const char *name) {
    static const char categories[] = " C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps "
                                     "S Sc Sk Sm So Z Zl Zp Zs ";
    char key[8];
    size_t n = strlen(name);
    if (n == 0 || n > 2) return false;
    key[0] = ' ';
    memcpy(key + 1, name, n);
    key[1] = (char)(key[1] & ~0x20);
    if (n == 2) key[2] = (char)(key[2] | 0x20);
    memcpy(key + 1 + n, " ", 2);
    return strstr(categories, key) != NULL;
}

static bool depends_on_case(const char *name) {
    return strcasecmp(name, "Lu") == 0 || strcasecmp(name, "Ll") == 0 || strcasecmp(name, "Lt") == 0 ||
           strncmp(name, "sc:", 3) == 0 || strcasecmp(name, "Uppercase") == 0;
}

// At the 'p' or 'P' of an escape whose backslash is at `from`.
static relay_code property_escape(translation *t, size_t from) {
    bool is_negated = peek(t, 0) == 'P';
    t->at++;
    if (peek(t, 0) != '{') return refuse(t, from, "a property needs braces");
    t->at++;
    if (peek(t, 0) == '^') {
        is_negated = !is_negated;
        t->at++;
    }
    char name[MAX_NAME];
    size_t n = 0;
    for (; more(t) && peek(t, 0) != '}'; t->at++) {
        char c = peek(t, 0);
        if (c == ' ' || c == '_' || c == '-') continue;
        if (n + 1 == sizeof name) return refuse(t, from, "a property Relay does not know");
        name[n++] = c;
    }
    name[n] = '\0';
    if (!more(t)) return refuse(t, from, "a property needs braces");
    t->at++;
    const char *found = is_category(name) ? name : NULL;
    for (size_t i = 0; found == NULL && i < sizeof properties / sizeof *properties; i++)
        if (strcasecmp(name, properties[i].name) == 0) found = properties[i].as_pcre2;
    if (found == NULL) return refuse(t, from, "a property Relay does not know");
    if (t->is_caseless && depends_on_case(found))
        return refuse(t, from, "a property that depends on case, where case is ignored");
    char category[3] = {0};
    if (found == name) {
        category[0] = (char)(name[0] & ~0x20);
        if (n == 2) category[1] = (char)(name[1] | 0x20);
        found = category;
    }
    relay_buf_printf(t->out, "\\%c{%s}", is_negated ? 'P' : 'p', found);
    return RELAY_OK;
}

// ---- Escapes

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// At the 'x' or 'u'.
static relay_code hex_escape(translation *t, size_t from) {
    bool has_braces = peek(t, 0) == 'x' && peek(t, 1) == '{';
    size_t max_digits = has_braces ? 8 : peek(t, 0) == 'u' ? 4 : 2, n = 0;
    t->at += has_braces ? 2 : 1;
    uint32_t cp = 0;
    while (n < max_digits && hex_digit(peek(t, 0)) >= 0) {
        cp = cp << 4 | (uint32_t)hex_digit(peek(t, 0));
        t->at++;
        n++;
    }
    if (n == 0 || (max_digits == 4 && n != 4) || (has_braces && peek(t, 0) != '}'))
        return refuse(t, from, "not a code point");
    if (has_braces) t->at++;
    if (cp > 0x10FFFF || (!has_braces && max_digits == 2 && cp > 0x7F)) return refuse(t, from, "not a code point");
    relay_buf_printf(t->out, "\\x{%X}", cp);
    return RELAY_OK;
}

// Escapes that are the same in and outside of classes. *done is false where it is none of them.
static relay_code common_escape(translation *t, size_t from, bool *done) {
    char c = peek(t, 0);
    *done = true;
    if (c == 'p' || c == 'P') return property_escape(t, from);
    if (c == 'x' || c == 'u') return hex_escape(t, from);
    if (strchr("dDsSnrtfae", c) != NULL && c != '\0') {
        relay_buf_printf(t->out, "\\%c", c);
    } else if (c == 'v') {
        relay_buf_puts(t->out, "\\x{B}");
    } else if ((uint8_t)c >= 0x80) {
        uint32_t cp;
        size_t n = relay_utf8_decode(t->p + t->at, t->len - t->at, &cp);
        relay_buf_append(t->out, t->p + t->at, n);
        t->at += n;
        return RELAY_OK;
    } else if (c > ' ' && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
        relay_buf_printf(t->out, "\\%c", c);
    } else if (c == ' ') {
        relay_buf_putc(t->out, ' ');
    } else {
        *done = false;
        return RELAY_OK;
    }
    t->at++;
    return RELAY_OK;
}

// At the backslash, outside of classes.
static relay_code escape(translation *t) {
    size_t from = t->at++;
    bool done;
    relay_code code = common_escape(t, from, &done);
    if (code != RELAY_OK || done) return code;
    char c = peek(t, 0);
    t->at++;
    switch (c) {
    case 'w':
        relay_buf_puts(t->out, IS_WORD);
        return RELAY_OK;
    case 'W':
        relay_buf_puts(t->out, "[^" WORD_ALONE "]");
        return RELAY_OK;
    case 'h':
        relay_buf_puts(t->out, "[0-9A-Fa-f]");
        return RELAY_OK;
    case 'H':
        relay_buf_puts(t->out, "[^0-9A-Fa-f]");
        return RELAY_OK;
    case 'b':
        relay_buf_puts(t->out, "(?:(?<=" IS_WORD ")(?!" IS_WORD ")|(?<!" IS_WORD ")(?=" IS_WORD "))");
        return RELAY_OK;
    case 'B':
        relay_buf_puts(t->out, "(?:(?<=" IS_WORD ")(?=" IS_WORD ")|(?<!" IS_WORD ")(?!" IS_WORD "))");
        return RELAY_OK;
    case 'A':
    case 'z':
    case 'Z':
        relay_buf_printf(t->out, "\\%c", c);
        return RELAY_OK;
    default:
        return refuse(t, from, "an escape Relay does not know");
    }
}

// ---- Classes

static relay_code class(translation *t);

// One side of &&, up to it or to the closing bracket, as something that matches one character. `is_negated` is of the
// whole class, given where it has one side only, so that no lookahead is needed.
static relay_code class_side(translation *t, bool is_negated) {
    relay_buf *out = t->out;
    size_t first = t->at, begin = out->len;
    bool is_sole_class = peek(t, 0) == '[' && peek(t, 1) != ':';
    if (is_sole_class) { // [[...]], [...&&[^...]]
        relay_code code = class(t);
        if (code != RELAY_OK) return code;
        if (peek(t, 0) == ']' || (peek(t, 0) == '&' && peek(t, 1) == '&')) return RELAY_OK;
        out->len = begin;
        t->at = first;
    }
    relay_buf_puts(out, is_negated ? "[^" : "[");
    while (more(t) && peek(t, 0) != ']' && !(peek(t, 0) == '&' && peek(t, 1) == '&')) {
        size_t from = t->at;
        char c = peek(t, 0);
        if (c == '[') {
            if (peek(t, 1) == ':' || peek(t, 1) == '^') {
                t->at += 2;
                return refuse(t, from, "a class inside of a class that Relay cannot join");
            }
            t->at++;
            for (size_t end = t->at;; end++) // members of an inner class are members of the outer one
                if (end >= t->len || t->p[end] == '[' || (t->p[end] == '&' && end + 1 < t->len && t->p[end + 1] == '&'))
                    return refuse(t, from, "a class inside of a class that Relay cannot join");
                else if (t->p[end] == '\\')
                    end++;
                else if (t->p[end] == ']')
                    break;
            translation inner = *t;
            while (inner.at < inner.len && inner.p[inner.at] != ']') {
                if (inner.p[inner.at] == '\\') {
                    size_t at = inner.at++;
                    bool done;
                    relay_code code = common_escape(&inner, at, &done);
                    if (code != RELAY_OK) return code;
                    if (!done) return refuse(&inner, at, "an escape Relay does not know in a class");
                } else {
                    relay_buf_putc(out, inner.p[inner.at++]);
                }
            }
            t->at = inner.at + 1;
        } else if (c == '\\') {
            t->at++;
            bool done;
            relay_code code = common_escape(t, from, &done);
            if (code != RELAY_OK) return code;
            if (done) continue;
            c = peek(t, 0);
            t->at++;
            if (c == 'w')
                relay_buf_puts(out, WORD_MEMBERS);
            else if (c == 'h')
                relay_buf_puts(out, "0-9A-Fa-f");
            else if (c == 'b')
                relay_buf_puts(out, "\\x{8}");
            else
                return refuse(t, from, "an escape Relay does not know in a class");
        } else {
            if (t->is_caseless && (uint8_t)c >= 0x80)
                return refuse(t, from, "a letter past ASCII where case is ignored");
            relay_buf_putc(out, c);
            t->at++;
        }
    }
    if (t->at == first) return refuse(t, first, "an empty class");
    relay_buf_putc(out, ']');
    return RELAY_OK;
}

// Whether the class that begins at t->at has && of its own.
static bool has_intersection(const translation *t) {
    uint32_t depth = 0;
    for (size_t i = t->at; i < t->len; i++) {
        char c = t->p[i];
        if (c == '\\')
            i++;
        else if (c == '[')
            depth++;
        else if (c == ']' && --depth == 0)
            return false;
        else if (depth == 1 && c == '&' && i + 1 < t->len && t->p[i + 1] == '&')
            return true;
    }
    return false;
}

// At the opening bracket; behind the closing one after.
static relay_code class(translation *t) {
    size_t from = t->at;
    if (++t->depth > MAX_DEPTH) return refuse(t, from, "too many levels");
    bool is_cut = has_intersection(t);
    t->at++;
    bool is_negated = peek(t, 0) == '^';
    if (is_negated) t->at++;
    bool holds_class_only = peek(t, 0) == '[' && peek(t, 1) != ':';
    bool needs_lookahead = is_negated && (is_cut || holds_class_only);
    if (needs_lookahead) relay_buf_puts(t->out, "(?:(?!");
    if (is_cut) relay_buf_puts(t->out, "(?:");
    for (;;) {
        // Every side but the last is looked at ahead.
        size_t begin = t->out->len;
        relay_code code = class_side(t, is_negated && !needs_lookahead);
        if (code != RELAY_OK) return code;
        if (!more(t)) return refuse(t, from, "a class without its end");
        if (peek(t, 0) == ']') break;
        t->at += 2;
        char *side = relay_strndup(t->out->data + begin, t->out->len - begin);
        t->out->len = begin;
        relay_buf_printf(t->out, "(?=%s)", side);
        free(side);
    }
    t->at++;
    if (is_cut) relay_buf_putc(t->out, ')');
    if (needs_lookahead) relay_buf_puts(t->out, ")" ANY ")");
    t->depth--;
    return RELAY_OK;
}

// ---- Repetition

// Reads "{n,m}" at t->at; false where it is not one and so plain text.
static bool interval(translation *t, uint32_t *min, uint32_t *max, bool *is_fixed) {
    size_t i = t->at + 1;
    uint32_t bounds[2] = {0, 0};
    bool has[2] = {false, false}, has_comma = false;
    for (int side = 0; side < 2; side++) {
        for (; i < t->len && t->p[i] >= '0' && t->p[i] <= '9'; i++) {
            bounds[side] = bounds[side] * 10 + (uint32_t)(t->p[i] - '0');
            has[side] = true;
            if (bounds[side] > UINT16_MAX) return false;
        }
        if (side == 0 && i < t->len && t->p[i] == ',') {
            has_comma = true;
            i++;
        } else {
            break;
        }
    }
    if (i >= t->len || t->p[i] != '}' || (!has[0] && !has[1])) return false;
    t->at = i + 1;
    *min = bounds[0];
    *max = !has_comma ? bounds[0] : has[1] ? bounds[1] : UINT32_MAX;
    *is_fixed = !has_comma;
    return true;
}

// A quantifier behind the atom that was written from `atom` on, if there is one.
static void quantifier(translation *t, size_t atom) {
    relay_buf *out = t->out;
    char c = peek(t, 0);
    if (c == '*' || c == '+' || c == '?') {
        relay_buf_putc(out, c);
        t->at++;
        if (peek(t, 0) == '?' || peek(t, 0) == '+') {
            relay_buf_putc(out, peek(t, 0));
            t->at++;
        }
        return;
    }
    uint32_t min, max;
    bool is_fixed;
    if (c != '{' || !interval(t, &min, &max, &is_fixed)) return;
    if (max == UINT32_MAX)
        relay_buf_printf(out, "{%u,}", min);
    else
        relay_buf_printf(out, "{%u,%u}", min, max);
    c = peek(t, 0);
    bool is_repeated = c == '+' || c == '*' || (c == '?' && is_fixed);
    if (c == '?' && !is_fixed) {
        relay_buf_putc(out, '?');
        t->at++;
    } else if (is_repeated) {
        char *inner = relay_strndup(out->data + atom, out->len - atom);
        out->len = atom;
        relay_buf_printf(out, "(?:%s)%c", inner, c);
        free(inner);
        t->at++;
    }
}

// ---- Groups

static relay_code alternatives(translation *t);

// At "(?" with options: sets them for the group or, without a colon, for the rest of the group around it.
static relay_code options(translation *t, size_t from, bool *is_group) {
    bool on = true, was_caseless = t->is_caseless;
    t->at += 2;
    relay_buf_puts(t->out, "(?");
    for (; more(t) && peek(t, 0) != ':' && peek(t, 0) != ')'; t->at++) {
        char c = peek(t, 0);
        if (c == '-') {
            on = false;
            relay_buf_putc(t->out, '-');
        } else if (c == 'i') {
            t->is_caseless = on;
            relay_buf_putc(t->out, 'i');
        } else if (c == 'm') {
            relay_buf_putc(t->out, 's'); // Ruby's m is Perl's s
        } else {
            t->at++;
            return refuse(t, from, "a group Relay does not know");
        }
    }
    if (!more(t)) return refuse(t, from, "a group without its end");
    *is_group = peek(t, 0) == ':';
    t->at++;
    relay_buf_putc(t->out, ':');
    // Oniguruma takes all up to the end of the group around it, alternatives included, for the options' group.
    relay_code code = alternatives(t);
    t->is_caseless = was_caseless;
    relay_buf_putc(t->out, ')');
    return code;
}

// At the opening parenthesis; behind the closing one after.
static relay_code group(translation *t) {
    static const char *const plain[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    size_t from = t->at;
    if (++t->depth > MAX_DEPTH) return refuse(t, from, "too many levels");
    relay_code code = RELAY_OK;
    bool is_group = true;
    if (peek(t, 1) != '?') {
        relay_buf_puts(t->out, "(?:");
        t->at++;
        code = alternatives(t);
        relay_buf_putc(t->out, ')');
    } else {
        const char *opening = NULL;
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
            size_t n = strlen(plain[i]);
            if (t->len - t->at >= n && memcmp(t->p + t->at, plain[i], n) == 0) opening = plain[i];
        }
        if (opening != NULL) {
            relay_buf_puts(t->out, opening);
            t->at += strlen(opening);
            code = alternatives(t);
            relay_buf_putc(t->out, ')');
        } else if (peek(t, 2) == '#') {
            while (more(t) && peek(t, 0) != ')')
                t->at++;
        } else {
            code = options(t, from, &is_group);
        }
    }
    if (code != RELAY_OK) return code;
    t->depth--;
    if (!is_group) return RELAY_OK; // the parenthesis belongs to the group around it
    if (peek(t, 0) != ')') return refuse(t, from, "a group without its end");
    t->at++;
    return RELAY_OK;
}

// Letters that together are one character's folding (U+FB00 to U+FB06, U+00DF).
static bool is_folded_pair(char a, char b) {
    a |= 0x20;
    b |= 0x20;
    return (a == 's' && (b == 's' || b == 't')) || (a == 'f' && (b == 'f' || b == 'i' || b == 'l'));
}

// Up to the end or a closing parenthesis, which is left.
static relay_code alternatives(translation *t) {
    while (more(t) && peek(t, 0) != ')') {
        size_t atom = t->out->len, from = t->at;
        char c = peek(t, 0);
        relay_code code = RELAY_OK;
        if (c == '\\') {
            code = escape(t);
        } else if (c == '[') {
            code = class(t);
        } else if (c == '(') {
            code = group(t);
        } else if (c == '{') {
            relay_buf_puts(t->out, "\\{");
            t->at++;
        } else if (t->is_caseless && ((uint8_t)c >= 0x80 || is_folded_pair(c, peek(t, 1)))) {
            t->at++;
            return refuse(t, from, "letters of more than one folding where case is ignored");
        } else {
            uint32_t cp;
            size_t n = relay_utf8_decode(t->p + t->at, t->len - t->at, &cp);
            relay_buf_append(t->out, t->p + t->at, n);
            t->at += n;
        }
        if (code != RELAY_OK) return code;
        if (c != '|') quantifier(t, atom);
    }
    return RELAY_OK;
}

relay_code relay_regex_translate(relay_buf *out, const char *pattern, size_t len, const char *what, relay_err *e) {
    translation t = {.p = pattern, .len = len, .out = out, .what = what, .e = e};
    relay_code code = alternatives(&t);
    if (code == RELAY_OK && more(&t)) return refuse(&t, t.at, "a parenthesis that closes nothing");
    return code;
}
