// The keys of ggml's docs/gguf.md, "LLM" section, with the defaults that llama.cpp's loader has where a key may be
// absent. Keys are `<architecture>.<suffix>`.
#include "model_svc/hyperparameters.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_LAYERS = 1024,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 1024,
    MAX_WIDTH = 1 << 18,
    MAX_FFN_WIDTH = 1 << 20,
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 24,
    MAX_KEY = 96,
};

static const struct architecture {
    const char *name;
    bool needs_qkv_bias;
    relay_rope_style rope_style;
} architectures[] = {
    {"llama", false, RELAY_ROPE_ADJACENT},
    {"qwen2", true, RELAY_ROPE_HALVES},
};
enum { N_ARCHITECTURES = sizeof architectures / sizeof architectures[0] };

// Keys that other models of these architectures' names use to change the computation. Each may be there with the value
// that changes nothing.
static const struct {
    const char *suffix;
    enum { WHOLE, REAL, FLAG } kind;
    double neutral;
} unsupported[] = {
    {"expert_count", WHOLE, 0},
    {"attention.clamp_kqv", REAL, 0},
    {"attention.max_alibi_bias", REAL, 0},
    {"attention.causal", FLAG, 1},
    {"attention.scale", REAL, 0},
    {"attention.temperature_length", WHOLE, 0},
    {"attn_logit_softcapping", REAL, 0},
    {"final_logit_softcapping", REAL, 0},
    {"logit_scale", REAL, 1},
    {"residual_scale", REAL, 1},
    {"embedding_scale", REAL, 1},
    {"rope.scaling.attn_factor", REAL, 1},
    {"use_parallel_residual", FLAG, 0},
};
enum { N_UNSUPPORTED = sizeof unsupported / sizeof unsupported[0] };

// ---- Reading one key

typedef struct reader {
    const relay_gguf *g;
    const char *architecture;
    char key[MAX_KEY]; // the one read last
    relay_err *e;
} reader;

static const char *make_key(reader *r, const char *suffix) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->architecture, suffix);
    return r->key;
}

static relay_code missing(const reader *r) {
    return relay_fail(r->e, RELAY_INVALID_ARGUMENT, "key \"%s\" is missing", r->key);
}

// An integer in [1, max]; *out is the default where the key may be absent, and 0 where it may not.
static relay_code read_count(reader *r, const char *suffix, uint64_t max, uint32_t *out) {
    uint64_t v = *out;
    bool found;
    relay_code code = relay_gguf_u64(r->g, make_key(r, suffix), 1, max, &v, &found, r->e);
    if (code != RELAY_OK) return code;
    if (!found && *out == 0) return missing(r);
    *out = (uint32_t)v;
    return RELAY_OK;
}

static relay_code read_architecture(const relay_gguf *g, const struct architecture **out, relay_err *e) {
    const char *name = "";
    size_t len = 0;
    bool found;
    relay_code code = relay_gguf_string(g, "general.architecture", &name, &len, &found, e);
    if (code != RELAY_OK) return code;
    if (!found) return relay_fail(e, RELAY_INVALID_ARGUMENT, "key \"general.architecture\" is missing");
    for (uint32_t i = 0; i < N_ARCHITECTURES; i++) {
        if (len == strlen(architectures[i].name) && memcmp(name, architectures[i].name, len) == 0) {
            *out = &architectures[i];
            return RELAY_OK;
        }
    }
    return relay_fail(e, RELAY_UNIMPLEMENTED, "general.architecture is \"%.*s\"; Relay knows llama and qwen2",
                      (int)(len < 64 ? len : 64), name);
}

static relay_code check_unsupported(reader *r) {
    for (uint32_t i = 0; i < N_UNSUPPORTED; i++) {
        const char *key = make_key(r, unsupported[i].suffix);
        double value = unsupported[i].neutral;
        relay_code code = RELAY_OK;
        if (unsupported[i].kind == WHOLE) {
            uint64_t v = (uint64_t)value;
            code = relay_gguf_u64(r->g, key, 0, UINT64_MAX, &v, NULL, r->e);
            value = (double)v;
        } else if (unsupported[i].kind == FLAG) {
            bool v = value != 0;
            code = relay_gguf_bool(r->g, key, &v, NULL, r->e);
            value = v;
        } else {
            code = relay_gguf_f64(r->g, key, -INFINITY, INFINITY, &value, NULL, r->e);
        }
        if (code != RELAY_OK) return code;
        if (value != unsupported[i].neutral) {
            return relay_fail(r->e, RELAY_UNIMPLEMENTED, "key \"%s\" is %g; Relay computes these models only with %g",
                              key, value, unsupported[i].neutral);
        }
    }
    return RELAY_OK;
}

// ---- Groups of keys

static relay_code read_sizes(reader *r, relay_hyperparameters *h) {
    relay_code code = read_count(r, "block_count", MAX_LAYERS, &h->n_layers);
    if (code == RELAY_OK) code = read_count(r, "context_length", MAX_CONTEXT, &h->context);
    if (code == RELAY_OK) code = read_count(r, "embedding_length", MAX_WIDTH, &h->width);
    if (code == RELAY_OK) code = read_count(r, "feed_forward_length", MAX_FFN_WIDTH, &h->ffn_width);
    return code;
}

static relay_code read_heads(reader *r, relay_hyperparameters *h) {
    relay_code code = read_count(r, "attention.head_count", MAX_HEADS, &h->n_heads);
    if (code != RELAY_OK) return code;
    h->n_kv_heads = h->n_heads;
    code = read_count(r, "attention.head_count_kv", MAX_HEADS, &h->n_kv_heads);
    if (code != RELAY_OK) return code;
    if (h->n_heads % h->n_kv_heads != 0) {
        return relay_fail(r->e, RELAY_INVALID_ARGUMENT, "key \"%s\" is %u; it must divide head_count, which is %u",
                          r->key, h->n_kv_heads, h->n_heads);
    }
    if (!relay_gguf_has(r->g, make_key(r, "attention.key_length"))) {
        if (h->width % h->n_heads != 0) {
            return relay_fail(r->e, RELAY_INVALID_ARGUMENT,
                              "key \"%s\" is %u; it must be a multiple of attention.head_count, which is %u",
                              make_key(r, "embedding_length"), h->width, h->n_heads);
        }
        h->head_dim = h->width / h->n_heads;
    }
    code = read_count(r, "attention.key_length", MAX_HEAD_DIM, &h->head_dim);
    if (code != RELAY_OK) return code;
    if (h->head_dim % 2 != 0 || h->head_dim > MAX_HEAD_DIM) {
        return relay_fail(
            r->e, RELAY_INVALID_ARGUMENT,
            "the head size is %u (key \"%s\", or embedding_length %u by head_count %u); it must be even and "
            "at most %d",
            h->head_dim, r->key, h->width, h->n_heads, MAX_HEAD_DIM);
    }
    uint32_t value_dim = h->head_dim;
    code = read_count(r, "attention.value_length", MAX_HEAD_DIM, &value_dim);
    if (code == RELAY_OK && value_dim != h->head_dim) {
        return relay_fail(r->e, RELAY_UNIMPLEMENTED, "key \"%s\" is %u; Relay needs it equal to the key length, %u",
                          r->key, value_dim, h->head_dim);
    }
    return code;
}

// The factor by which positions are squeezed: `rope.scaling.factor`, once called `rope.scale_linear`; 0 means 1.
static relay_code read_rope_factor(reader *r, double *factor) {
    bool found;
    double v = 1;
    relay_code code = relay_gguf_f64(r->g, make_key(r, "rope.scaling.factor"), 0, 1e6, &v, &found, r->e);
    if (code == RELAY_OK && !found)
        code = relay_gguf_f64(r->g, make_key(r, "rope.scale_linear"), 0, 1e6, &v, &found, r->e);
    *factor = v == 0 ? 1 : v;
    return code;
}

static relay_code read_rope(reader *r, relay_hyperparameters *h) {
    h->n_rot = h->head_dim;
    relay_code code = read_count(r, "rope.dimension_count", h->head_dim, &h->n_rot);
    if (code != RELAY_OK) return code;
    if (h->n_rot % 2 != 0) {
        return relay_fail(r->e, RELAY_INVALID_ARGUMENT, "key \"%s\" is %u; it must be even", r->key, h->n_rot);
    }
    h->rope_base = 10000;
    code = relay_gguf_f64(r->g, make_key(r, "rope.freq_base"), 1, 1e12, &h->rope_base, NULL, r->e);
    if (code != RELAY_OK) return code;

    const char *type = "linear";
    size_t len = strlen(type);
    code = relay_gguf_string(r->g, make_key(r, "rope.scaling.type"), &type, &len, NULL, r->e);
    if (code != RELAY_OK) return code;
    bool is_none = len == 4 && memcmp(type, "none", 4) == 0;
    if (!is_none && !(len == 6 && memcmp(type, "linear", 6) == 0)) {
        return relay_fail(r->e, RELAY_UNIMPLEMENTED, "key \"%s\" is \"%.*s\"; Relay knows none and linear", r->key,
                          (int)(len < 64 ? len : 64), type);
    }
    code = read_rope_factor(r, &h->rope_factor);
    if (is_none) h->rope_factor = 1;
    return code;
}

// The vocabulary's size is that of the embedding matrix; where the file says it in other places too, they must agree.
// A window as long as the context hides nothing.
static relay_code read_window(reader *r, relay_hyperparameters *h) {
    uint64_t window = 0, period = 0;
    relay_code code = relay_gguf_u64(r->g, make_key(r, "attention.sliding_window"), 0, UINT32_MAX, &window, NULL, r->e);
    if (code == RELAY_OK) {
        code =
            relay_gguf_u64(r->g, make_key(r, "attention.sliding_window_pattern"), 0, MAX_LAYERS, &period, NULL, r->e);
    }
    h->window = window < h->context ? (uint32_t)window : 0;
    h->window_period = (uint32_t)period;
    return code;
}

static relay_code read_vocab_size(reader *r, relay_hyperparameters *h) {
    const relay_gguf_tensor *t = relay_gguf_tensor_find(r->g, "token_embd.weight");
    if (t == NULL) return relay_fail(r->e, RELAY_INVALID_ARGUMENT, "tensor \"token_embd.weight\" is missing");
    if (t->dims[1] < 1 || t->dims[1] > MAX_VOCAB) {
        return relay_fail(r->e, RELAY_INVALID_ARGUMENT,
                          "tensor \"token_embd.weight\" has %" PRIu64 " rows; it must have 1 to %d", t->dims[1],
                          MAX_VOCAB);
    }
    h->vocab_size = (uint32_t)t->dims[1];
    uint64_t n_tokens;
    bool found;
    relay_code code = relay_gguf_string_array(r->g, "tokenizer.ggml.tokens", &n_tokens, &found, r->e);
    if (code != RELAY_OK) return code;
    if (found && n_tokens != h->vocab_size) {
        return relay_fail(r->e, RELAY_INVALID_ARGUMENT,
                          "tensor \"token_embd.weight\" has %u rows; it must have one for each of the %" PRIu64
                          " tokens of key \"tokenizer.ggml.tokens\"",
                          h->vocab_size, n_tokens);
    }
    uint32_t said = h->vocab_size;
    code = read_count(r, "vocab_size", UINT32_MAX, &said);
    if (code == RELAY_OK && said != h->vocab_size) {
        return relay_fail(r->e, RELAY_INVALID_ARGUMENT,
                          "key \"%s\" is %u; it must be the number of rows of tensor \"token_embd.weight\", %u", r->key,
                          said, h->vocab_size);
    }
    return code;
}

static relay_code read_epsilon(reader *r, relay_hyperparameters *h) {
    double epsilon = 0;
    bool found;
    const char *key = make_key(r, "attention.layer_norm_rms_epsilon");
    relay_code code = relay_gguf_f64(r->g, key, 0, 1, &epsilon, &found, r->e);
    if (code == RELAY_OK && !found) return missing(r);
    h->rms_epsilon = (float)epsilon;
    return code;
}

relay_code relay_hyperparameters_read(relay_hyperparameters *out, const relay_gguf *g, relay_err *e) {
    const struct architecture *a = NULL;
    relay_code code = read_architecture(g, &a, e);
    if (code != RELAY_OK) return code;
    relay_hyperparameters h = {
        .architecture = a->name,
        .needs_qkv_bias = a->needs_qkv_bias,
        .rope_style = a->rope_style,
    };
    reader r = {.g = g, .architecture = a->name, .e = e};
    code = check_unsupported(&r);
    if (code == RELAY_OK) code = read_sizes(&r, &h);
    if (code == RELAY_OK) code = read_heads(&r, &h);
    if (code == RELAY_OK) code = read_epsilon(&r, &h);
    if (code == RELAY_OK) code = read_rope(&r, &h);
    if (code == RELAY_OK) code = read_window(&r, &h);
    if (code == RELAY_OK) code = read_vocab_size(&r, &h);
    if (code == RELAY_OK) *out = h;
    return code;
}
