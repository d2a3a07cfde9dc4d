/* SPDX-License-Identifier: MIT
 * q8 by signs and magnitudes (q8_signs.h). That is so much work a byte that the CPU does not look
 * far enough ahead by itself. */
#define KERNEL(slot) hr_##slot##__avx2
#define PANELS 1
#define ROWS 5
#define ONE_AHEAD 4096
#define PREPARED_GROUP 64 /* the magnitudes: pabsb takes a place that the multiplies want */
#define PREPARED_BLOCK 0

#include "kernels/avx2/q8_signs.h"

enum { STEPS = 8 };

HR_INLINE void weights_prepare(const char *at, char *to) {
  ints_store(to, weights_load(at).magnitude);
}
HR_INLINE weights weights_prepared(const char *at, const char *from, size_t step) {
  return (weights){ints_load(at + step * 64), ints_load(from + step * 64)};
}
HR_INLINE ints step_first(int32_t offset, weights w, ints x) { return q8_first(offset, w, x); }
HR_INLINE ints step_dot(ints s, weights w, ints x) { return q8_dot(s, w, x); }

#include "kernels/avx2/q8_kernels.h"
