/* SPDX-License-Identifier: MIT */
#include "kernels/neon/neon.h"

void hr_neon_fill(hr_kernels *table) {
#define HR_SLOT(type, slot) HR_KERNEL_SET(table, slot, neon);
  HR_NEON_SLOTS(HR_SLOT)
#undef HR_SLOT
}
