// Which instruction sets this processor has and the kernel lets programs use.
#ifndef RELAY_KERNELS_CPU_ISA_H
#define RELAY_KERNELS_CPU_ISA_H

#include <stdbool.h>

typedef struct relay_cpu_isa {
    bool avx2;   // AVX2, FMA and F16C
    bool avx512; // those, and AVX-512 F, BW, VL, DQ and VNNI
} relay_cpu_isa;

relay_cpu_isa relay_cpu_isa_detect(void);

#endif
