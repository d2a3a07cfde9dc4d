/* SPDX-License-Identifier: MIT
 * Random numbers that are the same everywhere, and distances between results. */
#ifndef HR_TESTS_MEASURE_H
#define HR_TESTS_MEASURE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t random_bits(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

/* Uniform in (0, 1). */
static inline double random_unit(uint64_t *state) {
  return ((double)(random_bits(state) >> 12) + 0.5) * 0x1p-52;
}

/* Normal, by Box and Muller. */
static inline float random_normal(uint64_t *state) {
  double r = sqrt(-2 * log(random_unit(state)));
  return (float)(r * cos(6.283185307179586 * random_unit(state)));
}

static inline void random_fill(uint64_t *state, float *x, size_t n, double scale) {
  for (size_t i = 0; i < n; i++) x[i] = (float)(scale * (double)random_normal(state));
}

/* The largest difference, as a share of the expected values' range (from the
 * least to the largest, at least 1e-30). NaN gives infinity. */
static inline double distance_to(const float *x, const double *expected, size_t n) {
  double low = INFINITY, high = -INFINITY, most = 0;
  for (size_t i = 0; i < n; i++) {
    double d = fabs((double)x[i] - expected[i]);
    if (!(d <= most)) most = isnan(d) ? (double)INFINITY : d;
    low = fmin(low, expected[i]);
    high = fmax(high, expected[i]);
  }
  return most == 0 ? 0 : most / fmax(high - low, 1e-30);
}

/* The same between two results. */
static inline double distance_between(const float *x, const float *y, size_t n) {
  double low = INFINITY, high = -INFINITY, most = 0;
  for (size_t i = 0; i < n; i++) {
    double a = (double)x[i], b = (double)y[i], d = fabs(a - b);
    if (!(d <= most)) most = isnan(d) ? (double)INFINITY : d;
    low = fmin(low, b);
    high = fmax(high, b);
  }
  return most == 0 ? 0 : most / fmax(high - low, 1e-30);
}

static inline int same_bits(const float *x, const float *y, size_t n) {
  return memcmp(x, y, n * sizeof *x) == 0;
}

static inline double root_mean_square(const float *x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
  return sqrt(sum / (double)n);
}

/* Pearson's. */
static inline double correlation(const float *x, const float *y, size_t n) {
  double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < n; i++) {
    mx += (double)x[i] / (double)n;
    my += (double)y[i] / (double)n;
  }
  for (size_t i = 0; i < n; i++) {
    double a = (double)x[i] - mx, b = (double)y[i] - my;
    xx += a * a;
    yy += b * b;
    xy += a * b;
  }
  return xy / sqrt(xx * yy);
}

#endif
