/* SPDX-License-Identifier: MIT
 * Private to the command accuracy: its settings and what its files share. */
#ifndef HR_CLI_ACCURACY_H
#define HR_CLI_ACCURACY_H

#include <jansson.h>

#include "cli.h"
#include "corpus.h"
#include "engine/engine.h"
#include "quant/measures.h"

/* A check that found what it was asked to find. */
#define CLI_DIFFERENT ((hr_status)1)

typedef struct cli_accuracy {
  cli_common common;
  const char *against, *file, *split, *digests, *check;
  cli_count stride, detail;
  cli_real max_kl, min_top1;
  bool across_isa, json;
} cli_accuracy;

/* An estimate as {"value", "standard_error"}; an unknown error is null. */
json_t *cli_estimate_json(hr_estimate estimate);
json_t *cli_error_json(hr_estimate estimate); /* the error alone */

/* --- accuracy_detail.c: where the error comes from ------------------------------ */

/* One tensor, or the part of a fused one that is a matrix, or one layer. */
typedef struct cli_blame {
  double weights;         /* relative RMS error of the values held, against the reference's */
  hr_estimate kl_weights; /* mean KL when it alone takes the model's values, in fp32 */
  hr_estimate kl;         /* when it alone is as in the model, with its activations */
} cli_blame;

typedef struct cli_detail {
  size_t tokens;         /* that it was measured on */
  hr_estimate kl;        /* of the whole model on these */
  bool alone;            /* kl_weights is known: the reference is in fp32 */
  cli_blame *tensor;     /* of each held matrix */
  cli_blame *layer;      /* all matrices of a layer at once */
  double *layer_output;  /* relative RMS error of the layer's output in the whole model */
} cli_detail;

/* Measures on at most set->detail tokens. A status after printing why. */
int cli_detail_measure(const cli_accuracy *set, const hr_model *model, const hr_model *reference,
                       const cli_corpus *corpus, cli_detail *detail);
void cli_detail_free(cli_detail *detail);
/* source: the model's file, for the names of tensors. */
void cli_detail_print(const cli_detail *detail, const hr_model *model, const hr_source *source);
json_t *cli_detail_json(const cli_detail *detail, const hr_model *model, const hr_source *source);

/* --- accuracy_digest.c: the same bits everywhere -------------------------------- */

/* --across-isa, --digests and --check. The corpus is read, or made up, anew for each model. */
int cli_accuracy_digests(const cli_accuracy *set, const char *name);

/* accuracy.c: the text that the settings name. */
int cli_accuracy_corpus(const cli_accuracy *set, const hr_model *model, cli_corpus *corpus);

#endif
