/* SPDX-License-Identifier: MIT */
#define KERNEL(slot) hr_##slot##__avx512vnni
#define PANELS 2
#define ROWS 12
#include "kernels/avx2/float_kernels.h"
