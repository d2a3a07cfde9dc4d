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
static long double true_sigmoid(long double x) { return 1.0L / (1.0L + expl(-x)); }

const hr_elementary hr_elementary_functions[HR_ELEMENTARY_FUNCTIONS] = {
    {"exp", exp_, expl, HR_EXP_UNDERFLOW, HR_EXP_OVERFLOW, 1.0},
    {"tanh", tanh_, tanhl, -FLT_MAX, FLT_MAX, 1.5},
    {"erf", erf_, erfl, -FLT_MAX, FLT_MAX, 1.5},
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
    double error = error_of(f->function(x), f->truth(x));
    e.arguments++;
    if (error <= e.worst) continue; /* not so for NaN */
    e.worst = isnan(error) ? INFINITY : error;
    e.at = x;
  }
  return e;
}
