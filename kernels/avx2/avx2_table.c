/* SPDX-License-Identifier: MIT */
#include "kernels/avx2/x86.h"

void hr_avx2_fill(hr_kernels *table) {
#define SET(slot) HR_KERNEL_SET(table, slot, avx2);
  HR_X86_SLOTS(SET)
#undef SET
}
