/* SPDX-License-Identifier: MIT
 * By 256 bits, to which fp16 is widened at less cost; between the products there is nothing to
 * widen. One query reads fastest with nothing fetched; two do by 512 bits. */
#define KERNEL(slot) hr_##slot##__zen4
#define WEIGH hr_weigh__avx512vnni
#define ROWS 6
#define ACCUMULATORS 12
#define FETCH_ROWS 2
#define NEAR (2 << 10)
#define FAR 1
#define HR_HALVES
#include "kernels/avx2/attention_kernels.h"

void KERNEL(attend_f16)(const hr_attend *a) {
  if (a->count == 2)
    hr_attend_f16__avx512vnni(a);
  else
    attend(a, CACHE_F16);
}
