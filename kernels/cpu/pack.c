#include "kernels/cpu/pack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/dequant.h"
#include "kernels/half.h"
#include "kernels/host_memory.h"

enum { LANES = RELAY_PANEL_ROWS, VECTOR_BYTES = 64, SUPER_BLOCKS = 8 };

// ---- Scales: where they lie in a panel.

// Bytes of scales of 256 inputs (K-quants) or of 32 (the others).
static uint32_t scale_bytes(uint32_t type) {
    switch (type) {
    case RELAY_GGML_Q4_1:
        return 2 * 2 * LANES;
    case RELAY_GGML_Q4_K:
        return 2 * 2 * LANES + SUPER_BLOCKS * 2 * LANES;
    case RELAY_GGML_Q6_K:
        return 2 * LANES + SUPER_BLOCKS * 2 * LANES;
    default:
        return 2 * LANES;
    }
}

static bool is_k_quant(uint32_t type) {
    return type == RELAY_GGML_Q4_K || type == RELAY_GGML_Q6_K;
}

static uint32_t scale_group(uint32_t type) {
    return is_k_quant(type) ? RELAY_QUANT_BLOCK * SUPER_BLOCKS : RELAY_QUANT_BLOCK;
}

static bool is_float(uint32_t type) {
    return type == RELAY_GGML_F32 || type == RELAY_GGML_F16 || type == RELAY_GGML_BF16;
}

// ---- From a file's block to one lane of a panel. `q` is the panel's quants of this block, `s` its scales, both moved
// to the lane; elements of a lane are LANES apart.

static void put_u16(uint8_t *s, uint32_t index, const uint8_t *from) {
    memcpy(s + index * 2 * LANES, from, 2);
}

static uint16_t get_u16(const uint8_t *s, uint32_t index) {
    uint16_t v;
    memcpy(&v, s + index * 2 * LANES, 2);
    return v;
}

static void put_quad(uint8_t *q, uint32_t vector, const uint8_t *from) {
    memcpy(q + vector * VECTOR_BYTES, from, 4);
}

// 16 bytes of nibbles as ggml's 32-blocks have them.
static void put_nibbles(uint8_t *q, const uint8_t *nibbles) {
    for (uint32_t j = 0; j < 4; j++)
        put_quad(q, j, nibbles + 4 * j);
}

static void pack_q5_0(uint8_t *q, uint8_t *fifth, uint32_t lane, const uint8_t *block) {
    put_nibbles(q, block + 6);
    // 4 bits of each vector's 64 belong to this lane; two lanes share a byte.
    for (uint32_t j = 0; j < 8; j++) {
        uint8_t bits = block[2 + j / 2] >> 4 * (j % 2) & 0x0F;
        fifth[j * 8 + lane / 2] |= (uint8_t)(bits << 4 * (lane % 2));
    }
}

static void pack_q8_0(uint8_t *q, const uint8_t *block) {
    for (uint32_t j = 0; j < 8; j++) {
        uint8_t quad[4];
        for (uint32_t i = 0; i < 4; i++)
            quad[i] = block[2 + 4 * j + i] ^ 0x80;
        put_quad(q, j, quad);
    }
}

// The low nibbles of 256 values of a lane, as 8 blocks.
static void put_super_nibbles(uint8_t *q, uint32_t quant_bytes, const uint8_t v[256]) {
    for (uint32_t b = 0; b < SUPER_BLOCKS; b++) {
        uint8_t nibbles[16];
        for (uint32_t i = 0; i < 16; i++) {
            nibbles[i] = (uint8_t)((v[32 * b + i] & 0x0F) | (v[32 * b + 16 + i] & 0x0F) << 4);
        }
        put_nibbles(q + (uint64_t)b * quant_bytes, nibbles);
    }
}

static void pack_q4_k(uint8_t *q, uint8_t *s, uint32_t lane, const uint8_t *block) {
    put_u16(s + 2 * lane, 0, block);
    put_u16(s + 2 * lane, 1, block + 2);
    uint8_t v[256];
    for (uint32_t sub = 0; sub < SUPER_BLOCKS; sub++) {
        uint8_t *sub_scales = s + 4 * LANES + sub * 2 * LANES;
        relay_q4_k_scale_min(block + 4, sub, &sub_scales[lane], &sub_scales[LANES + lane]);
        const uint8_t *run = block + 16 + sub / 2 * 32;
        for (uint32_t i = 0; i < 32; i++)
            v[32 * sub + i] = run[i] >> 4 * (sub % 2) & 0x0F;
    }
    put_super_nibbles(q + 4 * lane, 256, v);
}

static void pack_q6_k(uint8_t *q, uint8_t *s, uint32_t lane, const uint8_t *block) {
    put_u16(s + 2 * lane, 0, block + 208);
    uint8_t v[256];
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t half = i / 128, j = i % 128;
        uint8_t low = block[half * 64 + j % 64] >> (j < 64 ? 0 : 4) & 0x0F;
        uint8_t high = block[128 + half * 32 + j % 32] >> 2 * (j / 32) & 3;
        v[i] = low | (uint8_t)(high << 4);
    }
    uint32_t quant_bytes = relay_pack_quant_bytes(RELAY_GGML_Q6_K);
    put_super_nibbles(q + 4 * lane, quant_bytes, v);
    for (uint32_t b = 0; b < SUPER_BLOCKS; b++) {
        uint8_t *sub_scales = s + 2 * LANES + b * 2 * LANES;
        sub_scales[lane] = block[192 + 2 * b];
        sub_scales[LANES + lane] = block[192 + 2 * b + 1];
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t i = 0; i < 4; i++) {
                uint8_t pairs = 0;
                for (uint32_t j = 0; j < 4; j++) {
                    pairs |= (uint8_t)(v[32 * b + 16 * half + 4 * j + i] >> 4 << 2 * j);
                }
                q[(uint64_t)b * quant_bytes + 256 + half * VECTOR_BYTES + 4 * lane + i] = pairs;
            }
        }
    }
}

// ---- A panel

typedef struct packing {
    relay_weight *w;
    const uint8_t *rows;
    uint64_t row_bytes;
    uint32_t panels_per_task;
} packing;

static void pack_float_panel(const packing *p, uint8_t *panel, uint32_t first_row, uint32_t n_rows) {
    const uint32_t n_in = p->w->n_in;
    for (uint32_t lane = 0; lane < n_rows; lane++) {
        const uint8_t *row = p->rows + (first_row + lane) * p->row_bytes;
        if (p->w->ggml_type == RELAY_GGML_F32) {
            for (uint32_t i = 0; i < n_in; i++)
                memcpy(panel + (i * LANES + lane) * 4ull, row + i * 4ull, 4);
        } else {
            for (uint32_t i = 0; i < n_in; i++)
                memcpy(panel + (i * LANES + lane) * 2ull, row + i * 2ull, 2);
        }
    }
}

static void pack_quant_panel(const packing *p, uint8_t *panel, uint32_t first_row, uint32_t n_rows) {
    const uint32_t type = p->w->ggml_type;
    const uint32_t group = scale_group(type), quant_bytes = relay_pack_quant_bytes(type);
    const uint64_t block_bytes = p->row_bytes / (p->w->n_in / group);
    for (uint32_t i = 0; i < p->w->n_in / group; i++) {
        uint8_t *q = panel + (uint64_t)i * (group / RELAY_QUANT_BLOCK) * quant_bytes;
        uint8_t *s = panel + p->w->quants_bytes + (uint64_t)i * scale_bytes(type);
        for (uint32_t lane = 0; lane < n_rows; lane++) {
            const uint8_t *block = p->rows + (first_row + lane) * p->row_bytes + i * block_bytes;
            if (!is_k_quant(type)) put_u16(s + 2 * lane, 0, block);
            switch (type) {
            case RELAY_GGML_Q4_0:
                put_nibbles(q + 4 * lane, block + 2);
                break;
            case RELAY_GGML_Q4_1:
                put_u16(s + 2 * lane, 1, block + 2);
                put_nibbles(q + 4 * lane, block + 4);
                break;
            case RELAY_GGML_Q5_0:
                pack_q5_0(q + 4 * lane, q + 256, lane, block);
                break;
            case RELAY_GGML_Q8_0:
                pack_q8_0(q + 4 * lane, block);
                break;
            case RELAY_GGML_Q4_K:
                pack_q4_k(q, s, lane, block);
                break;
            case RELAY_GGML_Q6_K:
                pack_q6_k(q, s, lane, block);
                break;
            }
        }
    }
}

static void pack_task(void *arg, uint32_t task, uint32_t thread) {
    const packing *p = arg;
    uint32_t first = task * p->panels_per_task, last = first + p->panels_per_task;
    if (last > p->w->n_panels) last = p->w->n_panels;
    for (uint32_t i = first; i < last; i++) {
        uint8_t *panel = p->w->data + i * p->w->panel_bytes;
        uint32_t first_row = i * LANES, n_rows = p->w->n_out - first_row;
        if (n_rows > LANES) n_rows = LANES;
        if (p->w->is_quantized) {
            pack_quant_panel(p, panel, first_row, n_rows);
        } else {
            pack_float_panel(p, panel, first_row, n_rows);
        }
    }
}

relay_code relay_pack_create(relay_weight **out, relay_pool *pool, uint32_t ggml_type, uint32_t n_out, uint32_t n_in,
                             const void *rows, relay_err *e) {
    packing p = {.rows = rows, .panels_per_task = 8};
    relay_code code = relay_dequant_row_bytes(&p.row_bytes, ggml_type, n_in, e);
    if (code != RELAY_OK) return code;
    relay_weight *w = relay_calloc(1, sizeof *w);
    w->ggml_type = ggml_type;
    w->n_out = n_out;
    w->n_in = n_in;
    w->n_panels = (n_out + LANES - 1) / LANES;
    w->is_quantized = !is_float(ggml_type);
    uint64_t bytes;
    if (w->is_quantized) {
        w->quants_bytes = (uint64_t)(n_in / RELAY_QUANT_BLOCK) * relay_pack_quant_bytes(ggml_type);
        bytes = w->quants_bytes + (uint64_t)(n_in / scale_group(ggml_type)) * scale_bytes(ggml_type);
    } else {
        bytes = w->quants_bytes = p.row_bytes * LANES;
    }
    w->panel_bytes = (bytes + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES;
    w->data = relay_host_alloc(relay_pack_bytes(w));
    // Read from end to end for every token: fewer, larger pages save a good part of the time. A wish, not a need.
    madvise(w->data, relay_pack_bytes(w), MADV_HUGEPAGE);
    p.w = w;
    relay_pool_run(pool, pack_task, &p, (w->n_panels + p.panels_per_task - 1) / p.panels_per_task);
    *out = w;
    return RELAY_OK;
}

void relay_pack_destroy(relay_weight *w) {
    if (w == NULL) return;
    relay_host_free(w->data, relay_pack_bytes(w));
    free(w);
}

uint64_t relay_pack_bytes(const relay_weight *w) {
    return w->n_panels * w->panel_bytes;
}

// ---- Back to floats

// Quant i (0..31) of a lane, as the kernels see it, before the type's offset is taken off.
static uint32_t get_quant(uint32_t type, const uint8_t *q, uint32_t lane, uint32_t i) {
    uint32_t half = i / 16, vector = i % 16 / 4, at = 4 * lane + i % 4;
    if (type == RELAY_GGML_Q8_0) return q[(4 * half + vector) * VECTOR_BYTES + at];
    uint32_t nibble = q[vector * VECTOR_BYTES + at] >> 4 * half & 0x0F;
    if (type == RELAY_GGML_Q5_0) return nibble | (q[256 + (4 * half + vector) * 8 + at / 8] >> at % 8 & 1u) << 4;
    if (type == RELAY_GGML_Q6_K) return nibble | (q[256 + half * VECTOR_BYTES + at] >> 2 * vector & 3u) << 4;
    return nibble;
}

static void read_quant_row(const relay_weight *w, const uint8_t *panel, uint32_t lane, float *out) {
    const uint32_t type = w->ggml_type, group = scale_group(type);
    for (uint32_t i = 0; i < w->n_in; i++) {
        const uint8_t *q = panel + (uint64_t)(i / RELAY_QUANT_BLOCK) * relay_pack_quant_bytes(type);
        const uint8_t *s = panel + w->quants_bytes + (uint64_t)(i / group) * scale_bytes(type);
        uint32_t sub = i % group / RELAY_QUANT_BLOCK, half = i % RELAY_QUANT_BLOCK / 16;
        int32_t v = (int32_t)get_quant(type, q, lane, i % RELAY_QUANT_BLOCK);
        float d = relay_f32_from_f16(get_u16(s + 2 * lane, 0));
        switch (type) {
        case RELAY_GGML_Q4_0:
            out[i] = d * (float)(v - 8);
            break;
        case RELAY_GGML_Q4_1:
            out[i] = d * (float)v + relay_f32_from_f16(get_u16(s + 2 * lane, 1));
            break;
        case RELAY_GGML_Q5_0:
            out[i] = d * (float)(v - 16);
            break;
        case RELAY_GGML_Q8_0:
            out[i] = d * (float)(v - 128);
            break;
        case RELAY_GGML_Q4_K: {
            const uint8_t *sub_scales = s + 4 * LANES + sub * 2 * LANES;
            float dmin = relay_f32_from_f16(get_u16(s + 2 * lane, 1));
            out[i] = d * sub_scales[lane] * (float)v - dmin * sub_scales[LANES + lane];
            break;
        }
        case RELAY_GGML_Q6_K: {
            const uint8_t *sub_scales = s + 2 * LANES + sub * 2 * LANES;
            out[i] = d * (float)(int8_t)sub_scales[half * LANES + lane] * (float)(v - 32);
            break;
        }
        }
    }
}

void relay_pack_read_row(const relay_weight *w, uint32_t row, float *out) {
    const uint8_t *panel = w->data + row / LANES * w->panel_bytes;
    uint32_t lane = row % LANES;
    if (w->is_quantized) {
        read_quant_row(w, panel, lane, out);
        return;
    }
    for (uint32_t i = 0; i < w->n_in; i++) {
        if (w->ggml_type == RELAY_GGML_F32) {
            memcpy(&out[i], panel + (i * LANES + lane) * 4ull, 4);
        } else {
            uint16_t bits;
            memcpy(&bits, panel + (i * LANES + lane) * 2ull, 2);
            out[i] = w->ggml_type == RELAY_GGML_F16 ? relay_f32_from_f16(bits) : relay_f32_from_bf16(bits);
        }
    }
}
