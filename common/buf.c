#include "common/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void relay_buf_init(relay_buf *b, size_t limit) {
    *b = (relay_buf){.limit = limit};
}

void relay_buf_fini(relay_buf *b) {
    free(b->data);
    *b = (relay_buf){.limit = b->limit};
}

void relay_buf_clear(relay_buf *b) {
    b->len = 0;
    b->is_failed = false;
    if (b->data != NULL) b->data[0] = 0;
}

// Room for `more` bytes and a NUL behind them.
static bool reserve(relay_buf *b, size_t more) {
    if (b->is_failed || more > b->limit - b->len) {
        b->is_failed = true;
        return false;
    }
    size_t need = b->len + more + 1;
    if (need <= b->cap) return true;
    size_t cap = b->cap < 64 ? 64 : b->cap * 2;
    if (cap < need) cap = need;
    b->data = relay_realloc(b->data, cap);
    b->cap = cap;
    return true;
}

void relay_buf_append(relay_buf *b, const void *data, size_t len) {
    if (!reserve(b, len)) return;
    if (len != 0) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
}

void relay_buf_puts(relay_buf *b, const char *s) {
    relay_buf_append(b, s, strlen(s));
}

void relay_buf_putc(relay_buf *b, char c) {
    relay_buf_append(b, &c, 1);
}

void relay_buf_printf(relay_buf *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

char *relay_buf_take(relay_buf *b, size_t *len) {
    char *data = b->data != NULL ? b->data : relay_calloc(1, 1);
    if (len != NULL) *len = b->len;
    *b = (relay_buf){.limit = b->limit};
    return data;
}

void relay_buf_put_json_string(relay_buf *b, const char *s, size_t len) {
    relay_buf_putc(b, '"');
    size_t from = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) continue;
        relay_buf_append(b, s + from, i - from);
        from = i + 1;
        switch (c) {
        case '"':
            relay_buf_puts(b, "\\\"");
            break;
        case '\\':
            relay_buf_puts(b, "\\\\");
            break;
        case '\n':
            relay_buf_puts(b, "\\n");
            break;
        case '\r':
            relay_buf_puts(b, "\\r");
            break;
        case '\t':
            relay_buf_puts(b, "\\t");
            break;
        default:
            relay_buf_printf(b, "\\u%04x", c);
        }
    }
    relay_buf_append(b, s + from, len - from);
    relay_buf_putc(b, '"');
}
