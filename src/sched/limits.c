/* SPDX-License-Identifier: MIT */
#include "sched/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_SIZE 2048 /* lines of other mounts may be longer; they are cut and not used */

/* Which of the three hierarchies that matter. A version 1 controller has its own. */
typedef enum { UNIFIED, CPU, CPUSET, HIERARCHIES } hierarchy;

typedef struct {
  bool found;
  bool fits;             /* the group's path lies below the mount's root */
  char mount[LINE_SIZE]; /* where it is mounted */
  char below[LINE_SIZE]; /* the group's path below that, "" for the mount itself */
} group;

/* --- Small files and lines ------------------------------------------------ */

/* root/path: false when that is too long. */
static bool join(char *out, size_t size, const char *root, const char *path) {
  size_t length = strlen(root);
  while (length && root[length - 1] == '/') length--;
  int n = snprintf(out, size, "%.*s%s", (int)length, root, path);
  return n >= 0 && (size_t)n < size;
}

/* The start of a file as text; false when it can't be read. */
static bool read_text(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, size - 1);
  close(fd);
  if (n < 0) return false;
  text[n] = '\0';
  return true;
}

/* The next line without its newline; the rest of one that is too long is lost. */
static bool read_line(FILE *file, char *line, int size) {
  if (!fgets(line, size, file)) return false;
  size_t length = strcspn(line, "\n");
  if (!line[length])
    for (int c = getc(file); c != EOF && c != '\n';) c = getc(file);
  line[length] = '\0';
  return true;
}

/* True when a list separated by commas holds the word. */
static bool has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *p = list; p; p = strchr(p, ',')) {
    if (*p == ',') p++;
    if (strncmp(p, word, length) == 0 && (p[length] == ',' || p[length] == '\0')) return true;
  }
  return false;
}

/* mountinfo writes blanks and backslashes as three octal digits. */
static void unescape(char *text) {
  char *out = text;
  for (const char *p = text; *p; out++) {
    if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' && p[3] >= '0' &&
        p[3] <= '7') {
      *out = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
      p += 4;
    } else {
      *out = *p++;
    }
  }
  *out = '\0';
}

/* --- Which groups --------------------------------------------------------- */

/* The path of the own group in each hierarchy, "" where it is in none. */
static void read_own_groups(const char *root, char path[HIERARCHIES][LINE_SIZE]) {
  char line[LINE_SIZE];
  for (int h = 0; h < HIERARCHIES; h++) path[h][0] = '\0';
  if (!join(line, sizeof line, root, "/proc/self/cgroup")) return;
  FILE *file = fopen(line, "re");
  if (!file) return;
  while (read_line(file, line, sizeof line)) {
    char *controllers = strchr(line, ':');
    char *where = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!where) continue;
    *controllers++ = *where++ = '\0';
    if (!*controllers) strcpy(path[UNIFIED], where);
    if (has_word(controllers, "cpu")) strcpy(path[CPU], where);
    if (has_word(controllers, "cpuset")) strcpy(path[CPUSET], where);
  }
  fclose(file);
}

/* Notes a mount of the hierarchy. In a container the mount may show only a
 * part, from mount_root on; a path that isn't in it (another namespace's, or
 * one with "..") is taken for the mount's own group. */
static void note_mount(group *g, const char *own, const char *mount_root, const char *mount) {
  if (g->found && g->fits) return;
  size_t length = strlen(mount_root);
  while (length && mount_root[length - 1] == '/') length--;
  bool fits = strncmp(own, mount_root, length) == 0 &&
              (own[length] == '/' || own[length] == '\0') && !strstr(own, "/..");
  if (g->found && !fits) return;
  g->found = true;
  g->fits = fits;
  strcpy(g->mount, mount);
  strcpy(g->below, fits && own[length] && own[length + 1] ? own + length : "");
}

/* One line: ID PARENT DEVICE ROOT MOUNT OPTIONS [TAGS...] - TYPE SOURCE SUPER_OPTIONS */
static void read_mount(char *line, group groups[HIERARCHIES],
                       char own[HIERARCHIES][LINE_SIZE]) {
  char *tail = strstr(line, " - ");
  if (!tail) return;
  *tail = '\0';
  char *save = NULL, *field[5], *type[3];
  for (int i = 0; i < 5; i++)
    if (!(field[i] = strtok_r(i ? NULL : line, " ", &save))) return;
  save = NULL;
  for (int i = 0; i < 3; i++)
    if (!(type[i] = strtok_r(i ? NULL : tail + 3, " ", &save))) return;
  unescape(field[3]);
  unescape(field[4]);
  if (strcmp(type[0], "cgroup2") == 0)
    note_mount(&groups[UNIFIED], own[UNIFIED], field[3], field[4]);
  if (strcmp(type[0], "cgroup") != 0) return;
  if (has_word(type[2], "cpu")) note_mount(&groups[CPU], own[CPU], field[3], field[4]);
  if (has_word(type[2], "cpuset")) note_mount(&groups[CPUSET], own[CPUSET], field[3], field[4]);
}

/* Without mountinfo: the places where every distribution mounts them. */
static void assume_mounts(group groups[HIERARCHIES], char own[HIERARCHIES][LINE_SIZE]) {
  static const char *const usual[HIERARCHIES] = {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu",
                                                 "/sys/fs/cgroup/cpuset"};
  for (int h = 0; h < HIERARCHIES; h++) note_mount(&groups[h], own[h], "/", usual[h]);
}

static void find_groups(const char *root, group groups[HIERARCHIES]) {
  char own[HIERARCHIES][LINE_SIZE], line[LINE_SIZE];
  read_own_groups(root, own);
  memset(groups, 0, HIERARCHIES * sizeof *groups);
  FILE *file = join(line, sizeof line, root, "/proc/self/mountinfo") ? fopen(line, "re") : NULL;
  if (!file) {
    assume_mounts(groups, own);
    return;
  }
  while (read_line(file, line, sizeof line)) read_mount(line, groups, own);
  fclose(file);
}

/* --- What they say -------------------------------------------------------- */

static void note_where(char where[HR_WHERE_SIZE], const char *path) {
  size_t length = strlen(path);
  if (length < HR_WHERE_SIZE) {
    strcpy(where, path);
  } else {
    memcpy(where, "...", 3);
    strcpy(where + 3, path + length - (HR_WHERE_SIZE - 4));
  }
}

/* When there are too many, the loosest makes room. */
static void note_quota(hr_limits *limits, const char *path, uint64_t quota, uint64_t period) {
  if (quota == 0 || period == 0) return;
  uint64_t whole = quota / period;
  hr_quota new = {.quota_us = quota, .period_us = period};
  new.cpus = whole < 1 ? 1 : whole > UINT_MAX ? UINT_MAX : (unsigned)whole;
  note_where(new.where, path);
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

/* One group: base is its folder, path the file's name as users know it. */
typedef void group_fn(hr_limits *limits, const char *root, const char *folder);

static bool read_in(const char *root, const char *folder, const char *name, char *text, size_t size,
                    char path[LINE_SIZE]) {
  char full[2 * LINE_SIZE];
  int n = snprintf(path, LINE_SIZE, "%s/%s", folder, name);
  return n > 0 && n < LINE_SIZE && join(full, sizeof full, root, path) &&
         read_text(full, text, size);
}

/* "QUOTA PERIOD", where QUOTA may be "max" and PERIOD is 100000 when left out. */
static void read_quota_v2(hr_limits *limits, const char *root, const char *folder) {
  char text[LINE_SIZE], path[LINE_SIZE], *end;
  uint64_t quota, period = 100000;
  if (!read_in(root, folder, "cpu.max", text, sizeof text, path)) return;
  if (!parse_time(text, &quota, &end)) return;
  (void)parse_time(end, &period, &end);
  note_quota(limits, path, quota, period);
}

/* Two files; a quota of -1 is none. */
static void read_quota_v1(hr_limits *limits, const char *root, const char *folder) {
  char text[LINE_SIZE], path[LINE_SIZE], *end;
  uint64_t quota, period;
  if (!read_in(root, folder, "cpu.cfs_period_us", text, sizeof text, path) ||
      !parse_time(text, &period, &end))
    return;
  if (!read_in(root, folder, "cpu.cfs_quota_us", text, sizeof text, path) ||
      !parse_time(text, &quota, &end))
    return;
  note_quota(limits, path, quota, period);
}

/* An empty file, and a set that would leave nothing, say nothing. */
static void read_cpuset(hr_limits *limits, const char *root, const char *folder, const char *name) {
  char text[LINE_SIZE], path[LINE_SIZE];
  hr_cpuset set;
  if (!read_in(root, folder, name, text, sizeof text, path)) return;
  if (hr_cpuset_parse(&set, text) != HR_CPUSET_FINE) return;
  if (limits->has_cpuset) hr_cpuset_keep(&set, &limits->cpuset);
  if (hr_cpuset_count(&set) == 0) return;
  if (!limits->has_cpuset || memcmp(&set, &limits->cpuset, sizeof set) != 0)
    note_where(limits->cpuset_where, path);
  limits->cpuset = set;
  limits->has_cpuset = true;
}

static void read_cpuset_v2(hr_limits *limits, const char *root, const char *folder) {
  read_cpuset(limits, root, folder, "cpuset.cpus.effective");
}

static void read_cpuset_v1(hr_limits *limits, const char *root, const char *folder) {
  read_cpuset(limits, root, folder, "cpuset.cpus");
}

/* From the own group outwards to the mount. */
static void walk(const group *g, hr_limits *limits, const char *root, group_fn *read) {
  char folder[2 * LINE_SIZE];
  if (!g->found) return;
  size_t base = strlen(g->mount);
  strcpy(folder, g->mount);
  strcpy(folder + base, g->below);
  for (;;) {
    read(limits, root, folder);
    char *slash = strrchr(folder + base, '/');
    if (!slash) return;
    *slash = '\0';
  }
}

void hr_limits_read(hr_limits *limits, const char *root) {
  group groups[HIERARCHIES];
  memset(limits, 0, sizeof *limits);
  find_groups(root, groups);
  walk(&groups[UNIFIED], limits, root, read_quota_v2);
  walk(&groups[CPU], limits, root, read_quota_v1);
  walk(&groups[UNIFIED], limits, root, read_cpuset_v2);
  walk(&groups[CPUSET], limits, root, read_cpuset_v1);
}

void hr_limits_read_affinity(hr_limits *limits) {
  _Static_assert(sizeof(hr_cpuset) % sizeof(cpu_set_t) == 0, "a row of the system's own sets");
  cpu_set_t sets[sizeof(hr_cpuset) / sizeof(cpu_set_t)] = {0};
  limits->affinity = (hr_cpuset){0};
  limits->has_affinity = sched_getaffinity(0, sizeof sets, sets) == 0;
  for (unsigned cpu = 0; limits->has_affinity && cpu < HR_CPUS_MAX; cpu++)
    if (CPU_ISSET_S(cpu, sizeof sets, sets)) hr_cpuset_add(&limits->affinity, cpu);
}
