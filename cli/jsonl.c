#include "cli/jsonl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

enum { CHUNK_BYTES = 1 << 16, MAX_ANSWER_BYTES = 1 << 30, KEPT_BYTES = 1 << 20, DIGITS_MAX = 10 };

typedef struct reader {
    char chunk[CHUNK_BYTES];
    size_t at, n;   // what of the chunk is not read yet
    relay_buf line; // without its end
    bool is_too_long;
    bool is_failed; // standard input cannot be read
} reader;

// More of standard input; false at its end. What was answered goes out first: whoever writes may wait for it.
static bool fill(reader *r) {
    fflush(stdout);
    ssize_t n;
    do {
        n = read(STDIN_FILENO, r->chunk, sizeof r->chunk);
    } while (n < 0 && errno == EINTR);
    r->is_failed = n < 0;
    if (r->is_failed) fprintf(stderr, "relay: standard input: %s\n", strerror(errno));
    r->at = 0;
    r->n = n > 0 ? (size_t)n : 0;
    return n > 0;
}

// The next line into r->line; false behind the last one. Of a line that is too long nothing is kept.
static bool read_line(reader *r) {
    // A long line's memory is not held for the rest of a long input.
    if (r->line.cap > KEPT_BYTES) relay_buf_fini(&r->line);
    relay_buf_clear(&r->line);
    bool any = false;
    for (;;) {
        if (r->at == r->n && !fill(r)) break;
        any = true;
        const char *from = r->chunk + r->at;
        const char *end = memchr(from, '\n', r->n - r->at);
        size_t len = end != NULL ? (size_t)(end - from) : r->n - r->at;
        relay_buf_append(&r->line, from, len);
        r->at += len + (end != NULL);
        if (end != NULL) break;
    }
    r->is_too_long = r->line.is_failed;
    return any;
}

static relay_code answer_line(const reader *r, relay_jsonl_answer answer, void *arg, relay_buf *out, relay_err *e) {
    if (r->is_too_long) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "the line has more than %d bytes", RELAY_CLI_MAX_INPUT);
    }
    if (r->line.len == 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "the line is empty");
    yyjson_doc *doc;
    relay_code code = relay_json_parse(&doc, r->line.data, r->line.len, RELAY_JSON_MAX_DEPTH, "line", e);
    if (code != RELAY_OK) return code;
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (yyjson_is_obj(root))
        code = answer(arg, root, out, e);
    else
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "the line is not a JSON object");
    yyjson_doc_free(doc);
    if (code == RELAY_OK && out->is_failed) {
        code = relay_fail(e, RELAY_RESOURCE_EXHAUSTED, "the answer has more than %d bytes", MAX_ANSWER_BYTES);
    }
    return code;
}

int relay_jsonl_run(relay_jsonl_answer answer, void *arg) {
    reader *r = relay_calloc(1, sizeof *r);
    relay_buf out;
    relay_buf_init(&r->line, RELAY_CLI_MAX_INPUT);
    relay_buf_init(&out, MAX_ANSWER_BYTES);
    int exit_code = RELAY_EXIT_OK;
    while (!ferror(stdout) && read_line(r)) {
        relay_err e = {0};
        if (answer_line(r, answer, arg, &out, &e) != RELAY_OK) {
            exit_code = RELAY_EXIT_FAILED;
            relay_buf_clear(&out);
            relay_buf_puts(&out, "{\"error\": ");
            relay_buf_put_json_string(&out, e.message, strlen(e.message));
            relay_buf_putc(&out, '}');
        }
        relay_buf_putc(&out, '\n');
        fwrite(out.data, 1, out.len, stdout);
        if (out.cap > KEPT_BYTES) relay_buf_fini(&out);
        relay_buf_clear(&out);
    }
    if (r->is_failed) exit_code = RELAY_EXIT_FAILED;
    relay_buf_fini(&out);
    relay_buf_fini(&r->line);
    free(r);
    return exit_code;
}

// ---- Reading a line's object

relay_code relay_jsonl_check_keys(yyjson_val *object, const char *const *known, size_t n, relay_err *e) {
    size_t i, n_keys;
    yyjson_val *key, *value;
    yyjson_obj_foreach(object, i, n_keys, key, value) {
        bool is_known = false;
        for (size_t k = 0; k < n && !is_known; k++)
            is_known = yyjson_equals_str(key, known[k]);
        if (is_known) continue;
        int shown = yyjson_get_len(key) > 64 ? 64 : (int)yyjson_get_len(key);
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "\"%.*s\" is no key of such a line", shown, yyjson_get_str(key));
    }
    return RELAY_OK;
}

relay_code relay_jsonl_bool(yyjson_val *object, const char *key, int *is_set, int *value, relay_err *e) {
    yyjson_val *v = yyjson_obj_get(object, key);
    if (v == NULL || yyjson_is_null(v)) return RELAY_OK;
    if (!yyjson_is_bool(v)) return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s must be true or false", key);
    *is_set = 1;
    *value = yyjson_get_bool(v);
    return RELAY_OK;
}

relay_code relay_jsonl_int(yyjson_val *object, const char *key, int *is_set, int64_t *value, relay_err *e) {
    yyjson_val *v = yyjson_obj_get(object, key);
    if (v == NULL || yyjson_is_null(v)) return RELAY_OK;
    if (!yyjson_is_int(v) || (yyjson_is_uint(v) && yyjson_get_uint(v) > INT64_MAX)) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s must be an integer of 64 bits", key);
    }
    *is_set = 1;
    *value = yyjson_get_sint(v);
    return RELAY_OK;
}

relay_code relay_jsonl_need(yyjson_val *object, const char *key, yyjson_type type, const char *type_name,
                            yyjson_val **value, relay_err *e) {
    *value = yyjson_obj_get(object, key);
    if (*value == NULL) return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s is missing", key);
    if (yyjson_get_type(*value) != type) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s must be %s", key, type_name);
    }
    return RELAY_OK;
}

relay_code relay_jsonl_ids(yyjson_val *array, const char *key, uint32_t **ids, size_t *n, relay_err *e) {
    *n = yyjson_arr_size(array);
    *ids = relay_calloc(*n == 0 ? 1 : *n, sizeof **ids);
    size_t i, n_items;
    yyjson_val *item;
    yyjson_arr_foreach(array, i, n_items, item) {
        if (yyjson_is_uint(item) && yyjson_get_uint(item) <= UINT32_MAX) {
            (*ids)[i] = (uint32_t)yyjson_get_uint(item);
            continue;
        }
        free(*ids);
        *ids = NULL;
        char *shown = yyjson_val_write(item, YYJSON_WRITE_ESCAPE_UNICODE, NULL);
        relay_code code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s[%zu] is %.20s, which is not a token id, 0 to %u",
                                     key, i, shown == NULL ? "a number" : shown, UINT32_MAX);
        free(shown);
        return code;
    }
    return RELAY_OK;
}

// ---- Writing

void relay_jsonl_put_ids(relay_buf *out, const uint32_t *ids, size_t n) {
    relay_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        char text[DIGITS_MAX + 2];
        char *at = text + sizeof text;
        char *const end = at;
        uint32_t id = ids[i];
        do {
            *--at = (char)('0' + id % 10);
        } while ((id /= 10) != 0);
        if (i != 0) {
            *--at = ' ';
            *--at = ',';
        }
        relay_buf_append(out, at, (size_t)(end - at));
    }
    relay_buf_putc(out, ']');
}
