/* SPDX-License-Identifier: MIT
 * The model inside the command. */
#ifndef HR_CLI_BUILTIN_H
#define HR_CLI_BUILTIN_H

#include <stddef.h>

#define CLI_BUILTIN "builtin"

const void *cli_builtin_data(void);
size_t cli_builtin_bytes(void);

#endif
