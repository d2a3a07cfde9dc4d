/* SPDX-License-Identifier: MIT */
#include "line.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "cli.h"
#include "interrupt.h"
#include "output.h"
#include "user_file.h"

enum { HISTORY_LINES = 1000 };

struct cli_lines {
  EditLine *editor; /* NULL: plain reading */
  History *history;
  char *file;       /* of the history; NULL: none */
  bool quiet;
  char *buffer;     /* plain reading */
  size_t capacity;
};

static const char *prompt(EditLine *editor) {
  (void)editor;
  return "> ";
}

/* --- History ------------------------------------------------------------------- */

static void open_history(cli_lines *lines) {
  HistEvent event;
  lines->history = history_init();
  if (!lines->history) return;
  history(lines->history, &event, H_SETSIZE, HISTORY_LINES);
  history(lines->history, &event, H_SETUNIQUE, 1);
  el_set(lines->editor, EL_HIST, history, lines->history);
  lines->file = cli_user_file("XDG_STATE_HOME", ".local/state", "history");
  if (lines->file && access(lines->file, F_OK) == 0)
    history(lines->history, &event, H_LOAD, lines->file);
}

static void save_history(cli_lines *lines) {
  HistEvent event;
  if (!lines->history || !lines->file) return;
  mode_t before = umask(077); /* what a person types is nobody else's business */
  bool saved = cli_make_folders(lines->file) &&
               history(lines->history, &event, H_SAVE, lines->file) >= 0;
  umask(before);
  if (!saved && !lines->quiet) cli_note("warning: %s: the history can't be written", lines->file);
}

/* --- Characters ------------------------------------------------------------------- */

/* SIGINT and SIGTERM are held back while a line is edited, and let through only in here: they
 * can't come unseen between a look at the flag and the wait. False: one came. */
static bool wait_for_input(void) {
  sigset_t open;
  pthread_sigmask(SIG_SETMASK, NULL, &open);
  sigdelset(&open, SIGINT);
  sigdelset(&open, SIGTERM);
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  while (ppoll(&in, 1, NULL, &open) < 0)
    if (errno != EINTR || cli_interrupted()) return false;
  return true;
}

/* For the editor: one character, 1; 0 at the end of the input; -1 with errno. */
static int read_char(EditLine *editor, wchar_t *to) {
  (void)editor;
  mbstate_t state = {0};
  for (;;) {
    char byte;
    if (!wait_for_input()) return -1;
    ssize_t n = read(STDIN_FILENO, &byte, 1);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return (int)n;
    size_t used = mbrtowc(to, &byte, 1, &state);
    if (used == (size_t)-2) continue; /* the first bytes of one */
    if (used == (size_t)-1) *to = L'?';
    return 1;
  }
}

/* --- Lines ------------------------------------------------------------------------ */

cli_lines *cli_lines_open(bool quiet) {
  cli_lines *lines = calloc(1, sizeof *lines);
  if (!lines) return NULL;
  lines->quiet = quiet;
  bool out = isatty(STDOUT_FILENO);
  if (!isatty(STDIN_FILENO) || !(out || isatty(STDERR_FILENO))) return lines;
  setlocale(LC_CTYPE, ""); /* the editor asks how wide characters are */
  lines->editor = el_init("headrow", stdin, out ? stdout : stderr, stderr);
  if (!lines->editor) return lines;
  el_set(lines->editor, EL_PROMPT, prompt);
  el_set(lines->editor, EL_EDITOR, "emacs");
  el_set(lines->editor, EL_GETCFN, read_char);
  open_history(lines);
  el_source(lines->editor, NULL);
  return lines;
}

bool cli_lines_interactive(const cli_lines *lines) {
  return lines->editor != NULL;
}

static cli_line edit_line(cli_lines *lines, cli_bytes *line) {
  HistEvent event;
  int count = 0;
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigaddset(&interrupt, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  cli_catch_interrupts();
  errno = 0;
  const char *text = cli_interrupted() ? NULL : el_gets(lines->editor, &count);
  int why = errno;
  cli_catch_interrupt();
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (cli_interrupted() || (count < 0 && why == EINTR)) return CLI_LINE_INTERRUPTED;
  if (!text || count <= 0) return CLI_LINE_END;
  size_t length = (size_t)count;
  bool blank = text[strspn(text, " \t\n")] == '\0';
  if (lines->history && !blank) history(lines->history, &event, H_ENTER, text);
  if (text[length - 1] == '\n') length--;
  return cli_bytes_add(line, text, length) ? CLI_LINE : CLI_LINE_FAILED;
}

static cli_line read_line(cli_lines *lines, cli_bytes *line) {
  ssize_t count = getline(&lines->buffer, &lines->capacity, stdin);
  if (count < 0) return cli_interrupted() ? CLI_LINE_INTERRUPTED : CLI_LINE_END;
  size_t length = (size_t)count;
  if (length && lines->buffer[length - 1] == '\n') length--;
  if (length && lines->buffer[length - 1] == '\r') length--;
  return cli_bytes_add(line, lines->buffer, length) ? CLI_LINE : CLI_LINE_FAILED;
}

cli_line cli_lines_next(cli_lines *lines, cli_bytes *line) {
  line->used = 0;
  cli_flush();
  return lines->editor ? edit_line(lines, line) : read_line(lines, line);
}

void cli_lines_close(cli_lines *lines) {
  if (!lines) return;
  save_history(lines);
  if (lines->editor) el_end(lines->editor);
  if (lines->history) history_end(lines->history);
  free(lines->file);
  free(lines->buffer);
  free(lines);
}
