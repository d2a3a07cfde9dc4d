/* SPDX-License-Identifier: MIT */
#include "interrupt.h"

#include <headrow/headrow.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted, ending;

static void note_interrupt(int signal_number) {
  if (signal_number != SIGINT) ending = 1;
  interrupted = 1;
}

/* Without SA_RESTART: a read that waits for a prompt is to end. */
static void catch_with(int flags) {
  struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = flags};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  /* The terminal is gone; unless nohup asked to go on. */
  struct sigaction before;
  if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, NULL);
}

void cli_catch_interrupt(void) {
  catch_with((int)SA_RESETHAND);
}

void cli_catch_interrupts(void) {
  catch_with(0);
}

bool cli_interrupted(void) {
  return interrupted != 0;
}

static char lost_file[512]; /* the whole sentence, made before it is needed */
static atomic_flag lost_file_told = ATOMIC_FLAG_INIT;

/* Only what a signal handler may call. Another kind of SIGBUS is a fault of the program. */
static void end_with_sentence(int signal_number, siginfo_t *info, void *context) {
  (void)context;
  if (info->si_code == BUS_ADRERR) {
    /* The threads of a team may all meet it at once; one tells. */
    while (atomic_flag_test_and_set(&lost_file_told)) pause();
    (void)!write(STDERR_FILENO, lost_file, strlen(lost_file));
    _exit(HR_ERROR_FILE);
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void cli_catch_lost_file(const char *path) {
  struct sigaction action = {.sa_sigaction = end_with_sentence, .sa_flags = SA_SIGINFO};
  snprintf(lost_file, sizeof lost_file,
           "headrow: %.400s: became shorter or unreadable while it was in use\n", path);
  for (char *c = lost_file; c[0] && c[1]; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, NULL);
}

void cli_interrupt_done(void) {
  interrupted = ending;
  cli_catch_interrupt();
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
