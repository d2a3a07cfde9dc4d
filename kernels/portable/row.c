/* SPDX-License-Identifier: MIT
 * Work on one row: quantizing, norms, softmax, conversions, rotation. */
#include "kernels/portable/elementary.h"
#include "kernels/portable/half.h"
#include "kernels/portable/portable.h"
#include "kernels/portable/reduce.h"

typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t four_bits __attribute__((vector_size(16), aligned(4), may_alias));

static inline four four_of(float x) {
  return (four){x, x, x, x};
}
static inline four select_four(four_bits mask, four yes, four no) {
  return (four)((mask & (four_bits)yes) | (~mask & (four_bits)no));
}

/* hr_round_to_int8 of each. */
static inline four round_four(four x) {
  four q = (x + four_of(HR_ROUND)) - four_of(HR_ROUND);
  q = select_four(q > four_of(-128.0f), q, four_of(-128.0f));
  return select_four(q < four_of(127.0f), q, four_of(127.0f));
}

static float grid_error(const float *x, const float *weight, float scale) {
  four sum[2] = {{0}, {0}}, by = four_of(scale), inverse = four_of(1.0f / scale);
  for (size_t i = 0; i < HR_Q8_BLOCK; i += 4) {
    four v = *(const four *)(x + i), e = v - by * round_four(v * inverse);
    sum[i / 4 % 2] += weight ? *(const four *)(weight + i) * (e * e) : e * e;
  }
  four t = sum[0] + sum[1];
  return (t[0] + t[2]) + (t[1] + t[3]);
}

void hr_grid_errors__portable(const float *x, const float *weight, const float *scales,
                              size_t count, float *errors) {
  for (size_t i = 0; i < count; i++) errors[i] = grid_error(x, weight, scales[i]);
}

void hr_quantize__portable(const float *x, size_t k, size_t begin, size_t end, void *row) {
  int8_t *q = (int8_t *)row + begin;
  float *scales = (float *)(void *)((char *)row + hr_q8_row_scales_at(k));
  int32_t *offsets = (int32_t *)(void *)((char *)row + hr_q8_row_offsets_at(k));
  size_t b = begin / HR_Q8_BLOCK;
  for (size_t at = begin; at < end; at += HR_Q8_BLOCK, b++, q += HR_Q8_BLOCK) {
    size_t n = end - at < HR_Q8_BLOCK ? end - at : HR_Q8_BLOCK;
    const float *v = x + (at - begin);
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
      uint32_t a = hr_float_bits(v[i]) & 0x7fffffffu;
      largest = a > largest ? a : largest;
    }
    memset(q, 0, HR_Q8_BLOCK);
    scales[b] = 0.0f;
    offsets[b] = 0;
    if (largest >= 0x7f800000u) { /* an infinity or a NaN must reach the logits */
      scales[b] = __builtin_nanf("");
      continue;
    }
    float m = hr_float_from_bits(largest);
    if (m < 0x1p-100f) continue;
    scales[b] = m / 127.0f;
    float inverse = 127.0f / m;
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
      float t = v[i] * inverse + HR_ROUND; /* rounds to nearest even in the low bits */
      q[i] = (int8_t)(int32_t)(hr_float_bits(t) - hr_float_bits(HR_ROUND));
      sum += q[i];
    }
    offsets[b] = -128 * sum;
  }
}

/* sum16 of (x - shift)^2 by fma. */
static float sum_of_squares(const float *x, size_t n, float shift) {
  float lane[HR_LANES] = {0};
  for (size_t i = 0; i < n; i++) {
    float d = x[i] - shift;
    lane[i % HR_LANES] = hr_fmaf(d, d, lane[i % HR_LANES]);
  }
  return hr_fold16(lane);
}

static float sum16(const float *x, size_t n) {
  float lane[HR_LANES] = {0};
  for (size_t i = 0; i < n; i++) lane[i % HR_LANES] = lane[i % HR_LANES] + x[i];
  return hr_fold16(lane);
}

void hr_rms_norm__portable(const float *x, size_t n, const float *gain, float eps, float *y) {
  float r = 1.0f / __builtin_sqrtf(sum_of_squares(x, n, 0.0f) / (float)n + eps);
  for (size_t i = 0; i < n; i++) {
    float t = x[i] * r;
    y[i] = gain ? t * gain[i] : t;
  }
}

void hr_layer_norm__portable(const float *x, size_t n, const float *gain, const float *shift,
                             float eps, float *y) {
  float mean = sum16(x, n) / (float)n;
  float r = 1.0f / __builtin_sqrtf(sum_of_squares(x, n, mean) / (float)n + eps);
  for (size_t i = 0; i < n; i++) {
    float t = (x[i] - mean) * r;
    if (gain && shift)
      y[i] = hr_fmaf(t, gain[i], shift[i]);
    else
      y[i] = gain ? t * gain[i] : shift ? t + shift[i] : t;
  }
}

void hr_softmax__portable(float *x, size_t n) {
  float m = hr_row_max(x, n);
  for (size_t i = 0; i < n; i++) x[i] = hr_exp(x[i] - m);
  float s = sum16(x, n);
  for (size_t i = 0; i < n; i++) x[i] = x[i] / s;
}

void hr_rope_pairs__portable(float *x, const float *cos, const float *sin, size_t half) {
  for (size_t i = 0; i < half; i++) {
    float x0 = x[2 * i], x1 = x[2 * i + 1];
    x[2 * i] = hr_fmaf(x0, cos[i], -(x1 * sin[i]));
    x[2 * i + 1] = hr_fmaf(x1, cos[i], x0 * sin[i]);
  }
}

void hr_rope_halves__portable(float *x, const float *cos, const float *sin, size_t half) {
  for (size_t i = 0; i < half; i++) {
    float x0 = x[i], x1 = x[i + half];
    x[i] = hr_fmaf(x0, cos[i], -(x1 * sin[i]));
    x[i + half] = hr_fmaf(x1, cos[i], x0 * sin[i]);
  }
}

void hr_add__portable(float *y, const float *x, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = y[i] + x[i];
}
void hr_scale__portable(float *y, float factor, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = y[i] * factor;
}
void hr_divide__portable(float *y, float divisor, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = y[i] / divisor;
}

void hr_widen_f16__portable(const uint16_t *x, float *y, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = hr_widen_half(x[i]);
}
void hr_widen_bf16__portable(const uint16_t *x, float *y, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = hr_widen_brain(x[i]);
}
void hr_narrow_f16__portable(const float *x, uint16_t *y, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = hr_narrow_half(x[i]);
}
void hr_narrow_bf16__portable(const float *x, uint16_t *y, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = hr_narrow_brain(x[i]);
}
