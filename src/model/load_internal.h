/* SPDX-License-Identifier: MIT
 * The plan of a model's weights, for load.c and the writer of packed files. */
#ifndef HR_MODEL_LOAD_INTERNAL_H
#define HR_MODEL_LOAD_INTERNAL_H

#include "model/load.h"

/* Some of a tensor's outputs: count of total, from the first on; in runs of so
 * many, one every step outputs, where run is not 0. */
typedef struct hr_outputs {
  size_t first, count, total, run, step;
} hr_outputs;

/* One thing to put into memory: a matrix or a row of floats. */
struct hr_load_item {
  const hr_tensor *tensor; /* gone when the source is closed */
  const float *numbers;    /* without a tensor: floats that the plan owns */
  hr_outputs outputs;      /* of floats: elements */
  bool transposed;
  bool plus_one;           /* floats are one less in the file */
  hr_matrix *matrix;       /* NULL: floats */
  const float **floats;
  size_t count;            /* floats */
  size_t offset, bytes;    /* in the block */
  const void *packed;      /* where a packed file holds it */
};

/* Packs the planned items first..first + count to block, where the first of
 * them begins. */
hr_status hr_load_items(const hr_source *source, const hr_loaded *loaded, size_t first,
                        size_t count, void *block, const hr_kernels *kernels,
                        const hr_load_options *options, hr_error *err);

#endif
