// Memory is two pieces: the activations, laid out once, and a copy of the step on the device, with the step's own
// layout, so that offsets are the same on both sides.
//
// The last layer's attention output is needed only for the rows that are sampled: those are gathered before its output
// matrix, and a step that samples nothing ends there. Since a row's result depends on that row alone, this changes no
// bit.
#include "model_svc/forward.h"

#include <math.h>
#include <stdlib.h>

#include "model_svc/rope_table.h"

enum { ALIGN = 64 };

struct relay_forward {
    relay_forward_opts o;
    float attention_scale;
    float *d_cos_sin;

    char *d_activations; // holds everything below
    uint64_t activation_bytes;
    float *d_x;                     // [max_rows, width] the hidden state
    float *d_normed;                // [max_rows, width] normalized, or a layer's addition to the hidden state
    float *d_query;                 // [max_rows, n_heads, head_dim]
    float *d_key, *d_value;         // [max_rows, n_kv_heads, head_dim]
    float *d_attention;             // [max_rows, n_heads, head_dim]
    float *d_gate, *d_up;           // [max_rows, ffn_width]
    float *d_sampled_x;             // [max_samples, width] the last layer, only the rows that are sampled
    float *d_sampled_attention;     // [max_samples, n_heads, head_dim]
    float *d_logits;                // [max_samples, vocab_size]
    relay_sample_result *d_results; // [max_samples]

    char *d_step; // arrays at the step's own offsets
    uint64_t step_bytes;
    relay_token_count *d_counts; // [n_counts] resident
    uint64_t n_counts;

    // The step in hand.
    uint32_t n_rows, n_samples;
    relay_rows rows[RELAY_MAX_KV_GROUPS];
};

// ---- Making

static uint64_t place(uint64_t *end, uint64_t bytes) {
    uint64_t begin = *end;
    *end = (begin + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return begin;
}

static void lay_out_activations(relay_forward *d) {
    const relay_hyperparameters *h = d->o.shape;
    // One row may be sampled several times, so that either count may be the larger one.
    uint64_t samples = d->o.max_samples * sizeof(float);
    uint64_t rows = d->o.max_rows * sizeof(float) > samples ? d->o.max_rows * sizeof(float) : samples;
    uint64_t query = (uint64_t)h->n_heads * h->head_dim, key = (uint64_t)h->n_kv_heads * h->head_dim;
    const struct {
        float **field;
        uint64_t bytes;
    } parts[] = {
        {&d->d_x, rows * h->width},
        {&d->d_normed, rows * h->width},
        {&d->d_query, rows * query},
        {&d->d_key, rows * key},
        {&d->d_value, rows * key},
        {&d->d_attention, rows * query},
        {&d->d_gate, rows * h->ffn_width},
        {&d->d_up, rows * h->ffn_width},
        {&d->d_sampled_x, samples * h->width},
        {&d->d_sampled_attention, samples * query},
        {&d->d_logits, samples * h->vocab_size},
    };
    enum { N = sizeof parts / sizeof parts[0] };
    uint64_t offsets[N], end = 0;
    for (uint32_t i = 0; i < N; i++) {
        offsets[i] = place(&end, parts[i].bytes);
    }
    uint64_t results = place(&end, d->o.max_samples * sizeof(relay_sample_result));
    d->activation_bytes = end;
    d->d_activations = d->o.device->k->alloc(d->o.device, end);
    for (uint32_t i = 0; i < N; i++) {
        *parts[i].field = (float *)(d->d_activations + offsets[i]);
    }
    d->d_results = (relay_sample_result *)(d->d_activations + results);
}

relay_forward *relay_forward_create(const relay_forward_opts *opts) {
    relay_forward *d = relay_calloc(1, sizeof *d);
    d->o = *opts;
    d->attention_scale = (float)(1 / sqrt((double)opts->shape->head_dim));
    d->d_cos_sin = relay_rope_table_create(opts->device, opts->shape, opts->weights->rope_factors, opts->max_context);
    lay_out_activations(d);
    return d;
}

static void free_step(relay_forward *d) {
    relay_device *v = d->o.device;
    if (d->d_step) v->k->free(v, d->d_step, d->step_bytes);
    if (d->d_counts) v->k->free(v, d->d_counts, d->n_counts * sizeof *d->d_counts);
    d->d_step = NULL;
    d->d_counts = NULL;
}

void relay_forward_destroy(relay_forward *d) {
    if (d == NULL) return;
    relay_device *v = d->o.device;
    free_step(d);
    v->k->free(v, d->d_activations, d->activation_bytes);
    v->k->free(v, d->d_cos_sin, relay_rope_table_bytes(d->o.shape, d->o.max_context));
    free(d);
}

// ---- The step on the device

// Memory is read and written where the step says: what it says is held against what there is.
static void check_step(const relay_forward *d, const relay_step *s) {
    RELAY_ASSERT(s->n_rows <= d->o.max_rows && s->n_samples <= d->o.max_samples);
    RELAY_ASSERT(s->limits.n_groups == d->o.n_groups && s->size_bytes <= d->step_bytes);
    for (uint32_t r = 0; r < s->n_rows; r++) {
        uint32_t position = relay_step_positions(s)[r], sequence = relay_step_row_sequence(s)[r];
        RELAY_ASSERT(relay_step_token_ids(s)[r] < d->o.shape->vocab_size);
        RELAY_ASSERT(position < d->o.max_context && sequence < s->n_sequences);
        for (uint32_t g = 0; g < d->o.n_groups; g++) {
            RELAY_ASSERT(relay_step_table_begin(s, g)[sequence] + position / RELAY_BLOCK_TOKENS < s->n_block_ids[g]);
        }
    }
    for (uint32_t g = 0; g < d->o.n_groups; g++) {
        for (uint32_t i = 0; i < s->n_block_ids[g]; i++) {
            RELAY_ASSERT(relay_step_block_ids(s, g)[i] < d->o.pools[g].n_blocks);
        }
        for (uint32_t i = 0; i < s->n_copies[g]; i++) {
            const relay_kv_block_copy *c = &relay_step_copies(s, g)[i];
            RELAY_ASSERT(c->from < d->o.pools[g].n_blocks && c->to < d->o.pools[g].n_blocks);
        }
    }
    const uint32_t n_tails = d->o.pools[0].n_tails;
    for (uint32_t i = 0; i < s->n_sequences; i++)
        RELAY_ASSERT(relay_step_tails(s)[i] < n_tails);
    for (uint32_t i = 0; i < s->n_tail_copies; i++) {
        const relay_kv_block_copy *c = &relay_step_tail_copies(s)[i];
        RELAY_ASSERT(c->from < n_tails && c->to < n_tails);
    }
    for (uint32_t i = 0; i < s->n_samples; i++) {
        RELAY_ASSERT(relay_step_sample_rows(s)[i] < s->n_rows);
    }
}

// The used beginning of one of the step's arrays, to the same offset on the device.
static const void *upload(relay_forward *d, const relay_step *s, uint64_t offset, uint64_t count, uint64_t item_bytes) {
    char *to = d->d_step + offset;
    if (count) d->o.device->k->upload(d->o.device, to, (const char *)s + offset, count * item_bytes);
    return to;
}

void relay_forward_prepare(relay_forward *d, const relay_step *step) {
    relay_device *v = d->o.device;
    free_step(d);
    d->step_bytes = step->size_bytes;
    d->d_step = v->k->alloc(v, d->step_bytes);
    d->n_counts = step->limits.n_resident_counts;
    if (d->n_counts != 0) d->d_counts = v->k->alloc(v, d->n_counts * sizeof *d->d_counts);
}

static void upload_step(relay_forward *d, const relay_step *s) {
    const uint32_t *position = upload(d, s, s->off_positions, s->n_rows, sizeof(uint32_t));
    const uint32_t *sequence = upload(d, s, s->off_row_sequence, s->n_rows, sizeof(uint32_t));
    for (uint32_t g = 0; g < d->o.n_groups; g++) {
        d->rows[g] = (relay_rows){
            .n_rows = s->n_rows,
            .d_position = position,
            .d_sequence = sequence,
            .d_table_begin = upload(d, s, s->off_table_begin[g], s->n_sequences, sizeof(uint32_t)),
            .d_block_ids = upload(d, s, s->off_block_ids[g], s->n_block_ids[g], sizeof(uint32_t)),
            .d_tail = upload(d, s, s->off_tails, s->n_sequences, sizeof(uint32_t)),
        };
    }
    d->n_rows = s->n_rows;
    d->n_samples = s->n_samples;
}

// ---- The layers

static relay_matmul_job job(const relay_matrix *m, float *d_out) {
    return (relay_matmul_job){.w = m->w, .d_bias = m->d_bias, .d_out = d_out};
}

// Keys and values of all rows into the cache, and d_attention of all rows.
static void attend(relay_forward *d, uint32_t layer) {
    relay_device *v = d->o.device;
    const relay_kernels *k = v->k;
    const relay_hyperparameters *h = d->o.shape;
    const relay_layer_weights *w = &d->o.weights->layers[layer];
    const relay_layer_kv *kv = &d->o.layers[layer];
    const relay_kv_pool *pool = &d->o.pools[kv->group];
    const relay_rows *rows = &d->rows[kv->group];

    k->rms_norm(v, d->d_normed, d->d_x, w->d_attn_norm, d->n_rows, h->width, h->rms_epsilon);
    const relay_matmul_job jobs[] = {job(&w->query, d->d_query), job(&w->key, d->d_key), job(&w->value, d->d_value)};
    k->matmul(v, d->d_normed, d->n_rows, jobs, 3);
    k->rope(v, d->d_query, rows->d_position, d->n_rows, h->n_heads, h->head_dim, h->n_rot, h->rope_style, d->d_cos_sin);
    k->rope(v, d->d_key, rows->d_position, d->n_rows, h->n_kv_heads, h->head_dim, h->n_rot, h->rope_style,
            d->d_cos_sin);
    k->kv_store(v, pool, kv->layer_in_group, d->d_key, d->d_value, rows);
    k->attention(v, d->d_attention, d->d_query, pool, kv->layer_in_group, rows, h->n_heads, d->attention_scale);
}

// d_x += the layer's attention, then its feed-forward part, for n rows.
static void project_and_feed_forward(relay_forward *d, uint32_t layer, float *d_x, const float *d_attention,
                                     uint32_t n) {
    relay_device *v = d->o.device;
    const relay_kernels *k = v->k;
    const relay_hyperparameters *h = d->o.shape;
    const relay_layer_weights *w = &d->o.weights->layers[layer];

    relay_matmul_job output = job(&w->attn_output, d->d_normed);
    k->matmul(v, d_attention, n, &output, 1);
    k->add(v, d_x, d->d_normed, n, h->width);

    k->rms_norm(v, d->d_normed, d_x, w->d_ffn_norm, n, h->width, h->rms_epsilon);
    const relay_matmul_job gate_and_up[] = {job(&w->ffn_gate, d->d_gate), job(&w->ffn_up, d->d_up)};
    k->matmul(v, d->d_normed, n, gate_and_up, 2);
    k->silu_mul(v, d->d_gate, d->d_gate, d->d_up, n, h->ffn_width);
    relay_matmul_job down = job(&w->ffn_down, d->d_normed);
    k->matmul(v, d->d_gate, n, &down, 1);
    k->add(v, d_x, d->d_normed, n, h->width);
}

// Logits of the rows in d_sampled_x, and a token id of each.
static void sample(relay_forward *d, const relay_step *s) {
    relay_device *v = d->o.device;
    const relay_hyperparameters *h = d->o.shape;
    v->k->rms_norm(v, d->d_sampled_x, d->d_sampled_x, d->o.weights->d_output_norm, d->n_samples, h->width,
                   h->rms_epsilon);
    relay_matmul_job output = job(&d->o.weights->output, d->d_logits);
    v->k->matmul(v, d->d_sampled_x, d->n_samples, &output, 1);
    const relay_count_update *updates =
        upload(d, s, s->off_count_updates, s->n_count_updates, sizeof(relay_count_update));
    if (s->n_count_updates != 0) v->k->update_counts(v, d->d_counts, updates, s->n_count_updates);
    const relay_sample_input in = {
        .n_samples = d->n_samples,
        .d_params = upload(d, s, s->off_sample_params, s->n_samples, sizeof(relay_sample_params)),
        .d_counts = d->d_counts,
        .d_biases = upload(d, s, s->off_biases, s->n_biases, sizeof(relay_token_bias)),
        .d_masked = upload(d, s, s->off_masked, s->n_masked, sizeof(uint32_t)),
        .d_allowed = upload(d, s, s->off_allowed, s->n_allowed, sizeof(uint32_t)),
        .d_wanted = upload(d, s, s->off_wanted, s->n_wanted, sizeof(uint32_t)),
    };
    v->k->sample(v, d->d_results, d->d_logits, h->vocab_size, &in);
}

void relay_forward_submit(relay_forward *d, const relay_step *s) {
    relay_device *v = d->o.device;
    const relay_hyperparameters *h = d->o.shape;
    check_step(d, s);
    upload_step(d, s);
    if (d->n_rows == 0) return;

    for (uint32_t g = 0; g < d->o.n_groups; g++) {
        const relay_kv_pool *pool = &d->o.pools[g];
        if (s->n_tail_copies > 0 && pool->tail_bytes > 0) {
            v->k->kv_copy_tails(v, pool,
                                upload(d, s, s->off_tail_copies, s->n_tail_copies, sizeof(relay_kv_block_copy)),
                                s->n_tail_copies);
        }
        if (s->n_copies[g] == 0) continue;
        v->k->kv_copy(v, pool, upload(d, s, s->off_copies[g], s->n_copies[g], sizeof(relay_kv_block_copy)),
                      s->n_copies[g]);
    }
    v->k->embed(v, d->d_x, d->o.weights->embedding.w, upload(d, s, s->off_token_ids, s->n_rows, sizeof(uint32_t)),
                d->n_rows);
    uint32_t last = h->n_layers - 1;
    for (uint32_t layer = 0; layer < last; layer++) {
        attend(d, layer);
        project_and_feed_forward(d, layer, d->d_x, d->d_attention, d->n_rows);
    }
    attend(d, last);
    if (d->n_samples == 0) return;
    const uint32_t *sample_rows = upload(d, s, s->off_sample_rows, s->n_samples, sizeof(uint32_t));
    v->k->gather_rows(v, d->d_sampled_x, d->d_x, sample_rows, d->n_samples, h->width);
    v->k->gather_rows(v, d->d_sampled_attention, d->d_attention, sample_rows, d->n_samples, h->n_heads * h->head_dim);
    project_and_feed_forward(d, last, d->d_sampled_x, d->d_sampled_attention, d->n_samples);
    sample(d, s);
}

void relay_forward_complete(relay_forward *d, relay_sample_result *results) {
    relay_device *v = d->o.device;
    if (d->n_samples) {
        v->k->download(v, results, d->d_results, d->n_samples * sizeof *results);
    } else {
        v->k->wait(v);
    }
}

void relay_forward_read_logits(const relay_forward *d, uint32_t i, float *out) {
    RELAY_ASSERT(i < d->n_samples);
    uint64_t width = d->o.shape->vocab_size;
    d->o.device->k->download(d->o.device, out, d->d_logits + i * width, width * sizeof *out);
}
