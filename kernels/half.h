// IEEE binary16 and bfloat16 to float32 and back, in integer arithmetic, for code that runs on any processor.
#ifndef RELAY_KERNELS_HALF_H
#define RELAY_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float relay_f32_from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t relay_f32_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float relay_f32_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t magnitude = h & 0x7FFF;
    if (magnitude >= 0x7C00) return relay_f32_from_bits(sign | 0x7F800000 | (magnitude & 0x3FF) << 13);
    // A subnormal half is its integer value times 2^-24, which float32 holds exactly.
    if (magnitude < 0x0400) return relay_f32_from_bits(sign | relay_f32_bits((float)magnitude * 0x1p-24f));
    return relay_f32_from_bits(sign | ((magnitude << 13) + (112u << 23)));
}

// Rounds to nearest even; what is too large becomes infinity, a NaN stays one. As VCVTPS2PH does.
static inline uint16_t relay_f16_from_f32(float f) {
    uint32_t bits = relay_f32_bits(f);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
    if (magnitude >= 0x477FF000) return sign | 0x7C00; // from 65520 on
    if (magnitude < 0x38800000) {
        // Below 2^-14: adding 0.5 moves the half's last place to float32's, and the addition rounds.
        return (uint16_t)(sign | (relay_f32_bits(relay_f32_from_bits(magnitude) + 0.5f) - 0x3F000000));
    }
    return (uint16_t)(sign | ((magnitude + 0xFFF + (magnitude >> 13 & 1) - (112u << 23)) >> 13));
}

// Rounds to nearest even; a NaN stays one.
static inline uint16_t relay_bf16_from_f32(float f) {
    uint32_t bits = relay_f32_bits(f);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static inline float relay_f32_from_bf16(uint16_t h) {
    return relay_f32_from_bits((uint32_t)h << 16);
}

#endif
