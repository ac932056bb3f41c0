// The seam between the model and the hardware: one table of operations a backend (kernels/ref, kernels/cpu,
// kernels/cuda).
//
// Every operation of a forward pass, sampling included, is a slot of relay_kernels. The model issues them in order; a
// device may run them later (a CUDA stream), so results are read only after wait(). Pointers named `d_` are device
// memory (on a CPU plain memory). Activations are float32, row-major, one row a token of the batch.
//
// The rule that everything else is built on: **a row of a result is a function of that row's inputs alone.** The
// reduction along K, and along KV positions, has one order that depends on neither the number of rows, nor their place
// in the batch, nor the number of threads, nor on which KV blocks hold the keys. Tests hold every backend to the same
// bits across these.
//
// One thread, the engine's, calls a device. No operation allocates, locks (beyond the worker pool's futex) or logs;
// scratch memory is made when the device is.
#ifndef RELAY_KERNELS_KERNELS_H
#define RELAY_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef struct relay_device relay_device; // begins with `const relay_kernels *k`; the rest is the backend's
typedef struct relay_weight relay_weight; // a matrix [n_out, n_in] in the backend's layout

enum { RELAY_BLOCK_TOKENS = 16, RELAY_MAX_TOP_LOGPROBS = 20, RELAY_MAX_WANTED_LOGPROBS = 20 };

// How keys and values are kept. F32, F16 and BF16: as they are, rounded.
//
// INT8 and INT4 have scales and minima in float16, x = minimum + scale * n. Keys are quantized a block at a time, each
// channel over its 16 positions, once the block is full: channels differ in size by far, positions do not. Values are
// quantized as they are stored, 32 of a head together. (Method: Liu et al. 2024, KIVI.) A row reads the keys of its own
// block in float16 and those of the blocks before quantized, in one chunk as in many. The keys of a sequence's block
// that is not full are in its tail.
typedef enum relay_kv_type {
    RELAY_KV_F16,
    RELAY_KV_F32,
    RELAY_KV_BF16,
    RELAY_KV_INT8,
    RELAY_KV_INT4,
    RELAY_KV_N_TYPES,
} relay_kv_type;

// "f16", "f32", "bf16", "int8", "int4".
const char *relay_kv_type_name(relay_kv_type type);
// F16 for a name that is none of them.
relay_kv_type relay_kv_type_of(const char *name);
#define RELAY_KV_TYPE_NAMES "f16|f32|bf16|int8|int4" // the choices of a flag

// A pool of KV blocks for the layers of one KV group. A block holds RELAY_BLOCK_TOKENS positions of all the group's
// layers; how keys and values lie inside one is the backend's affair, but a block is contiguous, so that memory is
// touched only as blocks are used.
typedef struct relay_kv_pool {
    void *d_data;         // [n_blocks][block_bytes], from alloc()
    uint64_t block_bytes; // kv_block_bytes() of the fields below
    uint32_t n_blocks;
    uint32_t n_layers; // layers of the group
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t window; // positions a row sees, itself included; 0: all
    relay_kv_type type;
    void *d_tails;       // [n_tails][tail_bytes], from alloc(); NULL where tail_bytes is 0
    uint64_t tail_bytes; // kv_tail_bytes() of the fields above
    uint32_t n_tails;
} relay_kv_pool;

// Where each row of the batch stands in its sequence and where that sequence's KV blocks are, for one KV group.
typedef struct relay_rows {
    uint32_t n_rows;
    const uint32_t *d_position; // [n_rows] position in the sequence, from 0
    const uint32_t
        *d_sequence; // [n_rows] index of the sequence in this step; rows of one sequence are adjacent, ascending
    const uint32_t *d_table_begin; // [n_sequences] where the sequence's block table begins in d_block_ids
    const uint32_t
        *d_block_ids;       // position p of the sequence lies in block d_block_ids[table_begin + p / 16], slot p % 16
    const uint32_t *d_tail; // [n_sequences] which tail is the sequence's; not read where the pool has none
} relay_rows;

// One block, or one tail, becomes as another of its pool.
typedef struct relay_kv_block_copy {
    uint32_t from, to;
} relay_kv_block_copy;

typedef struct relay_matmul_job {
    const relay_weight *w; // [n_out, n_in]
    const float *d_bias;   // [n_out] or NULL
    float *d_out;          // [n_rows, n_out]
} relay_matmul_job;

typedef enum relay_rope_style {
    RELAY_ROPE_ADJACENT, // pairs (0,1), (2,3), ...: GGUF's Llama
    RELAY_ROPE_HALVES,   // pairs (0, n/2), (1, n/2 + 1), ...: Qwen2 ("NEOX")
} relay_rope_style;

typedef enum relay_logprob_mode {
    RELAY_LOGPROB_NONE,
    RELAY_LOGPROB_RAW,       // log softmax of the model's logits
    RELAY_LOGPROB_PROCESSED, // of what is drawn from: after penalties, temperature and truncation
} relay_logprob_mode;

// How one row of logits becomes a token id. Plain data. The order in which it happens is that of the fields' groups, as
// proto/relay/v1/sampling.proto publishes it; the meaning of each is in docs/sampling.md.
//
// Equal logits (and equal keys of any other order): the lower id comes first everywhere. The draw is Philox4x32-10
// keyed by seed, with (position, sequence_index, purpose) as counter: it depends on nothing else; what is left is
// walked in the order of ids. Greedy is the limit of temperature 0: its processed distribution is one id. Arrays of a
// row are [begin, begin + n) of the step's (relay_sample_input).
typedef struct relay_sample_params {
    // Penalties, over the row's counts. Repetition: ids in prompt or output; frequency, presence: output only.
    float repetition_penalty; // (0, 2]; 1: off
    float frequency_penalty;  // [-2, 2]; 0: off
    float presence_penalty;   // [-2, 2]; 0: off
    uint64_t counts_begin;    // in the resident counts, not the step's
    uint32_t n_counts;        // 0 where no penalty is on
    // What is added to the logits of single ids, one after the other: DRY, then logit bias.
    uint32_t bias_begin, n_bias;
    // Ids that may not be drawn: a list, and a bit an id of those that may (id i is bit i % 32 of word i / 32).
    uint32_t masked_begin, n_masked;
    uint32_t allowed_begin, n_allowed_words; // n: words of 32 ids that cover the vocabulary, or 0 where all may

    float temperature; // [0, 2]; 0: greedy, and nothing below applies
    // Mirostat, in place of the truncations.
    uint32_t mirostat;                             // 0: off; version 1 or 2
    float mirostat_tau, mirostat_eta, mirostat_mu; // mu: the sequence's state before this draw
    // Truncations, each of what the one before has left.
    float top_n_sigma;     // 0: off
    uint32_t top_k;        // 0: off
    float top_p;           // (0, 1]; 1: off
    float min_p;           // [0, 1]; 0: off
    float typical_p;       // (0, 1]; 1, and 0: off
    float xtc_probability; // [0, 1]; 0: off
    float xtc_threshold;   // [0, 0.5]

    uint64_t seed;
    uint32_t position;       // of the token to be drawn, in the sequence
    uint32_t sequence_index; // among num_sequences

    uint32_t logprob_mode;           // relay_logprob_mode
    uint32_t n_top;                  // most likely ids to report, 0..20
    uint32_t wanted_begin, n_wanted; // ids whose logprobs are reported whatever they are, 0..20
    // Nothing is drawn: `scored_id` is reported with its raw logprob, as prompt logprobs need it.
    uint32_t is_score_only;
    uint32_t scored_id;
} relay_sample_params;

// How often an id occurs in a sequence; ids of one row are unique.
typedef struct relay_token_count {
    uint32_t token_id;
    uint32_t in_prompt;
    uint32_t in_output;
} relay_token_count;

// What a resident count becomes.
typedef struct relay_count_update {
    uint64_t at;
    relay_token_count count;
} relay_count_update;

typedef struct relay_token_bias {
    uint32_t token_id;
    float bias;
} relay_token_bias;

// The rows' parameters and the arrays that they point into.
typedef struct relay_sample_input {
    uint32_t n_samples;
    const relay_sample_params *d_params; // [n_samples]
    const relay_token_count *d_counts;   // resident: they stay from step to step, and update_counts changes them
    const relay_token_bias *d_biases;
    const uint32_t *d_masked;
    const uint32_t *d_allowed;
    const uint32_t *d_wanted;
} relay_sample_input;

typedef struct relay_sample_result {
    uint32_t token_id;
    float logprob; // of token_id; 0 where logprob_mode is NONE
    uint32_t rank; // of token_id among all, one-based; 0 where n_top is 0
    uint32_t n_top;
    uint32_t top_ids[RELAY_MAX_TOP_LOGPROBS];
    float top_logprobs[RELAY_MAX_TOP_LOGPROBS];
    float wanted_logprobs[RELAY_MAX_WANTED_LOGPROBS]; // [n_wanted]; -infinity of an id that cannot be drawn
    float mirostat_mu;                                // the state after this draw; as it was without mirostat
    // False: the logits held a NaN or +infinity, or nothing above -infinity that is not masked; token_id means nothing.
    bool is_finite;
} relay_sample_result;

typedef struct relay_device_opts {
    uint32_t n_threads;   // 0: the processors this process may use
    uint32_t max_rows;    // most rows of one batch
    uint32_t max_width;   // widest activation row (n_in of any weight)
    uint32_t max_context; // most positions of one sequence
    uint32_t max_vocab;   // n_out of the output matrix
    uint32_t max_samples; // most rows sampled in one step
} relay_device_opts;

typedef struct relay_kernels {
    const char *name;     // "ref", "avx2", "avx512"
    const char *numerics; // part of numerics_id: backends that have it in common give the same bits

    relay_code (*device_create)(relay_device **out, const relay_device_opts *opts, relay_err *e);
    void (*device_destroy)(relay_device *d);

    // ---- Memory
    // Zeroed; on a CPU its pages become resident when first touched. Aborts when out of memory.
    void *(*alloc)(relay_device *d, uint64_t bytes);
    void (*free)(relay_device *d, void *p, uint64_t bytes);
    void (*upload)(relay_device *d, void *d_dst, const void *src, uint64_t bytes);
    // Waits for what was issued before.
    void (*download)(relay_device *d, void *dst, const void *d_src, uint64_t bytes);
    void (*wait)(relay_device *d);

    // ---- Weights
    // `rows` is n_out rows of n_in values of a ggml type, as in a GGUF file; read here and not kept. Fails with
    // UNIMPLEMENTED for a type the backend does not know, INVALID_ARGUMENT where n_in is no multiple of the type's
    // block.
    relay_code (*weight_create)(relay_device *d, relay_weight **out, uint32_t ggml_type, uint32_t n_out, uint32_t n_in,
                                const void *rows, relay_err *e);
    void (*weight_destroy)(relay_device *d, relay_weight *w);
    uint64_t (*weight_bytes)(const relay_weight *w); // as it is kept
    uint64_t (*kv_block_bytes)(const relay_kv_pool *pool);
    // What a sequence keeps beside its blocks, 0 for most types.
    uint64_t (*kv_tail_bytes)(const relay_kv_pool *pool);

    // ---- Operations
    // d_out[r][i] = w[d_ids[r]][i], dequantized                      ids [n_rows] -> [n_rows, n_in]
    void (*embed)(relay_device *d, float *d_out, const relay_weight *w, const uint32_t *d_ids, uint32_t n_rows);
    // d_out[r] = d_x[r] / sqrt(mean(d_x[r]^2) + eps) * d_gain        [n_rows, width]; out may be x
    void (*rms_norm)(relay_device *d, float *d_out, const float *d_x, const float *d_gain, uint32_t n_rows,
                     uint32_t width, float eps);
    // For each job: d_out[r][o] = sum over i of d_x[r][i] * w[o][i], + d_bias[o]   [n_rows, n_in] -> [n_rows, n_out]
    void (*matmul)(relay_device *d, const float *d_x, uint32_t n_rows, const relay_matmul_job *jobs, uint32_t n_jobs);
    // Rotates the first n_rot values of every head by its row's position, in place. [n_rows, n_heads, head_dim]
    // d_cos_sin: [max_position][n_rot / 2][2]
    void (*rope)(relay_device *d, float *d_x, const uint32_t *d_position, uint32_t n_rows, uint32_t n_heads,
                 uint32_t head_dim, uint32_t n_rot, relay_rope_style style, const float *d_cos_sin);
    // Writes the rows' keys and values into the cache.                [n_rows, n_kv_heads, head_dim] each
    void (*kv_store)(relay_device *d, const relay_kv_pool *pool, uint32_t layer, const float *d_k, const float *d_v,
                     const relay_rows *rows);
    // Block d_copies[i].to holds what d_copies[i].from does, of all layers. No block is written that another copy
    // names.
    void (*kv_copy)(relay_device *d, const relay_kv_pool *pool, const relay_kv_block_copy *d_copies, uint32_t n_copies);
    // The same of tails, one after the other.
    void (*kv_copy_tails)(relay_device *d, const relay_kv_pool *pool, const relay_kv_block_copy *d_copies,
                          uint32_t n_copies);
    // Causal attention over the cache, the rows' own positions included: they were stored by the kv_store() before, of
    // this layer and these rows (INT8 and INT4 rely on it). Query head h reads KV head h / (n_heads / n_kv_heads). d_q,
    // d_out: [n_rows, n_heads, head_dim]; scale is usually 1 / sqrt(head_dim)
    void (*attention)(relay_device *d, float *d_out, const float *d_q, const relay_kv_pool *pool, uint32_t layer,
                      const relay_rows *rows, uint32_t n_heads, float scale);
    // d_out = silu(d_gate) * d_up, silu(x) = x / (1 + exp(-x))        [n_rows, width]; out may be gate
    void (*silu_mul)(relay_device *d, float *d_out, const float *d_gate, const float *d_up, uint32_t n_rows,
                     uint32_t width);
    // d_x += d_y                                                      [n_rows, width]
    void (*add)(relay_device *d, float *d_x, const float *d_y, uint32_t n_rows, uint32_t width);
    // d_out[i] = d_x[d_index[i]]                                      [n_index, width]
    void (*gather_rows)(relay_device *d, float *d_out, const float *d_x, const uint32_t *d_index, uint32_t n_index,
                        uint32_t width);
    // d_counts[u.at] = u.count for each update; places differ.
    void (*update_counts)(relay_device *d, relay_token_count *d_counts, const relay_count_update *d_updates,
                          uint32_t n_updates);
    // One token a row of logits. d_logits [n_samples, n_vocab] is read only.
    void (*sample)(relay_device *d, relay_sample_result *d_results, const float *d_logits, uint32_t n_vocab,
                   const relay_sample_input *in);
} relay_kernels;

struct relay_device {
    const relay_kernels *k;
};

// The backends in this binary that this processor can run, fastest first; ends with "ref".
const relay_kernels *const *relay_kernels_available(uint32_t *count);
// By name, or the fastest for NULL or ""; the environment variable RELAY_KERNELS overrides NULL. FAILED_PRECONDITION
// naming what there is.
relay_code relay_kernels_choose(const relay_kernels **out, const char *name, relay_err *e) RELAY_NODISCARD;

#endif
