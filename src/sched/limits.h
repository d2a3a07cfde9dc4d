/* SPDX-License-Identifier: MIT
 * What the system lets this process use: the affinity mask, and the CPU quotas
 * and CPU sets of its control groups. Nothing here knows cores or threads. */
#ifndef HR_SCHED_LIMITS_H
#define HR_SCHED_LIMITS_H

#include "sched/cgroup.h"
#include "sched/cpuset.h"

#define HR_QUOTAS_MAX 16

/* A share of CPU time that a group may use in each period. */
typedef struct hr_quota {
  char where[HR_WHERE_SIZE]; /* the file that says so; a long path loses its start */
  uint64_t quota_us, period_us;
  unsigned cpus; /* whole CPUs that this is worth, at least 1 */
} hr_quota;

typedef struct hr_limits {
  hr_cpuset affinity; /* of the calling thread */
  bool has_affinity;
  hr_cpuset cpuset; /* what all groups leave */
  bool has_cpuset;
  char cpuset_where[HR_WHERE_SIZE]; /* the file read last */
  hr_quota quota[HR_QUOTAS_MAX];    /* own group first, then outwards; of more, the tightest */
  unsigned quotas;
} hr_limits;

/* Reads the control groups below a root folder ("/" for this machine), both
 * versions of them, from the own group up to the mount. What can't be read or
 * makes no sense is no limit. The affinity is left unset. */
void hr_limits_read(hr_limits *limits, const char *root);

/* The calling thread's affinity mask into limits. */
void hr_limits_read_affinity(hr_limits *limits);

#endif
