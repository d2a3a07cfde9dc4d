/* SPDX-License-Identifier: MIT
 * What each target does with a model that may have opened. */
#ifndef HR_TESTS_FUZZ_RUN_MODEL_H
#define HR_TESTS_FUZZ_RUN_MODEL_H

#include <headrow/headrow.h>

/* For opening it: FUZZ_ISA is the highest kernel tier, or NULL. */
hr_model_options fuzz_model_options(void);

/* Evaluates three tokens, reads a text and a conversation with a vocabulary that is there, and
 * frees the model; dies when an error has no sentence. */
void fuzz_run_model(hr_model *model, const hr_error *opened);

#endif
