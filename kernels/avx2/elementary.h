/* SPDX-License-Identifier: MIT
 * The sequences of kernels/portable/elementary.h on sixteen lanes. */
#ifndef HR_KERNELS_AVX2_ELEMENTARY_H
#define HR_KERNELS_AVX2_ELEMENTARY_H

#include "kernels/avx2/lanes.h"
#include "kernels/portable/elementary.h"

/* One step of Horner's rule: p * x + c. */
HR_INLINE lanes lanes_step(lanes p, lanes x, float c) { return lanes_fma(p, x, lanes_set(c)); }

/* exp of what is not above HR_EXP_OVERFLOW: e^r * 2^n; NaN stays NaN. Of several vectors side
 * by side, operation by operation: each waits for its own results, and meanwhile those of one
 * after the other would fill the CPU's queue. */
enum { EXPS = 4 };
HR_INLINE void lanes_exps_below(size_t count, lanes *x) {
  lanes t[EXPS], n[EXPS], r[EXPS], p[EXPS];
#define EACH HR_UNROLL for (size_t i = 0; i < count; i++)
  EACH t[i] = lanes_fma(x[i], lanes_set(HR_LOG2E), lanes_set(HR_ROUND));
  EACH n[i] = lanes_sub(t[i], lanes_set(HR_ROUND));
  EACH r[i] = lanes_fnma(n[i], lanes_set(HR_LN2_HIGH), x[i]);
  EACH r[i] = lanes_fnma(n[i], lanes_set(HR_LN2_LOW), r[i]);
  EACH p[i] = lanes_step(lanes_set(HR_EXP_C6), r[i], HR_EXP_C5);
  EACH p[i] = lanes_step(p[i], r[i], HR_EXP_C4);
  EACH p[i] = lanes_step(p[i], r[i], HR_EXP_C3);
  EACH p[i] = lanes_step(p[i], r[i], HR_EXP_C2);
  EACH p[i] = lanes_step(p[i], r[i], 1.0f);
  EACH p[i] = lanes_step(p[i], r[i], 1.0f);
  EACH p[i] = lanes_times_power(p[i], n[i], t[i]);
  EACH x[i] = lanes_drop(lanes_less(x[i], lanes_set(HR_EXP_UNDERFLOW)), p[i]);
#undef EACH
}
HR_INLINE lanes lanes_exp_below(lanes x) {
  lanes_exps_below(1, &x);
  return x;
}

HR_INLINE lanes lanes_exp(lanes x) {
  lanes y = lanes_exp_below(x);
  return lanes_select(lanes_less(lanes_set(HR_EXP_OVERFLOW), x), lanes_set(__builtin_inff()), y);
}

HR_INLINE lanes lanes_sigmoid(lanes x) {
  lanes one = lanes_set(1.0f);
  lanes e = lanes_exp_below(lanes_of_bits(ints_or(lanes_bits(x), ints_set(INT32_MIN))));
  lanes a = lanes_select(lanes_at_least(x, lanes_set(0.0f)), one, e);
  lanes t = lanes_add(one, e);
  lanes lost = lanes_sub(e, lanes_sub(t, one));
  lanes r = lanes_div(one, t);
  lanes q = lanes_mul(a, r);
  lanes left = lanes_fnma(q, lost, lanes_fnma(q, t, a));
  return lanes_fma(left, r, q);
}

HR_INLINE lanes lanes_tanh(lanes x) {
  lanes a = lanes_abs(x), one = lanes_set(1.0f);
  lanes z = lanes_mul(x, x);
  lanes p = lanes_step(lanes_set(HR_TANH_C11), z, HR_TANH_C9);
  p = lanes_step(p, z, HR_TANH_C7);
  p = lanes_step(p, z, HR_TANH_C5);
  p = lanes_step(p, z, HR_TANH_C3);
  lanes small = lanes_fma(lanes_mul(p, z), x, x);
  lanes e = lanes_add(lanes_exp(lanes_add(a, a)), one);
  lanes large = lanes_sub(one, lanes_div(lanes_set(2.0f), e));
  return lanes_select(lanes_less(a, lanes_set(HR_TANH_SMALL)), small, lanes_with_sign(large, x));
}

HR_INLINE lanes lanes_erf(lanes x) {
  lanes a = lanes_abs(x);
  lanes z = lanes_mul(x, x);
  lanes s = lanes_step(lanes_set(HR_ERF_S6), z, HR_ERF_S5);
  s = lanes_step(s, z, HR_ERF_S4);
  s = lanes_step(s, z, HR_ERF_S3);
  s = lanes_step(s, z, HR_ERF_S2);
  s = lanes_step(s, z, HR_ERF_S1);
  s = lanes_step(s, z, HR_ERF_S0);
  lanes small = lanes_fma(s, x, x);
  lanes c = lanes_min(lanes_set(HR_ERF_ONE), a);
  lanes q = lanes_step(lanes_set(HR_ERF_L6), c, HR_ERF_L5);
  q = lanes_step(q, c, HR_ERF_L4);
  q = lanes_step(q, c, HR_ERF_L3);
  q = lanes_step(q, c, HR_ERF_L2);
  q = lanes_step(q, c, HR_ERF_L1);
  q = lanes_step(q, c, HR_ERF_L0);
  lanes large = lanes_sub(lanes_set(1.0f), lanes_exp_below(q));
  return lanes_select(lanes_less(a, lanes_set(HR_ERF_SMALL)), small, lanes_with_sign(large, x));
}

#endif
