/* SPDX-License-Identifier: MIT
 * From the tensors of a file to a Transformer in panels. */
#ifndef HR_MODEL_LOAD_H
#define HR_MODEL_LOAD_H

#include "block/description.h"
#include "kernels/kernels.h"
#include "model/source.h"
#include "quant/convert.h"
#include "sched/team.h"

/* Where a matrix of the Transformer comes from: tensor number `tensor` of the
 * source, and which of its outputs as hr_panel_source says it. */
typedef struct hr_held {
  hr_matrix *matrix;
  size_t tensor, first_row, run, step;
  bool transposed;
} hr_held;

typedef struct hr_load_item hr_load_item;

typedef struct hr_loaded {
  hr_transformer transformer;
  void *weights;       /* one block: all panels, norms and tables; NULL where they are mapped */
  size_t weight_bytes;
  bool mapped;         /* the weights lie in the source's file, which must stay open */
  size_t parameters;   /* elements in the file */
  hr_held *held;       /* matrices in the order of loading; a tied head is not there again;
                          none of a packed file */
  size_t held_count;
  bool all_f32;        /* every matrix is held as F32 */
  char note[256];      /* what was not held as asked, or empty */
  hr_load_item *items; /* what was planned */
  size_t item_count;
  size_t spare_count;  /* tensors that no task done here reads, such as heads that fill masks */
  char spare[128];     /* the first of them */
  char **labels;       /* [classes] what the scores of the classifier are for; NULL: not said */
} hr_loaded;

typedef struct hr_load_options {
  hr_team *team;            /* packs with its threads; NULL: the caller alone */
  hr_progress_fn *progress; /* may be NULL */
  void *progress_data;
} hr_load_options;

/* Reads the description, finds every tensor and adds up the sizes; all pointers
 * of the transformer are set, but to addresses that hold nothing yet (except in a
 * packed file) and may not be read. Costs no memory to speak of. Fails with a sentence
 * naming the missing tensor, or the one of a wrong shape with the shape that
 * was expected. loaded must stay where it is until hr_load. hr_loaded_finish frees
 * it, also after a failure. */
hr_status hr_load_plan(const hr_source *source, hr_weights weights, hr_loaded *loaded,
                       hr_error *err);
/* Packs the weights that were planned from this source. */
hr_status hr_load(const hr_source *source, const hr_kernels *kernels,
                  const hr_load_options *options, hr_loaded *loaded, hr_error *err);
void hr_loaded_finish(hr_loaded *loaded);

/* What turning a tensor's values into those of a matrix has lost. */
typedef struct hr_loss {
  double error, norm; /* sums over (held - file)^2 and file^2 */
} hr_loss;

/* The rows of the file that a matrix was made from; the source is the one it was
 * loaded from, or the same file opened again. */
hr_panel_source hr_held_source(const hr_source *source, const hr_held *held);

/* Compares a matrix with the tensor that it was made from. */
hr_status hr_held_loss(const hr_source *source, const hr_held *held, hr_loss *loss, hr_error *err);

#endif
