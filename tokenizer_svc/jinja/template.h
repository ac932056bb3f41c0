// A compiled template, and what its compilation shares. Private to this folder.
#ifndef RELAY_TOKENIZER_SVC_JINJA_TEMPLATE_H
#define RELAY_TOKENIZER_SVC_JINJA_TEMPLATE_H

#include "common/arena.h"
#include "tokenizer_svc/jinja/ast.h"
#include "tokenizer_svc/jinja/jinja.h"

struct jinja_template {
    relay_arena arena;  // the source and the tree
    const char *source; // newlines are \n, one at the very end is gone
    uint32_t len;
    jinja_nodes body;
    jinja_scope scope; // of the top level
    uint32_t n_slots;  // of the top level's frame
    jinja_name *names; // the variables that come from the context, [n_names]
    uint32_t n_names;
};

// Line and column, both from 1, columns in characters.
void jinja_template_place(const jinja_template *t, uint32_t offset, uint32_t *line, uint32_t *column);

// The state of lexer, parser and scope analysis: the template being made and the first error.
typedef struct jinja_compiler {
    jinja_template *t;
    relay_err *e;
    bool has_failed;
    relay_code code;
} jinja_compiler;

// The first failure wins. Returns false.
bool jinja_compile_fail(jinja_compiler *c, uint32_t offset, const char *fmt, ...) RELAY_PRINTF(3, 4);
// Memory of the template, NULL with the error set.
void *jinja_compile_alloc(jinja_compiler *c, size_t count, size_t size) RELAY_NODISCARD;

#endif
