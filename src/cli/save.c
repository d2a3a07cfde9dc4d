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

static int fail(const char *path, int error) {
  return cli_fail(HR_ERROR_FILE, "%s: %s, expected to write a file there", path, strerror(error));
}

/* An errno, 0 where it can be written to. A device tells by being opened; a pipe would wait
 * for who reads it, or lose them. */
static int check_special(const char *path) {
  struct stat s;
  if (stat(path, &s) != 0) return errno;
  if (S_ISDIR(s.st_mode)) return EISDIR;
  if (!S_ISCHR(s.st_mode) && !S_ISBLK(s.st_mode) && !S_ISFIFO(s.st_mode)) return ENXIO;
  if (S_ISFIFO(s.st_mode)) return access(path, W_OK) == 0 ? 0 : errno;
  int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

/* The file behind a link, or path itself, which need not be there yet. NULL with errno, also
 * for a link to nothing. */
static char *resolve(const char *path) {
  struct stat s;
  return lstat(path, &s) == 0 && S_ISLNK(s.st_mode) ? realpath(path, NULL) : strdup(path);
}

/* Replacing the file that takes the output would leave the output in none. */
static bool is_output(const char *path) {
  struct stat file, output;
  return stat(path, &file) == 0 && fstat(STDOUT_FILENO, &output) == 0 && S_ISREG(file.st_mode) &&
         file.st_dev == output.st_dev && file.st_ino == output.st_ino;
}

/* *target and *temporary, for the caller to free; a status after printing why not. */
static int name_files(const char *path, char **target, char **temporary) {
  if (is_output(path))
    return cli_fail(HR_ERROR_FILE, "%s: takes the standard output too, expected another file",
                    path);
  char *file = resolve(path), *beside;
  if (!file) return fail(path, errno);
  if (asprintf(&beside, "%s.XXXXXX", file) < 0) {
    free(file);
    return cli_fail_memory();
  }
  *target = file;
  *temporary = beside;
  return HR_OK;
}

int cli_check_save(const char *path) {
  char *temporary, *target;
  int special = is_special(path) ? check_special(path) : 0;
  if (special) return fail(path, special);
  if (is_special(path)) return HR_OK;
  int status = name_files(path, &target, &temporary);
  if (status != HR_OK) return status;
  int fd = mkstemp(temporary), error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    close(fd);
    unlink(temporary);
  }
  free(temporary);
  free(target);
  return error ? fail(path, error) : HR_OK;
}

/* Opens path itself, or a temporary file beside it. Gives an errno. */
static int open_save(cli_save *save) {
  if (!save->temporary) {
    save->fd = open(save->path, O_WRONLY | O_CLOEXEC);
    return save->fd < 0 ? errno : 0;
  }
  save->fd = mkstemp(save->temporary);
  if (save->fd < 0) return errno;
  set_usual_mode(save->fd);
  return 0;
}

int cli_save_begin(cli_save *save, const char *path, size_t bytes) {
  *save = (cli_save){.path = path, .fd = -1};
  int status = is_special(path) ? HR_OK : name_files(path, &save->target, &save->temporary);
  if (status != HR_OK) return status;
  int error = open_save(save);
  if (!error && save->temporary && bytes &&
      fallocate(save->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) != 0 && errno == ENOSPC)
    error = ENOSPC;
  if (!error) return HR_OK;
  cli_save_abandon(save);
  return fail(path, error);
}

void cli_save_begin_memory(cli_save *save, cli_bytes *memory) {
  *save = (cli_save){.path = "memory", .fd = -1, .memory = memory};
}

bool cli_save_write(cli_save *save, const void *data, size_t bytes) {
  if (!save->error && save->memory)
    save->error = cli_bytes_add(save->memory, data, bytes) ? 0 : ENOMEM;
  else if (!save->error)
    save->error = write_all(save->fd, data, bytes);
  return !save->error;
}

void cli_save_abandon(cli_save *save) {
  if (save->fd >= 0) close(save->fd);
  if (save->fd >= 0 && save->temporary) unlink(save->temporary);
  free(save->temporary);
  free(save->target);
  *save = (cli_save){.fd = -1};
}

/* The new name is on the disk when its folder is; not all file systems can do that. */
static void sync_folder(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
  int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    (void)fsync(fd);
    close(fd);
  }
  free(folder);
}

int cli_save_end(cli_save *save) {
  const char *path = save->path;
  int error = save->error;
  if (!error && save->temporary && fsync(save->fd) != 0) error = errno;
  if (close(save->fd) != 0 && !error) error = errno;
  if (!error && save->temporary && rename(save->temporary, save->target) != 0) error = errno;
  if (error && save->temporary) unlink(save->temporary);
  if (!error && save->temporary) sync_folder(save->target);
  free(save->temporary);
  free(save->target);
  *save = (cli_save){.fd = -1};
  if (!error) return HR_OK;
  if (cli_interrupted()) return HR_ERROR_CANCELLED;
  return fail(path, error);
}

int cli_save_file(const char *path, const void *data, size_t bytes) {
  cli_save save;
  int status = cli_save_begin(&save, path, bytes);
  if (status != HR_OK) return status;
  (void)cli_save_write(&save, data, bytes);
  return cli_save_end(&save);
}

bool cli_is_same_file(const char *a, const char *b) {
  struct stat x, y;
  return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
