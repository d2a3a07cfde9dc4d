/* SPDX-License-Identifier: MIT
 * Thirty-two registers of 256 bits. A few rows want more panels side by side than they hold. */
#define KERNEL(slot) hr_##slot##__zen4
#define PANELS 2
#define ROWS 6
#define FEW_PANELS 1
#define FEW_ROWS 6
#define FEW(slot) hr_##slot##__avx512vnni
#define ONE_AHEAD 0
#define HR_HALVES
#include "kernels/avx2/float_kernels.h"
