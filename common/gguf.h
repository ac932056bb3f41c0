// GGUF files (format versions 2 and 3), read by mmap, with every field checked.
//
// Format: ggml's docs/gguf.md. The file is input that nobody vouches for: counts, lengths, types, offsets and their
// sums are checked against the file's size before use; an error names the key or tensor. An open file is read-only and
// may be used by any number of threads. Nothing here knows what the keys mean.
#ifndef RELAY_COMMON_GGUF_H
#define RELAY_COMMON_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef struct relay_gguf relay_gguf;

// ggml's type numbers, those that Relay reads.
typedef enum relay_ggml_type {
    RELAY_GGML_F32 = 0,
    RELAY_GGML_F16 = 1,
    RELAY_GGML_Q4_0 = 2,
    RELAY_GGML_Q4_1 = 3,
    RELAY_GGML_Q5_0 = 6,
    RELAY_GGML_Q8_0 = 8,
    RELAY_GGML_Q4_K = 12,
    RELAY_GGML_Q6_K = 14,
    RELAY_GGML_BF16 = 30,
} relay_ggml_type;

enum { RELAY_GGUF_MAX_DIMS = 4 };

typedef struct relay_gguf_tensor {
    const char *name; // borrowed from the file object, NUL-terminated
    uint32_t type;    // a relay_ggml_type, or another number of ggml's (then data is NULL: its size is unknown)
    uint32_t n_dims;
    uint64_t dims[RELAY_GGUF_MAX_DIMS]; // dims[0] is contiguous; unused ones are 1
    const void *data;                   // in the mapping, row after row; lies wholly inside the file
    uint64_t n_bytes;
} relay_gguf_tensor;

// "Q4_1"; ggml's own name also for types Relay does not read, and "unknown" for a number that is none.
const char *relay_ggml_type_name(uint32_t type);
// Values a block and bytes a block; false for a type Relay does not read.
bool relay_ggml_type_block(uint32_t type, uint32_t *block_values, uint32_t *block_bytes);

// The file must not get shorter while it is open: what is read past its new end is SIGBUS.
relay_code relay_gguf_open(relay_gguf **out, const char *path, relay_err *e) RELAY_NODISCARD;
// From memory that outlives the object (tests, fuzzers).
relay_code relay_gguf_open_memory(relay_gguf **out, const void *data, size_t len, relay_err *e) RELAY_NODISCARD;
// Unmaps: everything borrowed from it ends. NULL is fine.
void relay_gguf_close(relay_gguf *g);
// Tells the kernel that the mapping's pages are not needed for now (they are read again when touched).
void relay_gguf_release_pages(const relay_gguf *g);

uint32_t relay_gguf_tensor_count(const relay_gguf *g);
const relay_gguf_tensor *relay_gguf_tensor_at(const relay_gguf *g, uint32_t i);
// NULL if there is none of that name.
const relay_gguf_tensor *relay_gguf_tensor_find(const relay_gguf *g, const char *name);

bool relay_gguf_has(const relay_gguf *g, const char *key);
// Typed reads. *found (may be NULL) is false and the value untouched where the key is absent; a key of another type, or
// a value outside [min, max], is an error that names the key, the value and the range. Any integer type that holds the
// value does.
relay_code relay_gguf_u64(const relay_gguf *g, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                          bool *found, relay_err *e) RELAY_NODISCARD;
relay_code relay_gguf_i64(const relay_gguf *g, const char *key, int64_t min, int64_t max, int64_t *value, bool *found,
                          relay_err *e) RELAY_NODISCARD;
relay_code relay_gguf_f64(const relay_gguf *g, const char *key, double min, double max, double *value, bool *found,
                          relay_err *e) RELAY_NODISCARD;
relay_code relay_gguf_bool(const relay_gguf *g, const char *key, bool *value, bool *found,
                           relay_err *e) RELAY_NODISCARD;
// Bytes in the mapping, not NUL-terminated; may be no UTF-8.
relay_code relay_gguf_string(const relay_gguf *g, const char *key, const char **s, size_t *len, bool *found,
                             relay_err *e) RELAY_NODISCARD;
// Arrays. The count first (0 and *found false if absent), then elements by index < count.
relay_code relay_gguf_string_array(const relay_gguf *g, const char *key, uint64_t *count, bool *found,
                                   relay_err *e) RELAY_NODISCARD;
void relay_gguf_string_at(const relay_gguf *g, const char *key, uint64_t i, const char **s, size_t *len);
// Numbers of any GGUF type; gives doubles (exact up to 2^53).
relay_code relay_gguf_number_array(const relay_gguf *g, const char *key, uint64_t *count, bool *found,
                                   relay_err *e) RELAY_NODISCARD;
double relay_gguf_number_at(const relay_gguf *g, const char *key, uint64_t i);

#endif
