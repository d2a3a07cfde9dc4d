/* SPDX-License-Identifier: MIT
 * How much memory this process may still take, and what its pages are. */
#ifndef HR_SCHED_MEMORY_H
#define HR_SCHED_MEMORY_H

#include "sched/cgroup.h"

typedef struct hr_memory_free {
  size_t bytes;
  char where[HR_WHERE_SIZE]; /* the file that says so */
} hr_memory_free;

/* The least of what the machine has available without swapping, and what each
 * memory limit of the own control group and those around it leaves; pages of
 * files in a group count as free, since the system drops them when it needs to.
 * root is "/" for this machine. False when nothing says how much. */
bool hr_memory_free_read(hr_memory_free *memory, const char *root);

/* The pages of the mapping that holds an address, by a smaps file
 * ("/proc/self/smaps"). False when that does not tell. */
typedef struct hr_pages {
  size_t resident; /* bytes in memory */
  size_t huge;     /* of those, in huge pages */
} hr_pages;
bool hr_pages_read(hr_pages *pages, const char *smaps, const void *address);

#endif
