// How a line is made.
//
// The format string is walked pair by pair and conversion by conversion, each conversion formatted alone. So the
// borders between pairs come from the source code and never from a value, and it is known which values are numbers. A
// line is built in a buffer of fixed size on the stack and written at once: no lock, no allocation.
#include "common/log.h"

#include <ctype.h>
#include <math.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/utf8.h"

static atomic_int min_level = RELAY_LOG_INFO;
static atomic_int line_format = RELAY_LOG_KEY_VALUE;

static const char *const level_names[] = {
    [RELAY_LOG_DEBUG] = "debug",
    [RELAY_LOG_INFO] = "info",
    [RELAY_LOG_WARN] = "warn",
    [RELAY_LOG_ERROR] = "error",
};

void relay_log_init(relay_log_level level, relay_log_format format) {
    atomic_store_explicit(&min_level, (int)level, memory_order_relaxed);
    atomic_store_explicit(&line_format, (int)format, memory_order_relaxed);
}

bool relay_log_level_parse(const char *name, relay_log_level *out) {
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++) {
        if (strcmp(name, level_names[i]) != 0) continue;
        *out = (relay_log_level)i;
        return true;
    }
    return false;
}

bool relay_log_enabled(relay_log_level level) {
    return (int)level >= atomic_load_explicit(&min_level, memory_order_relaxed);
}

// ---- The line

typedef struct line {
    char data[RELAY_LOG_LINE_MAX];
    size_t len;
    size_t limit; // less than the array: the end of the line always fits
    bool is_json;
    bool is_full; // something was left out
} line;

static void put(line *l, const char *s, size_t len) {
    if (len > l->limit - l->len) {
        l->is_full = true;
        return;
    }
    memcpy(l->data + l->len, s, len);
    l->len += len;
}

static void put_text(line *l, const char *s) {
    put(l, s, strlen(s));
}

static void put_quoted(line *l, const char *s, size_t len) {
    put_text(l, "\"");
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        char escaped[8];
        if (c == '"' || c == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escaped, sizeof escaped, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c < 0x20 || c == 0x7F)
            snprintf(escaped, sizeof escaped, "\\u%04x", c);
        else
            snprintf(escaped, sizeof escaped, "%c", c);
        put_text(l, escaped);
    }
    put_text(l, "\"");
}

static bool needs_quotes(const char *s, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7F) return true;
    }
    return len == 0;
}

// One pair, whole or not at all.
static void put_pair(line *l, const char *key, size_t key_len, const char *value, size_t value_len, bool is_number) {
    size_t before = l->len;
    if (l->is_json) {
        put_text(l, l->len == 0 ? "{" : ",");
        put_quoted(l, key, key_len);
        put_text(l, ":");
    } else {
        if (l->len != 0) put_text(l, " ");
        put(l, key, key_len);
        put_text(l, "=");
    }
    if (l->is_json ? !is_number : needs_quotes(value, value_len))
        put_quoted(l, value, value_len);
    else
        put(l, value, value_len);
    if (l->is_full) l->len = before;
}

static void put_timestamp(line *l) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm tm;
    gmtime_r(&now.tv_sec, &tm);
    char text[64];
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(text + n, sizeof text - n, ".%06ldZ", now.tv_nsec / 1000);
    put_pair(l, "ts", 2, text, n, false);
}

// ---- Values

typedef struct value {
    char text[RELAY_LOG_VALUE_MAX + 4]; // "..." and a NUL behind a cut one
    size_t len;
    bool is_cut;
} value;

static void value_put(value *v, const char *s, size_t len) {
    size_t room = RELAY_LOG_VALUE_MAX - v->len;
    if (len > room) {
        len = room;
        v->is_cut = true;
    }
    memcpy(v->text + v->len, s, len);
    v->len += len;
}

// Makes the value valid UTF-8, and marks it if it was cut.
static void value_end(value *v) {
    if (v->is_cut) v->len -= relay_utf8_incomplete_suffix(v->text, v->len);
    relay_utf8_repair(v->text, v->len);
    if (!v->is_cut) return;
    memcpy(v->text + v->len, "...", 3);
    v->len += 3;
}

typedef struct arguments {
    va_list list; // in a struct, so that functions can take from the same list
} arguments;

enum { SPEC_MAX = 32 };

// The value of a conversion's '*', or -1.
static int take_star(const char **at, arguments *args) {
    if (**at != '*') return -1;
    ++*at;
    return va_arg(args->list, int);
}

// A conversion taken apart.
typedef struct conversion {
    char flags[8];
    int width, precision; // -1: none
    char length;          // 0, 'l' (also for ll, j, z and t, which are as long here)
    char letter;
} conversion;

_Static_assert(sizeof(long) == 8 && sizeof(size_t) == 8 && sizeof(long long) == 8, "all long conversions are one size");

static int read_number(const char **at, arguments *args) {
    int n = take_star(at, args);
    if (n >= 0 || !isdigit((unsigned char)**at)) return n;
    for (n = 0; isdigit((unsigned char)**at) && n < 100000; ++*at)
        n = n * 10 + (**at - '0');
    return n;
}

// Reads the conversion behind a '%'.
static conversion read_conversion(const char **at, arguments *args) {
    conversion c = {.width = -1, .precision = -1};
    for (size_t n = 0; **at != 0 && strchr("-+ #0", **at) != NULL; ++*at)
        if (n < sizeof c.flags - 1) c.flags[n++] = **at;
    c.width = read_number(at, args);
    if (**at == '.') {
        ++*at;
        c.precision = read_number(at, args);
        if (c.precision < 0) c.precision = 0;
    }
    while (**at != 0 && strchr("hljzt", **at) != NULL) {
        if (**at != 'h') c.length = 'l';
        ++*at;
    }
    c.letter = **at;
    if (**at != 0) ++*at;
    return c;
}

// Formats one conversion onto the value; returns whether it is a number as JSON writes them.
static bool put_conversion(value *v, const conversion *c, arguments *args) {
    if (c->letter == 's') {
        const char *s = va_arg(args->list, const char *);
        if (s == NULL) s = "(null)";
        value_put(v, s, c->precision >= 0 ? strnlen(s, (size_t)c->precision) : strlen(s));
        return false;
    }
    char spec[SPEC_MAX], text[512];
    int n = snprintf(spec, sizeof spec, "%%%s", c->flags);
    if (c->width >= 0) n += snprintf(spec + n, sizeof spec - (size_t)n, "%d", c->width);
    if (c->precision >= 0) n += snprintf(spec + n, sizeof spec - (size_t)n, ".%d", c->precision);
    snprintf(spec + n, sizeof spec - (size_t)n, "%s%c", c->length != 0 ? "l" : "", c->letter);
    bool is_number = true;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    switch (c->letter) {
    case 'd':
    case 'i':
        n = c->length != 0 ? snprintf(text, sizeof text, spec, va_arg(args->list, long))
                           : snprintf(text, sizeof text, spec, va_arg(args->list, int));
        break;
    case 'u':
        n = c->length != 0 ? snprintf(text, sizeof text, spec, va_arg(args->list, unsigned long))
                           : snprintf(text, sizeof text, spec, va_arg(args->list, unsigned));
        break;
    case 'f':
    case 'e':
    case 'E':
    case 'g':
    case 'G': {
        double d = va_arg(args->list, double);
        is_number = isfinite(d);
        n = snprintf(text, sizeof text, spec, d);
        break;
    }
    case 'x':
    case 'X':
        is_number = false;
        n = c->length != 0 ? snprintf(text, sizeof text, spec, va_arg(args->list, unsigned long))
                           : snprintf(text, sizeof text, spec, va_arg(args->list, unsigned));
        break;
    case 'c':
        is_number = false;
        n = snprintf(text, sizeof text, spec, va_arg(args->list, int));
        break;
    case 'p':
        is_number = false;
        n = snprintf(text, sizeof text, spec, va_arg(args->list, void *));
        break;
    default:
        RELAY_ASSERT(!"a conversion that the log knows");
    }
#pragma GCC diagnostic pop
    value_put(v, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    return is_number && c->flags[0] == 0 && c->width < 0;
}

static void put_fields(line *l, const char *fields, arguments *args) {
    const char *at = fields;
    while (*at != 0) {
        size_t key_len = strcspn(at, "= ");
        const char *key = at;
        if (at[key_len] == '=') {
            at += key_len + 1;
        } else { // a word without a key
            key = "text";
            key_len = strlen(key);
        }
        value v;
        v.len = 0;
        v.is_cut = false;
        bool is_number = false;
        size_t n_parts = 0;
        while (*at != 0 && *at != ' ') {
            n_parts++;
            if (at[0] == '%' && at[1] != '%') {
                at++;
                conversion c = read_conversion(&at, args);
                is_number = put_conversion(&v, &c, args);
                continue;
            }
            value_put(&v, at, 1);
            at += *at == '%' ? 2 : 1;
        }
        value_end(&v);
        put_pair(l, key, key_len, v.text, v.len, is_number && n_parts == 1);
        at += *at == ' ';
    }
}

void relay_log_write(relay_log_level level, const char *msg, const char *fields, ...) {
    static const char json_end[] = ",\"truncated\":true}\n", key_value_end[] = " truncated=true\n";
    line l;
    l.len = 0;
    l.limit = sizeof l.data - sizeof json_end;
    l.is_json = atomic_load_explicit(&line_format, memory_order_relaxed) == RELAY_LOG_JSON;
    l.is_full = false;
    put_timestamp(&l);
    put_pair(&l, "level", 5, level_names[level], strlen(level_names[level]), false);
    put_pair(&l, "msg", 3, msg, strlen(msg), false);
    arguments args;
    va_start(args.list, fields);
    put_fields(&l, fields, &args);
    va_end(args.list);

    bool is_cut = l.is_full;
    l.is_full = false;
    l.limit = sizeof l.data;
    if (is_cut)
        put_text(&l, l.is_json ? json_end : key_value_end);
    else
        put_text(&l, l.is_json ? "}\n" : "\n");
    // A log that cannot be written is no reason to stop, and there is nobody to tell.
    ssize_t written = write(STDERR_FILENO, l.data, l.len);
    (void)written;
}
