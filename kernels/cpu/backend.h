// The tables of the processor backends. A table may be used only where relay_cpu_isa_detect says so.
#ifndef RELAY_KERNELS_CPU_BACKEND_H
#define RELAY_KERNELS_CPU_BACKEND_H

#include "kernels/kernels.h"

extern const relay_kernels relay_kernels_avx2;
extern const relay_kernels relay_kernels_avx512;

#endif
