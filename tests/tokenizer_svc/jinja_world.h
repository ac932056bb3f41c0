// Rendering in one call, for tests of the template engine.
#ifndef RELAY_TESTS_TOKENIZER_SVC_JINJA_WORLD_H
#define RELAY_TESTS_TOKENIZER_SVC_JINJA_WORLD_H

#include "common/json.h"
#include "tokenizer_svc/jinja/jinja.h"

typedef struct jinja_result {
    relay_code code;
    relay_err error;
    char *text; // owned; NULL after a failure
    size_t len;
    char *from; // owned [len], NUL-terminated: 't' where the template wrote the byte, 'c' where the caller did
} jinja_result;

// `context` is a JSON object's value or NULL; `limits` NULL: the default ones. The time is 2025-07-10 12:00:00.
jinja_result jinja_world_render(const char *source, size_t len, yyjson_val *context, const jinja_limits *limits);
// `context_json` may be NULL.
jinja_result jinja_world_render_text(const char *source, const char *context_json);
void jinja_result_fini(jinja_result *r);

// A file under tests/data as a document; fails the test if it cannot be read.
yyjson_doc *jinja_world_read_json(const char *path);
char *jinja_world_read_file(const char *path, size_t *len);

#endif
