/* SPDX-License-Identifier: MIT
 * Private to src/block: a pass while it runs. Every function here is called by
 * all threads of the team at once, each with its own number; between steps that
 * read what another thread wrote there is a barrier. */
#ifndef HR_BLOCK_PASS_H
#define HR_BLOCK_PASS_H

#include "block/forward.h"

enum { HR_QUERIES = 32 }; /* queries that one thread attends with together */

/* What one thread has for itself. */
typedef struct hr_private {
  float *row;      /* one normed row */
  void *quantized; /* the same, quantized */
  hr_query *query; /* [HR_QUERIES or heads per kv head, the larger] */
  float *max, *sum, *out;                   /* running results of those queries */
  float *block_max, *block_sum, *block_out; /* results of one block of keys */
} hr_private;

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
  float *attended;    /* heads side by side */
  float *gate, *up;
  float *cos, *sin;   /* [rows][rope_width / 2] */
  float *part_max, *part_sum, *part_out; /* one row, [heads][blocks of keys] */
  size_t x_stride, heads_stride, kv_stride, ffn_stride, quantized_stride, out_stride;
  hr_private *private;
  hr_tap_fn *tap;
  void *tap_arg;
};

typedef struct hr_pass {
  const hr_transformer *model;
  const hr_kernels *kernels;
  hr_workspace *ws;
  hr_team *team;
  hr_kv_cache *cache;
  const hr_request *request;
} hr_pass;

typedef struct hr_range {
  size_t begin, end;
} hr_range;

/* Number of one of the model's layers. */
static inline uint32_t hr_layer_index(const hr_pass *pass, const hr_layer *layer) {
  return (uint32_t)(layer - pass->model->layer);
}

/* The part of total that a thread takes: contiguous, sizes differ by at most 1. */
static inline hr_range hr_share(size_t total, unsigned thread, unsigned threads) {
  size_t each = total / threads, more = total % threads;
  size_t begin = thread * each + (thread < more ? thread : more);
  return (hr_range){begin, begin + each + (thread < more)};
}

static inline size_t hr_min_size(size_t a, size_t b) {
  return a < b ? a : b;
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

/* One of several products that read the same input. */
typedef struct hr_projection {
  const hr_matrix *matrix;
  float *y;
  size_t y_stride; /* floats */
} hr_projection;

/* The part of a product that a thread computes. Panels are shared out; where
 * there are fewer than threads, rows too. */
typedef struct hr_cut {
  hr_range panels, rows;
} hr_cut;
hr_cut hr_cut_product(size_t panels, size_t rows, unsigned thread, unsigned threads);

/* Runs this thread's share of the outputs of all projections. No barrier. */
void hr_project(hr_pass *pass, unsigned thread, unsigned threads, const hr_input *input,
                const hr_projection *projection, size_t count, bool add);

/* norm.c */
void hr_norm_row(const hr_pass *pass, const hr_norm_weights *norm, const float *x, size_t n,
                 float *y);
/* Adds a sub-layer's output to the residual stream in the way that the norm's
 * place asks for, after a barrier; see hr_residual_target. Ends with a barrier. */
void hr_residual(hr_pass *pass, unsigned thread, unsigned threads, const hr_norm_weights *post);
/* Where a sub-layer's last product goes, and whether it adds to what is there. */
float *hr_residual_target(const hr_pass *pass, bool *add);

/* embed.c, attention.c, feed_forward.c, head.c */
void hr_embed(hr_pass *pass, unsigned thread, unsigned threads);
void hr_attention_inputs(hr_pass *pass, unsigned thread, unsigned threads, const hr_layer *layer);
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
