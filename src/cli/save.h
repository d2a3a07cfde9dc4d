/* SPDX-License-Identifier: MIT
 * Writing a file so that under its name there is never half of it. */
#ifndef HR_CLI_SAVE_H
#define HR_CLI_SAVE_H

#include <stddef.h>

/* Writes to a temporary name beside path and renames. Returns a status, after
 * printing why it failed; nothing is left behind then. */
int cli_save_file(const char *path, const void *data, size_t bytes);
/* The same status for a place that can't be written to, before long work. */
int cli_check_save(const char *path);

#endif
