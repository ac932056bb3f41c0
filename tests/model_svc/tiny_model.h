// GGUF files of small random models, whole ones and ones that are wrong in a chosen place.
#ifndef RELAY_TESTS_MODEL_SVC_TINY_MODEL_H
#define RELAY_TESTS_MODEL_SVC_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A change to the file: a key that is left out, set or added, or a tensor that is left out, or has other dimensions,
// another type or another name.
typedef struct tiny_edit {
    enum {
        TINY_NONE, // ends a list
        TINY_OMIT,
        TINY_U32,
        TINY_F32,
        TINY_BOOL,
        TINY_STRING,
        TINY_STRINGS, // an array of `number` strings
        TINY_U32S,    // an array of `number` integers, at most 4
        TINY_DIMS,
        TINY_TYPE,
        TINY_RENAME,
        TINY_VALUE, // the first value of an F32 tensor
        TINY_ADD    // a tensor of one F32 value
    } what;
    const char *name;
    uint32_t number;
    float real;
    const char *text;
    uint64_t dims[2];
} tiny_edit;

enum { TINY_MAX_EDITS = 4 };

// Which matrices have a bias.
enum {
    TINY_BIAS_QKV = 1,
    TINY_BIAS_REST = 2, // the other ones of a layer
    TINY_BIAS_OUTPUT = 4,
};

typedef struct tiny_model {
    const char *name; // of the file, without folder and suffix
    const char *architecture;
    uint32_t n_layers, n_heads, n_kv_heads, width, ffn_width, vocab_size, context;
    uint32_t head_dim;                                 // 0: width / n_heads
    uint32_t attention_type, ffn_type, embedding_type; // ggml's, of the matrices
    uint32_t biases;
    bool is_tied; // no output matrix
    bool has_rope_factors;
    uint64_t seed;
    tiny_edit edits[TINY_MAX_EDITS];
} tiny_model;

// Small enough for any test: an F32 Llama, and a Qwen2 of mixed types whose widths the K-quants need.
extern const tiny_model tiny_llama, tiny_qwen2;

// F32 models that each have something that the trained models in the tests do not have; the peer's answers for them are
// in tests/golden/tiny-NAME.txt.
enum { N_TINY_VARIANTS = 5 };
extern const tiny_model tiny_variants[N_TINY_VARIANTS];

// The file's bytes; the caller frees them.
char *tiny_model_write(const tiny_model *t, size_t *len);

#endif
