/* SPDX-License-Identifier: MIT
 * Ctrl-C, requests to end, files that are lost while they are read, time, and progress on a
 * terminal. */
#ifndef HR_CLI_INTERRUPT_H
#define HR_CLI_INTERRUPT_H

#include <stdbool.h>

/* From now on the first SIGINT or SIGTERM only sets a flag; the second one kills. As the
 * first process of a container, too, which signals without a handler do not reach. */
void cli_catch_interrupt(void);
/* The same of all that come, until that is called again: at a prompt none ends the program,
 * whichever thread the system gives it to. */
void cli_catch_interrupts(void);
bool cli_interrupted(void);
/* Forgets an interrupt that has been dealt with; the next one sets the flag again. A
 * SIGTERM is never forgotten. */
void cli_interrupt_done(void);

/* From now on a mapped file that another program makes shorter, or a disk that
 * can't be read, ends the program with a sentence and HR_ERROR_FILE in place of
 * a signal. path, which may be cut, is the file that is blamed. */
void cli_catch_lost_file(const char *path);

/* Seconds of a clock that only goes forward. */
double cli_now(void);

/* An hr_progress_fn: stops at an interrupt and, where stderr is a terminal and
 * the work takes a while, shows the percentage. data is a cli_progress or NULL. */
typedef struct cli_progress {
  const char *what;
  double start, shown;
} cli_progress;
bool cli_report_progress(void *data, double done);
/* Wipes what was shown. */
void cli_end_progress(cli_progress *progress);

#endif
