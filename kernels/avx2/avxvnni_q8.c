/* SPDX-License-Identifier: MIT
 * q8 by vpdpbusd on ymm. Its unsigned side is the weight plus 128 (a flipped top
 * bit); the sums start from the row's offsets, which take that back. */
#define KERNEL(slot) hr_##slot##__avxvnni
#define PANELS 1
#define ROWS 6
#define ONE_AHEAD 4096
#define PREPARED_GROUP 0
#define PREPARED_BLOCK 0

#include "kernels/avx2/lanes.h"

typedef ints weights;

HR_INLINE weights weights_load(const char *at) {
  const __m256i *w = (const __m256i *)(const void *)at;
  const __m256i top = _mm256_set1_epi8(-128);
  return (ints){_mm256_xor_si256(_mm256_load_si256(w), top),
                _mm256_xor_si256(_mm256_load_si256(w + 1), top)};
}

HR_INLINE ints q8_dot(ints s, weights w, ints x) {
  return (ints){_mm256_dpbusd_avx_epi32(s.low, w.low, x.low),
                _mm256_dpbusd_avx_epi32(s.high, w.high, x.high)};
}

HR_INLINE ints q8_first(int32_t offset, weights w, ints x) {
  return q8_dot(ints_set(offset), w, x);
}

#include "kernels/avx2/q8_kernels.h"
