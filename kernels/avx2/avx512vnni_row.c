/* SPDX-License-Identifier: MIT */
#define KERNEL(slot) hr_##slot##__avx512vnni
#include "kernels/avx2/row_kernels.h"
