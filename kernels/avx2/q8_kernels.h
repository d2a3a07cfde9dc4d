/* SPDX-License-Identifier: MIT
 * Products with q8 panels, for the tier whose file includes this. It says
 * KERNEL(slot), the tile, PANELS x ROWS (up to 6), ONE_AHEAD, how many bytes ahead one
 * row fetches its weights (0: not at all), and how 16 x 4 weights meet 4 activations:
 *   weights           a group in the form that its multiply wants
 *   weights_load(at)  makes it of 64 bytes
 *   PREPARED          1: part of that is worth keeping while many rows pass by:
 *                     weights_prepare(at, to) makes 64 more bytes, and
 *                     weights_prepared(at, from) the group of both
 *   q8_dot(s, w, x)   s + the products of each lane's four
 *   q8_first(offset, w, x)   the same for the first group of a block
 */

#include "kernels/avx2/product.h"

enum { GROUP_BYTES = HR_PANEL_ROWS * HR_Q8_GROUP, GROUPS = HR_Q8_BLOCK / HR_Q8_GROUP };

/* The sum of one block joins the chain: fma((float)s, ws * xs, sum). */
HR_INLINE lanes q8_scale(ints s, lanes ws, lanes xs, lanes sum) {
  return lanes_fma(lanes_of_ints(s), lanes_mul(ws, xs), sum);
}

HR_INLINE lanes q8_weight_scales(const char *panel, size_t b) {
  return lanes_load_half((const uint16_t *)(const void *)(panel + hr_q8_scales_at(b)));
}

/* Where a row's values, scales and offsets for block b are. */
HR_INLINE const int8_t *q8_values(const char *x, size_t b) {
  return (const int8_t *)x + b * HR_Q8_BLOCK;
}
HR_INLINE const float *q8_scales(const char *x, size_t blocks, size_t b) {
  return (const float *)(const void *)(x + blocks * HR_Q8_BLOCK) + b;
}
HR_INLINE int32_t q8_offset(const char *x, size_t blocks, size_t b) {
  return ((const int32_t *)(const void *)(x + blocks * (HR_Q8_BLOCK + 4)))[b];
}

#if !PREPARED
HR_INLINE void weights_prepare(const char *at, char *to) {
  (void)at;
  (void)to;
}
HR_INLINE weights weights_prepared(const char *at, const char *from) {
  (void)from;
  return weights_load(at);
}
#endif

/* The exact sums of one block, for a tile whose size the compiler knows. prepared: what
 * was made of the block's weights before; NULL: nothing. */
HR_INLINE void q8_block(size_t panels, size_t rows, const char *panel, size_t panel_bytes,
                        const char *prepared, const char *const *x, size_t k, size_t b,
                        ints s[ROWS][4]) {
  size_t blocks = hr_q8_blocks(k);
  HR_UNROLL for (size_t g = 0; g < GROUPS; g++) {
    weights w[4];
    HR_UNROLL for (size_t p = 0; p < panels; p++) {
      const char *at = panel + p * panel_bytes + hr_q8_weights_at(b) + g * GROUP_BYTES;
      w[p] = prepared ? weights_prepared(at, prepared + g * GROUP_BYTES) : weights_load(at);
    }
    HR_UNROLL for (size_t r = 0; r < rows; r++) {
      ints v = ints_spread(q8_values(x[r], b) + g * HR_Q8_GROUP);
      HR_UNROLL for (size_t p = 0; p < panels; p++)
        s[r][p] = g ? q8_dot(s[r][p], w[p], v) : q8_first(q8_offset(x[r], blocks, b), w[p], v);
    }
  }
}

/* A chunk of some panels, CHUNK blocks, stays in the second cache while all rows of a
 * row block pass by: ACTIVATION_BYTES of them, which stay there too, but FEWEST_ROWS at
 * least, because the weights are read once for every row block. Meanwhile the
 * chunk that comes next is fetched, AHEAD_LINES of each panel with a block.
 * MANY_CHUNKS_ROWS is the most rows of a row block whose rows have several chunks. */
enum {
  CHUNK = PREPARED ? 32 : 64,
  PREPARED_BYTES = PREPARED ? CHUNK * HR_Q8_BLOCK_BYTES : 64,
  AHEAD_LINES = 2,
  ACTIVATION_BYTES = 512 << 10,
  FEWEST_ROWS = 64,
  MANY_CHUNKS_ROWS = ACTIVATION_BYTES / (CHUNK * (HR_Q8_BLOCK + 8))
};
_Static_assert(FEWEST_ROWS <= MANY_CHUNKS_ROWS, "sums of a row block");

typedef struct q8_chunk {
  const char *panel;
  size_t panel_bytes, begin, end; /* blocks */
  size_t first;                   /* output of the first panel */
  const char *prepared;           /* what was made of the weights, if the tier does that */
  const char *ahead;              /* what will be read next of the first panel */
  size_t ahead_lines;             /* of each panel that are still to be fetched */
  float *sums;                    /* of each row, panel and output, from chunk to chunk */
} q8_chunk;

HR_INLINE void q8_start(const q8_chunk *c, size_t panels, size_t rows, const float *sums,
                        lanes sum[ROWS][4]) {
  HR_UNROLL for (size_t r = 0; r < rows; r++)
    HR_UNROLL for (size_t i = 0; i < panels; i++)
      sum[r][i] = c->begin ? lanes_load(sums + (r * panels + i) * 16) : lanes_set(0.0f);
}

/* After the last chunk the sums are outputs; until then they wait in memory. */
HR_INLINE void q8_end(const hr_product *p, const q8_chunk *c, size_t panels, size_t rows,
                      size_t row, float *sums, lanes sum[ROWS][4]) {
  bool last = c->end == hr_q8_blocks(p->k);
  HR_UNROLL for (size_t r = 0; r < rows; r++)
    HR_UNROLL for (size_t i = 0; i < panels; i++)
      if (last)
        product_finish(p, c->first + i * 16, row + r, sum[r][i]);
      else
        lanes_store(sums + (r * panels + i) * 16, sum[r][i]);
}

/* The weights that one panel needs a little later. */
HR_INLINE void q8_fetch(const char *panel, size_t b) {
  if (ONE_AHEAD)
    HR_UNROLL for (size_t i = 0; i < HR_Q8_PAIR_BYTES / 2; i += 64)
      _mm_prefetch(panel + hr_q8_weights_at(b) + ONE_AHEAD + i, _MM_HINT_T0);
}

/* Where many rows use a chunk: some lines of the next one, from ahead on. */
HR_INLINE const char *q8_fetch_next(const q8_chunk *c, size_t panels, const char *ahead) {
  HR_UNROLL for (size_t line = 0; line < AHEAD_LINES; line++)
    HR_UNROLL for (size_t i = 0; i < panels; i++)
      _mm_prefetch(ahead + i * c->panel_bytes + line * 64, _MM_HINT_T1);
  return ahead + AHEAD_LINES * 64;
}

/* Some rows against a chunk. Where they are few the first of them fetch it, and nothing
 * is prepared. */
HR_INLINE void q8_tile(const hr_product *p, q8_chunk *c, size_t panels, size_t rows, size_t row,
                       float *sums, bool few) {
  const char *x[ROWS];
  size_t blocks = hr_q8_blocks(p->k);
  lanes sum[ROWS][4];
  HR_UNROLL for (size_t r = 0; r < rows; r++) x[r] = product_row(p, row + r);
  q8_start(c, panels, rows, sums, sum);
  const char *ahead = c->ahead;
  size_t lines = AHEAD_LINES * (c->end - c->begin);
  bool fetch = !few && c->ahead_lines > 0;
  for (size_t b = c->begin; b < c->end; b++) {
    ints s[ROWS][4];
    const char *prepared = NULL;
    if (few && row == 0) q8_fetch(c->panel, b);
    if (fetch) ahead = q8_fetch_next(c, panels, ahead);
    if (PREPARED && !few) prepared = c->prepared + (b - c->begin) * HR_Q8_BLOCK_BYTES;
    q8_block(panels, rows, c->panel, c->panel_bytes, prepared, x, p->k, b, s);
    lanes ws[4];
    HR_UNROLL for (size_t i = 0; i < panels; i++)
      ws[i] = q8_weight_scales(c->panel + i * c->panel_bytes, b);
    HR_UNROLL for (size_t r = 0; r < rows; r++) {
      lanes xs = lanes_spread(q8_scales(x[r], blocks, b));
      HR_UNROLL for (size_t i = 0; i < panels; i++)
        sum[r][i] = q8_scale(s[r][i], ws[i], xs, sum[r][i]);
    }
  }
  c->ahead = ahead;
  c->ahead_lines -= c->ahead_lines < lines ? c->ahead_lines : lines;
  q8_end(p, c, panels, rows, row, sums, sum);
}

/* All rows of a row block against one chunk. */
HR_INLINE void q8_rows(const hr_product *p, q8_chunk *c, size_t panels, size_t row, size_t count,
                       bool few) {
  bool whole = c->begin == 0 && c->end == hr_q8_blocks(p->k); /* no sums to keep */
  float *sums = c->sums;
  for (size_t end = row + count, rows; row < end; row += rows) {
    rows = tile_rows(end - row, ROWS);
    switch (rows) {
#define ROWS_CASE(n) \
  case n: q8_tile(p, c, panels, n <= ROWS ? n : ROWS, row, sums, few); break;
      ROWS_CASE(1)
      ROWS_CASE(2)
      ROWS_CASE(3)
      ROWS_CASE(4)
      ROWS_CASE(5)
      ROWS_CASE(6)
#undef ROWS_CASE
      default: __builtin_unreachable();
    }
    if (!whole) sums += rows * panels * 16;
  }
}

/* What comes after a chunk: the next of the same panels, or the first of the panels behind
 * them; nothing behind the last. */
HR_INLINE void q8_look_ahead(const hr_product *p, q8_chunk *c, size_t panels) {
  bool last = c->end == hr_q8_blocks(p->k);
  if (last && c->first / HR_PANEL_ROWS + panels >= product_panels(p)) {
    c->ahead = c->panel;
    c->ahead_lines = 0;
    return;
  }
  c->ahead = last ? c->panel + panels * c->panel_bytes : c->panel + hr_q8_scales_at(c->end);
  c->ahead_lines = (c->end - c->begin) * HR_Q8_PAIR_BYTES / 2 / 64 + 1;
}

HR_INLINE void q8_prepare(const q8_chunk *c, char *to) {
  for (size_t b = c->begin; b < c->end; b++)
    for (size_t i = 0; i < HR_Q8_BLOCK_BYTES; i += GROUP_BYTES, to += GROUP_BYTES)
      weights_prepare(c->panel + hr_q8_weights_at(b) + i, to);
}

/* `panels` panels from output first on, for the rows of a row block. */
HR_INLINE void q8_panels(const hr_product *p, size_t panels, size_t first, size_t row,
                         size_t count, bool few) {
  _Alignas(64) float sums[MANY_CHUNKS_ROWS * PANELS * 16];
  _Alignas(64) char prepared[PREPARED_BYTES];
  size_t blocks = hr_q8_blocks(p->k);
  q8_chunk c = {.panel = product_panel(p, HR_PANEL_Q8, first),
                .panel_bytes = hr_panel_bytes(HR_PANEL_Q8, p->k),
                .first = first,
                .prepared = prepared,
                .sums = sums};
  for (; c.begin < blocks; c.begin = c.end) {
    c.end = c.begin + tile_rows(blocks - c.begin, CHUNK);
    if (PREPARED && !few) q8_prepare(&c, prepared);
    q8_look_ahead(p, &c, panels);
    q8_rows(p, &c, panels, row, count, few);
  }
}

HR_INLINE size_t q8_row_block(const hr_product *p) {
  size_t rows = ACTIVATION_BYTES / hr_q8_row_bytes(p->k) / ROWS * ROWS;
  return rows < FEWEST_ROWS ? FEWEST_ROWS : rows;
}

/* A few rows use each weight so seldom that memory decides: panel after panel, in one
 * stream, as for one row. */
enum { FEW_ROWS = 2 * ROWS };

void KERNEL(product_q8)(const hr_product *p) {
  size_t panels = product_panels(p), most = q8_row_block(p);
  if (p->rows <= FEW_ROWS) {
    for (size_t i = 0; i < panels; i++) q8_panels(p, 1, i * 16, 0, p->rows, true);
    return;
  }
  for (size_t row = 0, count; row < p->rows; row += count) {
    count = tile_rows(p->rows - row, most);
    size_t i = 0;
    for (; i + PANELS <= panels; i += PANELS) q8_panels(p, PANELS, i * 16, row, count, false);
    for (; i < panels; i++) q8_panels(p, 1, i * 16, row, count, false);
  }
}

/* One row: panel after panel, so that memory is read in one stream. Panels of few
 * columns end before several streams side by side get going. */
HR_INLINE void q8_one(const hr_product *p, size_t first) {
  const char *panel = product_panel(p, HR_PANEL_Q8, first), *x = p->x;
  size_t blocks = hr_q8_blocks(p->k);
  lanes sum = lanes_set(0.0f);
  for (size_t b = 0; b < blocks; b++) {
    ints s[ROWS][4];
    q8_fetch(panel, b);
    q8_block(1, 1, panel, 0, NULL, &x, p->k, b, s);
    sum = q8_scale(s[0][0], q8_weight_scales(panel, b), lanes_spread(q8_scales(x, blocks, b)), sum);
  }
  product_finish(p, first, 0, sum);
}

void KERNEL(product_one_q8)(const hr_product *p) {
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) q8_one(p, first);
}
