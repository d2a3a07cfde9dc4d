/* SPDX-License-Identifier: MIT
 * A model with some of its matrices changed for others. */
#ifndef HR_CLI_MIXTURE_H
#define HR_CLI_MIXTURE_H

#include "engine/engine.h"

/* A copy of a model that shares everything with it but the table of its matrices. */
typedef struct cli_mixture {
  hr_model model;
  const hr_model *base;
  void **owned; /* panels of this copy alone, by number of held matrix */
  size_t *owned_bytes;
} cli_mixture;

/* False when memory is out; cli_mixture_finish frees it then too. The base outlives it. */
bool cli_mixture_init(cli_mixture *mixture, const hr_model *base);
void cli_mixture_finish(cli_mixture *mixture);

/* The matrix of `to` at the place that m has in `from`. */
hr_matrix *cli_same_matrix(hr_transformer *to, const hr_transformer *from, const hr_matrix *m);

/* The layer of held matrix i, or -1 for those at the ends. */
int64_t cli_layer_of(const hr_loaded *loaded, size_t i);

/* What held matrix i is of a tensor that others are made from too: "q", "k", "v", "gate" or
 * "up"; NULL where it is all of its tensor. */
const char *cli_part_of(const hr_loaded *loaded, size_t i);

/* Sets held matrix i (of the base) to type and panels; the bias stays. A tied head
 * goes with the embedding. cli_mixture_reset takes the base's again. */
void cli_mixture_set(cli_mixture *mixture, size_t i, hr_panel_type type, const void *panels);
void cli_mixture_reset(cli_mixture *mixture, size_t i);
/* Sets it to the same values as a matrix of the same shape has, in fp32: products then
 * take activations as they are. False when memory is out. */
bool cli_mixture_widen(cli_mixture *mixture, size_t i, const hr_matrix *values);
/* The same for rows of floats: rows x columns, packed as `type`; f32, f16 and bf16 by
 * rounding to nearest. Blocks of q8 come as rows of hr_q8_file_block. */
bool cli_mixture_pack(cli_mixture *mixture, size_t i, hr_panel_type type, const void *rows,
                      size_t stride);

/* The file of a model, read once more: names of tensors, values. NULL is the built-in one. */
hr_source *cli_open_source(const char *name, hr_error *err);

#endif
