/* SPDX-License-Identifier: MIT
 * Parts that the products and attention share: fma chains with a lane for each
 * of 16 outputs, and the end of a product. */
#ifndef HR_KERNELS_NEON_TILE_H
#define HR_KERNELS_NEON_TILE_H

#include <arm_neon.h>
#include <string.h>

#include "kernels/kernels.h"

#define HR_INLINE __attribute__((always_inline)) static inline

/* Before a loop whose count is a constant after inlining: its arrays of vectors
 * then become registers, with clang only when it is told that nothing of the loop stays. */
#ifdef __clang__
#define HR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HR_UNROLL _Pragma("GCC unroll 16")
#endif

enum { HR_QUADS = HR_PANEL_ROWS / 4 }; /* registers of 16 floats */

/* 16 elements that lie side by side, widened. */
HR_INLINE void hr_neon_widen16(hr_panel_type type, const void *from, size_t at,
                               float32x4_t w[HR_QUADS]) {
  if (type == HR_PANEL_F32) {
    const float *f = (const float *)from + at;
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) w[i] = vld1q_f32(f + 4 * i);
    return;
  }
  const uint16_t *h = (const uint16_t *)from + at;
  HR_UNROLL for (int i = 0; i < HR_QUADS / 2; i++) {
    uint16x8_t u = vld1q_u16(h + 8 * i);
    if (type == HR_PANEL_F16) {
      w[2 * i] = vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u16(u)));
      w[2 * i + 1] = vcvt_high_f32_f16(vreinterpretq_f16_u16(u));
    } else {
      w[2 * i] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(u), 16));
      w[2 * i + 1] = vreinterpretq_f32_u32(vshll_high_n_u16(u, 16));
    }
  }
}

/* Where the elements of a chain lie: lane l of column k of panel p is element
 * p * panel + k * column + l. Weights, keys and values all have this form. */
typedef struct hr_neon_columns {
  const void *from;
  size_t column;
  size_t panel;
} hr_neon_columns;

/* Quad i of column k of panel p of an fp32 matrix. */
HR_INLINE float32x4_t hr_neon_quad(hr_neon_columns m, int p, size_t k, int i) {
  return vld1q_f32((const float *)m.from + (size_t)p * m.panel + k * m.column + 4 * i);
}

/* The quad after that, in the order of the loops below, of columns k..k + columns - 1. */
HR_INLINE float32x4_t hr_neon_next(hr_neon_columns m, int panels, int p, size_t k, int lane,
                                   int columns, int i, float32x4_t last) {
  if (i + 1 < HR_QUADS) return hr_neon_quad(m, p, k + (size_t)lane, i + 1);
  if (p + 1 < panels) return hr_neon_quad(m, p + 1, k + (size_t)lane, 0);
  if (lane + 1 < columns) return hr_neon_quad(m, 0, k + (size_t)lane + 1, 0);
  return last;
}

/* One of `columns` columns against lane `lane` of the rows' x. Fp32 weights are
 * loaded one quad ahead of their use: CPUs that run in order wait for a load. */
#define HR_CHAIN_COLUMN(lane, columns)                                                  \
  HR_UNROLL for (int p = 0; p < panels; p++) {                                          \
    float32x4_t w[HR_QUADS];                                                            \
    if (type != HR_PANEL_F32)                                                           \
      hr_neon_widen16(type, m.from, (size_t)p * m.panel + (k + lane) * m.column, w);    \
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {                                      \
      if (type == HR_PANEL_F32) {                                                       \
        w[i] = ahead;                                                                   \
        ahead = hr_neon_next(m, panels, p, k, lane, columns, i, ahead);                 \
      }                                                                                 \
      HR_UNROLL for (int r = 0; r < rows; r++)                                          \
        c[p * rows + r][i] = vfmaq_laneq_f32(c[p * rows + r][i], w[i], xk[r], lane);    \
    }                                                                                   \
  }

/* c[p * rows + r] = chain over 0 <= k < n of fma(w, x[r][k], c) for each panel p
 * and row r. panels and rows are constants with panels * rows <= 5. */
HR_INLINE void hr_neon_chain(hr_panel_type type, int panels, int rows, hr_neon_columns m,
                             const float *const *x, size_t n, float32x4_t (*c)[HR_QUADS]) {
  float32x4_t xk[5], ahead = vdupq_n_f32(0.0f);
  size_t k = 0;
  for (; k + 4 <= n; k += 4) {
    if (type == HR_PANEL_F32) ahead = hr_neon_quad(m, 0, k, 0);
    HR_UNROLL for (int r = 0; r < rows; r++) xk[r] = vld1q_f32(x[r] + k);
    HR_CHAIN_COLUMN(0, 4)
    HR_CHAIN_COLUMN(1, 4)
    HR_CHAIN_COLUMN(2, 4)
    HR_CHAIN_COLUMN(3, 4)
  }
  for (; k < n; k++) {
    if (type == HR_PANEL_F32) ahead = hr_neon_quad(m, 0, k, 0);
    HR_UNROLL for (int r = 0; r < rows; r++) xk[r] = vld1q_dup_f32(x[r] + k);
    HR_CHAIN_COLUMN(0, 1)
  }
}

static inline const void *hr_neon_row(const hr_product *p, size_t row) {
  return (const char *)p->x + row * p->x_stride;
}

/* bias, what y held, and the store of a panel's valid outputs. */
__attribute__((noinline, unused)) static void hr_neon_finish(const hr_product *p, size_t first,
                                                             size_t row,
                                                             const float32x4_t sum[HR_QUADS]) {
  float *y = p->y + row * p->y_stride + first;
  if (p->n - first >= HR_PANEL_ROWS) {
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {
      float32x4_t t = sum[i];
      if (p->bias) t = vaddq_f32(t, vld1q_f32(p->bias + first + 4 * i));
      vst1q_f32(y + 4 * i, p->add ? vaddq_f32(vld1q_f32(y + 4 * i), t) : t);
    }
    return;
  }
  float lanes[HR_PANEL_ROWS];
  for (int i = 0; i < HR_QUADS; i++) vst1q_f32(lanes + 4 * i, sum[i]);
  for (size_t i = 0; i < p->n - first; i++) {
    float t = lanes[i];
    if (p->bias) t = t + p->bias[first + i];
    y[i] = p->add ? y[i] + t : t;
  }
}

#endif
