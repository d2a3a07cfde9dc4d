/* SPDX-License-Identifier: MIT
 * A line a peak: rate, tier, what it bounds, and the machine to the line's end. */
#include "perf/seen.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char title[] = "headrow: best peaks seen, 1\n";

/* Appends what stands behind the colon, when it is not there yet. */
static void add_value(char *text, size_t room, const char *line) {
  const char *colon = strchr(line, ':');
  const char *value = colon ? colon + 1 + strspn(colon + 1, " \t") : "";
  char item[96];
  snprintf(item, sizeof item, "%.*s", (int)strcspn(value, "\n"), value);
  size_t used = strlen(text);
  if (!strstr(text, item)) snprintf(text + used, room - used, "%s%s", used ? " " : "", item);
}

void perf_this_machine(char text[PERF_MACHINE_TEXT]) {
  enum { FOR_CPUS = 24 };
  static const char *const keys[] = {"model name", "CPU implementer", "CPU part"};
  char line[8192]; /* the flags of a CPU are many */
  FILE *file = fopen("/proc/cpuinfo", "re");
  *text = '\0';
  while (file && fgets(line, sizeof line, file))
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
      if (strncmp(line, keys[i], strlen(keys[i])) == 0)
        add_value(text, PERF_MACHINE_TEXT - FOR_CPUS, line);
  if (file) fclose(file);
  size_t used = strlen(text);
  snprintf(text + used, PERF_MACHINE_TEXT - used, "%s, %ld CPUs",
           used ? "" : "a CPU without a name", sysconf(_SC_NPROCESSORS_ONLN));
}

/* What is read must be the whole line, with nothing cut. */
static bool read_peak(perf_seen_peak *p, const char *line) {
  char again[256];
  if (sscanf(line, "%lf %23s %7s %159[^\n]", &p->rate, p->tier, p->bound, p->machine) != 4)
    return false;
  snprintf(again, sizeof again, " %s %s %s\n", p->tier, p->bound, p->machine);
  return strcmp(line + strcspn(line, " "), again) == 0 && isfinite(p->rate) && p->rate > 0;
}

static bool read_all(perf_seen *seen, FILE *file) {
  char line[256];
  if (!fgets(line, sizeof line, file) || strcmp(line, title) != 0) return false;
  while (fgets(line, sizeof line, file))
    if (seen->count == PERF_MOST_SEEN || !read_peak(&seen->peak[seen->count++], line)) return false;
  return !ferror(file);
}

bool perf_seen_read(perf_seen *seen, const char *path, const char *machine) {
  *seen = (perf_seen){.count = 0};
  snprintf(seen->machine, sizeof seen->machine, "%s", machine);
  FILE *file = fopen(path, "re");
  if (!file) return errno == ENOENT;
  bool fine = read_all(seen, file);
  fclose(file);
  if (!fine) seen->count = 0;
  return fine;
}

/* Its place, or the count where it is not. */
static size_t find(const perf_seen *seen, const char *tier, const char *bound) {
  for (size_t i = 0; i < seen->count; i++) {
    const perf_seen_peak *p = &seen->peak[i];
    if (strcmp(p->machine, seen->machine) == 0 && strcmp(p->tier, tier) == 0 &&
        strcmp(p->bound, bound) == 0)
      return i;
  }
  return seen->count;
}

double perf_seen_best(const perf_seen *seen, const char *tier, const char *bound) {
  size_t at = find(seen, tier, bound);
  return at < seen->count ? seen->peak[at].rate : 0;
}

void perf_seen_add(perf_seen *seen, const char *tier, const char *bound, double rate) {
  if (!(rate > perf_seen_best(seen, tier, bound))) return;
  size_t at = find(seen, tier, bound);
  if (at == PERF_MOST_SEEN) memmove(seen->peak, seen->peak + 1, --at * sizeof *seen->peak);
  perf_seen_peak *p = &seen->peak[at];
  if (at >= seen->count) seen->count = at + 1;
  p->rate = rate;
  snprintf(p->tier, sizeof p->tier, "%s", tier);
  snprintf(p->bound, sizeof p->bound, "%s", bound);
  memcpy(p->machine, seen->machine, sizeof p->machine);
  seen->changed = true;
}

bool perf_seen_write(const perf_seen *seen, const char *path) {
  char *new;
  if (asprintf(&new, "%s.%ld", path, (long)getpid()) < 0) return false;
  FILE *file = fopen(new, "we");
  bool fine = file && fputs(title, file) >= 0;
  for (size_t i = 0; fine && i < seen->count; i++) {
    const perf_seen_peak *p = &seen->peak[i];
    fine = fprintf(file, "%.3f %s %s %s\n", p->rate, p->tier, p->bound, p->machine) > 0;
  }
  if (file && fclose(file) != 0) fine = false;
  fine = fine && rename(new, path) == 0;
  if (file && !fine) unlink(new);
  free(new);
  return fine;
}
