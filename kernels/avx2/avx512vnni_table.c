/* SPDX-License-Identifier: MIT */
#include "kernels/avx2/x86.h"

void hr_avx512vnni_fill(hr_kernels *table) {
#define SET(slot) HR_KERNEL_SET(table, slot, avx512vnni);
  HR_X86_SLOTS(SET)
#undef SET
}
