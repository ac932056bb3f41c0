// What gguf.c (reading the file) and gguf_value.c (reading its values) share.
#ifndef RELAY_COMMON_GGUF_INTERNAL_H
#define RELAY_COMMON_GGUF_INTERNAL_H

#include "common/gguf.h"
#include "common/str_index.h"

enum { RELAY_GGUF_SHOWN_BYTES = 96 }; // of a name, in messages

// The format's numbers of value types.
typedef enum relay_gguf_type {
    RELAY_GGUF_UINT8,
    RELAY_GGUF_INT8,
    RELAY_GGUF_UINT16,
    RELAY_GGUF_INT16,
    RELAY_GGUF_UINT32,
    RELAY_GGUF_INT32,
    RELAY_GGUF_FLOAT32,
    RELAY_GGUF_BOOL,
    RELAY_GGUF_STRING,
    RELAY_GGUF_ARRAY,
    RELAY_GGUF_UINT64,
    RELAY_GGUF_INT64,
    RELAY_GGUF_FLOAT64,
    RELAY_GGUF_N_TYPES,
} relay_gguf_type;

typedef struct relay_gguf_key {
    const char *name; // in the file, not NUL-terminated
    uint32_t name_len;
    relay_gguf_type type;
    relay_gguf_type element; // of an array
    uint64_t count;          // of an array
    const uint8_t *at;       // the value; of an array its first element
    const uint8_t **string;  // of an array of strings: where each one's length lies; owned
} relay_gguf_key;

struct relay_gguf {
    char *name; // owned: the file's, in messages
    const uint8_t *data;
    size_t len;
    bool is_mapped;
    relay_gguf_key *keys;
    relay_gguf_tensor *tensors;
    uint32_t n_keys, n_tensors;
    char *tensor_names; // n_tensors times MAX_TENSOR_NAME_BYTES + 1
    relay_str_index key_index, tensor_index;
};

// Name and size of a value type; size 0: not of one size.
typedef struct relay_gguf_type_info {
    const char *name;
    uint8_t bytes;
} relay_gguf_type_info;

extern const relay_gguf_type_info relay_gguf_types[RELAY_GGUF_N_TYPES];

// Fails with INVALID_ARGUMENT and "FILE: " before the message.
relay_code relay_gguf_fail(const relay_gguf *g, relay_err *e, const char *fmt, ...) RELAY_PRINTF(3, 4);

// How much of a name is shown in a message.
static inline int relay_gguf_shown(uint64_t len) {
    return len < RELAY_GGUF_SHOWN_BYTES ? (int)len : RELAY_GGUF_SHOWN_BYTES;
}

#endif
