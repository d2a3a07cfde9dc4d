/* SPDX-License-Identifier: MIT
 * q8 for AMD's family 19h. One row goes by signs and magnitudes (q8_signs.h), and reads memory best
 * with nothing fetched ahead. Many rows: the sign instruction takes the two pipes that the
 * multiplies want, so weights and rows are made 16-bit words once, and each multiply takes two
 * columns, of a group by turns the even and the odd ones. A few do not pay for the words. */
#define KERNEL(slot) hr_##slot##__zen3
#define PANELS 1
#define ROWS 5
#define ONE_AHEAD 0
#define PREPARED_GROUP 128
#define PREPARED_BLOCK 64

#include "kernels/avx2/q8_signs.h"

enum { STEPS = 16, MOST_ROWS = 70, FEW_ROWS = 19 };
#define FEW(slot) hr_##slot##__avx2

/* Of 32 bytes the words of the even ones and those of the odd ones. */
HR_INLINE void words_of(__m256i bytes, __m256i *even, __m256i *odd) {
  *even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
  *odd = _mm256_srai_epi16(bytes, 8);
}
HR_INLINE void weights_prepare(const char *at, char *to) {
  ints w = ints_load(at), even, odd;
  words_of(w.low, &even.low, &odd.low);
  words_of(w.high, &even.high, &odd.high);
  ints_store(to, even);
  ints_store(to + 64, odd);
}
HR_INLINE weights weights_prepared(const char *at, const char *from, size_t step) {
  (void)at;
  return (weights){.value = ints_load(from + step * 64)};
}
HR_INLINE void row_prepare(const char *at, char *to) {
  __m256i even, odd;
  words_of(_mm256_loadu_si256((const __m256i *)(const void *)at), &even, &odd);
  _mm256_store_si256((__m256i *)(void *)to, even);
  _mm256_store_si256((__m256i *)(void *)to + 1, odd);
}
HR_INLINE ints row_prepared(const char *from, size_t step) {
  return ints_spread((const int8_t *)from + step % 2 * 32 + step / 2 * 4);
}
HR_INLINE ints step_first(int32_t offset, weights w, ints x) {
  (void)offset;
  return (ints){_mm256_madd_epi16(w.value.low, x.low), _mm256_madd_epi16(w.value.high, x.high)};
}
HR_INLINE ints step_dot(ints s, weights w, ints x) {
  s = ints_add(s, step_first(0, w, x));
  HR_IN_REGISTER(s.low); /* as in q8_dot */
  HR_IN_REGISTER(s.high);
  return s;
}

#include "kernels/avx2/q8_kernels.h"
