/* SPDX-License-Identifier: MIT */
#define KERNEL(slot) hr_##slot##__avx2
#define PANELS 1
#define ROWS 6
#define FEW_PANELS 1 /* more do not fit 16 registers */
#define FEW_ROWS 1
#define ONE_AHEAD 2048
#include "kernels/avx2/float_kernels.h"
