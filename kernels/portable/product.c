/* SPDX-License-Identifier: MIT
 * Matrix products. Lanes run across the 16 output rows of a panel, so no lane
 * is ever folded into another. */
#include "kernels/portable/half.h"
#include "kernels/portable/portable.h"

/* bias, what y held, and the store of a panel's valid outputs. */
static void finish(const hr_product *p, size_t first, size_t row, const float *sum) {
  size_t valid = p->n - first < HR_PANEL_ROWS ? p->n - first : HR_PANEL_ROWS;
  float *y = p->y + row * p->y_stride + first;
  for (size_t i = 0; i < valid; i++) {
    float t = sum[i];
    if (p->bias) t = t + p->bias[first + i];
    y[i] = p->add ? y[i] + t : t;
  }
}

static inline const void *row_of(const hr_product *p, size_t row) {
  return (const char *)p->x + row * p->x_stride;
}

__attribute__((always_inline)) static inline void widen16(hr_panel_type type, const void *panel,
                                                          size_t k, float *restrict w) {
  const float *f = (const float *)panel + k * HR_PANEL_ROWS;
  const uint16_t *h = (const uint16_t *)panel + k * HR_PANEL_ROWS;
  for (int i = 0; i < HR_PANEL_ROWS; i++)
    w[i] = type == HR_PANEL_F32   ? f[i]
           : type == HR_PANEL_F16 ? hr_widen_half(h[i])
                                  : hr_widen_brain(h[i]);
}

/* One panel against one chunk of up to 4 rows: c[r] is the chain of row r. */
enum { ROWS = 4 };

__attribute__((always_inline)) static inline void chunk(hr_panel_type type, const void *panel,
                                                        const float *const *x, size_t rows,
                                                        size_t begin, size_t end,
                                                        float c[ROWS][HR_LANES]) {
  for (size_t r = 0; r < rows; r++) memset(c[r], 0, sizeof c[r]);
  for (size_t k = begin; k < end; k++) {
    float w[HR_LANES];
    widen16(type, panel, k, w);
    for (size_t r = 0; r < rows; r++) hr_fma16(w, x[r][k], c[r]);
  }
}

__attribute__((always_inline)) static inline void product_float(const hr_product *p,
                                                                hr_panel_type type) {
  size_t panel_bytes = hr_panel_bytes(type, p->k);
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) {
    const void *panel = (const char *)p->panels + first / HR_PANEL_ROWS * panel_bytes;
    for (size_t row = 0; row < p->rows; row += ROWS) {
      size_t rows = p->rows - row < ROWS ? p->rows - row : ROWS;
      const float *x[ROWS];
      float c[ROWS][HR_LANES], sum[ROWS][HR_LANES];
      for (size_t r = 0; r < rows; r++) x[r] = row_of(p, row + r);
      for (size_t begin = 0; begin < p->k; begin += HR_CHAIN) {
        size_t end = p->k - begin < HR_CHAIN ? p->k : begin + HR_CHAIN;
        chunk(type, panel, x, rows, begin, end, begin ? c : sum);
        for (size_t r = 0; begin && r < rows; r++)
          for (int i = 0; i < HR_LANES; i++) sum[r][i] = sum[r][i] + c[r][i];
      }
      for (size_t r = 0; r < rows; r++) finish(p, first, row + r, sum[r]);
    }
  }
}

void hr_product_f32__portable(const hr_product *p) {
  product_float(p, HR_PANEL_F32);
}
void hr_product_f16__portable(const hr_product *p) {
  product_float(p, HR_PANEL_F16);
}
void hr_product_bf16__portable(const hr_product *p) {
  product_float(p, HR_PANEL_BF16);
}
void hr_product_one_f32__portable(const hr_product *p) {
  product_float(p, HR_PANEL_F32);
}
void hr_product_one_f16__portable(const hr_product *p) {
  product_float(p, HR_PANEL_F16);
}
void hr_product_one_bf16__portable(const hr_product *p) {
  product_float(p, HR_PANEL_BF16);
}

/* int8 blocks. Products of a weight and a value are at most 128 * 127, so the
 * sum of two fits 16 bits: the even and the odd columns of a group, widened to
 * eight int16 each, give four output rows two such sums, one in either half of
 * an int32. Which bytes count as even doesn't matter, as long as weights and
 * values agree. */
typedef int16_t halves __attribute__((vector_size(16)));
typedef int32_t words __attribute__((vector_size(16)));

enum { GROUPS = HR_Q8_BLOCK / HR_Q8_GROUP, VECTOR = 16, VECTOR_ROWS = VECTOR / HR_Q8_GROUP };

typedef struct columns {
  halves even, odd;
} columns;

static inline columns widen_bytes(halves bytes) {
  return (columns){.even = (bytes << 8) >> 8, .odd = bytes >> 8};
}

/* One block of values, each group repeated for four output rows. */
static inline void widen_values(const int8_t *q, columns x[GROUPS]) {
  for (int g = 0; g < GROUPS; g++) {
    int32_t group;
    memcpy(&group, q + g * HR_Q8_GROUP, sizeof group);
    x[g] = widen_bytes((halves)(words){group, group, group, group});
  }
}

/* The exact sums of one block: 16 output rows x 32 columns, for each row of x. */
__attribute__((always_inline)) static inline void block_sums(const int8_t *w,
                                                             columns x[ROWS][GROUPS], size_t rows,
                                                             int32_t sum[ROWS][HR_LANES]) {
  for (int i = 0; i < HR_PANEL_ROWS; i += VECTOR_ROWS) {
    words total[ROWS] = {0};
    for (int g = 0; g < GROUPS; g++) {
      halves bytes;
      memcpy(&bytes, w + (g * HR_PANEL_ROWS + i) * HR_Q8_GROUP, sizeof bytes);
      columns c = widen_bytes(bytes);
      for (size_t r = 0; r < rows; r++) {
        words pair = (words)(c.even * x[r][g].even + c.odd * x[r][g].odd);
        total[r] += ((pair << 16) >> 16) + (pair >> 16);
      }
    }
    for (size_t r = 0; r < rows; r++) memcpy(sum[r] + i, &total[r], sizeof total[r]);
  }
}

/* `rows` rows of one panel, from `row` on. */
__attribute__((always_inline)) static inline void q8_tile(const hr_product *p, size_t first,
                                                          size_t row, size_t rows) {
  size_t blocks = hr_q8_blocks(p->k), scales_at = hr_q8_row_scales_at(p->k);
  const char *panel =
      (const char *)p->panels + first / HR_PANEL_ROWS * hr_panel_bytes(HR_PANEL_Q8, p->k);
  float acc[ROWS][HR_LANES] = {0};
  for (size_t b = 0; b < blocks; b++) {
    columns x[ROWS][GROUPS];
    int32_t sum[ROWS][HR_LANES];
    float w[HR_LANES], scale[HR_LANES];
    for (size_t r = 0; r < rows; r++)
      widen_values((const int8_t *)row_of(p, row + r) + b * HR_Q8_BLOCK, x[r]);
    block_sums((const int8_t *)panel + hr_q8_weights_at(b), x, rows, sum);
    widen16(HR_PANEL_F16, panel + hr_q8_scales_at(b), 0, w);
    for (size_t r = 0; r < rows; r++) {
      float xs;
      memcpy(&xs, (const char *)row_of(p, row + r) + scales_at + b * sizeof xs, sizeof xs);
      for (int i = 0; i < HR_LANES; i++) scale[i] = w[i] * xs;
      hr_fma16_integers(sum[r], scale, acc[r]);
    }
  }
  for (size_t r = 0; r < rows; r++) finish(p, first, row + r, acc[r]);
}

void hr_product_q8__portable(const hr_product *p) {
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) {
    size_t row = 0;
    for (; row + ROWS <= p->rows; row += ROWS) q8_tile(p, first, row, ROWS);
    for (; row < p->rows; row++) q8_tile(p, first, row, 1);
  }
}

void hr_product_one_q8__portable(const hr_product *p) {
  hr_product_q8__portable(p);
}
