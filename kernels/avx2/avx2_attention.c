/* SPDX-License-Identifier: MIT */
#define KERNEL(slot) hr_##slot##__avx2
#define ROWS 6
#define ACCUMULATORS 5
#include "kernels/avx2/attention_kernels.h"
