/* SPDX-License-Identifier: MIT
 * exp, tanh, erf and sigmoid of four floats: the lines of
 * kernels/portable/elementary.h, with selections for its branches. */
#ifndef HR_KERNELS_NEON_ELEMENTARY_H
#define HR_KERNELS_NEON_ELEMENTARY_H

#include "kernels/neon/neon_tile.h"
#include "kernels/portable/elementary.h"

/* a * b + c, in the order that the formulas are written in. */
HR_INLINE float32x4_t hr_neon_fma(float32x4_t a, float32x4_t b, float32x4_t c) {
  return vfmaq_f32(c, a, b);
}
HR_INLINE float32x4_t hr_neon_fma_n(float32x4_t a, float32x4_t b, float c) {
  return vfmaq_f32(vdupq_n_f32(c), a, b);
}

HR_INLINE float32x4_t hr_neon_exp(float32x4_t x) {
  float32x4_t round = vdupq_n_f32(HR_ROUND);
  float32x4_t t = hr_neon_fma(x, vdupq_n_f32(HR_LOG2E), round);
  float32x4_t n = vsubq_f32(t, round);
  float32x4_t r = hr_neon_fma(n, vdupq_n_f32(-HR_LN2_HIGH), x);
  r = hr_neon_fma(n, vdupq_n_f32(-HR_LN2_LOW), r);
  float32x4_t p = hr_neon_fma_n(vdupq_n_f32(HR_EXP_C6), r, HR_EXP_C5);
  p = hr_neon_fma_n(p, r, HR_EXP_C4);
  p = hr_neon_fma_n(p, r, HR_EXP_C3);
  p = hr_neon_fma_n(p, r, HR_EXP_C2);
  p = hr_neon_fma_n(p, r, 1.0f);
  p = hr_neon_fma_n(p, r, 1.0f);
  uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(p), vshlq_n_u32(vreinterpretq_u32_f32(t), 23));
  float32x4_t y = vreinterpretq_f32_u32(bits);
  uint32x4_t above = vcgtq_f32(x, vdupq_n_f32(HR_EXP_OVERFLOW));
  uint32x4_t below = vcltq_f32(x, vdupq_n_f32(HR_EXP_UNDERFLOW));
  y = vbslq_f32(above, vdupq_n_f32(__builtin_inff()), y);
  y = vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(y), below));
  return vbslq_f32(vceqq_f32(x, x), y, x);
}

HR_INLINE float32x4_t hr_neon_copysign(float32x4_t magnitude, float32x4_t sign) {
  return vbslq_f32(vdupq_n_u32(0x7fffffffu), magnitude, sign);
}

HR_INLINE float32x4_t hr_neon_sigmoid(float32x4_t x) {
  float32x4_t one = vdupq_n_f32(1.0f);
  float32x4_t e = hr_neon_exp(vnegq_f32(vabsq_f32(x)));
  float32x4_t a = vbslq_f32(vcgezq_f32(x), one, e);
  float32x4_t t = vaddq_f32(one, e);
  float32x4_t lost = vsubq_f32(e, vsubq_f32(t, one));
  float32x4_t r = vdivq_f32(one, t);
  float32x4_t q = vmulq_f32(a, r);
  float32x4_t left = vfmsq_f32(vfmsq_f32(a, q, t), q, lost);
  return hr_neon_fma(left, r, q);
}

HR_INLINE float32x4_t hr_neon_tanh(float32x4_t x) {
  float32x4_t one = vdupq_n_f32(1.0f);
  float32x4_t a = vabsq_f32(x);
  float32x4_t z = vmulq_f32(x, x);
  float32x4_t p = hr_neon_fma_n(vdupq_n_f32(HR_TANH_C11), z, HR_TANH_C9);
  p = hr_neon_fma_n(p, z, HR_TANH_C7);
  p = hr_neon_fma_n(p, z, HR_TANH_C5);
  p = hr_neon_fma_n(p, z, HR_TANH_C3);
  float32x4_t small = hr_neon_fma(vmulq_f32(p, z), x, x);
  float32x4_t e = hr_neon_exp(vaddq_f32(a, a));
  float32x4_t large = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), vaddq_f32(e, one)));
  return vbslq_f32(vcltq_f32(a, vdupq_n_f32(HR_TANH_SMALL)), small, hr_neon_copysign(large, x));
}

HR_INLINE float32x4_t hr_neon_erf(float32x4_t x) {
  float32x4_t a = vabsq_f32(x);
  float32x4_t z = vmulq_f32(x, x);
  float32x4_t s = hr_neon_fma_n(vdupq_n_f32(HR_ERF_S6), z, HR_ERF_S5);
  s = hr_neon_fma_n(s, z, HR_ERF_S4);
  s = hr_neon_fma_n(s, z, HR_ERF_S3);
  s = hr_neon_fma_n(s, z, HR_ERF_S2);
  s = hr_neon_fma_n(s, z, HR_ERF_S1);
  s = hr_neon_fma_n(s, z, HR_ERF_S0);
  float32x4_t small = hr_neon_fma(s, x, x);
  float32x4_t limit = vdupq_n_f32(HR_ERF_ONE);
  float32x4_t c = vbslq_f32(vcgtq_f32(a, limit), limit, a);
  float32x4_t q = hr_neon_fma_n(vdupq_n_f32(HR_ERF_L6), c, HR_ERF_L5);
  q = hr_neon_fma_n(q, c, HR_ERF_L4);
  q = hr_neon_fma_n(q, c, HR_ERF_L3);
  q = hr_neon_fma_n(q, c, HR_ERF_L2);
  q = hr_neon_fma_n(q, c, HR_ERF_L1);
  q = hr_neon_fma_n(q, c, HR_ERF_L0);
  float32x4_t large = vsubq_f32(vdupq_n_f32(1.0f), hr_neon_exp(q));
  return vbslq_f32(vcltq_f32(a, vdupq_n_f32(HR_ERF_SMALL)), small, hr_neon_copysign(large, x));
}

/* `x > m ? x : m`; the instruction fmax would let a NaN through. */
HR_INLINE float32x4_t hr_neon_larger(float32x4_t x, float32x4_t m) {
  return vbslq_f32(vcgtq_f32(x, m), x, m);
}

/* Replaces n floats, a multiple of 16 of which n - valid at an end are -infinity,
 * by their exponentials relative to the largest, which goes into *max. The sum
 * in 16 lanes goes into lanes; an added +0 changes none, for none is ever -0. */
HR_INLINE void hr_neon_exponentials(float *x, size_t n, float *max, float32x4_t lanes[HR_QUADS]) {
  float32x4_t m[HR_QUADS];
  HR_UNROLL for (int i = 0; i < HR_QUADS; i++) m[i] = vdupq_n_f32(-__builtin_inff());
  for (size_t j = 0; j < n; j += HR_LANES)
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++)
      m[i] = hr_neon_larger(vld1q_f32(x + j + 4 * i), m[i]);
  float four[4], largest = -__builtin_inff();
  vst1q_f32(four, hr_neon_larger(hr_neon_larger(m[0], m[1]), hr_neon_larger(m[2], m[3])));
  for (int i = 0; i < 4; i++) largest = four[i] > largest ? four[i] : largest;
  *max = largest + 0.0f;

  float32x4_t by = vdupq_n_f32(*max);
  HR_UNROLL for (int i = 0; i < HR_QUADS; i++) lanes[i] = vdupq_n_f32(0.0f);
  for (size_t j = 0; j < n; j += HR_LANES)
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {
      float32x4_t e = hr_neon_exp(vsubq_f32(vld1q_f32(x + j + 4 * i), by));
      vst1q_f32(x + j + 4 * i, e);
      lanes[i] = vaddq_f32(lanes[i], e);
    }
}

/* Lanes i and i + 8, then i and i + 4, i and i + 2, i and i + 1. */
HR_INLINE float hr_neon_fold16(const float32x4_t lanes[HR_QUADS]) {
  float32x4_t t = vaddq_f32(vaddq_f32(lanes[0], lanes[2]), vaddq_f32(lanes[1], lanes[3]));
  float32x2_t u = vadd_f32(vget_low_f32(t), vget_high_f32(t));
  return vget_lane_f32(u, 0) + vget_lane_f32(u, 1);
}

#endif
