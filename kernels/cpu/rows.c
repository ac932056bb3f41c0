// Operations on the values of a row: normalization, rotary embedding, activation, sum.
#include "kernels/cpu/ops.h"

#include <math.h>

// Fewer values than this are done by the caller: handing them over would take longer.
enum { MIN_TASK_VALUES = 16 * 1024 };

typedef struct row_job {
    float *out;
    const float *x, *y; // y: the gain, the factor or the summand
    uint32_t n_rows, width;
    uint32_t rows_per_task;
    float eps;
    // rope
    const uint32_t *position;
    const float *cos_sin;
    uint32_t n_heads, head_dim, n_rot;
    relay_rope_style style;
} row_job;

static void run_rows(relay_device *d, row_job *job, relay_pool_fn fn) {
    job->rows_per_task = 1 + (MIN_TASK_VALUES - 1) / job->width;
    relay_pool_run(relay_cpu_device_of(d)->pool, fn, job, (job->n_rows + job->rows_per_task - 1) / job->rows_per_task);
}

static uint32_t task_end(const row_job *job, uint32_t task) {
    uint32_t end = (task + 1) * job->rows_per_task;
    return end < job->n_rows ? end : job->n_rows;
}

// ---- RMS norm (Zhang, Sennrich, 2019): 16 partial sums of squares, lane by lane in order, then down the tree.

static void rms_norm_row(float *out, const float *x, const float *gain, uint32_t width, float eps) {
    const uint32_t whole = width / LANES * LANES, rest = width % LANES;
    vf sum = vf_set(0);
    for (uint32_t i = 0; i < whole; i += LANES) {
        vf v = vf_load(x + i);
        sum = vf_fma(v, v, sum);
    }
    if (rest != 0) {
        vf v = vf_load_n(x + whole, rest);
        sum = vf_fma(v, v, sum);
    }
    const vf scale = vf_set(1.0f / sqrtf(vf_sum(sum) / (float)width + eps));
    for (uint32_t i = 0; i < whole; i += LANES) {
        vf_store(out + i, vf_mul(vf_mul(vf_load(x + i), scale), vf_load(gain + i)));
    }
    if (rest != 0) {
        vf v = vf_mul(vf_mul(vf_load_n(x + whole, rest), scale), vf_load_n(gain + whole, rest));
        vf_store_n(out + whole, v, rest);
    }
}

static void rms_norm_task(void *arg, uint32_t task, uint32_t thread) {
    const row_job *j = arg;
    for (uint32_t r = task * j->rows_per_task; r < task_end(j, task); r++) {
        const uint64_t at = (uint64_t)r * j->width;
        rms_norm_row(j->out + at, j->x + at, j->y, j->width, j->eps);
    }
}

void RELAY_ISA(relay_rms_norm)(relay_device *d, float *out, const float *x, const float *gain, uint32_t n_rows,
                               uint32_t width, float eps) {
    row_job job = {.out = out, .x = x, .y = gain, .n_rows = n_rows, .width = width, .eps = eps};
    run_rows(d, &job, rms_norm_task);
}

// ---- Rotary embedding (Su et al., 2021)

static inline void rotate(float *a, float *b, const float *cos_sin) {
    float x = *a, y = *b;
    *a = x * cos_sin[0] - y * cos_sin[1];
    *b = x * cos_sin[1] + y * cos_sin[0];
}

static void rope_task(void *arg, uint32_t task, uint32_t thread) {
    const row_job *j = arg;
    const uint32_t n_pairs = j->n_rot / 2;
    for (uint32_t r = task * j->rows_per_task; r < task_end(j, task); r++) {
        const float *angles = j->cos_sin + (uint64_t)j->position[r] * j->n_rot;
        for (uint32_t h = 0; h < j->n_heads; h++) {
            float *x = j->out + ((uint64_t)r * j->n_heads + h) * j->head_dim;
            if (j->style == RELAY_ROPE_ADJACENT) {
                for (uint32_t i = 0; i < n_pairs; i++)
                    rotate(&x[2 * i], &x[2 * i + 1], &angles[2 * i]);
            } else {
                for (uint32_t i = 0; i < n_pairs; i++)
                    rotate(&x[i], &x[i + n_pairs], &angles[2 * i]);
            }
        }
    }
}

void RELAY_ISA(relay_rope)(relay_device *d, float *x, const uint32_t *position, uint32_t n_rows, uint32_t n_heads,
                           uint32_t head_dim, uint32_t n_rot, relay_rope_style style, const float *cos_sin) {
    row_job job = {.out = x,
                   .n_rows = n_rows,
                   .width = n_heads * head_dim,
                   .position = position,
                   .cos_sin = cos_sin,
                   .n_heads = n_heads,
                   .head_dim = head_dim,
                   .n_rot = n_rot,
                   .style = style};
    run_rows(d, &job, rope_task);
}

// ---- Value by value: rows play no part, so the last lanes of a task are the only short ones.

RELAY_INLINE vf silu_mul(vf gate, vf up) {
    vf e = vf_exp(vf_sub(vf_set(0), gate));
    return vf_mul(vf_div(gate, vf_add(vf_set(1), e)), up);
}

static void silu_mul_task(void *arg, uint32_t task, uint32_t thread) {
    const row_job *j = arg;
    uint64_t i = (uint64_t)task * j->rows_per_task * j->width;
    const uint64_t end = (uint64_t)task_end(j, task) * j->width;
    for (; i + LANES <= end; i += LANES)
        vf_store(j->out + i, silu_mul(vf_load(j->x + i), vf_load(j->y + i)));
    uint32_t n = (uint32_t)(end - i);
    if (n != 0) vf_store_n(j->out + i, silu_mul(vf_load_n(j->x + i, n), vf_load_n(j->y + i, n)), n);
}

void RELAY_ISA(relay_silu_mul)(relay_device *d, float *out, const float *gate, const float *up, uint32_t n_rows,
                               uint32_t width) {
    row_job job = {.out = out, .x = gate, .y = up, .n_rows = n_rows, .width = width};
    run_rows(d, &job, silu_mul_task);
}

static void add_task(void *arg, uint32_t task, uint32_t thread) {
    const row_job *j = arg;
    uint64_t i = (uint64_t)task * j->rows_per_task * j->width;
    const uint64_t end = (uint64_t)task_end(j, task) * j->width;
    for (; i + LANES <= end; i += LANES)
        vf_store(j->out + i, vf_add(vf_load(j->out + i), vf_load(j->y + i)));
    uint32_t n = (uint32_t)(end - i);
    if (n != 0) vf_store_n(j->out + i, vf_add(vf_load_n(j->out + i, n), vf_load_n(j->y + i, n)), n);
}

void RELAY_ISA(relay_add)(relay_device *d, float *x, const float *y, uint32_t n_rows, uint32_t width) {
    row_job job = {.out = x, .y = y, .n_rows = n_rows, .width = width};
    run_rows(d, &job, add_task);
}
