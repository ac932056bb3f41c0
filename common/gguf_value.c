// The tensors and values of an open GGUF file.
#include "common/gguf_internal.h"

#include <stdarg.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const relay_gguf_type_info relay_gguf_types[RELAY_GGUF_N_TYPES] = {
    [RELAY_GGUF_UINT8] = {"uint8", 1},     [RELAY_GGUF_INT8] = {"int8", 1},     [RELAY_GGUF_UINT16] = {"uint16", 2},
    [RELAY_GGUF_INT16] = {"int16", 2},     [RELAY_GGUF_UINT32] = {"uint32", 4}, [RELAY_GGUF_INT32] = {"int32", 4},
    [RELAY_GGUF_BOOL] = {"bool", 1},       [RELAY_GGUF_STRING] = {"string", 0}, [RELAY_GGUF_ARRAY] = {"array", 0},
    [RELAY_GGUF_FLOAT32] = {"float32", 4}, [RELAY_GGUF_UINT64] = {"uint64", 8}, [RELAY_GGUF_INT64] = {"int64", 8},
    [RELAY_GGUF_FLOAT64] = {"float64", 8},
};

relay_code relay_gguf_fail(const relay_gguf *g, relay_err *e, const char *fmt, ...) {
    char what[384];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return relay_fail(e, RELAY_INVALID_ARGUMENT, "%s: %s", g->name, what);
}

// ---- ggml's types

static const struct {
    const char *name;
    uint16_t block_values, block_bytes; // 0: known by name only
} ggml_types[] = {
    [RELAY_GGML_F32] = {"F32", 1, 4},
    [RELAY_GGML_F16] = {"F16", 1, 2},
    [RELAY_GGML_Q4_0] = {"Q4_0", 32, 18},
    [RELAY_GGML_Q4_1] = {"Q4_1", 32, 20},
    [RELAY_GGML_Q5_0] = {"Q5_0", 32, 22},
    [7] = {"Q5_1", 0, 0},
    [RELAY_GGML_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 0, 0},
    [10] = {"Q2_K", 0, 0},
    [11] = {"Q3_K", 0, 0},
    [RELAY_GGML_Q4_K] = {"Q4_K", 256, 144},
    [13] = {"Q5_K", 0, 0},
    [RELAY_GGML_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 0, 0},
    [16] = {"IQ2_XXS", 0, 0},
    [17] = {"IQ2_XS", 0, 0},
    [18] = {"IQ3_XXS", 0, 0},
    [19] = {"IQ1_S", 0, 0},
    [20] = {"IQ4_NL", 0, 0},
    [21] = {"IQ3_S", 0, 0},
    [22] = {"IQ2_S", 0, 0},
    [23] = {"IQ4_XS", 0, 0},
    [24] = {"I8", 0, 0},
    [25] = {"I16", 0, 0},
    [26] = {"I32", 0, 0},
    [27] = {"I64", 0, 0},
    [28] = {"F64", 0, 0},
    [29] = {"IQ1_M", 0, 0},
    [RELAY_GGML_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 0, 0},
    [35] = {"TQ2_0", 0, 0},
    [39] = {"MXFP4", 0, 0},
};

enum { N_GGML_TYPES = sizeof ggml_types / sizeof *ggml_types };

const char *relay_ggml_type_name(uint32_t type) {
    return type < N_GGML_TYPES && ggml_types[type].name != NULL ? ggml_types[type].name : "unknown";
}

bool relay_ggml_type_block(uint32_t type, uint32_t *block_values, uint32_t *block_bytes) {
    if (type >= N_GGML_TYPES || ggml_types[type].block_values == 0) return false;
    *block_values = ggml_types[type].block_values;
    *block_bytes = ggml_types[type].block_bytes;
    return true;
}

// ---- Reading tensors and values

uint32_t relay_gguf_tensor_count(const relay_gguf *g) {
    return g->n_tensors;
}

const relay_gguf_tensor *relay_gguf_tensor_at(const relay_gguf *g, uint32_t i) {
    RELAY_ASSERT(i < g->n_tensors);
    return &g->tensors[i];
}

const relay_gguf_tensor *relay_gguf_tensor_find(const relay_gguf *g, const char *name) {
    uint32_t i = relay_str_index_find(&g->tensor_index, name, (uint32_t)strlen(name));
    return i == RELAY_STR_NONE ? NULL : &g->tensors[i];
}

static const relay_gguf_key *find_key(const relay_gguf *g, const char *name) {
    uint32_t i = relay_str_index_find(&g->key_index, name, (uint32_t)strlen(name));
    return i == RELAY_STR_NONE ? NULL : &g->keys[i];
}

bool relay_gguf_has(const relay_gguf *g, const char *name) {
    return find_key(g, name) != NULL;
}

// The key, or NULL; says in *found (may be NULL) which.
static const relay_gguf_key *find_and_tell(const relay_gguf *g, const char *name, bool *found) {
    const relay_gguf_key *k = find_key(g, name);
    if (found != NULL) *found = k != NULL;
    return k;
}

static relay_code wrong_type(const relay_gguf *g, const relay_gguf_key *k, const char *wanted, relay_err *e) {
    bool is_array = k->type == RELAY_GGUF_ARRAY;
    return relay_gguf_fail(g, e, "key \"%.*s\" is %s%s; it must be %s", relay_gguf_shown(k->name_len), k->name,
                           is_array ? "an array of " : "of type ",
                           relay_gguf_types[is_array ? k->element : k->type].name, wanted);
}

#define LOAD(ctype, at)                                                                                                \
    ({                                                                                                                 \
        ctype value_;                                                                                                  \
        memcpy(&value_, at, sizeof value_);                                                                            \
        value_;                                                                                                        \
    })

// An integer as sign and magnitude; false for a type that is none.
static bool load_integer(relay_gguf_type type, const uint8_t *at, bool *is_negative, uint64_t *magnitude) {
    int64_t v;
    switch (type) {
    case RELAY_GGUF_UINT8:
        v = *at;
        break;
    case RELAY_GGUF_INT8:
        v = LOAD(int8_t, at);
        break;
    case RELAY_GGUF_UINT16:
        v = LOAD(uint16_t, at);
        break;
    case RELAY_GGUF_INT16:
        v = LOAD(int16_t, at);
        break;
    case RELAY_GGUF_UINT32:
        v = LOAD(uint32_t, at);
        break;
    case RELAY_GGUF_INT32:
        v = LOAD(int32_t, at);
        break;
    case RELAY_GGUF_INT64:
        v = LOAD(int64_t, at);
        break;
    case RELAY_GGUF_UINT64:
        *is_negative = false;
        *magnitude = LOAD(uint64_t, at);
        return true;
    default:
        return false;
    }
    *is_negative = v < 0;
    *magnitude = v < 0 ? -(uint64_t)v : (uint64_t)v;
    return true;
}

relay_code relay_gguf_u64(const relay_gguf *g, const char *name, uint64_t min, uint64_t max, uint64_t *value,
                          bool *found, relay_err *e) {
    const relay_gguf_key *k = find_and_tell(g, name, found);
    if (k == NULL) return RELAY_OK;
    bool is_negative;
    uint64_t v;
    if (!load_integer(k->type, k->at, &is_negative, &v)) return wrong_type(g, k, "an integer", e);
    if (is_negative || v < min || v > max)
        return relay_gguf_fail(g, e, "key \"%s\" is %s%" PRIu64 "; it must be from %" PRIu64 " to %" PRIu64, name,
                               is_negative ? "-" : "", v, min, max);
    *value = v;
    return RELAY_OK;
}

relay_code relay_gguf_i64(const relay_gguf *g, const char *name, int64_t min, int64_t max, int64_t *value, bool *found,
                          relay_err *e) {
    const relay_gguf_key *k = find_and_tell(g, name, found);
    if (k == NULL) return RELAY_OK;
    bool is_negative;
    uint64_t magnitude;
    if (!load_integer(k->type, k->at, &is_negative, &magnitude)) return wrong_type(g, k, "an integer", e);
    int64_t v = is_negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    bool fits = is_negative || magnitude <= INT64_MAX;
    if (!fits || v < min || v > max)
        return relay_gguf_fail(g, e, "key \"%s\" is %s%" PRIu64 "; it must be from %" PRId64 " to %" PRId64, name,
                               is_negative ? "-" : "", magnitude, min, max);
    *value = v;
    return RELAY_OK;
}

relay_code relay_gguf_f64(const relay_gguf *g, const char *name, double min, double max, double *value, bool *found,
                          relay_err *e) {
    const relay_gguf_key *k = find_and_tell(g, name, found);
    if (k == NULL) return RELAY_OK;
    if (k->type != RELAY_GGUF_FLOAT32 && k->type != RELAY_GGUF_FLOAT64)
        return wrong_type(g, k, "a float32 or float64", e);
    double v = k->type == RELAY_GGUF_FLOAT32 ? (double)LOAD(float, k->at) : LOAD(double, k->at);
    if (!(v >= min && v <= max)) // NaN lies in no range
        return relay_gguf_fail(g, e, "key \"%s\" is %g; it must be from %g to %g", name, v, min, max);
    *value = v;
    return RELAY_OK;
}

relay_code relay_gguf_bool(const relay_gguf *g, const char *name, bool *value, bool *found, relay_err *e) {
    const relay_gguf_key *k = find_and_tell(g, name, found);
    if (k == NULL) return RELAY_OK;
    if (k->type != RELAY_GGUF_BOOL) return wrong_type(g, k, "a bool", e);
    *value = *k->at != 0;
    return RELAY_OK;
}

static void load_string(const uint8_t *at, const char **s, size_t *len) {
    *len = LOAD(uint64_t, at);
    *s = (const char *)at + sizeof(uint64_t);
}

relay_code relay_gguf_string(const relay_gguf *g, const char *name, const char **s, size_t *len, bool *found,
                             relay_err *e) {
    const relay_gguf_key *k = find_and_tell(g, name, found);
    if (k == NULL) return RELAY_OK;
    if (k->type != RELAY_GGUF_STRING) return wrong_type(g, k, "a string", e);
    load_string(k->at, s, len);
    return RELAY_OK;
}

relay_code relay_gguf_string_array(const relay_gguf *g, const char *name, uint64_t *count, bool *found, relay_err *e) {
    const relay_gguf_key *k = find_and_tell(g, name, found);
    *count = 0;
    if (k == NULL) return RELAY_OK;
    if (k->type != RELAY_GGUF_ARRAY || k->element != RELAY_GGUF_STRING)
        return wrong_type(g, k, "an array of strings", e);
    *count = k->count;
    return RELAY_OK;
}

// The array of that name, which the caller has asked the count of.
static const relay_gguf_key *array_at(const relay_gguf *g, const char *name, uint64_t i) {
    const relay_gguf_key *k = find_key(g, name);
    RELAY_ASSERT(k != NULL && k->type == RELAY_GGUF_ARRAY && i < k->count);
    return k;
}

void relay_gguf_string_at(const relay_gguf *g, const char *name, uint64_t i, const char **s, size_t *len) {
    const relay_gguf_key *k = array_at(g, name, i);
    RELAY_ASSERT(k->element == RELAY_GGUF_STRING);
    load_string(k->string[i], s, len);
}

relay_code relay_gguf_number_array(const relay_gguf *g, const char *name, uint64_t *count, bool *found, relay_err *e) {
    const relay_gguf_key *k = find_and_tell(g, name, found);
    *count = 0;
    if (k == NULL) return RELAY_OK;
    if (k->type != RELAY_GGUF_ARRAY || k->element == RELAY_GGUF_STRING)
        return wrong_type(g, k, "an array of numbers", e);
    *count = k->count;
    return RELAY_OK;
}

double relay_gguf_number_at(const relay_gguf *g, const char *name, uint64_t i) {
    const relay_gguf_key *k = array_at(g, name, i);
    const uint8_t *at = k->at + i * relay_gguf_types[k->element].bytes;
    bool is_negative;
    uint64_t v;
    if (load_integer(k->element, at, &is_negative, &v)) return is_negative ? -(double)v : (double)v;
    switch (k->element) {
    case RELAY_GGUF_BOOL:
        return *at;
    case RELAY_GGUF_FLOAT32:
        return (double)LOAD(float, at);
    default:
        RELAY_ASSERT(k->element == RELAY_GGUF_FLOAT64);
        return LOAD(double, at);
    }
}
