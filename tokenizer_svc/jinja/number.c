#include "tokenizer_svc/jinja/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tokenizer_svc/jinja/text.h"

// Longer numbers than any that fits 64 bits or a double's decimals.
enum { MAX_DIGITS = 800 };

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

jinja_parsed jinja_parse_int(jinja_value str, int64_t base, int64_t *out) {
    str = jinja_str_strip(str, (jinja_value){.kind = JINJA_NONE}, JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT);
    size_t i = 0;
    bool is_negative = str.len > 0 && str.s[0] == '-';
    if (str.len > 0 && (str.s[0] == '-' || str.s[0] == '+')) i++;
    if (i + 1 < str.len && str.s[i] == '0') {
        char kind = str.s[i + 1] | 0x20;
        int64_t prefixed = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (prefixed != 0 && (base == prefixed || base == 0)) {
            base = prefixed;
            i += 2;
            if (i < str.len && str.s[i] == '_') i++;
        }
    }
    if (base == 0) base = 10;
    if (base < 2 || base > 36) return JINJA_PARSE_NO_NUMBER;
    int64_t value = 0;
    bool too_large = false, after_digit = false;
    for (; i < str.len; i++) {
        if (str.s[i] == '_' && after_digit) {
            after_digit = false;
            continue;
        }
        int digit = digit_of(str.s[i]);
        if (digit >= base) return JINJA_PARSE_NO_NUMBER;
        after_digit = true;
        too_large = too_large || __builtin_mul_overflow(value, base, &value) ||
                    (is_negative ? __builtin_sub_overflow(value, (int64_t)digit, &value)
                                 : __builtin_add_overflow(value, (int64_t)digit, &value));
    }
    if (!after_digit) return JINJA_PARSE_NO_NUMBER;
    *out = value;
    return too_large ? JINJA_PARSE_TOO_LARGE : JINJA_PARSED;
}

// Digits with single underscores between them, copied without; how many bytes of `s` that is.
static size_t copy_digits(const char *s, size_t len, char *out, size_t *n) {
    size_t i = 0;
    while (i < len && *n + 1 < MAX_DIGITS) {
        if (s[i] >= '0' && s[i] <= '9')
            out[(*n)++] = s[i++];
        else if (s[i] == '_' && i > 0 && s[i - 1] != '_' && i + 1 < len && s[i + 1] >= '0' && s[i + 1] <= '9')
            i++;
        else
            break;
    }
    return i;
}

static bool is_special(const char *s, size_t len) {
    return (len == 3 && (strncasecmp(s, "inf", 3) == 0 || strncasecmp(s, "nan", 3) == 0)) ||
           (len == 8 && strncasecmp(s, "infinity", 8) == 0);
}

bool jinja_parse_float(jinja_value str, double *out) {
    char text[MAX_DIGITS + 8];
    str = jinja_str_strip(str, (jinja_value){.kind = JINJA_NONE}, JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT);
    const char *s = str.s, *end = str.s + str.len;
    size_t n = 0, digits = 0, before;
    if (s < end && (*s == '-' || *s == '+')) text[n++] = *s++;
    if (is_special(s, (size_t)(end - s))) {
        memcpy(text + n, s, (size_t)(end - s));
        text[n + (size_t)(end - s)] = 0;
        *out = strtod(text, NULL);
        return true;
    }
    before = n;
    s += copy_digits(s, (size_t)(end - s), text, &n);
    digits += n - before;
    if (s < end && *s == '.') {
        text[n++] = *s++;
        before = n;
        s += copy_digits(s, (size_t)(end - s), text, &n);
        digits += n - before;
    }
    if (digits == 0) return false;
    if (s < end && (*s == 'e' || *s == 'E')) {
        text[n++] = *s++;
        if (s < end && (*s == '-' || *s == '+')) text[n++] = *s++;
        before = n;
        s += copy_digits(s, (size_t)(end - s), text, &n);
        if (n == before) return false;
    }
    text[n] = 0;
    *out = strtod(text, NULL);
    return s == end;
}
