/* SPDX-License-Identifier: MIT
 * A few queries; many are slower with what is fetched far ahead. One reads fastest with nothing
 * fetched. */
#define KERNEL(slot) hr_##slot##__zen3
#define WEIGH hr_weigh__avx2
#define ROWS 6
#define ACCUMULATORS 5
#define FETCH_ROWS 2
#define NEAR (2 << 10)
#define FAR 1
#include "kernels/avx2/attention_kernels.h"

enum { FEW_QUERIES = 12 };

void KERNEL(attend_f16)(const hr_attend *a) {
  if (a->count > FEW_QUERIES)
    hr_attend_f16__avx2(a);
  else
    attend(a, CACHE_F16);
}
