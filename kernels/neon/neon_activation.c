/* SPDX-License-Identifier: MIT
 * Activations, plain and gated, and the elementary functions over arrays. */
#include "kernels/neon/neon.h"
#include "kernels/neon/neon_elementary.h"

HR_INLINE float32x4_t relu(float32x4_t x) {
  float32x4_t zero = vdupq_n_f32(0.0f);
  return vbslq_f32(vcltzq_f32(x), zero, vaddq_f32(x, zero));
}
HR_INLINE float32x4_t relu2(float32x4_t x) {
  float32x4_t r = relu(x);
  return vmulq_f32(r, r);
}
HR_INLINE float32x4_t silu(float32x4_t x) {
  return vmulq_f32(x, hr_neon_sigmoid(x));
}
HR_INLINE float32x4_t gelu_erf(float32x4_t x) {
  float32x4_t e = hr_neon_erf(vmulq_n_f32(x, 0.70710678f));
  return vmulq_f32(vmulq_n_f32(x, 0.5f), vaddq_f32(vdupq_n_f32(1.0f), e));
}
HR_INLINE float32x4_t gelu_tanh(float32x4_t x) {
  float32x4_t u = hr_neon_fma(vmulq_n_f32(x, 0.044715f), vmulq_f32(x, x), x);
  u = vmulq_n_f32(u, 0.79788456f);
  return vmulq_f32(x, hr_neon_sigmoid(vmulq_n_f32(u, 2.0f)));
}
HR_INLINE float32x4_t gelu_quick(float32x4_t x) {
  return vmulq_f32(x, hr_neon_sigmoid(vmulq_n_f32(x, 1.702f)));
}

/* Up to three floats in the low lanes; the others are zero. */
static float32x4_t load_part(const float *x, size_t n) {
  float four[4] = {0};
  memcpy(four, x, n * sizeof *x);
  return vld1q_f32(four);
}
static void store_part(float *y, float32x4_t v, size_t n) {
  float four[4];
  vst1q_f32(four, v);
  memcpy(y, four, n * sizeof *y);
}

/* Vectors a turn: each is one long chain of operations. */
enum { TURN = 4 };

#define MAP(f, of)                                                                         \
  void hr_##f##__neon(const float *x, float *y, size_t n) {                                \
    size_t i = 0;                                                                          \
    for (; i + 4 * TURN <= n; i += 4 * TURN) {                                             \
      float32x4_t a[TURN];                                                                 \
      HR_UNROLL for (size_t v = 0; v < TURN; v++) a[v] = of(vld1q_f32(x + i + 4 * v));     \
      HR_UNROLL for (size_t v = 0; v < TURN; v++) vst1q_f32(y + i + 4 * v, a[v]);          \
    }                                                                                      \
    for (; i < n; i += 4) {                                                                \
      size_t part = n - i < 4 ? n - i : 4;                                                 \
      store_part(y + i, of(load_part(x + i, part)), part);                                 \
    }                                                                                      \
  }
MAP(exp, hr_neon_exp)
MAP(tanh, hr_neon_tanh)
MAP(erf, hr_neon_erf)
MAP(sigmoid, hr_neon_sigmoid)

#define ACTIVATION(f)                                                                      \
  void hr_##f##__neon(const float *x, const float *up, float *y, size_t n) {               \
    size_t i = 0;                                                                          \
    for (; i + 4 * TURN <= n; i += 4 * TURN) {                                             \
      float32x4_t a[TURN];                                                                 \
      HR_UNROLL for (size_t v = 0; v < TURN; v++) a[v] = f(vld1q_f32(x + i + 4 * v));      \
      if (up)                                                                              \
        HR_UNROLL for (size_t v = 0; v < TURN; v++)                                        \
          a[v] = vmulq_f32(a[v], vld1q_f32(up + i + 4 * v));                               \
      HR_UNROLL for (size_t v = 0; v < TURN; v++) vst1q_f32(y + i + 4 * v, a[v]);          \
    }                                                                                      \
    for (; i < n; i += 4) {                                                                \
      size_t part = n - i < 4 ? n - i : 4;                                                 \
      float32x4_t a = f(load_part(x + i, part));                                           \
      if (up) a = vmulq_f32(a, load_part(up + i, part));                                   \
      store_part(y + i, a, part);                                                          \
    }                                                                                      \
  }
ACTIVATION(relu)
ACTIVATION(relu2)
ACTIVATION(silu)
ACTIVATION(gelu_erf)
ACTIVATION(gelu_tanh)
ACTIVATION(gelu_quick)
