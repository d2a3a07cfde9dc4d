/* SPDX-License-Identifier: MIT
 * AMD's Zen 4 does 512 bits in halves, and widening fp16 in four parts: floats are faster by 256
 * bits, of which AVX-512 has twice as many registers. */
#include "kernels/avx2/x86.h"

void hr_zen4_fill(hr_kernels *table) {
  HR_KERNEL_SET(table, product_f32, zen4);
  HR_KERNEL_SET(table, product_f16, zen4);
  HR_KERNEL_SET(table, product_bf16, zen4);
  HR_KERNEL_SET(table, product_one_f32, zen4);
  HR_KERNEL_SET(table, product_one_f16, zen4);
  HR_KERNEL_SET(table, product_one_bf16, zen4);
  HR_KERNEL_SET(table, attend_f16, zen4);
}
