/* SPDX-License-Identifier: MIT
 * Private to the command quantize. */
#ifndef HR_CLI_QUANTIZE_H
#define HR_CLI_QUANTIZE_H

#include "calibrate.h"
#include "cli.h"
#include "interrupt.h"
#include "kernels/kernels.h"
#include "quant/measures.h"
#include "save.h"

/* What the command was asked for, and what it works with. */
typedef struct cli_quantizing {
  cli_common common;
  cli_choice type;
  cli_texts keep;
  const char *calibrate, *split, *file;
  cli_real max_kl;
  cli_count tokens;
  bool json;

  const char *name;
  hr_source *source;
  hr_team *team;
  hr_kernels kernels;
  hr_model *model;                /* in fp32; only with a text */
  cli_corpus corpus, measured;    /* to calibrate with, to measure on */
  cli_calibration *calibration;   /* NULL: without */
  cli_progress *progress;
  double done, share;             /* of it, and what the next tensor is */
  hr_estimate kl;                 /* reached with --max-kl */
  size_t kl_tokens;               /* that it was measured on */
} cli_quantizing;

/* One tensor of the file to be. */
typedef struct cli_quantized {
  hr_format format;
  bool kept;        /* named by --keep */
  bool may_not_fit; /* a value out of the format's range is no error: fits tells of it */
  bool fits;
  bool compensated;
  char *data;       /* NULL: not made yet, or written */
  size_t bytes;
  double error, norm;
} cli_quantized;

/* Makes the data of a tensor. A status after printing why. */
int cli_quantize_tensor(cli_quantizing *q, size_t index, cli_quantized *tensor);

/* Writes the head of the file and all tensors that have data; those that have none are
 * made, and their data is dropped once it is written. A write that fails is told of at the
 * end of the file. */
int cli_quantize_put(cli_quantizing *q, cli_save *save, cli_quantized *tensor);

/* quantize_text.c: opens the model and reads the texts. */
int cli_quantize_prepare(cli_quantizing *q);
void cli_quantize_finish(cli_quantizing *q);
/* quantize_mix.c: makes all tensors, and turns Q8_0 into F16 where that is cheapest until the
 * mean KL divergence is at most what was asked for. CLI_DIFFERENT when F16 everywhere is not
 * enough. */
int cli_quantize_for_kl(cli_quantizing *q, cli_quantized *tensor);

#endif
