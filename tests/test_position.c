/* SPDX-License-Identifier: MIT
 * Angles and slopes against quadruple precision. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdint.h>

#include "block/position.h"

/* A type of 113 bits and its functions: long double where it is one, libquadmath on
 * x86. */
#if LDBL_MANT_DIG >= 113
typedef long double wide;
#define wide_sin sinl
#define wide_cos cosl
#define wide_pow powl
#else
typedef __float128 wide;
wide sinq(wide); /* libquadmath.h comes with one compiler only */
wide cosq(wide);
wide powq(wide, wide);
#define wide_sin sinq
#define wide_cos cosq
#define wide_pow powq
#endif

static wide magnitude(wide x) {
  return x < 0 ? -x : x;
}

/* Distance of x from the exact value, in units of the exact value's last place. */
static double ulps(float x, wide exact) {
  int exponent;
  frexp((double)magnitude(exact), &exponent); /* exact < 2^exponent */
  if (exponent < -125) exponent = -125;
  return (double)(magnitude((wide)x - exact) / (wide)ldexp(1, exponent - 24));
}

enum { MOST_WIDTH = 128 };

static const struct { double base; size_t width; } sets[] = {
    {10000, 128}, {10000, 26}, {500000, 128}, {1000000, 64}, {1, 8}, {1e12, 16}};
enum { SETS = sizeof sets / sizeof *sets };

static wide exact_frequency(double base, size_t width, size_t i) {
  return wide_pow((wide)base, (wide)-2 * (wide)i / (wide)width);
}

Test(position, frequencies_to_90_bits) {
  for (size_t s = 0; s < SETS; s++) {
    hr_frequency f[MOST_WIDTH / 2];
    hr_frequencies(sets[s].base, sets[s].width, f);
    for (size_t i = 0; i < sets[s].width / 2; i++) {
      wide exact = exact_frequency(sets[s].base, sets[s].width, i);
      wide error = magnitude((wide)f[i].high + (wide)f[i].low - exact) / exact;
      cr_assert(error < (wide)0x1p-90, "base %g, width %zu, %zu: 2^%g", sets[s].base,
                sets[s].width, i, log2((double)error));
      cr_assert(fabs(f[i].low) <= ldexp(f[i].high, -53));
    }
  }
}

/* Returns the largest error in ulps of the angles of one position. */
static double worst_of(const hr_frequency *f, const wide *exact, size_t count, uint32_t position) {
  float c[MOST_WIDTH / 2], s[MOST_WIDTH / 2];
  double worst = 0;
  hr_angles(f, count, position, c, s);
  for (size_t i = 0; i < count; i++) {
    wide angle = exact[i] * (wide)position;
    if (position == 0)
      cr_assert(c[i] == 1 && s[i] == 0 && !signbit(s[i]));
    else
      worst = fmax(worst, fmax(ulps(c[i], wide_cos(angle)), ulps(s[i], wide_sin(angle))));
  }
  return worst;
}

/* Every position to 300, then in steps to 2^20; and those nearest to multiples of
 * pi / 2, where a sine or cosine is small: convergents of pi. */
/* A factor of 2 halves every angle: position 2p then stands where p stood. */
Test(position, factors_divide_the_frequencies) {
  hr_frequency plain[MOST_WIDTH / 2], stretched[MOST_WIDTH / 2];
  float factor[MOST_WIDTH / 2], cos[2][MOST_WIDTH / 2], sin[2][MOST_WIDTH / 2];
  for (size_t i = 0; i < MOST_WIDTH / 2; i++) factor[i] = 2;
  hr_frequencies(10000, MOST_WIDTH, plain);
  hr_frequencies(10000, MOST_WIDTH, stretched);
  hr_stretch_frequencies(stretched, factor, MOST_WIDTH / 2);
  for (uint32_t position = 0; position < 1000; position += 37) {
    hr_angles(plain, MOST_WIDTH / 2, position, cos[0], sin[0]);
    hr_angles(stretched, MOST_WIDTH / 2, 2 * position, cos[1], sin[1]);
    for (size_t i = 0; i < MOST_WIDTH / 2; i++)
      cr_assert(cos[0][i] == cos[1][i] && sin[0][i] == sin[1][i]);
  }
}

Test(position, sines_and_cosines_within_1_ulp_to_2_to_the_20) {
  static const uint32_t hard[] = {11, 22, 33, 355, 710, 1065, 52174, 103993, 104348, 208341,
                                  312689, 833719, 1048575, 1048576};
  for (size_t k = 0; k < SETS; k++) {
    hr_frequency f[MOST_WIDTH / 2];
    wide exact[MOST_WIDTH / 2];
    size_t count = sets[k].width / 2;
    double worst = 0;
    hr_frequencies(sets[k].base, sets[k].width, f);
    for (size_t i = 0; i < count; i++) exact[i] = exact_frequency(sets[k].base, sets[k].width, i);
    for (uint32_t p = 0; p <= 1u << 20; p += p < 300 ? 1 : 5261)
      worst = fmax(worst, worst_of(f, exact, count, p));
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++)
      worst = fmax(worst, worst_of(f, exact, count, hard[i]));
    /* computed in binary64 and rounded once: hardly more than half a unit */
    cr_assert(worst <= 0.501, "base %g, width %zu: %g ulp", sets[k].base, sets[k].width, worst);
  }
}

/* Sine in even columns, cosine in odd ones; a last odd column is 0. */
Test(position, sinusoid_rows) {
  hr_frequency f[MOST_WIDTH / 2];
  float row[MOST_WIDTH + 1];
  for (size_t width = 25; width <= 26; width++) {
    hr_frequencies(10000, width, f);
    for (uint32_t p = 0; p < 5000; p += 7) {
      hr_sinusoid(f, width, p, row);
      for (size_t i = 0; i + 1 < width; i += 2) {
        wide angle = (wide)p * exact_frequency(10000, width, i / 2);
        cr_assert(ulps(row[i], wide_sin(angle)) <= 1 && ulps(row[i + 1], wide_cos(angle)) <= 1);
      }
      if (width % 2) cr_assert(row[width - 1] == 0);
    }
  }
}

/* Head i of n, from the paper: 2^(-8 (i + 1) / p) up to the next lower power of two p,
 * then the odd steps of 2 p. */
static wide exact_slope(size_t heads, size_t i) {
  size_t p = 1;
  while (2 * p <= heads) p *= 2;
  wide step = i < p ? (wide)(8 * (i + 1)) / (wide)p : (wide)(8 * (2 * (i - p) + 1)) / (wide)(2 * p);
  return wide_pow(2, -step);
}

Test(position, alibi_slopes_to_the_last_bit) {
  static const size_t heads[] = {1, 2, 3, 6, 8, 12, 16, 40, 112};
  float slope[112];
  for (size_t n = 0; n < sizeof heads / sizeof *heads; n++) {
    hr_alibi_slopes(heads[n], 8, slope);
    for (size_t i = 0; i < heads[n]; i++)
      cr_assert(slope[i] == (float)exact_slope(heads[n], i), "%zu heads, head %zu: %.9g", heads[n],
                i, (double)slope[i]);
  }
}
