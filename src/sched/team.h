/* SPDX-License-Identifier: MIT
 * A team of threads that runs one pass of work together. */
#ifndef HR_SCHED_TEAM_H
#define HR_SCHED_TEAM_H

#include <stdbool.h>

#include "base/error.h"

typedef struct hr_team hr_team;

typedef struct hr_team_options {
  unsigned threads;       /* 0: automatic */
  unsigned threads_batch; /* for passes of many rows; 0: as threads, or automatic as those */
  bool no_pin;            /* leave the threads where the system puts them, within cores */
  const char *cores;      /* "all", "performance" or a list such as "0-3,8"; NULL: automatic */
  unsigned most;          /* of the automatic threads, those that the work pays for; 0: any */
} hr_team_options;

/* One thread of a pass: thread counts from 0, threads is the number taking part. */
typedef void hr_team_fn(void *arg, unsigned thread, unsigned threads);

/* Bytes that a pass may take of a thread's stack. */
#define HR_TEAM_STACK ((size_t)160 << 10)

/* The errors that hr_team_create has for options that are not valid, without a team. */
hr_status hr_team_check(const hr_team_options *options, hr_error *err);
/* NULL with a sentence on failure. The caller owns the result. */
hr_team *hr_team_create(const hr_team_options *options, hr_error *err);
/* NULL is allowed. */
void hr_team_free(hr_team *team);

/* Number of threads for passes of one row and of many, as asked for where that was done. */
unsigned hr_team_threads(const hr_team *team);
unsigned hr_team_threads_batch(const hr_team *team);
/* As many of them as a pass of one row or of many should take: no more than there are CPUs that
 * they may use, or than a CPU quota is worth. More would wait for each other to be given a CPU
 * at every barrier. */
unsigned hr_team_active(const hr_team *team, bool many);

/* One sentence about what did not go as asked (pinning refused, more threads
 * than CPUs); NULL when all did. */
const char *hr_team_warning(const hr_team *team);

/* Runs fn on that many threads (1 to the larger of the two counts above) and
 * returns when all are done. Every thread runs with round-to-nearest and
 * without flush-to-zero; the caller's own setting is the same afterwards. Any
 * thread may call it, one at a time. An error in a forked child. */
hr_status hr_team_run(hr_team *team, unsigned threads, hr_team_fn *fn, void *arg, hr_error *err);

/* The threads' shares of the work in a pass of that many, as hr_tiles_step wants
 * them: running sums of their cores' speeds, one more than threads, the first 0.
 * NULL when all are alike. */
const uint32_t *hr_team_shares(const hr_team *team, unsigned threads);

/* The system's number of the CPU that a thread is pinned to; -1 when it isn't. */
int hr_team_cpu(const hr_team *team, unsigned thread);

/* Inside a pass: returns when every thread of the pass has called it. What was
 * written before it is visible to all after it. Every thread of a pass calls it
 * equally often. */
void hr_team_barrier(hr_team *team, unsigned thread);
/* The same; while a thread waits it fetches bytes from next on, at a multiple of 64, into its
 * second cache. Nothing is fetched where bytes is 0, then next may be NULL. */
void hr_team_barrier_fetching(hr_team *team, unsigned thread, const void *next, size_t bytes);

/* How many barriers threads have waited at since the team was made, modulo 2^31; a
 * single thread waits at none. To be read between passes. */
uint32_t hr_team_barriers(hr_team *team);

#endif
