/* SPDX-License-Identifier: MIT
 * Writing a file so that under its name there is never half of it. */
#ifndef HR_CLI_SAVE_H
#define HR_CLI_SAVE_H

#include <stdbool.h>
#include <stddef.h>

#include "bytes.h"

/* A file that grows under a temporary name beside its own. A device or a pipe is
 * written to directly; a link stays one, the file behind it is replaced. */
typedef struct cli_save {
  const char *path;
  char *target;    /* behind links; NULL for a device or a pipe */
  char *temporary; /* NULL for a device or a pipe */
  int fd;
  int error;       /* errno of the first failure, 0: none */
  cli_bytes *memory; /* in place of a file; NULL: none */
} cli_save;

/* Each gives a status after printing why it failed, and leaves nothing behind
 * then. bytes is what the file is going to have: a disk that is too full for it
 * is found at once where the file system can tell. */
int cli_save_begin(cli_save *save, const char *path, size_t bytes);
/* True; false once something failed or an interrupt came, to be told by cli_save_end. */
bool cli_save_write(cli_save *save, const void *data, size_t bytes);
/* Waits until the bytes are on the disk and gives the file its name. */
int cli_save_end(cli_save *save);
/* In place of cli_save_end: forgets the file. */
void cli_save_abandon(cli_save *save);

/* What is written is added to memory, no file; ENOMEM in save->error when there is none.
 * Needs no end. */
void cli_save_begin_memory(cli_save *save, cli_bytes *memory);

/* All of it at once. */
int cli_save_file(const char *path, const void *data, size_t bytes);
/* The same status for a place that can't be written to, before long work. */
int cli_check_save(const char *path);

/* Whether both names lead to one file that exists, through links too. */
bool cli_is_same_file(const char *a, const char *b);

#endif
