// Renders templates for the oracle (tests/oracle/chat_template_oracle.py): one JSON object a line in, one a line out,
// in the same order.
//
//   {"template": "...", "context": {...}, "now": 0}   ->   {"text": "...", "from": "0011..."} or {"error": "..."}
//
// `context` holds the variables; `from` says of each byte of the text whether the template wrote it.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/json.h"
#include "tokenizer_svc/jinja/from_json.h"
#include "tokenizer_svc/jinja/jinja.h"
#include "tokenizer_svc/jinja/text.h"

static relay_code render(yyjson_val *request, jinja_run *run, jinja_template **t, jinja_value *text, relay_err *e) {
    yyjson_val *source = yyjson_obj_get(request, "template"), *now = yyjson_obj_get(request, "now"), *name, *item;
    size_t i, n;
    if (yyjson_is_int(now)) jinja_run_set_time(run, yyjson_get_sint(now));
    relay_code code = jinja_template_compile(t, yyjson_get_str(source), yyjson_get_len(source), e);
    yyjson_obj_foreach(yyjson_obj_get(request, "context"), i, n, name, item) {
        jinja_value v;
        if (code == RELAY_OK && !jinja_from_json(run, item, &v)) code = jinja_run_error(run, e);
        if (code == RELAY_OK) code = jinja_run_set(run, yyjson_get_str(name), yyjson_get_len(name), v, e);
    }
    return code == RELAY_OK ? jinja_run_render(run, *t, text, e) : code;
}

static void put_origins(relay_buf *out, jinja_value text) {
    for (size_t i = 0; i < text.len; i++) {
        bool is_template = jinja_origin_at(text, i) == JINJA_TEMPLATE;
        relay_buf_putc(out, is_template ? '1' : '0');
    }
}

static void answer(const char *line, size_t len, relay_buf *out) {
    yyjson_doc *doc;
    jinja_value text;
    jinja_template *t = NULL;
    relay_err e = {0};
    jinja_run *run = jinja_run_create(&JINJA_LIMITS_DEFAULT);
    relay_code code = relay_json_parse(&doc, line, len, RELAY_JSON_MAX_DEPTH, "line", &e);
    if (code == RELAY_OK) code = render(yyjson_doc_get_root(doc), run, &t, &text, &e);
    relay_buf_puts(out, code == RELAY_OK ? "{\"text\": " : "{\"error\": ");
    if (code == RELAY_OK) {
        relay_buf_put_json_string(out, text.s, text.len);
        relay_buf_puts(out, ", \"from\": \"");
        put_origins(out, text);
        relay_buf_putc(out, '"');
    } else {
        relay_buf_put_json_string(out, e.message, strlen(e.message));
    }
    relay_buf_puts(out, "}\n");
    jinja_run_destroy(run);
    jinja_template_destroy(t);
    yyjson_doc_free(doc);
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    relay_buf out;
    relay_buf_init(&out, SIZE_MAX / 2);
    while ((len = getline(&line, &cap, stdin)) > 0) {
        answer(line, (size_t)len, &out);
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
        relay_buf_clear(&out);
    }
    relay_buf_fini(&out);
    free(line);
    return 0;
}
