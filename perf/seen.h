/* SPDX-License-Identifier: MIT
 * The best peaks that a machine was ever seen to have, in a file of text between runs: a run that
 * never gets near them had not the machine for itself, however steady its own figures are. */
#ifndef HR_PERF_SEEN_H
#define HR_PERF_SEEN_H

#include <stdbool.h>
#include <stddef.h>

enum { PERF_MOST_SEEN = 64, PERF_MACHINE_TEXT = 160 };

typedef struct perf_seen_peak {
  double rate; /* of one thread, in the unit of a perf_kernel_row of that bound */
  char tier[24], bound[8];
  char machine[PERF_MACHINE_TEXT];
} perf_seen_peak;

typedef struct perf_seen {
  char machine[PERF_MACHINE_TEXT]; /* this one */
  perf_seen_peak peak[PERF_MOST_SEEN];
  size_t count;
  bool changed; /* since it was read */
} perf_seen;

/* What tells one machine from another: the CPU's name as /proc/cpuinfo has it, or the numbers of
 * its makers and parts, and how many CPUs are online: "AMD EPYC, 2 CPUs". */
void perf_this_machine(char text[PERF_MACHINE_TEXT]);

/* Starts with what a file holds; a file that is not there holds nothing. False when it is of
 * another form or can't be read: then nothing is taken from it. */
bool perf_seen_read(perf_seen *seen, const char *path, const char *machine);

/* Of this machine; 0: none yet. */
double perf_seen_best(const perf_seen *seen, const char *tier, const char *bound);

/* Remembers a rate above the best; of too many, the oldest machines' go. */
void perf_seen_add(perf_seen *seen, const char *tier, const char *bound, double rate);

/* Puts all of it in the file's place, by one step; its folder is there. */
bool perf_seen_write(const perf_seen *seen, const char *path);

#endif
