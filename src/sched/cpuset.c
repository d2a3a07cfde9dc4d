/* SPDX-License-Identifier: MIT */
#include "sched/cpuset.h"

#include <stdio.h>
#include <string.h>

unsigned hr_cpuset_count(const hr_cpuset *set) {
  unsigned count = 0;
  for (size_t i = 0; i < HR_CPUS_MAX / 64; i++)
    count += (unsigned)__builtin_popcountll(set->bits[i]);
  return count;
}

int hr_cpuset_next(const hr_cpuset *set, int after) {
  unsigned cpu = (unsigned)(after + 1);
  while (cpu < HR_CPUS_MAX) {
    uint64_t rest = set->bits[cpu / 64] >> cpu % 64;
    if (rest) return (int)(cpu + (unsigned)__builtin_ctzll(rest));
    cpu = (cpu / 64 + 1) * 64;
  }
  return -1;
}

void hr_cpuset_keep(hr_cpuset *set, const hr_cpuset *other) {
  for (size_t i = 0; i < HR_CPUS_MAX / 64; i++) set->bits[i] &= other->bits[i];
}

static bool blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A run of digits; the value stops growing at HR_CPUS_MAX. */
static const char *parse_number(const char *p, unsigned *number) {
  if (*p < '0' || *p > '9') return NULL;
  unsigned n = 0;
  for (; *p >= '0' && *p <= '9'; p++)
    if (n < HR_CPUS_MAX) n = n * 10 + (unsigned)(*p - '0');
  *number = n < HR_CPUS_MAX ? n : HR_CPUS_MAX;
  return p;
}

hr_cpuset_fault hr_cpuset_parse(hr_cpuset *set, const char *text) {
  *set = (hr_cpuset){0};
  const char *p = text;
  while (blank(*p)) p++;
  if (!*p) return HR_CPUSET_EMPTY;
  for (;;) {
    unsigned first, last;
    if (!(p = parse_number(p, &first))) return HR_CPUSET_SYNTAX;
    last = first;
    if (*p == '-' && !(p = parse_number(p + 1, &last))) return HR_CPUSET_SYNTAX;
    if (last < first) return HR_CPUSET_REVERSED;
    if (last >= HR_CPUS_MAX) return HR_CPUSET_TOO_HIGH;
    for (unsigned cpu = first; cpu <= last; cpu++) hr_cpuset_add(set, cpu);
    if (*p != ',') break;
    p++;
  }
  while (blank(*p)) p++;
  return *p ? HR_CPUSET_SYNTAX : HR_CPUSET_FINE;
}

void hr_cpuset_format(const hr_cpuset *set, char *text, size_t size) {
  size_t used = 0;
  if (size == 0) return;
  text[0] = '\0';
  for (int first = hr_cpuset_next(set, -1); first >= 0;) {
    int last = first;
    while (hr_cpuset_has(set, (unsigned)last + 1)) last++;
    char part[32];
    const char *comma = used ? "," : "";
    int n = first == last ? snprintf(part, sizeof part, "%s%d", comma, first)
                          : snprintf(part, sizeof part, "%s%d-%d", comma, first, last);
    if (used + (size_t)n >= size) {
      if (size > 4) memcpy(text + (used < size - 4 ? used : size - 4), "...", 4);
      return;
    }
    memcpy(text + used, part, (size_t)n + 1);
    used += (size_t)n;
    first = hr_cpuset_next(set, last);
  }
}
