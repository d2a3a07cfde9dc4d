/* SPDX-License-Identifier: MIT
 * Lines of a conversation: edited and remembered at a terminal, plain from a
 * pipe or a file. */
#ifndef HR_CLI_LINE_H
#define HR_CLI_LINE_H

#include <stdbool.h>

#include "bytes.h"

typedef struct cli_lines cli_lines;

typedef enum cli_line {
  CLI_LINE,            /* a line, perhaps empty */
  CLI_LINE_END,        /* there are no more */
  CLI_LINE_INTERRUPTED, /* Ctrl-C: what was typed is gone */
  CLI_LINE_FAILED       /* out of memory */
} cli_line;

/* NULL: out of memory. quiet: no word about a history that can't be kept. */
cli_lines *cli_lines_open(bool quiet);
/* True when a person types them. */
bool cli_lines_interactive(const cli_lines *lines);
/* The next line without its newline, into *line; it may hold any bytes. */
cli_line cli_lines_next(cli_lines *lines, cli_bytes *line);
/* Saves the history. NULL is allowed. */
void cli_lines_close(cli_lines *lines);

#endif
