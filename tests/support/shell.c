/* SPDX-License-Identifier: MIT */
#include "tests/support/shell.h"

#include <criterion/criterion.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *read_back(FILE *file, size_t *bytes) {
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char *text = calloc((size_t)size + 1, 1);
  *bytes = fread(text, 1, (size_t)size, file);
  fclose(file);
  return text;
}

int exit_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 256 + WTERMSIG(wait_status);
}

/* In the child: never returns. */
static void run_line(const char *line) {
  static const char folder[] = "D=$(mktemp -d); trap 'rm -rf $D' EXIT; ";
  char *whole;
  setenv("H", getenv("HEADROW_COMMAND") ? getenv("HEADROW_COMMAND") : "headrow", 1);
  setenv("ROOT", HEADROW_SOURCE_ROOT, 1);
  unsetenv("HEADROW_THREADS");
  unsetenv("HEADROW_ISA");
  if (asprintf(&whole, "%s%s", strstr(line, "$D") ? folder : "", line) < 0) _exit(99);
  execl("/bin/sh", "sh", "-c", whole, (char *)NULL);
  _exit(99);
}

result shell(const char *line) {
  FILE *out = tmpfile(), *err = tmpfile();
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    if (!freopen("/dev/null", "r", stdin)) _exit(99);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    run_line(line);
  }
  int wait_status;
  waitpid(child, &wait_status, 0);
  size_t ignored;
  result r = {.status = exit_of(wait_status)};
  r.out = read_back(out, &r.out_bytes);
  r.err = read_back(err, &ignored);
  return r;
}

/* Until the last program that has the terminal open is gone. */
static char *read_terminal(int fd) {
  size_t used = 0, room = 1 << 16;
  char *text = calloc(room, 1);
  for (ssize_t n; used + 1 < room && (n = read(fd, text + used, room - 1 - used)) > 0;)
    used += (size_t)n;
  close(fd);
  return text;
}

result shell_on_terminal(const char *line) {
  FILE *out = tmpfile();
  int master, slave, wait_status;
  cr_assert_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    close(master);
    if (!freopen("/dev/null", "r", stdin)) _exit(99);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(slave, STDERR_FILENO);
    close(slave);
    run_line(line);
  }
  close(slave);
  result r = {.err = read_terminal(master)};
  waitpid(child, &wait_status, 0);
  r.status = exit_of(wait_status);
  r.out = read_back(out, &r.out_bytes);
  return r;
}

void finish(result *r) {
  free(r->out);
  free(r->err);
}

size_t lines_of(const char *text) {
  size_t n = 0;
  for (; *text; text++) n += *text == '\n';
  return n;
}

void expect_error(const char *line, int status, const char *word, const char *other) {
  result r = shell(line);
  cr_expect_eq(r.status, status, "%s: %d, %s", line, r.status, r.err);
  cr_expect_eq(r.out_bytes, 0, "%s printed %s", line, r.out);
  cr_expect_eq(lines_of(r.err), 1, "%s: more than a line: %s", line, r.err);
  cr_expect(strncmp(r.err, "headrow: ", 9) == 0, "%s: %s", line, r.err);
  cr_expect(strstr(r.err, word) && (!other || strstr(r.err, other)), "%s: %s", line, r.err);
  if (status == 2) cr_expect(strstr(r.err, "expected") != NULL, "%s: %s", line, r.err);
  finish(&r);
}
