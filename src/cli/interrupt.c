/* SPDX-License-Identifier: MIT */
#include "interrupt.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal_number) {
  (void)signal_number;
  interrupted = 1;
}

/* Without SA_RESTART: a read that waits for a prompt is to end. */
void cli_catch_interrupt(void) {
  struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void) {
  return interrupted != 0;
}

double cli_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool cli_report_progress(void *data, double done) {
  const double patience = 0.7, step = 0.1; /* seconds */
  cli_progress *p = data;
  if (p) {
    double now = cli_now();
    if (now - p->start > patience && now - p->shown > step) {
      fprintf(stderr, "\r%s: %3.0f %%", p->what, done * 100);
      p->shown = now;
    }
  }
  return !interrupted;
}

void cli_end_progress(cli_progress *p) {
  if (p && p->shown > 0) fputs("\r\033[K", stderr);
  if (p) p->shown = 0;
}
