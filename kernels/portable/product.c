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

/* The exact sums of one block: 16 rows x 32 columns. Products of two columns
 * fit 16 bits each way only as int32, which is what the loop says. */
static void block_sums(const int8_t *restrict w, const int8_t *restrict q, int32_t *restrict sum) {
  memset(sum, 0, HR_PANEL_ROWS * sizeof *sum);
  for (int g = 0; g < HR_Q8_BLOCK / HR_Q8_GROUP; g++, w += HR_PANEL_ROWS * HR_Q8_GROUP, q += 4)
    for (int i = 0; i < HR_PANEL_ROWS; i++)
      sum[i] += w[i * 4] * q[0] + w[i * 4 + 1] * q[1] + w[i * 4 + 2] * q[2] + w[i * 4 + 3] * q[3];
}

void hr_product_q8__portable(const hr_product *p) {
  size_t blocks = hr_q8_blocks(p->k), panel_bytes = hr_panel_bytes(HR_PANEL_Q8, p->k);
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) {
    const char *panel = (const char *)p->panels + first / HR_PANEL_ROWS * panel_bytes;
    for (size_t row = 0; row < p->rows; row++) {
      const char *x = row_of(p, row);
      const float *xs = (const float *)(const void *)(x + hr_q8_row_scales_at(p->k));
      float acc[HR_LANES] = {0};
      for (size_t b = 0; b < blocks; b++) {
        const uint16_t *ws = (const uint16_t *)(const void *)(panel + hr_q8_scales_at(b));
        int32_t sum[HR_LANES];
        block_sums((const int8_t *)panel + hr_q8_weights_at(b),
                   (const int8_t *)x + b * HR_Q8_BLOCK, sum);
        for (int i = 0; i < HR_LANES; i++)
          acc[i] = hr_fmaf((float)sum[i], hr_widen_half(ws[i]) * xs[b], acc[i]);
      }
      finish(p, first, row, acc);
    }
  }
}

void hr_product_one_q8__portable(const hr_product *p) {
  hr_product_q8__portable(p);
}
