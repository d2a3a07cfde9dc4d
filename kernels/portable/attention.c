/* SPDX-License-Identifier: MIT
 * Multi-head attention's kernel: queries against one block of keys and values. */
#include "kernels/portable/elementary.h"
#include "kernels/portable/half.h"
#include "kernels/portable/portable.h"
#include "kernels/portable/reduce.h"

typedef enum cache_type { CACHE_F32, CACHE_F16 } cache_type;

__attribute__((always_inline)) static inline void cached16(cache_type type, const void *cache,
                                                           size_t at, float *restrict x) {
  const float *f = (const float *)cache + at;
  const uint16_t *h = (const uint16_t *)cache + at;
  for (int i = 0; i < HR_LANES; i++) x[i] = type == CACHE_F32 ? f[i] : hr_widen_half(h[i]);
}

/* Scores of the panels that hold keys first..end-1, counted from the block's
 * start; lanes outside that range are computed and never read. */
__attribute__((always_inline)) static inline void scores(const hr_attend *a, cache_type type,
                                                         const hr_query *query, size_t base,
                                                         size_t first, size_t end, float *s) {
  for (size_t j = first / 16 * 16; j < end; j += 16) {
    float acc[HR_LANES] = {0}, k[HR_LANES];
    for (size_t i = 0; i < a->width; i++) {
      cached16(type, a->keys, hr_key_at(a->width, j) + i * HR_KEY_PANEL, k);
      hr_fma16(k, query->q[i], acc);
    }
    for (size_t lane = 0; lane < HR_LANES; lane++) {
      float t = acc[lane];
      if (a->cap != 0.0f) t = a->cap * hr_tanh(t / a->cap);
      int64_t distance = (int64_t)query->position - (int64_t)(base + j + lane);
      s[j + lane] = hr_fmaf(-query->slope, (float)(distance < 0 ? -distance : distance), t);
    }
  }
}

__attribute__((always_inline)) static inline void attend(const hr_attend *a, cache_type type,
                                                         const hr_query *query) {
  size_t base = (size_t)a->block * HR_KEY_BLOCK, padded = hr_round_up(a->width, 16);
  size_t first = query->first > base ? query->first - base : 0;
  size_t end = query->end > base ? query->end - base : 0;
  if (end > HR_KEY_BLOCK) end = HR_KEY_BLOCK;
  memset(query->out, 0, padded * sizeof *query->out);
  *query->max = -__builtin_inff();
  *query->sum = 0.0f;
  if (first >= end) return;

  float s[HR_KEY_BLOCK], lane[HR_LANES] = {0};
  scores(a, type, query, base, first, end, s);
  float m = hr_row_max(s + first, end - first);
  for (size_t j = first; j < end; j++) {
    s[j] = hr_exp(s[j] - m);
    lane[j % HR_LANES] = lane[j % HR_LANES] + s[j];
  }
  for (size_t i = 0; i < padded; i += HR_LANES) {
    float acc[HR_LANES] = {0}, v[HR_LANES];
    for (size_t j = first; j < end; j++) {
      cached16(type, a->values, j * padded + i, v);
      hr_fma16(v, s[j], acc);
    }
    memcpy(query->out + i, acc, sizeof acc);
  }
  *query->max = m;
  *query->sum = hr_fold16(lane);
}

void hr_attend_f32__portable(const hr_attend *a) {
  for (size_t i = 0; i < a->count; i++) attend(a, CACHE_F32, &a->queries[i]);
}
void hr_attend_f16__portable(const hr_attend *a) {
  for (size_t i = 0; i < a->count; i++) attend(a, CACHE_F16, &a->queries[i]);
}

void hr_attend_merge__portable(size_t queries, float *m, float *l, float *o, const float *bm,
                               const float *bl, const float *bo, size_t n) {
  for (size_t q = 0; q < queries; q++, o += n, bo += n) {
    hr_merge_factors by = hr_merge_sums(&m[q], &l[q], bm[q], bl[q]);
    for (size_t i = 0; i < n; i++) o[i] = hr_fmaf(bo[i], by.later, o[i] * by.running);
  }
}

void hr_attend_join__portable(size_t blocks, float *m, float *l, float *o, size_t n) {
  for (size_t b = 1; b < blocks; b++)
    hr_attend_merge__portable(1, m, l, o, m + b, l + b, o + b * n, n);
}

void hr_store_key_f32__portable(const float *x, size_t width, void *block, size_t position) {
  float *out = (float *)block + hr_key_at(width, position);
  for (size_t i = 0; i < width; i++) out[i * HR_KEY_PANEL] = x[i];
}
void hr_store_key_f16__portable(const float *x, size_t width, void *block, size_t position) {
  uint16_t *out = (uint16_t *)block + hr_key_at(width, position);
  for (size_t i = 0; i < width; i++) out[i * HR_KEY_PANEL] = hr_narrow_half(x[i]);
}
void hr_store_value_f32__portable(const float *x, size_t width, void *block, size_t position) {
  float *out = (float *)block + position * hr_round_up(width, 16);
  for (size_t i = 0; i < width; i++) out[i] = x[i];
}
void hr_store_value_f16__portable(const float *x, size_t width, void *block, size_t position) {
  uint16_t *out = (uint16_t *)block + position * hr_round_up(width, 16);
  for (size_t i = 0; i < width; i++) out[i] = hr_narrow_half(x[i]);
}
