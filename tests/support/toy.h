/* SPDX-License-Identifier: MIT
 * Small Transformers made by hand, run by the real block: plain weights that a
 * test may write, packed into panels before every run. Runs out of memory by
 * abort(). */
#ifndef HR_TESTS_TOY_H
#define HR_TESTS_TOY_H

#include "block/forward.h"
#include "tests/support/activations.h"

/* GPT-2's block, one layer of it, without positions: width 32, 4 heads of 8, 128
 * columns of feed-forward, 16 tokens, layer norm, GELU (tanh), causal. */
hr_description toy_description(void);
/* The same with other sizes; heads divides width, feed-forward is 4 * width. */
hr_description toy_description_of(uint32_t layers, uint32_t width, uint32_t heads);

typedef struct toy {
  hr_transformer model;
  hr_kernels kernels; /* the best of this CPU; a test may put its own into a slot */
  void *blocks[4096]; /* all that was allocated */
  size_t block_count;
  struct toy_plain { const hr_matrix *matrix; float *weight; void *panels; } plain[1024];
  size_t plain_count;
} toy;

/* All matrices zero, norms of gain 1 and shift 0 where the description has them,
 * positions zero. The description may be changed later as far as the sizes of the
 * matrices stay. */
toy *toy_create(const hr_description *d);
void toy_free(toy *t);

/* The plain weights of a matrix of the model, [n][k], to be written. */
float *toy_weight(toy *t, const hr_matrix *matrix);
/* Gives a matrix a bias of zeros, to be written. */
float *toy_bias(toy *t, hr_matrix *matrix);
/* [context][width], to be written. */
float *toy_positions(toy *t);
/* Every matrix normal with a deviation of scale / sqrt(columns), tokens and learned
 * positions with 1. */
void toy_randomize(toy *t, uint64_t seed, double scale);
/* Writes 1 on the diagonal and 0 elsewhere. */
void toy_identity(toy *t, const hr_matrix *matrix);

/* A sequence of tokens. */
typedef struct toy_session {
  toy *toy;
  hr_team *team;
  hr_workspace *workspace;
  hr_kv_cache cache;
  size_t position;
  activations seen;   /* of all rows so far */
  float *logits;      /* of all rows so far */
} toy_session;

toy_session *toy_open(toy *t);
void toy_eval(toy_session *s, const int32_t *ids, size_t rows);
void toy_close(toy_session *s);
/* All at once. */
toy_session *toy_run(toy *t, const int32_t *ids, size_t rows);

/* Row r of what was shown. */
const float *toy_row(const toy_session *s, const char *name, uint32_t layer, size_t r);

#endif
