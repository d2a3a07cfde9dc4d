/* SPDX-License-Identifier: MIT
 * Whether a model fits the memory there is, before it is loaded. */
#ifndef HR_CLI_MEMORY_H
#define HR_CLI_MEMORY_H

#include "cli.h"

/* The check before loading, of a model opened with defer_weights. Says what is
 * converted and what that needs. A status, after printing what is needed, what is
 * free and which context would fit. */
int cli_check_memory(const cli_common *common, const hr_model *model);

/* Positions for a session without --ctx: the default, or as many as fit what is
 * now free, which is said. */
size_t cli_context_that_fits(const cli_common *common, const hr_model *model);

/* The two alike with bytes free; where says so (a file). */
int cli_check_memory_in(const cli_common *common, const hr_model *model, size_t bytes,
                        const char *where);
size_t cli_context_that_fits_in(const cli_common *common, const hr_model *model, size_t bytes);

#endif
