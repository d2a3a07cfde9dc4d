/* SPDX-License-Identifier: MIT */
#define KERNEL(slot) hr_##slot##__avx2
#define PANELS 1
#define ROWS 6
#include "kernels/avx2/float_kernels.h"
