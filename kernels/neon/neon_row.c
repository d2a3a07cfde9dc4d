/* SPDX-License-Identifier: MIT
 * Work on one row: quantizing, norms, softmax, conversions, rotation, stores. */
#include "kernels/neon/neon.h"
#include "kernels/neon/neon_elementary.h"
#include "kernels/portable/half.h"
#include "kernels/portable/reduce.h"

/* The largest magnitude of 32 floats, as bits. */
HR_INLINE uint32_t largest_bits(const float *x) {
  uint32x4_t m = vdupq_n_u32(0), mask = vdupq_n_u32(0x7fffffffu);
  HR_UNROLL for (int i = 0; i < HR_Q8_BLOCK; i += 4)
    m = vmaxq_u32(m, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), mask));
  return vmaxvq_u32(m);
}

/* x * inverse to nearest even for 32 floats. Returns the sum. */
HR_INLINE int32_t round_block(const float *x, float inverse, int8_t *q) {
  int16x8_t h[4];
  HR_UNROLL for (int i = 0; i < 4; i++) {
    int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 8 * i), inverse));
    int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 8 * i + 4), inverse));
    h[i] = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
  }
  vst1q_s8(q, vcombine_s8(vmovn_s16(h[0]), vmovn_s16(h[1])));
  vst1q_s8(q + 16, vcombine_s8(vmovn_s16(h[2]), vmovn_s16(h[3])));
  return vaddlvq_s16(vaddq_s16(vaddq_s16(h[0], h[1]), vaddq_s16(h[2], h[3])));
}

static void quantize_block(const float *x, int8_t *q, float *scale, int32_t *offset) {
  uint32_t largest = largest_bits(x);
  float m = hr_float_from_bits(largest);
  *offset = 0;
  if (largest >= 0x7f800000u || m < 0x1p-100f) {
    memset(q, 0, HR_Q8_BLOCK);
    *scale = largest >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
    return;
  }
  *scale = m / 127.0f;
  *offset = -128 * round_block(x, 127.0f / m, q);
}

void hr_quantize__neon(const float *x, size_t k, size_t begin, size_t end, void *row) {
  int8_t *q = row;
  float *scales = (float *)(void *)((char *)row + hr_q8_row_scales_at(k));
  int32_t *offsets = (int32_t *)(void *)((char *)row + hr_q8_row_offsets_at(k));
  size_t whole = end / HR_Q8_BLOCK, left = end % HR_Q8_BLOCK;
  for (size_t b = begin / HR_Q8_BLOCK; b < whole; b++)
    quantize_block(x + (b * HR_Q8_BLOCK - begin), q + b * HR_Q8_BLOCK, scales + b, offsets + b);
  if (left) {
    float last[HR_Q8_BLOCK] = {0};
    memcpy(last, x + (whole * HR_Q8_BLOCK - begin), left * sizeof *x);
    quantize_block(last, q + whole * HR_Q8_BLOCK, scales + whole, offsets + whole);
  }
}

/* sum16 of x, or of (x - shift)^2 by fma. */
HR_INLINE float sum_of(const float *x, size_t n, bool squares, float shift) {
  float32x4_t acc[HR_QUADS];
  float lane[HR_LANES];
  size_t i = 0;
  HR_UNROLL for (int l = 0; l < HR_QUADS; l++) acc[l] = vdupq_n_f32(0.0f);
  for (; i + HR_LANES <= n; i += HR_LANES)
    HR_UNROLL for (int l = 0; l < HR_QUADS; l++) {
      float32x4_t v = vld1q_f32(x + i + 4 * l);
      float32x4_t d = vsubq_f32(v, vdupq_n_f32(shift));
      acc[l] = squares ? vfmaq_f32(acc[l], d, d) : vaddq_f32(acc[l], v);
    }
  HR_UNROLL for (int l = 0; l < HR_QUADS; l++) vst1q_f32(lane + 4 * l, acc[l]);
  for (float *to = lane; i < n; i++, to++) {
    float d = x[i] - shift;
    *to = squares ? hr_fmaf(d, d, *to) : *to + x[i];
  }
  return hr_fold16(lane);
}

void hr_rms_norm__neon(const float *x, size_t n, const float *gain, float eps, float *y) {
  float r = 1.0f / __builtin_sqrtf(sum_of(x, n, true, 0.0f) / (float)n + eps);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    float32x4_t t = vmulq_n_f32(vld1q_f32(x + i), r);
    vst1q_f32(y + i, gain ? vmulq_f32(t, vld1q_f32(gain + i)) : t);
  }
  for (; i < n; i++) {
    float t = x[i] * r;
    y[i] = gain ? t * gain[i] : t;
  }
}

/* t, t * gain, t + shift or fma(t, gain, shift) of four elements. */
HR_INLINE float32x4_t affine(float32x4_t t, const float *gain, const float *shift, size_t i) {
  if (gain && shift) return hr_neon_fma(t, vld1q_f32(gain + i), vld1q_f32(shift + i));
  if (gain) return vmulq_f32(t, vld1q_f32(gain + i));
  return shift ? vaddq_f32(t, vld1q_f32(shift + i)) : t;
}

void hr_layer_norm__neon(const float *x, size_t n, const float *gain, const float *shift,
                         float eps, float *y) {
  float mean = sum_of(x, n, false, 0.0f) / (float)n;
  float r = 1.0f / __builtin_sqrtf(sum_of(x, n, true, mean) / (float)n + eps);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    float32x4_t t = vmulq_n_f32(vsubq_f32(vld1q_f32(x + i), vdupq_n_f32(mean)), r);
    vst1q_f32(y + i, affine(t, gain, shift, i));
  }
  for (; i < n; i++) {
    float t = (x[i] - mean) * r;
    if (gain && shift)
      y[i] = hr_fmaf(t, gain[i], shift[i]);
    else
      y[i] = gain ? t * gain[i] : shift ? t + shift[i] : t;
  }
}

void hr_softmax__neon(float *x, size_t n) {
  float m = -__builtin_inff(), lane[HR_LANES] = {0};
  float32x4_t m4 = vdupq_n_f32(m), acc[HR_QUADS];
  size_t i = 0;
  for (; i + 4 <= n; i += 4) m4 = hr_neon_larger(vld1q_f32(x + i), m4);
  vst1q_f32(lane, m4);
  for (int l = 0; l < 4; l++) m = lane[l] > m ? lane[l] : m;
  for (; i < n; i++) m = x[i] > m ? x[i] : m;
  m = m + 0.0f;

  HR_UNROLL for (int l = 0; l < HR_QUADS; l++) acc[l] = vdupq_n_f32(0.0f);
  for (i = 0; i + HR_LANES <= n; i += HR_LANES)
    HR_UNROLL for (int l = 0; l < HR_QUADS; l++) {
      float32x4_t e = hr_neon_exp(vsubq_f32(vld1q_f32(x + i + 4 * l), vdupq_n_f32(m)));
      vst1q_f32(x + i + 4 * l, e);
      acc[l] = vaddq_f32(acc[l], e);
    }
  HR_UNROLL for (int l = 0; l < HR_QUADS; l++) vst1q_f32(lane + 4 * l, acc[l]);
  for (float *to = lane; i < n; i++, to++) {
    x[i] = hr_exp(x[i] - m);
    *to = *to + x[i];
  }
  hr_divide__neon(x, hr_fold16(lane), n);
}

void hr_rope_pairs__neon(float *x, const float *cos, const float *sin, size_t half) {
  size_t i = 0;
  for (; i + 4 <= half; i += 4) {
    float32x4x2_t v = vld2q_f32(x + 2 * i);
    float32x4_t c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);
    float32x4_t y0 = hr_neon_fma(v.val[0], c, vnegq_f32(vmulq_f32(v.val[1], s)));
    float32x4_t y1 = hr_neon_fma(v.val[1], c, vmulq_f32(v.val[0], s));
    vst2q_f32(x + 2 * i, ((float32x4x2_t){{y0, y1}}));
  }
  for (; i < half; i++) {
    float x0 = x[2 * i], x1 = x[2 * i + 1];
    x[2 * i] = hr_fmaf(x0, cos[i], -(x1 * sin[i]));
    x[2 * i + 1] = hr_fmaf(x1, cos[i], x0 * sin[i]);
  }
}

void hr_rope_halves__neon(float *x, const float *cos, const float *sin, size_t half) {
  size_t i = 0;
  for (; i + 4 <= half; i += 4) {
    float32x4_t x0 = vld1q_f32(x + i), x1 = vld1q_f32(x + half + i);
    float32x4_t c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);
    vst1q_f32(x + i, hr_neon_fma(x0, c, vnegq_f32(vmulq_f32(x1, s))));
    vst1q_f32(x + half + i, hr_neon_fma(x1, c, vmulq_f32(x0, s)));
  }
  for (; i < half; i++) {
    float x0 = x[i], x1 = x[i + half];
    x[i] = hr_fmaf(x0, cos[i], -(x1 * sin[i]));
    x[i + half] = hr_fmaf(x1, cos[i], x0 * sin[i]);
  }
}

void hr_add__neon(float *y, const float *x, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vaddq_f32(vld1q_f32(y + i), vld1q_f32(x + i)));
  for (; i < n; i++) y[i] = y[i] + x[i];
}
void hr_scale__neon(float *y, float factor, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vmulq_n_f32(vld1q_f32(y + i), factor));
  for (; i < n; i++) y[i] = y[i] * factor;
}
void hr_divide__neon(float *y, float divisor, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    vst1q_f32(y + i, vdivq_f32(vld1q_f32(y + i), vdupq_n_f32(divisor)));
  for (; i < n; i++) y[i] = y[i] / divisor;
}

/* The instructions of the base architecture, which round to nearest even and
 * keep denormals. */
HR_INLINE uint16x4_t narrow_half4(float32x4_t x) {
  return vreinterpret_u16_f16(vcvt_f16_f32(x));
}

void hr_widen_f16__neon(const uint16_t *x, float *y, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    vst1q_f32(y + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
  for (; i < n; i++) y[i] = hr_widen_half(x[i]);
}
void hr_widen_bf16__neon(const uint16_t *x, float *y, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    vst1q_f32(y + i, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x + i), 16)));
  for (; i < n; i++) y[i] = hr_widen_brain(x[i]);
}
void hr_narrow_f16__neon(const float *x, uint16_t *y, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) vst1_u16(y + i, narrow_half4(vld1q_f32(x + i)));
  for (; i < n; i++) y[i] = hr_narrow_half(x[i]);
}
void hr_narrow_bf16__neon(const float *x, uint16_t *y, size_t n) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    float32x4_t v = vld1q_f32(x + i);
    uint32x4_t u = vreinterpretq_u32_f32(v);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fffu)), odd);
    uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000u));
    vst1_u16(y + i, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16));
  }
  for (; i < n; i++) y[i] = hr_narrow_brain(x[i]);
}

void hr_store_key_f16__neon(const float *x, size_t width, void *block, size_t position) {
  uint16_t *out = (uint16_t *)block + hr_key_at(width, position);
  size_t i = 0;
  for (; i + 4 <= width; i += 4) {
    uint16x4_t h = narrow_half4(vld1q_f32(x + i));
    vst1_lane_u16(out + i * HR_KEY_PANEL, h, 0);
    vst1_lane_u16(out + (i + 1) * HR_KEY_PANEL, h, 1);
    vst1_lane_u16(out + (i + 2) * HR_KEY_PANEL, h, 2);
    vst1_lane_u16(out + (i + 3) * HR_KEY_PANEL, h, 3);
  }
  for (; i < width; i++) out[i * HR_KEY_PANEL] = hr_narrow_half(x[i]);
}
void hr_store_value_f16__neon(const float *x, size_t width, void *block, size_t position) {
  hr_narrow_f16__neon(x, (uint16_t *)block + position * hr_round_up(width, HR_LANES), width);
}
