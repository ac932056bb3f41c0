#include "kernels/dequant.h"

#include <string.h>

#include "kernels/half.h"

static uint16_t load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static float load_f16(const uint8_t *p) {
    return relay_f32_from_f16(load_u16(p));
}

// Each function turns one block into the values it holds.

static void f32_block(const uint8_t *b, float *out) {
    memcpy(out, b, sizeof *out);
}

static void f16_block(const uint8_t *b, float *out) {
    *out = load_f16(b);
}

static void bf16_block(const uint8_t *b, float *out) {
    *out = relay_f32_from_bf16(load_u16(b));
}

// d: f16, 16 bytes of nibbles: value i in the low half of byte i, value 16 + i in the high half.
static void q4_0_block(const uint8_t *b, float *out) {
    float d = load_f16(b);
    for (uint32_t i = 0; i < 16; i++) {
        out[i] = d * (float)((b[2 + i] & 0x0F) - 8);
        out[16 + i] = d * (float)((b[2 + i] >> 4) - 8);
    }
}

// d, min: f16, nibbles as Q4_0.
static void q4_1_block(const uint8_t *b, float *out) {
    float d = load_f16(b), min = load_f16(b + 2);
    for (uint32_t i = 0; i < 16; i++) {
        out[i] = d * (float)(b[4 + i] & 0x0F) + min;
        out[16 + i] = d * (float)(b[4 + i] >> 4) + min;
    }
}

// d: f16, 32 fifth bits, nibbles as Q4_0.
static void q5_0_block(const uint8_t *b, float *out) {
    float d = load_f16(b);
    for (uint32_t i = 0; i < 32; i++) {
        uint8_t low = i < 16 ? b[6 + i] & 0x0F : b[6 + i - 16] >> 4;
        uint8_t high = b[2 + i / 8] >> i % 8 & 1;
        out[i] = d * (float)((low | high << 4) - 16);
    }
}

// d: f16, 32 signed bytes.
static void q8_0_block(const uint8_t *b, float *out) {
    float d = load_f16(b);
    for (uint32_t i = 0; i < 32; i++)
        out[i] = d * (float)(int8_t)b[2 + i];
}

// d, dmin: f16, 12 bytes of scales, 4 runs of 32 bytes: a run's low nibbles are 32 values, its high nibbles the
// next 32.
static void q4_k_block(const uint8_t *b, float *out) {
    float d = load_f16(b), dmin = load_f16(b + 2);
    for (uint32_t sub = 0; sub < 8; sub++) {
        uint8_t scale, min;
        relay_q4_k_scale_min(b + 4, sub, &scale, &min);
        const uint8_t *run = b + 16 + sub / 2 * 32;
        for (uint32_t i = 0; i < 32; i++) {
            uint8_t q = sub % 2 == 0 ? run[i] & 0x0F : run[i] >> 4;
            out[sub * 32 + i] = d * scale * (float)q - dmin * min;
        }
    }
}

// 128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, d: f16. Of each 128 values, value i has its low
// nibble in byte i % 64 (high half from value 64 on) and its high bits in pair i / 32 of byte i % 32.
static void q6_k_block(const uint8_t *b, float *out) {
    float d = load_f16(b + 208);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t half = i / 128, j = i % 128;
        uint8_t low = b[half * 64 + j % 64] >> (j < 64 ? 0 : 4) & 0x0F;
        uint8_t high = b[128 + half * 32 + j % 32] >> 2 * (j / 32) & 3;
        out[i] = d * (float)(int8_t)b[192 + i / 16] * (float)((low | high << 4) - 32);
    }
}

typedef void (*block_fn)(const uint8_t *b, float *out);

static block_fn find(uint32_t type) {
    switch (type) {
    case RELAY_GGML_F32:
        return f32_block;
    case RELAY_GGML_F16:
        return f16_block;
    case RELAY_GGML_BF16:
        return bf16_block;
    case RELAY_GGML_Q4_0:
        return q4_0_block;
    case RELAY_GGML_Q4_1:
        return q4_1_block;
    case RELAY_GGML_Q5_0:
        return q5_0_block;
    case RELAY_GGML_Q8_0:
        return q8_0_block;
    case RELAY_GGML_Q4_K:
        return q4_k_block;
    case RELAY_GGML_Q6_K:
        return q6_k_block;
    }
    return NULL;
}

relay_code relay_dequant_row_bytes(uint64_t *out, uint32_t ggml_type, uint32_t n_in, relay_err *e) {
    uint32_t block_values, block_bytes;
    if (find(ggml_type) == NULL || !relay_ggml_type_block(ggml_type, &block_values, &block_bytes)) {
        return relay_fail(
            e, RELAY_UNIMPLEMENTED,
            "weights of ggml type %u are not supported; supported are F32 (0), F16 (1), Q4_0 (2), Q4_1 (3), "
            "Q5_0 (6), Q8_0 (8), Q4_K (12), Q6_K (14), BF16 (30)",
            ggml_type);
    }
    if (n_in == 0 || n_in % block_values != 0) {
        return relay_fail(e, RELAY_INVALID_ARGUMENT, "a row of %u values in type %s: it must be a multiple of %u", n_in,
                          relay_ggml_type_name(ggml_type), block_values);
    }
    *out = (uint64_t)(n_in / block_values) * block_bytes;
    return RELAY_OK;
}

void relay_dequant_row(uint32_t ggml_type, const void *row, float *out, uint32_t n_in) {
    uint32_t block_values, block_bytes;
    block_fn block = find(ggml_type);
    RELAY_ASSERT(block != NULL && relay_ggml_type_block(ggml_type, &block_values, &block_bytes));
    const uint8_t *b = row;
    for (uint32_t i = 0; i < n_in; i += block_values, b += block_bytes)
        block(b, out + i);
}
