/* SPDX-License-Identifier: MIT
 * The definition: every slot in plain C. */
#ifndef HR_KERNELS_PORTABLE_H
#define HR_KERNELS_PORTABLE_H

#include "kernels/kernels.h"

#define HR_SLOT(type, slot) type hr_##slot##__portable;
HR_KERNEL_SLOTS(HR_SLOT)
#undef HR_SLOT

void hr_portable_fill(hr_kernels *table);

#endif
