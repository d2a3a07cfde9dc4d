/* SPDX-License-Identifier: MIT */
#include "sched/limits.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* When there are too many, the loosest makes room. */
static void note_quota(hr_limits *limits, const char *path, uint64_t quota, uint64_t period) {
  if (quota == 0 || period == 0) return;
  uint64_t whole = quota / period;
  hr_quota new = {.quota_us = quota, .period_us = period};
  new.cpus = whole < 1 ? 1 : whole > UINT_MAX ? UINT_MAX : (unsigned)whole;
  hr_note_where(new.where, path);
  unsigned place = limits->quotas;
  if (place == HR_QUOTAS_MAX) {
    place = 0;
    for (unsigned i = 1; i < HR_QUOTAS_MAX; i++)
      if (limits->quota[i].cpus > limits->quota[place].cpus) place = i;
    if (limits->quota[place].cpus <= new.cpus) return;
  } else {
    limits->quotas++;
  }
  limits->quota[place] = new;
}

/* A positive whole number at the start of a text; false for anything else. */
static bool parse_time(const char *text, uint64_t *value, char **end) {
  while (*text == ' ') text++;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  unsigned long long n = strtoull(text, end, 10);
  *value = n;
  return errno == 0;
}

/* "QUOTA PERIOD", where QUOTA may be "max" and PERIOD is 100000 when left out. */
static void read_quota_v2(void *limits, const char *root, const char *folder) {
  char text[HR_CGROUP_LINE], path[HR_CGROUP_LINE], *end;
  uint64_t quota, period = 100000;
  if (!hr_cgroup_read(root, folder, "cpu.max", text, sizeof text, path)) return;
  if (!parse_time(text, &quota, &end)) return;
  (void)parse_time(end, &period, &end);
  note_quota(limits, path, quota, period);
}

/* Two files; a quota of -1 is none. */
static void read_quota_v1(void *limits, const char *root, const char *folder) {
  char text[HR_CGROUP_LINE], path[HR_CGROUP_LINE], *end;
  uint64_t quota, period;
  if (!hr_cgroup_read(root, folder, "cpu.cfs_period_us", text, sizeof text, path) ||
      !parse_time(text, &period, &end))
    return;
  if (!hr_cgroup_read(root, folder, "cpu.cfs_quota_us", text, sizeof text, path) ||
      !parse_time(text, &quota, &end))
    return;
  note_quota(limits, path, quota, period);
}

/* An empty file, and a set that would leave nothing, say nothing. */
static void read_cpuset(hr_limits *limits, const char *root, const char *folder, const char *name) {
  char text[HR_CGROUP_LINE], path[HR_CGROUP_LINE];
  hr_cpuset set;
  if (!hr_cgroup_read(root, folder, name, text, sizeof text, path)) return;
  if (hr_cpuset_parse(&set, text) != HR_CPUSET_FINE) return;
  if (limits->has_cpuset) hr_cpuset_keep(&set, &limits->cpuset);
  if (hr_cpuset_count(&set) == 0) return;
  if (!limits->has_cpuset || memcmp(&set, &limits->cpuset, sizeof set) != 0)
    hr_note_where(limits->cpuset_where, path);
  limits->cpuset = set;
  limits->has_cpuset = true;
}

static void read_cpuset_v2(void *limits, const char *root, const char *folder) {
  read_cpuset(limits, root, folder, "cpuset.cpus.effective");
}

static void read_cpuset_v1(void *limits, const char *root, const char *folder) {
  read_cpuset(limits, root, folder, "cpuset.cpus");
}

void hr_limits_read(hr_limits *limits, const char *root) {
  hr_cgroup groups[HR_CGROUP_KINDS];
  memset(limits, 0, sizeof *limits);
  hr_cgroups_find(root, groups);
  hr_cgroup_walk(&groups[HR_CGROUP_UNIFIED], root, read_quota_v2, limits);
  hr_cgroup_walk(&groups[HR_CGROUP_CPU], root, read_quota_v1, limits);
  hr_cgroup_walk(&groups[HR_CGROUP_UNIFIED], root, read_cpuset_v2, limits);
  hr_cgroup_walk(&groups[HR_CGROUP_CPUSET], root, read_cpuset_v1, limits);
}

void hr_limits_read_affinity(hr_limits *limits) {
  _Static_assert(sizeof(hr_cpuset) % sizeof(cpu_set_t) == 0, "a row of the system's own sets");
  cpu_set_t sets[sizeof(hr_cpuset) / sizeof(cpu_set_t)] = {0};
  limits->affinity = (hr_cpuset){0};
  limits->has_affinity = sched_getaffinity(0, sizeof sets, sets) == 0;
  for (unsigned cpu = 0; limits->has_affinity && cpu < HR_CPUS_MAX; cpu++)
    if (CPU_ISSET_S(cpu, sizeof sets, sets)) hr_cpuset_add(&limits->affinity, cpu);
}
