/* SPDX-License-Identifier: MIT */
#include "tests/kernels/elementary_error.h"

#include <float.h>
#include <math.h>

#include "kernels/portable/elementary.h"

_Static_assert(LDBL_MANT_DIG >= 64, "long double tells truth from a float's last digits");

static float exp_(float x) { return hr_exp(x); }
static float tanh_(float x) { return hr_tanh(x); }
static float erf_(float x) { return hr_erf(x); }
static float sigmoid_(float x) { return hr_sigmoid(x); }

/* Beside zero the first terms of the series, whose next is below 2^-58 of the result, and 1 where
 * less than 2^-64 is missing to it: nine tenths of all floats are there, and the C library takes
 * ten times as long. */
static long double true_exp(long double x) {
  return fabsl(x) < 0x1p-20L ? 1.0L + (x + x * x / 2) : expl(x);
}
static long double true_tanh(long double x) {
  if (fabsl(x) > 24) return copysignl(1.0L, x);
  return fabsl(x) < 0x1p-14L ? x - x * x * x / 3 : tanhl(x);
}
static long double true_erf(long double x) {
  const long double slope = 1.128379167095512573896158903121545172L; /* 2 / sqrt(pi) */
  if (fabsl(x) > 7) return copysignl(1.0L, x);
  return fabsl(x) < 0x1p-14L ? slope * (x - x * x * x / 3) : erfl(x);
}
static long double true_sigmoid(long double x) {
  if (x > 45) return 1.0L;
  return fabsl(x) < 0x1p-19L ? 0.5L + x / 4 : 1.0L / (1.0L + expl(-x));
}

const hr_elementary hr_elementary_functions[HR_ELEMENTARY_FUNCTIONS] = {
    {"exp", exp_, true_exp, HR_EXP_UNDERFLOW, HR_EXP_OVERFLOW, 1.0},
    {"tanh", tanh_, true_tanh, -FLT_MAX, FLT_MAX, 1.5},
    {"erf", erf_, true_erf, -FLT_MAX, FLT_MAX, 1.5},
    {"sigmoid", sigmoid_, true_sigmoid, HR_EXP_UNDERFLOW, FLT_MAX, 1.5},
};

static double error_of(float got, long double truth) {
  int exponent = ilogbl(truth);
  long double unit = ldexpl(1.0L, (exponent < -126 ? -126 : exponent) - 23);
  return (double)(fabsl((long double)got - truth) / unit);
}

hr_elementary_error hr_elementary_measure(const hr_elementary *f, uint64_t from, uint64_t to,
                                          uint64_t step) {
  hr_elementary_error e = {0};
  for (uint64_t bits = from; bits < to; bits += step) {
    float x = hr_float_from_bits((uint32_t)bits);
    if (!(x >= f->lowest && x <= f->highest)) continue;
    float got = f->function(x);
    long double truth = f->truth(x);
    e.arguments++;
    /* A unit is more than 2^-24 of the value. Neither comparison holds for NaN. */
    if (fabsl((long double)got - truth) <= e.worst * 0x1p-24L * fabsl(truth)) continue;
    double error = error_of(got, truth);
    if (error <= e.worst) continue;
    e.worst = isnan(error) ? INFINITY : error;
    e.at = x;
  }
  return e;
}
