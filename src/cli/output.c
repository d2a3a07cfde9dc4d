/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "interrupt.h"

enum { BUFFER = 1 << 16, FLUSH_MS = 5, SILENCE_MS = 1500 };

static struct {
  char buffer[BUFFER];
  size_t used;
  int error; /* errno of the first failed write */
  double flushed;
} out;

/* A descriptor that is closed would be taken by the next file opened: /dev/null
 * takes it first. Standard output can't be written to then, so the result is not
 * lost without a word. */
void cli_prepare_streams(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
      (void)!open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  /* A reader that left and a file that may not grow are errors of write(). */
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

static bool wait_until_writable(void) {
  struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
  return poll(&p, 1, -1) >= 0 || errno == EINTR;
}

void cli_flush(void) {
  size_t done = 0;
  while (done < out.used && !out.error) {
    ssize_t n = write(STDOUT_FILENO, out.buffer + done, out.used - done);
    if (n >= 0)
      done += (size_t)n;
    else if (errno == EAGAIN && wait_until_writable())
      continue;
    else if (errno != EINTR)
      out.error = errno;
  }
  out.used = 0;
  out.flushed = cli_now();
}

void cli_write(const char *bytes, size_t count) {
  while (count > 0) {
    size_t room = BUFFER - out.used;
    size_t n = count < room ? count : room;
    memcpy(out.buffer + out.used, bytes, n);
    out.used += n;
    bytes += n;
    count -= n;
    if (out.used == BUFFER) cli_flush();
  }
}

void cli_print(const char *format, ...) {
  char *text;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  if (n < 0) {
    out.error = ENOMEM;
    return;
  }
  cli_write(text, (size_t)n);
  free(text);
}

void cli_flush_soon(void) {
  if (out.used && cli_now() - out.flushed > FLUSH_MS * 1e-3) cli_flush();
}

bool cli_output_failed(void) {
  return out.error != 0;
}

int cli_end_output(int status) {
  cli_flush();
  if (out.error == 0 || out.error == EPIPE) return status;
  return cli_fail(HR_ERROR_FILE, "standard output: %s, expected to write the result to it",
                  strerror(out.error));
}

/* --- JSON ------------------------------------------------------------------- */

static int write_piece(const char *bytes, size_t count, void *data) {
  (void)data;
  cli_write(bytes, count);
  return 0;
}

int cli_print_json(json_t *document) {
  if (!document) return cli_fail_memory();
  int failed =
      json_dump_callback(document, write_piece, NULL, JSON_COMPACT | JSON_REAL_PRECISION(9));
  json_decref(document);
  cli_print("\n");
  return failed ? cli_fail_memory() : HR_OK;
}

/* Bytes of a valid code point at text, or 0 and in *bad how many bytes belong
 * together as the longest start of one (Unicode, table 3-7). */
static size_t code_point(const unsigned char *text, size_t count, size_t *bad) {
  unsigned char first = text[0], low = 0x80, high = 0xbf;
  size_t length = first < 0x80   ? 1
                  : first < 0xc2 ? 0
                  : first < 0xe0 ? 2
                  : first < 0xf0 ? 3
                  : first < 0xf5 ? 4
                                 : 0;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  *bad = 1;
  for (size_t i = 1; i < length; i++, low = 0x80, high = 0xbf) {
    if (i == count || text[i] < low || text[i] > high) return 0;
    *bad = i + 1;
  }
  return length;
}

size_t cli_find_stray_byte(const char *bytes, size_t count) {
  size_t bad;
  for (size_t i = 0, n; i < count; i += n) {
    n = code_point((const unsigned char *)bytes + i, count - i, &bad);
    if (n == 0) return i;
  }
  return count;
}

json_t *cli_json_text(const char *bytes, size_t count) {
  cli_bytes clean = {0};
  bool fine = true;
  for (size_t i = 0; i < count && fine;) {
    size_t bad;
    size_t n = code_point((const unsigned char *)bytes + i, count - i, &bad);
    fine = n ? cli_bytes_add(&clean, bytes + i, n) : cli_bytes_add(&clean, "\xef\xbf\xbd", 3);
    i += n ? n : bad;
  }
  json_t *text = fine ? json_stringn(clean.data ? clean.data : "", clean.used) : NULL;
  cli_bytes_free(&clean);
  return text;
}

const char *cli_size_text(size_t bytes, char text[CLI_SIZE_TEXT]) {
  static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
  double x = (double)bytes;
  size_t u = 0;
  for (; x >= 999.95 && u < 4; u++) x /= 1000;
  snprintf(text, CLI_SIZE_TEXT, u ? "%.1f %s" : "%.0f %s", x, units[u]);
  return text;
}

void cli_print_quoted(const char *bytes, size_t count) {
  cli_print("\"");
  for (size_t i = 0; i < count;) {
    size_t bad;
    size_t n = code_point((const unsigned char *)bytes + i, count - i, &bad);
    unsigned char c = (unsigned char)bytes[i];
    if (c == '"' || c == '\\')
      cli_print("\\%c", c);
    else if (c == '\n')
      cli_print("\\n");
    else if (c == '\t')
      cli_print("\\t");
    else if (n == 0 || c < 0x20 || c == 0x7f)
      cli_print("\\x%02x", c);
    else
      cli_write(bytes + i, n);
    i += n ? n : 1;
  }
  cli_print("\"");
}

/* --- Files ------------------------------------------------------------------ */

static int read_all(int fd, const char *name, cli_bytes *bytes) {
  char piece[1 << 14];
  for (;;) {
    ssize_t n = read(fd, piece, sizeof piece);
    if (n == 0) return HR_OK;
    if (n > 0 && !cli_bytes_add(bytes, piece, (size_t)n)) return cli_fail_memory();
    if (n > 0) continue;
    if (cli_interrupted()) return HR_ERROR_CANCELLED;
    if (errno != EINTR)
      return cli_fail(HR_ERROR_FILE, "%s: %s, expected a text that can be read", name,
                      strerror(errno));
  }
}

int cli_read_input(cli_bytes *bytes, bool quiet) {
  struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
  if (!quiet && poll(&p, 1, SILENCE_MS) == 0)
    cli_note("reading the text from standard input until it ends");
  return read_all(STDIN_FILENO, "standard input", bytes);
}

int cli_read_file(const char *path, cli_bytes *bytes) {
  if (strcmp(path, "-") == 0) return cli_read_input(bytes, true);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return cli_fail(HR_ERROR_FILE, "%s: %s, expected a text that can be read", path,
                    strerror(errno));
  int status = read_all(fd, path, bytes);
  close(fd);
  return status;
}
