/* SPDX-License-Identifier: MIT
 * Matrix products with int8 panels by the dot product instructions: one sdot
 * takes 4 outputs x 4 columns, its columns of x being one lane of a register. */
#include "kernels/neon/neon.h"
#include "kernels/neon/neon_q8.h"

#ifndef __ARM_FEATURE_DOTPROD
#error "needs -march=armv8.2-a+dotprod"
#endif

enum { ROWS = 3 }; /* 12 sums, 12 accumulators, 3 of x, 4 of weights, 1 left */

static const int32_t magic[4] = {HR_NEON_MAGIC_BITS, HR_NEON_MAGIC_BITS, HR_NEON_MAGIC_BITS,
                                 HR_NEON_MAGIC_BITS};

/* One group, the lane'th of a half block. */
#define DOT_GROUP(lane)                                                            \
  HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {                                   \
    int8x16_t wi = vld1q_s8(w + lane * 64 + 16 * i);                               \
    HR_UNROLL for (int r = 0; r < rows; r++)                                       \
      s[r][i] = vdotq_laneq_s32(s[r][i], wi, x[r], lane);                          \
  }

/* Sums of one block. They start from memory, each by a load of its own (hence
 * volatile): loads are free here, while a move takes a slot of a multiply pipe. */
HR_INLINE void block(int rows, const int8_t *w, const hr_neon_q8_row *row, size_t b,
                     int32x4_t (*s)[HR_QUADS]) {
  int8x16_t x[ROWS];
  HR_UNROLL for (int r = 0; r < rows; r++)
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++)
      s[r][i] = *(const volatile int32x4_t *)(const void *)magic;
  HR_UNROLL for (int half = 0; half < 2; half++, w += 256) {
    HR_UNROLL for (int r = 0; r < rows; r++)
      x[r] = vld1q_s8(row[r].q + b * HR_Q8_BLOCK + 16 * half);
    DOT_GROUP(0)
    DOT_GROUP(1)
    DOT_GROUP(2)
    DOT_GROUP(3)
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
    int32x4_t s[ROWS][HR_QUADS];
    float32x4_t scale[HR_QUADS];
    block(rows, (const int8_t *)panel + hr_q8_weights_at(b), x, b, s);
    hr_neon_widen16(HR_PANEL_F16, panel + hr_q8_scales_at(b), 0, scale);
    HR_UNROLL for (int r = 0; r < rows; r++)
      HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {
        float32x4_t sum = vsubq_f32(vreinterpretq_f32_s32(s[r][i]), vdupq_n_f32(HR_NEON_MAGIC));
        acc[r][i] = vfmaq_f32(acc[r][i], sum, vmulq_n_f32(scale[i], x[r].scales[b]));
      }
  }
  HR_UNROLL for (int r = 0; r < rows; r++) {
    float32x4_t sum[HR_QUADS]; /* a copy: an array whose address is passed on stays in memory */
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) sum[i] = acc[r][i];
    hr_neon_finish(p, first, row + (size_t)r, sum);
  }
}

void hr_product_q8__dotprod(const hr_product *p) {
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) {
    size_t row = 0;
    for (; row + ROWS <= p->rows; row += ROWS) tile(p, ROWS, first, row);
    if (p->rows - row == 2) tile(p, 2, first, row);
    if (p->rows - row == 1) tile(p, 1, first, row);
  }
}

void hr_product_one_q8__dotprod(const hr_product *p) {
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) tile(p, 1, first, 0);
}

void hr_dotprod_fill(hr_kernels *table) {
  HR_KERNEL_SET(table, product_q8, dotprod);
  HR_KERNEL_SET(table, product_one_q8, dotprod);
}
