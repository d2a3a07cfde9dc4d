/* SPDX-License-Identifier: MIT
 * Matrix products with int8 panels for Armv8.0: widening multiplies. */
#include "kernels/neon/neon.h"
#include "kernels/neon/neon_q8.h"

enum { ROWS = 2, HALVES = 2 * HR_QUADS };

/* Two groups of columns of one panel: 4 output rows in each quad. Products of
 * two columns fit 16 bits, -128 * 127 * 2 = -32,512, so that two multiplies
 * share one widening addition; lanes 2r and 2r + 1 of a pair of sums belong to
 * output r. */
HR_INLINE void two_groups(int rows, const int8_t *w, const int8x16_t *x0, const int8x16_t *x1,
                          bool begin, int32x4_t (*s)[HALVES]) {
  HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {
    int8x16_t w0 = vld1q_s8(w + 16 * i), w1 = vld1q_s8(w + 64 + 16 * i);
    int16x8_t low[ROWS], high[ROWS];
    HR_UNROLL for (int r = 0; r < rows; r++) {
      low[r] = vmull_s8(vget_low_s8(w0), vget_low_s8(x0[r]));
      high[r] = vmull_high_s8(w0, x0[r]);
    }
    HR_UNROLL for (int r = 0; r < rows; r++) {
      low[r] = vmlal_s8(low[r], vget_low_s8(w1), vget_low_s8(x1[r]));
      high[r] = vmlal_high_s8(high[r], w1, x1[r]);
    }
    HR_UNROLL for (int r = 0; r < rows; r++) {
      s[r][2 * i] = begin ? vpaddlq_s16(low[r]) : vpadalq_s16(s[r][2 * i], low[r]);
      s[r][2 * i + 1] = begin ? vpaddlq_s16(high[r]) : vpadalq_s16(s[r][2 * i + 1], high[r]);
    }
  }
}

/* Four columns of a row in every lane. */
HR_INLINE int8x16_t columns(const int8_t *q) {
  int32_t four;
  memcpy(&four, q, sizeof four);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

HR_INLINE void block(int rows, const int8_t *w, const hr_neon_q8_row *row, size_t b,
                     int32x4_t (*s)[HALVES]) {
  HR_UNROLL for (int g = 0; g < HR_Q8_BLOCK / HR_Q8_GROUP; g += 2) {
    int8x16_t x0[ROWS], x1[ROWS];
    HR_UNROLL for (int r = 0; r < rows; r++) {
      x0[r] = columns(row[r].q + b * HR_Q8_BLOCK + g * HR_Q8_GROUP);
      x1[r] = columns(row[r].q + b * HR_Q8_BLOCK + (g + 1) * HR_Q8_GROUP);
    }
    two_groups(rows, w + g * HR_Q8_GROUP * HR_PANEL_ROWS, x0, x1, g == 0, s);
  }
}

HR_INLINE void tile(const hr_product *p, int rows, size_t first, size_t row) {
  const char *panel = hr_neon_q8_panel(p, first);
  hr_neon_q8_row x[ROWS];
  float32x4_t acc[ROWS][HR_QUADS];
  HR_UNROLL for (int r = 0; r < rows; r++) {
    x[r] = hr_neon_q8_row_at(p, row + (size_t)r);
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) acc[r][i] = vdupq_n_f32(0.0f);
  }
  for (size_t b = 0; b < hr_q8_blocks(p->k); b++) {
    int32x4_t s[ROWS][HALVES];
    float32x4_t scale[HR_QUADS];
    block(rows, (const int8_t *)panel + hr_q8_weights_at(b), x, b, s);
    hr_neon_widen16(HR_PANEL_F16, panel + hr_q8_scales_at(b), 0, scale);
    HR_UNROLL for (int r = 0; r < rows; r++)
      HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {
        float32x4_t sum = vcvtq_f32_s32(vpaddq_s32(s[r][2 * i], s[r][2 * i + 1]));
        acc[r][i] = vfmaq_f32(acc[r][i], sum, vmulq_n_f32(scale[i], x[r].scales[b]));
      }
  }
  HR_UNROLL for (int r = 0; r < rows; r++) {
    float32x4_t sum[HR_QUADS]; /* a copy: an array whose address is passed on stays in memory */
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) sum[i] = acc[r][i];
    hr_neon_finish(p, first, row + (size_t)r, sum);
  }
}

void hr_product_q8__neon(const hr_product *p) {
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) {
    size_t row = 0;
    for (; row + ROWS <= p->rows; row += ROWS) tile(p, ROWS, first, row);
    if (row < p->rows) tile(p, 1, first, row);
  }
}

void hr_product_one_q8__neon(const hr_product *p) {
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) tile(p, 1, first, 0);
}
