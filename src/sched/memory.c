/* SPDX-License-Identifier: MIT */
#include "sched/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_SIZE = 16384 }; /* memory.stat and meminfo are shorter */

/* A whole number at the start of a text, "max" and nonsense are none. */
static bool parse_number(const char *text, uint64_t *value) {
  while (*text == ' ' || *text == '\t') text++;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  *value = strtoull(text, NULL, 10);
  return errno == 0;
}

/* The number that follows a word at the start of a line. */
static bool find_number(const char *text, const char *word, uint64_t *value) {
  size_t length = strlen(word);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, word, length) == 0 && (line[length] == ' ' || line[length] == ':'))
      return parse_number(line + length + 1, value);
  }
  return false;
}

static void note_free(hr_memory_free *memory, const char *where, uint64_t bytes) {
  if (bytes >= memory->bytes) return;
  memory->bytes = (size_t)bytes;
  hr_note_where(memory->where, where);
}

/* --- Control groups ------------------------------------------------------- */

/* The names of one version's files. */
typedef struct names {
  const char *limit[2]; /* NULL: no second one */
  const char *used, *inactive, *active;
} names;

static const names v1 = {{"memory.limit_in_bytes", NULL},
                         "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
static const names v2 = {{"memory.max", "memory.high"},
                         "memory.current", "inactive_file", "active_file"};

static bool read_number(const char *root, const char *folder, const char *name, uint64_t *value,
                        char path[HR_CGROUP_LINE]) {
  char text[64];
  return hr_cgroup_read(root, folder, name, text, sizeof text, path) && parse_number(text, value);
}

/* What a group uses and could not give back: without pages of files. */
static uint64_t used_by(const names *n, const char *root, const char *folder) {
  char text[FILE_SIZE], path[HR_CGROUP_LINE];
  uint64_t used, inactive = 0, active = 0;
  if (!read_number(root, folder, n->used, &used, path)) return 0;
  if (hr_cgroup_read(root, folder, "memory.stat", text, sizeof text, path)) {
    (void)find_number(text, n->inactive, &inactive);
    (void)find_number(text, n->active, &active);
  }
  uint64_t pages = inactive + active;
  return used > pages ? used - pages : 0;
}

static void read_group(hr_memory_free *memory, const names *n, const char *root,
                       const char *folder) {
  char path[HR_CGROUP_LINE];
  for (int i = 0; i < 2 && n->limit[i]; i++) {
    uint64_t limit;
    if (!read_number(root, folder, n->limit[i], &limit, path)) continue;
    uint64_t used = used_by(n, root, folder);
    note_free(memory, path, limit > used ? limit - used : 0);
  }
}

static void read_group_v1(void *memory, const char *root, const char *folder) {
  read_group(memory, &v1, root, folder);
}

static void read_group_v2(void *memory, const char *root, const char *folder) {
  read_group(memory, &v2, root, folder);
}

bool hr_memory_free_read(hr_memory_free *memory, const char *root) {
  char text[FILE_SIZE], path[HR_CGROUP_LINE];
  uint64_t kib;
  hr_cgroup groups[HR_CGROUP_KINDS];
  *memory = (hr_memory_free){.bytes = SIZE_MAX};
  if (hr_join_path(path, sizeof path, root, "/proc/meminfo") &&
      hr_read_text(path, text, sizeof text) && find_number(text, "MemAvailable", &kib) &&
      kib < SIZE_MAX / 1024)
    note_free(memory, "/proc/meminfo", kib * 1024);
  hr_cgroups_find(root, groups);
  hr_cgroup_walk(&groups[HR_CGROUP_UNIFIED], root, read_group_v2, memory);
  hr_cgroup_walk(&groups[HR_CGROUP_MEMORY], root, read_group_v1, memory);
  return memory->bytes != SIZE_MAX;
}

/* --- Pages ---------------------------------------------------------------- */

/* "FROM-TO PERMISSIONS ..." begins a mapping; lines of numbers follow. */
static bool begins_mapping(const char *line, uintptr_t *from, uintptr_t *to) {
  char *end;
  uintmax_t a = strtoumax(line, &end, 16);
  if (end == line || *end != '-') return false;
  const char *second = end + 1;
  uintmax_t b = strtoumax(second, &end, 16);
  if (end == second || *end != ' ') return false;
  *from = (uintptr_t)a;
  *to = (uintptr_t)b;
  return true;
}

static bool read_kib(const char *line, const char *key, size_t *bytes) {
  uint64_t kib;
  size_t length = strlen(key);
  if (strncmp(line, key, length) != 0 || !parse_number(line + length, &kib)) return false;
  *bytes += (size_t)kib * 1024;
  return true;
}

bool hr_pages_read(hr_pages *pages, const char *smaps, const void *address) {
  char line[512];
  bool inside = false, told = false;
  uintptr_t from, to;
  *pages = (hr_pages){0};
  FILE *file = fopen(smaps, "re");
  if (!file) return false;
  while (fgets(line, sizeof line, file)) {
    if (begins_mapping(line, &from, &to))
      inside = (uintptr_t)address >= from && (uintptr_t)address < to;
    if (!inside) continue;
    told |= read_kib(line, "Rss:", &pages->resident);
    read_kib(line, "AnonHugePages:", &pages->huge);
    read_kib(line, "FilePmdMapped:", &pages->huge);
  }
  fclose(file);
  return told;
}
