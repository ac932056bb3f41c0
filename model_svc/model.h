// A loaded model: weights on a device, KV pools, and the forward pass that turns a step into sampled tokens.
//
// Owned and called by one thread, the engine's, after load. The engine sees it through relay_model_ops, so that tests
// can put a scripted model in its place.
#ifndef RELAY_MODEL_SVC_MODEL_H
#define RELAY_MODEL_SVC_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/gguf.h"
#include "common/status.h"
#include "kernels/kernels.h"
#include "model_svc/model_ops.h"

typedef struct relay_model_info {
    char name[128];         // general.name, or the file's name
    char architecture[32];  // "llama", "qwen2"
    char weight_format[32]; // general.file_type's name, such as "Q4_K_M"; else the type of most of its bytes
    uint32_t vocab_size;    // rows of the output matrix; ids are below it
    uint32_t max_context;   // what is served: at most the trained context and what the pool holds
    relay_kv_type kv_type;
    uint32_t n_groups;
    relay_kv_group groups[RELAY_MAX_KV_GROUPS];
    uint64_t weight_bytes; // as kept in memory
    uint64_t kv_bytes;     // of the pools when all touched
    uint8_t
        weights_fingerprint[16]; // XXH3-128 over the tensors' names, types, shapes and bytes, and the hyperparameters
    char numerics_id[128];       // build, kernels, KV type: equal means the same bits
    // What a request gets that leaves a setting unset: the file's own (general.sampling.*) where it has one, else off.
    relay_sample_params default_sampling;
    uint32_t default_penalty_window;
} relay_model_info;

typedef struct relay_model_opts {
    const relay_kernels *kernels; // NULL: the best for this processor
    uint32_t n_threads;           // 0: all that this process may use
    relay_kv_type kv_type;
    uint64_t kv_bytes;      // memory for KV blocks; 0: 1 GiB, or less where max_sequences of max_context need less
    uint32_t max_context;   // 0: the trained context, or what the memory holds
    uint32_t max_rows;      // token budget of a step
    uint32_t max_sequences; // running at once
    uint32_t max_samples;   // rows sampled in a step; 0: one a sequence, and the scored ones
    bool weights_as_f32;    // dequantize every matrix to float32 at load: eight times the memory, for comparing
} relay_model_opts;

typedef struct relay_model relay_model;

// `g` may be closed afterwards. Checks every hyperparameter and every tensor's name, type and shape, naming what is
// wrong; architectures, rope scalings and tensor types that Relay does not know are UNIMPLEMENTED by name.
relay_code relay_model_load(relay_model **out, const relay_gguf *g, const char *file_name, const relay_model_opts *opts,
                            relay_err *e) RELAY_NODISCARD;
void relay_model_destroy(relay_model *m);
const relay_model_info *relay_model_get_info(const relay_model *m);
extern const relay_model_ops relay_model_decoder_ops; // `model` is a relay_model *
// After complete() and before the next submit: copies the logits of sample i of the step, [vocab_size], for tests and
// scoring.
void relay_model_read_logits(const relay_model *m, uint32_t sample, float *out);

#endif
