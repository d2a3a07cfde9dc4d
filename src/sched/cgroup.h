/* SPDX-License-Identifier: MIT
 * The control groups that a process is in, both versions of them, below a root
 * folder: "/" for this machine, a made-up tree in tests. */
#ifndef HR_SCHED_CGROUP_H
#define HR_SCHED_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

#define HR_WHERE_SIZE 200
#define HR_CGROUP_LINE 2048 /* lines of other mounts may be longer; they are cut and not used */

/* The hierarchies that matter. A version 1 controller has its own. */
typedef enum hr_cgroup_kind {
  HR_CGROUP_UNIFIED,
  HR_CGROUP_CPU,
  HR_CGROUP_CPUSET,
  HR_CGROUP_MEMORY,
  HR_CGROUP_KINDS
} hr_cgroup_kind;

typedef struct hr_cgroup {
  bool found;
  bool fits;                  /* the group's path lies below the mount's root */
  char mount[HR_CGROUP_LINE]; /* where it is mounted */
  char below[HR_CGROUP_LINE]; /* the group's path below that, "" for the mount itself */
} hr_cgroup;

void hr_cgroups_find(const char *root, hr_cgroup groups[HR_CGROUP_KINDS]);

/* Calls visit with the folder of the own group, then outwards to the mount. */
typedef void hr_cgroup_fn(void *arg, const char *root, const char *folder);
void hr_cgroup_walk(const hr_cgroup *group, const char *root, hr_cgroup_fn *visit, void *arg);

/* The start of a file of a group as text, and the file's path as users know it;
 * false when there is no such file. */
bool hr_cgroup_read(const char *root, const char *folder, const char *name, char *text, size_t size,
                    char path[HR_CGROUP_LINE]);

/* root/path: false when that is too long. */
bool hr_join_path(char *out, size_t size, const char *root, const char *path);
/* The start of a file as text; false when it can't be read. */
bool hr_read_text(const char *path, char *text, size_t size);
/* A path for messages; a long one loses its start. */
void hr_note_where(char where[HR_WHERE_SIZE], const char *path);

#endif
