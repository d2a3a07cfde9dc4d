/* SPDX-License-Identifier: MIT
 * How many threads serve best, where no rule knows: on machines with several kinds
 * of cores, or with more cores than it may take to read memory at full speed. Which
 * numbers are worth a trial is a pure function of the machine, the limits and the
 * wishes; the times come from the caller. */
#ifndef HR_SCHED_CALIBRATE_H
#define HR_SCHED_CALIBRATE_H

#include "sched/placement.h"

enum { HR_TRIALS_MAX = 32 };

/* Numbers of threads to try, ascending; fewer than two: there is nothing to choose. */
typedef struct hr_trials {
  unsigned threads[HR_TRIALS_MAX];
  unsigned count;
} hr_trials;

typedef struct hr_calibration {
  hr_trials one, many; /* for passes of one row and of many; none: the wish or the rule holds */
  char why[160];       /* one sentence: why, or why not */
} hr_calibration;

/* HR_ERROR_USAGE when the wishes can't be met, as hr_placement_make has it. */
hr_status hr_calibration_plan(hr_calibration *calibration, const hr_topology *topology,
                              const hr_limits *limits, const hr_wishes *wishes, hr_error *err);

static inline bool hr_calibration_wanted(const hr_calibration *c) {
  return c->one.count > 1 || c->many.count > 1;
}

/* Seconds of a pass of one row, or of many, on that many threads; 0 or less: it
 * can't be told, and calibration ends. */
typedef double hr_trial_fn(void *data, unsigned threads, bool many);

/* Tries them in turn, in rounds: two where each of the best has two times within 5 %, else
 * until it has, at most six; what is far behind is not tried again. The fewest threads within
 * 3 % of the best time are chosen. *one and *many stay where there was nothing to try.
 * *steady: the times agreed; if not, other programs may have had a say in the choice. False
 * when a trial failed. */
bool hr_calibrate(const hr_calibration *calibration, hr_trial_fn *trial, void *data, unsigned *one,
                  unsigned *many, bool *steady);

#endif
