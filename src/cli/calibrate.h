/* SPDX-License-Identifier: MIT
 * What a model's products are fed with on a text: sums that rounding can make use of. */
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

/* The matrix u of quant/compensate.h for a tensor's input, [k][k], valid until the next
 * call; NULL with HR_OK for a tensor that is no matrix of a product. */
const float *cli_calibration_of(cli_calibration *calibration, size_t tensor, int *status);

#endif
