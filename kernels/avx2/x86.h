/* SPDX-License-Identifier: MIT
 * Kernels of the x86 tiers. A tier defines only some of these; its table file
 * says which. */
#ifndef HR_KERNELS_AVX2_X86_H
#define HR_KERNELS_AVX2_X86_H

#include "kernels/kernels.h"

#define HR_SLOT(type, slot) type hr_##slot##__avx2, hr_##slot##__avxvnni, hr_##slot##__avx512vnni;
HR_KERNEL_SLOTS(HR_SLOT)
#undef HR_SLOT

void hr_avx2_fill(hr_kernels *table);
void hr_avxvnni_fill(hr_kernels *table);
void hr_avx512vnni_fill(hr_kernels *table);

/* Loops whose count is a constant and whose arrays are registers. */
#define HR_UNROLL _Pragma("GCC unroll 32")
#define HR_INLINE __attribute__((always_inline)) static inline

/* Makes the compiler have a value in a register here and now. */
#define HR_IN_REGISTER(v) __asm__("" : "+v"(v))

#endif
