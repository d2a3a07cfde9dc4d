/* SPDX-License-Identifier: MIT */
#define KERNEL(slot) hr_##slot##__avx512vnni
#define PANELS 2
#define ROWS 12
#define FEW_PANELS 4
#define FEW_ROWS 6
#define ONE_AHEAD 2048
#include "kernels/avx2/float_kernels.h"
