/* SPDX-License-Identifier: MIT
 * One fused multiply-add of binary32, exactly rounded, on targets that have the
 * instruction and on those that don't. */
#ifndef HR_KERNELS_PORTABLE_FMA_H
#define HR_KERNELS_PORTABLE_FMA_H

#include <stdint.h>
#include <string.h>

#include "kernels/layout.h"

static inline uint32_t hr_float_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
static inline float hr_float_from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

#if defined(__FMA__) || defined(__aarch64__)
#define HR_HAS_FMA 1
#else
#define HR_HAS_FMA 0
#endif

/* Without the instruction. The product of two binary32 is exact in binary64, so
 * only the sum rounds. Rounding it to odd - when it is inexact, to the
 * neighbour whose last bit is 1 - keeps what the second rounding, to binary32,
 * needs to know (Boldo and Melquiond, "Emulation of FMA and correctly rounded
 * sums", 2008). The error of the sum is found by Knuth's two-sum. */
static inline float hr_fmaf_to_odd(float a, float b, float c) {
  double p = (double)a * (double)b, z = (double)c;
  double s = p + z;
  double from_z = s - p;
  double err = (p - (s - from_z)) + (z - from_z);
  uint64_t u;
  memcpy(&u, &s, sizeof u);
  /* Not for NaN: an infinite or NaN sum is already the answer. */
  if ((err < 0 || err > 0) && !(u & 1)) {
    u += (err > 0) == (s > 0) ? 1 : UINT64_MAX;
    memcpy(&s, &u, sizeof s);
  }
  return (float)s;
}

/* True when converting the binary64 sum s to binary32 might differ from
 * rounding the exact sum once: s lies exactly between two binary32 numbers, or
 * the result is below the normal range. */
static inline uint32_t hr_fma_is_hard(double s) {
  uint64_t u;
  memcpy(&u, &s, sizeof u);
  uint32_t low = (uint32_t)u & 0x1fffffffu, high = (uint32_t)(u >> 32) & 0x7fffffffu;
  return (low == 0x10000000u) | (high - 1u < 0x38100000u - 1u);
}

/* The first half of that. */
static inline uint32_t hr_fma_is_tie(double s) {
  uint64_t u;
  memcpy(&u, &s, sizeof u);
  return (uint32_t)u << 3 == 0x80000000u;
}

static inline float hr_fmaf(float a, float b, float c) {
#if HR_HAS_FMA
  return __builtin_fmaf(a, b, c);
#else
  double s = (double)a * (double)b + (double)c;
  if (__builtin_expect(hr_fma_is_hard(s), 0)) return hr_fmaf_to_odd(a, b, c);
  return (float)s;
#endif
}

/* acc[i] = fma(a[i], b, acc[i]) for the 16 lanes. */
static inline void hr_fma16(const float *restrict a, float b, float *restrict acc) {
#if HR_HAS_FMA
  for (int i = 0; i < HR_LANES; i++) acc[i] = __builtin_fmaf(a[i], b, acc[i]);
#else
  double s[HR_LANES];
  uint32_t hard = 0;
  for (int i = 0; i < HR_LANES; i++) s[i] = (double)a[i] * (double)b + (double)acc[i];
  for (int i = 0; i < HR_LANES; i++) hard |= hr_fma_is_hard(s[i]);
  if (__builtin_expect(hard != 0, 0)) {
    for (int i = 0; i < HR_LANES; i++) acc[i] = hr_fmaf_to_odd(a[i], b, acc[i]);
  } else {
    for (int i = 0; i < HR_LANES; i++) acc[i] = (float)s[i];
  }
#endif
}

/* acc[i] = fma(a[i], b[i], acc[i]) for the 16 lanes, a[i] integers below 2^24.
 * Their products with binary32 numbers, and so the sums, are multiples of the
 * least denormal: below the normal range all are binary32 numbers, and only
 * ties are hard. */
static inline void hr_fma16_integers(const int32_t *restrict a, const float *restrict b,
                                     float *restrict acc) {
#if HR_HAS_FMA
  for (int i = 0; i < HR_LANES; i++) acc[i] = __builtin_fmaf((float)a[i], b[i], acc[i]);
#else
  double s[HR_LANES];
  uint32_t ties = 0;
  for (int i = 0; i < HR_LANES; i++) s[i] = (double)a[i] * (double)b[i] + (double)acc[i];
  for (int i = 0; i < HR_LANES; i++) ties |= hr_fma_is_tie(s[i]);
  if (__builtin_expect(ties != 0, 0)) {
    for (int i = 0; i < HR_LANES; i++) acc[i] = hr_fmaf_to_odd((float)a[i], b[i], acc[i]);
  } else {
    for (int i = 0; i < HR_LANES; i++) acc[i] = (float)s[i];
  }
#endif
}

#endif
