/* SPDX-License-Identifier: MIT
 * The command from outside: lines of shell, and what came of them. */
#ifndef HR_TESTS_SHELL_H
#define HR_TESTS_SHELL_H

#include <stddef.h>

typedef struct result {
  int status; /* exit status; 256 + signal when killed */
  char *out, *err;
  size_t out_bytes;
} result;

/* Runs a line with nothing on its input. In it $H is the command under test (named
 * by HEADROW_COMMAND), $ROOT the source tree and $D an empty folder that is removed
 * afterwards; HEADROW_THREADS and HEADROW_ISA are not set. */
result shell(const char *line);
/* The same with a terminal for the errors: err is what it was sent. */
result shell_on_terminal(const char *line);
void finish(result *r);

/* The same number for what waitpid() gives. */
int exit_of(int wait_status);

size_t lines_of(const char *text);

/* The line ends with that status, prints nothing, and one line of error that holds each word
 * (other may be NULL); of usage it says what was expected. */
void expect_error(const char *line, int status, const char *word, const char *other);

#endif
