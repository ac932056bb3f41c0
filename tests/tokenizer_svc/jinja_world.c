#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tokenizer_svc/jinja_world.h"
#include "tokenizer_svc/jinja/from_json.h"
#include "tokenizer_svc/jinja/text.h"

enum { NOW = 1752148800 };

static relay_code set_context(jinja_run *run, yyjson_val *context, relay_err *e) {
    size_t i, n;
    yyjson_val *name, *item;
    yyjson_obj_foreach(context, i, n, name, item) {
        jinja_value v;
        if (!jinja_from_json(run, item, &v)) return jinja_run_error(run, e);
        relay_code code = jinja_run_set(run, yyjson_get_str(name), yyjson_get_len(name), v, e);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

static void give(jinja_value text, jinja_result *r) {
    r->text = relay_strndup(text.s, text.len);
    r->len = text.len;
    r->from = relay_calloc(text.len + 1, 1);
    for (size_t i = 0; i < text.len; i++) {
        bool is_template = jinja_origin_at(text, i) == JINJA_TEMPLATE;
        r->from[i] = is_template ? 't' : 'c';
    }
}

jinja_result jinja_world_render(const char *source, size_t len, yyjson_val *context, const jinja_limits *limits) {
    jinja_result r = {0};
    jinja_template *t;
    jinja_value text;
    r.code = jinja_template_compile(&t, source, len, &r.error);
    if (r.code != RELAY_OK) return r;
    jinja_run *run = jinja_run_create(limits != NULL ? limits : &JINJA_LIMITS_DEFAULT);
    jinja_run_set_time(run, NOW);
    r.code = set_context(run, context, &r.error);
    if (r.code == RELAY_OK) r.code = jinja_run_render(run, t, &text, &r.error);
    if (r.code == RELAY_OK) give(text, &r);
    jinja_run_destroy(run);
    jinja_template_destroy(t);
    return r;
}

jinja_result jinja_world_render_text(const char *source, const char *context_json) {
    yyjson_doc *doc = NULL;
    relay_err e = {0};
    if (context_json != NULL &&
        relay_json_parse(&doc, context_json, strlen(context_json), RELAY_JSON_MAX_DEPTH, "context", &e) != RELAY_OK)
        fail_msg("%s", e.message);
    jinja_result r = jinja_world_render(source, strlen(source), yyjson_doc_get_root(doc), NULL);
    yyjson_doc_free(doc);
    return r;
}

void jinja_result_fini(jinja_result *r) {
    free(r->text);
    free(r->from);
    *r = (jinja_result){0};
}

char *jinja_world_read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    *len = (size_t)ftell(f);
    rewind(f);
    char *bytes = relay_calloc(*len + 1, 1);
    assert_int_equal(fread(bytes, 1, *len, f), *len);
    fclose(f);
    return bytes;
}

yyjson_doc *jinja_world_read_json(const char *path) {
    size_t len;
    char *bytes = jinja_world_read_file(path, &len);
    yyjson_doc *doc;
    relay_err e = {0};
    if (relay_json_parse(&doc, bytes, len, RELAY_JSON_MAX_DEPTH, path, &e) != RELAY_OK) fail_msg("%s", e.message);
    free(bytes);
    return doc;
}
