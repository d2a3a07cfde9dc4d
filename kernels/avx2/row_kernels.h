/* SPDX-License-Identifier: MIT
 * Kernels on one row, for the tier whose file includes this: KERNEL(slot) is
 * the name of its function. Arithmetic: kernels/kernels.h. */
#include <string.h>

#include "kernels/avx2/elementary.h"

/* One scale. maxps and minps give their second operand where one is a NaN. */
HR_INLINE float grid_error(const float *x, const float *weight, float scale) {
  __m256 by = _mm256_set1_ps(scale), inverse = _mm256_set1_ps(1.0f / scale);
  __m256 round = _mm256_set1_ps(HR_ROUND), sum = _mm256_setzero_ps();
  HR_UNROLL for (size_t i = 0; i < HR_Q8_BLOCK; i += 8) {
    __m256 v = _mm256_loadu_ps(x + i);
    __m256 q = _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(v, inverse), round), round);
    q = _mm256_min_ps(_mm256_max_ps(q, _mm256_set1_ps(-128.0f)), _mm256_set1_ps(127.0f));
    __m256 e = _mm256_sub_ps(v, _mm256_mul_ps(by, q));
    e = _mm256_mul_ps(e, e);
    if (weight) e = _mm256_mul_ps(_mm256_loadu_ps(weight + i), e);
    sum = _mm256_add_ps(sum, e);
  }
  __m128 t = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
  t = _mm_add_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}

void KERNEL(grid_errors)(const float *x, const float *weight, const float *scales, size_t count,
                         float *errors) {
  if (weight)
    for (size_t i = 0; i < count; i++) errors[i] = grid_error(x, weight, scales[i]);
  else
    for (size_t i = 0; i < count; i++) errors[i] = grid_error(x, NULL, scales[i]);
}

/* Lane i: all lanes of the i-th of eight. */
#define HR_FOLD_EIGHT(name, join)                                                      \
  HR_INLINE __m256i name(const __m256i v[8]) {                                         \
    __m256i two[4], four[2];                                                           \
    HR_UNROLL for (int i = 0; i < 4; i++)                                              \
      two[i] = join(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),                     \
                    _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));                    \
    HR_UNROLL for (int i = 0; i < 2; i++)                                              \
      four[i] = join(_mm256_unpacklo_epi64(two[2 * i], two[2 * i + 1]),                \
                     _mm256_unpackhi_epi64(two[2 * i], two[2 * i + 1]));               \
    return join(_mm256_permute2x128_si256(four[0], four[1], 0x20),                     \
                _mm256_permute2x128_si256(four[0], four[1], 0x31));                    \
  }
HR_FOLD_EIGHT(fold_max_eight, _mm256_max_epi32)
HR_FOLD_EIGHT(fold_add_eight, _mm256_add_epi32)

/* The first two, four or all of eight numbers. */
HR_INLINE void store_some(size_t count, void *to, __m256i v) {
  if (count == 8)
    _mm256_storeu_si256(to, v);
  else if (count == 4)
    _mm_storeu_si128(to, _mm256_castsi256_si128(v));
  else
    _mm_storel_epi64(to, _mm256_castsi256_si128(v));
}

/* Two, four or eight blocks together: what belongs to a block as a whole is a lane of one register.
 * False, and nothing done, where the scale of one is zero or NaN. */
HR_INLINE bool quantize_some(size_t count, const float *x, __m256i *q, float *scales,
                             int32_t *offsets) {
  __m256i v[8];
  ints magnitude = ints_set(0x7fffffff);
  HR_UNROLL for (size_t b = 0; b < count; b++) {
    ints largest = ints_max(ints_and(lanes_bits(lanes_load(x + b * HR_Q8_BLOCK)), magnitude),
                            ints_and(lanes_bits(lanes_load(x + b * HR_Q8_BLOCK + 16)), magnitude));
    v[b] = _mm256_max_epi32(ints_low(largest), ints_high(largest));
  }
  HR_UNROLL for (size_t b = count; b < 8; b++) v[b] = v[b - count];
  __m256i largest = fold_max_eight(v);
  __m256i least = _mm256_set1_epi32((int32_t)hr_float_bits(0x1p-100f) - 1);
  __m256i usual = _mm256_and_si256(_mm256_cmpgt_epi32(largest, least),
                                   _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), largest));
  if (_mm256_movemask_epi8(usual) != -1) return false;
  __m256 m = _mm256_castsi256_ps(largest), most = _mm256_set1_ps(127.0f);
  store_some(count, scales, _mm256_castps_si256(_mm256_div_ps(m, most)));
  float inverse[8];
  _mm256_storeu_ps(inverse, _mm256_div_ps(most, m));
  HR_UNROLL for (size_t b = 0; b < count; b += 2) {
    ints i[4];
    HR_UNROLL for (size_t part = 0; part < 4; part++)
      i[part] = ints_of_lanes(lanes_mul(lanes_load(x + b * HR_Q8_BLOCK + part * 16),
                                        lanes_set(inverse[b + part / 2])));
    ints bytes = ints_to_8(i[0], i[1], i[2], i[3]), sum = ints_sum_bytes(bytes);
    ints_store(q + b, bytes);
    v[b] = ints_low(sum);
    v[b + 1] = ints_high(sum);
  }
  HR_UNROLL for (size_t b = count; b < 8; b++) v[b] = v[b - count];
  __m256i offset = _mm256_slli_epi32(fold_add_eight(v), 7);
  store_some(count, offsets, _mm256_sub_epi32(_mm256_setzero_si256(), offset));
  return true;
}

/* One block from two times sixteen floats. */
HR_INLINE void quantize_block(lanes a, lanes b, __m256i *q, float *scale, int32_t *offset) {
  ints magnitude = ints_set(0x7fffffff);
  int32_t largest = ints_fold_max(
      ints_max(ints_and(lanes_bits(a), magnitude), ints_and(lanes_bits(b), magnitude)));
  float m = hr_float_from_bits((uint32_t)largest);
  *scale = largest >= 0x7f800000 ? __builtin_nanf("") : 0.0f; /* which must reach the logits */
  *offset = 0;
  _mm256_storeu_si256(q, _mm256_setzero_si256());
  if (!(m >= 0x1p-100f && largest < 0x7f800000)) return;
  lanes inverse = lanes_set(127.0f / m);
  ints bytes = ints_to_8(ints_of_lanes(lanes_mul(a, inverse)), ints_of_lanes(lanes_mul(b, inverse)),
                         ints_set(0), ints_set(0));
  __m256i sums = ints_low(ints_sum_bytes(bytes));
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  *scale = m / 127.0f;
  *offset = -128 * _mm_cvtsi128_si32(sum);
  _mm256_storeu_si256(q, ints_low(bytes));
}

void KERNEL(quantize)(const float *x, size_t k, size_t begin, size_t end, void *row) {
  float *scales = (float *)(void *)((char *)row + hr_q8_row_scales_at(k));
  int32_t *offsets = (int32_t *)(void *)((char *)row + hr_q8_row_offsets_at(k));
  __m256i *q = row;
  size_t blocks = hr_q8_blocks(end), whole = end / HR_Q8_BLOCK, singly = 0; /* up to this one */
  for (size_t b = begin / HR_Q8_BLOCK, next; b < blocks; b = next) {
    const float *from = x + (b * HR_Q8_BLOCK - begin);
    size_t left = whole - b; /* 0: a last part of a block */
    size_t some = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    bool done = false;
    next = b + 1;
    if (b >= singly && some == 8)
      done = quantize_some(8, from, q + b, scales + b, offsets + b);
    else if (b >= singly && some == 4)
      done = quantize_some(4, from, q + b, scales + b, offsets + b);
    else if (b >= singly && some == 2)
      done = quantize_some(2, from, q + b, scales + b, offsets + b);
    if (done) {
      next = b + some;
    } else {
      if (b >= singly) singly = b + some;
      size_t n = end - b * HR_Q8_BLOCK;
      lanes low = lanes_load_up_to(from, n), high = lanes_set(0.0f);
      if (n > 16) high = lanes_load_up_to(from + 16, n - 16);
      quantize_block(low, high, q + b, scales + b, offsets + b);
    }
  }
}

HR_INLINE float sum_of_squares(const float *x, size_t n, float shift) {
  lanes sum = lanes_set(0.0f), by = lanes_set(shift);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    lanes d = lanes_sub(lanes_load(x + i), by);
    sum = lanes_fma(d, d, sum);
  }
  if (i < n) {
    mask rest = mask_first(n - i);
    lanes d = lanes_sub(lanes_load_part(x + i, rest), by);
    sum = lanes_select(rest, lanes_fma(d, d, sum), sum);
  }
  return lanes_fold_add(sum);
}

/* A lane of the sum is never -0, so that adding the +0 of a missing element
 * leaves it as it is. */
HR_INLINE float sum16(const float *x, size_t n) {
  lanes sum = lanes_set(0.0f);
  for (size_t i = 0; i < n; i += 16) sum = lanes_add(sum, lanes_load_up_to(x + i, n - i));
  return lanes_fold_add(sum);
}

void KERNEL(rms_norm)(const float *x, size_t n, const float *gain, float eps, float *y) {
  lanes r = lanes_set(1.0f / __builtin_sqrtf(sum_of_squares(x, n, 0.0f) / (float)n + eps));
  for (size_t i = 0; i < n; i += 16) {
    lanes t = lanes_mul(lanes_load_up_to(x + i, n - i), r);
    if (gain) t = lanes_mul(t, lanes_load_up_to(gain + i, n - i));
    lanes_store_up_to(y + i, t, n - i);
  }
}

void KERNEL(layer_norm)(const float *x, size_t n, const float *gain, const float *shift, float eps,
                        float *y) {
  float mean = sum16(x, n) / (float)n;
  lanes by = lanes_set(mean);
  lanes r = lanes_set(1.0f / __builtin_sqrtf(sum_of_squares(x, n, mean) / (float)n + eps));
  for (size_t i = 0; i < n; i += 16) {
    lanes t = lanes_mul(lanes_sub(lanes_load_up_to(x + i, n - i), by), r);
    if (gain && shift)
      t = lanes_fma(t, lanes_load_up_to(gain + i, n - i), lanes_load_up_to(shift + i, n - i));
    else if (gain)
      t = lanes_mul(t, lanes_load_up_to(gain + i, n - i));
    else if (shift)
      t = lanes_add(t, lanes_load_up_to(shift + i, n - i));
    lanes_store_up_to(y + i, t, n - i);
  }
}

HR_INLINE float row_max(const float *x, size_t n) {
  lanes m = lanes_set(-__builtin_inff());
  size_t i = 0;
  for (; i + 16 <= n; i += 16) m = lanes_max(lanes_load(x + i), m);
  if (i < n) {
    mask rest = mask_first(n - i);
    m = lanes_select(rest, lanes_max(lanes_load_part(x + i, rest), m), m);
  }
  return lanes_fold_max(m);
}

void KERNEL(softmax)(float *x, size_t n) {
  lanes m = lanes_set(row_max(x, n)), sum = lanes_set(0.0f);
  for (size_t i = 0; i < n; i += 16) {
    lanes e = lanes_exp(lanes_sub(lanes_load_up_to(x + i, n - i), m));
    lanes_store_up_to(x + i, e, n - i);
    sum = lanes_add(sum, lanes_keep(mask_first(part_of(n, i)), e));
  }
  lanes s = lanes_set(lanes_fold_add(sum));
  for (size_t i = 0; i < n; i += 16)
    lanes_store_up_to(x + i, lanes_div(lanes_load_up_to(x + i, n - i), s), n - i);
}

void KERNEL(rope_pairs)(float *x, const float *cos, const float *sin, size_t half) {
  size_t i = 0;
  for (; i + 8 <= half; i += 8) {
    lanes v = lanes_load(x + 2 * i);
    lanes crossed = lanes_mul(lanes_swap_pairs(v), lanes_load_twice(sin + i));
    lanes_store(x + 2 * i, lanes_fma_sub_add(v, lanes_load_twice(cos + i), crossed));
  }
  for (; i < half; i++) {
    float x0 = x[2 * i], x1 = x[2 * i + 1];
    x[2 * i] = hr_fmaf(x0, cos[i], -(x1 * sin[i]));
    x[2 * i + 1] = hr_fmaf(x1, cos[i], x0 * sin[i]);
  }
}

void KERNEL(rope_halves)(float *x, const float *cos, const float *sin, size_t half) {
  for (size_t i = 0; i < half; i += 16) {
    size_t n = half - i;
    lanes x0 = lanes_load_up_to(x + i, n), x1 = lanes_load_up_to(x + half + i, n);
    lanes c = lanes_load_up_to(cos + i, n), s = lanes_load_up_to(sin + i, n);
    lanes minus = lanes_of_bits(ints_set(INT32_MIN));
    lanes crossed = lanes_mul(x1, s); /* negated by flipping the sign: -(x1 * s) */
    crossed = lanes_of_bits(ints_sub(lanes_bits(crossed), lanes_bits(minus)));
    lanes_store_up_to(x + i, lanes_fma(x0, c, crossed), n);
    lanes_store_up_to(x + half + i, lanes_fma(x1, c, lanes_mul(x0, s)), n);
  }
}

void KERNEL(add)(float *y, const float *x, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    lanes_store_up_to(y + i,
                      lanes_add(lanes_load_up_to(y + i, n - i), lanes_load_up_to(x + i, n - i)),
                      n - i);
}
void KERNEL(scale)(float *y, float factor, size_t n) {
  lanes f = lanes_set(factor);
  for (size_t i = 0; i < n; i += 16)
    lanes_store_up_to(y + i, lanes_mul(lanes_load_up_to(y + i, n - i), f), n - i);
}
void KERNEL(divide)(float *y, float divisor, size_t n) {
  lanes d = lanes_set(divisor);
  for (size_t i = 0; i < n; i += 16)
    lanes_store_up_to(y + i, lanes_div(lanes_load_up_to(y + i, n - i), d), n - i);
}

/* A last part of 16-bit numbers goes through a buffer of its own. */
HR_INLINE const uint16_t *whole16(const uint16_t *x, size_t n, uint16_t buffer[16]) {
  if (n >= 16) return x;
  memset(buffer, 0, 32);
  memcpy(buffer, x, n * 2);
  return buffer;
}
HR_INLINE void store16(uint16_t *y, __m256i v, size_t n) {
  uint16_t buffer[16];
  if (n >= 16) {
    _mm256_storeu_si256((__m256i *)(void *)y, v);
  } else {
    _mm256_storeu_si256((__m256i *)(void *)buffer, v);
    memcpy(y, buffer, n * 2);
  }
}

void KERNEL(widen_f16)(const uint16_t *x, float *y, size_t n) {
  uint16_t buffer[16];
  for (size_t i = 0; i < n; i += 16)
    lanes_store_up_to(y + i, lanes_load_half(whole16(x + i, n - i, buffer)), n - i);
}
void KERNEL(widen_bf16)(const uint16_t *x, float *y, size_t n) {
  uint16_t buffer[16];
  for (size_t i = 0; i < n; i += 16)
    lanes_store_up_to(y + i, lanes_load_brain(whole16(x + i, n - i, buffer)), n - i);
}
void KERNEL(narrow_f16)(const float *x, uint16_t *y, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    store16(y + i, lanes_to_half(lanes_load_up_to(x + i, n - i)), n - i);
}
void KERNEL(narrow_bf16)(const float *x, uint16_t *y, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    lanes v = lanes_load_up_to(x + i, n - i);
    ints u = lanes_bits(v);
    ints odd = ints_and(ints_shift_right(u, 16), ints_set(1));
    ints rounded = ints_add(u, ints_add(odd, ints_set(0x7fff)));
    ints quiet = ints_or(u, ints_set(0x400000));
    ints bits =
        lanes_bits(lanes_select(lanes_is_nan(v), lanes_of_bits(quiet), lanes_of_bits(rounded)));
    store16(y + i, ints_to_16(ints_shift_right(bits, 16)), n - i);
  }
}

void KERNEL(store_key_f32)(const float *x, size_t width, void *block, size_t position) {
  float *out = (float *)block + hr_key_at(width, position);
  for (size_t i = 0; i < width; i++) out[i * HR_KEY_PANEL] = x[i];
}
void KERNEL(store_key_f16)(const float *x, size_t width, void *block, size_t position) {
  uint16_t *out = (uint16_t *)block + hr_key_at(width, position);
  uint16_t half[16];
  for (size_t i = 0; i < width; i += 16, out += 16 * HR_KEY_PANEL) {
    size_t n = part_of(width, i);
    store16(half, lanes_to_half(lanes_load_up_to(x + i, n)), 16);
    for (size_t at = 0; at < n; at++) out[at * HR_KEY_PANEL] = half[at];
  }
}
void KERNEL(store_value_f32)(const float *x, size_t width, void *block, size_t position) {
  memcpy((float *)block + position * hr_round_up(width, 16), x, width * sizeof *x);
}
void KERNEL(store_value_f16)(const float *x, size_t width, void *block, size_t position) {
  KERNEL(narrow_f16)(x, (uint16_t *)block + position * hr_round_up(width, 16), width);
}

HR_INLINE lanes lanes_relu(lanes x) {
  lanes zero = lanes_set(0.0f);
  return lanes_add(lanes_max(zero, x), zero); /* -0 becomes +0, NaN stays */
}
HR_INLINE lanes lanes_relu2(lanes x) {
  lanes r = lanes_relu(x);
  return lanes_mul(r, r);
}
HR_INLINE lanes lanes_silu(lanes x) { return lanes_mul(x, lanes_sigmoid(x)); }
HR_INLINE lanes lanes_gelu_erf(lanes x) {
  lanes e = lanes_erf(lanes_mul(x, lanes_set(0.70710678f)));
  return lanes_mul(lanes_mul(lanes_set(0.5f), x), lanes_add(lanes_set(1.0f), e));
}
HR_INLINE lanes lanes_gelu_tanh(lanes x) {
  lanes cubic = lanes_fma(lanes_mul(lanes_set(0.044715f), x), lanes_mul(x, x), x);
  lanes u = lanes_mul(lanes_set(0.79788456f), cubic);
  return lanes_mul(x, lanes_sigmoid(lanes_mul(lanes_set(2.0f), u)));
}
HR_INLINE lanes lanes_gelu_quick(lanes x) {
  return lanes_mul(x, lanes_sigmoid(lanes_mul(lanes_set(1.702f), x)));
}

#define ACTIVATION(slot)                                                               \
  void KERNEL(slot)(const float *x, const float *up, float *y, size_t n) {             \
    for (size_t i = 0; i < n; i += 16) {                                               \
      lanes v = lanes_##slot(lanes_load_up_to(x + i, n - i));                          \
      if (up) v = lanes_mul(v, lanes_load_up_to(up + i, n - i));                       \
      lanes_store_up_to(y + i, v, n - i);                                              \
    }                                                                                  \
  }
ACTIVATION(relu)
ACTIVATION(relu2)
ACTIVATION(silu)
ACTIVATION(gelu_erf)
ACTIVATION(gelu_tanh)
ACTIVATION(gelu_quick)

#define MAP(slot)                                                                      \
  void KERNEL(slot)(const float *x, float *y, size_t n) {                              \
    for (size_t i = 0; i < n; i += 16)                                                 \
      lanes_store_up_to(y + i, lanes_##slot(lanes_load_up_to(x + i, n - i)), n - i);   \
  }
MAP(exp)
MAP(tanh)
MAP(erf)
MAP(sigmoid)
