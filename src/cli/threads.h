/* SPDX-License-Identifier: MIT
 * The number of threads where no rule knows it: found by short trials, once for a
 * machine, its limits and a size of model, and kept in the user's cache folder. */
#ifndef HR_CLI_THREADS_H
#define HR_CLI_THREADS_H

#include "cli.h"

/* The numbers for sessions of a model: those that were asked for, or found now or
 * earlier by trials, or 0 for the library's rule. A status after printing why. */
int cli_choose_threads(const cli_common *common, const hr_model *model, unsigned *one,
                       unsigned *many);

/* The same for a planned model, without trials: those need its weights. True when trials
 * found a number earlier. */
bool cli_find_threads(const cli_common *common, const hr_model *model, unsigned *one,
                      unsigned *many);

/* Gives those numbers to the packing of the weights; the first load goes by the rule. */
void cli_choose_threads_to_load(const cli_common *common, hr_model *model);

/* Warns when an OpenMP variable is set that may have bound this process to fewer CPUs
 * before it began. */
void cli_warn_of_binding(void);

/* One sentence about trials on this machine; and a line for each result that is
 * kept for it. */
typedef void cli_line_fn(void *data, const char *line);
void cli_describe_threads(const cli_common *common, cli_line_fn *line, void *data);

#endif
