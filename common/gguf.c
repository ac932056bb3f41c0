// How a GGUF file is read.
//
// The file is: "GGUF", version, number of tensors, number of keys; the keys with their values; the tensors' names,
// shapes, types and offsets; padding to the alignment; the data section, which the offsets count from. All numbers are
// little-endian. (Format: ggml's docs/gguf.md.)
//
// One pass with a cursor that cannot leave the file. Each count is first held against the least number of bytes that so
// many entries take, so that a lying count is refused before anything is allocated for it. What the pass keeps: for
// each key where its value lies, for each array of strings where each string lies (so that reading one by index is
// constant time), and an index by name for keys and tensors, which is also what finds duplicates. Values are decoded
// when asked for.
#include "common/gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/utf8.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF numbers are read as they lie");

enum {
    HEADER_BYTES = 24,
    MAX_KEYS = 1 << 16,
    MAX_TENSORS = 1 << 20,
    MAX_KEY_BYTES = 65535,      // the format's own limit
    MAX_TENSOR_NAME_BYTES = 64, // the format's own limit
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
    DEFAULT_ALIGNMENT = 32,
};

// ---- The cursor

typedef struct cursor {
    const relay_gguf *g;
    const uint8_t *at, *end;
} cursor;

static uint64_t left(const cursor *c) {
    return (uint64_t)(c->end - c->at);
}

// The next n bytes, or NULL if the file ends before.
static const uint8_t *take(cursor *c, uint64_t n) {
    if (n > left(c)) return NULL;
    const uint8_t *p = c->at;
    c->at += n;
    return p;
}

static bool take_u32(cursor *c, uint32_t *v) {
    const uint8_t *p = take(c, sizeof *v);
    if (p != NULL) memcpy(v, p, sizeof *v);
    return p != NULL;
}

static bool take_u64(cursor *c, uint64_t *v) {
    const uint8_t *p = take(c, sizeof *v);
    if (p != NULL) memcpy(v, p, sizeof *v);
    return p != NULL;
}

static relay_code read_name(cursor *c, const char *kind, uint64_t i, uint32_t max, const char **name,
                            uint32_t *name_len, relay_err *e) {
    uint64_t len;
    if (!take_u64(c, &len)) return relay_gguf_fail(c->g, e, "the file ends in the name of %s %" PRIu64, kind, i);
    if (len == 0 || len > max)
        return relay_gguf_fail(c->g, e, "the name of %s %" PRIu64 " has %" PRIu64 " bytes; it must have 1 to %u", kind,
                               i, len, max);
    const char *s = (const char *)take(c, len);
    if (s == NULL)
        return relay_gguf_fail(c->g, e, "the name of %s %" PRIu64 " has %" PRIu64 " bytes, past the end of the file",
                               kind, i, len);
    size_t valid = relay_utf8_valid_prefix(s, len);
    if (valid != len)
        return relay_gguf_fail(c->g, e, "the name of %s %" PRIu64 " (\"%.*s\") is no valid UTF-8 at byte %zu", kind, i,
                               relay_gguf_shown(len), s, valid);
    if (memchr(s, 0, len) != NULL)
        return relay_gguf_fail(c->g, e, "the name of %s %" PRIu64 " (\"%.*s\") holds a NUL byte", kind, i,
                               relay_gguf_shown(len), s);
    *name = s;
    *name_len = (uint32_t)len;
    return RELAY_OK;
}

// ---- Keys

static relay_code check_bools(const cursor *c, const relay_gguf_key *k, uint64_t n, relay_err *e) {
    for (uint64_t i = 0; i < n; i++)
        if (k->at[i] > 1)
            return relay_gguf_fail(c->g, e, "key \"%.*s\": element %" PRIu64 " is the byte %u; a bool is 0 or 1",
                                   relay_gguf_shown(k->name_len), k->name, i, k->at[i]);
    return RELAY_OK;
}

static relay_code read_string(cursor *c, const relay_gguf_key *k, uint64_t i, relay_err *e) {
    uint64_t len;
    if (!take_u64(c, &len))
        return relay_gguf_fail(c->g, e, "key \"%.*s\": the file ends in the length of string %" PRIu64,
                               relay_gguf_shown(k->name_len), k->name, i);
    if (take(c, len) == NULL)
        return relay_gguf_fail(c->g, e,
                               "key \"%.*s\": string %" PRIu64 " of %" PRIu64 " bytes reaches past the end of the file",
                               relay_gguf_shown(k->name_len), k->name, i, len);
    return RELAY_OK;
}

static relay_code read_array(cursor *c, relay_gguf_key *k, relay_err *e) {
    uint32_t element;
    if (!take_u32(c, &element) || !take_u64(c, &k->count))
        return relay_gguf_fail(c->g, e, "key \"%.*s\": the file ends in its array", relay_gguf_shown(k->name_len),
                               k->name);
    if (element >= RELAY_GGUF_N_TYPES)
        return relay_gguf_fail(c->g, e, "key \"%.*s\": unknown element type %u", relay_gguf_shown(k->name_len), k->name,
                               element);
    if (element == RELAY_GGUF_ARRAY)
        return relay_gguf_fail(c->g, e, "key \"%.*s\": an array of arrays, which Relay does not read",
                               relay_gguf_shown(k->name_len), k->name);
    k->element = element;
    uint64_t least = element == RELAY_GGUF_STRING ? 8 : relay_gguf_types[element].bytes; // bytes an element
    if (k->count > left(c) / least)
        return relay_gguf_fail(c->g, e, "key \"%.*s\": %" PRIu64 " elements of type %s do not fit the file",
                               relay_gguf_shown(k->name_len), k->name, k->count, relay_gguf_types[element].name);
    k->at = c->at;
    if (element != RELAY_GGUF_STRING) {
        (void)take(c, k->count * least);
        return element == RELAY_GGUF_BOOL ? check_bools(c, k, k->count, e) : RELAY_OK;
    }
    k->string = relay_calloc(k->count, sizeof *k->string);
    for (uint64_t i = 0; i < k->count; i++) {
        k->string[i] = c->at;
        relay_code code = read_string(c, k, i, e);
        if (code != RELAY_OK) return code;
    }
    return RELAY_OK;
}

static relay_code read_key(cursor *c, relay_gguf_key *k, uint32_t i, relay_err *e) {
    relay_code code = read_name(c, "key", i, MAX_KEY_BYTES, &k->name, &k->name_len, e);
    if (code != RELAY_OK) return code;
    uint32_t type;
    if (!take_u32(c, &type))
        return relay_gguf_fail(c->g, e, "key \"%.*s\": the file ends before its type", relay_gguf_shown(k->name_len),
                               k->name);
    if (type >= RELAY_GGUF_N_TYPES)
        return relay_gguf_fail(c->g, e, "key \"%.*s\": unknown value type %u", relay_gguf_shown(k->name_len), k->name,
                               type);
    k->type = type;
    if (type == RELAY_GGUF_ARRAY) return read_array(c, k, e);
    k->at = c->at;
    if (type == RELAY_GGUF_STRING) return read_string(c, k, 0, e);
    if (take(c, relay_gguf_types[type].bytes) == NULL)
        return relay_gguf_fail(c->g, e, "key \"%.*s\": the file ends in its value", relay_gguf_shown(k->name_len),
                               k->name);
    return type == RELAY_GGUF_BOOL ? check_bools(c, k, 1, e) : RELAY_OK;
}

static relay_code read_keys(relay_gguf *g, cursor *c, uint32_t n, relay_err *e) {
    g->keys = relay_calloc(n, sizeof *g->keys);
    relay_str_index_init(&g->key_index, n);
    for (uint32_t i = 0; i < n; i++) {
        relay_gguf_key *k = &g->keys[i];
        g->n_keys = i + 1; // what close() frees
        relay_code code = read_key(c, k, i, e);
        if (code != RELAY_OK) return code;
        if (relay_str_index_add(&g->key_index, k->name, k->name_len, i) != RELAY_STR_NONE)
            return relay_gguf_fail(g, e, "key \"%.*s\" is there twice", relay_gguf_shown(k->name_len), k->name);
    }
    return RELAY_OK;
}

// ---- Tensors

// The tensor's size from its type and shape, as far as the type is known.
static relay_code size_tensor(const relay_gguf *g, relay_gguf_tensor *t, relay_err *e) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->dims[d] == 0) return relay_gguf_fail(g, e, "tensor \"%s\": dimension %u is 0", t->name, d);
        if (__builtin_mul_overflow(n, t->dims[d], &n) || n > INT64_MAX)
            return relay_gguf_fail(g, e,
                                   "tensor \"%s\": dimension %u is %" PRIu64 ", which makes more than 2^63 values",
                                   t->name, d, t->dims[d]);
    }
    uint32_t block_values, block_bytes;
    if (!relay_ggml_type_block(t->type, &block_values, &block_bytes)) return RELAY_OK;
    if (t->dims[0] % block_values != 0)
        return relay_gguf_fail(g, e,
                               "tensor \"%s\": dimension 0 is %" PRIu64 ", no multiple of the %u values of a %s block",
                               t->name, t->dims[0], block_values, relay_ggml_type_name(t->type));
    if (__builtin_mul_overflow(n / block_values, block_bytes, &t->n_bytes))
        return relay_gguf_fail(g, e, "tensor \"%s\": %" PRIu64 " values of type %s are more than 2^64 bytes", t->name,
                               n, relay_ggml_type_name(t->type));
    return RELAY_OK;
}

// The entry of one tensor; its offset goes to *offset, since where the data section begins is not known yet.
static relay_code read_tensor(cursor *c, uint32_t i, char *name_copy, relay_gguf_tensor *t, uint64_t *offset,
                              relay_err *e) {
    const char *name;
    uint32_t name_len;
    relay_code code = read_name(c, "tensor", i, MAX_TENSOR_NAME_BYTES, &name, &name_len, e);
    if (code != RELAY_OK) return code;
    memcpy(name_copy, name, name_len);
    t->name = name_copy;
    if (!take_u32(c, &t->n_dims))
        return relay_gguf_fail(c->g, e, "tensor \"%s\": the file ends before its number of dimensions", t->name);
    if (t->n_dims == 0 || t->n_dims > RELAY_GGUF_MAX_DIMS)
        return relay_gguf_fail(c->g, e, "tensor \"%s\": %u dimensions; it must have 1 to %d", t->name, t->n_dims,
                               RELAY_GGUF_MAX_DIMS);
    for (uint32_t d = 0; d < RELAY_GGUF_MAX_DIMS; d++) {
        t->dims[d] = 1;
        if (d < t->n_dims && !take_u64(c, &t->dims[d]))
            return relay_gguf_fail(c->g, e, "tensor \"%s\": the file ends in dimension %u", t->name, d);
    }
    if (!take_u32(c, &t->type) || !take_u64(c, offset))
        return relay_gguf_fail(c->g, e, "tensor \"%s\": the file ends before its type and offset", t->name);
    return size_tensor(c->g, t, e);
}

// Points the tensors into the data section.
static relay_code place_tensors(relay_gguf *g, const cursor *c, const uint64_t *offsets, uint64_t alignment,
                                relay_err *e) {
    uint64_t start = ((uint64_t)(c->at - g->data) + alignment - 1) / alignment * alignment;
    if (g->n_tensors != 0 && start > g->len)
        return relay_gguf_fail(g, e, "the file ends at byte %zu, before its data section at byte %" PRIu64, g->len,
                               start);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        relay_gguf_tensor *t = &g->tensors[i];
        uint64_t section = g->len - start;
        if (offsets[i] % alignment != 0)
            return relay_gguf_fail(g, e, "tensor \"%s\": offset %" PRIu64 " is no multiple of the alignment %" PRIu64,
                                   t->name, offsets[i], alignment);
        if (offsets[i] > section || t->n_bytes > section - offsets[i])
            return relay_gguf_fail(g, e,
                                   "tensor \"%s\": %" PRIu64 " bytes at offset %" PRIu64
                                   " reach past the data section's %" PRIu64 " bytes",
                                   t->name, t->n_bytes, offsets[i], section);
        if (t->n_bytes != 0) t->data = g->data + start + offsets[i];
    }
    return RELAY_OK;
}

static int compare_data(const void *a, const void *b) {
    const relay_gguf_tensor *x = *(const relay_gguf_tensor *const *)a, *y = *(const relay_gguf_tensor *const *)b;
    return (x->data > y->data) - (x->data < y->data);
}

static relay_code check_overlap(const relay_gguf *g, relay_err *e) {
    const relay_gguf_tensor **sorted = relay_calloc(g->n_tensors, sizeof *sorted);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].data != NULL) sorted[n++] = &g->tensors[i];
    qsort(sorted, n, sizeof *sorted, compare_data);
    relay_code code = RELAY_OK;
    for (uint32_t i = 1; i < n && code == RELAY_OK; i++) {
        const relay_gguf_tensor *before = sorted[i - 1], *t = sorted[i];
        if ((const uint8_t *)before->data + before->n_bytes > (const uint8_t *)t->data)
            code = relay_gguf_fail(g, e, "tensors \"%s\" and \"%s\" overlap", before->name, t->name);
    }
    free(sorted);
    return code;
}

static relay_code read_tensors(relay_gguf *g, cursor *c, uint32_t n, uint64_t alignment, relay_err *e) {
    enum { NAME = MAX_TENSOR_NAME_BYTES + 1 };
    g->tensors = relay_calloc(n, sizeof *g->tensors);
    g->tensor_names = relay_calloc(n, NAME);
    relay_str_index_init(&g->tensor_index, n);
    uint64_t *offsets = relay_calloc(n, sizeof *offsets);
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; i < n && code == RELAY_OK; i++) {
        relay_gguf_tensor *t = &g->tensors[i];
        code = read_tensor(c, i, g->tensor_names + (size_t)i * NAME, t, &offsets[i], e);
        if (code == RELAY_OK &&
            relay_str_index_add(&g->tensor_index, t->name, (uint32_t)strlen(t->name), i) != RELAY_STR_NONE)
            code = relay_gguf_fail(g, e, "tensor \"%s\" is there twice", t->name);
    }
    g->n_tensors = n;
    if (code == RELAY_OK) code = place_tensors(g, c, offsets, alignment, e);
    if (code == RELAY_OK) code = check_overlap(g, e);
    free(offsets);
    return code;
}

// ---- The file

static relay_code read_header(cursor *c, uint64_t *n_tensors, uint64_t *n_keys, relay_err *e) {
    const relay_gguf *g = c->g;
    if (g->len < HEADER_BYTES)
        return relay_gguf_fail(g, e, "the file has %zu bytes; a GGUF header has %d", g->len, HEADER_BYTES);
    const uint8_t *magic = take(c, 4);
    if (memcmp(magic, "GGUF", 4) != 0)
        return relay_gguf_fail(g, e, "the magic is %02x %02x %02x %02x; a GGUF file begins with 47 47 55 46 (\"GGUF\")",
                               magic[0], magic[1], magic[2], magic[3]);
    uint32_t version;
    (void)take_u32(c, &version);
    if (version != 0 && (version & 0xFFFF) == 0)
        return relay_gguf_fail(
            g, e, "version 0x%08x: the file's byte order is big-endian; Relay reads little-endian ones", version);
    if (version != 2 && version != 3) return relay_gguf_fail(g, e, "version %u; Relay reads versions 2 and 3", version);
    (void)take_u64(c, n_tensors);
    (void)take_u64(c, n_keys);
    if (*n_tensors > MAX_TENSORS)
        return relay_gguf_fail(g, e, "%" PRIu64 " tensors; the limit is %d", *n_tensors, MAX_TENSORS);
    if (*n_keys > MAX_KEYS) return relay_gguf_fail(g, e, "%" PRIu64 " keys; the limit is %d", *n_keys, MAX_KEYS);
    if (*n_keys * MIN_KEY_BYTES + *n_tensors * MIN_TENSOR_BYTES > left(c))
        return relay_gguf_fail(g, e, "%" PRIu64 " keys and %" PRIu64 " tensors do not fit the file's %zu bytes",
                               *n_keys, *n_tensors, g->len);
    return RELAY_OK;
}

static relay_code read_alignment(const relay_gguf *g, uint64_t *alignment, relay_err *e) {
    *alignment = DEFAULT_ALIGNMENT;
    relay_code code = relay_gguf_u64(g, "general.alignment", 8, UINT64_C(1) << 30, alignment, NULL, e);
    if (code == RELAY_OK && (*alignment & (*alignment - 1)) != 0)
        return relay_gguf_fail(g, e, "key \"general.alignment\" is %" PRIu64 "; it must be a power of two", *alignment);
    return code;
}

static relay_code read_file(relay_gguf *g, relay_err *e) {
    cursor c = {.g = g, .at = g->data, .end = g->data + g->len};
    uint64_t n_tensors = 0, n_keys = 0, alignment = 0;
    relay_code code = read_header(&c, &n_tensors, &n_keys, e);
    if (code == RELAY_OK) code = read_keys(g, &c, (uint32_t)n_keys, e);
    if (code == RELAY_OK) code = read_alignment(g, &alignment, e);
    if (code == RELAY_OK) code = read_tensors(g, &c, (uint32_t)n_tensors, alignment, e);
    return code;
}

// The last `max` bytes of a path: the end of a long one says more than its beginning.
static const char *path_end(const char *path, size_t max) {
    size_t len = strlen(path);
    return path + (len > max ? len - max : 0);
}

// Takes over the bytes, mapped ones also on failure.
static relay_code open_bytes(relay_gguf **out, const char *path, const void *data, size_t len, bool is_mapped,
                             relay_err *e) {
    relay_gguf *g = relay_calloc(1, sizeof *g);
    const char *name = strrchr(path, '/');
    name = path_end(name != NULL ? name + 1 : path, 120);
    g->name = relay_strndup(name, strlen(name));
    g->data = data;
    g->len = len;
    g->is_mapped = is_mapped;
    relay_code code = read_file(g, e);
    if (code != RELAY_OK) {
        relay_gguf_close(g);
        g = NULL;
    }
    *out = g;
    return code;
}

relay_code relay_gguf_open(relay_gguf **out, const char *path, relay_err *e) {
    *out = NULL;
    const char *shown = path_end(path, 320);
    relay_code code = RELAY_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO without a writer must not block
    if (fd < 0) {
        code = errno == ENOENT || errno == ENOTDIR ? RELAY_NOT_FOUND
               : errno == EACCES                   ? RELAY_PERMISSION_DENIED
                                                   : RELAY_INVALID_ARGUMENT;
        return relay_fail(e, code, "%s: %s", shown, strerror(errno));
    }
    struct stat st;
    if (fstat(fd, &st) != 0) {
        code = relay_fail(e, RELAY_INTERNAL, "%s: %s", shown, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: is %s", shown,
                          S_ISDIR(st.st_mode) ? "a directory" : "no regular file");
    } else if (st.st_size == 0) {
        code = relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: the file is empty", shown);
    } else {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        code = p == MAP_FAILED ? relay_fail(e, RELAY_INTERNAL, "%s: mmap: %s", shown, strerror(errno))
                               : open_bytes(out, path, p, (size_t)st.st_size, true, e);
    }
    close(fd);
    return code;
}

relay_code relay_gguf_open_memory(relay_gguf **out, const void *data, size_t len, relay_err *e) {
    return open_bytes(out, "(memory)", data, len, false, e);
}

void relay_gguf_close(relay_gguf *g) {
    if (g == NULL) return;
    for (uint32_t i = 0; i < g->n_keys; i++)
        free(g->keys[i].string);
    free(g->keys);
    free(g->tensors);
    free(g->tensor_names);
    relay_str_index_fini(&g->key_index);
    relay_str_index_fini(&g->tensor_index);
    if (g->is_mapped) munmap((void *)g->data, g->len);
    free(g->name);
    free(g);
}

void relay_gguf_release_pages(const relay_gguf *g) {
    if (g->is_mapped) (void)madvise((void *)g->data, g->len, MADV_DONTNEED);
}
