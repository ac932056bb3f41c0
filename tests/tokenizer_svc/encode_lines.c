// Lines of JSON through the tokenizers of files, for tests/oracle. Reads objects, one a line:
//
//   {"tokenizer": "FILE"}   loads it; answers {} or {"error": "..."}
//   {"text": "...", "special": true, "open": true, "max": 0, "left": false}
//       encodes with the last one loaded: the tokens around a text, names of special tokens, truncation. Answers
//       {"ids": [..], "begin": [..], "end": [..]}; without offsets the ids must be the same, or it says "differs"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/json.h"
#include "tokenizer_svc/formats/formats.h"
#include "tokenizer_svc/tokenizer.h"

static void put_error(relay_buf *out, const relay_err *e) {
    relay_buf_puts(out, "{\"error\":");
    relay_buf_put_json_string(out, e->message, strlen(e->message));
    relay_buf_puts(out, "}\n");
}

static void put_list(relay_buf *out, const char *name, const uint32_t *v, uint32_t n) {
    relay_buf_printf(out, "\"%s\":[", name);
    for (uint32_t i = 0; i < n; i++)
        relay_buf_printf(out, i == 0 ? "%u" : ",%u", v[i]);
    relay_buf_putc(out, ']');
}

static void load(relay_tokenizer **t, const char *path, relay_buf *out) {
    relay_tokenizer_destroy(*t);
    *t = NULL;
    relay_tokenizer_spec spec;
    relay_err e = {0};
    relay_code code = relay_tokenizer_spec_read(&spec, path, &e);
    if (code == RELAY_OK) code = relay_tokenizer_create(t, &spec, &e);
    relay_tokenizer_spec_fini(&spec);
    if (code == RELAY_OK)
        relay_buf_puts(out, "{}\n");
    else
        put_error(out, &e);
}

static void encode(const relay_tokenizer *t, yyjson_val *line, relay_buf *out) {
    yyjson_val *text = yyjson_obj_get(line, "text");
    relay_text_span span = {
        .text = yyjson_get_str(text),
        .len = yyjson_get_len(text),
        .parse_special = yyjson_get_bool(yyjson_obj_get(line, "open")),
    };
    relay_encode_opts opts = {
        .add_special_tokens = yyjson_get_bool(yyjson_obj_get(line, "special")),
        .want_offsets = true,
        .max_tokens = (uint32_t)yyjson_get_uint(yyjson_obj_get(line, "max")),
        .truncate_left = yyjson_get_bool(yyjson_obj_get(line, "left")),
    };
    relay_encoding enc = {0}, plain = {0};
    relay_err e = {0};
    relay_code code = relay_tokenizer_encode(t, &span, 1, &opts, &enc, &e);
    opts.want_offsets = false;
    if (code == RELAY_OK) code = relay_tokenizer_encode(t, &span, 1, &opts, &plain, &e);
    if (code != RELAY_OK) {
        put_error(out, &e);
    } else if (plain.n != enc.n || (enc.n > 0 && memcmp(plain.ids, enc.ids, enc.n * sizeof *enc.ids) != 0)) {
        relay_buf_puts(out, "\"differs\"\n");
    } else {
        relay_buf_putc(out, '{');
        put_list(out, "ids", enc.ids, enc.n);
        relay_buf_putc(out, ',');
        put_list(out, "begin", enc.offset_begin, enc.n);
        relay_buf_putc(out, ',');
        put_list(out, "end", enc.offset_end, enc.n);
        relay_buf_puts(out, "}\n");
    }
    relay_encoding_fini(&enc);
    relay_encoding_fini(&plain);
}

int main(void) {
    relay_tokenizer *t = NULL;
    char *line = NULL;
    size_t cap = 0;
    relay_buf out;
    relay_buf_init(&out, (size_t)1 << 30);
    for (ssize_t len; (len = getline(&line, &cap, stdin)) > 0;) {
        yyjson_doc *doc;
        relay_err e = {0};
        relay_buf_clear(&out);
        if (relay_json_parse(&doc, line, (size_t)len, 4, "line", &e) != RELAY_OK) {
            fprintf(stderr, "encode_lines: %s\n", e.message);
            return 1;
        }
        yyjson_val *root = yyjson_doc_get_root(doc), *path = yyjson_obj_get(root, "tokenizer");
        if (path != NULL)
            load(&t, yyjson_get_str(path), &out);
        else if (t != NULL)
            encode(t, root, &out);
        else
            relay_buf_puts(&out, "{\"error\":\"no tokenizer\"}\n");
        yyjson_doc_free(doc);
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
    }
    relay_buf_fini(&out);
    relay_tokenizer_destroy(t);
    free(line);
    return 0;
}
