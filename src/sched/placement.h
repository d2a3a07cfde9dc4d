/* SPDX-License-Identifier: MIT
 * The one answer to "how many threads, and where": a pure function of the
 * machine, the limits and the wishes. */
#ifndef HR_SCHED_PLACEMENT_H
#define HR_SCHED_PLACEMENT_H

#include "sched/limits.h"
#include "sched/topology.h"

#define HR_THREADS_MAX 4096u
#define HR_CAPS_MAX (HR_QUOTAS_MAX + 5)

typedef struct hr_wishes {
  unsigned threads;       /* 0: automatic */
  unsigned threads_batch; /* 0: as threads when that was given, else automatic */
  const char *cores;      /* "all", "performance" or a list of CPUs; NULL: automatic */
  bool no_pin;
  unsigned most;          /* threads that pay in passes of one row, where threads is 0; 0: any */
  bool by_trials;         /* trials found threads; told as such */
} hr_wishes;

/* Where one thread runs, and its share of the work: of the speed of its core,
 * divided by the active threads on that core, in each kind of pass. */
typedef struct hr_seat {
  unsigned cpu;   /* index into the topology's CPUs */
  unsigned os;    /* the system's number of it */
  unsigned weight, weight_batch;
} hr_seat;

/* One number that the threads may not exceed on their own. */
typedef struct hr_cap {
  char what[HR_WHERE_SIZE + 100];
  unsigned threads;
  bool won; /* the one that decided for passes of one row */
} hr_cap;

typedef struct hr_placement {
  unsigned threads, threads_batch;
  unsigned seats;  /* the larger of the two */
  unsigned active; /* of the seats, those that passes take: no more than CPUs, nor than the CPU
                    * quota is worth, beyond which threads would be stopped amid a pass */
  hr_seat *seat;
  unsigned allowed; /* CPUs that the affinity mask and the groups leave */
  hr_cpuset cpus;   /* of those, the ones that the wishes allow */
  unsigned reach;   /* and their number */
  bool named;       /* the wishes name them: no part of a pass may run elsewhere */
  bool pin;         /* each thread of the team to its seat, else */
  bool keep;        /* all of them to cpus */
  hr_cap cap[HR_CAPS_MAX];
  unsigned caps;
  char kinds[64];  /* which cores, in words */
  char why[320];   /* one sentence: why that many */
  char pinned[160]; /* one sentence: why pinned or not */
} hr_placement;

/* Fills *placement, to be freed by hr_placement_free. HR_ERROR_USAGE with a
 * sentence when a wish can't be met. */
hr_status hr_placement_make(hr_placement *placement, const hr_topology *topology,
                            const hr_limits *limits, const hr_wishes *wishes, hr_error *err);
void hr_placement_free(hr_placement *placement);
/* Tries in the calling thread, whose mask is affinity before and after, whether the system lets a
 * thread be bound as the placement has it. Where it refuses, the placement no longer has it
 * and says so. */
void hr_placement_try(hr_placement *placement, const hr_topology *topology,
                      const hr_cpuset *affinity);

/* Tells the machine, the limits, the one that won and the map of threads, a
 * line at a time (without its newline). */
typedef void hr_line_fn(void *data, const char *line);
void hr_placement_describe(const hr_placement *placement, const hr_topology *topology,
                           const hr_limits *limits, hr_line_fn *line, void *data);

#endif
