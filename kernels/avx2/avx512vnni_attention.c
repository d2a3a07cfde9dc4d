/* SPDX-License-Identifier: MIT */
#define KERNEL(slot) hr_##slot##__avx512vnni
#define WEIGH hr_weigh__avx512vnni
#define ROWS 12
#define ACCUMULATORS 24
#define FETCH_ROWS 1
#define NEAR (18 << 10)
#define FAR 0
#include "kernels/avx2/attention_kernels.h"
#include "kernels/avx2/attention_weights.h"

void KERNEL(attend_f32)(const hr_attend *a) { attend(a, CACHE_F32); }
void KERNEL(attend_f16)(const hr_attend *a) { attend(a, CACHE_F16); }
