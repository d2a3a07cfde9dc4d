/* SPDX-License-Identifier: MIT
 * The multiply of unsigned and signed bytes that AVX2 has. It saturates
 * at 16 bits, so the unsigned side is |w| (-128 becomes 128) and the signed one
 * the activation with the sign of w: two products are at most 2 * 128 * 127. */
#ifndef HR_KERNELS_AVX2_Q8_SIGNS_H
#define HR_KERNELS_AVX2_Q8_SIGNS_H

#include "kernels/avx2/lanes.h"

typedef struct weights {
  ints value, magnitude;
} weights;

HR_INLINE weights weights_load(const char *at) {
  ints w = ints_load(at);
  return (weights){w, {_mm256_abs_epi8(w.low), _mm256_abs_epi8(w.high)}};
}

HR_INLINE __m256i fours(__m256i value, __m256i magnitude, __m256i x) {
  __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, value));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
HR_INLINE ints q8_first(int32_t offset, weights w, ints x) {
  (void)offset;
  return (ints){fours(w.value.low, w.magnitude.low, x.low),
                fours(w.value.high, w.magnitude.high, x.high)};
}
HR_INLINE ints q8_dot(ints s, weights w, ints x) {
  s = ints_add(s, q8_first(0, w, x));
  /* Or the compiler adds up later and stores the terms meanwhile. */
  HR_IN_REGISTER(s.low);
  HR_IN_REGISTER(s.high);
  return s;
}

#endif
