#include "tokenizer_svc/jinja/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "tokenizer_svc/jinja/lexer.h"
#include "tokenizer_svc/jinja/parser.h"
#include "tokenizer_svc/jinja/scope.h"

// The tree of the largest source stays far below this.
enum { MAX_TREE_BYTES = 128 << 20 };

void jinja_template_place(const jinja_template *t, uint32_t offset, uint32_t *line, uint32_t *column) {
    *line = *column = 1;
    for (uint32_t i = 0; i < offset && i < t->len; i++) {
        if (t->source[i] == '\n') {
            ++*line;
            *column = 1;
        } else {
            *column += ((uint8_t)t->source[i] & 0xC0) != 0x80;
        }
    }
}

bool jinja_compile_fail(jinja_compiler *c, uint32_t offset, const char *fmt, ...) {
    if (c->has_failed) return false;
    c->has_failed = true;
    c->code = RELAY_INVALID_ARGUMENT;
    char what[RELAY_ERR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    uint32_t line, column;
    jinja_template_place(c->t, offset, &line, &column);
    relay_fail(c->e, c->code, "chat template: line %u, column %u: %s", line, column, what);
    return false;
}

void *jinja_compile_alloc(jinja_compiler *c, size_t count, size_t size) {
    void *p = relay_arena_alloc(&c->t->arena, count * size != 0 ? count * size : 1);
    if (p == NULL && !c->has_failed) {
        c->has_failed = true;
        c->code = relay_fail(c->e, RELAY_RESOURCE_EXHAUSTED, "chat template: needs more than %d bytes of memory",
                             MAX_TREE_BYTES);
    }
    return p;
}

// \r\n and \r become \n, and one line end at the very end goes, as in jinja2.
static void normalize(jinja_template *t, char *copy, const char *source, size_t len) {
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') continue;
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    copy[n] = 0;
    t->source = copy;
    t->len = n;
}

relay_code jinja_template_compile(jinja_template **out, const char *source, size_t len, relay_err *e) {
    *out = NULL;
    if (len > JINJA_MAX_SOURCE)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "chat template: %zu bytes, at most %d", len, JINJA_MAX_SOURCE);
    size_t valid = relay_utf8_valid_prefix(source, len);
    if (valid < len) return relay_fail(e, RELAY_INVALID_ARGUMENT, "chat template: byte %zu is not valid UTF-8", valid);
    jinja_template *t = relay_calloc(1, sizeof *t);
    jinja_compiler c = {.t = t, .e = e};
    jinja_token *tokens = NULL;
    relay_arena_init(&t->arena, MAX_TREE_BYTES);
    char *copy = jinja_compile_alloc(&c, len + 1, 1);
    if (copy != NULL) normalize(t, copy, source, len);
    bool ok = copy != NULL && jinja_lex(&c, &tokens) && jinja_parse(&c, tokens) && jinja_resolve(&c);
    free(tokens);
    if (!ok) {
        jinja_template_destroy(t);
        return c.code;
    }
    *out = t;
    return RELAY_OK;
}

void jinja_template_destroy(jinja_template *t) {
    if (t == NULL) return;
    relay_arena_fini(&t->arena);
    free(t);
}
