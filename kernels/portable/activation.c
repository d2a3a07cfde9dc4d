/* SPDX-License-Identifier: MIT
 * Activations, plain and gated, and the elementary functions over arrays. */
#include "kernels/portable/elementary.h"
#include "kernels/portable/portable.h"

static inline float relu(float x) {
  return x < 0.0f ? 0.0f : x + 0.0f; /* -0 becomes +0, NaN stays */
}
static inline float relu2(float x) {
  float r = relu(x);
  return r * r;
}
static inline float silu(float x) {
  return x * hr_sigmoid(x);
}
static inline float gelu_erf(float x) {
  return (0.5f * x) * (1.0f + hr_erf(x * 0.70710678f));
}
static inline float gelu_tanh(float x) {
  float u = 0.79788456f * hr_fmaf(0.044715f * x, x * x, x);
  return x * hr_sigmoid(2.0f * u);
}
static inline float gelu_quick(float x) {
  return x * hr_sigmoid(1.702f * x);
}

#define ACTIVATION(f)                                                                   \
  void hr_##f##__portable(const float *x, const float *up, float *y, size_t n) {        \
    for (size_t i = 0; i < n; i++) y[i] = up ? f(x[i]) * up[i] : f(x[i]);               \
  }
ACTIVATION(relu)
ACTIVATION(relu2)
ACTIVATION(silu)
ACTIVATION(gelu_erf)
ACTIVATION(gelu_tanh)
ACTIVATION(gelu_quick)

#define MAP(f)                                                       \
  void hr_##f##__portable(const float *x, float *y, size_t n) {      \
    for (size_t i = 0; i < n; i++) y[i] = hr_##f(x[i]);              \
  }
MAP(exp)
MAP(tanh)
MAP(erf)
MAP(sigmoid)
