/* SPDX-License-Identifier: MIT */
#include "save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "interrupt.h"

/* Pieces, so that Ctrl-C is heard in between. */
enum { PIECE = 1 << 24 };

static int write_all(int fd, const char *data, size_t bytes) {
  while (bytes > 0) {
    ssize_t n = write(fd, data, bytes < PIECE ? bytes : PIECE);
    if (cli_interrupted()) return EINTR;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    data += n;
    bytes -= (size_t)n;
  }
  return 0;
}

/* mkstemp makes files for the owner only; a result is for whom the mask allows. */
static void set_usual_mode(int fd) {
  mode_t mask = umask(0);
  umask(mask);
  (void)!fchmod(fd, 0666 & ~mask);
}

/* A device or a pipe must not be replaced by a file. */
static bool is_special(const char *path) {
  struct stat s;
  return stat(path, &s) == 0 && !S_ISREG(s.st_mode);
}

static int write_special(const char *path, const void *data, size_t bytes) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int error = write_all(fd, data, bytes);
  if (close(fd) != 0 && !error) error = errno;
  return error;
}

/* Gives an errno. */
static int save(char *temporary, const char *path, const void *data, size_t bytes) {
  int fd = mkstemp(temporary);
  if (fd < 0) return errno;
  set_usual_mode(fd);
  int error = write_all(fd, data, bytes);
  if (close(fd) != 0 && !error) error = errno;
  if (!error && rename(temporary, path) != 0) error = errno;
  if (error) unlink(temporary);
  return error;
}

static int fail(const char *path, int error) {
  return cli_fail(HR_ERROR_FILE, "%s: %s, expected to write a file there", path, strerror(error));
}

int cli_check_save(const char *path) {
  char *temporary;
  if (is_special(path)) return access(path, W_OK) == 0 ? HR_OK : fail(path, errno);
  if (asprintf(&temporary, "%s.XXXXXX", path) < 0) return cli_fail_memory();
  int fd = mkstemp(temporary), error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    close(fd);
    unlink(temporary);
  }
  free(temporary);
  return error ? fail(path, error) : HR_OK;
}

int cli_save_file(const char *path, const void *data, size_t bytes) {
  char *temporary;
  if (asprintf(&temporary, "%s.XXXXXX", path) < 0) return cli_fail_memory();
  int error = is_special(path) ? write_special(path, data, bytes)
                               : save(temporary, path, data, bytes);
  free(temporary);
  if (!error) return HR_OK;
  if (cli_interrupted()) return HR_ERROR_CANCELLED;
  return fail(path, error);
}
