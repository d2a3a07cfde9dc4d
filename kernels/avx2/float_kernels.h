/* SPDX-License-Identifier: MIT
 * Products with fp32, fp16 and bf16 panels, for the tier whose file includes
 * this and says KERNEL(slot), and the tile: PANELS x ROWS (up to 12) accumulators that,
 * with PANELS weights and an activation, fill its registers; up to FEW_ROWS (6 at most) rows
 * have FEW_PANELS x rows, or go to another tier's FEW(slot) where that is defined. ONE_AHEAD: how
 * many bytes ahead a few rows fetch 16-bit weights, which take so much work a byte that some CPUs
 * do not look far enough ahead by themselves (0: not at all). fp32 needs none of this. */
#include "kernels/avx2/product.h"

#ifndef FEW
#define FEW(slot) NULL
#endif

HR_INLINE lanes widen16(hr_panel_type type, const char *panel, size_t k) {
  if (type == HR_PANEL_F32) return lanes_load((const float *)(const void *)panel + k * 16);
  const uint16_t *h = (const uint16_t *)(const void *)panel + k * 16;
  return type == HR_PANEL_F16 ? lanes_load_half(h) : lanes_load_brain(h);
}

/* What the rows of one tile read soon of 16-bit weights. */
HR_INLINE void float_fetch(hr_panel_type type, size_t panels, const char *panel,
                           size_t panel_bytes, size_t k) {
  if (type == HR_PANEL_F32 || !ONE_AHEAD) return;
  size_t at = hr_panel_bytes(type, k) + ONE_AHEAD;
  if (at >= panel_bytes) at += (panels - 1) * panel_bytes; /* into the next panels */
  HR_UNROLL for (size_t p = 0; p < panels; p++)
    _mm_prefetch(panel + at + p * panel_bytes, _MM_HINT_T0);
}

/* One chain, for a tile whose size the compiler knows, added to sum. first: no other tile
 * has read the weights before. Otherwise a line is fetched that lies `ahead` bytes behind
 * each weight of the first panel; with 0 it is the weight's own. */
HR_INLINE void float_chain(hr_panel_type type, size_t panels, size_t rows, const char *panel,
                           size_t panel_bytes, const float *const *x, size_t begin, size_t end,
                           float *sum, bool first, ptrdiff_t ahead) {
  lanes c[12][4];
  HR_UNROLL for (size_t r = 0; r < rows; r++)
    HR_UNROLL for (size_t p = 0; p < panels; p++) c[r][p] = lanes_set(0.0f);
  for (size_t k = begin; k < end; k++) {
    lanes w[4];
    if (rows == 1) { /* weight after weight: all at once don't fit AVX2's registers */
      lanes v = lanes_spread(x[0] + k);
      float_fetch(type, panels, panel, panel_bytes, k);
      HR_UNROLL for (size_t p = 0; p < panels; p++)
        c[0][p] = lanes_fma(widen16(type, panel + p * panel_bytes, k), v, c[0][p]);
      continue;
    }
    if (first)
      float_fetch(type, panels, panel, panel_bytes, k);
    else
      _mm_prefetch(panel + hr_panel_bytes(type, k) + ahead, _MM_HINT_T1);
    HR_UNROLL for (size_t p = 0; p < panels; p++) w[p] = widen16(type, panel + p * panel_bytes, k);
    HR_UNROLL for (size_t r = 0; r < rows; r++) {
      lanes v = lanes_spread(x[r] + k);
      HR_UNROLL for (size_t p = 0; p < panels; p++) c[r][p] = lanes_fma(w[p], v, c[r][p]);
    }
  }
  HR_UNROLL for (size_t r = 0; r < rows; r++)
    HR_UNROLL for (size_t p = 0; p < panels; p++) {
      float *s = sum + (r * panels + p) * 16;
      lanes_store(s, lanes_add(lanes_load(s), c[r][p]));
    }
}

/* Columns begin .. end - 1 of some panels, from a chain's first on, and how far behind them
 * what comes next of a panel lies; 0: nothing does. */
typedef struct float_columns {
  size_t begin, end;
  ptrdiff_t next;
} float_columns;

/* A tile's sums over some columns. They wait in sum, [rows][panels][16], and are outputs
 * after the last column. */
HR_INLINE void float_tile(const hr_product *p, hr_panel_type type, size_t panels, size_t rows,
                          size_t first, size_t row, const float_columns *c, ptrdiff_t ahead,
                          float *sum) {
  const char *panel = product_panel(p, type, first);
  size_t panel_bytes = hr_panel_bytes(type, p->k);
  const float *x[12];
  for (size_t r = 0; r < rows; r++) x[r] = (const float *)(const void *)product_row(p, row + r);
  /* -0 leaves what is added to it as it is. */
  for (size_t i = 0; c->begin == 0 && i < rows * panels; i++)
    lanes_store(sum + i * 16, lanes_set(-0.0f));
  if (c->end == p->k) product_reach(p, panels, rows, first, row);
  for (size_t begin = c->begin; begin < c->end; begin += HR_CHAIN) {
    size_t end = c->end - begin < HR_CHAIN ? c->end : begin + HR_CHAIN;
    float_chain(type, panels, rows, panel, panel_bytes, x, begin, end, sum, p->rows <= ROWS, ahead);
  }
  if (c->end < p->k) return;
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < panels; i++)
      product_finish(p, first + i * 16, row + r, lanes_load(sum + (r * panels + i) * 16));
}

/* The only tile of its panels. */
HR_INLINE void float_alone(const hr_product *p, hr_panel_type type, size_t panels, size_t rows,
                           size_t first) {
  _Alignas(64) float sum[12 * 4 * 16];
  float_columns all = {.end = p->k};
  float_tile(p, type, panels, rows, first, 0, &all, 0, sum);
}

/* Rows row .. row_end - 1 against some columns of `panels` panels. The last tiles fetch what
 * comes next, each for one panel. */
HR_INLINE void float_rows(const hr_product *p, hr_panel_type type, size_t panels, size_t first,
                          size_t row, size_t row_end, const float_columns *c, float *sums) {
  bool whole = c->begin == 0 && c->end == p->k; /* no sums to keep */
  size_t panel_bytes = hr_panel_bytes(type, p->k);
  for (size_t rows; row < row_end; row += rows) {
    rows = tile_rows(row_end - row, ROWS);
    size_t tiles = (row_end - row - rows + ROWS - 1) / ROWS; /* that come after this one */
    ptrdiff_t ahead = c->next && tiles < panels ? c->next + (ptrdiff_t)(tiles * panel_bytes) : 0;
    switch (rows) {
#define ROWS_CASE(n) \
  case n: float_tile(p, type, panels, n <= ROWS ? n : ROWS, first, row, c, ahead, sums); break;
      ROWS_CASE(1)
      ROWS_CASE(2)
      ROWS_CASE(3)
      ROWS_CASE(4)
      ROWS_CASE(5)
      ROWS_CASE(6)
#if ROWS > 6
      ROWS_CASE(7)
      ROWS_CASE(8)
      ROWS_CASE(9)
      ROWS_CASE(10)
      ROWS_CASE(11)
      ROWS_CASE(12)
#endif
#undef ROWS_CASE
      default: __builtin_unreachable();
    }
    if (!whole) sums += rows * panels * 16;
  }
}

/* Panels too large for the second cache beside activations are taken some columns at a time,
 * COLUMNS_BYTES in all, which stay there while a row block passes by. */
enum { COLUMNS_BYTES = 256 << 10, ROW_BLOCK = 120 };

/* How many columns that is; all of them where little would be left over. */
HR_INLINE size_t float_most_columns(const hr_product *p, hr_panel_type type) {
  size_t most = COLUMNS_BYTES / PANELS / hr_panel_bytes(type, HR_CHAIN) * HR_CHAIN;
  return p->k < most + most / 2 ? p->k : most;
}

/* What comes after columns begin .. end - 1: the columns behind them, for the last ones the
 * panel's first with the next row block, after that the next panels. */
HR_INLINE ptrdiff_t float_next(const hr_product *p, hr_panel_type type, size_t panels, size_t first,
                               const float_columns *c, bool rows_left) {
  ptrdiff_t back = (ptrdiff_t)hr_panel_bytes(type, c->begin);
  if (c->end < p->k) return (ptrdiff_t)hr_panel_bytes(type, c->end) - back;
  if (rows_left) return -back;
  if (first / HR_PANEL_ROWS + 2 * panels > product_panels(p)) return 0;
  return (ptrdiff_t)(panels * hr_panel_bytes(type, p->k)) - back;
}

/* `panels` panels from output first on, for all rows. */
HR_INLINE void float_panels(const hr_product *p, hr_panel_type type, size_t panels, size_t first) {
  _Alignas(64) float sums[ROW_BLOCK * PANELS * 16];
  size_t most = float_most_columns(p, type), row_block = most == p->k ? p->rows : ROW_BLOCK;
  for (size_t row = 0, end; row < p->rows; row = end) {
    end = row + tile_rows(p->rows - row, row_block);
    for (float_columns c = {0}; c.begin < p->k; c.begin = c.end) {
      c.end = p->k - c.begin < most ? p->k : c.begin + most;
      c.next = float_next(p, type, panels, first, &c, end < p->rows);
      float_rows(p, type, panels, first, row, end, &c, sums);
    }
  }
}

/* A few rows read more than they multiply, and more panels side by side give them the
 * chains that the fma units want. Returns how many panels that took. */
HR_INLINE size_t product_few(const hr_product *p, hr_panel_type type) {
  size_t panels = product_panels(p), i = 0;
  for (; i + FEW_PANELS <= panels; i += FEW_PANELS) {
    switch (p->rows) {
#define FEW_CASE(n) \
  case n: float_alone(p, type, FEW_PANELS, n <= FEW_ROWS ? n : FEW_ROWS, i * 16); break;
      FEW_CASE(2)
      FEW_CASE(3)
      FEW_CASE(4)
      FEW_CASE(5)
      FEW_CASE(6)
#undef FEW_CASE
      default: return i;
    }
  }
  return i;
}

HR_INLINE void product_many(const hr_product *p, hr_panel_type type, hr_product_fn *few) {
  if (few && p->rows <= FEW_ROWS) {
    few(p);
    return;
  }
  size_t panels = product_panels(p);
  size_t i = p->rows <= FEW_ROWS ? product_few(p, type) : 0;
  for (; i + PANELS <= panels; i += PANELS) float_panels(p, type, PANELS, i * 16);
  for (; i < panels; i++) float_panels(p, type, 1, i * 16);
}

/* One row: panels side by side are as many streams for the memory and as many
 * chains for the fma units. */
HR_INLINE void product_one(const hr_product *p, hr_panel_type type) {
  size_t panels = product_panels(p), i = 0;
  for (; i + 4 <= panels; i += 4) float_alone(p, type, 4, 1, i * 16);
  if (i + 2 <= panels) {
    float_alone(p, type, 2, 1, i * 16);
    i += 2;
  }
  if (i < panels) float_alone(p, type, 1, 1, i * 16);
}

void KERNEL(product_f32)(const hr_product *p) {
  product_many(p, HR_PANEL_F32, FEW(product_f32));
}
void KERNEL(product_f16)(const hr_product *p) {
  product_many(p, HR_PANEL_F16, FEW(product_f16));
}
void KERNEL(product_bf16)(const hr_product *p) {
  product_many(p, HR_PANEL_BF16, FEW(product_bf16));
}
void KERNEL(product_one_f32)(const hr_product *p) { product_one(p, HR_PANEL_F32); }
void KERNEL(product_one_f16)(const hr_product *p) { product_one(p, HR_PANEL_F16); }
void KERNEL(product_one_bf16)(const hr_product *p) { product_one(p, HR_PANEL_BF16); }
