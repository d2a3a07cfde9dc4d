/* SPDX-License-Identifier: MIT
 * Sums over a row in 16 lanes and a fixed tree. */
#ifndef HR_KERNELS_PORTABLE_REDUCE_H
#define HR_KERNELS_PORTABLE_REDUCE_H

#include "kernels/portable/fma.h"

/* Adds lanes i and i + 8, then i and i + 4, i and i + 2, i and i + 1. */
static inline float hr_fold16(const float *lanes) {
  float t[HR_LANES / 2];
  for (int i = 0; i < 8; i++) t[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; i++) t[i] = t[i] + t[i + 4];
  for (int i = 0; i < 2; i++) t[i] = t[i] + t[i + 2];
  return t[0] + t[1];
}

/* `x > m ? x : m` in ascending order; the result's zero is +0. */
static inline float hr_row_max(const float *x, size_t n) {
  float m = -__builtin_inff();
  for (size_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
  return m + 0.0f;
}

#endif
