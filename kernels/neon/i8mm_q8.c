/* SPDX-License-Identifier: MIT
 * Matrix products with int8 panels by the matrix multiply instructions: one
 * smmla takes 2 outputs x 2 rows x 8 columns.
 *
 * Panels and rows hold neither pairs of 8 columns side by side, so both are
 * rearranged, a few blocks at a time, into buffers small enough for the first
 * cache: weights of PANELS panels, used by all rows of a tile, and x of ROWS
 * rows, used by all these panels. Accumulators keep the form that smmla gives
 * until the end: outputs 2i and 2i + 1, each for rows a and b. */
#include "kernels/neon/neon.h"
#include "kernels/neon/neon_q8.h"

#ifndef __ARM_FEATURE_MATMUL_INT8
#error "needs -march=armv8.2-a+dotprod+i8mm"
#endif

enum {
  ROWS = 32,   /* of x in a tile */
  PANELS = 4,  /* of weights in a tile */
  BLOCKS = 8,  /* of both at a time */
  FEWEST = 8,  /* rows that repay the rearranging */
  STEPS = HR_Q8_BLOCK / 8,
  PAIRS = 4    /* pairs of outputs in half a panel */
};

/* Half a panel: 8 outputs. */
typedef struct half_panel {
  int8x16_t w[BLOCKS][STEPS][PAIRS];
  float32x4_t scale[BLOCKS][PAIRS]; /* each output's twice */
} half_panel;

/* Four rows as two pairs. */
typedef struct four_rows {
  int8x16_t x[BLOCKS][STEPS][2];
  float32x4_t scale[BLOCKS][2]; /* a, b, a, b */
} four_rows;

typedef struct sums {
  float32x4_t acc[PAIRS][2];
} sums;

typedef struct tile {
  half_panel w[PANELS][2];
  four_rows x[ROWS / 4];
  sums y[PANELS][ROWS / 4][2];
} tile;

static void rearrange_panel(const char *panel, size_t begin, size_t blocks, half_panel half[2]) {
  for (size_t b = 0; b < blocks; b++) {
    const int8_t *w = (const int8_t *)panel + hr_q8_weights_at(begin + b);
    float32x4_t scale[HR_QUADS];
    hr_neon_widen16(HR_PANEL_F16, panel + hr_q8_scales_at(begin + b), 0, scale);
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {
      half_panel *to = &half[i / 2];
      int at = i % 2 * 2;
      to->scale[b][at] = vzip1q_f32(scale[i], scale[i]);
      to->scale[b][at + 1] = vzip2q_f32(scale[i], scale[i]);
      HR_UNROLL for (int step = 0; step < STEPS; step++) {
        int32x4_t g0 = vreinterpretq_s32_s8(vld1q_s8(w + 128 * step + 16 * i));
        int32x4_t g1 = vreinterpretq_s32_s8(vld1q_s8(w + 128 * step + 64 + 16 * i));
        to->w[b][step][at] = vreinterpretq_s8_s32(vzip1q_s32(g0, g1));
        to->w[b][step][at + 1] = vreinterpretq_s8_s32(vzip2q_s32(g0, g1));
      }
    }
  }
}

static void rearrange_pair(hr_neon_q8_row r0, hr_neon_q8_row r1, size_t begin, size_t blocks,
                           four_rows *to, int pair) {
  for (size_t b = 0; b < blocks; b++) {
    float32x2_t scales = {r0.scales[begin + b], r1.scales[begin + b]};
    to->scale[b][pair] = vcombine_f32(scales, scales);
    HR_UNROLL for (int i = 0; i < STEPS; i += 2) {
      size_t at = (begin + b) * HR_Q8_BLOCK + 8 * (size_t)i;
      int64x2_t x0 = vreinterpretq_s64_s8(vld1q_s8(r0.q + at));
      int64x2_t x1 = vreinterpretq_s64_s8(vld1q_s8(r1.q + at));
      to->x[b][i][pair] = vreinterpretq_s8_s64(vzip1q_s64(x0, x1));
      to->x[b][i + 1][pair] = vreinterpretq_s8_s64(vzip2q_s64(x0, x1));
    }
  }
}

/* Rows past the last one repeat it; their results are not stored. */
static void rearrange_rows(const hr_product *p, size_t row, size_t rows, size_t begin,
                           size_t blocks, four_rows *to) {
  for (size_t r = 0; r < rows; r += 2) {
    size_t r1 = r + 1 < rows ? r + 1 : r;
    rearrange_pair(hr_neon_q8_row_at(p, row + r), hr_neon_q8_row_at(p, row + r1), begin, blocks,
                   &to[r / 4], r / 2 % 2);
  }
  if ((rows & 3) - 1 < 2) /* one or two rows in the last four */
    rearrange_pair(hr_neon_q8_row_at(p, row + rows - 1), hr_neon_q8_row_at(p, row + rows - 1),
                   begin, blocks, &to[rows / 4], 1);
}

static const int32_t magic[4] = {HR_NEON_MAGIC_BITS, HR_NEON_MAGIC_BITS, HR_NEON_MAGIC_BITS,
                                 HR_NEON_MAGIC_BITS};

/* Sums start from memory, each by a load of its own (hence volatile): loads are
 * free here, while a move takes a slot of a multiply pipe. */
static void multiply(const half_panel *w, const four_rows *x, size_t blocks, sums *y) {
  sums t = *y;
  for (size_t b = 0; b < blocks; b++) {
    int32x4_t s[PAIRS][2];
    HR_UNROLL for (int i = 0; i < PAIRS; i++)
      HR_UNROLL for (int pair = 0; pair < 2; pair++)
        s[i][pair] = *(const volatile int32x4_t *)(const void *)magic;
    HR_UNROLL for (int step = 0; step < STEPS; step++)
      HR_UNROLL for (int i = 0; i < PAIRS; i++)
        HR_UNROLL for (int pair = 0; pair < 2; pair++)
          s[i][pair] = vmmlaq_s32(s[i][pair], w->w[b][step][i], x->x[b][step][pair]);
    HR_UNROLL for (int i = 0; i < PAIRS; i++)
      HR_UNROLL for (int pair = 0; pair < 2; pair++) {
        float32x4_t sum =
            vsubq_f32(vreinterpretq_f32_s32(s[i][pair]), vdupq_n_f32(HR_NEON_MAGIC));
        float32x4_t scale = vmulq_f32(w->scale[b][i], x->scale[b][pair]);
        t.acc[i][pair] = vfmaq_f32(t.acc[i][pair], sum, scale);
      }
  }
  *y = t;
}

/* One panel's results for four rows, as far as there are that many. */
static void finish_four(const hr_product *p, const sums y[2], size_t first, size_t row,
                        size_t rows) {
  for (size_t r = 0; r < 4 && r < rows; r++) {
    float32x4_t sum[HR_QUADS];
    for (int i = 0; i < HR_QUADS; i++) {
      const float32x4_t(*acc)[2] = &y[i / 2].acc[i % 2 * 2];
      sum[i] = r & 1 ? vuzp2q_f32(acc[0][r / 2], acc[1][r / 2])
                     : vuzp1q_f32(acc[0][r / 2], acc[1][r / 2]);
    }
    hr_neon_finish(p, first, row + r, sum);
  }
}

static void run_tile(const hr_product *p, tile *t, size_t first, size_t row, size_t rows) {
  size_t blocks = hr_q8_blocks(p->k), fours = (rows + 3) / 4;
  size_t panels = (p->n - first + HR_PANEL_ROWS - 1) / HR_PANEL_ROWS;
  if (panels > PANELS) panels = PANELS;
  memset(t->y, 0, sizeof t->y);
  for (size_t begin = 0; begin < blocks; begin += BLOCKS) {
    size_t n = blocks - begin < BLOCKS ? blocks - begin : BLOCKS;
    rearrange_rows(p, row, rows, begin, n, t->x);
    for (size_t i = 0; i < panels; i++) {
      rearrange_panel(hr_neon_q8_panel(p, first + i * HR_PANEL_ROWS), begin, n, t->w[i]);
      for (size_t r = 0; r < fours; r++)
        for (int half = 0; half < 2; half++)
          multiply(&t->w[i][half], &t->x[r], n, &t->y[i][r][half]);
    }
  }
  for (size_t i = 0; i < panels; i++)
    for (size_t r = 0; r < fours; r++)
      finish_four(p, t->y[i][r], first + i * HR_PANEL_ROWS, row + 4 * r, rows - 4 * r);
}

void hr_product_q8__i8mm(const hr_product *p) {
  tile t;
  size_t row = 0;
  while (p->rows - row >= FEWEST) {
    size_t rows = p->rows - row < ROWS ? p->rows - row : ROWS;
    for (size_t first = 0; first < p->n; first += PANELS * HR_PANEL_ROWS)
      run_tile(p, &t, first, row, rows);
    row += rows;
  }
  if (row == p->rows) return;
  hr_product rest = *p;
  rest.x = hr_neon_row(p, row);
  rest.y = p->y + row * p->y_stride;
  rest.rows = p->rows - row;
  hr_product_q8__dotprod(&rest);
}

void hr_i8mm_fill(hr_kernels *table) {
  HR_KERNEL_SET(table, product_q8, i8mm);
}
