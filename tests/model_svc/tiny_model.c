#include "tests/model_svc/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/gguf.h"
#include "kernels/half.h"
#include "tests/common/gguf_writer.h"

#define LLAMA_SHAPE                                                                                                    \
    .architecture = "llama", .n_layers = 2, .n_heads = 4, .n_kv_heads = 2, .width = 32, .ffn_width = 64,               \
    .vocab_size = 40, .context = 64

const tiny_model tiny_llama = {.name = "llama", LLAMA_SHAPE, .seed = 1};

const tiny_model tiny_qwen2 = {
    .name = "qwen2",
    .architecture = "qwen2",
    .n_layers = 3,
    .n_heads = 8,
    .n_kv_heads = 2,
    .width = 256,
    .ffn_width = 512,
    .vocab_size = 320,
    .context = 256,
    .attention_type = RELAY_GGML_Q5_0,
    .ffn_type = RELAY_GGML_Q4_K,
    .embedding_type = RELAY_GGML_Q8_0,
    .biases = TINY_BIAS_QKV,
    .is_tied = true,
    .seed = 2,
};

// The peer needs the two keys to do without a vocabulary.
#define NO_VOCABULARY(architecture)                                                                                    \
    {.what = TINY_STRING, .name = "tokenizer.ggml.model", .text = "none"}, {                                           \
        .what = TINY_U32, .name = architecture ".vocab_size", .number = 40                                             \
    }

const tiny_model tiny_variants[N_TINY_VARIANTS] = {
    {.name = "llama-rope-factors", LLAMA_SHAPE, .has_rope_factors = true, .seed = 3, .edits = {NO_VOCABULARY("llama")}},
    {.name = "llama-rope-linear",
     LLAMA_SHAPE,
     .seed = 4,
     .edits = {NO_VOCABULARY("llama"),
               {.what = TINY_STRING, .name = "llama.rope.scaling.type", .text = "linear"},
               {.what = TINY_F32, .name = "llama.rope.scaling.factor", .real = 4}}},
    {.name = "llama-wide-heads",
     LLAMA_SHAPE,
     .head_dim = 24,
     .is_tied = true,
     .seed = 5,
     .edits = {NO_VOCABULARY("llama")}},
    {.name = "llama-biases",
     LLAMA_SHAPE,
     .biases = TINY_BIAS_QKV | TINY_BIAS_REST,
     .seed = 6,
     .edits = {NO_VOCABULARY("llama")}},
    {.name = "qwen2-output-bias",
     .architecture = "qwen2",
     .n_layers = 2,
     .n_heads = 6,
     .n_kv_heads = 1,
     .width = 48,
     .ffn_width = 80,
     .vocab_size = 40,
     .context = 64,
     .biases = TINY_BIAS_QKV | TINY_BIAS_OUTPUT,
     .seed = 7,
     .edits = {NO_VOCABULARY("qwen2")}},
};

typedef struct maker {
    const tiny_model *t;
    gguf_writer *w;
    uint64_t random;
} maker;

// Steele, Lea and Flood 2014, "SplitMix64".
static uint64_t next_random(maker *m) {
    uint64_t z = m->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

// Uniform in [-1, 1).
static float next_real(maker *m) {
    return (float)(int32_t)(next_random(m) >> 32) * 0x1p-31f;
}

// ---- Keys

static const tiny_edit *edit_of(const maker *m, const char *name) {
    for (uint32_t i = 0; i < TINY_MAX_EDITS && m->t->edits[i].what != TINY_NONE; i++) {
        if (strcmp(m->t->edits[i].name, name) == 0) return &m->t->edits[i];
    }
    return NULL;
}

static void put_edited_key(maker *m, const tiny_edit *e) {
    static const char *const words[8] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    switch (e->what) {
    case TINY_U32:
        gguf_writer_u32(m->w, e->name, e->number);
        break;
    case TINY_F32:
        gguf_writer_f32(m->w, e->name, e->real);
        break;
    case TINY_BOOL:
        gguf_writer_bool(m->w, e->name, e->number != 0);
        break;
    case TINY_STRING:
        gguf_writer_string(m->w, e->name, e->text);
        break;
    case TINY_STRINGS:
        RELAY_ASSERT(e->number <= 8);
        gguf_writer_string_array(m->w, e->name, words, e->number);
        break;
    case TINY_U32S:
        gguf_writer_array(m->w, e->name, GGUF_UINT32, e->dims, e->number);
        break;
    default:
        break;
    }
}

// A key of the architecture, unless an edit takes its place.
static void put_u32(maker *m, const char *suffix, uint32_t value) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", m->t->architecture, suffix);
    if (!edit_of(m, key)) gguf_writer_u32(m->w, key, value);
}

static void put_f32(maker *m, const char *suffix, float value) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", m->t->architecture, suffix);
    if (!edit_of(m, key)) gguf_writer_f32(m->w, key, value);
}

static void put_keys(maker *m) {
    const tiny_model *t = m->t;
    if (!edit_of(m, "general.architecture")) {
        gguf_writer_string(m->w, "general.architecture", t->architecture);
    }
    put_u32(m, "block_count", t->n_layers);
    put_u32(m, "context_length", t->context);
    put_u32(m, "embedding_length", t->width);
    put_u32(m, "feed_forward_length", t->ffn_width);
    put_u32(m, "attention.head_count", t->n_heads);
    put_u32(m, "attention.head_count_kv", t->n_kv_heads);
    if (t->head_dim) {
        put_u32(m, "attention.key_length", t->head_dim);
        put_u32(m, "attention.value_length", t->head_dim);
        put_u32(m, "rope.dimension_count", t->head_dim);
    }
    put_f32(m, "attention.layer_norm_rms_epsilon", 1e-5f);
    put_f32(m, "rope.freq_base", 10000);
    for (uint32_t i = 0; i < TINY_MAX_EDITS && t->edits[i].what != TINY_NONE; i++) {
        put_edited_key(m, &t->edits[i]);
    }
}

// ---- Tensors

// Where the float16 scales lie in a block of a quantized type, and how large its integers get.
static const struct {
    uint32_t type, n_scales, scales[2];
    float largest;
} quantized[] = {
    {RELAY_GGML_Q4_0, 1, {0}, 8},   {RELAY_GGML_Q4_1, 2, {0, 2}, 15},         {RELAY_GGML_Q5_0, 1, {0}, 16},
    {RELAY_GGML_Q8_0, 1, {0}, 128}, {RELAY_GGML_Q4_K, 2, {0, 2}, 15 * 63.0f}, {RELAY_GGML_Q6_K, 1, {208}, 32 * 128.0f},
};
enum { N_QUANTIZED = sizeof quantized / sizeof quantized[0] };

// Random bytes with scales that keep the values near 1 / sqrt(n_in).
static void fill_quantized(maker *m, uint32_t type, uint64_t n_in, uint8_t *data, size_t n_bytes,
                           uint32_t block_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        data[i] = (uint8_t)(next_random(m) >> 56);
    }
    for (uint32_t q = 0; q < N_QUANTIZED; q++) {
        if (quantized[q].type != type) continue;
        for (size_t block = 0; block < n_bytes; block += block_bytes) {
            for (uint32_t s = 0; s < quantized[q].n_scales; s++) {
                // The second one is a minimum, which balances integers that have no sign.
                float scale = (1.5f + 0.5f * next_real(m)) / quantized[q].largest / sqrtf((float)n_in);
                if (s == 1) scale *= type == RELAY_GGML_Q4_1 ? -7 : 7;
                uint16_t half = relay_f16_from_f32(scale);
                memcpy(data + block + quantized[q].scales[s], &half, sizeof half);
            }
        }
    }
}

// Norms near 1, everything else near 0.
static void put_tensor(maker *m, const char *name, uint32_t type, uint64_t n_in, uint64_t n_out) {
    uint32_t block_values, block_bytes;
    const tiny_edit *e = edit_of(m, name);
    if (e && e->what == TINY_OMIT) return;
    uint64_t dims[2] = {n_in, n_out};
    if (e && e->what == TINY_DIMS) memcpy(dims, e->dims, sizeof dims);
    if (e && e->what == TINY_TYPE) type = e->number;
    bool is_known = relay_ggml_type_block(type, &block_values, &block_bytes);
    size_t n_bytes = is_known ? dims[0] * dims[1] / block_values * block_bytes : 64;
    uint8_t *data = relay_calloc(n_bytes, 1);
    if (type == RELAY_GGML_F32) {
        bool is_norm = strstr(name, "norm") != NULL;
        float scale = n_out == 1 ? 0.1f : 1.7f / sqrtf((float)n_in);
        for (size_t i = 0; i < n_bytes / sizeof(float); i++) {
            ((float *)data)[i] = next_real(m) * scale + (float)is_norm;
        }
        if (strcmp(name, "rope_freqs.weight") == 0) {
            for (size_t i = 0; i < n_bytes / sizeof(float); i++) {
                ((float *)data)[i] = (float)(1 + i);
            }
        }
        if (e && e->what == TINY_VALUE) *(float *)data = e->real;
    } else if (is_known) {
        fill_quantized(m, type, n_in, data, n_bytes, block_bytes);
    }
    gguf_writer_tensor(m->w, e && e->what == TINY_RENAME ? e->text : name, type, dims[1] == 1 ? 1 : 2, dims, data,
                       n_bytes);
    free(data);
}

static uint32_t head_dim(const tiny_model *t) {
    return t->head_dim ? t->head_dim : t->width / t->n_heads;
}

static void put_layer(maker *m, uint32_t layer) {
    const tiny_model *t = m->t;
    uint64_t query = t->n_heads * head_dim(t), key = t->n_kv_heads * head_dim(t);
    const struct {
        const char *name;
        uint32_t type;
        uint64_t n_in, n_out;
        uint32_t bias; // the flag it takes
    } parts[] = {
        {"attn_norm", RELAY_GGML_F32, t->width, 1, 0},
        {"attn_q", t->attention_type, t->width, query, TINY_BIAS_QKV},
        {"attn_k", t->attention_type, t->width, key, TINY_BIAS_QKV},
        {"attn_v", t->attention_type, t->width, key, TINY_BIAS_QKV},
        {"attn_output", t->attention_type, query, t->width, TINY_BIAS_REST},
        {"ffn_norm", RELAY_GGML_F32, t->width, 1, 0},
        {"ffn_gate", t->ffn_type, t->width, t->ffn_width, TINY_BIAS_REST},
        {"ffn_up", t->ffn_type, t->width, t->ffn_width, TINY_BIAS_REST},
        {"ffn_down", t->ffn_type, t->ffn_width, t->width, TINY_BIAS_REST},
    };
    for (uint32_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, parts[i].name);
        put_tensor(m, name, parts[i].type, parts[i].n_in, parts[i].n_out);
        if ((t->biases & parts[i].bias) == 0) continue;
        snprintf(name, sizeof name, "blk.%u.%s.bias", layer, parts[i].name);
        put_tensor(m, name, RELAY_GGML_F32, parts[i].n_out, 1);
    }
}

char *tiny_model_write(const tiny_model *t, size_t *len) {
    maker m = {.t = t, .w = gguf_writer_create(), .random = t->seed};
    put_keys(&m);
    put_tensor(&m, "token_embd.weight", t->embedding_type, t->width, t->vocab_size);
    if (!t->is_tied) put_tensor(&m, "output.weight", t->embedding_type, t->width, t->vocab_size);
    if (t->biases & TINY_BIAS_OUTPUT) put_tensor(&m, "output.bias", RELAY_GGML_F32, t->vocab_size, 1);
    put_tensor(&m, "output_norm.weight", RELAY_GGML_F32, t->width, 1);
    if (t->has_rope_factors) {
        put_tensor(&m, "rope_freqs.weight", RELAY_GGML_F32, head_dim(t) / 2, 1);
    }
    for (uint32_t i = 0; i < t->n_layers; i++) {
        put_layer(&m, i);
    }
    for (uint32_t i = 0; i < TINY_MAX_EDITS; i++) {
        if (t->edits[i].what == TINY_ADD) put_tensor(&m, t->edits[i].name, RELAY_GGML_F32, 1, 1);
    }
    const uint8_t *bytes = gguf_writer_finish(m.w, len);
    void *file = relay_calloc(*len, 1);
    memcpy(file, bytes, *len);
    gguf_writer_destroy(m.w);
    return file;
}
