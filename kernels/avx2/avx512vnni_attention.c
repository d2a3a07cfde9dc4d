/* SPDX-License-Identifier: MIT */
#define KERNEL(slot) hr_##slot##__avx512vnni
#define ROWS 12
#define ACCUMULATORS 24
#include "kernels/avx2/attention_kernels.h"
