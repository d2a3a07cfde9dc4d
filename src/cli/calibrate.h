/* SPDX-License-Identifier: MIT
 * What a model's products are fed with on a text: sums that rounding can make use of.
 *
 * Matrices are rounded in the order of a pass, and what is rounded already is in the
 * model that the next inputs are taken from: each matrix makes good, as far as it can,
 * what those before it have spoilt. Layers are run one at a time, from residual streams
 * that are kept. */
#ifndef HR_CLI_CALIBRATE_H
#define HR_CLI_CALIBRATE_H

#include "corpus.h"
#include "engine/engine.h"

typedef struct cli_calibration cli_calibration;

/* The model's weights are in fp32. Takes at most `most` tokens of the corpus; all of
 * these outlive the result. NULL after printing why. */
cli_calibration *cli_calibration_create(const cli_common *common, const hr_model *model,
                                        const cli_corpus *corpus, size_t most, int *status);
/* NULL is allowed. */
void cli_calibration_free(cli_calibration *calibration);

/* Numbers of the tensors that the matrices of the model are made from, in the order that
 * they are to be rounded in; room for as many as the model holds matrices. How many. */
size_t cli_calibration_order(const cli_calibration *calibration, size_t *tensors);

/* Of quant/compensate.h, for the input of a tensor; u NULL: it is no matrix of a product;
 * shift NULL: its input is as it was. */
typedef struct cli_compensation {
  const float *u, *shift;
} cli_compensation;

/* Valid until the next call. Returns a status after printing why. */
int cli_calibration_of(cli_calibration *calibration, size_t tensor, cli_compensation *result);
/* The tensor as it will be: rows in a format as a file has them. Returns a status. */
int cli_calibration_take(cli_calibration *calibration, size_t tensor, hr_format format,
                         const void *data);

#endif
