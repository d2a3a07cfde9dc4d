/* SPDX-License-Identifier: MIT
 * A GGUF file like another, with tensors of other types. */
#ifndef HR_CLI_GGUF_FILE_H
#define HR_CLI_GGUF_FILE_H

#include "model/source.h"
#include "save.h"

/* Writes the head: all values of the source but for the ones that a change of types
 * changes, and the list of tensors; data follows with cli_gguf_put in the same order.
 * format: of each tensor, as it will be. False as cli_save_write is. */
bool cli_gguf_begin(cli_save *save, const hr_source *source, const hr_format *format);
/* The data of the next tensor, with what fills up to the alignment. */
bool cli_gguf_put(cli_save *save, const hr_source *source, const void *data, size_t bytes);

#endif
