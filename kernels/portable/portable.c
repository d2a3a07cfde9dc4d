/* SPDX-License-Identifier: MIT */
#include "kernels/portable/portable.h"

void hr_portable_fill(hr_kernels *table) {
#define HR_SLOT(type, slot) HR_KERNEL_SET(table, slot, portable);
  HR_KERNEL_SLOTS(HR_SLOT)
#undef HR_SLOT
}
