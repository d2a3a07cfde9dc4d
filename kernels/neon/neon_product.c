/* SPDX-License-Identifier: MIT
 * Matrix products with fp32, fp16 and bf16 panels. */
#include "kernels/neon/neon.h"
#include "kernels/neon/neon_tile.h"

enum {
  TILES = 5, /* panels x rows of a tile, at most */
  GROUP = 80 /* rows that share a chunk of weights */
};

/* Adds a chunk's chains to the sums, or begins them. */
HR_INLINE void keep(int tiles, bool begin, float32x4_t (*c)[HR_QUADS], float (*sum)[HR_LANES]) {
  HR_UNROLL for (int t = 0; t < tiles; t++)
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) {
      float *s = sum[t] + 4 * i;
      vst1q_f32(s, begin ? c[t][i] : vaddq_f32(vld1q_f32(s), c[t][i]));
    }
}

/* One chunk of columns, from `begin` on, of some panels against some rows. */
HR_INLINE void chunk(const hr_product *p, hr_panel_type type, int panels, int rows,
                     hr_neon_columns m, size_t row, size_t begin, float (*sum)[HR_LANES]) {
  const float *x[TILES];
  float32x4_t c[TILES][HR_QUADS];
  size_t n = p->k - begin < HR_CHAIN ? p->k - begin : HR_CHAIN;
  HR_UNROLL for (int r = 0; r < rows; r++)
    x[r] = (const float *)hr_neon_row(p, row + (size_t)r) + begin;
  HR_UNROLL for (int t = 0; t < panels * rows; t++)
    HR_UNROLL for (int i = 0; i < HR_QUADS; i++) c[t][i] = vdupq_n_f32(0.0f);
  hr_neon_chain(type, panels, rows, m, x, n, c);
  keep(panels * rows, begin == 0, c, sum);
}

static void finish(const hr_product *p, size_t first, size_t row, const float *sum) {
  float32x4_t s[HR_QUADS];
  for (int i = 0; i < HR_QUADS; i++) s[i] = vld1q_f32(sum + 4 * i);
  hr_neon_finish(p, first, row, s);
}

HR_INLINE const char *panel_at(const hr_product *p, hr_panel_type type, size_t first) {
  return (const char *)p->panels + first / HR_PANEL_ROWS * hr_panel_bytes(type, p->k);
}

/* Some panels from output `first` on against a few rows from `row` on. */
HR_INLINE void tile(const hr_product *p, hr_panel_type type, int panels, int rows, size_t first,
                    size_t row) {
  float sum[TILES][HR_LANES];
  const char *panel = panel_at(p, type, first);
  size_t begin = 0;
  do {
    hr_neon_columns m = {panel + hr_panel_bytes(type, begin), HR_PANEL_ROWS, p->k * HR_PANEL_ROWS};
    chunk(p, type, panels, rows, m, row, begin, sum);
    begin += HR_CHAIN;
  } while (begin < p->k);
  for (int t = 0; t < panels * rows; t++)
    finish(p, first + (size_t)(t / rows) * HR_PANEL_ROWS, row + (size_t)(t % rows), sum[t]);
}

/* One chunk of one fp32 panel against five rows, which fill the registers: 20
 * accumulators, 5 of x, 4 of weights. Not inlined, so that no variable of a
 * caller takes one of them. */
__attribute__((noinline)) static void five_rows(const hr_product *p, const float *w, size_t row,
                                                size_t begin, float (*sum)[HR_LANES]) {
  hr_neon_columns m = {w, HR_PANEL_ROWS, 0};
  chunk(p, HR_PANEL_F32, 1, 5, m, row, begin, sum);
}

static void chunk_of_group(const hr_product *p, const float *w, size_t row, size_t rows,
                           size_t begin, float (*sum)[HR_LANES]) {
  hr_neon_columns m = {w, HR_PANEL_ROWS, 0};
  for (; rows >= 5; rows -= 5, row += 5, sum += 5) five_rows(p, w, row, begin, sum);
  switch (rows) {
    case 4: chunk(p, HR_PANEL_F32, 1, 4, m, row, begin, sum); break;
    case 3: chunk(p, HR_PANEL_F32, 1, 3, m, row, begin, sum); break;
    case 2: chunk(p, HR_PANEL_F32, 1, 2, m, row, begin, sum); break;
    case 1: chunk(p, HR_PANEL_F32, 1, 1, m, row, begin, sum); break;
    default: break;
  }
}

/* Many rows share a chunk while it is in the cache; one that is not fp32 is
 * widened once for all of them, for that competes with fma for its pipes. */
HR_INLINE void product_many(const hr_product *p, hr_panel_type type) {
  float sum[GROUP][HR_LANES];
  float wide[HR_CHAIN * HR_PANEL_ROWS] __attribute__((aligned(64)));
  for (size_t row = 0; row < p->rows; row += GROUP) {
    size_t rows = p->rows - row < GROUP ? p->rows - row : GROUP;
    for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) {
      for (size_t begin = 0; begin < p->k; begin += HR_CHAIN) {
        const char *w = panel_at(p, type, first) + hr_panel_bytes(type, begin);
        size_t n = p->k - begin < HR_CHAIN ? p->k - begin : HR_CHAIN;
        for (size_t k = 0; type != HR_PANEL_F32 && k < n * HR_PANEL_ROWS; k += HR_PANEL_ROWS) {
          float32x4_t q[HR_QUADS];
          hr_neon_widen16(type, w, k, q);
          HR_UNROLL for (int i = 0; i < HR_QUADS; i++) vst1q_f32(wide + k + 4 * i, q[i]);
        }
        chunk_of_group(p, type == HR_PANEL_F32 ? (const float *)(const void *)w : wide, row, rows,
                       begin, sum);
      }
      for (size_t r = 0; r < rows; r++) finish(p, first, row + r, sum[r]);
    }
  }
}

HR_INLINE void product(const hr_product *p, hr_panel_type type) {
  size_t first = 0;
  switch (p->rows) {
    case 1: for (; first < p->n; first += HR_PANEL_ROWS) tile(p, type, 1, 1, first, 0); break;
    case 2: for (; first < p->n; first += HR_PANEL_ROWS) tile(p, type, 1, 2, first, 0); break;
    case 3: for (; first < p->n; first += HR_PANEL_ROWS) tile(p, type, 1, 3, first, 0); break;
    case 4: for (; first < p->n; first += HR_PANEL_ROWS) tile(p, type, 1, 4, first, 0); break;
    default: product_many(p, type); break;
  }
}

/* One row: three panels at a time, so that twelve chains hide the latency of fma. */
HR_INLINE void product_one(const hr_product *p, hr_panel_type type) {
  size_t first = 0;
  for (; first + 2 * HR_PANEL_ROWS < p->n; first += 3 * HR_PANEL_ROWS)
    tile(p, type, 3, 1, first, 0);
  for (; first < p->n; first += HR_PANEL_ROWS) tile(p, type, 1, 1, first, 0);
}

void hr_product_f32__neon(const hr_product *p) {
  product(p, HR_PANEL_F32);
}
void hr_product_f16__neon(const hr_product *p) {
  product(p, HR_PANEL_F16);
}
void hr_product_bf16__neon(const hr_product *p) {
  product(p, HR_PANEL_BF16);
}
void hr_product_one_f32__neon(const hr_product *p) {
  product_one(p, HR_PANEL_F32);
}
void hr_product_one_f16__neon(const hr_product *p) {
  product_one(p, HR_PANEL_F16);
}
void hr_product_one_bf16__neon(const hr_product *p) {
  product_one(p, HR_PANEL_BF16);
}
