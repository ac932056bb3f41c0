// Lines of JSON through the tokenizers of files, for tests/oracle. Reads objects, one a line:
//
//   {"tokenizer": "FILE"}   loads it; answers {"fingerprint": "..."}, the vocabulary's in hexadecimal, or {"error":
//   "..."}
//   {"text": "...", "special": true, "open": true, "max": 0, "left": false}
//       encodes with the last one loaded: the tokens around a text, names of special tokens, truncation. Answers
//       {"ids": [..], "begin": [..], "end": [..]}; without offsets the ids must be the same, or it says "differs"
//   {"ids": [..], "skip": false}
//       decodes with the last one loaded, with or without special tokens. Answers {"text": "..."}
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/json.h"
#include "tokenizer_svc/decoder.h"
#include "tokenizer_svc/formats/formats.h"
#include "tokenizer_svc/spec_vocab.h"
#include "tokenizer_svc/text_stream.h"
#include "tokenizer_svc/tokenizer.h"

typedef struct loaded {
    relay_tokenizer *tokenizer; // NULL: none
    relay_vocab *vocab;
    relay_text_decoder *decoder;
} loaded;

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

static void unload(loaded *l) {
    relay_tokenizer_destroy(l->tokenizer);
    relay_vocab_destroy(l->vocab);
    relay_text_decoder_destroy(l->decoder);
    *l = (loaded){0};
}

static void load(loaded *l, const char *path, relay_buf *out) {
    unload(l);
    relay_tokenizer_spec spec;
    relay_err e = {0};
    relay_code code = relay_tokenizer_spec_read(&spec, path, &e);
    if (code == RELAY_OK) code = relay_tokenizer_create(&l->tokenizer, &spec, &e);
    if (code == RELAY_OK) code = relay_vocab_create_from_spec(&l->vocab, &spec, &e);
    if (code == RELAY_OK) code = relay_text_decoder_create(&l->decoder, &spec, &e);
    relay_tokenizer_spec_fini(&spec);
    if (code != RELAY_OK) {
        unload(l);
        put_error(out, &e);
        return;
    }
    relay_buf_puts(out, "{\"fingerprint\":\"");
    for (int i = 0; i < RELAY_FINGERPRINT_BYTES; i++)
        relay_buf_printf(out, "%02x", relay_vocab_fingerprint(l->vocab)[i]);
    relay_buf_puts(out, "\"}\n");
}

static void decode(const loaded *l, yyjson_val *line, relay_buf *out) {
    relay_text_stream_opts opts = {
        .vocab = l->vocab,
        .decoder = l->decoder,
        .skip_special_tokens = yyjson_get_bool(yyjson_obj_get(line, "skip")),
    };
    relay_text_stream *stream;
    relay_err e = {0};
    if (relay_text_stream_create(&stream, &opts, &e) != RELAY_OK) {
        put_error(out, &e);
        return;
    }
    relay_buf text;
    relay_buf_init(&text, (size_t)1 << 30);
    size_t i, n;
    yyjson_val *v;
    yyjson_arr_foreach(yyjson_obj_get(line, "ids"), i, n, v) {
        uint32_t id = (uint32_t)yyjson_get_uint(v);
        relay_text_step step;
        if (id < relay_vocab_size(l->vocab)) relay_text_stream_push(stream, &id, 1, true, &text, &step);
    }
    relay_text_stream_finish(stream, &text);
    relay_text_stream_destroy(stream);
    relay_buf_puts(out, "{\"text\":");
    relay_buf_put_json_string(out, text.data == NULL ? "" : text.data, text.len);
    relay_buf_puts(out, "}\n");
    relay_buf_fini(&text);
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
    loaded l = {0};
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
            load(&l, yyjson_get_str(path), &out);
        else if (l.tokenizer != NULL && yyjson_obj_get(root, "ids") != NULL)
            decode(&l, root, &out);
        else if (l.tokenizer != NULL)
            encode(l.tokenizer, root, &out);
        else
            relay_buf_puts(&out, "{\"error\":\"no tokenizer\"}\n");
        yyjson_doc_free(doc);
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
    }
    relay_buf_fini(&out);
    unload(&l);
    free(line);
    return 0;
}
