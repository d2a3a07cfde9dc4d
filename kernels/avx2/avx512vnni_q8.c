/* SPDX-License-Identifier: MIT
 * q8 by vpdpbusd on zmm. Its unsigned side is the weight plus 128 (a flipped top
 * bit); the sums start from the row's offsets, which take that back. */
#define KERNEL(slot) hr_##slot##__avx512vnni
#define PANELS 2
#define ROWS 5
#define ONE_AHEAD 0
#define PREPARED_GROUP 0
#define PREPARED_BLOCK 0

#include "kernels/avx2/lanes.h"

typedef ints weights;

HR_INLINE weights weights_load(const char *at) {
  return _mm512_xor_si512(_mm512_load_si512(at), _mm512_set1_epi8(-128));
}

HR_INLINE ints q8_dot(ints s, weights w, ints x) { return _mm512_dpbusd_epi32(s, w, x); }

HR_INLINE ints q8_first(int32_t offset, weights w, ints x) {
  return q8_dot(ints_set(offset), w, x);
}

#include "kernels/avx2/q8_kernels.h"
