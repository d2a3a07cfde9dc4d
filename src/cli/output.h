/* SPDX-License-Identifier: MIT
 * Standard output through a buffer of our own, so that every failed write is
 * seen, and texts that come in. */
#ifndef HR_CLI_OUTPUT_H
#define HR_CLI_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "bytes.h"

/* Makes sure that the three standard streams are open, and that a closed pipe
 * is an error of a write and not a signal. */
void cli_prepare_streams(void);

void cli_write(const char *bytes, size_t count);
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_flush(void);
/* Flushes unless that was done less than a few milliseconds ago: a reader sees
 * text as it comes, and a fast model does not pay a system call for each token. */
void cli_flush_soon(void);
/* True once a write has failed: more of them are in vain. */
bool cli_output_failed(void);
/* The last flush. Turns a command's exit status into the program's: a reader
 * that went away is fine, any other failure is an error. */
int cli_end_output(int status);

/* One JSON document and a newline; takes the reference over. NULL is out of memory. */
int cli_print_json(json_t *document);
/* Where the first byte is that belongs to no code point in UTF-8; count when there is none. */
size_t cli_find_stray_byte(const char *bytes, size_t count);
/* A string for JSON: each maximal piece that is no UTF-8 becomes U+FFFD. */
json_t *cli_json_text(const char *bytes, size_t count);

/* "1.2 GB", of powers of 1000. */
#define CLI_SIZE_TEXT 32
const char *cli_size_text(size_t bytes, char text[CLI_SIZE_TEXT]);

/* Bytes in quotes with escapes as in C, for a line of text. */
void cli_print_quoted(const char *bytes, size_t count);

/* A whole file into bytes; "-" is standard input. Returns a status. */
int cli_read_file(const char *path, cli_bytes *bytes);
/* Standard input, with a note on stderr when nothing comes for a while. */
int cli_read_input(cli_bytes *bytes, bool quiet);

#endif
