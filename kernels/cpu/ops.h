// The operations that are compiled once an instruction set, and the device they share.
#ifndef RELAY_KERNELS_CPU_OPS_H
#define RELAY_KERNELS_CPU_OPS_H

#include "kernels/cpu/device.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"

void RELAY_ISA(relay_rms_norm)(relay_device *d, float *out, const float *x, const float *gain, uint32_t n_rows,
                               uint32_t width, float eps);
void RELAY_ISA(relay_matmul)(relay_device *d, const float *x, uint32_t n_rows, const relay_matmul_job *jobs,
                             uint32_t n_jobs);
void RELAY_ISA(relay_rope)(relay_device *d, float *x, const uint32_t *position, uint32_t n_rows, uint32_t n_heads,
                           uint32_t head_dim, uint32_t n_rot, relay_rope_style style, const float *cos_sin);
void RELAY_ISA(relay_kv_store)(relay_device *d, const relay_kv_pool *pool, uint32_t layer, const float *k,
                               const float *v, const relay_rows *rows);
void RELAY_ISA(relay_attention)(relay_device *d, float *out, const float *q, const relay_kv_pool *pool, uint32_t layer,
                                const relay_rows *rows, uint32_t n_heads, float scale);
void RELAY_ISA(relay_silu_mul)(relay_device *d, float *out, const float *gate, const float *up, uint32_t n_rows,
                               uint32_t width);
void RELAY_ISA(relay_add)(relay_device *d, float *x, const float *y, uint32_t n_rows, uint32_t width);
void RELAY_ISA(relay_sample)(relay_device *d, relay_sample_result *results, const float *logits, uint32_t n_vocab,
                             const relay_sample_input *in);

#endif
