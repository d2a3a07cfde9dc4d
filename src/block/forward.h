/* SPDX-License-Identifier: MIT
 * The forward pass: one for all models, for one row and for many. */
#ifndef HR_BLOCK_FORWARD_H
#define HR_BLOCK_FORWARD_H

#include "block/description.h"
#include "block/position.h"
#include "kernels/kernels.h"
#include "sched/team.h"

/* Keys and values of every layer and key/value head; layout in kernels/layout.h. With the full
 * mask a text is one pass, and all layers take turns with one place. */
typedef struct hr_kv_cache {
  bool half;             /* fp16 instead of fp32 */
  size_t capacity;       /* positions, a multiple of HR_KEY_PANEL */
  size_t room;           /* of them, for a text that no hr_text places: all, unless told else */
  size_t position_bytes; /* of one head of one layer: a key and a value */
  uint32_t layers, kv_heads;
  char *data;
  size_t bytes;
} hr_kv_cache;

/* Room for positions tokens. hr_kv_cache_finish frees it. */
hr_status hr_kv_cache_init(hr_kv_cache *cache, const hr_description *d, size_t positions, bool half,
                           hr_error *err);
void hr_kv_cache_finish(hr_kv_cache *cache);
/* Bytes that hr_kv_cache_init will take; 0 when that does not fit a size_t. */
size_t hr_kv_cache_bytes(const hr_description *d, size_t positions, bool half);

/* A point of the pass at which a test may look at an activation:
 * rows x columns floats, row r at data + r * stride. */
typedef void hr_tap_fn(void *arg, const char *name, uint32_t layer, const float *data, size_t rows,
                       size_t columns, size_t stride);

/* What goes into products: rows of k floats, row r at x + r * stride, that all of the
 * matrices are multiplied with. */
typedef void hr_input_tap_fn(void *arg, const hr_matrix *const *matrices, size_t count,
                             const float *x, size_t rows, size_t k, size_t stride);

typedef struct hr_workspace hr_workspace;

/* Rows of a pass that belong to one sequence: they see each other and what the
 * cache holds of it, and nothing else. */
typedef struct hr_text {
  size_t rows;  /* at least 1 */
  size_t start; /* position of the first */
  size_t slot;  /* place in the cache of its position 0; a multiple of HR_KEY_PANEL */
  size_t room;  /* positions from there on that are its own; a multiple too */
} hr_text;

/* What a pass is asked to do. */
typedef struct hr_request {
  const int32_t *ids;   /* [rows], each below the vocabulary's size */
  size_t rows;          /* at most the workspace's */
  size_t start;         /* position of the first row; start + rows fits the cache */
  const hr_text *texts; /* [text_count], their rows one behind the other; each fits its
                           room, and no room overlaps another. NULL: all rows are one text
                           from start, at slot 0 */
  size_t text_count;
  size_t logits_from;   /* first row whose logits are wanted; rows: none */
  const size_t *logits_rows; /* [logits_count] ascending, those that are wanted in place of all from
                                logits_from on; NULL: not used */
  size_t logits_count;
  float *logits;        /* [rows that are wanted][vocab] */
  const int32_t *types; /* [rows] kinds of segment, each below the model's types; NULL: all 0 */
  float *hidden;        /* [rows][width] what leaves the last layer and its norm; NULL: not
                           wanted */
  float *pooled;        /* [texts][width] their first rows behind the pooler; NULL: not wanted.
                           Needs hidden */
  float *scores;        /* [texts][classes] of pooled; NULL: not wanted. Needs pooled */
  const struct hr_stretch *stretch; /* NULL: the whole pass */
} hr_request;

/* Some of the layers, one after the other, and nothing behind them. */
typedef struct hr_stretch {
  uint32_t first, end;    /* layers first..end - 1 */
  const float *stream;    /* [rows][width] the residual stream before them; NULL: the embedding */
  float *stream_out;      /* [rows][width] and behind them, may be the same; NULL: not wanted */
} hr_stretch;

/* Buffers for passes of up to rows tokens on up to threads threads, with a
 * cache of up to positions. The transformer and kernels must outlive it. The
 * caller owns the result. */
hr_workspace *hr_workspace_create(const hr_transformer *model, const hr_kernels *kernels,
                                  size_t rows, size_t positions, unsigned threads, hr_error *err);
/* NULL is allowed. */
void hr_workspace_free(hr_workspace *workspace);
/* Bytes that hr_workspace_create will take; 0 when that does not fit a size_t. */
size_t hr_workspace_bytes(const hr_description *d, size_t rows, size_t positions, unsigned threads);

/* Calls tap at every step of later passes; NULL: no more. Costs barriers. */
void hr_workspace_set_tap(hr_workspace *workspace, hr_tap_fn *tap, void *arg);
/* The same for the inputs of products; it is called by one thread at a time. */
void hr_workspace_set_input_tap(hr_workspace *workspace, hr_input_tap_fn *tap, void *arg);

/* The parts of a pass, for the question where the time goes. */
typedef enum hr_part {
  HR_PART_EMBEDDING,
  HR_PART_NORM,      /* norms, and quantizing what no step before has quantized */
  HR_PART_QKV,       /* projections to queries, keys and values */
  HR_PART_PLACE,     /* rotation, and keys and values into the cache */
  HR_PART_ATTENTION,
  HR_PART_OUTPUT,    /* the projection that merges the heads */
  HR_PART_UP,        /* up and gate with their activation */
  HR_PART_DOWN,
  HR_PART_HEAD,      /* logits; pooler and classifier */
  HR_PART_WAIT,      /* for the other threads */
  HR_PARTS
} hr_part;

/* Time that one thread spent in each part; threads do not share its lines. */
typedef struct hr_profile {
  _Alignas(64) uint64_t ns[HR_PARTS];
} hr_profile;

/* Adds the times of later passes to profile, one a thread; NULL: no more. */
void hr_workspace_set_profile(hr_workspace *workspace, hr_profile *profile);

/* For tests: which thread does what in later passes is drawn from seed; 0: no more. */
void hr_workspace_force_stealing(hr_workspace *workspace, uint32_t seed);

/* The panels of one of the model's matrices, from *begin to before *end, that a thread
 * multiplies with in passes of one row, before any are stolen: where they should lie
 * near to. Of all threads together they are all of the matrix. shares are those of
 * hr_team_shares. */
void hr_panels_of_thread(const hr_transformer *transformer, const hr_matrix *matrix,
                         unsigned thread, unsigned threads, const uint32_t *shares,
                         size_t *begin, size_t *end);

/* Runs one pass: keys and values of the rows go into the cache, logits of the
 * wanted rows into request->logits. */
hr_status hr_forward(hr_workspace *workspace, hr_team *team, unsigned threads, hr_kv_cache *cache,
                     const hr_request *request, hr_error *err);

#endif
