/* SPDX-License-Identifier: MIT
 * A Transformer described act by act, for info. */
#ifndef HR_CLI_ACTS_H
#define HR_CLI_ACTS_H

#include <jansson.h>

#include "block/description.h"

/* Context, embedding, block and head, a line an act. */
void cli_print_acts(const hr_transformer *t);
/* The same as one object. */
json_t *cli_json_acts(const hr_transformer *t);

#endif
