// Puts a model together: file -> hyperparameters -> device -> weights -> KV pools -> forward pass, and says what came
// out.
#include "model_svc/model.h"

#include <gnu/libc-version.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model_svc/build_id.h"
#include "model_svc/forward.h"
#include "model_svc/kv_groups.h"
#include "model_svc/weights.h"

#define DEFAULT_KV_BYTES (UINT64_C(1) << 30)

struct relay_model {
    relay_model_info info;
    relay_hyperparameters shape;
    relay_device *device;
    relay_weights *weights;
    relay_layer_kv *layers; // [n_layers]
    relay_kv_pool pools[RELAY_MAX_KV_GROUPS];
    uint32_t n_groups;
    relay_forward *forward;
};

// ---- Parts

static relay_code create_device(relay_model *m, const relay_kernels *k, const relay_model_opts *o, uint32_t max_samples,
                                relay_err *e) {
    const relay_hyperparameters *h = &m->shape;
    uint32_t max_width = h->width;
    if (max_width < h->ffn_width) max_width = h->ffn_width;
    if (max_width < h->n_heads * h->head_dim) max_width = h->n_heads * h->head_dim;
    relay_device_opts d = {
        .n_threads = o->n_threads,
        .max_rows = o->max_rows > max_samples ? o->max_rows : max_samples,
        .max_width = max_width,
        .max_context = m->info.max_context,
        .max_vocab = h->vocab_size,
        .max_samples = max_samples,
    };
    return k->device_create(&m->device, &d, e);
}

static relay_code assign_groups(relay_model *m, relay_kv_type type, relay_err *e) {
    m->layers = relay_calloc(m->shape.n_layers, sizeof *m->layers);
    for (uint32_t i = 0; i < m->shape.n_layers; i++) {
        m->layers[i] = (relay_layer_kv){
            .n_kv_heads = m->shape.n_kv_heads,
            .head_dim = m->shape.head_dim,
            .window = relay_layer_window(&m->shape, i),
        };
    }
    return relay_kv_groups_assign(m->layers, m->shape.n_layers, type, m->pools, &m->n_groups, e);
}

static uint64_t blocks_for(uint64_t n_tokens) {
    return (n_tokens + RELAY_BLOCK_TOKENS - 1) / RELAY_BLOCK_TOKENS;
}

// Blocks of a group that are of any use: what every sequence and one step's chunks see of it. A group with a window
// gets twice that, so that there is something to find of those that have ended.
static uint64_t useful_blocks(const relay_kv_pool *p, const relay_model_opts *o, uint32_t context) {
    if (p->window == 0) return o->max_sequences * blocks_for(context);
    return 2 * (o->max_sequences * (blocks_for(p->window) + 1) + blocks_for(o->max_rows));
}

// How many blocks each pool gets, and with that the context that can be served. A position needs a slot in every group
// that sees all; what groups with a window do not need is for the others.
static relay_code size_pools(relay_model *m, const relay_kernels *k, const relay_model_opts *o, relay_err *e) {
    uint32_t context = o->max_context ? o->max_context : m->shape.context;
    if (context > m->shape.context) {
        return relay_fail(e, RELAY_OUT_OF_RANGE, "--max-context is %u; the model was trained on %u positions", context,
                          m->shape.context);
    }
    uint64_t bytes = o->kv_bytes ? o->kv_bytes : DEFAULT_KV_BYTES, bytes_of_all = 0; // of one block in every group
    uint64_t bytes_of_tails = 0;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        relay_kv_pool *p = &m->pools[g];
        p->block_bytes = k->kv_block_bytes(p);
        p->tail_bytes = k->kv_tail_bytes(p);
        p->n_tails = o->max_sequences;
        bytes_of_all += p->block_bytes;
        bytes_of_tails += p->tail_bytes * p->n_tails;
    }
    if (bytes < bytes_of_tails + bytes_of_all) {
        return relay_fail(e, RELAY_OUT_OF_RANGE,
                          "--kv-memory is %" PRIu64 " bytes; one block of %d positions takes %" PRIu64
                          ", and what %u sequences keep beside their blocks %" PRIu64,
                          bytes, RELAY_BLOCK_TOKENS, bytes_of_all, o->max_sequences, bytes_of_tails);
    }
    bytes -= bytes_of_tails;
    uint64_t even = bytes / bytes_of_all, bytes_of_rest = bytes_of_all;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        relay_kv_pool *p = &m->pools[g];
        uint64_t useful = useful_blocks(p, o, context);
        if (p->window == 0 || useful >= even) continue;
        p->n_blocks = (uint32_t)useful;
        bytes -= useful * p->block_bytes;
        bytes_of_rest -= p->block_bytes;
    }
    m->info.max_context = context;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        relay_kv_pool *p = &m->pools[g];
        if (p->n_blocks == 0) {
            uint64_t n = bytes / bytes_of_rest, useful = useful_blocks(p, o, context);
            if (o->kv_bytes == 0 && n > useful) n = useful;
            p->n_blocks = (uint32_t)(n < UINT32_MAX ? n : UINT32_MAX);
        }
        bool holds_any = p->window != 0 && p->n_blocks > blocks_for(p->window);
        if (!holds_any && (uint64_t)p->n_blocks * RELAY_BLOCK_TOKENS < m->info.max_context) {
            m->info.max_context = p->n_blocks * RELAY_BLOCK_TOKENS;
        }
    }
    return RELAY_OK;
}

static void create_pools(relay_model *m) {
    for (uint32_t g = 0; g < m->n_groups; g++) {
        relay_kv_pool *p = &m->pools[g];
        p->d_data = m->device->k->alloc(m->device, p->block_bytes * p->n_blocks);
        if (p->tail_bytes != 0) p->d_tails = m->device->k->alloc(m->device, p->tail_bytes * p->n_tails);
    }
}

static void create_forward(relay_model *m, const relay_model_opts *o, uint32_t max_samples) {
    m->forward = relay_forward_create(&(relay_forward_opts){
        .device = m->device,
        .shape = &m->shape,
        .weights = m->weights,
        .layers = m->layers,
        .pools = m->pools,
        .n_groups = m->n_groups,
        .max_rows = o->max_rows,
        .max_samples = max_samples,
        .max_context = m->info.max_context,
    });
}

// ---- What it says of itself

// Copies text as much as fits, cut at a character; invalid bytes become '?'.
static void copy_text(char *out, size_t cap, const char *s, size_t len) {
    if (len >= cap) {
        len = cap - 1;
        len -= relay_utf8_incomplete_suffix(s, len);
    }
    memcpy(out, s, len);
    out[len] = '\0';
    relay_utf8_repair(out, len);
}

// general.file_type's names (llama.cpp's llama_ftype) of the mixtures that Relay reads; NULL for others.
static const char *file_type_name(uint64_t type) {
    static const char *const names[] = {
        [0] = "F32",  [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",  [7] = "Q8_0",
        [8] = "Q5_0", [14] = "Q4_K_S", [15] = "Q4_K_M", [18] = "Q6_K", [32] = "BF16",
    };
    return type < sizeof names / sizeof names[0] ? names[type] : NULL;
}

// llama.cpp's general.sampling.*; its default for what is not there is not the model's, so that is off here, but for
// numbers that matter only beside others.
static relay_code read_sampling_defaults(relay_model_info *i, const relay_gguf *g, relay_err *e) {
    relay_sample_params *p = &i->default_sampling;
    *p = (relay_sample_params){
        .temperature = 1,
        .top_p = 1,
        .typical_p = 1,
        .repetition_penalty = 1,
        .xtc_threshold = 0.1f,
        .mirostat_tau = 5,
        .mirostat_eta = 0.1f,
    };
    const struct {
        const char *key;
        double min, max;
        float *to;
    } numbers[] = {
        {"general.sampling.temp", 0, 2, &p->temperature},
        {"general.sampling.top_p", 1e-6, 1, &p->top_p},
        {"general.sampling.min_p", 0, 1, &p->min_p},
        {"general.sampling.penalty_repeat", 1e-6, 2, &p->repetition_penalty},
        {"general.sampling.xtc_probability", 0, 1, &p->xtc_probability},
        {"general.sampling.xtc_threshold", 0, 1, &p->xtc_threshold},
        {"general.sampling.mirostat_tau", 1e-6, 100, &p->mirostat_tau},
        {"general.sampling.mirostat_eta", 1e-6, 1, &p->mirostat_eta},
    };
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
        double v = (double)*numbers[k].to;
        relay_code code = relay_gguf_f64(g, numbers[k].key, numbers[k].min, numbers[k].max, &v, NULL, e);
        if (code != RELAY_OK) return code;
        *numbers[k].to = (float)v;
    }
    if (p->xtc_threshold > 0.5f) p->xtc_probability = 0; // never two ids with more than half each
    uint64_t top_k = 0, mirostat = 0;
    relay_code code = relay_gguf_u64(g, "general.sampling.top_k", 0, UINT32_MAX, &top_k, NULL, e);
    if (code == RELAY_OK) code = relay_gguf_u64(g, "general.sampling.mirostat", 0, 2, &mirostat, NULL, e);
    if (code != RELAY_OK) return code;
    p->top_k = (uint32_t)top_k;
    p->mirostat = (uint32_t)mirostat;
    int64_t window = -1; // the whole context; 0: no penalty
    code = relay_gguf_i64(g, "general.sampling.penalty_last_n", -1, UINT32_MAX, &window, NULL, e);
    if (window == 0) p->repetition_penalty = 1;
    i->default_penalty_window = window > 0 ? (uint32_t)window : 0;
    return code;
}

static relay_code describe_file(relay_model *m, const relay_gguf *g, const char *file_name, relay_err *e) {
    const char *slash = strrchr(file_name, '/');
    const char *name = slash ? slash + 1 : file_name;
    size_t len = strlen(name);
    relay_code code = relay_gguf_string(g, "general.name", &name, &len, NULL, e);
    if (code != RELAY_OK) return code;
    copy_text(m->info.name, sizeof m->info.name, name, len);

    uint64_t type = UINT64_MAX;
    code = relay_gguf_u64(g, "general.file_type", 0, UINT32_MAX, &type, NULL, e);
    if (code != RELAY_OK) return code;
    const char *format = file_type_name(type);
    if (!format) format = relay_ggml_type_name(m->weights->main_type);
    copy_text(m->info.weight_format, sizeof m->info.weight_format, format, strlen(format));
    return read_sampling_defaults(&m->info, g, e);
}

// The C library is part of it: its exp and cos may round differently from one release to the next.
static void make_numerics_id(relay_model *m, const relay_model_opts *o) {
    char build[17];
    relay_build_id(build, sizeof build);
    snprintf(m->info.numerics_id, sizeof m->info.numerics_id, "build=%s libc=%s kernels=%s kv=%s%s", build,
             gnu_get_libc_version(), m->device->k->numerics, relay_kv_type_name(o->kv_type),
             o->weights_as_f32 ? " weights=f32" : "");
}

static void describe_model(relay_model *m, const relay_model_opts *o) {
    relay_model_info *i = &m->info;
    copy_text(i->architecture, sizeof i->architecture, m->shape.architecture, strlen(m->shape.architecture));
    i->vocab_size = m->shape.vocab_size;
    i->kv_type = o->kv_type;
    i->n_groups = m->n_groups;
    for (uint32_t g = 0; g < m->n_groups; g++) {
        const relay_kv_pool *p = &m->pools[g];
        i->groups[g] = (relay_kv_group){.block_bytes = p->block_bytes, .n_blocks = p->n_blocks, .window = p->window};
        i->kv_bytes += p->block_bytes * p->n_blocks + p->tail_bytes * p->n_tails;
    }
    i->weight_bytes = m->weights->bytes;
    memcpy(i->weights_fingerprint, m->weights->fingerprint, sizeof i->weights_fingerprint);
    make_numerics_id(m, o);
}

// ---- The model

static relay_code load(relay_model *m, const relay_gguf *g, const char *file_name, const relay_model_opts *o,
                       relay_err *e) {
    if (o->max_rows == 0) return relay_fail(e, RELAY_INVALID_ARGUMENT, "max_rows is 0; it must be at least 1");
    if (o->max_sequences == 0)
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "max_sequences is 0; it must be at least 1");
    uint32_t max_samples = o->max_samples ? o->max_samples : o->max_sequences + RELAY_MAX_SCORED_ROWS;
    relay_code code = relay_hyperparameters_read(&m->shape, g, e);
    if (code == RELAY_OK) code = assign_groups(m, o->kv_type, e);
    if (code != RELAY_OK) return code;
    const relay_kernels *k = o->kernels;
    if (!k) code = relay_kernels_choose(&k, NULL, e);
    if (code == RELAY_OK) code = size_pools(m, k, o, e);
    if (code == RELAY_OK) code = create_device(m, k, o, max_samples, e);
    if (code == RELAY_OK) code = relay_weights_load(&m->weights, m->device, g, &m->shape, o->weights_as_f32, e);
    if (code == RELAY_OK) code = describe_file(m, g, file_name, e);
    if (code != RELAY_OK) return code;
    create_pools(m);
    create_forward(m, o, max_samples);
    describe_model(m, o);
    return RELAY_OK;
}

relay_code relay_model_load(relay_model **out, const relay_gguf *g, const char *file_name, const relay_model_opts *opts,
                            relay_err *e) {
    relay_model *m = relay_calloc(1, sizeof *m);
    relay_code code = load(m, g, file_name, opts, e);
    if (code != RELAY_OK) {
        relay_model_destroy(m);
        m = NULL;
    }
    *out = m;
    return code;
}

void relay_model_destroy(relay_model *m) {
    if (m == NULL) return;
    relay_forward_destroy(m->forward);
    for (uint32_t g = 0; g < m->n_groups; g++) {
        relay_kv_pool *p = &m->pools[g];
        if (p->d_data) m->device->k->free(m->device, p->d_data, p->block_bytes * p->n_blocks);
        if (p->d_tails) m->device->k->free(m->device, p->d_tails, p->tail_bytes * p->n_tails);
    }
    relay_weights_destroy(m->weights);
    if (m->device) m->device->k->device_destroy(m->device);
    free(m->layers);
    free(m);
}

const relay_model_info *relay_model_get_info(const relay_model *m) {
    return &m->info;
}

void relay_model_read_logits(const relay_model *m, uint32_t sample, float *out) {
    relay_forward_read_logits(m->forward, sample, out);
}

static void prepare(void *model, const relay_step *step) {
    relay_forward_prepare(((relay_model *)model)->forward, step);
}

static void submit(void *model, const relay_step *step) {
    relay_forward_submit(((relay_model *)model)->forward, step);
}

static void complete(void *model, relay_sample_result *results) {
    relay_forward_complete(((relay_model *)model)->forward, results);
}

const relay_model_ops relay_model_decoder_ops = {.prepare = prepare, .submit = submit, .complete = complete};
