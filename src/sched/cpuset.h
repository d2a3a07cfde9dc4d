/* SPDX-License-Identifier: MIT
 * A set of CPUs by the system's own numbers, and its text form "0-3,8". */
#ifndef HR_SCHED_CPUSET_H
#define HR_SCHED_CPUSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HR_CPUS_MAX 8192u /* the most that Linux can be built for */

typedef struct hr_cpuset {
  uint64_t bits[HR_CPUS_MAX / 64];
} hr_cpuset;

static inline void hr_cpuset_add(hr_cpuset *set, unsigned cpu) {
  if (cpu < HR_CPUS_MAX) set->bits[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

static inline bool hr_cpuset_has(const hr_cpuset *set, unsigned cpu) {
  return cpu < HR_CPUS_MAX && (set->bits[cpu / 64] >> cpu % 64 & 1) != 0;
}

unsigned hr_cpuset_count(const hr_cpuset *set);
/* The lowest CPU above `after` (-1: from the start); -1 when there is none. */
int hr_cpuset_next(const hr_cpuset *set, int after);
/* set = set and other */
void hr_cpuset_keep(hr_cpuset *set, const hr_cpuset *other);

typedef enum hr_cpuset_fault {
  HR_CPUSET_FINE,
  HR_CPUSET_EMPTY,   /* no CPU named */
  HR_CPUSET_SYNTAX,  /* not numbers, "-" and "," */
  HR_CPUSET_REVERSED, /* a range whose end is below its start */
  HR_CPUSET_TOO_HIGH /* a number of HR_CPUS_MAX or more */
} hr_cpuset_fault;

/* Reads "0-3,8"; blanks around it (the newline of a kernel file) are skipped. */
hr_cpuset_fault hr_cpuset_parse(hr_cpuset *set, const char *text);

/* Writes the text form; what doesn't fit is cut and ends in "...". */
void hr_cpuset_format(const hr_cpuset *set, char *text, size_t size);

#endif
