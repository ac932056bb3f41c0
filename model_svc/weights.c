// Two passes. The first goes through the file's tensors and puts each into its place in a table of the parts that the
// architecture has, checking name, shape and type; what is left empty and needed is missing. Only then are weights
// made, part by part in the table's order: so the fingerprint does not depend on the order in the file, and nothing is
// allocated for a file that is wrong.
#include "model_svc/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kernels/dequant.h"

enum { RELEASE_BYTES = 64 << 20 }; // of the mapping that may stay resident while loading

// ---- The parts a model has

typedef enum dimension {
    NO_DIMENSION,
    WIDTH,
    QUERY, // n_heads * head_dim
    KEY,   // n_kv_heads * head_dim
    FFN,
    VOCAB,
    ROTATED_PAIRS,
} dimension;

typedef enum part_kind {
    MATRIX, // a relay_matrix's w
    BIAS,   // a relay_matrix's d_bias
    VECTOR, // a float * on the device
    FACTORS // rope_factors
} part_kind;

typedef struct part {
    const char *name;
    part_kind kind;
    enum { REQUIRED, OPTIONAL, QKV_BIAS } need;
    dimension n_in, n_out;
    size_t at; // of the relay_matrix or float * in relay_weights or relay_layer_weights
} part;

#define LAYER(field) offsetof(relay_layer_weights, field)
#define MODEL(field) offsetof(relay_weights, field)
#define LAYER_MATRIX(name, bias, in, out, field)                                                                       \
    {name ".weight", MATRIX, REQUIRED, in, out, LAYER(field)}, {                                                       \
        name ".bias", BIAS, bias, out, NO_DIMENSION, LAYER(field)                                                      \
    }

static const part model_parts[] = {
    {"token_embd.weight", MATRIX, REQUIRED, WIDTH, VOCAB, MODEL(embedding)},
    {"output.weight", MATRIX, OPTIONAL, WIDTH, VOCAB, MODEL(output)},
    {"output.bias", BIAS, OPTIONAL, VOCAB, NO_DIMENSION, MODEL(output)},
    {"output_norm.weight", VECTOR, REQUIRED, WIDTH, NO_DIMENSION, MODEL(d_output_norm)},
    {"rope_freqs.weight", FACTORS, OPTIONAL, ROTATED_PAIRS, NO_DIMENSION, MODEL(rope_factors)},
};
static const part layer_parts[] = {
    {"attn_norm.weight", VECTOR, REQUIRED, WIDTH, NO_DIMENSION, LAYER(d_attn_norm)},
    LAYER_MATRIX("attn_q", QKV_BIAS, WIDTH, QUERY, query),
    LAYER_MATRIX("attn_k", QKV_BIAS, WIDTH, KEY, key),
    LAYER_MATRIX("attn_v", QKV_BIAS, WIDTH, KEY, value),
    LAYER_MATRIX("attn_output", OPTIONAL, QUERY, WIDTH, attn_output),
    {"ffn_norm.weight", VECTOR, REQUIRED, WIDTH, NO_DIMENSION, LAYER(d_ffn_norm)},
    LAYER_MATRIX("ffn_gate", OPTIONAL, WIDTH, FFN, ffn_gate),
    LAYER_MATRIX("ffn_up", OPTIONAL, WIDTH, FFN, ffn_up),
    LAYER_MATRIX("ffn_down", OPTIONAL, FFN, WIDTH, ffn_down),
};
enum {
    N_MODEL_PARTS = sizeof model_parts / sizeof model_parts[0],
    N_LAYER_PARTS = sizeof layer_parts / sizeof layer_parts[0],
};

static uint64_t size_of(const relay_hyperparameters *h, dimension d) {
    switch (d) {
    case WIDTH:
        return h->width;
    case QUERY:
        return (uint64_t)h->n_heads * h->head_dim;
    case KEY:
        return (uint64_t)h->n_kv_heads * h->head_dim;
    case FFN:
        return h->ffn_width;
    case VOCAB:
        return h->vocab_size;
    case ROTATED_PAIRS:
        return h->n_rot / 2;
    case NO_DIMENSION:
        break;
    }
    return 1;
}

// ---- First pass: every tensor to its place

// found[0, N_MODEL_PARTS) are the model's parts, then N_LAYER_PARTS for each layer.
typedef struct catalogue {
    const relay_hyperparameters *h;
    const relay_gguf_tensor **found;
} catalogue;

static const part *part_at(uint32_t i) {
    return i < N_MODEL_PARTS ? &model_parts[i] : &layer_parts[(i - N_MODEL_PARTS) % N_LAYER_PARTS];
}

// Where a tensor of that name belongs; false where the architecture has none of that name.
static bool place_of(const catalogue *c, const char *name, uint32_t *place) {
    for (uint32_t i = 0; i < N_MODEL_PARTS; i++) {
        if (strcmp(name, model_parts[i].name) == 0) {
            *place = i;
            return true;
        }
    }
    // "blk.N.part", N without leading zeros.
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9' || (name[4] == '0' && name[5] != '.'))
        return false;
    char *rest;
    unsigned long layer = strtoul(name + 4, &rest, 10);
    if (*rest != '.' || layer >= c->h->n_layers) return false;
    for (uint32_t i = 0; i < N_LAYER_PARTS; i++) {
        if (strcmp(rest + 1, layer_parts[i].name) == 0) {
            *place = N_MODEL_PARTS + (uint32_t)layer * N_LAYER_PARTS + i;
            return true;
        }
    }
    return false;
}

static relay_code check_tensor(const relay_gguf_tensor *t, const part *p, const relay_hyperparameters *h,
                               relay_err *e) {
    uint64_t n_in = size_of(h, p->n_in), n_out = size_of(h, p->n_out);
    if (t->dims[0] != n_in || t->dims[1] != n_out || t->dims[2] != 1 || t->dims[3] != 1) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT,
                          "tensor \"%s\" has shape [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                          "]; it must have [%" PRIu64 ", %" PRIu64 ", 1, 1]",
                          t->name, t->dims[0], t->dims[1], t->dims[2], t->dims[3], n_in, n_out);
    }
    uint32_t block_values, block_bytes;
    if (!relay_ggml_type_block(t->type, &block_values, &block_bytes)) {
        return relay_fail(e, RELAY_UNIMPLEMENTED, "tensor \"%s\" is of ggml's type %u, which Relay does not read",
                          t->name, t->type);
    }
    if (p->kind != MATRIX && t->type != RELAY_GGML_F32) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "tensor \"%s\" is of type %s; it must be F32", t->name,
                          relay_ggml_type_name(t->type));
    }
    if (p->kind == MATRIX) return RELAY_OK;
    for (uint64_t i = 0; i < n_in; i++) {
        float v;
        memcpy(&v, (const float *)t->data + i, sizeof v);
        if (!isfinite(v) || (p->kind == FACTORS && !(v > 0))) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT, "tensor \"%s\" holds %g at %" PRIu64 "; it must be %s",
                              t->name, (double)v, i, p->kind == FACTORS ? "a positive number" : "a finite number");
        }
    }
    return RELAY_OK;
}

static relay_code check_complete(const catalogue *c, relay_err *e) {
    for (uint32_t i = 0; i < N_MODEL_PARTS + c->h->n_layers * N_LAYER_PARTS; i++) {
        const part *p = part_at(i);
        if (c->found[i] || p->need == OPTIONAL || (p->need == QKV_BIAS && !c->h->needs_qkv_bias)) continue;
        char layer[24] = "";
        if (i >= N_MODEL_PARTS) snprintf(layer, sizeof layer, "blk.%u.", (i - N_MODEL_PARTS) / N_LAYER_PARTS);
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "tensor \"%s%s\" is missing", layer, p->name);
    }
    return RELAY_OK;
}

static relay_code fill_catalogue(catalogue *c, const relay_gguf *g, relay_err *e) {
    for (uint32_t i = 0; i < relay_gguf_tensor_count(g); i++) {
        const relay_gguf_tensor *t = relay_gguf_tensor_at(g, i);
        uint32_t place;
        if (!place_of(c, t->name, &place)) {
            return relay_fail(e, RELAY_INVALID_ARGUMENT,
                              "tensor \"%s\" is none that architecture %s with %u layers (%s.block_count) has", t->name,
                              c->h->architecture, c->h->n_layers, c->h->architecture);
        }
        relay_code code = check_tensor(t, part_at(place), c->h, e);
        if (code != RELAY_OK) return code;
        c->found[place] = t;
    }
    return check_complete(c, e);
}

// ---- Second pass: weights on the device

typedef struct loader {
    relay_weights *w;
    const relay_gguf *g;
    bool as_f32;
    XXH3_state_t *hash;
    uint64_t bytes_of_type[64]; // in the file, by ggml type
    uint64_t since_release;     // bytes read since the mapping's pages were given back
} loader;

static void hash_shape(XXH3_state_t *hash, const relay_hyperparameters *h) {
    char text[512];
    int n = snprintf(text, sizeof text, "%s %u %u %u %u %u %u %u %u %a %u %a %a", h->architecture, h->n_layers,
                     h->n_heads, h->n_kv_heads, h->head_dim, h->width, h->ffn_width, h->vocab_size, h->context,
                     (double)h->rms_epsilon, h->n_rot, h->rope_base, h->rope_factor);
    XXH3_128bits_update(hash, text, (size_t)n + 1);
}

static void hash_tensor(XXH3_state_t *hash, const relay_gguf_tensor *t) {
    XXH3_128bits_update(hash, t->name, strlen(t->name) + 1);
    XXH3_128bits_update(hash, &t->type, sizeof t->type);
    XXH3_128bits_update(hash, t->dims, sizeof t->dims);
    XXH3_128bits_update(hash, t->data, t->n_bytes);
}

static relay_code create_matrix(loader *l, const relay_gguf_tensor *t, relay_weight **out, relay_err *e) {
    relay_device *d = l->w->device;
    uint32_t n_in = (uint32_t)t->dims[0], n_out = (uint32_t)t->dims[1], type = t->type;
    const void *rows = t->data;
    float *widened = NULL;
    relay_err why = {0};
    relay_code code = RELAY_OK;
    if (l->as_f32) {
        uint64_t row_bytes;
        code = relay_dequant_row_bytes(&row_bytes, t->type, n_in, &why);
        if (code == RELAY_OK) {
            widened = relay_calloc((uint64_t)n_out * n_in, sizeof *widened);
            for (uint32_t o = 0; o < n_out; o++) {
                relay_dequant_row(t->type, (const char *)t->data + o * row_bytes, widened + (uint64_t)o * n_in, n_in);
            }
            rows = widened;
            type = RELAY_GGML_F32;
        }
    }
    if (code == RELAY_OK) code = d->k->weight_create(d, out, type, n_out, n_in, rows, &why);
    free(widened);
    if (code != RELAY_OK) return relay_fail(e, code, "tensor \"%s\": %s", t->name, why.message);
    l->w->bytes += d->k->weight_bytes(*out);
    return RELAY_OK;
}

static float *create_vector(loader *l, const relay_gguf_tensor *t) {
    relay_device *d = l->w->device;
    float *v = d->k->alloc(d, t->n_bytes);
    d->k->upload(d, v, t->data, t->n_bytes);
    l->w->bytes += t->n_bytes;
    return v;
}

static relay_code load_part(loader *l, const part *p, const relay_gguf_tensor *t, void *owner, relay_err *e) {
    void *field = (char *)owner + p->at;
    relay_code code = RELAY_OK;
    switch (p->kind) {
    case MATRIX:
        code = create_matrix(l, t, &((relay_matrix *)field)->w, e);
        break;
    case BIAS:
        ((relay_matrix *)field)->d_bias = create_vector(l, t);
        break;
    case VECTOR:
        *(float **)field = create_vector(l, t);
        break;
    case FACTORS:
        l->w->rope_factors = relay_calloc(1, t->n_bytes);
        memcpy(l->w->rope_factors, t->data, t->n_bytes);
        break;
    }
    hash_tensor(l->hash, t);
    l->bytes_of_type[t->type] += t->n_bytes;
    l->since_release += t->n_bytes;
    if (l->since_release >= RELEASE_BYTES) {
        relay_gguf_release_pages(l->g);
        l->since_release = 0;
    }
    return code;
}

static relay_code load_parts(loader *l, const catalogue *c, relay_err *e) {
    hash_shape(l->hash, c->h);
    relay_code code = RELAY_OK;
    for (uint32_t i = 0; i < N_MODEL_PARTS + c->h->n_layers * N_LAYER_PARTS && code == RELAY_OK; i++) {
        if (c->found[i] == NULL) continue;
        void *owner = i < N_MODEL_PARTS ? (void *)l->w : (void *)&l->w->layers[(i - N_MODEL_PARTS) / N_LAYER_PARTS];
        code = load_part(l, part_at(i), c->found[i], owner, e);
    }
    if (code != RELAY_OK) return code;
    if (l->w->output.w == NULL) l->w->output.w = l->w->embedding.w;
    for (uint32_t type = 0; type < 64; type++) {
        if (l->bytes_of_type[type] > l->bytes_of_type[l->w->main_type]) l->w->main_type = type;
    }
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(l->hash));
    memcpy(l->w->fingerprint, digest.digest, sizeof l->w->fingerprint);
    relay_gguf_release_pages(l->g);
    return RELAY_OK;
}

relay_code relay_weights_load(relay_weights **out, relay_device *d, const relay_gguf *g, const relay_hyperparameters *h,
                              bool as_f32, relay_err *e) {
    *out = NULL;
    catalogue c = {.h = h};
    c.found = relay_calloc(N_MODEL_PARTS + (uint64_t)h->n_layers * N_LAYER_PARTS, sizeof *c.found);
    relay_code code = fill_catalogue(&c, g, e);
    if (code == RELAY_OK) {
        relay_weights *w = relay_calloc(1, sizeof *w);
        w->device = d;
        w->shape = *h;
        w->layers = relay_calloc(h->n_layers, sizeof *w->layers);
        loader l = {.w = w, .g = g, .as_f32 = as_f32, .hash = XXH3_createState()};
        RELAY_ASSERT(l.hash);
        XXH3_128bits_reset(l.hash);
        code = load_parts(&l, &c, e);
        XXH3_freeState(l.hash);
        if (code == RELAY_OK) {
            *out = w;
        } else {
            relay_weights_destroy(w);
        }
    }
    free(c.found);
    return code;
}

// ---- Ending

static void destroy_parts(relay_weights *w, const part *parts, uint32_t n_parts, void *owner) {
    const relay_kernels *k = w->device->k;
    for (uint32_t i = 0; i < n_parts; i++) {
        void *field = (char *)owner + parts[i].at;
        uint64_t bytes = size_of(&w->shape, parts[i].n_in) * sizeof(float); // of a vector
        switch (parts[i].kind) {
        case MATRIX:
            if (((relay_matrix *)field)->w) k->weight_destroy(w->device, ((relay_matrix *)field)->w);
            break;
        case BIAS:
            if (((relay_matrix *)field)->d_bias) k->free(w->device, ((relay_matrix *)field)->d_bias, bytes);
            break;
        case VECTOR:
            if (*(float **)field) k->free(w->device, *(float **)field, bytes);
            break;
        case FACTORS:
            free(w->rope_factors);
            break;
        }
    }
}

void relay_weights_destroy(relay_weights *w) {
    if (w == NULL) return;
    if (w->output.w == w->embedding.w) w->output.w = NULL;
    for (uint32_t i = 0; i < w->shape.n_layers; i++) {
        destroy_parts(w, layer_parts, N_LAYER_PARTS, &w->layers[i]);
    }
    destroy_parts(w, model_parts, N_MODEL_PARTS, w);
    free(w->layers);
    free(w);
}
