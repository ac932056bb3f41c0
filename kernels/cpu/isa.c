#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <stdint.h>

// Bits as the Intel SDM numbers them, volume 2A, CPUID.
enum {
    LEAF1_ECX_FMA = 1 << 12,
    LEAF1_ECX_OSXSAVE = 1 << 27,
    LEAF1_ECX_F16C = 1 << 29,
    LEAF7_EBX_AVX2 = 1 << 5,
    LEAF7_EBX_AVX512F = 1 << 16,
    LEAF7_EBX_AVX512DQ = 1 << 17,
    LEAF7_EBX_AVX512BW = 1 << 30,
    LEAF7_ECX_VNNI = 1 << 11,
};
#define LEAF7_EBX_AVX512VL (1u << 31)

// XCR0: the register state that the operating system saves. Without it the instructions fault, whatever cpuid says.
enum {
    XCR0_YMM = 0x06, // xmm and the upper halves of ymm
    XCR0_ZMM = 0xE0, // mask registers, the upper halves of zmm, zmm16 and up
};

static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_all(uint32_t reg, uint32_t bits) {
    return (reg & bits) == bits;
}

relay_cpu_isa relay_cpu_isa_detect(void) {
    relay_cpu_isa isa = {0};
    uint32_t a, b, c, d, ecx1;
    if (!__get_cpuid(1, &a, &b, &ecx1, &d) || !has_all(ecx1, LEAF1_ECX_OSXSAVE)) return isa;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return isa;
    uint64_t xcr0 = read_xcr0();
    isa.avx2 = has_all((uint32_t)xcr0, XCR0_YMM) && has_all(ecx1, LEAF1_ECX_FMA | LEAF1_ECX_F16C) &&
               has_all(b, LEAF7_EBX_AVX2);
    isa.avx512 = isa.avx2 && has_all((uint32_t)xcr0, XCR0_ZMM) &&
                 has_all(b, LEAF7_EBX_AVX512F | LEAF7_EBX_AVX512DQ | LEAF7_EBX_AVX512BW | LEAF7_EBX_AVX512VL) &&
                 has_all(c, LEAF7_ECX_VNNI);
    return isa;
}
