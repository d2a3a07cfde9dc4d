/* SPDX-License-Identifier: MIT
 * Private to src/block: a pass while it runs. Every function here is called by
 * all threads of the team at once, each with its own number; between steps that
 * read what another thread wrote there is a barrier. */
#ifndef HR_BLOCK_PASS_H
#define HR_BLOCK_PASS_H

#include "block/forward.h"
#include "sched/tiles.h"

enum { HR_QUERIES = 36 }; /* that one thread attends with together: whole tiles of the kernels */

/* A text of the pass or a piece of one, and where its rows and its tiles of queries begin. */
typedef struct hr_span {
  hr_text text;
  size_t first_row, first_tile;
  size_t from; /* of a whole pass: row of the request that its first row is */
} hr_span;

/* What one thread has for itself. */
typedef struct hr_private {
  float *x;        /* the residual stream, see hr_stream */
  float *row;      /* one normed row */
  void *quantized; /* the same, quantized */
  uint64_t mark;   /* time of the last mark */
  uint32_t step;   /* number of the step that it is in; the same for all */
  hr_query *query; /* [HR_QUERIES or heads per kv head, the larger] */
  float *max, *sum, *out;                   /* running results of those queries */
  float *block_max, *block_sum, *block_out; /* results of one block of keys */
  float *up, *gate; /* [HR_PIECE_ROWS][HR_PIECE_WIDTH] what is activated while it is in a cache */
} hr_private;

/* Rows and outputs of a piece of the feed-forward network's inner rows: both stay in the second
 * cache, beside the rows and weights that they are made of. */
enum { HR_PIECE_ROWS = 128, HR_PIECE_WIDTH = 256 };

struct hr_workspace {
  const hr_transformer *model;
  const hr_kernels *kernels;
  size_t rows, positions;
  unsigned threads;
  hr_frequency *frequency; /* of RoPE or of the sinusoid */
  float rope_magnitude;    /* of cos and sin */
  float *slope;            /* [heads] ALiBi, zeros without */

  /* [rows] of each; strides in floats are multiples of 16 */
  float *x;           /* the residual stream */
  float *normed;      /* input of a sub-layer */
  float *sub;         /* output of a sub-layer whose norm comes before the residual */
  char *quantized;    /* quantized input of a product */
  float *query, *key, *value;
  float *attended;    /* heads side by side, where they are not quantized at once */
  float *gate, *up;   /* of many rows only up is written: as floats, or quantized for down */
  float *cos, *sin;   /* [rows][rope_width / 2] */
  float *part_max, *part_sum, *part_out; /* one row, [heads][blocks of keys] */
  hr_span *span;        /* [rows] the texts of the pass, */
  hr_span *wanted_span; /* [rows] and what is left of them when only wanted rows are */
  size_t x_stride, heads_stride, kv_stride, ffn_stride, quantized_stride, out_stride;
  hr_private *private;
  hr_tiles tiles; /* of the step that is being done */
  hr_profile *profile; /* one a thread; NULL: nobody asks where the time goes */
  hr_tap_fn *tap;
  void *tap_arg;
  hr_input_tap_fn *input_tap;
  void *input_tap_arg;
  void *block; /* the memory of all buffers */
  size_t block_bytes;
};

typedef struct hr_pass {
  const hr_transformer *model;
  const hr_kernels *kernels;
  hr_workspace *ws;
  hr_team *team;
  hr_kv_cache *cache;
  const hr_request *request;
  const uint32_t *shares; /* of the threads, see hr_tiles_step */
  size_t rows;            /* of the residual stream: all of the request, or those it wants */
  const hr_span *span;    /* [spans] the texts that they belong to */
  size_t spans;
  bool early; /* rows that are not wanted leave it before the last layer */
  bool folded; /* its text is in pieces, of which each thread has about two in all steps */
} hr_pass;

typedef struct hr_range {
  size_t begin, end;
} hr_range;

/* The text that a row of the pass belongs to. */
const hr_span *hr_span_of_row(const hr_pass *pass, size_t row);
const hr_span *hr_span_of_tile(const hr_pass *pass, size_t tile);

static inline size_t hr_position_of(const hr_span *span, size_t row) {
  return span->text.start + (row - span->first_row);
}
/* Which row of the request it is. */
static inline size_t hr_request_row(const hr_span *span, size_t row) {
  return span->from + (row - span->first_row);
}

/* Rows whose queries of one key/value head a thread attends with together. */
static inline size_t hr_tile_rows(const hr_description *d) {
  size_t group = d->heads / d->kv_heads;
  return group < HR_QUERIES ? HR_QUERIES / group : 1;
}

/* The residual stream as a thread sees it. With one row whose norms follow the
 * sub-layers every thread keeps the stream for itself: to form a sum again costs
 * less than to wait for it. The first thread's is the one that is read afterwards. */
static inline bool hr_streams_apart(const hr_pass *pass) {
  return pass->rows == 1 && pass->model->description.norm_place != HR_NORM_BEFORE;
}
static inline float *hr_stream(const hr_pass *pass, unsigned thread) {
  return hr_streams_apart(pass) && thread > 0 ? pass->ws->private[thread].x : pass->ws->x;
}
/* Gives each thread its own where they have it, once the first thread's is whole. */
void hr_part_streams(const hr_pass *pass, unsigned thread);

/* Number of one of the model's layers. */
static inline uint32_t hr_layer_index(const hr_pass *pass, const hr_layer *layer) {
  return (uint32_t)(layer - pass->model->layer);
}

static inline size_t hr_min_size(size_t a, size_t b) {
  return a < b ? a : b;
}

/* The work between two barriers: count units, handed out to the threads in runs.
 *
 *     hr_step step = hr_begin_step(pass, thread, threads, count, bytes);
 *     for (hr_range run; hr_next_run(&step, &run);) ...
 *     hr_end_step(pass, thread, part);
 *
 * Every thread of the pass takes part in every step, and none begins a step
 * before all have ended the one before. */
typedef struct hr_step {
  hr_tiles_step tiles;
  size_t count;
  size_t unit; /* units that make a tile */
} hr_step;

/* bytes: what a unit reads and writes, about, or what would take as long; where
 * all of a thread's part takes less than a microsecond or two, a look at what is
 * left to the others would cost more than it could bring. */
hr_step hr_begin_step(hr_pass *pass, unsigned thread, unsigned threads, size_t count,
                      size_t bytes);

static inline bool hr_next_run(hr_step *step, hr_range *run) {
  hr_tiles_run tiles;
  if (!hr_tiles_next(&step->tiles, &tiles)) return false;
  *run = (hr_range){tiles.begin * step->unit, hr_min_size(tiles.end * step->unit, step->count)};
  return true;
}

/* Whether a unit belongs to the thread's share from the start: what it is likely to do. */
static inline bool hr_is_own(const hr_step *step, size_t unit) {
  hr_tiles_run own = hr_tiles_share(&step->tiles, step->tiles.thread);
  return unit >= own.begin * step->unit && unit < hr_min_size(own.end * step->unit, step->count);
}

/* Waits for the other threads; what they wrote is there then. The time since the
 * last mark was spent on a part. */
void hr_end_step(hr_pass *pass, unsigned thread, hr_part part);
/* The same before the product with a matrix, if not NULL, of queries before those with keys and
 * values too: of one row, which memory sets the pace of, who waits fetches what it will read. */
void hr_end_step_before(hr_pass *pass, unsigned thread, unsigned threads, hr_part part,
                        const hr_matrix *next);

void hr_note_time(const hr_pass *pass, unsigned thread, hr_part part);
/* Notes that the time since the last mark was spent on a part, if anybody asked. */
static inline void hr_mark(const hr_pass *pass, unsigned thread, hr_part part) {
  if (__builtin_expect(pass->ws->profile != NULL, 0)) hr_note_time(pass, thread, part);
}

/* Rows that go into a product, in the forms its matrices need. */
typedef struct hr_input {
  const float *x;
  size_t x_stride; /* floats */
  const void *quantized;
  size_t rows;
} hr_input;

/* product.c: the way from rows to products. */

/* Applies a norm (NULL or absent: none) to rows of k floats and quantizes them
 * when a matrix of the list needs that. One row: every thread does it for
 * itself, without a barrier. Many: each thread does its share, then a barrier. */
hr_input hr_prepare(hr_pass *pass, unsigned thread, unsigned threads, const hr_norm_weights *norm,
                    const float *x, size_t stride, size_t rows, size_t k,
                    const hr_matrix *const *matrices, size_t count);

/* Passes of so many rows are cut by pairs of panels, and what is made for a product over q8
 * panels is quantized where it is made: no floats of all rows lie in between, unless somebody
 * wants to see them. */
enum { HR_MANY_ROWS = 64 };
static inline bool hr_quantizes_at_once(const hr_pass *pass, const hr_matrix *m) {
  return pass->rows >= HR_MANY_ROWS && m->type == HR_PANEL_Q8 && !pass->ws->tap &&
         !pass->ws->input_tap;
}

/* One of several products that read the same input. */
typedef struct hr_projection {
  const hr_matrix *matrix;
  float *y;
  size_t y_stride; /* floats */
} hr_projection;

/* A part of a product: panels of its outputs, rows of its input. */
typedef struct hr_tile {
  hr_range panels, rows;
  const void *next; /* panels that this thread reads after them, or NULL */
} hr_tile;

/* A step whose units are tiles of a product: columns of a few panels, cut into
 * bands of rows where there are few of them for so many threads or one takes long. They are
 * counted band by band within a column, or, by rows, column by column within a band. */
typedef struct hr_product_step {
  hr_step step;
  hr_range run; /* units that were handed out and are still to do */
  size_t panels, wide; /* in all, and of a column */
  size_t rows, bands;
  bool by_rows;
} hr_product_step;

/* Whether products of so many rows are cut by rows, so that each thread has its own. */
bool hr_splits_by_rows(size_t rows, unsigned threads);

/* A step over the outputs of all projections side by side, or of one of several
 * alike: `times` of them are computed for each tile. */
hr_product_step hr_begin_product(hr_pass *pass, unsigned thread, unsigned threads, size_t rows,
                                 const hr_projection *projection, size_t count, size_t times);
/* Where a panel of a matrix lies. */
const void *hr_panel(const hr_matrix *m, size_t index);
/* Where a thread begins to read a matrix for one row, of queries with keys and values behind them,
 * and how many bytes to fetch there; NULL: it reads nothing. */
const void *hr_first_panels(const hr_pass *pass, unsigned thread, unsigned threads,
                            const hr_matrix *m, size_t *bytes);
bool hr_next_tile(hr_product_step *step, hr_tile *tile);
/* The outputs of a tile of one matrix, of which the first goes to y. */
void hr_multiply_part(const hr_pass *pass, const hr_input *input, const hr_matrix *m,
                      hr_tile tile, float *y, size_t y_stride, bool add);
/* Computes a tile; panels are counted through all projections. */
void hr_multiply(const hr_pass *pass, const hr_input *input, const hr_projection *projection,
                 size_t count, hr_tile tile, bool add);
/* All three together: this thread's part of the outputs of all projections. */
void hr_project(hr_pass *pass, unsigned thread, unsigned threads, const hr_input *input,
                const hr_projection *projection, size_t count, bool add);

/* norm.c */
void hr_norm_row(const hr_pass *pass, const hr_norm_weights *norm, const float *x, size_t n,
                 float *y);
/* Ends the step of a sub-layer's last product, and adds it to the residual stream
 * in the way that the norm's place asks for; see hr_residual_target. next: the matrix of the next
 * product. */
void hr_residual(hr_pass *pass, unsigned thread, unsigned threads, const hr_norm_weights *post,
                 hr_part part, const hr_matrix *next);
/* Where a sub-layer's last product goes, and whether it adds to what is there. */
float *hr_residual_target(const hr_pass *pass, bool *add);

/* embed.c, attention.c, feed_forward.c, head.c */
void hr_embed(hr_pass *pass, unsigned thread, unsigned threads);
void hr_attention_inputs(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer);
/* All that later rows need of a layer: keys and values of the rows, into the cache. */
void hr_fill_cache(hr_pass *pass, unsigned thread, unsigned threads, uint32_t layer);
void hr_attention(hr_pass *pass, unsigned thread, unsigned threads, uint32_t layer);
void hr_attention_output(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer);
void hr_feed_forward_up(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer);
void hr_feed_forward_down(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer);
void hr_hidden(hr_pass *pass, unsigned thread, unsigned threads);
void hr_head(hr_pass *pass, unsigned thread, unsigned threads);

/* Shows an activation to the tap, if there is one. */
void hr_show(hr_pass *pass, unsigned thread, const char *name, uint32_t layer, const float *data,
             size_t rows, size_t columns, size_t stride);

#endif
