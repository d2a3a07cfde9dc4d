/* SPDX-License-Identifier: MIT
 * Many queries by 256 bits, to which fp16 is widened at less cost. A few wait for memory, and
 * wider instructions look farther ahead; between the products there is nothing to widen. */
#define KERNEL(slot) hr_##slot##__zen4
#define WEIGH hr_weigh__avx512vnni
#define ROWS 6
#define ACCUMULATORS 12
#define HR_HALVES
#include "kernels/avx2/attention_kernels.h"

enum { FEW_QUERIES = 12 };

void KERNEL(attend_f16)(const hr_attend *a) {
  if (a->count <= FEW_QUERIES)
    hr_attend_f16__avx512vnni(a);
  else
    attend(a, CACHE_F16);
}
