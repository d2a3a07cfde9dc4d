/* SPDX-License-Identifier: MIT
 * AMD's family 19h (Zen 3, Zen 4): AVX2's kernels, where that CPU wants others. */
#include "kernels/avx2/x86.h"

void hr_zen3_fill(hr_kernels *table) {
  HR_KERNEL_SET(table, product_q8, zen3);
  HR_KERNEL_SET(table, product_one_q8, zen3);
  HR_KERNEL_SET(table, product_f16, zen3);
  HR_KERNEL_SET(table, product_bf16, zen3);
  HR_KERNEL_SET(table, product_one_f16, zen3);
  HR_KERNEL_SET(table, product_one_bf16, zen3);
  HR_KERNEL_SET(table, attend_f16, zen3);
}
