/* SPDX-License-Identifier: MIT
 * Kernels of this build and this machine, by name: the inner libraries' part of
 * `--version`, `--log kernels` and `info --cpu`; what limits the number of threads. */
#ifndef HR_CLI_MACHINE_H
#define HR_CLI_MACHINE_H

#include <jansson.h>

#include "cli.h"

struct hr_placement;

/* Names of the tiers built in, "portable, avx2". */
const char *cli_tier_names(void);
/* One call for each slot of the table that a tier gives, with the kernel's name. */
typedef void cli_kernel_fn(void *data, const char *slot, const char *kernel);
void cli_visit_kernels(const char *isa, cli_kernel_fn *visit, void *data);
/* Whether the tier that was asked for, if any, is one of this CPU. A status after printing
 * why not; opening a model finds it too. */
int cli_check_isa(const cli_common *common);
/* The CPU's name as the system has it below root ("" for this machine), on ARM the board's and
 * those of its kinds of cores, or their numbers; NULL: not known. */
const char *cli_cpu_name(const char *root, char text[128]);
/* Everything that limits the number of threads, and which of it decides. */
json_t *cli_json_caps(const struct hr_placement *placement);

#endif
