// Makes GGUF files for tests: honest ones of any keys and tensors, and the parts that dishonest ones are made of.
//
// Keys and tensors are written in the order of the calls. Aborts when memory is out; one thread.
#ifndef RELAY_TESTS_COMMON_GGUF_WRITER_H
#define RELAY_TESTS_COMMON_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The format's numbers of value types.
typedef enum gguf_writer_type {
    GGUF_UINT8 = 0,
    GGUF_INT8 = 1,
    GGUF_UINT16 = 2,
    GGUF_INT16 = 3,
    GGUF_UINT32 = 4,
    GGUF_INT32 = 5,
    GGUF_FLOAT32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_UINT64 = 10,
    GGUF_INT64 = 11,
    GGUF_FLOAT64 = 12,
} gguf_writer_type;

typedef struct gguf_writer gguf_writer;

// Version 3, alignment 32.
gguf_writer *gguf_writer_create(void);
void gguf_writer_destroy(gguf_writer *w);

// ---- Keys
void gguf_writer_u32(gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_f32(gguf_writer *w, const char *key, float value);
void gguf_writer_bool(gguf_writer *w, const char *key, bool value);
void gguf_writer_string(gguf_writer *w, const char *key, const char *value);
// Any scalar but a string: `value` points at 1, 2, 4 or 8 bytes, as the type says.
void gguf_writer_scalar(gguf_writer *w, const char *key, gguf_writer_type type, const void *value);
// Any array but one of strings: `values` is n elements of the type, as they lie in memory.
void gguf_writer_array(gguf_writer *w, const char *key, gguf_writer_type element, const void *values, uint64_t n);
void gguf_writer_string_array(gguf_writer *w, const char *key, const char *const *values, uint64_t n);
// Strings with NUL bytes: their lengths beside them.
void gguf_writer_bytes_array(gguf_writer *w, const char *key, const char *const *values, const size_t *lens,
                             uint64_t n);

// ---- Tensors: `n_dims` dimensions, dims[0] contiguous; the data is copied and aligned.
void gguf_writer_tensor(gguf_writer *w, const char *name, uint32_t ggml_type, uint32_t n_dims, const uint64_t *dims,
                        const void *data, size_t n_bytes);

// ---- The result. Borrowed, until the next call.
const uint8_t *gguf_writer_finish(gguf_writer *w, size_t *len);
// Writes it to a file; false if that fails.
bool gguf_writer_save(gguf_writer *w, const char *path);

// ---- Lies
void gguf_writer_set_version(gguf_writer *w, uint32_t version);
// The alignment that the file is laid out with. Writes no key: 32 is what a reader assumes without one.
void gguf_writer_set_alignment(gguf_writer *w, uint32_t alignment);
// What the header claims, whatever was written.
void gguf_writer_claim_tensors(gguf_writer *w, uint64_t n);
void gguf_writer_claim_keys(gguf_writer *w, uint64_t n);
// One more key, all of its bytes given: length, name, type, value.
void gguf_writer_raw_key(gguf_writer *w, const void *bytes, size_t len);
// A tensor's entry with a name of any bytes, any number of dimensions and any offset; adds no data.
void gguf_writer_raw_tensor(gguf_writer *w, const char *name, uint64_t name_len, uint32_t ggml_type, uint32_t n_dims,
                            const uint64_t *dims, uint64_t offset);
// Bytes of the data section that belong to no tensor.
void gguf_writer_raw_data(gguf_writer *w, const void *data, size_t n_bytes);

#endif
