/* SPDX-License-Identifier: MIT
 * Speed of the kernels of a tier, each beside what limits it: for the program
 * perf/kernels and for `headrow bench --kernels`. */
#ifndef HR_PERF_KERNEL_BENCH_H
#define HR_PERF_KERNEL_BENCH_H

#include "kernels/kernels.h"
#include "perf/seen.h"

/* The best of fewer rounds than the least is no share of a limit. */
enum { PERF_LEAST_ROUNDS = 10, PERF_MOST_ROUNDS = 100 };

/* One kernel with one shape. A limit and its kernel take turns; the best of each counts,
 * and every round is kept. */
typedef struct perf_kernel_row {
  const char *tier, *kernel, *group;
  char shape[64];
  unsigned threads;
  const char *unit;  /* "GOP/s", "GFLOP/s" or "GB/s", in which the rates are */
  const char *bound; /* what limits it: "int8", "fp32", "memory", "L2", "L1" */
  double rate, limit; /* the best of the rounds; limit 0: the tier has none, or L2 */
  const double *rates, *limits; /* [rounds], in the same unit; valid during the call */
  size_t rounds;
  bool small_pages; /* what it read from memory is known not to lie in 2 MiB pages */
  bool busy; /* set by perf_mark_busy, with */
  double best; /* of the same limit */
} perf_kernel_row;

/* Marks the rows of a whole run whose limit fell below 90 % of the best that the same limit
 * had anywhere in it, before or after: something else used the machine, they are no results.
 * int8 and fp32 are limits of a tier, memory and L1 the machine's; all of a number of threads.
 * With `seen` (NULL: without) int8 and fp32 are also compared with the best of earlier runs, and
 * the best of this one is added; memory is not, which neighbours on the machine share. */
void perf_mark_busy(perf_kernel_row *rows, size_t count, perf_seen *seen);

/* The groups: products of many rows with int8 and with float weights, attention
 * of many rows, everything that reads memory for one row - by one thread, from memory and from
 * the second cache, and by as many as the affinity mask has CPUs, none of them pinned -, and
 * what works on one row at a time in the nearest cache. Ends in NULL. */
extern const char *const perf_kernel_groups[];

/* Gets each row as it is measured; false stops. */
typedef bool perf_kernel_fn(void *data, const perf_kernel_row *row);

typedef enum perf_kernel_end {
  PERF_KERNEL_DONE,
  PERF_KERNEL_STOPPED,
  PERF_KERNEL_MEMORY,
  PERF_KERNEL_THREADS /* the system did not let them be started */
} perf_kernel_end;

/* Measures a group, or all for NULL, of a table, each row in so many rounds (at most
 * PERF_MOST_ROUNDS) after one that warms up; 0: 12, for what reads memory 40. Seconds for each
 * group. */
perf_kernel_end perf_kernels(const hr_kernels *table, const char *group, size_t rounds,
                             perf_kernel_fn *each, void *data);

#endif
