#include "tests/common/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/buf.h"
#include "common/status.h"

struct gguf_writer {
    uint32_t version, alignment;
    uint64_t n_keys, n_tensors;
    uint64_t claimed_keys, claimed_tensors; // UINT64_MAX: the truth
    relay_buf keys, tensors, data, file;
};

static void put_u32(relay_buf *b, uint32_t v) {
    relay_buf_append(b, &v, sizeof v);
}

static void put_u64(relay_buf *b, uint64_t v) {
    relay_buf_append(b, &v, sizeof v);
}

static void put_string(relay_buf *b, const char *s, size_t len) {
    put_u64(b, len);
    relay_buf_append(b, s, len);
}

static void align(relay_buf *b, uint32_t alignment) {
    while (alignment != 0 && b->len % alignment != 0)
        relay_buf_putc(b, 0);
}

gguf_writer *gguf_writer_create(void) {
    gguf_writer *w = relay_calloc(1, sizeof *w);
    w->version = 3;
    w->alignment = 32;
    w->claimed_keys = w->claimed_tensors = UINT64_MAX;
    relay_buf *parts[] = {&w->keys, &w->tensors, &w->data, &w->file};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        relay_buf_init(parts[i], SIZE_MAX / 2);
    return w;
}

void gguf_writer_destroy(gguf_writer *w) {
    if (w == NULL) return;
    relay_buf_fini(&w->keys);
    relay_buf_fini(&w->tensors);
    relay_buf_fini(&w->data);
    relay_buf_fini(&w->file);
    free(w);
}

static size_t type_bytes(gguf_writer_type type) {
    switch (type) {
    case GGUF_UINT8:
    case GGUF_INT8:
    case GGUF_BOOL:
        return 1;
    case GGUF_UINT16:
    case GGUF_INT16:
        return 2;
    case GGUF_UINT32:
    case GGUF_INT32:
    case GGUF_FLOAT32:
        return 4;
    default:
        RELAY_ASSERT(type == GGUF_UINT64 || type == GGUF_INT64 || type == GGUF_FLOAT64);
        return 8;
    }
}

static void begin_key(gguf_writer *w, const char *key, gguf_writer_type type) {
    put_string(&w->keys, key, strlen(key));
    put_u32(&w->keys, type);
    w->n_keys++;
}

void gguf_writer_scalar(gguf_writer *w, const char *key, gguf_writer_type type, const void *value) {
    begin_key(w, key, type);
    relay_buf_append(&w->keys, value, type_bytes(type));
}

void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t value) {
    gguf_writer_scalar(w, key, GGUF_UINT32, &value);
}

void gguf_writer_f32(gguf_writer *w, const char *key, float value) {
    gguf_writer_scalar(w, key, GGUF_FLOAT32, &value);
}

void gguf_writer_bool(gguf_writer *w, const char *key, bool value) {
    gguf_writer_scalar(w, key, GGUF_BOOL, &(uint8_t){value});
}

void gguf_writer_string(gguf_writer *w, const char *key, const char *value) {
    begin_key(w, key, GGUF_STRING);
    put_string(&w->keys, value, strlen(value));
}

static void begin_array(gguf_writer *w, const char *key, gguf_writer_type element, uint64_t n) {
    begin_key(w, key, GGUF_ARRAY);
    put_u32(&w->keys, element);
    put_u64(&w->keys, n);
}

void gguf_writer_array(gguf_writer *w, const char *key, gguf_writer_type element, const void *values, uint64_t n) {
    begin_array(w, key, element, n);
    relay_buf_append(&w->keys, values, n * type_bytes(element));
}

void gguf_writer_string_array(gguf_writer *w, const char *key, const char *const *values, uint64_t n) {
    begin_array(w, key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        put_string(&w->keys, values[i], strlen(values[i]));
}

void gguf_writer_bytes_array(gguf_writer *w, const char *key, const char *const *values, const size_t *lens,
                             uint64_t n) {
    begin_array(w, key, GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        put_string(&w->keys, values[i], lens[i]);
}

void gguf_writer_raw_key(gguf_writer *w, const void *bytes, size_t len) {
    relay_buf_append(&w->keys, bytes, len);
    w->n_keys++;
}

void gguf_writer_raw_tensor(gguf_writer *w, const char *name, uint64_t name_len, uint32_t ggml_type, uint32_t n_dims,
                            const uint64_t *dims, uint64_t offset) {
    put_string(&w->tensors, name, name_len);
    put_u32(&w->tensors, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_u64(&w->tensors, dims[i]);
    put_u32(&w->tensors, ggml_type);
    put_u64(&w->tensors, offset);
    w->n_tensors++;
}

void gguf_writer_raw_data(gguf_writer *w, const void *data, size_t n_bytes) {
    relay_buf_append(&w->data, data, n_bytes);
}

void gguf_writer_tensor(gguf_writer *w, const char *name, uint32_t ggml_type, uint32_t n_dims, const uint64_t *dims,
                        const void *data, size_t n_bytes) {
    align(&w->data, w->alignment);
    gguf_writer_raw_tensor(w, name, strlen(name), ggml_type, n_dims, dims, w->data.len);
    gguf_writer_raw_data(w, data, n_bytes);
}

void gguf_writer_set_version(gguf_writer *w, uint32_t version) {
    w->version = version;
}

void gguf_writer_set_alignment(gguf_writer *w, uint32_t alignment) {
    w->alignment = alignment;
}

void gguf_writer_claim_tensors(gguf_writer *w, uint64_t n) {
    w->claimed_tensors = n;
}

void gguf_writer_claim_keys(gguf_writer *w, uint64_t n) {
    w->claimed_keys = n;
}

const uint8_t *gguf_writer_finish(gguf_writer *w, size_t *len) {
    relay_buf *f = &w->file;
    relay_buf_clear(f);
    relay_buf_append(f, "GGUF", 4);
    put_u32(f, w->version);
    put_u64(f, w->claimed_tensors != UINT64_MAX ? w->claimed_tensors : w->n_tensors);
    put_u64(f, w->claimed_keys != UINT64_MAX ? w->claimed_keys : w->n_keys);
    relay_buf_append(f, w->keys.data, w->keys.len);
    relay_buf_append(f, w->tensors.data, w->tensors.len);
    if (w->n_tensors != 0) align(f, w->alignment);
    relay_buf_append(f, w->data.data, w->data.len);
    *len = f->len;
    return (const uint8_t *)f->data;
}

bool gguf_writer_save(gguf_writer *w, const char *path) {
    size_t len;
    const uint8_t *bytes = gguf_writer_finish(w, &len);
    FILE *file = fopen(path, "wb");
    if (file == NULL) return false;
    bool ok = fwrite(bytes, 1, len, file) == len;
    return fclose(file) == 0 && ok;
}
