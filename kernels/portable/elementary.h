/* SPDX-License-Identifier: MIT
 * exp, tanh, erf and sigmoid as fixed sequences of binary32 operations.
 *
 * The polynomials were fitted to the functions in binary64 (least squares on
 * Chebyshev nodes, reweighted towards the minimax) and rounded; docs/numerics.md
 * has their measured errors. Vector back-ends repeat these lines lane by lane. */
#ifndef HR_KERNELS_PORTABLE_ELEMENTARY_H
#define HR_KERNELS_PORTABLE_ELEMENTARY_H

#include "kernels/portable/fma.h"

#define HR_LOG2E 0x1.715476p+0f
#define HR_LN2_HIGH 0x1.62e400p-1f  /* few bits: n * high is exact for |n| < 2^12 */
#define HR_LN2_LOW 0x1.7f7d1cp-20f  /* ln 2 - high */
#define HR_ROUND 0x1.8p23f          /* adding it rounds to an integer in the low bits */
#define HR_EXP_OVERFLOW 0x1.62e42ep+6f   /* largest x whose exp is finite */
#define HR_EXP_UNDERFLOW -0x1.5d589ep+6f /* smallest x whose exp is normal */

#define HR_EXP_C2 0.4999999403953552f
#define HR_EXP_C3 0.1666652113199234f
#define HR_EXP_C4 0.04166838899254799f
#define HR_EXP_C5 0.008368716575205326f
#define HR_EXP_C6 0.0013814601115882397f

/* x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + r (1 + r P(r)); times 2^n by
 * adding n to the exponent. Above the largest finite result +infinity, below
 * the smallest normal one +0, NaN stays NaN. */
static inline float hr_exp(float x) {
  float t = hr_fmaf(x, HR_LOG2E, HR_ROUND);
  float n = t - HR_ROUND;
  float r = hr_fmaf(n, -HR_LN2_HIGH, x);
  r = hr_fmaf(n, -HR_LN2_LOW, r);
  float p = hr_fmaf(HR_EXP_C6, r, HR_EXP_C5);
  p = hr_fmaf(p, r, HR_EXP_C4);
  p = hr_fmaf(p, r, HR_EXP_C3);
  p = hr_fmaf(p, r, HR_EXP_C2);
  p = hr_fmaf(p, r, 1.0f);
  p = hr_fmaf(p, r, 1.0f);
  float y = hr_float_from_bits(hr_float_bits(p) + (hr_float_bits(t) << 23));
  if (x > HR_EXP_OVERFLOW) return __builtin_inff();
  if (x < HR_EXP_UNDERFLOW) return 0.0f;
  return x == x ? y : x;
}

static inline float hr_fabs(float x) {
  return hr_float_from_bits(hr_float_bits(x) & 0x7fffffffu);
}
static inline float hr_copysign(float magnitude, float sign) {
  return hr_float_from_bits((hr_float_bits(magnitude) & 0x7fffffffu) |
                            (hr_float_bits(sign) & 0x80000000u));
}

/* a / (1 + e) with e = exp(-|x|) and a = 1 or e as x >= 0 or not. One Newton
 * step takes back the rounding of 1 + e and of the quotient. */
static inline float hr_sigmoid(float x) {
  float e = hr_exp(-hr_fabs(x));
  float a = x >= 0.0f ? 1.0f : e;
  float t = 1.0f + e;
  float lost = e - (t - 1.0f);
  float r = 1.0f / t;
  float q = a * r;
  float left = hr_fmaf(-q, lost, hr_fmaf(-q, t, a));
  return hr_fmaf(left, r, q);
}

#define HR_TANH_SMALL 0.6f
#define HR_TANH_C3 -0.33333298563957214f
#define HR_TANH_C5 0.1333191841840744f
#define HR_TANH_C7 -0.053783342242240906f
#define HR_TANH_C9 0.020794164389371872f
#define HR_TANH_C11 -0.005892876069992781f

/* Near 0 an odd polynomial, elsewhere 1 - 2 / (e^2|x| + 1) with the sign of x. */
static inline float hr_tanh(float x) {
  float a = hr_fabs(x);
  float z = x * x;
  float p = hr_fmaf(HR_TANH_C11, z, HR_TANH_C9);
  p = hr_fmaf(p, z, HR_TANH_C7);
  p = hr_fmaf(p, z, HR_TANH_C5);
  p = hr_fmaf(p, z, HR_TANH_C3);
  float small = hr_fmaf(p * z, x, x);
  float large = 1.0f - 2.0f / (hr_exp(a + a) + 1.0f);
  return a < HR_TANH_SMALL ? small : hr_copysign(large, x);
}

#define HR_ERF_SMALL 0.93f
#define HR_ERF_ONE 3.925f /* from here on the result is 1 */
#define HR_ERF_S0 0.128379166f
#define HR_ERF_S1 -0.37612631916999817f
#define HR_ERF_S2 0.11283663660287857f
#define HR_ERF_S3 -0.026857705786824226f
#define HR_ERF_S4 0.005196952261030674f
#define HR_ERF_S5 -0.0008097703685052693f
#define HR_ERF_S6 8.185093611245975e-05f
#define HR_ERF_L0 -0.0001956749620148912f
#define HR_ERF_L1 -1.1276756525039673f
#define HR_ERF_L2 -0.6371822357177734f
#define HR_ERF_L3 -0.10393159836530685f
#define HR_ERF_L4 0.02222692221403122f
#define HR_ERF_L5 -0.0030432180501520634f
#define HR_ERF_L6 0.0001959373039426282f

/* Near 0 x + x P(x^2), elsewhere 1 - e^Q(|x|) with the sign of x, where Q is
 * fitted to log(erfc). NaN takes the second branch and stays NaN. */
static inline float hr_erf(float x) {
  float a = hr_fabs(x);
  float z = x * x;
  float s = hr_fmaf(HR_ERF_S6, z, HR_ERF_S5);
  s = hr_fmaf(s, z, HR_ERF_S4);
  s = hr_fmaf(s, z, HR_ERF_S3);
  s = hr_fmaf(s, z, HR_ERF_S2);
  s = hr_fmaf(s, z, HR_ERF_S1);
  s = hr_fmaf(s, z, HR_ERF_S0);
  float small = hr_fmaf(s, x, x);
  float c = a > HR_ERF_ONE ? HR_ERF_ONE : a;
  float q = hr_fmaf(HR_ERF_L6, c, HR_ERF_L5);
  q = hr_fmaf(q, c, HR_ERF_L4);
  q = hr_fmaf(q, c, HR_ERF_L3);
  q = hr_fmaf(q, c, HR_ERF_L2);
  q = hr_fmaf(q, c, HR_ERF_L1);
  q = hr_fmaf(q, c, HR_ERF_L0);
  float large = 1.0f - hr_exp(q);
  return a < HR_ERF_SMALL ? small : hr_copysign(large, x);
}

/* The factors of a running result and of a later block's in attend_merge, whose m and l they
 * join: kernels/kernels.h has the formulas. */
typedef struct hr_merge_factors {
  float running, later;
} hr_merge_factors;

static inline hr_merge_factors hr_merge_sums(float *m, float *l, float bm, float bl) {
  float larger = bm > *m ? bm : *m;
  hr_merge_factors by = {hr_exp(*m - larger), hr_exp(bm - larger)};
  *m = larger;
  *l = hr_fmaf(bl, by.later, *l * by.running);
  return by;
}

#endif
