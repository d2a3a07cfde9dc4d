/* SPDX-License-Identifier: MIT
 * q8 by the multiply of unsigned and signed bytes that AVX2 has. It saturates
 * at 16 bits, so the unsigned side is |w| (-128 becomes 128) and the signed one
 * the activation with the sign of w: two products are at most 2 * 128 * 127. That is
 * so much work a byte that the CPU does not look far enough ahead by itself. */
#define KERNEL(slot) hr_##slot##__avx2
#define PANELS 1
#define ROWS 5
#define ONE_AHEAD 4096
#define PREPARED 1 /* the magnitudes: pabsb takes a place that the multiplies want */

#include "kernels/avx2/lanes.h"

_Static_assert(PANELS == 1, "what is prepared is of one panel");

typedef struct weights {
  ints value, magnitude;
} weights;

HR_INLINE weights weights_load(const char *at) {
  const __m256i *w = (const __m256i *)(const void *)at;
  ints value = {_mm256_load_si256(w), _mm256_load_si256(w + 1)};
  return (weights){value, {_mm256_abs_epi8(value.low), _mm256_abs_epi8(value.high)}};
}

HR_INLINE void weights_prepare(const char *at, char *to) {
  weights w = weights_load(at);
  __m256i *m = (__m256i *)(void *)to;
  _mm256_store_si256(m, w.magnitude.low);
  _mm256_store_si256(m + 1, w.magnitude.high);
}
HR_INLINE weights weights_prepared(const char *at, const char *from) {
  const __m256i *w = (const __m256i *)(const void *)at, *m = (const __m256i *)(const void *)from;
  return (weights){{_mm256_load_si256(w), _mm256_load_si256(w + 1)},
                   {_mm256_load_si256(m), _mm256_load_si256(m + 1)}};
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

#include "kernels/avx2/q8_kernels.h"
