/* SPDX-License-Identifier: MIT */
#include "sched/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- Small files and lines ------------------------------------------------ */

bool hr_join_path(char *out, size_t size, const char *root, const char *path) {
  size_t length = strlen(root);
  while (length && root[length - 1] == '/') length--;
  int n = snprintf(out, size, "%.*s%s", (int)length, root, path);
  return n >= 0 && (size_t)n < size;
}

bool hr_read_text(const char *path, char *text, size_t size) {
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
static void read_own_groups(const char *root, char path[HR_CGROUP_KINDS][HR_CGROUP_LINE]) {
  char line[HR_CGROUP_LINE];
  for (int h = 0; h < HR_CGROUP_KINDS; h++) path[h][0] = '\0';
  if (!hr_join_path(line, sizeof line, root, "/proc/self/cgroup")) return;
  FILE *file = fopen(line, "re");
  if (!file) return;
  while (read_line(file, line, sizeof line)) {
    char *controllers = strchr(line, ':');
    char *where = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!where) continue;
    *controllers++ = *where++ = '\0';
    if (!*controllers) strcpy(path[HR_CGROUP_UNIFIED], where);
    if (has_word(controllers, "cpu")) strcpy(path[HR_CGROUP_CPU], where);
    if (has_word(controllers, "cpuset")) strcpy(path[HR_CGROUP_CPUSET], where);
    if (has_word(controllers, "memory")) strcpy(path[HR_CGROUP_MEMORY], where);
  }
  fclose(file);
}

/* Notes a mount of the hierarchy. In a container the mount may show only a
 * part, from mount_root on; a path that isn't in it (another namespace's, or
 * one with "..") is taken for the mount's own group. */
static void note_mount(hr_cgroup *g, const char *own, const char *mount_root, const char *mount) {
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
static void read_mount(char *line, hr_cgroup groups[HR_CGROUP_KINDS],
                       char own[HR_CGROUP_KINDS][HR_CGROUP_LINE]) {
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
    note_mount(&groups[HR_CGROUP_UNIFIED], own[HR_CGROUP_UNIFIED], field[3], field[4]);
  if (strcmp(type[0], "cgroup") != 0) return;
  static const struct {
    const char *word;
    hr_cgroup_kind kind;
  } controllers[] = {
      {"cpu", HR_CGROUP_CPU}, {"cpuset", HR_CGROUP_CPUSET}, {"memory", HR_CGROUP_MEMORY}};
  for (size_t i = 0; i < sizeof controllers / sizeof *controllers; i++) {
    hr_cgroup_kind kind = controllers[i].kind;
    if (has_word(type[2], controllers[i].word))
      note_mount(&groups[kind], own[kind], field[3], field[4]);
  }
}

/* Without mountinfo: the places where every distribution mounts them. */
static void assume_mounts(hr_cgroup groups[HR_CGROUP_KINDS],
                          char own[HR_CGROUP_KINDS][HR_CGROUP_LINE]) {
  static const char *const usual[HR_CGROUP_KINDS] = {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu",
                                                     "/sys/fs/cgroup/cpuset",
                                                     "/sys/fs/cgroup/memory"};
  for (int h = 0; h < HR_CGROUP_KINDS; h++) note_mount(&groups[h], own[h], "/", usual[h]);
}

void hr_cgroups_find(const char *root, hr_cgroup groups[HR_CGROUP_KINDS]) {
  char own[HR_CGROUP_KINDS][HR_CGROUP_LINE], line[HR_CGROUP_LINE];
  read_own_groups(root, own);
  memset(groups, 0, HR_CGROUP_KINDS * sizeof *groups);
  FILE *file =
      hr_join_path(line, sizeof line, root, "/proc/self/mountinfo") ? fopen(line, "re") : NULL;
  if (!file) {
    assume_mounts(groups, own);
    return;
  }
  while (read_line(file, line, sizeof line)) read_mount(line, groups, own);
  fclose(file);
}

/* --- What they say -------------------------------------------------------- */

void hr_note_where(char where[HR_WHERE_SIZE], const char *path) {
  size_t length = strlen(path);
  if (length < HR_WHERE_SIZE) {
    strcpy(where, path);
  } else {
    memcpy(where, "...", 3);
    strcpy(where + 3, path + length - (HR_WHERE_SIZE - 4));
  }
}

bool hr_cgroup_read(const char *root, const char *folder, const char *name, char *text, size_t size,
                    char path[HR_CGROUP_LINE]) {
  char full[2 * HR_CGROUP_LINE];
  int n = snprintf(path, HR_CGROUP_LINE, "%s/%s", folder, name);
  return n > 0 && n < HR_CGROUP_LINE && hr_join_path(full, sizeof full, root, path) &&
         hr_read_text(full, text, size);
}

void hr_cgroup_walk(const hr_cgroup *g, const char *root, hr_cgroup_fn *visit, void *arg) {
  char folder[2 * HR_CGROUP_LINE];
  if (!g->found) return;
  size_t base = strlen(g->mount);
  strcpy(folder, g->mount);
  strcpy(folder + base, g->below);
  for (;;) {
    visit(arg, root, folder);
    char *slash = strrchr(folder + base, '/');
    if (!slash) return;
    *slash = '\0';
  }
}
