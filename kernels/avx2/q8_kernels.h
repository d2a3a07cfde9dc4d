/* SPDX-License-Identifier: MIT
 * Products with q8 panels, for the tier whose file includes this. It says
 * KERNEL(slot), the tile, PANELS x ROWS (up to 6), ONE_AHEAD, how many bytes ahead one
 * row fetches its weights (0: not at all), and how 16 x 4 weights meet 4 activations:
 *   weights           a group in the form that its multiply wants
 *   weights_load(at)  makes it of 64 bytes
 *   q8_dot(s, w, x)   s + the products of each lane's four
 *   q8_first(offset, w, x)   the same for the first group of a block
 *   PREPARED_GROUP    not 0: bytes made of a group of weights that are worth keeping while many
 *                     rows pass by. They meet these in STEPS steps a block:
 *                     weights_prepare(at, to)          of a group
 *                     weights_prepared(at, from, step) of a block at `at`, and what was made of it
 *                     step_dot(s, w, x), step_first(offset, w, x)   as above, of a step
 *   PREPARED_BLOCK    not 0: bytes made of a block of a row too, for up to MOST_ROWS rows:
 *                     row_prepare(at, to)
 *                     row_prepared(from, step)         for all lanes
 */

#include "kernels/avx2/product.h"

enum { GROUP_BYTES = HR_PANEL_ROWS * HR_Q8_GROUP, GROUPS = HR_Q8_BLOCK / HR_Q8_GROUP };

/* Where a block of a panel lies: its weights, and its scales from there. To the block behind
 * it are `step` bytes, by turns 512 and 576. */
typedef struct q8_place {
  const char *weights;
  ptrdiff_t scales, step;
} q8_place;

HR_INLINE q8_place q8_place_of(const char *panel, size_t b) {
  ptrdiff_t at = (ptrdiff_t)hr_q8_weights_at(b);
  return (q8_place){.weights = panel + at,
                    .scales = (ptrdiff_t)hr_q8_scales_at(b) - at,
                    .step = (ptrdiff_t)hr_q8_weights_at(b + 1) - at};
}
HR_INLINE void q8_advance(q8_place *at) {
  const ptrdiff_t both = -(HR_Q8_SCALES_BYTES + HR_Q8_SCALES_BYTES / 2 + HR_Q8_BLOCK_BYTES);
  at->weights += at->step;
  at->step = HR_Q8_PAIR_BYTES - at->step;
  at->scales = both - at->scales;
}

HR_INLINE lanes q8_weight_scales(const char *at) {
  return lanes_load_half((const uint16_t *)(const void *)at);
}

/* The block of quantized rows that is worked on: where its values, scales and offsets lie
 * from a row's start. */
typedef struct q8_columns {
  size_t values, scales, offsets;
} q8_columns;

HR_INLINE q8_columns q8_columns_of(size_t k, size_t b) {
  return (q8_columns){.values = b * HR_Q8_BLOCK,
                      .scales = hr_q8_row_scales_at(k) + b * sizeof(float),
                      .offsets = hr_q8_row_offsets_at(k) + b * sizeof(int32_t)};
}
HR_INLINE void q8_columns_advance(q8_columns *c) {
  c->values += HR_Q8_BLOCK;
  c->scales += sizeof(float);
  c->offsets += sizeof(int32_t);
}

#if !PREPARED_GROUP
enum { STEPS = GROUPS };
HR_INLINE void weights_prepare(const char *at, char *to) {
  (void)at;
  (void)to;
}
HR_INLINE weights weights_prepared(const char *at, const char *from, size_t step) {
  (void)from;
  return weights_load(at + step * GROUP_BYTES);
}
HR_INLINE ints step_first(int32_t offset, weights w, ints x) { return q8_first(offset, w, x); }
HR_INLINE ints step_dot(ints s, weights w, ints x) { return q8_dot(s, w, x); }
#endif
#if !PREPARED_BLOCK
enum { MOST_ROWS = 0 };
HR_INLINE void row_prepare(const char *at, char *to) {
  (void)at;
  (void)to;
}
HR_INLINE ints row_prepared(const char *from, size_t step) {
  return ints_spread((const int8_t *)from + step * HR_Q8_GROUP);
}
#endif

/* The exact sums of one block, for a tile whose size the compiler knows. weights: of the
 * block, in the first of the panels. */
HR_INLINE void q8_block(size_t panels, size_t rows, const char *weights_at, size_t panel_bytes,
                        const char *const *x, const q8_columns *c, ints s[ROWS][4]) {
  const char *of_panel[4];
  HR_UNROLL for (size_t p = 0; p < panels; p++) {
    of_panel[p] = weights_at + p * panel_bytes;
    HR_IN_POINTER(of_panel[p]);
  }
  HR_UNROLL for (size_t g = 0; g < GROUPS; g++) {
    weights w[4];
    HR_UNROLL for (size_t p = 0; p < panels; p++)
      w[p] = weights_load(of_panel[p] + g * GROUP_BYTES);
    HR_UNROLL for (size_t r = 0; r < rows; r++) {
      ints v = ints_spread((const int8_t *)x[r] + c->values + g * HR_Q8_GROUP);
      int32_t offset = *(const int32_t *)(const void *)(x[r] + c->offsets);
      HR_UNROLL for (size_t p = 0; p < panels; p++)
        s[r][p] = g ? q8_dot(s[r][p], w[p], v) : q8_first(offset, w[p], v);
    }
  }
}

/* The same of one panel, with what was made of the weights before, and of the rows where that is
 * done: row_blocks, of one row behind the other. */
HR_INLINE void q8_block_prepared(size_t rows, const char *weights_at, const char *prepared,
                                 const char *row_blocks, const char *const *x, const q8_columns *c,
                                 ints s[ROWS][4]) {
  HR_UNROLL for (size_t step = 0; step < STEPS; step++) {
    weights w = weights_prepared(weights_at, prepared, step);
    HR_UNROLL for (size_t r = 0; r < rows; r++) {
      const char *values = PREPARED_BLOCK ? row_blocks + r * PREPARED_BLOCK : x[r] + c->values;
      ints v = row_prepared(values, step);
      int32_t offset = *(const int32_t *)(const void *)(x[r] + c->offsets);
      s[r][0] = step ? step_dot(s[r][0], w, v) : step_first(offset, w, v);
    }
  }
}

/* The exact sums join the chains: fma((float)s, ws * xs, sum). scales_at: of the first panel. */
HR_INLINE void q8_scale(size_t panels, size_t rows, const char *scales_at, size_t panel_bytes,
                        const char *const *x, const q8_columns *c, ints s[ROWS][4],
                        lanes sum[ROWS][4]) {
  lanes ws[4];
  HR_UNROLL for (size_t p = 0; p < panels; p++)
    ws[p] = q8_weight_scales(scales_at + p * panel_bytes);
  HR_UNROLL for (size_t r = 0; r < rows; r++) {
    lanes xs = lanes_spread((const float *)(const void *)(x[r] + c->scales));
    HR_UNROLL for (size_t p = 0; p < panels; p++)
      sum[r][p] = lanes_fma(lanes_of_ints(s[r][p]), lanes_mul(ws[p], xs), sum[r][p]);
  }
}

/* A chunk of some panels, CHUNK blocks, stays in the second cache while all rows of a
 * row block pass by: ACTIVATION_BYTES of them, which stay there too, but FEWEST_ROWS at
 * least, because the weights are read once for every row block. Meanwhile the chunk that
 * comes next is fetched, a line of each panel with a block: more at a time would stand in the
 * way of what is read now. Rows that the second cache can't hold meet a set of panels with one
 * chunk, as many as have SUMS floats of sums, before they come to the next. So do rows of which
 * something is made, MOST_ROWS of them, once for a set. */
enum {
  CHUNK = PREPARED_BLOCK ? 16 : PREPARED_GROUP ? 32 : 64,
  PREPARED_BYTES = PREPARED_GROUP ? CHUNK * GROUPS * PREPARED_GROUP : 64,
  ROW_BLOCKS_BYTES = PREPARED_BLOCK ? MOST_ROWS * CHUNK * PREPARED_BLOCK : 64,
  ACTIVATION_BYTES = 384 << 10,
  FEWEST_ROWS = 64,
  SUMS = PREPARED_BLOCK ? 8 << 10 : 16 << 10,
  MANY_CHUNKS_ROWS =
      PREPARED_BLOCK ? MOST_ROWS : ACTIVATION_BYTES / (CHUNK * (HR_Q8_BLOCK + 8))
};
_Static_assert(FEWEST_ROWS <= MANY_CHUNKS_ROWS, "the most rows with sums");
_Static_assert(MANY_CHUNKS_ROWS * PANELS * HR_PANEL_ROWS <= SUMS, "sums of a row block");
_Static_assert(PREPARED_GROUP == 0 || PANELS == 1, "what is prepared is of one panel");
_Static_assert(PREPARED_BLOCK == 0 || PREPARED_GROUP != 0, "rows go with prepared weights");

/* On the stack, once for all sizes of tiles. */
typedef struct q8_space {
  _Alignas(64) float sums[SUMS];
  _Alignas(64) char prepared[PREPARED_BYTES];
  _Alignas(64) char row_blocks[ROW_BLOCKS_BYTES];
} q8_space;
_Static_assert(sizeof(q8_space) <= HR_KERNEL_ARRAYS, "what a thread's stack has room for");

typedef struct q8_chunk {
  const char *panel;
  size_t panel_bytes, begin, end; /* blocks */
  size_t first;                   /* output of the first panel */
  const char *prepared;           /* what was made of the weights, if the tier does that */
  const char *row_blocks;         /* and of the row block's rows */
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
HR_INLINE void q8_fetch(const char *weights_at) {
  if (ONE_AHEAD)
    HR_UNROLL for (size_t i = 0; i < HR_Q8_PAIR_BYTES / 2; i += 64)
      _mm_prefetch(weights_at + ONE_AHEAD + i, _MM_HINT_T0);
}

/* Where many rows use a chunk: a line of the next one. */
HR_INLINE const char *q8_fetch_next(const q8_chunk *c, size_t panels, const char *ahead) {
  HR_UNROLL for (size_t i = 0; i < panels; i++)
    _mm_prefetch(ahead + i * c->panel_bytes, _MM_HINT_T1);
  return ahead + 64;
}

/* The blocks of a chunk join the sums of a tile. fetch: known to the compiler, because a branch in
 * each block costs a hundredth. */
HR_INLINE void q8_blocks(q8_chunk *c, size_t k, size_t panels, size_t rows, const char *const *x,
                         const char *row_blocks, bool few, bool fetch, bool first,
                         lanes sum[ROWS][4]) {
  q8_place at = q8_place_of(c->panel, c->begin);
  q8_columns columns = q8_columns_of(k, c->begin);
  const char *ahead = c->ahead, *prepared = c->prepared;
  for (size_t b = c->begin; b < c->end; b++) {
    ints s[ROWS][4];
    if (few && first) q8_fetch(at.weights);
    if (fetch) ahead = q8_fetch_next(c, panels, ahead);
    if (PREPARED_GROUP && !few) {
      q8_block_prepared(rows, at.weights, prepared, row_blocks, x, &columns, s);
      prepared += GROUPS * PREPARED_GROUP;
      row_blocks += rows * PREPARED_BLOCK;
    } else {
      q8_block(panels, rows, at.weights, c->panel_bytes, x, &columns, s);
    }
    q8_scale(panels, rows, at.weights + at.scales, c->panel_bytes, x, &columns, s, sum);
    q8_advance(&at);
    q8_columns_advance(&columns);
  }
  c->ahead = ahead;
}

/* Some rows against a chunk. Where they are few the first of them fetch it, and nothing
 * is prepared. row_blocks: of the first of them. */
HR_INLINE void q8_tile(const hr_product *p, q8_chunk *c, size_t panels, size_t rows, size_t row,
                       const char *row_blocks, float *sums, bool few) {
  const char *x[ROWS];
  lanes sum[ROWS][4];
  HR_UNROLL for (size_t r = 0; r < rows; r++) x[r] = product_row(p, row + r);
  q8_start(c, panels, rows, sums, sum);
  size_t blocks = c->end - c->begin;
  if (p->add && c->end == hr_q8_blocks(p->k)) product_reach(p, panels, rows, c->first, row);
  if (!few && c->ahead_lines > 0)
    q8_blocks(c, p->k, panels, rows, x, row_blocks, few, true, false, sum);
  else
    q8_blocks(c, p->k, panels, rows, x, row_blocks, few, false, row == 0, sum);
  c->ahead_lines -= c->ahead_lines < blocks ? c->ahead_lines : blocks;
  q8_end(p, c, panels, rows, row, sums, sum);
}

/* All rows of a row block against one chunk. */
HR_INLINE void q8_rows(const hr_product *p, q8_chunk *c, size_t panels, size_t row, size_t count,
                       bool few) {
  bool whole = c->begin == 0 && c->end == hr_q8_blocks(p->k); /* no sums to keep */
  float *sums = c->sums;
  const char *row_blocks = c->row_blocks;
  for (size_t end = row + count, rows; row < end; row += rows) {
    rows = tile_rows(end - row, ROWS);
    switch (rows) {
#define ROWS_CASE(n) \
  case n: q8_tile(p, c, panels, n <= ROWS ? n : ROWS, row, row_blocks, sums, few); break;
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
    row_blocks += few ? 0 : rows * (c->end - c->begin) * PREPARED_BLOCK;
  }
}

/* What comes after a chunk: the same of the panels behind it, as long as there are some in its
 * set, which starts at set_panel; then the set's next chunk; then the first of the next set;
 * behind the last what comes after all panels, if anything. */
HR_INLINE void q8_look_ahead(const hr_product *p, q8_chunk *c, size_t panels, bool last_of_set,
                             const char *set_panel, const char *after) {
  const char *behind = c->panel + panels * c->panel_bytes;
  c->ahead_lines = (c->end - c->begin) * HR_Q8_PAIR_BYTES / 2 / 64 + 1;
  if (!last_of_set) {
    c->ahead = behind + hr_q8_scales_at(c->begin);
  } else if (c->end < hr_q8_blocks(p->k)) {
    c->ahead = set_panel + hr_q8_scales_at(c->end);
  } else {
    bool last = c->first / HR_PANEL_ROWS + panels >= product_panels(p);
    c->ahead = last ? after : behind;
    if (!c->ahead) c->ahead_lines = 0;
  }
}

HR_INLINE void q8_prepare(const q8_chunk *c, char *to) {
  for (size_t b = c->begin; b < c->end; b++)
    for (size_t i = 0; i < HR_Q8_BLOCK_BYTES; i += GROUP_BYTES, to += PREPARED_GROUP)
      weights_prepare(c->panel + hr_q8_weights_at(b) + i, to);
}

/* Tile after tile, of each the blocks, of a block its rows: in the order in which they are read. */
HR_INLINE void q8_prepare_rows(const hr_product *p, size_t row, size_t count, const q8_chunk *c,
                               char *to) {
  for (size_t end = row + count, rows; row < end; row += rows) {
    rows = tile_rows(end - row, ROWS);
    for (size_t b = c->begin; b < c->end; b++)
      for (size_t r = 0; r < rows; r++, to += PREPARED_BLOCK)
        row_prepare(product_row(p, row + r) + b * HR_Q8_BLOCK, to);
  }
}

/* A set: `steps` times `panels` panels, from output first on, for the rows of a row block. */
HR_INLINE void q8_set(const hr_product *p, size_t panels, size_t steps, size_t first, size_t row,
                      size_t count, bool few, q8_space *space) {
  size_t blocks = hr_q8_blocks(p->k);
  const char *after = row + count < p->rows ? p->panels : p->next; /* the next row block's */
  q8_chunk c = {.panel_bytes = hr_panel_bytes(HR_PANEL_Q8, p->k), .prepared = space->prepared,
                .row_blocks = space->row_blocks};
  for (; c.begin < blocks; c.begin = c.end) {
    c.end = c.begin + tile_rows(blocks - c.begin, CHUNK);
    if (PREPARED_BLOCK && !few) q8_prepare_rows(p, row, count, &c, space->row_blocks);
    for (size_t i = 0; i < steps; i++) {
      c.first = first + i * panels * HR_PANEL_ROWS;
      c.panel = product_panel(p, HR_PANEL_Q8, c.first);
      c.sums = space->sums + i * count * panels * HR_PANEL_ROWS;
      if (PREPARED_GROUP && !few) q8_prepare(&c, space->prepared);
      q8_look_ahead(p, &c, panels, i + 1 == steps, product_panel(p, HR_PANEL_Q8, first), after);
      q8_rows(p, &c, panels, row, count, few);
    }
  }
}

/* How often PANELS panels are in a set. */
HR_INLINE size_t q8_steps(const hr_product *p, size_t count) {
  bool all_stay = !PREPARED_BLOCK && FEWEST_ROWS * hr_q8_row_bytes(p->k) <= ACTIVATION_BYTES;
  return all_stay ? 1 : SUMS / (count * PANELS * HR_PANEL_ROWS);
}

/* The rows of a row block against all panels. */
HR_INLINE void q8_row_block(const hr_product *p, size_t row, size_t count, q8_space *space) {
  size_t panels = product_panels(p), most = q8_steps(p, count), i = 0;
  for (size_t steps; i + PANELS <= panels; i += steps * PANELS) {
    steps = (panels - i) / PANELS < most ? (panels - i) / PANELS : most;
    q8_set(p, PANELS, steps, i * 16, row, count, false, space);
  }
  for (; i < panels; i++) q8_set(p, 1, 1, i * 16, row, count, false, space);
}

/* The most rows of a row block. */
HR_INLINE size_t q8_most_rows(const hr_product *p) {
  size_t rows = ACTIVATION_BYTES / hr_q8_row_bytes(p->k) / ROWS * ROWS;
  return PREPARED_BLOCK ? MOST_ROWS : rows < FEWEST_ROWS ? FEWEST_ROWS : rows;
}

/* A few rows use each weight so seldom that memory decides: panel after panel, in one
 * stream, as for one row; or, where that is defined, another tier's FEW(slot). */
#ifdef FEW
enum { FEW_ELSEWHERE = 1 };
#else
#define FEW(slot) q8_many
enum { FEW_ELSEWHERE = 0, FEW_ROWS = 2 * ROWS };
#endif

/* Apart, so that who calls the other tier's has not both their arrays. */
__attribute__((noinline)) static void q8_many(const hr_product *p) {
  q8_space space;
  size_t panels = product_panels(p), most = q8_most_rows(p);
  if (!FEW_ELSEWHERE && p->rows <= FEW_ROWS) {
    for (size_t i = 0; i < panels; i++) q8_set(p, 1, 1, i * 16, 0, p->rows, true, &space);
    return;
  }
  for (size_t row = 0, count; row < p->rows; row += count) {
    count = tile_rows(p->rows - row, most);
    q8_row_block(p, row, count, &space);
  }
}

void KERNEL(product_q8)(const hr_product *p) {
  (FEW_ELSEWHERE && p->rows <= FEW_ROWS ? FEW(product_q8) : q8_many)(p);
}

/* One row: panel after panel, so that memory is read in one stream. Panels of few
 * columns end before several streams side by side get going. */
HR_INLINE void q8_one(const hr_product *p, size_t first) {
  const char *x = p->x;
  size_t blocks = hr_q8_blocks(p->k);
  q8_place at = q8_place_of(product_panel(p, HR_PANEL_Q8, first), 0);
  q8_columns columns = q8_columns_of(p->k, 0);
  lanes sum[ROWS][4] = {{lanes_set(0.0f)}};
  for (size_t b = 0; b < blocks; b++) {
    ints s[ROWS][4];
    q8_fetch(at.weights);
    q8_block(1, 1, at.weights, 0, &x, &columns, s);
    q8_scale(1, 1, at.weights + at.scales, 0, &x, &columns, s, sum);
    q8_advance(&at);
    q8_columns_advance(&columns);
  }
  product_finish(p, first, 0, sum[0][0]);
}

void KERNEL(product_one_q8)(const hr_product *p) {
  for (size_t first = 0; first < p->n; first += HR_PANEL_ROWS) q8_one(p, first);
}
