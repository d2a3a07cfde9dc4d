/* SPDX-License-Identifier: MIT
 * fp16 and bf16 as integers. */
#ifndef HR_KERNELS_PORTABLE_HALF_H
#define HR_KERNELS_PORTABLE_HALF_H

#include "kernels/portable/fma.h"

/* Exact, without a branch on the kind of number (so that loops vectorize):
 * shift exponent and mantissa into place and rescale by 2^112, which also puts
 * denormals right; infinity and NaN get the top exponent. */
static inline float hr_widen_half(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
  uint32_t scaled = hr_float_bits(hr_float_from_bits(magnitude) * 0x1p112f);
  uint32_t special = magnitude | 0x7f800000u;
  uint32_t bits = (h & 0x7c00u) == 0x7c00u ? special : scaled;
  return hr_float_from_bits(bits | (uint32_t)(h & 0x8000u) << 16);
}

static inline float hr_widen_brain(uint16_t b) {
  return hr_float_from_bits((uint32_t)b << 16);
}

/* To nearest even; above 65519.99 infinity; any NaN becomes a quiet one. */
static inline uint16_t hr_narrow_half(float x) {
  uint32_t u = hr_float_bits(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  uint32_t h;
  if (a > 0x7f800000u) {
    h = 0x7e00u;
  } else if (a >= 0x47800000u) { /* 65536 and above */
    h = 0x7c00u;
  } else if (a < 0x38800000u) { /* below 2^-14: adding 1/2 puts a denormal's bits at the bottom */
    h = hr_float_bits(hr_float_from_bits(a) + 0.5f) - 0x3f000000u;
  } else { /* rebias the exponent and round half to even; a carry goes into it */
    h = (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
  }
  return (uint16_t)(sign | h);
}

static inline uint16_t hr_narrow_brain(float x) {
  uint32_t u = hr_float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

#endif
