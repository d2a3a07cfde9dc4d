/* SPDX-License-Identifier: MIT */
#include "kernels/avx2/x86.h"

void hr_avxvnni_fill(hr_kernels *table) {
  HR_KERNEL_SET(table, product_q8, avxvnni);
  HR_KERNEL_SET(table, product_one_q8, avxvnni);
}
