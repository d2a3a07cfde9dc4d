/* SPDX-License-Identifier: MIT
 * A table that is filled cell by cell and printed as columns, Markdown or
 * comma-separated values. */
#ifndef HR_CLI_TABLE_H
#define HR_CLI_TABLE_H

#include <stdbool.h>

typedef enum cli_table_form { CLI_TABLE_TEXT, CLI_TABLE_MARKDOWN, CLI_TABLE_CSV } cli_table_form;

typedef struct cli_table cli_table;

/* Heads with '|' between; one that ends in ':' is of a column of numbers, which go
 * to the right. NULL when memory is out, which every function below takes. */
cli_table *cli_table_new(const char *heads);
void cli_table_free(cli_table *table);

/* The next cell, row by row. Bytes that would move a terminal's cursor become '?'. */
void cli_table_add(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the rows to standard output and frees the table. Returns a status. */
int cli_table_end(cli_table *table, cli_table_form form);

#endif
