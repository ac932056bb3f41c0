#include "kernels/cpu/backend.h"

#include "kernels/cpu/ops.h"
#include "kernels/cpu/pack.h"

#define NAME_OF(isa)       #isa
#define EXPANDED_NAME(isa) NAME_OF(isa)

static relay_code device_create(relay_device **out, const relay_device_opts *opts, relay_err *e) {
    return relay_cpu_device_create(out, &RELAY_ISA(relay_kernels), opts, e);
}

const relay_kernels RELAY_ISA(relay_kernels) = {
    .name = EXPANDED_NAME(RELAY_ISA_TARGET),
    .numerics = "cpu",
    .device_create = device_create,
    .device_destroy = relay_cpu_device_destroy,
    .alloc = relay_cpu_alloc,
    .free = relay_cpu_free,
    .upload = relay_cpu_copy,
    .download = relay_cpu_copy,
    .wait = relay_cpu_wait,
    .weight_create = relay_cpu_weight_create,
    .weight_destroy = relay_cpu_weight_destroy,
    .weight_bytes = relay_pack_bytes,
    .kv_block_bytes = relay_cpu_kv_block_bytes,
    .kv_tail_bytes = relay_cpu_kv_tail_bytes,
    .embed = relay_cpu_embed,
    .rms_norm = RELAY_ISA(relay_rms_norm),
    .matmul = RELAY_ISA(relay_matmul),
    .rope = RELAY_ISA(relay_rope),
    .kv_store = RELAY_ISA(relay_kv_store),
    .kv_copy = relay_cpu_kv_copy,
    .kv_copy_tails = relay_cpu_kv_copy_tails,
    .attention = RELAY_ISA(relay_attention),
    .silu_mul = RELAY_ISA(relay_silu_mul),
    .add = RELAY_ISA(relay_add),
    .gather_rows = relay_cpu_gather_rows,
    .update_counts = relay_cpu_update_counts,
    .sample = RELAY_ISA(relay_sample),
};
